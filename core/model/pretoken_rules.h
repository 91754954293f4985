/* The hand-written patterns; private to pretoken.c. Each gives the length of the match at s[0]. */
#ifndef ROLLTOP_MODEL_PRETOKEN_RULES_H
#define ROLLTOP_MODEL_PRETOKEN_RULES_H

#include "core/model/unicode.h"

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}|
 *  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
size_t rule_qwen(const UnicodeClasses *classes, Str s, int digits);
/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t rule_gpt2(const UnicodeClasses *classes, Str s);

#endif
