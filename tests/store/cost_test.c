/* State at T costs what is on screen, not what is in the file: SQLite's own count of executed
 * steps for each question, on a log and on one seven times as long, live and in the past. And a
 * picture a second later costs what came in that second. */
#include "store/view_private.h"
#include "tests/harness.h"
#include "tests/store/scene.h"

/* The short one is longer than ten minutes: that is how far the header looks back. */
enum { SHORT_STEPS = 70, LONG_STEPS = 490, STEP_SECONDS = 10, ASKED = 13 };

static char *dir, *path;

/* One step of ten seconds: probes, four samples with progress, a publication, a transaction, a
 * command, an incident, events, metrics, output. */
static void put_step(Store *store, int64_t n)
{
    double t = 2 + (double)n * STEP_SECONDS;
    scene_step_begin(store, n, t);
    scene_phase(store, n + 1, n, PHASE_GENERATE, t, false);
    for (int64_t i = 0; i < 4; i++) {
        scene_sample(store, n * 4 + i + 1, n, t + 0.1, t + 8.5, FATE_ACCEPTED, 1);
    }
    TxnFact txn = {.txn = n + 1, .t_us = AT(t + 9), .engines = 2};
    for (int half = 0; half < 2 * STEP_SECONDS; half++) {
        double at = t + half * 0.5;
        scene_probe(store, 1, at, 100 * at, true);
        scene_probe(store, 2, at, 50 * at, true);
        EventFact event = {.t_us = AT(at), .source = "core", .text = "something happened"};
        ChildLineFact line = {.t_us = AT(at), .child = "trainer", .line = STR("a line")};
        if (half % 5 == 0) {
            store_put_event(store, &event);
            store_put_child_line(store, &line);
        }
        SampleProgressFact progress = {.sample = n * 4 + 1, .t_us = AT(at), .tokens = half};
        store_put_sample_progress(store, &progress);
    }
    store_put_txn(store, &txn);
    TxnEndFact end = {.txn = n + 1, .t_us = AT(t + 9.2), .outcome = "committed"};
    store_put_txn_end(store, &end);
    PolicyFact policy = {.version = n + 1, .t_us = AT(t + 9), .parent = n, .step = n};
    store_put_policy(store, &policy);
    PolicyStateFact state = {.version = n + 1, .t_us = AT(t + 9.2), .state = POLICY_COMMITTED};
    store_put_policy_state(store, &state);
    IncidentFact incident = {.incident = n + 1, .onset_us = AT(t + 1), .ended_us = AT(t + 3)};
    store_put_incident(store, &incident);
    MetricFact metric = {.step = n, .t_us = AT(t + 9), .name = "train/pg_loss", .value = 1};
    store_put_metric(store, &metric);
    scene_phase(store, n + 1, n, PHASE_GENERATE, t + 9.3, true);
    scene_step_end(store, n, t + 9.4, val_of(0.5, AT(t + 9.4)));
}

static View *make_log(int steps)
{
    dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
    Store *store = NULL;
    View *view = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    scene_run(store);
    scene_engines(store);
    for (int n = 0; n < steps; n++) {
        put_step(store, n);
        CHECK_I64(store_wait(store, store_ticket(store), 20000, &fault), ERR_OK);
    }
    store_close(store);
    CHECK_I64(view_open(path, &view, &fault), ERR_OK);
    return view;
}

static void drop_log(View *view)
{
    view_close(view);
    free(path);
    scene_remove(dir);
}

/* Steps since the last call, over all statements of the connection. */
static int64_t steps_taken(View *view)
{
    int64_t sum = 0;
    sqlite3_stmt *stmt = NULL;
    while ((stmt = sqlite3_next_stmt(view->db.handle, stmt)) != NULL) {
        sum += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 1);
    }
    return sum;
}

static const char *const names[ASKED] = {"header", "engines", "tail",    "steps",    "policies",
                                         "txns",   "events",  "alerts",  "commands", "samples",
                                         "curve",  "lines",   "strip and seek"};

static void ask(View *view, int what, int64_t t_us, Arena *arena)
{
    HeaderView header;
    CurvePoint *curve;
    ChildLineRow *lines;
    StripCell *strip;
    int64_t at = 0;
    switch (what) {
    case 0: CHECK(view_header(view, t_us, arena, &header)); break;
    case 1: CHECK_I64(view_engines(view, t_us, 26, 2300000, arena).count, 2); break;
    case 2: CHECK_I64(view_tail(view, t_us, 10, arena).total, 4); break;
    case 3: CHECK_I64(view_steps(view, t_us, 8, arena).count, 8); break;
    case 4: CHECK_I64(view_policies(view, t_us, 8, arena).count, 8); break;
    case 5: CHECK_I64(view_txns(view, t_us, 8, arena).count, 8); break;
    case 6: CHECK_I64(view_events(view, t_us, 8, 0, NULL, arena).count, 8); break;
    case 7: CHECK_I64(view_alerts(view, t_us, 8, arena).count, 0); break;
    case 8: CHECK_I64(view_commands(view, t_us, 8, arena).count, 0); break;
    case 9: CHECK(view_samples(view, 10, t_us, 8, 0, arena).count == 4); break;
    case 10: CHECK_I64(view_curve(view, "train/pg_loss", t_us, 8, arena, &curve), 8); break;
    case 11: CHECK_I64(view_child_lines(view, "trainer", t_us, 8, arena, &lines), 8); break;
    case 12:
        CHECK(view_strip(view, AT(0), t_us, 60, arena, &strip));
        CHECK(view_seek(view, MARK_PROBE, t_us, -1, &at));
        CHECK(view_seek(view, MARK_STEP, t_us, -1, &at));
        break;
    }
}

