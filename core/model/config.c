#include "core/model/config.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/model/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bounds that no published model of these architectures reaches; sizes are products of them. */
enum {
    CONFIG_BYTES_MAX = 1 << 20,
    CONFIG_LAYERS_MAX = 512,
    CONFIG_WIDTH_MAX = 1 << 17,
    CONFIG_HEADS_MAX = 1024,
    CONFIG_HEAD_DIM_MAX = 1024,
    CONFIG_VOCAB_MAX = 1 << 21,
    CONFIG_POSITIONS_MAX = 1 << 24
};

typedef struct ConfigReader {
    const cJSON *root;
    const char *path;
    Fault *fault;
    Err err;
} ConfigReader;

static void config_bad(ConfigReader *reader, Err err, const char *key, const char *what)
{
    if (reader->err == ERR_OK) {
        reader->err = fault_set(reader->fault, err, "Use a Qwen3 or Llama checkpoint directory",
                                "%s: \"%s\" %s", reader->path, key, what);
    }
}

/* An integer in [1, max]; `fallback` where the key is absent or null, 0 there: required. */
static int config_int(ConfigReader *reader, const char *key, int max, int fallback)
{
    const cJSON *item = json_get(reader->root, key);
    if (item == NULL || cJSON_IsNull(item)) {
        if (fallback == 0) {
            config_bad(reader, ERR_FORMAT, key, "is missing");
        }
        return fallback;
    }
    const double value = cJSON_IsNumber(item) ? item->valuedouble : -1.0;
    if (!(value >= 1.0 && value <= (double)max) || value != floor(value)) {
        config_bad(reader, ERR_FORMAT, key, "is not a whole number in the range of such models");
        return 1;
    }
    return (int)value;
}

static void config_refuse_true(ConfigReader *reader, const char *key)
{
    if (json_bool(reader->root, key, false)) {
        config_bad(reader, ERR_UNSUPPORTED, key, "is true, which rolltop does not compute");
    }
}

static void config_read_arch(ConfigReader *reader, ModelConfig *out)
{
    const char *type = json_string(reader->root, "model_type", "");
    if (strcmp(type, "qwen3") == 0) {
        out->arch = MODEL_QWEN3;
    } else if (strcmp(type, "llama") == 0) {
        out->arch = MODEL_LLAMA;
    } else {
        config_bad(reader, ERR_UNSUPPORTED, "model_type", "is neither qwen3 nor llama");
    }
    const char *act = json_string(reader->root, "hidden_act", "silu");
    if (strcmp(act, "silu") != 0) {
        config_bad(reader, ERR_UNSUPPORTED, "hidden_act", "is not silu");
    }
    out->attention_bias = json_bool(reader->root, "attention_bias", false);
    config_refuse_true(reader, "attention_bias");
    config_refuse_true(reader, "mlp_bias");
    config_refuse_true(reader, "use_sliding_window");
}

static void config_read_sizes(ConfigReader *reader, ModelConfig *out)
{
    out->layers = config_int(reader, "num_hidden_layers", CONFIG_LAYERS_MAX, 0);
    out->hidden = config_int(reader, "hidden_size", CONFIG_WIDTH_MAX, 0);
    out->heads = config_int(reader, "num_attention_heads", CONFIG_HEADS_MAX, 0);
    out->kv_heads = config_int(reader, "num_key_value_heads", CONFIG_HEADS_MAX, out->heads);
    out->ffn = config_int(reader, "intermediate_size", CONFIG_WIDTH_MAX, 0);
    out->vocab = config_int(reader, "vocab_size", CONFIG_VOCAB_MAX, 0);
    out->max_positions =
        config_int(reader, "max_position_embeddings", CONFIG_POSITIONS_MAX, 2048);
    if (reader->err != ERR_OK) {
        return;
    }
    /* transformers' own defaults: Qwen3 has 128 of its own, Llama divides. */
    const int divided = out->hidden / out->heads > 0 ? out->hidden / out->heads : 1;
    out->head_dim = config_int(reader, "head_dim", CONFIG_HEAD_DIM_MAX,
                               out->arch == MODEL_QWEN3 ? 128 : divided);
    if (out->head_dim % 2 != 0) {
        config_bad(reader, ERR_FORMAT, "head_dim", "is odd, so that it has no rotary halves");
    }
    if (out->heads % out->kv_heads != 0) {
        config_bad(reader, ERR_FORMAT, "num_key_value_heads", "does not divide the heads");
    }
    if ((int64_t)out->heads * out->head_dim > CONFIG_WIDTH_MAX) {
        config_bad(reader, ERR_FORMAT, "head_dim", "times the heads is out of range");
    }
}

