/* What must not go wrong: killed writers, second writers, foreign, newer, damaged and read-only
 * files, a full disk, a full queue. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/rng.h"
#include "store/maintain.h"
#include "store/query.h"
#include "tests/harness.h"
#include "tests/store/raw_sql.h"
#include "tests/store/scene.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *dir, *path, *copy;

static void fresh(void)
{
    dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
    copy = xasprintf("%s/copy.db", dir);
}

static void gone(void)
{
    free(path);
    free(copy);
    scene_remove(dir);
}

static void put_scene(void)
{
    Store *store = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    scene_put(store);
    store_close(store);
}

static Err open_write(const char *file, Fault *fault)
{
    Store *store = NULL;
    *fault = (Fault){0};
    Err err = store_open(file, NULL, &store, fault);
    store_close(store);
    return err;
}

static Err open_read(const char *file, Fault *fault)
{
    View *view = NULL;
    *fault = (Fault){0};
    Err err = view_open(file, &view, fault);
    view_close(view);
    return err;
}

static void text_event(Store *store, int64_t i)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)i);
    EventFact event = {.t_us = AT(i), .source = "core", .text = text};
    store_put_event(store, &event);
}

/* ---- killed writers ---- */

static void write_until_killed(int pipe_fd, int64_t from)
{
    Store *store = NULL;
    if (store_open(path, NULL, &store, NULL) != ERR_OK) {
        _exit(1);
    }
    for (int64_t i = from;; i++) {
        text_event(store, i);
        for (int p = 0; p < 20; p++) {
            scene_probe(store, 1 + p % 2, (double)i, (double)i, true);
        }
        /* Only what was durable is told. */
        if (store_wait(store, store_ticket(store), 60000, NULL) != ERR_OK ||
            write(pipe_fd, &i, sizeof i) != (ssize_t)sizeof i) {
            _exit(2);
        }
    }
}

