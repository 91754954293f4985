/* Drives a Core: in a thread of its own (real models), or from a timer of the HTTP loop (synthetic
 * engines, of which one process holds thousands). Either way commands go in through a bounded
 * queue and events come out on the loop thread. */
#ifndef ROLLTOP_SERVE_ENGINE_RUNNER_H
#define ROLLTOP_SERVE_ENGINE_RUNNER_H

#include "core/serve/engine_core.h"

#include <uv.h>

typedef struct Runner Runner;

typedef struct RunnerFaults {
    CoreFaults core;
    double slow; /* factor of the token rate, 1: none */
} RunnerFaults;

typedef struct RunnerConfig {
    bool thread;
    double tokens_per_s; /* timer only: of each running request; 0: as fast as it goes */
    void (*on_out)(CoreOut *out, void *user); /* on the loop thread; events are then cleared */
    void *user;
} RunnerConfig;

/* Takes the core. */
Err runner_new(uv_loop_t *loop, const RunnerConfig *config, Core *core, Runner **out,
               Fault *fault);
/* Stops and joins; the loop must run once more. No on_out after this. */
void runner_free(Runner *runner);
/* False when the queue is full (the command is not taken then). */
bool runner_send(Runner *runner, CoreCommand *command);
void runner_faults(Runner *runner, const RunnerFaults *faults);
void runner_stats(Runner *runner, CoreStats *out);

#endif
