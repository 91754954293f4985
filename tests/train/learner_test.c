/* The learner on the tiny golden model: passes, steps, exact resume, numeric failures, files. */
#include "core/train/learner.h"
#include "tests/harness.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/safetensors.h"
#include "core/model/weights.h"
#include "core/train/learner_private.h"
#include "core/train/seal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MODEL ROLLTOP_TEST_DATA "/golden-qwen3/tied"
enum { SAMPLES = 8, LENGTH = 24 };

static char *root; /* removed at the end */

typedef struct Batch {
    TrainSample samples[SAMPLES];
    int32_t tokens[SAMPLES][LENGTH];
    float logp[SAMPLES][LENGTH];
    uint8_t mask[SAMPLES][LENGTH];
} Batch;

static void batch_make(Batch *b, uint64_t seed)
{
    Rng rng;
    rng_seed(&rng, seed);
    memset(b, 0, sizeof *b);
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t prompt = 2 + rng_below(&rng, 6);
        size_t response = 1 + rng_below(&rng, 12);
        for (size_t t = 0; t < prompt + response; t++) {
            b->tokens[i][t] = (int32_t)rng_below(&rng, 512);
        }
        for (size_t t = 0; t < response; t++) {
            b->logp[i][t] = (float)(-6.0 + rng_normal(&rng));
            b->mask[i][t] = rng_unit(&rng) < 0.9;
        }
        b->samples[i] = (TrainSample){.tokens = b->tokens[i], .prompt_count = prompt,
                                      .response_count = response, .rollout_logp = b->logp[i],
                                      .mask = b->mask[i], .reward = rng_unit(&rng),
                                      .rollout_id = (int64_t)i};
    }
}

static TrainerConfig config_make(const char *load_dir)
{
    TrainerConfig config = trainer_config_default();
    config.load_dir = load_dir;
    config.dump_dir = root;
    config.adam.lr = 1e-3;
    config.max_tokens_per_pass = 512;
    config.loss.n_samples_per_prompt = 4;
    config.loss.rollout_batch_size = 2;
    return config;
}

