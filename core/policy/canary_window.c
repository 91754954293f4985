#include "core/policy/canary_window.h"

static const int64_t LATE_US = 2000000; /* of what a frontend passes on */

void canary_window_open(CanaryWindow *window, int64_t now_us)
{
    bool apart = window->open == 0 && now_us > window->closed_us + LATE_US;
    if (window->from_us == 0 || apart) {
        window->from_us = now_us;
    }
    window->open++;
}

void canary_window_close(CanaryWindow *window, int64_t now_us)
{
    window->open -= window->open > 0;
    window->closed_us = now_us;
}

bool canary_window_covers(const CanaryWindow *window, int64_t started_us, int64_t first_us,
                          int64_t end_us)
{
    bool begun = window->from_us > 0 && (first_us == 0 ? end_us : first_us) >= window->from_us;
    bool ended = window->open > 0 || (started_us <= window->closed_us &&
                                      end_us <= window->closed_us + LATE_US);
    return begun && ended;
}
