/* A view that stays open while the log grows remembers what it read (view_memory.h), and must say
 * what a view says that was opened just now: every field, at any T. Random runs: engines that
 * appear, are renewed, fall silent, rows that are late or of times to come, a clock that is set
 * back, a core that is started again, retention beside the writer, trim and compact by hand, reads
 * that are ended half way, jumps in time and back. */
#include "core/base/rng.h"
#include "store/maintain.h"
#include "store/view_private.h"
#include "tests/harness.h"
#include "tests/store/scene.h"

enum { ENGINES_MAX = 12, SEEDS = 8, STEPS = 140, TEXT_MAX = 4 << 20, SECOND = 1000000 };

typedef struct World {
    Rng rng;
    char *path;
    Store *store;
    StoreConfig config;
    int64_t now_us, engines, session, sample, incident, version;
    int64_t life[ENGINES_MAX + 1];
    double total[ENGINES_MAX + 1];
    bool silent[ENGINES_MAX + 1];
} World;

static bool chance(World *w, int percent)
{
    return (int)rng_below(&w->rng, 100) < percent;
}

static int64_t some_engine(World *w)
{
    return 1 + (int64_t)rng_below(&w->rng, (uint64_t)w->engines);
}

/* Now, a little late, or of a time to come: other clocks than ours. */
static int64_t some_time(World *w)
{
    int64_t off = (int64_t)rng_below(&w->rng, 900000);
    return chance(w, 70) ? w->now_us : chance(w, 80) ? w->now_us - off : w->now_us + 3 * off;
}

static void open_store(World *w)
{
    Fault fault = {0};
    CHECK_I64(store_open(w->path, &w->config, &w->store, &fault), ERR_OK);
    SessionFact session = {.session = ++w->session, .t_us = w->now_us, .pid = 42, .how = "start"};
    store_put_session(w->store, &session);
}

static void flush(World *w)
{
    Fault fault = {0};
    CHECK_I64(store_wait(w->store, store_ticket(w->store), 60000, &fault), ERR_OK);
}

/* ---- what happens ------------------------------------------------------------------------- */

static void renew(World *w, int64_t engine)
{
    IncarnationFact born = {.engine = engine, .incarnation = ++w->life[engine],
                            .t_us = some_time(w), .pid = 1000 + w->life[engine]};
    store_put_incarnation(w->store, &born);
    w->total[engine] = 0;
}

static void name_engine(World *w, int64_t engine)
{
    char name[24];
    char address[32];
    (void)snprintf(name, sizeof name, "eng-%d", (int)engine);
    (void)snprintf(address, sizeof address, "10.0.0.%d:%d", (int)engine,
                   (int)rng_below(&w->rng, 60000));
    EngineFact fact = {.engine = engine, .t_us = some_time(w), .name = name, .address = address,
                       .local = chance(w, 50)};
    store_put_engine(w->store, &fact);
}

static void add_engine(World *w)
{
    if (w->engines < ENGINES_MAX) {
        name_engine(w, ++w->engines);
        renew(w, w->engines);
    }
}

static void change_state(World *w)
{
    static const EngineState states[] = {ENGINE_UP, ENGINE_PAUSED, ENGINE_STUCK, ENGINE_DEAD,
                                         ENGINE_GONE, ENGINE_LOADING};
    static const char *const reasons[] = {"answers", "asked", NULL};
    int64_t engine = some_engine(w);
    EngineStateFact fact = {.engine = engine, .incarnation = w->life[engine],
                            .t_us = some_time(w), .state = states[rng_below(&w->rng, 6)],
                            .policy_version = chance(w, 80) ? w->version : -1,
                            .reason = reasons[rng_below(&w->rng, 3)]};
    store_put_engine_state(w->store, &fact);
}

static void probe(World *w, int64_t engine)
{
    int64_t t_us = some_time(w);
    bool ok = chance(w, 90);
    ProbeFact fact = {.engine = engine, .incarnation = w->life[engine], .t_us = t_us,
                      .kind = PROBE_LOADS, .outcome = ok ? "ok" : "reset",
                      .policy_version = chance(w, 70) ? w->version : -1};
    w->total[engine] += (double)rng_below(&w->rng, 500);
    if (ok) {
        fact.running = val_of((double)rng_below(&w->rng, 9), t_us);
        fact.token_usage = val_of(rng_unit(&w->rng), t_us);
        fact.gen_tokens_total = val_of(w->total[engine], t_us);
        fact.retracted_total = val_of(floor(w->total[engine] / 1000), t_us);
    }
    store_put_probe(w->store, &fact);
}

