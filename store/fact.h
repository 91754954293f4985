/* Facts as byte records: how they travel from the caller to the writer thread.
 * A record is a head, the fact's struct and behind it what its pointers point to, each part
 * 8-aligned; opening it puts the pointers right in place. */
#ifndef ROLLTOP_STORE_FACT_H
#define ROLLTOP_STORE_FACT_H

#include "store/store.h"

/* name, struct, function suffix, bulk (may be dropped when the queue is full) */
#define STORE_FACTS(X)                                                                            \
    X(RUN, RunFact, run, 0) X(SESSION, SessionFact, session, 0)                                   \
    X(ENGINE, EngineFact, engine, 0) X(INCARNATION, IncarnationFact, incarnation, 0)              \
    X(ENGINE_STATE, EngineStateFact, engine_state, 0) X(PROBE, ProbeFact, probe, 1)               \
    X(PHASE, PhaseFact, phase, 0) X(STEP, StepFact, step, 0) X(GROUP, GroupFact, group, 0)        \
    X(SAMPLE_START, SampleStartFact, sample_start, 0)                                             \
    X(SAMPLE_PROGRESS, SampleProgressFact, sample_progress, 1)                                    \
    X(SAMPLE_END, SampleEndFact, sample_end, 0)                                                   \
    X(SAMPLE_REWARD, SampleRewardFact, sample_reward, 0) X(POLICY, PolicyFact, policy, 0)         \
    X(POLICY_STATE, PolicyStateFact, policy_state, 0) X(TXN, TxnFact, txn, 0)                     \
    X(TXN_ANSWER, TxnAnswerFact, txn_answer, 0)                                                   \
    X(TXN_DECISION, TxnDecisionFact, txn_decision, 0) X(TXN_END, TxnEndFact, txn_end, 0)          \
    X(COMMAND, CommandFact, command, 0) X(INCIDENT, IncidentFact, incident, 0)                    \
    X(ALERT_RULE, AlertRuleFact, alert_rule, 0)                                                   \
    X(EVENT, EventFact, event, 0) X(METRIC, MetricFact, metric, 1)                                \
    X(CHILD_LINE, ChildLineFact, child_line, 1)

#define FACT_ENTRY(name, type, suffix, bulk) FACT_##name,
typedef enum FactKind { STORE_FACTS(FACT_ENTRY) FACT_KINDS } FactKind;
#undef FACT_ENTRY

/* Head of a record; `size` counts the whole record. */
typedef struct FactHead {
    uint32_t size;
    uint32_t kind;
} FactHead;

enum { FACT_BYTES_MAX = 64 << 20 };

bool fact_is_bulk(FactKind kind);
/* Bytes of the record. With `bare`, what pointers point to is left out: they become NULL. */
size_t fact_size(FactKind kind, const void *fact, bool bare);
/* Writes the record at `out` (8-aligned, fact_size bytes). */
void fact_pack(FactKind kind, const void *fact, bool bare, unsigned char *out);
/* The struct inside the record, its pointers set; valid while the bytes stay where they are. */
const void *fact_open(unsigned char *record, FactKind *kind);
/* Time of the fact. */
int64_t fact_time(FactKind kind, const void *fact);

#endif
