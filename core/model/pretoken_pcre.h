/* A Split pattern that no hand-written rule knows, through PCRE2; private to pretoken.c. */
#ifndef ROLLTOP_MODEL_PRETOKEN_PCRE_H
#define ROLLTOP_MODEL_PRETOKEN_PCRE_H

#include "core/model/pretoken.h"

typedef struct PretokenPattern PretokenPattern;
Err pretoken_pattern_new(Str pattern, const char *path, PretokenPattern **out, Fault *fault);
void pretoken_pattern_free(PretokenPattern *pattern);
/* Matches and what lies between them, in order. False when emit said so or a match cost more
 * than its limit. */
bool pretoken_pattern_split(const PretokenPattern *pattern, Str text, PretokenEmit emit,
                            void *user);

#endif
