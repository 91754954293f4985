/* The trainer's side of the run: train, keep its state, publish, score the canary, checkpoints,
 * and a trainer that dies. The state on disk after each trained step is what everything falls
 * back to: a trainer that ends is started from it and the activity under way is tried again. */
#include "core/loop/driver_private.h"

#include "core/base/fs.h"
#include "core/train/trainer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRAINER_BACKOFF_MAX_MS = 8000 };

/* ---- the process -------------------------------------------------------------------------- */

static void on_ready(void *user)
{
    driver_replay(user);
}

void driver_trainer_ready(Driver *d)
{
    if (d->train.killed) {
        return; /* it was ended after it had said so */
    }
    d->train.stage = TRAINER_READY;
    d->train.down_us = d->train.asked_us = 0;
    if (d->train.command > 0) {
        driver_command_done(d, &d->train.command, true, "up again from its last state");
    }
    driver_check_parts(d);
}

static void on_line(bool is_stderr, Str line, void *user)
{
    Driver *d = user;
    ChildLineFact fact = {.t_us = clock_wall_us(), .child = "trainer", .is_stderr = is_stderr,
                          .line = line};
    store_put_child_line(d->store, &fact);
}

static void on_exit_trainer(const char *how, Err why, void *user)
{
    Driver *d = user;
    int64_t now_us = clock_mono_us();
    d->train.ended = d->train.process; /* freed on the next tick: we are inside its callback */
    d->train.process = NULL;
    bool served = d->train.stage == TRAINER_READY;
    d->train.stage = TRAINER_DOWN;
    if (d->shutting || d->torn_down || d->train.stopped) {
        return;
    }
    bool other = why == ERR_FORMAT && driver_state_fall_back(d, how);
    bool asked = d->train.killed && d->train.asked_us > 0;
    d->train.failures = served || other || asked ? 0 : d->train.failures + 1;
    int64_t ms = 250;
    for (int i = 0; i < d->train.failures && ms < TRAINER_BACKOFF_MAX_MS; i++) {
        ms *= 2;
    }
    d->train.down_us = d->train.down_us ? d->train.down_us : now_us;
    d->train.due_us = now_us + ms * 1000;
    if (!d->train.killed) { /* else it says why we ended it */
        (void)str_format(d->train.how, sizeof d->train.how, "%s", how ? how : "ended");
        d->train.asked_us = 0; /* that end was not asked for */
    }
    d->train.killed = false;
    if (!other) { /* else that has been said */
        driver_event(d, d->train.asked_us ? SEVERITY_INFO : SEVERITY_CRIT, "trainer", 0,
                     "%s; starts again from %s", d->train.how, d->train.dir);
    }
    driver_no_start(d, "trainer", d->train.failures, d->train.how);
    driver_diagnose_tick(d, now_us);
    driver_check_parts(d);
    driver_disk_trainer_ended(d);
}

Err driver_trainer_start(Driver *d, Fault *fault)
{
    driver_states_sweep(d, "policies");
    driver_states_sweep(d, "trainer");
    if (!fs_is_dir(d->train.dir)) {
        char gone[FAULT_TEXT_MAX];
        (void)str_format(gone, sizeof gone, "the state %.300s is not there", d->train.dir);
        (void)driver_state_fall_back(d, gone);
    }
    TrainerConfig config = d->config->trainer;
    config.load_dir = d->train.dir;
    TrainerEvents events = {.on_ready = on_ready, .on_line = on_line,
                            .on_exit = on_exit_trainer, .user = d};
    d->train.due_us = 0;
    d->train.stage = TRAINER_STARTING;
    Err err = trainer_start(&d->uv, d->config->trainer_command, &config, &events, &d->train.process,
                            fault);
    if (err != ERR_OK) {
        d->train.stage = TRAINER_DOWN;
    }
    return err;
}

void driver_trainer_tick(Driver *d, int64_t now_us)
{
    if (d->train.ended) {
        trainer_free(d->train.ended);
        d->train.ended = NULL;
    }
    if (d->shutting || d->train.process || d->train.due_us == 0 || now_us < d->train.due_us) {
        return;
    }
    Fault fault = {0};
    if (driver_trainer_start(d, &fault) != ERR_OK) {
        driver_event(d, SEVERITY_CRIT, "trainer", 0, "%s", fault.sentence);
        d->train.due_us = now_us + TRAINER_BACKOFF_MAX_MS * 1000;
    }
}

/* A process held by SIGSTOP or a debugger sends nothing and ends nothing; its requests' bounds are
 * long, because honest work is. The state's letter follows the name, which may hold anything. */
