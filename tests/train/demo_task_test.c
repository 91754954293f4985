/* The demo's task: what is written, that it repeats, that held-out prompts are held out, and that
 * the base model starts where it should. And supervised training in place. */
#include "core/train/demo_task.h"
#include "tests/harness.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/model/tokenizer.h"
#include "core/model/weights.h"
#include "core/train/learner.h"

#include <stdlib.h>
#include <unistd.h>

static char *root;

static Text file_read(const char *dir, const char *name)
{
    Text text;
    text_init(&text, 1 << 24);
    char *path = fs_join(dir, name);
    CHECK_I64(fs_read(path, &text, NULL), ERR_OK);
    free(path);
    return text;
}

static int text_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Inputs of a prompt file, sorted; every row must hold the right answer. */
static char **inputs_read(const char *dir, const char *name, const DemoTask *task, size_t *count)
{
    Text text = file_read(dir, name);
    Str rest = text_str(&text);
    Str line;
    char **inputs = xcalloc(10000, sizeof *inputs);
    *count = 0;
    while (str_split(&rest, '\n', &line) && line.n > 0) {
        cJSON *row = NULL;
        CHECK_I64(json_parse(line, 4096, name, &row, NULL), ERR_OK);
        const char *input = json_string(row, task->input_key, "");
        const char *label = json_string(row, task->label_key, "");
        size_t n = strlen(label);
        const char *digits = strchr(input, ' ');
        CHECK(n == 6 && digits && strlen(digits) == n + 2 && digits[n + 1] == '=');
        for (size_t i = 0; digits && i < n; i++) {
            CHECK(digits[1 + i] == label[n - 1 - i]);
        }
        inputs[(*count)++] = xstrdup(input);
        cJSON_Delete(row);
    }
    text_free(&text);
    qsort(inputs, *count, sizeof *inputs, text_compare);
    return inputs;
}

static void inputs_free(char **inputs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(inputs[i]);
    }
    free(inputs);
}

static void same_seed_same_bytes(void)
{
    static const char *const files[] = {"train.jsonl", "eval.jsonl", "base/config.json",
                                        "base/tokenizer.json", "base/model.safetensors"};
    const uint64_t seeds[3] = {7, 7, 8};
    char *dirs[3];
    DemoTask task;
    for (int i = 0; i < 3; i++) {
        char name[24];
        snprintf(name, sizeof name, "task%d", i);
        dirs[i] = fs_join(root, name);
        Fault fault = {0};
        CHECK_I64(demo_task_make(dirs[i], seeds[i], 1, &task, &fault), ERR_OK);
        CHECK_STR(fault.sentence, "");
    }
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        Text a = file_read(dirs[0], files[f]);
        Text b = file_read(dirs[1], files[f]);
        Text c = file_read(dirs[2], files[f]);
        CHECK(a.n > 0 && a.n == b.n && memcmp(a.p, b.p, a.n) == 0);
        bool differs = a.n != c.n || memcmp(a.p, c.p, a.n) != 0;
        bool is_setting = f == 2 || f == 3; /* config and tokenizer do not depend on the seed */
        CHECK_I64(differs, !is_setting);
        text_free(&a);
        text_free(&b);
        text_free(&c);
    }
    for (int i = 0; i < 3; i++) {
        free(dirs[i]);
    }
}

static void held_out_prompts(void)
{
    char *dir = fs_join(root, "task0");
    DemoTask task = {.input_key = "input", .label_key = "label"};
    size_t train_n = 0;
    size_t eval_n = 0;
    char **train = inputs_read(dir, "train.jsonl", &task, &train_n);
    char **eval = inputs_read(dir, "eval.jsonl", &task, &eval_n);
    CHECK(train_n >= 1000 && eval_n >= 100);
    for (size_t i = 0; i < eval_n; i++) {
        CHECK(bsearch(&eval[i], train, train_n, sizeof *train, text_compare) == NULL);
    }
    inputs_free(train, train_n);
    inputs_free(eval, eval_n);
    free(dir);
}

