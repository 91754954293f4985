#include "store/view_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Engines at T. Rates are slopes between two observations of a counter, with the sum of its
 * growth interpolated where a boundary falls between two: cells of a spark line do not flicker
 * with the phase between probes and cells. */

typedef struct Seen { /* one observation of an engine's counter */
    int64_t engine, t_us;
    double tokens;
} Seen;

typedef struct SeenList {
    Seen *items;
    size_t count, capacity;
} SeenList;

static void note_seen(int64_t engine, int64_t t_us, double tokens, void *user)
{
    SeenList *list = user;
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? 256 : list->capacity * 2;
        list->items = xrealloc(list->items, list->capacity, sizeof *list->items);
    }
    list->items[list->count++] = (Seen){engine, t_us, tokens};
}

static int by_engine_time(const void *a, const void *b)
{
    const Seen *x = a;
    const Seen *y = b;
    if (x->engine != y->engine) {
        return x->engine < y->engine ? -1 : 1;
    }
    return (x->t_us > y->t_us) - (x->t_us < y->t_us);
}

/* Slope over the newest RATE_WINDOW_US of observations; unknown below 0.4 s of span. */
static Val rate_of(const Seen *seen, size_t count)
{
    if (count < 2) {
        return val_none();
    }
    const Seen *last = &seen[count - 1];
    const Seen *first = last;
    for (size_t i = count - 1; i > 0 && last->t_us - first->t_us < RATE_WINDOW_US; i--) {
        if (first->t_us - seen[i - 1].t_us > FRESH_US) {
            break; /* nobody looked for that long: not one spell */
        }
        first = &seen[i - 1];
    }
    int64_t span_us = last->t_us - first->t_us;
    if (span_us < 400000) {
        return val_none();
    }
    return val_of((last->tokens - first->tokens) * 1e6 / (double)span_us, last->t_us);
}

/* Token sum at a moment between observations; NaN outside them or in a gap over `gap_us`. */
static double tokens_at(const Seen *seen, size_t count, size_t *at, int64_t t_us, int64_t gap_us)
{
    while (*at + 1 < count && seen[*at + 1].t_us <= t_us) {
        (*at)++;
    }
    if (count == 0 || seen[*at].t_us > t_us) {
        return NAN;
    }
    const Seen *a = &seen[*at];
    if (*at + 1 == count) {
        return t_us - a->t_us <= 1500000 ? a->tokens : NAN;
    }
    const Seen *b = a + 1;
    if (b->t_us - a->t_us > gap_us) {
        return NAN;
    }
    double part = (double)(t_us - a->t_us) / (double)(b->t_us - a->t_us);
    return a->tokens + (b->tokens - a->tokens) * part;
}

/* Cells lie on whole multiples of their length, so that what is past keeps its value and only the
 * newest cell, which ends at T, still moves. It is unknown while it is younger than a quarter. */
static void fill_spark(EngineRow *row, const Seen *seen, size_t count, int64_t t_us, int cells,
                       int64_t cell_us, int64_t grain_us)
{
    int64_t gap_us = cell_us > 5000000 ? 3 * cell_us : 15000000;
    if (grain_us > SECOND_US && gap_us < 2 * grain_us) {
        gap_us = 2 * grain_us; /* a trim left no more than that */
    }
    size_t at = 0;
    int64_t end_us = (t_us + cell_us - 1) / cell_us * cell_us;
    int64_t start_us = end_us - cells * cell_us;
    double before = tokens_at(seen, count, &at, start_us, gap_us);
    row->spark_count = cells;
    for (int i = 0; i < cells; i++) {
        int64_t from_us = start_us + i * cell_us;
        int64_t span_us = i + 1 < cells ? cell_us : t_us - from_us;
        double after = tokens_at(seen, count, &at, from_us + span_us, gap_us);
        double rate = (after - before) * 1e6 / (double)span_us;
        bool young = span_us < cell_us / 4;
        row->spark[i] = young ? NAN : (float)rate; /* NaN where either end is unknown */
        before = after;
    }
}


