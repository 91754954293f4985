/* Private to engine_core.c and engine_core_step.c. */
#ifndef ROLLTOP_SERVE_ENGINE_CORE_LOCAL_H
#define ROLLTOP_SERVE_ENGINE_CORE_LOCAL_H

#include "core/serve/engine_core.h"

typedef struct VersionName {
    struct VersionName *next;
    char text[];
} VersionName;

struct Core {
    CoreConfig config;
    Sched *sched;
    Weights *weights; /* NULL when synthetic */
    Infer *infer;
    Sampler *sampler;
    char *digest; /* synthetic policy */
    VersionName *versions;
    const char *version;
    int64_t epoch; /* of the policy, raised by each swap */
    bool garbled;  /* an update broke off half way (fault) */
    PauseMode pause;
    EngineRequest **gate; /* came while paused; the scheduler has not seen them */
    int gate_count, gate_capacity;
    int urgent; /* requests inside that run also in a pause */
    CoreCommand swap; /* waits for the running ones to end */
    bool swap_waits;
    void *pause_ticket; /* pause that waits for an abort to be complete */
    CoreFaults faults;
    Rng rng;
    CoreOut out;
    CoreStats stats;
    int64_t window_start_us, window_tokens;
    EngineRequest **dirty; /* streaming requests with outputs not given out */
    int dirty_count, dirty_capacity;
    InferSeq *pieces;
    int piece_capacity;
    TokenAlt *alts; /* scratch for the best of one row */
};

void core_finish(Core *core, EngineRequest *request, RequestEnd end, int64_t now_us);
void core_apply_swap_if_possible(Core *core);

#endif
