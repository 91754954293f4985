/* The event loop of a process that SIGINT and SIGTERM end: opened whole, or refused. */
#ifndef ROLLTOP_NET_EVLOOP_H
#define ROLLTOP_NET_EVLOOP_H

#include "core/base/err.h"

#include <uv.h>

/* Makes the loop and the two signal handles, which the caller starts. ERR_IO when the process has
 * no file descriptors left: the loop must not be used then (libuv 1.44 may keep a few of them). */
Err evloop_open(uv_loop_t *loop, uv_signal_t *sigint, uv_signal_t *sigterm, Fault *fault);

/* Closes every handle that is still open, without a callback of its owner, and the loop. False:
 * something goes on that cannot be ended (a look at DNS), and the loop's memory must stay. */
bool evloop_close(uv_loop_t *loop);

#endif