static bool fill_identity(View *view, Arena *arena, int64_t t_us, EngineRow *row)
{
    static const char engine[] =
        "SELECT name, address, local, (SELECT min(t_us) FROM engine WHERE engine = ?1)"
        " FROM engine WHERE engine = ?1 AND t_us <= ?2 ORDER BY t_us DESC, change_id DESC LIMIT 1";
    static const char incarnation[] =
        "SELECT incarnation, pid FROM incarnation WHERE engine = ?1 AND t_us <= ?2"
        " ORDER BY t_us DESC, change_id DESC LIMIT 1";
    static const char state[] =
        "SELECT state, since_us, policy_version, reason, incarnation FROM engine_state"
        " WHERE engine = ?1 AND t_us <= ?2 ORDER BY t_us DESC, change_id DESC LIMIT 1";
    sqlite3_stmt *stmt = VIEW_QUERY(view, engine, row->engine, t_us);
    if (!view_next(view, stmt)) {
        return false;
    }
    row->name = view_text(view, arena, stmt, 0);
    row->address = view_text(view, arena, stmt, 1);
    row->local = sqlite3_column_int(stmt, 2) != 0;
    row->first_seen_us = sqlite3_column_int64(stmt, 3);
    sqlite3_reset(stmt);
    stmt = VIEW_QUERY(view, incarnation, row->engine, t_us);
    if (view_next(view, stmt)) {
        row->incarnation = sqlite3_column_int64(stmt, 0);
        row->incarnations = row->incarnation; /* numbered from 1 on */
        row->pid = sqlite3_column_int64(stmt, 1);
        sqlite3_reset(stmt);
    }
    row->state = ENGINE_STARTING;
    row->state_since_us = row->first_seen_us;
    row->policy_version = -1;
    stmt = VIEW_QUERY(view, state, row->engine, t_us);
    if (view_next(view, stmt)) {
        row->state = (EngineState)sqlite3_column_int(stmt, 0);
        row->state_since_us = sqlite3_column_int64(stmt, 1);
        row->policy_version = column_i64(stmt, 2, -1);
        row->reason = view_text(view, arena, stmt, 3);
        sqlite3_reset(stmt);
    }
    return true;
}

static void fill_numbers(EngineRow *row, EngineAcc *now, const EngineAcc *minute, double minutes)
{
    row->seen_us = now->ok_us;
    row->reported_version = now->policy_version;
    row->running = now->running;
    row->waiting = now->waiting;
    row->kv_usage = now->usage;
    if (now->incarnation > row->incarnation) {
        row->incarnation = now->incarnation;
    }
    int64_t seen_us = now->ok_us;
    if (minutes > 0) {
        row->errors_per_min = val_of((double)(now->errors - minute->errors) / minutes, seen_us);
        if (now->retracted_counter.known) {
            row->retracted_per_min = val_of((now->retracted - minute->retracted) / minutes,
                                            seen_us);
        }
    }
    int64_t firsts = now->first_tokens - minute->first_tokens;
    if (firsts > 0) {
        double sum_us = (double)(now->first_token_us - minute->first_token_us);
        row->ttft_ms = val_of(sum_us / 1000 / (double)firsts, seen_us);
    }
    /* Little's law over the decode batch: each running request gets one token an interval. */
    if (row->tokens_per_s.known && row->tokens_per_s.v > 0 && row->running.known &&
        row->running.v >= 1) {
        row->itl_ms = val_of(1000 * row->running.v / row->tokens_per_s.v,
                             row->tokens_per_s.seen_us);
    }
}

/* Observations at a key tick, which never change once its second is well over. A frame looks at
 * the same ones as the frame before it, so they are read once. */
typedef struct KeySeen {
    int64_t second; /* 0: an empty place */
    SeenList seen;
} KeySeen;

struct KeyMemo {
    KeySeen places[VIEW_SPARK_MAX + 4];
    size_t next; /* the place that is given up next */
};

