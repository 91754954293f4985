/* A screen in memory: cells of one grapheme, one role and flags. Views draw here, tests compare
 * it as text, term.c copies the difference to curses. Expected size 44x9 to 300x100.
 *
 * Every text from outside passes surface_put, the render boundary with the one sanitiser:
 * control, escape, bidi, zero-width, private and unassigned code points become one visible mark;
 * line feeds and tabs too; wide characters take two cells and are never split; combining marks
 * stay with their base, two at most. In an ASCII surface every other character is '?'. */
#ifndef ROLLTOP_TUI_SURFACE_H
#define ROLLTOP_TUI_SURFACE_H

#include "core/base/str.h"
#include "tui/role.h"

typedef struct Rect {
    int x, y, w, h;
} Rect;

enum { CELL_COMBINING = 2, CELL_SELECTED = 1 };
enum { SURFACE_W_MAX = 400, SURFACE_H_MAX = 200 };

typedef struct Cell {
    uint32_t code;                      /* ' ' when blank; 0 behind a wide character */
    uint32_t combining[CELL_COMBINING]; /* 0: none */
    unsigned char role, flags;
    unsigned char unused[2]; /* no padding: rows are compared as bytes */
} Cell;

/* The few signs of our own that are not ASCII, each with its ASCII stand-in of equal width. */
#define TUI_GLYPHS(X)                                                                             \
    X(GLYPH_LINE, 0x2500, '-') X(GLYPH_LINE_FOCUS, 0x2550, '=') X(GLYPH_BAR, 0x2502, '|')         \
    X(GLYPH_CUT, 0x2026, '~') X(GLYPH_FULL, 0x2588, '#') X(GLYPH_EMPTY, 0x00b7, '.')              \
    X(GLYPH_CURVE, 0x25cf, 'o') X(GLYPH_DOT, 0x00b7, '.') X(GLYPH_HEAD, '^', '^')                 \
    X(GLYPH_BLOCK1, 0x2581, '.') X(GLYPH_BLOCK2, 0x2582, '.') X(GLYPH_BLOCK3, 0x2583, ':')        \
    X(GLYPH_BLOCK4, 0x2584, ':') X(GLYPH_BLOCK5, 0x2585, ':') X(GLYPH_BLOCK6, 0x2586, '|')        \
    X(GLYPH_BLOCK7, 0x2587, '|') X(GLYPH_BLOCK8, 0x2588, '|')
#define TUI_GLYPH_ENTRY(name, utf8, ascii) name,
typedef enum Glyph { TUI_GLYPHS(TUI_GLYPH_ENTRY) GLYPH_COUNT } Glyph;

/* What a mouse finds on the screen: views note it as they draw, so that what is seen is what is
 * clicked. */
typedef enum HitKind { HIT_NONE, HIT_PANE, HIT_ROW, HIT_SORT } HitKind;
typedef struct Hit {
    HitKind kind;
    int pane, value; /* of the pane: place of the row, or sort of the column */
} Hit;
enum { SURFACE_HITS_MAX = 512 }; /* what is beyond is not clickable */

typedef struct Surface Surface;

Surface *surface_new(int w, int h, bool ascii); /* sizes are clamped to 1 and the maxima */
void surface_free(Surface *surface);
void surface_resize(Surface *surface, int w, int h); /* clears */
void surface_clear(Surface *surface);
void surface_copy(Surface *to, const Surface *from); /* same size afterwards */
int surface_w(const Surface *surface);
int surface_h(const Surface *surface);
bool surface_ascii(const Surface *surface);
const Cell *surface_cell(const Surface *surface, int x, int y); /* NULL outside */
void surface_cursor(Surface *surface, int x, int y);            /* where the hardware cursor sits */
void surface_cursor_get(const Surface *surface, int *x, int *y);

void surface_hit(Surface *surface, Rect r, Hit hit); /* later ones lie on top */
Hit surface_hit_at(const Surface *surface, int x, int y);
/* Cells [x, x+n) of row y, clipped; keeps what is there but adds flags. */
void surface_flag(Surface *surface, int x, int y, int n, unsigned char flags);
/* Writes at most `max_w` cells at (x, y), both in surface coordinates; what does not fit ends in
 * the cut sign. Returns the cells used. */
int surface_put(Surface *surface, int x, int y, int max_w, Role role, Str text);
void surface_glyph(Surface *surface, int x, int y, Role role, Glyph glyph);
char surface_glyph_ascii(Glyph glyph); /* its stand-in */
/* Cells that surface_put would use without a limit. */
int surface_text_width(const Surface *surface, Str text);
/* The screen as text, trailing blanks cut, one line a row; and the role map of the same shape
 * (letters of TUI_ROLES, selected rows in a second map as '#'). Appends to *out. */
void surface_dump_text(const Surface *surface, Text *out);
void surface_dump_row(const Surface *surface, int y, Text *out); /* one line, with a line feed */
void surface_dump_roles(const Surface *surface, Text *out); /* for golden screens */

/* What one code point of foreign text becomes: itself, a mark, or (true) a combining mark that
 * joins its base. *width is 0, 1 or 2. The rule of the boundary, open for its test. */
bool surface_sanitise(uint32_t code, bool ascii, uint32_t *out, int *width);

/* ---- a window of a surface: coordinates from its corner, everything clipped to it ---------- */

typedef struct Draw {
    Surface *surface;
    Rect r;
} Draw;

int draw_str(const Draw *d, int x, int y, Role role, Str text);
int draw_text(const Draw *d, int x, int y, Role role, const char *text); /* NULL draws nothing */
int draw_f(const Draw *d, int x, int y, Role role, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* In a field of w cells; right-aligned when `right`. */
void draw_field(const Draw *d, int x, int y, int w, bool right, Role role, const char *text);
void draw_glyph(const Draw *d, int x, int y, Role role, Glyph glyph);
/* Eight dots of one cell by Unicode's numbering; never in an ASCII surface. */
void draw_braille(const Draw *d, int x, int y, Role role, unsigned bits);
void draw_hit(const Draw *d, int x, int y, int w, HitKind kind, int pane, int value);
void draw_flag_row(const Draw *d, int y, unsigned char flags);
Draw draw_sub(const Draw *d, int x, int y, int w, int h);
void draw_clear(const Draw *d);
/* Wraps foreign text into rows from y on, at most `rows`, between words where that wastes less
 * than half a line; line feeds break lines. Skips the first
 * `skip` rows. Returns the rows it would need in all. */
int draw_wrap(const Draw *d, int y, int rows, int skip, Role role, Str text);

#endif
