#include "core/loop/loop.h"

#include "core/base/rng.h"
#include "tests/harness.h"

#include <stdlib.h>

static LoopConfig config_of(int64_t steps)
{
    return (LoopConfig){.num_steps = steps, .stop_at_eval_reward = NAN, .first_version = 1};
}

static void feed(Loop *loop, LoopEventKind kind)
{
    LoopEvent event = {.kind = kind, .version = -1};
    loop_feed(loop, &event, 1);
}

/* The actions so far as one line of words. */
static const char *drained(Loop *loop)
{
    static char line[2048];
    static const char *const words[] = {
        [LOOP_ACT_PHASE] = "phase",      [LOOP_ACT_STEP_BEGIN] = "begin",
        [LOOP_ACT_STEP_END] = "end",     [LOOP_ACT_EVAL] = "EVAL",
        [LOOP_ACT_ROLLOUT] = "ROLLOUT",  [LOOP_ACT_TRAIN] = "TRAIN",
        [LOOP_ACT_PUBLISH] = "PUBLISH",  [LOOP_ACT_SYNC] = "SYNC",
        [LOOP_ACT_SAVE] = "SAVE",        [LOOP_ACT_GATE_CLOSE] = "close",
        [LOOP_ACT_GATE_OPEN] = "open",   [LOOP_ACT_CANCEL] = "CANCEL",
        [LOOP_ACT_FINISHED] = "FINISHED"};
    LoopAction action;
    size_t n = 0;
    line[0] = '\0';
    while (loop_next(loop, &action)) {
        const char *gap = n ? " " : "";
        int more;
        if (action.kind == LOOP_ACT_PHASE) {
            more = snprintf(line + n, sizeof line - n, "%s%s", gap, loop_phase_name(action.phase));
        } else if (action.kind == LOOP_ACT_PUBLISH || action.kind == LOOP_ACT_SYNC) {
            more = snprintf(line + n, sizeof line - n, "%s%s:%lld", gap, words[action.kind],
                            (long long)action.version);
        } else if (action.kind == LOOP_ACT_FINISHED) {
            more = snprintf(line + n, sizeof line - n, "%sFINISHED:%d", gap, action.status);
        } else {
            more = snprintf(line + n, sizeof line - n, "%s%s", gap, words[action.kind]);
        }
        n += (size_t)more;
    }
    return line;
}

static void test_order(void)
{
    LoopConfig config = config_of(2);
    config.eval_interval = 2;
    config.save_interval = 2;
    Loop *loop = loop_new(&config);
    CHECK_STR(drained(loop), "");
    feed(loop, LOOP_EV_PARTS_READY);
    CHECK_STR(drained(loop), "publish PUBLISH:1");
    CHECK_I64(loop_committed(loop), -1);
    feed(loop, LOOP_EV_PUBLISHED);
    CHECK_STR(drained(loop), "sync SYNC:1");
    feed(loop, LOOP_EV_SYNCED);
    CHECK_STR(drained(loop), "eval EVAL");
    CHECK_I64(loop_committed(loop), 1);
    feed(loop, LOOP_EV_EVAL_DONE);
    CHECK_STR(drained(loop), "begin generate ROLLOUT");
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    CHECK_STR(drained(loop), "train TRAIN");
    feed(loop, LOOP_EV_TRAINED);
    CHECK_STR(drained(loop), "publish PUBLISH:2");
    feed(loop, LOOP_EV_PUBLISHED);
    CHECK_STR(drained(loop), "sync SYNC:2");
    feed(loop, LOOP_EV_SYNCED);
    CHECK_STR(drained(loop), "end begin generate ROLLOUT");
    CHECK_I64(loop_step(loop), 1);
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    feed(loop, LOOP_EV_TRAINED);
    feed(loop, LOOP_EV_PUBLISHED);
    drained(loop);
    feed(loop, LOOP_EV_SYNCED);
    CHECK_STR(drained(loop), "save SAVE");
    feed(loop, LOOP_EV_SAVED);
    CHECK_STR(drained(loop), "eval EVAL");
    feed(loop, LOOP_EV_EVAL_DONE);
    CHECK_STR(drained(loop), "end done FINISHED:0");
    CHECK(loop_finished(loop));
    CHECK_I64(loop_ignored(loop), 0);
    loop_free(loop);
}

static Loop *in_rollout(LoopConfig config)
{
    config.skip_eval_before_train = true;
    Loop *loop = loop_new(&config);
    feed(loop, LOOP_EV_PARTS_READY);
    feed(loop, LOOP_EV_PUBLISHED);
    feed(loop, LOOP_EV_SYNCED);
    CHECK_STR(drained(loop), "publish PUBLISH:1 sync SYNC:1 begin generate ROLLOUT");
    return loop;
}

