/* `rolltop watch`: a fleet that somebody else drives, probed and recorded. Sends only GET requests
 * that change nothing (no generation either, so no generation health), and takes no commands.
 * What it writes is a log like a run's, without steps: the same console shows it, live and in
 * replay. */
#ifndef ROLLTOP_LOOP_WATCH_H
#define ROLLTOP_LOOP_WATCH_H

#include "core/diagnose/diagnose.h"
#include "core/fleet/probe.h"
#include "core/fleet/sources.h"

#include <stdio.h>

typedef struct WatchConfig {
    const char *run_id, *name, *log_path, *socket_path, *argv_json, *config_json;
    const char *frontend_url;  /* may be NULL */
    const char *engine_bearer; /* may be NULL */
    const char *const *engine_addrs;
    size_t engine_addr_count;
    bool from_environment;     /* where engine_addrs stood */
    SourcesConfig sources;
    int64_t gone_looks;
    const DiagRules *rules;    /* what raises alerts; NULL: the usual rules */
    ProbeSettings probe;       /* its generation health is left out */
    int64_t log_keep_us, log_max_bytes; /* retention of the log; 0: everything stays */
    int64_t seconds;           /* ends then; 0: when told to */
    FILE *lines;               /* one plain line a change; NULL: none */
} WatchConfig;

/* Runs until SIGINT, SIGTERM or `seconds`. `ready` as in loop_run. */
Err watch_run(const WatchConfig *config, void (*ready)(void *user), void *user, Fault *fault);

#endif
