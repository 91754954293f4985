/* A synthetic engine in a child process, spoken to as its clients do. */
#include "core/serve/engine.h"

#include "core/base/fs.h"
#include "core/serve/synthetic.h"
#include "tests/serve/rig.h"

static Part engine_start(const char *const *more)
{
    const char *argv[RIG_ARGS] = {"engine", "--synthetic", "--synthetic-digest", "d1", "--port",
                                  "0", "--faults"};
    int n = 7;
    while (*more) {
        argv[n++] = *more++;
    }
    return part_start(engine_main, argv, 1);
}

#define ENGINE(...) engine_start((const char *const[]){__VA_ARGS__, NULL})

#define LOADS "/v1/loads?include=core"

static double running(int port)
{
    return number_of(port, LOADS, "loads.0.num_running_reqs");
}

static bool comes_to_run(int port, double wanted)
{
    return number_comes(port, LOADS, "loads.0.num_running_reqs", wanted, wanted);
}

static double tokens_made(int port)
{
    return number_of(port, "/v1/loads", "loads.0.gen_tokens_total");
}

static bool more_tokens(int port, double least)
{
    return number_comes(port, "/v1/loads", "loads.0.gen_tokens_total", least, 1e9);
}

/* Does the request on that connection wait at the engine, or is it answered? */
static bool is_held(int port, int fd)
{
    for (int i = 0; i < RIG_POLLS; i++) {
        char byte;
        if (number_of(port, "/v1/loads?include=all", "loads.0.queues.paused") > 0) {
            return true;
        }
        if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) {
            return false;
        }
        clock_sleep_us(RIG_POLL_US);
    }
    return false;
}

static void information(void)
{
    Part part = ENGINE("--name", "eng-07", "--weight-version", "5", "--served-model-name", "m");
    int port = part.ports[0];
    CHECK_I64(http_status(port, "GET", "/ping", ""), 200);
    CHECK_I64(http_status(port, "GET", "/health", ""), 200);
    CHECK_I64(http_status(port, "GET", "/health_generate", ""), 200);
    cJSON *info = http_json(port, "GET", "/server_info", "", 200);
    CHECK_I64(json_num(info, "pid"), part.pid);
    CHECK(json_num(info, "start_time_us") > 1.7e15);
    CHECK_STR(json_str(info, "engine_name"), "eng-07");
    CHECK_STR(json_str(info, "disaggregation_mode"), "null");
    CHECK(cJSON_IsFalse(json_at(info, "paused")));
    CHECK(cJSON_IsNull(json_at(info, "api_key")));
    CHECK_I64(json_num(info, "tp_size"), 1);
    CHECK(json_at(info, "internal_states.0.memory_usage") != NULL);
    cJSON_Delete(info);
    info = http_json(port, "GET", "/model_info", "", 200);
    CHECK_STR(json_str(info, "weight_version"), "5");
    cJSON_Delete(info);
    info = http_json(port, "GET", "/v1/models", "", 200);
    CHECK_STR(json_str(info, "data.0.id"), "m");
    cJSON_Delete(info);
    info = http_json(port, "GET", "/get_load", "", 200);
    CHECK_I64(json_num(info, "0.num_reqs"), 0);
    cJSON_Delete(info);
    CHECK_I64(http_status(port, "GET", "/v1/loads?include=core,bogus", ""), 400);
    CHECK_I64(http_status(port, "GET", "/nope", ""), 404);
    CHECK_I64(http_status(port, "GET", "/generate", ""), 405);
    Reply reply = http_ask(port, "GET", "/metrics", "");
    CHECK(strstr(reply.body, "sglang:num_running_reqs{engine_type=\"unified\",model_name=\"m\""));
    CHECK(strstr(reply.body, "mode=\"decode\"} 1\n")); /* of the health probe */
    CHECK(strstr(reply.body, "time_to_first_token_seconds_bucket"));
    reply_free(&reply);
    reply = http_ask(port, "POST", "/resume_memory_occupation", "{}");
    CHECK_STR(reply.body, "null");
    reply_free(&reply);
    CHECK_I64(http_status(port, "POST", "/init_weights_update_group", "{}"), 400);
    CHECK_I64(part_stop(&part), 0);
}

