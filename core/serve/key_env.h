/* Keys of engine and frontend come from the environment: argv can be read by everybody. */
#ifndef ROLLTOP_SERVE_KEY_ENV_H
#define ROLLTOP_SERVE_KEY_ENV_H

#include "core/base/err.h"

/* The key in the environment variable that --flag names, borrowed from the environment; NULL when
 * no variable was named. ERR_ARG: it was, and it is not set or empty. */
Err key_from_env(const char *flag, const char *variable, const char **out, Fault *fault);

#endif
