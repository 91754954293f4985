/* The whole demo from outside: wall time until the first finished sample stands in the log, eval
 * reward before and after, time, and the memory and CPU time of all its processes together.
 *   bench_demo --rolltop FILE [--seed S] [--first] [--console]
 * --first ends the run once the first sample is there. --console opens `rolltop attach` in a
 * pseudo-terminal beside the run, so that its memory counts too. State and runtime directories
 * are new and empty, so nothing is left from an earlier run. The log is read through the same
 * code as `rolltop query`. Memory is the sum of PSS (shared pages shared out) and of RSS over the
 * process and its descendants, looked at every quarter of a second. */
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/query.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIDS_MAX = 512, POLL_US = 5000, LOOK_US = 250000, FILE_MAX = 1 << 16 };
enum { FRAME_WAIT_MS = 3000, FRAME_QUIET_MS = 30 };

typedef struct Family { /* the run's processes, itself included */
    pid_t pids[PIDS_MAX];
    int count;
} Family;

typedef struct Watch {
    const char *rolltop;
    char *dir, *log, *out;
    int64_t seed;
    bool first_only, console;
    pid_t run, viewer;
    int viewer_fd;
    int64_t began_us, first_us, end_us, first_cpu_ms, frame_us;
    int64_t pss_kb, rss_kb;
    int pss_processes, status;
} Watch;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- /proc -------------------------------------------------------------------------------- */

