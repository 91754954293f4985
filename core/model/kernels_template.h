/* The loops themselves; no guard, because each kernels_*.c includes this once after it defined
 * vec, veci, VW (lanes), TILE_VECS (vectors of columns in a register tile), TILE_VECS_FEW (for one
 * or two rows), K_TARGET, K_NAME and the v_ primitives. */

#define K_INLINE K_TARGET static inline __attribute__((always_inline))
#define K_UNROLL _Pragma("GCC unroll 16")
#define PANEL_VECS (KERNEL_PANEL / VW)
#define WORD_VECS (16 / VW) /* vectors of 32-bit words in a BF16 panel's row */
#define TILE_ROWS 6
/* columns of the widest tile, at least one panel */
#define TILE_ROOM (TILE_VECS_FEW * VW > KERNEL_PANEL ? TILE_VECS_FEW * VW : KERNEL_PANEL)
#define SCORE_GRANULES (VW == 16 ? 4 : 1)
#define SCORE_VECS ((SCORE_GRANULES > 2 ? SCORE_GRANULES : 2) * WORD_VECS)
#define VALUE_VECS 2

/* ---- vectors with a tail ------------------------------------------------------------------ */

#ifndef V_MASKED /* the instruction set has no loads of a part */
K_INLINE vec v_get(const float *p, int left, float fill)
{
    if (left >= VW) {
        return v_load(p);
    }
    float part[VW];
    for (int i = 0; i < VW; i++) {
        part[i] = i < left ? p[i] : fill;
    }
    return v_load(part);
}

K_INLINE void v_put(float *p, vec v, int left)
{
    if (left >= VW) {
        v_store(p, v);
        return;
    }
    float part[VW];
    v_store(part, v);
    for (int i = 0; i < left; i++) {
        p[i] = part[i];
    }
}
#endif

K_INLINE float v_sum(vec v)
{
    float part[VW];
    v_store(part, v);
    K_UNROLL
    for (int step = VW / 2; step > 0; step /= 2) {
        K_UNROLL
        for (int i = 0; i < step; i++) {
            part[i] += part[i + step];
        }
    }
    return part[0];
}

K_INLINE float v_top(vec v)
{
    float part[VW];
    v_store(part, v);
    float top = part[0];
    for (int i = 1; i < VW; i++) {
        top = part[i] > top ? part[i] : top;
    }
    return top;
}

/* exp to about one unit in the last place: 2^n times a polynomial on [-ln2/2, ln2/2] (the
 * coefficients of Cephes' expf). Below the range 1e-38 instead of 0, above it a large number. */
K_INLINE vec v_exp(vec x)
{
    const vec magic = v_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    x = v_min(v_set(88.0f), v_max(v_set(-87.0f), x)); /* in this order a NaN stays a NaN */
    const vec shifted = v_fma(x, v_set(1.44269504f), magic);
    const vec n = shifted - magic;
    vec r = v_fma(n, v_set(-0.693359375f), x);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    vec y = v_set(1.9875691500e-4f);
    y = v_fma(y, r, v_set(1.3981999507e-3f));
    y = v_fma(y, r, v_set(8.3334519073e-3f));
    y = v_fma(y, r, v_set(4.1665795894e-2f));
    y = v_fma(y, r, v_set(1.6666665459e-1f));
    y = v_fma(y, r, v_set(5.0000001201e-1f));
    y = v_fma(y * r, r, r + v_set(1.0f));
    const veci power = (((veci)shifted - (veci)magic) + 127) << 23;
    return y * (vec)power;
}

/* ---- matrix tiles ------------------------------------------------------------------------- */

/* Where vector v of a tile lies, in columns behind the tile's first panel. `part` counts tiles
 * inside one panel where a tile is narrower than a panel. */
K_INLINE size_t tile_column(const int vecs, const bool bf16, int v, int part)
{
    if (bf16) {
        const int unit = v / 2;
        const int word = (part * (vecs / 2) + unit % WORD_VECS) * VW;
        return (size_t)(unit / WORD_VECS * KERNEL_PANEL + word + (v & 1) * 16);
    }
    return (size_t)(v / PANEL_VECS * KERNEL_PANEL + (part * vecs + v % PANEL_VECS) * VW);
}

