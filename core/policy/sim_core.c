/* The core in the simulated world: it drives the real transaction (txn.h) and the real rule of
 * recovery (recover.h) as core/loop does: one fleet-wide transaction at a time, fences for single
 * engines between them, admission of samples. Its memory ends with it; only the ledger stays. */
#include "core/base/mem.h"
#include "core/policy/recover.h"
#include "core/policy/sim_world.h"
#include "core/policy/txn.h"

#include <stdlib.h>
#include <string.h>

enum { FENCES = 8, FAILURES_MAX = 2, FULL_EVERY = 4 };
static const int64_t TICK_US = 2000000;
static const int64_t BRING_AGAIN_US = 5000000;
static const int64_t SETTLE_US = 10000000; /* calls of the core before this one have arrived */

typedef struct Seat {
    int64_t incarnation, verified, due_us, doubt_us;
    int64_t follows; /* what its own copy is proved to hold; -1 not known */
    int failures, odd, copies_odd; /* copies_odd: updates in a row whose copy led elsewhere */
    bool bring, admitted;
} Seat;

typedef struct Job {
    Txn *txn;
    int64_t id, from, to, faults;
    int engine; /* the fenced one; -1: the fleet */
    uint32_t decide_seq;
    size_t decide_at; /* entries written when the decision was: durable once all of them are */
    bool over, rolled_back, decided;
    TxnMember *members;
    bool *out;
    int count;
} Job;

struct SimCore {
    Seat seats[SIM_ENGINES_MAX];
    Job *main, *fences[FENCES];
    int64_t committed, next_txn, next_version, start_us, update_us;
    int64_t published; /* the newest version that this life of the core published */
    int begun; /* updates of the episode, over all lives */
    bool gate_open, settle, pumping;
};

SimCore *sim_core_new(SimWorld *world)
{
    SimCore *core = xcalloc(1, sizeof *core);
    for (int i = 0; i < world->count; i++) {
        core->seats[i].follows = -1;
    }
    return core;
}

static void job_free(Job *job)
{
    if (job) {
        txn_free(job->txn);
        free(job->members);
        free(job->out);
        free(job);
    }
}

void sim_core_died(SimWorld *world)
{
    SimCore *core = world->core;
    sim_samples_died(world->samples);
    int begun = core->begun;
    job_free(core->main);
    for (int i = 0; i < FENCES; i++) {
        job_free(core->fences[i]);
    }
    *core = (SimCore){.begun = begun};
    for (int i = 0; i < world->count; i++) {
        core->seats[i].follows = -1; /* after a restart of the core nothing is known of copies */
    }
}

void sim_core_free(SimCore *core)
{
    if (core) {
        job_free(core->main);
        for (int i = 0; i < FENCES; i++) {
            job_free(core->fences[i]);
        }
        free(core);
    }
}

/* ---- jobs --------------------------------------------------------------------------------- */

