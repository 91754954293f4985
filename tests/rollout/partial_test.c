/* Samples of several attempts put together, and stop strings across the seam. */
#include "core/rollout/partial.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "tests/harness.h"

#include <stdlib.h>

static Tokenizer *tokenizer;

static TokenIds ids_of(const char *text)
{
    TokenIds ids = {0};
    CHECK_I64(tokenizer_encode(tokenizer, str_from(text), &ids, NULL), ERR_OK);
    return ids;
}

static Partial join(const char *first, int64_t first_policy, const char *second,
                    int64_t second_policy)
{
    TokenIds a = ids_of(first);
    TokenIds b = ids_of(second);
    float logprobs[64];
    for (int i = 0; i < 64; i++) {
        logprobs[i] = -(float)i;
    }
    SampleSpan before = {0, (int32_t)a.count, first_policy};
    SampleSpan after = {0, (int32_t)b.count, second_policy};
    RolloutSample kept = {.ids = a.ids, .logprobs = logprobs, .count = a.count, .spans = &before,
                          .span_count = 1};
    RolloutAttemptEnd newest = {.ids = b.ids, .logprobs = logprobs, .count = b.count,
                                .spans = &after, .span_count = b.count > 0};
    Partial p;
    partial_join(&p, &kept, &newest);
    token_ids_free(&a);
    token_ids_free(&b);
    return p;
}

static void joins(void)
{
    Partial p = join("abc", 5, "de", 6);
    CHECK_I64(p.count, 5);
    CHECK_I64(p.span_count, 2);
    CHECK_I64(p.spans[1].from, 3);
    CHECK_I64(p.spans[1].to, 5);
    CHECK_I64(p.spans[1].policy_version, 6);
    CHECK_NEAR(p.logprobs[4], -1.0, 0);
    CHECK(!partial_decode(&p, tokenizer, true, NULL));
    CHECK_STR(text_c(&p.text), "abcde");
    partial_free(&p);
    p = join("abc", 5, "de", 5); /* the same policy: one span */
    CHECK_I64(p.span_count, 1);
    CHECK_I64(p.spans[0].to, 5);
    partial_free(&p);
    p = join("abc", 5, "", 6);
    CHECK_I64(p.count, 3);
    CHECK_I64(p.span_count, 1);
    CHECK(p.logprobs != NULL);
    partial_free(&p);
}

static void stops_across_the_seam(void)
{
    static const struct { const char *first, *second, *stop, *text; bool stopped; } cases[] = {
        {"ab", "cdefg", "bcd", "abcd", true},
        {"ab", "cdefg", "ab", "abcdefg", false},   /* it was there before, and was looked for */
        {"ab", "cdefg", "cd", "abcdefg", false},   /* the engine's own to find */
        {"ab", "cdefg", "bx", "abcdefg", false},
        {"ab", "b", "bb", "abb", true},
        {"aX", "Xb", "XX", "aXX", true},
        {"", "abc", "ab", "abc", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const stops[] = {"unseen", cases[i].stop, NULL};
        Partial p = join(cases[i].first[0] ? cases[i].first : "a", 5, cases[i].second, 6);
        bool stopped = partial_decode(&p, tokenizer, true, stops);
        CHECK(stopped == cases[i].stopped);
        if (cases[i].first[0]) {
            CHECK_STR(text_c(&p.text), cases[i].text);
        }
        CHECK_I64(p.count, (int64_t)p.text.n); /* one token a letter here */
        CHECK_I64(p.spans[p.span_count - 1].to, (int64_t)p.count);
        partial_free(&p);
    }
}

int main(void)
{
    char dir[] = "/tmp/rolltop-partial-test-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    static const char *const special[] = {"<pad>", "<eos>"};
    CHECK_I64(tokenizer_write_alphabet(dir, special, 2, STR("abcdefgX"), NULL), ERR_OK);
    CHECK_I64(tokenizer_load(dir, &tokenizer, NULL), ERR_OK);
    RUN(joins);
    RUN(stops_across_the_seam);
    tokenizer_free(tokenizer);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    return test_end();
}
