#include "tests/harness.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/rollout/reward.h"

#include <stdlib.h>

typedef struct Vector { /* one line of the file, read by the scanner: labels keep their digits */
    Text id, type, response, label, metadata, error, tag;
    LabelKind kind;
    bool null_response, null_label, has_metadata;
    double expected;
    bool skip; /* a custom path, which is not built in */
} Vector;

static bool into(JsonScan *s, Text *scratch, Text *out, bool *null)
{
    Str value;
    text_clear(out);
    *null = json_scan_peek(s) == 'n';
    if (*null) {
        return json_scan_null(s);
    }
    return json_scan_string(s, scratch, &value) && text_add_str(out, value);
}

/* A number, or dapo's object whose score counts. */
static bool expected(JsonScan *s, Text *scratch, double *out)
{
    Str raw;
    Str key;
    if (json_scan_peek(s) != '{') {
        return json_scan_raw(s, &raw) && (str_equal(raw, STR("null")) || str_to_double(raw, out));
    }
    bool good = json_scan_object(s);
    while (good && json_scan_key(s, scratch, &key)) {
        bool score = str_equal(key, STR("score"));
        good = json_scan_raw(s, &raw) && (!score || str_to_double(raw, out));
    }
    return good;
}

static bool read_vector(JsonScan *s, Text *scratch, Vector *v)
{
    Str key;
    Str raw;
    bool null;
    v->has_metadata = false;
    v->skip = false;
    text_clear(&v->error);
    bool good = json_scan_object(s);
    while (good && json_scan_key(s, scratch, &key)) {
        if (str_equal(key, STR("id"))) {
            good = into(s, scratch, &v->id, &null);
        } else if (str_equal(key, STR("rm_type"))) {
            good = into(s, scratch, &v->type, &null);
        } else if (str_equal(key, STR("expected_error"))) {
            good = into(s, scratch, &v->error, &null);
        } else if (str_equal(key, STR("response"))) {
            good = into(s, scratch, &v->response, &v->null_response);
        } else if (str_equal(key, STR("label"))) {
            text_clear(&v->label);
            good = label_scan(s, scratch, &v->label, &v->kind, &v->null_label);
        } else if (str_equal(key, STR("expected"))) {
            good = expected(s, scratch, &v->expected);
        } else if (str_equal(key, STR("metadata"))) {
            good = json_scan_raw(s, &raw);
            v->has_metadata = good && raw.p[0] == '{';
            text_clear(&v->metadata);
            good = good && text_add_str(&v->metadata, raw);
        } else {
            good = json_scan_skip(s);
        }
    }
    return s->error == NULL && good;
}

static Str given(const Text *text, bool null)
{
    return null ? (Str){0} : (Str){text_c(text), text->n};
}

static bool check_vector(const Vector *v)
{
    Fault fault = {0};
    double score = NAN;
    RewardInput input = {.response = given(&v->response, v->null_response),
                         .label = given(&v->label, v->null_label),
                         .label_kind = v->kind,
                         .metadata = v->has_metadata ? text_str(&v->metadata) : (Str){0}};
    Err err = reward_score(text_c(&v->type), &input, NULL, &score, &fault);
    bool good = v->error.n > 0 ? err != ERR_OK && fault.sentence[0] != '\0'
                               : err == ERR_OK && fabs(score - v->expected) <= 1e-12;
    if (!good) {
        fprintf(stderr, "%s %s: response \"%.100s\", label \"%.60s\": %g (%s), expected %g %s\n",
                text_c(&v->id), text_c(&v->type), text_c(&v->response), text_c(&v->label), score,
                fault.sentence, v->expected, text_c(&v->error));
    }
    return good;
}

