/* Added tokens: strings of tokenizer.json that are found in a text before anything else. */
#ifndef ROLLTOP_MODEL_ADDED_TOKENS_H
#define ROLLTOP_MODEL_ADDED_TOKENS_H

#include "core/base/str.h"

typedef struct AddedToken {
    char *content; /* owned; n bytes and a NUL */
    size_t n;
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
} AddedToken;

typedef struct AddedTokens {
    AddedToken *items; /* sorted by content once added_tokens_index has run */
    size_t count, capacity;
    bool first[256]; /* some content begins with this byte */
} AddedTokens;

/* Takes the content over. */
void added_tokens_add(AddedTokens *tokens, AddedToken token);
/* Sorts; false when two contents are equal. */
bool added_tokens_index(AddedTokens *tokens);
void added_tokens_free(AddedTokens *tokens);
const AddedToken *added_tokens_find(const AddedTokens *tokens, Str content);
/* The longest content that the text begins with, NULL when none. O(its length * log count). */
const AddedToken *added_tokens_match(const AddedTokens *tokens, Str text);

#endif
