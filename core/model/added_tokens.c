#include "core/model/added_tokens.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

void added_tokens_add(AddedTokens *tokens, AddedToken token)
{
    if (tokens->count == tokens->capacity) {
        tokens->capacity = tokens->capacity == 0 ? 32 : tokens->capacity * 2;
        tokens->items = xrealloc(tokens->items, tokens->capacity, sizeof *tokens->items);
    }
    tokens->items[tokens->count++] = token;
}

static int compare(Str a, Str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n > 0 ? memcmp(a.p, b.p, n) : 0;
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

static int by_content(const void *a, const void *b)
{
    const AddedToken *x = a;
    const AddedToken *y = b;
    return compare((Str){x->content, x->n}, (Str){y->content, y->n});
}

bool added_tokens_index(AddedTokens *tokens)
{
    if (tokens->count > 1) {
        qsort(tokens->items, tokens->count, sizeof *tokens->items, by_content);
    }
    for (size_t i = 0; i < tokens->count; i++) {
        if (tokens->items[i].n > 0) {
            tokens->first[(unsigned char)tokens->items[i].content[0]] = true;
        }
        if (i > 0 && by_content(&tokens->items[i - 1], &tokens->items[i]) == 0) {
            return false;
        }
    }
    return true;
}

void added_tokens_free(AddedTokens *tokens)
{
    for (size_t i = 0; i < tokens->count; i++) {
        free(tokens->items[i].content);
    }
    free(tokens->items);
    *tokens = (AddedTokens){0};
}

const AddedToken *added_tokens_find(const AddedTokens *tokens, Str content)
{
    size_t low = 0;
    size_t high = tokens->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int order = compare((Str){tokens->items[mid].content, tokens->items[mid].n}, content);
        if (order == 0) {
            return &tokens->items[mid];
        }
        if (order < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
}

/* First index in [low, high) whose byte at `depth` is >= byte (contents without one come first). */
static size_t bound(const AddedTokens *t, size_t low, size_t high, size_t depth, unsigned byte)
{
    while (low < high) {
        size_t mid = (low + high) / 2;
        const AddedToken *item = &t->items[mid];
        if (item->n <= depth || (unsigned char)item->content[depth] < byte) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

const AddedToken *added_tokens_match(const AddedTokens *tokens, Str text)
{
    const AddedToken *best = NULL;
    size_t low = 0;
    size_t high = tokens->count;
    if (text.n == 0 || !tokens->first[(unsigned char)text.p[0]]) {
        return NULL;
    }
    for (size_t depth = 0; depth < text.n && low < high; depth++) {
        unsigned byte = (unsigned char)text.p[depth];
        low = bound(tokens, low, high, depth, byte);
        high = bound(tokens, low, high, depth, byte + 1);
        if (low < high && tokens->items[low].n == depth + 1) {
            best = &tokens->items[low];
        }
    }
    return best;
}
