/* The log's writer against a bare SQLite loop that inserts the same rows: probe-sized rows at
 * 1,000 rows a commit, synchronous=FULL, in turns on the same file system. The bare loop is the
 * floor: prepared statement, WAL, one thread, no queue, no ticks. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "store/store.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 200000, GROUP = 1000, TURNS = 5, ENGINES = 16 };

static void remove_log(const char *path)
{
    static const char *const tails[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        char *name = xasprintf("%s%s", path, tails[i]);
        unlink(name);
        free(name);
    }
}

static ProbeFact probe_at(int64_t i)
{
    int64_t t_us = INT64_C(1773484927000000) + i * 1000; /* 1,000 a second */
    double v = (double)i;
    return (ProbeFact){.engine = 1 + i % ENGINES,
                       .incarnation = 1,
                       .t_us = t_us,
                       .latency_us = 700 + i % 300,
                       .kind = PROBE_LOADS,
                       .outcome = "ok",
                       .status = 200,
                       .running = val_of((double)(i % 64), t_us),
                       .waiting = val_of((double)(i % 7), t_us),
                       .used_tokens = val_of(v + 0.5, t_us),
                       .token_usage = val_of(0.63, t_us),
                       .gen_tokens_total = val_of(v * 12, t_us),
                       .gen_throughput = val_of(11900.25, t_us),
                       .cache_hit_rate = val_of(0.31, t_us),
                       .retracted_total = val_of(3, t_us),
                       .policy_version = 211};
}

static void check(int rc, int want, const char *what)
{
    if (rc != want) {
        fprintf(stderr, "log_writer: %s failed with %d\n", what, rc);
        exit(1);
    }
}

static void bind_probe(sqlite3_stmt *stmt, const ProbeFact *f)
{
    const int64_t whole[] = {f->t_us, f->engine, f->incarnation, f->kind, 1, f->status,
                             f->latency_us};
    const double real[] = {f->running.v,          f->waiting.v,        f->used_tokens.v,
                           f->token_usage.v,      f->gen_tokens_total.v, f->gen_throughput.v,
                           f->cache_hit_rate.v,   f->retracted_total.v};
    for (int i = 0; i < 7; i++) {
        sqlite3_bind_int64(stmt, i + 1, whole[i]);
    }
    for (int i = 0; i < 8; i++) {
        sqlite3_bind_double(stmt, i + 8, real[i]);
    }
    sqlite3_bind_int64(stmt, 16, f->policy_version);
}

static double bare_loop(const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    remove_log(path);
    check(sqlite3_open(path, &db), SQLITE_OK, "open");
    static const char setup[] =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE probe"
        " (probe_id INTEGER PRIMARY KEY, t_us INTEGER, engine INTEGER, incarnation INTEGER,"
        " kind INTEGER, outcome INTEGER, status INTEGER, latency_us INTEGER, running REAL,"
        " waiting REAL, used_tokens REAL, token_usage REAL, gen_tokens_total REAL,"
        " gen_throughput REAL, cache_hit_rate REAL, retracted_total REAL,"
        " policy_version INTEGER) STRICT";
    check(sqlite3_exec(db, setup, NULL, NULL, NULL), SQLITE_OK, "schema");
    static const char sql[] =
        "INSERT INTO probe VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    check(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK, "prepare");
    int64_t start_us = clock_mono_us();
    for (int64_t i = 0; i < ROWS; i++) {
        if (i % GROUP == 0) {
            check(sqlite3_exec(db, "BEGIN", NULL, NULL, NULL), SQLITE_OK, "begin");
        }
        ProbeFact fact = probe_at(i);
        bind_probe(stmt, &fact);
        check(sqlite3_step(stmt), SQLITE_DONE, "insert");
        sqlite3_reset(stmt);
        if (i % GROUP == GROUP - 1) {
            check(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK, "commit");
        }
    }
    int64_t took_us = clock_mono_us() - start_us;
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    remove_log(path);
    return ROWS * 1e6 / (double)took_us;
}

static double through_store(const char *path, double *cpu_us)
{
    Store *store = NULL;
    Fault fault = {0};
    remove_log(path);
    StoreConfig config = {.commit_rows = GROUP};
    if (store_open(path, &config, &store, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    int64_t start_us = clock_mono_us();
    int64_t cpu_start_us = clock_cpu_us();
    uint64_t ticket = 0;
    for (int64_t i = 0; i < ROWS; i++) {
        ProbeFact fact = probe_at(i);
        store_put_probe(store, &fact);
        /* Probes are bulk: a full queue would drop them, and a dropped row is not a fast one. */
        if (i % GROUP == GROUP - 1) {
            ticket = store_ticket(store);
            while (ticket - store_durable(store) > 32 * (uint64_t)GROUP) {
                store_wait(store, ticket - 16 * (uint64_t)GROUP, 10000, NULL);
            }
        }
    }
    if (store_wait(store, ticket, 60000, &fault) != ERR_OK || store_dropped(store) != 0) {
        fprintf(stderr, "log_writer: rows were lost: %s\n", fault.sentence);
        exit(1);
    }
    int64_t took_us = clock_mono_us() - start_us;
    *cpu_us = (double)(clock_cpu_us() - cpu_start_us) / ROWS;
    store_close(store);
    remove_log(path);
    return ROWS * 1e6 / (double)took_us;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const char *base = argc > 1 ? argv[1] : getenv("TMPDIR");
    char *dir = xasprintf("%s/rolltop-bench-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(dir) == NULL) {
        fprintf(stderr, "log_writer: cannot make %s\n", dir);
        return 1;
    }
    char *path = xasprintf("%s/run.db", dir);
    double bare[TURNS];
    double ours[TURNS];
    double ratio[TURNS];
    double cpu_us = 0;
    for (int i = 0; i < TURNS; i++) {
        bare[i] = bare_loop(path);
        ours[i] = through_store(path, &cpu_us);
        ratio[i] = ours[i] / bare[i];
        printf("log_writer turn %d: store %.0f rows/s, bare SQLite %.0f rows/s, ratio %.2f\n",
               i + 1, ours[i], bare[i], ratio[i]);
    }
    qsort(bare, TURNS, sizeof *bare, by_value);
    qsort(ours, TURNS, sizeof *ours, by_value);
    qsort(ratio, TURNS, sizeof *ratio, by_value);
    printf("log_writer: median store %.0f rows/s, bare %.0f rows/s, ratio %.2f (%.2f to %.2f), "
           "%.2f us CPU a row; %d rows a commit, synchronous=FULL\n",
           ours[TURNS / 2], bare[TURNS / 2], ratio[TURNS / 2], ratio[0], ratio[TURNS - 1], cpu_us,
           GROUP);
    rmdir(dir);
    free(path);
    free(dir);
    return 0;
}