/* Unary, stream and incremental stream give the same tokens, and they are the rule's. */
static void generation(const char *mode)
{
    /* A quarter of a second a stream: a busy machine merges events, and several must be seen. */
    Part part = mode ? ENGINE("--synthetic-tokens-per-s", "200", mode)
                     : ENGINE("--synthetic-tokens-per-s", "200");
    int port = part.ports[0];
    const int32_t prompt[] = {11, 12, 13};
    uint64_t key = synthetic_key("d1", prompt, 3);
    cJSON *unary = http_json(port, "POST", "/generate", "{\"input_ids\":[11,12,13],\"rid\":\"r1\","
                             "\"return_logprob\":true,\"logprob_start_len\":0,"
                             "\"top_logprobs_num\":2,\"sampling_params\":{\"max_new_tokens\":50,"
                             "\"ignore_eos\":true}}", 200);
    CHECK_I64(cJSON_GetArraySize(json_at(unary, "output_ids")), 50);
    for (int i = 0; i < 50; i++) {
        char path[64];
        float logprob = 0;
        int32_t id = synthetic_token(key, i, &logprob);
        (void)str_format(path, sizeof path, "output_ids.%d", i);
        CHECK_I64(json_num(unary, path), id);
        (void)str_format(path, sizeof path, "meta_info.output_token_logprobs.%d.0", i);
        CHECK_NEAR(json_num(unary, path), logprob, 1e-6);
    }
    CHECK_STR(json_str(unary, "meta_info.id"), "r1");
    CHECK_STR(json_str(unary, "meta_info.finish_reason.type"), "length");
    CHECK_I64(json_num(unary, "meta_info.finish_reason.length"), 50);
    CHECK_I64(json_num(unary, "meta_info.prompt_tokens"), 3);
    CHECK_I64(cJSON_GetArraySize(json_at(unary, "meta_info.input_token_logprobs")), 3);
    CHECK(cJSON_IsNull(json_at(unary, "meta_info.input_token_logprobs.0.0")));
    CHECK_I64(cJSON_GetArraySize(json_at(unary, "meta_info.output_top_logprobs.49")), 2);
    Reply stream = http_ask(port, "POST", "/generate", "{\"input_ids\":[11,12,13],\"stream\":true,"
                            "\"return_logprob\":true,\"sampling_params\":{\"max_new_tokens\":50,"
                            "\"ignore_eos\":true}}");
    CHECK_I64(stream.status, 200);
    CHECK(stream.whole && strstr(stream.body, "\n\ndata: [DONE]\n\n"));
    int events = sse_count(&stream) - 1;
    CHECK(events > 3);
    int seen = 0;
    for (int i = 0; i < events; i++) {
        cJSON *event = sse_event(&stream, i);
        int n = cJSON_GetArraySize(json_at(event, "output_ids"));
        int lps = cJSON_GetArraySize(json_at(event, "meta_info.output_token_logprobs"));
        seen = mode ? seen + n : n;
        CHECK_I64(lps, n);
        CHECK_I64(json_num(event, "meta_info.completion_tokens"), seen);
        CHECK_I64(json_num(event, "meta_info.output_token_logprobs_length"), seen);
        CHECK(cJSON_IsNull(json_at(event, "meta_info.finish_reason")) == (i + 1 < events));
        if (i + 1 == events && !mode) {
            CHECK(cJSON_Compare(json_at(event, "output_ids"), json_at(unary, "output_ids"), 1));
            CHECK_STR(json_str(event, "text"), json_str(unary, "text"));
        }
        cJSON_Delete(event);
    }
    CHECK_I64(seen, 50);
    reply_free(&stream);
    cJSON_Delete(unary);
    CHECK_I64(part_stop(&part), 0);
}

static void streams_cumulative(void)
{
    generation(NULL);
}

static void streams_incremental(void)
{
    generation("--incremental-streaming-output");
}

