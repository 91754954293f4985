/* Rollout machine: plain course, admission, bounds, and thousands of random fault schedules in
 * virtual time. */
#include "core/rollout/rollout.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "tests/harness.h"

#include <stdlib.h>

static RolloutConfig config(int in_flight)
{
    return (RolloutConfig){.step = 3, .samples_per_group = 4, .max_in_flight = in_flight,
                           .policy_version = 7, .max_staleness = 1, .vocab = 100,
                           .max_attempts = 3, .retry_min_us = 1000, .retry_max_us = 100000,
                           .first_sample = 1000, .first_group = 50};
}

/* A good end for the given attempt; the arrays live as long as the program. */
static RolloutAttemptEnd good(int64_t sample, int attempt, int64_t version)
{
    static const int32_t ids[] = {1, 2, 99};
    static const float logprobs[] = {-0.5f, -1.0f, 0.0f};
    static SampleSpan spans[16];
    static int next;
    SampleSpan *span = &spans[next++ % 16];
    *span = (SampleSpan){0, 3, version};
    return (RolloutAttemptEnd){.sample = sample, .attempt = attempt, .whole = true,
                               .finish = "stop", .retry_after_s = -1, .ids = ids,
                               .logprobs = logprobs, .count = 3, .spans = span, .span_count = 1,
                               .text = STR("abc")};
}

static RolloutAttemptEnd lost(int64_t sample, int attempt, const char *how, bool elsewhere)
{
    return (RolloutAttemptEnd){.sample = sample, .attempt = attempt, .finish = how,
                               .retry_elsewhere = elsewhere, .retry_after_s = -1};
}

static RolloutAction only(Rollout *r, RolloutActionKind kind)
{
    RolloutAction action = {.sample = -1};
    CHECK(rollout_next(r, &action));
    CHECK_I64(action.kind, kind);
    return action;
}

static void nothing(Rollout *r)
{
    RolloutAction action;
    CHECK(!rollout_next(r, &action));
}

static void plain_course(void)
{
    RolloutConfig c = config(3);
    Rollout *r = rollout_new(&c, 2);
    RolloutAction action;
    nothing(r);
    rollout_begin(r, 0);
    for (int i = 0; i < 3; i++) {
        action = only(r, ROLLOUT_START);
        CHECK_I64(action.sample, 1000 + i);
        CHECK_I64(action.group, 50);
        CHECK_I64(action.group_index, i);
        CHECK_I64(action.attempt, 1);
    }
    nothing(r);
    CHECK_I64(rollout_in_flight(r), 3);
    CHECK_I64(rollout_wanted(r), 8);
    for (int i = 0; i < 8; i++) {
        RolloutAttemptEnd end = good(1000 + i, 1, 7);
        rollout_attempt_end(r, &end, i);
        action = only(r, ROLLOUT_LOG);
        CHECK_I64(action.fate, FATE_ACCEPTED);
        CHECK_I64(only(r, ROLLOUT_SCORE).sample, 1000 + i);
        if (i < 5) {
            CHECK_I64(only(r, ROLLOUT_START).sample, 1003 + i);
        }
        nothing(r);
        rollout_attempt_end(r, &end, i); /* told twice: nothing happens */
        nothing(r);
    }
    CHECK_I64(rollout_accepted(r), 8);
    nothing(r); /* not DONE before the rewards */
    for (int i = 7; i >= 0; i--) {
        rollout_reward(r, 1000 + i, i * 0.25);
        rollout_reward(r, 1000 + i, 9.0);
    }
    only(r, ROLLOUT_DONE);
    nothing(r);
    const RolloutSample *samples = NULL;
    CHECK_I64(rollout_samples(r, &samples), 8);
    CHECK_I64(samples[5].sample, 1005);
    CHECK_I64(samples[5].group, 51);
    CHECK_I64(samples[5].group_index, 1);
    CHECK_NEAR(samples[5].reward, 1.25, 0);
    CHECK_I64(samples[5].count, 3);
    CHECK_I64(samples[5].ids[2], 99);
    CHECK_NEAR(samples[5].logprobs[1], -1.0, 0);
    CHECK_I64(samples[5].spans[0].policy_version, 7);
    CHECK(str_equal(samples[5].text, STR("abc")));
    CHECK_STR(samples[5].finish, "stop");
    rollout_free(r);
}

