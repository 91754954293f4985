/* Flags about the fleet that `run`, `watch` and `verify` share: where engines are found while the
 * program runs, and how they are probed. */
#ifndef ROLLTOP_APP_FLEET_FLAGS_H
#define ROLLTOP_APP_FLEET_FLAGS_H

#include "core/base/flags.h"
#include "core/fleet/probe.h"
#include "core/fleet/sources.h"

enum { FLEET_FLAG_SPECS = 16 };

typedef struct FleetFlags {
    const char *file, *dns, *dns_server;
    int64_t native_port, interval_s, gone_looks;
    bool from_frontend;
    int64_t ping_ms, loads_ms, model_ms, health_ms, metrics_ms, stale_ms, dead_ms, stuck_ms;
    int64_t refused_limit, calm_ms;
} FleetFlags;

void fleet_flags_defaults(FleetFlags *flags);
size_t fleet_flags_specs(FleetFlags *flags, FlagSpec out[FLEET_FLAG_SPECS]);
/* Checks what can be checked before anything starts. `frontend`: there is one of others. */
Err fleet_flags_check(const FleetFlags *flags, bool frontend, Fault *fault);
bool fleet_flags_any_source(const FleetFlags *flags);
SourcesConfig fleet_flags_sources(const FleetFlags *flags);
ProbeSettings fleet_flags_probe(const FleetFlags *flags);

/* Addresses of --rollout-external-engine-addrs, else DYNAMO_ENGINE_ADDRS, checked, without doubles
 * of spelling; the frontend of --rollout-url, else DYNAMO_ROLLOUT_URL. Freed together. */
typedef struct FleetAddresses {
    char (*storage)[DISCOVER_ADDRESS];
    const char **list;
    size_t count;
    char *frontend; /* "http://HOST:PORT" or NULL */
    bool from_environment;
} FleetAddresses;
Err fleet_addresses_read(const FlagList *flag, const char *url, FleetAddresses *out, Fault *fault);
void fleet_addresses_free(FleetAddresses *addresses);

#endif
