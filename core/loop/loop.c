/* The run's state machine. Small on purpose: one activity under way (`now`), one that comes
 * after it (`next`), and flags that hold the next one back (paused, parts missing, a re-send of
 * the policy under way). Actions wait in a short queue; an event adds at most a handful. */
#include "core/loop/loop.h"

#include "core/base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOOP_QUEUE = 32, LOOP_TRIES = 3 };

typedef enum Activity {
    ACTIVITY_NONE, ACTIVITY_EVAL, ACTIVITY_ROLLOUT, ACTIVITY_TRAIN, ACTIVITY_PUBLISH,
    ACTIVITY_SYNC, ACTIVITY_SAVE
} Activity;

struct Loop {
    LoopConfig config;
    LoopPhase phase;
    int64_t phase_since_us, now_us;
    int64_t step;
    bool step_open;
    bool primed;      /* the first policy is on the engines: steps may begin */
    bool eval_before; /* the evaluation before step 0 is the one under way or next */
    Activity now, next;
    bool again; /* an operator's re-send runs beside `now` … */
    int64_t again_version; /* … of this policy */
    bool anew;  /* what is generated under the policy before it: cancelled, begins anew */
    bool paused, gate_closed, parts, stopping, finished, reached;
    int tries; /* of `now` so far */
    int64_t committed, version; /* on the engines; newest published */
    int64_t ignored;
    LoopAction queue[LOOP_QUEUE];
    int head, count;
};

static const LoopPhase activity_phase[] = {
    [ACTIVITY_NONE] = PHASE_INIT,       [ACTIVITY_EVAL] = PHASE_EVAL,
    [ACTIVITY_ROLLOUT] = PHASE_GENERATE, [ACTIVITY_TRAIN] = PHASE_TRAIN,
    [ACTIVITY_PUBLISH] = PHASE_PUBLISH, [ACTIVITY_SYNC] = PHASE_SYNC,
    [ACTIVITY_SAVE] = PHASE_SAVE,
};

static const LoopActionKind activity_action[] = {
    [ACTIVITY_NONE] = LOOP_ACT_PHASE,     [ACTIVITY_EVAL] = LOOP_ACT_EVAL,
    [ACTIVITY_ROLLOUT] = LOOP_ACT_ROLLOUT, [ACTIVITY_TRAIN] = LOOP_ACT_TRAIN,
    [ACTIVITY_PUBLISH] = LOOP_ACT_PUBLISH, [ACTIVITY_SYNC] = LOOP_ACT_SYNC,
    [ACTIVITY_SAVE] = LOOP_ACT_SAVE,
};

Loop *loop_new(const LoopConfig *config)
{
    Loop *loop = xcalloc(1, sizeof *loop);
    loop->config = *config;
    if (loop->config.tries <= 0) {
        loop->config.tries = LOOP_TRIES;
    }
    loop->phase = PHASE_INIT;
    loop->step = config->start_step;
    loop->committed = -1;
    loop->version = config->first_version - 1;
    loop->next = ACTIVITY_PUBLISH;
    return loop;
}

void loop_free(Loop *loop)
{
    free(loop);
}

static LoopAction *push(Loop *loop, LoopActionKind kind)
{
    assert(loop->count < LOOP_QUEUE);
    LoopAction *action = &loop->queue[(loop->head + loop->count++) % LOOP_QUEUE];
    *action = (LoopAction){.kind = kind, .phase = loop->phase, .step = loop->step,
                           .version = loop->committed};
    return action;
}

bool loop_next(Loop *loop, LoopAction *out)
{
    if (loop->count == 0) {
        return false;
    }
    *out = loop->queue[loop->head];
    loop->head = (loop->head + 1) % LOOP_QUEUE;
    loop->count--;
    return true;
}

static void set_phase(Loop *loop, LoopPhase phase, const char *reason)
{
    if (loop->phase == phase) {
        return;
    }
    loop->phase = phase;
    loop->phase_since_us = loop->now_us;
    LoopAction *action = push(loop, LOOP_ACT_PHASE);
    (void)str_format(action->reason, sizeof action->reason, "%s", reason ? reason : "");
}

