#include "core/diagnose/diagnose.h"

#include "tests/harness.h"

static const int64_t S = 1000000;

static DiagPicture calm(DiagEngine *engines, int count, int64_t now)
{
    for (int i = 0; i < count; i++) {
        engines[i] = (DiagEngine){.engine = i + 1, .state = ENGINE_UP, .state_since_us = 1,
                                  .admitted = true, .reported_version = 4};
    }
    return (DiagPicture){.now_us = now, .phase = PHASE_GENERATE, .phase_since_us = now - S,
                         .committed = 4, .engines = engines, .engine_count = count};
}

/* The next action as "CLASS engine severity open|end"; "" when there is none. */
static const char *next(Diagnose *d)
{
    static char line[128];
    DiagAction a;
    line[0] = '\0';
    if (diagnose_next(d, &a)) {
        (void)snprintf(line, sizeof line, "%s %lld %s %s", diagnose_class_name(a.class_id),
                       (long long)a.engine, severity_name(a.severity), a.ended_us ? "end" : "open");
        CHECK(a.onset_us > 0 && a.evidence[0] && a.next_key[0]);
    }
    return line;
}

static void test_engine(void)
{
    Diagnose *d = diagnose_new(7, NULL);
    DiagEngine e[3];
    DiagPicture p = calm(e, 3, 100 * S);
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "");
    e[1].state = ENGINE_DEAD;
    e[1].state_since_us = 99 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "ENGINE-DEAD 2 crit open");
    CHECK_STR(next(d), "");
    diagnose_tick(d, &p);
    CHECK_STR(next(d), ""); /* told once */
    e[1].state = ENGINE_FENCED;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "ENGINE-DEAD 2 crit end");
    e[2].boots_30min = 3;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "ENGINE-DEAD 3 crit open");
    e[0].state = ENGINE_DEAD;
    e[0].state_since_us = p.now_us + 40; /* told while the picture is taken; it may be back soon */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "ENGINE-DEAD 1 crit open");
    diagnose_free(d);
}

static void test_stuck(void)
{
    Diagnose *d = diagnose_new(1, NULL);
    DiagEngine e[2];
    DiagPicture p = calm(e, 2, 100 * S);
    e[0].state = ENGINE_STUCK;
    e[0].state_since_us = 90 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "HEALTH-LIES 1 warn open");
    p.now_us = 151 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "HEALTH-LIES 1 crit open");
    p.syncing = true; /* an update explains the silence */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "HEALTH-LIES 1 crit end");
    p.syncing = false;
    e[0].state = ENGINE_PAUSED;
    e[0].state_since_us = 150 * S;
    p.now_us = 159 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "");
    p.now_us = 161 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "LEFT-PAUSED 1 crit open");
    e[0].operator_hold = true;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "LEFT-PAUSED 1 crit end");
    diagnose_free(d);
}

static void test_split(void)
{
    Diagnose *d = diagnose_new(1, NULL);
    DiagEngine e[3];
    DiagPicture p = calm(e, 3, 100 * S);
    e[2].reported_version = 3;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "");
    p.now_us = 109 * S;
    p.syncing = true;
    diagnose_tick(d, &p);
    p.syncing = false;
    p.now_us = 112 * S; /* the clock began anew after the update */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "");
    p.now_us = 123 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "VER-SPLIT 3 crit open");
    e[2].admitted = false; /* it may not serve: no split */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "VER-SPLIT 3 crit end");
    diagnose_free(d);
}

static void test_parts(void)
{
    Diagnose *d = diagnose_new(1, NULL);
    DiagPicture p = calm(NULL, 0, 100 * S);
    p.frontend_down_us = 100 * S - 100;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "");
    p.now_us = 101 * S;
    p.trainer_down_us = 100 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "ROUTER-DEAD 0 crit open");
    CHECK_STR(next(d), "TRAINER-DEAD 0 crit open");
    p.frontend_down_us = p.trainer_down_us = 0;
    p.not_recording_us = 100 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "DISK-FULL 0 crit open");
    CHECK_STR(next(d), "ROUTER-DEAD 0 crit end");
    CHECK_STR(next(d), "TRAINER-DEAD 0 crit end");
    p.not_recording_us = 0;
    p.held_us = 100 * S;
    p.held_detail = "the policy is not written";
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "DISK-REFUSES 0 crit open");
    CHECK_STR(next(d), "DISK-FULL 0 crit end");
    p.held_us = 0;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "DISK-REFUSES 0 crit end");
    p.frontend_down_us = p.now_us; /* its parent saw it end: told at once */
    p.frontend_ended = true;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "ROUTER-DEAD 0 crit open");
    diagnose_free(d);
}

