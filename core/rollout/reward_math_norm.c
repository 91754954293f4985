/* The second normal form and the comparison element by element. */
#include "core/rollout/reward_math.h"

#include "core/rollout/reward_text.h"

#include <math.h>
#include <string.h>

/* ---- numbers ---- */

static bool near_integer(double v)
{
    return isfinite(v) && fabs(v - nearbyint(v)) <= 1e-7;
}

static void set_integer(Text *text, double v)
{
    char buffer[400];
    (void)str_format(buffer, sizeof buffer, "%.0f", v == 0.0 ? 0.0 : v);
    reward_set(text, str_from(buffer));
}

/* The text without commas between a digit and exactly three digits. */
static void math_strip_commas(Str s, Text *out)
{
    reward_set(out, s);
    for (bool again = true; again;) {
        Str t = text_str(out);
        Text next;
        again = false;
        text_init(&next, out->max);
        for (size_t i = 0; i < t.n; i++) {
            size_t n;
            bool comma = t.p[i] == ',' && i > 0;
            size_t from = i;
            while (comma && from > 0 && ((unsigned char)t.p[from - 1] & 0xC0) == 0x80) {
                from--;
            }
            comma = comma && reward_digit(reward_code(t, from - 1, &n)) >= 0;
            size_t at = i + 1;
            for (int k = 0; comma && k < 3; k++) {
                comma = at < t.n && reward_digit(reward_code(t, at, &n)) >= 0;
                at += comma ? n : 0;
            }
            comma = comma && (at == t.n || reward_digit(reward_code(t, at, &n)) < 0);
            if (comma) { /* as the pattern: the character behind the digits is consumed too */
                (void)text_add(&next, t.p + i + 1, at - i - 1);
                if (at < t.n) {
                    (void)reward_code(t, at, &n);
                    (void)text_add(&next, t.p + at, n);
                    at += n;
                }
                i = at - 1;
                again = true;
            } else {
                (void)text_add_char(&next, t.p[i]);
            }
        }
        reward_set(out, text_str(&next));
        text_free(&next);
    }
}

/* an integer-valued float, with thousands commas or without */
static bool math_is_integer(Str s)
{
    Text text;
    double v;
    text_init(&text, s.n + 1);
    math_strip_commas(s, &text);
    bool good = reward_float(text_str(&text), &v) && near_integer(v);
    text_free(&text);
    return good;
}

/* ---- steps of the normal form ---- */

static bool is_ascii_digit(Str s, size_t at)
{
    return at < s.n && s.p[at] >= '0' && s.p[at] <= '9';
}

/* Deletes unit + "es"? + "s"? + blanks + ("^" digits)? wherever it stands. */
static void drop_unit(Text *text, Str unit)
{
    Str rest = text_str(text);
    size_t at;
    if (!str_find(rest, unit, &at)) {
        return;
    }
    Text out;
    text_init(&out, text->max);
    do {
        (void)text_add(&out, rest.p, at);
        rest = str_slice(rest, at + unit.n, rest.n);
        if (str_starts(rest, STR("es"))) {
            rest = str_slice(rest, 2, rest.n);
        }
        if (str_starts(rest, STR("s"))) {
            rest = str_slice(rest, 1, rest.n);
        }
        while (str_starts(rest, STR(" "))) {
            rest = str_slice(rest, 1, rest.n);
        }
        if (str_starts(rest, STR("^")) && is_ascii_digit(rest, 1)) {
            size_t n = 1;
            while (is_ascii_digit(rest, n)) {
                n++;
            }
            rest = str_slice(rest, n, rest.n);
        }
    } while (str_find(rest, unit, &at));
    (void)text_add_str(&out, rest);
    reward_set(text, text_str(&out));
    text_free(&out);
}