K_INLINE void tile_load(const int vecs, const bool bf16, const void *b, size_t b_panel, int part,
                        vec *out)
{
    if (bf16) {
        const uint16_t *words = b;
        K_UNROLL
        for (int v = 0; v < vecs; v += 2) {
            const size_t column = tile_column(vecs, true, v, part);
            v_unpack(words + column / KERNEL_PANEL * b_panel + column % KERNEL_PANEL * 2, &out[v],
                     &out[v + 1]);
        }
        return;
    }
    const float *floats = b;
    K_UNROLL
    for (int v = 0; v < vecs; v++) {
        const size_t column = tile_column(vecs, false, v, part);
        out[v] = v_load(floats + column / KERNEL_PANEL * b_panel + column % KERNEL_PANEL);
    }
}

K_INLINE void tile_body(const int rows, const int vecs, const bool bf16, const bool transposed,
                        const Tile *t, const float *a, const void *b, int part, float *c,
                        size_t c_step, bool add)
{
    vec acc[TILE_ROWS][TILE_VECS_FEW];
    K_UNROLL
    for (int m = 0; m < rows; m++) {
        K_UNROLL
        for (int v = 0; v < vecs; v++) {
            acc[m][v] = v_set(0.0f);
        }
    }
    const size_t a_row = transposed ? 1 : t->a_step;
    const size_t a_k = transposed ? t->a_step : 1;
    const size_t b_k = bf16 ? KERNEL_PANEL * sizeof(uint16_t) : KERNEL_PANEL * sizeof(float);
    const int count = t->k;
    const size_t b_panel = t->b_panel;
    const char *row = b;
    for (int k = 0; k < count; k++) {
        vec line[TILE_VECS_FEW];
        tile_load(vecs, bf16, row, b_panel, part, line);
        K_UNROLL
        for (int m = 0; m < rows; m++) {
            const vec x = v_set(a[(size_t)m * a_row]);
            K_UNROLL
            for (int v = 0; v < vecs; v++) {
                acc[m][v] = v_fma(x, line[v], acc[m][v]);
            }
        }
        a += a_k;
        row += b_k;
    }
    K_UNROLL
    for (int m = 0; m < rows; m++) {
        K_UNROLL
        for (int v = 0; v < vecs; v++) {
            float *at = c + (size_t)m * c_step + tile_column(vecs, bf16, v, part);
            vec result = acc[m][v];
            if (add) {
                result = v_load(at) + result;
            }
            v_store(at, result);
        }
    }
}

#define K_TILE_CASE(R)                                                                            \
    case R:                                                                                       \
        if (vecs <= TILE_VECS || R <= 2) {                                                        \
            tile_body(R, vecs, bf16, transposed, t, a, b, part, c, c_step, add);                  \
        }                                                                                         \
        break;

K_INLINE void tile_rows(int rows, const int vecs, const bool bf16, const bool transposed,
                        const Tile *t, const float *a, const void *b, int part, float *c,
                        size_t c_step, bool add)
{
    switch (rows) {
        K_TILE_CASE(1)
        K_TILE_CASE(2)
        K_TILE_CASE(3)
        K_TILE_CASE(4)
        K_TILE_CASE(5)
        K_TILE_CASE(6)
    }
}

