#include "store/maintain.h"

#include "store/blob.h"
#include "store/schema.h"
#include "store/store.h"
#include "store/trim.h"
#include "store/wal_scan.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 5 }; /* lines of one rule */

/* Each rule is a statement whose rows are breaches in words. ?1: the first step whose samples were
 * not trimmed. Rules over the hot tables read them once, in order. */
typedef struct Rule {
    const char *name, *sql;
} Rule;

static const Rule rules[] = {
    {"samples belong to groups",
     "SELECT 'attempt ' || attempt_id || ' names group ' || group_id || ', which is missing'"
     " FROM attempt a WHERE group_id <> 0 AND step >= ?1"
     " AND NOT EXISTS (SELECT 1 FROM sample_group g WHERE g.group_id = a.group_id)"},
    {"texts belong to samples",
     "SELECT 'attempt_data ' || attempt_id || ' has no attempt' FROM attempt_data d"
     " WHERE NOT EXISTS (SELECT 1 FROM attempt a WHERE a.attempt_id = d.attempt_id)"},
    {"progress belongs to samples",
     "SELECT 'progress ' || min(progress_id) || ' names attempt ' || attempt_id ||"
     " ', which is missing' FROM progress p WHERE attempt_id IS NOT NULL"
     " AND NOT EXISTS (SELECT 1 FROM trim) AND NOT EXISTS"
     " (SELECT 1 FROM attempt a WHERE a.attempt_id = p.attempt_id) GROUP BY attempt_id"},
    {"probes belong to engines",
     "SELECT 'probe ' || min(probe_id) || ' names engine ' || engine || ', which is missing'"
     " FROM probe GROUP BY engine HAVING engine <> 0 AND engine NOT IN"
     " (SELECT engine FROM engine)"},
    {"words are known",
     "SELECT kind || ' ' || id || ' names word ' || word || ', which is missing' FROM ("
     "SELECT 'probe' kind, min(probe_id) id, outcome word FROM probe GROUP BY outcome UNION ALL"
     " SELECT 'metric', min(metric_id), name FROM metric GROUP BY name UNION ALL"
     " SELECT 'child_line', min(line_id), child FROM child_line GROUP BY child UNION ALL"
     " SELECT 'attempt', min(attempt_id), finish FROM attempt WHERE finish IS NOT NULL"
     " GROUP BY finish) WHERE word NOT IN (SELECT word_id FROM word)"},
    {"states belong to policies and transactions",
     "SELECT 'policy_state ' || change_id || ' names policy ' || version || ', which is missing'"
     " FROM policy_state s WHERE NOT EXISTS"
     " (SELECT 1 FROM policy p WHERE p.version = s.version) UNION ALL"
     " SELECT 'policy_state ' || change_id || ' names transaction ' || txn_id ||"
     " ', which is missing' FROM policy_state s WHERE txn_id IS NOT NULL AND NOT EXISTS"
     " (SELECT 1 FROM txn t WHERE t.txn_id = s.txn_id)"},
    {"answers belong to transactions",
     "SELECT 'txn_answer ' || answer_id || ' names transaction ' || txn_id ||"
     " ', which is missing' FROM txn_answer a WHERE NOT EXISTS"
     " (SELECT 1 FROM txn t WHERE t.txn_id = a.txn_id)"},
    {"transactions belong to commands",
     "SELECT 'transaction ' || txn_id || ' names command ' || command_id || ', which is missing'"
     " FROM txn t WHERE command_id IS NOT NULL AND NOT EXISTS"
     " (SELECT 1 FROM command c WHERE c.command_id = t.command_id)"},
    {"decisions are single and followed",
     "SELECT 'transaction ' || txn_id || ' ended ' || outcome || ', but its decision is ' ||"
     " CASE decided WHEN 1 THEN 'commit' WHEN 0 THEN 'roll back' ELSE 'missing' END FROM txn"
     " WHERE (outcome = 'committed' AND decided IS NOT 1)"
     " OR (outcome = 'rolled_back' AND decided IS NOT 0) UNION ALL"
     " SELECT 'transaction ' || txn_id || ' committed policy ' || version || ' ' || count(*) ||"
     " ' times' FROM policy_state s WHERE txn_id IS NOT NULL AND state = (SELECT code FROM"
     " enumeration WHERE kind = 'policy_state' AND word = 'committed')"
     " GROUP BY txn_id, version HAVING count(*) > 1 UNION ALL"
     " SELECT 'transaction ' || txn_id || ' is committed, but no state of policy ' || to_version ||"
     " ' says so' FROM txn t WHERE outcome = 'committed' AND NOT EXISTS (SELECT 1 FROM"
     " policy_state s WHERE s.version = t.to_version AND s.state = (SELECT code FROM enumeration"
     " WHERE kind = 'policy_state' AND word = 'committed'))"},
    {"a sample is accepted once",
     "SELECT 'sample ' || sample_id || ' is accepted ' || count(*) || ' times' FROM attempt"
     " WHERE fate = (SELECT code FROM enumeration WHERE kind = 'sample_fate'"
     " AND word = 'accepted') GROUP BY sample_id HAVING count(*) > 1"},
    {"every step has its samples",
     "SELECT 'step ' || step || ' ended ok with ' || samples || ' samples, the log has ' || got"
     " FROM (SELECT step, samples, (SELECT count(*) FROM attempt a WHERE a.step = s.step"
     " AND a.eval = 0 AND a.fate = (SELECT code FROM enumeration WHERE kind = 'sample_fate' AND"
     " word = 'accepted')) got, (SELECT count(*) FROM step r WHERE r.step = s.step) runs"
     " FROM step s WHERE outcome = 'ok' AND step >= ?1 AND step >= 0)"
     /* Of a step that ran again, the samples of the run that was cut off are there as well. */
     " WHERE got < samples OR (got > samples AND runs = 1)"},
    {"samples end once, after their start",
     "SELECT 'attempt ' || attempt_id || ' ended before it began' FROM attempt"
     " WHERE ended_us < started_us UNION ALL"
     " SELECT 'attempt ' || attempt_id || CASE WHEN fate = 0 THEN ' is over and open'"
     " ELSE ' has a fate and no end' END FROM attempt WHERE (fate = 0) <> (ended_us IS NULL)"},
    {"tokens, log-probs and counts agree",
     "SELECT 'attempt ' || a.attempt_id || ' counts ' || a.tokens || ' tokens, its data ' ||"
     " blob_size(d.tokens) / 4 FROM attempt_data d JOIN attempt a ON a.attempt_id = d.attempt_id"
     " WHERE d.tokens IS NOT NULL AND blob_size(d.tokens) IS NOT 4 * a.tokens UNION ALL"
     " SELECT 'attempt ' || attempt_id || ' has log-probs for another number of tokens'"
     " FROM attempt_data WHERE logprobs IS NOT NULL"
     " AND blob_size(logprobs) IS NOT blob_size(tokens)"},
    {"changes belong to alerts",
     "SELECT 'incident_change ' || change_id || ' names incident ' || incident_id ||"
     " ', which is missing' FROM incident_change c WHERE NOT EXISTS"
     " (SELECT 1 FROM incident i WHERE i.incident_id = c.incident_id)"},
    {"ticks run with the rows",
     "SELECT 'tick ' || second || ' stands before the one before it' FROM (SELECT second, probe,"
     " progress, metric, child_line, lag(probe) OVER w p, lag(progress) OVER w g,"
     " lag(metric) OVER w m, lag(child_line) OVER w c FROM tick WINDOW w AS (ORDER BY second))"
     " WHERE probe < p OR progress < g OR metric < m OR child_line < c UNION ALL"
     " SELECT 'tick ' || second || ' names probe ' || probe || ', which is missing' FROM tick"
     " WHERE second = (SELECT max(second) FROM tick)"
     " AND probe > (SELECT coalesce(max(probe_id), 0) FROM probe)"},
    {"phases and steps end after their start",
     /* but for those under which the clock was set back: the next one began before them, too */
     "SELECT 'phase ' || phase_id || ' ended before it began' FROM phase p"
     " WHERE ended_us < started_us AND NOT EXISTS (SELECT 1 FROM phase n"
     " WHERE n.phase_id = p.phase_id + 1 AND n.started_us < p.started_us) UNION ALL"
     " SELECT 'step ' || step || ' ended before it began' FROM step s"
     " WHERE ended_us < started_us AND NOT EXISTS (SELECT 1 FROM phase p JOIN phase n"
     " ON n.phase_id = p.phase_id + 1 WHERE p.started_us >= s.started_us"
     " AND n.started_us < s.started_us)"},
};

