/* The console in a pseudo-terminal, looked at through a small VT parser: what curses sent in
 * pieces is what a full repaint shows, in every terminal and locale; colours, mouse, clipboard,
 * true colour; and budgets for bytes and wake-ups. Each wait is for the console's own mark that
 * its queue is empty and the frame is out. */
#include "core/base/clock.h"
#include "core/base/rng.h"
#include "store/store.h"
#include "tests/harness.h"
#include "tests/tui/vt.h"
#include "tui/tui.h"

#include <curses.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <term.h>
#include <unistd.h>

enum { US = 1000000, ENGINES = 16, HISTORY_S = 600, WAIT_MS = 60000, WATCH_S = 8, TURNS = 8 };
enum { BYTES_BUDGET = 1200, CURSOR_BUDGET = 1400 };

static char folder[] = "/tmp/rolltop-pty-XXXXXX";
static char log_path[128];
static Store *store;
static int64_t began_us;
static _Atomic bool writing;

/* ---- a run that goes on -------------------------------------------------------------------- */

static void write_second(int64_t t)
{
    static double total[ENGINES];
    static int64_t event;
    int64_t second = (t - began_us) / US;
    for (int i = 0; i < ENGINES; i++) {
        double rate = 800 + 50 * i + 200 * sin((double)second / 7 + i);
        total[i] += rate;
        ProbeFact probe = {.engine = i + 1, .incarnation = 1, .t_us = t, .latency_us = 900,
                           .kind = PROBE_LOADS, .outcome = "ok", .status = 200,
                           .policy_version = 4, .running = val_of((double)(4 + second % 3), t),
                           .waiting = val_of(i % 3, t),
                           .token_usage = val_of(0.3 + 0.05 * ((i + (int)second) % 5), t),
                           .gen_tokens_total = val_of(total[i], t),
                           .gen_throughput = val_of(rate, t)};
        store_put_probe(store, &probe);
    }
    if (second % 10 == 0) {
        char text[64];
        (void)snprintf(text, sizeof text, "step %lld done 10.0 s \xe6\x9d\xb1 \x1b[31m",
                       (long long)++event);
        EventFact fact = {t, SEVERITY_INFO, "step", 0, text};
        store_put_event(store, &fact);
    }
}

static void *write_on(void *arg)
{
    (void)arg;
    int64_t t = clock_wall_us();
    while (writing) {
        t += US;
        while (writing && clock_wall_us() < t) {
            clock_sleep_us(20000);
        }
        write_second(t);
    }
    return NULL;
}

static bool open_log(void)
{
    Fault fault = {0};
    if (store_open(log_path, NULL, &store, &fault) != ERR_OK) {
        fault_print(&fault);
        return false;
    }
    began_us = clock_wall_us() - HISTORY_S * (int64_t)US;
    RunFact run = {began_us, "r1", "ptyrun", "host", "0", "[]", "{}"};
    SessionFact session = {1, began_us, 0, 1, "start"};
    StepFact step = {.step = 3, .t_us = began_us, .policy_version = 4};
    PhaseFact phase = {.phase_id = 1, .step = 3, .t_us = began_us, .phase = PHASE_GENERATE};
    store_put_run(store, &run);
    store_put_session(store, &session);
    store_put_step(store, &step);
    store_put_phase(store, &phase);
    for (int i = 0; i < ENGINES; i++) {
        char name[16];
        char address[32];
        (void)snprintf(name, sizeof name, "eng-%02d", i);
        (void)snprintf(address, sizeof address, "127.0.0.%d:30000", 1 + i / 4);
        EngineFact engine = {i + 1, began_us, name, address, true};
        EngineStateFact state = {i + 1, 1, began_us, i == 5 ? ENGINE_DEAD : ENGINE_UP, 4,
                                 i == 5 ? "connection refused" : NULL};
        store_put_engine(store, &engine);
        store_put_engine_state(store, &state);
    }
    for (int s = 0; s < HISTORY_S; s++) {
        write_second(began_us + s * (int64_t)US);
    }
    return store_wait(store, store_ticket(store), 10000, NULL) == ERR_OK;
}

/* ---- the console behind the parser --------------------------------------------------------- */

typedef struct Console {
    pid_t pid;
    int fd;
    long bytes;
    Vt vt;
} Console;

static Console con, other;

typedef struct Setup {
    const char *term, *locale, *no_color, *colorterm;
    int w, h;
    bool replay;
} Setup;

static void set_or_not(const char *name, const char *value)
{
    if (value) {
        (void)setenv(name, value, 1);
    } else {
        (void)unsetenv(name);
    }
}

