#include "core/serve/engine_text.h"

#include "core/base/mem.h"

#include <string.h>

void engine_text_init(EngineText *text, const Tokenizer *tokenizer, bool skip_special)
{
    text->tokenizer = tokenizer;
    if (tokenizer) {
        detok_init(&text->detok, tokenizer, skip_special);
    }
}

void engine_text_push(EngineText *text, int32_t id, Text *out)
{
    if (text->tokenizer) {
        detok_push(&text->detok, id, out);
    } else {
        text_addf(out, " %d", id);
    }
}

void engine_text_flush(EngineText *text, Text *out)
{
    if (text->tokenizer) {
        detok_flush(&text->detok, out);
    }
}

Err engine_text_encode(const Tokenizer *tokenizer, Str prompt, TokenIds *out, Fault *fault)
{
    if (tokenizer) {
        return tokenizer_encode(tokenizer, prompt, out, fault);
    }
    enum { FIRST_BYTE_ID = 3 };
    out->ids = xcalloc(prompt.n, sizeof *out->ids);
    out->count = out->capacity = prompt.n;
    for (size_t i = 0; i < prompt.n; i++) {
        out->ids[i] = FIRST_BYTE_ID + (unsigned char)prompt.p[i];
    }
    return ERR_OK;
}

bool engine_text_find_stop(Str text, size_t from, char *const *stops, int count, int *which,
                           size_t *at)
{
    bool found = false;
    for (int i = 0; i < count; i++) {
        Str stop = str_from(stops[i]);
        size_t begin = from + 1 > stop.n ? from + 1 - stop.n : 0;
        size_t where = 0;
        if (stop.n > 0 && begin <= text.n &&
            str_find(str_slice(text, begin, text.n), stop, &where)) {
            where += begin;
            if (!found || where + stop.n < *at + strlen(stops[*which])) {
                *which = i;
                *at = where;
            }
            found = true;
        }
    }
    return found;
}

size_t engine_text_held_back(Str text, char *const *stops, int count)
{
    size_t held = 0;
    for (int i = 0; i < count; i++) {
        size_t most = strlen(stops[i]);
        for (size_t n = most > 0 ? most - 1 : 0; n > held; n--) {
            if (n <= text.n && memcmp(text.p + text.n - n, stops[i], n) == 0) {
                held = n;
            }
        }
    }
    return held;
}
