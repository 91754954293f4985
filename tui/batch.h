/* The console's picture without a terminal: once, again and again, or its events as they come.
 * Same snapshot, model, numbers and words as the screen and --plain; as JSON the encoder of
 * snapshot_json.h. Memory is bounded by one picture. Ends in order at SIGINT, SIGTERM and SIGHUP
 * (ERR_OK: what was asked for until then is written), and when nobody reads the output any more. */
#ifndef ROLLTOP_TUI_BATCH_H
#define ROLLTOP_TUI_BATCH_H

#include "core/base/err.h"

#include <stdint.h>

typedef struct BatchOptions {
    const char *log_path;
    bool live;          /* T goes with the clock; else it begins at the end of the log */
    const char *at;     /* a moment as behind '@', from there; NULL */
    bool json;
    int64_t count;      /* pictures, or events to begin with; < 0: no bound */
    int64_t every_us;   /* from picture to picture: waited when live, else T goes on by it */
    const char *filter; /* events: as the screen's '/' takes it; NULL: all */
    bool follow;        /* events: then those to come, until the run has ended */
} BatchOptions;

/* All write to fd `out`. ERR_IO: it cannot be written (sys_errno EPIPE: its reader is gone);
 * ERR_NOT_FOUND: no such moment; ERR_ARG: `at` is no moment; and the log's own errors. */
Err batch_snapshot(const BatchOptions *options, int out, Fault *fault);
/* Pictures one after another, `count` of them; of a log that ended: up to its end. */
Err batch_top(const BatchOptions *options, int out, Fault *fault);
/* One event a line, oldest first. Without `follow` the newest `count` up to the moment. */
Err batch_events(const BatchOptions *options, int out, Fault *fault);

#endif
