/* The demo's learning without its processes: samples with the engine's forward pass, trains with
 * the trainer's learner, evaluates held-out prompts. For choosing the recipe of the task; what
 * no argument changes is the demo's own setting:
 *   demo_tune [name=value …]   (seed digits layers hidden heads kv_heads head_dim ffn
 *   warmup_loss warmup_batch warmup_lr prompts n lr beta2 decay temperature entropy steps threads
 *   exact batch std bf16 seconds eval_every) */
#include "core/train/demo_recipe.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/model/infer.h"
#include "core/model/sampler.h"
#include "core/model/tokenizer.h"
#include "core/train/learner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SEQ_MAX = 1024, LEN_MAX = 48, BLOCK = 16, SEQ_BLOCKS = 3 };

typedef struct Sequence {
    int32_t tokens[LEN_MAX];
    float logp[LEN_MAX];
    int prompt, count;
    char label[DEMO_TEXT_MAX];
    bool done;
} Sequence;

typedef struct Tune {
    DemoRecipe recipe;
    double lr, beta2, decay, temperature, entropy, seconds;
    int seed, prompts, n, steps, threads, exact, eval_every, publish_bf16, batch, std;
    char *dir;
    Tokenizer *tokenizer;
    Infer *infer;
    Sampler *sampler;
    Rng rng;
    int vocab, max_new;
    int32_t end;
    Sequence *sequences;
} Tune;

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void die(const Fault *fault)
{
    fault_print(fault);
    exit(1);
}

static void tune_generate(Tune *t, int count, float temperature)
{
    static int32_t blocks[SEQ_MAX][SEQ_BLOCKS];
    static InferSeq seqs[SEQ_MAX];
    static int owner[SEQ_MAX];
    SamplingParams params = sampling_defaults();
    params.temperature = temperature;
    for (int i = 0; i < count; i++) {
        for (int b = 0; b < SEQ_BLOCKS; b++) {
            blocks[i][b] = i * SEQ_BLOCKS + b;
        }
    }
    for (int step = 0; step <= t->max_new; step++) {
        int n = 0;
        for (int i = 0; i < count; i++) {
            Sequence *s = &t->sequences[i];
            if (s->done || s->count - s->prompt >= t->max_new) {
                continue;
            }
            int from = step == 0 ? 0 : s->count - 1;
            int length = s->count - from;
            seqs[n] = (InferSeq){s->tokens + from, length, from, blocks[i], length - 1};
            owner[n++] = i;
        }
        if (n == 0) {
            return;
        }
        const float *logits;
        int rows;
        Fault fault = {0};
        if (infer_step(t->infer, seqs, n, &logits, &rows, &fault)) {
            die(&fault);
        }
        for (int j = 0; j < n; j++) {
            Sequence *s = &t->sequences[owner[j]];
            SampledToken token;
            if (sampler_draw(t->sampler, logits + (size_t)j * (size_t)t->vocab, &params, NULL,
                             s->count - s->prompt, &t->rng, &token)) {
                exit(1);
            }
            s->logp[s->count] = token.logprob;
            s->tokens[s->count++] = token.id;
            s->done = token.id == t->end;
        }
    }
}

static double tune_reward(const Tune *t, const Sequence *s, bool exact)
{
    Text text;
    text_init(&text, 256);
    tokenizer_decode(t->tokenizer, s->tokens + s->prompt, (size_t)(s->count - s->prompt), true,
                     &text);
    const char *got = text_c(&text);
    size_t n = strlen(s->label);
    size_t longer = text.n > n ? text.n : n;
    double right = 0.0;
    for (size_t i = 0; i < n; i++) {
        right += i < text.n && got[i] == s->label[i] ? 1.0 / (double)longer : 0.0;
    }
    bool same = strcmp(got, s->label) == 0;
    text_free(&text);
    return exact ? (same ? 1.0 : 0.0) : right;
}

typedef struct Prompts {
    int count;
    char (*prompt)[DEMO_TEXT_MAX];
    char (*answer)[DEMO_TEXT_MAX];
} Prompts;

static Prompts prompts_read(const char *dir, const char *name)
{
    char *path = fs_join(dir, name);
    FILE *f = fopen(path, "r");
    Prompts p = {0, xcalloc(100000, DEMO_TEXT_MAX), xcalloc(100000, DEMO_TEXT_MAX)};
    while (f && p.count < 100000 &&
           fscanf(f, "{\"input\":\"%31[^\"]\",\"label\":\"%31[^\"]\"}\n", p.prompt[p.count],
                  p.answer[p.count]) == 2) {
        p.count++;
    }
    if (f) {
        fclose(f);
    }
    free(path);
    return p;
}

