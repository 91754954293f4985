/* Sizes come from the other side: each is bounded and added up before anything is read. Numbers
 * are little-endian, which is this machine's order (checked below), so tails are used in place. */
#include "core/train/trainer_wire.h"

#include "core/base/mem.h"
#include "core/train/frame.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tails are used in place");

static const char *const estimator_names[] = {
    "grpo", "gspo", "cispo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", NULL};
static const char *const kl_names[] = {"k1", "k2", "k3", "low_var_kl", NULL};
static const char *const loss_names[] = {"policy_loss", "sft_loss", NULL};

const char *const *trainer_estimator_names(void)
{
    return estimator_names;
}

const char *const *trainer_kl_names(void)
{
    return kl_names;
}

const char *const *trainer_loss_names(void)
{
    return loss_names;
}

/* ---- configuration: one table for both ways ---- */

typedef enum WireType { WIRE_DOUBLE, WIRE_BOOL, WIRE_INT, WIRE_I64, WIRE_NAME } WireType;
typedef struct WireField {
    const char *name;
    WireType type;
    size_t offset;
    const char *const *names; /* of an enum */
} WireField;

#define CONFIG_FIELD(name, type, member) {name, type, offsetof(TrainerConfig, member), NULL}
#define CONFIG_ENUM(name, member, names) {name, WIRE_NAME, offsetof(TrainerConfig, member), names}
static const WireField config_fields[] = {
    CONFIG_ENUM("advantage_estimator", loss.estimator, estimator_names),
    CONFIG_ENUM("loss_type", loss.loss_type, loss_names),
    CONFIG_FIELD("eps_clip", WIRE_DOUBLE, loss.eps_clip),
    CONFIG_FIELD("eps_clip_high", WIRE_DOUBLE, loss.eps_clip_high),
    CONFIG_FIELD("eps_clip_c", WIRE_DOUBLE, loss.eps_clip_c),
    CONFIG_FIELD("kl_coef", WIRE_DOUBLE, loss.kl_coef),
    CONFIG_FIELD("kl_loss_coef", WIRE_DOUBLE, loss.kl_loss_coef),
    CONFIG_FIELD("entropy_coef", WIRE_DOUBLE, loss.entropy_coef),
    CONFIG_FIELD("gamma", WIRE_DOUBLE, loss.gamma),
    CONFIG_FIELD("use_kl_loss", WIRE_BOOL, loss.use_kl_loss),
    CONFIG_FIELD("use_unbiased_kl", WIRE_BOOL, loss.use_unbiased_kl),
    CONFIG_FIELD("normalize_advantages", WIRE_BOOL, loss.normalize_advantages),
    CONFIG_ENUM("kl_loss_type", loss.kl_loss_type, kl_names),
    CONFIG_FIELD("rewards_normalization", WIRE_BOOL, loss.rewards_normalization),
    CONFIG_FIELD("grpo_std_normalization", WIRE_BOOL, loss.grpo_std_normalization),
    CONFIG_FIELD("calculate_per_token_loss", WIRE_BOOL, loss.calculate_per_token_loss),
    CONFIG_FIELD("use_rollout_logprobs", WIRE_BOOL, loss.use_rollout_logprobs),
    CONFIG_FIELD("use_tis", WIRE_BOOL, loss.use_tis),
    CONFIG_FIELD("use_icepop", WIRE_BOOL, loss.use_icepop),
    CONFIG_FIELD("opd_kl_coef", WIRE_DOUBLE, loss.opd_kl_coef),
    CONFIG_FIELD("tis_clip", WIRE_DOUBLE, loss.tis_clip),
    CONFIG_FIELD("tis_clip_low", WIRE_DOUBLE, loss.tis_clip_low),
    CONFIG_FIELD("use_opsm", WIRE_BOOL, loss.use_opsm),
    CONFIG_FIELD("opsm_delta", WIRE_DOUBLE, loss.opsm_delta),
    CONFIG_FIELD("rollout_temperature", WIRE_DOUBLE, loss.rollout_temperature),
    CONFIG_FIELD("n_samples_per_prompt", WIRE_INT, loss.n_samples_per_prompt),
    CONFIG_FIELD("rollout_batch_size", WIRE_INT, loss.rollout_batch_size),
    CONFIG_FIELD("lr", WIRE_DOUBLE, adam.lr),
    CONFIG_FIELD("adam_beta1", WIRE_DOUBLE, adam.beta1),
    CONFIG_FIELD("adam_beta2", WIRE_DOUBLE, adam.beta2),
    CONFIG_FIELD("adam_eps", WIRE_DOUBLE, adam.eps),
    CONFIG_FIELD("weight_decay", WIRE_DOUBLE, adam.weight_decay),
    CONFIG_FIELD("clip_grad", WIRE_DOUBLE, adam.clip_grad),
    CONFIG_FIELD("decay_1d", WIRE_BOOL, adam.decay_1d),
    CONFIG_FIELD("threads", WIRE_INT, threads),
    CONFIG_FIELD("global_batch_size", WIRE_I64, global_batch_size),
    CONFIG_FIELD("max_tokens_per_pass", WIRE_INT, max_tokens_per_pass),
    CONFIG_FIELD("bf16_weights", WIRE_BOOL, bf16_weights),
};
enum { CONFIG_FIELDS = sizeof config_fields / sizeof *config_fields };

