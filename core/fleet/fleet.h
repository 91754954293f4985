/* The fleet as the core sees it: engines by slot, their state, control calls, and generation.
 * Driver level (libuv, HTTP); decisions are probe.h's. Engine index = slot, 0 … count-1; the
 * store's engine id is index + 1. Writes probes, states and incarnations to the store itself. */
#ifndef ROLLTOP_FLEET_FLEET_H
#define ROLLTOP_FLEET_FLEET_H

#include "core/fleet/probe.h"
#include "core/fleet/readiness.h"

typedef struct Fleet Fleet;

enum { FLEET_ENGINES_MAX = 1024 };

typedef struct FleetEngine { /* snapshot, valid until the next event-loop turn */
    int index;
    const char *name, *address, *base_url;
    bool local, admitted, draining; /* admitted: may be given generation */
    int64_t incarnation;
    EngineState state;
    int64_t reported_version, verified_version; /* -1 unknown */
    int64_t pid;
    const char *identity; /* of the process that answers; "" not read yet, or it gives none */
} FleetEngine;

typedef struct FleetEvents { /* on the loop thread; any may be NULL */
    void (*on_state)(int engine, EngineState before, EngineState now, const char *reason,
                     void *user);
    void (*on_incarnation)(int engine, int64_t incarnation, void *user); /* fence it */
    void (*on_frontend)(bool up, const char *reason, void *user);
    void (*on_ready)(Readiness now, const char *words, void *user); /* of an up frontend */
    void *user;
} FleetEvents;

typedef struct FleetConfig {
    const char *frontend_url;   /* "http://127.0.0.1:8000" */
    const char *engine_bearer;  /* the engines' ordinary key; may be NULL */
    const char *engine_admin;   /* their admin key, for control; NULL: the ordinary one */
    bool await_listing; /* the frontend is another's: engines register there by themselves */
    bool ask_ready;     /* asks it whether its model is ready; await_listing does so too */
    ProbeSettings probe;
} FleetConfig;

Err fleet_new(uv_loop_t *loop, HttpClient *client, Store *store, const FleetConfig *config,
              const FleetEvents *events, Fleet **out, Fault *fault);
void fleet_free(Fleet *fleet); /* stops probing; calls in flight end with CANCELLED */
/* A new slot, or the same slot again when `name` is known: then its address is replaced. */
Err fleet_add(Fleet *fleet, const char *name, const char *address, bool local, int *index,
              Fault *fault);
void fleet_remove(Fleet *fleet, int index, const char *reason); /* row stays, state GONE */
int fleet_count(const Fleet *fleet);
FleetEngine fleet_engine(const Fleet *fleet, int index);
/* Nothing came from it for --probe-stale-ms (probe_silent). */
bool fleet_silent(const Fleet *fleet, int index, int64_t now_us);
void fleet_set_pid(Fleet *fleet, int index, int64_t pid); /* local parts: known by the core */
/* Local parts: the process ended or was started; seen before any probe could. */
void fleet_note_exit(Fleet *fleet, int index, const char *how);
void fleet_hold(Fleet *fleet, int index, bool paused, bool loading, bool fenced);
void fleet_set_verified(Fleet *fleet, int index, int64_t policy_version); /* and logs it */
void fleet_set_admitted(Fleet *fleet, int index, bool admitted);
bool fleet_frontend_up(const Fleet *fleet);
const ReadinessState *fleet_frontend_ready(const Fleet *fleet); /* UNKNOWN while it is not up */
/* False while an engine of another's frontend is not on its list: it must not get an update yet
 * (see registration.h). Always true where the frontend is ours or keeps no list. */
bool fleet_listed(const Fleet *fleet, int index);
/* Tokens of this engine arrived on a generation stream (generate_engine names its address): the
 * best evidence of life there is. O(1); fleet_find gives -1 for an address nobody has. */
void fleet_note_tokens(Fleet *fleet, int index);
int fleet_find(const Fleet *fleet, const char *address);
/* Every stream of the run moved in the last second, and a frontend of others does not say where
 * each runs: evidence for all that had requests. O(engines), meant for once a second. */
void fleet_note_flows(Fleet *fleet);

/* FLUSH is refused (ERR_STATE) while the last pause of the engine was a retract, unless the engine
 * is rolltop's own: its KV is in use.
 * A control call; a reply from another incarnation than the one it was sent to is dropped and
 * answered as ERR_STATE. */
Err fleet_call(Fleet *fleet, int index, const EngineCall *call, EngineAnswered on_done, void *user,
               Fault *fault);

#endif
