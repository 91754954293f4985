/* Every instruction set that this machine has, against plain double arithmetic. */
#include "core/model/kernels.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/gemm.h"
#include "core/model/safetensors.h"
#include "tests/harness.h"

#include <stdlib.h>

static Rng rng;
static const Kernels *k; /* the level under test */

static float *numbers(size_t n, float scale)
{
    float *out = gemm_floats(n);
    for (size_t i = 0; i < n; i++) {
        out[i] = scale * (float)rng_normal(&rng);
    }
    return out;
}

/* One tile of a shape; returns the largest error, and checks that nothing around C changed. */
static double tile_error(int rows, int cols, int depth, bool transposed, bool bf16, bool add)
{
    const size_t step = (size_t)cols + 3;
    const size_t lda = (size_t)(transposed ? rows : depth) + 5;
    float *a = numbers(lda * (size_t)(transposed ? depth : rows), 1.0f);
    float *b = numbers((size_t)cols * (size_t)depth, 1.0f);
    float *c = numbers(step * (size_t)rows, 1.0f);
    float *before = numbers(step * (size_t)rows, 1.0f);
    memcpy(before, c, step * (size_t)rows * sizeof(float));
    const size_t packed = (size_t)gemm_panels(cols) * KERNEL_PANEL * (size_t)depth;
    float *full = gemm_floats(packed);
    uint16_t *half = gemm_bytes(packed * sizeof(uint16_t));
    gemm_pack(b, (size_t)depth, true, 0, cols, 0, depth, full);
    gemm_pack_bf16(b, (size_t)depth, cols, depth, half);
    const Tile tile = {.a = a, .a_step = lda, .a_transposed = transposed,
                       .b = bf16 ? (const void *)half : (const void *)full,
                       .b_panel = (size_t)depth * KERNEL_PANEL, .c = c, .c_step = step,
                       .rows = rows, .cols = cols, .k = depth, .add = add};
    (bf16 ? k->tile_bf16 : k->tile)(&tile);
    double worst = 0.0;
    for (int m = 0; m < rows; m++) {
        for (int n = 0; n < cols; n++) {
            double sum = add ? (double)before[(size_t)m * step + (size_t)n] : 0.0;
            for (int i = 0; i < depth; i++) {
                const float x = transposed ? a[(size_t)i * lda + (size_t)m]
                                           : a[(size_t)m * lda + (size_t)i];
                const float y = b[(size_t)n * (size_t)depth + (size_t)i];
                sum += (double)x * (double)(bf16 ? f32_from_bf16(bf16_from_f32(y)) : y);
            }
            worst = fmax(worst, fabs(sum - (double)c[(size_t)m * step + (size_t)n]));
        }
        for (size_t n = (size_t)cols; n < step; n++) {
            CHECK_NEAR(c[(size_t)m * step + n], before[(size_t)m * step + n], 0.0);
        }
    }
    free(a);
    free(b);
    free(c);
    free(before);
    free(full);
    free(half);
    return worst;
}

static void tiles(void)
{
    static const int columns[] = {1, 16, 31, 32, 33, 48, 64, 96, 100, 128, 160, 200, 256, 300};
    for (int rows = 1; rows <= 14; rows++) {
        for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
            const int depth = 1 + (rows * 7 + (int)i * 13) % 70;
            CHECK_NEAR(tile_error(rows, columns[i], depth, false, false, false), 0.0, 2e-5);
            CHECK_NEAR(tile_error(rows, columns[i], depth, false, false, true), 0.0, 2e-5);
            CHECK_NEAR(tile_error(rows, columns[i], depth, true, false, true), 0.0, 2e-5);
            CHECK_NEAR(tile_error(rows, columns[i], depth, false, true, false), 0.0, 2e-5);
            CHECK_NEAR(tile_error(rows, columns[i], depth, false, true, true), 0.0, 2e-5);
        }
    }
}

