#include "store/view_private.h"

#include <stdlib.h>

static double phase_median(View *view, LoopPhase phase, int64_t t_us)
{
    static const char sql[] = "SELECT ended_us - started_us FROM phase WHERE phase = ?1"
                              " AND started_us <= ?2 AND ended_us <= ?2"
                              " ORDER BY started_us DESC LIMIT 51";
    double *spells = view_scratch(view, 51);
    size_t count = 0;
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, (int64_t)phase, t_us);
    while (view_next(view, stmt)) {
        spells[count++] = (double)sqlite3_column_int64(stmt, 0) / 1e6;
    }
    return count < 3 ? -1 : view_quantile(spells, count, 0.5);
}

static void fill_policy(View *view, int64_t t_us, HeaderView *out)
{
    static const char newest[] = "SELECT version FROM policy WHERE t_us <= ?"
                                 " ORDER BY t_us DESC, change_id DESC LIMIT 1";
    out->policy_version = view_committed(view, t_us);
    out->trainer_version = view_number(view, VIEW_QUERY(view, newest, t_us), -1);
}

static Val newest_val(View *view, const char *sql, int64_t t_us)
{
    Val v = val_none();
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, t_us);
    if (view_next(view, stmt)) {
        v = column_val(stmt, 0, sqlite3_column_int64(stmt, 1));
        sqlite3_reset(stmt);
    }
    return v;
}

static void fill_steps(View *view, int64_t t_us, HeaderView *out)
{
    /* Steps are numbered one by one: no counting. An eval before the first step is step -1. */
    static const char done[] =
        "SELECT step + 1 - (SELECT min(step) FROM step WHERE step >= 0) FROM step"
        " WHERE started_us <= ?1 AND ended_us <= ?1 AND outcome = 'ok'"
        " ORDER BY started_us DESC LIMIT 1";
    static const char reward[] =
        "SELECT reward_mean, ended_us FROM step WHERE started_us <= ?1 AND ended_us <= ?1"
        " AND reward_mean IS NOT NULL ORDER BY started_us DESC LIMIT 1";
    static const char eval[] =
        "SELECT eval_reward_mean, ended_us FROM step WHERE started_us <= ?1 AND ended_us <= ?1"
        " AND eval_reward_mean IS NOT NULL ORDER BY started_us DESC LIMIT 1";
    static const char eval_first[] =
        "SELECT eval_reward_mean, ended_us FROM step WHERE started_us <= ?1 AND ended_us <= ?1"
        " AND eval_reward_mean IS NOT NULL ORDER BY started_us LIMIT 1";
    view_current_step(view, t_us, &out->step);
    out->steps_done = view_number(view, VIEW_QUERY(view, done, t_us), 0);
    out->reward_mean = newest_val(view, reward, t_us);
    out->eval_reward_mean = newest_val(view, eval, t_us);
    out->eval_reward_first = newest_val(view, eval_first, t_us);
}

static void fill_samples(View *view, int64_t t_us, HeaderView *out)
{
    static const char done[] =
        "SELECT count(*) FROM attempt WHERE step = ?1 AND eval = ?3 AND ended_us <= ?2"
        " AND fate = ?4";
    static const char want[] =
        "SELECT sum(want) FROM sample_group WHERE step = ?1 AND eval = ?3 AND t_us <= ?2";
    int64_t eval = out->phase == PHASE_EVAL;
    FlightList flights = {0};
    /* Samples of an eval before the first step belong to the step that follows it. */
    int64_t step = out->step > 0 ? out->step : 0;
    out->samples_done = view_number(view,
                                    VIEW_QUERY(view, done, step, t_us, eval, FATE_ACCEPTED), 0);
    out->samples_want = view_number(view, VIEW_QUERY(view, want, step, t_us, eval), 0);
    out->tail_p50_s = out->tail_p99_s = out->tail_max_s = -1;
    if (view_good(view) &&
        flight_load(&view->db, t_us, &flights, &view->fault) == ERR_OK && flights.count > 0) {
        double *ages = view_scratch(view, flights.count);
        for (size_t i = 0; i < flights.count; i++) {
            ages[i] = (double)(t_us - flights.items[i].started_us) / 1e6;
        }
        out->tail_p50_s = view_quantile(ages, flights.count, 0.5);
        out->tail_p99_s = view_quantile(ages, flights.count, 0.99);
        out->tail_max_s = ages[flights.count - 1];
    }
    out->samples_inflight = (int64_t)flights.count;
    flight_free(&flights);
    Trimmed trimmed = view_trimmed(view);
    out->grain_s = view_grain_us(&trimmed, t_us) / SECOND_US;
    if (t_us < trimmed.before_us) {
        out->samples_inflight = -1;
        out->samples_done = step < trimmed.step ? -1 : out->samples_done;
        out->samples_want = step < trimmed.step ? -1 : out->samples_want;
        out->tail_p50_s = out->tail_p99_s = out->tail_max_s = -1;
    }
}

