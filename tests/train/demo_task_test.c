/* The demo's task: what is written, that it repeats, that held-out prompts are held out, and that
 * the base model starts where it should. And supervised training in place. */
#include "core/train/demo_task.h"
#include "tests/harness.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/model/infer.h"
#include "core/model/tokenizer.h"
#include "core/model/weights.h"
#include "core/train/learner.h"

#include <math.h>
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
    for (int i = 0; i < 3; i++) {
        char name[24];
        snprintf(name, sizeof name, "task%d", i);
        dirs[i] = fs_join(root, name);
        Fault fault = {0};
        CHECK_I64(demo_task_write(dirs[i], seeds[i], &fault), ERR_OK);
        CHECK_I64(demo_task_warm_up(dirs[i], seeds[i], 1, &fault), ERR_OK);
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
    const DemoTask task = demo_task_default();
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

enum { ROW_MAX = 32, BLOCK = 16 };

typedef struct Rows { /* held-out prompts with their answers and end */
    int32_t tokens[256][ROW_MAX];
    const int32_t *each[256];
    size_t counts[256];
    int prompts[256]; /* tokens of the prompt */
    size_t count;
} Rows;

static void rows_read(const char *dir, const Tokenizer *tokenizer, int32_t end, Rows *rows)
{
    Text text = file_read(dir, "eval.jsonl");
    Str rest = text_str(&text);
    Str line;
    rows->count = 0;
    while (str_split(&rest, '\n', &line) && line.n > 0 && rows->count < 256) {
        cJSON *row = NULL;
        TokenIds ids = {0};
        CHECK_I64(json_parse(line, 4096, "eval.jsonl", &row, NULL), ERR_OK);
        CHECK_I64(tokenizer_encode(tokenizer, str_from(json_string(row, "input", "")), &ids, NULL),
                  ERR_OK);
        rows->prompts[rows->count] = (int)ids.count;
        CHECK_I64(tokenizer_encode(tokenizer, str_from(json_string(row, "label", "")), &ids, NULL),
                  ERR_OK);
        CHECK(ids.count < ROW_MAX);
        memcpy(rows->tokens[rows->count], ids.ids, ids.count * sizeof *ids.ids);
        rows->tokens[rows->count][ids.count] = end;
        rows->each[rows->count] = rows->tokens[rows->count];
        rows->counts[rows->count++] = ids.count + 1;
        token_ids_free(&ids);
        cJSON_Delete(row);
    }
    text_free(&text);
}

/* Mean chance that sampling at temperature 1 gives the whole answer, and, in *token, that it gives
 * a token of the answer after the right ones before it. */
static double sampled_right(const char *base, const Rows *rows, double *token)
{
    static float logp[256 * ROW_MAX];
    TrainerConfig config = trainer_config_default();
    Learner *learner = NULL;
    config.load_dir = base;
    CHECK_I64(learner_new(&config, &learner, NULL), ERR_OK);
    CHECK_I64(learner_score(learner, rows->each, rows->counts, rows->count, 1.0f, logp, NULL),
              ERR_OK);
    double whole = 0.0;
    const float *at = logp;
    *token = 0.0;
    for (size_t i = 0; i < rows->count; i++) {
        double sum = 0.0;
        size_t answer = rows->counts[i] - (size_t)rows->prompts[i];
        for (size_t t = (size_t)rows->prompts[i]; t < rows->counts[i]; t++) {
            sum += (double)at[t - 1];
            *token += exp((double)at[t - 1]) / (double)(answer * rows->count);
        }
        whole += exp(sum) / (double)rows->count;
        at += rows->counts[i] - 1;
    }
    learner_free(learner);
    return whole;
}

/* Share of prompts whose likeliest tokens are the whole answer and its end. Teacher forcing says
 * so: a greedy answer is right exactly if each token is the likeliest after the right ones. */
static double greedy_right(const char *base, const Rows *rows)
{
    Weights *weights = NULL;
    Infer *infer = NULL;
    const InferConfig config = {1, BLOCK, ROW_MAX / BLOCK, ROW_MAX};
    const int32_t blocks[ROW_MAX / BLOCK] = {0, 1};
    CHECK_I64(weights_load(base, MODEL_F32, &weights, NULL), ERR_OK);
    CHECK_I64(infer_new(weights, &config, &infer, NULL), ERR_OK);
    int vocab = weights_config(weights)->vocab;
    size_t right = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const int32_t *tokens = rows->tokens[i];
        const InferSeq seq = {tokens, (int)rows->counts[i] - 1, 0, blocks, rows->prompts[i] - 1};
        const float *logits;
        int count;
        bool same = true;
        CHECK_I64(infer_step(infer, &seq, 1, &logits, &count, NULL), ERR_OK);
        for (int t = 0; t < count; t++) {
            const float *row = logits + (size_t)t * (size_t)vocab;
            for (int v = 0; v < vocab; v++) {
                same = same && row[v] <= row[tokens[rows->prompts[i] + t]];
            }
        }
        right += same ? 1 : 0;
    }
    infer_free(infer);
    weights_unref(weights);
    return (double)right / (double)rows->count;
}

/* What the first evaluation will show: hardly anything, and a greedy decoder no more. The digits
 * are left to learn, but not from nothing: places must come out right by chance now and then. */
static void base_starts_low(void)
{
    static Rows rows;
    static const char *const tasks[] = {"task0", "task2"};
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        char *dir = fs_join(root, tasks[i]);
        char *base = fs_join(dir, "base");
        Tokenizer *tokenizer = NULL;
        CHECK_I64(tokenizer_load(base, &tokenizer, NULL), ERR_OK);
        rows_read(dir, tokenizer, tokenizer_id_of(tokenizer, "<end>"), &rows);
        double token = 0.0;
        double whole = sampled_right(base, &rows, &token);
        double greedy = greedy_right(base, &rows);
        printf("%s: whole answers sampled %.5f, greedy %.3f, tokens %.3f\n", tasks[i], whole,
               greedy, token);
        CHECK(rows.count >= 100);
        CHECK(whole <= 0.02);
        CHECK(greedy <= 0.2);
        CHECK(token >= 0.2 && token <= 0.6);
        tokenizer_free(tokenizer);
        free(base);
        free(dir);
    }
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
    SftPlan plan = {.steps = 1, .batch = 2, .threads = 1, .seed = 1,
                    .adam = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8,
                             .clip_grad = 1.0}};
    SftEnd first;
    SftEnd last;
    Fault fault = {0};
    CHECK_I64(trainer_sft(dir, examples, 2, &plan, &first, &fault), ERR_OK);
    CHECK(first.steps == 1 && first.loss > 2.5);
    plan.steps = 60;
    CHECK_I64(trainer_sft(dir, examples, 2, &plan, &last, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    CHECK(last.steps == 60 && last.loss < 0.2);
    plan.loss_goal = 0.3; /* reached before the first step, which is taken all the same */
    CHECK_I64(trainer_sft(dir, examples, 2, &plan, &last, &fault), ERR_OK);
    CHECK(last.steps == 1 && last.loss <= 0.3);
    const SftExample bad[1] = {{a, 4, 4}};
    plan.batch = 1;
    CHECK_I64(trainer_sft(dir, bad, 1, &plan, &last, &fault), ERR_ARG);
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
