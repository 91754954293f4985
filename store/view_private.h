/* What the parts of the read model share: one connection, one read transaction a call, rows
 * copied into the caller's arena. */
#ifndef ROLLTOP_STORE_VIEW_PRIVATE_H
#define ROLLTOP_STORE_VIEW_PRIVATE_H

#include "store/rollup.h"
#include "store/tick.h"
#include "store/trim.h"
#include "store/view.h"
#include "store/view_memory.h"

enum { VIEW_ROWS_MAX = 20000, FRESH_US = 30000000 };

struct View {
    Db db;
    Fault fault;          /* of the last call */
    int64_t data_version; /* as last seen by view_changed */
    int depth;            /* of nested calls */
    bool held;            /* one transaction over several calls */
    int64_t turn;         /* number of the transaction, from 1 on */
    int64_t turn_version; /* data_version in it; -1: not asked yet */
    double *scratch;      /* medians and percentiles */
    size_t scratch_capacity;
    Roster *roster; /* these are made when first needed */
    Pulse *pulse;
    Recent *recent;
};

/* Brackets of a public call: one read transaction, the fault emptied at its start. Calls nest.
 * `t_us`: the moment that is asked for; 0: none. */
void view_begin(View *view, int64_t t_us);
void view_end(View *view);
bool view_good(const View *view);
/* Grows with what others commit; the same throughout a transaction. */
int64_t view_version(View *view);

/* Binds int64 parameters to a literal; NULL when it failed (then the view has its fault). */
#define VIEW_QUERY(view, sql, ...)                                                                \
    view_query((view), (sql), (const int64_t[]){__VA_ARGS__},                                     \
               sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
sqlite3_stmt *view_query(View *view, const char *sql, const int64_t *values, size_t count);
/* Next row; resets the statement at the end. stmt may be NULL (false). */
bool view_next(View *view, sqlite3_stmt *stmt);
/* One number, or the fallback; the statement is reset. */
int64_t view_number(View *view, sqlite3_stmt *stmt, int64_t fallback);

/* NULL at the arena's bound, with a fault. `count` 0 gives a valid pointer. */
void *view_alloc(View *view, Arena *arena, size_t count, size_t size);
/* Text of a column, NULL for NULL. */
const char *view_text(View *view, Arena *arena, sqlite3_stmt *stmt, int column);
const char *view_copy(View *view, Arena *arena, const char *text); /* NULL for NULL */
/* Unpacked blob of a column as bytes. */
Str view_blob(View *view, Arena *arena, sqlite3_stmt *stmt, int column);
/* Room for one more row in an arena array that grows by doubling; false at the bound. */
bool view_grow(View *view, Arena *arena, void *rows, size_t *capacity, size_t count, size_t size);
/* The step of a list: view_next and view_grow in one. False at the end, after a fault and at the
 * arena's bound; the statement is reset then. */
bool view_row(View *view, Arena *arena, sqlite3_stmt *stmt, void *rows, size_t *capacity,
              size_t count, size_t size);
size_t view_limit(size_t limit); /* at most VIEW_ROWS_MAX */

/* Sorts `count` numbers of view->scratch; room is made by view_scratch. */
double *view_scratch(View *view, size_t count);
double view_quantile(double *values, size_t count, double q); /* sorts; count > 0 */

/* Alerts open at T (?3) among numbers ?1 to ?2: `i` their rows, `c` what was known of each by then.
 * Logs of older schemas know the worst only: no `c`. */
#define VIEW_ALERTS_AT                                                                            \
    " FROM incident i LEFT JOIN incident_change c ON c.change_id = (SELECT x.change_id"           \
    " FROM incident_change x WHERE x.incident_id = i.incident_id AND x.t_us <= ?3"                \
    " ORDER BY x.t_us DESC, x.change_id DESC LIMIT 1)"                                            \
    " WHERE i.incident_id >= ?1 AND i.incident_id <= ?2 AND i.onset_us <= ?3"                     \
    " AND (i.ended_us IS NULL OR i.ended_us > ?3) AND (c.change_id IS NOT NULL"                   \
    " OR NOT EXISTS (SELECT 1 FROM incident_change y WHERE y.incident_id = i.incident_id))"
#define VIEW_ALERT_SEVERITY "coalesce(c.severity, i.severity)"

/* Shared questions. */
Trimmed view_trimmed(View *view);
/* How far apart ticks are at that time: a second, or the bucket that a trim left. */
int64_t view_grain_us(const Trimmed *trimmed, int64_t t_us);
/* Mean of a series over the minute (or what is left of it) at T. */
Val view_rolled(View *view, RollProbe series, int64_t engine, int64_t t_us);
typedef struct RateSum { /* over all engines */
    Val tokens_per_s, kv_usage;
} RateSum;
void view_rates(View *view, int64_t t_us, RateSum *out);
bool view_current_step(View *view, int64_t t_us, int64_t *step);
const char *view_engine_name(View *view, Arena *arena, int64_t engine, int64_t t_us);
int64_t view_committed(View *view, int64_t t_us);          /* version, -1 none */
int64_t view_engine_version(View *view, int64_t engine, int64_t t_us); /* verified, -1 */
void view_phase_at(View *view, int64_t t_us, LoopPhase *phase, int64_t *since_us);

#endif
