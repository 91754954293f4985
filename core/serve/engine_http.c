/* Routing, authentication and error bodies of an engine. */
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/serve/engine_local.h"

#include <stdlib.h>
#include <string.h>

enum { BODY_MAX = 64 << 20 };

typedef enum RouteLevel { ROUTE_NORMAL, ROUTE_ADMIN, ROUTE_FAULTS } RouteLevel;
enum { METHOD_GET = 1, METHOD_POST = 2, METHOD_PUT = 4 };

typedef struct Route {
    const char *path;
    unsigned methods;
    RouteLevel level;
    void (*run)(Engine *engine, HttpExchange *exchange);
} Route;

static const Route ROUTES[] = {
    {"/generate", METHOD_POST | METHOD_PUT, ROUTE_NORMAL, route_generate},
    {"/v1/loads", METHOD_GET, ROUTE_NORMAL, route_loads},
    {"/get_load", METHOD_GET, ROUTE_NORMAL, route_get_load},
    {"/metrics", METHOD_GET, ROUTE_NORMAL, route_metrics},
    {"/health", METHOD_GET, ROUTE_NORMAL, route_health},
    {"/health_generate", METHOD_GET, ROUTE_NORMAL, route_health_generate},
    {"/ping", METHOD_GET | METHOD_POST, ROUTE_NORMAL, route_ping},
    {"/", METHOD_GET, ROUTE_NORMAL, route_root},
    {"/server_info", METHOD_GET, ROUTE_NORMAL, route_server_info},
    {"/get_server_info", METHOD_GET, ROUTE_NORMAL, route_server_info},
    {"/model_info", METHOD_GET, ROUTE_NORMAL, route_model_info},
    {"/get_model_info", METHOD_GET, ROUTE_NORMAL, route_model_info},
    {"/get_weight_version", METHOD_GET, ROUTE_NORMAL, route_weight_version},
    {"/weight_version", METHOD_GET, ROUTE_NORMAL, route_weight_version},
    {"/v1/models", METHOD_GET, ROUTE_NORMAL, route_models},
    {"/abort_request", METHOD_POST, ROUTE_ADMIN, route_abort},
    {"/pause_generation", METHOD_POST, ROUTE_ADMIN, route_pause},
    {"/continue_generation", METHOD_POST, ROUTE_ADMIN, route_continue},
    {"/flush_cache", METHOD_GET | METHOD_POST, ROUTE_ADMIN, route_flush},
    {"/update_weights_from_disk", METHOD_POST, ROUTE_ADMIN, route_update_disk},
    {"/update_weight_version", METHOD_POST, ROUTE_ADMIN, route_set_version},
    {"/pull_weights", METHOD_POST, ROUTE_ADMIN, route_pull_weights},
    {"/weights_on_disk", METHOD_POST, ROUTE_ADMIN, route_weights_on_disk},
    {"/weights_checker", METHOD_GET | METHOD_POST, ROUTE_ADMIN, route_weights_checker},
    {"/release_memory_occupation", METHOD_POST, ROUTE_ADMIN, route_memory},
    {"/resume_memory_occupation", METHOD_POST, ROUTE_ADMIN, route_memory},
    {"/init_weights_update_group", METHOD_POST, ROUTE_ADMIN, route_no_collective},
    {"/destroy_weights_update_group", METHOD_POST, ROUTE_ADMIN, route_no_collective},
    {"/update_weights_from_distributed", METHOD_POST, ROUTE_ADMIN, route_no_collective},
    {"/update_weights_from_tensor", METHOD_POST, ROUTE_ADMIN, route_no_collective},
    {"/start_profile", METHOD_GET | METHOD_POST, ROUTE_ADMIN, route_profile},
    {"/stop_profile", METHOD_GET | METHOD_POST, ROUTE_ADMIN, route_profile},
    {"/_fault", METHOD_POST, ROUTE_FAULTS, route_fault},
    {"/_fault", METHOD_GET, ROUTE_FAULTS, route_fault_list},
};

/* ---- error bodies --------------------------------------------------------------------------- */

static void count_error(Engine *engine, int status)
{
    if (status >= 500) {
        engine->http_5xx++;
    } else if (status >= 400) {
        engine->http_4xx++;
    }
}

void reply_error_object(Engine *engine, HttpExchange *exchange, int status, const char *type,
                        const char *message)
{
    count_error(engine, status);
    Text body;
    JsonOut json;
    reply_open(&body, &json, 8192);
    json_member_string(&json, "object", "error");
    json_member_string(&json, "message", message);
    json_member_string(&json, "type", type);
    json_key(&json, "param");
    json_put_null(&json);
    json_member_i64(&json, "code", status);
    reply_send(exchange, status, &body, &json);
}

void reply_error(Engine *engine, HttpExchange *exchange, int status, const char *message)
{
    count_error(engine, status);
    Text body;
    JsonOut json;
    reply_open(&body, &json, 8192);
    json_key(&json, "error");
    json_object_begin(&json);
    json_member_string(&json, "message", message);
    json_object_end(&json);
    reply_send(exchange, status, &body, &json);
}

void reply_empty(HttpExchange *exchange, int status)
{
    http_reply(exchange, status, NULL, (Str){NULL, 0}, NULL);
}