/* All rows of a tile against `panels` panels from `panel` on; the last may be cut by t->cols. */
K_INLINE void tile_columns(const int vecs, const bool bf16, const bool transposed, const Tile *t,
                           int panel)
{
    const int panels = vecs > PANEL_VECS ? vecs / PANEL_VECS : 1;
    const int parts = vecs < PANEL_VECS ? PANEL_VECS / vecs : 1;
    const int first = panel * KERNEL_PANEL;
    const int width = panels * KERNEL_PANEL;
    const bool cut = first + width > t->cols;
    const char *b = t->b;
    b += (size_t)panel * t->b_panel * (bf16 ? sizeof(uint16_t) : sizeof(float));
    const int tiles = (t->rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int i = 0; i < tiles; i++) {
        const int from = (int)((int64_t)t->rows * i / tiles);
        const int rows = (int)((int64_t)t->rows * (i + 1) / tiles) - from;
        const float *a = t->a + (size_t)from * (transposed ? 1 : t->a_step);
        float *c = t->c + (size_t)from * t->c_step + first;
        float room[TILE_ROWS * TILE_ROOM];
        for (int part = 0; part < parts; part++) {
            tile_rows(rows, vecs, bf16, transposed, t, a, b, part, cut ? room : c,
                      cut ? (size_t)width : t->c_step, t->add && !cut);
        }
        for (int m = 0; cut && m < rows; m++) {
            for (int n = 0; n < t->cols - first; n++) {
                float *at = c + (size_t)m * t->c_step + n;
                const float value = room[m * width + n];
                *at = t->add ? *at + value : value;
            }
        }
    }
}

K_INLINE void tile_all(const bool bf16, const bool transposed, const Tile *t)
{
    const int panels = (t->cols + KERNEL_PANEL - 1) / KERNEL_PANEL;
    const int few = TILE_VECS_FEW > PANEL_VECS ? TILE_VECS_FEW / PANEL_VECS : 1;
    const int many = TILE_VECS > PANEL_VECS ? TILE_VECS / PANEL_VECS : 1;
    int panel = 0;
    while (t->rows <= 2 && panel + few <= panels) {
        tile_columns(TILE_VECS_FEW, bf16, transposed, t, panel);
        panel += few;
    }
    while (panel + many <= panels) {
        tile_columns(TILE_VECS, bf16, transposed, t, panel);
        panel += many;
    }
    while (panel < panels) {
        tile_columns(TILE_VECS < PANEL_VECS ? TILE_VECS : PANEL_VECS, bf16, transposed, t, panel);
        panel++;
    }
}

K_TARGET static void k_tile(const Tile *t)
{
    if (t->a_transposed) {
        tile_all(false, true, t);
    } else {
        tile_all(false, false, t);
    }
}

K_TARGET static void k_tile_bf16(const Tile *t)
{
    tile_all(true, false, t);
}

/* ---- rows --------------------------------------------------------------------------------- */

K_TARGET static float k_dot(const float *a, const float *b, int n)
{
    vec sum = v_set(0.0f);
    for (int i = 0; i < n; i += VW) {
        sum = v_fma(v_get(a + i, n - i, 0.0f), v_get(b + i, n - i, 0.0f), sum);
    }
    return v_sum(sum);
}

K_TARGET static void k_axpy(float *y, float a, const float *x, int n)
{
    const vec factor = v_set(a);
    for (int i = 0; i < n; i += VW) {
        v_put(y + i, v_fma(factor, v_get(x + i, n - i, 0.0f), v_get(y + i, n - i, 0.0f)), n - i);
    }
}

K_TARGET static void k_scale(float *y, float a, int n)
{
    const vec factor = v_set(a);
    for (int i = 0; i < n; i += VW) {
        v_put(y + i, factor * v_get(y + i, n - i, 0.0f), n - i);
    }
}

K_TARGET static float k_rms(const float *x, int n, float eps)
{
    return 1.0f / __builtin_sqrtf(k_dot(x, x, n) / (float)n + eps);
}

K_TARGET static void k_rms_apply(const float *x, const float *w, float rstd, int n, float *out)
{
    const vec factor = v_set(rstd);
    for (int i = 0; i < n; i += VW) {
        v_put(out + i, v_get(x + i, n - i, 0.0f) * factor * v_get(w + i, n - i, 0.0f), n - i);
    }
}

