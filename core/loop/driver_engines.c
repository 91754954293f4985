/* What is looked at and told once for each process of an engine that is not ours: whether it runs
 * with the settings that the run's author wrote, and, where generation goes through an SGLang
 * router, that the router knows it. Neither stops anything: what differs is an event. */
#include "core/loop/driver_private.h"

#include "core/base/json.h"

#include <stdlib.h>
#include <string.h>

enum { ROUTER_MS = 5000, ROUTER_LIST_MAX = 4 << 20 };

typedef struct EngineLook {
    Driver *d;
    int engine;
    char url[256]; /* as the router is told it */
} EngineLook;

static EngineLook *look_new(Driver *d, int engine)
{
    EngineLook *look = xcalloc(1, sizeof *look);
    look->d = d;
    look->engine = engine;
    (void)str_format(look->url, sizeof look->url, "%s", fleet_engine(d->fleet, engine).base_url);
    return look;
}

static void say(const EngineLook *look, Severity severity, const char *words)
{
    Driver *d = look->d;
    driver_event(d, severity, fleet_engine(d->fleet, look->engine).name, look->engine + 1, "%s",
                 words);
}

/* ---- settings ----------------------------------------------------------------------------- */

static void on_server_info(const EngineAnswer *a, void *user)
{
    EngineLook *look = user;
    char words[400];
    if (a->err == ERR_OK && a->differ > 0) {
        (void)str_format(words, sizeof words, "runs with other settings: %s%s", a->differs,
                         strlen(a->differs) + 1 >= sizeof a->differs ? " …" : "");
        say(look, SEVERITY_WARN, words);
    } else if (a->err == ERR_OK) {
        say(look, SEVERITY_INFO, "runs with the settings of the command line");
    } else if (a->err != ERR_CANCELLED && a->err != ERR_STATE) {
        (void)str_format(words, sizeof words, "its settings could not be read: %.200s",
                         a->fault.sentence);
        say(look, SEVERITY_WARN, words);
    }
    free(look);
}

static void compare_settings(Driver *d, int engine)
{
    EngineCall call = {.kind = ENGINE_SERVER_INFO, .settings = d->config->engine_settings,
                       .setting_count = d->config->engine_setting_count};
    EngineLook *look = look_new(d, engine);
    if (fleet_call(d->fleet, engine, &call, on_server_info, look, NULL) != ERR_OK) {
        free(look);
    }
}

/* ---- router ------------------------------------------------------------------------------- */

static void on_registered(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    EngineLook *look = user;
    char words[256];
    if (result->end == HTTP_END_OK && result->status / 100 == 2) {
        say(look, SEVERITY_INFO, "registered at the router");
    } else if (result->end != HTTP_END_CANCELLED) {
        (void)str_format(words, sizeof words, "the router did not take it: %s %d %.120s",
                         http_end_name(result->end), result->status, result->error);
        say(look, SEVERITY_WARN, words);
    }
    free(look);
}

static void send_worker(EngineLook *look)
{
    Driver *d = look->d;
    char url[320];
    Text body;
    JsonOut json;
    text_init(&body, 1024);
    json_begin(&json, &body);
    json_object_begin(&json);
    json_member_string(&json, "url", look->url);
    json_member_string(&json, "worker_type", "regular");
    json_object_end(&json);
    (void)str_format(url, sizeof url, "%s/workers", d->front.url);
    HttpRequestSpec spec = {.method = "POST", .url = url, .body = text_str(&body),
                            .bearer = d->config->engine_bearer, .total_ms = ROUTER_MS,
                            .silence_ms = -1, .on_done = on_registered, .user = look};
    Fault fault = {0};
    if (http_start(d->http, &spec, NULL, &fault) != ERR_OK) {
        say(look, SEVERITY_WARN, fault.sentence);
        free(look);
    }
    text_free(&body);
}

static bool on_list(Str body, const char *url)
{
    cJSON *tree = NULL;
    const cJSON *worker = NULL;
    bool found = false;
    if (json_parse(body, ROUTER_LIST_MAX, "workers", &tree, NULL) != ERR_OK) {
        return false;
    }
    cJSON_ArrayForEach(worker, json_get(tree, "workers")) {
        found = found || strcmp(json_string(worker, "url", ""), url) == 0;
    }
    cJSON_Delete(tree);
    return found;
}

static void on_workers(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    EngineLook *look = user;
    if (result->end == HTTP_END_CANCELLED) {
        free(look);
    } else if (result->end != HTTP_END_OK || result->status != 200) {
        char words[256];
        (void)str_format(words, sizeof words,
                         "%s/workers: %s %d: no router's list there; it has to know the engine "
                         "by itself", look->d->front.url, http_end_name(result->end),
                         result->status);
        say(look, SEVERITY_WARN, words);
        free(look);
    } else if (on_list(result->body, look->url)) {
        say(look, SEVERITY_INFO, "known to the router");
        free(look);
    } else {
        send_worker(look);
    }
}

static void register_worker(Driver *d, int engine)
{
    char url[320];
    EngineLook *look = look_new(d, engine);
    (void)str_format(url, sizeof url, "%s/workers", d->front.url);
    HttpRequestSpec spec = {.method = "GET", .url = url, .bearer = d->config->engine_bearer,
                            .total_ms = ROUTER_MS, .silence_ms = -1, .idempotent = true,
                            .max_body = ROUTER_LIST_MAX, .on_done = on_workers, .user = look};
    if (http_start(d->http, &spec, NULL, NULL) != ERR_OK) {
        free(look);
    }
}

void driver_engine_came(Driver *d, int engine)
{
    if (fleet_engine(d->fleet, engine).local) {
        return;
    }
    if (d->config->engine_setting_count > 0) {
        compare_settings(d, engine);
    }
    if (d->config->router && d->front.up) { /* else once it is */
        register_worker(d, engine);
    }
}

void driver_router_came(Driver *d)
{
    for (int i = 0; d->config->router && i < fleet_count(d->fleet); i++) {
        if (d->seats[i].incarnation > 0 && d->seats[i].state != ENGINE_GONE) {
            register_worker(d, i);
        }
    }
}
