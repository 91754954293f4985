/* Replies that are one JSON object: whole up to their bound, and never half of one beyond it. */
#include "core/net/evloop.h"
#include "core/serve/reply.h"
#include "tests/serve/rig.h"

enum { BOUND = 64 };

static uv_loop_t loop;
static uv_signal_t sigint;
static uv_signal_t sigterm;

/* {"path":"/xxx…"}: the caller decides how long it gets. */
static void on_request(HttpExchange *exchange, void *user)
{
    (void)user;
    static const char *const headers[] = {"x-extra: yes", NULL};
    char path[256];
    Text body;
    JsonOut json;
    (void)str_format(path, sizeof path, "%.*s", (int)http_path(exchange).n, http_path(exchange).p);
    reply_open(&body, &json, BOUND);
    json_member_string(&json, "path", path);
    if (path[1] == 'h') {
        reply_send_with(exchange, 202, &body, &json, headers);
    } else {
        reply_send(exchange, 200, &body, &json);
    }
}

static void on_signal(uv_signal_t *handle, int signum)
{
    (void)handle;
    (void)signum;
    uv_stop(&loop);
}

static int serve(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    HttpServerConfig config = {.on_request = on_request};
    HttpServer *server = NULL;
    if (evloop_open(&loop, &sigint, &sigterm, NULL) ||
        http_server_new(&loop, &config, &server, NULL)) {
        return 1;
    }
    uv_signal_start(&sigterm, on_signal, SIGTERM);
    printf("listening on http://127.0.0.1:%d\n", http_server_port(server));
    fflush(stdout);
    uv_run(&loop, UV_RUN_DEFAULT);
    http_server_free(server);
    return evloop_close(&loop) ? 0 : 1;
}

/* Every length around the bound gives the object or the refusal, and both are JSON. */
static void whole_or_refused(void)
{
    static const char *const argv[] = {"serve", NULL};
    Part part = part_start(serve, argv, 1);
    const int frame = (int)strlen("{\"path\":\"\"}");
    for (int n = BOUND - frame - 4; n <= BOUND - frame + 4; n++) {
        char path[BOUND + 8] = "/";
        memset(path + 1, 'x', (size_t)n - 1);
        path[n] = '\0';
        bool fits = frame + n <= BOUND;
        cJSON *tree = http_json(part.ports[0], "GET", path, "", fits ? 200 : 500);
        CHECK_STR(json_str(tree, fits ? "path" : "error.message"),
                  fits ? path : "the reply is over its bound");
        cJSON_Delete(tree);
    }
    Reply reply = http_ask(part.ports[0], "GET", "/h", "");
    CHECK_I64(reply.status, 202);
    CHECK(strstr(reply.head, "x-extra: yes") != NULL);
    reply_free(&reply);
    CHECK_I64(part_stop(&part), 0);
}

int main(void)
{
    RUN(whole_or_refused);
    return test_end();
}
