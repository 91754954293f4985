/* The engines behind the frontend: choosing, setting aside, adding and removing while it runs. */
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/serve/frontend_local.h"

#include <stdlib.h>
#include <string.h>

static bool valid_address(const char *address)
{
    size_t colon = 0;
    Str s = str_from(address);
    int64_t port = 0;
    if (s.n > 200 || !str_rfind(s, STR(":"), &colon) || colon == 0 ||
        !str_to_i64(str_slice(s, colon + 1, s.n), &port) || port < 1 || port > 65535) {
        return false;
    }
    for (size_t i = 0; i < colon; i++) {
        char c = s.p[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '-' || c == '_' || c == ':' || c == '[' || c == ']';
        if (!good) {
            return false;
        }
    }
    return true;
}

static Worker *worker_find(const Frontend *frontend, const char *address)
{
    for (int i = 0; i < frontend->worker_count; i++) {
        Worker *worker = frontend->workers[i];
        if (!worker->removed && strcmp(worker->address, address) == 0) {
            return worker;
        }
    }
    return NULL;
}

Worker *worker_add(Frontend *frontend, const char *address, Fault *fault)
{
    address = strncmp(address, "http://", 7) == 0 ? address + 7 : address;
    if (!valid_address(address)) {
        (void)fault_set(fault, ERR_ARG, "give an engine as HOST:PORT, for example 127.0.0.1:30000",
                        "\"%.200s\" is not the address of an engine", address);
        return NULL;
    }
    Worker *worker = worker_find(frontend, address);
    if (worker) { /* again: a new process may stand behind the address */
        worker->draining = false;
        worker->inhibited_until_us = 0;
        return worker;
    }
    if (frontend->worker_count == FRONTEND_WORKERS_MAX) {
        (void)fault_set(fault, ERR_LIMIT, "remove engines first", "%d engines are registered, the "
                        "most that a frontend takes", FRONTEND_WORKERS_MAX);
        return NULL;
    }
    worker = xcalloc(1, sizeof *worker);
    worker->address = xstrdup(address);
    worker->header = xasprintf("x-rolltop-engine: %s", address);
    /* High bits set, as Dynamo's: a client that keeps it in a double loses digits and shows it. */
    worker->instance_id = hash64(address, strlen(address), (uint64_t)clock_wall_us()) |
                          0x8000000000000000u;
    frontend->workers = xrealloc(frontend->workers, (size_t)frontend->worker_count + 1,
                                 sizeof *frontend->workers);
    frontend->workers[frontend->worker_count++] = worker;
    return worker;
}

static void worker_free(Frontend *frontend, Worker *worker)
{
    int at = 0;
    while (frontend->workers[at] != worker) {
        at++;
    }
    frontend->worker_count--;
    memmove(&frontend->workers[at], &frontend->workers[at + 1],
            (size_t)(frontend->worker_count - at) * sizeof *frontend->workers);
    free(worker->address);
    free(worker->header);
    free(worker);
}

void worker_remove(Frontend *frontend, Worker *worker)
{
    worker->removed = true;
    if (worker->active == 0) {
        worker_free(frontend, worker);
    }
}

void worker_release(Frontend *frontend, Worker *worker)
{
    worker->active--;
    if (worker->removed && worker->active == 0) {
        worker_free(frontend, worker);
    }
}

static bool servable(const Worker *worker, int64_t now)
{
    return !worker->removed && !worker->draining && worker->inhibited_until_us <= now;
}

int workers_servable(const Frontend *frontend)
{
    int64_t now = clock_mono_us();
    int count = 0;
    for (int i = 0; i < frontend->worker_count; i++) {
        count += servable(frontend->workers[i], now);
    }
    return count;
}

Worker *worker_pick(Frontend *frontend)
{
    int64_t now = clock_mono_us();
    Worker *best = NULL;
    for (int i = 0; i < frontend->worker_count; i++) {
        size_t at = (frontend->next + (size_t)i) % (size_t)frontend->worker_count;
        Worker *worker = frontend->workers[at];
        if (!servable(worker, now) || (best && worker->active >= best->active)) {
            continue;
        }
        best = worker;
        if (!frontend->least_loaded) {
            frontend->next = at + 1;
            return best;
        }
    }
    frontend->next++; /* equals take turns */
    return best;
}

static void list_workers(Frontend *frontend, HttpExchange *exchange)
{
    Text body;
    JsonOut json;
    reply_open(&body, &json, 8u << 20);
    json_key(&json, "workers");
    json_array_begin(&json);
    int64_t now = clock_mono_us();
    for (int i = 0; i < frontend->worker_count; i++) {
        const Worker *worker = frontend->workers[i];
        json_object_begin(&json);
        json_member_string(&json, "address", worker->address);
        json_key(&json, "instance_id");
        json_put_u64(&json, worker->instance_id);
        json_member_i64(&json, "active", worker->active);
        json_member_string(&json, "state", worker->removed    ? "removed"
                                           : worker->draining ? "draining"
                                           : worker->inhibited_until_us > now ? "set aside"
                                                                              : "up");
        json_object_end(&json);
    }
    json_array_end(&json);
    reply_send(exchange, 200, &body, &json);
}

void route_workers(Frontend *frontend, HttpExchange *exchange)
{
    if (!http_peer_is_loopback(exchange)) {
        reply_flat(exchange, 403, "Forbidden", "/_workers answers on loopback only");
        return;
    }
    if (str_equal(http_method(exchange), STR("GET"))) {
        list_workers(frontend, exchange);
        return;
    }
    cJSON *body = NULL;
    Fault fault = {0};
    Err err = json_parse(http_body(exchange), 65536, "/_workers", &body, &fault);
    const char *add = json_string(body, "add", NULL);
    const char *remove = json_string(body, "remove", NULL);
    const char *drain = json_string(body, "drain", NULL);
    const char *named = remove ? remove : drain;
    Worker *worker = named ? worker_find(frontend, named) : NULL;
    if (err) {
        reply_flat(exchange, 400, "Bad Request", fault.sentence);
    } else if (add && !worker_add(frontend, add, &fault)) {
        reply_flat(exchange, 400, "Bad Request", fault.sentence);
    } else if (!add && !named) {
        reply_flat(exchange, 400, "Bad Request",
                   "send {\"add\"|\"remove\"|\"drain\": \"HOST:PORT\"}");
    } else if (named && !worker) {
        reply_flat(exchange, 404, "Not Found", "no engine of that address is registered");
    } else {
        if (remove) {
            worker_remove(frontend, worker);
        } else if (drain) {
            worker->draining = true;
        }
        list_workers(frontend, exchange);
    }
    cJSON_Delete(body);
}
