/* Every fault does what its row says, ends when it should, and leaves a working engine behind. */
#include "core/serve/engine.h"

#include "core/base/fs.h"
#include "core/serve/synthetic.h"
#include "tests/serve/rig.h"

#define LOADS "/v1/loads"
#define RUNNING "loads.0.num_running_reqs"
#define GEN_TOTAL "loads.0.gen_tokens_total"

static Part engine_start(void)
{
    const char *argv[] = {"engine", "--synthetic", "--synthetic-digest", "d1", "--port", "0",
                          "--faults", "--synthetic-tokens-per-s", "500",
                          "--incremental-streaming-output", NULL};
    return part_start(engine_main, argv, 1);
}

static void set(int port, const char *json)
{
    CHECK_I64(http_status(port, "POST", "/_fault", json), 200);
}

static cJSON *generate(int port, const char *params)
{
    char body[256];
    (void)str_format(body, sizeof body, "{\"input_ids\":[5],\"return_logprob\":true,"
                     "\"sampling_params\":{%s}}", params);
    return http_json(port, "POST", "/generate", body, 200);
}

static double count_of(int port, const char *params, const char *path)
{
    cJSON *json = generate(port, params);
    double v = json_num(json, path);
    cJSON_Delete(json);
    return v;
}

static int64_t timed_ms(int port, const char *params)
{
    int64_t start = clock_mono_us();
    cJSON_Delete(generate(port, params));
    return (clock_mono_us() - start) / 1000;
}

