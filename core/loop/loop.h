/* The run as a pure state machine: phases, steps, operator commands, restarts of parts.
 * (state, event) -> (state, actions). The driver (loop_driver.h) carries them out on libuv.
 *
 * Order: INIT, PUBLISH and SYNC of the policy that the trainer starts from (slime's first
 * update_weights, on resume too), EVAL at step 0 unless skipped; then per step GENERATE, TRAIN,
 * PUBLISH, SYNC, SAVE at its interval and at the last step, EVAL when (step+1) % interval == 0
 * (slime-semantics §1.2). One activity runs at a time; an operator's UPDATE may run beside
 * generation, evaluation and training. Rewards are part of ROLLOUT: it is done when every
 * sample is scored. */
#ifndef ROLLTOP_LOOP_LOOP_H
#define ROLLTOP_LOOP_LOOP_H

#include "store/store.h"

typedef struct Loop Loop;

typedef struct LoopConfig {
    int64_t start_step, num_steps;  /* runs steps start … num_steps-1 (slime: absolute end) */
    int64_t eval_interval;          /* 0: none */
    bool skip_eval_before_train;
    int64_t save_interval;          /* 0: never; else also after the last step */
    double stop_at_eval_reward;     /* demo: ends well once reached; NaN: never */
    int64_t first_version;          /* number of the first policy to publish */
    int tries;                      /* of one activity before the run fails or holds; 0: 3 */
    bool hold_on_failure;           /* pause and wait for the operator instead of ending */
} LoopConfig;

typedef enum LoopEventKind {
    LOOP_EV_PARTS_READY,    /* engines up, frontend and trainer up */
    LOOP_EV_PARTS_LOST,     /* frontend or trainer or every engine went away */
    LOOP_EV_EVAL_DONE, LOOP_EV_EVAL_FAILED, LOOP_EV_ROLLOUT_DONE, LOOP_EV_ROLLOUT_FAILED,
    LOOP_EV_TRAINED, LOOP_EV_TRAIN_FAILED, LOOP_EV_PUBLISHED, LOOP_EV_PUBLISH_FAILED,
    LOOP_EV_SYNCED, LOOP_EV_SYNC_ROLLED_BACK, LOOP_EV_SAVED, LOOP_EV_SAVE_FAILED,
    LOOP_EV_PAUSE, LOOP_EV_RESUME, LOOP_EV_STOP, LOOP_EV_STOP_NOW, LOOP_EV_UPDATE,
    LOOP_EV_FAIL            /* something outside the steps cannot go on; `detail` says what */
} LoopEventKind;

typedef struct LoopEvent {
    LoopEventKind kind;
    double value;        /* EVAL_DONE: mean reward */
    int64_t version;     /* SYNCED, ROLLED_BACK: the version that was to be applied; UPDATE: the
                          * kept policy to go to, 0 the committed one */
    bool fatal;          /* *_FAILED: trying again cannot help (NaN, a rejected artifact) */
    bool asked;          /* *_FAILED: by a restart that somebody asked for: uses up no try */
    bool keeps;          /* SYNCED: what is being generated goes on under the new policy */
    const char *detail;
} LoopEvent;

typedef enum LoopActionKind {
    LOOP_ACT_PHASE,      /* phase changed: log it; `reason` says why when it is not plain */
    LOOP_ACT_STEP_BEGIN, LOOP_ACT_STEP_END, /* durable before the next action */
    LOOP_ACT_EVAL, LOOP_ACT_ROLLOUT, LOOP_ACT_TRAIN,
    LOOP_ACT_PUBLISH,    /* the trainer's policy as `version` */
    LOOP_ACT_SYNC,       /* policy transaction to `version`; `again`: an operator's re-send */
    LOOP_ACT_SAVE,
    LOOP_ACT_GATE_CLOSE, LOOP_ACT_GATE_OPEN, /* generation: start nothing new / go on */
    LOOP_ACT_CANCEL,     /* what is under way: abort it, bounded; its end event must come */
    LOOP_ACT_FINISHED    /* status: 0 well, 1 not reached or stopped short, 2 failed */
} LoopActionKind;

typedef struct LoopAction {
    LoopActionKind kind;
    LoopPhase phase;
    int64_t step, version;
    bool again;
    int status;
    char reason[256];
} LoopAction;

Loop *loop_new(const LoopConfig *config);
void loop_free(Loop *loop);
/* Events that do not fit the state (an end of an activity that does not run, RESUME while not
 * paused) are ignored and counted. */
void loop_feed(Loop *loop, const LoopEvent *event, int64_t now_us);
bool loop_next(Loop *loop, LoopAction *out);
LoopPhase loop_phase(const Loop *loop);
int64_t loop_phase_since_us(const Loop *loop);
int64_t loop_step(const Loop *loop);
int64_t loop_committed(const Loop *loop); /* policy that engines hold; -1 none yet */
bool loop_paused(const Loop *loop);
bool loop_finished(const Loop *loop);
int64_t loop_ignored(const Loop *loop); /* events that fit no place; for tests */

#endif
