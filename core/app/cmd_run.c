/* `rolltop run`: flags, preflight, then the core: in this process without a console, or as a
 * daemon in a session of its own with the console here. */
#include "core/app/app.h"
#include "core/app/console.h"
#include "core/app/run_main.h"
#include "core/app/run_plan.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/loop/loop_driver.h"
#include "core/net/ctl.h"
#include "store/view.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOP_WAIT_MS = 20000, NOTE_MAX = 2048 };

/* ---- the core ----------------------------------------------------------------------------- */

static int core_here(RunPlan *plan)
{
    Fault fault = {0};
    int status = APP_FAILED;
    plan->config.lines = stdout;
    printf("run %s  log %s\n", plan->run_id, plan->log_path);
    fflush(stdout);
    Err err = loop_run(&plan->config, NULL, NULL, &status, &fault);
    if (err != ERR_OK) {
        return app_fail(&fault, APP_USAGE);
    }
    if (status == APP_FAILED) {
        fault_print(&fault);
    }
    return status;
}

typedef struct Note { /* from the daemon to the process that started it */
    int fd;
} Note;

static void note_ready(void *user)
{
    Note *note = user;
    ssize_t sent = write(note->fd, "+", 1);
    (void)sent; /* nobody waits any more: the run goes on all the same */
    close(note->fd);
    note->fd = -1;
}

static void note_fault(Note *note, const Fault *fault)
{
    if (note->fd >= 0) {
        char text[NOTE_MAX];
        int n = snprintf(text, sizeof text, "-%s\n%s", fault->sentence, fault->hint);
        ssize_t sent = write(note->fd, text, (size_t)n < sizeof text ? (size_t)n : sizeof text);
        (void)sent;
    }
}

/* The daemon's process: own session, output to a file beside the log. Never returns. */
static void core_daemon(RunPlan *plan, int note_fd)
{
    Note note = {note_fd};
    Fault fault = {0};
    setsid();
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    char *path = fs_join(plan->work_dir, "core.out");
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) {
        (void)fault_set_sys(&fault, ERR_IO, errno, NULL, "cannot write %s", path);
        note_fault(&note, &fault);
        _exit(APP_USAGE);
    }
    plan->config.lines = stdout;
    plan->config.loop.hold_on_failure = true; /* somebody watches */
    int status = APP_FAILED;
    Err err = loop_run(&plan->config, note_ready, &note, &status, &fault);
    if (err != ERR_OK) {
        note_fault(&note, &fault);
        status = APP_USAGE;
    }
    if (status == APP_FAILED || err != ERR_OK) {
        fault_print(&fault);
    }
    fflush(NULL);
    _exit(status);
}

static Err wait_ready(int fd, Fault *fault)
{
    char text[NOTE_MAX + 1];
    size_t n = 0;
    for (;;) {
        ssize_t got = read(fd, text + n, NOTE_MAX - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        n += (size_t)got;
    }
    text[n] = '\0';
    if (n > 0 && text[0] == '+') {
        return ERR_OK;
    }
    char *hint = strchr(text, '\n');
    if (n < 2 || !hint) {
        return fault_set(fault, ERR_STATE, "see core.out beside the log", "the core ended at once");
    }
    *hint = '\0';
    return fault_set(fault, ERR_STATE, hint + 1, "%s", text + 1);
}

static void ask_stop(const RunPlan *plan)
{
    CtlClient *client = NULL;
    cJSON *reply = NULL;
    Fault fault = {0};
    if (ctl_connect(plan->socket_path, 2000, &client, &fault) != ERR_OK ||
        ctl_call(client, STR("{\"cmd\":\"stop\",\"reason\":\"console\"}"), 5000, &reply, &fault) !=
            ERR_OK) {
        fault_print(&fault);
    }
    cJSON_Delete(reply);
    ctl_client_free(client);
}

/* Waits for the core; -1 when it has not ended within the bound. */
static int wait_core(pid_t pid, int64_t wait_ms)
{
    int64_t until = clock_mono_us() + wait_ms * 1000;
    int status = 0;
    do {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : APP_FAILED;
        }
        clock_sleep_us(20000);
    } while (clock_mono_us() < until);
    return -1;
}

static int core_with_console(RunPlan *plan)
{
    Fault fault = {0};
    int note[2];
    if (pipe2(note, O_CLOEXEC) != 0) {
        (void)fault_set_sys(&fault, ERR_IO, errno, NULL, "cannot make a pipe");
        return app_fail(&fault, APP_USAGE);
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        (void)fault_set_sys(&fault, ERR_IO, errno, NULL, "cannot start the core");
        return app_fail(&fault, APP_USAGE);
    }
    if (pid == 0) {
        close(note[0]);
        core_daemon(plan, note[1]);
    }
    close(note[1]);
    Err err = wait_ready(note[0], &fault);
    close(note[0]);
    if (err != ERR_OK) {
        return app_fail(&fault, APP_USAGE);
    }
    TuiOptions options = {.log_path = plan->log_path, .control_socket = plan->socket_path,
                          .control = true};
    console_defaults(&options);
    bool stop = false;
    err = tui_run(&options, &stop, &fault);
    console_free(&options);
    if (err != ERR_OK) {
        fault_print(&fault);
    }
    if (stop) {
        ask_stop(plan);
    }
    int status = wait_core(pid, stop ? STOP_WAIT_MS : 200);
    if (status < 0) {
        printf("run %s goes on: rolltop attach --control --run %s, rolltop ctl stop --run %s\n"
               "log %s\n",
               plan->run_id, plan->run_id, plan->run_id, plan->log_path);
        return APP_OK;
    }
    printf("run %s ended; replay it: rolltop replay %s\n", plan->run_id, plan->log_path);
    return status;
}

