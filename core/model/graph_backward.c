#include "core/model/graph_private.h"

#include <string.h>

/* ---- gradients of norm weights, a sum a thread -------------------------------------------- */

static void graph_partial_zero(Graph *graph)
{
    memset(graph->partial, 0,
           (size_t)graph->threads * (size_t)graph->partial_width * sizeof(float));
}

static float *graph_partial(const Graph *graph, int thread)
{
    return graph->partial + (size_t)thread * (size_t)graph->partial_width;
}

static void graph_partial_add(Graph *graph, int offset, int width, float *gradient)
{
    for (int i = 0; i < graph->threads; i++) {
        graph->kernels->axpy(gradient, 1.0f, graph_partial(graph, i) + offset, width);
    }
}

/* ---- logits ------------------------------------------------------------------------------- */

typedef struct LogitJob {
    Graph *graph;
    int row, rows, from, columns; /* rows of the active ones */
} LogitJob;

static void graph_logits_work(void *context, int thread, int threads)
{
    const LogitJob *job = context;
    Graph *graph = job->graph;
    const float inverse = 1.0f / graph->temperature;
    for (int i = job->rows * thread / threads; i < job->rows * (thread + 1) / threads; i++) {
        float *z = graph->logits + (size_t)i * (size_t)job->columns;
        const int row = graph->active[job->row + i];
        const float g = graph->weight_g[job->row + i];
        graph->kernels->logit_grad(z, inverse, graph->lse[row], graph->entropy[row], g,
                                   graph->weight_h[job->row + i], job->columns);
        const int target = graph->tokens[graph->predicts[row]] - job->from;
        if (target >= 0 && target < job->columns) {
            z[target] += g * inverse;
        }
    }
}

static void graph_logits_block(Graph *graph, LogitJob *job)
{
    const size_t hidden = (size_t)graph->config.hidden;
    const int head = layout_head(&graph->config);
    const float *x = graph->final + (size_t)job->row * hidden;
    float *w = graph->param[head] + (size_t)job->from * hidden;
    const GemmArgs again = {.a = x, .lda = hidden, .b = w, .ldb = hidden, .b_transposed = true,
                            .c = graph->logits, .ldc = (size_t)job->columns, .m = job->rows,
                            .n = job->columns, .k = graph->config.hidden};
    gemm_run(graph->gemm, &again);
    pool_run(graph->pool, graph_logits_work, job);
    const GemmArgs down = {.a = graph->logits, .lda = (size_t)job->columns, .b = w, .ldb = hidden,
                           .c = graph->dfinal + (size_t)job->row * hidden, .ldc = hidden,
                           .m = job->rows, .n = graph->config.hidden, .k = job->columns,
                           .add = job->from > 0};
    gemm_run(graph->gemm, &down);
    const GemmArgs weight = {.a = graph->logits, .lda = (size_t)job->columns, .a_transposed = true,
                             .b = x, .ldb = hidden,
                             .c = graph->grad[head] + (size_t)job->from * hidden, .ldc = hidden,
                             .m = job->columns, .n = graph->config.hidden, .k = job->rows,
                             .add = true};
    gemm_run(graph->gemm, &weight);
}

static void graph_final_work(Graph *graph, int layer, int thread, int from, int to)
{
    (void)layer;
    const int hidden = graph->config.hidden;
    const float *w = graph->param[layout_norm(&graph->config)];
    for (int i = from; i < to; i++) {
        const int row = graph->active[i];
        const size_t at = (size_t)(graph->predicts[row] - 1) * (size_t)hidden;
        graph->kernels->rms_backward(graph->top + at, w, graph->rstd_final[row],
                                     graph->dfinal + (size_t)i * (size_t)hidden, hidden, false,
                                     graph->dx + at, graph_partial(graph, thread));
    }
}

/* From the weights of log-probs and entropies to dx = dL/d(output of the last layer). */
static void graph_logits_backward(Graph *graph, const float *dlogp, const float *dentropy)
{
    const size_t hidden = (size_t)graph->config.hidden;
    graph->active_count = 0;
    for (int i = 0; i < graph->rows; i++) {
        const float g = dlogp[graph->predicts[i]];
        const float h = dentropy != NULL ? dentropy[graph->predicts[i]] : 0.0f;
        if (g == 0.0f && h == 0.0f) {
            continue; /* prompt and padding: no logits need to be computed for it again */
        }
        const int to = graph->active_count++;
        graph->active[to] = i;
        graph->weight_g[to] = g;
        graph->weight_h[to] = h;
        if (to != i) {
            memcpy(graph->final + (size_t)to * hidden, graph->final + (size_t)i * hidden,
                   hidden * sizeof(float));
        }
    }
    for (int row = 0; row < graph->active_count; row += graph->chunk) {
        const int left = graph->active_count - row;
        for (int from = 0; from < graph->config.vocab; from += GRAPH_VOCAB) {
            const int more = graph->config.vocab - from;
            LogitJob job = {.graph = graph, .row = row, .from = from,
                            .rows = left < graph->chunk ? left : graph->chunk,
                            .columns = more < GRAPH_VOCAB ? more : GRAPH_VOCAB};
            graph_logits_block(graph, &job);
        }
    }
    memset(graph->dx, 0, (size_t)graph->batch.n_tokens * hidden * sizeof(float));
    graph_partial_zero(graph);
    graph_rows(graph, graph_final_work, 0, graph->active_count);
    graph_partial_add(graph, 0, graph->config.hidden, graph->grad[layout_norm(&graph->config)]);
}

