/* The parts of run_plan_make. Each says the first thing that is wrong in one sentence. */
#ifndef ROLLTOP_APP_RUN_PLAN_PRIVATE_H
#define ROLLTOP_APP_RUN_PLAN_PRIVATE_H

#include "core/app/run_plan.h"

/* run_plan_fleet.c */
Err plan_fleet(RunPlan *plan, Fault *fault);

/* run_plan_places.c */
Err plan_names(RunPlan *plan, const char *kind, Fault *fault); /* makes nothing yet */
Err plan_places(RunPlan *plan, Fault *fault);
Err plan_room(const RunPlan *plan, int64_t bytes, Fault *fault); /* on the disk */
Err plan_files(const RunPlan *plan, Fault *fault); /* raises the bound of open files, if it may */

/* run_plan_data.c */
Err plan_data(RunPlan *plan, Fault *fault);
Err plan_sampling(RunPlan *plan, Fault *fault);
Err plan_model(RunPlan *plan, int64_t *bytes, Fault *fault); /* bytes: that the run will write */
Err plan_tokens(RunPlan *plan, Fault *fault); /* what needs vocabulary and tokenizer */
Err plan_other_models(const RunPlan *plan, Fault *fault);

#endif
