/* The frontend over synthetic engines, and over peers that break every rule. Bodies are compared
 * with what ai-dynamo 1.6.1 sent (tests/data/captures). */
#include "core/serve/frontend.h"

#include "core/serve/engine.h"
#include "core/serve/synthetic.h"
#include "tests/serve/rig.h"

#include <poll.h>

static Part engines_start(int count)
{
    char number[8];
    (void)str_format(number, sizeof number, "%d", count);
    const char *argv[] = {"engine", "--synthetic", "--synthetic-digest", "d1", "--port", "0",
                          "--faults", "--synthetic-tokens-per-s", "200", "--count", number,
                          "--incremental-streaming-output", NULL};
    return part_start(engine_main, argv, count);
}

static Part frontend_start(const int *ports, int count, const char *routing)
{
    char engines[RIG_PORTS][40];
    const char *argv[RIG_ARGS * 2] = {"frontend", "--port", "0", "--inhibit-s", "0.5",
                                      "--routing", routing};
    int n = 7;
    for (int i = 0; i < count; i++) {
        (void)str_format(engines[i], sizeof engines[i], "--engine=127.0.0.1:%d", ports[i]);
        argv[n++] = engines[i];
    }
    return part_start(frontend_main, argv, 1);
}

static void check_body(int port, const char *method, const char *path, const char *headers,
                       const char *body, int status, const char *wanted)
{
    Reply reply = http_read(http_send(port, method, path, headers, body));
    CHECK_I64(reply.status, status);
    CHECK_STR(reply.body, wanted);
    reply_free(&reply);
}

static void pages(void)
{
    Part engines = engines_start(2);
    Part front = frontend_start(engines.ports, 2, "round-robin");
    int port = front.ports[0];
    check_body(port, "GET", "/live", "", "", 200,
               "{\"status\":\"live\",\"message\":\"Service is live\"}");
    cJSON *json = http_json(port, "GET", "/health", "", 200);
    CHECK_STR(json_str(json, "status"), "healthy");
    CHECK_STR(json_str(json, "endpoints.0"), "dyn://rolltop.backend.generate");
    CHECK_I64(cJSON_GetArraySize(json_at(json, "instances")), 2);
    CHECK_STR(json_str(json, "instances.1.component"), "backend");
    CHECK(json_num(json, "instances.0.instance_id") > 9e15); /* above 2^53: 64 bits are needed */
    cJSON_Delete(json);
    json = http_json(port, "GET", "/v1/models", "", 200);
    CHECK_STR(json_str(json, "data.0.id"), "policy");
    cJSON_Delete(json);
    check_body(port, "GET", "/v1/models/policy/ready", "", "", 200,
               "{\"model\":\"policy\",\"ready\":true,\"namespaces\":{\"rolltop\":{\"ready\":true,"
               "\"worker_types\":{\"aggregated\":{\"workers\":2,\"needs\":[]}},\"present\":"
               "[\"aggregated\"],\"missing_worker_types\":[]}}}");
    CHECK_I64(http_status(port, "GET", "/v1/models/other/ready", ""), 404);
    check_body(port, "GET", "/abort_request", "", "", 404, "{\"message\":\"Route not found: GET "
               "/abort_request\",\"type\":\"Not Found\",\"code\":404}");
    Reply reply = http_ask(port, "GET", "/generate", "");
    CHECK_I64(reply.status, 405);
    CHECK(strstr(reply.head, "allow: POST,PUT") != NULL);
    reply_free(&reply);
    CHECK_I64(part_stop(&front), 0);
    CHECK_I64(part_stop(&engines), 0);
}