/* ---- one layer ---------------------------------------------------------------------------- */

/* dx (+)= dy W for the weight [n][k]. */
static void graph_input(Graph *graph, const float *dy, int n, int ldy, const float *w, int k,
                        float *dx, bool add)
{
    const GemmArgs args = {.a = dy, .lda = (size_t)ldy, .b = w, .ldb = (size_t)k, .c = dx,
                           .ldc = (size_t)k, .m = graph->batch.n_tokens, .n = k, .k = n,
                           .add = add};
    gemm_run(graph->gemm, &args);
}

/* dW += dy^T x. */
static void graph_outer(Graph *graph, const float *dy, int n, int ldy, const float *x, int k,
                        float *dw)
{
    const GemmArgs args = {.a = dy, .lda = (size_t)ldy, .a_transposed = true, .b = x,
                           .ldb = (size_t)k, .c = dw, .ldc = (size_t)k, .m = n, .n = k,
                           .k = graph->batch.n_tokens, .add = true};
    gemm_run(graph->gemm, &args);
}

static void graph_swiglu_work(Graph *graph, int layer, int thread, int from, int to)
{
    (void)thread;
    const LayerActs *acts = &graph->acts[layer];
    const int ffn = graph->config.ffn;
    for (int t = from; t < to; t++) {
        const size_t at = (size_t)t * (size_t)ffn;
        graph->kernels->swiglu_backward(acts->gate + at, acts->up + at, graph->wide + at, ffn);
    }
    graph_apply_norm(graph, acts->mid, graph_weight(graph, layer, LT_POST_NORM), acts->rstd_post,
                     from, to);
}

static void graph_norm_work(Graph *graph, const float *x, const float *w, const float *rstd,
                            int thread, int from, int to)
{
    const int hidden = graph->config.hidden;
    for (int t = from; t < to; t++) {
        const size_t at = (size_t)t * (size_t)hidden;
        graph->kernels->rms_backward(x + at, w, rstd[t], graph->dnorms + at, hidden, true,
                                     graph->dx + at, graph_partial(graph, thread));
    }
}

static void graph_post_work(Graph *graph, int layer, int thread, int from, int to)
{
    const LayerActs *acts = &graph->acts[layer];
    graph_norm_work(graph, acts->mid, graph_weight(graph, layer, LT_POST_NORM), acts->rstd_post,
                    thread, from, to);
}

static void graph_in_work(Graph *graph, int layer, int thread, int from, int to)
{
    const LayerActs *acts = &graph->acts[layer];
    graph_norm_work(graph, acts->x, graph_weight(graph, layer, LT_IN_NORM), acts->rstd_in, thread,
                    from, to);
}

/* Back through rotation and q/k-norm, in place in dqkv; and the input's norm once more. */
static void graph_rotate_work(Graph *graph, int layer, int thread, int from, int to)
{
    const ModelConfig *config = &graph->config;
    const Kernels *kernels = graph->kernels;
    const LayerActs *acts = &graph->acts[layer];
    const int d = config->head_dim;
    const bool normed = config->arch == MODEL_QWEN3;
    for (int t = from; t < to; t++) {
        const size_t angle = (size_t)graph->position[t] * (size_t)(d / 2);
        float *line = graph->dqkv + (size_t)t * (size_t)graph->line;
        for (int head = 0; head < config->heads + config->kv_heads; head++) {
            float *dx = line + head * d;
            kernels->rope(dx, graph->cosine + angle, graph->sine + angle, -1.0f, d / 2);
            if (normed) {
                const bool query = head < config->heads;
                const float *raw = acts->raw + head * d +
                                   (size_t)t * (size_t)(graph->q_width + graph->kv_width);
                kernels->rms_backward(raw,
                                      graph_weight(graph, layer, query ? LT_Q_NORM : LT_K_NORM),
                                      kernels->rms(raw, d, config->rms_eps), dx, d, false, dx,
                                      graph_partial(graph, thread) + (query ? 0 : d));
            }
        }
    }
    graph_apply_norm(graph, acts->x, graph_weight(graph, layer, LT_IN_NORM), acts->rstd_in, from,
                     to);
}

