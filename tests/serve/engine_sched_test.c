/* The scheduler alone: bounds, sharing, retraction, and a long random run against invariants. */
#include "core/serve/engine_sched.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "tests/harness.h"

#include <stdlib.h>

enum { ALL = 400, LONGEST = 200 };

typedef struct TestSeq {
    SchedSeq seq; /* first */
    int32_t tokens[LONGEST];
    int goal; /* tokens at which it ends */
    bool out;
} TestSeq;

static TestSeq *seq_new(int prompt, int goal, int32_t first)
{
    TestSeq *one = xcalloc(1, sizeof *one);
    one->seq.tokens = one->tokens;
    one->seq.prompt = one->seq.count = one->seq.match_limit = prompt;
    one->goal = goal;
    for (int i = 0; i < LONGEST; i++) {
        one->tokens[i] = first + i;
    }
    return one;
}

static void blocks_are_counted(void)
{
    Blocks *blocks = blocks_new(4);
    int32_t ids[4];
    for (int i = 0; i < 4; i++) {
        CHECK(blocks_take(blocks, &ids[i]));
    }
    int32_t more = -1;
    CHECK(!blocks_take(blocks, &more));
    blocks_name(blocks, ids[0], 77, true);
    blocks_name(blocks, ids[1], 77, true); /* the name is taken: stays without one */
    blocks_name(blocks, ids[2], 78, false);
    for (int i = 0; i < 4; i++) {
        blocks_release(blocks, ids[i]);
    }
    CHECK_I64(blocks_kept(blocks), 1); /* 78 was never ready */
    CHECK_I64(blocks_available(blocks), 4);
    bool ready = false;
    CHECK(blocks_find(blocks, 77, &more, &ready) && ready && more == ids[0]);
    CHECK(!blocks_find(blocks, 78, &more, &ready));
    for (int i = 0; i < 4; i++) {
        CHECK(blocks_take(blocks, &ids[i])); /* the last one evicts */
    }
    CHECK(!blocks_find(blocks, 77, &more, &ready));
    blocks_cap(blocks, 2);
    CHECK_I64(blocks_available(blocks), 0);
    blocks_free(blocks);
}

static void siblings_share_a_prompt(void)
{
    SchedConfig config = {.block_tokens = 4, .blocks = 64, .max_running = 8,
                          .max_step_tokens = 64, .share_prefixes = true};
    Sched *sched = sched_new(&config);
    TestSeq *a = seq_new(10, 20, 100);
    TestSeq *b = seq_new(10, 20, 100);
    TestSeq *other = seq_new(10, 20, 900);
    sched_add(sched, &a->seq);
    sched_add(sched, &b->seq);
    sched_add(sched, &other->seq);
    const SchedPlan *plan = sched_plan(sched);
    CHECK_I64(plan->count, 2); /* b waits for a's blocks, the other prompt does not */
    CHECK(plan->pieces[0].seq == &a->seq && plan->pieces[1].seq == &other->seq);
    CHECK_I64(plan->tokens, 20);
    sched_commit(sched);
    a->seq.count++;
    other->seq.count++;
    plan = sched_plan(sched);
    CHECK_I64(plan->count, 3);
    CHECK(plan->pieces[2].seq == &b->seq);
    CHECK_I64(plan->pieces[2].start, 8); /* two full blocks came from a */
    CHECK_I64(plan->pieces[2].count, 2);
    CHECK_I64(b->seq.cached, 8);
    CHECK(a->seq.blocks[0] == b->seq.blocks[0] && a->seq.blocks[2] != b->seq.blocks[2]);
    sched_commit(sched);
    sched_remove(sched, &a->seq);
    sched_remove(sched, &b->seq);
    sched_remove(sched, &other->seq);
    CHECK(sched_idle(sched) && sched_used_tokens(sched) == 0);
    CHECK(sched_evictable_tokens(sched) > 0);
    /* New weights: nothing of the old prefixes may be found. */
    sched_forget(sched);
    CHECK_I64(sched_evictable_tokens(sched), 0);
    TestSeq *late = seq_new(10, 20, 100);
    sched_add(sched, &late->seq);
    plan = sched_plan(sched);
    CHECK_I64(plan->pieces[0].start, 0);
    sched_remove(sched, &late->seq);
    free(a);
    free(b);
    free(other);
    free(late);
    sched_free(sched);
}

