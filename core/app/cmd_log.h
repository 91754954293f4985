/* Ages and sizes as flags give them, for `rolltop log trim` and for the retention of a run. */
#ifndef ROLLTOP_APP_CMD_LOG_H
#define ROLLTOP_APP_CMD_LOG_H

#include "core/base/str.h"

/* "90m", "24h" in microseconds; "500M", "20G" in bytes. A NULL word gives 0. */
Err log_flags_age(const char *flag, const char *word, int64_t *us, Fault *fault);
Err log_flags_size(const char *flag, const char *word, int64_t *bytes, Fault *fault);

#endif
