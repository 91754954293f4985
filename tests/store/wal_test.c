/* Readers never hold a transaction between two calls, so the -wal of a run that writes hard stays
 * short with ten consoles on it. */
#include "core/base/clock.h"
#include "store/view_private.h"
#include "tests/harness.h"
#include "tests/store/scene.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum { VIEWS = 10, SECONDS = 1500, WAL_BOUND = 64 << 20 };

static char *dir, *path;

static Store *fresh(void)
{
    Store *store = NULL;
    Fault fault = {0};
    dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    scene_put(store);
    CHECK_I64(store_wait(store, store_ticket(store), 60000, &fault), ERR_OK);
    return store;
}

static void gone(Store *store)
{
    store_close(store);
    free(path);
    scene_remove(dir);
}

static void none_held(View *view)
{
    CHECK_I64(sqlite3_txn_state(view->db.handle, "main"), SQLITE_TXN_NONE);
    CHECK_I64(view->depth, 0);
}

/* Every question of the read model, one after another. */
static void ask_all(View *view, double t, Arena *arena)
{
    RunView run;
    HeaderView header;
    SampleView sample;
    TxnRow txn;
    EngineSpan *spans;
    CurvePoint *curve;
    ChildLineRow *lines;
    ProbeRow *probes;
    DamageRow *damage;
    StripCell *strip;
    int64_t at = 0;
#define ASK(call)                                                                                 \
    do {                                                                                          \
        (void)(call);                                                                             \
        none_held(view);                                                                          \
    } while (0)
    ASK(view_changed(view));
    ASK(view_run(view, arena, &run));
    ASK(view_header(view, AT(t), arena, &header));
    ASK(view_engines(view, AT(t), 30, 1000000, arena).count);
    ASK(view_known_engines(view, arena).count);
    ASK(view_tail(view, AT(t), 10, arena).count);
    ASK(view_steps(view, AT(t), 10, arena).count);
    ASK(view_step_engines(view, 1, AT(t), arena, &spans));
    ASK(view_events(view, AT(t), 10, 0, "x", arena).count);
    ASK(view_alerts(view, AT(t), 10, arena).count);
    ASK(view_commands(view, AT(t), 10, arena).count);
    ASK(view_policies(view, AT(t), 10, arena).count);
    ASK(view_txns(view, AT(t), 10, arena).count);
    ASK(view_txn(view, 1, AT(t), arena, &txn));
    ASK(view_samples(view, 1, AT(t), 10, 0, arena).count);
    ASK(view_sample(view, 5, AT(t), arena, &sample));
    ASK(view_curve(view, "train/pg_loss", AT(t), 10, arena, &curve));
    ASK(view_child_lines(view, "trainer", AT(t), 10, arena, &lines));
    ASK(view_probes(view, 1, AT(t), 10, arena, &probes));
    ASK(view_damage(view, 10, arena, &damage));
    for (int mark = MARK_STEP; mark <= MARK_PROBE; mark++) {
        ASK(view_seek(view, (ViewMark)mark, AT(t), -1, &at));
    }
    ASK(view_step_time(view, 1, &at));
    ASK(view_policy_time(view, 1, &at));
    ASK(view_strip(view, AT(0), AT(60), 30, arena, &strip));
}

static int stop_at_once(void *user)
{
    (void)user;
    return 1;
}

static void test_no_transaction_is_left(void)
{
    Store *store = fresh();
    View *view = NULL;
    Fault fault = {0};
    CHECK_I64(view_open(path, &view, &fault), ERR_OK);
    Arena *arena = arena_new(32 << 20);
    none_held(view);
    ask_all(view, 30, arena);
    ask_all(view, 1e6, arena);
    view_interruptible(view, stop_at_once, NULL); /* a key came in the middle of each */
    ask_all(view, 30, arena);
    view_interruptible(view, NULL, NULL);
    Arena *small = arena_new(64); /* no room for any answer */
    ask_all(view, 30, small);
    arena_free(small);
    /* A writer may empty the -wal while the view lies open. */
    int left = -1;
    int moved = -1;
    sqlite3 *other = NULL;
    CHECK_I64(sqlite3_open(path, &other), SQLITE_OK);
    CHECK_I64(sqlite3_exec(other, "SELECT count(*) FROM run", NULL, NULL, NULL), SQLITE_OK);
    CHECK_I64(sqlite3_wal_checkpoint_v2(other, "main", SQLITE_CHECKPOINT_TRUNCATE, &left, &moved),
              SQLITE_OK);
    CHECK_I64(left, 0);
    sqlite3_close(other);
    arena_free(arena);
    view_close(view);
    gone(store);
}

typedef struct Reader {
    pthread_t thread;
    atomic_bool *stop;
    int64_t frames, good;
} Reader;

static void *read_on(void *argument)
{
    Reader *reader = argument;
    View *view = NULL;
    Arena *arena = arena_new(32 << 20);
    if (view_open(path, &view, NULL) == ERR_OK) {
        while (!atomic_load(reader->stop)) {
            RunView run;
            HeaderView header;
            StripCell *strip;
            arena_reset(arena);
            bool good = view_run(view, arena, &run) &&
                        view_header(view, run.last_us, arena, &header) &&
                        view_engines(view, run.last_us, 30, 1000000, arena).count == 2 &&
                        view_strip(view, run.first_us, run.last_us + 1, 60, arena, &strip);
            reader->frames++;
            reader->good += good;
            clock_sleep_us(50000); /* twenty times what a console does */
        }
    }
    view_close(view);
    arena_free(arena);
    return NULL;
}

static void test_wal_stays_short(void)
{
    Store *store = fresh();
    atomic_bool stop = false;
    Reader readers[VIEWS];
    Fault fault = {0};
    char *wal = xasprintf("%s-wal", path);
    int64_t most = 0;
    int64_t written = 0;
    for (int i = 0; i < VIEWS; i++) {
        readers[i] = (Reader){.stop = &stop};
        CHECK_I64(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
    }
    for (int s = 0; s < SECONDS; s++) {
        for (int i = 0; i < 200; i++) {
            scene_probe(store, 1 + i % 2, 61 + s + i * 0.005, 100.0 * s + i, true);
            written++;
        }
        CHECK_I64(store_wait(store, store_ticket(store), 120000, &fault), ERR_OK);
        struct stat info = {0};
        CHECK_I64(stat(wal, &info), 0);
        most = (int64_t)info.st_size > most ? (int64_t)info.st_size : most;
    }
    atomic_store(&stop, true);
    for (int i = 0; i < VIEWS; i++) {
        pthread_join(readers[i].thread, NULL);
        CHECK(readers[i].frames > 0);
        CHECK_I64(readers[i].good, readers[i].frames);
    }
    printf("     %lld rows in %d commits, ten readers: the -wal was at most %.1f MB\n",
           (long long)written, SECONDS, (double)most / 1e6);
    CHECK(most < WAL_BOUND);
    CHECK_I64(store_dropped(store), 0);
    free(wal);
    gone(store);
}

int main(void)
{
    RUN(test_no_transaction_is_left);
    RUN(test_wal_stays_short);
    return test_end();
}
