/* Samples that are cut and gone on with, and policies that change under a batch. A token's
 * log-prob is minus the policy that made it, so a wrong stamp shows. */
#include "core/rollout/rollout.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "tests/harness.h"

#include <stdlib.h>

enum { LONGEST = 40, END_ID = 2, GROUPS = 6, SAMPLES = GROUPS * 4 };

static const int32_t end_ids[] = {END_ID};

static RolloutConfig config(bool resume, int64_t staleness)
{
    return (RolloutConfig){.samples_per_group = 4, .max_in_flight = 8, .policy_version = 5,
                           .max_staleness = staleness, .resume = resume, .max_new = LONGEST,
                           .end_ids = end_ids, .end_id_count = 1, .vocab = 100,
                           .max_attempts = 1000, .retry_min_us = 1000, .retry_max_us = 4000,
                           .first_sample = 1, .first_group = 1};
}

typedef struct Part { /* what an attempt holds so far, kept tokens first */
    int32_t ids[LONGEST];
    float logprobs[LONGEST];
    SampleSpan spans[LONGEST];
    size_t count, span_count;
} Part;

static void add(Part *p, int32_t id, int64_t policy)
{
    SampleSpan *last = p->span_count > 0 ? &p->spans[p->span_count - 1] : NULL;
    p->ids[p->count] = id;
    p->logprobs[p->count] = -(float)policy;
    if (last && last->policy_version == policy) {
        last->to++;
    } else {
        p->spans[p->span_count++] =
            (SampleSpan){(int32_t)p->count, (int32_t)p->count + 1, policy};
    }
    p->count++;
}

static Part part_of(int64_t policy, size_t count)
{
    Part p = {.count = 0};
    for (size_t i = 0; i < count; i++) {
        add(&p, 10, policy);
    }
    return p;
}

static RolloutAttemptEnd end_of(const Part *p, int64_t sample, int attempt, const char *finish)
{
    bool whole = strcmp(finish, "stop") == 0 || strcmp(finish, "length") == 0;
    return (RolloutAttemptEnd){.sample = sample, .attempt = attempt, .whole = whole,
                               .retry_elsewhere = !whole, .finish = finish, .retry_after_s = -1,
                               .ids = p->ids, .logprobs = p->logprobs, .count = p->count,
                               .spans = p->spans, .span_count = p->span_count,
                               .text = STR("text")};
}

static RolloutAction only(Rollout *r, RolloutActionKind kind)
{
    RolloutAction action = {.sample = -1};
    CHECK(rollout_next(r, &action));
    CHECK_I64(action.kind, kind);
    return action;
}

static Rollout *started(const RolloutConfig *given)
{
    RolloutConfig c = *given;
    c.samples_per_group = 1;
    Rollout *r = rollout_new(&c, 1);
    rollout_begin(r, 0);
    CHECK_I64(only(r, ROLLOUT_START).kept, 0);
    return r;
}

/* Ends attempt 1 so and gives attempt 2's start, with the words about attempt 1 in `reason`. */
static RolloutAction cut(Rollout *r, const RolloutAttemptEnd *end, char reason[96])
{
    rollout_attempt_end(r, end, 0);
    (void)str_format(reason, 96, "%s", only(r, ROLLOUT_LOG).reason);
    rollout_tick(r, 1000000);
    return only(r, ROLLOUT_START);
}

static void a_cut_stream_goes_on_from_its_tokens(void)
{
    RolloutConfig c = config(false, 0); /* whatever updates do: the policy is the same */
    Rollout *r = started(&c);
    Part p = part_of(5, 7);
    RolloutAttemptEnd end = end_of(&p, 1, 1, "the stream ended without [DONE]");
    char reason[96];
    CHECK_I64(cut(r, &end, reason).kept, 7);
    CHECK_STR(reason, "the stream ended without [DONE]; 7 tokens, goes on from them");
    RolloutSample kept;
    CHECK(rollout_kept(r, 1, &kept));
    CHECK_I64(kept.count, 7);
    CHECK_I64(kept.spans[0].to, 7);
    add(&p, END_ID, 5);
    end = end_of(&p, 1, 2, "stop");
    rollout_attempt_end(r, &end, 1);
    CHECK_I64(only(r, ROLLOUT_LOG).fate, FATE_ACCEPTED);
    const RolloutSample *samples = NULL;
    CHECK_I64(rollout_samples(r, &samples), 1);
    CHECK_I64(samples[0].count, 8);
    CHECK(!rollout_kept(r, 1, &kept));
    rollout_free(r);
}

