/* Shared by txn.c (answers, losses, time), txn_phases.c (what each phase gives and what follows),
 * txn_calls.c (what is asked, what may still be under way) and txn_verify.c (the judgement over
 * members). Nobody else looks in. */
#ifndef ROLLTOP_POLICY_TXN_PRIVATE_H
#define ROLLTOP_POLICY_TXN_PRIVATE_H

#include "core/policy/txn.h"
#include "core/policy/txn_planted.h"

enum { TXN_CANARY_MAX = 256, TXN_DIGEST_MAX = 136, TXN_WHY_MAX = 96, TXN_DOUBTS_MAX = 8 };

typedef enum VerifyPart { VERIFY_VERSION, VERIFY_CHECKSUM, VERIFY_SCORE, VERIFY_PARTS } VerifyPart;

typedef struct Doubt { /* a call that was given up */
    TxnActionKind kind;
    uint32_t seq;
    int64_t version;
    bool own_copy; /* APPLY: it may load bytes that nobody has seen, whatever its version */
} Doubt;

typedef struct Member {
    TxnMember id;
    bool lost;        /* its process ended: out of the membership */
    bool touched;     /* APPLY was sent at least once: may hold anything until verified */
    bool scored;      /* since its last flush: the canary's keys and values are in its cache */
    bool failed;      /* cannot be brought to the version this pass wants */
    bool quarantined;
    bool done;        /* with the work of the present phase */
    bool retrying;    /* waits for due_us */
    uint32_t awaited[TXN_ACT_END + 1]; /* sequence number of the outstanding action, 0 none */
    bool pulled;      /* its own copy is at the new version, as it says */
    bool own_copy;    /* the newest APPLY was from there */
    bool copy_odd;    /* … and did not lead to the version */
    int tries;        /* of the present phase */
    int applies;      /* of the present pass (new version, or roll-back) */
    int64_t due_us;
    /* VERIFY's evidence of the present attempt */
    bool part_done[VERIFY_PARTS], part_ok[VERIFY_PARTS], part_absent[VERIFY_PARTS];
    int64_t version;
    char digest[TXN_DIGEST_MAX];
    float logprobs[TXN_CANARY_MAX];
    int logprob_count;
    char why[TXN_WHY_MAX];
    Doubt doubts[TXN_DOUBTS_MAX];
    int doubt_count;
    bool doubt_full; /* more than fit: nothing can clear it */
} Member;

struct Txn {
    TxnConfig config;
    Member *members;
    int count;
    int *at, engines; /* at[engine] - 1: its member; 0: none. Engines below `engines` */
    int done_before;  /* members before it are done with the present phase */
    bool retries;     /* in the present phase somebody waits, or has waited, for due_us */
    TxnPhase phase;
    bool rolling_back;   /* the decision was roll-back: the version wanted is from_version */
    bool begun, over, committed;
    int64_t deadline_us, decide_again_us;
    uint32_t seq, awaited_global; /* outstanding CHECK, GATE, DECIDE or OPEN */
    uint64_t ignored;
    float expect[TXN_CANARY_MAX], expect_back[TXN_CANARY_MAX];
    int expect_count, expect_back_count;
    char expect_digest[TXN_DIGEST_MAX], expect_back_digest[TXN_DIGEST_MAX];
    char reason[128];
    TxnAction *queue;    /* ring that grows; bounded by 4 actions a member and a few */
    size_t head, tail, capacity;
};

/* Judges VERIFY once every member's parts are in: sets failed and why on the odd ones. */
void txn_judge(Txn *txn);
Member *txn_member(const Txn *txn, int engine); /* NULL: none of this transaction */

/* txn_phases.c. txn_enter takes back what the phase before left in the members; the starts enter
 * their phase and give members their work. */
bool member_active(const Member *member); /* not lost, not quarantined */
int64_t txn_wanted_version(const Txn *txn);
void txn_enter(Txn *txn, TxnPhase phase, int64_t now_us);
void txn_start_prepare(Txn *txn, int64_t now_us);
void txn_start_look(Txn *txn, Member *member);
void txn_load(Txn *txn, Member *member); /* APPLY, or first the flush that has to come before it */
/* Work of the phase just entered to every member that has any: the rest is done at once. */
void txn_start_members(Txn *txn, TxnActionKind kind);
void txn_decide(Txn *txn, bool commit, int64_t now_us);
void txn_start_rollback(Txn *txn, int64_t now_us); /* once that decision is durable */
void txn_start_continue(Txn *txn, int64_t now_us);
void txn_advance(Txn *txn, int64_t now_us); /* while all are done with the phase: the next one */
void txn_finish(Txn *txn, bool committed);

/* txn_calls.c. The action stays the caller's to fill until the next emit. */
TxnAction *txn_emit(Txn *txn, TxnActionKind kind);
void txn_emit_global(Txn *txn, TxnActionKind kind); /* its answer is awaited */
TxnAction *txn_emit_member(Txn *txn, Member *member, TxnActionKind kind);
/* A call that was sent may still act. seq 0 and calls that only read are no doubt. */
void txn_doubt_add(const Txn *txn, Member *member, TxnActionKind kind, uint32_t seq);
void txn_doubt_clear(Member *member, uint32_t seq); /* its answer has come */
bool txn_doubtful(const Txn *txn, const Member *member); /* must not serve */
void txn_give_up(const Txn *txn, Member *member); /* nothing is awaited from it any more */

#endif
