/* The policy transaction as a pure state machine (design §5): every engine on the new policy, or
 * every engine on the old one. (state, event) -> (state, actions); engines are members by
 * (index, incarnation); answers from another incarnation or epoch are ignored and counted.
 *
 * Order: CHECK artifact (the gate is still open: a bad artifact costs nobody a pause), PREPARE
 * (engines with a checkpoint directory of their own bring it to the new version), GATE, PAUSE,
 * FLUSH, APPLY, VERIFY, DECIDE (durable, before anybody goes on), CONTINUE, OPEN; or, when a member
 * cannot be brought over: APPLY again (retries), else DECIDE roll-back, ROLLBACK (apply the old
 * version to whoever was touched and verify it), QUARANTINE who cannot, CONTINUE, OPEN. A member
 * that dies is dropped from the membership (it is fenced when it comes back). With from_version -1
 * there is nothing to go back to: touched members are quarantined, and whoever an earlier update
 * may have touched (`unknown`); so is, in a roll-back, who was not touched and is not known to hold
 * the old version.
 *
 * Every action carries a sequence number, and only the answer with the number of the outstanding
 * action counts: a late answer of an attempt that was given up is ignored and counted. No answer
 * is expected for QUARANTINE and END. Every phase ends within its budget whatever engines do; only
 * DECIDE waits for the log without bound (repeated each second), since nothing may go on without
 * it.
 *
 * Own copies: a member that `pulls` is asked to bring its own directory to the new version, by the
 * delta if that directory is proved to hold the delta's base (`follows`), else in full, and then
 * loads from there. A pull that fails costs nothing: such a member, one whose verification failed,
 * and everybody in a roll-back loads the full artifact. So a delta can end no transaction, and it
 * is never applied to a base without proof.
 *
 * Whoever can say so is asked in PREPARE whether it sees the artifact; one that does not ends the
 * transaction there, with nobody paused. No answer is no reason.
 *
 * Doubt: a call that was given up without an answer, or whose connection broke, may still act. A
 * late pause would leave an engine paused, a late load of another version would change what it
 * serves. Who has such a call open when the others go on is quarantined until its answer comes,
 * it is a new process, or TXN_DOUBT_US have passed; `txn_in_doubt` tells the caller.
 * Sizes: up to 1,024 members, one allocation each; O(members) per phase. */
#ifndef ROLLTOP_POLICY_TXN_H
#define ROLLTOP_POLICY_TXN_H

#include "store/store.h"

typedef struct Txn Txn;

/* How long after it was given up a call may still act, if nobody says otherwise; later than any
 * proxy keeps one. */
#define TXN_DOUBT_US INT64_C(600000000)

typedef struct TxnMember {
    int engine;
    int64_t incarnation;
    bool holds; /* verified on from_version before; else a roll-back that cannot prove it fences */
    bool unknown; /* nothing was committed yet, and an earlier update may have loaded anything */
    bool keeps; /* its pause keeps requests, and its flush then proves that no cache outlives it */
    bool same_digest; /* its checksum is the artifact's digest (txn_expect_digests) */
    bool looks; /* can say whether it sees an artifact */
    bool pulls; /* keeps a checkpoint directory of its own and can bring it to a version */
    int64_t follows; /* what that directory holds for sure: this process loaded that version from
                      * it and was verified, and no pull was sent since; -1 not known */
} TxnMember;

typedef struct TxnConfig {
    int64_t txn, from_version, to_version; /* from -1: nothing committed yet (first update) */
    int64_t delta_base;    /* to_version is there as a delta on this version; -1: only in full */
    int apply_retries;     /* per engine, 1 */
    int flush_retries;     /* 0: default, 25 */
    int64_t phase_budget_us[TXN_PHASE_COUNT]; /* per TxnPhase; 0: default (txn_phases.c) */
    float canary_tolerance; /* largest |difference| of a canary log-prob; 0: default 0.05 */
} TxnConfig;

