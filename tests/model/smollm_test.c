/* The real small model against transformers' numbers; needs its 271 MB (see the data's README). */
#include "core/model/graph.h"
#include "core/model/infer.h"
#include "core/model/safetensors.h"
#include "tests/model/golden.h"

static const int32_t blocks[] = {3, 0, 5, 2, 7, 1};

static double log_prob(const float *logits, int vocab, int id)
{
    double max = -INFINITY;
    for (int i = 0; i < vocab; i++) {
        max = fmax(max, (double)logits[i]);
    }
    double sum = 0.0;
    for (int i = 0; i < vocab; i++) {
        sum += exp((double)logits[i] - max);
    }
    return (double)logits[id] - max - log(sum);
}

static void check_case(Infer *infer, const cJSON *item, int vocab, double tolerance)
{
    int n;
    int32_t *ids = golden_ids(json_get(item, "ids"), &n);
    InferSeq seq = {.tokens = ids, .count = n, .block_table = blocks};
    const float *logits;
    int rows;
    CHECK_I64(infer_step(infer, &seq, 1, &logits, &rows, NULL), ERR_OK);
    CHECK_I64(rows, n);
    const cJSON *expected = json_get(item, "logprobs");
    for (int t = 1; t < n; t++) {
        CHECK_NEAR(log_prob(logits + (size_t)(t - 1) * (size_t)vocab, vocab, ids[t]),
                   cJSON_GetArrayItem(expected, t)->valuedouble, tolerance);
    }
    const float *last = logits + (size_t)(n - 1) * (size_t)vocab;
    const cJSON *pair;
    cJSON_ArrayForEach(pair, json_get(item, "last_top8"))
    {
        CHECK_NEAR(log_prob(last, vocab, (int)cJSON_GetArrayItem(pair, 0)->valuedouble),
                   cJSON_GetArrayItem(pair, 1)->valuedouble, tolerance);
    }
    int count;
    int32_t *greedy = golden_ids(json_get(item, "greedy"), &count);
    for (int i = 0; i < count; i++) {
        int best = 0;
        for (int j = 1; j < vocab; j++) {
            best = last[j] > last[best] ? j : best;
        }
        CHECK_I64(best, greedy[i]);
        seq = (InferSeq){.tokens = &greedy[i], .count = 1, .start = n + i, .block_table = blocks};
        CHECK_I64(infer_step(infer, &seq, 1, &last, &rows, NULL), ERR_OK);
    }
    free(greedy);
    free(ids);
}

static void serve(ModelDtype dtype)
{
    cJSON *root = golden_json("../smollm2", "golden.json");
    Weights *weights = NULL;
    Fault fault = {0};
    if (weights_load(getenv("ROLLTOP_SMOLLM"), dtype, &weights, &fault) != ERR_OK) {
        fault_print(&fault);
        CHECK(weights != NULL);
        cJSON_Delete(root);
        return;
    }
    const InferConfig config = {
        .threads = 2, .block_tokens = 16, .blocks = 8, .max_batch_tokens = 96};
    Infer *infer = NULL;
    CHECK_I64(infer_new(weights, &config, &infer, NULL), ERR_OK);
    const cJSON *item;
    cJSON_ArrayForEach(item, json_get(root, "cases"))
    {
        /* The file is BF16 and only weights are rounded to it here, so both are float32 work. */
        check_case(infer, item, weights_config(weights)->vocab, 2e-3);
    }
    infer_free(infer);
    weights_unref(weights);
    cJSON_Delete(root);
}

static void serve_f32(void)
{
    serve(MODEL_F32);
}

static void serve_bf16(void)
{
    serve(MODEL_BF16);
}

static void train_forward(void)
{
    cJSON *root = golden_json("../smollm2", "golden.json");
    const GraphConfig config = {.threads = 2, .max_tokens = 512};
    Graph *graph = NULL;
    CHECK_I64(graph_new(getenv("ROLLTOP_SMOLLM"), &config, &graph, NULL), ERR_OK);
    int32_t tokens[512];
    int32_t starts[64] = {0};
    float logp[512];
    float entropy[512];
    PackedBatch batch = {.tokens = tokens, .starts = starts};
    const cJSON *item;
    cJSON_ArrayForEach(item, json_get(root, "cases"))
    {
        int n;
        int32_t *ids = golden_ids(json_get(item, "ids"), &n);
        memcpy(tokens + batch.n_tokens, ids, (size_t)n * sizeof(int32_t));
        batch.n_tokens += n;
        starts[++batch.n_seqs] = batch.n_tokens;
        free(ids);
    }
    CHECK_I64(graph_forward(graph, &batch, 1.0f, false, logp, entropy, NULL), ERR_OK);
    int sequence = 0;
    cJSON_ArrayForEach(item, json_get(root, "cases"))
    {
        const cJSON *expected = json_get(item, "logprobs");
        for (int t = starts[sequence] + 1; t < starts[sequence + 1]; t++) {
            CHECK_NEAR(logp[t], cJSON_GetArrayItem(expected, t - starts[sequence])->valuedouble,
                       2e-3);
        }
        sequence++;
    }
    CHECK_I64(sequence, 20);
    graph_free(graph);
    cJSON_Delete(root);
}

int main(void)
{
    if (getenv("ROLLTOP_SMOLLM") == NULL) {
        puts("skipped: ROLLTOP_SMOLLM names no directory of SmolLM2-135M-Instruct");
        return 77;
    }
    RUN(serve_f32);
    RUN(serve_bf16);
    RUN(train_forward);
    return test_end();
}
