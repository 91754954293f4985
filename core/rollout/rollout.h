/* One rollout as a state machine: groups, samples, attempts, admission. Pure:
 * (state, event) -> (state, actions). No socket, clock, thread or file inside.
 *
 * The driver carries out actions in order: START sends one attempt to the frontend, CANCEL closes
 * one, SCORE computes a reward, DONE hands over the batch. It feeds back every end. Admission:
 * a sample enters the batch only if every span carries an allowed policy version, counts agree,
 * log-probs are finite and its end is recognised; what is refused is generated again, and every
 * fate is told in an action of kind LOG. Bounded retries with back-off; never silent loss.
 *
 * An attempt that was cut leaves its tokens, and the next one goes on from them instead of from
 * nothing, where the rest will be made by the policy that made them, or (`resume`) by a newer one
 * within max_staleness. The policy of the batch may change while it runs (rollout_policy).
 *
 * A refusal of the request itself (4xx) would come again: it is final once a second engine says the
 * same, or, where the peer names no engine, once it was said twice over refused_us: what a frontend
 * refuses while its list changes passes within seconds. */
#ifndef ROLLTOP_ROLLOUT_ROLLOUT_H
#define ROLLTOP_ROLLOUT_ROLLOUT_H

#include "core/base/str.h"
#include "core/rollout/spans.h"

typedef struct Rollout Rollout;

typedef enum UpdateInflight { /* what becomes of samples under way when the policy changes */
    INFLIGHT_ABORT,    /* aborted, generated anew */
    INFLIGHT_RESUME,   /* aborted, gone on with from the tokens so far */
    INFLIGHT_IN_PLACE  /* kept by engines that can; at others as RESUME */
} UpdateInflight;

typedef struct RolloutConfig {
    int64_t step;
    bool eval;
    int samples_per_group;        /* n */
    int max_in_flight;            /* concurrency over the whole fleet */
    int64_t policy_version;       /* spans must carry it … */
    int64_t max_staleness;        /* … or the batch's policy of at most so many updates ago */
    bool resume;                  /* go on past an update of the policy too */
    int64_t max_new;              /* tokens of a whole response; 0: nothing is gone on from */
    const int32_t *end_ids;       /* tokens that end a response; borrowed */
    size_t end_id_count;
    int32_t vocab;
    int max_attempts;             /* per sample before the rollout fails by name; an end with
                                     retry_elsewhere counts one sixteenth of an attempt */
    int64_t retry_min_us, retry_max_us; /* back-off; Retry-After wins inside the bounds */
    int64_t refused_us;           /* refused for so long: the rollout fails by name, too (below) */
    int64_t first_sample, first_group;  /* ids to give out */
} RolloutConfig;

typedef enum RolloutActionKind {
    ROLLOUT_START,   /* sample, attempt, group; kept > 0: from rollout_kept's tokens on */
    ROLLOUT_CANCEL,  /* sample, attempt */
    ROLLOUT_SCORE,   /* sample: accepted, wants its reward */
    ROLLOUT_LOG,     /* sample, attempt ended with fate and reason */
    ROLLOUT_DONE,    /* every group complete and scored */
    ROLLOUT_FAILED   /* reason: attempts exhausted for `sample` */
} RolloutActionKind;

typedef struct RolloutAction {
    RolloutActionKind kind;
    int64_t sample, group;
    int group_index, attempt;
    size_t kept;
    SampleFate fate;
    char reason[96];
} RolloutAction;

/* End of one attempt as the generation client reports it. Arrays are copied when accepted or
 * kept. Those of an attempt that went on from kept tokens begin with these. */
typedef struct RolloutAttemptEnd {
    int64_t sample;
    int attempt;
    bool whole;             /* a recognised terminal state: stop or length */
    bool retry_elsewhere;   /* the failure says nothing about the sample */
    bool anew;              /* the next attempt begins from nothing, whatever this one holds */
    bool refused;           /* the request itself was refused */
    int64_t engine;         /* who ended it; 0 not known */
    const char *finish;     /* "stop", "length", "abort" or the failure's name */
    double retry_after_s;   /* < 0: none */
    const int32_t *ids;
    const float *logprobs;
    size_t count;
    const SampleSpan *spans;
    size_t span_count;
    Str text;
} RolloutAttemptEnd;

typedef struct RolloutSample { /* an accepted sample, or the kept part of one */
    int64_t sample, group;
    int group_index, attempt;
    const int32_t *ids;
    const float *logprobs;
    size_t count;
    const SampleSpan *spans;
    size_t span_count;
    Str text;
    const char *finish;
    double reward;
    bool scored;
} RolloutSample;

Rollout *rollout_new(const RolloutConfig *config, int group_count);
void rollout_free(Rollout *rollout);
/* Events. Actions are read with rollout_next until it gives false. */
void rollout_begin(Rollout *rollout, int64_t now_us);
void rollout_attempt_end(Rollout *rollout, const RolloutAttemptEnd *end, int64_t now_us);
void rollout_reward(Rollout *rollout, int64_t sample, double reward);
void rollout_gate(Rollout *rollout, bool open, int64_t now_us); /* closed: starts nothing new */
/* The fleet holds another policy now, which is the batch's from here on: to be told before the
 * gate opens. How many waiting samples go on from their tokens, how many begin anew instead. */
typedef struct RolloutChange {
    int go_on, anew;
} RolloutChange;
RolloutChange rollout_policy(Rollout *rollout, int64_t version);
/* Would every sample that is accepted already still be allowed under that policy? */
bool rollout_survives(const Rollout *rollout, int64_t version);
void rollout_tick(Rollout *rollout, int64_t now_us);            /* retries that became due */
/* Cancels everything in flight; no DONE and no FAILED follow, it is over at in_flight 0. */
void rollout_abort(Rollout *rollout);
bool rollout_next(Rollout *rollout, RolloutAction *out);
int64_t rollout_next_due_us(const Rollout *rollout);            /* 0: nothing waits for time */

int rollout_in_flight(const Rollout *rollout);
int rollout_accepted(const Rollout *rollout);
int rollout_wanted(const Rollout *rollout);
/* Accepted samples in order of group, then sample. */
int rollout_samples(const Rollout *rollout, const RolloutSample **out);
/* What the sample's present attempt goes on from; valid until its end. False: nothing. */
bool rollout_kept(const Rollout *rollout, int64_t sample, RolloutSample *out);
int64_t rollout_batch_policy(const Rollout *rollout); /* the newest that it was told */

#endif
