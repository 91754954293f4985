#include "store/view.h"

#include "store/blob.h"
#include "store/schema.h"
#include "store/view_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

Err view_open(const char *path, View **out, Fault *fault)
{
    *out = NULL;
    View *view = xcalloc(1, sizeof *view);
    Err err = db_open_read(&view->db, path, fault);
    if (err != ERR_OK) {
        free(view);
        return err;
    }
    err = schema_check(&view->db, fault);
    if (err != ERR_OK) {
        view_close(view);
        return err;
    }
    /* Pages are read through the page cache of the system; ours stays small. */
    view->db.tolerant = true;
    db_exec(&view->db, "PRAGMA cache_size = -8192; PRAGMA query_only = 1", NULL);
    *out = view;
    return ERR_OK;
}

void view_close(View *view)
{
    if (view == NULL) {
        return;
    }
    db_close(&view->db);
    free(view->scratch);
    roster_free(view->roster);
    pulse_free(view->pulse);
    recent_free(view->recent);
    free(view);
}

bool view_changed(View *view)
{
    fault_clear(&view->fault);
    view->turn_version = -1;
    int64_t version = view_version(view);
    bool changed = version != view->data_version;
    view->data_version = version;
    return changed;
}

void view_interruptible(View *view, int (*stop)(void *user), void *user)
{
    enum { STEPS = 1000 };
    sqlite3_progress_handler(view->db.handle, STEPS, stop, user);
}

Err view_fault(const View *view, Fault *out)
{
    if (out != NULL) {
        *out = view->fault;
    }
    return view->fault.code;
}

bool view_good(const View *view)
{
    return view->fault.code == ERR_OK;
}

int64_t view_version(View *view)
{
    static const char sql[] = "PRAGMA data_version";
    if (view->turn_version < 0) {
        view->turn_version = view_number(view, view_query(view, sql, NULL, 0), -1);
    }
    return view->turn_version;
}

static void open_turn(View *view)
{
    view->turn++;
    view->turn_version = -1;
    if (sqlite3_exec(view->db.handle, "BEGIN", NULL, NULL, NULL) != SQLITE_OK) {
        db_fault(&view->db, &view->fault, "cannot read the log");
    }
}

static void close_turn(View *view)
{
    sqlite3_exec(view->db.handle, "COMMIT", NULL, NULL, NULL);
}

void view_hold(View *view)
{
    assert(!view->held && view->depth == 0);
    fault_clear(&view->fault);
    open_turn(view);
    view->held = true;
}

void view_release(View *view)
{
    view->held = false;
    close_turn(view);
}

void view_begin(View *view, int64_t t_us)
{
    if (view->depth++ == 0) {
        fault_clear(&view->fault);
        view->db.at_us = t_us;
        if (!view->held) {
            open_turn(view);
        }
    }
}

void view_end(View *view)
{
    if (--view->depth == 0 && !view->held) {
        close_turn(view);
    }
}

sqlite3_stmt *view_query(View *view, const char *sql, const int64_t *values, size_t count)
{
    if (!view_good(view)) {
        return NULL;
    }
    sqlite3_stmt *stmt = db_stmt(&view->db, sql, &view->fault);
    for (size_t i = 0; stmt != NULL && i < count; i++) {
        sqlite3_bind_int64(stmt, (int)i + 1, values[i]);
    }
    return stmt;
}

bool view_next(View *view, sqlite3_stmt *stmt)
{
    if (stmt == NULL) {
        return false;
    }
    int rc = view_good(view) ? sqlite3_step(stmt) : SQLITE_DONE;
    if (rc == SQLITE_ROW) {
        return true;
    }
    if (rc != SQLITE_DONE && !db_tolerate(&view->db, rc)) {
        db_fault(&view->db, &view->fault, "cannot read the log");
    }
    sqlite3_reset(stmt);
    return false;
}

