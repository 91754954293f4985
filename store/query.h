/* `rolltop query`: the log as a table for people or as one JSON object a line. Column names are
 * stable and documented in docs/log.md; a test reads them there. */
#ifndef ROLLTOP_STORE_QUERY_H
#define ROLLTOP_STORE_QUERY_H

#include "core/base/err.h"

#include <stdio.h>

/* topic: steps engines policies samples commands events probes txns groups metrics rollups
 * incidents alert_changes alert_rules phases children. ERR_ARG names the nearest topic. Output is
 * complete or a Fault is given; a reader that closes the pipe early is not an error. */
Err query_topic(const char *path, const char *topic, bool json, FILE *out, Fault *fault);
/* A single read-only statement; anything that would write is refused by name. */
Err query_sql(const char *path, const char *sql, bool json, FILE *out, Fault *fault);

#endif
