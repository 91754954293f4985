/* The published vectors (loss-vectors.json) against losses_math at their own tolerance. */
#include "core/train/losses.h"
#include "tests/harness.h"

#include "core/train/losses_math.h"
#include "core/base/rng.h"
#include "tests/train/config_from.h"

static const double TOLERANCE = 1e-9;
static int vectors_run, vectors_elsewhere;

static void check_list(const char *id, const double *got, const cJSON *expected)
{
    size_t n = 0;
    double *want = data_doubles(expected, &n);
    for (size_t i = 0; i < n; i++) {
        double allow = TOLERANCE * fmax(1.0, fabs(want[i]));
        if (!(fabs(got[i] - want[i]) <= allow)) {
            fprintf(stderr, "in %s, entry %zu\n", id, i);
        }
        CHECK_NEAR(got[i], want[i], allow);
    }
    free(want);
}

static void check_one(const char *id, const char *name, double got, const cJSON *expected)
{
    const cJSON *want = json_get(expected, name);
    if (want && !(fabs(got - want->valuedouble) <= TOLERANCE * fmax(1.0, fabs(got)))) {
        fprintf(stderr, "in %s, %s\n", id, name);
    }
    if (want) {
        CHECK_NEAR(got, want->valuedouble, TOLERANCE * fmax(1.0, fabs(got)));
    }
}

static void try_rewards(const char *id, const cJSON *in, const cJSON *expected)
{
    LossConfig config = config_from(in);
    size_t n = 0;
    double *rewards = data_doubles(json_get(in, "rewards"), &n);
    double *out = xcalloc(n, sizeof *out);
    loss_normalise_rewards(&config, rewards, n, out);
    check_list(id, out, expected);
    free(rewards);
    free(out);
}

static void try_kl(const char *id, const cJSON *in, const cJSON *expected)
{
    size_t n = 0;
    double *a = data_doubles(json_get(in, "log_probs"), &n);
    double *b = data_doubles(json_get(in, "log_probs_base"), NULL);
    double *ratio = data_doubles(json_get(in, "importance_ratio"), NULL);
    KlType type = kl_from(json_string(in, "kl_loss_type", ""));
    double *out = xcalloc(n, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        out[i] = loss_kl(type, a[i] - b[i], ratio ? ratio[i] : 1.0, false, NULL);
    }
    check_list(id, out, expected);
    free(a);
    free(b);
    free(ratio);
    free(out);
}

static void try_clipped(const char *id, const cJSON *in, const cJSON *expected, bool cispo)
{
    size_t n = 0;
    double *k = data_doubles(json_get(in, "ppo_kl"), &n);
    double *logp = data_doubles(json_get(in, "log_probs"), NULL);
    double *adv = data_doubles(json_get(in, "advantages"), NULL);
    double *loss = xcalloc(n, sizeof *loss);
    double *clipped = xcalloc(n, sizeof *clipped);
    LossClip clip = {1.0 - json_double(in, "eps_clip", 0.0),
                     1.0 + json_double(in, "eps_clip_high", 0.0),
                     json_double(in, "eps_clip_c", 0.0)};
    for (size_t i = 0; i < n; i++) {
        LossToken token = cispo ? loss_cispo_token(&clip, k[i], logp[i], adv[i])
                                : loss_policy_token(&clip, k[i], adv[i]);
        loss[i] = token.loss;
        clipped[i] = token.clipped ? 1.0 : 0.0;
    }
    check_list(id, loss, json_get(expected, "pg_losses"));
    check_list(id, clipped, json_get(expected, "clipfrac"));
    free(k);
    free(logp);
    free(adv);
    free(loss);
    free(clipped);
}

/* Samples of an input as LossTokens; arrays that are absent stay NULL. */
typedef struct Samples {
    size_t count, total;
    LossTokens tokens[16];
    double *owned[16 * 6];
    uint8_t *masks[16];
    size_t owned_count;
} Samples;

static double *samples_row(Samples *s, const cJSON *in, const char *name, size_t i, size_t *n)
{
    const cJSON *rows = json_get(in, name);
    double *row = cJSON_IsArray(rows) ? data_doubles(data_at(rows, i), n) : NULL;
    if (row) {
        s->owned[s->owned_count++] = row;
    }
    return row;
}