static void scoring_computes_its_own_logits(void)
{
    SchedConfig config = {.block_tokens = 4, .blocks = 64, .max_running = 8,
                          .max_step_tokens = 64, .share_prefixes = true};
    Sched *sched = sched_new(&config);
    TestSeq *a = seq_new(12, 20, 100);
    sched_add(sched, &a->seq);
    sched_plan(sched);
    sched_commit(sched);
    TestSeq *scored = seq_new(12, 20, 100);
    scored->seq.match_limit = 5;
    sched_add(sched, &scored->seq);
    a->seq.count++;
    const SchedPlan *plan = sched_plan(sched);
    CHECK_I64(plan->pieces[1].start, 4); /* not 8 */
    sched_remove(sched, &a->seq);
    sched_remove(sched, &scored->seq);
    free(a);
    free(scored);
    sched_free(sched);
}

static void the_youngest_gives_way(void)
{
    SchedConfig config = {.block_tokens = 4, .blocks = 4, .max_running = 8,
                          .max_step_tokens = 64, .share_prefixes = false};
    Sched *sched = sched_new(&config);
    TestSeq *a = seq_new(4, 16, 1);
    TestSeq *b = seq_new(4, 16, 500);
    sched_add(sched, &a->seq);
    sched_add(sched, &b->seq);
    CHECK_I64(sched_plan(sched)->count, 2);
    sched_commit(sched);
    int steps = 0;
    bool retracted = false;
    while (!(a->out && b->out) && steps++ < 100) {
        TestSeq *both[2] = {a, b};
        const SchedPlan *plan = sched_plan(sched);
        CHECK(plan->impossible == NULL);
        retracted = retracted || plan->retracted_count > 0;
        if (plan->retracted_count > 0) {
            CHECK(plan->retracted[0] == &b->seq);
        }
        sched_commit(sched);
        for (int i = 0; i < 2; i++) {
            if (!both[i]->out && both[i]->seq.computed == both[i]->seq.count) {
                if (++both[i]->seq.count >= both[i]->goal) {
                    sched_remove(sched, &both[i]->seq);
                    both[i]->out = true;
                }
            }
        }
    }
    CHECK(a->out && b->out && retracted);
    CHECK_I64(a->seq.retractions, 0);
    CHECK(b->seq.retractions >= 1);
    /* One that cannot fit even alone is told, not waited for. */
    sched_cap_tokens(sched, 8);
    TestSeq *big = seq_new(9, 16, 1);
    sched_add(sched, &big->seq);
    CHECK(sched_plan(sched)->impossible == &big->seq);
    sched_remove(sched, &big->seq);
    free(a);
    free(b);
    free(big);
    sched_free(sched);
}

/* Everything ends, nobody computes a position twice without a retraction in between, blocks never
 * leak and never serve two different contents. */
/* A pause: those that run keep what they have, those that wait go on waiting, an urgent one is
 * computed behind any number of them and though the batch is full. */
