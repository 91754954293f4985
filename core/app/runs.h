/* Runs of this user on this machine: sockets in the runtime directory, named by run id. */
#ifndef ROLLTOP_APP_RUNS_H
#define ROLLTOP_APP_RUNS_H

#include "core/net/ctl.h"

enum { RUNS_MAX = 256 };

typedef struct RunEntry {
    char *id, *socket;
    cJSON *status; /* the core's answer to "status"; NULL: listens but did not answer */
} RunEntry;

typedef struct RunList {
    RunEntry items[RUNS_MAX];
    size_t count;
} RunList;

/* An identifier is part of file names, of each request's id and of what terminals show. */
enum { RUN_ID_MAX = 48 };
Err runs_check_id(const char *id, Fault *fault);
/* Only runs whose core listens; a socket that nobody listens on is removed. */
Err runs_list(RunList *out, Fault *fault);
void runs_free(RunList *list);
/* The run called `id`, or the only one when id is NULL; ERR_NOT_FOUND and ERR_ARG name them. */
Err runs_pick(const RunList *list, const char *id, const RunEntry **out, Fault *fault);

#endif
