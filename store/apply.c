#include "store/apply.h"

#include "core/base/mem.h"

#include <stdlib.h>

#define LAST_TIME_US INT64_C(7258118400000000) /* the year 2200 */
enum { BACK_US = 5000000, BACK_PROBES = 16 };
#define STATEMENT(sql) db_stmt(&w->db, sql, NULL)

/* ---- seconds ---- */

static int put_engine_tick(Writer *w, const EngineAcc *acc)
{
    static const char sql[] = "INSERT OR REPLACE INTO engine_tick VALUES"
                              " (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, w->second);
    bind_i64(&b, acc->engine);
    bind_i64(&b, acc->incarnation);
    bind_known(&b, acc->policy_version);
    bind_some(&b, acc->ok_us);
    bind_val(&b, acc->running);
    bind_some(&b, acc->running.seen_us);
    bind_val(&b, acc->waiting);
    bind_some(&b, acc->waiting.seen_us);
    bind_val(&b, acc->usage);
    bind_some(&b, acc->usage.seen_us);
    bind_double(&b, acc->counter);
    bind_some(&b, acc->counter_us);
    bind_double(&b, acc->tokens);
    bind_val(&b, acc->retracted_counter);
    bind_double(&b, acc->retracted);
    bind_i64(&b, acc->errors);
    bind_i64(&b, acc->first_token_us);
    bind_i64(&b, acc->first_tokens);
    return bind_run(&b);
}

static int put_flight(Writer *w, const Flight *flight)
{
    Bind b = {STATEMENT("INSERT OR REPLACE INTO flight VALUES (?, ?, ?, ?, ?)"), 0};
    bind_i64(&b, w->second);
    bind_i64(&b, flight->attempt_id);
    bind_some(&b, flight->engine);
    bind_i64(&b, flight->tokens);
    bind_some(&b, flight->progress_us);
    return bind_run(&b);
}

static int put_tick(Writer *w, bool key)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO tick VALUES (?, ?, ?, ?, ?, ?, ?, ?,"
        " (SELECT coalesce(max(incident_id), 0) FROM incident),"
        " coalesce((SELECT min(incident_id) FROM incident WHERE ended_us IS NULL),"
        " (SELECT coalesce(max(incident_id), 0) + 1 FROM incident)), ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, w->second);
    bind_i64(&b, key);
    bind_i64(&b, w->last_us);
    bind_i64(&b, w->probe);
    bind_i64(&b, w->progress);
    bind_i64(&b, w->metric);
    bind_i64(&b, w->child_line);
    bind_i64(&b, w->attempt);
    bind_double(&b, w->tokens);
    return bind_run(&b);
}

static int end_second(Writer *w)
{
    bool key = w->second / KEY_SECONDS != w->key_bucket;
    int rc = put_tick(w, key);
    for (size_t i = 0; i < w->engines.count && rc == SQLITE_OK; i++) {
        EngineAcc *acc = &w->engines.items[i];
        if (acc->dirty || key) {
            rc = put_engine_tick(w, acc);
            acc->dirty = false;
        }
    }
    for (size_t i = 0; key && i < w->flights.count && rc == SQLITE_OK; i++) {
        rc = put_flight(w, &w->flights.items[i]);
    }
    if (key) {
        w->key_bucket = w->second / KEY_SECONDS;
        rollup_key(&w->rollup, &w->engines, w->tokens, w->second);
    }
    return rc;
}

static int note_time(Writer *w, int64_t t_us)
{
    if (t_us < 0 || t_us > LAST_TIME_US) { /* a caller's "never" must not end the count of time */
        return SQLITE_OK;
    }
    int64_t second = t_us / SECOND_US;
    int rc = SQLITE_OK;
    if (second > w->second) {
        if (w->second >= 0) {
            rc = end_second(w);
        }
        rc = rc == SQLITE_OK ? rollup_second(&w->rollup, &w->db, &w->words, second) : rc;
        w->second = second;
    }
    if (t_us > w->last_us) {
        w->last_us = t_us;
    }
    return rc;
}

static int64_t at_most(int64_t v, int64_t limit)
{
    return v > limit ? limit : v;
}

