#include "store/store.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "store/apply.h"
#include "store/lock.h"
#include "store/retain.h"
#include "store/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* The queue is two byte buffers: callers append to one, the writer works through the other. A
 * lock is held for the copy of one fact, or for the swap. */

enum {
    QUEUE_FACTS = 65536,
    COMMIT_ROWS = 1000,
    COMMIT_MS = 50,
    RETRY_MS = 1000,
    CLOSE_MS = 5000,
    QUEUE_BYTES = 256 << 20,
    QUEUE_KEEP = 8 << 20
};

typedef struct Bytes {
    unsigned char *p;
    size_t n, capacity;
} Bytes;

struct Store {
    char *path;
    int lock_fd;
    StoreConfig config;
    StoreMarks marks;
    Writer writer;      /* the writer thread's alone once it runs */
    Retain retain;      /* same */
    bool stale;         /* same: a group was taken back and they could not be read again */
    Bytes batch;        /* writer's: facts being committed */
    size_t batch_at;    /* first byte that is not durable */
    pthread_t thread;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t work;   /* the writer waits here */
    pthread_cond_t room;   /* callers wait here for room or durability */
    Bytes active;
    uint64_t put, durable, wanted; /* counts of facts */
    uint64_t dropped, dropped_told;
    uint64_t bared, bared_told;    /* facts that lost text or arrays that were too large */
    int64_t first_us;              /* monotonic: when the oldest waiting fact came */
    StoreStatus status;
    Fault why;
    bool closing;
};

static void bytes_reserve(Bytes *bytes, size_t extra)
{
    if (bytes->n + extra > bytes->capacity) {
        size_t capacity = bytes->capacity == 0 ? 65536 : bytes->capacity;
        while (capacity < bytes->n + extra) {
            capacity *= 2;
        }
        bytes->p = xrealloc(bytes->p, capacity, 1);
        bytes->capacity = capacity;
    }
}

/* Empty again; what a burst needed is given back. */
static void bytes_reset(Bytes *bytes)
{
    bytes->n = 0;
    if (bytes->capacity > QUEUE_KEEP) {
        free(bytes->p);
        *bytes = (Bytes){0};
    }
}

static void wait_on(Store *store, pthread_cond_t *cond, int64_t until_us)
{
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                             .tv_nsec = (long)(until_us % 1000000) * 1000};
    pthread_cond_timedwait(cond, &store->mutex, &until);
}

/* `own`: by the writer thread, which must not wait for itself. */
static void put(Store *store, FactKind kind, const void *fact, bool own);

/* ---- writer thread ---- */

typedef struct Group { /* one transaction */
    size_t bytes;
    uint64_t facts;
} Group;

static int apply_group_facts(Store *store, Group *group)
{
    size_t at = store->batch_at;
    *group = (Group){0};
    int rc = SQLITE_OK;
    while (rc == SQLITE_OK && at < store->batch.n && group->facts < store->config.commit_rows) {
        FactHead head;
        memcpy(&head, store->batch.p + at, sizeof head);
        FactKind kind;
        const void *fact = fact_open(store->batch.p + at, &kind);
        rc = writer_apply(&store->writer, kind, fact);
        /* A row that its table refuses would stop the log for ever: it is left out. */
        if ((rc & 0xff) == SQLITE_CONSTRAINT || (rc & 0xff) == SQLITE_TOOBIG) {
            rc = SQLITE_OK;
        }
        at += head.size;
        group->facts++;
    }
    group->bytes = at - store->batch_at;
    return rc;
}

/* A group that is taken back has moved on what the writer knows of the log: that is read again. */
static Err reload(Store *store, Fault *fault)
{
    Err err = writer_load(&store->writer, fault);
    err = err ? err : retain_load(&store->retain, &store->writer.db, fault);
    store->stale = err != ERR_OK;
    return err;
}

