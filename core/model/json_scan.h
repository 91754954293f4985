/* A pull scanner over JSON text, for files where a tree of doubles is the wrong tool: safetensors
 * headers (unsigned 64-bit integers, names that hold NUL, duplicate keys that must be seen),
 * tokenizer.json (300,000 strings), prompt rows whose label must keep its digits. Strict RFC 8259,
 * as serde_json reads it: no comments, no trailing commas, no lone surrogates, a depth limit. The
 * text must be valid UTF-8 (the caller checks). Errors are sticky: after the first one every call
 * fails, so that callers may check once at the end. No allocation but into the caller's Text. */
#ifndef ROLLTOP_MODEL_JSON_SCAN_H
#define ROLLTOP_MODEL_JSON_SCAN_H

#include "core/base/str.h"

enum { JSON_SCAN_DEPTH_MAX = 127 }; /* serde_json refuses the 128th level */

typedef struct JsonScan {
    const char *p;
    size_t n;
    size_t at;
    int depth;
    const char *error; /* NULL while fine; static text */
} JsonScan;

JsonScan json_scan(Str text);
/* Next byte that is no blank, not consumed; 0 at the end or after an error. */
char json_scan_peek(JsonScan *s);
bool json_scan_fail(JsonScan *s, const char *error); /* sets the first error; returns false */

/* Containers. Use: if (json_scan_object(s)) while (json_scan_key(s, text, &key)) { value }.
 * json_scan_key and json_scan_item are false at the closing bracket (consumed) and on errors. */
bool json_scan_object(JsonScan *s);
bool json_scan_array(JsonScan *s);
/* The key lies in `scratch` (cleared first) if it holds escapes, else in the source. */
bool json_scan_key(JsonScan *s, Text *scratch, Str *key);
bool json_scan_item(JsonScan *s);

/* Values. A string lies in `scratch` (cleared first) if it holds escapes, else in the source. */
bool json_scan_string(JsonScan *s, Text *scratch, Str *out);
bool json_scan_u64(JsonScan *s, uint64_t *out); /* digits only: 8.0, 2e0 and -2 are errors */
bool json_scan_bool(JsonScan *s, bool *out);
bool json_scan_null(JsonScan *s);   /* consumes null */
bool json_scan_raw(JsonScan *s, Str *out); /* any value, checked; its bytes in the source */
bool json_scan_skip(JsonScan *s);
/* Only blanks may be left. */
bool json_scan_end(JsonScan *s);

#endif