static void answers(void)
{
    Part part = engine_start();
    int port = part.ports[0];
    static const char few[] = "\"max_new_tokens\":20,\"ignore_eos\":true";
    static const char tokens[] = "meta_info.completion_tokens";
    set(port, "{\"kind\":\"empty\"}");
    CHECK_I64(count_of(port, "\"max_new_tokens\":20", tokens), 1);
    set(port, "{\"kind\":\"clear\"}");
    const int32_t prompt[] = {5};
    int64_t own = synthetic_length(synthetic_key("d1", prompt, 1), 200);
    CHECK(own < 200);
    CHECK_I64(count_of(port, "\"max_new_tokens\":200", tokens), own);
    set(port, "{\"kind\":\"nostop\"}");
    CHECK_I64(count_of(port, "\"max_new_tokens\":200", tokens), 200);
    set(port, "{\"kind\":\"clear\"}");
    set(port, "{\"kind\":\"len_dist\",\"p\":1,\"long\":150}");
    CHECK_I64(count_of(port, "\"max_new_tokens\":200", tokens), 150);
    set(port, "{\"kind\":\"clear\"}");
    set(port, "{\"kind\":\"nan\"}");
    cJSON *json = generate(port, few);
    CHECK(cJSON_IsNull(json_at(json, "meta_info.output_token_logprobs.0.0")));
    cJSON_Delete(json);
    set(port, "{\"kind\":\"clear\"}");
    set(port, "{\"kind\":\"garble\"}");
    int32_t right = synthetic_token(synthetic_key("d1", prompt, 1), 0, NULL);
    CHECK(count_of(port, few, "output_ids.0") != right);
    set(port, "{\"kind\":\"clear\"}");
    CHECK_I64(count_of(port, few, "output_ids.0"), right);
    set(port, "{\"kind\":\"slow\",\"f\":0.2}");
    CHECK(timed_ms(port, "\"max_new_tokens\":100,\"ignore_eos\":true") > 800);
    set(port, "{\"kind\":\"clear\"}");
    set(port, "{\"kind\":\"drop_reply\"}");
    double made = number_of(port, LOADS, GEN_TOTAL);
    int fd = http_send(port, "POST", "/generate", "", "{\"input_ids\":[5]}");
    CHECK(number_comes(port, LOADS, GEN_TOTAL, made + 1, 1e9));
    CHECK(number_comes(port, "/get_load", "0.num_reqs", 0, 0)); /* it finished all the same */
    char byte = 0;
    CHECK_I64(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    close(fd);
    set(port, "{\"kind\":\"clear\"}");
    set(port, "{\"kind\":\"kv_cap\",\"n\":64}");
    json = http_json(port, "GET", "/v1/loads", "", 200);
    CHECK_I64(json_num(json, "loads.0.max_total_num_tokens"), 64);
    cJSON_Delete(json);
    CHECK_I64(http_status(port, "POST", "/generate", "{\"input_ids\":[5],\"sampling_params\":{"
                          "\"max_new_tokens\":100,\"ignore_eos\":true}}"), 500);
    set(port, "{\"kind\":\"clear\"}");
    CHECK_I64(count_of(port, few, tokens), 20);
    CHECK_I64(part_stop(&part), 0);
}

static void control(void)
{
    Part part = engine_start();
    int port = part.ports[0];
    set(port, "{\"kind\":\"health\",\"status\":503,\"for\":60}");
    CHECK_I64(http_status(port, "GET", "/health", ""), 503);
    CHECK_I64(http_status(port, "GET", "/health_generate", ""), 503);
    set(port, "{\"kind\":\"health\",\"status\":503,\"for\":0.3}"); /* in place of the other */
    CHECK(status_comes(port, "/health", 200));
    set(port, "{\"kind\":\"flush\",\"mode\":\"400\"}");
    CHECK_I64(http_status(port, "POST", "/flush_cache", ""), 400);
    set(port, "{\"kind\":\"clear\"}");
    set(port, "{\"kind\":\"abort\",\"mode\":\"404\"}");
    CHECK_I64(http_status(port, "POST", "/abort_request", "{\"abort_all\":true}"), 404);
    set(port, "{\"kind\":\"abort\",\"mode\":\"slow\",\"s\":0.2}");
    int64_t start = clock_mono_us();
    CHECK_I64(http_status(port, "POST", "/abort_request", "{\"abort_all\":true}"), 200);
    CHECK(clock_mono_us() - start > 150000);
    set(port, "{\"kind\":\"clear\"}");
    set(port, "{\"kind\":\"stay_paused\"}");
    CHECK_I64(http_status(port, "POST", "/pause_generation", "{}"), 200);
    cJSON *json = http_json(port, "POST", "/continue_generation", "{}", 200);
    CHECK(cJSON_IsTrue(json_at(json, "paused"))); /* seen in the answer itself … */
    cJSON_Delete(json);
    json = http_json(port, "GET", "/server_info", "", 200);
    CHECK(cJSON_IsTrue(json_at(json, "paused"))); /* … and to whoever asks */
    cJSON_Delete(json);
    set(port, "{\"kind\":\"clear\"}");
    json = http_json(port, "POST", "/continue_generation", "{}", 200);
    CHECK(cJSON_IsFalse(json_at(json, "paused")));
    cJSON_Delete(json);
    char dir[] = "/tmp/rolltop-faults-test-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *file = fs_join(dir, "w");
    CHECK_I64(fs_write_atomic(file, "one", 3, NULL), ERR_OK);
    char update[256];
    (void)str_format(update, sizeof update, "{\"model_path\":\"%s\",\"weight_version\":\"4\"}",
                     dir);
    set(port, "{\"kind\":\"ver_lie\"}");
    CHECK_I64(http_status(port, "POST", "/update_weights_from_disk", update), 200);
    json = http_json(port, "GET", "/model_info", "", 200);
    CHECK_STR(json_str(json, "weight_version"), "4");
    cJSON_Delete(json);
    json = http_json(port, "POST", "/weights_checker", "{}", 200);
    CHECK_STR(json_str(json, "per_engine_checksum"), "d1"); /* the checksum does not lie */
    CHECK_STR(json_str(json, "weight_version"), "4");
    cJSON_Delete(json);
    set(port, "{\"kind\":\"clear\"}");
    set(port, "{\"kind\":\"update\",\"mode\":\"400\"}");
    CHECK_I64(http_status(port, "POST", "/update_weights_from_disk", update), 400);
    set(port, "{\"kind\":\"update\",\"mode\":\"partial\"}");
    CHECK_I64(http_status(port, "POST", "/update_weights_from_disk", update), 400);
    set(port, "{\"kind\":\"update\",\"mode\":\"slow\",\"s\":0.2}");
    start = clock_mono_us();
    CHECK_I64(http_status(port, "POST", "/update_weights_from_disk", update), 200);
    CHECK(clock_mono_us() - start > 150000);
    set(port, "{\"kind\":\"ver_reset\"}");
    json = http_json(port, "GET", "/model_info", "", 200);
    CHECK_STR(json_str(json, "weight_version"), "default");
    cJSON_Delete(json);
    set(port, "{\"kind\":\"update\",\"mode\":\"hang\"}");
    int fd = http_send(port, "POST", "/update_weights_from_disk", "", update);
    CHECK_I64(http_status(port, "GET", "/ping", ""), 200); /* whatever comes behind it */
    char byte = 0;
    CHECK_I64(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    close(fd);
    CHECK_I64(http_status(port, "POST", "/_fault", "{\"kind\":\"melt\"}"), 400);
    free(file);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    CHECK_I64(part_stop(&part), 0);
}

static void freezes(void)
{
    Part part = engine_start();
    int port = part.ports[0];
    set(port, "{\"kind\":\"freeze\"}");
    CHECK_I64(http_status(port, "GET", "/health", ""), 200); /* health lies */
    CHECK_I64(http_status(port, "GET", "/metrics", ""), 200);
    set(port, "{\"kind\":\"clear\"}");
    int64_t start = clock_mono_us(); /* before the fault: it may be half over when it is answered */
    set(port, "{\"kind\":\"freeze\",\"for\":0.5}");
    cJSON_Delete(generate(port, "\"max_new_tokens\":1"));
    CHECK(clock_mono_us() - start > 300000);
    start = clock_mono_us();
    set(port, "{\"kind\":\"freeze_all\",\"for\":0.5}");
    CHECK_I64(http_status(port, "GET", "/ping", ""), 200);
    CHECK(clock_mono_us() - start > 300000);
    set(port, "{\"kind\":\"gauges_stuck\"}");
    double made = number_of(port, LOADS, GEN_TOTAL);
    int fd = http_send(port, "POST", "/generate", "", "{\"input_ids\":[5],\"sampling_params\":{"
                       "\"max_new_tokens\":400,\"ignore_eos\":true}}");
    CHECK(number_comes(port, LOADS, GEN_TOTAL, made + 20, 1e9)); /* counters go on */
    CHECK_I64(number_of(port, LOADS, RUNNING), 0);
    Reply reply = http_read(fd);
    CHECK_I64(reply.status, 200);
    reply_free(&reply);
    set(port, "{\"kind\":\"clear\"}");
    set(port, "{\"kind\":\"zombie\",\"k\":1}");
    fd = http_send(port, "POST", "/generate", "", "{\"input_ids\":[5],\"rid\":\"z\"}");
    CHECK(number_comes(port, LOADS, RUNNING, 1, 1));
    CHECK_I64(http_status(port, "POST", "/abort_request", "{\"rid\":\"z\"}"), 200);
    CHECK_I64(http_status(port, "POST", "/flush_cache?timeout=0.2", ""), 400);
    CHECK_I64(number_of(port, LOADS, RUNNING), 1);
    cJSON_Delete(generate(port, "\"max_new_tokens\":2")); /* the others are served */
    close(fd);
    set(port, "{\"kind\":\"crash\",\"code\":7,\"after\":0.1}");
    CHECK_I64(part_wait(&part), 7);
}

static void one_of_many_dies_alone(void)
{
    const char *argv[] = {"engine", "--synthetic", "--count", "4", "--name", "eng-08", "--port",
                          "0", "--faults", NULL};
    Part part = part_start(engine_main, argv, 4);
    int fd = http_send(part.ports[1], "POST", "/generate", "", "{\"input_ids\":[5],"
                       "\"sampling_params\":{\"max_new_tokens\":4000,\"ignore_eos\":true}}");
    CHECK(number_comes(part.ports[1], LOADS, RUNNING, 1, 1));
    cJSON *json = http_json(part.ports[2], "GET", "/server_info", "", 200);
    CHECK_STR(json_str(json, "engine_name"), "eng-10");
    cJSON_Delete(json);
    Reply reply = http_ask(part.ports[1], "POST", "/_fault", "{\"kind\":\"crash\",\"code\":1}");
    CHECK_I64(reply.status, 0);
    reply_free(&reply);
    reply = http_read(fd);
    CHECK_I64(reply.status, 0); /* cut, not answered */
    reply_free(&reply);
    CHECK_I64(http_dial(part.ports[1]), -1);
    CHECK_I64(http_status(part.ports[0], "GET", "/health_generate", ""), 200);
    CHECK_I64(http_status(part.ports[3], "GET", "/health_generate", ""), 200);
    CHECK_I64(part_stop(&part), 0);
}

int main(void)
{
    RUN(answers);
    RUN(control);
    RUN(freezes);
    RUN(one_of_many_dies_alone);
    return test_end();
}
