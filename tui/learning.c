/* Does it learn: the held-out eval reward and the training reward over steps, as one chart, with
 * the numbers said in words above it. */
#include "tui/graph.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AXIS_W = 7 };

typedef struct Chart {
    double low, high;
    int64_t first, last;
    int x, w, y, h;
} Chart;

static void widen(Chart *chart, const CurvePoint *points, size_t count, bool *any)
{
    for (size_t i = 0; i < count; i++) {
        double v = points[i].value;
        if (!isfinite(v)) {
            continue;
        }
        if (!*any) {
            chart->low = chart->high = v;
            chart->first = chart->last = points[i].step;
            *any = true;
        }
        chart->low = fmin(chart->low, v);
        chart->high = fmax(chart->high, v);
        chart->first = points[i].step < chart->first ? points[i].step : chart->first;
        chart->last = points[i].step > chart->last ? points[i].step : chart->last;
    }
}

static void plot(const Draw *d, const Chart *chart, const CurvePoint *points, size_t count,
                 GraphStyle style, Role role, Glyph glyph)
{
    double steps = chart->last > chart->first ? (double)(chart->last - chart->first) : 1;
    double span = chart->high > chart->low ? chart->high - chart->low : 1;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(points[i].value)) {
            continue;
        }
        int x = (int)((double)(points[i].step - chart->first) / steps * (chart->w - 1) + 0.5);
        int up = (int)((points[i].value - chart->low) / span * (chart->h - 1) + 0.5);
        graph_glyph(d, style, chart->x + x, chart->y + chart->h - 1 - up, role, glyph);
    }
}

/* The same in braille dots: the eval as a line, so that without colour the two differ as well. */
static void plot_dots(const Draw *d, const Chart *chart, const CurvePoint *points, size_t count,
                      Role role, bool joined)
{
    double steps = chart->last > chart->first ? (double)(chart->last - chart->first) : 1;
    double span = chart->high > chart->low ? chart->high - chart->low : 1;
    Canvas *canvas = xcalloc(1, sizeof *canvas);
    int before[2] = {-1, -1};
    canvas->w = chart->w;
    canvas->h = chart->h;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(points[i].value)) {
            continue;
        }
        double right = (double)(points[i].step - chart->first) / steps;
        double up = (points[i].value - chart->low) / span;
        int x = (int)(right * (2 * chart->w - 1) + 0.5);
        int y = (int)((1 - up) * (4 * chart->h - 1) + 0.5);
        canvas_line(canvas, joined && before[0] >= 0 ? before[0] : x,
                    joined && before[0] >= 0 ? before[1] : y, x, y);
        before[0] = x;
        before[1] = y;
    }
    canvas_draw(d, chart->x, chart->y, role, canvas);
    free(canvas);
}

/* An eval before the first step has the number -1 in the log. */
static const char *step_name(int64_t step, char out[FORMAT_MAX])
{
    (void)str_format(out, FORMAT_MAX, step < 0 ? "before training" : "step %lld", (long long)step);
    return out;
}

static void draw_words(const Draw *d, const Screen *screen)
{
    const Snapshot *s = screen->s;
    SegmentLine line = {.count = 0};
    GraphStyle style = graph_style(screen, d->surface);
    bool ascii = style == GRAPH_ASCII;
    bool dots = style == GRAPH_BRAILLE;
    char x[FORMAT_MAX];
    char y[FORMAT_MAX];
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    if (s->eval_count > 0) {
        const CurvePoint *first = &s->eval[0];
        const CurvePoint *last = &s->eval[s->eval_count - 1];
        const CurvePoint *best = first;
        for (size_t i = 1; i < s->eval_count; i++) {
            best = s->eval[i].value > best->value ? &s->eval[i] : best;
        }
        segment_add(&line, 0, ROLE_OK, "%s held-out eval %s (%s) > %s (%s)",
                    dots    ? "line:"
                    : ascii ? "o"
                            : "\xe2\x97\x8f", format_ratio(first->value, a),
                    step_name(first->step, x), format_ratio(last->value, b),
                    step_name(last->step, y));
        segment_add(&line, 2, ROLE_TEXT, "best %s, %s", format_ratio(best->value, c),
                    step_name(best->step, x));
        segment_add(&line, 4, ROLE_DIM, "%s ago", format_age(s->t_us - last->t_us, a));
    } else {
        segment_add(&line, 0, ROLE_DIM, "no held-out eval up to this moment");
    }
    if (s->reward_count > 0) {
        const CurvePoint *last = &s->reward[s->reward_count - 1];
        segment_add(&line, 1, ROLE_GRAPH2, "%s training reward %s (step %lld)",
                    dots    ? "dots:"
                    : ascii ? "."
                            : "\xc2\xb7", format_ratio(last->value, a),
                    (long long)last->step);
    }
    (void)segment_draw(d, 0, d->r.w, 3, &line);
}

