/* Generation client over HTTP: each way in which a stream can end has its own name. */
#include "core/fleet/generate.h"
#include "core/base/mem.h"
#include "tests/fleet/captures.h"
#include "tests/harness.h"
#include "tests/net/raw_server.h"

#include <stdlib.h>

static uv_loop_t loop;
static HttpClient *client;
static RawServer server, other;

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" \
             "x-rolltop-engine: 127.0.0.1:31000\r\nTransfer-Encoding: chunked\r\n\r\n"

static void chunk(int fd, const char *text)
{
    char head[32];
    snprintf(head, sizeof head, "%zx\r\n", strlen(text));
    raw_print(fd, head);
    raw_print(fd, text);
    raw_print(fd, "\r\n");
}

static void event(int fd, int id, int total, const char *finish)
{
    char text[512];
    snprintf(text, sizeof text,
             "data: {\"text\":\"t%d\",\"output_ids\":[%d],\"meta_info\":{\"id\":\"r\","
             "\"finish_reason\":%s,\"prompt_tokens\":2,\"completion_tokens\":%d,\"weight_version\":"
             "\"4\",\"output_token_logprobs\":[[-0.5,%d,null]]}}\n\n", id, id, finish, total, id);
    chunk(fd, text);
}
#define LENGTH "{\"type\":\"length\",\"length\":3}"
#define WHOLE                                                                                     \
    "{\"text\":\"ab\",\"output_ids\":[7,8],\"meta_info\":{\"id\":\"r\",\"prompt_tokens\":2,"       \
    "\"finish_reason\":{\"type\":\"stop\"},\"completion_tokens\":2,"                               \
    "\"weight_version\":\"4\",\"output_token_logprobs\":[[-1,7,null],[-2,8,null]]}}"

/* The status and the words of a recorded refusal, in framing of our own: captures have LF. */
static void recorded_answer(const RawRequest *r)
{
    Captures all = captures_load();
    Str bytes = captures_get(&all, r->path + strlen("/recorded/"));
    int status = capture_reply(bytes).status;
    size_t at = 0;
    Str rest = str_find(bytes, STR("---- response ----"), &at) ? str_slice(bytes, at, bytes.n)
                                                               : bytes;
    Str line = {0};
    char text[2048];
    while (str_split(&rest, '\n', &line) && !str_starts(line, STR("{"))
           && !str_starts(line, STR("data: {"))) {
    }
    bool stream = str_starts(line, STR("data: "));
    snprintf(text, sizeof text, "%.*s%s", (int)line.n, line.p,
             stream ? "\n\ndata: [DONE]\n\n" : "");
    raw_reply(r->fd, status, stream ? "Content-Type: text/event-stream\r\n" : "", text);
    captures_free(&all);
}

