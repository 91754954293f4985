#include "core/model/unicode.h"

#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/model/unicode_data.h"

#include <stdlib.h>
#include <string.h>

/* ---- classes ---- */

struct UnicodeClasses {
    uint8_t bmp[0x10000];
};

static bool in_ranges(const UnicodeRange *ranges, size_t count, uint32_t code)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (code > ranges[mid].last) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < count && code >= ranges[low].first;
}

static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

UnicodeClasses *unicode_classes_new(void)
{
    UnicodeClasses *classes = xcalloc(1, sizeof *classes);
    for (size_t i = 0; i < unicode_letters_count; i++) {
        for (uint32_t c = unicode_letters[i].first; c <= unicode_letters[i].last; c++) {
            if (c < 0x10000) {
                classes->bmp[c] = UNICODE_LETTER;
            }
        }
    }
    for (size_t i = 0; i < unicode_numbers_count; i++) {
        for (uint32_t c = unicode_numbers[i].first; c <= unicode_numbers[i].last; c++) {
            if (c < 0x10000) {
                classes->bmp[c] = UNICODE_NUMBER;
            }
        }
    }
    for (uint32_t c = 0; c < 0x10000; c++) {
        if (is_space(c)) {
            classes->bmp[c] = UNICODE_SPACE;
        }
    }
    return classes;
}

void unicode_classes_free(UnicodeClasses *classes)
{
    free(classes);
}

unsigned unicode_class(const UnicodeClasses *classes, uint32_t code)
{
    if (code < 0x10000) {
        return classes->bmp[code];
    }
    if (in_ranges(unicode_letters, unicode_letters_count, code)) {
        return UNICODE_LETTER;
    }
    return in_ranges(unicode_numbers, unicode_numbers_count, code) ? UNICODE_NUMBER : 0;
}

/* ---- NFC ---- */

enum {
    HANGUL_S = 0xAC00, HANGUL_L = 0x1100, HANGUL_V = 0x1161, HANGUL_T = 0x11A7,
    HANGUL_L_COUNT = 19, HANGUL_V_COUNT = 21, HANGUL_T_COUNT = 28,
    HANGUL_S_COUNT = HANGUL_L_COUNT * HANGUL_V_COUNT * HANGUL_T_COUNT
};

typedef struct Mark {
    uint32_t code;
    uint8_t combining;
} Mark;

typedef struct Marks {
    Mark *items;
    Mark *spare; /* for sorting; as large */
    size_t count, capacity;
} Marks;

static uint8_t combining_class(uint32_t code)
{
    size_t low = 0;
    size_t high = unicode_combining_count;
    if (code < 0x300) {
        return 0;
    }
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (code > unicode_combining[mid].last) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    bool found = low < unicode_combining_count && code >= unicode_combining[low].first;
    return found ? unicode_combining[low].combining_class : 0;
}

static const UnicodeDecomposition *decomposition(uint32_t code)
{
    size_t low = 0;
    size_t high = unicode_decompositions_count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (code > unicode_decompositions[mid].code) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    bool found = low < unicode_decompositions_count && unicode_decompositions[low].code == code;
    return found ? &unicode_decompositions[low] : NULL;
}

static uint32_t compose_hangul(uint32_t a, uint32_t b)
{
    if (a >= HANGUL_L && a < HANGUL_L + HANGUL_L_COUNT && b >= HANGUL_V &&
        b < HANGUL_V + HANGUL_V_COUNT) {
        return HANGUL_S + ((a - HANGUL_L) * HANGUL_V_COUNT + (b - HANGUL_V)) * HANGUL_T_COUNT;
    }
    if (a >= HANGUL_S && a < HANGUL_S + HANGUL_S_COUNT && (a - HANGUL_S) % HANGUL_T_COUNT == 0 &&
        b > HANGUL_T && b < HANGUL_T + HANGUL_T_COUNT) {
        return a + (b - HANGUL_T);
    }
    return 0;
}

