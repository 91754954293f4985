/* State at T against a naive twin that looks at every fact: random runs, facts up to 400 ms late,
 * the store closed and opened again in the middle. */
#include "core/base/rng.h"
#include "tests/harness.h"
#include "tests/store/scene.h"

enum { ENGINES = 5, SECONDS = 150, SAMPLES = 300, INCIDENTS = 40, FACTS_MAX = 40000 };

typedef enum Kind { PROBE, START, PROGRESS, END, ONSET, OVER } Kind;

typedef struct Fact {
    Kind kind;
    int64_t t_us, arrival_us;
    int64_t id, engine, value;
    bool ok;
    int attempt;
} Fact;

static Fact facts[FACTS_MAX];
static size_t fact_count;
static char *dir, *path;

static Fact *add(Rng *rng, Kind kind, int64_t t_us, int64_t id)
{
    Fact *fact = &facts[fact_count++];
    *fact = (Fact){.kind = kind, .t_us = t_us, .id = id, .attempt = 1};
    fact->arrival_us = t_us + (rng_below(rng, 4) == 0 ? (int64_t)rng_below(rng, 400000) : 0);
    return fact;
}

static void make_sample(Rng *rng, int64_t id)
{
    int64_t t_us = AT(1 + rng_unit(rng) * (SECONDS - 20));
    int attempts = rng_below(rng, 4) == 0 ? 2 : 1;
    for (int attempt = 1; attempt <= attempts; attempt++) {
        bool stays = attempt == attempts && rng_below(rng, 20) == 0;
        int64_t end_us = t_us + 1000000 + (int64_t)rng_below(rng, 30000000);
        add(rng, START, t_us, id)->attempt = attempt;
        int64_t tokens = 0;
        for (int64_t p = t_us + 1500000; p < end_us || (stays && p < AT(SECONDS)); p += 1500000) {
            tokens += 1 + (int64_t)rng_below(rng, 50);
            Fact *fact = add(rng, PROGRESS, p, id);
            fact->value = tokens;
            fact->attempt = attempt;
            fact->arrival_us = fact->t_us; /* an attempt's own facts keep their order */
        }
        if (!stays) {
            Fact *end = add(rng, END, end_us, id);
            end->attempt = attempt;
            end->ok = attempt == attempts;
            end->arrival_us = end_us;
        }
        t_us = end_us + 600000;
    }
}

static int by_arrival(const void *a, const void *b)
{
    const Fact *x = a;
    const Fact *y = b;
    if (x->arrival_us != y->arrival_us) {
        return x->arrival_us < y->arrival_us ? -1 : 1;
    }
    return x < y ? -1 : x > y;
}

static void make_run(uint64_t seed)
{
    Rng rng;
    rng_seed(&rng, seed);
    fact_count = 0;
    for (int64_t e = 1; e <= ENGINES; e++) {
        /* Engine 3 falls silent for a while; engine 5 fails often. */
        for (int64_t t_us = AT(1) + e * 1000; t_us < AT(SECONDS);
             t_us += 500000 + (int64_t)rng_below(&rng, 100000)) {
            if (e == 3 && t_us > AT(40) && t_us < AT(90)) {
                continue;
            }
            Fact *fact = add(&rng, PROBE, t_us, 0);
            fact->engine = e;
            fact->ok = rng_below(&rng, e == 5 ? 2 : 50) != 0;
            fact->value = (int64_t)rng_below(&rng, 100);
        }
    }
    for (int64_t id = 1; id <= SAMPLES; id++) {
        make_sample(&rng, id);
    }
    double onset = 1;
    for (int64_t id = 1; id <= INCIDENTS; id++) {
        onset += 0.5 + rng_unit(&rng) * 5; /* numbered in order of onset */
        Fact *fact = add(&rng, ONSET, AT(onset), id);
        fact->arrival_us = fact->t_us;
        if (rng_below(&rng, 5) != 0) {
            add(&rng, OVER, AT(onset + 0.1 + rng_unit(&rng) * 40), id)->value = AT(onset);
        }
    }
    qsort(facts, fact_count, sizeof facts[0], by_arrival);
}

static void put_fact(Store *store, const Fact *f)
{
    switch (f->kind) {
    case PROBE: {
        ProbeFact probe = {.engine = f->engine, .incarnation = 1, .t_us = f->t_us,
                           .kind = PROBE_LOADS, .outcome = f->ok ? "ok" : "reset",
                           .policy_version = -1};
        if (f->ok) {
            probe.running = val_of((double)f->value, f->t_us);
        }
        store_put_probe(store, &probe);
        break;
    }
    case START: {
        SampleStartFact start = {.sample = f->id, .group = 1, .t_us = f->t_us,
                                 .attempt = f->attempt};
        store_put_sample_start(store, &start);
        break;
    }
    case PROGRESS: {
        SampleProgressFact progress = {.sample = f->id, .t_us = f->t_us, .tokens = f->value};
        store_put_sample_progress(store, &progress);
        break;
    }
    case END: {
        SampleEndFact end = {.sample = f->id, .t_us = f->t_us, .attempt = f->attempt,
                             .fate = f->ok ? FATE_ACCEPTED : FATE_LOST};
        store_put_sample_end(store, &end);
        break;
    }
    case ONSET:
    case OVER: {
        IncidentFact incident = {.incident = f->id, .severity = SEVERITY_WARN,
                                 .onset_us = f->kind == ONSET ? f->t_us : f->value,
                                 .ended_us = f->kind == OVER ? f->t_us : 0};
        store_put_incident(store, &incident);
        break;
    }
    }
}

