/* Plain HTTP/1.1: one socket a call, http-parser for the framing, one read buffer for all. Kept
 * connections stand in buckets by address, newest first; one that has gone stale is found by a look
 * before it is used. Where it dies after that and before any byte came, a request that may be
 * repeated is sent once more, on a connection of its own. */
#include "core/net/http_plain.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <http_parser.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PLAIN_HEAD = 255, /* bytes of most heads, so that one allocation holds them */
    PLAIN_READ_SIZE = 64 << 10,
    PLAIN_READS_AT_ONCE = 4,  /* of a connection, before others have their turn */
    PLAIN_INTERIMS = 64,      /* replies below 200 before the one that counts */
    PLAIN_POOL_AGE_MS = 20000,
    PLAIN_POOL_MAX = 4096,
    PLAIN_LINE = 64,
    PLAIN_TOUCHED = 4 * PLAIN_LINE /* of each object of the user's */
};

typedef enum HeadPart { HEAD_NOTHING, HEAD_STATUS, HEAD_NAME, HEAD_VALUE } HeadPart;

struct HttpPlainConn {
    HttpCall *call;        /* NULL while kept */
    HttpClient *client;
    int fd;
    HeadPart part;
    int interims;
    bool connecting, writing, finished, keep, watched;
    http_parser parser;
    Text request;          /* what has not been sent; freed once it is */
    Text again;            /* the whole of it, while it may have to be sent once more */
    size_t sent;
    HttpPlainConn *next;   /* in its bucket, or in client->swept */
    struct sockaddr_in address;
    uint64_t kept_ms;
};

/* ---- connections ----------------------------------------------------------------------------- */

static HttpPlainConn **bucket_of(HttpClient *client, const struct sockaddr_in *address)
{
    uint32_t mixed = ntohl(address->sin_addr.s_addr) * 31u + ntohs(address->sin_port);
    return &client->kept[mixed * 2654435761u >> (32 - HTTP_PLAIN_BUCKET_BITS)];
}

static void watch(HttpPlainConn *conn, bool writing)
{
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0u), .data.ptr = conn};
    int verb = conn->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (!conn->watched || writing != conn->writing) {
        (void)epoll_ctl(conn->client->epoll_fd, verb, conn->fd, &event);
    }
    conn->watched = true;
    conn->writing = writing;
}

/* Ready sockets are taken in batches: a connection that closes within one may stand further on in
 * it, so its memory goes when the batch is done. */
