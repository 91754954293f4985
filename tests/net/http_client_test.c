/* HTTP client: what is sent, connections that are kept, streams, many at once; nothing is sent
 * twice that must not be. */
#include "tests/net/http_client_rig.h"

static void whole_replies(void)
{
    Done done;
    HttpRequestSpec spec = get("/ok", &done);
    run(&spec);
    CHECK_I64(done.end, HTTP_END_OK);
    CHECK_I64(done.status, 200);
    CHECK_STR(done.body, "hello");
    CHECK(strstr(done.headers, "X-One: a\r\n") != NULL);
    CHECK_NEAR(done.retry_after_s, -1.0, 0);
    CHECK(done.connect_us > 0 && done.first_byte_us >= done.connect_us);
    CHECK(done.total_us >= done.first_byte_us);
    CHECK_I64(done.body_bytes, 5);
    CHECK_STR(done.error, "");
    spec = get("/chunked", &done);
    run(&spec);
    CHECK_STR(done.body, "abcdabcdabcdabcdabcd");
    spec = get("/interim", &done);
    run(&spec);
    CHECK_I64(done.status, 201);
    CHECK_STR(done.body, "made");
    CHECK(strstr(done.headers, "X-Interim") == NULL);
    spec = get("/redirect", &done);
    run(&spec);
    CHECK_I64(done.status, 302);
    CHECK_STR(done.body, "moved");
}

static void what_is_sent(void)
{
    static const char *const headers[] = {"X-Request-Id: r1", NULL};
    Done done;
    HttpRequestSpec spec = get("/echo", &done);
    spec.method = "POST";
    spec.body = STR("{\"a\":1}");
    spec.bearer = "secret";
    spec.headers = headers;
    run(&spec);
    CHECK(strncmp(done.body, "POST /echo HTTP/1.1\r\n", 21) == 0);
    CHECK(strstr(done.body, "Content-Type: application/json\r\n") != NULL);
    CHECK(strstr(done.body, "Authorization: Bearer secret\r\n") != NULL);
    CHECK(strstr(done.body, "X-Request-Id: r1") != NULL);
    CHECK(strstr(done.body, "|{\"a\":1}") != NULL);
    CHECK(strstr(done.body, "Expect") == NULL);
    CHECK(strstr(done.body, "Accept-Encoding") == NULL);
    spec = get("/echo", &done);
    spec.method = "POST"; /* without a body: a length of 0 and no type */
    run(&spec);
    CHECK(strstr(done.body, "Content-Length: 0") != NULL);
    CHECK(strstr(done.body, "Content-Type") == NULL);
    spec = get("/echo", &done);
    spec.method = "PUT";
    spec.body = STR("x");
    spec.content_type = "text/plain";
    run(&spec);
    CHECK(strncmp(done.body, "PUT /echo", 9) == 0);
    CHECK(strstr(done.body, "Content-Type: text/plain") != NULL);
    spec = get("/echo", &done);
    run(&spec);
    CHECK(strncmp(done.body, "GET /echo", 9) == 0);
    CHECK(strstr(done.body, "Authorization") == NULL);
}

static void a_proxy_of_the_environment_is_not_for_loopback(void)
{
    setenv("http_proxy", "http://127.0.0.1:9/", 1);
    setenv("all_proxy", "http://127.0.0.1:9/", 1);
    Done done;
    HttpRequestSpec spec = get("/ok", &done);
    run(&spec);
    CHECK_I64(done.end, HTTP_END_OK);
    unsetenv("http_proxy");
    unsetenv("all_proxy");
}

static void retry_after_is_read(void)
{
    Done done;
    HttpRequestSpec spec = get("/busy", &done);
    run(&spec);
    CHECK_I64(done.status, 429);
    CHECK_NEAR(done.retry_after_s, 2.0, 0);
    spec = get("/busy-date", &done);
    run(&spec);
    CHECK_NEAR(done.retry_after_s, 0.0, 0);
    spec = get("/busy-rubbish", &done);
    run(&spec);
    CHECK_NEAR(done.retry_after_s, -1.0, 0);
}

static void a_stale_connection_is_tried_again_only_if_harmless(void)
{
    Done done;
    HttpClient *shared = client;
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK); /* no kept connections */
    HttpRequestSpec spec = get("/stale", &done);
    run(&spec);
    CHECK(strstr(done.body, " 1") != NULL);
    for (int i = 0; i < 2; i++) {
        spec = get("/stale", &done);
        spec.method = i ? "POST" : "GET";
        spec.body = i ? STR("{}") : (Str){NULL, 0};
        spec.idempotent = true;
        run(&spec);
        CHECK_I64(done.end, HTTP_END_OK);
        CHECK(strstr(done.body, " 1") != NULL); /* first request of a new connection */
    }
    spec = get("/stale", &done);
    spec.method = "POST";
    spec.body = STR("{}");
    run(&spec);
    CHECK_STR(http_end_name(done.end), "reset");
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    client = shared;
}

