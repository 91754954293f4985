/* Carries out a rollout: attempts (driver_attempt.c), rewards as samples are accepted, every fate
 * in the log. The rollout machine decides; here is only the edge. */
#include "core/loop/driver_private.h"

#include "core/base/json.h"
#include "core/loop/first_token.h"
#include "core/loop/take_back.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const RolloutSample *sample_of(RolloutJob *job, int64_t sample)
{
    const RolloutSample *samples = NULL;
    int count = rollout_samples(job->rollout, &samples);
    int low = 0;
    while (low < count && samples[low].sample != sample) {
        low++;
    }
    return low < count ? &samples[low] : NULL;
}

static void score(RolloutJob *job, int64_t sample)
{
    Driver *d = job->driver;
    const SampleSettings *s = job->eval ? &d->config->eval : &d->config->rollout;
    const DataRow *row = job->rows[driver_attempt_of(job, sample)->group];
    Str text = {0};
    if (job->ending && job->ending->sample == sample) {
        text = job->ending->text;
    } else {
        const RolloutSample *found = sample_of(job, sample);
        text = found ? found->text : text;
    }
    RewardInput input = {.response = text, .label = row->label, .metadata = row->metadata,
                         .label_kind = row->label_kind};
    const char *type = s->rm_type;
    cJSON *metadata = NULL;
    if (row->metadata.n > 2 &&
        json_parse(row->metadata, 1 << 20, "metadata", &metadata, NULL) == ERR_OK) {
        type = json_string(metadata, "rm_type", type);
    }
    double reward = 0.0;
    Fault fault = {0};
    if (reward_score(type, &input, &job->random, &reward, &fault) != ERR_OK) {
        job->failed = true;
        (void)str_format(job->why, sizeof job->why, "reward: %s", fault.sentence);
    }
    cJSON_Delete(metadata);
    int64_t now = clock_wall_us();
    SampleRewardFact fact = {.sample = sample, .t_us = now, .reward = val_of(reward, now)};
    store_put_sample_reward(d->store, &fact);
    rollout_reward(job->rollout, sample, reward);
}

static void log_end(RolloutJob *job, const RolloutAction *action)
{
    const RolloutAttemptEnd *end = job->ending;
    SampleEndFact fact = {.sample = action->sample, .t_us = clock_wall_us(),
                          .attempt = action->attempt, .fate = action->fate,
                          .reason = action->reason[0] ? action->reason : NULL};
    if (end && end->sample == action->sample && end->attempt == action->attempt) {
        fact.engine = job->ending_engine;
        fact.first_token_us = job->ending_first_us;
        fact.finish = end->whole ? end->finish : NULL;
        fact.tokens = end->ids;
        fact.logprobs = end->logprobs;
        fact.token_count = end->count;
        fact.spans = end->spans;
        fact.span_count = end->span_count;
        fact.text = end->text;
    }
    store_put_sample_end(job->driver->store, &fact);
}

static void act(RolloutJob *job, const RolloutAction *action)
{
    switch (action->kind) {
    case ROLLOUT_START: driver_attempt_start(job, action); break;
    case ROLLOUT_CANCEL: {
        Attempt *a = driver_attempt_of(job, action->sample);
        if (a->generation && a->attempt == action->attempt) {
            generate_cancel(a->generation);
        }
        break;
    }
    case ROLLOUT_SCORE: score(job, action->sample); break;
    case ROLLOUT_LOG: log_end(job, action); break;
    case ROLLOUT_DONE: job->over = true; break;
    case ROLLOUT_FAILED:
        job->failed = true;
        (void)str_format(job->why, sizeof job->why, "%s", action->reason);
        break;
    }
}

/* Takes actions until none is left. Called from inside itself only through callbacks that are
 * synchronous (a start that fails at once); the outer call goes on with what that added. */
void driver_rollout_pump(RolloutJob *job)
{
    if (job->pumping) {
        return;
    }
    job->pumping = true;
    RolloutAction action;
    while (rollout_next(job->rollout, &action)) {
        act(job, &action);
    }
    job->pumping = false;
}

/* ---- the end of a rollout ----------------------------------------------------------------- */

/* The policy that the run starts from, as a row of its own: step -1. */
static void log_eval_before(Driver *d, const RolloutJob *job)
{
    StepFact fact = {.step = job->step - 1, .t_us = clock_wall_of_us(job->started_us),
                     .policy_version = loop_committed(d->loop)};
    store_put_step(d->store, &fact);
    fact.t_us = clock_wall_of_us(job->ended_us);
    fact.end = true;
    fact.outcome = "evaluated before training";
    fact.samples = (int64_t)job->group_count * job->per_group;
    fact.tokens = job->tokens;
    fact.eval_reward_mean = val_of(job->reward_mean, fact.t_us);
    store_put_step(d->store, &fact);
    if (d->config->lines) {
        fprintf(d->config->lines, "eval before training: %.4f (%d prompts)\n", job->reward_mean,
                job->group_count);
        fflush(d->config->lines);
    }
}

