/* Deliberate wrong variants of the transaction, to prove that the simulator finds such faults.
 * They exist only where ROLLTOP_TXN_PLANTED is defined: in one library of the tests. */
#ifndef ROLLTOP_POLICY_TXN_PLANTED_H
#define ROLLTOP_POLICY_TXN_PLANTED_H

#define TXN_PLANTED_FAULTS(X)                                                                     \
    X(PLANTED_NONE, "none")                                                                       \
    X(PLANTED_NO_WAIT, "goes on before the decision is durable")                                  \
    X(PLANTED_NO_CANARY, "does not look at the canary")                                           \
    X(PLANTED_NO_VERSION, "does not look at the reported version")                                \
    X(PLANTED_NO_UNDO, "rolls back without loading the old policy")                               \
    X(PLANTED_UNDO_ODD, "rolls back only the engines that failed")                                \
    X(PLANTED_NOT_THE_FIRST, "does not verify the first engine")                                  \
    X(PLANTED_UNPROVED, "believes that an untouched engine holds the old policy")                 \
    X(PLANTED_NO_QUARANTINE, "lets engines serve that could not be rolled back")                  \
    X(PLANTED_LEFT_PAUSED, "continues only the engines it touched")                               \
    X(PLANTED_RECOVER_FORWARD, "recovery takes an undecided transaction for committed")           \
    X(PLANTED_RECOVER_BACK, "recovery undoes a committed transaction")                            \
    X(PLANTED_NO_CHECK, "applies an artifact that was refused")                                   \
    X(PLANTED_NO_DOUBT, "forgets calls that were given up")                                       \
    X(PLANTED_NO_BUDGET, "waits for an engine without bound")                                     \
    X(PLANTED_REVERSED, "decides to roll back after it has committed")                            \
    X(PLANTED_NO_FLUSH, "takes a refused flush for a flush")                                      \
    X(PLANTED_COMMIT_ODD, "commits although an engine failed")                                    \
    X(PLANTED_BACK_UNVERIFIED, "does not verify what it rolled back")                             \
    X(PLANTED_GATE_SHUT, "leaves the gate shut after a roll-back")                                \
    X(PLANTED_DELTA_UNPROVED, "sends a delta to a copy that is not proved to be its base")        \
    X(PLANTED_PULL_TRUSTED, "does not verify who loaded what it had pulled")                      \
    X(PLANTED_UNSEEN, "goes on although an engine does not see the policy")                       \
    X(PLANTED_RESTAMPED, "stamps the tokens that it goes on from with the policy that goes on")   \
    X(PLANTED_KEPT_CACHE, "keeps requests and does not flush what they were computed from")       \
    X(PLANTED_SCORED_CACHE, "loads again over what the canary left in the cache")                 \
    X(PLANTED_UNVOUCHED, "takes what an engine made beside its canary")                            \
    X(PLANTED_REFUSED_WHOLE, "takes an engine that refused a load for untouched")                 \
    X(PLANTED_SCORE_LATE, "takes a canary that ran late for harmless")                            \
    X(PLANTED_STALE, "takes tokens of policies that the batch does not allow")

#define TXN_PLANTED_ENTRY(name, words) name,
typedef enum TxnPlanted { TXN_PLANTED_FAULTS(TXN_PLANTED_ENTRY) TXN_PLANTED_COUNT } TxnPlanted;

#ifdef ROLLTOP_TXN_PLANTED
extern TxnPlanted txn_planted; /* the test's */
#define TXN_PLANTED(fault) (txn_planted == (fault))
#else
#define TXN_PLANTED(fault) 0
#endif

#endif
