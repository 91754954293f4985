/* Strict JSON reading in one pass. The hot parts are strings (a table look-up a byte) and
 * numbers of up to 17 digits, which is how engines print log-probs. */
#include "core/fleet/json_cursor.h"

#include "core/base/utf8.h"
#include "core/fleet/json_digits.h"

#include <stddef.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

static bool fail(JsonCursor *c, const char *what)
{
    if (!c->error) {
        c->error = what;
        c->p = c->end;
    }
    return false;
}

void json_blanks(JsonCursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r')) {
        c->p++;
    }
}

JsonCursor json_cursor(Str bytes)
{
    return (JsonCursor){.p = bytes.p, .end = bytes.n > 0 ? bytes.p + bytes.n : bytes.p};
}

bool json_at_end(JsonCursor *c)
{
    json_blanks(c);
    return !c->error && c->p == c->end && c->depth == 0;
}

bool json_enter(JsonCursor *c, char open)
{
    if (json_peek(c) != open) {
        return fail(c, open == '{' ? "an object is missing" : "an array is missing");
    }
    if (++c->depth > JSON_CURSOR_DEPTH) {
        return fail(c, "nested too deeply");
    }
    c->p++;
    return true;
}

/* True when another part follows; consumes the comma or the closing byte. */
static bool another(JsonCursor *c, bool *first, char close)
{
    char next = json_peek(c);
    if (next == close) {
        c->p++;
        c->depth--;
        return false;
    }
    if (!*first) {
        if (next != ',') {
            return fail(c, "a comma or a closing bracket is missing");
        }
        c->p++;
    }
    *first = false;
    return !c->error;
}

bool json_element(JsonCursor *c, bool *first)
{
    return another(c, first, ']');
}

bool json_member(JsonCursor *c, bool *first, Str *key)
{
    if (!another(c, first, '}')) {
        return false;
    }
    if (json_peek(c) != '"' || !json_raw_string(c, key)) {
        return fail(c, "a member name is missing");
    }
    if (json_peek(c) != ':') {
        return fail(c, "a colon is missing");
    }
    c->p++;
    return true;
}

/* 1: ends a plain run inside a string (quote, backslash, control byte). */
static const unsigned char stops[256] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ['"'] = 1, ['\\'] = 1,
};

static int hex_digit(char ch)
{
    if (ch >= '0' && ch <= '9') {
        return ch - '0';
    }
    if (ch >= 'a' && ch <= 'f') {
        return ch - 'a' + 10;
    }
    return ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : -1;
}

/* Behind a backslash. */
static bool escape(JsonCursor *c)
{
    if (c->p >= c->end) {
        return fail(c, "a string is cut");
    }
    char ch = *c->p++;
    if (ch == 'u') {
        for (int i = 0; i < 4; i++, c->p++) {
            if (c->p >= c->end || hex_digit(*c->p) < 0) {
                return fail(c, "a \\u escape is wrong");
            }
        }
        return true;
    }
    if (ch == '\0' || !strchr("\"\\/bfnrt", ch)) {
        return fail(c, "an escape is wrong");
    }
    return true;
}

/* Eight bytes of a string: not 0 where one ends a plain run, its lowest set bit in the first that
 * does. (A borrow can mark a byte wrongly only behind one that is marked rightly.) */
static inline uint64_t stops_in(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t quote = word ^ (ones * '"');
    uint64_t slash = word ^ (ones * '\\');
    uint64_t below = (word - ones * 0x20) & ~word;
    return (below | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & (ones * 0x80);
}

#ifdef __SSE2__
/* The same for sixteen bytes, which is most keys: a bit for each. */
static inline unsigned stops_in_16(__m128i bytes)
{
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    __m128i below = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(below, _mm_or_si128(quote, slash)));
}
#endif

/* First byte from p on that ends a plain run, or the end; *high collects the bytes' top bits. */
static const char *plain_run(const char *p, const char *end, uint64_t *high)
{
#ifdef __SSE2__
    while (end - p >= (ptrdiff_t)sizeof(__m128i)) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        unsigned found = stops_in_16(bytes);
        unsigned tops = (unsigned)_mm_movemask_epi8(bytes);
        if (found) {
            *high |= tops & ((found & -found) - 1) ? 0x80 : 0;
            return p + __builtin_ctz(found);
        }
        *high |= tops ? 0x80 : 0;
        p += sizeof(__m128i);
    }
