#include "tests/fuzz/fuzz.h"

#include "core/fleet/generate.h"
#include "core/fleet/json_cursor.h"
#include "tests/fleet/event_pair.h"

#include <math.h>
#include <stdlib.h>

#define LP "\"output_token_logprobs\":"
const char *const fuzz_seeds[] = {
    "{\"text\":\"a\",\"output_ids\":[5],\"meta_info\":{\"id\":\"r\",\"finish_reason\":null,"
    "\"prompt_tokens\":2,\"completion_tokens\":1,\"weight_version\":\"3\"," LP "[[-0.5,5,null]]}}\n"
    "{\"text\":\"ab\",\"output_ids\":[5,6],\"meta_info\":{\"finish_reason\":{\"type\":\"stop\","
    "\"matched\":6},\"completion_tokens\":2," LP "[[-0.5,5,null],[-1e-3,6,\"b\"]],"
    "\"weight_versions\":[{\"version\":\"3\",\"start\":0,\"end\":2}]}}",
    "{\"output_ids\":[5],\"meta_info\":{\"finish_reason\":null,\"completion_tokens\":1}}\n"
    "{\"output_ids\":[6],\"meta_info\":{\"finish_reason\":{\"type\":\"length\"},"
    "\"completion_tokens\":2}}",
    "{\"text\":\"a\",\"output_ids\":[5],\"meta_info\":{\"id\":\"r\",\"finish_reason\":null,"
    "\"prompt_tokens\":2,\"weight_version\":\"3\",\"num_retractions\":0,"
    "\"forward_entry_time\":17.25,\"prefill_finished_time\":17.5,\"queue_time\":3e-4,"
    "\"input_token_logprobs\":[]," LP
    "[[-0.5,5,null]],\"output_token_logprobs_length\":1,\"reasoning_tokens\":0,"
    "\"completion_tokens\":1,\"cached_tokens\":0,\"cached_tokens_details\":null,"
    "\"dp_rank\":null}}",
    "{\"error\":{\"message\":\"Internal server error\",\"code\":500}}",
    "{\"output_ids\":[],\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"message\":\"x\","
    "\"status_code\":503},\"completion_tokens\":0}}", NULL};

enum { VOCAB = 100, MOST = 8 };

/* Each line is one event, and comes to the same with its members taken whole or one by one. What
 * counts as whole keeps every promise of generate.h. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    GenerateScan *scan = generate_scan_new(VOCAB, MOST);
    Str rest = {(const char *)data, size};
    Str line;
    Err err = ERR_OK;
    Text spaced;
    text_init(&spaced, 3 * size + 1);
    while (!err && str_split(&rest, '\n', &line)) {
        err = generate_scan_event(scan, line, NULL);
        JsonCursor c = json_cursor(line);
        if (!err && !(json_skip(&c) && json_at_end(&c))) {
            abort(); /* an event was taken that is no JSON */
        }
        bool good = false;
        if (!event_reads_the_same(line, MOST, &spaced, &good)) {
            abort();
        }
    }
    text_free(&spaced);
    GenerateResult result;
    generate_scan_result(scan, &result);
    if (result.end == GENERATE_STOP || result.end == GENERATE_LENGTH) {
        int32_t at = 0;
        for (size_t i = 0; i < result.span_count; i++) {
            if (result.spans[i].from != at || result.spans[i].to <= at) {
                abort();
            }
            at = result.spans[i].to;
        }
        if (result.count > MOST || (size_t)at != result.count) {
            abort();
        }
        for (size_t i = 0; i < result.count; i++) {
            if (result.ids[i] < 0 || result.ids[i] >= VOCAB || !isfinite(result.logprobs[i])) {
                abort();
            }
        }
    }
    generate_scan_free(scan);
    return 0;
}
