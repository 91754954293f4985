/* The check of a published checkpoint of 1.2 GB (the shape of Qwen3-0.6B) against reading it:
 * `cat FILE > /dev/null` from the page cache, in turns on the same cores. Wall and CPU time of
 * both. Digest: XXH3-128 in one chain, so one core reads and hashes while another one reads and
 * sums squares; neither can be faster than its own copy out of the page cache, which is all that
 * cat does. usage: bench_artifact [TURNS] */
#include "core/policy/artifact.h"

#include "core/model/safetensors.h"
#include "tests/bench/model_bench.h"

#include <sys/resource.h>
#include <sys/wait.h>

enum { TURNS_MAX = 64, FILL = 1 << 20 };

typedef struct Took {
    double wall, cpu;
} Took;

static double cpu_of(int who)
{
    struct rusage u;
    (void)getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void make(const char *dir, bool bf16)
{
    const ModelConfig config = {.arch = MODEL_QWEN3, .layers = 28, .hidden = 1024, .heads = 16,
                                .kv_heads = 8, .head_dim = 128, .ffn = 3072,
                                .vocab = bf16 ? 151936 : 4096, .max_positions = 4096,
                                .rms_eps = 1e-6f, .rope_theta = 1e6, .tied = true,
                                .dtype = bf16 ? MODEL_BF16 : MODEL_F32, .bos = -1, .eos = {1},
                                .eos_count = 1};
    const size_t size = bf16 ? 2 : 4;
    const size_t most = (size_t)config.vocab * 1024 > (size_t)3072 * 1024
                            ? (size_t)config.vocab * 1024 : (size_t)3072 * 1024;
    const int count = model_tensor_count(&config);
    StWriteTensor *tensors = xcalloc((size_t)count, sizeof *tensors);
    ModelTensorSpec *specs = xcalloc((size_t)count, sizeof *specs);
    unsigned char *data = xcalloc(most, size);
    Fault fault = {0};
    Rng rng;
    rng_seed(&rng, 1);
    for (size_t i = 0; i < FILL; i++) {
        const float value = 0.02f * (float)rng_normal(&rng);
        const uint16_t half = bf16_from_f32(value);
        memcpy(data + i * size, bf16 ? (const void *)&half : (const void *)&value, size);
    }
    for (size_t at = FILL; at < most; at += FILL) {
        memcpy(data + at * size, data, (most - at < FILL ? most - at : FILL) * size);
    }
    for (int i = 0; i < count; i++) {
        model_tensor_spec(&config, i, &specs[i]);
        tensors[i] = (StWriteTensor){.name = specs[i].name, .dtype = bf16 ? ST_BF16 : ST_F32,
                                     .rank = specs[i].rank, .data = data};
        memcpy(tensors[i].shape, specs[i].shape, sizeof specs[i].shape[0] * (size_t)specs[i].rank);
    }
    char *path = fs_join(dir, "model.safetensors");
    bench_stop(model_config_save(&config, dir, &fault), &fault);
    bench_stop(st_write(path, tensors, (size_t)count, NULL, &fault), &fault);
    free(path);
    free(data);
    free(specs);
    free(tensors);
}

static Took read_it(const char *dir)
{
    char *command = xasprintf("cat %s/model.safetensors > /dev/null", dir);
    const double cpu = cpu_of(RUSAGE_CHILDREN);
    const int64_t from = clock_mono_us();
    if (system(command) != 0) {
        exit(1);
    }
    const int64_t took = clock_mono_us() - from;
    free(command);
    return (Took){(double)took / 1e6, cpu_of(RUSAGE_CHILDREN) - cpu};
}

static Took check_it(const char *dir, Artifact *out)
{
    Fault fault = {0};
    const double cpu = cpu_of(RUSAGE_SELF);
    const int64_t from = clock_mono_us();
    bench_stop(artifact_check(dir, NULL, 0, out, &fault), &fault);
    const int64_t took = clock_mono_us() - from;
    return (Took){(double)took / 1e6, cpu_of(RUSAGE_SELF) - cpu};
}

static double middle(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, bench_order);
    return values[n / 2];
}

static void row(bool bf16, int turns)
{
    char dir[] = "/tmp/rolltop-bench-XXXXXX";
    double ratios[TURNS_MAX];
    double cpu_ratios[TURNS_MAX];
    double cats[TURNS_MAX];
    double checks[TURNS_MAX];
    int64_t bytes = 0;
    if (mkdtemp(dir) == NULL) {
        perror("mkdtemp");
        exit(1);
    }
    make(dir, bf16);
    (void)read_it(dir);
    for (int i = 0; i < turns; i++) {
        Artifact artifact;
        const Took cat = read_it(dir);
        const Took check = check_it(dir, &artifact);
        bytes = artifact.bytes;
        cats[i] = cat.wall;
        checks[i] = check.wall;
        ratios[i] = check.wall / cat.wall;
        cpu_ratios[i] = check.cpu / cat.cpu;
        artifact_free(&artifact);
    }
    qsort(ratios, (size_t)turns, sizeof *ratios, bench_order);
    printf("%s, %.2f GB: check %.3f s, cat %.3f s (medians of %d turns); wall %.2fx (%.2fx to "
           "%.2fx), CPU %.2fx\n", bf16 ? "BF16" : "FP32", (double)bytes / 1e9,
           middle(checks, turns), middle(cats, turns), turns, ratios[turns / 2], ratios[0],
           ratios[turns - 1], middle(cpu_ratios, turns));
    fflush(stdout);
    (void)fs_remove_tree(dir, NULL);
}

int main(int argc, char **argv)
{
    int turns = argc > 1 ? atoi(argv[1]) : 7;
    turns = turns < 1 ? 1 : turns > TURNS_MAX ? TURNS_MAX : turns;
    printf("kernels %s\n", kernels_best()->name);
    row(true, turns);
    row(false, turns);
    return 0;
}
