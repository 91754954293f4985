/* math and deepscaler: the box, the first normal form and the verdict. Answers longer than
 * ANSWER_MAX are compared as they are: nobody boxes 64 KB, and the rules below are not all
 * linear. */
#include "core/rollout/reward_math.h"

#include "core/rollout/reward_parts.h"
#include "core/rollout/reward_text.h"

#include <string.h>

enum { ANSWER_MAX = 64 << 10, NORMAL_MAX = 4 << 20 };

bool reward_boxed(Str text, Str *out)
{
    size_t at;
    if (!str_rfind(text, STR("\\boxed"), &at)) {
        return false;
    }
    Str span = str_slice(text, at, text.n);
    int depth = 0;
    for (size_t i = 0; i < span.n; i++) {
        if (span.p[i] == '{') {
            depth++;
        } else if (span.p[i] == '}') {
            depth--;
            if (depth == 0) {
                if (!str_starts(span, STR("\\boxed{"))) {
                    return false;
                }
                *out = str_slice(span, 7, i);
                return true;
            }
        }
    }
    return false;
}

/* ---- the first normal form ---- */

/* Whole string \text{X} without a newline in X: X trimmed. */
static Str unwrap_text(Str s)
{
    if (str_starts(s, STR("\\text{")) && str_ends(s, STR("}")) && s.n > 7 &&
        memchr(s.p, '\n', s.n) == NULL) {
        return reward_trim(str_slice(s, 6, s.n - 1));
    }
    return s;
}

static size_t count_of(Str s, Str needle, size_t *first)
{
    size_t count = 0;
    size_t at;
    size_t from = 0;
    while (str_find(str_slice(s, from, s.n), needle, &at)) {
        if (count++ == 0) {
            *first = from + at;
        }
        from += at + needle.n;
    }
    return count;
}

static size_t code_points(Str s)
{
    size_t count = 0;
    size_t n;
    for (size_t i = 0; i < s.n; i += n) {
        (void)reward_code(s, i, &n);
        count++;
    }
    return count;
}

/* Step 6: a lone character behind \sqrt gets braces. False: nothing stands behind one. */
static bool fix_sqrt(Text *text)
{
    Text out;
    Str rest = text_str(text);
    size_t at;
    bool good = true;
    text_init(&out, text->max);
    while (good && str_find(rest, STR("\\sqrt"), &at)) {
        (void)text_add(&out, rest.p, at + 5);
        rest = str_slice(rest, at + 5, rest.n);
        if (rest.n == 0 || str_starts(rest, STR("\\sqrt"))) {
            good = false;
        } else if (rest.p[0] != '{') {
            size_t n;
            (void)reward_code(rest, 0, &n);
            (void)text_addf(&out, "{%.*s}", (int)n, rest.p);
            rest = str_slice(rest, n, rest.n);
        }
    }
    if (good) {
        (void)text_add_str(&out, rest);
        reward_set(text, text_str(&out));
    }
    text_free(&out);
    return good;
}

typedef enum FracResult { FRAC_DONE, FRAC_UNDONE, FRAC_FAILED } FracResult;

/* One piece behind \frac, up to the next one. */
static FracResult fix_piece(Str piece, Text *out)
{
    size_t n;
    size_t m;
    if (piece.n == 0) {
        return FRAC_FAILED;
    }
    if (piece.p[0] == '{') {
        return text_add_str(out, piece) ? FRAC_DONE : FRAC_FAILED;
    }
    (void)reward_code(piece, 0, &n);
    if (piece.n == n) {
        return FRAC_UNDONE;
    }
    (void)reward_code(piece, n, &m);
    (void)text_addf(out, "{%.*s}", (int)n, piece.p);
    if (piece.p[n] == '{') {
        (void)text_add_char(out, '{');
    } else {
        (void)text_addf(out, "{%.*s}", (int)m, piece.p + n);
    }
    return text_add_str(out, str_slice(piece, n + m, piece.n)) ? FRAC_DONE : FRAC_FAILED;
}

/* Step 8. False: fail. */
static bool fix_fracs(Text *text)
{
    Text out;
    Str rest = text_str(text);
    size_t at;
    FracResult result = FRAC_DONE;
    if (!str_find(rest, STR("\\frac"), &at)) {
        return true;
    }
    text_init(&out, text->max);
    (void)text_add(&out, rest.p, at);
    rest = str_slice(rest, at + 5, rest.n);
    for (bool more = true; more && result == FRAC_DONE;) {
        more = str_find(rest, STR("\\frac"), &at);
        (void)text_add_c(&out, "\\frac");
        result = fix_piece(more ? str_slice(rest, 0, at) : rest, &out);
        rest = more ? str_slice(rest, at + 5, rest.n) : (Str){0};
    }
    if (result == FRAC_DONE) {
        reward_set(text, text_str(&out));
    }
    text_free(&out);
    return result != FRAC_FAILED;
}

/* An integer as str(int(s)) writes it. */
static bool canonical_integer(Str s)
{
    Str digits = str_starts(s, STR("-")) ? str_slice(s, 1, s.n) : s;
    if (digits.n == 0 || (digits.p[0] == '0' && s.n > 1)) {
        return false;
    }
    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] < '0' || digits.p[i] > '9') {
            return false;
        }
    }
    return true;
}

/* Step 10. */
static void fix_slash(Text *text)
{
    size_t at = 0;
    Str s = text_str(text);
    if (count_of(s, STR("/"), &at) != 1) {
        return;
    }
    Str a = str_slice(s, 0, at);
    Str b = str_slice(s, at + 1, s.n);
    if (canonical_integer(a) && canonical_integer(b)) {
        Text out;
        text_init(&out, text->max);
        (void)text_addf(&out, "\\frac{%.*s}{%.*s}", (int)a.n, a.p, (int)b.n, b.p);
        reward_set(text, text_str(&out));
        text_free(&out);
    }
}

