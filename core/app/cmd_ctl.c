/* `rolltop ctl` and `rolltop ls`: what the console's keys do, from a script. */
#include "core/app/app.h"
#include "core/app/runs.h"
#include "core/base/flags.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALL_MS = 15000 };

static const char *const verbs[] = {"pause", "resume", "update", "restart", "cordon", "uncordon",
                                    "abort", "engine", "note", "stop", "stop-now", "status"};
static const char *const engine_verbs[] = {"add", "remove", "drain"};

static const char ctl_usage[] =
    "usage: rolltop ctl COMMAND [TARGET] [FLAGS]\n\n"
    "  pause, resume        the run, or one engine\n"
    "  update               send the committed policy again: to all, or to one engine\n"
    "  update --to VERSION  bring every engine to a kept policy\n"
    "  restart TARGET       an engine, frontend or trainer\n"
    "  cordon, uncordon E   an engine finishes what it runs and takes nothing new\n"
    "  abort SAMPLE         close one sample in flight; it is generated again\n"
    "  engine add HOST:PORT     a new engine joins; or the name of a local one that left\n"
    "  engine remove E, drain E it leaves at once, or once it has finished what it runs\n"
    "  note \"WORDS\"         for whoever reads the log: an event, and a row among the commands\n"
    "  stop, stop-now       cleanly, or at once\n"
    "  status               as JSON\n";

static Err check_word(const char *verb, const char *const *words, size_t count, Fault *fault)
{
    enum { FAR = 4 };
    const char *nearest = NULL;
    int best = FAR;
    for (size_t i = 0; i < count; i++) {
        int distance = str_distance(str_from(words[i]), str_from(verb), FAR);
        if (distance == 0) {
            return ERR_OK;
        }
        if (distance < best) {
            best = distance;
            nearest = words[i];
        }
    }
    char hint[64] = "rolltop ctl --help lists them";
    if (nearest) {
        (void)str_format(hint, sizeof hint, "did you mean %s?", nearest);
    }
    return fault_set(fault, ERR_ARG, hint, "unknown command %s", verb);
}

/* "engine add X" is the request "engine-add" with target X. */
static Err read_words(const FlagRest *rest, char verb[32], const char **target, Fault *fault)
{
    int count = rest->count;
    bool engine = count > 0 && strcmp(rest->items[0], "engine") == 0;
    if (engine && count != 3) {
        return fault_set(fault, ERR_ARG, "e.g. rolltop ctl engine add 10.0.0.7:30000",
                         "ctl engine wants add, remove or drain, and an engine");
    }
    if (count > 0 && count != 2 && strcmp(rest->items[0], "note") == 0) {
        return fault_set(fault, ERR_ARG, "e.g. rolltop ctl note \"eng-03 is loud\"",
                         "ctl note wants its words, in quotes");
    }
    if (!engine && (count < 1 || count > 2)) {
        return fault_set(fault, ERR_ARG, "rolltop ctl --help lists them",
                         "ctl wants a command and at most one target");
    }
    Err err = check_word(rest->items[0], verbs, sizeof verbs / sizeof *verbs, fault);
    if (err == ERR_OK && engine) {
        err = check_word(rest->items[1], engine_verbs,
                         sizeof engine_verbs / sizeof *engine_verbs, fault);
    }
    (void)str_format(verb, 32, "%.15s%s%.15s", rest->items[0], engine ? "-" : "",
                     engine ? rest->items[1] : "");
    *target = engine ? rest->items[2] : count > 1 ? rest->items[1] : NULL;
    return err;
}

typedef struct CtlFlags {
    const char *run, *reason, *to;
    int64_t version; /* of `to`; 0: not given */
    bool help, json;
} CtlFlags;

static void write_request(Text *text, const char *verb, const char *target, const CtlFlags *f)
{
    JsonOut out;
    json_begin(&out, text);
    json_object_begin(&out);
    json_member_string(&out, "cmd", verb);
    int64_t sample = 0;
    bool note = strcmp(verb, "note") == 0;
    if (note) {
        json_member_string(&out, "reason", target);
    } else if (target) {
        json_key(&out, "target");
        json_object_begin(&out);
        if (strcmp(verb, "abort") == 0 && str_to_i64(str_from(target), &sample)) {
            json_member_i64(&out, "sample", sample);
        } else if (strcmp(target, "all") == 0) {
            json_member_bool(&out, "all", true);
        } else {
            json_member_string(&out, "engine", target);
        }
        json_object_end(&out);
    }
    if (f->version > 0) {
        json_member_i64(&out, "version", f->version);
    }
    if (f->reason && !note) {
        json_member_string(&out, "reason", f->reason);
    }
    json_object_end(&out);
}

