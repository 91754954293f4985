/* Writes that the disk refuses: when they are tried again, and when no more. */
#include "core/loop/disk_wait.h"

#include "tests/harness.h"

static const int64_t S = 1000000;

static void test_again_with_growing_pauses(void)
{
    static const int64_t pauses[] = {2, 4, 8, 16, 30, 30, 30};
    DiskWait wait = {0};
    int64_t now = 5 * S;
    CHECK_I64(disk_wait_tick(&wait, 3600 * S, now), DISK_WAIT_NOTHING);
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        disk_wait_refused(&wait, now);
        CHECK_I64(wait.since_us, 5 * S);
        CHECK_I64(wait.tries, (int64_t)i + 1);
        CHECK_I64(disk_wait_tick(&wait, 3600 * S, now + pauses[i] * S - 1), DISK_WAIT_NOTHING);
        now += pauses[i] * S;
        CHECK_I64(disk_wait_tick(&wait, 3600 * S, now), DISK_WAIT_TRY);
        CHECK_I64(disk_wait_tick(&wait, 3600 * S, now + 600 * S), DISK_WAIT_NOTHING); /* one runs */
    }
}

static void test_at_once_by_the_operator(void)
{
    DiskWait wait = {0};
    CHECK(!disk_wait_now(&wait, 9 * S));
    CHECK_I64(disk_wait_tick(&wait, 60 * S, 9 * S), DISK_WAIT_NOTHING);
    disk_wait_refused(&wait, 10 * S);
    CHECK(disk_wait_now(&wait, 10 * S + 1));
    CHECK_I64(disk_wait_tick(&wait, 60 * S, 10 * S + 1), DISK_WAIT_TRY);
    CHECK(disk_wait_now(&wait, 10 * S + 2)); /* it is under way: no second one beside it */
    CHECK_I64(disk_wait_tick(&wait, 60 * S, 10 * S + 2), DISK_WAIT_NOTHING);
}

static void test_not_for_ever(void)
{
    DiskWait wait = {0};
    int64_t now = 1 * S;
    int tries = 0;
    DiskWaitStep step = DISK_WAIT_NOTHING;
    while (step != DISK_WAIT_GIVE_UP && now < 7200 * S) {
        if (wait.due_us == 0) {
            disk_wait_refused(&wait, now);
        }
        now += S;
        step = disk_wait_tick(&wait, 100 * S, now);
        tries += step == DISK_WAIT_TRY;
    }
    CHECK_I64(now, 101 * S);
    CHECK_I64(tries, 6); /* 2, 6, 14, 30, 60 and 90 s after the first refusal */
}

int main(void)
{
    RUN(test_again_with_growing_pauses);
    RUN(test_at_once_by_the_operator);
    RUN(test_not_for_ever);
    return test_end();
}