static void samples_read(Samples *s, const cJSON *in, const char *lead)
{
    memset(s, 0, sizeof *s);
    s->count = data_count(json_get(in, lead));
    double *sums = data_doubles(json_get(in, "rollout_mask_sums"), NULL);
    bool per_token = json_bool(in, "calculate_per_token_loss", false);
    for (size_t i = 0; i < s->count && i < 16; i++) {
        LossTokens *t = &s->tokens[i];
        (void)samples_row(s, in, lead, i, &t->count);
        t->logp = samples_row(s, in, "log_probs", i, NULL);
        t->old = samples_row(s, in, "old_log_probs", i, NULL);
        t->ref = samples_row(s, in, "ref_log_probs", i, NULL);
        t->rollout = samples_row(s, in, "rollout_log_probs", i, NULL);
        t->entropy = samples_row(s, in, "entropy", i, NULL);
        t->advantage = samples_row(s, in, "advantages", i, NULL);
        const cJSON *masks = json_get(in, "loss_masks");
        s->masks[i] = masks ? data_mask(data_at(masks, i)) : NULL;
        t->mask = s->masks[i];
        t->denominator = sums && !per_token ? fmax(sums[i], 1.0) : 1.0;
        s->total += t->count;
    }
    free(sums);
}

static void samples_free(Samples *s)
{
    for (size_t i = 0; i < s->owned_count; i++) {
        free(s->owned[i]);
    }
    for (size_t i = 0; i < s->count; i++) {
        free(s->masks[i]);
    }
}

static void try_sequence_kl(const char *id, const cJSON *in, const cJSON *expected)
{
    Samples s;
    samples_read(&s, in, "log_probs");
    double *out = xcalloc(s.total, sizeof *out);
    size_t at = 0;
    for (size_t i = 0; i < s.count; i++) {
        const LossTokens *t = &s.tokens[i];
        double k = loss_sequence_kl(t->logp, t->old, t->mask, t->count);
        for (size_t j = 0; j < t->count; j++) {
            out[at++] = k;
        }
    }
    check_list(id, out, expected);
    free(out);
    samples_free(&s);
}

static void metrics_of(const LossConfig *config, Samples *s, LossMetrics *metrics)
{
    *metrics = (LossMetrics){0};
    for (size_t i = 0; i < s->count; i++) {
        double *dlogp = xcalloc(s->tokens[i].count, sizeof *dlogp);
        double *dentropy = xcalloc(s->tokens[i].count, sizeof *dentropy);
        loss_tokens(config, &s->tokens[i], 1.0, dlogp, dentropy, metrics);
        free(dlogp);
        free(dentropy);
    }
}

static void try_opsm(const char *id, const cJSON *in, const cJSON *expected)
{
    Samples s;
    samples_read(&s, in, "log_probs");
    LossConfig config = config_from(in);
    config.use_opsm = true;
    LossMetrics metrics;
    metrics_of(&config, &s, &metrics);
    check_one(id, "clipfrac", metrics.opsm_clipfrac, expected);
    /* The mask shows in the gradient: 0 exactly where a token was dropped. */
    size_t n = 0;
    double *keep = data_doubles(json_get(expected, "mask"), &n);
    size_t at = 0;
    for (size_t i = 0; i < s.count; i++) {
        double dlogp[16];
        LossMetrics one = {0};
        config.eps_clip = 0.999; /* so that clipping cannot hide it */
        config.eps_clip_high = 99.0;
        loss_tokens(&config, &s.tokens[i], 1.0, dlogp, NULL, &one);
        for (size_t t = 0; t < s.tokens[i].count; t++, at++) {
            bool live = keep[at] != 0.0 && (!s.tokens[i].mask || s.tokens[i].mask[t]);
            CHECK_I64(dlogp[t] != 0.0, live);
        }
    }
    CHECK_I64(at, n);
    free(keep);
    samples_free(&s);
}

/* One sample through the function that a run calls: floats in and out, so 1e-6. */
static void check_advantages(const char *id, const LossConfig *config, LossSample sample,
                             double reward, const cJSON *expected)
{
    float *out = xcalloc(sample.count, sizeof *out);
    CHECK_I64(sample.count, data_count(expected));
    CHECK_I64(loss_advantages(config, &sample, 1, &reward, &out, NULL), ERR_OK);
    for (size_t t = 0; t < sample.count; t++) {
        double want = data_at(expected, t)->valuedouble;
        if (fabs(out[t] - want) > 1e-6) {
            printf("%s: token %zu\n", id, t);
        }
        CHECK_NEAR(out[t], want, 1e-6);
    }
    free(out);
}

