/* Control socket, client side: blocking with a bound for the CLI, by descriptor for the console. */
#include "core/net/ctl.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct CtlClient {
    int fd;
    char *path;
    Text in;
};

enum { CTL_SEND_MS = 5000 };

Err ctl_connect(const char *path, int64_t timeout_ms, CtlClient **out, Fault *fault)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        return fault_set(fault, ERR_ARG, NULL, "the socket path %s is too long", path);
    }
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return fault_set_sys(fault, ERR_IO, errno, NULL, "cannot make a socket");
    }
    int64_t until = clock_mono_us() + timeout_ms * 1000;
    while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        int why = errno;
        /* EAGAIN: the listener's backlog is full; a busy core empties it soon. */
        if (why == EAGAIN && clock_mono_us() < until) {
            poll(NULL, 0, 10);
            continue;
        }
        close(fd);
        if (why == ECONNREFUSED || why == ENOENT) {
            return fault_set(fault, ERR_NOT_FOUND, "see `rolltop ls`", "no run listens on %s",
                             path);
        }
        return fault_set_sys(fault, ERR_NET, why, NULL, "cannot connect to %s", path);
    }
    CtlClient *client = xcalloc(1, sizeof *client);
    client->fd = fd;
    client->path = xstrdup(path);
    text_init(&client->in, CTL_LINE_MAX);
    *out = client;
    return ERR_OK;
}

void ctl_client_free(CtlClient *client)
{
    if (client) {
        close(client->fd);
        text_free(&client->in);
        free(client->path);
        free(client);
    }
}

int ctl_client_fd(const CtlClient *client)
{
    return client->fd;
}

static Err send_all(CtlClient *client, const char *p, size_t n, int64_t until, Fault *fault)
{
    while (n > 0) {
        ssize_t sent = send(client->fd, p, n, MSG_NOSIGNAL);
        if (sent > 0) {
            p += sent;
            n -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
            int64_t left = (until - clock_mono_us()) / 1000;
            struct pollfd wait = {.fd = client->fd, .events = POLLOUT};
            if (left <= 0) {
                return fault_set(fault, ERR_TIMEOUT, NULL, "the core at %s takes no more requests",
                                 client->path);
            }
            poll(&wait, 1, (int)left);
        } else {
            return fault_set_sys(fault, ERR_NET, errno, NULL, "the core at %s went away",
                                 client->path);
        }
    }
    return ERR_OK;
}

Err ctl_send(CtlClient *client, Str json_object, Fault *fault)
{
    if (json_object.n >= CTL_LINE_MAX) {
        return fault_set(fault, ERR_LIMIT, NULL, "a control request is at most 1 MiB");
    }
    Text line;
    text_init(&line, CTL_LINE_MAX + 1);
    text_add_str(&line, json_object);
    text_add_char(&line, '\n');
    int64_t until = clock_mono_us() + CTL_SEND_MS * 1000;
    Err err = send_all(client, line.p, line.n, until, fault);
    text_free(&line);
    return err;
}

/* A whole line of the input, if there is one. */
static bool take_line(CtlClient *client, cJSON **reply, Err *err, Fault *fault)
{
    const char *end = client->in.n ? memchr(client->in.p, '\n', client->in.n) : NULL;
    if (!end) {
        return false;
    }
    size_t n = (size_t)(end - client->in.p);
    *err = json_parse((Str){client->in.p, n}, CTL_LINE_MAX, "the core's answer", reply, fault);
    memmove(client->in.p, client->in.p + n + 1, client->in.n - n - 1);
    client->in.n -= n + 1;
    return true;
}

Err ctl_poll_reply(CtlClient *client, cJSON **reply, Fault *fault)
{
    for (;;) {
        Err err = ERR_OK;
        if (take_line(client, reply, &err, fault)) {
            return err;
        }
        char piece[16384];
        ssize_t n = recv(client->fd, piece, sizeof piece, 0);
        if (n == 0) {
            return fault_set(fault, ERR_NET, "see `rolltop ls`", "the core at %s closed the socket",
                             client->path);
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return ERR_TIMEOUT; /* not a fault: nothing whole yet */
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fault_set_sys(fault, ERR_NET, errno, NULL, "cannot read from %s", client->path);
        }
        if (!text_add(&client->in, piece, (size_t)n)) {
            return fault_set(fault, ERR_LIMIT, NULL, "the core's answer is longer than 1 MiB");
        }
    }
}

Err ctl_call(CtlClient *client, Str json_object, int64_t timeout_ms, cJSON **reply, Fault *fault)
{
    int64_t until = clock_mono_us() + timeout_ms * 1000;
    Err err = ctl_send(client, json_object, fault);
    while (err == ERR_OK) {
        err = ctl_poll_reply(client, reply, fault);
        if (err != ERR_TIMEOUT) {
            break;
        }
        int64_t left = (until - clock_mono_us()) / 1000;
        if (left <= 0) {
            return fault_set(fault, ERR_TIMEOUT, "is the core busy or stopped?",
                             "no answer from %s within %lld ms", client->path,
                             (long long)timeout_ms);
        }
        struct pollfd wait = {.fd = client->fd, .events = POLLIN};
        poll(&wait, 1, (int)left);
        err = ERR_OK;
    }
    return err;
}
