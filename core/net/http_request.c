/* Requests: http-parser callbacks into one connection's buffers, and what handlers read of them. */
#include "core/net/http_server.h"

#include "core/base/mem.h"
#include "core/net/http_conn.h"

#include <assert.h>
#include <string.h>

enum { NEXT_REQUEST_QUEUE = 256 * 1024 };

static HttpConn *conn_of(http_parser *parser)
{
    return (HttpConn *)parser->data;
}

static int on_message_begin(http_parser *parser)
{
    HttpConn *conn = conn_of(parser);
    conn->state = CONN_READING;
    conn->since_ms = uv_now(conn->server->loop);
    return 0;
}

static int on_url(http_parser *parser, const char *at, size_t n)
{
    HttpConn *conn = conn_of(parser);
    if (!text_add(&conn->url, at, n)) {
        conn->refuse = 431;
        return 1;
    }
    return 0;
}

static int on_field(http_parser *parser, const char *at, size_t n)
{
    HttpConn *conn = conn_of(parser);
    if (memchr(at, ' ', n)) { /* "Host : x" is read differently by others: RFC 9112 5.1 wants 400 */
        conn->refuse = 400;
        return 1;
    }
    if (conn->field_count == 0 || conn->in_value) {
        if (conn->field_count == HTTP_FIELDS_MAX) {
            conn->refuse = 431;
            return 1;
        }
        conn->fields[conn->field_count++] = (HttpField){conn->head.n, 0, 0, 0};
        conn->in_value = false;
    }
    if (conn->url.n + conn->head.n + n > conn->server->config.max_header ||
        !text_add(&conn->head, at, n)) {
        conn->refuse = 431;
        return 1;
    }
    conn->fields[conn->field_count - 1].name_n += n;
    return 0;
}

static int on_value(http_parser *parser, const char *at, size_t n)
{
    HttpConn *conn = conn_of(parser);
    HttpField *field = &conn->fields[conn->field_count - 1];
    if (!conn->in_value) {
        conn->in_value = true;
        field->value_at = conn->head.n;
    }
    if (conn->url.n + conn->head.n + n > conn->server->config.max_header ||
        !text_add(&conn->head, at, n)) {
        conn->refuse = 431;
        return 1;
    }
    field->value_n += n;
    return 0;
}

static Str conn_header(const HttpConn *conn, const char *name)
{
    Str wanted = str_from(name);
    for (size_t i = 0; i < conn->field_count; i++) {
        const HttpField *field = &conn->fields[i];
        Str have = {conn->head.p + field->name_at, field->name_n};
        if (str_equal_nocase(have, wanted)) {
            return str_trim((Str){conn->head.p + field->value_at, field->value_n});
        }
    }
    return (Str){NULL, 0};
}

