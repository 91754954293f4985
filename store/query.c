#include "store/query.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "store/blob.h"
#include "store/schema.h"
#include "store/table.h"
#include "store/tick.h"
#include "store/topics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_MAX_BYTES = 64 << 20,
    SQL_SECONDS = 300,
    PROGRESS_STEPS = 20000,
    FIRST_TIME_US = 100000000 /* times in seconds above this are dates, below durations */
};

typedef struct Query {
    Db db;
    const char *denied; /* what the authorizer refused */
    int64_t until_us;   /* monotonic; 0: no limit */
} Query;

/* ---- SQL functions over packed blobs ---- */

static unsigned char *unpacked(sqlite3_context *context, sqlite3_value *value, size_t *n)
{
    const void *blob = sqlite3_value_blob(value);
    size_t size = (size_t)sqlite3_value_bytes(value);
    void *out = NULL;
    if (blob == NULL || !unpack_size(blob, size, n)) {
        return NULL;
    }
    if (try_calloc(*n + 1, 1, (size_t)BLOB_RAW_MAX + 1, &out) != ERR_OK) {
        sqlite3_result_error_nomem(context);
        return NULL;
    }
    if (!unpack_into(blob, size, out, *n)) {
        free(out);
        return NULL;
    }
    return out;
}

static void blob_text(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    size_t n = 0;
    unsigned char *bytes = unpacked(context, values[0], &n);
    if (bytes != NULL) {
        sqlite3_result_text64(context, (char *)bytes, n, free, SQLITE_UTF8);
    }
}

/* Packed arrays as JSON arrays; user data tells int32 (NULL) from float32. */
static void blob_array(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    size_t n = 0;
    unsigned char *bytes = unpacked(context, values[0], &n);
    if (bytes == NULL) {
        return;
    }
    Text text;
    text_init(&text, LINE_MAX_BYTES);
    JsonOut json;
    json_begin(&json, &text);
    json_array_begin(&json);
    for (size_t i = 0; i + 4 <= n; i += 4) {
        if (sqlite3_user_data(context) == NULL) {
            int32_t v = 0;
            memcpy(&v, bytes + i, sizeof v);
            json_put_i64(&json, v);
        } else {
            float v = 0;
            memcpy(&v, bytes + i, sizeof v);
            json_put_float(&json, v);
        }
    }
    json_array_end(&json);
    sqlite3_result_text64(context, text_c(&text), text.n, SQLITE_TRANSIENT, SQLITE_UTF8);
    text_free(&text);
    free(bytes);
}

/* ---- opening ---- */

static int authorize(void *user, int action, const char *a, const char *b, const char *c,
                     const char *d)
{
    Query *query = user;
    (void)a;
    (void)c;
    (void)d;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_FUNCTION:
        if (b == NULL || sqlite3_stricmp(b, "load_extension") != 0) {
            return SQLITE_OK;
        }
        query->denied = "loads an extension";
        return SQLITE_DENY;
    case SQLITE_PRAGMA:
        query->denied = "is a PRAGMA";
        return SQLITE_DENY;
    case SQLITE_ATTACH:
    case SQLITE_DETACH:
        query->denied = "attaches another file";
        return SQLITE_DENY;
    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT:
        query->denied = "opens or ends a transaction";
        return SQLITE_DENY;
    default:
        query->denied = "would change the log";
        return SQLITE_DENY;
    }
}

static int out_of_time(void *user)
{
    const Query *query = user;
    return query->until_us != 0 && clock_mono_us() > query->until_us;
}

static Err add_last_ok(Db *db, Fault *fault)
{
    AccSet set = {0};
    Err err = db_exec(db, "CREATE TEMP TABLE last_ok (engine INTEGER PRIMARY KEY, ok_us INTEGER)",
                      fault);
    if (err == ERR_OK) {
        err = acc_load(db, INT64_MAX, &set, fault);
    }
    for (size_t i = 0; i < set.count && err == ERR_OK; i++) {
        Bind b = {db_stmt(db, "INSERT INTO temp.last_ok VALUES (?, ?)", fault), 0};
        bind_i64(&b, set.items[i].engine);
        bind_some(&b, set.items[i].ok_us);
        if (bind_run(&b) != SQLITE_OK) {
            err = db_fault(db, fault, "cannot prepare the query");
        }
    }
    acc_free(&set);
    return err;
}

