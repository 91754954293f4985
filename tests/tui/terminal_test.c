/* The console in a pseudo-terminal on a real log, with a core's control socket played by a server
 * of this test: first frame, a restart from key to observed effect, replay, resize, ctrl-z, and a
 * sane terminal after every signal. Nothing sleeps for luck: each wait is for words or an end. */
#include "core/base/clock.h"
#include "core/net/ctl.h"
#include "store/store.h"
#include "tests/harness.h"
#include "tui/plain.h"
#include "tui/tui.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

enum { US = 1000000, WAIT_MS = 60000, OUTPUT_MAX = 1 << 20 };

static char folder[] = "/tmp/rolltop-tui-XXXXXX";
static char log_path[128], socket_path[128];

/* ---- the core's part: a log and a socket ---------------------------------------------------- */

typedef struct Core {
    Store *store;
    uv_loop_t loop;
    uv_async_t stop;
    CtlServer *server;
    pthread_t thread;
    char got[4096];
    pthread_mutex_t lock;
    int64_t commands;
} Core;

static Core core;

static void on_request(CtlRequest *request, const cJSON *body, const CtlPeer *peer, void *user)
{
    Core *c = user;
    Text text;
    JsonOut out;
    char *line = cJSON_PrintUnformatted(body);
    CommandFact fact = {.command = ++c->commands, .t_us = clock_wall_us(), .who = peer->user,
                        .what = json_string(body, "cmd", ""),
                        .target = json_string(json_get(body, "target"), "engine", ""),
                        .reason = json_string(body, "reason", ""), .state = "done",
                        .answer = "started again"};
    pthread_mutex_lock(&c->lock);
    (void)snprintf(c->got, sizeof c->got, "%s", line);
    pthread_mutex_unlock(&c->lock);
    cJSON_free(line);
    store_put_command(c->store, &fact);
    EventFact event = {clock_wall_us(), SEVERITY_INFO, "operator", 2, "RESTARTED-IT"};
    store_put_event(c->store, &event);
    (void)store_ticket(c->store);
    text_init(&text, 4096);
    json_begin(&out, &text);
    json_object_begin(&out);
    json_member_bool(&out, "ok", true);
    json_member_i64(&out, "command", c->commands);
    json_member_string(&out, "message", "accepted");
    json_object_end(&out);
    ctl_reply(request, &text);
    text_free(&text);
}

static void on_stop(uv_async_t *handle)
{
    ctl_server_free(core.server);
    uv_close((uv_handle_t *)handle, NULL);
}

static void *serve(void *arg)
{
    (void)uv_run(arg, UV_RUN_DEFAULT);
    return NULL;
}

static bool start_core(void)
{
    Fault fault = {0};
    int64_t t = clock_wall_us();
    (void)pthread_mutex_init(&core.lock, NULL);
    if (!mkdtemp(folder)) {
        return false;
    }
    (void)snprintf(log_path, sizeof log_path, "%s/run.db", folder);
    (void)snprintf(socket_path, sizeof socket_path, "%s/ctl.sock", folder);
    if (store_open(log_path, NULL, &core.store, &fault) != ERR_OK) {
        fault_print(&fault);
        return false;
    }
    RunFact run = {t - 60 * (int64_t)US, "r1", "ptyrun", "host", "0", "[]", "{}"};
    SessionFact session = {1, t - 60 * (int64_t)US, 0, 1, "start"};
    StepFact step = {.step = 3, .t_us = t - 30 * (int64_t)US, .policy_version = 4};
    store_put_run(core.store, &run);
    store_put_session(core.store, &session);
    store_put_step(core.store, &step);
    for (int i = 1; i <= 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "eng-0%d", i - 1);
        EngineFact engine = {i, t - 60 * (int64_t)US, name, "127.0.0.1:1", true};
        EngineStateFact state = {i, 1, t - 50 * (int64_t)US, i == 2 ? ENGINE_DEAD : ENGINE_UP, 4,
                                 i == 2 ? "connection refused" : NULL};
        ProbeFact probe = {.engine = i, .incarnation = 1, .t_us = t, .kind = PROBE_LOADS,
                           .outcome = "ok", .status = 200, .policy_version = 4};
        store_put_engine(core.store, &engine);
        store_put_engine_state(core.store, &state);
        store_put_probe(core.store, &probe);
    }
    EventFact event = {t, SEVERITY_INFO, "core", 0, "hostile \x1b]0;owned\x07 \xe2\x80\xae text"};
    store_put_event(core.store, &event);
    (void)store_wait(core.store, store_ticket(core.store), 10000, NULL);
    if (uv_loop_init(&core.loop) != 0 || uv_async_init(&core.loop, &core.stop, on_stop) != 0 ||
        ctl_server_new(&core.loop, socket_path, on_request, &core, &core.server, &fault)) {
        fault_print(&fault);
        return false;
    }
    return pthread_create(&core.thread, NULL, serve, &core.loop) == 0;
}

