#include "core/model/graph_private.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

typedef struct RowsJob {
    Graph *graph;
    GraphRows *rows;
    int layer, count;
} RowsJob;

static void graph_rows_work(void *context, int thread, int threads)
{
    const RowsJob *job = context;
    const int from = (int)((int64_t)job->count * thread / threads);
    const int to = (int)((int64_t)job->count * (thread + 1) / threads);
    if (to > from) {
        job->rows(job->graph, job->layer, thread, from, to);
    }
}

void graph_rows(Graph *graph, GraphRows *rows, int layer, int count)
{
    RowsJob job = {.graph = graph, .rows = rows, .layer = layer, .count = count};
    pool_run(graph->pool, graph_rows_work, &job);
}

/* ---- attention ---------------------------------------------------------------------------- */

typedef struct AttentionJob {
    Graph *graph;
    const LayerActs *acts;
    bool backward;
    atomic_int next; /* jobs are unequal: whoever is free takes the next one */
} AttentionJob;

static void graph_attention_one(const AttentionJob *job, int sequence, int kv, int thread)
{
    const Graph *graph = job->graph;
    const LayerActs *acts = job->acts;
    const int d = graph->config.head_dim;
    const int group = graph->config.heads / graph->config.kv_heads;
    const size_t first = (size_t)graph->batch.starts[sequence];
    const size_t line = (size_t)graph->line;
    const size_t head = (size_t)(kv * group * d);
    const size_t k_at = (size_t)(graph->q_width + kv * d);
    const size_t v_at = k_at + (size_t)graph->kv_width;
    const AttentionArgs args = {
        .q = acts->qkv + first * line + head,
        .k = acts->qkv + first * line + k_at,
        .v = acts->qkv + first * line + v_at,
        .step = line,
        .out = acts->attention + first * (size_t)graph->q_width + head,
        .out_step = (size_t)graph->q_width,
        .lse = acts->lse + first * (size_t)graph->config.heads + kv * group,
        .lse_step = (size_t)graph->config.heads,
        .dout = graph->dattention + first * (size_t)graph->q_width + head,
        .dq = graph->dqkv + first * line + head,
        .dk = graph->dqkv + first * line + k_at,
        .dv = graph->dqkv + first * line + v_at,
        .count = graph->batch.starts[sequence + 1] - graph->batch.starts[sequence],
    };
    if (args.count == 0) {
        return;
    }
    if (job->backward) {
        attention_backward(graph->attention[thread], &args);
    } else {
        attention_forward(graph->attention[thread], &args);
    }
}

static void graph_attention_work(void *context, int thread, int threads)
{
    (void)threads;
    AttentionJob *job = context;
    const int kv_heads = job->graph->config.kv_heads;
    const int jobs = job->graph->batch.n_seqs * kv_heads;
    for (int i = atomic_fetch_add(&job->next, 1); i < jobs; i = atomic_fetch_add(&job->next, 1)) {
        graph_attention_one(job, i / kv_heads, i % kv_heads, thread);
    }
}

void graph_attention(Graph *graph, int layer, bool backward)
{
    const int index = graph->kept ? layer : 0;
    AttentionJob job = {.graph = graph, .acts = &graph->acts[index], .backward = backward};
    pool_run(graph->pool, graph_attention_work, &job);
}

/* ---- one layer ---------------------------------------------------------------------------- */

static LayerActs *graph_acts(Graph *graph, int layer)
{
    return &graph->acts[graph->kept ? layer : 0];
}

void graph_apply_norm(const Graph *graph, const float *x, const float *w, const float *rstd,
                      int from, int to)
{
    const int hidden = graph->config.hidden;
    for (int t = from; t < to; t++) {
        const size_t at = (size_t)t * (size_t)hidden;
        graph->kernels->rms_apply(x + at, w, rstd[t], hidden, graph->norms + at);
    }
}

static void graph_norm(const Graph *graph, const float *x, const float *w, float *rstd, int from,
                       int to)
{
    const int hidden = graph->config.hidden;
    for (int t = from; t < to; t++) {
        rstd[t] = graph->kernels->rms(x + (size_t)t * (size_t)hidden, hidden,
                                      graph->config.rms_eps);
    }
    graph_apply_norm(graph, x, w, rstd, from, to);
}

