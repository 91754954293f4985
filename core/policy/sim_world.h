/* The simulated world's data, shared by its parts (sim_world.c: engines, network, disk, clock;
 * sim_core.c and sim_jobs.c: the core; sim_check.c: the judge). Nothing of core/policy's machine is
 * in it. */
#ifndef ROLLTOP_POLICY_SIM_WORLD_H
#define ROLLTOP_POLICY_SIM_WORLD_H

#include "core/base/rng.h"
#include "core/policy/sim.h"

enum { SIM_CANARY = 4, SIM_VERSIONS_MAX = 64, SIM_SPANS_MAX = 4 };

#define SIM_CALLS(X)                                                                              \
    X(SIM_PAUSE, "pause") X(SIM_FLUSH, "flush") X(SIM_APPLY, "apply") X(SIM_VERSION, "version")   \
    X(SIM_CHECKSUM, "checksum") X(SIM_SCORE, "score") X(SIM_CONTINUE, "continue")                 \
    X(SIM_GENERATE, "generate") X(SIM_PULL, "pull")                                        \
    X(SIM_LOOK, "look")
#define SIM_FAULTS(X)                                                                             \
    X(FAULT_NONE, "none") X(FAULT_SLOW, "slow") X(FAULT_HANG, "hang") X(FAULT_LATE, "late")       \
    X(FAULT_ERROR, "500") X(FAULT_LOST, "answer lost") X(FAULT_TWICE, "acts twice")               \
    X(FAULT_OTHER_BYTES, "loads other bytes") X(FAULT_VERSION_ONLY, "only the version moves")     \
    X(FAULT_WEIGHTS_ONLY, "only the weights move") X(FAULT_NO_FLUSH, "refuses to flush")          \
    X(FAULT_VANISH, "vanishes") X(FAULT_NAN, "scores NaN")                                        \
    X(FAULT_PARTIAL, "loads a part and says no")                                                  \
    X(FAULT_HALF, "applies a delta by half") X(FAULT_ROT, "its copy changes on disk")              \
    X(FAULT_BLIND, "does not see the disk for a time")
#define SIM_ENTRIES(X)                                                                            \
    X(ENTRY_START, "core starts") X(ENTRY_DEATH, "core dies") X(ENTRY_POLICY, "policy")           \
    X(ENTRY_TXN, "transaction") X(ENTRY_DECISION, "decision") X(ENTRY_END, "end")                 \
    X(ENTRY_STATE, "policy state") X(ENTRY_ADMIT, "admit") X(ENTRY_FENCE, "fence")                \
    X(ENTRY_SAMPLE, "sample") X(ENTRY_SENT, "sent") X(ENTRY_LOADED, "loaded")                    \
    X(ENTRY_UNSEEN, "unseen")
#define SIM_ENUM(name, words) name,
typedef enum SimCall { SIM_CALLS(SIM_ENUM) SIM_CALL_COUNT } SimCall;
typedef enum SimFault { SIM_FAULTS(SIM_ENUM) FAULT_COUNT } SimFault;
typedef enum SimEntryKind { SIM_ENTRIES(SIM_ENUM) ENTRY_COUNT } SimEntryKind;

/* What the log holds and what the world saw. Only POLICY to STATE are writes of the ledger. */
typedef struct SimEntry {
    SimEntryKind kind;
    int64_t t_us, txn, from, to; /* POLICY, STATE, LOADED, SAMPLE: to is the version */
    int engine;                  /* -1: none */
    int64_t incarnation, weights;
    bool commit, fleet, durable, lost;
    SimCall call;                /* SENT */
    bool own_copy;               /* LOADED: from its own directory */
    int64_t base;                /* SENT, a pull: the delta's base; -1 in full */
} SimEntry;

typedef struct SimEngine {
    int64_t incarnation, weights, version;
    int64_t cache;   /* weights behind the KV cache; -1: empty */
    int64_t busy_us;
    int refusals;    /* flushes that it will refuse yet */
    bool alive, paused, has_checksum;
    bool opens;      /* as SGLang: makes what it was given while its canary runs … */
    int held;        /* that wait behind its pause */
    int windows;     /* … counted, */
    int64_t window_us, window_weights, window_version; /* and by what it did so last */
    bool keeps;      /* a pause can keep its requests … */
    int aborts, flushes; /* … else it ends them; counted, both, for those under way */
    bool looks;      /* can say whether it sees an artifact … */
    int64_t blind_us; /* … and sees none until then */
    bool pulls;      /* keeps a copy on its disk, which outlives the process … */
    bool proves;     /* … and looks whether that is a delta's base, as rolltop's own does */
    int64_t copy, copy_version; /* weights in it, and what its marker says; -1 none */
} SimEngine;

typedef struct SimSpan { /* tokens of a sample: what made them, what is stamped on them */
    int64_t weights, version;
    int tokens;
} SimSpan;

