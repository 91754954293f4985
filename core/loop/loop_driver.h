/* The run on libuv: carries out what loop.h decides with fleet, rollout, policy, train and store,
 * keeps local parts alive, answers the control socket. One thread; the store has its own writer. */
#ifndef ROLLTOP_LOOP_LOOP_DRIVER_H
#define ROLLTOP_LOOP_LOOP_DRIVER_H

#include "core/loop/run_config.h"

/* Runs to the end. `ready` (may be NULL) is called once the log is open and the control socket
 * listens; a failure before that is returned as Err and nothing is left behind. Afterwards ERR_OK
 * is returned and *status is 0 (well), 1 (not reached, stopped short) or 3 (failed), with words
 * in *fault when it is not 0. */
Err loop_run(const RunConfig *config, void (*ready)(void *user), void *user, int *status,
             Fault *fault);

#endif
