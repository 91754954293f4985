#include "core/base/hash_update.h"

#if defined(__x86_64__)
#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX2
#include <xxhash.h>

void hash_update_avx2(void *state, const void *bytes, size_t n)
{
    XXH3_128bits_update(state, bytes, n);
}
#endif
