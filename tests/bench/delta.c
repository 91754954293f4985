/* Delta of 1 % changed elements: encode with checksum, apply with checksum, against zstd level 1
 * of the same bytes, in turns. usage: bench_delta [MiB] */
#include "core/policy/delta.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { TURNS = 5 };

static double seconds(int64_t from_us)
{
    return (double)(clock_mono_us() - from_us) / 1e6;
}

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

static void row(DeltaEncoding encoding, bool bf16, size_t n)
{
    unsigned char *before = xcalloc(n, 1);
    unsigned char *after = xcalloc(n, 1);
    unsigned char *copy = xcalloc(n, 1);
    size_t bound = ZSTD_compressBound(n);
    void *packed = xcalloc(bound, 1);
    double encode = 1e9, apply = 1e9, zstd = 1e9;
    size_t frame_n = 0, packed_n = 0;
    uint64_t changed = 0;
    fill(before, after, n, bf16);
    for (int turn = 0; turn < TURNS; turn++) {
        DeltaFrame frame;
        char sum[DELTA_SUM_TEXT];
        int64_t t = clock_mono_us();
        (void)delta_encode(encoding, before, after, n, DELTA_SUM_XXH3_128, &frame, NULL);
        encode = seconds(t) < encode ? seconds(t) : encode;
        memcpy(copy, before, n);
        t = clock_mono_us();
        (void)delta_apply(encoding, frame.bytes, frame.n, copy, n, DELTA_SUM_XXH3_128, sum, NULL);
        apply = seconds(t) < apply ? seconds(t) : apply;
        if (strcmp(frame.sum, sum) != 0) {
            fputs("the delta does not lead to the new tensor\n", stderr);
            exit(1);
        }
        t = clock_mono_us();
        packed_n = ZSTD_compress(packed, bound, after, n, 1);
        zstd = seconds(t) < zstd ? seconds(t) : zstd;
        frame_n = frame.n;
        changed = frame.changed;
        free(frame.bytes);
    }
    printf("delta %-9s %s %zu MiB, %.2f %% of bytes changed: encode %.3f s + apply %.3f s, wire "
           "%.2f %%; zstd -1 %.3f s, %.1f %%; %.1fx faster\n", delta_encoding_name(encoding),
           bf16 ? "BF16" : "FP32", n >> 20, 100.0 * (double)changed / (double)n, encode, apply,
           100.0 * (double)frame_n / (double)n, zstd, 100.0 * (double)packed_n / (double)n,
           zstd / (encode + apply));
    free(before);
    free(after);
    free(copy);
    free(packed);
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