static Learner *learner_make(const TrainerConfig *config)
{
    Learner *learner = NULL;
    Fault fault = {0};
    CHECK_I64(learner_new(config, &learner, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    if (!learner) {
        exit(test_end());
    }
    return learner;
}

/* Largest difference between the parameters of two learners. */
static double distance(Learner *a, Learner *b)
{
    double top = 0.0;
    for (int i = 0; i < graph_param_count(learner_graph(a)); i++) {
        size_t count = 0;
        const float *x = graph_param(learner_graph(a), i, &count);
        const float *y = graph_param(learner_graph(b), i, &count);
        for (size_t j = 0; j < count; j++) {
            top = fmax(top, fabs((double)x[j] - (double)y[j]));
        }
    }
    return top;
}

static double train(Learner *learner, uint64_t seed, const char *metric)
{
    Batch batch;
    LearnerMetrics metrics;
    Fault fault = {0};
    batch_make(&batch, seed);
    CHECK_I64(learner_train(learner, (int64_t)seed, batch.samples, SAMPLES, &metrics, &fault),
              ERR_OK);
    CHECK_STR(fault.sentence, "");
    return learner_metric(&metrics, metric, NAN);
}

static char *under(const char *name)
{
    return fs_join(root, name);
}

static void passes_do_not_matter(void)
{
    TrainerConfig whole = config_make(MODEL);
    TrainerConfig parts = whole;
    parts.max_tokens_per_pass = 30;
    parts.threads = 2;
    Learner *a = learner_make(&whole);
    Learner *b = learner_make(&parts);
    double loss_a = train(a, 1, "train/loss");
    double loss_b = train(b, 1, "train/loss");
    CHECK_NEAR(loss_a, loss_b, 1e-5);
    /* Adam moves an entry by up to lr whatever its gradient, so tiny gradients may differ. */
    CHECK(distance(a, b) < 1e-3);
    double squares = 0.0;
    for (int i = 0; i < graph_param_count(learner_graph(a)); i++) {
        size_t count = 0;
        const float *x = graph_grad(learner_graph(a), i, &count);
        const float *y = graph_grad(learner_graph(b), i, &count);
        for (size_t j = 0; j < count; j++) {
            squares += ((double)x[j] - (double)y[j]) * ((double)x[j] - (double)y[j]);
        }
    }
    CHECK(sqrt(squares) < 1e-4);
    learner_free(a);
    learner_free(b);
}

static void gap_to_the_engine(void)
{
    TrainerConfig config = config_make(MODEL);
    config.loss.rollout_temperature = 0.7;
    Learner *learner = learner_make(&config);
    Batch batch;
    batch_make(&batch, 5);
    for (size_t i = 0; i < SAMPLES; i++) { /* an engine that is right, but for 0.25 on each token */
        const TrainSample *s = &batch.samples[i];
        const int32_t *row = s->tokens;
        size_t n = s->prompt_count + s->response_count;
        float out[LENGTH];
        CHECK_I64(learner_score(learner, &row, &n, 1, 0.7f, out, NULL), ERR_OK);
        for (size_t t = 0; t < s->response_count; t++) {
            batch.logp[i][t] = out[s->prompt_count - 1 + t] + (t % 2 ? 0.25f : -0.25f);
        }
    }
    LearnerMetrics metrics;
    CHECK_I64(learner_train(learner, 0, batch.samples, SAMPLES, &metrics, NULL), ERR_OK);
    double gap = learner_metric(&metrics, "train/train_rollout_logprob_abs_diff", NAN);
    /* Samples whose mask is empty count 0 in the mean over executions. */
    double want = 0.0;
    for (size_t i = 0; i < SAMPLES; i++) {
        uint8_t any = 0;
        for (size_t t = 0; t < batch.samples[i].response_count; t++) {
            any |= batch.mask[i][t];
        }
        want += any ? 0.25 / SAMPLES : 0.0;
    }
    CHECK_NEAR(gap, want, 1e-4);
    CHECK_NEAR(learner_metric(&metrics, "train/ppo_kl", NAN), 0.0, 1e-7);
    learner_free(learner);
}

static void steps_of_a_rollout(void)
{
    TrainerConfig config = config_make(MODEL);
    config.global_batch_size = 3;
    config.ref_dir = MODEL;
    config.loss.use_kl_loss = true;
    config.loss.kl_loss_coef = 0.1;
    Learner *learner = learner_make(&config);
    Batch batch;
    LearnerMetrics metrics;
    batch_make(&batch, 9);
    CHECK_I64(learner_train(learner, 0, batch.samples, SAMPLES, &metrics, NULL), ERR_OK);
    CHECK_NEAR(learner_metric(&metrics, "train/steps", NAN), 3.0, 0.0); /* 3 + 3 + 2 executions */
    CHECK(learner_metric(&metrics, "train/kl_loss", NAN) != 0.0);       /* moved after the first */
    CHECK(fabs(learner_metric(&metrics, "train/ppo_kl", NAN)) > 1e-6);
    learner_free(learner);
}

static void resume_is_exact(void)
{
    TrainerConfig config = config_make(MODEL);
    Learner *whole = learner_make(&config);
    train(whole, 1, "train/loss");
    train(whole, 2, "train/loss");
    char *state = under("state");
    CHECK_I64(learner_save(whole, state, NULL), ERR_OK);
    train(whole, 3, "train/loss");
    double last = train(whole, 4, "train/loss");
    TrainerConfig again = config_make(state);
    Learner *resumed = learner_make(&again);
    train(resumed, 3, "train/loss");
    double resumed_last = train(resumed, 4, "train/loss");
    CHECK(last == resumed_last);
    CHECK_NEAR(distance(whole, resumed), 0.0, 0.0);
    Learner *fresh = learner_make(&config);
    CHECK(distance(whole, fresh) > 1e-4); /* or the comparison above says nothing */
    learner_free(whole);
    learner_free(resumed);
    learner_free(fresh);
    /* A state cut short is refused, not half loaded. */
    char *moments = fs_join(state, "optimizer.safetensors");
    CHECK_I64(truncate(moments, 1000), 0);
    Learner *cut = NULL;
    Fault fault = {0};
    CHECK(learner_new(&again, &cut, &fault) != ERR_OK);
    CHECK(cut == NULL && strstr(fault.sentence, "optimizer.safetensors") != NULL);
    CHECK_I64(fault.code, ERR_FORMAT);
    free(moments);
    free(state);
}

/* A byte that turned over, a file that is gone, a seal that cannot be read: all are ERR_FORMAT with
 * the file's name, whatever the formats themselves would say. */
static void a_damaged_state_is_named(void)
{
    static const struct { const char *file, *words; } cases[] = {
        {"model.safetensors", "model.safetensors has digest"},
        {"optimizer.safetensors", "optimizer.safetensors has digest"},
        {"config.json", "config.json has digest"}};
    TrainerConfig config = config_make(MODEL);
    Learner *learner = learner_make(&config);
    train(learner, 1, "train/loss");
    for (size_t i = 0; i < 3; i++) {
        char *state = under("damaged");
        char *path = fs_join(state, cases[i].file);
        char *seal = fs_join(state, "state.json");
        CHECK_I64(learner_save(learner, state, NULL), ERR_OK);
        CHECK_I64(seal_check(state, NULL), ERR_OK);
        int fd = open(path, O_RDWR);
        char byte = 0;
        CHECK_I64(pread(fd, &byte, 1, 300), 1);
        byte ^= 4;
        CHECK_I64(pwrite(fd, &byte, 1, 300), 1);
        close(fd);
        TrainerConfig again = config_make(state);
        Learner *damaged = NULL;
        Fault fault = {0};
        CHECK_I64(learner_new(&again, &damaged, &fault), ERR_FORMAT);
        CHECK(damaged == NULL && strstr(fault.sentence, cases[i].words) != NULL);
        CHECK(strstr(fault.hint, "state.json") != NULL);
        fault_clear(&fault);
        CHECK_I64(unlink(path), 0);
        CHECK_I64(seal_check(state, &fault), ERR_FORMAT);
        CHECK(strstr(fault.sentence, "is missing") != NULL);
        fault_clear(&fault);
        CHECK_I64(truncate(seal, 20), 0);
        CHECK_I64(seal_check(state, &fault), ERR_FORMAT);
        CHECK(strstr(fault.sentence, "state.json") != NULL);
        CHECK_I64(unlink(seal), 0);
        CHECK_I64(seal_check(state, NULL), ERR_OK); /* an ordinary checkpoint */
        free(path);
        free(seal);
        free(state);
    }
    learner_free(learner);
}

/* ---- weights that are published in BF16 ---- */

static double score_distance(Learner *a, Learner *b)
{
    Batch batch;
    double top = 0.0;
    batch_make(&batch, 5);
    for (size_t i = 0; i < SAMPLES; i++) {
        const int32_t *row = batch.tokens[i];
        size_t count = batch.samples[i].prompt_count + batch.samples[i].response_count;
        float x[LENGTH], y[LENGTH];
        CHECK_I64(learner_score(a, &row, &count, 1, 1.0f, x, NULL), ERR_OK);
        CHECK_I64(learner_score(b, &row, &count, 1, 1.0f, y, NULL), ERR_OK);
        for (size_t t = 0; t + 1 < count; t++) {
            top = fmax(top, fabs((double)x[t] - (double)y[t]));
        }
    }
    return top;
}

/* What is trained is what is served: the published directory computes the same log-probs, and
 * what rounding took away is not lost to the optimizer. */
static void bf16_policy_is_the_trained_one(void)
{
    TrainerConfig config = config_make(MODEL);
    config.bf16_weights = true;
    Learner *learner = learner_make(&config);
    for (int step = 1; step <= 3; step++) {
        train(learner, (uint64_t)step, "train/loss");
    }
    char *dir = under("bf16-policy");
    char *state = under("bf16-state");
    char digest[DIGEST_TEXT];
    int64_t bytes = 0;
    CHECK_I64(learner_publish(learner, MODEL_BF16, dir, digest, &bytes, NULL), ERR_OK);
    CHECK_I64(learner_save(learner, state, NULL), ERR_OK);
    TrainerConfig plain = config_make(dir);
    Learner *served = learner_make(&plain);
    CHECK_NEAR(score_distance(learner, served), 0.0, 0.0);
    CHECK_NEAR(distance(learner, served), 0.0, 0.0);
    plain.load_dir = state; /* FP32 masters: near the policy, not the same */
    Learner *masters = learner_make(&plain);
    double off = distance(learner, masters);
    CHECK(off > 0.0 && off < 0.01);
    learner_free(served);
    learner_free(masters);
    /* Resumed from the masters: the same bits from here on. */
    TrainerConfig again = config_make(state);
    again.bf16_weights = true;
    Learner *resumed = learner_make(&again);
    CHECK(train(learner, 4, "train/loss") == train(resumed, 4, "train/loss"));
    CHECK_NEAR(distance(learner, resumed), 0.0, 0.0);
    learner_free(resumed);
    learner_free(learner);
    free(state);
    free(dir);
}

/* Steps far below BF16's resolution add up in the masters until the policy moves. */
static void small_steps_add_up(void)
{
    TrainerConfig config = config_make(MODEL);
    config.adam.lr = 2e-5;
    Learner *plain = learner_make(&config);
    Learner *start = learner_make(&config);
    config.bf16_weights = true;
    Learner *rounded = learner_make(&config);
    Learner *rounded_start = learner_make(&config);
    for (int step = 0; step < 60; step++) {
        train(plain, 1, "train/loss");
        train(rounded, 1, "train/loss");
    }
    masters_show(rounded->masters);
    masters_show(rounded_start->masters);
    double whole = distance(plain, start);
    double kept = distance(rounded, rounded_start);
    CHECK(whole > 5e-4 && kept > 0.7 * whole && kept < 1.4 * whole);
    learner_free(plain);
    learner_free(start);
    learner_free(rounded);
    learner_free(rounded_start);
}

static void masters_come_back(void)
{
    static const float values[] = {0.0f, -0.0f, 1.0f, 1.00390625f, 1.01171875f, -1.00390625f,
                                   3.4e38f, 1e-40f, -0.3333333f, 1e-30f, 65504.5f, INFINITY};
    enum { COUNT = sizeof values / sizeof *values };
    TrainerConfig config = config_make(MODEL);
    config.bf16_weights = true;
    Learner *learner = learner_make(&config);
    size_t count = 0;
    masters_show(learner->masters);
    float *p = graph_param(learner->graph, 0, &count);
    CHECK(count >= COUNT);
    memcpy(p, values, sizeof values);
    for (int round = 0; round < 3; round++) {
        masters_hide(learner->masters);
        for (size_t i = 0; i < COUNT; i++) {
            float hidden = isinf(p[i]) ? p[i] : f32_from_bf16(bf16_from_f32(values[i]));
            CHECK(memcmp(&p[i], &hidden, sizeof hidden) == 0);
        }
        masters_show(learner->masters);
        for (size_t i = 0; i < COUNT; i++) {
            /* 1.00390625 and its like lie half way, above an even value: one unit lower. */
            float want = i == 3 || i == 5 ? nextafterf(values[i], 0.0f) : values[i];
            CHECK(memcmp(&p[i], &want, sizeof want) == 0);
        }
    }
    learner_free(learner);
}

static void numbers_stop_a_step(void)
{
    TrainerConfig config = config_make(MODEL);
    Learner *learner = learner_make(&config);
    Learner *before = learner_make(&config);
    Batch batch;
    LearnerMetrics metrics;
    Fault fault = {0};
    batch_make(&batch, 1);
    batch.logp[3][0] = NAN;
    CHECK_I64(learner_train(learner, 17, batch.samples, SAMPLES, &metrics, &fault), ERR_NUMERIC);
    CHECK(strstr(fault.sentence, "sample 3") != NULL);
    CHECK_NEAR(distance(learner, before), 0.0, 0.0);
    const char *dir = strstr(fault.hint, root);
    CHECK(dir != NULL && strstr(dir, "step17") != NULL);
    if (dir) {
        char *path = fs_join(dir, "batch.safetensors");
        StFile *file = NULL;
        CHECK_I64(st_open(path, &file, NULL), ERR_OK);
        CHECK(file && st_find(file, "rollout_log_probs") && st_find(file, "tokens"));
        st_close(file);
        free(path);
        path = fs_join(dir, "optimizer.safetensors");
        CHECK(fs_exists(path));
        free(path);
    }
    char digest[DIGEST_TEXT];
    int64_t bytes;
    char *out = under("never");
    CHECK_I64(learner_publish(learner, MODEL_F32, out, digest, &bytes, NULL), ERR_STATE);
    CHECK(!fs_exists(out));
    train(learner, 2, "train/loss"); /* a good step heals */
    CHECK_I64(learner_publish(learner, MODEL_F32, out, digest, &bytes, NULL), ERR_OK);
    size_t count = 0;
    graph_param(learner_graph(learner), 2, &count)[5] = INFINITY;
    fault_clear(&fault);
    CHECK_I64(learner_publish(learner, MODEL_F32, out, digest, &bytes, &fault), ERR_NUMERIC);
    ModelTensorSpec spec;
    model_tensor_spec(graph_config(learner_graph(learner)), 2, &spec);
    CHECK(strstr(fault.sentence, spec.name) != NULL);
    fault_clear(&fault);
    batch_make(&batch, 1);
    CHECK_I64(learner_train(learner, 18, batch.samples, SAMPLES, &metrics, &fault), ERR_NUMERIC);
    CHECK(strstr(fault.sentence, spec.name) != NULL);
    learner_free(learner);
    learner_free(before);
    free(out);
}

static void gradient_is_named(void)
{
    TrainerConfig config = config_make(MODEL);
    Learner *learner = learner_make(&config);
    Learner *before = learner_make(&config);
    size_t count = 0;
    graph_zero_grad(learner_graph(learner));
    graph_grad(learner_graph(learner), 3, &count)[7] = NAN;
    Fault fault = {0};
    double norm = 0.0;
    CHECK_I64(adamw_step(learner->adamw, &norm, &fault), ERR_NUMERIC);
    ModelTensorSpec spec;
    model_tensor_spec(graph_config(learner_graph(learner)), 3, &spec);
    CHECK(strstr(fault.sentence, spec.name) != NULL && strstr(fault.sentence, "element 7") != NULL);
    CHECK_NEAR(distance(learner, before), 0.0, 0.0);
    learner_free(learner);
    learner_free(before);
}

static int strangers(const char *name) /* entries of root that are not `name` but begin so */
{
    int n = 0;
    DIR *dir = opendir(root);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        n += strncmp(entry->d_name, name, strlen(name)) == 0 && strcmp(entry->d_name, name) != 0;
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

static void published_policies(void)
{
    char *source = under("source");
    CHECK_I64(fs_mkdirs(source, 0755, NULL), ERR_OK);
    const char *const names[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        char *from = fs_join(MODEL, names[i]);
        char *to = fs_join(source, names[i]);
        Text text;
        text_init(&text, 1 << 24);
        CHECK_I64(fs_read(from, &text, NULL), ERR_OK);
        CHECK_I64(fs_write_atomic(to, text.p, text.n, NULL), ERR_OK);
        text_free(&text);
        free(from);
        free(to);
    }
    char *tokenizer = fs_join(source, "tokenizer.json");
    CHECK_I64(fs_write_atomic(tokenizer, "{\"a\":1}", 7, NULL), ERR_OK);
    TrainerConfig config = config_make(source);
    Learner *learner = learner_make(&config);
    CHECK_I64(fs_remove_tree(source, NULL), ERR_OK); /* pruned while we run */
    char *out = under("policy");
    char digests[3][DIGEST_TEXT];
    int64_t bytes = 0;
    const ModelDtype types[] = {MODEL_BF16, MODEL_F32, MODEL_F32};
    for (int i = 0; i < 3; i++) { /* the same name again: replaced whole */
        Fault fault = {0};
        CHECK_I64(learner_publish(learner, types[i], out, digests[i], &bytes, &fault), ERR_OK);
        CHECK_STR(fault.sentence, "");
        Weights *weights = NULL;
        CHECK_I64(weights_load(out, MODEL_F32, &weights, NULL), ERR_OK);
        CHECK_STR(weights_digest(weights), digests[i]);
        weights_unref(weights);
        CHECK(bytes > (types[i] == MODEL_F32 ? 94592 * 4 : 94592 * 2));
        CHECK_I64(strangers("policy"), 0);
    }
    CHECK_STR(digests[1], digests[2]);
    CHECK(strcmp(digests[0], digests[1]) != 0);
    char *copy = fs_join(out, "tokenizer.json");
    CHECK(fs_exists(copy));
    TrainerConfig from_published = config_make(out);
    Learner *back = learner_make(&from_published);
    CHECK_NEAR(distance(learner, back), 0.0, 0.0);
    Fault fault = {0};
    char *impossible = fs_join(copy, "policy"); /* below a file */
    CHECK(learner_publish(learner, MODEL_F32, impossible, digests[0], &bytes, &fault) != ERR_OK);
    CHECK(strstr(fault.sentence, impossible) || strstr(fault.sentence, copy));
    learner_free(back);
    learner_free(learner);
    free(source);
    free(tokenizer);
    free(out);
    free(copy);
    free(impossible);
}

static void bad_requests_are_named(void)
{
    TrainerConfig config = config_make(MODEL);
    config.max_tokens_per_pass = 16;
    Learner *learner = learner_make(&config);
    Batch batch;
    LearnerMetrics metrics;
    Fault fault = {0};
    batch_make(&batch, 1);
    batch.tokens[4][0] = 512;
    batch.samples[0].response_count = 1;
    for (size_t i = 0; i < SAMPLES; i++) {
        batch.samples[i].response_count = 2;
    }
    CHECK_I64(learner_train(learner, 0, batch.samples, SAMPLES, &metrics, &fault), ERR_ARG);
    CHECK(strstr(fault.sentence, "sample 4 has token 512") != NULL);
    batch_make(&batch, 1);
    batch.samples[2].response_count = LENGTH - batch.samples[2].prompt_count;
    fault_clear(&fault);
    CHECK_I64(learner_train(learner, 0, batch.samples, SAMPLES, &metrics, &fault), ERR_LIMIT);
    CHECK(strstr(fault.sentence, "over the 16 of one pass") != NULL);
    learner_free(learner);
    config.load_dir = "/nonexistent/model";
    fault_clear(&fault);
    CHECK(learner_new(&config, &learner, &fault) != ERR_OK);
    CHECK(learner == NULL && strstr(fault.sentence, "/nonexistent/model") != NULL);
    config = config_make(MODEL);
    config.loss.use_kl_loss = true;
    config.loss.kl_loss_coef = 0.1;
    CHECK_I64(learner_new(&config, &learner, NULL), ERR_ARG);
}

static void supervised_steps_learn(void)
{
    TrainerConfig config = config_make(MODEL);
    config.adam.lr = 3e-3;
    Learner *learner = learner_make(&config);
    int32_t row[8] = {5, 6, 7, 8, 9, 10, 11, 12};
    const int32_t *rows[1] = {row};
    const uint8_t mask[8] = {0, 0, 0, 0, 1, 1, 1, 1};
    const uint8_t *masks[1] = {mask};
    size_t n = 8;
    LearnerMetrics metrics;
    double first = 0.0;
    double last = 0.0;
    for (int i = 0; i < 30; i++) {
        CHECK_I64(learner_sft(learner, rows, masks, &n, 1, &metrics, NULL), ERR_OK);
        last = learner_metric(&metrics, "train/loss", NAN);
        first = i == 0 ? last : first;
    }
    CHECK(first > 3.0 && last < 0.3);
    float out[8];
    CHECK_I64(learner_score(learner, rows, &n, 1, 1.0f, out, NULL), ERR_OK);
    CHECK_NEAR(-(double)(out[3] + out[4] + out[5] + out[6]) / 4.0, last, 0.2);
    learner_free(learner);
}

/* Many sequences in one call are packed into few passes; each has the log-probs it has alone. */
static void scores_of_many(void)
{
    TrainerConfig config = config_make(MODEL);
    config.max_tokens_per_pass = 40;
    Learner *learner = learner_make(&config);
    Batch batch;
    batch_make(&batch, 9);
    const int32_t *rows[SAMPLES];
    size_t counts[SAMPLES];
    float all[SAMPLES * LENGTH];
    for (size_t i = 0; i < SAMPLES; i++) {
        rows[i] = batch.tokens[i];
        counts[i] = batch.samples[i].prompt_count + batch.samples[i].response_count;
    }
    CHECK_I64(learner_score(learner, rows, counts, SAMPLES, 0.7f, all, NULL), ERR_OK);
    size_t at = 0;
    double top = 0.0;
    for (size_t i = 0; i < SAMPLES; i++) {
        float alone[LENGTH];
        CHECK_I64(learner_score(learner, &rows[i], &counts[i], 1, 0.7f, alone, NULL), ERR_OK);
        for (size_t t = 0; t + 1 < counts[i]; t++) {
            top = fmax(top, fabs((double)all[at++] - (double)alone[t]));
        }
    }
    CHECK(top < 1e-4);
    Fault fault = {0};
    counts[SAMPLES - 1] = 41;
    CHECK_I64(learner_score(learner, rows, counts, SAMPLES, 0.7f, all, &fault), ERR_LIMIT);
    CHECK_STR(fault.sentence, "sequence 7 has 41 tokens, one pass takes 1 … 40");
    learner_free(learner);
}

int main(void)
{
    char path[] = "/tmp/rolltop-learner-XXXXXX";
    root = mkdtemp(path);
    if (!root) {
        printf("no temporary directory\n");
        return 1;
    }
    RUN(passes_do_not_matter);
    RUN(gap_to_the_engine);
    RUN(steps_of_a_rollout);
    RUN(resume_is_exact);
    RUN(a_damaged_state_is_named);
    RUN(bf16_policy_is_the_trained_one);
    RUN(small_steps_add_up);
    RUN(masters_come_back);
    RUN(numbers_stop_a_step);
    RUN(gradient_is_named);
    RUN(published_policies);
    RUN(bad_requests_are_named);
    RUN(supervised_steps_learn);
    RUN(scores_of_many);
    fs_remove_tree(root, NULL);
    return test_end();
}
