#include "store/rollup.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const int64_t rollup_spans[ROLLUP_SPANS] = {60, 600, 3600, 21600, 86400};

#define ROLLUP_WORD(name, word) word,
const char *const rollup_probe_words[ROLL_PROBE_COUNT] = {ROLLUP_PROBES(ROLLUP_WORD)};
#undef ROLLUP_WORD

void stat_add(Stat *stat, double v)
{
    if (!isnan(v)) {
        stat_merge(stat, &(Stat){1, v, v, v});
    }
}

void stat_merge(Stat *into, const Stat *other)
{
    if (other->count == 0) {
        return;
    }
    if (into->count == 0) {
        *into = *other;
        return;
    }
    double share = (double)other->count / (double)(into->count + other->count);
    into->mean += (other->mean - into->mean) * share;
    into->min = other->min < into->min ? other->min : into->min;
    into->max = other->max > into->max ? other->max : into->max;
    into->count += other->count;
}

void rollup_free(Rollup *rollup)
{
    free(rollup->engines);
    free(rollup->metrics);
    *rollup = (Rollup){.minute = -1, .fleet_second = -1};
}

static RollEngine *engine_of(Rollup *r, int64_t engine)
{
    /* As in acc_find: numbers run without holes (from ROLLUP_FLEET on, once it is there). */
    for (int64_t guess = engine + 1; guess >= 0 && guess >= engine - 1; guess--) {
        if ((size_t)guess < r->count && r->engines[guess].engine == engine) {
            return &r->engines[guess];
        }
    }
    size_t at = 0;
    while (at < r->count && r->engines[at].engine < engine) {
        at++;
    }
    if (at < r->count && r->engines[at].engine == engine) {
        return &r->engines[at];
    }
    if (r->count == r->capacity) {
        r->capacity = r->capacity == 0 ? 16 : r->capacity * 2;
        r->engines = xrealloc(r->engines, r->capacity, sizeof *r->engines);
    }
    memmove(&r->engines[at + 1], &r->engines[at], (r->count - at) * sizeof *r->engines);
    r->engines[at] = (RollEngine){.engine = engine};
    r->count++;
    return &r->engines[at];
}

void rollup_probe(Rollup *rollup, const ProbeFact *probe, bool ok)
{
    Stat *stats = engine_of(rollup, probe->engine)->stats;
    stat_add(&stats[ROLL_LATENCY], (double)probe->latency_us);
    stat_add(&stats[ROLL_RUNNING], probe->running.known ? probe->running.v : NAN);
    stat_add(&stats[ROLL_WAITING], probe->waiting.known ? probe->waiting.v : NAN);
    stat_add(&stats[ROLL_USAGE], probe->token_usage.known ? probe->token_usage.v : NAN);
    stat_add(&stats[ROLL_ERROR], ok ? 0 : 1);
}

void rollup_key(Rollup *rollup, const AccSet *engines, double tokens, int64_t second)
{
    for (size_t i = 0; i < engines->count; i++) {
        const EngineAcc *acc = &engines->items[i];
        RollEngine *roll = engine_of(rollup, acc->engine);
        int64_t span_us = acc->counter_us - roll->counter_us;
        if (acc->counter_us > 0 && roll->counter_us > 0 && span_us >= SECOND_US &&
            span_us < 3 * KEY_SECONDS * SECOND_US) {
            stat_add(&roll->stats[ROLL_TOKENS],
                     (acc->tokens - roll->tokens) * 1e6 / (double)span_us);
        }
        roll->counter_us = acc->counter_us;
        roll->tokens = acc->tokens;
    }
    int64_t seconds = second - rollup->fleet_second;
    if (rollup->fleet_second >= 0 && seconds > 0 && seconds < 3 * KEY_SECONDS) {
        stat_add(&engine_of(rollup, ROLLUP_FLEET)->stats[ROLL_TOKENS],
                 (tokens - rollup->fleet_tokens) / (double)seconds);
    }
    rollup->fleet_tokens = tokens;
    rollup->fleet_second = second;
}

