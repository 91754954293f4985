/* What graph.c (life), graph_forward.c and graph_backward.c share. T stands for the batch's
 * tokens, R for the rows that predict one (all but the last of each sequence). */
#ifndef ROLLTOP_MODEL_GRAPH_PRIVATE_H
#define ROLLTOP_MODEL_GRAPH_PRIVATE_H

#include "core/model/attention.h"
#include "core/model/gemm.h"
#include "core/model/graph.h"
#include "core/model/layout.h"

enum {
    GRAPH_VOCAB = 2048,           /* columns of logits at once */
    GRAPH_KEEP_BYTES = 1536 << 20 /* activations, unless the settings say otherwise */
};

/* What the backward pass needs of one layer. */
typedef struct LayerActs {
    float *x;          /* [T][hidden], input */
    float *rstd_in;    /* [T] */
    float *raw;        /* [T][q + kv] before q/k-norm; NULL for Llama */
    float *qkv;        /* [T][q + 2 kv], normed and rotated */
    float *attention;  /* [T][q] */
    float *lse;        /* [T][heads] */
    float *mid;        /* [T][hidden], behind attention */
    float *rstd_post;  /* [T] */
    float *gate, *up;  /* [T][ffn]; the backward pass turns them into their gradients */
} LayerActs;

struct Graph {
    ModelConfig config;
    GraphConfig settings;
    Gemm *gemm;
    Pool *pool;
    const Kernels *kernels;
    int threads, q_width, kv_width, line; /* line = q + 2 kv */
    int params;
    float **param, **grad;
    size_t *counts;
    Attention **attention; /* one a thread */
    int attention_longest;
    float *cosine, *sine;  /* [positions][head_dim/2] */
    float *partial;        /* [threads][partial_width], gradients of norm weights */
    int partial_width;

    /* Buffers for `capacity` tokens, of `acts_layers` layers: 1 while nothing was kept. */
    int capacity, acts_layers;
    bool recompute;        /* layers share all but x, and run again in the backward pass */
    LayerActs *acts;       /* [layers]; the first one is used again where nothing is kept */
    float *top;            /* [T][hidden], output of the last layer */
    float *norms;          /* [T][hidden] */
    float *wide;           /* [T][ffn] */
    float *dx, *dnorms;    /* [T][hidden] */
    float *dqkv;           /* [T][q + 2 kv] */
    float *dattention;     /* [T][q] */
    float *final;          /* [R][hidden], normed rows that predict */
    float *dfinal;         /* [R][hidden] */
    float *rstd_final;     /* [R] */
    float *logits;         /* [chunk][GRAPH_VOCAB] */
    int chunk;
    LogitSums *sums;       /* [R] */
    float *target;         /* [R], its logit over temperature */
    float *lse, *entropy;  /* [R] */
    float *weight_g, *weight_h; /* [active rows] */
    int *position;         /* [T], within its sequence */
    int *predicts;         /* [R]: the token t that row t-1 predicts */
    int *active;           /* rows of R with a gradient */

    /* the pass in progress */
    int32_t *tokens;       /* copy of the batch's, for the backward pass */
    int32_t *starts;
    PackedBatch batch;     /* of the two copies */
    int rows, active_count;
    float temperature;
    bool kept;
};

/* Makes the buffers large enough; a smaller batch costs nothing. */
Err graph_reserve(Graph *graph, int tokens, int longest, bool keep, Fault *fault);

/* One layer's forward pass, from its x to the next one's. */
void graph_layer(Graph *graph, int layer);

typedef void GraphRows(Graph *graph, int layer, int thread, int from, int to);
/* Calls rows for a share of [0, count) on every thread. */
void graph_rows(Graph *graph, GraphRows *rows, int layer, int count);
/* Attention of every sequence and kv head of a layer. */
void graph_attention(Graph *graph, int layer, bool backward);

static inline float *graph_weight(const Graph *graph, int layer, LayerTensor which)
{
    return graph->param[layout_layer(&graph->config, layer, which)];
}
static inline float *graph_gradient(const Graph *graph, int layer, LayerTensor which)
{
    return graph->grad[layout_layer(&graph->config, layer, which)];
}

/* norms = RMSNorm(x) * w with the rstd that the forward pass kept. */
void graph_apply_norm(const Graph *graph, const float *x, const float *w, const float *rstd,
                      int from, int to);

#endif
