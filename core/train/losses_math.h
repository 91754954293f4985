/* The formulas under losses.h, in double and without memory of their own: what the published
 * vectors are checked against at 1e-9. Notation of slime-semantics section 6. */
#ifndef ROLLTOP_TRAIN_LOSSES_MATH_H
#define ROLLTOP_TRAIN_LOSSES_MATH_H

#include "core/train/losses.h"

/* KL estimate from d = logp - base, times `ratio`; low_var_kl is clamped to [-10, 10] behind that.
 * *slope (may be NULL) is d/dlogp; `live` when the ratio itself is exp(logp - old). */
double loss_kl(KlType type, double d, double ratio, bool live, double *slope);

typedef struct LossClip {
    double low, high, dual; /* 1 - eps_clip, 1 + eps_clip_high; dual 0: off */
} LossClip;
typedef struct LossToken {
    double loss, slope; /* slope is d/dk, or d/dlogp for cispo */
    bool clipped;
} LossToken;
/* k = old - logp, so that the ratio is exp(-k). */
LossToken loss_policy_token(const LossClip *clip, double k, double advantage);
LossToken loss_cispo_token(const LossClip *clip, double k, double logp, double advantage);
/* Clipped importance weight of TIS, or of IcePop when `icepop`. */
double loss_is_weight(bool icepop, double low, double high, double weight);

/* Sum m*(old - logp) / max(sum m, 1). */
double loss_sequence_kl(const double *logp, const double *old, const uint8_t *mask, size_t count);

/* reinforce_plus_plus: kl holds KL_t; out[count] gets the discounted returns. False when every
 * token is masked. */
bool loss_discounted_returns(double reward, const double *kl, const uint8_t *mask, size_t count,
                             double kl_coef, double gamma, double *out);

/* What ppo needs besides: held to slime's vectors, without a caller until a trainer of ours has a
 * critic. Generalised advantage estimation over one sample: kl, values, advantages and returns are
 * [count]; values beyond the end are 0; returns = advantages + values. */
void loss_gae(double reward, const double *kl, const double *values, size_t count, double kl_coef,
              double gamma, double lambd, double *advantages, double *returns);
/* Clipped value loss of one token, no half. */
double loss_value_token(double value, double old_value, double target, double clip, bool *clipped);

typedef struct LossWhiten { /* sums over unmasked tokens, then (x - mean) * factor */
    double n, sum, squares;
    double mean, factor;
} LossWhiten;
void loss_whiten_add(LossWhiten *w, const double *x, const uint8_t *mask, size_t count);
bool loss_whiten_end(LossWhiten *w); /* false when nothing was unmasked */

typedef struct LossTokens { /* one sample, all arrays [count] */
    size_t count;
    const double *logp, *old, *advantage;
    const double *rollout, *ref, *entropy; /* NULL: unknown */
    const uint8_t *mask;                   /* NULL: all ones */
    double denominator;
} LossTokens;
/* Adds the sample's share of the objective and of every metric (times scale / denominator) to
 * *sums; writes dL/dlogp and dL/dentropy (NULL: not wanted). */
void loss_tokens(const LossConfig *config, const LossTokens *tokens, double scale, double *dlogp,
                 double *dentropy, LossMetrics *sums);

#endif
