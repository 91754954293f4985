/* f1, exact and digits. */
#include "core/rollout/reward_parts.h"

#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/rollout/reward_text.h"

#include <stdlib.h>
#include <string.h>

/* ---- f1 ---- */

static bool is_punctuation(uint32_t c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* Appends s without ASCII punctuation. */
static void drop_punctuation(Str s, Text *out)
{
    size_t n;
    for (size_t i = 0; i < s.n; i += n) {
        if (!is_punctuation(reward_code(s, i, &n))) {
            (void)text_add(out, s.p + i, n);
        }
    }
}

/* Appends s with the whole words a, an and the as blanks. */
static void drop_articles(Str s, Text *out)
{
    size_t n;
    for (size_t i = 0; i < s.n;) {
        size_t from = i;
        while (i < s.n && reward_is_word(reward_code(s, i, &n))) {
            i += n;
        }
        Str word = str_slice(s, from, i);
        if (str_equal(word, STR("a")) || str_equal(word, STR("an")) ||
            str_equal(word, STR("the"))) {
            (void)text_add_char(out, ' ');
        } else {
            (void)text_add_str(out, word);
        }
        if (i < s.n) {
            (void)reward_code(s, i, &n);
            (void)text_add(out, s.p + i, n);
            i += n;
        }
    }
}

/* Lower case, no ASCII punctuation, no articles; words joined by one blank. */
static void normalise(Str s, Text *out)
{
    Text low;
    Text plain;
    size_t n;
    text_init(&low, REWARD_TEXT_MAX * 2);
    text_init(&plain, REWARD_TEXT_MAX * 2);
    (void)reward_lower(s, &low);
    drop_punctuation(text_str(&low), &plain);
    text_clear(&low);
    drop_articles(text_str(&plain), &low);
    Str text = text_str(&low);
    bool due = false;
    for (size_t i = 0; i < text.n; i += n) {
        if (reward_is_blank(reward_code(text, i, &n))) {
            due = out->n > 0;
            continue;
        }
        if (due) {
            (void)text_add_char(out, ' ');
            due = false;
        }
        (void)text_add(out, text.p + i, n);
    }
    text_free(&low);
    text_free(&plain);
}

typedef struct Word {
    uint64_t hash;
    Str text;
} Word;

static int by_word(const void *a, const void *b)
{
    const Word *x = a;
    const Word *y = b;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

static Word *words(Str text, size_t *count)
{
    Str part;
    size_t capacity = 0;
    Word *list = NULL;
    *count = 0;
    while (str_split(&text, ' ', &part)) {
        if (*count == capacity) {
            capacity = capacity == 0 ? 64 : capacity * 2;
            list = xrealloc(list, capacity, sizeof *list);
        }
        list[(*count)++] = (Word){hash64(part.p, part.n, 0), part};
    }
    if (*count > 1) {
        qsort(list, *count, sizeof *list, by_word);
    }
    return list;
}

static double f1(Str given, Str label)
{
    size_t n;
    size_t m;
    size_t common = 0;
    Word *a = words(given, &n);
    Word *b = words(label, &m);
    for (size_t i = 0, k = 0; i < n && k < m;) {
        if (a[i].hash == b[k].hash) {
            common++;
            i++;
            k++;
        } else if (a[i].hash < b[k].hash) {
            i++;
        } else {
            k++;
        }
    }
    free(a);
    free(b);
    if (common == 0) {
        return 0.0;
    }
    double precision = (double)common / (double)n;
    double recall = (double)common / (double)m;
    return 2.0 * precision * recall / (precision + recall);
}

static bool is_verdict(Str s)
{
    return str_equal(s, STR("yes")) || str_equal(s, STR("no")) || str_equal(s, STR("noanswer"));
}

Err reward_f1(const RewardInput *input, double *out, Fault *fault)
{
    Text given;
    Text label;
    *out = 0.0;
    if (input->response.p == NULL) {
        return ERR_OK;
    }
    if (input->label.p == NULL || input->label_kind != LABEL_TEXT) {
        return fault_set(fault, ERR_ARG, "make the label a string",
                         "the f1 reward needs a label that is a string");
    }
    text_init(&given, REWARD_TEXT_MAX * 2);
    text_init(&label, REWARD_TEXT_MAX * 2);
    normalise(input->response, &given);
    normalise(input->label, &label);
    Str a = text_str(&given);
    Str b = text_str(&label);
    if (str_equal(a, b) || (!is_verdict(a) && !is_verdict(b))) {
        *out = f1(a, b);
    }
    text_free(&given);
    text_free(&label);
    return ERR_OK;
}

/* ---- exact: the rule of the prompt files' own reward.py ---- */

static bool is_frame(char c)
{
    return c == ' ' || c == '\t' || c == '*' || c == '$' || c == '"' || c == '\'';
}

static Str answer(Str response)
{
    size_t at = 0;
    size_t from = 0;
    Str text = response;
    while (reward_find_nocase(str_slice(response, from, response.n), STR("answer:"), &at)) {
        from += at + 7;
        text = str_slice(response, from, response.n);
    }
    text = reward_trim(text);
    if (str_find(text, STR("\n"), &at)) {
        text = str_slice(text, 0, at);
    }
    while (text.n > 0 && is_frame(text.p[0])) {
        text = str_slice(text, 1, text.n);
    }
    while (text.n > 0 && is_frame(text.p[text.n - 1])) {
        text = str_slice(text, 0, text.n - 1);
    }
    return str_ends(text, STR(".")) ? str_slice(text, 0, text.n - 1) : text;
}

Err reward_exact(const RewardInput *input, double *out, Fault *fault)
{
    Text given;
    Text label;
    *out = 0.0;
    if (input->label.p == NULL) {
        return fault_set(fault, ERR_ARG, "give the rows a label and name it with --label-key",
                         "the exact reward needs a label");
    }
    if (input->response.p == NULL) {
        return ERR_OK;
    }
    text_init(&given, REWARD_TEXT_MAX * 2);
    text_init(&label, REWARD_TEXT_MAX * 2);
    (void)reward_lower(answer(input->response), &given);
    (void)reward_lower(input->label, &label);
    *out = str_equal(text_str(&given), text_str(&label)) ? 1.0 : 0.0;
    text_free(&given);
    text_free(&label);
    return ERR_OK;
}

/* ---- digits: partial credit by place ---- */

Err reward_digits(const RewardInput *input, double *out, Fault *fault)
{
    *out = 0.0;
    if (input->label.p == NULL) {
        return fault_set(fault, ERR_ARG, "give the rows a label and name it with --label-key",
                         "the digits reward needs a label");
    }
    if (input->response.p == NULL) {
        return ERR_OK;
    }
    Str given = reward_trim(input->response);
    Str label = reward_trim(input->label);
    size_t longer = 0;
    size_t right = 0;
    size_t i = 0;
    size_t k = 0;
    while (i < given.n || k < label.n) {
        size_t n = 0;
        size_t m = 0;
        uint32_t a = i < given.n ? reward_code(given, i, &n) : 0;
        uint32_t b = k < label.n ? reward_code(label, k, &m) : 0;
        right += n > 0 && m > 0 && a == b ? 1 : 0;
        longer++;
        i += n;
        k += m;
    }
    *out = longer == 0 ? 1.0 : (double)right / (double)longer;
    return ERR_OK;
}
