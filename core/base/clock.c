#include "core/base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

int64_t clock_wall_us(void)
{
    return read_us(CLOCK_REALTIME);
}

int64_t clock_wall_of_us(int64_t mono_us)
{
    return clock_wall_us() - (clock_mono_us() - mono_us);
}

int64_t clock_cpu_us(void)
{
    return read_us(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_sleep_us(int64_t us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = (us % 1000000) * 1000};
    while (nanosleep(&t, &t) != 0) {
        /* interrupted by a signal: the rest is in t */
    }
}

void clock_format_utc(int64_t wall_us, char *buffer, size_t size)
{
    int64_t floor_ms = wall_us >= 0 ? wall_us / 1000 : -((-wall_us + 999) / 1000);
    int64_t ms = ((floor_ms % 1000) + 1000) % 1000;
    time_t seconds = (time_t)((floor_ms - ms) / 1000);
    struct tm tm;
    if (size == 0) {
        return;
    }
    if (!gmtime_r(&seconds, &tm)) {
        snprintf(buffer, size, "?");
        return;
    }
    snprintf(buffer, size, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900, tm.tm_mon + 1,
             tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)ms);
}