static void what_is_refused(void)
{
    static const int32_t bad_ids[] = {1, 100, 2};
    static const float bad_logprobs[] = {-1.0f, NAN, -1.0f};
    static const SampleSpan gap[] = {{0, 1, 7}, {2, 3, 7}};
    static const SampleSpan shorter[] = {{0, 2, 7}};
    static const SampleSpan mixed[] = {{0, 1, 7}, {1, 3, 5}};
    static const SampleSpan within[] = {{0, 1, 6}, {1, 3, 7}};
    RolloutConfig c = config(1);
    c.samples_per_group = 1;
    c.max_attempts = 50;
    Rollout *r = rollout_new(&c, 1);
    rollout_begin(r, 0);
    int64_t now = 0;
    only(r, ROLLOUT_START);
    for (int i = 0; i < 10; i++) {
        RolloutAttemptEnd end = good(1000, i + 1, 7);
        switch (i) {
        case 0: end.ids = bad_ids; break;
        case 1: end.logprobs = bad_logprobs; break;
        case 2: end.logprobs = NULL; break;
        case 3: end.spans = gap; end.span_count = 2; break;
        case 4: end.spans = shorter; break;
        case 5: end.spans = mixed; end.span_count = 2; break; /* one old span spoils it */
        case 6: end = good(1000, i + 1, 8); break;            /* newer than the batch's */
        case 7: end = good(1000, i + 1, -1); break;           /* says no version */
        case 8: end.finish = "odd"; break;
        default: end.count = 0; end.span_count = 0; break;
        }
        rollout_attempt_end(r, &end, now);
        RolloutAction action = only(r, ROLLOUT_LOG);
        CHECK_I64(action.fate, FATE_REFUSED);
        CHECK_I64(action.attempt, i + 1);
        CHECK(action.reason[0] != '\0');
        nothing(r);
        now = rollout_next_due_us(r);
        rollout_tick(r, now);
        only(r, ROLLOUT_START);
    }
    rollout_free(r);
    c.policy_version = 6;
    r = rollout_new(&c, 1);
    rollout_begin(r, 0);
    only(r, ROLLOUT_START);
    (void)rollout_policy(r, 7); /* under way while the fleet is updated */
    RolloutAttemptEnd end = good(1000, 1, 7);
    end.spans = within;
    end.span_count = 2;
    rollout_attempt_end(r, &end, 1);
    CHECK_I64(only(r, ROLLOUT_LOG).fate, FATE_ACCEPTED);
    rollout_free(r);
}

static void attempts_and_waits_are_bounded(void)
{
    RolloutConfig c = config(1);
    c.samples_per_group = 1;
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        Rollout *r = rollout_new(&c, 1);
        int64_t now = 0;
        int attempts = 0;
        bool failed = false;
        rollout_begin(r, now);
        while (!failed && attempts < 1000) {
            only(r, ROLLOUT_START);
            attempts++;
            RolloutAttemptEnd end = lost(1000, attempts, "busy", elsewhere);
            rollout_attempt_end(r, &end, now);
            CHECK_I64(only(r, ROLLOUT_LOG).fate, FATE_LOST);
            RolloutAction action;
            failed = rollout_next(r, &action);
            if (failed) {
                CHECK_I64(action.kind, ROLLOUT_FAILED);
                CHECK(strstr(action.reason, "1000") && strstr(action.reason, "busy"));
                break;
            }
            int64_t due = rollout_next_due_us(r);
            CHECK(due - now >= 1000 && due - now <= 100000);
            rollout_tick(r, due - 1);
            nothing(r);
            now = due;
            rollout_tick(r, now);
        }
        CHECK(failed);
        CHECK_I64(attempts, elsewhere ? 48 : 3);
        CHECK_I64(rollout_next_due_us(r), 0);
        rollout_free(r);
    }
}

typedef struct Refusals { /* who refuses attempt after attempt, and how far that may go */
    int64_t engines[4]; /* in turn; 0: the peer does not say */
    int64_t took_us;    /* of one attempt */
    int attempts;       /* wanted */
    const char *words;
} Refusals;

/* A request that is refused (4xx) would be refused again: by a second engine, or, where nobody says
 * which one it was, for as long as a frontend's list may be in between. */
