#include "tui/snapshot_json.h"

#include "tui/state.h"

#include <math.h>

static void put_val(JsonOut *j, const char *key, Val v)
{
    json_key(j, key);
    if (!v.known || !isfinite(v.v)) {
        json_put_null(j);
        return;
    }
    json_object_begin(j);
    json_member_double(j, "value", v.v);
    json_key(j, "seen_us");
    if (v.seen_us > 0) {
        json_put_i64(j, v.seen_us);
    } else {
        json_put_null(j);
    }
    json_object_end(j);
}

/* Numbers of which `least - 1` means that there is none: times from 1, versions from 0. */
static void put_from(JsonOut *j, const char *key, int64_t v, int64_t least)
{
    json_key(j, key);
    if (v < least) {
        json_put_null(j);
    } else {
        json_put_i64(j, v);
    }
}

static void put_time(JsonOut *j, const char *key, int64_t us)
{
    put_from(j, key, us, 1);
}

static void put_version(JsonOut *j, const char *key, int64_t version)
{
    put_from(j, key, version, 0);
}

static void put_seconds(JsonOut *j, const char *key, double s)
{
    json_key(j, key);
    if (s < 0 || !isfinite(s)) {
        json_put_null(j);
    } else {
        json_put_double(j, s);
    }
}

static void put_engine_name(JsonOut *j, const Snapshot *s, int64_t engine)
{
    const EngineRow *row = engine > 0 ? snapshot_engine(s, engine) : NULL;
    json_member_string(j, "engine", row ? row->name : NULL);
}

/* "name": {"total": n, "rows": [ … */
static void list_begin(JsonOut *j, const char *key, int64_t total)
{
    json_key(j, key);
    json_object_begin(j);
    put_from(j, "total", total, 0); /* below: trimmed from the log */
    json_key(j, "rows");
    json_array_begin(j);
}

static void list_end(JsonOut *j)
{
    json_array_end(j);
    json_object_end(j);
}

static void put_run(JsonOut *j, const Snapshot *s)
{
    json_key(j, "run");
    json_object_begin(j);
    json_member_string(j, "id", s->run.run);
    json_member_string(j, "name", s->run.name);
    json_member_string(j, "host", s->run.host);
    json_member_string(j, "version", s->run.version);
    put_time(j, "started_us", s->run.started_us);
    put_time(j, "first_us", s->run.first_us);
    put_time(j, "last_us", s->run.last_us);
    json_member_bool(j, "ended", !s->run.core_alive);
    json_object_end(j);
}

/* What of the log cannot be read, at any time: an empty picture may be a damaged one. */
static void put_damage(JsonOut *j, const Snapshot *s)
{
    list_begin(j, "damage", (int64_t)s->damage_count);
    for (size_t i = 0; i < s->damage_count; i++) {
        const DamageRow *row = &s->damage[i];
        json_object_begin(j);
        json_member_string(j, "table", row->table_name);
        put_time(j, "from_us", row->from_us);
        put_time(j, "to_us", row->to_us);
        json_member_i64(j, "rows", row->rows);
        json_object_end(j);
    }
    list_end(j);
}

static void put_header(JsonOut *j, const Snapshot *s)
{
    const HeaderView *h = &s->header;
    json_key(j, "header");
    json_object_begin(j);
    json_member_string(j, "phase", loop_phase_name(h->phase));
    put_time(j, "phase_since_us", h->phase_since_us);
    put_seconds(j, "phase_median_s", h->phase_median_s);
    json_member_bool(j, "paused", h->paused);
    json_member_i64(j, "step", h->step);
    json_member_i64(j, "steps_done", h->steps_done);
    put_version(j, "policy_version", h->policy_version);
    put_version(j, "trainer_version", h->trainer_version);
    put_val(j, "tokens_per_s", h->tokens_per_s);
    put_val(j, "tokens_per_s_10min", h->tokens_per_s_10min);
    put_val(j, "kv_usage", h->kv_usage);
    put_from(j, "samples_done", h->samples_done, 0); /* null: trimmed */
    put_from(j, "samples_want", h->samples_want, 0); /* null: trimmed */
    put_from(j, "samples_inflight", h->samples_inflight, 0); /* null: trimmed */
    put_seconds(j, "tail_p50_s", h->tail_p50_s);
    put_seconds(j, "tail_p99_s", h->tail_p99_s);
    put_seconds(j, "tail_max_s", h->tail_max_s);
    put_val(j, "reward_mean", h->reward_mean);
    put_val(j, "eval_reward_mean", h->eval_reward_mean);
    put_val(j, "eval_reward_first", h->eval_reward_first);
    json_member_i64(j, "alerts_open", h->alerts_open);
    json_member_i64(j, "alerts_critical", h->alerts_crit);
    put_from(j, "grain_s", h->grain_s, 1);
    put_time(j, "last_fact_us", h->last_fact_us);
    put_time(j, "not_recording_since_us", h->not_recording_since_us);
    json_object_end(j);
}