static void blob_size(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    const void *blob = sqlite3_value_blob(values[0]);
    size_t n = 0;
    if (blob != NULL && unpack_size(blob, (size_t)sqlite3_value_bytes(values[0]), &n)) {
        sqlite3_result_int64(context, (sqlite3_int64)n);
    }
}

typedef struct Check {
    Db db;
    FILE *out;
    int64_t breaches, shown;
} Check;

static void breach(Check *check, const char *rule, const char *words)
{
    check->breaches++;
    if (check->shown++ < SHOWN) {
        fprintf(check->out, "%s: %s\n", rule, words ? words : "?");
    }
}

static void rule_end(Check *check, const char *rule)
{
    if (check->shown > SHOWN) {
        fprintf(check->out, "%s: and %lld more\n", rule, (long long)(check->shown - SHOWN));
    }
    check->shown = 0;
}

/* A statement that meets a damaged page is a breach itself; the next rule may still read. */
static Err run_rule(Check *check, const Rule *rule, int64_t step, Fault *fault)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(check->db.handle, rule->sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK && sqlite3_bind_parameter_count(stmt) > 0) {
        sqlite3_bind_int64(stmt, 1, step);
    }
    rc = rc == SQLITE_OK ? SQLITE_ROW : rc;
    while (rc == SQLITE_ROW) {
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW) {
            breach(check, rule->name, (const char *)sqlite3_column_text(stmt, 0));
        }
    }
    Err err = ERR_OK;
    if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_IOERR) {
        breach(check, rule->name, sqlite3_errmsg(check->db.handle));
    } else if (rc != SQLITE_DONE) {
        err = db_fault(&check->db, fault, "cannot check the log");
    }
    sqlite3_finalize(stmt);
    rule_end(check, rule->name);
    return err;
}

