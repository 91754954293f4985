/* The frontend as its probes see it: GET /health twice a second, and in between, where wanted, one
 * question of readiness.h. Reads only. Driver level; who owns it ticks it. */
#ifndef ROLLTOP_FLEET_FRONT_H
#define ROLLTOP_FLEET_FRONT_H

#include "core/fleet/probe.h"
#include "core/fleet/readiness.h"
#include "core/net/http_client.h"

typedef struct FrontEvents { /* each look; then what it changed */
    void (*on_look)(const EngineAnswer *answer, Str body, void *user); /* body: only when well */
    void (*on_change)(bool up, const char *reason, void *user);
    void (*on_ready)(Readiness now, const char *words, void *user);
    void *user;
} FrontEvents;

typedef struct Front Front;
/* Borrows `client` and `settings`. Calls under way end with the client; free the client first. */
Front *front_new(HttpClient *client, const char *url, bool ask_ready,
                 const ProbeSettings *settings, const FrontEvents *events);
void front_free(Front *front);
void front_tick(Front *front, int64_t now_us);
bool front_up(const Front *front);
const ReadinessState *front_readiness(const Front *front);

#endif