static bool is_held(int pid)
{
    char path[48];
    char stat[512];
    (void)str_format(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, stat, sizeof stat - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    stat[n > 0 ? n : 0] = '\0';
    const char *name_end = strrchr(stat, ')');
    return name_end && (strncmp(name_end, ") T", 3) == 0 || strncmp(name_end, ") t", 3) == 0);
}

void driver_trainer_look(Driver *d, int64_t now_us)
{
    int pid = d->train.process ? trainer_pid(d->train.process) : 0;
    bool held = pid > 0 && is_held(pid);
    if (held == (d->train.halted_us > 0)) {
        return;
    }
    d->train.halted_us = held ? now_us : 0;
    if (held) {
        (void)str_format(d->train.how, sizeof d->train.how,
                         "a signal holds its process; kill -CONT %d lets it go on", pid);
        driver_event(d, SEVERITY_CRIT, "trainer", 0, "%s", d->train.how);
    } else if (d->train.process) {
        driver_event(d, SEVERITY_INFO, "trainer", 0, "its process goes on");
    }
}

/* Kills it; on_exit starts it again from the last state (or not, when the run ends). */
void driver_trainer_restart(Driver *d, const char *why)
{
    if (d->train.process) {
        bool wanted = d->train.stopped || d->train.asked_us > 0;
        driver_event(d, wanted ? SEVERITY_INFO : SEVERITY_WARN, "trainer", 0, "%s: %s",
                     d->train.stopped ? "ended" : "restarted", why);
        int pid = trainer_pid(d->train.process);
        if (pid > 0 && kill(pid, SIGKILL) == 0) {
            d->train.killed = true;
            (void)str_format(d->train.how, sizeof d->train.how, "ended by the core: %s", why);
        }
    } else if (d->train.due_us > 0) {
        d->train.due_us = 1;
    }
}

void driver_trainer_stop(Driver *d)
{
    trainer_free(d->train.process);
    trainer_free(d->train.ended);
    d->train.process = d->train.ended = NULL;
}

/* True when it can take a request; else the activity has failed and is tried again later. */
static bool trainer_free_for(Driver *d, LoopEventKind failed)
{
    if (d->train.process && d->train.stage == TRAINER_READY) {
        return true;
    }
    driver_feed(d, failed, false, "the trainer is not up");
    return false;
}

/* A trainer that died or lost the thread is started again from the state on disk; the run is told
 * that it is missing before it is told of the failure, so that the retry waits for it. */
static void give_up(Driver *d, LoopEventKind failed, const TrainerReply *reply, bool restart)
{
    if (restart || reply->err == ERR_NET || reply->err == ERR_TIMEOUT ||
        reply->err == ERR_FORMAT) {
        d->train.stage = TRAINER_DOWN;
        if (!d->train.stopped) {
            d->train.down_us = d->train.down_us ? d->train.down_us : clock_mono_us();
        }
        driver_check_parts(d);
        if (reply->err != ERR_NET) {
            driver_trainer_restart(d, reply->fault.sentence);
        }
    }
    /* NaN, infinity, a batch that the loss refuses: the same again would give the same. */
    bool fatal = reply->err == ERR_NUMERIC || reply->err == ERR_ARG;
    char why[FAULT_TEXT_MAX * 2];
    (void)str_format(why, sizeof why, "%s%s%s", reply->fault.sentence,
                     reply->fault.hint[0] ? "; " : "", reply->fault.hint);
    if (!d->train.stopped) {
        driver_event(d, d->train.asked_us ? SEVERITY_INFO : SEVERITY_CRIT, "trainer", 0, "%s", why);
    }
    driver_feed_event(d, &(LoopEvent){.kind = failed, .fatal = fatal, .version = -1,
                                      .asked = d->train.asked_us > 0,
                                      .detail = reply->fault.sentence});
}

/* ---- train -------------------------------------------------------------------------------- */

static void on_state_saved(const TrainerReply *reply, void *user)
{
    Driver *d = user;
    if (d->torn_down) {
        return;
    }
    if (reply->err != ERR_OK) {
        /* Trained but not kept: memory and disk disagree, so the step is done again from disk. */
        if (!driver_disk_refused(d, DISK_STATE, &reply->fault)) {
            give_up(d, LOOP_EV_TRAIN_FAILED, reply, true);
        }
        return;
    }
    driver_disk_written(d);
    driver_state_saved(d, loop_step(d->loop));
    driver_metric(d, loop_step(d->loop), "perf/save_time", (double)reply->took_us / 1e6);
    driver_states_keep(d);
    d->train.done = loop_step(d->loop);
    driver_feed(d, LOOP_EV_TRAINED, false, NULL);
}

void driver_save_state(Driver *d)
{
    char *dir = driver_path(d, "trainer", "step-", d->train.at);
    Fault fault = {0};
    Err err = trainer_save(d->train.process, dir, on_state_saved, d, &fault);
    free(dir);
    if (err != ERR_OK) {
        TrainerReply failed = {.err = err, .fault = fault};
        on_state_saved(&failed, d);
    }
}

/* As slime counts --save-interval: after each so many steps, and after the last one. */
static bool state_is_due(const Driver *d, int64_t step)
{
    return (step + 1) % d->config->state_interval == 0 || step + 1 >= d->config->loop.num_steps;
}

static void on_trained(const TrainerReply *reply, void *user)
{
    Driver *d = user;
    if (d->torn_down) {
        return;
    }
    if (reply->err != ERR_OK) {
        give_up(d, LOOP_EV_TRAIN_FAILED, reply, false);
        return;
    }
    for (int i = 0; i < reply->metric_count; i++) {
        driver_metric(d, loop_step(d->loop), reply->metrics[i].name, reply->metrics[i].value);
    }
    d->train.at = loop_step(d->loop);
    if (!state_is_due(d, d->train.at)) {
        d->train.done = d->train.at;
        driver_feed(d, LOOP_EV_TRAINED, false, NULL);
        return;
    }
    driver_save_state(d);
}

Err driver_send_batch(Driver *d, TrainerReplied on_done, Fault *fault)
{
    RolloutJob *job = d->roll.batch;
    const RolloutSample *samples = NULL;
    int count = rollout_samples(job->rollout, &samples);
    TrainSample *batch = xcalloc((size_t)count + 1, sizeof *batch);
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        total += job->ids[samples[i].group - job->first_group].count + samples[i].count;
    }
    int32_t *tokens = xcalloc(total + 1, sizeof *tokens);
    int32_t *at = tokens;
    uint8_t *masks = driver_job_masks(job, samples, count);
    size_t response = 0;
    for (int i = 0; i < count; i++) {
        const TokenIds *prompt = &job->ids[samples[i].group - job->first_group];
        batch[i] = (TrainSample){.tokens = at, .prompt_count = prompt->count,
                                 .response_count = samples[i].count,
                                 .rollout_logp = samples[i].logprobs,
                                 .mask = masks ? masks + response : NULL,
                                 .reward = samples[i].reward, .rollout_id = samples[i].sample};
        memcpy(at, prompt->ids, prompt->count * sizeof *at);
        memcpy(at + prompt->count, samples[i].ids, samples[i].count * sizeof *at);
        at += prompt->count + samples[i].count;
        response += samples[i].count;
    }
    Err err =
        trainer_train(d->train.process, job->step, batch, (size_t)count, on_done, d, fault);
    free(masks);
    free(tokens);
    free(batch);
    return err;
}

