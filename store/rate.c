#include "store/rate.h"

#include <math.h>

enum { SECOND_US = 1000000 };

Val rate_of(const Seen *seen, size_t count)
{
    if (count < 2) {
        return val_none();
    }
    const Seen *last = &seen[count - 1];
    const Seen *first = last;
    for (size_t i = count - 1; i > 0 && last->t_us - first->t_us < RATE_WINDOW_US; i--) {
        if (first->t_us - seen[i - 1].t_us > RATE_GAP_US) {
            break;
        }
        first = &seen[i - 1];
    }
    int64_t span_us = last->t_us - first->t_us;
    if (span_us < 400000) {
        return val_none();
    }
    return val_of((last->tokens - first->tokens) * 1e6 / (double)span_us, last->t_us);
}

/* Token sum at a moment between observations; NaN outside them or in a gap over `gap_us`. */
static double tokens_at(const Seen *seen, size_t count, size_t *at, int64_t t_us, int64_t gap_us)
{
    while (*at + 1 < count && seen[*at + 1].t_us <= t_us) {
        (*at)++;
    }
    if (count == 0 || seen[*at].t_us > t_us) {
        return NAN;
    }
    const Seen *a = &seen[*at];
    if (*at + 1 == count) {
        return t_us - a->t_us <= 1500000 ? a->tokens : NAN;
    }
    const Seen *b = a + 1;
    if (b->t_us - a->t_us > gap_us) {
        return NAN;
    }
    double part = (double)(t_us - a->t_us) / (double)(b->t_us - a->t_us);
    return a->tokens + (b->tokens - a->tokens) * part;
}

void rate_spark(const Seen *seen, size_t count, int64_t t_us, const SparkShape *shape,
                int64_t grain_us, float *out)
{
    int64_t cell_us = shape->cell_us;
    int64_t gap_us = cell_us > 5000000 ? 3 * cell_us : 15000000;
    if (grain_us > SECOND_US && gap_us < 2 * grain_us) {
        gap_us = 2 * grain_us; /* a trim left no more than that */
    }
    size_t at = 0;
    int64_t end_us = (t_us + cell_us - 1) / cell_us * cell_us;
    int64_t start_us = end_us - shape->cells * cell_us;
    double before = tokens_at(seen, count, &at, start_us, gap_us);
    for (int i = 0; i < shape->cells; i++) {
        int64_t from_us = start_us + i * cell_us;
        int64_t span_us = i + 1 < shape->cells ? cell_us : t_us - from_us;
        double after = tokens_at(seen, count, &at, from_us + span_us, gap_us);
        double rate = (after - before) * 1e6 / (double)span_us;
        bool young = span_us < cell_us / 4;
        out[i] = young ? NAN : (float)rate; /* NaN where either end is unknown */
        before = after;
    }
}