static void config_read_rope(ConfigReader *reader, ModelConfig *out)
{
    const cJSON *scaling = json_get(reader->root, "rope_scaling");
    const cJSON *parameters = json_get(reader->root, "rope_parameters");
    const cJSON *both[2] = {scaling, parameters};
    for (int i = 0; i < 2; i++) {
        const char *type = json_string(both[i], "rope_type", json_string(both[i], "type", NULL));
        if (type != NULL && strcmp(type, "default") != 0) {
            char what[96];
            (void)str_format(what, sizeof(what), "is \"%.40s\"; only \"default\" is computed",
                             type);
            config_bad(reader, ERR_UNSUPPORTED, i == 0 ? "rope_scaling" : "rope_parameters", what);
        }
    }
    out->rope_theta = json_double(parameters, "rope_theta",
                                  json_double(reader->root, "rope_theta", 10000.0));
    if (!(out->rope_theta >= 1.0 && out->rope_theta < 1e15)) {
        config_bad(reader, ERR_FORMAT, "rope_theta", "is out of range");
    }
}

static void config_read_numbers(ConfigReader *reader, ModelConfig *out)
{
    const double eps = json_double(reader->root, "rms_norm_eps", 1e-6);
    if (!(eps > 0.0 && eps < 1.0)) {
        config_bad(reader, ERR_FORMAT, "rms_norm_eps", "is out of range");
    }
    out->rms_eps = (float)eps;
    out->tied = json_bool(reader->root, "tie_word_embeddings", false);
    const char *key = cJSON_IsString(json_get(reader->root, "dtype")) ? "dtype" : "torch_dtype";
    const char *dtype = json_string(reader->root, key, "float32");
    if (strcmp(dtype, "float32") == 0) {
        out->dtype = MODEL_F32;
    } else if (strcmp(dtype, "bfloat16") == 0) {
        out->dtype = MODEL_BF16;
    } else if (strcmp(dtype, "float16") == 0) {
        out->dtype = MODEL_F16;
    } else {
        config_bad(reader, ERR_UNSUPPORTED, key, "is not float32, bfloat16 or float16");
    }
}

/* A token of the vocabulary; -1 for null and for nothing. Another id could never be drawn: an
 * answer that was to end with it would run on to its length. */
static int config_token(ConfigReader *reader, const char *key, const cJSON *item, int vocab)
{
    const double id = cJSON_IsNumber(item) ? item->valuedouble : -1.0;
    if (item == NULL || cJSON_IsNull(item)) {
        return -1;
    }
    if (!(id >= 0 && id < vocab) || id != floor(id)) {
        char what[96];
        (void)str_format(what, sizeof what, "is no token of a vocabulary of %d; write one, or null",
                         vocab);
        config_bad(reader, ERR_FORMAT, key, what);
        return -1;
    }
    return (int)id;
}

static void config_add_eos(ConfigReader *reader, ModelConfig *out, const cJSON *item)
{
    const int id = config_token(reader, "eos_token_id", item, out->vocab);
    if (id < 0) {
        return;
    }
    for (int i = 0; i < out->eos_count; i++) {
        if (out->eos[i] == id) {
            return;
        }
    }
    if (out->eos_count == MODEL_EOS_MAX) {
        config_bad(reader, ERR_LIMIT, "eos_token_id", "lists more tokens than are taken (8)");
        return;
    }
    out->eos[out->eos_count++] = id;
}

static void config_read_ids(ConfigReader *reader, ModelConfig *out)
{
    const cJSON *eos = json_get(reader->root, "eos_token_id");
    if (cJSON_IsArray(eos)) {
        const cJSON *item;
        cJSON_ArrayForEach(item, eos)
        {
            config_add_eos(reader, out, item);
        }
    } else {
        config_add_eos(reader, out, eos);
    }
    const cJSON *bos = json_get(reader->root, "bos_token_id");
    out->bos = out->bos >= 0 ? out->bos : config_token(reader, "bos_token_id", bos, out->vocab);
}

static Err config_parse(const char *path, cJSON **out, Fault *fault)
{
    Text text;
    text_init(&text, CONFIG_BYTES_MAX);
    Err err = fs_read(path, &text, fault);
    if (err == ERR_OK) {
        err = json_parse(text_str(&text), CONFIG_BYTES_MAX, path, out, fault);
    }
    text_free(&text);
    if (err == ERR_OK && !cJSON_IsObject(*out)) {
        err = fault_set(fault, ERR_FORMAT, "Restore the file", "%s is not a JSON object", path);
    }
    return err;
}

