/* HTTP client against peers that are wrong, slow or not there: every end has its own name, every
 * bound holds. */
#include "tests/net/http_client_rig.h"

static void every_failure_has_its_own_end(void)
{
    static const struct {
        const char *path;
        HttpEnd end;
        int64_t silence_ms, total_ms;
    } cases[] = {
        {"/cut", HTTP_END_RESET, 0, 0},
        {"/cut-chunk", HTTP_END_RESET, 0, 0},
        {"/cut-head", HTTP_END_RESET, 0, 0},
        {"/gone", HTTP_END_RESET, 0, 0},
        {"/bad-chunk", HTTP_END_MALFORMED, 0, 0},
        {"/not-http", HTTP_END_MALFORMED, 0, 0},
        {"/silent", HTTP_END_TIMEOUT_SILENT, 150, 60000},
        {"/silent-body", HTTP_END_TIMEOUT_SILENT, 150, 60000},
        {"/silent", HTTP_END_TIMEOUT_TOTAL, -1, 150},
        {"/drip", HTTP_END_TIMEOUT_TOTAL, 1500, 1600},
        {"/big-line", HTTP_END_TOO_LARGE, 0, 0},
        {"/many-lines", HTTP_END_TOO_LARGE, 0, 0},
        {"/big-length", HTTP_END_TOO_LARGE, 0, 0},
        {"/big-stream", HTTP_END_TOO_LARGE, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Done done;
        HttpRequestSpec spec = get(cases[i].path, &done);
        spec.silence_ms = cases[i].silence_ms;
        spec.total_ms = cases[i].total_ms;
        spec.max_body = 1000;
        int64_t from = clock_mono_us();
        run(&spec);
        if (done.end != cases[i].end) {
            fprintf(stderr, "%s: %s\n", cases[i].path, done.error);
        }
        CHECK_STR(http_end_name(done.end), http_end_name(cases[i].end));
        CHECK(done.error[0] != '\0');
        CHECK(clock_mono_us() - from < 60000000);
    }
}

/* Where curl is laxer, or ends otherwise: only of the client without it. */
static void framing_that_could_be_read_in_two_ways_is_refused(void)
{
    static const struct {
        const char *path;
        HttpEnd end;
    } cases[] = {
        {"/both-lengths", HTTP_END_MALFORMED}, {"/two-lengths", HTTP_END_MALFORMED},
        {"/less-than-none", HTTP_END_MALFORMED}, {"/switch", HTTP_END_MALFORMED},
        {"/big-chunk", HTTP_END_TOO_LARGE}, {"/trailers", HTTP_END_TOO_LARGE},
        {"/interims", HTTP_END_TOO_LARGE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && host[0] == '1'; i++) {
        Done done;
        HttpRequestSpec spec = get(cases[i].path, &done);
        spec.max_body = 1000;
        run(&spec);
        if (done.end != cases[i].end) {
            fprintf(stderr, "%s: %s\n", cases[i].path, done.error);
        }
        CHECK_STR(http_end_name(done.end), http_end_name(cases[i].end));
    }
}

static void interim_replies_and_trailers_are_not_the_reply(void)
{
    Done done;
    HttpRequestSpec spec = get("/interim-length", &done);
    spec.on_head = on_head;
    run(&spec);
    CHECK_I64(done.end, HTTP_END_OK);
    CHECK_I64(done.status, 201);
    CHECK_STR(done.body, "made");
    CHECK_I64(done.heads, 1);
    spec = get("/trailer", &done);
    spec.on_head = on_head;
    run(&spec);
    CHECK_I64(done.end, HTTP_END_OK);
    CHECK_STR(done.body, "made");
    CHECK_I64(done.heads, 1);
    CHECK(strstr(done.headers, "late") == NULL);
}

/* The rest of a request that was answered early must not stand before the next one. */
static void a_connection_with_half_a_request_is_not_kept(void)
{
    enum { LONG = 32 << 20 };
    Done done;
    char *body = xcalloc(1, LONG);
    HttpRequestSpec spec = get("/early", &done);
    spec.method = "POST";
    spec.body = (Str){body, LONG};
    run(&spec);
    CHECK_I64(done.end, HTTP_END_OK);
    CHECK_I64(done.status, 413);
    CHECK_STR(done.body, "too long");
    spec = get("/ok", &done);
    run(&spec);
    CHECK_I64(done.end, HTTP_END_OK);
    CHECK_STR(done.body, "hello");
    free(body);
}

static void nobody_there(void)
{
    Done done;
    HttpRequestSpec spec = get("/ok", &done);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK_I64(bind(fd, (struct sockaddr *)&address, size), 0);
    getsockname(fd, (struct sockaddr *)&address, &size);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    spec.url = url; /* bound, not listening */
    run(&spec);
    CHECK_STR(http_end_name(done.end), "refused");
    CHECK_I64(done.status, 0);
    CHECK_I64(listen(fd, 0), 0); /* a queue of one that nobody empties: SYNs are dropped */
    int held[4];
    for (int i = 0; i < 4; i++) {
        held[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(held[i], (struct sockaddr *)&address, size);
    }
    raw_sleep_ms(50);
    spec = get("/ok", &done);
    spec.url = url;
    spec.connect_ms = 200;
    run(&spec);
    CHECK_STR(http_end_name(done.end), "timeout connect");
    CHECK(done.total_us >= 190000 && done.total_us < 60000000);
    for (int i = 0; i < 4; i++) {
        close(held[i]);
    }
    close(fd);
    spec = get("/ok", &done);
    spec.url = "http://a-label-of-more-than-sixty-three-characters-is-no-name-in-the-dns-at-all."
               "invalid/";
    spec.connect_ms = 60000;
    run(&spec);
    CHECK_STR(http_end_name(done.end), "name not resolved");
}

static void wrong_arguments_are_refused_before_anything_is_sent(void)
{
    static const char *const bad[] = {"", "127.0.0.1:30000/x y", "ftp://127.0.0.1/", "http://",
                                      "http://user:pw@127.0.0.1/", "http://127.0.0.1/\r\nX: 1",
                                      "http://127.0.0.1:99999/"};
    Done done;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        HttpRequestSpec spec = get("/ok", &done);
        Fault fault = {0};
        spec.url = bad[i];
        CHECK_I64(http_start(client, &spec, NULL, &fault), ERR_ARG);
        CHECK(fault.sentence[0] != '\0' && fault.hint[0] != '\0');
        CHECK(strstr(fault.sentence, "pw") == NULL);
    }
    HttpRequestSpec spec = get("/ok", &done);
    Fault fault = {0};
    spec.bearer = "a\r\nX-Injected: 1";
    CHECK_I64(http_start(client, &spec, NULL, &fault), ERR_ARG);
    CHECK(strstr(fault.sentence, "Injected") == NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(done.count, 0);
}

static void all(void)
{
    RUN(every_failure_has_its_own_end);
    RUN(framing_that_could_be_read_in_two_ways_is_refused);
    RUN(interim_replies_and_trailers_are_not_the_reply);
    RUN(a_connection_with_half_a_request_is_not_kept);
    RUN(nobody_there);
    RUN(wrong_arguments_are_refused_before_anything_is_sent);
}

int main(void)
{
    return rig_run(all);
}
