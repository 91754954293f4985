/* fork and exec by hand instead of uv_spawn: only so can the child set PR_SET_PDEATHSIG between
 * the two, which also covers programs that are not ours (kubectl, a plug-in's interpreter). */
#include "core/net/child_fork.h"

#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_FD_LIFE = 4, CHILD_ENV_MAX = 4096 }; /* 3 is the channel */
#define CHILD_ENV_PARENT "ROLLTOP_PARENT_PID"
#define CHILD_ENV_LIFE "ROLLTOP_LIFE_FD"

typedef struct ChildPlan { /* everything that the forked side needs, made before the fork */
    const char *file;
    char *const *argv;
    char **env;
    const char *cwd;
    pid_t parent;
    int fds[5]; /* what becomes 0 … 4; -1: closed there */
    int report;
} ChildPlan;

typedef struct ChildTrouble { /* sent over the report pipe when exec did not happen */
    int stage;            /* 0 descriptors, 1 directory, 2 exec */
    int error;
} ChildTrouble;

/* ---- the forked side: async-signal-safe calls only ---- */

static void forked_fail(const ChildPlan *plan, int stage, int error)
{
    ChildTrouble trouble = {stage, error};
    ssize_t sent = write(plan->report, &trouble, sizeof trouble);
    _exit(sent < 0 ? 126 : 127);
}

static void forked_descriptors(ChildPlan *plan)
{
    /* First all out of the way of 0 … 4, then each to its place. */
    for (int i = 0; i < 5; i++) {
        if (plan->fds[i] >= 0) {
            plan->fds[i] = fcntl(plan->fds[i], F_DUPFD_CLOEXEC, 16);
            if (plan->fds[i] < 0) {
                forked_fail(plan, 0, errno);
            }
        }
    }
    int report = fcntl(plan->report, F_DUPFD_CLOEXEC, 16);
    if (report < 0) {
        forked_fail(plan, 0, errno);
    }
    plan->report = report;
    for (int i = 0; i < 5; i++) {
        if (plan->fds[i] < 0) {
            close(i);
        } else if (dup2(plan->fds[i], i) < 0) {
            forked_fail(plan, 0, errno);
        }
    }
    /* A library that forgot close-on-exec must not lend its sockets. Old kernels say ENOSYS. */
    (void)close_range(CHILD_FD_LIFE + 1, ~0U, CLOSE_RANGE_CLOEXEC);
}