/* The primary composite of a pair, 0 when there is none. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    size_t low = 0;
    size_t high = unicode_pairs_count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const UnicodeDecomposition *d = &unicode_decompositions[unicode_pairs[mid]];
        if (d->first < a || (d->first == a && d->second < b)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low < unicode_pairs_count) {
        const UnicodeDecomposition *d = &unicode_decompositions[unicode_pairs[low]];
        if (d->first == a && d->second == b) {
            return d->code;
        }
    }
    return compose_hangul(a, b);
}

static void push(Marks *m, uint32_t code)
{
    if (m->count == m->capacity) {
        m->capacity = m->capacity == 0 ? 256 : m->capacity * 2;
        m->items = xrealloc(m->items, m->capacity, sizeof *m->items);
        m->spare = xrealloc(m->spare, m->capacity, sizeof *m->spare);
    }
    m->items[m->count++] = (Mark){code, combining_class(code)};
}

static void push_decomposed(Marks *m, uint32_t code)
{
    if (code >= HANGUL_S && code < HANGUL_S + HANGUL_S_COUNT) {
        uint32_t index = code - HANGUL_S;
        uint32_t tail = index % HANGUL_T_COUNT;
        push(m, HANGUL_L + index / (HANGUL_V_COUNT * HANGUL_T_COUNT));
        push(m, HANGUL_V + index / HANGUL_T_COUNT % HANGUL_V_COUNT);
        if (tail != 0) {
            push(m, HANGUL_T + tail);
        }
        return;
    }
    /* only the first part decomposes further, so the seconds come back in reverse; depth <= 3 */
    uint32_t seconds[8];
    size_t n = 0;
    const UnicodeDecomposition *d = code < 0xC0 ? NULL : decomposition(code);
    while (d != NULL && n < 8) {
        if (d->second != 0) {
            seconds[n++] = d->second;
        }
        code = d->first;
        d = decomposition(code);
    }
    push(m, code);
    while (n > 0) {
        push_decomposed(m, seconds[--n]);
    }
}

/* Stable sort of one run of marks by class; counting, so that 20,000 marks cost no square. */
static void order_run(Marks *m, size_t from, size_t to)
{
    Mark *items = m->items;
    if (to - from <= 16) {
        for (size_t i = from + 1; i < to; i++) {
            Mark mark = items[i];
            size_t k = i;
            for (; k > from && items[k - 1].combining > mark.combining; k--) {
                items[k] = items[k - 1];
            }
            items[k] = mark;
        }
        return;
    }
    size_t at[257] = {0};
    for (size_t i = from; i < to; i++) {
        at[items[i].combining + 1]++;
    }
    for (size_t c = 0; c < 256; c++) {
        at[c + 1] += at[c];
    }
    for (size_t i = from; i < to; i++) {
        m->spare[at[items[i].combining]++] = items[i];
    }
    memcpy(items + from, m->spare, (to - from) * sizeof *items);
}

static void order(Marks *m)
{
    size_t i = 0;
    while (i < m->count) {
        if (m->items[i].combining == 0) {
            i++;
            continue;
        }
        size_t from = i;
        while (i < m->count && m->items[i].combining != 0) {
            i++;
        }
        order_run(m, from, i);
    }
}

static void compose_all(Marks *m)
{
    size_t starter = SIZE_MAX;
    size_t kept = 0;
    uint8_t last = 0;
    for (size_t i = 0; i < m->count; i++) {
        Mark mark = m->items[i];
        bool adjacent = starter != SIZE_MAX && kept == starter + 1;
        bool reachable = starter != SIZE_MAX && (adjacent || last < mark.combining);
        uint32_t whole = reachable ? compose(m->items[starter].code, mark.code) : 0;
        if (whole != 0) {
            m->items[starter].code = whole;
            continue;
        }
        if (mark.combining == 0) {
            starter = kept;
        }
        last = mark.combining;
        m->items[kept++] = mark;
    }
    m->count = kept;
}

/* Blocks where no character changes or combines with a neighbour under NFC. */
static bool is_inert(uint32_t c)
{
    return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x2010 && c <= 0x20CF) ||
           (c >= 0x3001 && c <= 0x3029) || (c >= 0x3041 && c <= 0x3096) ||
           (c >= 0x30A1 && c <= 0x30FA) || (c >= 0x3400 && c <= 0x9FFF) ||
           (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xFF01 && c <= 0xFFEF) ||
           (c >= 0x1F300 && c <= 0x1FAFF);
}

bool unicode_nfc_quick(Str text)
{
    size_t i = 0;
    while (i < text.n) {
        if ((unsigned char)text.p[i] < 0x80) {
            i++;
            continue;
        }
        uint32_t code;
        bool partial;
        i += utf8_decode(text.p + i, text.n - i, &code, &partial);
        if (!is_inert(code)) {
            return false;
        }
    }
    return true;
}

bool unicode_nfc(Str text, Text *out)
{
    Marks m = {0};
    bool fits = true;
    for (size_t i = 0; i < text.n;) {
        uint32_t code;
        bool partial;
        i += utf8_decode(text.p + i, text.n - i, &code, &partial);
        push_decomposed(&m, code);
    }
    order(&m);
    compose_all(&m);
    for (size_t i = 0; i < m.count && fits; i++) {
        char bytes[4];
        fits = text_add(out, bytes, utf8_encode(m.items[i].code, bytes));
    }
    free(m.items);
    free(m.spare);
    return fits;
}
