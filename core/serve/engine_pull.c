/* /pull_weights, as slime's patched engines have it: the local checkpoint directory follows the
 * published versions, full or delta. Files only: an /update_weights_from_disk on that directory
 * loads them. It runs in libuv's thread pool; generation goes on. */
#include "core/base/mem.h"
#include "core/policy/delta.h"
#include "core/serve/engine_local.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct Pull {
    uv_work_t work;
    Engine *engine;
    Ticket *ticket;
    char *source, *local, *model;
    int64_t target, applied;
    Err err;
    Fault fault;
} Pull;

static void pull_free(Pull *pull)
{
    free(pull->source);
    free(pull->local);
    free(pull->model);
    free(pull);
}

static void pull_work(uv_work_t *work)
{
    Pull *pull = (Pull *)work->data;
    pull->err = delta_pull(pull->source, pull->model, pull->local, pull->target, &pull->applied,
                           &pull->fault);
}

static void reply_pull(HttpExchange *exchange, const Pull *pull)
{
    Text body;
    JsonOut json;
    char message[FAULT_TEXT_MAX + 64];
    if (pull->err == ERR_OK) {
        (void)str_format(message, sizeof message, "%s holds version %06lld", pull->local,
                         (long long)pull->applied);
    } else {
        (void)str_format(message, sizeof message, "%s", pull->fault.sentence);
    }
    reply_open(&body, &json, 8192);
    json_member_bool(&json, "success", pull->err == ERR_OK);
    json_member_string(&json, "message", message);
    reply_send(exchange, pull->err == ERR_OK ? 200 : 400, &body, &json);
}

static void pull_done(uv_work_t *work, int status)
{
    Pull *pull = (Pull *)work->data;
    pull->engine->loaders--;
    if (!pull->engine->stopped) { /* else the ticket went with the engine */
        if (status < 0) {
            pull->err = fault_set(&pull->fault, ERR_CANCELLED, NULL, "the pull was cancelled");
        }
        if (pull->ticket->exchange) {
            reply_pull(pull->ticket->exchange, pull);
        }
        ticket_end(pull->ticket);
    }
    pull_free(pull);
}

void route_pull_weights(Engine *engine, HttpExchange *exchange)
{
    cJSON *body = body_object(engine, exchange);
    if (!body) {
        return;
    }
    const char *source = json_string(body, "source_dir", "");
    const char *local = json_string(body, "local_checkpoint_dir", "");
    int64_t target = json_i64(body, "target_version", -1);
    const char *model = engine->settings->model_path;
    if (!source[0] || !local[0] || target < 0) {
        reply_error_object(engine, exchange, 400, "Bad Request",
                           "1 validation error: body wants local_checkpoint_dir, source_dir and "
                           "target_version");
    } else {
        Pull *pull = xcalloc(1, sizeof *pull);
        *pull = (Pull){.engine = engine, .source = xstrdup(source), .local = xstrdup(local),
                       .model = xstrdup(model ? model : ""), .target = target};
        pull->work.data = pull;
        pull->ticket = ticket_new(engine, exchange, TICKET_PULL);
        engine->loaders++;
        if (uv_queue_work(engine->loop, &pull->work, pull_work, pull_done) < 0) {
            pull->err = fault_set(&pull->fault, ERR_MEMORY, NULL, "cannot start the pull");
            engine->loaders--;
            reply_pull(exchange, pull);
            ticket_end(pull->ticket);
            pull_free(pull);
        }
    }
    cJSON_Delete(body);
}

/* Does this engine see a directory that it is to load from? Names only; nothing is opened. Not one
 * of SGLang's routes: there it is 404, and the question stays open. "No" is a good answer, so its
 * status is 200: whatever stands between may say 400 for reasons of its own. */
void route_weights_on_disk(Engine *engine, HttpExchange *exchange)
{
    cJSON *asked = body_object(engine, exchange);
    if (!asked) {
        return;
    }
    const char *path = json_string(asked, "model_path", "");
    DIR *dir = path[0] ? opendir(path) : NULL;
    int why = errno;
    int files = 0;
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        files += entry->d_name[0] != '.';
    }
    char message[320];
    if (files > 0) {
        (void)str_format(message, sizeof message, "%d files in %.200s", files, path);
    } else {
        (void)str_format(message, sizeof message, "%.200s: %s", path,
                         dir ? "it is empty" : strerror(why));
    }
    Text body;
    JsonOut json;
    reply_open(&body, &json, 8192);
    json_member_bool(&json, "success", files > 0);
    json_member_string(&json, "message", message);
    reply_send(exchange, 200, &body, &json);
    if (dir) {
        closedir(dir);
    }
    cJSON_Delete(asked);
}
