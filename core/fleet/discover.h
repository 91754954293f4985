/* Who belongs to the fleet, from several sources: pure. Each source says its whole list at each
 * look; an address is a member while at least one source lists it, and the operator's word stands
 * above them all until the opposite word. Each change comes back once, with its reason.
 *
 * Hysteresis: a source that answers but no longer lists an address has to say so `gone_looks`
 * times in a row (DNS and frontends forget for a moment; a file does not). A look that failed is
 * no look. Sizes: at most DISCOVER_MAX addresses; O(addresses) a look. */
#ifndef ROLLTOP_FLEET_DISCOVER_H
#define ROLLTOP_FLEET_DISCOVER_H

#include "core/base/str.h"

enum { DISCOVER_MAX = 2048, DISCOVER_ADDRESS = 256 };

#define DISCOVER_SOURCES(X)                                                                       \
    X(DISCOVER_FLAG, "the command line") X(DISCOVER_ENV, "DYNAMO_ENGINE_ADDRS")                   \
    X(DISCOVER_FILE, "the engines file") X(DISCOVER_DNS, "DNS")                                   \
    X(DISCOVER_FRONTEND, "the frontend's instances") X(DISCOVER_OPERATOR, "the operator")
#define DISCOVER_ENUM_ENTRY(name, words) name,
typedef enum DiscoverSource { DISCOVER_SOURCES(DISCOVER_ENUM_ENTRY) DISCOVER_SOURCE_COUNT }
    DiscoverSource;
const char *discover_source_name(DiscoverSource source);

typedef struct DiscoverChange {
    bool add;
    char address[DISCOVER_ADDRESS], reason[128];
} DiscoverChange;

typedef struct Discover Discover;

/* gone_looks < 1 counts as 1. Files, flags and environment need one look only. */
Discover *discover_new(int gone_looks);
void discover_free(Discover *discover);
/* HOST:PORT, [V6]:PORT or http(s)://… of an engine, without a trailing slash; port 1 … 65535. */
Err discover_address(const char *text, char out[DISCOVER_ADDRESS], Fault *fault);
/* Lines "HOST:PORT" or several on a line, blanks or commas between; '#' begins a comment. The
 * first bad word is named with its line, and nothing is taken. `out` may hold `max` addresses. */
Err discover_read_list(Str text, const char *name, char (*out)[DISCOVER_ADDRESS], size_t max,
                       size_t *count, Fault *fault);
void discover_look(Discover *discover, DiscoverSource source, const char *const *addresses,
                   size_t count);
void discover_operator(Discover *discover, const char *address, bool add, const char *reason);
bool discover_next(Discover *discover, DiscoverChange *out);
int discover_count(const Discover *discover); /* members */
/* True once, for whoever tells a person: there were more than DISCOVER_MAX addresses. */
bool discover_full(Discover *discover);

#endif
