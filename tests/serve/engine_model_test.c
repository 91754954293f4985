/* A real engine on the golden models: batching, chunked prefill, sharing and retraction must not
 * change a number. Weight updates are real checkpoints, good and bad. */
#include "core/serve/engine.h"

#include "core/base/fs.h"
#include "core/model/tokenizer.h"
#include "core/model/weights.h"
#include "core/policy/delta.h"
#include "tests/serve/rig.h"

#include <math.h>

#define GOLDEN ROLLTOP_TEST_DATA "/golden-qwen3/"
enum { TOGETHER = 64 };

static cJSON *load(const char *path)
{
    Text text;
    text_init(&text, 1u << 26);
    cJSON *tree = NULL;
    CHECK_I64(fs_read(path, &text, NULL), ERR_OK);
    CHECK_I64(json_parse(text_str(&text), 1u << 26, path, &tree, NULL), ERR_OK);
    text_free(&text);
    return tree;
}

static char *ids_text(const cJSON *ids)
{
    return cJSON_PrintUnformatted(ids);
}

static void check_near(const cJSON *triples, int from, const cJSON *wanted, double tolerance)
{
    int n = cJSON_GetArraySize(wanted);
    CHECK_I64(cJSON_GetArraySize(triples), n + from);
    double worst = 0;
    for (int i = 0; i < n; i++) {
        const cJSON *triple = cJSON_GetArrayItem(triples, i + from);
        double got = cJSON_GetArrayItem(triple, 0)->valuedouble;
        worst = fmax(worst, fabs(got - cJSON_GetArrayItem(wanted, i)->valuedouble));
    }
    CHECK_NEAR(worst, 0.0, tolerance);
}

static int send_greedy(int port, const cJSON *one, int round)
{
    char *ids = ids_text(json_get(one, "prompt"));
    char *body = xasprintf("{\"input_ids\":%s,\"return_logprob\":true,\"stream\":%s,"
                           "\"sampling_params\":{\"max_new_tokens\":32,\"temperature\":0,"
                           "\"ignore_eos\":true,\"frequency_penalty\":%.17g,\"presence_penalty\":"
                           "%.17g,\"repetition_penalty\":%.17g}}", ids,
                           round % 2 ? "true" : "false",
                           json_double(one, "frequency_penalty", 0),
                           json_double(one, "presence_penalty", 0),
                           json_double(one, "repetition_penalty", 1));
    int fd = http_send(port, "POST", "/generate", "", body);
    free(body);
    free(ids);
    return fd;
}

static void check_greedy(int fd, const cJSON *one, int round)
{
    Reply reply = http_read(fd);
    CHECK_I64(reply.status, 200);
    cJSON *json = round % 2 ? sse_event(&reply, sse_count(&reply) - 2) : reply_json(&reply);
    CHECK(cJSON_Compare(json_get(json, "output_ids"), json_get(one, "ids"), 1));
    check_near(json_at(json, "meta_info.output_token_logprobs"), 0, json_get(one, "log_probs"),
               2e-4);
    cJSON_Delete(json);
    reply_free(&reply);
}

static void golden(const char *model, const char *const *more)
{
    char path[512];
    (void)str_format(path, sizeof path, GOLDEN "%s", model);
    const char *argv[RIG_ARGS] = {"engine", "--port", "0", "--model-path", path};
    int n = 5;
    while (*more) {
        argv[n++] = *more++;
    }
    Part part = part_start(engine_main, argv, 1);
    int port = part.ports[0];
    char *file = fs_join(path, "forward.json");
    cJSON *forward = load(file);
    const cJSON *greedy = json_get(forward, "greedy");
    const cJSON *cases = json_get(forward, "cases");
    int fds[TOGETHER];
    int all = cJSON_GetArraySize(greedy) * 4;
    for (int i = 0; i < all; i++) {
        fds[i] = send_greedy(port, cJSON_GetArrayItem(greedy, i / 4), i);
    }
    const cJSON *one = NULL;
    cJSON_ArrayForEach(one, cases) /* scoring, while those run */
    {
        char *ids = ids_text(json_get(one, "ids"));
        char *body = xasprintf("{\"input_ids\":%s,\"return_logprob\":true,\"logprob_start_len\":0,"
                               "\"sampling_params\":{\"max_new_tokens\":0}}", ids);
        cJSON *json = http_json(port, "POST", "/generate", body, 200);
        check_near(json_at(json, "meta_info.input_token_logprobs"), 1,
                   json_at(one, "temperature.0.log_probs"), 2e-4);
        cJSON_Delete(json);
        free(body);
        free(ids);
    }
    for (int i = 0; i < all; i++) {
        check_greedy(fds[i], cJSON_GetArrayItem(greedy, i / 4), i);
    }
    Reply metrics = http_ask(port, "GET", "/metrics", "");
    const char *retracted = strstr(metrics.body, "\nsglang:num_retracted_requests_total{");
    bool tight = more[-1] && strcmp(more[-1], "8") == 0;
    CHECK(retracted && (atoi(strstr(retracted, "} ") + 2) > 0) == tight);
    reply_free(&metrics);
    cJSON_Delete(forward);
    free(file);
    CHECK_I64(part_stop(&part), 0);
}

