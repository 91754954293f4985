/* What a step was trained on, out of the log: for a trainer that has to do it again. */
#include "store/view_private.h"

#include <math.h>
#include <stdint.h>

static void fill_row(View *view, Arena *arena, sqlite3_stmt *stmt, BatchRow *row)
{
    /* Arena memory is 16-byte aligned, so the bytes are arrays. */
    Str prompt = view_blob(view, arena, stmt, 2);
    Str tokens = view_blob(view, arena, stmt, 3);
    Str logprobs = view_blob(view, arena, stmt, 4);
    Str spans = view_blob(view, arena, stmt, 5);
    *row = (BatchRow){.sample = sqlite3_column_int64(stmt, 0),
                      .reward = sqlite3_column_double(stmt, 1),
                      .prompt = (const int32_t *)(const void *)prompt.p,
                      .prompt_count = prompt.n / sizeof(int32_t),
                      .tokens = (const int32_t *)(const void *)tokens.p,
                      .token_count = tokens.n / sizeof(int32_t),
                      .spans = (const SampleSpan *)(const void *)spans.p,
                      .span_count = spans.n / sizeof(SampleSpan)};
    if (logprobs.n == tokens.n) {
        row->logprobs = (const float *)(const void *)logprobs.p;
    }
}

static bool is_whole(const BatchRow *row, int64_t sample)
{
    return row->sample == sample && row->prompt_count > 0 && row->token_count > 0 &&
           row->logprobs != NULL;
}

Err view_batch(View *view, int64_t step, Arena *arena, BatchView *out, Fault *fault)
{
    static const char policy[] = "SELECT coalesce(policy_version, -1) FROM step WHERE step = ? AND"
                                 " outcome = 'ok' ORDER BY step_id DESC LIMIT 1";
    static const char size[] = "SELECT samples FROM step WHERE step = ? AND outcome = 'ok'"
                               " ORDER BY step_id DESC LIMIT 1";
    /* Of a rollout that failed and was done again, the samples before have lower numbers. */
    static const char sql[] =
        "SELECT a.sample_id, a.reward, g.prompt_ids, d.tokens, d.logprobs, d.spans"
        " FROM attempt a"
        " JOIN attempt_data d ON d.attempt_id = a.attempt_id"
        " JOIN sample_group g ON g.group_id = a.group_id"
        " WHERE a.step = ? AND a.eval = 0 AND a.fate = ? AND a.reward IS NOT NULL"
        " ORDER BY a.sample_id DESC LIMIT ?";
    *out = (BatchView){0};
    view_begin(view, 0);
    int64_t want = view_number(view, VIEW_QUERY(view, size, step), 0);
    int64_t version = view_number(view, VIEW_QUERY(view, policy, step), -1);
    size_t at = want > 0 && want < INT32_MAX ? (size_t)want : 0;
    BatchRow *rows = at > 0 ? view_alloc(view, arena, at, sizeof *rows) : NULL;
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, step, (int64_t)FATE_ACCEPTED, want);
    while (rows != NULL && at > 0 && view_next(view, stmt)) {
        at--;
        fill_row(view, arena, stmt, &rows[at]);
        if (!is_whole(&rows[at], rows[want - 1].sample - (want - 1 - (int64_t)at))) {
            at = SIZE_MAX;
            break;
        }
    }
    view_end(view);
    Err err = view_fault(view, fault);
    if (!err && (rows == NULL || at != 0)) {
        err = fault_set(fault, ERR_NOT_FOUND, NULL,
                        "the log does not hold all samples of step %lld", (long long)step);
    }
    if (!err) {
        *out = (BatchView){.rows = rows, .count = (size_t)want, .policy = version};
    }
    return err;
}

double view_metric(View *view, int64_t step, const char *name)
{
    static const char sql[] =
        "SELECT m.value FROM metric m JOIN word w ON w.word_id = m.name WHERE w.text = ?2"
        " AND m.step = ?1 AND m.engine = 0 ORDER BY m.metric_id DESC LIMIT 1";
    view_begin(view, 0);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, step);
    double value = NAN;
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 2, name, -1, SQLITE_STATIC);
    }
    if (view_next(view, stmt)) {
        value = sqlite3_column_double(stmt, 0);
        sqlite3_reset(stmt);
    }
    view_end(view);
    return value;
}