static void test_pause(void)
{
    Loop *loop = in_rollout(config_of(5));
    feed(loop, LOOP_EV_PAUSE);
    CHECK_STR(drained(loop), "close pause");
    CHECK(loop_paused(loop));
    feed(loop, LOOP_EV_PAUSE);
    CHECK_STR(drained(loop), "");
    feed(loop, LOOP_EV_RESUME);
    CHECK_STR(drained(loop), "generate open");
    feed(loop, LOOP_EV_PAUSE);
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    CHECK_STR(drained(loop), "close pause");
    feed(loop, LOOP_EV_RESUME);
    CHECK_STR(drained(loop), "open train TRAIN");
    feed(loop, LOOP_EV_PAUSE); /* what runs is finished */
    CHECK_STR(drained(loop), "");
    feed(loop, LOOP_EV_TRAINED);
    CHECK_STR(drained(loop), "pause");
    feed(loop, LOOP_EV_RESUME);
    CHECK_STR(drained(loop), "publish PUBLISH:2");
    feed(loop, LOOP_EV_RESUME);
    CHECK_I64(loop_ignored(loop), 1);
    loop_free(loop);
}

static void test_stop(void)
{
    Loop *loop = in_rollout(config_of(5));
    feed(loop, LOOP_EV_STOP);
    CHECK_STR(drained(loop), "CANCEL");
    feed(loop, LOOP_EV_ROLLOUT_FAILED);
    CHECK_STR(drained(loop), "end done FINISHED:0");
    loop_free(loop);
    loop = in_rollout(config_of(5));
    feed(loop, LOOP_EV_STOP);
    feed(loop, LOOP_EV_STOP_NOW);
    CHECK_STR(drained(loop), "CANCEL end done FINISHED:1");
    loop_free(loop);
    LoopConfig config = config_of(5);
    loop = loop_new(&config); /* before anything started */
    feed(loop, LOOP_EV_STOP);
    CHECK_STR(drained(loop), "done FINISHED:0");
    loop_free(loop);
    loop = in_rollout(config_of(5)); /* a stop while paused and idle */
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    feed(loop, LOOP_EV_PAUSE);
    feed(loop, LOOP_EV_TRAINED);
    drained(loop);
    feed(loop, LOOP_EV_STOP);
    CHECK_STR(drained(loop), "end done FINISHED:0");
    loop_free(loop);
}

static void test_retries(void)
{
    Loop *loop = in_rollout(config_of(5));
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    drained(loop);
    feed(loop, LOOP_EV_PARTS_LOST);
    feed(loop, LOOP_EV_TRAIN_FAILED);
    CHECK_STR(drained(loop), "");
    feed(loop, LOOP_EV_PARTS_READY);
    CHECK_STR(drained(loop), "TRAIN");
    feed(loop, LOOP_EV_TRAIN_FAILED);
    CHECK_STR(drained(loop), "TRAIN");
    for (int i = 0; i < 20; i++) { /* restarts that somebody asked for use up none */
        loop_feed(loop, &(LoopEvent){.kind = LOOP_EV_TRAIN_FAILED, .asked = true}, 1);
        CHECK_STR(drained(loop), "TRAIN");
    }
    LoopEvent event = {.kind = LOOP_EV_TRAIN_FAILED, .detail = "why"};
    loop_feed(loop, &event, 1);
    LoopAction action = {.kind = LOOP_ACT_PHASE};
    CHECK(loop_next(loop, &action) && action.kind == LOOP_ACT_STEP_END);
    CHECK_STR(action.reason, "failed: train failed: why");
    CHECK_STR(drained(loop), "done FINISHED:2");
    loop_free(loop);

    loop = in_rollout(config_of(5));
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    drained(loop);
    event.fatal = true;
    loop_feed(loop, &event, 1);
    CHECK_STR(drained(loop), "end done FINISHED:2");
    loop_free(loop);

    LoopConfig config = config_of(5);
    config.hold_on_failure = true;
    loop = in_rollout(config);
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    drained(loop);
    loop_feed(loop, &event, 1);
    CHECK_STR(drained(loop), "pause");
    CHECK(loop_paused(loop));
    feed(loop, LOOP_EV_RESUME);
    CHECK_STR(drained(loop), "train TRAIN");
    loop_free(loop);
}

