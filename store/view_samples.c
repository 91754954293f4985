#include "store/view_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- long tail ---- */

static int by_start(const void *a, const void *b)
{
    const Flight *x = a;
    const Flight *y = b;
    if (x->started_us != y->started_us) {
        return x->started_us < y->started_us ? -1 : 1;
    }
    return (x->attempt_id > y->attempt_id) - (x->attempt_id < y->attempt_id);
}

static void count_groups(View *view, int64_t step, bool eval, int64_t t_us, TailList *list)
{
    static const char sql[] =
        "SELECT g.want, count(a.attempt_id) FROM sample_group g LEFT JOIN"
        " (SELECT attempt_id, group_id FROM attempt WHERE step = ?1 AND fate = ?4"
        " AND ended_us <= ?2) a ON a.group_id = g.group_id"
        " WHERE g.step = ?1 AND g.eval = ?3 AND g.t_us <= ?2 GROUP BY g.group_id";
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, step, t_us, (int64_t)eval, FATE_ACCEPTED);
    while (view_next(view, stmt)) {
        int64_t want = sqlite3_column_int64(stmt, 0);
        int64_t done = sqlite3_column_int64(stmt, 1);
        list->groups_total++;
        list->groups_complete += done >= want;
        list->groups_blocked_by_one += done == want - 1 && want > 1;
    }
}

static void fill_histogram(const FlightList *flights, int64_t t_us, TailList *list)
{
    static const double widths[] = {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800};
    double oldest_s = 0;
    for (size_t i = 0; i < flights->count; i++) {
        double age_s = (double)(t_us - flights->items[i].started_us) / 1e6;
        oldest_s = age_s > oldest_s ? age_s : oldest_s;
    }
    size_t w = 0;
    while (w + 1 < sizeof widths / sizeof widths[0] && widths[w] * 8 < oldest_s) {
        w++;
    }
    list->age_bucket_s = widths[w];
    for (size_t i = 0; i < flights->count; i++) {
        double age_s = (double)(t_us - flights->items[i].started_us) / 1e6;
        int bucket = (int)(age_s / widths[w]);
        list->age_histogram[bucket < 0 ? 0 : bucket > 7 ? 7 : bucket]++;
    }
}

static TailRow tail_row(View *view, Arena *arena, const Flight *flight, int64_t t_us)
{
    TailRow row = {.sample = flight->sample_id,
                   .group = flight->group_id,
                   .step = flight->step,
                   .engine = flight->engine,
                   .started_us = flight->started_us,
                   .tokens = flight->tokens,
                   .progress_us = flight->progress_us,
                   .attempt = flight->attempt,
                   .eval = flight->eval,
                   .policy_version = -1};
    row.engine_name = view_engine_name(view, arena, flight->engine, t_us);
    if (flight->engine != 0) {
        row.policy_version = view_engine_version(view, flight->engine, t_us);
    }
    return row;
}

TailList view_tail(View *view, int64_t t_us, size_t limit, Arena *arena)
{
    TailList list = {.age_bucket_s = 1};
    FlightList flights = {0};
    view_begin(view, t_us);
    if (view_good(view)) {
        flight_load(&view->db, t_us, &flights, &view->fault);
    }
    if (flights.count > 1) {
        qsort(flights.items, flights.count, sizeof *flights.items, by_start);
    }
    list.total = flights.count;
    fill_histogram(&flights, t_us, &list);
    size_t count = flights.count < limit ? flights.count : limit;
    list.rows = view_alloc(view, arena, count, sizeof *list.rows);
    for (size_t i = 0; list.rows != NULL && i < count && view_good(view); i++) {
        list.rows[list.count++] = tail_row(view, arena, &flights.items[i], t_us);
    }
    int64_t step = -1;
    LoopPhase phase;
    int64_t since_us;
    view_phase_at(view, t_us, &phase, &since_us);
    view_current_step(view, t_us, &step);
    count_groups(view, step > 0 ? step : 0, phase == PHASE_EVAL, t_us, &list);
    list.trimmed = t_us < view_trimmed(view).before_us;
    view_end(view);
    flight_free(&flights);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}

/* ---- samples ---- */

#define SAMPLE_COLUMNS                                                                            \
    "SELECT a.sample_id, a.group_id, a.step, a.engine, a.started_us, a.ended_us,"                 \
    " a.first_token_us, a.try, a.eval, a.fate, w.text, a.reason, a.reward, a.reward_us,"          \
    " a.tokens, a.attempt_id FROM attempt a LEFT JOIN word w ON w.word_id = a.finish "