static void field_put(JsonOut *out, const WireField *field, const TrainerConfig *config)
{
    const void *at = (const char *)config + field->offset;
    json_key(out, field->name);
    switch (field->type) {
    case WIRE_DOUBLE:
        json_put_double(out, *(const double *)at);
        break;
    case WIRE_BOOL:
        json_put_bool(out, *(const bool *)at);
        break;
    case WIRE_INT:
        json_put_i64(out, *(const int *)at);
        break;
    case WIRE_I64:
        json_put_i64(out, *(const int64_t *)at);
        break;
    case WIRE_NAME:
        json_put_string(out, field->names[*(const unsigned *)at]);
        break;
    }
}

void wire_config_put(JsonOut *out, const TrainerConfig *config)
{
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)config->seed);
    json_object_begin(out);
    json_member_string(out, "load_dir", config->load_dir);
    json_member_string(out, "ref_dir", config->ref_dir);
    json_member_string(out, "teacher_dir", config->teacher_dir);
    json_member_string(out, "dump_dir", config->dump_dir);
    json_member_string(out, "seed", seed);
    for (size_t i = 0; i < CONFIG_FIELDS; i++) {
        field_put(out, &config_fields[i], config);
    }
    json_object_end(out);
}

static bool enum_get(const WireField *field, const char *name, void *at)
{
    for (unsigned i = 0; name && field->names[i]; i++) {
        if (strcmp(field->names[i], name) == 0) {
            memcpy(at, &i, sizeof i);
            return true;
        }
    }
    return false;
}

static bool field_get(const WireField *field, const cJSON *value, TrainerConfig *config)
{
    void *at = (char *)config + field->offset;
    bool is_number = cJSON_IsNumber(value);
    double number = is_number ? value->valuedouble : 0.0;
    bool integral = is_number && number > -9e15 && number < 9e15 &&
                    number == (double)(int64_t)number;
    switch (field->type) {
    case WIRE_DOUBLE:
        *(double *)at = number;
        return is_number;
    case WIRE_BOOL:
        *(bool *)at = cJSON_IsTrue(value);
        return cJSON_IsBool(value);
    case WIRE_INT:
        if (!integral || number < -2147483648.0 || number > 2147483647.0) {
            return false;
        }
        *(int *)at = (int)number;
        return true;
    case WIRE_I64:
        *(int64_t *)at = integral ? (int64_t)number : 0;
        return integral;
    case WIRE_NAME:
        return enum_get(field, cJSON_GetStringValue(value), at);
    }
    return false;
}

static const WireField *field_find(const char *name)
{
    for (size_t i = 0; i < CONFIG_FIELDS; i++) {
        if (strcmp(config_fields[i].name, name) == 0) {
            return &config_fields[i];
        }
    }
    return NULL;
}