/* The wall clock was set back. Ticks of seconds that are still to come (again) would hide what
 * happens now, so they go; the rows themselves stay. */
static int go_back(Writer *w, int64_t t_us)
{
    static const char *const sqls[] = {"DELETE FROM tick WHERE second >= ?",
                                       "DELETE FROM engine_tick WHERE second >= ?",
                                       "DELETE FROM flight WHERE second >= ?"};
    int rc = SQLITE_OK;
    for (size_t i = 0; i < 3 && rc == SQLITE_OK; i++) {
        Bind b = {STATEMENT(sqls[i]), 0};
        bind_i64(&b, t_us / SECOND_US);
        rc = bind_run(&b);
    }
    for (size_t i = 0; i < w->engines.count; i++) {
        EngineAcc *acc = &w->engines.items[i];
        acc->ok_us = at_most(acc->ok_us, t_us);
        acc->running.seen_us = at_most(acc->running.seen_us, t_us);
        acc->waiting.seen_us = at_most(acc->waiting.seen_us, t_us);
        acc->usage.seen_us = at_most(acc->usage.seen_us, t_us);
        acc->counter_us = at_most(acc->counter_us, t_us);
        acc->dirty = true;
    }
    rc = rc == SQLITE_OK ? rollup_second(&w->rollup, &w->db, &w->words, t_us / SECOND_US) : rc;
    w->second = t_us / SECOND_US;
    w->key_bucket = -1; /* the next tick is a key: it says all anew */
    w->last_us = t_us;
    w->behind = 0;
    return rc;
}

/* Single facts may be late by design (an incident's onset); probes are told as they come. */
static int note_probe_time(Writer *w, int64_t t_us)
{
    w->behind = t_us < w->last_us - BACK_US ? w->behind + 1 : 0;
    return w->behind >= BACK_PROBES && t_us >= 0 ? go_back(w, t_us) : SQLITE_OK;
}

/* ---- facts ---- */

static int apply_run(Writer *w, const RunFact *f)
{
    Bind b = {STATEMENT("INSERT OR IGNORE INTO run VALUES (1, ?, ?, ?, ?, ?, ?, ?)"), 0};
    bind_i64(&b, f->t_us);
    bind_text(&b, f->run);
    bind_text(&b, f->name);
    bind_text(&b, f->host);
    bind_text(&b, f->version);
    bind_text(&b, f->argv_json);
    bind_text(&b, f->config_json);
    return bind_run(&b);
}

/* A core that died left things open; they ended with the last fact that it recorded. */
static int close_past(Writer *w)
{
    static const char *const sqls[] = {
        "UPDATE step SET ended_us = max(started_us, ?), outcome = 'interrupted'"
        " WHERE ended_us IS NULL",
        "UPDATE phase SET ended_us = max(started_us, ?), outcome = 'interrupted'"
        " WHERE ended_us IS NULL"};
    int rc = apply_orphans(w);
    for (size_t i = 0; i < 2 && rc == SQLITE_OK; i++) {
        Bind b = {STATEMENT(sqls[i]), 0};
        bind_i64(&b, w->resumed_us);
        rc = bind_run(&b);
    }
    return rc;
}

static int apply_session(Writer *w, const SessionFact *f)
{
    static const char begin[] = "INSERT OR IGNORE INTO session VALUES (?, ?, NULL, ?, ?, NULL)";
    static const char end[] = "UPDATE session SET ended_us = ?, end_how = ? WHERE session_id = ?";
    if (f->ended_us > 0) {
        Bind e = {STATEMENT(end), 0};
        bind_i64(&e, f->ended_us);
        bind_text(&e, f->how);
        bind_i64(&e, f->session);
        return bind_run(&e);
    }
    int rc = SQLITE_OK;
    if (!w->session_seen) {
        rc = close_past(w);
        w->session_seen = true;
    }
    if (rc != SQLITE_OK) {
        return rc;
    }
    Bind b = {STATEMENT(begin), 0};
    bind_i64(&b, f->session);
    bind_i64(&b, f->t_us);
    bind_some(&b, f->pid);
    bind_text(&b, f->how);
    return bind_run(&b);
}

