/* Private to the engine's HTTP side (engine_*.c): everything here belongs to the loop thread. */
#ifndef ROLLTOP_SERVE_ENGINE_LOCAL_H
#define ROLLTOP_SERVE_ENGINE_LOCAL_H

#include "core/base/json.h"
#include "core/net/http_server.h"
#include "core/serve/engine_runner.h"
#include "core/serve/faults.h"
#include "core/serve/reply.h"

enum {
    ENGINE_RID_BUCKETS = 256,
    ENGINE_PARKED_MAX = 4096,
    ENGINE_BATCH_MAX = 4096,      /* samples of one call */
    ENGINE_HEALTH_MS = 20000,
    ENGINE_REPLY_MAX = 512 << 20, /* bytes of one unary reply */
    HISTOGRAM_BUCKETS = 14
};

typedef struct Histogram { /* Prometheus: upper bounds in `bounds`, +Inf behind */
    const double *bounds;
    int count;
    uint64_t counts[HISTOGRAM_BUCKETS + 1], total;
    double sum;
} Histogram;

typedef struct EngineSettings { /* one process */
    const char *model_path, *host, *served_name, *weight_version, *name, *synthetic_digest;
    const char *api_key, *admin_key;
    int64_t port, threads, max_running, max_total_tokens, context_length, stream_interval;
    int64_t count, vocab, max_queued, chunk_tokens;
    double tokens_per_s;
    bool incremental, synthetic, faults, bf16;
    int64_t seed;
} EngineSettings;

typedef struct Engine Engine;
typedef struct Call Call;
typedef struct Loader Loader;
typedef struct DigestCache DigestCache;

/* Whatever an open exchange waits for hangs on it, with this first. */
typedef enum OwnerKind { OWNER_CALL, OWNER_TICKET } OwnerKind;
typedef struct Owner {
    OwnerKind kind;
} Owner;

typedef enum TicketKind {
    TICKET_PAUSE, TICKET_CONTINUE, TICKET_FLUSH, TICKET_VERSION, TICKET_UPDATE, TICKET_PING,
    TICKET_PULL,   /* files are brought up in the thread pool */
    TICKET_MEMORY, /* release_memory_occupation */
    TICKET_ABORT, /* aborts `version` (a rid; NULL all) when due (fault) */
    TICKET_LATER, /* answers `status` when due (faults with a delay) */
    TICKET_NEVER  /* hangs (faults) */
} TicketKind;

typedef struct Ticket { /* a control call that waits for the core or for a time */
    Owner owner;
    TicketKind kind;
    Engine *engine;
    HttpExchange *exchange; /* NULL once the client has gone */
    bool at_core;           /* an acknowledgement will come */
    int64_t due_us;         /* 0: no time */
    int64_t until_us;       /* FLUSH: tries again until then */
    int status;
    PauseMode mode;
    char *version;
    Loader *loader;
    struct Ticket *next;
} Ticket;

typedef struct Sample {
    Call *call;             /* NULL: the client has gone */
    EngineRequest *request; /* until finished the core's; only its atomics may be read */
    bool finished;
    int index, emitted, max_new;
    char *rid;
    struct Sample *next_in_bucket;
    struct Sample *previous, *next; /* all live samples of the engine */
    EngineText text;        /* of streams */
    Text decoded, all;      /* decoded so far; all: what a cumulative stream repeats */
    size_t text_sent;
    CoreToken *kept;        /* cumulative streams: every output so far */
    TokenAlt *kept_alts;
    size_t kept_count, kept_capacity;
    const char *version;
    int prompt_tokens, top_count;
    bool drop;              /* fault: never answered */
    int64_t started_us, first_us, last_us;
} Sample;

struct Call {
    Owner owner;
    Engine *engine;
    HttpExchange *exchange; /* NULL once answered or gone */
    bool stream, array, want_logprobs, no_stop_trim, streaming;
    bool skip_text;
    Sample **samples;
    int count, finished, open; /* open: samples that are not freed */
};

struct Engine {
    const EngineSettings *settings;
    uv_loop_t *loop;
    HttpServer *server;
    Runner *runner;
    DigestCache *cache;
    Faults faults;
    uv_timer_t timer; /* faults that begin and end, tickets that are due */
    char *name, *model_path, *served_name, *version, *digest;
    char host[64];
    int port;
    Tokenizer *tokenizer;
    ModelConfig model;
    Weights *weights; /* what the core holds now; NULL when synthetic */
    CoreConfig core;
    int vocab;
    int64_t start_wall_us;
    PauseMode pause;
    bool stopped;
    int loaders; /* in the thread pool: the engine's memory must stay */
    Sample *buckets[ENGINE_RID_BUCKETS];
    Sample *samples;
    int live;
    uint64_t next_id;
    int64_t zombies_left;
    Rng rng;
    bool updating;
    Ticket *tickets;
    HttpExchange **parked; /* freeze_all */
    int parked_count, parked_capacity;
    CoreStats stuck_stats; /* gauges_stuck */
    bool stuck;
    Text scratch;
    /* counters for /metrics */
    uint64_t requests, aborted, prompt_tokens, generation_tokens, cached_tokens;
    uint64_t http_requests, http_4xx, http_5xx;
    double load_seconds;
    Histogram ttft, itl, e2e;
};

/* engine_http.c */
void engine_on_request(HttpExchange *exchange, void *user);
void engine_on_gone(HttpExchange *exchange, void *user);
void reply_error_object(Engine *engine, HttpExchange *exchange, int status, const char *type,
                        const char *message);
