/* The float interface of the losses, and every gradient against differences of its loss. */
#include "core/train/losses.h"
#include "tests/harness.h"

#include "core/base/rng.h"
#include "tests/train/whole_step.h"

enum { N = 5 };

typedef struct Case {
    float logp[3][N], old[3][N], rollout[3][N], ref[3][N], teacher[3][N], entropy[3][N];
    float adv[3][N], dlogp[3][N], dentropy[3][N];
    uint8_t mask[3][N];
    LossSample samples[3];
    float *advp[3], *dlogpp[3], *dentropyp[3];
} Case;

static void case_make(Case *c)
{
    Rng rng;
    rng_seed(&rng, 7);
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < 3; i++) {
        for (size_t t = 0; t < N; t++) {
            c->logp[i][t] = (float)(-2.0 + rng_normal(&rng) * 0.5);
            c->old[i][t] = c->logp[i][t] + (float)(rng_normal(&rng) * 0.25);
            c->rollout[i][t] = c->old[i][t] + (float)(rng_normal(&rng) * 0.1);
            c->ref[i][t] = c->logp[i][t] + (float)(rng_normal(&rng) * 0.5);
            c->teacher[i][t] = c->logp[i][t] + (float)(rng_normal(&rng) * 0.5);
            c->entropy[i][t] = (float)(1.0 + 0.3 * rng_normal(&rng));
            c->mask[i][t] = rng_unit(&rng) < 0.8;
            c->adv[i][t] = (float)rng_normal(&rng);
        }
        c->mask[i][1] = 1;
        c->samples[i] = (LossSample){.count = N - i, .logp = c->logp[i], .old_logp = c->old[i],
                                     .rollout_logp = c->rollout[i], .ref_logp = c->ref[i],
                                     .teacher_logp = c->teacher[i], .entropy = c->entropy[i],
                                     .mask = c->mask[i], .rollout_id = i == 2 ? 0 : (int64_t)i,
                                     .reward = i == 0 ? 1.0 : 0.25 * (double)i};
        c->advp[i] = c->adv[i];
        c->dlogpp[i] = c->dlogp[i];
        c->dentropyp[i] = c->dentropy[i];
    }
}

static double loss_of(const LossConfig *config, const Case *c, double *scale_out)
{
    double denominators[3];
    double scale = 0.0;
    loss_scale(config, c->samples, 3, denominators, &scale);
    LossMetrics m;
    Case copy = *c;
    float *dlogp[3] = {copy.dlogp[0], copy.dlogp[1], copy.dlogp[2]};
    CHECK_I64(whole_step(config, c->samples, 3, (const float *const *)c->advp, dlogp, NULL, &m,
                             NULL), ERR_OK);
    *scale_out = scale;
    return m.loss;
}

static void gradient_case(const char *name, const LossConfig *config)
{
    Case c;
    case_make(&c);
    LossMetrics m;
    CHECK_I64(whole_step(config, c.samples, 3, (const float *const *)c.advp, c.dlogpp,
                             c.dentropyp, &m, NULL), ERR_OK);
    for (size_t i = 0; i < 3; i++) {
        for (size_t t = 0; t < c.samples[i].count; t++) {
            double scale = 0.0;
            /* Steps that are exact in float. */
            float keep = c.logp[i][t];
            float step = 1.0f / 4096.0f;
            volatile float up = keep + step;
            volatile float down = keep - step;
            c.logp[i][t] = up;
            double high = loss_of(config, &c, &scale);
            c.logp[i][t] = down;
            double low = loss_of(config, &c, &scale);
            c.logp[i][t] = keep;
            double want = (high - low) / ((double)up - (double)down);
            if (fabs(want - (double)c.dlogp[i][t]) > 1e-5) {
                fprintf(stderr, "in %s, sample %zu, token %zu\n", name, i, t);
            }
            CHECK_NEAR(c.dlogp[i][t], want, 1e-5);
        }
    }
}

/* No case stands within a step of a clip bound at this seed, except cispo's stop-gradient. */
static void gradients_are_slopes(void)
{
    LossConfig config = loss_config_default();
    config.entropy_coef = 0.01;
    gradient_case("grpo", &config);
    config.calculate_per_token_loss = true;
    gradient_case("per token", &config);
    config.eps_clip_c = 1.15;
    config.use_tis = true;
    gradient_case("dual clip, tis", &config);
    config = loss_config_default();
    config.estimator = ADVANTAGE_GSPO;
    config.eps_clip = 0.5;
    gradient_case("gspo", &config);
    config = loss_config_default();
    config.use_kl_loss = true;
    config.kl_loss_coef = 0.3;
    for (int type = KL_K1; type <= KL_LOW_VAR; type++) {
        config.kl_loss_type = (KlType)type;
        config.use_unbiased_kl = false;
        gradient_case("kl", &config);
        config.use_unbiased_kl = true;
        gradient_case("unbiased kl", &config);
    }
    config.loss_type = LOSS_SFT;
    gradient_case("sft", &config);
}

