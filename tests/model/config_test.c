#include "core/model/config.h"

#include "core/model/layout.h"
#include "tests/model/golden.h"

static char *dir;

static Err load(const char *json, ModelConfig *out, Fault *fault)
{
    char *path = fs_join(dir, "config.json");
    CHECK_I64(fs_write_atomic(path, json, strlen(json), NULL), ERR_OK);
    free(path);
    return model_config_load(dir, out, fault);
}

#define SIZES                                                                                     \
    "\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4,"                       \
    "\"intermediate_size\":96,\"vocab_size\":512"

static void golden_configs(void)
{
    ModelConfig config;
    char *path = golden_path("tied", "");
    CHECK_I64(model_config_load(path, &config, NULL), ERR_OK);
    CHECK_I64(config.arch, MODEL_QWEN3);
    CHECK_I64(config.layers, 2);
    CHECK_I64(config.head_dim, 16);
    CHECK_I64(config.kv_heads, 2);
    CHECK_NEAR(config.rope_theta, 1e6, 0);
    CHECK_NEAR(config.rms_eps, 1e-6, 1e-12);
    CHECK(config.tied);
    CHECK_I64(config.dtype, MODEL_F32);
    CHECK_I64(config.bos, 0);
    CHECK_I64(config.eos_count, 1);
    CHECK_I64(config.eos[0], 1);
    CHECK_I64(model_parameter_count(&config), 94592);
    free(path);
    path = golden_path("untied", "");
    CHECK_I64(model_config_load(path, &config, NULL), ERR_OK);
    CHECK_I64(config.head_dim, 32);
    CHECK_NEAR(config.rope_theta, 1e6, 0); /* in rope_parameters */
    CHECK(!config.tied);
    CHECK_I64(model_parameter_count(&config), 90992);
    free(path);
}

static void llama_defaults(void)
{
    ModelConfig config;
    CHECK_I64(load("{\"model_type\":\"llama\"," SIZES ",\"torch_dtype\":\"bfloat16\","
                   "\"eos_token_id\":[2,5,null,2]}",
                   &config, NULL),
              ERR_OK);
    CHECK_I64(config.arch, MODEL_LLAMA);
    CHECK_I64(config.head_dim, 16);
    CHECK_I64(config.kv_heads, 4);
    CHECK_NEAR(config.rope_theta, 10000.0, 0);
    CHECK_I64(config.dtype, MODEL_BF16);
    CHECK_I64(config.bos, -1);
    CHECK_I64(config.eos_count, 2);
    CHECK_I64(model_tensor_count(&config), 2 + 1 + 2 * 9);
    CHECK_I64(layout_layer(&config, 1, LT_Q_NORM), -1);
    ModelTensorSpec spec;
    model_tensor_spec(&config, layout_layer(&config, 1, LT_DOWN), &spec);
    CHECK_STR(spec.name, "model.layers.1.mlp.down_proj.weight");
    CHECK_I64(spec.shape[0], 64);
    CHECK_I64(spec.shape[1], 96);
    model_tensor_spec(&config, layout_head(&config), &spec);
    CHECK_STR(spec.name, "lm_head.weight");
    char *path = fs_join(dir, "generation_config.json");
    static const char more[] = "{\"eos_token_id\":[7,2],\"bos_token_id\":3}";
    CHECK_I64(fs_write_atomic(path, more, strlen(more), NULL), ERR_OK);
    CHECK_I64(model_config_load(dir, &config, NULL), ERR_OK);
    CHECK_I64(config.eos_count, 3);
    CHECK_I64(config.eos[2], 7);
    CHECK_I64(config.bos, 3);
    CHECK_I64(remove(path), 0);
    free(path);
}

static char *saved(void)
{
    char *path = fs_join(dir, "config.json");
    Text text;
    text_init(&text, 1 << 16);
    CHECK_I64(fs_read(path, &text, NULL), ERR_OK);
    free(path);
    return text_take(&text);
}

static void round_trip(void)
{
    for (int m = 0; m < 2; m++) {
        ModelConfig a;
        ModelConfig b;
        char *path = golden_path(golden_models[m], "");
        CHECK_I64(model_config_load(path, &a, NULL), ERR_OK);
        a.arch = m == 0 ? MODEL_QWEN3 : MODEL_LLAMA;
        a.dtype = m == 0 ? MODEL_BF16 : MODEL_F32;
        a.eos[a.eos_count++] = 17;
        CHECK_I64(model_config_save(&a, dir, NULL), ERR_OK);
        CHECK_I64(model_config_load(dir, &b, NULL), ERR_OK);
        char *first = saved();
        CHECK_I64(model_config_save(&b, dir, NULL), ERR_OK);
        char *second = saved();
        CHECK_STR(first, second);
        CHECK_I64(b.eos_count, 2);
        CHECK_I64(b.dtype, a.dtype);
        CHECK_I64(b.kv_heads, 2);
        free(first);
        free(second);
        free(path);
    }
}

