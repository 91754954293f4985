/* Listener, connections, time-outs and output. Parsing is in http_request.c, answers are in
 * http_exchange.c. Expected: up to 4,096 connections a server and, for synthetic fleets, thousands
 * of servers in one process: handles that cost per loop turn run only while they are needed. */
#include "core/net/http_server.h"

#include "core/base/mem.h"
#include "core/net/http_conn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LINGER_MS = 2000, NEXT_REQUEST_QUEUE = 256 * 1024 };

static void conn_flush(HttpConn *conn);

static void server_handle_closed(HttpServer *server)
{
    server->open_handles--;
    if (server->open_handles > 0 || server->conn_count > 0) {
        return;
    }
    free(server->read_buffer);
    free(server->host);
    free(server->server_header);
    free(server);
}

static void conn_free(HttpConn *conn)
{
    text_free(&conn->url);
    text_free(&conn->head);
    text_free(&conn->path);
    text_free(&conn->body);
    text_free(&conn->pending);
    text_free(&conn->out);
    free(conn->flight);
    free(conn->exchange);
    free(conn);
}

static void dirty_remove(HttpConn *conn)
{
    for (HttpConn **at = &conn->server->dirty; *at; at = &(*at)->next_dirty) {
        if (*at == conn) {
            *at = conn->next_dirty;
            break;
        }
    }
    conn->dirty = false;
}

static void on_conn_closed(uv_handle_t *handle)
{
    HttpConn *conn = (HttpConn *)handle->data;
    HttpServer *server = conn->server;
    if (conn->exchange && !server->freeing && server->config.on_gone) {
        server->config.on_gone(conn->exchange, server->config.user);
    }
    if (conn->dirty) {
        dirty_remove(conn);
    }
    if (conn->previous) {
        conn->previous->next = conn->next;
    } else {
        server->conns = conn->next;
    }
    if (conn->next) {
        conn->next->previous = conn->previous;
    }
    server->conn_count--;
    conn_free(conn);
    if (server->conn_count == 0 && !server->freeing) {
        uv_timer_stop(&server->timer);
    }
    if (server->freeing) {
        server->open_handles++; /* balanced by the call below */
        server_handle_closed(server);
    }
}

void http_conn_close(HttpConn *conn)
{
    if (conn->state == CONN_CLOSED) {
        return;
    }
    conn->state = CONN_CLOSED;
    uv_close((uv_handle_t *)&conn->tcp, on_conn_closed);
}

size_t http_conn_queued(const HttpConn *conn)
{
    return conn->out.n + conn->flight_n;
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* an active idle handle keeps the poll phase from blocking: check comes at once */
}

static void on_check(uv_check_t *check)
{
    HttpServer *server = (HttpServer *)check->data;
    HttpConn *list = server->dirty;
    server->dirty = NULL;
    uv_check_stop(&server->check);
    uv_idle_stop(&server->idle);
    /* Connections are freed in the close phase only, so the detached list stays valid. */
    while (list) {
        HttpConn *conn = list;
        list = conn->next_dirty;
        conn->next_dirty = NULL;
        conn->dirty = false;
        conn_flush(conn);
        if (conn->state != CONN_CLOSED) {
            http_conn_pump(conn);
        }
    }
}

void http_conn_dirty(HttpConn *conn)
{
    HttpServer *server = conn->server;
    if (conn->dirty || conn->state == CONN_CLOSED || server->freeing) {
        return;
    }
    conn->dirty = true;
    conn->next_dirty = server->dirty;
    if (!server->dirty) {
        uv_check_start(&server->check, on_check);
        uv_idle_start(&server->idle, on_idle);
    }
    server->dirty = conn;
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    (void)request;
    (void)status; /* the peer's EOF, an error on read or the linger time ends the connection */
}

