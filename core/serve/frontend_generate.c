/* /generate: one upstream stream for each client stream. Events go on as the bytes that came, one
 * HTTP chunk an event; nothing is parsed but their ends. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/serve/frontend_local.h"

#include <stdlib.h>
#include <string.h>

enum { ERROR_BODY_MAX = 64 * 1024, UPSTREAM_SILENCE_MS = 3600 * 1000, ATTEMPTS_MAX = 16 };

static const char NOT_READY[] =
    "Model `%s` is not ready to serve requests yet. The deployment may still be starting up or is "
    "not fully provisioned. Please retry shortly.";

static void proxy_try(Proxy *proxy);

static void proxy_free(Proxy *proxy)
{
    Frontend *frontend = proxy->frontend;
    if (proxy->previous) {
        proxy->previous->next = proxy->next;
    } else {
        frontend->proxies = proxy->next;
    }
    if (proxy->next) {
        proxy->next->previous = proxy->previous;
    }
    if (proxy->worker) {
        worker_release(frontend, proxy->worker);
    }
    text_free(&proxy->body);
    text_free(&proxy->partial);
    free(proxy->rid);
    free(proxy->request_id);
    free(proxy);
    frontend->active--;
    frontend_drain_check(frontend);
}

static void proxy_end(Proxy *proxy, Outcome outcome)
{
    proxy->exchange = NULL;
    frontend_ended(proxy->frontend, outcome, proxy->start_us);
    proxy_free(proxy);
}

static void answer(Proxy *proxy, int status, const char *message, Outcome outcome)
{
    const char *headers[] = {proxy->request_id, NULL};
    reply_wrapped(proxy->exchange, status, message, headers);
    proxy_end(proxy, outcome);
}

static void answer_not_ready(Proxy *proxy)
{
    char text[512];
    (void)str_format(text, sizeof text, NOT_READY, proxy->frontend->model);
    answer(proxy, 503, text, OUTCOME_UNAVAILABLE);
}

/* ---- upstream ------------------------------------------------------------------------------- */

static void on_head(HttpCall *call, int status, void *user)
{
    Proxy *proxy = (Proxy *)user;
    (void)call;
    proxy->status = status;
    proxy->worker->resets = 0;
    if (status != 200 || !proxy->exchange) {
        return;
    }
    const char *headers[4] = {"cache-control: no-cache", proxy->worker->header,
                              proxy->request_id, NULL};
    http_stream_begin(proxy->exchange, 200, "text/event-stream", headers);
    proxy->began = true;
}

/* Whole events of `bytes` to the client; what is left of an event is kept. `from`: where to look
 * for an end, when the bytes before it were searched already. */
static bool forward_events(Proxy *proxy, Str bytes, size_t from, size_t *used)
{
    static const char done[] = "data: [DONE]\n\n";
    *used = 0;
    while (true) {
        size_t at = 0;
        if (!str_find(str_slice(bytes, from, bytes.n), STR("\n\n"), &at)) {
            return true;
        }
        size_t end = from + at + 2;
        Str event = str_slice(bytes, *used, end);
        if (!http_stream_write(proxy->exchange, event)) {
            return false;
        }
        proxy->frontend->events++;
        proxy->done = proxy->done || str_equal(event, (Str){done, sizeof done - 1});
        *used = from = end;
    }
}

static bool on_body(HttpCall *call, Str piece, void *user)
{
    (void)call;
    Proxy *proxy = (Proxy *)user;
    if (!proxy->exchange) {
        return false;
    }
    if (!proxy->began) { /* an error body: its text may be for the client */
        Str fits = str_slice(piece, 0, ERROR_BODY_MAX - proxy->partial.n);
        text_add_str(&proxy->partial, fits);
        return true;
    }
    size_t used = 0;
    if (proxy->partial.n == 0) {
        return forward_events(proxy, piece, 0, &used) &&
               text_add_str(&proxy->partial, str_slice(piece, used, piece.n));
    }
    size_t from = proxy->partial.n - 1; /* "\n" may have come before its twin */
    if (!text_add_str(&proxy->partial, piece)) {
        return false;
    }
    bool good = forward_events(proxy, text_str(&proxy->partial), from, &used);
    if (used > 0) {
        size_t left = proxy->partial.n - used;
        memmove(proxy->partial.p, proxy->partial.p + used, left + 1);
        proxy->partial.n = left;
    }
    return good;
}

static void set_aside(Proxy *proxy)
{
    proxy->worker->inhibited_until_us = clock_mono_us() + proxy->frontend->inhibit_us;
}

static const char *engine_text(const cJSON *body)
{
    const cJSON *error = json_get(body, "error");
    const char *text = json_string(error, "message", NULL);
    text = text ? text : json_string(body, "error", NULL);
    text = text ? text : json_string(body, "message", NULL);
    return text ? text : json_string(body, "detail", "the engine refused the request");
}

