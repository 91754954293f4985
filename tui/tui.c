/* The loop: waits for a key, a signal, a reply on the control socket or the next second; reads
 * the log for the moment shown; paints. It alone connects model, log, terminal and socket. Every
 * wait is bounded; a key is answered from the picture at hand before anything is read. */
#include "tui/tui.h"

#include "core/base/clock.h"
#include "tui/aside.h"
#include "tui/link.h"
#include "tui/rows.h"
#include "tui/screen.h"
#include "tui/seek.h"
#include "tui/term.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    US = 1000000,
    TICK_US = US,
    PLAY_TICK_US = US / 4,
    FORCE_READ_US = 5 * US,
    JUMP_US = 2 * US,
    SLOW_READ_US = 3000, /* after such a read a key is shown before the next one begins */
    ASK_US = 1000,
    KEYS_PER_TURN = 256
};

typedef struct Tui {
    const TuiOptions *options;
    View *view;
    Term *term;
    Model *model;
    Surface *surface;
    Arena *arenas[2];
    Snapshot snaps[2];
    int current;
    Arena *scratch;
    Link link;
    int64_t next_tick_us, last_read_us; /* monotonic */
    int64_t wall_minus_mono_us;
    TuiConfig config;
    bool quit;
    bool reading, interrupted; /* a key ends a read; what it had is thrown away */
    int64_t ask_us;            /* monotonic: when a read looks for a key next */
    bool read_due;
} Tui;

static Snapshot *snap(Tui *tui)
{
    return &tui->snaps[tui->current];
}

static void draw(Tui *tui)
{
    screen_draw(tui->model, snap(tui), clock_wall_us(), tui->surface);
    term_paint(tui->term, tui->surface);
}

/* ---- reading ------------------------------------------------------------------------------- */

/* The strip covers the whole log whatever T is: it is read again only when the log has grown by
 * a cell of it, else the last one is carried over. */
static bool strip_fresh(const Snapshot *last, int cells)
{
    if (!last->ready || last->strip_asked != cells || cells < 1) {
        return false;
    }
    int64_t cell_us = (last->strip_to_us - last->strip_from_us) / last->strip_cells;
    return last->run.first_us == last->strip_from_us &&
           last->run.last_us + 1 - last->strip_to_us < cell_us;
}

static void carry_strip(const Snapshot *last, Arena *arena, Snapshot *next)
{
    size_t size = (size_t)last->strip_cells * sizeof last->strip[0];
    StripCell *copy = arena_alloc(arena, size);
    if (copy) {
        memcpy(copy, last->strip, size);
        next->strip = copy;
        next->strip_cells = last->strip_cells;
        next->strip_asked = last->strip_asked;
        next->strip_from_us = last->strip_from_us;
        next->strip_to_us = last->strip_to_us;
    }
}

/* The other snapshot is filled; only a good one becomes the current one, so that a locked or
 * damaged log leaves the last picture standing with its age and the reason. */
static void ring(Tui *tui)
{
    char text[100];
    const AlertRow *row = snap(tui)->alerts.count > 0 ? &snap(tui)->alerts.rows[0] : NULL;
    if (tui->config.bell) {
        term_bell(tui->term);
    }
    if (tui->config.notify && row) {
        (void)str_format(text, sizeof text, "rolltop %s: %s", or_dash(snap(tui)->run.name),
                         or_dash(row->class_name));
        term_notify(tui->term, text);
    }
}

/* Asked every twenty microseconds of a query; looking for a key is a system call. */
static int key_waits(void *user)
{
    Tui *tui = user;
    int64_t now = tui->reading ? clock_mono_us() : 0;
    if (tui->reading && !tui->interrupted && now >= tui->ask_us) {
        tui->interrupted = term_input_waits(tui->term);
        tui->ask_us = now + ASK_US;
    }
    return tui->reading && tui->interrupted;
}

