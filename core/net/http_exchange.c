/* Answers: whole replies and chunked streams, written into the connection's output buffer. */
#include "core/net/http_server.h"

#include "core/base/clock.h"
#include "core/net/http_conn.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *reason_phrase(int status)
{
    static const struct { int status; const char *phrase; } table[] = {
        {200, "OK"}, {202, "Accepted"}, {204, "No Content"}, {400, "Bad Request"},
        {401, "Unauthorized"}, {403, "Forbidden"}, {404, "Not Found"},
        {405, "Method Not Allowed"}, {408, "Request Timeout"}, {409, "Conflict"},
        {413, "Payload Too Large"}, {415, "Unsupported Media Type"}, {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"}, {499, "Client Closed Request"},
        {500, "Internal Server Error"}, {501, "Not Implemented"}, {502, "Bad Gateway"},
        {503, "Service Unavailable"}, {504, "Gateway Timeout"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].status == status) {
            return table[i].phrase;
        }
    }
    return "<none>"; /* what Dynamo sends for 529 */
}

static const char *date_text(HttpServer *server)
{
    time_t now = (time_t)(clock_wall_us() / 1000000);
    if (now != server->date_s) {
        struct tm parts;
        gmtime_r(&now, &parts);
        static const char days[] = "SunMonTueWedThuFriSat";
        static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
        (void)str_format(server->date, sizeof server->date,
                         "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + parts.tm_wday * 3,
                         parts.tm_mday, months + parts.tm_mon * 3, parts.tm_year + 1900,
                         parts.tm_hour, parts.tm_min, parts.tm_sec);
        server->date_s = now;
    }
    return server->date;
}

/* Status line and headers up to, not with, the empty line. A header that holds a line break is
 * our own mistake: values from outside are checked by whoever echoes them. */
static void add_head(HttpExchange *exchange, int status, const char *content_type,
                     const char *const *headers)
{
    HttpConn *conn = exchange->conn;
    Text *out = &conn->out;
    text_reserve(out, 512);
    char line[32];
    int n = snprintf(line, sizeof line, "HTTP/1.1 %d ", status);
    text_add(out, line, (size_t)n);
    text_add_c(out, reason_phrase(status));
    text_add_c(out, "\r\ndate: ");
    text_add_c(out, date_text(conn->server));
    if (conn->server->server_header) {
        text_add_c(out, "\r\nserver: ");
        text_add_c(out, conn->server->server_header);
    }
    if (content_type) {
        text_add_c(out, "\r\ncontent-type: ");
        text_add_c(out, content_type);
    }
    for (size_t i = 0; headers && headers[i]; i++) {
        assert(!strpbrk(headers[i], "\r\n"));
        text_add_c(out, "\r\n");
        text_add_c(out, headers[i]);
    }
    if (!exchange->keep_alive) {
        text_add_c(out, "\r\nconnection: close");
    } else if (conn->parser.http_minor == 0) {
        text_add_c(out, "\r\nconnection: keep-alive");
    }
}

void http_reply(HttpExchange *exchange, int status, const char *content_type, Str body,
                const char *const *headers)
{
    assert(!exchange->streaming);
    HttpConn *conn = exchange->conn;
    if (conn->state != CONN_CLOSED) {
        add_head(exchange, status, content_type, headers);
        char line[64];
        int n = snprintf(line, sizeof line, "\r\ncontent-length: %zu\r\n\r\n", body.n);
        text_add(&conn->out, line, (size_t)n);
        if (!exchange->head_request) {
            text_add_str(&conn->out, body);
        }
    }
    http_conn_answered(conn, exchange->keep_alive);
}

void http_reply_json(HttpExchange *exchange, int status, const Text *json)
{
    http_reply(exchange, status, "application/json", text_str(json), NULL);
}

void http_stream_begin(HttpExchange *exchange, int status, const char *content_type,
                       const char *const *headers)
{
    assert(!exchange->streaming);
    HttpConn *conn = exchange->conn;
    exchange->streaming = true;
    exchange->chunked = conn->parser.http_major == 1 && conn->parser.http_minor >= 1;
    if (!exchange->chunked) {
        exchange->keep_alive = false; /* HTTP/1.0: the end of the body is the end of all */
    }
    if (conn->state == CONN_CLOSED) {
        return;
    }
    add_head(exchange, status, content_type, headers);
    text_add_c(&conn->out, exchange->chunked ? "\r\ntransfer-encoding: chunked\r\n\r\n"
                                             : "\r\n\r\n");
    http_conn_dirty(conn);
}

bool http_stream_write(HttpExchange *exchange, Str piece)
{
    assert(exchange->streaming);
    HttpConn *conn = exchange->conn;
    if (conn->state == CONN_CLOSED) {
        return false;
    }
    if (http_conn_queued(conn) + piece.n > conn->server->config.max_write_queue) {
        http_conn_close(conn);
        return false;
    }
    if (piece.n == 0 || exchange->head_request) {
        return true; /* an empty chunk would end the stream */
    }
    if (exchange->chunked) {
        char size[24];
        size_t at = sizeof size;
        size[--at] = '\n';
        size[--at] = '\r';
        for (size_t n = piece.n; n > 0; n /= 16) {
            size[--at] = "0123456789abcdef"[n % 16];
        }
        text_reserve(&conn->out, piece.n + 24);
        text_add(&conn->out, size + at, sizeof size - at);
        text_add_str(&conn->out, piece);
        text_add(&conn->out, "\r\n", 2);
    } else {
        text_add_str(&conn->out, piece);
    }
    http_conn_dirty(conn);
    return true;
}

void http_stream_end(HttpExchange *exchange)
{
    assert(exchange->streaming);
    HttpConn *conn = exchange->conn;
    if (conn->state != CONN_CLOSED && exchange->chunked && !exchange->head_request) {
        text_add_c(&conn->out, "0\r\n\r\n");
    }
    http_conn_answered(conn, exchange->keep_alive);
}

void http_drop(HttpExchange *exchange)
{
    HttpConn *conn = exchange->conn;
    if (exchange->streaming && conn->state != CONN_CLOSED && !conn->flight) {
        uv_buf_t buffer = uv_buf_init(conn->out.p, (unsigned)conn->out.n);
        if (conn->out.n > 0) {
            (void)uv_try_write((uv_stream_t *)&conn->tcp, &buffer, 1); /* already said */
        }
    }
    http_conn_answered(conn, false);
    http_conn_close(conn);
}