static void test_killed_writer_loses_nothing_acknowledged(void)
{
    fresh();
    Rng rng;
    rng_seed(&rng, 7);
    int64_t acknowledged = 0;
    for (int round = 0; round < 12; round++) {
        int ends[2];
        CHECK_I64(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            write_until_killed(ends[1], acknowledged + 1);
        }
        close(ends[1]);
        int64_t i = 0;
        if (read(ends[0], &i, sizeof i) == (ssize_t)sizeof i) { /* however slow the machine is */
            acknowledged = i;
        }
        clock_sleep_us((int64_t)rng_below(&rng, 40000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(ends[0], &i, sizeof i) == (ssize_t)sizeof i) {
            acknowledged = i;
        }
        close(ends[0]);
        /* Read as it lies there, before any writer repairs it. */
        Fault fault;
        CHECK_I64(open_read(path, &fault), ERR_OK);
        int64_t newest = number(path, "SELECT coalesce(max(CAST(text AS INTEGER)), 0) FROM event");
        CHECK(newest >= acknowledged);
        CHECK(newest <= acknowledged + 1);
        acknowledged = newest;
        CHECK_I64(number(path, "SELECT count(*) = count(DISTINCT text) FROM event"), 1);
        CHECK_I64(number(path, "SELECT count(*) FROM event"), acknowledged);
        CHECK_I64(number(path, "SELECT count(*) FROM pragma_integrity_check"
                               " WHERE integrity_check <> 'ok'"), 0);
    }
    CHECK(acknowledged > 20);
    printf("     %lld events acknowledged over 12 kills\n", (long long)acknowledged);
    gone();
}

static void test_orphans_are_closed(void)
{
    fresh();
    put_scene(); /* its last sample, step and phase are open, as if the core was killed */
    Store *store = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    CHECK_I64(store_marks(store)->last_step_ended, 1);
    CHECK_I64(store_marks(store)->sample, 12);
    CHECK_I64(store_marks(store)->session, 1);
    CHECK_I64(store_marks(store)->engine, 2);
    SessionFact session = {.session = 2, .t_us = AT(100), .pid = 43, .how = "resume"};
    store_put_session(store, &session);
    scene_step_begin(store, 2, 101);
    CHECK_I64(store_wait(store, store_ticket(store), 60000, &fault), ERR_OK);
    View *view = NULL;
    Arena *arena = arena_new(1 << 24);
    CHECK_I64(view_open(path, &view, &fault), ERR_OK);
    SampleView sample;
    CHECK(view_sample(view, 12, AT(102), arena, &sample));
    CHECK_I64(sample.fate, FATE_LOST);
    CHECK_I64(sample.ended_us, AT(60.002));
    CHECK_STR(sample.reason, "the core ended");
    CHECK_I64(view_tail(view, AT(102), 9, arena).total, 0);
    CHECK_I64(view_tail(view, AT(59), 9, arena).total, 1);
    StepList steps = view_steps(view, AT(102), 9, arena);
    CHECK_I64(steps.count, 3);
    CHECK_I64(steps.rows[0].started_us, AT(101));
    steps = view_steps(view, AT(100.5), 9, arena);
    CHECK_STR(steps.rows[0].outcome, "interrupted");
    view_close(view);
    arena_free(arena);
    store_close(store);
    gone();
}

/* ---- who may open what ---- */

static void test_second_writer(void)
{
    fresh();
    Store *store = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    CHECK_I64(open_write(path, &fault), ERR_STATE);
    char *other = xasprintf("%s.link", path);
    CHECK_I64(symlink(path, other), 0);
    CHECK_I64(open_write(other, &fault), ERR_STATE); /* another name is the same log */
    CHECK_I64(unlink(other), 0);
    free(other);
    char pid[24];
    snprintf(pid, sizeof pid, "process %lld", (long long)getpid());
    CHECK(strstr(fault.sentence, pid) != NULL);
    CHECK(strstr(fault.sentence, path) != NULL);
    CHECK_I64(open_read(path, &fault), ERR_OK);
    store_close(store);
    CHECK_I64(open_write(path, &fault), ERR_OK);
    gone();
}

static void test_foreign_and_newer(void)
{
    fresh();
    Fault fault;
    CHECK_I64(open_read(path, &fault), ERR_NOT_FOUND);
    CHECK_I64(open_read(dir, &fault), ERR_ARG);
    run_sql(path, "CREATE TABLE other (a); INSERT INTO other VALUES (1)");
    CHECK_I64(open_read(path, &fault), ERR_FORMAT);
    CHECK(strstr(fault.sentence, "not a rolltop log") != NULL);
    CHECK_I64(open_write(path, &fault), ERR_FORMAT);
    CHECK_I64(number(path, "SELECT count(*) FROM sqlite_master"), 1);
    unlink(path);
    const char *words = "this is a text file, long enough to be one and not a database at all, "
                        "with more than a hundred bytes in it, as real ones have";
    CHECK_I64(fs_write_atomic(path, words, strlen(words), NULL), ERR_OK);
    CHECK_I64(open_read(path, &fault), ERR_FORMAT);
    CHECK_I64(open_write(path, &fault), ERR_FORMAT);
    unlink(path);
    put_scene();
    run_sql(path, "PRAGMA user_version = 7");
    CHECK_I64(open_read(path, &fault), ERR_UNSUPPORTED);
    CHECK(strstr(fault.sentence, "schema 7") != NULL);
    CHECK_I64(open_write(path, &fault), ERR_UNSUPPORTED);
    run_sql(path, "PRAGMA user_version = 1;"
                  "UPDATE enumeration SET word = 'sleepy' WHERE kind = 'engine_state'"
                  " AND code = 0");
    CHECK_I64(open_read(path, &fault), ERR_UNSUPPORTED);
    CHECK(strstr(fault.sentence, "sleepy") != NULL);
    /* An empty file is a new log for a writer, and says so to a reader. */
    unlink(path);
    CHECK_I64(fs_write_atomic(path, "", 0, NULL), ERR_OK);
    CHECK_I64(open_read(path, &fault), ERR_FORMAT);
    CHECK(strstr(fault.sentence, "empty") != NULL);
    CHECK_I64(open_write(path, &fault), ERR_OK);
    char *missing = xasprintf("%s/no/such/run.db", dir);
    CHECK_I64(open_write(missing, &fault), ERR_IO);
    CHECK(strstr(fault.sentence, missing) != NULL);
    free(missing);
    gone();
}

/* In a child without privileges: root may write anywhere. */
static int as_nobody(int (*function)(void))
{
    pid_t child = fork();
    if (child == 0) {
        bool dropped = geteuid() != 0 || setresuid(65534, 65534, 65534) == 0;
        _exit(dropped ? function() : 9);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static int reads_scene(void)
{
    View *view = NULL;
    Fault fault = {0};
    if (view_open(path, &view, &fault) != ERR_OK) {
        fprintf(stderr, "  %s\n", fault.sentence);
        return 1;
    }
    Arena *arena = arena_new(1 << 24);
    StepList steps = view_steps(view, AT(60), 10, arena);
    view_close(view);
    arena_free(arena);
    return steps.count == 3 ? 0 : 2;
}

/* A run may take another place; the care of a log may not, and nothing of it goes on by itself. */
static int cannot_write(void)
{
    Fault fault = {0};
    Err err = open_write(path, &fault);
    bool good = err == ERR_IO && strstr(fault.sentence, path) != NULL &&
                strstr(fault.hint, " or name another place with --log") != NULL;
    fault = (Fault){0};
    err = log_compact(path, stdout, &fault);
    good = good && err == ERR_IO && strstr(fault.sentence, path) != NULL && fault.hint[0] != '\0' &&
           strstr(fault.hint, "--log") == NULL && strstr(fault.hint, "by itself") == NULL;
    return good ? 0 : 1;
}

static void test_read_only_directory(void)
{
    fresh();
    put_scene();
    chmod(path, 0444);
    chmod(dir, 0555);
    CHECK_I64(as_nobody(reads_scene), 0);
    CHECK_I64(as_nobody(cannot_write), 0);
    chmod(dir, 0755);
    gone();
}

static int reads_or_explains(void)
{
    Fault fault;
    Err err = open_read(path, &fault);
    if (err == ERR_OK) {
        return reads_scene();
    }
    fprintf(stderr, "     (%s)\n", fault.sentence);
    return strstr(fault.sentence, "-wal") != NULL && fault.hint[0] != '\0' ? 0 : 3;
}

/* What a killed writer leaves, on a directory that may only be read: with its -shm it is read,
 * without it the words say what is missing. Never an older state in silence. */
static void test_killed_log_in_read_only_directory(void)
{
    fresh();
    pid_t child = fork();
    if (child == 0) {
        Store *store = NULL;
        if (store_open(path, NULL, &store, NULL) != ERR_OK) {
            _exit(1);
        }
        scene_put(store);
        _exit(store_wait(store, store_ticket(store), 10000, NULL) == ERR_OK ? 0 : 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK_I64(WEXITSTATUS(status), 0);
    char *wal = xasprintf("%s-wal", path);
    char *shm = xasprintf("%s-shm", path);
    CHECK(fs_exists(wal));
    chmod(dir, 0555);
    CHECK_I64(as_nobody(reads_scene), 0);
    chmod(dir, 0755);
    unlink(shm);
    chmod(dir, 0555);
    CHECK_I64(as_nobody(reads_or_explains), 0);
    chmod(dir, 0755);
    CHECK_I64(reads_scene(), 0);
    free(wal);
    free(shm);
    gone();
}

static void copy_file(const char *from, const char *to, size_t bytes)
{
    Text text;
    text_init(&text, 64 << 20);
    CHECK_I64(fs_read(from, &text, NULL), ERR_OK);
    CHECK_I64(fs_write_atomic(to, text.p, bytes < text.n ? bytes : text.n, NULL), ERR_OK);
    text_free(&text);
}

/* A live log copied without its -wal shows an older moment, or says that nothing is in it. */
static void test_copy_of_live_log(void)
{
    fresh();
    Store *store = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    scene_put(store);
    CHECK_I64(store_wait(store, store_ticket(store), 60000, &fault), ERR_OK);
    copy_file(path, copy, SIZE_MAX);
    Err err = open_read(copy, &fault);
    CHECK(err == ERR_OK || (err == ERR_FORMAT && strstr(fault.sentence, "empty") != NULL));
    store_close(store);
    copy_file(path, copy, SIZE_MAX);
    CHECK_I64(open_read(copy, &fault), ERR_OK);
    gone();
}

/* ---- damage ---- */

/* Every question on a damaged file: it may fail with a sentence, it may not crash or hang. */
static void ask_all(View *view, Arena *arena)
{
    RunView run;
    HeaderView header;
    SampleView sample;
    TxnRow txn;
    EngineSpan *spans;
    CurvePoint *curve;
    ChildLineRow *lines;
    StripCell *strip;
    int64_t t_us = 0;
    view_run(view, arena, &run);
    for (double t = 0; t < 70; t += 23) {
        view_header(view, AT(t), arena, &header);
        view_engines(view, AT(t), 30, 1000000, arena);
        view_tail(view, AT(t), 10, arena);
        view_steps(view, AT(t), 10, arena);
        view_events(view, AT(t), 10, 0, "x", arena);
        view_alerts(view, AT(t), 10, arena);
        view_commands(view, AT(t), 10, arena);
        view_policies(view, AT(t), 10, arena);
        view_txns(view, AT(t), 10, arena);
        view_txn(view, 1, AT(t), arena, &txn);
        view_samples(view, 1, AT(t), 10, 0, arena);
        view_sample(view, 5, AT(t), arena, &sample);
        view_step_engines(view, 1, AT(t), arena, &spans);
        view_curve(view, "reward_mean", AT(t), 10, arena, &curve);
        view_child_lines(view, "trainer", AT(t), 10, arena, &lines);
        view_seek(view, MARK_PROBE, AT(t), 1, &t_us);
        view_strip(view, AT(0), AT(60), 30, arena, &strip);
    }
}

static void test_damage(void)
{
    fresh();
    put_scene();
    struct stat info;
    stat(path, &info);
    Rng rng;
    rng_seed(&rng, 11);
    int refused = 0;
    for (int i = 0; i < 60; i++) {
        copy_file(path, copy, i % 2 == 0 ? rng_below(&rng, (uint64_t)info.st_size) : SIZE_MAX);
        int fd = open(copy, O_RDWR);
        for (int flip = 0; fd >= 0 && i % 2 == 1 && flip < 40; flip++) {
            unsigned char byte = (unsigned char)rng_u64(&rng);
            off_t at = 100 + (off_t)rng_below(&rng, (uint64_t)info.st_size - 100);
            CHECK_I64(pwrite(fd, &byte, 1, at), 1);
        }
        close(fd);
        View *view = NULL;
        Fault fault = {0};
        Err err = view_open(copy, &view, &fault);
        refused += err != ERR_OK;
        CHECK(err == ERR_OK || fault.sentence[0] != '\0');
        if (err == ERR_OK) {
            Arena *arena = arena_new(32 << 20);
            ask_all(view, arena);
            arena_free(arena);
        }
        view_close(view);
        char *text = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&text, &n);
        query_topic(copy, "samples", true, out, NULL);
        query_topic(copy, "engines", false, out, NULL);
        fclose(out);
        free(text);
    }
    CHECK(refused > 10);
    gone();
}

/* ---- full disk, full queue ---- */

static void set_limit(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    CHECK_I64(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void wait_status(Store *store, StoreStatus status)
{
    for (int i = 0; i < 1200 && store_status(store, NULL) != status; i++) {
        clock_sleep_us(50000);
    }
    CHECK_I64(store_status(store, NULL), status);
}

static void test_full_disk(void)
{
    fresh();
    Store *store = NULL;
    Fault fault = {0};
    StoreConfig config = {.queue_facts = 500};
    CHECK_I64(store_open(path, &config, &store, &fault), ERR_OK);
    text_event(store, 1);
    CHECK_I64(store_wait(store, store_ticket(store), 60000, &fault), ERR_OK);
    set_limit(1000); /* the file may grow no more: what a full disk looks like to a writer */
    text_event(store, 2);
    Fault why = {0};
    CHECK(store_wait(store, store_ticket(store), 300, &why) != ERR_OK);
    CHECK(strstr(why.sentence, path) != NULL);
    wait_status(store, STORE_NOT_RECORDING);
    CHECK_I64(store_status(store, &why), STORE_NOT_RECORDING);
    CHECK(strstr(why.hint, "by itself") == NULL); /* that is the caller's to know */
    /* The queue keeps what is acted on and drops bulk rows, counted. */
    for (int i = 3; i <= 100; i++) {
        text_event(store, i);
    }
    for (int i = 0; i < 1000; i++) {
        scene_probe(store, 1, 3, 1, true);
    }
    CHECK_I64(store_dropped(store), 1000 - (500 - 99));
    CHECK_I64(open_read(path, &fault), ERR_OK);
    set_limit(RLIM_INFINITY);
    wait_status(store, STORE_RECORDING);
    CHECK_I64(store_wait(store, store_ticket(store), 60000, &fault), ERR_OK);
    store_close(store);
    CHECK_I64(number(path, "SELECT count(*) FROM event WHERE CAST(text AS INTEGER) > 0"), 100);
    CHECK_I64(number(path, "SELECT count(*) FROM probe"), 500 - 99);
    CHECK_I64(number(path, "SELECT count(*) FROM event WHERE text LIKE '%599 probe%dropped%'"), 1);
    CHECK_I64(number(path, "SELECT count(*) FROM outage WHERE to_us >= from_us"), 1);
    CHECK_I64(number(path, "SELECT count(*) FROM pragma_integrity_check"
                           " WHERE integrity_check <> 'ok'"), 0);
    gone();
}

/* A group is taken back, and what the writer knew before it cannot be read either: nothing is
 * recorded until it can, and then the counts go on where they stood. */
static void test_writer_knows_the_log_again(void)
{
    fresh();
    Store *store = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    scene_probe(store, 1, 1, 1000, true);
    scene_probe(store, 1, 2, 1100, true);
    CHECK_I64(store_wait(store, store_ticket(store), 60000, &fault), ERR_OK);
    run_sql(path, "ALTER TABLE probe RENAME TO probe_away");
    scene_probe(store, 1, 3, 1200, true);
    CHECK(store_wait(store, store_ticket(store), 300, &fault) != ERR_OK);
    wait_status(store, STORE_NOT_RECORDING);
    run_sql(path, "ALTER TABLE probe_away RENAME TO probe");
    wait_status(store, STORE_RECORDING);
    scene_probe(store, 1, 9, 1250, true);
    scene_probe(store, 1, 20, 1250, true); /* so that the second of the one before is written */
    fault = (Fault){0};
    CHECK_I64(store_wait(store, store_ticket(store), 60000, &fault), ERR_OK);
    store_close(store);
    CHECK_I64(number(path, "SELECT count(*) FROM probe"), 5);
    CHECK_I64(number(path, "SELECT tokens FROM tick ORDER BY second DESC LIMIT 1"), 250);
    gone();
}

static void test_close_is_bounded(void)
{
    fresh();
    Store *store = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    text_event(store, 1);
    CHECK_I64(store_wait(store, store_ticket(store), 60000, &fault), ERR_OK);
    set_limit(1000);
    text_event(store, 2);
    wait_status(store, STORE_NOT_RECORDING);
    int64_t start_us = clock_mono_us();
    store_close(store);
    CHECK(clock_mono_us() - start_us < 60 * INT64_C(1000000));
    set_limit(RLIM_INFINITY);
    CHECK_I64(open_write(path, &fault), ERR_OK);
    gone();
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    RUN(test_killed_writer_loses_nothing_acknowledged);
    RUN(test_orphans_are_closed);
    RUN(test_second_writer);
    RUN(test_foreign_and_newer);
    RUN(test_read_only_directory);
    RUN(test_killed_log_in_read_only_directory);
    RUN(test_copy_of_live_log);
    RUN(test_damage);
    RUN(test_full_disk);
    RUN(test_writer_knows_the_log_again);
    RUN(test_close_is_bounded);
    return test_end();
}
