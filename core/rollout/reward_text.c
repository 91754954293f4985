#include "core/rollout/reward_text.h"

#include "core/base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

uint32_t reward_code(Str s, size_t at, size_t *n)
{
    uint32_t code;
    bool partial;
    *n = utf8_decode(s.p + at, s.n - at, &code, &partial);
    return code;
}

bool reward_is_blank(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool reward_is_alpha(uint32_t code)
{
    if (code < 0x80) {
        return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
    }
    int category = (int)utf8proc_category((utf8proc_int32_t)code);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool reward_is_word(uint32_t code)
{
    if (code < 0x80) {
        return reward_is_alpha(code) || (code >= '0' && code <= '9') || code == '_';
    }
    int category = (int)utf8proc_category((utf8proc_int32_t)code);
    return reward_is_alpha(code) ||
           (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

int reward_digit(uint32_t code)
{
    /* the zero of each run of ten decimal digits, Unicode 14 */
    static const uint32_t zeros[] = {
        0x30, 0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66,
        0xDE6, 0xE50, 0xED0, 0xF20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90,
        0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0,
        0xFF10, 0x104A0, 0x10D30, 0x11066, 0x110F0, 0x11136, 0x111D0, 0x112F0, 0x11450, 0x114D0,
        0x11650, 0x116C0, 0x11730, 0x118E0, 0x11950, 0x11C50, 0x11D50, 0x11DA0, 0x16A60, 0x16AC0,
        0x16B50, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6, 0x1E140, 0x1E2F0, 0x1E950, 0x1FBF0};
    for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++) {
        if (code < zeros[i]) {
            return -1;
        }
        if (code < zeros[i] + 10) {
            return (int)(code - zeros[i]);
        }
    }
    return -1;
}

Str reward_trim(Str s)
{
    size_t from = 0;
    size_t n;
    while (from < s.n && reward_is_blank(reward_code(s, from, &n))) {
        from += n;
    }
    size_t end = from;
    for (size_t i = from; i < s.n; i += n) {
        if (!reward_is_blank(reward_code(s, i, &n))) {
            end = i + n;
        }
    }
    return str_slice(s, from, end);
}

bool reward_lower(Str s, Text *out)
{
    size_t n;
    for (size_t i = 0; i < s.n; i += n) {
        char bytes[4];
        uint32_t code = reward_code(s, i, &n);
        if (code == 0x130) { /* the one letter whose lower case is two code points */
            if (!text_add_c(out, "i\xCC\x87")) {
                return false;
            }
            continue;
        }
        uint32_t low = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
        if (!text_add(out, bytes, utf8_encode(low, bytes))) {
            return false;
        }
    }
    return true;
}

bool reward_find_nocase(Str s, Str lower, size_t *at)
{
    for (size_t i = 0; i + lower.n <= s.n; i++) {
        if (str_equal_nocase(str_slice(s, i, i + lower.n), lower)) {
            *at = i;
            return true;
        }
    }
    return false;
}

void reward_set(Text *text, Str s)
{
    Text copy;
    text_init(&copy, text->max);
    (void)text_add_str(&copy, s);
    copy.cut = copy.cut || text->cut;
    text_free(text);
    *text = copy;
}

void reward_replace(Text *text, const char *from, const char *to)
{
    Str rest = text_str(text);
    Str needle = str_from(from);
    size_t at;
    if (!str_find(rest, needle, &at)) {
        return;
    }
    Text out;
    text_init(&out, text->max);
    do {
        (void)text_add(&out, rest.p, at);
        (void)text_add_c(&out, to);
        rest = str_slice(rest, at + needle.n, rest.n);
    } while (str_find(rest, needle, &at));
    (void)text_add_str(&out, rest);
    out.cut = out.cut || text->cut;
    text_free(text);
    *text = out;
}

/* Digits with single underscores between them; appends them as ASCII. Count of digits. */
static size_t digits(Str s, size_t *at, Text *out)
{
    size_t count = 0;
    while (*at < s.n) {
        size_t n;
        size_t place = *at;
        if (s.p[place] == '_' && count > 0) {
            place++;
            if (place >= s.n) {
                break;
            }
        }
        int digit = reward_digit(reward_code(s, place, &n));
        if (digit < 0) {
            break;
        }
        (void)text_add_char(out, (char)('0' + digit));
        *at = place + n;
        count++;
    }
    return count;
}

static bool decimal(Str s, Text *out)
{
    size_t at = 0;
    size_t whole = digits(s, &at, out);
    size_t fraction = 0;
    if (at < s.n && s.p[at] == '.') {
        at++;
        (void)text_add_c(out, whole > 0 ? "." : "0.");
        fraction = digits(s, &at, out);
        if (fraction == 0) {
            (void)text_add_char(out, '0');
        }
    }
    if (whole + fraction == 0) {
        return false;
    }
    if (at < s.n && (s.p[at] == 'e' || s.p[at] == 'E')) {
        at++;
        (void)text_add_char(out, 'e');
        if (at < s.n && (s.p[at] == '+' || s.p[at] == '-')) {
            (void)text_add_char(out, s.p[at++]);
        }
        if (digits(s, &at, out) == 0) {
            return false;
        }
    }
    return at == s.n && !out->cut;
}

bool reward_float(Str s, double *out)
{
    s = reward_trim(s);
    bool negative = s.n > 0 && s.p[0] == '-';
    if (s.n > 0 && (s.p[0] == '-' || s.p[0] == '+')) {
        s = str_slice(s, 1, s.n);
    }
    if (str_equal_nocase(s, STR("inf")) || str_equal_nocase(s, STR("infinity"))) {
        *out = negative ? -INFINITY : INFINITY;
        return true;
    }
    if (str_equal_nocase(s, STR("nan"))) {
        *out = NAN;
        return true;
    }
    Text text;
    text_init(&text, 4096); /* longer numbers mean nothing as a double */
    bool good = decimal(s, &text);
    double v = 0.0;
    if (good && !str_to_double(text_str(&text), &v)) {
        v = strtod(text_c(&text), NULL); /* right form, but long or too large */
    }
    text_free(&text);
    *out = negative ? -v : v;
    return good;
}
