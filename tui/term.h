/* The terminal: the only file that calls curses and handles signals. It paints surfaces (the
 * difference only), turns input into key codes and leaves a sane terminal behind on every way
 * out: return, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGSEGV, ctrl-z. One at a time. */
#ifndef ROLLTOP_TUI_TERM_H
#define ROLLTOP_TUI_TERM_H

#include "tui/surface.h"
#include "tui/theme.h"

typedef struct Term Term;

typedef enum TermEvent { TERM_NOTHING, TERM_RESIZED, TERM_SUSPEND, TERM_CONTINUED } TermEvent;

/* Takes the terminal. ERR_UNSUPPORTED when it cannot place a cursor or is no terminal. When TERM
 * is unknown a close one is used and `notice` (may be NULL) says so. */
Err term_open(Term **out, bool mouse, char *notice, size_t notice_size, Fault *fault);
void term_close(Term *term);
bool term_utf8(void);            /* does the locale speak UTF-8; sets LC_CTYPE from it */
int term_colours(const Term *term); /* 0 without colour or with NO_COLOR */
void term_theme(Term *term, const Theme *theme);
void term_size(Term *term, int *w, int *h);
void term_paint(Term *term, const Surface *surface);
void term_repaint(Term *term);   /* the next paint draws everything */
int term_input_fd(const Term *term);
int term_signal_fd(const Term *term);
TermEvent term_signal(Term *term); /* next thing that a signal left, TERM_NOTHING at the end */
int term_key(Term *term);        /* next key without waiting; TK_NONE when there is none */
/* Where and what, after term_key gave TK_MOUSE. */
typedef struct TermMouse {
    int x, y, wheel; /* wheel: -1 up, 1 down, 0 a click */
} TermMouse;
TermMouse term_mouse(const Term *term);
bool term_input_waits(const Term *term); /* a key is there, or the terminal is gone */
void term_ready(Term *term); /* under ROLLTOP_TEST=1: tells a test that the frame is out */
void term_bell(Term *term);
void term_notify(Term *term, const char *text); /* a desktop notice by OSC 9 */
/* Gives the screen to another program and takes it back, which repaints. */
void term_leave(Term *term);
void term_return(Term *term);
bool term_hung_up(const Term *term); /* input is at its end: the terminal went away */
void term_flush_input(Term *term);
void term_suspend(Term *term);   /* back to the shell; returns after fg */
/* The terminal's clipboard by OSC 52; false when the text is over the limit of 75 kB. */
bool term_copy(Term *term, Str text);

#endif
