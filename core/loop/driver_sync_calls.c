/* The calls of a policy transaction: the artifact check beside the loop, one engine's control
 * calls, and the canary. Every answer goes to the ledger, then to the machine. */
#include "core/loop/driver_sync_private.h"

#include "core/base/fs.h"
#include "core/policy/delta.h"

#include <stdlib.h>
#include <string.h>

enum { SCORE_MS = 15000 };

typedef struct CheckWork { /* the artifact check runs beside the loop: it reads every byte */
    uv_work_t work;
    SyncJob *job;
    TxnAction action;
    char *dir, *chain;
    const char *log;
    char published[DIGEST_TEXT]; /* by the trainer's word; empty: the log knows */
    Artifact previous; /* a copy: the committed one may change while this runs */
    bool has_previous;
    double norm_jump;
    Artifact artifact;
    Err err;
    Fault fault;
    int64_t sent_us;
} CheckWork;

bool sync_own_engine(const Driver *d, int engine)
{
    Str start = str_from(fleet_engine(d->fleet, engine).identity);
    Str pid;
    int64_t number = 0;
    /* "PID/START", which only ours say of themselves (engine_parse.c). */
    return str_split(&start, '/', &pid) && str_to_i64(pid, &number) && str_to_i64(start, &number);
}

TxnAnswer sync_answer_to(const TxnAction *action, bool ok, const char *detail)
{
    return (TxnAnswer){.kind = action->kind, .engine = action->engine, .seq = action->seq,
                       .incarnation = action->incarnation, .ok = ok, .detail = detail,
                       .version = -1};
}

static void ledger(SyncJob *job, const TxnAction *action, bool ok, int64_t sent_us,
                   const char *detail)
{
    TxnAnswerFact fact = {.txn = job->id, .engine = action->engine + 1,
                          .incarnation = action->incarnation, .t_us = clock_wall_us(),
                          .took_us = clock_mono_us() - sent_us, .phase = action->phase, .ok = ok,
                          .detail = detail};
    store_put_txn_answer(job->d->store, &fact);
}

/* ---- the artifact ------------------------------------------------------------------------- */

/* What was said of an older version when it was published; empty: nothing. */
static void digest_of_log(const char *log, int64_t version, char out[DIGEST_TEXT])
{
    char sql[128];
    cJSON *row = NULL;
    (void)str_format(sql, sizeof sql, "select digest from policy where version = %lld "
                     "order by change_id desc limit 1", (long long)version);
    if (driver_log_row(log, sql, &row, NULL) == ERR_OK) {
        (void)str_format(out, DIGEST_TEXT, "%s", json_string(row, "digest", ""));
    }
    cJSON_Delete(row);
}

/* Are these the bytes that the trainer published? An old directory, or one that somebody else
 * wrote, is whole and finite and still the wrong policy. */
static void check_digest(CheckWork *check)
{
    if (!check->published[0]) {
        digest_of_log(check->log, check->action.version, check->published);
    }
    const char *held = check->artifact.digest;
    bool known = check->published[0] && strlen(check->published) == strlen(held);
    if (known && strcmp(check->published, held) != 0) {
        check->err = fault_set(&check->fault, ERR_STATE, "publish it again",
                               "%s holds digest %s, the trainer published %s", check->dir, held,
                               check->published);
        artifact_free(&check->artifact);
    }
}

static void check_work(uv_work_t *work)
{
    CheckWork *check = work->data;
    const Artifact *previous = check->has_previous ? &check->previous : NULL;
    if (!fs_is_dir(check->dir) && delta_reachable(check->chain, check->action.version)) {
        check->err = delta_build(check->chain, check->action.version, check->dir, &check->fault);
        if (check->err != ERR_OK) {
            return;
        }
    }
    check->err = artifact_check(check->dir, previous, check->norm_jump, &check->artifact,
                                &check->fault);
    if (check->err == ERR_OK) {
        check_digest(check);
    }
}

