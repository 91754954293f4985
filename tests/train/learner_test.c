/* The learner on the tiny golden model: passes, steps, a teacher, numeric failures, requests. */
#include "core/train/learner.h"
#include "tests/train/learner_rig.h"

#include "core/base/mem.h"
#include "core/model/safetensors.h"
#include "core/train/learner_private.h"

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

/* ---- weights that are published in BF16 ---- */

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

/* On-policy distillation: a teacher that is the student moves nothing, another one does. */
static void teacher_pulls(void)
{
    TrainerConfig plain = config_make(MODEL);
    plain.global_batch_size = 4; /* two steps, so that old log-probs are scored either way */
    TrainerConfig same = plain;
    same.loss.opd_kl_coef = 0.5;
    Learner *none = NULL;
    Fault fault = {0};
    CHECK_I64(learner_new(&same, &none, &fault), ERR_ARG);
    CHECK(none == NULL && strstr(fault.hint, "--opd-teacher-load") != NULL);
    same.teacher_dir = MODEL;
    Learner *a = learner_make(&plain);
    Learner *b = learner_make(&same);
    train(a, 5, "train/loss");
    train(b, 5, "train/loss");
    CHECK_NEAR(distance(a, b), 0.0, 0.0);
    char *trained = under("teacher");
    CHECK_I64(learner_save(b, trained, NULL), ERR_OK);
    TrainerConfig other = same;
    other.teacher_dir = trained;
    Learner *c = learner_make(&other);
    train(c, 5, "train/loss");
    CHECK(distance(a, c) > 1e-6);
    learner_free(a);
    learner_free(b);
    learner_free(c);
    free(trained);
}

int main(void)
{
    rig_begin();
    RUN(passes_do_not_matter);
    RUN(gap_to_the_engine);
    RUN(steps_of_a_rollout);
    RUN(teacher_pulls);
    RUN(numbers_stop_a_step);
    RUN(gradient_is_named);
    RUN(bad_requests_are_named);
    RUN(supervised_steps_learn);
    RUN(scores_of_many);
    return rig_end();
}
