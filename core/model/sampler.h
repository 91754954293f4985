/* Sampling from logits in SGLang's order (golden-qwen3/README "sampling.json"). Pure. */
#ifndef ROLLTOP_MODEL_SAMPLER_H
#define ROLLTOP_MODEL_SAMPLER_H

#include "core/base/err.h"
#include "core/base/rng.h"

#include <stddef.h>
#include <stdint.h>

typedef struct SamplingParams {
    float temperature;        /* < 1e-6: greedy */
    float top_p;              /* (0, 1] */
    int32_t top_k;            /* -1: all */
    float min_p;              /* [0, 1] */
    float frequency_penalty, presence_penalty, repetition_penalty;
    int32_t min_new_tokens;
    const int32_t *stop_ids;  /* forbidden while fewer than min_new_tokens outputs; borrowed */
    size_t stop_count;
    const int32_t *bias_ids;  /* logit_bias; borrowed */
    const float *bias;
    size_t bias_count;
} SamplingParams;
SamplingParams sampling_defaults(void);

typedef struct Sampler Sampler; /* scratch for one vocabulary size; one per thread */
Sampler *sampler_new(int vocab);
void sampler_free(Sampler *sampler);

typedef struct SampledToken {
    int32_t id;
    float logprob; /* log-softmax after penalties and temperature, before the filters */
} SampledToken;

/* Per-sequence counts of output tokens for the penalties; NULL when none is set. */
typedef struct PenaltyCounts {
    int32_t *ids;     /* distinct output ids */
    int32_t *counts;
    size_t count, capacity;
} PenaltyCounts;
void penalty_add(PenaltyCounts *counts, int32_t id);
void penalty_free(PenaltyCounts *counts);

/* Draws one token from logits[vocab] (not changed). `outputs` = tokens generated so far.
 * ERR_NUMERIC when no finite logit is left. */
Err sampler_draw(Sampler *sampler, const float *logits, const SamplingParams *params,
                 const PenaltyCounts *counts, int32_t outputs, Rng *rng, SampledToken *out);
/* The distribution after every filter: ids by falling probability; for tests. Returns count. */
size_t sampler_distribution(Sampler *sampler, const float *logits, const SamplingParams *params,
                            const PenaltyCounts *counts, int32_t outputs, const int32_t **ids,
                            const float **probs);
/* Log-softmax of logits/temperature at one id. */
float sampler_logprob(const float *logits, int vocab, float temperature, int32_t id);

#endif
