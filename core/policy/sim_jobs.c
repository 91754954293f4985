/* The transactions of the simulated core: carries out what the real machine (txn.h) wants, brings
 * it the answers, and notes what becomes of the engines, as core/loop does. */
#include "core/policy/sim_core_private.h"

#include "core/base/mem.h"
#include "core/policy/txn_planted.h"

#include <stdlib.h>
#include <string.h>

enum { FAILURES_MAX = 2, FULL_EVERY = 4 };
static const int64_t SCORE_MOST_US = 90000000; /* continue, score, pause, each to its bound */

void sim_job_free(Job *job)
{
    if (job) {
        txn_free(job->txn);
        free(job->members);
        free(job->out);
        free(job);
    }
}

static Job **find_job(SimCore *core, int64_t id)
{
    if (core->main && core->main->id == id) {
        return &core->main;
    }
    for (int i = 0; i < SIM_FENCES; i++) {
        if (core->fences[i] && core->fences[i]->id == id) {
            return &core->fences[i];
        }
    }
    return NULL;
}

static int member_index(const Job *job, int engine)
{
    if (engine < job->count && job->members[engine].engine == engine) {
        return engine; /* the fleet's members are mostly all of it, in order */
    }
    for (int i = 0; i < job->count; i++) {
        if (job->members[i].engine == engine) {
            return i;
        }
    }
    return -1;
}

void sim_seat_out(SimWorld *world, int engine)
{
    Seat *seat = &world->core->seats[engine];
    if (seat->admitted) {
        seat->admitted = false;
        SimEntry entry = {.kind = ENTRY_FENCE, .engine = engine,
                          .incarnation = seat->incarnation};
        sim_note(world, &entry);
    }
}

static void quarantine(SimWorld *world, Job *job, const TxnAction *action)
{
    Seat *seat = &world->core->seats[action->engine];
    job->out[member_index(job, action->engine)] = true;
    seat->bring = true;
    seat->verified = -1;
    int64_t wait_us = SIM_BRING_AGAIN_US << (seat->failures < 4 ? seat->failures : 4);
    seat->due_us = world->now_us + wait_us;
    seat->failures++;
    if (txn_in_doubt(job->txn, action->engine)) {
        seat->doubt_us = world->now_us + TXN_DOUBT_US;
    }
    seat->follows = -1;
    world->report->quarantines++;
    sim_seat_out(world, action->engine);
}

static void admit_members(SimWorld *world, const Job *job)
{
    int64_t version = job->rolled_back ? job->from : job->to;
    for (int i = 0; i < job->count; i++) {
        Seat *seat = &world->core->seats[job->members[i].engine];
        if (job->out[i] || seat->incarnation != job->members[i].incarnation || version < 0) {
            continue;
        }
        seat->bring = false;
        seat->failures = 0;
        seat->verified = version;
        seat->admitted = true;
        bool own = txn_own_copy(job->txn, job->members[i].engine);
        seat->follows = own ? version : -1;
        seat->copies_odd =
            own ? 0 : seat->copies_odd + txn_copy_odd(job->txn, job->members[i].engine);
        if (txn_in_doubt(job->txn, job->members[i].engine)) {
            seat->doubt_us = world->now_us + TXN_DOUBT_US;
        }
        SimEntry entry = {.kind = ENTRY_ADMIT, .txn = job->id, .to = version,
                          .engine = job->members[i].engine, .incarnation = seat->incarnation};
        sim_note(world, &entry);
    }
}

static void end(SimWorld *world, Job *job, const TxnAction *action)
{
    SimCore *core = world->core;
    job->over = true;
    bool fleet = job->engine < 0;
    for (int i = 0; i < job->count && !action->commit && !job->rolled_back; i++) {
        Seat *seat = &core->seats[job->members[i].engine];
        if (txn_failed(job->txn, job->members[i].engine)) { /* it does not see the policy */
            seat->odd += fleet;
            seat->due_us = world->now_us + SIM_BRING_AGAIN_US;
        }
    }
    if (action->commit && fleet) {
        core->committed = job->to;
        core->settle = false;
        world->report->committed++;
    }
    bool decided = action->commit || job->rolled_back; /* else nobody was touched: once more */
    if (fleet && job->from == job->to && decided) {
        core->settle = false; /* whoever could not be brought over is fenced */
    }
    SimEntry state = {.kind = ENTRY_STATE, .txn = job->id, .to = job->to, .engine = -1,
                      .commit = action->commit};
    if (job->from != job->to) {
        sim_write(world, &state);
    }
    SimEntry entry = {.kind = ENTRY_END, .txn = job->id, .from = job->from, .to = job->to,
                      .engine = job->engine, .commit = action->commit, .fleet = fleet};
    sim_write(world, &entry);
    world->report->faulted += fleet && world->report->faults > job->faults;
}

