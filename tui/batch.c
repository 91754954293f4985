#include "tui/batch.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "tui/plain.h"
#include "tui/seek.h"
#include "tui/snapshot_json.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { US = 1000000, WRITE_MAX = PIPE_BUF, TEXT_EVENTS = 20 };
/* Numbers of events go with their times up to milliseconds; the slack is for those. */
enum { EVENT_PAGE = 500, EVENT_SLACK = 100, LOOK_US = US / 4 };
static const int64_t ALWAYS_US = INT64_MAX / 2; /* also events of a clock that is ahead */

typedef struct Batch {
    const BatchOptions *options;
    View *view;
    Model *model;
    Arena *arena, *scratch;
    Snapshot snap;
    int out, signals;
    bool stop; /* a signal asked for the end */
    Text text;
    Fault *fault;
} Batch;

/* ---- output and waiting -------------------------------------------------------------------- */

/* Signals are taken from a descriptor, so that they are seen in every wait and nowhere else. */
static int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Until `until_us` (monotonic), a signal (stop is set), or `events` on the output. False when the
 * output's reader is gone. */
static bool wait_until(Batch *b, short events, int64_t until_us)
{
    for (;;) {
        int64_t left = until_us - clock_mono_us();
        struct pollfd fds[2] = {{b->signals, POLLIN, 0}, {b->out, events, 0}};
        int ready = poll(fds, 2, left <= 0 ? 0 : left > 60 * US ? 60000 : (int)(left / 1000) + 1);
        b->stop = b->stop || (ready > 0 && fds[0].revents != 0);
        if (b->stop || (ready > 0 && (fds[1].revents & POLLOUT) != 0)) {
            return true;
        }
        if (ready > 0 && fds[1].revents != 0) {
            return false;
        }
        if (clock_mono_us() >= until_us) {
            return true;
        }
    }
}

/* In pieces that a pipe takes whole when it says that it is ready: nothing blocks unseen. */
static Err write_out(Batch *b)
{
    const char *p = text_c(&b->text);
    size_t left = b->text.n;
    Err err = ERR_OK;
    if (b->text.cut) {
        err = fault_set(b->fault, ERR_LIMIT, "rolltop query lists parts of it",
                        "the picture is larger than %d bytes", SNAPSHOT_JSON_MAX);
    }
    while (left > 0 && err == ERR_OK && !b->stop) {
        if (!wait_until(b, POLLOUT, INT64_MAX)) {
            err = fault_set_sys(b->fault, ERR_IO, EPIPE, NULL, "cannot write the output");
            break;
        }
        if (b->stop) {
            break;
        }
        ssize_t n = write(b->out, p, left < WRITE_MAX ? left : WRITE_MAX);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            err = fault_set_sys(b->fault, ERR_IO, errno, "free space, or write elsewhere",
                                "cannot write the output");
        }
        p += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    text_clear(&b->text);
    return err;
}

static Err pause_until(Batch *b, int64_t until_us)
{
    return wait_until(b, 0, until_us)
               ? ERR_OK
               : fault_set_sys(b->fault, ERR_IO, EPIPE, NULL, "cannot write the output");
}

/* ---- reading ------------------------------------------------------------------------------- */

static Err read_picture(Batch *b, int64_t t_us)
{
    int64_t now = clock_wall_us();
    SnapRequest request = model_request(b->model, now);
    request.t_us = t_us;
    request.policies = request.commands = true;
    request.curves = false;
    request.strip_cells = 0;
    request.detail = DETAIL_NONE;
    Err err = snapshot_read(b->view, &request, b->arena, &b->snap);
    if (err != ERR_OK) {
        return fault_set(b->fault, err, b->snap.fault.hint, "%s", b->snap.fault.sentence);
    }
    if (!b->model->live) {
        b->model->t_us = t_us;
    }
    (void)model_observe(b->model, &b->snap, now);
    return ERR_OK;
}

/* The moment asked for; live without one it is now. */
static Err first_moment(Batch *b, int64_t *t_us)
{
    const BatchOptions *o = b->options;
    RunView about = {0};
    Seek seek;
    arena_reset(b->scratch);
    if (!view_run(b->view, b->scratch, &about)) {
        Fault why = {0};
        Err err = view_fault(b->view, &why);
        return fault_set(b->fault, err ? err : ERR_NOT_FOUND, why.hint, "%s",
                         err ? why.sentence : "the log holds no run yet");
    }
    *t_us = o->live ? clock_wall_us() : about.last_us;
    if (!o->at) {
        return ERR_OK;
    }
    if (!time_parse(str_from(o->at), *t_us, about.first_us, about.last_us, &seek)) {
        return fault_set(b->fault, ERR_ARG, "10:41, -5m, 4126 (step), v210 (version), or a word",
                         "--at \"%s\" is no moment", o->at);
    }
    if (!seek_find(b->view, b->scratch, &seek, *t_us, about.last_us, t_us)) {
        return fault_set(b->fault, ERR_NOT_FOUND, "rolltop query FILE steps lists what there is",
                         "--at %s is not in this log", o->at);
    }
    return ERR_OK;
}

