/* AVX-512 (F, BW, DQ, VL): sixteen lanes, 32 registers. */
#include "core/model/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define K_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define K_NAME "avx512"
#define VW 16
#define TILE_VECS 4
#define TILE_VECS_FEW 8

typedef __m512 vec;
typedef int32_t veci __attribute__((vector_size(64)));

#define v_set(x) _mm512_set1_ps(x)
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, v) _mm512_storeu_ps(p, v)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_max(a, b) _mm512_max_ps(a, b)
#define v_min(a, b) _mm512_min_ps(a, b)
K_TARGET static inline void v_unpack(const uint16_t *p, vec *low, vec *high)
{
    const __m512i v = _mm512_loadu_si512((const __m512i *)(const void *)p);
    *low = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    *high = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000U)));
}

#define V_MASKED
K_TARGET static inline __mmask16 v_mask(int left)
{
    return (__mmask16)(left >= 16 ? 0xffffU : (1U << left) - 1U);
}
K_TARGET static inline vec v_get(const float *p, int left, float fill)
{
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), v_mask(left), p);
}
K_TARGET static inline void v_put(float *p, vec v, int left)
{
    _mm512_mask_storeu_ps(p, v_mask(left), v);
}

#include "core/model/kernels_template.h"

const Kernels *kernels_avx512(void)
{
    return &kernel_table;
}
#endif
