/* Flow control and health: calls that wait for the core's word, or for a time. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/serve/engine_local.h"

#include <stdlib.h>
#include <string.h>

enum { FLUSH_AGAIN_US = 2000 }; /* a fleet waits for it with its gate closed */

static const char FLUSHED[] =
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or "
    "waiting requests, the operation will not be performed.)\n";

/* ---- tickets -------------------------------------------------------------------------------- */

Ticket *ticket_new(Engine *engine, HttpExchange *exchange, TicketKind kind)
{
    Ticket *ticket = xcalloc(1, sizeof *ticket);
    ticket->owner.kind = OWNER_TICKET;
    ticket->kind = kind;
    ticket->engine = engine;
    ticket->exchange = exchange;
    ticket->next = engine->tickets;
    engine->tickets = ticket;
    http_set_user(exchange, ticket);
    return ticket;
}

void ticket_end(Ticket *ticket)
{
    Ticket **at = &ticket->engine->tickets;
    while (*at != ticket) {
        at = &(*at)->next;
    }
    *at = ticket->next;
    free(ticket->version);
    free(ticket);
}

void ticket_gone(Ticket *ticket)
{
    ticket->exchange = NULL;
    bool goes_on = ticket->at_core || ticket->kind == TICKET_UPDATE ||
                   ticket->kind == TICKET_PULL || ticket->kind == TICKET_ABORT;
    if (!goes_on) {
        ticket_end(ticket);
    }
}

static void tickets_due(Engine *engine, int64_t now_us);

void control_send(Ticket *ticket, CoreCommand command)
{
    command.ticket = ticket;
    ticket->at_core = true;
    if (!runner_send(ticket->engine->runner, &command)) {
        if (ticket->exchange) {
            reply_error_object(ticket->engine, ticket->exchange, 503, "503",
                               "the engine's command queue is full");
        }
        weights_unref(command.weights);
        free(command.text);
        free(command.version);
        ticket_end(ticket);
    }
}

static void on_engine_timer(uv_timer_t *timer)
{
    Engine *engine = (Engine *)timer->data;
    tickets_due(engine, clock_mono_us());
    if (!engine->stopped) {
        engine_faults_changed(engine); /* arms the timer again */
    }
}

void engine_timer_arm(Engine *engine)
{
    int64_t now = clock_mono_us();
    int64_t next = engine->settings->faults ? faults_next_change_us(&engine->faults, now) : 0;
    for (const Ticket *ticket = engine->tickets; ticket; ticket = ticket->next) {
        if (ticket->due_us > 0 && (next == 0 || ticket->due_us < next)) {
            next = ticket->due_us;
        }
    }
    if (next == 0 || engine->stopped) {
        uv_timer_stop(&engine->timer);
    } else {
        int64_t wait = next > now ? (next - now) / 1000 + 1 : 0;
        uv_timer_start(&engine->timer, on_engine_timer, (uint64_t)wait, 0);
    }
}

static void ticket_due(Ticket *ticket)
{
    Engine *engine = ticket->engine;
    ticket->due_us = 0;
    switch (ticket->kind) {
    case TICKET_FLUSH:
        control_send(ticket, (CoreCommand){.kind = CORE_FLUSH});
        break;
    case TICKET_UPDATE:
        update_due(ticket);
        break;
    case TICKET_ABORT: {
        const Sample *sample = ticket->version ? engine_find_rid(engine, ticket->version) : NULL;
        if (sample || !ticket->version) {
            engine_abort(engine, sample ? sample->request->id : 0);
        }
        if (ticket->exchange) {
            reply_empty(ticket->exchange, 200);
        }
        ticket_end(ticket);
        break;
    }
    case TICKET_PING: /* 20 s without a word from the core */
        if (ticket->exchange) {
            reply_empty(ticket->exchange, 503);
        }
        ticket->exchange = NULL;
        if (!ticket->at_core) {
            ticket_end(ticket);
        }
        break;
    case TICKET_LATER:
        reply_empty(ticket->exchange, ticket->status);
        ticket_end(ticket);
        break;
    case TICKET_PAUSE:
    case TICKET_CONTINUE:
    case TICKET_VERSION:
    case TICKET_PULL:
    case TICKET_MEMORY:
    case TICKET_NEVER:
        break;
    }
}

