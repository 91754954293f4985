/* Private to fleet: route, body and bounds of each control call, as data. */
#ifndef ROLLTOP_FLEET_ENGINE_ROUTES_H
#define ROLLTOP_FLEET_ENGINE_ROUTES_H

#include "core/fleet/engine_client.h"

typedef struct EngineRoute {
    const char *method, *path;
    const char *fallback;   /* older spelling, tried on 404 (LOADS: also on 500); NULL none */
    int64_t timeout_ms;     /* default */
    size_t max_body;
    bool idempotent;
    bool admin;             /* a control route: takes the admin key */
} EngineRoute;

const EngineRoute *engine_route(EngineCallKind kind);
/* ERR_ARG for what must never be sent. Leaves *body empty where the route takes none. */
Err engine_write_body(const EngineCall *call, Text *body, Fault *fault);
/* engine_parse_reply, with what only the caller knows: the words for "where" in the fault, and
 * for SCORE the ids that were sent (may be NULL). */
void engine_parse(const EngineCall *call, const char *where, HttpEnd end, int status, Str body,
                  EngineAnswer *answer);
void engine_parse_metrics(Str body, EngineAnswer *answer);

#endif
