/* Retention and roll-ups: what goes, what stays, and that the past looks the same afterwards. */
#include "store/trim.h"
#include "tests/harness.h"
#include "tests/store/raw_sql.h"
#include "tests/store/scene.h"

#include <sqlite3.h>

enum { MINUTES = 200, KEPT_MINUTES = 40, SPIKE_MINUTE = 20 };

static char *dir, *path;

static void fresh(void)
{
    dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
}

static void gone(void)
{
    free(path);
    scene_remove(dir);
}

/* ---- when ---- */

static void test_due(void)
{
    int64_t before_us = 0;
    const char *why = "";
    TrimLimits none = {0};
    TrimLimits hour = {.keep_us = 3600 * INT64_C(1000000)};
    TrimLimits small = {.max_bytes = 1 << 20};
    TrimState state = {.first_us = AT(0), .last_us = AT(4000), .bytes = 2 << 20};
    CHECK(!trim_due(&none, &state, &before_us, &why));
    CHECK(trim_due(&hour, &state, &before_us, &why));
    CHECK_I64(before_us, AT(400));
    CHECK_STR(why, "age");
    state.first_us = AT(300); /* less than a twentieth of the hour: not yet */
    CHECK(!trim_due(&hour, &state, &before_us, &why));
    state.first_us = AT(0);
    CHECK(trim_due(&small, &state, &before_us, &why));
    CHECK_I64(before_us, AT(400)); /* a tenth of it */
    CHECK_STR(why, "size");
    state.bytes = 1 << 20;
    CHECK(!trim_due(&small, &state, &before_us, &why));
    /* The newest ten minutes stay, however short the age and however large the file. */
    TrimLimits tiny = {.keep_us = 1000000, .max_bytes = 1};
    CHECK(trim_due(&tiny, &state, &before_us, &why));
    CHECK_I64(before_us, AT(3400));
    state.first_us = AT(3400);
    CHECK(!trim_due(&tiny, &state, &before_us, &why));
    CHECK(!trim_due(&tiny, &(TrimState){0}, &before_us, &why));
}

/* ---- a run ---- */

static void put_minute(Store *store, int64_t n)
{
    double t = 60.0 * (double)n;
    if (n == 0) {
        scene_run(store);
        scene_engines(store);
    }
    scene_step_begin(store, n, t);
    scene_phase(store, n + 1, n, PHASE_GENERATE, t, false);
    for (int64_t i = 0; i < 4; i++) {
        scene_sample(store, n * 4 + i + 1, n, t + 0.1, 0, FATE_OPEN, 1);
    }
    for (int s = 0; s < 60; s++) {
        double at = t + s;
        for (int64_t i = 0; i < 4 && s == 40; i++) {
            SampleEndFact ended = {.sample = n * 4 + i + 1, .t_us = AT(at), .engine = 1 + i % 2,
                                   .attempt = 1, .fate = FATE_ACCEPTED, .text = STR("a text")};
            store_put_sample_end(store, &ended);
        }
        MetricFact metric = {.step = n, .t_us = AT(at), .name = "train/pg_loss",
                             .value = (double)n};
        if (s == 45) {
            store_put_metric(store, &metric);
        }
        for (int64_t e = 1; e <= 2; e++) {
            ProbeFact probe = {.engine = e, .incarnation = 1, .t_us = AT(at) + e,
                               .latency_us = 800, .kind = PROBE_LOADS, .outcome = "ok",
                               .policy_version = n, .running = val_of(8, AT(at)),
                               .gen_tokens_total = val_of(100 * at * (double)e, AT(at))};
            if (n == SPIKE_MINUTE && s == 33 && e == 2) {
                probe.running = val_of(500, AT(at));
            }
            store_put_probe(store, &probe);
        }
        SampleProgressFact progress = {.sample = n * 4 + 1, .t_us = AT(at), .tokens = s};
        ChildLineFact line = {.t_us = AT(at), .child = "trainer", .line = STR("a line")};
        store_put_sample_progress(store, &progress);
        store_put_child_line(store, &line);
    }
    PolicyFact policy = {.version = n + 1, .t_us = AT(t + 50), .parent = n, .step = n};
    TxnFact txn = {.txn = n + 1, .t_us = AT(t + 51), .from_version = n, .to_version = n + 1};
    TxnDecisionFact decision = {.txn = n + 1, .t_us = AT(t + 52), .commit = true};
    TxnEndFact end = {.txn = n + 1, .t_us = AT(t + 53), .outcome = "committed"};
    PolicyStateFact state = {.version = n + 1, .t_us = AT(t + 53), .state = POLICY_COMMITTED};
    CommandFact command = {.command = n + 1, .t_us = AT(t + 20), .what = "pause",
                           .state = "asked"};
    IncidentFact incident = {.incident = n + 1, .onset_us = AT(t + 5), .ended_us = AT(t + 9),
                             .class_name = "ENGINE-SLOW", .severity = SEVERITY_WARN};
    EventFact warn = {.t_us = AT(t + 5), .severity = SEVERITY_WARN, .text = "slow"};
    EventFact info = {.t_us = AT(t + 6), .text = "something happened"};
    store_put_policy(store, &policy);
    store_put_txn(store, &txn);
    store_put_txn_decision(store, &decision);
    store_put_txn_end(store, &end);
    store_put_policy_state(store, &state);
    store_put_command(store, &command);
    store_put_incident(store, &incident);
    store_put_event(store, &warn);
    store_put_event(store, &info);
    scene_phase(store, n + 1, n, PHASE_GENERATE, t + 45, true);
    scene_step_end(store, n, t + 54, val_of(0.5, AT(t + 54)));
}

