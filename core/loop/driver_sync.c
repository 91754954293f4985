/* Carries out policy transactions: the fleet's (the loop's SYNC, an operator's update) and fences
 * (one engine that came back or failed, brought to the committed policy before it may serve).
 * The fleet's transaction and fences never run at the same time. */
#include "core/loop/driver_private.h"

#include <stdlib.h>
#include <string.h>

enum { FENCES_MAX = 8, SYNC_FAILURES_MAX = 2, SCORE_MS = 15000 };
static const int64_t BRING_AGAIN_US = 5000000;

typedef struct SyncMember {
    TxnMember id;
    bool out; /* lost or quarantined */
} SyncMember;

struct SyncJob {
    Driver *d;
    Txn *txn;
    SyncMember *members;
    int count, calls; /* calls: answers that still come and point here */
    int64_t id, from, to, gate_us;
    bool fence, again, over, committed, rolled_back, bad_artifact, pumping;
};

typedef struct SyncCall {
    SyncJob *job;
    TxnAction action;
    int64_t sent_us;
    bool continued;       /* SCORE: the engine runs for its canary */
    EngineAnswer *scored; /* SCORE: kept while the engine is paused again */
} SyncCall;

typedef struct CheckWork { /* the artifact check runs beside the loop: it reads every byte */
    uv_work_t work;
    SyncJob *job;
    TxnAction action;
    char *dir;
    const Artifact *previous;
    double norm_jump;
    Artifact artifact;
    Err err;
    Fault fault;
    int64_t sent_us;
} CheckWork;

static void pump(SyncJob *job);

static TxnAnswer answer_to(const TxnAction *action, bool ok, const char *detail)
{
    return (TxnAnswer){.kind = action->kind, .engine = action->engine, .seq = action->seq,
                       .incarnation = action->incarnation, .ok = ok, .detail = detail,
                       .version = -1};
}

static void give(SyncJob *job, const TxnAnswer *answer)
{
    txn_answer(job->txn, answer, clock_wall_us());
    pump(job);
}

static void ledger(SyncJob *job, const TxnAction *action, bool ok, int64_t sent_us,
                   const char *detail)
{
    int64_t now = clock_wall_us();
    TxnAnswerFact fact = {.txn = job->id, .engine = action->engine + 1,
                          .incarnation = action->incarnation, .t_us = now,
                          .took_us = now - sent_us, .phase = action->phase, .ok = ok,
                          .detail = detail};
    store_put_txn_answer(job->d->store, &fact);
}

/* ---- the artifact ------------------------------------------------------------------------- */

static void check_work(uv_work_t *work)
{
    CheckWork *check = work->data;
    check->err = artifact_check(check->dir, check->previous, check->norm_jump, &check->artifact,
                                &check->fault);
}

static void policy_state(Driver *d, int64_t version, int64_t txn, PolicyState state,
                         const char *reason)
{
    PolicyStateFact fact = {.version = version, .t_us = clock_wall_us(), .txn = txn,
                            .state = state, .reason = reason};
    store_put_policy_state(d->store, &fact);
}

static void checked(uv_work_t *work, int status)
{
    CheckWork *check = work->data;
    SyncJob *job = check->job;
    Driver *d = job->d;
    job->calls--;
    bool ok = status == 0 && check->err == ERR_OK;
    char detail[FAULT_TEXT_MAX + 64];
    if (ok) {
        (void)str_format(detail, sizeof detail, "%d tensors, %lld bytes, digest %s",
                         check->artifact.tensors, (long long)check->artifact.bytes,
                         check->artifact.digest);
        if (d->has_pending) {
            artifact_free(&d->pending_artifact);
        }
        d->pending_artifact = check->artifact;
        d->has_pending = true;
    } else {
        (void)str_format(detail, sizeof detail, "%s", check->fault.sentence);
        job->bad_artifact = true;
        policy_state(d, check->action.version, job->id, POLICY_REJECTED, detail);
        driver_event(d, SEVERITY_CRIT, "policy", 0, "v%lld refused: %s",
                     (long long)check->action.version, detail);
    }
    ledger(job, &check->action, ok, check->sent_us, detail);
    TxnAnswer answer = answer_to(&check->action, ok, detail);
    free(check->dir);
    give(job, &answer);
    free(check);
}

