#include "store/tick.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

#define TICK_COLUMNS                                                                              \
    "SELECT second, last_us, probe, progress, metric, child_line, attempt, incident,"             \
    " incident_open, tokens FROM tick "

static Err read_failed(Db *db, Fault *fault)
{
    Err err = db_fault(db, fault, "cannot read the log");
    return err != ERR_OK ? err : ERR_FORMAT;
}

static Err tick_row(Db *db, const char *sql, int64_t second, Tick *out, Fault *fault)
{
    *out = (Tick){0};
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return read_failed(db, fault);
    }
    sqlite3_bind_int64(stmt, 1, second);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        *out = (Tick){.found = true,
                      .second = sqlite3_column_int64(stmt, 0),
                      .last_us = sqlite3_column_int64(stmt, 1),
                      .probe = sqlite3_column_int64(stmt, 2),
                      .progress = sqlite3_column_int64(stmt, 3),
                      .metric = sqlite3_column_int64(stmt, 4),
                      .child_line = sqlite3_column_int64(stmt, 5),
                      .attempt = sqlite3_column_int64(stmt, 6),
                      .incident = sqlite3_column_int64(stmt, 7),
                      .incident_open = sqlite3_column_int64(stmt, 8),
                      .tokens = sqlite3_column_double(stmt, 9)};
    }
    Err err = rc == SQLITE_ROW || rc == SQLITE_DONE ? ERR_OK : read_failed(db, fault);
    sqlite3_reset(stmt);
    return err;
}

/* A damaged page of ticks hides a spell: the nearest tick on the other side of it serves. */
static Err tick_near(Db *db, const char *sql, int64_t second, int dir, Tick *out, Fault *fault)
{
    static const int64_t away_s[] = {0, 60, 600, 3600, 21600, 86400, 864000};
    enum { TRIES = sizeof away_s / sizeof *away_s };
    for (int i = 0; i < TRIES; i++) {
        Fault found = {0};
        Err err = tick_row(db, sql, second + dir * away_s[i], out, &found);
        if (err == ERR_OK) {
            return ERR_OK;
        }
        if (!db_tolerate(db, sqlite3_extended_errcode(db->handle))) {
            return fault_set(fault, err, found.hint, "%s", found.sentence);
        }
    }
    *out = (Tick){0}; /* nothing on that side can be read */
    return ERR_OK;
}

Err tick_at(Db *db, int64_t t_us, Tick *out, Fault *fault)
{
    static const char sql[] = TICK_COLUMNS "WHERE second <= ? ORDER BY second DESC LIMIT 1";
    return tick_near(db, sql, t_us / SECOND_US - 1, -1, out, fault);
}

Err tick_key_at(Db *db, int64_t t_us, Tick *out, Fault *fault)
{
    static const char sql[] = TICK_COLUMNS
        "WHERE second <= ? AND key = 1 ORDER BY second DESC LIMIT 1";
    return tick_near(db, sql, t_us / SECOND_US - 1, -1, out, fault);
}

Err tick_after(Db *db, int64_t t_us, Tick *out, Fault *fault)
{
    static const char sql[] = TICK_COLUMNS "WHERE second >= ? ORDER BY second LIMIT 1 OFFSET 1";
    Err err = tick_near(db, sql, t_us / SECOND_US, 1, out, fault);
    if (err == ERR_OK && !out->found) {
        out->probe = out->progress = out->metric = out->child_line = INT64_MAX;
        out->attempt = out->incident = INT64_MAX;
    }
    return err;
}

