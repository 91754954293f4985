/* What the ledger of a dead core says: which policy stands, which transactions it left open and
 * how each of them is to be closed. Pure; the core at its start and the simulator feed it the
 * same rows: every transaction of the log, in order of id.
 *
 * The rule: a durable decision to commit stands; everything else (undecided, or decided to roll
 * back) never happened. Fences (from == to) change nothing. The engines' own state is not asked:
 * each is brought to the policy that stands, verified, and admitted then. */
#ifndef ROLLTOP_POLICY_RECOVER_H
#define ROLLTOP_POLICY_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct LedgerRow { /* one transaction of the log */
    int64_t txn, from_version, to_version;
    int decided; /* 1 commit, 0 roll back, -1 undecided */
    bool ended;
} LedgerRow;

typedef struct Recovery {
    int64_t committed;    /* the policy that stands; -1 none */
    int64_t last_txn;     /* highest id seen, 0 none */
    int64_t last_version; /* highest version any transaction was about, -1 none */
    int open;             /* transactions without an end */
} Recovery;

typedef struct RecoverClose { /* what to write for one row */
    bool close;        /* it has no end yet: write one */
    bool state;        /* and a state of its to_version: */
    bool committed;    /* committed, else rolled back */
} RecoverClose;

void recover_begin(Recovery *recovery);
RecoverClose recover_row(Recovery *recovery, const LedgerRow *row);

#endif
