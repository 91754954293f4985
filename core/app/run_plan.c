#include "core/app/run_plan.h"

#include "core/app/app.h"
#include "core/app/delta_flags.h"
#include "core/app/inflight_flags.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/model/tokenizer.h"
#include "core/policy/artifact.h"
#include "core/rollout/reward.h"
#include "core/serve/engine_request.h"
#include "core/train/trainer_wire.h"

#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PLAN_TEXT_MAX = 1 << 20, SPARE_BYTES = 64 << 20, STATES_AT_ONCE = 3, FILES_BESIDE = 96 };

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

static Err fill_loss(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    LossConfig loss = loss_config_default();
    int estimator = 0, kl = 0, type = 0;
    Err err = enum_of("advantage-estimator", f->estimator, trainer_estimator_names(), &estimator,
                      fault);
    err = err ? err : enum_of("kl-loss-type", f->kl_loss_type, trainer_kl_names(), &kl, fault);
    err = err ? err : enum_of("loss-type", f->loss_type, trainer_loss_names(), &type, fault);
    if (err == ERR_OK && estimator == ADVANTAGE_PPO) {
        err = fault_set(fault, ERR_UNSUPPORTED, "use grpo",
                        "--advantage-estimator ppo needs a critic, which the built-in trainer "
                        "does not have");
    }
    if (err == ERR_OK && (f->use_kl_loss || f->kl_coef != 0.0) && !f->ref_load) {
        err = fault_set(fault, ERR_ARG, "give --ref-load DIR",
                        "a KL term is asked for and no reference policy is given");
    }
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
    loss.lambd = f->lambd;
    loss.use_kl_loss = f->use_kl_loss;
    loss.use_unbiased_kl = f->use_unbiased_kl;
    loss.normalize_advantages = f->normalize_advantages;
    loss.rewards_normalization = !f->no_reward_norm;
    loss.grpo_std_normalization = !f->no_std_norm && f->n_samples_per_prompt > 1;
    loss.calculate_per_token_loss = f->per_token_loss;
    loss.use_rollout_logprobs = f->use_rollout_logprobs;
    loss.use_tis = f->use_tis;
    loss.tis_clip = f->tis_clip;
    loss.tis_clip_low = f->tis_clip_low;
    loss.use_opsm = f->use_opsm;
    loss.opsm_delta = f->opsm_delta;
    loss.rollout_temperature = f->temperature;
    loss.n_samples_per_prompt = (int)f->n_samples_per_prompt;
    loss.rollout_batch_size = (int)f->rollout_batch_size;
    plan->config.trainer.loss = loss;
    return loss_config_check(&loss, fault);
}

/* ---- the fleet ---------------------------------------------------------------------------- */

static Err check_address(const char *address, Fault *fault)
{
    Str s = str_from(address);
    size_t colon = 0;
    int64_t port = 0;
    bool good = str_rfind(s, STR(":"), &colon) && colon > 0 &&
                str_to_i64(str_slice(s, colon + 1, s.n), &port) && port > 0 && port < 65536;
    return good ? ERR_OK
                : fault_set(fault, ERR_ARG, "write HOST:PORT", "engine address \"%s\" is not one",
                            address);
}