static Err check_file(Check *check, Fault *fault)
{
    static const Rule integrity = {
        "the file is sound",
        "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'"};
    return run_rule(check, &integrity, 0, fault);
}

static Err check_wal(Check *check, const char *path, Fault *fault)
{
    static const char name[] = "the -wal is whole";
    WalScan scan;
    char text[160];
    Err err = wal_scan(path, &scan, fault);
    if (err != ERR_OK || !scan.found) {
        return err;
    }
    if (!scan.header_good) {
        breach(check, name, "its header is damaged: nothing in it is read");
    } else if (scan.commits_behind > 0) {
        (void)str_format(text, sizeof text,
                         "frame %lld is damaged: %lld frames with %lld commits behind it are not "
                         "read", (long long)scan.frames + 1, (long long)scan.behind,
                         (long long)scan.commits_behind);
        breach(check, name, text);
    }
    rule_end(check, name);
    return ERR_OK;
}

Err log_check(const char *path, FILE *out, int64_t *breaches, Fault *fault)
{
    Check check = {.out = out};
    Trimmed trimmed = {.step = INT64_MIN};
    *breaches = 0;
    Err err = check_wal(&check, path, fault); /* before SQLite may begin it anew */
    err = err ? err : db_open_read(&check.db, path, fault);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_create_function(check.db.handle, "blob_size", 1,
                            SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, NULL, blob_size,
                            NULL, NULL);
    err = schema_check(&check.db, fault);
    err = err ? err : check_file(&check, fault);
    check.db.tolerant = true;
    err = err ? err : trim_read(&check.db, &trimmed, fault);
    for (size_t i = 0; i < sizeof rules / sizeof *rules && err == ERR_OK; i++) {
        err = run_rule(&check, &rules[i], trimmed.step, fault);
    }
    if (err == ERR_OK && check.breaches == 0) {
        fprintf(out, "sound: the file, the -wal and %zu rules\n", sizeof rules / sizeof *rules);
    }
    *breaches = check.breaches;
    db_close(&check.db);
    return err;
}