static void a_refused_request_ends_by_name(void)
{
    static const Refusals cases[] = {
        {{1, 2, 1, 2}, 1000, 2, "sample 1000 is refused by two engines: http 400"},
        {{1, 1, 1, 3}, 1000, 4, "by two engines"},
        {{0, 4, 4, 5}, 1000, 4, "by two engines"},
        {{0, 0, 0, 0}, 4000000, 5, "sample 1000 is refused for 16 s: http 400"},
        {{7, 7, 7, 7}, 15000000, 2, "for 15 s"},
        {{0, 0, 0, 0}, 1000000, 14, "14 attempts"},
    };
    RolloutConfig c = config(1);
    c.samples_per_group = 1;
    c.retry_min_us = c.retry_max_us = 10;
    c.refused_us = 15000000;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool by_budget = strstr(cases[i].words, "attempts") != NULL;
        c.max_attempts = by_budget ? 14 : 20;
        Rollout *r = rollout_new(&c, 1);
        RolloutAction action = {.kind = ROLLOUT_START};
        int64_t now = 0;
        int attempts = 0;
        rollout_begin(r, now);
        while (action.kind != ROLLOUT_FAILED && attempts < 100) {
            only(r, ROLLOUT_START);
            now += cases[i].took_us;
            RolloutAttemptEnd end = lost(1000, attempts + 1, "http 400: no", false);
            end.refused = true;
            end.engine = cases[i].engines[attempts % 4];
            attempts++;
            rollout_attempt_end(r, &end, now);
            CHECK_I64(only(r, ROLLOUT_LOG).fate, FATE_LOST);
            if (!rollout_next(r, &action)) {
                now += 100;
                rollout_tick(r, now);
            }
        }
        CHECK_I64(attempts, cases[i].attempts);
        CHECK(strstr(action.reason, cases[i].words) != NULL);
        rollout_free(r);
    }
}

/* What passes within seconds does no harm, nor does an engine that alone refuses everything. */
static void a_refusal_that_passes(void)
{
    RolloutConfig c = config(1);
    c.samples_per_group = 1;
    c.max_attempts = 20;
    c.refused_us = 15000000;
    Rollout *r = rollout_new(&c, 1);
    int64_t now = 0;
    rollout_begin(r, now);
    for (int attempt = 1; attempt <= 5; attempt++) {
        only(r, ROLLOUT_START);
        RolloutAttemptEnd end = lost(1000, attempt, "http 400", false);
        end.refused = true;
        end.engine = attempt % 2; /* the frontend refuses, or engine 1 does */
        rollout_attempt_end(r, &end, now);
        only(r, ROLLOUT_LOG);
        nothing(r);
        now += 2000000;
        rollout_tick(r, now);
    }
    only(r, ROLLOUT_START);
    RolloutAttemptEnd end = good(1000, 6, 7);
    rollout_attempt_end(r, &end, now);
    CHECK_I64(only(r, ROLLOUT_LOG).fate, FATE_ACCEPTED);
    rollout_free(r);
}

static void retry_after_wins_inside_the_bounds(void)
{
    static const struct { double after; int64_t wait; } cases[] = {
        {0.05, 50000}, {0.0, 1000}, {600.0, 100000}, {0.0123, 12300}};
    RolloutConfig c = config(1);
    c.samples_per_group = 1;
    for (size_t i = 0; i < 4; i++) {
        Rollout *r = rollout_new(&c, 1);
        rollout_begin(r, 0);
        only(r, ROLLOUT_START);
        RolloutAttemptEnd end = lost(1000, 1, "busy", true);
        end.retry_after_s = cases[i].after;
        rollout_attempt_end(r, &end, 77);
        CHECK_I64(rollout_next_due_us(r), 77 + cases[i].wait);
        rollout_free(r);
    }
}

static void gate_and_abort(void)
{
    RolloutConfig c = config(2);
    Rollout *r = rollout_new(&c, 1);
    rollout_gate(r, false, 0);
    rollout_begin(r, 0);
    nothing(r);
    rollout_gate(r, true, 1);
    only(r, ROLLOUT_START);
    only(r, ROLLOUT_START);
    rollout_gate(r, false, 2);
    RolloutAttemptEnd end = lost(1000, 1, "abort", true);
    rollout_attempt_end(r, &end, 3);
    CHECK_I64(only(r, ROLLOUT_LOG).fate, FATE_ABORTED);
    nothing(r); /* closed: nothing new, and nothing to wait for */
    CHECK_I64(rollout_next_due_us(r), 0);
    rollout_tick(r, 1000000);
    nothing(r);
    end = good(1001, 1, 7); /* what runs may finish while it is closed */
    rollout_attempt_end(r, &end, 4);
    only(r, ROLLOUT_LOG);
    only(r, ROLLOUT_SCORE);
    nothing(r);
    rollout_gate(r, true, 1000001);
    RolloutAction action = only(r, ROLLOUT_START);
    CHECK_I64(action.sample, 1000); /* the retry goes first */
    CHECK_I64(action.attempt, 2);
    only(r, ROLLOUT_START);
    rollout_abort(r);
    CHECK_I64(only(r, ROLLOUT_CANCEL).sample, 1000);
    CHECK_I64(only(r, ROLLOUT_CANCEL).sample, 1002);
    nothing(r);
    end = good(1000, 2, 7);
    rollout_attempt_end(r, &end, 1000003);
    CHECK_I64(only(r, ROLLOUT_LOG).fate, FATE_ABORTED);
    end = lost(1002, 1, "cancelled", true);
    rollout_attempt_end(r, &end, 1000004);
    only(r, ROLLOUT_LOG);
    nothing(r);
    CHECK_I64(rollout_in_flight(r), 0);
    rollout_free(r);
}

