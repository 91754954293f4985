/* A picture as JSON: what the screen shows at T, from the same snapshot, one object. The shape is
 * docs/snapshot.schema.json; SNAPSHOT_SCHEMA changes with it, and only a shape that an older
 * reader would misread gets a new number. Unknown numbers are null, never 0; a number that can
 * be old is {"value", "seen_us"}; times are microseconds since 1970 UTC. */
#ifndef ROLLTOP_TUI_SNAPSHOT_JSON_H
#define ROLLTOP_TUI_SNAPSHOT_JSON_H

#include "core/base/json.h"
#include "tui/snapshot.h"

#define SNAPSHOT_SCHEMA "rolltop.snapshot.1"
#define EVENT_SCHEMA "rolltop.event.1"
enum { SNAPSHOT_JSON_MAX = 16 << 20 };

/* One object and a newline. `live`: T is now. out->cut says that SNAPSHOT_JSON_MAX did not do. */
void snapshot_json(const Snapshot *snap, bool live, Text *out);
/* One event as a line of its own; `engine` is its engine's name or NULL. */
void event_json(const EventRow *row, const char *engine, Text *out);

#endif
