/* Generation speed of the model alone: prefill, KV cache, sampling with log-probs, as the engine
 * does it but without HTTP. Beside it: peers/torch/bench_cpu.py --what generate, and
 * peers/smollm/bench_llama.py. Prints, judges nothing. */
#include "core/model/infer.h"
#include "core/model/sampler.h"
#include "tests/bench/model_bench.h"

typedef struct Job {
    int64_t batch, prompt, fresh;
    bool greedy;
} Job;

enum { BLOCK = 16 };

static int32_t draw_greedy(const float *logits, int vocab)
{
    int best = 0;
    for (int i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* One batch from prompt to end; returns new tokens. */
static int64_t generate(Infer *infer, Sampler *sampler, Rng *rng, const Job *job, int vocab)
{
    const int per_seq = (int)((job->prompt + job->fresh + BLOCK - 1) / BLOCK);
    const size_t n = (size_t)job->batch;
    int32_t *tables = xcalloc(n * (size_t)per_seq, sizeof(int32_t));
    int32_t *prompts = xcalloc(n * (size_t)job->prompt, sizeof(int32_t));
    int32_t *last = xcalloc(n, sizeof(int32_t));
    InferSeq *seqs = xcalloc(n, sizeof(InferSeq));
    SamplingParams params = sampling_defaults();
    params.temperature = 1.0f;
    for (size_t s = 0; s < n; s++) {
        for (int i = 0; i < per_seq; i++) {
            tables[s * (size_t)per_seq + (size_t)i] = (int32_t)s * per_seq + i;
        }
        for (int64_t i = 0; i < job->prompt; i++) {
            prompts[s * (size_t)job->prompt + (size_t)i] = (int32_t)rng_below(rng, (uint64_t)vocab);
        }
        seqs[s] = (InferSeq){.tokens = prompts + s * (size_t)job->prompt,
                             .count = (int)job->prompt,
                             .block_table = tables + s * (size_t)per_seq,
                             .logits_from = (int)job->prompt - 1};
    }
    Fault fault = {0};
    for (int64_t i = 0; i < job->fresh; i++) {
        const float *logits;
        int rows;
        bench_stop(infer_step(infer, seqs, (int)n, &logits, &rows, &fault), &fault);
        for (size_t s = 0; s < n; s++) {
            const float *row = logits + s * (size_t)vocab;
            if (job->greedy) {
                last[s] = draw_greedy(row, vocab);
            } else {
                SampledToken token;
                bench_stop(sampler_draw(sampler, row, &params, NULL, (int32_t)i, rng, &token),
                           &fault);
                last[s] = token.id;
            }
            seqs[s].tokens = &last[s];
            seqs[s].count = 1;
            seqs[s].start = (int)(job->prompt + i);
            seqs[s].logits_from = 0;
        }
    }
    free(tables);
    free(prompts);
    free(last);
    free(seqs);
    return job->batch * job->fresh;
}

static void run(Bench *bench, Weights *weights, int64_t threads, const Job *job, double seconds)
{
    Fault fault = {0};
    const int vocab = weights_config(weights)->vocab;
    const int64_t per_seq = (job->prompt + job->fresh + BLOCK - 1) / BLOCK;
    const InferConfig config = {.threads = (int)threads,
                                .block_tokens = BLOCK,
                                .blocks = (int)(job->batch * per_seq),
                                .max_batch_tokens = (int)(job->batch * job->prompt)};
    Infer *infer = NULL;
    bench_stop(infer_new(weights, &config, &infer, &fault), &fault);
    Sampler *sampler = sampler_new(vocab);
    Rng rng;
    rng_seed(&rng, 1);
    (void)generate(infer, sampler, &rng, job, vocab);
    const int64_t end = clock_mono_us() + (int64_t)(seconds * 1e6);
    do {
        const int64_t wall = clock_mono_us();
        const int64_t cpu = clock_cpu_us();
        const int64_t tokens = generate(infer, sampler, &rng, job, vocab);
        bench_trial(bench, tokens, clock_mono_us() - wall, clock_cpu_us() - cpu);
    } while (clock_mono_us() < end || bench->trials < 3);
    char name[96];
    (void)snprintf(name, sizeof(name), "generate %lld x (%lld + %lld)%s", (long long)job->batch,
                   (long long)job->prompt, (long long)job->fresh, job->greedy ? " greedy" : "");
    bench_print(bench, name);
    sampler_free(sampler);
    infer_free(infer);
}

int main(int argc, char **argv)
{
    const char *model = NULL;
    const char *dtype = "float32";
    int64_t threads = 1;
    Job job = {.batch = 32, .prompt = 32, .fresh = 96};
    double seconds = 4.0;
    const FlagSpec specs[] = {
        {"model", FLAG_STRING, &model, 0, 0, "DIR", "checkpoint; default: 2.6M parameters", NULL},
        {"dtype", FLAG_STRING, &dtype, 0, 0, "TYPE", "float32 or bfloat16 weights", NULL},
        {"threads", FLAG_INT, &threads, 1, 256, "N", "threads", NULL},
        {"batch", FLAG_INT, &job.batch, 1, 4096, "N", "sequences", NULL},
        {"prompt", FLAG_INT, &job.prompt, 1, 65536, "N", "prompt tokens of each", NULL},
        {"new", FLAG_INT, &job.fresh, 1, 65536, "N", "new tokens of each", NULL},
        {"greedy", FLAG_SWITCH, &job.greedy, 0, 0, NULL, "no sampling", NULL},
        {"seconds", FLAG_DOUBLE, &seconds, 0, 600, "S", "time of one row", NULL},
    };
    const size_t count = sizeof(specs) / sizeof(specs[0]);
    FlagRest rest = {0};
    Fault fault = {0};
    bench_stop(flags_parse(specs, count, argc, argv, &rest, &fault), &fault);
    Bench *bench = xcalloc(1, sizeof(*bench));
    bench_open(bench, model);
    Weights *weights = NULL;
    bench_stop(weights_load(bench->dir, strcmp(dtype, "bfloat16") == 0 ? MODEL_BF16 : MODEL_F32,
                            &weights, &fault),
               &fault);
    bench_describe(weights_config(weights), dtype, threads);
    run(bench, weights, threads, &job, seconds);
    if (model == NULL && argc == 1) { /* the peer's second row */
        job.prompt = 16;
        job.fresh = 32;
        run(bench, weights, threads, &job, seconds);
    }
    weights_unref(weights);
    bench_close(bench);
    free(bench);
    flags_free(specs, count, &rest);
    return 0;
}
