/* Asks engines what they hold (core/policy/holds.h judges it): reported version, checksum and the
 * log-probs of a canary, all engines at once. Nothing is paused, loaded or flushed; the canary is
 * one token of ordinary generation. One thread: the loop's. */
#ifndef ROLLTOP_LOOP_HOLDS_ASK_H
#define ROLLTOP_LOOP_HOLDS_ASK_H

#include "core/base/json.h"
#include "core/fleet/engine_client.h"
#include "core/policy/holds.h"

typedef struct HoldsAsk HoldsAsk;

typedef struct HoldsEngine {
    char name[64], address[256], state[32];
    bool serves;
} HoldsEngine;

/* Sends one call; done is called later, once. */
typedef Err (*HoldsSend)(void *user, int engine, const EngineCall *call, EngineAnswered done,
                         void *done_user, Fault *fault);

typedef struct HoldsConfig {
    const int32_t *canary; /* borrowed until on_done; fewer than two ids: no canary */
    int canary_count;
    int32_t vocab;         /* 0: not known */
    HoldsSend send;
    void (*on_done)(void *user); /* never from inside holds_ask */
    void *user;
} HoldsConfig;

/* `engines` is copied. Those that do not serve are not asked. */
HoldsAsk *holds_ask_new(const HoldsConfig *config, const HoldsEngine *engines, int count);
/* With answers outstanding only when nothing will call back any more. */
void holds_ask_free(HoldsAsk *ask);
/* False: no engine serves, or none could be asked; on_done is not called then. */
bool holds_ask_start(HoldsAsk *ask);
/* Judges the answers and writes one JSON object: ok, message, version, digest, engines. */
void holds_ask_report(HoldsAsk *ask, const HoldExpect *expect, Text *out);

#endif
