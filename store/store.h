/* The log's writing side: one SQLite file per run, one writer thread, group commit.
 *
 * Facts are small value structs; store_put_* copies them into a bounded queue and returns at
 * once. Bulk rows may trail by at most 100 ms; a fact that somebody acts on is followed by
 * store_ticket/store_wait (or the durable notification) before it is acted on. When the queue is
 * full bulk facts (probes, progress, metrics, child lines) are dropped, counted, and the count is
 * itself logged as an event; all other facts block the caller until there is room.
 * Times are wall microseconds given by the caller: the store reads no clock for facts.
 * Strings in facts are borrowed during the call only. NULL strings are stored as NULL.
 * A disk that is full or a failed commit puts the store in NOT RECORDING (store_status) and keeps
 * the queue; it is retried each second and nothing that fits the queue is lost.
 * Expected rates: 1,000 probes/s, 10,000 samples/min; files to 100 million rows. */
#ifndef ROLLTOP_STORE_STORE_H
#define ROLLTOP_STORE_STORE_H

#include "core/base/str.h"
#include "core/base/val.h"

typedef struct Store Store;

enum { STORE_SCHEMA_VERSION = 3, STORE_APPLICATION_ID = 0x726f6c6c }; /* "roll" */

typedef struct StoreConfig {
    size_t queue_facts;  /* 0: 65,536 */
    size_t commit_rows;  /* group size at most; 0: 1,000 */
    int64_t commit_ms;   /* bulk rows trail at most this; 0: 50 */
    /* Retention (trim.h): what goes when it is older than keep_us, or, oldest first, when the log
     * holds more than max_bytes. 0: never. */
    int64_t keep_us, max_bytes;
    /* Called on the writer thread when a commit became durable or the status changed; must not
     * block (the driver uses uv_async_send). May be NULL. */
    void (*on_durable)(void *user);
    void *user;
} StoreConfig;

typedef enum StoreStatus { STORE_RECORDING, STORE_NOT_RECORDING } StoreStatus;

/* Creates or opens for writing; migrates older schemas; refuses newer ones, foreign files and a
 * second writer (ERR_STATE) by name. */
Err store_open(const char *path, const StoreConfig *config, Store **out, Fault *fault);
/* Commits what is queued (bounded wait) and closes. */
void store_close(Store *store);
const char *store_path(const Store *store);
StoreStatus store_status(Store *store, Fault *why);

/* Durability: everything put before store_ticket is durable once store_durable >= ticket. */
uint64_t store_ticket(Store *store); /* also asks for a commit now */
uint64_t store_durable(Store *store);
Err store_wait(Store *store, uint64_t ticket, int64_t timeout_ms, Fault *fault);
uint64_t store_dropped(Store *store); /* bulk rows; for tests and benches, the log says it itself */

/* Largest ids in the log, 0 when none: a resumed core goes on from them. Read at open. */
typedef struct StoreMarks {
    int64_t session, engine, sample, group, txn, command, incident, policy_version, phase;
    int64_t last_step_ended; /* with outcome "ok"; -1: none */
} StoreMarks;
const StoreMarks *store_marks(const Store *store);

/* ---- names -------------------------------------------------------------------------------- */

/* One X-macro per enumeration: enum, stored word and console word come from it. The position is
 * what the file holds, so new words go to the end; a file with other words is refused. */
#define ENGINE_STATES(X)                                                                          \
    X(ENGINE_UP, "up") X(ENGINE_BUSY, "busy") X(ENGINE_SLOW, "slow") X(ENGINE_STUCK, "stuck")     \
    X(ENGINE_PAUSED, "paused") X(ENGINE_LOADING, "loading") X(ENGINE_STALE, "stale")              \
    X(ENGINE_DEAD, "dead") X(ENGINE_FENCED, "fenced") X(ENGINE_STARTING, "starting")              \
    X(ENGINE_GONE, "gone")
#define LOOP_PHASES(X)                                                                            \
    X(PHASE_INIT, "init") X(PHASE_EVAL, "eval") X(PHASE_GENERATE, "generate")                     \
    X(PHASE_SCORE, "score") X(PHASE_TRAIN, "train") X(PHASE_PUBLISH, "publish")                   \
    X(PHASE_SYNC, "sync") X(PHASE_SAVE, "save") X(PHASE_PAUSE, "pause") X(PHASE_DONE, "done")
