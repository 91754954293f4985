/* The long tail: who holds the last samples, since when, and why. Oldest first. */
#include "tui/screen.h"

#include <string.h>

enum { US = 1000000, QUIET_US = 5 * US };

static Role why_slow(const Snapshot *s, const TailRow *row, char *buffer, size_t size)
{
    const EngineRow *engine = snapshot_engine(s, row->engine);
    char age[FORMAT_MAX];
    int64_t quiet = s->t_us - (row->progress_us > 0 ? row->progress_us : row->started_us);
    buffer[0] = '\0';
    if (engine) {
        const StateLook *look = state_look(state_shown(engine, s->t_us));
        if (look->rank <= 2) {
            (void)str_format(buffer, size, "its engine is %s", look->word);
            return look->role;
        }
    }
    if (quiet > QUIET_US) {
        (void)str_format(buffer, size, "no token for %s", format_age(quiet, age));
        return ROLE_WARN;
    }
    if (row->attempt > 1) {
        (void)str_format(buffer, size, "attempt %d", row->attempt);
        return ROLE_PROGRESS;
    }
    if (engine && engine->waiting.known && engine->waiting.v > 0) {
        (void)str_format(buffer, size, "%s wait on its engine",
                         format_count(engine->waiting.v, age));
        return ROLE_TEXT;
    }
    return ROLE_TEXT;
}

static void draw_row(const Draw *d, int y, const Screen *screen, const TailRow *row, bool cursor)
{
    const Snapshot *s = screen->s;
    char text[64];
    char why[96];
    char a[FORMAT_MAX];
    bool wide = d->r.w >= 70;
    int x = 2;
    Role role = why_slow(s, row, why, sizeof why);
    draw_text(d, 0, y, ROLE_KEY, cursor ? ">" : "");
    (void)str_format(text, sizeof text, "%lld/%lld", (long long)row->step, (long long)row->sample);
    draw_field(d, x, y, 12, false, ROLE_TEXT, text);
    x += 13;
    draw_field(d, x, y, 8, false, ROLE_TEXT, row->engine > 0 ? or_dash(row->engine_name) : "?");
    x += 9;
    draw_field(d, x, y, 5, false, ROLE_TEXT, format_version(row->policy_version, a));
    x += 6;
    draw_field(d, x, y, 5, false, row->eval ? ROLE_PROGRESS : ROLE_TEXT,
               row->eval ? "eval" : "train");
    x += 5;
    draw_field(d, x, y, 7, true, ROLE_TEXT, format_age(s->t_us - row->started_us, a));
    x += 7;
    draw_field(d, x, y, 7, true, ROLE_TEXT, format_count((double)row->tokens, a));
    x += 7;
    if (wide) {
        double seconds = (double)(row->progress_us - row->started_us) / US;
        draw_field(d, x, y, 7, true, ROLE_DIM,
                   seconds > 0.5 ? format_count((double)row->tokens / seconds, a) : "-");
        x += 7;
        (void)str_format(text, sizeof text, "%d", row->attempt);
        draw_field(d, x, y, 5, true, row->attempt > 1 ? ROLE_PROGRESS : ROLE_DIM, text);
        x += 5;
    }
    draw_text(d, x + 2, y, role, why);
}

static void draw_summary(const Draw *d, int y, const Screen *screen)
{
    const TailList *tail = &screen->s->tail;
    SegmentLine line = {.count = 0};
    char a[FORMAT_MAX];
    char text[SEGMENT_TEXT];
    size_t used = 0;
    int64_t most = 1;
    for (int i = 0; i < 8; i++) {
        most = tail->age_histogram[i] > most ? tail->age_histogram[i] : most;
    }
    text[0] = '\0';
    for (int i = 0; i < 8 && used + 24 < sizeof text; i++) {
        if (tail->age_histogram[i] > 0) {
            (void)str_format(text + used, sizeof text - used, "%s%s:%lld", used ? "  " : "",
                             format_seconds(i * tail->age_bucket_s, a),
                             (long long)tail->age_histogram[i]);
            used = strlen(text);
        }
    }
    segment_add(&line, 1, ROLE_DIM, "ages from %s", text);
    segment_add(&line, 0, ROLE_TEXT, "groups %lld of %lld", (long long)tail->groups_complete,
                (long long)tail->groups_total);
    segment_add(&line, 2, tail->groups_blocked_by_one > 0 ? ROLE_PROGRESS : ROLE_DIM,
                "blocked by one sample: %lld", (long long)tail->groups_blocked_by_one);
    (void)segment_draw(d, y, d->r.w, 2, &line);
}

void tail_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    const TailList *tail = &screen->s->tail;
    char right[64];
    int count = m->shown_count[PANE_TAIL];
    (void)str_format(right, sizeof right, "%lld in flight%s", (long long)tail->total,
                     tail->total > tail->count ? ", the oldest shown" : "");
    Draw body = pane_frame(d, screen, PANE_TAIL, "LONG TAIL  oldest in flight", right);
    draw_text(&body, 2, 0, ROLE_DIM, "STEP/SAMPLE  ENGINE   POL   KIND     AGE TOKENS");
    if (body.r.w >= 70) {
        draw_text(&body, 48, 0, ROLE_DIM, "  TOK/S  TRY");
    }
    draw_text(&body, body.r.w >= 70 ? 63 : 51, 0, ROLE_DIM, "WHY");
    if (count == 0) {
        draw_text(&body, 2, 1, ROLE_DIM,
                  tail->total > 0 ? "no row matches the filter; Esc clears it"
                                  : "no sample is in flight at this moment");
    }
    bool summary = body.r.h >= 6;
    int rows = body.r.h - 1 - (summary ? 1 : 0);
    int place = model_place(m, screen->s, PANE_TAIL);
    int top = scroll_top(place, count, rows);
    for (int i = 0; i < rows && top + i < count; i++) {
        bool cursor = top + i == place && m->focus == PANE_TAIL;
        draw_row(&body, 1 + i, screen, &tail->rows[m->shown[PANE_TAIL][top + i]], cursor);
        if (cursor) {
            draw_flag_row(&body, 1 + i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + 1 + i);
        }
    }
    if (summary) {
        draw_summary(&body, body.r.h - 1, screen);
    }
}
