/* Private to child.c: pipes to a process that is going to be, and the fork. */
#ifndef ROLLTOP_NET_CHILD_FORK_H
#define ROLLTOP_NET_CHILD_FORK_H

#include "core/net/child.h"

typedef struct ChildPipes { /* [0] our end, [1] the child's */
    int out[2], err[2], channel[2], life[2], report[2];
    int null_fd;
} ChildPipes;

Err child_pipes_open(ChildPipes *pipes, bool channel, const char *name, Fault *fault);
void child_pipes_close(ChildPipes *pipes); /* what is not -1 */
/* ERR_OK once the program runs: what goes wrong before, on the other side of the fork, comes back
 * as a Fault. The pipes stay the caller's, open where they are. */
Err child_fork(const ChildSpec *spec, ChildPipes *pipes, int *pid, Fault *fault);

#endif
