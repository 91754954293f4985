/* The synthetic policy and the fault table: pure parts. */
#include "core/serve/synthetic.h"

#include "core/serve/engine_text.h"
#include "core/serve/faults.h"
#include "tests/harness.h"

static void tokens_tell_the_policy(void)
{
    const int32_t prompt[] = {5, 6, 7};
    uint64_t a = synthetic_key("digest-a", prompt, 3);
    uint64_t b = synthetic_key("digest-b", prompt, 3);
    CHECK(a == synthetic_key("digest-a", prompt, 3));
    CHECK(a != b && a != synthetic_key("digest-a", prompt, 2));
    int same = 0;
    for (int64_t i = 0; i < 1000; i++) {
        float logprob = 1.0f;
        int32_t token = synthetic_token(a, i, &logprob);
        CHECK(token > SYNTHETIC_EOS && token < SYNTHETIC_VOCAB);
        CHECK(logprob < 0.0f && logprob > -6.1f);
        CHECK_I64(token, synthetic_token(a, i, NULL));
        same += token == synthetic_token(b, i, NULL);
    }
    CHECK(same < 5);
}

static void lengths_have_a_tail(void)
{
    int longest = 0;
    int shorter = 0;
    for (int32_t i = 0; i < 1000; i++) {
        int64_t n = synthetic_length(synthetic_key("d", &i, 1), 512);
        CHECK(n >= 1 && n <= 512);
        longest = n > longest ? (int)n : longest;
        shorter += n <= 64;
    }
    CHECK(longest > 450 && shorter > 400 && shorter < 600);
    CHECK_I64(synthetic_length(9, 1), 1);
    CHECK_I64(synthetic_length(9, 0), 1);
}

static Err apply(Faults *faults, const char *json, int64_t now, Fault *fault)
{
    cJSON *body = NULL;
    FaultKind kind = FAULT_KIND_COUNT;
    CHECK_I64(json_parse(str_from(json), 4096, "test", &body, NULL), ERR_OK);
    fault_clear(fault);
    Err err = faults_apply(faults, body, now, &kind, fault);
    cJSON_Delete(body);
    return err;
}

static void faults_come_and_go(void)
{
    Faults faults = {0};
    Fault fault = {0};
    CHECK_I64(apply(&faults, "{\"kind\":\"slow\",\"f\":0.5,\"after\":1,\"for\":2}", 0, &fault),
              ERR_OK);
    CHECK(!faults_active(&faults, FAULT_SLOW, 999999));
    CHECK(faults_active(&faults, FAULT_SLOW, 1000000) != NULL);
    CHECK_NEAR(faults_active(&faults, FAULT_SLOW, 2999999)->number, 0.5, 0);
    CHECK(!faults_active(&faults, FAULT_SLOW, 3000000));
    CHECK_I64(faults_next_change_us(&faults, 0), 1000000);
    CHECK_I64(faults_next_change_us(&faults, 1500000), 3000000);
    CHECK_I64(faults_next_change_us(&faults, 4000000), 0);
    CHECK_I64(apply(&faults, "{\"kind\":\"update\",\"mode\":400}", 0, &fault), ERR_OK);
    CHECK_STR(faults_active(&faults, FAULT_UPDATE, 1)->text, "400");
    CHECK_I64(apply(&faults, "{\"kind\":\"clear\"}", 0, &fault), ERR_OK);
    CHECK(faults_active(&faults, FAULT_UPDATE, 1) == NULL);
    CHECK_I64(apply(&faults, "{\"kind\":\"melt\"}", 0, &fault), ERR_ARG);
    CHECK(strstr(fault.sentence, "melt") && strstr(fault.hint, "freeze_all"));
    CHECK_I64(apply(&faults, "{\"kind\":\"slow\"}", 0, &fault), ERR_ARG);
    CHECK(strstr(fault.sentence, "\"f\"") != NULL);
    CHECK_I64(apply(&faults, "{\"kind\":\"nan\",\"p\":2}", 0, &fault), ERR_ARG);
    CHECK_I64(apply(&faults, "{\"kind\":\"freeze\",\"after\":-1}", 0, &fault), ERR_ARG);
}

static void stop_strings_across_tokens(void)
{
    char one[] = "END";
    char two[] = "##";
    char *stops[] = {one, two};
    int which = -1;
    size_t at = 0;
    CHECK(!engine_text_find_stop(STR("abcEN"), 3, stops, 2, &which, &at));
    CHECK(engine_text_find_stop(STR("abcEND"), 5, stops, 2, &which, &at));
    CHECK(which == 0 && at == 3);
    CHECK(engine_text_find_stop(STR("a## END"), 0, stops, 2, &which, &at));
    CHECK(which == 1 && at == 1); /* the first to end wins */
    CHECK(!engine_text_find_stop(STR("## abc"), 4, stops, 2, &which, &at));
    CHECK_I64(engine_text_held_back(STR("abcEN"), stops, 2), 2);
    CHECK_I64(engine_text_held_back(STR("abc#"), stops, 2), 1);
    CHECK_I64(engine_text_held_back(STR("abc"), stops, 2), 0);
}

int main(void)
{
    RUN(tokens_tell_the_policy);
    RUN(lengths_have_a_tail);
    RUN(faults_come_and_go);
    RUN(stop_strings_across_tokens);
    return test_end();
}
