#include "store/db.h"

#include "core/base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Err db_err(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return ERR_OK;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return ERR_FORMAT;
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return ERR_IO;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ERR_TIMEOUT;
    case SQLITE_NOMEM:
        return ERR_MEMORY;
    case SQLITE_TOOBIG:
        return ERR_LIMIT;
    case SQLITE_INTERRUPT:
        return ERR_CANCELLED;
    default:
        return ERR_ARG;
    }
}

/* SQLite calls only ENOSPC "full". */
static const char *io_hint(int sys_errno)
{
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT: return "free space on its file system, or raise the quota";
    case EFBIG: return "raise the bound on file sizes (ulimit -f)";
    default: return NULL;
    }
}

/* What whoever opened the log can do. */
static const char *rc_hint(int rc, int sys_errno)
{
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return "free space on its file system";
    case SQLITE_IOERR:
        return io_hint(sys_errno);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return "make the file and its directory writable";
    case SQLITE_CANTOPEN:
        return "check that the file and its directory exist and may be opened";
    case SQLITE_CORRUPT:
        return "the file is damaged or cut short; `rolltop log salvage FILE NEW` saves the rest";
    case SQLITE_NOTADB:
        return "name a log that rolltop wrote";
    case SQLITE_BUSY:
        return "another process holds the file locked; try again";
    default:
        return NULL;
    }
}

Err db_rc_fault(int rc, const char *path, const char *doing, int sys_errno, const char *detail,
                Fault *fault)
{
    Err err = db_err(rc);
    if (sys_errno != 0 && err == ERR_IO) {
        return fault_set_sys(fault, err, sys_errno, rc_hint(rc, sys_errno), "%s: %s", path, doing);
    }
    return fault_set(fault, err, rc_hint(rc, 0), "%s: %s: %s", path, doing, detail);
}

Err db_fault(Db *db, Fault *fault, const char *doing)
{
    if (db->handle == NULL) {
        return fault_set(fault, ERR_MEMORY, NULL, "%s: no memory for SQLite", db->path);
    }
    return db_rc_fault(sqlite3_extended_errcode(db->handle), db->path, doing,
                       sqlite3_system_errno(db->handle), sqlite3_errmsg(db->handle), fault);
}

/* A path becomes a URI: '?', '#' and '%' would otherwise be read as its syntax. */
static char *path_uri(const char *path, const char *query)
{
    Text text;
    text_init(&text, 1 << 16);
    bool fits = text_add_c(&text, "file:");
    for (const char *p = path; *p != '\0'; p++) {
        if (*p == '?' || *p == '#' || *p == '%') {
            fits = text_addf(&text, "%%%02x", (unsigned)(unsigned char)*p) && fits;
        } else {
            fits = text_add_char(&text, *p) && fits;
        }
    }
    fits = text_add_c(&text, query) && fits;
    char *uri = fits ? text_take(&text) : NULL;
    text_free(&text);
    return uri;
}

static int open_uri(Db *db, const char *query, int flags)
{
    char *uri = path_uri(db->path, query);
    if (uri == NULL) {
        return SQLITE_CANTOPEN;
    }
    sqlite3_close(db->handle);
    db->handle = NULL;
    int rc = sqlite3_open_v2(uri, &db->handle, flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
                             NULL);
    free(uri);
    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(db->handle, 1);
        sqlite3_busy_timeout(db->handle, 2000);
        /* A hostile file must not run code through its schema. */
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
        rc = sqlite3_exec(db->handle, "PRAGMA schema_version", NULL, NULL, NULL);
    }
    return rc;
}

/* SQLite tells of a directory that may not be written to as of a file that is not there. */
static bool may_create(const char *path)
{
    char *dir = xstrdup(path);
    char *slash = strrchr(dir, '/');
    if (slash != NULL) {
        slash[slash == dir ? 1 : 0] = '\0';
    }
    bool may = access(path, F_OK) == 0 || access(slash != NULL ? dir : ".", W_OK) == 0;
    free(dir);
    return may;
}