static void on_written(uv_write_t *request, int status)
{
    HttpConn *conn = (HttpConn *)request->data;
    free(conn->flight);
    conn->flight = NULL;
    conn->flight_n = 0;
    if (status < 0) {
        http_conn_close(conn);
        return;
    }
    conn->since_ms = uv_now(conn->server->loop);
    http_conn_dirty(conn);
}

/* Everything is out and no request follows: half-close, so that the answer is not destroyed by a
 * reset when input is still coming; the linger state swallows that. */
static void conn_end_output(HttpConn *conn)
{
    if (conn->state == CONN_LINGER && !conn->shut) {
        conn->shut = true;
        if (uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown) < 0) {
            http_conn_close(conn);
        }
    }
}

static void conn_flush(HttpConn *conn)
{
    if (conn->state == CONN_CLOSED || conn->flight) {
        return;
    }
    size_t sent = 0;
    if (conn->out.n > 0) {
        uv_buf_t buffer = uv_buf_init(conn->out.p, (unsigned)(conn->out.n < (1u << 30)
                                                                   ? conn->out.n : (1u << 30)));
        int n = uv_try_write((uv_stream_t *)&conn->tcp, &buffer, 1);
        if (n < 0 && n != UV_EAGAIN) {
            http_conn_close(conn);
            return;
        }
        sent = n > 0 ? (size_t)n : 0;
    }
    if (sent == conn->out.n) {
        text_clear(&conn->out);
        if (conn->out.capacity > HTTP_PENDING_MAX) {
            text_free(&conn->out);
        }
        conn_end_output(conn);
        return;
    }
    conn->flight_n = conn->out.n - sent;
    conn->flight = text_take(&conn->out);
    uv_buf_t rest = uv_buf_init(conn->flight + sent, (unsigned)(conn->flight_n < (1u << 30)
                                                                    ? conn->flight_n
                                                                    : (1u << 30)));
    assert(conn->flight_n < (1u << 30)); /* replies are bounded far below by their makers */
    if (uv_write(&conn->write, (uv_stream_t *)&conn->tcp, &rest, 1, on_written) < 0) {
        http_conn_close(conn);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    HttpServer *server = ((HttpConn *)handle->data)->server;
    if (!server->read_buffer) {
        server->read_buffer = xcalloc(1, HTTP_READ_SIZE);
    }
    *buffer = uv_buf_init(server->read_buffer, HTTP_READ_SIZE);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    HttpConn *conn = (HttpConn *)stream->data;
    if (n == 0 || conn->state == CONN_CLOSED) {
        return;
    }
    if (n < 0) {
        http_conn_close(conn);
        return;
    }
    if (conn->state == CONN_LINGER) {
        return;
    }
    if (conn->exchange || conn->pending.n > 0) {
        if (!text_add(&conn->pending, buffer->base, (size_t)n)) {
            http_conn_close(conn);
            return;
        }
        if (conn->pending.n > HTTP_PENDING_MAX) {
            /* A client that pipelines this much is not watched for EOF until it is served. */
            conn->read_stopped = true;
            uv_read_stop(stream);
        }
        http_conn_pump(conn);
        return;
    }
    http_conn_feed(conn, buffer->base, (size_t)n);
}

void http_conn_pump(HttpConn *conn)
{
    if (conn->pumping) {
        return;
    }
    conn->pumping = true;
    while (conn->pending.n > 0 && !conn->exchange && conn->state != CONN_CLOSED &&
           conn->state != CONN_LINGER && http_conn_queued(conn) < NEXT_REQUEST_QUEUE) {
        size_t n = conn->pending.n;
        char *bytes = text_take(&conn->pending);
        http_conn_feed(conn, bytes, n); /* puts back what it did not use */
        free(bytes);
    }
    conn->pumping = false;
    if (conn->read_stopped && conn->pending.n <= HTTP_PENDING_MAX &&
        conn->state != CONN_CLOSED) {
        conn->read_stopped = false;
        uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
    }
}

void http_conn_answered(HttpConn *conn, bool keep_alive)
{
    free(conn->exchange);
    conn->exchange = NULL;
    if (conn->state == CONN_CLOSED) {
        return;
    }
    conn->since_ms = uv_now(conn->server->loop);
    if (keep_alive && !conn->server->freeing) {
        conn->state = CONN_IDLE;
        http_conn_parser_reset(conn);
    } else {
        conn->state = CONN_LINGER;
    }
    http_conn_dirty(conn);
}

static void on_timer(uv_timer_t *timer)
{
    HttpServer *server = (HttpServer *)timer->data;
    uint64_t now = uv_now(server->loop);
    HttpConn *next = NULL;
    for (HttpConn *conn = server->conns; conn; conn = next) {
        next = conn->next;
        uint64_t age = now - conn->since_ms;
        switch (conn->state) {
        case CONN_IDLE:
            if (age > (uint64_t)server->config.idle_ms) {
                http_conn_close(conn);
            }
            break;
        case CONN_READING:
            if (age > (uint64_t)server->config.request_ms) {
                http_conn_refuse(conn, 408);
            }
            break;
        case CONN_LINGER:
            if (age > LINGER_MS && (!conn->flight || age > (uint64_t)server->config.idle_ms)) {
                http_conn_close(conn);
            }
            break;
        case CONN_BUSY:
        case CONN_CLOSED:
            break;
        }
    }
}

static bool peer_is_loopback(const uv_tcp_t *tcp)
{
    struct sockaddr_storage peer;
    int n = (int)sizeof peer;
    if (uv_tcp_getpeername(tcp, (struct sockaddr *)&peer, &n) < 0) {
        return false;
    }
    char name[64] = "";
    if (peer.ss_family == AF_INET) {
        uv_ip4_name((const struct sockaddr_in *)&peer, name, sizeof name);
        return strncmp(name, "127.", 4) == 0;
    }
    uv_ip6_name((const struct sockaddr_in6 *)&peer, name, sizeof name);
    return strcmp(name, "::1") == 0 || strncmp(name, "::ffff:127.", 11) == 0;
}

static void on_connection(uv_stream_t *listener, int status)
{
    HttpServer *server = (HttpServer *)listener->data;
    if (status < 0) {
        return;
    }
    HttpConn *conn = xcalloc(1, sizeof *conn);
    conn->server = server;
    uv_tcp_init(server->loop, &conn->tcp);
    conn->tcp.data = conn;
    conn->write.data = conn;
    conn->since_ms = uv_now(server->loop);
    text_init(&conn->url, server->config.max_header);
    text_init(&conn->head, server->config.max_header);
    text_init(&conn->path, server->config.max_header);
    text_init(&conn->body, server->config.max_body);
    text_init(&conn->pending, HTTP_PENDING_MAX + HTTP_READ_SIZE);
    text_init(&conn->out, SIZE_MAX / 2);
    http_conn_parser_reset(conn);
    conn->next = server->conns;
    if (server->conns) {
        server->conns->previous = conn;
    }
    server->conns = conn;
    server->conn_count++;
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) < 0 ||
        server->conn_count > server->config.max_connections) {
        http_conn_close(conn);
        return;
    }
    uv_tcp_nodelay(&conn->tcp, 1);
    conn->loopback = peer_is_loopback(&conn->tcp);
    if (!uv_is_active((uv_handle_t *)&server->timer)) {
        int64_t least = server->config.idle_ms < server->config.request_ms
                            ? server->config.idle_ms : server->config.request_ms;
        uint64_t every = least / 4 > 1000 ? 1000 : least / 4 < 10 ? 10 : (uint64_t)(least / 4);
        uv_timer_start(&server->timer, on_timer, every, every);
    }
    uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
}

