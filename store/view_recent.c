/* The newest rows of one engine, or one child, among those of all: probes and output have no index
 * besides their order of arrival. The search goes back from T over a bounded number of rows; what
 * it found stands for the numbers that it looked at, so that a picture a second later looks at the
 * rows that came since. */
#include "store/view_private.h"

#include <stdlib.h>
#include <string.h>

enum { RECENT_KEPT = 4096 };

typedef struct Found {
    int64_t id;
    ProbeRow probe; /* outcome: owned */
    char *line;     /* owned; NULL: a probe */
    bool is_stderr;
} Found;

typedef struct Window { /* all rows of `owner` with numbers in (low, high] */
    int64_t owner, low, high;
    int64_t forgotten; /* of the view's pulse: rows may have gone */
    Found *items;      /* newest last */
    size_t count, capacity;
} Window;

struct Recent {
    Window windows[RECENT_KINDS];
};

typedef struct Kind {
    const char *newest, *rows;
    int64_t scan; /* how far back a search goes: with 1,000 engines still a minute */
    void (*read)(Found *found, sqlite3_stmt *row);
} Kind;

static char *column_bytes(sqlite3_stmt *row, int column)
{
    const void *bytes = sqlite3_column_blob(row, column);
    size_t n = bytes != NULL ? (size_t)sqlite3_column_bytes(row, column) : 0;
    char *copy = xcalloc(n + 1, 1);
    if (n > 0) {
        memcpy(copy, bytes, n);
    }
    return copy;
}

static void read_probe(Found *found, sqlite3_stmt *row)
{
    int64_t at = sqlite3_column_int64(row, 1);
    bool known = sqlite3_column_type(row, 4) != SQLITE_NULL;
    found->probe = (ProbeRow){.t_us = at,
                              .latency_us = sqlite3_column_int64(row, 2),
                              .kind = (ProbeKind)sqlite3_column_int(row, 3),
                              .outcome = known ? column_bytes(row, 4) : NULL,
                              .status = sqlite3_column_int(row, 5),
                              .incarnation = sqlite3_column_int64(row, 6),
                              .policy_version = sqlite3_column_int64(row, 7),
                              .running = column_val(row, 8, at),
                              .waiting = column_val(row, 9, at)};
}

static void read_line(Found *found, sqlite3_stmt *row)
{
    found->probe.t_us = sqlite3_column_int64(row, 1);
    found->is_stderr = sqlite3_column_int(row, 2) != 0;
    found->line = column_bytes(row, 3);
}

static const Kind kinds[RECENT_KINDS] = {
    [RECENT_PROBES] =
        {"SELECT max(probe_id) FROM probe",
         "SELECT probe_id, t_us, latency_us, kind, (SELECT text FROM word WHERE word_id = outcome),"
         " status, incarnation, ifnull(policy_version, -1), running, waiting FROM probe"
         " WHERE probe_id > ?1 AND probe_id <= ?2 AND engine = ?3 ORDER BY probe_id DESC LIMIT ?4",
         100000, read_probe},
    [RECENT_LINES] =
        {"SELECT max(line_id) FROM child_line",
         "SELECT line_id, t_us, is_stderr, line FROM child_line"
         " WHERE line_id > ?1 AND line_id <= ?2 AND child = ?3 ORDER BY line_id DESC LIMIT ?4",
         200000, read_line},
};

static void drop(Found *found)
{
    free((char *)(uintptr_t)found->probe.outcome);
    free(found->line);
}

static void empty(Window *window, int64_t at)
{
    for (size_t i = 0; i < window->count; i++) {
        drop(&window->items[i]);
    }
    window->count = 0;
    window->low = window->high = at;
}

void recent_free(Recent *recent)
{
    for (int i = 0; recent != NULL && i < RECENT_KINDS; i++) {
        empty(&recent->windows[i], 0);
        free(recent->windows[i].items);
    }
    free(recent);
}

/* Rows of the owner with numbers in (from, to], newest first, at most `limit`: put before item
 * `at`. How many. */
static size_t insert_rows(View *view, const Kind *kind, Window *window, size_t at, int64_t from,
                          int64_t to, size_t limit)
{
    size_t count = 0;
    sqlite3_stmt *stmt = VIEW_QUERY(view, kind->rows, from, to, window->owner, (int64_t)limit);
    while (view_next(view, stmt)) {
        if (window->count == window->capacity) {
            window->capacity = window->capacity == 0 ? 64 : 2 * window->capacity;
            window->items = xrealloc(window->items, window->capacity, sizeof *window->items);
        }
        Found *place = &window->items[at + count];
        memmove(place + 1, place, (window->count - at - count) * sizeof *place);
        *place = (Found){.id = sqlite3_column_int64(stmt, 0)};
        kind->read(place, stmt);
        window->count++;
        count++;
    }
    return count;
}

/* The newest `count` alone, of as many at least. */
static void keep(Window *window, size_t count)
{
    while (window->count > count) {
        drop(&window->items[--window->count]);
    }
    window->low = window->items[count - 1].id - 1;
}