static bool proc_read(pid_t pid, const char *name, char *out, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Field `number` (1-based, after the command's name) of /proc/PID/stat. */
static int64_t stat_field(const char *text, int number)
{
    const char *at = strrchr(text, ')');
    for (int i = 2; at && i < number; i++) {
        at = strchr(at + 1, ' ');
    }
    return at ? strtoll(at, NULL, 10) : 0;
}

static bool family_has(const Family *family, pid_t pid)
{
    for (int i = 0; i < family->count; i++) {
        if (family->pids[i] == pid) {
            return true;
        }
    }
    return false;
}

static void family_find(Family *family, pid_t root)
{
    char text[FILE_MAX];
    *family = (Family){.pids = {root}, .count = 1};
    for (bool more = true; more;) {
        more = false;
        DIR *dir = opendir("/proc");
        for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
            pid_t pid = (pid_t)atoi(e->d_name);
            if (!isdigit((unsigned char)e->d_name[0]) || family_has(family, pid) ||
                family->count == PIDS_MAX || !proc_read(pid, "stat", text, sizeof text)) {
                continue;
            }
            if (family_has(family, (pid_t)stat_field(text, 4))) {
                family->pids[family->count++] = pid;
                more = true;
            }
        }
        if (dir) {
            closedir(dir);
        }
    }
}

static int64_t field_kb(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : 0;
}

/* CPU time of the family in ms, ended and waited-for children included. */
static int64_t family_cpu_ms(pid_t root)
{
    Family family;
    char text[FILE_MAX];
    int64_t ticks = 0;
    family_find(&family, root);
    for (int i = 0; i < family.count; i++) {
        if (proc_read(family.pids[i], "stat", text, sizeof text)) {
            for (int field = 14; field <= 17; field++) {
                ticks += stat_field(text, field);
            }
        }
    }
    return ticks * 1000 / sysconf(_SC_CLK_TCK);
}

static void look_at_memory(Watch *w)
{
    char text[FILE_MAX];
    int64_t pss = 0;
    int64_t rss = 0;
    int processes = 0;
    for (int root = 0; root < 2; root++) {
        Family family;
        pid_t pid = root == 0 ? w->run : w->viewer;
        if (pid <= 0) {
            continue;
        }
        family_find(&family, pid);
        for (int i = 0; i < family.count; i++) {
            if (proc_read(family.pids[i], "smaps_rollup", text, sizeof text)) {
                pss += field_kb(text, "\nPss:");
                rss += field_kb(text, "\nRss:");
                processes++;
            }
        }
    }
    if (pss > w->pss_kb) {
        w->pss_kb = pss;
        w->pss_processes = processes;
    }
    w->rss_kb = rss > w->rss_kb ? rss : w->rss_kb;
}

/* ---- the log ------------------------------------------------------------------------------ */

/* First number of a statement's answer; -1 when the log is not there yet or has none. */
static double ask(const Watch *w, const char *sql)
{
    char *text = NULL;
    size_t n = 0;
    double value = -1.0;
    FILE *out = open_memstream(&text, &n);
    if (out && fs_exists(w->log) && query_sql(w->log, sql, true, out, NULL) == ERR_OK) {
        fflush(out);
        const char *at = text ? strchr(text, ':') : NULL;
        if (at && strncmp(at + 1, "null", 4) != 0) {
            value = strtod(at + 1, NULL);
        }
    }
    if (out) {
        fclose(out);
    }
    free(text);
    return value;
}

static const char first_sql[] = "select count(*) as n from attempt where ended_us is not null and"
                                " tokens > 0";

/* ---- the run ------------------------------------------------------------------------------ */

static void run_start(Watch *w)
{
    char seed[24];
    (void)snprintf(seed, sizeof seed, "%lld", (long long)w->seed);
    w->began_us = clock_mono_us();
    w->run = fork();
    if (w->run < 0) {
        die("fork");
    }
    if (w->run == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        int in = open("/dev/null", O_RDONLY);
        int out = open(w->out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) {
            _exit(126);
        }
        execl(w->rolltop, w->rolltop, "demo", "--headless", "--seed", seed, "--log", w->log,
              "--run-id", "bench", (char *)NULL);
        _exit(127);
    }
}

/* The first frame ends with the first burst of bytes; bursts are 30 ms apart. */
static void viewer_first_frame(Watch *w, int64_t began_us)
{
    char buffer[65536];
    struct pollfd wait = {w->viewer_fd, POLLIN, 0};
    while (poll(&wait, 1, w->frame_us == 0 ? FRAME_WAIT_MS : FRAME_QUIET_MS) > 0 &&
           read(w->viewer_fd, buffer, sizeof buffer) > 0) {
        w->frame_us = clock_mono_us() - began_us;
    }
}

static void viewer_start(Watch *w)
{
    struct winsize size = {40, 120, 0, 0};
    int64_t began_us = clock_mono_us();
    w->viewer = forkpty(&w->viewer_fd, NULL, NULL, &size);
    if (w->viewer == 0) {
        (void)setenv("TERM", "xterm-256color", 1);
        (void)setenv("LC_ALL", "C.UTF-8", 1);
        execl(w->rolltop, w->rolltop, "attach", "--run", "bench", (char *)NULL);
        _exit(127);
    }
    if (w->viewer < 0) {
        die("forkpty");
    }
    viewer_first_frame(w, began_us);
    (void)fcntl(w->viewer_fd, F_SETFL, O_NONBLOCK);
}

static void viewer_drain(const Watch *w)
{
    char buffer[65536];
    while (w->viewer > 0 && read(w->viewer_fd, buffer, sizeof buffer) > 0) {
    }
}

static void viewer_stop(Watch *w)
{
    if (w->viewer > 0) {
        (void)kill(w->viewer, SIGKILL);
        (void)waitpid(w->viewer, NULL, 0);
        close(w->viewer_fd);
        w->viewer = 0;
    }
}

static void run_show_output(const Watch *w)
{
    Text text;
    text_init(&text, 1 << 20);
    if (fs_read(w->out, &text, NULL) == ERR_OK) {
        fprintf(stderr, "%s", text_c(&text));
    }
    text_free(&text);
}

/* Until the run has ended; false when it ended before any sample was finished. */
static bool run_follow(Watch *w)
{
    int64_t look = 0;
    int status = 0;
    while (waitpid(w->run, &status, WNOHANG) == 0) {
        if (w->first_us == 0 && ask(w, first_sql) > 0.0) {
            w->first_us = clock_mono_us();
            w->first_cpu_ms = family_cpu_ms(w->run);
            if (w->first_only) {
                (void)kill(w->run, SIGTERM);
            }
            if (w->console) {
                viewer_start(w);
            }
        }
        if (clock_mono_us() - look > LOOK_US && !w->first_only) {
            look_at_memory(w);
            look = clock_mono_us();
        }
        viewer_drain(w);
        clock_sleep_us(w->first_us == 0 ? POLL_US : LOOK_US / 5);
    }
    w->end_us = clock_mono_us();
    w->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    viewer_stop(w);
    return w->first_us > 0;
}

static void print_first(const Watch *w)
{
    printf("first sample in the log after %.2f s (seed %lld); %.2f CPU seconds of all processes "
           "until then\n", (double)(w->first_us - w->began_us) / 1e6, (long long)w->seed,
           (double)w->first_cpu_ms / 1000.0);
}

static void print_run(const Watch *w)
{
    double before = ask(w, "select eval_reward_mean from step where eval_reward_mean is not null"
                           " order by step_id limit 1");
    double after = ask(w, "select eval_reward_mean from step where eval_reward_mean is not null"
                          " order by step_id desc limit 1");
    double steps = ask(w, "select count(*) from step where outcome = 'ok' and step >= 0");
    printf("demo seed %lld: eval before %.3f, after %.3f, in %.1f s and %.0f steps, status %d; "
           "at its peak %.0f MiB PSS (%.0f MiB RSS) over %d processes%s\n",
           (long long)w->seed, before, after, (double)(w->end_us - w->began_us) / 1e6, steps,
           w->status, (double)w->pss_kb / 1024.0, (double)w->rss_kb / 1024.0, w->pss_processes,
           w->console ? ", an attached console included" : "");
    if (w->console) {
        printf("rolltop attach on it, 120x40: first frame after %.0f ms, from fork to last byte\n",
               (double)w->frame_us / 1000.0);
    }
}

int main(int argc, char **argv)
{
    Watch w = {.seed = 1};
    const FlagSpec specs[] = {
        {"rolltop", FLAG_STRING, &w.rolltop, 0, 0, "FILE", "the binary (needed)", NULL},
        {"seed", FLAG_INT, &w.seed, 0, 1e9, "S", "of the demo (1)", NULL},
        {"first", FLAG_SWITCH, &w.first_only, 0, 0, NULL, "end at the first sample", NULL},
        {"console", FLAG_SWITCH, &w.console, 0, 0, NULL, "attach a console", NULL},
    };
    const size_t count = sizeof specs / sizeof specs[0];
    FlagRest rest = {0};
    Fault fault = {0};
    if (flags_parse(specs, count, argc, argv, &rest, &fault) != ERR_OK || !w.rolltop) {
        fprintf(stderr, "demo: %s\n", w.rolltop ? fault.sentence : "give --rolltop FILE");
        return 2;
    }
    const char *base = getenv("TMPDIR");
    w.dir = xasprintf("%s/rolltop-bench-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(w.dir)) {
        die(w.dir);
    }
    w.log = fs_join(w.dir, "run.db");
    w.out = fs_join(w.dir, "out");
    (void)setenv("XDG_STATE_HOME", w.dir, 1);
    (void)setenv("XDG_RUNTIME_DIR", w.dir, 1);
    run_start(&w);
    bool good = run_follow(&w);
    if (good) {
        print_first(&w);
    }
    if (good && !w.first_only) {
        print_run(&w);
    }
    if (!good || (!w.first_only && w.status > 1)) {
        run_show_output(&w);
        fprintf(stderr, "demo: the run ended with status %d\n", w.status);
        good = false;
    }
    (void)fs_remove_tree(w.dir, NULL);
    free(w.log);
    free(w.out);
    free(w.dir);
    flags_free(specs, count, &rest);
    return good ? 0 : 1;
}
