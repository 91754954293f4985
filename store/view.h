/* The log's reading side: what console and CLI ask, at any time T. Live is T = now; one code
 * path. A View owns a read-only connection; no transaction outlives a call (view_hold: a frame).
 * Every call is bounded by what it returns, not by the file. Results are copied into the caller's
 * arena and live until it is reset; strings are NUL-terminated and NOT sanitised (model text is
 * hostile: tui does it at the render boundary). Lists say how many there were in all (`total`).
 *
 * A view remembers what earlier calls read, so that a picture a second later costs what came
 * since; the answer is that of a view just opened, for any T in any order. Kept while the view is
 * open: who engines were, followed by the rows that are added; the ticks of the seconds that
 * pictures asked for, some 256 of them; the newest probes and lines of the engine asked for last.
 * Thrown away when a trim, a clock set back or damage makes them doubtful (view_memory.h).
 *
 * What a trim took (trim.h) is told apart from what never was: `trimmed` in lists, -1 or an
 * unknown Val for numbers; state at a trimmed T is that of the last minute (hour) before it. A
 * damaged page ends the read that meets it, not the view: view_damage says where that was. */
#ifndef ROLLTOP_STORE_VIEW_H
#define ROLLTOP_STORE_VIEW_H

#include "core/base/mem.h"
#include "store/store.h"

typedef struct View View;

/* Opens a log read-only, live ones too, older schemas and files that were cut short as well.
 * ERR_FORMAT: not ours, or a table is missing; ERR_UNSUPPORTED: newer schema, named. Works on a
 * read-only file system. */
Err view_open(const char *path, View **out, Fault *fault);
void view_close(View *view);
/* True when something was committed since the last call (PRAGMA data_version). */
bool view_changed(View *view);
/* `stop` is asked every thousand steps of a query (some 20 us) and ends it when it says so; what
 * was read until then is to be thrown away: `stop` goes on saying so until the read is over. */
void view_interruptible(View *view, int (*stop)(void *user), void *user);
/* Why the last query failed (locked, damaged); ERR_OK when it did not. */
Err view_fault(const View *view, Fault *out);

/* The calls between the two see one state of the log: a frame is of one piece, and what its parts
 * have in common is looked up once. For a frame at most: the -wal cannot be reset meanwhile. */
void view_hold(View *view);
void view_release(View *view);

typedef struct RunView {
    const char *run, *name, *host, *version, *argv_json, *config_json;
    int64_t started_us, first_us, last_us; /* first and last fact in the log */
    bool core_alive;                       /* last session not ended (live only a hint) */
    int64_t trimmed_us; /* rows before were trimmed; 0: none */
} RunView;
bool view_run(View *view, Arena *arena, RunView *out);

typedef struct HeaderView {
    int64_t t_us;
    LoopPhase phase;
    int64_t phase_since_us;
    double phase_median_s; /* of closed spells of this phase, < 0: fewer than 3 */
    int64_t step, steps_done;
    int64_t policy_version;   /* committed at T, -1 none */
    int64_t trainer_version;  /* newest published at T, -1 none */
    bool paused;
    Val tokens_per_s, tokens_per_s_10min; /* sum over engines from counters */
    /* Of the current step at T; -1: trimmed. */
    int64_t samples_done, samples_want, samples_inflight;
    Val reward_mean, eval_reward_mean, eval_reward_first; /* latest ones at or before T */
    Val kv_usage;             /* mean over engines */
    double tail_p50_s, tail_p99_s, tail_max_s; /* ages in flight at T; < 0 none */
    int64_t alerts_open, alerts_crit;
    int64_t last_fact_us;     /* newest fact at or before T: the age of the picture */
    int64_t not_recording_since_us; /* 0: recording */
    int64_t grain_s; /* T is known to this many seconds: 1, or 60 or 3600 where it was trimmed */
} HeaderView;
bool view_header(View *view, int64_t t_us, Arena *arena, HeaderView *out);

enum { VIEW_SPARK_MAX = 128 };
typedef struct EngineRow {
    int64_t engine, incarnation, incarnations, pid;
    const char *name, *address, *reason;
    bool local;
    EngineState state;
    int64_t state_since_us;
    int64_t policy_version, reported_version;
    /* tokens_per_s: slope of the counter over 10 s. itl_ms: running / tokens_per_s, by Little's
     * law. ttft_ms, retracted and errors (probes that went wrong): over the last minute. */
    Val tokens_per_s, running, waiting, kv_usage, itl_ms, ttft_ms;
    Val retracted_per_min, errors_per_min;
    int64_t seen_us;             /* last successful probe; 0 never */
    int64_t first_seen_us;
    float spark[VIEW_SPARK_MAX]; /* tokens/s, oldest first, NaN = no data */
    int spark_count;
} EngineRow;
typedef struct EngineList {
    EngineRow *rows;
    size_t count;
} EngineList;
/* spark_count buckets of spark_us each, ending at T. Ordered by engine id. */
EngineList view_engines(View *view, int64_t t_us, int spark_count, int64_t spark_us, Arena *arena);
/* Every engine that the log names, whatever time it is: id, newest name and address, the highest
 * incarnation. For a core that goes on with the log; the rest of each row is empty. */