/* Of an attempt that is open at T, only what was known when it began. */
static SampleView sample_row(View *view, Arena *arena, sqlite3_stmt *stmt, int64_t t_us)
{
    int64_t ended_us = sqlite3_column_int64(stmt, 5);
    SampleView row = {.sample = sqlite3_column_int64(stmt, 0),
                      .group = sqlite3_column_int64(stmt, 1),
                      .step = sqlite3_column_int64(stmt, 2),
                      .engine = sqlite3_column_int64(stmt, 3),
                      .started_us = sqlite3_column_int64(stmt, 4),
                      .attempt = sqlite3_column_int(stmt, 7),
                      .eval = sqlite3_column_int(stmt, 8) != 0,
                      .fate = FATE_OPEN,
                      .prompt_index = -1};
    if (ended_us != 0 && ended_us <= t_us) {
        row.ended_us = ended_us;
        row.first_token_us = sqlite3_column_int64(stmt, 6);
        row.fate = (SampleFate)sqlite3_column_int(stmt, 9);
        row.finish = view_text(view, arena, stmt, 10);
        row.reason = view_text(view, arena, stmt, 11);
        row.token_count = (size_t)sqlite3_column_int64(stmt, 14);
        int64_t reward_us = sqlite3_column_int64(stmt, 13);
        if (reward_us <= t_us) {
            row.reward = column_val(stmt, 12, reward_us);
        }
    }
    return row;
}

static void fill_group(View *view, Arena *arena, SampleView *row)
{
    static const char sql[] =
        "SELECT prompt_index, prompt, label FROM sample_group WHERE group_id = ?";
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, row->group);
    if (view_next(view, stmt)) {
        row->prompt_index = column_i64(stmt, 0, -1);
        row->prompt = view_blob(view, arena, stmt, 1);
        row->label = view_blob(view, arena, stmt, 2);
        sqlite3_reset(stmt);
    }
}

static void fill_data(View *view, Arena *arena, int64_t attempt_id, SampleView *row)
{
    static const char sql[] =
        "SELECT tokens, logprobs, spans, text FROM attempt_data WHERE attempt_id = ?";
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, attempt_id);
    if (!view_next(view, stmt)) {
        return;
    }
    /* Arena memory is 16-byte aligned, so the bytes are arrays. */
    Str tokens = view_blob(view, arena, stmt, 0);
    Str logprobs = view_blob(view, arena, stmt, 1);
    Str spans = view_blob(view, arena, stmt, 2);
    row->text = view_blob(view, arena, stmt, 3);
    sqlite3_reset(stmt);
    row->token_count = tokens.n / sizeof(int32_t);
    row->tokens = (int32_t *)(void *)(uintptr_t)tokens.p;
    if (logprobs.n == tokens.n) {
        row->logprobs = (float *)(void *)(uintptr_t)logprobs.p;
    }
    row->span_count = spans.n / sizeof(SampleSpan);
    row->spans = (SampleSpan *)(void *)(uintptr_t)spans.p;
}

bool view_sample(View *view, int64_t sample, int64_t t_us, Arena *arena, SampleView *out)
{
    static const char sql[] = SAMPLE_COLUMNS
        "WHERE a.sample_id = ?1 AND a.started_us <= ?2 ORDER BY a.try DESC LIMIT 1";
    *out = (SampleView){.prompt_index = -1};
    view_begin(view, t_us);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, sample, t_us);
    bool found = view_next(view, stmt);
    if (found) {
        *out = sample_row(view, arena, stmt, t_us);
        int64_t attempt_id = sqlite3_column_int64(stmt, 15);
        sqlite3_reset(stmt);
        out->engine_name = view_engine_name(view, arena, out->engine, t_us);
        fill_group(view, arena, out);
        if (out->ended_us != 0) {
            fill_data(view, arena, attempt_id, out);
        }
    }
    view_end(view);
    return found && view_good(view);
}

SampleList view_samples(View *view, int64_t step, int64_t t_us, size_t limit, size_t offset,
                        Arena *arena)
{
    static const char sql[] = SAMPLE_COLUMNS
        "WHERE a.step = ?1 AND a.started_us <= ?2 AND NOT EXISTS (SELECT 1 FROM attempt b"
        " WHERE b.sample_id = a.sample_id AND b.try > a.try AND b.started_us <= ?2)"
        " ORDER BY a.sample_id LIMIT ?3 OFFSET ?4";
    static const char total[] =
        "SELECT count(DISTINCT sample_id) FROM attempt WHERE step = ?1 AND started_us <= ?2";
    SampleList list = {0};
    size_t capacity = 0;
    limit = view_limit(limit);
    if (offset > INT32_MAX) {
        offset = INT32_MAX;
    }
    view_begin(view, t_us);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, step, t_us, (int64_t)limit, (int64_t)offset);
    while (view_row(view, arena, stmt, &list.rows, &capacity, list.count, sizeof *list.rows)) {
        list.rows[list.count++] = sample_row(view, arena, stmt, t_us);
    }
    for (size_t i = 0; i < list.count && view_good(view); i++) {
        SampleView *row = &list.rows[i];
        row->engine_name = view_engine_name(view, arena, row->engine, t_us);
        fill_group(view, arena, row);
    }
    list.total = (size_t)view_number(view, VIEW_QUERY(view, total, step, t_us), 0);
    list.trimmed = step < view_trimmed(view).step;
    view_end(view);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}
