#include "core/base/rng.h"

#include <math.h>

static uint64_t splitmix(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void rng_seed(Rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        rng->s[i] = splitmix(&seed);
    }
}

static uint64_t rotate(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t rng_u64(Rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t result = rotate(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

double rng_unit(Rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

uint64_t rng_below(Rng *rng, uint64_t bound)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    uint64_t v = rng_u64(rng);
    while (v >= limit) {
        v = rng_u64(rng);
    }
    return v % bound;
}

double rng_normal(Rng *rng)
{
    /* Box-Muller, one of the pair: simple and stateless. */
    double u = 1.0 - rng_unit(rng);
    double v = rng_unit(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* ---- Mersenne Twister, CPython's way ------------------------------------------------------- */

enum { MT_N = 624, MT_M = 397 };

static void mt_init(PyRandom *r, uint32_t seed)
{
    r->state[0] = seed;
    for (uint32_t i = 1; i < MT_N; i++) {
        uint32_t before = r->state[i - 1];
        r->state[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    r->at = MT_N;
}

void py_random_seed(PyRandom *r, int64_t seed)
{
    uint64_t magnitude = seed < 0 ? 0u - (uint64_t)seed : (uint64_t)seed;
    uint32_t key[2] = {(uint32_t)magnitude, (uint32_t)(magnitude >> 32)};
    uint32_t key_count = key[1] ? 2 : 1;
    mt_init(r, 19650218u);
    uint32_t i = 1;
    uint32_t j = 0;
    for (int k = MT_N; k > 0; k--) {
        uint32_t before = r->state[i - 1];
        r->state[i] = (r->state[i] ^ ((before ^ (before >> 30)) * 1664525u)) + key[j] + j;
        if (++i >= MT_N) {
            r->state[0] = r->state[MT_N - 1];
            i = 1;
        }
        if (++j >= key_count) {
            j = 0;
        }
    }
    for (int k = MT_N - 1; k > 0; k--) {
        uint32_t before = r->state[i - 1];
        r->state[i] = (r->state[i] ^ ((before ^ (before >> 30)) * 1566083941u)) - i;
        if (++i >= MT_N) {
            r->state[0] = r->state[MT_N - 1];
            i = 1;
        }
    }
    r->state[0] = 0x80000000u;
    r->at = MT_N;
}

static void mt_refill(PyRandom *r)
{
    for (uint32_t i = 0; i < MT_N; i++) {
        uint32_t y = (r->state[i] & 0x80000000u) | (r->state[(i + 1) % MT_N] & 0x7fffffffu);
        r->state[i] = r->state[(i + MT_M) % MT_N] ^ (y >> 1) ^ ((y & 1u) ? 0x9908b0dfu : 0u);
    }
    r->at = 0;
}

static uint32_t py_random_u32(PyRandom *r)
{
    if (r->at >= MT_N) {
        mt_refill(r);
    }
    uint32_t y = r->state[r->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint32_t py_random_below(PyRandom *r, uint32_t bound)
{
    int bits = 32 - __builtin_clz(bound);
    uint32_t v = py_random_u32(r) >> (32 - bits);
    while (v >= bound) {
        v = py_random_u32(r) >> (32 - bits);
    }
    return v;
}

void py_random_shuffle(PyRandom *r, uint32_t *items, uint32_t count)
{
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = py_random_below(r, i + 1);
        uint32_t swap = items[i];
        items[i] = items[j];
        items[j] = swap;
    }
}
