#include "core/model/attention.h"

#include "core/base/mem.h"
#include "core/model/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ATTENTION_QUERIES = 48 }; /* rows of one block of queries */

struct Attention {
    const Kernels *kernels;
    int group, d, padded; /* padded: longest rounded up to whole panels */
    float scale;
    float *k_turned, *v_turned; /* [panels of tokens][d][32]: keys as columns */
    float *k_rows, *v_rows;     /* [panels of d][tokens][32]: keys as k of a product */
    float *q_rows, *do_rows;    /* likewise one block of queries */
    float *p, *dp;              /* [ATTENTION_QUERIES][padded] */
    float *q;                   /* one block of queries, scaled: [ATTENTION_QUERIES][d] */
    float *dk, *dv;             /* [longest][d] */
};

Attention *attention_new(const Kernels *kernels, const AttentionShape *shape)
{
    Attention *a = xcalloc(1, sizeof(*a));
    a->kernels = kernels;
    a->group = shape->heads / shape->kv_heads;
    a->d = shape->head_dim;
    a->padded = gemm_panels(shape->longest) * KERNEL_PANEL;
    a->scale = 1.0f / sqrtf((float)shape->head_dim);
    const size_t tokens = (size_t)a->padded;
    const size_t d = (size_t)a->d;
    const size_t wide = (size_t)gemm_panels(a->d) * KERNEL_PANEL;
    struct {
        float **to;
        size_t count;
    } parts[] = {
        {&a->k_turned, tokens * d},
        {&a->v_turned, tokens * d},
        {&a->k_rows, tokens * wide},
        {&a->v_rows, tokens * wide},
        {&a->q_rows, ATTENTION_QUERIES * wide},
        {&a->do_rows, ATTENTION_QUERIES * wide},
        {&a->p, ATTENTION_QUERIES * tokens},
        {&a->dp, ATTENTION_QUERIES * tokens},
        {&a->q, ATTENTION_QUERIES * d},
        {&a->dk, tokens * d},
        {&a->dv, tokens * d},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        *parts[i].to = gemm_floats(parts[i].count);
        if (*parts[i].to == NULL) {
            attention_free(a);
            return NULL;
        }
    }
    return a;
}

void attention_free(Attention *a)
{
    if (a == NULL) {
        return;
    }
    float *const parts[] = {a->k_turned, a->v_turned, a->k_rows, a->v_rows, a->q_rows, a->do_rows,
                            a->p,        a->dp,       a->q,      a->dk,     a->dv};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        free(parts[i]);
    }
    free(a);
}

/* The block's scaled queries of one head. */
static void attention_load(Attention *a, const float *q, size_t step, int rows)
{
    for (int i = 0; i < rows; i++) {
        float *to = a->q + i * a->d;
        memcpy(to, q + (size_t)i * step, (size_t)a->d * sizeof(float));
        a->kernels->scale(to, a->scale, a->d);
    }
}

/* p = scores of `rows` queries against the first `keys` keys. */
static void attention_scores(const Attention *a, int rows, int keys)
{
    const Tile tile = {.a = a->q, .a_step = (size_t)a->d, .b = a->k_turned,
                       .b_panel = (size_t)a->d * KERNEL_PANEL, .c = a->p,
                       .c_step = (size_t)a->padded, .rows = rows, .cols = keys, .k = a->d};
    a->kernels->tile(&tile);
}

static void attention_zero_tail(float *row, int from, int to)
{
    memset(row + from, 0, (size_t)(to - from) * sizeof(float));
}

void attention_forward(Attention *a, const AttentionArgs *args)
{
    const int d = a->d;
    float sums[ATTENTION_QUERIES];
    gemm_pack(args->k, args->step, true, 0, args->count, 0, d, a->k_turned);
    gemm_pack(args->v, args->step, false, 0, d, 0, args->count, a->v_rows);
    for (int head = 0; head < a->group; head++) {
        for (int from = 0; from < args->count; from += ATTENTION_QUERIES) {
            const int left = args->count - from;
            const int rows = left < ATTENTION_QUERIES ? left : ATTENTION_QUERIES;
            const int keys = from + rows;
            attention_load(a, args->q + (size_t)from * args->step + head * d, args->step, rows);
            attention_scores(a, rows, keys);
            for (int i = 0; i < rows; i++) {
                float *p = a->p + (size_t)i * (size_t)a->padded;
                float max;
                const int seen = from + i + 1;
                sums[i] = a->kernels->softmax(p, seen, &max);
                attention_zero_tail(p, seen, keys);
                args->lse[(size_t)(from + i) * args->lse_step + (size_t)head] =
                    max + logf(sums[i]);
            }
            const Tile tile = {.a = a->p, .a_step = (size_t)a->padded, .b = a->v_rows,
                               .b_panel = (size_t)args->count * KERNEL_PANEL,
                               .c = args->out + (size_t)from * args->out_step + head * d,
                               .c_step = args->out_step, .rows = rows, .cols = d, .k = keys};
            a->kernels->tile(&tile);
            for (int i = 0; i < rows; i++) {
                a->kernels->scale(tile.c + (size_t)i * args->out_step, 1.0f / sums[i], d);
            }
        }
    }
}

