/* Token ids and log-prob triples. A run of entries in the compact form costs about 30 ns each;
 * the run ends at the first byte that is not of that form, and JsonCursor judges from there. */
#include "core/fleet/generate_lists.h"

#include "core/base/mem.h"
#include "core/fleet/json_digits.h"

#include <math.h>
#include <stdlib.h>

/* The longest compact entry: comma, blanks, "[-ddd.", three words of digits, an exponent, an id,
 * "null]", with what the words read beyond. */
enum { LIST_ENTRY_MAX = 96, LIST_ID_DIGITS = 7 };

void token_list_free(TokenList *list)
{
    if (!list->lent) {
        free(list->ids);
        free(list->logprobs);
    }
    *list = (TokenList){0};
}

void token_list_lend(TokenList *list, int32_t *ids, float *logprobs, size_t capacity)
{
    *list = (TokenList){.ids = ids, .logprobs = logprobs, .capacity = capacity, .lent = true};
}

/* Out of the lent memory, into some of its own. */
static void move_out(TokenList *list)
{
    const TokenList lent = *list;
    *list = (TokenList){.capacity = lent.capacity, .count = lent.count};
    list->ids = xcalloc(lent.capacity, sizeof *list->ids);
    list->logprobs = xcalloc(lent.capacity, sizeof *list->logprobs);
    memcpy(list->ids, lent.ids, lent.count * sizeof *list->ids);
    memcpy(list->logprobs, lent.logprobs, lent.count * sizeof *list->logprobs);
}

static void grow(TokenList *list, size_t wanted)
{
    if (list->lent) {
        move_out(list);
    }
    size_t twice = list->capacity ? list->capacity * 2 : 16;
    list->capacity = wanted > twice ? wanted : twice;
    list->ids = xrealloc(list->ids, list->capacity, sizeof *list->ids);
    list->logprobs = xrealloc(list->logprobs, list->capacity, sizeof *list->logprobs);
}

static inline void make_room(TokenList *list, size_t more)
{
    if (list->count + more > list->capacity) {
        grow(list, list->count + more);
    }
}

static inline void push(TokenList *list, int32_t id, float logprob)
{
    make_room(list, 1);
    list->ids[list->count] = id;
    list->logprobs[list->count++] = logprob;
}

void token_list_add(TokenList *list, const int32_t *ids, const float *logprobs, size_t n)
{
    if (n == 0) {
        return;
    }
    if (n == 1) { /* what a stream brings */
        push(list, *ids, logprobs ? *logprobs : NAN);
        return;
    }
    make_room(list, n);
    memcpy(list->ids + list->count, ids, n * sizeof *ids);
    if (logprobs) {
        memcpy(list->logprobs + list->count, logprobs, n * sizeof *logprobs);
    } else {
        for (size_t i = 0; i < n; i++) {
            list->logprobs[list->count + i] = NAN;
        }
    }
    list->count += n;
}

/* ---- the compact form: each gives the byte behind it, or NULL for "not of this form" --------- */

static inline const char *fast_id(const char *p, int32_t *id)
{
    uint64_t word = digits_load(p);
    unsigned n = digits_run(word);
    if (n == 0 || n > LIST_ID_DIGITS || (n > 1 && *p == '0')) {
        return NULL;
    }
    *id = (int32_t)digits_value(word, n);
    return p + n;
}

/* Behind the digits: "e-05" and the like. */
static inline const char *fast_exponent(const char *p, int *exponent)
{
    if ((*p | 0x20) != 'e') {
        return p;
    }
    p++;
    bool down = *p == '-';
    p += down || *p == '+' ? 1 : 0;
    uint64_t word = digits_load(p);
    unsigned n = digits_run(word);
    if (n == 0 || n > 2) {
        return NULL;
    }
    int value = (int)digits_value(word, n);
    *exponent += down ? -value : value;
    return p + n;
}

static const uint32_t scale[DIGITS_WORD + 1] = {1,      10,      100,      1000,     10000,
                                                100000, 1000000, 10000000, 100000000};
/* What fits 64 bits when it is multiplied by that. */
static const uint64_t room[DIGITS_WORD + 1] = {
    18000000000000000000u, 1800000000000000000u, 180000000000000000u,
    18000000000000000u,    1800000000000000u,    180000000000000u,
    18000000000000u,       1800000000000u,       180000000000u};