/* dynamo-api 5.3, rows in their order, bodies as recorded. */
static void refusals(void)
{
    Part engines = engines_start(1);
    Part front = frontend_start(engines.ports, 1, "round-robin");
    int port = front.ports[0];
    static const struct { const char *body, *wanted; int status; } rows[] = {
        {"{\"text\":\"hello\",\"stream\":true,\"sampling_params\":{\"max_new_tokens\":4}}",
         "{\"object\":\"error\",\"message\":\"Failed to deserialize the JSON body into the target "
         "type: missing field `input_ids` at line 1 column 69\",\"type\":\"Bad Request\",\"param\":"
         "null,\"code\":400}", 400},
        {"{\"input_ids\":[],\"stream\":true}",
         "{\"error\":{\"message\":\"input_ids cannot be empty.\"}}", 400},
        {"{\"input_ids\":[1],\"stream\":true,\"bootstrap_room\":null}",
         "{\"error\":{\"message\":\"`bootstrap_room` is internal Dynamo routing state and cannot "
         "be set by clients\"}}", 400},
        {"{\"input_ids\":[1],\"stream\":true,\"sampling_params\":{\"n\":2,\"max_new_tokens\":4}}",
         "{\"error\":{\"message\":\"sampling_params.n must be 1; parallel sampling is not "
         "supported.\"}}", 400},
        {"{\"input_ids\":[1,2,3],\"sampling_params\":{\"max_new_tokens\":4}}",
         "{\"error\":{\"message\":\"non-streaming SGLang generate requests are not implemented; "
         "set stream=true\"}}", 501},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_body(port, "POST", "/generate", "", rows[i].body, rows[i].status, rows[i].wanted);
    }
    check_body(port, "POST", "/generate", "x-data-parallel-rank: 0\r\n",
               "{\"input_ids\":[1],\"stream\":true}", 400,
               "{\"error\":{\"message\":\"DP rank requires an explicit worker for session "
               "affinity\"}}");
    Reply reply = http_ask(port, "POST", "/generate", "{\"input_ids\":[[1,2]],\"stream\":true}");
    CHECK(strstr(reply.body, "input_ids[0]: invalid type: sequence, expected u32"));
    reply_free(&reply);
    reply = http_ask(port, "POST", "/generate", "{\"input_ids\":[1,");
    CHECK(reply.status == 400 && strstr(reply.body, "Failed to parse the request body as JSON"));
    reply_free(&reply);
    reply = http_ask(port, "POST", "/generate", "{\"input_ids\":[1],\"rid\":\"a\xc0\x80\"}");
    CHECK(reply.status == 400 && strstr(reply.body, "not valid UTF-8"));
    reply_free(&reply);
    check_body(port, "POST", "/generate", "Content-Type: text/plain\r\n", "", 400,
               "{\"object\":\"error\",\"message\":\"Expected request with `Content-Type: "
               "application/json`\",\"type\":\"Bad Request\",\"param\":null,\"code\":400}");
    /* The engine's own refusal comes in the stream. */
    reply = http_ask(port, "PUT", "/generate", "{\"input_ids\":[1],\"stream\":true,"
                     "\"sampling_params\":{\"top_p\":2}}");
    CHECK_I64(reply.status, 200);
    CHECK_STR(reply.body, "data: {\"error\":{\"message\":\"top_p must be in (0, 1], got 2.\","
              "\"type\":\"invalid_request_error\",\"code\":400,\"retryable\":false}}\n\n"
              "data: [DONE]\n\n");
    reply_free(&reply);
    CHECK_I64(part_stop(&engines), 0);
    reply = http_ask(port, "POST", "/generate", "{\"input_ids\":[1],\"stream\":true}");
    CHECK_I64(reply.status, 503);
    CHECK_STR(reply.body, "{\"error\":{\"message\":\"Model `policy` is not ready to serve requests "
              "yet. The deployment may still be starting up or is not fully provisioned. Please "
              "retry shortly.\"}}");
    reply_free(&reply);
    CHECK_I64(http_status(port, "GET", "/v1/models/policy/ready", ""), 503);
    check_body(port, "GET", "/v1/models", "", "", 200, "{\"object\":\"list\",\"data\":[]}");
    CHECK_I64(part_stop(&front), 0);
    front = frontend_start(NULL, 0, "round-robin");
    check_body(front.ports[0], "POST", "/generate", "", "{\"input_ids\":[1],\"stream\":true}", 404,
               "{\"error\":{\"message\":\"no generate-capable model is registered\"}}");
    check_body(front.ports[0], "GET", "/health", "", "", 200,
               "{\"status\":\"healthy\",\"endpoints\":[],\"instances\":[]}");
    CHECK_I64(part_stop(&front), 0);
}

