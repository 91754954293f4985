#include "store/schema.h"

#include "core/base/mem.h"
#include "store/names.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hot tables (probe, progress, metric, child_line) are plain rowid tables in order of arrival
 * with no index: `tick` says, second by second, which row was the last, so a time is found by a
 * look-up and a walk over a second's rows. An index on time would cost more than the row. */
static const char *const version_1[] = {
    "CREATE TABLE enumeration (kind TEXT NOT NULL, code INTEGER NOT NULL, word TEXT NOT NULL,"
    " PRIMARY KEY (kind, code)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE word (word_id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;",
    "INSERT INTO word VALUES (0, '(other)'), (1, 'ok');",
    "CREATE TABLE run (run_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL, run TEXT, name TEXT,"
    " host TEXT, version TEXT, argv_json TEXT, config_json TEXT) STRICT;",
    "CREATE TABLE session (session_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL,"
    " ended_us INTEGER, pid INTEGER, how TEXT, end_how TEXT) STRICT;",
    "CREATE TABLE outage (outage_id INTEGER PRIMARY KEY, from_us INTEGER NOT NULL,"
    " to_us INTEGER NOT NULL, reason TEXT) STRICT;",
    /* engines */
    "CREATE TABLE engine (change_id INTEGER PRIMARY KEY, engine INTEGER NOT NULL,"
    " t_us INTEGER NOT NULL, name TEXT, address TEXT, local INTEGER NOT NULL) STRICT;",
    "CREATE INDEX engine_time ON engine (engine, t_us);",
    "CREATE TABLE incarnation (change_id INTEGER PRIMARY KEY, engine INTEGER NOT NULL,"
    " t_us INTEGER NOT NULL, incarnation INTEGER NOT NULL, pid INTEGER, identity TEXT) STRICT;",
    "CREATE INDEX incarnation_time ON incarnation (engine, t_us);",
    "CREATE TABLE engine_state (change_id INTEGER PRIMARY KEY, engine INTEGER NOT NULL,"
    " t_us INTEGER NOT NULL, incarnation INTEGER NOT NULL, state INTEGER NOT NULL,"
    " since_us INTEGER NOT NULL, policy_version INTEGER, reason TEXT) STRICT;",
    "CREATE INDEX engine_state_time ON engine_state (engine, t_us);",
    "CREATE TABLE probe (probe_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL,"
    " engine INTEGER NOT NULL, incarnation INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " outcome INTEGER NOT NULL, status INTEGER, latency_us INTEGER NOT NULL, running REAL,"
    " waiting REAL, used_tokens REAL, token_usage REAL, gen_tokens_total REAL,"
    " gen_throughput REAL, cache_hit_rate REAL, retracted_total REAL, policy_version INTEGER)"
    " STRICT;",
    /* bookkeeping by the writer: where each second ends, and what was known then */
    "CREATE TABLE tick (second INTEGER PRIMARY KEY, key INTEGER NOT NULL,"
    " last_us INTEGER NOT NULL, probe INTEGER NOT NULL, progress INTEGER NOT NULL,"
    " metric INTEGER NOT NULL, child_line INTEGER NOT NULL, attempt INTEGER NOT NULL,"
    " incident INTEGER NOT NULL, incident_open INTEGER NOT NULL, tokens REAL NOT NULL) STRICT;",
    "CREATE TABLE engine_tick (second INTEGER NOT NULL, engine INTEGER NOT NULL,"
    " incarnation INTEGER NOT NULL, policy_version INTEGER, ok_us INTEGER, running REAL,"
    " running_us INTEGER, waiting REAL, waiting_us INTEGER, token_usage REAL,"
    " token_usage_us INTEGER, counter REAL, counter_us INTEGER, tokens REAL NOT NULL,"
    " retracted_counter REAL, retracted REAL NOT NULL, errors INTEGER NOT NULL,"
    " first_token_us INTEGER NOT NULL, first_tokens INTEGER NOT NULL,"
    " PRIMARY KEY (second, engine)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE flight (second INTEGER NOT NULL, attempt_id INTEGER NOT NULL,"
    " engine INTEGER, tokens INTEGER NOT NULL, progress_us INTEGER,"
    " PRIMARY KEY (second, attempt_id)) STRICT, WITHOUT ROWID;",
    /* the loop */
    "CREATE TABLE phase (phase_id INTEGER PRIMARY KEY, step INTEGER NOT NULL,"
    " phase INTEGER NOT NULL, started_us INTEGER NOT NULL, ended_us INTEGER, outcome TEXT) STRICT;",
    "CREATE INDEX phase_time ON phase (started_us);",
    "CREATE INDEX phase_kind ON phase (phase, started_us);",
    "CREATE INDEX phase_step ON phase (step);",
    "CREATE TABLE step (step_id INTEGER PRIMARY KEY, step INTEGER NOT NULL,"
    " started_us INTEGER NOT NULL, ended_us INTEGER, policy_version INTEGER, outcome TEXT,"
    " samples INTEGER, tokens INTEGER, reward_mean REAL, reward_std REAL, eval_reward_mean REAL,"
    " trainer_state TEXT, data_position INTEGER) STRICT;",
    "CREATE INDEX step_number ON step (step, started_us);",
    "CREATE INDEX step_time ON step (started_us);",
    "CREATE INDEX step_eval ON step (started_us) WHERE eval_reward_mean IS NOT NULL;",
    "CREATE TABLE sample_group (group_id INTEGER PRIMARY KEY, step INTEGER NOT NULL,"
    " t_us INTEGER NOT NULL, eval INTEGER NOT NULL, prompt_index INTEGER, want INTEGER NOT NULL,"
    " prompt BLOB, label BLOB, prompt_ids BLOB) STRICT;",
    "CREATE INDEX sample_group_step ON sample_group (step);",
    "CREATE TABLE attempt (attempt_id INTEGER PRIMARY KEY, started_us INTEGER NOT NULL,"
    " step INTEGER NOT NULL, group_id INTEGER NOT NULL, sample_id INTEGER NOT NULL,"
    " try INTEGER NOT NULL, eval INTEGER NOT NULL, engine INTEGER, ended_us INTEGER,"
    " fate INTEGER NOT NULL, finish INTEGER, reason TEXT, reward REAL, reward_us INTEGER,"
    " tokens INTEGER, versions TEXT, first_token_us INTEGER) STRICT;",
    "CREATE INDEX attempt_sample ON attempt (sample_id, try);",
    "CREATE INDEX attempt_step ON attempt (step, sample_id, try);",
    "CREATE TABLE attempt_data (attempt_id INTEGER PRIMARY KEY, tokens BLOB, logprobs BLOB,"
    " spans BLOB, text BLOB) STRICT;",
    "CREATE TABLE progress (progress_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL,"
    " attempt_id INTEGER, engine INTEGER, tokens INTEGER NOT NULL) STRICT;",
    /* policies */
    "CREATE TABLE policy (change_id INTEGER PRIMARY KEY, version INTEGER NOT NULL,"
    " t_us INTEGER NOT NULL, parent INTEGER, digest TEXT, path TEXT, kind TEXT, bytes INTEGER,"
    " step INTEGER) STRICT;",
    "CREATE INDEX policy_version ON policy (version, t_us);",
    "CREATE INDEX policy_time ON policy (t_us);",
    "CREATE TABLE policy_state (change_id INTEGER PRIMARY KEY, version INTEGER NOT NULL,"
    " t_us INTEGER NOT NULL, state INTEGER NOT NULL, txn_id INTEGER, reason TEXT) STRICT;",
    "CREATE INDEX policy_state_version ON policy_state (version, t_us);",
    "CREATE INDEX policy_state_time ON policy_state (state, t_us);",
    "CREATE TABLE txn (txn_id INTEGER PRIMARY KEY, started_us INTEGER NOT NULL,"
    " from_version INTEGER, to_version INTEGER, command_id INTEGER, engines INTEGER NOT NULL,"
    " why TEXT, decided INTEGER, decided_us INTEGER, decision_reason TEXT, ended_us INTEGER,"
    " outcome TEXT, pause_us INTEGER) STRICT;",
    "CREATE INDEX txn_time ON txn (started_us);",
    "CREATE TABLE txn_answer (answer_id INTEGER PRIMARY KEY, txn_id INTEGER NOT NULL,"
    " t_us INTEGER NOT NULL, engine INTEGER NOT NULL, incarnation INTEGER NOT NULL,"
    " phase INTEGER NOT NULL, ok INTEGER NOT NULL, took_us INTEGER NOT NULL, detail TEXT) STRICT;",
    "CREATE INDEX txn_answer_txn ON txn_answer (txn_id);",
    /* people, alarms, words */
    "CREATE TABLE command (change_id INTEGER PRIMARY KEY, command_id INTEGER NOT NULL,"
    " t_us INTEGER NOT NULL, who TEXT, what TEXT, target TEXT, reason TEXT, state TEXT,"
    " answer TEXT) STRICT;",
    "CREATE INDEX command_number ON command (command_id, t_us);",
    "CREATE TABLE incident (incident_id INTEGER PRIMARY KEY, onset_us INTEGER NOT NULL,"
    " ended_us INTEGER, class TEXT, severity INTEGER NOT NULL, engine INTEGER, evidence TEXT,"
    " next_key TEXT) STRICT;",
    "CREATE INDEX incident_onset ON incident (onset_us);",
    "CREATE INDEX incident_open ON incident (incident_id) WHERE ended_us IS NULL;",
    "CREATE TABLE event (event_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL,"
    " severity INTEGER NOT NULL, source TEXT, engine INTEGER, text TEXT) STRICT;",
    "CREATE INDEX event_time ON event (t_us);",
    "CREATE TABLE metric (metric_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL,"
    " step INTEGER NOT NULL, engine INTEGER NOT NULL, name INTEGER NOT NULL, value REAL) STRICT;",
    /* only the trainer's and the loop's own metrics, some fifty a step: not the hot ones */
    "CREATE INDEX metric_curve ON metric (name, step, t_us) WHERE engine = 0;",
    "CREATE TABLE child_line (line_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL,"
    " child INTEGER NOT NULL, is_stderr INTEGER NOT NULL, line BLOB NOT NULL) STRICT;",
    NULL};

