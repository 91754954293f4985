/* --sglang-NAME: settings of the engines, in slime's way of writing them. Engines that the run
 * starts itself with --engine-cmd get them as --NAME; engines of others are asked whether they
 * run with them; rolltop's own engines have no use for them. */
#ifndef ROLLTOP_APP_ENGINE_FLAGS_H
#define ROLLTOP_APP_ENGINE_FLAGS_H

#include "core/fleet/engine_settings.h"

typedef struct EngineFlags {
    char **words; /* "--mem-fraction-static", "0.7", …; NULL-terminated */
    int word_count, word_room;
    EngineSetting *settings; /* the same as names and values */
    int setting_count;
    Text names; /* "--sglang-a, --sglang-b" */
} EngineFlags;

void engine_flags_init(EngineFlags *flags);
void engine_flags_free(EngineFlags *flags);
/* `name` without dashes, "sglang-" in front; `joined` is the part behind "=", or NULL; then the
 * words that follow it. ERR_ARG for what the run sets itself and for keys. */
Err engine_flags_take(EngineFlags *flags, Str name, const char *joined, char **values, int count,
                      Fault *fault);

/* --engine-cmd as a NULL-terminated vector for exec: cut at blanks; "sglang" alone stands for
 * "python3 -m sglang.launch_server"; the checkpoint and `flags` are appended, host and port are
 * added at each start. malloc'ed; one free for the vector, one for out[0]'s block by
 * engine_command_free. */
Err engine_command_make(const char *command, const char *checkpoint, const EngineFlags *flags,
                        char ***out, Fault *fault);
void engine_command_free(char **command);

/* Key of a kind: the variable NAME, or the file that NAME_FILE names (nobody else may read it).
 * *out is NULL where neither is set; malloc'ed. */
Err engine_key_read(const char *variable, char **out, Fault *fault);

#endif
