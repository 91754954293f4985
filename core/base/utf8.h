/* UTF-8 decoding with the maximal-subpart rule (Unicode 3.9, Python errors="replace"). */
#ifndef ROLLTOP_BASE_UTF8_H
#define ROLLTOP_BASE_UTF8_H

#include "core/base/str.h"

/* Decodes one code point at s[0..n). Returns bytes consumed (>= 1 when n > 0). *code is U+FFFD
 * for a maximal invalid part. *partial is set when the bytes up to the end are a valid but
 * incomplete sequence (then the return value is n and *code U+FFFD). */
size_t utf8_decode(const char *s, size_t n, uint32_t *code, bool *partial);
size_t utf8_encode(uint32_t code, char out[4]); /* bytes written; surrogates become U+FFFD */
bool utf8_valid(Str s);
/* False for control, bidirectional and format characters, by which foreign text would play with a
 * terminal (C1 controls among them: some terminals obey them in UTF-8 too). */
bool utf8_harmless(uint32_t code);
/* A sentence that quotes foreign text, for a terminal: what is not harmless, and bytes that are no
 * UTF-8, become one '?' each; the text only gets shorter. */
void utf8_defuse(char *text);
/* Appends s with every maximal invalid part as U+FFFD. */
bool utf8_add_clean(Text *out, Str s);

#endif