/* What stays when the hot rows go (trim.h), and what a salvage could not save. `rollup` holds one
 * bucket of one series; its key is the order of arrival, so that adding is cheap. */
static const char *const version_2[] = {
    "CREATE TABLE rollup (span_s INTEGER NOT NULL, start_s INTEGER NOT NULL,"
    " series INTEGER NOT NULL, engine INTEGER NOT NULL, step INTEGER, count INTEGER NOT NULL,"
    " min REAL NOT NULL, mean REAL NOT NULL, max REAL NOT NULL,"
    " PRIMARY KEY (span_s, start_s, series, engine)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE step_engine (step INTEGER NOT NULL, engine INTEGER NOT NULL,"
    " from_us INTEGER NOT NULL, to_us INTEGER, samples INTEGER NOT NULL, tokens INTEGER,"
    " PRIMARY KEY (step, engine)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE trim (trim_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL, ended_us INTEGER,"
    " before_us INTEGER NOT NULL, hours_before_us INTEGER NOT NULL, step INTEGER NOT NULL,"
    " rows INTEGER, why TEXT) STRICT;",
    "CREATE TABLE damage (damage_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL,"
    " table_name TEXT NOT NULL, from_us INTEGER, to_us INTEGER, rows INTEGER, reason TEXT)"
    " STRICT;",
    NULL};