static int apply_engine(Writer *w, const EngineFact *f)
{
    static const char sql[] =
        "INSERT INTO engine (engine, t_us, name, address, local) VALUES (?, ?, ?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->engine);
    bind_i64(&b, f->t_us);
    bind_text(&b, f->name);
    bind_text(&b, f->address);
    bind_i64(&b, f->local);
    return bind_run(&b);
}

static int apply_incarnation(Writer *w, const IncarnationFact *f)
{
    static const char sql[] = "INSERT INTO incarnation (engine, t_us, incarnation, pid, identity)"
                              " VALUES (?, ?, ?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->engine);
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->incarnation);
    bind_some(&b, f->pid);
    bind_text(&b, f->identity);
    return bind_run(&b);
}

static int apply_engine_state(Writer *w, const EngineStateFact *f)
{
    /* since_us: when the state began, over facts that repeat it with another version. */
    static const char sql[] =
        "INSERT INTO engine_state"
        " (engine, t_us, incarnation, state, since_us, policy_version, reason)"
        " SELECT ?1, ?2, ?3, ?4, coalesce((SELECT CASE WHEN state = ?4 THEN since_us END"
        " FROM engine_state WHERE engine = ?1 ORDER BY t_us DESC, change_id DESC LIMIT 1), ?2),"
        " ?5, ?6";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->engine);
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->incarnation);
    bind_i64(&b, f->state);
    bind_known(&b, f->policy_version);
    bind_text(&b, f->reason);
    return bind_run(&b);
}

static int apply_probe(Writer *w, const ProbeFact *f)
{
    static const char sql[] =
        "INSERT INTO probe VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    int64_t outcome = words_id(&w->words, &w->db, f->outcome);
    int rc = outcome < 0 ? SQLITE_ERROR : note_probe_time(w, f->t_us);
    if (rc != SQLITE_OK) {
        return rc;
    }
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->engine);
    bind_i64(&b, f->incarnation);
    bind_i64(&b, f->kind);
    bind_i64(&b, outcome);
    bind_some(&b, f->status);
    bind_i64(&b, f->latency_us);
    bind_val(&b, f->running);
    bind_val(&b, f->waiting);
    bind_val(&b, f->used_tokens);
    bind_val(&b, f->token_usage);
    bind_val(&b, f->gen_tokens_total);
    bind_val(&b, f->gen_throughput);
    bind_val(&b, f->cache_hit_rate);
    bind_val(&b, f->retracted_total);
    bind_known(&b, f->policy_version);
    rc = bind_run(&b);
    if (rc == SQLITE_OK) {
        w->probe = sqlite3_last_insert_rowid(w->db.handle);
        w->tokens += acc_probe(acc_find(&w->engines, f->engine), f, outcome == WORD_OK);
        rollup_probe(&w->rollup, f, outcome == WORD_OK);
    }
    return rc;
}

static int apply_phase(Writer *w, const PhaseFact *f)
{
    static const char begin[] = "INSERT OR IGNORE INTO phase VALUES (?, ?, ?, ?, NULL, NULL)";
    static const char end[] = "UPDATE phase SET ended_us = ?, outcome = ? WHERE phase_id = ?";
    Bind b = {STATEMENT(f->end ? end : begin), 0};
    if (f->end) {
        bind_i64(&b, f->t_us);
        bind_text(&b, f->outcome);
        bind_i64(&b, f->phase_id);
    } else {
        bind_i64(&b, f->phase_id);
        bind_i64(&b, f->step);
        bind_i64(&b, f->phase);
        bind_i64(&b, f->t_us);
    }
    return bind_run(&b);
}

static int begin_step(Writer *w, const StepFact *f)
{
    static const char sql[] =
        "INSERT INTO step (step, started_us, policy_version) VALUES (?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->step);
    bind_i64(&b, f->t_us);
    bind_known(&b, f->policy_version);
    return bind_run(&b);
}

