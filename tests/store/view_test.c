/* The read model's questions one by one, with facts made for each. */
#include "store/view.h"

#include "tests/store/view_log.h"

static void probe(int64_t engine, int64_t incarnation, double t, double total)
{
    ProbeFact fact = {.engine = engine,
                      .incarnation = incarnation,
                      .t_us = AT(t),
                      .kind = PROBE_LOADS,
                      .outcome = "ok",
                      .gen_tokens_total = val_of(total, AT(t)),
                      .policy_version = -1};
    store_put_probe(store, &fact);
}

/* A counter that falls is another process: no negative rate, and no jump either. */
static void test_counter_falls(void)
{
    fresh();
    scene_engines(store);
    for (int i = 2; i <= 60; i++) {
        bool again = i > 30;
        probe(1, again ? 2 : 1, i, again ? (i - 30) * 10 : 1e9 + i * 10);
        probe(2, 1, i, i > 30 ? i * 10 : 5e6 + i * 10); /* the same, not noticed as a new one */
    }
    flush();
    for (double t = 4; t < 60; t += 0.7) {
        EngineList list = view_engines(view, AT(t), 10, 1000000, arena);
        for (size_t e = 0; e < 2; e++) {
            CHECK(list.rows[e].tokens_per_s.v >= 0 && list.rows[e].tokens_per_s.v < 11);
            for (int i = 0; i < 10; i++) {
                float v = list.rows[e].spark[i];
                CHECK(isnan(v) || (v >= 0 && v < 11));
            }
        }
    }
    EngineList list = view_engines(view, AT(58), 10, 1000000, arena);
    CHECK_NEAR(list.rows[0].tokens_per_s.v, 10, 0.1);
    CHECK_I64(list.rows[0].incarnation, 2);
    gone();
}

static void test_late_facts(void)
{
    fresh();
    scene_engines(store);
    probe(1, 1, 10.0, 100);
    probe(1, 1, 11.2, 220);
    probe(1, 1, 10.9, 190); /* comes 300 ms late, over the end of a second */
    probe(1, 1, 12.5, 350);
    probe(1, 1, 13.5, 450);
    flush();
    int64_t at = 0;
    CHECK(view_seek(view, MARK_PROBE, AT(10.95), -1, &at));
    CHECK_I64(at, AT(10.9));
    CHECK(view_seek(view, MARK_PROBE, AT(10.0), 1, &at));
    CHECK_I64(at, AT(10.9));
    CHECK(view_seek(view, MARK_PROBE, AT(11.2), -1, &at));
    CHECK_I64(at, AT(10.9));
    CHECK(!view_seek(view, MARK_PROBE, AT(13.5), 1, &at));
    CHECK(!view_seek(view, MARK_PROBE, AT(10.0), -1, &at));
    EngineList list = view_engines(view, AT(10.95), 0, 1000000, arena);
    CHECK_I64(list.rows[0].seen_us, AT(10.9));
    list = view_engines(view, AT(10.5), 0, 1000000, arena);
    CHECK_I64(list.rows[0].seen_us, AT(10.0));
    list = view_engines(view, AT(12.0), 0, 1000000, arena);
    CHECK_I64(list.rows[0].seen_us, AT(11.2));
    gone();
}

/* The clock is set back by 40 s: the picture is live again within a second, not 40 s later. */
static void test_clock_set_back(void)
{
    fresh();
    scene_engines(store);
    for (int i = 2; i <= 240; i++) {
        probe(1, 1, i * 0.25, i * 10);
    }
    flush();
    for (int i = 80; i <= 200; i++) {
        probe(1, 1, i * 0.25, 2400 + (i - 80) * 10);
        flush();
    }
    EngineList list = view_engines(view, AT(50), 0, 0, arena);
    CHECK_I64(list.rows[0].seen_us, AT(50));
    CHECK_NEAR(list.rows[0].tokens_per_s.v, 40, 1);
    list = view_engines(view, AT(10), 0, 0, arena);
    CHECK_I64(list.rows[0].seen_us, AT(10));
    HeaderView h;
    CHECK(view_header(view, AT(50), arena, &h));
    CHECK_I64(h.last_fact_us, AT(50));
    gone();
}

