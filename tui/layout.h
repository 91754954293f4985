/* Where things stand: size and wishes in, rectangles out. Pure. Every rectangle lies inside the
 * screen and overlaps no other; w == 0 means not shown. */
#ifndef ROLLTOP_TUI_LAYOUT_H
#define ROLLTOP_TUI_LAYOUT_H

#include "tui/surface.h"

typedef enum Pane {
    PANE_ENGINES,
    PANE_TAIL,
    PANE_STEPS,
    PANE_EVENTS,
    PANE_POLICIES,
    PANE_LEARNING,
    PANE_COMMANDS,
    PANE_COUNT
} Pane;

enum { LAYOUT_MIN_W = 60, LAYOUT_MIN_H = 16 };

typedef struct LayoutWish {
    Pane focus;
    bool zoom;      /* the focused pane alone */
    bool detail;    /* a detail page is open */
    bool second;    /* policies and learning in the place of tail and steps, where one must go */
    size_t engines; /* rows the table would like */
} LayoutWish;

typedef struct Layout {
    bool summary; /* too small: one honest summary instead of everything else */
    Rect header, panes[PANE_COUNT], detail, history, status, footer;
    bool detail_side; /* detail is the side pane that follows the cursor, not a page */
} Layout;

Layout layout_solve(int w, int h, const LayoutWish *wish);

#endif
