/* CPU time of the client per streamed token: the generation client as the core uses it (curl on
 * libuv, SSE, scanner, checks) against a bare epoll reader that throws the same bytes away, in
 * turns in one run. The peer is a child that sends one event to each of 256 streams, waits, and
 * goes on; the events have the shape and size that SGLang 0.5.17 sends behind Dynamo. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/fleet/generate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS = 256, TOKENS = 300, ROUNDS = 5, GAP_US = 4000, EVENT_MAX = 2048 };

static int64_t cpu_us(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return ((int64_t)use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000 + use.ru_utime.tv_usec
           + use.ru_stime.tv_usec;
}

/* ---- the peer ----------------------------------------------------------------------------- */

static void send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t wrote = send(fd, p, n, MSG_NOSIGNAL);
        if (wrote <= 0) {
            return;
        }
        p += wrote;
        n -= (size_t)wrote;
    }
}

static size_t make_event(char *out, int at)
{
    char json[EVENT_MAX - 16];
    const char *finish = at == TOKENS ? "{\"type\":\"length\",\"length\":300}" : "null";
    int n = snprintf(
        json, sizeof json,
        "data: {\"text\":\" is\",\"output_ids\":[%d],\"meta_info\":{\"id\":\"bench\","
        "\"finish_reason\":%s,\"prompt_tokens\":5,\"weight_version\":\"11\",\"num_retractions\":0,"
        "\"forward_entry_time\":1795979942.9034376,\"prefill_finished_time\":1795979942.9101748,"
        "\"queue_time\":0.0003581047058105469,\"input_token_logprobs\":[],"
        "\"output_token_logprobs\":[[-%d.%09d039062,%d,null]],\"output_token_logprobs_length\":%d,"
        "\"reasoning_tokens\":0,\"completion_tokens\":%d,\"cached_tokens\":0,"
        "\"cached_tokens_details\":null,\"dp_rank\":null}}\n\n",
        374 + at, finish, at % 17, at * 7919 % 1000000000, 374 + at, at, at);
    return (size_t)snprintf(out, EVENT_MAX, "%x\r\n%s\r\n", n, json);
}

static void peer_round(int listener)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char tail[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    int fds[STREAMS];
    char event[EVENT_MAX];
    for (int i = 0; i < STREAMS; i++) {
        char request[4096];
        int one = 1;
        fds[i] = accept(listener, NULL, NULL);
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (recv(fds[i], request, sizeof request, 0) <= 0) {
            _exit(1);
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        send_all(fds[i], head, sizeof head - 1);
    }
    for (int at = 1; at <= TOKENS; at++) {
        size_t n = make_event(event, at);
        for (int i = 0; i < STREAMS; i++) {
            send_all(fds[i], event, n);
        }
        struct timespec gap = {0, GAP_US * 1000};
        nanosleep(&gap, NULL);
    }
    for (int i = 0; i < STREAMS; i++) {
        send_all(fds[i], tail, sizeof tail - 1);
        close(fds[i]);
    }
}

static pid_t peer_start(int *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, STREAMS) != 0
        || getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        perror("peer");
        exit(1);
    }
    *port = ntohs(address.sin_port);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            peer_round(fd);
        }
    }
    close(fd);
    return pid;
}

/* ---- the bare reader ---------------------------------------------------------------------- */

static double bare(int port, uint64_t *bytes)
{
    static char buffer[65536];
    static const char request[] = "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int open = STREAMS;
    int64_t from = cpu_us();
    *bytes = 0;
    for (int i = 0; i < STREAMS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
            perror("connect");
            exit(1);
        }
        send_all(fd, request, sizeof request - 1);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    }
    while (open > 0) {
        struct epoll_event events[1024];
        int n = epoll_wait(epoll, events, 1024, -1);
        for (int i = 0; i < n; i++) {
            ssize_t got = recv(events[i].data.fd, buffer, sizeof buffer, 0);
            if (got <= 0) {
                close(events[i].data.fd);
                open--;
            } else {
                *bytes += (uint64_t)got;
            }
        }
    }
    close(epoll);
    return (double)(cpu_us() - from) / (STREAMS * TOKENS);
}

