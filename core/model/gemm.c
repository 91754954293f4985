#include "core/model/gemm.h"

#include "core/base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    GEMM_K = 768,         /* k of one block: a pair of panels is 192 KiB */
    GEMM_K_TRANSPOSED = 256, /* smaller where A is copied, so that the copy stays in L2 too */
    GEMM_N = 2048,        /* columns packed at once */
    GEMM_M = 192,         /* rows of A between two walks over the panels */
    GEMM_M_TRANSPOSED = 96,
    GEMM_HUGE = 2 << 20
};

struct Gemm {
    Pool *pool;
    const Kernels *kernels;
    float *packed; /* [GEMM_N / 32][GEMM_K][32] */
    float *copies; /* per thread, [GEMM_K_TRANSPOSED][GEMM_M_TRANSPOSED] */
};

typedef struct GemmBlock { /* what the threads of one block share */
    const Gemm *gemm;
    const GemmArgs *args;
    int k0, k, n0, n;
    atomic_int next; /* the next part of the rows that nobody has taken */
} GemmBlock;

void *gemm_bytes(size_t bytes)
{
    const size_t unit = bytes >= GEMM_HUGE ? GEMM_HUGE : 64;
    if (bytes > SIZE_MAX - unit) {
        return NULL;
    }
    bytes = (bytes + unit - 1) / unit * unit;
    void *p = aligned_alloc(unit, bytes > 0 ? bytes : unit);
#ifdef MADV_HUGEPAGE
    if (p != NULL && unit == GEMM_HUGE) {
        (void)madvise(p, bytes, MADV_HUGEPAGE); /* a wish; refusal costs speed only */
    }
#endif
    return p;
}

float *gemm_floats(size_t count)
{
    size_t bytes;
    return size_mul(count, sizeof(float), &bytes) ? gemm_bytes(bytes) : NULL;
}

/* ---- packing ------------------------------------------------------------------------------ */

/* One panel: `cols` rows of b (a [N][K] matrix) become columns. In strips of 16 k, so that the
 * strip of the panel stays in L1 while it is written column by column. */
static void gemm_pack_transposed(const float *b, size_t ldb, int cols, int k, float *out)
{
    for (int k0 = 0; k0 < k; k0 += 16) {
        const int strip = k - k0 < 16 ? k - k0 : 16;
        float *to = out + (size_t)k0 * KERNEL_PANEL;
        for (int n = 0; n < cols; n++) {
            const float *from = b + (size_t)n * ldb + k0;
            for (int i = 0; i < strip; i++) {
                to[i * KERNEL_PANEL + n] = from[i];
            }
        }
        for (int i = 0; cols < KERNEL_PANEL && i < strip; i++) {
            memset(to + i * KERNEL_PANEL + cols, 0, (size_t)(KERNEL_PANEL - cols) * sizeof(float));
        }
    }
}

static void gemm_pack_rows(const float *b, size_t ldb, int cols, int k, float *out)
{
    for (int i = 0; i < k; i++) {
        float *to = out + (size_t)i * KERNEL_PANEL;
        memcpy(to, b + (size_t)i * ldb, (size_t)cols * sizeof(float));
        if (cols < KERNEL_PANEL) {
            memset(to + cols, 0, (size_t)(KERNEL_PANEL - cols) * sizeof(float));
        }
    }
}

void gemm_pack(const float *b, size_t ldb, bool transposed, int from, int cols, int k0, int k,
               float *out)
{
    for (int n = 0; n < cols; n += KERNEL_PANEL) {
        const int some = cols - n < KERNEL_PANEL ? cols - n : KERNEL_PANEL;
        const size_t column = (size_t)(from + n);
        float *panel = out + (size_t)n * (size_t)k;
        if (transposed) {
            gemm_pack_transposed(b + column * ldb + k0, ldb, some, k, panel);
        } else {
            gemm_pack_rows(b + (size_t)k0 * ldb + column, ldb, some, k, panel);
        }
    }
}

static uint16_t gemm_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

void gemm_pack_bf16(const float *b, size_t ldb, int cols, int k, uint16_t *out)
{
    for (int n = 0; n < cols; n += KERNEL_PANEL) {
        const int some = cols - n < KERNEL_PANEL ? cols - n : KERNEL_PANEL;
        uint16_t *panel = out + (size_t)n * (size_t)k;
        if (some < KERNEL_PANEL) {
            memset(panel, 0, (size_t)k * KERNEL_PANEL * sizeof(uint16_t));
        }
        for (int c = 0; c < some; c++) {
            const float *from = b + (size_t)(n + c) * ldb;
            uint16_t *to = panel + (c % 16) * 2 + c / 16;
            for (int i = 0; i < k; i++) {
                to[(size_t)i * KERNEL_PANEL] = gemm_bf16(from[i]);
            }
        }
    }
}