/* The engine answered, but not with a stream. */
static void engine_refused(Proxy *proxy)
{
    Frontend *frontend = proxy->frontend;
    if (proxy->status == 503 || proxy->status == 429) {
        if (proxy->attempts < frontend->worker_count && proxy->attempts < ATTEMPTS_MAX) {
            worker_release(frontend, proxy->worker);
            proxy->worker = NULL;
            proxy_try(proxy); /* full or draining: perhaps another one is not */
            return;
        }
        frontend->rejected++;
        answer(proxy, 503, "engine rejected the request", OUTCOME_UNAVAILABLE);
        return;
    }
    if (proxy->status < 400 || proxy->status >= 500 || proxy->status == 401 ||
        proxy->status == 403 || proxy->status == 404) {
        answer(proxy, 500, "internal server error", OUTCOME_INTERNAL);
        return;
    }
    cJSON *body = NULL;
    (void)json_parse(text_str(&proxy->partial), ERROR_BODY_MAX, "engine", &body, NULL);
    answer(proxy, 400, engine_text(body), OUTCOME_VALIDATION);
    cJSON_Delete(body);
}

static void on_upstream_done(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    Proxy *proxy = (Proxy *)user;
    Frontend *frontend = proxy->frontend;
    proxy->call = NULL;
    if (!proxy->exchange) { /* the client has gone; counted then */
        proxy_free(proxy);
        return;
    }
    if (proxy->began) {
        bool lost = !proxy->done;
        if (lost) { /* cut, or ended without a terminal event */
            set_aside(proxy);
            http_stream_write(proxy->exchange,
                              STR("data: {\"error\":{\"message\":\"Internal server error\"}}\n\n"));
            http_stream_write(proxy->exchange, STR("data: [DONE]\n\n"));
        }
        http_stream_end(proxy->exchange);
        proxy_end(proxy, lost ? OUTCOME_INTERNAL : OUTCOME_SUCCESS);
        return;
    }
    if (result->end == HTTP_END_OK) {
        engine_refused(proxy);
        return;
    }
    /* One reset may be a pooled connection that the engine had closed; two in a row are not. */
    if (result->end != HTTP_END_RESET || ++proxy->worker->resets >= 2) {
        proxy->worker->resets = 0;
        set_aside(proxy);
    }
    worker_release(frontend, proxy->worker);
    proxy->worker = NULL;
    if (proxy->attempts >= ATTEMPTS_MAX) {
        answer(proxy, 500, "internal server error", OUTCOME_INTERNAL);
        return;
    }
    frontend->migrated++;
    proxy_try(proxy); /* nothing of it ran that anybody could have seen */
}

static void proxy_try(Proxy *proxy)
{
    Frontend *frontend = proxy->frontend;
    Worker *worker = worker_pick(frontend);
    if (!worker) {
        answer_not_ready(proxy);
        return;
    }
    proxy->attempts++;
    proxy->status = 0;
    text_clear(&proxy->partial);
    char url[256];
    (void)str_format(url, sizeof url, "http://%s/generate", worker->address);
    HttpRequestSpec spec = {
        .method = "POST", .url = url, .body = text_str(&proxy->body),
        .bearer = frontend->engine_key, .connect_ms = 2000, .silence_ms = UPSTREAM_SILENCE_MS,
        .total_ms = -1, .max_body = SIZE_MAX / 4, .on_head = on_head, .on_body = on_body,
        .on_done = on_upstream_done, .user = proxy};
    Fault fault = {0};
    if (http_start(frontend->client, &spec, &proxy->call, &fault)) {
        frontend->rejected++;
        answer(proxy, 503, "engine rejected the request", OUTCOME_UNAVAILABLE);
        return;
    }
    proxy->worker = worker;
    worker->active++;
}

/* ---- the client's side ---------------------------------------------------------------------- */

static void on_abort_done(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    (void)result; /* fire and forget: the closed connection says the same */
    (void)user;
}

void proxy_gone(Proxy *proxy)
{
    Frontend *frontend = proxy->frontend;
    proxy->exchange = NULL;
    frontend->disconnected++;
    frontend->cancelled++;
    frontend_ended(frontend, OUTCOME_CANCELLED, proxy->start_us);
    if (!proxy->call) {
        proxy_free(proxy);
        return;
    }
    http_call_cancel(proxy->call); /* its end frees the proxy */
    char url[256];
    (void)str_format(url, sizeof url, "http://%s/abort_request", proxy->worker->address);
    Text body;
    text_init(&body, 65536);
    JsonOut json;
    json_begin(&json, &body);
    json_object_begin(&json);
    json_member_string(&json, "rid", proxy->rid);
    json_object_end(&json);
    HttpRequestSpec spec = {.method = "POST", .url = url, .body = text_str(&body),
                            .bearer = frontend->engine_admin_key ? frontend->engine_admin_key
                                                                 : frontend->engine_key,
                            .connect_ms = 1000, .silence_ms = 5000, .total_ms = 5000,
                            .max_body = 65536, .on_done = on_abort_done};
    (void)http_start(frontend->client, &spec, NULL, NULL);
    text_free(&body);
}