static bool plain_answers(const RawRequest *r)
{
    if (strncmp(r->path, "/recorded/", 10) == 0) {
        recorded_answer(r);
    } else if (strcmp(r->path, "/unary") == 0) {
        raw_sleep_ms(400); /* silent by nature */
        raw_reply(r->fd, 200, "", strstr(r->body, "\"stream\":false") ? WHOLE : "no");
    } else if (strcmp(r->path, "/json") == 0) {
        raw_reply(r->fd, 200, "Content-Type: text/plain\r\n", WHOLE);
    } else if (strcmp(r->path, "/unary-cut") == 0) {
        char body[] = WHOLE;
        body[sizeof body - 20] = '\0';
        raw_reply(r->fd, 200, "", body);
    } else if (strcmp(r->path, "/503") == 0) {
        raw_reply(r->fd, 503, "Retry-After: 3\r\n",
                  "{\"error\":{\"message\":\"engine rejected the request\"}}");
    } else if (strcmp(r->path, "/529") == 0 || strcmp(r->path, "/400") == 0
               || strcmp(r->path, "/404") == 0 || strncmp(r->path, "/50", 3) == 0) {
        raw_reply(r->fd, atoi(r->path + 1), "", "{\"object\":\"error\",\"message\":\"m\"}");
    } else if (strcmp(r->path, "/gzip") == 0) {
        raw_reply(r->fd, 200, "Content-Encoding: gzip\r\n", "{\x1f\x8b\x08zip");
    } else if (strcmp(r->path, "/2gb") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\nContent-Length: 2147483648\r\n\r\n{");
        raw_sleep_ms(30000);
        return false;
    } else if (strcmp(r->path, "/endless-head") == 0) {
        raw_print(r->fd, "HTTP/1.1 200 OK\r\n");
        for (int i = 0; i < 200000; i++) {
            raw_print(r->fd, "x-filler: 0123456789012345678901234567890123456789\r\n");
        }
        return false;
    } else if (strcmp(r->path, "/nan") == 0) {
        raw_reply(r->fd, 200, "", "{\"output_ids\":[7],\"meta_info\":{\"id\":\"r\","
                  "\"prompt_tokens\":2,\"finish_reason\":{\"type\":\"stop\"},"
                  "\"completion_tokens\":1,\"output_token_logprobs\":[[NaN,7,null]]}}");
    } else if (strcmp(r->path, "/beyond") == 0) {
        raw_reply(r->fd, 200, "", "{\"output_ids\":[9007199254740993],\"meta_info\":{\"id\":\"r\","
                  "\"prompt_tokens\":2,\"finish_reason\":{\"type\":\"stop\"},"
                  "\"completion_tokens\":1,"
                  "\"output_token_logprobs\":[[-1,9007199254740993,null]]}}");
    } else if (strcmp(r->path, "/elsewhere") == 0) { /* a whole sample waits at the other host */
        char location[64];
        snprintf(location, sizeof location, "Location: http://localhost:%d/json\r\n", other.port);
        raw_reply(r->fd, r->number % 2 ? 307 : 302, location, WHOLE);
    } else if (strcmp(r->path, "/two-models") == 0) { /* as recorded */
        raw_reply(r->fd, 400, "",
                  "{\"error\":{\"message\":\"multiple SGLang models are registered; configure a "
                  "model-specific generate endpoint\"}}");
    } else if (strcmp(r->path, "/gone") == 0) {
        return false;
    } else {
        raw_reply(r->fd, 404, "", "?");
    }
    return true;
}

static bool answer_stream(const RawRequest *r)
{
    int fd = r->fd;
    raw_print(fd, HEAD);
    if (strcmp(r->path, "/s/silent") == 0) {
        event(fd, 5, 1, "null");
        raw_sleep_ms(30000);
    } else if (strcmp(r->path, "/s/error") == 0) {
        event(fd, 5, 1, "null");
        chunk(fd, "data: {\"error\":{\"message\":\"Internal server error\"}}\n\n");
        chunk(fd, "data: [DONE]\n\n");
    } else if (strcmp(r->path, "/s/overload") == 0) {
        chunk(fd, "data: {\"error\":{\"message\":\"Service temporarily overloaded\"}}\n\n");
        chunk(fd, "data: [DONE]\n\n");
    } else if (strcmp(r->path, "/s/refused") == 0) {
        chunk(fd, "data: {\"error\":{\"message\":\"top_p\",\"code\":400}}\n\n");
        chunk(fd, "data: [DONE]\n\n");
    } else if (strcmp(r->path, "/s/abort") == 0) {
        event(fd, 5, 1, "null");
        event(fd, 6, 2, "{\"type\":\"abort\",\"message\":\"Aborted\",\"status_code\":null}");
        chunk(fd, "data: [DONE]\n\n");
    } else if (strcmp(r->path, "/s/no-finish") == 0) {
        event(fd, 5, 1, "null");
        chunk(fd, "data: [DONE]\n\n");
    } else if (strcmp(r->path, "/s/lost-chunk") == 0) {
        event(fd, 5, 1, "null");
        event(fd, 7, 3, LENGTH);
        chunk(fd, "data: [DONE]\n\n");
    } else if (strcmp(r->path, "/s/rubbish") == 0) {
        chunk(fd, "data: {\"output_ids\":[}\n\n");
        raw_sleep_ms(2000);
    } else {
        chunk(fd, ": keep-alive\n\n");
        event(fd, 5, 1, "null");
        event(fd, 6, 2, "null");
        if (strcmp(r->path, "/s/cut") == 0) {
            return false;
        }
        event(fd, 7, 3, LENGTH);
        if (strcmp(r->path, "/s/no-done") != 0) {
            chunk(fd, "data: [DONE]\n\n");
        }
        if (strcmp(r->path, "/s/done-cut") == 0) {
            return false; /* whole already: the framing's last bytes do not matter */
        }
    }
    raw_print(fd, "0\r\n\r\n");
    return true;
}

static bool handler(const RawRequest *r, void *user)
{
    (void)user;
    if (strcmp(r->path, "/request") == 0) {
        char *text = xcalloc(1, r->body_bytes * 2 + 64);
        size_t n = (size_t)sprintf(text, "{\"error\":\"");
        for (size_t i = 0; i < r->body_bytes; i++) {
            text[n++] = r->body[i] == '"' ? '\'' : r->body[i];
        }
        memcpy(text + n, "\"}", 3);
        raw_reply(r->fd, 400, "", text);
        free(text);
        return true;
    }
    if (strncmp(r->path, "/s/", 3) == 0) {
        return answer_stream(r);
    }
    return plain_answers(r);
}

typedef struct Done {
    int count, progress;
    GenerateEnd end;
    size_t tokens;
    int32_t last_id;
    int64_t version, first_token_us, total_us, prompt_tokens;
    double retry_after_s;
    char engine[64], detail[160], text[64];
    Generation **cancel;
} Done;

static void on_progress(Generation *g, size_t tokens, void *user)
{
    Done *done = user;
    done->progress++;
    if (done->cancel) {
        generate_cancel(g);
    }
}

static void on_done(Generation *g, const GenerateResult *r, void *user)
{
    (void)g;
    Done *done = user;
    done->count++;
    done->end = r->end;
    done->tokens = r->count;
    done->last_id = r->count > 0 ? r->ids[r->count - 1] : -1;
    done->version = r->span_count > 0 ? r->spans[0].weight_version : -1;
    done->first_token_us = r->first_token_us;
    done->total_us = r->total_us;
    done->prompt_tokens = r->prompt_tokens;
    done->retry_after_s = r->retry_after_s;
    snprintf(done->engine, sizeof done->engine, "%s", r->engine);
    snprintf(done->detail, sizeof done->detail, "%s", r->detail);
    snprintf(done->text, sizeof done->text, "%.*s", (int)(r->text.n < 60 ? r->text.n : 60),
             r->text.p ? r->text.p : "");
}

static Done run_with(const char *path, GenerateSpec spec, bool cancel)
{
    static const int32_t prompt[] = {1, 2};
    char url[256];
    Done done = {0};
    Generation *g = NULL;
    Fault fault = {0};
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", server.port, path);
    spec.url = url;
    spec.rid = spec.rid ? spec.rid : "r";
    spec.input_ids = prompt;
    spec.input_count = 2;
    spec.temperature = 1;
    spec.top_p = 1;
    spec.top_k = -1;
    spec.max_new_tokens = spec.max_new_tokens ? spec.max_new_tokens : 3;
    done.cancel = cancel ? &g : NULL;
    GenerateEvents events = {on_progress, on_done, &done};
    CHECK_I64(generate_start(client, &spec, &events, &g, &fault), ERR_OK);
    CHECK_I64(done.count, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(done.count, 1);
    return done;
}

/* Only where silence is what is tested may a slow machine be taken for it. */
static Done run(const char *path)
{
    const bool quiet = strcmp(path, "/s/silent") == 0 || strcmp(path, "/2gb") == 0;
    return run_with(path, (GenerateSpec){.stream = true, .silence_ms = quiet ? 2000 : 60000,
                                         .total_ms = 60000}, false);
}

static void good_ends(void)
{
    Done done = run("/s/good");
    CHECK_STR(generate_end_name(done.end), "length");
    CHECK_I64(done.tokens, 3);
    CHECK_I64(done.last_id, 7);
    CHECK_I64(done.version, 4);
    CHECK_STR(done.text, "t5t6t7");
    CHECK_STR(done.engine, "127.0.0.1:31000");
    CHECK_I64(done.prompt_tokens, 2);
    CHECK(done.progress >= 1 && done.first_token_us > 0 && done.total_us >= done.first_token_us);
    CHECK_STR(generate_end_name(run("/s/done-cut").end), "length");
    done = run("/json"); /* plain JSON for a stream request, under any content type */
    CHECK_STR(generate_end_name(done.end), "stop");
    CHECK_STR(done.text, "ab");
    done = run_with("/unary", (GenerateSpec){.silence_ms = 100, .total_ms = 60000}, false);
    CHECK_STR(generate_end_name(done.end), "stop");
    CHECK_I64(done.tokens, 2);
}

static void bad_ends(void)
{
    static const struct { const char *path, *end, *detail; } cases[] = {
        {"/s/cut", "failed", "reset"},
        {"/s/no-done", "truncated", "[DONE]"},
        {"/s/no-finish", "truncated", "finish_reason"},
        {"/s/error", "error frame", "Internal server error"},
        {"/s/overload", "busy", "overloaded"},
        {"/s/refused", "refused", "top_p"},
        {"/s/abort", "abort", "Aborted"},
        {"/s/lost-chunk", "invalid", "completion_tokens"},
        {"/s/silent", "silent", "1 tokens"},
        {"/s/rubbish", "failed", "not the JSON"},
        {"/unary-cut", "failed", "JSON"},
        {"/503", "busy", "engine rejected the request"},
        {"/529", "busy", "529"},
        {"/400", "refused", "400"},
        {"/404", "failed", "404"},
        {"/500", "failed", "500"},
        {"/501", "refused", "501"},
        {"/gzip", "failed", "JSON"},           /* nobody asked for it */
        {"/2gb", "silent", "0 tokens"},        /* a stream may be long; it keeps no byte of it */
        {"/endless-head", "failed", "too large"},
        {"/nan", "failed", "JSON"},
        {"/beyond", "invalid", "token id"},    /* 2^53 + 1 */
        {"/elsewhere", "failed", "http 30"},   /* no redirect is followed, nor its body taken */
        {"/two-models", "failed", "multiple SGLang models"}, /* the fleet's fault, not ours */
        {"/gone", "failed", "reset"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Done done = run(cases[i].path);
        if (!strstr(done.detail, cases[i].detail)) {
            fprintf(stderr, "%s: %s\n", cases[i].path, done.detail);
            CHECK(false);
        }
        CHECK_STR(generate_end_name(done.end), cases[i].end);
        CHECK_NEAR(done.retry_after_s, strcmp(cases[i].path, "/503") == 0 ? 3 : -1, 0);
        CHECK(done.total_us < 50000000);
    }
    Done done = run_with("/2gb", (GenerateSpec){.total_ms = 60000}, false);
    CHECK_STR(generate_end_name(done.end), "failed"); /* a whole reply may not */
    CHECK(strstr(done.detail, "too large") != NULL && done.total_us < 50000000);
    done = run_with("/s/good", (GenerateSpec){.stream = true, .rid = "another"}, false);
    CHECK_STR(generate_end_name(done.end), "invalid"); /* crossed replies */
    done = run_with("/s/good", (GenerateSpec){.stream = true, .vocab = 7}, false);
    CHECK_STR(generate_end_name(done.end), "invalid");
    done = run_with("/s/good", (GenerateSpec){.stream = true, .max_new_tokens = 2}, false);
    CHECK_STR(generate_end_name(done.end), "invalid");
    done = run_with("/s/silent", (GenerateSpec){.stream = true}, true);
    CHECK_STR(generate_end_name(done.end), "cancelled");
    CHECK(done.total_us < 50000000);
}

/* What real frontends and engines refuse with: 503 and 500 in their meanings, errors under 200. */
static void recorded_refusals(void)
{
    static const struct { const char *name, *end, *detail; } cases[] = {
        {"dynamo/drain-generate.http", "busy", "Service is not ready"},
        {"dynamo/error-not-ready-503.http", "busy", "is not ready to serve requests yet"},
        {"dynamo/error-overload-503.http", "busy", "engine rejected the request"},
        {"dynamo-sglang/error-last-engine-dead.http", "busy", "not ready"},
        {"dynamo/error-overload-529.http", "busy", "529"},
        {"dynamo/error-connection-refused-500.http", "failed", "500"}, /* a killed one, listed */
        {"dynamo-sglang/error-after-kill.http", "failed", "500"},
        {"dynamo/error-no-model-404.http", "failed", "404"},
        {"dynamo-sglang/error-multiple-models.http", "failed", "multiple SGLang models"},
        {"dynamo/error-nested-ids.http", "refused", "400"},
        {"dynamo-sglang/error-engine-bad-top-p.http", "refused", "top_p"},
        {"dynamo-sglang/error-engine-too-long.http", "refused", "is longer than"},
        {"dynamo-sglang/error-engine-out-of-vocabulary.http", "error frame", "Internal server"},
        {"dynamo-sglang/error-engine-unknown-sampling.http", "error frame", "Internal server"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[160];
        snprintf(path, sizeof path, "/recorded/%s", cases[i].name);
        Done done = run(path);
        if (!strstr(done.detail, cases[i].detail) ||
            strcmp(generate_end_name(done.end), cases[i].end) != 0) {
            fprintf(stderr, "%s: %s: %s\n", cases[i].name, generate_end_name(done.end),
                    done.detail);
            CHECK(false);
        }
    }
}

static void the_request_is_slimes(void)
{
    static const char *const stop[] = {"\n\n", NULL};
    static const int32_t ids[] = {9, 10};
    Done done = run_with("/request", (GenerateSpec){.stream = true, .stop = stop, .stop_ids = ids,
                                                    .stop_id_count = 2, .seed = 42}, false);
    CHECK_STR(generate_end_name(done.end), "refused");
    const char *expected = "http 400: {'rid':'r','input_ids':[1,2],'sampling_params':{"
                           "'temperature':1,'top_p':1,'top_k':-1,'max_new_tokens':3,'stop':[";
    if (strncmp(done.detail, expected, strlen(expected) - 4) != 0) {
        fprintf(stderr, "%s\n", done.detail);
        CHECK(false);
    }
}

static void what_is_wrong_is_not_sent(void)
{
    static const int32_t bad[] = {1, 50, 2};
    GenerateSpec good = {.url = "http://127.0.0.1:9/", .rid = "r", .input_ids = bad,
                         .input_count = 3, .vocab = 100, .temperature = 1, .top_p = 1,
                         .top_k = -1, .max_new_tokens = 1};
    GenerateSpec specs[6];
    for (int i = 0; i < 6; i++) {
        specs[i] = good;
    }
    specs[0].vocab = 50;
    specs[1].input_count = 0;
    specs[2].temperature = NAN;
    specs[3].top_p = 0;
    specs[4].max_new_tokens = 0;
    specs[5].url = "not a url";
    GenerateEvents events = {.on_done = on_done};
    for (int i = 0; i < 6; i++) {
        Generation *g = NULL;
        Fault fault = {0};
        CHECK_I64(generate_start(client, &specs[i], &events, &g, &fault), ERR_ARG);
        CHECK(fault.sentence[0] != '\0' && fault.hint[0] != '\0');
        CHECK(g == NULL);
    }
}

int main(void)
{
    other = raw_server_start(handler, NULL);
    server = raw_server_start(handler, NULL);
    uv_loop_init(&loop);
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK);
    RUN(good_ends);
    RUN(bad_ends);
    RUN(recorded_refusals);
    RUN(the_request_is_slimes);
    RUN(what_is_wrong_is_not_sent);
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
    raw_server_stop(&server);
    raw_server_stop(&other);
    return test_end();
}
