/* Control socket, server side. One line in, one line out, in order; a handful of clients (one
 * console, a script now and then), so a list per client is enough. A request outlives its client:
 * the handler still answers it, and the answer goes nowhere. */
#include "core/net/ctl.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { CTL_PENDING_MAX = 64, CTL_WRITE_QUEUE_MAX = 8 << 20, CTL_BACKLOG = 16, CTL_LOCK_MS = 5000 };

typedef struct CtlConn CtlConn;

struct CtlRequest {
    CtlConn *conn; /* NULL once the client went away */
    CtlRequest *next;
    char *line; /* answer with its newline; NULL until answered */
    size_t line_n;
};

struct CtlConn {
    CtlServer *server;
    CtlConn *next;
    uv_pipe_t pipe;
    CtlPeer peer;
    Text in;
    CtlRequest *head, *tail;
    int pending;
    bool reading, closing, taking;
    bool ending; /* close once everything is written */
};

struct CtlServer {
    uv_loop_t *loop;
    uv_pipe_t pipe;
    char *path;
    CtlHandler handler;
    void *user;
    CtlConn *conns;
    int conn_count;
    int handles; /* open uv handles that still point here */
    bool freed;
};

typedef struct CtlWrite {
    uv_write_t req;
    CtlConn *conn;
    char *line;
} CtlWrite;

static void server_release(CtlServer *server)
{
    if (server->freed && server->handles == 0) {
        free(server->path);
        free(server);
    }
}

static void conn_closed(uv_handle_t *handle)
{
    CtlConn *conn = handle->data;
    CtlServer *server = conn->server;
    text_free(&conn->in);
    free(conn);
    server->handles--;
    server_release(server);
}

static void conn_close(CtlConn *conn)
{
    if (conn->closing) {
        return;
    }
    conn->closing = true;
    CtlServer *server = conn->server;
    for (CtlConn **at = &server->conns; *at; at = &(*at)->next) {
        if (*at == conn) {
            *at = conn->next;
            server->conn_count--;
            break;
        }
    }
    for (CtlRequest *r = conn->head; r;) {
        CtlRequest *next = r->next;
        if (r->line) { /* answered, waiting for its turn: nobody will touch it again */
            free(r->line);
            free(r);
        } else {
            r->conn = NULL;
            r->next = NULL;
        }
        r = next;
    }
    conn->head = conn->tail = NULL;
    uv_close((uv_handle_t *)&conn->pipe, conn_closed);
}

static void on_written(uv_write_t *req, int status)
{
    CtlWrite *write = (CtlWrite *)req;
    CtlConn *conn = write->conn;
    free(write->line);
    free(write);
    if (status < 0 || (conn->ending && uv_stream_get_write_queue_size(
                                           (uv_stream_t *)&conn->pipe) == 0)) {
        conn_close(conn);
    }
}

static void conn_write(CtlConn *conn, char *line, size_t n)
{
    CtlWrite *write = xcalloc(1, sizeof *write);
    write->conn = conn;
    write->line = line;
    uv_buf_t buf = uv_buf_init(line, (unsigned)n);
    if (uv_stream_get_write_queue_size((uv_stream_t *)&conn->pipe) > CTL_WRITE_QUEUE_MAX ||
        uv_write(&write->req, (uv_stream_t *)&conn->pipe, &buf, 1, on_written) != 0) {
        free(line);
        free(write);
        conn_close(conn);
    }
}

static void conn_read_on(CtlConn *conn);

static void conn_flush(CtlConn *conn)
{
    while (!conn->closing && conn->head && conn->head->line) {
        CtlRequest *r = conn->head;
        conn->head = r->next;
        if (!conn->head) {
            conn->tail = NULL;
        }
        conn->pending--;
        char *line = r->line;
        size_t n = r->line_n;
        free(r);
        conn_write(conn, line, n);
    }
    if (!conn->closing) {
        conn_read_on(conn);
    }
}

void ctl_reply(CtlRequest *request, const Text *json_object)
{
    CtlConn *conn = request->conn;
    if (!conn) {
        free(request);
        return;
    }
    Str body = text_str(json_object);
    if (json_object->cut || body.n == 0) {
        body = STR("{\"ok\":false,\"message\":\"the answer is too long for the socket\"}");
    }
    request->line = xcalloc(body.n + 1, 1);
    memcpy(request->line, body.p, body.n);
    for (size_t i = 0; i < body.n; i++) { /* a pretty-printed object stays one line */
        if (request->line[i] == '\n') {
            request->line[i] = ' ';
        }
    }
    request->line[body.n] = '\n';
    request->line_n = body.n + 1;
    conn_flush(conn);
}

static void reply_error(CtlRequest *request, const char *message)
{
    Text text;
    text_init(&text, 4096);
    JsonOut out;
    json_begin(&out, &text);
    json_object_begin(&out);
    json_member_bool(&out, "ok", false);
    json_member_string(&out, "message", message);
    json_object_end(&out);
    ctl_reply(request, &text);
    text_free(&text);
}