static char *header_text(Str value)
{
    for (size_t i = 0; i < value.n; i++) {
        if ((unsigned char)value.p[i] < 0x20 || value.p[i] == 0x7f) {
            return NULL;
        }
    }
    return value.n > 0 && value.n <= 512 ? xstrndup(value.p, value.n) : NULL;
}

static char *new_request_id(Frontend *frontend)
{
    uint64_t id[2] = {frontend->id_seed, (uint64_t)++frontend->id_count};
    Rng rng;
    rng_seed(&rng, id[0] ^ (id[1] * 0x9e3779b97f4a7c15u));
    uint64_t a = rng_u64(&rng);
    uint64_t b = rng_u64(&rng);
    return xasprintf("%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32),
                     (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xfff,
                     (unsigned)((b >> 48) & 0x3fff) | 0x8000,
                     (unsigned long long)(b & 0xffffffffffffu));
}

/* The body as it came; a rid is put in front of its members when it has none. */
static bool build_body(Proxy *proxy, Str raw, bool has_rid)
{
    text_init(&proxy->body, raw.n + 8192);
    if (has_rid) {
        return text_add_str(&proxy->body, raw);
    }
    size_t brace = 0;
    if (!str_find(raw, STR("{"), &brace)) {
        return false;
    }
    JsonOut json;
    text_add_c(&proxy->body, "{\"rid\":");
    json_begin(&json, &proxy->body);
    json_put_string(&json, proxy->rid);
    text_add_char(&proxy->body, ',');
    return text_add_str(&proxy->body, str_slice(raw, brace + 1, raw.n));
}

static void proxy_start(Frontend *frontend, HttpExchange *exchange, char *rid)
{
    Proxy *proxy = xcalloc(1, sizeof *proxy);
    proxy->frontend = frontend;
    proxy->exchange = exchange;
    proxy->start_us = clock_mono_us();
    text_init(&proxy->partial, FRONTEND_EVENT_MAX);
    char *asked = header_text(http_header(exchange, "x-request-id"));
    proxy->request_id = asked ? xasprintf("x-request-id: %s", asked) : NULL;
    proxy->rid = rid     ? rid
                 : asked ? xstrdup(asked) : new_request_id(frontend);
    free(asked);
    proxy->next = frontend->proxies;
    if (frontend->proxies) {
        frontend->proxies->previous = proxy;
    }
    frontend->proxies = proxy;
    frontend->active++;
    frontend->started++;
    http_set_user(exchange, proxy);
    if (!build_body(proxy, http_body(exchange), rid != NULL)) {
        answer(proxy, 500, "internal server error", OUTCOME_INTERNAL);
        return;
    }
    proxy_try(proxy);
}

void route_proxy(Frontend *frontend, HttpExchange *exchange)
{
    int64_t start = clock_mono_us();
    FrontendCheck check = {0};
    text_init(&check.json, 16384);
    if (frontend->draining) {
        reply_flat(exchange, 503, "Service Unavailable", "Service is not ready");
    } else if (!frontend_check_body(exchange, &check)) {
        http_reply_json(exchange, check.status, &check.json);
        frontend_ended(frontend, check.status == 501 ? OUTCOME_NOT_IMPLEMENTED
                                                     : OUTCOME_VALIDATION, start);
    } else if (frontend->worker_count == 0) {
        reply_wrapped(exchange, 404, "no generate-capable model is registered", NULL);
        frontend_ended(frontend, OUTCOME_NOT_FOUND, start);
    } else if (workers_servable(frontend) == 0) {
        char text[512];
        (void)str_format(text, sizeof text, NOT_READY, frontend->model);
        reply_wrapped(exchange, 503, text, NULL);
        frontend_ended(frontend, OUTCOME_UNAVAILABLE, start);
    } else if (http_header(exchange, "x-data-parallel-rank").n > 0) {
        reply_wrapped(exchange, 400, "DP rank requires an explicit worker for session affinity",
                      NULL);
        frontend_ended(frontend, OUTCOME_VALIDATION, start);
    } else {
        proxy_start(frontend, exchange, check.rid);
        check.rid = NULL;
    }
    free(check.rid);
    text_free(&check.json);
}
