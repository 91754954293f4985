/* Events, newest last, and commands: who asked for what, and what came of it. */
#include "tui/screen.h"

#include <string.h>

static void draw_event(const Draw *d, int y, const Screen *screen, const EventRow *row,
                       bool cursor)
{
    char at[FORMAT_MAX];
    int x = draw_f(d, 0, y, cursor ? ROLE_KEY : ROLE_DIM, "%s ", format_clock(row->t_us, at));
    draw_f(d, x, y, severity_role(row->severity), "%c", severity_letter(row->severity));
    draw_field(d, x + 2, y, 9, false, ROLE_DIM, or_dash(row->source));
    Str text = str_from(or_dash(row->text));
    size_t skip = 8 * (size_t)screen->m->scroll_x; /* bytes; a cut character shows as a mark */
    while (skip > 0 && skip < text.n && ((unsigned char)text.p[skip] & 0xc0) == 0x80) {
        skip++;
    }
    bool scrolled = screen->m->focus == PANE_EVENTS && skip > 0 && skip < text.n;
    draw_str(d, x + 12, y, severity_role(row->severity),
             scrolled ? str_slice(text, skip, text.n) : text);
}

static bool newest_last(const Model *m)
{
    return m->follow_events && m->sort[PANE_EVENTS] == 0 && !m->inverted[PANE_EVENTS];
}

void events_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    const EventList *events = &screen->s->events;
    char right[96];
    int count = m->shown_count[PANE_EVENTS];
    char span[32] = "in 10 min";
    if (events->more_10min) {
        (void)str_format(span, sizeof span, "of the newest %d", VIEW_EVENTS_COUNTED);
    }
    (void)str_format(right, sizeof right, "%lld critical  %lld warning  %lld info %s",
                     (long long)events->crit_10min, (long long)events->warn_10min,
                     (long long)events->info_10min, span);
    Draw body = pane_frame(d, screen, PANE_EVENTS,
                           newest_last(m) ? "EVENTS (follow)" : "EVENTS (f follows)", right);
    if (count == 0) {
        draw_text(&body, 0, 0, ROLE_DIM,
                  events->total > 0 || m->filter[PANE_EVENTS][0]
                      ? "no event matches the filter; Esc clears it"
                      : "no event up to this moment");
        return;
    }
    int rows = body.r.h;
    int place = model_place(m, screen->s, PANE_EVENTS);
    int top = newest_last(m) ? (count > rows ? count - rows : 0)
                                              : scroll_top(place, count, rows);
    for (int i = 0; i < rows && top + i < count; i++) {
        bool cursor = top + i == place && m->focus == PANE_EVENTS;
        draw_hit(&body, 0, i, body.r.w, HIT_ROW, PANE_EVENTS, top + i);
        draw_event(&body, i, screen, &events->rows[m->shown[PANE_EVENTS][top + i]], cursor);
        if (cursor) {
            draw_flag_row(&body, i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + i);
        }
    }
}

static Role command_role(const char *state)
{
    if (!state) {
        return ROLE_TEXT;
    }
    return strcmp(state, "done") == 0                                      ? ROLE_OK
           : strcmp(state, "failed") == 0 || strcmp(state, "refused") == 0 ? ROLE_CRIT
                                                                           : ROLE_PROGRESS;
}

static void draw_command(const Draw *d, int y, const CommandRow *row)
{
    char a[FORMAT_MAX];
    draw_f(d, 0, y, ROLE_DIM, "%s", format_clock(row->asked_us, a));
    draw_f(d, 9, y, ROLE_DIM, "%lld", (long long)row->command);
    draw_field(d, 14, y, 16, false, ROLE_TEXT, or_dash(row->who));
    draw_field(d, 31, y, 9, false, ROLE_HEADER, or_dash(row->what));
    draw_field(d, 41, y, 12, false, ROLE_TEXT, or_dash(row->target));
    draw_field(d, 54, y, 9, false, command_role(row->state), or_dash(row->state));
    int x = 64;
    x += draw_text(d, x, y, ROLE_TEXT, row->answer);
    if (row->reason && row->reason[0]) {
        draw_f(d, x > 64 ? x + 2 : x, y, ROLE_DIM, "reason \"%s\"", row->reason);
    }
}

void commands_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    const CommandList *commands = &screen->s->commands;
    char right[64];
    int count = m->shown_count[PANE_COMMANDS];
    (void)str_format(right, sizeof right, "%d of %d, newest first", count, (int)commands->total);
    Draw body = pane_frame(d, screen, PANE_COMMANDS, "COMMANDS", right);
    draw_text(&body, 0, 0, ROLE_DIM,
              "TIME     ID   WHO              WHAT      TARGET       STATE     ANSWER, REASON");
    draw_sort_title(&body, 0, 0, 8, PANE_COMMANDS, "newest");
    draw_sort_title(&body, 14, 0, 16, PANE_COMMANDS, "who");
    draw_sort_title(&body, 31, 0, 9, PANE_COMMANDS, "what");
    draw_sort_title(&body, 54, 0, 9, PANE_COMMANDS, "state");
    if (count == 0) {
        draw_text(&body, 0, 1, ROLE_DIM, commands->total > 0
                  ? "no command matches the filter; Esc clears it"
                  : "nobody asked for anything up to this moment");
        return;
    }
    int rows = body.r.h - 1;
    int place = model_place(m, screen->s, PANE_COMMANDS);
    int top = scroll_top(place, count, rows);
    for (int i = 0; i < rows && top + i < count; i++) {
        draw_hit(&body, 0, 1 + i, body.r.w, HIT_ROW, PANE_COMMANDS, top + i);
        draw_command(&body, 1 + i, &commands->rows[m->shown[PANE_COMMANDS][top + i]]);
        if (top + i == place && m->focus == PANE_COMMANDS) {
            draw_flag_row(&body, 1 + i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + 1 + i);
        }
    }
}
