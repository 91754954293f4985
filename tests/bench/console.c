/* What the console costs: first frame, CPU at one refresh a second, bytes and wake-ups, on a log
 * that this program writes itself: a made-up fleet with a past that grows once a second.
 *   bench_console                               measures, 16 engines, 10 minutes of past
 *   bench_console keys [ENGINES MINUTES]        bytes a refresh at 200x50, CPU without the start,
 *                                               key to first byte: 16, 64 and 1024 engines
 *   bench_console LOG.db ENGINES MINUTES MODE   to look at it; MODE is live, write, replay, attach
 *                                               (to a log that another one is writing), or feed
 *                                               (write on until the process is ended)
 * No core is behind it. */
#include "tests/bench/console_world.h"
#include "tui/screen.h"
#include "tui/tui.h"

#include <math.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { STARTS = 3, SETUP_BYTES = 1000 };

static Err show(const char *path, bool replay, Fault *fault)
{
    TuiOptions options = {.log_path = path, .replay = replay, .theme = getenv("ROLLTOP_THEME"),
                          .theme_dir = "themes", .user = "ana"};
    return tui_run(&options, NULL, fault);
}

/* ---- measuring ------------------------------------------------------------------------------ */

typedef struct Watch {
    double first_byte_ms, first_frame_ms, cpu_percent, bytes_per_s, wakes_per_s;
    long first_bytes, rss_kb;
} Watch;

/* The console as a process of its own: a fork amid the writer's threads may inherit a held lock. */
static pid_t start_console(const char *path, int cols, int rows, int *fd)
{
    struct winsize size = {(unsigned short)rows, (unsigned short)cols, 0, 0};
    pid_t pid = forkpty(fd, NULL, NULL, &size);
    if (pid == 0) {
        (void)setenv("TERM", "xterm-256color", 1);
        (void)setenv("LC_ALL", "C.UTF-8", 1);
        execl("/proc/self/exe", "bench_console", path, "2", "1", "attach", (char *)NULL);
        _exit(127);
    }
    return pid;
}

typedef struct Spent { /* by the console so far */
    double cpu_ns;
    long wakes; /* times that it waited for something and went on */
} Spent;

static Spent spent(pid_t pid)
{
    char path[64];
    char line[128];
    Spent out = {.cpu_ns = cpu_ns(pid)};
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        (void)sscanf(line, "voluntary_ctxt_switches: %ld", &out.wakes);
    }
    if (file) {
        (void)fclose(file);
    }
    return out;
}

/* The first frame ends at the last byte of the first burst (bursts are 30 ms apart); what sets the
 * terminal up comes before it, some hundred bytes. */
static void first_frame(int fd, int64_t began, Watch *out)
{
    char buffer[65536];
    struct pollfd wait = {fd, POLLIN, 0};
    while (poll(&wait, 1, out->first_bytes > SETUP_BYTES ? 30 : 10000) > 0) {
        ssize_t n = read(fd, buffer, sizeof buffer);
        if (n <= 0) {
            break;
        }
        double at = (double)(clock_mono_us() - began) / 1000;
        out->first_byte_ms = out->first_bytes == 0 ? at : out->first_byte_ms;
        out->first_frame_ms = at;
        out->first_bytes += (long)n;
    }
}

/* The console in a pseudo-terminal: its start, then `seconds` of refreshes. */
static Watch watch(const char *path, int cols, int rows, int seconds)
{
    Watch out = {0};
    double ms = 0;
    int fd = -1;
    int64_t began = clock_mono_us();
    pid_t pid = start_console(path, cols, rows, &fd);
    first_frame(fd, began, &out);
    if (seconds > 0) {
        (void)drain(fd, 1500, &ms);
        Spent before = spent(pid);
        out.bytes_per_s = (double)drain(fd, seconds * 1000, &ms) / seconds;
        Spent after = spent(pid);
        out.cpu_percent = (after.cpu_ns - before.cpu_ns) / (seconds * 1e7);
        out.wakes_per_s = (double)(after.wakes - before.wakes) / seconds;
    }
    struct rusage usage;
    ssize_t ignored = write(fd, "q", 1);
    (void)ignored;
    clock_sleep_us(300000);
    (void)kill(pid, SIGKILL);
    (void)wait4(pid, NULL, 0, &usage);
    (void)close(fd);
    out.rss_kb = usage.ru_maxrss;
    return out;
}

