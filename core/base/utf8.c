#include "core/base/utf8.h"

#include <string.h>

/* Allowed range of the second byte depends on the first (Unicode table 3-7). */
static int sequence(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (first >= 0xc2 && first <= 0xdf) {
        return 2;
    }
    if (first >= 0xe0 && first <= 0xef) {
        *low = first == 0xe0 ? 0xa0 : 0x80;
        *high = first == 0xed ? 0x9f : 0xbf;
        return 3;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        *low = first == 0xf0 ? 0x90 : 0x80;
        *high = first == 0xf4 ? 0x8f : 0xbf;
        return 4;
    }
    return 0;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *code, bool *partial)
{
    const unsigned char *u = (const unsigned char *)s;
    *partial = false;
    *code = 0xfffd;
    if (n == 0) {
        return 0;
    }
    if (u[0] < 0x80) {
        *code = u[0];
        return 1;
    }
    unsigned char low = 0;
    unsigned char high = 0;
    int length = sequence(u[0], &low, &high);
    if (length == 0) {
        return 1;
    }
    uint32_t value = u[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= n) {
            *partial = true;
            return n;
        }
        if (u[i] < low || u[i] > high) {
            return (size_t)i;
        }
        value = (value << 6) | (u[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *code = value;
    return (size_t)length;
}

size_t utf8_encode(uint32_t code, char out[4])
{
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        code = 0xfffd;
    }
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | (code >> 6));
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | (code >> 12));
        out[1] = (char)(0x80 | ((code >> 6) & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (code >> 18));
    out[1] = (char)(0x80 | ((code >> 12) & 0x3f));
    out[2] = (char)(0x80 | ((code >> 6) & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* U+FFFD itself is valid text when it stands there as its three bytes. */
static bool is_replacement(const char *s, size_t n)
{
    return n == 3 && (unsigned char)s[0] == 0xef && (unsigned char)s[1] == 0xbf &&
           (unsigned char)s[2] == 0xbd;
}

bool utf8_harmless(uint32_t code)
{
    bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    bool format = (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
                  (code >= 0x2060 && code <= 0x206f) || code == 0xfeff || code >= 0xe0000;
    return !control && !format;
}

bool utf8_valid(Str s)
{
    for (size_t i = 0; i < s.n;) {
        uint64_t word = 0;
        while (s.n - i >= sizeof word) { /* most of what comes is ASCII */
            memcpy(&word, s.p + i, sizeof word);
            if (word & 0x8080808080808080u) {
                break;
            }
            i += sizeof word;
        }
        if (i == s.n) {
            return true;
        }
        uint32_t code = 0;
        bool partial = false;
        size_t step = utf8_decode(s.p + i, s.n - i, &code, &partial);
        if (code == 0xfffd && !is_replacement(s.p + i, step)) {
            return false;
        }
        i += step;
    }
    return true;
}

void utf8_defuse(char *text)
{
    size_t n = strlen(text);
    size_t out = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code = 0;
        bool partial = false;
        size_t step = utf8_decode(text + at, n - at, &code, &partial);
        if (code == 0xfffd || !utf8_harmless(code)) {
            text[out++] = '?';
        } else {
            memmove(text + out, text + at, step);
            out += step;
        }
        at += step;
    }
    text[out] = '\0';
}

bool utf8_add_clean(Text *out, Str s)
{
    bool good = true;
    size_t start = 0;
    for (size_t i = 0; i < s.n;) {
        uint32_t code = 0;
        bool partial = false;
        size_t step = utf8_decode(s.p + i, s.n - i, &code, &partial);
        if (code == 0xfffd && !is_replacement(s.p + i, step)) {
            good = text_add(out, s.p + start, i - start) && text_add(out, "\xef\xbf\xbd", 3) &&
                   good;
            start = i + step;
        }
        i += step;
    }
    return text_add(out, s.p + start, s.n - start) && good;
}