static Job **find_job(SimCore *core, int64_t id)
{
    if (core->main && core->main->id == id) {
        return &core->main;
    }
    for (int i = 0; i < FENCES; i++) {
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

static void seat_out(SimWorld *world, int engine)
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
    seat->due_us = world->now_us + (BRING_AGAIN_US << (seat->failures < 4 ? seat->failures : 4));
    seat->failures++;
    if (txn_in_doubt(job->txn, action->engine)) {
        seat->doubt_us = world->now_us + TXN_DOUBT_US;
    }
    seat->follows = -1;
    world->report->quarantines++;
    seat_out(world, action->engine);
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
            seat->due_us = world->now_us + BRING_AGAIN_US;
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

static void pump(SimWorld *world, Job *job)
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

void sim_core_answer(SimWorld *world, const SimMessage *message)
{
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
    pump(world, *job);
}

void sim_core_local(SimWorld *world, const SimMessage *message)
{
    Job **job = find_job(world->core, message->txn);
    if (job) {
        TxnAnswer answer = {.kind = (TxnActionKind)message->engine, .engine = -1,
                            .seq = message->seq, .ok = message->ok, .detail = "bad artifact"};
        txn_answer((*job)->txn, &answer, world->now_us);
        pump(world, *job);
    }
}

static void decided(SimWorld *world, Job *job)
{
    if (job && job->decided && world->synced >= job->decide_at) {
        job->decided = false;
        TxnAnswer answer = {.kind = TXN_ACT_DECIDE, .engine = -1, .seq = job->decide_seq,
                            .ok = true};
        txn_answer(job->txn, &answer, world->now_us);
        pump(world, job);
    }
}

void sim_core_synced(SimWorld *world)
{
    decided(world, world->core->main);
    for (int i = 0; i < FENCES; i++) {
        decided(world, world->core->fences[i]);
    }
}

/* ---- start of transactions ---------------------------------------------------------------- */

static bool member_now(const SimWorld *world, int engine)
{
    const Seat *seat = &world->core->seats[engine];
    return world->engines[engine].alive && seat->incarnation > 0 &&
           seat->incarnation == world->engines[engine].incarnation &&
           seat->doubt_us <= world->now_us;
}

static bool left_out(const SimWorld *world, int engine)
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
        seat->due_us = world->now_us + BRING_AGAIN_US;
        seat_out(world, engine);
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

static Job *job_start(SimWorld *world, int64_t to, int only)
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
        good += member_now(world, i) && !left_out(world, i);
    }
    for (int i = 0; i < world->count; i++) {
        if (only < 0 && good > 0 && member_now(world, i) && left_out(world, i)) {
            leave_out(world, i);
        } else if (member_now(world, i) && (only < 0 || only == i)) {
            job->members[job->count++] = (TxnMember){
                .engine = i, .incarnation = core->seats[i].incarnation,
                .holds = core->seats[i].verified == job->from && !core->seats[i].bring,
                .keeps = only < 0 && world->inflight == SIM_INFLIGHT_IN_PLACE &&
                         world->engines[i].keeps,
                .same_digest = world->engines[i].proves,
                .looks = true,
                .pulls = pulls && world->engines[i].pulls && core->seats[i].copies_odd < 2,
                .follows = core->seats[i].follows};
        } else if (only < 0 && !member_now(world, i) && core->seats[i].incarnation > 0) {
            core->seats[i].bring = true;
            seat_out(world, i);
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

static int64_t publish(SimWorld *world)
{
    SimCore *core = world->core;
    int64_t version = core->published = core->next_version++;
    bool damaged = !world->config.calm && !world->quiet && rng_below(&world->rng, 25) == 0;
    world->truth[version] = 1000 + ++world->publications;
    world->bad[version] = damaged;
    SimEntry entry = {.kind = ENTRY_POLICY, .to = version, .engine = -1,
                      .weights = world->truth[version], .commit = !damaged};
    sim_write(world, &entry);
    return version;
}

/* Mostly a new policy; now and then the operator goes back to an older good one. */
static int64_t next_target(SimWorld *world)
{
    SimCore *core = world->core;
    if (core->committed > 1 && rng_below(&world->rng, 10) == 0) {
        int64_t old = 1 + (int64_t)rng_below(&world->rng, (uint64_t)core->committed);
        if (!world->bad[old] && old != core->committed) {
            return old;
        }
    }
    return publish(world);
}

static void start_main(SimWorld *world)
{
    SimCore *core = world->core;
    int members = 0;
    for (int i = 0; i < world->count; i++) {
        members += member_now(world, i);
    }
    if (members == 0) {
        return;
    }
    bool settle = core->settle && core->committed >= 0;
    world->fault_at = 1 + (int64_t)rng_below(&world->rng, (uint64_t)members * 6);
    int64_t to = settle ? core->committed : next_target(world);
    core->begun += !settle;
    core->update_us = world->now_us + TICK_US + (int64_t)rng_below(&world->rng, 20000000);
    world->report->transactions++;
    core->main = job_start(world, to, -1);
    pump(world, core->main);
}

static void start_fences(SimWorld *world)
{
    SimCore *core = world->core;
    for (int i = 0; i < world->count; i++) {
        Seat *seat = &core->seats[i];
        if (!seat->bring || seat->due_us > world->now_us || !member_now(world, i)) {
            continue;
        }
        int slot = -1;
        bool busy = false;
        for (int j = 0; j < FENCES; j++) {
            busy = busy || (core->fences[j] && core->fences[j]->engine == i);
            slot = core->fences[j] ? slot : j;
        }
        if (slot < 0) {
            return;
        }
        if (!busy && !world->dying) {
            world->report->fences++;
            core->fences[slot] = job_start(world, core->committed, i);
            pump(world, core->fences[slot]);
        }
    }
}

/* ---- time --------------------------------------------------------------------------------- */

static void lost(SimWorld *world, Job *job, int engine, int64_t incarnation)
{
    int index = job ? member_index(job, engine) : -1;
    if (index >= 0 && !job->over && !job->out[index] &&
        job->members[index].incarnation == incarnation) {
        job->out[index] = true;
        txn_member_lost(job->txn, engine, incarnation, world->now_us);
        pump(world, job);
    }
}

/* A probe of every engine: who is there, as which process, saying which version. */
static void probe(SimWorld *world)
{
    SimCore *core = world->core;
    for (int i = 0; i < world->count; i++) {
        Seat *seat = &core->seats[i];
        const SimEngine *engine = &world->engines[i];
        bool other = engine->alive && seat->incarnation != engine->incarnation;
        bool gone = !engine->alive && seat->incarnation > 0;
        if (other || gone) {
            int64_t old = seat->incarnation;
            seat_out(world, i);
            *seat = (Seat){.incarnation = engine->alive ? engine->incarnation : 0, .verified = -1,
                           .follows = -1, .bring = true, .odd = seat->odd};
            lost(world, core->main, i, old);
            for (int j = 0; j < FENCES; j++) {
                lost(world, core->fences[j], i, old);
            }
        } else if (seat->admitted && !core->main && engine->version != seat->verified) {
            seat->bring = true;
            seat_out(world, i);
        }
    }
}

static void tick_job(SimWorld *world, Job **slot)
{
    Job *job = *slot;
    if (job && !job->over) {
        int64_t due = txn_next_due_us(job->txn);
        if (due > 0 && world->now_us >= due) {
            txn_tick(job->txn, world->now_us);
            pump(world, job);
        }
    }
    if (job && job->over) {
        job_free(job);
        *slot = NULL;
    }
}

int64_t sim_core_serves(const SimWorld *world, int engine)
{
    const Seat *seat = &world->core->seats[engine];
    return seat->admitted ? seat->incarnation : 0;
}

static bool fencing(const SimCore *core)
{
    for (int i = 0; i < FENCES; i++) {
        if (core->fences[i]) {
            return true;
        }
    }
    return false;
}

void sim_core_tick(SimWorld *world)
{
    SimCore *core = world->core;
    probe(world);
    tick_job(world, &core->main);
    for (int i = 0; i < FENCES; i++) {
        tick_job(world, &core->fences[i]);
    }
    if (core->gate_open) {
        sim_samples_tick(world);
    }
    bool wanted = (core->settle && core->committed >= 0) || core->committed < 0 ||
                  core->begun < world->config.updates;
    if (!core->main && world->now_us >= core->start_us + SETTLE_US) {
        bool due = wanted && world->now_us >= core->update_us &&
                   core->next_version < SIM_VERSIONS_MAX;
        if (due && !fencing(core)) {
            start_main(world);
        } else if (!due && core->committed >= 0) {
            start_fences(world);
        }
    }
    SimMessage message = {.life = world->life};
    bool busy = core->main || fencing(core);
    sim_schedule(world, world->now_us + (busy ? TICK_US / 8 : TICK_US), EVENT_TICK, &message);
}

bool sim_core_settled(const SimWorld *world)
{
    const SimCore *core = world->core;
    bool settled = world->core_alive && !core->main && !fencing(core) && !core->settle &&
                   core->committed >= 0 && core->gate_open;
    for (int i = 0; i < world->count && settled; i++) {
        settled = world->engines[i].alive && core->seats[i].admitted;
    }
    return settled;
}

bool sim_core_done(const SimWorld *world)
{
    return world->core_alive && !world->core->main && world->core->begun >= world->config.updates;
}

/* What a core does when it starts: the ledger says what stands; nobody serves until verified. */
void sim_core_start(SimWorld *world)
{
    SimCore *core = world->core;
    Recovery recovery;
    recover_begin(&recovery);
    size_t entries = world->entries; /* what is written below is not read again */
    for (size_t i = 0; i < entries && !world->dying; i++) {
        const SimEntry *entry = &world->log[i];
        if (entry->kind != ENTRY_TXN || entry->lost) {
            continue;
        }
        LedgerRow row = {.txn = entry->txn, .from_version = entry->from, .to_version = entry->to,
                         .decided = -1};
        for (size_t j = i + 1; j < entries; j++) {
            const SimEntry *later = &world->log[j];
            bool same = !later->lost && later->txn == row.txn;
            row.decided = same && later->kind == ENTRY_DECISION ? later->commit : row.decided;
            row.ended = row.ended || (same && later->kind == ENTRY_END);
        }
        RecoverClose write = recover_row(&recovery, &row);
        SimEntry state = {.kind = ENTRY_STATE, .txn = row.txn, .to = row.to_version,
                          .engine = -1, .commit = write.committed};
        SimEntry close = {.kind = ENTRY_END, .txn = row.txn, .from = row.from_version,
                          .to = row.to_version, .engine = -1, .commit = write.committed};
        if (write.state) {
            sim_write(world, &state);
        }
        if (write.close) {
            sim_write(world, &close);
        }
    }
    core->committed = recovery.committed;
    sim_samples_policy(world, recovery.committed);
    core->next_txn = recovery.last_txn + 1;
    core->next_version = recovery.last_version < 1 ? 1 : recovery.last_version + 1;
    core->settle = true;
    core->start_us = world->now_us;
    SimEntry entry = {.kind = ENTRY_START, .to = core->committed, .engine = -1};
    sim_note(world, &entry);
    SimMessage message = {.life = world->life};
    sim_schedule(world, world->now_us + TICK_US / 8, EVENT_TICK, &message);
}
