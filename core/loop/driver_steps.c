/* What the loop machine's actions mean: facts in the log, calls to the other files, and one
 * plain line per step. A step's begin and end are durable before the next action is taken. */
#include "core/loop/driver_private.h"

#include <math.h>
#include <string.h>

static void unblock(void *arg)
{
    Driver *d = arg;
    d->blocked = false;
    driver_take_actions(d);
}

static void block_until_durable(Driver *d)
{
    if (d->at_once) {
        return; /* the end that the operator wants now is like that of a killed core */
    }
    d->blocked = true;
    driver_when_durable(d, unblock, d);
}

static void change_phase(Driver *d, const LoopAction *action)
{
    int64_t now = clock_wall_us();
    if (d->step.phase_id > 0) {
        PhaseFact end = {.phase_id = d->step.phase_id, .step = action->step, .t_us = now,
                         .end = true, .outcome = action->reason[0] ? action->reason : "ok"};
        store_put_phase(d->store, &end);
    }
    d->step.phase_id = d->step.next_phase++;
    d->step.phase_began_us = clock_mono_us();
    PhaseFact begin = {.phase_id = d->step.phase_id, .step = action->step, .t_us = now,
                       .phase = action->phase};
    store_put_phase(d->store, &begin);
    if (action->reason[0] && action->phase == PHASE_PAUSE) {
        driver_event(d, SEVERITY_CRIT, "core", 0, "held: %s; resume tries again", action->reason);
    }
}

static void count_phase(Driver *d, LoopPhase before)
{
    if (d->step.phase_began_us > 0) {
        int64_t spell = clock_mono_us() - d->step.phase_began_us;
        d->step.phase_us[before] += spell;
    }
}

static void begin_step(Driver *d, const LoopAction *action)
{
    memset(d->step.phase_us, 0, sizeof d->step.phase_us);
    d->step.began_us = clock_mono_us();
    d->step.version = action->version;
    d->step.eval_known = false;
    d->step.open = true;
    StepFact fact = {.step = action->step, .t_us = clock_wall_us(),
                     .policy_version = action->version};
    store_put_step(d->store, &fact);
    block_until_durable(d);
}

static double seconds(const Driver *d, LoopPhase phase)
{
    return (double)d->step.phase_us[phase] / 1e6;
}

static void print_step(Driver *d, const LoopAction *action, const RolloutJob *job)
{
    FILE *out = d->config->lines;
    if (!out) {
        return;
    }
    fprintf(out, "step %lld", (long long)action->step);
    if (strcmp(action->reason, "ok") != 0) {
        fprintf(out, " (%s)", action->reason);
    }
    if (job && job->over) {
        double generate = (double)(job->ended_us - job->started_us) / 1e6;
        fprintf(out, "  reward %.4f", job->reward_mean);
        fprintf(out, "  %lld tokens", (long long)job->tokens);
        fprintf(out, "  %.0f tok/s", generate > 0 ? (double)job->tokens / generate : 0.0);
    }
    if (d->step.eval_known) {
        fprintf(out, "  eval %.4f", d->step.eval_reward);
    }
    fprintf(out, "  policy v%lld", (long long)loop_committed(d->loop));
    static const LoopPhase shown[] = {PHASE_GENERATE, PHASE_TRAIN, PHASE_PUBLISH, PHASE_SYNC,
                                      PHASE_SAVE,     PHASE_EVAL,  PHASE_PAUSE};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        if (d->step.phase_us[shown[i]] > 0) {
            fprintf(out, "  %s %.2fs", loop_phase_name(shown[i]), seconds(d, shown[i]));
        }
    }
    fputc('\n', out);
    fflush(out);
}

static void step_metrics(Driver *d, int64_t step, const RolloutJob *job)
{
    driver_metric(d, step, "perf/rollout_time", seconds(d, PHASE_GENERATE));
    driver_metric(d, step, "perf/train_time", seconds(d, PHASE_TRAIN));
    driver_metric(d, step, "perf/update_weights_time", seconds(d, PHASE_SYNC));
    driver_metric(d, step, "perf/step_time", (double)(clock_mono_us() - d->step.began_us) / 1e6);
    if (job && job->over) {
        driver_metric(d, step, "rollout/raw_reward", job->reward_mean);
        driver_metric(d, step, "rollout/response_len/mean", job->length_mean);
    }
    if (job && job->over && d->config->max_staleness > 0) {
        driver_metric(d, step, "rollout/offpolicy_token_share", job->older_share);
    }
}

/* The same line for the console's events: "step 12 done 0.6 s 256 samples reward 0.41". */
static void step_event(Driver *d, const LoopAction *action, const StepFact *fact)
{
    bool whole = strcmp(action->reason, "ok") == 0;
    char reward[64] = "";
    char eval[64] = "";
    if (fact->reward_mean.known) {
        (void)str_format(reward, sizeof reward, " %lld samples reward %.3f",
                         (long long)fact->samples, fact->reward_mean.v);
    }
    if (fact->eval_reward_mean.known) {
        (void)str_format(eval, sizeof eval, " eval %.3f", fact->eval_reward_mean.v);
    }
    driver_event(d, whole ? SEVERITY_INFO : SEVERITY_WARN, "step", 0, "step %lld %s %.1f s%s%s",
                 (long long)action->step, whole ? "done" : action->reason,
                 (double)(clock_mono_us() - d->step.began_us) / 1e6, reward, eval);
}

