/* Opening the console from a subcommand. */
#ifndef ROLLTOP_APP_CONSOLE_H
#define ROLLTOP_APP_CONSOLE_H

#include "core/base/flags.h"
#include "tui/tui.h"

enum { CONSOLE_SPECS = 7 };

typedef struct ConsoleFlags { /* of attach and replay */
    const char *theme, *view, *config;
    bool mono, ascii, plain, no_mouse;
} ConsoleFlags;

void console_specs(ConsoleFlags *flags, FlagSpec specs[CONSOLE_SPECS]);
/* The console as the flags and the terminal have it: on the screen, or in plain lines when asked
 * for, when stdout is no terminal, or when it cannot place a cursor (said once, on stderr). */
Err console_open(TuiOptions *options, const ConsoleFlags *flags, bool *stop, Fault *fault);
/* $ROLLTOP_CONFIG, else $XDG_CONFIG_HOME or ~/.config/rolltop/console.ini; free it. */
char *console_config_path(void);
/* The folder of themes, NULL when there is none; free it. */
char *console_theme_dir(void);

/* Fills what is the same for every console: who acts, where themes lie, ASCII or not. */
void console_defaults(TuiOptions *options);
/* True when stdin and stdout are a terminal that can be painted on. */
bool console_possible(void);
void console_free(TuiOptions *options);

#endif
