#include "core/loop/take_back.h"

#include "tests/harness.h"

enum { MOST = 16 };
#define S(seconds) ((int64_t)(seconds) * 1000000)

static TakeBackEngine engines[MOST];
static bool taken[MOST];
static int64_t many_us;

static void fleet_of(int count)
{
    many_us = 0;
    for (int i = 0; i < count; i++) {
        engines[i] = (TakeBackEngine){ENGINE_UP, S(100), false, false};
    }
}

static void goes(int i, EngineState state, int64_t since_us)
{
    engines[i].state = state;
    engines[i].since_us = since_us;
}

static int taken_of(int count)
{
    int n = 0;
    for (int i = 0; i < count; i++) {
        n += taken[i];
    }
    return n;
}

static void one_of_many_is_taken_at_once(void)
{
    fleet_of(4);
    goes(2, ENGINE_DEAD, S(200));
    CHECK_I64(take_back_judge(&many_us, engines, 4, S(200), taken), 0);
    CHECK(taken[2] && taken_of(4) == 1);
    goes(1, ENGINE_STUCK, S(200)); /* it may not be the only one that is about to show it */
    CHECK_I64(take_back_judge(&many_us, engines, 4, S(200), taken), 0);
    CHECK(taken[2] && taken_of(4) == 1);
    CHECK_I64(take_back_judge(&many_us, engines, 4, S(201), taken), 0);
    CHECK(taken[1] && taken[2] && taken_of(4) == 2); /* half of them is not most of them */
    fleet_of(2);
    goes(0, ENGINE_STUCK, S(200));
    CHECK_I64(take_back_judge(&many_us, engines, 2, S(202), taken), 0);
    CHECK(taken[0] && taken_of(2) == 1);
}

/* Engines that were late before are slow while the others are called dead: all stand still. */
static void silent_ones_count(void)
{
    fleet_of(3);
    goes(0, ENGINE_SLOW, S(202));
    goes(1, ENGINE_DEAD, S(205));
    goes(2, ENGINE_SLOW, S(202));
    engines[0].silent = engines[2].silent = true;
    CHECK_I64(take_back_judge(&many_us, engines, 3, S(205), taken), 3);
    CHECK_I64(taken_of(3), 0);
    fleet_of(3);
    goes(0, ENGINE_SLOW, S(100)); /* slow for long, and it answers */
    goes(1, ENGINE_DEAD, S(205));
    goes(2, ENGINE_SLOW, S(100));
    CHECK_I64(take_back_judge(&many_us, engines, 3, S(205), taken), 0);
    CHECK(taken[1] && taken_of(3) == 1);
    goes(1, ENGINE_DEAD, S(305));
    many_us = 0;
    engines[0].silent = engines[2].silent = true; /* how long they were slow says nothing of that */
    CHECK_I64(take_back_judge(&many_us, engines, 3, S(305), taken), 3);
    CHECK_I64(taken_of(3), 0);
}

static void most_at_once_wait(void)
{
    fleet_of(4);
    goes(0, ENGINE_DEAD, S(200));
    goes(1, ENGINE_STALE, S(199));
    goes(2, ENGINE_STALE, S(199));
    CHECK_I64(take_back_judge(&many_us, engines, 4, S(200), taken), 3);
    CHECK_I64(taken_of(4), 0);
    goes(1, ENGINE_UP, S(201)); /* the network is back, one of them is not */
    goes(2, ENGINE_SLOW, S(201));
    CHECK_I64(take_back_judge(&many_us, engines, 4, S(201), taken), 1); /* it may only be late */
    CHECK_I64(taken_of(4), 0);
    CHECK_I64(take_back_judge(&many_us, engines, 4, S(203), taken), 0);
    CHECK(taken[0] && taken_of(4) == 1);
    for (int i = 0; i < 3; i++) {
        goes(i, ENGINE_STUCK, S(300));
    }
    CHECK_I64(take_back_judge(&many_us, engines, 4, S(301), taken), 3);
    CHECK_I64(taken_of(4), 0);
    CHECK_I64(take_back_judge(&many_us, engines, 4, S(359), taken), 3);
    CHECK_I64(take_back_judge(&many_us, engines, 4, S(360), taken), 0); /* so it is */
    CHECK_I64(taken_of(4), 3);
    fleet_of(1); /* nobody else is there */
    goes(0, ENGINE_STUCK, S(300));
    CHECK_I64(take_back_judge(&many_us, engines, 1, S(310), taken), 1);
    CHECK_I64(taken_of(1), 0);
}

static void what_is_known_is_no_matter_of_looks(void)
{
    fleet_of(8);
    for (int i = 0; i < 5; i++) { /* dead for an hour: no part of the fleet any more */
        goes(i, ENGINE_DEAD, S(100));
    }
    goes(5, ENGINE_DEAD, S(3700));
    CHECK_I64(take_back_judge(&many_us, engines, 8, S(3700), taken), 0);
    CHECK(taken[5] && !taken[6] && !taken[7]);
    goes(6, ENGINE_DEAD, S(3700));
    CHECK_I64(take_back_judge(&many_us, engines, 8, S(3700), taken), 2);
    CHECK(!taken[5] && !taken[6]);
    fleet_of(3);
    for (int i = 0; i < 3; i++) { /* their parent saw all of them end */
        goes(i, ENGINE_DEAD, S(200));
        engines[i].known = true;
    }
    CHECK_I64(take_back_judge(&many_us, engines, 3, S(200), taken), 0);
    CHECK_I64(taken_of(3), 3);
    fleet_of(3); /* one after the other, not at once */
    goes(0, ENGINE_DEAD, S(200));
    engines[0].known = true;
    goes(1, ENGINE_DEAD, S(210));
    CHECK_I64(take_back_judge(&many_us, engines, 3, S(210), taken), 0);
    CHECK(taken[0] && taken[1] && !taken[2]);
    fleet_of(3); /* one that left was looked after when it did */
    goes(0, ENGINE_GONE, S(200));
    goes(1, ENGINE_DEAD, S(200));
    CHECK_I64(take_back_judge(&many_us, engines, 3, S(200), taken), 0);
    CHECK(!taken[0] && taken[1]);
}

int main(void)
{
    RUN(one_of_many_is_taken_at_once);
    RUN(silent_ones_count);
    RUN(most_at_once_wait);
    RUN(what_is_known_is_no_matter_of_looks);
    return test_end();
}
