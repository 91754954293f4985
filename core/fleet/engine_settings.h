/* Settings that a run's author wrote as --sglang-NAME, and whether an engine that somebody else
 * started runs with them. Pure; the engine's word is its /server_info (sglang-api 4.3). */
#ifndef ROLLTOP_FLEET_ENGINE_SETTINGS_H
#define ROLLTOP_FLEET_ENGINE_SETTINGS_H

#include "core/base/json.h"

typedef struct EngineSetting {
    const char *name;  /* as the engine spells it: "mem_fraction_static" */
    const char *value; /* words joined by one blank; "true" for a switch */
} EngineSetting;

/* Appends one phrase for each setting that differs ("mem_fraction_static 0.88 instead of 0.7") or
 * that the engine does not know, joined by "; ". Numbers are compared as numbers. Returns how
 * many; what does not fit into `out` is counted and not told. */
int engine_settings_compare(const cJSON *server_info, const EngineSetting *settings, size_t count,
                            Text *out);

#endif
