/* Reading one unary reply with log-probs of 8,192 tokens (and one of 512), as SGLang prints it:
 * the scanner with every check of the client, against memchr over the same bytes in the same turn.
 * memchr is run twice: once for a byte that is not there, which is the speed of the memory, and
 * from comma to comma, which is what any reader of numbers has to find at least. */
#include "core/fleet/generate.h"
#include "tests/bench/reply_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 9 };

/* CPU time: other load on the machine must not count. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double scan_s(Str reply, int tokens, int repeats)
{
    double from = cpu_s();
    for (int i = 0; i < repeats; i++) {
        GenerateResult result;
        GenerateScan *scan = generate_scan_new(REPLY_VOCAB, (size_t)tokens);
        Err err = generate_scan_event(scan, reply, NULL);
        generate_scan_result(scan, &result);
        if (err || result.end != GENERATE_LENGTH || result.count != (size_t)tokens) {
            fprintf(stderr, "scan: the reply was not taken: %s\n", result.detail);
            exit(1);
        }
        generate_scan_free(scan);
    }
    return (cpu_s() - from) / repeats;
}

static size_t found; /* keeps memchr's work alive */

static double memchr_s(Str reply, char wanted, int repeats)
{
    double from = cpu_s();
    for (int i = 0; i < repeats; i++) {
        const char *p = reply.p;
        const char *end = p + reply.n;
        __asm__ volatile("" : "+r"(p)); /* or the compiler sees that every turn is the same */
        while (p && p < end) {
            p = memchr(p, wanted, (size_t)(end - p));
            p = p ? p + 1 : NULL;
            found++;
        }
    }
    return (cpu_s() - from) / repeats;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int tokens)
{
    double scan[TURNS];
    double memory[TURNS];
    double commas[TURNS];
    double ratio[TURNS];
    Text reply;
    text_init(&reply, (size_t)64 << 20);
    make_reply(&reply, tokens, "bench", 5);
    const int repeats = (64 << 20) / (int)reply.n / 4;
    for (int i = 0; i < TURNS; i++) {
        scan[i] = scan_s(text_str(&reply), tokens, repeats);
        memory[i] = memchr_s(text_str(&reply), '\n', repeats);
        commas[i] = memchr_s(text_str(&reply), ',', repeats);
        ratio[i] = scan[i] / commas[i];
    }
    qsort(scan, TURNS, sizeof *scan, by_value);
    qsort(memory, TURNS, sizeof *memory, by_value);
    qsort(commas, TURNS, sizeof *commas, by_value);
    qsort(ratio, TURNS, sizeof *ratio, by_value);
    const double megabytes = (double)reply.n / 1e6;
    printf("scan: %d tokens, %zu bytes, median of %d turns\n", tokens, reply.n, TURNS);
    printf("  scanner             %7.0f MB/s, %.1f ns a token\n", megabytes / scan[TURNS / 2],
           scan[TURNS / 2] * 1e9 / tokens);
    printf("  memchr to commas    %7.0f MB/s\n", megabytes / commas[TURNS / 2]);
    printf("  memchr, no match    %7.0f MB/s\n", megabytes / memory[TURNS / 2]);
    printf("  ratio               %7.2f (%.2f to %.2f), scanner's time to memchr from comma to "
           "comma\n", ratio[TURNS / 2], ratio[0], ratio[TURNS - 1]);
    text_free(&reply);
}

int main(void)
{
    measure(8192);
    measure(512);
    return 0;
}
