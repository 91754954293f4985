/* Trains again what the state on disk does not have yet: the steps between the newest good state
 * and the step that the run has reached. Each is sent to the trainer as it was trained the first
 * time: the log keeps prompts, tokens, log-probs and rewards bit by bit, and the same trainer gives
 * the same weights for them; its gradient norm is compared with the one in the log. */
#include "core/loop/driver_private.h"

#include "store/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t REPLAY_BYTES_MAX = (size_t)2 << 30;

static void next(Driver *d);

static void fail(Driver *d, const char *words)
{
    char why[FAULT_TEXT_MAX + 96];
    (void)str_format(why, sizeof why, "step %lld cannot be trained again: %s",
                     (long long)d->train.at + 1, words);
    driver_event(d, SEVERITY_CRIT, "trainer", 0, "%s", why);
    driver_feed(d, LOOP_EV_FAIL, true, why);
}

/* What the first training of that step reported; NAN: the log does not say. */
static double first_norm(Driver *d, int64_t step)
{
    View *view = NULL;
    double norm = NAN;
    if (view_open(d->config->log_path, &view, NULL) == ERR_OK) {
        norm = view_metric(view, step, "train/grad_norm");
    }
    view_close(view);
    return norm;
}

static void on_trained_again(const TrainerReply *reply, void *user)
{
    Driver *d = user;
    if (d->torn_down || d->shutting) {
        return;
    }
    if (reply->err == ERR_NET) {
        return; /* it ended: its next start begins anew */
    }
    if (reply->err != ERR_OK) {
        fail(d, reply->fault.sentence);
        return;
    }
    d->train.at++;
    double before = first_norm(d, d->train.at);
    for (int i = 0; i < reply->metric_count; i++) {
        double now = reply->metrics[i].value;
        if (strcmp(reply->metrics[i].name, "train/grad_norm") == 0 && isfinite(before) &&
            now != before) {
            driver_event(d, SEVERITY_WARN, "trainer", 0, "step %lld, trained again, has gradient "
                         "norm %.9g, the first time it was %.9g: the run goes on from slightly "
                         "other weights", (long long)d->train.at, now, before);
        }
    }
    next(d);
}

static Err send_logged(Driver *d, const BatchView *batch, Fault *fault)
{
    TrainSample *samples = xcalloc(batch->count, sizeof *samples);
    size_t total = 0, responses = 0;
    for (size_t i = 0; i < batch->count; i++) {
        total += batch->rows[i].prompt_count + batch->rows[i].token_count;
        responses += batch->rows[i].token_count;
    }
    int32_t *tokens = xcalloc(total, sizeof *tokens);
    int32_t *at = tokens;
    uint8_t *masks = xcalloc(responses + 1, sizeof *masks);
    uint8_t *mask = masks;
    int64_t older = 0;
    memset(masks, 1, responses);
    for (size_t i = 0; i < batch->count; i++) {
        const BatchRow *row = &batch->rows[i];
        samples[i] = (TrainSample){.tokens = at, .prompt_count = row->prompt_count,
                                   .response_count = row->token_count,
                                   .rollout_logp = row->logprobs, .reward = row->reward,
                                   .mask = mask,
                                   .rollout_id = row->sample};
        memcpy(at, row->prompt, row->prompt_count * sizeof *at);
        memcpy(at + row->prompt_count, row->tokens, row->token_count * sizeof *at);
        at += row->prompt_count + row->token_count;
        older += spans_mask_older(row->spans, row->span_count, batch->policy, mask);
        mask += row->token_count;
    }
    for (size_t i = 0; i < batch->count && (older == 0 || !d->config->mask_offpolicy); i++) {
        samples[i].mask = NULL; /* as the first time */
    }
    Err err = trainer_train(d->train.process, d->train.at + 1, samples, batch->count,
                            on_trained_again, d, fault);
    free(masks);
    free(tokens);
    free(samples);
    return err;
}

static Err send_from_log(Driver *d, Fault *fault)
{
    View *view = NULL;
    Arena *arena = arena_new(REPLAY_BYTES_MAX);
    BatchView batch;
    Err err = view_open(d->config->log_path, &view, fault);
    if (err == ERR_OK) {
        err = view_batch(view, d->train.at + 1, arena, &batch, fault);
    }
    if (err == ERR_OK) {
        err = send_logged(d, &batch, fault);
    }
    view_close(view);
    arena_free(arena);
    return err;
}

/* The batch of the step under way is not closed in the log yet, but here. */
static void next(Driver *d)
{
    if (d->train.at >= d->train.done) {
        driver_trainer_ready(d);
        return;
    }
    Fault fault = {0};
    const RolloutJob *job = d->roll.batch;
    Err err = job && job->over && job->step == d->train.at + 1
                  ? driver_send_batch(d, on_trained_again, &fault)
                  : send_from_log(d, &fault);
    if (err != ERR_OK) {
        fail(d, fault.sentence);
    }
}

void driver_replay(Driver *d)
{
    d->train.at = d->train.state_step;
    if (d->train.at < d->train.done) {
        driver_event(d, SEVERITY_INFO, "trainer", 0, "steps %lld to %lld, after %s, are trained "
                     "again from the log", (long long)d->train.at + 1, (long long)d->train.done,
                     d->train.dir);
    }
    next(d);
}

bool driver_can_replay(Driver *d, int64_t from, int64_t to, Fault *fault)
{
    View *view = NULL;
    Err err = from > to ? ERR_OK : view_open(d->config->log_path, &view, fault);
    for (int64_t step = from; step <= to && err == ERR_OK; step++) {
        Arena *arena = arena_new(REPLAY_BYTES_MAX);
        BatchView batch;
        err = view_batch(view, step, arena, &batch, fault);
        arena_free(arena);
    }
    view_close(view);
    return err == ERR_OK;
}
