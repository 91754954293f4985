/* Real processes, killed at each named phase of the policy transaction: a core, a frontend, a
 * trainer that learns nothing, three synthetic engines behind a tap (tap.h) that kills at
 * the call that stands for the phase, and engines that misbehave by their fault route. After each
 * kill everything must come back, a policy must go out to all three, and then, with the run held,
 * the engines themselves are asked what they hold. The log is judged with the rules of
 * docs/policy-transaction.md. usage: policy_phases_test [all | JSON of a fault]; without: a short
 * set. */
#include "tests/harness.h"
#include "tests/policy/tap.h"
#include "tests/stub_trainer.h"

#include "core/base/clock.h"

#include <sys/stat.h>
#include <sys/wait.h>

enum { WAIT_S = 120, LINE = 8192, ODD = 1 }; /* ODD: the engine that is killed or misbehaves */

typedef enum Victim { CORE, ENGINE, FRONTEND, TRAINER } Victim;

typedef struct Round {
    const char *phase;
    TapCall call;
    int engine, nth, which;
    bool after;
    int delay_us;
    const char *fault; /* of the last engine, so that the others go back */
} Round;

typedef struct World {
    char dir[128], base[256], log[256], engines_file[256];
    Tap tap;
    TapOrder *order;
    pid_t engine[TAP_ENGINES], tapper, core, frontend;
    int frontend_port;
    char url[64];
    char vocab[16], self[512];
} World;

static World w;

/* ---- processes ---------------------------------------------------------------------------- */

