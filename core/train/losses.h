/* From rewards to per-token gradients, as slime computes them (slime-semantics §6,
 * loss-vectors.json, golden-qwen3 rl_steps). Pure, double inside. */
#ifndef ROLLTOP_TRAIN_LOSSES_H
#define ROLLTOP_TRAIN_LOSSES_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef enum AdvantageEstimator {
    ADVANTAGE_GRPO, ADVANTAGE_GSPO, ADVANTAGE_CISPO, ADVANTAGE_REINFORCE_PP,
    ADVANTAGE_REINFORCE_PP_BASELINE,
    ADVANTAGE_PPO /* refused: it needs a critic; its pure parts are in losses_math.h */
} AdvantageEstimator;
typedef enum KlType { KL_K1, KL_K2, KL_K3, KL_LOW_VAR } KlType;
typedef enum LossType { LOSS_POLICY, LOSS_SFT } LossType;

typedef struct LossConfig { /* slime's flags and defaults */
    AdvantageEstimator estimator;
    LossType loss_type;
    double eps_clip, eps_clip_high, eps_clip_c; /* high < 0: = eps_clip; c 0: off */
    double kl_coef, kl_loss_coef, entropy_coef, gamma;
    bool use_kl_loss, use_unbiased_kl, normalize_advantages;
    KlType kl_loss_type;
    bool rewards_normalization, grpo_std_normalization; /* both on by default */
    bool calculate_per_token_loss, use_rollout_logprobs;
    bool use_tis, use_icepop; /* icepop: another weight in the place of TIS's */
    double tis_clip, tis_clip_low;
    bool use_opsm;
    double opsm_delta;
    double opd_kl_coef; /* on-policy distillation, 0: off; needs teacher_logp */
    double rollout_temperature;
    int n_samples_per_prompt, rollout_batch_size;
} LossConfig;
LossConfig loss_config_default(void);
/* The cross-checks of slime-semantics §4.2 that concern these flags, slime's wording kept. */
Err loss_config_check(const LossConfig *config, Fault *fault);

typedef struct LossSample { /* one sample's response tokens, all arrays [count] */
    size_t count;
    const float *logp;          /* current */
    const float *old_logp;      /* recomputed before the steps, or engine's */
    const float *rollout_logp;  /* engine's; NULL unknown */
    const float *ref_logp;      /* NULL without a reference */
    const float *teacher_logp;  /* NULL without a teacher (on-policy distillation) */
    const float *entropy;       /* current; NULL when entropy_coef is 0 and no metric wanted */
    const uint8_t *mask;        /* NULL: all ones */
    int64_t rollout_id;         /* execution; siblings share the denominator */
    double reward;              /* raw */
} LossSample;

/* r' of §6.1 into normalised[count]. */
void loss_normalise_rewards(const LossConfig *config, const double *rewards, size_t count,
                            double *normalised);
/* §6.3 into advantages (per sample arrays of its count); ppo, which needs a critic, is
 * ERR_UNSUPPORTED. ERR_NUMERIC names the first non-finite input, ERR_ARG a sample that the
 * estimator cannot take. */
Err loss_advantages(const LossConfig *config, const LossSample *samples, size_t count,
                    const double *normalised, float *const *advantages, Fault *fault);

typedef struct LossMetrics { /* §6.6 names; scaled as slime reports them */
    double loss, pg_loss, entropy_loss, pg_clipfrac, ppo_kl, kl_loss;
    double train_rollout_logprob_abs_diff, ois, tis, tis_clipfrac, tis_abs, opsm_clipfrac;
    bool has_rollout, has_kl, has_tis, has_opsm;
} LossMetrics;

/* One optimizer step may be computed in micro-batches. What belongs to the whole step: the token
 * denominator of each sample (shared by the siblings of an execution; 1 with
 * calculate_per_token_loss) into denominators[count], and the factor 1/G (distinct
 * rollout_ids) or 1/tokens. */
void loss_scale(const LossConfig *config, const LossSample *samples, size_t count,
                double *denominators, double *scale);

/* Objective and gradients of some of a step's samples: dlogp and dentropy (per sample arrays;
 * dentropy may be NULL when entropy_coef is 0). Metrics of the parts add up, see
 * loss_metrics_add. ERR_NUMERIC names the first non-finite input or result. */
Err loss_gradients_part(const LossConfig *config, const LossSample *samples, size_t count,
                        const double *denominators, double scale,
                        const float *const *advantages, float *const *dlogp,
                        float *const *dentropy, LossMetrics *metrics, Fault *fault);
void loss_metrics_add(LossMetrics *sum, const LossMetrics *part);

#endif
