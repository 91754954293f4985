#include "tui/screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void segment_add(SegmentLine *line, int drop, Role role, const char *format, ...)
{
    if (line->count == SEGMENTS_MAX) {
        return;
    }
    Segment *item = &line->items[line->count];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(item->text, sizeof item->text, format, args);
    va_end(args);
    if (n > 0) {
        item->role = role;
        item->drop = drop;
        line->count++;
    }
}

int segment_draw(const Draw *d, int y, int w, int gap, const SegmentLine *line)
{
    int widths[SEGMENTS_MAX];
    bool kept[SEGMENTS_MAX];
    int total = 0;
    for (int i = 0; i < line->count; i++) {
        widths[i] = surface_text_width(d->surface, str_from(line->items[i].text));
        kept[i] = true;
        total += widths[i] + (i > 0 ? gap : 0);
    }
    while (total > w) {
        int worst = -1;
        for (int i = 0; i < line->count; i++) {
            if (kept[i] && line->items[i].drop > 0 &&
                (worst < 0 || line->items[i].drop >= line->items[worst].drop)) {
                worst = i;
            }
        }
        if (worst < 0) {
            break;
        }
        kept[worst] = false;
        total -= widths[worst] + gap;
    }
    Draw row = draw_sub(d, 0, y, w, 1);
    int x = 0;
    for (int i = 0; i < line->count; i++) {
        if (kept[i]) {
            x += x > 0 ? gap : 0;
            x += draw_text(&row, x, 0, line->items[i].role, line->items[i].text);
        }
    }
    return x;
}

Draw plain_frame(const Draw *d, const char *title, const char *right, bool focused)
{
    char shorter[96]; /* where all of it does not fit, what stands before the first wide gap */
    for (int x = 0; x < d->r.w; x++) {
        draw_glyph(d, x, 0, focused ? ROLE_TITLE : ROLE_BORDER,
                   focused ? GLYPH_LINE_FOCUS : GLYPH_LINE);
    }
    Draw name = draw_sub(d, 2, 0, d->r.w - 4, 1);
    int used = draw_f(&name, 0, 0, focused ? ROLE_TITLE : ROLE_TAB, " %s ", title);
    int right_w = surface_text_width(d->surface, str_from(right));
    const char *gap = right ? strstr(right, "  ") : NULL;
    if (gap && used + right_w + 8 >= d->r.w) {
        (void)str_format(shorter, sizeof shorter, "%.*s", (int)(gap - right), right);
        right = shorter;
        right_w = surface_text_width(d->surface, str_from(right));
    }
    if (right_w > 0 && used + right_w + 8 < d->r.w) {
        draw_f(d, d->r.w - right_w - 4, 0, ROLE_DIM, " %s ", right);
    }
    return draw_sub(d, 0, 1, d->r.w, d->r.h - 1);
}

void box_close(const Draw *d)
{
    for (int y = 1; y < d->r.h; y++) {
        draw_glyph(d, 0, y, ROLE_TITLE, GLYPH_BAR);
        draw_glyph(d, d->r.w - 1, y, ROLE_TITLE, GLYPH_BAR);
    }
    for (int x = 0; x < d->r.w; x++) {
        draw_glyph(d, x, d->r.h - 1, ROLE_TITLE, GLYPH_LINE_FOCUS);
    }
}

Draw pane_frame(const Draw *d, const Screen *screen, Pane pane, const char *title,
                const char *right)
{
    char text[160];
    bool focused = screen->m->focus == pane && screen->m->depth == 0;
    const char *filter = screen->m->filter[pane];
    (void)str_format(text, sizeof text, "%d %s%s%s", (int)pane + 1, title,
                     filter[0] ? "  filter: " : "", filter);
    surface_hit(d->surface, d->r, (Hit){HIT_PANE, (int)pane, 0});
    return plain_frame(d, text, right, focused);
}

int scroll_top(int place, int count, int rows)
{
    if (count <= rows || place < 0 || rows <= 0) {
        return 0;
    }
    int top = place - rows / 2;
    int last = count - rows;
    return top < 0 ? 0 : top > last ? last : top;
}

void with_age(char *buffer, size_t size, const char *value, Val v, int64_t t_us)
{
    char age[FORMAT_MAX];
    bool old = v.known && v.seen_us > 0 && t_us - v.seen_us > STALE_LIMIT_US;
    (void)str_format(buffer, size, "%s%s%s%s", value, old ? " (" : "",
                     old ? format_age(t_us - v.seen_us, age) : "", old ? " old)" : "");
}

const char *or_dash(const char *s)
{
    return s && s[0] ? s : "-";
}
