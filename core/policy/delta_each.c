#include "core/policy/delta_each.h"

#include "core/base/mem.h"
#include "core/model/threadpool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { EACH_THREADS = 2, EACH_BYTES = 8 << 20 };

typedef struct Item {
    size_t at, bytes;
} Item;

typedef struct Each {
    Item *items; /* the largest first, so that no thread is left alone with a large one */
    size_t count;
    DeltaWork *work;
    void *context;
    atomic_size_t next;
    pthread_mutex_t lock; /* of what follows */
    size_t failed_at;
    Err err;
    Fault fault;
} Each;

static int by_size(const void *a, const void *b)
{
    const Item *x = a;
    const Item *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? 1 : -1;
    }
    return (x->at > y->at) - (x->at < y->at);
}

static void note_failure(Each *each, size_t at, Err err, const Fault *fault)
{
    pthread_mutex_lock(&each->lock);
    if (each->err == ERR_OK || at < each->failed_at) {
        each->err = err;
        each->fault = *fault;
        each->failed_at = at;
    }
    pthread_mutex_unlock(&each->lock);
    atomic_store(&each->next, each->count);
}

static void take_items(void *context, int thread, int threads)
{
    Each *each = context;
    DeltaScratch *scratch = delta_scratch_new();
    (void)thread;
    (void)threads;
    for (;;) {
        const size_t i = atomic_fetch_add(&each->next, 1);
        if (i >= each->count) {
            break;
        }
        Fault fault = {0};
        const Err err = each->work(each->context, scratch, each->items[i].at, &fault);
        if (err != ERR_OK) {
            note_failure(each, each->items[i].at, err, &fault);
        }
    }
    delta_scratch_free(scratch);
}

Err delta_each(const size_t *sizes, size_t count, DeltaWork *work, void *context, Fault *fault)
{
    Each each = {.count = count, .work = work, .context = context,
                 .lock = PTHREAD_MUTEX_INITIALIZER};
    Pool *pool = NULL;
    size_t bytes = 0;
    each.items = xcalloc(count + 1, sizeof *each.items);
    for (size_t i = 0; i < count; i++) {
        each.items[i] = (Item){i, sizes[i]};
        bytes += sizes[i];
    }
    qsort(each.items, count, sizeof *each.items, by_size);
    if (count > 1 && bytes >= EACH_BYTES && pool_new(EACH_THREADS, &pool, NULL) == ERR_OK) {
        pool_run(pool, take_items, &each);
    } else {
        take_items(&each, 0, 1);
    }
    pool_free(pool);
    free(each.items);
    if (each.err != ERR_OK && fault && fault->code == ERR_OK) {
        *fault = each.fault;
    }
    return each.err;
}