static void wait_all(Store *store)
{
    Fault fault = {0};
    CHECK_I64(store_wait(store, store_ticket(store), 60000, &fault), ERR_OK);
}

static Store *open_store(const StoreConfig *config)
{
    Store *store = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, config, &store, &fault), ERR_OK);
    return store;
}

static View *open_view(void)
{
    View *view = NULL;
    Fault fault = {0};
    CHECK_I64(view_open(path, &view, &fault), ERR_OK);
    return view;
}

typedef struct Facts { /* numbers of rows that no trim may change */
    int64_t of[12];
} Facts;

static Facts kept_facts(void)
{
    static const char *const sqls[] = {
        "SELECT count(*) FROM step",      "SELECT count(*) FROM phase",
        "SELECT count(*) FROM policy",    "SELECT count(*) FROM policy_state",
        "SELECT count(*) FROM txn",       "SELECT sum(decided) FROM txn",
        "SELECT count(*) FROM command",   "SELECT count(*) FROM incident",
        "SELECT count(*) FROM event WHERE severity > 0",
        "SELECT count(*) FROM engine_state", "SELECT count(*) FROM session",
        "SELECT count(*) FROM incarnation"};
    Facts facts;
    for (int i = 0; i < 12; i++) {
        facts.of[i] = number(path, sqls[i]);
    }
    return facts;
}

static void check_same_facts(const Facts *want)
{
    Facts now = kept_facts();
    for (int i = 0; i < 12; i++) {
        CHECK_I64(now.of[i], want->of[i]);
    }
}

typedef struct Past { /* what the console shows of one moment and of the whole */
    int64_t step, policy, commands, alerts, state_since_us, spans;
    double rate, engine_rate, spark, strip, strip_max, spike;
    int64_t curve;
    bool gap;
} Past;

