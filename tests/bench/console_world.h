/* What the benches of the console share: a made-up fleet whose log is written here and grows once
 * a second, and a look at a program in a pseudo-terminal. */
#ifndef ROLLTOP_TESTS_BENCH_CONSOLE_WORLD_H
#define ROLLTOP_TESTS_BENCH_CONSOLE_WORLD_H

#include "core/base/clock.h"
#include "core/base/rng.h"
#include "store/store.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { US = 1000000, STEP_S = 20, GROUP = 8, WATCH_S = 10, ENGINES_MAX = 1024, KEYS = 200,
       KEY_GAP_MS = 40 };

typedef struct World {
    Store *store;
    Rng rng;
    int engines;
    int64_t t0_us, sample, group, phase, event;
    int64_t version;
    double total[ENGINES_MAX + 1];
    atomic_bool stop;
} World;

static inline void begin_step(World *w, int64_t step, int64_t t)
{
    StepFact fact = {.step = step, .t_us = t, .policy_version = w->version};
    store_put_step(w->store, &fact);
    PhaseFact phase = {.phase_id = ++w->phase, .step = step, .t_us = t, .phase = PHASE_GENERATE};
    store_put_phase(w->store, &phase);
    for (int g = 0; g < 4; g++) {
        GroupFact group = {.group = ++w->group, .step = step, .t_us = t, .prompt_index = g,
                           .prompt = STR("sort 4 2 9 1"), .label = STR("1 2 4 9"), .want = GROUP};
        store_put_group(w->store, &group);
        for (int i = 0; i < GROUP; i++) {
            SampleStartFact start = {.sample = ++w->sample, .group = w->group, .step = step,
                                     .t_us = t, .attempt = 1,
                                     .engine = 1 + (int64_t)rng_below(&w->rng,
                                                                      (uint64_t)w->engines)};
            store_put_sample_start(w->store, &start);
        }
    }
}

static inline void move_samples(World *w, int64_t t, int second)
{
    int64_t first = w->sample - 4 * GROUP + 1;
    for (int64_t id = first; id <= w->sample; id++) {
        int64_t engine = 1 + id % w->engines;
        int64_t ends = 4 + id * 7 % 10;
        if (second < ends) {
            SampleProgressFact fact = {.sample = id, .t_us = t, .engine = engine,
                                       .tokens = 100 * second};
            store_put_sample_progress(w->store, &fact);
        } else if (second == ends) {
            int32_t tokens[] = {1, 2, 4, 9};
            float logprobs[] = {-0.1f, -0.2f, -5.0f, -0.1f};
            SampleSpan span = {0, 4, w->version};
            SampleEndFact fact = {.sample = id, .t_us = t, .engine = engine, .attempt = 1,
                                  .fate = FATE_ACCEPTED, .finish = "stop",
                                  .reward = val_of(id % 3 ? 1 : 0.25, t), .tokens = tokens,
                                  .logprobs = logprobs, .token_count = 4, .spans = &span,
                                  .span_count = 1, .text = STR("1 2 4 9\x1b[31m"),
                                  .first_token_us = 200000};
            store_put_sample_end(w->store, &fact);
        }
    }
}

static inline void end_phase(World *w, int64_t step, int64_t t, LoopPhase before, LoopPhase now)
{
    PhaseFact fact = {.phase_id = w->phase, .step = step, .t_us = t, .phase = before,
                      .end = true, .outcome = "ok"};
    store_put_phase(w->store, &fact);
    if (now != PHASE_DONE) {
        PhaseFact next = {.phase_id = ++w->phase, .step = step, .t_us = t, .phase = now};
        store_put_phase(w->store, &next);
    }
}