static void send_call(SimWorld *world, const Job *job, const TxnAction *action)
{
    if (action->kind == TXN_ACT_PULL) { /* from now on its copy may be anything */
        world->core->seats[action->engine].follows = -1;
    }
    SimCore *core = world->core;
    bool opens = world->engines[action->engine].opens && !core->scoring[action->engine];
    if (action->kind == TXN_ACT_SCORE && opens) {
        core->scoring[action->engine] = true;
        core->window_due_us = world->now_us + SCORE_MOST_US;
        canary_window_open(&core->window, world->now_us);
    }
    static const SimCall calls[] = {
        [TXN_ACT_PAUSE] = SIM_PAUSE, [TXN_ACT_FLUSH] = SIM_FLUSH, [TXN_ACT_APPLY] = SIM_APPLY,
        [TXN_ACT_READ_VERSION] = SIM_VERSION, [TXN_ACT_CHECKSUM] = SIM_CHECKSUM,
        [TXN_ACT_SCORE] = SIM_SCORE, [TXN_ACT_CONTINUE] = SIM_CONTINUE,
        [TXN_ACT_PULL] = SIM_PULL, [TXN_ACT_LOOK] = SIM_LOOK};
    SimMessage message = {.call = calls[action->kind], .engine = action->engine,
                          .seq = action->seq, .incarnation = action->incarnation,
                          .txn = job->id, .version = action->version, .base = action->base,
                          .own_copy = action->own_copy, .keep = action->keep};
    sim_send(world, &message);
}

/* Checks and gates are the core's own work; their answers come a moment later. */
static void local(SimWorld *world, Job *job, const TxnAction *action)
{
    bool check = action->kind == TXN_ACT_CHECK;
    SimMessage message = {.engine = (int)action->kind, .seq = action->seq, .txn = job->id,
                          .life = world->life,
                          .ok = !check || job->to == job->from || !world->bad[action->version]};
    int64_t took = check ? 100000 + (int64_t)rng_below(&world->rng, 3000000) : 1000;
    sim_schedule(world, world->now_us + took, EVENT_LOCAL, &message);
}

static void act(SimWorld *world, Job *job, const TxnAction *action)
{
    SimCore *core = world->core;
    SimEntry entry = {.kind = ENTRY_DECISION, .txn = job->id, .from = job->from, .to = job->to,
                      .engine = job->engine, .commit = action->commit, .fleet = job->engine < 0};
    switch (action->kind) {
    case TXN_ACT_CLOSE_GATE:
        core->gate_open = core->gate_open && job->engine >= 0;
        local(world, job, action);
        break;
    case TXN_ACT_CHECK: local(world, job, action); break;
    case TXN_ACT_LOOK:
    case TXN_ACT_PULL:
    case TXN_ACT_PAUSE:
    case TXN_ACT_FLUSH:
    case TXN_ACT_APPLY:
    case TXN_ACT_READ_VERSION:
    case TXN_ACT_CHECKSUM:
    case TXN_ACT_SCORE:
    case TXN_ACT_CONTINUE: send_call(world, job, action); break;
    case TXN_ACT_DECIDE:
        job->rolled_back = !action->commit;
        for (int i = 0; i < job->count && job->engine < 0; i++) {
            Seat *seat = &core->seats[job->members[i].engine];
            bool odd = !action->commit && txn_failed(job->txn, job->members[i].engine);
            seat->odd = action->commit ? 0 : seat->odd + odd;
        }
        sim_write(world, &entry);
        job->decide_seq = action->seq;
        job->decide_at = world->entries;
        job->decided = true;
        break;
    case TXN_ACT_QUARANTINE: quarantine(world, job, action); break;
    case TXN_ACT_OPEN_GATE:
        if (job->engine < 0 && !job->rolled_back) {
            sim_samples_policy(world, job->to);
        }
        admit_members(world, job);
        core->gate_open = core->gate_open || (job->engine < 0 && !job->rolled_back) ||
                          (job->engine < 0 && job->from >= 0);
        local(world, job, action);
        break;
    case TXN_ACT_END: end(world, job, action); break;
    }
}

