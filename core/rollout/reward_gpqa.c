/* gpqa: a letter out of the response, else a text match (5.10). */
#include "core/rollout/reward_parts.h"

#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/rollout/reward_text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { METADATA_MAX = 1 << 20, LETTERS_MAX = 256, MATCH_LIMIT = 1000000 };

typedef struct Question {
    cJSON *metadata;
    const cJSON *choices;
    uint32_t letters[LETTERS_MAX]; /* the valid ones, in order */
    int letter_count;
    uint32_t correct; /* 0: not known */
} Question;

static uint32_t upper(uint32_t c)
{
    if (c >= 'a' && c <= 'z') {
        return c - 32;
    }
    return c == 0x17F ? 'S' : c == 0x212A ? 'K' : c; /* what [A-Z] matches without case */
}

static int place_of(const Question *q, uint32_t letter)
{
    for (int i = 0; i < q->letter_count; i++) {
        if (q->letters[i] == letter) {
            return i;
        }
    }
    return -1;
}

/* The one character of a trimmed text, upper case; 0 when it is not one. */
static uint32_t single(Str s)
{
    size_t n;
    s = reward_trim(s);
    if (s.n == 0) {
        return 0;
    }
    uint32_t code = reward_code(s, 0, &n);
    return n == s.n ? upper(code) : 0;
}

static void read_letters(Question *q)
{
    const cJSON *item;
    const cJSON *valid = json_get(q->metadata, "valid_letters");
    if (cJSON_IsArray(valid) && cJSON_GetArraySize(valid) > 0) {
        cJSON_ArrayForEach(item, valid)
        {
            uint32_t letter = cJSON_IsString(item) ? single(str_from(item->valuestring)) : 0;
            if (letter != 0 && q->letter_count < LETTERS_MAX) {
                q->letters[q->letter_count++] = letter;
            }
        }
        return;
    }
    int count = cJSON_GetArraySize(q->choices);
    count = count == 0 ? 10 : count > 26 ? 26 : count;
    for (int i = 0; i < count; i++) {
        q->letters[q->letter_count++] = (uint32_t)('A' + i);
    }
}

/* Lower case, what is not a letter or digit of ASCII as single blanks. */
static void text_form(Str s, Text *out)
{
    bool due = false;
    Text low;
    text_init(&low, REWARD_TEXT_MAX * 2);
    (void)reward_lower(s, &low);
    for (size_t i = 0; i < low.n; i++) {
        char c = low.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) {
            due = out->n > 0;
            continue;
        }
        if (due) {
            (void)text_add_char(out, ' ');
            due = false;
        }
        (void)text_add_char(out, c);
    }
    text_free(&low);
}

static void correct_by_text(Question *q, Str label)
{
    Text want;
    const cJSON *item;
    int i = 0;
    text_init(&want, REWARD_TEXT_MAX);
    text_form(label, &want);
    cJSON_ArrayForEach(item, q->choices)
    {
        Text have;
        text_init(&have, REWARD_TEXT_MAX);
        text_form(str_from(cJSON_IsString(item) ? item->valuestring : ""), &have);
        if (q->correct == 0 && i < q->letter_count && want.n > 0 &&
            str_equal(text_str(&have), text_str(&want))) {
            q->correct = q->letters[i];
        }
        text_free(&have);
        i++;
    }
    text_free(&want);
}

static void find_correct(Question *q, const RewardInput *input)
{
    const char *given = json_string(q->metadata, "correct_letter", NULL);
    bool text = input->label.p != NULL && input->label_kind == LABEL_TEXT;
    double v;
    if (given != NULL) {
        q->correct = single(str_from(given));
    } else if (text && place_of(q, single(input->label)) >= 0) {
        q->correct = single(input->label);
    }
    if (input->label.p != NULL && !text && input->label_kind != LABEL_OTHER) {
        if (input->label_kind == LABEL_BOOL) {
            v = str_equal(input->label, STR("True")) ? 1.0 : 0.0;
        } else if (!reward_float(input->label, &v)) {
            v = -1.0;
        }
        if (v > -1.0 && v < (double)q->letter_count) {
            q->correct = q->letters[(int)v];
        }
    }
    if (q->correct == 0 && text) {
        correct_by_text(q, input->label);
    }
}

/* ---- the response's letter ---- */

