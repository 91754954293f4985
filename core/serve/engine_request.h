/* One sample to generate, from the HTTP side to the model side and back. The HTTP thread makes it
 * and gives it away with CORE_SUBMIT; the core owns it until the CORE_FINISHED event hands it
 * back. In between the HTTP side may only read the two atomics. */
#ifndef ROLLTOP_SERVE_ENGINE_REQUEST_H
#define ROLLTOP_SERVE_ENGINE_REQUEST_H

#include "core/base/str.h"
#include "core/model/sampler.h"
#include "core/serve/engine_text.h"
#include "core/serve/engine_sched.h"

enum { REQUEST_STOPS_MAX = 64, REQUEST_TOP_MAX = 128 };

typedef struct TokenAlt {
    int32_t id;
    float logprob;
} TokenAlt;

typedef enum RequestEnd {
    REQUEST_RUNS,
    REQUEST_STOP_ID,      /* matched_id */
    REQUEST_STOP_TEXT,    /* matched_text, index into stops */
    REQUEST_LENGTH,
    REQUEST_ABORTED,      /* while it ran */
    REQUEST_ABORTED_QUEUED,
    REQUEST_FAILED        /* error says why; status_code 500 */
} RequestEnd;

typedef enum RequestStage { STAGE_GATE, STAGE_WAITING, STAGE_RUNNING, STAGE_ENDED } RequestStage;

typedef struct VersionSpan { /* half-open over output tokens */
    const char *version;     /* interned by the core, lives as long as the engine */
    int32_t from, to;
} VersionSpan;

typedef struct EngineRequest {
    SchedSeq seq; /* first: the scheduler's handle is the request's address */
    uint64_t id;  /* unique in the engine's life */
    void *user;   /* the HTTP side's sample; the core only carries it */
    /* what is asked */
    int32_t *tokens; /* prompt, then outputs; capacity grows */
    int capacity, max_new;
    SamplingParams params; /* its pointers lead to the arrays below */
    int32_t *stop_ids;
    size_t stop_id_count;
    int32_t *bias_ids;
    float *bias;
    char *stops[REQUEST_STOPS_MAX];
    int stop_count;
    bool ignore_eos, want_logprobs, stream;
    int logprob_start; /* -1: output only */
    int top_count;     /* alternatives a position */
    int stream_interval;
    uint64_t seed;
    bool has_seed, is_health;
    bool while_paused; /* runs also in a pause: at most one output, for canaries */
    /* faults of this sample */
    bool fault_empty, fault_nostop, fault_nan, fault_garble;
    int fault_length; /* > 0: run to this many tokens */
    /* what came out; core's until it is finished */
    Rng rng;
    PenaltyCounts counts;
    bool uses_counts;
    float *logprobs; /* of outputs */
    TokenAlt *alts;  /* top_count an output */
    int output_capacity;
    float *input_logprobs;  /* of prompt[logprob_start + 1 …] */
    TokenAlt *input_alts;
    int input_logprob_count;
    VersionSpan *spans;
    int span_count;
    RequestEnd end;
    int32_t matched_id;
    int matched_text;
    char error[160];
    EngineText decoder;    /* of the core, for stop strings */
    Text decoded;
    bool skip_special;
    int sent;              /* outputs already given out in CORE_TOKENS */
    bool in_dirty;
    uint64_t synthetic_key;
    int64_t synthetic_epoch; /* of the key; -1 none */
    int64_t first_token_us, finished_us;
    _Atomic int outputs;   /* both for the list of requests in flight */
    _Atomic int stage;     /* RequestStage */
} EngineRequest;

/* Takes `tokens` (malloc'ed, `prompt` of them). */
EngineRequest *request_new(int32_t *tokens, int prompt);
void request_free(EngineRequest *request);
/* Room for one more output. */
void request_reserve(EngineRequest *request);
int request_output_count(const EngineRequest *request);
const int32_t *request_outputs(const EngineRequest *request);

#endif
