/* The one place that reads clocks. Pure code gets times as arguments. */
#ifndef ROLLTOP_BASE_CLOCK_H
#define ROLLTOP_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_mono_us(void); /* monotonic microseconds, arbitrary origin */
int64_t clock_wall_us(void); /* microseconds since 1970-01-01 UTC */
int64_t clock_cpu_us(void);  /* CPU time of this process */
void clock_sleep_us(int64_t us); /* tests and children only; never on an event loop */
/* "2026-03-14T10:42:07.123Z" into buffer (at least 25 bytes). */
void clock_format_utc(int64_t wall_us, char *buffer, size_t size);

#endif
