/* `rolltop watch` against a server that records every request: only GETs that change nothing are
 * sent, all evidence arrives in the log, commands are refused. The server is an engine and a
 * frontend at once and answers as SGLang 0.5 and Dynamo do. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/net/child.h"
#include "core/net/http_server.h"
#include "tests/harness.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REQUESTS_MAX = 4096 };

static uv_loop_t loop;
static uv_timer_t tick;
static char seen[REQUESTS_MAX][96]; /* "GET /ping" */
static int seen_count, strangers, ended;
static int64_t exit_status;
static const char *const *awaited; /* requests after which the run of rolltop is interrupted */
static char output[16384];

static const struct { const char *path, *body; } replies[] = {
    {"/ping", ""},
    {"/health", "{\"status\":\"healthy\",\"endpoints\":[],\"instances\":[]}"},
    {"/v1/models", "{\"object\":\"list\",\"data\":[{\"id\":\"policy\"}]}"},
    {"/v1/models/policy/ready", "{\"model\":\"policy\",\"ready\":true,\"namespaces\":{\"d\":{"
                                "\"worker_types\":{\"aggregated\":{\"workers\":1}}}}}"},
    {"/model_info", "{\"model_path\":\"/m\",\"weight_version\":\"5\"}"},
    {"/server_info", "{\"version\":\"0.5.10\",\"random_seed\":7,\"startup_time\":"
                     "{\"scheduler_e2e\":1.5}}"},
    {"/v1/loads", "{\"loads\":[{\"dp_rank\":0,\"num_running_reqs\":1,\"num_waiting_reqs\":0,"
                  "\"num_used_tokens\":10,\"token_usage\":0.1,\"gen_throughput\":3.0,"
                  "\"cache_hit_rate\":0.0}]}"},
    {"/metrics", "sglang:generation_tokens_total{engine_type=\"unified\"} 17.0\n"},
};

static void on_request(HttpExchange *exchange, void *user)
{
    (void)user;
    Str path = http_path(exchange);
    Str method = http_method(exchange);
    if (seen_count < REQUESTS_MAX) {
        snprintf(seen[seen_count++], sizeof seen[0], "%.*s %.*s", (int)method.n, method.p,
                 (int)path.n, path.p);
    }
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        if (str_equal(path, str_from(replies[i].path))) {
            bool text = replies[i].body[0] != '{';
            http_reply(exchange, 200, text ? "text/plain" : "application/json",
                       str_from(replies[i].body), NULL);
            return;
        }
    }
    strangers++;
    http_reply(exchange, 404, "application/json", STR("{\"detail\":\"Not Found\"}"), NULL);
}

static void on_line(Child *child, bool is_stderr, Str line, void *user)
{
    (void)child;
    (void)is_stderr;
    (void)user;
    size_t n = strlen(output);
    snprintf(output + n, sizeof output - n, "%.*s\n", (int)line.n, line.p);
}

