/* The console without a screen, for screen readers, braille displays, dumb terminals and pipes:
 * one line per change, commands by name, the same actions and confirmations. Nothing is redrawn,
 * no escape sequence is sent, no meaning lies in a place or a colour. */
#ifndef ROLLTOP_TUI_PLAIN_H
#define ROLLTOP_TUI_PLAIN_H

#include "tui/screen.h"
#include "tui/tui.h"

#include <stdio.h>

/* Reads commands from fd `in`, writes lines to `out`; until quit, the end of the run, or a reader
 * of `out` that is gone. A replay whose input is at its end says its moment and ends. */
Err plain_run(const TuiOptions *options, int in, FILE *out, bool *stop_run, Fault *fault);

/* plain_words.c: lists and changes in words; texts of the log are sanitised. */
void plain_status(const Screen *screen, Text *out);
void plain_engines(const Screen *screen, Text *out);
void plain_engine(const Screen *screen, const EngineRow *row, Text *out);
void plain_samples(const Screen *screen, Text *out);
void plain_steps(const Screen *screen, Text *out);
void plain_policies(const Screen *screen, Text *out);
void plain_events(const Screen *screen, size_t count, Text *out);
void plain_event(const EventRow *row, Text *out);
void plain_alerts(const Screen *screen, Text *out);
void plain_commands(const Screen *screen, Text *out);
/* Appends foreign text through the render boundary's sanitiser, in ASCII or not. */
void plain_foreign(Text *out, const char *text);

#endif
