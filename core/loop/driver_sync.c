/* Carries out policy transactions: the fleet's (the loop's SYNC, an operator's update) and fences
 * (one engine that came back or failed, brought to the committed policy before it may serve).
 * The fleet's transaction and fences never run at the same time. */
#include "core/loop/driver_sync_private.h"

#include <stdlib.h>
#include <string.h>

enum { FENCES_MAX = 8, SYNC_FAILURES_MAX = 2 };
static const int64_t BRING_AGAIN_US = 5000000;
static const int64_t SYNC_RETRY_US = 2000000; /* a killed engine is called dead within that */

static void pump(SyncJob *job);

void sync_give(SyncJob *job, const TxnAnswer *answer)
{
    txn_answer(job->txn, answer, clock_mono_us());
    pump(job);
}

/* ---- decisions ---------------------------------------------------------------------------- */

static void decision_durable(void *arg)
{
    SyncCall *call = arg;
    call->job->calls--;
    TxnAnswer answer = sync_answer_to(&call->action, true, NULL);
    sync_give(call->job, &answer);
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

/* A call to it that was given up may still act. Our own process is started again, which ends
 * that; another one stays out of transactions until nothing can come of it any more. */
static void keep_doubt(SyncJob *job, int engine)
{
    Driver *d = job->d;
    Seat *seat = &d->seats[engine];
    if (!txn_in_doubt(job->txn, engine)) {
        return;
    }
    int64_t lasts_us = d->config->update_doubt_us;
    lasts_us = lasts_us > 0 ? lasts_us : TXN_DOUBT_US;
    seat->doubt_us = clock_mono_us() + lasts_us;
    bool restart = seat->part && seat->bring && !d->shutting;
    driver_event(d, SEVERITY_WARN, fleet_engine(d->fleet, engine).name, engine + 1,
                 "a call to it was given up and may still act: %s",
                 restart ? "it is started again" : "it stays out of updates until that is over");
    if (restart) {
        driver_part_restart(seat->part);
    }
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
    seat->follows = -1;
    int64_t wait = BRING_AGAIN_US << (seat->fences_failed < 4 ? seat->fences_failed : 4);
    seat->fences_failed++;
    seat->bring_due_us = clock_mono_us() + wait;
    fleet_set_admitted(d->fleet, action->engine, false);
    fleet_hold(d->fleet, action->engine, false, false, true);
    driver_route(d, action->engine, false);
    driver_event(d, SEVERITY_CRIT, fleet_engine(d->fleet, action->engine).name,
                 action->engine + 1, "fenced: %s", action->reason);
    keep_doubt(job, action->engine);
    driver_check_parts(d);
}

/* What is known of its own copy after this. One that led elsewhere is made anew by the next pull,
 * which is a complete one; unless its marker hides that, which shows in the same again. */
static void note_copy(SyncJob *job, int engine, int64_t version)
{
    enum { ODD_MAX = 2 };
    Driver *d = job->d;
    Seat *seat = &d->seats[engine];
    bool own = txn_own_copy(job->txn, engine);
    bool odd = txn_copy_odd(job->txn, engine);
    seat->follows = own ? version : -1;
    seat->copies_odd = own ? 0 : seat->copies_odd + odd;
    if (odd) {
        seat->no_pull = seat->no_pull || seat->copies_odd >= ODD_MAX;
        driver_event(d, SEVERITY_WARN, fleet_engine(d->fleet, engine).name, engine + 1,
                     "its own copy did not lead to v%lld; it loaded the complete checkpoint%s",
                     (long long)version,
                     seat->no_pull ? ", and does so from now on: clear the directory of its copy "
                                     "and restart it" : "");
    }
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
        note_copy(job, engine, version);
        if (seat->verified != version) {
            seat->verified = version;
            fleet_set_verified(d->fleet, engine, version);
        }
        fleet_hold(d->fleet, engine, seat->paused, false, false);
        keep_doubt(job, engine);
        driver_admit(d, engine);
    }
}

/* Ended before anybody was paused, because engines say that they do not see the policy. Who made
 * two updates end so is left out while others can go on; a fence is tried again later. */
static void note_unseen(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    for (int i = 0; i < job->count && !action->commit && job->gate_us == 0; i++) {
        int engine = job->members[i].id.engine;
        Seat *seat = &d->seats[engine];
        if (!txn_failed(job->txn, engine) || job->members[i].out) {
            continue;
        }
        driver_event(d, SEVERITY_CRIT, fleet_engine(d->fleet, engine).name, engine + 1,
                     "v%lld is not sent: %s; is %s/policies shared with its host?",
                     (long long)job->to, action->reason, d->config->work_dir);
        seat->sync_failures += !job->fence;
        seat->bring_due_us = clock_mono_us() + BRING_AGAIN_US;
    }
}

