/* A write that the disk refuses is tried again until a person has mended the cause (space, quota,
 * a read-only mount, permissions), the operator ends it, or its limit has passed. Pure: the caller
 * brings the time, of the monotonic clock in microseconds, and carries out what is said. */
#ifndef ROLLTOP_LOOP_DISK_WAIT_H
#define ROLLTOP_LOOP_DISK_WAIT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct DiskWait { /* zeroed: nothing waits */
    int64_t since_us; /* of the first refusal; 0: nothing waits */
    int64_t due_us;   /* of the next try; 0: one is under way */
    int tries;        /* that were refused */
} DiskWait;

typedef enum DiskWaitStep { DISK_WAIT_NOTHING, DISK_WAIT_TRY, DISK_WAIT_GIVE_UP } DiskWaitStep;

/* Refused: again after 2, 4, 8, 16, then each 30 s. */
void disk_wait_refused(DiskWait *wait, int64_t now_us);
/* The operator says that it is mended: the next try is due now. False: nothing waits. */
bool disk_wait_now(DiskWait *wait, int64_t now_us);
/* `limit_us` after the first refusal no try is begun any more. After TRY the caller tells how it
 * went: disk_wait_refused, or a zeroed state. */
DiskWaitStep disk_wait_tick(DiskWait *wait, int64_t limit_us, int64_t now_us);

#endif
