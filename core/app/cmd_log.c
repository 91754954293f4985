/* `rolltop log VERB FILE`: what is in a log, whether it is sound, copies, smaller files, what a
 * damaged one still holds. */
#include "core/app/cmd_log.h"

#include "core/app/app.h"
#include "core/base/flags.h"
#include "store/maintain.h"

#include <stdio.h>
#include <string.h>

typedef struct LogFlags {
    const char *keep_age, *max_size;
    bool json, help;
} LogFlags;

enum { LOG_SPECS = 4, LOG_VERBS = 6 };

static const char *const verbs[LOG_VERBS] = {"info", "check", "compact",
                                             "trim", "salvage", "snapshot"};

const char *const *cmd_log_verbs(size_t *count)
{
    *count = LOG_VERBS;
    return verbs;
}

static void log_specs(LogFlags *f, FlagSpec specs[LOG_SPECS])
{
    const FlagSpec table[LOG_SPECS] = {
        {"keep-age", FLAG_STRING, &f->keep_age, 0, 0, "AGE", "trim: older rows go: 90m, 24h, 7d",
         NULL},
        {"max-size", FLAG_STRING, &f->max_size, 0, 0, "SIZE",
         "trim: the oldest rows go until the log holds no more: 500M, 20G", NULL},
        {"json", FLAG_SWITCH, &f->json, 0, 0, NULL, "info: one JSON object", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(specs, table, sizeof table);
}

void cmd_log_flags(FlagVisit *visit, void *to)
{
    LogFlags f = {0};
    FlagSpec specs[LOG_SPECS];
    log_specs(&f, specs);
    visit(specs, LOG_SPECS, to);
}

static const char log_usage[] =
    "usage: rolltop log info FILE [--json]\n"
    "       rolltop log check FILE\n"
    "       rolltop log snapshot FILE NEW\n"
    "       rolltop log trim FILE --keep-age AGE | --max-size SIZE\n"
    "       rolltop log compact FILE\n"
    "       rolltop log salvage FILE NEW\n\n"
    "  info      size, schema, run, time, gaps, trims, damage, rows of each table\n"
    "  check     the file, its -wal and the log's own rules; status 1 and a line per breach\n"
    "  snapshot  a consistent copy, of a log that is being written too\n"
    "  trim      the oldest rows go; policies, transactions, commands, alerts, steps stay\n"
    "  compact   gives free pages back; the run must have ended\n"
    "  salvage   what can be read of a damaged log into a new one; status 1 if any is lost\n";

/* A whole number and a unit of `units`; *out is it times the unit's factor. */
typedef struct Unit {
    char letter;
    int64_t factor;
} Unit;

static bool with_unit(const char *word, const Unit *units, size_t count, int64_t *out)
{
    size_t n = word ? strlen(word) : 0;
    int64_t number = 0;
    for (size_t i = 0; i < count && n > 1; i++) {
        if (word[n - 1] == units[i].letter && str_to_i64((Str){word, n - 1}, &number) &&
            number > 0 && number <= INT64_MAX / 1024 / units[i].factor) {
            *out = number * units[i].factor;
            return true;
        }
    }
    return false;
}

Err log_flags_age(const char *flag, const char *word, int64_t *us, Fault *fault)
{
    static const Unit units[] = {{'s', 1000000},
                                 {'m', 60 * INT64_C(1000000)},
                                 {'h', 3600 * INT64_C(1000000)},
                                 {'d', 86400 * INT64_C(1000000)}};
    *us = 0;
    if (!word || with_unit(word, units, sizeof units / sizeof *units, us)) {
        return ERR_OK;
    }
    return fault_set(fault, ERR_ARG, "a whole number and s, m, h or d, e.g. 24h",
                     "%s %s is no age", flag, word);
}

Err log_flags_size(const char *flag, const char *word, int64_t *bytes, Fault *fault)
{
    static const Unit units[] = {{'K', 1 << 10}, {'M', 1 << 20}, {'G', 1 << 30},
                                 {'T', INT64_C(1) << 40}};
    *bytes = 0;
    if (!word || with_unit(word, units, sizeof units / sizeof *units, bytes)) {
        return ERR_OK;
    }
    return fault_set(fault, ERR_ARG, "a whole number and K, M, G or T, e.g. 20G",
                     "%s %s is no size", flag, word);
}

static Err trim(const LogFlags *f, const char *path, Fault *fault)
{
    int64_t keep_us = 0;
    int64_t bytes = 0;
    Err err = log_flags_age("--keep-age", f->keep_age, &keep_us, fault);
    err = err ? err : log_flags_size("--max-size", f->max_size, &bytes, fault);
    if (err == ERR_OK && keep_us == 0 && bytes == 0) {
        err = fault_set(fault, ERR_ARG, "e.g. rolltop log trim run.db --keep-age 24h",
                        "log trim wants --keep-age or --max-size");
    }
    return err ? err : log_trim(path, keep_us, bytes, stdout, fault);
}

/* *found: breaches of a check, rows that a salvage lost. */
static Err act(const LogFlags *f, const FlagRest *rest, int64_t *found, Fault *fault)
{
    const char *verb = rest->count > 0 ? rest->items[0] : "";
    const char *path = rest->count > 1 ? rest->items[1] : NULL;
    const char *to = rest->count > 2 ? rest->items[2] : NULL;
    bool two = strcmp(verb, "salvage") == 0 || strcmp(verb, "snapshot") == 0;
    bool known = false;
    for (size_t i = 0; i < LOG_VERBS; i++) {
        known = known || strcmp(verbs[i], verb) == 0;
    }
    if (!known) {
        return fault_set(fault, ERR_ARG, "there are info, check, snapshot, trim, compact, salvage",
                         "log has no verb \"%s\"", verb);
    }
    if (rest->count != (two ? 3 : 2)) {
        return fault_set(fault, ERR_ARG, "rolltop log --help shows how",
                         two ? "log %s wants a log file and the name of a new one"
                             : "log %s wants one log file", verb);
    }
    switch (verb[0]) {
    case 'i': return log_info(path, f->json, stdout, fault);
    case 't': return trim(f, path, fault);
    default: break;
    }
    if (strcmp(verb, "check") == 0) {
        return log_check(path, stdout, found, fault);
    }
    if (strcmp(verb, "compact") == 0) {
        return log_compact(path, stdout, fault);
    }
    return strcmp(verb, "snapshot") == 0 ? log_snapshot(path, to, stdout, fault)
                                         : log_salvage(path, to, stdout, found, fault);
}

int cmd_log(int argc, char **argv)
{
    static const FlagCommand command = {log_usage, 0, -1, NULL, NULL};
    LogFlags f = {0};
    FlagSpec specs[LOG_SPECS];
    log_specs(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, LOG_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    int64_t found = 0;
    Err err = act(&f, &rest, &found, &fault);
    if (err == ERR_OK && fflush(stdout) != 0) {
        err = fault_set(&fault, ERR_IO, NULL, "the answer could not be written");
    }
    flags_free(specs, LOG_SPECS, &rest);
    return err ? app_fail(&fault, APP_USAGE) : found > 0 ? APP_NOT_REACHED : APP_OK;
}
