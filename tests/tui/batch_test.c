/* events --follow and top on a log that is being written: nothing twice, nothing left out, in
 * order, also in bursts that are larger than a page; and the end comes with the end of the run. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "store/store.h"
#include "tests/harness.h"
#include "tui/batch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { EVENTS = 4000, BEFORE = 1300, BURST = 900, PICTURES = 5 };

static char folder[] = "/tmp/rolltop-batch-XXXXXX";
static char path[64];
static Store *store;
static int64_t now_us;

static void put_events(int from, int to)
{
    for (int i = from; i < to; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "number %d", i);
        /* Times go back by a millisecond now and then, as those of several parts do. */
        EventFact fact = {now_us + i * 1000 - (i % 7 == 0 ? 1500 : 0),
                          i % 10 == 0 ? SEVERITY_WARN : SEVERITY_INFO, "core", 0, text};
        store_put_event(store, &fact);
    }
    CHECK(store_wait(store, store_ticket(store), 60000, NULL) == ERR_OK);
}

typedef struct Job {
    BatchOptions options;
    Err (*run)(const BatchOptions *options, int out, Fault *fault);
    int out;
    Err err;
    Fault fault;
} Job;

static void *run_job(void *arg)
{
    Job *job = arg;
    job->err = job->run(&job->options, job->out, &job->fault);
    close(job->out);
    return NULL;
}

static atomic_int lines_read; /* of the newest read_numbers */

/* The numbers behind "number " in the lines of `in`, until its end; -1 for a line without. */
static int read_numbers(int in, int *numbers, int most)
{
    FILE *lines = fdopen(in, "r");
    char *line = NULL;
    size_t size = 0;
    int count = 0;
    atomic_store(&lines_read, 0);
    while (getline(&line, &size, lines) > 0) {
        const char *at = strstr(line, "number ");
        if (count < most) {
            numbers[count] = at ? atoi(at + 7) : -1;
        }
        count++;
        atomic_store(&lines_read, count);
    }
    free(line);
    fclose(lines);
    return count;
}

static void *read_all(void *arg)
{
    static int numbers[EVENTS + 100];
    int *in = arg;
    int count = read_numbers(*in, numbers, EVENTS + 100);
    CHECK_I64(count, EVENTS - BEFORE + 10);
    int wrong = 0;
    for (int i = 0; i < count && i < EVENTS; i++) {
        wrong += numbers[i] != BEFORE - 10 + i;
    }
    CHECK_I64(wrong, 0);
    return NULL;
}

static void follow(void)
{
    int ends[2];
    pthread_t writer;
    pthread_t reader;
    SessionFact session = {1, now_us, 0, getpid(), "start"};
    store_put_session(store, &session);
    put_events(0, BEFORE);
    CHECK(pipe(ends) == 0);
    Job job = {.options = {.log_path = path, .live = true, .json = true, .count = 10,
                           .follow = true}, .run = batch_events, .out = ends[1]};
    CHECK(pthread_create(&writer, NULL, run_job, &job) == 0);
    CHECK(pthread_create(&reader, NULL, read_all, &ends[0]) == 0);
    /* It has begun, with the ten newest, before there are newer ones. */
    int64_t until = clock_mono_us() + 60 * INT64_C(1000000);
    while (atomic_load(&lines_read) < 10 && clock_mono_us() < until) {
        clock_sleep_us(10000);
    }
    for (int from = BEFORE; from < EVENTS; from += BURST) {
        put_events(from, from + BURST < EVENTS ? from + BURST : EVENTS);
        clock_sleep_us(100000); /* so that some bursts meet a reader that waits, and some do not */
    }
    session.ended_us = clock_wall_us();
    store_put_session(store, &session);
    CHECK(store_wait(store, store_ticket(store), 60000, NULL) == ERR_OK);
    pthread_join(writer, NULL);
    pthread_join(reader, NULL);
    CHECK_I64(job.err, ERR_OK);
}

static int lines_of(const BatchOptions *options,
                    Err (*run)(const BatchOptions *options, int out, Fault *fault), Err want)
{
    int ends[2];
    pthread_t writer;
    CHECK(pipe(ends) == 0);
    Job job = {.options = *options, .run = run, .out = ends[1]};
    static int numbers[EVENTS];
    CHECK(pthread_create(&writer, NULL, run_job, &job) == 0);
    int lines = read_numbers(ends[0], numbers, EVENTS);
    pthread_join(writer, NULL);
    CHECK_I64(job.err, want);
    return lines;
}

static void of_a_log(void)
{
    BatchOptions options = {.log_path = path, .json = true, .count = 100000};
    CHECK_I64(lines_of(&options, batch_events, ERR_OK), EVENTS);
    options.filter = "severity:warning";
    options.count = 120;
    CHECK_I64(lines_of(&options, batch_events, ERR_OK), 120);
    options.filter = "no such words";
    CHECK_I64(lines_of(&options, batch_events, ERR_OK), 0);
    options.filter = NULL;
    options.count = PICTURES;
    options.every_us = 100000;
    options.at = "-2s";
    CHECK_I64(lines_of(&options, batch_top, ERR_OK), PICTURES);
    options.at = "v7";
    CHECK_I64(lines_of(&options, batch_snapshot, ERR_NOT_FOUND), 0);
    options.at = "-2s";
    options.log_path = "/nonexistent.db";
    CHECK(lines_of(&options, batch_snapshot, ERR_NOT_FOUND) == 0);
}

/* The reader is gone: said as EPIPE, at once and before anything is to be written. */
static void without_a_reader(void)
{
    int ends[2];
    BatchOptions options = {.log_path = path, .live = true, .json = true, .count = 5};
    Fault fault = {0};
    CHECK(pipe(ends) == 0);
    close(ends[0]);
    CHECK_I64(batch_top(&options, ends[1], &fault), ERR_IO);
    CHECK_I64(fault.sys_errno, EPIPE);
    close(ends[1]);
}

int main(void)
{
    Fault fault = {0};
    if (!mkdtemp(folder)) {
        return 1;
    }
    (void)snprintf(path, sizeof path, "%s/run.db", folder);
    now_us = clock_wall_us() - EVENTS * INT64_C(1000);
    if (store_open(path, NULL, &store, &fault) != ERR_OK) {
        fault_print(&fault);
        return 1;
    }
    RunFact run = {now_us, "r", "batch", "host", "0", "[]", "{}"};
    store_put_run(store, &run);
    RUN(follow);
    RUN(of_a_log);
    RUN(without_a_reader);
    store_close(store);
    (void)fs_remove_tree(folder, NULL);
    return test_end();
}
