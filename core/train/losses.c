/* The float side of losses_math: checks what comes in, widens one sample at a time, narrows what
 * goes out. A batch is some thousands of samples of some thousands of tokens. */
#include "core/train/losses.h"

#include "core/base/mem.h"
#include "core/train/losses_math.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

LossConfig loss_config_default(void)
{
    return (LossConfig){
        .estimator = ADVANTAGE_GRPO,
        .loss_type = LOSS_POLICY,
        .eps_clip = 0.2,
        .eps_clip_high = -1.0,
        .gamma = 1.0,
        .kl_loss_type = KL_K1,
        .rewards_normalization = true,
        .grpo_std_normalization = true,
        .tis_clip = 2.0,
        .opsm_delta = 1e-4,
        .rollout_temperature = 1.0,
        .n_samples_per_prompt = 1,
        .rollout_batch_size = 1,
    };
}

Err loss_config_check(const LossConfig *config, Fault *fault)
{
    if (!(config->rollout_temperature > 0.0)) {
        return fault_set(fault, ERR_ARG, "set it to 1 or another positive number",
                         "--rollout-temperature must be > 0; temperature 0 is greedy decoding and "
                         "is not a valid RL policy.");
    }
    if (config->kl_coef != 0.0 && config->kl_loss_coef != 0.0) {
        return fault_set(fault, ERR_ARG, "drop --kl-coef or --kl-loss-coef",
                         "Only one of kl_coef and kl_loss_coef can be set");
    }
    bool reinforce = config->estimator == ADVANTAGE_REINFORCE_PP ||
                     config->estimator == ADVANTAGE_REINFORCE_PP_BASELINE;
    if (reinforce && !config->normalize_advantages) {
        return fault_set(fault, ERR_ARG, NULL,
                         "The 'reinforce_plus_plus' and 'reinforce_plus_plus_baseline' advantage "
                         "estimators require advantage normalization. Please add "
                         "`--normalize-advantages` to your command.");
    }
    if (config->use_rollout_logprobs && config->use_tis) {
        return fault_set(fault, ERR_ARG, "drop one of the two flags",
                         "use_rollout_logprobs and use_tis cannot be set at the same time.");
    }
    if (config->eps_clip_c != 0.0 && !(config->eps_clip_c > 1.0)) {
        return fault_set(fault, ERR_ARG, "use 3, or leave --eps-clip-c away",
                         "--eps-clip-c is %g: the lower bound of dual-clip PPO must be > 1",
                         config->eps_clip_c);
    }
    if (config->n_samples_per_prompt < 1 || config->rollout_batch_size < 1) {
        return fault_set(fault, ERR_ARG, "give positive numbers",
                         "--n-samples-per-prompt is %d and --rollout-batch-size is %d",
                         config->n_samples_per_prompt, config->rollout_batch_size);
    }
    return ERR_OK;
}

/* ---- rewards ---- */

static void normalise_row(const double *r, size_t n, bool divide, double *out)
{
    double mean = 0.0;
    for (size_t i = 0; i < n; i++) {
        mean += r[i] / (double)n;
    }
    double squares = 0.0;
    for (size_t i = 0; i < n; i++) {
        out[i] = r[i] - mean;
        squares += out[i] * out[i];
    }
    if (!divide || n < 2) {
        return;
    }
    double std = sqrt(squares / (double)(n - 1));
    for (size_t i = 0; i < n; i++) {
        out[i] /= std + 1e-6;
    }
}

void loss_normalise_rewards(const LossConfig *config, const double *rewards, size_t count,
                            double *normalised)
{
    bool raw = !config->rewards_normalization || config->estimator == ADVANTAGE_REINFORCE_PP ||
               config->estimator == ADVANTAGE_PPO;
    if (raw) {
        memcpy(normalised, rewards, count * sizeof *rewards);
        return;
    }
    bool divide = config->grpo_std_normalization &&
                  config->estimator != ADVANTAGE_REINFORCE_PP_BASELINE &&
                  config->n_samples_per_prompt != 1;
    size_t n = (size_t)config->n_samples_per_prompt;
    size_t whole = n * (size_t)config->rollout_batch_size;
    if (n == 0 || count != whole) {
        n = count; /* fan-out or filtered: one row over the batch, as slime does */
    }
    for (size_t from = 0; from < count; from += n) {
        normalise_row(rewards + from, n, divide, normalised + from);
    }
}

