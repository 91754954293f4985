#include "core/app/app.h"
#include "core/base/flags.h"
#include "store/query.h"

#include <stdio.h>
#include <string.h>

typedef struct QueryFlags {
    const char *sql;
    bool json, help;
} QueryFlags;

enum { QUERY_SPECS = 3 };

static void query_specs(QueryFlags *f, FlagSpec specs[QUERY_SPECS])
{
    const FlagSpec table[QUERY_SPECS] = {
        {"json", FLAG_SWITCH, &f->json, 0, 0, NULL, "one JSON object a line", NULL},
        {"sql", FLAG_STRING, &f->sql, 0, 0, "SELECT", "one read-only statement", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(specs, table, sizeof table);
}

void cmd_query_flags(FlagVisit *visit, void *to)
{
    QueryFlags f = {0};
    FlagSpec specs[QUERY_SPECS];
    query_specs(&f, specs);
    visit(specs, QUERY_SPECS, to);
}

int cmd_query(int argc, char **argv)
{
    static const FlagCommand command = {
        "usage: rolltop query FILE TOPIC [--json]\n"
        "       rolltop query FILE --sql \"select …\" [--json]\n\n"
        "topics: steps engines policies samples commands events probes txns groups metrics\n"
        "        rollups incidents alert_changes alert_rules phases children\n",
        1, 2, "query wants a log file and a topic", "rolltop query --help"};
    QueryFlags f = {0};
    FlagSpec specs[QUERY_SPECS];
    query_specs(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, QUERY_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    Err err = ERR_OK;
    if (rest.count != (f.sql ? 1 : 2)) {
        err = fault_set(&fault, ERR_ARG, command.hint, "%s",
                        f.sql ? "query --sql wants one log file" : command.wants);
    } else if (f.sql) {
        err = query_sql(rest.items[0], f.sql, f.json, stdout, &fault);
    } else {
        err = query_topic(rest.items[0], rest.items[1], f.json, stdout, &fault);
    }
    flags_free(specs, QUERY_SPECS, &rest);
    return err ? app_fail(&fault, APP_USAGE) : APP_OK;
}
