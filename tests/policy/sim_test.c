/* The transaction over thousands of simulated schedules of faults and deaths; see sim.h. */
#include "core/policy/sim.h"

#include "tests/harness.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

static SimReport total;

static bool play(const SimConfig *config)
{
    SimReport report;
    sim_run(config, &report);
    total.transactions += report.transactions;
    total.faulted += report.faulted;
    total.deaths += report.deaths;
    total.virtual_us += report.virtual_us;
    total.samples += report.samples;
    total.resumed += report.resumed;
    total.crossed += report.crossed;
    if (!report.passed) {
        fprintf(stderr, "seed %llu, %d engines, death after write %d, loss %d: %s\n",
                (unsigned long long)config->seed, config->engines, config->die_after_write,
                (int)config->loss, report.broken);
    }
    return report.passed;
}

static void test_small_fleets(void)
{
    int failed = 0;
    for (uint64_t seed = 1; seed <= 5000; seed++) {
        failed += !play(&(SimConfig){.seed = seed});
    }
    CHECK_I64(failed, 0);
}

static char *trace_of(uint64_t seed, size_t *n)
{
    char *text = NULL;
    FILE *memory = open_memstream(&text, n);
    CHECK(memory != NULL);
    CHECK(play(&(SimConfig){.seed = seed, .engines = 5, .trace = memory}));
    fclose(memory);
    return text;
}

static void test_same_seed_same_bytes(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        size_t n[3] = {0};
        char *first = trace_of(seed, &n[0]);
        char *again = trace_of(seed, &n[1]);
        char *other = trace_of(seed + 1000, &n[2]);
        CHECK(n[0] > 1000);
        CHECK(n[0] == n[1] && memcmp(first, again, n[0]) == 0);
        CHECK(n[0] != n[2] || memcmp(first, other, n[0]) != 0);
        free(first);
        free(again);
        free(other);
    }
}

/* Death right after each write of an episode, with all, none and some of what was not synced
 * lost. Covers every prefix of the writes around every decision. */
static void test_death_after_each_write(void)
{
    int failed = 0;
    int tried = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        SimConfig config = {.seed = seed, .engines = 3, .updates = 3, .calm = seed % 3 == 0,
                            .die_after_write = INT_MAX};
        SimReport whole;
        sim_run(&config, &whole);
        CHECK(whole.passed && whole.writes >= 9);
        for (int n = 1; n <= (int)whole.writes; n++) {
            for (int loss = SIM_LOSE_UNSYNCED; loss <= SIM_LOSE_BY_CHANCE; loss++) {
                config.die_after_write = n;
                config.loss = (SimLoss)loss;
                failed += !play(&config);
                tried++;
            }
        }
    }
    CHECK_I64(failed, 0);
    CHECK(tried > 1000);
    printf("     %d deaths enumerated\n", tried);
}

/* 10,000 transactions of 64 engines with at least one fault each. */
static void test_big_fleets(void)
{
    total = (SimReport){0};
    int failed = 0;
    clock_t began = clock();
    for (uint64_t seed = 1; total.faulted < 10000; seed++) {
        failed += !play(&(SimConfig){.seed = seed, .engines = 64});
    }
    double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
    double ratio = (double)total.virtual_us / 1e6 / seconds;
    printf("     %lld faulted transactions of 64 engines in %.1f s of one core, %.0f x real time\n",
           (long long)total.faulted, seconds, ratio);
    CHECK_I64(failed, 0);
    CHECK(seconds < 60.0);
    CHECK(ratio >= 10000.0);
    CHECK(total.deaths > 0 && total.samples > 0);
    CHECK(total.resumed > 0 && total.crossed > 0);
    printf("     %lld samples, %lld gone on from what a cut left, %lld with tokens of two "
           "policies\n", (long long)total.samples, (long long)total.resumed,
           (long long)total.crossed);
}

static void test_largest_fleet(void)
{
    CHECK(play(&(SimConfig){.seed = 3, .engines = SIM_ENGINES_MAX, .updates = 2}));
}

static void test_calm_world_commits_all(void)
{
    SimReport report;
    sim_run(&(SimConfig){.seed = 1, .engines = 8, .updates = 5, .calm = true,
                         .die_after_write = INT_MAX}, &report);
    CHECK(report.passed);
    CHECK_I64(report.faults, 0);
    CHECK_I64(report.quarantines, 0);
    CHECK_I64(report.committed, 5);
}

int main(void)
{
    RUN(test_calm_world_commits_all);
    RUN(test_same_seed_same_bytes);
    RUN(test_small_fleets);
    RUN(test_death_after_each_write);
    RUN(test_big_fleets);
    RUN(test_largest_fleet);
    return test_end();
}
