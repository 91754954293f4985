/* Strict JSON reading in one forward pass, without a tree: a cursor over bytes that either skips
 * a value or hands out its parts. For replies that come thousands of times a second; everything
 * else uses base/json.h. RFC 8259 grammar, strings in UTF-8, nesting at most JSON_CURSOR_DEPTH.
 * After the first error every call fails, so that callers may check once at the end. */
#ifndef ROLLTOP_FLEET_JSON_CURSOR_H
#define ROLLTOP_FLEET_JSON_CURSOR_H

#include "core/base/str.h"

enum { JSON_CURSOR_DEPTH = 64 };

typedef struct JsonCursor {
    const char *p, *end;
    int depth;
    const char *error; /* what is wrong, static text; NULL while all is well */
} JsonCursor;

JsonCursor json_cursor(Str bytes);
/* Blanks up to the end, and nothing open. */
bool json_at_end(JsonCursor *c);
void json_blanks(JsonCursor *c); /* passes over them */
/* First byte of the next value; 0 at the end or after an error. */
static inline char json_peek(JsonCursor *c)
{
    if (c->p < c->end && (unsigned char)*c->p > ' ') {
        return *c->p;
    }
    json_blanks(c);
    return c->p < c->end ? *c->p : '\0';
}

bool json_enter(JsonCursor *c, char open); /* '{' or '[' */
/* Next member of an object: its raw key (between the quotes, escapes not decoded), the cursor
 * stands before the value. False at '}' (consumed) or on an error. `first` is true before the
 * first call and kept by the caller. */
bool json_member(JsonCursor *c, bool *first, Str *key);
bool json_element(JsonCursor *c, bool *first); /* the same for arrays */

bool json_skip(JsonCursor *c); /* any value, checked */
bool json_null(JsonCursor *c); /* consumes null if it stands there; no error otherwise */
bool json_raw_string(JsonCursor *c, Str *raw); /* between the quotes, escapes checked */
bool json_integer(JsonCursor *c, int64_t *out); /* no fraction, no exponent, fits */
bool json_float(JsonCursor *c, float *out);     /* = (float)strtod(); infinite when too large */

/* Appends a raw string with its escapes decoded, as UTF-8; lone surrogates become U+FFFD.
 * False when it does not fit. */
bool json_decode(Str raw, Text *out);

#endif
