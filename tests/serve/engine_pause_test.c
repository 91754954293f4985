/* Updates in the middle of generation, by a real engine on real checkpoints, in each pause mode:
 * every token's log-prob is that of the policy stamped on it, over the whole sequence, as if it
 * were scored afresh. So nothing of the old weights' keys and values outlives an update, and no
 * token changes its stamp. */
#include "core/serve/engine.h"

#include "core/base/fs.h"
#include "core/model/config.h"
#include "core/model/weights.h"
#include "tests/serve/rig.h"

#include <math.h>

#define GOLDEN ROLLTOP_TEST_DATA "/golden-qwen3/tied"
enum { SAMPLES = 6, TOKENS = 1200, PROMPT = 5 };

typedef struct Taken { /* one sample, put together by its reader */
    int32_t ids[TOKENS];
    double logprobs[TOKENS];
    int version[TOKENS]; /* as stamped by event or span */
    int count;
    bool aborted;
} Taken;

static char *prompt_text(int sample)
{
    return xasprintf("7,8,9,%d,%d", 20 + sample / 2, 30 + sample); /* siblings share a prefix */
}

static int start(int port, int sample)
{
    char *prompt = prompt_text(sample);
    char *body = xasprintf("{\"input_ids\":[%s],\"return_logprob\":true,\"stream\":%s,"
                           "\"sampling_params\":{\"max_new_tokens\":%d,\"ignore_eos\":true,"
                           "\"seed\":%d,\"stream_interval\":%d}}", prompt,
                           sample % 2 ? "true" : "false", TOKENS, sample, 1 + sample % 3);
    int fd = http_send(port, "POST", "/generate", "", body);
    free(body);
    free(prompt);
    return fd;
}

/* Of an event's tokens: its own stamp, unless it holds the spans of all. */
static void take(Taken *t, const cJSON *event)
{
    const cJSON *ids = json_get(event, "output_ids");
    const cJSON *logprobs = json_at(event, "meta_info.output_token_logprobs");
    int n = cJSON_GetArraySize(ids);
    CHECK(t->count + n <= TOKENS && cJSON_GetArraySize(logprobs) == n);
    for (int i = 0; i < n && t->count < TOKENS; i++, t->count++) {
        t->ids[t->count] = cJSON_GetArrayItem(ids, i)->valueint;
        t->logprobs[t->count] =
            cJSON_GetArrayItem(cJSON_GetArrayItem(logprobs, i), 0)->valuedouble;
        t->version[t->count] = atoi(json_str(event, "meta_info.weight_version"));
    }
    const cJSON *reason = json_at(event, "meta_info.finish_reason");
    t->aborted = cJSON_IsObject(reason) && strcmp(json_str(reason, "type"), "abort") == 0;
}

/* Stamps of events, as they came, against the spans told at the end; unary replies have only
 * those. */
static void check_spans(Taken *t, const cJSON *last, bool stream)
{
    int at = 0;
    const cJSON *span = NULL;
    cJSON_ArrayForEach(span, json_at(last, "meta_info.weight_versions"))
    {
        CHECK_I64(json_num(span, "start"), at);
        for (; at < (int)json_num(span, "end") && at < TOKENS; at++) {
            int version = atoi(json_str(span, "version"));
            CHECK(!stream || t->version[at] == version);
            t->version[at] = version;
        }
    }
    CHECK_I64(at, t->count);
}

static void finish(int fd, bool stream, Taken *t)
{
    Reply reply = http_read(fd);
    CHECK_I64(reply.status, 200);
    *t = (Taken){.count = 0};
    cJSON *last = stream ? NULL : reply_json(&reply);
    const char *at = reply.body;
    for (cJSON *event = stream ? sse_next(&at) : NULL; event; event = sse_next(&at)) {
        take(t, event);
        cJSON_Delete(last);
        last = event;
    }
    if (!stream) {
        take(t, last);
    }
    check_spans(t, last, stream);
    cJSON_Delete(last);
    reply_free(&reply);
}

static void load(int port, const char *dir, int version)
{
    char *body = xasprintf("{\"model_path\":\"%s\",\"weight_version\":\"%d\",\"flush_cache\":"
                           "false}", dir, version);
    CHECK_I64(http_status(port, "POST", "/update_weights_from_disk", body), 200);
    free(body);
}

/* Log-probs of prompt and outputs under the weights that the engine holds now. */
static cJSON *score(int port, int sample, const Taken *t, bool paused)
{
    Text body;
    text_init(&body, 1u << 20);
    char *prompt = prompt_text(sample);
    text_addf(&body, "{\"input_ids\":[%s", prompt);
    for (int i = 0; i < t->count; i++) {
        text_addf(&body, ",%d", t->ids[i]);
    }
    text_addf(&body, "],\"return_logprob\":true,\"logprob_start_len\":0,\"while_paused\":%s,"
              "\"sampling_params\":{\"max_new_tokens\":0}}", paused ? "true" : "false");
    cJSON *json = http_json(port, "POST", "/generate", text_c(&body), 200);
    free(prompt);
    text_free(&body);
    return json;
}