static void test_phases_and_pause(void)
{
    fresh();
    scene_step_begin(store, 0, 1);
    scene_phase(store, 1, 0, PHASE_GENERATE, 1, false);
    scene_phase(store, 2, 0, PHASE_PAUSE, 5, false);
    scene_phase(store, 2, 0, PHASE_PAUSE, 8, true);
    scene_phase(store, 1, 0, PHASE_GENERATE, 10, true);
    for (int i = 0; i < 4; i++) {
        scene_phase(store, 3 + i, 0, PHASE_TRAIN, 10 + i * 3, false);
        scene_phase(store, 3 + i, 0, PHASE_TRAIN, 11 + i * 3, true);
    }
    flush();
    HeaderView h;
    CHECK(view_header(view, AT(0.5), arena, &h));
    CHECK_I64(h.phase, PHASE_INIT);
    CHECK(view_header(view, AT(4), arena, &h));
    CHECK_I64(h.phase, PHASE_GENERATE);
    CHECK(!h.paused);
    CHECK(view_header(view, AT(6), arena, &h));
    CHECK(h.paused);
    CHECK_I64(h.phase_since_us, AT(5));
    CHECK(view_header(view, AT(9), arena, &h));
    CHECK_I64(h.phase, PHASE_GENERATE);
    CHECK_I64(h.phase_since_us, AT(1));
    CHECK(h.phase_median_s < 0);
    CHECK(view_header(view, AT(21), arena, &h));
    CHECK_I64(h.phase, PHASE_TRAIN);
    CHECK_NEAR(h.phase_median_s, 1, 1e-9);
    gone();
}

static void test_events(void)
{
    fresh();
    for (int i = 1; i <= 100; i++) {
        char text[32];
        snprintf(text, sizeof text, "line %d%s", i, i % 10 == 0 ? " Ten" : "");
        EventFact event = {.t_us = AT(i),
                           .severity = i % 4 == 0 ? SEVERITY_WARN : SEVERITY_INFO,
                           .source = i % 2 ? "policy" : "rollout",
                           .text = text};
        store_put_event(store, &event);
    }
    flush();
    EventList list = view_events(view, AT(50.5), 5, 0, NULL, arena);
    CHECK_I64(list.count, 5);
    CHECK_I64(list.total, 50);
    CHECK_STR(list.rows[4].text, "line 50 Ten");
    CHECK_STR(list.rows[0].text, "line 46");
    CHECK_I64(list.warn_10min, 12);
    CHECK_I64(list.info_10min, 38);
    CHECK(!list.more_10min);
    list = view_events(view, AT(50.5), 5, list.rows[0].id, NULL, arena);
    CHECK_STR(list.rows[4].text, "line 45");
    list = view_events(view, AT(99), 3, 0, "ten", arena);
    CHECK_I64(list.count, 3);
    CHECK_I64(list.total, 9);
    CHECK_STR(list.rows[2].text, "line 90 Ten");
    list = view_events(view, AT(99), 50, 0, "polic", arena);
    CHECK_I64(list.total, 50);
    list = view_events(view, AT(99), 50, 0, "nothing like it", arena);
    CHECK_I64(list.count, 0);
    for (int i = 0; i < VIEW_EVENTS_COUNTED; i++) { /* the newest are counted, and it says so */
        EventFact event = {.t_us = AT(200) + i, .source = "rollout", .text = "a turn",
                           .severity = i == 0 ? SEVERITY_CRIT : SEVERITY_INFO};
        store_put_event(store, &event);
    }
    flush();
    list = view_events(view, AT(201), 5, 0, NULL, arena);
    CHECK_I64(list.crit_10min, 1);
    CHECK_I64(list.warn_10min, 0);
    CHECK_I64(list.info_10min, VIEW_EVENTS_COUNTED - 1);
    CHECK(list.more_10min);
    CHECK_I64(list.total, 100 + VIEW_EVENTS_COUNTED);
    gone();
}

