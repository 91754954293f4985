/* A peer that does what each path says, right or wrong, and a client that asks it: over our own
 * sockets and over curl's, whole replies and bodies in pieces. */
#ifndef ROLLTOP_TESTS_NET_HTTP_CLIENT_RIG_H
#define ROLLTOP_TESTS_NET_HTTP_CLIENT_RIG_H

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/net/http_client.h"
#include "tests/harness.h"
#include "tests/net/raw_server.h"

typedef struct Done {
    int count, status, pieces, heads;
    HttpEnd end;
    char body[4096], headers[4096], error[128];
    double retry_after_s;
    int64_t connect_us, first_byte_us, total_us;
    uint64_t body_bytes;
    int stop_after; /* pieces; 0: never */
    HttpClient *client, *free_in_done;
    HttpRequestSpec *again; /* started from on_done */
    struct Done *again_done;
    HttpCall *cancel_in_body;
} Done;

static uv_loop_t loop;
static HttpClient *client;
static RawServer server;
static char *url_storage[64];
static int url_count;
static bool in_pieces; /* bodies are taken in pieces */
static const char *host; /* a name is curl's, digits are not (http_plain.h) */

static inline bool endless(int fd, const char *piece, long gap_ms)
{
    for (int i = 0; i < 2000; i++) {
        if (send(fd, piece, strlen(piece), MSG_NOSIGNAL) <= 0) {
            return false;
        }
        raw_sleep_ms(gap_ms);
    }
    return false;
}

static inline bool broken(const RawRequest *r)
{
    if (strcmp(r->path, "/cut") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789");
    } else if (strcmp(r->path, "/cut-chunk") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    } else if (strcmp(r->path, "/cut-head") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nContent-Le");
    } else if (strcmp(r->path, "/bad-chunk") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nhello\r\n");
    } else if (strcmp(r->path, "/not-http") == 0) {
        raw_print(r->fd, "SSH-2.0-OpenSSH_9.2\r\n");
    } else if (strcmp(r->path, "/silent") == 0) {
        raw_sleep_ms(90000);
    } else if (strcmp(r->path, "/silent-body") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789");
        raw_sleep_ms(90000);
    } else if (strcmp(r->path, "/drip") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\n\r\n");
        return endless(r->fd, "x", 20);
    } else if (strcmp(r->path, "/big-line") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nX: ");
        return endless(r->fd, "0123456789012345678901234567890123456789012345678901234567890123"
                              "01234567890123456789012345678901234567890123456789012345678901",
                       0);
    } else if (strcmp(r->path, "/many-lines") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\n");
        return endless(r->fd, "X-Line: 0123456789012345678901234567890123456789012345678901\r\n",
                       0);
    } else if (strcmp(r->path, "/interims") == 0) {
        return endless(r->fd, "HTTP/1.1 100 Continue\r\n\r\n", 0);
    } else if (strcmp(r->path, "/switch") == 0) {
        raw_print(r->fd, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
                         "Connection: upgrade\r\n\r\nnot HTTP any more");
    } else if (strcmp(r->path, "/both-lengths") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"
                         "\r\n5\r\nhello\r\n0\r\n\r\n");
    } else if (strcmp(r->path, "/two-lengths") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\n"
                         "hello");
    } else if (strcmp(r->path, "/less-than-none") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello");
    } else if (strcmp(r->path, "/big-chunk") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "7fffffff\r\nhello");
        raw_sleep_ms(90000);
    } else if (strcmp(r->path, "/trailers") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "5\r\nhello\r\n0\r\n");
        return endless(r->fd, "X-Line: 0123456789012345678901234567890123456789012345678901\r\n",
                       0);
    } else if (strcmp(r->path, "/big-length") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\nabc");
        raw_sleep_ms(90000);
    } else if (strcmp(r->path, "/big-stream") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\n\r\n");
        return endless(r->fd, "0123456789012345678901234567890123456789012345678901234567890123",
                       0);
    }
    return false;
}

