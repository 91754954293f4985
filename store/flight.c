#include "store/tick.h"

#include "core/base/mem.h"

#include <stdlib.h>

/* Attempts in flight: those of the key tick that are still open at T, those that began since,
 * and their progress since. Bounded by ten seconds of starts and progress. */

void flight_free(FlightList *list)
{
    free(list->items);
    *list = (FlightList){0};
}

void flight_add(FlightList *list, Flight flight)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        list->items = xrealloc(list->items, list->capacity, sizeof *list->items);
    }
    list->items[list->count++] = flight;
}

static Flight *flight_of(FlightList *list, int64_t attempt_id)
{
    size_t from = 0;
    size_t to = list->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (list->items[middle].attempt_id < attempt_id) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    bool found = from < list->count && list->items[from].attempt_id == attempt_id;
    return found ? &list->items[from] : NULL;
}

static Err load_attempts(Db *db, sqlite3_stmt *stmt, FlightList *list, Fault *fault)
{
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW; rc = sqlite3_step(stmt)) {
        flight_add(list, (Flight){.attempt_id = sqlite3_column_int64(stmt, 0),
                                  .sample_id = sqlite3_column_int64(stmt, 1),
                                  .group_id = sqlite3_column_int64(stmt, 2),
                                  .step = sqlite3_column_int64(stmt, 3),
                                  .started_us = sqlite3_column_int64(stmt, 4),
                                  .engine = sqlite3_column_int64(stmt, 5),
                                  .attempt = sqlite3_column_int(stmt, 6),
                                  .eval = sqlite3_column_int(stmt, 7) != 0,
                                  .tokens = sqlite3_column_int64(stmt, 8),
                                  .progress_us = sqlite3_column_int64(stmt, 9)});
    }
    bool over = rc == SQLITE_DONE || db_tolerate(db, rc);
    Err err = over ? ERR_OK : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}

static Err load_progress(Db *db, int64_t from, int64_t to, int64_t t_us, FlightList *list,
                         Fault *fault)
{
    static const char sql[] =
        "SELECT attempt_id, t_us, engine, tokens FROM progress"
        " WHERE progress_id > ? AND progress_id <= ? AND t_us <= ? ORDER BY progress_id";
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return db_fault(db, fault, "cannot read the log");
    }
    sqlite3_bind_int64(stmt, 1, from);
    sqlite3_bind_int64(stmt, 2, to);
    sqlite3_bind_int64(stmt, 3, t_us);
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW; rc = sqlite3_step(stmt)) {
        Flight *flight = flight_of(list, sqlite3_column_int64(stmt, 0));
        if (flight != NULL) {
            flight->progress_us = sqlite3_column_int64(stmt, 1);
            flight->engine = column_i64(stmt, 2, flight->engine);
            flight->tokens = sqlite3_column_int64(stmt, 3);
        }
    }
    bool over = rc == SQLITE_DONE || db_tolerate(db, rc);
    Err err = over ? ERR_OK : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}

Err flight_load(Db *db, int64_t t_us, FlightList *list, Fault *fault)
{
    static const char kept[] =
        "SELECT a.attempt_id, a.sample_id, a.group_id, a.step, a.started_us,"
        " coalesce(f.engine, a.engine), a.try, a.eval, f.tokens, f.progress_us"
        " FROM flight f JOIN attempt a ON a.attempt_id = f.attempt_id"
        " WHERE f.second = ?1 AND (a.ended_us IS NULL OR a.ended_us > ?2) AND a.started_us >= ?3"
        " ORDER BY f.attempt_id";
    static const char begun[] =
        "SELECT attempt_id, sample_id, group_id, step, started_us, engine, try, eval, 0, 0"
        " FROM attempt WHERE attempt_id > ?1 AND attempt_id <= ?4 AND started_us <= ?2"
        " AND (ended_us IS NULL OR ended_us > ?2) AND started_us >= ?3 ORDER BY attempt_id";
    static const char session[] =
        "SELECT t_us FROM session WHERE t_us <= ? ORDER BY session_id DESC LIMIT 1";
    Tick key;
    Tick after;
    Err err = tick_key_at(db, t_us, &key, fault);
    if (err == ERR_OK) {
        err = tick_after(db, t_us, &after, fault);
    }
    /* What an earlier life of the core had in flight died with it. */
    int64_t since_us = 0;
    sqlite3_stmt *stmt = err == ERR_OK ? db_stmt(db, session, fault) : NULL;
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, t_us);
        since_us = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
        sqlite3_reset(stmt);
    }
    for (int pass = 0; pass < 2 && err == ERR_OK; pass++) {
        stmt = db_stmt(db, pass == 0 ? kept : begun, fault);
        if (stmt == NULL) {
            return db_fault(db, fault, "cannot read the log");
        }
        sqlite3_bind_int64(stmt, 1, pass == 0 ? key.second : key.attempt);
        sqlite3_bind_int64(stmt, 2, t_us);
        sqlite3_bind_int64(stmt, 3, since_us);
        if (pass == 1) {
            sqlite3_bind_int64(stmt, 4, after.attempt);
        }
        err = load_attempts(db, stmt, list, fault);
    }
    if (err == ERR_OK && list->count > 0) {
        err = load_progress(db, key.progress, after.progress, t_us, list, fault);
    }
    return err;
}
