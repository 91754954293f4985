/* One control call over HTTP: the first spelling of its route, and the older one where the first
 * does not exist. Total bounds only: an engine is silent while it works on a control call. */
#include "core/fleet/engine_client.h"

#include "core/base/mem.h"
#include "core/fleet/engine_routes.h"

#include <stdlib.h>
#include <string.h>

typedef struct Control {
    HttpClient *client;
    EngineCall call;
    char *base_url, *bearer, *text;
    int32_t *ids;
    Text body;
    bool second; /* the older route is being tried */
    int64_t took_us, timeout_ms;
    EngineAnswered on_done;
    void *user;
} Control;

static void control_free(Control *c)
{
    free(c->base_url);
    free(c->bearer);
    free(c->text);
    free(c->ids);
    text_free(&c->body);
    free(c);
}

static Err control_send(Control *c, Fault *fault);

/* A route that is missing, or (loads) one that FastAPI broke: sglang-api 0 and 5.1. */
static bool older_route_may_help(const Control *c, const HttpResult *http)
{
    return !c->second && engine_route(c->call.kind)->fallback && http->end == HTTP_END_OK
           && (http->status == 404 || http->status == 405
               || (c->call.kind == ENGINE_LOADS && http->status == 500));
}

static void on_http_done(HttpCall *call, const HttpResult *http, void *user)
{
    (void)call;
    Control *c = user;
    const EngineRoute *route = engine_route(c->call.kind);
    c->took_us += http->total_us;
    if (older_route_may_help(c, http)) {
        c->second = true;
        if (control_send(c, NULL) == ERR_OK) {
            return;
        }
    }
    EngineAnswer answer = {0};
    char where[256];
    (void)str_format(where, sizeof where, "%s %s%s", route->method, c->base_url,
                     c->second ? route->fallback : route->path);
    engine_parse(&c->call, where, http->end, http->status, http->body, &answer);
    answer.took_us = c->took_us;
    answer.fresh = http->fresh;
    c->on_done(&answer, c->user);
    control_free(c);
}

static Err control_send(Control *c, Fault *fault)
{
    const EngineRoute *route = engine_route(c->call.kind);
    char *url = xasprintf("%s%s", c->base_url, c->second ? route->fallback : route->path);
    HttpRequestSpec request = {
        .method = route->method, .url = url, .body = text_str(&c->body), .bearer = c->bearer,
        .silence_ms = -1, .total_ms = c->timeout_ms,
        .connect_ms = c->timeout_ms < 2000 ? c->timeout_ms : 2000,
        .max_body = route->max_body, .idempotent = route->idempotent,
        .on_done = on_http_done, .user = c,
    };
    Err err = http_start(c->client, &request, NULL, fault);
    free(url);
    return err;
}

Err engine_call(HttpClient *client, const char *base_url, const char *bearer,
                const EngineCall *call, EngineAnswered on_done, void *user, Fault *fault)
{
    const EngineRoute *route = engine_route(call->kind);
    Control *c = xcalloc(1, sizeof *c);
    c->client = client;
    c->call = *call;
    c->base_url = xstrdup(base_url);
    c->bearer = bearer ? xstrdup(bearer) : NULL;
    c->timeout_ms = call->timeout_ms > 0 ? call->timeout_ms : route->timeout_ms;
    c->on_done = on_done;
    c->user = user;
    text_init(&c->body, 64 << 10);
    Err err = engine_write_body(call, &c->body, fault);
    if (!err && call->text) {
        c->text = xstrdup(call->text);
    }
    if (!err && call->ids && call->id_count > 0) {
        c->ids = xcalloc((size_t)call->id_count, sizeof *c->ids);
        memcpy(c->ids, call->ids, (size_t)call->id_count * sizeof *c->ids);
    }
    c->call.text = c->text;
    c->call.ids = c->ids;
    if (!err) {
        err = control_send(c, fault);
    }
    if (err) {
        control_free(c);
    }
    return err;
}