static void ends_and_batches(void)
{
    Part part = ENGINE("--synthetic-tokens-per-s", "0", "--incremental-streaming-output");
    int port = part.ports[0];
    cJSON *reply = http_json(port, "POST", "/generate", "{\"input_ids\":[[1,2],[3,4]],"
                             "\"rid\":\"q\",\"sampling_params\":{\"max_new_tokens\":64,"
                             "\"n\":2}}", 200);
    CHECK_I64(cJSON_GetArraySize(reply), 4);
    CHECK_STR(json_str(reply, "3.meta_info.id"), "q_3");
    CHECK_STR(json_str(reply, "0.meta_info.finish_reason.type"), "stop");
    CHECK_I64(json_num(reply, "0.meta_info.finish_reason.matched"), SYNTHETIC_EOS);
    const int32_t prompt[] = {1, 2};
    CHECK_I64(json_num(reply, "0.meta_info.completion_tokens"),
              synthetic_length(synthetic_key("d1", prompt, 2), 64));
    cJSON_Delete(reply);
    /* A stop string over two tokens: its text goes, its tokens stay; the stream never shows it. */
    const int32_t one[] = {7};
    uint64_t key = synthetic_key("d1", one, 1);
    char stop[64];
    char body[512];
    (void)str_format(stop, sizeof stop, "%d %d", synthetic_token(key, 4, NULL),
                     synthetic_token(key, 5, NULL));
    (void)str_format(body, sizeof body, "{\"input_ids\":[7],\"stream\":true,\"sampling_params\":"
                     "{\"max_new_tokens\":64,\"ignore_eos\":true,\"stop\":[\"%s\",\"zzz\"]}}",
                     stop);
    Reply stream = http_ask(port, "POST", "/generate", body);
    Text text;
    text_init(&text, 65536);
    int ids = 0;
    for (int i = 0; i + 1 < sse_count(&stream); i++) {
        cJSON *event = sse_event(&stream, i);
        text_add_c(&text, json_str(event, "text"));
        ids += cJSON_GetArraySize(json_at(event, "output_ids"));
        if (i + 2 == sse_count(&stream)) {
            CHECK_STR(json_str(event, "meta_info.finish_reason.matched"), stop);
        }
        cJSON_Delete(event);
    }
    CHECK_I64(ids, 6);
    CHECK(!strstr(text_c(&text), stop) && text.n > 10 && text.p[text.n - 1] == ' ');
    text_free(&text);
    reply_free(&stream);
    reply = http_json(port, "POST", "/generate", "{\"input_ids\":[7],\"return_logprob\":true,"
                      "\"logprob_start_len\":0,\"sampling_params\":{\"max_new_tokens\":0}}", 200);
    CHECK_I64(cJSON_GetArraySize(json_at(reply, "output_ids")), 0);
    CHECK_I64(json_num(reply, "meta_info.finish_reason.length"), 0);
    cJSON_Delete(reply);
    CHECK_I64(part_stop(&part), 0);
}

