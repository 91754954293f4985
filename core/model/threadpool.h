/* A few worker threads for one owner: the same function runs on all of them, with barriers inside.
 *
 * Engine, trainer and core share a machine, so waiting is a short bounded spin and then sleep: an
 * idle pool costs nothing. With one thread there is no pool at all and every call is direct. */
#ifndef ROLLTOP_MODEL_THREADPOOL_H
#define ROLLTOP_MODEL_THREADPOOL_H

#include "core/base/err.h"

typedef struct Pool Pool;
typedef void PoolWork(void *context, int thread, int threads);

enum { POOL_THREADS_MAX = 256 };

/* ERR_ARG outside 1 … POOL_THREADS_MAX; ERR_LIMIT when the system gives no more threads. */
Err pool_new(int threads, Pool **out, Fault *fault);
void pool_free(Pool *pool);
/* Runs work on every thread (the caller is thread 0) and returns when all have finished. */
void pool_run(Pool *pool, PoolWork *work, void *context);
/* Inside work: returns when every thread of the pool has come here. */
void pool_barrier(Pool *pool);

#endif