static void sequence_begin(const Tune *t, const Prompts *p, int row, Sequence *s)
{
    TokenIds ids = {0};
    memset(s, 0, sizeof *s);
    if (tokenizer_encode(t->tokenizer, str_from(p->prompt[row]), &ids, NULL)) {
        exit(1);
    }
    memcpy(s->tokens, ids.ids, ids.count * sizeof *ids.ids);
    s->prompt = s->count = (int)ids.count;
    snprintf(s->label, sizeof s->label, "%s", p->answer[row]);
    token_ids_free(&ids);
}

static double tune_eval(Tune *t, const Prompts *eval, float temperature)
{
    int count = eval->count < SEQ_MAX ? eval->count : SEQ_MAX;
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        sequence_begin(t, eval, i, &t->sequences[i]);
    }
    tune_generate(t, count, temperature);
    for (int i = 0; i < count; i++) {
        sum += tune_reward(t, &t->sequences[i], true);
    }
    return sum / count;
}

static double tune_step(Tune *t, Learner *learner, const Prompts *train, int *at,
                        LearnerMetrics *metrics)
{
    static TrainSample samples[SEQ_MAX];
    int count = t->prompts * t->n;
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        sequence_begin(t, train, (*at + i / t->n) % train->count, &t->sequences[i]);
    }
    *at += t->prompts;
    tune_generate(t, count, (float)t->temperature);
    for (int i = 0; i < count; i++) {
        Sequence *s = &t->sequences[i];
        double reward = tune_reward(t, s, t->exact != 0);
        samples[i] = (TrainSample){.tokens = s->tokens, .prompt_count = (size_t)s->prompt,
                                   .response_count = (size_t)(s->count - s->prompt),
                                   .rollout_logp = s->logp + s->prompt, .reward = reward,
                                   .rollout_id = i};
        sum += reward;
    }
    Fault fault = {0};
    if (learner_train(learner, 0, samples, (size_t)count, metrics, &fault)) {
        die(&fault);
    }
    return sum / count;
}

static void tune_policy(Tune *t, Learner *learner, const char *dir)
{
    char digest[DIGEST_TEXT];
    int64_t bytes;
    Fault fault = {0};
    Weights *weights = NULL;
    if ((learner && learner_publish(learner, t->publish_bf16 ? MODEL_BF16 : MODEL_F32, dir, digest,
                                    &bytes, &fault)) ||
        weights_load(dir, MODEL_F32, &weights, &fault)) {
        die(&fault);
    }
    if (!t->infer) {
        InferConfig config = {t->threads, BLOCK, SEQ_MAX * SEQ_BLOCKS, SEQ_MAX * LEN_MAX / 2};
        t->vocab = weights_config(weights)->vocab;
        if (infer_new(weights, &config, &t->infer, &fault)) {
            die(&fault);
        }
    } else if (infer_set_weights(t->infer, weights, &fault)) {
        die(&fault);
    }
    weights_unref(weights);
}

static void tune_flag(Tune *t, const char *arg)
{
    DemoRecipe *r = &t->recipe;
    const struct {
        const char *name;
        int *i;
        double *d;
    } flags[] = {{"seed", &t->seed, NULL}, {"digits", &r->digits, NULL},
                 {"layers", &r->layers, NULL},
                 {"hidden", &r->hidden, NULL}, {"heads", &r->heads, NULL},
                 {"kv_heads", &r->kv_heads, NULL}, {"head_dim", &r->head_dim, NULL},
                 {"ffn", &r->ffn, NULL}, {"warmup_loss", NULL, &r->warmup_loss},
                 {"warmup_batch", &r->warmup_batch, NULL}, {"warmup_lr", NULL, &r->warmup_lr},
                 {"prompts", &t->prompts, NULL}, {"n", &t->n, NULL}, {"lr", NULL, &t->lr},
                 {"beta2", NULL, &t->beta2}, {"decay", NULL, &t->decay},
                 {"steps", &t->steps, NULL}, {"threads", &t->threads, NULL},
                 {"exact", &t->exact, NULL}, {"batch", &t->batch, NULL},
                 {"seconds", NULL, &t->seconds},
                 {"eval_every", &t->eval_every, NULL}, {"bf16", &t->publish_bf16, NULL},
                 {"temperature", NULL, &t->temperature}, {"entropy", NULL, &t->entropy},
                 {"std", &t->std, NULL}};
    const char *value = strchr(arg, '=');
    for (size_t i = 0; value && i < sizeof flags / sizeof *flags; i++) {
        size_t n = (size_t)(value - arg);
        if (strlen(flags[i].name) == n && strncmp(flags[i].name, arg, n) == 0) {
            if (flags[i].i) {
                *flags[i].i = atoi(value + 1);
            } else {
                *flags[i].d = atof(value + 1);
            }
            return;
        }
    }
    fprintf(stderr, "demo_tune: unknown setting %s\n", arg);
    exit(2);
}

