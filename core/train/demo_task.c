/* Reversing six digits, right or wrong as a whole. The base checkpoint is a model that was shown
 * the task for a moment: it gives one whole right answer in about eight. From there it learns from
 * rewards alone. (Sorting and partial credit were tried with tests/bench/demo_tune.c: both are
 * slower, and a reward by position does not punish an answer that never ends.) */
#include "core/train/demo_task.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/tokenizer.h"
#include "core/model/weights.h"
#include "core/train/demo_recipe.h"
#include "core/train/learner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const demo_special[] = {"<end>", "<pad>"};
static const char demo_alphabet[] = "0123456789=eorstv ";

DemoRecipe demo_recipe_default(void)
{
    return (DemoRecipe){
        .reverse = true,
        .digits = 6,
        .layers = 3,
        .hidden = 96,
        .heads = 6,
        .kv_heads = 3,
        .head_dim = 16,
        .ffn = 256,
        .warmup_batch = 64,
        .warmup_examples = 4096,
        .warmup_lr = 1e-3,
        .warmup_goal = 0.12,
        .warmup_max = 400,
        .train_prompts = 4096,
        .eval_prompts = 128,
    };
}

static int digit_compare(const void *a, const void *b)
{
    return *(const char *)a - *(const char *)b;
}

void demo_prompt(const DemoRecipe *recipe, uint64_t number, char prompt[DEMO_TEXT_MAX],
                 char answer[DEMO_TEXT_MAX])
{
    int n = recipe->digits;
    char digits[16];
    for (int i = n - 1; i >= 0; i--) {
        digits[i] = (char)('0' + number % 10);
        number /= 10;
    }
    snprintf(prompt, DEMO_TEXT_MAX, "%s %.*s=", recipe->reverse ? "rev" : "sort", n, digits);
    if (recipe->reverse) {
        for (int i = 0; i < n; i++) {
            answer[i] = digits[n - 1 - i];
        }
    } else {
        qsort(digits, (size_t)n, 1, digit_compare);
        memcpy(answer, digits, (size_t)n);
    }
    answer[n] = '\0';
}

/* Distinct numbers in random order, by one shuffle of a range or by drawing with a set. */
static uint64_t *draw_numbers(const DemoRecipe *recipe, size_t count, Rng *rng)
{
    uint64_t range = 1;
    for (int i = 0; i < recipe->digits; i++) {
        range *= 10;
    }
    unsigned char *taken = xcalloc((size_t)range, 1);
    uint64_t *numbers = xcalloc(count, sizeof *numbers);
    for (size_t i = 0; i < count;) {
        uint64_t number = rng_below(rng, range);
        if (!taken[number]) {
            taken[number] = 1;
            numbers[i++] = number;
        }
    }
    free(taken);
    return numbers;
}

static Err write_prompts(const DemoRecipe *recipe, const uint64_t *numbers, size_t count,
                         const char *dir, const char *name, Fault *fault)
{
    Text text;
    text_init(&text, (size_t)64 << 20);
    for (size_t i = 0; i < count; i++) {
        char prompt[DEMO_TEXT_MAX];
        char answer[DEMO_TEXT_MAX];
        JsonOut out;
        demo_prompt(recipe, numbers[i], prompt, answer);
        json_begin(&out, &text);
        json_object_begin(&out);
        json_member_string(&out, "input", prompt);
        json_member_string(&out, "label", answer);
        json_object_end(&out);
        text_add_char(&text, '\n');
    }
    char *path = fs_join(dir, name);
    Err err = fs_write_atomic(path, text_c(&text), text.n, fault);
    free(path);
    text_free(&text);
    return err;
}

static Err write_model(const DemoRecipe *recipe, const char *base, uint64_t seed, Fault *fault)
{
    Err err = tokenizer_write_alphabet(base, demo_special, 2, STR(demo_alphabet), fault);
    Tokenizer *tokenizer = NULL;
    if (!err) {
        err = tokenizer_load(base, &tokenizer, fault);
    }
    if (err) {
        return err;
    }
    ModelConfig config = {
        .arch = MODEL_QWEN3,
        .layers = recipe->layers,
        .hidden = recipe->hidden,
        .heads = recipe->heads,
        .kv_heads = recipe->kv_heads,
        .head_dim = recipe->head_dim,
        .ffn = recipe->ffn,
        .vocab = tokenizer_vocab(tokenizer),
        .max_positions = 64,
        .rms_eps = 1e-6f,
        .rope_theta = 10000.0,
        .tied = true,
        .dtype = MODEL_F32,
        .bos = -1,
        .eos = {tokenizer_id_of(tokenizer, demo_special[0])},
        .eos_count = 1,
    };
    tokenizer_free(tokenizer);
    return weights_init_random(&config, seed, base, fault);
}