static void tied_model(void)
{
    golden("tied", (const char *const[]){"--threads", "1", NULL});
}

static void untied_model_two_threads(void)
{
    golden("untied", (const char *const[]){"--threads", "2", NULL});
}

static void little_memory(void)
{
    golden("tied", (const char *const[]){"--max-total-tokens", "192", "--chunked-prefill-size",
                                         "16", "--max-running-requests", "8", NULL});
}

static void update(int port, const char *dir, const char *version, int status, const char *says)
{
    char body[1024];
    (void)str_format(body, sizeof body, "{\"model_path\":\"%s\",\"weight_version\":\"%s\"}", dir,
                     version);
    cJSON *json = http_json(port, "POST", "/update_weights_from_disk", body, status);
    if (!strstr(json_str(json, "message"), says)) {
        CHECK_STR(json_str(json, "message"), says);
    }
    cJSON_Delete(json);
}

static void copy_file(const char *from, const char *to, size_t cut)
{
    Text text;
    text_init(&text, 1u << 26);
    CHECK_I64(fs_read(from, &text, NULL), ERR_OK);
    CHECK_I64(fs_write_atomic(to, text.p, text.n - cut, NULL), ERR_OK);
    text_free(&text);
}

static void checkpoints(void)
{
    const char *argv[] = {"engine", "--port", "0", "--model-path", GOLDEN "tied", NULL};
    Part part = part_start(engine_main, argv, 1);
    int port = part.ports[0];
    char dir[] = "/tmp/rolltop-model-test-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *config = fs_join(dir, "config.json");
    char *model = fs_join(dir, "model.safetensors");
    copy_file(GOLDEN "tied/config.json", config, 0);
    ModelConfig shape;
    CHECK_I64(model_config_load(dir, &shape, NULL), ERR_OK);
    CHECK_I64(weights_init_random(&shape, 5, dir, NULL), ERR_OK);
    Weights *weights = NULL;
    CHECK_I64(weights_load(dir, MODEL_F32, &weights, NULL), ERR_OK);
    char digest[DIGEST_TEXT];
    memcpy(digest, weights_digest(weights), sizeof digest);
    weights_unref(weights);
    update(port, dir, "1", 200, "Weight version updated to 1.");
    cJSON *json = http_json(port, "POST", "/weights_checker", "{\"action\":\"checksum\"}", 200);
    CHECK_STR(json_str(json, "per_engine_checksum"), digest); /* the engine holds what we wrote */
    CHECK_I64(cJSON_GetArraySize(json_at(json, "ranks.0.checksums")), model_tensor_count(&shape));
    cJSON_Delete(json);
    cJSON *before = http_json(port, "POST", "/generate", "{\"input_ids\":[7,8,9],\"sampling_params"
                              "\":{\"max_new_tokens\":8,\"temperature\":0,\"ignore_eos\":true}}",
                              200);
    copy_file(GOLDEN "tied/model.safetensors", model, 100); /* truncated */
    update(port, dir, "2", 400, "old weights stay");
    update(port, GOLDEN "untied", "2", 400, ""); /* other shapes */
    json = http_json(port, "GET", "/model_info", "", 200);
    CHECK_STR(json_str(json, "weight_version"), "1");
    CHECK_STR(json_str(json, "model_path"), dir);
    cJSON_Delete(json);
    json = http_json(port, "POST", "/weights_checker", "{}", 200);
    CHECK_STR(json_str(json, "per_engine_checksum"), digest);
    cJSON_Delete(json);
    cJSON *after = http_json(port, "POST", "/generate", "{\"input_ids\":[7,8,9],\"sampling_params"
                             "\":{\"max_new_tokens\":8,\"temperature\":0,\"ignore_eos\":true}}",
                             200);
    CHECK(cJSON_Compare(json_get(before, "output_ids"), json_get(after, "output_ids"), 1));
    CHECK_STR(json_str(after, "meta_info.weight_version"), "1");
    cJSON_Delete(before);
    cJSON_Delete(after);
    CHECK_I64(http_status(port, "POST", "/generate", "{\"text\":\"no tokenizer here\"}"), 400);
    CHECK_I64(http_status(port, "POST", "/generate", "{\"input_ids\":[512]}"), 400);
    free(config);
    free(model);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    CHECK_I64(part_stop(&part), 0);
}

/* The same seed, the same sample; n samples of one prompt differ; updates while streams run keep
 * spans and counts true. */
