#include "core/model/pretoken.h"

#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/model/pretoken_pcre.h"
#include "core/model/pretoken_rules.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 8, PATTERN_MAX = 1 << 16 };

typedef enum StepKind {
    STEP_QWEN,         /* numbers in groups of at most `digits` */
    STEP_GPT2,
    STEP_PATTERN,      /* any other regular expression */
    STEP_DIGITS,       /* each numeric character alone */
    STEP_DIGIT_RUNS
} StepKind;

typedef struct Step {
    StepKind kind;
    int digits;
    PretokenPattern *pattern;
} Step;

struct Pretoken {
    UnicodeClasses *classes;
    Step steps[STEPS_MAX];
    size_t count;
    bool byte_level;
};

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define QWEN_HEAD CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
#define QWEN_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const struct {
    const char *pattern;
    Step step;
} known_patterns[] = {
    {QWEN_HEAD QWEN_TAIL, {STEP_QWEN, 1, NULL}},
    {QWEN_HEAD "{1,2}" QWEN_TAIL, {STEP_QWEN, 2, NULL}},
    {QWEN_HEAD "{1,3}" QWEN_TAIL, {STEP_QWEN, 3, NULL}},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     {STEP_GPT2, 0, NULL}},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     {STEP_GPT2, 0, NULL}},
};

/* The fields of one part, whatever its type. */
typedef struct Part {
    Text type, regex, behavior;
    bool has_regex, invert, individual, prefix_space, use_regex;
    Str children; /* raw JSON list; p NULL when absent */
} Part;

static bool scan_pattern(JsonScan *s, Part *part)
{
    Text scratch;
    Str key;
    Str value;
    text_init(&scratch, PATTERN_MAX);
    bool good = json_scan_object(s);
    while (good && json_scan_key(s, &scratch, &key)) {
        bool regex = str_equal(key, STR("Regex"));
        good = json_scan_string(s, &scratch, &value);
        if (good && regex) {
            part->has_regex = true;
            text_clear(&part->regex);
            good = text_add_str(&part->regex, value) || json_scan_fail(s, "a pattern is too long");
        }
    }
    text_free(&scratch);
    return s->error == NULL;
}

static bool scan_text(JsonScan *s, Text *out)
{
    Text scratch;
    Str value;
    text_init(&scratch, PATTERN_MAX);
    bool good = json_scan_string(s, &scratch, &value);
    if (good) {
        text_clear(out);
        good = text_add_str(out, value) || json_scan_fail(s, "a string is too long");
    }
    text_free(&scratch);
    return good;
}

static bool scan_part(JsonScan *s, Part *part)
{
    Text scratch;
    Str key;
    text_init(&scratch, 4096);
    bool good = json_scan_object(s);
    while (good && json_scan_key(s, &scratch, &key)) {
        if (str_equal(key, STR("type"))) {
            good = scan_text(s, &part->type);
        } else if (str_equal(key, STR("behavior"))) {
            good = scan_text(s, &part->behavior);
        } else if (str_equal(key, STR("pattern"))) {
            good = scan_pattern(s, part);
        } else if (str_equal(key, STR("invert"))) {
            good = json_scan_bool(s, &part->invert);
        } else if (str_equal(key, STR("individual_digits"))) {
            good = json_scan_bool(s, &part->individual);
        } else if (str_equal(key, STR("add_prefix_space"))) {
            good = json_scan_bool(s, &part->prefix_space);
        } else if (str_equal(key, STR("use_regex"))) {
            good = json_scan_bool(s, &part->use_regex);
        } else if (str_equal(key, STR("pretokenizers"))) {
            good = json_scan_raw(s, &part->children);
        } else {
            good = json_scan_skip(s);
        }
    }
    text_free(&scratch);
    return s->error == NULL;
}

static Err unsupported(const char *path, const char *what, const char *detail, Fault *fault)
{
    return fault_set(fault, ERR_UNSUPPORTED,
                     "use a checkpoint whose tokenizer is byte-level BPE, as Qwen3 or SmolLM2",
                     "%s: the pre-tokenizer part %s%s%s is not supported", path, what,
                     detail[0] != '\0' ? " with " : "", detail);
}

static Err add_step(Pretoken *p, Step step, const char *path, Fault *fault)
{
    if (p->count == STEPS_MAX) {
        pretoken_pattern_free(step.pattern);
        return fault_set(fault, ERR_LIMIT, NULL, "%s: more than %d pre-tokenizer parts", path,
                         (int)STEPS_MAX);
    }
    p->steps[p->count++] = step;
    return ERR_OK;
}

static Err add_split(Pretoken *p, const Part *part, const char *path, Fault *fault)
{
    if (!part->has_regex) {
        return unsupported(path, "Split", "a pattern that is no Regex", fault);
    }
    if (!str_equal(text_str(&part->behavior), STR("Isolated")) || part->invert) {
        return unsupported(path, "Split", "a behavior other than Isolated", fault);
    }
    for (size_t i = 0; i < sizeof known_patterns / sizeof known_patterns[0]; i++) {
        if (str_equal(text_str(&part->regex), str_from(known_patterns[i].pattern))) {
            return add_step(p, known_patterns[i].step, path, fault);
        }
    }
    PretokenPattern *pattern;
    Err err = pretoken_pattern_new(text_str(&part->regex), path, &pattern, fault);
    return err != ERR_OK ? err : add_step(p, (Step){STEP_PATTERN, 0, pattern}, path, fault);
}

static Err add_parts(Pretoken *p, JsonScan *s, const char *path, int depth, Fault *fault);

