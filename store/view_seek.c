#include "store/view_private.h"

#include <string.h>

/* ---- curves over steps ---- */

static int64_t word_id(View *view, const char *text)
{
    sqlite3_stmt *stmt = view_query(view, "SELECT word_id FROM word WHERE text = ?", NULL, 0);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
    }
    return view_number(view, stmt, -1);
}

static sqlite3_stmt *curve_query(View *view, const char *name, int64_t t_us, int64_t limit)
{
    static const char reward[] =
        "SELECT step, ended_us, reward_mean FROM step WHERE started_us <= ?1 AND ended_us <= ?1"
        " AND reward_mean IS NOT NULL ORDER BY started_us DESC LIMIT ?2";
    static const char eval[] =
        "SELECT step, ended_us, eval_reward_mean FROM step WHERE started_us <= ?1"
        " AND ended_us <= ?1 AND eval_reward_mean IS NOT NULL ORDER BY started_us DESC LIMIT ?2";
    static const char metric[] =
        "SELECT step, t_us, value FROM metric WHERE name = ?3 AND engine = 0 AND t_us <= ?1"
        " AND step <= ?4 AND value IS NOT NULL ORDER BY step DESC, t_us DESC LIMIT ?2";
    if (strcmp(name, "reward_mean") == 0) {
        return VIEW_QUERY(view, reward, t_us, limit);
    }
    if (strcmp(name, "eval_reward_mean") == 0) {
        return VIEW_QUERY(view, eval, t_us, limit);
    }
    int64_t id = word_id(view, name);
    int64_t step = -1;
    view_current_step(view, t_us, &step); /* so that what came after T is not walked over */
    return VIEW_QUERY(view, metric, t_us, limit, id, step >= 0 ? step : INT64_MAX);
}

size_t view_curve(View *view, const char *name, int64_t t_us, size_t limit, Arena *arena,
                  CurvePoint **out)
{
    size_t count = 0;
    *out = NULL;
    limit = view_limit(limit);
    view_begin(view);
    sqlite3_stmt *stmt = curve_query(view, name, t_us, (int64_t)limit);
    size_t capacity = 0;
    while (view_next(view, stmt)) {
        CurvePoint point = {.step = sqlite3_column_int64(stmt, 0),
                            .t_us = sqlite3_column_int64(stmt, 1),
                            .value = sqlite3_column_double(stmt, 2)};
        if (count > 0 && (*out)[count - 1].step == point.step) {
            continue; /* a step that ran again: its newest value counts */
        }
        if (!view_grow(view, arena, out, &capacity, count, sizeof **out)) {
            sqlite3_reset(stmt);
            break;
        }
        (*out)[count++] = point;
    }
    for (size_t i = 0; i < count / 2; i++) {
        CurvePoint point = (*out)[i];
        (*out)[i] = (*out)[count - 1 - i];
        (*out)[count - 1 - i] = point;
    }
    view_end(view);
    return view_good(view) ? count : 0;
}

/* ---- motions ---- */

/* Probes are in order of arrival, which differs from that of time by milliseconds: from the
 * first hit on, a few more rows are looked at. */
static int64_t seek_probe(View *view, int64_t t_us, int dir)
{
    static const char back[] = "SELECT max(t_us) FROM (SELECT t_us FROM probe WHERE probe_id <= ?1"
                               " AND t_us < ?2 ORDER BY probe_id DESC LIMIT 256)";
    static const char ahead[] = "SELECT min(t_us) FROM (SELECT t_us FROM probe WHERE probe_id > ?1"
                                " AND t_us > ?2 ORDER BY probe_id LIMIT 256)";
    Tick tick;
    if (dir < 0) {
        tick_after(&view->db, t_us, &tick, &view->fault);
        return view_number(view, VIEW_QUERY(view, back, tick.probe, t_us), 0);
    }
    tick_at(&view->db, t_us, &tick, &view->fault);
    return view_number(view, VIEW_QUERY(view, ahead, tick.probe, t_us), 0);
}