static int apply_step(Writer *w, const StepFact *f)
{
    static const char sql[] =
        "UPDATE step SET ended_us = ?, policy_version = coalesce(?, policy_version), outcome = ?,"
        " samples = ?, tokens = ?, reward_mean = ?, reward_std = ?, eval_reward_mean = ?,"
        " trainer_state = ?, data_position = ? WHERE step_id ="
        " (SELECT max(step_id) FROM step WHERE step = ? AND ended_us IS NULL)";
    if (!f->end) {
        return begin_step(w, f);
    }
    for (int attempt = 0; attempt < 2; attempt++) {
        Bind b = {STATEMENT(sql), 0};
        bind_i64(&b, f->t_us);
        bind_known(&b, f->policy_version);
        bind_text(&b, f->outcome);
        bind_i64(&b, f->samples);
        bind_i64(&b, f->tokens);
        bind_val(&b, f->reward_mean);
        bind_val(&b, f->reward_std);
        bind_val(&b, f->eval_reward_mean);
        bind_text(&b, f->trainer_state);
        bind_i64(&b, f->data_position);
        bind_i64(&b, f->step);
        int rc = bind_run(&b);
        if (rc != SQLITE_OK || sqlite3_changes(w->db.handle) > 0) {
            return rc;
        }
        rc = begin_step(w, f); /* an end without its begin is a fact too */
        if (rc != SQLITE_OK) {
            return rc;
        }
    }
    return SQLITE_OK;
}

static int apply_policy(Writer *w, const PolicyFact *f)
{
    static const char sql[] =
        "INSERT INTO policy (version, t_us, parent, digest, path, kind, bytes, step)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->version);
    bind_i64(&b, f->t_us);
    bind_known(&b, f->parent);
    bind_text(&b, f->digest);
    bind_text(&b, f->path);
    bind_text(&b, f->kind);
    bind_i64(&b, f->bytes);
    bind_i64(&b, f->step);
    return bind_run(&b);
}

static int apply_policy_state(Writer *w, const PolicyStateFact *f)
{
    static const char sql[] = "INSERT INTO policy_state (version, t_us, state, txn_id, reason)"
                              " VALUES (?, ?, ?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->version);
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->state);
    bind_some(&b, f->txn);
    bind_text(&b, f->reason);
    return bind_run(&b);
}

static int apply_txn(Writer *w, const TxnFact *f)
{
    static const char sql[] =
        "INSERT OR IGNORE INTO txn"
        " (txn_id, started_us, from_version, to_version, command_id, engines, why)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->txn);
    bind_i64(&b, f->t_us);
    bind_known(&b, f->from_version);
    bind_known(&b, f->to_version);
    bind_some(&b, f->command);
    bind_i64(&b, f->engines);
    bind_text(&b, f->why);
    return bind_run(&b);
}

static int apply_txn_answer(Writer *w, const TxnAnswerFact *f)
{
    static const char sql[] =
        "INSERT INTO txn_answer VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->txn);
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->engine);
    bind_i64(&b, f->incarnation);
    bind_i64(&b, f->phase);
    bind_i64(&b, f->ok);
    bind_i64(&b, f->took_us);
    bind_text(&b, f->detail);
    return bind_run(&b);
}

static int apply_txn_decision(Writer *w, const TxnDecisionFact *f)
{
    static const char sql[] =
        "UPDATE txn SET decided = ?, decided_us = ?, decision_reason = ? WHERE txn_id = ?";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->commit);
    bind_i64(&b, f->t_us);
    bind_text(&b, f->reason);
    bind_i64(&b, f->txn);
    return bind_run(&b);
}

static int apply_txn_end(Writer *w, const TxnEndFact *f)
{
    static const char sql[] =
        "UPDATE txn SET ended_us = ?, outcome = ?, pause_us = ? WHERE txn_id = ?";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->t_us);
    bind_text(&b, f->outcome);
    bind_i64(&b, f->pause_us);
    bind_i64(&b, f->txn);
    return bind_run(&b);
}