/* The console runs in a program of its own: a fork of this one, whose log has a writer thread that
 * may hold a lock at that moment, may do nothing but exec. */
static int console_main(char *log, bool replay)
{
    Fault fault = {0};
    TuiOptions options = {.log_path = log, .replay = replay, .user = "tester",
                          .start_at = replay ? "-10s" : NULL,
                          .theme_dir = ROLLTOP_SOURCE "/themes"};
    return tui_run(&options, NULL, &fault) != ERR_OK;
}

static void start(Console *c, const Setup *setup)
{
    struct winsize size = {(unsigned short)setup->h, (unsigned short)setup->w, 0, 0};
    char *argv[] = {"console", "console", log_path, setup->replay ? "replay" : "live", NULL};
    memset(c, 0, sizeof *c);
    vt_size(&c->vt, setup->w, setup->h);
    set_or_not("TERM", setup->term);
    set_or_not("LC_ALL", setup->locale);
    set_or_not("NO_COLOR", setup->no_color);
    set_or_not("COLORTERM", setup->colorterm);
    (void)setenv("ROLLTOP_TEST", "1", 1);
    fflush(stdout);
    c->pid = forkpty(&c->fd, NULL, NULL, &size);
    if (c->pid == 0) {
        (void)execv("/proc/self/exe", argv);
        _exit(127);
    }
}

static bool take(Console *c, int timeout_ms)
{
    char buffer[65536];
    struct pollfd fd = {c->fd, POLLIN, 0};
    if (poll(&fd, 1, timeout_ms) <= 0) {
        return false;
    }
    ssize_t n = read(c->fd, buffer, sizeof buffer);
    if (n <= 0) {
        return false;
    }
    c->bytes += n;
    vt_feed(&c->vt, buffer, (size_t)n);
    return true;
}

/* Until the console says that a frame is out which it drew after now. */
static bool settle(Console *c)
{
    long before = c->vt.ready;
    int64_t until = clock_mono_us() + WAIT_MS * INT64_C(1000);
    while (c->vt.ready == before && clock_mono_us() < until) {
        (void)take(c, 100);
    }
    return c->vt.ready > before;
}

static void press(Console *c, const char *keys)
{
    ssize_t ignored = write(c->fd, keys, strlen(keys));
    (void)ignored;
    CHECK(settle(c));
}

static int finish(Console *c, int number)
{
    int status = 0;
    int64_t until = clock_mono_us() + WAIT_MS * INT64_C(1000);
    if (number) {
        (void)kill(c->pid, number);
    } else {
        ssize_t ignored = write(c->fd, "\x03", 1);
        (void)ignored;
    }
    while (waitpid(c->pid, &status, WNOHANG) != c->pid) {
        (void)take(c, 20);
        if (clock_mono_us() > until) {
            (void)kill(c->pid, SIGKILL);
        }
    }
    while (take(c, 20)) {
    }
    (void)close(c->fd);
    return status;
}

static bool same_screen(const Vt *a, const Vt *b)
{
    for (int y = 0; y < a->h; y++) {
        char left[4 * VT_W + 1];
        char right[4 * VT_W + 1];
        vt_row(a, y, left);
        vt_row(b, y, right);
        if (strcmp(left, right) != 0) {
            fprintf(stderr, "row %d: '%s'\n    not '%s'\n", y, left, right);
            return false;
        }
    }
    return true;
}

/* ---- tests --------------------------------------------------------------------------------- */

/* Sixty random looking keys; after some of them the screen that came in pieces must be the one
 * that a full repaint shows. */
static void pieces_are_the_whole(const char *term, const char *locale)
{
    static const char *const keys[] = {"j", "k", "G", "g", "2", "3", "4", "5", "6", "7", "1",
                                       "o", "s", "\r", "\x1b", "e", "-", "+", "?", "\t", "[",
                                       "]", "h", "l", ">", "I", " ", "*", "f", "n", ","};
    static Vt before;
    Rng rng;
    Setup setup = {.term = term, .locale = locale, .w = 80, .h = 24, .replay = true};
    rng_seed(&rng, 3);
    start(&con, &setup);
    CHECK(settle(&con));
    CHECK(vt_shows(&con.vt, "rolltop ptyrun"));
    CHECK(con.vt.alternate || strcmp(term, "vt100") == 0 || strcmp(term, "linux") == 0);
    for (int i = 0; i < 60; i++) {
        press(&con, keys[rng_below(&rng, sizeof keys / sizeof keys[0])]);
        if (i % 6 == 0) {
            before = con.vt;
            press(&con, "\f");
            CHECK(same_screen(&con.vt, &before));
        }
    }
    CHECK_I64(con.vt.unknown, 0);
    CHECK_I64(con.vt.titles, 0); /* nothing of the log's texts got through as a sequence */
    (void)finish(&con, SIGTERM);
    CHECK(!con.vt.alternate && !con.vt.mouse && !con.vt.hidden);
}

