/* One attempt at one sample: sent to the frontend, or to an engine where there is none; what comes
 * of it is told to the rollout machine, put behind what the sample had before. */
#include "core/loop/driver_private.h"

#include "core/rollout/partial.h"

#include <stdlib.h>
#include <string.h>

enum { PROGRESS_US = 1000000 };

Attempt *driver_attempt_of(RolloutJob *job, int64_t sample)
{
    return &job->attempts[sample - job->first_sample];
}

/* "HOST:PORT" as the frontend says it -> store id; 0 unknown. */
static int64_t engine_id(const Driver *d, const char *address)
{
    return address[0] ? fleet_find(d->fleet, address) + 1 : 0;
}

/* Who has the attempt: store id; 0 unknown. */
static int64_t engine_of(const Attempt *a, const char *address)
{
    return a->engine >= 0 ? a->engine + 1 : engine_id(a->job->driver, address);
}

int64_t driver_attempt_engine(const Attempt *a)
{
    return engine_of(a, generate_engine(a->generation));
}

/* The longest wait for a first token, of this rollout and the one before it. */
static void note_first(Driver *d, int64_t waited_us)
{
    DriverRoll *roll = &d->roll;
    roll->now_first_us = waited_us > roll->now_first_us ? waited_us : roll->now_first_us;
    roll->longest_first_us = waited_us > roll->longest_first_us ? waited_us
                                                                : roll->longest_first_us;
}

static void on_progress(Generation *g, size_t tokens, void *user)
{
    Attempt *a = user;
    Driver *d = a->job->driver;
    int64_t now = clock_mono_us();
    int64_t engine = engine_of(a, generate_engine(g));
    if (a->moved_us == 0) {
        note_first(d, now - a->started_us);
        a->first_us = now;
    }
    a->moved_us = now;
    a->tokens = a->kept + (int64_t)tokens;
    if (engine > 0) {
        fleet_note_tokens(d->fleet, (int)engine - 1);
    }
    if (now - a->logged_us < PROGRESS_US && a->logged_us != 0) {
        return;
    }
    a->logged_us = now;
    SampleProgressFact fact = {.sample = a->sample, .t_us = clock_wall_us(),
                               .engine = engine,
                               .tokens = a->tokens};
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

static void feed_whole(Attempt *a, const RolloutAttemptEnd *end, int64_t first_us)
{
    RolloutJob *job = a->job;
    job->ending = end;
    job->ending_engine = end->engine;
    job->ending_first_us = first_us;
    rollout_attempt_end(job->rollout, end, clock_mono_us());
    driver_rollout_pump(job);
    job->ending = NULL;
}

/* What the attempt gave, behind what it went on from. */
static void feed_end(Attempt *a, RolloutAttemptEnd *end, int64_t first_us)
{
    const RunConfig *c = a->job->driver->config;
    RolloutSample kept;
    if (!rollout_kept(a->job->rollout, a->sample, &kept)) {
        feed_whole(a, end, first_us);
        return;
    }
    Partial all;
    partial_join(&all, &kept, end);
    if (partial_decode(&all, a->job->driver->tokenizer, c->skip_special_tokens, c->stop)) {
        end->whole = true;
        end->finish = "stop";
    }
    end->ids = all.ids;
    end->logprobs = all.logprobs;
    end->count = all.count;
    end->spans = all.spans;
    end->span_count = all.span_count;
    end->text = text_str(&all.text);
    feed_whole(a, end, first_us);
    partial_free(&all);
}

static void left_engine(const Attempt *a)
{
    Seat *seat = a->engine >= 0 ? &a->job->driver->seats[a->engine] : NULL;
    if (seat && seat->sampling > 0) { /* a seat that was taken anew counts from 0 */
        seat->sampling--;
    }
}

/* Where a frontend of others chose the engine, tokens may come from one not verified yet. */
static bool unvouched(const Attempt *a, const GenerateResult *r)
{
    const Driver *d = a->job->driver;
    return r->count > 0 && !driver_routes(d) &&
           canary_window_covers(&d->roll.window, a->started_us, a->first_us, clock_mono_us());
}

static void on_done(Generation *g, const GenerateResult *r, void *user)
{
    (void)g;
    Attempt *a = user;
    RolloutJob *job = a->job;
    a->generation = NULL;
    job->in_flight--;
    left_engine(a);
    if (a->moved_us == 0 && (r->end == GENERATE_STOP || r->end == GENERATE_LENGTH)) {
        note_first(a->job->driver, r->total_us); /* a whole reply */
    }
    job->sample_seconds += (double)r->total_us / 1e6;
    job->sample_count++;
    const bool told = r->end == GENERATE_STOP || r->end == GENERATE_LENGTH ||
                      r->end == GENERATE_ABORT;
    RolloutAttemptEnd end = {
        .sample = a->sample, .attempt = a->attempt,
        .whole = r->end == GENERATE_STOP || r->end == GENERATE_LENGTH,
        .retry_elsewhere = says_nothing_about_sample(r->end), .anew = a->anew,
        .refused = r->end == GENERATE_REFUSED, .engine = engine_of(a, r->engine),
        .finish = told || r->detail[0] == '\0' ? generate_end_name(r->end) : r->detail,
        .retry_after_s = r->end == GENERATE_BUSY ? r->retry_after_s : -1.0,
        .ids = r->ids, .logprobs = r->logprobs, .count = r->count,
        .span_count = r->span_count, .text = r->text};
    SampleSpan *spans = xcalloc(r->span_count + 1, sizeof *spans);
    for (size_t i = 0; i < r->span_count; i++) {
        spans[i] = (SampleSpan){r->spans[i].from, r->spans[i].to, r->spans[i].weight_version};
    }
    end.spans = spans;
    if (unvouched(a, r)) {
        end.whole = end.refused = false;
        end.retry_elsewhere = end.anew = true;
        end.finish = "made while an engine was being verified";
    }
    feed_end(a, &end, r->first_token_us);
    free(spans);
}

void driver_attempts_unsent(RolloutJob *job)
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
            feed_end(a, &end, 0);
        }
    }
}

