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
    /* Where rows were trimmed the mean of each minute, an hour's further back, takes their place:
     * one point for the newest step of it. */
    static const char rolled[] =
        "SELECT step, t_us, value FROM (SELECT step, t_us, value, 0 AS span_s FROM metric"
        " WHERE name = ?3 AND engine = 0 AND t_us <= ?1 AND step <= ?4 AND value IS NOT NULL"
        " UNION ALL SELECT step, (start_s + span_s) * 1000000, mean, span_s FROM rollup"
        " WHERE series = ?3 AND engine = 0 AND span_s = ?6 AND start_s >= ?7"
        " AND (start_s + span_s) * 1000000 <= min(?1, ?5)"
        " UNION ALL SELECT step, (start_s + span_s) * 1000000, mean, span_s FROM rollup"
        " WHERE series = ?3 AND engine = 0 AND span_s = 3600"
        " AND (start_s + span_s) * 1000000 <= min(?1, ?7 * 1000000))"
        " ORDER BY step DESC, span_s, t_us DESC LIMIT ?2";
    if (strcmp(name, "reward_mean") == 0) {
        return VIEW_QUERY(view, reward, t_us, limit);
    }
    if (strcmp(name, "eval_reward_mean") == 0) {
        return VIEW_QUERY(view, eval, t_us, limit);
    }
    int64_t id = word_id(view, name);
    int64_t step = -1;
    view_current_step(view, t_us, &step); /* so that what came after T is not walked over */
    step = step >= 0 ? step : INT64_MAX;
    Trimmed trimmed = view_trimmed(view);
    if (trimmed.before_us == 0) {
        return VIEW_QUERY(view, metric, t_us, limit, id, step);
    }
    return VIEW_QUERY(view, rolled, t_us, limit, id, step, trimmed.before_us, ROLLUP_MINUTE,
                      trimmed.hours_before_us / SECOND_US);
}

