/* Names of a run, and room for it: log, work folder, socket, disk, open files. */
#include "core/app/run_plan_private.h"

#include "core/app/runs.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { SPARE_BYTES = 64 << 20, FILES_BESIDE = 96 };

static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        return xstrdup(".");
    }
    return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

Err plan_names(RunPlan *plan, const char *kind, Fault *fault)
{
    const RunFlags *f = plan->flags;
    char stamp[32];
    time_t now = (time_t)(clock_wall_us() / 1000000);
    struct tm parts;
    gmtime_r(&now, &parts);
    (void)strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
    const char *name = f->name ? f->name : kind;
    plan->run_id = f->run_id ? xstrdup(f->run_id) : xasprintf("%s-%s", name, stamp);
    char *runtime = NULL;
    Err err = runs_check_id(plan->run_id, fault);
    err = err ? err : fs_runtime_dir(&runtime, fault);
    if (err != ERR_OK) {
        return err;
    }
    plan->socket_path = xasprintf("%s/%s.sock", runtime, plan->run_id);
    free(runtime);
    if (f->log) {
        plan->log_path = f->log[0] == '/' ? xstrdup(f->log) : NULL;
        if (!plan->log_path) { /* children and readers have other working directories */
            char *here = getcwd(NULL, 0);
            plan->log_path = xasprintf("%s/%s", here ? here : ".", f->log);
            free(here);
        }
    } else {
        char *state = NULL;
        err = fs_state_dir(&state, fault);
        if (err != ERR_OK) {
            return err;
        }
        plan->log_path = xasprintf("%s/%s.db", state, plan->run_id);
        free(state);
    }
    plan->work_dir = xasprintf("%s.d", plan->log_path);
    plan->config.name = name;
    return ERR_OK;
}

/* The directory that a flag names is there, or can be made. */
static Err check_makeable(const char *flag, const char *path, Fault *fault)
{
    char *place = xstrdup(path);
    while (!fs_exists(place) && strcmp(place, ".") != 0 && strcmp(place, "/") != 0) {
        char *up = parent_of(place);
        free(place);
        place = up;
    }
    Err err = ERR_OK;
    if (!fs_is_dir(place)) {
        err = fault_set(fault, ERR_ARG, "name a directory", "--%s %s: %s is not a directory", flag,
                        path, place);
    } else if (access(place, W_OK) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, "name another place",
                            "--%s %s: %s cannot be written", flag, path, place);
    }
    free(place);
    return err;
}

Err run_plan_log_place(const char *log, bool resume, Fault *fault)
{
    if (resume != fs_exists(log)) {
        return resume ? fault_set(fault, ERR_NOT_FOUND, "name the log of the run",
                                  "--resume: there is no %s", log)
                      : fault_set(fault, ERR_EXISTS,
                                  "name another file, or go on with it: rolltop run --resume",
                                  "--log %s is there already", log);
    }
    char *folder = parent_of(log);
    Err err = ERR_OK;
    if (!fs_is_dir(folder)) {
        err = fault_set(fault, ERR_NOT_FOUND, "make it, or name another place",
                        "the log's directory %s does not exist", folder);
    } else if (access(folder, W_OK) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, "name another place with --log",
                            "the log's directory %s cannot be written", folder);
    }
    free(folder);
    return err;
}

Err plan_places(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    Err err = run_plan_log_place(plan->log_path, f->resume, fault);
    return err != ERR_OK || !f->save ? err : check_makeable("save", f->save, fault);
}

Err plan_room(const RunPlan *plan, int64_t bytes, Fault *fault)
{
    char *folder = parent_of(plan->log_path);
    uint64_t room = 0;
    Err err = fs_free_bytes(folder, &room, fault);
    if (err == ERR_OK && room < (uint64_t)bytes + SPARE_BYTES) {
        err = fault_set(fault, ERR_LIMIT, "free some, name another place with --log, or lower "
                        "--keep-policies",
                        "%s has %lld MiB free; log, policies and trainer state need about %lld",
                        folder, (long long)(room >> 20),
                        (long long)((bytes + SPARE_BYTES) >> 20));
    }
    free(folder);
    return err;
}

/* A sample under way is a connection of the core, and two of the frontend. The soft bound is ours
 * to raise; children inherit it. */
Err plan_files(const RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return ERR_OK;
    }
    if (files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    int64_t engines = f->local_engines > 0 ? f->local_engines : (int64_t)f->engine_addrs.count;
    int64_t samples = f->rollout_batch_size * f->n_samples_per_prompt;
    int64_t bound = f->concurrency * (engines > 0 ? engines : 1);
    int64_t need = 2 * (samples < bound ? samples : bound) + FILES_BESIDE;
    if (files.rlim_max != RLIM_INFINITY && files.rlim_max < (rlim_t)need) {
        return fault_set(fault, ERR_LIMIT,
                         "raise it (ulimit -n), or lower --sglang-server-concurrency",
                         "at most %lld files may be open here, and this run needs about %lld",
                         (long long)files.rlim_max, (long long)need);
    }
    return ERR_OK;
}