cJSON *body_object(Engine *engine, HttpExchange *exchange)
{
    Str body = http_body(exchange);
    Str type = http_header(exchange, "content-type");
    size_t at = 0;
    if (body.n == 0) {
        reply_error_object(engine, exchange, 400, "Bad Request",
                           "1 validation error: body: Field required; send at least {}");
        return NULL;
    }
    if (type.n > 0 && !str_find(type, STR("json"), &at)) {
        reply_error_object(engine, exchange, 400, "Bad Request", "1 validation error: body: send "
                           "Content-Type: application/json");
        return NULL;
    }
    cJSON *tree = NULL;
    Fault fault = {0};
    /* Bytes that are no text would vanish in the tokenizer: another prompt than the one sent. */
    if (!utf8_valid(body)) {
        reply_error_object(engine, exchange, 400, "Bad Request",
                           "JSON decode error: the body is not valid UTF-8");
        return NULL;
    }
    if (json_parse(body, BODY_MAX, "JSON decode error", &tree, &fault)) {
        reply_error_object(engine, exchange, 400, "Bad Request", fault.sentence);
        return NULL;
    }
    if (!cJSON_IsObject(tree)) {
        cJSON_Delete(tree);
        reply_error_object(engine, exchange, 400, "Bad Request",
                           "1 validation error: body: Input should be an object");
        return NULL;
    }
    return tree;
}

/* ---- authentication (sglang-api 2.3) -------------------------------------------------------- */

static bool token_equal(Str given, const char *key)
{
    Str wanted = str_from(key);
    unsigned difference = given.n != wanted.n;
    for (size_t i = 0; i < wanted.n; i++) { /* constant time in the key's length */
        unsigned char c = i < given.n ? (unsigned char)given.p[i] : 0;
        difference |= (unsigned)(c ^ (unsigned char)wanted.p[i]);
    }
    return difference == 0;
}

static bool allowed(const Engine *engine, HttpExchange *exchange, RouteLevel level)
{
    const EngineSettings *settings = engine->settings;
    Str path = http_path(exchange);
    if (str_starts(path, STR("/health")) || str_starts(path, STR("/metrics"))) {
        return true;
    }
    const char *key = settings->api_key;
    if (level != ROUTE_NORMAL && settings->admin_key) {
        key = settings->admin_key;
    }
    if (!key) {
        return true;
    }
    Str header = http_header(exchange, "authorization");
    Str scheme = str_slice(header, 0, 7);
    if (!str_equal_nocase(scheme, STR("Bearer "))) {
        return false;
    }
    return token_equal(str_trim(str_slice(header, 7, header.n)), key);
}

/* ---- dispatch ------------------------------------------------------------------------------- */

static unsigned method_bit(Str method)
{
    return str_equal(method, STR("GET"))    ? METHOD_GET
           : str_equal(method, STR("POST")) ? METHOD_POST
           : str_equal(method, STR("PUT"))  ? METHOD_PUT : 0;
}

static void reply_detail(Engine *engine, HttpExchange *exchange, int status, const char *detail)
{
    count_error(engine, status);
    Text body;
    text_init(&body, 256);
    text_addf(&body, "{\"detail\":\"%s\"}", detail);
    http_reply_json(exchange, status, &body);
    text_free(&body);
}

static void park(Engine *engine, HttpExchange *exchange)
{
    if (engine->parked_count >= ENGINE_PARKED_MAX) {
        http_drop(exchange);
        return;
    }
    if (engine->parked_count == engine->parked_capacity) {
        engine->parked_capacity = engine->parked_capacity * 2 + 16;
        engine->parked = xrealloc(engine->parked, (size_t)engine->parked_capacity,
                                  sizeof *engine->parked);
    }
    engine->parked[engine->parked_count++] = exchange;
}

void engine_on_request(HttpExchange *exchange, void *user)
{
    Engine *engine = (Engine *)user;
    engine->http_requests++;
    if (engine_fault(engine, FAULT_FREEZE_ALL) &&
        !str_equal(http_path(exchange), STR("/_fault"))) {
        park(engine, exchange);
        return;
    }
    Str path = http_path(exchange);
    unsigned method = method_bit(http_method(exchange));
    const Route *found = NULL;
    bool other_method = false;
    for (size_t i = 0; i < sizeof ROUTES / sizeof *ROUTES && !found; i++) {
        const Route *route = &ROUTES[i];
        if (!str_equal(path, str_from(route->path)) ||
            (route->level == ROUTE_FAULTS && !engine->settings->faults)) {
            continue;
        }
        found = route->methods & method ? route : NULL;
        other_method = true;
    }
    if (!allowed(engine, exchange, found ? found->level : ROUTE_NORMAL)) {
        count_error(engine, 401);
        http_reply(exchange, 401, "application/json", STR("{\"error\":\"Unauthorized\"}"), NULL);
    } else if (found) {
        found->run(engine, exchange);
    } else {
        reply_detail(engine, exchange, other_method ? 405 : 404,
                     other_method ? "Method Not Allowed" : "Not Found");
    }
}

void engine_on_gone(HttpExchange *exchange, void *user)
{
    Engine *engine = (Engine *)user;
    Owner *owner = (Owner *)http_get_user(exchange);
    for (int i = 0; i < engine->parked_count; i++) {
        if (engine->parked[i] == exchange) {
            engine->parked[i] = engine->parked[--engine->parked_count];
            return;
        }
    }
    if (!owner) {
        return;
    }
    switch (owner->kind) {
    case OWNER_CALL:
        call_gone((Call *)owner);
        break;
    case OWNER_TICKET:
        ticket_gone((Ticket *)owner);
        break;
    }
}
