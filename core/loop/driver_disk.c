/* What the trainer cannot write, because the disk refuses it: a policy that is to be published, its
 * state after a step. The run is held there: the trainer keeps what it has trained, engines serve
 * the committed policy, an alert names file, cause and room, and the write is tried again
 * (disk_wait.h). */
#include "core/loop/driver_private.h"

#include "core/base/fs.h"

#include <stdlib.h>
#include <string.h>

static const char *words_of(DiskWrite what)
{
    return what == DISK_POLICY ? "the policy" : "the trainer's state";
}

static int64_t bytes_of(const Driver *d, DiskWrite what)
{
    int64_t each = what == DISK_STATE ? 12 : d->config->publish_dtype == MODEL_F32 ? 4 : 2;
    return model_parameter_count(&d->model) * each;
}

static long long mebibytes(int64_t bytes)
{
    return (long long)((bytes + (1 << 20) - 1) >> 20);
}

/* "the policy is not written: No space left on device (it needs 24 MiB, 1 are free): cannot write
 * FILE": the file comes last, since long names are cut in an alert. */
static void describe(const Driver *d, DiskWrite what, const Fault *fault, char *out, size_t size)
{
    int64_t bytes = bytes_of(d, what);
    uint64_t room = 0;
    char free_words[48] = "";
    char *where = fs_join(d->config->work_dir, what == DISK_POLICY ? "policies" : "trainer");
    bool known = fs_free_bytes(where, &room, NULL) == ERR_OK;
    free(where);
    if (known && room < (uint64_t)bytes) {
        (void)str_format(free_words, sizeof free_words, ", %lld are free",
                         (long long)(room >> 20));
    }
    Str sentence = str_from(fault->sentence);
    size_t colon = 0;
    bool named = str_rfind(sentence, STR(": "), &colon);
    Str cause = named ? str_slice(sentence, colon + 2, sentence.n) : sentence;
    Str file = named ? str_slice(sentence, 0, colon) : STR("");
    (void)str_format(out, size, "%s is not written: %.*s (it needs %lld MiB%s)%s%.*s",
                     words_of(what), (int)cause.n, cause.p, mebibytes(bytes), free_words,
                     named ? ": " : "", (int)file.n, file.p);
}

bool driver_disk_refused(Driver *d, DiskWrite what, const Fault *fault)
{
    if (fault->code != ERR_IO || d->train.stopped || d->shutting) {
        d->disk = (DriverDisk){0}; /* it ends otherwise, and with it what was held */
        return false;
    }
    char how[sizeof d->disk.how];
    int64_t now_us = clock_mono_us();
    describe(d, what, fault, how, sizeof how);
    disk_wait_refused(&d->disk.wait, now_us);
    if (d->disk.what != what || d->disk.wait.tries == 1 ||
        strcmp(how, d->disk.how) != 0) { /* the same words once, not each time */
        driver_event(d, SEVERITY_CRIT, "trainer", 0, "held: %s; tried again by itself, `rolltop "
                     "ctl resume` at once", how);
        if (d->config->lines && d->disk.wait.tries == 1) {
            fprintf(d->config->lines, "held: %s\n", how);
            fflush(d->config->lines);
        }
    }
    d->disk.what = what;
    memcpy(d->disk.how, how, sizeof how);
    driver_diagnose_tick(d, now_us);
    return true;
}

void driver_disk_written(Driver *d)
{
    if (d->disk.wait.since_us > 0) {
        double seconds = (double)(clock_mono_us() - d->disk.wait.since_us) / 1e6;
        driver_event(d, SEVERITY_INFO, "trainer", 0, "%s is written after %.0f s and %d refusals",
                     words_of(d->disk.what), seconds, d->disk.wait.tries);
        d->disk = (DriverDisk){0};
    }
}

bool driver_disk_now(Driver *d)
{
    return disk_wait_now(&d->disk.wait, clock_mono_us());
}

/* The activity ends without its write. */
static void end_wait(Driver *d, bool fatal)
{
    DriverDisk disk = d->disk;
    d->disk = (DriverDisk){0};
    driver_feed(d, disk.what == DISK_POLICY ? LOOP_EV_PUBLISH_FAILED : LOOP_EV_TRAIN_FAILED, fatal,
                disk.how);
}

void driver_disk_cancel(Driver *d)
{
    if (d->disk.wait.due_us > 0) { /* else the trainer's answer ends the activity */
        end_wait(d, false);
    }
}

/* What waited to be kept went with the process; a policy can be made again from its state. */
void driver_disk_trainer_ended(Driver *d)
{
    if (d->disk.wait.due_us > 0 && d->disk.what == DISK_STATE) {
        end_wait(d, false);
    }
}

void driver_disk_tick(Driver *d, int64_t now_us)
{
    if (d->shutting || d->train.stage != TRAINER_READY) {
        return;
    }
    switch (disk_wait_tick(&d->disk.wait, d->config->disk_wait_us, now_us)) {
    case DISK_WAIT_NOTHING:
        break;
    case DISK_WAIT_TRY:
        if (d->disk.what == DISK_POLICY) {
            driver_publish(d, d->policy.publishing);
        } else {
            driver_save_state(d);
        }
        break;
    case DISK_WAIT_GIVE_UP:
        if (d->disk.what == DISK_STATE) { /* memory and disk disagree: the step is done again */
            driver_trainer_restart(d, d->disk.how);
        }
        end_wait(d, true);
        break;
    }
}