static void try_returns(const char *id, const cJSON *in, const cJSON *expected)
{
    double *rewards = data_doubles(json_get(in, "rewards"), NULL);
    for (size_t i = 0; i < data_count(expected); i++) {
        size_t n = 0;
        double *kl = data_doubles(data_at(json_get(in, "kl"), i), &n);
        double *out = xcalloc(n, sizeof *out);
        uint8_t *mask = data_mask(data_at(json_get(in, "loss_masks"), i));
        CHECK(loss_discounted_returns(rewards[i], kl, mask, n, json_double(in, "kl_coef", 0.0),
                                      json_double(in, "gamma", 1.0), out));
        check_list(id, out, data_at(expected, i));
        free(mask);
        free(kl);
        free(out);
    }
    free(rewards);
}

static void try_baseline(const char *id, const cJSON *in, const cJSON *expected)
{
    double *rewards = data_doubles(json_get(in, "rewards"), NULL);
    LossConfig config = loss_config_default();
    config.estimator = ADVANTAGE_REINFORCE_PP_BASELINE;
    config.kl_coef = json_double(in, "kl_coef", 0.0);
    for (size_t i = 0; i < data_count(expected); i++) { /* k1 against a reference of zeros */
        size_t n = 0;
        float *old = data_floats(data_at(json_get(in, "kl"), i), &n);
        float *zeros = xcalloc(n, sizeof *zeros);
        check_advantages(id, &config, (LossSample){.count = n, .logp = old, .old_logp = old,
                                                   .ref_logp = zeros},
                         rewards[i], data_at(expected, i));
        free(old);
        free(zeros);
    }
    free(rewards);
}

static void try_broadcast(const char *id, const cJSON *in, const cJSON *expected)
{
    double *rewards = data_doubles(json_get(in, "rewards"), NULL);
    LossConfig config = loss_config_default();
    for (size_t i = 0; i < data_count(expected); i++) {
        size_t n = (size_t)data_at(json_get(in, "response_lengths"), i)->valuedouble;
        float *zeros = xcalloc(n, sizeof *zeros);
        check_advantages(id, &config, (LossSample){.count = n, .logp = zeros, .old_logp = zeros},
                         rewards[i], data_at(expected, i));
        free(zeros);
    }
    free(rewards);
}

/* The vector's advantages are grpo's: one reward at each token. */
static void try_distillation(const char *id, const cJSON *in, const cJSON *expected)
{
    LossConfig config = loss_config_default();
    config.opd_kl_coef = json_double(in, "opd_kl_coef", 0.0);
    for (size_t i = 0; i < data_count(expected); i++) {
        size_t n = 0;
        double *rewards = data_doubles(data_at(json_get(in, "advantages"), i), NULL);
        float *student = data_floats(data_at(json_get(in, "student_log_probs"), i), &n);
        float *teacher = data_floats(data_at(json_get(in, "teacher_log_probs"), i), NULL);
        check_advantages(id, &config, (LossSample){.count = n, .logp = student,
                                                   .old_logp = student, .teacher_logp = teacher},
                         rewards[0], data_at(expected, i));
        free(rewards);
        free(student);
        free(teacher);
    }
}

static void try_whitening(const char *id, const cJSON *in, const cJSON *expected)
{
    Samples s;
    samples_read(&s, in, "advantages");
    LossWhiten w = {0};
    for (size_t i = 0; i < s.count; i++) {
        loss_whiten_add(&w, s.tokens[i].advantage, s.tokens[i].mask, s.tokens[i].count);
    }
    CHECK(loss_whiten_end(&w));
    double *out = xcalloc(s.total, sizeof *out);
    size_t at = 0;
    for (size_t i = 0; i < s.count; i++) {
        for (size_t t = 0; t < s.tokens[i].count; t++) {
            out[at++] = (s.tokens[i].advantage[t] - w.mean) * w.factor;
        }
    }
    check_list(id, out, expected);
    free(out);
    samples_free(&s);
}