static void end_step(Loop *loop, const char *outcome)
{
    if (loop->step_open) {
        loop->step_open = false;
        LoopAction *action = push(loop, LOOP_ACT_STEP_END);
        (void)str_format(action->reason, sizeof action->reason, "%s", outcome);
    }
}

static void finish(Loop *loop, int status, const char *outcome, const char *reason)
{
    end_step(loop, outcome);
    loop->finished = true;
    loop->now = loop->next = ACTIVITY_NONE;
    set_phase(loop, PHASE_DONE, reason);
    LoopAction *action = push(loop, LOOP_ACT_FINISHED);
    action->status = status;
    (void)str_format(action->reason, sizeof action->reason, "%s", reason);
}

static bool periodic(int64_t step, int64_t interval)
{
    return interval > 0 && (step + 1) % interval == 0;
}

static void start(Loop *loop, Activity activity)
{
    loop->now = activity;
    loop->next = ACTIVITY_NONE;
    if (activity == ACTIVITY_ROLLOUT && !loop->step_open) {
        loop->step_open = true;
        push(loop, LOOP_ACT_STEP_BEGIN);
    }
    set_phase(loop, activity_phase[activity], NULL);
    LoopAction *action = push(loop, activity_action[activity]);
    if (activity == ACTIVITY_PUBLISH) {
        action->version = loop->version + 1;
    } else if (activity == ACTIVITY_SYNC) {
        action->version = loop->version;
    }
}

/* Starts what comes next, if nothing holds it back. */
static void advance(Loop *loop)
{
    if (loop->finished || loop->now != ACTIVITY_NONE || loop->next == ACTIVITY_NONE) {
        return;
    }
    if (loop->stopping) {
        if (!loop->again) { /* the re-send must close first: engines are paused meanwhile */
            finish(loop, isnan(loop->config.stop_at_eval_reward) ? 0 : 1, "stopped",
                   "stopped by the operator");
        }
        return;
    }
    if (loop->paused) {
        set_phase(loop, PHASE_PAUSE, NULL);
        return;
    }
    if (!loop->parts || (loop->next == ACTIVITY_SYNC && loop->again)) {
        return;
    }
    start(loop, loop->next);
}

/* The next step begins, or the run is over. */
static void next_step(Loop *loop)
{
    if (loop->reached) {
        finish(loop, 0, "ok", "the evaluation reward asked for is reached");
    } else if (loop->step >= loop->config.num_steps) {
        bool aimed = !isnan(loop->config.stop_at_eval_reward);
        finish(loop, aimed ? 1 : 0, "ok",
               aimed ? "the evaluation reward asked for was not reached within the steps"
                     : "all steps are done");
    } else {
        loop->next = ACTIVITY_ROLLOUT;
    }
}

static void close_step(Loop *loop)
{
    end_step(loop, "ok");
    loop->step++;
    next_step(loop);
}

static void after_save(Loop *loop)
{
    if (periodic(loop->step, loop->config.eval_interval)) {
        loop->next = ACTIVITY_EVAL;
    } else {
        close_step(loop);
    }
}

static void after_sync(Loop *loop)
{
    if (!loop->primed) {
        loop->primed = true;
        if (loop->config.eval_interval > 0 && loop->step == 0 &&
            !loop->config.skip_eval_before_train) {
            loop->eval_before = true;
            loop->next = ACTIVITY_EVAL;
        } else {
            next_step(loop);
        }
        return;
    }
    bool last = loop->step + 1 >= loop->config.num_steps;
    if (loop->config.save_interval > 0 &&
        (last || periodic(loop->step, loop->config.save_interval))) {
        loop->next = ACTIVITY_SAVE;
    } else {
        after_save(loop);
    }
}

static void after_eval(Loop *loop, double value, bool known)
{
    if (loop->eval_before) {
        loop->eval_before = false;
        next_step(loop);
        return;
    }
    if (known && value >= loop->config.stop_at_eval_reward) {
        loop->reached = true;
    }
    close_step(loop);
}