void sync_policy_state(Driver *d, int64_t version, int64_t txn, PolicyState state,
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
    if (job->over) { /* its budget was spent: another transaction may have its own check by now */
        (void)str_format(detail, sizeof detail, "too late: the update has ended");
        if (ok) {
            artifact_free(&check->artifact);
        }
    } else if (ok) {
        (void)str_format(detail, sizeof detail, "%d tensors, %lld bytes, digest %s",
                         check->artifact.tensors, (long long)check->artifact.bytes,
                         check->artifact.digest);
        if (d->policy.has_pending) {
            artifact_free(&d->policy.pending);
        }
        txn_expect_digests(job->txn, check->artifact.digest,
                           d->policy.has_committed ? d->policy.committed.digest : NULL);
        d->policy.pending = check->artifact;
        d->policy.has_pending = true;
    } else {
        (void)str_format(detail, sizeof detail, "%s", check->fault.sentence);
        job->bad_artifact = true;
        sync_policy_state(d, check->action.version, job->id, POLICY_REJECTED, detail);
        driver_event(d, SEVERITY_CRIT, "policy", 0, "v%lld refused: %s",
                     (long long)check->action.version, detail);
    }
    ledger(job, &check->action, ok, check->sent_us, detail);
    TxnAnswer answer = sync_answer_to(&check->action, ok, detail);
    free(check->dir);
    free(check->chain);
    if (check->has_previous) {
        artifact_free(&check->previous);
    }
    sync_give(job, &answer);
    free(check);
}

static void copy_artifact(const Artifact *from, Artifact *to)
{
    *to = *from;
    to->norms = NULL;
    if (from->norms) {
        size_t count = (size_t)model_tensor_count(&from->config);
        to->norms = xcalloc(count, sizeof *to->norms);
        memcpy(to->norms, from->norms, count * sizeof *to->norms);
    }
}

void sync_check_artifact(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    if (action->version == job->from) { /* it was checked when it was committed */
        TxnAnswer answer = sync_answer_to(action, true, "committed before");
        sync_give(job, &answer);
        return;
    }
    sync_policy_state(d, action->version, job->id, POLICY_APPLYING, NULL);
    CheckWork *check = xcalloc(1, sizeof *check);
    check->work.data = check;
    check->job = job;
    check->action = *action;
    check->dir = driver_path(d, "policies", "v", action->version);
    check->log = d->config->log_path;
    if (action->version == d->policy.publishing) {
        memcpy(check->published, d->policy.digest, sizeof check->published);
    }
    check->chain = fs_join(d->config->work_dir, "policies/chain");
    check->has_previous = d->policy.has_committed;
    if (d->policy.has_committed) {
        copy_artifact(&d->policy.committed, &check->previous);
    }
    check->norm_jump = d->config->norm_jump;
    check->sent_us = clock_mono_us();
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
    TxnAnswer answer = sync_answer_to(&call->action, ok, detail);
    answer.unsupported = !ok && unsupported(a);
    answer.unknown = !ok && a->status == 0 && a->end != HTTP_END_REFUSED &&
                     a->end != HTTP_END_NAME && a->end != HTTP_END_TIMEOUT_CONNECT &&
                     a->end != HTTP_END_OK;
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
    if (call->action.kind == TXN_ACT_LOOK) {
        Seat *seat = &job->d->seats[call->action.engine];
        answer.unseen = a->err == ERR_PEER && a->status == 200;
        if (answer.unseen && a->text[0]) {
            (void)str_format(detail, sizeof detail, "%s", a->text);
        }
        seat->no_look = seat->no_look || answer.unsupported;
    }
    if (call->action.kind == TXN_ACT_PULL) {
        Seat *seat = &job->d->seats[call->action.engine];
        seat->pulling = seat->pulling && seat->incarnation != call->action.incarnation;
        seat->no_pull = seat->no_pull || answer.unsupported;
        if (ok && a->weight_version >= 0 && a->weight_version != call->action.version) {
            answer.ok = ok = false; /* left there by another run: its marker is further on */
            (void)str_format(detail, sizeof detail, "its copy says version %lld",
                             (long long)a->weight_version);
        }
    }
    if (answer.unsupported) {
        (void)str_format(detail, sizeof detail, "not offered by the engine");
    }
    ledger(job, &call->action, ok || answer.unsupported, call->sent_us, detail);
    if (!job->over) {
        sync_give(job, &answer);
    }
    free(call);
}

/* An engine of ours says its version along with its checksum: one call answers two actions. Where
 * it did not, the version is asked for by itself. */
static void call_engine(SyncJob *job, const TxnAction *action);

static void checksum_answered(const EngineAnswer *a, void *user)
{
    SyncCall *call = user;
    SyncJob *job = call->job;
    const TxnAction asked = call->version_asked;
    if (a->err != ERR_OK || a->weight_version < 0) {
        if (!job->over) {
            call_engine(job, &asked);
        }
        engine_answered(a, call);
        return;
    }
    SyncCall *version = xcalloc(1, sizeof *version);
    *version = (SyncCall){.job = job, .action = asked, .sent_us = call->sent_us};
    job->calls++;
    engine_answered(a, version);
    engine_answered(a, call);
}