static bool known_terminal(const char *term)
{
    int known = 0;
    bool ok = setupterm(term, STDOUT_FILENO, &known) == OK;
    if (cur_term) {
        (void)del_curterm(cur_term);
    }
    return ok;
}

static void terminals_and_locales(void)
{
    static const char *const terms[] = {"xterm-256color", "xterm", "vt100", "screen",
                                        "tmux-256color", "linux"};
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++) {
        if (!known_terminal(terms[i])) {
            printf("skipped: terminfo does not know %s here\n", terms[i]);
            continue;
        }
        pieces_are_the_whole(terms[i], "C");
    }
    pieces_are_the_whole("xterm-256color", "C.UTF-8");
}

/* The layout is the same to the cell: only glyphs differ between the locales, and nothing differs
 * between a vt100 and an xterm. */
static void same_to_the_cell(void)
{
    Setup utf8 = {.term = "xterm-256color", .locale = "C.UTF-8", .w = 120, .h = 40,
                  .replay = true};
    Setup ascii = utf8;
    ascii.locale = "C";
    start(&con, &utf8);
    start(&other, &ascii);
    CHECK(settle(&con) && settle(&other));
    int far = 0;
    for (int y = 0; y < con.vt.h - 2; y++) { /* without the status line: its milliseconds differ */
        for (int x = 0; x < con.vt.w; x++) {
            uint32_t a = con.vt.cells[y][x];
            uint32_t b = other.vt.cells[y][x];
            CHECK(b < 127);
            far += a < 127 && a != b ? 1 : 0; /* where UTF-8 has ASCII, C has the same */
        }
    }
    CHECK(far < 16);
    (void)finish(&other, 0);
    ascii.term = "vt100";
    if (known_terminal("vt100")) {
        static Vt xterm;
        ascii.term = "xterm-256color";
        start(&other, &ascii);
        CHECK(settle(&other));
        press(&other, "4");
        xterm = other.vt;
        (void)finish(&other, 0);
        ascii.term = "vt100";
        start(&other, &ascii);
        CHECK(settle(&other));
        press(&other, "4");
        CHECK_I64(other.vt.colours, 0);
        vt_clear(&other.vt, 38, 0, 38, 119); /* the status line names theme and milliseconds */
        vt_clear(&xterm, 38, 0, 38, 119);
        CHECK(same_screen(&other.vt, &xterm));
        (void)finish(&other, 0);
    }
    (void)finish(&con, 0);
}

static void colours(void)
{
    Setup setup = {.term = "xterm-256color", .locale = "C.UTF-8", .w = 80, .h = 24,
                   .replay = true, .no_color = "1"};
    start(&con, &setup);
    CHECK(settle(&con));
    press(&con, "2");
    CHECK_I64(con.vt.colours, 0);
    CHECK(vt_shows(&con.vt, "theme mono"));
    (void)finish(&con, 0);
    setup.no_color = NULL;
    start(&con, &setup);
    CHECK(settle(&con));
    CHECK(con.vt.colours > 0);
    (void)finish(&con, 0);
    setup.term = "nosuchterminal";
    start(&con, &setup);
    CHECK(settle(&con));
    CHECK(vt_shows(&con.vt, "TERM=nosuchterminal is not known here, using xterm-256color"));
    (void)finish(&con, 0);
    if (known_terminal("xterm-direct")) {
        setup.term = "xterm-256color";
        setup.colorterm = "truecolor";
        start(&con, &setup);
        CHECK(settle(&con));
        CHECK(con.vt.colours > 0 && con.vt.unknown == 0);
        CHECK(vt_shows(&con.vt, "rolltop ptyrun"));
        (void)finish(&con, 0);
    }
}

/* A click selects the row under it, a click on a title sorts, and no signal leaves the mouse on. */
static void mouse_and_clipboard(void)
{
    Setup setup = {.term = "xterm-256color", .locale = "C.UTF-8", .w = 120, .h = 40,
                   .replay = true};
    char row[4 * VT_W + 1];
    static const int signals[] = {SIGTERM, SIGSEGV, SIGHUP};
    start(&con, &setup);
    CHECK(settle(&con));
    CHECK(con.vt.mouse);
    press(&con, "\x1b[<0;10;10M\x1b[<0;10;10m");
    vt_row(&con.vt, 9, row);
    CHECK(row[0] == '>');
    press(&con, "\x1b[<0;30;6M\x1b[<0;30;6m"); /* TOK/S */
    CHECK(vt_shows(&con.vt, "sort: tok/s"));
    press(&con, "\x1b[<65;10;10M");
    press(&con, "y");
    CHECK_I64(con.vt.copies, 1);
    press(&con, "Y");
    CHECK_I64(con.vt.copies, 2);
    CHECK(vt_shows(&con.vt, "OSC 52"));
    (void)finish(&con, 0);
    CHECK(!con.vt.mouse);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        start(&con, &setup);
        CHECK(settle(&con));
        int status = finish(&con, signals[i]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
        CHECK(!con.vt.mouse && !con.vt.alternate);
    }
}