static void held_ones_let_an_urgent_one_pass(void)
{
    enum { WAIT = 600 };
    SchedConfig config = {.block_tokens = 4, .blocks = 64, .max_running = 2,
                          .max_step_tokens = 64, .share_prefixes = false};
    Sched *sched = sched_new(&config);
    TestSeq *all[WAIT + 1];
    for (int i = 0; i < WAIT; i++) {
        all[i] = seq_new(4, 8, 1 + i * LONGEST);
        sched_add(sched, &all[i]->seq);
    }
    CHECK_I64(sched_plan(sched)->count, 2);
    sched_commit(sched);
    sched_hold(sched, true);
    CHECK_I64(sched_plan(sched)->count, 0);
    all[WAIT] = seq_new(6, 7, 7);
    all[WAIT]->seq.urgent = true;
    sched_add(sched, &all[WAIT]->seq);
    const SchedPlan *plan = sched_plan(sched);
    CHECK_I64(plan->count, 1);
    CHECK(plan->pieces[0].seq == &all[WAIT]->seq && plan->pieces[0].last);
    sched_commit(sched);
    sched_remove(sched, &all[WAIT]->seq);
    CHECK_I64(sched_plan(sched)->count, 0);
    CHECK_I64(all[0]->seq.computed, 4);
    sched_retract_all(sched);
    CHECK_I64(sched_running(sched), 0);
    sched_hold(sched, false);
    plan = sched_plan(sched);
    CHECK_I64(plan->count, 2);
    CHECK(plan->pieces[0].seq == &all[0]->seq && plan->pieces[0].start == 0); /* anew, in order */
    for (int i = 0; i <= WAIT; i++) {
        sched_remove(sched, &all[i]->seq);
        free(all[i]);
    }
    sched_free(sched);
}

static void random_loads_end(void)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        Rng rng;
        rng_seed(&rng, seed);
        SchedConfig config = {.block_tokens = 4, .blocks = 60 + (int)rng_below(&rng, 100),
                              .max_running = 1 + (int)rng_below(&rng, 40),
                              .max_step_tokens = 8 + (int)rng_below(&rng, 64),
                              .share_prefixes = rng_below(&rng, 4) > 0};
        Sched *sched = sched_new(&config);
        TestSeq *all[ALL];
        int added = 0;
        int ended = 0;
        int steps = 0;
        while (ended < ALL && steps++ < 200000) {
            if (added < ALL && rng_below(&rng, 3) == 0) {
                int prompt = 1 + (int)rng_below(&rng, 60);
                int goal = prompt + 1 + (int)rng_below(&rng, 60);
                all[added] = seq_new(prompt, goal, (int32_t)rng_below(&rng, 6) * 1000);
                sched_add(sched, &all[added++]->seq);
            }
            if (rng_below(&rng, 400) == 0) {
                sched_retract_all(sched);
            }
            if (rng_below(&rng, 300) == 0) {
                sched_forget(sched);
            }
            const SchedPlan *plan = sched_plan(sched);
            CHECK(plan->impossible == NULL);
            CHECK(plan->tokens <= config.max_step_tokens || plan->count == 1);
            for (int i = 0; i < plan->count; i++) {
                const SchedPiece *piece = &plan->pieces[i];
                const SchedSeq *seq = piece->seq;
                bool good = seq->state == SEQ_RUNNING && piece->start == seq->computed &&
                            piece->count > 0 && piece->start + piece->count <= seq->count &&
                            seq->block_count * 4 >= piece->start + piece->count;
                if (!good) {
                    CHECK(good);
                }
            }
            sched_commit(sched);
            CHECK(sched_running(sched) <= config.max_running);
            CHECK(sched_used_tokens(sched) <= sched_total_tokens(sched));
            for (int i = 0; i < added; i++) {
                TestSeq *one = all[i];
                bool abort = !one->out && rng_below(&rng, 5000) == 0;
                bool fed = !one->out && one->seq.state == SEQ_RUNNING &&
                           one->seq.computed == one->seq.count;
                if (abort || (fed && ++one->seq.count >= one->goal)) {
                    sched_remove(sched, &one->seq);
                    one->out = true;
                    ended++;
                }
            }
        }
        CHECK_I64(ended, ALL);
        CHECK(sched_idle(sched));
        CHECK_I64(sched_used_tokens(sched), 0);
        for (int i = 0; i < added; i++) {
            free(all[i]);
        }
        sched_free(sched);
    }
}

int main(void)
{
    RUN(blocks_are_counted);
    RUN(siblings_share_a_prompt);
    RUN(scoring_computes_its_own_logits);
    RUN(the_youngest_gives_way);
    RUN(held_ones_let_an_urgent_one_pass);
    RUN(random_loads_end);
    return test_end();
}
