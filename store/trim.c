#include "store/trim.h"

#include "store/rollup.h"
#include "store/store.h"

enum { SLICE_ROWS = 4000, ATTEMPT_ROWS = 1000, SIZE_PARTS = 10, HOUR_S = 3600 };

bool trim_due(const TrimLimits *limits, const TrimState *state, int64_t *before_us,
              const char **why)
{
    int64_t newest_us = state->last_us - TRIM_LEAST_US; /* nothing behind this goes */
    if (state->first_us <= 0 || state->first_us >= newest_us) {
        return false;
    }
    int64_t grain_us = limits->keep_us / 20;
    grain_us = grain_us < 60 * (int64_t)SECOND_US ? 60 * (int64_t)SECOND_US : grain_us;
    int64_t age_us = state->last_us - limits->keep_us;
    age_us = age_us < newest_us ? age_us : newest_us;
    if (limits->keep_us > 0 && age_us - state->first_us >= grain_us) {
        *before_us = age_us;
        *why = "age";
        return true;
    }
    if (limits->max_bytes > 0 && state->bytes > limits->max_bytes) {
        int64_t part_us = (state->last_us - state->first_us) / SIZE_PARTS;
        *before_us = state->first_us + part_us < newest_us ? state->first_us + part_us : newest_us;
        *why = "size";
        return *before_us - state->first_us >= SECOND_US;
    }
    return false;
}

static Err number(Db *db, const char *sql, int64_t value, int64_t fallback, int64_t *out,
                  Fault *fault)
{
    *out = fallback;
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    if (sqlite3_bind_parameter_count(stmt) > 0) {
        sqlite3_bind_int64(stmt, 1, value);
    }
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        *out = column_i64(stmt, 0, fallback);
    }
    Err err = rc == SQLITE_ROW || rc == SQLITE_DONE ? ERR_OK
                                                    : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}

Err trim_read(Db *db, Trimmed *out, Fault *fault)
{
    static const char sql[] = "SELECT before_us, hours_before_us, step, ended_us IS NULL FROM trim"
                              " ORDER BY trim_id DESC LIMIT 1";
    *out = (Trimmed){.step = INT64_MIN};
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        *out = (Trimmed){sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1),
                         sqlite3_column_int64(stmt, 2), sqlite3_column_int(stmt, 3) != 0};
    }
    bool over = rc == SQLITE_ROW || rc == SQLITE_DONE || db_tolerate(db, rc);
    Err err = over ? ERR_OK : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}

Err trim_state(Db *db, int64_t last_us, TrimState *out, Fault *fault)
{
    int64_t pages = 0;
    int64_t unused = 0;
    int64_t page = 0;
    int64_t second = 0;
    Trimmed trimmed;
    *out = (TrimState){.last_us = last_us};
    Err err = number(db, "PRAGMA page_count", 0, 0, &pages, fault);
    err = err ? err : number(db, "PRAGMA freelist_count", 0, 0, &unused, fault);
    err = err ? err : number(db, "PRAGMA page_size", 0, 4096, &page, fault);
    err = err ? err : number(db, "SELECT min(second) FROM tick", 0, 0, &second, fault);
    err = err ? err : trim_read(db, &trimmed, fault);
    if (err == ERR_OK) {
        out->bytes = (pages - unused) * page;
        out->first_us = second * SECOND_US;
        out->first_us = trimmed.before_us > out->first_us ? trimmed.before_us : out->first_us;
    }
    return err;
}

/* ---- declaring ---------------------------------------------------------------------------- */

/* Last rows that go: those of the newest tick that is over, but never the newest row. */
static Err find_rows(Db *db, TrimWork *w, Fault *fault)
{
    Tick tick;
    int64_t newest[4];
    Err err = tick_at(db, w->before_us, &tick, fault);
    err = err ? err : number(db, "SELECT max(probe_id) FROM probe", 0, 0, &newest[0], fault);
    err = err ? err : number(db, "SELECT max(progress_id) FROM progress", 0, 0, &newest[1], fault);
    err = err ? err : number(db, "SELECT max(metric_id) FROM metric", 0, 0, &newest[2], fault);
    err = err ? err : number(db, "SELECT max(line_id) FROM child_line", 0, 0, &newest[3], fault);
    if (err == ERR_OK && tick.found) {
        w->probe = tick.probe < newest[0] ? tick.probe : newest[0] - 1;
        w->progress = tick.progress < newest[1] ? tick.progress : newest[1] - 1;
        w->metric = tick.metric < newest[2] ? tick.metric : newest[2] - 1;
        w->child_line = tick.child_line < newest[3] ? tick.child_line : newest[3] - 1;
    }
    return err;
}

