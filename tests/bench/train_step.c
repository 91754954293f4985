/* Speed of training steps: forward, log-prob loss, backward, clipping and AdamW in FP32. Beside
 * it: peers/torch/bench_cpu.py --what train, and peers/smollm/bench_torch.py --train-only. Prints,
 * judges nothing. */
#include "core/model/graph.h"
#include "core/train/adamw.h"
#include "tests/bench/model_bench.h"

typedef struct Job {
    int64_t batch, length;
} Job;

typedef struct Batch {
    int32_t *tokens, *starts;
    float *logp, *weights;
    PackedBatch packed;
} Batch;

static Batch make(const Job *job, int vocab)
{
    const size_t n = (size_t)(job->batch * job->length);
    Batch batch = {.tokens = xcalloc(n, sizeof(int32_t)),
                   .starts = xcalloc((size_t)job->batch + 1, sizeof(int32_t)),
                   .logp = xcalloc(n, sizeof(float)),
                   .weights = xcalloc(n, sizeof(float))};
    Rng rng;
    rng_seed(&rng, 1);
    for (size_t i = 0; i < n; i++) {
        batch.tokens[i] = (int32_t)rng_below(&rng, (uint64_t)vocab);
        batch.weights[i] = -1.0f / (float)n; /* mean negative log-likelihood */
    }
    for (int64_t s = 0; s <= job->batch; s++) {
        batch.starts[s] = (int32_t)(s * job->length);
    }
    batch.packed = (PackedBatch){.tokens = batch.tokens, .starts = batch.starts,
                                 .n_seqs = (int)job->batch, .n_tokens = (int)n};
    return batch;
}

static void run(Bench *bench, const char *dir, int64_t threads, const Job *job, double seconds)
{
    Fault fault = {0};
    const GraphConfig config = {.threads = (int)threads,
                                .max_tokens = (int)(job->batch * job->length)};
    Graph *graph = NULL;
    bench_stop(graph_new(dir, &config, &graph, &fault), &fault);
    const AdamWConfig settings = {.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                                  .weight_decay = 0.1, .clip_grad = 1.0};
    AdamW *adamw = adamw_new(graph, &settings);
    Batch batch = make(job, graph_config(graph)->vocab);
    int64_t end = 0;
    int64_t parts[3] = {0};
    for (int i = 0; i < 5 || clock_mono_us() < end; i++) {
        const int64_t wall = clock_mono_us();
        const int64_t cpu = clock_cpu_us();
        graph_zero_grad(graph);
        bench_stop(graph_forward(graph, &batch.packed, 1.0f, true, batch.logp, NULL, &fault),
                   &fault);
        const int64_t forward = clock_mono_us();
        bench_stop(graph_backward(graph, batch.weights, NULL, &fault), &fault);
        const int64_t backward = clock_mono_us();
        double norm;
        bench_stop(adamw_step(adamw, &norm, &fault), &fault);
        const int64_t done = clock_mono_us();
        if (i == 1) { /* two rounds to warm up */
            end = done + (int64_t)(seconds * 1e6);
        } else if (i > 1) {
            bench_trial(bench, job->batch * job->length, done - wall, clock_cpu_us() - cpu);
            parts[0] += forward - wall;
            parts[1] += backward - forward;
            parts[2] += done - backward;
        }
    }
    char name[96];
    (void)snprintf(name, sizeof(name), "train %lld x %lld", (long long)job->batch,
                   (long long)job->length);
    const double all = (double)(parts[0] + parts[1] + parts[2]) / 100.0;
    bench_print(bench, name);
    printf("         of it forward %.0f %%, backward %.0f %%, AdamW %.0f %%\n",
           (double)parts[0] / all, (double)parts[1] / all, (double)parts[2] / all);
    adamw_free(adamw);
    graph_free(graph);
    free(batch.tokens);
    free(batch.starts);
    free(batch.logp);
    free(batch.weights);
}

int main(int argc, char **argv)
{
    const char *model = NULL;
    int64_t threads = 1;
    Job job = {.batch = 32, .length = 128};
    double seconds = 4.0;
    const FlagSpec specs[] = {
        {"model", FLAG_STRING, &model, 0, 0, "DIR", "checkpoint; default: 2.6M parameters", NULL},
        {"threads", FLAG_INT, &threads, 1, 256, "N", "threads", NULL},
        {"batch", FLAG_INT, &job.batch, 1, 65536, "N", "sequences of one step", NULL},
        {"length", FLAG_INT, &job.length, 2, 65536, "N", "tokens of each", NULL},
        {"seconds", FLAG_DOUBLE, &seconds, 0, 600, "S", "time of one row", NULL},
    };
    const size_t count = sizeof(specs) / sizeof(specs[0]);
    FlagRest rest = {0};
    Fault fault = {0};
    bench_stop(flags_parse(specs, count, argc, argv, &rest, &fault), &fault);
    Bench *bench = xcalloc(1, sizeof(*bench));
    bench_open(bench, model);
    ModelConfig config;
    bench_stop(model_config_load(bench->dir, &config, &fault), &fault);
    bench_describe(&config, "float32", threads);
    run(bench, bench->dir, threads, &job, seconds);
    if (argc == 1) { /* the peer's other rows */
        const Job more[] = {{8, 128}, {32, 32}, {128, 32}};
        for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
            run(bench, bench->dir, threads, &more[i], seconds);
        }
    }
    bench_close(bench);
    free(bench);
    flags_free(specs, count, &rest);
    return 0;
}
