#include "store/store.h"

#include "tests/harness.h"
#include "tests/store/scene.h"

static char *dir, *path;
static Arena *arena;

static Store *open_store(const StoreConfig *config)
{
    Store *store = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, config, &store, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    return store;
}

static View *open_view(void)
{
    View *view = NULL;
    Fault fault = {0};
    CHECK_I64(view_open(path, &view, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    return view;
}

static void fresh(void)
{
    dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
    arena = arena_new(64 << 20);
}

static void gone(void)
{
    free(path);
    scene_remove(dir);
    arena_free(arena);
}

static void put_scene(void)
{
    Store *store = open_store(NULL);
    scene_put(store);
    Fault fault = {0};
    CHECK_I64(store_wait(store, store_ticket(store), 5000, &fault), ERR_OK);
    store_close(store);
}

static void test_header(void)
{
    fresh();
    put_scene();
    View *view = open_view();
    RunView run;
    CHECK(view_run(view, arena, &run));
    CHECK_STR(run.run, "demo-20260314-104207");
    CHECK_I64(run.started_us, AT(0));
    CHECK_I64(run.last_us, AT(60.002));
    CHECK(run.core_alive);
    HeaderView h;
    CHECK(view_header(view, AT(24.5), arena, &h));
    CHECK_I64(h.step, 1);
    CHECK_I64(h.steps_done, 1);
    CHECK_I64(h.phase, PHASE_GENERATE);
    CHECK_I64(h.phase_since_us, AT(22));
    CHECK_I64(h.samples_inflight, 4);
    CHECK_I64(h.samples_want, 4);
    CHECK_I64(h.samples_done, 0);
    CHECK_NEAR(h.tail_max_s, 2.5, 0.01);
    CHECK_NEAR(h.tokens_per_s.v, 150, 2);
    CHECK_NEAR(h.kv_usage.v, 0.5, 1e-9);
    CHECK_NEAR(h.reward_mean.v, 0.5, 1e-9);
    CHECK(!h.eval_reward_mean.known);
    CHECK_I64(h.last_fact_us, AT(24.002));
    CHECK(view_header(view, AT(60.5), arena, &h));
    CHECK_I64(h.samples_inflight, 1);
    CHECK_I64(h.samples_done, 3);
    CHECK_NEAR(h.eval_reward_mean.v, 0.75, 1e-9);
    CHECK_NEAR(h.tokens_per_s.v, 100, 2);
    CHECK(view_header(view, AT(0.5), arena, &h));
    CHECK_I64(h.step, -1);
    CHECK(!h.tokens_per_s.known);
    view_close(view);
    gone();
}

static void test_engines(void)
{
    fresh();
    put_scene();
    View *view = open_view();
    EngineList list = view_engines(view, AT(55), 20, 1000000, arena);
    CHECK_I64(list.count, 2);
    CHECK_STR(list.rows[0].name, "eng-00");
    CHECK_NEAR(list.rows[0].tokens_per_s.v, 100, 1);
    CHECK_NEAR(list.rows[0].running.v, 8, 0);
    CHECK_NEAR(list.rows[0].itl_ms.v, 80, 1);
    CHECK_I64(list.rows[0].seen_us, AT(54.501));
    CHECK_I64(list.rows[0].state, ENGINE_UP);
    CHECK_I64(list.rows[0].pid, 101);
    CHECK_I64(list.rows[0].spark_count, 20);
    for (int i = 0; i < 19; i++) {
        CHECK_NEAR(list.rows[0].spark[i], 100, 2);
    }
    CHECK_I64(list.rows[1].seen_us, AT(39.502));
    CHECK_NEAR(list.rows[1].spark[2], 50, 2);
    CHECK(isnan(list.rows[1].spark[18]));
    CHECK(list.rows[1].errors_per_min.v > 20);
    CHECK_NEAR(list.rows[0].errors_per_min.v, 0, 0);
    list = view_engines(view, AT(20), 5, 1000000, arena);
    CHECK_I64(list.rows[1].seen_us, AT(19.502));
    CHECK_NEAR(list.rows[1].errors_per_min.v, 0, 0);
    list = view_engines(view, AT(-5), 5, 1000000, arena);
    CHECK_I64(list.count, 0);
    view_close(view);
    gone();
}

static void test_steps_and_samples(void)
{
    fresh();
    put_scene();
    View *view = open_view();
    StepList steps = view_steps(view, AT(60), 10, arena);
    CHECK_I64(steps.count, 3);
    CHECK_I64(steps.total, 3);
    CHECK_I64(steps.rows[0].step, 2);
    CHECK_I64(steps.rows[0].ended_us, 0);
    CHECK(steps.rows[0].outcome == NULL);
    CHECK_STR(steps.rows[1].outcome, "ok");
    CHECK_I64(steps.rows[1].span_count, 2);
    CHECK_I64(steps.rows[1].spans[1].phase, PHASE_TRAIN);
    steps = view_steps(view, AT(41 - 0.5), 10, arena);
    CHECK_I64(steps.count, 2);
    CHECK_I64(steps.rows[0].ended_us, 0);
    CHECK_I64(steps.rows[0].spans[1].to_us, 0);
    SampleView sample;
    CHECK(view_sample(view, 5, AT(60), arena, &sample));
    CHECK_I64(sample.fate, FATE_ACCEPTED);
    CHECK_I64(sample.token_count, 4);
    CHECK_I64(sample.tokens[3], 8);
    CHECK_NEAR(sample.logprobs[2], -0.3f, 0);
    CHECK_I64(sample.span_count, 2);
    CHECK_I64(sample.spans[1].policy_version, 2);
    CHECK_I64(sample.text.n, 3);
    CHECK(memcmp(sample.text.p, "a\0b", 3) == 0);
    CHECK_STR(sample.prompt.p, "sort 3 1 2");
    CHECK_STR(sample.engine_name, "eng-01");
    CHECK(view_sample(view, 5, AT(24), arena, &sample));
    CHECK_I64(sample.fate, FATE_OPEN);
    CHECK(!view_sample(view, 5, AT(21), arena, &sample));
    SampleList samples = view_samples(view, 1, AT(60), 2, 1, arena);
    CHECK_I64(samples.total, 4);
    CHECK_I64(samples.count, 2);
    CHECK_I64(samples.rows[0].sample, 6);
    TailList tail = view_tail(view, AT(59), 10, arena);
    CHECK_I64(tail.total, 1);
    CHECK_I64(tail.rows[0].sample, 12);
    CHECK_I64(tail.groups_total, 1);
    CHECK_I64(tail.groups_blocked_by_one, 1);
    EngineSpan *spans = NULL;
    CHECK_I64(view_step_engines(view, 1, AT(60), arena, &spans), 2);
    CHECK_I64(spans[0].samples, 2);
    CurvePoint *curve = NULL;
    CHECK_I64(view_curve(view, "reward_mean", AT(60), 10, arena, &curve), 2);
    CHECK_I64(curve[1].step, 1);
    view_close(view);
    gone();
}

int main(void)
{
    RUN(test_header);
    RUN(test_engines);
    RUN(test_steps_and_samples);
    return test_end();
}