/* Up to `top`. When that alone gives enough, what was there before is of no use, and there may be
 * more between the two. */
static void reach_up(View *view, const Kind *kind, Window *window, int64_t top, size_t limit)
{
    size_t more = insert_rows(view, kind, window, 0, window->high, top, limit);
    window->high = top;
    if (more > 0 && more == limit) {
        keep(window, more);
    } else if (window->count > RECENT_KEPT && limit <= RECENT_KEPT / 2) {
        keep(window, RECENT_KEPT / 2);
    }
}

/* Places of the first `limit` rows at or before T and with numbers in (bottom, top]. */
static size_t choose(const Window *window, int64_t t_us, int64_t bottom, int64_t top,
                     const Found **out, size_t limit)
{
    size_t count = 0;
    for (size_t i = 0; i < window->count && count < limit; i++) {
        const Found *found = &window->items[i];
        if (found->id <= top && found->id > bottom && found->probe.t_us <= t_us) {
            out[count++] = found;
        }
    }
    return count;
}

static Window *window_of(View *view, RecentKind kind, int64_t owner, int64_t bottom, int64_t top)
{
    if (view->recent == NULL) {
        view->recent = xcalloc(1, sizeof *view->recent);
    }
    Window *window = &view->recent->windows[kind];
    int64_t forgotten = pulse_forgotten(view);
    if (window->owner != owner || window->forgotten != forgotten || top < window->low ||
        window->high < bottom) {
        empty(window, top);
        window->owner = owner;
        window->forgotten = forgotten;
    }
    return window;
}

/* The newest `limit` rows at or before T in out, which has room for them: how many. */
static size_t recent_at(View *view, RecentKind what, int64_t owner, int64_t t_us, int64_t top,
                        const Found **out, size_t limit)
{
    const Kind *kind = &kinds[what];
    int64_t met = view->db.met;
    int64_t newest = view_number(view, view_query(view, kind->newest, NULL, 0), 0);
    top = top < newest ? top : newest;
    int64_t bottom = top > kind->scan ? top - kind->scan : 0;
    Window *window = window_of(view, what, owner, bottom, top);
    if (top > window->high) {
        reach_up(view, kind, window, top, limit);
    }
    size_t count = choose(window, t_us, bottom, top, out, limit);
    while (count < limit && window->low > bottom && view_good(view)) {
        size_t want = limit - count;
        size_t more = insert_rows(view, kind, window, window->count, bottom, window->low, want);
        window->low = more == want ? window->items[window->count - 1].id - 1 : bottom;
        count = choose(window, t_us, bottom, top, out, limit);
    }
    if (!view_good(view) || view->db.met != met) {
        window->forgotten = -1; /* it serves this call, and no other */
    }
    return count;
}

/* Room for what recent_at finds; NULL at the arena's bound. */
static const Found **found_room(View *view, Arena *arena, size_t *limit)
{
    *limit = view_limit(*limit);
    return view_alloc(view, arena, *limit, sizeof(Found *));
}

size_t view_probes(View *view, int64_t engine, int64_t t_us, size_t limit, Arena *arena,
                   ProbeRow **out)
{
    Tick after;
    size_t count = 0;
    view_begin(view, t_us);
    tick_after(&view->db, t_us, &after, &view->fault);
    const Found **found = found_room(view, arena, &limit);
    if (found != NULL) {
        count = recent_at(view, RECENT_PROBES, engine, t_us, after.probe, found, limit);
    }
    *out = view_alloc(view, arena, count, sizeof **out);
    for (size_t i = 0; *out != NULL && i < count; i++) {
        (*out)[i] = found[i]->probe;
        (*out)[i].outcome = view_copy(view, arena, found[i]->probe.outcome);
    }
    view_end(view);
    return view_good(view) ? count : 0;
}

size_t view_child_lines(View *view, const char *child, int64_t t_us, size_t limit, Arena *arena,
                        ChildLineRow **out)
{
    static const char word[] = "SELECT word_id FROM word WHERE text = ?";
    Tick after;
    size_t count = 0;
    view_begin(view, t_us);
    sqlite3_stmt *stmt = view_query(view, word, NULL, 0);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, child, -1, SQLITE_STATIC);
    }
    int64_t child_id = view_number(view, stmt, -1);
    tick_after(&view->db, t_us, &after, &view->fault);
    const Found **found = found_room(view, arena, &limit);
    if (found != NULL && child_id >= 0) {
        count = recent_at(view, RECENT_LINES, child_id, t_us, after.child_line, found, limit);
    }
    *out = view_alloc(view, arena, count, sizeof **out);
    for (size_t i = 0; *out != NULL && i < count; i++) { /* oldest first */
        const Found *line = found[count - 1 - i];
        (*out)[i] = (ChildLineRow){.t_us = line->probe.t_us,
                                   .is_stderr = line->is_stderr,
                                   .line = view_copy(view, arena, line->line)};
    }
    view_end(view);
    return view_good(view) ? count : 0;
}
