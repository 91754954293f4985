/* The console beside a busy writer: 1,024 engines, whose numbers change each second, and 100,000
 * events a second that go to the same log.
 *   bench_console_load             all of it; up to 2 GB under /tmp for a minute
 *   bench_console_load show LOG    the console alone, for this program itself
 * Writer: flat out, alone and with a console that looks, in turns of a second, one refresh each;
 * the order changes from turn to turn, and the console is stopped while the writer is alone. The
 * ratio is that of neighbours. CPU of a row is that of the whole writing process, so that other
 * load counts less.
 * htop and btop, where installed, are looked at in the same terminal beside the same writer.
 * Needs Linux: the CPU of each thread comes from /proc. */
#include "tests/bench/console_world.h"
#include "tui/tui.h"

#include <dirent.h>
#include <pty.h>
#include <sys/wait.h>

enum {
    EVENTS_S = 100000,
    SLICE_US = 10000,  /* the paced writer puts what is due every 10 ms */
    FLAT_US = US,
    FLAT_AHEAD = 32000, /* rows that may wait in the queue */
    TURNS = 10,
    SETTLE_MS = 2500
};

typedef struct Load {
    World *world;
    int64_t written, began_us, ended_us;
} Load;

static void put_event(World *w)
{
    EventFact fact = {.t_us = clock_wall_us(), .severity = SEVERITY_INFO, .source = "rollout",
                      .engine = 1 + w->event % w->engines,
                      .text = "sample 41263 took its turn; 128 tokens, 2 calls of a tool"};
    store_put_event(w->store, &fact);
    w->event++;
}

/* Rows a second, and microseconds of CPU a row. */
static double flat_out(World *w, double *cpu_us)
{
    int64_t began = clock_mono_us();
    int64_t cpu = clock_cpu_us();
    int64_t rows = 0;
    while (clock_mono_us() - began < FLAT_US) {
        for (int i = 0; i < 1000; i++, rows++) {
            put_event(w);
        }
        uint64_t ticket = store_ticket(w->store);
        while (ticket - store_durable(w->store) > FLAT_AHEAD) {
            (void)store_wait(w->store, ticket - FLAT_AHEAD / 2, 10000, NULL);
        }
    }
    (void)store_wait(w->store, store_ticket(w->store), 60000, NULL);
    *cpu_us = (double)(clock_cpu_us() - cpu) / (double)rows;
    return (double)rows * 1e6 / (double)(clock_mono_us() - began);
}

/* 100,000 events a second, and the fleet's own numbers once a second. */
static void *paced(void *arg)
{
    Load *load = arg;
    World *w = load->world;
    int64_t second = (clock_wall_us() - w->t0_us) / US;
    load->began_us = clock_mono_us();
    while (!w->stop) {
        int64_t due = (clock_mono_us() - load->began_us) * EVENTS_S / US;
        for (; load->written < due; load->written++) {
            put_event(w);
        }
        for (; w->t0_us + (second + 1) * US <= clock_wall_us(); second++) {
            second_of_life(w, second + 1);
        }
        clock_sleep_us(SLICE_US);
    }
    load->ended_us = clock_mono_us();
    return NULL;
}

/* ---- programs in a pseudo-terminal ---------------------------------------------------------- */

static double cpu_of_threads(pid_t pid)
{
    char path[64];
    double sum = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        double ns = entry->d_name[0] == '.' ? 0 : cpu_ns((pid_t)atoi(entry->d_name));
        sum += ns > 0 ? ns : 0;
    }
    if (folder) {
        (void)closedir(folder);
    }
    return sum;
}

static pid_t start(char *const argv[], int *fd)
{
    struct winsize size = {50, 200, 0, 0};
    pid_t pid = forkpty(fd, NULL, NULL, &size);
    if (pid == 0) {
        (void)setenv("TERM", "xterm-256color", 1);
        (void)setenv("LC_ALL", "C.UTF-8", 1);
        (void)execvp(argv[0], argv);
        _exit(127);
    }
    return pid;
}

