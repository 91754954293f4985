/* A child on the loop: its output as lines, its end through SIGCHLD. Tens of children, thousands of
 * lines a second. How it comes to be stands in child_fork.c. */
#include "core/net/child.h"

#include "core/base/mem.h"
#include "core/net/child_fork.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHILD_LINE_DEFAULT = 8192,
    CHILD_LINE_LIMIT = 1 << 20,
    CHILD_READ_CHUNK = 65536,
    CHILD_DRAIN_MS = 500,     /* for output behind the exit: a stray grandchild may hold the pipe */
    CHILD_REAP_MS = 2000      /* after a kill; a process that the kernel cannot end is given up */
};

typedef struct ChildOutput { /* stdout or stderr */
    uv_pipe_t pipe;
    bool open, is_stderr;
    char *line;
    size_t used;
    uint64_t cut; /* bytes of the present line that did not fit */
    Child *child;
} ChildOutput;

struct Child {
    uv_loop_t *loop;
    uv_signal_t sigchld;
    uv_timer_t timer;
    uv_pipe_t channel;
    ChildOutput out[2];
    char *name;
    char *chunk; /* CHILD_READ_CHUNK, shared by both outputs: a read is used up in its callback */
    size_t max_line;
    int life_fd; /* write end; the child's read end sees the hang-up when we die */
    int pid;
    int handles; /* open handles; memory goes with the last one */
    bool has_channel, exited, told, freed, stopping, closing;
    int64_t status;
    int signal;
    void (*on_line)(Child *child, bool is_stderr, Str line, void *user);
    void (*on_exit)(Child *child, int64_t status, int signal, void *user);
    void *user;
};

/* ---- lines ---- */

static void output_emit(ChildOutput *out)
{
    Child *child = out->child;
    char mark[64];
    size_t used = out->used;
    if (out->cut > 0) {
        int n = snprintf(mark, sizeof mark, " [cut %llu bytes]", (unsigned long long)out->cut);
        memcpy(out->line + used, mark, (size_t)n); /* the buffer has room for the mark behind max */
        used += (size_t)n;
    } else if (used > 0 && out->line[used - 1] == '\r') {
        used--;
    }
    out->used = 0;
    out->cut = 0;
    if (child->on_line && !child->freed) {
        child->on_line(child, out->is_stderr, (Str){out->line, used}, child->user);
    }
}

static void output_take(ChildOutput *out, const char *bytes, size_t n)
{
    while (n > 0) {
        const char *newline = memchr(bytes, '\n', n);
        size_t part = newline ? (size_t)(newline - bytes) : n;
        size_t room = out->child->max_line - out->used;
        size_t fits = part < room ? part : room;
        memcpy(out->line + out->used, bytes, fits);
        out->used += fits;
        out->cut += part - fits;
        if (newline) {
            output_emit(out);
            part++;
        }
        bytes += part;
        n -= part;
    }
}

/* ---- ends ---- */

static void child_release(Child *child)
{
    if (--child->handles > 0) {
        return;
    }
    if (child->life_fd >= 0) {
        close(child->life_fd);
    }
    for (int i = 0; i < 2; i++) {
        free(child->out[i].line);
    }
    free(child->chunk);
    free(child->name);
    free(child);
}

static void on_signal_closed(uv_handle_t *handle)
{
    child_release((Child *)handle->data);
}

static void on_channel_closed(uv_handle_t *handle)
{
    /* `data` of the channel belongs to whoever reads it. */
    child_release((Child *)(void *)((char *)handle - offsetof(Child, channel)));
}

static void on_output_closed(uv_handle_t *handle)
{
    child_release(((ChildOutput *)handle->data)->child);
}

static void output_close(ChildOutput *out)
{
    if (out->open) {
        out->open = false;
        uv_close((uv_handle_t *)&out->pipe, on_output_closed);
    }
}

/* Closes what is left; the memory follows when libuv has told all of it. */
static void child_close(Child *child)
{
    if (child->closing) {
        return;
    }
    child->closing = true;
    output_close(&child->out[0]);
    output_close(&child->out[1]);
    if (child->has_channel) {
        uv_close((uv_handle_t *)&child->channel, on_channel_closed);
    }
    uv_close((uv_handle_t *)&child->timer, on_signal_closed);
    uv_close((uv_handle_t *)&child->sigchld, on_signal_closed);
}

static void child_tell(Child *child)
{
    if (child->freed) {
        child_close(child);
        return;
    }
    if (!child->told) {
        child->told = true;
        uv_timer_stop(&child->timer);
        uv_signal_stop(&child->sigchld);
        child->on_exit(child, child->status, child->signal, child->user);
    }
}

static void on_drain_over(uv_timer_t *timer)
{
    Child *child = timer->data;
    output_close(&child->out[0]);
    output_close(&child->out[1]);
    child_tell(child);
}

static void output_end(ChildOutput *out)
{
    Child *child = out->child;
    if (out->used > 0 || out->cut > 0) {
        output_emit(out); /* a last line without its newline */
    }
    output_close(out);
    if (child->exited && !child->out[0].open && !child->out[1].open && !child->told) {
        child_tell(child);
    }
}

static void on_output_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    ChildOutput *out = handle->data;
    (void)suggested;
    *buffer = uv_buf_init(out->child->chunk, CHILD_READ_CHUNK);
}

static void on_output_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    ChildOutput *out = stream->data;
    if (n < 0) {
        output_end(out);
    } else if (n > 0 && !out->child->freed) {
        output_take(out, buffer->base, (size_t)n);
    }
}