static Past look(double t)
{
    View *view = open_view();
    Arena *arena = arena_new(32 << 20);
    Past past = {0};
    HeaderView header;
    CurvePoint *curve = NULL;
    StripCell *strip = NULL;
    EngineSpan *spans = NULL;
    CHECK(view_header(view, AT(t), arena, &header));
    EngineList engines = view_engines(view, AT(t), 20, 10000000, arena);
    CHECK_I64(engines.count, 2);
    past.step = header.step;
    past.policy = header.policy_version;
    past.rate = header.tokens_per_s.known ? header.tokens_per_s.v : -1;
    past.engine_rate = engines.count == 2 ? engines.rows[1].tokens_per_s.v : -1;
    past.spark = engines.count == 2 ? engines.rows[1].spark[10] : -1;
    past.state_since_us = engines.count == 2 ? engines.rows[0].state_since_us : -1;
    past.commands = (int64_t)view_commands(view, AT(t), 1000, arena).total;
    past.alerts = header.alerts_open;
    past.spans = (int64_t)view_step_engines(view, header.step, AT(t), arena, &spans);
    past.curve = (int64_t)view_curve(view, "train/pg_loss", AT(t), 1000, arena, &curve);
    CHECK(view_strip(view, AT(0), AT(60 * MINUTES), 100, arena, &strip));
    int cell = (int)(t / (60.0 * MINUTES / 100));
    past.strip = strip[cell].tokens_per_s.v;
    past.strip_max = strip[cell].tokens_max.v;
    for (int i = 0; i < 100; i++) {
        past.gap = past.gap || strip[i].gap;
    }
    past.spike = (double)number(path, "SELECT max(max) FROM rollup WHERE engine = 2 AND series ="
                                " (SELECT word_id FROM word WHERE text = 'probe/running')");
    CHECK_I64(number(path, "SELECT min(min) FROM rollup WHERE engine = 2 AND series ="
                     " (SELECT word_id FROM word WHERE text = 'probe/running')"), 8);
    arena_free(arena);
    view_close(view);
    return past;
}

static void check_same_past(const Past *a, const Past *b)
{
    CHECK_I64(a->step, b->step);
    CHECK_I64(a->policy, b->policy);
    CHECK_I64(a->commands, b->commands);
    CHECK_I64(a->alerts, b->alerts);
    CHECK_I64(a->state_since_us, b->state_since_us);
    CHECK_I64(a->spans, b->spans);
    CHECK_I64(a->curve, b->curve);
    CHECK_NEAR(a->rate, b->rate, 1);
    CHECK_NEAR(a->engine_rate, b->engine_rate, 1);
    CHECK_NEAR(a->spark, b->spark, 1);
    CHECK_NEAR(a->strip, b->strip, 1);
    CHECK_NEAR(a->strip_max, b->strip_max, 1);
    CHECK_NEAR(a->spike, b->spike, 1e-9);
    CHECK(!a->gap && !b->gap);
}

static const double moments[] = {60 * 21 + 30.5, 60 * 90 + 17, 60 * 120 + 59, 60 * 190 + 30};
enum { LOOKS = sizeof moments / sizeof *moments };

/* The same run twice: with everything kept, and trimmed by age while it was written. */
static void test_age(void)
{
    Past whole[LOOKS];
    Facts facts = {0};
    for (int turn = 0; turn < 2; turn++) {
        fresh();
        StoreConfig config = {.keep_us = turn * KEPT_MINUTES * INT64_C(60000000)};
        Store *store = open_store(&config);
        for (int64_t n = 0; n < MINUTES; n++) {
            put_minute(store, n);
            wait_all(store);
        }
        int64_t probes = number(path, "SELECT count(*) FROM probe");
        if (turn == 0) {
            facts = kept_facts();
            CHECK_I64(probes, 120 * MINUTES);
        } else {
            check_same_facts(&facts);
            CHECK(probes >= 120 * KEPT_MINUTES);
            CHECK(probes <= 120 * (KEPT_MINUTES + 8));
            CHECK(number(path, "SELECT count(*) FROM attempt") <= 4 * (KEPT_MINUTES + 8));
            CHECK(number(path, "SELECT count(*) FROM attempt_data") <= 4 * (KEPT_MINUTES + 8));
            CHECK(number(path, "SELECT count(*) FROM sample_group") <= KEPT_MINUTES + 8);
            CHECK(number(path, "SELECT count(*) FROM event WHERE severity = 0") <=
                  KEPT_MINUTES + 8);
            CHECK(number(path, "SELECT count(*) FROM tick") <= MINUTES + 61 * (KEPT_MINUTES + 8));
            CHECK(number(path, "SELECT count(*) FROM trim WHERE why = 'age'") > 10);
        }
        for (int i = 0; i < LOOKS; i++) {
            Past past = look(moments[i]);
            if (turn == 0) {
                whole[i] = past;
                CHECK_NEAR(past.spike, 500, 1e-9);
                CHECK_NEAR(past.rate, 300, 10);
            } else {
                check_same_past(&past, &whole[i]);
            }
        }
        store_close(store);
        CHECK_I64(number(path, "SELECT count(*) FROM pragma_integrity_check"
                         " WHERE integrity_check <> 'ok'"), 0);
        gone();
    }
}

