/* A number that may be missing or old: a missing number is not zero. */
#ifndef ROLLTOP_BASE_VAL_H
#define ROLLTOP_BASE_VAL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Val {
    double v;
    bool known;
    int64_t seen_us; /* wall time of the observation; 0 while never */
} Val;

static inline Val val_none(void)
{
    return (Val){0.0, false, 0};
}

static inline Val val_of(double v, int64_t seen_us)
{
    return (Val){v, true, seen_us};
}

#endif