Err db_last_us(Db *db, int64_t t_us, int64_t *out, Fault *fault)
{
    /* Each part is one look-up at the end of an index, or a walk over two seconds of rows. */
    static const char sql[] =
        "SELECT max(t) FROM ("
        "SELECT max(t_us) t FROM probe WHERE probe_id > ?2 AND probe_id <= ?3 AND t_us <= ?1"
        " UNION ALL SELECT max(t_us) FROM progress"
        " WHERE progress_id > ?4 AND progress_id <= ?5 AND t_us <= ?1"
        " UNION ALL SELECT max(t_us) FROM child_line"
        " WHERE line_id > ?6 AND line_id <= ?7 AND t_us <= ?1"
        " UNION ALL SELECT max(max(started_us, coalesce(ended_us, 0))) FROM attempt"
        " WHERE attempt_id > ?8 AND attempt_id <= ?9 AND max(started_us, ended_us) <= ?1"
        " UNION ALL SELECT max(started_us) FROM attempt"
        " WHERE attempt_id > ?8 AND attempt_id <= ?9 AND started_us <= ?1"
        " UNION ALL SELECT max(t_us) FROM event WHERE t_us <= ?1"
        " UNION ALL SELECT max(started_us) FROM phase WHERE started_us <= ?1"
        " UNION ALL SELECT max(started_us) FROM step WHERE started_us <= ?1"
        " UNION ALL SELECT max(t_us) FROM policy WHERE t_us <= ?1"
        " UNION ALL SELECT t_us FROM run WHERE t_us <= ?1"
        " UNION ALL SELECT max(t_us) FROM session WHERE t_us <= ?1"
        " UNION ALL SELECT max(ended_us) FROM session WHERE ended_us <= ?1)";
    Tick last;
    Tick after;
    *out = 0;
    Err err = tick_at(db, t_us, &last, fault);
    err = err != ERR_OK ? err : tick_after(db, t_us, &after, fault);
    sqlite3_stmt *stmt = err == ERR_OK ? db_stmt(db, sql, fault) : NULL;
    if (stmt == NULL) {
        return err != ERR_OK ? err : read_failed(db, fault);
    }
    const int64_t values[] = {t_us,          last.probe,       after.probe,
                              last.progress, after.progress,   last.child_line,
                              after.child_line, last.attempt, after.attempt};
    for (int i = 0; i < 9; i++) {
        sqlite3_bind_int64(stmt, i + 1, values[i]);
    }
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        *out = column_i64(stmt, 0, 0);
    }
    err = rc == SQLITE_ROW || db_tolerate(db, rc) ? ERR_OK : read_failed(db, fault);
    sqlite3_reset(stmt);
    /* A tick knows the newest fact of every kind, up to its own second's end. */
    if (last.found && last.last_us <= t_us && last.last_us > *out) {
        *out = last.last_us;
    }
    return err;
}

void acc_free(AccSet *set)
{
    free(set->items);
    *set = (AccSet){0};
}