/* ---- pictures ------------------------------------------------------------------------------ */

static void heading(Batch *b, const char *words)
{
    (void)text_addf(&b->text, "\n%s\n", words);
}

static void put_picture(Batch *b)
{
    Screen screen = {.m = b->model, .s = &b->snap, .now_us = clock_wall_us()};
    if (b->options->json) {
        snapshot_json(&b->snap, b->model->live, &b->text);
        return;
    }
    plain_status(&screen, &b->text);
    heading(b, "ENGINES");
    plain_engines(&screen, &b->text);
    heading(b, "IN FLIGHT");
    plain_samples(&screen, &b->text);
    heading(b, "STEPS");
    plain_steps(&screen, &b->text);
    heading(b, "POLICIES");
    plain_policies(&screen, &b->text);
    heading(b, "EVENTS");
    plain_events(&screen, TEXT_EVENTS, &b->text);
    heading(b, "COMMANDS");
    plain_commands(&screen, &b->text);
}

static Err picture(Batch *b, int64_t t_us)
{
    Err err = read_picture(b, t_us);
    if (err == ERR_OK) {
        put_picture(b);
        err = write_out(b);
    }
    return err;
}

static Err start(Batch *b, const BatchOptions *options, int out, Fault *fault)
{
    ModelConfig config = {.replay = !options->live || options->at, .log_path = options->log_path};
    *b = (Batch){.options = options, .out = out, .signals = -1, .fault = fault};
    text_init(&b->text, SNAPSHOT_JSON_MAX);
    Err err = view_open(options->log_path, &b->view, fault);
    if (err != ERR_OK) {
        return err;
    }
    b->signals = signals_open();
    if (b->signals < 0) {
        return fault_set_sys(fault, ERR_IO, errno, NULL, "cannot wait for signals");
    }
    b->model = model_new(&config);
    (void)model_resize(b->model, 200, 60);
    b->arena = arena_new(SNAP_ARENA_MAX);
    b->scratch = arena_new(SNAP_ARENA_MAX);
    return ERR_OK;
}

static void end(Batch *b)
{
    if (b->signals >= 0) {
        close(b->signals);
    }
    text_free(&b->text);
    model_free(b->model);
    arena_free(b->arena);
    arena_free(b->scratch);
    view_close(b->view);
}

Err batch_snapshot(const BatchOptions *options, int out, Fault *fault)
{
    Batch b;
    int64_t t_us = 0;
    Err err = start(&b, options, out, fault);
    err = err ? err : first_moment(&b, &t_us);
    err = err ? err : picture(&b, t_us);
    end(&b);
    return err;
}

/* Live: the next whole interval after the one before, whatever a picture took. */
static Err next_moment(Batch *b, int64_t *t_us, int64_t *due_us)
{
    if (!b->model->live) {
        *t_us += b->options->every_us;
        return ERR_OK;
    }
    int64_t now = clock_mono_us();
    *due_us += b->options->every_us;
    *due_us = *due_us > now ? *due_us : now;
    Err err = pause_until(b, *due_us);
    *t_us = clock_wall_us();
    return err;
}

Err batch_top(const BatchOptions *options, int out, Fault *fault)
{
    Batch b;
    int64_t t_us = 0;
    int64_t due_us = clock_mono_us();
    Err err = start(&b, options, out, fault);
    err = err ? err : first_moment(&b, &t_us);
    for (int64_t n = 0; err == ERR_OK && !b.stop && (options->count < 0 || n < options->count);) {
        err = picture(&b, t_us);
        bool over = b.model->live ? b.model->ended : t_us >= b.snap.run.last_us;
        if (err != ERR_OK || over || ++n == options->count) {
            break;
        }
        if (!options->json) {
            (void)text_add_c(&b.text, "\n");
        }
        err = next_moment(&b, &t_us, &due_us);
        if (!b.model->live && t_us > b.snap.run.last_us) {
            t_us = b.snap.run.last_us; /* the last picture is the end of the log */
        }
    }
    end(&b);
    return err;
}

/* ---- events -------------------------------------------------------------------------------- */