static void tickets_due(Engine *engine, int64_t now_us)
{
    Ticket *next = NULL;
    for (Ticket *ticket = engine->tickets; ticket; ticket = next) {
        next = ticket->next;
        if (ticket->due_us > 0 && ticket->due_us <= now_us) {
            ticket_due(ticket);
        }
    }
}

void health_answer_all(Engine *engine)
{
    Ticket *next = NULL;
    for (Ticket *ticket = engine->tickets; ticket; ticket = next) {
        next = ticket->next;
        if (ticket->kind == TICKET_PING && !ticket->at_core) {
            reply_empty(ticket->exchange, 200);
            ticket_end(ticket);
        }
    }
}

/* ---- acknowledgements ----------------------------------------------------------------------- */

/* With rolltop's own "paused": upstream says nowhere whether an engine stands still. */
static void reply_continued(const Engine *engine, HttpExchange *exchange)
{
    const bool paused = engine->pause != PAUSE_NONE;
    const Str json = paused ? STR("{\"message\":\"Generation continued successfully.\","
                                  "\"status\":\"ok\",\"paused\":true}")
                            : STR("{\"message\":\"Generation continued successfully.\","
                                  "\"status\":\"ok\",\"paused\":false}");
    if (exchange) {
        http_reply(exchange, 200, "application/json", json, NULL);
    }
}

static void reply_message(HttpExchange *exchange, const char *json)
{
    if (exchange) {
        http_reply(exchange, 200, "application/json", str_from(json), NULL);
    }
}

static void version_acknowledged(Ticket *ticket)
{
    engine_set_version(ticket->engine, ticket->version);
    if (!ticket->exchange) {
        return;
    }
    Text body;
    JsonOut json;
    reply_open(&body, &json, 4096);
    json_member_bool(&json, "success", true);
    char *message = xasprintf("Weight version updated to %s", ticket->version);
    json_member_string(&json, "message", message);
    free(message);
    json_member_string(&json, "new_version", ticket->version);
    reply_send(ticket->exchange, 200, &body, &json);
}

/* True while the ticket goes on: the flush is tried again. */
static bool flush_acknowledged(Ticket *ticket, bool ok)
{
    int64_t now = clock_mono_us();
    if (!ok && ticket->until_us > now && ticket->exchange) {
        ticket->due_us = now + FLUSH_AGAIN_US;
        engine_timer_arm(ticket->engine);
        return true;
    }
    if (ticket->exchange) {
        Str text = ok ? str_from(FLUSHED)
                      : ticket->until_us > 0 ? STR("Timed out waiting for idle state.\n")
                                             : STR("Flush cache failed.\n");
        http_reply(ticket->exchange, ok ? 200 : 400, NULL, text, NULL);
    }
    return false;
}

void control_acknowledged(Engine *engine, const CoreEvent *event)
{
    Ticket *ticket = (Ticket *)event->user;
    ticket->at_core = false;
    switch (ticket->kind) {
    case TICKET_PAUSE:
        engine->pause = ticket->mode;
        reply_message(ticket->exchange, "{\"message\":\"Generation paused successfully.\","
                                        "\"status\":\"ok\"}");
        break;
    case TICKET_CONTINUE:
        engine->pause = PAUSE_NONE;
        reply_continued(engine, ticket->exchange);
        break;
    case TICKET_FLUSH:
        if (flush_acknowledged(ticket, event->ok)) {
            return;
        }
        break;
    case TICKET_MEMORY:
        if (event->ok) {
            reply_message(ticket->exchange, "null");
        } else if (ticket->exchange) {
            reply_error(engine, ticket->exchange, 400, "refused: requests are running or queued; "
                        "pause with mode abort first");
        }
        break;
    case TICKET_VERSION:
        version_acknowledged(ticket);
        break;
    case TICKET_UPDATE:
        update_acknowledged(ticket, event->ok, event->text);
        break;
    case TICKET_PING:
        if (ticket->exchange) {
            reply_empty(ticket->exchange, 200);
        }
        break;
    case TICKET_PULL:
    case TICKET_ABORT:
    case TICKET_LATER:
    case TICKET_NEVER:
        break;
    }
    ticket_end(ticket);
}

/* ---- routes --------------------------------------------------------------------------------- */