static void put_load(JsonOut *j, const EngineRow *row, int64_t t_us)
{
    bool silent = state_silent(state_shown(row, t_us));
    put_val(j, "tokens_per_s", silent ? val_none() : row->tokens_per_s);
    put_val(j, "running", silent ? val_none() : row->running);
    put_val(j, "waiting", silent ? val_none() : row->waiting);
    put_val(j, "kv_usage", silent ? val_none() : row->kv_usage);
    put_val(j, "itl_ms", silent ? val_none() : row->itl_ms);
    put_val(j, "ttft_ms", silent ? val_none() : row->ttft_ms);
}

static void put_engines(JsonOut *j, const Snapshot *s)
{
    list_begin(j, "engines", (int64_t)s->engines.count);
    for (size_t i = 0; i < s->engines.count; i++) {
        const EngineRow *row = &s->engines.rows[i];
        json_object_begin(j);
        json_member_string(j, "name", row->name);
        json_member_string(j, "address", row->address);
        json_member_bool(j, "local", row->local);
        json_member_string(j, "state", state_look(state_shown(row, s->t_us))->word);
        json_member_string(j, "recorded_state", engine_state_name(row->state));
        put_time(j, "state_since_us", row->state_since_us);
        json_member_string(j, "reason", row->reason);
        put_version(j, "policy_version", row->policy_version);
        put_version(j, "reported_version", row->reported_version);
        json_member_i64(j, "incarnation", row->incarnation);
        json_member_i64(j, "incarnations", row->incarnations);
        put_from(j, "pid", row->pid, 1);
        put_load(j, row, s->t_us);
        put_val(j, "retracted_per_min", row->retracted_per_min);
        put_val(j, "errors_per_min", row->errors_per_min);
        put_time(j, "seen_us", row->seen_us);
        put_time(j, "first_seen_us", row->first_seen_us);
        json_object_end(j);
    }
    list_end(j);
}

static void put_tail(JsonOut *j, const Snapshot *s)
{
    list_begin(j, "in_flight", s->tail.trimmed ? -1 : (int64_t)s->tail.total);
    for (size_t i = 0; i < s->tail.count; i++) {
        const TailRow *row = &s->tail.rows[i];
        json_object_begin(j);
        json_member_i64(j, "sample", row->sample);
        json_member_i64(j, "group", row->group);
        json_member_i64(j, "step", row->step);
        json_member_string(j, "engine", row->engine > 0 ? row->engine_name : NULL);
        json_member_bool(j, "eval", row->eval);
        json_member_i64(j, "attempt", row->attempt);
        put_time(j, "started_us", row->started_us);
        put_time(j, "progress_us", row->progress_us);
        json_member_i64(j, "tokens", row->tokens);
        put_version(j, "policy_version", row->policy_version);
        json_object_end(j);
    }
    list_end(j);
    json_key(j, "groups");
    json_object_begin(j);
    int64_t least = s->tail.trimmed ? INT64_MAX : INT64_MIN;
    put_from(j, "complete", s->tail.groups_complete, least);
    put_from(j, "total", s->tail.groups_total, least);
    put_from(j, "blocked_by_one", s->tail.groups_blocked_by_one, least);
    json_object_end(j);
}

