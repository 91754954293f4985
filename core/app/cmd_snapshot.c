/* `rolltop snapshot`, `rolltop top --batch`, `rolltop events`: what the console shows, without a
 * terminal, of the run that is alive or of a log file. */
#include "core/app/app.h"
#include "core/app/runs.h"
#include "core/base/fs.h"
#include "tui/batch.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { US = 1000000 };

typedef struct PictureFlags {
    const char *run, *at, *filter;
    int64_t count;
    double seconds;
    bool json, batch, follow, help;
} PictureFlags;

typedef enum PictureKind { PICTURE_SNAPSHOT, PICTURE_TOP, PICTURE_EVENTS } PictureKind;
enum { PICTURE_SPECS = 7 };

/* The table of one of the three; the rows in common come first. Returns how many there are. */
static size_t picture_specs(PictureKind kind, PictureFlags *f, FlagSpec specs[PICTURE_SPECS])
{
    const FlagSpec common[] = {
        {"run", FLAG_STRING, &f->run, 0, 0, "ID", "which run, when several are alive", NULL},
        {"at", FLAG_STRING, &f->at, 0, 0, "T", "10:41, -5m, a step, v210, or a word", NULL},
        {"json", FLAG_SWITCH, &f->json, 0, 0, NULL, "one JSON object a line", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    const FlagSpec top[] = {
        {"batch", FLAG_SWITCH, &f->batch, 0, 0, NULL, "lines, no screen (must be given)", NULL},
        {"n", FLAG_INT, &f->count, 1, 1e9, "N", "so many pictures (until the run ends)", NULL},
        {"d", FLAG_DOUBLE, &f->seconds, 0.1, 86400, "SECONDS", "from one to the next (1)", NULL}};
    const FlagSpec events[] = {
        {"follow", FLAG_SWITCH, &f->follow, 0, 0, NULL, "go on until the run has ended", NULL},
        {"n", FLAG_INT, &f->count, 0, 1e9, "N", "the newest N that match to begin with (20)", NULL},
        {"filter", FLAG_STRING, &f->filter, 0, 0, "WORDS",
         "as / of the screen: words, !not, severity:critical, source:policy, engine:eng-02", NULL}};
    *f = (PictureFlags){.seconds = 1, .count = kind == PICTURE_EVENTS ? 20 : -1};
    size_t n = sizeof common / sizeof *common;
    memcpy(specs, common, sizeof common);
    if (kind != PICTURE_SNAPSHOT) {
        memcpy(specs + n, kind == PICTURE_TOP ? top : events, sizeof top);
        n += sizeof top / sizeof *top;
    }
    return n;
}

static void show_flags(PictureKind kind, FlagVisit *visit, void *to)
{
    PictureFlags f;
    FlagSpec specs[PICTURE_SPECS];
    visit(specs, picture_specs(kind, &f, specs), to);
}

static Err check(PictureKind kind, const PictureFlags *f, const FlagRest *rest, Fault *fault)
{
    if (rest->count > 1) {
        return fault_set(fault, ERR_ARG, "name one log, or none for the run that is alive",
                         "unexpected word %s", rest->items[1]);
    }
    if (rest->count == 1 && f->run) {
        return fault_set(fault, ERR_ARG, "leave one of them out",
                         "--run names a run that is alive, %s a log", rest->items[0]);
    }
    if (rest->count == 1 && !fs_exists(rest->items[0])) {
        return fault_set(fault, ERR_NOT_FOUND, "rolltop ls shows the logs of runs that are alive",
                         "there is no log %s", rest->items[0]);
    }
    if (kind == PICTURE_TOP && !f->batch) {
        return fault_set(fault, ERR_ARG, "rolltop alone, or rolltop replay FILE, is the screen",
                         "top writes lines and wants --batch");
    }
    return ERR_OK;
}

static Err show(PictureKind kind, const BatchOptions *options, Fault *fault)
{
    switch (kind) {
    case PICTURE_SNAPSHOT: return batch_snapshot(options, STDOUT_FILENO, fault);
    case PICTURE_TOP: return batch_top(options, STDOUT_FILENO, fault);
    case PICTURE_EVENTS: return batch_events(options, STDOUT_FILENO, fault);
    }
    return ERR_ARG;
}

static Err picture(PictureKind kind, const PictureFlags *f, const char *file, Fault *fault)
{
    BatchOptions options = {.log_path = file, .live = !file, .at = f->at, .json = f->json,
                            .count = f->count, .every_us = (int64_t)(f->seconds * US),
                            .filter = f->filter, .follow = f->follow};
    RunList runs = {.count = 0};
    const RunEntry *run = NULL;
    Err err = ERR_OK;
    if (!file) {
        err = runs_list(&runs, fault);
        err = err ? err : runs_pick(&runs, f->run, &run, fault);
        options.log_path = run ? json_string(run->status, "log", NULL) : NULL;
        if (err == ERR_OK && !options.log_path) {
            err = fault_set(fault, ERR_TIMEOUT, "try again", "run %s does not answer", run->id);
        }
    }
    err = err ? err : show(kind, &options, fault);
    runs_free(&runs);
    return err;
}

static int picture_main(PictureKind kind, const char *usage, int argc, char **argv)
{
    const FlagCommand command = {usage, 0, -1, NULL, NULL};
    PictureFlags f;
    FlagSpec specs[PICTURE_SPECS];
    size_t count = picture_specs(kind, &f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, count, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    status = APP_OK;
    Err err = check(kind, &f, &rest, &fault);
    err = err ? err : picture(kind, &f, rest.count ? rest.items[0] : NULL, &fault);
    bool reader_gone = err == ERR_IO && fault.sys_errno == EPIPE;
    if (reader_gone) {
        status = APP_FAILED; /* it knows */
    } else if (err != ERR_OK) {
        status = app_fail(&fault, err == ERR_IO ? APP_FAILED : APP_USAGE);
    }
    flags_free(specs, count, &rest);
    return status;
}

void cmd_snapshot_flags(FlagVisit *visit, void *to)
{
    show_flags(PICTURE_SNAPSHOT, visit, to);
}

int cmd_snapshot(int argc, char **argv)
{
    return picture_main(PICTURE_SNAPSHOT, "usage: rolltop snapshot [FILE] [--json] [--at T]\n",
                        argc, argv);
}

void cmd_top_flags(FlagVisit *visit, void *to)
{
    show_flags(PICTURE_TOP, visit, to);
}

int cmd_top(int argc, char **argv)
{
    return picture_main(PICTURE_TOP,
                        "usage: rolltop top --batch [FILE] [-n N] [-d SECONDS] [--json] "
                        "[--at T]\n", argc, argv);
}

void cmd_events_flags(FlagVisit *visit, void *to)
{
    show_flags(PICTURE_EVENTS, visit, to);
}

int cmd_events(int argc, char **argv)
{
    return picture_main(PICTURE_EVENTS,
                        "usage: rolltop events [FILE] [--follow] [-n N] [--filter WORDS] [--json] "
                        "[--at T]\n", argc, argv);
}
