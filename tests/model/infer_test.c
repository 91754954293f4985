#include "core/model/infer.h"

#include "core/model/safetensors.h"
#include "core/model/sampler.h"
#include "tests/model/golden.h"

enum { BLOCK = 16, BLOCKS = 64 };

static Weights *load(const char *model, ModelDtype dtype)
{
    char *dir = golden_path(model, "");
    Weights *out = NULL;
    Fault fault = {0};
    if (weights_load(dir, dtype, &out, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    free(dir);
    return out;
}

static Infer *start(Weights *weights, int threads)
{
    const InferConfig config = {
        .threads = threads, .block_tokens = BLOCK, .blocks = BLOCKS, .max_batch_tokens = 512};
    Infer *out = NULL;
    Fault fault = {0};
    if (infer_new(weights, &config, &out, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    return out;
}

static const float *step(Infer *infer, const InferSeq *seqs, int count, int expected)
{
    const float *logits = NULL;
    int rows = 0;
    Fault fault = {0};
    CHECK_I64(infer_step(infer, seqs, count, &logits, &rows, &fault), ERR_OK);
    CHECK_I64(rows, expected);
    if (fault.code != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    return logits;
}

static double log_prob(const float *logits, int vocab, double temperature, int id, double *entropy)
{
    double max = -INFINITY;
    for (int i = 0; i < vocab; i++) {
        max = fmax(max, (double)logits[i] / temperature);
    }
    double sum = 0.0;
    double weighted = 0.0;
    for (int i = 0; i < vocab; i++) {
        const double z = (double)logits[i] / temperature - max;
        sum += exp(z);
        weighted += exp(z) * z;
    }
    *entropy = log(sum) - weighted / sum;
    return id < 0 ? 0.0 : (double)logits[id] / temperature - max - log(sum);
}

static void check_case(const cJSON *item, Infer *infer, int vocab)
{
    static const int32_t blocks[] = {9, 3, 60, 7, 1, 30, 31, 2, 0, 11};
    int n;
    int32_t *ids = golden_ids(json_get(item, "ids"), &n);
    const InferSeq seq = {.tokens = ids, .count = n, .block_table = blocks};
    const float *logits = step(infer, &seq, 1, n);
    const cJSON *at;
    cJSON_ArrayForEach(at, json_get(item, "temperature"))
    {
        const double temperature = json_double(at, "temperature", 0);
        int count;
        double *expected = golden_numbers(json_get(at, "log_probs"), &count);
        double *entropies = golden_numbers(json_get(at, "entropy"), &count);
        CHECK_I64(count, n);
        for (int t = 0; t < n; t++) {
            double entropy;
            const double got = log_prob(logits + (size_t)t * (size_t)vocab, vocab, temperature,
                                        t + 1 < n ? ids[t + 1] : -1, &entropy);
            CHECK_NEAR(entropy, entropies[t], 2e-4);
            if (t + 1 < n) {
                CHECK_NEAR(got, expected[t], 2e-4);
            }
        }
        free(expected);
        free(entropies);
    }
    free(ids);
}

static void golden_forward(void)
{
    for (int m = 0; m < 2; m++) {
        cJSON *root = golden_json(golden_models[m], "forward.json");
        Weights *weights = load(golden_models[m], MODEL_F32);
        for (int threads = 1; threads <= 3; threads += 2) {
            Infer *infer = start(weights, threads);
            int cases = 0;
            const cJSON *item;
            cJSON_ArrayForEach(item, json_get(root, "cases"))
            {
                check_case(item, infer, weights_config(weights)->vocab);
                cases++;
            }
            CHECK_I64(cases, 8);
            infer_free(infer);
        }
        weights_unref(weights);
        cJSON_Delete(root);
    }
}

static void golden_logits(void)
{
    static const int32_t blocks[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (int m = 0; m < 2; m++) {
        cJSON *root = golden_json(golden_models[m], "forward.json");
        char *path = golden_path(golden_models[m], "logits.safetensors");
        StFile *file = NULL;
        CHECK_I64(st_open(path, &file, NULL), ERR_OK);
        Weights *weights = load(golden_models[m], MODEL_F32);
        const int vocab = weights_config(weights)->vocab;
        Infer *infer = start(weights, 1);
        const cJSON *item;
        cJSON_ArrayForEach(item, json_get(root, "cases"))
        {
            int n;
            int32_t *ids = golden_ids(json_get(item, "ids"), &n);
            const int rows = n <= 17 ? n : 1;
            const InferSeq seq = {.tokens = ids, .count = n, .block_table = blocks,
                                  .logits_from = n - rows};
            const float *logits = step(infer, &seq, 1, rows);
            char name[64];
            (void)snprintf(name, sizeof(name), "%slogits_f64_T%d", n <= 17 ? "" : "last_", n);
            const StTensor *tensor = st_find(file, name);
            CHECK(tensor != NULL);
            float *expected = xcalloc((size_t)(rows * vocab), sizeof(float));
            CHECK_I64(st_read_f32(tensor, 0, (size_t)(rows * vocab), expected), ERR_OK);
            double worst = 0.0;
            for (int i = 0; i < rows * vocab; i++) {
                worst = fmax(worst, fabs((double)logits[i] - (double)expected[i]));
            }
            CHECK_NEAR(worst, 0.0, 2e-4);
            free(expected);
            free(ids);
        }
        infer_free(infer);
        weights_unref(weights);
        st_close(file);
        free(path);
        cJSON_Delete(root);
    }
}

static void check_greedy(const cJSON *item, Infer *infer, int vocab)
{
    static const int32_t blocks[] = {5, 6, 7, 8, 9, 10, 11, 12, 13};
    int n;
    int count;
    int32_t *prompt = golden_ids(json_get(item, "prompt"), &n);
    int32_t *expected = golden_ids(json_get(item, "ids"), &count);
    double *log_probs = golden_numbers(json_get(item, "log_probs"), &count);
    SamplingParams params = sampling_defaults();
    params.temperature = 0.0f;
    params.frequency_penalty = (float)json_double(item, "frequency_penalty", 0.0);
    params.presence_penalty = (float)json_double(item, "presence_penalty", 0.0);
    params.repetition_penalty = (float)json_double(item, "repetition_penalty", 1.0);
    Sampler *sampler = sampler_new(vocab);
    PenaltyCounts counts = {0};
    Rng rng;
    rng_seed(&rng, 1);
    InferSeq seq = {.tokens = prompt, .count = n, .block_table = blocks, .logits_from = n - 1};
    for (int i = 0; i < count; i++) {
        const float *logits = step(infer, &seq, 1, 1);
        SampledToken token = {0};
        CHECK_I64(sampler_draw(sampler, logits, &params, &counts, i, &rng, &token), ERR_OK);
        CHECK_I64(token.id, expected[i]);
        CHECK_NEAR(token.logprob, log_probs[i], 2e-4);
        penalty_add(&counts, expected[i]);
        seq = (InferSeq){.tokens = &expected[i], .count = 1, .start = n + i, .block_table = blocks};
    }
    penalty_free(&counts);
    sampler_free(sampler);
    free(prompt);
    free(expected);
    free(log_probs);
}

static void golden_greedy(void)
{
    for (int m = 0; m < 2; m++) {
        cJSON *root = golden_json(golden_models[m], "forward.json");
        Weights *weights = load(golden_models[m], MODEL_F32);
        Infer *infer = start(weights, 2);
        const cJSON *item;
        cJSON_ArrayForEach(item, json_get(root, "greedy"))
        {
            check_greedy(item, infer, weights_config(weights)->vocab);
        }
        infer_free(infer);
        weights_unref(weights);
        cJSON_Delete(root);
    }
}

/* Prefill in pieces, sequences together, decode beside prefill, and any number of threads: the
 * same bits as one sequence alone on one thread. */
static void same_bits(ModelDtype dtype)
{
    enum { N = 3, LONG = 61 };
    static const int lengths[N] = {LONG, 17, 33};
    static const int32_t tables[N][4] = {{40, 2, 33, 5}, {7, 8, -1, -1}, {50, 51, 52, -1}};
    int32_t ids[N][LONG];
    for (int s = 0; s < N; s++) {
        for (int t = 0; t < LONG; t++) {
            ids[s][t] = (int32_t)((s * 131 + t * 37 + t * t) % 300);
        }
    }
    Weights *weights = load("untied", dtype);
    const int vocab = weights_config(weights)->vocab;
    const size_t row = (size_t)vocab * sizeof(float);
    float *alone[N];
    Infer *infer = start(weights, 1);
    for (int s = 0; s < N; s++) {
        const InferSeq seq = {.tokens = ids[s], .count = lengths[s], .block_table = tables[s]};
        alone[s] = xcalloc((size_t)lengths[s], row);
        memcpy(alone[s], step(infer, &seq, 1, lengths[s]), (size_t)lengths[s] * row);
    }
    infer_free(infer);
    for (int threads = 1; threads <= 4; threads++) {
        infer = start(weights, threads);
        int done[N] = {0};
        for (int round = 0; round < 70; round++) {
            InferSeq seqs[N];
            int total = 0;
            for (int s = 0; s < N; s++) {
                const int left = lengths[s] - done[s];
                const int piece = s == 1 ? 1 : (round * 7 + s * 5) % 11 + 1;
                seqs[s] = (InferSeq){.tokens = ids[s] + done[s],
                                     .count = piece < left ? piece : left,
                                     .start = done[s],
                                     .block_table = tables[s]};
                total += seqs[s].count;
            }
            const float *logits = step(infer, seqs, N, total);
            for (int s = 0; s < N; s++) {
                const int bad = memcmp(logits, alone[s] + (size_t)done[s] * (size_t)vocab,
                                       (size_t)seqs[s].count * row);
                CHECK_I64(seqs[s].count > 0 ? bad : 0, 0);
                logits += (size_t)seqs[s].count * (size_t)vocab;
                done[s] += seqs[s].count;
            }
        }
        CHECK_I64(done[0], lengths[0]);
        infer_free(infer);
    }
    for (int s = 0; s < N; s++) {
        free(alone[s]);
    }
    weights_unref(weights);
}

static void batches_change_no_bit(void)
{
    same_bits(MODEL_F32);
}

static void bf16_batches_change_no_bit(void)
{
    same_bits(MODEL_BF16);
}

/* BF16 weights with FP32 arithmetic: near the golden numbers, and exactly what the rounded
 * weights give in FP32. */
static void bf16_is_rounded_weights(void)
{
    static const int32_t blocks[] = {0, 1, 2};
    static const int32_t ids[] = {5, 77, 130, 9, 200, 41, 7, 8, 300, 1};
    const int n = (int)(sizeof(ids) / sizeof(ids[0]));
    Weights *full = load("tied", MODEL_F32);
    Weights *half = load("tied", MODEL_BF16);
    CHECK_STR(weights_digest(full), weights_digest(half));
    CHECK(weights_bytes(half) * 2 < weights_bytes(full) + 20000);
    const int vocab = weights_config(full)->vocab;
    Infer *a = start(full, 1);
    Infer *b = start(half, 1);
    const InferSeq seq = {.tokens = ids, .count = n, .block_table = blocks};
    const float *x = step(a, &seq, 1, n);
    const float *y = step(b, &seq, 1, n);
    double worst = 0.0;
    for (int i = 0; i < n * vocab; i++) {
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
    }
    CHECK(worst > 1e-5);
    CHECK(worst < 0.5);
    infer_free(a);
    infer_free(b);
    weights_unref(full);
    weights_unref(half);
}

static void refuses_bad_steps(void)
{
    static const int32_t blocks[] = {0, 64};
    static const int32_t ids[] = {5, 320, -1};
    Weights *weights = load("untied", MODEL_F32);
    Infer *infer = start(weights, 1);
    const float *logits;
    int rows;
    Fault fault = {0};
    InferSeq seq = {.tokens = ids, .count = 2, .block_table = blocks};
    CHECK_I64(infer_step(infer, &seq, 1, &logits, &rows, &fault), ERR_ARG);
    CHECK(strstr(fault.sentence, "320") != NULL);
    seq = (InferSeq){.tokens = ids, .count = 1, .start = 16, .block_table = blocks};
    CHECK_I64(infer_step(infer, &seq, 1, &logits, &rows, NULL), ERR_ARG); /* block 64 of 64 */
    seq = (InferSeq){.tokens = ids, .count = 1, .start = BLOCK * BLOCKS, .block_table = blocks};
    CHECK_I64(infer_step(infer, &seq, 1, &logits, &rows, NULL), ERR_LIMIT);
    seq = (InferSeq){.tokens = ids, .count = 513, .block_table = blocks};
    CHECK_I64(infer_step(infer, &seq, 1, &logits, &rows, NULL), ERR_LIMIT);
    seq = (InferSeq){.tokens = ids, .count = 1, .block_table = blocks, .logits_from = 1};
    CHECK_I64(infer_step(infer, &seq, 1, &logits, &rows, NULL), ERR_OK);
    CHECK_I64(rows, 0);
    Weights *other = load("tied", MODEL_F32);
    CHECK_I64(infer_set_weights(infer, other, NULL), ERR_ARG);
    CHECK_I64(infer_set_weights(infer, weights, NULL), ERR_OK);
    const InferConfig bad = {.threads = 1, .block_tokens = 10, .blocks = 4, .max_batch_tokens = 4};
    Infer *none = NULL;
    CHECK_I64(infer_new(weights, &bad, &none, NULL), ERR_ARG);
    CHECK(none == NULL);
    weights_unref(other);
    infer_free(infer);
    weights_unref(weights);
}

int main(void)
{
    RUN(golden_forward);
    RUN(golden_logits);
    RUN(golden_greedy);
    RUN(batches_change_no_bit);
    RUN(bf16_batches_change_no_bit);
    RUN(bf16_is_rounded_weights);
    RUN(refuses_bad_steps);
    return test_end();
}