/* Directories and the seed, which the table cannot hold. */
static bool member_get(WireConfig *out, const char *name, const cJSON *value, bool *known)
{
    char **dir = strcmp(name, "load_dir") == 0      ? &out->load_dir
                 : strcmp(name, "ref_dir") == 0     ? &out->ref_dir
                 : strcmp(name, "teacher_dir") == 0 ? &out->teacher_dir
                 : strcmp(name, "dump_dir") == 0    ? &out->dump_dir
                                                    : NULL;
    *known = true;
    if (dir) {
        free(*dir);
        *dir = cJSON_IsString(value) ? xstrdup(value->valuestring) : NULL;
        return *dir || cJSON_IsNull(value);
    }
    if (strcmp(name, "seed") == 0) {
        return cJSON_IsString(value) &&
               str_to_u64(str_from(value->valuestring), &out->config.seed);
    }
    *known = false;
    return false;
}

TrainerConfig trainer_config_default(void)
{
    return (TrainerConfig){
        .loss = loss_config_default(),
        /* lr and clip_grad are slime's, the rest Megatron's */
        .adam = {.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01,
                 .clip_grad = 1.0},
        .threads = 1,
        .max_tokens_per_pass = 4096,
        .seed = 1234,
    };
}

Err wire_config_get(const cJSON *object, WireConfig *out, Fault *fault)
{
    *out = (WireConfig){.config = trainer_config_default()};
    const cJSON *value;
    cJSON_ArrayForEach(value, object)
    {
        bool known = false;
        bool good = member_get(out, value->string, value, &known);
        const WireField *field = known ? NULL : field_find(value->string);
        if (field) {
            good = field_get(field, value, &out->config);
        } else if (!known) {
            return fault_set(fault, ERR_UNSUPPORTED, "use a core and a trainer of one version",
                             "the trainer does not know the setting \"%s\"", value->string);
        }
        if (!good) {
            return fault_set(fault, ERR_FORMAT, "use a core and a trainer of one version",
                             "the setting \"%s\" has a value of the wrong kind", value->string);
        }
    }
    out->config.load_dir = out->load_dir;
    out->config.ref_dir = out->ref_dir;
    out->config.teacher_dir = out->teacher_dir;
    out->config.dump_dir = out->dump_dir;
    return ERR_OK;
}

void wire_config_free(WireConfig *wire)
{
    free(wire->load_dir);
    free(wire->ref_dir);
    free(wire->teacher_dir);
    free(wire->dump_dir);
    *wire = (WireConfig){0};
}

/* ---- tails ---- */

typedef struct Cursor { /* over a tail, in the order that the head names */
    const unsigned char *p;
    size_t left;
} Cursor;

static const void *cursor_take(Cursor *cursor, size_t count, size_t size)
{
    size_t bytes;
    if (!size_mul(count, size, &bytes) || bytes > cursor->left) {
        return NULL;
    }
    const void *at = cursor->p;
    cursor->p += bytes;
    cursor->left -= bytes;
    return at;
}

static void append(unsigned char **at, const void *bytes, size_t n)
{
    if (n > 0) {
        memcpy(*at, bytes, n);
    }
    *at += n;
}

static Err batch_check(const TrainSample *samples, size_t count, size_t *tokens, size_t *responses,
                       Fault *fault)
{
    *tokens = 0;
    *responses = 0;
    if (count == 0 || count > TRAINER_SAMPLES_MAX) {
        return fault_set(fault, ERR_ARG, "send between 1 and 1048576 samples",
                         "a training batch has %zu samples", count);
    }
    for (size_t i = 0; i < count; i++) {
        const TrainSample *s = &samples[i];
        if (s->prompt_count == 0 || s->response_count == 0) {
            return fault_set(fault, ERR_ARG, "samples need a prompt and a response to be trained",
                             "sample %zu has %zu prompt and %zu response tokens", i,
                             s->prompt_count, s->response_count);
        }
        if (!s->rollout_logp != !samples[0].rollout_logp) {
            return fault_set(fault, ERR_ARG, "generate all samples with log-probs, or none",
                             "sample %zu %s log-probs of the engine, unlike sample 0", i,
                             s->rollout_logp ? "has" : "lacks");
        }
        *tokens += s->prompt_count + s->response_count;
        *responses += s->response_count;
        if (*tokens > FRAME_TAIL_MAX / 16) {
            return fault_set(fault, ERR_LIMIT, "lower --rollout-batch-size",
                             "a training batch is over %zu tokens", FRAME_TAIL_MAX / 16);
        }
    }
    return ERR_OK;
}

