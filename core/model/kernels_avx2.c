/* AVX2 and FMA: eight lanes, 16 registers. */
#include "core/model/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define K_TARGET __attribute__((target("avx2,fma")))
#define K_NAME "avx2"
#define VW 8
#define TILE_VECS 2
#define TILE_VECS_FEW 4

typedef __m256 vec;
typedef int32_t veci __attribute__((vector_size(32)));

#define v_set(x) _mm256_set1_ps(x)
#define v_load(p) _mm256_loadu_ps(p)
#define v_store(p, v) _mm256_storeu_ps(p, v)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define v_max(a, b) _mm256_max_ps(a, b)
#define v_min(a, b) _mm256_min_ps(a, b)
K_TARGET static inline void v_unpack(const uint16_t *p, vec *low, vec *high)
{
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
    *low = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    *high = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000U)));
}

#include "core/model/kernels_template.h"

const Kernels *kernels_avx2(void)
{
    return &kernel_table;
}
#endif
