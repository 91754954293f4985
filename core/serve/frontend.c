/* `rolltop frontend`: flags, routing, drain. Errors are in Dynamo's two shapes: flat for the
 * service, wrapped for /generate. */
#include "core/serve/frontend.h"

#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/mem.h"
#include "core/net/child.h"
#include "core/net/evloop.h"
#include "core/serve/frontend_pages.h"
#include "core/serve/key_env.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DRAIN_MS = 5000 };

/* ---- answers -------------------------------------------------------------------------------- */

void reply_flat(HttpExchange *exchange, int status, const char *type, const char *message)
{
    Text body;
    JsonOut json;
    reply_open(&body, &json, 8192);
    json_member_string(&json, "message", message);
    json_member_string(&json, "type", type);
    json_member_i64(&json, "code", status);
    reply_send(exchange, status, &body, &json);
}

void reply_wrapped(HttpExchange *exchange, int status, const char *message,
                   const char *const *headers)
{
    Text body;
    JsonOut json;
    reply_open(&body, &json, 65536);
    json_key(&json, "error");
    json_object_begin(&json);
    json_member_string(&json, "message", message);
    json_object_end(&json);
    reply_send_with(exchange, status, &body, &json, headers);
}

static void reply_not_found(HttpExchange *exchange)
{
    char message[512];
    Str method = http_method(exchange);
    Str path = http_path(exchange);
    (void)str_format(message, sizeof message, "Route not found: %.*s %.*s", (int)method.n,
                     method.p, (int)(path.n < 400 ? path.n : 400), path.p);
    reply_flat(exchange, 404, "Not Found", message);
}

/* ---- dispatch ------------------------------------------------------------------------------- */

static bool route_model_page(Frontend *frontend, HttpExchange *exchange, Str path)
{
    Str prefix = STR("/v1/models/");
    Str suffix = STR("/ready");
    if (!str_starts(path, prefix) || !str_ends(path, suffix) || path.n < prefix.n + suffix.n) {
        return false;
    }
    Str id = str_slice(path, prefix.n, path.n - suffix.n);
    if (str_equal(id, str_from(frontend->model)) && frontend->worker_count > 0) {
        route_frontend_ready(frontend, exchange);
    } else {
        reply_flat(exchange, 404, "Not Found", "Model not found");
    }
    return true;
}

static void on_request(HttpExchange *exchange, void *user)
{
    Frontend *frontend = (Frontend *)user;
    Str path = http_path(exchange);
    Str method = http_method(exchange);
    bool get = str_equal(method, STR("GET"));
    if (str_equal(path, STR("/generate"))) {
        if (str_equal(method, STR("POST")) || str_equal(method, STR("PUT"))) {
            route_proxy(frontend, exchange);
        } else {
            static const char *const allow[] = {"allow: POST,PUT", NULL};
            http_reply(exchange, 405, NULL, (Str){NULL, 0}, allow);
        }
    } else if (str_equal(path, STR("/_workers")) && (get || str_equal(method, STR("POST")))) {
        route_workers(frontend, exchange);
    } else if (!get) {
        reply_not_found(exchange);
    } else if (str_equal(path, STR("/live"))) {
        route_live(frontend, exchange);
    } else if (str_equal(path, STR("/health"))) {
        route_frontend_health(frontend, exchange);
    } else if (str_equal(path, STR("/v1/models"))) {
        route_frontend_models(frontend, exchange);
    } else if (str_equal(path, STR("/metrics"))) {
        route_frontend_metrics(frontend, exchange);
    } else if (!route_model_page(frontend, exchange, path)) {
        reply_not_found(exchange);
    }
}

static void on_refused(HttpExchange *exchange, int status, const char *why, void *user)
{
    (void)user;
    static const char too_long[] =
        "{\"object\":\"error\",\"message\":\"Failed to buffer the request body: length limit "
        "exceeded\",\"type\":\"Bad Request\",\"param\":null,\"code\":400}";
    if (status == 413) { /* 1.6.1 answers 400 on /generate */
        http_reply(exchange, 400, "application/json", str_from(too_long), NULL);
    } else {
        reply_flat(exchange, status, "Bad Request", why);
    }
}

