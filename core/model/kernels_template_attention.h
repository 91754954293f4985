/* Attention over a paged cache: the part of kernels_template.h that only it includes; no guard,
 * for the same reason. */

K_INLINE void score_body(const int rows, const int granules, const float *q, size_t q_step, int d,
                         const float *const *k, float *s, size_t s_step)
{
    vec acc[4][SCORE_VECS];
    K_UNROLL
    for (int m = 0; m < rows; m++) {
        K_UNROLL
        for (int v = 0; v < granules * WORD_VECS; v++) {
            acc[m][v] = v_set(0.0f);
        }
    }
    for (int i = 0; i < d; i++) {
        vec line[SCORE_VECS];
        K_UNROLL
        for (int v = 0; v < granules * WORD_VECS; v++) {
            line[v] = v_load(k[v / WORD_VECS] + (size_t)i * 16 + v % WORD_VECS * VW);
        }
        K_UNROLL
        for (int m = 0; m < rows; m++) {
            const vec x = v_set(q[(size_t)m * q_step + (size_t)i]);
            K_UNROLL
            for (int v = 0; v < granules * WORD_VECS; v++) {
                acc[m][v] = v_fma(x, line[v], acc[m][v]);
            }
        }
    }
    K_UNROLL
    for (int m = 0; m < rows; m++) {
        K_UNROLL
        for (int v = 0; v < granules * WORD_VECS; v++) {
            v_store(s + (size_t)m * s_step + (size_t)(v * VW), acc[m][v]);
        }
    }
}

K_INLINE void score_rows(int rows, const int granules, const float *q, size_t q_step, int d,
                         const float *const *k, float *s, size_t s_step)
{
    switch (rows) {
    case 1:
        score_body(1, granules, q, q_step, d, k, s, s_step);
        break;
    case 2:
        score_body(2, granules, q, q_step, d, k, s, s_step);
        break;
    case 3:
        score_body(3, granules, q, q_step, d, k, s, s_step);
        break;
    case 4:
        score_body(4, granules, q, q_step, d, k, s, s_step);
        break;
    }
}

K_TARGET static void k_attn_scores(const float *q, size_t q_step, int rows, int d,
                                   const float *const *k, int granules, float *s, size_t s_step)
{
    for (int m = 0; m < rows; m += 4) {
        const int some = rows - m < 4 ? rows - m : 4;
        const float *from = q + (size_t)m * q_step;
        float *to = s + (size_t)m * s_step;
        int g = 0;
        for (; g + SCORE_GRANULES <= granules; g += SCORE_GRANULES) {
            score_rows(some, SCORE_GRANULES, from, q_step, d, k + g, to + g * 16, s_step);
        }
        for (; SCORE_GRANULES > 2 && g + 2 <= granules; g += 2) {
            score_rows(some, 2, from, q_step, d, k + g, to + g * 16, s_step);
        }
        for (; g < granules; g++) {
            score_rows(some, 1, from, q_step, d, k + g, to + g * 16, s_step);
        }
    }
}

/* Even and odd granules have sums of their own: one chain of additions would wait for itself. */
K_INLINE void value_tokens(const int rows, const int vecs, const float *p, size_t p_step,
                           const float *row, int tokens, int d16, vec acc[4][VALUE_VECS])
{
    for (int t = 0; t < tokens; t++, row += d16, p++) {
        vec line[VALUE_VECS];
        K_UNROLL
        for (int i = 0; i < vecs; i++) {
            line[i] = v_load(row + i * VW);
        }
        K_UNROLL
        for (int m = 0; m < rows; m++) {
            const vec x = v_set(p[(size_t)m * p_step]);
            K_UNROLL
            for (int i = 0; i < vecs; i++) {
                acc[m][i] = v_fma(x, line[i], acc[m][i]);
            }
        }
    }
}

K_INLINE void value_body(const int rows, const int vecs, const float *p, size_t p_step, int tokens,
                         const float *const *v, int d16, int column, float *o, size_t o_step)
{
    vec even[4][VALUE_VECS];
    vec odd[4][VALUE_VECS];
    K_UNROLL
    for (int m = 0; m < rows; m++) {
        K_UNROLL
        for (int i = 0; i < vecs; i++) {
            even[m][i] = v_set(0.0f);
            odd[m][i] = v_set(0.0f);
        }
    }
    int t = 0;
    for (; t + 32 <= tokens; t += 32) {
        const float *a = v[t / 16] + column;
        const float *b = v[t / 16 + 1] + column;
        for (int i = 0; i < 16; i++, a += d16, b += d16) {
            value_tokens(rows, vecs, p + t + i, p_step, a, 1, d16, even);
            value_tokens(rows, vecs, p + t + i + 16, p_step, b, 1, d16, odd);
        }
    }
    if (t < tokens) {
        const int left = tokens - t;
        value_tokens(rows, vecs, p + t, p_step, v[t / 16] + column, left < 16 ? left : 16, d16,
                     even);
        if (left > 16) {
            value_tokens(rows, vecs, p + t + 16, p_step, v[t / 16 + 1] + column, left - 16, d16,
                         odd);
        }
    }
    K_UNROLL
    for (int m = 0; m < rows; m++) {
        K_UNROLL
        for (int i = 0; i < vecs; i++) {
            v_store(o + (size_t)m * o_step + column + i * VW, even[m][i] + odd[m][i]);
        }
    }
}

K_INLINE void value_rows(int rows, const int vecs, const float *p, size_t p_step, int tokens,
                         const float *const *v, int d16, int column, float *o, size_t o_step)
{
    switch (rows) {
    case 1:
        value_body(1, vecs, p, p_step, tokens, v, d16, column, o, o_step);
        break;
    case 2:
        value_body(2, vecs, p, p_step, tokens, v, d16, column, o, o_step);
        break;
    case 3:
        value_body(3, vecs, p, p_step, tokens, v, d16, column, o, o_step);
        break;
    case 4:
        value_body(4, vecs, p, p_step, tokens, v, d16, column, o, o_step);
        break;
    }
}

K_TARGET static void k_attn_values(const float *p, size_t p_step, int rows, int tokens,
                                   const float *const *v, int d16, float *o, size_t o_step)
{
    for (int m = 0; m < rows; m += 4) {
        const int some = rows - m < 4 ? rows - m : 4;
        const float *from = p + (size_t)m * p_step;
        float *to = o + (size_t)m * o_step;
        int column = 0;
        for (; column + VALUE_VECS * VW <= d16; column += VALUE_VECS * VW) {
            value_rows(some, VALUE_VECS, from, p_step, tokens, v, d16, column, to, o_step);
        }
        for (; column < d16; column += VW) {
            value_rows(some, 1, from, p_step, tokens, v, d16, column, to, o_step);
        }
    }
}
