/* Linked into rolltop_stepped in place of the wall clock (--wrap=clock_gettime): somebody sets it
 * an hour ahead, back to an hour ago, and right again, over and over. The monotonic clock is the
 * real one, as on any machine. */
#include <stdint.h>
#include <time.h>

enum { STEP_MS = 700, HOUR_S = 3600 };

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    static const int hours[] = {0, 1, -1};
    struct timespec mono;
    int rc = __real_clock_gettime(id, out);
    if (rc == 0 && id == CLOCK_REALTIME && __real_clock_gettime(CLOCK_MONOTONIC, &mono) == 0) {
        int64_t step = (mono.tv_sec * INT64_C(1000) + mono.tv_nsec / 1000000) / STEP_MS;
        out->tv_sec += hours[step % 3] * HOUR_S;
    }
    return rc;
}