K_TARGET static void k_rms_backward(const float *x, const float *w, float rstd, const float *dy,
                                    int n, bool add, float *dx, float *dw)
{
    vec sum = v_set(0.0f);
    for (int i = 0; i < n; i += VW) {
        const vec scaled = v_get(x + i, n - i, 0.0f) * v_set(rstd);
        const vec gradient = v_get(dy + i, n - i, 0.0f);
        const vec product = gradient * scaled;
        sum = v_fma(product, v_get(w + i, n - i, 0.0f), sum);
        v_put(dw + i, v_get(dw + i, n - i, 0.0f) + product, n - i);
    }
    const vec mean = v_set(v_sum(sum) / (float)n);
    for (int i = 0; i < n; i += VW) {
        const vec scaled = v_get(x + i, n - i, 0.0f) * v_set(rstd);
        const vec inner = v_get(w + i, n - i, 0.0f) * v_get(dy + i, n - i, 0.0f) - scaled * mean;
        const vec old = add ? v_get(dx + i, n - i, 0.0f) : v_set(0.0f);
        v_put(dx + i, v_fma(inner, v_set(rstd), old), n - i);
    }
}

K_TARGET static void k_rope(float *x, const float *cosine, const float *sine, float sign, int half)
{
    for (int i = 0; i < half; i += VW) {
        const int left = half - i;
        const vec c = v_get(cosine + i, left, 0.0f);
        const vec s = v_get(sine + i, left, 0.0f) * v_set(sign);
        const vec a = v_get(x + i, left, 0.0f);
        const vec b = v_get(x + half + i, left, 0.0f);
        v_put(x + i, a * c - b * s, left);
        v_put(x + half + i, b * c + a * s, left);
    }
}

K_TARGET static void k_swiglu(const float *gate, const float *up, int n, float *out)
{
    const vec one = v_set(1.0f);
    for (int i = 0; i < n; i += VW) {
        const vec g = v_get(gate + i, n - i, 0.0f);
        const vec u = v_get(up + i, n - i, 0.0f);
        v_put(out + i, g * u / (one + v_exp(-g)), n - i);
    }
}

K_TARGET static void k_swiglu_backward(float *gate, float *up, float *dout, int n)
{
    const vec one = v_set(1.0f);
    for (int i = 0; i < n; i += VW) {
        const int left = n - i;
        const vec g = v_get(gate + i, left, 0.0f);
        const vec u = v_get(up + i, left, 0.0f);
        const vec d = v_get(dout + i, left, 0.0f);
        const vec sigmoid = one / (one + v_exp(-g));
        const vec silu = g * sigmoid;
        v_put(up + i, d * silu, left);
        v_put(gate + i, d * u * sigmoid * (one + g - silu), left);
        v_put(dout + i, silu * u, left);
    }
}

K_TARGET static float k_max(const float *s, int n)
{
    vec top = v_get(s, n, -__builtin_inff());
    for (int i = VW; i < n; i += VW) {
        top = v_max(top, v_get(s + i, n - i, -__builtin_inff()));
    }
    return v_top(top);
}

K_TARGET static float k_softmax(float *s, int n, float *max)
{
    const float top = k_max(s, n);
    vec sum = v_set(0.0f);
    int i = 0;
    for (; i + VW <= n; i += VW) {
        const vec e = v_exp(v_load(s + i) - v_set(top));
        v_store(s + i, e);
        sum += e;
    }
    float total = v_sum(sum);
    if (i < n) {
        float part[VW];
        v_store(part, v_exp(v_get(s + i, n - i, top) - v_set(top)));
        for (int j = 0; i + j < n; j++) {
            s[i + j] = part[j];
            total += part[j];
        }
    }
    *max = top;
    return total;
}

K_TARGET static void k_exp_minus(float *s, float bias, int n)
{
    const vec shift = v_set(bias);
    for (int i = 0; i < n; i += VW) {
        v_put(s + i, v_exp(v_get(s + i, n - i, 0.0f) - shift), n - i);
    }
}

K_TARGET static void k_ds(const float *p, float *dp, float delta, int n)
{
    const vec shift = v_set(delta);
    for (int i = 0; i < n; i += VW) {
        v_put(dp + i, v_get(p + i, n - i, 0.0f) * (v_get(dp + i, n - i, 0.0f) - shift), n - i);
    }
}

