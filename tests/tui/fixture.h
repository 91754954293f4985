/* One hand-made picture of a run in trouble: 16 engines in every state, a long tail, steps, two
 * alerts, events, commands, policies, curves. All times hang on FIXTURE_T. */
#ifndef ROLLTOP_TESTS_TUI_FIXTURE_H
#define ROLLTOP_TESTS_TUI_FIXTURE_H

#include "tui/screen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define S(n) ((int64_t)((n) * 1000000.0))
#define FIXTURE_T INT64_C(1773484927000000) /* 2026-03-14 10:42:07Z */

enum { FIXTURE_ENGINES = 16 };

static EngineRow fixture_engines[FIXTURE_ENGINES];
static char fixture_names[FIXTURE_ENGINES][16], fixture_addresses[FIXTURE_ENGINES][24];

static inline Val at(double v, double age)
{
    return val_of(v, FIXTURE_T - S(age));
}

static inline void fixture_engine(int i, EngineState state, double seen_age, const char *reason)
{
    EngineRow *row = &fixture_engines[i];
    *row = (EngineRow){.engine = i + 1, .incarnation = 1, .incarnations = 1, .pid = 48100 + i,
                       .name = fixture_names[i], .address = fixture_addresses[i], .local = true,
                       .state = state, .reason = reason, .policy_version = 211,
                       .reported_version = 211, .state_since_us = FIXTURE_T - S(600),
                       .seen_us = FIXTURE_T - S(seen_age), .first_seen_us = FIXTURE_T - S(9000)};
    (void)snprintf(fixture_names[i], sizeof fixture_names[i], "eng-%02d", i);
    (void)snprintf(fixture_addresses[i], sizeof fixture_addresses[i], "127.0.0.1:%d", 30000 + i);
    row->tokens_per_s = at(11900 + 37 * i, seen_age);
    row->running = at(60 + i % 3, seen_age);
    row->waiting = at(i % 4 == 1 ? 2 : 0, seen_age);
    row->kv_usage = at(0.60 + 0.01 * (i % 5), seen_age);
    row->itl_ms = at(20 + i % 3, seen_age);
    row->ttft_ms = at(180 + 7 * i, seen_age);
    row->retracted_per_min = at(0, seen_age);
    row->errors_per_min = at(0, seen_age);
    row->spark_count = 28;
    for (int k = 0; k < 28; k++) {
        row->spark[k] = (float)(6000 + 5900 * fabs(sin((k + i) * 0.31)));
    }
}

static inline void fixture_trouble(void)
{
    static const Val none = {0, false, 0};
    for (int i = 0; i < FIXTURE_ENGINES; i++) {
        fixture_engine(i, ENGINE_BUSY, 0.4 + 0.02 * i, NULL);
    }
    fixture_engine(0, ENGINE_UP, 0.4, NULL);
    fixture_engine(3, ENGINE_DEAD, 41, "connection refused");
    EngineRow *dead = &fixture_engines[3];
    dead->state_since_us = FIXTURE_T - S(41);
    dead->policy_version = dead->reported_version = 210;
    dead->tokens_per_s = dead->running = dead->waiting = dead->kv_usage = dead->itl_ms = none;
    fixture_engine(4, ENGINE_SLOW, 0.5, "4.2k tok/s, others 12.0k");
    fixture_engines[4].tokens_per_s = at(4200, 0.5);
    fixture_engines[4].waiting = at(31, 0.5);
    fixture_engines[4].kv_usage = at(0.97, 0.5);
    fixture_engine(9, ENGINE_UP, 7.8, NULL);
    fixture_engine(2, ENGINE_LOADING, 0.2, "update to v211");
    fixture_engines[2].policy_version = 210;
    fixture_engine(5, ENGINE_PAUSED, 0.3, "paused by ana");
    fixture_engine(14, ENGINE_STARTING, 3.1, "local process started");
    fixture_engines[14].policy_version = -1;
    fixture_engines[14].reported_version = 0;
    fixture_engines[14].incarnations = 2;
    fixture_engine(10, ENGINE_FENCED, 0.4, "holds v209, 211 is committed");
    fixture_engine(11, ENGINE_STUCK, 0.6, "63 running, no token for 32 s");
    fixture_engine(15, ENGINE_GONE, 320, "removed");
}