/* ---- the client --------------------------------------------------------------------------- */

static int whole;

static void on_done(Generation *g, const GenerateResult *result, void *user)
{
    (void)g;
    (void)user;
    if (result->end == GENERATE_LENGTH && result->count == TOKENS) {
        whole++;
    } else {
        fprintf(stderr, "%s: %s\n", generate_end_name(result->end), result->detail);
    }
}

static double client_round(int port)
{
    static const int32_t prompt[] = {785, 6722, 315, 9625, 374};
    uv_loop_t loop;
    HttpClient *client = NULL;
    char url[64];
    uv_loop_init(&loop);
    if (http_client_new(&loop, NULL, &client, NULL) != ERR_OK) {
        exit(1);
    }
    snprintf(url, sizeof url, "http://127.0.0.1:%d/generate", port);
    GenerateSpec spec = {.url = url, .rid = "bench", .input_ids = prompt, .input_count = 5,
                         .vocab = 151936, .stream = true, .temperature = 1, .top_p = 1,
                         .top_k = -1, .max_new_tokens = TOKENS};
    GenerateEvents events = {.on_done = on_done};
    whole = 0;
    int64_t from = cpu_us();
    for (int i = 0; i < STREAMS; i++) {
        Generation *g = NULL;
        Fault fault = {0};
        if (generate_start(client, &spec, &events, &g, &fault) != ERR_OK) {
            fault_print(&fault);
            exit(1);
        }
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    double per_token = (double)(cpu_us() - from) / (STREAMS * TOKENS);
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    if (whole != STREAMS) {
        fprintf(stderr, "only %d of %d streams were whole\n", whole, STREAMS);
        exit(1);
    }
    return per_token;
}

/* CPU of parsing alone, without sockets: what the scanner itself costs. */
static double scan_alone(void)
{
    char event[EVENT_MAX];
    int64_t from = cpu_us();
    for (int i = 0; i < 100; i++) {
        GenerateScan *one = generate_scan_new(151936, TOKENS);
        for (int at = 1; at <= TOKENS; at++) {
            make_event(event, at);
        }
        generate_scan_free(one);
    }
    int64_t making = cpu_us() - from;
    from = cpu_us();
    for (int i = 0; i < 100; i++) {
        GenerateScan *one = generate_scan_new(151936, TOKENS);
        for (int at = 1; at <= TOKENS; at++) {
            size_t n = make_event(event, at);
            const char *json = strchr(event, '{');
            generate_scan_event(one, (Str){json, (size_t)(event + n - json) - 4}, NULL);
        }
        generate_scan_free(one);
    }
    return (double)(cpu_us() - from - making) / (100.0 * TOKENS);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    double ours[ROUNDS];
    double theirs[ROUNDS];
    uint64_t bytes = 0;
    int port = 0;
    pid_t peer = peer_start(&port);
    for (int i = 0; i < ROUNDS; i++) {
        theirs[i] = bare(port, &bytes);
        ours[i] = client_round(port);
    }
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    qsort(ours, ROUNDS, sizeof *ours, by_value);
    qsort(theirs, ROUNDS, sizeof *theirs, by_value);
    printf("sse_cpu: %d streams of %d tokens, %.0f bytes a token, median of %d rounds in turns\n",
           STREAMS, TOKENS, (double)bytes / (STREAMS * TOKENS), ROUNDS);
    printf("  bare epoll reader   %6.2f us CPU a token\n", theirs[ROUNDS / 2]);
    printf("  generation client   %6.2f us CPU a token, parse and checks included\n",
           ours[ROUNDS / 2]);
    printf("  scanner alone       %6.2f us CPU a token\n", scan_alone());
    printf("  ratio               %6.2f (goal <= 2)\n", ours[ROUNDS / 2] / theirs[ROUNDS / 2]);
    return 0;
}
