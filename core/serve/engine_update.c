/* /update_weights_from_disk and /weights_checker. The new weights are loaded and checked beside the
 * ones that serve, in libuv's thread pool; the core then swaps a pointer. Whatever fails before
 * that leaves old weights and old version in place. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/serve/engine_local.h"

#include <stdlib.h>
#include <string.h>

struct Loader {
    uv_work_t work;
    Engine *engine;
    Ticket *ticket;
    char *path, *version; /* version may be NULL: the old one stays */
    bool flush, partial;
    Weights *weights;
    char digest[DIGEST_TEXT];
    Err err;
    Fault fault;
    int64_t start_us;
};

static void loader_free(Loader *loader)
{
    if (loader) {
        weights_unref(loader->weights);
        free(loader->path);
        free(loader->version);
        free(loader);
    }
}

static void reply_update(Engine *engine, HttpExchange *exchange, bool success, const char *message)
{
    if (!exchange) {
        return;
    }
    Text body;
    JsonOut json;
    reply_open(&body, &json, 8192);
    json_member_bool(&json, "success", success);
    json_member_string(&json, "message", message);
    json_member_i64(&json, "num_paused_requests", 0);
    reply_send(exchange, success ? 200 : 400, &body, &json);
    (void)engine;
}

static void reply_success(Engine *engine, HttpExchange *exchange, const char *version)
{
    char *message = version ? xasprintf("Succeeded to update model weights. Weight version updated"
                                        " to %s.", version)
                            : xstrdup("Succeeded to update model weights.");
    reply_update(engine, exchange, true, message);
    free(message);
}

static void update_over(Ticket *ticket)
{
    Engine *engine = ticket->engine;
    engine->updating = false;
    engine->load_seconds = (double)(clock_mono_us() - ticket->loader->start_us) / 1e6;
    loader_free(ticket->loader);
    ticket->loader = NULL;
}

static void load_work(uv_work_t *work)
{
    Loader *loader = (Loader *)work->data;
    Engine *engine = loader->engine;
    if (engine->settings->synthetic) {
        loader->err = digest_of_dir(engine->cache, loader->path, loader->digest, &loader->fault);
    } else {
        loader->err = weights_load(loader->path, engine->settings->bf16 ? MODEL_BF16 : MODEL_F32,
                                   &loader->weights, &loader->fault);
    }
}

static void load_done(uv_work_t *work, int status)
{
    Loader *loader = (Loader *)work->data;
    Engine *engine = loader->engine;
    engine->loaders--;
    if (engine->stopped || status < 0) {
        loader_free(loader); /* the ticket went with the engine */
        return;
    }
    Ticket *ticket = loader->ticket;
    if (loader->err) {
        char *message = xasprintf("Failed to update weights: %s. The old weights stay.%s%s",
                                  loader->fault.sentence, loader->fault.hint[0] ? " Hint: " : "",
                                  loader->fault.hint);
        reply_update(engine, ticket->exchange, false, message);
        free(message);
        update_over(ticket);
        ticket_end(ticket);
        return;
    }
    control_send(ticket, (CoreCommand){
        .kind = CORE_SWAP, .weights = loader->weights ? weights_ref(loader->weights) : NULL,
        .text = engine->settings->synthetic ? xstrdup(loader->digest) : NULL,
        .version = loader->version && !loader->partial ? xstrdup(loader->version) : NULL,
        .flush = loader->flush, .garble = loader->partial});
}

static void load_start(Ticket *ticket)
{
    Loader *loader = ticket->loader;
    loader->work.data = loader;
    loader->engine->loaders++;
    if (uv_queue_work(ticket->engine->loop, &loader->work, load_work, load_done) < 0) {
        loader->engine->loaders--;
        reply_update(ticket->engine, ticket->exchange, false, "cannot start the loading thread");
        update_over(ticket);
        ticket_end(ticket);
    }
}

void update_due(Ticket *ticket)
{
    load_start(ticket);
}

void update_acknowledged(Ticket *ticket, bool ok, const char *why)
{
    Engine *engine = ticket->engine;
    Loader *loader = ticket->loader;
    if (ok) {
        if (loader->weights) {
            weights_unref(engine->weights);
            engine->weights = weights_ref(loader->weights);
        } else {
            free(engine->digest);
            engine->digest = xstrdup(loader->digest);
        }
        free(engine->model_path);
        engine->model_path = xstrdup(loader->path);
        if (loader->version && !loader->partial) {
            engine_set_version(engine, loader->version);
        }
    }
    if (ok && !loader->partial) {
        reply_success(engine, ticket->exchange, loader->version);
    } else {
        reply_update(engine, ticket->exchange, false, ok
            ? "Failed to update weights: injected fault. The full weights of the ModelRunner are "
              "partially updated. Please discard the whole weights." : why);
    }
    update_over(ticket);
}

