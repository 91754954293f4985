/* CPU time of the client per streamed token: the generation client as the core uses it (plain HTTP
 * on libuv, SSE, scanner, checks, and the log with its writer thread: start, progress once a second
 * and end of each sample) against a bare epoll reader that throws the same bytes away, in turns
 * in one run. The peer is a child that sends one event to each stream, waits, and
 * goes on; the events have the shape and size that SGLang 0.5.17 sends behind Dynamo.
 *   bench_sse_cpu [STREAMS [TOKENS]]     256 and 300; 1000 for the figure a thousand streams */
#include "core/base/clock.h"
#include "core/fleet/generate.h"
#include "tests/bench/bench_log.h"

#include <arpa/inet.h>
#include <malloc.h>
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

enum { STREAMS_MAX = 4096, ROUNDS = 5, GAP_US = 4000, EVENT_MAX = 2048 };
static int stream_count = 256;
static int token_count = 300;
enum { PROGRESS_US = 1000000 }; /* as in core/loop/driver_rollout.c */

typedef struct Cost { /* microseconds: of all CPU, and outside the kernel */
    double all, user;
} Cost;

static Cost cost_now(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    double user = (double)use.ru_utime.tv_sec * 1e6 + (double)use.ru_utime.tv_usec;
    return (Cost){user + (double)use.ru_stime.tv_sec * 1e6 + (double)use.ru_stime.tv_usec, user};
}

static Cost cost_each(Cost from, double divisor)
{
    Cost now = cost_now();
    return (Cost){(now.all - from.all) / divisor, (now.user - from.user) / divisor};
}

