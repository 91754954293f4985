/* Delta of 1 % changed elements: encode with checksum and apply with checksum, against zstd level 1
 * of the same bytes, tensor by tensor, in turns, the least time of each. CPU on one thread against
 * one thread is the ratio that load does not move; the wall on two threads is what a publisher and
 * an engine wait, beside a zstd that has one. usage: bench_delta [MiB] */
#include "core/policy/delta.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/safetensors.h"
#include "core/policy/delta_each.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

enum { TURNS = 5, TENSORS = 16 };

static void fill(unsigned char *before, unsigned char *after, size_t n, bool bf16)
{
    Rng rng;
    rng_seed(&rng, 1);
    size_t size = bf16 ? 2 : 4;
    for (size_t i = 0; i < n / size; i++) {
        float old = (float)(0.02 * rng_normal(&rng));
        float new = rng_below(&rng, 100) == 0 ? old * (bf16 ? 1.01F : 1.00001F) : old;
        uint16_t halves[2] = {bf16_from_f32(old), bf16_from_f32(new)};
        memcpy(before + i * size, bf16 ? (void *)&halves[0] : (void *)&old, size);
        memcpy(after + i * size, bf16 ? (void *)&halves[1] : (void *)&new, size);
    }
}

typedef struct Job { /* one tensor after another in each of the buffers */
    DeltaEncoding encoding;
    unsigned char *before, *after, *copy, *packed;
    size_t n, bound; /* bytes of a tensor, and of its room in `packed` */
    DeltaFrame frames[TENSORS];
    size_t packed_n[TENSORS];
} Job;

static Err encode(void *context, DeltaScratch *scratch, size_t at, Fault *fault)
{
    Job *job = context;
    return delta_encode(scratch, job->encoding, job->before + at * job->n,
                        job->after + at * job->n, job->n, DELTA_SUM_XXH3_128, &job->frames[at],
                        fault);
}

static Err apply(void *context, DeltaScratch *scratch, size_t at, Fault *fault)
{
    Job *job = context;
    const DeltaFrame *frame = &job->frames[at];
    char sum[DELTA_SUM_TEXT];
    Err err = delta_apply(scratch, job->encoding, frame->bytes, frame->n, job->copy + at * job->n,
                          job->n, DELTA_SUM_XXH3_128, sum, fault);
    if (err == ERR_OK && strcmp(sum, frame->sum) != 0) {
        err = fault_set(fault, ERR_STATE, NULL, "the delta does not lead to the new tensor");
    }
    return err;
}

static Err pack(void *context, DeltaScratch *scratch, size_t at, Fault *fault)
{
    Job *job = context;
    (void)scratch;
    (void)fault;
    job->packed_n[at] = ZSTD_compress(job->packed + at * job->bound, job->bound,
                                      job->after + at * job->n, job->n, 1);
    return ERR_OK;
}

typedef struct Cost { /* seconds, the least of the turns */
    double wall, cpu;
} Cost;

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* All tensors: on two threads as publisher and puller do it, or one by one. */
static void measure(Job *job, DeltaWork *work, bool threads, Cost *least)
{
    size_t sizes[TENSORS];
    Fault fault = {0};
    Err err = ERR_OK;
    for (int i = 0; i < TENSORS; i++) {
        sizes[i] = job->n;
    }
    const double cpu = cpu_seconds();
    const int64_t wall = clock_mono_us();
    DeltaScratch *scratch = delta_scratch_new();
    for (size_t i = 0; !threads && i < TENSORS && err == ERR_OK; i++) {
        err = work(job, scratch, i, &fault);
    }
    delta_scratch_free(scratch);
    err = threads ? delta_each(sizes, TENSORS, work, job, &fault) : err;
    const Cost cost = {(double)(clock_mono_us() - wall) / 1e6, cpu_seconds() - cpu};
    if (err != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    least->wall = cost.wall < least->wall ? cost.wall : least->wall;
    least->cpu = cost.cpu < least->cpu ? cost.cpu : least->cpu;
}

static void release(Job *job)
{
    for (int i = 0; i < TENSORS; i++) {
        free(job->frames[i].bytes);
        job->frames[i].bytes = NULL;
    }
}

static void report(const Job *job, bool bf16, const Cost cost[5])
{
    size_t wire = 0;
    size_t packed = 0;
    uint64_t changed = 0;
    const double all = (double)(job->n * TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        wire += job->frames[i].n;
        packed += job->packed_n[i];
        changed += job->frames[i].changed;
    }
    printf("delta %-9s %s %zu MiB in %d tensors, %.2f %% of bytes changed, wire %.2f %%; zstd -1 "
           "%.1f %%\n", delta_encoding_name(job->encoding), bf16 ? "BF16" : "FP32",
           job->n * TENSORS >> 20, TENSORS, 100.0 * (double)changed / all,
           100.0 * (double)wire / all, 100.0 * (double)packed / all);
    printf("  one thread, CPU: encode %.1f ms + apply %.1f ms; zstd -1 %.1f ms; %.2fx faster\n",
           1e3 * cost[0].cpu, 1e3 * cost[1].cpu, 1e3 * cost[4].cpu,
           cost[4].cpu / (cost[0].cpu + cost[1].cpu));
    printf("  one thread, wall: encode %.1f ms + apply %.1f ms; zstd -1 %.1f ms; %.2fx faster\n",
           1e3 * cost[0].wall, 1e3 * cost[1].wall, 1e3 * cost[4].wall,
           cost[4].wall / (cost[0].wall + cost[1].wall));
    printf("  two threads, wall: encode %.1f ms + apply %.1f ms; zstd -1 on one %.1f ms; %.2fx "
           "faster\n", 1e3 * cost[2].wall, 1e3 * cost[3].wall, 1e3 * cost[4].wall,
           cost[4].wall / (cost[2].wall + cost[3].wall));
}

static void row(DeltaEncoding encoding, bool bf16, size_t n)
{
    Job job = {.encoding = encoding, .n = n / TENSORS};
    job.bound = ZSTD_compressBound(job.n);
    job.before = xcalloc(n, 1);
    job.after = xcalloc(n, 1);
    job.copy = xcalloc(n, 1);
    job.packed = xcalloc(TENSORS, job.bound);
    Cost cost[5]; /* encode and apply on one thread, on two, zstd */
    for (int i = 0; i < 5; i++) {
        cost[i] = (Cost){1e9, 1e9};
    }
    fill(job.before, job.after, n, bf16);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int threads = 0; threads < 2; threads++) {
            release(&job);
            measure(&job, encode, threads != 0, &cost[2 * threads]);
            memcpy(job.copy, job.before, n);
            measure(&job, apply, threads != 0, &cost[2 * threads + 1]);
        }
        measure(&job, pack, false, &cost[4]);
    }
    report(&job, bf16, cost);
    release(&job);
    free(job.before);
    free(job.after);
    free(job.copy);
    free(job.packed);
}

int main(int argc, char **argv)
{
    long asked = argc > 1 ? strtol(argv[1], NULL, 10) : 64;
    size_t n = (size_t)(asked > 0 && asked <= 2048 ? asked : 64) << 20;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        row(DELTA_OVERWRITE, bf16 != 0, n);
        row(DELTA_XOR, bf16 != 0, n);
    }
    return 0;
}
