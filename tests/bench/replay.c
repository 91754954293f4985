/* An engine that costs next to nothing, for benches of those who talk to it: every POST is answered
 * with prepared bytes in SGLang's shape, as many tokens as the request asks for, whole or streamed.
 *   bench_replay [--burst N] [--gap-ms MS]
 * Streams get N events in one write every MS (1 and 10). Prints its address as `rolltop engine`
 * does. */
#include "core/net/http_server.h"
#include "tests/bench/reply_bytes.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

enum { TOKENS_MAX = 16384 };

typedef struct Stream {
    HttpExchange *exchange;
    struct Stream *previous, *next;
    int sent, tokens, prompt_tokens;
    bool logprob;
    char rid[64];
} Stream;

static Stream *streams;
static uv_timer_t ticker;
static int burst = 1;
static uint64_t gap_ms = 10;
static HttpServer *server;

static void stream_free(Stream *s)
{
    if (s->previous) {
        s->previous->next = s->next;
    } else {
        streams = s->next;
    }
    if (s->next) {
        s->next->previous = s->previous;
    }
    free(s);
}

static void send_burst(Stream *s)
{
    static Text event;
    event.max = 4096;
    for (int i = 0; i < burst && s->sent < s->tokens; i++) {
        text_clear(&event);
        make_event(&event, ++s->sent, s->tokens, s->rid, s->prompt_tokens, s->logprob);
        if (!http_stream_write(s->exchange, text_str(&event))) {
            return; /* on_gone follows */
        }
    }
    if (s->sent == s->tokens) {
        http_stream_write(s->exchange, STR("data: [DONE]\n\n"));
        http_stream_end(s->exchange);
        stream_free(s);
    }
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
    for (Stream *s = streams, *next = NULL; s; s = next) {
        next = s->next;
        send_burst(s);
    }
    if (!streams) {
        uv_timer_stop(&ticker);
    }
}

static int number_behind(Str body, Str key, int otherwise)
{
    size_t at = 0;
    return str_find(body, key, &at) ? atoi(body.p + at + key.n) : otherwise;
}

static void rid_of(Str body, char *rid, size_t size)
{
    size_t at = 0;
    size_t end = 0;
    Str rest = {NULL, 0};
    if (str_find(body, STR("\"rid\":\""), &at)) {
        rest = str_slice(body, at + 7, body.n);
    }
    (void)str_find(rest, STR("\""), &end);
    (void)str_format(rid, size, "%.*s", (int)end, rest.p ? rest.p : "");
}

static int prompt_of(Str body)
{
    size_t at = 0;
    if (!str_find(body, STR("\"input_ids\":["), &at)) {
        return 0;
    }
    int count = 1;
    for (const char *p = body.p + at; p < body.p + body.n && *p != ']'; p++) {
        count += *p == ',';
    }
    return count;
}

/* The same reply again and again is only printed once. */
static void reply_whole(HttpExchange *exchange, const char *rid, int tokens, int prompt_tokens)
{
    static const char mark[] = "@RID@";
    static Text kept;
    static int kept_tokens;
    static int kept_prompt;
    if (kept_tokens != tokens || kept_prompt != prompt_tokens) {
        text_free(&kept);
        text_init(&kept, 64u << 20);
        make_reply(&kept, tokens, mark, prompt_tokens);
        kept_tokens = tokens;
        kept_prompt = prompt_tokens;
    }
    size_t at = 0;
    (void)str_find(text_str(&kept), (Str){mark, sizeof mark - 1}, &at);
    Text body;
    text_init(&body, 64u << 20);
    text_reserve(&body, kept.n + 64);
    text_add(&body, kept.p, at);
    text_add_c(&body, rid);
    text_add_str(&body, str_slice(text_str(&kept), at + sizeof mark - 1, kept.n));
    http_reply_json(exchange, 200, &body);
    text_free(&body);
}

static void on_request(HttpExchange *exchange, void *user)
{
    (void)user;
    Str body = http_body(exchange);
    char rid[64];
    size_t at = 0;
    int tokens = number_behind(body, STR("\"max_new_tokens\":"), 1);
    tokens = tokens < 1 || tokens > TOKENS_MAX ? 1 : tokens;
    rid_of(body, rid, sizeof rid);
    if (!str_find(body, STR("\"stream\":true"), &at)) {
        reply_whole(exchange, rid, tokens, prompt_of(body));
        return;
    }
    Stream *s = xcalloc(1, sizeof *s);
    s->exchange = exchange;
    s->tokens = tokens;
    s->prompt_tokens = prompt_of(body);
    s->logprob = str_find(body, STR("\"return_logprob\":true"), &at);
    memcpy(s->rid, rid, sizeof rid);
    s->next = streams;
    if (streams) {
        streams->previous = s;
    }
    streams = s;
    http_set_user(exchange, s);
    http_stream_begin(exchange, 200, "text/event-stream", NULL);
    if (tokens == 1) { /* only the request is measured */
        send_burst(s);
    } else if (!uv_is_active((uv_handle_t *)&ticker)) {
        uv_timer_start(&ticker, on_tick, gap_ms, gap_ms);
    }
}

static void on_gone(HttpExchange *exchange, void *user)
{
    (void)user;
    Stream *s = http_get_user(exchange);
    if (s) {
        stream_free(s);
    }
}

int main(int argc, char **argv)
{
    uv_loop_t loop;
    Fault fault = {0};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--burst") == 0) {
            burst = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--gap-ms") == 0) {
            gap_ms = (uint64_t)atoi(argv[i + 1]);
        }
    }
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    uv_loop_init(&loop);
    uv_timer_init(&loop, &ticker);
    HttpServerConfig config = {.on_request = on_request, .on_gone = on_gone,
                               .max_connections = 8192};
    if (http_server_new(&loop, &config, &server, &fault) != ERR_OK) {
        fault_print(&fault);
        return 1;
    }
    printf("engine listening on http://127.0.0.1:%d\n", http_server_port(server));
    fflush(stdout);
    return uv_run(&loop, UV_RUN_DEFAULT);
}
