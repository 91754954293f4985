/* The moments in which an engine that is not verified yet makes tokens. SGLang scores nothing while
 * it is paused, so its canary runs between a continue and a pause; what a frontend of others has
 * given to it meanwhile runs beside the canary, by weights that nobody has vouched for, stamped
 * with the version that the engine says. Such an attempt had no token before (the engine was
 * paused), and the pause ends it. Which engine it ran on is not known, so whatever fits is made
 * again. Pure; times of one monotonic clock, microseconds. */
#ifndef ROLLTOP_POLICY_CANARY_WINDOW_H
#define ROLLTOP_POLICY_CANARY_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct CanaryWindow { /* zeroed: there was none */
    int open;
    int64_t from_us, closed_us; /* windows that touch are one */
} CanaryWindow;

void canary_window_open(CanaryWindow *window, int64_t now_us); /* before the continue is sent */
void canary_window_close(CanaryWindow *window, int64_t now_us); /* the pause has been answered */
/* May all tokens of an attempt come from there? It was sent at started_us, its first token came at
 * first_us (0: not known), it ended at end_us. */
bool canary_window_covers(const CanaryWindow *window, int64_t started_us, int64_t first_us,
                          int64_t end_us);

#endif
