#include "tui/term_out.h"

#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WRITE_MS = 60000 };

struct TermOut {
    FILE *file; /* NULL: standard output itself */
    int memory; /* -1: there is none */
};

TermOut *term_out_open(void)
{
    TermOut *out = xcalloc(1, sizeof *out);
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    out->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !out->file) {
        (void)close(fd);
    }
    out->memory = out->file ? memfd_create("rolltop frame", MFD_CLOEXEC) : -1;
    return out;
}

void term_out_close(TermOut *out)
{
    if (out && out->memory >= 0) {
        (void)close(out->memory);
    }
    if (out && out->file) {
        (void)fclose(out->file);
    }
    free(out);
}

FILE *term_out_file(TermOut *out)
{
    return out->file ? out->file : stdout;
}

bool term_out_hold(TermOut *out)
{
    return out->memory >= 0 && lseek(out->memory, 0, SEEK_SET) == 0 &&
           dup3(out->memory, fileno(out->file), O_CLOEXEC) >= 0;
}

/* All of it, unless the terminal is gone or takes nothing for a minute. */
static void write_all(const char *bytes, size_t n)
{
    struct pollfd room = {STDOUT_FILENO, POLLOUT, 0};
    for (size_t at = 0; at < n;) {
        ssize_t wrote = write(STDOUT_FILENO, bytes + at, n - at);
        if (wrote < 0 && errno == EAGAIN && poll(&room, 1, WRITE_MS) > 0) {
            continue;
        }
        if (wrote < 0 && errno != EINTR) {
            return;
        }
        at += wrote > 0 ? (size_t)wrote : 0;
    }
}

void term_out_send(TermOut *out)
{
    char bytes[4096];
    (void)dup3(STDOUT_FILENO, fileno(out->file), O_CLOEXEC);
    off_t size = lseek(out->memory, 0, SEEK_CUR);
    for (off_t at = 0; at < size;) {
        size_t want = size - at < (off_t)sizeof bytes ? (size_t)(size - at) : sizeof bytes;
        ssize_t n = pread(out->memory, bytes, want, at);
        if (n <= 0) {
            return;
        }
        write_all(bytes, (size_t)n);
        at += n;
    }
}