static void graph_mlp_backward(Graph *graph, int layer)
{
    const ModelConfig *config = &graph->config;
    const LayerActs *acts = &graph->acts[layer];
    const int hidden = config->hidden;
    const int ffn = config->ffn;
    const int tokens = graph->batch.n_tokens;
    graph_input(graph, graph->dx, hidden, hidden, graph_weight(graph, layer, LT_DOWN), ffn,
                graph->wide, false);
    graph_rows(graph, graph_swiglu_work, layer, tokens);
    graph_outer(graph, graph->dx, hidden, hidden, graph->wide, ffn,
                graph_gradient(graph, layer, LT_DOWN));
    graph_outer(graph, acts->gate, ffn, ffn, graph->norms, hidden,
                graph_gradient(graph, layer, LT_GATE));
    graph_outer(graph, acts->up, ffn, ffn, graph->norms, hidden,
                graph_gradient(graph, layer, LT_UP));
    graph_input(graph, acts->gate, ffn, ffn, graph_weight(graph, layer, LT_GATE), hidden,
                graph->dnorms, false);
    graph_input(graph, acts->up, ffn, ffn, graph_weight(graph, layer, LT_UP), hidden,
                graph->dnorms, true);
    graph_partial_zero(graph);
    graph_rows(graph, graph_post_work, layer, tokens);
    graph_partial_add(graph, 0, hidden, graph_gradient(graph, layer, LT_POST_NORM));
}

static void graph_attention_backward(Graph *graph, int layer)
{
    const ModelConfig *config = &graph->config;
    const LayerActs *acts = &graph->acts[layer];
    const int hidden = config->hidden;
    const int q = graph->q_width;
    const int kv = graph->kv_width;
    const int line = graph->line;
    const int tokens = graph->batch.n_tokens;
    graph_input(graph, graph->dx, hidden, hidden, graph_weight(graph, layer, LT_O), q,
                graph->dattention, false);
    graph_outer(graph, graph->dx, hidden, hidden, acts->attention, q,
                graph_gradient(graph, layer, LT_O));
    graph_attention(graph, layer, true);
    graph_partial_zero(graph);
    graph_rows(graph, graph_rotate_work, layer, tokens);
    if (config->arch == MODEL_QWEN3) {
        graph_partial_add(graph, 0, config->head_dim, graph_gradient(graph, layer, LT_Q_NORM));
        graph_partial_add(graph, config->head_dim, config->head_dim,
                          graph_gradient(graph, layer, LT_K_NORM));
    }
    const struct {
        LayerTensor which;
        int from, width;
    } parts[] = {{LT_Q, 0, q}, {LT_K, q, kv}, {LT_V, q + kv, kv}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const float *dy = graph->dqkv + parts[i].from;
        graph_outer(graph, dy, parts[i].width, line, graph->norms, hidden,
                    graph_gradient(graph, layer, parts[i].which));
        graph_input(graph, dy, parts[i].width, line, graph_weight(graph, layer, parts[i].which),
                    hidden, graph->dnorms, i > 0);
    }
    graph_partial_zero(graph);
    graph_rows(graph, graph_in_work, layer, tokens);
    graph_partial_add(graph, 0, hidden, graph_gradient(graph, layer, LT_IN_NORM));
}

/* Columns are split, so that two tokens of one id never meet on two threads. */
static void graph_embed_work(Graph *graph, int layer, int thread, int from, int to)
{
    (void)layer;
    (void)thread;
    const size_t hidden = (size_t)graph->config.hidden;
    float *gradient = graph->grad[LAYOUT_EMBEDDING];
    for (int t = 0; t < graph->batch.n_tokens; t++) {
        graph->kernels->axpy(gradient + (size_t)graph->tokens[t] * hidden + from, 1.0f,
                             graph->dx + (size_t)t * hidden + from, to - from);
    }
}

Err graph_backward(Graph *graph, const float *dlogp, const float *dentropy, Fault *fault)
{
    if (!graph->kept) {
        return fault_set(fault, ERR_STATE, NULL,
                         "a backward pass needs a forward pass that kept its activations");
    }
    graph_logits_backward(graph, dlogp, dentropy);
    for (int layer = graph->config.layers - 1; layer >= 0; layer--) {
        if (graph->recompute && layer + 1 < graph->config.layers) {
            graph_layer(graph, layer); /* the last one's are still there from the forward pass */
        }
        graph_mlp_backward(graph, layer);
        graph_attention_backward(graph, layer);
    }
    graph_rows(graph, graph_embed_work, 0, graph->config.hidden);
    graph->kept = false; /* the activations are used up */
    return ERR_OK;
}
