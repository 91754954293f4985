/* Opening the console from a subcommand. */
#ifndef ROLLTOP_APP_CONSOLE_H
#define ROLLTOP_APP_CONSOLE_H

#include "tui/tui.h"

/* Fills what is the same for every console: who acts, where themes lie, ASCII or not. */
void console_defaults(TuiOptions *options);
/* True when stdin and stdout are a terminal that can be painted on. */
bool console_possible(void);
void console_free(TuiOptions *options);

#endif