int64_t view_number(View *view, sqlite3_stmt *stmt, int64_t fallback)
{
    int64_t number = fallback;
    if (view_next(view, stmt)) {
        number = column_i64(stmt, 0, fallback);
        sqlite3_reset(stmt);
    }
    return number;
}

void *view_alloc(View *view, Arena *arena, size_t count, size_t size)
{
    size_t bytes = 0;
    void *p = size_mul(count > 0 ? count : 1, size, &bytes) ? arena_alloc(arena, bytes) : NULL;
    if (p == NULL) {
        fault_set(&view->fault, ERR_LIMIT, "ask for fewer rows",
                  "%s: the answer does not fit the reader's memory bound", view->db.path);
    }
    return p;
}

const char *view_text(View *view, Arena *arena, sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    if (text == NULL) {
        return NULL;
    }
    size_t n = (size_t)sqlite3_column_bytes(stmt, column);
    char *copy = view_alloc(view, arena, n + 1, 1);
    if (copy != NULL) {
        memcpy(copy, text, n);
    }
    return copy;
}

const char *view_copy(View *view, Arena *arena, const char *text)
{
    size_t n = text != NULL ? strlen(text) : 0;
    char *copy = text != NULL ? view_alloc(view, arena, n + 1, 1) : NULL;
    if (copy != NULL) {
        memcpy(copy, text, n);
    }
    return copy;
}

Str view_blob(View *view, Arena *arena, sqlite3_stmt *stmt, int column)
{
    const void *blob = sqlite3_column_blob(stmt, column);
    size_t n = (size_t)sqlite3_column_bytes(stmt, column);
    size_t raw = 0;
    if (blob == NULL || !unpack_size(blob, n, &raw)) {
        return (Str){NULL, 0};
    }
    char *out = view_alloc(view, arena, raw + 1, 1);
    if (out == NULL || !unpack_into(blob, n, out, raw)) {
        return (Str){NULL, 0};
    }
    return (Str){out, raw};
}