/* Place of an engine, or where it belongs. */
static size_t acc_place(const AccSet *set, int64_t engine)
{
    /* Numbers run from 0 or 1 on without holes, so the place is nearly always known. */
    for (int64_t guess = engine; guess >= 0 && guess >= engine - 1; guess--) {
        if ((size_t)guess < set->count && set->items[guess].engine == engine) {
            return (size_t)guess;
        }
    }
    size_t from = 0;
    size_t to = set->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (set->items[middle].engine < engine) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

const EngineAcc *acc_get(const AccSet *set, int64_t engine)
{
    size_t at = acc_place(set, engine);
    return at < set->count && set->items[at].engine == engine ? &set->items[at] : NULL;
}

static void acc_reserve(AccSet *set, size_t count)
{
    if (count > set->capacity) {
        set->capacity = count > 2 * set->capacity ? count + 16 : 2 * set->capacity;
        set->items = xrealloc(set->items, set->capacity, sizeof *set->items);
    }
}

void acc_copy(AccSet *into, const AccSet *set)
{
    acc_reserve(into, set->count);
    if (set->count > 0) {
        memcpy(into->items, set->items, set->count * sizeof *set->items);
    }
    into->count = set->count;
}

EngineAcc *acc_find(AccSet *set, int64_t engine)
{
    size_t at = acc_place(set, engine);
    if (at < set->count && set->items[at].engine == engine) {
        return &set->items[at];
    }
    acc_reserve(set, set->count + 1);
    memmove(&set->items[at + 1], &set->items[at], (set->count - at) * sizeof *set->items);
    set->items[at] = (EngineAcc){.engine = engine, .policy_version = -1};
    set->count++;
    return &set->items[at];
}

static void take_val(Val *into, Val v, int64_t t_us)
{
    if (v.known && t_us >= into->seen_us) {
        *into = val_of(v.v, t_us);
    }
}

double acc_probe(EngineAcc *acc, const ProbeFact *probe, bool ok)
{
    int64_t t_us = probe->t_us;
    if (probe->incarnation != acc->incarnation) {
        if (acc->incarnation != 0) { /* another process: its counters start anew */
            acc->policy_version = -1;
            acc->counter_us = 0;
            acc->retracted_counter = val_none();
        }
        acc->incarnation = probe->incarnation;
    }
    acc->dirty = true;
    if (ok && t_us > acc->ok_us) {
        acc->ok_us = t_us;
    }
    acc->errors += ok ? 0 : 1;
    if (probe->policy_version >= 0) {
        acc->policy_version = probe->policy_version;
    }
    take_val(&acc->running, probe->running, t_us);
    take_val(&acc->waiting, probe->waiting, t_us);
    take_val(&acc->usage, probe->token_usage, t_us);
    if (probe->retracted_total.known) {
        double grown = probe->retracted_total.v - acc->retracted_counter.v;
        if (acc->retracted_counter.known && grown > 0) {
            acc->retracted += grown;
        }
        acc->retracted_counter = val_of(probe->retracted_total.v, t_us);
    }
    double added = 0;
    if (probe->gen_tokens_total.known && t_us >= acc->counter_us) {
        double grown = probe->gen_tokens_total.v - acc->counter;
        if (acc->counter_us > 0 && grown > 0) {
            added = grown;
            acc->tokens += grown;
        }
        acc->counter = probe->gen_tokens_total.v;
        acc->counter_us = t_us;
    }
    return added;
}

static EngineAcc engine_tick_row(sqlite3_stmt *stmt)
{
    return (EngineAcc){.engine = sqlite3_column_int64(stmt, 1),
                       .incarnation = sqlite3_column_int64(stmt, 2),
                       .policy_version = column_i64(stmt, 3, -1),
                       .ok_us = sqlite3_column_int64(stmt, 4),
                       .running = column_val(stmt, 5, sqlite3_column_int64(stmt, 6)),
                       .waiting = column_val(stmt, 7, sqlite3_column_int64(stmt, 8)),
                       .usage = column_val(stmt, 9, sqlite3_column_int64(stmt, 10)),
                       .counter = sqlite3_column_double(stmt, 11),
                       .counter_us = sqlite3_column_int64(stmt, 12),
                       .tokens = sqlite3_column_double(stmt, 13),
                       .retracted_counter = column_val(stmt, 14, 0),
                       .retracted = sqlite3_column_double(stmt, 15),
                       .errors = sqlite3_column_int64(stmt, 16),
                       .first_token_us = sqlite3_column_int64(stmt, 17),
                       .first_tokens = sqlite3_column_int64(stmt, 18)};
}

Err acc_ticks(Db *db, int64_t from, int64_t to, AccSet *set, const TickSeen *seen, Fault *fault)
{
    static const char sql[] =
        "SELECT second, engine, incarnation, policy_version, ok_us, running, running_us, waiting,"
        " waiting_us, token_usage, token_usage_us, counter, counter_us, tokens,"
        " retracted_counter, retracted, errors, first_token_us, first_tokens FROM engine_tick"
        " WHERE second BETWEEN ? AND ? ORDER BY second, engine";
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return read_failed(db, fault);
    }
    sqlite3_bind_int64(stmt, 1, from);
    sqlite3_bind_int64(stmt, 2, to);
    int64_t second = INT64_MIN;
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW; rc = sqlite3_step(stmt)) {
        EngineAcc row = engine_tick_row(stmt);
        *acc_find(set, row.engine) = row;
        if (seen != NULL && sqlite3_column_int64(stmt, 0) != second) {
            second = sqlite3_column_int64(stmt, 0);
            seen->second(second, seen->user);
        }
        if (seen != NULL && row.counter_us != 0) {
            seen->counter(row.engine, row.counter_us, row.tokens, seen->user);
        }
    }
    Err err = rc == SQLITE_DONE || db_tolerate(db, rc) ? ERR_OK : read_failed(db, fault);
    sqlite3_reset(stmt);
    return err;
}

