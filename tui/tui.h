/* The console: a pure function of (log, T), painted by one ncurses file. */
#ifndef ROLLTOP_TUI_TUI_H
#define ROLLTOP_TUI_TUI_H

#include "core/base/err.h"

typedef struct TuiOptions {
    const char *log_path;
    const char *control_socket; /* NULL: look only */
    bool control;               /* --control, or this console started the run */
    bool replay;                /* starts at the end of the log, time stands still */
    const char *start_at;       /* replay: where '@' would go; NULL */
    const char *theme;          /* NULL: by terminal */
    const char *theme_dir;
    const char *user;           /* who acts, for the log */
    bool ascii;                 /* C locale or asked for */
    bool no_mouse;
    const char *config_path;    /* NULL: no configuration */
    const char *view;           /* named view to start with; NULL */
} TuiOptions;

/* Runs until the user quits; *stop_run is set when the user asked to stop the run he started.
 * Restores the terminal on every way out. */
Err tui_run(const TuiOptions *options, bool *stop_run, Fault *fault);

#endif
