/* Is (label)-(given) zero? The reference asks a computer algebra system; here both are evaluated
 * in complex long doubles at points that no identity meets by chance, which decides the same for
 * what the rule lets through: numbers, surds, pi, powers and at most two letters. Points off the
 * real axis and with negative real part tell sqrt(x^2) from x. */
#include "core/rollout/reward_math.h"

#include "core/rollout/reward_text.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Half a unit of a double, as decimals have no more digits in the reference; and what the terms
 * lost to rounding here. */
static const long double SAME = 5e-17L;
static const long double ROUNDING = 1e-18L;
enum { EXPRESSION_MAX = 4096, DEPTH_MAX = 200, POINTS = 4, LETTERS = 16 };

typedef long double complex Value;

static Value make(long double re, long double im)
{
    Value v;
    long double parts[2] = {re, im};
    memcpy(&v, parts, sizeof parts); /* CMPLXL is not everywhere */
    return v;
}

typedef struct Parser {
    Str s;
    size_t at;
    size_t name_end; /* of the word being read: its digits are whole numbers */
    int depth;
    int point;               /* which set of sample values */
    uint32_t letters[LETTERS]; /* in order of appearance */
    int letter_count;
    long double scale; /* the largest magnitude met */
    bool good;
} Parser;

/* ---- what may be tried ---- */

static bool count_letters(Str s, uint32_t seen[LETTERS], int *count)
{
    for (size_t i = 0; i < s.n;) {
        Str rest = str_slice(s, i, s.n);
        size_t n;
        if (str_starts(rest, STR("sqrt")) || str_starts(rest, STR("frac"))) {
            i += 4;
            continue;
        }
        uint32_t code = reward_code(s, i, &n);
        i += n;
        bool known = !reward_is_alpha(code);
        for (int k = 0; k < *count && !known; k++) {
            known = seen[k] == code;
        }
        if (!known) {
            if (*count == 2) {
                return false;
            }
            seen[(*count)++] = code;
        }
    }
    return true;
}

static bool is_digit_at(Str s, size_t i)
{
    return i < s.n && s.p[i] >= '0' && s.p[i] <= '9';
}

static bool powers_allowed(Str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '^') {
            continue;
        }
        if (i + 1 < s.n && (s.p[i + 1] == '{' || s.p[i + 1] == '(')) {
            return false;
        }
        if (is_digit_at(s, i + 1) &&
            (is_digit_at(s, i + 2) || (i + 2 < s.n && s.p[i + 2] == '^'))) {
            return false;
        }
    }
    return true;
}

/* ---- the grammar: sum > product > unary > power > atom, with implied products ---- */

static Value sum(Parser *p);

static char peek(const Parser *p)
{
    return p->at < p->s.n ? p->s.p[p->at] : '\0';
}

static Value fail(Parser *p)
{
    p->good = false;
    return make(NAN, 0);
}

static Value note(Parser *p, Value v)
{
    long double size = cabsl(v);
    if (size > p->scale) {
        p->scale = size;
    }
    return v;
}

static Value number(Parser *p)
{
    char buffer[64];
    size_t from = p->at;
    size_t digits = 0;
    while (is_digit_at(p->s, p->at)) {
        p->at++;
        digits++;
    }
    bool inside = from < p->name_end; /* x2.5 is x, 2 and .5 in the reference's language */
    if (inside) {
        /* nothing more belongs to it */
    } else if (peek(p) == '.') {
        p->at++;
        while (is_digit_at(p->s, p->at)) {
            p->at++;
            digits++;
        }
    } else if (digits > 1 && p->s.p[from] == '0') {
        for (size_t i = from; i < p->at; i++) {
            if (p->s.p[i] != '0') {
                return fail(p); /* 012 is no number in the reference's language */
            }
        }
    }
    if (digits == 0) {
        return fail(p);
    }
    size_t mark = p->at;
    if (!inside && peek(p) == 'e') {
        p->at++;
        if (peek(p) == '+' || peek(p) == '-') {
            p->at++;
        }
        if (!is_digit_at(p->s, p->at)) {
            p->at = mark; /* a letter e */
        }
        while (is_digit_at(p->s, p->at)) {
            p->at++;
        }
    }
    if (!str_format(buffer, sizeof buffer, "%.*s", (int)(p->at - from), p->s.p + from)) {
        return fail(p);
    }
    return note(p, make(strtold(buffer, NULL), 0));
}

static Value letter(Parser *p, uint32_t code)
{
    static const long double samples[POINTS][2][2] = {
        {{0.8317L, 1.1379L}, {1.7071L, -0.4363L}},
        {{-1.3247L, 0.6123L}, {0.5671L, 1.2020L}},
        {{-0.7390L, -1.4513L}, {-1.1319L, 0.3275L}},
        {{2.2360L, -0.9159L}, {-0.6434L, -1.7724L}},
    };
    int k = 0;
    while (k < p->letter_count && p->letters[k] != code) {
        k++;
    }
    if (k == p->letter_count) {
        if (k == LETTERS) {
            return fail(p);
        }
        p->letters[p->letter_count++] = code;
    }
    const long double *sample = samples[p->point][k % 2];
    long double shift = (long double)(k / 2) * 0.3719L;
    return note(p, make(sample[0] + shift, sample[1] - shift));
}

