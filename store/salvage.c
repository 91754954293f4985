#include "store/salvage.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "store/maintain.h"
#include "store/schema.h"
#include "store/store.h"
#include "store/tick.h"
#include "store/wal_scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Table by table, row by row in order of the key. Where a page cannot be read the next key behind
 * it is looked for by doubling steps and then by halving: a few dozen look-ups a hole, whatever its
 * size. Nothing is guessed: a row is copied as it is read or it is lost and counted. */

enum { COMMIT_ROWS = 20000, SAME_KEY_MAX = 65536, HOLES_MAX = 10000 };

typedef struct Walk { /* one table, or one part of it */
    const char *table, *key, *time; /* time: column, "" none */
    int64_t time_unit;              /* microseconds of it */
    bool numbered;                  /* keys run on: a hole's rows can be counted */
    const char *part;               /* further condition, "" none */
    sqlite3_stmt *from_key, *peek, *insert;
    int columns, key_column, time_column;
    int64_t copied, lost, holes;
    int64_t last_us, last_key, same; /* same: rows in a row with that key */
} Walk;

typedef struct Salvage {
    Db from, to;
    int64_t now_us, since_commit;
    int64_t lost;
    FILE *out;
} Salvage;

static sqlite3_stmt *prepare(Db *db, char *sql)
{
    sqlite3_stmt *stmt = NULL;
    sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL);
    free(sql);
    return stmt;
}

static Err put_damage(Salvage *s, const char *table, int64_t from_us, int64_t to_us, int64_t rows,
                      const char *reason, Fault *fault)
{
    static const char sql[] = "INSERT INTO damage VALUES (NULL, ?, ?, ?, ?, ?, ?)";
    Bind b = {db_stmt(&s->to, sql, fault), 0};
    if (b.stmt == NULL) {
        return db_err(sqlite3_errcode(s->to.handle));
    }
    bind_i64(&b, s->now_us);
    bind_text(&b, table);
    bind_some(&b, from_us);
    bind_some(&b, to_us);
    bind_some(&b, rows);
    bind_text(&b, reason);
    return bind_run(&b) == SQLITE_OK ? ERR_OK : db_fault(&s->to, fault, "cannot write the copy");
}

static void print_time(FILE *out, int64_t t_us)
{
    char text[40] = "?";
    if (t_us > 0) {
        clock_format_utc(t_us, text, sizeof text);
    }
    fputs(text, out);
}

/* ---- one table ---------------------------------------------------------------------------- */

static int column_named(sqlite3_stmt *stmt, const char *name)
{
    for (int i = 0; i < sqlite3_column_count(stmt); i++) {
        if (strcmp(sqlite3_column_name(stmt, i), name) == 0) {
            return i;
        }
    }
    return -1;
}

/* False: the damaged file does not even name the table's place. */
static bool open_walk(Salvage *s, Walk *w)
{
    w->from_key = prepare(&s->from, xasprintf("SELECT * FROM %s WHERE %s >= ?1 %s ORDER BY %s",
                                              w->table, w->key, w->part, w->key));
    w->peek = prepare(&s->from, xasprintf("SELECT %s FROM %s WHERE %s >= ?1 %s ORDER BY %s LIMIT 1",
                                          w->key, w->table, w->key, w->part, w->key));
    if (w->from_key == NULL || w->peek == NULL) {
        return false;
    }
    w->columns = sqlite3_column_count(w->from_key);
    w->key_column = column_named(w->from_key, w->key);
    w->time_column = column_named(w->from_key, w->time);
    Text sql;
    text_init(&sql, 1 << 12);
    text_addf(&sql, "INSERT OR REPLACE INTO %s (", w->table);
    for (int i = 0; i < w->columns; i++) {
        text_addf(&sql, "%s\"%s\"", i > 0 ? ", " : "", sqlite3_column_name(w->from_key, i));
    }
    text_add_c(&sql, ") VALUES (");
    for (int i = 0; i < w->columns; i++) {
        text_add_c(&sql, i > 0 ? ", ?" : "?");
    }
    text_add_c(&sql, ")");
    w->insert = prepare(&s->to, text_take(&sql));
    text_free(&sql);
    w->last_key = INT64_MIN;
    return w->insert != NULL && w->key_column >= 0;
}