static pid_t start(const char *const *argv, const char *out)
{
    pid_t pid = fork();
    if (pid == 0) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", w.dir, out);
        if (!freopen("/dev/null", "r", stdin) || !freopen(path, "a", stdout)) {
            _exit(127);
        }
        (void)dup2(1, 2);
        (void)execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

static void stop(pid_t *pid, int signal)
{
    if (*pid > 0) {
        (void)kill(*pid, signal);
        (void)waitpid(*pid, NULL, 0);
        *pid = 0;
    }
}

static void start_engine(int i)
{
    char port[16], name[16];
    (void)snprintf(port, sizeof port, "%d", w.tap.engine_port[i]);
    (void)snprintf(name, sizeof name, "eng-%02d", i);
    const char *argv[] = {ROLLTOP_BINARY, "engine", "--synthetic", "--port", port, "--name", name,
                          "--model-path", w.base, "--vocab", w.vocab, "--faults",
                          "--synthetic-tokens-per-s", "0", "--incremental-streaming-output", NULL};
    w.engine[i] = start(argv, name);
}

static void start_frontend(void)
{
    char port[16], engine[TAP_ENGINES][32];
    (void)snprintf(port, sizeof port, "%d", w.frontend_port);
    for (int i = 0; i < TAP_ENGINES; i++) {
        (void)snprintf(engine[i], sizeof engine[i], "127.0.0.1:%d", w.tap.port[i]);
    }
    const char *argv[] = {ROLLTOP_BINARY, "frontend", "--port", port, "--engine", engine[0],
                          "--engine", engine[1], "--engine", engine[2], NULL};
    w.frontend = start(argv, "frontend");
}

static void start_core(bool resume)
{
    char data[512];
    (void)snprintf(data, sizeof data, "%s/../train.jsonl", w.base);
    const char *argv[] = {
        ROLLTOP_BINARY, "run", "--headless", "--log", w.log, "--run-id", "phases",
        "--hf-checkpoint", w.base, "--prompt-data", data, "--label-key", "label", "--rm-type",
        "digits", "--rollout-batch-size", "4", "--n-samples-per-prompt", "2",
        "--rollout-max-response-len", "8", "--num-rollout", "1000000", "--engines-file",
        w.engines_file, "--rollout-url", w.url, "--trainer", w.self,
        "--rollout-skip-special-tokens",
        "--publish-dtype", "f32", resume ? "--resume" : NULL, NULL};
    w.core = start(argv, "core");
}

/* A child of the core whose command line has `word`; 0: none. */
static pid_t child_of_core(const char *word)
{
    DIR *dir = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry && !found; entry = readdir(dir)) {
        char path[320], stat[512] = "", line[1024] = "";
        int parent = 0;
        (void)snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = atoi(entry->d_name) > 0 ? fopen(path, "r") : NULL;
        if (!file) {
            continue;
        }
        if (fgets(stat, sizeof stat, file) && strrchr(stat, ')')) {
            (void)sscanf(strrchr(stat, ')'), ") %*c %d", &parent);
        }
        (void)fclose(file);
        (void)snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        file = parent == w.core ? fopen(path, "r") : NULL;
        size_t n = file ? fread(line, 1, sizeof line - 1, file) : 0;
        if (file) {
            (void)fclose(file);
        }
        if (memmem(line, n, word, strlen(word))) {
            found = atoi(entry->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

/* ---- the log, the core, the engines ------------------------------------------------------- */

static bool ask_log(const char *sql, char *out, size_t size)
{
    char command[LINE], line[LINE] = "";
    (void)snprintf(command, sizeof command, "%s query %s --json --sql \"select (%s) n\" 2>&1",
                   ROLLTOP_BINARY, w.log, sql);
    FILE *in = popen(command, "r");
    cJSON *row = in && fgets(line, sizeof line, in) ? cJSON_Parse(line) : NULL;
    const cJSON *item = json_get(row, "n");
    out[0] = '\0';
    if (cJSON_IsNumber(item)) {
        (void)snprintf(out, size, "%.0f", item->valuedouble);
    } else if (cJSON_IsString(item)) {
        (void)snprintf(out, size, "%s", item->valuestring);
    }
    cJSON_Delete(row);
    if (in) {
        (void)pclose(in);
    }
    return out[0] != '\0';
}

static int64_t log_number(const char *sql)
{
    char text[64];
    return ask_log(sql, text, sizeof text) ? atoll(text) : -1;
}

static void ctl(const char *words)
{
    char command[LINE];
    (void)snprintf(command, sizeof command, "%s ctl %s --run phases >>%s/ctl 2>&1",
                   ROLLTOP_BINARY, words, w.dir);
    int status = system(command);
    (void)status;
}

/* One request to engine i itself, past the tap; the body in `out`. */
static bool ask_engine(int i, const char *method, const char *path, const char *body, char *out,
                       size_t size)
{
    char text[LINE];
    int fd = tap_socket(&w.tap.engine_port[i], false);
    struct timeval patience = {10, 0};
    int n = snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", method,
                     path, strlen(body), body);
    size_t got = 0;
    if (fd < 0 || send(fd, text, (size_t)n, MSG_NOSIGNAL) != n) {
        close(fd);
        return false;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (ssize_t some; got + 1 < size && (some = recv(fd, out + got, size - got - 1, 0)) > 0;) {
        got += (size_t)some;
    }
    out[got] = '\0';
    close(fd);
    return strncmp(out, "HTTP/1.1 200", 12) == 0;
}

static bool wait_log(const char *sql, int64_t least)
{
    int64_t until = clock_mono_us() + WAIT_S * INT64_C(1000000);
    while (log_number(sql) < least) {
        if (clock_mono_us() > until || waitpid(w.core, NULL, WNOHANG) == w.core) {
            return false;
        }
        clock_sleep_us(20000);
    }
    return true;
}

/* ---- the judge ---------------------------------------------------------------------------- */

static const char STANDS[] = "select to_version from txn where decided=1 and to_version<>"
                             "from_version order by txn_id desc limit 1";

static bool holds(int i, int64_t version, const char *digest, char *why, size_t size)
{
    static const char ask[] = "{\"action\":\"checksum\"}";
    char text[LINE], wanted[96];
    (void)snprintf(wanted, sizeof wanted, "\"per_engine_checksum\":\"%s\"", digest);
    if (!ask_engine(i, "POST", "/weights_checker", ask, text, sizeof text) ||
        !strstr(text, wanted)) {
        (void)snprintf(why, size, "engine %d does not hold %s", i, digest);
        return false;
    }
    (void)snprintf(wanted, sizeof wanted, "\"weight_version\":\"%lld\"", (long long)version);
    if (!ask_engine(i, "GET", "/model_info", "", text, sizeof text) || !strstr(text, wanted)) {
        (void)snprintf(why, size, "engine %d does not say v%lld", i, (long long)version);
        return false;
    }
    if (!ask_engine(i, "GET", "/server_info", "", text, sizeof text) ||
        !strstr(text, "\"paused\":false")) {
        (void)snprintf(why, size, "engine %d is paused", i);
        return false;
    }
    return true;
}

/* Rules 1 and 4. With the run held nothing new goes out; what the engines say counts if the log
 * says the same before and after, with no transaction open. */
static void judge_engines(const char *what)
{
    char why[256] = "a transaction stays open";
    int64_t until = clock_mono_us() + WAIT_S * INT64_C(1000000);
    bool good = false;
    ctl("pause");
    while (!good && clock_mono_us() < until) {
        int64_t txn = log_number("select max(txn_id) from txn where ended_us is not null");
        int64_t version = log_number(STANDS);
        char digest[64], sql[256];
        (void)snprintf(sql, sizeof sql, "select digest from policy where version=%lld order by "
                       "change_id desc limit 1", (long long)version);
        good = ask_log(sql, digest, sizeof digest);
        for (int i = 0; i < TAP_ENGINES && good; i++) {
            good = holds(i, version, digest, why, sizeof why);
        }
        good = good && log_number("select max(txn_id) from txn") == txn;
    }
    ctl("resume");
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, why);
    }
    CHECK(good);
}

/* Rules 2 and 3, of everything so far. */
static void judge_log(const char *what)
{
    static const struct { const char *words, *sql; } rules[] = {
        {"committed without a decision",
         "select count(*) from txn where outcome='committed' and coalesce(decided,0)<>1"},
        {"rolled back without a decision",
         "select count(*) from txn where outcome='rolled_back' and coalesce(decided,1)<>0"},
        {"an engine was let go on before the decision",
         "select count(*) from txn t join txn_answer a on a.txn_id=t.txn_id join enumeration e on "
         "e.kind='txn_phase' and e.code=a.phase where e.word='continue' and "
         "a.t_us-a.took_us<coalesce(t.decided_us,9e18)"},
        {"an accepted sample has two policies",
         "select count(*) from attempt where fate=1 and versions like '%,%'"},
        {"an accepted sample has no policy",
         "select count(*) from attempt where fate=1 and coalesce(versions,'')=''"},
        {"a version was committed by two transactions",
         "select count(*) from (select to_version from txn where decided=1 and to_version<>"
         "from_version group by to_version having count(*)>1)"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        int64_t found = log_number(rules[i].sql);
        if (found != 0) {
            fprintf(stderr, "%s: %s (%lld)\n", what, rules[i].words, (long long)found);
        }
        CHECK_I64(found, 0);
    }
}

/* A policy goes out to all three, twice, after what happened. */
static bool whole_again(void)
{
    char sql[256];
    (void)snprintf(sql, sizeof sql, "select count(*) from txn where outcome='committed' and "
                   "to_version<>from_version and engines=%d and txn_id>%lld", TAP_ENGINES,
                   (long long)log_number("select max(txn_id) from txn"));
    return wait_log(sql, 2);
}

/* ---- rounds ------------------------------------------------------------------------------- */

static pid_t pid_of(Victim victim)
{
    switch (victim) {
    case CORE: return w.core;
    case ENGINE: return w.engine[ODD];
    case FRONTEND: return w.frontend;
    case TRAINER: return child_of_core("policy_phases_test");
    }
    return 0;
}

static void bring_back(Victim victim)
{
    if (victim == CORE) {
        (void)waitpid(w.core, NULL, 0);
        start_core(true);
    } else if (victim == ENGINE) {
        (void)waitpid(w.engine[ODD], NULL, 0);
        start_engine(ODD);
    } else if (victim == FRONTEND) {
        (void)waitpid(w.frontend, NULL, 0);
        start_frontend();
    } /* the core starts its trainer again */
}

static bool wait_fired(void)
{
    int64_t until = clock_mono_us() + WAIT_S * INT64_C(1000000);
    while (!w.order->fired && clock_mono_us() < until) {
        clock_sleep_us(2000);
    }
    return w.order->fired;
}

static void kill_at(const Round *round, Victim victim)
{
    static const char *const names[] = {"core", "engine", "frontend", "trainer"};
    char what[96], text[LINE];
    (void)snprintf(what, sizeof what, "%s killed at %s", names[victim], round->phase);
    int64_t from = clock_mono_us();
    CHECK(whole_again());
    TapOrder *order = w.order;
    order->engine = victim == ENGINE && round->engine < 0 ? ODD : round->engine;
    order->nth = round->nth;
    order->which = victim == ENGINE ? 1 : round->which;
    order->after = round->after;
    order->delay_us = round->delay_us;
    order->victim = pid_of(victim);
    order->fired = 0;
    CHECK(order->victim > 0);
    if (round->fault) {
        CHECK(ask_engine(TAP_ENGINES - 1, "POST", "/_fault", round->fault, text, sizeof text));
    }
    order->call = order->victim > 0 ? (int)round->call : TAP_NONE;
    bool fired = order->victim > 0 && wait_fired();
    order->call = TAP_NONE;
    CHECK(fired);
    if (fired) {
        bring_back(victim);
    }
    if (round->fault) {
        CHECK(ask_engine(TAP_ENGINES - 1, "POST", "/_fault", "{\"kind\":\"clear\"}", text,
                         sizeof text));
    }
    CHECK(whole_again());
    judge_engines(what);
    judge_log(what);
    printf("     %s: %s, %.1f s\n", what, fired ? "came back" : "not reached",
           (double)(clock_mono_us() - from) / 1e6);
    fflush(stdout);
}

static void misbehave(const char *fault)
{
    char text[LINE], sql[128];
    int64_t from = clock_mono_us();
    CHECK(whole_again());
    CHECK(ask_engine(ODD, "POST", "/_fault", fault, text, sizeof text));
    (void)snprintf(sql, sizeof sql, "select count(*) from txn where txn_id>%lld and ended_us>0",
                   (long long)log_number("select max(txn_id) from txn"));
    CHECK(wait_log(sql, 3));
    CHECK(ask_engine(ODD, "POST", "/_fault", "{\"kind\":\"clear\"}", text, sizeof text));
    CHECK(whole_again());
    judge_engines(fault);
    judge_log(fault);
    printf("     %s: came back, %.1f s\n", fault, (double)(clock_mono_us() - from) / 1e6);
    fflush(stdout);
}

static const char FAILS[] = "{\"kind\":\"update\",\"mode\":\"400\"}";
static const Round rounds[] = {
    {"check", TAP_PUBLISHED, -1, 0, 1, false, 0, NULL},
    {"check or gate", TAP_PUBLISHED, -1, 0, 1, false, 800, NULL},
    {"pause", TAP_PAUSE, -1, 0, 1, false, 0, NULL},
    {"flush", TAP_FLUSH, -1, 1, 1, false, 0, NULL},
    {"apply", TAP_UPDATE, -1, 1, 1, false, 0, NULL},
    {"apply, loaded", TAP_UPDATE, -1, 1, 3, true, 0, NULL},
    {"verify", TAP_CHECKSUM, -1, 1, 2, true, 0, NULL},
    {"decide", TAP_CHECKSUM, -1, 1, 3, true, 1500, NULL},
    {"continue", TAP_CONTINUE, -1, 1, 1, false, 0, NULL},
    {"continue, one of three", TAP_CONTINUE, -1, 1, 2, true, 0, NULL},
    {"open", TAP_CONTINUE, -1, 1, 3, true, 500, NULL},
    {"rollback", TAP_UPDATE, 0, 2, 1, false, 0, FAILS},
    {"rollback, loaded", TAP_UPDATE, 0, 2, 1, true, 0, FAILS}};
enum { ROUNDS = sizeof rounds / sizeof *rounds };

static void test_every_phase(void)
{
    for (int victim = CORE; victim <= TRAINER; victim++) {
        for (int i = 0; i < ROUNDS; i++) {
            bool alone = victim == ENGINE && rounds[i].call == TAP_PUBLISHED;
            if (!alone) { /* the trainer knows of no engine */
                kill_at(&rounds[i], (Victim)victim);
            }
        }
    }
}

/* Not drop_reply: a call without an answer keeps an engine that is not ours to start again out of
 * updates for TXN_DOUBT_US. */
static void test_every_fault(void)
{
    static const char *const faults[] = {
        FAILS,
        "{\"kind\":\"update\",\"mode\":\"partial\"}",
        "{\"kind\":\"update\",\"mode\":\"slow\",\"s\":1}",
        "{\"kind\":\"flush\",\"mode\":\"400\",\"for\":1}",
        "{\"kind\":\"stay_paused\",\"for\":2}",
        "{\"kind\":\"ver_lie\"}",
        "{\"kind\":\"ver_lie\",\"v\":\"7\"}",
        "{\"kind\":\"ver_reset\",\"for\":2}",
        "{\"kind\":\"freeze\",\"for\":2}",
        "{\"kind\":\"freeze_all\",\"for\":2}",
        "{\"kind\":\"abort\",\"mode\":\"ignored\"}",
        "{\"kind\":\"garble\",\"p\":1}",
        "{\"kind\":\"nan\",\"p\":1}"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        misbehave(faults[i]);
    }
}

static void test_some_phases(void)
{
    static const struct { const char *phase; Victim victim; } few[] = {
        {"apply", ENGINE}, {"pause", FRONTEND}, {"verify", TRAINER}, {"decide", CORE}};
    for (size_t k = 0; k < sizeof few / sizeof *few; k++) {
        for (int i = 0; i < ROUNDS; i++) {
            if (strcmp(rounds[i].phase, few[k].phase) == 0) {
                kill_at(&rounds[i], few[k].victim);
            }
        }
    }
}

/* ---- start and end ------------------------------------------------------------------------ */

static TapOrder *map_order(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *at = fd >= 0 && ftruncate(fd, sizeof(TapOrder)) == 0
                   ? mmap(NULL, sizeof(TapOrder), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static void trainer_answered(const char *type)
{
    static TapOrder *order;
    order = order ? order : map_order(getenv("ROLLTOP_TEST_TAP"));
    if (order && order->call == TAP_PUBLISHED && strcmp(type, "score") == 0) {
        tap_fire(order);
    }
}

static void begin(void)
{
    char command[LINE], path[256];
    (void)snprintf(w.dir, sizeof w.dir, "/tmp/rolltop-phases-XXXXXX");
    CHECK(mkdtemp(w.dir) != NULL);
    (void)setenv("XDG_STATE_HOME", w.dir, 1);
    (void)setenv("XDG_RUNTIME_DIR", w.dir, 1);
    (void)snprintf(command, sizeof command, "%s demo --headless --steps 1 --engines 1 --keep --log "
                   "%s/task.db >%s/task 2>&1 </dev/null", ROLLTOP_BINARY, w.dir, w.dir);
    int status = system(command);
    (void)status; /* the reward asked for is not reached in one step */
    (void)snprintf(w.base, sizeof w.base, "%s/task.db.d/task/base", w.dir);
    (void)snprintf(w.log, sizeof w.log, "%s/phases.db", w.dir);
    (void)snprintf(w.engines_file, sizeof w.engines_file, "%s/engines", w.dir);
    (void)snprintf(path, sizeof path, "%s/tap", w.dir);
    ModelConfig model;
    Fault fault = {0};
    CHECK_I64(model_config_load(w.base, &model, &fault), ERR_OK);
    (void)snprintf(w.vocab, sizeof w.vocab, "%d", (int)model.vocab);
    ssize_t n = readlink("/proc/self/exe", w.self, sizeof w.self - 1);
    w.self[n > 0 ? n : 0] = '\0';
    w.order = map_order(path);
    w.tap.order = w.order;
    (void)setenv("ROLLTOP_TEST_TAP", path, 1);
    (void)setenv("ROLLTOP_TEST_BASE", w.base, 1);
    FILE *file = fopen(w.engines_file, "w");
    for (int i = 0; i < TAP_ENGINES; i++) {
        int probe = tap_socket(&w.tap.engine_port[i], true); /* a free port, given back */
        w.tap.listener[i] = tap_socket(&w.tap.port[i], true);
        close(probe);
        fprintf(file, "127.0.0.1:%d\n", w.tap.port[i]);
        start_engine(i);
    }
    (void)fclose(file);
    w.tapper = fork();
    if (w.tapper == 0) {
        tap_serve(&w.tap);
    }
    for (int i = 0; i < TAP_ENGINES; i++) {
        close(w.tap.listener[i]); /* the tap's now */
    }
    int free_port = tap_socket(&w.frontend_port, true);
    close(free_port);
    (void)snprintf(w.url, sizeof w.url, "http://127.0.0.1:%d", w.frontend_port);
    start_frontend();
    start_core(false);
}

static void end(void)
{
    ctl("stop");
    if (w.core > 0) {
        int status = -1;
        (void)waitpid(w.core, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        w.core = 0;
    }
    CHECK_I64(log_number("select count(*) from txn where ended_us is null"), 0);
    judge_log("the end");
    stop(&w.tapper, SIGKILL);
    stop(&w.frontend, SIGKILL);
    for (int i = 0; i < TAP_ENGINES; i++) {
        stop(&w.engine[i], SIGKILL);
    }
    if (test_failures == 0) {
        (void)fs_remove_tree(w.dir, NULL);
    } else {
        fprintf(stderr, "logs are in %s\n", w.dir);
    }
}

int main(int argc, char **argv)
{
    const char *base = getenv("ROLLTOP_TEST_BASE");
    if (base && argc == 1) {
        return stub_serve(base, trainer_answered);
    }
    begin();
    if (test_failures == 0 && argc > 1 && strcmp(argv[1], "all") == 0) {
        RUN(test_every_phase);
        RUN(test_every_fault);
    } else if (test_failures == 0 && argc > 1) {
        misbehave(argv[1]);
    } else if (test_failures == 0) {
        RUN(test_some_phases);
    }
    end();
    return test_end();
}
