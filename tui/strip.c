/* The scrub strip: the whole log in one row, alerts as letters, gaps as '#', what cannot be read as
 * 'x', what was trimmed as ':', the position '|'. */
#include "tui/graph.h"

#include <math.h>
#include <string.h>

static char strip_letter(const StripCell *cell)
{
    return cell->crit > 0   ? 'C'
           : cell->warn > 0 ? 'W'
           : cell->damaged  ? 'x'
           : cell->gap      ? '#'
           : cell->trimmed  ? ':'
                            : '.';
}

static int strip_position(const Snapshot *s)
{
    int64_t span = s->strip_to_us - s->strip_from_us;
    int64_t at = s->t_us - s->strip_from_us;
    if (span <= 0) {
        return 0;
    }
    double place = (double)at / (double)span * s->strip_cells;
    return place < 0 ? 0 : place >= s->strip_cells ? s->strip_cells - 1 : (int)place;
}

static void strip_cells(const Draw *d, int x, int y, int w, const Snapshot *s)
{
    int here = strip_position(s);
    for (int i = 0; i < s->strip_cells && i < w; i++) {
        const StripCell *cell = &s->strip[i];
        char text[2] = {i == here ? '|' : strip_letter(cell), '\0'};
        Role role = i == here        ? ROLE_REPLAY
                    : cell->crit > 0 ? ROLE_CRIT
                    : cell->warn > 0 || cell->damaged ? ROLE_WARN
                                     : ROLE_DIM;
        draw_text(d, x + i, y, role, text);
    }
}

void strip_draw(const Draw *d, int y, const Screen *screen)
{
    const Snapshot *s = screen->s;
    char from[FORMAT_MAX];
    char to[FORMAT_MAX];
    if (s->strip_cells < 1) {
        draw_text(d, 0, y, ROLE_DIM, "no history yet: the log has nothing before this moment");
        return;
    }
    int x = draw_f(d, 0, y, ROLE_TEXT, "%s ", format_minute(s->strip_from_us, from));
    strip_cells(d, x, y, d->r.w - x - 7, s);
    x += s->strip_cells < d->r.w - x - 7 ? s->strip_cells : d->r.w - x - 7;
    x += draw_f(d, x, y, ROLE_TEXT, " %s", format_minute(s->strip_to_us, to));
    bool damaged = false;
    bool trimmed = false;
    for (int i = 0; i < s->strip_cells; i++) {
        damaged = damaged || s->strip[i].damaged;
        trimmed = trimmed || s->strip[i].trimmed;
    }
    draw_text(d, x + 2, y, ROLE_DIM, damaged && trimmed ? "x=bad :=trim" /* room for two */
                                     : damaged          ? "#=gap x=bad"
                                     : trimmed          ? "#=gap :=trim"
                                                        : "#=gap |=here");
}

void history_draw(const Draw *d, const Screen *screen)
{
    const Snapshot *s = screen->s;
    char title[96];
    char span[FORMAT_MAX];
    (void)str_format(title, sizeof title, "HISTORY  %s in the log",
                     format_span(s->run.last_us - s->run.first_us, span));
    Draw body = plain_frame(d, title, "[ ] step  { } alert  ( ) policy  @ go to  End live", false);
    strip_draw(&body, 0, screen);
    if (s->strip_cells < 1 || body.r.h < 2) {
        return;
    }
    double most = 0;
    double peak = 0; /* of ten seconds: a cell may be hours */
    for (int i = 0; i < s->strip_cells; i++) {
        Val v = s->strip[i].tokens_per_s;
        Val top = s->strip[i].tokens_max;
        most = v.known && v.v > most ? v.v : most;
        peak = top.known && top.v > peak ? top.v : peak;
    }
    peak = most > peak ? most : peak;
    double scale = most > 0 ? pow(10, ceil(log10(most) * 12) / 12) : 0; /* as in the table */
    GraphStyle style = graph_style(screen, d->surface); /* a cell is one of the strip above */
    draw_text(&body, 0, 1, ROLE_DIM, "tok/s");
    for (int i = 0; i < s->strip_cells && i + 6 < body.r.w; i++) {
        Val v = s->strip[i].tokens_per_s;
        if (v.known && scale > 0) {
            graph_bar(&body, style, 6 + i, 1, ROLE_GRAPH, v.v / scale);
        }
    }
    char text[FORMAT_MAX];
    draw_f(&body, 6 + s->strip_cells + 1, 1, ROLE_DIM, "max %s", format_count(peak, text));
}