static void close_walk(Walk *w)
{
    sqlite3_finalize(w->from_key);
    sqlite3_finalize(w->peek);
    sqlite3_finalize(w->insert);
}

static Err copy_row(Salvage *s, Walk *w, Fault *fault)
{
    for (int i = 0; i < w->columns; i++) {
        sqlite3_bind_value(w->insert, i + 1, sqlite3_column_value(w->from_key, i));
    }
    int rc = sqlite3_step(w->insert);
    sqlite3_reset(w->insert);
    w->last_key = sqlite3_column_int64(w->from_key, w->key_column);
    if ((rc & 0xff) == SQLITE_CONSTRAINT || (rc & 0xff) == SQLITE_MISMATCH) {
        w->lost++; /* bytes that are no row of this table */
        return ERR_OK;
    }
    if (rc != SQLITE_DONE) {
        return db_fault(&s->to, fault, "cannot write the copy");
    }
    w->copied++;
    if (w->time_column >= 0) {
        w->last_us = sqlite3_column_int64(w->from_key, w->time_column) * w->time_unit;
    }
    if (++s->since_commit >= COMMIT_ROWS) {
        s->since_commit = 0;
        return db_exec(&s->to, "COMMIT; BEGIN", fault);
    }
    return ERR_OK;
}

/* ROW: *key is the first at or behind `at`; DONE: there is none; else it cannot be read. */
static int peek(Walk *w, int64_t at, int64_t *key)
{
    sqlite3_bind_int64(w->peek, 1, at);
    int rc = sqlite3_step(w->peek);
    if (rc == SQLITE_ROW) {
        *key = sqlite3_column_int64(w->peek, 0);
    }
    sqlite3_reset(w->peek);
    return rc;
}

static bool readable(int rc)
{
    return rc == SQLITE_ROW || rc == SQLITE_DONE;
}