void driver_train(Driver *d)
{
    if (!trainer_free_for(d, LOOP_EV_TRAIN_FAILED)) {
        return;
    }
    Fault fault = {0};
    Err err = driver_send_batch(d, on_trained, &fault);
    if (err != ERR_OK) {
        driver_feed(d, LOOP_EV_TRAIN_FAILED, err == ERR_ARG || err == ERR_LIMIT, fault.sentence);
    }
}

/* ---- publish ------------------------------------------------------------------------------ */

static void on_scored(const TrainerReply *reply, void *user)
{
    Driver *d = user;
    if (d->torn_down) {
        return;
    }
    d->policy.canary_logps = 0;
    if (reply->err == ERR_OK && reply->logprob_count <= DRIVER_CANARY_TOKENS) {
        d->policy.canary_logps = (int)reply->logprob_count;
        memcpy(d->policy.canary_logp, reply->logprobs, reply->logprob_count * sizeof(float));
        KeptCanary *kept = &d->policy.kept[d->policy.kept_next++ % DRIVER_KEPT_CANARIES];
        kept->version = d->policy.publishing;
        kept->count = d->policy.canary_logps;
        memcpy(kept->logp, d->policy.canary_logp, sizeof kept->logp);
    } else if (reply->err == ERR_NET) {
        give_up(d, LOOP_EV_PUBLISH_FAILED, reply, false);
        return;
    } else {
        driver_event(d, SEVERITY_WARN, "trainer", 0, "canary not scored: %s",
                     reply->fault.sentence);
    }
    driver_feed(d, LOOP_EV_PUBLISHED, false, NULL);
}

