#include "core/rollout/reward.h"

#include "core/rollout/reward_parts.h"

#include <string.h>

typedef struct RewardType {
    const char *name;
    Err (*score)(const RewardInput *input, double *out, Fault *fault); /* NULL: random */
} RewardType;

static const RewardType types[] = {
    {"dapo", reward_dapo},   {"deepscaler", reward_deepscaler}, {"digits", reward_digits},
    {"exact", reward_exact}, {"f1", reward_f1},                 {"gpqa", reward_gpqa},
    {"math", reward_math},   {"random", NULL},
};
enum { TYPES = sizeof types / sizeof types[0], TYPE_TEXT_MAX = 256 };

void reward_list_types(Text *out)
{
    for (size_t i = 0; i < TYPES; i++) {
        (void)text_addf(out, "%s%s", i > 0 ? ", " : "", types[i].name);
    }
}

static const RewardType *find(Str name)
{
    for (size_t i = 0; i < TYPES; i++) {
        if (str_equal(name, str_from(types[i].name))) {
            return &types[i];
        }
    }
    return NULL;
}

/* Cuts one "boxed_" off; blanks around the name do not count. */
static Str base_name(Str name, bool *boxed)
{
    name = str_trim(name);
    *boxed = str_starts(name, STR("boxed_"));
    return *boxed ? str_slice(name, 6, name.n) : name;
}

static Err unknown(Str name, Fault *fault)
{
    Text list;
    char hint[256];
    const char *nearest = types[0].name;
    int best = 1000;
    bool boxed;
    Str base = str_slice(base_name(name, &boxed), 0, 64);
    for (size_t i = 0; i < TYPES; i++) {
        int distance = str_distance(base, str_from(types[i].name), 64);
        if (distance < best) {
            best = distance;
            nearest = types[i].name;
        }
    }
    text_init(&list, 200);
    reward_list_types(&list);
    (void)str_format(hint, sizeof hint, "the nearest is %s; known are %s", nearest,
                     text_c(&list));
    text_free(&list);
    return fault_set(fault, ERR_NOT_FOUND, hint, "there is no reward type \"%.*s\"",
                     (int)str_slice(name, 0, 64).n, name.p != NULL ? name.p : "");
}

Err reward_check_type(const char *rm_type, Fault *fault)
{
    bool boxed;
    return find(base_name(str_from(rm_type), &boxed)) != NULL ? ERR_OK
                                                             : unknown(str_from(rm_type), fault);
}

/* metadata.rm_type, where it is a string that is not empty, goes before the run's type. */
static void override(Str metadata, Text *type)
{
    Text scratch;
    Str key;
    Str value;
    size_t at;
    if (!str_find(metadata, STR("rm_type"), &at)) {
        return;
    }
    JsonScan s = json_scan(metadata);
    text_init(&scratch, 1 << 16);
    bool good = json_scan_object(&s);
    while (good && json_scan_key(&s, &scratch, &key)) {
        if (str_equal(key, STR("rm_type")) && json_scan_peek(&s) == '"') {
            good = json_scan_string(&s, &scratch, &value);
            if (good && value.n > 0 && value.n < TYPE_TEXT_MAX) {
                text_clear(type);
                (void)text_add_str(type, value);
            }
        } else {
            good = json_scan_skip(&s);
        }
    }
    text_free(&scratch);
}

Err reward_score(const char *rm_type, const RewardInput *input, PyRandom *py, double *out,
                 Fault *fault)
{
    Text type;
    bool boxed;
    RewardInput used = *input;
    *out = 0.0;
    text_init(&type, TYPE_TEXT_MAX);
    (void)text_add_c(&type, rm_type);
    override(input->metadata, &type);
    const RewardType *found = find(base_name(text_str(&type), &boxed));
    Err err = ERR_OK;
    if (found == NULL) {
        err = unknown(text_str(&type), fault);
    } else if (found->score == NULL) {
        if (py == NULL) {
            err = fault_set(fault, ERR_ARG, NULL, "the random reward needs a generator");
        } else {
            *out = (double)py_random_below(py, 2);
        }
    } else {
        if (boxed && !reward_boxed(input->response, &used.response)) {
            used.response = STR("");
        }
        err = found->score(&used, out, fault);
    }
    text_free(&type);
    return err;
}
