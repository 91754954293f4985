/* dapo: the last "Answer:" line of the end of the response, as an integer text (5.8). */
#include "core/rollout/reward_parts.h"

#include "core/rollout/reward_text.h"

#include <math.h>
#include <string.h>

enum { TAIL_CHARACTERS = 300, ANSWER_MAX = 64 << 10 };

/* Deletes from each `open` to the next '}' the frame, not the content. */
static void unwrap(Text *text, const char *open)
{
    Text out;
    Str rest = text_str(text);
    Str head = str_from(open);
    size_t at;
    size_t end;
    text_init(&out, text->max);
    while (str_find(rest, head, &at) &&
           str_find(str_slice(rest, at + head.n, rest.n), STR("}"), &end)) {
        (void)text_add(&out, rest.p, at);
        (void)text_add(&out, rest.p + at + head.n, end);
        rest = str_slice(rest, at + head.n + end + 1, rest.n);
    }
    (void)text_add_str(&out, rest);
    reward_set(text, text_str(&out));
    text_free(&out);
}

/* \boxed{ to the last brace. */
static void unbox(Text *text)
{
    Str s = text_str(text);
    size_t at;
    size_t end;
    if (str_find(s, STR("\\boxed{"), &at) && str_rfind(s, STR("}"), &end) && end >= at + 7) {
        Text out;
        text_init(&out, text->max);
        (void)text_add(&out, s.p, at);
        (void)text_add(&out, s.p + at + 7, end - at - 7);
        (void)text_add_str(&out, str_slice(s, end + 1, s.n));
        reward_set(text, text_str(&out));
        text_free(&out);
    }
}

/* name + x [+ y] without a brace gets its braces; `count` characters are wanted. */
static void brace(Text *text, const char *name, int count)
{
    Text out;
    Str s = text_str(text);
    Str head = str_from(name);
    text_init(&out, text->max);
    for (size_t i = 0; i < s.n;) {
        Str rest = str_slice(s, i + head.n, s.n);
        size_t n = 0;
        size_t m = 0;
        bool here = str_starts(str_slice(s, i, s.n), head) && rest.n > 0 && rest.p[0] != '{';
        if (here) {
            (void)reward_code(rest, 0, &n);
            here = count == 1 || n < rest.n;
        }
        if (!here) {
            (void)text_add_char(&out, s.p[i++]);
            continue;
        }
        (void)text_addf(&out, "%s{%.*s}", name, (int)n, rest.p);
        if (count == 2) {
            (void)reward_code(rest, n, &m);
            (void)text_addf(&out, "{%.*s}", (int)m, rest.p + n);
        }
        i += head.n + n + m;
    }
    reward_set(text, text_str(&out));
    text_free(&out);
}

static bool all_digits(Str s)
{
    size_t n;
    size_t digits = 0;
    for (size_t i = 0; i < s.n; i += n) {
        uint32_t code = reward_code(s, i, &n);
        if (code != ',' && reward_digit(code) < 0) {
            return false;
        }
        digits += code != ',' ? 1 : 0;
    }
    return digits > 0;
}

static void replacements(Text *text)
{
    static const char *const changes[][2] = {
        {"an ", ""}, {"a ", ""}, {".$", "$"}, {"\\$", ""}, {"\\ ", ""}, {" ", ""},
        {"mbox", "text"}, {",\\text{and}", ","}, {"\\text{and}", ","}, {"\\text{m}", "\\text{}"}};
    static const char *const removed[] = {
        "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units",
        "\\ldots", "sue", "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm",
        "pounds", "meters", "meals", "edges", "students", "childrentickets", "multiples",
        "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}",
        "\\text{}", "\\mathrm{th}", "^\\circ", "^{\\circ}", "\\;", ",\\!", "{,}", "\"", "\\dots",
        "<|im_end|>", "<|endoftext|>"};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        reward_replace(text, changes[i][0], changes[i][1]);
    }
    for (size_t i = 0; i < sizeof removed / sizeof removed[0]; i++) {
        reward_replace(text, removed[i], "");
    }
}

static void normalise(Str s, Text *out)
{
    size_t at;
    size_t end;
    if (str_rfind(s, STR("="), &at)) {
        s = str_slice(s, at + 1, s.n);
    }
    reward_set(out, s);
    replacements(out);
    if (str_find(text_str(out), STR("$"), &at) &&
        str_find(str_slice(text_str(out), at + 1, out->n), STR("$"), &end)) {
        reward_set(out, str_slice(text_str(out), at, at + end + 2));
    }
    unwrap(out, "\\text{");
    unwrap(out, "\\textbf{");
    unwrap(out, "\\overline{");
    unbox(out);
    brace(out, "frac", 2);
    brace(out, "sqrt", 1);
    reward_replace(out, "$", "");
    if (all_digits(text_str(out))) {
        reward_replace(out, ",", "");
    }
    reward_set(out, reward_trim(text_str(out)));
}

static Str tail(Str s)
{
    size_t at = s.n;
    for (int i = 0; i < TAIL_CHARACTERS && at > 0; i++) {
        do {
            at--;
        } while (at > 0 && ((unsigned char)s.p[at] & 0xC0) == 0x80);
    }
    return str_slice(s, at, s.n);
}

/* The rest of the line behind the last match of answer, blanks, colon, blanks. */
static Str last_answer(Str s)
{
    Str found = STR("[INVALID]");
    size_t at;
    size_t from = 0;
    size_t n;
    while (reward_find_nocase(str_slice(s, from, s.n), STR("answer"), &at)) {
        size_t i = from + at + 6;
        from = i;
        while (i < s.n && reward_is_blank(reward_code(s, i, &n))) {
            i += n;
        }
        if (i >= s.n || s.p[i] != ':') {
            continue;
        }
        i++;
        size_t colon = i;
        while (i < s.n && reward_is_blank(reward_code(s, i, &n))) {
            i += n;
        }
        if (i >= s.n) { /* only blanks follow: the pattern gives one of them back */
            Str blanks = str_slice(s, colon, s.n);
            size_t line;
            if (str_rfind(blanks, STR("\n"), &line)) {
                blanks = str_slice(blanks, line + 1, blanks.n);
            }
            if (blanks.n == 0) {
                continue;
            }
            i = s.n - 1;
        }
        size_t end;
        Str line = str_slice(s, i, s.n);
        if (str_find(line, STR("\n"), &end)) {
            line = str_slice(line, 0, end);
        }
        found = line;
        from = i + line.n;
    }
    return found;
}

Err reward_dapo(const RewardInput *input, double *out, Fault *fault)
{
    Text gold;
    Text given;
    double v = 0.0;
    *out = -1.0;
    text_init(&gold, ANSWER_MAX);
    text_init(&given, ANSWER_MAX);
    Str label = str_slice(input->label, 0, ANSWER_MAX);
    normalise(label, &gold);
    bool number = input->label.p != NULL && reward_float(text_str(&gold), &v) && isfinite(v);
    if (number) {
        char text[400];
        v = trunc(v);
        (void)str_format(text, sizeof text, "%.0f", v == 0.0 ? 0.0 : v);
        normalise(last_answer(tail(input->response)), &given);
        *out = str_equal(text_str(&given), str_from(text)) ? 1.0 : -1.0;
    }
    text_free(&gold);
    text_free(&given);
    return number ? ERR_OK
                  : fault_set(fault, ERR_ARG, "make the label a number",
                              "the dapo reward needs a number as label, not \"%.*s\"",
                              (int)str_slice(label, 0, 60).n, label.p != NULL ? label.p : "null");
}
