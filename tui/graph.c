#include "tui/graph.h"

#include <math.h>
#include <stdlib.h>

enum { DOTS_DOWN = 4, SPARK_LEAST = 8, FRESH_US = 1000000 };

/* Dots of a cell by column (left, right) and row (top to bottom). */
static const unsigned char dots[2][DOTS_DOWN] = {{0x01, 0x02, 0x04, 0x40},
                                                 {0x08, 0x10, 0x20, 0x80}};

GraphStyle graph_style(const Screen *screen, const Surface *surface)
{
    return surface_ascii(surface) ? GRAPH_ASCII : screen->m->config.graph;
}

void graph_glyph(const Draw *d, GraphStyle style, int x, int y, Role role, Glyph glyph)
{
    if (style == GRAPH_ASCII) {
        char text[2] = {surface_glyph_ascii(glyph), '\0'};
        draw_text(d, x, y, role, text);
    } else {
        draw_glyph(d, x, y, role, glyph);
    }
}

void graph_bar(const Draw *d, GraphStyle style, int x, int y, Role role, double height)
{
    int level = (int)ceil(height * 8);
    level = level < 1 ? 1 : level > 8 ? 8 : level;
    graph_glyph(d, style, x, y, role, (Glyph)(GLYPH_BLOCK1 + level - 1));
}

int graph_spark_cells(GraphStyle style, int room, int count)
{
    int cells = style == GRAPH_BRAILLE ? count / 2 : count;
    int n = cells < room - 1 ? cells : room - 1;
    return n < SPARK_LEAST ? 0 : n;
}

int64_t graph_spark_us(GraphStyle style, int cells, int64_t bucket_us)
{
    return cells * bucket_us * (style == GRAPH_BRAILLE ? 2 : 1);
}

static void spark_cell(const Draw *d, GraphStyle style, int x, int y, float v, double most)
{
    if (!isfinite(v)) {
        return;
    }
    if ((double)v / most * 8 <= 0) {
        draw_text(d, x, y, ROLE_DIM, "_");
    } else {
        graph_bar(d, style, x, y, ROLE_GRAPH, (double)v / most);
    }
}

/* Two buckets in a cell: the earlier one left. A value of nothing is its lowest dot. */
static void spark_pair(const Draw *d, int x, int y, const float v[2], double most)
{
    unsigned bits = 0;
    for (int side = 0; side < 2; side++) {
        int level = isfinite(v[side]) ? (int)ceil((double)v[side] / most * DOTS_DOWN) : 0;
        level = isfinite(v[side]) && level < 1 ? 1 : level > DOTS_DOWN ? DOTS_DOWN : level;
        for (int k = 0; k < level; k++) {
            bits |= dots[side][DOTS_DOWN - 1 - k];
        }
    }
    draw_braille(d, x, y, ROLE_GRAPH, bits);
}

void graph_spark(const Draw *d, GraphStyle style, int x, int y, const Spark *spark)
{
    int per_cell = style == GRAPH_BRAILLE ? 2 : 1;
    int n = graph_spark_cells(style, d->r.w - x, spark->count);
    if (n <= 0 || spark->most <= 0) {
        return;
    }
    /* Buckets lie on whole multiples of their length, so cells do too. */
    int64_t newest = (spark->t_us - 1) / spark->bucket_us;
    int64_t last = newest / per_cell;
    for (int64_t cell = last - n + 1; cell <= last; cell++) {
        int place = (int)((cell + n) % (n + 1));
        float v[2] = {NAN, NAN};
        for (int k = 0; k < per_cell; k++) {
            int64_t at = spark->count - 1 - (newest - (cell * per_cell + k));
            v[k] = at >= 0 && at < spark->count ? spark->values[at] : NAN;
            /* Nothing in a bucket that has just begun is no news yet: no dip that is not there. */
            bool fresh = (spark->t_us - 1) % spark->bucket_us < FRESH_US;
            v[k] = at == spark->count - 1 && fresh && v[k] <= 0 ? NAN : v[k];
        }
        if (per_cell == 2) {
            spark_pair(d, x + place, y, v, spark->most);
        } else {
            spark_cell(d, style, x + place, y, v[0], spark->most);
        }
    }
    draw_glyph(d, x + (int)(last % (n + 1)), y, ROLE_DIM, GLYPH_HEAD);
}

static void canvas_dot(Canvas *canvas, int x, int y)
{
    if (x >= 0 && y >= 0 && x < 2 * canvas->w && y < DOTS_DOWN * canvas->h) {
        unsigned char *cell = &canvas->bits[y / DOTS_DOWN][x / 2];
        *cell = (unsigned char)(*cell | dots[x % 2][y % DOTS_DOWN]);
    }
}

void canvas_line(Canvas *canvas, int x0, int y0, int x1, int y1)
{
    int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= steps; i++) {
        double part = steps > 0 ? (double)i / steps : 0;
        canvas_dot(canvas, x0 + (int)lround(part * (x1 - x0)), y0 + (int)lround(part * (y1 - y0)));
    }
}

void canvas_draw(const Draw *d, int x, int y, Role role, const Canvas *canvas)
{
    for (int row = 0; row < canvas->h; row++) {
        for (int column = 0; column < canvas->w; column++) {
            if (canvas->bits[row][column]) {
                draw_braille(d, x + column, y + row, role, canvas->bits[row][column]);
            }
        }
    }
}