static void write_run(Rng *rng)
{
    Store *store = NULL;
    Fault fault = {0};
    StoreConfig config = {.commit_rows = 50, .queue_facts = 1 << 20};
    CHECK_I64(store_open(path, &config, &store, &fault), ERR_OK);
    scene_run(store);
    for (int64_t e = 1; e <= ENGINES; e++) {
        EngineFact engine = {.engine = e, .t_us = AT(0), .name = "eng"};
        store_put_engine(store, &engine);
    }
    for (size_t i = 0; i < fact_count; i++) {
        put_fact(store, &facts[i]);
        if (rng_below(rng, fact_count / 6) == 0) { /* nothing of the writer's memory counts */
            store_close(store);
            CHECK_I64(store_open(path, &config, &store, &fault), ERR_OK);
        }
    }
    CHECK_I64(store_dropped(store), 0);
    store_close(store);
}

/* ---- the twin ---- */

static void check_engines(View *view, int64_t t_us, Arena *arena)
{
    EngineList list = view_engines(view, t_us, 0, 0, arena);
    CHECK_I64(list.count, ENGINES);
    for (size_t e = 0; e < list.count; e++) {
        int64_t ok_us = 0;
        int64_t running = -1;
        for (size_t i = 0; i < fact_count; i++) {
            const Fact *f = &facts[i];
            bool counts = f->kind == PROBE && f->engine == list.rows[e].engine && f->ok;
            if (counts && f->t_us <= t_us && f->t_us > ok_us) {
                ok_us = f->t_us;
                running = f->value;
            }
        }
        CHECK_I64(list.rows[e].seen_us, ok_us);
        CHECK_I64(list.rows[e].running.known ? list.rows[e].running.v : -1, running);
        CHECK_I64(list.rows[e].running.seen_us, ok_us);
    }
}

static void check_tail(View *view, int64_t t_us, Arena *arena)
{
    static int64_t open[SAMPLES + 1], tokens[SAMPLES + 1];
    memset(open, 0, sizeof open);
    memset(tokens, 0, sizeof tokens);
    size_t total = 0;
    for (size_t i = 0; i < fact_count; i++) {
        const Fact *f = &facts[i];
        if (f->t_us > t_us) {
            continue;
        }
        if (f->kind == START && f->attempt > open[f->id]) {
            open[f->id] = f->attempt;
            tokens[f->id] = 0;
        }
    }
    for (size_t i = 0; i < fact_count; i++) {
        const Fact *f = &facts[i];
        if (f->t_us > t_us || f->attempt != open[f->id]) {
            continue;
        }
        if (f->kind == PROGRESS) {
            tokens[f->id] = f->value;
        } else if (f->kind == END) {
            open[f->id] = -1;
        }
    }
    for (int64_t id = 1; id <= SAMPLES; id++) {
        total += open[id] > 0;
    }
    TailList tail = view_tail(view, t_us, SAMPLES, arena);
    CHECK_I64(tail.total, total);
    for (size_t i = 0; i < tail.count; i++) {
        CHECK_I64(tail.rows[i].attempt, open[tail.rows[i].sample]);
        CHECK_I64(tail.rows[i].tokens, tokens[tail.rows[i].sample]);
        CHECK(i == 0 || tail.rows[i - 1].started_us <= tail.rows[i].started_us);
    }
    HeaderView header;
    CHECK(view_header(view, t_us, arena, &header));
    CHECK_I64(header.samples_inflight, total);
}

static void check_alerts(View *view, int64_t t_us, Arena *arena)
{
    int64_t open = 0;
    int64_t newest_us = AT(0);
    for (size_t i = 0; i < fact_count; i++) {
        if (facts[i].t_us > t_us) {
            continue;
        }
        open += facts[i].kind == ONSET;
        open -= facts[i].kind == OVER;
        /* Ends have no order of their own: they count once their second is over. */
        bool counts = facts[i].kind != ONSET && facts[i].kind != OVER && facts[i].kind != END;
        newest_us = counts && facts[i].t_us > newest_us ? facts[i].t_us : newest_us;
    }
    HeaderView header;
    CHECK(view_header(view, t_us, arena, &header));
    CHECK_I64(header.alerts_open, open);
    CHECK_I64(view_alerts(view, t_us, 1000, arena).count, open);
    CHECK(header.last_fact_us >= newest_us && header.last_fact_us <= t_us);
}

static void test_random_runs(void)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        int before = test_failures;
        dir = scene_dir();
        path = xasprintf("%s/run.db", dir);
        Rng rng;
        rng_seed(&rng, seed + 100);
        make_run(seed);
        write_run(&rng);
        View *view = NULL;
        Fault fault = {0};
        CHECK_I64(view_open(path, &view, &fault), ERR_OK);
        Arena *arena = arena_new(64 << 20);
        for (int i = 0; i < 150 && test_failures < 20; i++) {
            int64_t t_us = AT(rng_unit(&rng) * (SECONDS + 10));
            check_engines(view, t_us, arena);
            check_tail(view, t_us, arena);
            check_alerts(view, t_us, arena);
            arena_reset(arena);
        }
        arena_free(arena);
        view_close(view);
        free(path);
        scene_remove(dir);
        if (test_failures > before) {
            fprintf(stderr, "  seed %d\n", (int)seed);
        }
    }
}

int main(void)
{
    RUN(test_random_runs);
    return test_end();
}
