#include "core/model/weights.h"

#include "core/model/digest.h"
#include "core/model/safetensors.h"
#include "core/model/weights_private.h"
#include "tests/model/golden.h"

#include <unistd.h>

enum { TENSORS_MAX = 64 };

/* A checkpoint directory with the golden model's tensors, to be damaged in one way. */
typedef struct Copy {
    char *dir;
    StFile *file;
    StWriteTensor tensors[TENSORS_MAX];
    void *data[TENSORS_MAX];
    size_t count;
} Copy;

static Copy copy_of(const char *model)
{
    Copy copy = {.dir = golden_temp()};
    char *path = golden_path(model, "model.safetensors");
    CHECK_I64(st_open(path, &copy.file, NULL), ERR_OK);
    free(path);
    for (size_t i = 0; i < st_count(copy.file); i++) {
        const StTensor *t = st_at(copy.file, i);
        void *data = xcalloc(t->bytes, 1);
        CHECK_I64(st_read_bytes(t, 0, t->bytes, data), ERR_OK);
        copy.data[copy.count] = data;
        copy.tensors[copy.count] = (StWriteTensor){
            .name = t->name, .dtype = t->dtype, .rank = t->rank, .data = data};
        memcpy(copy.tensors[copy.count++].shape, t->shape, sizeof(t->shape));
    }
    path = golden_path(model, "config.json");
    Text text;
    text_init(&text, 1 << 16);
    CHECK_I64(fs_read(path, &text, NULL), ERR_OK);
    free(path);
    path = fs_join(copy.dir, "config.json");
    CHECK_I64(fs_write_atomic(path, text.p, text.n, NULL), ERR_OK);
    free(path);
    text_free(&text);
    return copy;
}

static StWriteTensor *find(Copy *copy, const char *name)
{
    for (size_t i = 0; i < copy->count; i++) {
        if (strcmp(copy->tensors[i].name, name) == 0) {
            return &copy->tensors[i];
        }
    }
    CHECK_STR(name, "in the checkpoint");
    return &copy->tensors[0];
}

static Err reload(Copy *copy, Weights **out, Fault *fault)
{
    char *path = fs_join(copy->dir, "model.safetensors");
    CHECK_I64(st_write(path, copy->tensors, copy->count, NULL, NULL), ERR_OK);
    free(path);
    return weights_load(copy->dir, MODEL_F32, out, fault);
}

static void drop(Copy *copy)
{
    CHECK_I64(fs_remove_tree(copy->dir, NULL), ERR_OK);
    st_close(copy->file);
    for (int i = 0; i < TENSORS_MAX; i++) {
        free(copy->data[i]);
    }
    free(copy->dir);
}

static void digest_knows_content_only(void)
{
    Copy copy = copy_of("untied");
    char *path = golden_path("untied", "");
    Weights *original = NULL;
    Weights *again = NULL;
    CHECK_I64(weights_load(path, MODEL_F32, &original, NULL), ERR_OK);
    /* the other order in the file */
    for (size_t i = 0; i < copy.count / 2; i++) {
        const StWriteTensor t = copy.tensors[i];
        copy.tensors[i] = copy.tensors[copy.count - 1 - i];
        copy.tensors[copy.count - 1 - i] = t;
    }
    CHECK_I64(reload(&copy, &again, NULL), ERR_OK);
    CHECK_STR(weights_digest(again), weights_digest(original));
    CHECK_I64(strlen(weights_digest(again)), 32);
    StSet *set = NULL;
    char digest[DIGEST_TEXT];
    CHECK_I64(st_set_open(path, &set, NULL), ERR_OK);
    CHECK_I64(checkpoint_digest(set, weights_config(again), digest, NULL), ERR_OK);
    CHECK_STR(digest, weights_digest(original)); /* the trainer's side of the same identity */
    st_set_close(set);
    weights_unref(again);
    /* one bit */
    StWriteTensor *up = find(&copy, "model.layers.1.mlp.up_proj.weight");
    float *data = xcalloc(80 * 48, sizeof(float));
    memcpy(data, up->data, 80 * 48 * sizeof(float));
    data[77] = nextafterf(data[77], 9.0f);
    up->data = data;
    CHECK_I64(reload(&copy, &again, NULL), ERR_OK);
    CHECK(strcmp(weights_digest(again), weights_digest(original)) != 0);
    int different = 0;
    for (int i = 0; i < model_tensor_count(weights_config(again)); i++) {
        different += weights_tensor_hash(again, i) != weights_tensor_hash(original, i);
    }
    CHECK_I64(different, 1);
    weights_unref(again);
    weights_unref(original);
    free(data);
    free(path);
    drop(&copy);
}

