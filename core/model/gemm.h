/* FP32 matrix products for training, and the packing that they and the serving weights share.
 *
 * The right-hand matrix is packed into panels of 32 columns in blocks that fit the L2 cache; the
 * left one is read in place (row-major) or copied block by block (transposed). Measured on one
 * Zen 5 core: 220 to 250 GFLOP/s for the shapes of a 2.5M to 135M parameter model. */
#ifndef ROLLTOP_MODEL_GEMM_H
#define ROLLTOP_MODEL_GEMM_H

#include "core/model/kernels.h"
#include "core/model/threadpool.h"

/* Uninitialised floats on a 64-byte boundary (large ones on huge pages); NULL when there is no
 * memory or the size overflows. Free with free(). */
float *gemm_floats(size_t count);
void *gemm_bytes(size_t bytes);

static inline int gemm_panels(int columns)
{
    return (columns + KERNEL_PANEL - 1) / KERNEL_PANEL;
}

/* Columns [from, from+cols) and k [k0, k0+k) of B into panels [k][32], the last padded with 0.
 * B is [K][N] row-major, or with `transposed` [N][K] (a weight matrix [out][in]). */
void gemm_pack(const float *b, size_t ldb, bool transposed, int from, int cols, int k0, int k,
               float *out);
/* The same for [N][K] to BF16 panels (kernels.h), rounding to nearest even. */
void gemm_pack_bf16(const float *b, size_t ldb, int cols, int k, uint16_t *out);

typedef struct Gemm Gemm; /* pool, kernels and scratch; one owner */
Err gemm_new(int threads, const Kernels *kernels, Gemm **out, Fault *fault);
void gemm_free(Gemm *gemm);
Pool *gemm_pool(Gemm *gemm);

typedef struct GemmArgs {
    const float *a; /* [m][k], or [k][m] with a_transposed */
    size_t lda;
    bool a_transposed;
    const float *b; /* [k][n], or [n][k] with b_transposed */
    size_t ldb;
    bool b_transposed;
    float *c;       /* [m][n] */
    size_t ldc;
    int m, n, k;
    bool add;       /* C += instead of C = */
} GemmArgs;
/* All threads of the pool. */
void gemm_run(Gemm *gemm, const GemmArgs *args);

#endif
