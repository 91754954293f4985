/* A policy transaction under way, shared by the driver's two files about it. */
#ifndef ROLLTOP_LOOP_DRIVER_SYNC_PRIVATE_H
#define ROLLTOP_LOOP_DRIVER_SYNC_PRIVATE_H

#include "core/loop/driver_private.h"

typedef struct SyncMember {
    TxnMember id;
    bool out; /* lost or quarantined */
} SyncMember;

struct SyncJob {
    Driver *d;
    Txn *txn;
    SyncMember *members;
    int count, calls; /* calls: answers that still come and point here */
    int64_t id, from, to, gate_us;
    bool fence, again, over, committed, rolled_back, bad_artifact, pumping;
    bool keeps; /* what is being generated goes on under the new policy */
    TxnAction version_asked; /* READ_VERSION of an engine of ours, until the CHECKSUM that follows
                              * at once: one reply answers both */
};

typedef struct SyncCall { /* an action whose answer still comes */
    SyncJob *job;
    TxnAction action;
    int64_t sent_us;
    bool own;             /* SCORE: by an engine of ours */
    bool continued;       /* SCORE: the engine runs for its canary */
    EngineAnswer *scored; /* SCORE: kept while the engine is paused again */
    TxnAction version_asked; /* CHECKSUM: a READ_VERSION that its reply answers too, if its kind
                              * is that */
} SyncCall;

/* driver_sync.c */
void sync_give(SyncJob *job, const TxnAnswer *answer);

/* driver_sync_calls.c */
bool sync_own_engine(const Driver *d, int engine); /* rolltop's own program, started by us */
TxnAnswer sync_answer_to(const TxnAction *action, bool ok, const char *detail);
void sync_policy_state(Driver *d, int64_t version, int64_t txn, PolicyState state,
                       const char *reason);
void sync_check_artifact(SyncJob *job, const TxnAction *action);
/* PAUSE, FLUSH, APPLY, the three checks, CONTINUE: a call, or an answer at once. */
void sync_call(SyncJob *job, const TxnAction *action);

#endif