K_TARGET static LogitSums k_logit_sums(const float *z, float inv_temperature, int n)
{
    const float top = k_max(z, n) * inv_temperature;
    const vec factor = v_set(inv_temperature);
    vec sum = v_set(0.0f);
    vec weighted = v_set(0.0f);
    int i = 0;
    for (; i + VW <= n; i += VW) {
        const vec shifted = v_load(z + i) * factor - v_set(top);
        const vec e = v_exp(shifted);
        sum += e;
        weighted = v_fma(e, shifted, weighted);
    }
    LogitSums out = {.max = top, .sum = v_sum(sum), .weighted = v_sum(weighted)};
    if (i < n) {
        const vec shifted = v_get(z + i, n - i, 0.0f) * factor - v_set(top);
        float terms[VW];
        float exps[VW];
        v_store(terms, shifted);
        v_store(exps, v_exp(shifted));
        for (int j = 0; i + j < n; j++) {
            out.sum += exps[j];
            out.weighted += exps[j] * terms[j];
        }
    }
    return out;
}

K_TARGET static void k_logit_grad(float *z, float inv_temperature, float lse, float entropy,
                                  float g, float h, int n)
{
    const vec factor = v_set(inv_temperature);
    const vec a = v_set(-g * inv_temperature);
    const vec b = v_set(-h * inv_temperature);
    for (int i = 0; i < n; i += VW) {
        const vec logp = v_get(z + i, n - i, 0.0f) * factor - v_set(lse);
        v_put(z + i, v_exp(logp) * v_fma(b, logp + v_set(entropy), a), n - i);
    }
}

/* ---- attention over a paged cache --------------------------------------------------------- */

#include "core/model/kernels_template_attention.h"

/* ---- checks of weights -------------------------------------------------------------------- */

enum { SQUARE_LANES = 32 };

K_INLINE float from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

K_TARGET static double k_square_sum(const float *x, size_t n)
{
    double lane[SQUARE_LANES] = {0};
    double sum = 0.0;
    size_t i = 0;
    for (; i + SQUARE_LANES <= n; i += SQUARE_LANES) {
        for (size_t l = 0; l < SQUARE_LANES; l++) {
            lane[l] += (double)x[i + l] * (double)x[i + l];
        }
    }
    for (; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    for (int l = 0; l < SQUARE_LANES; l++) {
        sum += lane[l];
    }
    return sum;
}

K_TARGET static double k_square_sum_bf16(const uint16_t *x, size_t n)
{
    double lane[SQUARE_LANES] = {0};
    double sum = 0.0;
    size_t i = 0;
    for (; i + SQUARE_LANES <= n; i += SQUARE_LANES) {
        for (size_t l = 0; l < SQUARE_LANES; l++) {
            const double value = (double)from_bf16(x[i + l]);
            lane[l] += value * value;
        }
    }
    for (; i < n; i++) {
        const double value = (double)from_bf16(x[i]);
        sum += value * value;
    }
    for (int l = 0; l < SQUARE_LANES; l++) {
        sum += lane[l];
    }
    return sum;
}

static const Kernels kernel_table = {
    .name = K_NAME,
    .tile = k_tile,
    .tile_bf16 = k_tile_bf16,
    .dot = k_dot,
    .axpy = k_axpy,
    .scale = k_scale,
    .rms = k_rms,
    .rms_apply = k_rms_apply,
    .rms_backward = k_rms_backward,
    .rope = k_rope,
    .swiglu = k_swiglu,
    .swiglu_backward = k_swiglu_backward,
    .softmax = k_softmax,
    .exp_minus = k_exp_minus,
    .ds = k_ds,
    .logit_sums = k_logit_sums,
    .logit_grad = k_logit_grad,
    .attn_scores = k_attn_scores,
    .attn_values = k_attn_values,
    .square_sum = k_square_sum,
    .square_sum_bf16 = k_square_sum_bf16,
};
