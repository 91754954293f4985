#include "core/app/run_plan.h"

#include "core/app/alert_rules.h"
#include "core/app/app.h"
#include "core/app/cmd_log.h"
#include "core/app/delta_flags.h"
#include "core/app/inflight_flags.h"
#include "core/app/run_plan_private.h"
#include "core/app/update_flags.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/train/trainer_wire.h"

#include <math.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLAN_TEXT_MAX = 1 << 20 };

static Err need(bool given, const char *flag, const char *what, Fault *fault)
{
    return given ? ERR_OK
                 : fault_set(fault, ERR_ARG, what, "--%s is needed and was not given", flag);
}

/* ---- rules between flags ------------------------------------------------------------------ */

static Err check_required(const RunFlags *f, Fault *fault)
{
    Err err = need(f->hf_checkpoint, "hf-checkpoint", "name a Hugging Face directory", fault);
    err = err ? err : need(f->prompt_data, "prompt-data", "name a .jsonl file", fault);
    err = err ? err
              : need(f->rollout_batch_size > 0, "rollout-batch-size", "prompts a step", fault);
    err = err ? err : need(f->max_response_len > 0, "rollout-max-response-len", "tokens", fault);
    err = err ? err : need(f->rm_type, "rm-type", "digits, exact, f1, math or random", fault);
    if (err == ERR_OK && !f->num_rollout_given && f->num_epoch == 0) {
        err = fault_set(fault, ERR_ARG, "give one of them",
                        "neither --num-rollout nor --num-epoch was given");
    }
    if (err == ERR_OK && !(f->temperature > 0.0)) {
        err = fault_set(fault, ERR_ARG, NULL,
                        "--rollout-temperature must be > 0; temperature 0 is greedy decoding and "
                        "is not a valid RL policy");
    }
    return err;
}

static Err check_pairs(const RunFlags *f, Fault *fault)
{
    if (f->eval_interval > 0 && f->eval_prompt_data.count == 0) {
        return fault_set(fault, ERR_ARG, "give --eval-prompt-data NAME FILE",
                         "--eval-interval is set and no evaluation prompts are");
    }
    if (f->eval_prompt_data.count > 2) {
        return fault_set(fault, ERR_ARG, "give one pair NAME FILE",
                         "--eval-prompt-data takes one data set here, not %zu words",
                         f->eval_prompt_data.count);
    }
    if (f->save_interval > 0 && !f->save) {
        return fault_set(fault, ERR_ARG, "give --save DIR",
                         "--save-interval is set, --save is not");
    }
    if (f->stop_at_given && f->eval_interval == 0) {
        return fault_set(fault, ERR_ARG, "give --eval-interval",
                         "--stop-at-eval-reward is set and no evaluation is");
    }
    int64_t samples = f->rollout_batch_size * f->n_samples_per_prompt;
    int64_t by_steps = f->num_steps_per_rollout > 0 ? samples / f->num_steps_per_rollout : 0;
    if (by_steps > 0 && f->global_batch_size > 0 && by_steps != f->global_batch_size) {
        return fault_set(fault, ERR_ARG, "drop one of the two",
                         "--global-batch-size %lld is not %lld samples / "
                         "--num-steps-per-rollout %lld",
                         (long long)f->global_batch_size, (long long)samples,
                         (long long)f->num_steps_per_rollout);
    }
    if (f->global_batch_size > samples) {
        return fault_set(fault, ERR_ARG, "lower it",
                         "--global-batch-size %lld is larger than the %lld samples of a step",
                         (long long)f->global_batch_size, (long long)samples);
    }
    return ERR_OK;
}

/* `words` end with NULL and stand in the order of their enum. */
static Err enum_of(const char *flag, const char *word, const char *const *words, int *out,
                   Fault *fault)
{
    Text all;
    text_init(&all, 160);
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], word) == 0) {
            *out = i;
            text_free(&all);
            return ERR_OK;
        }
        text_addf(&all, "%s%s", i ? ", " : "", words[i]);
    }
    Err err = fault_set(fault, ERR_ARG, NULL, "--%s %s is none of %s", flag, word, text_c(&all));
    text_free(&all);
    return err;
}