void route_pause(Engine *engine, HttpExchange *exchange)
{
    cJSON *body = body_object(engine, exchange);
    if (!body) {
        return;
    }
    const cJSON *item = json_get(body, "mode");
    const char *mode = item ? json_string(body, "mode", "") : "abort";
    PauseMode wanted = strcmp(mode, "abort") == 0      ? PAUSE_ABORT
                       : strcmp(mode, "retract") == 0  ? PAUSE_RETRACT
                       : strcmp(mode, "in_place") == 0 ? PAUSE_IN_PLACE : PAUSE_NONE;
    if (wanted == PAUSE_NONE) {
        reply_error_object(engine, exchange, 400, "Bad Request", "1 validation error: body.mode: "
                           "Input should be 'abort', 'retract' or 'in_place'");
    } else {
        Ticket *ticket = ticket_new(engine, exchange, TICKET_PAUSE);
        ticket->mode = wanted;
        control_send(ticket, (CoreCommand){.kind = CORE_PAUSE, .mode = wanted});
    }
    cJSON_Delete(body);
}

void route_continue(Engine *engine, HttpExchange *exchange)
{
    cJSON *body = body_object(engine, exchange);
    if (!body) {
        return;
    }
    cJSON_Delete(body);
    if (engine_fault(engine, FAULT_STAY_PAUSED)) {
        reply_continued(engine, exchange);
        return;
    }
    control_send(ticket_new(engine, exchange, TICKET_CONTINUE),
                 (CoreCommand){.kind = CORE_CONTINUE});
}

void route_abort(Engine *engine, HttpExchange *exchange)
{
    cJSON *body = body_object(engine, exchange);
    if (!body) {
        return;
    }
    const FaultItem *fault = engine_fault(engine, FAULT_ABORT);
    const char *mode = fault ? fault->text : "";
    const char *rid = json_string(body, "rid", "");
    bool all = json_bool(body, "abort_all", false);
    engine->aborted++;
    if (strcmp(mode, "404") == 0) {
        http_reply(exchange, 404, "application/json", STR("{\"detail\":\"Not Found\"}"), NULL);
    } else if (strcmp(mode, "slow") == 0) {
        Ticket *ticket = ticket_new(engine, exchange, TICKET_ABORT);
        ticket->version = all ? NULL : xstrdup(rid);
        ticket->due_us = clock_mono_us() + (int64_t)(fault->seconds * 1e6);
        engine_timer_arm(engine);
    } else {
        /* Exact match, also of what waits at the pause gate: upstream matches prefixes and loses
         * the gated ones. */
        const Sample *sample = all || !rid[0] ? NULL : engine_find_rid(engine, rid);
        if ((all || sample) && strcmp(mode, "ignored") != 0) {
            engine_abort(engine, all ? 0 : sample->request->id);
        }
        reply_empty(exchange, 200);
    }
    cJSON_Delete(body);
}

void route_flush(Engine *engine, HttpExchange *exchange)
{
    const FaultItem *fault = engine_fault(engine, FAULT_FLUSH);
    if (fault && strcmp(fault->text, "400") == 0) {
        http_reply(exchange, 400, NULL, STR("Flush cache failed.\n"), NULL);
        return;
    }
    if (fault && strcmp(fault->text, "hang") == 0) {
        (void)ticket_new(engine, exchange, TICKET_NEVER);
        return;
    }
    Text value;
    text_init(&value, 64);
    double timeout = 0;
    bool given = http_query_get(exchange, "timeout", &value);
    bool good = !given || (str_to_double(text_str(&value), &timeout) && timeout >= 0);
    text_free(&value);
    if (!good) {
        reply_error_object(engine, exchange, 400, "Bad Request",
                           "1 validation error: query.timeout: Input should be seconds >= 0");
        return;
    }
    Ticket *ticket = ticket_new(engine, exchange, TICKET_FLUSH);
    timeout = timeout < 3600 ? timeout : 3600;
    ticket->until_us = timeout > 0 ? clock_mono_us() + (int64_t)(timeout * 1e6) : 0;
    control_send(ticket, (CoreCommand){.kind = CORE_FLUSH});
}

void engine_set_version(Engine *engine, const char *version)
{
    char *copy = xstrdup(version);
    free(engine->version);
    engine->version = copy;
}

