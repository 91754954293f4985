/* What is sent to an engine. The guards here are measured ways to kill one (sglang-api 7 and 8):
 * an update with its default flush asserts when anything is queued, an unknown load_format or an
 * id outside the vocabulary ends the scheduler, so none of them can be written. */
#include "core/fleet/engine_routes.h"

#include "core/base/json.h"

#include <string.h>

static const EngineRoute routes[] = {
    [ENGINE_PAUSE] = {"POST", "/pause_generation", NULL, 60000, 64 << 10, true, true},
    [ENGINE_CONTINUE] = {"POST", "/continue_generation", NULL, 15000, 64 << 10, true, true},
    [ENGINE_FLUSH] = {"POST", "/flush_cache", NULL, 15000, 64 << 10, true, true},
    [ENGINE_UPDATE_DISK] = {"POST", "/update_weights_from_disk", NULL, 600000, 256 << 10, false,
                            true},
    [ENGINE_PULL] = {"POST", "/pull_weights", NULL, 600000, 256 << 10, false, true},
    [ENGINE_LOOK] = {"POST", "/weights_on_disk", NULL, 5000, 64 << 10, true, true},
    [ENGINE_ABORT] = {"POST", "/abort_request", NULL, 10000, 64 << 10, true, true},
    [ENGINE_MODEL_INFO] = {"GET", "/model_info", "/get_model_info", 5000, 1 << 20, true, false},
    [ENGINE_SERVER_INFO] = {"GET", "/server_info", "/get_server_info", 5000, 8 << 20, true, false},
    [ENGINE_CHECKSUM] = {"POST", "/weights_checker", NULL, 60000, 16 << 20, true, true},
    [ENGINE_SCORE] = {"POST", "/generate", NULL, 30000, 4 << 20, true, false},
    [ENGINE_HEALTH] = {"GET", "/health_generate", NULL, 22000, 64 << 10, true, false},
    [ENGINE_PING] = {"GET", "/ping", NULL, 2000, 64 << 10, true, false},
    [ENGINE_LOADS] = {"GET", "/v1/loads?include=core", "/get_load", 2000, 4 << 20, true, false},
    [ENGINE_METRICS] = {"GET", "/metrics", NULL, 5000, 8 << 20, true, false},
};

const EngineRoute *engine_route(EngineCallKind kind)
{
    return &routes[kind];
}

int64_t engine_call_timeout_ms(EngineCallKind kind)
{
    return routes[kind].timeout_ms;
}

const char *engine_call_key(EngineCallKind kind, const char *ordinary, const char *admin)
{
    return routes[kind].admin && admin ? admin : ordinary;
}

static Err write_pause(JsonOut *out, const EngineCall *call, Fault *fault)
{
    const char *mode = call->text ? call->text : "";
    if (strcmp(mode, "abort") != 0 && strcmp(mode, "retract") != 0
        && strcmp(mode, "in_place") != 0) {
        return fault_set(fault, ERR_ARG, "use abort, retract or in_place",
                         "\"%s\" is not a pause mode", mode);
    }
    json_member_string(out, "mode", mode);
    return ERR_OK;
}

static Err write_update(JsonOut *out, const EngineCall *call, Fault *fault)
{
    if (!call->text || !call->text[0] || call->version < 0) {
        return fault_set(fault, ERR_ARG, NULL, "a weight update needs a directory and a version");
    }
    char version[32];
    (void)str_format(version, sizeof version, "%lld", (long long)call->version);
    json_member_string(out, "model_path", call->text);
    json_member_string(out, "weight_version", version); /* a number is refused there */
    json_member_bool(out, "flush_cache", false);        /* the default asserts */
    json_member_bool(out, "abort_all_requests", false);
    return ERR_OK;
}

static Err write_pull(JsonOut *out, const EngineCall *call, Fault *fault)
{
    if (!call->text || !call->text[0] || !call->source || !call->source[0] || call->version < 0) {
        return fault_set(fault, ERR_ARG, NULL,
                         "a pull needs the engine's directory, a source and a version");
    }
    json_member_string(out, "local_checkpoint_dir", call->text);
    json_member_string(out, "source_dir", call->source);
    json_member_i64(out, "target_version", call->version);
    return ERR_OK;
}

static Err write_score(JsonOut *out, const EngineCall *call, Fault *fault)
{
    if (!call->ids || call->id_count < 2 || call->id_count > ENGINE_CANARY_MAX) {
        return fault_set(fault, ERR_ARG, NULL, "a canary needs 2 to %d token ids, not %d",
                         ENGINE_CANARY_MAX, call->id_count);
    }
    json_key(out, "input_ids");
    json_array_begin(out);
    for (int i = 0; i < call->id_count; i++) {
        if (call->ids[i] < 0 || (call->vocab > 0 && call->ids[i] >= call->vocab)) {
            return fault_set(fault, ERR_ARG, "use the checkpoint's own tokenizer",
                             "token id %d of the canary is outside the vocabulary of %d",
                             call->ids[i], call->vocab);
        }
        json_put_i64(out, call->ids[i]);
    }
    json_array_end(out);
    /* Greedy: with NaN weights it still answers, while sampling ends the engine; and its
     * log-probs are those of temperature 1. */
    json_key(out, "sampling_params");
    json_object_begin(out);
    json_member_i64(out, "max_new_tokens", 1);
    json_member_i64(out, "temperature", 0);
    json_object_end(out);
    json_member_bool(out, "return_logprob", true);
    json_member_i64(out, "logprob_start_len", 0);
    json_member_bool(out, "stream", false);
    if (call->own) {
        json_member_bool(out, "while_paused", true);
    }
    return ERR_OK;
}

Err engine_write_body(const EngineCall *call, Text *body, Fault *fault)
{
    JsonOut out;
    Err err = ERR_OK;
    switch (call->kind) {
    case ENGINE_FLUSH:
    case ENGINE_MODEL_INFO:
    case ENGINE_SERVER_INFO:
    case ENGINE_HEALTH:
    case ENGINE_PING:
    case ENGINE_LOADS:
    case ENGINE_METRICS:
        return ERR_OK;
    case ENGINE_PAUSE:
    case ENGINE_CONTINUE:
    case ENGINE_UPDATE_DISK:
    case ENGINE_PULL:
    case ENGINE_LOOK:
    case ENGINE_ABORT:
    case ENGINE_CHECKSUM:
    case ENGINE_SCORE:
        break;
    }
    json_begin(&out, body);
    json_object_begin(&out);
    if (call->kind == ENGINE_PAUSE) {
        err = write_pause(&out, call, fault);
    } else if (call->kind == ENGINE_UPDATE_DISK) {
        err = write_update(&out, call, fault);
    } else if (call->kind == ENGINE_LOOK) {
        json_member_string(&out, "model_path", call->text ? call->text : "");
    } else if (call->kind == ENGINE_PULL) {
        err = write_pull(&out, call, fault);
    } else if (call->kind == ENGINE_ABORT && call->text) {
        json_member_string(&out, "rid", call->text);
    } else if (call->kind == ENGINE_ABORT) {
        json_member_bool(&out, "abort_all", true);
    } else if (call->kind == ENGINE_CHECKSUM) {
        json_member_string(&out, "action", "checksum"); /* never reset_tensors */
    } else if (call->kind == ENGINE_SCORE) {
        err = write_score(&out, call, fault);
    }
    if (!err) {
        json_object_end(&out);
    }
    return err ? err : body->cut ? fault_set(fault, ERR_LIMIT, NULL, "the call's body is too long")
                                 : ERR_OK;
}