static int measure(void)
{
    static const int sizes[][2] = {{80, 24}, {120, 40}, {200, 60}};
    char folder[] = "/tmp/rolltop-bench-XXXXXX";
    char path[64];
    char command[96];
    World w = {.engines = 16};
    Fault fault = {0};
    pthread_t writer;
    if (!mkdtemp(folder)) {
        return 1;
    }
    (void)snprintf(path, sizeof path, "%s/run.db", folder);
    if (open_world(&w, path, 10, &fault) != ERR_OK) {
        fault_print(&fault);
        return 1;
    }
    if (pthread_create(&writer, NULL, live, &w) != 0) {
        return 1;
    }
    printf("console on a live run of %d engines, 1 Hz\n", w.engines);
    printf("size      first frame ms (best, worst of %d)   bytes   CPU %%   bytes/s   wakes/s"
           "   RSS KiB\n", STARTS);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double best = 1e9;
        double worst = 0;
        for (int k = 0; k < STARTS; k++) {
            double ms = watch(path, sizes[i][0], sizes[i][1], 0).first_frame_ms;
            best = fmin(best, ms);
            worst = fmax(worst, ms);
        }
        Watch run = watch(path, sizes[i][0], sizes[i][1], WATCH_S);
        printf("%3dx%-3d   %18.1f %6.1f %16ld %7.2f %9.0f %9.2f %9ld\n", sizes[i][0], sizes[i][1],
               best, worst, run.first_bytes, run.cpu_percent, run.bytes_per_s, run.wakes_per_s,
               run.rss_kb);
        fflush(stdout);
    }
    w.stop = true;
    (void)pthread_join(writer, NULL);
    store_close(w.store);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0;
}

static void press_and_watch(World *w, pthread_t *writer, const char *path)
{
    static const char *const keys[] = {"j", "j", "k", "4", "1", "j", "\r", "\x7f", "3", "1"};
    double refresh[WATCH_S];
    double latency[KEYS];
    int count = 0;
    double ms = 0;
    int fd = -1;
    pid_t pid = start_console(path, 200, 50, &fd);
    if (pthread_create(writer, NULL, live, w) != 0) {
        abort();
    }
    (void)drain(fd, 3000, &ms);
    double before = cpu_ns(pid);
    for (int i = 0; i < WATCH_S; i++) {
        refresh[i] = (double)drain(fd, 1000, &ms);
    }
    double cpu = cpu_ns(pid) - before;
    for (int i = 0; i < KEYS; i++) {
        const char *key = keys[i % (int)(sizeof keys / sizeof keys[0])];
        ssize_t ignored = write(fd, key, strlen(key));
        (void)ignored;
        (void)drain(fd, KEY_GAP_MS, &ms);
        if (ms >= 0) {
            latency[count++] = ms;
        }
    }
    int status = 0;
    bool ended = waitpid(pid, &status, WNOHANG) == pid;
    if (ended) {
        fprintf(stderr, "the console ended by itself, status %d\n", status);
    } else {
        (void)kill(pid, SIGTERM);
        (void)waitpid(pid, NULL, 0);
    }
    (void)close(fd);
    qsort(refresh, WATCH_S, sizeof refresh[0], compare_numbers);
    qsort(latency, (size_t)count, sizeof latency[0], compare_numbers);
    printf("%7d  %12.0f %9.0f %10.2f %14.2f", w->engines, refresh[WATCH_S / 2],
           refresh[WATCH_S - 1], cpu / (WATCH_S * 1e7),
           cpu / (WATCH_S * 1e6));
    if (count > 0) {
        printf(" %10.2f %8.2f %8d\n", latency[count / 2], latency[count * 99 / 100], count);
    } else {
        printf("  no key was answered\n");
    }
}

/* CPU time of this thread, so that a busy machine does not count. */
static int64_t thread_cpu_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * US + t.tv_nsec / 1000;
}

typedef struct Frame { /* one process, no terminal */
    View *view;
    Model *model;
    Surface *surface;
    Arena *arena;
    Snapshot snap;
    double read_ms, draw_ms;
} Frame;

static void frame(Frame *f, int64_t now)
{
    SnapRequest request = model_request(f->model, now);
    int64_t began = thread_cpu_us();
    (void)snapshot_read(f->view, &request, f->arena, &f->snap);
    int64_t read = thread_cpu_us();
    (void)model_observe(f->model, &f->snap, now);
    screen_draw(f->model, &f->snap, now, f->surface);
    f->read_ms += (double)(read - began) / 1000;
    f->draw_ms += (double)(thread_cpu_us() - read) / 1000;
}

/* Reading the log, then ordering and drawing: frames of one second after the other while the log
 * goes on, then of seconds here and there in its past. */