static Err fill_addresses(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    const char *env = getenv("DYNAMO_ENGINE_ADDRS");
    size_t count = f->engine_addrs.count;
    plan->addrs = xcalloc(FLAG_LIST_MAX + 1, sizeof *plan->addrs);
    for (size_t i = 0; i < count; i++) {
        plan->addrs[i] = f->engine_addrs.items[i];
    }
    if (count == 0 && f->local_engines == 0 && env && env[0]) {
        plan->addrs_text = xstrdup(env);
        char *rest = NULL;
        for (char *word = strtok_r(plan->addrs_text, " ,\t\n", &rest);
             word && count < FLAG_LIST_MAX; word = strtok_r(NULL, " ,\t\n", &rest)) {
            plan->addrs[count++] = word;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(plan->addrs[i], "http://", 7) == 0) {
            plan->addrs[i] += 7;
        }
        Err err = check_address(plan->addrs[i], fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    plan->config.engine_addrs = plan->addrs;
    plan->config.engine_addr_count = count;
    return ERR_OK;
}

/* --rollout-url, else DYNAMO_ROLLOUT_URL, else the router of --sglang-router-ip: slime's adapter
 * for Dynamo replaces that router too. Local engines have a frontend of their own. */
static Err fill_rollout_url(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    const char *url = f->rollout_url;
    char router[300];
    if ((f->router_ip != NULL) != (f->router_port > 0)) {
        return fault_set(fault, ERR_ARG, "give both",
                         "--sglang-router-ip and --sglang-router-port belong together");
    }
    if (!url && f->local_engines == 0) {
        url = getenv("DYNAMO_ROLLOUT_URL");
    }
    if (!(url && url[0]) && f->router_ip) {
        const char *form = strchr(f->router_ip, ':') ? "http://[%s]:%lld" : "http://%s:%lld";
        int n = snprintf(router, sizeof router, form, f->router_ip, (long long)f->router_port);
        if (n < 0 || (size_t)n >= sizeof router) {
            return fault_set(fault, ERR_ARG, NULL, "--sglang-router-ip is too long");
        }
        url = router;
    }
    if (url && url[0]) {
        if (strchr(url, '@')) { /* it would be kept in the log, and is not repeated here */
            return fault_set(fault, ERR_ARG, "write http://HOST:PORT, keys come from environment "
                             "variables", "the frontend's URL has a user or password in it");
        }
        if (strncmp(url, "http://", 7) != 0 || strpbrk(url + 7, "/?#")) {
            return fault_set(fault, ERR_ARG, "write http://HOST:PORT",
                             "the frontend's URL \"%s\" is not one", url);
        }
        plan->rollout_url = xstrdup(url);
        plan->config.rollout_url = plan->rollout_url;
        plan->config.router = url == router;
    }
    return ERR_OK;
}

/* Children find the keys in their environment, under the same names. */
static Err fill_keys(RunPlan *plan, Fault *fault)
{
    Err err = engine_key_read("SGLANG_API_KEY", &plan->bearer, fault);
    err = err ? err : engine_key_read("SGLANG_ADMIN_API_KEY", &plan->admin, fault);
    if ((plan->bearer && setenv("SGLANG_API_KEY", plan->bearer, 1) != 0) ||
        (plan->admin && setenv("SGLANG_ADMIN_API_KEY", plan->admin, 1) != 0)) {
        return fault_set(fault, ERR_MEMORY, NULL, "no room for the engines' keys");
    }
    plan->config.engine_bearer = plan->bearer;
    plan->config.engine_admin = plan->admin;
    return err;
}

static Err fill_engines(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    RunConfig *c = &plan->config;
    c->local_engines = f->local_engines;
    c->engine_threads = f->engine_threads;
    c->engine_settings = f->sglang.settings;
    c->engine_setting_count = (size_t)f->sglang.setting_count;
    if (f->engine_cmd && f->local_engines == 0) {
        return fault_set(fault, ERR_ARG, "say how many with --local-engines N",
                         "--engine-cmd starts engines on this machine, and none are asked for");
    }
    if (f->engine_cmd) {
        Err err = engine_command_make(f->engine_cmd, f->hf_checkpoint, &f->sglang,
                                      &plan->engine_command, fault);
        if (err != ERR_OK) {
            return err;
        }
        c->engine_command = (const char *const *)plan->engine_command;
    }
    return fill_keys(plan, fault);
}

static Err fill_fleet(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    RunConfig *c = &plan->config;
    Err err = fill_addresses(plan, fault);
    if (err != ERR_OK) {
        return err;
    }
    bool others = c->engine_addr_count > 0 || fleet_flags_any_source(&f->fleet);
    if (others == (f->local_engines > 0)) {
        return fault_set(fault, ERR_ARG,
                         "give --local-engines N, or --rollout-external-engine-addrs",
                         others ? "engines are given both as local ones and by "
                                                    "address"
                                                  : "no engines are given");
    }
    err = fill_rollout_url(plan, fault);
    err = err ? err : fill_engines(plan, fault);
    err = err ? err : fleet_flags_check(&f->fleet, c->rollout_url != NULL, fault);
    c->sources = fleet_flags_sources(&f->fleet);
    c->probe = fleet_flags_probe(&f->fleet);
    c->gone_looks = f->fleet.gone_looks;
    if (err != ERR_OK) {
        return err;
    }
    if (f->engine_faults) {
        plan->engine_extra[0] = "--faults";
    }
    c->engine_extra = plan->engine_extra;
    if (f->trainer) {
        plan->trainer_argv[0] = f->trainer;
        c->trainer_command = plan->trainer_argv;
    }
    return ERR_OK;
}

/* ---- model and data ----------------------------------------------------------------------- */

static Err check_model(RunPlan *plan, int64_t *bytes, Fault *fault)
{
    const RunFlags *f = plan->flags;
    if (!fs_is_dir(f->hf_checkpoint)) {
        return fault_set(fault, ERR_NOT_FOUND, "name a Hugging Face directory",
                         "--hf-checkpoint %s is not a directory", f->hf_checkpoint);
    }
    bool f32 = strcmp(f->publish_dtype, "f32") == 0;
    bool bf16 = strcmp(f->publish_dtype, "bf16") == 0;
    if (!f32 && !bf16 && strcmp(f->publish_dtype, "auto") != 0) {
        return fault_set(fault, ERR_ARG, NULL, "--publish-dtype %s is none of auto, f32, bf16",
                         f->publish_dtype);
    }
    Artifact artifact = {0};
    Err err = artifact_check(f->hf_checkpoint, NULL, 0.0, &artifact, fault);
    if (err != ERR_OK) {
        return err;
    }
    int64_t parameters = model_parameter_count(&artifact.config);
    plan->config.publish_dtype =
        f32 || (!bf16 && artifact.config.dtype == MODEL_F32) ? MODEL_F32 : MODEL_BF16;
    int64_t policy = parameters * (plan->config.publish_dtype == MODEL_F32 ? 4 : 2);
    int64_t copies = plan->config.delta && !plan->config.engine_command
                         ? 2 * plan->config.local_engines /* one is written beside the other */
                         : 0;
    *bytes = policy * (f->keep_policies + 1 + copies) + parameters * 12 * STATES_AT_ONCE;
    plan->model = artifact.config;
    artifact_free(&artifact);
    return tokenizer_load(f->hf_checkpoint, &plan->tokenizer, fault);
}

static bool same_model(const ModelConfig *a, const ModelConfig *b)
{
    return a->arch == b->arch && a->layers == b->layers && a->hidden == b->hidden &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
           a->ffn == b->ffn && a->vocab == b->vocab && a->tied == b->tied;
}

/* A directory that the trainer reads besides --hf-checkpoint: whole, and the same model. */
static Err check_other_model(const RunPlan *plan, const char *flag, const char *dir, Fault *fault)
{
    Artifact artifact = {0};
    Err err = artifact_check(dir, NULL, 0.0, &artifact, fault);
    if (err == ERR_OK && !same_model(&artifact.config, &plan->model)) {
        err = fault_set(fault, ERR_ARG, "give a checkpoint of the model that is served",
                        "--%s %s and --hf-checkpoint %s are models of different shape", flag, dir,
                        plan->flags->hf_checkpoint);
    }
    artifact_free(&artifact);
    return err;
}

static Err check_other_models(const RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    bool reference = f->use_kl_loss || f->kl_coef != 0.0;
    Err err = f->load ? check_other_model(plan, "load", f->load, fault) : ERR_OK;
    return err || !reference ? err : check_other_model(plan, "ref-load", f->ref_load, fault);
}

static int64_t prompt_limit(const RunFlags *f)
{
    return f->max_prompt_len > 0    ? f->max_prompt_len
           : f->max_context_len > 0 ? f->max_context_len - 1
                                    : 0;
}

static Err no_room(const RunPlan *plan, int64_t row, const char *path, int64_t count,
                   int64_t response, Fault *fault)
{
    if (count == 0) {
        return fault_set(fault, ERR_FORMAT, "remove the row, or use the prompts' own tokenizer",
                         "prompt %lld of %s gives no token of the checkpoint's tokenizer",
                         (long long)row, path);
    }
    return fault_set(fault, ERR_LIMIT,
                     "lower --rollout-max-response-len, or drop long prompts with "
                     "--rollout-max-prompt-len",
                     "prompt %lld of %s has %lld tokens; with %lld of response it does not fit "
                     "into the model's %d positions",
                     (long long)row, path, (long long)count, (long long)response,
                     plan->model.max_positions);
}

/* The row's reward must be able to judge its label: an empty response is scored. */
static Err check_reward(const DataRow *row, const char *path, const char *type, Fault *fault)
{
    RewardInput input = {.response = STR(""), .label = row->label, .metadata = row->metadata,
                         .label_kind = row->label_kind};
    PyRandom coin;
    cJSON *metadata = NULL;
    double reward = 0.0;
    Fault why = {0};
    if (row->metadata.n > 2 &&
        json_parse(row->metadata, 1 << 20, "metadata", &metadata, NULL) == ERR_OK) {
        type = json_string(metadata, "rm_type", type);
    }
    py_random_seed(&coin, 0);
    Err err = reward_score(type, &input, &coin, &reward, &why);
    if (err != ERR_OK) {
        err = fault_set(fault, err, why.hint, "prompt %lld of %s cannot be scored: %s",
                        (long long)row->index, path, why.sentence);
    }
    cJSON_Delete(metadata);
    return err;
}

/* Every prompt that is not dropped for its length must leave room for its response, and its label
 * must suit its reward. */
static Err check_prompts(const RunPlan *plan, const DataSource *data, const char *path,
                         const SampleSettings *settings, Fault *fault)
{
    int64_t response = settings->max_response_len;
    int64_t limit = prompt_limit(plan->flags);
    int64_t kept = 0;
    for (int64_t i = 0; i < data_count(data); i++) {
        TokenIds ids = {0};
        Err err = tokenizer_encode(plan->tokenizer, data_row(data, i)->prompt, &ids, fault);
        int64_t count = (int64_t)ids.count;
        token_ids_free(&ids);
        if (err != ERR_OK) {
            return err;
        }
        bool keep = limit == 0 || count <= limit;
        kept += keep;
        if (keep && (count == 0 || count + response > plan->model.max_positions)) {
            return no_room(plan, i, path, count, response, fault);
        }
        err = keep ? check_reward(data_row(data, i), path, settings->rm_type, fault) : ERR_OK;
        if (err != ERR_OK) {
            return err;
        }
    }
    return kept > 0 ? ERR_OK
                    : fault_set(fault, ERR_ARG, "give a longer --rollout-max-prompt-len",
                                "no prompt of %s is short enough", path);
}

static Err check_data(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    RunConfig *c = &plan->config;
    c->data = (DataConfig){.path = f->prompt_data, .input_key = f->input_key,
                           .label_key = f->label_key, .metadata_key = f->metadata_key,
                           .shuffle = f->shuffle, .seed = f->rollout_seed};
    DataSource *data = NULL;
    Err err = data_open(&c->data, &data, fault);
    if (err != ERR_OK) {
        return err;
    }
    plan->data = data;
    int64_t rows = data_count(data);
    c->loop.num_steps = f->num_rollout_given ? f->num_rollout
                                             : rows / f->rollout_batch_size * f->num_epoch;
    if (rows == 0 || (!f->num_rollout_given && c->loop.num_steps == 0)) {
        return fault_set(fault, ERR_ARG, "give more prompts or a smaller --rollout-batch-size",
                         "%s has %lld prompts, fewer than one step needs", f->prompt_data,
                         (long long)rows);
    }
    if (f->eval_prompt_data.count == 0 || f->eval_interval == 0) {
        return ERR_OK;
    }
    c->eval_data = c->data;
    c->eval_data.shuffle = false;
    c->eval_data.path = f->eval_prompt_data.items[f->eval_prompt_data.count - 1];
    c->eval_data.input_key = f->eval_input_key ? f->eval_input_key : f->input_key;
    c->eval_data.label_key = f->eval_label_key ? f->eval_label_key : f->label_key;
    return data_open(&c->eval_data, &plan->eval_data, fault);
}

/* What needs vocabulary and tokenizer: lengths of prompts, stop tokens. */
static Err check_tokens(RunPlan *plan, Fault *fault)
{
    const RunConfig *c = &plan->config;
    Err err = check_prompts(plan, plan->data, c->data.path, &c->rollout, fault);
    if (err == ERR_OK && plan->eval_data) {
        err = check_prompts(plan, plan->eval_data, c->eval_data.path, &c->eval, fault);
    }
    for (size_t i = 0; i < c->stop_id_count && err == ERR_OK; i++) {
        if (c->stop_ids[i] >= plan->model.vocab) {
            err = fault_set(fault, ERR_ARG, "give an id from the checkpoint's tokenizer.json",
                            "--rollout-stop-token-ids %d is no token of a vocabulary of %d",
                            (int)c->stop_ids[i], plan->model.vocab);
        }
    }
    data_free(plan->data); /* the core reads them itself */
    data_free(plan->eval_data);
    plan->data = plan->eval_data = NULL;
    return err;
}

static Err fill_sampling(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    RunConfig *c = &plan->config;
    c->rollout = (SampleSettings){.temperature = f->temperature, .top_p = f->top_p,
                                  .top_k = f->rollout_top_k,
                                  .max_response_len = f->max_response_len,
                                  .n_per_prompt = f->n_samples_per_prompt, .rm_type = f->rm_type};
    c->eval = c->rollout;
    c->eval.n_per_prompt = f->n_samples_per_eval_prompt;
    c->eval.rm_type = f->eval_rm_type ? f->eval_rm_type : f->rm_type;
    c->eval.temperature = f->eval_temperature_given ? f->eval_temperature : f->temperature;
    c->eval.top_p = f->eval_top_p_given ? f->eval_top_p : f->top_p;
    c->eval.top_k = f->eval_top_k_given ? f->eval_top_k : f->rollout_top_k;
    if (f->eval_max_response_len > 0) {
        c->eval.max_response_len = f->eval_max_response_len;
    }
    Err err = reward_check_type(f->rm_type, fault);
    err = err ? err : reward_check_type(c->eval.rm_type, fault);
    if (err == ERR_OK && f->stop.count > REQUEST_STOPS_MAX) {
        err = fault_set(fault, ERR_LIMIT, "leave some out",
                        "--rollout-stop has %zu strings, an engine takes %d", f->stop.count,
                        REQUEST_STOPS_MAX);
    }
    plan->stop = xcalloc(f->stop.count + 1, sizeof *plan->stop);
    for (size_t i = 0; i < f->stop.count; i++) {
        plan->stop[i] = f->stop.items[i];
        if (err == ERR_OK && !plan->stop[i][0]) {
            err = fault_set(fault, ERR_ARG, "leave it out, or write the text that ends an answer",
                            "--rollout-stop has an empty string: it ends every sample behind its "
                            "first token");
        }
    }
    c->stop = f->stop.count ? plan->stop : NULL;
    plan->stop_ids = xcalloc(f->stop_token_ids.count + 1, sizeof *plan->stop_ids);
    for (size_t i = 0; i < f->stop_token_ids.count && err == ERR_OK; i++) {
        int64_t id = 0;
        if (!str_to_i64(str_from(f->stop_token_ids.items[i]), &id) || id < 0 || id > INT32_MAX) {
            err = fault_set(fault, ERR_ARG, "give whole numbers from 0 on",
                            "--rollout-stop-token-ids %s is no token id",
                            f->stop_token_ids.items[i]);
        }
        plan->stop_ids[i] = (int32_t)id;
    }
    c->stop_ids = plan->stop_ids;
    c->stop_id_count = f->stop_token_ids.count;
    c->skip_special_tokens = f->skip_special_tokens;
    c->rollout_batch_size = f->rollout_batch_size;
    c->rollout_seed = f->rollout_seed;
    c->concurrency = f->concurrency;
    c->max_prompt_len = prompt_limit(f);
    return err;
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

/* ---- places ------------------------------------------------------------------------------- */

static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        return xstrdup(".");
    }
    return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

static Err fill_names(RunPlan *plan, const char *kind, Fault *fault)
{
    const RunFlags *f = plan->flags;
    char stamp[32];
    time_t now = (time_t)(clock_wall_us() / 1000000);
    struct tm parts;
    gmtime_r(&now, &parts);
    (void)strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
    const char *name = f->name ? f->name : kind;
    plan->run_id = f->run_id ? xstrdup(f->run_id) : xasprintf("%s-%s", name, stamp);
    if (strpbrk(plan->run_id, "/ \t\n") || plan->run_id[0] == '.' || strlen(plan->run_id) > 48) {
        return fault_set(fault, ERR_ARG, "use letters, digits and dashes, at most 48",
                         "--run-id %s cannot be a file name", plan->run_id);
    }
    char *runtime = NULL;
    Err err = fs_runtime_dir(&runtime, fault);
    if (err != ERR_OK) {
        return err;
    }
    plan->socket_path = xasprintf("%s/%s.sock", runtime, plan->run_id);
    free(runtime);
    if (f->log) {
        plan->log_path = f->log[0] == '/' ? xstrdup(f->log) : NULL;
        if (!plan->log_path) { /* children and readers have other working directories */
            char *here = getcwd(NULL, 0);
            plan->log_path = xasprintf("%s/%s", here ? here : ".", f->log);
            free(here);
        }
    } else {
        char *state = NULL;
        err = fs_state_dir(&state, fault);
        if (err != ERR_OK) {
            return err;
        }
        plan->log_path = xasprintf("%s/%s.db", state, plan->run_id);
        free(state);
    }
    plan->work_dir = xasprintf("%s.d", plan->log_path);
    plan->config.name = name;
    return ERR_OK;
}

/* The directory that a flag names is there, or can be made. */
static Err check_makeable(const char *flag, const char *path, Fault *fault)
{
    char *place = xstrdup(path);
    while (!fs_exists(place) && strcmp(place, ".") != 0 && strcmp(place, "/") != 0) {
        char *up = parent_of(place);
        free(place);
        place = up;
    }
    Err err = ERR_OK;
    if (!fs_is_dir(place)) {
        err = fault_set(fault, ERR_ARG, "name a directory", "--%s %s: %s is not a directory", flag,
                        path, place);
    } else if (access(place, W_OK) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, "name another place",
                            "--%s %s: %s cannot be written", flag, path, place);
    }
    free(place);
    return err;
}

static Err check_places(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    if (f->resume != fs_exists(plan->log_path)) {
        return f->resume ? fault_set(fault, ERR_NOT_FOUND, "name the log of the run",
                                     "--resume: there is no %s", plan->log_path)
                         : fault_set(fault, ERR_EXISTS, "add --resume, or name another file",
                                     "--log %s is there already", plan->log_path);
    }
    char *folder = parent_of(plan->log_path);
    Err err = ERR_OK;
    if (!fs_is_dir(folder)) {
        err = fault_set(fault, ERR_NOT_FOUND, "make it, or name another place",
                        "the log's directory %s does not exist", folder);
    } else if (access(folder, W_OK) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, "name another place with --log",
                            "the log's directory %s cannot be written", folder);
    }
    free(folder);
    return err != ERR_OK || !f->save ? err : check_makeable("save", f->save, fault);
}

