#include "core/model/weights.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/checkpoint.h"
#include "core/model/digest.h"
#include "core/model/gemm.h"
#include "core/model/layout.h"
#include "core/model/weights_private.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct Loader {
    const char *dir;
    const StSet *set;
    Weights *weights;
    bool bf16;
    float *rows; /* 32 rows of the widest matrix */
    Fault *fault;
} Loader;

void packed_row(const PackedMatrix *matrix, int index, float *out)
{
    const size_t panel = (size_t)(index / KERNEL_PANEL) * KERNEL_PANEL * (size_t)matrix->k;
    const int column = index % KERNEL_PANEL;
    if (matrix->bf16) {
        const uint16_t *from =
            (const uint16_t *)matrix->data + panel + column % 16 * 2 + column / 16;
        for (int i = 0; i < matrix->k; i++) {
            out[i] = f32_from_bf16(from[(size_t)i * KERNEL_PANEL]);
        }
        return;
    }
    const float *from = (const float *)matrix->data + panel + column;
    for (int i = 0; i < matrix->k; i++) {
        out[i] = from[(size_t)i * KERNEL_PANEL];
    }
}

/* ---- loading ------------------------------------------------------------------------------ */

static Err loader_memory(const Loader *loader)
{
    return fault_set(loader->fault, ERR_MEMORY, "Serve it on a machine with more memory",
                     "%s: the weights do not fit into memory", loader->dir);
}

/* Packs the rows of up to three tensors, one behind the other, panel by panel. */
static Err loader_matrix(Loader *loader, const int *tensors, int count, PackedMatrix *out)
{
    const StTensor *parts[3] = {NULL};
    int n = 0;
    for (int i = 0; i < count; i++) {
        parts[i] = checkpoint_tensor(loader->set, &loader->weights->config, tensors[i]);
        n += (int)parts[i]->shape[0];
    }
    const int k = (int)parts[0]->shape[1];
    *out = (PackedMatrix){.n = n, .k = k, .bf16 = loader->bf16};
    const size_t size = loader->bf16 ? sizeof(uint16_t) : sizeof(float);
    const size_t panel = (size_t)k * KERNEL_PANEL;
    const size_t bytes = (size_t)gemm_panels(n) * panel * size;
    out->data = gemm_bytes(bytes);
    if (out->data == NULL) {
        return loader_memory(loader);
    }
    loader->weights->bytes += bytes;
    int part = 0;
    int64_t row = 0;
    for (int from = 0; from < n; from += KERNEL_PANEL) {
        const int rows = n - from < KERNEL_PANEL ? n - from : KERNEL_PANEL;
        for (int r = 0; r < rows; r++, row++) {
            if (row == parts[part]->shape[0]) {
                part++;
                row = 0;
            }
            const Err err =
                checkpoint_read(loader->dir, parts[part], (size_t)row * (size_t)k, (size_t)k,
                                loader->rows + (size_t)r * (size_t)k, loader->fault);
            if (err != ERR_OK) {
                return err;
            }
        }
        char *to = (char *)out->data + (size_t)(from / KERNEL_PANEL) * panel * size;
        if (loader->bf16) {
            gemm_pack_bf16(loader->rows, (size_t)k, rows, k, (uint16_t *)(void *)to);
        } else {
            gemm_pack(loader->rows, (size_t)k, true, 0, rows, 0, k, (float *)(void *)to);
        }
    }
    return ERR_OK;
}

static Err loader_vector(Loader *loader, int index, float **out)
{
    const StTensor *tensor = checkpoint_tensor(loader->set, &loader->weights->config, index);
    const size_t count = (size_t)tensor->shape[0];
    *out = gemm_floats(count);
    if (*out == NULL) {
        return loader_memory(loader);
    }
    loader->weights->bytes += count * sizeof(float);
    return checkpoint_read(loader->dir, tensor, 0, count, *out, loader->fault);
}

