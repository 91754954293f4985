#include "store/view_private.h"

/* Engines at T: who they were (roster) and how they were (pulse), see view_memory.h. */

static void fill_identity(View *view, Arena *arena, const Member *member, EngineRow *row)
{
    row->engine = member->engine;
    row->name = view_copy(view, arena, member->name);
    row->address = view_copy(view, arena, member->address);
    row->local = member->local;
    row->first_seen_us = member->first_seen_us;
    row->incarnation = row->incarnations = member->incarnation; /* numbered from 1 on */
    row->pid = member->pid;
    row->state = member->state;
    row->state_since_us = member->stated ? member->since_us : member->first_seen_us;
    row->policy_version = member->policy_version;
    row->reason = view_copy(view, arena, member->reason);
}

static void fill_numbers(EngineRow *row, const EngineAcc *now, const EngineAcc *minute,
                         double minutes)
{
    row->seen_us = now->ok_us;
    row->reported_version = now->policy_version;
    row->running = now->running;
    row->waiting = now->waiting;
    row->kv_usage = now->usage;
    if (now->incarnation > row->incarnation) {
        row->incarnation = now->incarnation;
    }
    int64_t seen_us = now->ok_us;
    if (minutes > 0) {
        row->errors_per_min = val_of((double)(now->errors - minute->errors) / minutes, seen_us);
        if (now->retracted_counter.known) {
            row->retracted_per_min = val_of((now->retracted - minute->retracted) / minutes,
                                            seen_us);
        }
    }
    int64_t firsts = now->first_tokens - minute->first_tokens;
    if (firsts > 0) {
        double sum_us = (double)(now->first_token_us - minute->first_token_us);
        row->ttft_ms = val_of(sum_us / 1000 / (double)firsts, seen_us);
    }
    /* Little's law over the decode batch: each running request gets one token an interval. */
    if (row->tokens_per_s.known && row->tokens_per_s.v > 0 && row->running.known &&
        row->running.v >= 1) {
        row->itl_ms = val_of(1000 * row->running.v / row->tokens_per_s.v,
                             row->tokens_per_s.seen_us);
    }
}

static void fill_pulse(View *view, PulseWalk *walk, const SparkShape *spark, int64_t t_us,
                       EngineRow *row)
{
    static const EngineAcc nothing = {.policy_version = -1};
    size_t count = 0;
    const Seen *seen = pulse_seen(walk, row->engine, &count);
    row->tokens_per_s = rate_of(seen, count);
    if (!row->tokens_per_s.known && walk->grain_us > SECOND_US) {
        row->tokens_per_s = view_rolled(view, ROLL_TOKENS, row->engine, t_us);
    }
    row->spark_count = spark->cells;
    rate_spark(seen, count, t_us, spark, walk->grain_us, row->spark);
    const EngineAcc *now = acc_get(walk->now, row->engine);
    const EngineAcc *minute = walk->minute ? acc_get(walk->minute, row->engine) : NULL;
    fill_numbers(row, now ? now : &nothing, minute ? minute : &nothing, walk->minutes);
}

EngineList view_engines(View *view, int64_t t_us, int spark_count, int64_t spark_us, Arena *arena)
{
    EngineList list = {0};
    PulseWalk walk;
    int cells = spark_count < 0 ? 0 : spark_count;
    SparkShape spark = {.cells = cells > VIEW_SPARK_MAX ? VIEW_SPARK_MAX : cells,
                        .cell_us = spark_us > 0 ? spark_us : SECOND_US};
    view_begin(view, t_us);
    size_t count = 0;
    const Member *members = roster_all(view, t_us, ROSTER_ALL, &count);
    pulse_at(view, t_us, &spark, &walk);
    list.rows = view_alloc(view, arena, count, sizeof *list.rows);
    for (size_t i = 0; i < count && view_good(view); i++) {
        if (members[i].present) { /* else it appeared after T */
            EngineRow *row = &list.rows[list.count++];
            fill_identity(view, arena, &members[i], row);
            fill_pulse(view, &walk, &spark, t_us, row);
        }
    }
    view_end(view);
    pulse_walk_free(&walk);
    if (!view_good(view)) {
        list.count = 0;
    }
    return list;
}

