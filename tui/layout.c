#include "tui/layout.h"

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* One pane, and where there is room the last few events below it. */
static void solve_small(Layout *out, Rect body, const LayoutWish *wish)
{
    int few = max_int(5, wish->engines < 100 ? (int)wish->engines + 2 : 100);
    int rest = body.h - few;
    if (wish->focus == PANE_ENGINES && rest >= 11) { /* few engines leave room for the step */
        out->panes[PANE_ENGINES] = (Rect){body.x, body.y, body.w, few};
        out->panes[PANE_STEPS] = (Rect){body.x, body.y + few, body.w, rest - 5};
        out->panes[PANE_EVENTS] = (Rect){body.x, body.y + body.h - 5, body.w, 5};
        return;
    }
    int events = body.h >= 15 && wish->focus != PANE_EVENTS ? 4 : 0;
    if (wish->focus == PANE_ENGINES && rest >= 4) { /* no row of the table is taken for them */
        events = rest;
    }
    out->panes[wish->focus] = (Rect){body.x, body.y, body.w, body.h - events};
    if (events) {
        out->panes[PANE_EVENTS] = (Rect){body.x, body.y + body.h - events, body.w, events};
    }
}

static int engine_rows(Rect body, const LayoutWish *wish, int most)
{
    int want = (int)(wish->engines < 1000 ? wish->engines : 1000) + 2;
    return max_int(min_int(want, most), min_int(5, body.h));
}

static void solve_pair(Layout *out, Rect r, bool second)
{
    int left = r.w / 2;
    out->panes[second ? PANE_POLICIES : PANE_TAIL] = (Rect){r.x, r.y, left, r.h};
    out->panes[second ? PANE_LEARNING : PANE_STEPS] =
        (Rect){r.x + left + 1, r.y, r.w - left - 1, r.h};
}

static void solve_bottom(Layout *out, Rect r, const LayoutWish *wish)
{
    out->panes[wish->focus == PANE_COMMANDS ? PANE_COMMANDS : PANE_EVENTS] = r;
}

/* Engines, a pair side by side, events. */
static void solve_middle(Layout *out, Rect body, const LayoutWish *wish)
{
    int top = engine_rows(body, wish, body.h - 16);
    int left = body.h - top;
    int pair = min_int(max_int(9, left * 3 / 5), 20);
    out->panes[PANE_ENGINES] = (Rect){body.x, body.y, body.w, top};
    if (left >= 27) { /* few engines: both pairs have room */
        pair = (left - 7) / 2;
        solve_pair(out, (Rect){body.x, body.y + top, body.w, pair}, false);
        solve_pair(out, (Rect){body.x, body.y + top + pair, body.w, pair}, true);
        solve_bottom(out, (Rect){body.x, body.y + top + 2 * pair, body.w, left - 2 * pair}, wish);
        return;
    }
    bool asked = wish->focus == PANE_POLICIES || wish->focus == PANE_LEARNING;
    bool first = wish->focus == PANE_TAIL || wish->focus == PANE_STEPS;
    solve_pair(out, (Rect){body.x, body.y + top, body.w, pair},
               asked || (wish->second && !first));
    solve_bottom(out, (Rect){body.x, body.y + top + pair, body.w, left - pair}, wish);
}

/* Engines with the detail of the selected one, both pairs, events, history. */
static void solve_large(Layout *out, Rect body, const LayoutWish *wish)
{
    int side = 64;
    int history = 3;
    int top = max_int(engine_rows(body, wish, body.h - 29), min_int(14, body.h - 29));
    int rest = body.h - top - history;
    int pair = min_int(max_int(9, rest / 3), 14);
    int y = body.y;
    out->panes[PANE_ENGINES] = (Rect){body.x, y, body.w - side - 1, top};
    out->detail = (Rect){body.x + body.w - side, y, side, top};
    out->detail_side = true;
    y += top;
    solve_pair(out, (Rect){body.x, y, body.w, pair}, false);
    y += pair;
    solve_pair(out, (Rect){body.x, y, body.w, pair}, true);
    y += pair;
    solve_bottom(out, (Rect){body.x, y, body.w, rest - 2 * pair}, wish);
    out->history = (Rect){body.x, body.y + body.h - history, body.w, history};
}

Layout layout_solve(int w, int h, const LayoutWish *wish)
{
    Layout out = {0};
    if (w < LAYOUT_MIN_W || h < LAYOUT_MIN_H) {
        out.summary = true;
        return out;
    }
    int header = h < 22 ? 2 : 4;
    out.header = (Rect){0, 0, w, header};
    out.status = (Rect){0, h - 2, w, 1};
    out.footer = (Rect){0, h - 1, w, 1};
    Rect body = {0, header, w, h - header - 2};
    if (wish->detail) {
        out.detail = body;
    } else if (wish->zoom) {
        out.panes[wish->focus] = body;
    } else if (w >= 180 && h >= 50) {
        solve_large(&out, body, wish);
    } else if (w >= 100 && h >= 36) {
        solve_middle(&out, body, wish);
    } else {
        solve_small(&out, body, wish);
    }
    return out;
}