/* What the losses ask for besides the policy that is trained. */
static Err check_loss_models(const RunFlags *f, Fault *fault)
{
    if (strcmp(f->estimator, "ppo") == 0) {
        return fault_set(fault, ERR_UNSUPPORTED, "use grpo, or train with slime",
                         "--advantage-estimator ppo needs a critic, which the built-in trainer "
                         "does not have");
    }
    if ((f->use_kl_loss || f->kl_coef != 0.0) && !f->ref_load) {
        return fault_set(fault, ERR_ARG, "give --ref-load DIR",
                         "a KL term is asked for and no reference policy is given");
    }
    if (f->use_opd && (!f->opd_type || strcmp(f->opd_type, "megatron") != 0)) {
        return fault_set(fault, f->opd_type ? ERR_UNSUPPORTED : ERR_ARG, "give --opd-type megatron",
                         "--use-opd takes the teacher from a checkpoint that the trainer scores, "
                         "and --opd-type is %s", f->opd_type ? f->opd_type : "not given");
    }
    if (f->use_opd && !f->opd_teacher_load) {
        return fault_set(fault, ERR_ARG, "give --opd-teacher-load DIR",
                         "--use-opd is given and no teacher");
    }
    if (!f->use_opd && f->opd_teacher_load) {
        return fault_set(fault, ERR_ARG, "add --use-opd, or leave it away",
                         "--opd-teacher-load is given without --use-opd");
    }
    return ERR_OK;
}

static Err fill_loss(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    LossConfig loss = loss_config_default();
    int estimator = 0, kl = 0, type = 0;
    Err err = check_loss_models(f, fault);
    err = err ? err : enum_of("advantage-estimator", f->estimator, trainer_estimator_names(),
                              &estimator, fault);
    err = err ? err : enum_of("kl-loss-type", f->kl_loss_type, trainer_kl_names(), &kl, fault);
    err = err ? err : enum_of("loss-type", f->loss_type, trainer_loss_names(), &type, fault);
    if (err != ERR_OK) {
        return err;
    }
    loss.estimator = (AdvantageEstimator)estimator;
    loss.kl_loss_type = (KlType)kl;
    loss.loss_type = (LossType)type;
    loss.eps_clip = f->eps_clip;
    loss.eps_clip_high = f->eps_clip_high;
    loss.eps_clip_c = f->eps_clip_c;
    loss.kl_coef = f->kl_coef;
    loss.kl_loss_coef = f->kl_loss_coef;
    loss.entropy_coef = f->entropy_coef;
    loss.gamma = f->gamma;
    loss.use_kl_loss = f->use_kl_loss;
    loss.use_unbiased_kl = f->use_unbiased_kl;
    loss.normalize_advantages = f->normalize_advantages;
    loss.rewards_normalization = !f->no_reward_norm;
    loss.grpo_std_normalization = !f->no_std_norm && f->n_samples_per_prompt > 1;
    loss.calculate_per_token_loss = f->per_token_loss;
    loss.use_rollout_logprobs = f->use_rollout_logprobs;
    loss.use_tis = f->use_tis;
    loss.use_icepop = f->use_tis && run_flags_icepop(f);
    loss.tis_clip = f->tis_clip;
    loss.tis_clip_low = f->tis_clip_low;
    loss.use_opsm = f->use_opsm;
    loss.opsm_delta = f->opsm_delta;
    loss.opd_kl_coef = f->use_opd ? f->opd_kl_coef : 0.0;
    loss.rollout_temperature = f->temperature;
    loss.n_samples_per_prompt = (int)f->n_samples_per_prompt;
    loss.rollout_batch_size = (int)f->rollout_batch_size;
    plan->config.trainer.loss = loss;
    return loss_config_check(&loss, fault);
}

static void fill_training(RunPlan *plan)
{
    const RunFlags *f = plan->flags;
    RunConfig *c = &plan->config;
    int64_t samples = f->rollout_batch_size * f->n_samples_per_prompt;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    c->trainer.load_dir = f->load ? f->load : f->hf_checkpoint;
    c->trainer.dump_dir = plan->work_dir;
    c->trainer.ref_dir = f->use_kl_loss || f->kl_coef != 0.0 ? f->ref_load : NULL;
    c->trainer.teacher_dir = c->trainer.loss.opd_kl_coef != 0.0 ? f->opd_teacher_load : NULL;
    c->trainer.adam = (AdamWConfig){.lr = f->lr, .beta1 = f->adam_beta1, .beta2 = f->adam_beta2,
                                    .eps = f->adam_eps, .weight_decay = f->weight_decay,
                                    .clip_grad = f->clip_grad};
    c->trainer.threads = f->trainer_threads > 0 ? (int)f->trainer_threads
                         : cores > 0            ? (int)cores
                                                : 1;
    c->trainer.global_batch_size = f->global_batch_size > 0 ? f->global_batch_size
                                   : f->num_steps_per_rollout > 0
                                       ? samples / f->num_steps_per_rollout
                                       : 0;
    c->trainer.max_tokens_per_pass = f->max_tokens_per_gpu > 0 ? (int)f->max_tokens_per_gpu : 8192;
    c->trainer.bf16_weights = c->publish_dtype == MODEL_BF16;
    if (c->trainer.bf16_weights) { /* nothing is lost, and half the memory is enough */
        size_t n = 0;
        while (plan->engine_extra[n]) {
            n++;
        }
        plan->engine_extra[n] = "--bf16";
    }
    c->trainer.seed = (uint64_t)f->seed;
    c->keep_policies = f->keep_policies;
    c->state_interval = f->state_interval;
    c->norm_jump = f->norm_jump;
    c->save_dir = f->save;
    c->startup_s = f->startup_timeout;
    c->loop.start_step = f->start_given ? f->start_rollout_id : 0;
    c->loop.eval_interval = c->eval_data.path ? f->eval_interval : 0;
    c->loop.skip_eval_before_train = f->skip_eval_before_train;
    c->loop.save_interval = f->save ? (f->save_interval > 0 ? f->save_interval : 0) : 0;
    c->loop.stop_at_eval_reward = f->stop_at_given ? f->stop_at_eval_reward : NAN;
}