static Value bracket(Parser *p)
{
    p->at++;
    Value v = sum(p);
    if (peek(p) != ')') {
        return fail(p);
    }
    p->at++;
    return v;
}

/* A word: a known name, else the product of its letters and digits. */
static Value word(Parser *p)
{
    size_t n = 0;
    size_t m;
    Str rest = str_slice(p->s, p->at, p->s.n);
    while (n < rest.n) {
        uint32_t code = reward_code(rest, n, &m);
        if (!reward_is_alpha(code) && !(n > 0 && is_digit_at(rest, n))) {
            break;
        }
        n += m;
    }
    Str name = str_slice(rest, 0, n);
    bool called = n < rest.n && rest.p[n] == '(';
    if (str_equal(name, STR("pi"))) {
        p->at += n;
        return note(p, make(acosl(-1.0L), 0));
    }
    if (str_equal(name, STR("sqrt")) || str_equal(name, STR("ln"))) {
        bool is_root = name.n == 4;
        p->at += n;
        if (!called) {
            return fail(p);
        }
        Value v = bracket(p);
        return note(p, is_root ? csqrtl(v) : clogl(v));
    }
    static const char *const functions[] = {"re", "im", "li", "ff", "rf"};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (str_equal(name, str_from(functions[i]))) {
            return fail(p); /* functions of the reference's algebra, not letters */
        }
    }
    p->name_end = p->at + n;
    uint32_t code = reward_code(rest, 0, &m);
    p->at += m;
    return letter(p, code);
}

static Value atom(Parser *p)
{
    char c = peek(p);
    size_t n;
    if (c == '(') {
        return bracket(p);
    }
    if ((c >= '0' && c <= '9') || c == '.') {
        return number(p);
    }
    if (p->at < p->s.n && reward_is_alpha(reward_code(p->s, p->at, &n))) {
        return word(p);
    }
    return fail(p);
}

static bool starts_atom(const Parser *p)
{
    size_t n;
    char c = peek(p);
    return c == '(' || (c >= '0' && c <= '9') || c == '.' ||
           (p->at < p->s.n && reward_is_alpha(reward_code(p->s, p->at, &n)));
}

static Value unary(Parser *p);

static bool take_power(Parser *p)
{
    if (peek(p) == '^') {
        p->at++;
        return true;
    }
    if (str_starts(str_slice(p->s, p->at, p->s.n), STR("**"))) {
        p->at += 2;
        return true;
    }
    return false;
}

static Value whole_power(Value base, long double exponent)
{
    Value result = make(1, 0);
    long n = labs((long)exponent);
    for (Value square = base; n > 0; n >>= 1, square *= square) {
        if ((n & 1) != 0) {
            result *= square;
        }
    }
    return exponent < 0 ? 1.0L / result : result;
}

static Value power(Parser *p)
{
    Value base = atom(p);
    if (!p->good || !take_power(p)) {
        return base;
    }
    Value exponent = unary(p);
    bool whole = cimagl(exponent) == 0.0L && fabsl(creall(exponent)) <= 4096.0L &&
                 truncl(creall(exponent)) == creall(exponent);
    return note(p, whole ? whole_power(base, creall(exponent)) : cpowl(base, exponent));
}

static Value unary(Parser *p)
{
    int sign = 1;
    if (++p->depth > DEPTH_MAX) {
        return fail(p);
    }
    while (peek(p) == '-' || peek(p) == '+') {
        sign = peek(p) == '-' ? -sign : sign;
        p->at++;
    }
    Value v = power(p);
    p->depth--;
    return sign < 0 ? -v : v;
}

static Value product(Parser *p)
{
    Value v = unary(p);
    while (p->good) {
        char c = peek(p);
        if (c == '*' && !str_starts(str_slice(p->s, p->at, p->s.n), STR("**"))) {
            p->at++;
            v = note(p, v * unary(p));
        } else if (c == '/') {
            p->at++;
            v = note(p, v / unary(p));
        } else if (starts_atom(p)) {
            v = note(p, v * power(p));
        } else {
            break;
        }
    }
    return v;
}

static Value sum(Parser *p)
{
    if (++p->depth > DEPTH_MAX) {
        return fail(p);
    }
    Value v = product(p);
    while (p->good && (peek(p) == '+' || peek(p) == '-')) {
        bool minus = peek(p) == '-';
        p->at++;
        Value next = product(p);
        v = minus ? v - next : v + next;
    }
    p->depth--;
    return v;
}

static Value evaluate(Parser *p, Str s)
{
    p->s = s;
    p->at = 0;
    p->name_end = 0;
    p->depth = 0;
    Value v = sum(p);
    return p->good && p->at == s.n ? v : fail(p);
}

bool math_symbolic_equal(Str label, Str given)
{
    uint32_t seen[LETTERS];
    int count = 0;
    if (label.n + given.n > EXPRESSION_MAX || !count_letters(label, seen, &count) ||
        !count_letters(given, seen, &count) || !powers_allowed(label) || !powers_allowed(given)) {
        return false;
    }
    for (int point = 0; point < POINTS; point++) {
        Parser p = {.point = point, .good = true};
        Value a = evaluate(&p, label);
        Value b = evaluate(&p, given);
        long double difference = cabsl(a - b);
        long double allowed = cabsl(a) * SAME + p.scale * ROUNDING;
        if (!p.good || !isfinite(difference) || difference > allowed) {
            return false;
        }
    }
    return true;
}