static void test_commands(void)
{
    fresh();
    CommandFact asked = {.command = 1, .t_us = AT(1), .who = "ana (pid 7)", .what = "pause",
                         .state = "asked"};
    store_put_command(store, &asked);
    CommandFact done = {.command = 1, .t_us = AT(3), .state = "done", .answer = "paused"};
    store_put_command(store, &done);
    CommandFact other = {.command = 2, .t_us = AT(5), .who = "ben", .what = "stop",
                         .state = "refused"};
    store_put_command(store, &other);
    flush();
    CommandList list = view_commands(view, AT(2), 10, arena);
    CHECK_I64(list.count, 1);
    CHECK_STR(list.rows[0].state, "asked");
    CHECK(list.rows[0].answer == NULL);
    list = view_commands(view, AT(9), 10, arena);
    CHECK_I64(list.total, 2);
    CHECK_STR(list.rows[0].what, "stop");
    CHECK_STR(list.rows[1].who, "ana (pid 7)");
    CHECK_STR(list.rows[1].state, "done");
    CHECK_STR(list.rows[1].answer, "paused");
    CHECK_I64(list.rows[1].asked_us, AT(1));
    CHECK_I64(list.rows[1].updated_us, AT(3));
    gone();
}

static void policy_state(int64_t version, double t, PolicyState state)
{
    PolicyStateFact fact = {.version = version, .t_us = AT(t), .state = state, .txn = 1};
    store_put_policy_state(store, &fact);
}

static void test_policies_and_txns(void)
{
    fresh();
    scene_engines(store);
    for (int64_t v = 0; v < 3; v++) {
        PolicyFact fact = {.version = v, .t_us = AT(10 * v + 1), .parent = v - 1,
                           .digest = "00ff", .kind = "full", .bytes = 99, .step = v};
        store_put_policy(store, &fact);
    }
    policy_state(0, 2, POLICY_COMMITTED);
    policy_state(1, 12, POLICY_APPLYING);
    TxnFact txn = {.txn = 1, .t_us = AT(12), .from_version = 0, .to_version = 1, .engines = 2,
                   .why = "step 0 ended"};
    store_put_txn(store, &txn);
    for (int64_t e = 1; e <= 2; e++) {
        TxnAnswerFact answer = {.txn = 1, .engine = e, .incarnation = 1,
                                .t_us = AT(12.5 + (double)e), .took_us = 500,
                                .phase = TXN_APPLY, .ok = e == 1, .detail = "http 500"};
        store_put_txn_answer(store, &answer);
    }
    TxnDecisionFact decision = {.txn = 1, .t_us = AT(15), .commit = false, .reason = "eng-01"};
    store_put_txn_decision(store, &decision);
    TxnEndFact end = {.txn = 1, .t_us = AT(16), .outcome = "rolled_back", .pause_us = 4000000};
    store_put_txn_end(store, &end);
    policy_state(1, 16, POLICY_ROLLED_BACK);
    policy_state(2, 25, POLICY_COMMITTED);
    EngineStateFact verified = {.engine = 1, .incarnation = 1, .t_us = AT(24),
                                .state = ENGINE_UP, .policy_version = 2};
    store_put_engine_state(store, &verified);
    flush();
    HeaderView h;
    CHECK(view_header(view, AT(13), arena, &h));
    CHECK_I64(h.policy_version, 0);
    CHECK_I64(h.trainer_version, 1);
    CHECK(view_header(view, AT(26), arena, &h));
    CHECK_I64(h.policy_version, 2);
    PolicyList list = view_policies(view, AT(26), 10, arena);
    CHECK_I64(list.count, 3);
    CHECK_I64(list.total, 3);
    CHECK_I64(list.rows[0].version, 2);
    CHECK_I64(list.rows[0].engines, 1);
    CHECK_I64(list.rows[1].engines, 1); /* eng-01 still holds v1 by its last verified word */
    CHECK_I64(list.rows[1].state, POLICY_ROLLED_BACK);
    CHECK_I64(list.rows[2].parent, -1);
    CHECK_I64(view_policies(view, AT(0.5), 10, arena).total, 0);
    list = view_policies(view, AT(11.5), 10, arena);
    CHECK_I64(list.count, 2);
    CHECK_I64(list.total, 2);
    CHECK_I64(list.rows[0].state, POLICY_PUBLISHED);
    TxnRow row;
    CHECK(view_txn(view, 1, AT(14), arena, &row));
    CHECK_I64(row.decided, -1);
    CHECK_I64(row.answer_count, 1);
    CHECK(view_txn(view, 1, AT(15.5), arena, &row));
    CHECK_I64(row.decided, 0);
    CHECK(row.outcome == NULL);
    CHECK_I64(row.answer_count, 2);
    CHECK(!row.answers[1].ok);
    TxnList txns = view_txns(view, AT(20), 5, arena);
    CHECK_I64(txns.count, 1);
    CHECK_STR(txns.rows[0].outcome, "rolled_back");
    CHECK_I64(view_txns(view, AT(3), 5, arena).count, 0);
    /* since_us holds over words that repeat the state. */
    EngineList engines = view_engines(view, AT(26), 0, 0, arena);
    CHECK_I64(engines.rows[0].state_since_us, AT(1));
    CHECK_I64(engines.rows[0].policy_version, 2);
    int64_t at = 0;
    CHECK(view_seek(view, MARK_POLICY, AT(15), 1, &at));
    CHECK_I64(at, AT(21));
    CHECK(view_policy_time(view, 1, &at));
    CHECK(at == AT(11) && !view_policy_time(view, 9, &at));
    gone();
}

