#include "core/base/hash.h"

#include "core/base/hash_update.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

uint64_t hash64(const void *bytes, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(n ? bytes : "", n, seed);
}

typedef void HashUpdate(void *state, const void *bytes, size_t n);

static void update_anywhere(void *state, const void *bytes, size_t n)
{
    (void)XXH3_128bits_update(state, bytes, n); /* cannot fail: neither is NULL */
}

/* 64 and 128 bits differ only in what is made of the state at the end. */
static HashUpdate *best_update(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        return hash_update_avx512;
    }
    if (__builtin_cpu_supports("avx2")) {
        return hash_update_avx2;
    }
#endif
    return update_anywhere;
}

struct Hasher {
    XXH3_state_t *state;
    HashUpdate *update;
};

Hasher *hasher_new(void)
{
    Hasher *hasher = xcalloc(1, sizeof *hasher);
    hasher->state = XXH3_createState();
    if (!hasher->state) {
        abort(); /* a few hundred bytes: as for x-allocators */
    }
    XXH3_128bits_reset(hasher->state);
    hasher->update = best_update();
    return hasher;
}

void hasher_free(Hasher *hasher)
{
    if (hasher) {
        XXH3_freeState(hasher->state);
        free(hasher);
    }
}

void hasher_add(Hasher *hasher, const void *bytes, size_t n)
{
    if (n) {
        hasher->update(hasher->state, bytes, n);
    }
}

void hasher_text(const Hasher *hasher, char out[DIGEST_TEXT])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hasher->state));
    for (size_t i = 0; i < sizeof canonical.digest; i++) {
        snprintf(out + 2 * i, 3, "%02x", canonical.digest[i]);
    }
}

struct Hasher64 {
    XXH3_state_t *state;
    HashUpdate *update;
};

Hasher64 *hasher64_new(void)
{
    Hasher64 *hasher = xcalloc(1, sizeof *hasher);
    hasher->state = XXH3_createState();
    if (!hasher->state) {
        abort(); /* a few hundred bytes: as for x-allocators */
    }
    hasher64_begin(hasher);
    hasher->update = best_update();
    return hasher;
}

void hasher64_free(Hasher64 *hasher)
{
    if (hasher) {
        XXH3_freeState(hasher->state);
        free(hasher);
    }
}

void hasher64_begin(Hasher64 *hasher)
{
    XXH3_64bits_reset(hasher->state);
}

void hasher64_add(Hasher64 *hasher, const void *bytes, size_t n)
{
    if (n) {
        hasher->update(hasher->state, bytes, n);
    }
}

uint64_t hasher64_value(const Hasher64 *hasher)
{
    return XXH3_64bits_digest(hasher->state);
}