Err model_config_load(const char *dir, ModelConfig *out, Fault *fault)
{
    *out = (ModelConfig){.bos = -1};
    char *path = fs_join(dir, "config.json");
    char *more = fs_join(dir, "generation_config.json");
    cJSON *root = NULL;
    cJSON *generation = NULL;
    Err err = config_parse(path, &root, fault);
    if (err != ERR_OK) {
        goto done;
    }
    ConfigReader reader = {.root = root, .path = path, .fault = fault, .err = ERR_OK};
    config_read_arch(&reader, out);
    config_read_sizes(&reader, out);
    config_read_rope(&reader, out);
    config_read_numbers(&reader, out);
    err = reader.err;
    if (err != ERR_OK) {
        goto done;
    }
    config_read_ids(&reader, out);
    err = reader.err;
    if (err == ERR_OK && fs_exists(more)) {
        err = config_parse(more, &generation, fault);
        reader.root = generation;
        reader.path = more;
        if (err == ERR_OK) {
            config_read_ids(&reader, out);
            err = reader.err;
        }
    }
done:
    cJSON_Delete(generation);
    cJSON_Delete(root);
    free(more);
    free(path);
    return err;
}

static const char *config_dtype(ModelDtype dtype)
{
    switch (dtype) {
    case MODEL_F32:
        return "float32";
    case MODEL_BF16:
        return "bfloat16";
    case MODEL_F16:
        return "float16";
    }
    return "float32";
}

static void config_write_ids(JsonOut *out, const ModelConfig *config)
{
    json_key(out, "bos_token_id");
    if (config->bos >= 0) {
        json_put_i64(out, config->bos);
    } else {
        json_put_null(out);
    }
    json_key(out, "eos_token_id");
    if (config->eos_count == 0) {
        json_put_null(out);
    } else if (config->eos_count == 1) {
        json_put_i64(out, config->eos[0]);
    } else {
        json_array_begin(out);
        for (int i = 0; i < config->eos_count; i++) {
            json_put_i64(out, config->eos[i]);
        }
        json_array_end(out);
    }
}

static void config_write(JsonOut *out, const ModelConfig *config)
{
    const bool qwen = config->arch == MODEL_QWEN3;
    json_object_begin(out);
    json_key(out, "architectures");
    json_array_begin(out);
    json_put_string(out, qwen ? "Qwen3ForCausalLM" : "LlamaForCausalLM");
    json_array_end(out);
    json_member_string(out, "model_type", qwen ? "qwen3" : "llama");
    json_member_string(out, "hidden_act", "silu");
    json_member_bool(out, "attention_bias", false);
    json_member_double(out, "attention_dropout", 0.0);
    if (!qwen) {
        json_member_bool(out, "mlp_bias", false);
    }
    json_member_i64(out, "num_hidden_layers", config->layers);
    json_member_i64(out, "hidden_size", config->hidden);
    json_member_i64(out, "num_attention_heads", config->heads);
    json_member_i64(out, "num_key_value_heads", config->kv_heads);
    json_member_i64(out, "head_dim", config->head_dim);
    json_member_i64(out, "intermediate_size", config->ffn);
    json_member_i64(out, "vocab_size", config->vocab);
    json_member_i64(out, "max_position_embeddings", config->max_positions);
    json_key(out, "rms_norm_eps");
    json_put_float(out, config->rms_eps);
    json_member_double(out, "rope_theta", config->rope_theta);
    json_key(out, "rope_scaling");
    json_put_null(out);
    json_member_double(out, "initializer_range", 0.02);
    json_member_bool(out, "tie_word_embeddings", config->tied);
    json_member_string(out, "torch_dtype", config_dtype(config->dtype));
    json_member_bool(out, "use_cache", true);
    config_write_ids(out, config);
    json_object_end(out);
}

Err model_config_save(const ModelConfig *config, const char *dir, Fault *fault)
{
    Text text;
    text_init(&text, CONFIG_BYTES_MAX);
    JsonOut out;
    json_begin(&out, &text);
    config_write(&out, config);
    (void)text_add_char(&text, '\n');
    char *path = fs_join(dir, "config.json");
    const Err err = fs_write_atomic(path, text.p, text.n, fault);
    free(path);
    text_free(&text);
    return err;
}