/* {"error":{"message":…}} */
void reply_error(Engine *engine, HttpExchange *exchange, int status, const char *message);
void reply_empty(HttpExchange *exchange, int status);
/* Body as an object; answers 400 itself and returns NULL when it is not one. */
cJSON *body_object(Engine *engine, HttpExchange *exchange);

/* engine_life.c */
Err engine_new(uv_loop_t *loop, const EngineSettings *settings, const char *name, int port,
               DigestCache *cache, Engine **out, Fault *fault);
/* Closes the port and every connection, ends the model side; the loop must run once more. */
void engine_stop(Engine *engine);
void engine_free(Engine *engine); /* after engine_stop and the last turn of the loop */
/* Fault crash: the process, or this engine alone where one process hosts many. */
void engine_die(Engine *engine, int status);

/* engine_digest.c: synthetic policies, digests of directories remembered for all engines of the
 * process (thread-safe). A checkpoint is loaded and checked as a real engine would. */
DigestCache *digest_cache_new(void);
void digest_cache_free(DigestCache *cache);
Err digest_of_dir(DigestCache *cache, const char *dir, char out[DIGEST_TEXT], Fault *fault);

/* engine_faults.c */
void route_fault(Engine *engine, HttpExchange *exchange);
void route_fault_list(Engine *engine, HttpExchange *exchange);
void engine_faults_changed(Engine *engine);
const FaultItem *engine_fault(const Engine *engine, FaultKind kind);
void engine_mark_sample(Engine *engine, EngineRequest *request, Sample *sample);

/* engine_parse.c: the whole request, or a fault. `as_string`: 0.5.23's shape {"error":"…"}. */
typedef struct ParseFailure {
    char message[FAULT_TEXT_MAX + 256];
    bool as_string;   /* sampling members: 400 {"error":"…"}, also for streams */
    bool as_object;   /* body shape: 400 {"object":"error",…}, also for streams */
} ParseFailure;
/* On success *out holds `count` samples with requests; nothing is submitted yet. */
bool engine_parse_generate(Engine *engine, const cJSON *body, Call **out, ParseFailure *why);

/* engine_generate.c */
void route_generate(Engine *engine, HttpExchange *exchange);
void engine_on_out(CoreOut *out, void *user);
Call *call_new(Engine *engine, int count);
void call_free(Call *call); /* before anything was submitted */
Sample *engine_find_rid(const Engine *engine, const char *rid);
bool engine_submit_call(Engine *engine, Call *call, HttpExchange *exchange);
void engine_abort(Engine *engine, uint64_t id); /* 0: all */
void call_gone(Call *call);
void engine_forget_sample(Engine *engine, Sample *sample); /* at the engine's end */

/* engine_reply.c */
void reply_unary(Call *call);
/* One event of a sample: `tokens` are new; `end`: the finished request, or NULL. */
void reply_event(Sample *sample, const CoreToken *tokens, const TokenAlt *alts, size_t count,
                 const CoreEvent *event, const EngineRequest *end);

/* engine_control.c */
/* With a ticket of its own on the exchange; freed by ticket_end. */
Ticket *ticket_new(Engine *engine, HttpExchange *exchange, TicketKind kind);
void ticket_end(Ticket *ticket);
void ticket_gone(Ticket *ticket); /* the client has left */
/* The core has said something: every health probe that waits is answered well. */
void health_answer_all(Engine *engine);
void control_acknowledged(Engine *engine, const CoreEvent *event);
void engine_timer_arm(Engine *engine);
/* Sends a command that is acknowledged to `ticket`; answers 503 when the queue is full. */
void control_send(Ticket *ticket, CoreCommand command);
void route_abort(Engine *engine, HttpExchange *exchange);
void route_pause(Engine *engine, HttpExchange *exchange);
void route_continue(Engine *engine, HttpExchange *exchange);
void route_flush(Engine *engine, HttpExchange *exchange);
void route_set_version(Engine *engine, HttpExchange *exchange);
void route_health(Engine *engine, HttpExchange *exchange);
void route_health_generate(Engine *engine, HttpExchange *exchange);
void route_no_collective(Engine *engine, HttpExchange *exchange);
void route_memory(Engine *engine, HttpExchange *exchange);
void route_profile(Engine *engine, HttpExchange *exchange);
void engine_set_version(Engine *engine, const char *version);

/* engine_update.c */
void route_update_disk(Engine *engine, HttpExchange *exchange);
void route_weights_checker(Engine *engine, HttpExchange *exchange);
/* engine_pull.c */
void route_pull_weights(Engine *engine, HttpExchange *exchange);
void route_weights_on_disk(Engine *engine, HttpExchange *exchange);
void update_acknowledged(Ticket *ticket, bool ok, const char *why);
void update_due(Ticket *ticket); /* the fault's delay is over */

/* engine_info.c, engine_metrics.c */
void route_root(Engine *engine, HttpExchange *exchange);
void route_ping(Engine *engine, HttpExchange *exchange);
void route_server_info(Engine *engine, HttpExchange *exchange);
void route_model_info(Engine *engine, HttpExchange *exchange);
void route_weight_version(Engine *engine, HttpExchange *exchange);
void route_models(Engine *engine, HttpExchange *exchange);
void route_loads(Engine *engine, HttpExchange *exchange);
void route_get_load(Engine *engine, HttpExchange *exchange);
void route_metrics(Engine *engine, HttpExchange *exchange);
void engine_stats(Engine *engine, CoreStats *out); /* with gauges_stuck in mind */
void histogram_init(Histogram *histogram, const double *bounds, int count);
void histogram_add(Histogram *histogram, double v, uint64_t times);
const char *engine_version(Engine *engine); /* as reported: with ver_reset in mind */

#endif
