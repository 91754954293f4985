/* Carries out a rollout: one generation stream per attempt, rewards as samples are accepted,
 * every fate in the log. The rollout machine decides; here is only the edge. */
#include "core/loop/driver_private.h"

#include "core/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRESS_US = 1000000 };
static const int64_t SILENCE_MS = 60000;

static void pump(RolloutJob *job);

static Attempt *attempt_of(RolloutJob *job, int64_t sample)
{
    return &job->attempts[sample - job->first_sample];
}

/* "HOST:PORT" as the frontend says it -> store id; 0 unknown. */
static int64_t engine_id(const Driver *d, const char *address)
{
    return address[0] ? fleet_find(d->fleet, address) + 1 : 0;
}

static void on_progress(Generation *g, size_t tokens, void *user)
{
    Attempt *a = user;
    Driver *d = a->job->driver;
    int64_t now = clock_mono_us();
    int64_t engine = engine_id(d, generate_engine(g));
    a->moved_us = now;
    a->tokens = (int64_t)tokens;
    if (engine > 0) {
        fleet_note_tokens(d->fleet, (int)engine - 1);
    }
    if (now - a->logged_us < PROGRESS_US && a->logged_us != 0) {
        return;
    }
    a->logged_us = now;
    SampleProgressFact fact = {.sample = a->sample, .t_us = clock_wall_us(),
                               .engine = engine,
                               .tokens = (int64_t)tokens};
    store_put_sample_progress(d->store, &fact);
}

static bool says_nothing_about_sample(GenerateEnd end)
{
    switch (end) {
    case GENERATE_STOP:
    case GENERATE_LENGTH:
    case GENERATE_REFUSED:
    case GENERATE_INVALID:
        return false;
    case GENERATE_ABORT:
    case GENERATE_TRUNCATED:
    case GENERATE_ERROR_FRAME:
    case GENERATE_BUSY:
    case GENERATE_FAILED:
    case GENERATE_SILENT:
    case GENERATE_CANCELLED:
        return true;
    }
    return true;
}

static void feed_end(Attempt *a, const RolloutAttemptEnd *end, int64_t engine, int64_t first_us)
{
    RolloutJob *job = a->job;
    job->ending = end;
    job->ending_engine = engine;
    job->ending_first_us = first_us;
    rollout_attempt_end(job->rollout, end, clock_mono_us());
    pump(job);
    job->ending = NULL;
}

static void on_done(Generation *g, const GenerateResult *r, void *user)
{
    (void)g;
    Attempt *a = user;
    RolloutJob *job = a->job;
    a->generation = NULL;
    job->in_flight--;
    job->sample_seconds += (double)r->total_us / 1e6;
    job->sample_count++;
    RolloutAttemptEnd end = {
        .sample = a->sample, .attempt = a->attempt,
        .whole = r->end == GENERATE_STOP || r->end == GENERATE_LENGTH,
        .retry_elsewhere = says_nothing_about_sample(r->end),
        .refused = r->end == GENERATE_REFUSED, .engine = engine_id(job->driver, r->engine),
        .finish = r->end == GENERATE_STOP || r->end == GENERATE_LENGTH ||
                          r->end == GENERATE_ABORT || r->detail[0] == '\0'
                      ? generate_end_name(r->end)
                      : r->detail,
        .retry_after_s = r->end == GENERATE_BUSY ? r->retry_after_s : -1.0,
        .ids = r->ids, .logprobs = r->logprobs, .count = r->count,
        .span_count = r->span_count, .text = r->text};
    SampleSpan *spans = xcalloc(r->span_count, sizeof *spans);
    for (size_t i = 0; i < r->span_count; i++) {
        spans[i] = (SampleSpan){r->spans[i].from, r->spans[i].to, r->spans[i].weight_version};
    }
    end.spans = spans;
    feed_end(a, &end, end.engine, r->first_token_us);
    free(spans);
}

/* Attempts that could not even be sent; told on a tick, not from inside the action that tried. */
static void feed_unsent(RolloutJob *job)
{
    int64_t samples = (int64_t)job->group_count * job->per_group;
    for (int64_t i = 0; i < samples && job->unsent > 0; i++) {
        Attempt *a = &job->attempts[i];
        if (a->unsent) {
            a->unsent = false;
            job->unsent--;
            RolloutAttemptEnd end = {.sample = a->sample, .attempt = a->attempt,
                                     .retry_elsewhere = true, .finish = "could not be sent",
                                     .retry_after_s = -1.0};
            feed_end(a, &end, 0, 0);
        }
    }
}