bool view_grow(View *view, Arena *arena, void *rows, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    size_t wanted = *capacity == 0 ? 16 : *capacity * 2;
    void *old = NULL;
    memcpy(&old, rows, sizeof old);
    void *grown = view_alloc(view, arena, wanted, size);
    if (grown == NULL) {
        return false;
    }
    if (count > 0) {
        memcpy(grown, old, count * size);
    }
    memcpy(rows, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

bool view_row(View *view, Arena *arena, sqlite3_stmt *stmt, void *rows, size_t *capacity,
              size_t count, size_t size)
{
    if (!view_next(view, stmt)) {
        return false;
    }
    bool room = view_grow(view, arena, rows, capacity, count, size);
    if (!room) {
        sqlite3_reset(stmt);
    }
    return room;
}

size_t view_limit(size_t limit)
{
    return limit < VIEW_ROWS_MAX ? limit : VIEW_ROWS_MAX;
}

double *view_scratch(View *view, size_t count)
{
    if (count > view->scratch_capacity) {
        view->scratch = xrealloc(view->scratch, count * 2, sizeof *view->scratch);
        view->scratch_capacity = count * 2;
    }
    return view->scratch;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double view_quantile(double *values, size_t count, double q)
{
    qsort(values, count, sizeof *values, by_value);
    size_t at = (size_t)(q * (double)(count - 1) + 0.5);
    return values[at < count ? at : count - 1];
}

Trimmed view_trimmed(View *view)
{
    Trimmed trimmed = {.step = INT64_MIN};
    if (view_good(view)) {
        trim_read(&view->db, &trimmed, &view->fault);
    }
    return trimmed;
}

int64_t view_grain_us(const Trimmed *trimmed, int64_t t_us)
{
    return t_us < trimmed->hours_before_us ? 3600 * (int64_t)SECOND_US
           : t_us < trimmed->before_us     ? ROLLUP_MINUTE * (int64_t)SECOND_US
                                           : SECOND_US;
}

Val view_rolled(View *view, RollProbe series, int64_t engine, int64_t t_us)
{
    RollRead what = {.engine = engine, .last_s = INT64_MAX};
    Stat stat = {0};
    if (view_good(view)) {
        rollup_series(&view->db, rollup_probe_words[series], &what.series, &view->fault);
    }
    int64_t minute_s = t_us / SECOND_US / ROLLUP_MINUTE * ROLLUP_MINUTE;
    if (view_good(view) && what.series >= 0) {
        rollup_read(&view->db, &what, minute_s, minute_s + ROLLUP_MINUTE, &stat, &view->fault);
    }
    return stat.count > 0 ? val_of(stat.mean, t_us) : val_none();
}

static int by_start(const void *a, const void *b)
{
    const DamageRow *x = a;
    const DamageRow *y = b;
    return (x->from_us > y->from_us) - (x->from_us < y->from_us);
}

size_t view_damage(View *view, size_t limit, Arena *arena, DamageRow **out)
{
    static const char sql[] = "SELECT coalesce(from_us, 0), coalesce(to_us, 0), coalesce(rows, 0),"
                              " table_name FROM damage ORDER BY damage_id LIMIT ?";
    size_t count = 0;
    size_t capacity = 0;
    *out = NULL;
    view_begin(view, 0);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, (int64_t)view_limit(limit));
    while (view_row(view, arena, stmt, out, &capacity, count, sizeof **out)) {
        (*out)[count++] = (DamageRow){sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1),
                                      sqlite3_column_int64(stmt, 2),
                                      view_text(view, arena, stmt, 3)};
    }
    for (int i = 0; i < view->db.damages && count < limit && view_good(view); i++) {
        const DbDamage *met = &view->db.damage[i];
        if (!view_grow(view, arena, out, &capacity, count, sizeof **out)) {
            break;
        }
        (*out)[count++] = (DamageRow){met->minute_us, met->minute_us + 60 * (int64_t)SECOND_US,
                                      met->reads, NULL};
    }
    view_end(view);
    if (count > 1) {
        qsort(*out, count, sizeof **out, by_start);
    }
    return view_good(view) ? count : 0;
}

bool view_run(View *view, Arena *arena, RunView *out)
{
    static const char run[] =
        "SELECT run, name, host, version, argv_json, config_json, t_us FROM run WHERE run_id = 1";
    static const char session[] =
        "SELECT ended_us IS NULL FROM session ORDER BY session_id DESC LIMIT 1";
    *out = (RunView){0};
    view_begin(view, 0);
    sqlite3_stmt *stmt = view_query(view, run, NULL, 0);
    bool found = view_next(view, stmt);
    if (found) {
        *out = (RunView){.run = view_text(view, arena, stmt, 0),
                         .name = view_text(view, arena, stmt, 1),
                         .host = view_text(view, arena, stmt, 2),
                         .version = view_text(view, arena, stmt, 3),
                         .argv_json = view_text(view, arena, stmt, 4),
                         .config_json = view_text(view, arena, stmt, 5),
                         .started_us = sqlite3_column_int64(stmt, 6)};
        sqlite3_reset(stmt);
    }
    static const char first[] = "SELECT min(second) FROM tick";
    Tick newest;
    tick_at(&view->db, INT64_MAX, &newest, &view->fault);
    view->db.at_us = newest.last_us;
    out->trimmed_us = view_trimmed(view).before_us;
    out->first_us = out->started_us;
    int64_t second = view_number(view, view_query(view, first, NULL, 0), -1);
    if (second >= 0 && (out->first_us == 0 || second * SECOND_US < out->first_us - SECOND_US)) {
        out->first_us = second * SECOND_US;
    }
    if (view_good(view)) {
        db_last_us(&view->db, INT64_MAX, &out->last_us, &view->fault);
    }
    stmt = view_query(view, session, NULL, 0);
    if (view_next(view, stmt)) {
        out->core_alive = sqlite3_column_int(stmt, 0) != 0;
        sqlite3_reset(stmt);
    }
    view_end(view);
    return found && view_good(view);
}
