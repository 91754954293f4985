/* The built-in trainer without its process: parameters, optimizer, and one call per request of
 * the protocol. The child speaks for it; warm-up, tests and benches call it directly. Not
 * thread-safe; its worker threads are its own. Deterministic: same calls, same bits. */
#ifndef ROLLTOP_TRAIN_LEARNER_H
#define ROLLTOP_TRAIN_LEARNER_H

#include "core/base/hash.h"
#include "core/train/trainer.h"

typedef struct Learner Learner;

typedef void (*LearnerProgress)(const char *what, double share, void *user);

/* Loads config->load_dir: a checkpoint, or a state that learner_save wrote (then the optimizer
 * comes along). The strings of the config must outlive the learner. */
Err learner_new(const TrainerConfig *config, Learner **out, Fault *fault);
void learner_free(Learner *learner);
Graph *learner_graph(Learner *learner);
void learner_set_lr(Learner *learner, double lr);
void learner_on_progress(Learner *learner, LearnerProgress progress, void *user);

typedef struct LearnerMetrics {
    TrainerMetric items[TRAINER_METRICS_MAX];
    int count;
} LearnerMetrics;
double learner_metric(const LearnerMetrics *metrics, const char *name, double fallback);

/* One rollout's samples: recomputes log-probs where they are needed, normalises rewards, computes
 * advantages once, then ceil(executions / global_batch_size) optimizer steps in the order given.
 * With a single step the old log-probs are those of the training pass itself (ratio 1), as slime
 * does; metrics are means over the steps. ERR_NUMERIC: what was bad is named, the step was not
 * taken, batch and state lie in a directory that the hint names, and publishing is refused until
 * a later step has succeeded. */
Err learner_train(Learner *learner, int64_t step, const TrainSample *samples, size_t count,
                  LearnerMetrics *metrics, Fault *fault);
/* Supervised step on whole sequences; masks[i][t] says that token t is learned (t > 0). */
Err learner_sft(Learner *learner, const int32_t *const *tokens, const uint8_t *const *masks,
                const size_t *counts, size_t count, LearnerMetrics *metrics, Fault *fault);
/* Log-probs at a temperature: out[sum of (counts - 1)], tokens 1 … of each sequence. */
Err learner_score(Learner *learner, const int32_t *const *tokens, const size_t *counts,
                  size_t count, float temperature, float *out, Fault *fault);

/* A Hugging Face directory at `dir`, whole or not at all: written beside it, synced, renamed.
 * Tokenizer files come from load_dir. */
Err learner_publish(Learner *learner, ModelDtype dtype, const char *dir, char digest[DIGEST_TEXT],
                    int64_t *bytes, Fault *fault);
/* State for an exact resume: FP32 parameters, moments, step count, tokenizer files. Same rules. */
Err learner_save(Learner *learner, const char *dir, Fault *fault);

#endif
