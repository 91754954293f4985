/* Private to the HTTP client: plain HTTP/1.1 to a numeric address, without libcurl.
 *
 * A generation stream brings a small piece for every token, thousands of streams at a time; a
 * policy update makes seven calls to each of a thousand engines while the gate is closed. curl
 * takes 1.5 us a piece, 75 KiB a stream and some 40 us a call; what those calls need of it is one
 * connected socket and the framing of a reply. So a call goes this way when it is "http://" and an
 * address in digits, and no proxy is set for it; everything else (names, TLS, proxies) is curl's.
 * Bounds, ends and callbacks are those of http_call.c. */
#ifndef ROLLTOP_NET_HTTP_PLAIN_H
#define ROLLTOP_NET_HTTP_PLAIN_H

#include "core/net/http_local.h"

#include <netinet/in.h>

typedef struct HttpPlainTarget { /* host and path lie in the URL */
    struct sockaddr_in address;
    Str host; /* with the port, as the Host header wants it */
    const char *path;
} HttpPlainTarget;

/* True when `spec` may go this way; *target is then set. */
bool http_plain_takes(const HttpRequestSpec *spec, HttpPlainTarget *target);
/* The whole request, head and body. */
void http_plain_request(const HttpCall *call, const HttpPlainTarget *target, Text *out);
/* Connects, or takes a kept connection, and sends; the body need not outlive this. What fails at
 * once is put on the call and told from the loop, as all ends are. */
void http_plain_start(HttpCall *call, const HttpPlainTarget *target);
/* The call is over: its connection is kept if the reply was whole, else closed. */
void http_plain_release(HttpCall *call);
/* `events` are epoll's. May finish the call, and so run callbacks of the user. */
void http_plain_ready(HttpPlainConn *conn, uint32_t events);
/* The connection is ready and will have its turn in `turns` (3, 2, 1): fetches what that will
 * touch, step by step, as each step is found through the one before. */
void http_plain_near(const HttpPlainConn *conn, int turns);
void http_plain_pool_free(HttpClient *client);
/* Frees connections that were closed while a batch of ready sockets was being worked through. */
void http_plain_sweep(HttpClient *client);

#endif
