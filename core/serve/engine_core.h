/* The model side of one engine: takes commands, steps the scheduler and the model (or the
 * synthetic rule), gives events. No thread and no clock of its own: a real engine drives it from
 * its model thread, synthetic engines from timers of the HTTP loop. */
#ifndef ROLLTOP_SERVE_ENGINE_CORE_H
#define ROLLTOP_SERVE_ENGINE_CORE_H

#include "core/model/infer.h"
#include "core/model/tokenizer.h"
#include "core/serve/engine_request.h"

enum { CORE_NAME_MAX = 256 };

typedef enum PauseMode { PAUSE_NONE, PAUSE_ABORT, PAUSE_RETRACT, PAUSE_IN_PLACE } PauseMode;

typedef enum CommandKind {
    CORE_SUBMIT,      /* request */
    CORE_ABORT,       /* id; 0: all */
    CORE_PAUSE,       /* mode; acknowledged when nothing of the old kind runs any more */
    CORE_CONTINUE,
    CORE_FLUSH,       /* acknowledged ok, or not ok while busy */
    CORE_SWAP,        /* weights or digest, version; waits for the running ones when not paused;
                         what a pause keeps is computed anew by the new weights, token by token */
    CORE_SET_VERSION, /* version only */
    CORE_PING
} CommandKind;

typedef struct CoreCommand {
    CommandKind kind;
    EngineRequest *request;
    uint64_t id;
    PauseMode mode;
    Weights *weights; /* SWAP: the core takes this reference */
    char *text;       /* SWAP: synthetic digest; malloc'ed, taken */
    char *version;    /* malloc'ed, taken; NULL: unchanged */
    bool flush;       /* SWAP: refuse unless idle, then drop the prefixes */
    bool garble;      /* SWAP: fault: the weights end up neither old nor new */
    void *ticket;     /* comes back with the acknowledgement; NULL: none wanted */
} CoreCommand;

typedef enum CoreEventKind {
    CORE_TOKENS,   /* new outputs of a streaming request */
    CORE_FINISHED, /* the request comes back; its remaining outputs are in it */
    CORE_ACK       /* of a command with a ticket */
} CoreEventKind;

typedef struct CoreEvent {
    CoreEventKind kind;
    EngineRequest *request; /* FINISHED: now the receiver's */
    void *user;             /* of the request, or the ticket */
    const char *version;    /* TOKENS: of the newest one */
    size_t token_from, token_count, alt_from;
    int cached, retractions;
    bool ok;
    char text[160];         /* ACK: why not */
} CoreEvent;

typedef struct CoreToken {
    int32_t id;
    float logprob;
} CoreToken;

typedef struct CoreOut { /* events and what they point to; cleared by the receiver */
    CoreEvent *events;
    CoreToken *tokens;
    TokenAlt *alts;
    size_t event_count, event_capacity, token_count, token_capacity, alt_count, alt_capacity;
} CoreOut;
void core_out_free(CoreOut *out);
void core_out_clear(CoreOut *out);
/* Moves everything from `from` behind what `to` holds. */
void core_out_append(CoreOut *to, CoreOut *from);

typedef struct CoreStats {
    int running, waiting, gated;
    int used_tokens, evictable_tokens, total_tokens;
    PauseMode pause;
    int64_t decode_tokens, prefill_tokens, cached_tokens; /* counters */
    int64_t retracted_requests, retracted_input, retracted_output, steps;
    double gen_throughput; /* tokens/s over the last window of about a second */
    int64_t updated_us;
} CoreStats;

typedef struct CoreConfig {
    SchedConfig sched;
    int vocab, context_length, threads;
    int eos[MODEL_EOS_MAX], eos_count;
    bool synthetic;
    int synthetic_vocab;
    uint64_t seed;
    const Tokenizer *tokenizer; /* borrowed; may be NULL: no stop strings then */
} CoreConfig;

typedef struct CoreFaults { /* what faults do to the model side; copied in before a step */
    bool freeze;
    int kv_cap; /* tokens; < 0: none */
} CoreFaults;

typedef struct Core Core;
/* Real: takes a reference on `weights`. Synthetic: `digest`. */
Err core_new(const CoreConfig *config, Weights *weights, const char *digest, const char *version,
             Core **out, Fault *fault);
void core_free(Core *core); /* requests that are still inside are freed too */
void core_faults(Core *core, const CoreFaults *faults);
void core_command(Core *core, CoreCommand *command, int64_t now_us);
/* One step of the scheduler. False: there was nothing to do. */
bool core_step(Core *core, int64_t now_us);
/* Gives out what streaming requests have gathered; call after a step or a burst of steps. */
void core_emit_tokens(Core *core);
CoreOut *core_out(Core *core);
void core_stats(const Core *core, CoreStats *out);

#endif
