#include "store/topics.h"

/* Word of a stored code; name of an engine, its newest one. Arguments are qualified: a bare name
 * could be a column of the inner table. */
#define WORD(kind, code)                                                                          \
    "(SELECT word FROM enumeration WHERE kind = '" kind "' AND code = " code ")"
#define ENGINE_NAME(id)                                                                           \
    "(SELECT name FROM engine n WHERE n.engine = " id                                             \
    " ORDER BY n.t_us DESC, n.change_id DESC LIMIT 1)"
#define TEXT_OF(id) "(SELECT text FROM word WHERE word_id = " id ")"

static const Topic topics[] = {
    /* One row a step: its newest run. */
    {"steps",
     "SELECT step, started_us, ended_us, outcome, policy_version, samples, tokens, reward_mean,"
     " eval_reward_mean, reward_std, data_position, trainer_state FROM step a WHERE NOT EXISTS"
     " (SELECT 1 FROM step b WHERE b.step = a.step AND b.step_id > a.step_id)",
     " ORDER BY step"},
    {"engines",
     "SELECT e.name AS engine, e.address AS address,"
     " (SELECT max(i.incarnation) FROM incarnation i WHERE i.engine = e.engine) AS incarnation,"
     " coalesce(" WORD("engine_state", "s.state") ", 'starting') AS state,"
     " s.policy_version AS policy_version,"
     " (SELECT ok_us FROM last_ok k WHERE k.engine = e.engine) AS seen_us,"
     " s.since_us AS since_us, s.reason AS reason, e.engine AS engine_id"
     " FROM engine e LEFT JOIN engine_state s ON s.change_id ="
     " (SELECT change_id FROM engine_state x WHERE x.engine = e.engine"
     " ORDER BY t_us DESC, change_id DESC LIMIT 1) WHERE e.change_id ="
     " (SELECT change_id FROM engine y WHERE y.engine = e.engine"
     " ORDER BY t_us DESC, change_id DESC LIMIT 1)",
     " ORDER BY engine_id"},
    {"policies",
     "SELECT p.version AS version, p.digest AS digest, coalesce("
     WORD("policy_state", "s.state") ", 'published') AS state,"
     " (SELECT max(t_us) FROM policy_state d WHERE d.version = p.version AND d.state IN"
     " (SELECT code FROM enumeration WHERE kind = 'policy_state'"
     " AND word IN ('committed', 'rolled_back', 'rejected'))) AS decided_us,"
     " p.t_us AS published_us, p.parent AS parent, p.step AS step, p.bytes AS bytes,"
     " p.kind AS kind, s.txn_id AS txn, s.reason AS reason, p.path AS path"
     " FROM policy p LEFT JOIN policy_state s ON s.change_id ="
     " (SELECT change_id FROM policy_state x WHERE x.version = p.version"
     " ORDER BY t_us DESC, change_id DESC LIMIT 1) WHERE p.change_id ="
     " (SELECT max(change_id) FROM policy y WHERE y.version = p.version)",
     " ORDER BY version"},
    /* One row a sample: its newest attempt. */
    {"samples",
     "SELECT a.sample_id AS sample, a.group_id AS \"group\", a.step AS step,"
     " " ENGINE_NAME("a.engine") " AS engine, " WORD("sample_fate", "a.fate") " AS fate,"
     " a.reward AS reward, a.tokens AS tokens, a.versions AS versions, a.try AS attempt,"
     " a.eval AS eval, a.started_us AS started_us, a.ended_us AS ended_us,"
     " a.first_token_us AS first_token_us, " TEXT_OF("a.finish") " AS finish,"
     " a.reason AS reason FROM attempt a WHERE NOT EXISTS (SELECT 1 FROM attempt b"
     " WHERE b.sample_id = a.sample_id AND b.try > a.try)",
     " ORDER BY sample"},
    {"groups",
     "SELECT group_id AS \"group\", step, t_us, eval, prompt_index, want,"
     " blob_text(prompt) AS prompt, blob_text(label) AS label FROM sample_group",
     " ORDER BY group_id"},
    {"commands",
     "SELECT command_id AS command, min(t_us) AS asked_us, max(t_us) AS updated_us,"
     " max(who) AS who, max(what) AS what, max(target) AS target, max(reason) AS reason,"
     " (SELECT state FROM command x WHERE x.command_id = c.command_id AND state IS NOT NULL"
     " ORDER BY t_us DESC, change_id DESC LIMIT 1) AS state,"
     " (SELECT answer FROM command x WHERE x.command_id = c.command_id AND answer IS NOT NULL"
     " ORDER BY t_us DESC, change_id DESC LIMIT 1) AS answer FROM command c GROUP BY command_id",
     " ORDER BY command"},
    {"events",
     "SELECT event_id AS event, t_us, " WORD("severity", "event.severity") " AS severity,"
     " source, " ENGINE_NAME("event.engine") " AS engine, text FROM event",
     " ORDER BY event"},
    {"probes",
     "SELECT probe_id AS probe, t_us, CASE WHEN engine = 0 THEN 'frontend' ELSE "
     ENGINE_NAME("probe.engine") " END AS engine, incarnation,"
     " " WORD("probe_kind", "probe.kind") " AS kind, " TEXT_OF("probe.outcome") " AS outcome,"
     " status, latency_us, running, waiting, used_tokens, token_usage, gen_tokens_total,"
     " gen_throughput, cache_hit_rate, retracted_total, policy_version FROM probe",
     " ORDER BY probe"},
    {"txns",
     "SELECT txn_id AS txn, started_us, decided_us, ended_us, from_version, to_version,"
     " CASE decided WHEN 1 THEN 'commit' WHEN 0 THEN 'roll back' END AS decision, outcome,"
     " engines, pause_us, command_id AS command, why, decision_reason FROM txn",
     " ORDER BY txn"},
    {"answers",
     "SELECT txn_id AS txn, " ENGINE_NAME("a.engine") " AS engine, incarnation,"
     " " WORD("txn_phase", "a.phase") " AS phase, ok, t_us, took_us, detail FROM txn_answer a",
     " ORDER BY a.answer_id"},
    {"metrics",
     "SELECT step, " TEXT_OF("m.name") " AS name, value, t_us, " ENGINE_NAME("m.engine")
     " AS engine FROM metric m",
     " ORDER BY m.metric_id"},
    {"rollups",
     "SELECT span_s, start_s * 1000000 AS start_us, " TEXT_OF("r.series") " AS series,"
     " CASE r.engine WHEN -1 THEN 'all' WHEN 0 THEN 'frontend' ELSE " ENGINE_NAME("r.engine")
     " END AS engine, step, count, min, mean, max FROM rollup r",
     " ORDER BY r.span_s, r.start_s, r.series, r.engine"},
    {"incidents",
     "SELECT incident_id AS incident, onset_us, ended_us, class, "
     WORD("severity", "incident.severity") " AS severity, " ENGINE_NAME("incident.engine")
     " AS engine, evidence, next_key FROM incident",
     " ORDER BY incident"},
    {"alert_changes",
     "SELECT c.incident_id AS incident, c.t_us AS t_us, i.class AS class, "
     WORD("severity", "c.severity") " AS severity, " ENGINE_NAME("i.engine")
     " AS engine, c.evidence AS evidence FROM incident_change c"
     " LEFT JOIN incident i ON i.incident_id = c.incident_id",
     " ORDER BY c.change_id"},
    {"alert_rules",
     "SELECT t_us, class, words, changed FROM alert_rule",
     " ORDER BY rule_id"},
    {"phases",
     "SELECT phase_id, step, " WORD("loop_phase", "phase.phase") " AS phase, started_us,"
     " ended_us, outcome FROM phase",
     " ORDER BY phase_id"},
    {"children",
     "SELECT t_us, " TEXT_OF("c.child") " AS child, is_stderr, CAST(line AS TEXT) AS line"
     " FROM child_line c",
     " ORDER BY c.line_id"},
};

const Topic *topics_all(size_t *count)
{
    *count = sizeof topics / sizeof topics[0];
    return topics;
}