static void what_begins_anew(void)
{
    static const struct { const char *finish; int64_t policy; bool resume, anew; int tokens, last;
                          const char *says; } cases[] = {
        {"abort", 5, false, false, 7, 10, "abort; 7 tokens, begins anew as set"},
        {"reset", 5, true, true, 7, 10, "reset; 7 tokens, begins anew"},
        {"reset", 5, true, false, 7, END_ID, "reset; 7 tokens, begins anew: the last one ends it"},
        {"reset", 5, true, false, LONGEST, 10, "reset; 40 tokens, begins anew: no room for more"},
        {"reset", 4, true, false, 7, 10, "reset; 7 tokens, begins anew: their policy has gone"},
        {"reset", -1, true, false, 7, 10, "reset; 7 tokens, begins anew: their policy has gone"},
        {"reset", 5, true, false, 0, 10, "reset"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RolloutConfig c = config(cases[i].resume, 1);
        Rollout *r = started(&c);
        Part p = part_of(cases[i].policy, (size_t)cases[i].tokens);
        if (p.count > 0) {
            p.ids[p.count - 1] = cases[i].last;
        }
        RolloutAttemptEnd end = end_of(&p, 1, 1, cases[i].finish);
        end.anew = cases[i].anew;
        char reason[96];
        CHECK_I64(cut(r, &end, reason).kept, 0);
        CHECK_STR(reason, cases[i].says);
        rollout_free(r);
    }
}

/* What waits while the policy changes goes on past it only where that is allowed. */
static void waiting_over_a_change(void)
{
    for (int i = 0; i < 4; i++) {
        bool resume = i % 2;
        int64_t staleness = i / 2;
        RolloutConfig c = config(resume, staleness);
        Rollout *r = started(&c);
        Part p = part_of(5, 7);
        RolloutAttemptEnd end = end_of(&p, 1, 1, "reset");
        rollout_gate(r, false, 0);
        rollout_attempt_end(r, &end, 0);
        only(r, ROLLOUT_LOG);
        RolloutChange change = rollout_policy(r, 6);
        bool goes_on = resume && staleness > 0;
        CHECK_I64(change.go_on, goes_on);
        CHECK_I64(change.anew, !goes_on);
        rollout_gate(r, true, 1000000);
        CHECK_I64(only(r, ROLLOUT_START).kept, goes_on ? 7 : 0);
        Part next = goes_on ? p : (Part){.count = 0};
        add(&next, END_ID, 5); /* an engine that still has the old policy: replaced by now */
        end = end_of(&next, 1, 2, "stop");
        rollout_attempt_end(r, &end, 1000000);
        CHECK_I64(only(r, ROLLOUT_LOG).fate, FATE_REFUSED);
        rollout_free(r);
    }
}

static void accepted_samples_over_a_change(void)
{
    RolloutConfig c = config(true, 1);
    Rollout *r = started(&c);
    Part p = part_of(5, 3);
    RolloutAttemptEnd end = end_of(&p, 1, 1, "stop");
    rollout_attempt_end(r, &end, 0);
    CHECK_I64(only(r, ROLLOUT_LOG).fate, FATE_ACCEPTED);
    CHECK(rollout_survives(r, 5)); /* the same policy sent again */
    CHECK(rollout_survives(r, 6));
    (void)rollout_policy(r, 6);
    CHECK_I64(rollout_batch_policy(r), 6);
    CHECK(!rollout_survives(r, 7));
    CHECK(rollout_survives(r, 5)); /* back to the policy that made it */
    rollout_free(r);
    c = config(false, 0);
    r = started(&c);
    rollout_attempt_end(r, &end, 0);
    CHECK(rollout_survives(r, 5) && !rollout_survives(r, 6));
    rollout_free(r);
}

static void spans_have_an_order(void)
{
    PolicyTrail trail = {0};
    static const int64_t served[] = {5, 5, 3, 5, 6};
    for (int i = 0; i < 5; i++) {
        trail_add(&trail, served[i]);
    }
    CHECK_I64(trail.count, 4);
    CHECK_I64(trail_age(&trail, 6), 0);
    CHECK_I64(trail_age(&trail, 5), 1);
    CHECK_I64(trail_age(&trail, 3), 2);
    CHECK_I64(trail_age(&trail, 4), -1);
    static const struct { SampleSpan spans[3]; int count, begun; size_t kept; bool good; } cases[] =
        {{{{0, 2, 5}, {2, 4, 3}, {4, 6, 5}}, 3, 0, 0, true},
         {{{0, 2, 3}, {2, 4, 5}, {4, 6, 6}}, 3, 0, 0, true},
         {{{0, 2, 6}, {2, 6, 5}}, 2, 0, 0, false},            /* backwards */
         {{{0, 6, 3}}, 1, 2, 0, false},                       /* gone before it began */
         {{{0, 2, 3}, {2, 6, 5}}, 2, 2, 2, true},             /* … but kept tokens may be of it */
         {{{0, 2, 3}, {2, 3, 3}, {3, 6, 5}}, 3, 2, 2, false}, /* … and no newer ones */
         {{{0, 2, 5}, {3, 6, 5}}, 2, 0, 0, false},
         {{{0, 2, 5}}, 1, 0, 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SpanRule rule = {&trail, 3, cases[i].kept, cases[i].begun};
        char reason[96] = "";
        bool good = spans_allowed(&rule, cases[i].spans, (size_t)cases[i].count, 6, reason);
        CHECK(good == cases[i].good && good == (reason[0] == '\0'));
    }
    SpanRule strict = {&trail, 1, 0, 0};
    char reason[96] = "";
    CHECK(!spans_allowed(&strict, cases[0].spans, 3, 6, reason));
    CHECK(strstr(reason, "policy 3, 2 updates ago, allowed 1") != NULL);
    trail_free(&trail);
}

static void masks_of_older_tokens(void)
{
    static const SampleSpan spans[] = {{0, 2, 5}, {2, 3, 6}, {3, 5, 7}};
    uint8_t mask[5] = {1, 1, 1, 1, 1};
    CHECK_I64(spans_mask_older(spans, 3, 6, NULL), 4);
    CHECK_I64(spans_mask_older(spans, 3, 7, mask), 3);
    CHECK(mask[0] == 0 && mask[2] == 0 && mask[3] == 1 && mask[4] == 1);
    CHECK_I64(spans_mask_older(spans, 0, 7, mask), 0);
}

/* ---- random cuts and changes --------------------------------------------------------------- */

typedef struct Flight {
    int64_t sample, begun_policy;
    int attempt;
    Part part;
} Flight;

typedef struct World {
    Rollout *r;
    RolloutConfig c;
    Rng rng;
    int64_t policy, now;
    Flight flights[SAMPLES];
    int flying, resumed, crossed;
    bool done, failed;
} World;

static void actions(World *w)
{
    RolloutAction a;
    while (rollout_next(w->r, &a)) {
        if (a.kind == ROLLOUT_START) {
            Flight *f = &w->flights[w->flying++];
            *f = (Flight){.sample = a.sample, .attempt = a.attempt, .begun_policy = w->policy};
            RolloutSample kept;
            CHECK(rollout_kept(w->r, a.sample, &kept) == (a.kept > 0));
            for (size_t i = 0; a.kept > 0 && i < kept.count; i++) {
                add(&f->part, kept.ids[i], (int64_t)-kept.logprobs[i]);
            }
            CHECK_I64(f->part.count, a.kept);
            w->resumed += a.kept > 0;
        } else if (a.kind == ROLLOUT_SCORE) {
            rollout_reward(w->r, a.sample, 1.0);
        }
        w->done = w->done || a.kind == ROLLOUT_DONE;
        w->failed = w->failed || a.kind == ROLLOUT_FAILED;
    }
}

static void land(World *w, int at)
{
    static const char *const cuts[] = {"reset", "abort", "truncated"};
    Flight f = w->flights[at];
    w->flights[at] = w->flights[--w->flying];
    bool whole = rng_below(&w->rng, 2) == 0;
    for (int n = (int)rng_below(&w->rng, 6); n > 0 && f.part.count + 1 < LONGEST; n--) {
        bool liar = rng_below(&w->rng, 200) == 0;
        add(&f.part, 10, liar ? w->policy + 9 : w->policy); /* kept in place: whoever serves now */
    }
    if (whole) {
        add(&f.part, END_ID, w->policy);
    }
    RolloutAttemptEnd end = end_of(&f.part, f.sample, f.attempt,
                                   whole ? "stop" : cuts[rng_below(&w->rng, 3)]);
    rollout_attempt_end(w->r, &end, w->now);
    actions(w);
}

static void change_policy(World *w)
{
    int64_t next = w->policy + 1 - 2 * (int64_t)(rng_below(&w->rng, 4) == 0);
    if (rollout_survives(w->r, next)) { /* else the driver begins the batch anew */
        w->policy = next;
        (void)rollout_policy(w->r, next);
        actions(w);
    }
}

static void check_batch(World *w)
{
    const RolloutSample *samples = NULL;
    CHECK_I64(rollout_samples(w->r, &samples), SAMPLES);
    for (int i = 0; i < SAMPLES; i++) {
        const RolloutSample *s = &samples[i];
        for (size_t k = 0; k < s->span_count; k++) {
            for (int t = s->spans[k].from; t < s->spans[k].to; t++) {
                CHECK_NEAR(s->logprobs[t], -(double)s->spans[k].policy_version, 0);
            }
            CHECK(w->c.max_staleness > 0 || s->spans[k].policy_version == w->policy);
        }
        w->crossed += s->span_count > 1;
    }
}

static void every_token_keeps_its_stamp_under_random_cuts(void)
{
    int resumed = 0, crossed = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        World w = {.policy = 5};
        rng_seed(&w.rng, seed);
        w.c = config(rng_below(&w.rng, 2) == 0, (int64_t)rng_below(&w.rng, 3));
        w.r = rollout_new(&w.c, GROUPS);
        rollout_begin(w.r, 0);
        actions(&w);
        for (int steps = 0; !w.done && !w.failed && steps < 100000; steps++) {
            if (w.flying > 0 && rng_below(&w.rng, 4) > 0) {
                land(&w, (int)rng_below(&w.rng, (uint64_t)w.flying));
            } else if (rng_below(&w.rng, 3) == 0) {
                change_policy(&w);
            } else {
                w.now += 2000;
                rollout_tick(w.r, w.now);
                actions(&w);
            }
        }
        CHECK(w.done);
        check_batch(&w);
        CHECK(w.c.resume || w.c.max_staleness > 0 || w.crossed == 0);
        resumed += w.resumed;
        crossed += w.crossed;
        rollout_free(w.r);
    }
    CHECK(resumed > 1000 && crossed > 100);
}

int main(void)
{
    RUN(a_cut_stream_goes_on_from_its_tokens);
    RUN(what_begins_anew);
    RUN(waiting_over_a_change);
    RUN(accepted_samples_over_a_change);
    RUN(spans_have_an_order);
    RUN(masks_of_older_tokens);
    RUN(every_token_keeps_its_stamp_under_random_cuts);
    return test_end();
}