static void refuses_by_name(void)
{
    static const struct {
        const char *json;
        Err err;
        const char *names;
    } cases[] = {
        {"{\"model_type\":\"mamba\"," SIZES "}", ERR_UNSUPPORTED, "model_type"},
        {"{" SIZES "}", ERR_UNSUPPORTED, "model_type"},
        {"{\"model_type\":\"llama\"," SIZES ",\"attention_bias\":true}", ERR_UNSUPPORTED,
         "attention_bias"},
        {"{\"model_type\":\"llama\"," SIZES ",\"mlp_bias\":true}", ERR_UNSUPPORTED, "mlp_bias"},
        {"{\"model_type\":\"llama\"," SIZES ",\"hidden_act\":\"gelu\"}", ERR_UNSUPPORTED,
         "hidden_act"},
        {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"rope_type\":\"yarn\"}}",
         ERR_UNSUPPORTED, "yarn"},
        {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"linear\"}}",
         ERR_UNSUPPORTED, "linear"},
        {"{\"model_type\":\"qwen3\"," SIZES ",\"use_sliding_window\":true}", ERR_UNSUPPORTED,
         "use_sliding_window"},
        {"{\"model_type\":\"llama\"," SIZES ",\"num_key_value_heads\":3}", ERR_FORMAT,
         "num_key_value_heads"},
        {"{\"model_type\":\"llama\"," SIZES ",\"head_dim\":15}", ERR_FORMAT, "head_dim"},
        {"{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":-1}", ERR_FORMAT, "rms_norm_eps"},
        {"{\"model_type\":\"llama\"," SIZES ",\"rope_theta\":0}", ERR_FORMAT, "rope_theta"},
        {"{\"model_type\":\"llama\"," SIZES ",\"dtype\":\"float8\"}", ERR_UNSUPPORTED, "dtype"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":2}", ERR_FORMAT, "hidden_size"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":1e12}", ERR_FORMAT,
         "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":2.5}", ERR_FORMAT, "num_hidden_layers"},
        {"{\"model_type\":\"llama\"," SIZES ",\"eos_token_id\":9999}", ERR_FORMAT,
         "config.json: \"eos_token_id\" is no token of a vocabulary of"},
        {"{\"model_type\":\"llama\"," SIZES ",\"eos_token_id\":[2,-1]}", ERR_FORMAT,
         "eos_token_id"},
        {"{\"model_type\":\"llama\"," SIZES ",\"eos_token_id\":2.5}", ERR_FORMAT,
         "eos_token_id"},
        {"{\"model_type\":\"llama\"," SIZES ",\"eos_token_id\":\"</s>\"}", ERR_FORMAT,
         "eos_token_id"},
        {"{\"model_type\":\"llama\"," SIZES ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}",
         ERR_LIMIT, "eos_token_id"},
        {"{\"model_type\":\"llama\"," SIZES ",\"bos_token_id\":9999}", ERR_FORMAT,
         "bos_token_id"},
        {"[1]", ERR_FORMAT, "config.json"},
        {"{", ERR_FORMAT, "config.json"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ModelConfig config;
        Fault fault = {0};
        CHECK_I64(load(cases[i].json, &config, &fault), cases[i].err);
        if (strstr(fault.sentence, cases[i].names) == NULL) {
            CHECK_STR(fault.sentence, cases[i].names);
        }
    }
    ModelConfig config;
    Fault fault = {0};
    CHECK(model_config_load("/nonexistent-rolltop", &config, &fault) != ERR_OK);
    CHECK(strstr(fault.sentence, "/nonexistent-rolltop") != NULL);
    /* The same in the file that adds to it. */
    char *path = fs_join(dir, "generation_config.json");
    static const char more[] = "{\"eos_token_id\":9999}";
    fault_clear(&fault);
    CHECK_I64(fs_write_atomic(path, more, strlen(more), NULL), ERR_OK);
    CHECK_I64(load("{\"model_type\":\"llama\"," SIZES "}", &config, &fault), ERR_FORMAT);
    CHECK(strstr(fault.sentence, path) != NULL);
    CHECK_I64(remove(path), 0);
    free(path);
}

int main(void)
{
    dir = golden_temp();
    RUN(golden_configs);
    RUN(llama_defaults);
    RUN(round_trip);
    RUN(refuses_by_name);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    free(dir);
    return test_end();
}