/* An engine may say that it goes on and stay paused; it would hold every request that it is given.
 * Ours say with the answer whether they are, or can be asked. */
static void continue_checked(const EngineAnswer *a, void *user)
{
    if (a->err != ERR_OK || !a->paused) {
        engine_answered(a, user);
        return;
    }
    EngineAnswer said = *a;
    said.err = fault_set(&said.fault, ERR_STATE, NULL, "it answers that it goes on, and stays "
                         "paused");
    engine_answered(&said, user);
}

static void continue_answered(const EngineAnswer *a, void *user)
{
    SyncCall *call = user;
    Driver *d = call->job->d;
    const EngineCall ask = {.kind = ENGINE_SERVER_INFO};
    EngineAnswer failed = {.err = ERR_STATE};
    if (a->err != ERR_OK || call->job->over || !sync_own_engine(d, call->action.engine)) {
        engine_answered(a, call);
    } else if (a->known_paused) {
        continue_checked(a, call);
    } else if (fleet_call(d->fleet, call->action.engine, &ask, continue_checked, call,
                          &failed.fault) != ERR_OK) {
        engine_answered(&failed, call);
    }
}

/* Our own engine scores while it is paused. Others hold every generation request then, the canary
 * too: their score is taken between a continue and a pause; the gate is closed and the engine has
 * no work, only the canary runs, and what a frontend of others has given to it (canary_window.h).
 * After a continue that may have acted the pause is sent whatever came of the score. */
static void score_step(SyncCall *call, EngineCallKind kind);

static void score_over(const EngineAnswer *a, SyncCall *call)
{
    canary_window_close(&call->job->d->roll.window, clock_mono_us());
    engine_answered(a, call);
}

static void pause_again(const EngineAnswer *a, SyncCall *call)
{
    call->scored = xcalloc(1, sizeof *call->scored);
    *call->scored = *a;
    score_step(call, ENGINE_PAUSE);
}

static void score_answered(const EngineAnswer *a, void *user)
{
    SyncCall *call = user;
    if (call->own) {
        engine_answered(a, call);
        return;
    }
    if (call->scored) { /* paused again: the score counts, unless that failed */
        EngineAnswer *scored = call->scored;
        call->scored = NULL;
        if (a->err != ERR_OK && scored->err == ERR_OK) {
            *scored = *a;
        }
        score_over(scored, call);
        free(scored);
        return;
    }
    bool continues = !call->continued;
    call->continued = true;
    if (continues && a->err == ERR_OK && !call->job->over) {
        score_step(call, ENGINE_SCORE);
    } else {
        pause_again(a, call);
    }
}

static void score_step(SyncCall *call, EngineCallKind kind)
{
    Driver *d = call->job->d;
    EngineCall step = {.kind = kind, .text = kind == ENGINE_PAUSE ? "abort" : NULL,
                       .ids = d->policy.canary, .id_count = d->policy.canary_count,
                       .vocab = d->model.vocab, .own = call->own,
                       .timeout_ms = kind == ENGINE_SCORE ? SCORE_MS : 0};
    EngineAnswer failed = {.err = ERR_STATE};
    if (fleet_call(d->fleet, call->action.engine, &step, score_answered, call, &failed.fault) !=
        ERR_OK) {
        EngineAnswer *scored = call->scored;
        call->scored = NULL;
        if (call->own) {
            engine_answered(&failed, call);
        } else {
            score_over(&failed, call);
        }
        free(scored);
    }
}

static void call_score(SyncJob *job, const TxnAction *action)
{
    SyncCall *call = xcalloc(1, sizeof *call);
    *call = (SyncCall){.job = job, .action = *action, .sent_us = clock_mono_us(),
                       .own = sync_own_engine(job->d, action->engine)};
    job->calls++;
    if (!call->own) {
        canary_window_open(&job->d->roll.window, call->sent_us);
    }
    score_step(call, call->own ? ENGINE_SCORE : ENGINE_CONTINUE);
}

static EngineAnswered listener(SyncCall *call)
{
    SyncJob *job = call->job;
    const TxnAction *asked = &job->version_asked;
    const TxnAction *action = &call->action;
    if (action->kind == TXN_ACT_CONTINUE) {
        return continue_answered;
    }
    if (action->kind == TXN_ACT_CHECKSUM && asked->kind == TXN_ACT_READ_VERSION &&
        asked->engine == action->engine && asked->incarnation == action->incarnation) {
        call->version_asked = *asked;
        job->version_asked = (TxnAction){0};
        return checksum_answered;
    }
    return engine_answered;
}

