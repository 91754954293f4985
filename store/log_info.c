#include "store/maintain.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "store/rollup.h"
#include "store/schema.h"
#include "store/store.h"
#include "store/trim.h"
#include "store/view.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GAP_S = 10, GAPS_SHOWN = 20, ARENA_BYTES = 8 << 20, COUNT_SQL = 160 };

typedef struct Gap {
    int64_t from_us, to_us;
} Gap;

typedef struct Info {
    Db db;
    View *view;
    Arena *arena;
    RunView run;
    int64_t file_bytes, wal_bytes, free_bytes, schema, sessions;
    Gap gaps[GAPS_SHOWN];
    int64_t gap_count, gap_us;
    Trimmed trimmed;
    DamageRow *damage;
    size_t damages;
    RuleList rules; /* of the newest session */
} Info;

static int64_t file_size(const char *path, const char *tail)
{
    char *name = xasprintf("%s%s", path, tail);
    struct stat info;
    int64_t size = stat(name, &info) == 0 ? (int64_t)info.st_size : 0;
    free(name);
    return size;
}

/* Seconds without a fact: between two ticks, and what a trim left counts as its bucket. */
static Err find_gaps(Info *info, Fault *fault)
{
    sqlite3_stmt *stmt = db_stmt(&info->db, "SELECT second FROM tick ORDER BY second", fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(info->db.handle));
    }
    int64_t before = 0;
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW; rc = sqlite3_step(stmt)) {
        int64_t second = sqlite3_column_int64(stmt, 0);
        int64_t at_us = before * SECOND_US;
        int64_t grain = at_us < info->trimmed.hours_before_us ? 2 * 3600
                        : at_us < info->trimmed.before_us     ? 2 * ROLLUP_MINUTE
                                                              : GAP_S;
        if (before > 0 && second - before > grain) {
            if (info->gap_count < GAPS_SHOWN) {
                info->gaps[info->gap_count] = (Gap){at_us + SECOND_US, second * SECOND_US};
            }
            info->gap_count++;
            info->gap_us += (second - before - 1) * SECOND_US;
        }
        before = second;
    }
    Err err = rc == SQLITE_DONE ? ERR_OK : db_fault(&info->db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}

static Err open_info(Info *info, const char *path, Fault *fault)
{
    int64_t page = 0;
    Err err = view_open(path, &info->view, fault);
    err = err ? err : db_open_read(&info->db, path, fault);
    err = err ? err : schema_check(&info->db, fault);
    if (err != ERR_OK) {
        return err;
    }
    info->arena = arena_new(ARENA_BYTES);
    info->file_bytes = file_size(path, "");
    info->wal_bytes = file_size(path, "-wal");
    if (!view_run(info->view, info->arena, &info->run)) {
        err = view_fault(info->view, fault);
    }
    info->damages = view_damage(info->view, GAPS_SHOWN, info->arena, &info->damage);
    info->rules = view_rules(info->view, INT64_MAX, info->arena);
    err = err ? err : db_i64(&info->db, "PRAGMA user_version", 0, &info->schema, fault);
    err = err ? err : db_i64(&info->db, "PRAGMA page_size", 0, &page, fault);
    err = err ? err : db_i64(&info->db, "PRAGMA freelist_count", 0, &info->free_bytes, fault);
    err = err ? err : db_i64(&info->db, "SELECT count(*) FROM session", 0, &info->sessions, fault);
    err = err ? err : trim_read(&info->db, &info->trimmed, fault);
    info->free_bytes *= page;
    return err ? err : find_gaps(info, fault);
}

/* Rows of a table whose numbers run on: their span, without reading them. A trim takes them from
 * the front, so it stays right; only facts that a clock set back left out of order do not. */
