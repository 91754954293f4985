/* What --update-inflight, --max-staleness, --generate-unary and slime's --partial-rollout come to
 * together. */
#ifndef ROLLTOP_APP_INFLIGHT_FLAGS_H
#define ROLLTOP_APP_INFLIGHT_FLAGS_H

#include "core/app/run_flags.h"
#include "core/loop/run_config.h"

/* The fleet's part of `config` is filled already. Flags that cannot go together: ERR_ARG. */
Err inflight_flags_fill(const RunFlags *flags, RunConfig *config, Fault *fault);

#endif
