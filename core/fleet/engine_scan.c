#include "core/fleet/engine_scan.h"

#include "core/fleet/json_cursor.h"

#include <math.h>

static bool is_number(JsonCursor *c)
{
    char next = json_peek(c);
    return next == '-' || (next >= '0' && next <= '9');
}

/* A version is a string of digits at every known engine; "default" is none. */
static void read_version(JsonCursor *c, int64_t *version)
{
    Str raw;
    *version = -1;
    if (json_peek(c) == '"') {
        if (json_raw_string(c, &raw) && !str_to_i64(raw, version)) {
            *version = -1;
        }
    } else if (is_number(c)) {
        (void)json_integer(c, version);
    } else {
        (void)json_skip(c);
    }
    *version = *version < 0 ? -1 : *version;
}

static void read_string(JsonCursor *c, Str *raw)
{
    if (json_peek(c) != '"' || !json_raw_string(c, raw)) {
        *raw = (Str){NULL, 0};
        (void)json_skip(c);
    }
}

static void read_said(JsonCursor *c, Str key, EngineSaid *out)
{
    Str text;
    char next = json_peek(c);
    if (str_equal(key, STR("success"))) {
        out->yes = out->yes || next == 't';
        out->no = out->no || next == 'f';
        (void)json_skip(c);
    } else if (str_equal(key, STR("status"))) {
        read_string(c, &text);
        out->yes = out->yes || str_equal(text, STR("ok"));
        out->no = out->no || str_equal(text, STR("error"));
    } else if (str_equal(key, STR("paused"))) {
        out->known_paused = next == 't' || next == 'f';
        out->paused = next == 't';
        (void)json_skip(c);
    } else if (str_equal(key, STR("message"))) {
        read_string(c, &out->message);
    } else if (str_equal(key, STR("per_engine_checksum"))) {
        read_string(c, &out->checksum);
    } else if (str_equal(key, STR("weight_version"))) {
        read_version(c, &out->version);
    } else {
        (void)json_skip(c);
    }
}

bool engine_scan_said(Str body, EngineSaid *out)
{
    JsonCursor c = json_cursor(body);
    *out = (EngineSaid){.version = -1};
    if (json_peek(&c) == '{') {
        bool first = true;
        Str key;
        (void)json_enter(&c, '{');
        while (json_member(&c, &first, &key)) {
            read_said(&c, key, out);
        }
    } else {
        (void)json_skip(&c);
    }
    return json_at_end(&c);
}

/* [log-prob or null, id, text or null] */
static void read_triple(JsonCursor *c, const int32_t *ids, int id_count, float *logprobs,
                        EngineScored *out)
{
    const int at = out->count++;
    float logprob = NAN;
    int64_t id = -1;
    bool first = true;
    if (json_peek(c) != '[') {
        out->odd = true;
        (void)json_skip(c);
        return;
    }
    (void)json_enter(c, '[');
    for (int i = 0; json_element(c, &first); i++) {
        if (i == 0 && is_number(c)) {
            (void)json_float(c, &logprob);
        } else if (i == 1 && is_number(c)) {
            (void)json_integer(c, &id);
        } else {
            (void)json_skip(c);
        }
    }
    if (at >= ENGINE_CANARY_MAX || id < 0 || (ids && (at >= id_count || id != ids[at]))) {
        out->odd = true;
    } else if (at > 0) {
        out->not_finite = out->not_finite || !isfinite(logprob);
        logprobs[at - 1] = logprob;
    }
}

bool engine_scan_score(Str body, const int32_t *ids, int id_count, float *logprobs,
                       EngineScored *out)
{
    JsonCursor c = json_cursor(body);
    bool first = true;
    Str key;
    *out = (EngineScored){.version = -1};
    if (json_peek(&c) != '{') {
        (void)json_skip(&c);
        return json_at_end(&c);
    }
    (void)json_enter(&c, '{');
    while (json_member(&c, &first, &key)) {
        if (!str_equal(key, STR("meta_info")) || json_peek(&c) != '{') {
            (void)json_skip(&c);
            continue;
        }
        bool first_inside = true;
        (void)json_enter(&c, '{');
        while (json_member(&c, &first_inside, &key)) {
            bool first_triple = true;
            if (str_equal(key, STR("weight_version"))) {
                read_version(&c, &out->version);
            } else if (!str_equal(key, STR("input_token_logprobs")) || json_peek(&c) != '[') {
                (void)json_skip(&c);
            } else {
                out->odd = out->odd || out->found; /* said twice */
                out->found = true;
                (void)json_enter(&c, '[');
                while (json_element(&c, &first_triple)) {
                    read_triple(&c, ids, id_count, logprobs, out);
                }
            }
        }
    }
    return json_at_end(&c);
}
