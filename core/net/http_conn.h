/* Private to the HTTP server: connections and what http_exchange.c needs of them.
 *
 * One exchange is open on a connection at a time; bytes behind it wait in `pending`, bounded.
 * Output gathers in `out` and leaves in one write a loop turn (check phase); at most one libuv
 * write is in flight. User callbacks run from read, check and close callbacks only, so answering
 * one exchange never re-enters the user's handler. */
#ifndef ROLLTOP_NET_HTTP_CONN_H
#define ROLLTOP_NET_HTTP_CONN_H

#include "core/net/http_server.h"

#include <http_parser.h>

enum { HTTP_FIELDS_MAX = 128, HTTP_PENDING_MAX = 64 * 1024, HTTP_READ_SIZE = 16 * 1024 };

typedef enum ConnState {
    CONN_IDLE,    /* between requests */
    CONN_READING, /* a request has begun */
    CONN_BUSY,    /* an exchange is open */
    CONN_LINGER,  /* answered for the last time; input is thrown away */
    CONN_CLOSED   /* uv_close was called */
} ConnState;

typedef struct HttpField {
    size_t name_at, name_n, value_at, value_n; /* into head */
} HttpField;

typedef struct HttpConn HttpConn;

struct HttpExchange {
    HttpConn *conn;
    void *user;
    bool streaming, chunked, head_request, keep_alive;
};

struct HttpConn {
    uv_tcp_t tcp;
    uv_write_t write;
    uv_shutdown_t shutdown;
    http_parser parser;
    HttpServer *server;
    HttpConn *previous, *next; /* all connections of the server */
    HttpConn *next_dirty;
    bool dirty, pumping, in_value, message_done, loopback, read_stopped, shut;
    int refuse; /* status the server itself answers with, 0: none */
    ConnState state;
    uint64_t since_ms; /* of the state, or of the last write that got on */
    HttpExchange *exchange;
    HttpField fields[HTTP_FIELDS_MAX];
    size_t field_count;
    Text url, head, path, body, pending, out;
    Str query;
    char *flight; /* bytes of the write in flight */
    size_t flight_n;
};

struct HttpServer {
    uv_loop_t *loop;
    HttpServerConfig config;
    char *host, *server_header;
    uv_tcp_t listener;
    uv_check_t check;
    uv_idle_t idle;
    uv_timer_t timer;
    HttpConn *conns, *dirty;
    int conn_count, open_handles, port;
    bool accepting, freeing;
    char *read_buffer;
    char date[40];
    int64_t date_s;
};

/* Output was added, or the connection can go on to its next request. */
void http_conn_dirty(HttpConn *conn);
void http_conn_close(HttpConn *conn);
size_t http_conn_queued(const HttpConn *conn);
/* The open exchange was answered; the connection goes on or ends. */
void http_conn_answered(HttpConn *conn, bool keep_alive);
/* Parses pending bytes and dispatches requests until an exchange is open. */
void http_conn_pump(HttpConn *conn);
void http_conn_feed(HttpConn *conn, const char *bytes, size_t n);
void http_conn_parser_reset(HttpConn *conn);
/* Answers the request in progress with an error of the server's own. */
void http_conn_refuse(HttpConn *conn, int status);

#endif