size_t view_curve(View *view, const char *name, int64_t t_us, size_t limit, Arena *arena,
                  CurvePoint **out)
{
    size_t count = 0;
    *out = NULL;
    limit = view_limit(limit);
    view_begin(view, t_us);
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

/* Second of the last tick that did not know the incident yet; 0: none. Numbers of incidents in
 * ticks only grow: halving, O(log) look-ups. */
static int64_t second_before(View *view, int64_t incident)
{
    static const char ends[] = "SELECT coalesce(min(second), 0) FROM tick";
    static const char last[] = "SELECT coalesce(max(second), -1) FROM tick";
    static const char at[] = "SELECT incident FROM tick WHERE second <= ?1"
                             " ORDER BY second DESC LIMIT 1";
    static const char of[] = "SELECT second FROM tick WHERE second <= ?1"
                             " ORDER BY second DESC LIMIT 1";
    int64_t low = view_number(view, view_query(view, ends, NULL, 0), 0);
    int64_t high = view_number(view, view_query(view, last, NULL, 0), -1);
    if (low > high || view_number(view, VIEW_QUERY(view, at, low), 0) >= incident) {
        return 0;
    }
    while (low < high && view_good(view)) { /* known before `low + 1`, not known at `low` */
        int64_t middle = low + (high - low + 1) / 2;
        if (view_number(view, VIEW_QUERY(view, at, middle), 0) < incident) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return view_number(view, VIEW_QUERY(view, of, low), 0);
}

/* An alert is raised after its onset, and view_alerts shows it from then on only: a motion goes to
 * the first moment at which it is seen, and alerts are in that order by number. */
static int64_t seek_alert(View *view, int64_t t_us, int dir)
{
    static const char back[] = "SELECT coalesce(max(incident_id), 0) FROM incident"
                               " WHERE incident_id <= ?1";
    static const char ahead[] = "SELECT coalesce(min(incident_id), 0) FROM incident"
                                " WHERE incident_id >= ?1";
    static const char onset[] = "SELECT onset_us FROM incident WHERE incident_id = ?1";
    static const char known[] = "SELECT min(t_us) FROM incident_change WHERE incident_id = ?1";
    Tick tick;
    if (dir < 0) {
        tick_after(&view->db, t_us, &tick, &view->fault);
    } else {
        tick_at(&view->db, t_us, &tick, &view->fault);
    }
    int64_t at = dir < 0 ? tick.incident : tick.incident + 1;
    while (view_good(view)) {
        int64_t incident = view_number(view, VIEW_QUERY(view, dir < 0 ? back : ahead, at), 0);
        if (incident == 0) {
            break;
        }
        int64_t raised = view_number(view, VIEW_QUERY(view, known, incident), 0);
        raised = raised > 0 ? raised : second_before(view, incident) * SECOND_US;
        int64_t seen = view_number(view, VIEW_QUERY(view, onset, incident), 0);
        seen = seen > raised ? seen : raised;
        if (dir < 0 ? seen < t_us : seen > t_us) {
            return seen;
        }
        at = incident + dir;
    }
    return 0;
}

bool view_seek(View *view, ViewMark mark, int64_t t_us, int dir, int64_t *out)
{
    static const char step_back[] = "SELECT max(started_us) FROM step WHERE started_us < ?1";
    static const char step_ahead[] = "SELECT min(started_us) FROM step WHERE started_us > ?1";
    static const char policy_back[] = "SELECT max(t_us) FROM policy WHERE t_us < ?1";
    static const char policy_ahead[] = "SELECT min(t_us) FROM policy WHERE t_us > ?1";
    int64_t found = 0;
    view_begin(view, t_us);
    switch (mark) {
    case MARK_STEP:
        found = view_number(view, VIEW_QUERY(view, dir < 0 ? step_back : step_ahead, t_us), 0);
        break;
    case MARK_ALERT:
        found = seek_alert(view, t_us, dir);
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
    view_begin(view, 0);
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

typedef struct StripWork {
    int64_t last_us;
    Tick before; /* the newest tick of the cell before */
    Trimmed trimmed;
    RollRead fleet;
} StripWork;

static void strip_rate(View *view, StripWork *work, int64_t from_us, int64_t to_us,
                       bool recorded, StripCell *cell)
{
    Tick now;
    tick_at(&view->db, to_us + SECOND_US, &now, &view->fault);
    if (now.found && work->before.found && now.second > work->before.second && recorded) {
        double seconds = (double)(now.second - work->before.second);
        cell->tokens_per_s = val_of((now.tokens - work->before.tokens) / seconds, now.last_us);
    }
    work->before = now;
    bool wide = to_us - from_us >= ROLLUP_MINUTE * (int64_t)SECOND_US;
    if (!recorded || work->fleet.series < 0 || !(wide || cell->trimmed) || !view_good(view)) {
        return;
    }
    Stat stat;
    rollup_read(&view->db, &work->fleet, from_us / SECOND_US, to_us / SECOND_US, &stat,
                &view->fault);
    if (stat.count > 0) {
        cell->tokens_max = val_of(stat.max, now.last_us);
        if (!cell->tokens_per_s.known) { /* narrower than what a trim left */
            cell->tokens_per_s = val_of(stat.mean, now.last_us);
        }
    }
}

static void strip_cell(View *view, StripWork *work, int64_t from_us, int64_t to_us,
                       StripCell *cell)
{
    static const char any[] = "SELECT 1 FROM tick WHERE second >= ?1 AND second < ?2 LIMIT 1";
    int damages = view->db.damages;
    view->db.at_us = from_us;
    int64_t grain_s = view_grain_us(&work->trimmed, from_us) / SECOND_US;
    int64_t first = from_us / SECOND_US / grain_s * grain_s;
    int64_t behind = (to_us + SECOND_US - 1) / SECOND_US;
    behind = (behind + grain_s - 1) / grain_s * grain_s;
    bool has_last = work->last_us >= from_us && work->last_us < to_us; /* no tick yet */
    bool has_tick = view_number(view, VIEW_QUERY(view, any, first, behind), 0) == 1;
    cell->gap = !has_tick && !has_last;
    cell->trimmed = from_us < work->trimmed.before_us;
    strip_rate(view, work, from_us, to_us, has_tick, cell);
    cell->damaged = view->db.damages > damages;
}

static void strip_damage(View *view, int64_t from_us, int64_t to_us, int cells, StripCell *strip,
                         Arena *arena)
{
    DamageRow *rows = NULL;
    size_t count = view_damage(view, DB_DAMAGE_MAX, arena, &rows);
    double cell_us = (double)(to_us - from_us) / cells;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].from_us == 0 || rows[i].to_us <= from_us || rows[i].from_us >= to_us) {
            continue;
        }
        double first = (double)(rows[i].from_us - from_us) / cell_us;
        double last = (double)(rows[i].to_us - 1 - from_us) / cell_us;
        for (int c = first < 0 ? 0 : (int)first; c < cells && c <= (int)last; c++) {
            strip[c].damaged = true;
        }
    }
}

bool view_strip(View *view, int64_t from_us, int64_t to_us, int cells, Arena *arena,
                StripCell **out)
{
    *out = NULL;
    if (cells <= 0 || cells > 4096 || to_us <= from_us) {
        return false;
    }
    view_begin(view, from_us);
    StripCell *strip = view_alloc(view, arena, (size_t)cells, sizeof *strip);
    StripWork work = {.fleet = {.series = -1, .engine = ROLLUP_FLEET, .cells = true}};
    if (strip != NULL) {
        work.trimmed = view_trimmed(view);
        db_last_us(&view->db, INT64_MAX, &work.last_us, &view->fault);
        tick_at(&view->db, from_us + SECOND_US, &work.before, &view->fault);
        rollup_series(&view->db, rollup_probe_words[ROLL_TOKENS], &work.fleet.series,
                      &view->fault);
        work.fleet.last_s = work.last_us / SECOND_US;
    }
    double cell_us = (double)(to_us - from_us) / cells;
    for (int i = 0; strip != NULL && i < cells && view_good(view); i++) {
        strip_cell(view, &work, from_us + (int64_t)(i * cell_us),
                   from_us + (int64_t)((i + 1) * cell_us), &strip[i]);
    }
    if (strip != NULL) {
        strip_alerts(view, from_us, to_us, cells, strip);
        strip_damage(view, from_us, to_us, cells, strip, arena);
    }
    view_end(view);
    *out = strip;
    return strip != NULL && view_good(view);
}