#define SAMPLE_FATES(X)                                                                           \
    X(FATE_OPEN, "open") X(FATE_ACCEPTED, "accepted") X(FATE_REFUSED, "refused")                  \
    X(FATE_LOST, "lost") X(FATE_ABORTED, "aborted")                                               \
    X(FATE_SURPLUS, "surplus")
#define PROBE_KINDS(X)                                                                            \
    X(PROBE_PING, "ping") X(PROBE_HEALTH, "health") X(PROBE_LOADS, "loads")                       \
    X(PROBE_MODEL, "model") X(PROBE_SERVER, "server") X(PROBE_METRICS, "metrics")                 \
    X(PROBE_FRONTEND, "frontend")
#define POLICY_STATES(X)                                                                          \
    X(POLICY_PUBLISHED, "published") X(POLICY_REJECTED, "rejected")                               \
    X(POLICY_APPLYING, "applying") X(POLICY_COMMITTED, "committed")                               \
    X(POLICY_ROLLED_BACK, "rolled_back") X(POLICY_RETIRED, "retired")
#define TXN_PHASES(X)                                                                             \
    X(TXN_GATE, "gate") X(TXN_CHECK, "check") X(TXN_PAUSE, "pause") X(TXN_FLUSH, "flush")         \
    X(TXN_APPLY, "apply") X(TXN_VERIFY, "verify") X(TXN_DECIDE, "decide")                         \
    X(TXN_ROLLBACK, "rollback") X(TXN_CONTINUE, "continue") X(TXN_OPEN, "open")           \
    X(TXN_PREPARE, "prepare")
#define SEVERITIES(X) X(SEVERITY_INFO, "info") X(SEVERITY_WARN, "warn") X(SEVERITY_CRIT, "crit")

#define STORE_ENUM_ENTRY(name, word) name,
typedef enum EngineState { ENGINE_STATES(STORE_ENUM_ENTRY) } EngineState;
typedef enum LoopPhase { LOOP_PHASES(STORE_ENUM_ENTRY) } LoopPhase;
typedef enum SampleFate { SAMPLE_FATES(STORE_ENUM_ENTRY) } SampleFate;
typedef enum ProbeKind { PROBE_KINDS(STORE_ENUM_ENTRY) } ProbeKind;
typedef enum PolicyState { POLICY_STATES(STORE_ENUM_ENTRY) } PolicyState;
typedef enum TxnPhase { TXN_PHASES(STORE_ENUM_ENTRY) TXN_PHASE_COUNT } TxnPhase;
typedef enum Severity { SEVERITIES(STORE_ENUM_ENTRY) } Severity;
const char *engine_state_name(EngineState v);
const char *loop_phase_name(LoopPhase v);
const char *sample_fate_name(SampleFate v);
const char *probe_kind_name(ProbeKind v);
const char *policy_state_name(PolicyState v);
const char *txn_phase_name(TxnPhase v);
const char *severity_name(Severity v);

/* ---- facts -------------------------------------------------------------------------------- */

typedef struct RunFact { /* first fact of a new file; put again it is ignored */
    int64_t t_us;
    const char *run;     /* identifier, e.g. "demo-20260314-104207" */
    const char *name;    /* for people: "demo", "gsm8k-7b" */
    const char *host, *version, *argv_json, *config_json; /* redacted by the caller */
} RunFact;
void store_put_run(Store *store, const RunFact *fact);

/* One life of a core. The first one after store_open also closes what an earlier life left open,
 * at the time of its last fact: attempts become lost, steps and phases "interrupted". Put it
 * before the session's other facts. */
typedef struct SessionFact {
    int64_t session, t_us, ended_us; /* ended_us 0 at start; put again with it at the end */
    int64_t pid;
    const char *how; /* "start", "resume"; at the end the reason */
} SessionFact;
void store_put_session(Store *store, const SessionFact *fact);

