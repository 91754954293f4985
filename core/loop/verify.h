/* `rolltop verify`: the integration check of the Dynamo/slime guide as one command, on any fleet:
 * readiness, a rollout, an update of all engines, a rollout after it, the loss of a worker in
 * mid-rollout, the failure reported, its recovery, and the fleet left as it was found. Everything
 * goes to a log like a run's as well. */
#ifndef ROLLTOP_LOOP_VERIFY_H
#define ROLLTOP_LOOP_VERIFY_H

#include "core/base/json.h"
#include "core/fleet/probe.h"

#include <stdio.h>

enum { VERIFY_STEPS_MAX = 16, VERIFY_ENGINES_MAX = 256 };

typedef enum VerifyOutcome { VERIFY_PASS, VERIFY_FAIL, VERIFY_SKIP } VerifyOutcome;

typedef struct VerifyStep {
    const char *name;
    VerifyOutcome outcome;
    double seconds;
    char detail[256];
} VerifyStep;

typedef struct VerifyConfig {
    const char *run_id, *log_path, *argv_json, *program;
    /* A fleet of others … */
    const char *const *engine_addrs;
    size_t engine_addr_count;
    const char *frontend_url;    /* NULL: generation goes to the engines themselves */
    const char *engine_bearer, *engine_admin;
    const char *update_dir;      /* checkpoint of the update; NULL: the engines' own once more */
    const char *kill_cmd;        /* shell command that stops $ROLLTOP_ENGINE; NULL: not done */
    const char *restore_cmd;     /* … that starts it again; NULL: it comes back by itself */
    /* … or one of its own */
    int64_t local_engines;
    const char *local_model, *local_update; /* two checkpoints of one shape */
    int64_t samples, tokens;     /* of a rollout; samples 0: four an engine, 8 at least */
    int64_t startup_s, recover_s;
    ProbeSettings probe;
    FILE *lines;                 /* one line a step and the table; NULL: none */
} VerifyConfig;

typedef struct VerifyReport {
    VerifyStep steps[VERIFY_STEPS_MAX];
    int count, failed;
    double seconds;
} VerifyReport;

/* ERR_OK whatever the steps' outcomes; else nothing was started. */
Err verify_run(const VerifyConfig *config, VerifyReport *report, Fault *fault);
/* One JSON object: ok, seconds, steps. */
void verify_report_json(const VerifyReport *report, JsonOut *out);

#endif
