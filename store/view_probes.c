#include "store/view_private.h"

/* One engine's newest probes. The probe table has no index besides its order of arrival, so the
 * search goes back over a bounded number of rows from T: with 1,000 engines still a minute. */

enum { PROBES_SCAN = 100000 };

size_t view_probes(View *view, int64_t engine, int64_t t_us, size_t limit, Arena *arena,
                   ProbeRow **out)
{
    static const char newest[] = "SELECT max(probe_id) FROM probe";
    static const char sql[] =
        "SELECT t_us, latency_us, kind, (SELECT text FROM word WHERE word_id = outcome), status,"
        " incarnation, ifnull(policy_version, -1), running, waiting FROM probe"
        " WHERE probe_id <= ?1 AND probe_id > ?1 - ?4 AND engine = ?2 AND t_us <= ?3"
        " ORDER BY probe_id DESC LIMIT ?5";
    size_t count = 0;
    size_t capacity = 0;
    Tick after;
    *out = NULL;
    view_begin(view, t_us);
    tick_after(&view->db, t_us, &after, &view->fault);
    int64_t top = view_number(view, view_query(view, newest, NULL, 0), 0);
    top = after.probe < top ? after.probe : top;
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, top, engine, t_us, PROBES_SCAN,
                                    (int64_t)view_limit(limit));
    while (view_row(view, arena, stmt, out, &capacity, count, sizeof **out)) {
        int64_t at = sqlite3_column_int64(stmt, 0);
        (*out)[count++] = (ProbeRow){
            .t_us = at,
            .latency_us = sqlite3_column_int64(stmt, 1),
            .kind = (ProbeKind)sqlite3_column_int(stmt, 2),
            .outcome = view_text(view, arena, stmt, 3),
            .status = sqlite3_column_int(stmt, 4),
            .incarnation = sqlite3_column_int64(stmt, 5),
            .policy_version = sqlite3_column_int64(stmt, 6),
            .running = column_val(stmt, 7, at),
            .waiting = column_val(stmt, 8, at),
        };
    }
    view_end(view);
    return view_good(view) ? count : 0;
}
