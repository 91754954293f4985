/* xxHash, as digests of artifacts and as keys. */
#ifndef ROLLTOP_BASE_HASH_H
#define ROLLTOP_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { DIGEST_TEXT = 33 }; /* 32 hex digits and the NUL */

uint64_t hash64(const void *bytes, size_t n, uint64_t seed); /* XXH3-64 */

typedef struct Hasher Hasher; /* streaming XXH3-128 */
Hasher *hasher_new(void);
void hasher_free(Hasher *hasher);
void hasher_add(Hasher *hasher, const void *bytes, size_t n);
void hasher_text(const Hasher *hasher, char out[DIGEST_TEXT]); /* canonical, lower-case hex */

typedef struct Hasher64 Hasher64; /* streaming hash64 with seed 0 */
Hasher64 *hasher64_new(void);
void hasher64_free(Hasher64 *hasher);
void hasher64_begin(Hasher64 *hasher); /* forgets what was added; a new one needs none */
void hasher64_add(Hasher64 *hasher, const void *bytes, size_t n);
uint64_t hasher64_value(const Hasher64 *hasher);

#endif
