#include "core/model/bpe.h"

#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 1 << 28 };
enum { DIRECT_UNKNOWN, DIRECT_YES, DIRECT_NO }; /* do the merges lead from a token's bytes to it */

typedef struct Token {
    size_t at; /* in Bpe.bytes */
    uint32_t n;
    bool used;
    bool mapped; /* every character is of the byte alphabet; else no piece can be it */
} Token;

typedef struct Merge {
    uint64_t pair; /* left << 32 | right, plus 1: 0 is an empty slot */
    uint32_t rank;
    int32_t id;
} Merge;

struct Bpe {
    Text bytes;
    Token *tokens; /* by id */
    size_t token_count, token_capacity;
    size_t used_count;
    uint32_t *slots; /* 1 + id by the token's bytes */
    size_t slot_count;
    _Atomic unsigned char *direct;
    Merge *merges;
    size_t merge_slots, merge_count;
    int32_t byte_id[256]; /* -1: the byte has no token */
    bool ignore_merges;
};

/* ---- the byte alphabet: printable Latin-1 stands for itself, the rest for U+0100 and on ---- */

static bool is_self(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

static uint32_t byte_code(unsigned byte)
{
    if (is_self(byte)) {
        return byte;
    }
    if (byte <= 0x20) {
        return 0x100 + byte;
    }
    return byte == 0xAD ? 0x143 : 0x121 + (byte - 0x7F);
}

static int code_byte(uint32_t code)
{
    if (code < 0x100) {
        return is_self(code) ? (int)code : -1;
    }
    if (code <= 0x120) {
        return (int)(code - 0x100);
    }
    if (code <= 0x142) {
        return (int)(code - 0x121 + 0x7F);
    }
    return code == 0x143 ? 0xAD : -1;
}

size_t bpe_byte_char(unsigned char byte, char out[4])
{
    return utf8_encode(byte_code(byte), out);
}

static bool to_bytes(Str token, Text *out, bool *mapped)
{
    size_t from = out->n;
    *mapped = true;
    for (size_t i = 0; i < token.n;) {
        uint32_t code = (unsigned char)token.p[i];
        bool partial;
        i += code < 0x80 ? 1 : utf8_decode(token.p + i, token.n - i, &code, &partial);
        int byte = code_byte(code);
        if (byte < 0) {
            *mapped = false;
            out->n = from;
            return text_add_str(out, token);
        }
        if (!text_add_char(out, (char)byte)) {
            return false;
        }
    }
    return true;
}

bool bpe_text_to_bytes(Str token, Text *out)
{
    bool mapped;
    return to_bytes(token, out, &mapped);
}

/* ---- tables ---- */

Bpe *bpe_new(void)
{
    Bpe *bpe = xcalloc(1, sizeof *bpe);
    text_init(&bpe->bytes, TEXT_BYTES_MAX);
    for (int i = 0; i < 256; i++) {
        bpe->byte_id[i] = -1;
    }
    return bpe;
}

void bpe_free(Bpe *bpe)
{
    if (bpe == NULL) {
        return;
    }
    text_free(&bpe->bytes);
    free(bpe->tokens);
    free(bpe->slots);
    free(bpe->direct);
    free(bpe->merges);
    free(bpe);
}

Err bpe_add_token(Bpe *bpe, Str token, int32_t id)
{
    if (id < 0 || id >= BPE_TOKENS_MAX) {
        return ERR_LIMIT;
    }
    if ((size_t)id >= bpe->token_capacity) {
        size_t capacity = bpe->token_capacity == 0 ? 4096 : bpe->token_capacity * 2;
        while (capacity <= (size_t)id) {
            capacity *= 2;
        }
        bpe->tokens = xrealloc(bpe->tokens, capacity, sizeof *bpe->tokens);
        memset(bpe->tokens + bpe->token_capacity, 0,
               (capacity - bpe->token_capacity) * sizeof *bpe->tokens);
        bpe->token_capacity = capacity;
    }
    Token *t = &bpe->tokens[id];
    if (t->used) {
        return ERR_EXISTS;
    }
    t->at = bpe->bytes.n;
    if (!to_bytes(token, &bpe->bytes, &t->mapped)) {
        return ERR_LIMIT;
    }
    t->n = (uint32_t)(bpe->bytes.n - t->at);
    t->used = true;
    bpe->used_count++;
    if ((size_t)id >= bpe->token_count) {
        bpe->token_count = (size_t)id + 1;
    }
    return ERR_OK;
}

Str bpe_token_bytes(const Bpe *bpe, int32_t id)
{
    if (id < 0 || (size_t)id >= bpe->token_count || !bpe->tokens[id].used) {
        return (Str){0};
    }
    const Token *t = &bpe->tokens[id];
    return (Str){t->n == 0 ? "" : bpe->bytes.p + t->at, t->n};
}

/* Slot of the token with these bytes, or the free slot where it would go. */
static size_t slot_of(const Bpe *bpe, Str bytes)
{
    size_t mask = bpe->slot_count - 1;
    size_t i = (size_t)hash64(bytes.p, bytes.n, 0) & mask;
    while (bpe->slots[i] != 0) {
        if (str_equal(bpe_token_bytes(bpe, (int32_t)bpe->slots[i] - 1), bytes)) {
            break;
        }
        i = (i + 1) & mask;
    }
    return i;
}

static int32_t find_bytes(const Bpe *bpe, Str bytes)
{
    return (int32_t)bpe->slots[slot_of(bpe, bytes)] - 1;
}

Err bpe_index_tokens(Bpe *bpe)
{
    bpe->slot_count = 64;
    while (bpe->slot_count < bpe->used_count * 2) {
        bpe->slot_count *= 2;
    }
    bpe->slots = xcalloc(bpe->slot_count, sizeof *bpe->slots);
    bpe->direct = xcalloc(bpe->token_count + 1, sizeof *bpe->direct);
    bpe->merge_slots = 64;
    bpe->merges = xcalloc(bpe->merge_slots, sizeof *bpe->merges);
    for (size_t id = 0; id < bpe->token_count; id++) {
        if (!bpe->tokens[id].used || !bpe->tokens[id].mapped) {
            continue;
        }
        Str bytes = bpe_token_bytes(bpe, (int32_t)id);
        size_t slot = slot_of(bpe, bytes);
        if (bpe->slots[slot] != 0) {
            return ERR_EXISTS;
        }
        bpe->slots[slot] = (uint32_t)id + 1;
        if (bytes.n == 1) {
            bpe->byte_id[(unsigned char)bytes.p[0]] = (int32_t)id;
        }
    }
    return ERR_OK;
}

int32_t bpe_find(const Bpe *bpe, Str token)
{
    Text bytes;
    bool mapped;
    int32_t id = -1;
    text_init(&bytes, token.n);
    if (to_bytes(token, &bytes, &mapped) && mapped) {
        id = find_bytes(bpe, text_str(&bytes));
    }
    text_free(&bytes);
    return id;
}

static size_t mix(uint64_t pair)
{
    pair *= 0x9E3779B97F4A7C15u;
    return (size_t)(pair ^ pair >> 29);
}

static Merge *merge_slot(const Bpe *bpe, uint64_t pair)
{
    size_t mask = bpe->merge_slots - 1;
    size_t i = mix(pair) & mask;
    while (bpe->merges[i].pair != 0 && bpe->merges[i].pair != pair) {
        i = (i + 1) & mask;
    }
    return &bpe->merges[i];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static const Merge *find_merge(const Bpe *bpe, int32_t left, int32_t right)
{
    const Merge *m = merge_slot(bpe, pair_of(left, right));
    return m->pair != 0 ? m : NULL;
}

Err bpe_add_merge(Bpe *bpe, Str left, Str right)
{
    Text whole;
    text_init(&whole, left.n + right.n);
    bool fits = text_add_str(&whole, left) && text_add_str(&whole, right);
    int32_t a = bpe_find(bpe, left);
    int32_t b = bpe_find(bpe, right);
    int32_t id = fits ? bpe_find(bpe, text_str(&whole)) : -1;
    text_free(&whole);
    if (a < 0 || b < 0 || id < 0) {
        return ERR_NOT_FOUND;
    }
    if (bpe->merge_count * 2 >= bpe->merge_slots) {
        Merge *old = bpe->merges;
        size_t count = bpe->merge_slots;
        bpe->merge_slots *= 2;
        bpe->merges = xcalloc(bpe->merge_slots, sizeof *bpe->merges);
        for (size_t i = 0; i < count; i++) {
            if (old[i].pair != 0) {
                *merge_slot(bpe, old[i].pair) = old[i];
            }
        }
        free(old);
    }
    Merge *m = merge_slot(bpe, pair_of(a, b)); /* the reference's map keeps the last of equals */
    *m = (Merge){pair_of(a, b), (uint32_t)bpe->merge_count++, id};
    return ERR_OK;
}

void bpe_ignore_merges(Bpe *bpe)
{
    bpe->ignore_merges = true;
}

int32_t bpe_max_id(const Bpe *bpe)
{
    return (int32_t)bpe->token_count - 1;
}

bool bpe_all_bytes(const Bpe *bpe)
{
    for (int i = 0; i < 256; i++) {
        if (bpe->byte_id[i] < 0) {
            return false;
        }
    }
    return true;
}

/* ---- merging one piece ---- */

typedef struct Symbol {
    int32_t id;        /* -1: merged away */
    int32_t prev, next; /* -1: none */
} Symbol;

typedef struct Candidate {
    uint64_t key; /* rank << 32 | place of the left symbol */
    int32_t id;
} Candidate;

struct BpeScratch {
    Symbol *symbols;
    size_t symbol_capacity;
    Candidate *heap;
    size_t heap_count, heap_capacity;
};

BpeScratch *bpe_scratch_new(void)
{
    return xcalloc(1, sizeof(BpeScratch));
}

void bpe_scratch_free(BpeScratch *scratch)
{
    if (scratch == NULL) {
        return;
    }
    free(scratch->symbols);
    free(scratch->heap);
    free(scratch);
}

void token_ids_add(TokenIds *ids, int32_t id)
{
    if (ids->count == ids->capacity) {
        ids->capacity = ids->capacity == 0 ? 64 : ids->capacity * 2;
        ids->ids = xrealloc(ids->ids, ids->capacity, sizeof *ids->ids);
    }
    ids->ids[ids->count++] = id;
}

static void heap_push(BpeScratch *s, Candidate c)
{
    if (s->heap_count == s->heap_capacity) {
        s->heap_capacity = s->heap_capacity == 0 ? 256 : s->heap_capacity * 2;
        s->heap = xrealloc(s->heap, s->heap_capacity, sizeof *s->heap);
    }
    size_t i = s->heap_count++;
    while (i > 0 && s->heap[(i - 1) / 2].key > c.key) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = c;
}

static Candidate heap_pop(BpeScratch *s)
{
    Candidate top = s->heap[0];
    Candidate last = s->heap[--s->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heap_count) {
            break;
        }
        if (child + 1 < s->heap_count && s->heap[child + 1].key < s->heap[child].key) {
            child++;
        }
        if (s->heap[child].key >= last.key) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    if (s->heap_count > 0) {
        s->heap[i] = last;
    }
    return top;
}

static void push_pair(const Bpe *bpe, BpeScratch *s, int32_t left)
{
    int32_t right = left < 0 ? -1 : s->symbols[left].next;
    if (right < 0) {
        return;
    }
    const Merge *m = find_merge(bpe, s->symbols[left].id, s->symbols[right].id);
    if (m != NULL) {
        heap_push(s, (Candidate){(uint64_t)m->rank << 32 | (uint32_t)left, m->id});
    }
}

/* Fills the symbols from the bytes that have a token; returns how many. */
static int32_t load_symbols(const Bpe *bpe, BpeScratch *s, Str piece)
{
    int32_t n = 0;
    if (piece.n > s->symbol_capacity) {
        s->symbol_capacity = piece.n * 2;
        free(s->symbols);
        s->symbols = xcalloc(s->symbol_capacity, sizeof *s->symbols);
    }
    for (size_t i = 0; i < piece.n; i++) {
        int32_t id = bpe->byte_id[(unsigned char)piece.p[i]];
        if (id >= 0) {
            s->symbols[n] = (Symbol){id, n - 1, n + 1};
            n++;
        }
    }
    if (n > 0) {
        s->symbols[n - 1].next = -1;
    }
    return n;
}

static void merge_piece(const Bpe *bpe, BpeScratch *s, Str piece, TokenIds *out)
{
    int32_t n = load_symbols(bpe, s, piece);
    s->heap_count = 0;
    for (int32_t i = 0; i < n; i++) {
        push_pair(bpe, s, i);
    }
    while (s->heap_count > 0) {
        Candidate c = heap_pop(s);
        int32_t at = (int32_t)(c.key & 0xFFFFFFFFu);
        Symbol *left = &s->symbols[at];
        if (left->id < 0 || left->next < 0) {
            continue;
        }
        Symbol *right = &s->symbols[left->next];
        /* stale candidates are told by the token that they lead to, as the reference does */
        const Merge *m = find_merge(bpe, left->id, right->id);
        if (m == NULL || m->id != c.id) {
            continue;
        }
        left->id = c.id;
        right->id = -1;
        left->next = right->next;
        if (left->next >= 0) {
            s->symbols[left->next].prev = at;
        }
        push_pair(bpe, s, left->prev);
        push_pair(bpe, s, at);
    }
    for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = s->symbols[i].next) {
        token_ids_add(out, s->symbols[i].id);
    }
}

void bpe_encode(const Bpe *bpe, BpeScratch *scratch, Str piece, TokenIds *out)
{
    int32_t whole = find_bytes(bpe, piece);
    if (whole < 0) {
        merge_piece(bpe, scratch, piece, out);
        return;
    }
    unsigned char direct = atomic_load_explicit(&bpe->direct[whole], memory_order_relaxed);
    if (direct == DIRECT_YES || bpe->ignore_merges) {
        token_ids_add(out, whole);
        return;
    }
    size_t before = out->count;
    merge_piece(bpe, scratch, piece, out);
    if (direct == DIRECT_UNKNOWN) {
        bool same = out->count == before + 1 && out->ids[before] == whole;
        atomic_store_explicit(&bpe->direct[whole], same ? DIRECT_YES : DIRECT_NO,
                              memory_order_relaxed);
    }
}