Err wire_batch_put(const TrainSample *samples, size_t count, JsonOut *head, unsigned char **tail,
                   size_t *tail_n, Fault *fault)
{
    size_t tokens;
    size_t responses;
    Err err = batch_check(samples, count, &tokens, &responses, fault);
    if (err) {
        return err;
    }
    bool has_logp = samples[0].rollout_logp != NULL;
    bool has_mask = false;
    for (size_t i = 0; i < count; i++) {
        has_mask = has_mask || samples[i].mask;
    }
    json_member_i64(head, "samples", (int64_t)count);
    json_member_i64(head, "tokens", (int64_t)tokens);
    json_member_i64(head, "responses", (int64_t)responses);
    json_member_bool(head, "has_rollout_logp", has_logp);
    json_member_bool(head, "has_mask", has_mask);
    size_t n = count * 24 + tokens * 4 + (has_logp ? responses * 4 : 0);
    n += has_mask ? responses : 0;
    unsigned char *at = xcalloc(n, 1);
    *tail = at;
    *tail_n = n;
    for (size_t i = 0; i < count; i++) {
        append(&at, &samples[i].rollout_id, 8);
    }
    for (size_t i = 0; i < count; i++) {
        append(&at, &samples[i].reward, 8);
    }
    for (size_t i = 0; i < count; i++) {
        int32_t counts = (int32_t)samples[i].prompt_count;
        append(&at, &counts, 4);
    }
    for (size_t i = 0; i < count; i++) {
        int32_t counts = (int32_t)samples[i].response_count;
        append(&at, &counts, 4);
    }
    for (size_t i = 0; i < count; i++) {
        append(&at, samples[i].tokens, 4 * (samples[i].prompt_count + samples[i].response_count));
    }
    for (size_t i = 0; i < count && has_logp; i++) {
        append(&at, samples[i].rollout_logp, 4 * samples[i].response_count);
    }
    for (size_t i = 0; i < count && has_mask; i++) {
        if (samples[i].mask) {
            append(&at, samples[i].mask, samples[i].response_count);
        } else {
            memset(at, 1, samples[i].response_count);
            at += samples[i].response_count;
        }
    }
    return ERR_OK;
}

static Err tail_wrong(Fault *fault)
{
    return fault_set(fault, ERR_FORMAT, "the peer does not speak the trainer protocol",
                     "the tail of a frame does not hold what its head says");
}

/* Reads a count of the head; false when it is absent or out of bounds. */
static bool head_count(const cJSON *head, const char *name, size_t max, size_t *out)
{
    int64_t n = json_i64(head, name, -1);
    *out = n > 0 ? (size_t)n : 0;
    return n > 0 && (uint64_t)n <= max;
}

Err wire_batch_get(const cJSON *head, const unsigned char *tail, size_t tail_n, WireBatch *out,
                   Fault *fault)
{
    *out = (WireBatch){0};
    size_t count;
    size_t tokens;
    size_t responses;
    if (!head_count(head, "samples", TRAINER_SAMPLES_MAX, &count) ||
        !head_count(head, "tokens", FRAME_TAIL_MAX, &tokens) ||
        !head_count(head, "responses", FRAME_TAIL_MAX, &responses)) {
        return tail_wrong(fault);
    }
    bool has_logp = json_bool(head, "has_rollout_logp", false);
    bool has_mask = json_bool(head, "has_mask", false);
    Cursor cursor = {tail, tail_n};
    const int64_t *ids = cursor_take(&cursor, count, 8);
    const double *rewards = cursor_take(&cursor, count, 8);
    const int32_t *prompts = cursor_take(&cursor, count, 4);
    const int32_t *answers = cursor_take(&cursor, count, 4);
    const int32_t *ids_of_tokens = cursor_take(&cursor, tokens, 4);
    const float *logp = has_logp ? cursor_take(&cursor, responses, 4) : NULL;
    const uint8_t *mask = has_mask ? cursor_take(&cursor, responses, 1) : NULL;
    if (!ids || !rewards || !prompts || !answers || !ids_of_tokens || (has_logp && !logp) ||
        (has_mask && !mask) || cursor.left != 0) {
        return tail_wrong(fault);
    }
    out->samples = xcalloc(count, sizeof *out->samples);
    out->count = count;
    size_t token = 0;
    size_t response = 0;
    for (size_t i = 0; i < count; i++) {
        if (prompts[i] <= 0 || answers[i] <= 0 ||
            (size_t)prompts[i] + (size_t)answers[i] > tokens - token ||
            (size_t)answers[i] > responses - response) {
            wire_batch_free(out);
            return tail_wrong(fault);
        }
        out->samples[i] = (TrainSample){
            .tokens = ids_of_tokens + token,
            .prompt_count = (size_t)prompts[i],
            .response_count = (size_t)answers[i],
            .rollout_logp = logp ? logp + response : NULL,
            .mask = mask ? mask + response : NULL,
            .reward = rewards[i],
            .rollout_id = ids[i],
        };
        token += (size_t)prompts[i] + (size_t)answers[i];
        response += (size_t)answers[i];
    }
    if (token != tokens || response != responses) {
        wire_batch_free(out);
        return tail_wrong(fault);
    }
    return ERR_OK;
}

