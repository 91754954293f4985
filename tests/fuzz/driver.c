/* Bounded mutation runs of a fuzz target: bytes changed, cut, doubled, spliced. The same
 * inputs come in every run, so a failure is there again under a debugger. */
#include "tests/fuzz/fuzz.h"

#include "core/base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 65536, RUNS = 20000 };

static size_t mutate(Rng *rng, uint8_t *input, size_t n)
{
    int edits = 1 + (int)rng_below(rng, 4);
    for (int i = 0; i < edits; i++) {
        size_t at = n ? (size_t)rng_below(rng, n) : 0;
        switch (rng_below(rng, 6)) {
        case 0:
            if (n) {
                input[at] = (uint8_t)rng_below(rng, 256);
            }
            break;
        case 1:
            if (n) {
                input[at] ^= (uint8_t)(1u << rng_below(rng, 8));
            }
            break;
        case 2:
            n = at;
            break;
        case 3: { /* a piece stands twice */
            size_t length = n ? 1 + (size_t)rng_below(rng, n - at) : 0;
            if (n + length <= INPUT_MAX) {
                memmove(input + at + length, input + at, n - at);
                n += length;
            }
            break;
        }
        case 4: { /* a piece is gone */
            size_t length = n ? (size_t)rng_below(rng, n - at) : 0;
            memmove(input + at, input + at + length, n - at - length);
            n -= length;
            break;
        }
        default: {
            static const char *const words[] = {"null", "1e999", "-9223372036854775809", "\\u0000",
                                                "\xff\xfe", "NaN", "[[[[", "\r\n\r\n", "\"", "{}"};
            const char *word = words[rng_below(rng, 10)];
            size_t length = strlen(word);
            if (at + length <= n) {
                memcpy(input + at, word, length);
            }
            break;
        }
        }
    }
    return n;
}

static size_t seed_count(void)
{
    size_t count = 0;
    const uint8_t *data = NULL;
    size_t size = 0;
    while (fuzz_seeds[count]) {
        count++;
    }
    for (size_t i = 0; fuzz_recorded && fuzz_recorded(i, &data, &size); i++) {
        count++;
    }
    return count;
}

static size_t seed_copy(size_t number, uint8_t *out)
{
    size_t written = 0;
    size_t n = 0;
    const uint8_t *data = NULL;
    while (fuzz_seeds[written] && written < number) {
        written++;
    }
    if (fuzz_seeds[written]) {
        n = strlen(fuzz_seeds[written]);
        data = (const uint8_t *)fuzz_seeds[written];
    } else if (!fuzz_recorded(number - written, &data, &n)) {
        return 0;
    }
    n = n < INPUT_MAX ? n : INPUT_MAX;
    memcpy(out, data, n);
    return n;
}

/* One file a seed, as libFuzzer takes them. */
static int write_corpus(const char *folder, size_t seeds, uint8_t *input)
{
    for (size_t i = 0; i < seeds; i++) {
        char path[4096];
        size_t n = seed_copy(i, input);
        int length = snprintf(path, sizeof path, "%s/%04zu", folder, i);
        FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "wb") : NULL;
        if (!file || fwrite(input, 1, n, file) != n || fclose(file) != 0) {
            fprintf(stderr, "cannot write %s\n", path);
            return 1;
        }
    }
    printf("%zu files in %s\n", seeds, folder);
    return 0;
}

/* NAME_fuzz [RUNS], or NAME_fuzz --corpus DIR */
int main(int argc, char **argv)
{
    const bool corpus = argc == 3 && strcmp(argv[1], "--corpus") == 0;
    long runs = argc > 1 && !corpus ? strtol(argv[1], NULL, 10) : RUNS;
    size_t seeds = seed_count();
    Rng rng;
    rng_seed(&rng, 20260314);
    uint8_t *input = malloc(INPUT_MAX);
    if (!input) {
        return 1;
    }
    if (corpus) {
        int status = write_corpus(argv[2], seeds, input);
        free(input);
        return status;
    }
    for (long run = 0; run < runs; run++) {
        size_t n = seed_copy((size_t)run % seeds, input);
        if ((size_t)run >= seeds) { /* the seeds themselves come first, as they are */
            n = mutate(&rng, input, n);
        }
        /* A copy of the exact size, so that a read past the end is seen by ASan. */
        uint8_t *exact = malloc(n ? n : 1);
        if (!exact) {
            return 1;
        }
        memcpy(exact, input, n);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
    }
    free(input);
    printf("%ld inputs, nothing broke\n", runs);
    return 0;
}