Err db_open_write(Db *db, const char *path, Fault *fault)
{
    if (!may_create(path)) {
        *db = (Db){.path = NULL};
        return fault_set_sys(fault, ERR_IO, errno, "make its directory writable",
                             "%s: cannot open the log for writing", path);
    }
    *db = (Db){.path = xstrdup(path)};
    int rc = open_uri(db, "?mode=rwc", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (rc == SQLITE_OK && sqlite3_db_readonly(db->handle, "main") == 1) {
        db_rc_fault(SQLITE_READONLY, path, "cannot open the log for writing", EACCES, "", fault);
        db_close(db);
        return ERR_IO;
    }
    if (rc != SQLITE_OK) {
        Err err = db_fault(db, fault, "cannot open the log for writing");
        db_close(db);
        return err;
    }
    return ERR_OK;
}

/* A file that is shorter than its header says is refused whole, unless this mode is on: then what
 * is there can be read, and what is missing is a damaged page. Nothing is written either way. */
static int open_cut_file(Db *db, const char *query)
{
    int rc = open_uri(db, query, SQLITE_OPEN_READONLY);
    if ((rc & 0xff) == SQLITE_CORRUPT && db->handle != NULL) {
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 0, (int *)NULL);
        rc = sqlite3_exec(db->handle, "PRAGMA writable_schema = 1; PRAGMA schema_version", NULL,
                          NULL, NULL);
    }
    return rc;
}

bool db_tolerate(Db *db, int rc)
{
    int code = rc & 0xff;
    if (!db->tolerant || (code != SQLITE_CORRUPT && code != SQLITE_IOERR)) {
        return false;
    }
    db->met++;
    int64_t minute_us = db->at_us / 60000000 * 60000000;
    int at = 0;
    while (at < db->damages && db->damage[at].minute_us < minute_us) {
        at++;
    }
    if (at < db->damages && db->damage[at].minute_us == minute_us) {
        db->damage[at].reads++;
        return true;
    }
    if (db->damages == DB_DAMAGE_MAX) {
        int least = 0;
        for (int i = 1; i < db->damages; i++) {
            least = db->damage[i].reads < db->damage[least].reads ? i : least;
        }
        memmove(&db->damage[least], &db->damage[least + 1],
                (size_t)(db->damages - least - 1) * sizeof *db->damage);
        db->damages--;
        at -= at > least;
    }
    memmove(&db->damage[at + 1], &db->damage[at],
            (size_t)(db->damages - at) * sizeof *db->damage);
    db->damage[at] = (DbDamage){minute_us, 1};
    db->damages++;
    return true;
}

static bool wal_beside(const char *path)
{
    char *wal = xasprintf("%s-wal", path);
    struct stat info;
    bool found = stat(wal, &info) == 0 && info.st_size > 0;
    free(wal);
    return found;
}

Err db_open_read(Db *db, const char *path, Fault *fault)
{
    *db = (Db){.path = xstrdup(path)};
    struct stat info;
    Err err = ERR_OK;
    if (stat(path, &info) != 0) {
        err = fault_set_sys(fault, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
                            "name an existing log", "%s: cannot open the log", path);
        goto failed;
    }
    if (!S_ISREG(info.st_mode)) {
        err = fault_set(fault, ERR_ARG, "name a log file", "%s is not a regular file", path);
        goto failed;
    }
    int rc = open_cut_file(db, "?mode=ro");
    int code = rc & 0xff;
    bool shared_memory = code == SQLITE_CANTOPEN || code == SQLITE_READONLY ||
                         code == SQLITE_IOERR;
    if (shared_memory && access(path, R_OK) == 0) {
        /* A WAL file on a read-only directory: without a -wal nothing can be missing. */
        if (wal_beside(path)) {
            err = fault_set(fault, ERR_IO,
                            "copy the file together with its -wal to a writable directory",
                            "%s has unmerged rows in %s-wal, and its directory is read-only",
                            path, path);
            goto failed;
        }
        rc = open_cut_file(db, "?mode=ro&immutable=1");
    }
    if (rc == SQLITE_OK) {
        return ERR_OK;
    }
    err = db_fault(db, fault, "cannot read the log");
failed:
    db_close(db);
    return err;
}

