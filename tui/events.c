/* Events, newest last, and commands: who asked for what, and what came of it. */
#include "tui/columns.h"
#include "tui/screen.h"

#include <string.h>

enum { EVENT_WORDS = 60, EVENT_LEAST = 40 };
static const Column event_columns[] = {{"TIME", 9, 9, false, 0, NULL},
                                       {"", 2, 2, false, 0, NULL},
                                       {"SOURCE", 10, 32, false, 0, NULL}};
enum { EVENT_COLUMNS = sizeof event_columns / sizeof *event_columns };

static void draw_event(const Draw *d, int y, const Screen *screen, const EventRow *row,
                       const int widths[EVENT_COLUMNS], bool cursor)
{
    char at[FORMAT_MAX];
    int x = draw_f(d, 0, y, cursor ? ROLE_KEY : ROLE_DIM, "%s ", format_clock(row->t_us, at));
    draw_text(d, x - 1, y, ROLE_MARKED, mark_has(screen->m, PANE_EVENTS, row->id) ? "*" : "");
    draw_f(d, x, y, severity_role(row->severity), "%c", severity_letter(row->severity));
    draw_field(d, x + 2, y, widths[2] - 1, false, ROLE_DIM, or_dash(row->source));
    Str text = str_from(or_dash(row->text));
    size_t skip = 8 * (size_t)screen->m->scroll_x; /* bytes; a cut character shows as a mark */
    while (skip > 0 && skip < text.n && ((unsigned char)text.p[skip] & 0xc0) == 0x80) {
        skip++;
    }
    bool scrolled = screen->m->focus == PANE_EVENTS && skip > 0 && skip < text.n;
    draw_str(d, x + 2 + widths[2], y, severity_role(row->severity),
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
    int need[EVENT_COLUMNS] = {0};
    int widths[EVENT_COLUMNS];
    for (size_t i = 0; i < events->count; i++) {
        columns_need(&need[2], events->rows[i].source);
    }
    columns_fit(event_columns, need, EVENT_COLUMNS, body.r.w, EVENT_WORDS, EVENT_LEAST, widths);
    int place = model_place(m, screen->s, PANE_EVENTS);
    int top = newest_last(m) ? (count > rows ? count - rows : 0)
                                              : scroll_top(place, count, rows);
    for (int i = 0; i < rows && top + i < count; i++) {
        bool cursor = top + i == place && m->focus == PANE_EVENTS;
        draw_hit(&body, 0, i, body.r.w, HIT_ROW, PANE_EVENTS, top + i);
        draw_event(&body, i, screen, &events->rows[m->shown[PANE_EVENTS][top + i]], widths,
                   cursor);
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

enum { CMD_TIME, CMD_ID, CMD_WHO, CMD_WHAT, CMD_TARGET, CMD_STATE, CMD_COLUMNS };
enum { ANSWER_WISH = 40, ANSWER_LEAST = 16 };

static const Column command_columns[CMD_COLUMNS] = {
    {"TIME", 9, 9, false, 0, "newest"}, {"ID", 5, 9, false, 0, NULL},
    {"WHO", 17, 40, false, 0, "who"},   {"WHAT", 10, 18, false, 0, "what"},
    {"TARGET", 13, 48, false, 0, NULL}, {"STATE", 10, 10, false, 0, "state"},
};

static const char *command_cell(const CommandRow *row, int column, char out[FORMAT_MAX])
{
    switch (column) {
    case CMD_TIME: return format_clock(row->asked_us, out);
    case CMD_ID: (void)str_format(out, FORMAT_MAX, "%lld", (long long)row->command); return out;
    case CMD_WHO: return or_dash(row->who);
    case CMD_WHAT: return or_dash(row->what);
    case CMD_TARGET: return or_dash(row->target);
    case CMD_STATE: return or_dash(row->state);
    default: return "";
    }
}

static void fit_commands(int width, const CommandList *commands, int widths[CMD_COLUMNS])
{
    char text[FORMAT_MAX];
    int need[CMD_COLUMNS] = {0};
    for (size_t i = 0; i < commands->count; i++) {
        for (int c = CMD_ID; c < CMD_STATE; c++) {
            columns_need(&need[c], command_cell(&commands->rows[i], c, text));
        }
    }
    columns_fit(command_columns, need, CMD_COLUMNS, width, ANSWER_WISH, ANSWER_LEAST, widths);
}

static void draw_command(const Draw *d, int y, const Screen *screen, const CommandRow *row,
                         const int widths[CMD_COLUMNS])
{
    char text[FORMAT_MAX];
    int x = 0;
    for (int c = 0; c < CMD_COLUMNS; x += widths[c++]) {
        Role role = c <= CMD_ID       ? ROLE_DIM
                    : c == CMD_WHAT   ? ROLE_HEADER
                    : c == CMD_STATE  ? command_role(row->state)
                                      : ROLE_TEXT;
        draw_field(d, x, y, widths[c] - 1, false, role, command_cell(row, c, text));
    }
    draw_text(d, widths[CMD_TIME] - 1, y, ROLE_MARKED,
              mark_has(screen->m, PANE_COMMANDS, row->command) ? "*" : "");
    if (row->what && strcmp(row->what, "note") == 0) { /* its words are all there is to it */
        draw_text(d, x, y, ROLE_TEXT, or_dash(row->reason));
        return;
    }
    int answer = draw_text(d, x, y, ROLE_TEXT, row->answer);
    if (row->reason && row->reason[0]) {
        draw_f(d, answer > 0 ? x + answer + 2 : x, y, ROLE_DIM, "reason \"%s\"", row->reason);
    }
}

static void draw_command_titles(const Draw *d, const int widths[CMD_COLUMNS])
{
    int x = 0;
    for (int c = 0; c < CMD_COLUMNS; x += widths[c++]) {
        draw_text(d, x, 0, ROLE_DIM, command_columns[c].title);
        draw_sort_title(d, x, 0, widths[c], PANE_COMMANDS, command_columns[c].sort);
    }
    draw_text(d, x, 0, ROLE_DIM, "ANSWER, REASON");
}

void commands_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    const CommandList *commands = &screen->s->commands;
    char right[64];
    int widths[CMD_COLUMNS];
    int count = m->shown_count[PANE_COMMANDS];
    (void)str_format(right, sizeof right, "%d of %d, newest first", count, (int)commands->total);
    Draw body = pane_frame(d, screen, PANE_COMMANDS, "COMMANDS", right);
    fit_commands(body.r.w, commands, widths);
    draw_command_titles(&body, widths);
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
        draw_command(&body, 1 + i, screen, &commands->rows[m->shown[PANE_COMMANDS][top + i]],
                     widths);
        if (top + i == place && m->focus == PANE_COMMANDS) {
            draw_flag_row(&body, 1 + i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + 1 + i);
        }
    }
}