static void not_sent(SyncCall *call, const char *why)
{
    SyncJob *job = call->job;
    const TxnAction asked = call->version_asked;
    job->calls--;
    job->d->seats[call->action.engine].pulling = false;
    ledger(job, &call->action, false, call->sent_us, why);
    TxnAnswer answer = sync_answer_to(&call->action, false, why);
    free(call);
    sync_give(job, &answer);
    if (asked.kind == TXN_ACT_READ_VERSION) {
        call_engine(job, &asked);
    }
}

/* A call outlives its phase's budget by a moment only: who was given up must not keep its
 * transaction, and with it a fence, waiting. Loads may take as long as the budget says. */
static int64_t call_timeout_ms(const SyncJob *job, const TxnAction *action, EngineCallKind kind)
{
    enum { MOMENT_MS = 1000 };
    int64_t budget_ms = txn_budget_us(job->txn, action->phase) / 1000 + MOMENT_MS;
    bool loads = kind == ENGINE_UPDATE_DISK || kind == ENGINE_PULL;
    int64_t usual_ms = engine_call_timeout_ms(kind);
    return loads || budget_ms < usual_ms ? budget_ms : usual_ms;
}

static void call_engine(SyncJob *job, const TxnAction *action)
{
    Driver *d = job->d;
    EngineCall call = {.version = action->version, .own = sync_own_engine(d, action->engine)};
    char *dir = NULL;
    char *source = NULL;
    switch (action->kind) {
    case TXN_ACT_LOOK:
        call.kind = ENGINE_LOOK;
        call.text = dir = driver_path(d, "policies", "v", action->version);
        break;
    case TXN_ACT_PULL:
        d->seats[action->engine].follows = -1; /* from now on its copy may be anything */
        d->seats[action->engine].pulling = true; /* one that hangs delays one update only */
        call.kind = ENGINE_PULL;
        call.text = dir = driver_delta_copy(d, action->engine);
        call.source = source = driver_delta_source(d, action->base);
        break;
    case TXN_ACT_PAUSE:
        call.kind = ENGINE_PAUSE;
        call.text = action->keep ? "retract" : "abort";
        break;
    case TXN_ACT_FLUSH: call.kind = ENGINE_FLUSH; break;
    case TXN_ACT_APPLY:
        call.kind = ENGINE_UPDATE_DISK;
        call.text = dir = action->own_copy ? driver_delta_copy(d, action->engine)
                                           : driver_path(d, "policies", "v", action->version);
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
    if (action->kind != TXN_ACT_PULL && action->kind != TXN_ACT_LOOK) { /* it serves on */
        hold_for(d, action);
    }
    SyncCall *context = xcalloc(1, sizeof *context);
    *context = (SyncCall){.job = job, .action = *action, .sent_us = clock_mono_us()};
    Fault fault = {0};
    job->calls++;
    call.timeout_ms = call_timeout_ms(job, action, call.kind);
    if (fleet_call(d->fleet, action->engine, &call, listener(context), context, &fault) !=
        ERR_OK) {
        not_sent(context, fault.sentence);
    }
    free(source);
    free(dir);
}

/* A canary needs two tokens. */
static bool answered_without_call(SyncJob *job, const TxnAction *action)
{
    if (action->kind != TXN_ACT_SCORE || job->d->policy.canary_count >= 2) {
        return false;
    }
    TxnAnswer answer = sync_answer_to(action, false, NULL);
    answer.unsupported = true;
    sync_give(job, &answer);
    return true;
}

/* A number may never be used again once an engine's copy bears it: the version's fact is durable
 * before the first pull is sent. */
static void pull_durable(void *arg)
{
    SyncCall *call = arg;
    call->job->calls--;
    if (!call->job->over) {
        call_engine(call->job, &call->action);
    }
    free(call);
}

void sync_call(SyncJob *job, const TxnAction *action)
{
    if (action->kind == TXN_ACT_PULL) {
        SyncCall *call = xcalloc(1, sizeof *call);
        *call = (SyncCall){.job = job, .action = *action};
        job->calls++;
        driver_when_durable(job->d, pull_durable, call);
        return;
    }
    if (action->kind == TXN_ACT_READ_VERSION && sync_own_engine(job->d, action->engine) &&
        job->version_asked.kind != TXN_ACT_READ_VERSION) {
        job->version_asked = *action; /* the next action, its CHECKSUM, asks for both */
        return;
    }
    if (!answered_without_call(job, action)) {
        call_engine(job, action);
    }
}
