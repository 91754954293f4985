/* Flags of `rolltop run`: slime's names and defaults (slime-semantics §4.1), and ours for local
 * parts and the log. Flags of slime and of Megatron that have no meaning here are accepted,
 * named once and stored with the run; anything else is an error that names the nearest flag. */
#ifndef ROLLTOP_APP_RUN_FLAGS_H
#define ROLLTOP_APP_RUN_FLAGS_H

#include "core/app/engine_flags.h"
#include "core/app/fleet_flags.h"
#include "core/base/flags.h"

typedef struct RunFlags {
    /* ours */
    const char *log_keep_age, *log_max_size, *disk_wait, *alert_rules;
    const char *log, *run_id, *name, *publish_dtype, *rollout_url, *eval_rm_type, *trainer;
    bool headless, resume;
    const char *engine_cmd, *router_ip;
    int64_t router_port;
    int64_t local_engines, engine_threads, trainer_threads, keep_policies, startup_timeout;
    int64_t state_interval;
    bool engine_faults;
    double stop_at_eval_reward, norm_jump;
    bool stop_at_given;
    FleetFlags fleet;
    /* rollout */
    const char *hf_checkpoint, *prompt_data, *input_key, *label_key, *metadata_key;
    int64_t rollout_batch_size, n_samples_per_prompt, rollout_top_k, max_response_len;
    int64_t max_prompt_len, max_context_len, rollout_seed, num_rollout, num_epoch;
    int64_t start_rollout_id, concurrency;
    double temperature, top_p;
    FlagList stop, stop_token_ids, engine_addrs;
    bool skip_special_tokens, shuffle;
    const char *update_inflight, *generate_unary;
    int64_t max_staleness;
    bool partial_rollout, mask_offpolicy, max_staleness_given;
    bool start_given, num_rollout_given;
    /* eval */
    int64_t eval_interval, n_samples_per_eval_prompt, eval_top_k, eval_max_response_len;
    FlagList eval_prompt_data;
    double eval_temperature, eval_top_p;
    const char *eval_input_key, *eval_label_key;
    bool skip_eval_before_train;
    bool eval_temperature_given, eval_top_p_given, eval_top_k_given;
    /* reward, algorithm */
    const char *rm_type, *estimator, *loss_type, *kl_loss_type, *ref_load;
    double eps_clip, eps_clip_high, eps_clip_c, kl_coef, kl_loss_coef, entropy_coef, gamma;
    bool use_kl_loss, use_unbiased_kl, normalize_advantages, no_reward_norm, no_std_norm;
    bool per_token_loss, use_rollout_logprobs, use_tis, use_opsm;
    double tis_clip, tis_clip_low, opsm_delta, opd_kl_coef;
    const char *custom_tis, *opd_type, *opd_teacher_load;
    bool use_opd;
    int64_t seed;
    double lr, clip_grad, weight_decay, adam_beta1, adam_beta2, adam_eps;
    /* batch, checkpoints */
    int64_t global_batch_size, num_steps_per_rollout, max_tokens_per_gpu, save_interval;
    const char *save, *load, *update_weight_mode, *update_weight_transport;
    FlagList update_budget;
    const char *delta_encoding, *delta_sum, *local_checkpoint_dir;
    int64_t full_every;
    bool full_every_given;
    bool help;

    FlagSpec *specs; /* used ones, then the accepted ones */
    size_t spec_count, used_count;
    void *ignored; /* targets of the accepted ones */
    bool *ignored_given;
    FlagRest rest;
    char **passed; /* argv without flags of foreign prefixes; NULL-terminated */
    int passed_count;
    Text ignored_names; /* "--a, --b": accepted and not used */
    EngineFlags sglang; /* of the family --sglang-* */
} RunFlags;

/* The used ones, without what is accepted and ignored. */
void cmd_run_flags(FlagVisit *visit, void *to);
/* Defaults and the table, which run_flags_parse begins with too. */
void run_flags_init(RunFlags *flags);
/* Parses argv[1..]; on failure the flags are still to be freed. */
Err run_flags_parse(RunFlags *flags, int argc, char **argv, Fault *fault);
/* IcePop has no flag in slime: it is the one custom function for TIS that is built in. */
bool run_flags_icepop(const RunFlags *flags);
void run_flags_free(RunFlags *flags);
void run_flags_help(FILE *out);
/* argv as a JSON array with secrets replaced by "***". */
void run_flags_argv_json(int argc, char **argv, Text *out);
/* Every used flag with its value, as a JSON object, and the ignored ones by name. */
void run_flags_config_json(const RunFlags *flags, Text *out);

#endif