bool view_seek(View *view, ViewMark mark, int64_t t_us, int dir, int64_t *out)
{
    static const char step_back[] = "SELECT max(started_us) FROM step WHERE started_us < ?1";
    static const char step_ahead[] = "SELECT min(started_us) FROM step WHERE started_us > ?1";
    static const char alert_back[] = "SELECT max(onset_us) FROM incident WHERE onset_us < ?1";
    static const char alert_ahead[] = "SELECT min(onset_us) FROM incident WHERE onset_us > ?1";
    static const char policy_back[] = "SELECT max(t_us) FROM policy WHERE t_us < ?1";
    static const char policy_ahead[] = "SELECT min(t_us) FROM policy WHERE t_us > ?1";
    int64_t found = 0;
    view_begin(view);
    switch (mark) {
    case MARK_STEP:
        found = view_number(view, VIEW_QUERY(view, dir < 0 ? step_back : step_ahead, t_us), 0);
        break;
    case MARK_ALERT:
        found = view_number(view, VIEW_QUERY(view, dir < 0 ? alert_back : alert_ahead, t_us), 0);
        break;
    case MARK_POLICY:
        found = view_number(view, VIEW_QUERY(view, dir < 0 ? policy_back : policy_ahead, t_us),
                            0);
        break;
    case MARK_PROBE:
        found = seek_probe(view, t_us, dir);
        break;
    }
    view_end(view);
    if (found == 0 || !view_good(view)) {
        return false;
    }
    *out = found;
    return true;
}

static bool time_of(View *view, const char *sql, int64_t number, int64_t *out)
{
    view_begin(view);
    int64_t found = view_number(view, VIEW_QUERY(view, sql, number), 0);
    view_end(view);
    if (found == 0 || !view_good(view)) {
        return false;
    }
    *out = found;
    return true;
}

bool view_step_time(View *view, int64_t step, int64_t *out)
{
    static const char sql[] = "SELECT max(started_us) FROM step WHERE step = ?1";
    return time_of(view, sql, step, out);
}

bool view_policy_time(View *view, int64_t version, int64_t *out)
{
    static const char sql[] = "SELECT max(t_us) FROM policy WHERE version = ?1";
    return time_of(view, sql, version, out);
}

/* ---- the strip ---- */

static void strip_alerts(View *view, int64_t from_us, int64_t to_us, int cells, StripCell *strip)
{
    static const char sql[] = "SELECT onset_us, severity FROM incident WHERE onset_us >= ?1"
                              " AND onset_us < ?2 ORDER BY onset_us LIMIT 20000";
    double cell_us = (double)(to_us - from_us) / cells;
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, from_us, to_us);
    while (view_next(view, stmt)) {
        int at = (int)((double)(sqlite3_column_int64(stmt, 0) - from_us) / cell_us);
        at = at < 0 ? 0 : at >= cells ? cells - 1 : at;
        Severity severity = (Severity)sqlite3_column_int(stmt, 1);
        strip[at].warn += severity == SEVERITY_WARN;
        strip[at].crit += severity == SEVERITY_CRIT;
    }
}

bool view_strip(View *view, int64_t from_us, int64_t to_us, int cells, Arena *arena,
                StripCell **out)
{
    static const char any[] = "SELECT 1 FROM tick WHERE second >= ?1 AND second < ?2 LIMIT 1";
    *out = NULL;
    if (cells <= 0 || cells > 4096 || to_us <= from_us) {
        return false;
    }
    view_begin(view);
    StripCell *strip = view_alloc(view, arena, (size_t)cells, sizeof *strip);
    int64_t last_us = 0;
    Tick before = {0};
    if (strip != NULL) {
        db_last_us(&view->db, INT64_MAX, &last_us, &view->fault);
        tick_at(&view->db, from_us + SECOND_US, &before, &view->fault);
    }
    double cell_us = (double)(to_us - from_us) / cells;
    for (int i = 0; strip != NULL && i < cells && view_good(view); i++) {
        int64_t start_us = from_us + (int64_t)(i * cell_us);
        int64_t end_us = from_us + (int64_t)((i + 1) * cell_us);
        int64_t first = start_us / SECOND_US;
        int64_t behind = (end_us + SECOND_US - 1) / SECOND_US;
        bool has_last = last_us >= start_us && last_us < end_us; /* its second has no tick yet */
        bool has_tick = view_number(view, VIEW_QUERY(view, any, first, behind), 0) == 1;
        strip[i].gap = !has_tick && !has_last;
        Tick now;
        tick_at(&view->db, end_us + SECOND_US, &now, &view->fault);
        if (now.found && before.found && now.second > before.second && has_tick) {
            double seconds = (double)(now.second - before.second);
            strip[i].tokens_per_s = val_of((now.tokens - before.tokens) / seconds, now.last_us);
        }
        before = now;
    }
    if (strip != NULL) {
        strip_alerts(view, from_us, to_us, cells, strip);
    }
    view_end(view);
    *out = strip;
    return strip != NULL && view_good(view);
}
