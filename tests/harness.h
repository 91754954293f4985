/* Thirty lines of test harness: each check prints both values and goes on; one process a file. */
#ifndef ROLLTOP_TESTS_HARNESS_H
#define ROLLTOP_TESTS_HARNESS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static _Atomic int test_checks, test_failures; /* some tests check on two threads */

static inline void test_result(int good, const char *file, int line, const char *text)
{
    test_checks++;
    if (!good) {
        test_failures++;
        fprintf(stderr, "%s:%d: FAILED %s", file, line, text);
    }
}
#define CHECK(cond)                                                                               \
    do {                                                                                          \
        int good_ = (cond) ? 1 : 0;                                                               \
        test_result(good_, __FILE__, __LINE__, #cond);                                            \
        if (!good_) fputc('\n', stderr);                                                          \
    } while (0)
#define CHECK_WITH_(cond, text, format, a, b)                                                     \
    do {                                                                                          \
        int good_ = (cond) ? 1 : 0;                                                               \
        test_result(good_, __FILE__, __LINE__, text);                                             \
        if (!good_) fprintf(stderr, ": " format " against " format "\n", a, b);                   \
    } while (0)
#define CHECK_I64(a, b)                                                                           \
    do {                                                                                          \
        long long a_ = (long long)(a), b_ = (long long)(b);                                       \
        CHECK_WITH_(a_ == b_, #a " == " #b, "%lld", a_, b_);                                      \
    } while (0)
#define CHECK_NEAR(a, b, tolerance)                                                               \
    do {                                                                                          \
        double a_ = (double)(a), b_ = (double)(b);                                                \
        CHECK_WITH_(fabs(a_ - b_) <= (tolerance), #a " ~ " #b, "%.17g", a_, b_);                  \
    } while (0)
#define CHECK_STR(a, b)                                                                           \
    do {                                                                                          \
        const char *a_ = (a), *b_ = (b);                                                          \
        CHECK_WITH_(a_ && b_ && strcmp(a_, b_) == 0, #a " == " #b, "\"%s\"",                      \
                    a_ ? a_ : "(null)", b_ ? b_ : "(null)");                                      \
    } while (0)
#define RUN(function)                                                                             \
    do {                                                                                          \
        int before_ = test_failures;                                                              \
        function();                                                                               \
        printf("%s %s\n", test_failures == before_ ? "ok  " : "FAIL", #function);                 \
    } while (0)
/* The last line of main. 77 from a test means skipped, with a plain word printed before. */
static inline int test_end(void)
{
    printf("%d checks, %d failed\n", test_checks, test_failures);
    return test_failures != 0;
}

#endif