static void on_exit_of(Child *child, int64_t status, int signal_number, void *user)
{
    (void)child;
    (void)user;
    exit_status = signal_number ? -signal_number : status;
    ended = 1;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static bool was_sent(const char *what)
{
    for (int i = 0; i < seen_count; i++) {
        if (strcmp(seen[i], what) == 0) {
            return true;
        }
    }
    return false;
}

/* All that is awaited has been asked, and what came of it has been told. */
static bool seen_enough(void)
{
    bool enough = awaited && seen_count > 20 && strstr(output, "reports weight version 5") &&
                  strstr(output, "frontend can serve");
    for (size_t i = 0; enough && awaited[i]; i++) {
        enough = was_sent(awaited[i]);
    }
    return enough;
}

/* Runs `rolltop ARGS` to its end; its exit status. */
static int64_t rolltop(const char *const *argv)
{
    ChildSpec spec = {.name = "rolltop", .argv = argv, .on_line = on_line, .on_exit = on_exit_of};
    Child *child = NULL;
    ended = 0;
    exit_status = -1000;
    CHECK_I64(child_start(&loop, &spec, &child, NULL), ERR_OK);
    int64_t from = clock_mono_us();
    while (!ended && clock_mono_us() - from < 180000000) {
        uv_timer_start(&tick, on_tick, 20, 0);
        uv_run(&loop, UV_RUN_ONCE);
        if (seen_enough()) {
            awaited = NULL;
            (void)kill(child_pid(child), SIGINT);
        }
    }
    child_free(child);
    return exit_status;
}

static char folder[] = "/tmp/rolltop-watch-XXXXXX";
static char address[64], url[96], log_path[128];

static void the_set_of_requests(void)
{
    const char *const argv[] = {ROLLTOP_BINARY, "watch", "--headless", "--seconds", "120",
                                "--rollout-external-engine-addrs", address, "--rollout-url", url,
                                "--log", log_path, NULL};
    static const char *const allowed[] = {"GET /ping", "GET /health", "GET /model_info",
                                          "GET /server_info", "GET /v1/loads", "GET /metrics",
                                          "GET /v1/models", "GET /v1/models/policy/ready"};
    static const char *const wanted[] = {"GET /health", "GET /model_info", "GET /server_info",
                                         "GET /v1/loads", "GET /metrics", "GET /v1/models",
                                         "GET /v1/models/policy/ready", NULL};
    awaited = wanted;
    int64_t from = clock_mono_us();
    CHECK_I64(rolltop(argv), 0);
    int64_t seconds = (clock_mono_us() - from) / 1000000 + 1;
    CHECK(awaited == NULL); /* all of them were sent, and told of */
    for (int i = 0; i < seen_count; i++) {
        bool good = false;
        for (size_t k = 0; k < sizeof allowed / sizeof *allowed; k++) {
            good = good || strcmp(seen[i], allowed[k]) == 0;
        }
        if (!good) {
            fprintf(stderr, "sent: %s\n", seen[i]);
        }
        CHECK(good);
    }
    CHECK_I64(strangers, 0);
    CHECK(seen_count < 40 * (seconds + 1)); /* it does not flood */
    CHECK(strstr(output, "answers at") && strstr(output, "frontend answers"));
}

static void what_the_log_holds(void)
{
    static const char *const questions[] = {
        "select count(*) n from probe where running = 1",
        "select count(*) n from probe where gen_tokens_total = 17",
        "select count(*) n from incarnation where identity like '0.5.10/%'",
        "select count(*) n from event where text like 'reports weight version 5%'"};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        const char *const argv[] = {ROLLTOP_BINARY, "query", log_path, "--json", "--sql",
                                    questions[i], NULL};
        output[0] = '\0';
        CHECK_I64(rolltop(argv), 0);
        if (strstr(output, "\"n\":0")) {
            fprintf(stderr, "%s: %s", questions[i], output);
        }
        CHECK(strstr(output, "\"n\":") && !strstr(output, "\"n\":0"));
    }
}

static void no_fleet_is_a_mistake(void)
{
    const char *const argv[] = {ROLLTOP_BINARY, "watch", "--headless", NULL};
    output[0] = '\0';
    CHECK_I64(rolltop(argv), 2);
    CHECK(strstr(output, "no engines to watch"));
}

int main(void)
{
    if (access(ROLLTOP_BINARY, X_OK) != 0) {
        printf("skipped: %s is not built\n", ROLLTOP_BINARY);
        return 77;
    }
    CHECK(mkdtemp(folder) != NULL);
    setenv("XDG_STATE_HOME", folder, 1);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    unsetenv("DYNAMO_ENGINE_ADDRS");
    unsetenv("DYNAMO_ROLLOUT_URL");
    uv_loop_init(&loop);
    uv_timer_init(&loop, &tick);
    HttpServer *server = NULL;
    HttpServerConfig config = {.on_request = on_request};
    CHECK_I64(http_server_new(&loop, &config, &server, NULL), ERR_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", http_server_port(server));
    snprintf(url, sizeof url, "http://%s", address);
    snprintf(log_path, sizeof log_path, "%s/watch.db", folder);
    RUN(the_set_of_requests);
    RUN(what_the_log_holds);
    RUN(no_fleet_is_a_mistake);
    http_server_free(server);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    char *remove = xasprintf("rm -rf %s", folder);
    CHECK_I64(system(remove), 0);
    free(remove);
    return test_end();
}