static CtlRequest *request_new(CtlConn *conn)
{
    CtlRequest *request = xcalloc(1, sizeof *request);
    request->conn = conn;
    if (conn->tail) {
        conn->tail->next = request;
    } else {
        conn->head = request;
    }
    conn->tail = request;
    conn->pending++;
    return request;
}

static void conn_line(CtlConn *conn, Str line)
{
    CtlServer *server = conn->server;
    CtlRequest *request = request_new(conn);
    cJSON *body = NULL;
    Fault fault = {0};
    if (json_parse(line, CTL_LINE_MAX, "control request", &body, &fault) != ERR_OK) {
        reply_error(request, fault.sentence);
    } else if (!cJSON_IsObject(body)) {
        reply_error(request, "a control request is one JSON object a line");
    } else {
        server->handler(request, body, &conn->peer, server->user);
    }
    cJSON_Delete(body);
}

static void alloc_piece(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    CtlConn *conn = handle->data;
    size_t room = conn->in.max - conn->in.n;
    size_t want = suggested < room ? suggested : room;
    if (want > 0 && text_reserve(&conn->in, want)) {
        *buf = uv_buf_init(conn->in.p + conn->in.n, (unsigned)want);
    } else {
        *buf = uv_buf_init(NULL, 0);
    }
}

static void conn_refuse(CtlConn *conn, const char *message)
{
    uv_read_stop((uv_stream_t *)&conn->pipe);
    conn->reading = false;
    conn->ending = true;
    reply_error(request_new(conn), message);
}

/* Takes whole lines out of the input; stops early when the client has enough unanswered. */
static void conn_take_lines(CtlConn *conn)
{
    if (conn->taking) { /* a handler that answers at once comes by here again */
        return;
    }
    conn->taking = true;
    size_t from = 0;
    while (!conn->closing && conn->pending < CTL_PENDING_MAX && from < conn->in.n) {
        const char *end = memchr(conn->in.p + from, '\n', conn->in.n - from);
        if (!end) {
            break;
        }
        size_t n = (size_t)(end - (conn->in.p + from));
        Str line = str_trim((Str){conn->in.p + from, n});
        from += n + 1;
        if (line.n > 0) {
            /* The handler may answer at once, and the answer may close the connection. */
            char *copy = xstrndup(line.p, line.n);
            size_t rest = conn->in.n - from;
            memmove(conn->in.p, conn->in.p + from, rest);
            conn->in.n = rest;
            from = 0;
            conn_line(conn, (Str){copy, line.n});
            free(copy);
        }
    }
    if (!conn->closing && from > 0) {
        memmove(conn->in.p, conn->in.p + from, conn->in.n - from);
        conn->in.n -= from;
    }
    conn->taking = false;
    if (!conn->closing && conn->in.n >= CTL_LINE_MAX &&
        !memchr(conn->in.p, '\n', conn->in.n)) {
        conn_refuse(conn, "the request line is longer than 1 MiB");
    }
}

static void on_piece(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf; /* lies inside conn->in */
    CtlConn *conn = stream->data;
    if (n == UV_ENOBUFS) {
        conn_refuse(conn, "the request line is longer than 1 MiB");
        return;
    }
    if (n < 0) {
        conn_close(conn);
        return;
    }
    conn->in.n += (size_t)n;
    if (conn->pending >= CTL_PENDING_MAX) {
        uv_read_stop(stream);
        conn->reading = false;
        return;
    }
    conn_take_lines(conn);
}

static void conn_read_on(CtlConn *conn)
{
    if (conn->ending || conn->pending >= CTL_PENDING_MAX) {
        return;
    }
    if (!conn->reading) {
        conn->reading = uv_read_start((uv_stream_t *)&conn->pipe, alloc_piece, on_piece) == 0;
    }
    conn_take_lines(conn); /* lines that came while too many were unanswered */
}

static bool peer_of(const uv_pipe_t *pipe, CtlPeer *peer)
{
    uv_os_fd_t fd;
    struct ucred cred;
    socklen_t n = sizeof cred;
    if (uv_fileno((const uv_handle_t *)pipe, &fd) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) != 0) {
        return false;
    }
    peer->uid = cred.uid;
    peer->pid = cred.pid;
    struct passwd entry, *found = NULL;
    char buffer[4096];
    if (getpwuid_r(cred.uid, &entry, buffer, sizeof buffer, &found) == 0 && found) {
        (void)str_format(peer->user, sizeof peer->user, "%s", found->pw_name);
    } else {
        (void)str_format(peer->user, sizeof peer->user, "%u", (unsigned)cred.uid);
    }
    return true;
}

