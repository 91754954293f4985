/* The HTTP server against raw sockets: what a hostile or a hurried client does. The server runs in
 * a thread of its own, the test is the client. */
#include "core/net/http_server.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "tests/harness.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct Rig {
    uv_loop_t loop;
    uv_async_t stop;
    HttpServer *server;
    pthread_t thread;
    HttpServerConfig config;
    _Atomic int gone, requests;
    HttpExchange *held; /* loop thread only */
    int port;
} Rig;

static void reply_later(uv_timer_t *timer)
{
    Rig *rig = (Rig *)timer->data;
    if (rig->held) {
        http_reply(rig->held, 200, "text/plain", STR("late"), NULL);
        rig->held = NULL;
    }
    uv_close((uv_handle_t *)timer, (uv_close_cb)free);
}

static void start_later(Rig *rig, uint64_t ms)
{
    uv_timer_t *timer = xcalloc(1, sizeof *timer);
    uv_timer_init(&rig->loop, timer);
    timer->data = rig;
    uv_timer_start(timer, reply_later, ms, 0);
}

static void on_request(HttpExchange *x, void *user)
{
    Rig *rig = (Rig *)user;
    rig->requests++;
    Str path = http_path(x);
    if (str_equal(path, STR("/hold"))) {
        rig->held = x;
    } else if (str_equal(path, STR("/late"))) {
        rig->held = x;
        start_later(rig, 50);
    } else if (str_equal(path, STR("/stream"))) {
        http_stream_begin(x, 200, "text/event-stream", NULL);
        http_stream_write(x, STR("data: 1\n\n"));
        http_stream_write(x, STR("data: [DONE]\n\n"));
        http_stream_end(x);
    } else if (str_equal(path, STR("/cut"))) {
        http_stream_begin(x, 200, "text/event-stream", NULL);
        http_stream_write(x, STR("data: 1\n\n"));
        http_drop(x);
    } else if (str_equal(path, STR("/flood"))) {
        http_stream_begin(x, 200, "text/plain", NULL);
        char *block = xcalloc(1, 65536);
        bool good = true;
        for (int i = 0; i < 4096 && good; i++) {
            good = http_stream_write(x, (Str){block, 65536});
        }
        free(block);
        if (good) {
            http_stream_end(x);
        }
    } else if (str_equal(path, STR("/big"))) {
        char *block = xcalloc(1, 24u << 20);
        memset(block, 'b', 24u << 20);
        http_reply(x, 200, "text/plain", (Str){block, 24u << 20}, NULL);
        free(block);
    } else {
        Text body;
        text_init(&body, 1 << 20);
        Text key;
        text_init(&key, 100);
        bool has = http_query_get(x, "key", &key);
        Str method = http_method(x);
        Str in = http_body(x);
        text_addf(&body, "%.*s %.*s key=%s h=%.*s body=%.*s", (int)method.n, method.p,
                  (int)path.n, path.p, has ? text_c(&key) : "-",
                  (int)http_header(x, "x-test").n, http_header(x, "X-TEST").p,
                  (int)(in.n < 100 ? in.n : 100), in.p ? in.p : "");
        static const char *const extra[] = {"x-one: 1", NULL};
        http_reply(x, 200, "text/plain", text_str(&body), extra);
        text_free(&body);
        text_free(&key);
    }
}

static void on_gone(HttpExchange *x, void *user)
{
    Rig *rig = (Rig *)user;
    if (rig->held == x) {
        rig->held = NULL;
    }
    rig->gone++;
}

static void on_stop(uv_async_t *async)
{
    Rig *rig = (Rig *)async->data;
    http_server_free(rig->server);
    uv_close((uv_handle_t *)&rig->stop, NULL);
}

static void *run_loop(void *argument)
{
    Rig *rig = (Rig *)argument;
    uv_run(&rig->loop, UV_RUN_DEFAULT);
    return NULL;
}

static Rig *rig_start(HttpServerConfig config)
{
    Rig *rig = xcalloc(1, sizeof *rig);
    uv_loop_init(&rig->loop);
    config.on_request = on_request;
    config.on_gone = on_gone;
    config.user = rig;
    Fault fault = {0};
    CHECK_I64(http_server_new(&rig->loop, &config, &rig->server, &fault), ERR_OK);
    rig->port = http_server_port(rig->server);
    uv_async_init(&rig->loop, &rig->stop, on_stop);
    rig->stop.data = rig;
    pthread_create(&rig->thread, NULL, run_loop, rig);
    return rig;
}