static void draw_chart(const Draw *d, const Screen *screen)
{
    const Snapshot *s = screen->s;
    Chart chart = {.x = AXIS_W, .w = d->r.w - AXIS_W - 1, .y = 1, .h = d->r.h - 2};
    char a[FORMAT_MAX];
    bool any = false;
    widen(&chart, s->eval, s->eval_count, &any);
    widen(&chart, s->reward, s->reward_count, &any);
    if (!any || chart.w < 8 || chart.h < 2) {
        return;
    }
    if (chart.low >= 0 && chart.high <= 1) { /* rewards in [0, 1]: always the same scale */
        chart.low = 0;
        chart.high = 1;
    }
    draw_field(d, 0, chart.y, AXIS_W - 1, true, ROLE_DIM, format_ratio(chart.high, a));
    draw_field(d, 0, chart.y + chart.h - 1, AXIS_W - 1, true, ROLE_DIM,
               format_ratio(chart.low, a));
    for (int y = 0; y < chart.h; y++) {
        draw_glyph(d, AXIS_W - 1, chart.y + y, ROLE_BORDER, GLYPH_BAR);
    }
    GraphStyle style = graph_style(screen, d->surface);
    if (style == GRAPH_BRAILLE) {
        plot_dots(d, &chart, s->reward, s->reward_count, ROLE_GRAPH2, false);
        plot_dots(d, &chart, s->eval, s->eval_count, ROLE_OK, true);
    } else {
        plot(d, &chart, s->reward, s->reward_count, style, ROLE_GRAPH2, GLYPH_DOT);
        plot(d, &chart, s->eval, s->eval_count, style, ROLE_OK, GLYPH_CURVE);
    }
    draw_text(d, AXIS_W, chart.y + chart.h, ROLE_DIM, step_name(chart.first, a));
    char last[FORMAT_MAX];
    (void)str_format(last, sizeof last, "%lld", (long long)chart.last);
    draw_field(d, d->r.w - 12, chart.y + chart.h, 11, true, ROLE_DIM, last);
}

static void draw_step(const Draw *d, int y, const Screen *screen, const StepRow *row, bool cursor)
{
    char a[FORMAT_MAX];
    int64_t end = row->ended_us > 0 ? row->ended_us : screen->s->t_us;
    draw_text(d, 0, y, ROLE_KEY, cursor ? ">" : "");
    draw_text(d, 1, y, ROLE_MARKED, mark_has(screen->m, PANE_LEARNING, row->step) ? "*" : "");
    draw_f(d, 2, y, ROLE_TEXT, "%lld", (long long)row->step);
    draw_field(d, 9, y, 6, false, ROLE_TEXT, format_version(row->policy_version, a));
    draw_field(d, 15, y, 7, true, ROLE_GRAPH2, format_ratio_val(row->reward_mean, a));
    draw_field(d, 22, y, 7, true, ROLE_DIM, format_ratio_val(row->reward_std, a));
    draw_field(d, 29, y, 8, true, ROLE_OK, format_ratio_val(row->eval_reward_mean, a));
    draw_field(d, 37, y, 8, true, ROLE_TEXT, format_count((double)row->samples, a));
    draw_field(d, 45, y, 8, true, ROLE_TEXT, format_count((double)row->tokens, a));
    draw_field(d, 53, y, 8, true, ROLE_TEXT, format_age(end - row->started_us, a));
    bool bad = row->outcome && strcmp(row->outcome, "ok") != 0;
    draw_text(d, 63, y, bad ? ROLE_CRIT : ROLE_DIM, row->outcome ? row->outcome : "under way");
}

void learning_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    const Snapshot *s = screen->s;
    Draw body = pane_frame(d, screen, PANE_LEARNING, "LEARNING  reward over steps",
                           "held-out prompts were never trained on");
    draw_words(&body, screen);
    bool focused = m->focus == PANE_LEARNING;
    int rows = !focused ? 0 : body.r.h >= 20 ? 8 : body.r.h >= 12 ? 4 : 0;
    if (rows > 0) {
        int count = m->shown_count[PANE_LEARNING];
        int place = model_place(m, s, PANE_LEARNING);
        int top = scroll_top(place, count, rows);
        int y = body.r.h - rows;
        draw_text(&body, 2, y - 1, ROLE_DIM,
                  "STEP   POL    REWARD    STD    EVAL SAMPLES  TOKENS    TOOK  OUTCOME");
        for (int i = 0; i < rows && top + i < count; i++) {
            bool cursor = top + i == place;
            draw_hit(&body, 0, y + i, body.r.w, HIT_ROW, PANE_LEARNING, top + i);
            draw_step(&body, y + i, screen, &s->steps.rows[m->shown[PANE_LEARNING][top + i]],
                      cursor);
            if (cursor) {
                draw_flag_row(&body, y + i, CELL_SELECTED);
                surface_cursor(body.surface, body.r.x, body.r.y + y + i);
            }
        }
        rows++;
    }
    Draw chart = draw_sub(&body, 0, 1, body.r.w, body.r.h - 1 - rows);
    draw_chart(&chart, screen);
}
