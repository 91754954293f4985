/* Whole HTTP replies, from the status line on, through a real socket into the generation client:
 * nothing crashes, hangs, ends twice, or is taken for a sample that breaks a promise. */
#include "tests/fuzz/recorded.h"

#include "core/base/clock.h"
#include "core/fleet/generate.h"

#include <math.h>

#define EVENT                                                                                     \
    "data: {\"output_ids\":[5],\"meta_info\":{\"id\":\"r\",\"completion_tokens\":1,"            \
    "\"prompt_tokens\":2,\"finish_reason\":{\"type\":\"length\"},\"weight_version\":\"4\","   \
    "\"output_token_logprobs\":[[-0.5,5,null]]}}\n\n"
const char *const fuzz_seeds[] = {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" EVENT "data: [DONE]\n\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    "6\r\ndata: \r\n7\r\n[DONE]\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length: 2147483648\r\n\r\n{\"output_ids\":[",
    "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08",
    "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.2:9/x\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 503 Busy\r\nretry-after: 99999999999999999999\r\ncontent-length: 2\r\n\r\n{}",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" EVENT, NULL};

bool fuzz_recorded(size_t position, const uint8_t **data, size_t *size)
{
    static const char *const words[] = {"generate", "stream", "kill", "error-", "gen_", "abort",
                                        NULL};
    return recorded_next(words, true, position, data, size);
}

enum { VOCAB = 100, MOST = 8, BOUND_MS = 200 };
static uv_loop_t loop;
static HttpClient *client;
static uv_tcp_t listener;
static const uint8_t *reply;
static size_t reply_size;
static int ends, port;

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}

static void on_written(uv_write_t *request, int status)
{
    (void)status;
    uv_handle_t *peer = (uv_handle_t *)request->handle;
    free(request);
    if (!uv_is_closing(peer)) {
        uv_close(peer, on_closed);
    }
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
    static char scratch[65536];
    (void)handle;
    (void)wanted;
    *out = uv_buf_init(scratch, sizeof scratch);
}

/* The request is answered at its first bytes; it may well be cut off by the close. */
static void on_request(uv_stream_t *peer, ssize_t got, const uv_buf_t *buffer)
{
    (void)buffer;
    uv_read_stop(peer);
    if (got <= 0) {
        uv_close((uv_handle_t *)peer, on_closed);
        return;
    }
    uv_write_t *request = malloc(sizeof *request);
    uv_buf_t bytes = uv_buf_init((char *)(uintptr_t)reply, (unsigned)reply_size);
    if (!request || uv_write(request, peer, &bytes, 1, on_written) != 0) {
        abort();
    }
}

static void on_connection(uv_stream_t *server, int status)
{
    uv_tcp_t *peer = malloc(sizeof *peer);
    if (!peer || status != 0) {
        abort();
    }
    uv_tcp_init(&loop, peer);
    if (uv_accept(server, (uv_stream_t *)peer) != 0) {
        abort();
    }
    uv_read_start((uv_stream_t *)peer, on_alloc, on_request);
}

static void open_all(void)
{
    struct sockaddr_in address;
    int n = sizeof address;
    uv_loop_init(&loop);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&loop, &listener);
    if (uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0) != 0
        || uv_listen((uv_stream_t *)&listener, 16, on_connection) != 0
        || uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &n) != 0
        || http_client_new(&loop, NULL, &client, NULL) != ERR_OK) {
        abort();
    }
    port = ntohs(address.sin_port);
    uv_unref((uv_handle_t *)&listener);
}

static void on_done(Generation *g, const GenerateResult *r, void *user)
{
    (void)g;
    (void)user;
    ends++;
    if (r->end != GENERATE_STOP && r->end != GENERATE_LENGTH) {
        return;
    }
    int32_t at = 0;
    for (size_t i = 0; i < r->span_count; i++) {
        if (r->spans[i].from != at || r->spans[i].to <= at) {
            abort();
        }
        at = r->spans[i].to;
    }
    if (r->count > MOST || (size_t)at != r->count) {
        abort();
    }
    for (size_t i = 0; i < r->count; i++) {
        if (r->ids[i] < 0 || r->ids[i] >= VOCAB || !isfinite(r->logprobs[i])) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int32_t prompt[] = {1, 2};
    char url[64];
    if (port == 0) {
        open_all();
    }
    reply = data;
    reply_size = size;
    ends = 0;
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/generate", port);
    GenerateSpec spec = {.url = url, .rid = "r", .input_ids = prompt, .input_count = 2,
                         .vocab = VOCAB, .stream = size % 2, .temperature = 1, .top_p = 1,
                         .top_k = -1, .max_new_tokens = MOST, .seed = -1, .total_ms = BOUND_MS,
                         .silence_ms = BOUND_MS};
    GenerateEvents events = {.on_done = on_done};
    Generation *g = NULL;
    int64_t from = clock_mono_us();
    if (generate_start(client, &spec, &events, &g, NULL) != ERR_OK) {
        abort();
    }
    while (ends == 0) {
        uv_run(&loop, UV_RUN_ONCE);
        if (clock_mono_us() - from > 60 * INT64_C(1000000)) {
            abort(); /* it hangs */
        }
    }
    uv_run(&loop, UV_RUN_NOWAIT);
    if (ends != 1) {
        abort();
    }
    return 0;
}