static void finish_eval(Driver *d, RolloutJob *job)
{
    driver_job_measure(job);
    bool before = d->roll.batch == NULL && !d->step.open;
    d->step.eval_reward = job->reward_mean;
    d->step.eval_known = !before;
    if (before) {
        log_eval_before(d, job);
    }
    driver_metric(d, job->step, before ? "eval/before" : "eval/reward_mean", job->reward_mean);
    LoopEvent event = {.kind = LOOP_EV_EVAL_DONE, .value = job->reward_mean, .version = -1};
    driver_feed_event(d, &event);
}

static void close_job(Driver *d, RolloutJob *job)
{
    bool eval = job->eval;
    job->ended_us = clock_mono_us();
    bool good = job->over && !job->failed && !job->cancelled;
    if (eval) {
        d->roll.eval = NULL;
    }
    if (good && eval) {
        finish_eval(d, job);
    } else if (good) {
        driver_job_measure(job);
        driver_feed(d, LOOP_EV_ROLLOUT_DONE, false, NULL);
        return; /* kept as d->roll.batch for training */
    } else {
        if (!eval) {
            d->roll.batch = NULL;
            data_seek(d->roll.data, job->position); /* its prompts are asked again */
        }
        char why[160];
        (void)str_format(why, sizeof why, "%s",
                         job->cancelled ? "cancelled" : job->why[0] ? job->why : "no reason");
        bool fatal = strncmp(job->why, "reward: ", 8) == 0;
        driver_feed(d, eval ? LOOP_EV_EVAL_FAILED : LOOP_EV_ROLLOUT_FAILED, fatal, why);
    }
    driver_job_free(job);
}

static void tick_job(Driver *d, RolloutJob *job, int64_t now_us)
{
    if (!job || job->ended_us != 0) {
        return;
    }
    int64_t due = rollout_next_due_us(job->rollout);
    if (due > 0 && now_us >= due) {
        rollout_tick(job->rollout, now_us);
    }
    driver_rollout_pump(job);
    driver_attempts_unsent(job);
    if (job->failed && !job->cancelled && job->in_flight > 0) {
        job->cancelled = true; /* the rest of it is of no use any more */
        rollout_abort(job->rollout);
        driver_rollout_pump(job);
    }
    if ((job->over || job->failed || job->cancelled) && job->in_flight == 0) {
        close_job(d, job);
    }
}

void driver_rollout_tick(Driver *d, int64_t now_us)
{
    tick_job(d, d->roll.eval, now_us);
    tick_job(d, d->roll.batch, now_us);
}

/* ---- what others ask ---------------------------------------------------------------------- */

Err driver_rollout_start(Driver *d, bool eval, Fault *fault)
{
    RolloutJob *job = NULL;
    Err err = driver_job_new(d, eval, &job, fault);
    if (err != ERR_OK) {
        return err;
    }
    if (eval) {
        d->roll.eval = job;
    } else {
        d->roll.batch = job;
    }
    job->started_us = clock_mono_us();
    d->roll.longest_first_us = d->roll.now_first_us > 0 ? d->roll.now_first_us
                                                        : d->roll.longest_first_us;
    d->roll.now_first_us = 0;
    driver_update_gate(d);
    rollout_begin(job->rollout, job->started_us);
    driver_rollout_pump(job);
    return ERR_OK;
}

static RolloutJob *running(Driver *d)
{
    RolloutJob *job = d->roll.eval ? d->roll.eval : d->roll.batch;
    return job && job->ended_us == 0 ? job : NULL;
}

void driver_rollout_cancel(Driver *d)
{
    RolloutJob *job = running(d);
    if (job && !job->cancelled) {
        job->cancelled = true;
        rollout_abort(job->rollout);
        driver_rollout_pump(job);
    }
}

/* Did this attempt go to the engine that is lost? Without a frontend we sent it. Our frontend names
 * the engine with the reply's head: an attempt without a name is held by one that has not even
 * begun to answer, and asking again costs nothing. A frontend of others names nobody: a stream that
 * has stood still since before the loss is taken for one of its streams; one that has not begun yet
 * may be waiting in any queue and is left to its bound of silence. */
