/* A small run as facts: two engines, three steps, a failing probe, a pause, an alert. Times are
 * seconds after SCENE_T0, so that tests can name them. */
#ifndef ROLLTOP_TESTS_STORE_SCENE_H
#define ROLLTOP_TESTS_STORE_SCENE_H

#include "core/base/mem.h"
#include "store/store.h"
#include "store/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCENE_T0 INT64_C(1773484927000000) /* 2026-03-14 10:42:07 UTC */
#define AT(seconds) (SCENE_T0 + (int64_t)((double)(seconds) * 1e6))

static inline char *scene_dir(void)
{
    const char *base = getenv("TMPDIR");
    char *name = xasprintf("%s/rolltop-store-XXXXXX", base != NULL ? base : "/tmp");
    return mkdtemp(name);
}

static inline void scene_remove(char *dir)
{
    static const char *const names[] = {"run.db", "run.db-wal", "run.db-shm", "run.db.lock",
                                        "copy.db", "copy.db-wal", "copy.db-shm", "copy.db.lock"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = xasprintf("%s/%s", dir, names[i]);
        unlink(path);
        free(path);
    }
    rmdir(dir);
    free(dir);
}

static inline void scene_probe(Store *store, int64_t engine, double t, double total, bool ok)
{
    ProbeFact probe = {.engine = engine,
                       .incarnation = 1,
                       .t_us = AT(t),
                       .latency_us = 800,
                       .kind = PROBE_LOADS,
                       .outcome = ok ? "ok" : "http 500",
                       .status = ok ? 200 : 500,
                       .policy_version = 1};
    if (ok) {
        probe.running = val_of(8, AT(t));
        probe.waiting = val_of(2, AT(t));
        probe.token_usage = val_of(0.5, AT(t));
        probe.gen_tokens_total = val_of(total, AT(t));
    }
    store_put_probe(store, &probe);
}

static inline void scene_engines(Store *store)
{
    for (int64_t e = 1; e <= 2; e++) {
        EngineFact engine = {.engine = e,
                             .t_us = AT(0),
                             .name = e == 1 ? "eng-00" : "eng-01",
                             .address = e == 1 ? "127.0.0.1:30000" : "127.0.0.1:30001",
                             .local = true};
        store_put_engine(store, &engine);
        IncarnationFact born = {.engine = e, .incarnation = 1, .t_us = AT(0), .pid = 100 + e};
        store_put_incarnation(store, &born);
        EngineStateFact up = {.engine = e,
                              .incarnation = 1,
                              .t_us = AT(1),
                              .state = ENGINE_UP,
                              .policy_version = 1,
                              .reason = "answers"};
        store_put_engine_state(store, &up);
    }
}

static inline void scene_sample(Store *store, int64_t sample, int64_t step, double from, double to,
                                SampleFate fate, int attempt)
{
    SampleStartFact start = {.sample = sample,
                             .group = step + 1,
                             .step = step,
                             .t_us = AT(from),
                             .attempt = attempt};
    store_put_sample_start(store, &start);
    if (to <= 0) {
        return;
    }
    static const int32_t tokens[] = {5, 6, 7, 8};
    static const float logprobs[] = {-0.1f, -0.2f, -0.3f, -0.4f};
    const SampleSpan spans[] = {{0, 2, 1}, {2, 4, 2}};
    SampleEndFact end = {.sample = sample,
                         .t_us = AT(to),
                         .engine = 1 + sample % 2,
                         .attempt = attempt,
                         .fate = fate,
                         .finish = "stop",
                         .reason = fate == FATE_ACCEPTED ? NULL : "counts differ",
                         .reward = val_of(0.25 * (double)(sample % 4), AT(to)),
                         .tokens = tokens,
                         .logprobs = logprobs,
                         .token_count = 4,
                         .spans = spans,
                         .span_count = 2,
                         .text = STR("a\0b"),
                         .first_token_us = 50000};
    store_put_sample_end(store, &end);
}

static inline void scene_step_begin(Store *store, int64_t step, double t)
{
    StepFact begin = {.step = step, .t_us = AT(t), .policy_version = 1};
    store_put_step(store, &begin);
    static const int32_t ids[] = {1, 2, 3};
    GroupFact group = {.group = step + 1,
                       .step = step,
                       .t_us = AT(t),
                       .prompt_index = step,
                       .prompt = STR("sort 3 1 2"),
                       .label = STR("1 2 3"),
                       .prompt_ids = ids,
                       .prompt_count = 3,
                       .want = 4};
    store_put_group(store, &group);
}

static inline void scene_step_end(Store *store, int64_t step, double t, Val eval)
{
    StepFact end = {.step = step,
                    .t_us = AT(t),
                    .end = true,
                    .policy_version = 1,
                    .outcome = "ok",
                    .samples = 4,
                    .tokens = 16,
                    .reward_mean = val_of(0.5, AT(t)),
                    .reward_std = val_of(0.1, AT(t)),
                    .eval_reward_mean = eval,
                    .trainer_state = "/run/state",
                    .data_position = (step + 1) * 4};
    store_put_step(store, &end);
}

static inline void scene_phase(Store *store, int64_t id, int64_t step, LoopPhase phase, double t,
                               bool end)
{
    PhaseFact fact = {.phase_id = id,
                      .step = step,
                      .t_us = AT(t),
                      .phase = phase,
                      .end = end,
                      .outcome = end ? "ok" : NULL};
    store_put_phase(store, &fact);
}

static inline void scene_run(Store *store)
{
    RunFact run = {.t_us = AT(0),
                   .run = "demo-20260314-104207",
                   .name = "demo",
                   .host = "box",
                   .version = "0.1.0",
                   .argv_json = "[\"rolltop\"]",
                   .config_json = "{}"};
    store_put_run(store, &run);
    SessionFact session = {.session = 1, .t_us = AT(0), .pid = 42, .how = "start"};
    store_put_session(store, &session);
}

/* 60 seconds: engines probed twice a second at 100 and 50 tokens/s; engine 2 dies at 40 s.
 * Step n runs from 20n + 2 to 20n + 21 s; its four samples take 5 s; the last of step 2 is open. */
static inline void scene_put(Store *store)
{
    scene_run(store);
    scene_engines(store);
    int64_t phase = 0;
    for (int half = 2; half <= 120; half++) {
        double t = half / 2.0;
        int step = (half - 4) / 40;
        int in_step = (half - 4) % 40;
        if (half >= 4 && in_step == 0) {
            scene_step_begin(store, step, t);
            scene_phase(store, ++phase, step, PHASE_GENERATE, t, false);
            for (int i = 0; i < 4; i++) {
                bool open = step == 2 && i == 3;
                scene_sample(store, step * 4 + i + 1, step, t + 0.001 * i, open ? 0 : t + 5,
                             FATE_ACCEPTED, 1);
            }
        }
        if (half >= 4 && in_step == 30 && step < 2) {
            scene_phase(store, phase, step, PHASE_GENERATE, t, true);
            scene_phase(store, ++phase, step, PHASE_TRAIN, t, false);
        }
        if (half >= 4 && in_step == 38 && step < 2) {
            scene_phase(store, phase, step, PHASE_TRAIN, t, true);
            scene_step_end(store, step, t, step == 1 ? val_of(0.75, AT(t)) : val_none());
        }
        scene_probe(store, 1, t + 0.001, 1000 + 100 * t, true);
        scene_probe(store, 2, t + 0.002, 50 * (t < 40 ? t : 40), t < 40);
    }
}

#endif