/* What is trimmed says so; it is not none. */
static void test_words(void)
{
    fresh();
    StoreConfig config = {.keep_us = 15 * INT64_C(60000000)};
    Store *store = open_store(&config);
    for (int64_t n = 0; n < 60; n++) {
        put_minute(store, n);
        wait_all(store);
    }
    View *view = open_view();
    Arena *arena = arena_new(32 << 20);
    HeaderView header;
    RunView run;
    CHECK(view_run(view, arena, &run));
    CHECK(run.trimmed_us > AT(60 * 40) && run.trimmed_us <= AT(60 * 46));
    CHECK_I64(run.first_us, AT(0));
    CHECK(view_header(view, AT(600), arena, &header));
    CHECK_I64(header.grain_s, 60);
    CHECK_I64(header.samples_inflight, -1);
    CHECK_I64(header.samples_done, -1);
    CHECK(view_tail(view, AT(600), 10, arena).trimmed);
    CHECK(view_samples(view, 9, AT(600), 10, 0, arena).trimmed);
    CHECK(view_header(view, AT(60 * 59 + 30), arena, &header));
    CHECK_I64(header.grain_s, 1);
    CHECK_I64(header.samples_inflight, 4);
    CHECK(!view_tail(view, AT(60 * 59 + 30), 10, arena).trimmed);
    SampleList samples = view_samples(view, 58, AT(60 * 59 + 30), 10, 0, arena);
    CHECK(!samples.trimmed);
    CHECK_I64(samples.count, 4);
    arena_free(arena);
    view_close(view);
    store_close(store);
    gone();
}

static void test_size(void)
{
    enum { BOUND = 1500000 };
    fresh();
    StoreConfig config = {.max_bytes = BOUND};
    Store *store = open_store(&config);
    int64_t most = 0;
    for (int64_t n = 0; n < 150; n++) {
        put_minute(store, n);
        wait_all(store);
        int64_t bytes = number(path, "SELECT (page_count - freelist_count) * page_size FROM"
                               " pragma_page_count, pragma_freelist_count, pragma_page_size");
        most = bytes > most ? bytes : most;
    }
    int64_t file = number(path, "SELECT page_count * page_size FROM pragma_page_count,"
                          " pragma_page_size");
    printf("     at most %lld bytes in use, %lld in the file, of %d\n", (long long)most,
           (long long)file, BOUND);
    CHECK(most < BOUND * 12 / 10);
    CHECK(file < BOUND * 13 / 10);
    CHECK(number(path, "SELECT count(*) FROM trim WHERE why = 'size'") > 2);
    CHECK_I64(number(path, "SELECT count(*) FROM step"), 150);
    CHECK(number(path, "SELECT count(*) FROM probe") >= 120 * 10);
    store_close(store);
    gone();
}