static bool went_there(const Driver *d, const Attempt *a, int engine, int64_t now_us)
{
    int64_t id = driver_attempt_engine(a);
    if (id != 0) {
        return id == engine + 1;
    }
    int64_t dead_us = (d->config->probe.dead_ms > 0 ? d->config->probe.dead_ms
                                                    : probe_settings_default().dead_ms) * 1000;
    return d->local.frontend || (a->moved_us > 0 && now_us - a->moved_us >= dead_us);
}

/* Its samples are generated elsewhere at once instead of waiting for a silent stream. */
void driver_rollout_engine_lost(Driver *d, int engine)
{
    RolloutJob *job = running(d);
    int64_t now_us = clock_mono_us();
    int64_t samples = job ? (int64_t)job->group_count * job->per_group : 0;
    int taken = 0;
    for (int64_t i = 0; i < samples; i++) {
        Attempt *a = &job->attempts[i];
        if (a->generation && went_there(d, a, engine, now_us)) {
            generate_cancel(a->generation);
            taken++;
        }
    }
    if (taken > 0) {
        driver_event(d, SEVERITY_INFO, fleet_engine(d->fleet, engine).name, engine + 1,
                     "%d samples that it may have held are taken back, to be generated elsewhere",
                     taken);
    }
}

/* malloc'ed. */
static TakeBackEngine *looks(const Driver *d, int64_t now_us)
{
    TakeBackEngine *engines = xcalloc((size_t)d->seat_count + 1, sizeof *engines);
    for (int i = 0; i < d->seat_count; i++) {
        const Seat *seat = &d->seats[i];
        const bool silent = i < fleet_count(d->fleet) && fleet_silent(d->fleet, i, now_us);
        engines[i] = (TakeBackEngine){seat->state, seat->state_since_us, silent,
                                      seat->took_back || (seat->part && !seat->part->child)};
    }
    return engines;
}

void driver_take_back(Driver *d, int64_t now_us)
{
    const int count = fleet_count(d->fleet) < d->seat_count ? fleet_count(d->fleet) : d->seat_count;
    TakeBackEngine *engines = looks(d, now_us);
    bool *taken = xcalloc((size_t)count + 1, sizeof *taken);
    const int bad = take_back_judge(&d->roll.many_us, engines, count, now_us, taken);
    for (int i = 0; i < count; i++) {
        Seat *seat = &d->seats[i];
        if (seat->state == ENGINE_STUCK) {
            driver_admit(d, i); /* whether another one serves may be new */
        }
        const bool out = !fleet_engine(d->fleet, i).admitted;
        const bool take = taken[i] && (seat->state == ENGINE_DEAD || out);
        if (take && !seat->took_back) {
            driver_rollout_engine_lost(d, i);
        }
        seat->took_back = take;
    }
    if (bad > 1 && !d->roll.holds_back) { /* of a single one that need not be said */
        driver_event(d, SEVERITY_WARN, "rollout", 0,
                     "%d of %d engines look dead or stuck at once, rather this machine or the "
                     "network: their samples wait, for %d s at most", bad,
                     driver_members_present(d), DRIVER_SILENCE_MS / 1000);
    }
    d->roll.holds_back = bad > 1;
    free(taken);
    free(engines);
}

int driver_rollout_on_engine(Driver *d, int engine)
{
    RolloutJob *job = running(d);
    int64_t samples = job ? (int64_t)job->group_count * job->per_group : 0;
    int count = 0;
    for (int64_t i = 0; i < samples; i++) {
        const Attempt *a = &job->attempts[i];
        count += a->generation && driver_attempt_engine(a) == engine + 1;
    }
    return count;
}

/* A frontend of others does not say where a stream runs; when all of them move, nobody that had
 * requests stands still. One that waits for its first token says nothing good. */
void driver_rollout_flows(Driver *d, int64_t now_us)
{
    enum { MOVED_US = 1000000 };
    RolloutJob *job = driver_routes(d) ? NULL : running(d);
    int64_t samples = job ? (int64_t)job->group_count * job->per_group : 0;
    int moving = 0, still = 0;
    for (int64_t i = 0; i < samples; i++) {
        const Attempt *a = &job->attempts[i];
        int64_t since_us = a->moved_us > 0 ? a->moved_us : a->started_us;
        moving += a->generation && a->moved_us > 0 && now_us - since_us < MOVED_US;
        still += a->generation && now_us - since_us >= MOVED_US;
    }
    if (moving > 0 && still == 0) {
        fleet_note_flows(d->fleet);
    }
}

bool driver_rollout_abort_sample(Driver *d, int64_t sample)
{
    RolloutJob *job = running(d);
    int64_t samples = job ? (int64_t)job->group_count * job->per_group : 0;
    if (!job || sample < job->first_sample || sample >= job->first_sample + samples) {
        return false;
    }
    Attempt *a = driver_attempt_of(job, sample);
    if (!a->generation) {
        return false;
    }
    a->anew = true;
    generate_cancel(a->generation);
    return true;
}

