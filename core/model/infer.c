/* One step is one function that every thread runs, with barriers between the stages of a layer;
 * a stage splits its output columns (matrices), its rows, or its heads. No number depends on the
 * split or on what else is in the batch: every sum runs in one order (kernels.h). */
#include "core/model/infer.h"

#include "core/base/mem.h"
#include "core/model/gemm.h"
#include "core/model/layout.h"
#include "core/model/weights_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    INFER_ROWS = 192,         /* rows of activations between two walks over the weights */
    INFER_REDUNDANT = 16384,  /* elements up to which each thread computes norms for itself */
    INFER_QUERIES = 16        /* queries of one attention job */
};

typedef struct InferRow { /* one token of a step */
    int32_t token;
    int position;
    const int32_t *blocks;
} InferRow;

typedef struct InferThread {
    float *norms;          /* [INFER_REDUNDANT] */
    float *scores;         /* [group][context] */
    const float **k, **v;  /* granules of one context */
    float *out;            /* [group][d16] */
    float *sums;           /* [group] */
} InferThread;

struct Infer {
    Pool *pool;
    const Kernels *kernels;
    Weights *weights;
    InferConfig config;
    int threads, head_dim, d16, half, group, q_width, kv_width;
    int context;       /* positions that a sequence may have */
    size_t k_block;    /* floats of one block in the K cache of one layer: [kv][16s][d][16] */
    size_t v_block;    /* likewise V: [kv][tokens][d16] */
    float *k_cache, *v_cache; /* [layer][block] */
    void *k_memory, *v_memory; /* what they lie in */
    float *cosine, *sine;
    float *x, *norms, *qkv, *attention, *gate, *up;
    float *logits;
    int logits_rows;
    InferThread *per_thread;
    /* the step in progress */
    InferRow *rows;
    int *wanted; /* rows whose logits are asked for */
    int row_count, wanted_count;
};

/* ---- memory ------------------------------------------------------------------------------- */

static Err infer_check(const InferConfig *config, Fault *fault)
{
    if (config->threads < 1 || config->threads > POOL_THREADS_MAX || config->block_tokens < 1 ||
        config->block_tokens % KERNEL_LANES != 0 || config->block_tokens > 4096 ||
        config->blocks < 1 || config->max_batch_tokens < 1) {
        return fault_set(fault, ERR_ARG,
                         "Give 1 to 256 threads, KV blocks of a multiple of 16 tokens, and at "
                         "least one block and one token a step",
                         "%d threads, %d blocks of %d tokens, %d tokens a step cannot be served",
                         config->threads, config->blocks, config->block_tokens,
                         config->max_batch_tokens);
    }
    return ERR_OK;
}

static bool infer_floats(float **out, size_t rows, size_t columns)
{
    size_t count;
    if (!size_mul(rows, columns, &count)) {
        return false;
    }
    *out = gemm_floats(count);
    return *out != NULL;
}

/* Zero, because whole granules enter the products: what lies behind a sequence's end is multiplied
 * by nothing, but must not be a NaN. From calloc, so that blocks never used take no memory. */
static bool infer_zeroed(size_t count, void **memory, float **out)
{
    size_t bytes;
    if (!size_mul(count, sizeof(float), &bytes) || !size_add(bytes, 64, &bytes)) {
        return false;
    }
    *memory = calloc(bytes, 1);
    *out = (float *)(((uintptr_t)*memory + 63) / 64 * 64);
    return *memory != NULL;
}

static bool infer_caches(Infer *infer, const ModelConfig *model)
{
    const size_t heads = (size_t)model->kv_heads;
    const size_t tokens = (size_t)infer->config.block_tokens;
    infer->k_block = heads * tokens * (size_t)model->head_dim;
    infer->v_block = heads * tokens * (size_t)infer->d16;
    size_t all;
    size_t k_all;
    size_t v_all;
    return size_mul((size_t)infer->config.blocks, (size_t)model->layers, &all) &&
           size_mul(all, infer->k_block, &k_all) && size_mul(all, infer->v_block, &v_all) &&
           infer_zeroed(k_all, &infer->k_memory, &infer->k_cache) &&
           infer_zeroed(v_all, &infer->v_memory, &infer->v_cache);
}