static void check_artifact(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    if (action->version == job->from) { /* it was checked when it was committed */
        TxnAnswer answer = answer_to(action, true, "committed before");
        give(job, &answer);
        return;
    }
    policy_state(d, action->version, job->id, POLICY_APPLYING, NULL);
    CheckWork *check = xcalloc(1, sizeof *check);
    check->work.data = check;
    check->job = job;
    check->action = *action;
    check->dir = driver_path(d, "policies", "v", action->version);
    check->previous = d->has_artifact ? &d->committed_artifact : NULL;
    check->norm_jump = d->config->norm_jump;
    check->sent_us = clock_wall_us();
    job->calls++;
    if (uv_queue_work(&d->uv, &check->work, check_work, checked) != 0) {
        check->err = ERR_MEMORY;
        checked(&check->work, -1);
    }
}

/* ---- calls to engines --------------------------------------------------------------------- */

static void hold_for(Driver *d, const TxnAction *action)
{
    bool loading = action->kind == TXN_ACT_APPLY;
    bool on = action->kind != TXN_ACT_CONTINUE;
    Seat *seat = &d->seats[action->engine];
    fleet_hold(d->fleet, action->engine, on || seat->paused, loading, false);
}

static bool unsupported(const EngineAnswer *a)
{
    return a->err == ERR_UNSUPPORTED || a->status == 404 || a->status == 501 || a->status == 405;
}

static void engine_answered(const EngineAnswer *a, void *user)
{
    SyncCall *call = user;
    SyncJob *job = call->job;
    job->calls--;
    bool ok = a->err == ERR_OK;
    char detail[192];
    (void)str_format(detail, sizeof detail, "%s",
                     ok ? a->outcome : a->fault.sentence[0] ? a->fault.sentence : a->outcome);
    TxnAnswer answer = answer_to(&call->action, ok, detail);
    answer.unsupported = !ok && unsupported(a);
    if (call->action.kind == TXN_ACT_READ_VERSION && ok) {
        answer.version = a->weight_version;
        (void)str_format(detail, sizeof detail, "version %lld", (long long)a->weight_version);
    } else if (call->action.kind == TXN_ACT_CHECKSUM && ok) {
        answer.digest = a->text;
        (void)str_format(detail, sizeof detail, "checksum %s", a->text);
    } else if (call->action.kind == TXN_ACT_SCORE && ok) {
        answer.logprobs = a->logprobs;
        answer.logprob_count = a->logprob_count;
        (void)str_format(detail, sizeof detail, "canary of %d log-probs", a->logprob_count);
    }
    if (answer.unsupported) {
        (void)str_format(detail, sizeof detail, "not offered by the engine");
    }
    ledger(job, &call->action, ok || answer.unsupported, call->sent_us, detail);
    if (!job->over) {
        give(job, &answer);
    }
    free(call);
}

/* A paused engine holds every generation request, the canary too. So its score is taken between a
 * continue and a pause: the gate is closed and the engine gets no work, only the canary runs. */
static void score_step(SyncCall *call, EngineCallKind kind);

static void score_answered(const EngineAnswer *a, void *user)
{
    SyncCall *call = user;
    if (call->scored) { /* paused again: the score counts, unless that failed */
        EngineAnswer *scored = call->scored;
        call->scored = NULL;
        if (a->err != ERR_OK && scored->err == ERR_OK) {
            *scored = *a;
        }
        engine_answered(scored, call);
        free(scored);
        return;
    }
    if (!call->continued) {
        call->continued = true;
        if (a->err != ERR_OK || call->job->over) {
            engine_answered(a, call);
        } else {
            score_step(call, ENGINE_SCORE);
        }
        return;
    }
    call->scored = xcalloc(1, sizeof *call->scored);
    *call->scored = *a;
    score_step(call, ENGINE_PAUSE);
}