/* ---- into the log ------------------------------------------------------------------------- */

#define ROLLUP_MERGE                                                                              \
    " ON CONFLICT (span_s, start_s, series, engine) DO UPDATE SET step = excluded.step,"          \
    " mean = (mean * count + excluded.mean * excluded.count) / (count + excluded.count),"         \
    " count = count + excluded.count, min = min(min, excluded.min), max = max(max, excluded.max)"

static int put_stat(Db *db, int64_t start_s, int64_t series, int64_t engine, int64_t step,
                    const Stat *stat)
{
    static const char sql[] =
        "INSERT INTO rollup (span_s, start_s, series, engine, step, count, min, mean, max)"
        " VALUES (60, ?, ?, ?, ?, ?, ?, ?, ?)" ROLLUP_MERGE;
    Bind b = {db_stmt(db, sql, NULL), 0};
    bind_i64(&b, start_s);
    bind_i64(&b, series);
    bind_i64(&b, engine);
    if (step == INT64_MIN) {
        bind_null(&b);
    } else {
        bind_i64(&b, step);
    }
    bind_i64(&b, stat->count);
    bind_double(&b, stat->min);
    bind_double(&b, stat->mean);
    bind_double(&b, stat->max);
    return bind_run(&b);
}

static int flush_metrics(Rollup *r, Db *db)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < r->metric_count && rc == SQLITE_OK; i++) {
        const RollMetric *m = &r->metrics[i];
        rc = put_stat(db, r->minute * ROLLUP_MINUTE, m->name, m->engine, m->step, &m->stat);
    }
    r->metric_count = 0;
    return rc;
}

static int flush_minute(Rollup *r, Db *db, Words *words)
{
    int rc = SQLITE_OK;
    for (int s = 0; s < ROLL_PROBE_COUNT && rc == SQLITE_OK; s++) {
        if (r->words[s] == 0) {
            r->words[s] = words_id(words, db, rollup_probe_words[s]);
        }
        if (r->words[s] < 0) {
            r->words[s] = 0;
            return SQLITE_ERROR;
        }
        for (size_t i = 0; i < r->count && rc == SQLITE_OK; i++) {
            Stat *stat = &r->engines[i].stats[s];
            if (stat->count > 0) {
                rc = put_stat(db, r->minute * ROLLUP_MINUTE, r->words[s], r->engines[i].engine,
                              INT64_MIN, stat);
                *stat = (Stat){0};
            }
        }
    }
    return rc == SQLITE_OK ? flush_metrics(r, db) : rc;
}

/* A wider bucket that is over, out of those of the width below. Over again (the clock went back):
 * the same sum anew. */
static int close_bucket(Db *db, int width, int64_t start_s)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO rollup SELECT ?2, ?3, series, engine, max(step), sum(count),"
        " min(min), sum(mean * count) / sum(count), max(max) FROM rollup"
        " WHERE span_s = ?1 AND start_s >= ?3 AND start_s < ?3 + ?2 GROUP BY series, engine";
    Bind b = {db_stmt(db, sql, NULL), 0};
    bind_i64(&b, rollup_spans[width - 1]);
    bind_i64(&b, rollup_spans[width]);
    bind_i64(&b, start_s);
    return bind_run(&b);
}

int rollup_second(Rollup *r, Db *db, Words *words, int64_t second)
{
    int64_t minute = second / ROLLUP_MINUTE;
    if (minute == r->minute) {
        return SQLITE_OK;
    }
    int64_t old_s = r->minute * ROLLUP_MINUTE;
    int rc = r->minute >= 0 ? flush_minute(r, db, words) : SQLITE_OK;
    for (int w = 1; w < ROLLUP_SPANS && r->minute >= 0 && rc == SQLITE_OK; w++) {
        int64_t span = rollup_spans[w];
        if (old_s / span != second / span) {
            rc = close_bucket(db, w, old_s / span * span);
        }
    }
    r->minute = minute;
    return rc;
}