static void vectors(void)
{
    Text file;
    Text scratch;
    Str key;
    Fault fault = {0};
    Vector v = {0};
    int seen = 0;
    int passed = 0;
    text_init(&file, 16 << 20);
    text_init(&scratch, 1 << 20);
    Text *texts[] = {&v.id, &v.type, &v.response, &v.label, &v.metadata, &v.error, &v.tag};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        text_init(texts[i], 1 << 20);
    }
    CHECK_I64(fs_read(ROLLTOP_TEST_DATA "/reward-vectors.json", &file, &fault), ERR_OK);
    JsonScan s = json_scan(text_str(&file));
    CHECK(json_scan_object(&s));
    while (json_scan_key(&s, &scratch, &key)) {
        if (!str_equal(key, STR("vectors"))) {
            CHECK(json_scan_skip(&s));
            continue;
        }
        CHECK(json_scan_array(&s));
        while (json_scan_item(&s)) {
            CHECK(read_vector(&s, &scratch, &v));
            passed += check_vector(&v) ? 1 : 0;
            seen++;
        }
    }
    CHECK(json_scan_end(&s));
    printf("%d of %d reward vectors\n", passed, seen);
    CHECK_I64(seen, 563);
    CHECK_I64(passed, seen);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        text_free(texts[i]);
    }
    text_free(&file);
    text_free(&scratch);
}

static double score(const char *type, const char *response, const char *label)
{
    double out = NAN;
    Fault fault = {0};
    RewardInput input = {.response = str_from(response), .label = str_from(label)};
    CHECK_I64(reward_score(type, &input, NULL, &out, &fault), ERR_OK);
    return out;
}

static void exact(void)
{
    CHECK_NEAR(score("exact", "Answer: 12", "12"), 1, 0);
    CHECK_NEAR(score("exact", " 7\nQuestion: next", "7"), 1, 0);
    CHECK_NEAR(score("exact", "Answer: 1\nANSWER:  **12.**\nmore", "12"), 1, 0);
    CHECK_NEAR(score("exact", "Answer: **12**.", "12"), 0, 0);
    CHECK_NEAR(score("exact", "answer: \"Paris\"", "PARIS"), 1, 0);
    CHECK_NEAR(score("exact", "\n\n  $12$. \n", "12"), 0, 0); /* the blank shields the full stop */
    CHECK_NEAR(score("exact", "$12$.", "12"), 0, 0);           /* $ is stripped before it */
    CHECK_NEAR(score("exact", "12..", "12."), 1, 0);
    CHECK_NEAR(score("exact", "13", "12"), 0, 0);
    CHECK_NEAR(score("exact", "", "12"), 0, 0);
    CHECK_NEAR(score("exact", "Answer:", ""), 1, 0);
}

static void digits(void)
{
    CHECK_NEAR(score("digits", "123456", "123456"), 1, 0);
    CHECK_NEAR(score("digits", " 123456\n", "123456"), 1, 0);
    CHECK_NEAR(score("digits", "123000", "123456"), 0.5, 1e-15);
    CHECK_NEAR(score("digits", "123", "123456"), 0.5, 1e-15);
    CHECK_NEAR(score("digits", "123456789012", "123456"), 0.5, 1e-15);
    CHECK_NEAR(score("digits", "", "123456"), 0, 0);
    CHECK_NEAR(score("digits", "0123456", "123456"), 0, 0);
    CHECK_NEAR(score("digits", "\xC3\xA9" "2", "\xC3\xA8" "2"), 0.5, 1e-15);
}

static void symbolic_traps(void)
{
    CHECK_NEAR(score("math", "\\boxed{\\sqrt{x^2}}", "x"), 0, 0);
    CHECK_NEAR(score("math", "\\boxed{(a+b)^2}", "a^2+2ab+b^2"), 1, 0);
    CHECK_NEAR(score("math", "\\boxed{0.3333333333}", "1/3"), 0, 0);
    CHECK_NEAR(score("math", "\\boxed{x/0}", "y/0"), 0, 0);
    CHECK_NEAR(score("math", "\\boxed{sqrt(2)sqrt(3)}", "sqrt(6)"), 1, 0);
    char deep[4100];
    memset(deep, '(', sizeof deep);
    memcpy(deep, "\\boxed{", 7);
    deep[3000] = '}';
    deep[3001] = '\0';
    CHECK_NEAR(score("math", deep, "1"), 0, 0);
}

