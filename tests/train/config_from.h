/* LossConfig from the names that loss-vectors.json and golden-qwen3 use. */
#ifndef ROLLTOP_TESTS_TRAIN_CONFIG_FROM_H
#define ROLLTOP_TESTS_TRAIN_CONFIG_FROM_H

#include "core/train/losses.h"
#include "tests/train/data.h"

static inline AdvantageEstimator estimator_from(const char *name)
{
    static const char *const names[] = {"grpo", "gspo", "cispo", "reinforce_plus_plus",
                                        "reinforce_plus_plus_baseline", "ppo"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return (AdvantageEstimator)i;
        }
    }
    fprintf(stderr, "unknown estimator %s\n", name);
    exit(1);
}

static inline KlType kl_from(const char *name)
{
    static const char *const names[] = {"k1", "k2", "k3", "low_var_kl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return (KlType)i;
        }
    }
    fprintf(stderr, "unknown KL type %s\n", name);
    exit(1);
}

static inline LossConfig config_from(const cJSON *c)
{
    LossConfig d = loss_config_default();
    d.estimator = estimator_from(json_string(c, "advantage_estimator", "grpo"));
    d.loss_type = strcmp(json_string(c, "loss", "policy"), "sft") == 0 ? LOSS_SFT : LOSS_POLICY;
    d.eps_clip = json_double(c, "eps_clip", d.eps_clip);
    d.eps_clip_high = json_double(c, "eps_clip_high", d.eps_clip_high);
    d.eps_clip_c = json_double(c, "eps_clip_c", 0.0);
    d.kl_coef = json_double(c, "kl_coef", 0.0);
    d.kl_loss_coef = json_double(c, "kl_loss_coef", 0.0);
    d.entropy_coef = json_double(c, "entropy_coef", 0.0);
    d.gamma = json_double(c, "gamma", 1.0);
    d.use_kl_loss = json_bool(c, "use_kl_loss", false);
    d.use_unbiased_kl = json_bool(c, "use_unbiased_kl", false);
    d.normalize_advantages = json_bool(c, "normalize_advantages", false);
    d.kl_loss_type = kl_from(json_string(c, "kl_loss_type", "k1"));
    d.rewards_normalization = json_bool(c, "rewards_normalization", true);
    d.grpo_std_normalization = json_bool(c, "grpo_std_normalization", true);
    d.calculate_per_token_loss = json_bool(c, "calculate_per_token_loss", false);
    d.use_rollout_logprobs = json_bool(c, "use_rollout_logprobs", false);
    d.use_tis = json_bool(c, "use_tis", false);
    d.use_icepop = json_bool(c, "use_icepop", false);
    d.tis_clip = json_double(c, "tis_clip", d.tis_clip);
    d.tis_clip_low = json_double(c, "tis_clip_low", d.tis_clip_low);
    d.use_opsm = json_bool(c, "use_opsm", false);
    d.opsm_delta = json_double(c, "opsm_delta", d.opsm_delta);
    d.opd_kl_coef = json_double(c, "opd_kl_coef", 0.0);
    d.rollout_temperature = json_double(c, "rollout_temperature", 1.0);
    d.n_samples_per_prompt = (int)json_i64(c, "n_samples_per_prompt", 1);
    d.rollout_batch_size = (int)json_i64(c, "rollout_batch_size", 1);
    return d;
}

#endif