static Learner *tune_open(Tune *t, char *base)
{
    TrainerConfig config = trainer_config_default();
    config.load_dir = base;
    config.adam = (AdamWConfig){.lr = t->lr, .beta1 = 0.9, .beta2 = t->beta2, .eps = 1e-8,
                                .weight_decay = t->decay, .clip_grad = 1.0};
    config.threads = t->threads;
    config.global_batch_size = t->batch;
    config.loss.n_samples_per_prompt = t->n;
    config.loss.rollout_batch_size = t->prompts;
    config.loss.rollout_temperature = t->temperature;
    config.loss.entropy_coef = t->entropy;
    config.loss.grpo_std_normalization = t->std != 0;
        Learner *learner = NULL;
    Fault fault = {0};
    if (learner_new(&config, &learner, &fault) ||
        tokenizer_load(base, &t->tokenizer, &fault)) {
        die(&fault);
    }
    t->end = tokenizer_id_of(t->tokenizer, "<end>");
    tune_policy(t, NULL, base);
    t->sampler = sampler_new(t->vocab);
    return learner;
}

static void tune_learn(Tune *t, Learner *learner)
{
    Prompts train = prompts_read(t->dir, "train.jsonl");
    Prompts eval = prompts_read(t->dir, "eval.jsonl");
    char *policy = fs_join(t->dir, "policy");
    int at = 0;
    double begin = cpu_seconds();
    LearnerMetrics m = {0};
    double reward = NAN;
    for (int step = 0; step <= t->steps; step++) {
        double seconds = cpu_seconds() - begin;
        if (step % t->eval_every == 0) {
            double sampled = tune_eval(t, &eval, (float)t->temperature);
            double greedy = tune_eval(t, &eval, 0.0f);
            printf("%4d %6.1f CPU s  eval %.3f greedy %.3f  reward %.3f  entropy %.3f gap %.1e "
                   "grad %.2f\n", step, seconds, sampled, greedy, reward,
                   learner_metric(&m, "train/entropy_loss", NAN),
                   learner_metric(&m, "train/train_rollout_logprob_abs_diff", NAN),
                   learner_metric(&m, "train/grad_norm", NAN));
            fflush(stdout);
            if (sampled >= 0.95 || seconds > t->seconds) {
                break;
            }
        }
        reward = tune_step(t, learner, &train, &at, &m);
        tune_policy(t, learner, policy);
    }
    free(policy);
    free(train.prompt);
    free(train.answer);
    free(eval.prompt);
    free(eval.answer);
}

int main(int argc, char **argv)
{
    char path[] = "/tmp/rolltop-tune-XXXXXX";
    const DemoTask task = demo_task_default();
    Tune t = {.recipe = demo_recipe_default(), .lr = task.lr, .beta2 = 0.999,
              .batch = task.global_batch_size, .temperature = 1.0, .seconds = 60.0, .seed = 1,
              .exact = strcmp(task.rm_type, "exact") == 0, .prompts = task.rollout_batch_size,
              .n = task.n_samples_per_prompt, .steps = task.max_steps, .threads = 1,
              .eval_every = 10, .std = task.std_normalization, .dir = mkdtemp(path)};
    for (int i = 1; i < argc; i++) {
        tune_flag(&t, argv[i]);
    }
    if (!t.dir || t.prompts * t.n > SEQ_MAX || t.recipe.eval_prompts > SEQ_MAX) {
        fprintf(stderr, "demo_tune: no directory, or over %d samples\n", SEQ_MAX);
        return 1;
    }
    t.max_new = t.recipe.digits + 3;
    t.sequences = xcalloc(SEQ_MAX, sizeof *t.sequences);
    rng_seed(&t.rng, (uint64_t)t.seed + 1000);
    double begin = cpu_seconds();
    SftEnd warmup = {0};
    Fault fault = {0};
    if (demo_recipe_write(&t.recipe, t.dir, (uint64_t)t.seed, &fault) ||
        demo_recipe_warm_up(&t.recipe, t.dir, (uint64_t)t.seed, t.threads, &warmup, &fault)) {
        die(&fault);
    }
    char *base = fs_join(t.dir, "base");
    Learner *learner = tune_open(&t, base);
    printf("seed %d: base in %.2f CPU s, %d steps to a loss of %.3f, %lld parameters\n", t.seed,
           cpu_seconds() - begin, warmup.steps, warmup.loss,
           (long long)model_parameter_count(graph_config(learner_graph(learner))));
    tune_learn(&t, learner);
    learner_free(learner);
    sampler_free(t.sampler);
    infer_free(t.infer);
    tokenizer_free(t.tokenizer);
    free(t.sequences);
    free(base);
    fs_remove_tree(t.dir, NULL);
    return 0;
}
