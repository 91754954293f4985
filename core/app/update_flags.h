/* What --update-budget comes to: how long each phase of a policy transaction may take, and how long
 * a call that was given up may still act. */
#ifndef ROLLTOP_APP_UPDATE_FLAGS_H
#define ROLLTOP_APP_UPDATE_FLAGS_H

#include "core/app/run_flags.h"
#include "core/loop/run_config.h"

/* `words` are PHASE=SECONDS. Another phase, twice the same, or no whole number of 1 to 86400
 * seconds: ERR_ARG. */
Err update_flags_fill(const FlagList *words, RunConfig *config, Fault *fault);

#endif