void view_keys_free(KeyMemo *memo)
{
    enum { PLACES = sizeof memo->places / sizeof *memo->places };
    for (size_t i = 0; memo != NULL && i < PLACES; i++) {
        free(memo->places[i].seen.items);
    }
    free(memo);
}

static const SeenList *key_seen(View *view, int64_t second)
{
    enum { PLACES = sizeof view->keys->places / sizeof *view->keys->places };
    if (view->keys == NULL) {
        view->keys = xcalloc(1, sizeof *view->keys);
    }
    for (size_t i = 0; i < PLACES; i++) {
        if (view->keys->places[i].second == second) {
            return &view->keys->places[i].seen;
        }
    }
    KeySeen *place = &view->keys->places[view->keys->next];
    view->keys->next = (view->keys->next + 1) % PLACES;
    place->second = second;
    place->seen.count = 0;
    Err err = acc_history(&view->db, second * SECOND_US, (second + 1) * SECOND_US, note_seen,
                          &place->seen, &view->fault);
    if (err != ERR_OK) {
        place->second = 0;
        place->seen.count = 0;
    }
    return &place->seen;
}

/* Observations of all engines for cells of ten seconds and more: key ticks are enough. The
 * newest, which may still be written anew, are part of the state at T. */
static void load_coarse(View *view, int64_t t_us, int cells, int64_t cell_us, SeenList *seen)
{
    int64_t done = -1;
    for (int i = 0; i <= cells && view_good(view); i++) {
        Tick key;
        tick_key_at(&view->db, t_us - (cells - i) * cell_us + SECOND_US, &key, &view->fault);
        if (!key.found || key.second == done) {
            continue;
        }
        done = key.second;
        if (t_us - key.second * SECOND_US < 2 * KEY_SECONDS * SECOND_US) {
            acc_history(&view->db, key.second * SECOND_US, (key.second + 1) * SECOND_US,
                        note_seen, seen, &view->fault);
            continue;
        }
        const SeenList *known = key_seen(view, key.second);
        for (size_t j = 0; j < known->count; j++) {
            note_seen(known->items[j].engine, known->items[j].t_us, known->items[j].tokens, seen);
        }
    }
}

typedef struct EngineWork {
    AccSet now, minute;
    SeenList seen;
    double minutes; /* between the two sets; 0 unknown */
    int64_t grain_us; /* how far apart ticks are */
} EngineWork;

/* Header and engines of a frame ask for the same walk: the last one is kept for as long as nobody
 * wrote. */
struct NowMemo {
    bool known;
    int64_t t_us, back_us, data_version, grain_us;
    AccSet now;
    SeenList seen;
};

void view_now_free(NowMemo *memo)
{
    if (memo != NULL) {
        acc_free(&memo->now);
        free(memo->seen.items);
    }
    free(memo);
}

static void read_now(View *view, int64_t t_us, int64_t back_us, NowMemo *memo)
{
    Tick key;
    Trimmed trimmed = view_trimmed(view);
    memo->now.count = memo->seen.count = 0;
    tick_key_at(&view->db, t_us, &key, &view->fault);
    memo->grain_us = view_grain_us(&trimmed, t_us - back_us);
    int64_t from_us = t_us - back_us - SECOND_US - memo->grain_us;
    if (key.found) { /* what is before the state's own walk */
        acc_history(&view->db, from_us > 0 ? from_us : 0, key.second * SECOND_US, note_seen,
                    &memo->seen, &view->fault);
    }
    acc_load(&view->db, t_us, &memo->now, note_seen, &memo->seen, &view->fault);
    memo->known = view_good(view);
}

