/* Supervised training of a checkpoint in place, in this process. */
#include "core/train/trainer.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/train/learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct SftBatch {
    const int32_t **tokens;
    const uint8_t **masks;
    size_t *counts;
    uint8_t **mask_of; /* per example, owned */
} SftBatch;

static Err examples_check(const SftExample *examples, size_t count, int batch, int *longest,
                          Fault *fault)
{
    *longest = 0;
    for (size_t i = 0; i < count; i++) {
        const SftExample *e = &examples[i];
        if (e->count < 2 || e->count > 1 << 20 || e->loss_from < 1 || e->loss_from >= e->count) {
            return fault_set(fault, ERR_ARG, "give each example a prompt and an answer",
                             "example %zu has %d tokens and is learned from place %d", i, e->count,
                             e->loss_from);
        }
        *longest = e->count > *longest ? e->count : *longest;
    }
    if (count == 0 || batch < 1) {
        return fault_set(fault, ERR_ARG, NULL, "supervised training was given %zu examples, %d a "
                         "step", count, batch);
    }
    return ERR_OK;
}

static void batch_draw(SftBatch *batch, const SftExample *examples, size_t count, int size,
                       Rng *rng)
{
    for (int i = 0; i < size; i++) {
        size_t at = (size_t)rng_below(rng, count);
        const SftExample *e = &examples[at];
        if (!batch->mask_of[at]) {
            batch->mask_of[at] = xcalloc((size_t)e->count, 1);
            memset(batch->mask_of[at] + e->loss_from, 1, (size_t)(e->count - e->loss_from));
        }
        batch->tokens[i] = e->tokens;
        batch->masks[i] = batch->mask_of[at];
        batch->counts[i] = (size_t)e->count;
    }
}

static Err sft_steps(Learner *learner, SftBatch *batch, const SftExample *examples, size_t count,
                     const SftPlan *plan, SftEnd *end, Fault *fault)
{
    Rng rng;
    rng_seed(&rng, plan->seed);
    *end = (SftEnd){0, INFINITY};
    while (end->steps < plan->steps && end->loss > plan->loss_goal) {
        LearnerMetrics metrics;
        batch_draw(batch, examples, count, plan->batch, &rng);
        Err err = learner_sft(learner, batch->tokens, batch->masks, batch->counts,
                              (size_t)plan->batch, &metrics, fault);
        if (err) {
            return err;
        }
        end->loss = learner_metric(&metrics, "train/loss", INFINITY);
        end->steps++;
    }
    return ERR_OK;
}

Err trainer_sft(const char *dir, const SftExample *examples, size_t count, const SftPlan *plan,
                SftEnd *end, Fault *fault)
{
    int longest;
    Err err = examples_check(examples, count, plan->batch, &longest, fault);
    if (err) {
        return err;
    }
    TrainerConfig config = trainer_config_default();
    config.load_dir = dir;
    config.adam = plan->adam;
    config.threads = plan->threads;
    config.max_tokens_per_pass = longest > 2048 ? longest : 2048;
    Learner *learner = NULL;
    err = learner_new(&config, &learner, fault);
    size_t size = (size_t)plan->batch;
    SftBatch batch = {xcalloc(size, sizeof *batch.tokens), xcalloc(size, sizeof *batch.masks),
                      xcalloc(size, sizeof *batch.counts), xcalloc(count, sizeof *batch.mask_of)};
    if (!err) {
        err = sft_steps(learner, &batch, examples, count, plan, end, fault);
    }
    if (!err) {
        char digest[DIGEST_TEXT];
        int64_t bytes;
        err = learner_publish(learner, MODEL_F32, dir, digest, &bytes, fault);
    }
    learner_free(learner);
    for (size_t i = 0; i < count; i++) {
        free(batch.mask_of[i]);
    }
    free((void *)batch.tokens);
    free((void *)batch.masks);
    free(batch.counts);
    free(batch.mask_of);
    return err;
}
