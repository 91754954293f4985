#include "core/base/json.h"

#include "core/base/utf8.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What cJSON would take without a word: deep nesting is counted here, and \u0000 would cut a C
 * string, so both are refused before it is called. Strings are skipped, brackets counted. */
static Err scan_bounds(Str body, const char *what, Fault *fault)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < body.n; i++) {
        char c = body.p[i];
        if (in_string) {
            if (c == '\\' && i + 1 < body.n) {
                if (body.n - i >= 6 && memcmp(body.p + i, "\\u0000", 6) == 0) {
                    return fault_set(fault, ERR_FORMAT, NULL, "%s: a string holds U+0000", what);
                }
                i++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > JSON_DEPTH_MAX) {
                return fault_set(fault, ERR_LIMIT, NULL, "%s: JSON nested deeper than %d", what,
                                 JSON_DEPTH_MAX);
            }
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == '\0') {
            return fault_set(fault, ERR_FORMAT, NULL, "%s: a zero byte at offset %zu", what, i);
        }
    }
    return ERR_OK;
}

Err json_parse(Str body, size_t max_bytes, const char *what, cJSON **out, Fault *fault)
{
    *out = NULL;
    if (body.n > max_bytes) {
        return fault_set(fault, ERR_LIMIT, NULL, "%s: %zu bytes of JSON, at most %zu are read",
                         what, body.n, max_bytes);
    }
    Err err = scan_bounds(body, what, fault);
    if (err != ERR_OK) {
        return err;
    }
    Str trimmed = str_trim(body);
    const char *end = NULL;
    cJSON *tree = trimmed.n ? cJSON_ParseWithLengthOpts(trimmed.p, trimmed.n, &end, false) : NULL;
    size_t at = end && trimmed.p ? (size_t)(end - body.p) : 0;
    if (!tree) {
        return fault_set(fault, ERR_FORMAT, NULL, "%s: not JSON at byte %zu", what, at);
    }
    if (end != trimmed.p + trimmed.n) {
        cJSON_Delete(tree);
        return fault_set(fault, ERR_FORMAT, NULL, "%s: text behind the JSON value at byte %zu",
                         what, at);
    }
    *out = tree;
    return ERR_OK;
}

const cJSON *json_get(const cJSON *object, const char *key)
{
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}

bool json_bool(const cJSON *object, const char *key, bool fallback)
{
    const cJSON *item = json_get(object, key);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : fallback;
}

double json_double(const cJSON *object, const char *key, double fallback)
{
    const cJSON *item = json_get(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : fallback;
}

int64_t json_i64(const cJSON *object, const char *key, int64_t fallback)
{
    const cJSON *item = json_get(object, key);
    if (!cJSON_IsNumber(item) || fabs(item->valuedouble) > 0x1p53 ||
        item->valuedouble != floor(item->valuedouble)) {
        return fallback;
    }
    return (int64_t)item->valuedouble;
}

const char *json_string(const cJSON *object, const char *key, const char *fallback)
{
    const cJSON *item = json_get(object, key);
    return cJSON_IsString(item) ? item->valuestring : fallback;
}

/* ---- writer ------------------------------------------------------------------------------- */

void json_begin(JsonOut *out, Text *text)
{
    memset(out, 0, sizeof *out);
    out->text = text;
}

static void separate(JsonOut *out)
{
    if (out->after_key) {
        out->after_key = false;
        return;
    }
    if (out->comma[out->depth]) {
        text_add_char(out->text, ',');
    }
    out->comma[out->depth] = true;
}

static void enter(JsonOut *out, char c)
{
    separate(out);
    text_add_char(out->text, c);
    out->depth++;
    assert(out->depth < JSON_OUT_DEPTH_MAX);
    out->comma[out->depth] = false;
}

static void leave(JsonOut *out, char c)
{
    assert(out->depth > 0 && !out->after_key);
    out->depth--;
    text_add_char(out->text, c);
}

void json_object_begin(JsonOut *out)
{
    enter(out, '{');
}

void json_object_end(JsonOut *out)
{
    leave(out, '}');
}

void json_array_begin(JsonOut *out)
{
    enter(out, '[');
}

void json_array_end(JsonOut *out)
{
    leave(out, ']');
}

static void put_quoted(Text *text, Str s)
{
    text_add_char(text, '"');
    size_t start = 0;
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            i++;
            continue;
        }
        uint32_t code = c;
        bool partial = false;
        size_t step = c < 0x80 ? 1 : utf8_decode(s.p + i, s.n - i, &code, &partial);
        if (code >= 0xa0 && code != 0xfffd) { /* DEL and C1 are commands to a terminal */
            i += step;
            continue;
        }
        text_add(text, s.p + start, i - start);
        i += step;
        start = i;
        switch (code) {
        case '"': text_add_c(text, "\\\""); break;
        case '\\': text_add_c(text, "\\\\"); break;
        case '\n': text_add_c(text, "\\n"); break;
        case '\r': text_add_c(text, "\\r"); break;
        case '\t': text_add_c(text, "\\t"); break;
        case 0xfffd: text_add(text, "\xef\xbf\xbd", 3); break;
        default: text_addf(text, "\\u%04x", code); break;
        }
    }
    text_add(text, s.p + start, s.n - start);
    text_add_char(text, '"');
}