static Err loader_layer(Loader *loader, int layer)
{
    const ModelConfig *config = &loader->weights->config;
    LayerWeights *to = &loader->weights->layers[layer];
    int at[LT_COUNT];
    for (int i = 0; i < LT_COUNT; i++) {
        at[i] = layout_layer(config, layer, (LayerTensor)i);
    }
    struct {
        PackedMatrix *to;
        int first, count;
    } matrices[] = {{&to->qkv, LT_Q, 3}, {&to->o, LT_O, 1}, {&to->gate, LT_GATE, 1},
                    {&to->up, LT_UP, 1}, {&to->down, LT_DOWN, 1}};
    for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
        const Err err =
            loader_matrix(loader, at + matrices[i].first, matrices[i].count, matrices[i].to);
        if (err != ERR_OK) {
            return err;
        }
    }
    struct {
        float **to;
        int index;
    } vectors[] = {{&to->in_norm, at[LT_IN_NORM]}, {&to->post_norm, at[LT_POST_NORM]},
                   {&to->q_norm, at[LT_Q_NORM]}, {&to->k_norm, at[LT_K_NORM]}};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        if (vectors[i].index >= 0) {
            const Err err = loader_vector(loader, vectors[i].index, vectors[i].to);
            if (err != ERR_OK) {
                return err;
            }
        }
    }
    return ERR_OK;
}

static Err loader_all(Loader *loader)
{
    Weights *weights = loader->weights;
    const ModelConfig *config = &weights->config;
    const int count = model_tensor_count(config);
    Hasher *hasher = hasher_new();
    Hasher64 *bytes = hasher64_new();
    Err err = ERR_OK;
    for (int i = 0; i < count && err == ERR_OK; i++) {
        const StTensor *tensor = checkpoint_tensor(loader->set, config, i);
        hasher64_begin(bytes);
        err = digest_add_tensor(hasher, bytes, tensor, loader->fault);
        weights->hashes[i] = hasher64_value(bytes);
    }
    hasher_text(hasher, weights->digest);
    hasher_free(hasher);
    hasher64_free(bytes);
    const int embedding = LAYOUT_EMBEDDING;
    if (err == ERR_OK) {
        err = loader_matrix(loader, &embedding, 1, &weights->embedding);
    }
    for (int i = 0; i < config->layers && err == ERR_OK; i++) {
        err = loader_layer(loader, i);
    }
    if (err == ERR_OK) {
        err = loader_vector(loader, layout_norm(config), &weights->norm);
    }
    if (err == ERR_OK && !config->tied) {
        const int head = layout_head(config);
        err = loader_matrix(loader, &head, 1, &weights->head);
    }
    return err;
}

static int loader_widest(const ModelConfig *config)
{
    int widest = config->hidden > config->ffn ? config->hidden : config->ffn;
    const int q = config->heads * config->head_dim;
    return widest > q ? widest : q;
}

Err weights_load(const char *dir, ModelDtype compute, Weights **out, Fault *fault)
{
    *out = NULL;
    if (compute == MODEL_F16) {
        return fault_set(fault, ERR_UNSUPPORTED, "Use float32 or bfloat16",
                         "weights cannot be kept in float16 for inference");
    }
    ModelConfig config;
    StSet *set = NULL;
    Err err = model_config_load(dir, &config, fault);
    if (err == ERR_OK) {
        err = checkpoint_open(dir, &config, &set, fault);
    }
    if (err != ERR_OK) {
        return err;
    }
    Weights *weights = xcalloc(1, sizeof(*weights));
    atomic_init(&weights->references, 1);
    weights->config = config;
    weights->layers = xcalloc((size_t)config.layers, sizeof(LayerWeights));
    weights->hashes = xcalloc((size_t)model_tensor_count(&config), sizeof(uint64_t));
    Loader loader = {.dir = dir, .set = set, .weights = weights, .fault = fault};
    loader.bf16 = compute == MODEL_BF16;
    loader.rows = gemm_floats((size_t)KERNEL_PANEL * (size_t)loader_widest(&config));
    err = loader.rows == NULL ? loader_memory(&loader) : loader_all(&loader);
    free(loader.rows);
    st_set_close(set);
    if (err != ERR_OK) {
        weights_unref(weights);
        return err;
    }
    *out = weights;
    return ERR_OK;
}

