#include "store/maintain.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "store/lock.h"
#include "store/schema.h"
#include "store/store.h"
#include "store/tick.h"
#include "store/trim.h"
#include "store/wal_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_PAGES = 2048, STEP_PAUSE_US = 1000, COMMIT_SLICES = 64 };
#define LIVE_HINT "stop the run first; a running one takes --log-keep-age and --log-max-size"

static int64_t size_of(const char *path, const char *tail)
{
    char *name = xasprintf("%s%s", path, tail);
    struct stat info;
    int64_t size = stat(name, &info) == 0 ? (int64_t)info.st_size : 0;
    free(name);
    return size;
}

static Err room_for(const char *path, int64_t bytes, Fault *fault)
{
    char *dir = xstrdup(path);
    char *slash = strrchr(dir, '/');
    uint64_t there = 0;
    if (slash != NULL) {
        slash[slash == dir ? 1 : 0] = '\0';
    }
    Err err = fs_free_bytes(slash != NULL ? dir : ".", &there, fault);
    if (err == ERR_OK && there < (uint64_t)bytes) {
        err = fault_set(fault, ERR_LIMIT, "free space there, or name another place",
                        "%s: %lld MiB are needed on its file system, %llu are free", path,
                        (long long)((bytes + (1 << 20) - 1) >> 20),
                        (unsigned long long)(there >> 20));
    }
    free(dir);
    return err;
}

/* ---- snapshot ----------------------------------------------------------------------------- */

/* One read transaction over the whole copy: without it SQLite would begin anew at every commit of
 * the run and never end. The writer goes on; only its -wal cannot be emptied meanwhile. */
static Err copy_pages(Db *from, Db *to, Fault *fault)
{
    Err err = db_exec(from, "BEGIN; SELECT 1 FROM sqlite_master LIMIT 1", fault);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_backup *backup = sqlite3_backup_init(to->handle, "main", from->handle, "main");
    if (backup == NULL) {
        return db_fault(to, fault, "cannot write the copy");
    }
    int rc = SQLITE_OK;
    while (rc == SQLITE_OK || rc == SQLITE_BUSY || rc == SQLITE_LOCKED) {
        rc = sqlite3_backup_step(backup, STEP_PAGES);
        if (size_of(from->path, "-wal") > LOG_SNAPSHOT_WAL_MAX) {
            err = fault_set(fault, ERR_LIMIT, "copy to a faster disk, or while less is written",
                            "%s: its -wal grew beyond %lld MiB during the copy", from->path,
                            (long long)(LOG_SNAPSHOT_WAL_MAX >> 20));
            break;
        }
        clock_sleep_us(rc == SQLITE_OK ? STEP_PAUSE_US : 20 * STEP_PAUSE_US);
    }
    int finished = sqlite3_backup_finish(backup);
    if (err == ERR_OK && (rc != SQLITE_DONE || finished != SQLITE_OK)) {
        bool source = (rc & 0xff) == SQLITE_CORRUPT;
        err = db_fault(source ? from : to, fault, source ? "cannot read the log"
                                                         : "cannot write the copy");
        err = err ? err : db_rc_fault(rc, to->path, "cannot write the copy", 0,
                                      sqlite3_errstr(rc), fault);
    }
    db_exec(from, "COMMIT", NULL);
    return err;
}

static Err sync_file(const char *path, Fault *fault)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Err err = ERR_OK;
    if (fd < 0 || fsync(fd) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s: cannot write the copy", path);
    }
    if (fd >= 0) {
        close(fd);
    }
    return err;
}

Err log_snapshot(const char *path, const char *to, FILE *out, Fault *fault)
{
    Db from;
    Db copy;
    if (fs_exists(to)) {
        return fault_set(fault, ERR_EXISTS, "name a file that is not there yet",
                         "%s is there already", to);
    }
    Err err = db_open_read(&from, path, fault);
    if (err != ERR_OK) {
        return err;
    }
    char *partial = xasprintf("%s.partial", to);
    unlink(partial);
    copy = (Db){.handle = NULL};
    err = schema_check(&from, fault);
    err = err ? err : room_for(to, size_of(path, "") + size_of(path, "-wal"), fault);
    err = err ? err : db_open_write(&copy, partial, fault);
    err = err ? err : copy_pages(&from, &copy, fault);
    db_close(&copy);
    db_close(&from);
    err = err ? err : sync_file(partial, fault);
    if (err == ERR_OK && rename(partial, to) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s: cannot write the copy", to);
    }
    if (err == ERR_OK) {
        fprintf(out, "%s: %lld bytes\n", to, (long long)size_of(to, ""));
    } else {
        unlink(partial);
    }
    free(partial);
    return err;
}

/* ---- compact, trim ------------------------------------------------------------------------ */

/* Before anything is written: what is no log stays as it is, and without a lock beside it. */
static Err is_log(const char *path, Fault *fault)
{
    Db db;
    Err err = db_open_read(&db, path, fault);
    if (err == ERR_OK) {
        err = schema_check(&db, fault);
        db_close(&db);
    }
    return err;
}