static inline bool handler(const RawRequest *r, void *user)
{
    (void)user;
    char text[64];
    if (strcmp(r->path, "/ok") == 0) {
        raw_reply(r->fd, 200, "X-One: a\r\nx-one: b \r\n", "hello");
    } else if (strcmp(r->path, "/echo") == 0) {
        char *all = xasprintf("%s|%.*s", r->head, (int)r->body_bytes, r->body);
        raw_reply(r->fd, 200, "", all);
        free(all);
    } else if (strcmp(r->path, "/connection") == 0) {
        snprintf(text, sizeof text, "%d %d", r->connection, r->number);
        raw_reply(r->fd, 200, "", text);
    } else if (strcmp(r->path, "/stale") == 0) {
        if (r->number == 2) {
            return false; /* the second request of a kept connection dies without a byte */
        }
        snprintf(text, sizeof text, "%d %d", r->connection, r->number);
        raw_reply(r->fd, 200, "", text);
    } else if (strcmp(r->path, "/chunked") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (int i = 0; i < 5; i++) {
            raw_print(r->fd, "4\r\nabcd\r\n");
            raw_sleep_ms(10);
        }
        raw_print(r->fd, "0\r\n\r\n");
    } else if (strcmp(r->path, "/interim") == 0) {
        raw_print(r->fd, "HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n");
        raw_reply(r->fd, 201, "", "made");
    } else if (strcmp(r->path, "/interim-length") == 0) {
        raw_print(r->fd, "HTTP/1.1 102 Wait\r\nContent-Length: 900\r\n\r\n");
        raw_reply(r->fd, 201, "", "made");
    } else if (strcmp(r->path, "/trailer") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-One\r\n\r\n"
                         "4;ext=\"a\"\r\nmade\r\n0\r\nX-One: late\r\nContent-Length: 9\r\n\r\n");
    } else if (strcmp(r->path, "/early") == 0) { /* its body is too long to be read here */
        raw_reply(r->fd, 413, "", "too long");
        raw_sleep_ms(90000);
        return false;
    } else if (strcmp(r->path, "/redirect") == 0) {
        raw_reply(r->fd, 302, "Location: /ok\r\n", "moved");
    } else if (strcmp(r->path, "/busy") == 0) {
        raw_reply(r->fd, 429, "Retry-After: 2\r\n", "busy");
    } else if (strcmp(r->path, "/busy-date") == 0) {
        raw_reply(r->fd, 503, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n", "busy");
    } else if (strcmp(r->path, "/busy-rubbish") == 0) {
        raw_reply(r->fd, 503, "Retry-After: soon\r\n", "busy");
    } else {
        return broken(r);
    }
    return true;
}

static inline bool on_body(HttpCall *call, Str piece, void *user)
{
    Done *done = user;
    size_t n = strlen(done->body);
    done->pieces++;
    if (n + piece.n < sizeof done->body) {
        memcpy(done->body + n, piece.p, piece.n);
    }
    if (done->cancel_in_body) {
        http_call_cancel(call);
    }
    if (done->again) { /* a start from inside curl's own callback */
        HttpRequestSpec *again = done->again;
        done->again = NULL;
        CHECK_I64(http_start(done->client, again, NULL, NULL), ERR_OK);
    }
    return done->stop_after == 0 || done->pieces < done->stop_after;
}

static inline void on_head(HttpCall *call, int status, void *user)
{
    CHECK_I64(http_call_status(call), status);
    ((Done *)user)->heads++;
}

static inline void on_done(HttpCall *call, const HttpResult *result, void *user)
{
    Done *done = user;
    done->count++;
    done->status = result->status;
    done->end = result->end;
    CHECK_I64(http_call_status(call), result->status);
    if (result->body.n > 0 && result->body.n < sizeof done->body) {
        memcpy(done->body, result->body.p, result->body.n);
    }
    if (result->headers.n > 0 && result->headers.n < sizeof done->headers) {
        memcpy(done->headers, result->headers.p, result->headers.n);
    }
    done->retry_after_s = result->retry_after_s;
    done->connect_us = result->connect_us;
    done->first_byte_us = result->first_byte_us;
    done->total_us = result->total_us;
    done->body_bytes = result->body_bytes;
    memcpy(done->error, result->error, sizeof done->error);
    if (done->again) {
        HttpRequestSpec *again = done->again;
        done->again = NULL;
        CHECK_I64(http_start(done->client, again, NULL, NULL), ERR_OK);
    }
    if (done->free_in_done) {
        http_client_free(done->free_in_done);
    }
}

static inline const char *path(const char *p)
{
    char *url = xasprintf("http://%s:%d%s", host, server.port, p);
    free(url_storage[url_count % 64]); /* a handful a test: that one is long done with */
    url_storage[url_count++ % 64] = url;
    return url;
}

static inline HttpRequestSpec get(const char *p, Done *done)
{
    *done = (Done){.client = client};
    return (HttpRequestSpec){.method = "GET", .url = path(p), .on_done = on_done, .user = done,
                             .on_body = in_pieces ? on_body : NULL};
}

static inline void run(const HttpRequestSpec *spec)
{
    Fault fault = {0};
    Done *done = spec->user;
    CHECK_I64(http_start(client, spec, NULL, &fault), ERR_OK);
    CHECK_I64(done->count, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(done->count, 1);
}

/* Runs the checks once each way. */
static inline int rig_run(void (*all)(void))
{
    server = raw_server_start(handler, NULL);
    uv_loop_init(&loop);
    Fault fault = {0};
    HttpClientConfig config = {.connect_ms = 60000, .silence_ms = 60000, .total_ms = 60000};
    CHECK_I64(http_client_new(&loop, &config, &client, &fault), ERR_OK);
    for (int i = 0; i < 4; i++) {
        in_pieces = i % 2 == 1;
        host = i < 2 ? "127.0.0.1" : "localhost";
        printf("%s, %s:\n", in_pieces ? "in pieces" : "whole", host);
        all();
    }
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
    raw_server_stop(&server);
    for (int i = 0; i < 64; i++) {
        free(url_storage[i]);
    }
    return test_end();
}

#endif
