#include "core/base/str.h"

#include "core/base/mem.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Str str_from(const char *c_string)
{
    return (Str){c_string, c_string ? strlen(c_string) : 0};
}

bool str_equal(Str a, Str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

bool str_equal_nocase(Str a, Str b)
{
    if (a.n != b.n) {
        return false;
    }
    for (size_t i = 0; i < a.n; i++) {
        if (lower(a.p[i]) != lower(b.p[i])) {
            return false;
        }
    }
    return true;
}

bool str_starts(Str s, Str prefix)
{
    return s.n >= prefix.n && str_equal((Str){s.p, prefix.n}, prefix);
}

bool str_ends(Str s, Str suffix)
{
    return s.n >= suffix.n && str_equal((Str){s.p + (s.n - suffix.n), suffix.n}, suffix);
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

Str str_trim(Str s)
{
    while (s.n > 0 && is_blank(s.p[0])) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && is_blank(s.p[s.n - 1])) {
        s.n--;
    }
    return s;
}

Str str_slice(Str s, size_t from, size_t to)
{
    if (to > s.n) {
        to = s.n;
    }
    if (from > to) {
        from = to;
    }
    return (Str){s.p ? s.p + from : s.p, to - from};
}

bool str_find(Str s, Str needle, size_t *at)
{
    if (needle.n > s.n) {
        return false;
    }
    if (needle.n == 0) {
        *at = 0;
        return true;
    }
    const char *found = memmem(s.p, s.n, needle.p, needle.n);
    if (!found) {
        return false;
    }
    *at = (size_t)(found - s.p);
    return true;
}

bool str_rfind(Str s, Str needle, size_t *at)
{
    if (needle.n > s.n) {
        return false;
    }
    for (size_t i = s.n - needle.n + 1; i-- > 0;) {
        if (needle.n == 0 || memcmp(s.p + i, needle.p, needle.n) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

bool str_split(Str *rest, char separator, Str *part)
{
    if (rest->n == 0) {
        return false;
    }
    const char *found = memchr(rest->p, separator, rest->n);
    if (!found) {
        *part = *rest;
        *rest = (Str){rest->p + rest->n, 0};
        return true;
    }
    *part = (Str){rest->p, (size_t)(found - rest->p)};
    *rest = (Str){found + 1, rest->n - part->n - 1};
    return true;
}

bool str_to_u64(Str s, uint64_t *out)
{
    uint64_t v = 0;
    if (s.n == 0 || s.n > 20) {
        return false;
    }
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9' || __builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v)) {
            return false;
        }
    }
    *out = v;
    return true;
}

bool str_to_i64(Str s, int64_t *out)
{
    bool negative = s.n > 0 && s.p[0] == '-';
    if (negative || (s.n > 0 && s.p[0] == '+')) {
        s = str_slice(s, 1, s.n);
    }
    uint64_t v = 0;
    if (!str_to_u64(s, &v) || v > (uint64_t)INT64_MAX + (negative ? 1u : 0u)) {
        return false;
    }
    *out = negative ? (int64_t)(0u - v) : (int64_t)v;
    return true;
}

bool str_to_double(Str s, double *out)
{
    /* The decimal grammar is checked first: strtod also takes hex, "nan" and locale points. */
    char buffer[128];
    if (s.n == 0 || s.n >= sizeof buffer) {
        return false;
    }
    size_t i = s.p[0] == '-' || s.p[0] == '+' ? 1 : 0;
    size_t digits = 0;
    bool point = false;
    for (; i < s.n; i++) {
        char c = s.p[i];
        if (c >= '0' && c <= '9') {
            digits++;
        } else if (c == '.' && !point) {
            point = true;
        } else {
            break;
        }
    }
    if (digits == 0) {
        return false;
    }
    if (i < s.n && (s.p[i] == 'e' || s.p[i] == 'E')) {
        i++;
        if (i < s.n && (s.p[i] == '-' || s.p[i] == '+')) {
            i++;
        }
        size_t exponent = i;
        while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9') {
            i++;
        }
        if (i == exponent) {
            return false;
        }
    }
    if (i != s.n) {
        return false;
    }
    memcpy(buffer, s.p, s.n);
    buffer[s.n] = '\0';
    static locale_t c_locale; /* made once, never freed: the process's only one */
    locale_t locale = __atomic_load_n(&c_locale, __ATOMIC_ACQUIRE);
    if (!locale) {
        locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        __atomic_store_n(&c_locale, locale, __ATOMIC_RELEASE);
    }
    double v = strtod_l(buffer, NULL, locale);
    if (!isfinite(v)) {
        return false;
    }
    *out = v;
    return true;
}

int str_distance(Str a, Str b, int limit)
{
    enum { MAX = 128 };
    if (a.n > MAX || b.n > MAX) {
        return limit;
    }
    int row[MAX + 1];
    for (size_t j = 0; j <= b.n; j++) {
        row[j] = (int)j;
    }
    for (size_t i = 1; i <= a.n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b.n; j++) {
            int above = row[j];
            int best = diagonal + (lower(a.p[i - 1]) == lower(b.p[j - 1]) ? 0 : 1);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[b.n] < limit ? row[b.n] : limit;
}

/* ---- Text --------------------------------------------------------------------------------- */

void text_init(Text *text, size_t max)
{
    *text = (Text){.max = max};
}

void text_free(Text *text)
{
    if (text) {
        free(text->p);
        text_init(text, text->max);
    }
}

void text_clear(Text *text)
{
    text->n = 0;
    text->cut = false;
    if (text->p) {
        text->p[0] = '\0';
    }
}

bool text_reserve(Text *text, size_t extra)
{
    size_t need = 0;
    if (!size_add(text->n, extra, &need) || need > text->max) {
        text->cut = true;
        return false;
    }
    if (need + 1 <= text->capacity) {
        return true;
    }
    size_t capacity = text->capacity ? text->capacity * 2 : 64;
    if (capacity < need + 1) {
        capacity = need + 1;
    }
    char *grown = realloc(text->p, capacity);
    if (!grown) {
        text->cut = true;
        return false;
    }
    text->p = grown;
    text->capacity = capacity;
    text->p[text->n] = '\0';
    return true;
}

bool text_add(Text *text, const void *bytes, size_t n)
{
    if (!text_reserve(text, n)) {
        return false;
    }
    if (n) {
        memcpy(text->p + text->n, bytes, n);
    }
    text->n += n;
    text->p[text->n] = '\0';
    return true;
}

bool text_add_str(Text *text, Str s)
{
    return text_add(text, s.p, s.n);
}

bool text_add_c(Text *text, const char *c_string)
{
    return text_add(text, c_string, strlen(c_string));
}

bool text_add_char(Text *text, char c)
{
    if (text->n + 1 < text->capacity && text->n < text->max) {
        text->p[text->n++] = c;
        text->p[text->n] = '\0';
        return true;
    }
    return text_add(text, &c, 1);
}

bool text_addf(Text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool good = n >= 0 && text_reserve(text, (size_t)n);
    if (good) {
        vsnprintf(text->p + text->n, (size_t)n + 1, format, again);
        text->n += (size_t)n;
    } else {
        text->cut = true;
    }
    va_end(again);
    return good;
}

Str text_str(const Text *text)
{
    return (Str){text->p, text->n};
}

const char *text_c(const Text *text)
{
    return text->p ? text->p : "";
}

char *text_take(Text *text)
{
    char *p = text->p ? text->p : xstrdup("");
    text_init(text, text->max);
    return p;
}

bool str_format(char *buffer, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(buffer, size, format, args);
    va_end(args);
    return n >= 0 && (size_t)n < size;
}