typedef enum TxnActionKind {
    TXN_ACT_CLOSE_GATE, /* stop starting generation (driver answers at once) */
    TXN_ACT_CHECK,      /* check the artifact of `version` */
    TXN_ACT_LOOK,       /* does the engine see the artifact of `version` where it is to load it? */
    TXN_ACT_PULL,       /* engine brings its own copy to `version`, from `base` or (-1) in full */
    TXN_ACT_PAUSE, TXN_ACT_FLUSH,
    TXN_ACT_APPLY,      /* engine loads `version`, `own_copy`: from its directory */
    TXN_ACT_READ_VERSION, TXN_ACT_CHECKSUM, TXN_ACT_SCORE, /* the three parts of VERIFY */
    TXN_ACT_DECIDE,     /* write the decision; answer when it is durable */
    TXN_ACT_CONTINUE,
    TXN_ACT_QUARANTINE, /* engine can be brought to neither */
    TXN_ACT_OPEN_GATE,
    TXN_ACT_END         /* outcome in `commit`; the transaction is over */
} TxnActionKind;

typedef struct TxnAction {
    TxnActionKind kind;
    int engine;           /* -1: not about one engine */
    uint32_t seq;         /* to be given back in the answer */
    int64_t incarnation, version;
    int64_t base;
    bool commit, own_copy;
    bool keep;            /* PAUSE: requests under way are kept; else they are aborted */
    TxnPhase phase;       /* the phase it belongs to, for the ledger */
    char reason[128];
} TxnAction;

typedef struct TxnAnswer { /* answer to an action; kind, engine, seq, incarnation from it */
    TxnActionKind kind;
    int engine;
    uint32_t seq;
    int64_t incarnation;
    bool ok;
    bool unsupported;      /* the engine does not offer this check */
    bool unseen;           /* LOOK: it answered that the artifact is not there */
    bool unknown;          /* not ok, and it may have acted or may act yet: no answer came */
    int64_t version;       /* READ_VERSION */
    const char *digest;    /* CHECKSUM; compared between engines */
    const float *logprobs; /* SCORE */
    int logprob_count;
    const char *detail;
} TxnAnswer;

Txn *txn_new(const TxnConfig *config, const TxnMember *members, int count);
void txn_free(Txn *txn);
/* Log-probs of the canary by the trainer's own forward pass of `to_version`; optional. */
void txn_expect(Txn *txn, const float *logprobs, int count);
/* The same of `from_version`, for a roll-back; without it engines are compared with each other. */
void txn_expect_back(Txn *txn, const float *logprobs, int count);
/* Digests of `to_version` and, for a roll-back, `from_version`; NULL or empty: not known. Members
 * with same_digest that say otherwise are odd. */
void txn_expect_digests(Txn *txn, const char *to, const char *from);
void txn_begin(Txn *txn, int64_t now_us);
void txn_answer(Txn *txn, const TxnAnswer *answer, int64_t now_us);
void txn_member_lost(Txn *txn, int engine, int64_t incarnation, int64_t now_us);
void txn_tick(Txn *txn, int64_t now_us); /* budgets */
bool txn_next(Txn *txn, TxnAction *out);
int64_t txn_next_due_us(const Txn *txn); /* when txn_tick must be called at the latest */
TxnPhase txn_phase(const Txn *txn);
int64_t txn_budget_us(const Txn *txn, TxnPhase phase); /* as configured, or the default; 0: none */
uint64_t txn_ignored(const Txn *txn); /* answers of other attempts or incarnations; for tests */
bool txn_failed(const Txn *txn, int engine); /* at a DECIDE to roll back: it is among the odd */
/* What it holds was loaded from its own copy: that copy holds it, if the engine was verified. */
bool txn_own_copy(const Txn *txn, int engine);
/* It loaded what it had pulled, and that was not the version: its copy is not to be trusted. */
bool txn_copy_odd(const Txn *txn, int engine);
/* A call to it that was given up may still act. If it serves all the same (the call would load
 * what it holds), it must stay out of the transactions of the next TXN_DOUBT_US. */
bool txn_in_doubt(const Txn *txn, int engine);
#endif