static void try_weights(const char *id, const cJSON *in, const cJSON *expected, bool icepop)
{
    size_t n = 0;
    double *pg = data_doubles(json_get(in, "pg_loss"), &n);
    double *train = data_doubles(json_get(in, "train_log_probs"), NULL);
    double *rollout = data_doubles(json_get(in, "rollout_log_probs"), NULL);
    double low = json_double(in, "tis_clip_low", 0.0);
    double high = json_double(in, "tis_clip", 0.0);
    double out[4][16];
    for (size_t i = 0; i < n && i < 16; i++) {
        double raw = exp(train[i] - rollout[i]);
        double cut = loss_is_weight(icepop, low, high, raw);
        out[0][i] = pg[i] * cut;
        out[1][i] = raw;
        out[2][i] = cut != raw ? 1.0 : 0.0;
        out[3][i] = fabs(raw - 1.0);
    }
    check_list(id, out[0], json_get(expected, "pg_loss"));
    check_list(id, out[1], json_get(expected, "tis"));
    check_list(id, out[2], json_get(expected, "tis_clipfrac"));
    check_list(id, out[3], json_get(expected, "tis_abs"));
    free(pg);
    free(train);
    free(rollout);
}

/* The reducer through the SFT loss, which is reduce(-logp): values go in negated. */
static void try_reducer(const char *id, const cJSON *in, const cJSON *expected)
{
    size_t n = 0;
    double *values = data_doubles(json_get(in, "values"), &n);
    double *lengths = data_doubles(json_get(in, "response_lengths"), NULL);
    double *sums = data_doubles(json_get(in, "denominators"), NULL);
    LossConfig config = config_from(in);
    config.loss_type = LOSS_SFT;
    LossMetrics metrics = {0};
    size_t at = 0;
    for (size_t i = 0; i < data_count(json_get(in, "loss_masks")); i++) {
        uint8_t *mask = data_mask(data_at(json_get(in, "loss_masks"), i));
        double logp[16];
        double dlogp[16];
        size_t count = (size_t)lengths[i];
        for (size_t t = 0; t < count; t++) {
            logp[t] = -values[at++];
        }
        LossTokens tokens = {.count = count, .logp = logp, .mask = mask};
        tokens.denominator = config.calculate_per_token_loss ? 1.0 : fmax(sums[i], 1.0);
        loss_tokens(&config, &tokens, 1.0, dlogp, NULL, &metrics);
        free(mask);
    }
    if (fabs(metrics.loss - expected->valuedouble) > TOLERANCE) {
        fprintf(stderr, "in %s\n", id);
    }
    CHECK_I64(at, n);
    CHECK_NEAR(metrics.loss, expected->valuedouble, TOLERANCE);
    free(values);
    free(lengths);
    free(sums);
}

static void try_end_to_end(const char *id, const cJSON *in, const cJSON *expected)
{
    Samples s;
    samples_read(&s, in, "log_probs");
    LossConfig config = config_from(in);
    LossMetrics m;
    metrics_of(&config, &s, &m);
    const struct {
        const char *name;
        double value;
    } pairs[] = {{"loss", m.loss}, {"pg_loss", m.pg_loss}, {"pg_clipfrac", m.pg_clipfrac},
                 {"ppo_kl", m.ppo_kl}, {"entropy_loss", m.entropy_loss}, {"kl_loss", m.kl_loss},
                 {"ois", m.ois}, {"tis", m.tis}, {"tis_clipfrac", m.tis_clipfrac},
                 {"tis_abs", m.tis_abs}, {"opsm_clipfrac", m.opsm_clipfrac},
                 {"train_rollout_logprob_abs_diff", m.train_rollout_logprob_abs_diff}};
    size_t known = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        check_one(id, pairs[i].name, pairs[i].value, expected);
        known += json_get(expected, pairs[i].name) != NULL;
    }
    CHECK_I64(known, data_count(expected)); /* no expected value went unread */
    samples_free(&s);
}

static void try_gae(const char *id, const cJSON *in, const cJSON *expected)
{
    double *rewards = data_doubles(json_get(in, "rewards"), NULL);
    double kl_coef = json_double(in, "kl_coef", 0.0);
    KlType type = kl_from(json_string(in, "kl_loss_type", "k1"));
    for (size_t i = 0; i < data_count(json_get(in, "values")); i++) {
        size_t n = 0;
        double *values = data_doubles(data_at(json_get(in, "values"), i), &n);
        double *logp = data_doubles(data_at(json_get(in, "log_probs"), i), NULL);
        double *ref = data_doubles(data_at(json_get(in, "ref_log_probs"), i), NULL);
        double *kl = xcalloc(n, sizeof *kl);
        double *adv = xcalloc(n, sizeof *adv);
        double *returns = xcalloc(n, sizeof *returns);
        for (size_t t = 0; t < n && kl_coef != 0.0; t++) {
            kl[t] = loss_kl(type, logp[t] - ref[t], 1.0, false, NULL);
        }
        loss_gae(rewards[i], kl, values, n, kl_coef, json_double(in, "gamma", 1.0),
                 json_double(in, "lambd", 1.0), adv, returns);
        check_list(id, adv, data_at(json_get(expected, "advantages"), i));
        check_list(id, returns, data_at(json_get(expected, "returns"), i));
        free(values);
        free(logp);
        free(ref);
        free(kl);
        free(adv);
        free(returns);
    }
    free(rewards);
}

