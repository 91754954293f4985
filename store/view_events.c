#include "store/view_private.h"

#include <string.h>

enum { FILTER_SCAN = 20000 }; /* events looked at for a filter, newest first */

/* ---- events ---- */

static bool matches(sqlite3_stmt *stmt, const char *filter)
{
    const char *source = (const char *)sqlite3_column_text(stmt, 4);
    const char *text = (const char *)sqlite3_column_text(stmt, 5);
    return (source != NULL && strcasestr(source, filter) != NULL) ||
           (text != NULL && strcasestr(text, filter) != NULL);
}

/* At 100,000 events a second ten minutes hold 60 million: no more than the newest are counted. */
static void count_severities(View *view, int64_t t_us, EventList *list)
{
    static const char sql[] = "SELECT severity FROM event WHERE t_us > ?1 AND t_us <= ?2"
                              " ORDER BY t_us DESC LIMIT ?3";
    int64_t *const counts[] = {[SEVERITY_INFO] = &list->info_10min,
                               [SEVERITY_WARN] = &list->warn_10min,
                               [SEVERITY_CRIT] = &list->crit_10min};
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, t_us - 600 * (int64_t)SECOND_US, t_us,
                                    (int64_t)VIEW_EVENTS_COUNTED + 1);
    for (int n = 0; view_next(view, stmt); n++) {
        int severity = sqlite3_column_int(stmt, 0);
        list->more_10min = n == VIEW_EVENTS_COUNTED;
        if (n < VIEW_EVENTS_COUNTED && severity >= SEVERITY_INFO && severity <= SEVERITY_CRIT) {
            ++*counts[severity];
        }
    }
}

static void reverse(EventRow *rows, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        EventRow row = rows[i];
        rows[i] = rows[count - 1 - i];
        rows[count - 1 - i] = row;
    }
}

/* With a filter, `total` counts the matches among the newest FILTER_SCAN events. */
EventList view_events(View *view, int64_t t_us, size_t limit, int64_t before_id,
                      const char *filter, Arena *arena)
{
    static const char sql[] =
        "SELECT event_id, t_us, engine, severity, source, text FROM event WHERE t_us <= ?1"
        " AND event_id < ?2 ORDER BY t_us DESC, event_id DESC LIMIT ?3";
    static const char total[] = "SELECT event_id FROM event WHERE t_us <= ?1"
                                " ORDER BY t_us DESC, event_id DESC LIMIT 1";
    EventList list = {0};
    size_t capacity = 0;
    bool filtered = filter != NULL && filter[0] != '\0';
    limit = view_limit(limit);
    view_begin(view, t_us);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, t_us, before_id > 0 ? before_id : INT64_MAX,
                                    filtered ? FILTER_SCAN : (int64_t)limit);
    while (view_next(view, stmt)) {
        if (filtered && !matches(stmt, filter)) {
            continue;
        }
        list.total++;
        if (list.count == limit) {
            continue;
        }
        if (!view_grow(view, arena, &list.rows, &capacity, list.count, sizeof *list.rows)) {
            sqlite3_reset(stmt);
            break;
        }
        list.rows[list.count++] = (EventRow){.id = sqlite3_column_int64(stmt, 0),
                                             .t_us = sqlite3_column_int64(stmt, 1),
                                             .engine = sqlite3_column_int64(stmt, 2),
                                             .severity = (Severity)sqlite3_column_int(stmt, 3),
                                             .source = view_text(view, arena, stmt, 4),
                                             .text = view_text(view, arena, stmt, 5)};
    }
    reverse(list.rows, list.count);
    if (!filtered) { /* events are numbered from 1 on in order of arrival */
        list.total = (size_t)view_number(view, VIEW_QUERY(view, total, t_us), 0);
    }
    count_severities(view, t_us, &list);
    view_end(view);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}

/* ---- alerts ---- */