static void conn_close(HttpPlainConn *conn)
{
    HttpClient *client = conn->client;
    if (conn->watched) { /* a child between fork and exec would keep it in the set */
        (void)epoll_ctl(client->epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    }
    close(conn->fd);
    conn->fd = -1;
    text_free(&conn->request);
    text_free(&conn->again);
    conn->next = client->swept;
    client->swept = conn;
    if (!client->taking) {
        http_plain_sweep(client);
    }
}

void http_plain_sweep(HttpClient *client)
{
    while (client->swept) {
        HttpPlainConn *conn = client->swept;
        client->swept = conn->next;
        free(conn);
    }
}

static void unkeep(HttpPlainConn *conn)
{
    HttpPlainConn **at = bucket_of(conn->client, &conn->address);
    while (*at != conn) {
        at = &(*at)->next;
    }
    *at = conn->next;
    conn->client->kept_count--;
}

/* Nothing to read, and no end either. */
static bool is_alive(const HttpPlainConn *conn)
{
    char byte;
    return recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static HttpPlainConn *take_kept(HttpClient *client, const struct sockaddr_in *address)
{
    HttpPlainConn **bucket = bucket_of(client, address);
    HttpPlainConn *next = NULL;
    for (HttpPlainConn *conn = *bucket; conn; conn = next) {
        next = conn->next;
        const bool old = uv_now(client->loop) - conn->kept_ms > PLAIN_POOL_AGE_MS;
        const bool ours = memcmp(&conn->address, address, sizeof *address) == 0;
        if (!old && !ours) {
            continue;
        }
        unkeep(conn);
        if (!old && is_alive(conn)) {
            return conn;
        }
        conn_close(conn);
    }
    return NULL;
}

void http_plain_pool_free(HttpClient *client)
{
    for (int i = 0; i < HTTP_PLAIN_BUCKETS; i++) {
        while (client->kept[i]) {
            HttpPlainConn *conn = client->kept[i];
            unkeep(conn);
            conn_close(conn);
        }
    }
    free(client->read_buffer);
    client->read_buffer = NULL;
}

void http_plain_release(HttpCall *call)
{
    HttpPlainConn *conn = call->plain;
    HttpClient *client = call->client;
    if (!conn) {
        return;
    }
    call->plain = NULL;
    conn->call = NULL;
    http_client_watched(client, -1);
    if (!conn->keep || client->gone || client->kept_count >= PLAIN_POOL_MAX) {
        conn_close(conn);
        return;
    }
    HttpPlainConn **bucket = bucket_of(client, &conn->address);
    text_free(&conn->again);
    conn->kept_ms = uv_now(client->loop);
    conn->next = *bucket;
    *bucket = conn;
    client->kept_count++;
}

/* ---- the reply ------------------------------------------------------------------------------- */

static HttpCall *call_of(const http_parser *parser)
{
    return ((HttpPlainConn *)parser->data)->call;
}

/* The head is kept as lines, as http_call_header reads them. */
static bool add_part(http_parser *parser, HeadPart part, const char *at, size_t n)
{
    HttpPlainConn *conn = parser->data;
    Text *head = &conn->call->headers;
    bool good = true;
    if (conn->part == HEAD_NOTHING) {
        (void)text_reserve(head, PLAIN_HEAD);
        good = text_addf(head, "HTTP/%d.%d %d ", parser->http_major, parser->http_minor,
                         parser->status_code);
    }
    if (part == HEAD_NAME && conn->part != HEAD_NAME) {
        good = good && text_add(head, "\r\n", 2);
    } else if (part == HEAD_VALUE && conn->part != HEAD_VALUE) {
        good = good && text_add(head, ": ", 2);
    }
    conn->part = part;
    good = good && text_add(head, at, n);
    if (!good) {
        conn->call->forced = HTTP_END_TOO_LARGE;
    }
    return good;
}

static int on_message_begin(http_parser *parser)
{
    HttpPlainConn *conn = parser->data; /* an interim reply (100) may have come before */
    text_clear(&conn->call->headers);
    conn->call->head_whole = false;
    conn->part = HEAD_NOTHING;
    return 0;
}

static int on_status(http_parser *parser, const char *at, size_t n)
{
    return add_part(parser, HEAD_STATUS, at, n) ? 0 : 1;
}

static int on_field(http_parser *parser, const char *at, size_t n)
{
    /* Behind the body it is a trailer. */
    return call_of(parser)->head_whole || add_part(parser, HEAD_NAME, at, n) ? 0 : 1;
}

static int on_value(http_parser *parser, const char *at, size_t n)
{
    return call_of(parser)->head_whole || add_part(parser, HEAD_VALUE, at, n) ? 0 : 1;
}

static int on_headers_complete(http_parser *parser)
{
    HttpCall *call = call_of(parser);
    parser->upgrade = 0;
    if (!add_part(parser, HEAD_STATUS, "\r\n\r\n", 4)) {
        return -1; /* 1 would only say that no body follows */
    }
    call->status = parser->status_code;
    call->head_whole = true;
    if (call->status < 200) { /* no body follows, whatever its headers say: 1 */
        HttpPlainConn *conn = parser->data;
        call->forced = ++conn->interims > PLAIN_INTERIMS ? HTTP_END_TOO_LARGE : HTTP_END_OK;
        return call->forced == HTTP_END_OK ? 1 : -1;
    }
    if (parser->content_length != UINT64_MAX && parser->content_length > call->spec.max_body) {
        call->forced = HTTP_END_TOO_LARGE;
        return -1;
    }
    if (call->spec.on_head && !call->queued_end) {
        call->spec.on_head(call, call->status, call->spec.user);
    }
    return 0;
}

static int on_chunk_header(http_parser *parser)
{
    HttpCall *call = call_of(parser);
    if (parser->content_length > call->spec.max_body - call->body_bytes) {
        call->forced = HTTP_END_TOO_LARGE;
        return 1;
    }
    return 0;
}

static int on_body(http_parser *parser, const char *at, size_t n)
{
    HttpCall *call = call_of(parser);
    if (call->queued_end) {
        return 1;
    }
    call->body_bytes += n;
    if (call->body_bytes > call->spec.max_body) {
        call->forced = HTTP_END_TOO_LARGE;
        return 1;
    }
    if (!call->spec.on_body) {
        call->forced = text_add(&call->collected, at, n) ? HTTP_END_OK : HTTP_END_TOO_LARGE;
    } else if (!call->spec.on_body(call, (Str){at, n}, call->spec.user)) {
        call->forced = HTTP_END_CANCELLED;
    }
    return call->forced == HTTP_END_OK ? 0 : 1;
}

static int on_message_complete(http_parser *parser)
{
    HttpPlainConn *conn = parser->data;
    if (parser->status_code < 200) {
        return 0; /* the reply itself follows */
    }
    conn->finished = true;
    conn->keep = http_should_keep_alive(parser) != 0;
    http_parser_pause(parser, 1);
    return 0;
}

static void end_call(HttpCall *call, HttpEnd end, const char *words)
{
    if (call->queued_end) {
        return; /* the queue ends it, with the user's reason */
    }
    (void)str_format(call->words, sizeof call->words, "%s", words);
    http_call_finish(call, call->forced != HTTP_END_OK ? call->forced : end);
}

/* Feeds what came, 0 bytes for the end of the connection. False: the call is over. */
static bool feed(HttpPlainConn *conn, const char *bytes, size_t n)
{
    static const http_parser_settings settings = {
        .on_message_begin = on_message_begin, .on_status = on_status,
        .on_header_field = on_field, .on_header_value = on_value,
        .on_headers_complete = on_headers_complete, .on_chunk_header = on_chunk_header,
        .on_body = on_body, .on_message_complete = on_message_complete};
    HttpCall *call = conn->call;
    size_t used = http_parser_execute(&conn->parser, &settings, bytes, n);
    enum http_errno error = HTTP_PARSER_ERRNO(&conn->parser);
    if (conn->finished) {
        /* A request that was answered before all of it had left would go on in the next one. */
        conn->keep = conn->keep && used == n && n > 0 && conn->request.n == 0;
        end_call(call, HTTP_END_OK, "");
        return false;
    }
    if (error == HPE_OK && n > 0) {
        return !call->queued_end;
    }
    conn->keep = false;
    if (error == HPE_OK || error == HPE_INVALID_EOF_STATE) {
        end_call(call, HTTP_END_RESET, "connection closed before the reply was whole");
    } else if (error == HPE_HEADER_OVERFLOW) {
        end_call(call, HTTP_END_TOO_LARGE, "");
    } else {
        end_call(call, HTTP_END_MALFORMED, http_errno_description(error));
    }
    return false;
}

static bool start_again(HttpPlainConn *conn);

static void read_reply(HttpPlainConn *conn)
{
    HttpClient *client = conn->client;
    if (!client->read_buffer) {
        client->read_buffer = xcalloc(1, PLAIN_READ_SIZE);
    }
    for (int i = 0; i < PLAIN_READS_AT_ONCE; i++) {
        ssize_t got = recv(conn->fd, client->read_buffer, PLAIN_READ_SIZE, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (got <= 0 && start_again(conn)) {
            return;
        }
        if (got < 0) {
            conn->keep = false;
            end_call(conn->call, HTTP_END_RESET, strerror(errno));
            return;
        }
        if (got > 0) {
            http_call_saw_bytes(conn->call);
        }
        if (!feed(conn, client->read_buffer, (size_t)got) || got < PLAIN_READ_SIZE) {
            return;
        }
    }
}

/* ---- the request ----------------------------------------------------------------------------- */

/* False: the connection failed, errno says how. */
static bool send_some(HttpPlainConn *conn)
{
    while (conn->sent < conn->request.n) {
        ssize_t n = send(conn->fd, conn->request.p + conn->sent, conn->request.n - conn->sent,
                         MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        conn->sent += (size_t)n;
        conn->call->last_ms = uv_now(conn->client->loop);
    }
    text_free(&conn->request);
    return true;
}

static void connected(HttpPlainConn *conn)
{
    HttpCall *call = conn->call;
    conn->connecting = false;
    call->connected = true;
    call->last_ms = uv_now(conn->client->loop);
    call->connect_us = clock_mono_us();
}

/* A reply may stand in the socket although the rest of the request cannot leave any more. */
static void write_request(HttpPlainConn *conn)
{
    if (!send_some(conn)) {
        text_free(&conn->request);
        conn->sent = 0;
    }
    watch(conn, conn->request.n > 0);
}

static void connect_done(HttpPlainConn *conn)
{
    int error = 0;
    socklen_t n = sizeof error;
    getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (error != 0) {
        end_call(conn->call, HTTP_END_REFUSED, strerror(error));
        return;
    }
    connected(conn);
    write_request(conn);
}

void http_plain_ready(HttpPlainConn *conn, uint32_t events)
{
    if (conn->fd < 0) {
        return; /* closed earlier in this batch */
    }
    if (!conn->call) { /* a kept one: its peer has closed, or speaks unasked */
        unkeep(conn);
        conn_close(conn);
        return;
    }
    if (conn->connecting) {
        connect_done(conn);
        return;
    }
    if (events & EPOLLOUT) {
        write_request(conn);
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        read_reply(conn);
    }
}

static void fetch(const void *object, size_t bytes)
{
    for (size_t at = 0; object && at < bytes; at += PLAIN_LINE) {
        __builtin_prefetch((const char *)object + at, 1);
    }
}

void http_plain_near(const HttpPlainConn *conn, int turns)
{
    if (turns == 3) {
        fetch(conn, offsetof(HttpPlainConn, request) + sizeof(Text));
    } else if (turns == 2) {
        fetch(conn->call, offsetof(HttpCall, spec) + sizeof(HttpRequestSpec));
    } else if (conn->call) {
        for (int i = 0; i < HTTP_TOUCHED; i++) {
            fetch(conn->call->spec.touched[i], PLAIN_TOUCHED);
        }
    }
}

static HttpPlainConn *conn_open(HttpClient *client, const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return NULL;
    }
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    HttpPlainConn *conn = xcalloc(1, sizeof *conn);
    conn->client = client;
    conn->fd = fd;
    conn->address = *address;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        if (errno != EINPROGRESS) {
            int error = errno;
            close(fd);
            free(conn);
            errno = error;
            return NULL;
        }
        conn->connecting = true;
    }
    return conn;
}

/* A call and its connection, new or kept, come together. */
static void begin(HttpCall *call, HttpPlainConn *conn)
{
    call->plain = conn;
    conn->call = call;
    conn->finished = conn->keep = false;
    conn->sent = 0;
    conn->interims = 0;
    http_parser_init(&conn->parser, HTTP_RESPONSE);
    conn->parser.data = conn;
    if (conn->connecting) {
        watch(conn, true);
        return;
    }
    connected(conn);
    write_request(conn);
}

/* The kept connection died under a request that may be repeated, before any byte of a reply. */
static bool start_again(HttpPlainConn *conn)
{
    HttpCall *call = conn->call;
    if (conn->again.n == 0 || call->first_us > 0 || call->queued_end) {
        return false;
    }
    HttpPlainConn *fresh = conn_open(conn->client, &conn->address);
    if (!fresh) {
        return false;
    }
    fresh->request = conn->again;
    conn->again = (Text){0};
    conn->call = NULL;
    conn_close(conn);
    call->fresh = true;
    call->connected = false;
    begin(call, fresh);
    return true;
}

void http_plain_start(HttpCall *call, const HttpPlainTarget *target)
{
    HttpClient *client = call->client;
    HttpPlainConn *conn = take_kept(client, &target->address);
    if (!conn) {
        conn = conn_open(client, &target->address);
        call->fresh = true;
    }
    if (!conn) {
        (void)str_format(call->words, sizeof call->words, "%s", strerror(errno));
        call->forced = HTTP_END_REFUSED;
        http_call_cancel(call);
        return;
    }
    http_plain_request(call, target, &conn->request);
    if (call->spec.idempotent && !call->fresh) {
        text_init(&conn->again, SIZE_MAX / 4);
        text_add(&conn->again, conn->request.p, conn->request.n);
    }
    http_client_watched(client, 1);
    begin(call, conn);
}