static Err query_open(Query *query, const char *path, Fault *fault)
{
    *query = (Query){0};
    Err err = db_open_read(&query->db, path, fault);
    if (err != ERR_OK) {
        return err;
    }
    /* First: it would throw away the tables that schema_check puts beside an older log. */
    err = db_exec(&query->db, "PRAGMA temp_store = MEMORY", fault);
    err = err ? err : schema_check(&query->db, fault);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3 *handle = query->db.handle;
    int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    static char as_float;
    sqlite3_create_function(handle, "blob_text", 1, flags, NULL, blob_text, NULL, NULL);
    sqlite3_create_function(handle, "blob_i32", 1, flags, NULL, blob_array, NULL, NULL);
    sqlite3_create_function(handle, "blob_f32", 1, flags, &as_float, blob_array, NULL, NULL);
    if (err == ERR_OK) {
        err = add_last_ok(&query->db, fault);
    }
    size_t count = 0;
    const Topic *topics = topics_all(&count);
    for (size_t i = 0; i < count && err == ERR_OK; i++) {
        char *sql = xasprintf("CREATE TEMP VIEW %s AS %s", topics[i].name, topics[i].select);
        err = db_exec(&query->db, sql, fault);
        free(sql);
    }
    if (err == ERR_OK) {
        sqlite3_set_authorizer(handle, authorize, query);
        sqlite3_progress_handler(handle, PROGRESS_STEPS, out_of_time, query);
    }
    return err;
}

/* ---- rows out ---- */

static void put_hex(Text *text, const unsigned char *p, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        text_add_char(text, digits[p[i] >> 4]);
        text_add_char(text, digits[p[i] & 15]);
    }
}

static void put_json_value(JsonOut *json, sqlite3_stmt *stmt, int column)
{
    Str text = {(const char *)sqlite3_column_blob(stmt, column), 0};
    switch (sqlite3_column_type(stmt, column)) {
    case SQLITE_INTEGER:
        json_put_i64(json, sqlite3_column_int64(stmt, column));
        break;
    case SQLITE_FLOAT:
        json_put_double(json, sqlite3_column_double(stmt, column));
        break;
    case SQLITE_TEXT:
        text.p = (const char *)sqlite3_column_text(stmt, column);
        text.n = (size_t)sqlite3_column_bytes(stmt, column);
        json_put_str(json, text);
        break;
    case SQLITE_BLOB: {
        text.n = (size_t)sqlite3_column_bytes(stmt, column);
        Text hex;
        text_init(&hex, LINE_MAX_BYTES);
        put_hex(&hex, (const unsigned char *)text.p, text.n);
        json_put_str(json, text_str(&hex));
        text_free(&hex);
        break;
    }
    default:
        json_put_null(json);
    }
}

static bool json_row(sqlite3_stmt *stmt, Text *line, FILE *out)
{
    JsonOut json;
    text_clear(line);
    json_begin(&json, line);
    json_object_begin(&json);
    for (int i = 0; i < sqlite3_column_count(stmt); i++) {
        json_key(&json, sqlite3_column_name(stmt, i));
        put_json_value(&json, stmt, i);
    }
    json_object_end(&json);
    text_add_char(line, '\n');
    return fwrite(line->p, 1, line->n, out) == line->n;
}

/* A column that ends in _us holds a date or a duration; which one its size tells. */
static void number_cell(Table *table, const char *name, sqlite3_stmt *stmt, int column)
{
    char text[64];
    int64_t v = sqlite3_column_int64(stmt, column);
    bool micros = str_ends(str_from(name), STR("_us"));
    bool whole = sqlite3_column_type(stmt, column) == SQLITE_INTEGER;
    if (micros && whole && v / 1000000 > FIRST_TIME_US) {
        clock_format_utc(v, text, sizeof text);
    } else if (micros && whole) {
        (void)str_format(text, sizeof text, "%.3f ms", (double)v / 1000);
    } else if (whole) {
        (void)str_format(text, sizeof text, "%lld", (long long)v);
    } else {
        (void)str_format(text, sizeof text, "%.6g", sqlite3_column_double(stmt, column));
    }
    table_cell(table, str_from(text), true);
}

static void table_row(Table *table, sqlite3_stmt *stmt)
{
    for (int i = 0; i < sqlite3_column_count(stmt); i++) {
        Str text = {NULL, 0};
        char size[48];
        switch (sqlite3_column_type(stmt, i)) {
        case SQLITE_INTEGER:
        case SQLITE_FLOAT:
            number_cell(table, sqlite3_column_name(stmt, i), stmt, i);
            continue;
        case SQLITE_TEXT:
            text.p = (const char *)sqlite3_column_text(stmt, i);
            text.n = (size_t)sqlite3_column_bytes(stmt, i);
            break;
        case SQLITE_BLOB:
            (void)str_format(size, sizeof size, "<%d bytes>", sqlite3_column_bytes(stmt, i));
            text = str_from(size);
            break;
        default:
            text = STR("-");
        }
        table_cell(table, text, false);
    }
    table_row_end(table);
}

static Table *new_table(sqlite3_stmt *stmt, FILE *out)
{
    size_t columns = (size_t)sqlite3_column_count(stmt);
    const char **names = xcalloc(columns, sizeof *names);
    for (size_t i = 0; i < columns; i++) {
        names[i] = sqlite3_column_name(stmt, (int)i);
    }
    Table *table = table_new(names, columns, out);
    free(names);
    return table;
}

