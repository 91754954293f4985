/* One rollout's material: which prompts, their tokens, ids for groups and samples; and what it
 * came to in numbers. */
#include "core/loop/driver_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t REFUSED_US = 15000000; /* longer than a frontend's list is ever in between */

void driver_job_free(RolloutJob *job)
{
    if (!job) {
        return;
    }
    rollout_free(job->rollout);
    for (int i = 0; i < job->group_count; i++) {
        token_ids_free(&job->ids[i]);
    }
    free(job->ids);
    free(job->groups);
    free(job->rows);
    free(job->attempts);
    free(job->end_ids);
    free(job);
}

static Err take_rows(Driver *d, RolloutJob *job, Fault *fault)
{
    if (job->eval) {
        job->group_count = (int)data_count(d->roll.eval_data);
        job->rows = xcalloc((size_t)job->group_count, sizeof *job->rows);
        for (int i = 0; i < job->group_count; i++) {
            job->rows[i] = data_row(d->roll.eval_data, i);
        }
        return ERR_OK;
    }
    int64_t want = d->config->rollout_batch_size;
    job->rows = xcalloc((size_t)want, sizeof *job->rows);
    while (job->group_count < want) { /* a small data set wraps more than once */
        int64_t got =
            data_take(d->roll.data, want - job->group_count, job->rows + job->group_count);
        if (got <= 0) {
            return fault_set(fault, ERR_STATE, NULL, "%s gave no prompt", d->config->data.path);
        }
        job->group_count += (int)got;
    }
    return ERR_OK;
}

static Err encode_rows(Driver *d, RolloutJob *job, Fault *fault)
{
    const SampleSettings *s = job->eval ? &d->config->eval : &d->config->rollout;
    for (int i = 0; i < job->group_count; i++) {
        TokenIds *ids = &job->ids[i];
        Err err = tokenizer_encode(d->tokenizer, job->rows[i]->prompt, ids, fault);
        if (err != ERR_OK) {
            return err;
        }
        int64_t whole = (int64_t)ids->count + s->max_response_len;
        if (ids->count == 0 || whole > d->model.max_positions) {
            return fault_set(fault, ERR_LIMIT,
                             "lower --rollout-max-response-len or --rollout-max-prompt-len",
                             "prompt %lld of %s has %zu tokens; with %lld of response it passes "
                             "the model's %d positions",
                             (long long)job->rows[i]->index,
                             job->eval ? d->config->eval_data.path : d->config->data.path,
                             ids->count, (long long)s->max_response_len, d->model.max_positions);
        }
        job->groups[i] = (JobGroup){.prompt_index = job->rows[i]->index, .ids = ids->ids,
                                        .id_count = ids->count};
    }
    return ERR_OK;
}

static void log_groups(Driver *d, const RolloutJob *job)
{
    int64_t now = clock_wall_us();
    for (int i = 0; i < job->group_count; i++) {
        GroupFact fact = {.group = job->first_group + i, .step = job->step, .t_us = now,
                          .eval = job->eval, .prompt_index = job->rows[i]->index,
                          .prompt = job->rows[i]->prompt, .label = job->rows[i]->label,
                          .prompt_ids = job->ids[i].ids, .prompt_count = job->ids[i].count,
                          .want = job->per_group};
        store_put_group(d->store, &fact);
    }
}

/* What ends a response: the model's own tokens and the run's; malloc'ed. */
static int32_t *end_tokens(const Driver *d, int *count)
{
    const RunConfig *c = d->config;
    int32_t *ids = xcalloc(MODEL_EOS_MAX + c->stop_id_count, sizeof *ids);
    *count = 0;
    for (int i = 0; i < d->model.eos_count; i++) {
        ids[(*count)++] = d->model.eos[i];
    }
    for (size_t i = 0; i < c->stop_id_count; i++) {
        ids[(*count)++] = c->stop_ids[i];
    }
    return ids;
}

