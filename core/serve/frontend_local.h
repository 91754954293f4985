/* Private to frontend*.c: workers, proxied streams, counters. One loop, no thread. */
#ifndef ROLLTOP_SERVE_FRONTEND_LOCAL_H
#define ROLLTOP_SERVE_FRONTEND_LOCAL_H

#include "core/base/json.h"
#include "core/net/http_client.h"
#include "core/net/http_server.h"
#include "core/serve/reply.h"

enum {
    FRONTEND_WORKERS_MAX = 4096,
    FRONTEND_EVENT_MAX = 64 << 20, /* bytes of one event of an engine */
    FRONTEND_DURATION_BUCKETS = 10
};

typedef struct Worker {
    char *address; /* HOST:PORT */
    char *header;  /* "x-rolltop-engine: HOST:PORT" */
    uint64_t instance_id;
    int64_t inhibited_until_us;
    int active, resets; /* resets: in a row, before any byte of a reply */
    bool draining, removed; /* removed: goes when its last stream ends */
} Worker;

typedef enum Outcome { /* labels of requests_total */
    OUTCOME_SUCCESS, OUTCOME_VALIDATION, OUTCOME_NOT_FOUND, OUTCOME_UNAVAILABLE,
    OUTCOME_CANCELLED, OUTCOME_INTERNAL, OUTCOME_NOT_IMPLEMENTED, OUTCOME_COUNT
} Outcome;

typedef struct Frontend Frontend;

typedef struct Proxy { /* one client's stream and the upstream call that feeds it */
    Frontend *frontend;
    HttpExchange *exchange; /* NULL once the client has gone or is answered */
    HttpCall *call;         /* NULL between attempts */
    Worker *worker;
    char *rid, *request_id; /* request_id: header to echo, or NULL */
    Text body, partial;     /* partial: of an event that came in pieces */
    bool began, done;
    int attempts, status;
    int64_t start_us;
    struct Proxy *previous, *next;
} Proxy;

struct Frontend {
    uv_loop_t loop;
    HttpServer *server;
    HttpClient *client;
    Worker **workers;
    int worker_count;
    size_t next;
    bool least_loaded, draining, stopping;
    const char *model, *space, *engine_key, *engine_admin_key;
    char host[64];
    int port;
    int64_t inhibit_us;
    Proxy *proxies;
    int active;
    int64_t id_count;
    uint64_t id_seed;
    uv_signal_t signals[2];
    uv_timer_t drain;
    uint64_t started, ended[OUTCOME_COUNT], disconnected, cancelled, rejected, migrated;
    uint64_t events;
    uint64_t duration_counts[FRONTEND_DURATION_BUCKETS + 1];
    double duration_sum;
};

/* frontend_workers.c */
Worker *worker_add(Frontend *frontend, const char *address, Fault *fault);
void worker_remove(Frontend *frontend, Worker *worker);
void worker_release(Frontend *frontend, Worker *worker); /* one stream less */
Worker *worker_pick(Frontend *frontend);                 /* NULL: none is servable */
int workers_servable(const Frontend *frontend);
void route_workers(Frontend *frontend, HttpExchange *exchange);

/* frontend_generate.c */
void route_proxy(Frontend *frontend, HttpExchange *exchange);
void proxy_gone(Proxy *proxy);

/* frontend_parse.c: rows 1 and 3 to 4 of dynamo-api 5.3. True: go on; else *status and *json hold
 * the answer. `*rid` (malloc'ed) is the body's, or NULL. */
typedef struct FrontendCheck {
    int status;
    Text json;
    char *rid;
} FrontendCheck;
bool frontend_check_body(HttpExchange *exchange, FrontendCheck *check);

/* frontend.c */
void reply_flat(HttpExchange *exchange, int status, const char *type, const char *message);
void reply_wrapped(HttpExchange *exchange, int status, const char *message,
                   const char *const *headers);
/* A request ended: counters, and the end of a drain. */
void frontend_ended(Frontend *frontend, Outcome outcome, int64_t start_us);
void frontend_drain_check(Frontend *frontend);
void route_frontend_metrics(Frontend *frontend, HttpExchange *exchange);

#endif
