/* How long the first token of a sample is waited for while an engine holds what it is given. */
#include "core/loop/first_token.h"

#include "tests/harness.h"

static const int64_t S = 1000000, SILENCE = 60000000;

static void test_bounds(void)
{
    CHECK_I64(first_token_bound_us(0, 1, SILENCE), SILENCE); /* nobody has answered yet */
    CHECK_I64(first_token_bound_us(20000, 1, SILENCE), 1 * S);
    CHECK_I64(first_token_bound_us(5 * S, 1, SILENCE), 10 * S); /* they queue */
    CHECK_I64(first_token_bound_us(40 * S, 1, SILENCE), SILENCE);
    CHECK_I64(first_token_bound_us(INT64_MAX / 4, 1, SILENCE), SILENCE);
}

static void test_each_attempt_waits_longer(void)
{
    static const int64_t bounds[] = {1, 1, 1, 1, 2, 4, 8, 16, 32, 60, 60};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        CHECK_I64(first_token_bound_us(1000, (int)i + 1, SILENCE), bounds[i] * S);
    }
    CHECK_I64(first_token_bound_us(1000, INT32_MAX, SILENCE), SILENCE);
}

int main(void)
{
    RUN(test_bounds);
    RUN(test_each_attempt_waits_longer);
    return test_end();
}