typedef struct EngineFact {
    int64_t engine, t_us; /* id from 1 on, stable for a slot (name) over the whole run */
    const char *name;     /* "eng-00" */
    const char *address;  /* "127.0.0.1:30000" */
    bool local;
} EngineFact;
void store_put_engine(Store *store, const EngineFact *fact); /* again: address changed */

typedef struct IncarnationFact { /* one process behind an engine's name */
    int64_t engine, incarnation, t_us, pid; /* incarnation from 1 on per engine; pid 0 unknown */
    const char *identity;                   /* what told it apart */
} IncarnationFact;
void store_put_incarnation(Store *store, const IncarnationFact *fact);

typedef struct EngineStateFact {
    int64_t engine, incarnation, t_us;
    EngineState state;
    int64_t policy_version; /* the verified one; -1 unknown */
    const char *reason;
} EngineStateFact;
void store_put_engine_state(Store *store, const EngineStateFact *fact);

typedef struct ProbeFact { /* bulk; every probe, whatever its outcome */
    int64_t engine, incarnation, t_us, latency_us; /* engine 0: the frontend */
    ProbeKind kind;
    const char *outcome; /* "ok" or the HttpEnd name or "http NNN" or "bad reply" */
    int status;          /* HTTP, 0 none */
    Val running, waiting, used_tokens, token_usage, gen_tokens_total, gen_throughput,
        cache_hit_rate, retracted_total;
    int64_t policy_version; /* reported by the engine; -1 unknown */
} ProbeFact;
void store_put_probe(Store *store, const ProbeFact *fact);

typedef struct PhaseFact {
    int64_t phase_id, step, t_us; /* begin: phase_id new; end: same id again */
    LoopPhase phase;
    bool end;
    const char *outcome; /* at the end: "ok" or the reason */
} PhaseFact;
void store_put_phase(Store *store, const PhaseFact *fact);

typedef struct StepFact {
    int64_t step, t_us;
    bool end;
    int64_t policy_version; /* the one that generates it */
    const char *outcome;    /* at the end: "ok", "failed: …", "stopped" */
    int64_t samples, tokens;
    Val reward_mean, reward_std, eval_reward_mean; /* known flag decides NULL */
    const char *trainer_state; /* at the end: directory that holds the trainer after this step */
    int64_t data_position;     /* at the end: prompts consumed, for resume */
} StepFact;
void store_put_step(Store *store, const StepFact *fact);

typedef struct GroupFact {
    int64_t group, step, t_us;
    bool eval;
    int64_t prompt_index; /* row of the prompt file */
    Str prompt, label;
    const int32_t *prompt_ids;
    size_t prompt_count;
    int64_t want; /* samples */
} GroupFact;
void store_put_group(Store *store, const GroupFact *fact);

typedef struct SampleStartFact { /* one attempt of a sample is sent */
    int64_t sample, group, step, t_us;
    int attempt;         /* from 1 on */
    int64_t engine;      /* 0 while unknown (a frontend chose) */
    bool eval;
} SampleStartFact;
void store_put_sample_start(Store *store, const SampleStartFact *fact);

typedef struct SampleProgressFact { /* bulk, at most 1 Hz per sample in flight */
    int64_t sample, t_us, engine, tokens;
} SampleProgressFact;
void store_put_sample_progress(Store *store, const SampleProgressFact *fact);

typedef struct SampleSpan { /* tokens [from, to) of the response were made by this policy */
    int32_t from, to;
    int64_t policy_version;
} SampleSpan;

typedef struct SampleEndFact { /* end of an attempt; fate ACCEPTED at most once per sample */
    int64_t sample, t_us, engine;
    int attempt;
    SampleFate fate;
    const char *finish;  /* "stop", "length", "abort", or NULL */
    const char *reason;  /* why refused, lost, aborted; NULL when accepted */
    Val reward;
    const int32_t *tokens;
    const float *logprobs; /* of the tokens, or NULL */
    size_t token_count;
    const SampleSpan *spans;
    size_t span_count;
    Str text;
    int64_t first_token_us; /* after the start; 0 unknown */
} SampleEndFact;
void store_put_sample_end(Store *store, const SampleEndFact *fact);