/* Deletes `head`, blanks, `tail` where they stand together; a tail may be empty. */
static void drop_spaced(Text *text, Str head, Str tail, const char *with)
{
    Text out;
    Str s = text_str(text);
    text_init(&out, text->max);
    for (size_t i = 0; i < s.n;) {
        Str rest = str_slice(s, i, s.n);
        size_t n = head.n;
        if (str_starts(rest, head)) {
            while (n < rest.n && rest.p[n] == ' ') {
                n++;
            }
            if (str_starts(str_slice(rest, n, rest.n), tail)) {
                (void)text_add_c(&out, with);
                i += n + tail.n;
                continue;
            }
        }
        (void)text_add_char(&out, s.p[i++]);
    }
    reward_set(text, text_str(&out));
    text_free(&out);
}

/* digit blanks digit becomes digit+digit; the second digit starts no new match. */
static void join_mixed(Text *text)
{
    Text out;
    Str s = text_str(text);
    text_init(&out, text->max);
    for (size_t i = 0; i < s.n;) {
        size_t k = i + 1;
        while (k < s.n && s.p[k] == ' ') {
            k++;
        }
        if (is_ascii_digit(s, i) && k > i + 1 && is_ascii_digit(s, k)) {
            (void)text_addf(&out, "%c+%c", s.p[i], s.p[k]);
            i = k + 1;
        } else {
            (void)text_add_char(&out, s.p[i++]);
        }
    }
    reward_set(text, text_str(&out));
    text_free(&out);
}

static void latex(Text *text)
{
    Text out;
    text_init(&out, text->max);
    Text spaced;
    text_init(&spaced, text->max);
    reward_set(&spaced, text_str(text));
    reward_replace(&spaced, "\\tfrac", "\\frac");
    reward_replace(&spaced, "\\dfrac", "\\frac");
    reward_replace(&spaced, "\\frac", " \\frac");
    if (math_latex_to_text(text_str(&spaced), &out)) {
        static const char *const names[][2] = {
            {"\xE2\x88\x9A", "sqrt"}, {"\xCF\x80", "pi"}, {"\xE2\x88\x9E", "inf"},
            {"\xE2\x88\xAA", "U"}, {"\xC2\xB7", "*"}, {"\xC3\x97", "*"}};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            reward_replace(&out, names[i][0], names[i][1]);
        }
        reward_set(text, reward_trim(text_str(&out)));
    }
    text_free(&out);
    text_free(&spaced);
}

static void words_n(Text *text)
{
    static const char *const changes[][2] = {
        {"\\%", "%"}, {"\\$", "$"}, {"$", ""}, {"%", ""}, {" or ", " , "}, {" and ", " , "},
        {"million", "*10^6"}, {"billion", "*10^9"}, {"trillion", "*10^12"}};
    static const char *const units[] = {"degree", "cm", "centimeter", "meter", "mile", "second",
                                        "minute", "hour", "day", "week", "month", "year", "foot",
                                        "feet", "inch", "yard"};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        reward_replace(text, changes[i][0], changes[i][1]);
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        drop_unit(text, str_from(units[i]));
    }
}

void math_normal_n(Str answer, Text *out)
{
    double v;
    Str s = answer;
    if (str_starts(s, STR("\\text{")) && str_ends(s, STR("}")) && s.n > 7 &&
        memchr(s.p, '\n', s.n) == NULL) {
        s = str_slice(s, 6, s.n - 1);
    }
    reward_set(out, s);
    words_n(out);
    drop_spaced(out, STR("^"), STR("\\circ"), "");
    if (out->n > 0 && out->p[0] == '{' && out->p[out->n - 1] == '}') {
        reward_set(out, str_slice(text_str(out), 1, out->n > 1 ? out->n - 1 : 1));
    }
    drop_spaced(out, STR(",\\!"), STR(""), "");
    if (reward_float(text_str(out), &v) && near_integer(v)) {
        set_integer(out, nearbyint(v));
    }
    if (memchr(text_c(out), '\\', out->n) != NULL) {
        latex(out);
    }
    drop_spaced(out, STR("-"), STR(""), "-");
    join_mixed(out);
    reward_replace(out, " ", "");
    reward_replace(out, "{", "");
    reward_replace(out, "}", "");
    Text low;
    text_init(&low, out->max);
    (void)reward_lower(text_str(out), &low);
    reward_set(out, text_str(&low));
    text_free(&low);
    if (math_is_integer(text_str(out))) {
        reward_replace(out, ",", "");
        if (reward_float(text_str(out), &v)) {
            set_integer(out, trunc(v));
        }
    }
}