static inline void fixture_header(Snapshot *s)
{
    memset(s, 0, sizeof *s);
    s->ready = true;
    s->t_us = FIXTURE_T;
    s->read_us = 1800;
    s->run = (RunView){"demo-1", "gsm8k-7b", "host", "0.1.0", "[]", "{}", FIXTURE_T - S(11564),
                       FIXTURE_T - S(11564), FIXTURE_T, true, 0};
    s->header = (HeaderView){.t_us = FIXTURE_T, .phase = PHASE_GENERATE,
                             .phase_since_us = FIXTURE_T - S(41), .phase_median_s = 58,
                             .step = 4127, .steps_done = 4126, .policy_version = 211,
                             .trainer_version = 212, .tokens_per_s = at(136500, 0.4),
                             .tokens_per_s_10min = at(184000, 0.4), .samples_done = 93,
                             .samples_want = 1024, .samples_inflight = 931,
                             .reward_mean = at(0.71, 60), .eval_reward_mean = at(0.83, 300),
                             .eval_reward_first = at(0.12, 9000), .kv_usage = at(0.63, 0.4),
                             .tail_p50_s = 22, .tail_p99_s = 141, .tail_max_s = 184,
                             .alerts_open = 2, .alerts_crit = 1,
                             .last_fact_us = FIXTURE_T - S(0.2)};
}

static inline void fixture_tail(Snapshot *s)
{
    static TailRow tail[12];
    s->engines = (EngineList){fixture_engines, FIXTURE_ENGINES};
    for (int i = 0; i < 12; i++) {
        int engine = i < 2 ? 5 : i == 3 ? 4 : 9 + i % 4;
        tail[i] = (TailRow){.sample = 81200 + i, .group = 101, .step = 4127, .engine = engine,
                            .started_us = FIXTURE_T - S(184 - 15 * i), .tokens = 14200 - 900 * i,
                            .progress_us = FIXTURE_T - S(i == 2 ? 96 : 0.5),
                            .policy_version = 211, .engine_name = fixture_names[engine - 1],
                            .attempt = i == 4 ? 2 : 1, .eval = i == 5};
    }
    s->tail = (TailList){tail, 12, 931, 12, 128, 9, {640, 200, 60, 20, 7, 3, 1, 0}, 30, false};
}

static inline void fixture_steps(Snapshot *s)
{
    static StepRow steps[4];
    static PhaseSpan spans[4][6];
    static EngineSpan holders[3];
    for (int i = 0; i < 4; i++) {
        static const LoopPhase order[] = {PHASE_GENERATE, PHASE_SCORE, PHASE_TRAIN,
                                          PHASE_PUBLISH, PHASE_SYNC, PHASE_SAVE};
        static const double took[] = {50, 6, 21, 1, 2, 1};
        double start = i == 0 ? 41 : 41 + 81 * i;
        int count = i == 0 ? 1 : 6;
        for (int k = 0; k < count; k++) {
            spans[i][k] = (PhaseSpan){order[k], FIXTURE_T - S(start),
                                      i == 0 ? 0 : FIXTURE_T - S(start - took[k])};
            start -= took[k];
        }
        steps[i] = (StepRow){.step = 4127 - i, .started_us = spans[i][0].from_us,
                             .ended_us = i ? FIXTURE_T - S(start) : 0, .policy_version = 211 - i,
                             .samples = 1024, .tokens = 9100000,
                             .outcome = i == 0 ? NULL : i == 3 ? "failed: loss is NaN" : "ok",
                             .reward_mean = i ? at(0.72 - 0.01 * i, 60) : val_none(),
                             .reward_std = i ? at(0.2, 60) : val_none(),
                             .eval_reward_mean = i == 1 ? at(0.83, 300) : val_none(),
                             .spans = spans[i], .span_count = (size_t)count};
    }
    s->steps = (StepList){steps, 4, 4128};
    holders[0] = (EngineSpan){5, FIXTURE_T - S(41), 0, 94};
    holders[1] = (EngineSpan){4, FIXTURE_T - S(41), FIXTURE_T - S(20), 61};
    holders[2] = (EngineSpan){9, FIXTURE_T - S(40), 0, 60};
    s->spans = holders;
    s->span_count = 3;
}

