#include "core/model/threadpool.h"

#include "core/base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__x86_64__)
#define POOL_RELAX() __builtin_ia32_pause()
#else
#define POOL_RELAX() atomic_signal_fence(memory_order_seq_cst)
#endif

/* About 20 to 50 microseconds: longer than the gap between two layers, shorter than a step. A
 * barrier that had to sleep all the same halves it for the next ones, because then the machine is
 * busy and the others need the core more. A worker that waits for work is no such sign. */
enum { POOL_SPINS = 1500, POOL_SPINS_MIN = 40 };

typedef struct PoolThread {
    Pool *pool;
    pthread_t id;
    int index;
} PoolThread;

struct Pool {
    int threads;
    PoolWork *work;
    void *context;
    atomic_bool quit;
    /* Each on its own cache line: they are written by different threads while others spin. */
    _Alignas(64) atomic_uint started;
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) atomic_uint phase;
    _Alignas(64) atomic_uint sleepers;
    atomic_int spins;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    PoolThread *workers;
    int running; /* workers that were created */
};

/* Waits until *word differs from old. A sleeper registers before it looks again under the lock,
 * and the writer looks for sleepers after it wrote, so one of the two always sees the other. */
static void pool_wait(Pool *pool, atomic_uint *word, unsigned old, bool barrier)
{
    const int spins = atomic_load_explicit(&pool->spins, memory_order_relaxed);
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) {
            const int more = spins + spins / 8 + 1;
            if (barrier && spins < POOL_SPINS) {
                atomic_store_explicit(&pool->spins, more < POOL_SPINS ? more : POOL_SPINS,
                                      memory_order_relaxed);
            }
            return;
        }
        POOL_RELAX();
    }
    if (barrier) {
        const int fewer = spins / 2 > POOL_SPINS_MIN ? spins / 2 : POOL_SPINS_MIN;
        atomic_store_explicit(&pool->spins, fewer, memory_order_relaxed);
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(word) == old) {
        pthread_cond_wait(&pool->wake, &pool->lock);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void pool_advance(Pool *pool, atomic_uint *word)
{
    atomic_fetch_add(word, 1);
    if (atomic_load(&pool->sleepers) != 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

void pool_barrier(Pool *pool)
{
    if (pool->threads == 1) {
        return;
    }
    const unsigned phase = atomic_load(&pool->phase);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == (unsigned)pool->threads) {
        atomic_store(&pool->arrived, 0);
        pool_advance(pool, &pool->phase);
    } else {
        pool_wait(pool, &pool->phase, phase, true);
    }
}

static void *pool_main(void *argument)
{
    PoolThread *self = argument;
    Pool *pool = self->pool;
    for (unsigned seen = 0;; seen++) {
        pool_wait(pool, &pool->started, seen, false);
        if (atomic_load(&pool->quit)) {
            return NULL;
        }
        pool->work(pool->context, self->index, pool->threads);
        pool_barrier(pool);
    }
}

Err pool_new(int threads, Pool **out, Fault *fault)
{
    *out = NULL;
    if (threads < 1 || threads > POOL_THREADS_MAX) {
        return fault_set(fault, ERR_ARG, "Give 1 to 256 threads",
                         "a model cannot run on %d threads", threads);
    }
    Pool *pool = aligned_alloc(64, (sizeof(Pool) + 63) / 64 * 64);
    if (pool == NULL) {
        return fault_set(fault, ERR_MEMORY, NULL, "no memory for a thread pool");
    }
    *pool = (Pool){.threads = threads};
    atomic_init(&pool->spins, POOL_SPINS);
    pool->workers = xcalloc((size_t)threads, sizeof(PoolThread));
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    /* Signals belong to the thread that made the pool. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    for (int i = 1; i < threads && code == 0; i++) {
        PoolThread *worker = &pool->workers[i];
        *worker = (PoolThread){.pool = pool, .index = i};
        code = pthread_create(&worker->id, NULL, pool_main, worker);
        pool->running = code == 0 ? i : i - 1;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        const int number = pool->running + 2;
        pool_free(pool);
        return fault_set_sys(fault, ERR_LIMIT, code, "Use fewer threads",
                             "thread %d of %d could not be started", number, threads);
    }
    *out = pool;
    return ERR_OK;
}

void pool_free(Pool *pool)
{
    if (pool == NULL) {
        return;
    }
    atomic_store(&pool->quit, true);
    pool_advance(pool, &pool->started);
    for (int i = 1; i <= pool->running; i++) {
        pthread_join(pool->workers[i].id, NULL);
    }
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool);
}

void pool_run(Pool *pool, PoolWork *work, void *context)
{
    if (pool->threads == 1) {
        work(context, 0, 1);
        return;
    }
    pool->work = work;
    pool->context = context;
    pool_advance(pool, &pool->started);
    work(context, 0, pool->threads);
    pool_barrier(pool);
}
