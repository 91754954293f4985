/* Reversing six digits. The base checkpoint is a model that was shown the task for a moment: it
 * answers with six digits and an end, hardly ever all right, sampled or decoded greedily. Training
 * rewards each right place, since a whole right answer is too rare to begin with; evaluation takes
 * whole answers only. Advantages are not divided by the group's spread: the last rare faults would
 * weigh as much as the first lessons, and the policy would swing. (tests/bench/demo_tune.c tries
 * other numbers.) */
#include "core/train/demo_task.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/tokenizer.h"
#include "core/model/weights.h"
#include "core/train/demo_recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const demo_special[] = {"<end>", "<pad>"};
static const char demo_alphabet[] = "0123456789=erv ";

DemoRecipe demo_recipe_default(void)
{
    return (DemoRecipe){
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
        .warmup_loss = 1.5,
        .warmup_max = 400,
        .train_prompts = 4096,
        .eval_prompts = 128,
    };
}

/* "rev 53917=" and "71935" for the digits drawn from number (0 … 10^digits - 1). */
static void demo_prompt(const DemoRecipe *recipe, uint64_t number, char prompt[DEMO_TEXT_MAX],
                        char answer[DEMO_TEXT_MAX])
{
    int n = recipe->digits;
    char digits[16];
    for (int i = n - 1; i >= 0; i--) {
        digits[i] = (char)('0' + number % 10);
        number /= 10;
    }
    snprintf(prompt, DEMO_TEXT_MAX, "rev %.*s=", n, digits);
    for (int i = 0; i < n; i++) {
        answer[i] = digits[n - 1 - i];
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

/* Shows the model the first steps of the task, on prompts that it will train on later. */
static Err warm_up(const DemoRecipe *recipe, const uint64_t *numbers, const char *base,
                   uint64_t seed, int threads, SftEnd *end, Fault *fault)
{
    size_t count = (size_t)recipe->warmup_examples;
    const SftPlan plan = {.steps = recipe->warmup_max,
                          .batch = recipe->warmup_batch,
                          .threads = threads,
                          .loss_goal = recipe->warmup_loss,
                          .seed = seed,
                          .adam = {.lr = recipe->warmup_lr, .beta1 = 0.9, .beta2 = 0.98,
                                   .eps = 1e-8, .clip_grad = 1.0}};
    SftExample *examples = xcalloc(count, sizeof *examples);
    Tokenizer *tokenizer = NULL;
    Err err = tokenizer_load(base, &tokenizer, fault);
    for (size_t i = 0; i < count && !err; i++) {
        err = example_make(recipe, tokenizer, numbers[i], &examples[i], fault);
    }
    if (!err) {
        err = trainer_sft(base, examples, count, &plan, end, fault);
    }
    if (!err && end->loss > plan.loss_goal) {
        err = fault_set(fault, ERR_STATE, "try another --seed",
                        "the warm-up of the demo's model is at a loss of %g after %d steps, and "
                        "should be at %g", end->loss, end->steps, plan.loss_goal);
    }
    for (size_t i = 0; i < count; i++) {
        free(examples[i].tokens);
    }
    free(examples);
    tokenizer_free(tokenizer);
    return err;
}

/* What follows from a seed: held-out prompts, behind them those to train on. */
typedef struct Draw {
    uint64_t *numbers, weights_seed, warmup_seed;
} Draw;

static Draw draw(const DemoRecipe *recipe, uint64_t seed)
{
    size_t train = (size_t)recipe->train_prompts;
    size_t warm = (size_t)recipe->warmup_examples;
    Rng rng;
    rng_seed(&rng, seed);
    Draw d = {.numbers = draw_numbers(
                  recipe, (size_t)recipe->eval_prompts + (train > warm ? train : warm), &rng)};
    d.weights_seed = rng_u64(&rng);
    d.warmup_seed = rng_u64(&rng);
    return d;
}

Err demo_recipe_write(const DemoRecipe *recipe, const char *dir, uint64_t seed, Fault *fault)
{
    size_t train = (size_t)recipe->train_prompts;
    size_t eval = (size_t)recipe->eval_prompts;
    Draw d = draw(recipe, seed);
    char *base = fs_join(dir, "base");
    Err err = fs_mkdirs(base, 0755, fault);
    if (!err) {
        err = write_prompts(recipe, d.numbers, eval, dir, "eval.jsonl", fault);
    }
    if (!err) {
        err = write_prompts(recipe, d.numbers + eval, train, dir, "train.jsonl", fault);
    }
    if (!err) {
        err = write_model(recipe, base, d.weights_seed, fault);
    }
    free(base);
    free(d.numbers);
    return err;
}

Err demo_recipe_warm_up(const DemoRecipe *recipe, const char *dir, uint64_t seed, int threads,
                        SftEnd *warmup, Fault *fault)
{
    Draw d = draw(recipe, seed);
    char *base = fs_join(dir, "base");
    Err err = warm_up(recipe, d.numbers + recipe->eval_prompts, base, d.warmup_seed, threads,
                      warmup, fault);
    free(base);
    free(d.numbers);
    return err;
}

DemoTask demo_task_default(void)
{
    DemoRecipe recipe = demo_recipe_default();
    return (DemoTask){
        .rm_type = "digits",
        .eval_rm_type = "exact",
        .input_key = "input",
        .label_key = "label",
        .rollout_batch_size = 32,
        .n_samples_per_prompt = 8,
        .global_batch_size = 32,
        .max_response_len = recipe.digits + 3,
        .eval_interval = 5,
        .max_steps = 400,
        .lr = 2e-4,
        .reached = 0.95, /* of 128 prompts; so that another draw of answers is above 0.9 too */
        .std_normalization = false,
    };
}

Err demo_task_write(const char *dir, uint64_t seed, Fault *fault)
{
    DemoRecipe recipe = demo_recipe_default();
    return demo_recipe_write(&recipe, dir, seed, fault);
}

Err demo_task_warm_up(const char *dir, uint64_t seed, int threads, Fault *fault)
{
    DemoRecipe recipe = demo_recipe_default();
    SftEnd warmup;
    return demo_recipe_warm_up(&recipe, dir, seed, threads, &warmup, fault);
}