/* Faults that answer without loading. True when it has. */
static bool update_by_fault(Engine *engine, HttpExchange *exchange, const char *version)
{
    const FaultItem *lie = engine_fault(engine, FAULT_VER_LIE);
    const FaultItem *update = engine_fault(engine, FAULT_UPDATE);
    const char *mode = update ? update->text : "";
    if (strcmp(mode, "hang") == 0) {
        (void)ticket_new(engine, exchange, TICKET_NEVER);
        return true;
    }
    if (strcmp(mode, "400") == 0) {
        reply_update(engine, exchange, false, "Failed to update weights: injected fault");
        return true;
    }
    if (lie) {
        const char *told = lie->text[0] ? lie->text : version;
        if (told) {
            CoreCommand command = {.kind = CORE_SET_VERSION, .version = xstrdup(told)};
            if (!runner_send(engine->runner, &command)) {
                free(command.version);
            }
            engine_set_version(engine, told);
        }
        reply_success(engine, exchange, told);
        return true;
    }
    return false;
}

void route_update_disk(Engine *engine, HttpExchange *exchange)
{
    cJSON *body = body_object(engine, exchange);
    if (!body) {
        return;
    }
    const char *path = json_string(body, "model_path", NULL);
    const cJSON *item = json_get(body, "weight_version");
    const char *version = json_string(body, "weight_version", NULL);
    const cJSON *format = json_get(body, "load_format");
    if (!path || !path[0]) {
        reply_error_object(engine, exchange, 400, "Bad Request",
                           "1 validation error: body.model_path: Field required");
    } else if ((item && !cJSON_IsNull(item) && !version) ||
               (version && strlen(version) >= CORE_NAME_MAX)) {
        reply_error_object(engine, exchange, 400, "Bad Request", "1 validation error: "
                           "body.weight_version: Input should be a string of at most 255 bytes");
    } else if (format && !cJSON_IsNull(format) &&
               strcmp(json_string(body, "load_format", ""), "auto") != 0) {
        reply_update(engine, exchange, false, "load_format must be null or \"auto\"");
    } else if (engine->updating) {
        reply_update(engine, exchange, false, "refused: another update is in progress");
    } else if (!update_by_fault(engine, exchange, version)) {
        Loader *loader = xcalloc(1, sizeof *loader);
        loader->engine = engine;
        loader->path = xstrdup(path);
        loader->version = version ? xstrdup(version) : NULL;
        loader->flush = json_bool(body, "flush_cache", true);
        loader->start_us = clock_mono_us();
        const FaultItem *fault = engine_fault(engine, FAULT_UPDATE);
        loader->partial = fault && strcmp(fault->text, "partial") == 0;
        Ticket *ticket = ticket_new(engine, exchange, TICKET_UPDATE);
        ticket->loader = loader;
        loader->ticket = ticket;
        engine->updating = true;
        if (json_bool(body, "abort_all_requests", false)) {
            engine_abort(engine, 0);
        }
        if (fault && strcmp(fault->text, "slow") == 0) {
            ticket->due_us = clock_mono_us() + (int64_t)(fault->seconds * 1e6);
            engine_timer_arm(engine);
        } else {
            load_start(ticket);
        }
    }
    cJSON_Delete(body);
}

static void add_checksums(Engine *engine, JsonOut *json)
{
    if (!engine->weights) {
        json_member_string(json, "policy", engine->digest);
        return;
    }
    const ModelConfig *config = weights_config(engine->weights);
    int count = model_tensor_count(config);
    for (int i = 0; i < count; i++) {
        ModelTensorSpec spec;
        model_tensor_spec(config, i, &spec);
        char hex[24];
        (void)str_format(hex, sizeof hex, "%016llx",
                         (unsigned long long)weights_tensor_hash(engine->weights, i));
        json_member_string(json, spec.name, hex);
    }
}

void route_weights_checker(Engine *engine, HttpExchange *exchange)
{
    cJSON *asked = NULL;
    if (http_body(exchange).n > 0 && !(asked = body_object(engine, exchange))) {
        return;
    }
    const char *action = json_string(asked, "action", "checksum");
    Text body;
    JsonOut json;
    reply_open(&body, &json, 16u << 20);
    bool good = strcmp(action, "checksum") == 0;
    json_member_bool(&json, "success", good);
    if (!good) { /* snapshot, compare and reset_tensors are test tools of upstream */
        char message[128];
        (void)str_format(message, sizeof message, "Unsupported action='%.64s'", action);
        json_member_string(&json, "message", message);
    } else {
        const char *digest = engine->weights ? weights_digest(engine->weights) : engine->digest;
        json_member_string(&json, "message", "Success.");
        json_key(&json, "ranks");
        json_array_begin(&json);
        json_object_begin(&json);
        json_key(&json, "checksums");
        json_object_begin(&json);
        add_checksums(engine, &json);
        json_object_end(&json);
        json_member_string(&json, "per_gpu_checksum", digest);
        json_key(&json, "parallelism_info");
        json_put_raw(&json, STR("{\"tp_rank\":0,\"tp_size\":1,\"dp_rank\":0,\"dp_size\":1,"
                                "\"pp_rank\":0,\"pp_size\":1,\"rank\":0,\"size\":1}"));
        json_object_end(&json);
        json_array_end(&json);
        json_member_string(&json, "per_engine_checksum", digest);
        json_member_string(&json, "weight_version", engine_version(engine)); /* rolltop's own */
    }
    reply_send(exchange, good ? 200 : 400, &body, &json);
    cJSON_Delete(asked);
}