/* ---- widening ---- */

static Err check_finite(const char *what, size_t sample, const float *x, size_t count,
                        Fault *fault)
{
    for (size_t t = 0; x && t < count; t++) {
        if (!isfinite(x[t])) {
            return fault_set(fault, ERR_NUMERIC, "look at the policy that produced the sample",
                             "%s of sample %zu is %g at response token %zu", what, sample,
                             (double)x[t], t);
        }
    }
    return ERR_OK;
}

static Err sample_check(const LossConfig *config, const LossSample *sample, size_t index,
                        Fault *fault)
{
    const struct {
        const char *name;
        const float *values;
    } arrays[] = {
        {"the log-probs", sample->logp},          {"the old log-probs", sample->old_logp},
        {"the engine's log-probs", sample->rollout_logp},
        {"the reference's log-probs", sample->ref_logp},
        {"the teacher's log-probs", sample->teacher_logp},
        {"the entropy", sample->entropy},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        Err err = check_finite(arrays[i].name, index, arrays[i].values, sample->count, fault);
        if (err) {
            return err;
        }
    }
    bool wants_rollout = config->use_rollout_logprobs || config->use_tis || config->use_icepop;
    if (wants_rollout && !sample->rollout_logp) {
        return fault_set(fault, ERR_ARG, "generate with log-probs, or drop the flag",
                         "sample %zu has no log-probs of the engine, but --use-rollout-logprobs "
                         "or --use-tis needs them", index);
    }
    if (config->opd_kl_coef != 0.0 && !sample->teacher_logp) {
        return fault_set(fault, ERR_ARG, "give --opd-teacher-load",
                         "sample %zu has no log-probs of a teacher, but --use-opd needs them",
                         index);
    }
    if ((config->use_kl_loss || config->kl_coef != 0.0) && !sample->ref_logp) {
        return fault_set(fault, ERR_ARG, "give --ref-load",
                         "sample %zu has no log-probs of a reference, but a KL term is on", index);
    }
    return ERR_OK;
}

/* Room for one sample's arrays in double, grown as needed. */
typedef struct Wide {
    double *p;
    size_t room, used;
} Wide;

static void wide_begin(Wide *wide, size_t count, size_t arrays)
{
    size_t need = count * arrays + 1;
    if (need > wide->room) {
        wide->p = xrealloc(wide->p, need, sizeof *wide->p);
        wide->room = need;
    }
    wide->used = 0;
}

static double *wide_take(Wide *wide, size_t count)
{
    double *p = wide->p + wide->used;
    wide->used += count;
    assert(wide->used <= wide->room);
    return p;
}

static const double *wide_floats(Wide *wide, const float *x, size_t count)
{
    if (!x) {
        return NULL;
    }
    double *p = wide_take(wide, count);
    for (size_t t = 0; t < count; t++) {
        p[t] = (double)x[t];
    }
    return p;
}

/* ---- advantages ---- */

