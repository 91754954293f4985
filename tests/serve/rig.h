/* Engines and frontends as child processes of a test, and a blocking HTTP client of a few lines:
 * http_send and http_read apart, so that a test can do something in between. */
#ifndef ROLLTOP_TESTS_SERVE_RIG_H
#define ROLLTOP_TESTS_SERVE_RIG_H

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "tests/harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RIG_PORTS = 16, RIG_ARGS = 32 };

typedef struct Part {
    pid_t pid;
    int ports[RIG_PORTS], count, status;
} Part;

/* `argv` ends with NULL. Waits for `count` lines that name a port. */
static inline Part part_start(int (*entry)(int, char **), const char *const *argv, int count)
{
    Part part = {.count = count};
    int pipes[2];
    CHECK_I64(pipe(pipes), 0);
    fflush(NULL);
    part.pid = fork();
    if (part.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(pipes[1], 1);
        close(pipes[0]);
        char *copy[RIG_ARGS] = {0};
        int n = 0;
        while (argv[n]) {
            copy[n] = xstrdup(argv[n]);
            n++;
        }
        int status = entry(n, copy);
        while (n > 0) {
            free(copy[--n]);
        }
        exit(status); /* not _exit: the leak check runs at exit */
    }
    close(pipes[1]);
    FILE *lines = fdopen(pipes[0], "r");
    char line[512];
    for (int i = 0; i < count && fgets(line, sizeof line, lines);) {
        const char *colon = strrchr(line, ':');
        if (strstr(line, "listening on http://") && colon) {
            part.ports[i++] = atoi(colon + 1);
        }
    }
    CHECK(count == 0 || part.ports[count - 1] > 0);
    fclose(lines);
    return part;
}

/* SIGTERM, at most a minute, then SIGKILL; the exit status, or 128 + signal. */
static inline int part_stop(Part *part)
{
    kill(part->pid, SIGTERM);
    int status = 0;
    for (int i = 0; i < 6000; i++) {
        if (waitpid(part->pid, &status, WNOHANG) == part->pid) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        clock_sleep_us(10000);
    }
    kill(part->pid, SIGKILL);
    waitpid(part->pid, &status, 0);
    return 999;
}