static Err add_children(Pretoken *p, Str raw, const char *path, int depth, Fault *fault)
{
    JsonScan s = json_scan(raw);
    Err err = ERR_OK;
    (void)json_scan_array(&s); /* was checked as JSON when it was cut out */
    while (err == ERR_OK && s.error == NULL && json_scan_item(&s)) {
        err = add_parts(p, &s, path, depth + 1, fault);
    }
    if (err == ERR_OK && s.error != NULL) {
        err = unsupported(path, "Sequence", s.error, fault);
    }
    return err;
}

static Err add_part(Pretoken *p, const Part *part, const char *path, int depth, Fault *fault)
{
    Str type = text_str(&part->type);
    if (p->byte_level) {
        return unsupported(path, text_c(&part->type), "a place behind ByteLevel", fault);
    }
    if (str_equal(type, STR("Sequence")) && part->children.p != NULL && depth < 4) {
        return add_children(p, part->children, path, depth, fault);
    }
    if (str_equal(type, STR("Split"))) {
        return add_split(p, part, path, fault);
    }
    if (str_equal(type, STR("Digits"))) {
        Step step = {part->individual ? STEP_DIGITS : STEP_DIGIT_RUNS, 0, NULL};
        return add_step(p, step, path, fault);
    }
    if (str_equal(type, STR("ByteLevel"))) {
        if (part->prefix_space) {
            return unsupported(path, "ByteLevel", "add_prefix_space", fault);
        }
        p->byte_level = true;
        Step step = {STEP_GPT2, 0, NULL};
        return part->use_regex ? add_step(p, step, path, fault) : ERR_OK;
    }
    return unsupported(path, text_c(&part->type), "", fault);
}

static Err add_parts(Pretoken *p, JsonScan *s, const char *path, int depth, Fault *fault)
{
    Part part = {.use_regex = true, .prefix_space = false};
    Err err;
    text_init(&part.type, 256);
    text_init(&part.regex, PATTERN_MAX);
    text_init(&part.behavior, 256);
    if (scan_part(s, &part)) {
        err = add_part(p, &part, path, depth, fault);
    } else {
        err = fault_set(fault, ERR_FORMAT, "fetch the file again",
                        "%s: the pre_tokenizer is malformed: %s", path, s->error);
    }
    text_free(&part.type);
    text_free(&part.regex);
    text_free(&part.behavior);
    return err;
}

Err pretoken_parse(JsonScan *scan, const char *path, Pretoken **out, Fault *fault)
{
    Pretoken *p = xcalloc(1, sizeof *p);
    Err err = ERR_OK;
    p->classes = unicode_classes_new();
    *out = NULL;
    if (json_scan_peek(scan) == 'n') {
        (void)json_scan_null(scan);
    } else {
        err = add_parts(p, scan, path, 0, fault);
    }
    if (err != ERR_OK) {
        pretoken_free(p);
        return err;
    }
    *out = p;
    return ERR_OK;
}

void pretoken_free(Pretoken *pretoken)
{
    if (pretoken == NULL) {
        return;
    }
    for (size_t i = 0; i < pretoken->count; i++) {
        pretoken_pattern_free(pretoken->steps[i].pattern);
    }
    unicode_classes_free(pretoken->classes);
    free(pretoken);
}

bool pretoken_byte_level(const Pretoken *pretoken)
{
    return pretoken->byte_level;
}

/* ---- splitting ---- */

typedef struct Split {
    const Pretoken *pretoken;
    PretokenEmit emit;
    void *user;
} Split;

static bool split_from(const Split *split, size_t step, Str text);

/* Length of the piece at the start of s (not empty), by a rule or by the numeric class. */
static size_t piece_length(const Pretoken *p, const Step *step, Str s)
{
    bool partial;
    uint32_t code;
    size_t at = 0;
    switch (step->kind) {
    case STEP_QWEN:
        return rule_qwen(p->classes, s, step->digits);
    case STEP_GPT2:
        return rule_gpt2(p->classes, s);
    case STEP_DIGITS:
    case STEP_DIGIT_RUNS:
        for (bool first = true, number = false; at < s.n; first = false) {
            size_t n = utf8_decode(s.p + at, s.n - at, &code, &partial);
            bool is_number = unicode_class(p->classes, code) == UNICODE_NUMBER;
            if (first && is_number && step->kind == STEP_DIGITS) {
                return n;
            }
            if (!first && is_number != number) {
                break;
            }
            number = is_number;
            at += n;
        }
        return at;
    case STEP_PATTERN:
        break;
    }
    return s.n;
}

typedef struct Inner {
    const Split *split;
    size_t step;
} Inner;

static bool emit_inner(void *user, Str piece)
{
    const Inner *inner = user;
    return split_from(inner->split, inner->step, piece);
}

static bool split_from(const Split *split, size_t step, Str text)
{
    const Pretoken *p = split->pretoken;
    if (step == p->count) {
        return text.n == 0 || split->emit(split->user, text);
    }
    if (p->steps[step].kind == STEP_PATTERN) {
        Inner inner = {split, step + 1};
        return pretoken_pattern_split(p->steps[step].pattern, text, emit_inner, &inner);
    }
    while (text.n > 0) {
        size_t n = piece_length(p, &p->steps[step], text);
        if (!split_from(split, step + 1, (Str){text.p, n})) {
            return false;
        }
        text = (Str){text.p + n, text.n - n};
    }
    return true;
}

bool pretoken_split(const Pretoken *pretoken, Str text, PretokenEmit emit, void *user)
{
    Split split = {pretoken, emit, user};
    return split_from(&split, 0, text);
}
