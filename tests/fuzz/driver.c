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

int main(int argc, char **argv)
{
    long runs = argc > 1 ? strtol(argv[1], NULL, 10) : RUNS;
    size_t seeds = 0;
    while (fuzz_seeds[seeds]) {
        seeds++;
    }
    Rng rng;
    rng_seed(&rng, 20260314);
    uint8_t *input = malloc(INPUT_MAX);
    if (!input) {
        return 1;
    }
    for (long run = 0; run < runs; run++) {
        const char *seed = fuzz_seeds[(size_t)run % seeds];
        size_t n = strlen(seed);
        memcpy(input, seed, n);
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