/* What was known of an alert when: its row says only how bad it was at its worst. And the rules
 * that raised them, anew at the start of every session. */
static const char *const version_3[] = {
    "CREATE TABLE incident_change (change_id INTEGER PRIMARY KEY, incident_id INTEGER NOT NULL,"
    " t_us INTEGER NOT NULL, severity INTEGER NOT NULL, evidence TEXT) STRICT;",
    "CREATE INDEX incident_change_time ON incident_change (incident_id, t_us);",
    "CREATE TABLE alert_rule (rule_id INTEGER PRIMARY KEY, t_us INTEGER NOT NULL,"
    " class TEXT NOT NULL, words TEXT NOT NULL, changed INTEGER NOT NULL) STRICT;",
    "CREATE INDEX alert_rule_time ON alert_rule (t_us);",
    NULL};

/* steps[i] brings a file from version i to i + 1. */
static const char *const *const steps[] = {version_1, version_2, version_3};
_Static_assert(sizeof steps / sizeof steps[0] == STORE_SCHEMA_VERSION, "a step for each version");

static Err read_versions(Db *db, int64_t *application, int64_t *version, int64_t *tables,
                         Fault *fault)
{
    Err err = db_i64(db, "PRAGMA application_id", 0, application, fault);
    if (err == ERR_OK) {
        err = db_i64(db, "PRAGMA user_version", 0, version, fault);
    }
    if (err == ERR_OK) {
        err = db_i64(db, "SELECT count(*) FROM sqlite_master", 0, tables, fault);
    }
    return err;
}