static void put_step(JsonOut *j, const StepRow *row)
{
    json_object_begin(j);
    json_member_i64(j, "step", row->step);
    put_time(j, "started_us", row->started_us);
    put_time(j, "ended_us", row->ended_us);
    json_member_string(j, "outcome", row->outcome);
    put_version(j, "policy_version", row->policy_version);
    json_member_i64(j, "samples", row->samples);
    json_member_i64(j, "tokens", row->tokens);
    put_val(j, "reward_mean", row->reward_mean);
    put_val(j, "reward_std", row->reward_std);
    put_val(j, "eval_reward_mean", row->eval_reward_mean);
    json_key(j, "phases");
    json_array_begin(j);
    for (size_t i = 0; i < row->span_count; i++) {
        json_object_begin(j);
        json_member_string(j, "phase", loop_phase_name(row->spans[i].phase));
        put_time(j, "from_us", row->spans[i].from_us);
        put_time(j, "to_us", row->spans[i].to_us);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
}

static void put_policies(JsonOut *j, const Snapshot *s)
{
    list_begin(j, "policies", (int64_t)s->policies.total);
    for (size_t i = 0; i < s->policies.count; i++) {
        const PolicyRow *row = &s->policies.rows[i];
        json_object_begin(j);
        json_member_i64(j, "version", row->version);
        put_version(j, "parent", row->parent);
        json_member_string(j, "state", policy_state_name(row->state));
        put_time(j, "state_us", row->state_us);
        put_time(j, "published_us", row->published_us);
        json_member_i64(j, "step", row->step);
        json_member_i64(j, "engines", row->engines);
        json_member_i64(j, "bytes", row->bytes);
        json_member_string(j, "digest", row->digest);
        json_member_string(j, "reason", row->reason);
        json_object_end(j);
    }
    list_end(j);
    list_begin(j, "updates", (int64_t)s->txns.total);
    for (size_t i = 0; i < s->txns.count; i++) {
        const TxnRow *row = &s->txns.rows[i];
        json_object_begin(j);
        json_member_i64(j, "update", row->txn);
        put_version(j, "from_version", row->from_version);
        put_version(j, "to_version", row->to_version);
        put_time(j, "started_us", row->started_us);
        put_time(j, "ended_us", row->ended_us);
        json_member_string(j, "decision", row->decided < 0 ? NULL : row->decided ? "commit"
                                                                               : "roll back");
        json_member_string(j, "outcome", row->outcome);
        json_member_string(j, "why", row->why);
        json_member_i64(j, "engines", row->engines);
        put_from(j, "closed_us", row->pause_us, 0);
        json_object_end(j);
    }
    list_end(j);
}

static void put_alerts(JsonOut *j, const Snapshot *s)
{
    list_begin(j, "alerts", (int64_t)s->alerts.count);
    for (size_t i = 0; i < s->alerts.count; i++) {
        const AlertRow *row = &s->alerts.rows[i];
        json_object_begin(j);
        json_member_i64(j, "alert", row->incident);
        json_member_string(j, "class", row->class_name);
        json_member_string(j, "severity", severity_word(row->severity));
        put_engine_name(j, s, row->engine);
        put_time(j, "onset_us", row->onset_us);
        json_member_string(j, "evidence", row->evidence);
        json_member_string(j, "next_key", row->next_key);
        json_object_end(j);
    }
    list_end(j);
}

static void put_event(JsonOut *j, const EventRow *row, const char *engine)
{
    json_member_i64(j, "event", row->id);
    put_time(j, "t_us", row->t_us);
    json_member_string(j, "severity", severity_word(row->severity));
    json_member_string(j, "source", row->source);
    json_member_string(j, "engine", engine);
    json_member_string(j, "text", row->text);
}

static void put_events(JsonOut *j, const Snapshot *s)
{
    list_begin(j, "events", (int64_t)s->events.total);
    for (size_t i = 0; i < s->events.count; i++) {
        const EventRow *row = &s->events.rows[i];
        const EngineRow *engine = row->engine > 0 ? snapshot_engine(s, row->engine) : NULL;
        json_object_begin(j);
        put_event(j, row, engine ? engine->name : NULL);
        json_object_end(j);
    }
    list_end(j);
    list_begin(j, "commands", (int64_t)s->commands.total);
    for (size_t i = 0; i < s->commands.count; i++) {
        const CommandRow *row = &s->commands.rows[i];
        json_object_begin(j);
        json_member_i64(j, "command", row->command);
        put_time(j, "asked_us", row->asked_us);
        put_time(j, "updated_us", row->updated_us);
        json_member_string(j, "who", row->who);
        json_member_string(j, "what", row->what);
        json_member_string(j, "target", row->target);
        json_member_string(j, "reason", row->reason);
        json_member_string(j, "state", row->state);
        json_member_string(j, "answer", row->answer);
        json_object_end(j);
    }
    list_end(j);
}

void snapshot_json(const Snapshot *s, bool live, Text *out)
{
    JsonOut j;
    json_begin(&j, out);
    json_object_begin(&j);
    json_member_string(&j, "schema", SNAPSHOT_SCHEMA);
    json_member_i64(&j, "t_us", s->t_us);
    json_member_bool(&j, "live", live);
    put_run(&j, s);
    put_header(&j, s);
    put_damage(&j, s);
    put_alerts(&j, s);
    put_engines(&j, s);
    put_tail(&j, s);
    list_begin(&j, "steps", (int64_t)s->steps.total);
    for (size_t i = 0; i < s->steps.count; i++) {
        put_step(&j, &s->steps.rows[i]);
    }
    list_end(&j);
    put_policies(&j, s);
    put_events(&j, s);
    json_object_end(&j);
    (void)text_add_c(out, "\n");
}

void event_json(const EventRow *row, const char *engine, Text *out)
{
    JsonOut j;
    json_begin(&j, out);
    json_object_begin(&j);
    json_member_string(&j, "schema", EVENT_SCHEMA);
    put_event(&j, row, engine);
    json_object_end(&j);
    (void)text_add_c(out, "\n");
}
