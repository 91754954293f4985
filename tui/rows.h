/* Rows as text, uncut: what `y` copies and `:export` writes. One line a row, fields parted by
 * tabs, foreign text through the sanitiser of the surface; a number that is not known is "-". */
#ifndef ROLLTOP_TUI_ROWS_H
#define ROLLTOP_TUI_ROWS_H

#include "tui/model.h"

/* The names of the fields of a pane's rows, a line as well. */
void rows_header(Pane pane, Text *out);
/* `index`: in the snapshot's list of that pane. */
void rows_line(const Snapshot *snap, Pane pane, int index, Text *out);
/* The marked rows of the pane in focus, else the one under the cursor; with `all`, else all that
 * are shown. In the order of the screen. How many. */
int rows_chosen(const Model *model, const Snapshot *snap, bool all, Text *out);

#endif
