#include "core/loop/first_token.h"

static const int64_t LEAST_US = 1000000;

enum { SAME_ATTEMPTS = 4 };

int64_t first_token_bound_us(int64_t longest_us, int attempt, int64_t silence_us)
{
    if (longest_us <= 0) {
        return silence_us;
    }
    int64_t bound_us = longest_us < LEAST_US / 2 ? LEAST_US : 2 * longest_us;
    for (int i = SAME_ATTEMPTS; i < attempt && bound_us < silence_us; i++) {
        bound_us *= 2;
    }
    return bound_us < silence_us ? bound_us : silence_us;
}