/* A whole reply is silent until its end, so a bound of silence cannot tell that its engine makes no
 * token; the engine's state can. What waits for the last engine, or with most of the fleet, is
 * asked again after the time after which a stream would be. */
void driver_rollout_stuck(Driver *d, int64_t now_us)
{
    RolloutJob *job = d->config->unary ? running(d) : NULL;
    int64_t samples = job ? (int64_t)job->group_count * job->per_group : 0;
    for (int64_t i = 0; i < samples; i++) {
        const Attempt *a = &job->attempts[i];
        const Seat *seat = a->engine >= 0 ? &d->seats[a->engine] : NULL;
        if (a->generation && seat && seat->state == ENGINE_STUCK &&
            now_us - seat->state_since_us >= DRIVER_SILENCE_MS * 1000LL &&
            now_us - a->started_us >= DRIVER_SILENCE_MS * 1000LL) {
            generate_cancel(a->generation);
        }
    }
}

/* An engine that does not hold the policy and that the frontend may still give work to, because it
 * is not ours to tell; NULL: none. It is paused, and answers nobody. */
static const Seat *held_engine(const Driver *d)
{
    const Seat *held = NULL;
    for (int i = 0; i < d->seat_count && !driver_routes(d); i++) {
        const Seat *seat = &d->seats[i];
        const bool there = seat->incarnation > 0 && seat->state != ENGINE_DEAD &&
                           seat->state != ENGINE_GONE && seat->state != ENGINE_STARTING;
        held = there && seat->bring && !fleet_engine(d->fleet, i).admitted ? seat : held;
    }
    return held;
}

void driver_rollout_held(Driver *d, int64_t now_us)
{
    RolloutJob *job = running(d);
    const Seat *held = job ? held_engine(d) : NULL;
    int64_t samples = held ? (int64_t)job->group_count * job->per_group : 0;
    int taken = 0;
    for (int64_t i = 0; i < samples; i++) {
        const Attempt *a = &job->attempts[i];
        if (a->generation && a->moved_us == 0 &&
            now_us - a->started_us >= first_token_bound_us(d->roll.longest_first_us, a->attempt,
                                                           DRIVER_SILENCE_MS * 1000LL)) {
            generate_cancel(a->generation);
            taken++;
        }
    }
    if (taken > 0 && !d->roll.asks_again) {
        driver_event(d, SEVERITY_WARN, "rollout", 0, "%d samples without a first token are asked "
                     "for again: the frontend may have given them to %s, which is paused until it "
                     "holds the policy", taken,
                     fleet_engine(d->fleet, (int)(held - d->seats)).name);
    }
    d->roll.asks_again = held && (d->roll.asks_again || taken > 0);
}

static bool job_policy(Driver *d, RolloutJob *job, int64_t version)
{
    if (!rollout_survives(job->rollout, version)) {
        return false;
    }
    int64_t before = rollout_batch_policy(job->rollout);
    RolloutChange change = rollout_policy(job->rollout, version);
    const LossConfig *loss = &d->config->trainer.loss;
    bool taken_as_new = before != version && !job->eval && d->config->max_staleness > 0 &&
                        !d->config->mask_offpolicy && !loss->use_tis && !loss->use_rollout_logprobs;
    if (before != version || change.go_on + change.anew > 0) {
        driver_event(d, taken_as_new ? SEVERITY_WARN : SEVERITY_INFO, "rollout", 0,
                     "goes on under v%lld: %d samples from their tokens so far, %d anew%s",
                     (long long)version, change.go_on, change.anew,
                     taken_as_new ? "; older tokens will be trained on as if they were new "
                                    "(--use-tis, --use-rollout-logprobs or "
                                    "--mask-offpolicy-in-partial-rollout)" : "");
    }
    return true;
}

bool driver_rollout_policy(Driver *d, int64_t version)
{
    RolloutJob *job = running(d);
    bool keeps = !job || job_policy(d, job, version);
    if (job && !job->eval) {
        d->step.version = version; /* the step's batch will be of this policy either way */
    }
    return keeps;
}

void driver_update_gate(Driver *d)
{
    RolloutJob *job = running(d);
    bool served = false;
    for (int i = 0; i < fleet_count(d->fleet) && !served; i++) {
        served = fleet_engine(d->fleet, i).admitted && (!d->local.frontend || d->seats[i].route_ok);
    }
    bool open = !d->roll.gate_operator && !d->roll.gate_sync && d->front.up &&
                d->front.none_us == 0 && served;
    if (job) {
        rollout_gate(job->rollout, open, clock_mono_us());
        driver_rollout_pump(job);
    }
}
