/* One writer a log. SQLite lets writers take turns; two cores in one log would mix their runs. The
 * lock is on a file beside the log: closing any descriptor of the log itself would drop SQLite's
 * own locks. */
#ifndef ROLLTOP_STORE_LOCK_H
#define ROLLTOP_STORE_LOCK_H

#include "core/base/err.h"

/* *fd holds the lock until it is closed; ERR_STATE names the process that has it. `hint` is what
 * to do then. */
Err lock_take(const char *path, const char *hint, int *fd, Fault *fault);

#endif