/* Opening it for writing would drop the frames behind a damaged one for good. */
static Err wal_is_whole(const char *path, Fault *fault)
{
    WalScan scan;
    Err err = wal_scan(path, &scan, fault);
    if (err == ERR_OK && scan.found && (!scan.header_good || scan.commits_behind > 0)) {
        err = fault_set(fault, ERR_FORMAT, "`rolltop log salvage FILE NEW` saves what can be read",
                        "%s-wal is damaged, and what stands behind would be lost", path);
    }
    return err;
}

/* SQLite writes a file anew without a word about rows that a damaged page hides. */
static Err is_whole(Db *db, Fault *fault)
{
    static const char sql[] =
        "SELECT count(*) FROM pragma_quick_check(1) WHERE quick_check <> 'ok'";
    int64_t breaches = 0;
    Err err = db_i64(db, sql, 0, &breaches, fault);
    if (err == ERR_OK && breaches > 0) {
        err = fault_set(fault, ERR_FORMAT, "`rolltop log salvage FILE NEW` saves what can be read",
                        "%s is damaged, and a smaller file would be without what is hidden",
                        db->path);
    }
    return err;
}

static Err open_alone(const char *path, Db *db, int *lock, Fault *fault)
{
    *lock = -1;
    *db = (Db){.handle = NULL};
    Err err = ERR_OK;
    if (!fs_exists(path)) {
        err = fault_set(fault, ERR_NOT_FOUND, "name an existing log", "there is no log %s", path);
    }
    err = err ? err : is_log(path, fault);
    err = err ? err : lock_take(path, LIVE_HINT, lock, fault);
    err = err ? err : wal_is_whole(path, fault);
    err = err ? err : db_open_write(db, path, fault);
    return err ? err : schema_prepare(db, fault);
}

static void close_alone(Db *db, int lock)
{
    db_close(db);
    if (lock >= 0) {
        close(lock);
    }
}

Err log_compact(const char *path, FILE *out, Fault *fault)
{
    Db db;
    int lock = -1;
    int64_t before = size_of(path, "");
    Err err = open_alone(path, &db, &lock, fault);
    /* The new pages go through the -wal: three times the file at the worst. */
    err = err ? err : room_for(path, 2 * before, fault);
    err = err ? err : is_whole(&db, fault);
    err = err ? err : db_exec(&db, "VACUUM", fault);
    err = err ? err : db_exec(&db, "PRAGMA wal_checkpoint(TRUNCATE)", fault);
    close_alone(&db, lock);
    if (err == ERR_OK) {
        fprintf(out, "%s: %lld bytes before, %lld now\n", path, (long long)before,
                (long long)size_of(path, ""));
    }
    return err;
}

static Err trim_whole(Db *db, TrimWork *work, Fault *fault)
{
    Err err = ERR_OK;
    while (err == ERR_OK && work->trim_id != 0) {
        err = db_exec(db, "BEGIN IMMEDIATE", fault);
        for (int i = 0; i < COMMIT_SLICES && err == ERR_OK && work->trim_id != 0; i++) {
            if (trim_slice(db, work) != SQLITE_OK) {
                err = db_fault(db, fault, "cannot trim the log");
                db_exec(db, "ROLLBACK", NULL);
            }
        }
        err = err ? err : db_exec(db, "COMMIT", fault);
    }
    return err;
}

Err log_trim(const char *path, int64_t keep_us, int64_t max_bytes, FILE *out, Fault *fault)
{
    Db db;
    int lock = -1;
    TrimLimits limits = {keep_us, max_bytes};
    TrimWork work;
    int64_t rows = 0;
    int64_t last_us = 0;
    Err err = open_alone(path, &db, &lock, fault);
    err = err ? err : trim_resume(&db, &work, fault);
    err = err ? err : db_last_us(&db, INT64_MAX, &last_us, fault);
    for (;;) {
        err = err ? err : trim_whole(&db, &work, fault);
        rows += err == ERR_OK ? work.rows : 0;
        TrimState state;
        int64_t before_us = 0;
        const char *why = NULL;
        err = err ? err : trim_state(&db, last_us, &state, fault);
        if (err != ERR_OK || !trim_due(&limits, &state, &before_us, &why)) {
            break;
        }
        err = trim_begin(&db, before_us, last_us, "by hand", &work, fault);
    }
    if (err == ERR_OK) {
        TrimState state = {0};
        err = trim_state(&db, last_us, &state, fault);
        bool over = max_bytes > 0 && state.bytes > max_bytes;
        fprintf(out, "%s: %lld rows went; %lld bytes are in use%s; rolltop log compact gives the "
                "rest back\n", path, (long long)rows, (long long)state.bytes,
                over ? ", more than asked for: what is always kept is larger" : "");
    }
    close_alone(&db, lock);
    return err;
}