/* Where the trims that were completed before this one ended. */
static Err find_past(Db *db, TrimWork *w, Fault *fault)
{
    static const char minutes[] =
        "SELECT max(before_us) FROM trim WHERE ended_us IS NOT NULL AND trim_id < ?";
    static const char hours[] =
        "SELECT max(hours_before_us) FROM trim WHERE ended_us IS NOT NULL AND trim_id < ?";
    int64_t second = 0;
    Err err = number(db, "SELECT min(second) FROM tick", 0, 0, &second, fault);
    int64_t first_us = second * SECOND_US;
    err = err ? err : number(db, minutes, w->trim_id, first_us, &w->from_us, fault);
    err = err ? err : number(db, hours, w->trim_id, first_us, &w->hours_from_us, fault);
    w->bucket_s = w->from_us / SECOND_US / ROLLUP_MINUTE * ROLLUP_MINUTE;
    return err;
}

/* The first step that keeps its samples: the oldest that was not over at that time. A run that goes
 * on trains again on those behind its newest state, or the one before it if that is damaged. */
static Err find_step(Db *db, TrimWork *w, Fault *fault)
{
    static const char state[] =
        "SELECT CASE WHEN count(*) = 1 THEN -1 ELSE min(step) END + 1 FROM (SELECT DISTINCT step"
        " FROM step WHERE trainer_state IS NOT NULL AND outcome = 'ok' ORDER BY step DESC LIMIT 2)"
        " HAVING count(*) > 0";
    static const char open[] =
        "SELECT min(step) FROM step WHERE (ended_us IS NULL OR ended_us >= ?1) AND step >= 0";
    static const char next[] = "SELECT max(step) + 1 FROM step WHERE ended_us < ?1";
    int64_t none = 0;
    int64_t wanted = 0;
    Err err = number(db, next, w->before_us, INT64_MIN, &none, fault);
    err = err ? err : number(db, open, w->before_us, none, &w->step, fault);
    err = err ? err : number(db, state, 0, INT64_MAX, &wanted, fault);
    w->step = wanted < w->step ? wanted : w->step;
    return err;
}

Err trim_begin(Db *db, int64_t before_us, int64_t now_us, const char *why, TrimWork *out,
               Fault *fault)
{
    static const char sql[] = "INSERT INTO trim VALUES (NULL, ?, NULL, ?, ?, ?, NULL, ?)";
    TrimState state;
    Trimmed past;
    int64_t last_us = 0;
    Err err = db_last_us(db, INT64_MAX, &last_us, fault);
    err = err ? err : trim_state(db, last_us, &state, fault);
    err = err ? err : trim_read(db, &past, fault);
    if (err != ERR_OK) {
        return err;
    }
    /* Whole minutes, so that a bucket is never half coarse. */
    TrimWork w = {.before_us = before_us / (ROLLUP_MINUTE * (int64_t)SECOND_US) *
                               (ROLLUP_MINUTE * (int64_t)SECOND_US)};
    int64_t hours_us = last_us - TRIM_HOURS * (last_us - before_us);
    hours_us = hours_us > past.hours_before_us ? hours_us : past.hours_before_us;
    w.hours_before_us = hours_us > 0 ? hours_us / (HOUR_S * (int64_t)SECOND_US) *
                                           (HOUR_S * (int64_t)SECOND_US) : 0;
    err = find_step(db, &w, fault);
    w.step = w.step > past.step ? w.step : past.step;
    Bind b = {err ? NULL : db_stmt(db, sql, fault), 0};
    if (b.stmt == NULL) {
        return err ? err : db_err(sqlite3_errcode(db->handle));
    }
    bind_i64(&b, now_us);
    bind_i64(&b, w.before_us);
    bind_i64(&b, w.hours_before_us);
    bind_i64(&b, w.step);
    bind_text(&b, why);
    if (bind_run(&b) != SQLITE_OK) {
        return db_fault(db, fault, "cannot change the log");
    }
    return trim_resume(db, out, fault);
}