static void a_reward_that_is_no_number_fails_by_name(void)
{
    RolloutConfig c = config(2);
    Rollout *r = rollout_new(&c, 1);
    rollout_begin(r, 0);
    RolloutAttemptEnd end = good(1000, 1, 7);
    rollout_attempt_end(r, &end, 1);
    for (RolloutAction a; rollout_next(r, &a);) {}
    rollout_reward(r, 1000, NAN);
    only(r, ROLLOUT_CANCEL);
    only(r, ROLLOUT_CANCEL);
    CHECK(strstr(only(r, ROLLOUT_FAILED).reason, "1000") != NULL);
    rollout_free(r);
    r = rollout_new(&c, 0); /* and a rollout of nothing is done at once */
    rollout_begin(r, 0);
    only(r, ROLLOUT_DONE);
    rollout_free(r);
}

/* ---- random fault schedules --------------------------------------------------------------- */

enum { SIM_SAMPLES = 48 };
typedef struct Flight {
    int64_t sample, ends_us;
    int attempt;
    bool cancelled;
} Flight;
typedef struct Sim {
    Rollout *r;
    RolloutConfig c;
    Rng rng;
    int64_t now;
    Flight flights[SIM_SAMPLES];
    int flying, open_attempt[SIM_SAMPLES], starts[SIM_SAMPLES], logs[SIM_SAMPLES];
    int accepted[SIM_SAMPLES], score_asked[SIM_SAMPLES];
    int64_t unscored[SIM_SAMPLES];
    int unscored_count, fault_percent;
    bool gate, done, failed;
} Sim;

static void sim_start(Sim *s, const RolloutAction *a)
{
    int i = (int)(a->sample - s->c.first_sample);
    CHECK(s->gate && !s->failed && !s->done);
    CHECK_I64(s->open_attempt[i], 0); /* never two at a time */
    CHECK_I64(s->accepted[i], 0);     /* never again once accepted */
    CHECK_I64(a->attempt, ++s->starts[i]);
    s->open_attempt[i] = a->attempt;
    CHECK(s->flying < s->c.max_in_flight);
    s->flights[s->flying++] = (Flight){a->sample, s->now + 1 + (int64_t)rng_below(&s->rng, 50000),
                                       a->attempt, false};
}

static void sim_actions(Sim *s)
{
    RolloutAction a;
    while (rollout_next(s->r, &a)) {
        int i = (int)(a.sample - s->c.first_sample);
        switch (a.kind) {
        case ROLLOUT_START:
            sim_start(s, &a);
            break;
        case ROLLOUT_CANCEL:
            CHECK(s->failed || s->open_attempt[i] == a.attempt);
            break;
        case ROLLOUT_LOG:
            s->logs[i]++;
            s->accepted[i] += a.fate == FATE_ACCEPTED ? 1 : 0;
            CHECK(a.fate == FATE_ACCEPTED || a.reason[0] != '\0');
            break;
        case ROLLOUT_SCORE:
            CHECK_I64(++s->score_asked[i], 1);
            s->unscored[s->unscored_count++] = a.sample;
            break;
        case ROLLOUT_DONE:
            CHECK(!s->done && !s->failed);
            s->done = true;
            break;
        case ROLLOUT_FAILED:
            CHECK(!s->done && !s->failed);
            s->failed = true;
            break;
        }
    }
    CHECK_I64(rollout_in_flight(s->r), s->flying);
}