/* ---- the product -------------------------------------------------------------------------- */

Err gemm_new(int threads, const Kernels *kernels, Gemm **out, Fault *fault)
{
    *out = NULL;
    Gemm *gemm = xcalloc(1, sizeof(*gemm));
    gemm->kernels = kernels;
    Err err = pool_new(threads, &gemm->pool, fault);
    if (err == ERR_OK) {
        gemm->packed = gemm_floats((size_t)GEMM_N * GEMM_K);
        gemm->copies = gemm_floats((size_t)threads * GEMM_K_TRANSPOSED * GEMM_M_TRANSPOSED);
        if (gemm->packed == NULL || gemm->copies == NULL) {
            err = fault_set(fault, ERR_MEMORY, NULL, "no memory for matrix scratch");
        }
    }
    if (err != ERR_OK) {
        gemm_free(gemm);
        return err;
    }
    *out = gemm;
    return ERR_OK;
}

void gemm_free(Gemm *gemm)
{
    if (gemm == NULL) {
        return;
    }
    pool_free(gemm->pool);
    free(gemm->packed);
    free(gemm->copies);
    free(gemm);
}

Pool *gemm_pool(Gemm *gemm)
{
    return gemm->pool;
}

static void gemm_rows(const GemmBlock *block, int from, int rows, float *copy)
{
    const GemmArgs *args = block->args;
    Tile tile = {
        .a = args->a + (size_t)from * args->lda + block->k0,
        .a_step = args->lda,
        .b = block->gemm->packed,
        .b_panel = (size_t)block->k * KERNEL_PANEL,
        .c = args->c + (size_t)from * args->ldc + block->n0,
        .c_step = args->ldc,
        .rows = rows,
        .cols = block->n,
        .k = block->k,
        .add = args->add || block->k0 > 0,
    };
    if (args->a_transposed) {
        const float *a = args->a + (size_t)block->k0 * args->lda + from;
        for (int k = 0; k < block->k; k++) {
            memcpy(copy + (size_t)k * (size_t)rows, a + (size_t)k * args->lda,
                   (size_t)rows * sizeof(float));
        }
        tile.a = copy;
        tile.a_step = (size_t)rows;
        tile.a_transposed = true;
    }
    block->gemm->kernels->tile(&tile);
}

static void gemm_work(void *context, int thread, int threads)
{
    GemmBlock *block = context;
    const Gemm *gemm = block->gemm;
    const GemmArgs *args = block->args;
    const int panels = gemm_panels(block->n);
    const int first = panels * thread / threads;
    const int behind = panels * (thread + 1) / threads;
    if (behind > first) {
        const int column = first * KERNEL_PANEL;
        const int end = behind * KERNEL_PANEL < block->n ? behind * KERNEL_PANEL : block->n;
        gemm_pack(args->b, args->ldb, args->b_transposed, block->n0 + column, end - column,
                  block->k0, block->k, gemm->packed + (size_t)column * (size_t)block->k);
    }
    pool_barrier(gemm->pool);
    const int limit = args->a_transposed ? GEMM_M_TRANSPOSED : GEMM_M;
    const int blocks = (args->m + limit - 1) / limit;
    const int units = (args->m + 5) / 6; /* whole register tiles */
    int parts = (blocks + threads - 1) / threads * threads;
    if (threads > 1 && parts < 4 * threads) {
        parts = 4 * threads; /* a thread that lost its core for a while holds up a small part */
    }
    for (int i = atomic_fetch_add(&block->next, 1); i < parts;
         i = atomic_fetch_add(&block->next, 1)) {
        const int from = (int)((int64_t)units * i / parts) * 6;
        int to = (int)((int64_t)units * (i + 1) / parts) * 6;
        to = to < args->m ? to : args->m;
        if (to > from) {
            gemm_rows(block, from, to - from,
                      gemm->copies + (size_t)thread * GEMM_K_TRANSPOSED * GEMM_M_TRANSPOSED);
        }
    }
}

void gemm_run(Gemm *gemm, const GemmArgs *args)
{
    if (args->m <= 0 || args->n <= 0) {
        return;
    }
    const int limit = args->a_transposed ? GEMM_K_TRANSPOSED : GEMM_K;
    const int k_blocks = (args->k + limit - 1) / limit;
    for (int n0 = 0; n0 < args->n; n0 += GEMM_N) {
        for (int i = 0; i < k_blocks; i++) {
            const int k0 = (int)((int64_t)args->k * i / k_blocks);
            const int k1 = (int)((int64_t)args->k * (i + 1) / k_blocks);
            GemmBlock block = {.gemm = gemm, .args = args, .k0 = k0, .k = k1 - k0, .n0 = n0};
            block.n = args->n - n0 < GEMM_N ? args->n - n0 : GEMM_N;
            pool_run(gemm->pool, gemm_work, &block);
        }
    }
}