Err trim_resume(Db *db, TrimWork *out, Fault *fault)
{
    static const char sql[] =
        "SELECT trim_id, before_us, hours_before_us, step, ended_us IS NULL FROM trim"
        " ORDER BY trim_id DESC LIMIT 1";
    *out = (TrimWork){0};
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW && sqlite3_column_int(stmt, 4) != 0) {
        *out = (TrimWork){.trim_id = sqlite3_column_int64(stmt, 0),
                          .before_us = sqlite3_column_int64(stmt, 1),
                          .hours_before_us = sqlite3_column_int64(stmt, 2),
                          .step = sqlite3_column_int64(stmt, 3)};
    }
    Err err = rc == SQLITE_ROW || rc == SQLITE_DONE ? ERR_OK
                                                    : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    if (err == ERR_OK && out->trim_id != 0) {
        err = find_rows(db, out, fault);
        err = err ? err : find_past(db, out, fault);
    }
    return err;
}

/* ---- slices ------------------------------------------------------------------------------- */

static int run2(Db *db, const char *sql, int64_t a, int64_t b, int64_t *changes)
{
    Bind bind = {db_stmt(db, sql, NULL), 0};
    if (bind.stmt == NULL) {
        return sqlite3_errcode(db->handle);
    }
    for (int i = 0; i < sqlite3_bind_parameter_count(bind.stmt); i++) {
        bind_i64(&bind, i == 0 ? a : b);
    }
    int rc = bind_run(&bind);
    *changes += rc == SQLITE_OK ? sqlite3_changes64(db->handle) : 0;
    return rc;
}

/* All of one step: first what is kept of it, then its rows, a slice at a time. The sample with the
 * largest number stays: the next one is counted from it. */
static int slice_steps(Db *db, TrimWork *w, int64_t *gone)
{
    static const char keep[] =
        "INSERT OR IGNORE INTO step_engine SELECT step, engine, min(started_us), max(ended_us),"
        " count(*), sum(tokens) FROM attempt WHERE step = ?1 AND engine IS NOT NULL"
        " GROUP BY engine";
    static const char data[] =
        "DELETE FROM attempt_data WHERE attempt_id IN (SELECT attempt_id FROM attempt"
        " WHERE step = ?1 AND sample_id < (SELECT max(sample_id) FROM attempt) LIMIT ?2)";
    static const char attempts[] =
        "DELETE FROM attempt WHERE attempt_id IN (SELECT attempt_id FROM attempt WHERE step = ?1"
        " AND sample_id < (SELECT max(sample_id) FROM attempt)"
        " AND attempt_id < (SELECT max(attempt_id) FROM attempt) LIMIT ?2)";
    static const char groups[] =
        "DELETE FROM sample_group WHERE group_id IN (SELECT group_id FROM sample_group"
        " WHERE step < ?1 AND group_id < (SELECT max(group_id) FROM sample_group) LIMIT ?2)";
    /* The newest row of all may be all that is left of a step: it is not met again. */
    static const char oldest[] =
        "SELECT min(step) FROM attempt WHERE step < ?1"
        " AND sample_id < (SELECT max(sample_id) FROM attempt)"
        " AND attempt_id < (SELECT max(attempt_id) FROM attempt)";
    int64_t step = INT64_MIN;
    if (number(db, oldest, w->step, INT64_MIN, &step, NULL) != ERR_OK) {
        return sqlite3_errcode(db->handle);
    }
    int64_t kept = 0;
    if (step == INT64_MIN) {
        return run2(db, groups, w->step, SLICE_ROWS, gone);
    }
    int rc = run2(db, keep, step, 0, &kept);
    rc = rc == SQLITE_OK ? run2(db, data, step, ATTEMPT_ROWS, gone) : rc;
    return rc == SQLITE_OK ? run2(db, attempts, step, ATTEMPT_ROWS, gone) : rc;
}

/* Ticks of one bucket: its last key tick stays. */
static int slice_bucket(Db *db, int64_t from_s, int64_t to_s, int64_t *gone)
{
    static const char keeper[] =
        "SELECT max(second) FROM tick WHERE second >= ?1 AND second < ?2 AND key = 1";
    static const char *const sqls[] = {
        "DELETE FROM tick WHERE second >= ?1 AND second < ?2 AND second <> ?3",
        "DELETE FROM engine_tick WHERE second >= ?1 AND second < ?2 AND second <> ?3",
        "DELETE FROM flight WHERE second >= ?1 AND second < ?2"};
    sqlite3_stmt *stmt = db_stmt(db, keeper, NULL);
    if (stmt == NULL) {
        return sqlite3_errcode(db->handle);
    }
    sqlite3_bind_int64(stmt, 1, from_s);
    sqlite3_bind_int64(stmt, 2, to_s);
    int rc = sqlite3_step(stmt);
    int64_t kept = rc == SQLITE_ROW ? column_i64(stmt, 0, -1) : -1;
    sqlite3_reset(stmt);
    rc = rc == SQLITE_ROW ? SQLITE_OK : rc;
    for (size_t i = 0; i < sizeof sqls / sizeof *sqls && rc == SQLITE_OK; i++) {
        Bind b = {db_stmt(db, sqls[i], NULL), 0};
        if (b.stmt == NULL) {
            return sqlite3_errcode(db->handle);
        }
        bind_i64(&b, from_s);
        bind_i64(&b, to_s);
        if (i < 2) {
            bind_i64(&b, kept);
        }
        rc = bind_run(&b);
        *gone += rc == SQLITE_OK ? sqlite3_changes64(db->handle) : 0;
    }
    return rc;
}

