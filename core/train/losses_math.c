/* Straight from the formulas; O(tokens), a few exp() each. */
#include "core/train/losses_math.h"

#include <math.h>

static const double KL_CLAMP = 10.0;

double loss_kl(KlType type, double d, double ratio, bool live, double *slope)
{
    double value = 0.0;
    double rise = 0.0;
    switch (type) {
    case KL_K1:
        value = d;
        rise = 1.0;
        break;
    case KL_K2:
        value = d * d / 2.0;
        rise = d;
        break;
    case KL_K3:
    case KL_LOW_VAR:
        value = exp(-d) - 1.0 + d;
        rise = 1.0 - exp(-d);
        break;
    }
    rise = ratio * rise + (live ? ratio * value : 0.0);
    value *= ratio;
    if (type == KL_LOW_VAR && fabs(value) > KL_CLAMP) {
        value = value > 0.0 ? KL_CLAMP : -KL_CLAMP;
        rise = 0.0;
    }
    if (slope) {
        *slope = rise;
    }
    return value;
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

LossToken loss_policy_token(const LossClip *clip, double k, double advantage)
{
    double ratio = exp(-k);
    double free_loss = -ratio * advantage;
    double cut_loss = -clamp(ratio, clip->low, clip->high) * advantage;
    LossToken token = {free_loss, ratio * advantage, false};
    if (cut_loss > free_loss) {
        token = (LossToken){cut_loss, 0.0, true};
    }
    if (clip->dual > 0.0 && advantage < 0.0 && -clip->dual * advantage < token.loss) {
        token.loss = -clip->dual * advantage;
        token.slope = 0.0;
    }
    return token;
}

LossToken loss_cispo_token(const LossClip *clip, double k, double logp, double advantage)
{
    double ratio = exp(-k);
    double cut = clamp(ratio, clip->low, clip->high);
    return (LossToken){-cut * advantage * logp, -cut * advantage, cut != ratio};
}

double loss_is_weight(bool icepop, double low, double high, double weight)
{
    if (icepop) {
        return weight >= low && weight <= high ? weight : 0.0;
    }
    return clamp(weight, low, high);
}

static double mask_at(const uint8_t *mask, size_t t)
{
    return mask && mask[t] == 0 ? 0.0 : 1.0;
}

double loss_sequence_kl(const double *logp, const double *old, const uint8_t *mask, size_t count)
{
    double sum = 0.0;
    double n = 0.0;
    for (size_t t = 0; t < count; t++) {
        double m = mask_at(mask, t);
        sum += m * (old[t] - logp[t]);
        n += m;
    }
    return sum / fmax(n, 1.0);
}

bool loss_discounted_returns(double reward, const double *kl, const uint8_t *mask, size_t count,
                             double kl_coef, double gamma, double *out)
{
    size_t last = count;
    for (size_t t = 0; t < count; t++) {
        if (mask_at(mask, t) > 0.0) {
            last = t;
        }
    }
    if (last == count) {
        return false;
    }
    double run = 0.0;
    for (size_t t = count; t-- > 0;) {
        double token = -kl_coef * kl[t] * mask_at(mask, t) + (t == last ? reward : 0.0);
        run = token + gamma * run;
        out[t] = run;
    }
    return true;
}

void loss_gae(double reward, const double *kl, const double *values, size_t count, double kl_coef,
              double gamma, double lambd, double *advantages, double *returns)
{
    double run = 0.0;
    for (size_t t = count; t-- > 0;) {
        bool is_last = t + 1 == count;
        double token = -kl_coef * kl[t] + (is_last ? reward : 0.0);
        double delta = token + gamma * (is_last ? 0.0 : values[t + 1]) - values[t];
        run = delta + gamma * lambd * run;
        advantages[t] = run;
        returns[t] = run + values[t];
    }
}

double loss_value_token(double value, double old_value, double target, double clip, bool *clipped)
{
    double cut = old_value + clamp(value - old_value, -clip, clip);
    double free_loss = (value - target) * (value - target);
    double cut_loss = (cut - target) * (cut - target);
    *clipped = fabs(value - old_value) > clip; /* not where the clipped loss wins, unlike policy */
    return fmax(cut_loss, free_loss);
}

void loss_whiten_add(LossWhiten *w, const double *x, const uint8_t *mask, size_t count)
{
    for (size_t t = 0; t < count; t++) {
        double m = mask_at(mask, t);
        w->n += m;
        w->sum += m * x[t];
        w->squares += m * x[t] * x[t];
    }
}

bool loss_whiten_end(LossWhiten *w)
{
    if (w->n < 1.0) {
        return false;
    }
    w->mean = w->sum / w->n;
    double variance = w->squares / w->n - w->mean * w->mean;
    if (w->n >= 2.0) {
        variance *= w->n / (w->n - 1.0);
    }
    w->factor = 1.0 / sqrt(fmax(variance, 0.0) + 1e-8);
    return true;
}

/* ---- one sample ---- */

typedef struct PolicyPass { /* what is the same for all tokens of a sample */
    LossClip clip;
    double sequence_kl, mask_sum;
    bool is_gspo, is_cispo, weighted;
    const double *old;
} PolicyPass;

static PolicyPass policy_pass(const LossConfig *config, const LossTokens *x)
{
    PolicyPass pass = {0};
    double high = config->eps_clip_high < 0.0 ? config->eps_clip : config->eps_clip_high;
    pass.clip = (LossClip){1.0 - config->eps_clip, 1.0 + high, config->eps_clip_c};
    pass.old = config->use_rollout_logprobs ? x->rollout : x->old;
    pass.is_gspo = config->estimator == ADVANTAGE_GSPO;
    pass.is_cispo = config->estimator == ADVANTAGE_CISPO;
    pass.weighted = (config->use_tis || config->use_icepop) && x->rollout;
    pass.sequence_kl = loss_sequence_kl(x->logp, pass.old, x->mask, x->count);
    for (size_t t = 0; t < x->count; t++) {
        pass.mask_sum += mask_at(x->mask, t);
    }
    return pass;
}

/* The weight outside the clipped loss: importance weight, and 0 where OPSM drops the token. */
static double outer_weight(const LossConfig *config, const PolicyPass *pass, const LossTokens *x,
                           size_t t, double share, double ratio, double scale, LossMetrics *sums)
{
    double weight = 1.0;
    if (config->use_opsm && x->advantage[t] < 0.0 && pass->sequence_kl > config->opsm_delta) {
        /* slime counts dropped tokens whether or not the loss mask had them (vector l0066). */
        weight = 0.0;
        sums->opsm_clipfrac += scale / fmax(pass->mask_sum, 1.0);
    }
    if (pass->weighted) {
        double raw = exp(x->old[t] - x->rollout[t]);
        double cut =
            loss_is_weight(config->use_icepop, config->tis_clip_low, config->tis_clip, raw);
        sums->ois += share * ratio;
        sums->tis += share * raw;
        sums->tis_abs += share * fabs(raw - 1.0);
        sums->tis_clipfrac += cut != raw ? share : 0.0;
        weight *= cut;
    }
    return weight;
}

static void policy_kl(const LossConfig *config, const PolicyPass *pass, const LossTokens *x,
                      size_t t, double share, double *dlogp, LossMetrics *sums)
{
    if (!config->use_kl_loss || !x->ref) {
        return;
    }
    double ratio = config->use_unbiased_kl ? exp(x->logp[t] - pass->old[t]) : 1.0;
    double slope = 0.0;
    double kl = loss_kl(config->kl_loss_type, x->logp[t] - x->ref[t], ratio,
                        config->use_unbiased_kl, &slope);
    sums->kl_loss += share * kl;
    dlogp[t] += share * config->kl_loss_coef * slope;
}

static void policy_tokens(const LossConfig *config, const LossTokens *x, double scale,
                          double *dlogp, double *dentropy, LossMetrics *sums)
{
    PolicyPass pass = policy_pass(config, x);
    LossMetrics before = *sums;
    double sequence_slope = 0.0;
    for (size_t t = 0; t < x->count; t++) {
        double share = mask_at(x->mask, t) * scale / x->denominator;
        double k = pass.is_gspo ? pass.sequence_kl : pass.old[t] - x->logp[t];
        LossToken token = pass.is_cispo
                              ? loss_cispo_token(&pass.clip, k, x->logp[t], x->advantage[t])
                              : loss_policy_token(&pass.clip, k, x->advantage[t]);
        double weight = outer_weight(config, &pass, x, t, share, exp(-k), scale, sums);
        sums->pg_loss += share * weight * token.loss;
        sums->pg_clipfrac += token.clipped ? share : 0.0;
        sums->ppo_kl += share * k;
        dlogp[t] = pass.is_cispo ? share * weight * token.slope : 0.0;
        if (pass.is_gspo) {
            sequence_slope += share * weight * token.slope;
        } else if (!pass.is_cispo) {
            dlogp[t] = -share * weight * token.slope;
        }
        if (x->entropy) {
            sums->entropy_loss += share * x->entropy[t];
        }
        if (dentropy) {
            dentropy[t] = -share * config->entropy_coef;
        }
        policy_kl(config, &pass, x, t, share, dlogp, sums);
        if (x->rollout) {
            double mine = config->use_rollout_logprobs ? x->logp[t] : x->old[t];
            sums->train_rollout_logprob_abs_diff += share * fabs(mine - x->rollout[t]);
        }
    }
    for (size_t t = 0; t < x->count && pass.is_gspo; t++) {
        dlogp[t] -= sequence_slope * mask_at(x->mask, t) / fmax(pass.mask_sum, 1.0);
    }
    sums->loss += (sums->pg_loss - before.pg_loss) -
                  config->entropy_coef * (sums->entropy_loss - before.entropy_loss) +
                  config->kl_loss_coef * (sums->kl_loss - before.kl_loss);
    sums->has_rollout = sums->has_rollout || x->rollout;
    sums->has_kl = sums->has_kl || (config->use_kl_loss && x->ref);
    sums->has_tis = sums->has_tis || pass.weighted;
    sums->has_opsm = sums->has_opsm || config->use_opsm;
}

void loss_tokens(const LossConfig *config, const LossTokens *tokens, double scale, double *dlogp,
                 double *dentropy, LossMetrics *sums)
{
    switch (config->loss_type) {
    case LOSS_POLICY:
        policy_tokens(config, tokens, scale, dlogp, dentropy, sums);
        return;
    case LOSS_SFT:
        for (size_t t = 0; t < tokens->count; t++) {
            double share = mask_at(tokens->mask, t) * scale / tokens->denominator;
            sums->loss -= share * tokens->logp[t];
            dlogp[t] = -share;
            if (dentropy) {
                dentropy[t] = 0.0;
            }
        }
        return;
    }
}