typedef struct SimMessage { /* a call to an engine, and its answer */
    SimCall call;
    int engine;
    uint32_t seq;
    int64_t incarnation, process, life; /* meant, met; life: of the core that sent it */
    int64_t txn, version, base, sent_us;
    bool own_copy;
    SimFault fault;
    bool ok, unsupported, unknown, unseen;
    int64_t weights, reported;
    float scores[SIM_CANARY];
    bool keep;                          /* PAUSE: requests are to be kept */
    int left, span_count, aborts, flushes; /* GENERATE: tokens yet to make; when it began */
    int64_t kv;                         /* weights behind its keys and values */
    bool held;                          /* given to a paused engine, by a frontend of others */
    int windows;                        /* of it that have passed */
    int64_t first_us;                   /* of its first token; 0 none yet */
    SimSpan spans[SIM_SPANS_MAX];
} SimMessage;

typedef enum SimEventKind {
    EVENT_ARRIVES, EVENT_ACTS, EVENT_ANSWERS, EVENT_RETURNS, EVENT_SYNCED, EVENT_TICK,
    EVENT_LOCAL, /* an answer from the core's own side: check, gate */
    EVENT_START
} SimEventKind;

typedef struct SimEvent {
    SimEventKind kind;
    SimMessage message; /* of LOCAL: engine is the action's kind, ok the answer */
} SimEvent;

/* The heap orders these; what is to happen lies still in a slot: moving an event at each level
 * would cost most of a simulation's time. */
typedef struct SimDue {
    int64_t t_us;
    uint32_t order, slot;
} SimDue;

typedef struct SimCheck SimCheck;
typedef struct SimCore SimCore;
typedef struct SimSamples SimSamples;
typedef enum SimInflight {
    SIM_INFLIGHT_ABORT, SIM_INFLIGHT_RESUME, SIM_INFLIGHT_IN_PLACE
} SimInflight;

typedef struct SimWorld {
    SimConfig config;
    SimReport *report;
    Rng rng;
    int64_t now_us;
    SimEngine engines[SIM_ENGINES_MAX];
    int count;
    SimDue *heap;
    SimEvent *slots;
    uint32_t *spare; /* slots that are free */
    size_t events, heap_capacity, spares;
    uint32_t order;
    SimEntry *log; /* entries of the ledger, in order of writing */
    size_t entries, log_capacity, synced;
    bool sync_due;
    int64_t truth[SIM_VERSIONS_MAX]; /* weights of each published version */
    bool bad[SIM_VERSIONS_MAX];      /* its artifact is broken */
    int64_t publications;
    int64_t life;    /* of the core; messages of another life are dead */
    bool foreign; /* a frontend that knows nothing of the core chooses the engines */
    bool core_alive, quiet, dying; /* quiet: no faults any more */
    int sick; /* an engine that faults cluster on; -1 none */
    double fault_chance;
    int64_t fault_at; /* calls until the next certain fault; 0: none planned */
    SimInflight inflight; /* the core's setting: what updates do to samples under way */
    SimCheck *check;
    SimCore *core;
    SimSamples *samples;
} SimWorld;

/* sim_world.c */
void sim_schedule(SimWorld *world, int64_t t_us, SimEventKind kind, const SimMessage *message);
void sim_send(SimWorld *world, SimMessage *message);
/* Appends to the ledger (durable after a sync) and tells the checker; may mark the core dying. */
void sim_write(SimWorld *world, SimEntry *entry);
/* What the world sees but no log holds: for checker and trace only. */
void sim_note(SimWorld *world, SimEntry *entry);
bool sim_step(SimWorld *world); /* one event; false: none left */
float sim_canary(int64_t weights, int i);

/* sim_core.c, sim_jobs.c */
SimCore *sim_core_new(SimWorld *world);
void sim_core_free(SimCore *core);
void sim_core_start(SimWorld *world);
void sim_core_died(SimWorld *world); /* all its memory is gone */
void sim_core_answer(SimWorld *world, const SimMessage *message);
void sim_core_local(SimWorld *world, const SimMessage *message);
void sim_core_synced(SimWorld *world);
void sim_core_tick(SimWorld *world);
int64_t sim_core_serves(const SimWorld *world, int engine); /* its process, if admitted; else 0 */
/* It may have been made beside the canary of an engine that was not verified yet. */
bool sim_core_unvouched(const SimWorld *world, const SimMessage *message);
bool sim_core_done(const SimWorld *world);    /* all updates have been tried */
bool sim_core_settled(const SimWorld *world); /* … and everybody serves */

/* sim_samples.c */
SimSamples *sim_samples_new(void);
void sim_samples_free(SimSamples *samples);
void sim_samples_died(SimSamples *samples);
void sim_samples_policy(SimWorld *world, int64_t version);
void sim_samples_answer(SimWorld *world, const SimMessage *message);
void sim_samples_tick(SimWorld *world); /* while the gate is open */
void sim_engine_pause(SimEngine *engine, bool keep);
void sim_engine_flush(SimEngine *engine);
void sim_engine_begin(SimWorld *world, SimMessage *message);
void sim_engine_token(SimWorld *world, SimMessage *message);

/* sim_check.c */
SimCheck *sim_check_new(void);
void sim_check_free(SimCheck *check);
void sim_check_entry(SimCheck *check, const SimWorld *world, const SimEntry *entry);
void sim_check_durable(SimCheck *check, const SimWorld *world, const SimEntry *entry);
void sim_check_end(SimCheck *check, const SimWorld *world, bool settled);
const char *sim_check_broken(const SimCheck *check); /* NULL: no rule broke */

#endif
