/* How long a policy update keeps the gate closed: a real core, frontend and log, N synthetic
 * engines in one process, a trainer that learns nothing, and so many steps; then the ledger is
 * read. With --fail the last engine refuses a load now and then, so that the others go back.
 *   bench_gate ROLLTOP [--engines N] [--updates N] [--fail ROLLBACKS] [--keep DIR]
 * "Without loading" is the gate's time less the slowest engine's answer to the load. */
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "tests/stub_trainer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { ROWS_MAX = 8192, LINE = 4096, WAIT_S = 600 };

typedef struct Gate {
    const char *rolltop, *keep;
    int64_t engines, updates, fail, seed;
    char dir[256], base[512], log[512], file[512];
    int last_port;
    pid_t host, run;
} Gate;

static void die(const char *what)
{
    fprintf(stderr, "gate: %s\n", what);
    exit(1);
}

/* Output of a command, a line at a time; the words are ours, no shell's special ones. */
static FILE *listen_to(const char *format, ...) __attribute__((format(printf, 1, 2)));

static FILE *listen_to(const char *format, ...)
{
    char command[LINE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(command, sizeof command, format, args);
    va_end(args);
    FILE *out = popen(command, "r");
    if (!out) {
        die(command);
    }
    return out;
}

static pid_t start(const char *const *argv, const char *out)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "r", stdin) || !freopen(out, "w", stdout)) {
            _exit(127);
        }
        (void)dup2(1, 2);
        (void)execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

/* ---- the parts ---------------------------------------------------------------------------- */

static void make_task(Gate *g)
{
    FILE *out = listen_to("%s demo --headless --steps 1 --engines 1 --keep --log %s/task.db "
                          "</dev/null 2>&1", g->rolltop, g->dir);
    char line[LINE];
    while (fgets(line, sizeof line, out)) {
    }
    (void)pclose(out);
    (void)snprintf(g->base, sizeof g->base, "%s/task.db.d/task/base", g->dir);
    if (!fs_is_dir(g->base)) {
        die("the demo made no checkpoint");
    }
}

/* "engine NAME listening on http://HOST:PORT" of each. */
static int read_engines(const Gate *g, const char *from, FILE *to, int *last)
{
    FILE *in = fopen(from, "r");
    char line[LINE];
    int found = 0;
    while (in && fgets(line, sizeof line, in)) {
        const char *at = strstr(line, "http://");
        if (at && strchr(line, '\n')) {
            fprintf(to, "%s", at + 7);
            *last = atoi(strrchr(line, ':') + 1);
            found++;
        }
    }
    if (in) {
        (void)fclose(in);
    }
    (void)g;
    return found;
}

static void start_engines(Gate *g)
{
    char count[32], vocab[32], seen[512];
    ModelConfig model;
    Fault fault = {0};
    stub_must(model_config_load(g->base, &model, &fault), &fault);
    (void)snprintf(vocab, sizeof vocab, "%d", (int)model.vocab);
    (void)snprintf(count, sizeof count, "%lld", (long long)g->engines);
    (void)snprintf(seen, sizeof seen, "%s/engines.out", g->dir);
    (void)snprintf(g->file, sizeof g->file, "%s/engines.txt", g->dir);
    const char *argv[] = {g->rolltop, "engine", "--synthetic", "--count", count, "--port", "0",
                          "--faults", "--model-path", g->base, "--synthetic-tokens-per-s", "0",
                          "--vocab", vocab, "--incremental-streaming-output", NULL};
    g->host = start(argv, seen);
    int64_t until = clock_mono_us() + WAIT_S * INT64_C(100000);
    int found = 0;
    while (found < g->engines && clock_mono_us() < until) {
        FILE *to = fopen(g->file, "w");
        if (!to) {
            die(g->file);
        }
        clock_sleep_us(100000);
        found = read_engines(g, seen, to, &g->last_port);
        (void)fclose(to);
    }
    if (found < g->engines) {
        die("the engines do not listen");
    }
}

static void start_run(Gate *g)
{
    char steps[32], data[1024], out[512], self[512] = "";
    (void)snprintf(g->log, sizeof g->log, "%s/gate.db", g->dir);
    (void)snprintf(steps, sizeof steps, "%lld", (long long)(g->fail ? 1000000 : g->updates));
    (void)snprintf(data, sizeof data, "%s/../train.jsonl", g->base);
    (void)snprintf(out, sizeof out, "%s/run.out", g->dir);
    const char *probe = g->engines > 64 ? "5000" : "500"; /* all parts share this machine */
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    const char *argv[] = {
        g->rolltop, "run", "--headless", "--log", g->log, "--run-id", "gate", "--hf-checkpoint",
        g->base, "--prompt-data", data, "--label-key", "label", "--rm-type", "digits",
        "--rollout-batch-size", "4", "--n-samples-per-prompt", "2", "--rollout-max-response-len",
        "4", "--num-rollout", steps, "--engines-file", g->file, "--trainer", self,
        "--rollout-skip-special-tokens", "--publish-dtype", "f32", "--probe-ping-ms", probe,
        "--probe-loads-ms", probe, "--probe-model-ms", "10000", "--probe-metrics-ms", "0",
        "--probe-health-ms", "0", "--probe-stale-ms", "20000", "--probe-dead-ms", "30000", NULL};
    (void)setenv("BENCH_STUB_BASE", g->base, 1);
    g->run = start(argv, out);
}