static void pull(int port, const char *root, int64_t version, int status, const char *says)
{
    char *body = xasprintf("{\"local_checkpoint_dir\":\"%s/local\",\"source_dir\":\"%s/source\","
                           "\"target_version\":%lld}", root, root, (long long)version);
    cJSON *json = http_json(port, "POST", "/pull_weights", body, status);
    CHECK(json_bool(json, "success", false) == (status == 200));
    CHECK(strstr(json_string(json, "message", ""), says) != NULL);
    cJSON_Delete(json);
    free(body);
}

/* Deltas are pulled and loaded; what the engine then holds is the published policy. */
static void deltas(void)
{
    char root[] = "/tmp/rolltop-pull-XXXXXX";
    CHECK(mkdtemp(root) != NULL);
    const char *const argv[] = {"engine", "--port", "0", "--model-path", GOLDEN "tied", NULL};
    Part part = part_start(engine_main, argv, 1);
    int port = part.ports[0];
    ModelConfig config;
    CHECK_I64(model_config_load(GOLDEN "tied", &config, NULL), ERR_OK);
    char *source = fs_join(root, "source");
    char *next = fs_join(root, "next");
    char *local = fs_join(root, "local");
    CHECK_I64(fs_mkdirs(next, 0755, NULL), ERR_OK);
    CHECK_I64(weights_init_random(&config, 5, next, NULL), ERR_OK);
    DeltaStats stats;
    CHECK_I64(delta_publish(GOLDEN "tied", next, source, 1, 0, DELTA_OVERWRITE,
                            DELTA_SUM_XXH3_128, NULL, &stats, NULL), ERR_OK);
    pull(port, root, 0, 200, "version 000000");
    pull(port, root, 1, 200, "version 000001");
    pull(port, root, 2, 400, "published weight version missing");
    CHECK_I64(http_status(port, "POST", "/pull_weights", "{\"target_version\":1}"), 400);
    update(port, local, "1", 200, "");
    Weights *weights = NULL;
    CHECK_I64(weights_load(next, MODEL_F32, &weights, NULL), ERR_OK);
    cJSON *json = http_json(port, "POST", "/weights_checker", "{}", 200);
    CHECK_STR(json_string(json, "per_engine_checksum", ""), weights_digest(weights));
    cJSON_Delete(json);
    weights_unref(weights);
    free(source);
    free(next);
    free(local);
    CHECK_I64(part_stop(&part), 0);
    CHECK_I64(fs_remove_tree(root, NULL), ERR_OK);
}

static void sampling_and_spans(void)
{
    const char *argv[] = {"engine", "--port", "0", "--model-path", GOLDEN "tied",
                          "--incremental-streaming-output", NULL};
    Part part = part_start(engine_main, argv, 1);
    int port = part.ports[0];
    static const char seeded[] = "{\"input_ids\":[7,8],\"sampling_params\":{\"max_new_tokens\":40,"
                                 "\"ignore_eos\":true,\"seed\":17,\"n\":2}}";
    cJSON *a = http_json(port, "POST", "/generate", seeded, 200);
    cJSON *b = http_json(port, "POST", "/generate", seeded, 200);
    for (int i = 0; i < 2; i++) {
        const cJSON *x = json_get(cJSON_GetArrayItem(a, i), "output_ids");
        const cJSON *y = json_get(cJSON_GetArrayItem(b, i), "output_ids");
        CHECK(x && cJSON_Compare(x, y, 1));
    }
    CHECK(!cJSON_Compare(json_at(a, "0.output_ids"), json_at(a, "1.output_ids"), 1));
    cJSON_Delete(a);
    cJSON_Delete(b);
    enum { STREAMS = 16 };
    int fds[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        fds[i] = http_send(port, "POST", "/generate", "", "{\"input_ids\":[7,8],\"stream\":true,"
                           "\"return_logprob\":true,\"sampling_params\":{\"max_new_tokens\":1500,"
                           "\"ignore_eos\":true}}");
    }
    CHECK(number_comes(port, "/v1/loads", "loads.0.num_running_reqs", STREAMS, STREAMS));
    static const char *const modes[] = {"{\"mode\":\"in_place\"}", "{\"mode\":\"retract\"}"};
    for (int i = 0; i < 2; i++) {
        char body[512];
        (void)str_format(body, sizeof body, "{\"model_path\":\"" GOLDEN "tied\",\"weight_version\":"
                         "\"%d\",\"flush_cache\":false}", i + 1);
        CHECK_I64(http_status(port, "POST", "/pause_generation", modes[i]), 200);
        CHECK_I64(http_status(port, "POST", "/update_weights_from_disk", body), 200);
        double made = number_of(port, "/v1/loads", "loads.0.gen_tokens_total");
        CHECK_I64(http_status(port, "POST", "/continue_generation", "{}"), 200);
        CHECK(number_comes(port, "/v1/loads", "loads.0.gen_tokens_total", made + STREAMS, 1e9));
    }
    for (int i = 0; i < STREAMS; i++) {
        Reply reply = http_read(fds[i]);
        const char *at = reply.body;
        int seen = 0;
        int ends = 0;
        for (cJSON *event; (event = sse_next(&at)) != NULL; cJSON_Delete(event)) {
            seen += cJSON_GetArraySize(json_get(event, "output_ids"));
            CHECK_I64(json_num(event, "meta_info.completion_tokens"), seen);
            const cJSON *spans = json_at(event, "meta_info.weight_versions");
            int end = 0;
            const cJSON *span = NULL;
            cJSON_ArrayForEach(span, spans)
            {
                CHECK_I64(json_num(span, "start"), end);
                end = (int)json_num(span, "end");
            }
            CHECK_I64(end, spans ? 1500 : 0);
            ends += spans != NULL;
        }
        CHECK_I64(ends, 1);
        CHECK_STR(at, "");
        CHECK_I64(seen, 1500);
        reply_free(&reply);
    }
    CHECK_I64(part_stop(&part), 0);
}

