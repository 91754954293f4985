/* Causal attention of packed sequences for training: no T x T matrix, blocks of queries against
 * all their keys. Probabilities are computed again in the backward pass from the kept
 * log-sum-exp, which costs less than to keep them. */
#ifndef ROLLTOP_MODEL_ATTENTION_H
#define ROLLTOP_MODEL_ATTENTION_H

#include "core/model/kernels.h"

typedef struct AttentionShape {
    int heads, kv_heads, head_dim;
    int longest; /* tokens of the longest sequence: bound of the scratch */
} AttentionShape;

/* One kv head and its query heads over one sequence of `count` tokens. Row t of q, k, v, out and
 * their gradients lies t*step floats behind the pointer; the pointers name the first token and
 * the first head of the group. lse[t*heads + i] for head i of the group. */
typedef struct AttentionArgs {
    const float *q, *k, *v;
    size_t step;
    float *out;
    size_t out_step;
    float *lse;
    size_t lse_step;
    /* backward only */
    const float *dout;       /* steps as out */
    float *dq, *dk, *dv;     /* set, not added to; steps as q */
    int count;
} AttentionArgs;

typedef struct Attention Attention; /* scratch of one thread */
Attention *attention_new(const Kernels *kernels, const AttentionShape *shape); /* NULL: no memory */
void attention_free(Attention *attention);
void attention_forward(Attention *attention, const AttentionArgs *args);
void attention_backward(Attention *attention, const AttentionArgs *args);

#endif
