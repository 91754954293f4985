/* Private to fleet: the replies of an update, read in one pass over their bytes. An update of a
 * thousand engines brings six thousand of them while nobody generates. What they hold is judged in
 * engine_parse.c. */
#ifndef ROLLTOP_FLEET_ENGINE_SCAN_H
#define ROLLTOP_FLEET_ENGINE_SCAN_H

#include "core/fleet/engine_client.h"

typedef struct EngineSaid { /* strings are raw, as json_raw_string gives them; they point into the
                             * body */
    bool yes, no;           /* success:true or status "ok"; success:false or status "error" */
    bool known_paused, paused;
    Str message, checksum;
    int64_t version;        /* weight_version; -1 absent or no number */
} EngineSaid;

typedef struct EngineScored {
    bool found;       /* input_token_logprobs is there, once … */
    bool odd;         /* … and not of the ids that were sent, or there are too many */
    bool not_finite;  /* a log-prob behind the first is none */
    int count;        /* tokens, with the first, which has no log-prob */
    int64_t version;  /* of meta_info */
} EngineScored;

/* False: the body is not one JSON value. A value of another kind says nothing. */
bool engine_scan_said(Str body, EngineSaid *out);
/* The same; ids may be NULL. logprobs has room for ENGINE_CANARY_MAX: those of the tokens from the
 * second on. */
bool engine_scan_score(Str body, const int32_t *ids, int id_count, float *logprobs,
                       EngineScored *out);

#endif