static void streams(void)
{
    Part engines = engines_start(2);
    Part front = frontend_start(engines.ports, 2, "round-robin");
    int port = front.ports[0];
    const int32_t prompt[] = {21, 22};
    uint64_t key = synthetic_key("d1", prompt, 2);
    int served[2] = {0, 0};
    for (int i = 0; i < 4; i++) {
        Reply reply = http_read(http_send(port, "POST", "/generate", "x-request-id: req-42\r\n",
                                          "{\"input_ids\":[21,22],\"stream\":true,"
                                          "\"sampling_params\":{\"max_new_tokens\":30,"
                                          "\"ignore_eos\":true}}"));
        CHECK_I64(reply.status, 200);
        CHECK(reply.whole);
        CHECK(strstr(reply.head, "content-type: text/event-stream\r\n") != NULL);
        CHECK(strstr(reply.head, "cache-control: no-cache") != NULL);
        CHECK(strstr(reply.head, "x-request-id: req-42") != NULL);
        for (int k = 0; k < 2; k++) {
            char header[64];
            (void)str_format(header, sizeof header, "x-rolltop-engine: 127.0.0.1:%d",
                             engines.ports[k]);
            served[k] += strstr(reply.head, header) != NULL;
        }
        int position = 0;
        for (int k = 0; k + 1 < sse_count(&reply); k++) {
            cJSON *event = sse_event(&reply, k);
            CHECK_STR(json_str(event, "meta_info.id"), "req-42");
            const cJSON *id = NULL;
            cJSON_ArrayForEach(id, json_get(event, "output_ids"))
            {
                CHECK_I64(id->valuedouble, synthetic_token(key, position, NULL));
                position++;
            }
            cJSON_Delete(event);
        }
        CHECK_I64(position, 30);
        CHECK(strstr(reply.body, "\n\ndata: [DONE]\n\n") != NULL);
        reply_free(&reply);
    }
    CHECK(served[0] == 2 && served[1] == 2);
    CHECK_I64(part_stop(&front), 0);
    CHECK_I64(part_stop(&engines), 0);
}

static int running_on(const Part *engines, int count)
{
    int running = 0;
    for (int k = 0; k < count; k++) {
        cJSON *json = http_json(engines->ports[k], "GET", "/get_load", "", 200);
        running += (int)json_num(json, "0.num_reqs");
        cJSON_Delete(json);
    }
    return running;
}

static bool running_becomes(const Part *engines, int count, int wanted)
{
    for (int i = 0; i < 3000; i++) {
        if (running_on(engines, count) == wanted) {
            return true;
        }
        clock_sleep_us(20000);
    }
    return false;
}

/* Reads until `wanted` has come; false when the connection ended before. */
static bool comes(int fd, const char *wanted)
{
    Text all;
    bool found = false;
    char bytes[4096];
    text_init(&all, 64 << 20);
    for (ssize_t got; !found && (got = rig_recv(fd, bytes, sizeof bytes)) > 0;) {
        text_add(&all, bytes, (size_t)got);
        found = strstr(all.p, wanted) != NULL;
    }
    text_free(&all);
    return found;
}

/* A client that only closes its sending side is taken as gone, as by a Dynamo frontend: the stream
 * ends, and the engine stops working on it. */
static void a_half_closed_client_is_gone(void)
{
    Part engines = engines_start(2);
    Part front = frontend_start(engines.ports, 2, "round-robin");
    int fd = http_send(front.ports[0], "POST", "/generate", "",
                       "{\"input_ids\":[21],\"stream\":true,\"sampling_params\":{"
                       "\"max_new_tokens\":9000,\"ignore_eos\":true}}");
    CHECK(comes(fd, "output_ids"));
    CHECK(running_becomes(&engines, 2, 1));
    CHECK_I64(shutdown(fd, SHUT_WR), 0);
    CHECK(!comes(fd, "[DONE]")); /* the connection is closed before */
    CHECK(running_becomes(&engines, 2, 0));
    close(fd);
    Reply metrics = http_ask(front.ports[0], "GET", "/metrics", "");
    CHECK(strstr(metrics.body, "dynamo_frontend_disconnected_clients 1\n") != NULL);
    CHECK(strstr(metrics.body, "dynamo_frontend_active_requests{model=\"policy\"} 0\n") != NULL);
    reply_free(&metrics);
    CHECK_I64(part_stop(&front), 0);
    CHECK_I64(part_stop(&engines), 0);
}