static void read_log(Tui *tui, bool whole)
{
    int64_t now = clock_wall_us();
    int other = 1 - tui->current;
    SnapRequest request = model_request(tui->model, now);
    int cells = request.strip_cells;
    bool carry = strip_fresh(snap(tui), cells);
    request.strip_cells = carry ? 0 : cells;
    tui->interrupted = false;
    tui->reading = snap(tui)->ready && !whole; /* the first picture is not given up */
    Err err = snapshot_read(tui->view, &request, tui->arenas[other], &tui->snaps[other]);
    tui->reading = false;
    tui->read_due = tui->interrupted;
    if (tui->interrupted) {
        return;
    }
    if (err == ERR_OK && tui->snaps[other].damage_count != snap(tui)->damage_count) {
        snapshot_read_strip(tui->view, cells, tui->arenas[other], &tui->snaps[other]);
    } else if (err == ERR_OK && carry) {
        carry_strip(snap(tui), tui->arenas[other], &tui->snaps[other]);
    }
    tui->last_read_us = clock_mono_us();
    if (err == ERR_OK && !tui->model->live && !tui->model->replay_only &&
        request.detail == DETAIL_ENGINE) {
        snapshot_read_now(tui->view, request.detail_id, now, tui->scratch, &tui->snaps[other]);
    }
    if (err == ERR_OK || !snap(tui)->ready) {
        tui->current = other;
        snap(tui)->ready = err == ERR_OK;
    } else {
        snap(tui)->fault = tui->snaps[other].fault;
        snap(tui)->t_us = request.t_us;
    }
    unsigned flags = model_observe(tui->model, snap(tui), now);
    if (flags & MODEL_BELL) {
        ring(tui);
    }
    if (flags & MODEL_SEND) { /* a box was cancelled by what was read */
        link_send(&tui->link, tui->model);
    }
}

/* Once a second. Nothing committed since: the same facts, one second older. What fades without
 * being written is read now and then; of a run that is over nothing is read any more. */
static void refresh_live(Tui *tui)
{
    bool changed = view_changed(tui->view);
    bool due = clock_mono_us() - tui->last_read_us > FORCE_READ_US &&
               snapshot_fades(snap(tui), clock_wall_us());
    if (!tui->model->live && snap(tui)->has_now && changed) {
        read_log(tui, false); /* the past stands; the line that says how it is now does not */
    }
    if (!tui->model->live || tui->model->frozen) {
        return;
    }
    if (changed || due || tui->read_due || snap(tui)->fault.code != ERR_OK || !snap(tui)->ready) {
        read_log(tui, false);
    } else {
        snap(tui)->t_us = clock_wall_us();
        (void)model_observe(tui->model, snap(tui), snap(tui)->t_us);
    }
}

static unsigned do_seek(Tui *tui)
{
    int64_t now = clock_wall_us();
    int64_t found_us = 0;
    bool found = seek_find(tui->view, tui->scratch, &tui->model->seek,
                           model_time(tui->model, now), snap(tui)->run.last_us, &found_us);
    return model_seek_done(tui->model, snap(tui), found, found_us, now);
}

/* ---- what the model asked for -------------------------------------------------------------- */

static void load_theme(Tui *tui, const char *name)
{
    Theme theme;
    ThemeProblems problems = {.count = 0};
    bool mono = term_colours(tui->term) < 8;
    theme_load(&theme, tui->options->theme_dir, mono ? "mono" : name ? name : "dusk", &problems);
    term_theme(tui->term, &theme);
    (void)str_format(tui->model->theme, sizeof tui->model->theme, "%s", theme.name);
    tui->model->colours = term_colours(tui->term);
    if (problems.count > 0) {
        model_say(tui->model, ROLE_WARN, clock_wall_us(), "%s%s", problems.lines[0],
                  problems.total > 1 ? " (and more)" : "");
    }
}

