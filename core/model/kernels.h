/* The inner loops of the models, once per instruction set, chosen at run time.
 *
 * One source (kernels_template*.h) is compiled for plain C, for AVX2 and for AVX-512; the first
 * works everywhere. Sums over k run in rising order in every tile shape, so a row's result does
 * not depend on how many other rows were computed with it: batches give the same bits as single
 * sequences on the same instruction set. */
#ifndef ROLLTOP_MODEL_KERNELS_H
#define ROLLTOP_MODEL_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KERNEL_PANEL = 32, /* columns of a packed panel: [k][32] */
    KERNEL_LANES = 16  /* tokens of a KV granule; head dims are padded to this */
};

/* C[rows][cols] (+)= A[rows][k] * B[k][cols]. A is row-major (a_step is the row stride), or with
 * `a_transposed` stored [k][rows] (a_step is the stride from k to k+1). B is packed in panels of
 * 32 columns; the last one is padded. BF16 panels hold columns c and c+16 in one 32-bit word. */
typedef struct Tile {
    const float *a;
    size_t a_step;
    bool a_transposed;
    const void *b;        /* float or uint16_t */
    size_t b_panel;       /* elements from one panel to the next */
    float *c;
    size_t c_step;
    int rows, cols, k;
    bool add;             /* add to C instead of setting it */
} Tile;

/* Running sums of one row of logits z: max, sum of exp(z - max), sum of exp(z - max)*(z - max). */
typedef struct LogitSums {
    float max, sum, weighted;
} LogitSums;

typedef struct Kernels {
    const char *name;
    void (*tile)(const Tile *tile);
    void (*tile_bf16)(const Tile *tile); /* A row-major only */
    float (*dot)(const float *a, const float *b, int n);
    void (*axpy)(float *y, float a, const float *x, int n); /* y += a*x */
    void (*scale)(float *y, float a, int n);
    /* 1/sqrt(mean(x^2) + eps) */
    float (*rms)(const float *x, int n, float eps);
    void (*rms_apply)(const float *x, const float *w, float rstd, int n, float *out);
    /* dx = or += the gradient through y = w*x*rstd; dw += dy*x*rstd. dx may be dy if not add. */
    void (*rms_backward)(const float *x, const float *w, float rstd, const float *dy, int n,
                         bool add, float *dx, float *dw);
    /* Rotates (x[i], x[i+half]) by the angle of cos[i], sign*sin[i]. */
    void (*rope)(float *x, const float *cosine, const float *sine, float sign, int half);
    void (*swiglu)(const float *gate, const float *up, int n, float *out);
    /* In: gate, up, dout = dL/d(silu(gate)*up). Out: gate = dgate, up = dup, dout = silu(g)*up. */
    void (*swiglu_backward)(float *gate, float *up, float *dout, int n);
    /* s = exp(s - max(s)); returns the sum. */
    float (*softmax)(float *s, int n, float *max);
    void (*exp_minus)(float *s, float bias, int n); /* s = exp(s - bias) */
    void (*ds)(const float *p, float *dp, float delta, int n); /* dp = p*(dp - delta) */
    LogitSums (*logit_sums)(const float *z, float inv_temperature, int n);
    /* z = dL/dz for g*logp(target) + h*entropy, without the target's own g (added by the caller).
     * lse belongs to z*inv_temperature. */
    void (*logit_grad)(float *z, float inv_temperature, float lse, float entropy, float g, float h,
                       int n);
    /* s[rows][16*granules] = q[rows][d] . k, each granule [d][16 tokens]. */
    void (*attn_scores)(const float *q, size_t q_step, int rows, int d, const float *const *k,
                        int granules, float *s, size_t s_step);
    /* o[rows][d16] = p[rows][tokens] * v, each granule [16 tokens][d16]. */
    void (*attn_values)(const float *p, size_t p_step, int rows, int tokens,
                        const float *const *v, int d16, float *o, size_t o_step);
    /* Sum of squares in double, so that it is finite when, and only when, every element is. */
    double (*square_sum)(const float *x, size_t n);
    double (*square_sum_bf16)(const uint16_t *x, size_t n);
} Kernels;

typedef enum KernelLevel { KERNELS_PORTABLE, KERNELS_AVX2, KERNELS_AVX512 } KernelLevel;
/* NULL when this machine cannot run them. Static storage. */
const Kernels *kernels_at(KernelLevel level);
const Kernels *kernels_best(void);

/* One per source file; NULL on other processors. */
const Kernels *kernels_portable(void);
const Kernels *kernels_avx2(void);
const Kernels *kernels_avx512(void);

#endif
