/* Replies of an engine as bytes, for the benches: what SGLang prints, number for number. */
#ifndef ROLLTOP_TESTS_BENCH_REPLY_BYTES_H
#define ROLLTOP_TESTS_BENCH_REPLY_BYTES_H

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { REPLY_VOCAB = 151936 };

/* The shortest decimal that gives the same double, as Python and orjson print it. */
static inline void add_number(Text *out, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    text_add_c(out, text);
}

/* Log-probs as a model gives them: many next to 0, few below -10, each a float in a double. */
static inline double draw_logprob(Rng *rng)
{
    double u = rng_unit(rng) + 1e-9;
    return (double)(float)-exp(-4.0 + 6.0 * u);
}

/* One whole reply of SGLang 0.5.17 with log-probs: about 44 bytes a token. */
static inline void make_reply(Text *out, int tokens, const char *rid, int prompt_tokens)
{
    Rng rng;
    int32_t *ids = xcalloc((size_t)tokens, sizeof *ids);
    rng_seed(&rng, 8192);
    text_add_c(out, "{\"text\":\"");
    for (int i = 0; i < tokens; i++) {
        ids[i] = (int32_t)(rng_u64(&rng) % REPLY_VOCAB);
        text_add_c(out, i % 17 ? " tok" : "\\n");
    }
    text_add_c(out, "\",\"output_ids\":[");
    for (int i = 0; i < tokens; i++) {
        text_addf(out, i ? ",%d" : "%d", ids[i]);
    }
    text_addf(out, "],\"meta_info\":{\"id\":\"%s\",\"finish_reason\":{\"type\":\"length\","
              "\"length\":%d},\"prompt_tokens\":%d,\"weight_version\":\"11\",\"num_retractions\":0,"
              "\"input_token_logprobs\":[],\"output_token_logprobs\":[", rid, tokens,
              prompt_tokens);
    for (int i = 0; i < tokens; i++) {
        text_add_c(out, i ? ",[" : "[");
        add_number(out, draw_logprob(&rng));
        text_addf(out, ",%d,null]", ids[i]);
    }
    text_addf(out, "],\"reasoning_tokens\":0,\"completion_tokens\":%d,\"cached_tokens\":0,"
              "\"cached_tokens_details\":null,\"dp_rank\":null,\"e2e_latency\":1.25}}", tokens);
    free(ids);
}

/* One event of an incremental stream, token `at` of `tokens` (from 1), with its log-prob if asked
 * for: what SGLang 0.5.17 sends behind Dynamo, about 500 bytes. */
static inline void make_event(Text *out, int at, int tokens, const char *rid, int prompt_tokens,
                              bool logprob)
{
    text_addf(out, "data: {\"text\":\" is\",\"output_ids\":[%d],\"meta_info\":{\"id\":\"%s\","
              "\"finish_reason\":", 374 + at, rid);
    if (at == tokens) {
        text_addf(out, "{\"type\":\"length\",\"length\":%d}", tokens);
    } else {
        text_add_c(out, "null");
    }
    text_addf(out, ",\"prompt_tokens\":%d,\"weight_version\":\"11\",\"num_retractions\":0,",
              prompt_tokens);
    if (logprob) {
        text_addf(out, "\"forward_entry_time\":1795979942.9034376,\"prefill_finished_time\":"
                  "1795979942.9101748,\"queue_time\":0.0003581047058105469,"
                  "\"input_token_logprobs\":[],\"output_token_logprobs\":"
                  "[[-%d.%09d039062,%d,null]],\"output_token_logprobs_length\":%d,",
                  at % 17, at * 7919 % 1000000000, 374 + at, at);
    }
    text_addf(out, "\"reasoning_tokens\":0,\"completion_tokens\":%d,\"cached_tokens\":0,"
              "\"cached_tokens_details\":null,\"dp_rank\":null}}\n\n", at);
}

#endif