static void sample(World *w)
{
    int64_t id = ++w->sample;
    SampleStartFact start = {.sample = id, .group = 1, .t_us = w->now_us, .attempt = 1,
                             .engine = some_engine(w)};
    store_put_sample_start(w->store, &start);
    if (id > 3 && chance(w, 80)) {
        SampleEndFact end = {.sample = id - 3, .t_us = w->now_us, .attempt = 1,
                             .engine = some_engine(w), .fate = FATE_ACCEPTED, .finish = "stop",
                             .first_token_us = 1000 * (int64_t)rng_below(&w->rng, 900)};
        store_put_sample_end(w->store, &end);
    }
}

static void publish(World *w)
{
    PolicyFact policy = {.version = ++w->version, .t_us = w->now_us, .parent = w->version - 1};
    PolicyStateFact state = {.version = w->version, .t_us = w->now_us, .state = POLICY_COMMITTED};
    store_put_policy(w->store, &policy);
    store_put_policy_state(w->store, &state);
}

static void say(World *w)
{
    char child[24];
    char text[48];
    (void)snprintf(child, sizeof child, "eng-%d", (int)some_engine(w));
    (void)snprintf(text, sizeof text, "line %d", (int)rng_below(&w->rng, 1000));
    ChildLineFact line = {.t_us = some_time(w), .child = child, .line = str_from(text)};
    EventFact event = {.t_us = w->now_us, .source = "core", .text = text};
    store_put_child_line(w->store, &line);
    store_put_event(w->store, &event);
}

static void quarter_second(World *w)
{
    w->now_us += 250000;
    for (int64_t engine = 1; engine <= w->engines; engine++) {
        w->silent[engine] = chance(w, 1) ? !w->silent[engine] : w->silent[engine];
        if (!w->silent[engine]) {
            probe(w, engine);
        }
    }
    say(w);
    if (chance(w, 30)) {
        sample(w);
    }
}

/* By hand; the core is not there meanwhile. */
static void maintain(World *w, bool compact)
{
    Fault fault = {0};
    FILE *out = fopen("/dev/null", "w");
    store_close(w->store);
    if (compact) {
        CHECK_I64(log_compact(w->path, out, &fault), ERR_OK);
    } else {
        int64_t keep_us = TRIM_LEAST_US + 60 * (int64_t)rng_below(&w->rng, 30) * SECOND;
        CHECK_I64(log_trim(w->path, keep_us, 0, out, &fault), ERR_OK);
    }
    CHECK_STR(fault.sentence, "");
    (void)fclose(out);
    open_store(w);
}

static void something(World *w)
{
    int what = (int)rng_below(&w->rng, 100);
    for (int quarters = (int)rng_below(&w->rng, 12); quarters >= 0; quarters--) {
        quarter_second(w);
    }
    if (what < 30) {
        change_state(w);
    } else if (what < 40) {
        renew(w, some_engine(w));
    } else if (what < 46) {
        name_engine(w, some_engine(w));
    } else if (what < 52) {
        add_engine(w);
    } else if (what < 60) {
        publish(w);
    } else if (what < 63) {
        w->now_us -= (int64_t)rng_below(&w->rng, 60) * SECOND; /* the clock is set back */
        for (int i = 0; i < 24; i++) {
            quarter_second(w);
        }
    } else if (what < 70) {
        w->now_us += (int64_t)rng_below(&w->rng, 900) * SECOND; /* nobody was there */
    } else if (what < 74) {
        store_close(w->store);
        open_store(w);
    } else if (what < 77) {
        maintain(w, what < 75);
    }
    flush(w);
}

/* ---- what is said ------------------------------------------------------------------------- */

static void put_val(Text *out, const char *name, Val v)
{
    text_addf(out, " %s %d %.17g %lld", name, v.known, v.v, (long long)v.seen_us);
}

static void put_engines(Text *out, const EngineList *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const EngineRow *r = &list->rows[i];
        text_addf(out, "engine %lld life %lld %lld pid %lld name %s at %s why %s local %d state %d",
                  (long long)r->engine, (long long)r->incarnation, (long long)r->incarnations,
                  (long long)r->pid, r->name ? r->name : "-", r->address ? r->address : "-",
                  r->reason ? r->reason : "-", r->local, (int)r->state);
        text_addf(out, " since %lld policy %lld %lld seen %lld first %lld",
                  (long long)r->state_since_us, (long long)r->policy_version,
                  (long long)r->reported_version, (long long)r->seen_us,
                  (long long)r->first_seen_us);
        put_val(out, "tok", r->tokens_per_s);
        put_val(out, "run", r->running);
        put_val(out, "wait", r->waiting);
        put_val(out, "kv", r->kv_usage);
        put_val(out, "itl", r->itl_ms);
        put_val(out, "ttft", r->ttft_ms);
        put_val(out, "retracted", r->retracted_per_min);
        put_val(out, "errors", r->errors_per_min);
        for (int k = 0; k < r->spark_count; k++) {
            text_addf(out, " %.9g", isnan(r->spark[k]) ? -1 : (double)r->spark[k]);
        }
        text_add_char(out, '\n');
    }
}