int rollup_metric(Rollup *r, Db *db, int64_t engine, int64_t name, int64_t step, double value)
{
    size_t at = 0;
    while (at < r->metric_count &&
           (r->metrics[at].engine < engine ||
            (r->metrics[at].engine == engine && r->metrics[at].name < name))) {
        at++;
    }
    if (at == r->metric_count || r->metrics[at].engine != engine || r->metrics[at].name != name) {
        if (r->metric_count == ROLLUP_METRICS_MAX) { /* stored early: buckets merge */
            int rc = flush_metrics(r, db);
            return rc == SQLITE_OK ? rollup_metric(r, db, engine, name, step, value) : rc;
        }
        if (r->metric_count == r->metric_capacity) {
            r->metric_capacity = r->metric_capacity == 0 ? 64 : r->metric_capacity * 2;
            r->metrics = xrealloc(r->metrics, r->metric_capacity, sizeof *r->metrics);
        }
        memmove(&r->metrics[at + 1], &r->metrics[at],
                (r->metric_count - at) * sizeof *r->metrics);
        r->metrics[at] = (RollMetric){.engine = engine, .name = name};
        r->metric_count++;
    }
    r->metrics[at].step = step;
    stat_add(&r->metrics[at].stat, value);
    return SQLITE_OK;
}

/* ---- anew from the rows ------------------------------------------------------------------- */

static Stat column_stat(sqlite3_stmt *stmt, int column)
{
    Stat stat = {.count = sqlite3_column_int64(stmt, column),
                 .min = sqlite3_column_double(stmt, column + 1),
                 .mean = sqlite3_column_double(stmt, column + 2),
                 .max = sqlite3_column_double(stmt, column + 3)};
    return stat.count > 0 ? stat : (Stat){0};
}

#define STAT_OF(x) "count(" x "), min(" x "), avg(" x "), max(" x ")"

static Err load_probes(Rollup *r, Db *db, int64_t behind, Fault *fault)
{
    static const char sql[] =
        "SELECT engine, " STAT_OF("latency_us") ", " STAT_OF("running") ", " STAT_OF("waiting")
        ", " STAT_OF("token_usage") ", " STAT_OF("outcome <> 1") " FROM probe WHERE probe_id > ?"
        " GROUP BY engine";
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    sqlite3_bind_int64(stmt, 1, behind);
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW; rc = sqlite3_step(stmt)) {
        Stat *stats = engine_of(r, sqlite3_column_int64(stmt, 0))->stats;
        for (int s = ROLL_LATENCY; s <= ROLL_ERROR; s++) {
            stats[s] = column_stat(stmt, 1 + 4 * s);
        }
    }
    Err err = rc == SQLITE_DONE ? ERR_OK : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}

static Err load_metrics(Rollup *r, Db *db, int64_t behind, Fault *fault)
{
    static const char sql[] = "SELECT engine, name, step, value FROM metric"
                              " WHERE metric_id > ? AND value IS NOT NULL ORDER BY metric_id";
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    sqlite3_bind_int64(stmt, 1, behind);
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW && r->metric_count < ROLLUP_METRICS_MAX; rc = sqlite3_step(stmt)) {
        rollup_metric(r, db, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1),
                      sqlite3_column_int64(stmt, 2), sqlite3_column_double(stmt, 3));
    }
    Err err = rc == SQLITE_DONE || rc == SQLITE_ROW ? ERR_OK
                                                    : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}

/* Rates are not made anew: what the key seconds of this minute saw before is left out of it. */
Err rollup_load(Rollup *r, Db *db, int64_t second, Fault *fault)
{
    rollup_free(r);
    if (second < 0) {
        return ERR_OK;
    }
    Tick before;
    r->minute = second / ROLLUP_MINUTE;
    Err err = tick_at(db, r->minute * ROLLUP_MINUTE * SECOND_US, &before, fault);
    err = err ? err : load_probes(r, db, before.probe, fault);
    return err ? err : load_metrics(r, db, before.metric, fault);
}

