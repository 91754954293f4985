#include "core/model/graph.h"

#include "core/model/infer.h"
#include "core/model/safetensors.h"
#include "tests/model/golden.h"

static Graph *load(const char *dir, int threads, int chunk)
{
    const GraphConfig config = {.threads = threads, .max_tokens = 512, .logit_chunk = chunk};
    Graph *out = NULL;
    Fault fault = {0};
    if (graph_new(dir, &config, &out, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    return out;
}

static Graph *load_golden(const char *model, int threads, int chunk)
{
    char *dir = golden_path(model, "");
    Graph *out = load(dir, threads, chunk);
    free(dir);
    return out;
}

static void check_case(Graph *graph, const cJSON *item)
{
    int n;
    int32_t *ids = golden_ids(json_get(item, "ids"), &n);
    const int32_t starts[2] = {0, n};
    const PackedBatch batch = {.tokens = ids, .starts = starts, .n_seqs = 1, .n_tokens = n};
    float *logp = xcalloc((size_t)n, sizeof(float));
    float *entropy = xcalloc((size_t)n, sizeof(float));
    const cJSON *at;
    cJSON_ArrayForEach(at, json_get(item, "temperature"))
    {
        int count;
        double *expected = golden_numbers(json_get(at, "log_probs"), &count);
        double *entropies = golden_numbers(json_get(at, "entropy"), &count);
        const float temperature = (float)json_double(at, "temperature", 0);
        CHECK_I64(graph_forward(graph, &batch, temperature, false, logp, entropy, NULL), ERR_OK);
        CHECK_NEAR(logp[0], 0.0, 0.0);
        CHECK_NEAR(entropy[0], 0.0, 0.0);
        for (int t = 1; t < n; t++) {
            CHECK_NEAR(logp[t], expected[t - 1], 2e-4);
            CHECK_NEAR(entropy[t], entropies[t - 1], 2e-4);
        }
        free(expected);
        free(entropies);
    }
    free(logp);
    free(entropy);
    free(ids);
}

static void golden_forward(void)
{
    for (int m = 0; m < 2; m++) {
        cJSON *root = golden_json(golden_models[m], "forward.json");
        for (int threads = 1; threads <= 3; threads++) {
            Graph *graph = load_golden(golden_models[m], threads, threads == 2 ? 7 : 0);
            const cJSON *item;
            cJSON_ArrayForEach(item, json_get(root, "cases"))
            {
                check_case(graph, item);
            }
            graph_free(graph);
        }
        cJSON_Delete(root);
    }
}

/* A packed batch with weights per token, from gradients.json: weight i of a sequence belongs to
 * its token i + 1. */
typedef struct Packed {
    int32_t tokens[512];
    int32_t starts[64];
    float logp[512], entropy[512];
    PackedBatch batch;
} Packed;

static void pack(const cJSON *item, Packed *out)
{
    *out = (Packed){0};
    const cJSON *sequences = json_get(item, "sequences");
    const cJSON *weights = json_get(item, "log_prob_weights");
    const cJSON *more = json_get(item, "entropy_weights");
    int n = 0;
    const int count = cJSON_GetArraySize(sequences);
    for (int s = 0; s < count; s++) {
        const cJSON *ids = cJSON_GetArrayItem(sequences, s);
        const int length = cJSON_GetArraySize(ids);
        for (int t = 0; t < length; t++, n++) {
            out->tokens[n] = (int32_t)cJSON_GetArrayItem(ids, t)->valuedouble;
            if (t > 0) {
                out->logp[n] = (float)cJSON_GetArrayItem(cJSON_GetArrayItem(weights, s), t - 1)
                                   ->valuedouble;
                out->entropy[n] = (float)cJSON_GetArrayItem(cJSON_GetArrayItem(more, s), t - 1)
                                      ->valuedouble;
            }
        }
        out->starts[s + 1] = n;
    }
    out->batch = (PackedBatch){
        .tokens = out->tokens, .starts = out->starts, .n_seqs = count, .n_tokens = n};
}

static double pass(Graph *graph, const Packed *packed, float temperature)
{
    float logp[512];
    float entropy[512];
    Fault fault = {0};
    CHECK_I64(graph_forward(graph, &packed->batch, temperature, true, logp, entropy, &fault),
              ERR_OK);
    double loss = 0.0;
    for (int t = 0; t < packed->batch.n_tokens; t++) {
        loss += (double)packed->logp[t] * (double)logp[t] +
                (double)packed->entropy[t] * (double)entropy[t];
    }
    CHECK_I64(graph_backward(graph, packed->logp, packed->entropy, &fault), ERR_OK);
    return loss;
}

static void check_gradient(Graph *graph, const cJSON *item, const cJSON *indices)
{
    for (int i = 0; i < graph_param_count(graph); i++) {
        ModelTensorSpec spec;
        model_tensor_spec(graph_config(graph), i, &spec);
        const cJSON *expected = json_get(json_get(item, "grad"), spec.name);
        CHECK(expected != NULL);
        size_t count;
        const float *grad = graph_grad(graph, i, &count);
        double norm = 0.0;
        double sum = 0.0;
        for (size_t j = 0; j < count; j++) {
            norm += (double)grad[j] * (double)grad[j];
            sum += (double)grad[j];
        }
        const double scale = json_double(expected, "norm", -1.0);
        const double allowed = 1e-4 * scale + 1e-9;
        CHECK_NEAR(sqrt(norm), scale, allowed);
        CHECK_NEAR(sum, json_double(expected, "sum", 0.0), allowed * sqrt((double)count));
        const cJSON *at = json_get(expected, "at");
        const cJSON *where = json_get(indices, spec.name);
        CHECK_I64(cJSON_GetArraySize(at), cJSON_GetArraySize(where));
        CHECK(cJSON_GetArraySize(at) > 0);
        for (int j = 0; j < cJSON_GetArraySize(at); j++) {
            const size_t index = (size_t)cJSON_GetArrayItem(where, j)->valuedouble;
            CHECK_NEAR(grad[index], cJSON_GetArrayItem(at, j)->valuedouble, allowed);
        }
    }
}

static void golden_gradients(void)
{
    for (int m = 0; m < 2; m++) {
        cJSON *root = golden_json(golden_models[m], "gradients.json");
        for (int threads = 1; threads <= 3; threads++) {
            Graph *graph = load_golden(golden_models[m], threads, threads == 1 ? 0 : 5);
            const cJSON *item;
            cJSON_ArrayForEach(item, json_get(root, "cases"))
            {
                Packed packed;
                pack(item, &packed);
                graph_zero_grad(graph);
                const double loss =
                    pass(graph, &packed, (float)json_double(item, "temperature", 0));
                CHECK_NEAR(loss, json_double(item, "loss", 0), 1e-4 * fabs(loss) + 1e-4);
                check_gradient(graph, item, json_get(root, "sampled_flat_index"));
            }
            graph_free(graph);
        }
        cJSON_Delete(root);
    }
}

static void make_batch(Packed *out, int sequences, int length)
{
    *out = (Packed){0};
    int n = 0;
    for (int s = 0; s < sequences; s++) {
        for (int t = 0; t < length + s * 7; t++, n++) {
            out->tokens[n] = (s * 71 + t * t * 3 + t * 17) % 320;
            out->logp[n] = t > length / 2 ? (float)((t * 5 + s) % 7 - 3) * 0.1f : 0.0f;
            out->entropy[n] = t > length / 2 ? 0.01f : 0.0f;
        }
        out->starts[s + 1] = n;
    }
    out->batch = (PackedBatch){
        .tokens = out->tokens, .starts = out->starts, .n_seqs = sequences, .n_tokens = n};
}

/* Sequences packed together give the log-probs and the sum of the gradients of each alone. */
static void packing_changes_nothing(void)
{
    enum { SEQUENCES = 4 };
    Packed packed;
    make_batch(&packed, SEQUENCES, 50);
    Graph *together = load_golden("untied", 2, 0);
    Graph *apart = load_golden("untied", 1, 0);
    float logp[512];
    float entropy[512];
    CHECK_I64(graph_forward(together, &packed.batch, 0.9f, true, logp, entropy, NULL), ERR_OK);
    CHECK_I64(graph_backward(together, packed.logp, packed.entropy, NULL), ERR_OK);
    for (int s = 0; s < SEQUENCES; s++) {
        const int from = packed.starts[s];
        const int n = packed.starts[s + 1] - from;
        const int32_t starts[2] = {0, n};
        const PackedBatch one = {
            .tokens = packed.tokens + from, .starts = starts, .n_seqs = 1, .n_tokens = n};
        float alone[512];
        float more[512];
        CHECK_I64(graph_forward(apart, &one, 0.9f, true, alone, more, NULL), ERR_OK);
        for (int t = 0; t < n; t++) {
            CHECK_NEAR(alone[t], logp[from + t], 1e-5);
            CHECK_NEAR(more[t], entropy[from + t], 1e-5);
        }
        CHECK_I64(graph_backward(apart, packed.logp + from, packed.entropy + from, NULL), ERR_OK);
    }
    for (int i = 0; i < graph_param_count(apart); i++) {
        size_t count;
        const float *a = graph_grad(apart, i, &count);
        const float *b = graph_grad(together, i, &count);
        double norm = 0.0;
        double difference = 0.0;
        for (size_t j = 0; j < count; j++) {
            norm += (double)a[j] * (double)a[j];
            difference += ((double)a[j] - (double)b[j]) * ((double)a[j] - (double)b[j]);
        }
        CHECK(norm > 0.0);
        CHECK_NEAR(sqrt(difference / norm), 0.0, 1e-5);
    }
    graph_free(together);
    graph_free(apart);
}

static void same_threads_same_bits(void)
{
    Packed packed;
    make_batch(&packed, 3, 60);
    Graph *a = load_golden("tied", 2, 0);
    Graph *b = load_golden("tied", 2, 0);
    (void)pass(a, &packed, 1.0f);
    (void)pass(b, &packed, 1.0f);
    for (int i = 0; i < graph_param_count(a); i++) {
        size_t count;
        const float *x = graph_grad(a, i, &count);
        const float *y = graph_grad(b, i, &count);
        CHECK_I64(memcmp(x, y, count * sizeof(float)), 0);
    }
    graph_free(a);
    graph_free(b);
}

/* A batch whose activations are over the bound: computed again, to the same bit. */
static void recomputing_changes_no_bit(void)
{
    Packed packed;
    make_batch(&packed, 3, 60);
    char *dir = golden_path("untied", "");
    const GraphConfig small = {.threads = 2, .max_tokens = 512, .keep_bytes = 1};
    Graph *a = load_golden("untied", 2, 0);
    Graph *b = NULL;
    CHECK_I64(graph_new(dir, &small, &b, NULL), ERR_OK);
    for (int round = 0; round < 2; round++) {
        const double x = pass(a, &packed, 1.0f);
        const double y = pass(b, &packed, 1.0f);
        CHECK_NEAR(x, y, 0.0);
    }
    for (int i = 0; i < graph_param_count(a); i++) {
        size_t count;
        const float *x = graph_grad(a, i, &count);
        const float *y = graph_grad(b, i, &count);
        CHECK_I64(memcmp(x, y, count * sizeof(float)), 0);
    }
    graph_free(a);
    graph_free(b);
    free(dir);
}

/* Llama has no golden set of its own: the analytic gradient against differences of the loss. The
 * vocabulary is larger than one block of logits. */
static void llama_gradient_by_differences(void)
{
    const ModelConfig config = {.arch = MODEL_LLAMA, .layers = 2, .hidden = 24, .heads = 3,
                                .kv_heads = 1, .head_dim = 10, .ffn = 40, .vocab = 2100,
                                .max_positions = 64, .rms_eps = 1e-5f, .rope_theta = 1e4,
                                .tied = true, .bos = -1};
    char *dir = golden_temp();
    CHECK_I64(weights_init_random(&config, 3, dir, NULL), ERR_OK);
    Graph *graph = load(dir, 2, 0);
    for (int i = 0; i < graph_param_count(graph); i++) {
        size_t count;
        float *p = graph_param(graph, i, &count);
        for (size_t j = 0; j < count && count > 24; j++) {
            p[j] *= 10.0f; /* so that attention is not flat */
        }
    }
    Packed packed;
    make_batch(&packed, 2, 12);
    for (int t = 0; t < packed.batch.n_tokens; t++) {
        packed.tokens[t] = packed.tokens[t] * 97 % 2100;
    }
    packed.tokens[9] = 2060; /* targets in the second block */
    packed.tokens[10] = 2099;
    for (int i = 0; i < graph_param_count(graph); i++) {
        graph_zero_grad(graph);
        (void)pass(graph, &packed, 1.0f);
        size_t count;
        float *p = graph_param(graph, i, &count);
        float *g = xcalloc(count, sizeof(float));
        memcpy(g, graph_grad(graph, i, &count), count * sizeof(float));
        float *old = xcalloc(count, sizeof(float));
        memcpy(old, p, count * sizeof(float));
        double length = 0.0;
        for (size_t j = 0; j < count; j++) {
            length += (double)g[j] * (double)g[j];
        }
        length = sqrt(length);
        double loss[2];
        const double h = 4e-3;
        for (int side = 0; side < 2; side++) { /* along the gradient itself */
            for (size_t j = 0; j < count; j++) {
                p[j] = old[j] + (float)((side ? -h : h) * (double)g[j] / length);
            }
            loss[side] = pass(graph, &packed, 1.0f);
        }
        memcpy(p, old, count * sizeof(float));
        const double slope = (loss[0] - loss[1]) / (2 * h);
        CHECK_NEAR(slope / length, 1.0, 2e-2);
        free(old);
        free(g);
    }
    graph_free(graph);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    free(dir);
}

static void agree(const ModelConfig *config)
{
    enum { N = 300 };
    static const int32_t blocks[] = {2, 0, 5, 4, 9, 8, 1, 7, 3, 6};
    char *dir = golden_temp();
    CHECK_I64(weights_init_random(config, 5, dir, NULL), ERR_OK);
    Graph *graph = load(dir, 2, 0);
    Weights *weights = NULL;
    Infer *infer = NULL;
    const InferConfig settings = {
        .threads = 3, .block_tokens = 32, .blocks = 10, .max_batch_tokens = N};
    CHECK_I64(weights_load(dir, MODEL_F32, &weights, NULL), ERR_OK);
    CHECK_I64(infer_new(weights, &settings, &infer, NULL), ERR_OK);
    int32_t tokens[N];
    float logp[N];
    for (int t = 0; t < N; t++) {
        tokens[t] = (t * 389 + t * t * 7) % config->vocab;
    }
    const int32_t starts[2] = {0, N};
    const PackedBatch batch = {.tokens = tokens, .starts = starts, .n_seqs = 1, .n_tokens = N};
    CHECK_I64(graph_forward(graph, &batch, 1.0f, false, logp, NULL, NULL), ERR_OK);
    const InferSeq seq = {.tokens = tokens, .count = N, .block_table = blocks};
    const float *logits;
    int rows;
    CHECK_I64(infer_step(infer, &seq, 1, &logits, &rows, NULL), ERR_OK);
    for (int t = 1; t < N; t++) {
        const float *row = logits + (size_t)(t - 1) * (size_t)config->vocab;
        double sum = 0.0;
        for (int i = 0; i < config->vocab; i++) {
            sum += exp((double)row[i]);
        }
        CHECK_NEAR(logp[t], (double)row[tokens[t]] - log(sum), 1e-5);
    }
    infer_free(infer);
    weights_unref(weights);
    graph_free(graph);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    free(dir);
}

/* The two forward passes share kernels but not their code; sizes that fill no vector or panel. */
static void serving_and_training_agree(void)
{
    ModelConfig config = {.arch = MODEL_LLAMA, .layers = 3, .hidden = 52, .heads = 6,
                          .kv_heads = 2, .head_dim = 10, .ffn = 71, .vocab = 2101,
                          .max_positions = 512, .rms_eps = 1e-5f, .rope_theta = 1e4, .bos = -1};
    agree(&config);
    config.arch = MODEL_QWEN3;
    config.kv_heads = 1;
    config.head_dim = 34;
    config.tied = true;
    agree(&config);
}

static void saves_what_it_holds(void)
{
    char *dir = golden_temp();
    char *sub = fs_join(dir, "step-1");
    Graph *graph = load_golden("untied", 1, 0);
    for (int half = 0; half < 2; half++) {
        CHECK_I64(graph_save(graph, half ? MODEL_BF16 : MODEL_F32, sub, NULL), ERR_OK);
        Graph *back = load(sub, 1, 0);
        CHECK_I64(graph_config(back)->dtype, half ? MODEL_BF16 : MODEL_F32);
        for (int i = 0; i < graph_param_count(graph); i++) {
            size_t count;
            const float *a = graph_param(graph, i, &count);
            const float *b = graph_param(back, i, &count);
            int bad = 0;
            for (size_t j = 0; j < count; j++) {
                bad += b[j] != (half ? f32_from_bf16(bf16_from_f32(a[j])) : a[j]);
            }
            CHECK_I64(bad, 0);
        }
        graph_free(back);
    }
    graph_free(graph);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    free(sub);
    free(dir);
}

static void refuses_bad_batches(void)
{
    Graph *graph = load_golden("untied", 1, 0);
    float out[8];
    const int32_t ids[4] = {1, 2, 319, 320};
    const int32_t good[2] = {0, 3};
    const int32_t empty[3] = {0, 0, 3};
    const int32_t wide[2] = {0, 4};
    PackedBatch batch = {.tokens = ids, .starts = good, .n_seqs = 1, .n_tokens = 3};
    CHECK_I64(graph_backward(graph, out, NULL, NULL), ERR_STATE);
    CHECK_I64(graph_forward(graph, &batch, 0.0f, false, out, NULL, NULL), ERR_ARG);
    CHECK_I64(graph_forward(graph, &batch, 1.0f, false, out, NULL, NULL), ERR_OK);
    CHECK_I64(graph_backward(graph, out, NULL, NULL), ERR_STATE);
    batch.starts = empty;
    batch.n_seqs = 2;
    CHECK_I64(graph_forward(graph, &batch, 1.0f, false, out, NULL, NULL), ERR_ARG);
    batch = (PackedBatch){.tokens = ids, .starts = wide, .n_seqs = 1, .n_tokens = 4};
    Fault fault = {0};
    CHECK_I64(graph_forward(graph, &batch, 1.0f, false, out, NULL, &fault), ERR_ARG);
    CHECK(strstr(fault.sentence, "320") != NULL);
    batch.n_tokens = 513;
    CHECK_I64(graph_forward(graph, &batch, 1.0f, false, out, NULL, NULL), ERR_LIMIT);
    graph_free(graph);
}

int main(void)
{
    RUN(golden_forward);
    RUN(golden_gradients);
    RUN(packing_changes_nothing);
    RUN(same_threads_same_bits);
    RUN(recomputing_changes_no_bit);
    RUN(llama_gradient_by_differences);
    RUN(serving_and_training_agree);
    RUN(saves_what_it_holds);
    RUN(refuses_bad_batches);
    return test_end();
}