#endif
    while (end - p >= DIGITS_WORD) {
        uint64_t word = digits_load(p);
        uint64_t found = stops_in(word);
        if (found) {
            uint64_t before = (found & -found) - 1; /* bits below the one found */
            *high |= word & (before >> 7);
            return p + __builtin_ctzll(found) / 8;
        }
        *high |= word;
        p += DIGITS_WORD;
    }
    for (; p < end && !stops[(unsigned char)*p]; p++) {
        *high |= (unsigned char)*p;
    }
    return p;
}

bool json_raw_string(JsonCursor *c, Str *raw)
{
    if (json_peek(c) != '"') {
        return fail(c, "a string is missing");
    }
    const char *from = ++c->p;
    uint64_t high = 0;
    for (;;) {
        const char *p = plain_run(c->p, c->end, &high);
        c->p = p;
        if (p >= c->end) {
            return fail(c, "a string is cut");
        }
        if (*p == '"') {
            *raw = (Str){from, (size_t)(p - from)};
            c->p++;
            return (high & 0x8080808080808080u) == 0 || utf8_valid(*raw)
                   || fail(c, "a string is not valid UTF-8");
        }
        if (*p != '\\') {
            return fail(c, "a control byte stands in a string");
        }
        c->p++;
        if (!escape(c)) {
            return false;
        }
    }
}

typedef struct Number {
    const char *from;
    uint64_t digits;  /* the first 19 significant ones */
    int count;        /* significant digits in all */
    int exponent;     /* of ten, for `digits` */
    bool negative, integral;
} Number;

static bool is_digit(const JsonCursor *c)
{
    return c->p < c->end && *c->p >= '0' && *c->p <= '9';
}

static void add_digit(Number *n, char digit, bool fraction)
{
    if (n->count > 0 || digit != '0') {
        if (n->count++ < 19) {
            n->digits = n->digits * 10 + (uint64_t)(digit - '0');
        } else if (!fraction) {
            n->exponent++;
            return;
        } else {
            return;
        }
    }
    n->exponent -= fraction ? 1 : 0;
}

static bool number_exponent(JsonCursor *c, Number *n)
{
    n->integral = false;
    c->p++;
    bool down = c->p < c->end && *c->p == '-';
    if (c->p < c->end && (*c->p == '-' || *c->p == '+')) {
        c->p++;
    }
    if (!is_digit(c)) {
        return fail(c, "an exponent is missing");
    }
    int exponent = 0;
    for (; is_digit(c); c->p++) {
        exponent = exponent < 100000 ? exponent * 10 + (*c->p - '0') : exponent;
    }
    n->exponent += down ? -exponent : exponent;
    return true;
}

static bool number(JsonCursor *c, Number *n)
{
    json_blanks(c);
    *n = (Number){.from = c->p, .integral = true};
    if (c->p < c->end && *c->p == '-') {
        n->negative = true;
        c->p++;
    }
    if (!is_digit(c)) {
        return fail(c, "a value is missing");
    }
    if (*c->p == '0') {
        c->p++;
        if (is_digit(c)) {
            return fail(c, "a number begins with 0");
        }
    }
    for (; is_digit(c); c->p++) {
        add_digit(n, *c->p, false);
    }
    if (c->p < c->end && *c->p == '.') {
        n->integral = false;
        c->p++;
        if (!is_digit(c)) {
            return fail(c, "a fraction is missing");
        }
        for (; is_digit(c); c->p++) {
            add_digit(n, *c->p, true);
        }
    }
    if (c->p < c->end && (*c->p == 'e' || *c->p == 'E')) {
        return number_exponent(c, n);
    }
    return true;
}

/* A count of up to seven digits with something plain behind it, which nearly all are. */
static bool short_count(JsonCursor *c, int64_t *out)
{
    if (c->end - c->p < DIGITS_WORD) {
        return false;
    }
    const uint64_t word = digits_load(c->p);
    const unsigned n = digits_run(word);
    if (n == 0 || n == DIGITS_WORD || (n > 1 && *c->p == '0')
        || (c->p[n] != ',' && c->p[n] != '}')) {
        return false;
    }
    *out = digits_value(word, n);
    c->p += n;
    return true;
}

bool json_integer(JsonCursor *c, int64_t *out)
{
    Number n;
    if (short_count(c, out)) {
        return true;
    }
    if (!number(c, &n)) {
        return false;
    }
    if (!n.integral || n.count > 18) { /* 18 digits always fit */
        return fail(c, "a whole number is missing");
    }
    *out = n.negative ? -(int64_t)n.digits : (int64_t)n.digits;
    return true;
}