static void count_sql(const char *table, const char *id, char sql[COUNT_SQL])
{
    static const char *const hot[] = {"probe", "progress", "metric", "child_line"};
    for (size_t i = 0; i < sizeof hot / sizeof *hot; i++) {
        if (strcmp(table, hot[i]) == 0) {
            (void)str_format(sql, COUNT_SQL,
                             "SELECT coalesce((SELECT max(%s) FROM %s) - (SELECT min(%s) FROM %s)"
                             " + 1, 0)",
                             id, table, id, table);
            return;
        }
    }
    (void)str_format(sql, COUNT_SQL, "SELECT count(*) FROM \"%s\"", table);
}

typedef void (*RowsSeen)(const char *table, int64_t rows, void *user);

static Err each_table(Info *info, RowsSeen seen, void *user, Fault *fault)
{
    static const char tables[] =
        "SELECT m.name, (SELECT name FROM pragma_table_info(m.name) WHERE cid = 0)"
        " FROM sqlite_master m WHERE m.type = 'table' ORDER BY m.rowid";
    sqlite3_stmt *stmt = db_stmt(&info->db, tables, fault);
    Err err = stmt == NULL ? db_err(sqlite3_errcode(info->db.handle)) : ERR_OK;
    while (err == ERR_OK && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *table = (const char *)sqlite3_column_text(stmt, 0);
        const char *id = (const char *)sqlite3_column_text(stmt, 1);
        sqlite3_stmt *count = NULL;
        char sql[COUNT_SQL];
        count_sql(table, id, sql);
        int rc = sqlite3_prepare_v2(info->db.handle, sql, -1, &count, NULL);
        rc = rc == SQLITE_OK ? sqlite3_step(count) : rc;
        if (rc == SQLITE_ROW) {
            seen(table, sqlite3_column_int64(count, 0), user);
        } else {
            err = db_fault(&info->db, fault, "cannot read the log");
        }
        sqlite3_finalize(count);
    }
    sqlite3_reset(stmt);
    return err;
}

static const char *utc(int64_t t_us, char text[40])
{
    (void)str_format(text, 40, "-");
    if (t_us > 0) {
        clock_format_utc(t_us, text, 40);
    }
    return text;
}

static void print_rows(const char *table, int64_t rows, void *user)
{
    fprintf(user, "  %-15s %12lld\n", table, (long long)rows);
}

static Err print_text(Info *info, const char *path, FILE *out, Fault *fault)
{
    char a[40];
    char b[40];
    const RunView *run = &info->run;
    fprintf(out, "file      %s\n", path);
    fprintf(out, "size      %lld bytes, %lld of them free; -wal %lld bytes\n",
            (long long)info->file_bytes, (long long)info->free_bytes, (long long)info->wal_bytes);
    fprintf(out, "schema    %lld (this rolltop writes %d)\n", (long long)info->schema,
            STORE_SCHEMA_VERSION);
    fprintf(out, "run       %s, \"%s\" on %s, rolltop %s\n", run->run ? run->run : "-",
            run->name ? run->name : "-", run->host ? run->host : "-",
            run->version ? run->version : "-");
    fprintf(out, "sessions  %lld%s\n", (long long)info->sessions,
            run->core_alive ? ", the last one is not ended" : "");
    fprintf(out, "time      %s to %s\n", utc(run->first_us, a), utc(run->last_us, b));
    if (info->trimmed.before_us > 0) {
        fprintf(out, "trimmed   before %s; to one state an hour before %s\n",
                utc(info->trimmed.before_us, a), utc(info->trimmed.hours_before_us, b));
    }
    fprintf(out, "gaps      %lld of more than %d s, %.0f s in all\n", (long long)info->gap_count,
            GAP_S, (double)info->gap_us / 1e6);
    for (int64_t i = 0; i < info->gap_count && i < GAPS_SHOWN; i++) {
        fprintf(out, "  %s to %s, %.0f s\n", utc(info->gaps[i].from_us, a),
                utc(info->gaps[i].to_us, b),
                (double)(info->gaps[i].to_us - info->gaps[i].from_us) / 1e6);
    }
    for (size_t i = 0; i < info->damages; i++) {
        fprintf(out, "damage    %s: %lld rows lost, %s to %s\n",
                info->damage[i].table_name ? info->damage[i].table_name : "unreadable",
                (long long)info->damage[i].rows, utc(info->damage[i].from_us, a),
                utc(info->damage[i].to_us, b));
    }
    for (size_t i = 0; i < info->rules.count; i++) {
        const RuleRow *rule = &info->rules.rows[i];
        fprintf(out, "%-9s %-13s %s%s\n", i ? "" : "alerts", rule->class_name ? rule->class_name
                : "-", rule->words ? rule->words : "-", rule->changed ? " (the run's own)" : "");
    }
    fputs("rows\n", out);
    return each_table(info, print_rows, out, fault);
}

