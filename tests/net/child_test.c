/* Real processes on a real loop: lines, channel, ends, and death with the parent. The binary runs
 * itself in three roles (see main). */
#include "core/net/child.h"
#include "tests/harness.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRACE_MS = 60000 };

static const char *self;

typedef struct Seen {
    Text out, err;
    int lines, exits, signal;
    int64_t stop_grace_ms; /* >= 0: stopped at its first line, with this grace; -1: left alone */
    int64_t status;
    bool free_on_line;
    Text echoed;
    uv_loop_t *loop;
} Seen;

static void on_line(Child *child, bool is_stderr, Str line, void *user)
{
    Seen *seen = user;
    seen->lines++;
    Text *text = is_stderr ? &seen->err : &seen->out;
    text_add_str(text, line);
    text_add_char(text, '\n');
    if (seen->free_on_line) {
        child_free(child);
    } else if (seen->stop_grace_ms >= 0 && seen->lines == 1) {
        child_stop(child, seen->stop_grace_ms);
        child_stop(child, seen->stop_grace_ms);
    }
}

static void on_child_exit(Child *child, int64_t status, int signal, void *user)
{
    Seen *seen = user;
    seen->exits++;
    seen->status = status;
    seen->signal = signal;
    child_free(child);
}

static void seen_init(Seen *seen)
{
    memset(seen, 0, sizeof *seen);
    seen->stop_grace_ms = -1;
    text_init(&seen->out, 1 << 20);
    text_init(&seen->err, 1 << 20);
    text_init(&seen->echoed, 1 << 20);
}

static void seen_free(Seen *seen)
{
    text_free(&seen->out);
    text_free(&seen->err);
    text_free(&seen->echoed);
}

static void run_spec(const ChildSpec *spec)
{
    uv_loop_t loop;
    uv_loop_init(&loop);
    Child *child = NULL;
    Fault fault = {0};
    CHECK_I64(child_start(&loop, spec, &child, &fault), ERR_OK);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
}

static void shell(const char *script, size_t max_line, Seen *seen)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    const char *env[] = {"CHILD_TEST=from the spec", NULL};
    ChildSpec spec = {.name = "helper", .argv = argv, .env = env, .cwd = "/", .on_line = on_line,
                      .on_exit = on_child_exit, .max_line = max_line, .user = seen};
    run_spec(&spec);
}

static void lines_and_status(void)
{
    Seen seen;
    seen_init(&seen);
    shell("echo one; echo two >&2; printf 'dos\\r\\nlast'; echo $CHILD_TEST $PWD >&2; exit 7",
          0, &seen);
    CHECK_STR(text_c(&seen.out), "one\ndos\nlast\n");
    CHECK_STR(text_c(&seen.err), "two\nfrom the spec /\n");
    CHECK_I64(seen.exits, 1);
    CHECK_I64(seen.status, 7);
    CHECK_I64(seen.signal, 0);
    seen_free(&seen);
}

static void long_line_is_cut(void)
{
    Seen seen;
    seen_init(&seen);
    shell("printf '0123456789abcdef\\nnext\\n'", 10, &seen);
    CHECK_STR(text_c(&seen.out), "0123456789 [cut 6 bytes]\nnext\n");
    seen_free(&seen);
}

static void many_lines(void)
{
    Seen seen;
    seen_init(&seen);
    shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", 0, &seen);
    CHECK_I64(seen.lines, 20000);
    CHECK(seen.out.n > 11 && strcmp(seen.out.p + seen.out.n - 11, "line 19999\n") == 0);
    seen_free(&seen);
}

static void signal_is_told(void)
{
    Seen seen;
    seen_init(&seen);
    shell("kill -9 $$", 0, &seen);
    CHECK_I64(seen.signal, SIGKILL);
    CHECK_I64(seen.status, 0);
    seen_free(&seen);
}

static void stop_kills_the_deaf(void)
{
    Seen seen;
    seen_init(&seen);
    seen.stop_grace_ms = 200;
    shell("trap '' TERM; echo up; while :; do sleep 0.05; done", 0, &seen);
    CHECK_I64(seen.signal, SIGKILL);
    CHECK_I64(seen.exits, 1);
    seen_free(&seen);
}

static void stop_is_gentle_first(void)
{
    Seen seen;
    seen_init(&seen);
    seen.stop_grace_ms = GRACE_MS;
    shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done", 0, &seen);
    CHECK_I64(seen.status, 3);
    CHECK_STR(text_c(&seen.out), "up\nbye\n");
    seen_free(&seen);
}

/* Within a minute; what is to end would live for ten. */
static bool pid_ends(int pid)
{
    int64_t until = clock_mono_us() + 60 * INT64_C(1000000);
    while (clock_mono_us() < until) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *f = fopen(path, "r");
        if (!f) {
            return true;
        }
        char state = 0;
        int n = fscanf(f, "%*d (%*[^)]) %c", &state);
        fclose(f);
        if (n == 1 && (state == 'Z' || state == 'X')) {
            return true;
        }
        clock_sleep_us(10000);
    }
    return false;
}

static void grandchildren_go_too(void)
{
    Seen seen;
    seen_init(&seen);
    shell("sleep 600 & echo $!", 0, &seen);
    int pid = atoi(text_c(&seen.out));
    CHECK(pid > 1);
    CHECK(pid_ends(pid));
    CHECK_I64(seen.exits, 1);
    seen_free(&seen);
}

static void free_in_the_line_callback(void)
{
    Seen seen;
    seen_init(&seen);
    seen.free_on_line = true;
    shell("echo a; echo b; echo c; sleep 600", 0, &seen);
    CHECK_I64(seen.lines, 1);
    CHECK_I64(seen.exits, 0);
    seen_free(&seen);
}

