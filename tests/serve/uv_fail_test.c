/* libuv says no: what was started is ended, and one sentence says so. The calls are replaced at
 * link time (--wrap); `fail_at` counts down to the one that fails. */
#include "core/net/child.h"
#include "core/serve/engine_core.h"
#include "core/serve/engine_runner.h"
#include "core/train/trainer.h"
#include "tests/harness.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static int fail_at;

static bool fails(void)
{
    return fail_at > 0 && --fail_at == 0;
}

int __real_uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb callback);
int __wrap_uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb callback);
int __real_uv_pipe_open(uv_pipe_t *pipe, uv_file file);
int __wrap_uv_pipe_open(uv_pipe_t *pipe, uv_file file);
int __real_uv_read_start(uv_stream_t *stream, uv_alloc_cb alloc, uv_read_cb read_cb);
int __wrap_uv_read_start(uv_stream_t *stream, uv_alloc_cb alloc, uv_read_cb read_cb);

int __wrap_uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb callback)
{
    return fails() ? UV_EMFILE : __real_uv_async_init(loop, async, callback);
}

int __wrap_uv_pipe_open(uv_pipe_t *pipe, uv_file file)
{
    return fails() ? UV_EMFILE : __real_uv_pipe_open(pipe, file);
}

int __wrap_uv_read_start(uv_stream_t *stream, uv_alloc_cb alloc, uv_read_cb read_cb)
{
    return fails() ? UV_EINVAL : __real_uv_read_start(stream, alloc, read_cb);
}

static void no_exit(Child *child, int64_t status, int signal_number, void *user)
{
    (void)child;
    (void)status;
    (void)signal_number;
    (void)user;
    CHECK(false); /* a child that did not start tells no end */
}

/* Two outputs, each opened and read, then the channel: any of the five may fail. */
static void a_child_without_pipes(void)
{
    static const char *const argv[] = {"/bin/sleep", "600", NULL};
    for (int at = 1; at <= 5; at++) {
        uv_loop_t loop;
        Child *child = NULL;
        Fault fault = {0};
        CHECK_I64(uv_loop_init(&loop), 0);
        ChildSpec spec = {.name = "sleeper", .argv = argv, .channel = true, .on_exit = no_exit};
        fail_at = at;
        CHECK_I64(child_start(&loop, &spec, &child, &fault), ERR_IO);
        CHECK_I64(fail_at, 0);
        CHECK(child == NULL && strstr(fault.sentence, "sleeper was started") != NULL);
        uv_run(&loop, UV_RUN_DEFAULT); /* ends once the child is reaped */
        CHECK_I64(uv_loop_close(&loop), 0);
    }
}

static void a_trainer_that_cannot_be_heard(void)
{
    static const char *const argv[] = {"/bin/sleep", "600", NULL};
    TrainerConfig config = trainer_config_default();
    TrainerEvents events = {0};
    uv_loop_t loop;
    Trainer *trainer = NULL;
    Fault fault = {0};
    CHECK_I64(uv_loop_init(&loop), 0);
    fail_at = 6; /* after the child's own five */
    CHECK_I64(trainer_start(&loop, argv, &config, &events, &trainer, &fault), ERR_IO);
    CHECK_I64(fail_at, 0);
    CHECK(trainer == NULL && strstr(fault.sentence, "channel cannot be read") != NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
}

static void an_engine_without_a_way_to_tell(void)
{
    uv_loop_t loop;
    Core *core = NULL;
    Runner *runner = NULL;
    Fault fault = {0};
    CoreConfig config = {.synthetic = true, .synthetic_vocab = 100, .vocab = 100,
                         .context_length = 64, .threads = 1,
                         .sched = {.block_tokens = 16, .blocks = 8, .max_running = 2,
                                   .max_step_tokens = 16}};
    CHECK_I64(uv_loop_init(&loop), 0);
    CHECK_I64(core_new(&config, NULL, "d", "1", &core, NULL), ERR_OK);
    RunnerConfig runs = {.thread = true};
    fail_at = 1;
    CHECK_I64(runner_new(&loop, &runs, core, &runner, &fault), ERR_IO);
    CHECK(runner == NULL && strstr(fault.sentence, "cannot watch the model thread") != NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    RUN(a_child_without_pipes);
    RUN(a_trainer_that_cannot_be_heard);
    RUN(an_engine_without_a_way_to_tell);
    return test_end();
}