/* The activity under way could not be done: again, or held for the operator, or the end. */
static void failed(Loop *loop, const LoopEvent *event)
{
    Activity activity = loop->now;
    bool anew = loop->anew;
    loop->anew = false;
    loop->now = ACTIVITY_NONE;
    if (anew && !loop->stopping && (activity == ACTIVITY_ROLLOUT || activity == ACTIVITY_EVAL)) {
        loop->next = activity; /* no fault of its own */
        return;
    }
    loop->tries += event->asked ? 0 : 1;
    if (loop->stopping) {
        loop->next = activity;
        return;
    }
    if (!event->fatal && (event->asked || loop->tries < loop->config.tries)) {
        loop->next = activity;
        return;
    }
    char reason[256];
    (void)str_format(reason, sizeof reason, "%s failed%s%s",
                     loop_phase_name(activity_phase[activity]), event->detail ? ": " : "",
                     event->detail ? event->detail : "");
    loop->tries = 0;
    if (loop->config.hold_on_failure) {
        loop->next = activity;
        loop->paused = true;
        set_phase(loop, PHASE_PAUSE, reason);
        return;
    }
    char outcome[280];
    (void)str_format(outcome, sizeof outcome, "failed: %s", reason);
    finish(loop, 2, outcome, reason);
}

/* Which activity an event ends, and whether well. */
static Activity ended_by(LoopEventKind kind, bool *well)
{
    static const struct {
        LoopEventKind kind;
        Activity activity;
        bool well;
    } ends[] = {
        {LOOP_EV_EVAL_DONE, ACTIVITY_EVAL, true},
        {LOOP_EV_EVAL_FAILED, ACTIVITY_EVAL, false},
        {LOOP_EV_ROLLOUT_DONE, ACTIVITY_ROLLOUT, true},
        {LOOP_EV_ROLLOUT_FAILED, ACTIVITY_ROLLOUT, false},
        {LOOP_EV_TRAINED, ACTIVITY_TRAIN, true},
        {LOOP_EV_TRAIN_FAILED, ACTIVITY_TRAIN, false},
        {LOOP_EV_PUBLISHED, ACTIVITY_PUBLISH, true},
        {LOOP_EV_PUBLISH_FAILED, ACTIVITY_PUBLISH, false},
        {LOOP_EV_SYNCED, ACTIVITY_SYNC, true},
        {LOOP_EV_SYNC_ROLLED_BACK, ACTIVITY_SYNC, false},
        {LOOP_EV_SAVED, ACTIVITY_SAVE, true},
        {LOOP_EV_SAVE_FAILED, ACTIVITY_SAVE, false},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (ends[i].kind == kind) {
            *well = ends[i].well;
            return ends[i].activity;
        }
    }
    return ACTIVITY_NONE;
}

static void activity_done(Loop *loop, Activity activity, const LoopEvent *event)
{
    loop->now = ACTIVITY_NONE;
    loop->tries = 0;
    loop->anew = false;
    switch (activity) {
    case ACTIVITY_NONE:
        break;
    case ACTIVITY_EVAL:
        after_eval(loop, event->value, true);
        break;
    case ACTIVITY_ROLLOUT:
        loop->next = ACTIVITY_TRAIN;
        break;
    case ACTIVITY_TRAIN:
        loop->next = ACTIVITY_PUBLISH;
        break;
    case ACTIVITY_PUBLISH:
        loop->version++;
        loop->next = ACTIVITY_SYNC;
        break;
    case ACTIVITY_SYNC:
        loop->committed = loop->version;
        after_sync(loop);
        break;
    case ACTIVITY_SAVE:
        after_save(loop);
        break;
    }
}

/* The re-send has ended; committed or not, engines hold one policy. When it is another one than
 * before and what is being generated cannot become a batch with it, that begins anew. */
static void again_over(Loop *loop, bool well, bool keeps)
{
    loop->again = false;
    if (!well || loop->again_version == loop->committed) {
        return;
    }
    loop->committed = loop->again_version;
    if (!keeps && (loop->now == ACTIVITY_ROLLOUT || loop->now == ACTIVITY_EVAL)) {
        loop->anew = true;
        push(loop, LOOP_ACT_CANCEL);
    }
}

static void activity_end(Loop *loop, Activity activity, bool well, const LoopEvent *event)
{
    if (activity == ACTIVITY_SYNC && loop->again && loop->now != ACTIVITY_SYNC) {
        again_over(loop, well, event->keeps);
        return;
    }
    if (loop->now != activity) {
        loop->ignored++;
        return;
    }
    if (well) {
        activity_done(loop, activity, event);
    } else if (activity == ACTIVITY_SAVE && !loop->stopping) {
        /* A checkpoint that could not be written does not undo the step; the driver warned. */
        loop->now = ACTIVITY_NONE;
        loop->tries = 0;
        after_save(loop);
    } else {
        failed(loop, event);
    }
}

