/* `rolltop watch`: probes and records a fleet of others; with a terminal, the console on top. */
#include "core/app/alert_rules.h"
#include "core/app/app.h"
#include "core/app/cmd_log.h"
#include "core/app/console.h"
#include "core/app/engine_flags.h"
#include "core/app/fleet_flags.h"
#include "core/app/run_flags.h"
#include "core/app/runs.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/loop/watch.h"
#include "store/view.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct WatchFlags {
    const char *log, *run_id, *url, *keep_age, *max_size, *alert_rules;
    FlagList addrs;
    int64_t seconds;
    bool headless, help;
    FleetFlags fleet;
} WatchFlags;

typedef struct WatchPlan {
    WatchConfig config;
    DiagRules rules;
    FleetAddresses addresses;
    char *run_id, *log, *socket, *bearer;
    Text argv, settings;
} WatchPlan;

enum { OWN_SPECS = 10, SPECS = OWN_SPECS + FLEET_FLAG_SPECS };

static size_t specs_of(WatchFlags *f, FlagSpec out[SPECS])
{
    *f = (WatchFlags){0};
    fleet_flags_defaults(&f->fleet);
    const FlagSpec own[OWN_SPECS] = {
        {"log", FLAG_STRING, &f->log, 0, 0, "FILE", "default: under the state directory", NULL},
        {"log-keep-age", FLAG_STRING, &f->keep_age, 0, 0, "AGE", "older rows go: 24h, 7d", NULL},
        {"log-max-size", FLAG_STRING, &f->max_size, 0, 0, "SIZE",
         "the oldest rows go beyond it: 500M, 20G", NULL},
        {"alert-rules", FLAG_STRING, &f->alert_rules, 0, 0, "FILE",
         "what raises alerts; `rolltop config alerts` prints one to start from", NULL},
        {"run-id", FLAG_STRING, &f->run_id, 0, 0, "ID", "identifier (default: watch and time)",
         NULL},
        {"rollout-external-engine-addrs", FLAG_LIST, &f->addrs, 0, 0, "HOST:PORT",
         "engines (DYNAMO_ENGINE_ADDRS)", NULL},
        {"rollout-url", FLAG_STRING, &f->url, 0, 0, "URL", "frontend (DYNAMO_ROLLOUT_URL)", NULL},
        {"seconds", FLAG_INT, &f->seconds, 1, 1e9, "S", "end after so long", NULL},
        {"headless", FLAG_SWITCH, &f->headless, 0, 0, NULL, "no console: one line a change", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(out, own, sizeof own);
    return OWN_SPECS + fleet_flags_specs(&f->fleet, out + OWN_SPECS);
}

void cmd_watch_flags(FlagVisit *visit, void *to)
{
    WatchFlags f;
    FlagSpec specs[SPECS];
    visit(specs, specs_of(&f, specs), to);
}

static Err name_places(const WatchFlags *f, WatchPlan *plan, Fault *fault)
{
    char stamp[32];
    time_t now = (time_t)(clock_wall_us() / 1000000);
    struct tm parts;
    char *runtime = NULL, *state = NULL;
    gmtime_r(&now, &parts);
    (void)strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
    plan->run_id = f->run_id ? xstrdup(f->run_id) : xasprintf("watch-%s", stamp);
    Err err = runs_check_id(plan->run_id, fault);
    err = err ? err : fs_runtime_dir(&runtime, fault);
    err = err == ERR_OK && !f->log ? fs_state_dir(&state, fault) : err;
    if (err == ERR_OK) {
        plan->socket = xasprintf("%s/%s.sock", runtime, plan->run_id);
        plan->log = f->log ? xstrdup(f->log) : xasprintf("%s/%s.db", state, plan->run_id);
    }
    free(runtime);
    free(state);
    return err;
}

/* A watch goes on in its own log. In that of a run, or of a verify, it would be taken for a part
 * of it: its engines for the run's. */
static Err check_log(const char *path, Fault *fault)
{
    if (!fs_exists(path)) {
        return ERR_OK;
    }
    View *view = NULL;
    RunView run = {.argv_json = NULL};
    Arena *arena = arena_new(8 << 20);
    Err err = view_open(path, &view, fault);
    bool known = err == ERR_OK && view_run(view, arena, &run) && run.argv_json;
    if (known && strncmp(run.argv_json, "[\"watch\"", 8) != 0) {
        err = fault_set(fault, ERR_EXISTS, "name another file", "--log %s is the log of %s, which "
                        "is no watch", path, run.run ? run.run : "something else");
    }
    view_close(view);
    arena_free(arena);
    return err;
}

static Err make_plan(const WatchFlags *f, int argc, char **argv, WatchPlan *plan, Fault *fault)
{
    *plan = (WatchPlan){.run_id = NULL};
    text_init(&plan->argv, 1 << 20);
    text_init(&plan->settings, 1 << 16);
    Err err = fleet_addresses_read(&f->addrs, f->url, &plan->addresses, fault);
    err = err ? err : fleet_flags_check(&f->fleet, plan->addresses.frontend != NULL, fault);
    if (err == ERR_OK && plan->addresses.count == 0 && !fleet_flags_any_source(&f->fleet)) {
        err = fault_set(fault, ERR_ARG, "give --rollout-external-engine-addrs HOST:PORT …, "
                        "--engines-dns, --engines-file, or DYNAMO_ENGINE_ADDRS",
                        "no engines to watch");
    }
    int64_t keep_us = 0;
    int64_t max_bytes = 0;
    err = err ? err : log_flags_age("--log-keep-age", f->keep_age, &keep_us, fault);
    err = err ? err : log_flags_size("--log-max-size", f->max_size, &max_bytes, fault);
    err = err ? err : alert_rules_load(f->alert_rules, &plan->rules, fault);
    err = err ? err : name_places(f, plan, fault);
    err = err ? err : check_log(plan->log, fault);
    err = err ? err : engine_key_read("SGLANG_API_KEY", &plan->bearer, fault);
    run_flags_argv_json(argc, argv, &plan->argv);
    plan->config = (WatchConfig){
        .run_id = plan->run_id, .name = "watch", .log_path = plan->log,
        .socket_path = plan->socket, .argv_json = text_c(&plan->argv), .config_json = "{}",
        .frontend_url = plan->addresses.frontend, .engine_bearer = plan->bearer,
        .engine_addrs = plan->addresses.list, .engine_addr_count = plan->addresses.count,
        .from_environment = plan->addresses.from_environment,
        .sources = fleet_flags_sources(&f->fleet), .gone_looks = f->fleet.gone_looks,
        .rules = &plan->rules, .probe = fleet_flags_probe(&f->fleet), .seconds = f->seconds,
        .log_keep_us = keep_us, .log_max_bytes = max_bytes};
    return err;
}

static void free_plan(WatchPlan *plan)
{
    fleet_addresses_free(&plan->addresses);
    free(plan->run_id);
    free(plan->log);
    free(plan->socket);
    free(plan->bearer);
    text_free(&plan->argv);
    text_free(&plan->settings);
}

static int here(WatchPlan *plan)
{
    Fault fault = {0};
    plan->config.lines = stdout;
    printf("watch %s  log %s\n", plan->run_id, plan->log);
    fflush(stdout);
    return watch_run(&plan->config, NULL, NULL, &fault) == ERR_OK ? APP_OK
                                                                 : app_fail(&fault, APP_USAGE);
}

static void say_ready(void *user)
{
    const int *fd = user;
    ssize_t sent = write(*fd, "+", 1);
    (void)sent;
}

static void recorder(WatchPlan *plan, int fd)
{
    Fault fault = {0};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setsid();
    if (null >= 0) {
        (void)dup2(null, 0);
        (void)dup2(null, 1);
        (void)dup2(null, 2);
    }
    if (watch_run(&plan->config, say_ready, &fd, &fault) != ERR_OK) {
        ssize_t sent = write(fd, fault.sentence, strlen(fault.sentence));
        (void)sent;
        _exit(APP_USAGE);
    }
    _exit(APP_OK);
}

/* The recorder is a process of its own and ends with the console. */
static int with_console(WatchPlan *plan)
{
    Fault fault = {0};
    int note[2];
    char first[FAULT_TEXT_MAX] = "";
    if (pipe2(note, O_CLOEXEC) != 0) {
        (void)fault_set_sys(&fault, ERR_IO, errno, NULL, "cannot make a pipe");
        return app_fail(&fault, APP_USAGE);
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(note[0]);
        recorder(plan, note[1]);
    }
    close(note[1]);
    ssize_t got = pid > 0 ? read(note[0], first, sizeof first - 1) : -1;
    close(note[0]);
    if (got < 1 || first[0] != '+') {
        (void)fault_set(&fault, ERR_STATE, NULL, "%s",
                        got > 0 ? first : "the recorder ended at once");
        return app_fail(&fault, APP_USAGE);
    }
    TuiOptions options = {.log_path = plan->log, .control_socket = plan->socket};
    console_defaults(&options);
    bool stop = false;
    Err err = tui_run(&options, &stop, &fault);
    console_free(&options);
    kill(pid, SIGTERM);
    (void)waitpid(pid, NULL, 0);
    printf("replay it: rolltop replay %s\n", plan->log);
    return err == ERR_OK ? APP_OK : app_fail(&fault, APP_FAILED);
}

int cmd_watch(int argc, char **argv)
{
    static const FlagCommand command = {"usage: rolltop watch [FLAGS]\n", 0, 0, NULL,
                                        "watch takes flags only"};
    WatchFlags f;
    FlagSpec specs[SPECS];
    size_t count = specs_of(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, count, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    WatchPlan plan;
    if (make_plan(&f, argc, argv, &plan, &fault) != ERR_OK) {
        status = app_fail(&fault, APP_USAGE);
    } else {
        status = f.headless || !console_possible() ? here(&plan) : with_console(&plan);
    }
    free_plan(&plan);
    flags_free(specs, count, &rest);
    return status;
}