static void finish(pid_t pid, int fd)
{
    (void)kill(pid, SIGTERM);
    (void)close(fd);
    clock_sleep_us(200000);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* Ten seconds of looking on, then keys. */
static void look(const char *name, char *const argv[], const char *const *keys, int key_count)
{
    double latency[KEYS];
    double ms = 0;
    long bytes = 0;
    int count = 0;
    int fd = -1;
    pid_t pid = start(argv, &fd);
    (void)drain(fd, SETTLE_MS, &ms);
    double cpu = cpu_of_threads(pid);
    for (int i = 0; i < WATCH_S; i++) {
        bytes += drain(fd, 1000, &ms);
    }
    cpu = cpu_of_threads(pid) - cpu;
    for (int i = 0; i < KEYS; i++) {
        const char *key = keys[i % key_count];
        ssize_t ignored = write(fd, key, strlen(key));
        (void)ignored;
        (void)drain(fd, KEY_GAP_MS, &ms);
        if (ms >= 0) {
            latency[count++] = ms;
        }
    }
    finish(pid, fd);
    qsort(latency, (size_t)count, sizeof latency[0], compare_numbers);
    printf("%-8s %10.2f %14.2f %9.0f", name, cpu / (WATCH_S * 1e7), cpu / (WATCH_S * 1e6),
           (double)bytes / WATCH_S);
    if (count > 0) {
        printf(" %10.2f %8.2f %8d\n", latency[count / 2], latency[count * 99 / 100], count);
    } else {
        printf("  no key was answered\n");
    }
    fflush(stdout);
}

static bool installed(const char *name)
{
    char command[64];
    (void)snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", name);
    return system(command) == 0;
}

static void look_at_all(char *path)
{
    static const char *const ours[] = {"j", "j", "k", "4", "1", "j", "\r", "\x7f", "3", "1"};
    static const char *const peers[] = {"\x1b[B", "\x1b[B", "\x1b[A"};
    char *const console[] = {"/proc/self/exe", "show", path, NULL};
    char *const htop[] = {"htop", "-d", "10", NULL};
    char *const btop[] = {"btop", NULL};
    printf("program       CPU %%    ms a second   bytes/s   key p50 ms      p99     keys\n");
    look("rolltop", console, ours, (int)(sizeof ours / sizeof ours[0]));
    if (installed("htop")) {
        look("htop", htop, peers, 3);
    } else {
        printf("htop     is not installed\n");
    }
    if (installed("btop")) {
        look("btop", btop, peers, 3);
    } else {
        printf("btop     is not installed\n");
    }
}

/* Median, and the half of all turns that lies around it. */
static void say_ratio(const char *what, double *ratio)
{
    qsort(ratio, TURNS, sizeof ratio[0], compare_numbers);
    printf("  %-10s %.3fx, half of the turns %.3fx to %.3fx, all %.3fx to %.3fx\n", what,
           (ratio[TURNS / 2 - 1] + ratio[TURNS / 2]) / 2, ratio[TURNS / 4],
           ratio[TURNS - 1 - TURNS / 4], ratio[0], ratio[TURNS - 1]);
}

static void slowed(World *w, char *path)
{
    char *const console[] = {"/proc/self/exe", "show", path, NULL};
    double rate[TURNS];
    double cost[TURNS];
    double ms = 0;
    int fd = -1;
    pid_t pid = start(console, &fd);
    (void)drain(fd, SETTLE_MS, &ms);
    for (int i = 0; i < TURNS; i++) {
        double cpu[2];
        double rows[2];
        for (int k = 0; k < 2; k++) {
            int with = (k + i) % 2;
            (void)kill(pid, with ? SIGCONT : SIGSTOP);
            (void)drain(fd, 100, &ms); /* what it missed is drawn */
            rows[with] = flat_out(w, &cpu[with]);
            (void)drain(fd, 10, &ms);
        }
        rate[i] = rows[1] / rows[0];
        cost[i] = cpu[1] / cpu[0];
        printf("turn %2d: alone %.0f events/s, %.2f us of CPU each; with the console %.0f, %.2f\n",
               i + 1, rows[0], cpu[0], rows[1], cpu[1]);
        fflush(stdout);
    }
    (void)kill(pid, SIGCONT);
    finish(pid, fd);
    printf("writer with the console against alone, median of %d turns:\n", TURNS);
    say_ratio("events/s", rate);
    say_ratio("CPU each", cost);
}

static int measure(void)
{
    char folder[] = "/tmp/rolltop-bench-XXXXXX";
    char path[64];
    char command[96];
    Fault fault = {0};
    pthread_t writer;
    World *w = calloc(1, sizeof *w);
    Load load = {.world = w};
    if (!w || !mkdtemp(folder)) {
        return 1;
    }
    w->engines = ENGINES_MAX;
    (void)snprintf(path, sizeof path, "%s/run.db", folder);
    bool ready = open_world(w, path, 2, &fault) == ERR_OK;
    ready = ready && pthread_create(&writer, NULL, paced, &load) == 0;
    if (ready) {
        printf("%d engines at 1 Hz and %d events/s beside it, 200x50\n", w->engines, EVENTS_S);
        look_at_all(path);
        w->stop = true;
        (void)pthread_join(writer, NULL);
        printf("events written: %.0f a second\n",
               (double)load.written * US / (double)(load.ended_us - load.began_us));
        slowed(w, path);
    } else {
        fault_print(&fault);
    }
    store_close(w->store);
    free(w);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0 || !ready;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        return measure();
    }
    if (argc == 3 && strcmp(argv[1], "show") == 0) {
        Fault fault = {0};
        TuiOptions options = {.log_path = argv[2], .theme_dir = "themes", .user = "ana"};
        Err err = tui_run(&options, NULL, &fault);
        if (err != ERR_OK) {
            fault_print(&fault);
        }
        return err != ERR_OK;
    }
    fprintf(stderr, "usage: bench_console_load\n");
    return 2;
}