static int apply_metric(Writer *w, const MetricFact *f)
{
    static const char sql[] = "INSERT INTO metric VALUES (NULL, ?, ?, ?, ?, ?)";
    int64_t name = words_id(&w->words, &w->db, f->name);
    if (name < 0) {
        return SQLITE_ERROR;
    }
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->step);
    bind_i64(&b, f->engine);
    bind_i64(&b, name);
    bind_double(&b, f->value);
    int rc = bind_run(&b);
    if (rc == SQLITE_OK) {
        w->metric = sqlite3_last_insert_rowid(w->db.handle);
        rc = rollup_metric(&w->rollup, &w->db, f->engine, name, f->step, f->value);
    }
    return rc;
}

static int apply_child_line(Writer *w, const ChildLineFact *f)
{
    static const char sql[] = "INSERT INTO child_line VALUES (NULL, ?, ?, ?, ?)";
    int64_t child = words_id(&w->words, &w->db, f->child);
    if (child < 0) {
        return SQLITE_ERROR;
    }
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->t_us);
    bind_i64(&b, child);
    bind_i64(&b, f->is_stderr);
    bind_blob(&b, f->line.p != NULL ? f->line.p : "", f->line.n);
    int rc = bind_run(&b);
    w->child_line = rc == SQLITE_OK ? sqlite3_last_insert_rowid(w->db.handle) : w->child_line;
    return rc;
}

int writer_apply(Writer *w, FactKind kind, const void *fact)
{
    int rc = note_time(w, fact_time(kind, fact));
    if (rc != SQLITE_OK) {
        return rc;
    }
#define FACT_CASE(name, type, suffix, bulk)                                                       \
    case FACT_##name:                                                                             \
        return apply_##suffix(w, fact);
    switch (kind) {
        STORE_FACTS(FACT_CASE)
    case FACT_KINDS:
        break;
    }
#undef FACT_CASE
    return SQLITE_MISUSE;
}

/* ---- loading ---- */

static Err load_ids(Writer *w, Fault *fault)
{
    int64_t end_us = 0;
    Err err = db_i64(&w->db, "SELECT max(probe_id) FROM probe", 0, &w->probe, fault);
    err = err ? err : db_i64(&w->db, "SELECT max(progress_id) FROM progress", 0, &w->progress,
                             fault);
    err = err ? err : db_i64(&w->db, "SELECT max(metric_id) FROM metric", 0, &w->metric, fault);
    err = err ? err : db_i64(&w->db, "SELECT max(line_id) FROM child_line", 0, &w->child_line,
                             fault);
    err = err ? err : db_i64(&w->db, "SELECT max(attempt_id) FROM attempt", 0, &w->attempt, fault);
    err = err ? err : db_last_us(&w->db, INT64_MAX, &end_us, fault);
    w->last_us = end_us;
    return err;
}

Err writer_load(Writer *w, Fault *fault)
{
    acc_free(&w->engines);
    w->flights.count = 0;
    w->tokens = 0;
    w->behind = 0;
    Err err = words_load(&w->words, &w->db, fault);
    err = err ? err : load_ids(w, fault);
    err = err ? err : acc_load(&w->db, INT64_MAX, &w->engines, fault);
    err = err ? err : flight_load(&w->db, INT64_MAX, &w->flights, fault);
    flights_index(w);
    Tick tick = {0};
    Tick key = {0};
    err = err ? err : tick_at(&w->db, INT64_MAX, &tick, fault);
    err = err ? err : tick_key_at(&w->db, INT64_MAX, &key, fault);
    for (size_t i = 0; i < w->engines.count; i++) {
        w->tokens += w->engines.items[i].tokens;
    }
    w->key_bucket = key.found ? key.second / KEY_SECONDS : -1;
    w->second = w->last_us > 0 ? w->last_us / SECOND_US : -1;
    if (tick.found && w->second <= tick.second) {
        w->second = tick.second + 1;
    }
    return err ? err : rollup_load(&w->rollup, &w->db, w->second, fault);
}

void writer_free(Writer *w)
{
    acc_free(&w->engines);
    rollup_free(&w->rollup);
    flight_free(&w->flights);
    free(w->places);
    w->places = NULL;
    words_free(&w->words);
    packer_free(w->packer);
    w->packer = NULL;
    db_close(&w->db);
}