static void tell_engine_flags(const RunPlan *plan)
{
    const EngineFlags *flags = &plan->flags->sglang;
    if (flags->names.n > 0) {
        const char *fate = plan->config.engine_command ? "passed on to the engines"
                           : plan->config.local_engines ? "not used by rolltop's own engines"
                                                        : "compared with what each engine says";
        fprintf(stderr, "rolltop: %s: %s\n", fate, text_c(&flags->names));
    }
}

int run_main(int argc, char **argv, const char *kind, const RunPrepare *prepare)
{
    RunFlags flags;
    RunPlan plan = {0};
    Fault fault = {0};
    int status = APP_USAGE;
    Err err = run_flags_parse(&flags, argc, argv, &fault);
    if (err == ERR_OK && flags.help) {
        run_flags_help(stdout);
        run_flags_free(&flags);
        return APP_OK;
    }
    err = err ? err : run_plan_make(&plan, &flags, kind, argc, argv, &fault);
    err = err || !prepare ? err : prepare->make(prepare->user, &fault);
    if (err != ERR_OK) {
        status = app_fail(&fault, APP_USAGE);
    } else {
        if (flags.ignored_names.n > 0) {
            fprintf(stderr, "rolltop: accepted and not used here: %s\n",
                    text_c(&flags.ignored_names));
        }
        tell_engine_flags(&plan);
        status = flags.headless || !console_possible() ? core_here(&plan)
                                                       : core_with_console(&plan);
    }
    run_plan_free(&plan);
    run_flags_free(&flags);
    return status;
}

/* ---- resume ------------------------------------------------------------------------------- */

static bool is_flag(const char *word)
{
    return strncmp(word, "--", 2) == 0;
}

static bool same_flag(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return n == strcspn(b, "=") && strncmp(a, b, n) == 0;
}

static bool overridden(const char *word, int argc, char **argv)
{
    if (same_flag(word, "--log") || same_flag(word, "--resume") || same_flag(word, "--headless") ||
        same_flag(word, "--run-id")) {
        return true;
    }
    for (int i = 1; i < argc; i++) {
        if (is_flag(argv[i]) && same_flag(argv[i], word)) {
            return true;
        }
    }
    return false;
}

static bool given(int argc, char **argv, const char *flag)
{
    for (int i = 1; i < argc; i++) {
        if (is_flag(argv[i]) && same_flag(argv[i], flag)) {
            return true;
        }
    }
    return false;
}

static const char *log_of(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--log=", 6) == 0) {
            return argv[i] + 6;
        }
        if (strcmp(argv[i], "--log") == 0 && i + 1 < argc) {
            return argv[i + 1];
        }
    }
    return NULL;
}

/* The command line as it was when the run began, without what the new one says itself. */
static Err stored_argv(const char *log, int argc, char **argv, cJSON **words, char **run,
                       Fault *fault)
{
    View *view = NULL;
    Arena *arena = arena_new(8 << 20);
    RunView seen;
    Err err = view_open(log, &view, fault);
    if (err == ERR_OK && (!view_run(view, arena, &seen) || !seen.argv_json)) {
        err = fault_set(fault, ERR_FORMAT, "start a new run, or name another --log",
                        "%s holds no run", log);
    }
    if (err == ERR_OK) {
        err = json_parse(str_from(seen.argv_json), 1 << 20, log, words, fault);
    }
    if (err == ERR_OK) {
        *run = xstrdup(seen.run ? seen.run : "run");
    }
    view_close(view);
    arena_free(arena);
    (void)argc;
    (void)argv;
    return err;
}

static int resume_main(int argc, char **argv)
{
    Fault fault = {0};
    const char *log = log_of(argc, argv);
    cJSON *words = NULL;
    char *run = NULL;
    Err err = ERR_OK;
    if (!log) {
        err = fault_set(&fault, ERR_ARG, "give --log FILE", "--resume wants the log of the run");
    } else if (!fs_exists(log)) {
        err = fault_set(&fault, ERR_NOT_FOUND, "name the log of the run",
                        "--resume: there is no %s", log);
    }
    err = err ? err : stored_argv(log, argc, argv, &words, &run, &fault);
    if (err != ERR_OK) {
        return app_fail(&fault, APP_USAGE);
    }
    int count = cJSON_GetArraySize(words);
    char **merged = xcalloc((size_t)(count + argc) + 4, sizeof *merged);
    int n = 0;
    bool skip = false;
    merged[n++] = argv[0];
    for (int i = 1; i < count; i++) {
        char *word = cJSON_GetStringValue(cJSON_GetArrayItem(words, i));
        if (!word) {
            continue;
        }
        if (is_flag(word)) {
            skip = overridden(word, argc, argv);
        }
        if (!skip) {
            merged[n++] = word;
        }
    }
    for (int i = 1; i < argc; i++) {
        merged[n++] = argv[i];
    }
    char id_flag[] = "--run-id";
    if (!given(argc, argv, id_flag)) {
        merged[n++] = id_flag;
        merged[n++] = run;
    }
    int status = run_main(n, merged, "run", NULL);
    free(merged);
    free(run);
    cJSON_Delete(words);
    return status;
}

int cmd_run(int argc, char **argv)
{
    return given(argc, argv, "--resume") ? resume_main(argc, argv)
                                          : run_main(argc, argv, "run", NULL);
}
