#include "core/loop/verify_private.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART_START_MS = 20000, WORDS = 24 };

static void on_line(Child *child, bool is_stderr, Str line, void *user)
{
    (void)child;
    VerifyPart *part = user;
    size_t at = 0;
    size_t colon = 0;
    int64_t port = 0;
    if (!is_stderr && !part->address[0] && str_find(line, STR("listening on http://"), &at)) {
        Str address = str_trim(str_slice(line, at + 20, line.n));
        if (str_rfind(address, STR(":"), &colon) &&
            str_to_i64(str_slice(address, colon + 1, address.n), &port)) {
            part->port = (int)port;
            (void)str_format(part->address, sizeof part->address, "%.*s", (int)address.n,
                             address.p);
        }
    }
}

static void on_exit_of(Child *child, int64_t status, int signal, void *user)
{
    (void)child;
    (void)status;
    (void)signal;
    ((VerifyPart *)user)->ended = true;
}

static bool listens(Verify *v, void *arg)
{
    (void)v;
    const VerifyPart *part = arg;
    return part->address[0] || part->ended;
}

static Err start(Verify *v, VerifyPart *part, const char *name, const char *const *argv,
                 Fault *fault)
{
    ChildSpec spec = {.name = name, .argv = argv, .on_line = on_line, .on_exit = on_exit_of,
                      .user = part};
    part->ended = false;
    part->address[0] = '\0';
    Err err = child_start(&v->uv, &spec, &part->child, fault);
    if (err == ERR_OK && (!verify_wait(v, listens, part, PART_START_MS) || part->ended)) {
        err = fault_set(fault, ERR_STATE, "try it alone: rolltop engine --help",
                        "the local %s did not start", name);
    }
    return err;
}

static Err start_engine(Verify *v, int i, Fault *fault)
{
    char port[16];
    char name[32];
    (void)str_format(port, sizeof port, "%d", v->parts[i].port);
    (void)str_format(name, sizeof name, "eng-%02d", i);
    const char *const argv[] = {v->config->program, "engine", "--model-path",
                                v->config->local_model, "--weight-version", "1", "--name", name,
                                "--host", "127.0.0.1", "--port", port,
                                "--incremental-streaming-output", NULL};
    return start(v, &v->parts[i], name, argv, fault);
}

Err verify_parts_start(Verify *v, Fault *fault)
{
    int n = (int)v->config->local_engines;
    Err err = ERR_OK;
    for (int i = 0; i < n && err == ERR_OK; i++) {
        err = start_engine(v, i, fault);
    }
    const char **argv = xcalloc((size_t)n * 2 + WORDS, sizeof *argv);
    const char *const head[] = {v->config->program, "frontend", "--host", "127.0.0.1", "--port",
                                "0"};
    memcpy(argv, head, sizeof head);
    size_t words = sizeof head / sizeof *head;
    for (int i = 0; i < n; i++) {
        argv[words++] = "--engine";
        argv[words++] = v->parts[i].address;
    }
    err = err ? err : start(v, &v->frontend, "frontend", argv, fault);
    free(argv);
    (void)str_format(v->frontend_url, sizeof v->frontend_url, "http://%s", v->frontend.address);
    return err;
}

Err verify_part_again(Verify *v, int engine, Fault *fault)
{
    VerifyPart *part = &v->parts[engine];
    if (part->child && !part->ended) {
        return fault_set(fault, ERR_STATE, NULL, "the local engine did not end");
    }
    child_free(part->child);
    part->child = NULL;
    return start_engine(v, engine, fault); /* the same port: the same address */
}

void verify_parts_free(Verify *v)
{
    for (int i = 0; i < VERIFY_ENGINES_MAX; i++) {
        child_free(v->parts[i].child);
        v->parts[i].child = NULL;
    }
    child_free(v->frontend.child);
    v->frontend.child = NULL;
}

/* ---- a command of the user's -------------------------------------------------------------- */

typedef struct Shell {
    uv_process_t process;
    bool ended, closed;
    int64_t status;
} Shell;

static void on_shell_closed(uv_handle_t *handle)
{
    ((Shell *)handle->data)->closed = true;
}

static void on_shell_exit(uv_process_t *process, int64_t status, int signal)
{
    Shell *shell = process->data;
    shell->ended = true;
    shell->status = signal ? 128 + signal : status;
    uv_close((uv_handle_t *)process, on_shell_closed);
}

static bool shell_closed(Verify *v, void *arg)
{
    (void)v;
    return ((Shell *)arg)->closed;
}

/* Not a Child: an engine that --restore-cmd starts in the background is to outlive its shell. */
int verify_shell(Verify *v, const char *command, int engine, int64_t bound_ms)
{
    enum { KILLED_MS = 5000 };
    FleetEngine e = fleet_engine(v->fleet, engine);
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, xstrdup(command), NULL};
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
                                     {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO}};
    Shell *shell = xcalloc(1, sizeof *shell);
    uv_process_options_t options = {.exit_cb = on_shell_exit, .file = "/bin/sh", .args = argv,
                                    .flags = UV_PROCESS_DETACHED, .stdio_count = 3,
                                    .stdio = stdio};
    int status = -1;
    (void)setenv("ROLLTOP_ENGINE", e.address, 1);
    (void)setenv("ROLLTOP_ENGINE_NAME", e.name, 1);
    shell->process.data = shell;
    if (uv_spawn(&v->uv, &shell->process, &options) != 0) {
        uv_close((uv_handle_t *)&shell->process, on_shell_closed);
    } else if (verify_wait(v, shell_closed, shell, bound_ms)) {
        status = (int)shell->status;
    } else {
        (void)uv_process_kill(&shell->process, SIGKILL);
    }
    bool cancelled = v->cancelled;
    v->cancelled = false;
    bool over = verify_wait(v, shell_closed, shell, KILLED_MS);
    v->cancelled = v->cancelled || cancelled;
    free(argv[2]);
    if (over) {
        free(shell);
    }
    return status;
}