Err acc_counters(Db *db, int64_t second, CounterSeen seen, void *user, Fault *fault)
{
    static const char sql[] = "SELECT engine, counter_us, tokens FROM engine_tick"
                              " WHERE second = ? AND counter_us IS NOT NULL ORDER BY engine";
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return read_failed(db, fault);
    }
    sqlite3_bind_int64(stmt, 1, second);
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW; rc = sqlite3_step(stmt)) {
        seen(sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1),
             sqlite3_column_double(stmt, 2), user);
    }
    Err err = rc == SQLITE_DONE || db_tolerate(db, rc) ? ERR_OK : read_failed(db, fault);
    sqlite3_reset(stmt);
    return err;
}

static ProbeFact probe_row(sqlite3_stmt *stmt)
{
    int64_t t_us = sqlite3_column_int64(stmt, 0);
    return (ProbeFact){.t_us = t_us,
                       .engine = sqlite3_column_int64(stmt, 1),
                       .incarnation = sqlite3_column_int64(stmt, 2),
                       .running = column_val(stmt, 4, t_us),
                       .waiting = column_val(stmt, 5, t_us),
                       .token_usage = column_val(stmt, 6, t_us),
                       .gen_tokens_total = column_val(stmt, 7, t_us),
                       .retracted_total = column_val(stmt, 8, t_us),
                       .policy_version = column_i64(stmt, 9, -1)};
}

Err acc_probes(Db *db, ProbeWalk *walk, AccSet *set, CounterSeen seen, void *user, Fault *fault)
{
    static const char sql[] =
        "SELECT t_us, engine, incarnation, outcome, running, waiting, token_usage,"
        " gen_tokens_total, retracted_total, policy_version, probe_id FROM probe"
        " WHERE probe_id > ? AND probe_id <= ? ORDER BY probe_id";
    walk->last = walk->from;
    walk->whole = true;
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return read_failed(db, fault);
    }
    sqlite3_bind_int64(stmt, 1, walk->from);
    sqlite3_bind_int64(stmt, 2, walk->to);
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW; rc = sqlite3_step(stmt)) {
        walk->last = sqlite3_column_int64(stmt, 10);
        if (sqlite3_column_int64(stmt, 0) > walk->t_us) {
            walk->whole = false;
            continue;
        }
        ProbeFact probe = probe_row(stmt);
        EngineAcc *acc = acc_find(set, probe.engine);
        acc_probe(acc, &probe, sqlite3_column_int64(stmt, 3) == 1);
        if (seen != NULL && acc->counter_us != 0) {
            seen(acc->engine, acc->counter_us, acc->tokens, user);
        }
    }
    Err err = rc == SQLITE_DONE || db_tolerate(db, rc) ? ERR_OK : read_failed(db, fault);
    sqlite3_reset(stmt);
    return err;
}

Err acc_load(Db *db, int64_t t_us, AccSet *set, Fault *fault)
{
    Tick key;
    Tick last;
    Tick after;
    Err err = tick_key_at(db, t_us, &key, fault);
    err = err ? err : tick_at(db, t_us, &last, fault);
    err = err ? err : tick_after(db, t_us, &after, fault);
    if (err == ERR_OK && last.found) {
        err = acc_ticks(db, key.found ? key.second : 0, last.second, set, NULL, fault);
    }
    ProbeWalk rest = {.from = last.probe, .to = after.probe, .t_us = t_us};
    return err ? err : acc_probes(db, &rest, set, NULL, NULL, fault);
}
