/* A frame goes out in one write, whatever its pieces were; what is not held goes out at once. The
 * terminal is a pipe that keeps writes apart. */
#include "tui/term_out.h"

#include "tests/harness.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static int pipe_fds[2], real_stdout;

static void pipe_begin(void)
{
    (void)fflush(stdout);
    real_stdout = dup(STDOUT_FILENO);
    CHECK(pipe2(pipe_fds, O_DIRECT | O_NONBLOCK) == 0);
    CHECK(dup2(pipe_fds[1], STDOUT_FILENO) == STDOUT_FILENO);
}

static void pipe_end(void)
{
    (void)dup2(real_stdout, STDOUT_FILENO);
    (void)close(real_stdout);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
}

/* As curses does it: straight to the descriptor. */
static void put(TermOut *out, const char *text)
{
    CHECK_I64(write(fileno(term_out_file(out)), text, strlen(text)), strlen(text));
}

static const char *next_write(void)
{
    static char bytes[8192];
    ssize_t n = read(pipe_fds[0], bytes, sizeof bytes - 1);
    bytes[n > 0 ? n : 0] = '\0';
    return bytes;
}

static void test_pieces(void)
{
    pipe_begin();
    TermOut *out = term_out_open();
    put(out, "plain");
    CHECK_STR(next_write(), "plain");
    for (int frame = 0; frame < 3; frame++) {
        CHECK(term_out_hold(out));
        put(out, "one ");
        put(out, "two ");
        put(out, frame == 1 ? "more than before" : "end");
        CHECK_STR(next_write(), ""); /* nothing yet */
        term_out_send(out);
        CHECK_STR(next_write(), frame == 1 ? "one two more than before" : "one two end");
        CHECK_STR(next_write(), "");
    }
    CHECK(term_out_hold(out));
    term_out_send(out); /* an empty frame is no write */
    CHECK_STR(next_write(), "");
    put(out, "after");
    CHECK_STR(next_write(), "after");
    term_out_close(out);
    pipe_end();
}

/* More than one buffer full, and a terminal that has no room at first. */
static void test_large(void)
{
    static char big[300000];
    static char got[sizeof big];
    size_t n = 0;
    for (size_t i = 0; i < sizeof big - 1; i++) {
        big[i] = (char)('a' + i % 23);
    }
    pipe_begin();
    TermOut *out = term_out_open();
    CHECK(term_out_hold(out));
    put(out, big);
    pid_t child = fork();
    if (child == 0) {
        term_out_send(out);
        _exit(0);
    }
    (void)fcntl(pipe_fds[0], F_SETFL, 0); /* this side waits */
    while (n < sizeof big - 1) {
        ssize_t more = read(pipe_fds[0], got + n, sizeof got - n);
        if (more <= 0) {
            break;
        }
        n += (size_t)more;
    }
    CHECK(waitpid(child, NULL, 0) == child);
    term_out_close(out);
    pipe_end();
    CHECK_I64(n, sizeof big - 1);
    CHECK(memcmp(big, got, n) == 0);
}

int main(void)
{
    RUN(test_pieces);
    RUN(test_large);
    return test_end();
}