/* Spoilt answers: whatever they say, the score is one of the rule's and nothing breaks. */
static void mutations(void)
{
    static const char *const seeds[] = {
        "</think>\\boxed{\\frac{1}{2}} Answer: $\\text{5}$ \\sqrt[3]{x}^{2}",
        "\\boxed{\\begin{pmatrix}1\\\\2\\end{pmatrix}} Answer : 1,000 B is the correct",
        "\\boxed{(x+1)^2-\\sqrt{8}/2\\pi, 3 \\text{ cm}^2} answer is (B) frac12 sqrt3",
        "###Response \\boxed{7 3/4 \\cdot 10^{-3}} \xC3\xA9\xE2\x88\x9A\xD9\xA5 ANSWER:\n 34"};
    static const char *const types[] = {"math", "deepscaler", "dapo", "f1", "gpqa", "exact",
                                        "digits"};
    static const char letters[] = "\\{}()[]^_$%,.;:+-*/ 0159axe\n\xC3\xA9\xFF~&|=";
    Rng rng;
    rng_seed(&rng, 17);
    for (int round = 0; round < 3000; round++) {
        char text[160];
        char label[40];
        Fault fault = {0};
        const char *seed = seeds[rng_below(&rng, 4)];
        size_t n = strlen(seed);
        memcpy(text, seed, n);
        for (uint64_t k = rng_below(&rng, 6) + 1; k > 0; k--) {
            text[rng_below(&rng, n)] = letters[rng_below(&rng, sizeof letters - 1)];
        }
        size_t from = rng_below(&rng, n);
        size_t m = rng_below(&rng, n - from) % sizeof label;
        memcpy(label, text + from, m);
        RewardInput input = {.response = {text, n}, .label = {label, m}};
        double out = NAN;
        const char *type = types[rng_below(&rng, 7)];
        Err err = reward_score(type, &input, NULL, &out, &fault);
        bool good = err == ERR_OK ? out >= -1.0 && out <= 1.0 : fault.sentence[0] != '\0';
        if (!good) {
            fprintf(stderr, "%s: %.*s\n", type, (int)n, text);
        }
        CHECK(good);
    }
}

static void dispatch(void)
{
    Fault fault = {0};
    double out = -1;
    PyRandom py;
    Text list;
    RewardInput input = {.response = STR("x"), .label = STR("x"),
                         .metadata = STR("{\"rm_type\": \"exact\"}")};
    CHECK_I64(reward_score("math", &input, NULL, &out, &fault), ERR_OK);
    CHECK_NEAR(out, 1, 0); /* the row's own type goes first */
    CHECK_I64(reward_check_type("math", &fault), ERR_OK);
    CHECK_I64(reward_check_type("boxed_math", &fault), ERR_OK);
    CHECK_I64(reward_check_type("maths", &fault), ERR_NOT_FOUND);
    CHECK(strstr(fault.sentence, "\"maths\"") != NULL);
    CHECK(strstr(fault.hint, "nearest is math") != NULL);
    fault_clear(&fault);
    CHECK_I64(reward_check_type("", &fault), ERR_NOT_FOUND);
    py_random_seed(&py, 42); /* [random.randint(0, 1) for _ in range(10)] after random.seed(42) */
    static const double draws[] = {0, 0, 1, 0, 0, 0, 0, 0, 1, 0};
    input.metadata = (Str){0};
    for (size_t i = 0; i < 10; i++) {
        CHECK_I64(reward_score("random", &input, &py, &out, &fault), ERR_OK);
        CHECK_NEAR(out, draws[i], 0);
    }
    CHECK_I64(reward_score("random", &input, NULL, &out, &fault), ERR_ARG);
    text_init(&list, 256);
    reward_list_types(&list);
    CHECK_STR(text_c(&list), "dapo, deepscaler, digits, exact, f1, gpqa, math, random");
    text_free(&list);
}

int main(void)
{
    RUN(vectors);
    RUN(exact);
    RUN(digits);
    RUN(symbolic_traps);
    RUN(mutations);
    RUN(dispatch);
    return test_end();
}