static void rows_of_any_length(void)
{
    for (int n = 1; n <= 70; n++) {
        float *x = numbers((size_t)n + 1, 1.0f);
        float *y = numbers((size_t)n + 1, 1.0f);
        float *out = numbers((size_t)n + 1, 1.0f);
        const float guard = out[n];
        double dot = 0.0;
        double square = 0.0;
        for (int i = 0; i < n; i++) {
            dot += (double)x[i] * (double)y[i];
            square += (double)x[i] * (double)x[i];
        }
        CHECK_NEAR(k->dot(x, y, n), dot, 2e-5);
        const double rstd = 1.0 / sqrt(square / n + 1e-6);
        CHECK_NEAR(k->rms(x, n, 1e-6f), rstd, 1e-5 * rstd);
        k->rms_apply(x, y, (float)rstd, n, out);
        for (int i = 0; i < n; i++) {
            CHECK_NEAR(out[i], (double)x[i] * rstd * (double)y[i], 1e-5);
        }
        k->swiglu(x, y, n, out);
        for (int i = 0; i < n; i++) {
            const double g = (double)x[i];
            CHECK_NEAR(out[i], g / (1.0 + exp(-g)) * (double)y[i], 2e-6 * (1.0 + fabs(g)));
        }
        memcpy(out, y, (size_t)n * sizeof(float));
        k->axpy(out, 0.5f, x, n);
        k->scale(out, -2.0f, n);
        for (int i = 0; i < n; i++) {
            CHECK_NEAR(out[i], -2.0 * ((double)y[i] + 0.5 * (double)x[i]), 2e-6);
        }
        CHECK_NEAR(out[n], guard, 0.0);
        free(x);
        free(y);
        free(out);
    }
}

static void sums_of_squares(void)
{
    for (int n = 0; n <= 100; n++) {
        float *x = numbers((size_t)n + 1, 1.0f);
        uint16_t *half = xcalloc((size_t)n + 1, sizeof *half);
        double square = 0.0;
        double square_half = 0.0;
        for (int i = 0; i < n; i++) {
            half[i] = bf16_from_f32(x[i]);
            square += (double)x[i] * (double)x[i];
            square_half += (double)f32_from_bf16(half[i]) * (double)f32_from_bf16(half[i]);
        }
        CHECK_NEAR(k->square_sum(x, (size_t)n), square, 1e-12 * square);
        CHECK_NEAR(k->square_sum_bf16(half, (size_t)n), square_half, 1e-12 * square_half);
        for (int i = 0; i < n; i++) { /* the largest finite float is finite; what is not is seen */
            const float kept = x[i];
            const uint16_t kept_half = half[i];
            x[i] = 3.4028235e38f;
            half[i] = 0xff7f;
            CHECK(isfinite(k->square_sum(x, (size_t)n)));
            CHECK(isfinite(k->square_sum_bf16(half, (size_t)n)));
            x[i] = i % 2 ? -INFINITY : NAN;
            half[i] = i % 2 ? 0xff80 : 0x7fc0;
            CHECK(!isfinite(k->square_sum(x, (size_t)n)));
            CHECK(!isfinite(k->square_sum_bf16(half, (size_t)n)));
            x[i] = kept;
            half[i] = kept_half;
        }
        free(x);
        free(half);
    }
}

