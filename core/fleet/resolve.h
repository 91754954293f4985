/* Blocking DNS look-ups for a thread of the pool: A and AAAA of a name, or SRV. */
#ifndef ROLLTOP_FLEET_RESOLVE_H
#define ROLLTOP_FLEET_RESOLVE_H

#include "core/fleet/discover.h"

/* `dns` as in SourcesConfig. A name that exists no more, or has no addresses, is an empty list
 * (a headless Service without ready pods says so); no answer, or a broken one, is ERR_NET.
 * Bounded by about 6 s. At most `max` addresses, sorted, without doubles. */
Err resolve_addresses(const char *dns, const char *server, char (*out)[DISCOVER_ADDRESS],
                      size_t max, size_t *count, Fault *fault);

#endif
