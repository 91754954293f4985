/* Which runs are alive: cores that answer, are busy, have just ended, or died long ago. */
#include "core/app/runs.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "tests/harness.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a core's process does with those who connect. */
typedef enum Core { CORE_ENDS, CORE_HANGS_UP, CORE_ANSWERS } Core;

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)str_format(address.sun_path, sizeof address.sun_path, "%s", path);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
          listen(fd, 8) == 0);
    return fd;
}

static void answer(int conn)
{
    static const char reply[] = "{\"ok\":true,\"pid\":7}\n";
    char request[256];
    ssize_t got = read(conn, request, sizeof request);
    ssize_t sent = got > 0 ? write(conn, reply, sizeof reply - 1) : 0;
    (void)sent;
    close(conn);
}

static pid_t core_at(const char *path, Core core)
{
    int fd = listen_at(path);
    pid_t pid = fork();
    if (pid > 0) {
        close(fd);
        return pid;
    }
    int conn = accept(fd, NULL, NULL);
    if (core == CORE_ENDS) { /* it was just about to when somebody asked */
        (void)unlink(path);
        close(fd);
        close(conn);
        _exit(0);
    }
    for (;;) {
        if (core == CORE_ANSWERS) {
            answer(conn);
        } else {
            close(conn);
        }
        conn = accept(fd, NULL, NULL);
    }
}

static void lists(Core core, size_t count, int64_t process)
{
    char *folder = NULL;
    RunList runs;
    CHECK_I64(fs_runtime_dir(&folder, NULL), ERR_OK);
    char *path = fs_join(folder, "one.sock");
    pid_t pid = core_at(path, core);
    CHECK_I64(runs_list(&runs, NULL), ERR_OK);
    CHECK_I64(runs.count, count);
    if (count == 1) {
        CHECK_STR(runs.items[0].id, "one");
        CHECK_I64(json_i64(runs.items[0].status, "pid", -1), process);
    }
    runs_free(&runs);
    if (core != CORE_ENDS) {
        CHECK_I64(kill(pid, SIGKILL), 0);
    }
    CHECK_I64(waitpid(pid, NULL, 0), pid);
    CHECK_I64(runs_list(&runs, NULL), ERR_OK); /* dead, and swept away */
    CHECK_I64(runs.count, 0);
    CHECK(!fs_exists(path));
    runs_free(&runs);
    free(path);
    free(folder);
}

static void one_that_answers(void)
{
    lists(CORE_ANSWERS, 1, 7);
}

/* It hangs up, but goes on listening: it is alive, what it does is not known. */
static void one_that_hangs_up(void)
{
    lists(CORE_HANGS_UP, 1, -1);
}

static void one_that_ends_meanwhile(void)
{
    lists(CORE_ENDS, 0, 0);
}

int main(void)
{
    char folder[] = "/tmp/rolltop-runs-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    CHECK_I64(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    RUN(one_that_answers);
    RUN(one_that_hangs_up);
    RUN(one_that_ends_meanwhile);
    CHECK_I64(fs_remove_tree(folder, NULL), ERR_OK);
    return test_end();
}