static void score_step(SyncCall *call, EngineCallKind kind)
{
    Driver *d = call->job->d;
    EngineCall step = {.kind = kind, .text = kind == ENGINE_PAUSE ? "abort" : NULL,
                       .ids = d->canary, .id_count = d->canary_count,
                       .timeout_ms = kind == ENGINE_SCORE ? SCORE_MS : 0};
    EngineAnswer failed = {.err = ERR_STATE};
    if (fleet_call(d->fleet, call->action.engine, &step, score_answered, call, &failed.fault) !=
        ERR_OK) {
        EngineAnswer *scored = call->scored;
        call->scored = NULL;
        engine_answered(&failed, call);
        free(scored);
    }
}

static void call_score(SyncJob *job, const TxnAction *action)
{
    SyncCall *call = xcalloc(1, sizeof *call);
    *call = (SyncCall){.job = job, .action = *action, .sent_us = clock_wall_us()};
    job->calls++;
    score_step(call, ENGINE_CONTINUE);
}

static void call_engine(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    EngineCall call = {.version = action->version};
    char *dir = NULL;
    switch (action->kind) {
    case TXN_ACT_PAUSE: call.kind = ENGINE_PAUSE; call.text = "abort"; break;
    case TXN_ACT_FLUSH: call.kind = ENGINE_FLUSH; break;
    case TXN_ACT_APPLY:
        call.kind = ENGINE_UPDATE_DISK;
        call.text = dir = driver_path(d, "policies", "v", action->version);
        break;
    case TXN_ACT_READ_VERSION: call.kind = ENGINE_MODEL_INFO; break;
    case TXN_ACT_CHECKSUM: call.kind = ENGINE_CHECKSUM; break;
    case TXN_ACT_SCORE: call_score(job, action); return;
    case TXN_ACT_CONTINUE: call.kind = ENGINE_CONTINUE; break;
    case TXN_ACT_CLOSE_GATE:
    case TXN_ACT_CHECK:
    case TXN_ACT_DECIDE:
    case TXN_ACT_QUARANTINE:
    case TXN_ACT_OPEN_GATE:
    case TXN_ACT_END:
        return; /* not calls to an engine */
    }
    hold_for(d, action);
    SyncCall *context = xcalloc(1, sizeof *context);
    *context = (SyncCall){.job = job, .action = *action, .sent_us = clock_wall_us()};
    Fault fault = {0};
    job->calls++;
    if (fleet_call(d->fleet, action->engine, &call, engine_answered, context, &fault) != ERR_OK) {
        job->calls--;
        ledger(job, action, false, context->sent_us, fault.sentence);
        TxnAnswer answer = answer_to(action, false, fault.sentence);
        give(job, &answer);
        free(context);
    }
    free(dir);
}

/* A canary needs two tokens. */
static bool answered_without_call(SyncJob *job, const TxnAction *action)
{
    if (action->kind != TXN_ACT_SCORE || job->d->canary_count >= 2) {
        return false;
    }
    TxnAnswer answer = answer_to(action, false, NULL);
    answer.unsupported = true;
    give(job, &answer);
    return true;
}

/* ---- decisions ---------------------------------------------------------------------------- */

static void decision_durable(void *arg)
{
    SyncCall *call = arg;
    call->job->calls--;
    TxnAnswer answer = answer_to(&call->action, true, NULL);
    give(call->job, &answer);
    free(call);
}

static void decide(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    TxnDecisionFact fact = {.txn = job->id, .t_us = clock_wall_us(), .commit = action->commit,
                            .reason = action->reason};
    store_put_txn_decision(d->store, &fact);
    for (int i = 0; i < job->count && !job->fence; i++) {
        Seat *seat = &d->seats[job->members[i].id.engine];
        bool odd = !action->commit && txn_failed(job->txn, job->members[i].id.engine);
        seat->sync_failures = action->commit ? 0 : seat->sync_failures + odd;
    }
    if (!action->commit) {
        driver_event(d, SEVERITY_CRIT, "policy", 0, "transaction %lld goes back to v%lld: %s",
                     (long long)job->id, (long long)job->from, action->reason);
    }
    SyncCall *call = xcalloc(1, sizeof *call);
    *call = (SyncCall){.job = job, .action = *action};
    job->calls++;
    driver_when_durable(d, decision_durable, call);
}