static void rig_end(Rig *rig)
{
    uv_async_send(&rig->stop);
    pthread_join(rig->thread, NULL);
    CHECK_I64(uv_loop_close(&rig->loop), 0);
    free(rig);
}

static int dial(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval limit = {60, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    CHECK_I64(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void put(int fd, const char *s)
{
    CHECK_I64(send(fd, s, strlen(s), MSG_NOSIGNAL), (ssize_t)strlen(s));
}

/* Until EOF, an error, or `until` was seen `times` times. */
static const char *get(int fd, const char *until, int times)
{
    static char buffer[65536];
    size_t n = 0;
    buffer[0] = 0;
    while (n < sizeof buffer - 1) {
        ssize_t got = recv(fd, buffer + n, sizeof buffer - 1 - n, 0);
        if (got <= 0) {
            break;
        }
        n += (size_t)got;
        buffer[n] = 0;
        int seen = 0;
        for (const char *p = buffer; until && (p = strstr(p, until)) != NULL; p++) {
            seen++;
        }
        if (until && seen >= times) {
            break;
        }
    }
    return buffer;
}

static const char *talk(int port, const char *request)
{
    int fd = dial(port);
    put(fd, request);
    const char *reply = get(fd, NULL, 0);
    close(fd);
    return reply;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p++) {
        n++;
    }
    return n;
}

#define CLOSE "Host: x\r\nConnection: close\r\n\r\n"

static void plain_requests(void)
{
    Rig *rig = rig_start((HttpServerConfig){0});
    const char *reply = talk(rig->port, "GET /a%20b%zz?x=1&key=v%2b+w HTTP/1.1\r\nX-Test: t \r\n"
                             CLOSE);
    CHECK(strncmp(reply, "HTTP/1.1 200 OK\r\n", 17) == 0);
    CHECK(strstr(reply, "GET /a b%zz key=v+ w h=t body=") != NULL);
    CHECK(strstr(reply, "x-one: 1\r\n") != NULL);
    CHECK(strstr(reply, "connection: close\r\n") != NULL);
    CHECK(strstr(reply, " GMT\r\n") != NULL);
    reply = talk(rig->port, "POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: x\r\n"
                 "Connection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    CHECK(strstr(reply, "POST /p key=- h= body=abcde") != NULL);
    reply = talk(rig->port, "POST /p HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
                 "Host: x\r\nConnection: close\r\n\r\nhi");
    CHECK(strncmp(reply, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", 40) == 0);
    reply = talk(rig->port, "HEAD /p HTTP/1.1\r\n" CLOSE);
    CHECK(strstr(reply, "content-length: 2") != NULL && strstr(reply, "\r\n\r\n")[4] == 0);
    reply = talk(rig->port, "GET /stream HTTP/1.1\r\n" CLOSE);
    CHECK(strstr(reply, "\r\n\r\n9\r\ndata: 1\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n") != NULL);
    reply = talk(rig->port, "GET /stream HTTP/1.0\r\n\r\n");
    CHECK(strstr(reply, "\r\n\r\ndata: 1\n\ndata: [DONE]\n\n") != NULL);
    reply = talk(rig->port, "GET /cut HTTP/1.1\r\n" CLOSE);
    CHECK(strstr(reply, "data: 1\n\n") != NULL && strstr(reply, "\r\n0\r\n") == NULL);
    reply = talk(rig->port, "GET http://h:1/abs?key=k HTTP/1.1\r\n" CLOSE);
    CHECK(strstr(reply, "GET /abs key=k") != NULL);
    rig_end(rig);
}

static void keep_alive_and_pipelining(void)
{
    Rig *rig = rig_start((HttpServerConfig){0});
    int fd = dial(rig->port);
    put(fd, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(strstr(get(fd, "body=", 1), "GET /1 ") != NULL);
    /* Three at once: the first is answered late, the others must wait for it. */
    put(fd, "GET /late HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz"
            "GET /3 HTTP");
    put(fd, "/1.1\r\n\r\n");
    const char *reply = get(fd, "body=", 2);
    const char *late = strstr(reply, "late");
    const char *second = strstr(reply, "POST /2 key=- h= body=xyz");
    const char *third = strstr(reply, "GET /3 ");
    CHECK(late && second && third && late < second && second < third);
    close(fd);
    /* Many tiny ones in one piece. */
    Text many;
    text_init(&many, 1 << 20);
    for (int i = 0; i < 1000; i++) {
        text_add_c(&many, i == 999 ? "GET /z HTTP/1.1\r\n" CLOSE : "HEAD /x HTTP/1.1\r\n\r\n");
    }
    fd = dial(rig->port);
    put(fd, text_c(&many));
    static char all[400000];
    size_t n = 0;
    for (ssize_t got; n < sizeof all - 1 && (got = recv(fd, all + n, sizeof all - 1 - n, 0)) > 0;) {
        n += (size_t)got;
    }
    all[n] = 0;
    CHECK_I64(count(all, "HTTP/1.1 200 OK"), 1000);
    close(fd);
    text_free(&many);
    rig_end(rig);
}

static void refusals(void)
{
    Rig *rig = rig_start((HttpServerConfig){.max_body = 100, .max_header = 2000});
    const char *reply = talk(rig->port, "NONSENSE\r\n\r\n");
    CHECK(strncmp(reply, "HTTP/1.1 400 ", 13) == 0 && strstr(reply, "\"code\":400") != NULL);
    reply = talk(rig->port, "POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n");
    CHECK(strncmp(reply, "HTTP/1.1 413 ", 13) == 0);
    Text text;
    text_init(&text, 1 << 20);
    text_add_c(&text, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n70\r\n");
    for (int i = 0; i < 0x70; i++) {
        text_add_char(&text, 'a');
    }
    text_add_c(&text, "\r\n0\r\n\r\n");
    CHECK(strncmp(talk(rig->port, text_c(&text)), "HTTP/1.1 413 ", 13) == 0);
    text_clear(&text);
    text_add_c(&text, "GET / HTTP/1.1\r\nX: ");
    for (int i = 0; i < 3000; i++) {
        text_add_char(&text, 'a');
    }
    text_add_c(&text, "\r\n\r\n");
    CHECK(strncmp(talk(rig->port, text_c(&text)), "HTTP/1.1 431 ", 13) == 0);
    text_clear(&text);
    text_add_c(&text, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 200; i++) {
        text_add_c(&text, "A: b\r\n");
    }
    text_add_c(&text, "\r\n");
    CHECK(strncmp(talk(rig->port, text_c(&text)), "HTTP/1.1 431 ", 13) == 0);
    reply = talk(rig->port, "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked"
                 "\r\n\r\nabcde");
    CHECK(strncmp(reply, "HTTP/1.1 400 ", 13) == 0); /* request smuggling */
    static const char *const chunks[] = {"65", "ffffffff", "7fffffffffffffff", "8000000000000000",
                                         "ffffffffffffffff", "fffffffffffffffe"};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) { /* announced, not sent */
        text_clear(&text);
        text_addf(&text, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n%s\r\n",
                  chunks[i]);
        reply = talk(rig->port, text_c(&text));
        CHECK(strncmp(reply, i < 4 ? "HTTP/1.1 413 " : "HTTP/1.1 4", i < 4 ? 13 : 10) == 0);
    }
    static const char *const heads[] = {"Host : x", "Content-Length : 5", " Host: x", "Ho st: x",
                                        "Transfer-Encoding : chunked", "Host\t: x"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) { /* blanks before the colon */
        text_clear(&text);
        text_addf(&text, "GET / HTTP/1.1\r\n%s\r\n\r\n", heads[i]);
        reply = talk(rig->port, text_c(&text));
        if (strncmp(reply, "HTTP/1.1 400 ", 13) != 0) {
            fprintf(stderr, "%s: %.60s\n", heads[i], reply);
        }
        CHECK(strncmp(reply, "HTTP/1.1 400 ", 13) == 0);
    }
    CHECK_I64(rig->requests, 0);
    text_free(&text);
    rig_end(rig);
}

static bool comes_true(_Atomic int *value, int wanted)
{
    for (int i = 0; i < 6000 && *value != wanted; i++) {
        clock_sleep_us(10000);
    }
    return *value == wanted;
}

static void clients_that_leave(void)
{
    Rig *rig = rig_start((HttpServerConfig){.max_write_queue = 1 << 20});
    int fd = dial(rig->port);
    put(fd, "GET /hold HTTP/1.1\r\n\r\n");
    CHECK(comes_true(&rig->requests, 1));
    CHECK_I64(rig->gone, 0);
    close(fd);
    CHECK(comes_true(&rig->gone, 1));
    fd = dial(rig->port);
    put(fd, "GET /hold HTTP/1.1\r\n\r\n");
    CHECK(comes_true(&rig->requests, 2));
    shutdown(fd, SHUT_WR); /* read-side EOF counts as gone */
    CHECK(comes_true(&rig->gone, 2));
    close(fd);
    fd = dial(rig->port);
    put(fd, "GET /flood HTTP/1.1\r\n\r\n"); /* and never reads: 256 MiB against a 1 MiB queue */
    CHECK(comes_true(&rig->gone, 3));
    close(fd);
    rig_end(rig);
}

static void large_reply_to_slow_reader(void)
{
    Rig *rig = rig_start((HttpServerConfig){0});
    int fd = dial(rig->port);
    put(fd, "GET /big HTTP/1.1\r\n" CLOSE);
    clock_sleep_us(100000);
    static char block[1 << 20];
    size_t total = 0;
    size_t letters = 0;
    for (ssize_t got; (got = recv(fd, block, sizeof block, 0)) > 0;) {
        for (ssize_t i = 0; i < got; i++) {
            letters += block[i] == 'b';
        }
        total += (size_t)got;
    }
    CHECK(total > (24u << 20) && letters == (24u << 20));
    close(fd);
    rig_end(rig);
}

/* A client that is late itself, on a busy machine, is not what is tried: it tries again. */
static void time_limits(void)
{
    Rig *rig = rig_start((HttpServerConfig){.request_ms = 200, .idle_ms = 300});
    bool told = false;
    bool idle = false;
    for (int i = 0; i < 50 && !told; i++) {
        int64_t start = clock_mono_us();
        told = strncmp(talk(rig->port, "GET / HT"), "HTTP/1.1 408 ", 13) == 0;
        CHECK(!told || clock_mono_us() - start >= 150000);
    }
    CHECK(told);
    for (int i = 0; i < 50 && !idle; i++) {
        int64_t start = clock_mono_us();
        int fd = dial(rig->port);
        put(fd, "GET /1 HTTP/1.1\r\n\r\n");
        if (strstr(get(fd, "body=", 1), "200 OK") != NULL) {
            CHECK_STR(get(fd, NULL, 0), ""); /* closed when idle */
            idle = clock_mono_us() - start >= 250000;
        }
        close(fd);
    }
    CHECK(idle);
    rig_end(rig);
}

static void bounds_and_binding(void)
{
    Rig *rig = rig_start((HttpServerConfig){.max_connections = 2});
    int a = dial(rig->port);
    int b = dial(rig->port);
    put(a, "GET /1 HTTP/1.1\r\n\r\n");
    CHECK(strstr(get(a, "body=", 1), "200 OK") != NULL);
    int c = dial(rig->port);
    CHECK_STR(get(c, NULL, 0), "");
    close(a);
    close(b);
    close(c);
    uv_loop_t loop;
    uv_loop_init(&loop);
    HttpServerConfig config = {.port = rig->port, .on_request = on_request};
    HttpServer *server = NULL;
    Fault fault = {0};
    CHECK_I64(http_server_new(&loop, &config, &server, &fault), ERR_EXISTS);
    char port[16];
    (void)str_format(port, sizeof port, ":%d", rig->port);
    CHECK(strstr(fault.sentence, port) != NULL && fault.hint[0] != 0);
    fault_clear(&fault);
    config.host = "no such host";
    CHECK_I64(http_server_new(&loop, &config, &server, &fault), ERR_ARG);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
    rig_end(rig);
}

int main(void)
{
    RUN(plain_requests);
    RUN(keep_alive_and_pipelining);
    RUN(refusals);
    RUN(clients_that_leave);
    RUN(large_reply_to_slow_reader);
    RUN(time_limits);
    RUN(bounds_and_binding);
    return test_end();
}
