/* A peer for client tests that does exactly what a test tells it, right or wrong: a forked child
 * on a loopback port, one more child a connection, a blocking handler for each request. It ends
 * with its parent. */
#ifndef ROLLTOP_TESTS_NET_RAW_SERVER_H
#define ROLLTOP_TESTS_NET_RAW_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct RawRequest {
    int fd;
    int connection;     /* from 1 on, over the whole server */
    int number;         /* from 1 on, on this connection */
    char method[16], path[128];
    const char *head;   /* raw, NUL-terminated */
    const char *body;
    size_t body_bytes;
} RawRequest;

/* False closes the connection. */
typedef bool (*RawHandler)(const RawRequest *request, void *user);

typedef struct RawServer {
    pid_t pid;
    int port;
} RawServer;

static inline void raw_sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static inline void raw_write(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t wrote = send(fd, p, n, MSG_NOSIGNAL);
        if (wrote <= 0) {
            return;
        }
        p += wrote;
        n -= (size_t)wrote;
    }
}

static inline void raw_print(int fd, const char *s)
{
    raw_write(fd, s, strlen(s));
}

/* A whole 200 reply with Content-Length. */
static inline void raw_reply(int fd, int status, const char *extra, const char *body)
{
    char head[512];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%s\r\n", status,
                     strlen(body), extra);
    raw_write(fd, head, (size_t)n);
    raw_write(fd, body, strlen(body));
}

static inline void raw_serve(int fd, int connection, RawHandler handler, void *user)
{
    static char buffer[1 << 20];
    size_t have = 0;
    for (int number = 1;; number++) {
        char *end = NULL;
        while (buffer[have] = '\0', (end = strstr(buffer, "\r\n\r\n")) == NULL) {
            ssize_t got = have < sizeof buffer - 1
                          ? recv(fd, buffer + have, sizeof buffer - 1 - have, 0) : 0;
            if (got <= 0) {
                return;
            }
            have += (size_t)got;
        }
        RawRequest request = {.fd = fd, .connection = connection, .number = number};
        *end = '\0';
        request.head = buffer;
        request.body = end + 4;
        const char *length = strcasestr(buffer, "\r\nContent-Length:");
        request.body_bytes = length ? strtoul(length + 17, NULL, 10) : 0;
        size_t want = (size_t)(request.body - buffer) + request.body_bytes;
        while (have < want && want < sizeof buffer) {
            ssize_t got = recv(fd, buffer + have, want - have, 0);
            if (got <= 0) {
                return;
            }
            have += (size_t)got;
        }
        if (sscanf(buffer, "%15s %127s", request.method, request.path) != 2
            || !handler(&request, user)) {
            return;
        }
        memmove(buffer, buffer + want, have - want);
        have -= want;
    }
}

/* `port` 0: any free one. */
static inline RawServer raw_server_start_at(int port, RawHandler handler, void *user)
{
    RawServer server = {-1, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int reuse = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 512) != 0
        || getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        perror("raw server");
        exit(1);
    }
    server.port = ntohs(address.sin_port);
    fflush(NULL);
    server.pid = fork();
    if (server.pid > 0) {
        setpgid(server.pid, server.pid); /* both sides: whoever comes first */
    }
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGCHLD, SIG_IGN);
        setpgid(0, 0);
        for (int connection = 1;; connection++) {
            int peer = accept(fd, NULL, NULL);
            if (peer < 0) {
                _exit(1);
            }
            int one = 1;
            setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            if (fork() == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(fd);
                raw_serve(peer, connection, handler, user);
                shutdown(peer, SHUT_RDWR);
                _exit(0);
            }
            close(peer);
        }
    }
    close(fd);
    return server;
}

static inline RawServer raw_server_start(RawHandler handler, void *user)
{
    return raw_server_start_at(0, handler, user);
}

/* To the server and all its connections. */
static inline void raw_server_signal(const RawServer *server, int signal_number)
{
    kill(-server->pid, signal_number);
}

static inline void raw_server_stop(RawServer *server)
{
    if (server->pid > 0) {
        kill(-server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
        server->pid = -1;
    }
}

#endif
