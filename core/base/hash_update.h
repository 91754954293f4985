/* Private to hash.c: XXH3's inner loop for instruction sets beyond the library's, which is built
 * for the oldest processors. Same state, same digests; half the time a byte. */
#ifndef ROLLTOP_BASE_HASH_UPDATE_H
#define ROLLTOP_BASE_HASH_UPDATE_H

#include <stddef.h>

/* `state` is an XXH3_state_t. Only for processors that have the instructions. */
void hash_update_avx2(void *state, const void *bytes, size_t n);
void hash_update_avx512(void *state, const void *bytes, size_t n);

#endif
