#include "core/model/graph.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/model/checkpoint.h"
#include "core/model/graph_private.h"

#include <stdlib.h>
#include <string.h>

static Err graph_memory(Fault *fault)
{
    return fault_set(fault, ERR_MEMORY, "Train with fewer tokens a micro-batch",
                     "no memory for the training graph");
}

static Err graph_load(Graph *graph, const char *dir, Fault *fault)
{
    StSet *set = NULL;
    Err err = checkpoint_open(dir, &graph->config, &set, fault);
    for (int i = 0; i < graph->params && err == ERR_OK; i++) {
        const StTensor *tensor = checkpoint_tensor(set, &graph->config, i);
        size_t count = 1;
        for (int j = 0; j < tensor->rank; j++) {
            count *= (size_t)tensor->shape[j];
        }
        graph->counts[i] = count;
        graph->param[i] = gemm_floats(count);
        graph->grad[i] = calloc(count, sizeof(float)); /* touched only when training */
        if (graph->param[i] == NULL || graph->grad[i] == NULL) {
            err = graph_memory(fault);
        } else {
            err = checkpoint_read(dir, tensor, 0, count, graph->param[i], fault);
        }
    }
    st_set_close(set);
    return err;
}

static Err graph_prepare(Graph *graph, Fault *fault)
{
    const ModelConfig *config = &graph->config;
    const size_t half = (size_t)config->head_dim / 2;
    const int positions = graph->settings.max_tokens < config->max_positions
                              ? graph->settings.max_tokens
                              : config->max_positions; /* no sequence is longer than both */
    graph->kernels = kernels_best();
    graph->threads = graph->settings.threads;
    graph->q_width = config->heads * config->head_dim;
    graph->kv_width = config->kv_heads * config->head_dim;
    graph->line = graph->q_width + 2 * graph->kv_width;
    graph->partial_width = config->hidden > 2 * config->head_dim ? config->hidden
                                                                 : 2 * config->head_dim;
    const Err err = gemm_new(graph->threads, graph->kernels, &graph->gemm, fault);
    if (err != ERR_OK) {
        return err;
    }
    graph->pool = gemm_pool(graph->gemm);
    graph->attention = xcalloc((size_t)graph->threads, sizeof(*graph->attention));
    graph->acts = xcalloc((size_t)config->layers, sizeof(*graph->acts));
    graph->cosine = gemm_floats((size_t)positions * half);
    graph->sine = gemm_floats((size_t)positions * half);
    graph->partial = gemm_floats((size_t)graph->threads * (size_t)graph->partial_width);
    if (graph->cosine == NULL || graph->sine == NULL || graph->partial == NULL) {
        return graph_memory(fault);
    }
    layout_rope(config, positions, graph->cosine, graph->sine);
    return ERR_OK;
}

Err graph_new(const char *dir, const GraphConfig *config, Graph **out, Fault *fault)
{
    *out = NULL;
    if (config->threads < 1 || config->threads > POOL_THREADS_MAX || config->max_tokens < 1 ||
        config->max_tokens > 1 << 24 || config->logit_chunk < 0) {
        return fault_set(fault, ERR_ARG, "Give 1 to 256 threads and a positive number of tokens",
                         "a training graph of %d threads and %d tokens cannot be made",
                         config->threads, config->max_tokens);
    }
    Graph *graph = xcalloc(1, sizeof(*graph));
    graph->settings = *config;
    Err err = model_config_load(dir, &graph->config, fault);
    if (err == ERR_OK) {
        graph->params = model_tensor_count(&graph->config);
        graph->param = xcalloc((size_t)graph->params, sizeof(*graph->param));
        graph->grad = xcalloc((size_t)graph->params, sizeof(*graph->grad));
        graph->counts = xcalloc((size_t)graph->params, sizeof(*graph->counts));
        err = graph_load(graph, dir, fault);
    }
    if (err == ERR_OK) {
        err = graph_prepare(graph, fault);
    }
    if (err != ERR_OK) {
        graph_free(graph);
        return err;
    }
    *out = graph;
    return ERR_OK;
}

/* ---- buffers that grow with the batch ----------------------------------------------------- */

static void graph_free_acts(Graph *graph)
{
    for (int i = 0; i < graph->acts_layers; i++) {
        LayerActs *acts = &graph->acts[i];
        float *const all[] = {acts->x,   acts->rstd_in,   acts->raw,  acts->qkv, acts->attention,
                              acts->lse, acts->rstd_post, acts->gate, acts->up,  acts->mid};
        const size_t count = graph->recompute && i > 0 ? 1 : sizeof(all) / sizeof(all[0]);
        for (size_t j = 0; j < count; j++) {
            free(all[j]);
        }
    }
    graph->acts_layers = 0;
}

