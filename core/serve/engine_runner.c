#include "core/serve/engine_runner.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    COMMANDS_MAX = 65536,
    OUT_TOKENS_MAX = 1 << 20, /* the model waits for the HTTP thread beyond this */
    IDLE_WAIT_MS = 200,
    TICK_MS = 5,
    BURST_STEPS = 64
};

struct Runner {
    RunnerConfig config;
    Core *core; /* the thread's, or the loop's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uv_async_t async;
    uv_timer_t timer;
    bool stop, threaded_started;
    CoreCommand *commands;
    size_t command_count, command_capacity;
    CoreOut out;   /* between thread and loop */
    CoreOut spare; /* the loop's; its buffers change places with out's */
    CoreStats stats;
    RunnerFaults faults;
    int64_t last_us;
    double credit;
};

static void drop_command(CoreCommand *command)
{
    request_free(command->request);
    weights_unref(command->weights);
    free(command->text);
    free(command->version);
}

/* ---- the model thread ----------------------------------------------------------------------- */

static void wait_for_work(Runner *runner)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += IDLE_WAIT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&runner->wake, &runner->lock, &until);
}

static void run_commands(Runner *runner, CoreCommand *commands, size_t count)
{
    int64_t now = clock_mono_us();
    for (size_t i = 0; i < count; i++) {
        core_command(runner->core, &commands[i], now);
    }
}

static void *model_thread(void *argument)
{
    Runner *runner = (Runner *)argument;
    CoreCommand *batch = NULL;
    size_t batch_capacity = 0;
    bool worked = false;
    pthread_mutex_lock(&runner->lock);
    while (!runner->stop) {
        bool frozen = runner->faults.core.freeze;
        if ((!worked && (runner->command_count == 0 || frozen)) ||
            runner->out.token_count > OUT_TOKENS_MAX) {
            wait_for_work(runner);
        }
        frozen = runner->faults.core.freeze;
        RunnerFaults faults = runner->faults;
        size_t count = frozen ? 0 : runner->command_count;
        if (count > 0) {
            CoreCommand *taken = runner->commands;
            size_t capacity = runner->command_capacity;
            runner->commands = batch;
            runner->command_capacity = batch_capacity;
            runner->command_count = 0;
            batch = taken;
            batch_capacity = capacity;
        }
        bool full = runner->out.token_count > OUT_TOKENS_MAX;
        pthread_mutex_unlock(&runner->lock);

        int64_t start = clock_mono_us();
        core_faults(runner->core, &faults.core);
        run_commands(runner, batch, count);
        worked = !full && core_step(runner->core, start);
        core_emit_tokens(runner->core);
        if (worked && faults.slow < 1.0) {
            double extra = (double)(clock_mono_us() - start) * (1.0 / faults.slow - 1.0);
            clock_sleep_us(extra < 1e6 ? (int64_t)extra : 1000000);
        }

        pthread_mutex_lock(&runner->lock);
        CoreOut *out = core_out(runner->core);
        bool tell = out->event_count > 0;
        if (tell) {
            core_out_append(&runner->out, out);
        }
        core_stats(runner->core, &runner->stats);
        if (tell) {
            uv_async_send(&runner->async);
        }
    }
    pthread_mutex_unlock(&runner->lock);
    free(batch);
    return NULL;
}

static void on_async(uv_async_t *async)
{
    Runner *runner = (Runner *)async->data;
    CoreOut *out = &runner->spare;
    pthread_mutex_lock(&runner->lock);
    core_out_append(out, &runner->out);
    if (out->token_count > OUT_TOKENS_MAX) {
        pthread_cond_signal(&runner->wake);
    }
    pthread_mutex_unlock(&runner->lock);
    if (out->event_count > 0) {
        runner->config.on_out(out, runner->config.user);
    }
    core_out_clear(out);
}

/* ---- the timer ------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer);

static void tick_in(Runner *runner, uint64_t ms)
{
    uv_timer_start(&runner->timer, on_timer, ms, 0);
}

static void on_timer(uv_timer_t *timer)
{
    Runner *runner = (Runner *)timer->data;
    core_faults(runner->core, &runner->faults.core);
    if (runner->faults.core.freeze) {
        runner->last_us = 0;
        tick_in(runner, 50);
        return;
    }
    size_t count = runner->command_count;
    runner->command_count = 0; /* nobody sends while these run: we are the loop */
    run_commands(runner, runner->commands, count);
    int64_t now = clock_mono_us();
    double rate = runner->config.tokens_per_s * runner->faults.slow;
    if (runner->last_us == 0) {
        runner->credit = 1.0;
    } else {
        runner->credit += (double)(now - runner->last_us) * rate / 1e6;
    }
    runner->last_us = now;
    int steps = rate > 0.0 ? (int)(runner->credit < 4096.0 ? runner->credit : 4096.0)
                           : BURST_STEPS;
    bool worked = true;
    for (int i = 0; i < steps && worked; i++) {
        worked = core_step(runner->core, now);
        runner->credit -= 1.0;
    }
    runner->credit = runner->credit > 1.0 ? 1.0 : runner->credit < 0.0 ? 0.0 : runner->credit;
    core_emit_tokens(runner->core);
    core_stats(runner->core, &runner->stats);
    bool more = worked && (runner->stats.running > 0 || runner->stats.waiting > 0);
    if (more) {
        double wait = rate > 0.0 ? (1.0 - runner->credit) * 1000.0 / rate : 0.0;
        tick_in(runner, wait > TICK_MS ? (uint64_t)wait : rate > 0.0 ? TICK_MS : 0);
    } else {
        runner->last_us = 0;
    }
    core_out_append(&runner->spare, core_out(runner->core));
    if (runner->spare.event_count > 0) {
        runner->config.on_out(&runner->spare, runner->config.user); /* may send commands */
    }
    core_out_clear(&runner->spare);
}