static bool infer_allocate(Infer *infer, const ModelConfig *model)
{
    const size_t n = (size_t)infer->config.max_batch_tokens;
    const size_t context = ((size_t)infer->context + 15) / 16 * 16;
    const size_t group = (size_t)infer->group;
    bool ok = infer_caches(infer, model) &&
              infer_floats(&infer->cosine, context, (size_t)infer->half) &&
              infer_floats(&infer->sine, context, (size_t)infer->half) &&
              infer_floats(&infer->x, n, (size_t)model->hidden) &&
              infer_floats(&infer->norms, n, (size_t)model->hidden) &&
              infer_floats(&infer->qkv, n, (size_t)(infer->q_width + 2 * infer->kv_width)) &&
              infer_floats(&infer->attention, n, (size_t)infer->q_width) &&
              infer_floats(&infer->gate, n, (size_t)model->ffn) &&
              infer_floats(&infer->up, n, (size_t)model->ffn);
    infer->rows = calloc(n, sizeof(*infer->rows));
    infer->wanted = calloc(n, sizeof(*infer->wanted));
    ok = ok && infer->rows != NULL && infer->wanted != NULL;
    for (int i = 0; i < infer->threads && ok; i++) {
        InferThread *thread = &infer->per_thread[i];
        thread->k = calloc(context / 16, sizeof(*thread->k));
        thread->v = calloc(context / 16, sizeof(*thread->v));
        ok = thread->k != NULL && thread->v != NULL &&
             infer_floats(&thread->norms, INFER_REDUNDANT, 1) &&
             infer_floats(&thread->scores, group, context) &&
             infer_floats(&thread->out, group, (size_t)infer->d16) &&
             infer_floats(&thread->sums, group, 1);
    }
    return ok;
}

Err infer_new(Weights *weights, const InferConfig *config, Infer **out, Fault *fault)
{
    *out = NULL;
    Err err = infer_check(config, fault);
    if (err != ERR_OK) {
        return err;
    }
    const ModelConfig *model = weights_config(weights);
    Infer *infer = xcalloc(1, sizeof(*infer));
    infer->config = *config;
    infer->threads = config->threads;
    infer->kernels = kernels_best();
    infer->weights = weights_ref(weights);
    infer->head_dim = model->head_dim;
    infer->half = model->head_dim / 2;
    infer->d16 = (model->head_dim + 15) / 16 * 16;
    infer->group = model->heads / model->kv_heads;
    infer->q_width = model->heads * model->head_dim;
    infer->kv_width = model->kv_heads * model->head_dim;
    const int64_t capacity = (int64_t)config->blocks * config->block_tokens;
    infer->context = capacity < model->max_positions ? (int)capacity : model->max_positions;
    infer->per_thread = xcalloc((size_t)config->threads, sizeof(*infer->per_thread));
    err = pool_new(config->threads, &infer->pool, fault);
    if (err == ERR_OK && !infer_allocate(infer, model)) {
        err = fault_set(fault, ERR_MEMORY, "Give fewer KV blocks or a smaller step",
                        "no memory for %d KV blocks of %d tokens and steps of %d tokens",
                        config->blocks, config->block_tokens, config->max_batch_tokens);
    }
    if (err != ERR_OK) {
        infer_free(infer);
        return err;
    }
    layout_rope(model, infer->context, infer->cosine, infer->sine);
    *out = infer;
    return ERR_OK;
}