static void start_attempt(RolloutJob *job, const RolloutAction *action)
{
    Driver *d = job->driver;
    const RunConfig *c = d->config;
    const SampleSettings *s = job->eval ? &c->eval : &c->rollout;
    Attempt *a = attempt_of(job, action->sample);
    *a = (Attempt){.job = job, .sample = action->sample, .attempt = action->attempt,
                   .group = (int)(action->group - job->first_group),
                   .started_us = clock_mono_us()};
    SampleStartFact fact = {.sample = a->sample, .group = action->group, .step = job->step,
                            .t_us = clock_wall_us(), .attempt = a->attempt, .eval = job->eval};
    store_put_sample_start(d->store, &fact);
    char rid[96];
    (void)str_format(rid, sizeof rid, "%s-%lld-%d", c->run_id, (long long)a->sample, a->attempt);
    const RolloutGroup *group = &job->groups[a->group];
    GenerateSpec spec = {
        .url = d->front.generate_url, .rid = rid, .input_ids = group->ids,
        .bearer = c->router ? c->engine_bearer : NULL, /* a router hands it on to the engines */
        .input_count = group->id_count, .vocab = d->model.vocab, .stream = true,
        .temperature = s->temperature, .top_p = s->top_p, .top_k = s->top_k,
        .max_new_tokens = s->max_response_len, .stop = c->stop, .stop_ids = c->stop_ids,
        .stop_id_count = c->stop_id_count, .skip_special_tokens = c->skip_special_tokens,
        /* Local engines repeat a run from its seed; others sample as they like, as with slime. */
        .seed = d->local.frontend ? c->rollout_seed * 1000003 + a->sample * 31 + a->attempt : -1,
        .silence_ms = SILENCE_MS};
    GenerateEvents events = {.on_progress = on_progress, .on_done = on_done, .user = a};
    Fault fault = {0};
    job->in_flight++;
    if (generate_start(d->http, &spec, &events, &a->generation, &fault) != ERR_OK) {
        job->in_flight--;
        a->generation = NULL;
        a->unsent = true;
        job->unsent++;
        if (job->unsent == 1) {
            driver_event(d, SEVERITY_WARN, "rollout", 0, "%s", fault.sentence);
        }
    }
}

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
    const DataRow *row = job->rows[attempt_of(job, sample)->group];
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
    rollout_reward(job->rollout, sample, reward, clock_mono_us());
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
    case ROLLOUT_START: start_attempt(job, action); break;
    case ROLLOUT_CANCEL: {
        Attempt *a = attempt_of(job, action->sample);
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
static void pump(RolloutJob *job)
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
    pump(job);
    feed_unsent(job);
    if (job->failed && !job->cancelled && job->in_flight > 0) {
        job->cancelled = true; /* the rest of it is of no use any more */
        rollout_abort(job->rollout, now_us);
        pump(job);
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
    driver_update_gate(d);
    rollout_begin(job->rollout, job->started_us);
    pump(job);
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
        rollout_abort(job->rollout, clock_mono_us());
        pump(job);
    }
}

/* Did this attempt go to the engine that is lost? Our frontend names the engine with the reply's
 * head: an attempt without a name is held by one that has not even begun to answer, and asking
 * again costs nothing. A frontend of others names nobody: a stream that has stood still since
 * before the loss is taken for one of its streams; one that has not begun yet may be waiting in
 * any queue and is left to its bound of silence. */
static bool went_there(const Driver *d, const Attempt *a, int engine, int64_t now_us)
{
    int64_t id = engine_id(d, generate_engine(a->generation));
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
    for (int64_t i = 0; i < samples; i++) {
        Attempt *a = &job->attempts[i];
        if (a->generation && went_there(d, a, engine, now_us)) {
            generate_cancel(a->generation);
        }
    }
}

int driver_rollout_on_engine(Driver *d, int engine)
{
    RolloutJob *job = running(d);
    int64_t samples = job ? (int64_t)job->group_count * job->per_group : 0;
    int count = 0;
    for (int64_t i = 0; i < samples; i++) {
        const Attempt *a = &job->attempts[i];
        count += a->generation && engine_id(d, generate_engine(a->generation)) == engine + 1;
    }
    return count;
}

/* A frontend of others does not say where a stream runs; when all of them move, nobody that had
 * requests stands still. One that waits for its first token says nothing good. */
void driver_rollout_flows(Driver *d, int64_t now_us)
{
    enum { MOVED_US = 1000000 };
    RolloutJob *job = d->local.frontend ? NULL : running(d);
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
    Attempt *a = attempt_of(job, sample);
    if (!a->generation) {
        return false;
    }
    generate_cancel(a->generation);
    return true;
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
        pump(job);
    }
}
