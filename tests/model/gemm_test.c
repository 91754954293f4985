#include "core/model/gemm.h"

#include "core/base/rng.h"
#include "tests/harness.h"

#include <stdlib.h>

static void check(Gemm *gemm, Rng *rng, int m, int n, int depth, bool ta, bool tb, bool add)
{
    const size_t lda = (size_t)(ta ? m : depth) + 1;
    const size_t ldb = (size_t)(tb ? depth : n) + 2;
    const size_t ldc = (size_t)n + 3;
    const size_t a_n = lda * (size_t)(ta ? depth : m);
    const size_t b_n = ldb * (size_t)(tb ? n : depth);
    float *a = gemm_floats(a_n);
    float *b = gemm_floats(b_n);
    float *c = gemm_floats(ldc * (size_t)m);
    for (size_t i = 0; i < a_n; i++) {
        a[i] = (float)rng_normal(rng);
    }
    for (size_t i = 0; i < b_n; i++) {
        b[i] = (float)rng_normal(rng);
    }
    for (size_t i = 0; i < ldc * (size_t)m; i++) {
        c[i] = 0.25f;
    }
    const GemmArgs args = {.a = a, .lda = lda, .a_transposed = ta, .b = b, .ldb = ldb,
                           .b_transposed = tb, .c = c, .ldc = ldc, .m = m, .n = n, .k = depth,
                           .add = add};
    gemm_run(gemm, &args);
    double worst = 0.0;
    int spilt = 0;
    for (int i = 0; i < m; i++) {
        /* all columns of few rows, few columns of all rows: enough to see a wrong block */
        for (int j = 0; j < n; j += i % 16 == 0 ? 1 : 37) {
            double sum = add ? 0.25 : 0.0;
            for (int x = 0; x < depth; x++) {
                sum += (double)(ta ? a[(size_t)x * lda + (size_t)i]
                                   : a[(size_t)i * lda + (size_t)x]) *
                       (double)(tb ? b[(size_t)j * ldb + (size_t)x]
                                   : b[(size_t)x * ldb + (size_t)j]);
            }
            worst = fmax(worst, fabs(sum - (double)c[(size_t)i * ldc + (size_t)j]));
        }
        for (size_t j = (size_t)n; j < ldc; j++) {
            spilt += c[(size_t)i * ldc + j] != 0.25f;
        }
    }
    CHECK_NEAR(worst, 0.0, 1e-5 * sqrt((double)depth) * 4);
    CHECK_I64(spilt, 0);
    free(a);
    free(b);
    free(c);
}

/* Sizes on both sides of every block bound, all four layouts, one to three threads. */
static void products(void)
{
    static const int shapes[][3] = {{1, 1, 1},     {5, 33, 7},    {97, 64, 257}, {193, 100, 769},
                                    {13, 2050, 40}, {200, 31, 1600}, {300, 320, 192}};
    Rng rng;
    rng_seed(&rng, 3);
    for (int threads = 1; threads <= 3; threads++) {
        Gemm *gemm = NULL;
        CHECK_I64(gemm_new(threads, kernels_best(), &gemm, NULL), ERR_OK);
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            for (int mode = 0; mode < 8; mode++) {
                check(gemm, &rng, shapes[i][0], shapes[i][1], shapes[i][2], (mode & 1) != 0,
                      (mode & 2) != 0, (mode & 4) != 0);
            }
        }
        gemm_free(gemm);
    }
}

int main(void)
{
    RUN(products);
    return test_end();
}
