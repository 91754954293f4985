/* The log at scale: one generated file, and what it costs to look at it, to write it, to keep its
 * -wal short. Arguments: what (make, keep, view, first, wal, all), rows (default 10,000,000), file.
 *   make  writes a log of that many rows: 16 engines, four probes a second each, 256 samples in
 *         flight with progress, steps of a minute, policies, transactions, alerts, output
 *   keep  the same, with everything older than half an hour trimmed while it is written
 *   view  the whole snapshot of a frame (every pane, strip and details) at random T and live
 *   wal   a writer that writes as fast as it can, ten views that read a frame once a second
 *   first `rolltop replay FILE` in a pseudo-terminal of 120x40, from fork to the last byte of the
 *         first frame; ROLLTOP names the program
 * Prints; judges nothing. `all` leaves no file. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/str.h"
#include "store/store.h"
#include "tui/snapshot.h"

#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENGINES = 16, PER_SECOND = 4, FLIGHTS = 256, STEP_S = 60, JUMPS = 200, VIEWS = 10 };
#define T0 INT64_C(1773484927000000)
#define KEEP_US INT64_C(1800000000)

/* ---- making ------------------------------------------------------------------------------- */

static void put_probes(Store *store, int64_t second)
{
    int64_t t_us = T0 + second * 1000000;
    for (int i = 0; i < PER_SECOND; i++) {
        for (int64_t e = 1; e <= ENGINES; e++) {
            int64_t at = t_us + i * 250000 + e * 10;
            bool ok = (second * 31 + e) % 997 != 0;
            ProbeFact probe = {.engine = e, .incarnation = 1 + second / 40000, .t_us = at,
                               .latency_us = 700 + (second * 7 + e * 13) % 900,
                               .kind = PROBE_LOADS, .outcome = ok ? "ok" : "timed out",
                               .status = ok ? 200 : 0, .policy_version = second / STEP_S};
            if (ok) {
                probe.running = val_of((double)(8 + (second + e) % 9), at);
                probe.waiting = val_of((double)(second % 5), at);
                probe.token_usage = val_of(0.5 + (double)(second % 40) / 100, at);
                probe.gen_tokens_total = val_of((double)second * 1000 + i * 250, at);
            }
            store_put_probe(store, &probe);
        }
    }
}

static void put_samples(Store *store, int64_t second, int64_t *sample)
{
    static const int32_t tokens[64] = {1, 2, 3};
    static const float logprobs[64] = {-0.5f};
    int64_t t_us = T0 + second * 1000000;
    int64_t step = second / STEP_S;
    for (int i = 0; i < FLIGHTS && second % STEP_S == 1; i++) {
        int64_t id = ++*sample;
        if (i % 8 == 0) {
            GroupFact group = {.group = (id - 1) / 8 + 1, .step = step, .t_us = t_us, .want = 8,
                               .prompt = STR("a prompt of some words"), .label = STR("7")};
            store_put_group(store, &group);
        }
        SampleStartFact start = {.sample = id, .group = (id - 1) / 8 + 1, .step = step,
                                 .t_us = t_us + i, .attempt = 1};
        store_put_sample_start(store, &start);
    }
    for (int i = 0; i < FLIGHTS && second % STEP_S > 1 && second % STEP_S < 50; i++) {
        SampleProgressFact p = {.sample = *sample - i, .t_us = t_us + 1000 + i,
                                .engine = 1 + i % ENGINES, .tokens = (second % STEP_S) * 40};
        store_put_sample_progress(store, &p);
    }
    for (int i = 0; i < FLIGHTS && second % STEP_S == 50; i++) {
        SampleSpan span = {0, 64, step};
        SampleEndFact end = {.sample = *sample - i, .t_us = t_us + i, .engine = 1 + i % ENGINES,
                             .attempt = 1, .fate = FATE_ACCEPTED, .finish = "stop",
                             .reward = val_of((double)(i % 4) / 4, t_us), .tokens = tokens,
                             .logprobs = logprobs, .token_count = 64, .spans = &span,
                             .span_count = 1, .text = STR("an answer of some words"),
                             .first_token_us = 40000};
        store_put_sample_end(store, &end);
    }
}

