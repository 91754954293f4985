/* Strings: Str is a borrowed pointer and length (may hold NUL bytes, has no terminator);
 * Text is owned, grows to a maximum given at creation and is always NUL-terminated. */
#ifndef ROLLTOP_BASE_STR_H
#define ROLLTOP_BASE_STR_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Str {
    const char *p; /* may be NULL when n is 0 */
    size_t n;
} Str;

#define STR(literal) ((Str){(literal), sizeof(literal) - 1})
Str str_from(const char *c_string); /* NULL gives the empty Str */
bool str_equal(Str a, Str b);
bool str_equal_nocase(Str a, Str b); /* ASCII only */
bool str_starts(Str s, Str prefix);
bool str_ends(Str s, Str suffix);
Str str_trim(Str s);                            /* ASCII blanks, both ends */
Str str_slice(Str s, size_t from, size_t to);   /* clamped to the length */
bool str_find(Str s, Str needle, size_t *at);   /* first place */
bool str_rfind(Str s, Str needle, size_t *at);  /* last place */
/* Cuts `*rest` at the first `separator`: the part before it is the result, *rest the part behind.
 * False when *rest was exhausted. "a,b" gives a, b, then false; "" gives false at once. */
bool str_split(Str *rest, char separator, Str *part);
/* Whole string must be the number; no blanks, no trailing text. False when not or out of range. */
bool str_to_i64(Str s, int64_t *out);
bool str_to_u64(Str s, uint64_t *out);
bool str_to_double(Str s, double *out); /* finite decimal numbers only, locale-independent */
/* Edit distance for "did you mean", at most `limit` (returns limit when larger). O(a*b). */
int str_distance(Str a, Str b, int limit);

typedef struct Text {
    char *p; /* NUL-terminated once anything was added, else NULL */
    size_t n;
    size_t capacity;
    size_t max; /* bytes without the NUL; adding beyond fails and sets cut */
    bool cut;   /* something did not fit; what fitted whole before it is intact */
} Text;

void text_init(Text *text, size_t max);
void text_free(Text *text); /* keeps max; the Text can be used again */
void text_clear(Text *text); /* keeps the memory */
bool text_add(Text *text, const void *bytes, size_t n); /* all or nothing */
bool text_add_str(Text *text, Str s);
bool text_add_c(Text *text, const char *c_string);
bool text_add_char(Text *text, char c);
bool text_addf(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool text_reserve(Text *text, size_t extra);
Str text_str(const Text *text);
const char *text_c(const Text *text); /* "" when empty */
char *text_take(Text *text);          /* caller owns the string; Text becomes empty */

/* Formats into a fixed buffer; false when it was cut. For labels that may be cut say (void). */
bool str_format(char *buffer, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
