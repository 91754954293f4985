/* The file of alert rules (core/diagnose/rules.h), which a run and a watch read before they start
 * anything. */
#ifndef ROLLTOP_APP_ALERT_RULES_H
#define ROLLTOP_APP_ALERT_RULES_H

#include "core/base/err.h"
#include "core/diagnose/rules.h"

/* `flag`, else $ROLLTOP_ALERT_RULES, else $XDG_CONFIG_HOME or ~/.config/rolltop/alerts.ini; free
 * it. The last may not be there: then the rules are the usual ones. */
char *alert_rules_path(const char *flag);
/* Reads that file on top of the usual rules. ERR_ARG with its first mistake, file and line. */
Err alert_rules_load(const char *flag, DiagRules *out, Fault *fault);
/* The same with every mistake as a line of *problems; how many, -1: it cannot be read. */
int alert_rules_check(const char *path, DiagRules *out, Text *problems, Fault *fault);

#endif
