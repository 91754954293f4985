/* Rates out of observations of a counter. Pure. Rates are slopes between two observations, with
 * the sum of growth interpolated where a boundary falls between two: cells of a spark line do not
 * flicker with the phase between probes and cells. */
#ifndef ROLLTOP_STORE_RATE_H
#define ROLLTOP_STORE_RATE_H

#include "core/base/val.h"

#include <stddef.h>
#include <stdint.h>

enum { RATE_WINDOW_US = 10000000, RATE_GAP_US = 30000000 };

typedef struct Seen { /* one observation: the sum of growth at that time */
    int64_t t_us;
    double tokens;
} Seen;

/* All lists are in order of time, each time once. */

/* A second, over the newest RATE_WINDOW_US of observations; unknown below 0.4 s of span. A gap of
 * more than RATE_GAP_US, in which nobody looked, ends the spell. */
Val rate_of(const Seen *seen, size_t count);

typedef struct SparkShape {
    int cells;
    int64_t cell_us;
} SparkShape;
/* `cells` rates up to T, oldest first; NaN: unknown. Cells lie on whole multiples of their length,
 * so that what is past keeps its value and only the newest cell, which ends at T, still moves; it
 * is unknown while it is younger than a quarter. `grain_us`: observations may be that far apart. */
void rate_spark(const Seen *seen, size_t count, int64_t t_us, const SparkShape *shape,
                int64_t grain_us, float *out);

#endif
