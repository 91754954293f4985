/* Private to fleet: one event of a generation, or one whole reply, read out of its bytes. What it
 * says of the sample is for generate_scan.c to judge.
 *
 * An event lives for one call, on the stack: with thousands of streams whatever a stream keeps
 * comes from memory each time, and this is the greater part of what reading writes. Lists of a
 * few tokens need no allocation. */
#ifndef ROLLTOP_FLEET_GENERATE_EVENT_H
#define ROLLTOP_FLEET_GENERATE_EVENT_H

#include "core/fleet/generate.h"
#include "core/fleet/generate_lists.h"

enum { EVENT_TOKENS = 16, EVENT_SPANS_MAX = 4096, EVENT_TOKENS_MAX = 1 << 24 };

typedef enum EventFinish {
    FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ABORT, FINISH_OTHER
} EventFinish;

typedef struct ScanEvent { /* strings lie in its bytes */
    TokenList ids;         /* only .ids of it */
    TokenList triples;
    bool has_ids, has_triples, null_logprob, has_meta, has_error;
    Str text, rid, message; /* raw; .p NULL: none */
    EventFinish finish;
    int64_t completion, logprob_length, prompt_tokens, cached_tokens; /* -1: not said */
    int64_t code, index, weight_version;
    GenerateSpan *spans;   /* weight_versions, where the engine sends them */
    size_t span_count, span_capacity;
    bool bad_span, many_spans; /* the first of: bounds that cannot be, too many */
    int64_t bad_start, bad_end;
    int32_t few_ids[2][EVENT_TOKENS];
    float few_logprobs[2][EVENT_TOKENS];
} ScanEvent;

/* Reads `json`; of its lists at most `most` entries are kept, so one more than is allowed shows
 * that a bound was passed. False: not JSON of that shape, *error says why; the event then holds
 * what came before. To be freed either way. */
bool scan_event_read(ScanEvent *event, Str json, size_t most, const char **error);
void scan_event_free(ScanEvent *event);

/* False: the list is full. */
bool generate_span_push(GenerateSpan **spans, size_t *count, size_t *capacity, GenerateSpan span);

#endif