static Err sample_advantages(const LossConfig *config, const LossSample *s, size_t index,
                             double reward, Wide *wide, double *out, Fault *fault)
{
    const float *old = config->use_rollout_logprobs ? s->rollout_logp : s->old_logp;
    double *kl = wide_take(wide, s->count);
    for (size_t t = 0; t < s->count; t++) {
        kl[t] = config->kl_coef == 0.0 ? 0.0
                                       : loss_kl(config->kl_loss_type,
                                                 (double)old[t] - (double)s->ref_logp[t], 1.0,
                                                 false, NULL);
    }
    switch (config->estimator) {
    case ADVANTAGE_GRPO:
    case ADVANTAGE_GSPO:
    case ADVANTAGE_CISPO:
        for (size_t t = 0; t < s->count; t++) {
            out[t] = reward;
        }
        break;
    case ADVANTAGE_REINFORCE_PP_BASELINE:
        for (size_t t = 0; t < s->count; t++) {
            out[t] = reward - config->kl_coef * kl[t];
        }
        break;
    case ADVANTAGE_REINFORCE_PP:
        if (!loss_discounted_returns(reward, kl, s->mask, s->count, config->kl_coef,
                                     config->gamma, out)) {
            return fault_set(fault, ERR_ARG, "drop samples without a trained token before training",
                             "sample %zu is fully masked, which reinforce_plus_plus cannot take",
                             index);
        }
        break;
    case ADVANTAGE_PPO:
        return fault_set(fault, ERR_UNSUPPORTED, "use grpo",
                         "advantages of ppo need a critic's values");
    }
    for (size_t t = 0; t < s->count && config->opd_kl_coef != 0.0; t++) {
        out[t] -= config->opd_kl_coef * ((double)old[t] - (double)s->teacher_logp[t]);
    }
    return ERR_OK;
}

static Err whiten(const LossSample *samples, size_t count, double *const *wide, Fault *fault)
{
    LossWhiten w = {0};
    for (size_t i = 0; i < count; i++) {
        loss_whiten_add(&w, wide[i], samples[i].mask, samples[i].count);
    }
    if (!loss_whiten_end(&w)) {
        return fault_set(fault, ERR_ARG, "look at the loss masks of the batch",
                         "--normalize-advantages: every token of the batch is masked");
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t t = 0; t < samples[i].count; t++) {
            wide[i][t] = (wide[i][t] - w.mean) * w.factor;
        }
    }
    return ERR_OK;
}

Err loss_advantages(const LossConfig *config, const LossSample *samples, size_t count,
                    const double *normalised, float *const *advantages, Fault *fault)
{
    double **out = xcalloc(count, sizeof *out);
    Wide wide = {0};
    Err err = ERR_OK;
    for (size_t i = 0; i < count && !err; i++) {
        err = sample_check(config, &samples[i], i, fault);
        if (!err && !isfinite(normalised[i])) {
            err = fault_set(fault, ERR_NUMERIC, "look at the reward function",
                            "the normalised reward of sample %zu is %g", i, normalised[i]);
        }
        if (!err) {
            out[i] = xcalloc(samples[i].count, sizeof *out[i]);
            wide_begin(&wide, samples[i].count, 1);
            err = sample_advantages(config, &samples[i], i, normalised[i], &wide, out[i], fault);
        }
    }
    if (!err && config->normalize_advantages) {
        err = whiten(samples, count, out, fault);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t t = 0; !err && t < samples[i].count; t++) {
            advantages[i][t] = (float)out[i][t];
        }
        free(out[i]);
    }
    free(out);
    free(wide.p);
    return err;
}

/* ---- objective ---- */

static double mask_sum(const LossSample *s)
{
    double sum = 0.0;
    for (size_t t = 0; t < s->count; t++) {
        sum += !s->mask || s->mask[t] ? 1.0 : 0.0;
    }
    return sum;
}

typedef struct Execution {
    int64_t id;
    size_t sample;
} Execution;