static void graph_free_buffers(Graph *graph)
{
    graph_free_acts(graph);
    float **const all[] = {&graph->top,        &graph->norms,    &graph->wide,
                           &graph->dx,         &graph->dnorms,   &graph->dqkv,
                           &graph->dattention, &graph->final,    &graph->dfinal,
                           &graph->rstd_final, &graph->logits,   &graph->target,
                           &graph->lse,        &graph->entropy,  &graph->weight_g,
                           &graph->weight_h};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(*all[i]);
        *all[i] = NULL;
    }
    free(graph->sums);
    free(graph->position);
    free(graph->predicts);
    free(graph->active);
    free(graph->tokens);
    free(graph->starts);
    graph->sums = NULL;
    graph->position = graph->predicts = graph->active = NULL;
    graph->tokens = graph->starts = NULL;
    graph->capacity = 0;
}

void graph_free(Graph *graph)
{
    if (graph == NULL) {
        return;
    }
    graph_free_buffers(graph);
    for (int i = 0; i < graph->params; i++) {
        free(graph->param[i]);
        free(graph->grad[i]);
    }
    for (int i = 0; graph->attention != NULL && i < graph->threads; i++) {
        attention_free(graph->attention[i]);
    }
    free(graph->attention);
    free(graph->acts);
    free(graph->param);
    free(graph->grad);
    free(graph->counts);
    free(graph->cosine);
    free(graph->sine);
    free(graph->partial);
    gemm_free(graph->gemm);
    free(graph);
}

typedef struct GraphPart {
    float **to;
    int width;
} GraphPart;

static bool graph_floats(const GraphPart *parts, size_t count, int rows)
{
    for (size_t i = 0; i < count; i++) {
        *parts[i].to = gemm_floats((size_t)rows * (size_t)parts[i].width);
        if (*parts[i].to == NULL) {
            return false;
        }
    }
    return true;
}

/* Floats of one layer's activations for one token. */
static size_t graph_acts_width(const Graph *graph)
{
    const ModelConfig *config = &graph->config;
    const int raw = config->arch == MODEL_QWEN3 ? graph->q_width + graph->kv_width : 0;
    return (size_t)(2 * config->hidden + 2 + raw + graph->line + graph->q_width + config->heads) +
           2 * (size_t)config->ffn;
}

static bool graph_grow_acts(Graph *graph, int layers, bool recompute)
{
    const ModelConfig *config = &graph->config;
    graph_free_acts(graph);
    graph->recompute = recompute;
    for (int i = 0; i < layers; i++) {
        LayerActs *acts = &graph->acts[i];
        *acts = recompute && i > 0 ? graph->acts[0] : (LayerActs){0};
        acts->x = NULL;
        graph->acts_layers = i + 1;
        const GraphPart parts[] = {
            {&acts->x, config->hidden},    {&acts->rstd_in, 1},
            {&acts->qkv, graph->line},     {&acts->attention, graph->q_width},
            {&acts->lse, config->heads},   {&acts->mid, config->hidden},
            {&acts->rstd_post, 1},         {&acts->gate, config->ffn},
            {&acts->up, config->ffn},      {&acts->raw, graph->q_width + graph->kv_width},
        };
        size_t count = sizeof(parts) / sizeof(parts[0]);
        count = config->arch == MODEL_QWEN3 ? count : count - 1;
        if (!graph_floats(parts, recompute && i > 0 ? 1 : count, graph->capacity)) {
            return false;
        }
    }
    return true;
}

static int graph_choose_chunk(const Graph *graph, int tokens)
{
    const int columns = graph->config.vocab < GRAPH_VOCAB ? graph->config.vocab : GRAPH_VOCAB;
    int chunk = graph->settings.logit_chunk;
    if (chunk == 0) {
        chunk = (8 << 20) / 4 / columns; /* 8 MiB: a part of a common last-level cache */
    }
    return chunk < tokens ? chunk : tokens;
}

static bool graph_grow_tokens(Graph *graph, int tokens)
{
    const ModelConfig *config = &graph->config;
    graph_free_buffers(graph);
    graph->capacity = tokens;
    graph->chunk = graph_choose_chunk(graph, tokens);
    const GraphPart parts[] = {
        {&graph->top, config->hidden},   {&graph->norms, config->hidden},
        {&graph->wide, config->ffn},     {&graph->dx, config->hidden},
        {&graph->dnorms, config->hidden}, {&graph->dqkv, graph->line},
        {&graph->dattention, graph->q_width}, {&graph->final, config->hidden},
        {&graph->dfinal, config->hidden}, {&graph->rstd_final, 1},
        {&graph->target, 1},             {&graph->lse, 1},
        {&graph->entropy, 1},            {&graph->weight_g, 1},
        {&graph->weight_h, 1},
    };
    const size_t n = (size_t)tokens;
    graph->sums = calloc(n, sizeof(*graph->sums));
    graph->position = calloc(n, sizeof(int));
    graph->predicts = calloc(n, sizeof(int));
    graph->active = calloc(n, sizeof(int));
    graph->tokens = calloc(n, sizeof(int32_t));
    graph->starts = calloc(n + 1, sizeof(int32_t));
    graph->logits = gemm_floats((size_t)graph->chunk * GRAPH_VOCAB);
    return graph_floats(parts, sizeof(parts) / sizeof(parts[0]), tokens) && graph->sums != NULL &&
           graph->position != NULL && graph->predicts != NULL && graph->active != NULL &&
           graph->tokens != NULL && graph->starts != NULL && graph->logits != NULL;
}