static void parts_add_up(void)
{
    Case whole;
    Case parts;
    case_make(&whole);
    case_make(&parts);
    LossConfig config = loss_config_default();
    config.entropy_coef = 0.02;
    config.use_opsm = true;
    LossMetrics all;
    CHECK_I64(whole_step(&config, whole.samples, 3, (const float *const *)whole.advp,
                             whole.dlogpp, whole.dentropyp, &all, NULL), ERR_OK);
    double denominators[3];
    double scale = 0.0;
    loss_scale(&config, parts.samples, 3, denominators, &scale);
    CHECK_NEAR(scale, 0.5, 0.0); /* two executions: samples 0 and 2 are siblings */
    CHECK_NEAR(denominators[0], denominators[2], 0.0);
    LossMetrics sum = {0};
    for (size_t i = 0; i < 3; i++) {
        LossMetrics one;
        CHECK_I64(loss_gradients_part(&config, parts.samples + i, 1, denominators + i, scale,
                                      (const float *const *)(parts.advp + i), parts.dlogpp + i,
                                      parts.dentropyp + i, &one, NULL), ERR_OK);
        loss_metrics_add(&sum, &one);
    }
    CHECK_NEAR(sum.loss, all.loss, 1e-12);
    CHECK_NEAR(sum.opsm_clipfrac, all.opsm_clipfrac, 1e-12);
    CHECK_NEAR(sum.train_rollout_logprob_abs_diff, all.train_rollout_logprob_abs_diff, 1e-12);
    CHECK(memcmp(whole.dlogp, parts.dlogp, sizeof whole.dlogp) == 0);
    CHECK(memcmp(whole.dentropy, parts.dentropy, sizeof whole.dentropy) == 0);
}

static void advantages_by_name(void)
{
    Case c;
    case_make(&c);
    double rewards[3] = {0.7, -1.2, 0.5};
    LossConfig config = loss_config_default();
    CHECK_I64(loss_advantages(&config, c.samples, 3, rewards, c.advp, NULL), ERR_OK);
    CHECK_NEAR(c.adv[0][0], 0.7, 1e-7);
    CHECK_NEAR(c.adv[1][3], -1.2, 1e-7);
    config.opd_kl_coef = 0.5;
    CHECK_I64(loss_advantages(&config, c.samples, 3, rewards, c.advp, NULL), ERR_OK);
    CHECK_NEAR(c.adv[1][2], -1.2 - 0.5 * ((double)c.old[1][2] - (double)c.teacher[1][2]), 1e-6);
    Fault fault = {0};
    c.samples[2].teacher_logp = NULL;
    CHECK_I64(loss_advantages(&config, c.samples, 3, rewards, c.advp, &fault), ERR_ARG);
    CHECK(strstr(fault.sentence, "sample 2 has no log-probs of a teacher") != NULL);
    config = loss_config_default();
    config.estimator = ADVANTAGE_REINFORCE_PP;
    memset(c.mask[1], 0, sizeof c.mask[1]);
    fault_clear(&fault);
    CHECK_I64(loss_advantages(&config, c.samples, 3, rewards, c.advp, &fault), ERR_ARG);
    CHECK(strstr(fault.sentence, "sample 1 is fully masked") != NULL);
}

static void bad_numbers_are_named(void)
{
    Case c;
    LossMetrics m;
    Fault fault = {0};
    LossConfig config = loss_config_default();
    case_make(&c);
    c.rollout[1][2] = NAN;
    CHECK_I64(whole_step(&config, c.samples, 3, (const float *const *)c.advp, c.dlogpp, NULL,
                             &m, &fault), ERR_NUMERIC);
    CHECK(strstr(fault.sentence, "engine's log-probs of sample 1") != NULL);
    CHECK(strstr(fault.sentence, "token 2") != NULL);
    case_make(&c);
    fault_clear(&fault);
    c.logp[2][0] = 2000.0f; /* exp overflows: the loss itself, not an input */
    c.adv[2][0] = -1.0f;
    c.mask[2][0] = 1;
    CHECK_I64(whole_step(&config, c.samples, 3, (const float *const *)c.advp, c.dlogpp, NULL,
                             &m, &fault), ERR_NUMERIC);
    CHECK(strstr(fault.sentence, "sample 2") != NULL);
    case_make(&c);
    fault_clear(&fault);
    config.use_tis = true;
    c.samples[0].rollout_logp = NULL;
    CHECK_I64(whole_step(&config, c.samples, 3, (const float *const *)c.advp, c.dlogpp, NULL,
                             &m, &fault), ERR_ARG);
}

static void flags_are_checked(void)
{
    Fault fault = {0};
    LossConfig config = loss_config_default();
    CHECK_I64(loss_config_check(&config, &fault), ERR_OK);
    config.rollout_temperature = 0.0;
    CHECK_I64(loss_config_check(&config, &fault), ERR_ARG);
    CHECK_STR(fault.sentence, "--rollout-temperature must be > 0; temperature 0 is greedy decoding "
                              "and is not a valid RL policy.");
    config = loss_config_default();
    config.kl_coef = config.kl_loss_coef = 0.1;
    fault_clear(&fault);
    CHECK_I64(loss_config_check(&config, &fault), ERR_ARG);
    CHECK_STR(fault.sentence, "Only one of kl_coef and kl_loss_coef can be set");
    config = loss_config_default();
    config.estimator = ADVANTAGE_REINFORCE_PP_BASELINE;
    CHECK_I64(loss_config_check(&config, NULL), ERR_ARG);
    config.normalize_advantages = true;
    CHECK_I64(loss_config_check(&config, NULL), ERR_OK);
    config.use_tis = config.use_rollout_logprobs = true;
    CHECK_I64(loss_config_check(&config, NULL), ERR_ARG);
    config = loss_config_default();
    config.eps_clip_c = 0.9;
    CHECK_I64(loss_config_check(&config, NULL), ERR_ARG);
}

int main(void)
{
    RUN(gradients_are_slopes);
    RUN(parts_add_up);
    RUN(advantages_by_name);
    RUN(bad_numbers_are_named);
    RUN(flags_are_checked);
    return test_end();
}