typedef struct SampleRewardFact { /* reward of an accepted sample, when it comes later */
    int64_t sample, t_us;
    Val reward;
} SampleRewardFact;
void store_put_sample_reward(Store *store, const SampleRewardFact *fact);

typedef struct PolicyFact {
    int64_t version, t_us, parent; /* parent -1: none */
    const char *digest, *path, *kind; /* kind "full", "delta" */
    int64_t bytes, step;
} PolicyFact;
void store_put_policy(Store *store, const PolicyFact *fact);

typedef struct PolicyStateFact {
    int64_t version, t_us, txn; /* txn 0: none */
    PolicyState state;
    const char *reason;
} PolicyStateFact;
void store_put_policy_state(Store *store, const PolicyStateFact *fact);

typedef struct TxnFact {
    int64_t txn, t_us, from_version, to_version, command; /* command 0: the loop itself */
    int64_t engines;
    const char *why;
} TxnFact;
void store_put_txn(Store *store, const TxnFact *fact);

typedef struct TxnAnswerFact { /* one engine's answer in one phase; engine 0: the artifact check */
    int64_t txn, engine, incarnation, t_us, took_us;
    TxnPhase phase;
    bool ok;
    const char *detail;
} TxnAnswerFact;
void store_put_txn_answer(Store *store, const TxnAnswerFact *fact);

typedef struct TxnDecisionFact { /* durable before any engine continues */
    int64_t txn, t_us;
    bool commit;
    const char *reason;
} TxnDecisionFact;
void store_put_txn_decision(Store *store, const TxnDecisionFact *fact);

typedef struct TxnEndFact {
    int64_t txn, t_us;
    const char *outcome; /* "committed", "rolled_back", "rejected", "abandoned: …" */
    int64_t pause_us;    /* generation closed for */
} TxnEndFact;
void store_put_txn_end(Store *store, const TxnEndFact *fact);

typedef struct CommandFact { /* put again with the same id as it advances */
    int64_t command, t_us;
    const char *who;   /* "ana (pid 4711)" */
    const char *what;  /* "pause", "resume", "update", "restart", "stop", … */
    const char *target, *reason;
    const char *state; /* "asked", "accepted", "refused", "done", "failed" */
    const char *answer;
} CommandFact;
void store_put_command(Store *store, const CommandFact *fact);

typedef struct IncidentFact { /* put again as it gets worse, and with ended_us set */
    int64_t incident, onset_us, ended_us;
    int64_t t_us; /* when this was known: raised or worse; 0: as it is put. Unused at the end */
    const char *class_name; /* "ENGINE-DEAD", "TRAINER-DEAD", … reference names */
    Severity severity;
    int64_t engine; /* 0: not about one engine */
    const char *evidence, *next_key;
} IncidentFact;
void store_put_incident(Store *store, const IncidentFact *fact);

typedef struct AlertRuleFact { /* all of a session's at once, with one t_us */
    int64_t t_us;
    const char *class_name;
    const char *words; /* in the words of the configuration: "hold 10s, severity crit" */
    bool changed;      /* not as it is by default */
} AlertRuleFact;
void store_put_alert_rule(Store *store, const AlertRuleFact *fact);

typedef struct EventFact {
    int64_t t_us;
    Severity severity;
    const char *source; /* "eng-03", "policy", "rollout", "trainer", "operator", "core" */
    int64_t engine;     /* 0: none */
    const char *text;
} EventFact;
void store_put_event(Store *store, const EventFact *fact);

typedef struct MetricFact { /* trainer and loop metrics; bulk */
    int64_t step, t_us, engine; /* engine 0: none */
    const char *name;           /* slime's names: "train/pg_loss", "perf/rollout_time" … */
    double value;               /* NaN allowed, stored as NULL */
} MetricFact;
void store_put_metric(Store *store, const MetricFact *fact);

typedef struct ChildLineFact { /* bulk */
    int64_t t_us;
    const char *child; /* "trainer", "eng-00", "frontend" */
    bool is_stderr;
    Str line;
} ChildLineFact;
void store_put_child_line(Store *store, const ChildLineFact *fact);

#endif