/* The state at T and the observations of the last `back_us` in order of engine and time. */
static void load_now(View *view, int64_t t_us, int64_t back_us, EngineWork *work)
{
    int64_t version = view_number(view, view_query(view, "PRAGMA data_version", NULL, 0), 0);
    if (view->now == NULL) {
        view->now = xcalloc(1, sizeof *view->now);
    }
    NowMemo *memo = view->now;
    if (!memo->known || memo->t_us != t_us || memo->back_us != back_us ||
        memo->data_version != version) {
        read_now(view, t_us, back_us, memo);
        memo->t_us = t_us;
        memo->back_us = back_us;
        memo->data_version = version;
    }
    work->grain_us = memo->grain_us;
    for (size_t i = 0; i < memo->now.count; i++) {
        *acc_find(&work->now, memo->now.items[i].engine) = memo->now.items[i];
    }
    for (size_t i = 0; i < memo->seen.count; i++) {
        const Seen *seen = &memo->seen.items[i];
        note_seen(seen->engine, seen->t_us, seen->tokens, &work->seen);
    }
    if (work->seen.count > 1) {
        qsort(work->seen.items, work->seen.count, sizeof(Seen), by_engine_time);
    }
}

static void load_work(View *view, int64_t t_us, int cells, int64_t cell_us, EngineWork *work)
{
    bool coarse = cell_us >= KEY_SECONDS * SECOND_US;
    int64_t back_us = coarse ? 0 : cells * cell_us;
    if (coarse && cells > 0) {
        load_coarse(view, t_us, cells, cell_us, &work->seen);
    }
    load_now(view, t_us, back_us > RATE_WINDOW_US ? back_us : RATE_WINDOW_US, work);
    Tick key;
    tick_key_at(&view->db, t_us - 60 * (int64_t)SECOND_US + SECOND_US, &key, &view->fault);
    work->minutes = 1;
    if (key.found) {
        acc_load_key(&view->db, key.second, &work->minute, &view->fault);
        double span_s = (double)t_us / SECOND_US - (double)key.second - 1;
        work->minutes = span_s > 120 ? 0 : span_s / 60; /* a gap: no rate */
    }
}

static void free_work(EngineWork *work)
{
    acc_free(&work->now);
    acc_free(&work->minute);
    free(work->seen.items);
}

static const Seen *seen_of(const SeenList *list, int64_t engine, size_t *count)
{
    size_t from = 0;
    size_t to = list->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (list->items[middle].engine < engine) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    size_t end = from;
    while (end < list->count && list->items[end].engine == engine) {
        end++;
    }
    *count = end - from;
    return list->items + from;
}

EngineList view_engines(View *view, int64_t t_us, int spark_count, int64_t spark_us, Arena *arena)
{
    static const char next[] = "SELECT min(engine) FROM engine WHERE engine > ?";
    EngineList list = {0};
    size_t capacity = 0;
    int cells = spark_count < 0 ? 0 : spark_count;
    cells = cells > VIEW_SPARK_MAX ? VIEW_SPARK_MAX : cells;
    int64_t cell_us = spark_us > 0 ? spark_us : SECOND_US;
    EngineWork work = {0};
    view_begin(view, t_us);
    load_work(view, t_us, cells, cell_us, &work);
    for (int64_t engine = 0; view_good(view);) {
        engine = view_number(view, VIEW_QUERY(view, next, engine), -1);
        if (engine < 0 || list.count == VIEW_ROWS_MAX ||
            !view_grow(view, arena, &list.rows, &capacity, list.count, sizeof *list.rows)) {
            break;
        }
        EngineRow *row = &list.rows[list.count];
        *row = (EngineRow){.engine = engine, .reported_version = -1};
        if (!fill_identity(view, arena, t_us, row)) {
            continue; /* appeared after T */
        }
        size_t count = 0;
        const Seen *seen = seen_of(&work.seen, engine, &count);
        row->tokens_per_s = rate_of(seen, count);
        if (!row->tokens_per_s.known && work.grain_us > SECOND_US) {
            row->tokens_per_s = view_rolled(view, ROLL_TOKENS, engine, t_us);
        }
        fill_spark(row, seen, count, t_us, cells, cell_us, work.grain_us);
        EngineAcc *now = acc_find(&work.now, engine);
        fill_numbers(row, now, acc_find(&work.minute, engine), work.minutes);
        list.count++;
    }
    view_end(view);
    free_work(&work);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}

