#include "core/serve/key_env.h"

#include <stdlib.h>

Err key_from_env(const char *flag, const char *variable, const char **out, Fault *fault)
{
    *out = variable ? getenv(variable) : NULL;
    if (variable && (!*out || !**out)) {
        return fault_set(fault, ERR_ARG, "export the key in it, or leave the flag out",
                         "--%s: the environment variable %s is not set", flag, variable);
    }
    return ERR_OK;
}