/* Text by the checkpoint's own tokenizer, the same in one piece and in a stream. */
static void text_in_and_out(void)
{
    char dir[] = "/tmp/rolltop-text-test-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *config = fs_join(dir, "config.json");
    char *model = fs_join(dir, "model.safetensors");
    copy_file(GOLDEN "tied/config.json", config, 0);
    copy_file(GOLDEN "tied/model.safetensors", model, 0);
    static const char *const special[] = {"<pad>", "<eos>"};
    CHECK_I64(tokenizer_write_alphabet(dir, special, 2, STR("abcdefghijklmnopqrstuvwxyz 0123456789"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:+-*/()"), NULL), ERR_OK);
    const char *argv[] = {"engine", "--port", "0", "--model-path", dir,
                          "--incremental-streaming-output", NULL};
    Part part = part_start(engine_main, argv, 1);
    int port = part.ports[0];
    cJSON *unary = http_json(port, "POST", "/generate", "{\"text\":\"sort 31\",\"sampling_params\":"
                             "{\"max_new_tokens\":200,\"ignore_eos\":true,\"seed\":3}}", 200);
    CHECK_I64(json_num(unary, "meta_info.prompt_tokens"), 7);
    Tokenizer *tokenizer = NULL;
    CHECK_I64(tokenizer_load(dir, &tokenizer, NULL), ERR_OK);
    Text text;
    text_init(&text, 65536);
    const cJSON *id = NULL;
    cJSON_ArrayForEach(id, json_get(unary, "output_ids"))
    {
        int32_t one = id->valueint;
        tokenizer_decode(tokenizer, &one, 1, true, &text);
    }
    CHECK(text.n > 10);
    CHECK_STR(json_str(unary, "text"), text_c(&text));
    Reply stream = http_ask(port, "POST", "/generate", "{\"text\":\"sort 31\",\"stream\":true,"
                            "\"sampling_params\":{\"max_new_tokens\":200,\"ignore_eos\":true,"
                            "\"seed\":3}}");
    Text pieces;
    text_init(&pieces, 65536);
    const char *at = stream.body;
    for (cJSON *event; (event = sse_next(&at)) != NULL; cJSON_Delete(event)) {
        text_add_c(&pieces, json_str(event, "text"));
    }
    CHECK_STR(text_c(&pieces), text_c(&text));
    /* A stop string of two characters of that text ends the sample where it first stands. */
    char stop[3] = {text.p[6], text.p[7], 0};
    char body[512];
    (void)str_format(body, sizeof body, "{\"text\":\"sort 31\",\"sampling_params\":{\"seed\":3,"
                     "\"max_new_tokens\":200,\"ignore_eos\":true,\"stop\":\"%s\"}}", stop);
    cJSON *stopped = http_json(port, "POST", "/generate", body, 200);
    CHECK_STR(json_str(stopped, "meta_info.finish_reason.matched"), stop);
    const char *found = strstr(text_c(&text), stop);
    CHECK_I64(strlen(json_str(stopped, "text")), found - text.p);
    cJSON_Delete(stopped);
    cJSON_Delete(unary);
    reply_free(&stream);
    text_free(&pieces);
    text_free(&text);
    tokenizer_free(tokenizer);
    free(config);
    free(model);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    CHECK_I64(part_stop(&part), 0);
}

int main(void)
{
    RUN(tied_model);
    RUN(untied_model_two_threads);
    RUN(little_memory);
    RUN(checkpoints);
    RUN(deltas);
    RUN(sampling_and_spans);
    RUN(text_in_and_out);
    return test_end();
}
