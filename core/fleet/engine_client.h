/* Control calls to one SGLang engine, in every dialect of sglang-api §0. Each call is bounded,
 * is answered once, and says success only when the engine really said so: `success:false` under
 * status 200 is ERR_PEER, a reply that cannot be read is ERR_FORMAT. Only this file knows the
 * routes and bodies of control. Nothing that kills an engine can be sent through it: no
 * load_format, no flush under a retract pause, no negative ids. */
#ifndef ROLLTOP_FLEET_ENGINE_CLIENT_H
#define ROLLTOP_FLEET_ENGINE_CLIENT_H

#include "core/fleet/engine_settings.h"
#include "core/net/http_client.h"

typedef enum EngineCallKind {
    ENGINE_PAUSE,         /* mode in `text`: "abort", "retract", "in_place" */
    ENGINE_CONTINUE,
    ENGINE_FLUSH,
    ENGINE_UPDATE_DISK,   /* `text` = directory, `version` = weight version */
    ENGINE_PULL,          /* its directory `text` follows `source` to `version`; slime's route */
    ENGINE_LOOK,          /* does it see the directory `text`? rolltop's own engines say so */
    ENGINE_ABORT,         /* `text` = rid, or NULL for all */
    ENGINE_MODEL_INFO,    /* -> weight_version, model_path */
    ENGINE_SERVER_INFO,   /* -> sglang version, identity, limits */
    ENGINE_CHECKSUM,      /* -> digest text of the engine's weights, where offered */
    ENGINE_SCORE,         /* canary: `ids` -> input log-probs under the held weights */
    ENGINE_HEALTH,        /* generation health, up to 21 s */
    ENGINE_PING,
    ENGINE_LOADS,         /* falls back to /get_load */
    ENGINE_METRICS
} EngineCallKind;

enum { ENGINE_CANARY_MAX = 256 };

typedef struct EngineAnswer {
    Err err;                 /* ERR_OK: done and said so */
    Fault fault;             /* words for err */
    HttpEnd end;
    int status;
    int64_t took_us;
    bool fresh;              /* on a new connection: another process may listen there now */
    char outcome[32];        /* "ok", HttpEnd name, "http NNN", "bad reply", "refused by engine" */
    int64_t weight_version;  /* MODEL_INFO, UPDATE, CHECKSUM (only our engines say it there): as
                                reported; -1 not a number or absent */
    char text[128];          /* CHECKSUM: digest; SERVER_INFO: identity "pid/start"; else message */
    float logprobs[ENGINE_CANARY_MAX]; /* SCORE: of ids[1..]; count in logprob_count */
    int logprob_count;
    bool known_paused;       /* CONTINUE: it says whether it is paused; only our engines can */
    bool paused;             /* SERVER_INFO, CONTINUE: it says so */
    int differ;              /* SERVER_INFO: settings that the engine does not run with … */
    char differs[256];       /* … in words */
    bool known_running, known_tokens; /* LOADS and METRICS: which figures came */
    double running, waiting, used_tokens, token_usage, gen_throughput, cache_hit_rate;
    double gen_tokens_total, retracted_total;
} EngineAnswer;

typedef void (*EngineAnswered)(const EngineAnswer *answer, void *user);

typedef struct EngineCall {
    EngineCallKind kind;
    const char *text;
    const char *source;          /* PULL: directory with the published versions */
    int64_t version;
    const int32_t *ids;
    int id_count;
    int32_t vocab;               /* SCORE: ids outside [0, vocab) are not sent; 0: unknown */
    const EngineSetting *settings; /* SERVER_INFO: to compare with; borrowed until the answer */
    size_t setting_count;
    bool own;           /* rolltop's own engine: FLUSH after a retract pause drops every cached
                           token, SCORE runs while it is paused; others die of that, or wait */
    int64_t timeout_ms; /* 0: the kind's default */
} EngineCall;

/* Which key a call takes. With both keys set at an engine each is refused on the other's routes
 * (sglang-api 2.3): control takes `admin`, or `ordinary` where there is no other. NULL: none. */
const char *engine_call_key(EngineCallKind kind, const char *ordinary, const char *admin);
int64_t engine_call_timeout_ms(EngineCallKind kind); /* its default */
/* base_url "http://127.0.0.1:30000". `bearer` may be NULL. on_done is never called from inside. */
Err engine_call(HttpClient *client, const char *base_url, const char *bearer,
                const EngineCall *call, EngineAnswered on_done, void *user, Fault *fault);
/* Pure halves, for tests on recorded bytes. */
void engine_parse_reply(EngineCallKind kind, HttpEnd end, int status, Str body,
                        EngineAnswer *answer);

#endif
