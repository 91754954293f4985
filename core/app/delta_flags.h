/* What --update-weight-mode, its delta settings and --update-weight-transport come to together. */
#ifndef ROLLTOP_APP_DELTA_FLAGS_H
#define ROLLTOP_APP_DELTA_FLAGS_H

#include "core/app/run_flags.h"
#include "core/loop/run_config.h"

/* Flags that cannot go together, or that need another way of sending weights: ERR_ARG. The
 * fleet's part of `config` is filled already. */
Err delta_flags_fill(const RunFlags *flags, RunConfig *config, Fault *fault);

#endif
