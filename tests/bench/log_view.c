/* State at any T: what a frame costs on a short and on a long log, live and far in the past. The
 * times should not grow with the file. Arguments: rows of the long log (default 4,000,000),
 * engines (default 16), directory. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/str.h"
#include "store/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FRAMES = 60, PER_SECOND = 4, FLIGHTS = 256 };
#define T0 INT64_C(1773484927000000)

static void remove_log(const char *path)
{
    static const char *const tails[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        char *name = xasprintf("%s%s", path, tails[i]);
        unlink(name);
        free(name);
    }
}

static void put_probe(Store *store, int64_t engine, int64_t t_us, double total)
{
    ProbeFact fact = {.engine = engine,
                      .incarnation = 1,
                      .t_us = t_us,
                      .latency_us = 900,
                      .kind = PROBE_LOADS,
                      .outcome = "ok",
                      .status = 200,
                      .running = val_of(16, t_us),
                      .waiting = val_of(0, t_us),
                      .token_usage = val_of(0.6, t_us),
                      .gen_tokens_total = val_of(total, t_us),
                      .policy_version = 3};
    store_put_probe(store, &fact);
}

static void put_second(Store *store, int64_t second, int64_t engines, int64_t *sample)
{
    int64_t t_us = T0 + second * 1000000;
    if (second % 60 == 0) {
        StepFact step = {.step = second / 60, .t_us = t_us, .policy_version = second / 60};
        store_put_step(store, &step);
        for (int i = 0; i < FLIGHTS; i++) {
            SampleStartFact start = {.sample = ++*sample, .group = *sample / 8 + 1,
                                     .step = second / 60, .t_us = t_us + i, .attempt = 1};
            store_put_sample_start(store, &start);
        }
    }
    for (int i = 0; i < FLIGHTS; i++) {
        SampleProgressFact p = {.sample = *sample - i, .t_us = t_us + 1000 + i,
                                .engine = 1 + i % engines, .tokens = (second % 60) * 40};
        if (second % 60 < 50) {
            store_put_sample_progress(store, &p);
        }
    }
    for (int i = 0; i < FLIGHTS && second % 60 == 50; i++) {
        SampleEndFact end = {.sample = *sample - i, .t_us = t_us + i, .engine = 1 + i % engines,
                             .attempt = 1, .fate = FATE_ACCEPTED, .finish = "stop",
                             .reward = val_of(0.5, t_us), .first_token_us = 40000};
        store_put_sample_end(store, &end);
    }
    if (second % 60 == 59) {
        StepFact step = {.step = second / 60, .t_us = t_us, .end = true, .outcome = "ok",
                         .samples = FLIGHTS, .reward_mean = val_of(0.5, t_us)};
        store_put_step(store, &step);
    }
    for (int i = 0; i < PER_SECOND; i++) {
        for (int64_t e = 1; e <= engines; e++) {
            put_probe(store, e, t_us + i * 250000 + e * 10, (double)second * 1000 + i * 250);
        }
    }
}

static int64_t build(const char *path, int64_t rows, int64_t engines)
{
    Store *store = NULL;
    Fault fault = {0};
    remove_log(path);
    if (store_open(path, NULL, &store, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    for (int64_t e = 1; e <= engines; e++) {
        char name[16];
        (void)str_format(name, sizeof name, "eng-%02lld", (long long)e - 1);
        EngineFact engine = {.engine = e, .t_us = T0, .name = name, .address = "127.0.0.1:1"};
        store_put_engine(store, &engine);
        EngineStateFact up = {.engine = e, .incarnation = 1, .t_us = T0, .state = ENGINE_UP};
        store_put_engine_state(store, &up);
    }
    int64_t seconds = rows / (engines * PER_SECOND + FLIGHTS * 50 / 60) + 1;
    int64_t sample = 0;
    for (int64_t s = 0; s < seconds; s++) {
        put_second(store, s, engines, &sample);
        uint64_t ticket = store_ticket(store);
        while (ticket - store_durable(store) > 20000) {
            store_wait(store, ticket - 10000, 10000, NULL);
        }
    }
    if (store_dropped(store) > 0) {
        fprintf(stderr, "log_view: rows were dropped while building\n");
    }
    store_close(store);
    return seconds;
}

typedef struct Cost {
    double header, engines, tail, steps;
} Cost;

static int64_t lap(int64_t *since_us)
{
    int64_t now_us = clock_cpu_us();
    int64_t took_us = now_us - *since_us;
    *since_us = now_us;
    return took_us;
}

static Cost frames(View *view, int64_t from_s, int64_t to_s)
{
    Arena *arena = arena_new(64 << 20);
    Rng rng;
    rng_seed(&rng, 3);
    Cost sum = {0};
    for (int i = 0; i < FRAMES; i++) {
        int64_t second = from_s + (int64_t)rng_below(&rng, (uint64_t)(to_s - from_s));
        int64_t t_us = T0 + second * 1000000 + (int64_t)rng_below(&rng, 1000000);
        HeaderView header;
        int64_t since_us = clock_cpu_us();
        bool good = view_header(view, t_us, arena, &header);
        sum.header += (double)lap(&since_us) / FRAMES;
        good = view_engines(view, t_us, 26, 2300000, arena).count > 0 && good;
        sum.engines += (double)lap(&since_us) / FRAMES;
        view_tail(view, t_us, 20, arena);
        sum.tail += (double)lap(&since_us) / FRAMES;
        good = view_steps(view, t_us, 8, arena).count > 0 && good;
        sum.steps += (double)lap(&since_us) / FRAMES;
        if (!good) {
            Fault fault = {0};
            view_fault(view, &fault);
            fprintf(stderr, "log_view: no answer: %s\n", fault.sentence);
            exit(1);
        }
        arena_reset(arena);
    }
    arena_free(arena);
    return sum;
}

static double measure(const char *path, int64_t rows, int64_t engines)
{
    int64_t seconds = build(path, rows, engines);
    struct stat info = {0};
    stat(path, &info);
    View *view = NULL;
    Fault fault = {0};
    int64_t since_us = clock_cpu_us();
    if (view_open(path, &view, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    int64_t open_us = lap(&since_us);
    Cost past = frames(view, seconds / 10 + 100, seconds / 2 + 101);
    Cost live = frames(view, seconds - 2, seconds);
    printf("log_view: %lld rows, %lld engines, %.0f MB, %.1f h: open %.1f ms; CPU us a call in "
           "the past: header %.0f, engines %.0f, tail %.0f, steps %.0f; live: %.0f, %.0f, %.0f, "
           "%.0f\n",
           (long long)rows, (long long)engines, (double)info.st_size / 1e6,
           (double)seconds / 3600, (double)open_us / 1000, past.header, past.engines, past.tail,
           past.steps, live.header, live.engines, live.tail, live.steps);
    view_close(view);
    remove_log(path);
    return past.header + past.engines + past.tail + past.steps;
}

int main(int argc, char **argv)
{
    int64_t rows = 4000000;
    int64_t engines = 16;
    bool good = (argc <= 1 || str_to_i64(str_from(argv[1]), &rows)) &&
                (argc <= 2 || str_to_i64(str_from(argv[2]), &engines));
    const char *base = argc > 3 ? argv[3] : getenv("TMPDIR");
    char *dir = xasprintf("%s/rolltop-bench-XXXXXX", base != NULL ? base : "/tmp");
    if (!good || rows < 200000 || engines < 1 || mkdtemp(dir) == NULL) {
        fprintf(stderr, "usage: log_view [ROWS >= 200000] [ENGINES] [DIRECTORY]\n");
        return 2;
    }
    char *path = xasprintf("%s/run.db", dir);
    double small = measure(path, 200000, engines);
    double large = measure(path, rows, engines);
    printf("log_view: a past frame on %lld rows costs %.2fx the CPU of one on 200000\n",
           (long long)rows, large / small);
    rmdir(dir);
    free(path);
    free(dir);
    return 0;
}
