/* A learner on the tiny golden model, random batches for it, and a folder of the test's own. */
#ifndef ROLLTOP_TESTS_TRAIN_LEARNER_RIG_H
#define ROLLTOP_TESTS_TRAIN_LEARNER_RIG_H

#include "core/base/fs.h"
#include "core/base/rng.h"
#include "core/train/learner.h"
#include "tests/harness.h"

#include <stdlib.h>
#include <unistd.h>

#define MODEL ROLLTOP_TEST_DATA "/golden-qwen3/tied"
enum { SAMPLES = 8, LENGTH = 24 };

static char root[] = "/tmp/rolltop-learner-XXXXXX"; /* made first, removed at the end */

typedef struct Batch {
    TrainSample samples[SAMPLES];
    int32_t tokens[SAMPLES][LENGTH];
    float logp[SAMPLES][LENGTH];
    uint8_t mask[SAMPLES][LENGTH];
} Batch;

static inline void batch_make(Batch *b, uint64_t seed)
{
    Rng rng;
    rng_seed(&rng, seed);
    memset(b, 0, sizeof *b);
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t prompt = 2 + rng_below(&rng, 6);
        size_t response = 1 + rng_below(&rng, 12);
        for (size_t t = 0; t < prompt + response; t++) {
            b->tokens[i][t] = (int32_t)rng_below(&rng, 512);
        }
        for (size_t t = 0; t < response; t++) {
            b->logp[i][t] = (float)(-6.0 + rng_normal(&rng));
            b->mask[i][t] = rng_unit(&rng) < 0.9;
        }
        b->samples[i] = (TrainSample){.tokens = b->tokens[i], .prompt_count = prompt,
                                      .response_count = response, .rollout_logp = b->logp[i],
                                      .mask = b->mask[i], .reward = rng_unit(&rng),
                                      .rollout_id = (int64_t)i};
    }
}

static inline TrainerConfig config_make(const char *load_dir)
{
    TrainerConfig config = trainer_config_default();
    config.load_dir = load_dir;
    config.dump_dir = root;
    config.adam.lr = 1e-3;
    config.max_tokens_per_pass = 512;
    config.loss.n_samples_per_prompt = 4;
    config.loss.rollout_batch_size = 2;
    return config;
}

static inline Learner *learner_make(const TrainerConfig *config)
{
    Learner *learner = NULL;
    Fault fault = {0};
    CHECK_I64(learner_new(config, &learner, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    if (!learner) {
        exit(test_end());
    }
    return learner;
}

/* Largest difference between the parameters of two learners. */
static inline double distance(Learner *a, Learner *b)
{
    double top = 0.0;
    for (int i = 0; i < graph_param_count(learner_graph(a)); i++) {
        size_t count = 0;
        const float *x = graph_param(learner_graph(a), i, &count);
        const float *y = graph_param(learner_graph(b), i, &count);
        for (size_t j = 0; j < count; j++) {
            top = fmax(top, fabs((double)x[j] - (double)y[j]));
        }
    }
    return top;
}

static inline double train(Learner *learner, uint64_t seed, const char *metric)
{
    Batch batch;
    LearnerMetrics metrics;
    Fault fault = {0};
    batch_make(&batch, seed);
    CHECK_I64(learner_train(learner, (int64_t)seed, batch.samples, SAMPLES, &metrics, &fault),
              ERR_OK);
    CHECK_STR(fault.sentence, "");
    return learner_metric(&metrics, metric, NAN);
}

static char *under(const char *name)
{
    return fs_join(root, name);
}

static inline void rig_begin(void)
{
    if (!mkdtemp(root)) {
        printf("no temporary directory\n");
        exit(1);
    }
}

static inline int rig_end(void)
{
    fs_remove_tree(root, NULL);
    return test_end();
}

#endif