static void clients_that_leave(void)
{
    Part engines = engines_start(2);
    Part front = frontend_start(engines.ports, 2, "round-robin");
    int port = front.ports[0];
    /* The body's rid wins; a client that leaves ends the sample at the engine. */
    int fd = http_send(port, "POST", "/generate", "x-request-id: h\r\n", "{\"input_ids\":[21],"
                       "\"rid\":\"mine\",\"stream\":true,\"sampling_params\":{\"max_new_tokens\":"
                       "9000,\"ignore_eos\":true}}");
    CHECK(comes(fd, "\"id\":\"mine\""));
    CHECK(running_becomes(&engines, 2, 1));
    close(fd);
    CHECK(running_becomes(&engines, 2, 0));
    Reply metrics = http_ask(port, "GET", "/metrics", "");
    CHECK(strstr(metrics.body, "dynamo_frontend_disconnected_clients 1\n") != NULL);
    CHECK(strstr(metrics.body, "dynamo_frontend_active_requests{model=\"policy\"} 0\n") != NULL);
    CHECK(strstr(metrics.body, "error_type=\"cancelled\",model=\"policy\",request_type=\"stream\","
                               "status=\"error\"} 1\n") != NULL);
    reply_free(&metrics);
    CHECK_I64(part_stop(&front), 0);
    CHECK_I64(part_stop(&engines), 0);
}

static void engines_that_die(void)
{
    Part engines = engines_start(3);
    Part front = frontend_start(engines.ports, 2, "least-loaded");
    int port = front.ports[0];
    /* Killed in mid-stream: an error in the stream, then [DONE]. */
    int fd = http_send(port, "POST", "/generate", "", "{\"input_ids\":[21],\"stream\":true,"
                       "\"sampling_params\":{\"max_new_tokens\":9000,\"ignore_eos\":true}}");
    CHECK(text_comes(fd, "data: {"));
    CHECK_I64(http_status(engines.ports[0], "POST", "/_fault", "{\"kind\":\"crash\"}"), 0);
    Reply reply = http_read(fd);
    CHECK(reply.whole);
    CHECK(strstr(reply.body, "\n\ndata: {\"error\":{\"message\":\"Internal server error\"}}\n\n"
                             "data: [DONE]\n\n") != NULL);
    reply_free(&reply);
    /* The dead one is passed over, now and when its time aside is over. */
    for (int i = 0; i < 8; i++) {
        reply = http_ask(port, "POST", "/generate", "{\"input_ids\":[21],\"stream\":true,"
                         "\"sampling_params\":{\"max_new_tokens\":1}}");
        CHECK(reply.status == 200 && strstr(reply.body, "[DONE]"));
        reply_free(&reply);
        clock_sleep_us(100000);
    }
    /* Engines come and go while it runs. */
    char body[80];
    (void)str_format(body, sizeof body, "{\"remove\":\"127.0.0.1:%d\"}", engines.ports[0]);
    CHECK_I64(http_status(port, "POST", "/_workers", body), 200);
    CHECK_I64(http_status(port, "POST", "/_workers", body), 404);
    (void)str_format(body, sizeof body, "{\"drain\":\"127.0.0.1:%d\"}", engines.ports[1]);
    CHECK_I64(http_status(port, "POST", "/_workers", body), 200);
    CHECK_I64(http_status(port, "POST", "/generate", "{\"input_ids\":[1],\"stream\":true}"), 503);
    (void)str_format(body, sizeof body, "{\"add\":\"127.0.0.1:%d\"}", engines.ports[2]);
    CHECK_I64(http_status(port, "POST", "/_workers", body), 200);
    CHECK_I64(http_status(port, "POST", "/generate", "{\"input_ids\":[1],\"stream\":true}"), 200);
    CHECK_I64(http_status(port, "POST", "/_workers", "{\"add\":\"nonsense\"}"), 400);
    cJSON *json = http_json(port, "GET", "/_workers", "", 200);
    CHECK_STR(json_str(json, "workers.0.state"), "draining");
    CHECK_STR(json_str(json, "workers.1.state"), "up");
    cJSON_Delete(json);
    CHECK_I64(part_stop(&front), 0);
    CHECK_I64(part_stop(&engines), 0);
}

/* An "engine" that sends these bytes to whoever connects, in pieces, then closes. */
static pid_t bad_engine(int *port, const char *const *pieces)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    socklen_t n = sizeof at;
    CHECK_I64(bind(listener, (struct sockaddr *)&at, n), 0);
    CHECK_I64(listen(listener, 8), 0);
    getsockname(listener, (struct sockaddr *)&at, &n);
    *port = ntohs(at.sin_port);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (true) {
            int fd = accept(listener, NULL, NULL);
            char request[4096];
            (void)!read(fd, request, sizeof request);
            for (int i = 0; pieces[i]; i++) {
                (void)!write(fd, pieces[i], strlen(pieces[i]));
                clock_sleep_us(20000);
            }
            close(fd);
        }
    }
    close(listener);
    return pid;
}