static void test_update(void)
{
    Loop *loop = in_rollout(config_of(5));
    feed(loop, LOOP_EV_UPDATE);
    CHECK_STR(drained(loop), "SYNC:1");
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    feed(loop, LOOP_EV_TRAINED);
    feed(loop, LOOP_EV_PUBLISHED);
    CHECK_STR(drained(loop), "train TRAIN publish PUBLISH:2"); /* SYNC waits for the re-send */
    feed(loop, LOOP_EV_SYNCED);
    CHECK_STR(drained(loop), "sync SYNC:2");
    CHECK_I64(loop_committed(loop), 1);
    feed(loop, LOOP_EV_SYNC_ROLLED_BACK);
    CHECK_STR(drained(loop), "SYNC:2");
    feed(loop, LOOP_EV_SYNCED);
    CHECK_I64(loop_committed(loop), 2);
    feed(loop, LOOP_EV_UPDATE);
    feed(loop, LOOP_EV_STOP);
    drained(loop);
    feed(loop, LOOP_EV_ROLLOUT_FAILED);
    CHECK_STR(drained(loop), ""); /* engines are paused: the re-send ends first */
    feed(loop, LOOP_EV_SYNCED);
    CHECK_STR(drained(loop), "end done FINISHED:0");
    loop_free(loop);
}

/* An operator's way back to an older policy: what is being generated begins anew under it. */
static void test_update_to_a_version(void)
{
    LoopConfig config = config_of(5);
    config.tries = 1; /* beginning anew is no failure */
    Loop *loop = in_rollout(config);
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    feed(loop, LOOP_EV_TRAINED);
    feed(loop, LOOP_EV_PUBLISHED);
    feed(loop, LOOP_EV_SYNCED);
    CHECK_I64(loop_committed(loop), 2);
    drained(loop);
    LoopEvent back = {.kind = LOOP_EV_UPDATE, .version = 1};
    loop_feed(loop, &back, 1);
    CHECK_STR(drained(loop), "SYNC:1");
    feed(loop, LOOP_EV_SYNC_ROLLED_BACK); /* it did not come about */
    CHECK_I64(loop_committed(loop), 2);
    CHECK_STR(drained(loop), "");
    loop_feed(loop, &back, 1);
    CHECK_STR(drained(loop), "SYNC:1");
    feed(loop, LOOP_EV_SYNCED);
    CHECK_I64(loop_committed(loop), 1);
    CHECK_STR(drained(loop), "CANCEL");
    feed(loop, LOOP_EV_ROLLOUT_FAILED);
    CHECK_STR(drained(loop), "ROLLOUT");
    feed(loop, LOOP_EV_ROLLOUT_DONE);
    feed(loop, LOOP_EV_TRAINED);
    feed(loop, LOOP_EV_PUBLISHED); /* numbers go on upwards */
    CHECK_STR(drained(loop), "train TRAIN publish PUBLISH:3 sync SYNC:3");
    feed(loop, LOOP_EV_SYNCED);
    CHECK_I64(loop_committed(loop), 3);
    loop_free(loop);
}

static void test_target(void)
{
    LoopConfig config = config_of(3);
    config.eval_interval = 1;
    config.stop_at_eval_reward = 0.9;
    for (int reach = 0; reach < 2; reach++) {
        Loop *loop = loop_new(&config);
        feed(loop, LOOP_EV_PARTS_READY);
        for (int i = 0; i < 100 && !loop_finished(loop); i++) {
            LoopAction action;
            while (loop_next(loop, &action)) {
            }
            feed(loop, LOOP_EV_PUBLISHED);
            feed(loop, LOOP_EV_SYNCED);
            LoopEvent done = {.kind = LOOP_EV_EVAL_DONE,
                              .value = reach && loop_step(loop) == 1 ? 0.95 : 0.2};
            loop_feed(loop, &done, 1);
            feed(loop, LOOP_EV_ROLLOUT_DONE);
            feed(loop, LOOP_EV_TRAINED);
        }
        CHECK(loop_finished(loop));
        CHECK_I64(loop_step(loop), reach ? 2 : 3);
        CHECK(strstr(drained(loop), reach ? "FINISHED:0" : "FINISHED:1") != NULL);
        loop_free(loop);
    }
}

/* Random events: one activity at a time, steps open and close in turn, a batch is trained before
 * it is published and published before it is sent, versions never fall. */
typedef struct Watch {
    int now; /* LoopActionKind of the activity under way, -1 none */
    bool open;
    int64_t version, step;
    bool finished;
} Watch;

