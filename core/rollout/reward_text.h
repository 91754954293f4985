/* Text helpers of the rewards, with Python's meaning; private to core/rollout. All work on UTF-8
 * and are linear in the text. */
#ifndef ROLLTOP_ROLLOUT_REWARD_TEXT_H
#define ROLLTOP_ROLLOUT_REWARD_TEXT_H

#include "core/base/str.h"

enum { REWARD_TEXT_MAX = 16 << 20 }; /* bytes of a response or label that is looked at */

/* Code point at s[at] (s.n > at); U+FFFD for what is not UTF-8. *n bytes, at least 1. */
uint32_t reward_code(Str s, size_t at, size_t *n);
bool reward_is_blank(uint32_t code); /* str.isspace() */
bool reward_is_alpha(uint32_t code); /* str.isalpha(): category L */
bool reward_is_word(uint32_t code);  /* \w of a regular expression */
int reward_digit(uint32_t code);     /* 0…9 for category Nd, else -1 */
Str reward_trim(Str s);              /* str.strip() */
bool reward_lower(Str s, Text *out); /* appends str.lower() */
bool reward_find_nocase(Str s, Str lower_ascii, size_t *at); /* first place, ASCII case only */

/* str.replace on the whole Text. */
void reward_replace(Text *text, const char *from, const char *to);
void reward_set(Text *text, Str s); /* text = s; s may point into text */

/* float(s): blanks, signs, underscores between digits, Unicode digits, inf, nan; no hex. */
bool reward_float(Str s, double *out);

#endif