EngineList view_known_engines(View *view, Arena *arena)
{
    static const char next[] = "SELECT min(engine) FROM engine WHERE engine > ?";
    static const char sql[] = "SELECT name, address, local, (SELECT coalesce(max(incarnation), 0)"
                              " FROM incarnation WHERE engine = ?1) FROM engine"
                              " WHERE engine = ?1 ORDER BY change_id DESC LIMIT 1";
    EngineList list = {0};
    size_t capacity = 0;
    view_begin(view, 0);
    for (int64_t engine = 0; view_good(view);) {
        engine = view_number(view, VIEW_QUERY(view, next, engine), -1);
        if (engine < 0 || list.count == VIEW_ROWS_MAX ||
            !view_grow(view, arena, &list.rows, &capacity, list.count, sizeof *list.rows)) {
            break;
        }
        sqlite3_stmt *stmt = VIEW_QUERY(view, sql, engine);
        if (view_next(view, stmt)) {
            EngineRow *row = &list.rows[list.count++];
            *row = (EngineRow){.engine = engine, .reported_version = -1, .policy_version = -1};
            row->name = view_text(view, arena, stmt, 0);
            row->address = view_text(view, arena, stmt, 1);
            row->local = sqlite3_column_int(stmt, 2) != 0;
            row->incarnation = row->incarnations = sqlite3_column_int64(stmt, 3);
            sqlite3_reset(stmt);
        }
    }
    view_end(view);
    list.count = view_good(view) ? list.count : 0;
    return list;
}

void view_rates(View *view, int64_t t_us, RateSum *out)
{
    static const SparkShape no_spark = {0};
    PulseWalk walk;
    *out = (RateSum){val_none(), val_none()};
    pulse_at(view, t_us, &no_spark, &walk);
    double usage = 0;
    int usages = 0;
    for (size_t i = 0; i < walk.now->count; i++) {
        const EngineAcc *acc = &walk.now->items[i];
        size_t count = 0;
        const Seen *seen = pulse_seen(&walk, acc->engine, &count);
        Val rate = rate_of(seen, count);
        if (acc->engine != 0 && rate.known && t_us - rate.seen_us <= RATE_WINDOW_US) {
            int64_t newest_us = out->tokens_per_s.seen_us;
            out->tokens_per_s = val_of(out->tokens_per_s.v + rate.v,
                                       rate.seen_us > newest_us ? rate.seen_us : newest_us);
        }
        if (acc->engine != 0 && acc->usage.known && t_us - acc->usage.seen_us <= FRESH_US) {
            usage += acc->usage.v;
            usages++;
            int64_t newest_us = out->kv_usage.seen_us;
            int64_t seen_us = acc->usage.seen_us;
            out->kv_usage = val_of(usage / usages, seen_us > newest_us ? seen_us : newest_us);
        }
    }
    if (!out->tokens_per_s.known && walk.grain_us > SECOND_US) {
        out->tokens_per_s = view_rolled(view, ROLL_TOKENS, ROLLUP_FLEET, t_us);
    }
    pulse_walk_free(&walk);
}

const char *view_engine_name(View *view, Arena *arena, int64_t engine, int64_t t_us)
{
    const Member *member = engine != 0 ? roster_find(view, engine, t_us, 1U << ROSTER_NAME) : NULL;
    return member != NULL ? view_copy(view, arena, member->name) : NULL;
}

int64_t view_engine_version(View *view, int64_t engine, int64_t t_us)
{
    const Member *member = roster_find(view, engine, t_us, 1U << ROSTER_STATE);
    return member != NULL ? member->policy_version : -1;
}