void infer_free(Infer *infer)
{
    if (infer == NULL) {
        return;
    }
    pool_free(infer->pool);
    for (int i = 0; i < infer->threads; i++) {
        InferThread *thread = &infer->per_thread[i];
        free(thread->norms);
        free(thread->scores);
        free(thread->out);
        free(thread->sums);
        free((void *)thread->k);
        free((void *)thread->v);
    }
    free(infer->per_thread);
    free(infer->k_memory);
    free(infer->v_memory);
    float *const all[] = {infer->cosine, infer->sine,      infer->x,    infer->norms, infer->qkv,
                          infer->logits, infer->attention, infer->gate, infer->up};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]);
    }
    free(infer->rows);
    free(infer->wanted);
    weights_unref(infer->weights);
    free(infer);
}

Err infer_set_weights(Infer *infer, Weights *weights, Fault *fault)
{
    const ModelConfig *old = weights_config(infer->weights);
    const ModelConfig *new = weights_config(weights);
    if (old->arch != new->arch || old->layers != new->layers || old->hidden != new->hidden ||
        old->heads != new->heads || old->kv_heads != new->kv_heads ||
        old->head_dim != new->head_dim || old->ffn != new->ffn || old->vocab != new->vocab ||
        old->rope_theta != new->rope_theta || old->max_positions != new->max_positions) {
        return fault_set(fault, ERR_ARG, "Publish a checkpoint of the model that is served",
                         "the new weights are of another model than the engine's");
    }
    Weights *before = infer->weights;
    infer->weights = weights_ref(weights);
    weights_unref(before);
    return ERR_OK;
}

/* ---- stages ------------------------------------------------------------------------------- */

/* This thread's share of y (+)= W x: a range of whole panels. Returns its columns. */
static void infer_matrix(const Infer *infer, const PackedMatrix *matrix, const float *x, int rows,
                         int thread, bool add, float *y, size_t y_step, int *from, int *to)
{
    const int panels = gemm_panels(matrix->n);
    const int first = panels * thread / infer->threads;
    const int behind = panels * (thread + 1) / infer->threads;
    *from = first * KERNEL_PANEL;
    *to = behind * KERNEL_PANEL < matrix->n ? behind * KERNEL_PANEL : matrix->n;
    if (*to <= *from) {
        return;
    }
    const size_t panel = (size_t)matrix->k * KERNEL_PANEL;
    const size_t size = matrix->bf16 ? sizeof(uint16_t) : sizeof(float);
    for (int row = 0; row < rows; row += INFER_ROWS) {
        const Tile tile = {
            .a = x + (size_t)row * (size_t)matrix->k,
            .a_step = (size_t)matrix->k,
            .b = (const char *)matrix->data + (size_t)first * panel * size,
            .b_panel = panel,
            .c = y + (size_t)row * y_step + *from,
            .c_step = y_step,
            .rows = rows - row < INFER_ROWS ? rows - row : INFER_ROWS,
            .cols = *to - *from,
            .k = matrix->k,
            .add = add,
        };
        if (matrix->bf16) {
            infer->kernels->tile_bf16(&tile);
        } else {
            infer->kernels->tile(&tile);
        }
    }
}

static void infer_norm_rows(const Infer *infer, const float *w, int from, int to, float *out)
{
    const int hidden = infer->weights->config.hidden;
    for (int i = from; i < to; i++) {
        const float *x = infer->x + (size_t)i * (size_t)hidden;
        const float rstd = infer->kernels->rms(x, hidden, infer->weights->config.rms_eps);
        infer->kernels->rms_apply(x, w, rstd, hidden, out + (size_t)i * (size_t)hidden);
    }
}

/* Norms of all rows. A small step is computed by each thread for itself, which is cheaper than
 * one more barrier. */
static const float *infer_norm(const Infer *infer, const float *w, int thread)
{
    const int n = infer->row_count;
    if (n * infer->weights->config.hidden <= INFER_REDUNDANT && infer->threads > 1) {
        infer_norm_rows(infer, w, 0, n, infer->per_thread[thread].norms);
        return infer->per_thread[thread].norms;
    }
    infer_norm_rows(infer, w, n * thread / infer->threads, n * (thread + 1) / infer->threads,
                    infer->norms);
    pool_barrier(infer->pool);
    return infer->norms;
}