static int execution_compare(const void *a, const void *b)
{
    const Execution *x = a;
    const Execution *y = b;
    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

void loss_scale(const LossConfig *config, const LossSample *samples, size_t count,
                double *denominators, double *scale)
{
    Execution *order = xcalloc(count, sizeof *order);
    double tokens = 0.0;
    for (size_t i = 0; i < count; i++) {
        order[i] = (Execution){samples[i].rollout_id, i};
        denominators[i] = 1.0;
        tokens += fmax(mask_sum(&samples[i]), 1.0);
    }
    qsort(order, count, sizeof *order, execution_compare);
    double executions = 0.0;
    for (size_t from = 0; from < count;) {
        size_t to = from;
        double sum = 0.0;
        for (; to < count && order[to].id == order[from].id; to++) {
            sum += mask_sum(&samples[order[to].sample]);
        }
        for (size_t i = from; i < to && !config->calculate_per_token_loss; i++) {
            denominators[order[i].sample] = fmax(sum, 1.0);
        }
        executions += 1.0;
        from = to;
    }
    free(order);
    *scale = 1.0 / fmax(config->calculate_per_token_loss ? tokens : executions, 1.0);
}

static Err narrow(const double *from, size_t count, size_t index, float *to, Fault *fault)
{
    for (size_t t = 0; t < count; t++) {
        to[t] = (float)from[t];
        if (!isfinite(to[t])) {
            return fault_set(fault, ERR_NUMERIC,
                             "the policy has moved too far from the one that generated; lower --lr",
                             "the gradient of the loss of sample %zu is %g at response token %zu",
                             index, from[t], t);
        }
    }
    return ERR_OK;
}

static Err sample_gradients(const LossConfig *config, const LossSample *s, size_t index,
                            double denominator, double scale, const float *advantage,
                            float *dlogp, float *dentropy, Wide *wide, LossMetrics *metrics,
                            Fault *fault)
{
    Err err = sample_check(config, s, index, fault);
    if (!err) {
        err = check_finite("the advantage", index, advantage, s->count, fault);
    }
    if (err) {
        return err;
    }
    wide_begin(wide, s->count, 8);
    LossTokens tokens = {
        .count = s->count,
        .logp = wide_floats(wide, s->logp, s->count),
        .old = wide_floats(wide, s->old_logp ? s->old_logp : s->logp, s->count),
        .rollout = wide_floats(wide, s->rollout_logp, s->count),
        .ref = wide_floats(wide, s->ref_logp, s->count),
        .entropy = wide_floats(wide, s->entropy, s->count),
        .advantage = wide_floats(wide, advantage, s->count),
        .mask = s->mask,
        .denominator = denominator,
    };
    double *dl = wide_take(wide, s->count);
    double *de = dentropy ? wide_take(wide, s->count) : NULL;
    loss_tokens(config, &tokens, scale, dl, de, metrics);
    if (!isfinite(metrics->loss)) {
        return fault_set(fault, ERR_NUMERIC, "look at the log-probs of the sample; lower --lr",
                         "the loss becomes %g at sample %zu", metrics->loss, index);
    }
    err = narrow(dl, s->count, index, dlogp, fault);
    return err || !de ? err : narrow(de, s->count, index, dentropy, fault);
}

Err loss_gradients_part(const LossConfig *config, const LossSample *samples, size_t count,
                        const double *denominators, double scale,
                        const float *const *advantages, float *const *dlogp,
                        float *const *dentropy, LossMetrics *metrics, Fault *fault)
{
    *metrics = (LossMetrics){0};
    Wide wide = {0};
    Err err = ERR_OK;
    for (size_t i = 0; i < count && !err; i++) {
        err = sample_gradients(config, &samples[i], i, denominators[i], scale,
                               advantages ? advantages[i] : NULL, dlogp[i],
                               dentropy ? dentropy[i] : NULL, &wide, metrics, fault);
    }
    free(wide.p);
    return err;
}

void loss_metrics_add(LossMetrics *sum, const LossMetrics *part)
{
    sum->loss += part->loss;
    sum->pg_loss += part->pg_loss;
    sum->entropy_loss += part->entropy_loss;
    sum->pg_clipfrac += part->pg_clipfrac;
    sum->ppo_kl += part->ppo_kl;
    sum->kl_loss += part->kl_loss;
    sum->train_rollout_logprob_abs_diff += part->train_rollout_logprob_abs_diff;
    sum->ois += part->ois;
    sum->tis += part->tis;
    sum->tis_clipfrac += part->tis_clipfrac;
    sum->tis_abs += part->tis_abs;
    sum->opsm_clipfrac += part->opsm_clipfrac;
    sum->has_rollout = sum->has_rollout || part->has_rollout;
    sum->has_kl = sum->has_kl || part->has_kl;
    sum->has_tis = sum->has_tis || part->has_tis;
    sum->has_opsm = sum->has_opsm || part->has_opsm;
}