/* ---- tensors ------------------------------------------------------------------------------ */

static int config_per_layer(const ModelConfig *config)
{
    return config->arch == MODEL_QWEN3 ? LT_COUNT : LT_COUNT - 2;
}

int model_tensor_count(const ModelConfig *config)
{
    return 2 + (config->tied ? 0 : 1) + config->layers * config_per_layer(config);
}

int64_t model_parameter_count(const ModelConfig *config)
{
    int64_t sum = 0;
    const int count = model_tensor_count(config);
    for (int i = 0; i < count; i++) {
        ModelTensorSpec spec;
        model_tensor_spec(config, i, &spec);
        sum += spec.shape[0] * (spec.rank == 2 ? spec.shape[1] : 1);
    }
    return sum;
}

static void config_spec(ModelTensorSpec *out, const char *name, int64_t rows, int64_t cols)
{
    *out = (ModelTensorSpec){.rank = cols > 0 ? 2 : 1, .shape = {rows, cols > 0 ? cols : 0}};
    (void)str_format(out->name, sizeof(out->name), "%s", name);
}

static void config_layer_spec(const ModelConfig *config, int layer, LayerTensor which,
                              ModelTensorSpec *out)
{
    const int64_t h = config->hidden;
    const int64_t q = (int64_t)config->heads * config->head_dim;
    const int64_t kv = (int64_t)config->kv_heads * config->head_dim;
    const struct {
        const char *name;
        int64_t rows, cols;
    } table[LT_COUNT] = {
        [LT_Q] = {"self_attn.q_proj", q, h},      [LT_K] = {"self_attn.k_proj", kv, h},
        [LT_V] = {"self_attn.v_proj", kv, h},     [LT_O] = {"self_attn.o_proj", h, q},
        [LT_Q_NORM] = {"self_attn.q_norm", config->head_dim, 0},
        [LT_K_NORM] = {"self_attn.k_norm", config->head_dim, 0},
        [LT_GATE] = {"mlp.gate_proj", config->ffn, h},
        [LT_UP] = {"mlp.up_proj", config->ffn, h},
        [LT_DOWN] = {"mlp.down_proj", h, config->ffn},
        [LT_IN_NORM] = {"input_layernorm", h, 0},
        [LT_POST_NORM] = {"post_attention_layernorm", h, 0},
    };
    char name[96];
    (void)str_format(name, sizeof(name), "model.layers.%d.%s.weight", layer, table[which].name);
    config_spec(out, name, table[which].rows, table[which].cols);
}

void model_tensor_spec(const ModelConfig *config, int index, ModelTensorSpec *out)
{
    const int per_layer = config_per_layer(config);
    const int behind = 1 + config->layers * per_layer;
    if (index == 0) {
        config_spec(out, "model.embed_tokens.weight", config->vocab, config->hidden);
    } else if (index < behind) {
        int which = (index - 1) % per_layer;
        if (config->arch == MODEL_LLAMA && which >= LT_Q_NORM) {
            which += 2; /* no q/k-norm */
        }
        config_layer_spec(config, (index - 1) / per_layer, (LayerTensor)which, out);
    } else if (index == behind) {
        config_spec(out, "model.norm.weight", config->hidden, 0);
    } else {
        config_spec(out, "lm_head.weight", config->vocab, config->hidden);
    }
}

int layout_layer(const ModelConfig *config, int layer, LayerTensor which)
{
    int at = (int)which;
    if (config->arch == MODEL_LLAMA && which >= LT_Q_NORM) {
        if (which <= LT_K_NORM) {
            return -1;
        }
        at -= 2;
    }
    return 1 + layer * config_per_layer(config) + at;
}

int layout_norm(const ModelConfig *config)
{
    return 1 + config->layers * config_per_layer(config);
}

int layout_head(const ModelConfig *config)
{
    return config->tied ? LAYOUT_EMBEDDING : layout_norm(config) + 1;
}

void layout_rope(const ModelConfig *config, int positions, float *cosine, float *sine)
{
    const int half = config->head_dim / 2;
    for (int i = 0; i < half; i++) {
        const double frequency =
            pow(config->rope_theta, -2.0 * (double)i / (double)config->head_dim);
        for (int t = 0; t < positions; t++) {
            const size_t at = (size_t)t * (size_t)half + (size_t)i;
            cosine[at] = (float)cos((double)t * frequency);
            sine[at] = (float)sin((double)t * frequency);
        }
    }
}
