/* From flags to a checked run: every flag, file, directory, address and number that can be wrong
 * is looked at before anything starts, and the first wrong one is one clear sentence. */
#ifndef ROLLTOP_APP_RUN_PLAN_H
#define ROLLTOP_APP_RUN_PLAN_H

#include "core/app/run_flags.h"
#include "core/diagnose/rules.h"
#include "core/loop/run_config.h"
#include "core/model/config.h"
#include "core/model/tokenizer.h"

typedef struct RunPlan {
    RunFlags *flags;   /* borrowed */
    RunConfig config;  /* points into flags, argv and the members below */
    char *log_path, *work_dir, *socket_path, *run_id, *program, *user, *rollout_url, *bearer;
    char *admin, **engine_command;
    DiagRules rules;   /* of --alert-rules */
    ModelConfig model; /* of --hf-checkpoint */
    Tokenizer *tokenizer;
    DataSource *data, *eval_data; /* while they are checked */
    char *addrs_text;  /* DYNAMO_ENGINE_ADDRS, cut in place */
    const char **addrs;
    const char **stop;
    int32_t *stop_ids;
    const char *engine_extra[4];
    const char *trainer_argv[4];
    Text argv_json, config_json;
} RunPlan;

/* `kind` is the default name ("run", "demo"). Makes directories for the log only at the end. */
Err run_plan_make(RunPlan *plan, RunFlags *flags, const char *kind, int argc, char **argv,
                  Fault *fault);
void run_plan_free(RunPlan *plan);
/* Can this log be begun or, with `resume`, gone on with? Makes nothing. */
Err run_plan_log_place(const char *log, bool resume, Fault *fault);

#endif