static void forked_main(ChildPlan *plan)
{
    for (int s = 1; s < NSIG; s++) {
        (void)signal(s, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != plan->parent) {
        _exit(127); /* the parent died before the line above could take effect */
    }
    forked_descriptors(plan);
    if (plan->cwd && chdir(plan->cwd) != 0) {
        forked_fail(plan, 1, errno);
    }
    execvpe(plan->file, plan->argv, plan->env);
    forked_fail(plan, 2, errno);
}

/* ---- our side ---- */

static bool env_names_same(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* The parent's environment, the extras over it, ours last; NULL when there are too many. */
static char **env_build(const char *const *extra, char *parent, char *life)
{
    size_t own = 0;
    size_t more = 0;
    while (environ && environ[own]) {
        own++;
    }
    while (extra && extra[more]) {
        more++;
    }
    if (own + more > CHILD_ENV_MAX) {
        return NULL;
    }
    char **env = xcalloc(own + more + 3, sizeof *env);
    size_t n = 0;
    for (size_t i = 0; i < own; i++) {
        bool hidden = env_names_same(CHILD_ENV_PARENT "=", environ[i]) ||
                      env_names_same(CHILD_ENV_LIFE "=", environ[i]);
        for (size_t j = 0; j < more && !hidden; j++) {
            hidden = env_names_same(extra[j], environ[i]);
        }
        if (!hidden) {
            env[n++] = environ[i];
        }
    }
    for (size_t j = 0; j < more; j++) {
        env[n++] = (char *)(uintptr_t)extra[j];
    }
    env[n++] = parent;
    env[n++] = life;
    return env;
}

static void pipes_init(ChildPipes *pipes)
{
    int *all = (int *)pipes;
    for (size_t i = 0; i < sizeof *pipes / sizeof(int); i++) {
        all[i] = -1;
    }
}

void child_pipes_close(ChildPipes *pipes)
{
    int *all = (int *)pipes;
    for (size_t i = 0; i < sizeof *pipes / sizeof(int); i++) {
        if (all[i] >= 0) {
            close(all[i]);
            all[i] = -1;
        }
    }
}

Err child_pipes_open(ChildPipes *pipes, bool channel, const char *name, Fault *fault)
{
    pipes_init(pipes);
    int life[2] = {-1, -1};
    if (pipe2(pipes->out, O_CLOEXEC) != 0 || pipe2(pipes->err, O_CLOEXEC) != 0 ||
        pipe2(pipes->report, O_CLOEXEC) != 0 || pipe2(life, O_CLOEXEC) != 0 ||
        (pipes->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0 ||
        (channel &&
         socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipes->channel) != 0)) {
        int error = errno;
        if (life[0] >= 0) {
            close(life[0]);
            close(life[1]);
        }
        child_pipes_close(pipes);
        return fault_set_sys(fault, ERR_IO, error, "raise the limit of open files (ulimit -n)",
                             "cannot open the pipes of %s", name);
    }
    pipes->life[0] = life[1]; /* ours is the write end here */
    pipes->life[1] = life[0];
    return ERR_OK;
}

Err child_fork(const ChildSpec *spec, ChildPipes *pipes, int *child, Fault *fault)
{
    char parent[64];
    char life[64];
    snprintf(parent, sizeof parent, CHILD_ENV_PARENT "=%ld", (long)getpid());
    snprintf(life, sizeof life, CHILD_ENV_LIFE "=%d", CHILD_FD_LIFE);
    ChildPlan plan = {
        .file = spec->argv[0],
        .argv = (char *const *)(uintptr_t)spec->argv,
        .env = env_build(spec->env, parent, life),
        .cwd = spec->cwd,
        .parent = getpid(),
        .fds = {pipes->null_fd, pipes->out[1], pipes->err[1], pipes->channel[1], pipes->life[1]},
        .report = pipes->report[1],
    };
    if (!plan.env) {
        return fault_set(fault, ERR_LIMIT, "shorten the environment",
                         "the environment of %s has over %d entries", spec->name, CHILD_ENV_MAX);
    }
    /* No signal may reach the copy while it still has our handlers: they write to our pipes. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    int error = errno;
    if (pid == 0) {
        forked_main(&plan);
        _exit(127);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(plan.env);
    if (pid < 0) {
        return fault_set_sys(fault, ERR_IO, error, "end other processes or raise ulimit -u",
                             "cannot start %s", spec->name);
    }
    close(pipes->report[1]);
    pipes->report[1] = -1;
    ChildTrouble trouble = {0, 0};
    ssize_t n;
    do {
        n = read(pipes->report[0], &trouble, sizeof trouble);
    } while (n < 0 && errno == EINTR);
    if (n == 0) { /* exec closed it */
        *child = (int)pid;
        return ERR_OK;
    }
    (void)waitpid(pid, NULL, 0);
    if (n != sizeof trouble) {
        return fault_set(fault, ERR_IO, NULL, "%s ended before it could start", spec->name);
    }
    static const char *const stages[] = {"set up the descriptors", "enter the directory",
                                         "execute the program"};
    return fault_set_sys(fault, trouble.error == ENOENT ? ERR_NOT_FOUND : ERR_IO, trouble.error,
                         "check the path and its permissions", "%s: cannot %s %s", spec->name,
                         stages[trouble.stage], trouble.stage == 1 ? spec->cwd : spec->argv[0]);
}

/* ---- in the child ---- */

void child_die_with_parent(void)
{
    const char *parent = getenv(CHILD_ENV_PARENT);
    const char *life = getenv(CHILD_ENV_LIFE);
    int64_t pid = 0;
    int64_t fd = -1;
    if (!parent || !str_to_i64(str_from(parent), &pid)) {
        return; /* started by hand: lives as long as its user likes */
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)pid) {
        _exit(125);
    }
    /* Second net, where the first is lost (a change of credentials clears it): the hang-up of the
     * life pipe is turned into a signal by the kernel, with no thread that waits for it. */
    if (life && str_to_i64(str_from(life), &fd) && fd > 2 && fd < 1024 &&
        fcntl((int)fd, F_SETFD, FD_CLOEXEC) == 0) {
        (void)fcntl((int)fd, F_SETOWN, getpid());
        (void)fcntl((int)fd, F_SETSIG, SIGKILL);
        int flags = fcntl((int)fd, F_GETFL);
        if (flags >= 0) {
            (void)fcntl((int)fd, F_SETFL, flags | O_ASYNC | O_NONBLOCK);
        }
    }
    unsetenv(CHILD_ENV_PARENT); /* they speak of this process, not of what it starts */
    unsetenv(CHILD_ENV_LIFE);
}
