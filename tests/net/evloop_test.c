/* Event loop of a process: refused when descriptors are short, closed with all that is open. */
#include "core/net/evloop.h"
#include "tests/harness.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static uv_loop_t loop;
static uv_signal_t sigint;
static uv_signal_t sigterm;

static int next_fd(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

/* Each number of free descriptors fails at another place, until there are enough. */
static void without_descriptors_it_is_refused(void)
{
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_I64(evloop_open(&loop, &sigint, &sigterm, NULL), ERR_OK); /* what libuv makes once */
    CHECK(evloop_close(&loop));
    Err err = ERR_IO;
    int spare = 0;
    for (; spare < 32 && err != ERR_OK; spare++) {
        struct rlimit few = {(rlim_t)(next_fd() + spare), before.rlim_max};
        Fault fault = {0};
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        err = evloop_open(&loop, &sigint, &sigterm, &fault);
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
        if (err != ERR_OK) {
            CHECK_I64(err, ERR_IO);
            CHECK(strstr(fault.sentence, "too many open files") != NULL);
            CHECK(strstr(fault.hint, "ulimit -n") != NULL);
        }
    }
    CHECK_I64(err, ERR_OK);
    CHECK(spare > 1);
    if (err == ERR_OK) {
        CHECK(evloop_close(&loop));
    }
}

static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

static void what_was_forgotten_is_closed(void)
{
    uv_timer_t timer;
    CHECK_I64(evloop_open(&loop, &sigint, &sigterm, NULL), ERR_OK);
    CHECK(uv_timer_init(&loop, &timer) == 0);
    CHECK(uv_timer_start(&timer, on_timer, 3600000, 0) == 0);
    CHECK(evloop_close(&loop));
}

int main(void)
{
    RUN(without_descriptors_it_is_refused);
    RUN(what_was_forgotten_is_closed);
    return test_end();
}
