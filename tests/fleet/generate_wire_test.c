/* Whole replies on the wire, status line and framing included, cut at every byte and with every
 * byte damaged: each ends once, in time, and is taken for a sample only when it still is that very
 * sample. */
#include "core/base/mem.h"
#include "core/fleet/generate.h"
#include "tests/harness.h"

#include <arpa/inet.h>
#include <stdlib.h>

#define EVENT(id, total, finish)                                                                  \
    "data: {\"text\":\"t\",\"output_ids\":[" id "],\"meta_info\":{\"id\":\"r\","                  \
    "\"finish_reason\":" finish ",\"prompt_tokens\":2,\"completion_tokens\":" total ","           \
    "\"weight_version\":\"4\",\"output_token_logprobs\":[[-0.5," id ",null]]}}\n\n"
#define EVENTS EVENT("5", "1", "null") EVENT("6", "2", "{\"type\":\"stop\",\"matched\":6}")
#define UNARY                                                                                     \
    "{\"text\":\"ab\",\"output_ids\":[5,6],\"meta_info\":{\"id\":\"r\",\"prompt_tokens\":2,"       \
    "\"finish_reason\":{\"type\":\"stop\"},\"completion_tokens\":2,\"weight_version\":\"4\","      \
    "\"output_token_logprobs\":[[-1.25,5,null],[-2.5,6,null]]}}"
#define DONE "data: [DONE]\n\n"

static uv_loop_t loop;
static HttpClient *client;
static uv_tcp_t listener;
static int port;
static const char *reply;
static size_t reply_n;

typedef struct Outcome {
    int ends;
    bool whole, same;
    int64_t total_us;
} Outcome;

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}

static void on_written(uv_write_t *request, int status)
{
    (void)status;
    uv_close((uv_handle_t *)request->handle, on_closed);
    free(request);
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
    static char scratch[65536];
    (void)handle;
    (void)wanted;
    *out = uv_buf_init(scratch, sizeof scratch);
}

static void on_request(uv_stream_t *peer, ssize_t got, const uv_buf_t *buffer)
{
    (void)buffer;
    uv_read_stop(peer);
    if (got <= 0) {
        uv_close((uv_handle_t *)peer, on_closed);
        return;
    }
    uv_write_t *request = xcalloc(1, sizeof *request);
    uv_buf_t bytes = uv_buf_init((char *)(uintptr_t)reply, (unsigned)reply_n);
    CHECK_I64(uv_write(request, peer, &bytes, 1, on_written), 0);
}

static void on_connection(uv_stream_t *server, int status)
{
    uv_tcp_t *peer = xcalloc(1, sizeof *peer);
    CHECK_I64(status, 0);
    uv_tcp_init(&loop, peer);
    CHECK_I64(uv_accept(server, (uv_stream_t *)peer), 0);
    uv_read_start((uv_stream_t *)peer, on_alloc, on_request);
}

static void on_done(Generation *g, const GenerateResult *r, void *user)
{
    Outcome *outcome = user;
    (void)g;
    outcome->ends++;
    outcome->whole = r->end == GENERATE_STOP || r->end == GENERATE_LENGTH;
    outcome->same = r->count == 2 && r->ids[0] == 5 && r->ids[1] == 6 && r->logprobs
                    && isfinite(r->logprobs[0]) && isfinite(r->logprobs[1]);
    outcome->total_us = r->total_us;
}

static Outcome ask(const char *bytes, size_t n, bool stream)
{
    static const int32_t prompt[] = {1, 2};
    char url[64];
    Outcome outcome = {0};
    Fault fault = {0};
    reply = bytes;
    reply_n = n;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/generate", port);
    GenerateSpec spec = {.url = url, .rid = "r", .input_ids = prompt, .input_count = 2,
                         .vocab = 100, .stream = stream, .temperature = 1, .top_p = 1, .top_k = -1,
                         .max_new_tokens = 8, .seed = -1, .total_ms = 60000,
                         .silence_ms = 60000};
    GenerateEvents events = {NULL, on_done, &outcome};
    Generation *g = NULL;
    CHECK_I64(generate_start(client, &spec, &events, &g, &fault), ERR_OK);
    while (outcome.ends == 0) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    return outcome;
}

/* `enough`: how many bytes make a whole sample, whatever of the framing is missing behind them. */
static void try_all(const char *name, const char *head, const char *body, const char *tail,
                    size_t spare, bool stream)
{
    static const unsigned char masks[] = {0x01, 0x10, 0x80};
    char *all = xasprintf("%s%s%s", head, body, tail);
    const size_t n = strlen(all);
    const size_t enough = n - strlen(tail) - spare;
    int mistaken = 0;
    Outcome outcome = ask(all, n, stream);
    CHECK(outcome.whole && outcome.same);
    for (size_t cut = 0; cut <= n; cut++) {
        outcome = ask(all, cut, stream);
        CHECK_I64(outcome.ends, 1);
        CHECK(outcome.total_us < 50000000);
        if (outcome.whole && (cut < enough || !outcome.same)) {
            fprintf(stderr, "%s cut at %zu of %zu was taken\n", name, cut, n);
            mistaken++;
        }
    }
    for (size_t at = 0; at < n; at++) {
        for (size_t m = 0; m < sizeof masks; m++) {
            char before = all[at];
            all[at] = (char)((unsigned char)before ^ masks[m]);
            outcome = ask(all, n, stream);
            CHECK_I64(outcome.ends, 1);
            CHECK(outcome.total_us < 50000000);
            if (outcome.whole && !outcome.same) {
                fprintf(stderr, "%s with byte %zu damaged was taken\n", name, at);
                mistaken++;
            }
            all[at] = before;
        }
    }
    CHECK_I64(mistaken, 0);
    free(all);
}

static void an_unary_reply(void)
{
    char head[128];
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", sizeof UNARY - 1);
    try_all("unary", head, UNARY, "", 0, false);
}

static void a_chunked_stream(void)
{
    char head[128];
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n",
             sizeof EVENTS - 1);
    try_all("chunked", head, EVENTS "\r\n" "e\r\n" DONE, "\r\n0\r\n\r\n", 0, true);
}

/* The end of the connection is the end of the body: only [DONE] tells a whole stream. */
static void a_stream_until_the_close(void)
{
    try_all("close", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", EVENTS DONE, "",
            0, true);
}

int main(void)
{
    struct sockaddr_in address;
    int n = sizeof address;
    uv_loop_init(&loop);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&loop, &listener);
    CHECK_I64(uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0), 0);
    CHECK_I64(uv_listen((uv_stream_t *)&listener, 64, on_connection), 0);
    CHECK_I64(uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &n), 0);
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK);
    port = ntohs(address.sin_port);
    RUN(an_unary_reply);
    RUN(a_chunked_stream);
    RUN(a_stream_until_the_close);
    uv_close((uv_handle_t *)&listener, NULL);
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
    return test_end();
}