static void start_failures(void)
{
    uv_loop_t loop;
    uv_loop_init(&loop);
    const char *argv[] = {"/nonexistent/rolltop-trainer", NULL};
    ChildSpec spec = {.name = "trainer", .argv = argv, .on_exit = on_child_exit};
    Child *child = NULL;
    Fault fault = {0};
    CHECK_I64(child_start(&loop, &spec, &child, &fault), ERR_NOT_FOUND);
    CHECK(child == NULL);
    CHECK(strstr(fault.sentence, "/nonexistent/rolltop-trainer") != NULL);
    CHECK(strstr(fault.sentence, "trainer") != NULL);
    const char *sh[] = {"sh", "-c", "exit 0", NULL};
    ChildSpec bad_dir = {.name = "trainer", .argv = sh, .cwd = "/nonexistent/dir",
                         .on_exit = on_child_exit};
    fault_clear(&fault);
    CHECK_I64(child_start(&loop, &bad_dir, &child, &fault), ERR_NOT_FOUND);
    CHECK(strstr(fault.sentence, "/nonexistent/dir") != NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
}

static void on_echo_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    static char bytes[4096];
    (void)handle;
    (void)suggested;
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

static void on_echo_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    Seen *seen = stream->data;
    if (n > 0) {
        text_add(&seen->echoed, buffer->base, (size_t)n);
    } else if (n < 0) {
        uv_read_stop(stream);
    }
}

static void channel_carries_bytes(void)
{
    Seen seen;
    seen_init(&seen);
    uv_loop_t loop;
    uv_loop_init(&loop);
    /* cat from fd 3 to fd 3 ends when our side is shut down. */
    const char *argv[] = {"sh", "-c", "cat <&3 >&3", NULL};
    ChildSpec spec = {.name = "echo", .argv = argv, .channel = true, .on_line = on_line,
                      .on_exit = on_child_exit, .user = &seen};
    Child *child = NULL;
    CHECK_I64(child_start(&loop, &spec, &child, NULL), ERR_OK);
    uv_stream_t *channel = child_channel(child);
    CHECK(channel != NULL);
    channel->data = &seen;
    uv_read_start(channel, on_echo_alloc, on_echo_read);
    char words[] = "over the channel";
    uv_buf_t buffer = uv_buf_init(words, sizeof words - 1);
    CHECK_I64(uv_try_write(channel, &buffer, 1), sizeof words - 1);
    uv_shutdown_t shut;
    CHECK_I64(uv_shutdown(&shut, channel, NULL), 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_STR(text_c(&seen.echoed), "over the channel");
    CHECK_I64(seen.status, 0);
    CHECK_I64(uv_loop_close(&loop), 0);
    seen_free(&seen);
}

/* The middle process is killed with SIGKILL; what it started must go. */
static void death_with_parent(const char *role)
{
    int fds[2];
    CHECK_I64(pipe(fds), 0);
    pid_t middle = fork();
    if (middle == 0) {
        dup2(fds[1], 1);
        execl(self, self, "middle", role, (char *)NULL);
        _exit(1);
    }
    close(fds[1]);
    char text[64] = {0};
    ssize_t n = read(fds[0], text, sizeof text - 1);
    close(fds[0]);
    CHECK(n > 0);
    int pid = atoi(text);
    CHECK(pid > 1 && kill(pid, 0) == 0);
    kill(middle, SIGKILL);
    waitpid(middle, NULL, 0);
    CHECK(pid_ends(pid));
    if (pid > 1) {
        kill(pid, SIGKILL); /* nothing stays behind, whatever the verdict */
    }
}

static void dies_by_the_signal_of_the_kernel(void)
{
    death_with_parent("plain");
}

static void dies_by_the_pipe_alone(void)
{
    death_with_parent("pipe-only");
}

static void on_middle_line(Child *child, bool is_stderr, Str line, void *user)
{
    (void)is_stderr;
    (void)user;
    (void)line;
    printf("%d\n", child_pid(child));
    fflush(stdout);
}

static int middle_main(const char *role)
{
    uv_loop_t loop;
    uv_loop_init(&loop);
    const char *argv[] = {self, role, NULL};
    ChildSpec spec = {.name = "grandchild", .argv = argv, .on_line = on_middle_line,
                      .on_exit = on_child_exit};
    Child *child = NULL;
    if (child_start(&loop, &spec, &child, NULL) != ERR_OK) {
        return 1;
    }
    return uv_run(&loop, UV_RUN_DEFAULT);
}

static int grandchild_main(bool pipe_only)
{
    child_die_with_parent();
    if (pipe_only) {
        prctl(PR_SET_PDEATHSIG, 0);
    }
    printf("up\n");
    fflush(stdout);
    sleep(600);
    return 0;
}

int main(int argc, char **argv)
{
    self = "/proc/self/exe";
    if (argc == 3 && strcmp(argv[1], "middle") == 0) {
        return middle_main(argv[2]);
    }
    if (argc == 2) {
        return grandchild_main(strcmp(argv[1], "pipe-only") == 0);
    }
    RUN(lines_and_status);
    RUN(long_line_is_cut);
    RUN(many_lines);
    RUN(signal_is_told);
    RUN(stop_kills_the_deaf);
    RUN(stop_is_gentle_first);
    RUN(grandchildren_go_too);
    RUN(free_in_the_line_callback);
    RUN(start_failures);
    RUN(channel_carries_bytes);
    RUN(dies_by_the_signal_of_the_kernel);
    RUN(dies_by_the_pipe_alone);
    return test_end();
}