static void stop_core(void)
{
    (void)uv_async_send(&core.stop);
    (void)pthread_join(core.thread, NULL);
    (void)uv_loop_close(&core.loop);
    store_close(core.store);
}

/* ---- the console in its terminal ------------------------------------------------------------ */

typedef struct Child {
    pid_t pid;
    int fd, in; /* in: 0 when the terminal takes the keys */
    size_t n, mark; /* mark: where expect() goes on */
    char *out;
} Child;

/* The console runs in a program of its own: a fork of this one, whose threads may hold locks at
 * that moment, may do nothing but exec. */
static int console_main(char **argv)
{
    Fault fault = {0};
    bool stop = false;
    bool control = argv[2][0] == 'c';
    TuiOptions options = {.log_path = argv[0], .control_socket = control ? argv[1] : NULL,
                          .control = control, .replay = argv[2][1] == 'r', .user = "tester",
                          .theme_dir = ROLLTOP_SOURCE "/themes"};
    Err err = tui_run(&options, &stop, &fault);
    printf("[console ended %d stop %d]\n", err, stop);
    fflush(stdout);
    return err == ERR_OK ? 0 : 1;
}

static int plain_main(char **argv)
{
    Fault fault = {0};
    TuiOptions options = {.log_path = argv[0], .control_socket = argv[1], .control = true,
                          .user = "tester"};
    return plain_run(&options, STDIN_FILENO, stdout, NULL, &fault) == ERR_OK ? 0 : 1;
}

static Child start_console(bool control, bool replay, int cols, int rows)
{
    struct winsize size = {(unsigned short)rows, (unsigned short)cols, 0, 0};
    Child child = {.out = calloc(1, OUTPUT_MAX)};
    char how[3] = {control ? 'c' : '-', replay ? 'r' : '-', '\0'};
    char *argv[] = {"console", "console", log_path, socket_path, how, NULL};
    (void)setenv("TERM", "xterm-256color", 1);
    (void)setenv("LC_ALL", "C.UTF-8", 1);
    fflush(stdout);
    child.pid = forkpty(&child.fd, NULL, NULL, &size);
    if (child.pid == 0) {
        (void)execv("/proc/self/exe", argv);
        _exit(127);
    }
    return child;
}

static bool read_some(Child *child, int timeout_ms)
{
    struct pollfd fd = {child->fd, POLLIN, 0};
    if (child->n + 1 >= OUTPUT_MAX || poll(&fd, 1, timeout_ms) <= 0) {
        return false;
    }
    ssize_t got = read(child->fd, child->out + child->n, OUTPUT_MAX - 1 - child->n);
    if (got <= 0) {
        return false;
    }
    child->n += (size_t)got;
    child->out[child->n] = '\0';
    return true;
}