/* The first key behind the hole that follows `last`. False: nothing behind it can be read. */
static bool behind_hole(Walk *w, int64_t last, int64_t *next)
{
    int64_t base = last == INT64_MIN ? 0 : last;
    int64_t bad = 0;
    int64_t good = 1;
    int64_t key = 0;
    while (!readable(peek(w, base + good, &key))) {
        if (good > INT64_MAX / 4 - (base > 0 ? base / 4 : 0)) {
            return false;
        }
        bad = good;
        good *= 2;
    }
    while (good - bad > 1) {
        int64_t middle = bad + (good - bad) / 2;
        if (readable(peek(w, base + middle, &key))) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    return peek(w, base + good, next) == SQLITE_ROW;
}

static int64_t time_of(Walk *w, int64_t key)
{
    int64_t t_us = 0;
    if (w->time_column >= 0) {
        sqlite3_bind_int64(w->from_key, 1, key);
        if (sqlite3_step(w->from_key) == SQLITE_ROW) {
            t_us = sqlite3_column_int64(w->from_key, w->time_column) * w->time_unit;
        }
        sqlite3_reset(w->from_key);
    }
    return t_us;
}

static Err note_hole(Salvage *s, Walk *w, bool more, int64_t next, Fault *fault)
{
    int64_t to_us = more ? time_of(w, next) : 0;
    int64_t first = w->last_key == INT64_MIN ? 0 : w->last_key;
    int64_t rows = more && w->numbered ? next - first - 1 : 0;
    w->holes++;
    w->lost += rows;
    fprintf(s->out, "%s: ", w->table);
    if (rows > 0) {
        fprintf(s->out, "%lld rows lost between ", (long long)rows);
    } else {
        fputs("rows lost between ", s->out);
    }
    print_time(s->out, w->last_us);
    fputs(" and ", s->out);
    print_time(s->out, to_us);
    fputc('\n', s->out);
    return put_damage(s, w->table, w->last_us, to_us, rows, "unreadable", fault);
}

/* Keys that do not grow are those of a damaged page that leads back into the tree. */
static bool goes_on(Walk *w)
{
    int64_t key = sqlite3_column_int64(w->from_key, w->key_column);
    w->same = key == w->last_key && w->last_key != INT64_MIN ? w->same + 1 : 0;
    return w->numbered ? key > w->last_key || w->last_key == INT64_MIN
                       : key >= w->last_key && w->same < SAME_KEY_MAX;
}

static Err walk_table(Salvage *s, Walk *w, Fault *fault)
{
    int64_t at = INT64_MIN;
    Err err = ERR_OK;
    for (bool more = true; more && err == ERR_OK;) {
        sqlite3_bind_int64(w->from_key, 1, at);
        int rc = sqlite3_step(w->from_key);
        while (rc == SQLITE_ROW && err == ERR_OK && goes_on(w)) {
            err = copy_row(s, w, fault);
            rc = sqlite3_step(w->from_key);
        }
        sqlite3_reset(w->from_key);
        if (rc == SQLITE_DONE || err != ERR_OK) {
            break;
        }
        int64_t next = 0;
        more = w->holes < HOLES_MAX && behind_hole(w, w->last_key, &next) && next > w->last_key;
        err = note_hole(s, w, more, next, fault);
        at = next;
    }
    return err;
}

static Err salvage_table(Salvage *s, Walk *w, Fault *fault)
{
    Err err = ERR_OK;
    if (!open_walk(s, w)) {
        s->lost++;
        fprintf(s->out, "%s: lost as a whole: %s\n", w->table, sqlite3_errmsg(s->from.handle));
        err = put_damage(s, w->table, 0, 0, 0, sqlite3_errmsg(s->from.handle), fault);
    } else {
        err = walk_table(s, w, fault);
    }
    s->lost += w->lost + (w->holes > 0 && w->lost == 0);
    if (w->copied > 0 || w->holes > 0) {
        fprintf(s->out, "%s%s%s: %lld rows saved", w->table, w->part[0] ? " " : "",
                w->part[0] ? w->part + 4 : "", (long long)w->copied);
        fprintf(s->out, w->holes > 0 ? ", %lld holes\n" : "\n", (long long)w->holes);
    }
    close_walk(w);
    return err;
}

/* ---- all tables --------------------------------------------------------------------------- */

static const Walk walks[] = {
    {.table = "word", .key = "word_id"},
    {.table = "run", .key = "run_id", .time = "t_us"},
    {.table = "session", .key = "session_id", .time = "t_us"},
    {.table = "outage", .key = "outage_id", .time = "from_us"},
    {.table = "engine", .key = "change_id", .time = "t_us"},
    {.table = "incarnation", .key = "change_id", .time = "t_us"},
    {.table = "engine_state", .key = "change_id", .time = "t_us"},
    {.table = "phase", .key = "phase_id", .time = "started_us"},
    {.table = "step", .key = "step_id", .time = "started_us"},
    {.table = "policy", .key = "change_id", .time = "t_us"},
    {.table = "policy_state", .key = "change_id", .time = "t_us"},
    {.table = "txn", .key = "txn_id", .time = "started_us"},
    {.table = "txn_answer", .key = "answer_id", .time = "t_us"},
    {.table = "command", .key = "change_id", .time = "t_us"},
    {.table = "incident", .key = "incident_id", .time = "onset_us"},
    {.table = "incident_change", .key = "change_id", .time = "t_us"},
    {.table = "alert_rule", .key = "rule_id", .time = "t_us"},
    {.table = "event", .key = "event_id", .time = "t_us"},
    {.table = "sample_group", .key = "group_id", .time = "t_us"},
    {.table = "attempt", .key = "attempt_id", .time = "started_us"},
    {.table = "attempt_data", .key = "attempt_id"},
    {.table = "metric", .key = "metric_id", .time = "t_us"},
    {.table = "child_line", .key = "line_id", .time = "t_us"},
    {.table = "progress", .key = "progress_id", .time = "t_us"},
    {.table = "probe", .key = "probe_id", .time = "t_us"},
    {.table = "tick", .key = "second", .time = "second", .time_unit = SECOND_US},
    {.table = "engine_tick", .key = "second", .time = "second", .time_unit = SECOND_US},
    {.table = "flight", .key = "second", .time = "second", .time_unit = SECOND_US},
    {.table = "rollup", .key = "start_s", .time = "start_s", .time_unit = SECOND_US,
     .part = "AND span_s = 60"},
    {.table = "rollup", .key = "start_s", .time = "start_s", .time_unit = SECOND_US,
     .part = "AND span_s = 600"},
    {.table = "rollup", .key = "start_s", .time = "start_s", .time_unit = SECOND_US,
     .part = "AND span_s = 3600"},
    {.table = "rollup", .key = "start_s", .time = "start_s", .time_unit = SECOND_US,
     .part = "AND span_s = 21600"},
    {.table = "rollup", .key = "start_s", .time = "start_s", .time_unit = SECOND_US,
     .part = "AND span_s = 86400"},
    {.table = "step_engine", .key = "step"},
    {.table = "trim", .key = "trim_id", .time = "t_us"},
    {.table = "damage", .key = "damage_id", .time = "t_us"},
};

static Err salvage_wal(Salvage *s, const char *path, Fault *fault)
{
    WalScan scan;
    Err err = wal_scan(path, &scan, fault);
    bool torn = scan.found && (!scan.header_good || scan.commits_behind > 0);
    if (err != ERR_OK || !torn) {
        return err;
    }
    s->lost += scan.commits_behind > 0 ? scan.commits_behind : 1;
    fprintf(s->out, "-wal: %lld commits behind its damage are lost\n",
            (long long)scan.commits_behind);
    return put_damage(s, "-wal", 0, 0, 0, "damaged: what was committed last is lost", fault);
}

static Err salvage_all(Salvage *s, Fault *fault)
{
    Err err = ERR_OK;
    for (size_t i = 0; i < sizeof walks / sizeof *walks && err == ERR_OK; i++) {
        Walk walk = walks[i];
        walk.numbered = walk.time_unit == 0;
        walk.time_unit = walk.numbered ? 1 : walk.time_unit;
        walk.time = walk.time ? walk.time : "";
        walk.part = walk.part ? walk.part : "";
        err = salvage_table(s, &walk, fault);
    }
    return err;
}

static Err open_copy(Salvage *s, const char *partial, Fault *fault)
{
    Err err = db_open_write(&s->to, partial, fault);
    err = err ? err : schema_prepare(&s->to, fault);
    /* Synced once, at the end. */
    return err ? err : db_exec(&s->to, "PRAGMA synchronous = OFF; BEGIN", fault);
}

Err log_salvage(const char *path, const char *to, FILE *out, int64_t *lost, Fault *fault)
{
    Salvage s = {.now_us = clock_wall_us(), .out = out};
    *lost = 0;
    if (fs_exists(to)) {
        return fault_set(fault, ERR_EXISTS, "name a file that is not there yet",
                         "%s is there already", to);
    }
    char *partial = xasprintf("%s.partial", to);
    char *mended = xasprintf("%s.source", to);
    unlink(partial);
    Err err = salvage_open(path, mended, &s.from, out, fault);
    err = err ? err : open_copy(&s, partial, fault);
    err = err ? err : salvage_wal(&s, path, fault);
    err = err ? err : salvage_all(&s, fault);
    err = err ? err : db_exec(&s.to, "COMMIT; PRAGMA synchronous = FULL;"
                                     "PRAGMA wal_checkpoint(TRUNCATE)", fault);
    db_close(&s.to);
    db_close(&s.from);
    if (err == ERR_OK && rename(partial, to) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s: cannot write the copy", to);
    }
    static const char *const tails[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        char *a = xasprintf("%s%s", mended, tails[i]);
        char *b = xasprintf("%s%s", partial, tails[i]);
        unlink(a);
        unlink(b);
        free(a);
        free(b);
    }
    free(partial);
    free(mended);
    *lost = s.lost;
    return err;
}
