/* Generation client: one sample's stream from a Dynamo frontend or straight from an engine.
 *
 * Unary and SSE; incremental and cumulative chunks are told apart by the bytes. What comes is
 * checked as it comes: counts agree, log-probs finite, ids within the vocabulary, exactly one
 * terminal state. No chunk is turned into a JSON tree: one bounded scanner reads it. */
#ifndef ROLLTOP_FLEET_GENERATE_H
#define ROLLTOP_FLEET_GENERATE_H

#include "core/net/http_client.h"

typedef struct Generation Generation;

typedef struct GenerateSpec {
    const char *url;             /* whole route */
    const char *rid;             /* unique per attempt */
    const char *bearer;          /* key of an engine or router; NULL none */
    const int32_t *input_ids;
    size_t input_count;
    int32_t vocab;               /* ids outside [0, vocab) are refused before sending; 0: unknown */
    bool stream;
    double temperature, top_p;
    int64_t top_k, max_new_tokens;
    const char *const *stop;     /* may be NULL; NULL-terminated */
    const int32_t *stop_ids;
    size_t stop_id_count;
    bool skip_special_tokens, ignore_eos;
    int64_t seed;                /* < 0: none */
    int64_t total_ms, silence_ms; /* bounds; 0: defaults */
} GenerateSpec;

typedef enum GenerateEnd {
    GENERATE_STOP, GENERATE_LENGTH, GENERATE_ABORT, /* terminal states told by the peer */
    GENERATE_TRUNCATED,   /* stream ended without a terminal state or without [DONE] */
    GENERATE_ERROR_FRAME, /* error inside the stream */
    GENERATE_BUSY,        /* 429, 503, 529; retry_after_s tells */
    GENERATE_REFUSED,     /* other status: the request itself is wrong (4xx) */
    GENERATE_FAILED,      /* 5xx, reset, refused, malformed */
    GENERATE_SILENT,      /* nothing came for silence_ms */
    GENERATE_INVALID,     /* came whole but breaks a rule: counts, ids, log-probs */
    GENERATE_CANCELLED
} GenerateEnd;
const char *generate_end_name(GenerateEnd end);

typedef struct GenerateSpan {
    int32_t from, to;          /* half-open over output tokens */
    int64_t weight_version;    /* -1 not a number */
} GenerateSpan;

typedef struct GenerateResult { /* valid during the callback */
    GenerateEnd end;
    const int32_t *ids;
    const float *logprobs;
    size_t count;
    const GenerateSpan *spans;
    size_t span_count;
    Str text;
    int64_t prompt_tokens, cached_tokens;
    int64_t first_token_us, total_us; /* from the start */
    double retry_after_s;
    char engine[64];           /* who served it, when the peer says so; "" else */
    char detail[160];
} GenerateResult;

typedef struct GenerateEvents {
    void (*on_progress)(Generation *g, size_t tokens, void *user); /* may be NULL */
    void (*on_done)(Generation *g, const GenerateResult *result, void *user); /* once */
    void *user;
} GenerateEvents;

Err generate_start(HttpClient *client, const GenerateSpec *spec, const GenerateEvents *events,
                   Generation **out, Fault *fault);
void generate_cancel(Generation *g); /* closes the connection; on_done with CANCELLED */
const char *generate_engine(const Generation *g); /* "" until told */

/* Pure core, for tests, fuzzing and the bench: feeds one event's JSON. */
typedef struct GenerateScan GenerateScan;
GenerateScan *generate_scan_new(int32_t vocab, size_t max_tokens);
void generate_scan_free(GenerateScan *scan);
/* ERR_FORMAT: not JSON of the expected shape; ERR_PEER: an error object (its text in fault). */
Err generate_scan_event(GenerateScan *scan, Str json, Fault *fault);
void generate_scan_result(const GenerateScan *scan, GenerateResult *out);

#endif