void sim_job_pump(SimWorld *world, Job *job)
{
    TxnAction action;
    while (!job->over && !world->dying && txn_next(job->txn, &action)) {
        act(world, job, &action);
    }
}

/* ---- answers ------------------------------------------------------------------------------ */

static void digest_text(int64_t weights, char out[24])
{
    snprintf(out, 24, "%016llx", (unsigned long long)weights);
}

static TxnActionKind action_of(SimCall call)
{
    switch (call) {
    case SIM_PAUSE: return TXN_ACT_PAUSE;
    case SIM_FLUSH: return TXN_ACT_FLUSH;
    case SIM_APPLY: return TXN_ACT_APPLY;
    case SIM_VERSION: return TXN_ACT_READ_VERSION;
    case SIM_CHECKSUM: return TXN_ACT_CHECKSUM;
    case SIM_SCORE: return TXN_ACT_SCORE;
    case SIM_CONTINUE: return TXN_ACT_CONTINUE;
    case SIM_PULL: return TXN_ACT_PULL;
    case SIM_LOOK: return TXN_ACT_LOOK;
    case SIM_GENERATE:
    case SIM_CALL_COUNT: break;
    }
    return TXN_ACT_END;
}

void sim_scored(SimWorld *world, int engine)
{
    SimCore *core = world->core;
    if (core->scoring[engine]) {
        core->scoring[engine] = false;
        canary_window_close(&core->window, world->now_us);
    }
}

bool sim_core_unvouched(const SimWorld *world, const SimMessage *message)
{
    return world->foreign && message->span_count > 0 && !TXN_PLANTED(PLANTED_UNVOUCHED) &&
           canary_window_covers(&world->core->window, message->sent_us, message->first_us,
                                world->now_us);
}

void sim_core_answer(SimWorld *world, const SimMessage *message)
{
    if (message->call == SIM_SCORE) {
        sim_scored(world, message->engine);
    }
    if (message->call == SIM_GENERATE) {
        sim_samples_answer(world, message);
        return;
    }
    Job **job = find_job(world->core, message->txn);
    if (!job) {
        return; /* after its transaction: a doubt stays until its time */
    }
    char digest[24];
    digest_text(message->weights, digest);
    TxnAnswer answer = {.kind = action_of(message->call), .engine = message->engine,
                        .seq = message->seq, .incarnation = message->incarnation,
                        .ok = message->ok, .unsupported = message->unsupported,
                        .unknown = message->unknown, .unseen = message->unseen,
                        .version = message->reported,
                        .digest = digest, .logprobs = message->scores,
                        .logprob_count = SIM_CANARY, .detail = message->ok ? NULL : "refused"};
    if (message->unseen && txn_phase((*job)->txn) == TXN_PREPARE) {
        SimEntry entry = {.kind = ENTRY_UNSEEN, .txn = message->txn, .engine = message->engine,
                          .incarnation = message->incarnation};
        sim_note(world, &entry);
    }
    txn_answer((*job)->txn, &answer, world->now_us);
    sim_job_pump(world, *job);
}

void sim_core_local(SimWorld *world, const SimMessage *message)
{
    Job **job = find_job(world->core, message->txn);
    if (job) {
        TxnAnswer answer = {.kind = (TxnActionKind)message->engine, .engine = -1,
                            .seq = message->seq, .ok = message->ok, .detail = "bad artifact"};
        txn_answer((*job)->txn, &answer, world->now_us);
        sim_job_pump(world, *job);
    }
}

void sim_job_synced(SimWorld *world, Job *job)
{
    if (job && job->decided && world->synced >= job->decide_at) {
        job->decided = false;
        TxnAnswer answer = {.kind = TXN_ACT_DECIDE, .engine = -1, .seq = job->decide_seq,
                            .ok = true};
        txn_answer(job->txn, &answer, world->now_us);
        sim_job_pump(world, job);
    }
}

void sim_job_lost(SimWorld *world, Job *job, int engine, int64_t incarnation)
{
    int index = job ? member_index(job, engine) : -1;
    if (index >= 0 && !job->over && !job->out[index] &&
        job->members[index].incarnation == incarnation) {
        job->out[index] = true;
        txn_member_lost(job->txn, engine, incarnation, world->now_us);
        sim_job_pump(world, job);
    }
}