static inline void sync_policy(World *w, int64_t step, int64_t t)
{
    PolicyFact policy = {.version = ++w->version, .t_us = t, .parent = w->version - 1,
                         .digest = "9f86d081884c7d659a2feaa0c55ad015", .path = "/tmp/policy",
                         .kind = "full", .bytes = 1300000, .step = step};
    store_put_policy(w->store, &policy);
    TxnFact txn = {.txn = w->version, .t_us = t, .from_version = w->version - 1,
                   .to_version = w->version, .engines = w->engines, .why = "step"};
    store_put_txn(w->store, &txn);
    for (int i = 1; i <= w->engines; i++) {
        TxnAnswerFact answer = {.txn = w->version, .engine = i, .incarnation = 1, .t_us = t + US,
                                .took_us = 40000, .phase = TXN_VERIFY, .ok = true,
                                .detail = "checksum agrees"};
        store_put_txn_answer(w->store, &answer);
        EngineStateFact state = {.engine = i, .incarnation = 1, .t_us = t + US,
                                 .state = ENGINE_BUSY, .policy_version = w->version};
        store_put_engine_state(w->store, &state);
    }
    TxnDecisionFact decision = {w->version, t + US, true, "all verified"};
    TxnEndFact end = {w->version, t + US, "committed", US};
    PolicyStateFact state = {w->version, t + US, w->version, POLICY_COMMITTED, NULL};
    store_put_txn_decision(w->store, &decision);
    store_put_policy_state(w->store, &state);
    store_put_txn_end(w->store, &end);
}

static inline void finish_step(World *w, int64_t step, int64_t t)
{
    bool eval = step % 5 == 0;
    double reward = 1 - 0.9 * exp(-(double)step / 20);
    char text[96];
    StepFact fact = {.step = step, .t_us = t, .end = true, .policy_version = w->version,
                     .outcome = "ok", .samples = 4 * GROUP, .tokens = 128,
                     .reward_mean = val_of(reward, t), .reward_std = val_of(0.2, t),
                     .eval_reward_mean = eval ? val_of(reward * 0.97, t) : val_none()};
    store_put_step(w->store, &fact);
    (void)snprintf(text, sizeof text, "%lld done, %d samples, reward %.3f", (long long)step,
                   4 * GROUP, reward);
    EventFact event = {t, SEVERITY_INFO, "step", 0, text};
    store_put_event(w->store, &event);
}

static inline void probes(World *w, int64_t t, int64_t second)
{
    for (int i = 1; i <= w->engines; i++) {
        bool dead = i == 2 && second % 600 > 540;
        double rate = 800 + 50 * i + 200 * sin((double)second / 7 + i);
        w->total[i] += dead ? 0 : rate;
        ProbeFact fact = {.engine = i, .incarnation = 1, .t_us = t, .latency_us = 900,
                          .kind = PROBE_LOADS, .outcome = dead ? "refused" : "ok",
                          .status = dead ? 0 : 200, .policy_version = w->version};
        if (!dead) {
            fact.running = val_of(4, t);
            fact.waiting = val_of(i % 3, t);
            fact.token_usage = val_of(0.3 + 0.05 * (i % 5), t);
            fact.gen_tokens_total = val_of(w->total[i], t);
            fact.gen_throughput = val_of(rate, t);
        }
        store_put_probe(w->store, &fact);
        if (i == 2 && second % 600 == 541) {
            EngineStateFact state = {i, 1, t, ENGINE_DEAD, w->version, "connection refused"};
            IncidentFact incident = {.incident = second / 600 + 1, .onset_us = t,
                                     .class_name = "ENGINE-DEAD", .severity = SEVERITY_CRIT,
                                     .engine = i,
                                     .evidence = "3 probes refused; 4 samples were on it",
                                     .next_key = "R restarts it"};
            EventFact event = {t, SEVERITY_CRIT, "eng-01", i, "dead: connection refused"};
            store_put_engine_state(w->store, &state);
            store_put_incident(w->store, &incident);
            store_put_event(w->store, &event);
        } else if (i == 2 && second % 600 == 0 && second > 0) {
            EngineStateFact state = {i, 1, t, ENGINE_UP, w->version, "answers again"};
            IncidentFact incident = {.incident = second / 600, .onset_us = t - 59 * (int64_t)US,
                                     .ended_us = t, .class_name = "ENGINE-DEAD",
                                     .severity = SEVERITY_CRIT, .engine = i,
                                     .evidence = "3 probes refused", .next_key = "R restarts it"};
            store_put_engine_state(w->store, &state);
            store_put_incident(w->store, &incident);
        }
    }
}

