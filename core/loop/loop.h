/* The run as a pure state machine: phases, steps, operator commands, restarts of parts.
 * (state, event) -> (state, actions). The driver (loop_driver.h) carries them out on libuv. */
#ifndef ROLLTOP_LOOP_LOOP_H
#define ROLLTOP_LOOP_LOOP_H

#include "store/store.h"

typedef struct Loop Loop;

typedef struct LoopConfig {
    int64_t start_step, num_steps;  /* runs steps start … num_steps-1 (slime: absolute end) */
    int64_t eval_interval;          /* 0: none */
    bool skip_eval_before_train;
    int64_t save_interval;          /* 0: only at the end */
    double stop_at_eval_reward;     /* demo: ends well once reached; NaN: never */
} LoopConfig;

typedef enum LoopEventKind {
    LOOP_EV_PARTS_READY,    /* engines admitted, frontend and trainer up */
    LOOP_EV_PARTS_LOST,     /* frontend or trainer or every engine went away */
    LOOP_EV_EVAL_DONE, LOOP_EV_ROLLOUT_DONE, LOOP_EV_ROLLOUT_FAILED,
    LOOP_EV_TRAINED, LOOP_EV_TRAIN_FAILED, LOOP_EV_PUBLISHED, LOOP_EV_PUBLISH_FAILED,
    LOOP_EV_SYNCED, LOOP_EV_SYNC_ROLLED_BACK, LOOP_EV_SAVED, LOOP_EV_SAVE_FAILED,
    LOOP_EV_PAUSE, LOOP_EV_RESUME, LOOP_EV_STOP, LOOP_EV_STOP_NOW, LOOP_EV_UPDATE
} LoopEventKind;

typedef struct LoopEvent {
    LoopEventKind kind;
    double value;        /* EVAL_DONE: mean reward */
    int64_t version;     /* UPDATE: version asked for, -1 the newest committed */
    const char *detail;
} LoopEvent;

typedef enum LoopActionKind {
    LOOP_ACT_PHASE,      /* phase changed: log it */
    LOOP_ACT_STEP_BEGIN, LOOP_ACT_STEP_END, /* durable before the next action */
    LOOP_ACT_EVAL, LOOP_ACT_ROLLOUT, LOOP_ACT_TRAIN, LOOP_ACT_PUBLISH,
    LOOP_ACT_SYNC,       /* policy transaction to `version` */
    LOOP_ACT_SAVE,
    LOOP_ACT_CANCEL,     /* what is under way: abort it, bounded */
    LOOP_ACT_FINISHED    /* status: 0 well, 1 not reached, 2 failed */
} LoopActionKind;

typedef struct LoopAction {
    LoopActionKind kind;
    LoopPhase phase;
    int64_t step, version;
    int status;
    char reason[128];
} LoopAction;

Loop *loop_new(const LoopConfig *config);
void loop_free(Loop *loop);
void loop_feed(Loop *loop, const LoopEvent *event, int64_t now_us);
bool loop_next(Loop *loop, LoopAction *out);
LoopPhase loop_phase(const Loop *loop);
int64_t loop_step(const Loop *loop);
bool loop_paused(const Loop *loop);

#endif
