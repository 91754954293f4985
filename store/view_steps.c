#include "store/view_private.h"

#include <stdlib.h>

bool view_current_step(View *view, int64_t t_us, int64_t *step)
{
    static const char sql[] =
        "SELECT step FROM step WHERE started_us <= ? ORDER BY started_us DESC LIMIT 1";
    *step = view_number(view, VIEW_QUERY(view, sql, t_us), -1);
    return *step >= 0;
}

static void fill_spans(View *view, Arena *arena, int64_t t_us, StepRow *row)
{
    /* A step that ran twice has the spans of its newest run only. */
    static const char sql[] =
        "SELECT phase, started_us, ended_us FROM phase WHERE step = ?1 AND started_us <= ?2"
        " AND started_us >= ?3 ORDER BY started_us, phase_id";
    size_t capacity = 0;
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, row->step, t_us, row->started_us);
    while (view_next(view, stmt)) {
        if (row->span_count == VIEW_ROWS_MAX ||
            !view_grow(view, arena, &row->spans, &capacity, row->span_count,
                       sizeof *row->spans)) {
            sqlite3_reset(stmt);
            break;
        }
        int64_t ended_us = sqlite3_column_int64(stmt, 2);
        row->spans[row->span_count++] =
            (PhaseSpan){.phase = (LoopPhase)sqlite3_column_int(stmt, 0),
                        .from_us = sqlite3_column_int64(stmt, 1),
                        .to_us = ended_us > t_us ? 0 : ended_us};
    }
}

/* Of a step that is open at T, only what was known when it began. */
static StepRow step_row(View *view, Arena *arena, sqlite3_stmt *stmt, int64_t t_us)
{
    int64_t ended_us = sqlite3_column_int64(stmt, 2);
    StepRow row = {.step = sqlite3_column_int64(stmt, 0),
                   .started_us = sqlite3_column_int64(stmt, 1),
                   .policy_version = column_i64(stmt, 3, -1)};
    if (ended_us != 0 && ended_us <= t_us) {
        row.ended_us = ended_us;
        row.outcome = view_text(view, arena, stmt, 4);
        row.samples = sqlite3_column_int64(stmt, 5);
        row.tokens = sqlite3_column_int64(stmt, 6);
        row.reward_mean = column_val(stmt, 7, ended_us);
        row.reward_std = column_val(stmt, 8, ended_us);
        row.eval_reward_mean = column_val(stmt, 9, ended_us);
    }
    return row;
}

StepList view_steps(View *view, int64_t t_us, size_t limit, Arena *arena)
{
    static const char sql[] =
        "SELECT step, started_us, ended_us, policy_version, outcome, samples, tokens,"
        " reward_mean, reward_std, eval_reward_mean FROM step a WHERE started_us <= ?1"
        " AND NOT EXISTS (SELECT 1 FROM step b WHERE b.step = a.step AND b.started_us <= ?1"
        " AND (b.started_us, b.step_id) > (a.started_us, a.step_id))"
        " ORDER BY started_us DESC LIMIT ?2";
    /* Steps are numbered one by one, so the number of them is a difference. */
    static const char total[] =
        "SELECT max(step) - min(step) + 1 FROM (SELECT step FROM (SELECT step FROM step"
        " WHERE started_us <= ?1 ORDER BY started_us DESC LIMIT 1) UNION ALL SELECT step FROM"
        " (SELECT step FROM step WHERE started_us <= ?1 ORDER BY started_us LIMIT 1))";
    StepList list = {0};
    size_t capacity = 0;
    limit = view_limit(limit);
    view_begin(view, t_us);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, t_us, (int64_t)limit);
    while (view_row(view, arena, stmt, &list.rows, &capacity, list.count, sizeof *list.rows)) {
        list.rows[list.count++] = step_row(view, arena, stmt, t_us);
    }
    for (size_t i = 0; i < list.count && view_good(view); i++) {
        fill_spans(view, arena, t_us, &list.rows[i]);
    }
    list.total = (size_t)view_number(view, VIEW_QUERY(view, total, t_us), 0);
    view_end(view);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}

size_t view_step_engines(View *view, int64_t step, int64_t t_us, Arena *arena, EngineSpan **out)
{
    static const char sql[] =
        "SELECT engine, min(started_us), max(ended_us), count(*),"
        " sum(ended_us IS NULL OR ended_us > ?2) FROM attempt"
        " WHERE step = ?1 AND started_us <= ?2 AND engine IS NOT NULL GROUP BY engine"
        " ORDER BY engine";
    /* Of a step whose attempts were trimmed. */
    static const char kept[] = "SELECT engine, from_us, to_us, samples, to_us IS NULL OR to_us > ?2"
                               " FROM step_engine WHERE step = ?1 AND from_us <= ?2"
                               " ORDER BY engine";
    size_t count = 0;
    size_t capacity = 0;
    *out = NULL;
    view_begin(view, t_us);
    bool trimmed = step < view_trimmed(view).step;
    sqlite3_stmt *stmt = trimmed ? VIEW_QUERY(view, kept, step, t_us)
                                 : VIEW_QUERY(view, sql, step, t_us);
    while (view_row(view, arena, stmt, out, &capacity, count, sizeof **out)) {
        bool open = sqlite3_column_int64(stmt, 4) > 0;
        (*out)[count++] = (EngineSpan){.engine = sqlite3_column_int64(stmt, 0),
                                       .from_us = sqlite3_column_int64(stmt, 1),
                                       .to_us = open ? 0 : sqlite3_column_int64(stmt, 2),
                                       .samples = sqlite3_column_int64(stmt, 3)};
    }
    view_end(view);
    return view_good(view) ? count : 0;
}

/* Phases may nest (a pause inside a phase): the newest that is open at T counts, else the newest.
 * Phases that an earlier life of the core left open are not asked. */
void view_phase_at(View *view, int64_t t_us, LoopPhase *phase, int64_t *since_us)
{
    static const char sql[] =
        "SELECT phase, started_us, ended_us IS NULL OR ended_us > ?1 FROM (SELECT * FROM phase"
        " WHERE started_us <= ?1 ORDER BY started_us DESC, phase_id DESC LIMIT 16)"
        " WHERE started_us >= coalesce((SELECT t_us FROM session WHERE t_us <= ?1"
        " ORDER BY session_id DESC LIMIT 1), 0) ORDER BY 3 DESC, started_us DESC, phase_id DESC"
        " LIMIT 1";
    *phase = PHASE_INIT;
    *since_us = 0;
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, t_us);
    if (view_next(view, stmt)) {
        *phase = (LoopPhase)sqlite3_column_int(stmt, 0);
        *since_us = sqlite3_column_int64(stmt, 1);
        sqlite3_reset(stmt);
    }
}