static void connections_are_kept(void)
{
    Done done;
    HttpRequestSpec spec = get("/connection", &done);
    run(&spec);
    int first = 0, second = 0, number = 0, later = 0;
    sscanf(done.body, "%d %d", &first, &number);
    spec = get("/connection", &done);
    run(&spec);
    sscanf(done.body, "%d %d", &second, &later);
    CHECK_I64(second, first);
    CHECK_I64(later, number + 1);
}

static void streams_and_cancels(void)
{
    Done done, other;
    HttpRequestSpec spec = get("/chunked", &done);
    spec.on_body = on_body;
    run(&spec);
    CHECK_I64(done.end, HTTP_END_OK);
    CHECK_STR(done.body, "abcdabcdabcdabcdabcd");
    CHECK(done.pieces >= 2);
    spec = get("/drip", &done); /* the reader says stop */
    spec.on_body = on_body;
    done.stop_after = 3;
    run(&spec);
    CHECK_STR(http_end_name(done.end), "cancelled");
    CHECK_I64(done.pieces, 3);
    spec = get("/drip", &done); /* cancelled from inside the callback */
    spec.on_body = on_body;
    done.cancel_in_body = (HttpCall *)&done;
    run(&spec);
    CHECK_STR(http_end_name(done.end), "cancelled");
    spec = get("/silent", &done); /* cancelled from outside, twice */
    HttpCall *call = NULL;
    CHECK_I64(http_start(client, &spec, &call, NULL), ERR_OK);
    http_call_cancel(call);
    http_call_cancel(call);
    CHECK_I64(done.count, 0); /* never from inside */
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(done.count, 1);
    CHECK_STR(http_end_name(done.end), "cancelled");
    for (int from_body = 0; from_body < 2; from_body++) { /* a start from inside callbacks */
        HttpRequestSpec second = get("/ok", &other);
        spec = get("/chunked", &done);
        spec.on_body = from_body ? on_body : NULL;
        done.again = &second;
        run(&spec);
        CHECK_I64(done.end, HTTP_END_OK);
        CHECK_I64(other.count, 1);
        CHECK_STR(other.body, "hello");
    }
}

static void many_at_once(void)
{
    enum { COUNT = 60 };
    static Done done[COUNT];
    for (int i = 0; i < COUNT; i++) {
        HttpRequestSpec spec = get(i % 3 == 2 ? "/cut" : "/chunked", &done[i]);
        CHECK_I64(http_start(client, &spec, NULL, NULL), ERR_OK);
        free(url_storage[--url_count % 64]); /* the client keeps its own copy */
        url_storage[url_count % 64] = NULL;
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < COUNT; i++) {
        CHECK_I64(done[i].count, 1);
        CHECK_I64(done[i].end, i % 3 == 2 ? HTTP_END_RESET : HTTP_END_OK);
    }
}

static void freeing_ends_every_call(void)
{
    Done done[3], last;
    HttpClient *second = NULL;
    CHECK_I64(http_client_new(&loop, NULL, &second, NULL), ERR_OK);
    for (int i = 0; i < 3; i++) {
        HttpRequestSpec spec = get("/silent", &done[i]);
        CHECK_I64(http_start(second, &spec, NULL, NULL), ERR_OK);
    }
    uv_run(&loop, UV_RUN_NOWAIT);
    http_client_free(second);
    for (int i = 0; i < 3; i++) {
        CHECK_I64(done[i].count, 1);
        CHECK_STR(http_end_name(done[i].end), "cancelled");
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(http_client_new(&loop, NULL, &second, NULL), ERR_OK); /* from inside on_done */
    HttpRequestSpec spec = get("/silent", &done[0]);
    CHECK_I64(http_start(second, &spec, NULL, NULL), ERR_OK);
    spec = get("/ok", &last);
    last.free_in_done = second;
    CHECK_I64(http_start(second, &spec, NULL, NULL), ERR_OK);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(last.count, 1);
    CHECK_I64(done[0].count, 1);
    CHECK_STR(http_end_name(done[0].end), "cancelled");
}

static void all(void)
{
    RUN(whole_replies);
    RUN(what_is_sent);
    RUN(a_proxy_of_the_environment_is_not_for_loopback);
    RUN(retry_after_is_read);
    RUN(a_stale_connection_is_tried_again_only_if_harmless);
    RUN(connections_are_kept);
    RUN(streams_and_cancels);
    RUN(many_at_once);
    RUN(freeing_ends_every_call);
}

int main(void)
{
    return rig_run(all);
}