/* Prompt and kept tokens; malloc'ed. */
static int32_t *input_of(const JobGroup *group, const RolloutSample *kept, size_t *count)
{
    *count = group->id_count + kept->count;
    int32_t *ids = xcalloc(*count + 1, sizeof *ids);
    memcpy(ids, group->ids, group->id_count * sizeof *ids);
    if (kept->count > 0) {
        memcpy(ids + group->id_count, kept->ids, kept->count * sizeof *ids);
    }
    return ids;
}

static Err send_attempt(Attempt *a, const RolloutSample *kept, Fault *fault)
{
    RolloutJob *job = a->job;
    Driver *d = job->driver;
    const RunConfig *c = d->config;
    const SampleSettings *s = job->eval ? &c->eval : &c->rollout;
    char rid[96];
    char url[320];
    (void)str_format(rid, sizeof rid, "%s-%lld-%d", c->run_id, (long long)a->sample, a->attempt);
    (void)str_format(url, sizeof url, "%s", d->front.generate_url);
    if (d->front.direct) {
        a->engine = driver_pick(d);
        if (a->engine < 0) {
            return fault_set(fault, ERR_STATE, NULL, "no engine serves at this moment");
        }
        (void)str_format(url, sizeof url, "%s/generate",
                         fleet_engine(d->fleet, a->engine).base_url);
    }
    size_t input_count = 0;
    int32_t *input = input_of(&job->groups[a->group], kept, &input_count);
    GenerateSpec spec = {
        .url = url, .rid = rid, .input_ids = input, .input_count = input_count,
        /* a router hands it on to the engines */
        .bearer = c->router || d->front.direct ? c->engine_bearer : NULL,
        .vocab = d->model.vocab, .stream = !c->unary,
        .temperature = s->temperature, .top_p = s->top_p, .top_k = s->top_k,
        .max_new_tokens = s->max_response_len - (int64_t)kept->count, .stop = c->stop,
        .stop_ids = c->stop_ids, .stop_id_count = c->stop_id_count,
        .skip_special_tokens = c->skip_special_tokens,
        /* Local engines repeat a run from its seed; others sample as they like, as with slime. */
        .seed = d->local.frontend ? c->rollout_seed * 1000003 + a->sample * 31 + a->attempt : -1,
        .silence_ms = DRIVER_SILENCE_MS};
    GenerateEvents events = {.on_progress = on_progress, .on_done = on_done, .user = a};
    Err err = generate_start(d->http, &spec, &events, &a->generation, fault);
    free(input);
    return err;
}

void driver_attempt_start(RolloutJob *job, const RolloutAction *action)
{
    Driver *d = job->driver;
    Attempt *a = driver_attempt_of(job, action->sample);
    RolloutSample kept = {.count = 0};
    (void)rollout_kept(job->rollout, action->sample, &kept);
    *a = (Attempt){.job = job, .sample = action->sample, .attempt = action->attempt,
                   .group = (int)(action->group - job->first_group), .engine = -1,
                   .kept = (int64_t)kept.count, .tokens = (int64_t)kept.count,
                   .started_us = clock_mono_us()};
    SampleStartFact fact = {.sample = a->sample, .group = action->group, .step = job->step,
                            .t_us = clock_wall_us(), .attempt = a->attempt, .eval = job->eval};
    Fault fault = {0};
    job->in_flight++;
    Err err = send_attempt(a, &kept, &fault);
    fact.engine = a->engine + 1;
    store_put_sample_start(d->store, &fact);
    if (err == ERR_OK) {
        if (a->engine >= 0) {
            d->seats[a->engine].sampling++;
        }
        return;
    }
    job->in_flight--;
    a->generation = NULL;
    a->unsent = true;
    job->unsent++;
    if (job->unsent == 1) {
        driver_event(d, SEVERITY_WARN, "rollout", 0, "%s", fault.sentence);
    }
}
