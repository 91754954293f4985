/* Engine client: every recorded control reply is judged as a person would, and what is sent is
 * what may be sent. */
#include "core/fleet/engine_client.h"
#include "core/base/clock.h"
#include "tests/fleet/captures.h"
#include "tests/harness.h"
#include "tests/net/raw_server.h"

static Captures captures;
static EngineAnswer answer;

static void parse(EngineCallKind kind, const char *name)
{
    CaptureReply reply = capture_reply(captures_get(&captures, name));
    engine_parse_reply(kind, HTTP_END_OK, reply.status, reply.body, &answer);
}
#define S15 "sglang/0.5.15.post1/"
#define S23 "sglang/0.5.23/"

static void recorded_replies(void)
{
    static const struct {
        EngineCallKind kind;
        const char *name;
        Err err;
        const char *outcome;
    } cases[] = {
        {ENGINE_PAUSE, S15 "pause_abort.txt", ERR_OK, "ok"},
        {ENGINE_PAUSE, S15 "pause_in_place.txt", ERR_OK, "ok"},
        {ENGINE_PAUSE, S15 "pause_bogus.txt", ERR_PEER, "http 400"},
        {ENGINE_CONTINUE, S15 "continue.txt", ERR_OK, "ok"},
        {ENGINE_CONTINUE, S15 "continue_nobody.txt", ERR_PEER, "http 400"},
        {ENGINE_CONTINUE, "dynamo-sglang/native-continue.http", ERR_OK, "ok"},
        {ENGINE_FLUSH, S15 "flush_idle.txt", ERR_OK, "ok"},
        {ENGINE_FLUSH, S15 "flush_busy.txt", ERR_PEER, "http 400"},
        {ENGINE_FLUSH, S15 "flush_retract_paused.txt", ERR_PEER, "http 400"},
        {ENGINE_FLUSH, S15 "auth_flush_cache_None.txt", ERR_PEER, "http 401"},
        {ENGINE_UPDATE_DISK, S15 "disk_good.txt", ERR_OK, "ok"},
        {ENGINE_UPDATE_DISK, S15 "disk_missing.txt", ERR_PEER, "http 400"},
        {ENGINE_UPDATE_DISK, S15 "disk_nobody.txt", ERR_PEER, "http 400"},
        {ENGINE_UPDATE_DISK, "dynamo-sglang/native-update-from-disk.http", ERR_OK, "ok"},
        {ENGINE_ABORT, S15 "abort_all.txt", ERR_OK, "ok"},
        {ENGINE_MODEL_INFO, S15 "get_model_info.txt", ERR_OK, "ok"},
        {ENGINE_MODEL_INFO, S23 "get_model_info.txt", ERR_OK, "ok"},
        {ENGINE_MODEL_INFO, S15 "get_nonexistent.txt", ERR_UNSUPPORTED, "http 404"},
        {ENGINE_SERVER_INFO, S15 "get_server_info.txt", ERR_OK, "ok"},
        {ENGINE_SERVER_INFO, S23 "get_server_info.txt", ERR_OK, "ok"},
        {ENGINE_SERVER_INFO, S15 "get_model_info.txt", ERR_FORMAT, "bad reply"},
        {ENGINE_CHECKSUM, S15 "wc_checksum.txt", ERR_OK, "ok"},
        {ENGINE_CHECKSUM, S15 "wc_bogus.txt", ERR_PEER, "http 400"},
        {ENGINE_CHECKSUM, S15 "wc_snapshot.txt", ERR_FORMAT, "bad reply"}, /* no digest */
        {ENGINE_SCORE, S15 "gen_logprob_start0.txt", ERR_OK, "ok"},
        {ENGINE_SCORE, S15 "gen_logprob.txt", ERR_FORMAT, "bad reply"}, /* no input log-probs */
        {ENGINE_SCORE, S15 "err_unknown_sampling.txt", ERR_PEER, "http 500"},
        {ENGINE_HEALTH, S15 "get_health_generate.txt", ERR_OK, "ok"},
        {ENGINE_HEALTH, S15 "health_while_paused.txt", ERR_OK, "ok"}, /* another reply came */
        {ENGINE_HEALTH, "dynamo-sglang/native-health-paused-retract.http", ERR_PEER, "http 503"},
        {ENGINE_PING, S15 "get_ping.txt", ERR_OK, "ok"},
        {ENGINE_PING, S15 "get_nonexistent.txt", ERR_OK, "ok"}, /* its HTTP process answers */
        {ENGINE_LOADS, S15 "get_v1_loads.txt", ERR_OK, "ok"},
        {ENGINE_LOADS, S15 "get_v1_loads-include_core.txt", ERR_OK, "ok"},
        {ENGINE_LOADS, S15 "get_get_load.txt", ERR_OK, "ok"},
        {ENGINE_LOADS, S23 "get_v1_loads.txt", ERR_OK, "ok"},
        {ENGINE_LOADS, S15 "get_v1_loads-dp_rank_7.txt", ERR_FORMAT, "bad reply"}, /* no rank */
        {ENGINE_LOADS, S15 "get_v1_loads-include_bogus.txt", ERR_PEER, "http 500"},
        {ENGINE_METRICS, S15 "metrics.txt", ERR_OK, "ok"},
        {ENGINE_METRICS, S15 "get_ping.txt", ERR_FORMAT, "bad reply"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parse(cases[i].kind, cases[i].name);
        if (answer.err != cases[i].err) {
            fprintf(stderr, "%s: %s\n", cases[i].name, answer.fault.sentence);
        }
        CHECK_STR(err_name(answer.err), err_name(cases[i].err));
        CHECK_STR(answer.outcome, cases[i].outcome);
        CHECK_I64(answer.err != ERR_OK, answer.fault.sentence[0] != '\0');
        CHECK(strstr(answer.fault.sentence, "site-packages") == NULL); /* their paths stay out */
    }
}

static void what_was_read(void)
{
    parse(ENGINE_UPDATE_DISK, S15 "disk_good.txt");
    CHECK_I64(answer.weight_version, 3);
    parse(ENGINE_MODEL_INFO, S15 "get_model_info.txt");
    CHECK_I64(answer.weight_version, -1); /* "default" */
    CHECK_STR(answer.text, "model");
    parse(ENGINE_MODEL_INFO, "dynamo-sglang/native-model-info.http");
    CHECK(answer.weight_version > 0);
    parse(ENGINE_SERVER_INFO, S15 "get_server_info.txt");
    CHECK(strstr(answer.text, "seed 915542472") != NULL);
    parse(ENGINE_SERVER_INFO, S23 "get_server_info.txt");
    CHECK(strstr(answer.text, "0.5.23/seed 156282883/6.22") != NULL);
    engine_parse_reply(ENGINE_SERVER_INFO, HTTP_END_OK, 200,
                       STR("{\"version\":\"x\",\"pid\":4711,\"start_time\":\"1795972813716328\"}"),
                       &answer);
    CHECK_STR(answer.text, "4711/1795972813716328");
    engine_parse_reply(ENGINE_SERVER_INFO, HTTP_END_OK, 200,
                       STR("{\"version\":\"x\",\"pid\":4711,\"start_time_us\":1795972813716328}"),
                       &answer);
    CHECK_STR(answer.text, "4711/1795972813716328");
    parse(ENGINE_CHECKSUM, S15 "wc_checksum.txt");
    CHECK_STR(answer.text, "7e2acd32b3189140d863ef1d09ec3c26c9a41be05938f64c2ab2e63de669de76");
    CHECK_I64(answer.weight_version, -1); /* SGLang says none there, rolltop's own engines do */
    engine_parse_reply(ENGINE_CHECKSUM, HTTP_END_OK, 200,
                       STR("{\"success\":true,\"message\":\"Success.\","
                           "\"per_engine_checksum\":\"7e2a\",\"weight_version\":\"12\"}"),
                       &answer);
    CHECK_STR(answer.text, "7e2a");
    CHECK_I64(answer.weight_version, 12);
    parse(ENGINE_CONTINUE, S15 "continue.txt");
    CHECK(!answer.known_paused); /* nor whether it goes on */
    engine_parse_reply(ENGINE_CONTINUE, HTTP_END_OK, 200,
                       STR("{\"message\":\"m\",\"status\":\"ok\",\"paused\":true}"), &answer);
    CHECK(answer.err == ERR_OK && answer.known_paused && answer.paused);
    engine_parse_reply(ENGINE_CONTINUE, HTTP_END_OK, 200,
                       STR("{\"message\":\"m\",\"status\":\"ok\",\"paused\":false}"), &answer);
    CHECK(answer.err == ERR_OK && answer.known_paused && !answer.paused);
    parse(ENGINE_SCORE, S15 "gen_logprob_start0.txt");
    CHECK_I64(answer.logprob_count, 4);
    CHECK(answer.logprobs[0] == -11.978971481323242f);
    CHECK(answer.logprobs[3] == -11.885032653808594f);
    parse(ENGINE_METRICS, S15 "metrics.txt");
    CHECK(answer.known_tokens && answer.known_running);
    CHECK_NEAR(answer.gen_tokens_total, 83, 0); /* realtime decode, not generation_tokens_total */
    CHECK_NEAR(answer.gen_throughput, 65.65663928816272, 1e-9);
    CHECK_NEAR(answer.cache_hit_rate, 0.5, 0);
    parse(ENGINE_LOADS, S15 "get_v1_loads.txt");
    CHECK(answer.known_running && !answer.known_tokens);
    engine_parse_reply(ENGINE_LOADS, HTTP_END_OK, 200,
                       STR("{\"loads\":[{\"num_running_reqs\":3,\"num_waiting_reqs\":1,"
                           "\"num_used_tokens\":10,\"token_usage\":0.2},{\"num_running_reqs\":4,"
                           "\"num_waiting_reqs\":0,\"num_used_tokens\":5,\"token_usage\":0.7}]}"),
                       &answer);
    CHECK_NEAR(answer.running, 7, 0);
    CHECK_NEAR(answer.waiting, 1, 0);
    CHECK_NEAR(answer.used_tokens, 15, 0);
    CHECK_NEAR(answer.token_usage, 0.7, 0);
    engine_parse_reply(ENGINE_LOADS, HTTP_END_OK, 200,
                       STR("[{\"num_reqs\":5,\"num_waiting_reqs\":2,\"num_tokens\":90,"
                           "\"num_pending_tokens\":30}]"), &answer);
    CHECK_NEAR(answer.running, 3, 0);
    CHECK_NEAR(answer.used_tokens, 60, 0);
}

static void success_must_be_said(void)
{
    static const struct { EngineCallKind kind; const char *body; Err err; } cases[] = {
        {ENGINE_UPDATE_DISK, "{\"success\":false,\"message\":\"no\"}", ERR_PEER},
        {ENGINE_UPDATE_DISK, "{\"message\":\"Succeeded\"}", ERR_FORMAT},
        {ENGINE_UPDATE_DISK, "{\"success\":\"true\"}", ERR_FORMAT},
        {ENGINE_UPDATE_DISK, "{\"success\":true", ERR_FORMAT},
        {ENGINE_UPDATE_DISK, "", ERR_FORMAT},
        {ENGINE_UPDATE_DISK, "null", ERR_FORMAT},
        {ENGINE_PAUSE, "{\"status\":\"error\",\"message\":\"x\"}", ERR_PEER},
        {ENGINE_PAUSE, "{\"status\":\"ok\",\"success\":false}", ERR_PEER},
        {ENGINE_PAUSE, "[]", ERR_FORMAT},
        {ENGINE_CHECKSUM, "{\"success\":true,\"message\":\"Success.\"}", ERR_FORMAT},
        {ENGINE_SCORE, "{\"meta_info\":{\"input_token_logprobs\":[[null,1],[null,2]]}}",
         ERR_NUMERIC},
        {ENGINE_SCORE, "{\"meta_info\":{\"input_token_logprobs\":[[null,1]]}}", ERR_FORMAT},
        {ENGINE_MODEL_INFO, "{\"weight_version\":\"7\"}", ERR_FORMAT},
        {ENGINE_LOADS, "{\"loads\":[]}", ERR_FORMAT},
        {ENGINE_LOADS, "{\"loads\":[{}]}", ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        engine_parse_reply(cases[i].kind, HTTP_END_OK, 200, str_from(cases[i].body), &answer);
        if (answer.err != cases[i].err) {
            fprintf(stderr, "%s\n", cases[i].body);
        }
        CHECK_STR(err_name(answer.err), err_name(cases[i].err));
    }
    engine_parse_reply(ENGINE_UPDATE_DISK, HTTP_END_TIMEOUT_TOTAL, 0, STR(""), &answer);
    CHECK_I64(answer.err, ERR_TIMEOUT);
    CHECK_STR(answer.outcome, "timeout total");
    engine_parse_reply(ENGINE_PING, HTTP_END_REFUSED, 0, STR(""), &answer);
    CHECK_I64(answer.err, ERR_NET);
    CHECK_STR(answer.outcome, "refused");
}

/* No reply whatever may crash the parsers or be taken for success of an update. */
static void check_reply(EngineCallKind kind, const char *body, Err err, const char *outcome)
{
    size_t n = strlen(body);
    char *bytes = malloc(n + 1); /* of its own size, so that a sanitizer sees who reads on */
    memcpy(bytes, body, n);
    engine_parse_reply(kind, HTTP_END_OK, 200, (Str){bytes, n}, &answer);
    CHECK_STR(err_name(answer.err), err_name(err));
    CHECK_STR(answer.outcome, outcome);
    free(bytes);
}

/* Read without a tree, and as strictly. */
static void replies_of_an_update(void)
{
    check_reply(ENGINE_PAUSE, "{\"success\":false,\"message\":\"C:\\\\u\"}", ERR_PEER,
                "refused by engine");
    CHECK_STR(answer.text, "C:\\u"); /* escapes are decoded once: an escape in a word is none */
    check_reply(ENGINE_PAUSE, "{\"message\":\"a\\nb\",\"success\":true}", ERR_OK, "ok");
    CHECK_STR(answer.text, "a");
    check_reply(ENGINE_PAUSE, "{\"success\":true,\"status\":\"error\"}", ERR_PEER,
                "refused by engine");
    check_reply(ENGINE_PAUSE, "{\"success\":\"true\"}", ERR_FORMAT, "bad reply");
    check_reply(ENGINE_PAUSE, "{\"more\":{\"success\":true}}", ERR_FORMAT, "bad reply");
    check_reply(ENGINE_PAUSE, "{\"success\":true} x", ERR_FORMAT, "bad reply");
    check_reply(ENGINE_PAUSE, "[true]", ERR_FORMAT, "bad reply");
    check_reply(ENGINE_PAUSE, "", ERR_FORMAT, "bad reply");
    check_reply(ENGINE_CHECKSUM, "{\"success\":true,\"per_engine_checksum\":7}", ERR_FORMAT,
                "bad reply");
    check_reply(ENGINE_CHECKSUM, "{\"success\":true,\"per_engine_checksum\":\"d\","
                "\"weight_version\":\"default\"}", ERR_OK, "ok");
    CHECK_I64(answer.weight_version, -1);
#define SCORED(list) "{\"meta_info\":{\"input_token_logprobs\":" list ",\"weight_version\":\"4\"}}"
    check_reply(ENGINE_SCORE, SCORED("[[null,5,null],[-0.5,6,\"a\"],[-1e0,7,null]]"), ERR_OK, "ok");
    CHECK_I64(answer.logprob_count, 2);
    CHECK(answer.logprobs[0] == -0.5f && answer.logprobs[1] == -1.0f);
    CHECK_I64(answer.weight_version, 4);
    check_reply(ENGINE_SCORE, SCORED("[[null,5,null],[null,6,null]]"), ERR_NUMERIC, "not finite");
    check_reply(ENGINE_SCORE, SCORED("[[null,5,null],[-1e999,6,null]]"), ERR_NUMERIC,
                "not finite");
    check_reply(ENGINE_SCORE, SCORED("[[null,5,null],[NaN,6,null]]"), ERR_FORMAT, "bad reply");
    check_reply(ENGINE_SCORE, SCORED("[[null,5,null],[-0.5,null,null]]"), ERR_FORMAT,
                "bad reply");
    check_reply(ENGINE_SCORE, SCORED("[[null,5,null],-0.5]"), ERR_FORMAT, "bad reply");
    check_reply(ENGINE_SCORE, SCORED("[[null,5,null]]"), ERR_FORMAT, "bad reply");
    check_reply(ENGINE_SCORE, SCORED("null"), ERR_FORMAT, "bad reply");
    check_reply(ENGINE_SCORE, SCORED("[[null,5,null],[-0.5,6,null]],\"input_token_logprobs\":"
                "[[null,5,null],[-0.5,6,null]]"), ERR_FORMAT, "bad reply");
#undef SCORED
}

static void damaged_replies(void)
{
    size_t at = 0;
    char name[128];
    Str bytes;
    size_t mistaken = 0;
    while (captures_next(&captures, &at, name, &bytes)) {
        CaptureReply reply = capture_reply(bytes);
        reply.body = str_trim(reply.body); /* a last newline is nobody's loss */
        char *copy = malloc(reply.body.n + 1);
        memcpy(copy, reply.body.p ? reply.body.p : "", reply.body.n);
        size_t step = reply.body.n / 40 + 1;
        for (size_t cut = 0; cut < reply.body.n; cut += step) {
            for (int kind = ENGINE_PAUSE; kind <= ENGINE_METRICS; kind++) {
                engine_parse_reply((EngineCallKind)kind, HTTP_END_OK, 200, (Str){copy, cut},
                                   &answer);
                if (kind == ENGINE_UPDATE_DISK && !answer.err) {
                    fprintf(stderr, "%s, %zu of %zu bytes\n", name, cut, reply.body.n);
                    mistaken++;
                }
            }
        }
        free(copy);
    }
    CHECK_I64(mistaken, 0);
}

/* ---- over HTTP ---------------------------------------------------------------------------- */

static bool echo(const RawRequest *r, void *user)
{
    (void)user;
    char body[2048];
    if (strcmp(r->path, "/v1/loads?include=core") == 0) {
        raw_reply(r->fd, 500, "", "Internal Server Error");
    } else if (strcmp(r->path, "/get_load") == 0) {
        raw_reply(r->fd, 200, "", "[{\"num_reqs\":5,\"num_waiting_reqs\":2,\"num_tokens\":9,"
                                  "\"num_pending_tokens\":0}]");
    } else if (strcmp(r->path, "/model_info") == 0) {
        raw_reply(r->fd, 404, "", "{\"detail\":\"Not Found\"}");
    } else if (strcmp(r->path, "/get_model_info") == 0) {
        raw_reply(r->fd, 200, "", "{\"model_path\":\"m\",\"weight_version\":\"12\"}");
    } else if (strcmp(r->path, "/server_info") == 0) {
        raw_sleep_ms(60000);
    } else if (strcmp(r->path, "/generate") == 0) {
        raw_reply(r->fd, 200, "", "{\"meta_info\":{\"input_token_logprobs\":[[null,5],[-1.5,6]],"
                                  "\"weight_version\":\"2\"}}");
    } else { /* tells what came, as the message of a refusal */
        char sent[1024];
        size_t n = 0;
        for (size_t i = 0; i < r->body_bytes && n < 900; i++) {
            sent[n++] = r->body[i] == '"' ? '\'' : r->body[i];
        }
        sent[n] = '\0';
        snprintf(body, sizeof body, "{\"success\":false,\"message\":\"%s %s %s%s\"}", r->method,
                 r->path, sent, strstr(r->head, "Bearer k1") ? " key" : "");
        raw_reply(r->fd, 400, "", body);
    }
    return true;
}

static int answers;
static EngineAnswer last;

static void on_answer(const EngineAnswer *a, void *user)
{
    (void)user;
    answers++;
    last = *a;
}

static void calls_over_http(void)
{
    RawServer server = raw_server_start(echo, NULL);
    uv_loop_t loop;
    HttpClient *client = NULL;
    char base[64];
    static const int32_t ids[] = {5, 6};
    static const int32_t other[] = {5, 7};
    static const struct { EngineCall call; const char *sent; } cases[] = {
        {{.kind = ENGINE_PAUSE, .text = "retract"},
         "POST /pause_generation {'mode':'retract'} key"},
        {{.kind = ENGINE_CONTINUE}, "POST /continue_generation {} key"},
        {{.kind = ENGINE_FLUSH}, "POST /flush_cache  key"},
        {{.kind = ENGINE_UPDATE_DISK, .text = "/ckpt/v7", .version = 7},
         "POST /update_weights_from_disk {'model_path':'/ckpt/v7','weight_version':'7',"
         "'flush_cache':false,'abort_all_requests':false} key"},
        {{.kind = ENGINE_PULL, .text = "/copy", .source = "/chain", .version = 7},
         "POST /pull_weights {'local_checkpoint_dir':'/copy','source_dir':'/chain',"
         "'target_version':7} key"},
        {{.kind = ENGINE_ABORT, .text = "r-1"}, "POST /abort_request {'rid':'r-1'} key"},
        {{.kind = ENGINE_ABORT}, "POST /abort_request {'abort_all':true} key"},
        {{.kind = ENGINE_CHECKSUM}, "POST /weights_checker {'action':'checksum'} key"},
        {{.kind = ENGINE_HEALTH}, "GET /health_generate  key"},
        {{.kind = ENGINE_METRICS}, "GET /metrics  key"},
    };
    uv_loop_init(&loop);
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK);
    snprintf(base, sizeof base, "http://127.0.0.1:%d", server.port);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int before = answers;
        CHECK_I64(engine_call(client, base, "k1", &cases[i].call, on_answer, NULL, NULL), ERR_OK);
        CHECK_I64(answers, before); /* never from inside */
        uv_run(&loop, UV_RUN_DEFAULT);
        CHECK_I64(answers, before + 1);
        CHECK_I64(last.err, ERR_PEER);
        CHECK(strstr(last.fault.sentence, base) != NULL); /* who said it */
        CHECK(strstr(last.fault.sentence, "k1") == NULL);
        if (strncmp(last.text, cases[i].sent, 120) != 0) {
            fprintf(stderr, "%s\n", last.text);
            CHECK(false);
        }
    }
    EngineCall call = {.kind = ENGINE_LOADS};
    CHECK_I64(engine_call(client, base, NULL, &call, on_answer, NULL, NULL), ERR_OK);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(last.err, ERR_OK); /* by way of /get_load */
    CHECK_NEAR(last.running, 3, 0);
    call = (EngineCall){.kind = ENGINE_MODEL_INFO};
    CHECK_I64(engine_call(client, base, NULL, &call, on_answer, NULL, NULL), ERR_OK);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(last.weight_version, 12);
    call = (EngineCall){.kind = ENGINE_SERVER_INFO, .timeout_ms = 150};
    CHECK_I64(engine_call(client, base, NULL, &call, on_answer, NULL, NULL), ERR_OK);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(last.err, ERR_TIMEOUT);
    CHECK(last.took_us >= 140000 && last.took_us < 60000000);
    call = (EngineCall){.kind = ENGINE_SCORE, .ids = ids, .id_count = 2};
    CHECK_I64(engine_call(client, base, NULL, &call, on_answer, NULL, NULL), ERR_OK);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(last.err, ERR_OK);
    CHECK_I64(last.logprob_count, 1);
    CHECK_NEAR(last.logprobs[0], -1.5, 0);
    CHECK_I64(last.weight_version, 2);
    call.ids = other; /* the reply is about other ids than were sent */
    CHECK_I64(engine_call(client, base, NULL, &call, on_answer, NULL, NULL), ERR_OK);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(last.err, ERR_FORMAT);
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
    raw_server_stop(&server);
}