static Err check_versions(const Db *db, int64_t application, int64_t version, Fault *fault)
{
    if (application != STORE_APPLICATION_ID) {
        return fault_set(fault, ERR_FORMAT, "name a log that rolltop wrote",
                         "%s is an SQLite file, but not a rolltop log", db->path);
    }
    if (version > STORE_SCHEMA_VERSION) {
        return fault_set(fault, ERR_UNSUPPORTED, "use the rolltop that wrote it, or a newer one",
                         "%s has log schema %lld; this rolltop knows schemas up to %d", db->path,
                         (long long)version, STORE_SCHEMA_VERSION);
    }
    return ERR_OK;
}

static Err check_words(Db *db, Fault *fault)
{
    sqlite3_stmt *stmt = db_stmt(db, "SELECT kind, code, word FROM enumeration", fault);
    if (stmt == NULL) {
        return fault != NULL ? fault->code : ERR_FORMAT;
    }
    size_t count = 0;
    const NameList *lists = names_all(&count);
    Err err = ERR_OK;
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW && err == ERR_OK; rc = sqlite3_step(stmt)) {
        const char *kind = (const char *)sqlite3_column_text(stmt, 0);
        int64_t code = sqlite3_column_int64(stmt, 1);
        const char *word = (const char *)sqlite3_column_text(stmt, 2);
        for (size_t i = 0; i < count && kind != NULL && word != NULL; i++) {
            bool known = code >= 0 && (uint64_t)code < lists[i].count;
            if (strcmp(lists[i].kind, kind) == 0 && known &&
                strcmp(lists[i].words[code], word) != 0) {
                err = fault_set(fault, ERR_UNSUPPORTED, "read it with the rolltop that wrote it",
                                "%s calls %s %lld \"%s\", this rolltop \"%s\"", db->path, kind,
                                (long long)code, word, lists[i].words[code]);
            }
        }
    }
    if (err == ERR_OK && rc != SQLITE_DONE) {
        err = db_fault(db, fault, "cannot read the log");
    }
    sqlite3_reset(stmt);
    return err;
}

static bool table_of(const char *sql, Str *name)
{
    Str rest = str_from(sql);
    if (!str_starts(rest, STR("CREATE TABLE "))) {
        return false;
    }
    rest = str_slice(rest, sizeof "CREATE TABLE " - 1, rest.n);
    return str_split(&rest, ' ', name);
}

