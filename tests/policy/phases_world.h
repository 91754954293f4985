/* The processes around phases_test.c: a core, a frontend, the test itself as a trainer that learns
 * nothing, synthetic engines behind a tap; and how they are asked. One world at a time. */
#ifndef ROLLTOP_TESTS_PHASES_WORLD_H
#define ROLLTOP_TESTS_PHASES_WORLD_H

#include "tests/harness.h"
#include "tests/policy/tap.h"
#include "tests/stub_trainer.h"

#include "core/base/clock.h"

#include <sys/stat.h>
#include <sys/wait.h>

enum { WAIT_S = 120, LINE = 8192 };

typedef struct World {
    char dir[128], base[256], log[256], engines_file[256];
    Tap tap;
    TapOrder *order;
    pid_t engine[TAP_ENGINES], tapper, core, frontend;
    int frontend_port;
    char url[64];
    char vocab[16], self[512];
    bool delta;  /* engines follow with copies of their own, each in its working directory */
    bool budgets; /* short ones, for what hangs; too short for a machine that is very busy */
} World;

static World w;

/* ---- processes ---------------------------------------------------------------------------- */

static inline pid_t start(const char *const *argv, const char *out)
{
    pid_t pid = fork();
    if (pid == 0) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", w.dir, out);
        if (!freopen("/dev/null", "r", stdin) || !freopen(path, "a", stdout)) {
            _exit(127);
        }
        (void)dup2(1, 2);
        (void)snprintf(path, sizeof path, "%s/%s.cwd", w.dir, out);
        if ((mkdir(path, 0700) != 0 && errno != EEXIST) || chdir(path) != 0) {
            _exit(127);
        }
        (void)execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

static inline void stop(pid_t *pid, int signal)
{
    if (*pid > 0) {
        (void)kill(*pid, signal);
        (void)waitpid(*pid, NULL, 0);
        *pid = 0;
    }
}

static inline void start_engine(int i)
{
    char port[16], name[16];
    (void)snprintf(port, sizeof port, "%d", w.tap.engine_port[i]);
    (void)snprintf(name, sizeof name, "eng-%02d", i);
    const char *argv[] = {ROLLTOP_BINARY, "engine", "--synthetic", "--host", tap_home(),
                          "--port", port, "--name", name, "--model-path", w.base, "--vocab",
                          w.vocab, "--faults", "--synthetic-tokens-per-s", "0",
                          "--incremental-streaming-output", NULL};
    w.engine[i] = start(argv, name);
}

static inline void start_frontend(void)
{
    char port[16], engine[TAP_ENGINES][32];
    (void)snprintf(port, sizeof port, "%d", w.frontend_port);
    for (int i = 0; i < TAP_ENGINES; i++) {
        (void)snprintf(engine[i], sizeof engine[i], "%s:%d", tap_home(), w.tap.port[i]);
    }
    const char *argv[] = {ROLLTOP_BINARY, "frontend", "--host", tap_home(), "--port", port,
                          "--engine", engine[0], "--engine", engine[1], "--engine", engine[2],
                          NULL};
    w.frontend = start(argv, "frontend");
}

static inline void start_core(bool resume)
{
    char data[512];
    (void)snprintf(data, sizeof data, "%s/../train.jsonl", w.base);
    const char *argv[64] = {
        ROLLTOP_BINARY, "run", "--headless", "--log", w.log, "--run-id", "phases",
        "--hf-checkpoint", w.base, "--prompt-data", data, "--label-key", "label", "--rm-type",
        "digits", "--rollout-batch-size", "4", "--n-samples-per-prompt", "2",
        "--rollout-max-response-len", "8", "--num-rollout", "1000000", "--engines-file",
        w.engines_file, "--rollout-url", w.url, "--trainer", w.self,
        "--rollout-skip-special-tokens",
        "--publish-dtype", "f32"};
    static const char *const delta[] = {"--update-weight-mode", "delta",
                                        "--update-weight-local-checkpoint-dir",
                                        "/proc/self/cwd/copy"};
    static const char *const budgets[] = {
        "--update-budget", "prepare=8", "pause=8", "flush=8", "apply=5", "verify=5", "rollback=5",
        "continue=8", "doubt=8"};
    int n = 0;
    while (argv[n]) {
        n++;
    }
    for (size_t i = 0; w.delta && i < sizeof delta / sizeof *delta; i++) {
        argv[n++] = delta[i];
    }
    for (size_t i = 0; w.budgets && i < sizeof budgets / sizeof *budgets; i++) {
        argv[n++] = budgets[i];
    }
    argv[n] = resume ? "--resume" : NULL;
    w.core = start(argv, "core");
}

/* A child of the core whose command line has `word`; 0: none. */
static inline pid_t child_of_core(const char *word)
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

static inline bool ask_log(const char *sql, char *out, size_t size)
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

static inline int64_t log_number(const char *sql)
{
    char text[64];
    return ask_log(sql, text, sizeof text) ? atoll(text) : -1;
}

static inline void ctl(const char *words)
{
    char command[LINE];
    (void)snprintf(command, sizeof command, "%s ctl %s --run phases >>%s/ctl 2>&1",
                   ROLLTOP_BINARY, words, w.dir);
    int status = system(command);
    (void)status;
}

/* One request to engine i itself, past the tap; the body in `out`. */
static inline bool ask_engine(int i, const char *method, const char *path, const char *body,
                              char *out, size_t size)
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

static inline bool wait_log(const char *sql, int64_t least)
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

/* ---- start ------------------------------------------------------------------------------ */

static inline TapOrder *map_order(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *at = fd >= 0 && ftruncate(fd, sizeof(TapOrder)) == 0
                   ? mmap(NULL, sizeof(TapOrder), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static inline void trainer_answered(const char *type)
{
    static TapOrder *order;
    order = order ? order : map_order(getenv("ROLLTOP_TEST_TAP"));
    if (order && order->call == TAP_PUBLISHED && strcmp(type, "score") == 0) {
        tap_fire(order);
    }
}

static inline void begin(bool delta, bool budgets)
{
    char command[LINE], path[256];
    w = (World){.delta = delta, .budgets = budgets};
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
        fprintf(file, "%s:%d\n", tap_home(), w.tap.port[i]);
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
    (void)snprintf(w.url, sizeof w.url, "http://%s:%d", tap_home(), w.frontend_port);
    start_frontend();
    start_core(false);
}

#endif