static char *login_name(void)
{
    struct passwd *entry = getpwuid(geteuid());
    return entry ? xstrdup(entry->pw_name) : xasprintf("%u", (unsigned)geteuid());
}

Err run_plan_make(RunPlan *plan, RunFlags *flags, const char *kind, int argc, char **argv,
                  Fault *fault)
{
    *plan = (RunPlan){.flags = flags};
    text_init(&plan->argv_json, PLAN_TEXT_MAX);
    text_init(&plan->config_json, PLAN_TEXT_MAX);
    int64_t bytes = 0;
    Err err = check_required(flags, fault);
    err = err ? err : log_flags_age("--log-keep-age", flags->log_keep_age,
                                    &plan->config.log_keep_us, fault);
    err = err ? err : log_flags_age("--disk-wait", flags->disk_wait, &plan->config.disk_wait_us,
                                    fault);
    err = err ? err : log_flags_size("--log-max-size", flags->log_max_size,
                                     &plan->config.log_max_bytes, fault);
    err = err ? err : alert_rules_load(flags->alert_rules, &plan->rules, fault);
    plan->config.rules = &plan->rules;
    err = err ? err : check_pairs(flags, fault);
    err = err ? err : fill_loss(plan, fault);
    err = err ? err : plan_fleet(plan, fault);
    err = err ? err : inflight_flags_fill(flags, &plan->config, fault);
    err = err ? err : plan_names(plan, kind, fault);
    err = err ? err : delta_flags_fill(flags, &plan->config, fault);
    err = err ? err : update_flags_fill(&flags->update_budget, &plan->config, fault);
    err = err ? err : plan_places(plan, fault);
    err = err ? err : plan_data(plan, fault);
    err = err ? err : plan_sampling(plan, fault);
    err = err ? err : plan_model(plan, &bytes, fault);
    err = err ? err : plan_tokens(plan, fault);
    err = err ? err : plan_other_models(plan, fault);
    err = err ? err : plan_room(plan, bytes, fault);
    err = err ? err : plan_files(plan, fault);
    if (err != ERR_OK) {
        return err;
    }
    fill_training(plan);
    plan->program = app_program();
    plan->user = login_name();
    run_flags_argv_json(argc, argv, &plan->argv_json);
    run_flags_config_json(flags, &plan->config_json);
    RunConfig *c = &plan->config;
    c->run_id = plan->run_id;
    c->log_path = plan->log_path;
    c->work_dir = plan->work_dir;
    c->socket_path = plan->socket_path;
    c->program = plan->program;
    c->user = plan->user;
    c->argv_json = text_c(&plan->argv_json);
    c->config_json = text_c(&plan->config_json);
    c->hf_checkpoint = flags->hf_checkpoint;
    c->resume = flags->resume;
    return fs_mkdirs(plan->work_dir, 0755, fault);
}

void run_plan_free(RunPlan *plan)
{
    tokenizer_free(plan->tokenizer);
    data_free(plan->data);
    data_free(plan->eval_data);
    free(plan->log_path);
    free(plan->work_dir);
    free(plan->socket_path);
    free(plan->run_id);
    free(plan->program);
    free(plan->user);
    free(plan->rollout_url);
    free(plan->bearer);
    free(plan->admin);
    engine_command_free(plan->engine_command);
    free(plan->addrs_text);
    free(plan->addrs);
    free(plan->stop);
    free(plan->stop_ids);
    text_free(&plan->argv_json);
    text_free(&plan->config_json);
}
