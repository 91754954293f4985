/* The scheduler of one engine: which tokens of which sequences are computed next. Pure: no clock,
 * no thread, no model. Continuous batching, chunked prefill, admission by KV blocks, retraction of
 * the youngest when blocks run out, prefix sharing of full blocks.
 *
 * A step: sched_plan, the owner computes the pieces, sched_commit; then the owner appends sampled
 * tokens (seq->count++) or ends sequences. Costs O(running + admitted) a step. */
#ifndef ROLLTOP_SERVE_ENGINE_SCHED_H
#define ROLLTOP_SERVE_ENGINE_SCHED_H

#include "core/serve/engine_blocks.h"

typedef enum SeqState { SEQ_OUT, SEQ_WAITING, SEQ_RUNNING } SeqState;

typedef struct SchedSeq { /* embedded in the owner's request; tokens are the owner's */
    const int32_t *tokens; /* prompt and what was sampled; the owner may move it between steps */
    int prompt, count;
    int match_limit;  /* tokens that may come from shared blocks (scoring needs its own logits) */
    bool stuck;       /* counted as running, never planned (fault zombie) */
    bool urgent;      /* planned also while the others are held */
    /* the scheduler's own */
    SeqState state;
    int computed;     /* tokens whose K and V are in the cache */
    int32_t *blocks;  /* malloc'ed block table */
    int block_count, block_capacity;
    int cached;       /* prompt tokens that came from shared blocks at first admission */
    int retractions;
    bool admitted_before, unnamed; /* unnamed: computed under older weights, shares nothing */
    int named_blocks;
    uint64_t chain;   /* name of block named_blocks - 1 */
    struct SchedSeq *previous, *next;
} SchedSeq;

typedef struct SchedConfig {
    int block_tokens, blocks, max_running;
    int max_step_tokens; /* tokens of one plan */
    bool share_prefixes;
} SchedConfig;

typedef struct SchedPiece {
    SchedSeq *seq;
    int start, count; /* positions [start, start + count) */
    bool last;        /* reaches the newest token: its logits give the next one */
} SchedPiece;

typedef struct SchedPlan { /* owned by the scheduler, valid until the next plan */
    SchedPiece *pieces;
    int count, tokens;
    SchedSeq **retracted; /* went back to the queue in this plan, for the statistics */
    int retracted_count;
    SchedSeq *impossible; /* cannot fit even alone (pool shrunk); the owner must end it */
} SchedPlan;

typedef struct Sched Sched;
Sched *sched_new(const SchedConfig *config);
void sched_free(Sched *sched); /* sequences are the owner's */

void sched_add(Sched *sched, SchedSeq *seq); /* to the end of the queue */
/* Takes a sequence out, whatever its state; frees its blocks and table. */
void sched_remove(Sched *sched, SchedSeq *seq);
const SchedPlan *sched_plan(Sched *sched);
void sched_commit(Sched *sched);
/* While held only urgent sequences are planned; the others keep what they have (pauses). */
void sched_hold(Sched *sched, bool held);
/* All running sequences back to the queue in their order; outputs stay (pause "retract"). */
void sched_retract_all(Sched *sched);
bool sched_idle(const Sched *sched); /* nothing runs or waits */
/* Drops the shared prefixes (flush, new weights); what runs now will not be shared later. */
void sched_forget(Sched *sched);
void sched_cap_tokens(Sched *sched, int tokens); /* < 0: all */

int sched_running(const Sched *sched);
int sched_waiting(const Sched *sched);
SchedSeq *sched_first_running(const Sched *sched); /* then ->next */
SchedSeq *sched_first_waiting(const Sched *sched);
int sched_used_tokens(const Sched *sched);      /* in held blocks */
int sched_evictable_tokens(const Sched *sched);
int sched_total_tokens(const Sched *sched);     /* capacity */

#endif
