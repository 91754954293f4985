#include "store/view_private.h"

int64_t view_committed(View *view, int64_t t_us)
{
    static const char sql[] = "SELECT version FROM policy_state WHERE state = ?1 AND t_us <= ?2"
                              " ORDER BY t_us DESC, change_id DESC LIMIT 1";
    return view_number(view, VIEW_QUERY(view, sql, POLICY_COMMITTED, t_us), -1);
}

static void fill_policy(View *view, Arena *arena, int64_t t_us, PolicyRow *row)
{
    static const char state[] =
        "SELECT state, t_us, txn_id, reason FROM policy_state WHERE version = ?1 AND t_us <= ?2"
        " ORDER BY t_us DESC, change_id DESC LIMIT 1";
    row->state = POLICY_PUBLISHED;
    row->state_us = row->published_us;
    sqlite3_stmt *stmt = VIEW_QUERY(view, state, row->version, t_us);
    if (view_next(view, stmt)) {
        row->state = (PolicyState)sqlite3_column_int(stmt, 0);
        row->state_us = sqlite3_column_int64(stmt, 1);
        row->txn = sqlite3_column_int64(stmt, 2);
        row->reason = view_text(view, arena, stmt, 3);
        sqlite3_reset(stmt);
    }
}

/* One walk over the engines for all rows: each engine has one newest state at T. */
static void count_engines(View *view, int64_t t_us, PolicyList *list)
{
    size_t count = 0;
    size_t at = 0; /* nearly all engines hold the version of the one before */
    const Member *members = roster_all(view, t_us, 1U << ROSTER_STATE, &count);
    for (size_t i = 0; i < count && list->count > 0; i++) {
        int64_t version = members[i].policy_version;
        if (!members[i].stated || members[i].state == ENGINE_GONE || version < 0) {
            continue;
        }
        for (size_t k = 0; k < list->count && list->rows[at].version != version; k++) {
            at = k;
        }
        list->rows[at].engines += list->rows[at].version == version;
    }
}

PolicyList view_policies(View *view, int64_t t_us, size_t limit, Arena *arena)
{
    static const char sql[] =
        "SELECT version, parent, step, bytes, t_us, digest, path, kind FROM policy a"
        " WHERE t_us <= ?1 AND NOT EXISTS (SELECT 1 FROM policy b WHERE b.version = a.version"
        " AND b.t_us <= ?1 AND (b.t_us, b.change_id) > (a.t_us, a.change_id))"
        " ORDER BY t_us DESC, change_id DESC LIMIT ?2";
    /* Versions are numbered one by one, so the number of them is a difference. */
    static const char total[] =
        "SELECT (SELECT max(version) FROM (SELECT version FROM policy WHERE t_us <= ?1"
        " ORDER BY t_us DESC LIMIT 1)) - (SELECT version FROM policy ORDER BY t_us LIMIT 1) + 1";
    PolicyList list = {0};
    size_t capacity = 0;
    limit = view_limit(limit);
    view_begin(view, t_us);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, t_us, (int64_t)limit);
    while (view_row(view, arena, stmt, &list.rows, &capacity, list.count, sizeof *list.rows)) {
        list.rows[list.count++] = (PolicyRow){.version = sqlite3_column_int64(stmt, 0),
                                              .parent = column_i64(stmt, 1, -1),
                                              .step = sqlite3_column_int64(stmt, 2),
                                              .bytes = sqlite3_column_int64(stmt, 3),
                                              .published_us = sqlite3_column_int64(stmt, 4),
                                              .digest = view_text(view, arena, stmt, 5),
                                              .path = view_text(view, arena, stmt, 6),
                                              .kind = view_text(view, arena, stmt, 7)};
    }
    for (size_t i = 0; i < list.count && view_good(view); i++) {
        fill_policy(view, arena, t_us, &list.rows[i]);
    }
    count_engines(view, t_us, &list);
    list.total = (size_t)view_number(view, VIEW_QUERY(view, total, t_us), 0);
    view_end(view);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}

