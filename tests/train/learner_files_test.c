/* What the learner leaves behind and comes back from: states, BF16 policies and their masters,
 * published directories. */
#include "core/train/learner.h"
#include "tests/train/learner_rig.h"

#include "core/base/mem.h"
#include "core/model/safetensors.h"
#include "core/model/weights.h"
#include "core/train/learner_private.h"
#include "core/train/seal.h"

#include <dirent.h>
#include <fcntl.h>

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

int main(void)
{
    rig_begin();
    RUN(resume_is_exact);
    RUN(a_damaged_state_is_named);
    RUN(bf16_policy_is_the_trained_one);
    RUN(small_steps_add_up);
    RUN(masters_come_back);
    RUN(published_policies);
    return rig_end();
}
