/* tokenizer.json (byte-level BPE): Qwen3's and SmolLM2's pipelines, and any built of the same
 * parts (NFC normaliser or none; Split regex, Digits, ByteLevel pre-tokenisers; added tokens).
 * A part that is not understood is refused by name at load. Immutable after load, thread-safe. */
#ifndef ROLLTOP_MODEL_TOKENIZER_H
#define ROLLTOP_MODEL_TOKENIZER_H

#include "core/base/str.h"

typedef struct Tokenizer Tokenizer;
/* Reads DIR/tokenizer.json. */
Err tokenizer_load(const char *dir, Tokenizer **out, Fault *fault);
void tokenizer_free(Tokenizer *tokenizer);
int tokenizer_vocab(const Tokenizer *tokenizer); /* highest id + 1 */

typedef struct TokenIds {
    int32_t *ids; /* malloc'ed, owned */
    size_t count, capacity;
} TokenIds;
void token_ids_free(TokenIds *ids);
/* Appends. Adds no BOS/EOS. Text of any bytes; invalid UTF-8 is read as U+FFFD. */
Err tokenizer_encode(const Tokenizer *tokenizer, Str text, TokenIds *out, Fault *fault);
/* Appends the text of ids; invalid UTF-8 as U+FFFD; unknown ids give nothing. */
void tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t count,
                      bool skip_special, Text *out);
int32_t tokenizer_id_of(const Tokenizer *tokenizer, const char *token); /* -1: none */

/* Streaming: emits what can no longer change, holds back an incomplete UTF-8 sequence only. */
typedef struct Detokenizer {
    const Tokenizer *tokenizer;
    char held[4];
    size_t held_n;
    bool skip_special;
} Detokenizer;
void detok_init(Detokenizer *d, const Tokenizer *tokenizer, bool skip_special);
void detok_push(Detokenizer *d, int32_t id, Text *out);
void detok_flush(Detokenizer *d, Text *out);

/* Writes a tokenizer.json with one token per listed string and no merges (the demo's alphabet).
 * `special` entries become added special tokens, with the first ids. */
Err tokenizer_write_alphabet(const char *dir, const char *const *special, size_t special_count,
                             Str alphabet, Fault *fault);

#endif
