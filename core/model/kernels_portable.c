/* Plain C with GCC's vector extension: four lanes, which every 64-bit machine has. */
#include "core/model/kernels.h"

#include <string.h>

#define K_TARGET
#define K_NAME "portable"
#define VW 4
#define TILE_VECS 2
#define TILE_VECS_FEW 2

typedef float vec __attribute__((vector_size(16)));
typedef int32_t veci __attribute__((vector_size(16)));

static inline vec v_set(float x)
{
    return (vec){x, x, x, x};
}
static inline vec v_load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof(v));
    return v;
}
static inline void v_store(float *p, vec v)
{
    memcpy(p, &v, sizeof(v));
}
static inline vec v_fma(vec a, vec b, vec c)
{
    return a * b + c;
}
static inline vec v_select(veci mask, vec a, vec b)
{
    return (vec)(((veci)a & mask) | ((veci)b & ~mask));
}
static inline vec v_max(vec a, vec b)
{
    return v_select(a > b, a, b);
}
static inline vec v_min(vec a, vec b)
{
    return v_select(a < b, a, b);
}
/* Columns c … c+3 (low halves) and c+16 … c+19 (high halves) of a BF16 panel's row. */
static inline void v_unpack(const uint16_t *p, vec *low, vec *high)
{
    veci v;
    memcpy(&v, p, sizeof(v));
    *low = (vec)(v << 16);
    *high = (vec)(v & (int32_t)0xffff0000);
}

#include "core/model/kernels_template.h"

const Kernels *kernels_portable(void)
{
    return &kernel_table;
}