/* The alert names sample and engine, stays one while others become the oldest, and warns when what
 * is left may take longer than the phase does. */
static void test_tail(void)
{
    Diagnose *d = diagnose_new(1, NULL);
    DiagPicture p = calm(NULL, 0, 100 * S);
    p.want = 48;
    p.left = 2;
    p.in_flight = 2;
    p.oldest_started_us = 99 * S;
    p.sample_median_s = 2.0;
    diagnose_tick(d, &p); /* few are left from here on, and it is nothing yet */
    CHECK_STR(next(d), "");
    p.now_us = 109 * S;
    p.oldest_step = 9;
    p.oldest_sample = 311;
    p.oldest_tokens = 10;
    p.cap_tokens = 50;
    p.oldest_engine = 3;
    p.oldest_where = "eng-02";
    p.phase_median_s = 2.4;
    p.phase_closed = 2; /* no history: no warning */
    DiagAction action;
    diagnose_tick(d, &p);
    CHECK(diagnose_next(d, &action));
    CHECK_STR(action.evidence,
              "2 of 48 left; oldest: sample 9/311 on eng-02 for 10 s, 10 tokens (median 2.0 s), "
              "up to 40 s to go; slow, not stuck");
    CHECK_I64(action.engine, 3);
    CHECK_I64(action.onset_us, 100 * S);
    CHECK(!action.worse);
    CHECK(action.severity == SEVERITY_INFO);
    p.phase_closed = 3;
    p.now_us += 2 * S;
    p.oldest_engine = 2; /* the other one is the oldest now */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "TAIL 3 warn open");
    p.oldest_tokens = 49; /* nearly done: it does not get milder on the way */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "");
    p.left = 0;
    p.oldest_started_us = 0;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "TAIL 3 warn end");
    p.left = 1;
    p.oldest_started_us = p.now_us - 20 * S;
    p.oldest_tokens = 0; /* not one token */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "TAIL 2 warn open");
    diagnose_free(d);
}

/* More than a few are left, and one engine has them all while the others wait. */
static void test_tail_of_one_engine(void)
{
    Diagnose *d = diagnose_new(1, NULL);
    DiagEngine engines[4];
    for (int i = 0; i < 4; i++) {
        engines[i] = (DiagEngine){.engine = i + 1, .state = ENGINE_UP, .admitted = true,
                                  .reported_version = 1};
    }
    DiagPicture p = calm(engines, 4, 100 * S);
    p.want = 48;
    p.left = p.in_flight = 9;
    p.oldest_started_us = 80 * S;
    p.oldest_sample = 7;
    p.sample_median_s = 2.0;
    p.holders = 2; /* of four: a rollout that goes on */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "");
    p.holders = 0; /* nobody knows */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "");
    p.holders = 1;
    diagnose_tick(d, &p);
    DiagAction action;
    CHECK(diagnose_next(d, &action));
    CHECK(strstr(action.evidence, "9 of 48 left, all on one engine; oldest: sample 0/7") != NULL);
    p.left = 13; /* more than a quarter */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "TAIL 0 info end");
    p.left = 9;
    p.engine_count = 2; /* one of two is no few */
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "");
    diagnose_free(d);
}

static void test_rollout(void)
{
    Diagnose *d = diagnose_new(1, NULL);
    DiagPicture p = calm(NULL, 0, 100 * S);
    p.want = 100;
    p.left = 5;
    p.in_flight = 5;
    p.oldest_started_us = 90 * S;
    p.sample_median_s = 2.0;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "TAIL 0 info open");
    p.left = 6;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "TAIL 0 info end");
    p.idle_since_us = 60 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "LOST-TASK 0 crit open");
    p.paused = true;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "LOST-TASK 0 crit end");
    p.paused = false;
    p.want = 0;
    p.phase = PHASE_TRAIN;
    p.phase_since_us = 1 * S;
    p.now_us = 302 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), ""); /* no history: 15 minutes */
    p.phase_closed = 3;
    p.phase_median_s = 20;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "PHASE-STALL 0 warn open");
    p.now_us = 1802 * S;
    diagnose_tick(d, &p);
    CHECK_STR(next(d), "PHASE-STALL 0 crit open");
    diagnose_free(d);
}

int main(void)
{
    RUN(test_engine);
    RUN(test_stuck);
    RUN(test_split);
    RUN(test_parts);
    RUN(test_tail);
    RUN(test_tail_of_one_engine);
    RUN(test_rollout);
    return test_end();
}