static bool expect(Child *child, const char *word)
{
    int64_t until = clock_mono_us() + WAIT_MS * INT64_C(1000);
    while (clock_mono_us() < until) {
        char *found = strstr(child->out + child->mark, word);
        if (found) {
            child->mark = (size_t)(found - child->out) + strlen(word);
            return true;
        }
        siginfo_t ended = {0};
        bool over = waitid(P_PID, (id_t)child->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                    ended.si_pid == child->pid;
        if (!read_some(child, over ? 50 : 500) && over) {
            break;
        }
    }
    fprintf(stderr, "no '%s' in: %.600s\n", word, child->out + child->mark);
    return false;
}

static void type(Child *child, const char *keys)
{
    ssize_t ignored = write(child->in ? child->in : child->fd, keys, strlen(keys));
    (void)ignored;
}

static int end(Child *child)
{
    int status = 0;
    int64_t until = clock_mono_us() + WAIT_MS * INT64_C(1000);
    while (clock_mono_us() < until) {
        (void)read_some(child, 50);
        if (waitpid(child->pid, &status, WNOHANG) == child->pid) {
            while (read_some(child, 50)) {
            }
            close(child->fd);
            return status;
        }
    }
    kill(child->pid, SIGKILL);
    (void)waitpid(child->pid, &status, 0);
    close(child->fd);
    fprintf(stderr, "the console did not end\n");
    CHECK(false);
    return status;
}

static bool ends_clean(const Child *child)
{
    const char *left = NULL;
    for (const char *at = child->out; (at = strstr(at, "\x1b[?1049l")) != NULL; at++) {
        left = at;
    }
    const char *again = left ? strstr(left, "\x1b[?1049h") : NULL;
    return left && !again;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void looks_and_leaves(void)
{
    Child child = start_console(false, false, 100, 30);
    CHECK(expect(&child, "rolltop ptyrun"));
    CHECK(expect(&child, "DEAD"));
    CHECK(strstr(child.out, "\x1b]0;") == NULL); /* the hostile event did not get through */
    type(&child, "R");
    CHECK(expect(&child, "looks only"));
    type(&child, "[");
    CHECK(expect(&child, "REPLAY"));
    type(&child, "q");
    int status = end(&child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ends_clean(&child));
    free(child.out);
}

static void acts_and_sees_the_effect(void)
{
    Child child = start_console(true, false, 120, 40);
    CHECK(expect(&child, "[RW]"));
    type(&child, "R");
    CHECK(expect(&child, "anything else cancels"));
    clock_sleep_us(400000); /* the box ignores its first 300 ms */
    type(&child, "01");
    CHECK(expect(&child, "RESTARTED-IT"));
    child.mark = 0;
    CHECK(expect(&child, "eng-01 done: started again"));
    pthread_mutex_lock(&core.lock);
    CHECK(strstr(core.got, "\"cmd\":\"restart\"") != NULL);
    CHECK(strstr(core.got, "\"target\":{\"engine\":\"eng-01\"}") != NULL);
    pthread_mutex_unlock(&core.lock);
    type(&child, "q");
    CHECK(expect(&child, "leave it running"));
    type(&child, "stop\r");
    int status = end(&child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(strstr(child.out, "stop 1]") != NULL);
    free(child.out);
}

/* The same console in plain lines, through pipes: no escape sequence, one line a change, the same
 * questions, and nothing is sent without the right word after the question. */
static Child start_plain(void)
{
    int to[2];
    int from[2];
    Child child = {.out = calloc(1, OUTPUT_MAX)};
    if (pipe(to) != 0 || pipe(from) != 0) {
        CHECK(false);
        return child;
    }
    char *argv[] = {"plain", "plain", log_path, socket_path, NULL};
    fflush(stdout);
    child.pid = fork();
    if (child.pid == 0) {
        (void)dup2(to[0], STDIN_FILENO);
        (void)dup2(from[1], STDOUT_FILENO);
        (void)close(to[1]);
        (void)close(from[0]);
        (void)execv("/proc/self/exe", argv);
        _exit(127);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    child.fd = from[0];
    child.in = to[1];
    return child;
}

static void got_nothing(const char *what)
{
    pthread_mutex_lock(&core.lock);
    CHECK(strstr(core.got, what) == NULL);
    pthread_mutex_unlock(&core.lock);
}

/* Waits until the last request holds it. */
static bool got(const char *what)
{
    bool found = false;
    for (int i = 0; i < 6000 && !found; i++) {
        pthread_mutex_lock(&core.lock);
        found = strstr(core.got, what) != NULL;
        pthread_mutex_unlock(&core.lock);
        clock_sleep_us(found ? 0 : 10000);
    }
    return found;
}

static void plain_lines(void)
{
    pthread_mutex_lock(&core.lock);
    core.got[0] = '\0';
    pthread_mutex_unlock(&core.lock);
    Child child = start_plain();
    CHECK(expect(&child, "run ptyrun, live"));
    CHECK(expect(&child, "3 engines"));
    type(&child, "engines\n");
    CHECK(expect(&child, "eng-01: DEAD for"));
    type(&child, "events\n");
    CHECK(expect(&child, "hostile"));
    CHECK(expect(&child, "newest of"));
    type(&child, "restart eng-02\n02\n"); /* the word came before the question */
    CHECK(expect(&child, "type 02 to restart"));
    CHECK(expect(&child, "typed before the question"));
    got_nothing("\"cmd\":\"restart\"");
    type(&child, "restart eng-02 reason memory errors\n");
    CHECK(expect(&child, "restart eng-02, level 2"));
    CHECK(expect(&child, "calls: SIGTERM, start, update"));
    CHECK(expect(&child, "type 02 to restart"));
    clock_sleep_us(400000);
    type(&child, "0\n");
    CHECK(expect(&child, "cancelled"));
    CHECK(got("cancelled in the box: restart eng-02 (Esc), reason: memory errors"));
    got_nothing("\"cmd\":\"restart\"");
    type(&child, "restart eng-02 reason memory errors\n");
    CHECK(expect(&child, "type 02 to restart"));
    clock_sleep_us(400000);
    type(&child, "02\n");
    CHECK(expect(&child, "RESTARTED-IT"));
    child.mark = 0;
    CHECK(expect(&child, "restart eng-02 done: started again"));
    pthread_mutex_lock(&core.lock);
    CHECK(strstr(core.got, "\"target\":{\"engine\":\"eng-02\"}") != NULL);
    CHECK(strstr(core.got, "\"reason\":\"memory errors\"") != NULL);
    pthread_mutex_unlock(&core.lock);
    type(&child, "note a look at eng-02\n");
    CHECK(got("\"cmd\":\"note\",\"reason\":\"a look at eng-02\""));
    type(&child, "stop\n");
    CHECK(expect(&child, ":arm 5m"));
    type(&child, "nonsense\n");
    CHECK(expect(&child, "no command 'nonsense'"));
    type(&child, "go -20s\n");
    CHECK(expect(&child, "replay of"));
    type(&child, "quit\n");
    CHECK(strchr(child.out, '\x1b') == NULL);
    int status = end(&child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)close(child.in);
    free(child.out);
}

static void resizes(void)
{
    static const int sizes[][2] = {{1, 1}, {200, 60}, {44, 9}, {300, 100}, {8, 3}, {80, 24}};
    Child child = start_console(false, false, 80, 24);
    CHECK(expect(&child, "rolltop ptyrun"));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct winsize size = {(unsigned short)sizes[i][1], (unsigned short)sizes[i][0], 0, 0};
        (void)ioctl(child.fd, TIOCSWINSZ, &size);
        (void)read_some(&child, 300);
    }
    child.mark = child.n;
    type(&child, "?");
    CHECK(expect(&child, "HELP"));
    type(&child, "\x1b");
    clock_sleep_us(100000);
    type(&child, "q");
    CHECK(WIFEXITED(end(&child)));
    free(child.out);
}

static void suspends(void)
{
    int status = 0;
    Child child = start_console(false, false, 80, 24);
    CHECK(expect(&child, "rolltop ptyrun"));
    type(&child, "\x1a");
    CHECK(expect(&child, "\x1b[?1049l"));
    child.mark = 0;
    int64_t until = clock_mono_us() + 5 * (int64_t)US;
    pid_t stopped = 0;
    while (stopped == 0 && clock_mono_us() < until) {
        stopped = waitpid(child.pid, &status, WNOHANG | WUNTRACED);
        clock_sleep_us(10000);
    }
    /* A session leader without a shell is an orphaned group: the kernel drops its SIGTSTP, and
     * the console comes straight back. Both are right; either way it must draw again. */
    CHECK(stopped == 0 || WIFSTOPPED(status));
    (void)kill(child.pid, SIGCONT);
    CHECK(expect(&child, "rolltop ptyrun"));
    type(&child, "q");
    CHECK(WIFEXITED(end(&child)));
    CHECK(ends_clean(&child));
    free(child.out);
}

static void every_signal_restores(void)
{
    static const int signals[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGSEGV};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct termios before;
        struct termios after;
        Child child = start_console(false, false, 80, 24);
        (void)tcgetattr(child.fd, &before);
        CHECK(expect(&child, "rolltop ptyrun"));
        CHECK(kill(child.pid, signals[i]) == 0);
        int64_t until = clock_mono_us() + WAIT_MS * INT64_C(1000);
        while (!ends_clean(&child) && clock_mono_us() < until) {
            (void)read_some(&child, 100);
        }
        CHECK(ends_clean(&child));
        bool read_modes = false; /* the modes follow the restore string by a moment */
        do {
            read_modes = tcgetattr(child.fd, &after) == 0;
        } while (read_modes && !(after.c_lflag & ECHO) && clock_mono_us() < until);
        int status = end(&child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
        CHECK(!read_modes || ((after.c_lflag & ECHO) && (after.c_lflag & ICANON)));
        free(child.out);
    }
}

static void says_what_is_wrong(void)
{
    Fault fault = {0};
    TuiOptions options = {.log_path = "/nonexistent/run.db"};
    CHECK(tui_run(&options, NULL, &fault) != ERR_OK);
    CHECK(strstr(fault.sentence, "/nonexistent/run.db") != NULL);
    fault_clear(&fault);
    options.log_path = log_path;
    Err err = tui_run(&options, NULL, &fault); /* ctest gives no terminal on stdin */
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        CHECK_I64(err, ERR_UNSUPPORTED);
        CHECK(strstr(fault.sentence, "terminal") != NULL);
    }
}

int main(int argc, char **argv)
{
    int known = 0;
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 5 && strcmp(argv[1], "console") == 0) {
        return console_main(argv + 2);
    }
    if (argc == 4 && strcmp(argv[1], "plain") == 0) {
        return plain_main(argv + 2);
    }
    if (setupterm("xterm-256color", STDOUT_FILENO, &known) != OK) {
        printf("skipped: terminfo does not know xterm-256color here\n");
        return 77;
    }
    if (!start_core()) {
        return 1;
    }
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        printf("note: run without a terminal to try that refusal\n");
    } else {
        RUN(says_what_is_wrong);
    }
    RUN(looks_and_leaves);
    RUN(acts_and_sees_the_effect);
    RUN(plain_lines);
    RUN(resizes);
    RUN(suspends);
    RUN(every_signal_restores);
    stop_core();
    char command[160];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    int ignored = system(command);
    (void)ignored;
    return test_end();
}