void db_close(Db *db)
{
    for (int i = 0; i < db->cached; i++) {
        sqlite3_finalize(db->cache[i].stmt);
    }
    db->cached = 0;
    sqlite3_close(db->handle);
    db->handle = NULL;
    free(db->path);
    db->path = NULL;
}

sqlite3_stmt *db_stmt(Db *db, const char *sql, Fault *fault)
{
    for (int i = 0; i < db->cached; i++) {
        if (db->cache[i].sql == sql) {
            DbEntry found = db->cache[i];
            if (i > 0) { /* what is asked for often moves to the front */
                db->cache[i] = db->cache[i - 1];
                db->cache[i - 1] = found;
            }
            if (sqlite3_stmt_busy(found.stmt)) {
                sqlite3_reset(found.stmt);
            }
            return found.stmt;
        }
    }
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
    if (rc != SQLITE_OK) {
        db_fault(db, fault, "cannot prepare a statement");
        return NULL;
    }
    if (db->cached == DB_STATEMENTS) { /* more literals than foreseen: forget the rarest */
        sqlite3_finalize(db->cache[--db->cached].stmt);
    }
    db->cache[db->cached++] = (DbEntry){sql, stmt};
    return stmt;
}

Err db_exec(Db *db, const char *sql, Fault *fault)
{
    if (sqlite3_exec(db->handle, sql, NULL, NULL, NULL) != SQLITE_OK) {
        return db_fault(db, fault, "cannot change the log");
    }
    return ERR_OK;
}

Err db_i64(Db *db, const char *sql, int64_t fallback, int64_t *out, Fault *fault)
{
    *out = fallback;
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    int rc = sqlite3_step(stmt);
    Err err = ERR_OK;
    if (rc == SQLITE_ROW) {
        *out = column_i64(stmt, 0, fallback);
    } else if (rc != SQLITE_DONE) {
        err = db_fault(db, fault, "cannot read the log");
    }
    sqlite3_reset(stmt);
    return err;
}

void bind_i64(Bind *bind, int64_t v)
{
    sqlite3_bind_int64(bind->stmt, ++bind->at, v);
}

void bind_known(Bind *bind, int64_t v)
{
    if (v < 0) {
        bind_null(bind);
    } else {
        bind_i64(bind, v);
    }
}

void bind_some(Bind *bind, int64_t v)
{
    if (v == 0) {
        bind_null(bind);
    } else {
        bind_i64(bind, v);
    }
}

void bind_double(Bind *bind, double v)
{
    sqlite3_bind_double(bind->stmt, ++bind->at, v); /* SQLite stores NaN as NULL */
}

void bind_val(Bind *bind, Val v)
{
    if (v.known) {
        bind_double(bind, v.v);
    } else {
        bind_null(bind);
    }
}

void bind_text(Bind *bind, const char *s)
{
    sqlite3_bind_text(bind->stmt, ++bind->at, s, -1, SQLITE_STATIC);
}

void bind_blob(Bind *bind, const void *bytes, size_t n)
{
    if (bytes == NULL) {
        bind_null(bind);
    } else {
        sqlite3_bind_blob64(bind->stmt, ++bind->at, bytes, (sqlite3_uint64)n, SQLITE_STATIC);
    }
}

void bind_null(Bind *bind)
{
    sqlite3_bind_null(bind->stmt, ++bind->at);
}

int bind_run(Bind *bind)
{
    int rc = sqlite3_step(bind->stmt);
    sqlite3_reset(bind->stmt);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

int64_t column_i64(sqlite3_stmt *stmt, int column, int64_t fallback)
{
    if (sqlite3_column_type(stmt, column) == SQLITE_NULL) {
        return fallback;
    }
    return sqlite3_column_int64(stmt, column);
}

Val column_val(sqlite3_stmt *stmt, int column, int64_t seen_us)
{
    if (sqlite3_column_type(stmt, column) == SQLITE_NULL) {
        return val_none();
    }
    return val_of(sqlite3_column_double(stmt, column), seen_us);
}