static void progress(int64_t sample, double t, int64_t engine, int64_t tokens)
{
    SampleProgressFact fact = {.sample = sample, .t_us = AT(t), .engine = engine,
                               .tokens = tokens};
    store_put_sample_progress(store, &fact);
}

static void test_tail_and_retries(void)
{
    fresh();
    scene_engines(store);
    scene_step_begin(store, 0, 1);
    scene_sample(store, 1, 0, 2, 0, FATE_OPEN, 1);
    scene_sample(store, 2, 0, 3, 30, FATE_REFUSED, 1);
    SampleRewardFact reward = {.sample = 2, .t_us = AT(45), .reward = val_of(0.9, AT(45))};
    for (int i = 3; i <= 60; i++) {
        if (i == 31) {
            scene_sample(store, 2, 0, 31, 40, FATE_ACCEPTED, 2);
        } else if (i == 45) {
            store_put_sample_reward(store, &reward);
        } else if (i == 50) {
            scene_sample(store, 3, 0, 50, 0, FATE_OPEN, 1);
        }
        progress(1, i + 0.25, 2, i * 10);
    }
    flush();
    TailList tail = view_tail(view, AT(20), 10, arena);
    CHECK_I64(tail.total, 2);
    CHECK_I64(tail.rows[0].sample, 1);
    CHECK_I64(tail.rows[0].tokens, 190);
    CHECK_I64(tail.rows[0].progress_us, AT(19.25));
    CHECK_STR(tail.rows[0].engine_name, "eng-01");
    CHECK_I64(tail.rows[0].policy_version, 1);
    CHECK_I64(tail.rows[1].engine, 1); /* told only at its end, true all the time */
    tail = view_tail(view, AT(35), 1, arena);
    CHECK_I64(tail.total, 2);
    CHECK_I64(tail.count, 1);
    tail = view_tail(view, AT(35), 10, arena);
    CHECK_I64(tail.rows[1].attempt, 2);
    int64_t in_buckets = 0;
    for (int i = 0; i < 8; i++) {
        in_buckets += tail.age_histogram[i];
    }
    CHECK_I64(in_buckets, 2);
    tail = view_tail(view, AT(60.5), 10, arena);
    CHECK_I64(tail.total, 2);
    CHECK_I64(tail.rows[0].tokens, 600);
    SampleView sample;
    CHECK(view_sample(view, 2, AT(30.5), arena, &sample));
    CHECK_I64(sample.fate, FATE_REFUSED);
    CHECK_STR(sample.reason, "counts differ");
    CHECK(view_sample(view, 2, AT(32), arena, &sample));
    CHECK_I64(sample.attempt, 2);
    CHECK_I64(sample.fate, FATE_OPEN);
    CHECK(view_sample(view, 2, AT(42), arena, &sample));
    CHECK_I64(sample.fate, FATE_ACCEPTED);
    CHECK(!sample.reward.known); /* it came at 45 s and replaced the first one */
    CHECK(view_sample(view, 2, AT(46), arena, &sample));
    CHECK_NEAR(sample.reward.v, 0.9, 0);
    gone();
}

