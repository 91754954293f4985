/* What `run` and `demo` share: from a command line of `run` to its exit status. */
#ifndef ROLLTOP_APP_RUN_MAIN_H
#define ROLLTOP_APP_RUN_MAIN_H

#include "core/base/err.h"

/* The last thing before the core starts, once everything is checked: what takes long. */
typedef struct RunPrepare {
    Err (*make)(void *user, Fault *fault);
    void *user; /* borrowed */
} RunPrepare;

/* `kind` is the default name of the run; `prepare` may be NULL. */
int run_main(int argc, char **argv, const char *kind, const RunPrepare *prepare);

#endif
