/* Replies of control routes, Prometheus text and the frontend's list: whatever comes, an answer is
 * either said to be good and then holds what it promises, or it has an error with words. */
#include "tests/fuzz/recorded.h"

#include "core/fleet/engine_client.h"
#include "core/fleet/registration.h"

#include <math.h>

const char *const fuzz_seeds[] = {
    "a{\"success\":true,\"message\":\"Succeeded. Weight version updated to 7.\"}",
    "f{\"model_path\":\"/m\",\"weight_version\":\"12\"}",
    "g{\"version\":\"0.5\",\"pid\":7,\"start_time_us\":9,\"internal_states\":[]}",
    "i{\"meta_info\":{\"input_token_logprobs\":[[null,5,null],[-1.5,6,null]]}}",
    "l{\"loads\":[{\"num_running_reqs\":1,\"num_waiting_reqs\":0,\"num_used_tokens\":3}]}",
    "msglang:num_running_reqs{tp_rank=\"0\"} 3.0\nsglang:gen_throughput 1e3\n"
    "sglang:generation_tokens_total{x=\"y\"} 1e300\nsglang:generation_tokens_total 1.7e308\n"
    "sglang:realtime_tokens_total{mode=\"decode\"} NaN\n",
    "{\"instances\":[{\"endpoint\":\"generate\",\"instance_id\":18446744073709551615}]}", NULL};

bool fuzz_recorded(size_t position, const uint8_t **data, size_t *size)
{
    static const char *const words[] = {"get_", "pause_", "flush_", "disk_", "wc_", "auth_",
                                        "metrics", "health", "gen_logprob", "err_", NULL};
    return recorded_next(words, false, position, data, size);
}

static void check_answer(EngineCallKind kind, const EngineAnswer *a)
{
    const double figures[] = {a->running, a->waiting, a->used_tokens, a->token_usage,
                              a->gen_throughput, a->cache_hit_rate, a->gen_tokens_total,
                              a->retracted_total};
    const bool ok = strcmp(a->outcome, "ok") == 0;
    bool good = ok == (a->err == ERR_OK) && (ok || a->fault.sentence[0] != '\0')
                && a->weight_version >= -1 && a->logprob_count >= 0
                && a->logprob_count < ENGINE_CANARY_MAX;
    for (int i = 0; good && ok && i < a->logprob_count; i++) {
        good = isfinite(a->logprobs[i]) != 0;
    }
    for (size_t i = 0; good && ok && i < sizeof figures / sizeof *figures; i++) {
        good = isfinite(figures[i]) != 0;
    }
    if (!good || (ok && kind == ENGINE_SCORE && a->logprob_count == 0)
        || memchr(a->text, '\0', sizeof a->text) == NULL) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static EngineAnswer answer;
    Str body = {(const char *)data, size};
    Registration *registration = registration_new();
    registration_came(registration, 0, "127.0.0.1:30000", 0);
    (void)registration_health(registration, body, 1);
    (void)registration_health(registration, body, INT64_C(60000000));
    if (registration_count(registration) > REGISTRATION_IDS_MAX) {
        abort();
    }
    registration_free(registration);
    if (size > 0 && data[0] >= 'a' && data[0] <= 'z') { /* seeds of our own name their kind */
        EngineCallKind kind = (EngineCallKind)((data[0] - 'a') % (ENGINE_METRICS + 1));
        engine_parse_reply(kind, HTTP_END_OK, 200, str_slice(body, 1, body.n), &answer);
        check_answer(kind, &answer);
    }
    for (int kind = 0; kind <= ENGINE_METRICS; kind++) {
        engine_parse_reply((EngineCallKind)kind, HTTP_END_OK, 200, body, &answer);
        check_answer((EngineCallKind)kind, &answer);
        engine_parse_reply((EngineCallKind)kind, HTTP_END_OK, size % 2 ? 503 : 400, body, &answer);
        check_answer((EngineCallKind)kind, &answer);
    }
    return 0;
}
