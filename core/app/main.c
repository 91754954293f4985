#include "core/app/app.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer takes a file descriptor that libuv closes by a raw system call, and the kernel
 * gives out again to opendir on another thread, for one that two threads share. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:^closedir$\n";
}
#endif

/* A program started with a standard stream closed would open its next file under that number, and
 * what is printed would go into it. The stand-in refuses the stream's use, as a closed one does. */
static void fill_standard_streams(void)
{
    int fd = -1;
    do {
        fd = open("/dev/null", O_RDONLY); /* takes the lowest free number */
        if (fd == STDIN_FILENO) {
            close(fd);
            fd = open("/dev/null", O_WRONLY);
        }
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) {
        close(fd);
    }
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    /* A write past `ulimit -f` is to fail like one on a full disk, not to end the program. */
    (void)signal(SIGXFSZ, SIG_IGN);
    return app_output_end(app_main(argc, argv));
}
