/* SQLite behind one small wrapper: open modes, a cache of prepared statements, errors in words.
 * Private to store/. Statements are static literals and are found again by address. */
#ifndef ROLLTOP_STORE_DB_H
#define ROLLTOP_STORE_DB_H

#include "core/base/str.h"
#include "core/base/val.h"

#include <sqlite3.h>

enum { DB_STATEMENTS = 192, DB_DAMAGE_MAX = 64 };

typedef struct DbEntry {
    const char *sql;
    sqlite3_stmt *stmt;
} DbEntry;

typedef struct DbDamage { /* a minute of the log in which something could not be read */
    int64_t minute_us;
    int reads;
} DbDamage;

typedef struct Db {
    sqlite3 *handle;
    char *path;
    bool tolerant;        /* a damaged page ends a read, not the reader */
    int64_t at_us;        /* the moment that is asked for: damage is remembered there */
    DbDamage damage[DB_DAMAGE_MAX]; /* in order of time; the fewest reads make room */
    int damages;
    int64_t met;          /* reads that damage ended, all told */
    DbEntry cache[DB_STATEMENTS];
    int cached;
} Db;

/* Both set application and schema rules aside: that is schema.h's business. */
Err db_open_write(Db *db, const char *path, Fault *fault);
Err db_open_read(Db *db, const char *path, Fault *fault);
void db_close(Db *db);
/* True when `rc` is damage and the reader goes on without the rows behind it: remembered at
 * at_us. Always false unless `tolerant`. */
bool db_tolerate(Db *db, int rc);

/* A reset statement without bindings; NULL and a Fault when it cannot be prepared. */
sqlite3_stmt *db_stmt(Db *db, const char *sql, Fault *fault);
Err db_exec(Db *db, const char *sql, Fault *fault);
/* First column of the first row; the fallback when there is none or it is NULL. */
Err db_i64(Db *db, const char *sql, int64_t fallback, int64_t *out, Fault *fault);
/* The words for the newest error of the handle. Returns its Err. */
Err db_fault(Db *db, Fault *fault, const char *doing);
Err db_err(int rc);
Err db_rc_fault(int rc, const char *path, const char *doing, int sys_errno, const char *detail,
                Fault *fault);

/* Binds left to right; negative "unknown" numbers become NULL with bind_known. */
typedef struct Bind {
    sqlite3_stmt *stmt;
    int at;
} Bind;
void bind_i64(Bind *bind, int64_t v);
void bind_known(Bind *bind, int64_t v); /* < 0: NULL */
void bind_some(Bind *bind, int64_t v);  /* 0: NULL */
void bind_double(Bind *bind, double v); /* NaN becomes NULL */
void bind_val(Bind *bind, Val v);
void bind_text(Bind *bind, const char *s); /* borrowed until the reset; NULL stays NULL */
void bind_blob(Bind *bind, const void *bytes, size_t n);
void bind_null(Bind *bind);
/* Steps a statement that returns no rows and resets it; the SQLite code. */
int bind_run(Bind *bind);

int64_t column_i64(sqlite3_stmt *stmt, int column, int64_t fallback);
Val column_val(sqlite3_stmt *stmt, int column, int64_t seen_us);

#endif