AlertList view_alerts(View *view, int64_t t_us, size_t limit, Arena *arena)
{
    static const char sql[] =
        "SELECT i.incident_id, i.onset_us, i.engine, i.class, coalesce(c.evidence, i.evidence),"
        " i.next_key, " VIEW_ALERT_SEVERITY " AS severity, coalesce(c.t_us, 0)" VIEW_ALERTS_AT
        " ORDER BY severity DESC, i.onset_us, i.incident_id LIMIT ?4";
    AlertList list = {0};
    size_t capacity = 0;
    Tick last;
    Tick after;
    view_begin(view, t_us);
    tick_at(&view->db, t_us, &last, &view->fault);
    tick_after(&view->db, t_us, &after, &view->fault);
    limit = view_limit(limit);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, last.incident_open, after.incident, t_us,
                                    (int64_t)limit);
    while (view_row(view, arena, stmt, &list.rows, &capacity, list.count, sizeof *list.rows)) {
        list.rows[list.count++] = (AlertRow){.incident = sqlite3_column_int64(stmt, 0),
                                             .onset_us = sqlite3_column_int64(stmt, 1),
                                             .engine = sqlite3_column_int64(stmt, 2),
                                             .class_name = view_text(view, arena, stmt, 3),
                                             .evidence = view_text(view, arena, stmt, 4),
                                             .next_key = view_text(view, arena, stmt, 5),
                                             .severity = (Severity)sqlite3_column_int(stmt, 6),
                                             .known_us = sqlite3_column_int64(stmt, 7)};
    }
    view_end(view);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}

RuleList view_rules(View *view, int64_t t_us, Arena *arena)
{
    static const char sql[] = "SELECT class, words, changed FROM alert_rule WHERE t_us ="
                              " (SELECT max(t_us) FROM alert_rule WHERE t_us <= ?1)"
                              " ORDER BY rule_id";
    RuleList list = {0};
    size_t capacity = 0;
    view_begin(view, t_us);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, t_us);
    while (view_row(view, arena, stmt, &list.rows, &capacity, list.count, sizeof *list.rows)) {
        list.rows[list.count++] = (RuleRow){.class_name = view_text(view, arena, stmt, 0),
                                            .words = view_text(view, arena, stmt, 1),
                                            .changed = sqlite3_column_int(stmt, 2) != 0};
    }
    view_end(view);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}

/* ---- commands ---- */

/* Later facts of a command may leave out what the first ones said. */
static void fill_command(View *view, Arena *arena, int64_t t_us, CommandRow *row)
{
    static const char sql[] =
        "SELECT t_us, who, what, target, reason, state, answer FROM command"
        " WHERE command_id = ?1 AND t_us <= ?2 ORDER BY t_us, change_id";
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, row->command, t_us);
    while (view_next(view, stmt)) {
        row->updated_us = sqlite3_column_int64(stmt, 0);
        row->asked_us = row->asked_us != 0 ? row->asked_us : row->updated_us;
        const char **fields[] = {&row->who,    &row->what,  &row->target,
                                 &row->reason, &row->state, &row->answer};
        for (int i = 0; i < 6; i++) {
            const char *text = view_text(view, arena, stmt, i + 1);
            *fields[i] = text != NULL ? text : *fields[i];
        }
    }
}

CommandList view_commands(View *view, int64_t t_us, size_t limit, Arena *arena)
{
    static const char sql[] = "SELECT command_id FROM command WHERE t_us <= ?1"
                              " GROUP BY command_id ORDER BY command_id DESC LIMIT ?2";
    static const char total[] =
        "SELECT count(DISTINCT command_id) FROM command WHERE t_us <= ?1";
    CommandList list = {0};
    size_t capacity = 0;
    limit = view_limit(limit);
    view_begin(view, t_us);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, t_us, (int64_t)limit);
    while (view_row(view, arena, stmt, &list.rows, &capacity, list.count, sizeof *list.rows)) {
        list.rows[list.count++] = (CommandRow){.command = sqlite3_column_int64(stmt, 0)};
    }
    for (size_t i = 0; i < list.count && view_good(view); i++) {
        fill_command(view, arena, t_us, &list.rows[i]);
    }
    list.total = (size_t)view_number(view, VIEW_QUERY(view, total, t_us), 0);
    view_end(view);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}