/* The worst distance of the tokens stamped `version`; -1 when there is none. */
static double worst_of(int port, int sample, const Taken *t, int version)
{
    cJSON *json = score(port, sample, t, false);
    const cJSON *triples = json_at(json, "meta_info.input_token_logprobs");
    CHECK_I64(cJSON_GetArraySize(triples), PROMPT + t->count);
    double worst = -1;
    for (int i = 0; i < t->count; i++) {
        const cJSON *triple = cJSON_GetArrayItem(triples, PROMPT + i);
        double right = cJSON_GetArrayItem(triple, 0)->valuedouble;
        worst = t->version[i] == version ? fmax(worst, fabs(t->logprobs[i] - right)) : worst;
    }
    cJSON_Delete(json);
    return worst;
}

static double first_scored(int port, bool paused)
{
    Taken two = {.ids = {3, 4}, .count = 2};
    cJSON *json = score(port, 0, &two, paused);
    const cJSON *triples = json_at(json, "meta_info.input_token_logprobs");
    double value = cJSON_GetArrayItem(cJSON_GetArrayItem(triples, 1), 0)->valuedouble;
    cJSON_Delete(json);
    return value;
}

static void until_tokens(int port)
{
    for (int i = 0; i < 30000; i++) {
        cJSON *json = http_json(port, "GET", "/v1/loads?include=core", "", 200);
        bool run = json_num(json, "loads.0.num_running_reqs") == SAMPLES &&
                   json_num(json, "loads.0.num_used_tokens") > SAMPLES * (PROMPT + 64);
        cJSON_Delete(json);
        if (run) {
            return;
        }
        clock_sleep_us(2000);
    }
    test_result(false, __FILE__, __LINE__, "all samples come to run");
}

static void check_mode(int port, const char *mode, const char *other)
{
    bool keeps = strcmp(mode, "abort") != 0;
    int fds[SAMPLES];
    Taken *taken = xcalloc(SAMPLES, sizeof *taken);
    load(port, GOLDEN, 1);
    const char *slow = "{\"kind\":\"slow\",\"f\":0.02}"; /* so that none ends before the pause */
    double old = first_scored(port, false);
    CHECK_I64(http_status(port, "POST", "/_fault", slow), 200);
    for (int i = 0; i < SAMPLES; i++) {
        fds[i] = start(port, i);
    }
    until_tokens(port);
    char body[64];
    (void)str_format(body, sizeof body, "{\"mode\":\"%s\"}", mode);
    CHECK_I64(http_status(port, "POST", "/pause_generation", body), 200);
    CHECK_I64(http_status(port, "POST", "/_fault", "{\"kind\":\"clear\"}"), 200);
    bool flushes = strcmp(mode, "in_place") != 0;
    CHECK_I64(http_status(port, "POST", "/flush_cache", ""), flushes ? 200 : 400);
    CHECK_NEAR(first_scored(port, true), old, 1e-6); /* paused, and it scores */
    load(port, other, 2);
    double fresh = first_scored(port, true);
    CHECK(fabs(fresh - old) > 0.01);
    CHECK_I64(http_status(port, "POST", "/generate", "{\"input_ids\":[7],\"while_paused\":true,"
                          "\"sampling_params\":{\"max_new_tokens\":2}}"), 400);
    CHECK_I64(http_status(port, "POST", "/continue_generation", "{}"), 200);
    int crossed = 0;
    for (int i = 0; i < SAMPLES; i++) {
        finish(fds[i], i % 2, &taken[i]);
        CHECK(taken[i].aborted == !keeps || taken[i].count == TOKENS);
        CHECK(!keeps || taken[i].count == TOKENS);
        double worst = worst_of(port, i, &taken[i], 2);
        crossed += worst >= 0;
        CHECK(worst < 2e-3);
    }
    CHECK((crossed > 0) == keeps);
    load(port, GOLDEN, 3); /* the first policy again, to score what it made */
    CHECK_NEAR(first_scored(port, false), old, 1e-6);
    for (int i = 0; i < SAMPLES; i++) {
        CHECK(worst_of(port, i, &taken[i], 1) < 2e-3);
    }
    free(taken);
}

static void every_token_is_of_its_stamp(void)
{
    char dir[] = "/tmp/rolltop-pause-test-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    ModelConfig shape;
    CHECK_I64(model_config_load(GOLDEN, &shape, NULL), ERR_OK);
    CHECK_I64(weights_init_random(&shape, 5, dir, NULL), ERR_OK);
    const char *argv[] = {"engine", "--port", "0", "--model-path", GOLDEN,
                          "--incremental-streaming-output", "--faults", NULL};
    Part part = part_start(engine_main, argv, 1);
    check_mode(part.ports[0], "abort", dir);
    check_mode(part.ports[0], "retract", dir);
    check_mode(part.ports[0], "in_place", dir);
    CHECK_I64(part_stop(&part), 0);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
}

int main(void)
{
    RUN(every_token_is_of_its_stamp);
    return test_end();
}