/* ---- start -------------------------------------------------------------------------------- */

bool sim_member_now(const SimWorld *world, int engine)
{
    const Seat *seat = &world->core->seats[engine];
    return world->engines[engine].alive && seat->incarnation > 0 &&
           seat->incarnation == world->engines[engine].incarnation &&
           seat->doubt_us <= world->now_us;
}

bool sim_left_out(const SimWorld *world, int engine)
{
    const Seat *seat = &world->core->seats[engine];
    return (seat->bring && seat->due_us > world->now_us) || seat->odd >= FAILURES_MAX;
}

static void leave_out(SimWorld *world, int engine)
{
    Seat *seat = &world->core->seats[engine];
    seat->odd = 0;
    if (!seat->bring) {
        seat->bring = true;
        seat->due_us = world->now_us + SIM_BRING_AGAIN_US;
        sim_seat_out(world, engine);
    }
}

static void expect(SimWorld *world, const Job *job)
{
    float scores[SIM_CANARY];
    for (int i = 0; i < SIM_CANARY; i++) {
        scores[i] = sim_canary(world->truth[job->to], i);
    }
    txn_expect(job->txn, scores, SIM_CANARY);
    char digests[2][24] = {"", ""};
    digest_text(world->truth[job->to], digests[0]);
    if (job->from >= 0) {
        digest_text(world->truth[job->from], digests[1]);
    }
    txn_expect_digests(job->txn, digests[0], digests[1]);
    if (job->from >= 0) {
        for (int i = 0; i < SIM_CANARY; i++) {
            scores[i] = sim_canary(world->truth[job->from], i);
        }
        txn_expect_back(job->txn, scores, SIM_CANARY);
    }
}

Job *sim_job_start(SimWorld *world, int64_t to, int only)
{
    SimCore *core = world->core;
    Job *job = xcalloc(1, sizeof *job);
    *job = (Job){.id = core->next_txn++, .from = core->committed, .to = to, .engine = only,
                 .faults = world->report->faults};
    job->members = xcalloc((size_t)world->count, sizeof *job->members);
    job->out = xcalloc((size_t)world->count, sizeof *job->out);
    /* As delta_plan.h has it: a delta leads on from the version before it, nothing else does; a
     * fence brings one copy to the newest version in full. */
    bool pulls = to == core->published;
    bool delta = pulls && only < 0 && core->committed >= 0 && to == core->committed + 1 &&
                 to % FULL_EVERY != 0;
    int good = 0;
    for (int i = 0; i < world->count; i++) {
        good += sim_member_now(world, i) && !sim_left_out(world, i);
    }
    for (int i = 0; i < world->count; i++) {
        if (only < 0 && good > 0 && sim_member_now(world, i) && sim_left_out(world, i)) {
            leave_out(world, i);
        } else if (sim_member_now(world, i) && (only < 0 || only == i)) {
            job->members[job->count++] = (TxnMember){
                .engine = i, .incarnation = core->seats[i].incarnation,
                .holds = core->seats[i].verified == job->from && !core->seats[i].bring,
                .unknown = job->from < 0 && job->id > 1,
                .keeps = only < 0 && world->inflight == SIM_INFLIGHT_IN_PLACE &&
                         world->engines[i].keeps,
                .same_digest = world->engines[i].proves,
                .looks = true,
                .pulls = pulls && world->engines[i].pulls && core->seats[i].copies_odd < 2,
                .follows = core->seats[i].follows};
        } else if (only < 0 && !sim_member_now(world, i) && core->seats[i].incarnation > 0) {
            core->seats[i].bring = true;
            sim_seat_out(world, i);
        }
    }
    TxnConfig config = {.txn = job->id, .from_version = job->from, .to_version = to,
                        .delta_base = delta ? job->from : -1,
                        .apply_retries = 1};
    job->txn = txn_new(&config, job->members, job->count);
    expect(world, job);
    SimEntry entry = {.kind = ENTRY_TXN, .txn = job->id, .from = job->from, .to = to,
                      .engine = only, .fleet = only < 0};
    sim_write(world, &entry);
    txn_begin(job->txn, world->now_us);
    return job;
}
