/* Shared by fleet.c (slots, control calls), fleet_probe.c (probes and the facts of engines). Nobody
 * else looks in. */
#ifndef ROLLTOP_FLEET_FLEET_PRIVATE_H
#define ROLLTOP_FLEET_FLEET_PRIVATE_H

#include "core/fleet/fleet.h"
#include "core/fleet/front.h"
#include "core/fleet/registration.h"

enum { ADDRESS_TABLE = 4 * FLEET_ENGINES_MAX /* a power of two */ };

typedef struct Slot {
    char *name, *address, *base_url;
    bool local, admitted, removed, retract_paused;
    int64_t verified_version, pid;
    int64_t epoch; /* raised when the process is known to have ended: older probes are void */
    ProbeState probe;
} Slot;

typedef struct ControlCtx ControlCtx; /* one control call under way */

struct Fleet {
    uv_loop_t *loop;
    HttpClient *client, *probe_client;
    Store *store;
    FleetConfig config;
    char *bearer, *admin;
    FleetEvents events;
    Registration *registration; /* NULL: the frontend is ours */
    uv_timer_t timer;
    Slot *slots; /* FLEET_ENGINES_MAX of them: what fleet_engine lent stays where it is */
    int count;
    Front *front; /* NULL: there is none */
    ControlCtx *calls;
    int16_t by_address[ADDRESS_TABLE]; /* open addressing; index + 1, 0 empty: asked per token */
    bool freeing;
};

/* fleet_probe.c */
EngineState fleet_slot_state(const Slot *slot);
void fleet_log_state(Fleet *fleet, int index, const char *reason);
/* Carries a verdict out: facts first, then whoever listens. */
void fleet_take_verdict(Fleet *fleet, int index, EngineState before, const ProbeVerdict *verdict);
void fleet_probe_due(Fleet *fleet, int64_t now_us); /* asks every engine's machine what is due */
/* For front_new: what the frontend's looks say; `user` is the Fleet. */
void fleet_front_look(const EngineAnswer *answer, Str body, void *user);

#endif
