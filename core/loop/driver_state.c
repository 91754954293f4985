/* The trainer's states on disk (trainer/step-N): which of them the run can fall back to, and what
 * goes when it is too old. What was trained after a state is trained again from the log
 * (driver_replay.c). */
#include "core/loop/driver_private.h"

#include "core/base/fs.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { STATES_KEPT = 2 };

typedef struct StateScan {
    int64_t below;              /* looked for: the newest ones of a step before this */
    int64_t steps[STATES_KEPT]; /* newest first; -1: none */
    int64_t drop_before;
} StateScan;

/* Calls `each` for every state, in no order. */
static void each_state(Driver *d, StateScan *scan,
                       void (*each)(Driver *d, const char *path, int64_t step, StateScan *scan))
{
    char *where = fs_join(d->config->work_dir, "trainer");
    DIR *dir = opendir(where);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        int64_t step = 0;
        Str name = str_from(entry->d_name);
        if (str_starts(name, STR("step-")) && str_to_i64(str_slice(name, 5, name.n), &step)) {
            char *path = fs_join(where, entry->d_name);
            each(d, path, step, scan);
            free(path);
        }
    }
    if (dir) {
        closedir(dir);
    }
    free(where);
}

/* A model's size each: what cannot be removed is said, once until a removal succeeds again. */
static bool removed(Driver *d, const char *path)
{
    Fault fault = {0};
    Err err = fs_remove_tree(path, &fault);
    if (err != ERR_OK && !d->train.stuck) {
        driver_event(d, SEVERITY_WARN, "trainer", 0, "%s; it takes its place on the disk until it "
                     "is removed by hand", fault.sentence);
    }
    d->train.stuck = err != ERR_OK;
    return err == ERR_OK;
}

static void note_state(Driver *d, const char *path, int64_t step, StateScan *scan)
{
    (void)d;
    if (step < 0 || step >= scan->below || !fs_is_dir(path)) {
        return;
    }
    for (int i = 0; i < STATES_KEPT; i++) {
        if (step > scan->steps[i]) {
            int64_t older = scan->steps[i];
            scan->steps[i] = step;
            step = older;
        }
    }
}

static void drop_older(Driver *d, const char *path, int64_t step, StateScan *scan)
{
    if (step < scan->drop_before) {
        (void)removed(d, path);
    }
}

static StateScan newest_states(Driver *d, int64_t below)
{
    StateScan scan = {.below = below};
    for (int i = 0; i < STATES_KEPT; i++) {
        scan.steps[i] = -1;
    }
    each_state(d, &scan, note_state);
    return scan;
}

void driver_states_keep(Driver *d)
{
    StateScan scan = newest_states(d, d->train.state_step + 1);
    scan.drop_before = scan.steps[STATES_KEPT - 1];
    each_state(d, &scan, drop_older);
}

void driver_state_saved(Driver *d, int64_t step)
{
    free(d->train.dir);
    d->train.dir = driver_path(d, "trainer", "step-", step);
    d->train.state_step = step;
}

/* The newest state before that step; without one the checkpoint that the run began with. */
static void take_state_before(Driver *d, int64_t step)
{
    StateScan scan = newest_states(d, step);
    if (scan.steps[0] > d->config->loop.start_step - 1) {
        driver_state_saved(d, scan.steps[0]);
        return;
    }
    free(d->train.dir);
    d->train.dir = xstrdup(d->config->trainer.load_dir);
    d->train.state_step = d->config->loop.start_step - 1;
}

void driver_state_begin(Driver *d)
{
    d->train.dir = xstrdup(d->config->trainer.load_dir);
    d->train.state_step = d->train.done = d->config->loop.start_step - 1;
}

bool driver_state_fall_back(Driver *d, const char *why)
{
    if (d->train.state_step < d->config->loop.start_step) {
        return false; /* the checkpoint itself: there is nothing before it */
    }
    char *bad = d->train.dir;
    d->train.dir = NULL;
    take_state_before(d, d->train.state_step);
    driver_event(d, SEVERITY_CRIT, "trainer", 0, "%s; it goes on from %s, and what was trained "
                 "since is trained again from the log", why, d->train.dir);
    (void)removed(d, bad);
    free(bad);
    return true;
}

void driver_state_resume(Driver *d, int64_t done, const char *recorded, int64_t recorded_step)
{
    d->train.done = done;
    if (recorded && fs_is_dir(recorded)) {
        free(d->train.dir);
        d->train.dir = xstrdup(recorded);
        d->train.state_step = recorded_step;
        return;
    }
    take_state_before(d, done + 1);
    if (recorded) {
        driver_event(d, SEVERITY_WARN, "trainer", 0, "%s is not there; it goes on from %s",
                     recorded, d->train.dir);
    }
}

/* What a killed trainer was writing (learner_files.c: NAME.tmp-PID, NAME.old-PID) is of no use to
 * anybody. No trainer of this run lives when this is called. */
void driver_states_sweep(Driver *d, const char *folder)
{
    char *where = fs_join(d->config->work_dir, folder);
    DIR *dir = opendir(where);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot && (strncmp(dot, ".tmp-", 5) == 0 || strncmp(dot, ".old-", 5) == 0)) {
            char *path = fs_join(where, entry->d_name);
            (void)removed(d, path);
            free(path);
        }
    }
    if (dir) {
        closedir(dir);
    }
    free(where);
}