/* Goes on over empty buckets until some rows went: a log with long gaps is no long work. */
static int slice_ticks(Db *db, TrimWork *w, int64_t bucket_s, int64_t end_us, int64_t *gone)
{
    static const char next[] = "SELECT min(second) FROM tick WHERE second >= ?1";
    int64_t end_s = end_us / SECOND_US;
    int rc = SQLITE_OK;
    while (rc == SQLITE_OK && *gone < SLICE_ROWS && w->bucket_s < end_s) {
        int64_t second = end_s;
        if (number(db, next, w->bucket_s, end_s, &second, NULL) != ERR_OK) {
            return sqlite3_errcode(db->handle);
        }
        int64_t at = second / bucket_s * bucket_s;
        w->bucket_s = at > w->bucket_s ? at : w->bucket_s;
        if (w->bucket_s < end_s) {
            rc = slice_bucket(db, w->bucket_s, w->bucket_s + bucket_s, gone);
            w->bucket_s += bucket_s;
        }
    }
    return rc;
}

static int slice_end(Db *db, TrimWork *w)
{
    static const char sql[] = "UPDATE trim SET ended_us = t_us, rows = ?1 WHERE trim_id = ?2";
    int64_t changes = 0;
    int rc = run2(db, sql, w->rows, w->trim_id, &changes);
    if (rc == SQLITE_OK) {
        w->trim_id = 0;
    }
    return rc;
}

#define OLDEST(table, id)                                                                         \
    "DELETE FROM " table " WHERE " id " <= ?1 AND " id " < (SELECT min(" id ") FROM " table       \
    ") + ?2"

int trim_slice(Db *db, TrimWork *w)
{
    static const char probe[] = OLDEST("probe", "probe_id");
    static const char progress[] = OLDEST("progress", "progress_id");
    static const char metric[] = OLDEST("metric", "metric_id");
    static const char child_line[] = OLDEST("child_line", "line_id");
    static const char event[] =
        "DELETE FROM event WHERE event_id IN (SELECT event_id FROM event WHERE t_us < ?1"
        " AND severity = 0 AND event_id < (SELECT max(event_id) FROM event) ORDER BY t_us"
        " LIMIT ?2)";
    static const char rollups[] =
        "DELETE FROM rollup WHERE span_s IN (60, 600) AND start_s < ?1 / 1000000";
    int64_t gone = 0;
    int rc = SQLITE_OK;
    switch (w->stage) {
    case TRIM_STEPS: rc = slice_steps(db, w, &gone); break;
    case TRIM_PROBE: rc = run2(db, probe, w->probe, SLICE_ROWS, &gone); break;
    case TRIM_PROGRESS: rc = run2(db, progress, w->progress, SLICE_ROWS, &gone); break;
    case TRIM_METRIC: rc = run2(db, metric, w->metric, SLICE_ROWS, &gone); break;
    case TRIM_CHILD_LINE: rc = run2(db, child_line, w->child_line, SLICE_ROWS, &gone); break;
    case TRIM_EVENT: rc = run2(db, event, w->before_us, SLICE_ROWS, &gone); break;
    case TRIM_TICKS: rc = slice_ticks(db, w, ROLLUP_MINUTE, w->before_us, &gone); break;
    case TRIM_HOUR_TICKS: rc = slice_ticks(db, w, HOUR_S, w->hours_before_us, &gone); break;
    case TRIM_ROLLUPS: rc = run2(db, rollups, w->hours_before_us, 0, &gone); break;
    case TRIM_DONE: return slice_end(db, w);
    }
    w->rows += gone;
    if (rc == SQLITE_OK && gone == 0) {
        w->stage = (TrimStage)(w->stage + 1);
        if (w->stage == TRIM_HOUR_TICKS) {
            w->bucket_s = w->hours_from_us / SECOND_US / HOUR_S * HOUR_S;
        }
    }
    return rc;
}