static void sim_land(Sim *s, int at)
{
    static const char *const losses[] = {"reset", "abort", "truncated", "busy", "invalid"};
    Flight f = s->flights[at];
    int i = (int)(f.sample - s->c.first_sample);
    RolloutAttemptEnd end = good(f.sample, f.attempt, 7);
    if ((int)rng_below(&s->rng, 100) < s->fault_percent) {
        if (rng_below(&s->rng, 3) == 0) {
            end = good(f.sample, f.attempt, rng_below(&s->rng, 2) ? 5 : 8);
        } else {
            end = lost(f.sample, f.attempt, losses[rng_below(&s->rng, 5)],
                       rng_below(&s->rng, 2) == 0);
            end.retry_after_s = rng_below(&s->rng, 2) ? -1 : 0.02;
        }
    }
    s->flights[at] = s->flights[--s->flying];
    s->open_attempt[i] = 0;
    rollout_attempt_end(s->r, &end, s->now);
    if (rng_below(&s->rng, 8) == 0) {
        rollout_attempt_end(s->r, &end, s->now); /* a driver that stutters */
    }
}

/* Moves to the next moment at which something happens; false when nothing will. */
static bool sim_step(Sim *s)
{
    int64_t due = rollout_next_due_us(s->r);
    int first = -1;
    for (int i = 0; i < s->flying; i++) {
        first = first < 0 || s->flights[i].ends_us < s->flights[first].ends_us ? i : first;
    }
    if (s->unscored_count > 0 && rng_below(&s->rng, 2) == 0) {
        int pick = (int)rng_below(&s->rng, (uint64_t)s->unscored_count);
        int64_t sample = s->unscored[pick];
        s->unscored[pick] = s->unscored[--s->unscored_count];
        rollout_reward(s->r, sample, rng_unit(&s->rng));
    } else if (rng_below(&s->rng, 20) == 0) {
        s->gate = !s->gate;
        rollout_gate(s->r, s->gate, s->now);
    } else if (first >= 0 && (due == 0 || s->flights[first].ends_us <= due)) {
        s->now = s->flights[first].ends_us > s->now ? s->flights[first].ends_us : s->now;
        sim_land(s, first);
    } else if (due > 0) {
        s->now = due > s->now ? due : s->now;
        rollout_tick(s->r, s->now);
    } else if (!s->gate) {
        s->gate = true;
        rollout_gate(s->r, true, s->now);
    } else if (s->unscored_count == 0) {
        return false;
    }
    sim_actions(s);
    return true;
}

static void every_sample_exactly_once_under_random_faults(void)
{
    int done = 0, failed = 0;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        static Sim s;
        memset(&s, 0, sizeof s);
        rng_seed(&s.rng, seed);
        s.c = config(1 + (int)rng_below(&s.rng, 20));
        s.fault_percent = (int)rng_below(&s.rng, 70);
        s.gate = true;
        s.r = rollout_new(&s.c, 12);
        rollout_begin(s.r, 0);
        sim_actions(&s);
        int steps = 0;
        while (!s.done && !s.failed && sim_step(&s)) {
            CHECK(++steps < 100000);
        }
        CHECK(s.done != s.failed); /* it ends, and in one way */
        while (s.flying > 0) {
            sim_land(&s, 0);
            sim_actions(&s);
        }
        const RolloutSample *samples = NULL;
        int n = rollout_samples(s.r, &samples);
        int accepted = 0;
        for (int i = 0; i < SIM_SAMPLES; i++) {
            CHECK(s.accepted[i] <= 1);
            CHECK_I64(s.logs[i], s.starts[i]); /* every attempt has its one fate */
            CHECK(s.starts[i] <= s.c.max_attempts * 16);
            accepted += s.accepted[i];
        }
        CHECK_I64(n, accepted);
        CHECK(!s.done || n == SIM_SAMPLES);
        for (int i = 0; i < n; i++) {
            int64_t version = samples[i].spans[0].policy_version;
            CHECK_I64(version, 7);
            CHECK(i == 0 || samples[i].sample > samples[i - 1].sample);
        }
        done += s.done ? 1 : 0;
        failed += s.failed ? 1 : 0;
        rollout_free(s.r);
    }
    CHECK(done > 500 && failed > 500); /* both ends were really tried */
}

int main(void)
{
    RUN(plain_course);
    RUN(what_is_refused);
    RUN(attempts_and_waits_are_bounded);
    RUN(a_refused_request_ends_by_name);
    RUN(a_refusal_that_passes);
    RUN(retry_after_wins_inside_the_bounds);
    RUN(gate_and_abort);
    RUN(a_reward_that_is_no_number_fails_by_name);
    RUN(every_sample_exactly_once_under_random_faults);
    return test_end();
}