/* ---- element by element ---- */

static bool is_bracket(char c)
{
    return c == '(' || c == ')' || c == '[' || c == ']';
}

/* One element of "(a,b,…)" at a time; the whole text when it is no such list. */
typedef struct Elements {
    Str rest;
    bool list;
} Elements;

static Elements elements(Str s)
{
    bool list = s.n > 2 && is_bracket(s.p[0]) && is_bracket(s.p[s.n - 1]);
    for (size_t i = 1; list && i + 1 < s.n; i++) {
        list = !is_bracket(s.p[i]);
    }
    return (Elements){list ? str_slice(s, 1, s.n - 1) : s, list};
}

static size_t element_count(Elements e)
{
    size_t count = 1;
    for (size_t i = 0; e.list && i < e.rest.n; i++) {
        count += e.rest.p[i] == ',' ? 1 : 0;
    }
    return count;
}

static Str next_element(Elements *e)
{
    size_t at;
    Str part = e->rest;
    if (e->list && str_find(e->rest, STR(","), &at)) {
        part = str_slice(e->rest, 0, at);
        e->rest = str_slice(e->rest, at + 1, e->rest.n);
    }
    return e->list ? reward_trim(part) : part;
}

/* -?digits[any]/0*nonzero digits[any]: one slash, with at most one odd character before it. */
static bool is_fraction(Str s)
{
    size_t i = str_starts(s, STR("-")) ? 1 : 0;
    size_t n;
    size_t from = i;
    while (is_ascii_digit(s, i)) {
        i++;
    }
    if (i == from) {
        return false;
    }
    if (i < s.n && s.p[i] != '/') {
        (void)reward_code(s, i, &n);
        i += n;
    } else if (i + 1 < s.n && s.p[i + 1] == '/') { /* the odd character is a slash itself */
        i++;
    }
    if (i >= s.n || s.p[i] != '/') {
        return false;
    }
    i++;
    bool nonzero = false;
    while (is_ascii_digit(s, i)) {
        nonzero = nonzero || s.p[i] != '0';
        i++;
    }
    if (nonzero && i < s.n && s.p[i] != '\n') {
        (void)reward_code(s, i, &n);
        i += n;
    }
    return nonzero && i == s.n;
}

static bool element_equal(Str given, Str label)
{
    if (is_fraction(label) && is_fraction(given)) {
        return str_equal(label, given);
    }
    if (math_is_integer(label) != math_is_integer(given)) {
        return false;
    }
    return math_symbolic_equal(label, given);
}

bool math_elements_equal(Str given, Str label)
{
    Text a;
    Text b;
    if (given.n == 0) {
        return false;
    }
    text_init(&a, given.n + 1);
    text_init(&b, label.n + 1);
    math_strip_commas(given, &a);
    math_strip_commas(label, &b);
    Elements x = elements(text_str(&a));
    Elements y = elements(text_str(&b));
    size_t count = element_count(y);
    bool equal = b.n > 0 && a.n > 0 && element_count(x) == count;
    if (count > 1) {
        equal = equal && given.p[0] == label.p[0] && given.p[given.n - 1] == label.p[label.n - 1];
    }
    for (size_t i = 0; equal && i < count; i++) {
        Str left = next_element(&x);
        equal = element_equal(left, next_element(&y));
    }
    text_free(&a);
    text_free(&b);
    return equal;
}