static int call(const RunEntry *run, const char *verb, const char *target, const CtlFlags *f)
{
    Fault fault = {0};
    if (strcmp(verb, "status") == 0) {
        char *text = run->status ? cJSON_Print(run->status) : NULL;
        printf("%s\n", text ? text : "{}");
        cJSON_free(text);
        return text ? APP_OK : APP_FAILED;
    }
    Text request;
    text_init(&request, 65536);
    write_request(&request, verb, target, f);
    CtlClient *client = NULL;
    cJSON *reply = NULL;
    Err err = ctl_connect(run->socket, CALL_MS, &client, &fault);
    err = err ? err : ctl_call(client, text_str(&request), CALL_MS, &reply, &fault);
    int status = APP_FAILED;
    if (err == ERR_TIMEOUT && !json_bool(run->status, "recording", true)) {
        fault = (Fault){0}; /* what is asked is written before it is done */
        (void)fault_set(&fault, err, "give its disk room; two interrupts end the run without",
                        "the log of %s cannot be written: %s is done once it can", run->id, verb);
    }
    if (err != ERR_OK) {
        (void)app_fail(&fault, APP_FAILED);
    } else {
        bool ok = json_bool(reply, "ok", false);
        fprintf(ok ? stdout : stderr, "%s%s\n", ok ? "" : "rolltop: refused: ",
                json_string(reply, "message", "no words"));
        status = ok ? APP_OK : APP_FAILED;
    }
    cJSON_Delete(reply);
    ctl_client_free(client);
    text_free(&request);
    return status;
}

enum { CTL_SPECS = 4, LS_SPECS = 2 };

static void ctl_specs(CtlFlags *f, FlagSpec specs[CTL_SPECS])
{
    const FlagSpec table[CTL_SPECS] = {
        {"run", FLAG_STRING, &f->run, 0, 0, "ID", "which run, when several are alive", NULL},
        {"reason", FLAG_STRING, &f->reason, 0, 0, "TEXT", "kept in the log", NULL},
        {"to", FLAG_STRING, &f->to, 0, 0, "VERSION", "update: to this kept policy", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(specs, table, sizeof table);
}

static void ls_specs(CtlFlags *f, FlagSpec specs[LS_SPECS])
{
    const FlagSpec table[LS_SPECS] = {
        {"json", FLAG_SWITCH, &f->json, 0, 0, NULL, "one JSON object a line", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(specs, table, sizeof table);
}

void cmd_ctl_flags(FlagVisit *visit, void *to)
{
    CtlFlags f = {0};
    FlagSpec specs[CTL_SPECS];
    ctl_specs(&f, specs);
    visit(specs, CTL_SPECS, to);
}

void cmd_ls_flags(FlagVisit *visit, void *to)
{
    CtlFlags f = {0};
    FlagSpec specs[LS_SPECS];
    ls_specs(&f, specs);
    visit(specs, LS_SPECS, to);
}

const char *const *cmd_ctl_verbs(size_t *count)
{
    *count = sizeof verbs / sizeof *verbs;
    return verbs;
}

int cmd_ctl(int argc, char **argv)
{
    static const FlagCommand command = {ctl_usage, 0, -1, NULL, NULL};
    CtlFlags f = {0};
    FlagSpec specs[CTL_SPECS];
    ctl_specs(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, CTL_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    RunList runs = {.count = 0};
    const RunEntry *run = NULL;
    char verb[32];
    const char *target = NULL;
    Err err = read_words(&rest, verb, &target, &fault);
    if (err == ERR_OK && f.to && !app_version(f.to, &f.version)) {
        err = fault_set(&fault, ERR_ARG, "rolltop policies FILE lists them",
                        "--to wants a version, v12 or 12, not \"%s\"", f.to);
    }
    if (err == ERR_OK && f.to && (strcmp(verb, "update") != 0 || target)) {
        err = fault_set(&fault, ERR_ARG, "rolltop ctl update --to VERSION",
                        "--to is for update of the whole fleet");
    }
    if (err == ERR_OK && f.reason && strcmp(verb, "note") == 0) {
        err = fault_set(&fault, ERR_ARG, "rolltop ctl note \"WORDS\"",
                        "--reason is for other commands: the words of a note are all it has");
    }
    err = err ? err : runs_list(&runs, &fault);
    err = err ? err : runs_pick(&runs, f.run, &run, &fault);
    status = err ? app_fail(&fault, APP_USAGE) : call(run, verb, target, &f);
    runs_free(&runs);
    flags_free(specs, CTL_SPECS, &rest);
    return status;
}

int cmd_ls(int argc, char **argv)
{
    static const FlagCommand command = {"usage: rolltop ls [--json]\n", 0, 0, NULL,
                                        "ls takes flags only"};
    CtlFlags f = {0};
    FlagSpec specs[LS_SPECS];
    ls_specs(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, LS_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    RunList runs = {.count = 0};
    Err err = runs_list(&runs, &fault);
    for (size_t i = 0; err == ERR_OK && i < runs.count; i++) {
        const cJSON *s = runs.items[i].status;
        if (f.json) {
            char *text = s ? cJSON_PrintUnformatted(s) : NULL;
            printf("%s\n", text ? text : "{}");
            cJSON_free(text);
            continue;
        }
        if (i == 0) {
            printf("%-28s %8s %-9s %6s  %s\n", "RUN", "PID", "PHASE", "STEP", "LOG");
        }
        printf("%-28s %8lld %-9s %6lld  %s\n", runs.items[i].id,
               (long long)json_i64(s, "pid", 0), json_string(s, "phase", "?"),
               (long long)json_i64(s, "step", -1), json_string(s, "log", "?"));
    }
    if (err == ERR_OK && runs.count == 0 && !f.json) {
        fputs("no run is alive\n", stdout);
    }
    runs_free(&runs);
    flags_free(specs, LS_SPECS, &rest);
    return err ? app_fail(&fault, APP_USAGE) : APP_OK;
}
