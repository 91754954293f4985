#include "core/loop/disk_wait.h"

static const int64_t FIRST_US = 2000000, LONGEST_US = 30000000;

void disk_wait_refused(DiskWait *wait, int64_t now_us)
{
    int64_t pause_us = FIRST_US;
    for (int i = 0; i < wait->tries && pause_us < LONGEST_US; i++) {
        pause_us *= 2;
    }
    wait->tries++;
    wait->since_us = wait->since_us > 0 ? wait->since_us : now_us;
    wait->due_us = now_us + (pause_us < LONGEST_US ? pause_us : LONGEST_US);
}

bool disk_wait_now(DiskWait *wait, int64_t now_us)
{
    if (wait->due_us > now_us) {
        wait->due_us = now_us;
    }
    return wait->since_us > 0;
}

DiskWaitStep disk_wait_tick(DiskWait *wait, int64_t limit_us, int64_t now_us)
{
    if (wait->since_us == 0 || wait->due_us == 0) {
        return DISK_WAIT_NOTHING;
    }
    if (now_us - wait->since_us >= limit_us) {
        return DISK_WAIT_GIVE_UP;
    }
    if (now_us < wait->due_us) {
        return DISK_WAIT_NOTHING;
    }
    wait->due_us = 0;
    return DISK_WAIT_TRY;
}