static void json_rows(const char *table, int64_t rows, void *user)
{
    json_member_i64(user, table, rows);
}

static void json_span(JsonOut *json, int64_t from_us, int64_t to_us)
{
    json_object_begin(json);
    json_member_i64(json, "from_us", from_us);
    json_member_i64(json, "to_us", to_us);
}

static void json_rules(JsonOut *json, const RuleList *rules)
{
    json_key(json, "alert_rules");
    json_array_begin(json);
    for (size_t i = 0; i < rules->count; i++) {
        json_object_begin(json);
        json_member_string(json, "class", rules->rows[i].class_name);
        json_member_string(json, "words", rules->rows[i].words);
        json_member_bool(json, "changed", rules->rows[i].changed);
        json_object_end(json);
    }
    json_array_end(json);
}

static Err print_json(Info *info, const char *path, FILE *out, Fault *fault)
{
    Text text;
    JsonOut json;
    text_init(&text, 1 << 20);
    json_begin(&json, &text);
    json_object_begin(&json);
    json_member_string(&json, "file", path);
    json_member_i64(&json, "bytes", info->file_bytes);
    json_member_i64(&json, "free_bytes", info->free_bytes);
    json_member_i64(&json, "wal_bytes", info->wal_bytes);
    json_member_i64(&json, "schema", info->schema);
    json_member_string(&json, "run", info->run.run);
    json_member_string(&json, "name", info->run.name);
    json_member_i64(&json, "sessions", info->sessions);
    json_member_bool(&json, "ended", !info->run.core_alive);
    json_member_i64(&json, "first_us", info->run.first_us);
    json_member_i64(&json, "last_us", info->run.last_us);
    json_member_i64(&json, "trimmed_before_us", info->trimmed.before_us);
    json_member_i64(&json, "gap_count", info->gap_count);
    json_key(&json, "gaps");
    json_array_begin(&json);
    for (int64_t i = 0; i < info->gap_count && i < GAPS_SHOWN; i++) {
        json_span(&json, info->gaps[i].from_us, info->gaps[i].to_us);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_key(&json, "damage");
    json_array_begin(&json);
    for (size_t i = 0; i < info->damages; i++) {
        json_span(&json, info->damage[i].from_us, info->damage[i].to_us);
        json_member_string(&json, "table", info->damage[i].table_name);
        json_member_i64(&json, "rows", info->damage[i].rows);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_rules(&json, &info->rules);
    json_key(&json, "rows");
    json_object_begin(&json);
    Err err = each_table(info, json_rows, &json, fault);
    json_object_end(&json);
    json_object_end(&json);
    if (err == ERR_OK) {
        fprintf(out, "%s\n", text_c(&text));
    }
    text_free(&text);
    return err;
}

Err log_info(const char *path, bool json, FILE *out, Fault *fault)
{
    Info info = {.db = {.handle = NULL}};
    Err err = open_info(&info, path, fault);
    if (err == ERR_OK) {
        err = json ? print_json(&info, path, out, fault) : print_text(&info, path, out, fault);
    }
    view_close(info.view);
    db_close(&info.db);
    arena_free(info.arena);
    return err;
}
