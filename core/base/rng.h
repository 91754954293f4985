/* Random numbers: every generator is explicit state seeded by the caller; nothing global. */
#ifndef ROLLTOP_BASE_RNG_H
#define ROLLTOP_BASE_RNG_H

#include <stdint.h>

/* xoshiro256++ seeded through splitmix64: sampling, simulators, jitter. */
typedef struct Rng {
    uint64_t s[4];
} Rng;
void rng_seed(Rng *rng, uint64_t seed);
uint64_t rng_u64(Rng *rng);
double rng_unit(Rng *rng);                     /* [0, 1), 53 bits */
uint64_t rng_below(Rng *rng, uint64_t bound);  /* unbiased; bound > 0 */
double rng_normal(Rng *rng);                   /* mean 0, variance 1 */

/* Mersenne Twister as CPython seeds and draws it: data order must equal slime's
 * (slime-semantics 2.2; datasource-vectors.json). */
typedef struct PyRandom {
    uint32_t state[624];
    int at;
} PyRandom;
void py_random_seed(PyRandom *r, int64_t seed);
uint32_t py_random_below(PyRandom *r, uint32_t bound); /* randbelow, bound > 0 */
void py_random_shuffle(PyRandom *r, uint32_t *items, uint32_t count);

#endif
