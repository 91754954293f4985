/* Forward and backward for training: FP32 parameters and gradients, packed sequences.
 *
 * log-probs and entropies are computed over the vocabulary in chunks of rows, so that logits of
 * [tokens, vocab] never exist at once. Used as: graph_forward, the loss computes dL/dlogp and
 * dL/dentropy per token, graph_backward adds to the gradients. Activations live from forward to
 * the next call; their bound follows from max_tokens. One Graph belongs to one thread. */
#ifndef ROLLTOP_MODEL_GRAPH_H
#define ROLLTOP_MODEL_GRAPH_H

#include "core/model/weights.h"

typedef struct Graph Graph;

typedef struct PackedBatch {
    const int32_t *tokens; /* [n_tokens], sequences back to back */
    const int32_t *starts; /* [n_seqs + 1], starts[0] = 0, starts[n_seqs] = n_tokens */
    int n_seqs, n_tokens;
} PackedBatch;

typedef struct GraphConfig {
    int threads;
    int max_tokens;     /* of one PackedBatch */
    int logit_chunk;    /* rows of logits at once; 0: chosen by cache size */
    size_t keep_bytes;  /* activations kept for the backward pass; 0: 1.5 GiB. A batch that needs
                         * more keeps the layers' inputs only and computes the rest again: the
                         * same bits, a third more arithmetic, a tenth of the memory */
} GraphConfig;

/* Parameters are loaded from a checkpoint directory as FP32. */
Err graph_new(const char *dir, const GraphConfig *config, Graph **out, Fault *fault);
void graph_free(Graph *graph);
const ModelConfig *graph_config(const Graph *graph);

/* Parameter tensors, index as model_tensor_spec; flat [rows*cols]; owned by the graph, writable
 * by the optimizer between passes. */
int graph_param_count(const Graph *graph);
float *graph_param(Graph *graph, int index, size_t *count);
float *graph_grad(Graph *graph, int index, size_t *count);
void graph_zero_grad(Graph *graph);

/* logp[t] = log p(tokens[t] | its prefix) of softmax(logits/temperature), for t not first in its
 * sequence (0 there). entropy[t] = entropy in nats of the distribution that predicted token t (0
 * for a first token); may be NULL. `keep`: keep activations for graph_backward. */
Err graph_forward(Graph *graph, const PackedBatch *batch, float temperature, bool keep,
                  float *logp, float *entropy, Fault *fault);
/* Adds dL/dparam for L = sum dlogp[t]*logp[t] + dentropy[t]*entropy[t] (dentropy may be NULL).
 * Must follow a graph_forward with keep on the same batch. */
Err graph_backward(Graph *graph, const float *dlogp, const float *dentropy, Fault *fault);

/* Writes config.json and model.safetensors (F32 or BF16) into dir (made when missing). */
Err graph_save(const Graph *graph, ModelDtype dtype, const char *dir, Fault *fault);

#endif