static int on_headers_complete(http_parser *parser)
{
    HttpConn *conn = conn_of(parser);
    parser->upgrade = 0; /* no upgrade is offered: the request is answered as it is */
    bool has_length = parser->content_length != UINT64_MAX;
    if (has_length && parser->content_length > conn->server->config.max_body) {
        conn->refuse = 413;
        return -1;
    }
    bool has_body = (has_length && parser->content_length > 0) || !has_length;
    if (has_body && parser->http_major == 1 && parser->http_minor >= 1 &&
        str_equal_nocase(conn_header(conn, "expect"), STR("100-continue"))) {
        text_add_c(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n");
        http_conn_dirty(conn);
    }
    return 0;
}

/* A chunk that announces more than the bound is refused at once, not when its bytes have come. */
static int on_chunk_header(http_parser *parser)
{
    HttpConn *conn = conn_of(parser);
    size_t room = conn->server->config.max_body - conn->body.n;
    if (parser->content_length > room) {
        conn->refuse = 413;
        return 1;
    }
    return 0;
}

static int on_body(http_parser *parser, const char *at, size_t n)
{
    HttpConn *conn = conn_of(parser);
    if (!text_add(&conn->body, at, n)) {
        conn->refuse = 413;
        return 1;
    }
    return 0;
}

static int on_message_complete(http_parser *parser)
{
    conn_of(parser)->message_done = true;
    http_parser_pause(parser, 1); /* the next request waits until this one is answered */
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static void add_decoded(Text *out, Str s, bool plus_is_blank)
{
    for (size_t i = 0; i < s.n; i++) {
        int high = i + 2 < s.n && s.p[i] == '%' ? hex_digit(s.p[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(s.p[i + 2]) : -1;
        if (low >= 0) {
            text_add_char(out, (char)(high * 16 + low));
            i += 2;
        } else {
            text_add_char(out, plus_is_blank && s.p[i] == '+' ? ' ' : s.p[i]);
        }
    }
}

static bool conn_split_url(HttpConn *conn)
{
    struct http_parser_url parts;
    http_parser_url_init(&parts);
    if (http_parser_parse_url(conn->url.p, conn->url.n, conn->parser.method == HTTP_CONNECT,
                              &parts) != 0) {
        return false;
    }
    text_clear(&conn->path);
    conn->query = (Str){NULL, 0};
    if (parts.field_set & (1u << UF_PATH)) {
        Str raw = {conn->url.p + parts.field_data[UF_PATH].off, parts.field_data[UF_PATH].len};
        add_decoded(&conn->path, raw, false);
    }
    if (parts.field_set & (1u << UF_QUERY)) {
        conn->query = (Str){conn->url.p + parts.field_data[UF_QUERY].off,
                            parts.field_data[UF_QUERY].len};
    }
    return true;
}

void http_conn_parser_reset(HttpConn *conn)
{
    http_parser_init(&conn->parser, HTTP_REQUEST);
    conn->parser.data = conn;
    conn->field_count = 0;
    conn->in_value = false;
    conn->message_done = false;
    conn->refuse = 0;
    text_clear(&conn->url);
    text_clear(&conn->head);
    text_clear(&conn->body);
    if (conn->body.capacity > 256u * 1024) {
        text_free(&conn->body);
    }
}

static HttpExchange *conn_open_exchange(HttpConn *conn)
{
    HttpExchange *exchange = xcalloc(1, sizeof *exchange);
    exchange->conn = conn;
    exchange->head_request = conn->parser.method == HTTP_HEAD;
    exchange->keep_alive = http_should_keep_alive(&conn->parser) != 0;
    conn->exchange = exchange;
    conn->state = CONN_BUSY;
    return exchange;
}

static const char *refusal_text(int status)
{
    switch (status) {
    case 408: return "the request did not arrive whole in time";
    case 413: return "the request body is larger than this server takes";
    case 431: return "the request head is larger than this server takes";
    default: return "the request is not valid HTTP/1.1";
    }
}

void http_conn_refuse(HttpConn *conn, int status)
{
    HttpServerConfig *config = &conn->server->config;
    HttpExchange *exchange = conn_open_exchange(conn);
    exchange->keep_alive = false;
    text_clear(&conn->pending);
    if (config->on_refused) {
        config->on_refused(exchange, status, refusal_text(status), config->user);
        assert(conn->exchange != exchange); /* answered before it returned */
        return;
    }
    Text body;
    text_init(&body, 512);
    text_addf(&body, "{\"object\":\"error\",\"message\":\"%s\",\"type\":\"%s\",\"param\":null,"
              "\"code\":%d}", refusal_text(status), status == 400 ? "Bad Request" : "Refused",
              status);
    http_reply_json(exchange, status, &body);
    text_free(&body);
}

void http_conn_feed(HttpConn *conn, const char *bytes, size_t n)
{
    static const http_parser_settings settings = {
        .on_message_begin = on_message_begin, .on_url = on_url, .on_header_field = on_field,
        .on_header_value = on_value, .on_headers_complete = on_headers_complete,
        .on_chunk_header = on_chunk_header, .on_body = on_body,
        .on_message_complete = on_message_complete};
    size_t at = 0;
    while (at < n && !conn->exchange && conn->state != CONN_CLOSED &&
           conn->state != CONN_LINGER && http_conn_queued(conn) < NEXT_REQUEST_QUEUE) {
        at += http_parser_execute(&conn->parser, &settings, bytes + at, n - at);
        if (conn->message_done) {
            if (!conn_split_url(conn)) {
                http_conn_refuse(conn, 400);
                return;
            }
            HttpExchange *exchange = conn_open_exchange(conn);
            conn->server->config.on_request(exchange, conn->server->config.user);
        } else if (HTTP_PARSER_ERRNO(&conn->parser) != HPE_OK) {
            http_conn_refuse(conn, conn->refuse ? conn->refuse : 400);
            return;
        }
    }
    if (at < n && conn->state != CONN_LINGER && conn->state != CONN_CLOSED) {
        text_add(&conn->pending, bytes + at, n - at); /* never more than came out of it */
    }
}

Str http_method(const HttpExchange *exchange)
{
    return str_from(http_method_str((enum http_method)exchange->conn->parser.method));
}

Str http_path(const HttpExchange *exchange)
{
    return text_str(&exchange->conn->path);
}

bool http_query_get(const HttpExchange *exchange, const char *key, Text *out)
{
    Str rest = exchange->conn->query;
    Str part;
    while (str_split(&rest, '&', &part)) {
        Str name = part;
        Str value = {NULL, 0};
        size_t at = 0;
        if (str_find(part, STR("="), &at)) {
            name = str_slice(part, 0, at);
            value = str_slice(part, at + 1, part.n);
        }
        if (str_equal(name, str_from(key))) {
            add_decoded(out, value, true);
            return true;
        }
    }
    return false;
}

Str http_header(const HttpExchange *exchange, const char *name)
{
    return conn_header(exchange->conn, name);
}

Str http_body(const HttpExchange *exchange)
{
    return text_str(&exchange->conn->body);
}

bool http_peer_is_loopback(const HttpExchange *exchange)
{
    return exchange->conn->loopback;
}

void http_set_user(HttpExchange *exchange, void *user)
{
    exchange->user = user;
}

void *http_get_user(const HttpExchange *exchange)
{
    return exchange->user;
}