static void put_header(Text *out, const HeaderView *h)
{
    text_addf(out, "header phase %d %lld %.17g step %lld %lld policy %lld %lld paused %d",
              (int)h->phase, (long long)h->phase_since_us, h->phase_median_s, (long long)h->step,
              (long long)h->steps_done, (long long)h->policy_version,
              (long long)h->trainer_version, h->paused);
    text_addf(out, " samples %lld %lld %lld tail %.17g %.17g %.17g alerts %lld %lld last %lld %lld"
              " grain %lld", (long long)h->samples_done, (long long)h->samples_want,
              (long long)h->samples_inflight, h->tail_p50_s, h->tail_p99_s, h->tail_max_s,
              (long long)h->alerts_open, (long long)h->alerts_crit, (long long)h->last_fact_us,
              (long long)h->not_recording_since_us, (long long)h->grain_s);
    put_val(out, "tok", h->tokens_per_s);
    put_val(out, "10min", h->tokens_per_s_10min);
    put_val(out, "kv", h->kv_usage);
    text_add_char(out, '\n');
}

static void put_page(Text *out, View *view, int64_t engine, int64_t t_us, Arena *arena)
{
    ProbeRow *probes;
    ChildLineRow *lines;
    char child[24];
    (void)snprintf(child, sizeof child, "eng-%d", (int)engine);
    size_t count = view_probes(view, engine, t_us, 20, arena, &probes);
    for (size_t i = 0; i < count; i++) {
        text_addf(out, "probe %lld %s %lld %lld %g\n", (long long)probes[i].t_us,
                  probes[i].outcome, (long long)probes[i].incarnation,
                  (long long)probes[i].policy_version, probes[i].running.v);
    }
    count = view_child_lines(view, child, t_us, 10, arena, &lines);
    for (size_t i = 0; i < count; i++) {
        text_addf(out, "line %lld %s\n", (long long)lines[i].t_us, lines[i].line);
    }
}

typedef struct Ask {
    int64_t t_us, spark_us, engine;
    int cells;
} Ask;

static void put_all(Text *out, View *view, const Ask *ask, Arena *arena)
{
    HeaderView header;
    text_clear(out);
    arena_reset(arena);
    view_hold(view);
    (void)view_header(view, ask->t_us, arena, &header);
    EngineList engines = view_engines(view, ask->t_us, ask->cells, ask->spark_us, arena);
    PolicyList policies = view_policies(view, ask->t_us, 8, arena);
    TailList tail = view_tail(view, ask->t_us, 20, arena);
    put_header(out, &header);
    put_engines(out, &engines);
    for (size_t i = 0; i < policies.count; i++) {
        text_addf(out, "policy %lld engines %lld\n", (long long)policies.rows[i].version,
                  (long long)policies.rows[i].engines);
    }
    for (size_t i = 0; i < tail.count; i++) {
        const TailRow *row = &tail.rows[i];
        text_addf(out, "sample %lld on %s %lld tokens %lld\n", (long long)row->sample,
                  row->engine_name ? row->engine_name : "-", (long long)row->policy_version,
                  (long long)row->tokens);
    }
    put_page(out, view, ask->engine, ask->t_us, arena);
    view_release(view);
    /* Whatever happened in it: no transaction outlives a frame. */
    CHECK_I64(sqlite3_txn_state(view->db.handle, NULL), SQLITE_TXN_NONE);
}

/* ---- one against the other ---------------------------------------------------------------- */

static int stop_after(void *user)
{
    int *left = user;
    return *left >= 0 && (*left)-- == 0;
}

/* The first line that differs. */
static void report(const char *live, const char *cold, const Ask *ask, const char *how)
{
    size_t at = 0;
    size_t line = 0;
    for (; live[at] != '\0' && live[at] == cold[at]; at++) {
        line = live[at] == '\n' ? at + 1 : line;
    }
    fprintf(stderr, "%s at %lld, %d cells of %lld us:\n  live %.*s\n  cold %.*s\n", how,
            (long long)(ask->t_us - SCENE_T0), ask->cells, (long long)ask->spark_us,
            (int)strcspn(live + line, "\n"), live + line, (int)strcspn(cold + line, "\n"),
            cold + line);
}