/* ---- reading ------------------------------------------------------------------------------ */

static Err read_bucket(Db *db, const RollRead *what, int width, int64_t start_s, Stat *out,
                       Fault *fault)
{
    static const char sql[] = "SELECT count, min, mean, max FROM rollup WHERE span_s = ?"
                              " AND start_s = ? AND series = ? AND engine = ?";
    *out = (Stat){0};
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    sqlite3_bind_int64(stmt, 1, rollup_spans[width]);
    sqlite3_bind_int64(stmt, 2, start_s);
    sqlite3_bind_int64(stmt, 3, what->series);
    sqlite3_bind_int64(stmt, 4, what->engine);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        *out = column_stat(stmt, 0);
    }
    bool over = rc == SQLITE_ROW || rc == SQLITE_DONE || db_tolerate(db, rc);
    Err err = over ? ERR_OK : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}

/* Widest bucket that begins at `at` and fits; a bucket that is not over yet has no row. */
static int widest(int64_t at, int64_t to_s, int64_t last_s)
{
    int width = 0;
    while (width + 1 < ROLLUP_SPANS && at % rollup_spans[width + 1] == 0 &&
           at + rollup_spans[width + 1] <= to_s && at + rollup_spans[width + 1] <= last_s) {
        width++;
    }
    return width;
}

static Err read_range(Db *db, const RollRead *what, int64_t at, int64_t to_s, Stat *out,
                      Fault *fault)
{
    Err err = ERR_OK;
    int64_t end = to_s < what->last_s ? to_s : what->last_s;
    while (at < end && err == ERR_OK) {
        Stat stat;
        int width = widest(at, to_s, what->last_s);
        err = read_bucket(db, what, width, at, &stat, fault);
        stat_merge(out, &stat);
        at += rollup_spans[width];
    }
    return err;
}

/* Buckets of one width that end in the range; of one that is not over, what is there of it. */
static Err read_cell(Db *db, const RollRead *what, int64_t from_s, int64_t to_s, Stat *out,
                     Fault *fault)
{
    int width = 0;
    while (width + 1 < ROLLUP_SPANS && 2 * rollup_spans[width + 1] <= to_s - from_s) {
        width++;
    }
    int64_t span = rollup_spans[width];
    Err err = ERR_OK;
    int64_t at = from_s / span * span;
    for (; at + span <= to_s && at + span <= what->last_s && err == ERR_OK; at += span) {
        Stat stat;
        err = read_bucket(db, what, width, at, &stat, fault);
        stat_merge(out, &stat);
    }
    bool last = to_s > what->last_s && from_s <= what->last_s;
    return err || !last ? err : read_range(db, what, at, to_s, out, fault);
}

Err rollup_read(Db *db, const RollRead *what, int64_t from_s, int64_t to_s, Stat *out,
                Fault *fault)
{
    *out = (Stat){0};
    int64_t minute_s = (from_s + ROLLUP_MINUTE - 1) / ROLLUP_MINUTE * ROLLUP_MINUTE;
    Err err = what->cells ? read_cell(db, what, from_s, to_s, out, fault)
                          : read_range(db, what, minute_s, to_s, out, fault);
    /* Narrow buckets of long ago are gone: the wider one that the range lies in says more than
     * nothing. */
    for (int width = 0; width < ROLLUP_SPANS && out->count == 0 && err == ERR_OK; width++) {
        int64_t span = rollup_spans[width];
        err = read_bucket(db, what, width, from_s / span * span, out, fault);
    }
    return err;
}

Err rollup_series(Db *db, const char *name, int64_t *out, Fault *fault)
{
    *out = -1;
    sqlite3_stmt *stmt = db_stmt(db, "SELECT word_id FROM word WHERE text = ?", fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(stmt, 0);
    }
    bool over = rc == SQLITE_ROW || rc == SQLITE_DONE || db_tolerate(db, rc);
    Err err = over ? ERR_OK : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}
