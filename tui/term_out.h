/* What curses writes to. It writes each time that it moves the cursor, thirty times a refresh: over
 * a link as many packets. What is written while it is held is kept in memory and goes out in one
 * piece. No curses here; the terminal is standard output. */
#ifndef ROLLTOP_TUI_TERM_OUT_H
#define ROLLTOP_TUI_TERM_OUT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct TermOut TermOut;
TermOut *term_out_open(void);
void term_out_close(TermOut *out);
/* For newterm; a second handle of the terminal, or standard output where there is no room for one.
 * The TermOut's own. */
FILE *term_out_file(TermOut *out);
/* False: not possible, everything goes out as it is written. */
bool term_out_hold(TermOut *out);
void term_out_send(TermOut *out); /* only after term_out_hold said true */

#endif