static void end(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    job->over = true;
    job->committed = action->commit;
    note_unseen(job, action);
    char outcome[192];
    (void)str_format(outcome, sizeof outcome, "%s",
                     action->commit ? "committed" : job->bad_artifact ? "rejected" : "rolled_back");
    TxnEndFact fact = {.txn = job->id, .t_us = clock_wall_us(), .outcome = outcome,
                       .pause_us = job->gate_us > 0 ? clock_mono_us() - job->gate_us : 0};
    store_put_txn_end(d->store, &fact);
    if (job->to != job->from) {
        sync_policy_state(d, job->to, job->id,
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
                         "holds v%lld, verified; %s", (long long)job->to,
                         driver_serves_word(d, engine));
        }
        return;
    }
    d->sync.main = NULL;
    if (!action->commit && !job->bad_artifact) { /* by then it is known who is dead */
        int64_t due_us = clock_mono_us() + SYNC_RETRY_US;
        d->sync.settle_us = due_us > d->sync.settle_us ? due_us : d->sync.settle_us;
    }
    if (job->again) {
        driver_command_done(d, &d->sync.again_command, action->commit, action->reason);
    }
    LoopEvent event = {.kind = action->commit ? LOOP_EV_SYNCED : LOOP_EV_SYNC_ROLLED_BACK,
                       .version = job->to, .keeps = job->keeps, .detail = action->reason,
                       .fatal = job->bad_artifact};
    driver_feed_event(d, &event);
}

static void act(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    TxnAnswer answer = sync_answer_to(action, true, NULL);
    switch (action->kind) {
    case TXN_ACT_CLOSE_GATE:
        job->gate_us = clock_mono_us();
        if (!job->fence) {
            d->roll.gate_sync = true;
            driver_update_gate(d);
        }
        sync_give(job, &answer);
        break;
    case TXN_ACT_CHECK: sync_check_artifact(job, action); break;
    case TXN_ACT_LOOK:
    case TXN_ACT_PULL:
    case TXN_ACT_PAUSE:
    case TXN_ACT_FLUSH:
    case TXN_ACT_APPLY:
    case TXN_ACT_READ_VERSION:
    case TXN_ACT_CHECKSUM:
    case TXN_ACT_SCORE:
    case TXN_ACT_CONTINUE:
        sync_call(job, action);
        break;
    case TXN_ACT_DECIDE:
        job->rolled_back = !action->commit;
        decide(job, action);
        break;
    case TXN_ACT_QUARANTINE: quarantine(job, action); break;
    case TXN_ACT_OPEN_GATE:
        if (!job->fence) {
            d->roll.gate_sync = false;
            job->keeps = job->rolled_back || driver_rollout_policy(d, job->to);
        }
        admit_members(job);
        driver_update_gate(d);
        sync_give(job, &answer);
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
           seat->state != ENGINE_STARTING && !seat->leaving &&
           fleet_listed(d->fleet, engine) && seat->doubt_us <= clock_mono_us();
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
                     "fenced: %s; the others go on without it",
                     seat->doubt_us > now_us ? "a call to it was given up and may still act"
                                             : "updates went back because of it");
    }
}

const KeptCanary *driver_kept_canary(const Driver *d, int64_t version)
{
    for (int back = 1; back <= DRIVER_KEPT_CANARIES && back <= d->policy.kept_next; back++) {
        int at = (d->policy.kept_next - back) % DRIVER_KEPT_CANARIES;
        const KeptCanary *kept = &d->policy.kept[at];
        if (kept->count > 0 && kept->version == version) {
            return kept;
        }
    }
    return NULL;
}

/* Ours compute in FP32 on the very weights that were trained; others may do so in BF16. */
double driver_canary_tolerance(const Driver *d)
{
    return d->config->local_engines > 0 && !d->config->trainer_command ? 0.05 : 0.3;
}

static SyncJob *job_start(Driver *d, int64_t to, int only, bool again, const char *why)
{
    SyncJob *job = xcalloc(1, sizeof *job);
    job->d = d;
    job->id = d->sync.next_txn++;
    job->from = loop_committed(d->loop);
    job->to = to;
    job->fence = only >= 0;
    job->again = again;
    job->members = xcalloc((size_t)d->seat_count, sizeof *job->members);
    TxnMember *ids = xcalloc((size_t)d->seat_count, sizeof *ids);
    int64_t now_us = clock_mono_us();
    bool choose = only < 0 && good_members(d, now_us) > 0;
    for (int i = 0; i < d->seat_count; i++) {
        if (choose && member_now(d, i) && left_out(d, i, now_us)) {
            leave_out(d, i, now_us);
        } else if (only < 0 && d->seats[i].doubt_us > now_us) {
            leave_out(d, i, now_us);
        } else if (member_now(d, i) && (only < 0 || only == i)) {
            ids[job->count] = (TxnMember){
                .engine = i, .incarnation = d->seats[i].incarnation,
                .holds = d->seats[i].verified == job->from && !d->seats[i].bring,
                .unknown = job->from < 0 && job->id > 1,
                .keeps = only < 0 && d->config->inflight == INFLIGHT_IN_PLACE &&
                         sync_own_engine(d, i),
                .looks = !d->seats[i].part && !d->seats[i].no_look,
                .pulls = driver_delta_pulls(d, i, to), .follows = d->seats[i].follows,
                .same_digest = sync_own_engine(d, i)};
            job->members[job->count].id = ids[job->count];
            job->count++;
        }
    }
    TxnConfig config = {.txn = job->id, .from_version = job->from, .to_version = to,
                        .delta_base = only < 0 && to == d->delta.published ? d->delta.base : -1,
                        .apply_retries = 1,
                        .canary_tolerance = (float)driver_canary_tolerance(d)};
    memcpy(config.phase_budget_us, d->config->update_budget_us, sizeof config.phase_budget_us);
    job->txn = txn_new(&config, ids, job->count);
    free(ids);
    const KeptCanary *there = driver_kept_canary(d, to);
    const KeptCanary *back = driver_kept_canary(d, job->from);
    if (there) {
        txn_expect(job->txn, there->logp, there->count);
    }
    if (back) {
        txn_expect_back(job->txn, back->logp, back->count);
    }
    bool held = d->policy.has_committed;
    const char *committed = held ? d->policy.committed.digest : NULL;
    txn_expect_digests(job->txn, to == job->from ? committed : NULL, committed); /* till checked */
    TxnFact fact = {.txn = job->id, .t_us = clock_wall_us(), .from_version = job->from,
                    .to_version = to, .command = again ? d->sync.again_command : 0,
                    .engines = job->count, .why = why};
    store_put_txn(d->store, &fact);
    d->sync.jobs[d->sync.count++] = job;
    txn_begin(job->txn, clock_mono_us());
    return job;
}

