/* HTTP/1.1 server on a libuv loop (http-parser): local engine, local frontend, gateway, metrics.
 *
 * Binds loopback unless told otherwise. Keep-alive, pipelining (answered in order), chunked
 * request bodies, Expect: 100-continue, HTTP/1.0. Bounds: header bytes, body bytes, connections,
 * bytes queued to a slow reader, time for a request to arrive whole, idle time.
 * Every exchange is answered exactly once: http_reply, or http_stream_begin … http_stream_end. */
#ifndef ROLLTOP_NET_HTTP_SERVER_H
#define ROLLTOP_NET_HTTP_SERVER_H

#include "core/base/str.h"

#include <uv.h>

typedef struct HttpServer HttpServer;
typedef struct HttpExchange HttpExchange; /* one request and its answer */

typedef struct HttpServerConfig {
    const char *host;       /* "127.0.0.1" when NULL */
    int port;               /* 0: any free port */
    size_t max_header;      /* 0: 64 KiB */
    size_t max_body;        /* 0: 64 MiB */
    int max_connections;    /* 0: 4096 */
    size_t max_write_queue; /* per connection, 0: 16 MiB; over it the connection is closed */
    int64_t request_ms;     /* 0: 30 s */
    int64_t idle_ms;        /* 0: 75 s */
    const char *server_header; /* NULL: none */
    /* A whole request came. Pointers got from `exchange` are valid until it is answered or
     * closed. The handler may answer at once or keep `exchange` and answer later. */
    void (*on_request)(HttpExchange *exchange, void *user);
    /* The client went away (read-side EOF, reset) before the answer was whole. The exchange is
     * dead after this returns. Not called for answered exchanges, nor from http_server_free.
     * May be NULL. */
    void (*on_gone)(HttpExchange *exchange, void *user);
    /* A request that the server itself refuses: 400 (not HTTP), 408, 413, 431. Must answer with
     * http_reply before it returns; the connection is closed behind the answer. NULL: an error
     * object in the shape that SGLang and Dynamo share. */
    void (*on_refused)(HttpExchange *exchange, int status, const char *why, void *user);
    void *user;
} HttpServerConfig;

/* ERR_EXISTS with the address in the sentence when the port is taken. */
Err http_server_new(uv_loop_t *loop, const HttpServerConfig *config, HttpServer **out,
                    Fault *fault);
int http_server_port(const HttpServer *server);
void http_server_stop_accepting(HttpServer *server);
void http_server_free(HttpServer *server); /* closes connections; loop must run once more */

Str http_method(const HttpExchange *exchange);
Str http_path(const HttpExchange *exchange);  /* without query, percent-decoded */
/* Value of a query key, percent-decoded into `out`; false when absent. */
bool http_query_get(const HttpExchange *exchange, const char *key, Text *out);
Str http_header(const HttpExchange *exchange, const char *name); /* case-insensitive */
Str http_body(const HttpExchange *exchange);
bool http_peer_is_loopback(const HttpExchange *exchange);
void http_set_user(HttpExchange *exchange, void *user); /* per-exchange pointer */
void *http_get_user(const HttpExchange *exchange);

/* `content_type` NULL: none is sent. Extra headers: "Name: value" lines, NULL-terminated. */
void http_reply(HttpExchange *exchange, int status, const char *content_type, Str body,
                const char *const *headers);
void http_reply_json(HttpExchange *exchange, int status, const Text *json);
void http_stream_begin(HttpExchange *exchange, int status, const char *content_type,
                       const char *const *headers);
/* One HTTP chunk. False: the connection is being closed (reader too slow, or gone); on_gone
 * follows from the event loop unless http_stream_end comes first. */
bool http_stream_write(HttpExchange *exchange, Str piece);
void http_stream_end(HttpExchange *exchange);
/* Faults and tests: cut the connection without finishing the answer. */
void http_drop(HttpExchange *exchange);

#endif
