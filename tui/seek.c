#include "tui/seek.h"

/* The newest event before T that has the words; when there is none, the newest of the log. */
static bool find_text(View *view, Arena *scratch, const char *text, int64_t t_us, int64_t last_us,
                      int64_t *out)
{
    int64_t tries[2] = {t_us - 1, last_us};
    for (int i = 0; i < 2; i++) {
        arena_reset(scratch);
        EventList events = view_events(view, tries[i], 1, 0, text, scratch);
        if (events.count > 0) {
            *out = events.rows[events.count - 1].t_us;
            return true;
        }
    }
    return false;
}

bool seek_find(View *view, Arena *scratch, const Seek *seek, int64_t t_us, int64_t last_us,
               int64_t *out)
{
    switch (seek->kind) {
    case SEEK_MARK: return view_seek(view, seek->mark, t_us, seek->dir, out);
    case SEEK_STEP: return view_step_time(view, seek->value, out);
    case SEEK_POLICY: return view_policy_time(view, seek->value, out);
    case SEEK_TEXT: return find_text(view, scratch, seek->text, t_us, last_us, out);
    case SEEK_TIME: *out = seek->value; return true;
    }
    return false;
}