/* Norm (Qwen3), rotation, and a factor. */
static void infer_head(const Infer *infer, float *x, const float *norm, float factor, int position)
{
    if (norm != NULL) {
        const float rstd =
            infer->kernels->rms(x, infer->head_dim, infer->weights->config.rms_eps);
        infer->kernels->rms_apply(x, norm, rstd * factor, infer->head_dim, x);
    } else if (factor != 1.0f) {
        infer->kernels->scale(x, factor, infer->head_dim);
    }
    const size_t at = (size_t)position * (size_t)infer->half;
    infer->kernels->rope(x, infer->cosine + at, infer->sine + at, 1.0f, infer->half);
}

/* Norm and rotation of the queries and the key of one kv head at one row; K and V to the cache. */
static void infer_prepare(const Infer *infer, int layer, int row, int kv)
{
    const LayerWeights *weights = &infer->weights->layers[layer];
    const InferRow *at = &infer->rows[row];
    const int d = infer->head_dim;
    const int tokens = infer->config.block_tokens;
    float *line = infer->qkv + (size_t)row * (size_t)(infer->q_width + 2 * infer->kv_width);
    for (int i = 0; i < infer->group; i++) {
        float *q = line + (kv * infer->group + i) * d;
        infer_head(infer, q, weights->q_norm, 1.0f / __builtin_sqrtf((float)d), at->position);
    }
    float *key = line + infer->q_width + kv * d;
    infer_head(infer, key, weights->k_norm, 1.0f, at->position);
    const size_t block = (size_t)layer * (size_t)infer->config.blocks +
                         (size_t)at->blocks[at->position / tokens];
    const int slot = at->position % tokens;
    const size_t head = (size_t)kv * (size_t)tokens;
    float *k_to = infer->k_cache + block * infer->k_block +
                  (head + (size_t)(slot / 16 * 16)) * (size_t)d + slot % 16;
    for (int i = 0; i < d; i++) {
        k_to[i * 16] = key[i];
    }
    memcpy(infer->v_cache + block * infer->v_block + (head + (size_t)slot) * (size_t)infer->d16,
           line + infer->q_width + infer->kv_width + kv * d, (size_t)d * sizeof(float));
}

/* Heads [from, to) of one group against the whole prefix of one row. */
static void infer_attend(const Infer *infer, int row, int kv, int from, int to, InferThread *own)
{
    const Kernels *kernels = infer->kernels;
    const int d = infer->head_dim;
    const int heads = to - from;
    const int context = infer->rows[row].position + 1;
    const int granules = (context + 15) / 16;
    const size_t step = (size_t)granules * 16;
    const float *q = infer->qkv + (size_t)row * (size_t)(infer->q_width + 2 * infer->kv_width) +
                     (kv * infer->group + from) * d;
    kernels->attn_scores(q, (size_t)d, heads, d, own->k, granules, own->scores, step);
    for (int i = 0; i < heads; i++) {
        float max;
        own->sums[i] = kernels->softmax(own->scores + (size_t)i * step, context, &max);
    }
    kernels->attn_values(own->scores, step, heads, context, own->v, infer->d16, own->out,
                         (size_t)infer->d16);
    float *out = infer->attention + (size_t)row * (size_t)infer->q_width +
                 (kv * infer->group + from) * d;
    for (int i = 0; i < heads; i++) {
        memcpy(out + i * d, own->out + i * infer->d16, (size_t)d * sizeof(float));
        kernels->scale(out + i * d, 1.0f / own->sums[i], d);
    }
}