EngineList view_known_engines(View *view, Arena *arena);

typedef struct TailRow { /* a sample in flight at T */
    int64_t sample, group, step, engine, started_us, tokens, progress_us, policy_version;
    const char *engine_name;
    int attempt;
    bool eval;
} TailRow;
typedef struct TailList {
    TailRow *rows; /* oldest first */
    size_t count, total;
    int64_t groups_complete, groups_total, groups_blocked_by_one; /* of the current step */
    int64_t age_histogram[8]; /* buckets of the bound below */
    double age_bucket_s;
    bool trimmed; /* what was in flight then is not known any more */
} TailList;
TailList view_tail(View *view, int64_t t_us, size_t limit, Arena *arena);

typedef struct PhaseSpan {
    LoopPhase phase;
    int64_t from_us, to_us; /* to_us 0: open at T */
} PhaseSpan;
typedef struct StepRow {
    int64_t step, started_us, ended_us, policy_version, samples, tokens; /* ended_us 0: open */
    const char *outcome; /* NULL while open */
    Val reward_mean, reward_std, eval_reward_mean;
    PhaseSpan *spans;
    size_t span_count;
} StepRow;
typedef struct StepList {
    StepRow *rows; /* newest first */
    size_t count, total;
} StepList;
StepList view_steps(View *view, int64_t t_us, size_t limit, Arena *arena);

typedef struct EngineSpan { /* how long one engine held samples of one step, for the waterfall */
    int64_t engine, from_us, to_us, samples; /* to_us 0: still */
} EngineSpan;
size_t view_step_engines(View *view, int64_t step, int64_t t_us, Arena *arena, EngineSpan **out);

typedef struct PolicyRow {
    int64_t version, parent, step, bytes, published_us, state_us, txn;
    PolicyState state;
    const char *digest, *path, *kind, *reason;
    int64_t engines; /* that hold it at T by the last verified word */
} PolicyRow;
typedef struct PolicyList {
    PolicyRow *rows; /* newest first */
    size_t count, total;
} PolicyList;
PolicyList view_policies(View *view, int64_t t_us, size_t limit, Arena *arena);

typedef struct TxnAnswerRow {
    int64_t engine, incarnation, t_us, took_us;
    TxnPhase phase;
    bool ok;
    const char *detail;
} TxnAnswerRow;
typedef struct TxnRow {
    int64_t txn, started_us, ended_us, from_version, to_version, engines, pause_us, command;
    const char *why, *outcome, *decision_reason;
    int decided; /* -1 not yet, 0 roll back, 1 commit */
    int64_t decided_us;
    TxnAnswerRow *answers; /* only from view_txn */
    size_t answer_count;
} TxnRow;
typedef struct TxnList {
    TxnRow *rows; /* newest first */
    size_t count, total;
} TxnList;
TxnList view_txns(View *view, int64_t t_us, size_t limit, Arena *arena);
bool view_txn(View *view, int64_t txn, int64_t t_us, Arena *arena, TxnRow *out);

typedef struct EventRow {
    int64_t id, t_us, engine;
    Severity severity;
    const char *source, *text;
} EventRow;
typedef struct EventList {
    EventRow *rows; /* oldest first, ending at T */
    size_t count, total;
    int64_t crit_10min, warn_10min, info_10min;
    bool more_10min; /* there were more in ten minutes: only the newest of them are counted */
} EventList;
enum { VIEW_EVENTS_COUNTED = 2000 };
/* `filter` NULL or a substring of source or text; `before_id` 0: the newest. */
EventList view_events(View *view, int64_t t_us, size_t limit, int64_t before_id,
                      const char *filter, Arena *arena);

typedef struct AlertRow { /* severity and evidence as they were known at T */
    int64_t incident, onset_us, ended_us, engine;
    const char *class_name, *evidence, *next_key;
    Severity severity;
    int64_t known_us; /* since when it is known like this; 0: a log of an older schema, which keeps
                       * only the worst */
} AlertRow;
typedef struct AlertList {
    AlertRow *rows; /* worst first, then oldest onset; open at T */
    size_t count;
} AlertList;
AlertList view_alerts(View *view, int64_t t_us, size_t limit, Arena *arena);

typedef struct RuleRow { /* what raises alerts of a class */
    const char *class_name, *words;
    bool changed; /* the run's own, not the default */
} RuleRow;
typedef struct RuleList {
    RuleRow *rows; /* in the order of classes; none in logs of older schemas */
    size_t count;
} RuleList;
/* The rules in force at T. */
RuleList view_rules(View *view, int64_t t_us, Arena *arena);

