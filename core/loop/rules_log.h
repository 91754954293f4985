/* The rules that raise alerts, into the log: a replay says which were in force. */
#ifndef ROLLTOP_LOOP_RULES_LOG_H
#define ROLLTOP_LOOP_RULES_LOG_H

#include "core/diagnose/diagnose.h"

/* One row a class, at the start of a session. NULL: the usual rules. */
void rules_log_put(Store *store, const DiagRules *rules, int64_t t_us);

#endif