/* Rows [first, behind) of one sequence, one kv head. */
static void infer_attend_rows(const Infer *infer, int layer, int first, int behind, int kv,
                              int from, int to, InferThread *own)
{
    const int tokens = infer->config.block_tokens;
    const int32_t *blocks = infer->rows[first].blocks;
    const int granules = infer->rows[behind - 1].position / 16 + 1;
    for (int i = 0; i < granules; i++) {
        const size_t block = (size_t)layer * (size_t)infer->config.blocks +
                             (size_t)blocks[i * 16 / tokens];
        const size_t at = (size_t)kv * (size_t)tokens + (size_t)(i * 16 % tokens);
        own->k[i] = infer->k_cache + block * infer->k_block + at * (size_t)infer->head_dim;
        own->v[i] = infer->v_cache + block * infer->v_block + at * (size_t)infer->d16;
    }
    for (int row = first; row < behind; row++) {
        infer_attend(infer, row, kv, from, to, own);
    }
}

/* Jobs are (up to 16 queries of one sequence) x (one kv head), dealt out in turn; where that is
 * too few jobs for the threads, single heads. */
static void infer_attention(const Infer *infer, int layer, int thread)
{
    const int kv_heads = infer->weights->config.kv_heads;
    InferThread *own = &infer->per_thread[thread];
    const bool fine = infer->row_count * kv_heads < 4 * infer->threads;
    const int part = fine ? 1 : infer->group;
    int job = 0;
    for (int first = 0; first < infer->row_count;) {
        int behind = first + 1;
        while (behind < infer->row_count && behind - first < INFER_QUERIES &&
               infer->rows[behind].blocks == infer->rows[first].blocks &&
               infer->rows[behind].position == infer->rows[behind - 1].position + 1) {
            behind++;
        }
        for (int kv = 0; kv < kv_heads; kv++) {
            for (int from = 0; from < infer->group; from += part, job++) {
                if (job % infer->threads == thread) {
                    infer_attend_rows(infer, layer, first, behind, kv, from, from + part, own);
                }
            }
        }
        first = behind;
    }
}

static void infer_layer(const Infer *infer, int layer, int thread)
{
    const ModelConfig *model = &infer->weights->config;
    const LayerWeights *weights = &infer->weights->layers[layer];
    const int n = infer->row_count;
    const size_t hidden = (size_t)model->hidden;
    const size_t ffn = (size_t)model->ffn;
    int from;
    int to;
    const float *x = infer_norm(infer, weights->in_norm, thread);
    infer_matrix(infer, &weights->qkv, x, n, thread, false, infer->qkv,
                 (size_t)(infer->q_width + 2 * infer->kv_width), &from, &to);
    pool_barrier(infer->pool);
    const int64_t units = (int64_t)n * model->kv_heads;
    for (int64_t i = units * thread / infer->threads; i < units * (thread + 1) / infer->threads;
         i++) {
        infer_prepare(infer, layer, (int)(i / model->kv_heads), (int)(i % model->kv_heads));
    }
    pool_barrier(infer->pool);
    infer_attention(infer, layer, thread);
    pool_barrier(infer->pool);
    infer_matrix(infer, &weights->o, infer->attention, n, thread, true, infer->x, hidden, &from,
                 &to);
    pool_barrier(infer->pool);
    x = infer_norm(infer, weights->post_norm, thread);
    infer_matrix(infer, &weights->gate, x, n, thread, false, infer->gate, ffn, &from, &to);
    infer_matrix(infer, &weights->up, x, n, thread, false, infer->up, ffn, &from, &to);
    for (int i = 0; i < n && to > from; i++) {
        float *gate = infer->gate + (size_t)i * ffn + from;
        infer->kernels->swiglu(gate, infer->up + (size_t)i * ffn + from, to - from, gate);
    }
    pool_barrier(infer->pool);
    infer_matrix(infer, &weights->down, infer->gate, n, thread, true, infer->x, hidden, &from, &to);
    pool_barrier(infer->pool);
}

