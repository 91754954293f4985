/* Checks of a /generate body, in Dynamo 1.6.1's order and words (dynamo-api 5.3, captures). The
 * body itself goes to the engine as it came: the engine validates what it alone knows. */
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/serve/frontend_local.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool flat(FrontendCheck *check, const char *message)
{
    check->status = 400;
    JsonOut json;
    json_begin(&json, &check->json);
    json_object_begin(&json);
    json_member_string(&json, "object", "error");
    json_member_string(&json, "message", message);
    json_member_string(&json, "type", "Bad Request");
    json_key(&json, "param");
    json_put_null(&json);
    json_member_i64(&json, "code", 400);
    json_object_end(&json);
    return false;
}

static bool wrapped(FrontendCheck *check, int status, const char *message)
{
    check->status = status;
    JsonOut json;
    json_begin(&json, &check->json);
    json_object_begin(&json);
    json_key(&json, "error");
    json_object_begin(&json);
    json_member_string(&json, "message", message);
    json_object_end(&json);
    json_object_end(&json);
    return false;
}

static const char *type_name(const cJSON *item)
{
    return cJSON_IsArray(item)    ? "sequence"
           : cJSON_IsObject(item) ? "map"
           : cJSON_IsString(item) ? "string"
           : cJSON_IsBool(item)   ? "boolean"
           : cJSON_IsNull(item)   ? "null" : "floating point";
}

static bool ill_typed(FrontendCheck *check, const char *member, int index, const char *got,
                      const char *wanted)
{
    char text[256];
    char place[32] = "";
    if (index >= 0) {
        (void)str_format(place, sizeof place, "[%d]", index);
    }
    (void)str_format(text, sizeof text, "Failed to deserialize the JSON body into the target type: "
                     "%s%s: invalid type: %s, expected %s", member, place, got, wanted);
    return flat(check, text);
}

/* Row 1: types of the members that the frontend reads. */
static bool check_types(const cJSON *body, size_t length, FrontendCheck *check)
{
    char text[256];
    const cJSON *ids = json_get(body, "input_ids");
    if (!cJSON_IsObject(body)) {
        return ill_typed(check, "?", -1, type_name(body), "struct SglangGenerateRequest");
    }
    if (!ids) {
        (void)str_format(text, sizeof text, "Failed to deserialize the JSON body into the target "
                         "type: missing field `input_ids` at line 1 column %zu", length);
        return flat(check, text);
    }
    if (!cJSON_IsArray(ids)) {
        return ill_typed(check, "input_ids", -1, type_name(ids), "a sequence");
    }
    int index = 0;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, ids)
    {
        bool whole = cJSON_IsNumber(item) && item->valuedouble == floor(item->valuedouble);
        if (!whole || item->valuedouble < 0 || item->valuedouble > 4294967295.0) {
            return ill_typed(check, "input_ids", index, whole ? "integer out of range"
                                                              : type_name(item), "u32");
        }
        index++;
    }
    const cJSON *stream = json_get(body, "stream");
    if (stream && !cJSON_IsBool(stream)) {
        return ill_typed(check, "stream", -1, type_name(stream), "a boolean");
    }
    const cJSON *rid = json_get(body, "rid");
    if (rid && !cJSON_IsString(rid) && !cJSON_IsNull(rid)) {
        return ill_typed(check, "rid", -1, type_name(rid), "a string");
    }
    return true;
}

/* Rows 3 and 4. */
static bool check_values(const cJSON *body, FrontendCheck *check)
{
    static const char *const forbidden[] = {
        "bootstrap_info", "bootstrap_host", "bootstrap_port", "bootstrap_room",
        "bootstrap_pair_key", "data_parallel_rank", "decode_tp_size", "disaggregated_params",
        "disagg_prefill_dp_rank", "routed_dp_rank", "external_trace_header", "received_time"};
    char text[160];
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        if (json_get(body, forbidden[i])) {
            (void)str_format(text, sizeof text, "`%s` is internal Dynamo routing state and cannot "
                             "be set by clients", forbidden[i]);
            return wrapped(check, 400, text);
        }
    }
    if (cJSON_GetArraySize(json_get(body, "input_ids")) == 0) {
        return wrapped(check, 400, "input_ids cannot be empty.");
    }
    const cJSON *params = json_get(body, "sampling_params");
    static const char *const whole[] = {"n", "max_new_tokens", "min_new_tokens"};
    for (size_t i = 0; i < 3; i++) {
        const cJSON *item = json_get(params, whole[i]);
        if (item && !cJSON_IsNull(item) && (!cJSON_IsNumber(item) || item->valuedouble < 0 ||
                                            item->valuedouble != floor(item->valuedouble))) {
            (void)str_format(text, sizeof text, "sampling_params.%s: invalid type: %s, expected "
                             "u32", whole[i], type_name(item));
            return wrapped(check, 400, text);
        }
    }
    if (json_double(params, "n", 1) != 1) {
        return wrapped(check, 400, "sampling_params.n must be 1; parallel sampling is not "
                                   "supported.");
    }
    if (!json_bool(body, "stream", false)) {
        return wrapped(check, 501, "non-streaming SGLang generate requests are not implemented; "
                                   "set stream=true");
    }
    return true;
}

bool frontend_check_body(HttpExchange *exchange, FrontendCheck *check)
{
    Str raw = http_body(exchange);
    Str type = http_header(exchange, "content-type");
    Str essence = type;
    size_t at = 0;
    if (str_find(type, STR(";"), &at)) {
        essence = str_trim(str_slice(type, 0, at));
    }
    if (!str_equal_nocase(essence, STR("application/json"))) {
        return flat(check, "Expected request with `Content-Type: application/json`");
    }
    if (raw.n == 0) {
        return flat(check, "Failed to parse the request body as JSON: EOF while parsing a value at "
                           "line 1 column 0");
    }
    if (!utf8_valid(raw)) {
        return flat(check, "Failed to parse the request body as JSON: not valid UTF-8");
    }
    cJSON *body = NULL;
    Fault fault = {0};
    if (json_parse(raw, raw.n, "Failed to parse the request body as JSON", &body, &fault)) {
        return flat(check, fault.sentence);
    }
    bool good = check_types(body, raw.n, check) && check_values(body, check);
    const char *rid = json_string(body, "rid", NULL);
    check->rid = good && rid && rid[0] ? xstrdup(rid) : NULL;
    cJSON_Delete(body);
    return good;
}