/* P and dS of one block of queries; dS lies in dp. */
static void attention_block(Attention *a, const AttentionArgs *args, int head, int from, int rows)
{
    const int d = a->d;
    const int keys = from + rows;
    const float *dout = args->dout + (size_t)from * args->out_step + head * d;
    const float *out = args->out + (size_t)from * args->out_step + head * d;
    attention_load(a, args->q + (size_t)from * args->step + head * d, args->step, rows);
    attention_scores(a, rows, keys);
    const Tile tile = {.a = dout, .a_step = args->out_step, .b = a->v_turned,
                       .b_panel = (size_t)d * KERNEL_PANEL, .c = a->dp,
                       .c_step = (size_t)a->padded, .rows = rows, .cols = keys, .k = d};
    a->kernels->tile(&tile);
    for (int i = 0; i < rows; i++) {
        float *p = a->p + (size_t)i * (size_t)a->padded;
        float *dp = a->dp + (size_t)i * (size_t)a->padded;
        const int seen = from + i + 1;
        const size_t line = (size_t)i * args->out_step;
        a->kernels->exp_minus(p, args->lse[(size_t)(from + i) * args->lse_step + (size_t)head],
                              seen);
        a->kernels->ds(p, dp, a->kernels->dot(dout + line, out + line, d), seen);
        attention_zero_tail(p, seen, keys);
        attention_zero_tail(dp, seen, keys);
    }
}

void attention_backward(Attention *a, const AttentionArgs *args)
{
    const int d = a->d;
    gemm_pack(args->k, args->step, true, 0, args->count, 0, d, a->k_turned);
    gemm_pack(args->v, args->step, true, 0, args->count, 0, d, a->v_turned);
    gemm_pack(args->k, args->step, false, 0, d, 0, args->count, a->k_rows);
    memset(a->dk, 0, (size_t)(args->count * d) * sizeof(float));
    memset(a->dv, 0, (size_t)(args->count * d) * sizeof(float));
    for (int head = 0; head < a->group; head++) {
        for (int from = 0; from < args->count; from += ATTENTION_QUERIES) {
            const int left = args->count - from;
            const int rows = left < ATTENTION_QUERIES ? left : ATTENTION_QUERIES;
            const int keys = from + rows;
            attention_block(a, args, head, from, rows);
            gemm_pack(a->q, (size_t)d, false, 0, d, 0, rows, a->q_rows);
            gemm_pack(args->dout + (size_t)from * args->out_step + head * d, args->out_step, false,
                      0, d, 0, rows, a->do_rows);
            const size_t block = (size_t)rows * KERNEL_PANEL;
            float *dq = args->dq + (size_t)from * args->step + head * d;
            const Tile q_tile = {.a = a->dp, .a_step = (size_t)a->padded, .b = a->k_rows,
                                 .b_panel = (size_t)args->count * KERNEL_PANEL, .c = dq,
                                 .c_step = args->step, .rows = rows, .cols = d, .k = keys};
            const Tile k_tile = {.a = a->dp, .a_step = (size_t)a->padded, .a_transposed = true,
                                 .b = a->q_rows, .b_panel = block, .c = a->dk,
                                 .c_step = (size_t)d, .rows = keys, .cols = d, .k = rows,
                                 .add = true};
            Tile v_tile = k_tile;
            v_tile.a = a->p;
            v_tile.b = a->do_rows;
            v_tile.c = a->dv;
            a->kernels->tile(&q_tile);
            a->kernels->tile(&k_tile);
            a->kernels->tile(&v_tile);
            for (int i = 0; i < rows; i++) {
                a->kernels->scale(dq + (size_t)i * args->step, a->scale, d);
            }
        }
    }
    for (int t = 0; t < args->count; t++) {
        memcpy(args->dk + (size_t)t * args->step, a->dk + t * d, (size_t)d * sizeof(float));
        memcpy(args->dv + (size_t)t * args->step, a->dv + t * d, (size_t)d * sizeof(float));
    }
}
