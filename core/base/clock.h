/* The one place that reads clocks. Pure code gets times as arguments. */
#ifndef ROLLTOP_BASE_CLOCK_H
#define ROLLTOP_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Microseconds, arbitrary origin, > 0: whatever is waited for, bounded or measured. */
int64_t clock_mono_us(void);
/* Microseconds since 1970-01-01 UTC: for what is recorded or shown; somebody may set it at any
 * moment, forward or back. */
int64_t clock_wall_us(void);
/* Wall time of a moment of the monotonic clock, by what both clocks say now. */
int64_t clock_wall_of_us(int64_t mono_us);
int64_t clock_cpu_us(void);  /* CPU time of this process */
void clock_sleep_us(int64_t us); /* tests and children only; never on an event loop */
/* "2026-03-14T10:42:07.123Z" into buffer (at least 25 bytes). */
void clock_format_utc(int64_t wall_us, char *buffer, size_t size);

#endif