static SyncMember *member_of(SyncJob *job, int engine)
{
    for (int i = 0; i < job->count; i++) {
        if (job->members[i].id.engine == engine) {
            return &job->members[i];
        }
    }
    return NULL;
}

static void quarantine(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    SyncMember *member = member_of(job, action->engine);
    if (member) {
        member->out = true;
    }
    Seat *seat = &d->seats[action->engine];
    seat->bring = true;
    seat->verified = -1;
    int64_t wait = BRING_AGAIN_US << (seat->fences_failed < 4 ? seat->fences_failed : 4);
    seat->fences_failed++;
    seat->bring_due_us = clock_wall_us() + wait;
    fleet_set_admitted(d->fleet, action->engine, false);
    fleet_hold(d->fleet, action->engine, false, false, true);
    driver_route(d, action->engine, false);
    driver_event(d, SEVERITY_CRIT, fleet_engine(d->fleet, action->engine).name,
                 action->engine + 1, "fenced: %s", action->reason);
    driver_check_parts(d);
}

/* Members that came through hold the version now; they may serve. */
static void admit_members(SyncJob *job)
{
    Driver *d = job->d;
    int64_t version = job->rolled_back ? job->from : job->to;
    for (int i = 0; i < job->count; i++) {
        SyncMember *member = &job->members[i];
        int engine = member->id.engine;
        Seat *seat = &d->seats[engine];
        if (member->out || seat->incarnation != member->id.incarnation || version < 0) {
            continue;
        }
        seat->bring = false;
        seat->fences_failed = 0;
        if (seat->verified != version) {
            seat->verified = version;
            fleet_set_verified(d->fleet, engine, version);
        }
        fleet_hold(d->fleet, engine, seat->paused, false, false);
        driver_admit(d, engine);
    }
}

static void end(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    int64_t now = clock_wall_us();
    job->over = true;
    job->committed = action->commit;
    char outcome[192];
    (void)str_format(outcome, sizeof outcome, "%s",
                     action->commit ? "committed" : job->bad_artifact ? "rejected" : "rolled_back");
    TxnEndFact fact = {.txn = job->id, .t_us = now, .outcome = outcome,
                       .pause_us = job->gate_us > 0 ? now - job->gate_us : 0};
    store_put_txn_end(d->store, &fact);
    if (job->to != job->from) {
        policy_state(d, job->to, job->id,
                     action->commit      ? POLICY_COMMITTED
                     : job->bad_artifact ? POLICY_REJECTED
                                         : POLICY_ROLLED_BACK,
                     action->reason);
    }
    if (action->commit && !job->fence && job->to != job->from) {
        driver_committed(d, job->to);
        driver_event(d, SEVERITY_INFO, "policy", 0, "v%lld committed on %d engines, gate closed "
                     "%.2f s", (long long)job->to, job->count, (double)fact.pause_us / 1e6);
    }
    if (job->fence) {
        if (action->commit && job->count > 0) {
            int engine = job->members[0].id.engine;
            driver_event(d, SEVERITY_INFO, fleet_engine(d->fleet, engine).name, engine + 1,
                         "holds v%lld, verified; serves again", (long long)job->to);
        }
        return;
    }
    d->main_job = NULL;
    if (job->again) {
        driver_command_done(d, &d->again_command, action->commit, action->reason);
    }
    LoopEvent event = {.kind = action->commit ? LOOP_EV_SYNCED : LOOP_EV_SYNC_ROLLED_BACK,
                       .version = job->to, .detail = action->reason,
                       .fatal = job->bad_artifact};
    driver_feed_event(d, &event);
}