Err driver_job_new(Driver *d, bool eval, RolloutJob **out, Fault *fault)
{
    const RunConfig *c = d->config;
    const SampleSettings *s = eval ? &c->eval : &c->rollout;
    RolloutJob *job = xcalloc(1, sizeof *job);
    job->driver = d;
    job->eval = eval;
    job->step = loop_step(d->loop);
    job->per_group = (int)s->n_per_prompt;
    job->position = data_position(d->roll.data);
    py_random_seed(&job->random, c->rollout_seed + job->step);
    Err err = take_rows(d, job, fault);
    job->ids = xcalloc((size_t)job->group_count + 1, sizeof *job->ids);
    job->groups = xcalloc((size_t)job->group_count + 1, sizeof *job->groups);
    err = err != ERR_OK ? err : encode_rows(d, job, fault);
    if (err != ERR_OK) {
        driver_job_free(job);
        return err;
    }
    size_t samples = (size_t)job->group_count * (size_t)job->per_group;
    job->attempts = xcalloc(samples + 1, sizeof *job->attempts);
    job->first_sample = d->roll.next_sample;
    job->first_group = d->roll.next_group;
    d->roll.next_sample += (int64_t)samples;
    d->roll.next_group += job->group_count;
    int engines = driver_members_present(d);
    engines = engines > 0 ? engines : 1;
    int end_count = 0;
    job->end_ids = end_tokens(d, &end_count);
    RolloutConfig config = {.step = job->step, .eval = eval, .samples_per_group = job->per_group,
                            .max_in_flight = (int)(c->concurrency * engines),
                            .policy_version = loop_committed(d->loop),
                            .max_staleness = eval ? 0 : c->max_staleness, /* one policy's figure */
                            .resume = !eval && c->inflight != INFLIGHT_ABORT,
                            .max_new = s->max_response_len, .end_ids = job->end_ids,
                            .end_id_count = (size_t)end_count, .vocab = d->model.vocab,
                            .max_attempts = 20, .retry_min_us = 50000, .retry_max_us = 2000000,
                            .refused_us = REFUSED_US, .first_sample = job->first_sample,
                            .first_group = job->first_group};
    job->rollout = rollout_new(&config, job->group_count);
    log_groups(d, job);
    *out = job;
    return ERR_OK;
}

uint8_t *driver_job_masks(const RolloutJob *job, const RolloutSample *samples, int count)
{
    const int64_t policy = rollout_batch_policy(job->rollout);
    size_t total = 0;
    int64_t older = 0;
    for (int i = 0; i < count && job->driver->config->mask_offpolicy; i++) {
        total += samples[i].count;
        older += spans_mask_older(samples[i].spans, samples[i].span_count, policy, NULL);
    }
    if (older == 0) {
        return NULL;
    }
    uint8_t *masks = xcalloc(total, sizeof *masks);
    memset(masks, 1, total);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        (void)spans_mask_older(samples[i].spans, samples[i].span_count, policy, masks + at);
        at += samples[i].count;
    }
    return masks;
}

/* Means over the accepted samples; called once when the rollout is over. */
void driver_job_measure(RolloutJob *job)
{
    const RolloutSample *samples = NULL;
    int count = rollout_samples(job->rollout, &samples);
    double sum = 0.0, squares = 0.0;
    int64_t older = 0;
    job->tokens = 0;
    for (int i = 0; i < count; i++) {
        sum += samples[i].reward;
        squares += samples[i].reward * samples[i].reward;
        job->tokens += (int64_t)samples[i].count;
        older += spans_mask_older(samples[i].spans, samples[i].span_count,
                                  rollout_batch_policy(job->rollout), NULL);
    }
    job->older_share = job->tokens > 0 ? (double)older / (double)job->tokens : 0.0;
    if (count > 0) {
        double mean = sum / count;
        double variance = squares / count - mean * mean;
        job->reward_mean = mean;
        job->reward_std = sqrt(variance > 0.0 ? variance : 0.0);
        job->length_mean = (double)job->tokens / count;
    }
}
