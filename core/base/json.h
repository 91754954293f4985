/* JSON in (cJSON behind bounds) and out (a streaming writer into a Text).
 *
 * In: json_parse refuses what cJSON would take silently: trailing bytes, nesting over
 * JSON_DEPTH_MAX, NUL escapes in strings that C code would cut, and bodies over the caller's
 * limit. Numbers are doubles; 64-bit identities must be sent as strings or scanned from bytes.
 * Getters never fail: an absent or mistyped member gives the fallback. */
#ifndef ROLLTOP_BASE_JSON_H
#define ROLLTOP_BASE_JSON_H

#include "core/base/str.h"

#include <cjson/cJSON.h>

enum { JSON_DEPTH_MAX = 64, JSON_OUT_DEPTH_MAX = 32 };

/* *out is owned by the caller (cJSON_Delete). `what` names the source in the Fault. */
Err json_parse(Str body, size_t max_bytes, const char *what, cJSON **out, Fault *fault);

const cJSON *json_get(const cJSON *object, const char *key); /* NULL when absent; exact case */
bool json_bool(const cJSON *object, const char *key, bool fallback);
double json_double(const cJSON *object, const char *key, double fallback);
/* Integral values within ±2^53 only; else the fallback. */
int64_t json_i64(const cJSON *object, const char *key, int64_t fallback);
const char *json_string(const cJSON *object, const char *key, const char *fallback);

/* Writer: commas and quotes are its business, nesting is checked by assert. Doubles are written
 * so that they read back equal; NaN and infinities become null. Invalid UTF-8 bytes become
 * U+FFFD; control characters, DEL and C1 too, are escaped. A Text that hit its bound shows it in
 * text->cut. */
typedef struct JsonOut {
    Text *text;
    int depth;
    bool comma[JSON_OUT_DEPTH_MAX];
    bool after_key;
} JsonOut;

void json_begin(JsonOut *out, Text *text);
void json_object_begin(JsonOut *out);
void json_object_end(JsonOut *out);
void json_array_begin(JsonOut *out);
void json_array_end(JsonOut *out);
void json_key(JsonOut *out, const char *key);
void json_put_str(JsonOut *out, Str s);
void json_put_string(JsonOut *out, const char *s); /* NULL becomes null */
void json_put_i64(JsonOut *out, int64_t v);
void json_put_u64(JsonOut *out, uint64_t v);
void json_put_double(JsonOut *out, double v);
void json_put_float(JsonOut *out, float v); /* shortest form that reads back as this float */
void json_put_bool(JsonOut *out, bool v);
void json_put_null(JsonOut *out);
void json_put_raw(JsonOut *out, Str json); /* trusted, already JSON */
/* key + value in one call */
void json_member_string(JsonOut *out, const char *key, const char *s);
void json_member_str(JsonOut *out, const char *key, Str s);
void json_member_i64(JsonOut *out, const char *key, int64_t v);
void json_member_double(JsonOut *out, const char *key, double v);
void json_member_bool(JsonOut *out, const char *key, bool v);

#endif
