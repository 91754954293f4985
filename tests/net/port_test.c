#include "core/net/port.h"

#include "tests/harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* As libuv's servers listen: on `port`, 0: any. -1: refused. */
static int server(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 16) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t n = sizeof address;
    memset(&address, 0, sizeof address);
    (void)getsockname(fd, (struct sockaddr *)&address, &n);
    return ntohs(address.sin_port);
}

/* Nobody who asks for any port gets a reserved one: half of the range is reserved, and a thousand
 * servers ask. Who names it listens there, twice in a row, while it stays reserved. */
static void test_reserved(void)
{
    enum { RESERVED = 3000, SERVERS = 1000 };
    static int kept[RESERVED], fds[RESERVED], servers[SERVERS];
    static bool mine[65536];
    struct rlimit files = {0};
    getrlimit(RLIMIT_NOFILE, &files);
    int most = files.rlim_cur < RESERVED + SERVERS + 100 ? 200 : RESERVED;
    int asking = most == RESERVED ? SERVERS : 200;
    for (int i = 0; i < most; i++) {
        CHECK_I64(port_reserve(&kept[i], &fds[i], NULL), ERR_OK);
        CHECK(kept[i] > 0 && !mine[kept[i]]);
        mine[kept[i]] = true;
    }
    int taken = 0;
    for (int i = 0; i < asking; i++) {
        servers[i] = server(0);
        CHECK(servers[i] >= 0);
        taken += mine[port_of(servers[i])];
    }
    CHECK_I64(taken, 0);
    for (int turn = 0; turn < 2; turn++) {
        int fd = server(kept[7]);
        CHECK(fd >= 0 && port_of(fd) == kept[7]);
        CHECK(server(kept[7]) < 0); /* one at a time */
        close(fd);
    }
    for (int i = 0; i < most; i++) {
        close(fds[i]);
    }
    for (int i = 0; i < asking; i++) {
        close(servers[i]);
    }
}

static void test_free(void)
{
    int port = 0;
    CHECK_I64(port_free(&port, NULL), ERR_OK);
    int fd = server(port);
    CHECK(port > 0 && fd >= 0);
    close(fd);
}

int main(void)
{
    RUN(test_reserved);
    RUN(test_free);
    return test_end();
}