static void act(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    TxnAnswer answer = answer_to(action, true, NULL);
    switch (action->kind) {
    case TXN_ACT_CLOSE_GATE:
        job->gate_us = clock_wall_us();
        if (!job->fence) {
            d->gate_sync = true;
            driver_update_gate(d);
        }
        give(job, &answer);
        break;
    case TXN_ACT_CHECK: check_artifact(job, action); break;
    case TXN_ACT_PAUSE:
    case TXN_ACT_FLUSH:
    case TXN_ACT_APPLY:
    case TXN_ACT_READ_VERSION:
    case TXN_ACT_CHECKSUM:
    case TXN_ACT_SCORE:
    case TXN_ACT_CONTINUE:
        if (!answered_without_call(job, action)) {
            call_engine(job, action);
        }
        break;
    case TXN_ACT_DECIDE:
        job->rolled_back = !action->commit;
        decide(job, action);
        break;
    case TXN_ACT_QUARANTINE: quarantine(job, action); break;
    case TXN_ACT_OPEN_GATE:
        if (!job->fence) {
            d->gate_sync = false;
        }
        admit_members(job);
        driver_update_gate(d);
        give(job, &answer);
        break;
    case TXN_ACT_END: end(job, action); break;
    }
}

static void pump(SyncJob *job)
{
    if (job->pumping) {
        return; /* the outer call takes what an answer from inside it added */
    }
    job->pumping = true;
    TxnAction action;
    while (!job->over && txn_next(job->txn, &action)) {
        act(job, &action);
    }
    job->pumping = false;
}

/* ---- start and time ----------------------------------------------------------------------- */

static void job_free(SyncJob *job)
{
    txn_free(job->txn);
    free(job->members);
    free(job);
}

static bool member_now(const Driver *d, int engine)
{
    const Seat *seat = &d->seats[engine];
    return engine < fleet_count(d->fleet) && seat->incarnation > 0 &&
           seat->state != ENGINE_DEAD && seat->state != ENGINE_GONE &&
           seat->state != ENGINE_STARTING;
}

/* An engine that was quarantined a moment ago, or for whose sake updates went back twice, stays
 * out while others can go on without it; fences bring it back later. */
static bool left_out(const Driver *d, int engine, int64_t now_us)
{
    const Seat *seat = &d->seats[engine];
    return (seat->bring && seat->bring_due_us > now_us) ||
           seat->sync_failures >= SYNC_FAILURES_MAX;
}

static int good_members(const Driver *d, int64_t now_us)
{
    int good = 0;
    for (int i = 0; i < d->seat_count; i++) {
        good += member_now(d, i) && !left_out(d, i, now_us);
    }
    return good;
}

static void leave_out(Driver *d, int engine, int64_t now_us)
{
    Seat *seat = &d->seats[engine];
    seat->sync_failures = 0;
    if (!seat->bring) {
        seat->bring = true;
        seat->bring_due_us = now_us + BRING_AGAIN_US;
        fleet_set_admitted(d->fleet, engine, false);
        fleet_hold(d->fleet, engine, false, false, true);
        driver_route(d, engine, false);
        driver_event(d, SEVERITY_CRIT, fleet_engine(d->fleet, engine).name, engine + 1,
                     "fenced: updates went back because of it; the others go on without it");
    }
}

static SyncJob *job_start(Driver *d, int64_t to, int only, bool again, const char *why)
{
    SyncJob *job = xcalloc(1, sizeof *job);
    job->d = d;
    job->id = d->next_txn++;
    job->from = loop_committed(d->loop);
    job->to = to;
    job->fence = only >= 0;
    job->again = again;
    job->members = xcalloc((size_t)d->seat_count, sizeof *job->members);
    TxnMember *ids = xcalloc((size_t)d->seat_count, sizeof *ids);
    int64_t now_us = clock_wall_us();
    bool choose = only < 0 && good_members(d, now_us) > 0;
    for (int i = 0; i < d->seat_count; i++) {
        if (choose && member_now(d, i) && left_out(d, i, now_us)) {
            leave_out(d, i, now_us);
        } else if (member_now(d, i) && (only < 0 || only == i)) {
            ids[job->count] = (TxnMember){.engine = i, .incarnation = d->seats[i].incarnation};
            job->members[job->count].id = ids[job->count];
            job->count++;
        }
    }
    bool exact = d->config->publish_dtype == MODEL_F32;
    TxnConfig config = {.txn = job->id, .from_version = job->from, .to_version = to,
                        .apply_retries = 1, .flush_retries = 20,
                        .canary_tolerance = exact ? 0.05F : 0.3F};
    job->txn = txn_new(&config, ids, job->count);
    free(ids);
    bool is_new = to != job->from;
    const float *expected = is_new ? d->canary_logp : d->committed_logp;
    int expected_count = is_new ? d->canary_logps : d->committed_logps;
    if (expected_count > 0) {
        txn_expect(job->txn, expected, expected_count);
    }
    TxnFact fact = {.txn = job->id, .t_us = clock_wall_us(), .from_version = job->from,
                    .to_version = to, .command = again ? d->again_command : 0,
                    .engines = job->count, .why = why};
    store_put_txn(d->store, &fact);
    d->jobs[d->job_count++] = job;
    txn_begin(job->txn, clock_wall_us());
    return job;
}

