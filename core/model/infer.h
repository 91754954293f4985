/* Forward pass for serving: paged KV cache, many sequences a step, several threads.
 *
 * The engine's scheduler decides what to run; this computes it. One Infer belongs to one thread
 * (its workers are its own). Shapes: a step takes a flat list of tokens; each belongs to a slot
 * (sequence) and a position; K and V of the token are written to the slot's block table, and
 * logits come back for the rows asked for. Prefill and decode are the same call. */
#ifndef ROLLTOP_MODEL_INFER_H
#define ROLLTOP_MODEL_INFER_H

#include "core/model/weights.h"

typedef struct Infer Infer;

typedef struct InferConfig {
    int threads;          /* >= 1 */
    int block_tokens;     /* tokens per KV block, 16 */
    int blocks;           /* blocks in the pool */
    int max_batch_tokens; /* tokens in one step, bound of scratch memory */
} InferConfig;

/* One piece of one sequence in a step. */
typedef struct InferSeq {
    const int32_t *tokens; /* count new tokens */
    int count;
    int start;             /* position of the first one = tokens already in the cache */
    const int32_t *block_table; /* block ids covering positions [0, start+count) */
    int logits_from;       /* rows wanted: tokens [logits_from, count) of this piece; count: none */
} InferSeq;

Err infer_new(Weights *weights, const InferConfig *config, Infer **out, Fault *fault);
void infer_free(Infer *infer);
/* New weights of the same shapes; KV content stays as it is (the engine flushes or not). */
Err infer_set_weights(Infer *infer, Weights *weights, Fault *fault);
/* Runs one step. *logits: wanted rows in order of seqs, each `vocab` floats, owned by infer,
 * valid until the next step. Sum of counts <= max_batch_tokens; sum of wanted rows likewise. */
Err infer_step(Infer *infer, const InferSeq *seqs, int count, const float **logits, int *rows,
               Fault *fault);

#endif