Weights *weights_ref(Weights *weights)
{
    atomic_fetch_add(&weights->references, 1);
    return weights;
}

void weights_unref(Weights *weights)
{
    if (weights == NULL || atomic_fetch_sub(&weights->references, 1) > 1) {
        return;
    }
    for (int i = 0; i < weights->config.layers; i++) {
        LayerWeights *layer = &weights->layers[i];
        free(layer->qkv.data);
        free(layer->o.data);
        free(layer->gate.data);
        free(layer->up.data);
        free(layer->down.data);
        free(layer->in_norm);
        free(layer->post_norm);
        free(layer->q_norm);
        free(layer->k_norm);
    }
    free(weights->layers);
    free(weights->embedding.data);
    free(weights->head.data);
    free(weights->norm);
    free(weights->hashes);
    free(weights);
}

const ModelConfig *weights_config(const Weights *weights)
{
    return &weights->config;
}

const char *weights_digest(const Weights *weights)
{
    return weights->digest;
}

uint64_t weights_tensor_hash(const Weights *weights, int index)
{
    return weights->hashes[index];
}

size_t weights_bytes(const Weights *weights)
{
    return weights->bytes;
}

/* ---- from scratch ------------------------------------------------------------------------- */

static Err weights_fill(const ModelConfig *config, uint64_t seed, StWriteTensor *tensors,
                        ModelTensorSpec *specs, Fault *fault)
{
    Rng rng;
    rng_seed(&rng, seed);
    const int count = model_tensor_count(config);
    for (int i = 0; i < count; i++) {
        model_tensor_spec(config, i, &specs[i]);
        const bool matrix = specs[i].rank == 2;
        const size_t n = (size_t)specs[i].shape[0] * (size_t)(matrix ? specs[i].shape[1] : 1);
        float *data = gemm_floats(n);
        if (data == NULL) {
            return fault_set(fault, ERR_MEMORY, "Choose a smaller model",
                             "no memory for a new model's tensor %s", specs[i].name);
        }
        for (size_t j = 0; j < n; j++) {
            data[j] = matrix ? (float)(0.02 * rng_normal(&rng)) : 1.0f;
        }
        tensors[i] = (StWriteTensor){.name = specs[i].name,
                                     .dtype = ST_F32,
                                     .rank = specs[i].rank,
                                     .shape = {specs[i].shape[0], specs[i].shape[1]},
                                     .data = data};
    }
    return ERR_OK;
}

Err weights_init_random(const ModelConfig *config, uint64_t seed, const char *dir, Fault *fault)
{
    const size_t count = (size_t)model_tensor_count(config);
    StWriteTensor *tensors = xcalloc(count, sizeof(*tensors));
    ModelTensorSpec *specs = xcalloc(count, sizeof(*specs));
    char *path = fs_join(dir, "model.safetensors");
    ModelConfig written = *config;
    written.dtype = MODEL_F32;
    Err err = weights_fill(config, seed, tensors, specs, fault);
    if (err == ERR_OK) {
        err = fs_mkdirs(dir, 0755, fault);
    }
    if (err == ERR_OK) {
        err = model_config_save(&written, dir, fault);
    }
    if (err == ERR_OK) {
        const char *const metadata[] = {"format", "pt", NULL};
        err = st_write(path, tensors, count, metadata, fault);
    }
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)tensors[i].data);
    }
    free(path);
    free(specs);
    free(tensors);
    return err;
}