static void graph_norm_in(Graph *graph, int layer, int thread, int from, int to)
{
    (void)thread;
    LayerActs *acts = graph_acts(graph, layer);
    graph_norm(graph, acts->x, graph_weight(graph, layer, LT_IN_NORM), acts->rstd_in, from, to);
}

static void graph_norm_post(Graph *graph, int layer, int thread, int from, int to)
{
    (void)thread;
    LayerActs *acts = graph_acts(graph, layer);
    graph_norm(graph, acts->mid, graph_weight(graph, layer, LT_POST_NORM), acts->rstd_post, from,
               to);
}

/* q/k-norm (Qwen3) and rotation of all heads. */
static void graph_rotate(Graph *graph, int layer, int thread, int from, int to)
{
    (void)thread;
    const ModelConfig *config = &graph->config;
    const Kernels *kernels = graph->kernels;
    const LayerActs *acts = graph_acts(graph, layer);
    const int d = config->head_dim;
    const bool normed = config->arch == MODEL_QWEN3;
    for (int t = from; t < to; t++) {
        const size_t angle = (size_t)graph->position[t] * (size_t)(d / 2);
        float *line = acts->qkv + (size_t)t * (size_t)graph->line;
        for (int head = 0; head < config->heads + config->kv_heads; head++) {
            float *x = line + head * d;
            if (normed) {
                const float *raw = acts->raw + head * d +
                                   (size_t)t * (size_t)(graph->q_width + graph->kv_width);
                const float *w =
                    graph_weight(graph, layer, head < config->heads ? LT_Q_NORM : LT_K_NORM);
                kernels->rms_apply(raw, w, kernels->rms(raw, d, config->rms_eps), d, x);
            }
            kernels->rope(x, graph->cosine + angle, graph->sine + angle, 1.0f, d / 2);
        }
    }
}

static void graph_activate(Graph *graph, int layer, int thread, int from, int to)
{
    (void)thread;
    const LayerActs *acts = graph_acts(graph, layer);
    const int ffn = graph->config.ffn;
    for (int t = from; t < to; t++) {
        const size_t at = (size_t)t * (size_t)ffn;
        graph->kernels->swiglu(acts->gate + at, acts->up + at, ffn, graph->wide + at);
    }
}

/* y (+)= x W^T for the weight [n][k] of a layer. */
static void graph_linear(Graph *graph, const float *x, int k, const float *w, int n, float *y,
                         int ldy, bool add)
{
    const GemmArgs args = {.a = x, .lda = (size_t)k, .b = w, .ldb = (size_t)k,
                           .b_transposed = true, .c = y, .ldc = (size_t)ldy,
                           .m = graph->batch.n_tokens, .n = n, .k = k, .add = add};
    gemm_run(graph->gemm, &args);
}

void graph_layer(Graph *graph, int layer)
{
    const ModelConfig *config = &graph->config;
    const int tokens = graph->batch.n_tokens;
    const int hidden = config->hidden;
    const int q = graph->q_width;
    const int kv = graph->kv_width;
    LayerActs *acts = graph_acts(graph, layer);
    const size_t bytes = (size_t)tokens * (size_t)hidden * sizeof(float);
    graph_rows(graph, graph_norm_in, layer, tokens);
    const bool normed = config->arch == MODEL_QWEN3;
    float *qk = normed ? acts->raw : acts->qkv;
    const int qk_line = normed ? q + kv : graph->line;
    graph_linear(graph, graph->norms, hidden, graph_weight(graph, layer, LT_Q), q, qk, qk_line,
                 false);
    graph_linear(graph, graph->norms, hidden, graph_weight(graph, layer, LT_K), kv, qk + q, qk_line,
                 false);
    graph_linear(graph, graph->norms, hidden, graph_weight(graph, layer, LT_V), kv,
                 acts->qkv + q + kv, graph->line, false);
    graph_rows(graph, graph_rotate, layer, tokens);
    graph_attention(graph, layer, false);
    memcpy(acts->mid, acts->x, bytes);
    graph_linear(graph, acts->attention, q, graph_weight(graph, layer, LT_O), hidden, acts->mid,
                 hidden, true);
    graph_rows(graph, graph_norm_post, layer, tokens);
    graph_linear(graph, graph->norms, hidden, graph_weight(graph, layer, LT_GATE), config->ffn,
                 acts->gate, config->ffn, false);
    graph_linear(graph, graph->norms, hidden, graph_weight(graph, layer, LT_UP), config->ffn,
                 acts->up, config->ffn, false);
    graph_rows(graph, graph_activate, layer, tokens);
    float *next = layer + 1 < config->layers ? graph_acts(graph, layer + 1)->x : graph->top;
    memcpy(next, acts->mid, bytes);
    graph_linear(graph, graph->wide, config->ffn, graph_weight(graph, layer, LT_DOWN), hidden, next,
                 hidden, true);
}