static void infer_work(void *context, int thread, int threads)
{
    Infer *infer = context;
    const Weights *weights = infer->weights;
    const size_t hidden = (size_t)weights->config.hidden;
    const int n = infer->row_count;
    for (int i = n * thread / threads; i < n * (thread + 1) / threads; i++) {
        packed_row(&weights->embedding, infer->rows[i].token, infer->x + (size_t)i * hidden);
    }
    pool_barrier(infer->pool);
    for (int i = 0; i < weights->config.layers; i++) {
        infer_layer(infer, i, thread);
    }
    const int wanted = infer->wanted_count;
    if (wanted == 0) {
        return;
    }
    if (thread == 0) { /* the rows asked for, moved together */
        for (int i = 0; i < wanted; i++) {
            memmove(infer->x + (size_t)i * hidden, infer->x + (size_t)infer->wanted[i] * hidden,
                    hidden * sizeof(float));
        }
        infer_norm_rows(infer, weights->norm, 0, wanted, infer->norms);
    }
    pool_barrier(infer->pool);
    int from;
    int to;
    infer_matrix(infer, weights->config.tied ? &weights->embedding : &weights->head, infer->norms,
                 wanted, thread, false, infer->logits, (size_t)weights->config.vocab, &from, &to);
}

/* ---- a step ------------------------------------------------------------------------------- */

static Err infer_add(Infer *infer, const InferSeq *seq, int index, Fault *fault)
{
    const ModelConfig *model = &infer->weights->config;
    if (seq->count < 0 || seq->start < 0 || seq->logits_from < 0 ||
        seq->logits_from > seq->count ||
        seq->count > infer->config.max_batch_tokens - infer->row_count) {
        return fault_set(fault, ERR_LIMIT, NULL,
                         "sequence %d of the step does not fit into %d tokens", index,
                         infer->config.max_batch_tokens);
    }
    if (seq->count > infer->context - seq->start) {
        return fault_set(fault, ERR_LIMIT, "Ask for shorter sequences or serve with more KV blocks",
                         "sequence %d would be longer than %d tokens", index, infer->context);
    }
    for (int i = 0; i < seq->count; i++) {
        const int32_t token = seq->tokens[i];
        if (token < 0 || token >= model->vocab) {
            return fault_set(fault, ERR_ARG, "Use the tokenizer of this model",
                             "token id %d is outside the vocabulary of %d", (int)token,
                             model->vocab);
        }
        if (i >= seq->logits_from) {
            infer->wanted[infer->wanted_count++] = infer->row_count;
        }
        infer->rows[infer->row_count++] = (InferRow){token, seq->start + i, seq->block_table};
    }
    const int behind = seq->count > 0 ? (seq->start + seq->count - 1) / infer->config.block_tokens
                                      : -1;
    for (int i = 0; i <= behind; i++) {
        if (seq->block_table[i] < 0 || seq->block_table[i] >= infer->config.blocks) {
            return fault_set(fault, ERR_ARG, NULL, "KV block %d of sequence %d does not exist",
                             (int)seq->block_table[i], index);
        }
    }
    return ERR_OK;
}

Err infer_step(Infer *infer, const InferSeq *seqs, int count, const float **logits, int *rows,
               Fault *fault)
{
    *logits = NULL;
    *rows = 0;
    infer->row_count = 0;
    infer->wanted_count = 0;
    for (int i = 0; i < count; i++) {
        const Err err = infer_add(infer, &seqs[i], i, fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    if (infer->wanted_count > infer->logits_rows) {
        free(infer->logits);
        infer->logits_rows = 0;
        if (!infer_floats(&infer->logits, (size_t)infer->wanted_count,
                          (size_t)infer->weights->config.vocab)) {
            return fault_set(fault, ERR_MEMORY, "Ask for log-probs of fewer tokens at once",
                             "no memory for %d rows of logits", infer->wanted_count);
        }
        infer->logits_rows = infer->wanted_count;
    }
    if (infer->row_count > 0) {
        pool_run(infer->pool, infer_work, infer);
    }
    *logits = infer->logits;
    *rows = infer->wanted_count;
    return ERR_OK;
}