static Err example_make(const DemoRecipe *recipe, const Tokenizer *tokenizer, uint64_t number,
                        SftExample *out, Fault *fault)
{
    char prompt[DEMO_TEXT_MAX];
    char answer[DEMO_TEXT_MAX];
    TokenIds ids = {0};
    demo_prompt(recipe, number, prompt, answer);
    Err err = tokenizer_encode(tokenizer, str_from(prompt), &ids, fault);
    int from = (int)ids.count;
    if (!err) {
        err = tokenizer_encode(tokenizer, str_from(answer), &ids, fault);
    }
    if (err) {
        token_ids_free(&ids);
        return err;
    }
    out->tokens = xcalloc(ids.count + 1, sizeof *out->tokens);
    memcpy(out->tokens, ids.ids, ids.count * sizeof *ids.ids);
    out->tokens[ids.count] = tokenizer_id_of(tokenizer, demo_special[0]);
    out->count = (int)ids.count + 1;
    out->loss_from = from;
    token_ids_free(&ids);
    return ERR_OK;
}

/* Examples as the learner takes them. */
typedef struct Warmup {
    SftExample *examples;
    size_t count;
    const int32_t **tokens;
    const uint8_t **masks;
    size_t *counts;
    uint8_t *mask; /* the same for all: their lengths are equal */
} Warmup;

static Err warmup_new(const DemoRecipe *recipe, const uint64_t *numbers, const char *base,
                      Warmup *w, Fault *fault)
{
    size_t batch = (size_t)recipe->warmup_batch;
    w->count = (size_t)recipe->warmup_examples;
    w->examples = xcalloc(w->count, sizeof *w->examples);
    w->tokens = xcalloc(batch, sizeof *w->tokens);
    w->masks = xcalloc(batch, sizeof *w->masks);
    w->counts = xcalloc(batch, sizeof *w->counts);
    Tokenizer *tokenizer = NULL;
    Err err = tokenizer_load(base, &tokenizer, fault);
    for (size_t i = 0; i < w->count && !err; i++) {
        err = example_make(recipe, tokenizer, numbers[i], &w->examples[i], fault);
    }
    tokenizer_free(tokenizer);
    if (!err) {
        size_t n = (size_t)w->examples[0].count;
        size_t from = (size_t)w->examples[0].loss_from;
        w->mask = xcalloc(n, 1);
        memset(w->mask + from, 1, n - from);
    }
    return err;
}

static void warmup_free(Warmup *w)
{
    for (size_t i = 0; i < w->count; i++) {
        free(w->examples[i].tokens);
    }
    free(w->examples);
    free((void *)w->tokens);
    free((void *)w->masks);
    free(w->counts);
    free(w->mask);
}

/* Mean over a batch of p(whole answer | prompt): what sampling at temperature 1 would score. */
static Err answer_chance(Learner *learner, const Warmup *w, size_t batch, double *chance,
                         Fault *fault)
{
    size_t n = (size_t)w->examples[0].count;
    size_t from = (size_t)w->examples[0].loss_from;
    float *logp = xcalloc(batch * (n - 1), sizeof *logp);
    Err err = learner_score(learner, w->tokens, w->counts, batch, 1.0f, logp, fault);
    *chance = 0.0;
    for (size_t i = 0; i < batch && !err; i++) {
        double sum = 0.0;
        for (size_t t = from; t < n; t++) {
            sum += (double)logp[i * (n - 1) + t - 1];
        }
        *chance += exp(sum) / (double)batch;
    }
    free(logp);
    return err;
}

/* Fills the learner's rows with examples of the next step. */
static void warmup_draw(Warmup *w, size_t batch, Rng *rng)
{
    for (size_t i = 0; i < batch; i++) {
        const SftExample *e = &w->examples[rng_below(rng, w->count)];
        w->tokens[i] = e->tokens;
        w->counts[i] = (size_t)e->count;
        w->masks[i] = w->mask;
    }
}

/* The chance is a pass of its own, so it is asked for only near the goal: while the last step's
 * loss puts the chance of a middling example below an eighth of it, the mean is not there yet. */