static void copy_out(Tui *tui, bool whole)
{
    Text text;
    int x = 0;
    int y = 0;
    int rows = 0;
    text_init(&text, 1 << 20);
    if (whole) {
        surface_dump_text(tui->surface, &text);
    } else if (tui->model->depth == 0) {
        rows = rows_chosen(tui->model, snap(tui), false, &text);
    }
    if (!whole && rows == 0) { /* a line of a page */
        surface_cursor_get(tui->surface, &x, &y);
        surface_dump_row(tui->surface, y, &text);
    }
    char path[256];
    Fault fault = {0};
    if (term_copy(tui->term, text_str(&text))) {
        model_say(tui->model, ROLE_INFO, clock_wall_us(),
                  "copied %d line%s, %d bytes, to the terminal's clipboard, if it takes OSC 52",
                  rows > 0 ? rows : whole ? surface_h(tui->surface) : 1,
                  rows > 1 || whole ? "s" : "", (int)text.n);
    } else if (copy_to_file(text_str(&text), path, sizeof path, &fault) == ERR_OK) {
        model_say(tui->model, ROLE_INFO, clock_wall_us(),
                  "%d bytes are more than a terminal's clipboard takes; they are in %s",
                  (int)text.n, path);
    } else {
        model_say(tui->model, ROLE_WARN, clock_wall_us(), "not copied: %s", fault.sentence);
    }
    text_free(&text);
}

static void export(Tui *tui)
{
    Fault fault = {0};
    int rows = 0;
    if (export_rows(tui->model, snap(tui), &rows, &fault) == ERR_OK) {
        model_say(tui->model, ROLE_OK, clock_wall_us(), "%d row%s written to %s", rows,
                  rows == 1 ? "" : "s", tui->model->export_path);
    } else {
        model_say(tui->model, ROLE_WARN, clock_wall_us(), "not exported: %s", fault.sentence);
    }
}

static void run_shell(Tui *tui)
{
    const char *name = tui->model->config.commands[tui->model->shell].name;
    int w = 0;
    int h = 0;
    int status = shell_run(tui->term, tui->model, snap(tui), clock_wall_us());
    term_size(tui->term, &w, &h);
    surface_resize(tui->surface, w, h);
    (void)model_resize(tui->model, w, h);
    model_say(tui->model, status == 0 ? ROLE_INFO : ROLE_WARN, clock_wall_us(),
              "%s ended with status %d", name, status);
}

static void obey(Tui *tui, unsigned flags)
{
    if (flags & MODEL_SEEK) {
        flags |= do_seek(tui);
    }
    if (flags & MODEL_FLUSH_INPUT) {
        term_flush_input(tui->term);
    }
    if (flags & MODEL_THEME) {
        char name[64];
        (void)str_format(name, sizeof name, "%s", tui->model->theme);
        load_theme(tui, name);
    }
    if (flags & (MODEL_COPY_ROW | MODEL_COPY_SCREEN)) {
        copy_out(tui, (flags & MODEL_COPY_SCREEN) != 0);
        flags |= MODEL_DRAW;
    }
    if (flags & MODEL_EXPORT) {
        export(tui);
    }
    if (flags & MODEL_SUSPEND) {
        int w = 0;
        int h = 0;
        term_suspend(tui->term);
        term_size(tui->term, &w, &h);
        surface_resize(tui->surface, w, h);
        flags |= model_resize(tui->model, w, h);
    }
    if (flags & MODEL_REPAINT) {
        term_repaint(tui->term);
    }
    if (flags & MODEL_SEND) {
        link_send(&tui->link, tui->model);
    }
    if (flags & MODEL_MARKS) {
        Fault fault = {0};
        if (marks_save(tui->model, &fault) != ERR_OK) {
            model_say(tui->model, ROLE_WARN, clock_wall_us(), "named here only: %s",
                      fault.sentence);
        }
    }
    if (flags & MODEL_SHELL) {
        run_shell(tui);
    }
    if (flags & MODEL_QUERY) {
        bool slow = snap(tui)->read_us > SLOW_READ_US && !(flags & MODEL_SUSPEND);
        snap(tui)->loading = true;
        if (slow) {
            draw(tui);
        }
        read_log(tui, false);
    }
    tui->quit = tui->quit || (flags & MODEL_QUIT) != 0;
}