static void on_gone(HttpExchange *exchange, void *user)
{
    (void)user;
    Proxy *proxy = (Proxy *)http_get_user(exchange);
    if (proxy) {
        proxy_gone(proxy);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static void stop(Frontend *frontend)
{
    if (frontend->stopping) {
        return;
    }
    frontend->stopping = true;
    http_server_free(frontend->server);
    http_client_free(frontend->client);
    uv_close((uv_handle_t *)&frontend->drain, NULL);
    uv_close((uv_handle_t *)&frontend->signals[0], NULL);
    uv_close((uv_handle_t *)&frontend->signals[1], NULL);
}

static void on_drained(uv_timer_t *timer)
{
    Frontend *frontend = (Frontend *)timer->data;
    if (frontend->active == 0) {
        stop(frontend);
    } else {
        http_server_stop_accepting(frontend->server); /* open streams run to their end */
    }
}

void frontend_drain_check(Frontend *frontend)
{
    if (frontend->draining && frontend->active == 0 && !frontend->stopping) {
        uv_timer_start(&frontend->drain, on_drained, 0, 0);
    }
}

static void on_signal(uv_signal_t *signal, int number)
{
    (void)number;
    Frontend *frontend = (Frontend *)signal->data;
    if (frontend->draining) {
        _exit(1); /* asked twice */
    }
    frontend->draining = true;
    uv_timer_start(&frontend->drain, on_drained, frontend->active > 0 ? DRAIN_MS : 0, 0);
}

typedef struct FrontendFlags {
    FlagList engines;
    const char *host, *routing, *model, *space, *key, *admin_key;
    int64_t port;
    double inhibit_s;
    bool help;
} FrontendFlags;

enum { FRONTEND_SPECS = 10 };

static void fill_specs(FrontendFlags *f, FlagSpec specs[FRONTEND_SPECS])
{
    const FlagSpec table[FRONTEND_SPECS] = {
        {"engine", FLAG_LIST, &f->engines, 0, 0, "HOST:PORT", "an engine; may be repeated", NULL},
        {"host", FLAG_STRING, &f->host, 0, 0, "IP", "address to listen on (127.0.0.1)", NULL},
        {"port", FLAG_INT, &f->port, 0, 65535, "N", "port; 0: any free one (8000)", NULL},
        {"routing", FLAG_STRING, &f->routing, 0, 0, "HOW", "round-robin or least-loaded", NULL},
        {"model-name", FLAG_STRING, &f->model, 0, 0, "NAME", "the model's name (policy)", NULL},
        {"namespace", FLAG_STRING, &f->space, 0, 0, "NAME", "Dynamo namespace (rolltop)", NULL},
        {"inhibit-s", FLAG_DOUBLE, &f->inhibit_s, 0, 3600, "S",
         "seconds that a failed engine is set aside (5)", NULL},
        {"engine-api-key-env", FLAG_STRING, &f->key, 0, 0, "VAR",
         "environment variable with the engines' API key", NULL},
        {"engine-admin-api-key-env", FLAG_STRING, &f->admin_key, 0, 0, "VAR",
         "environment variable with the engines' admin key", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this text", NULL},
    };
    memcpy(specs, table, sizeof table);
}

void frontend_flags(FlagVisit *visit, void *to)
{
    FrontendFlags flags = {0};
    FlagSpec specs[FRONTEND_SPECS];
    fill_specs(&flags, specs);
    visit(specs, FRONTEND_SPECS, to);
}

static Err check_flags(const FrontendFlags *f, Fault *fault)
{
    if (strcmp(f->routing, "round-robin") != 0 && strcmp(f->routing, "least-loaded") != 0) {
        return fault_set(fault, ERR_ARG, "use round-robin or least-loaded",
                         "frontend: --routing %s is unknown", f->routing);
    }
    if (strpbrk(f->model, "\"\\\n") || strpbrk(f->space, "\"\\\n/")) {
        return fault_set(fault, ERR_ARG, "use letters, digits, dot and dash",
                         "frontend: --model-name and --namespace must be plain words");
    }
    bool loopback = strncmp(f->host, "127.", 4) == 0 || strcmp(f->host, "localhost") == 0 ||
                    strcmp(f->host, "::1") == 0;
    if (!loopback) {
        return fault_set(fault, ERR_ARG, "bind 127.0.0.1 and tunnel to it",
                         "frontend: --host %s is open to others, and this frontend has no keys",
                         f->host);
    }
    return ERR_OK;
}

static Err frontend_open(Frontend *frontend, const FrontendFlags *f, Fault *fault)
{
    frontend->model = f->model;
    frontend->space = f->space;
    frontend->least_loaded = strcmp(f->routing, "least-loaded") == 0;
    frontend->inhibit_us = (int64_t)(f->inhibit_s * 1e6);
    frontend->id_seed = (uint64_t)clock_wall_us() ^ ((uint64_t)getpid() << 44);
    Err err = key_from_env("engine-api-key-env", f->key, &frontend->engine_key, fault);
    err = err ? err : key_from_env("engine-admin-api-key-env", f->admin_key,
                                   &frontend->engine_admin_key, fault);
    for (size_t i = 0; i < f->engines.count && !err; i++) {
        if (!worker_add(frontend, f->engines.items[i], fault)) {
            err = fault->code;
        }
    }
    HttpClientConfig client = {.connect_ms = 2000, .silence_ms = 30000, .total_ms = 60000,
                               .max_body = 1 << 20, .max_connections_per_host = 0};
    err = err ? err : http_client_new(&frontend->loop, &client, &frontend->client, fault);
    HttpServerConfig config = {.host = f->host, .port = (int)f->port, .max_body = 192u << 20,
                               .on_request = on_request, .on_gone = on_gone,
                               .on_refused = on_refused, .user = frontend};
    return err ? err : http_server_new(&frontend->loop, &config, &frontend->server, fault);
}

static int run_frontend(const FrontendFlags *f)
{
    Frontend *frontend = xcalloc(1, sizeof *frontend);
    Fault fault = {0};
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (evloop_open(&frontend->loop, &frontend->signals[1], &frontend->signals[0], &fault) !=
        ERR_OK) {
        fault_print(&fault);
        free(frontend);
        return 2;
    }
    uv_timer_init(&frontend->loop, &frontend->drain);
    frontend->drain.data = frontend;
    for (int i = 0; i < 2; i++) {
        frontend->signals[i].data = frontend;
        uv_signal_start(&frontend->signals[i], on_signal, i ? SIGINT : SIGTERM);
    }
    Err err = frontend_open(frontend, f, &fault);
    if (err) {
        fault_print(&fault);
        stop(frontend);
    } else {
        printf("frontend listening on http://%s:%d\n", f->host,
               http_server_port(frontend->server));
        fflush(stdout);
    }
    uv_run(&frontend->loop, UV_RUN_DEFAULT);
    while (frontend->worker_count > 0) {
        Worker *worker = frontend->workers[0];
        worker->active = 0;
        worker_remove(frontend, worker);
    }
    free(frontend->workers);
    (void)uv_loop_close(&frontend->loop);
    free(frontend);
    return err ? 2 : 0; /* it never served */
}

int frontend_main(int argc, char **argv)
{
    child_die_with_parent();
    signal(SIGPIPE, SIG_IGN);
    static const FlagCommand command = {
        "rolltop frontend: answers as a Dynamo frontend over local engines\n", 0, 0, NULL,
        "engines are given with --engine HOST:PORT"};
    FrontendFlags flags = {.host = "127.0.0.1", .routing = "round-robin", .model = "policy",
                           .space = "rolltop", .port = 8000, .inhibit_s = 5};
    FlagSpec specs[FRONTEND_SPECS];
    fill_specs(&flags, specs);
    FlagRest rest;
    Fault fault = {0};
    FlagsEnd end = flags_command(&command, specs, FRONTEND_SPECS, argc, argv, &rest, &fault);
    if (end == FLAGS_HELP) {
        return 0;
    }
    int status = 2;
    if (end == FLAGS_WRONG || check_flags(&flags, &fault) != ERR_OK) {
        fault_print(&fault);
    } else {
        status = run_frontend(&flags);
    }
    if (end == FLAGS_GO) {
        flags_free(specs, FRONTEND_SPECS, &rest);
    }
    return status;
}