static Ask some_ask(World *w)
{
    static const struct {
        int cells;
        int64_t us;
    } sparks[] = {{28, 10 * SECOND}, {28, 2 * SECOND}, {16, 4 * SECOND}, {0, 0}, {5, 60 * SECOND}};
    size_t spark = rng_below(&w->rng, chance(w, 70) ? 2 : 5);
    int64_t back_us = (int64_t)(rng_unit(&w->rng) * rng_unit(&w->rng) * 2e9);
    return (Ask){.t_us = w->now_us + 300000 - (chance(w, 80) ? 0 : back_us),
                 .cells = sparks[spark].cells, .spark_us = sparks[spark].us,
                 .engine = chance(w, 70) ? 1 : some_engine(w)};
}

static void compare(World *w, View *live, int *left, const char *how)
{
    static Text a, b;
    text_init(&a, TEXT_MAX);
    text_init(&b, TEXT_MAX);
    Arena *arena = arena_new(64 << 20);
    Ask ask = some_ask(w);
    View *cold = NULL;
    Fault fault = {0};
    if (chance(w, 20)) { /* a key ends a read */
        *left = (int)rng_below(&w->rng, 2000);
        put_all(&a, live, &ask, arena);
        *left = -1;
    }
    put_all(&a, live, &ask, arena);
    CHECK_I64(view_open(w->path, &cold, &fault), ERR_OK);
    put_all(&b, cold, &ask, arena);
    view_close(cold);
    bool same = strcmp(text_c(&a), text_c(&b)) == 0;
    CHECK(same);
    if (!same) {
        report(text_c(&a), text_c(&b), &ask, how);
    }
    CHECK(strlen(text_c(&a)) > 100);
    text_free(&a);
    text_free(&b);
    arena_free(arena);
}

static void run_one(uint64_t seed)
{
    char *dir = scene_dir();
    char how[32];
    World w = {.now_us = AT(0), .path = xasprintf("%s/run.db", dir),
               .config = {.commit_rows = 100, .queue_facts = 1 << 20,
                          .keep_us = seed % 3 == 0 ? TRIM_LEAST_US : 0}};
    View *live = NULL;
    Fault fault = {0};
    int left = -1;
    rng_seed(&w.rng, seed);
    open_store(&w);
    scene_run(w.store);
    publish(&w);
    for (int i = 0; i < 3; i++) {
        add_engine(&w);
    }
    for (int i = 0; i < 60; i++) {
        quarter_second(&w);
    }
    flush(&w);
    CHECK_I64(view_open(w.path, &live, &fault), ERR_OK);
    sqlite3_progress_handler(live->db.handle, 20, stop_after, &left); /* finer than the console's */
    for (int step = 0; step < STEPS && test_failures < 5; step++) {
        something(&w);
        (void)snprintf(how, sizeof how, "seed %d step %d", (int)seed, step);
        compare(&w, live, &left, how);
    }
    CHECK_I64(store_dropped(w.store), 0);
    view_close(live);
    store_close(w.store);
    free(w.path);
    scene_remove(dir);
}

static void test_live_is_cold(void)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run_one(seed);
    }
}

/* What was read holds from its own time to that of the next row. */
static void test_spell(void)
{
    Spell nothing = {0};
    CHECK(!spell_take(&nothing, 5, 10));
    Spell spell = {100, INT64_MAX};
    CHECK(!spell_take(&spell, 99, 200)); /* older than what holds */
    CHECK_I64(spell.from_us, 100);
    CHECK(spell_take(&spell, 100, 200)); /* of the same time: the later row counts */
    CHECK(spell_take(&spell, 150, 200));
    CHECK_I64(spell.from_us, 150);
    CHECK(!spell_take(&spell, 300, 200)); /* of a time to come */
    CHECK_I64(spell.from_us, 150);
    CHECK_I64(spell.until_us, 300);
    CHECK(!spell_take(&spell, 300, 400)); /* what holds there was not read yet */
    CHECK_I64(spell.until_us, 300);
}

static void test_rate(void)
{
    Seen seen[] = {{0, 0}, {SECOND, 100}, {2 * SECOND, 100}, {12 * SECOND, 1100}};
    CHECK(!rate_of(seen, 1).known);
    CHECK_NEAR(rate_of(seen, 3).v, 50, 1e-9);
    CHECK_NEAR(rate_of(seen, 4).v, 100, 1e-9); /* the newest ten seconds */
    seen[3].t_us = 40 * SECOND;
    CHECK(!rate_of(seen + 3, 1).known);
    CHECK(!rate_of(seen, 4).known); /* a gap: one observation is no rate */
    seen[3].t_us = 2 * SECOND + 300000;
    CHECK(!rate_of(seen + 2, 2).known); /* too short a time */
}

int main(void)
{
    RUN(test_spell);
    RUN(test_rate);
    RUN(test_live_is_cold);
    return test_end();
}