void route_set_version(Engine *engine, HttpExchange *exchange)
{
    cJSON *body = body_object(engine, exchange);
    if (!body) {
        return;
    }
    const char *version = json_string(body, "new_version", NULL);
    if (!version || strlen(version) >= CORE_NAME_MAX) {
        reply_error_object(engine, exchange, 400, "Bad Request", "1 validation error: "
                           "body.new_version: Input should be a string of at most 255 bytes");
    } else {
        if (json_bool(body, "abort_all_requests", true)) {
            engine_abort(engine, 0);
        }
        Ticket *ticket = ticket_new(engine, exchange, TICKET_VERSION);
        ticket->version = xstrdup(version);
        control_send(ticket, (CoreCommand){.kind = CORE_SET_VERSION,
                                           .version = xstrdup(version)});
    }
    cJSON_Delete(body);
}

static bool health_by_fault(Engine *engine, HttpExchange *exchange)
{
    const FaultItem *fault = engine_fault(engine, FAULT_HEALTH);
    if (!fault) {
        return false;
    }
    Ticket *ticket = ticket_new(engine, exchange, TICKET_LATER);
    ticket->status = fault->number >= 200 && fault->number < 600 ? (int)fault->number : 503;
    ticket->due_us = clock_mono_us() + (int64_t)(fault->seconds * 1e6);
    engine_timer_arm(engine);
    return true;
}

/* The HTTP process only, at once; /health_generate is the one that proves that tokens come. */
void route_health(Engine *engine, HttpExchange *exchange)
{
    if (!health_by_fault(engine, exchange)) {
        reply_empty(exchange, 200);
    }
}

/* 200 as soon as anything comes from the core: of running requests, or of a hidden one-token
 * request. While paused the core is only asked whether it is there. 503 after 20 s. */
void route_health_generate(Engine *engine, HttpExchange *exchange)
{
    if (health_by_fault(engine, exchange)) {
        return;
    }
    Ticket *ticket = ticket_new(engine, exchange, TICKET_PING);
    ticket->due_us = clock_mono_us() + (int64_t)ENGINE_HEALTH_MS * 1000;
    engine_timer_arm(engine);
    if (engine->pause != PAUSE_NONE) {
        control_send(ticket, (CoreCommand){.kind = CORE_PING});
        return;
    }
    int32_t *tokens = xcalloc(1, sizeof *tokens);
    EngineRequest *request = request_new(tokens, 1);
    request->max_new = 1;
    request->is_health = true;
    request->params.temperature = 0.0f;
    Call *call = call_new(engine, 1);
    call->samples[0]->request = request;
    call->samples[0]->rid = xasprintf("HEALTH_CHECK_%llu", (unsigned long long)engine->next_id);
    if (engine_submit_call(engine, call, NULL)) {
        call->samples[0]->call = NULL; /* an orphan from the start: only its event counts */
        call->samples[0] = NULL;
    }
    call_free(call);
}

void route_no_collective(Engine *engine, HttpExchange *exchange)
{
    (void)engine;
    bool destroy = str_equal(http_path(exchange), STR("/destroy_weights_update_group"));
    Str body = destroy ? STR("{\"success\":false,\"message\":\"The group to be destroyed does not "
                             "exist.\"}")
                       : STR("{\"success\":false,\"message\":\"This engine takes weights from disk "
                             "only: use /update_weights_from_disk.\"}");
    http_reply(exchange, 400, "application/json", body, NULL);
}

void route_memory(Engine *engine, HttpExchange *exchange)
{
    cJSON *body = body_object(engine, exchange);
    if (!body) {
        return;
    }
    cJSON_Delete(body);
    if (str_equal(http_path(exchange), STR("/resume_memory_occupation"))) {
        reply_message(exchange, "null");
        return;
    }
    control_send(ticket_new(engine, exchange, TICKET_MEMORY), (CoreCommand){.kind = CORE_FLUSH});
}

void route_profile(Engine *engine, HttpExchange *exchange)
{
    (void)engine;
    bool start = str_equal(http_path(exchange), STR("/start_profile"));
    http_reply(exchange, 200, NULL, start ? STR("Start profiling.\n")
                                          : STR("Stop profiling. This will take some time.\n"),
               NULL);
}