static void watch(Watch *w, const LoopAction *a)
{
    CHECK(!w->finished);
    switch (a->kind) {
    case LOOP_ACT_PHASE:
    case LOOP_ACT_GATE_CLOSE:
    case LOOP_ACT_GATE_OPEN:
    case LOOP_ACT_CANCEL:
        break;
    case LOOP_ACT_STEP_BEGIN:
        CHECK(!w->open && w->now < 0);
        CHECK_I64(a->step, w->step);
        w->open = true;
        break;
    case LOOP_ACT_STEP_END:
        CHECK(w->open);
        w->open = false;
        w->step++;
        break;
    case LOOP_ACT_SYNC:
        if (a->again) {
            break;
        }
        CHECK(w->now < 0 && a->version == w->version);
        w->now = (int)a->kind;
        break;
    case LOOP_ACT_PUBLISH:
        CHECK(w->now < 0 && (a->version == w->version || a->version == w->version + 1));
        w->version = a->version;
        w->now = (int)a->kind;
        break;
    case LOOP_ACT_TRAIN:
    case LOOP_ACT_ROLLOUT:
    case LOOP_ACT_SAVE:
        CHECK(w->open);
        CHECK(w->now < 0);
        w->now = (int)a->kind;
        break;
    case LOOP_ACT_EVAL:
        CHECK(w->now < 0);
        w->now = (int)a->kind;
        break;
    case LOOP_ACT_FINISHED:
        CHECK(!w->open);
        w->finished = true;
        break;
    }
}

static LoopEventKind random_event(Rng *rng, const Watch *w)
{
    static const LoopEventKind ends[][2] = {
        [LOOP_ACT_EVAL] = {LOOP_EV_EVAL_DONE, LOOP_EV_EVAL_FAILED},
        [LOOP_ACT_ROLLOUT] = {LOOP_EV_ROLLOUT_DONE, LOOP_EV_ROLLOUT_FAILED},
        [LOOP_ACT_TRAIN] = {LOOP_EV_TRAINED, LOOP_EV_TRAIN_FAILED},
        [LOOP_ACT_PUBLISH] = {LOOP_EV_PUBLISHED, LOOP_EV_PUBLISH_FAILED},
        [LOOP_ACT_SYNC] = {LOOP_EV_SYNCED, LOOP_EV_SYNC_ROLLED_BACK},
        [LOOP_ACT_SAVE] = {LOOP_EV_SAVED, LOOP_EV_SAVE_FAILED},
    };
    uint64_t dice = rng_below(rng, 100);
    if (dice < 55 && w->now >= 0) {
        return ends[w->now][rng_below(rng, 12) == 0];
    }
    if (dice < 75) {
        return rng_below(rng, 4) ? LOOP_EV_PARTS_READY : LOOP_EV_PARTS_LOST;
    }
    if (dice < 98) {
        static const LoopEventKind operator_events[] = {LOOP_EV_PAUSE, LOOP_EV_RESUME,
                                                        LOOP_EV_RESUME};
        return operator_events[rng_below(rng, 3)];
    }
    return rng_below(rng, 20) ? LOOP_EV_RESUME : LOOP_EV_STOP;
}

static void test_random(void)
{
    int64_t steps_done = 0, stopped = 0;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        Rng rng;
        rng_seed(&rng, seed);
        LoopConfig config = config_of((int64_t)rng_below(&rng, 6));
        config.eval_interval = (int64_t)rng_below(&rng, 3);
        config.save_interval = (int64_t)rng_below(&rng, 3);
        config.hold_on_failure = rng_below(&rng, 2) == 1;
        Loop *loop = loop_new(&config);
        Watch w = {.now = -1};
        for (int i = 0; i < 5000 && !w.finished; i++) {
            LoopEventKind kind = random_event(&rng, &w);
            bool ends = w.now >= 0 && kind < LOOP_EV_PAUSE && kind > LOOP_EV_PARTS_LOST;
            if (ends) {
                w.now = -1;
            }
            feed(loop, kind);
            LoopAction action;
            while (loop_next(loop, &action)) {
                watch(&w, &action);
            }
        }
        CHECK(w.finished);
        steps_done += w.step;
        stopped += loop_step(loop) < config.num_steps;
        loop_free(loop);
    }
    CHECK(steps_done > 2000 && stopped > 50);
}

int main(void)
{
    RUN(test_order);
    RUN(test_pause);
    RUN(test_stop);
    RUN(test_retries);
    RUN(test_update);
    RUN(test_update_to_a_version);
    RUN(test_target);
    RUN(test_random);
    return test_end();
}