static Err commit_group(Store *store, Group *group, Fault *fault)
{
    Db *db = &store->writer.db;
    Err err = store->stale ? reload(store, fault) : ERR_OK;
    if (err != ERR_OK) {
        return err; /* what is counted on from half a state would be wrong for ever */
    }
    bool begun = sqlite3_exec(db->handle, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK;
    bool good = begun && apply_group_facts(store, group) == SQLITE_OK &&
                retain_slice(&store->retain, &store->writer) == SQLITE_OK &&
                sqlite3_exec(db->handle, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
    if (good) {
        return ERR_OK;
    }
    err = db_fault(db, fault, "cannot record");
    if (begun) {
        sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
        (void)reload(store, NULL); /* not possible now: before the next group */
    }
    return err != ERR_OK ? err : ERR_IO;
}

static void tell(Store *store)
{
    if (store->config.on_durable != NULL) {
        store->config.on_durable(store->config.user);
    }
}

static void tell_count(Store *store, const char *before, uint64_t count, const char *after)
{
    if (count > 0) {
        char text[160];
        (void)str_format(text, sizeof text, "%s%llu %s", before, (unsigned long long)count, after);
        EventFact event = {.t_us = store->writer.last_us,
                           .severity = SEVERITY_WARN,
                           .source = "core",
                           .text = text};
        put(store, FACT_EVENT, &event, true);
    }
}

/* What the log itself has to say: rows dropped or cut, and a time without recording. */
static void tell_in_log(Store *store, int64_t outage_from_us, const char *why)
{
    pthread_mutex_lock(&store->mutex);
    uint64_t dropped = store->dropped - store->dropped_told;
    store->dropped_told = store->dropped;
    uint64_t bared = store->bared - store->bared_told;
    store->bared_told = store->bared;
    pthread_mutex_unlock(&store->mutex);
    tell_count(store, "the log's queue was full: ", dropped,
               "probe, progress, metric or output rows were dropped");
    tell_count(store, "rows larger than the log takes (64 MiB): ", bared,
               "recorded without text, tokens and log-probs");
    if (outage_from_us > 0) {
        static const char sql[] = "INSERT INTO outage (from_us, to_us, reason) VALUES (?, ?, ?)";
        Bind b = {db_stmt(&store->writer.db, sql, NULL), 0};
        bind_i64(&b, outage_from_us);
        bind_i64(&b, store->writer.last_us);
        bind_text(&b, why);
        bind_run(&b);
    }
}

/* One transaction of what was taken. False: it failed, wait before the next try. */
static bool write_group(Store *store)
{
    Group group = {0};
    Fault fault;
    fault_clear(&fault);
    int64_t before_us = store->writer.last_us;
    Err err = commit_group(store, &group, &fault);
    pthread_mutex_lock(&store->mutex);
    bool recovered = err == ERR_OK && store->status == STORE_NOT_RECORDING;
    bool changed = err == ERR_OK || store->status == STORE_RECORDING;
    Fault why = store->why;
    if (err == ERR_OK) {
        store->batch_at += group.bytes;
        if (store->batch_at == store->batch.n) {
            bytes_reset(&store->batch);
            store->batch_at = 0;
        }
        store->durable += group.facts;
        store->status = STORE_RECORDING;
        fault_clear(&store->why);
    } else {
        store->status = STORE_NOT_RECORDING;
        store->why = fault;
    }
    bool lost = store->dropped > store->dropped_told || store->bared > store->bared_told;
    pthread_cond_broadcast(&store->room);
    pthread_mutex_unlock(&store->mutex);
    if (err == ERR_OK && (recovered || lost)) {
        tell_in_log(store, recovered ? before_us : 0, why.sentence);
    }
    if (changed) {
        tell(store);
    }
    return err == ERR_OK;
}

/* Waits until there is something to commit; false: closing and nothing is left. */
static bool take_batch(Store *store)
{
    pthread_mutex_lock(&store->mutex);
    for (;;) {
        uint64_t waiting = store->put - store->durable;
        int64_t due_us = store->first_us + store->config.commit_ms * 1000;
        if (waiting == 0) {
            if (store->closing) {
                break;
            }
            wait_on(store, &store->work, clock_mono_us() + 3600 * (int64_t)1000000);
        } else if (store->closing || waiting >= store->config.commit_rows ||
                   store->wanted > store->durable || clock_mono_us() >= due_us) {
            break;
        } else {
            wait_on(store, &store->work, due_us);
        }
    }
    bool any = store->put > store->durable;
    Bytes empty = store->batch;
    empty.n = 0;
    store->batch = store->active;
    store->active = empty;
    store->batch_at = 0;
    store->first_us = clock_mono_us();
    pthread_mutex_unlock(&store->mutex);
    return any;
}

static void *writer_main(void *argument)
{
    Store *store = argument;
    int64_t give_up_us = 0;
    while (take_batch(store)) {
        while (store->batch_at < store->batch.n) {
            if (write_group(store)) {
                continue;
            }
            pthread_mutex_lock(&store->mutex);
            int64_t now_us = clock_mono_us();
            int64_t until_us = now_us + RETRY_MS * 1000;
            while (!store->closing && clock_mono_us() < until_us) {
                wait_on(store, &store->work, until_us);
            }
            bool closing = store->closing;
            pthread_mutex_unlock(&store->mutex);
            if (closing && give_up_us == 0) {
                give_up_us = now_us + CLOSE_MS * 1000;
            } else if (closing && now_us >= give_up_us) {
                return NULL;
            } else if (closing) {
                clock_sleep_us(100000);
            }
        }
    }
    return NULL;
}

/* ---- callers ---- */

static bool has_room(const Store *store, size_t size)
{
    uint64_t waiting = store->put - store->durable;
    size_t bytes = store->active.n + store->batch.n;
    return waiting < store->config.queue_facts && (bytes == 0 || bytes + size <= QUEUE_BYTES);
}

static void put(Store *store, FactKind kind, const void *fact, bool own)
{
    size_t size = fact_size(kind, fact, false);
    bool bare = size > FACT_BYTES_MAX;
    if (bare) {
        size = fact_size(kind, fact, true);
    }
    pthread_mutex_lock(&store->mutex);
    while (!has_room(store, size) && !fact_is_bulk(kind) && !own && !store->closing) {
        store->wanted = store->put;
        pthread_cond_signal(&store->work);
        wait_on(store, &store->room, clock_mono_us() + 1000000);
    }
    if (!has_room(store, size) && fact_is_bulk(kind)) {
        store->dropped++;
        pthread_mutex_unlock(&store->mutex);
        return;
    }
    store->bared += bare;
    bytes_reserve(&store->active, size);
    fact_pack(kind, fact, bare, store->active.p + store->active.n);
    store->active.n += size;
    uint64_t waiting = ++store->put - store->durable;
    if (waiting == 1) {
        store->first_us = clock_mono_us();
    }
    if (waiting == 1 || waiting == store->config.commit_rows) {
        pthread_cond_signal(&store->work);
    }
    pthread_mutex_unlock(&store->mutex);
}

#define FACT_PUT(name, type, suffix, bulk)                                                        \
    void store_put_##suffix(Store *store, const type *fact)                                       \
    {                                                                                             \
        put(store, FACT_##name, fact, false);                                                     \
    }
STORE_FACTS(FACT_PUT)

const char *store_path(const Store *store)
{
    return store->path;
}

StoreStatus store_status(Store *store, Fault *why)
{
    pthread_mutex_lock(&store->mutex);
    StoreStatus status = store->status;
    if (why != NULL) {
        *why = store->why;
    }
    pthread_mutex_unlock(&store->mutex);
    return status;
}

uint64_t store_ticket(Store *store)
{
    pthread_mutex_lock(&store->mutex);
    store->wanted = store->put;
    uint64_t ticket = store->put;
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->mutex);
    return ticket;
}

uint64_t store_durable(Store *store)
{
    pthread_mutex_lock(&store->mutex);
    uint64_t durable = store->durable;
    pthread_mutex_unlock(&store->mutex);
    return durable;
}

uint64_t store_dropped(Store *store)
{
    pthread_mutex_lock(&store->mutex);
    uint64_t dropped = store->dropped;
    pthread_mutex_unlock(&store->mutex);
    return dropped;
}

Err store_wait(Store *store, uint64_t ticket, int64_t timeout_ms, Fault *fault)
{
    int64_t until_us = clock_mono_us() + timeout_ms * 1000;
    pthread_mutex_lock(&store->mutex);
    while (store->durable < ticket && clock_mono_us() < until_us) {
        wait_on(store, &store->room, until_us);
    }
    bool done = store->durable >= ticket;
    Fault why = store->why;
    pthread_mutex_unlock(&store->mutex);
    if (done) {
        return ERR_OK;
    }
    if (why.code != ERR_OK) {
        return fault_set(fault, why.code, why.hint, "%s", why.sentence);
    }
    return fault_set(fault, ERR_TIMEOUT, "check that its disk is not overloaded",
                     "%s: the log was not durable within %lld ms", store->path,
                     (long long)timeout_ms);
}

const StoreMarks *store_marks(const Store *store)
{
    return &store->marks;
}

/* ---- open and close ---- */

static Err load_marks(Store *store, Fault *fault)
{
    StoreMarks *m = &store->marks;
    const struct {
        const char *sql;
        int64_t fallback, *out;
    } queries[] = {
        {"SELECT max(session_id) FROM session", 0, &m->session},
        {"SELECT max(engine) FROM engine", 0, &m->engine},
        {"SELECT max(sample_id) FROM attempt", 0, &m->sample},
        {"SELECT max(group_id) FROM sample_group", 0, &m->group},
        {"SELECT max(txn_id) FROM txn", 0, &m->txn},
        {"SELECT max(command_id) FROM command", 0, &m->command},
        {"SELECT max(incident_id) FROM incident", 0, &m->incident},
        {"SELECT max(version) FROM policy", 0, &m->policy_version},
        {"SELECT max(phase_id) FROM phase", 0, &m->phase},
        {"SELECT max(step) FROM step WHERE outcome = 'ok'", -1, &m->last_step_ended},
    };
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        Err err = db_i64(&store->writer.db, queries[i].sql, queries[i].fallback, queries[i].out,
                         fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static void init_sync(Store *store)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&store->mutex, NULL);
    pthread_cond_init(&store->work, &attributes);
    pthread_cond_init(&store->room, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void store_free(Store *store)
{
    writer_free(&store->writer);
    if (store->lock_fd >= 0) {
        close(store->lock_fd);
    }
    pthread_cond_destroy(&store->work);
    pthread_cond_destroy(&store->room);
    pthread_mutex_destroy(&store->mutex);
    free(store->batch.p);
    free(store->active.p);
    free(store->path);
    free(store);
}

static Err open_log(Store *store, Fault *fault)
{
    Err err = lock_take(store->path, "attach to that run, stop it, or name another log with --log",
                        &store->lock_fd, fault);
    if (err == ERR_OK) {
        err = db_open_write(&store->writer.db, store->path, fault);
    }
    if (err == ERR_IO && fault) {
        char hint[sizeof fault->hint];
        (void)str_format(hint, sizeof hint, "%s%sname another place with --log", fault->hint,
                         fault->hint[0] ? " or " : "");
        (void)str_format(fault->hint, sizeof fault->hint, "%s", hint);
    }
    if (err == ERR_OK) {
        err = schema_prepare(&store->writer.db, fault);
    }
    if (err == ERR_OK) {
        err = writer_load(&store->writer, fault);
        store->writer.resumed_us = store->writer.last_us;
    }
    if (err == ERR_OK) {
        err = load_marks(store, fault);
    }
    return err ? err : retain_load(&store->retain, &store->writer.db, fault);
}

Err store_open(const char *path, const StoreConfig *config, Store **out, Fault *fault)
{
    *out = NULL;
    Store *store = xcalloc(1, sizeof *store);
    store->lock_fd = -1;
    store->path = xstrdup(path);
    store->writer.packer = packer_new();
    store->config = config != NULL ? *config : (StoreConfig){0};
    StoreConfig *c = &store->config;
    c->queue_facts = c->queue_facts > 0 ? c->queue_facts : QUEUE_FACTS;
    c->commit_rows = c->commit_rows > 0 ? c->commit_rows : COMMIT_ROWS;
    c->commit_ms = c->commit_ms > 0 ? c->commit_ms : COMMIT_MS;
    store->retain.limits = (TrimLimits){c->keep_us, c->max_bytes};
    init_sync(store);
    Err err = open_log(store, fault);
    if (err == ERR_OK) {
        int failed = pthread_create(&store->thread, NULL, writer_main, store);
        if (failed != 0) {
            err = fault_set_sys(fault, ERR_LIMIT, failed, NULL, "cannot start the log's writer");
        }
    }
    if (err != ERR_OK) {
        store_free(store);
        return err;
    }
    *out = store;
    return ERR_OK;
}

void store_close(Store *store)
{
    if (store == NULL) {
        return;
    }
    pthread_mutex_lock(&store->mutex);
    store->closing = true;
    pthread_cond_broadcast(&store->work);
    pthread_cond_broadcast(&store->room);
    pthread_mutex_unlock(&store->mutex);
    pthread_join(store->thread, NULL);
    store_free(store);
}