static inline int part_wait(Part *part)
{
    int status = 0;
    waitpid(part->pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

typedef struct Reply {
    int status;
    bool whole; /* ended as its framing says */
    char *head, *body;
    size_t n;
} Reply;

static inline void reply_free(Reply *reply)
{
    free(reply->head);
    reply->head = reply->body = NULL;
}

static inline int http_dial(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval limit = {120, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* `headers`: whole lines with CRLF, may be "". */
static inline int http_send(int port, const char *method, const char *path, const char *headers,
                            const char *body)
{
    int fd = http_dial(port);
    char *text = xasprintf("%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s%s"
                           "Content-Length: %zu\r\n\r\n%s", method, path, headers,
                           body[0] ? "Content-Type: application/json\r\n" : "", strlen(body), body);
    size_t at = 0;
    size_t n = strlen(text);
    for (ssize_t sent; fd >= 0 && at < n; at += (size_t)sent) {
        sent = send(fd, text + at, n - at, MSG_NOSIGNAL);
        if (sent <= 0) {
            break;
        }
    }
    free(text);
    return fd;
}

static inline void undo_chunks(Reply *reply)
{
    char *from = reply->body;
    char *to = reply->body;
    char *end = reply->body + reply->n;
    reply->whole = false;
    while (from < end) {
        char *line = NULL;
        size_t size = strtoul(from, &line, 16);
        if (line == from || end - line < 2) {
            break;
        }
        from = line + 2;
        if (size == 0) {
            reply->whole = true;
            break;
        }
        size = size < (size_t)(end - from) ? size : (size_t)(end - from);
        memmove(to, from, size);
        to += size;
        from += size + 2;
    }
    *to = 0;
    reply->n = (size_t)(to - reply->body);
}

/* recv with a time limit gives up when its process was stopped for a while: not here. */
static inline ssize_t rig_recv(int fd, void *bytes, size_t n)
{
    ssize_t got = 0;
    do {
        got = recv(fd, bytes, n, 0);
    } while (got < 0 && errno == EINTR);
    return got;
}

static inline Reply http_read(int fd)
{
    Reply reply = {0};
    size_t capacity = 1 << 16;
    size_t n = 0;
    char *bytes = xcalloc(1, capacity + 1);
    for (ssize_t got; fd >= 0 && (got = rig_recv(fd, bytes + n, capacity - n)) > 0;) {
        n += (size_t)got;
        if (n == capacity) {
            capacity *= 2;
            bytes = xrealloc(bytes, capacity + 1, 1);
        }
    }
    bytes[n] = 0;
    if (fd >= 0) {
        close(fd);
    }
    reply.head = bytes;
    char *blank = strstr(bytes, "\r\n\r\n");
    reply.body = blank ? blank + 4 : bytes + n;
    reply.n = (size_t)(bytes + n - reply.body);
    if (!blank) {
        return reply;
    }
    *blank = 0;
    reply.status = atoi(bytes + 9);
    const char *length = strcasestr(bytes, "\r\ncontent-length: ");
    reply.whole = length && (size_t)atoll(length + 18) == reply.n;
    if (strcasestr(bytes, "\r\ntransfer-encoding: chunked")) {
        undo_chunks(&reply);
    }
    return reply;
}

static inline Reply http_ask(int port, const char *method, const char *path, const char *body)
{
    return http_read(http_send(port, method, path, "", body));
}

/* Status only. */
static inline int http_status(int port, const char *method, const char *path, const char *body)
{
    Reply reply = http_ask(port, method, path, body);
    int status = reply.status;
    reply_free(&reply);
    return status;
}

/* The reply's JSON; NULL and a failed check when it is none. */
static inline cJSON *reply_json(Reply *reply)
{
    cJSON *tree = NULL;
    (void)json_parse((Str){reply->body, reply->n}, 1u << 28, "reply", &tree, NULL);
    CHECK(tree != NULL);
    return tree;
}

static inline cJSON *http_json(int port, const char *method, const char *path, const char *body,
                               int status)
{
    Reply reply = http_ask(port, method, path, body);
    CHECK_I64(reply.status, status);
    cJSON *tree = reply_json(&reply);
    reply_free(&reply);
    return tree;
}

/* "a.b.0.c" below a tree. */
static inline const cJSON *json_at(const cJSON *tree, const char *path)
{
    char part[64];
    while (tree && *path) {
        size_t n = strcspn(path, ".");
        (void)str_format(part, sizeof part, "%.*s", (int)n, path);
        tree = cJSON_IsArray(tree) ? cJSON_GetArrayItem(tree, atoi(part)) : json_get(tree, part);
        path += n + (path[n] == '.');
    }
    return tree;
}

static inline double json_num(const cJSON *tree, const char *path)
{
    const cJSON *item = json_at(tree, path);
    return cJSON_IsNumber(item) ? item->valuedouble : -12345;
}

static inline const char *json_str(const cJSON *tree, const char *path)
{
    const cJSON *item = json_at(tree, path);
    return cJSON_IsString(item) ? item->valuestring : "(none)";
}

/* Event at *at, which is moved behind it; NULL for [DONE] and at the end. */
static inline cJSON *sse_next(const char **at)
{
    size_t n = strcspn(*at, "\n"); /* an event is one line */
    cJSON *tree = NULL;
    if (n > 6 && strncmp(*at, "data: {", 7) == 0) {
        (void)json_parse((Str){*at + 6, n - 6}, 1u << 28, "event", &tree, NULL);
        CHECK(tree != NULL);
    }
    *at += n;
    *at += strspn(*at, "\n");
    return tree;
}

/* n-th event (from 0) of an SSE body as JSON; NULL for [DONE] or when there is none. */
static inline cJSON *sse_event(const Reply *reply, int index)
{
    const char *at = reply->body;
    for (int i = 0; at && i < index; i++) {
        at = strstr(at, "\n\n");
        at = at ? at + 2 : NULL;
    }
    const char *end = at ? strstr(at, "\n\n") : NULL;
    if (!end || strncmp(at, "data: ", 6) != 0 || strncmp(at, "data: [DONE]", 12) == 0) {
        return NULL;
    }
    cJSON *tree = NULL;
    (void)json_parse((Str){at + 6, (size_t)(end - at - 6)}, 1u << 28, "event", &tree, NULL);
    return tree;
}

static inline int sse_count(const Reply *reply)
{
    int n = 0;
    for (const char *at = reply->body; (at = strstr(at, "\n\n")) != NULL; at += 2) {
        n++;
    }
    return n;
}

enum { RIG_POLLS = 12000, RIG_POLL_US = 5000 }; /* conditions are waited for up to a minute */

/* A number of a GET's reply, "loads.0.num_running_reqs". */
static inline double number_of(int port, const char *path, const char *key)
{
    cJSON *json = http_json(port, "GET", path, "", 200);
    double number = json_num(json, key);
    cJSON_Delete(json);
    return number;
}

/* Waits until that number lies between `least` and `most`. */
static inline bool number_comes(int port, const char *path, const char *key, double least,
                                double most)
{
    for (int i = 0; i < RIG_POLLS; i++) {
        double number = number_of(port, path, key);
        if (number >= least && number <= most) {
            return true;
        }
        clock_sleep_us(RIG_POLL_US);
    }
    return false;
}

static inline bool status_comes(int port, const char *path, int status)
{
    for (int i = 0; i < RIG_POLLS; i++) {
        if (http_status(port, "GET", path, "") == status) {
            return true;
        }
        clock_sleep_us(RIG_POLL_US);
    }
    return false;
}

/* Waits until that text has come on the connection, and leaves it there to be read. */
static inline bool text_comes(int fd, const char *wanted)
{
    char seen[16384];
    for (int i = 0; i < RIG_POLLS; i++) {
        ssize_t n = recv(fd, seen, sizeof seen - 1, MSG_PEEK | MSG_DONTWAIT);
        seen[n > 0 ? n : 0] = '\0';
        if (strstr(seen, wanted)) {
            return true;
        }
        clock_sleep_us(RIG_POLL_US);
    }
    return false;
}

#endif
