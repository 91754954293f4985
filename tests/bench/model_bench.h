/* Shared by the model benches: flags, the bench model, and a line per result. */
#ifndef ROLLTOP_TESTS_MODEL_BENCH_H
#define ROLLTOP_TESTS_MODEL_BENCH_H

#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/kernels.h"
#include "core/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BENCH_TRIALS = 4096 };

typedef struct Bench {
    char *dir;      /* checkpoint */
    bool temporary; /* made here */
    double rates[BENCH_TRIALS];
    int trials;
    int64_t tokens, cpu_us;
} Bench;

static inline void bench_stop(Err err, const Fault *fault)
{
    if (err != ERR_OK) {
        fault_print(fault);
        exit(1);
    }
}

/* The model of peers/torch/bench_cpu.py: 2,557,888 parameters, tied. */
static inline ModelConfig bench_config(void)
{
    return (ModelConfig){.arch = MODEL_QWEN3, .layers = 4, .hidden = 192, .heads = 6,
                         .kv_heads = 2, .head_dim = 32, .ffn = 896, .vocab = 512,
                         .max_positions = 1024, .rms_eps = 1e-6f, .rope_theta = 1e6,
                         .tied = true, .bos = -1};
}

static inline void bench_open(Bench *bench, const char *model)
{
    *bench = (Bench){0};
    if (model != NULL) {
        bench->dir = xstrdup(model);
        return;
    }
    Fault fault = {0};
    const ModelConfig config = bench_config();
    bench->dir = xstrdup("/tmp/rolltop-bench-XXXXXX");
    bench->temporary = true;
    if (mkdtemp(bench->dir) == NULL) {
        perror("mkdtemp");
        exit(1);
    }
    bench_stop(weights_init_random(&config, 1, bench->dir, &fault), &fault);
}

static inline void bench_close(Bench *bench)
{
    if (bench->temporary) {
        (void)fs_remove_tree(bench->dir, NULL);
    }
    free(bench->dir);
}

static inline void bench_describe(const ModelConfig *config, const char *dtype, int64_t threads)
{
    printf("model: %s, %lld parameters (%d layers, hidden %d, %d/%d heads of %d, ffn %d, vocab "
           "%d, %s), %s, kernels %s, %lld thread%s\n",
           config->arch == MODEL_QWEN3 ? "qwen3" : "llama",
           (long long)model_parameter_count(config), config->layers, config->hidden, config->heads,
           config->kv_heads, config->head_dim, config->ffn, config->vocab,
           config->tied ? "tied" : "untied", dtype, kernels_best()->name, (long long)threads,
           threads == 1 ? "" : "s");
}

static inline int bench_order(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void bench_trial(Bench *bench, int64_t tokens, int64_t wall_us, int64_t cpu_us)
{
    if (bench->trials < BENCH_TRIALS) {
        bench->rates[bench->trials++] = (double)tokens * 1e6 / (double)(wall_us > 0 ? wall_us : 1);
        bench->tokens += tokens;
        bench->cpu_us += cpu_us;
    }
}

/* The shape of bench_cpu.py's lines, so that the two can stand one above the other. */
static inline void bench_print(Bench *bench, const char *job)
{
    qsort(bench->rates, (size_t)bench->trials, sizeof(double), bench_order);
    printf("%-8s %-28s best %9.0f tok/s   median %9.0f   per CPU second %9.0f   (%d trials)\n",
           "rolltop", job, bench->rates[bench->trials - 1], bench->rates[bench->trials / 2],
           (double)bench->tokens * 1e6 / (double)bench->cpu_us, bench->trials);
    fflush(stdout);
    bench->trials = 0;
    bench->tokens = bench->cpu_us = 0;
}

#endif