static long wakes(pid_t pid)
{
    char path[64];
    char line[128];
    long count = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0) {
            count = atol(line + 24);
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return count;
}

typedef struct Watch {
    long median, largest, woke, seconds;
} Watch;

/* So many frames of a console that nobody touches: one a second, or fewer on a busy machine. */
static Watch watch(Console *c)
{
    long frames[WATCH_S];
    long woken = wakes(c->pid);
    int64_t from = clock_mono_us();
    for (int i = 0; i < WATCH_S; i++) {
        long before = c->bytes;
        long seen = c->vt.ready;
        CHECK(settle(c));
        frames[i] = (c->bytes - before) / (c->vt.ready > seen ? c->vt.ready - seen : 1);
    }
    Watch out = {.woke = woken < 0 ? 0 : wakes(c->pid) - woken,
                 .seconds = (long)((clock_mono_us() - from) / US) + 1};
    for (int i = 0; i < WATCH_S; i++) { /* insertion sort: eight numbers */
        for (int k = i; k > 0 && frames[k] < frames[k - 1]; k--) {
            long swap = frames[k];
            frames[k] = frames[k - 1];
            frames[k - 1] = swap;
        }
    }
    out.median = frames[WATCH_S / 2];
    out.largest = frames[WATCH_S - 1];
    return out;
}

/* Live, 16 engines whose numbers and sparklines all change each second: within the budgets. A frame
 * that comes late has more to say, so a machine that was busy is watched again. */
static void budgets(void)
{
    Setup setup = {.term = "xterm-256color", .locale = "C.UTF-8", .w = 200, .h = 50};
    pthread_t writer;
    start(&con, &setup); /* before the thread: a fork amid threads may inherit a held lock */
    CHECK(settle(&con));
    writing = true;
    if (pthread_create(&writer, NULL, write_on, NULL) != 0) {
        CHECK(false);
        return;
    }
    (void)settle(&con);
    bool within = false;
    for (int turn = 0; turn < TURNS && !within; turn++) {
        Watch seen = watch(&con);
        printf("bytes a refresh: median %ld, largest %ld; wake-ups a second %.1f\n", seen.median,
               seen.largest, (double)seen.woke / (double)seen.seconds);
        within = seen.median > 0 && seen.median <= BYTES_BUDGET && seen.woke <= 2 * seen.seconds;
    }
    CHECK(within);
    long least = LONG_MAX;
    for (int i = 0; i < 4 * TURNS && least > CURSOR_BUDGET; i++) { /* a refresh may fall into it */
        long before = con.bytes;
        press(&con, "j");
        least = con.bytes - before < least ? con.bytes - before : least;
    }
    printf("a cursor move, with the other engine's page beside the table: %ld bytes\n", least);
    CHECK(least <= CURSOR_BUDGET);
    (void)finish(&con, 0);
    writing = false;
    (void)pthread_join(writer, NULL);
}

/* With "write FILE" it only writes such a log: for the test in tmux. */
int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "console") == 0) {
        return console_main(argv[2], strcmp(argv[3], "replay") == 0);
    }
    if (argc == 3 && strcmp(argv[1], "write") == 0) {
        (void)snprintf(log_path, sizeof log_path, "%s", argv[2]);
        bool written = open_log();
        store_close(store);
        return written ? 0 : 1;
    }
    if (!known_terminal("xterm-256color")) {
        printf("skipped: terminfo does not know xterm-256color here\n");
        return 77;
    }
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* for wcwidth in the parser */
    (void)signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(folder)) {
        return 1;
    }
    (void)snprintf(log_path, sizeof log_path, "%s/run.db", folder);
    if (!open_log()) {
        return 1;
    }
    RUN(terminals_and_locales);
    RUN(same_to_the_cell);
    RUN(colours);
    RUN(mouse_and_clipboard);
    RUN(budgets);
    store_close(store);
    char command[160];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    int ignored = system(command);
    (void)ignored;
    return test_end();
}