#define TXN_COLUMNS                                                                               \
    "SELECT txn_id, started_us, ended_us, from_version, to_version, engines, pause_us,"           \
    " command_id, why, outcome, decision_reason, decided, decided_us FROM txn "

static TxnRow txn_row(View *view, Arena *arena, sqlite3_stmt *stmt, int64_t t_us)
{
    TxnRow row = {.txn = sqlite3_column_int64(stmt, 0),
                  .started_us = sqlite3_column_int64(stmt, 1),
                  .from_version = column_i64(stmt, 3, -1),
                  .to_version = column_i64(stmt, 4, -1),
                  .engines = sqlite3_column_int64(stmt, 5),
                  .command = sqlite3_column_int64(stmt, 7),
                  .why = view_text(view, arena, stmt, 8),
                  .decided = -1};
    int64_t ended_us = sqlite3_column_int64(stmt, 2);
    int64_t decided_us = sqlite3_column_int64(stmt, 12);
    if (decided_us != 0 && decided_us <= t_us) {
        row.decided_us = decided_us;
        row.decided = sqlite3_column_int(stmt, 11) != 0;
        row.decision_reason = view_text(view, arena, stmt, 10);
    }
    if (ended_us != 0 && ended_us <= t_us) {
        row.ended_us = ended_us;
        row.pause_us = sqlite3_column_int64(stmt, 6);
        row.outcome = view_text(view, arena, stmt, 9);
    }
    return row;
}

TxnList view_txns(View *view, int64_t t_us, size_t limit, Arena *arena)
{
    static const char sql[] = TXN_COLUMNS
        "WHERE started_us <= ?1 ORDER BY started_us DESC, txn_id DESC LIMIT ?2";
    /* Transactions are numbered from 1 on. */
    static const char total[] = "SELECT txn_id FROM txn WHERE started_us <= ?1"
                                " ORDER BY started_us DESC, txn_id DESC LIMIT 1";
    TxnList list = {0};
    size_t capacity = 0;
    limit = view_limit(limit);
    view_begin(view, t_us);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, t_us, (int64_t)limit);
    while (view_row(view, arena, stmt, &list.rows, &capacity, list.count, sizeof *list.rows)) {
        list.rows[list.count++] = txn_row(view, arena, stmt, t_us);
    }
    list.total = (size_t)view_number(view, VIEW_QUERY(view, total, t_us), 0);
    view_end(view);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}

static void fill_answers(View *view, int64_t t_us, Arena *arena, TxnRow *row)
{
    static const char sql[] =
        "SELECT engine, incarnation, t_us, took_us, phase, ok, detail FROM txn_answer"
        " WHERE txn_id = ?1 AND t_us <= ?2 ORDER BY answer_id";
    size_t capacity = 0;
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, row->txn, t_us);
    while (view_next(view, stmt)) {
        if (row->answer_count == VIEW_ROWS_MAX ||
            !view_grow(view, arena, &row->answers, &capacity, row->answer_count,
                       sizeof *row->answers)) {
            sqlite3_reset(stmt);
            break;
        }
        row->answers[row->answer_count++] =
            (TxnAnswerRow){.engine = sqlite3_column_int64(stmt, 0),
                           .incarnation = sqlite3_column_int64(stmt, 1),
                           .t_us = sqlite3_column_int64(stmt, 2),
                           .took_us = sqlite3_column_int64(stmt, 3),
                           .phase = (TxnPhase)sqlite3_column_int(stmt, 4),
                           .ok = sqlite3_column_int(stmt, 5) != 0,
                           .detail = view_text(view, arena, stmt, 6)};
    }
}

bool view_txn(View *view, int64_t txn, int64_t t_us, Arena *arena, TxnRow *out)
{
    static const char sql[] = TXN_COLUMNS "WHERE txn_id = ?1 AND started_us <= ?2";
    *out = (TxnRow){.decided = -1};
    view_begin(view, t_us);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, txn, t_us);
    bool found = view_next(view, stmt);
    if (found) {
        *out = txn_row(view, arena, stmt, t_us);
        sqlite3_reset(stmt);
        fill_answers(view, t_us, arena, out);
    }
    view_end(view);
    return found && view_good(view);
}