bool json_float(JsonCursor *c, float *out)
{
    Number n;
    if (!number(c, &n)) {
        return false;
    }
    if (n.count <= 19 && n.exponent <= 0 && n.exponent > -DIGITS_TENS
        && digits_to_float(n.digits, (unsigned)-n.exponent, out)) {
        *out = n.negative ? -*out : *out;
        return true;
    }
    double value = 0.0;
    if (!str_to_double((Str){n.from, (size_t)(c->p - n.from)}, &value)) {
        value = n.negative ? -1e300 : 1e300; /* out of range: infinite as a float */
    }
    *out = (float)value;
    return true;
}

static bool word(JsonCursor *c, const char *text, size_t n)
{
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, text, n) != 0) {
        return fail(c, "a value is missing");
    }
    c->p += n;
    return true;
}

bool json_null(JsonCursor *c)
{
    return json_peek(c) == 'n' && word(c, "null", 4);
}

static const char *digits_end(const char *p, const char *end)
{
#ifdef __SSE2__
    while (end - p >= (ptrdiff_t)sizeof(__m128i)) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i value = _mm_sub_epi8(bytes, _mm_set1_epi8('0'));
        __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(value, _mm_set1_epi8(9)), value);
        unsigned others = ~(unsigned)_mm_movemask_epi8(digit) & 0xffff;
        if (others) {
            return p + __builtin_ctz(others);
        }
        p += sizeof(__m128i);
    }
#endif
    while (p < end && *p >= '0' && *p <= '9') {
        p++;
    }
    return p;
}

/* Past one digit or more; NULL: there is none. */
static inline const char *some_digits(const char *p, const char *end)
{
    const char *behind = digits_end(p, end);
    return behind > p ? behind : NULL;
}

/* The grammar of number() without its value: times and counts that nobody reads are in every
 * event. */
static bool skip_number(JsonCursor *c)
{
    const char *end = c->end;
    const char *from = c->p + (c->p < end && *c->p == '-');
    const char *p = some_digits(from, end);
    if (!p) {
        return fail(c, "a value is missing");
    }
    if (*from == '0' && p > from + 1) {
        return fail(c, "a number begins with 0");
    }
    if (p < end && *p == '.' && !(p = some_digits(p + 1, end))) {
        return fail(c, "a fraction is missing");
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        p += p < end && (*p == '-' || *p == '+');
        if (!(p = some_digits(p, end))) {
            return fail(c, "an exponent is missing");
        }
    }
    c->p = p;
    return true;
}

static bool skip_parts(JsonCursor *c, char open)
{
    bool first = true;
    Str key;
    json_enter(c, open);
    while (open == '{' ? json_member(c, &first, &key) : json_element(c, &first)) {
        json_skip(c);
    }
    return !c->error;
}

bool json_skip(JsonCursor *c)
{
    Str raw;
    const char next = json_peek(c);
    switch (next) {
    case '{':
    case '[': return skip_parts(c, next);
    case '"': return json_raw_string(c, &raw);
    case 't': return word(c, "true", 4);
    case 'f': return word(c, "false", 5);
    case 'n': return word(c, "null", 4);
    default: return skip_number(c);
    }
}

static uint32_t four_hex(const char *p)
{
    uint32_t code = 0;
    for (int i = 0; i < 4; i++) {
        code = code * 16 + (uint32_t)hex_digit(p[i]);
    }
    return code;
}

static char plain_escape(char ch)
{
    switch (ch) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return ch;
    }
}

bool json_decode(Str raw, Text *out)
{
    const char *p = raw.p;
    const char *end = raw.p + raw.n;
    while (p < end) {
        const char *slash = memchr(p, '\\', (size_t)(end - p));
        const char *stop = slash ? slash : end;
        if (stop > p && !text_add(out, p, (size_t)(stop - p))) {
            return false;
        }
        if (!slash) {
            break;
        }
        p = slash + 2;
        if (slash[1] != 'u') {
            if (!text_add_char(out, plain_escape(slash[1]))) {
                return false;
            }
            continue;
        }
        uint32_t code = four_hex(p);
        p += 4;
        if (code >= 0xD800 && code < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
            uint32_t low = four_hex(p + 2);
            if (low >= 0xDC00 && low < 0xE000) {
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                p += 6;
            }
        }
        char bytes[4];
        size_t n = utf8_encode(code, bytes);
        if (!text_add(out, bytes, n)) {
            return false;
        }
    }
    return true;
}