static unsigned take_mouse(Tui *tui)
{
    TermMouse mouse = term_mouse(tui->term);
    Hit hit = surface_hit_at(tui->surface, mouse.x, mouse.y);
    int64_t now = clock_wall_us();
    return mouse.wheel ? model_wheel(tui->model, snap(tui), &hit, 3 * mouse.wheel, now)
                       : model_click(tui->model, snap(tui), &hit, now);
}

/* All keys that are there, then one frame: key repeat never outruns the screen. */
static void take_keys(Tui *tui)
{
    unsigned flags = 0;
    for (int i = 0; i < KEYS_PER_TURN && !tui->quit; i++) {
        int key = term_key(tui->term);
        if (key == TK_NONE) {
            break;
        }
        if ((tui->read_due || (flags & MODEL_QUERY)) && model_key_needs_picture(tui->model, key)) {
            read_log(tui, true); /* typed ahead: it is about the picture that was asked for */
            flags &= ~(unsigned)MODEL_QUERY;
        }
        unsigned more = key == TK_MOUSE ? take_mouse(tui)
                                        : model_key(tui->model, snap(tui), key, clock_wall_us());
        if (more & ~(unsigned)(MODEL_DRAW | MODEL_QUERY)) {
            obey(tui, more & ~(unsigned)MODEL_DRAW);
            more &= MODEL_DRAW;
        }
        flags |= more;
    }
    if (term_hung_up(tui->term)) {
        tui->quit = true;
    } else if (!tui->quit) {
        obey(tui, flags);
    }
}

static void take_signals(Tui *tui)
{
    TermEvent event;
    while ((event = term_signal(tui->term)) != TERM_NOTHING) {
        int w = 0;
        int h = 0;
        if (event == TERM_SUSPEND) {
            obey(tui, MODEL_SUSPEND);
            continue;
        }
        term_size(tui->term, &w, &h);
        surface_resize(tui->surface, w, h);
        obey(tui, model_resize(tui->model, w, h));
    }
}

static void check_clock(Tui *tui)
{
    int64_t now = clock_wall_us() - clock_mono_us();
    int64_t moved = now - tui->wall_minus_mono_us;
    if (moved > JUMP_US || moved < -JUMP_US) {
        model_say(tui->model, ROLE_WARN, clock_wall_us(), "the clock moved by %lld s",
                  (long long)(moved / US));
    }
    tui->wall_minus_mono_us = now;
}

static void tick(Tui *tui)
{
    int64_t now = clock_mono_us();
    tui->next_tick_us = now + (tui->model->playing ? PLAY_TICK_US : TICK_US);
    check_clock(tui);
    link_open(&tui->link, tui->model);
    obey(tui, model_tick(tui->model, snap(tui), clock_wall_us()));
    refresh_live(tui);
}

static void run(Tui *tui)
{
    while (!tui->quit) {
        int64_t wait_us = tui->next_tick_us - clock_mono_us();
        struct pollfd fds[3] = {
            {term_input_fd(tui->term), POLLIN, 0},
            {term_signal_fd(tui->term), POLLIN, 0},
            {link_fd(&tui->link), POLLIN, 0},
        };
        int ready = poll(fds, 3, wait_us > 0 ? (int)(wait_us / 1000) + 1 : 0);
        if (ready > 0 && fds[1].revents) {
            take_signals(tui);
        }
        if (ready > 0 && fds[0].revents) {
            take_keys(tui);
            bool soon = tui->model->playing && tui->next_tick_us - clock_mono_us() > PLAY_TICK_US;
            tui->next_tick_us -= soon ? TICK_US - PLAY_TICK_US : 0;
        }
        if (ready > 0 && fds[2].revents) {
            link_take(&tui->link, tui->model);
        }
        if (clock_mono_us() >= tui->next_tick_us) {
            tick(tui);
        }
        if (!tui->quit) {
            draw(tui);
        }
        if (!tui->quit && tui->read_due) { /* a key ended it; the key is on the screen now */
            read_log(tui, false);
            draw(tui);
        }
        if (!tui->quit) {
            term_ready(tui->term);
        }
    }
}

