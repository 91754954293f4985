/* The requests of the conformance suite. None of them ends a real engine or leaves it changed. */
#ifndef ROLLTOP_TESTS_PEERS_CASES_H
#define ROLLTOP_TESTS_PEERS_CASES_H

typedef enum CaseAt { AT_ENGINE, AT_FRONTEND } CaseAt;
typedef enum CaseReads { READS_JSON, READS_STREAM, READS_METRICS, READS_STATUS } CaseReads;

typedef struct Case {
    CaseAt at;
    const char *name, *method, *path;
    const char *body;         /* NULL none; "@disk": an update from the model's own directory */
    CaseReads reads;
    const char *content_type; /* NULL: application/json */
} Case;

#define IDS "\"input_ids\":[11,12,13,14]"
#define FOUR "\"sampling_params\":{\"max_new_tokens\":4,\"temperature\":0,\"ignore_eos\":true}"
#define E AT_ENGINE
#define F AT_FRONTEND

static const Case cases[] = {
    {E, "ping", "GET", "/ping", NULL, READS_STATUS, NULL},
    {E, "health", "GET", "/health", NULL, READS_STATUS, NULL},
    {E, "health-generate", "GET", "/health_generate", NULL, READS_STATUS, NULL},
    {E, "model-info", "GET", "/model_info", NULL, READS_JSON, NULL},
    {E, "get-model-info", "GET", "/get_model_info", NULL, READS_JSON, NULL},
    {E, "server-info", "GET", "/server_info", NULL, READS_JSON, NULL},
    {E, "loads", "GET", "/v1/loads?include=core", NULL, READS_JSON, NULL},
    {E, "get-load", "GET", "/get_load", NULL, READS_JSON, NULL},
    {E, "metrics", "GET", "/metrics", NULL, READS_METRICS, NULL},
    {E, "no-such-route", "GET", "/nobody", NULL, READS_JSON, NULL},
    {E, "wrong-method", "GET", "/abort_request", NULL, READS_JSON, NULL},
    {E, "generate", "POST", "/generate", "{" IDS "," FOUR "}", READS_JSON, NULL},
    {E, "generate-put", "PUT", "/generate", "{" IDS "," FOUR "}", READS_JSON, NULL},
    {E, "generate-logprob", "POST", "/generate", "{" IDS "," FOUR ",\"return_logprob\":true}",
     READS_JSON, NULL},
    {E, "generate-input-logprob", "POST", "/generate",
     "{" IDS "," FOUR ",\"return_logprob\":true,\"logprob_start_len\":0}", READS_JSON, NULL},
    {E, "generate-top-logprobs", "POST", "/generate",
     "{" IDS "," FOUR ",\"return_logprob\":true,\"top_logprobs_num\":2}", READS_JSON, NULL},
    {E, "generate-batch", "POST", "/generate",
     "{\"input_ids\":[[11,12],[13]]," FOUR "}", READS_JSON, NULL},
    {E, "generate-batch-of-one", "POST", "/generate", "{\"input_ids\":[[11,12]]," FOUR "}",
     READS_JSON, NULL},
    {E, "generate-n", "POST", "/generate",
     "{" IDS ",\"sampling_params\":{\"max_new_tokens\":2,\"n\":2}}", READS_JSON, NULL},
    {E, "generate-no-new-tokens", "POST", "/generate",
     "{" IDS ",\"sampling_params\":{\"max_new_tokens\":0}}", READS_JSON, NULL},
    {E, "generate-stream", "POST", "/generate", "{" IDS "," FOUR ",\"stream\":true}",
     READS_STREAM, NULL},
    {E, "generate-stream-logprob", "POST", "/generate",
     "{" IDS "," FOUR ",\"stream\":true,\"return_logprob\":true}", READS_STREAM, NULL},
    {E, "generate-other-type", "POST", "/generate", "{" IDS "," FOUR "}", READS_JSON,
     "text/plain"},
    {E, "bad-json", "POST", "/generate", "{\"input_ids\":[", READS_JSON, NULL},
    {E, "bad-nothing", "POST", "/generate", "{}", READS_JSON, NULL},
    {E, "bad-empty-ids", "POST", "/generate", "{\"input_ids\":[]}", READS_JSON, NULL},
    {E, "bad-both", "POST", "/generate", "{\"text\":\"a\"," IDS "}", READS_JSON, NULL},
    {E, "bad-temperature", "POST", "/generate",
     "{" IDS ",\"sampling_params\":{\"temperature\":-1}}", READS_JSON, NULL},
    {E, "bad-top-p", "POST", "/generate", "{" IDS ",\"sampling_params\":{\"top_p\":2}}",
     READS_JSON, NULL},
    {E, "bad-top-k", "POST", "/generate", "{" IDS ",\"sampling_params\":{\"top_k\":-3}}",
     READS_JSON, NULL},
    {E, "bad-max-new", "POST", "/generate",
     "{" IDS ",\"sampling_params\":{\"max_new_tokens\":-1}}", READS_JSON, NULL},
    {E, "bad-too-long", "POST", "/generate",
     "{" IDS ",\"sampling_params\":{\"max_new_tokens\":1000000}}", READS_JSON, NULL},
    {E, "bad-stream", "POST", "/generate",
     "{" IDS ",\"sampling_params\":{\"top_p\":2},\"stream\":true}", READS_STREAM, NULL},
    {E, "unknown-member", "POST", "/generate", "{" IDS "," FOUR ",\"nobody\":1}", READS_JSON,
     NULL},
    {E, "abort-nobody", "POST", "/abort_request", "{\"rid\":\"nobody\"}", READS_JSON, NULL},
    {E, "abort-all", "POST", "/abort_request", "{\"abort_all\":true}", READS_JSON, NULL},
    {E, "flush", "POST", "/flush_cache", "", READS_STATUS, NULL},
    {E, "flush-get", "GET", "/flush_cache", NULL, READS_STATUS, NULL},
    {E, "pause-bogus", "POST", "/pause_generation", "{\"mode\":\"bogus\"}", READS_JSON, NULL},
    {E, "pause-in-place", "POST", "/pause_generation", "{\"mode\":\"in_place\"}", READS_JSON,
     NULL},
    {E, "continue-in-place", "POST", "/continue_generation", "{}", READS_JSON, NULL},
    {E, "pause-abort", "POST", "/pause_generation", "{}", READS_JSON, NULL},
    {E, "continue", "POST", "/continue_generation", "{}", READS_JSON, NULL},
    {E, "update-nowhere", "POST", "/update_weights_from_disk",
     "{\"model_path\":\"/nowhere/at/all\",\"flush_cache\":false}", READS_JSON, NULL},
    {E, "update-no-path", "POST", "/update_weights_from_disk", "{}", READS_JSON, NULL},
    {E, "update", "POST", "/update_weights_from_disk", "@disk", READS_JSON, NULL},
    {E, "checksum", "POST", "/weights_checker", "{\"action\":\"checksum\"}", READS_JSON, NULL},
    {E, "checker-bogus", "POST", "/weights_checker", "{\"action\":\"bogus\"}", READS_JSON, NULL},
    {E, "update-unknown-group", "POST", "/destroy_weights_update_group",
     "{\"group_name\":\"nobody\"}", READS_JSON, NULL},

    {F, "live", "GET", "/live", NULL, READS_JSON, NULL},
    {F, "health", "GET", "/health", NULL, READS_JSON, NULL},
    {F, "models", "GET", "/v1/models", NULL, READS_JSON, NULL},
    {F, "model-ready", "GET", "/v1/models/policy/ready", NULL, READS_JSON, NULL},
    {F, "model-unknown-ready", "GET", "/v1/models/nobody/ready", NULL, READS_JSON, NULL},
    {F, "no-such-route", "GET", "/nobody", NULL, READS_JSON, NULL},
    {F, "wrong-method", "GET", "/generate", NULL, READS_JSON, NULL},
    {F, "generate", "POST", "/generate", "{" IDS "," FOUR ",\"stream\":true}", READS_STREAM,
     NULL},
    {F, "generate-put", "PUT", "/generate", "{" IDS "," FOUR ",\"stream\":true}", READS_STREAM,
     NULL},
    {F, "generate-logprob", "POST", "/generate",
     "{" IDS "," FOUR ",\"stream\":true,\"return_logprob\":true}", READS_STREAM, NULL},
    {F, "generate-unary", "POST", "/generate", "{" IDS "," FOUR ",\"stream\":false}",
     READS_STREAM, NULL},
    {F, "unknown-member", "POST", "/generate",
     "{" IDS "," FOUR ",\"stream\":true,\"nobody\":1}", READS_STREAM, NULL},
    {F, "bad-json", "POST", "/generate", "{\"input_ids\":[", READS_JSON, NULL},
    {F, "bad-nothing", "POST", "/generate", "{}", READS_JSON, NULL},
    {F, "bad-type", "POST", "/generate", "{" IDS ",\"stream\":true}", READS_JSON, "text/plain"},
    {F, "bad-empty-ids", "POST", "/generate", "{\"input_ids\":[],\"stream\":true}", READS_JSON,
     NULL},
    {F, "bad-nested-ids", "POST", "/generate", "{\"input_ids\":[[1,2]],\"stream\":true}",
     READS_JSON, NULL},
    {F, "bad-text", "POST", "/generate", "{\"text\":\"a\",\"stream\":true}", READS_JSON, NULL},
    {F, "bad-n", "POST", "/generate",
     "{" IDS ",\"stream\":true,\"sampling_params\":{\"n\":2}}", READS_JSON, NULL},
    {F, "bad-top-p", "POST", "/generate",
     "{" IDS ",\"stream\":true,\"sampling_params\":{\"top_p\":2}}", READS_STREAM, NULL},
};
enum { CASES = sizeof cases / sizeof *cases };
#undef E
#undef F

#endif