static Err check_room(const RunPlan *plan, int64_t bytes, Fault *fault)
{
    char *folder = parent_of(plan->log_path);
    uint64_t room = 0;
    Err err = fs_free_bytes(folder, &room, fault);
    if (err == ERR_OK && room < (uint64_t)bytes + SPARE_BYTES) {
        err = fault_set(fault, ERR_LIMIT, "free some, name another place with --log, or lower "
                        "--keep-policies",
                        "%s has %lld MiB free; log, policies and trainer state need about %lld",
                        folder, (long long)(room >> 20),
                        (long long)((bytes + SPARE_BYTES) >> 20));
    }
    free(folder);
    return err;
}

/* A sample under way is a connection of the core, and two of the frontend. The soft bound is ours
 * to raise; children inherit it. */
static Err check_files(const RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return ERR_OK;
    }
    if (files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    int64_t engines = f->local_engines > 0 ? f->local_engines : (int64_t)f->engine_addrs.count;
    int64_t samples = f->rollout_batch_size * f->n_samples_per_prompt;
    int64_t bound = f->concurrency * (engines > 0 ? engines : 1);
    int64_t need = 2 * (samples < bound ? samples : bound) + FILES_BESIDE;
    if (files.rlim_max != RLIM_INFINITY && files.rlim_max < (rlim_t)need) {
        return fault_set(fault, ERR_LIMIT,
                         "raise it (ulimit -n), or lower --sglang-server-concurrency",
                         "at most %lld files may be open here, and this run needs about %lld",
                         (long long)files.rlim_max, (long long)need);
    }
    return ERR_OK;
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
    err = err ? err : check_pairs(flags, fault);
    err = err ? err : fill_loss(plan, fault);
    err = err ? err : fill_fleet(plan, fault);
    err = err ? err : inflight_flags_fill(flags, &plan->config, fault);
    err = err ? err : fill_names(plan, kind, fault);
    err = err ? err : delta_flags_fill(flags, &plan->config, fault);
    err = err ? err : check_places(plan, fault);
    err = err ? err : check_data(plan, fault);
    err = err ? err : fill_sampling(plan, fault);
    err = err ? err : check_model(plan, &bytes, fault);
    err = err ? err : check_tokens(plan, fault);
    err = err ? err : check_other_models(plan, fault);
    err = err ? err : check_room(plan, bytes, fault);
    err = err ? err : check_files(plan, fault);
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