static void fault_of_last(const Gate *g, const char *body)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)g->last_port)};
    char text[512];
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int n = snprintf(text, sizeof text, "POST /_fault HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(body), body);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0 ||
        send(fd, text, (size_t)n, MSG_NOSIGNAL) != n || recv(fd, text, sizeof text, 0) < 12 ||
        strncmp(text + 9, "200", 3) != 0) {
        die("the fault route refuses");
    }
    (void)close(fd);
}

/* ---- the ledger --------------------------------------------------------------------------- */

static double number(const Gate *g, const char *sql)
{
    FILE *in = listen_to("%s query %s --json --sql \"select (%s) n\" 2>/dev/null", g->rolltop,
                         g->log, sql);
    char line[LINE] = "";
    double value = 0.0;
    if (fgets(line, sizeof line, in)) {
        cJSON *row = cJSON_Parse(line);
        value = json_double(row, "n", 0.0);
        cJSON_Delete(row);
    }
    (void)pclose(in);
    return value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct Column {
    const char *key, *words;
    double values[ROWS_MAX];
    int count;
} Column;

static void print_column(Column *column)
{
    if (column->count == 0) {
        return;
    }
    qsort(column->values, (size_t)column->count, sizeof *column->values, by_value);
    int p99 = column->count * 99 / 100;
    printf("%-34s p50 %8.2f  p99 %8.2f  greatest %8.2f ms\n", column->words,
           column->values[column->count / 2], column->values[p99],
           column->values[column->count - 1]);
}

/* In one phase, from the first call to the last answer; its slowest answer for `apply`. */
#define PHASE "(select %s from txn_answer a join enumeration e on e.kind='txn_phase' and " \
              "e.code=a.phase where a.txn_id=t.txn_id and e.word='%s')"

static void print_ledger(const Gate *g, const char *outcome)
{
    static Column columns[] = {
        {"pause", "gate closed", {0}, 0},        {"rest", "  without loading", {0}, 0},
        {"gate", "  gate to first pause", {0}, 0}, {"p0", "  pause", {0}, 0},
        {"p1", "  flush", {0}, 0},               {"p2", "  apply", {0}, 0},
        {"p3", "  verify", {0}, 0},              {"decide", "  decision to first continue", {0}, 0},
        {"p4", "  roll-back", {0}, 0},           {"p5", "  continue", {0}, 0}};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    static const char *const words[] = {"pause", "flush", "apply", "verify", "rollback",
                                        "continue"};
    char sql[LINE];
    size_t n = 0;
    const char *span = "max(a.t_us)-min(a.t_us-a.took_us)";
    n += (size_t)snprintf(sql + n, sizeof sql - n, "select pause_us pause, pause_us-" PHASE
                          " rest, " PHASE "-ended_us+pause_us gate, " PHASE "-decided_us decide",
                          "max(a.took_us)", "apply", "min(a.t_us-a.took_us)", "pause",
                          "min(a.t_us-a.took_us)", "continue");
    for (int i = 0; i < 6; i++) {
        n += (size_t)snprintf(sql + n, sizeof sql - n, ", " PHASE " p%d", span, words[i], i);
    }
    (void)snprintf(sql + n, sizeof sql - n, " from txn t where outcome='%s' and from_version>0 and "
                   "to_version<>from_version and engines>1", outcome);
    FILE *in = listen_to("%s query %s --json --sql \"%s\"", g->rolltop, g->log, sql);
    char line[LINE];
    while (fgets(line, sizeof line, in)) {
        cJSON *row = cJSON_Parse(line);
        for (int i = 0; i < COLUMNS; i++) {
            Column *column = &columns[i];
            if (cJSON_IsNumber(json_get(row, column->key)) && column->count < ROWS_MAX) {
                column->values[column->count++] = json_double(row, column->key, 0) / 1000.0;
            }
        }
        cJSON_Delete(row);
    }
    (void)pclose(in);
    printf("%s updates of %lld synthetic engines: %d\n", outcome, (long long)g->engines,
           columns[0].count);
    for (int i = 0; i < COLUMNS; i++) {
        print_column(&columns[i]);
        columns[i].count = 0;
    }
}

/* ---- the bench ---------------------------------------------------------------------------- */

static bool wait_for(const Gate *g, const char *sql, double least)
{
    int64_t until = clock_mono_us() + WAIT_S * INT64_C(1000000);
    while (clock_mono_us() < until) {
        if (number(g, sql) >= least) {
            return true;
        }
        if (waitpid(g->run, NULL, WNOHANG) == g->run) {
            die("the run ended early; see run.out (--keep DIR)");
        }
        clock_sleep_us(100000);
    }
    return false;
}

/* CPU seconds of a process so far; -1 once it has gone. */
static double cpu_of(pid_t pid)
{
    clockid_t id;
    struct timespec t;
    if (clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &t) != 0) {
        return -1.0;
    }
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Until the run ends: CPU of core and engines a step, whatever else the machine does. */
static int watch_run(const Gate *g)
{
    static const char ended[] = "select count(*) from txn where outcome='committed' and engines>1";
    int status = 0;
    (void)wait_for(g, ended, 2);
    const double first = number(g, ended);
    const double core = cpu_of(g->run);
    const double host = cpu_of(g->host);
    double core_now = core;
    double host_now = host;
    while (waitpid(g->run, &status, WNOHANG) == 0) {
        const double seen = cpu_of(g->run);
        core_now = seen > core_now ? seen : core_now;
        host_now = cpu_of(g->host);
        clock_sleep_us(5000);
    }
    const double steps = number(g, ended) - first;
    if (steps > 0) {
        printf("CPU a step: core with its log %.2f ms, all engines %.2f ms\n",
               1000 * (core_now - core) / steps, 1000 * (host_now - host) / steps);
    }
    return status;
}

static void fail_updates(const Gate *g)
{
    static const char backs[] =
        "select count(*) from txn where outcome='rolled_back' and engines>1";
    char whole[256]; /* it is a member again */
    (void)snprintf(whole, sizeof whole, "select count(*) from txn where outcome='committed' and "
                   "engines=%lld and txn_id>(select max(txn_id) from txn where "
                   "outcome='rolled_back')", (long long)g->engines);
    (void)wait_for(g, "select count(*) from txn where outcome='committed'", 2);
    for (int64_t i = 1; i <= g->fail; i++) {
        fault_of_last(g, "{\"kind\":\"update\",\"mode\":\"400\"}");
        bool back = wait_for(g, backs, (double)i);
        fault_of_last(g, "{\"kind\":\"clear\"}");
        if (!back || !wait_for(g, whole, 2)) {
            die("no update went back, or the engine was not brought in again");
        }
    }
    (void)kill(g->run, SIGTERM);
}

int main(int argc, char **argv)
{
    const char *stub = getenv("BENCH_STUB_BASE");
    if (stub && argc == 1) {
        return stub_serve(stub, NULL);
    }
    static Gate g = {.engines = 8, .updates = 200};
    FlagSpec specs[] = {
        {"engines", FLAG_INT, &g.engines, 2, 1024, "N", "synthetic engines (8)", NULL},
        {"updates", FLAG_INT, &g.updates, 2, ROWS_MAX, "N", "updates (200)", NULL},
        {"fail", FLAG_INT, &g.fail, 0, 1000, "N", "updates that the last engine fails (0)", NULL},
        {"keep", FLAG_STRING, &g.keep, 0, 0, "DIR", "an empty directory for logs", NULL}};
    FlagRest rest = {0};
    Fault fault = {0};
    struct rlimit files;
    stub_must(flags_parse(specs, sizeof specs / sizeof *specs, argc, argv, &rest, &fault), &fault);
    if (rest.count != 1) {
        die("usage: bench_gate ROLLTOP [--engines N] [--updates N] [--fail N] [--keep DIR]");
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    g.rolltop = rest.items[0];
    (void)snprintf(g.dir, sizeof g.dir, "%s", g.keep ? g.keep : "/tmp/bench_gate.XXXXXX");
    if (!g.keep && !mkdtemp(g.dir)) {
        die("no temporary directory");
    }
    (void)setenv("XDG_STATE_HOME", g.dir, 1);
    (void)setenv("XDG_RUNTIME_DIR", g.dir, 1);
    make_task(&g);
    start_engines(&g);
    start_run(&g);
    if (g.fail > 0) {
        fail_updates(&g);
    }
    int status = 0;
    if (g.fail > 0) {
        (void)waitpid(g.run, &status, 0);
    } else {
        status = watch_run(&g);
    }
    (void)kill(g.host, SIGTERM);
    (void)waitpid(g.host, NULL, 0);
    print_ledger(&g, "committed");
    if (g.fail > 0) {
        print_ledger(&g, "rolled_back");
    }
    if (!g.keep) {
        (void)fs_remove_tree(g.dir, NULL);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
