/* `rolltop policy verify` without a run: engines by their addresses, compared with an artifact and
 * with each other. */
#ifndef ROLLTOP_LOOP_HOLDS_FLEET_H
#define ROLLTOP_LOOP_HOLDS_FLEET_H

#include "core/base/json.h"

typedef struct HoldsFleet {
    const char *const *addrs; /* HOST:PORT */
    size_t addr_count;
    const char *bearer, *admin; /* the engines' keys; NULL none */
    const char *artifact;       /* checkpoint directory; NULL: engines are compared alone */
    int64_t version;            /* that they should report; -1: any, the same for all */
} HoldsFleet;

/* The report of holds_ask.h into `out`. Reads all of the artifact; its own forward pass is the
 * canary's reference up to 4 GiB of weights. ERR_OK whatever the engines hold. Blocks, at most
 * about 20 s beside the reading. */
Err holds_fleet_run(const HoldsFleet *config, Text *out, Fault *fault);

#endif
