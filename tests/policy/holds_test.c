/* Do engines hold what they say: every way not to, alone and beside sound ones. */
#include "core/policy/holds.h"

#include "tests/harness.h"

enum { ENGINES = 3 };
static const float right[] = {-1.0f, -2.0f, -3.0f};
#define DIGEST "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static HoldExpect expected(void)
{
    return (HoldExpect){.version = 7, .digest = DIGEST, .logprobs = right, .logprob_count = 3,
                        .tolerance = 0.05};
}

static void sound(Hold rows[ENGINES], bool ours)
{
    for (int i = 0; i < ENGINES; i++) {
        rows[i] = (Hold){.asked = true, .same_digest = ours, .version = 7, .logprob_count = 3};
        snprintf(rows[i].digest, sizeof rows[i].digest, "%s", ours ? DIGEST : "sglang's own");
        memcpy(rows[i].logprobs, right, sizeof right);
    }
}

static void test_sound_fleets(void)
{
    for (int ours = 0; ours < 2; ours++) {
        Hold rows[ENGINES];
        HoldExpect expect = expected();
        sound(rows, ours != 0);
        CHECK_I64(holds_judge(rows, ENGINES, &expect), 0);
        CHECK(rows[0].holds && rows[0].off >= 0 && rows[0].off < 1e-6);
        HoldExpect none = {.version = -1, .tolerance = 0.05};
        sound(rows, ours != 0);
        CHECK_I64(holds_judge(rows, ENGINES, &none), 0);
        sound(rows, ours != 0); /* alone there is nobody to compare with, and it is sound */
        CHECK_I64(holds_judge(rows, 1, &none), 0);
        CHECK(rows[0].off < 0);
    }
}

/* The second engine is odd in one way; with an expectation and, where others show it, without. */
static void odd(int way, bool ours, bool expect_known, bool found, const char *words)
{
    Hold rows[ENGINES];
    HoldExpect expect = expect_known ? expected() : (HoldExpect){.version = -1, .tolerance = 0.05};
    sound(rows, ours);
    switch (way) {
    case 0: rows[1].version = 6; break;
    case 1: snprintf(rows[1].digest, sizeof rows[1].digest, "bbbb"); break;
    case 2: rows[1].logprobs[2] = -3.2f; break;
    case 3: rows[1].logprobs[0] = NAN; break;
    case 4: snprintf(rows[1].error, sizeof rows[1].error, "no answer within 15 s"); break;
    case 5: rows[1].logprob_count = 2; break;
    case 6: rows[1].version = -1; break;
    default: break;
    }
    CHECK_I64(holds_judge(rows, ENGINES, &expect), found);
    CHECK(rows[0].holds && rows[2].holds && rows[1].holds == !found);
    CHECK(!found || strstr(rows[1].why, words) != NULL);
}

static void test_each_way_not_to(void)
{
    for (int known = 0; known < 2; known++) {
        odd(0, true, known, true, "reports version 6, not 7");
        odd(1, true, known, known, "its checksum is bbbb, the policy's digest aaaa");
        odd(1, false, known, true, "differs from the other engines'");
        odd(2, true, known, true, "its canary is 0.2 away from");
        odd(3, true, known, true, "canary is inf");
        odd(4, true, known, true, "no answer within 15 s");
        odd(5, true, known, true, "canary is inf");
        odd(6, true, known, true, "reports version -1");
    }
}

static void test_all_wrong_alike(void)
{
    Hold rows[ENGINES];
    HoldExpect expect = expected();
    sound(rows, true);
    for (int i = 0; i < ENGINES; i++) {
        snprintf(rows[i].digest, sizeof rows[i].digest, "cccc");
    }
    CHECK_I64(holds_judge(rows, ENGINES, &expect), ENGINES);
    sound(rows, true);
    for (int i = 0; i < ENGINES; i++) {
        rows[i].version = 6;
    }
    CHECK_I64(holds_judge(rows, ENGINES, &expect), ENGINES);
}

static void test_who_is_out_of_service_is_not_judged(void)
{
    Hold rows[ENGINES];
    HoldExpect expect = expected();
    sound(rows, true);
    rows[1].asked = false;
    rows[1].version = 3;
    CHECK_I64(holds_judge(rows, ENGINES, &expect), 0);
    CHECK(!rows[1].holds);
    CHECK_STR(rows[1].why, "");
}

int main(void)
{
    RUN(test_sound_fleets);
    RUN(test_each_way_not_to);
    RUN(test_all_wrong_alike);
    RUN(test_who_is_out_of_service_is_not_judged);
    return test_end();
}
