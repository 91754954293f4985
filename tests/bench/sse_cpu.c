/* CPU time of the client per streamed token: the generation client as the core uses it (curl on
 * libuv, SSE, scanner, checks, and the log with its writer thread: start, progress once a second
 * and end of each sample) against a bare epoll reader that throws the same bytes away, in turns
 * in one run. The peer is a child that sends one event to each of 256 streams, waits, and
 * goes on; the events have the shape and size that SGLang 0.5.17 sends behind Dynamo. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/fleet/generate.h"
#include "store/store.h"

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
enum { PROGRESS_US = 1000000 }; /* as in core/loop/driver_rollout.c */

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

typedef struct Sample {
    Store *store; /* NULL: nothing is logged */
    int64_t id, logged_us;
    int *whole;
} Sample;

/* As the core's driver does it. */
static void on_progress(Generation *g, size_t tokens, void *user)
{
    Sample *s = user;
    int64_t now = clock_wall_us();
    (void)g;
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
    if (r->end != GENERATE_LENGTH || r->count != TOKENS) {
        fprintf(stderr, "%s: %s\n", generate_end_name(r->end), r->detail);
        return;
    }
    ++*s->whole;
    SampleSpan span = {0, TOKENS, 11};
    SampleEndFact fact = {.sample = s->id, .t_us = clock_wall_us(), .engine = 1, .attempt = 1,
                          .fate = FATE_ACCEPTED, .finish = "length", .tokens = r->ids,
                          .logprobs = r->logprobs, .token_count = TOKENS, .spans = &span,
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

static double client_round(int port, Store *store, int round)
{
    static Sample samples[STREAMS];
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
    int whole = 0;
    int64_t from = cpu_us();
    for (int i = 0; i < STREAMS; i++) {
        GenerateEvents events = {on_progress, on_done, &samples[i]};
        Generation *g = NULL;
        Fault fault = {0};
        sample_begin(&samples[i], store, 1 + round * STREAMS + i, &whole);
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

static char *open_log(Store **store)
{
    const char *base = getenv("TMPDIR");
    char *dir = xasprintf("%s/rolltop-bench-XXXXXX", base ? base : "/tmp");
    Fault fault = {0};
    if (!mkdtemp(dir)) {
        perror(dir);
        exit(1);
    }
    char *path = fs_join(dir, "run.db");
    if (store_open(path, NULL, store, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    free(path);
    return dir;
}

int main(void)
{
    double bytes_only[ROUNDS];
    double parsed[ROUNDS];
    double logged[ROUNDS];
    double ratio[ROUNDS];
    uint64_t bytes = 0;
    int port = 0;
    pid_t peer = peer_start(&port);
    Store *store = NULL;
    char *dir = open_log(&store);
    for (int i = 0; i < ROUNDS; i++) {
        bytes_only[i] = bare(port, &bytes);
        parsed[i] = client_round(port, NULL, i);
        logged[i] = client_round(port, store, i);
        ratio[i] = logged[i] / bytes_only[i];
    }
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    store_close(store);
    (void)fs_remove_tree(dir, NULL);
    free(dir);
    qsort(bytes_only, ROUNDS, sizeof *bytes_only, by_value);
    qsort(parsed, ROUNDS, sizeof *parsed, by_value);
    qsort(logged, ROUNDS, sizeof *logged, by_value);
    qsort(ratio, ROUNDS, sizeof *ratio, by_value);
    printf("sse_cpu: %d streams of %d tokens, %.0f bytes a token, median of %d rounds in turns\n",
           STREAMS, TOKENS, (double)bytes / (STREAMS * TOKENS), ROUNDS);
    printf("  bare epoll reader   %6.2f us CPU a token\n", bytes_only[ROUNDS / 2]);
    printf("  generation client   %6.2f us CPU a token, parse and checks included\n",
           parsed[ROUNDS / 2]);
    printf("  client and log      %6.2f us CPU a token, the log's thread included\n",
           logged[ROUNDS / 2]);
    printf("  scanner alone       %6.2f us CPU a token\n", scan_alone());
    printf("  ratio               %6.2f (%.2f to %.2f), client and log against bare reader\n",
           ratio[ROUNDS / 2], ratio[0], ratio[ROUNDS - 1]);
    return 0;
}
