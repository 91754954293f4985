/* Which attempts may have been made by an engine while only its canary should have run. */
#include "core/policy/canary_window.h"

#include "tests/harness.h"

static const int64_t S = 1000000;

static void test_nothing_without_a_window(void)
{
    CanaryWindow window = {0};
    CHECK(!canary_window_covers(&window, 1 * S, 2 * S, 3 * S));
    CHECK(!canary_window_covers(&window, 0, 0, 3 * S));
}

static void test_what_fits_into_it(void)
{
    CanaryWindow window = {0};
    canary_window_open(&window, 10 * S);
    CHECK(canary_window_covers(&window, 1 * S, 10 * S + 1, 11 * S)); /* was held before */
    CHECK(!canary_window_covers(&window, 1 * S, 9 * S, 11 * S)); /* had tokens before */
    CHECK(canary_window_covers(&window, 1 * S, 0, 11 * S)); /* a whole reply */
    canary_window_close(&window, 12 * S);
    CHECK(canary_window_covers(&window, 11 * S, 11 * S + 1, 12 * S + 500000)); /* told late */
    CHECK(!canary_window_covers(&window, 11 * S, 11 * S + 1, 15 * S)); /* outlived the pause */
    CHECK(!canary_window_covers(&window, 12 * S + 1, 12 * S + 9, 13 * S)); /* sent after it */
}

static void test_windows_of_several_engines(void)
{
    CanaryWindow window = {0};
    canary_window_open(&window, 10 * S);
    canary_window_open(&window, 11 * S);
    canary_window_close(&window, 12 * S);
    CHECK(canary_window_covers(&window, 1 * S, 10 * S, 60 * S)); /* one is open yet */
    canary_window_close(&window, 13 * S);
    canary_window_open(&window, 14 * S); /* what was told late belongs to the first */
    CHECK(canary_window_covers(&window, 1 * S, 11 * S, 14 * S));
    canary_window_close(&window, 15 * S);
    canary_window_open(&window, 30 * S);
    CHECK(!canary_window_covers(&window, 1 * S, 14 * S, 31 * S));
    CHECK(canary_window_covers(&window, 1 * S, 30 * S, 31 * S));
}

int main(void)
{
    RUN(test_nothing_without_a_window);
    RUN(test_what_fits_into_it);
    RUN(test_windows_of_several_engines);
    return test_end();
}