/* ---- both ----------------------------------------------------------------------------------- */

Err runner_new(uv_loop_t *loop, const RunnerConfig *config, Core *core, Runner **out,
               Fault *fault)
{
    Runner *runner = xcalloc(1, sizeof *runner);
    runner->config = *config;
    runner->core = core;
    runner->faults = (RunnerFaults){{false, -1}, 1.0};
    int uv = uv_async_init(loop, &runner->async, on_async);
    if (uv != 0) { /* without it the model thread could tell nobody what it made */
        core_free(core);
        free(runner);
        return fault_set(fault, ERR_IO, "raise the limit of open files (ulimit -n)",
                         "cannot watch the model thread: %s", uv_strerror(uv));
    }
    runner->async.data = runner;
    core_stats(core, &runner->stats);
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->wake, NULL);
    uv_timer_init(loop, &runner->timer);
    runner->timer.data = runner;
    if (config->thread) {
        int status = pthread_create(&runner->thread, NULL, model_thread, runner);
        if (status != 0) {
            runner_free(runner);
            return fault_set_sys(fault, ERR_IO, status, "raise the limit of threads (ulimit -u)",
                                 "cannot start the model thread");
        }
        runner->threaded_started = true;
    }
    *out = runner;
    return ERR_OK;
}

static void on_closed(uv_handle_t *handle)
{
    Runner *runner = (Runner *)handle->data;
    handle->data = NULL;
    if (runner->async.data || runner->timer.data) {
        return;
    }
    pthread_mutex_destroy(&runner->lock);
    pthread_cond_destroy(&runner->wake);
    free(runner);
}

void runner_free(Runner *runner)
{
    if (!runner) {
        return;
    }
    if (runner->threaded_started) {
        pthread_mutex_lock(&runner->lock);
        runner->stop = true;
        pthread_cond_signal(&runner->wake);
        pthread_mutex_unlock(&runner->lock);
        pthread_join(runner->thread, NULL);
    }
    for (size_t i = 0; i < runner->command_count; i++) {
        drop_command(&runner->commands[i]);
    }
    free(runner->commands);
    for (size_t i = 0; i < runner->out.event_count; i++) {
        request_free(runner->out.events[i].request);
    }
    CoreOut *inside = core_out(runner->core);
    for (size_t i = 0; i < inside->event_count; i++) {
        request_free(inside->events[i].request);
    }
    core_out_free(&runner->out);
    core_out_free(&runner->spare);
    core_free(runner->core);
    uv_close((uv_handle_t *)&runner->async, on_closed);
    uv_close((uv_handle_t *)&runner->timer, on_closed);
}

bool runner_send(Runner *runner, CoreCommand *command)
{
    if (runner->config.thread) {
        pthread_mutex_lock(&runner->lock);
    }
    bool fits = runner->command_count < COMMANDS_MAX;
    if (fits) {
        if (runner->command_count == runner->command_capacity) {
            runner->command_capacity = runner->command_capacity * 2 + 16;
            runner->commands = xrealloc(runner->commands, runner->command_capacity,
                                        sizeof *runner->commands);
        }
        runner->commands[runner->command_count++] = *command;
    }
    if (runner->config.thread) {
        pthread_cond_signal(&runner->wake);
        pthread_mutex_unlock(&runner->lock);
    } else {
        tick_in(runner, 0);
    }
    return fits;
}

void runner_faults(Runner *runner, const RunnerFaults *faults)
{
    if (runner->config.thread) {
        pthread_mutex_lock(&runner->lock);
        runner->faults = *faults;
        pthread_cond_signal(&runner->wake);
        pthread_mutex_unlock(&runner->lock);
    } else {
        runner->faults = *faults;
        tick_in(runner, 0);
    }
}

void runner_stats(Runner *runner, CoreStats *out)
{
    if (runner->config.thread) {
        pthread_mutex_lock(&runner->lock);
        *out = runner->stats;
        pthread_mutex_unlock(&runner->lock);
    } else {
        *out = runner->stats;
    }
}
