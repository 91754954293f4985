#include "core/app/app.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

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