static void pause_run(Loop *loop)
{
    if (loop->paused) {
        return;
    }
    loop->paused = true;
    if (loop->now == ACTIVITY_ROLLOUT || loop->now == ACTIVITY_EVAL) {
        loop->gate_closed = true;
        push(loop, LOOP_ACT_GATE_CLOSE);
        set_phase(loop, PHASE_PAUSE, NULL);
    }
}

static void resume_run(Loop *loop)
{
    if (!loop->paused) {
        loop->ignored++;
        return;
    }
    loop->paused = false;
    if (loop->now == ACTIVITY_ROLLOUT || loop->now == ACTIVITY_EVAL) {
        set_phase(loop, activity_phase[loop->now], NULL);
    }
    if (loop->gate_closed) {
        loop->gate_closed = false;
        push(loop, LOOP_ACT_GATE_OPEN);
    }
}

static void stop_run(Loop *loop)
{
    if (loop->stopping) {
        return;
    }
    loop->stopping = true;
    if (loop->now != ACTIVITY_NONE || loop->again) {
        push(loop, LOOP_ACT_CANCEL);
    }
    if (loop->now == ACTIVITY_NONE && loop->next == ACTIVITY_NONE) {
        loop->next = ACTIVITY_ROLLOUT; /* advance() ends the run instead of starting it */
    }
}

static void update_run(Loop *loop, int64_t version)
{
    /* During PUBLISH and SYNC the newest policy is on its way anyway. */
    if (loop->committed < 0 || loop->again || loop->stopping || loop->now == ACTIVITY_SYNC) {
        loop->ignored++;
        return;
    }
    loop->again = true;
    loop->again_version = version > 0 ? version : loop->committed;
    LoopAction *action = push(loop, LOOP_ACT_SYNC);
    action->version = loop->again_version;
    action->again = true;
}

void loop_feed(Loop *loop, const LoopEvent *event, int64_t now_us)
{
    loop->now_us = now_us;
    if (loop->finished) {
        loop->ignored++;
        return;
    }
    bool well = false;
    Activity ended = ended_by(event->kind, &well);
    if (ended != ACTIVITY_NONE) {
        activity_end(loop, ended, well, event);
        if (loop->stopping && loop->now == ACTIVITY_NONE && loop->next == ACTIVITY_NONE &&
            !loop->finished) {
            loop->next = ACTIVITY_ROLLOUT;
        }
    } else if (event->kind == LOOP_EV_PARTS_READY) {
        loop->parts = true;
    } else if (event->kind == LOOP_EV_PARTS_LOST) {
        loop->parts = false;
    } else if (event->kind == LOOP_EV_PAUSE) {
        pause_run(loop);
    } else if (event->kind == LOOP_EV_RESUME) {
        resume_run(loop);
    } else if (event->kind == LOOP_EV_STOP) {
        stop_run(loop);
    } else if (event->kind == LOOP_EV_STOP_NOW) {
        finish(loop, 1, "stopped", "stopped at once by the operator");
    } else if (event->kind == LOOP_EV_UPDATE) {
        update_run(loop, event->version);
    } else if (event->kind == LOOP_EV_FAIL) {
        char outcome[280];
        (void)str_format(outcome, sizeof outcome, "failed: %s",
                         event->detail ? event->detail : "");
        finish(loop, 2, outcome, event->detail ? event->detail : "failed");
    }
    advance(loop);
}

LoopPhase loop_phase(const Loop *loop)
{
    return loop->phase;
}

int64_t loop_phase_since_us(const Loop *loop)
{
    return loop->phase_since_us;
}

int64_t loop_step(const Loop *loop)
{
    return loop->step;
}

int64_t loop_committed(const Loop *loop)
{
    return loop->committed;
}

bool loop_paused(const Loop *loop)
{
    return loop->paused;
}

bool loop_finished(const Loop *loop)
{
    return loop->finished;
}

int64_t loop_ignored(const Loop *loop)
{
    return loop->ignored;
}