static inline void fixture_events(Snapshot *s)
{
    static EventRow events[8];
    static const struct {
        double age;
        Severity severity;
        int engine;
        const char *source, *text;
    } facts[8] = {
        {210, SEVERITY_INFO, 0, "step", "4125 done, 78 s, 1024 samples, reward 0.71"},
        {131, SEVERITY_INFO, 0, "step", "4126 done, 81 s, 1024 samples, reward 0.71"},
        {55, SEVERITY_WARN, 4, "eng-03", "ECC corrected errors 2 > 3"},
        {41, SEVERITY_CRIT, 4, "eng-03", "heartbeat lost; 61 samples requeued to eng-08 eng-12"},
        {36, SEVERITY_INFO, 4, "operator", "ana cordon eng-03, reason \"ecc errors\""},
        {8, SEVERITY_INFO, 0, "policy", "v211 on 14 of 16 engines, 2.1 s; eng-02 loading"},
        {3, SEVERITY_WARN, 0, "rollout", "7 samples past p99, oldest 184 s on eng-04"},
        {1, SEVERITY_WARN, 10, "eng-09", "metrics 7.8 s old (limit 5 s)"},
    };
    for (int i = 0; i < 8; i++) {
        events[i] = (EventRow){i + 1, FIXTURE_T - S(facts[i].age), facts[i].engine,
                               facts[i].severity, facts[i].source, facts[i].text};
    }
    s->events = (EventList){events, 8, 4321, 1, 3, 41, false};
}

static inline void fixture_alerts(Snapshot *s)
{
    static AlertRow alerts[2];
    static CommandRow commands[3];
    alerts[0] = (AlertRow){7, FIXTURE_T - S(41), 0, 4, "ENGINE-DEAD",
                           "3 probes refused since 10:41:26; 61 samples were on it",
                           "R", SEVERITY_CRIT, FIXTURE_T - S(39)};
    alerts[1] = (AlertRow){8, FIXTURE_T - S(12), 0, 5, "STRAGGLER",
                           "4.2k tok/s where the others make 12.0k", "C",
                           SEVERITY_WARN, FIXTURE_T - S(12)};
    s->alerts = (AlertList){alerts, 2};
    commands[0] = (CommandRow){3, FIXTURE_T - S(36), FIXTURE_T - S(35), "ana (pid 81)", "cordon",
                               "eng-03", "ecc errors", "done", "takes nothing new"};
    commands[1] = (CommandRow){2, FIXTURE_T - S(300), FIXTURE_T - S(299), "ana (pid 81)", "pause",
                               "eng-05", NULL, "done", "paused"};
    commands[2] = (CommandRow){1, FIXTURE_T - S(900), FIXTURE_T - S(870), "ben (pid 90)",
                               "restart", "eng-14", "new driver", "failed", "no such process"};
    s->commands = (CommandList){commands, 3, 3};
}

static inline void fixture_policies(Snapshot *s)
{
    static PolicyRow policies[4];
    static TxnRow txns[2];
    for (int i = 0; i < 4; i++) {
        static const PolicyState states[] = {POLICY_PUBLISHED, POLICY_COMMITTED, POLICY_RETIRED,
                                             POLICY_ROLLED_BACK};
        policies[i] = (PolicyRow){.version = 212 - i, .parent = 211 - i, .step = 4126 - i,
                                  .bytes = 15200000000, .published_us = FIXTURE_T - S(10 + 81 * i),
                                  .state_us = FIXTURE_T - S(8 + 81 * i), .txn = 40 - i,
                                  .state = states[i], .digest = "9f86d081884c7d65",
                                  .path = "/ckpt/step", .kind = "full",
                                  .reason = i == 3 ? "eng-10 reports another checksum" : NULL,
                                  .engines = i == 1 ? 12 : i == 2 ? 2 : 0};
    }
    s->policies = (PolicyList){policies, 4, 213};
    txns[0] = (TxnRow){.txn = 39, .started_us = FIXTURE_T - S(10), .ended_us = FIXTURE_T - S(8),
                       .from_version = 210, .to_version = 211, .engines = 16, .pause_us = S(2.1),
                       .why = "step 4126", .outcome = "committed", .decided = 1,
                       .decision_reason = "14 of 14 verified"};
    txns[1] = (TxnRow){.txn = 37, .started_us = FIXTURE_T - S(260), .ended_us = FIXTURE_T - S(250),
                       .from_version = 208, .to_version = 209, .engines = 16, .pause_us = S(9.3),
                       .why = "step 4123", .outcome = "rolled_back", .decided = 0,
                       .decision_reason = "eng-10 could not verify"};
    s->txns = (TxnList){txns, 2, 40};
}