static void put_policy(Store *store, int64_t step, int64_t t_us)
{
    PolicyFact policy = {.version = step + 1, .t_us = t_us, .parent = step, .step = step,
                         .digest = "0123456789abcdef", .path = "/run/policies/1", .kind = "full"};
    TxnFact txn = {.txn = step + 1, .t_us = t_us + 1000, .from_version = step,
                   .to_version = step + 1, .engines = ENGINES};
    store_put_policy(store, &policy);
    store_put_txn(store, &txn);
    for (int64_t e = 1; e <= ENGINES; e++) {
        TxnAnswerFact answer = {.txn = step + 1, .engine = e, .incarnation = 1,
                                .t_us = t_us + 2000 + e, .took_us = 900, .phase = TXN_APPLY,
                                .ok = true};
        EngineStateFact up = {.engine = e, .incarnation = 1, .t_us = t_us + 3000 + e,
                              .state = ENGINE_UP, .policy_version = step + 1};
        store_put_txn_answer(store, &answer);
        store_put_engine_state(store, &up);
    }
    TxnDecisionFact decision = {.txn = step + 1, .t_us = t_us + 4000, .commit = true};
    TxnEndFact end = {.txn = step + 1, .t_us = t_us + 5000, .outcome = "committed"};
    PolicyStateFact state = {.version = step + 1, .t_us = t_us + 4500, .txn = step + 1,
                             .state = POLICY_COMMITTED};
    store_put_txn_decision(store, &decision);
    store_put_policy_state(store, &state);
    store_put_txn_end(store, &end);
}

static void put_loop(Store *store, int64_t second)
{
    int64_t t_us = T0 + second * 1000000;
    int64_t step = second / STEP_S;
    int64_t in_step = second % STEP_S;
    if (in_step == 0) {
        StepFact begin = {.step = step, .t_us = t_us, .policy_version = step};
        PhaseFact phase = {.phase_id = 2 * step + 1, .step = step, .t_us = t_us,
                           .phase = PHASE_GENERATE};
        store_put_step(store, &begin);
        store_put_phase(store, &phase);
    } else if (in_step == 51) {
        PhaseFact end = {.phase_id = 2 * step + 1, .step = step, .t_us = t_us, .end = true,
                         .phase = PHASE_GENERATE, .outcome = "ok"};
        PhaseFact train = {.phase_id = 2 * step + 2, .step = step, .t_us = t_us + 10,
                           .phase = PHASE_TRAIN};
        store_put_phase(store, &end);
        store_put_phase(store, &train);
    } else if (in_step == 57) {
        PhaseFact end = {.phase_id = 2 * step + 2, .step = step, .t_us = t_us, .end = true,
                         .phase = PHASE_TRAIN, .outcome = "ok"};
        store_put_phase(store, &end);
        put_policy(store, step, t_us + 1000);
        for (int i = 0; i < 20; i++) {
            char name[32];
            (void)str_format(name, sizeof name, "train/metric_%d", i);
            MetricFact metric = {.step = step, .t_us = t_us + 2000 + i, .name = name,
                                 .value = (double)(step % 100) / 100};
            store_put_metric(store, &metric);
        }
    } else if (in_step == 59) {
        StepFact end = {.step = step, .t_us = t_us, .end = true, .outcome = "ok",
                        .samples = FLIGHTS, .tokens = FLIGHTS * 64,
                        .reward_mean = val_of(0.375, t_us),
                        .eval_reward_mean = step % 10 == 0 ? val_of(0.5, t_us) : val_none()};
        store_put_step(store, &end);
    }
    if (second % 5 == 0) {
        EventFact event = {.t_us = t_us + 500000, .source = "core", .text = "something happened"};
        ChildLineFact line = {.t_us = t_us + 500000, .child = "trainer", .line = STR("a line")};
        store_put_event(store, &event);
        store_put_child_line(store, &line);
    }
    if (second % 600 == 300) {
        IncidentFact incident = {.incident = second / 600 + 1, .onset_us = t_us,
                                 .ended_us = t_us + 20000000, .class_name = "ENGINE-SLOW",
                                 .severity = SEVERITY_WARN, .engine = 1 + second % ENGINES};
        CommandFact command = {.command = second / 600 + 1, .t_us = t_us + 1000, .who = "ana",
                               .what = "pause", .state = "done"};
        store_put_incident(store, &incident);
        store_put_command(store, &command);
    }
}