static bool graph_grow_attention(Graph *graph, int longest)
{
    const AttentionShape shape = {.heads = graph->config.heads, .kv_heads = graph->config.kv_heads,
                                  .head_dim = graph->config.head_dim, .longest = longest};
    graph->attention_longest = 0;
    for (int i = 0; i < graph->threads; i++) {
        attention_free(graph->attention[i]);
        graph->attention[i] = attention_new(graph->kernels, &shape);
        if (graph->attention[i] == NULL) {
            return false;
        }
    }
    graph->attention_longest = longest;
    return true;
}

Err graph_reserve(Graph *graph, int tokens, int longest, bool keep, Fault *fault)
{
    const int layers = keep ? graph->config.layers : 1;
    const int64_t ample = (int64_t)tokens + tokens / 8; /* the next batch may be a bit longer */
    const int wanted = ample < graph->settings.max_tokens ? (int)ample : graph->settings.max_tokens;
    if (tokens > graph->capacity && !graph_grow_tokens(graph, wanted)) {
        graph_free_buffers(graph);
        return graph_memory(fault);
    }
    const double bytes = (double)graph_acts_width(graph) * (double)graph->capacity *
                         (double)graph->config.layers * (double)sizeof(float);
    const double limit = graph->settings.keep_bytes > 0 ? (double)graph->settings.keep_bytes
                                                        : (double)GRAPH_KEEP_BYTES;
    if (layers > graph->acts_layers && !graph_grow_acts(graph, layers, keep && bytes > limit)) {
        graph_free_acts(graph);
        return graph_memory(fault);
    }
    if (longest > graph->attention_longest && !graph_grow_attention(graph, longest)) {
        return graph_memory(fault);
    }
    return ERR_OK;
}

/* ---- parameters --------------------------------------------------------------------------- */

const ModelConfig *graph_config(const Graph *graph)
{
    return &graph->config;
}

int graph_param_count(const Graph *graph)
{
    return graph->params;
}

float *graph_param(Graph *graph, int index, size_t *count)
{
    *count = graph->counts[index];
    return graph->param[index];
}

float *graph_grad(Graph *graph, int index, size_t *count)
{
    *count = graph->counts[index];
    return graph->grad[index];
}

void graph_zero_grad(Graph *graph)
{
    for (int i = 0; i < graph->params; i++) {
        memset(graph->grad[i], 0, graph->counts[i] * sizeof(float));
    }
}

static Err graph_convert(const Graph *graph, int index, void **out, Fault *fault)
{
    uint16_t *half = gemm_bytes(graph->counts[index] * sizeof(uint16_t));
    if (half == NULL) {
        return graph_memory(fault);
    }
    for (size_t i = 0; i < graph->counts[index]; i++) {
        half[i] = bf16_from_f32(graph->param[index][i]);
    }
    *out = half;
    return ERR_OK;
}

Err graph_save(const Graph *graph, ModelDtype dtype, const char *dir, Fault *fault)
{
    if (dtype == MODEL_F16) {
        return fault_set(fault, ERR_UNSUPPORTED, "Publish float32 or bfloat16",
                         "a trained checkpoint is not written as float16");
    }
    const size_t count = (size_t)graph->params;
    ModelTensorSpec *specs = xcalloc(count, sizeof(*specs));
    StWriteTensor *tensors = xcalloc(count, sizeof(*tensors));
    void **halves = xcalloc(count, sizeof(*halves));
    char *path = fs_join(dir, "model.safetensors");
    ModelConfig config = graph->config;
    config.dtype = dtype;
    Err err = fs_mkdirs(dir, 0755, fault);
    for (size_t i = 0; i < count && err == ERR_OK; i++) {
        model_tensor_spec(&graph->config, (int)i, &specs[i]);
        if (dtype == MODEL_BF16) {
            err = graph_convert(graph, (int)i, &halves[i], fault);
        }
        tensors[i] = (StWriteTensor){.name = specs[i].name,
                                     .dtype = dtype == MODEL_BF16 ? ST_BF16 : ST_F32,
                                     .rank = specs[i].rank,
                                     .shape = {specs[i].shape[0], specs[i].shape[1]},
                                     .data = halves[i] != NULL ? halves[i] : graph->param[i]};
    }
    if (err == ERR_OK) {
        err = model_config_save(&config, dir, fault);
    }
    if (err == ERR_OK) {
        const char *const metadata[] = {"format", "pt", NULL};
        err = st_write(path, tensors, count, metadata, fault);
    }
    for (size_t i = 0; i < count; i++) {
        free(halves[i]);
    }
    free(path);
    free(halves);
    free(tensors);
    free(specs);
    return err;
}