void driver_sync_start(Driver *d, int64_t version, bool again)
{
    d->main_version = version;
    d->main_again = again;
    driver_sync_tick(d, clock_wall_us());
}

static int running_jobs(const Driver *d)
{
    int running = 0;
    for (int i = 0; i < d->job_count; i++) {
        running += !d->jobs[i]->over;
    }
    return running;
}

static void start_main(Driver *d)
{
    int members = 0;
    for (int i = 0; i < d->seat_count; i++) {
        members += member_now(d, i);
    }
    if (members == 0 || d->job_count >= DRIVER_JOBS_MAX) {
        return; /* somebody comes back; the loop was told that parts are lost */
    }
    int64_t version = d->main_version;
    d->main_version = 0;
    d->main_job = job_start(d, version, -1, d->main_again,
                            d->main_again ? "asked by the operator" : "new policy");
    pump(d->main_job);
}

static void start_fences(Driver *d, int64_t now_us)
{
    for (int i = 0; i < d->seat_count && running_jobs(d) < FENCES_MAX &&
                    d->job_count < DRIVER_JOBS_MAX; i++) {
        Seat *seat = &d->seats[i];
        bool busy = false;
        for (int j = 0; j < d->job_count; j++) {
            busy = busy || member_of(d->jobs[j], i) != NULL;
        }
        if (!busy && seat->bring && member_now(d, i) && now_us >= seat->bring_due_us) {
            SyncJob *job = job_start(d, loop_committed(d->loop), i, false, "fenced engine");
            pump(job);
        }
    }
}

void driver_sync_tick(Driver *d, int64_t now_us)
{
    for (int i = 0; i < d->job_count; i++) {
        SyncJob *job = d->jobs[i];
        int64_t due = job->over ? 0 : txn_next_due_us(job->txn);
        if (due > 0 && now_us >= due) {
            txn_tick(job->txn, now_us);
            pump(job);
        }
    }
    int kept = 0;
    for (int i = 0; i < d->job_count; i++) {
        SyncJob *job = d->jobs[i];
        if (job->over && job->calls == 0 && !job->pumping) {
            job_free(job);
        } else {
            d->jobs[kept++] = job;
        }
    }
    d->job_count = kept;
    if (d->shutting || d->main_job) {
        return;
    }
    if (d->main_version > 0) {
        if (running_jobs(d) == 0) {
            start_main(d);
        }
    } else if (loop_committed(d->loop) >= 0) {
        start_fences(d, now_us);
    }
}

void driver_sync_engine_lost(Driver *d, int engine, int64_t incarnation)
{
    for (int i = 0; i < d->job_count; i++) {
        SyncMember *member = d->jobs[i]->over ? NULL : member_of(d->jobs[i], engine);
        if (member && member->id.incarnation == incarnation && !member->out) {
            member->out = true;
            txn_member_lost(d->jobs[i]->txn, engine, incarnation, clock_wall_us());
            pump(d->jobs[i]);
        }
    }
}

bool driver_syncing(const Driver *d)
{
    return running_jobs(d) > 0 || d->main_version > 0;
}

void driver_sync_free(Driver *d)
{
    for (int i = 0; i < d->job_count; i++) {
        job_free(d->jobs[i]);
    }
    d->job_count = 0;
}