static double all_tokens(void)
{
    return (double)stream_count * token_count;
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
    const char *finish = at == token_count ? "{\"type\":\"length\"}" : "null";
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
    int fds[STREAMS_MAX];
    char event[EVENT_MAX];
    for (int i = 0; i < stream_count; i++) {
        char request[4096];
        int one = 1;
        fds[i] = accept(listener, NULL, NULL);
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (recv(fds[i], request, sizeof request, 0) <= 0) {
            _exit(1);
        }
    }
    for (int i = 0; i < stream_count; i++) {
        send_all(fds[i], head, sizeof head - 1);
    }
    for (int at = 1; at <= token_count; at++) {
        size_t n = make_event(event, at);
        for (int i = 0; i < stream_count; i++) {
            send_all(fds[i], event, n);
        }
        struct timespec gap = {0, GAP_US * 1000};
        nanosleep(&gap, NULL);
    }
    for (int i = 0; i < stream_count; i++) {
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
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, stream_count) != 0
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

static Cost bare(int port, uint64_t *bytes)
{
    static char buffer[65536];
    static const char request[] = "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int open = stream_count;
    Cost from = cost_now();
    *bytes = 0;
    for (int i = 0; i < stream_count; i++) {
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
    return cost_each(from, all_tokens());
}

/* ---- the client --------------------------------------------------------------------------- */

/* Heap in use when every stream has ten tokens, and before the first was started. */
static size_t heap_before, heap_open;
static int ten_at;

static size_t heap_now(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

typedef struct Sample {
    Store *store; /* NULL: nothing is logged */
    int64_t id, logged_us;
    int *whole;
    bool has_ten;
} Sample;

/* As the core's driver does it. */
static void on_progress(Generation *g, size_t tokens, void *user)
{
    Sample *s = user;
    int64_t now = clock_wall_us();
    (void)g;
    if (tokens >= 10 && !s->has_ten) {
        s->has_ten = true;
        if (++ten_at == stream_count) {
            heap_open = heap_now() - heap_before;
        }
    }
    if (!s->store || (s->logged_us != 0 && now - s->logged_us < PROGRESS_US)) {
        return;
    }
    s->logged_us = now;
    SampleProgressFact fact = {.sample = s->id, .t_us = now, .engine = 1,
                               .tokens = (int64_t)tokens};
    store_put_sample_progress(s->store, &fact);
}

static void on_done(Generation *g, const GenerateResult *r, void *user)
{
    Sample *s = user;
    (void)g;
    if (r->end != GENERATE_LENGTH || r->count != (size_t)token_count) {
        fprintf(stderr, "%s: %s\n", generate_end_name(r->end), r->detail);
        return;
    }
    ++*s->whole;
    SampleSpan span = {0, token_count, 11};
    SampleEndFact fact = {.sample = s->id, .t_us = clock_wall_us(), .engine = 1, .attempt = 1,
                          .fate = FATE_ACCEPTED, .finish = "length", .tokens = r->ids,
                          .logprobs = r->logprobs, .token_count = r->count, .spans = &span,
                          .span_count = 1, .text = r->text, .first_token_us = r->first_token_us};
    if (s->store) {
        store_put_sample_end(s->store, &fact);
    }
}

static void sample_begin(Sample *s, Store *store, int64_t id, int *whole)
{
    *s = (Sample){.store = store, .id = id, .whole = whole};
    SampleStartFact fact = {.sample = id, .group = 1, .t_us = clock_wall_us(), .attempt = 1};
    if (store) {
        store_put_sample_start(store, &fact);
    }
}

static Cost client_round(int port, Store *store, int round)
{
    static Sample samples[STREAMS_MAX];
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
                         .top_k = -1, .max_new_tokens = token_count};
    int whole = 0;
    heap_before = heap_now();
    ten_at = 0;
    Cost from = cost_now();
    for (int i = 0; i < stream_count; i++) {
        GenerateEvents events = {on_progress, on_done, &samples[i]};
        Generation *g = NULL;
        Fault fault = {0};
        sample_begin(&samples[i], store, 1 + round * stream_count + i, &whole);
        if (generate_start(client, &spec, &events, &g, &fault) != ERR_OK) {
            fault_print(&fault);
            exit(1);
        }
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    if (store && store_wait(store, store_ticket(store), 10000, NULL) != ERR_OK) {
        fprintf(stderr, "sse_cpu: the log does not follow\n");
        exit(1);
    }
    Cost per_token = cost_each(from, all_tokens());
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    if (whole != stream_count) {
        fprintf(stderr, "only %d of %d streams were whole\n", whole, stream_count);
        exit(1);
    }
    return per_token;
}

/* CPU of parsing alone, without sockets: what the scanner itself costs. */
static double scan_alone(void)
{
    char event[EVENT_MAX];
    Cost from = cost_now();
    for (int i = 0; i < 100; i++) {
        GenerateScan *one = generate_scan_new(151936, (size_t)token_count);
        for (int at = 1; at <= token_count; at++) {
            make_event(event, at);
        }
        generate_scan_free(one);
    }
    Cost making = cost_each(from, 1);
    from = cost_now();
    for (int i = 0; i < 100; i++) {
        GenerateScan *one = generate_scan_new(151936, (size_t)token_count);
        for (int at = 1; at <= token_count; at++) {
            size_t n = make_event(event, at);
            const char *json = strchr(event, '{');
            generate_scan_event(one, (Str){json, (size_t)(event + n - json) - 4}, NULL);
        }
        generate_scan_free(one);
    }
    return (cost_each(from, 1).all - making.all) / (100.0 * token_count);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sort(double *values)
{
    qsort(values, ROUNDS, sizeof *values, by_value);
}

static void rounds(int port, Store *store)
{
    double bytes_only[ROUNDS];
    double parsed[ROUNDS];
    double logged[ROUNDS];
    double ratio[ROUNDS];
    double above[ROUNDS];
    uint64_t bytes = 0;
    for (int i = 0; i < ROUNDS; i++) {
        Cost floor = bare(port, &bytes);
        Cost client = client_round(port, NULL, i);
        Cost all = client_round(port, store, i);
        bytes_only[i] = floor.all;
        parsed[i] = client.all;
        logged[i] = all.all;
        ratio[i] = all.all / floor.all;
        above[i] = client.user - floor.user;
    }
    sort(bytes_only);
    sort(parsed);
    sort(logged);
    sort(ratio);
    sort(above);
    printf("sse_cpu: %d streams of %d tokens, %.0f bytes a token, median of %d rounds in turns\n",
           stream_count, token_count, (double)bytes / all_tokens(), ROUNDS);
    printf("  bare epoll reader   %6.2f us CPU a token\n", bytes_only[ROUNDS / 2]);
    printf("  generation client   %6.2f us CPU a token, parse and checks included\n",
           parsed[ROUNDS / 2]);
    printf("  client and log      %6.2f us CPU a token, the log's thread included\n",
           logged[ROUNDS / 2]);
    printf("  scanner alone       %6.2f us CPU a token\n", scan_alone());
    printf("  ratio               %6.2f (%.2f to %.2f), client and log against bare reader\n",
           ratio[ROUNDS / 2], ratio[0], ratio[ROUNDS - 1]);
    printf("  user CPU above bare %6.2f us a token (%.2f to %.2f), client without the log\n",
           above[ROUNDS / 2], above[0], above[ROUNDS - 1]);
    printf("  heap a stream       %6.1f KiB, with ten tokens each\n",
           (double)heap_open / 1024.0 / stream_count);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        stream_count = atoi(argv[1]);
    }
    if (argc > 2) {
        token_count = atoi(argv[2]);
    }
    if (stream_count < 1 || stream_count > STREAMS_MAX || token_count < 11 || token_count > 9999) {
        fprintf(stderr, "usage: bench_sse_cpu [STREAMS [TOKENS]], 1 to %d and 11 to 9999\n",
                STREAMS_MAX);
        return 2;
    }
    int port = 0;
    pid_t peer = peer_start(&port);
    Store *store = NULL;
    char *dir = bench_log_open(&store);
    rounds(port, store);
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    store_close(store);
    (void)fs_remove_tree(dir, NULL);
    free(dir);
    return 0;
}