static inline void fixture_curves(Snapshot *s)
{
    static CurvePoint eval[5];
    static CurvePoint reward[20];
    static StripCell strip[64];
    for (int i = 0; i < 5; i++) {
        eval[i] = (CurvePoint){4107 + 5 * i, FIXTURE_T - S(300 + 400 * (4 - i)),
                               0.12 + 0.1775 * i};
    }
    for (int i = 0; i < 20; i++) {
        reward[i] = (CurvePoint){4107 + i, FIXTURE_T - S(80 * (20 - i)), 0.2 + 0.027 * i};
    }
    s->eval = eval;
    s->eval_count = 5;
    s->reward = reward;
    s->reward_count = 20;
    for (int i = 0; i < 64; i++) {
        strip[i] = (StripCell){.gap = i >= 20 && i < 23, .warn = i == 8, .crit = i == 50,
                               .tokens_per_s = i >= 20 && i < 23 ? val_none()
                                                                 : at(9000 + 100 * i, 0)};
    }
    s->strip = strip;
    s->strip_cells = 64;
    s->strip_from_us = FIXTURE_T - S(11564);
    s->strip_to_us = FIXTURE_T + 1;
}

static inline void fixture_detail(Snapshot *s)
{
    static ProbeRow probes[3];
    static ChildLineRow lines[2];
    for (int i = 0; i < 3; i++) {
        probes[i] = (ProbeRow){FIXTURE_T - S(0.4 + i), i == 2 ? S(2) : 900, 1, 211,
                               i == 1 ? PROBE_HEALTH : PROBE_LOADS, i == 2 ? "timeout" : "ok",
                               i == 2 ? 0 : 200, i == 0 ? at(61, 0.4) : val_none(), val_none()};
    }
    lines[0] = (ChildLineRow){FIXTURE_T - S(42), true, "ECC error count rose to 3"};
    lines[1] = (ChildLineRow){FIXTURE_T - S(900), false, "listening \x1b[1mready\x1b[0m"};
    s->probes = probes;
    s->probe_count = 3;
    s->lines = lines;
    s->line_count = 2;
}

static inline void fixture_fill(Snapshot *s)
{
    fixture_trouble();
    fixture_header(s);
    fixture_tail(s);
    fixture_steps(s);
    fixture_events(s);
    fixture_alerts(s);
    fixture_policies(s);
    fixture_curves(s);
    fixture_detail(s);
}

static inline void fixture_sample(Snapshot *s)
{
    static int32_t tokens[] = {101, 17, 2024, 9};
    static float logprobs[] = {-0.01f, -0.4f, -6.2f, -0.02f};
    static SampleSpan spans[] = {{0, 3, 210}, {3, 4, 211}};
    static const char hostile[] = "42\x1b[2J\x1b]0;owned\a\xe2\x80\xae evil \xe2\x80\x8b"
                                  "\xe6\x9d\xb1\xe4\xba\xac e\xcc\x81 \xff\xfe end\nsecond line";
    s->has_sample = true;
    s->sample = (SampleView){.sample = 81200, .group = 101, .step = 4127, .engine = 5,
                             .started_us = FIXTURE_T - S(184), .ended_us = FIXTURE_T - S(2),
                             .first_token_us = S(0.2), .prompt_index = 77, .attempt = 1,
                             .fate = FATE_REFUSED, .engine_name = "eng-04", .finish = "stop",
                             .reason = "two policy versions in one sample",
                             .reward = at(0.5, 2), .prompt = STR("What is 6 * 7?"),
                             .label = STR("42"), .text = {hostile, sizeof hostile - 1},
                             .tokens = tokens, .logprobs = logprobs, .token_count = 4,
                             .spans = spans, .span_count = 2};
}

static inline Model *fixture_model(bool control, bool replay)
{
    ModelConfig config = {.control = control, .replay = replay, .user = "ana", .may_stop = control,
                          .log_path = "/var/log/run.db", .theme = "dusk"};
    Model *model = model_new(&config);
    model->linked = control;
    model->t_us = FIXTURE_T;
    return model;
}

#endif