static void refuses_a_bad_checkpoint(void)
{
    Weights *weights = NULL;
    Fault fault = {0};
    Copy copy = copy_of("tied");
    StWriteTensor *norm = find(&copy, "model.layers.1.self_attn.q_norm.weight");
    const StWriteTensor good = *norm;
    /* surplus */
    StWriteTensor stranger = good;
    stranger.name = "model.layers.7.self_attn.q_norm.weight";
    copy.tensors[copy.count++] = stranger;
    CHECK_I64(reload(&copy, &weights, &fault), ERR_FORMAT);
    CHECK(strstr(fault.sentence, stranger.name) != NULL);
    copy.count--;
    /* allowed surplus */
    StWriteTensor head = *find(&copy, "model.embed_tokens.weight");
    head.name = "lm_head.weight";
    copy.tensors[copy.count++] = head;
    CHECK_I64(reload(&copy, &weights, NULL), ERR_OK);
    weights_unref(weights);
    copy.count--;
    /* missing: another name in its place */
    fault_clear(&fault);
    norm->name = "model.layers.1.self_attn.q_nrm.weight";
    CHECK_I64(reload(&copy, &weights, &fault), ERR_FORMAT);
    CHECK(strstr(fault.sentence, good.name) != NULL);
    *norm = good;
    /* shape */
    fault_clear(&fault);
    norm->rank = 2;
    norm->shape[0] = 4;
    norm->shape[1] = 4;
    CHECK_I64(reload(&copy, &weights, &fault), ERR_FORMAT);
    CHECK(strstr(fault.sentence, good.name) != NULL && strstr(fault.sentence, "[16]") != NULL);
    *norm = good;
    /* type */
    fault_clear(&fault);
    norm->dtype = ST_I32;
    CHECK_I64(reload(&copy, &weights, &fault), ERR_UNSUPPORTED);
    CHECK(strstr(fault.sentence, "I32") != NULL);
    *norm = good;
    /* not finite, in a vector and in a matrix */
    float values[96 * 64];
    for (int i = 0; i < 2; i++) {
        StWriteTensor *bad = i == 0 ? norm : find(&copy, "model.layers.0.mlp.gate_proj.weight");
        const StWriteTensor before = *bad;
        const size_t n = i == 0 ? 16 : 96 * 64;
        memcpy(values, bad->data, n * sizeof(float));
        values[n - 1] = i == 0 ? NAN : INFINITY;
        bad->data = values;
        fault_clear(&fault);
        CHECK_I64(reload(&copy, &weights, &fault), ERR_NUMERIC);
        CHECK(strstr(fault.sentence, before.name) != NULL);
        *bad = before;
    }
    CHECK_I64(weights_load(copy.dir, MODEL_F16, &weights, NULL), ERR_UNSUPPORTED);
    CHECK(weights == NULL);
    drop(&copy);
}

/* A checkpoint that is cut short between its opening and its reading. */
static void cut_while_open(void)
{
    Copy copy = copy_of("untied");
    char *path = fs_join(copy.dir, "model.safetensors");
    CHECK_I64(st_write(path, copy.tensors, copy.count, NULL, NULL), ERR_OK);
    ModelConfig config;
    StSet *set = NULL;
    char digest[DIGEST_TEXT];
    Fault fault = {0};
    CHECK_I64(model_config_load(copy.dir, &config, NULL), ERR_OK);
    CHECK_I64(st_set_open(copy.dir, &set, NULL), ERR_OK);
    CHECK_I64(truncate(path, 9000), 0);
    CHECK_I64(checkpoint_digest(set, &config, digest, &fault), ERR_IO);
    CHECK(strstr(fault.sentence, "became shorter") != NULL);
    st_set_close(set);
    Weights *weights = NULL;
    CHECK_I64(weights_load(copy.dir, MODEL_F32, &weights, &fault), ERR_FORMAT);
    free(path);
    drop(&copy);
}

/* Packed rows give back the file's rows, in both types and for a vocabulary that fills no panel. */
static void packed_rows(void)
{
    const ModelConfig config = {.arch = MODEL_LLAMA, .layers = 1, .hidden = 20, .heads = 2,
                                .kv_heads = 1, .head_dim = 10, .ffn = 33, .vocab = 45,
                                .max_positions = 64, .rms_eps = 1e-5f, .rope_theta = 1e4,
                                .tied = true, .bos = -1};
    char *dir = golden_temp();
    CHECK_I64(weights_init_random(&config, 11, dir, NULL), ERR_OK);
    StSet *set = NULL;
    CHECK_I64(st_set_open(dir, &set, NULL), ERR_OK);
    const StTensor *tensor = st_set_find(set, "model.embed_tokens.weight");
    for (int half = 0; half < 2; half++) {
        Weights *weights = NULL;
        CHECK_I64(weights_load(dir, half ? MODEL_BF16 : MODEL_F32, &weights, NULL), ERR_OK);
        for (int row = 0; row < config.vocab; row++) {
            float expected[20];
            float got[20];
            CHECK_I64(st_read_f32(tensor, (size_t)row * 20, 20, expected), ERR_OK);
            packed_row(&weights->embedding, row, got);
            for (int i = 0; i < 20; i++) {
                CHECK_NEAR(got[i], half ? f32_from_bf16(bf16_from_f32(expected[i])) : expected[i],
                           0.0);
            }
        }
        weights_unref(weights);
    }
    st_set_close(set);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    free(dir);
}

static void init_is_seeded(void)
{
    ModelConfig config;
    char *golden = golden_path("tied", "");
    CHECK_I64(model_config_load(golden, &config, NULL), ERR_OK);
    char *dir = golden_temp();
    char digests[3][DIGEST_TEXT];
    static const uint64_t seeds[3] = {1, 1, 2};
    for (int i = 0; i < 3; i++) {
        Weights *weights = NULL;
        CHECK_I64(weights_init_random(&config, seeds[i], dir, NULL), ERR_OK);
        CHECK_I64(weights_load(dir, MODEL_F32, &weights, NULL), ERR_OK);
        memcpy(digests[i], weights_digest(weights), DIGEST_TEXT);
        Weights *more = weights_ref(weights);
        weights_unref(weights);
        CHECK_I64(weights_config(more)->vocab, 512);
        weights_unref(more);
    }
    CHECK_STR(digests[0], digests[1]);
    CHECK(strcmp(digests[0], digests[2]) != 0);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    free(dir);
    free(golden);
}

int main(void)
{
    RUN(digest_knows_content_only);
    RUN(refuses_a_bad_checkpoint);
    RUN(cut_while_open);
    RUN(packed_rows);
    RUN(init_is_seeded);
    return test_end();
}