static void on_sigchld(uv_signal_t *handle, int number)
{
    Child *child = handle->data;
    (void)number;
    if (child->exited) {
        return;
    }
    /* WNOWAIT: while the leader is a zombie its group number is ours, so the sweep of what it
     * left behind cannot hit a stranger. */
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
        return;
    }
    kill(-child->pid, SIGKILL);
    int status = 0;
    (void)waitpid(child->pid, &status, 0);
    child->exited = true;
    child->status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    child->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (child->freed || (!child->out[0].open && !child->out[1].open)) {
        child_tell(child);
    } else {
        uv_timer_start(&child->timer, on_drain_over, CHILD_DRAIN_MS, 0);
    }
}

/* ---- start ---- */

/* 0, or what libuv says; then nobody hears that output. */
static int output_start(Child *child, int index, int fd)
{
    ChildOutput *out = &child->out[index];
    out->child = child;
    out->is_stderr = index == 1;
    out->line = xcalloc(child->max_line + 64, 1);
    uv_pipe_init(child->loop, &out->pipe, 0);
    out->pipe.data = out;
    child->handles++;
    out->open = true;
    int uv = uv_pipe_open(&out->pipe, fd);
    if (uv != 0) {
        close(fd);
    } else {
        uv = uv_read_start((uv_stream_t *)&out->pipe, on_output_alloc, on_output_read);
    }
    if (uv != 0) {
        output_close(out);
    }
    return uv;
}

static Child *child_new(uv_loop_t *loop, const ChildSpec *spec)
{
    Child *child = xcalloc(1, sizeof *child);
    child->loop = loop;
    child->name = xstrdup(spec->name);
    child->chunk = xcalloc(CHILD_READ_CHUNK, 1);
    child->max_line = spec->max_line ? spec->max_line : CHILD_LINE_DEFAULT;
    if (child->max_line > CHILD_LINE_LIMIT) {
        child->max_line = CHILD_LINE_LIMIT;
    }
    child->life_fd = -1;
    child->on_line = spec->on_line;
    child->on_exit = spec->on_exit;
    child->user = spec->user;
    uv_signal_init(loop, &child->sigchld);
    uv_timer_init(loop, &child->timer);
    child->sigchld.data = child;
    child->timer.data = child;
    child->handles = 2;
    return child;
}

Err child_start(uv_loop_t *loop, const ChildSpec *spec, Child **out, Fault *fault)
{
    assert(spec->name && spec->argv && spec->argv[0] && spec->on_exit);
    *out = NULL;
    ChildPipes pipes;
    Err err = child_pipes_open(&pipes, spec->channel, spec->name, fault);
    if (err) {
        return err;
    }
    Child *child = child_new(loop, spec);
    /* Watching starts before the fork, so that no end can be missed. */
    int uv = uv_signal_start(&child->sigchld, on_sigchld, SIGCHLD);
    if (uv) {
        err = fault_set(fault, ERR_IO, NULL, "cannot watch %s: %s", spec->name, uv_strerror(uv));
    } else {
        err = child_fork(spec, &pipes, &child->pid, fault);
    }
    if (err) {
        child_pipes_close(&pipes);
        child->freed = true;
        child_close(child);
        return err;
    }
    child->life_fd = pipes.life[0];
    uv = output_start(child, 0, pipes.out[0]);
    int uv_err = output_start(child, 1, pipes.err[0]);
    pipes.life[0] = pipes.out[0] = pipes.err[0] = -1;
    if (spec->channel) {
        child->has_channel = true;
        child->handles++;
        uv_pipe_init(loop, &child->channel, 0);
        int opened = uv_pipe_open(&child->channel, pipes.channel[0]);
        pipes.channel[0] = opened == 0 ? -1 : pipes.channel[0];
        uv = uv ? uv : opened;
    }
    child_pipes_close(&pipes);
    uv = uv ? uv : uv_err;
    if (uv) { /* a child that cannot be heard or told anything is none */
        child_free(child);
        return fault_set(fault, ERR_IO, "raise the limit of open files (ulimit -n)",
                         "%s was started, but its pipes cannot be used: %s; it is ended",
                         spec->name, uv_strerror(uv));
    }
    *out = child;
    return ERR_OK;
}

int child_pid(const Child *child)
{
    return child->pid;
}

uv_stream_t *child_channel(Child *child)
{
    return child->has_channel ? (uv_stream_t *)&child->channel : NULL;
}

static void on_grace_over(uv_timer_t *timer)
{
    Child *child = timer->data;
    child_kill(child, SIGKILL);
}

void child_stop(Child *child, int64_t grace_ms)
{
    if (child->exited || child->stopping) {
        return;
    }
    child->stopping = true;
    child_kill(child, grace_ms > 0 ? SIGTERM : SIGKILL);
    if (grace_ms > 0) {
        uv_update_time(child->loop); /* a caller that blocked before must not shorten the grace */
        uv_timer_start(&child->timer, on_grace_over, (uint64_t)grace_ms, 0);
    }
}

void child_kill(Child *child, int signal)
{
    if (!child->exited && child->pid > 0) {
        kill(-child->pid, signal);
    }
}

static void on_reap_over(uv_timer_t *timer)
{
    child_close(timer->data);
}

void child_free(Child *child)
{
    if (!child || child->freed) {
        return;
    }
    child->freed = true;
    if (child->exited) {
        child_close(child);
        return;
    }
    child_kill(child, SIGKILL);
    uv_timer_start(&child->timer, on_reap_over, CHILD_REAP_MS, 0); /* SIGCHLD comes first */
}