/* ---- logits ------------------------------------------------------------------------------- */

static void graph_norm_final(Graph *graph, int layer, int thread, int from, int to)
{
    (void)layer;
    (void)thread;
    const int hidden = graph->config.hidden;
    const float *w = graph->param[layout_norm(&graph->config)];
    for (int i = from; i < to; i++) {
        const float *x = graph->top + (size_t)(graph->predicts[i] - 1) * (size_t)hidden;
        graph->rstd_final[i] = graph->kernels->rms(x, hidden, graph->config.rms_eps);
        graph->kernels->rms_apply(x, w, graph->rstd_final[i], hidden,
                                  graph->final + (size_t)i * (size_t)hidden);
    }
}

typedef struct LogitJob {
    Graph *graph;
    int row, rows, from, columns; /* rows of `final`, columns of the vocabulary */
} LogitJob;

static void graph_merge(LogitSums *into, LogitSums part)
{
    const LogitSums *high = part.max > into->max ? &part : into;
    const LogitSums *low = part.max > into->max ? into : &part;
    const float shift = low->max - high->max; /* -infinity for the empty sum */
    LogitSums out = *high;
    if (low->sum > 0.0f) {
        const float factor = expf(shift);
        out.sum += factor * low->sum;
        out.weighted += factor * (low->weighted + shift * low->sum);
    }
    *into = out;
}

static void graph_logits_work(void *context, int thread, int threads)
{
    const LogitJob *job = context;
    Graph *graph = job->graph;
    const float inverse = 1.0f / graph->temperature;
    for (int i = job->rows * thread / threads; i < job->rows * (thread + 1) / threads; i++) {
        const float *z = graph->logits + (size_t)i * (size_t)job->columns;
        const int row = job->row + i;
        graph_merge(&graph->sums[row], graph->kernels->logit_sums(z, inverse, job->columns));
        const int target = graph->tokens[graph->predicts[row]] - job->from;
        if (target >= 0 && target < job->columns) {
            graph->target[row] = z[target] * inverse;
        }
    }
}

static void graph_logits(Graph *graph)
{
    const ModelConfig *config = &graph->config;
    const float *head = graph->param[layout_head(config)];
    const size_t hidden = (size_t)config->hidden;
    graph_rows(graph, graph_norm_final, 0, graph->rows);
    for (int i = 0; i < graph->rows; i++) {
        graph->sums[i] = (LogitSums){.max = -INFINITY};
    }
    for (int row = 0; row < graph->rows; row += graph->chunk) {
        const int left = graph->rows - row;
        for (int from = 0; from < config->vocab; from += GRAPH_VOCAB) {
            const int more = config->vocab - from;
            LogitJob job = {.graph = graph, .row = row, .from = from,
                            .rows = left < graph->chunk ? left : graph->chunk,
                            .columns = more < GRAPH_VOCAB ? more : GRAPH_VOCAB};
            const GemmArgs args = {.a = graph->final + (size_t)row * hidden, .lda = hidden,
                                   .b = head + (size_t)from * hidden, .ldb = hidden,
                                   .b_transposed = true, .c = graph->logits,
                                   .ldc = (size_t)job.columns, .m = job.rows, .n = job.columns,
                                   .k = config->hidden};
            gemm_run(graph->gemm, &args);
            pool_run(graph->pool, graph_logits_work, &job);
        }
    }
    for (int i = 0; i < graph->rows; i++) {
        const LogitSums *sums = &graph->sums[i];
        graph->lse[i] = sums->max + logf(sums->sum);
        graph->entropy[i] = logf(sums->sum) - sums->weighted / sums->sum;
    }
}

/* ---- the pass ----------------------------------------------------------------------------- */