static Err print_rows(Query *query, sqlite3_stmt *stmt, bool json, FILE *out, Fault *fault)
{
    Text line;
    text_init(&line, LINE_MAX_BYTES);
    Table *table = json ? NULL : new_table(stmt, out);
    bool good = true;
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW && good; rc = sqlite3_step(stmt)) {
        if (json) {
            good = json_row(stmt, &line, out);
        } else {
            table_row(table, stmt);
            good = ferror(out) == 0;
        }
    }
    if (table != NULL && rc == SQLITE_DONE) {
        good = table_end(table) && good;
    }
    good = fflush(out) == 0 && good;
    int sys_errno = errno;
    table_free(table);
    text_free(&line);
    if (!good && sys_errno == EPIPE) {
        return ERR_OK; /* the reader has seen enough */
    }
    if (!good) {
        return fault_set_sys(fault, ERR_IO, sys_errno, NULL, "cannot write the answer");
    }
    if (rc == SQLITE_INTERRUPT) {
        return fault_set(fault, ERR_TIMEOUT, "ask for fewer rows or add a WHERE",
                         "%s: the statement ran longer than %d s", query->db.path, SQL_SECONDS);
    }
    if (rc != SQLITE_DONE) {
        return db_fault(&query->db, fault, "cannot read the log");
    }
    return ERR_OK;
}

static Err unknown_topic(const char *topic, Fault *fault)
{
    size_t count = 0;
    const Topic *topics = topics_all(&count);
    const char *nearest = topics[0].name;
    int best = 100;
    Text all;
    text_init(&all, FAULT_TEXT_MAX);
    for (size_t i = 0; i < count; i++) {
        int distance = str_distance(str_from(topic), str_from(topics[i].name), 100);
        if (distance < best) {
            best = distance;
            nearest = topics[i].name;
        }
        text_addf(&all, "%s%s", i > 0 ? " " : "", topics[i].name);
    }
    Fault words = {0};
    fault_set(&words, ERR_ARG, NULL, "topics are: %s", text_c(&all));
    text_free(&all);
    return fault_set(fault, ERR_ARG, words.sentence,
                     "there is no topic \"%.40s\"; the nearest is \"%s\"", topic, nearest);
}

Err query_topic(const char *path, const char *topic, bool json, FILE *out, Fault *fault)
{
    size_t count = 0;
    const Topic *topics = topics_all(&count);
    const Topic *found = NULL;
    for (size_t i = 0; i < count; i++) {
        found = strcmp(topics[i].name, topic) == 0 ? &topics[i] : found;
    }
    if (found == NULL) {
        return unknown_topic(topic, fault);
    }
    Query query;
    Err err = query_open(&query, path, fault);
    sqlite3_stmt *stmt = NULL;
    if (err == ERR_OK) {
        /* The topic's own statement, not its view: the order may use inner columns. */
        char *sql = xasprintf("%s%s", found->select, found->order);
        int rc = sqlite3_prepare_v2(query.db.handle, sql, -1, &stmt, NULL);
        free(sql);
        err = rc == SQLITE_OK ? print_rows(&query, stmt, json, out, fault)
                              : db_fault(&query.db, fault, "cannot prepare the query");
    }
    sqlite3_finalize(stmt);
    db_close(&query.db);
    return err;
}

static Err prepare_user(Query *query, const char *sql, sqlite3_stmt **stmt, Fault *fault)
{
    const char *tail = NULL;
    int rc = sqlite3_prepare_v2(query->db.handle, sql, -1, stmt, &tail);
    if (rc == SQLITE_AUTH || (rc == SQLITE_OK && *stmt != NULL && !sqlite3_stmt_readonly(*stmt))) {
        return fault_set(fault, ERR_ARG, "--sql takes one SELECT statement",
                         "the statement %s, and logs are only read",
                         query->denied != NULL ? query->denied : "would change the log");
    }
    if (rc != SQLITE_OK) {
        return fault_set(fault, ERR_ARG, "docs/log.md lists tables and columns", "--sql: %s",
                         sqlite3_errmsg(query->db.handle));
    }
    if (*stmt == NULL) {
        return fault_set(fault, ERR_ARG, "--sql takes one SELECT statement",
                         "--sql: the statement is empty");
    }
    while (*tail != '\0' && strchr(" \t\r\n;", *tail) != NULL) {
        tail++;
    }
    if (*tail != '\0') {
        return fault_set(fault, ERR_ARG, "give one statement a call",
                         "--sql: there is more than one statement");
    }
    return ERR_OK;
}

Err query_sql(const char *path, const char *sql, bool json, FILE *out, Fault *fault)
{
    Query query;
    Err err = query_open(&query, path, fault);
    sqlite3_stmt *stmt = NULL;
    if (err == ERR_OK) {
        query.until_us = clock_mono_us() + SQL_SECONDS * (int64_t)1000000;
        err = prepare_user(&query, sql, &stmt, fault);
    }
    if (err == ERR_OK) {
        err = print_rows(&query, stmt, json, out, fault);
    }
    sqlite3_finalize(stmt);
    db_close(&query.db);
    return err;
}
