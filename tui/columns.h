/* Widths of a table's columns. Each has a least width, a greatest one, and one that its content
 * would like; what is left belongs to the words behind the last column. Pure. */
#ifndef ROLLTOP_TUI_COLUMNS_H
#define ROLLTOP_TUI_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

enum { COLUMNS_LATE = 7 };

typedef struct Column {
    const char *title;
    int min, max; /* with the blank that parts it from its neighbour; equal: it never grows */
    bool right;
    int drop; /* 0 stays always; 1 leaves first; from COLUMNS_LATE on only for `least` */
    const char *sort; /* what a click on its title sorts by, NULL: nothing */
} Column;

/* widths[i] is 0 for what has no room. `need[i]`: what its content would like, 0 its least.
 * Columns leave until the words behind have `rest` cells, the late ones until they have `least`;
 * then content grows into what is free, in the order of columns, and those that never leave take
 * from `rest` down to `least`. */
void columns_fit(const Column *columns, const int *need, int count, int room, int rest, int least,
                 int *widths);
/* Notes that a column would like room for `text` (bytes stand for cells) and a blank. */
void columns_need(int *need, const char *text);

#endif