static Err server_bind(HttpServer *server, Fault *fault)
{
    const char *host = server->host;
    int port = server->config.port;
    struct sockaddr_storage address;
    memset(&address, 0, sizeof address);
    const char *number = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    if (uv_ip4_addr(number, port, (struct sockaddr_in *)&address) < 0 &&
        uv_ip6_addr(number, port, (struct sockaddr_in6 *)&address) < 0) {
        return fault_set(fault, ERR_ARG, "give an IP address of this machine, or localhost",
                         "cannot listen on host \"%s\": not an IP address", host);
    }
    int status = uv_tcp_bind(&server->listener, (const struct sockaddr *)&address, 0);
    if (status == 0) {
        status = uv_listen((uv_stream_t *)&server->listener, 1024, on_connection);
    }
    if (status == UV_EADDRINUSE) {
        return fault_set(fault, ERR_EXISTS, "choose another port, or 0 for any free one",
                         "cannot listen on %s:%d: the port is in use", host, port);
    }
    if (status < 0) {
        return fault_set_sys(fault, ERR_IO, -status, "choose another host or port",
                             "cannot listen on %s:%d", host, port);
    }
    int n = (int)sizeof address;
    uv_tcp_getsockname(&server->listener, (struct sockaddr *)&address, &n);
    const unsigned char *be = address.ss_family == AF_INET
        ? (const unsigned char *)&((struct sockaddr_in *)&address)->sin_port
        : (const unsigned char *)&((struct sockaddr_in6 *)&address)->sin6_port;
    server->port = be[0] * 256 + be[1];
    return ERR_OK;
}