static void bad_requests(void)
{
    Part part = ENGINE("--context-length", "64", "--vocab", "1000");
    int port = part.ports[0];
    static const struct { const char *body, *text; } cases[] = {
        {"{\"input_ids\":[]}", "input_ids cannot be empty."},
        {"{}", "Either text, input_ids or input_embeds should be provided."},
        {"{\"input_ids\":[1,-2]}", "out-of-vocabulary token id -2"},
        {"{\"input_ids\":[1],\"sampling_params\":{\"max_new_tokens\":64}}",
         "You requested a total of 65 tokens: 1 tokens from the input messages and 64"},
        {"{\"input_ids\":[1],\"sampling_params\":{\"top_p\":0}}",
         "top_p must be in (0, 1], got 0."},
        {"{\"input_ids\":[1],\"sampling_params\":{\"temperature\":-1}}",
         "temperature must be a non-negative finite number, got -1."},
        {"{\"input_ids\":[1],\"sampling_params\":{\"regex\":\"a\"}}", "regex is not supported"},
        {"{\"input_ids\":[1],\"sampling_params\":{\"bogus\":1}}", "unknown field `bogus`"},
        {"{\"input_ids\":[1],\"sampling_params\":{\"n\":0}}", "n must be at least 1"},
        {"{\"input_ids\":\"x\"}", "must be list or null"},
        {"{\"input_ids\":[1.5]}", "list of integers"},
        {"{\"input_ids\":[1],\"sampling_params\":{\"temperature\":\"hot\"}}", "expected f64"},
        {"{\"text\":[\"a\",\"b\"],\"rid\":[\"x\",\"x\"]}",
         "Duplicate request IDs detected within the request: ['x']"},
        {"{\"text\":[\"a\",\"b\"],\"rid\":[\"x\"]}", "rids length mismatch"},
        {"{\"text\":", "JSON decode error"},
        {"[]", "should be an object"},
        {"{\"text\":\"a\\u0000b\"}", "U+0000"},
        {"{\"text\":\"a\xff\"}", "not valid UTF-8"},
        {"{\"input_ids\":[1],\"sampling_params\":{\"n\":1e9}}", "n must be at most 4096"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Reply reply = http_ask(port, "POST", "/generate", cases[i].body);
        CHECK_I64(reply.status, 400);
        if (!strstr(reply.body, cases[i].text)) {
            CHECK_STR(reply.body, cases[i].text);
        }
        reply_free(&reply);
    }
    Reply stream = http_ask(port, "POST", "/generate", "{\"input_ids\":[1],\"stream\":true,"
                            "\"sampling_params\":{\"top_p\":2}}");
    CHECK_I64(stream.status, 200); /* as upstream: the error is an event */
    CHECK_STR(stream.body, "data: {\"error\":{\"message\":\"top_p must be in (0, 1], got 2.\","
              "\"type\":\"invalid_request_error\",\"code\":400,\"retryable\":false}}\n\n"
              "data: [DONE]\n\n");
    reply_free(&stream);
    CHECK_I64(http_status(port, "POST", "/pause_generation", ""), 400);
    CHECK_I64(http_status(port, "POST", "/pause_generation", "{\"mode\":\"bogus\"}"), 400);
    CHECK_I64(http_status(port, "POST", "/weights_checker", "{\"action\":\"reset_tensors\"}"),
              400);
    CHECK_I64(http_status(port, "GET", "/health_generate", ""), 200); /* and it lives */
    CHECK_I64(part_stop(&part), 0);
}

#define LONG_BODY(rid, stream)                                                                    \
    "{\"input_ids\":[5,6],\"rid\":\"" rid "\",\"stream\":" stream ",\"sampling_params\":{"        \
    "\"max_new_tokens\":2000,\"ignore_eos\":true}}"

static void aborts(void)
{
    Part part = ENGINE("--max-running-requests", "2", "--synthetic-tokens-per-s", "50");
    int port = part.ports[0];
    int a = http_send(port, "POST", "/generate", "", LONG_BODY("abc-1", "false"));
    int b = http_send(port, "POST", "/generate", "", LONG_BODY("abc-10", "true"));
    CHECK(comes_to_run(port, 2));
    int c = http_send(port, "POST", "/generate", "", LONG_BODY("queued", "false"));
    CHECK_I64(http_status(port, "POST", "/generate", LONG_BODY("abc-1", "false")), 400);
    CHECK_I64(http_status(port, "POST", "/abort_request", "{\"rid\":\"queued\"}"), 200);
    Reply reply = http_read(c);
    CHECK_I64(reply.status, 200);
    CHECK(strstr(reply.body, "{\"type\":\"abort\",\"message\":\"Abort in waiting queue\"}"));
    CHECK(!strstr(reply.body, "prompt_tokens"));
    reply_free(&reply);
    CHECK_I64(http_status(port, "POST", "/abort_request", "{\"rid\":\"abc-1\"}"), 200);
    reply = http_read(a);
    CHECK_I64(reply.status, 200);
    CHECK(strstr(reply.body, "\"message\":\"Aborted\",\"status_code\":null,\"err_type\":null"));
    reply_free(&reply);
    CHECK(comes_to_run(port, 1)); /* "abc-10" goes on: no prefix match */
    close(b);                     /* a client that leaves is an abort */
    CHECK(comes_to_run(port, 0));
    CHECK_I64(part_stop(&part), 0);
}

/* Twenty tokens a second until a pause has met what runs, a thousand from then on. */
static void set_pace(int port, bool slow)
{
    CHECK_I64(http_status(port, "POST", "/_fault", slow ? "{\"kind\":\"slow\",\"f\":0.02}"
                                                        : "{\"kind\":\"clear\"}"), 200);
}

static void pauses(void)
{
    Part part = ENGINE("--synthetic-tokens-per-s", "1000");
    int port = part.ports[0];
    set_pace(port, true);
    /* in_place: frozen, goes on, two versions in one sample. */
    double made = tokens_made(port);
    int a = http_send(port, "POST", "/generate", "", "{\"input_ids\":[5],\"sampling_params\":{"
                      "\"max_new_tokens\":60,\"ignore_eos\":true}}");
    CHECK(more_tokens(port, made + 5));
    CHECK_I64(http_status(port, "POST", "/pause_generation", "{\"mode\":\"in_place\"}"), 200);
    set_pace(port, false);
    CHECK_I64(http_status(port, "GET", "/health_generate", ""), 200); /* quick while paused */
    CHECK_I64(http_status(port, "POST", "/flush_cache", ""), 400);
    CHECK_I64(http_status(port, "POST", "/update_weight_version", "{\"new_version\":\"2\","
                          "\"abort_all_requests\":false}"), 200);
    cJSON *info = http_json(port, "GET", "/server_info", "", 200);
    CHECK_STR(json_str(info, "pause_mode"), "in_place");
    cJSON_Delete(info);
    CHECK_I64(http_status(port, "POST", "/continue_generation", "{}"), 200);
    Reply reply = http_read(a);
    cJSON *json = reply_json(&reply);
    CHECK_I64(json_num(json, "meta_info.completion_tokens"), 60);
    CHECK_I64(cJSON_GetArraySize(json_at(json, "meta_info.weight_versions")), 2);
    CHECK_STR(json_str(json, "meta_info.weight_versions.0.version"), "default");
    CHECK_STR(json_str(json, "meta_info.weight_version"), "2");
    CHECK_I64(json_num(json, "meta_info.weight_versions.1.end"), 60);
    CHECK_I64(json_num(json, "meta_info.weight_versions.0.end"),
              json_num(json, "meta_info.weight_versions.1.start"));
    cJSON_Delete(json);
    reply_free(&reply);
    /* retract: back to the queue, flush works, output so far stays. */
    set_pace(port, true);
    made = tokens_made(port);
    a = http_send(port, "POST", "/generate", "", "{\"input_ids\":[5],\"sampling_params\":{"
                  "\"max_new_tokens\":40,\"ignore_eos\":true}}");
    CHECK(more_tokens(port, made + 5));
    CHECK_I64(http_status(port, "POST", "/pause_generation", "{\"mode\":\"retract\"}"), 200);
    CHECK_I64(running(port), 0);
    set_pace(port, false);
    CHECK_I64(http_status(port, "POST", "/flush_cache", ""), 200);
    CHECK_I64(http_status(port, "POST", "/continue_generation", "{}"), 200);
    reply = http_read(a);
    json = reply_json(&reply);
    CHECK_I64(json_num(json, "meta_info.completion_tokens"), 40);
    CHECK_I64(json_num(json, "meta_info.num_retractions"), 1);
    cJSON_Delete(json);
    reply_free(&reply);
    /* abort: what runs ends, what comes waits, and can be aborted while it waits. */
    set_pace(port, true);
    a = http_send(port, "POST", "/generate", "", LONG_BODY("runs", "false"));
    CHECK(comes_to_run(port, 1));
    CHECK_I64(http_status(port, "POST", "/pause_generation", "{}"), 200);
    reply = http_read(a);
    CHECK(strstr(reply.body, "\"Aborted\""));
    reply_free(&reply);
    a = http_send(port, "POST", "/generate", "", LONG_BODY("held", "false"));
    int b = http_send(port, "POST", "/generate", "", "{\"input_ids\":[5],\"sampling_params\":{"
                      "\"max_new_tokens\":4,\"ignore_eos\":true}}");
    CHECK(number_comes(port, "/v1/loads", "loads.0.num_waiting_reqs", 2, 2));
    CHECK_I64(http_status(port, "POST", "/flush_cache", ""), 200);
    CHECK_I64(http_status(port, "POST", "/abort_request", "{\"rid\":\"held\"}"), 200);
    reply = http_read(a);
    CHECK(strstr(reply.body, "Abort in waiting queue"));
    reply_free(&reply);
    CHECK_I64(http_status(port, "POST", "/continue_generation", "{}"), 200);
    reply = http_read(b);
    CHECK_I64(reply.status, 200);
    CHECK(strstr(reply.body, "\"completion_tokens\":4"));
    reply_free(&reply);
    CHECK_I64(part_stop(&part), 0);
}

/* Not paused: the update waits for what runs; what comes meanwhile waits for it. */
static void update_while_running(int port, const char *body)
{
    int a = http_send(port, "POST", "/generate", "", "{\"input_ids\":[5],\"sampling_params\":{"
                      "\"max_new_tokens\":200,\"ignore_eos\":true}}");
    CHECK(comes_to_run(port, 1));
    int u = http_send(port, "POST", "/update_weights_from_disk", "", body);
    static const char three[] = "{\"input_ids\":[5],\"sampling_params\":{\"max_new_tokens\":3,"
                                "\"ignore_eos\":true}}";
    int b = http_send(port, "POST", "/generate", "", three);
    while (!is_held(port, b)) { /* the new weights are still being read */
        Reply early = http_read(b);
        bool old = strstr(early.body, "[{\"version\":\"3\",\"start\":0,\"end\":3}]") != NULL;
        CHECK(old);
        reply_free(&early);
        b = old ? http_send(port, "POST", "/generate", "", three) : -1;
        if (!old) {
            break;
        }
    }
    Reply first = http_read(a);
    Reply update = http_read(u);
    Reply second = http_read(b);
    CHECK_I64(update.status, 200);
    CHECK(strstr(first.body, "[{\"version\":\"3\",\"start\":0,\"end\":200}]"));
    CHECK(strstr(second.body, "[{\"version\":\"4\",\"start\":0,\"end\":3}]"));
    reply_free(&first);
    reply_free(&update);
    reply_free(&second);
}

static void updates(void)
{
    Part part = ENGINE("--synthetic-tokens-per-s", "100");
    int port = part.ports[0];
    char dir[] = "/tmp/rolltop-engine-test-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *file = fs_join(dir, "weights.bin");
    CHECK_I64(fs_write_atomic(file, "one", 3, NULL), ERR_OK);
    char body[512];
    (void)str_format(body, sizeof body, "{\"model_path\":\"%s\",\"weight_version\":\"3\"}", dir);
    cJSON *json = http_json(port, "POST", "/update_weights_from_disk", body, 200);
    CHECK(cJSON_IsTrue(json_at(json, "success")));
    CHECK_STR(json_str(json, "message"),
              "Succeeded to update model weights. Weight version updated to 3.");
    cJSON_Delete(json);
    json = http_json(port, "POST", "/weights_checker", "{\"action\":\"checksum\"}", 200);
    char digest[64];
    (void)str_format(digest, sizeof digest, "%s", json_str(json, "per_engine_checksum"));
    CHECK_I64(strlen(digest), 32);
    cJSON_Delete(json);
    const int32_t prompt[] = {5};
    json = http_json(port, "POST", "/generate", "{\"input_ids\":[5],\"sampling_params\":{"
                     "\"max_new_tokens\":1,\"ignore_eos\":true}}", 200);
    CHECK_I64(json_num(json, "output_ids.0"),
              synthetic_token(synthetic_key(digest, prompt, 1), 0, NULL));
    CHECK_STR(json_str(json, "meta_info.weight_version"), "3");
    cJSON_Delete(json);
    CHECK_I64(fs_write_atomic(file, "two", 3, NULL), ERR_OK);
    (void)str_format(body, sizeof body, "{\"model_path\":\"%s\",\"weight_version\":\"4\"}", dir);
    update_while_running(port, body);
    /* A bad one leaves all as it was. */
    json = http_json(port, "POST", "/update_weights_from_disk", "{\"model_path\":\"/no/such/dir\","
                     "\"weight_version\":\"9\"}", 400);
    CHECK(cJSON_IsFalse(json_at(json, "success")));
    CHECK(strstr(json_str(json, "message"), "/no/such/dir") != NULL);
    cJSON_Delete(json);
    CHECK_I64(http_status(port, "POST", "/update_weights_from_disk", "{}"), 400);
    json = http_json(port, "GET", "/model_info", "", 200);
    CHECK_STR(json_str(json, "weight_version"), "4");
    cJSON_Delete(json);
    /* A flush that cannot be is refused; upstream would die of it. */
    int a = http_send(port, "POST", "/generate", "", LONG_BODY("x", "false"));
    CHECK(comes_to_run(port, 1));
    CHECK_I64(http_status(port, "POST", "/pause_generation", "{\"mode\":\"in_place\"}"), 200);
    set_pace(port, false);
    CHECK_I64(http_status(port, "POST", "/update_weights_from_disk", body), 400);
    CHECK_I64(http_status(port, "POST", "/abort_request", "{\"abort_all\":true}"), 200);
    Reply first = http_read(a);
    CHECK(strstr(first.body, "\"Aborted\"")); /* at once, though paused */
    reply_free(&first);
    CHECK_I64(http_status(port, "POST", "/update_weights_from_disk", body), 200);
    free(file);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    CHECK_I64(part_stop(&part), 0);
}

static void keys_and_arguments(void)
{
    setenv("TEST_ENGINE_KEY", "k1", 1);
    setenv("TEST_ENGINE_ADMIN", "a1", 1);
    Part part = ENGINE("--api-key-env", "TEST_ENGINE_KEY", "--admin-api-key-env",
                       "TEST_ENGINE_ADMIN");
    int port = part.ports[0];
    static const struct { const char *path, *key; int status; } cases[] = {
        {"/model_info", "", 401}, {"/model_info", "Authorization: Bearer k1\r\n", 200},
        {"/model_info", "authorization: bearer k1\r\n", 200},
        {"/model_info", "Authorization: Bearer a1\r\n", 401},
        {"/flush_cache", "Authorization: Bearer k1\r\n", 401},
        {"/flush_cache", "Authorization: Bearer a1\r\n", 200},
        {"/nope", "", 401}, {"/health", "", 200}, {"/metrics", "", 200}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Reply reply = http_read(http_send(port, "GET", cases[i].path, cases[i].key, ""));
        CHECK_I64(reply.status, cases[i].status);
        reply_free(&reply);
    }
    CHECK_I64(part_stop(&part), 0);
    static const char *const wrong[][6] = {
        {"engine", "--port", "0", NULL},
        {"engine", "--synthetic", "--port", "0", "--nonsense", NULL},
        {"engine", "--synthetic", "--port", "0", "--host=0.0.0.0", NULL},
        {"engine", "--synthetic", "--api-key-env", "NOT_SET_ANYWHERE", NULL},
        {"engine", "--model-path", "/no/such/dir", "--count=2", NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        part = part_start(engine_main, wrong[i], 0);
        CHECK_I64(part_wait(&part), 2);
    }
    static const char *const missing[] = {"engine", "--model-path", "/no/such/dir", "--port", "0",
                                          NULL};
    part = part_start(engine_main, missing, 0);
    CHECK_I64(part_wait(&part), 2);
    CHECK_I64(http_dial(port), -1);
}

int main(void)
{
    RUN(information);
    RUN(streams_cumulative);
    RUN(streams_incremental);
    RUN(ends_and_batches);
    RUN(bad_requests);
    RUN(aborts);
    RUN(pauses);
    RUN(updates);
    RUN(keys_and_arguments);
    return test_end();
}
