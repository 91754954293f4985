#include "core/model/tokenizer.h"

#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/model/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

static const size_t TEXT_MAX = (size_t)1 << 30;

int tokenizer_vocab(const Tokenizer *tokenizer)
{
    return tokenizer->vocab;
}

void token_ids_free(TokenIds *ids)
{
    free(ids->ids);
    *ids = (TokenIds){0};
}

int32_t tokenizer_id_of(const Tokenizer *t, const char *token)
{
    const AddedToken *added = added_tokens_find(&t->raw, str_from(token));
    if (added == NULL) {
        added = added_tokens_find(&t->normalized, str_from(token));
    }
    return added != NULL ? added->id : bpe_find(t->bpe, str_from(token));
}

/* ---- encoding ---- */

typedef struct Encode {
    const Tokenizer *t;
    BpeScratch *scratch;
    TokenIds *out;
} Encode;

static bool encode_piece(void *user, Str piece)
{
    const Encode *e = user;
    bpe_encode(e->t->bpe, e->scratch, piece, e->out);
    return true;
}

/* Calls `between` for what lies between the tokens, and appends the tokens found. */
static bool cut_added(const Encode *e, const AddedTokens *tokens, Str text,
                      bool (*between)(const Encode *e, Str text))
{
    size_t from = 0;
    size_t i = 0;
    while (tokens->count > 0 && i < text.n) {
        if (!tokens->first[(unsigned char)text.p[i]]) {
            i++;
            continue;
        }
        const AddedToken *token = added_tokens_match(tokens, (Str){text.p + i, text.n - i});
        if (token == NULL) {
            i++;
            continue;
        }
        if (i > from && !between(e, (Str){text.p + from, i - from})) {
            return false;
        }
        token_ids_add(e->out, token->id);
        i += token->n;
        from = i;
    }
    return from == text.n || between(e, (Str){text.p + from, text.n - from});
}

static bool encode_plain(const Encode *e, Str text)
{
    return pretoken_split(e->t->pretoken, text, encode_piece, (void *)(uintptr_t)e);
}

static bool encode_normalized(const Encode *e, Str text)
{
    if (!e->t->nfc || unicode_nfc_quick(text)) {
        return cut_added(e, &e->t->normalized, text, encode_plain);
    }
    Text clean;
    text_init(&clean, TEXT_MAX * 3);
    bool good = unicode_nfc(text, &clean) &&
                cut_added(e, &e->t->normalized, text_str(&clean), encode_plain);
    text_free(&clean);
    return good;
}

Err tokenizer_encode(const Tokenizer *tokenizer, Str text, TokenIds *out, Fault *fault)
{
    Text clean;
    if (text.n > TEXT_MAX) {
        return fault_set(fault, ERR_LIMIT, "shorten the text", "a text of %zu bytes is over 1 GiB",
                         text.n);
    }
    text_init(&clean, TEXT_MAX * 3);
    if (!utf8_valid(text)) {
        if (!utf8_add_clean(&clean, text)) {
            text_free(&clean);
            return fault_set(fault, ERR_LIMIT, "shorten the text", "a text is too long");
        }
        text = text_str(&clean);
    }
    Encode e = {tokenizer, bpe_scratch_new(), out};
    size_t before = out->count;
    bool good = cut_added(&e, &tokenizer->raw, text, encode_normalized);
    bpe_scratch_free(e.scratch);
    text_free(&clean);
    if (!good) {
        out->count = before;
        return fault_set(fault, ERR_LIMIT, "shorten the text",
                         "the tokenizer's pattern costs too much on this text");
    }
    return ERR_OK;
}

/* ---- decoding ---- */

static Str token_bytes(const Tokenizer *t, int32_t id, bool skip_special)
{
    if (id >= 0 && (size_t)id < t->added_count && t->added[id].used) {
        if (skip_special && t->added[id].special) {
            return (Str){0};
        }
        return (Str){t->added_bytes.p + t->added[id].at, t->added[id].n};
    }
    return bpe_token_bytes(t->bpe, id);
}

static void emit(Text *out, uint32_t code)
{
    char bytes[4];
    (void)text_add(out, bytes, utf8_encode(code, bytes));
}

/* Gives out what is decided in held[0 … *n); the rest moves to the front. */
static void settle(char held[4], size_t *n, Text *out)
{
    while (*n > 0) {
        uint32_t code;
        bool partial;
        size_t used = utf8_decode(held, *n, &code, &partial);
        if (partial) {
            return;
        }
        emit(out, code);
        *n -= used;
        memmove(held, held + used, *n);
    }
}

void detok_init(Detokenizer *d, const Tokenizer *tokenizer, bool skip_special)
{
    *d = (Detokenizer){.tokenizer = tokenizer, .skip_special = skip_special};
}

void detok_push(Detokenizer *d, int32_t id, Text *out)
{
    Str bytes = token_bytes(d->tokenizer, id, d->skip_special);
    size_t i = 0;
    while (i < bytes.n) {
        if (d->held_n > 0) {
            d->held[d->held_n++] = bytes.p[i++];
            settle(d->held, &d->held_n, out);
            continue;
        }
        size_t from = i;
        while (i < bytes.n && (unsigned char)bytes.p[i] < 0x80) {
            i++;
        }
        if (i > from) {
            (void)text_add(out, bytes.p + from, i - from);
            continue;
        }
        uint32_t code;
        bool partial;
        size_t used = utf8_decode(bytes.p + i, bytes.n - i, &code, &partial);
        if (partial) {
            memcpy(d->held, bytes.p + i, used); /* at most 3 bytes are valid and incomplete */
            d->held_n = used;
        } else {
            emit(out, code);
        }
        i += used;
    }
}

void detok_flush(Detokenizer *d, Text *out)
{
    if (d->held_n > 0) {
        emit(out, 0xFFFD);
        d->held_n = 0;
    }
}

void tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t count,
                      bool skip_special, Text *out)
{
    Detokenizer d;
    detok_init(&d, tokenizer, skip_special);
    for (size_t i = 0; i < count; i++) {
        detok_push(&d, ids[i], out);
    }
    detok_flush(&d, out);
}
