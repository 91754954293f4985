/* The views: model and snapshot in, cells out. Nothing here changes state, reads a clock or a
 * file; ages are against the snapshot's moment. screen.c puts the parts together. */
#ifndef ROLLTOP_TUI_SCREEN_H
#define ROLLTOP_TUI_SCREEN_H

#include "tui/format.h"
#include "tui/model.h"
#include "tui/state.h"

typedef struct Screen {
    const Model *m;
    const Snapshot *s;
    int64_t now_us; /* wall time of the frame: for what the console itself does (pending, boxes) */
    Layout layout;
} Screen;

void screen_draw(const Model *model, const Snapshot *snap, int64_t now_us, Surface *surface);

/* A line of facts: what matters least leaves first when the width does not do. */
enum { SEGMENT_TEXT = 200, SEGMENTS_MAX = 24 };
typedef struct Segment {
    char text[SEGMENT_TEXT];
    Role role;
    int drop; /* 0 stays always; larger leaves earlier */
} Segment;
typedef struct SegmentLine {
    Segment items[SEGMENTS_MAX];
    int count;
} SegmentLine;
void segment_add(SegmentLine *line, int drop, Role role, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Draws in [0, w) of row y with `gap` blanks between; returns the cells used. */
int segment_draw(const Draw *d, int y, int w, int gap, const SegmentLine *line);

/* Title line of a pane in row 0; the rest of the pane comes back. */
Draw pane_frame(const Draw *d, const Screen *screen, Pane pane, const char *title,
                const char *right);
Draw plain_frame(const Draw *d, const char *title, const char *right, bool focused);
/* The sides and foot of a box whose title plain_frame drew. */
void box_close(const Draw *d);
/* First row to show so that the cursor at `place` of `count` is seen in `rows`. */
int scroll_top(int place, int count, int rows);
/* "value", or "value (41s old)" once the observation is older than the limit. */
void with_age(char *buffer, size_t size, const char *value, Val v, int64_t t_us);
const char *or_dash(const char *s);

void header_draw(const Draw *d, const Screen *screen);
void strip_draw(const Draw *d, int y, const Screen *screen);
void history_draw(const Draw *d, const Screen *screen);
void engines_draw(const Draw *d, const Screen *screen);
void tail_draw(const Draw *d, const Screen *screen);
/* "9/311 on eng-02: 29s old, 31 tokens, 1.1/s, last token 0.9s ago" */
void tail_words(const Snapshot *s, const TailRow *row, char *buffer, size_t size);
/* Why a sample in flight is not done yet; "" when nothing is out of the ordinary. */
Role tail_why(const Snapshot *s, const TailRow *row, char *buffer, size_t size);
void timeline_draw(const Draw *d, const Screen *screen);
void events_draw(const Draw *d, const Screen *screen);
void commands_draw(const Draw *d, const Screen *screen);
void policies_draw(const Draw *d, const Screen *screen);
void learning_draw(const Draw *d, const Screen *screen);
void detail_draw(const Draw *d, const Screen *screen);
void detail_sample_draw(const Draw *d, const Screen *screen, const Detail *detail);
void engine_detail_draw(const Draw *d, const Screen *screen, int64_t engine, int scroll,
                        bool side);
void compare_draw(const Draw *d, const Screen *screen, const Detail *detail);
void help_draw(const Draw *d, const Screen *screen);
/* A click on a title there sorts by the column of that name; NULL and a name that does not sort
 * are none. */
void draw_sort_title(const Draw *d, int x, int y, int w, Pane pane, const char *sort);
void moments_draw(const Draw *d, const Screen *screen);
void sort_draw(const Draw *d, const Screen *screen);
void confirm_draw(const Draw *d, const Screen *screen);
/* The box in lines of words, for --plain. */
void confirm_words(const Screen *screen, Text *out);
void quit_draw(const Draw *d, const Screen *screen);
/* What a confirmation at level 1 asks, for the status line. */
void confirm_line(const Screen *screen, char *buffer, size_t size);
/* Why a row is as it is: pending action, another operator's, the engine's own reason. */
Role engine_why(const Screen *screen, const EngineRow *row, char *buffer, size_t size);

#endif