/* Figures whose sum overflows are no figures. */
static void overflowing_figures(void)
{
    engine_parse_reply(ENGINE_METRICS, HTTP_END_OK, 200,
                       STR("sglang:num_running_reqs{r=\"0\"} 1.7e308\n"
                           "sglang:num_running_reqs{r=\"1\"} 1.7e308\n"
                           "sglang:generation_tokens_total 5\n"), &answer);
    CHECK_I64(answer.err, ERR_OK);
    CHECK(!answer.known_running && answer.known_tokens);
    CHECK_NEAR(answer.gen_tokens_total, 5, 0);
    CHECK_NEAR(answer.running, 0, 0);
    engine_parse_reply(ENGINE_LOADS, HTTP_END_OK, 200,
                       STR("{\"loads\":[{\"num_running_reqs\":1.7e308,\"num_waiting_reqs\":0},"
                           "{\"num_running_reqs\":1.7e308,\"num_waiting_reqs\":0}]}"), &answer);
    CHECK_I64(answer.err, ERR_FORMAT);
    CHECK(!answer.known_running);
}

/* With both keys set each is refused on the other's routes (sglang-api 2.3). */
static void each_route_takes_its_own_key(void)
{
    static const EngineCallKind control[] = {ENGINE_PAUSE, ENGINE_CONTINUE, ENGINE_FLUSH,
                                             ENGINE_UPDATE_DISK, ENGINE_PULL, ENGINE_ABORT,
                                             ENGINE_CHECKSUM};
    static const EngineCallKind ordinary[] = {ENGINE_MODEL_INFO, ENGINE_SERVER_INFO, ENGINE_SCORE,
                                              ENGINE_HEALTH, ENGINE_PING, ENGINE_LOADS,
                                              ENGINE_METRICS};
    for (size_t i = 0; i < sizeof control / sizeof *control; i++) {
        CHECK_STR(engine_call_key(control[i], "k", "a"), "a");
        CHECK_STR(engine_call_key(control[i], "k", NULL), "k");
        CHECK_STR(engine_call_key(control[i], NULL, "a"), "a");
        CHECK(engine_call_key(control[i], NULL, NULL) == NULL);
    }
    for (size_t i = 0; i < sizeof ordinary / sizeof *ordinary; i++) {
        CHECK_STR(engine_call_key(ordinary[i], "k", "a"), "k");
        CHECK(engine_call_key(ordinary[i], NULL, "a") == NULL);
    }
}