/* The version is on disk as the run publishes it: it is noted, and its canary scored. */
static void after_publication(Driver *d)
{
    int64_t now = clock_wall_us();
    int64_t version = d->policy.publishing;
    char *dir = driver_path(d, "policies", "v", version);
    PolicyFact fact = {.version = version, .t_us = now, .parent = loop_committed(d->loop),
                       .digest = d->policy.digest[0] ? d->policy.digest : NULL, .path = dir,
                       .kind = driver_delta_kind(d, version), .bytes = d->policy.bytes,
                       .step = loop_step(d->loop)};
    store_put_policy(d->store, &fact);
    free(dir);
    PolicyStateFact state = {.version = version, .t_us = now, .state = POLICY_PUBLISHED};
    store_put_policy_state(d->store, &state);
    const int32_t *sequence = d->policy.canary;
    size_t count = (size_t)d->policy.canary_count;
    Fault fault = {0};
    Err err = ERR_STATE;
    if (count > 1 && d->train.process && d->train.stage == TRAINER_READY) {
        err = trainer_score(d->train.process, &sequence, &count, 1, on_scored, d, &fault);
    }
    if (err != ERR_OK) {
        d->policy.canary_logps = 0;
        driver_feed(d, LOOP_EV_PUBLISHED, false, NULL);
    }
}

static void on_published(const TrainerReply *reply, void *user)
{
    Driver *d = user;
    if (d->torn_down) {
        return;
    }
    if (reply->err != ERR_OK) {
        if (!driver_disk_refused(d, DISK_POLICY, &reply->fault)) {
            give_up(d, LOOP_EV_PUBLISH_FAILED, reply, false);
        }
        return;
    }
    driver_disk_written(d);
    (void)str_format(d->policy.digest, sizeof d->policy.digest, "%s",
                     reply->digest ? reply->digest : "");
    d->policy.bytes = reply->bytes;
    driver_delta_publish(d, d->policy.publishing, after_publication);
}

void driver_publish(Driver *d, int64_t version)
{
    if (!trainer_free_for(d, LOOP_EV_PUBLISH_FAILED)) {
        return;
    }
    d->policy.publishing = version;
    d->policy.digest[0] = '\0';
    char *dir = driver_path(d, "policies", "v", version);
    Fault fault = {0};
    Err err = fs_remove_tree(dir, &fault); /* left by an attempt that failed */
    if (err == ERR_OK) {
        err = trainer_publish(d->train.process, d->config->publish_dtype, dir, on_published, d,
                              &fault);
    }
    free(dir);
    if (err != ERR_OK && !driver_disk_refused(d, DISK_POLICY, &fault)) {
        driver_feed(d, LOOP_EV_PUBLISH_FAILED, false, fault.sentence);
    }
}

/* A version is committed: it is the reference for the next check, and old ones go. */
void driver_committed(Driver *d, int64_t version)
{
    if (d->policy.has_pending) {
        if (d->policy.has_committed) {
            artifact_free(&d->policy.committed);
        }
        d->policy.committed = d->policy.pending;
        d->policy.has_committed = true;
        d->policy.has_pending = false;
    }
    driver_retain(d, version);
}

/* ---- checkpoints -------------------------------------------------------------------------- */

static void on_saved(const TrainerReply *reply, void *user)
{
    Driver *d = user;
    if (d->torn_down) {
        return;
    }
    if (reply->err != ERR_OK) {
        give_up(d, LOOP_EV_SAVE_FAILED, reply, false);
        return;
    }
    char text[32];
    char *tracker = fs_join(d->config->save_dir, "latest_checkpointed_iteration.txt");
    (void)str_format(text, sizeof text, "%lld\n", (long long)loop_step(d->loop));
    Fault fault = {0};
    if (fs_write_atomic(tracker, text, strlen(text), &fault) != ERR_OK) {
        driver_event(d, SEVERITY_WARN, "trainer", 0, "%s", fault.sentence);
    }
    free(tracker);
    driver_event(d, SEVERITY_INFO, "trainer", 0, "checkpoint %s", reply->dir ? reply->dir : "");
    driver_feed(d, LOOP_EV_SAVED, false, NULL);
}

void driver_save(Driver *d)
{
    if (!trainer_free_for(d, LOOP_EV_SAVE_FAILED)) {
        return;
    }
    char *dir = xasprintf("%s/iter_%07lld", d->config->save_dir, (long long)loop_step(d->loop));
    Fault fault = {0};
    Err err = fs_mkdirs(d->config->save_dir, 0755, &fault);
    if (err == ERR_OK) {
        err = trainer_save(d->train.process, dir, on_saved, d, &fault);
    }
    free(dir);
    if (err != ERR_OK) {
        driver_event(d, SEVERITY_WARN, "trainer", 0, "%s", fault.sentence);
        driver_feed(d, LOOP_EV_SAVE_FAILED, false, fault.sentence);
    }
}