EngineList view_known_engines(View *view, Arena *arena)
{
    static const char next[] = "SELECT min(engine) FROM engine WHERE engine > ?";
    static const char sql[] = "SELECT name, address, local, (SELECT coalesce(max(incarnation), 0)"
                              " FROM incarnation WHERE engine = ?1) FROM engine"
                              " WHERE engine = ?1 ORDER BY change_id DESC LIMIT 1";
    EngineList list = {0};
    size_t capacity = 0;
    view_begin(view, 0);
    for (int64_t engine = 0; view_good(view);) {
        engine = view_number(view, VIEW_QUERY(view, next, engine), -1);
        if (engine < 0 || list.count == VIEW_ROWS_MAX ||
            !view_grow(view, arena, &list.rows, &capacity, list.count, sizeof *list.rows)) {
            break;
        }
        sqlite3_stmt *stmt = VIEW_QUERY(view, sql, engine);
        if (view_next(view, stmt)) {
            EngineRow *row = &list.rows[list.count++];
            *row = (EngineRow){.engine = engine, .reported_version = -1, .policy_version = -1};
            row->name = view_text(view, arena, stmt, 0);
            row->address = view_text(view, arena, stmt, 1);
            row->local = sqlite3_column_int(stmt, 2) != 0;
            row->incarnation = row->incarnations = sqlite3_column_int64(stmt, 3);
            sqlite3_reset(stmt);
        }
    }
    view_end(view);
    list.count = view_good(view) ? list.count : 0;
    return list;
}

void view_rates(View *view, int64_t t_us, RateSum *out)
{
    EngineWork work = {0};
    *out = (RateSum){val_none(), val_none()};
    load_now(view, t_us, RATE_WINDOW_US, &work);
    double usage = 0;
    int usages = 0;
    for (size_t i = 0; i < work.now.count; i++) {
        const EngineAcc *acc = &work.now.items[i];
        size_t count = 0;
        const Seen *seen = seen_of(&work.seen, acc->engine, &count);
        Val rate = rate_of(seen, count);
        if (acc->engine != 0 && rate.known && t_us - rate.seen_us <= RATE_WINDOW_US) {
            int64_t newest_us = out->tokens_per_s.seen_us;
            out->tokens_per_s = val_of(out->tokens_per_s.v + rate.v,
                                       rate.seen_us > newest_us ? rate.seen_us : newest_us);
        }
        if (acc->engine != 0 && acc->usage.known && t_us - acc->usage.seen_us <= FRESH_US) {
            usage += acc->usage.v;
            usages++;
            int64_t newest_us = out->kv_usage.seen_us;
            int64_t seen_us = acc->usage.seen_us;
            out->kv_usage = val_of(usage / usages, seen_us > newest_us ? seen_us : newest_us);
        }
    }
    if (!out->tokens_per_s.known && work.grain_us > SECOND_US) {
        out->tokens_per_s = view_rolled(view, ROLL_TOKENS, ROLLUP_FLEET, t_us);
    }
    free_work(&work);
}

const char *view_engine_name(View *view, Arena *arena, int64_t engine, int64_t t_us)
{
    static const char sql[] = "SELECT name FROM engine WHERE engine = ?1 AND t_us <= ?2"
                              " ORDER BY t_us DESC, change_id DESC LIMIT 1";
    const char *name = NULL;
    sqlite3_stmt *stmt = engine != 0 ? VIEW_QUERY(view, sql, engine, t_us) : NULL;
    if (view_next(view, stmt)) {
        name = view_text(view, arena, stmt, 0);
        sqlite3_reset(stmt);
    }
    return name;
}

int64_t view_engine_version(View *view, int64_t engine, int64_t t_us)
{
    static const char sql[] =
        "SELECT policy_version FROM engine_state WHERE engine = ?1 AND t_us <= ?2"
        " ORDER BY t_us DESC, change_id DESC LIMIT 1";
    return view_number(view, VIEW_QUERY(view, sql, engine, t_us), -1);
}