static void costs(View *view, double t, int64_t *out)
{
    Arena *arena = arena_new(16 << 20);
    for (int i = 0; i < ASKED; i++) {
        steps_taken(view);
        ask(view, i, AT(t), arena);
        out[i] = steps_taken(view);
    }
    arena_free(arena);
}

static void test_cost_does_not_grow(void)
{
    int64_t past[2][ASKED];
    int64_t live[2][ASKED];
    for (int i = 0; i < 2; i++) {
        int steps = i == 0 ? SHORT_STEPS : LONG_STEPS;
        View *view = make_log(steps);
        costs(view, 2 + 12 * STEP_SECONDS + 7.3, past[i]);
        costs(view, 2 + (steps - 1) * STEP_SECONDS + 7.3, live[i]);
        drop_log(view);
    }
    for (int i = 0; i < ASKED; i++) {
        /* The strip looks at every incident of its span: shown, so counted. */
        int64_t shown = i == 12 ? LONG_STEPS * 12 : 0;
        bool good = past[1][i] <= past[0][i] * 13 / 10 + 40 &&
                    live[1][i] <= live[0][i] * 13 / 10 + 40 + shown;
        CHECK(good);
        if (!good) {
            fprintf(stderr, "  %s: past %lld then %lld steps, live %lld then %lld\n", names[i],
                    (long long)past[0][i], (long long)past[1][i], (long long)live[0][i],
                    (long long)live[1][i]);
        }
    }
}

/* ---- one second after the other ----------------------------------------------------------- */

enum { FLEET = 200, FLEET_SECONDS = 90 };

static void put_second(Store *store, int second)
{
    Fault fault = {0};
    for (int64_t engine = 1; engine <= FLEET; engine++) {
        scene_probe(store, engine, second + 0.0001 * (double)engine, 100 * second, true);
    }
    CHECK_I64(store_wait(store, store_ticket(store), 20000, &fault), ERR_OK);
}

static int64_t picture(View *view, double t, Arena *arena)
{
    HeaderView header;
    ProbeRow *probes;
    steps_taken(view);
    view_hold(view);
    CHECK(view_header(view, AT(t), arena, &header));
    CHECK_I64(view_engines(view, AT(t), 28, 10 * INT64_C(1000000), arena).count, FLEET);
    CHECK_I64(view_policies(view, AT(t), 8, arena).count, 0);
    CHECK_I64(view_probes(view, 7, AT(t), 40, arena, &probes), 40);
    view_release(view);
    arena_reset(arena);
    return steps_taken(view);
}

static void test_next_second(void)
{
    dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
    Store *store = NULL;
    View *view = NULL;
    Fault fault = {0};
    Arena *arena = arena_new(16 << 20);
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    scene_run(store);
    for (int64_t engine = 1; engine <= FLEET; engine++) {
        EngineFact fact = {.engine = engine, .t_us = AT(0), .name = "eng", .address = "host:1"};
        EngineStateFact up = {.engine = engine, .t_us = AT(0), .state = ENGINE_UP};
        store_put_engine(store, &fact);
        store_put_engine_state(store, &up);
    }
    for (int second = 1; second <= FLEET_SECONDS; second++) {
        put_second(store, second);
    }
    CHECK_I64(view_open(path, &view, &fault), ERR_OK);
    int64_t whole = picture(view, FLEET_SECONDS + 0.5, arena);
    put_second(store, FLEET_SECONDS + 1);
    int64_t next = picture(view, FLEET_SECONDS + 1.5, arena);
    int64_t again = picture(view, FLEET_SECONDS + 1.6, arena);
    printf("steps: all %lld, a second later %lld, once more %lld\n", (long long)whole,
           (long long)next, (long long)again);
    CHECK(next < whole / 5);
    CHECK(next < FLEET * 80); /* each engine's tick and probe, once */
    CHECK(again < next / 2);
    view_close(view);
    store_close(store);
    arena_free(arena);
    free(path);
    scene_remove(dir);
}

int main(void)
{
    RUN(test_cost_does_not_grow);
    RUN(test_next_second);
    return test_end();
}