static void put_event(Batch *b, const Snapshot *s, int index)
{
    const EventRow *row = &s->events.rows[index];
    const EngineRow *engine = row->engine > 0 ? snapshot_engine(s, row->engine) : NULL;
    if (b->options->filter && !model_row_matches(s, PANE_EVENTS, index, b->options->filter)) {
        return;
    }
    if (b->options->json) {
        event_json(row, engine ? engine->name : NULL, &b->text);
    } else {
        plain_event(row, &b->text);
    }
}

static int by_number(const void *a, const void *b)
{
    const EventRow *x = a;
    const EventRow *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The events with a number in (after, after + EVENT_PAGE] up to T, in the order in which they were
 * recorded: they are numbered from 1 on. */
static Err read_page(Batch *b, int64_t t_us, int64_t after)
{
    EventList *events = &b->snap.events;
    memset(&b->snap, 0, sizeof b->snap);
    arena_reset(b->arena);
    b->snap.t_us = t_us;
    *events = view_events(b->view, t_us, EVENT_PAGE + EVENT_SLACK, after + EVENT_PAGE + 1, NULL,
                          b->arena);
    if (events->count > 0) {
        qsort(events->rows, events->count, sizeof *events->rows, by_number);
    }
    while (events->count > 0 && events->rows[0].id <= after) {
        events->rows++;
        events->count--;
    }
    if (events->count > 0) { /* an event of an engine comes after the engine: its name is there */
        b->snap.engines = view_engines(b->view, t_us, 1, US, b->arena);
    }
    Fault why = {0};
    Err err = view_fault(b->view, &why);
    return err ? fault_set(b->fault, err, why.hint, "%s", why.sentence) : ERR_OK;
}

/* Highest number up to T; it may be short of those whose times are out of order. */
static int64_t newest_number(Batch *b, int64_t t_us)
{
    arena_reset(b->scratch);
    return (int64_t)view_events(b->view, t_us, 1, 0, NULL, b->scratch).total;
}

/* Everything behind number `*after` that is there now. */
static Err put_since(Batch *b, int64_t t_us, int64_t *after)
{
    Err err = ERR_OK;
    int64_t newest = newest_number(b, t_us);
    while (err == ERR_OK && !b->stop && *after < newest) {
        err = read_page(b, t_us, *after);
        for (size_t i = 0; i < b->snap.events.count; i++) {
            put_event(b, &b->snap, (int)i);
        }
        int64_t page = *after + EVENT_PAGE < newest ? *after + EVENT_PAGE : newest;
        size_t n = b->snap.events.count;
        int64_t seen = n > 0 ? b->snap.events.rows[n - 1].id : 0;
        *after = seen > page ? seen : page;
        err = err ? err : write_out(b);
    }
    return err;
}

/* The number before the first event to write: the newest `count` that match, up to the moment. */
static Err first_number(Batch *b, int64_t t_us, int64_t *out)
{
    const char *filter = b->options->filter ? b->options->filter : "";
    int64_t want = b->options->count;
    int64_t after = newest_number(b, t_us) + EVENT_SLACK;
    Err err = ERR_OK;
    *out = after - EVENT_SLACK;
    while (want != 0 && after > 0 && err == ERR_OK) {
        after = after > EVENT_PAGE ? after - EVENT_PAGE : 0;
        err = read_page(b, t_us, after);
        for (size_t i = b->snap.events.count; i > 0 && want != 0; i--) {
            if (model_row_matches(&b->snap, PANE_EVENTS, (int)i - 1, filter)) {
                want--;
                *out = b->snap.events.rows[i - 1].id - 1;
            }
        }
    }
    if (want != 0) { /* fewer than that: all of them */
        *out = 0;
    }
    return err;
}

static bool run_over(Batch *b)
{
    RunView about = {0};
    arena_reset(b->scratch);
    return !view_run(b->view, b->scratch, &about) || !about.core_alive;
}

Err batch_events(const BatchOptions *options, int out, Fault *fault)
{
    Batch b;
    int64_t t_us = 0;
    Err err = start(&b, options, out, fault);
    err = err ? err : first_moment(&b, &t_us);
    int64_t after = 0;
    err = err ? err : first_number(&b, t_us, &after);
    err = err || options->follow ? err : put_since(&b, t_us, &after);
    while (err == ERR_OK && options->follow && !b.stop) {
        bool over = run_over(&b); /* asked before the look: what the run wrote last is seen */
        err = put_since(&b, ALWAYS_US, &after);
        if (over || err != ERR_OK) {
            break;
        }
        err = pause_until(&b, clock_mono_us() + LOOK_US);
    }
    end(&b);
    return err;
}