void driver_sync_start(Driver *d, int64_t version, bool again)
{
    d->sync.version = version;
    d->sync.again = again;
    driver_sync_tick(d, clock_mono_us());
}

static int running_jobs(const Driver *d)
{
    int running = 0;
    for (int i = 0; i < d->sync.count; i++) {
        running += !d->sync.jobs[i]->over;
    }
    return running;
}

static void start_main(Driver *d)
{
    int members = 0;
    for (int i = 0; i < d->seat_count; i++) {
        members += member_now(d, i);
    }
    if (members == 0 || d->sync.count >= DRIVER_JOBS_MAX || clock_mono_us() < d->sync.settle_us) {
        return; /* somebody comes back; the loop was told that parts are lost */
    }
    int64_t version = d->sync.version;
    d->sync.version = 0;
    d->sync.main = job_start(d, version, -1, d->sync.again,
                            d->sync.again ? "asked by the operator" : "new policy");
    pump(d->sync.main);
}

static void start_fences(Driver *d, int64_t now_us)
{
    for (int i = 0; i < d->seat_count && running_jobs(d) < FENCES_MAX &&
                    d->sync.count < DRIVER_JOBS_MAX; i++) {
        Seat *seat = &d->seats[i];
        bool busy = false;
        for (int j = 0; j < d->sync.count; j++) {
            busy = busy || member_of(d->sync.jobs[j], i) != NULL;
        }
        if (!busy && seat->bring && member_now(d, i) && now_us >= seat->bring_due_us) {
            SyncJob *job = job_start(d, loop_committed(d->loop), i, false, "fenced engine");
            pump(job);
        }
    }
}

void driver_sync_tick(Driver *d, int64_t now_us)
{
    for (int i = 0; i < d->sync.count; i++) {
        SyncJob *job = d->sync.jobs[i];
        int64_t due = job->over ? 0 : txn_next_due_us(job->txn);
        if (due > 0 && now_us >= due) {
            txn_tick(job->txn, now_us);
            pump(job);
        }
    }
    int kept = 0;
    for (int i = 0; i < d->sync.count; i++) {
        SyncJob *job = d->sync.jobs[i];
        if (job->over && job->calls == 0 && !job->pumping) {
            job_free(job);
        } else {
            d->sync.jobs[kept++] = job;
        }
    }
    d->sync.count = kept;
    if (d->shutting || d->sync.main) {
        return;
    }
    if (d->sync.version > 0) {
        if (running_jobs(d) == 0) {
            start_main(d);
        }
    } else if (loop_committed(d->loop) >= 0) {
        start_fences(d, now_us);
    }
}

void driver_sync_engine_lost(Driver *d, int engine, int64_t incarnation)
{
    for (int i = 0; i < d->sync.count; i++) {
        SyncMember *member = d->sync.jobs[i]->over ? NULL : member_of(d->sync.jobs[i], engine);
        if (member && member->id.incarnation == incarnation && !member->out) {
            member->out = true;
            txn_member_lost(d->sync.jobs[i]->txn, engine, incarnation, clock_mono_us());
            pump(d->sync.jobs[i]);
        }
    }
}

bool driver_sync_holds(Driver *d, int engine)
{
    for (int i = 0; i < d->sync.count; i++) {
        SyncJob *job = d->sync.jobs[i];
        const SyncMember *member = job->over ? NULL : member_of(job, engine);
        if (member && !member->out) {
            return true;
        }
    }
    return false;
}

bool driver_syncing(const Driver *d)
{
    return running_jobs(d) > 0 || d->sync.version > 0;
}

void driver_sync_free(Driver *d)
{
    for (int i = 0; i < d->sync.count; i++) {
        job_free(d->sync.jobs[i]);
    }
    d->sync.count = 0;
}
