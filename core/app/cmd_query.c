#include "core/app/app.h"
#include "core/base/flags.h"
#include "store/query.h"

#include <stdio.h>

int cmd_query(int argc, char **argv)
{
    bool json = false, help = false;
    const char *sql = NULL;
    const FlagSpec specs[] = {
        {"json", FLAG_SWITCH, &json, 0, 0, NULL, "one JSON object a line", NULL},
        {"sql", FLAG_STRING, &sql, 0, 0, "SELECT", "one read-only statement", NULL},
        {"help", FLAG_SWITCH, &help, 0, 0, NULL, "this list", NULL}};
    size_t count = sizeof specs / sizeof *specs;
    FlagRest rest = {0};
    Fault fault = {0};
    Err err = flags_parse(specs, count, argc, argv, &rest, &fault);
    if (err == ERR_OK && help) {
        fputs("usage: rolltop query FILE TOPIC [--json]\n"
              "       rolltop query FILE --sql \"select …\" [--json]\n\n"
              "topics: steps engines policies samples commands events probes txns groups metrics\n"
              "        incidents children\n\n",
              stdout);
        flags_help(specs, count, stdout);
    } else if (err == ERR_OK) {
        int wanted = sql ? 1 : 2;
        if (rest.count != wanted) {
            err = fault_set(&fault, ERR_ARG, "rolltop query --help",
                            sql ? "query --sql wants one log file"
                                : "query wants a log file and a topic");
        } else {
            err = sql ? query_sql(rest.items[0], sql, json, stdout, &fault)
                      : query_topic(rest.items[0], rest.items[1], json, stdout, &fault);
        }
    }
    flags_free(specs, count, &rest);
    return err ? app_fail(&fault, APP_USAGE) : APP_OK;
}