static void try_value_loss(const char *id, const cJSON *in, const cJSON *expected)
{
    double *values = data_doubles(json_get(in, "values"), NULL);
    double *old = data_doubles(json_get(in, "old_values"), NULL);
    double *returns = data_doubles(json_get(in, "returns"), NULL);
    double loss = 0.0;
    double clipfrac = 0.0;
    size_t at = 0;
    for (size_t i = 0; i < data_count(json_get(in, "loss_masks")); i++) {
        size_t n = 0;
        double *mask = data_doubles(data_at(json_get(in, "loss_masks"), i), &n);
        double sum = 0.0;
        for (size_t t = 0; t < n; t++) {
            sum += mask[t];
        }
        for (size_t t = 0; t < n; t++, at++) {
            bool clipped = false;
            double x = loss_value_token(values[at], old[at], returns[at],
                                        json_double(in, "value_clip", 0.2), &clipped);
            loss += mask[t] * x / fmax(sum, 1.0);
            clipfrac += clipped ? mask[t] / fmax(sum, 1.0) : 0.0;
        }
        free(mask);
    }
    check_one(id, "value_loss", loss, expected);
    check_one(id, "value_clipfrac", clipfrac, expected);
    free(values);
    free(old);
    free(returns);
}

static void try_vector(const cJSON *v)
{
    const char *id = json_string(v, "id", "?");
    const char *kind = json_string(v, "kind", "?");
    const cJSON *in = json_get(v, "input");
    const cJSON *expected = json_get(v, "expected");
    int before = test_checks;
    bool elsewhere = false;
    if (strcmp(kind, "reward_normalization") == 0) {
        try_rewards(id, in, expected);
    } else if (strcmp(kind, "kl") == 0) {
        try_kl(id, in, expected);
    } else if (strcmp(kind, "policy_loss") == 0 || strcmp(kind, "cispo_loss") == 0) {
        try_clipped(id, in, expected, kind[0] == 'c');
    } else if (strcmp(kind, "gspo_seq_kl") == 0) {
        try_sequence_kl(id, in, expected);
    } else if (strcmp(kind, "opsm") == 0) {
        try_opsm(id, in, expected);
    } else if (strcmp(kind, "reinforce_plus_plus_returns") == 0) {
        try_returns(id, in, expected);
    } else if (strcmp(kind, "reinforce_plus_plus_baseline_advantages") == 0) {
        try_baseline(id, in, expected);
    } else if (strcmp(kind, "advantage_whitening") == 0) {
        try_whitening(id, in, expected);
    } else if (strcmp(kind, "tis") == 0 || strcmp(kind, "icepop") == 0) {
        try_weights(id, in, expected, kind[0] == 'i');
    } else if (strcmp(kind, "grpo_advantages") == 0) {
        try_broadcast(id, in, expected);
    } else if (strcmp(kind, "opd_advantages") == 0) {
        try_distillation(id, in, expected);
    } else if (strcmp(kind, "ppo_gae") == 0) {
        try_gae(id, in, expected);
    } else if (strcmp(kind, "value_loss") == 0) {
        try_value_loss(id, in, expected);
    } else if (strcmp(kind, "reducer") == 0) {
        try_reducer(id, in, expected);
    } else if (strcmp(kind, "policy_loss_end_to_end") == 0) {
        try_end_to_end(id, in, expected);
    } else {
        elsewhere = true; /* filters and pass@k are no losses */
    }
    vectors_elsewhere += elsewhere;
    vectors_run += !elsewhere && test_checks > before;
}

static void published_vectors(void)
{
    cJSON *file = data_json(ROLLTOP_TEST_DATA "/loss-vectors/loss-vectors.json.zst");
    const cJSON *v;
    cJSON_ArrayForEach(v, json_get(file, "vectors"))
    {
        try_vector(v);
    }
    printf("     %d vectors\n", vectors_run);
    CHECK_I64(vectors_run, 110);
    CHECK_I64(vectors_elsewhere, 13); /* 7 dynamic filters, 6 pass@k */
    cJSON_Delete(file);
}

int main(void)
{
    RUN(published_vectors);
    return test_end();
}
