/* The recorded incident that comes with the program: a real run in trouble, to look at. */
#ifndef ROLLTOP_APP_EXAMPLE_H
#define ROLLTOP_APP_EXAMPLE_H

#include "core/base/err.h"

/* Unpacks it into the state directory; *path is the log there, malloc'ed. */
Err example_unpack(char **path, Fault *fault);

#endif