static inline const char *fast_float(const char *p, float *out)
{
    const bool negative = *p == '-';
    p += negative;
    uint64_t word = digits_load(p);
    unsigned n = digits_run(word);
    if (n == 0 || n > 3 || (n > 1 && *p == '0') || p[n] != '.') {
        return NULL;
    }
    uint64_t digits = digits_value(word, n);
    p += n + 1;
    word = digits_load(p);
    n = digits_run(word);
    if (n == 0) {
        return NULL;
    }
    int places = (int)n;
    digits = digits * scale[n] + digits_value(word, n);
    p += n;
    for (int i = 0; i < 2 && n == DIGITS_WORD; i++) { /* 3 + 8 + 8 digits always fit */
        word = digits_load(p);
        n = digits_run(word);
        if (n == 0) {
            break;
        }
        if (digits > room[n]) {
            return NULL;
        }
        digits = digits * scale[n] + digits_value(word, n);
        places += (int)n;
        p += n;
    }
    int exponent = -places;
    p = n < DIGITS_WORD ? fast_exponent(p, &exponent) : NULL;
    if (!p || exponent > 0 || exponent <= -DIGITS_TENS
        || !digits_to_float(digits, (unsigned)-exponent, out)) {
        return NULL;
    }
    *out = negative ? -*out : *out;
    return p;
}

static inline const char *fast_comma(const char *p)
{
    return *p != ',' ? NULL : p + 1 + (p[1] == ' ');
}

static inline const char *fast_triple(const char *p, int32_t *id, float *logprob)
{
    if (*p != '[' || !(p = fast_float(p + 1, logprob)) || !(p = fast_comma(p))
        || !(p = fast_id(p, id)) || !(p = fast_comma(p))) {
        return NULL;
    }
    return memcmp(p, "null]", 5) == 0 ? p + 5 : NULL;
}

/* Entries in the compact form, from the present one on. The cursor then stands behind the last of
 * them, as json_element wants it. */
static void fast_ids(JsonCursor *c, bool *first, TokenList *list, size_t most)
{
    const char *p = c->p;
    while (c->end - p >= LIST_ENTRY_MAX && list->count < most) {
        int32_t id = 0;
        const char *at = *first ? p : fast_comma(p);
        at = at ? fast_id(at, &id) : NULL;
        if (!at || (*at != ',' && *at != ']')) {
            break;
        }
        push(list, id, 0.0f);
        *first = false;
        p = at;
    }
    c->p = p;
}

static void fast_triples(JsonCursor *c, bool *first, TokenList *list, size_t most)
{
    const char *p = c->p;
    while (c->end - p >= LIST_ENTRY_MAX && list->count < most) {
        int32_t id = 0;
        float logprob = 0;
        const char *at = *first ? p : fast_comma(p);
        at = at ? fast_triple(at, &id, &logprob) : NULL;
        if (!at) {
            break;
        }
        push(list, id, logprob);
        *first = false;
        p = at;
    }
    c->p = p;
}

/* ---- any form -------------------------------------------------------------------------------- */

static int32_t read_id(JsonCursor *c)
{
    int64_t id = -1;
    if (json_integer(c, &id) && (id < 0 || id > INT32_MAX)) {
        id = -1;
    }
    return (int32_t)id;
}

void generate_read_ids(JsonCursor *c, TokenList *list, size_t most)
{
    bool first = true;
    json_enter(c, '[');
    for (;;) {
        fast_ids(c, &first, list, most);
        if (!json_element(c, &first)) {
            return;
        }
        int32_t id = read_id(c);
        if (list->count < most) {
            push(list, id, 0.0f);
        }
    }
}

void generate_read_triples(JsonCursor *c, TokenList *list, size_t most, bool *null_logprob)
{
    bool first = true;
    json_enter(c, '[');
    for (;;) {
        fast_triples(c, &first, list, most);
        if (!json_element(c, &first)) {
            return;
        }
        bool inner = true;
        float logprob = NAN;
        int32_t id = -1;
        json_enter(c, '[');
        if (json_element(c, &inner) && !json_null(c)) { /* NaN, infinities are printed as null */
            json_float(c, &logprob);
        }
        if (json_element(c, &inner)) {
            id = read_id(c);
        }
        while (json_element(c, &inner)) {
            json_skip(c);
        }
        *null_logprob = *null_logprob || !isfinite(logprob);
        if (list->count < most) {
            push(list, id, logprob);
        }
    }
}
