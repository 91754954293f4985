#include "core/policy/holds.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The first reason is the one that is told. */
__attribute__((format(printf, 2, 3)))
static void against(Hold *row, const char *format, ...)
{
    if (!row->why[0]) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(row->why, sizeof row->why, format, args);
        va_end(args);
    }
}

static double distance(const float *a, int a_count, const float *b, int b_count)
{
    double worst = a_count == b_count ? 0.0 : INFINITY;
    for (int i = 0; i < a_count && a_count == b_count; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        worst = isfinite(d) ? fmax(worst, d) : INFINITY;
    }
    return worst;
}

static bool same_version(const Hold *a, const Hold *b, double tolerance)
{
    (void)tolerance;
    return a->version >= 0 && a->version == b->version;
}

static bool same_sum(const Hold *a, const Hold *b, double tolerance)
{
    (void)tolerance;
    return a->digest[0] && b->digest[0] && !a->same_digest && !b->same_digest &&
           strcmp(a->digest, b->digest) == 0;
}

static bool near(const Hold *a, const Hold *b, double tolerance)
{
    return a->logprob_count > 0 && b->logprob_count > 0 &&
           distance(a->logprobs, a->logprob_count, b->logprobs, b->logprob_count) <= tolerance;
}

/* The row that most of those asked agree with; NULL: none is like itself, so there is nothing. */
static const Hold *most_like(const Hold *rows, int count, double tolerance,
                             bool (*alike)(const Hold *, const Hold *, double))
{
    const Hold *best = NULL;
    int best_with = 0;
    for (int i = 0; i < count; i++) {
        int with = 0;
        for (int j = 0; j < count && rows[i].asked; j++) {
            with += rows[j].asked && alike(&rows[i], &rows[j], tolerance);
        }
        if (with > best_with) {
            best_with = with;
            best = &rows[i];
        }
    }
    return best;
}

static void judge_versions(Hold *rows, int count, int64_t wanted)
{
    const Hold *most = most_like(rows, count, 0.0, same_version);
    wanted = wanted < 0 && most ? most->version : wanted;
    for (int i = 0; i < count; i++) {
        if (rows[i].asked && rows[i].version != wanted) {
            against(&rows[i], "reports version %lld, not %lld", (long long)rows[i].version,
                    (long long)wanted);
        }
    }
}

static void judge_sums(Hold *rows, int count, const char *wanted)
{
    const Hold *most = most_like(rows, count, 0.0, same_sum);
    for (int i = 0; i < count; i++) {
        Hold *row = &rows[i];
        if (!row->asked || !row->digest[0]) {
            continue;
        }
        if (row->same_digest && wanted && wanted[0] && strcmp(row->digest, wanted) != 0) {
            against(row, "its checksum is %.32s, the policy's digest %.32s", row->digest, wanted);
        } else if (!row->same_digest && most && strcmp(row->digest, most->digest) != 0) {
            against(row, "its checksum differs from the other engines'");
        }
    }
}

static void judge_canaries(Hold *rows, int count, const HoldExpect *expect)
{
    const Hold *most = most_like(rows, count, expect->tolerance, near);
    const float *wanted = expect->logprobs ? expect->logprobs : most ? most->logprobs : NULL;
    int wanted_count = expect->logprobs ? expect->logprob_count : most ? most->logprob_count : 0;
    for (int i = 0; i < count; i++) {
        Hold *row = &rows[i];
        if (row->logprob_count == 0 || !wanted || (most == row && !expect->logprobs)) {
            continue;
        }
        row->off = distance(row->logprobs, row->logprob_count, wanted, wanted_count);
        if (row->asked && !(row->off <= expect->tolerance)) {
            against(row, "its canary is %.3g away from %s", row->off,
                    expect->logprobs ? "the policy's" : "the other engines'");
        }
    }
}

int holds_judge(Hold *rows, int count, const HoldExpect *expect)
{
    int failed = 0;
    for (int i = 0; i < count; i++) {
        rows[i].off = -1.0;
        rows[i].why[0] = '\0';
        if (rows[i].asked && rows[i].error[0]) {
            against(&rows[i], "%s", rows[i].error);
        }
    }
    judge_versions(rows, count, expect->version);
    judge_sums(rows, count, expect->digest);
    judge_canaries(rows, count, expect);
    for (int i = 0; i < count; i++) {
        rows[i].holds = rows[i].asked && !rows[i].why[0];
        failed += rows[i].asked && !rows[i].holds;
    }
    return failed;
}
