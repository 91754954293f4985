/* Graphs in cells, in one of three looks: block characters (the default), braille dots (asked for
 * by `graph = braille`: twice the history in the same cells), and ASCII, which a C locale and
 * `graph = ascii` get. Plain mode has words instead. */
#ifndef ROLLTOP_TUI_GRAPH_H
#define ROLLTOP_TUI_GRAPH_H

#include "tui/screen.h"

/* The look that the configuration asks for and the surface allows. */
GraphStyle graph_style(const Screen *screen, const Surface *surface);
/* A sign of the surface's table; its stand-in in an ASCII graph. */
void graph_glyph(const Draw *d, GraphStyle style, int x, int y, Role role, Glyph glyph);
/* A bar of height 0 to 1 in one cell. */
void graph_bar(const Draw *d, GraphStyle style, int x, int y, Role role, double height);

typedef struct Spark {
    const float *values; /* oldest first, NaN: no data; the last is of the bucket that ends at T */
    int count;
    int64_t bucket_us, t_us;
    double most; /* the value of full height */
} Spark;
/* Cells of a row's history beside its write head; 0: the room is too small to say anything. */
int graph_spark_cells(GraphStyle style, int room, int count);
/* How long a time these cells are. */
int64_t graph_spark_us(GraphStyle style, int cells, int64_t bucket_us);
/* The newest value stands left of the head, the oldest right of it: only the head moves, and a
 * value keeps its place. */
void graph_spark(const Draw *d, GraphStyle style, int x, int y, const Spark *spark);

/* Braille dots of a chart: two across and four down in each cell. */
typedef struct Canvas {
    unsigned char bits[SURFACE_H_MAX][SURFACE_W_MAX];
    int w, h; /* cells */
} Canvas;
/* In dots, from the top left; what lies outside is not drawn. */
void canvas_line(Canvas *canvas, int x0, int y0, int x1, int y1);
/* Cells without a dot keep what is there. */
void canvas_draw(const Draw *d, int x, int y, Role role, const Canvas *canvas);

#endif
