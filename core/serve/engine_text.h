/* Text of token ids, as they come: the checkpoint's tokenizer, or " 17" per id for a synthetic
 * engine, which has none. Prompts of a synthetic engine are read byte by byte. */
#ifndef ROLLTOP_SERVE_ENGINE_TEXT_H
#define ROLLTOP_SERVE_ENGINE_TEXT_H

#include "core/model/tokenizer.h"

typedef struct EngineText {
    const Tokenizer *tokenizer; /* NULL: numbers */
    Detokenizer detok;
} EngineText;

void engine_text_init(EngineText *text, const Tokenizer *tokenizer, bool skip_special);
void engine_text_push(EngineText *text, int32_t id, Text *out);
void engine_text_flush(EngineText *text, Text *out);
Err engine_text_encode(const Tokenizer *tokenizer, Str prompt, TokenIds *out, Fault *fault);

/* First end of any of the stop strings at or behind `from`: its index and where it begins. */
bool engine_text_find_stop(Str text, size_t from, char *const *stops, int count, int *which,
                           size_t *at);
/* Bytes at the end of `text` that could be the beginning of a stop string. */
size_t engine_text_held_back(Str text, char *const *stops, int count);

#endif
