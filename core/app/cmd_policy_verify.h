/* `rolltop policy verify`: what the engines hold now, as a table, as JSON and as a status. */
#ifndef ROLLTOP_APP_CMD_POLICY_VERIFY_H
#define ROLLTOP_APP_CMD_POLICY_VERIFY_H

#include "core/base/flags.h"

typedef struct PolicyVerify {
    const char *run, *artifact; /* artifact: with addresses; NULL none */
    FlagList addrs;
    int64_t version; /* with addresses; 0: any */
    bool json;
} PolicyVerify;

/* *holds: every engine that serves holds the policy. ERR_OK: the answer was printed. */
Err policy_verify(const PolicyVerify *verify, bool *holds, Fault *fault);

#endif