static inline void second_of_life(World *w, int64_t second)
{
    int64_t t = w->t0_us + second * US;
    int64_t step = second / STEP_S;
    int in_step = (int)(second % STEP_S);
    if (in_step == 0) {
        begin_step(w, step, t);
    }
    probes(w, t, second);
    move_samples(w, t, in_step);
    if (in_step == 14) {
        end_phase(w, step, t, PHASE_GENERATE, PHASE_TRAIN);
    } else if (in_step == 17) {
        end_phase(w, step, t, PHASE_TRAIN, PHASE_SYNC);
        sync_policy(w, step, t);
    } else if (in_step == 19) {
        end_phase(w, step, t, PHASE_SYNC, PHASE_DONE);
        finish_step(w, step, t);
    }
}

static inline void people(World *w)
{
    RunFact run = {w->t0_us, "demo-1", "demo", "host", "0.1.0", "[]", "{}"};
    SessionFact session = {1, w->t0_us, 0, 4711, "start"};
    store_put_run(w->store, &run);
    store_put_session(w->store, &session);
    for (int i = 1; i <= w->engines; i++) {
        char name[16];
        char address[32];
        (void)snprintf(name, sizeof name, "eng-%02d", i - 1);
        (void)snprintf(address, sizeof address, "127.0.0.1:%d", 30000 + i);
        EngineFact engine = {i, w->t0_us, name, address, true};
        IncarnationFact life = {i, 1, w->t0_us, 5000 + i, "pid"};
        EngineStateFact state = {i, 1, w->t0_us, ENGINE_UP, 0, "first probe"};
        ChildLineFact line = {w->t0_us, name, true, STR("listening; \x1b[1mready\x1b[0m")};
        store_put_engine(w->store, &engine);
        store_put_incarnation(w->store, &life);
        store_put_engine_state(w->store, &state);
        store_put_child_line(w->store, &line);
    }
    CommandFact command = {1, w->t0_us + 5 * US, "ana (pid 81)", "pause", "eng-00", "a look",
                           "done", "paused"};
    store_put_command(w->store, &command);
}

static inline void *live(void *arg)
{
    World *w = arg;
    int64_t second = (clock_wall_us() - w->t0_us) / US;
    while (!w->stop) {
        int64_t due = w->t0_us + (second + 1) * US;
        while (!w->stop && clock_wall_us() < due) {
            clock_sleep_us(20000);
        }
        second_of_life(w, ++second);
    }
    return NULL;
}

static inline Err open_world(World *w, const char *path, int minutes, Fault *fault)
{
    int64_t seconds = minutes * INT64_C(60);
    (void)remove(path);
    rng_seed(&w->rng, 1);
    if (store_open(path, NULL, &w->store, fault) != ERR_OK) {
        return fault->code;
    }
    w->t0_us = clock_wall_us() - seconds * US;
    people(w);
    for (int64_t s = 0; s < seconds; s++) {
        second_of_life(w, s);
        if (s % 20 == 0) { /* bulk facts are dropped when the queue is full; wait for room */
            (void)store_wait(w->store, store_ticket(w->store), 5000, NULL);
        }
    }
    return ERR_OK;
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* Nanoseconds on a CPU since the start, by the scheduler; -1 where it does not say. */
static inline double cpu_ns(pid_t pid)
{
    char path[64];
    double ns = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file) {
        ns = fscanf(file, "%lf", &ns) == 1 ? ns : -1;
        (void)fclose(file);
    }
    return ns;
}

static inline int compare_numbers(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;
    return (*left > *right) - (*left < *right);
}

/* Bytes that come within `ms`; the first of them after *first_ms. */
static inline long drain(int fd, int ms, double *first_ms)
{
    char buffer[65536];
    long bytes = 0;
    int64_t began = clock_mono_us();
    int64_t end = began + ms * INT64_C(1000);
    *first_ms = -1;
    for (int64_t now = began; now < end; now = clock_mono_us()) {
        struct pollfd wait = {fd, POLLIN, 0};
        if (poll(&wait, 1, (int)((end - now) / 1000) + 1) <= 0) {
            continue;
        }
        ssize_t n = read(fd, buffer, sizeof buffer);
        if (n <= 0) {
            break;
        }
        *first_ms = *first_ms < 0 ? (double)(clock_mono_us() - began) / 1000 : *first_ms;
        bytes += (long)n;
    }
    return bytes;
}

#endif