static void put_second(Store *store, int64_t second, int64_t *sample)
{
    put_loop(store, second);
    put_samples(store, second, sample);
    put_probes(store, second);
}

static Store *open_log(const char *path, int64_t keep_us)
{
    Store *store = NULL;
    Fault fault = {0};
    StoreConfig config = {.keep_us = keep_us};
    if (store_open(path, &config, &store, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    RunFact run = {.t_us = T0, .run = "scale", .name = "scale", .argv_json = "[]",
                   .config_json = "{}"};
    SessionFact session = {.session = 1, .t_us = T0, .pid = 1, .how = "start"};
    store_put_run(store, &run);
    store_put_session(store, &session);
    for (int64_t e = 1; e <= ENGINES; e++) {
        char name[16];
        (void)str_format(name, sizeof name, "eng-%02lld", (long long)e - 1);
        EngineFact engine = {.engine = e, .t_us = T0, .name = name, .address = "127.0.0.1:1"};
        IncarnationFact born = {.engine = e, .incarnation = 1, .t_us = T0};
        store_put_engine(store, &engine);
        store_put_incarnation(store, &born);
    }
    return store;
}

/* Not faster than the disk: a dropped row would not be in the file. */
static void keep_pace(Store *store)
{
    uint64_t ticket = store_ticket(store);
    while (ticket - store_durable(store) > 20000) {
        store_wait(store, ticket - 10000, 10000, NULL);
    }
}

static long resident_kib(void)
{
    long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            kib = strtol(line + 6, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

static double per_second(void) /* rows, over a step */
{
    return ENGINES * PER_SECOND + FLIGHTS * 48.0 / STEP_S + FLIGHTS * 2.0 / STEP_S +
           (32 + 20 + 4 + 2 * ENGINES + 5) / (double)STEP_S + 0.4;
}

static void make(const char *path, int64_t rows, int64_t keep_us)
{
    int64_t seconds = (int64_t)((double)rows / per_second()) + 1;
    int64_t sample = 0;
    int64_t began_us = clock_mono_us();
    long early = 0;
    Store *store = open_log(path, keep_us);
    for (int64_t s = 0; s < seconds; s++) {
        put_second(store, s, &sample);
        keep_pace(store);
        if (s == seconds / 20) {
            early = resident_kib();
        }
    }
    store_wait(store, store_ticket(store), 60000, NULL);
    double took_s = (double)(clock_mono_us() - began_us) / 1e6;
    struct stat info = {0};
    stat(path, &info);
    printf("log_scale %s: %lld rows, %.1f h of log, %.0f MB, %.0f rows/s, dropped %llu; resident "
           "%.1f MiB after a twentieth, %.1f MiB at the end\n",
           keep_us > 0 ? "keep" : "make", (long long)rows, (double)seconds / 3600,
           (double)info.st_size / 1e6, (double)rows / took_s,
           (unsigned long long)store_dropped(store), (double)early / 1024,
           (double)resident_kib() / 1024);
    store_close(store);
}

/* ---- looking ------------------------------------------------------------------------------ */

typedef struct Frame {
    View *view;
    Arena *arena;
    Snapshot snap;
} Frame;

/* Everything any pane shows at once, with a detail page on top. */
static bool read_frame(Frame *f, int64_t t_us, int turn)
{
    static const DetailKind details[] = {DETAIL_NONE, DETAIL_ENGINE, DETAIL_STEP, DETAIL_POLICY};
    DetailKind detail = details[turn % 4];
    int64_t step = (t_us - T0) / 1000000 / STEP_S;
    SnapRequest request = {.t_us = t_us, .spark_count = 26, .spark_us = 2300000,
                           .tail_limit = 60, .event_limit = 60, .curves = true, .policies = true,
                           .commands = true, .strip_cells = 180, .step_engines = -1,
                           .detail = detail,
                           .detail_id = detail == DETAIL_ENGINE ? 1 + turn % ENGINES : step};
    return snapshot_read(f->view, &request, f->arena, &f->snap) == ERR_OK &&
           f->snap.engines.count == ENGINES;
}

static Frame frame_open(const char *path)
{
    Frame f = {.view = NULL};
    Fault fault = {0};
    if (view_open(path, &f.view, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    f.arena = arena_new(SNAP_ARENA_MAX);
    return f;
}

static void frame_close(Frame *f)
{
    view_close(f->view);
    arena_free(f->arena);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void look(const char *path)
{
    double jumps[JUMPS];
    int64_t began_us = clock_mono_us();
    Frame f = frame_open(path);
    RunView run = {0};
    view_run(f.view, f.arena, &run);
    if (!read_frame(&f, run.last_us, 0)) {
        fprintf(stderr, "log_scale: no frame: %s\n", f.snap.fault.sentence);
        exit(1);
    }
    double first_ms = (double)(clock_mono_us() - began_us) / 1000;
    int64_t span_us = run.last_us - T0 - 120000000;
    Rng rng;
    rng_seed(&rng, 5);
    int64_t cpu_us = clock_cpu_us();
    for (int i = 0; i < JUMPS; i++) {
        int64_t t_us = T0 + 60000000 + (int64_t)rng_below(&rng, (uint64_t)span_us);
        began_us = clock_mono_us();
        if (!read_frame(&f, t_us, i)) {
            fprintf(stderr, "log_scale: no frame: %s\n", f.snap.fault.sentence);
            exit(1);
        }
        jumps[i] = (double)(clock_mono_us() - began_us) / 1000;
    }
    cpu_us = clock_cpu_us() - cpu_us;
    qsort(jumps, JUMPS, sizeof *jumps, by_value);
    printf("log_scale view: open and first whole snapshot %.1f ms; jump to any T, all panes: p50 "
           "%.1f ms, p99 %.1f ms, worst %.1f ms, %.1f ms CPU each; resident %.1f MiB\n",
           first_ms, jumps[JUMPS / 2], jumps[JUMPS * 99 / 100], jumps[JUMPS - 1],
           (double)cpu_us / 1000 / JUMPS, (double)resident_kib() / 1024);
    frame_close(&f);
}

/* ---- the first frame of a process ---------------------------------------------------------- */

enum { FIRSTS = 5, QUIET_MS = 100, FRAME_BYTES = 2000 };

static double first_frame(const char *program, const char *path, double *cpu_ms)
{
    struct rusage used = {.ru_utime = {0, 0}};
    struct winsize size = {.ws_row = 40, .ws_col = 120};
    char buffer[65536];
    int terminal = -1;
    int64_t began_us = clock_mono_us();
    int64_t last_us = began_us;
    size_t bytes = 0;
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    if (child == 0) {
        setenv("TERM", "xterm-256color", 1);
        execl(program, program, "replay", path, (char *)NULL);
        _exit(127);
    }
    struct pollfd wait = {.fd = terminal, .events = POLLIN};
    while (poll(&wait, 1, bytes < FRAME_BYTES ? 20000 : QUIET_MS) > 0) {
        ssize_t n = read(terminal, buffer, sizeof buffer);
        if (n <= 0) {
            break;
        }
        bytes += (size_t)n;
        last_us = clock_mono_us();
    }
    kill(child, SIGKILL);
    wait4(child, NULL, 0, &used);
    close(terminal);
    *cpu_ms = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
              (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
    return bytes < FRAME_BYTES ? -1 : (double)(last_us - began_us) / 1000;
}

static void first(const char *path)
{
    const char *program = getenv("ROLLTOP") ? getenv("ROLLTOP") : "rolltop";
    double ms[FIRSTS];
    double cpu_ms[FIRSTS];
    for (int i = 0; i < FIRSTS; i++) {
        ms[i] = first_frame(program, path, &cpu_ms[i]);
    }
    qsort(cpu_ms, FIRSTS, sizeof *cpu_ms, by_value);
    qsort(ms, FIRSTS, sizeof *ms, by_value);
    if (ms[0] < 0) {
        fprintf(stderr, "log_scale: %s replay %s shows no frame\n", program, path);
        exit(1);
    }
    printf("log_scale first: first frame of replay, best %.1f ms, median %.1f ms, worst %.1f ms; "
           "%.1f ms CPU of the process\n",
           ms[0], ms[FIRSTS / 2], ms[FIRSTS - 1], cpu_ms[FIRSTS / 2]);
}

/* ---- ten readers -------------------------------------------------------------------------- */

typedef struct Reader {
    const char *path;
    pthread_t thread;
    atomic_bool *stop;
    int64_t frames;
    double worst_ms;
} Reader;

static void *read_on(void *argument)
{
    Reader *r = argument;
    Frame f = frame_open(r->path);
    for (int turn = 0; !atomic_load(r->stop); turn++) {
        int64_t began_us = clock_mono_us();
        RunView run = {0};
        arena_reset(f.arena);
        view_run(f.view, f.arena, &run);
        read_frame(&f, run.last_us, turn);
        double took_ms = (double)(clock_mono_us() - began_us) / 1000;
        r->worst_ms = took_ms > r->worst_ms ? took_ms : r->worst_ms;
        r->frames++;
        int64_t rest_us = 1000000 - (clock_mono_us() - began_us);
        if (rest_us > 0) {
            clock_sleep_us(rest_us);
        }
    }
    frame_close(&f);
    return NULL;
}

static void wal(const char *path, int64_t rows)
{
    atomic_bool stop = false;
    Reader readers[VIEWS];
    char *name = xasprintf("%s-wal", path);
    int64_t seconds = (int64_t)((double)rows / per_second()) + 1;
    int64_t sample = 0;
    int64_t most = 0;
    Store *store = open_log(path, 0);
    for (int64_t s = 0; s < 60; s++) {
        put_second(store, s, &sample);
    }
    store_wait(store, store_ticket(store), 60000, NULL);
    for (int i = 0; i < VIEWS; i++) {
        readers[i] = (Reader){.path = path, .stop = &stop};
        pthread_create(&readers[i].thread, NULL, read_on, &readers[i]);
    }
    int64_t began_us = clock_mono_us();
    for (int64_t s = 60; s < seconds; s++) {
        struct stat info = {0};
        put_second(store, s, &sample);
        keep_pace(store);
        stat(name, &info);
        most = (int64_t)info.st_size > most ? (int64_t)info.st_size : most;
    }
    store_wait(store, store_ticket(store), 60000, NULL);
    double took_s = (double)(clock_mono_us() - began_us) / 1e6;
    atomic_store(&stop, true);
    int64_t frames = 0;
    double worst_ms = 0;
    for (int i = 0; i < VIEWS; i++) {
        pthread_join(readers[i].thread, NULL);
        frames += readers[i].frames;
        worst_ms = readers[i].worst_ms > worst_ms ? readers[i].worst_ms : worst_ms;
    }
    printf("log_scale wal: %d views read %lld frames (worst %.0f ms) beside %.0f rows/s for %.1f "
           "s; the -wal was at most %.1f MB, dropped %llu\n",
           VIEWS, (long long)frames, worst_ms, (double)rows / took_s, took_s, (double)most / 1e6,
           (unsigned long long)store_dropped(store));
    store_close(store);
    free(name);
}

static void remove_log(const char *path)
{
    static const char *const tails[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        char *name = xasprintf("%s%s", path, tails[i]);
        unlink(name);
        free(name);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    int64_t rows = 10000000;
    bool good = argc <= 2 || str_to_i64(str_from(argv[2]), &rows);
    char *own = xasprintf("%s/rolltop-scale-%lld.db", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
                          (long long)getpid());
    const char *path = argc > 3 ? argv[3] : own;
    bool all = strcmp(what, "all") == 0;
    if (!good || rows < 100000 || (!all && strcmp(what, "make") != 0 &&
                                   strcmp(what, "view") != 0 && strcmp(what, "wal") != 0 &&
                                   strcmp(what, "first") != 0 && strcmp(what, "keep") != 0)) {
        fputs("usage: log_scale make|keep|view|first|wal|all [ROWS >= 100000] [FILE]\n", stderr);
        free(own);
        return 2;
    }
    if (all || strcmp(what, "make") == 0) {
        remove_log(path);
        make(path, rows, 0);
    }
    if (strcmp(what, "keep") == 0) {
        remove_log(path);
        make(path, rows, KEEP_US);
    }
    if (all || strcmp(what, "view") == 0) {
        look(path);
    }
    if (strcmp(what, "first") == 0 || (all && getenv("ROLLTOP"))) {
        first(path);
    }
    if (all || strcmp(what, "wal") == 0) {
        remove_log(path);
        wal(path, rows);
        remove_log(path);
    }
    free(own);
    return 0;
}
