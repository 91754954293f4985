/* Checkpoints, prompts, their lengths and rewards, and how samples are drawn. */
#include "core/app/run_plan_private.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/policy/artifact.h"
#include "core/rollout/reward.h"
#include "core/serve/engine_request.h"

#include <stdlib.h>
#include <string.h>

enum { STATES_AT_ONCE = 3 };

Err plan_model(RunPlan *plan, int64_t *bytes, Fault *fault)
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

Err plan_other_models(const RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    bool reference = f->use_kl_loss || f->kl_coef != 0.0;
    Err err = f->load ? check_other_model(plan, "load", f->load, fault) : ERR_OK;
    if (err == ERR_OK && reference) {
        err = check_other_model(plan, "ref-load", f->ref_load, fault);
    }
    if (err == ERR_OK && f->use_opd) {
        err = check_other_model(plan, "opd-teacher-load", f->opd_teacher_load, fault);
    }
    return err;
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

Err plan_data(RunPlan *plan, Fault *fault)
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
Err plan_tokens(RunPlan *plan, Fault *fault)
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

Err plan_sampling(RunPlan *plan, Fault *fault)
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
