/* A log as SQLite sees it, past the store: what its rows say, and changes that no store makes. */
#ifndef ROLLTOP_TESTS_STORE_RAW_SQL_H
#define ROLLTOP_TESTS_STORE_RAW_SQL_H

#include "tests/harness.h"

#include <sqlite3.h>

/* The first column of the first row; INT64_MIN: none, or no such file. */
static inline int64_t number(const char *file, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t v = INT64_MIN;
    if (sqlite3_open_v2(file, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        v = sqlite3_column_int64(stmt, 0);
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return v;
}

static inline void run_sql(const char *file, const char *sql)
{
    sqlite3 *db = NULL;
    CHECK_I64(sqlite3_open(file, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 60000); /* beside a writer that tries again */
    CHECK_I64(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

#endif
