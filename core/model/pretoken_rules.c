/* Alternatives are tried in the order of the pattern; as each class excludes the others, no
 * alternative needs more back-tracking than one character. */
#include "core/model/pretoken_rules.h"

#include "core/base/utf8.h"

#include <string.h>

typedef struct Next {
    uint32_t code;
    size_t n;       /* bytes; 0 at the end */
    unsigned class_; /* UNICODE_… or 0 */
} Next;

static Next next_at(const UnicodeClasses *classes, Str s, size_t at)
{
    Next next = {0};
    bool partial;
    if (at >= s.n) {
        return next;
    }
    unsigned char byte = (unsigned char)s.p[at];
    if (byte < 0x80) {
        next.code = byte;
        next.n = 1;
    } else {
        next.n = utf8_decode(s.p + at, s.n - at, &next.code, &partial);
    }
    next.class_ = unicode_class(classes, next.code);
    return next;
}

/* End of the run of characters of one class from `at`, at most `limit` characters. */
static size_t run(const UnicodeClasses *classes, Str s, size_t at, unsigned class_, size_t limit)
{
    for (size_t i = 0; i < limit; i++) {
        Next next = next_at(classes, s, at);
        if (next.n == 0 || next.class_ != class_) {
            break;
        }
        at += next.n;
    }
    return at;
}

static bool is_newline(const Next *next)
{
    return next->n > 0 && (next->code == '\n' || next->code == '\r');
}

static uint32_t fold(uint32_t c, bool nocase)
{
    if (!nocase) {
        return c;
    }
    if (c >= 'A' && c <= 'Z') {
        return c + 32;
    }
    return c == 0x17F ? 's' : c; /* long s folds to s */
}

/* The match of 's|'t|'re|'ve|'m|'ll|'d, 0 when there is none. */
static size_t contraction(const UnicodeClasses *classes, Str s, bool nocase)
{
    if (s.n < 2 || s.p[0] != '\'') {
        return 0;
    }
    Next first = next_at(classes, s, 1);
    uint32_t a = fold(first.code, nocase);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 1 + first.n;
    }
    Next second = next_at(classes, s, 1 + first.n);
    uint32_t b = second.n > 0 ? fold(second.code, nocase) : 0;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
        return 1 + first.n + second.n;
    }
    return 0;
}

/* \s+(?!\S)|\s+ at a run of blanks: all of it at the end of the text, else all but the last,
 * else the single one. */
static size_t blanks(const UnicodeClasses *classes, Str s)
{
    size_t at = 0;
    size_t before_last = 0;
    for (;;) {
        Next next = next_at(classes, s, at);
        if (next.n == 0) {
            return at;
        }
        if (next.class_ != UNICODE_SPACE) {
            break;
        }
        before_last = at;
        at += next.n;
    }
    return before_last > 0 ? before_last : at;
}

/* \s*[\r\n]+ at a run of blanks: through its last newline; 0 when it has none. */
static size_t through_newlines(const UnicodeClasses *classes, Str s)
{
    size_t at = 0;
    size_t end = 0;
    for (;;) {
        Next next = next_at(classes, s, at);
        if (next.n == 0 || next.class_ != UNICODE_SPACE) {
            return end;
        }
        at += next.n;
        if (is_newline(&next)) {
            end = at;
        }
    }
}

size_t rule_qwen(const UnicodeClasses *classes, Str s, int digits)
{
    size_t n = contraction(classes, s, true);
    if (n > 0) {
        return n;
    }
    Next first = next_at(classes, s, 0);
    if (first.class_ == UNICODE_LETTER) {
        return run(classes, s, 0, UNICODE_LETTER, SIZE_MAX);
    }
    if (first.class_ == UNICODE_NUMBER) {
        return run(classes, s, 0, UNICODE_NUMBER, (size_t)digits);
    }
    Next second = next_at(classes, s, first.n);
    if (!is_newline(&first) && second.n > 0 && second.class_ == UNICODE_LETTER) {
        return run(classes, s, first.n, UNICODE_LETTER, SIZE_MAX);
    }
    bool leading = first.code == ' ' && second.n > 0 && second.class_ == 0;
    if (first.class_ == 0 || leading) {
        size_t at = run(classes, s, leading ? first.n : 0, 0, SIZE_MAX);
        while (at < s.n && (s.p[at] == '\r' || s.p[at] == '\n')) {
            at++;
        }
        return at;
    }
    n = through_newlines(classes, s);
    return n > 0 ? n : blanks(classes, s);
}

size_t rule_gpt2(const UnicodeClasses *classes, Str s)
{
    size_t n = contraction(classes, s, false);
    if (n > 0) {
        return n;
    }
    Next first = next_at(classes, s, 0);
    if (first.class_ != UNICODE_SPACE) {
        return run(classes, s, 0, first.class_, SIZE_MAX);
    }
    Next second = next_at(classes, s, first.n);
    if (first.code == ' ' && second.n > 0 && second.class_ != UNICODE_SPACE) {
        return run(classes, s, first.n, second.class_, SIZE_MAX);
    }
    return blanks(classes, s);
}