static void test_curves_lines_strip(void)
{
    fresh();
    scene_engines(store);
    for (int i = 0; i < 50; i++) {
        scene_step_begin(store, i, i + 1);
        MetricFact metric = {.step = i, .t_us = AT(i + 1.5), .name = "train/pg_loss",
                             .value = i == 7 ? NAN : i * 0.5};
        store_put_metric(store, &metric);
        MetricFact of_engine = {.step = i, .t_us = AT(i + 1.5), .name = "train/pg_loss",
                                .engine = 1, .value = 1e6};
        store_put_metric(store, &of_engine);
        char text[32];
        snprintf(text, sizeof text, "line %d", i);
        ChildLineFact line = {.t_us = AT(i + 1.6), .child = i % 2 ? "trainer" : "eng-00",
                              .is_stderr = i % 3 == 0, .line = str_from(text)};
        store_put_child_line(store, &line);
        if (i < 20 || i >= 40) {
            probe(1, 1, i + 1.7, i * 100);
        }
    }
    flush();
    CurvePoint *curve = NULL;
    CHECK_I64(view_curve(view, "train/pg_loss", AT(30), 10, arena, &curve), 10);
    CHECK_I64(curve[9].step, 28);
    CHECK_NEAR(curve[9].value, 14, 0);
    CHECK_I64(view_curve(view, "train/pg_loss", AT(100), 100, arena, &curve), 49);
    CHECK_I64(view_curve(view, "no such", AT(100), 100, arena, &curve), 0);
    ChildLineRow *lines = NULL;
    CHECK_I64(view_child_lines(view, "trainer", AT(11), 3, arena, &lines), 3);
    CHECK_STR(lines[2].line, "line 9");
    CHECK_STR(lines[0].line, "line 5");
    CHECK(lines[2].is_stderr);
    StripCell *strip = NULL;
    CHECK(view_strip(view, AT(-10), AT(60), 7, arena, &strip));
    CHECK(strip[0].gap);
    CHECK(!strip[1].gap);
    CHECK_NEAR(strip[2].tokens_per_s.v, 100, 15);
    CHECK(!strip[6].gap);
    CHECK(!view_strip(view, AT(5), AT(5), 7, arena, &strip));
    int64_t at = 0;
    CHECK(view_step_time(view, 12, &at));
    CHECK_I64(at, AT(13));
    CHECK(view_seek(view, MARK_STEP, AT(13), -1, &at));
    CHECK_I64(at, AT(12));
    CHECK(view_seek(view, MARK_STEP, AT(13), 1, &at));
    CHECK_I64(at, AT(14));
    gone();
}

static void test_changed(void)
{
    fresh();
    view_changed(view);
    CHECK(!view_changed(view));
    EventFact event = {.t_us = AT(1), .source = "core", .text = "x"};
    store_put_event(store, &event);
    flush();
    CHECK(view_changed(view));
    CHECK(!view_changed(view));
    gone();
}

/* An arena that is too small gives a fault and no rows, never half an answer in silence. */
static void test_small_arena(void)
{
    fresh();
    scene_engines(store);
    flush();
    Arena *small = arena_new(64);
    EngineList list = view_engines(view, AT(5), 10, 1000000, small);
    CHECK_I64(list.count, 0);
    Fault fault = {0};
    CHECK_I64(view_fault(view, &fault), ERR_LIMIT);
    CHECK_I64(view_engines(view, AT(5), 10, 1000000, arena).count, 2);
    arena_free(small);
    gone();
}

int main(void)
{
    RUN(test_counter_falls);
    RUN(test_late_facts);
    RUN(test_clock_set_back);
    RUN(test_phases_and_pause);
    RUN(test_events);
    RUN(test_commands);
    RUN(test_policies_and_txns);
    RUN(test_tail_and_retries);
    RUN(test_curves_lines_strip);
    RUN(test_changed);
    RUN(test_small_arena);
    return test_end();
}