/* Group 1 of the first match from `from`, upper case; 0: none. *end = behind the match. */
static uint32_t match(const char *pattern, bool nocase, Str text, size_t from, size_t *end)
{
    int error;
    PCRE2_SIZE at;
    uint32_t letter = 0;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | (nocase ? PCRE2_CASELESS : 0u);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &at, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    pcre2_match_data *data =
        code != NULL ? pcre2_match_data_create_from_pattern(code, NULL) : NULL;
    if (data != NULL && context != NULL) {
        (void)pcre2_set_match_limit(context, MATCH_LIMIT);
        if (pcre2_match(code, (PCRE2_SPTR)text.p, text.n, from, 0, data, context) > 1) {
            const PCRE2_SIZE *place = pcre2_get_ovector_pointer(data);
            letter = single(str_slice(text, place[2], place[3]));
            *end = place[1];
        }
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_code_free(code);
    return letter;
}

/* The last capital that stands alone and is valid. */
static uint32_t last_alone(const Question *q, Str s)
{
    uint32_t found = 0;
    uint32_t before = ' ';
    size_t n;
    size_t m;
    for (size_t i = 0; i < s.n; i += n) {
        uint32_t code = reward_code(s, i, &n);
        bool ends = i + n >= s.n || !reward_is_word(reward_code(s, i + n, &m));
        if (code >= 'A' && code <= 'Z' && ends && !reward_is_word(before) &&
            place_of(q, code) >= 0) {
            found = code;
        }
        before = code;
    }
    return found;
}

static uint32_t extract(const Question *q, Str text)
{
    static const char *const patterns[] = {
        "(?:answer|option|choice)\\s*(?:is|:)?\\s*([A-Z])",
        "([A-Z])\\s*is\\s*(?:the)?\\s*correct",
        "final\\s*(?:answer|option)\\s*(?:is|:)?\\s*([A-Z])"};
    size_t end;
    for (size_t i = 0; text.n > 0 && i < sizeof patterns / sizeof patterns[0]; i++) {
        uint32_t letter = match(patterns[i], true, text, 0, &end);
        if (letter != 0 && place_of(q, letter) >= 0) {
            return letter;
        }
    }
    return last_alone(q, text);
}

/* ---- the verdict ---- */

static bool contains(Str response_form, Str target)
{
    Text form;
    size_t at;
    text_init(&form, REWARD_TEXT_MAX);
    text_form(target, &form);
    bool found = form.n > 0 && str_find(response_form, text_str(&form), &at);
    text_free(&form);
    return found;
}

static bool text_match(const Question *q, const RewardInput *input, Str text)
{
    static const char *const keys[] = {"correct_answer", "answer_text"};
    Text form;
    text_init(&form, REWARD_TEXT_MAX);
    text_form(text, &form);
    int place = q->correct != 0 ? place_of(q, q->correct) : -1;
    const cJSON *choice = place >= 0 ? cJSON_GetArrayItem(q->choices, place) : NULL;
    bool found = cJSON_IsString(choice) &&
                 contains(text_str(&form), str_from(choice->valuestring));
    for (size_t i = 0; i < 2 && !found; i++) {
        const char *target = json_string(q->metadata, keys[i], NULL);
        found = target != NULL && contains(text_str(&form), str_from(target));
    }
    if (!found && input->label.p != NULL && input->label_kind == LABEL_TEXT) {
        found = contains(text_str(&form), input->label);
    }
    text_free(&form);
    return found;
}

Err reward_gpqa(const RewardInput *input, double *out, Fault *fault)
{
    Question q = {0};
    size_t at;
    *out = 0.0;
    if (input->response.p == NULL) {
        return ERR_OK;
    }
    if (input->metadata.n > 0) {
        Err err = json_parse(input->metadata, METADATA_MAX, "the sample's metadata", &q.metadata,
                             fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    q.choices = json_get(q.metadata, "choices");
    read_letters(&q);
    find_correct(&q, input);
    Str text = input->response;
    if (str_rfind(text, STR("</think>"), &at)) {
        text = str_slice(text, at + 8, text.n);
    }
    uint32_t letter = extract(&q, text);
    if (letter != 0 && q.correct != 0) {
        *out = letter == q.correct ? 1.0 : 0.0;
    } else if (text_match(&q, input, text)) {
        *out = 1.0;
    } else if (letter != 0 && input->label.p != NULL && input->label_kind == LABEL_TEXT) {
        *out = letter == single(input->label) ? 1.0 : 0.0;
    }
    cJSON_Delete(q.metadata);
    return ERR_OK;
}