static void what_kills_an_engine_is_never_sent(void)
{
    static const int32_t negative[] = {3, -1};
    static const int32_t outside[] = {99, 100};
    static const EngineCall bad[] = {
        {.kind = ENGINE_PAUSE},
        {.kind = ENGINE_PAUSE, .text = "bogus"},
        {.kind = ENGINE_UPDATE_DISK, .version = 3},
        {.kind = ENGINE_PULL, .source = "/chain", .version = 3},
        {.kind = ENGINE_PULL, .text = "/copy", .version = 3},
        {.kind = ENGINE_PULL, .text = "/copy", .source = "/chain", .version = -1},
        {.kind = ENGINE_UPDATE_DISK, .text = "/x", .version = -1},
        {.kind = ENGINE_SCORE},
        {.kind = ENGINE_SCORE, .ids = negative, .id_count = 2},
        {.kind = ENGINE_SCORE, .ids = negative, .id_count = 1},
        {.kind = ENGINE_SCORE, .ids = outside, .id_count = 2, .vocab = 100},
    };
    uv_loop_t loop;
    HttpClient *client = NULL;
    uv_loop_init(&loop);
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK);
    int before = answers;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Fault fault = {0};
        CHECK_I64(engine_call(client, "http://127.0.0.1:9", NULL, &bad[i], on_answer, NULL, &fault),
                  ERR_ARG);
        CHECK(fault.sentence[0] != '\0');
    }
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(answers, before);
    CHECK_I64(uv_loop_close(&loop), 0);
}

int main(void)
{
    captures = captures_load();
    RUN(recorded_replies);
    RUN(what_was_read);
    RUN(success_must_be_said);
    RUN(replies_of_an_update);
    RUN(damaged_replies);
    RUN(calls_over_http);
    RUN(overflowing_figures);
    RUN(each_route_takes_its_own_key);
    RUN(what_kills_an_engine_is_never_sent);
    captures_free(&captures);
    return test_end();
}