/* Steps 1 to 10 in place; false: the caller goes back to what it had. */
static bool steps_m(Text *text)
{
    static const char *const changes[][2] = {
        {"\n", ""}, {"\\!", ""}, {"\\\\", "\\"}, {"tfrac", "frac"}, {"dfrac", "frac"},
        {"\\left", ""}, {"\\right", ""}, {"^{\\circ}", ""}, {"^\\circ", ""}, {"\\$", ""}};
    size_t at = 0;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        reward_replace(text, changes[i][0], changes[i][1]);
    }
    size_t units = count_of(text_str(text), STR("\\text{ "), &at);
    if (units > 1) {
        return false;
    }
    if (units == 1) {
        reward_set(text, str_slice(text_str(text), 0, at));
    }
    reward_replace(text, "\\%", "");
    reward_replace(text, " .", " 0.");
    reward_replace(text, "{.", "{0.");
    if (text->n == 0) {
        return true;
    }
    if (text->p[0] == '.') {
        Text out;
        text_init(&out, text->max);
        (void)text_addf(&out, "0%s", text_c(text));
        reward_set(text, text_str(&out));
        text_free(&out);
    }
    if (count_of(text_str(text), STR("="), &at) == 1 &&
        code_points(str_slice(text_str(text), 0, at)) <= 2) {
        reward_set(text, str_slice(text_str(text), at + 1, text->n));
    }
    if (!fix_sqrt(text)) {
        return false;
    }
    reward_replace(text, " ", "");
    if (!fix_fracs(text)) {
        return false;
    }
    if (str_equal(text_str(text), STR("0.5"))) {
        reward_set(text, STR("\\frac{1}{2}"));
    }
    fix_slash(text);
    return true;
}

/* 5.4 */
static void math_normal_m(Str answer, Text *out)
{
    Str plain = unwrap_text(reward_trim(answer));
    reward_set(out, plain);
    if (!steps_m(out)) {
        reward_set(out, plain);
    }
}

/* ---- the verdict ---- */

/* 5.4 to 5.6: do the two answers mean the same? */
static bool reward_math_equal(Str given, Str label)
{
    Text a;
    Text b;
    if (given.n > ANSWER_MAX || label.n > ANSWER_MAX) {
        return str_equal(given, label);
    }
    text_init(&a, NORMAL_MAX);
    text_init(&b, NORMAL_MAX);
    math_normal_m(given, &a);
    math_normal_m(label, &b);
    bool equal = str_equal(text_str(&a), text_str(&b));
    if (!equal) {
        text_clear(&a);
        text_clear(&b);
        math_normal_n(given, &a);
        math_normal_n(label, &b);
        equal = str_equal(text_str(&a), text_str(&b)) ||
                math_elements_equal(text_str(&a), text_str(&b));
    }
    equal = equal && !a.cut && !b.cut;
    text_free(&a);
    text_free(&b);
    return equal;
}

/* Is the label true in Python's sense (not null, "", 0, 0.0, False)? */
static bool reward_label_true(const RewardInput *input)
{
    Str s = input->label;
    double v;
    if (s.p == NULL) {
        return false;
    }
    switch (input->label_kind) {
    case LABEL_TEXT:
        return s.n > 0;
    case LABEL_BOOL:
        return str_equal(s, STR("True"));
    case LABEL_INT:
    case LABEL_FLOAT:
        return !reward_float(s, &v) || v < 0.0 || v > 0.0 || v != v;
    case LABEL_OTHER:
        return !str_equal(s, STR("[]")) && !str_equal(s, STR("{}"));
    }
    return true;
}

/* A label that has a box is what stands in it. */
static bool open_label(Str *label)
{
    size_t at;
    return !str_find(*label, STR("\\boxed"), &at) || reward_boxed(*label, label);
}

Err reward_math(const RewardInput *input, double *out, Fault *fault)
{
    Str given;
    Str label = input->label;
    (void)fault;
    *out = 0.0;
    if (reward_label_true(input) && open_label(&label) &&
        reward_boxed(input->response, &given) && reward_math_equal(given, label)) {
        *out = 1.0;
    }
    return ERR_OK;
}

/* The part of the response that is judged; false: there is none. */
static bool solution_of(Str response, Str *out)
{
    size_t at;
    size_t end;
    if (str_rfind(response, STR("</think>"), &at)) {
        *out = str_slice(response, at + 8, response.n);
        return true;
    }
    if (!str_find(response, STR("###Response"), &at)) {
        return false;
    }
    *out = str_slice(response, at + 11, response.n);
    if (str_find(*out, STR("###Response"), &end)) {
        *out = str_slice(*out, 0, end);
    }
    return true;
}

Err reward_deepscaler(const RewardInput *input, double *out, Fault *fault)
{
    Str solution;
    Str given;
    Str label = input->label;
    *out = 0.0;
    if (!solution_of(input->response, &solution) || !reward_boxed(solution, &given) ||
        (input->label_kind == LABEL_TEXT && label.p != NULL && label.n == 0)) {
        return ERR_OK;
    }
    if (label.p == NULL || input->label_kind == LABEL_OTHER) {
        return fault_set(fault, ERR_ARG, "make the label a string or a number",
                         "the deepscaler reward cannot use this label");
    }
    if (open_label(&label) && reward_math_equal(given, label)) {
        *out = 1.0;
    }
    return ERR_OK;
}