static Err graph_check(const Graph *graph, const PackedBatch *batch, float temperature,
                       int *longest, Fault *fault)
{
    if (batch->n_tokens < 1 || batch->n_tokens > graph->settings.max_tokens) {
        return fault_set(fault, ERR_LIMIT, "Use smaller micro-batches",
                         "a batch of %d tokens is not in 1 to %d", batch->n_tokens,
                         graph->settings.max_tokens);
    }
    if (!(temperature > 0.0f) || !isfinite(temperature)) {
        return fault_set(fault, ERR_ARG, "Give a positive rollout temperature",
                         "log-probs at temperature %g do not exist", (double)temperature);
    }
    bool good = batch->n_seqs >= 1 && batch->n_seqs <= batch->n_tokens && batch->starts[0] == 0 &&
                batch->starts[batch->n_seqs] == batch->n_tokens;
    *longest = 0;
    for (int i = 0; good && i < batch->n_seqs; i++) {
        const int length = batch->starts[i + 1] - batch->starts[i];
        good = length >= 1;
        *longest = length > *longest ? length : *longest;
    }
    if (!good) {
        return fault_set(fault, ERR_ARG, NULL, "the starts of a packed batch are out of order");
    }
    if (*longest > graph->config.max_positions) {
        return fault_set(fault, ERR_LIMIT, "Use shorter prompts or responses",
                         "a sequence of %d tokens is longer than the model's %d positions",
                         *longest, graph->config.max_positions);
    }
    for (int t = 0; t < batch->n_tokens; t++) {
        if (batch->tokens[t] < 0 || batch->tokens[t] >= graph->config.vocab) {
            return fault_set(fault, ERR_ARG, "Use the tokenizer of this model",
                             "token id %d is outside the vocabulary of %d", (int)batch->tokens[t],
                             graph->config.vocab);
        }
    }
    return ERR_OK;
}

static void graph_begin(Graph *graph, const PackedBatch *batch)
{
    memcpy(graph->tokens, batch->tokens, (size_t)batch->n_tokens * sizeof(int32_t));
    memcpy(graph->starts, batch->starts, (size_t)(batch->n_seqs + 1) * sizeof(int32_t));
    graph->batch = *batch;
    graph->batch.tokens = graph->tokens;
    graph->batch.starts = graph->starts;
    graph->rows = 0;
    for (int i = 0; i < batch->n_seqs; i++) {
        for (int t = batch->starts[i]; t < batch->starts[i + 1]; t++) {
            graph->position[t] = t - batch->starts[i];
            if (graph->position[t] > 0) {
                graph->predicts[graph->rows++] = t;
            }
        }
    }
}

static void graph_embed(Graph *graph, int layer, int thread, int from, int to)
{
    (void)thread;
    const size_t hidden = (size_t)graph->config.hidden;
    float *x = graph_acts(graph, layer)->x;
    for (int t = from; t < to; t++) {
        memcpy(x + (size_t)t * hidden,
               graph->param[LAYOUT_EMBEDDING] + (size_t)graph->tokens[t] * hidden,
               hidden * sizeof(float));
    }
}

Err graph_forward(Graph *graph, const PackedBatch *batch, float temperature, bool keep,
                  float *logp, float *entropy, Fault *fault)
{
    int longest = 0;
    graph->kept = false;
    Err err = graph_check(graph, batch, temperature, &longest, fault);
    if (err == ERR_OK) {
        err = graph_reserve(graph, batch->n_tokens, longest, keep, fault);
    }
    if (err != ERR_OK) {
        return err;
    }
    graph->kept = keep;
    graph->temperature = temperature;
    graph_begin(graph, batch);
    graph_rows(graph, graph_embed, 0, batch->n_tokens);
    for (int i = 0; i < graph->config.layers; i++) {
        graph_layer(graph, i);
    }
    graph_logits(graph);
    memset(logp, 0, (size_t)batch->n_tokens * sizeof(float));
    if (entropy != NULL) {
        memset(entropy, 0, (size_t)batch->n_tokens * sizeof(float));
    }
    for (int i = 0; i < graph->rows; i++) {
        logp[graph->predicts[i]] = graph->target[i] - graph->lse[i];
        if (entropy != NULL) {
            entropy[graph->predicts[i]] = graph->entropy[i];
        }
    }
    return ERR_OK;
}