void wire_batch_free(WireBatch *batch)
{
    free(batch->samples);
    *batch = (WireBatch){0};
}

Err wire_sequences_put(const int32_t *const *tokens, const size_t *counts, size_t count,
                       const uint8_t *const *masks, JsonOut *head, unsigned char **tail,
                       size_t *tail_n, Fault *fault)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (counts[i] == 0 || counts[i] > FRAME_TAIL_MAX / 16 ||
            total > FRAME_TAIL_MAX / 16 - counts[i]) {
            return fault_set(fault, ERR_ARG, "send sequences of at least one token",
                             "sequence %zu has %zu tokens", i, counts[i]);
        }
        total += counts[i];
    }
    if (count == 0 || count > TRAINER_SAMPLES_MAX) {
        return fault_set(fault, ERR_ARG, NULL, "a request has %zu sequences", count);
    }
    json_member_i64(head, "sequences", (int64_t)count);
    json_member_i64(head, "tokens", (int64_t)total);
    *tail_n = count * 4 + total * 4 + (masks ? total : 0);
    unsigned char *at = xcalloc(*tail_n, 1);
    *tail = at;
    for (size_t i = 0; i < count; i++) {
        int32_t n = (int32_t)counts[i];
        append(&at, &n, 4);
    }
    for (size_t i = 0; i < count; i++) {
        append(&at, tokens[i], 4 * counts[i]);
    }
    for (size_t i = 0; i < count && masks; i++) {
        append(&at, masks[i], counts[i]);
    }
    return ERR_OK;
}

Err wire_sequences_get(const cJSON *head, const unsigned char *tail, size_t tail_n, bool masked,
                       WireSequences *out, Fault *fault)
{
    *out = (WireSequences){0};
    size_t count;
    size_t total;
    if (!head_count(head, "sequences", TRAINER_SAMPLES_MAX, &count) ||
        !head_count(head, "tokens", FRAME_TAIL_MAX, &total)) {
        return tail_wrong(fault);
    }
    Cursor cursor = {tail, tail_n};
    const int32_t *counts = cursor_take(&cursor, count, 4);
    const int32_t *tokens = cursor_take(&cursor, total, 4);
    const uint8_t *masks = masked ? cursor_take(&cursor, total, 1) : NULL;
    if (!counts || !tokens || (masked && !masks) || cursor.left != 0) {
        return tail_wrong(fault);
    }
    out->tokens = xcalloc(count, sizeof *out->tokens);
    out->masks = masked ? xcalloc(count, sizeof *out->masks) : NULL;
    out->counts = xcalloc(count, sizeof *out->counts);
    out->count = count;
    out->total = total;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (counts[i] <= 0 || (size_t)counts[i] > total - at) {
            wire_sequences_free(out);
            return tail_wrong(fault);
        }
        out->tokens[i] = tokens + at;
        if (masked) {
            out->masks[i] = masks + at;
        }
        out->counts[i] = (size_t)counts[i];
        at += out->counts[i];
    }
    if (at != total) {
        wire_sequences_free(out);
        return tail_wrong(fault);
    }
    return ERR_OK;
}

void wire_sequences_free(WireSequences *sequences)
{
    free((void *)sequences->tokens);
    free((void *)sequences->masks);
    free(sequences->counts);
    *sequences = (WireSequences){0};
}
