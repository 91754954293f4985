/* Child processes on a libuv loop: started in a process group of their own, ended with the
 * parent (PR_SET_PDEATHSIG, and a pipe as second net), their lines captured, their end told. */
#ifndef ROLLTOP_NET_CHILD_H
#define ROLLTOP_NET_CHILD_H

#include "core/base/str.h"

#include <uv.h>

typedef struct Child Child;

typedef struct ChildSpec {
    const char *name;        /* for messages: "engine eng-00", "trainer" */
    const char *const *argv; /* NULL-terminated; argv[0] is the file */
    const char *const *env;  /* extra NAME=value, NULL-terminated; may be NULL */
    const char *cwd;         /* NULL: inherited */
    bool channel;            /* a socketpair on the child's fd 3, see child_channel */
    size_t max_line;         /* longer lines are cut with a mark; 0: 8 KiB */
    void (*on_line)(Child *child, bool is_stderr, Str line, void *user); /* may be NULL */
    void (*on_exit)(Child *child, int64_t status, int signal, void *user); /* once, required */
    void *user;
} ChildSpec;

/* Call it from a thread that lives as long as the process: the kernel's parent-death signal
 * follows the thread that forked. Ignore SIGPIPE when a channel is written. */
Err child_start(uv_loop_t *loop, const ChildSpec *spec, Child **out, Fault *fault);
int child_pid(const Child *child);
/* The parent's end of the channel, a stream owned by the Child; NULL without `channel`. */
uv_stream_t *child_channel(Child *child);
/* SIGTERM to the group now, SIGKILL after grace_ms; on_exit follows. Idempotent. */
void child_stop(Child *child, int64_t grace_ms);
void child_kill(Child *child, int signal);
void child_free(Child *child); /* after on_exit, or kills first without calling on_exit */

/* In the child's main, first thing: die when the parent does (also if it is gone already). */
void child_die_with_parent(void);

#endif