static void softmax_rows(void)
{
    static const float scales[] = {0.1f, 1.0f, 30.0f};
    for (int n = 1; n <= 67; n++) {
        for (int s = 0; s < 3; s++) {
            float *z = numbers((size_t)n + 1, scales[s]);
            float *p = numbers((size_t)n + 1, 1.0f);
            memcpy(p, z, (size_t)n * sizeof(float));
            double top = -INFINITY;
            for (int i = 0; i < n; i++) {
                top = fmax(top, (double)z[i]);
            }
            double sum = 0.0;
            double weighted = 0.0;
            for (int i = 0; i < n; i++) {
                sum += exp((double)z[i] - top);
                weighted += exp((double)z[i] - top) * ((double)z[i] - top);
            }
            float max;
            CHECK_NEAR(k->softmax(p, n, &max), sum, 1e-6 * n);
            CHECK_NEAR(max, top, 0.0);
            for (int i = 0; i < n; i++) {
                CHECK_NEAR(p[i], exp((double)z[i] - top), 1e-6);
            }
            const LogitSums sums = k->logit_sums(z, 1.0f, n);
            CHECK_NEAR(sums.max, top, 1e-6 * fabs(top));
            CHECK_NEAR(sums.sum, sum, 1e-5 * sum);
            CHECK_NEAR(sums.weighted, weighted, 1e-5 * (1.0 + fabs(weighted)));
            /* gradient of g*logp(no target) + h*entropy */
            const double lse = top + log(sum);
            const double entropy = log(sum) - weighted / sum;
            k->logit_grad(z, 1.0f, (float)lse, (float)entropy, 0.7f, -0.3f, n);
            for (int i = 0; i < n; i++) {
                const double q = (double)p[i] / sum;
                const double expected = -0.7 * q + 0.3 * q * (q > 0 ? log(q) + entropy : 0.0);
                CHECK_NEAR(z[i], expected, 3e-5);
            }
            free(z);
            free(p);
        }
    }
}

/* A poisoned number must come out as one: the trainer looks for it there. */
static void nan_stays_nan(void)
{
    for (int at = 0; at < 21; at++) {
        float z[21];
        float up[21];
        float max;
        for (int i = 0; i < 21; i++) {
            z[i] = up[i] = i == at ? NAN : 0.5f;
        }
        const LogitSums sums = k->logit_sums(z, 1.0f, 21);
        CHECK(isnan(sums.sum) && isnan(sums.weighted));
        k->swiglu(z, z, 21, up);
        CHECK(isnan(up[at]) && !isnan(up[(at + 1) % 21]));
        CHECK(isnan(k->softmax(z, 21, &max)));
    }
}

/* The backward rows against differences of the forward ones. */
static void backward_rows(void)
{
    enum { N = 37 };
    const double h = 1e-4;
    float *x = numbers(N, 1.0f);
    float *w = numbers(N, 1.0f);
    float *dy = numbers(N, 1.0f);
    float dx[N] = {0};
    float dw[N] = {0};
    const float rstd = k->rms(x, N, 1e-6f);
    k->rms_backward(x, w, rstd, dy, N, true, dx, dw);
    for (int i = 0; i < N; i++) {
        double loss[2] = {0};
        for (int side = 0; side < 2; side++) {
            double square = 0.0;
            for (int j = 0; j < N; j++) {
                const double v = (double)x[j] + (j == i ? (side ? -h : h) : 0.0);
                square += v * v;
            }
            for (int j = 0; j < N; j++) {
                const double v = (double)x[j] + (j == i ? (side ? -h : h) : 0.0);
                loss[side] += (double)dy[j] * (double)w[j] * v / sqrt(square / N + 1e-6);
            }
        }
        CHECK_NEAR(dx[i], (loss[0] - loss[1]) / (2 * h), 2e-4);
        CHECK_NEAR(dw[i], (double)dy[i] * (double)x[i] * (double)rstd, 1e-5);
    }
    float gate[N];
    float up[N];
    float dout[N];
    memcpy(gate, x, sizeof(gate));
    memcpy(up, w, sizeof(up));
    memcpy(dout, dy, sizeof(dout));
    k->swiglu_backward(gate, up, dout, N);
    for (int i = 0; i < N; i++) {
        const double g = (double)x[i];
        const double s = 1.0 / (1.0 + exp(-g));
        CHECK_NEAR(dout[i], g * s * (double)w[i], 1e-5);
        CHECK_NEAR(up[i], (double)dy[i] * g * s, 1e-5);
        CHECK_NEAR(gate[i], (double)dy[i] * (double)w[i] * s * (1.0 + g * (1.0 - s)), 1e-5);
    }
    free(x);
    free(w);
    free(dy);
}