static void repaint(World *w, const char *path)
{
    enum { ROUNDS = 60 };
    static Frame f;
    Fault fault = {0};
    f = (Frame){0};
    if (view_open(path, &f.view, &fault) != ERR_OK) {
        fault_print(&fault);
        return;
    }
    ModelConfig config = {.user = "ana", .log_path = path};
    f.model = model_new(&config);
    f.surface = surface_new(200, 50, false);
    f.arena = arena_new(SNAP_ARENA_MAX);
    (void)model_resize(f.model, 200, 50);
    int64_t first = (clock_wall_us() - w->t0_us) / US + 1;
    for (int64_t second = first; second <= first + ROUNDS; second++) {
        second_of_life(w, second);
        (void)store_wait(w->store, store_ticket(w->store), 60000, NULL);
        f.read_ms = second == first ? 0 : f.read_ms; /* the first one reads all */
        f.draw_ms = second == first ? 0 : f.draw_ms;
        frame(&f, w->t0_us + second * US + US / 3);
    }
    printf("%28s live: read %.2f ms, order and draw %.2f ms of CPU a frame; ", "",
           f.read_ms / ROUNDS, f.draw_ms / ROUNDS);
    f.read_ms = 0;
    for (int i = 0; i < ROUNDS; i++) {
        frame(&f, w->t0_us + (int64_t)rng_below(&w->rng, (uint64_t)(first * US)));
    }
    printf("read after a jump %.2f ms\n", f.read_ms / ROUNDS);
    surface_free(f.surface);
    model_free(f.model);
    arena_free(f.arena);
    view_close(f.view);
}

static int keys(const char *engines, const char *minutes)
{
    static const int sizes[] = {16, 64, ENGINES_MAX};
    int only = engines ? atoi(engines) : 0;
    printf("200x50, 1 Hz, every engine's numbers change each second\n"
           "engines  bytes/refresh   largest   CPU %%    ms a refresh   key p50 ms      p99    "
           "keys\n");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char path[] = "/tmp/rolltop-bench-keys-XXXXXX";
        char side[64];
        Fault fault = {0};
        pthread_t writer;
        World *w = calloc(1, sizeof *w);
        int file = mkstemp(path);
        if (!w || file < 0) {
            return 1;
        }
        (void)close(file);
        w->engines = only > 1 && only <= ENGINES_MAX ? only : sizes[i];
        int past = minutes ? atoi(minutes) : w->engines > 100 ? 2 : 10;
        if (open_world(w, path, past < 1 ? 1 : past, &fault) != ERR_OK) {
            fault_print(&fault);
            return 1;
        }
        press_and_watch(w, &writer, path);
        w->stop = true;
        (void)pthread_join(writer, NULL);
        repaint(w, path);
        fflush(stdout);
        store_close(w->store);
        free(w);
        (void)remove(path);
        static const char *const tails[] = {"-wal", "-shm", ".lock"};
        for (size_t k = 0; k < sizeof tails / sizeof tails[0]; k++) {
            (void)snprintf(side, sizeof side, "%s%s", path, tails[k]);
            (void)remove(side);
        }
        if (only) {
            break;
        }
    }
    return 0;
}

static int look(char **argv)
{
    World w = {.engines = atoi(argv[2])};
    int minutes = atoi(argv[3]);
    const char *mode = argv[4];
    bool replay = strcmp(mode, "replay") == 0;
    Fault fault = {0};
    Err err = ERR_OK;
    pthread_t writer;
    if (w.engines < 2 || w.engines > ENGINES_MAX || minutes < 1) {
        fprintf(stderr, "2 to 1024 engines, one minute or more\n");
        return 2;
    }
    if (!replay && strcmp(mode, "attach") != 0) {
        err = open_world(&w, argv[1], minutes, &fault);
    }
    if (err == ERR_OK && strcmp(mode, "feed") == 0) {
        (void)live(&w);
    }
    bool writing = err == ERR_OK && strcmp(mode, "live") == 0 &&
                   pthread_create(&writer, NULL, live, &w) == 0;
    if (err == ERR_OK && strcmp(mode, "write") != 0) {
        err = show(argv[1], replay, &fault);
    }
    w.stop = true;
    if (writing) {
        (void)pthread_join(writer, NULL);
    }
    store_close(w.store);
    if (err != ERR_OK) {
        fault_print(&fault);
    }
    return err != ERR_OK;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        return measure();
    }
    if (strcmp(argv[1], "keys") == 0 && argc <= 4) {
        return keys(argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL);
    }
    if (argc == 5) {
        return look(argv);
    }
    fprintf(stderr, "bench_console [keys [ENGINES MINUTES] | "
            "LOG.db ENGINES MINUTES live|write|feed|replay|attach]\n");
    return 2;
}