static void end_step(Driver *d, const LoopAction *action)
{
    int64_t now = clock_wall_us();
    RolloutJob *job = d->roll.batch;
    bool whole = strcmp(action->reason, "ok") == 0;
    bool saved = whole && d->train.state_step == action->step;
    int64_t position = 0;
    if (d->roll.data) {
        DataPosition at = data_position(d->roll.data);
        position = at.epoch * data_count(d->roll.data) + at.offset;
    }
    StepFact fact = {.step = action->step, .t_us = now, .end = true,
                     .policy_version = d->step.version, .outcome = action->reason,
                     .trainer_state = saved ? d->train.dir : NULL, .data_position = position};
    if (job && job->over) {
        fact.samples = (int64_t)job->group_count * job->per_group;
        fact.tokens = job->tokens;
        fact.reward_mean = val_of(job->reward_mean, now);
        fact.reward_std = val_of(job->reward_std, now);
    }
    if (d->step.eval_known) {
        fact.eval_reward_mean = val_of(d->step.eval_reward, now);
    }
    store_put_step(d->store, &fact);
    d->step.open = false;
    count_phase(d, d->step.phase); /* the phase that closes the step is still open */
    d->step.phase_began_us = clock_mono_us();
    step_metrics(d, action->step, job);
    step_event(d, action, &fact);
    print_step(d, action, job);
    d->roll.batch = NULL;
    driver_job_free(job);
    block_until_durable(d);
}

static void finish(Driver *d, const LoopAction *action)
{
    (void)str_format(d->end_reason, sizeof d->end_reason, "%s", action->reason);
    d->status = action->status == 2 ? 3 : action->status;
    Severity severity = action->status == 2 ? SEVERITY_CRIT : SEVERITY_INFO;
    driver_event(d, severity, "core", 0, "the run ends: %s", action->reason);
    if (d->config->lines) {
        fprintf(d->config->lines, "end: %s\n", action->reason);
        fflush(d->config->lines);
    }
    driver_incidents_close(d);
    d->shutting = true;
    d->shutdown_due_us = clock_mono_us() + (DRIVER_GRACE_MS + 2000) * 1000;
    driver_rollout_cancel(d);
    driver_parts_stop(d);
}

/* What is under way (a transaction, above all) may wait for a log that does not record. */
void driver_end_now(Driver *d)
{
    LoopAction action = {.kind = LOOP_ACT_FINISHED, .status = 2};
    (void)str_format(action.reason, sizeof action.reason,
                     "stopped at once; --resume goes on from the last durable step");
    finish(d, &action);
}

static void start_generation(Driver *d, bool eval)
{
    Fault fault = {0};
    if (driver_rollout_start(d, eval, &fault) != ERR_OK) {
        driver_event(d, SEVERITY_CRIT, "rollout", 0, "%s", fault.sentence);
        driver_feed(d, eval ? LOOP_EV_EVAL_FAILED : LOOP_EV_ROLLOUT_FAILED, true, fault.sentence);
    }
}

static void cancel(Driver *d, const LoopAction *action)
{
    switch (action->phase) {
    case PHASE_TRAIN:
    case PHASE_PUBLISH:
    case PHASE_SAVE:
        /* The last durable state is on disk; what is half done would be thrown away anyway. */
        d->train.stopped = true;
        driver_trainer_restart(d, "the run stops");
        driver_disk_cancel(d);
        break;
    case PHASE_GENERATE:
    case PHASE_EVAL:
    case PHASE_PAUSE:
        driver_rollout_cancel(d);
        break;
    case PHASE_SYNC: /* a transaction is never left half done; its waits are bounded */
    case PHASE_INIT:
    case PHASE_SCORE:
    case PHASE_DONE:
        break;
    }
}

static void take(Driver *d, const LoopAction *action)
{
    switch (action->kind) {
    case LOOP_ACT_PHASE: change_phase(d, action); break;
    case LOOP_ACT_STEP_BEGIN: begin_step(d, action); break;
    case LOOP_ACT_STEP_END: end_step(d, action); break;
    case LOOP_ACT_EVAL: start_generation(d, true); break;
    case LOOP_ACT_ROLLOUT: start_generation(d, false); break;
    case LOOP_ACT_TRAIN: driver_train(d); break;
    case LOOP_ACT_PUBLISH: driver_publish(d, action->version); break;
    case LOOP_ACT_SYNC: driver_sync_start(d, action->version, action->again); break;
    case LOOP_ACT_SAVE: driver_save(d); break;
    case LOOP_ACT_GATE_CLOSE:
        d->roll.gate_operator = true;
        driver_update_gate(d);
        break;
    case LOOP_ACT_GATE_OPEN:
        d->roll.gate_operator = false;
        driver_update_gate(d);
        break;
    case LOOP_ACT_CANCEL: cancel(d, action); break;
    case LOOP_ACT_FINISHED: finish(d, action); break;
    }
}

/* Taking an action may feed the machine again; the outermost call takes what comes of it. */
void driver_take_actions(Driver *d)
{
    if (d->draining) {
        return;
    }
    d->draining = true;
    LoopAction action;
    while (!d->blocked && loop_next(d->loop, &action)) {
        if (action.kind == LOOP_ACT_PHASE) {
            count_phase(d, d->step.phase);
            driver_note_spell(d, d->step.phase, clock_mono_us() - d->step.phase_began_us);
            d->step.phase = action.phase;
        }
        take(d, &action);
    }
    d->draining = false;
}