static void rotation_and_back(void)
{
    enum { HALF = 21 };
    float *x = numbers(2 * HALF, 1.0f);
    float cosine[HALF];
    float sine[HALF];
    float y[2 * HALF];
    memcpy(y, x, sizeof(y));
    for (int i = 0; i < HALF; i++) {
        cosine[i] = cosf((float)i);
        sine[i] = sinf((float)i);
    }
    k->rope(y, cosine, sine, 1.0f, HALF);
    for (int i = 0; i < HALF; i++) {
        CHECK_NEAR(y[i], x[i] * cosine[i] - x[i + HALF] * sine[i], 1e-6);
        CHECK_NEAR(y[i + HALF], x[i + HALF] * cosine[i] + x[i] * sine[i], 1e-6);
    }
    k->rope(y, cosine, sine, -1.0f, HALF);
    for (int i = 0; i < 2 * HALF; i++) {
        CHECK_NEAR(y[i], x[i], 1e-6);
    }
    free(x);
}

static void paged_attention(void)
{
    enum { D = 24, D16 = 32, GRANULES = 7, ROWS = 7, TOKENS = 107 };
    const float *keys[GRANULES];
    const float *values[GRANULES];
    float *q = numbers(ROWS * D, 1.0f);
    float *p = numbers(ROWS * GRANULES * 16, 1.0f);
    float *s = numbers(ROWS * GRANULES * 16, 1.0f);
    float *o = numbers(ROWS * D16, 1.0f);
    for (int g = 0; g < GRANULES; g++) {
        keys[g] = numbers(D * 16, 1.0f);
        values[g] = numbers(D16 * 16, 1.0f);
    }
    for (int rows = 1; rows <= ROWS; rows++) {
        k->attn_scores(q, D, rows, D, keys, GRANULES, s, GRANULES * 16);
        k->attn_values(p, GRANULES * 16, rows, TOKENS, values, D16, o, D16);
        for (int m = 0; m < rows; m++) {
            for (int t = 0; t < GRANULES * 16; t++) {
                double sum = 0.0;
                for (int i = 0; i < D; i++) {
                    sum += (double)q[m * D + i] * (double)keys[t / 16][i * 16 + t % 16];
                }
                CHECK_NEAR(s[m * GRANULES * 16 + t], sum, 1e-5);
            }
            for (int i = 0; i < D16; i++) {
                double sum = 0.0;
                for (int t = 0; t < TOKENS; t++) {
                    sum += (double)p[m * GRANULES * 16 + t] *
                           (double)values[t / 16][t % 16 * D16 + i];
                }
                CHECK_NEAR(o[m * D16 + i], sum, 5e-5);
            }
        }
    }
    for (int g = 0; g < GRANULES; g++) {
        free((void *)(uintptr_t)keys[g]);
        free((void *)(uintptr_t)values[g]);
    }
    free(q);
    free(p);
    free(s);
    free(o);
}

int main(void)
{
    int levels = 0;
    for (int level = KERNELS_PORTABLE; level <= (int)KERNELS_AVX512; level++) {
        k = kernels_at((KernelLevel)level);
        if (k == NULL) {
            continue;
        }
        levels++;
        rng_seed(&rng, 7);
        printf("%s\n", k->name);
        RUN(tiles);
        RUN(rows_of_any_length);
        RUN(sums_of_squares);
        RUN(softmax_rows);
        RUN(nan_stays_nan);
        RUN(backward_rows);
        RUN(rotation_and_back);
        RUN(paged_attention);
    }
    CHECK(levels >= 1);
    CHECK(kernels_best() != NULL);
    return test_end();
}
