/* `rolltop attach`, `rolltop replay FILE`: the console on a live core or on a log file. */
#include "core/app/app.h"
#include "core/app/console.h"
#include "core/app/runs.h"
#include "core/base/flags.h"
#include "core/base/fs.h"
#include "core/net/ctl.h"

#include <stdio.h>
#include <string.h>

typedef struct AttachFlags {
    const char *run, *at;
    ConsoleFlags console;
    bool control, help;
} AttachFlags;

/* The console was left with the word "stop": the run ends, whoever started it. */
static void ask_stop(const char *socket)
{
    CtlClient *client = NULL;
    cJSON *reply = NULL;
    Fault fault = {0};
    if (ctl_connect(socket, 2000, &client, &fault) != ERR_OK ||
        ctl_call(client, STR("{\"cmd\":\"stop\",\"reason\":\"console\"}"), 5000, &reply,
                 &fault) != ERR_OK) {
        fault_print(&fault);
    }
    cJSON_Delete(reply);
    ctl_client_free(client);
}

static int attach_to(const RunEntry *run, const AttachFlags *flags)
{
    Fault fault = {0};
    TuiOptions options = {.log_path = json_string(run->status, "log", NULL),
                          .control_socket = run->socket, .control = flags->control};
    if (!options.log_path) {
        (void)fault_set(&fault, ERR_TIMEOUT, "try again", "run %s does not answer", run->id);
        return app_fail(&fault, APP_FAILED);
    }
    bool stop = false;
    Err err = console_open(&options, &flags->console, &stop, &fault);
    if (stop) {
        ask_stop(run->socket);
    }
    return err ? app_fail(&fault, APP_FAILED) : APP_OK;
}

enum { ATTACH_SPECS = 3 + CONSOLE_SPECS, REPLAY_SPECS = 2 + CONSOLE_SPECS };

static void attach_specs(AttachFlags *f, FlagSpec specs[ATTACH_SPECS])
{
    const FlagSpec table[] = {
        {"run", FLAG_STRING, &f->run, 0, 0, "ID", "which run, when several are alive", NULL},
        {"control", FLAG_SWITCH, &f->control, 0, 0, NULL, "keys may act, not only look", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(specs, table, sizeof table);
    console_specs(&f->console, specs + sizeof table / sizeof *table);
}

void cmd_attach_flags(FlagVisit *visit, void *to)
{
    AttachFlags f = {0};
    FlagSpec specs[ATTACH_SPECS];
    attach_specs(&f, specs);
    visit(specs, ATTACH_SPECS, to);
}

int cmd_attach(int argc, char **argv)
{
    static const FlagCommand command = {"usage: rolltop attach [RUN] [--run ID] [--control]\n", 0,
                                        1, "attach wants one run", "rolltop ls lists them"};
    AttachFlags f = {0};
    FlagSpec specs[ATTACH_SPECS];
    attach_specs(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, ATTACH_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    RunList runs = {.count = 0};
    const RunEntry *run = NULL;
    Err err = runs_list(&runs, &fault);
    err = err ? err : runs_pick(&runs, f.run ? f.run : rest.count ? rest.items[0] : NULL, &run,
                                &fault);
    status = err ? app_fail(&fault, APP_USAGE) : attach_to(run, &f);
    runs_free(&runs);
    flags_free(specs, ATTACH_SPECS, &rest);
    return status;
}

static void replay_specs(AttachFlags *f, FlagSpec specs[REPLAY_SPECS])
{
    const FlagSpec table[] = {
        {"at", FLAG_STRING, &f->at, 0, 0, "T", "10:41, -5m, a step, v210, or text", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(specs, table, sizeof table);
    console_specs(&f->console, specs + sizeof table / sizeof *table);
}

void cmd_replay_flags(FlagVisit *visit, void *to)
{
    AttachFlags f = {0};
    FlagSpec specs[REPLAY_SPECS];
    replay_specs(&f, specs);
    visit(specs, REPLAY_SPECS, to);
}

int cmd_replay(int argc, char **argv)
{
    static const FlagCommand command = {"usage: rolltop replay FILE [--at T]\n", 1, 1,
                                        "replay wants one log file", "e.g. rolltop replay run.db"};
    AttachFlags f = {0};
    FlagSpec specs[REPLAY_SPECS];
    replay_specs(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, REPLAY_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    Err err = ERR_OK;
    if (!fs_exists(rest.items[0])) {
        err = fault_set(&fault, ERR_NOT_FOUND, "rolltop ls shows the logs of runs that are alive",
                        "there is no log %s", rest.items[0]);
    } else {
        TuiOptions options = {.log_path = rest.items[0], .replay = true, .start_at = f.at};
        bool stop = false;
        err = console_open(&options, &f.console, &stop, &fault);
    }
    flags_free(specs, REPLAY_SPECS, &rest);
    return err ? app_fail(&fault, APP_USAGE) : APP_OK;
}