static void hostile_engines(void)
{
#define OK_HEAD "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    static const struct { const char *pieces[8]; int status; const char *says; } rows[] = {
        {{OK_HEAD "connection: close\r\n\r\n", "data: {\"a\":1}\n", "\ndata: {\"b\"", ":2}\n\nda",
          "ta: [DONE]\n\n", NULL}, 200, "data: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n"},
        {{OK_HEAD "connection: close\r\n\r\n", "data: {\"a\":1}\n\ndata: {\"half", NULL}, 200,
         "data: {\"a\":1}\n\ndata: {\"error\":{\"message\":\"Internal server error\"}}\n\n"
         "data: [DONE]\n\n"},
        {{"HTTP/1.1 400 Bad Request\r\ncontent-length: 30\r\n\r\n{\"error\":{\"message\":\"no, "
          "no\"}}", NULL}, 400, "{\"error\":{\"message\":\"no, no\"}}"},
        {{"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", NULL}, 500,
         "{\"error\":{\"message\":\"internal server error\"}}"},
        {{"HTTP/1.1 503 Full\r\ncontent-length: 0\r\n\r\n", NULL}, 503,
         "{\"error\":{\"message\":\"engine rejected the request\"}}"},
        {{"this is not HTTP\r\n\r\n", NULL}, 503, NULL},
        {{"", NULL}, 503, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int engine = 0;
        pid_t pid = bad_engine(&engine, rows[i].pieces);
        Part front = frontend_start(&engine, 1, "round-robin");
        Reply reply = http_ask(front.ports[0], "POST", "/generate",
                               "{\"input_ids\":[1],\"stream\":true}");
        CHECK_I64(reply.status, rows[i].status);
        if (rows[i].says) {
            CHECK_STR(reply.body, rows[i].says);
        } else {
            CHECK(strstr(reply.body, "is not ready to serve requests yet") != NULL);
        }
        reply_free(&reply);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        CHECK_I64(part_stop(&front), 0);
    }
}

static void drain(void)
{
    Part engines = engines_start(1);
    Part front = frontend_start(engines.ports, 1, "round-robin");
    int port = front.ports[0];
    CHECK_I64(http_status(engines.ports[0], "POST", "/_fault", "{\"kind\":\"slow\",\"f\":0.01}"),
              200); /* until what is told meanwhile has been seen */
    int fd = http_send(port, "POST", "/generate", "", "{\"input_ids\":[21],\"stream\":true,"
                       "\"sampling_params\":{\"max_new_tokens\":200,\"ignore_eos\":true}}");
    CHECK(text_comes(fd, "data: {"));
    kill(front.pid, SIGTERM);
    CHECK(status_comes(port, "/health", 503));
    check_body(port, "GET", "/health", "", "", 503, "{\"status\":\"not_ready\",\"stage\":"
               "\"draining\",\"message\":\"Service is not ready\"}");
    check_body(port, "POST", "/generate", "", "{\"bad\":", 503, "{\"message\":\"Service is not "
               "ready\",\"type\":\"Service Unavailable\",\"code\":503}");
    CHECK_I64(http_status(engines.ports[0], "POST", "/_fault", "{\"kind\":\"clear\"}"), 200);
    Reply reply = http_read(fd); /* an open stream runs to its end */
    CHECK(reply.whole && strstr(reply.body, "\"completion_tokens\":200") &&
          strstr(reply.body, "[DONE]"));
    reply_free(&reply);
    CHECK_I64(part_wait(&front), 0);
    CHECK_I64(part_stop(&engines), 0);
    static const char *const wrong[][5] = {
        {"frontend", "--engine", "here", "--port=0", NULL},
        {"frontend", "--routing", "random", "--port=0", NULL},
        {"frontend", "--host", "0.0.0.0", "--port=0", NULL}};
    for (int i = 0; i < 3; i++) {
        front = part_start(frontend_main, wrong[i], 0);
        CHECK(part_wait(&front) != 0);
    }
}

int main(void)
{
    RUN(pages);
    RUN(refusals);
    RUN(streams);
    RUN(clients_that_leave);
    RUN(a_half_closed_client_is_gone);
    RUN(engines_that_die);
    RUN(hostile_engines);
    RUN(drain);
    return test_end();
}