static bool warmup_is_near(const DemoRecipe *recipe, const Warmup *w, double loss)
{
    double answer = (double)(w->examples[0].count - w->examples[0].loss_from);
    return exp(-loss * answer) > recipe->warmup_goal / 8.0;
}

static Err warmup_run(const DemoRecipe *recipe, Learner *learner, Warmup *w, Rng *rng, int *steps,
                      double *chance, Fault *fault)
{
    size_t batch = (size_t)recipe->warmup_batch;
    double loss = INFINITY;
    *chance = 0.0;
    for (*steps = 0; *steps < recipe->warmup_max; ++*steps) {
        LearnerMetrics metrics;
        Err err = ERR_OK;
        warmup_draw(w, batch, rng);
        if (warmup_is_near(recipe, w, loss)) {
            /* Judged on the examples of the step, before it learns from them. */
            err = answer_chance(learner, w, batch, chance, fault);
        }
        if (!err && *chance >= recipe->warmup_goal) {
            return ERR_OK;
        }
        err = err ? err : learner_sft(learner, w->tokens, w->masks, w->counts, batch, &metrics,
                                      fault);
        if (err) {
            return err;
        }
        loss = learner_metric(&metrics, "train/loss", INFINITY);
    }
    return fault_set(fault, ERR_STATE, "try another --seed",
                     "the warm-up of the demo's model stopped at %g after %d steps", *chance,
                     *steps);
}

static Err warm_up(const DemoRecipe *recipe, const uint64_t *numbers, const char *base, Rng *rng,
                   int threads, int *steps, double *chance, Fault *fault)
{
    TrainerConfig config = trainer_config_default();
    config.load_dir = base;
    config.threads = threads;
    config.max_tokens_per_pass = 2048;
    config.adam = (AdamWConfig){.lr = recipe->warmup_lr, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8,
                                .clip_grad = 1.0};
    Learner *learner = NULL;
    Warmup w = {0};
    char digest[DIGEST_TEXT];
    int64_t bytes;
    Err err = learner_new(&config, &learner, fault);
    if (!err) {
        err = warmup_new(recipe, numbers, base, &w, fault);
    }
    if (!err) {
        err = warmup_run(recipe, learner, &w, rng, steps, chance, fault);
    }
    if (!err) {
        err = learner_publish(learner, MODEL_F32, base, digest, &bytes, fault);
    }
    warmup_free(&w);
    learner_free(learner);
    return err;
}

Err demo_recipe_make(const DemoRecipe *recipe, const char *dir, uint64_t seed, int threads,
                     int *warmup_steps, double *reached, Fault *fault)
{
    size_t train = (size_t)recipe->train_prompts;
    size_t eval = (size_t)recipe->eval_prompts;
    size_t warm = (size_t)recipe->warmup_examples;
    Rng rng;
    rng_seed(&rng, seed);
    uint64_t *numbers = draw_numbers(recipe, eval + (train > warm ? train : warm), &rng);
    char *base = fs_join(dir, "base");
    Err err = fs_mkdirs(base, 0755, fault);
    if (!err) {
        err = write_prompts(recipe, numbers, eval, dir, "eval.jsonl", fault);
    }
    if (!err) {
        err = write_prompts(recipe, numbers + eval, train, dir, "train.jsonl", fault);
    }
    if (!err) {
        err = write_model(recipe, base, rng_u64(&rng), fault);
    }
    if (!err) {
        err = warm_up(recipe, numbers + eval, base, &rng, threads, warmup_steps, reached, fault);
    }
    free(base);
    free(numbers);
    return err;
}

Err demo_task_make(const char *dir, uint64_t seed, int threads, DemoTask *out, Fault *fault)
{
    DemoRecipe recipe = demo_recipe_default();
    *out = (DemoTask){
        .rm_type = "exact",
        .eval_rm_type = "exact",
        .input_key = "input",
        .label_key = "label",
        .rollout_batch_size = 32,
        .n_samples_per_prompt = 8,
        .global_batch_size = 64,
        .max_response_len = recipe.digits + 3,
        .eval_interval = 5,
        .max_steps = 400,
        .lr = 2e-4,
        .reached = 0.9,
        .eval_prompts = recipe.eval_prompts,
    };
    int steps;
    double chance;
    return demo_recipe_make(&recipe, dir, seed, threads, &steps, &chance, fault);
}