typedef struct CommandRow {
    int64_t command, asked_us, updated_us;
    const char *who, *what, *target, *reason, *state, *answer;
} CommandRow;
typedef struct CommandList {
    CommandRow *rows; /* newest first */
    size_t count, total;
} CommandList;
CommandList view_commands(View *view, int64_t t_us, size_t limit, Arena *arena);

typedef struct SampleView { /* one sample's newest attempt at T */
    int64_t sample, group, step, engine, started_us, ended_us, first_token_us, prompt_index;
    int attempt;
    bool eval;
    SampleFate fate;
    const char *engine_name, *finish, *reason;
    Val reward;
    Str prompt, label, text;
    int32_t *tokens;
    float *logprobs;
    size_t token_count;
    SampleSpan *spans;
    size_t span_count;
} SampleView;
bool view_sample(View *view, int64_t sample, int64_t t_us, Arena *arena, SampleView *out);
typedef struct SampleList {
    SampleView *rows; /* without tokens and log-probs */
    size_t count, total;
    bool trimmed; /* the step's samples went; the step itself has their number and mean */
} SampleList;
SampleList view_samples(View *view, int64_t step, int64_t t_us, size_t limit, size_t offset,
                        Arena *arena);

typedef struct BatchRow { /* one sample as it was trained */
    int64_t sample;
    double reward;
    const int32_t *prompt, *tokens;
    size_t prompt_count, token_count;
    const float *logprobs;
    const SampleSpan *spans;
    size_t span_count;
} BatchRow;
typedef struct BatchView {
    const BatchRow *rows; /* in the order of samples */
    size_t count;
    int64_t policy; /* the batch's; -1 not known */
} BatchView;
/* What the step was trained on when it was done last. ERR_NOT_FOUND: it was not done to its end,
 * or its samples are not whole in the log any more. */
Err view_batch(View *view, int64_t step, Arena *arena, BatchView *out, Fault *fault);
/* The newest value of a metric of that step; NAN: there is none. */
double view_metric(View *view, int64_t step, const char *name);

typedef struct CurvePoint {
    int64_t step, t_us;
    double value;
} CurvePoint;
/* A metric by name over steps up to T, at most `limit` newest, oldest first. "eval_reward_mean"
 * and "reward_mean" come from steps. */
size_t view_curve(View *view, const char *name, int64_t t_us, size_t limit, Arena *arena,
                  CurvePoint **out);

typedef struct ChildLineRow {
    int64_t t_us;
    bool is_stderr;
    const char *line;
} ChildLineRow;
size_t view_child_lines(View *view, const char *child, int64_t t_us, size_t limit, Arena *arena,
                        ChildLineRow **out);

typedef struct ProbeRow {
    int64_t t_us, latency_us, incarnation, policy_version; /* as reported; -1 unknown */
    ProbeKind kind;
    const char *outcome;
    int status; /* HTTP, 0 none */
    Val running, waiting;
} ProbeRow;
/* One engine's probes at or before T, newest first; engine 0 is the frontend. */
size_t view_probes(View *view, int64_t engine, int64_t t_us, size_t limit, Arena *arena,
                   ProbeRow **out);

/* Motions of replay: the nearest moment strictly before (dir < 0) or after (dir > 0) T; false
 * when there is none. */
typedef enum ViewMark { MARK_STEP, MARK_ALERT, MARK_POLICY, MARK_PROBE } ViewMark;
bool view_seek(View *view, ViewMark mark, int64_t t_us, int dir, int64_t *out);
/* Start of a step, publication of a version: for '@4126', '@v210'. */
bool view_step_time(View *view, int64_t step, int64_t *out);
bool view_policy_time(View *view, int64_t version, int64_t *out);

typedef struct StripCell { /* one cell of the scrub strip */
    bool gap;        /* nothing was recorded in it */
    int warn, crit;  /* alerts that began in it */
    Val tokens_per_s; /* mean */
    bool damaged;    /* something in it could not be read */
    bool trimmed;    /* only minutes or hours are left of it */
    Val tokens_max;  /* of ten-second spells; unknown in cells below a minute */
} StripCell;
/* Damage: what a salvage could not save, and what this view met so far. */
typedef struct DamageRow {
    int64_t from_us, to_us; /* 0: unknown */
    int64_t rows;           /* lost, or reads that failed */
    const char *table_name; /* NULL: met while reading */
} DamageRow;
/* In order of time; at most `limit`. */
size_t view_damage(View *view, size_t limit, Arena *arena, DamageRow **out);

/* `cells` of [from, to), for the history strip. */
bool view_strip(View *view, int64_t from_us, int64_t to_us, int cells, Arena *arena,
                StripCell **out);

#endif