void json_key(JsonOut *out, const char *key)
{
    assert(!out->after_key);
    separate(out);
    put_quoted(out->text, str_from(key));
    text_add_char(out->text, ':');
    out->after_key = true;
}

void json_put_str(JsonOut *out, Str s)
{
    separate(out);
    put_quoted(out->text, s);
}

void json_put_string(JsonOut *out, const char *s)
{
    if (s) {
        json_put_str(out, str_from(s));
    } else {
        json_put_null(out);
    }
}

void json_put_u64(JsonOut *out, uint64_t v)
{
    separate(out);
    char digits[24];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    text_add(out->text, digits + at, sizeof digits - at);
}

void json_put_i64(JsonOut *out, int64_t v)
{
    if (v >= 0) {
        json_put_u64(out, (uint64_t)v);
        return;
    }
    separate(out);
    text_add_char(out->text, '-');
    out->after_key = true; /* the digits follow without a separator of their own */
    json_put_u64(out, 0u - (uint64_t)v);
}

/* Shortest of 'low' … 'high' significant digits that reads back as the same number. The decimal
 * point of the C locale is guaranteed by replacing what LC_NUMERIC may have put. */
static void put_shortest(Text *text, double v, int low, int high, bool is_float)
{
    char buffer[40];
    for (int digits = low; digits <= high; digits++) {
        snprintf(buffer, sizeof buffer, "%.*g", digits, v);
        double back = strtod(buffer, NULL);
        if (digits == high || (is_float ? (float)back == (float)v : back == v)) {
            break;
        }
    }
    for (char *c = buffer; *c; c++) {
        if (*c == ',') {
            *c = '.';
        }
    }
    text_add_c(text, buffer);
}

void json_put_double(JsonOut *out, double v)
{
    if (!isfinite(v)) {
        json_put_null(out);
        return;
    }
    separate(out);
    if (v == floor(v) && fabs(v) < 1e15) {
        text_addf(out->text, "%.0f", v);
    } else {
        put_shortest(out->text, v, 15, 17, false);
    }
}

/* Fixed-point for the range of log-probs (a multiply and integer digits), which costs a tenth of
 * printf: 9 significant decimals always read back as the same float. */
static bool put_float_fast(Text *text, float v)
{
    double magnitude = fabs((double)v);
    if (magnitude >= 1000.0 || magnitude < 1e-3) {
        return false;
    }
    int decimals = magnitude >= 100.0 ? 6 : magnitude >= 10.0 ? 7 : magnitude >= 1.0 ? 8 : 11;
    static const double scale[] = {1e6, 1e7, 1e8, 1e9, 1e10, 1e11};
    uint64_t fixed = (uint64_t)(magnitude * scale[decimals - 6] + 0.5);
    char digits[24];
    size_t at = sizeof digits;
    int produced = 0;
    bool seen = false;
    while (produced < decimals) {
        char d = (char)('0' + fixed % 10);
        fixed /= 10;
        produced++;
        if (d != '0' || seen) {
            digits[--at] = d;
            seen = true;
        }
    }
    if (seen) {
        digits[--at] = '.';
    }
    do {
        digits[--at] = (char)('0' + fixed % 10);
        fixed /= 10;
    } while (fixed);
    if (v < 0) {
        digits[--at] = '-';
    }
    return text_add(text, digits + at, sizeof digits - at);
}

void json_put_float(JsonOut *out, float v)
{
    if (!isfinite(v)) {
        json_put_null(out);
        return;
    }
    separate(out);
    if (v == 0.0f) {
        text_add_char(out->text, '0');
    } else if (!put_float_fast(out->text, v)) {
        put_shortest(out->text, (double)v, 6, 9, true);
    }
}

void json_put_bool(JsonOut *out, bool v)
{
    separate(out);
    text_add_c(out->text, v ? "true" : "false");
}

void json_put_null(JsonOut *out)
{
    separate(out);
    text_add_c(out->text, "null");
}

void json_put_raw(JsonOut *out, Str json)
{
    separate(out);
    text_add_str(out->text, json);
}

void json_member_string(JsonOut *out, const char *key, const char *s)
{
    json_key(out, key);
    json_put_string(out, s);
}

void json_member_str(JsonOut *out, const char *key, Str s)
{
    json_key(out, key);
    json_put_str(out, s);
}

void json_member_i64(JsonOut *out, const char *key, int64_t v)
{
    json_key(out, key);
    json_put_i64(out, v);
}

void json_member_double(JsonOut *out, const char *key, double v)
{
    json_key(out, key);
    json_put_double(out, v);
}

void json_member_bool(JsonOut *out, const char *key, bool v)
{
    json_key(out, key);
    json_put_bool(out, v);
}