static Err check_table(Db *db, Str name, Fault *fault)
{
    static const char sql[] = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?";
    sqlite3_stmt *stmt = db_stmt(db, sql, fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    sqlite3_bind_text(stmt, 1, name.p, (int)name.n, SQLITE_STATIC);
    int rc = sqlite3_step(stmt);
    Err err = ERR_OK;
    if (rc == SQLITE_DONE) { /* what it held would be shown as nothing at all */
        err = fault_set(fault, ERR_FORMAT, "rolltop log salvage FILE NEW saves what is there",
                        "%s is damaged: its table \"%.*s\" is missing", db->path, (int)name.n,
                        name.p);
    } else if (rc != SQLITE_ROW) {
        err = db_fault(db, fault, "cannot read the log");
    }
    sqlite3_reset(stmt);
    return err;
}

/* All tables that versions below `version` made are there. */
static Err check_tables(Db *db, int64_t version, Fault *fault)
{
    Err err = ERR_OK;
    for (int64_t v = 0; v < version && err == ERR_OK; v++) {
        for (const char *const *sql = steps[v]; *sql != NULL && err == ERR_OK; sql++) {
            Str name;
            err = table_of(*sql, &name) ? check_table(db, name, fault) : ERR_OK;
        }
    }
    return err;
}

Err schema_add_later(Db *db, int64_t version, Fault *fault)
{
    Err err = ERR_OK;
    for (int64_t v = version; v < STORE_SCHEMA_VERSION && err == ERR_OK; v++) {
        for (const char *const *sql = steps[v]; *sql != NULL && err == ERR_OK; sql++) {
            Str name;
            if (table_of(*sql, &name)) {
                char *temporary = xasprintf("CREATE TEMP TABLE %s", *sql + sizeof "CREATE TABLE");
                err = db_exec(db, temporary, fault);
                free(temporary);
            }
        }
    }
    return err;
}

Err schema_check(Db *db, Fault *fault)
{
    int64_t application = 0;
    int64_t version = 0;
    int64_t tables = 0;
    Err err = read_versions(db, &application, &version, &tables, fault);
    if (err == ERR_OK && application == 0 && version == 0 && tables == 0) {
        return fault_set(fault, ERR_FORMAT, "wait for the run to start, or name another file",
                         "%s is empty: no run was recorded in it yet", db->path);
    }
    if (err == ERR_OK) {
        err = check_versions(db, application, version, fault);
    }
    if (err == ERR_OK && version < 1) {
        err = fault_set(fault, ERR_FORMAT, "name a log that rolltop wrote",
                        "%s has no log schema", db->path);
    }
    err = err ? err : check_tables(db, version, fault);
    err = err ? err : schema_add_later(db, version, fault);
    return err ? err : check_words(db, fault);
}

static Err put_words(Db *db, Fault *fault)
{
    static const char sql[] = "INSERT OR IGNORE INTO enumeration VALUES (?, ?, ?)";
    size_t count = 0;
    const NameList *lists = names_all(&count);
    for (size_t i = 0; i < count; i++) {
        for (size_t code = 0; code < lists[i].count; code++) {
            Bind bind = {db_stmt(db, sql, fault), 0};
            if (bind.stmt == NULL) {
                return fault != NULL ? fault->code : ERR_IO;
            }
            bind_text(&bind, lists[i].kind);
            bind_i64(&bind, (int64_t)code);
            bind_text(&bind, lists[i].words[code]);
            if (bind_run(&bind) != SQLITE_OK) {
                return db_fault(db, fault, "cannot write the dictionary");
            }
        }
    }
    return ERR_OK;
}

static Err migrate(Db *db, int64_t version, int64_t to, Fault *fault)
{
    Err err = db_exec(db, "BEGIN IMMEDIATE", fault);
    for (int64_t v = version; v < to && err == ERR_OK; v++) {
        for (const char *const *sql = steps[v]; *sql != NULL && err == ERR_OK; sql++) {
            err = db_exec(db, *sql, fault);
        }
    }
    char pragmas[128];
    (void)snprintf(pragmas, sizeof pragmas,
                   "PRAGMA application_id = %d; PRAGMA user_version = %lld", STORE_APPLICATION_ID,
                   (long long)to);
    if (err == ERR_OK) {
        err = db_exec(db, pragmas, fault);
    }
    if (err == ERR_OK) {
        err = put_words(db, fault);
    }
    if (err == ERR_OK) {
        err = db_exec(db, "COMMIT", fault);
    }
    if (err != ERR_OK) {
        db_exec(db, "ROLLBACK", NULL);
    }
    return err;
}

Err schema_create(Db *db, int64_t version, Fault *fault)
{
    Err err = db_exec(db, "PRAGMA journal_mode = WAL", fault);
    return err ? err : migrate(db, 0, version, fault);
}

Err schema_prepare(Db *db, Fault *fault)
{
    int64_t application = 0;
    int64_t version = 0;
    int64_t tables = 0;
    Err err = read_versions(db, &application, &version, &tables, fault);
    bool empty = application == 0 && version == 0 && tables == 0;
    if (err == ERR_OK && !empty) {
        err = check_versions(db, application, version, fault);
    }
    if (err == ERR_OK && !empty) {
        err = check_tables(db, version, fault);
    }
    /* synchronous=FULL: one fsync a commit makes it durable; the log's size stays bounded. */
    static const char modes[] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                                "PRAGMA journal_size_limit = 67108864;"
                                "PRAGMA cache_size = -16384; PRAGMA foreign_keys = OFF";
    if (err == ERR_OK) {
        err = db_exec(db, modes, fault);
    }
    if (err == ERR_OK && (empty || version < STORE_SCHEMA_VERSION)) {
        err = migrate(db, version, STORE_SCHEMA_VERSION, fault);
    }
    if (err == ERR_OK) {
        err = check_words(db, fault);
    }
    if (err == ERR_OK) {
        err = put_words(db, fault); /* words that a later build appended */
    }
    return err;
}