static void config_defaults(HttpServerConfig *config)
{
    config->max_header = config->max_header ? config->max_header : 64u * 1024;
    config->max_body = config->max_body ? config->max_body : 64u * 1024 * 1024;
    config->max_connections = config->max_connections ? config->max_connections : 4096;
    config->max_write_queue = config->max_write_queue ? config->max_write_queue
                                                      : 16u * 1024 * 1024;
    config->request_ms = config->request_ms ? config->request_ms : 30000;
    config->idle_ms = config->idle_ms ? config->idle_ms : 75000;
}

Err http_server_new(uv_loop_t *loop, const HttpServerConfig *config, HttpServer **out,
                    Fault *fault)
{
    assert(config->on_request);
    *out = NULL;
    HttpServer *server = xcalloc(1, sizeof *server);
    server->loop = loop;
    server->config = *config;
    config_defaults(&server->config);
    server->host = xstrdup(config->host ? config->host : "127.0.0.1");
    server->server_header = config->server_header ? xstrdup(config->server_header) : NULL;
    uv_tcp_init(loop, &server->listener);
    uv_check_init(loop, &server->check);
    uv_idle_init(loop, &server->idle);
    uv_timer_init(loop, &server->timer);
    uv_unref((uv_handle_t *)&server->timer);
    server->listener.data = server->check.data = server->idle.data = server->timer.data = server;
    server->open_handles = 4;
    server->accepting = true;
    Err err = server_bind(server, fault);
    if (err) {
        http_server_free(server);
        return err;
    }
    *out = server;
    return ERR_OK;
}

int http_server_port(const HttpServer *server)
{
    return server->port;
}

static void on_handle_closed(uv_handle_t *handle)
{
    server_handle_closed((HttpServer *)handle->data);
}

void http_server_stop_accepting(HttpServer *server)
{
    if (server->accepting) {
        server->accepting = false;
        uv_close((uv_handle_t *)&server->listener, on_handle_closed);
    }
}

void http_server_free(HttpServer *server)
{
    if (!server) {
        return;
    }
    server->freeing = true;
    http_server_stop_accepting(server);
    for (HttpConn *conn = server->conns; conn; conn = conn->next) {
        http_conn_close(conn);
    }
    uv_close((uv_handle_t *)&server->check, on_handle_closed);
    uv_close((uv_handle_t *)&server->idle, on_handle_closed);
    uv_close((uv_handle_t *)&server->timer, on_handle_closed);
}
