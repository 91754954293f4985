#include "core/model/threadpool.h"

#include "core/base/clock.h"
#include "tests/harness.h"

#include <stdatomic.h>

enum { ROUNDS = 300, STAGES = 5 };

typedef struct Shared {
    Pool *pool;
    long plain[8]; /* written by one thread a stage, read by the next: barriers must order it */
    atomic_long calls;
    long wrong;
} Shared;

static void work(void *context, int thread, int threads)
{
    Shared *shared = context;
    atomic_fetch_add(&shared->calls, 1);
    for (int stage = 0; stage < STAGES; stage++) {
        if (stage % threads == thread) {
            long sum = 0;
            for (int i = 0; i < 8; i++) {
                sum += shared->plain[i];
            }
            shared->plain[stage % 8] += sum % 7 + 1;
        }
        pool_barrier(shared->pool);
    }
}

static void stages_in_order(void)
{
    long expected = 0;
    for (int threads = 1; threads <= 5; threads++) {
        Shared shared = {0};
        CHECK_I64(pool_new(threads, &shared.pool, NULL), ERR_OK);
        for (int i = 0; i < ROUNDS; i++) {
            pool_run(shared.pool, work, &shared);
            if (i % 100 == 50) {
                clock_sleep_us(2000); /* long enough for the workers to sleep */
            }
        }
        CHECK_I64(atomic_load(&shared.calls), (long)threads * ROUNDS);
        long sum = 0;
        for (int i = 0; i < 8; i++) {
            sum += shared.plain[i];
        }
        expected = threads == 1 ? sum : expected;
        CHECK_I64(sum, expected);
        pool_free(shared.pool);
    }
}

static void nothing(void *context, int thread, int threads)
{
    (void)context;
    (void)thread;
    (void)threads;
}

static void idle_pool_costs_nothing(void)
{
    Pool *pool = NULL;
    CHECK_I64(pool_new(4, &pool, NULL), ERR_OK);
    pool_run(pool, nothing, NULL);
    bool idle = false;
    for (int i = 0; i < 300 && !idle; i++) { /* on a busy machine workers come to sleep later */
        const int64_t before = clock_cpu_us();
        clock_sleep_us(200000);
        idle = clock_cpu_us() - before < 5000;
    }
    CHECK(idle);
    pool_free(pool);
}

static void refuses(void)
{
    Pool *pool = NULL;
    Fault fault = {0};
    CHECK_I64(pool_new(0, &pool, &fault), ERR_ARG);
    CHECK(pool == NULL && fault.sentence[0] != '\0');
    CHECK_I64(pool_new(POOL_THREADS_MAX + 1, &pool, NULL), ERR_ARG);
    pool_free(NULL);
}

int main(void)
{
    RUN(stages_in_order);
    RUN(idle_pool_costs_nothing);
    RUN(refuses);
    return test_end();
}