/* ---- start and end ------------------------------------------------------------------------- */

/* What was asked for, then the configuration: by run or host, then in general. */
static const char *choose_theme(const Tui *tui, const RunView *run)
{
    const char *match = run ? config_match_theme(&tui->config, run->name, run->host) : "";
    return tui->options->theme       ? tui->options->theme
           : match[0]                ? match
           : tui->config.theme[0]    ? tui->config.theme
                                     : NULL;
}

static void start_view(Tui *tui)
{
    const char *name = tui->options->view ? tui->options->view : tui->config.start_view;
    char text[64];
    if (name[0]) {
        (void)str_format(text, sizeof text, "view %s", name);
        obey(tui, command_run(tui->model, snap(tui), str_from(text), clock_wall_us()));
    }
}

static void start(Tui *tui, bool ascii, const char *notice)
{
    const TuiOptions *options = tui->options;
    ModelConfig config = {.control = options->control && options->control_socket,
                          .replay = options->replay,
                          .ascii = ascii,
                          .may_stop = options->control && options->control_socket,
                          .user = options->user,
                          .pid = getpid(),
                          .log_path = options->log_path,
                          .theme = options->theme,
                          .config = &tui->config};
    int w = 0;
    int h = 0;
    term_size(tui->term, &w, &h);
    tui->model = model_new(&config);
    tui->surface = surface_new(w, h, ascii);
    (void)model_resize(tui->model, w, h);
    marks_load(tui->model);
    RunView about = {0};
    arena_reset(tui->scratch);
    bool known = view_run(tui->view, tui->scratch, &about);
    load_theme(tui, choose_theme(tui, known ? &about : NULL));
    if (notice[0]) {
        model_say(tui->model, ROLE_WARN, clock_wall_us(), "%s", notice);
    }
    if (options->replay && known) {
        tui->model->t_us = about.last_us;
    }
    view_interruptible(tui->view, key_waits, tui);
    link_open(&tui->link, tui->model);
    read_log(tui, false);
    start_view(tui);
    if (options->start_at) {
        obey(tui, model_go(tui->model, snap(tui), str_from(options->start_at), clock_wall_us()));
    }
    tui->wall_minus_mono_us = clock_wall_us() - clock_mono_us();
    tui->next_tick_us = clock_mono_us() + TICK_US;
    draw(tui);
    term_ready(tui->term);
}

Err tui_run(const TuiOptions *options, bool *stop_run, Fault *fault)
{
    Tui tui = {.options = options,
               .link = {.socket = options->control ? options->control_socket : NULL}};
    char notice[240] = "";
    Err err = view_open(options->log_path, &tui.view, fault);
    if (err != ERR_OK) { /* said before the screen is taken */
        return err;
    }
    bool ascii = options->ascii || !term_utf8();
    ThemeProblems problems = {.count = 0};
    config_load(&tui.config, options->config_path, &problems);
    bool mouse = tui.config.mouse && !options->no_mouse;
    err = term_open(&tui.term, mouse, notice, sizeof notice, fault);
    if (problems.count > 0 && !notice[0]) {
        (void)str_format(notice, sizeof notice, "%s%s", problems.lines[0],
                         problems.total > 1 ? " (and more: rolltop config check)" : "");
    }
    if (err == ERR_OK) {
        for (int i = 0; i < 2; i++) {
            tui.arenas[i] = arena_new(SNAP_ARENA_MAX);
        }
        tui.scratch = arena_new(SNAP_ARENA_MAX);
        start(&tui, ascii, notice);
        run(&tui);
        if (stop_run) {
            *stop_run = tui.model->stop_run;
        }
    }
    term_close(tui.term);
    link_close(&tui.link);
    model_free(tui.model);
    surface_free(tui.surface);
    arena_free(tui.arenas[0]);
    arena_free(tui.arenas[1]);
    arena_free(tui.scratch);
    view_close(tui.view);
    return err;
}