/* The chance of a whole right answer on held-out prompts: what the first evaluation will show. */
static void base_starts_low(void)
{
    char *dir = fs_join(root, "task0");
    char *base = fs_join(dir, "base");
    TrainerConfig config = trainer_config_default();
    config.load_dir = base;
    Learner *learner = NULL;
    Tokenizer *tokenizer = NULL;
    CHECK_I64(learner_new(&config, &learner, NULL), ERR_OK);
    CHECK_I64(tokenizer_load(base, &tokenizer, NULL), ERR_OK);
    Text text = file_read(dir, "eval.jsonl");
    Str rest = text_str(&text);
    Str line;
    double sum = 0.0;
    int rows = 0;
    while (str_split(&rest, '\n', &line) && line.n > 0) {
        cJSON *row = NULL;
        CHECK_I64(json_parse(line, 4096, "eval.jsonl", &row, NULL), ERR_OK);
        TokenIds ids = {0};
        float logp[64];
        double chance = 0.0;
        CHECK_I64(tokenizer_encode(tokenizer, str_from(json_string(row, "input", "")), &ids, NULL),
                  ERR_OK);
        size_t from = ids.count;
        CHECK_I64(tokenizer_encode(tokenizer, str_from(json_string(row, "label", "")), &ids, NULL),
                  ERR_OK);
        int32_t all[64];
        memcpy(all, ids.ids, ids.count * sizeof *all);
        all[ids.count] = graph_config(learner_graph(learner))->eos[0];
        const int32_t *one = all;
        size_t n = ids.count + 1;
        CHECK_I64(learner_score(learner, &one, &n, 1, 1.0f, logp, NULL), ERR_OK);
        for (size_t t = from; t < n; t++) {
            chance += (double)logp[t - 1];
        }
        sum += exp(chance);
        rows++;
        token_ids_free(&ids);
        cJSON_Delete(row);
    }
    CHECK(sum / rows <= 0.2);
    CHECK(sum / rows >= 0.03); /* and not hopeless: rewards must be found by sampling */
    text_free(&text);
    tokenizer_free(tokenizer);
    learner_free(learner);
    free(base);
    free(dir);
}

static void supervised_in_place(void)
{
    char *dir = fs_join(root, "sft");
    ModelConfig model = {.arch = MODEL_QWEN3, .layers = 1, .hidden = 32, .heads = 2, .kv_heads = 1,
                         .head_dim = 16, .ffn = 64, .vocab = 32, .max_positions = 32,
                         .rms_eps = 1e-6f, .rope_theta = 10000.0, .tied = true, .bos = -1};
    CHECK_I64(fs_mkdirs(dir, 0755, NULL), ERR_OK);
    CHECK_I64(weights_init_random(&model, 3, dir, NULL), ERR_OK);
    int32_t a[4] = {1, 2, 3, 4};
    int32_t b[5] = {5, 6, 7, 8, 9};
    const SftExample examples[2] = {{a, 4, 2}, {b, 5, 1}};
    AdamWConfig adam = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8, .clip_grad = 1.0};
    double first = 0.0;
    double last = 0.0;
    Fault fault = {0};
    CHECK_I64(trainer_sft(dir, examples, 2, 1, 2, &adam, 1, 1, &first, &fault), ERR_OK);
    CHECK_I64(trainer_sft(dir, examples, 2, 60, 2, &adam, 1, 2, &last, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    CHECK(first > 2.5 && last < 0.2);
    const SftExample bad[1] = {{a, 4, 4}};
    CHECK_I64(trainer_sft(dir, bad, 1, 1, 1, &adam, 1, 1, &last, &fault), ERR_ARG);
    CHECK(strstr(fault.sentence, "example 0") != NULL);
    free(dir);
}

int main(void)
{
    char path[] = "/tmp/rolltop-demo-task-XXXXXX";
    root = mkdtemp(path);
    if (!root) {
        printf("no temporary directory\n");
        return 1;
    }
    RUN(same_seed_same_bytes);
    RUN(held_out_prompts);
    RUN(base_starts_low);
    RUN(supervised_in_place);
    fs_remove_tree(root, NULL);
    return test_end();
}
