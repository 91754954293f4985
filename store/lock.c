#include "store/lock.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static void write_pid(int fd)
{
    char pid[24];
    (void)str_format(pid, sizeof pid, "%lld", (long long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, strlen(pid), 0) != (ssize_t)strlen(pid)) {
        (void)ftruncate(fd, 0); /* only the words of the other's refusal suffer */
    }
}

Err lock_take(const char *path, const char *hint, int *fd, Fault *fault)
{
    char *real = realpath(path, NULL); /* one lock, however a link calls the log */
    char *name = xasprintf("%s.lock", real ? real : path);
    free(real);
    Err err = ERR_OK;
    *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0) {
        err = fault_set_sys(fault, ERR_IO, errno,
                            "make its directory writable",
                            "%s: cannot open the log for writing", path);
    } else if (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        char pid[24] = "";
        ssize_t n = pread(*fd, pid, sizeof pid - 1, 0);
        pid[n > 0 ? n : 0] = '\0';
        err = fault_set(fault, ERR_STATE, hint,
                        "%s is being written by another rolltop (process %s)", path,
                        pid[0] != '\0' ? pid : "unknown");
        close(*fd);
        *fd = -1;
    } else {
        write_pid(*fd);
    }
    free(name);
    return err;
}
