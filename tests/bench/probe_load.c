/* What probing costs: 1,024 engines looked at once a second, the CPU of the prober alone, and how
 * soon engines that freeze are seen. The engines are one child process that answers on 1,024
 * loopback addresses (127.1.x.y, one port) what an engine answers; half of them stop answering
 * after a while, with their connections open, as a stopped process does.
 *   build/release/tests/bench_probe_load [SECONDS] */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/fleet/fleet.h"
#include "core/net/http_server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENGINES = 1024, FROZEN_EVERY = 64, WARM_US = 4000000 };

static const char loads[] =
    "{\"loads\":[{\"dp_rank\":0,\"num_running_reqs\":3,\"num_waiting_reqs\":0,"
    "\"num_used_tokens\":1200,\"token_usage\":0.1,\"gen_throughput\":900.0,"
    "\"cache_hit_rate\":0.5}]}";
static uv_loop_t loop;
static bool frozen;

/* ---- the engines -------------------------------------------------------------------------- */

static void on_request(HttpExchange *exchange, void *user)
{
    (void)user;
    Str path = http_path(exchange);
    char body[128];
    Str host = http_header(exchange, "host"); /* "127.1.x.y:port": which engine is asked */
    Str last = {0};
    size_t at = 0;
    int64_t number = 0;
    if (str_rfind(host, STR(":"), &at)) {
        host.n = at;
    }
    if (str_rfind(host, STR("."), &at)) {
        last = str_slice(host, at + 1, host.n);
        (void)str_to_i64(last, &number);
    }
    if (frozen && number % FROZEN_EVERY == 0) {
        return; /* never answered */
    }
    if (str_equal(path, STR("/v1/loads"))) {
        http_reply(exchange, 200, "application/json", STR(loads), NULL);
    } else if (str_equal(path, STR("/model_info"))) {
        http_reply(exchange, 200, "application/json",
                   STR("{\"model_path\":\"/m\",\"weight_version\":\"5\"}"), NULL);
    } else if (str_equal(path, STR("/server_info"))) {
        (void)str_format(body, sizeof body, "{\"version\":\"0.5.10\",\"pid\":%d,"
                         "\"start_time_us\":\"1\"}", 1000);
        http_reply(exchange, 200, "application/json", str_from(body), NULL);
    } else {
        http_reply(exchange, 200, "text/plain", STR(""), NULL);
    }
}

static void on_freeze(uv_signal_t *handle, int signum)
{
    (void)handle;
    (void)signum;
    frozen = true;
}

static void serve(int fd)
{
    HttpServer *server = NULL;
    HttpServerConfig config = {.host = "0.0.0.0", .on_request = on_request,
                               .max_connections = 65536};
    uv_signal_t freeze;
    uv_loop_init(&loop);
    uv_signal_init(&loop, &freeze);
    uv_signal_start(&freeze, on_freeze, SIGUSR1);
    Err err = http_server_new(&loop, &config, &server, NULL);
    int port = err == ERR_OK ? http_server_port(server) : 0;
    if (write(fd, &port, sizeof port) != (ssize_t)sizeof port || port == 0) {
        _exit(1);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    _exit(0);
}

/* ---- the prober --------------------------------------------------------------------------- */

typedef struct Bench {
    int up, dead;
    int64_t frozen_us, first_us, last_us;
} Bench;

static void on_state(int engine, EngineState before, EngineState now, const char *reason,
                     void *user)
{
    (void)engine;
    (void)reason;
    Bench *b = user;
    b->up += (now == ENGINE_UP) - (before == ENGINE_UP);
    if (now == ENGINE_DEAD && b->frozen_us) {
        int64_t took = clock_mono_us() - b->frozen_us;
        b->first_us = b->dead++ ? b->first_us : took;
        b->last_us = took;
    }
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void turn_for(uv_timer_t *timer, int64_t us)
{
    int64_t until = clock_mono_us() + us;
    while (clock_mono_us() < until) {
        uv_timer_start(timer, on_tick, 100, 0);
        uv_run(&loop, UV_RUN_ONCE);
    }
}

int main(int argc, char **argv)
{
    int64_t seconds = argc > 1 ? atoll(argv[1]) : 10;
    int pipes[2], port = 0;
    struct rlimit files = {65536, 65536};
    (void)setrlimit(RLIMIT_NOFILE, &files);
    (void)signal(SIGPIPE, SIG_IGN);
    if (pipe(pipes) != 0) {
        return 1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        serve(pipes[1]);
    }
    if (pid < 0 || read(pipes[0], &port, sizeof port) != (ssize_t)sizeof port) {
        fprintf(stderr, "no server\n");
        return 1;
    }
    uv_timer_t timer;
    HttpClient *client = NULL;
    Fleet *fleet = NULL;
    Bench b = {0};
    uv_loop_init(&loop);
    uv_timer_init(&loop, &timer);
    FleetConfig config = {.probe = probe_settings_default()};
    config.probe.ping_ms = config.probe.loads_ms = 1000; /* 1 Hz */
    config.probe.model_ms = 10000;
    config.probe.health_ms = config.probe.metrics_ms = 0;
    FleetEvents events = {.on_state = on_state, .user = &b};
    if (http_client_new(&loop, NULL, &client, NULL) != ERR_OK ||
        fleet_new(&loop, client, NULL, &config, &events, &fleet, NULL) != ERR_OK) {
        return 1;
    }
    for (int i = 0; i < ENGINES; i++) {
        char name[32], address[64];
        int index = i;
        snprintf(name, sizeof name, "eng-%04d", i);
        snprintf(address, sizeof address, "127.1.%d.%d:%d", i / 128, i % 128 + 1, port);
        if (fleet_add(fleet, name, address, false, &index, NULL) != ERR_OK) {
            return 1;
        }
    }
    turn_for(&timer, WARM_US);
    int up = b.up;
    double cpu = cpu_seconds();
    int64_t from = clock_mono_us();
    turn_for(&timer, seconds * 1000000);
    double share = (cpu_seconds() - cpu) / ((double)(clock_mono_us() - from) / 1e6);
    b.frozen_us = clock_mono_us();
    kill(pid, SIGUSR1);
    turn_for(&timer, 6000000);
    printf("engines %d, up %d, at 1 Hz: %.1f %% of a core\n", ENGINES, up, 100 * share);
    printf("frozen %d of them: %d seen, first after %.2f s, last after %.2f s\n",
           ENGINES / FROZEN_EVERY, b.dead, (double)b.first_us / 1e6, (double)b.last_us / 1e6);
    kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    fleet_free(fleet);
    http_client_free(client);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    return 0;
}