/* A trim that was cut short goes on; numbers are not given twice. */
static void test_resume(void)
{
    fresh();
    Store *store = open_store(NULL);
    for (int64_t n = 0; n < 30; n++) {
        put_minute(store, n);
    }
    store_close(store);
    int64_t newest = number(path, "SELECT max(probe_id) FROM probe");
    Db db;
    TrimWork work;
    Fault fault = {0};
    CHECK_I64(db_open_write(&db, path, &fault), ERR_OK);
    CHECK_I64(trim_begin(&db, AT(60 * 20), AT(60 * 30), "by hand", &work, &fault), ERR_OK);
    CHECK_I64(trim_slice(&db, &work), SQLITE_OK);
    CHECK(work.trim_id != 0);
    db_close(&db);
    CHECK_I64(number(path, "SELECT count(*) FROM trim WHERE ended_us IS NULL"), 1);
    store = open_store(NULL);
    CHECK_I64(store_marks(store)->sample, 120);
    CHECK_I64(store_marks(store)->group, 30);
    /* Each commit does a slice. */
    for (int i = 0; i < 400 && number(path, "SELECT count(*) FROM trim WHERE ended_us IS NULL") > 0;
         i++) {
        scene_probe(store, 1, 60 * 30 + i * 0.01, 1, true);
        wait_all(store);
    }
    CHECK_I64(number(path, "SELECT count(*) FROM trim WHERE ended_us IS NULL"), 0);
    CHECK_I64(number(path, "SELECT count(*) FROM probe WHERE probe_id < 2380"), 0);
    CHECK(number(path, "SELECT max(probe_id) FROM probe") > newest);
    CHECK_I64(number(path, "SELECT count(*) FROM attempt WHERE step < 19"), 0);
    CHECK_I64(number(path, "SELECT count(*) FROM attempt WHERE step >= 20"), 40);
    store_close(store);
    gone();
}

/* Steps behind the newest state but one keep their samples: a resumed run trains on them again. */
static void test_states(void)
{
    fresh();
    Store *store = open_store(NULL);
    for (int64_t n = 0; n < 30; n++) {
        put_minute(store, n);
    }
    store_close(store);
    Db db;
    TrimWork work;
    Fault fault = {0};
    CHECK_I64(db_open_write(&db, path, &fault), ERR_OK);
    CHECK_I64(db_exec(&db, "UPDATE step SET trainer_state = NULL WHERE step NOT IN (5, 8)", &fault),
              ERR_OK);
    CHECK_I64(trim_begin(&db, AT(60 * 20), AT(60 * 30), "by hand", &work, &fault), ERR_OK);
    CHECK_I64(work.step, 6);
    CHECK_I64(db_exec(&db, "UPDATE step SET trainer_state = NULL WHERE step = 8", &fault), ERR_OK);
    CHECK_I64(db_exec(&db, "DELETE FROM trim", &fault), ERR_OK);
    CHECK_I64(trim_begin(&db, AT(60 * 20), AT(60 * 30), "by hand", &work, &fault), ERR_OK);
    CHECK_I64(work.step, 0); /* one state: if it is damaged, the run begins anew */
    db_close(&db);
    gone();
}

/* A run that is paused for longer than the age keeps its newest rows: numbers go on from them. */
static void test_all_old(void)
{
    fresh();
    Store *store = open_store(NULL);
    for (int64_t n = 0; n < 5; n++) {
        put_minute(store, n);
    }
    wait_all(store);
    store_close(store);
    StoreConfig config = {.keep_us = 60000000};
    store = open_store(&config);
    EventFact late = {.t_us = AT(86400), .text = "a day later"};
    store_put_event(store, &late);
    wait_all(store);
    for (int i = 0; i < 60; i++) {
        EventFact event = {.t_us = AT(86401 + i), .text = "later"};
        store_put_event(store, &event);
        wait_all(store);
    }
    store_close(store);
    CHECK_I64(number(path, "SELECT count(*) FROM trim WHERE ended_us IS NOT NULL") > 0, 1);
    CHECK_I64(number(path, "SELECT max(probe_id) FROM probe"), 600);
    CHECK_I64(number(path, "SELECT max(attempt_id) FROM attempt"), 20);
    store = open_store(NULL);
    CHECK_I64(store_marks(store)->sample, 20);
    CHECK_I64(store_marks(store)->group, 5);
    CHECK_I64(store_marks(store)->last_step_ended, 4);
    store_close(store);
    gone();
}

int main(void)
{
    RUN(test_due);
    RUN(test_age);
    RUN(test_words);
    RUN(test_size);
    RUN(test_resume);
    RUN(test_states);
    RUN(test_all_old);
    return test_end();
}
