#include "core/app/alert_rules.h"

#include "core/base/fs.h"
#include "core/base/mem.h"

#include <stdlib.h>

enum { RULES_FILE_MAX = 64 * 1024 };

static const char *environment(void)
{
    const char *named = getenv("ROLLTOP_ALERT_RULES");
    return named && named[0] ? named : NULL;
}

char *alert_rules_path(const char *flag)
{
    const char *base = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    const char *named = flag ? flag : environment();
    if (named) {
        return xstrdup(named);
    }
    return base && base[0] ? xasprintf("%s/rolltop/alerts.ini", base)
                           : xasprintf("%s/.config/rolltop/alerts.ini", home ? home : "");
}

int alert_rules_check(const char *path, DiagRules *out, Text *problems, Fault *fault)
{
    Text text;
    *out = rules_default();
    text_init(&text, RULES_FILE_MAX);
    int count = fs_read(path, &text, fault) == ERR_OK
                    ? rules_parse(out, text_str(&text), path, problems)
                    : -1;
    text_free(&text);
    return count;
}

/* What names the file, then what is wrong with it. */
static Err unread(const char *flag, const Fault *why, Fault *fault)
{
    const char *named = flag ? "--alert-rules: " : environment() ? "ROLLTOP_ALERT_RULES: " : "";
    return fault_set(fault, why->code ? why->code : ERR_IO,
                     "name another file; rolltop config alerts prints one to start from", "%s%s",
                     named, why->sentence);
}

Err alert_rules_load(const char *flag, DiagRules *out, Fault *fault)
{
    Err err = ERR_OK;
    Text problems;
    Str line;
    char *path = alert_rules_path(flag);
    *out = rules_default();
    text_init(&problems, RULES_FILE_MAX);
    if (flag || environment() || fs_exists(path)) {
        Fault why = {0};
        int count = alert_rules_check(path, out, &problems, &why);
        Str rest = text_str(&problems);
        if (count < 0) {
            err = unread(flag, &why, fault);
        } else if (count > 0 && str_split(&rest, '\n', &line)) {
            err = fault_set(fault, ERR_ARG, "rolltop config check FILE lists all mistakes",
                            "%.*s", (int)line.n, line.p);
        }
    }
    text_free(&problems);
    free(path);
    return err;
}
