#include "store/salvage.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "store/schema.h"
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, CHUNK = 1 << 20 };

static void put_be32(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)(v >> 24);
    p[1] = (unsigned char)(v >> 16);
    p[2] = (unsigned char)(v >> 8);
    p[3] = (unsigned char)v;
}

static Err copy_file(const char *from, const char *to, Fault *fault)
{
    FsFile file;
    Err err = fs_open(from, &file, fault);
    if (err != ERR_OK) {
        return err;
    }
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    unsigned char *chunk = xcalloc(1, CHUNK);
    assert(chunk); /* it always is; a compiler with sanitizers wants to be told */
    if (fd < 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s: cannot write the copy", to);
    }
    for (uint64_t at = 0; at < file.n && err == ERR_OK; at += CHUNK) {
        size_t n = file.n - at < CHUNK ? (size_t)(file.n - at) : CHUNK;
        if (fs_read_at(&file, at, chunk, n) != ERR_OK) {
            memset(chunk, 0, n); /* a bad place on the disk: its pages are damaged ones */
        }
        if (!fs_write_all(fd, chunk, n)) {
            err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s: cannot write the copy", to);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    free(chunk);
    fs_close(&file);
    return err;
}

/* The first page of a new log of that schema. */
static Err new_page(const char *scratch, int64_t version, unsigned char page[PAGE], Fault *fault)
{
    Db db;
    FsFile file = {.fd = -1};
    unlink(scratch);
    Err err = db_open_write(&db, scratch, fault);
    err = err ? err : schema_create(&db, version, fault);
    db_close(&db);
    err = err ? err : fs_open(scratch, &file, fault);
    if (err == ERR_OK && fs_read_at(&file, 0, page, PAGE) != ERR_OK) {
        err = fault_set(fault, ERR_IO, NULL, "%s: cannot be read", scratch);
    }
    fs_close(&file);
    unlink(scratch);
    return err;
}

static Err write_page(const char *path, const unsigned char page[PAGE], Fault *fault)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    Err err = ERR_OK;
    if (fd < 0 || pwrite(fd, page, PAGE, 0) != PAGE) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s: cannot write the copy", path);
    }
    if (fd >= 0) {
        close(fd);
    }
    return err;
}

/* Do the places fit? Words of the log are in the table where they should be. */
static bool fits(Db *db)
{
    int64_t words = 0;
    int64_t runs = 0;
    return db_i64(db, "SELECT count(*) FROM enumeration WHERE kind = 'severity'", 0, &words,
                  NULL) == ERR_OK && words >= 3 &&
           db_i64(db, "SELECT count(*) FROM word WHERE word_id = 1 AND text = 'ok'", 0, &runs,
                  NULL) == ERR_OK && runs == 1;
}

static Err mend(const char *mended, int64_t version, uint64_t bytes, Db *db, Fault *fault)
{
    unsigned char page[PAGE];
    char *scratch = xasprintf("%s.new", mended);
    Err err = new_page(scratch, version, page, fault);
    free(scratch);
    put_be32(page + 28, (uint32_t)(bytes / PAGE)); /* pages in the file */
    put_be32(page + 32, 0);                        /* no free pages: nothing is written */
    put_be32(page + 36, 0);
    memcpy(page + 92, page + 24, 4); /* the number of pages is valid */
    err = err ? err : write_page(mended, page, fault);
    err = err ? err : db_open_read(db, mended, fault);
    if (err == ERR_OK && !fits(db)) {
        db_close(db);
        err = ERR_FORMAT;
    }
    return err ? err : schema_add_later(db, version, fault);
}

static Err open_mended(const char *path, const char *mended, Db *db, Fault *fault)
{
    char *wal = xasprintf("%s-wal", path);
    char *mended_wal = xasprintf("%s-wal", mended);
    FsFile file = {.fd = -1};
    Err err = copy_file(path, mended, fault);
    if (err == ERR_OK && fs_exists(wal)) {
        err = copy_file(wal, mended_wal, fault);
    }
    err = err ? err : fs_open(mended, &file, fault);
    uint64_t bytes = file.n;
    fs_close(&file);
    free(wal);
    free(mended_wal);
    if (err != ERR_OK) {
        return err;
    }
    for (int64_t version = STORE_SCHEMA_VERSION; version >= 1; version--) {
        if (mend(mended, version, bytes, db, NULL) == ERR_OK) {
            return ERR_OK;
        }
    }
    return fault_set(fault, ERR_FORMAT, "name a log that rolltop wrote",
                     "%s: neither its first page nor the tables behind it can be read", path);
}

Err salvage_open(const char *path, const char *mended, Db *out_db, FILE *out, Fault *fault)
{
    int64_t application = 0;
    int64_t version = 0;
    Fault first = {0};
    Err err = db_open_read(out_db, path, &first);
    if (err == ERR_OK) {
        err = db_i64(out_db, "PRAGMA application_id", 0, &application, &first);
        err = err ? err : db_i64(out_db, "PRAGMA user_version", 0, &version, &first);
        if (err == ERR_OK && application == STORE_APPLICATION_ID && fits(out_db)) {
            if (version <= STORE_SCHEMA_VERSION) {
                return schema_add_later(out_db, version, fault);
            }
            db_close(out_db);
            return fault_set(fault, ERR_UNSUPPORTED,
                             "use the rolltop that wrote it, or a newer one",
                             "%s has log schema %lld; this rolltop knows schemas up to %d", path,
                             (long long)version, STORE_SCHEMA_VERSION);
        }
        db_close(out_db);
    } else if (err == ERR_NOT_FOUND || err == ERR_ARG || err == ERR_IO) {
        return fault_set(fault, err, first.hint, "%s", first.sentence);
    }
    err = open_mended(path, mended, out_db, fault);
    if (err == ERR_OK) {
        fprintf(out, "the first page of %s is damaged; a new one was made\n", path);
    }
    return err;
}