static void fill_rates(View *view, int64_t t_us, HeaderView *out)
{
    RateSum sum;
    view_rates(view, t_us, &sum);
    out->tokens_per_s = sum.tokens_per_s;
    out->kv_usage = sum.kv_usage;
    Tick now;
    Tick before;
    tick_at(&view->db, t_us, &now, &view->fault);
    tick_at(&view->db, t_us - 600 * (int64_t)SECOND_US, &before, &view->fault);
    if (now.found && !before.found) { /* younger than ten minutes: since the beginning */
        static const char first[] = "SELECT second, tokens FROM tick ORDER BY second LIMIT 1";
        sqlite3_stmt *stmt = view_query(view, first, NULL, 0);
        if (view_next(view, stmt)) {
            before.found = true;
            before.second = sqlite3_column_int64(stmt, 0);
            before.tokens = sqlite3_column_double(stmt, 1);
            sqlite3_reset(stmt);
        }
    }
    if (now.found && before.found && now.second > before.second) {
        out->tokens_per_s_10min = val_of((now.tokens - before.tokens) /
                                             (double)(now.second - before.second),
                                         now.last_us);
    }
}

static void fill_alerts(View *view, int64_t t_us, HeaderView *out)
{
    static const char sql[] =
        "SELECT count(*), sum(" VIEW_ALERT_SEVERITY " = ?4)" VIEW_ALERTS_AT;
    static const char outage[] = "SELECT from_us FROM outage WHERE from_us <= ?1 AND to_us > ?1"
                                 " ORDER BY outage_id DESC LIMIT 1";
    Tick last;
    Tick after;
    tick_at(&view->db, t_us, &last, &view->fault);
    tick_after(&view->db, t_us, &after, &view->fault);
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql, last.incident_open, after.incident, t_us,
                                    SEVERITY_CRIT);
    if (view_next(view, stmt)) {
        out->alerts_open = sqlite3_column_int64(stmt, 0);
        out->alerts_crit = sqlite3_column_int64(stmt, 1);
        sqlite3_reset(stmt);
    }
    out->not_recording_since_us = view_number(view, VIEW_QUERY(view, outage, t_us), 0);
}

bool view_header(View *view, int64_t t_us, Arena *arena, HeaderView *out)
{
    (void)arena; /* nothing in it is text */
    *out = (HeaderView){.t_us = t_us, .step = -1, .policy_version = -1, .trainer_version = -1};
    view_begin(view, t_us);
    view_phase_at(view, t_us, &out->phase, &out->phase_since_us);
    out->paused = out->phase == PHASE_PAUSE;
    out->phase_median_s = phase_median(view, out->phase, t_us);
    fill_steps(view, t_us, out);
    fill_policy(view, t_us, out);
    fill_samples(view, t_us, out);
    fill_rates(view, t_us, out);
    fill_alerts(view, t_us, out);
    if (view_good(view)) {
        db_last_us(&view->db, t_us, &out->last_fact_us, &view->fault);
    }
    view_end(view);
    return view_good(view);
}