static void on_connection(uv_stream_t *stream, int status)
{
    CtlServer *server = stream->data;
    if (status < 0) {
        return;
    }
    CtlConn *conn = xcalloc(1, sizeof *conn);
    conn->server = server;
    text_init(&conn->in, CTL_LINE_MAX);
    uv_pipe_init(server->loop, &conn->pipe, 0);
    conn->pipe.data = conn;
    server->handles++;
    conn->next = server->conns;
    server->conns = conn;
    server->conn_count++;
    if (uv_accept(stream, (uv_stream_t *)&conn->pipe) != 0 || !peer_of(&conn->pipe, &conn->peer)) {
        conn_close(conn);
        return;
    }
    if (conn->peer.uid != geteuid() && conn->peer.uid != 0) {
        conn->ending = true;
        reply_error(request_new(conn), "this run belongs to another user");
    } else if (server->conn_count > CTL_CLIENTS_MAX) {
        conn->ending = true;
        reply_error(request_new(conn), "too many control connections; close one");
    } else {
        conn_read_on(conn);
    }
}

/* True when somebody accepts on `path`. */
static bool somebody_listens(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return false;
    }
    bool alive = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ||
                 errno == EAGAIN;
    close(fd);
    return alive;
}

/* The folder's lock, for those who make or remove sockets in it: a socket that is bound and does
 * not listen yet looks as dead as one that its core left behind. -1: not had in time. */
static int lock_folder(const char *path, int64_t timeout_ms)
{
    const char *slash = strrchr(path, '/');
    char *folder = xstrndup(slash ? path : ".", slash && slash > path ? (size_t)(slash - path) : 1);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    int64_t until = clock_mono_us() + timeout_ms * 1000;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (clock_mono_us() >= until) {
            close(fd);
            return -1;
        }
        clock_sleep_us(5000);
    }
    return fd;
}

static Err address_of(const char *path, struct sockaddr_un *address, Fault *fault)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path) {
        return fault_set(fault, ERR_LIMIT, "choose a shorter --run-id or XDG_RUNTIME_DIR",
                         "the socket path %s is longer than %zu bytes", path,
                         sizeof address->sun_path - 1);
    }
    memcpy(address->sun_path, path, strlen(path));
    return ERR_OK;
}

static Err clear_path(const char *path, const struct sockaddr_un *address, Fault *fault)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        return ERR_OK;
    }
    if (!S_ISSOCK(info.st_mode)) {
        return fault_set(fault, ERR_EXISTS, "remove it", "%s is there and is no socket", path);
    }
    if (somebody_listens(address)) {
        return fault_set(fault, ERR_EXISTS, "stop that run first, or attach to it",
                         "a run already listens on %s", path);
    }
    if (unlink(path) != 0) {
        return fault_set_sys(fault, ERR_IO, errno, NULL, "cannot remove the old socket %s", path);
    }
    return ERR_OK;
}

void ctl_sweep(const char *path)
{
    struct sockaddr_un address;
    int lock = address_of(path, &address, NULL) == ERR_OK ? lock_folder(path, 0) : -1;
    if (lock >= 0) {
        (void)clear_path(path, &address, NULL);
        close(lock);
    }
}

static void server_closed(uv_handle_t *handle)
{
    CtlServer *server = handle->data;
    server->handles--;
    server_release(server);
}

static Err listen_here(CtlServer *server, Fault *fault)
{
    mode_t before = umask(0177);
    int status = uv_pipe_bind(&server->pipe, server->path);
    umask(before);
    if (status == 0) {
        status = uv_listen((uv_stream_t *)&server->pipe, CTL_BACKLOG, on_connection);
    }
    return status == 0 ? ERR_OK : fault_set_sys(fault, ERR_IO, -status, NULL,
                                                "cannot listen on %s", server->path);
}

static CtlServer *server_new(uv_loop_t *loop, const char *path, CtlHandler handler, void *user)
{
    CtlServer *server = xcalloc(1, sizeof *server);
    server->loop = loop;
    server->path = xstrdup(path);
    server->handler = handler;
    server->user = user;
    uv_pipe_init(loop, &server->pipe, 0);
    server->pipe.data = server;
    server->handles = 1;
    return server;
}

Err ctl_server_new(uv_loop_t *loop, const char *path, CtlHandler handler, void *user,
                   CtlServer **out, Fault *fault)
{
    struct sockaddr_un address;
    Err err = address_of(path, &address, fault);
    if (err != ERR_OK) {
        return err;
    }
    int lock = lock_folder(path, CTL_LOCK_MS);
    if (lock < 0) {
        return fault_set(fault, ERR_IO, "is its folder there, and does a stopped rolltop hold it?",
                         "cannot have the folder of %s to ourselves", path);
    }
    err = clear_path(path, &address, fault);
    if (err == ERR_OK) {
        CtlServer *server = server_new(loop, path, handler, user);
        err = listen_here(server, fault);
        if (err == ERR_OK) {
            *out = server;
        } else {
            server->freed = true;
            uv_close((uv_handle_t *)&server->pipe, server_closed);
        }
    }
    close(lock);
    return err;
}

void ctl_server_free(CtlServer *server)
{
    if (!server) {
        return;
    }
    unlink(server->path);
    server->freed = true;
    while (server->conns) {
        conn_close(server->conns);
    }
    uv_close((uv_handle_t *)&server->pipe, server_closed);
}
