#include "tui/plain.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "tui/link.h"
#include "tui/seek.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { US = 1000000, LINE_SIZE = 512, OUT_MAX = 1 << 20, EVENTS_SHOWN = 20 };

typedef struct Plain {
    const TuiOptions *options;
    View *view;
    Model *model;
    Arena *arenas[2];
    Snapshot snaps[2];
    int current;
    Arena *scratch;
    Link link;
    FILE *out;
    int in;
    char line[LINE_SIZE];
    size_t n;
    bool long_line, quit, stop_run;
    /* what was said last, so that only changes are said */
    EngineState states[MODEL_ENGINES_MAX]; /* by place in the list */
    int64_t ids[MODEL_ENGINES_MAX];
    size_t engine_count;
    int64_t last_event, last_alert;
    size_t alert_count;
    LoopPhase phase;
    bool said_live;
    int64_t said_us, countdown_said;
    char message[sizeof ((Model *)0)->message];
} Plain;

static Snapshot *snap(Plain *p)
{
    return &p->snaps[p->current];
}

static Screen screen_of(Plain *p)
{
    return (Screen){.m = p->model, .s = snap(p), .now_us = clock_wall_us()};
}

/* For a locale that knows no more: letters of others become one '?' each. */
static void to_ascii(Text *text)
{
    size_t out = 0;
    for (size_t at = 0; at < text->n;) {
        uint32_t code = 0;
        bool partial = false;
        size_t step = utf8_decode(text->p + at, text->n - at, &code, &partial);
        text->p[out++] = code < 0x80 ? (char)code : '?';
        at += step;
    }
    text->n = out;
}

static void flush_text(Plain *p, Text *text)
{
    if (p->options->ascii) {
        to_ascii(text);
    }
    (void)fwrite(text->p ? text->p : "", 1, text->n, p->out);
    text_free(text);
    p->quit = p->quit || fflush(p->out) != 0;
}

static void say_list(Plain *p, void (*list)(const Screen *screen, Text *out))
{
    Text text;
    Screen screen = screen_of(p);
    text_init(&text, OUT_MAX);
    list(&screen, &text);
    flush_text(p, &text);
}

static void say(Plain *p, const char *text)
{
    Text line;
    text_init(&line, OUT_MAX);
    (void)text_addf(&line, "%s\n", text);
    flush_text(p, &line);
}

/* ---- changes ------------------------------------------------------------------------------- */

static void say_engines(Plain *p, Text *text, bool first)
{
    const Snapshot *s = snap(p);
    Screen screen = screen_of(p);
    char at[FORMAT_MAX];
    for (size_t i = 0; i < s->engines.count && i < MODEL_ENGINES_MAX; i++) {
        const EngineRow *row = &s->engines.rows[i];
        EngineState shown = state_shown(row, s->t_us);
        /* Work and versions come and go with every step; a commit is an event of its own. */
        bool well = shown == ENGINE_UP || shown == ENGINE_BUSY || shown == ENGINE_LOADING;
        EngineState state = well ? ENGINE_UP : shown;
        bool known = i < p->engine_count && p->ids[i] == row->engine;
        if (!first && (!known || p->states[i] != state)) {
            (void)text_addf(text, "%s ", format_clock(s->t_us, at));
            plain_engine(&screen, row, text);
        }
        p->ids[i] = row->engine;
        p->states[i] = state;
    }
    p->engine_count = s->engines.count < MODEL_ENGINES_MAX ? s->engines.count : MODEL_ENGINES_MAX;
}

static void say_alerts(Plain *p, Text *text, bool first)
{
    const Snapshot *s = snap(p);
    Screen screen = screen_of(p);
    int64_t newest = p->last_alert;
    for (size_t i = 0; i < s->alerts.count; i++) {
        newest = s->alerts.rows[i].incident > newest ? s->alerts.rows[i].incident : newest;
    }
    if (!first && (newest != p->last_alert || s->alerts.count != p->alert_count)) {
        plain_alerts(&screen, text);
    }
    p->last_alert = newest;
    p->alert_count = s->alerts.count;
}

/* Phases and steps are events of the log; the word for the phase is said when it changes. */
static void say_changes(Plain *p, bool first)
{
    const Snapshot *s = snap(p);
    Text text;
    char at[FORMAT_MAX];
    text_init(&text, OUT_MAX);
    if (!first && s->header.phase != p->phase) {
        (void)text_addf(&text, "%s step %lld: %s\n", format_clock(s->t_us, at),
                        (long long)s->header.step, phase_word(s->header.phase));
    }
    p->phase = s->header.phase;
    say_engines(p, &text, first);
    say_alerts(p, &text, first);
    for (size_t i = 0; i < s->events.count; i++) {
        const EventRow *row = &s->events.rows[i];
        if (!first && row->id > p->last_event) {
            plain_event(row, &text);
        }
        p->last_event = row->id > p->last_event ? row->id : p->last_event;
    }
    flush_text(p, &text);
}

static void say_message(Plain *p)
{
    Text text;
    if (strcmp(p->message, p->model->message) == 0) {
        return;
    }
    (void)str_format(p->message, sizeof p->message, "%s", p->model->message);
    if (p->message[0]) {
        text_init(&text, OUT_MAX);
        plain_foreign(&text, p->message);
        (void)text_add_c(&text, "\n");
        flush_text(p, &text);
    }
}

/* ---- reading ------------------------------------------------------------------------------- */

static bool take_picture(Plain *p)
{
    int64_t now = clock_wall_us();
    int other = 1 - p->current;
    SnapRequest request = model_request(p->model, now);
    request.policies = true;
    request.strip_cells = 0;
    Err err = snapshot_read(p->view, &request, p->arenas[other], &p->snaps[other]);
    if (err != ERR_OK && snap(p)->ready) {
        char words[FAULT_TEXT_MAX + 48];
        (void)str_format(words, sizeof words, "log: %s; the last picture stands",
                         p->snaps[other].fault.sentence);
        say(p, words);
        return false;
    }
    p->current = other;
    if (model_observe(p->model, snap(p), now) & MODEL_SEND) { /* what was read cancelled a box */
        link_send(&p->link, p->model);
    }
    return true;
}

static void read_log(Plain *p, bool first)
{
    bool moved = first || p->model->live != p->said_live ||
                 (!p->model->live && p->model->t_us != p->said_us && !p->model->playing);
    if (!take_picture(p)) {
        return;
    }
    p->said_live = p->model->live;
    p->said_us = p->model->t_us;
    say_changes(p, moved);
    if (moved) {
        say_list(p, plain_status);
    }
}

/* ---- commands ------------------------------------------------------------------------------ */

static void obey(Plain *p, unsigned flags)
{
    if (flags & MODEL_SEEK) {
        int64_t found_us = 0;
        bool found = seek_find(p->view, p->scratch, &p->model->seek,
                               model_time(p->model, clock_wall_us()), snap(p)->run.last_us,
                               &found_us);
        flags |= model_seek_done(p->model, snap(p), found, found_us, clock_wall_us());
    }
    if (flags & MODEL_SEND) {
        link_send(&p->link, p->model);
    }
    if (flags & MODEL_QUERY) {
        read_log(p, false);
    }
    p->quit = p->quit || (flags & MODEL_QUIT) != 0;
}

static void open_question(Plain *p, Str reason)
{
    Text text;
    Screen screen = screen_of(p);
    Confirm *confirm = &p->model->confirm;
    if (p->model->mode != MODE_CONFIRM) {
        return; /* refused; the message says why */
    }
    (void)str_format(confirm->reason.text, sizeof confirm->reason.text, "%.*s",
                     (int)(reason.n < MODEL_INPUT_MAX ? reason.n : MODEL_INPUT_MAX - 1),
                     reason.n ? reason.p : "");
    confirm->reason.n = strlen(confirm->reason.text);
    text_init(&text, OUT_MAX);
    confirm_words(&screen, &text);
    flush_text(p, &text);
    confirm->opened_us = clock_wall_us();
}

/* The line must be the word and nothing else, and come after the question was read. */
static void answer(Plain *p, const char *line)
{
    Confirm *confirm = &p->model->confirm;
    int64_t now = clock_wall_us();
    const char *want = confirm->level == 1 ? "y" : confirm->want;
    bool early = now - confirm->opened_us < MODEL_GUARD_US;
    int64_t at = confirm->opened_us + MODEL_GUARD_US + 1;
    unsigned flags = 0;
    at = at > now ? at : now;
    if (early || confirm->countdown_us > 0 || strcmp(line, want) != 0) {
        flags = act_key(p->model, snap(p), TK_ESC, at);
        say(p, early ? "cancelled: that was typed before the question" : "cancelled");
        p->model->message[0] = '\0';
    } else {
        for (size_t i = 0; want[i] && p->model->mode == MODE_CONFIRM; i++) {
            flags |= act_key(p->model, snap(p), want[i], at);
        }
    }
    obey(p, flags);
}

static const EngineRow *find_engine(Plain *p, Str name)
{
    const EngineList *engines = &snap(p)->engines;
    for (size_t i = 0; i < engines->count; i++) {
        if (engines->rows[i].name && str_equal(name, str_from(engines->rows[i].name))) {
            return &engines->rows[i];
        }
    }
    return NULL;
}

/* "restart eng-03 reason ecc errors": the cursor goes there, then it is as if R was pressed. */
static bool act_on(Plain *p, Str verb_name, Str rest)
{
    size_t at = 0;
    Str reason = {"", 0};
    int verb = 0;
    while (verb < VERB_COUNT && !str_equal(verb_name, str_from(verb_word((Verb)verb)))) {
        verb++;
    }
    if (verb == VERB_COUNT || verb == VERB_STOP || rest.n == 0) {
        return false;
    }
    if (str_find(rest, STR(" reason "), &at)) {
        reason = str_slice(rest, at + 8, rest.n);
        rest = str_slice(rest, 0, at);
    }
    const EngineRow *row = find_engine(p, str_trim(rest));
    int64_t sample = 0;
    bool is_sample = verb == VERB_ABORT && str_to_i64(str_trim(rest), &sample);
    if (!row && !is_sample) {
        return false;
    }
    for (int i = 0; i < p->model->order_count; i++) {
        p->model->order[i].marked = false; /* a name that is said is the only target */
    }
    p->model->depth = 1;
    p->model->detail[0] = is_sample ? (Detail){.kind = DETAIL_SAMPLE, .id = sample}
                                    : (Detail){.kind = DETAIL_ENGINE, .id = row->engine};
    unsigned flags = act_begin(p->model, snap(p), (Verb)verb, false, clock_wall_us());
    p->model->depth = 0;
    open_question(p, reason);
    obey(p, flags & ~(unsigned)MODEL_FLUSH_INPUT);
    return true;
}

static void help(Plain *p)
{
    say(p, "status; engines; engine NAME; samples; steps; policies; events; alerts; commands");
    say(p, "filter WORDS (of engines; alone: all)");
    say(p, "pause, resume, update, restart, cordon, uncordon NAME [reason WORDS]; abort SAMPLE");
    say(p, "pause all, resume all, update all, stop; arm 5m first; restart trainer or frontend");
    say(p, "note WORDS (into the log); acknowledge (the worst alert)");
    say(p, "go TIME, step-back, step-on, alert-back, alert-on, first, live; play; undo; quit");
}

static bool list_command(Plain *p, Str word, Str rest)
{
    static const struct {
        const char *name;
        void (*list)(const Screen *screen, Text *out);
    } lists[] = {{"status", plain_status},     {"engines", plain_engines},
                 {"samples", plain_samples},   {"tail", plain_samples},
                 {"steps", plain_steps},       {"policies", plain_policies},
                 {"alerts", plain_alerts},     {"commands", plain_commands}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (str_equal(word, str_from(lists[i].name))) {
            say_list(p, lists[i].list);
            return true;
        }
    }
    Text text;
    Screen screen = screen_of(p);
    const EngineRow *row = str_equal(word, STR("engine")) ? find_engine(p, rest) : NULL;
    bool events = str_equal(word, STR("events"));
    if (row || events) {
        text_init(&text, OUT_MAX);
        if (row) {
            plain_engine(&screen, row, &text);
        } else {
            plain_events(&screen, EVENTS_SHOWN, &text);
        }
        flush_text(p, &text);
    }
    return row || events;
}

static void run_line(Plain *p, const char *line)
{
    Str rest = str_trim(str_from(line));
    Str all = rest;
    Str word;
    if (p->model->mode == MODE_CONFIRM) {
        answer(p, line);
        return;
    }
    if (rest.n == 0 || !str_split(&rest, ' ', &word)) {
        return;
    }
    rest = str_trim(rest);
    if (str_equal(word, STR("quit")) || str_equal(word, STR("q"))) {
        p->quit = true;
    } else if (str_equal(word, STR("help")) || str_equal(word, STR("?"))) {
        help(p);
    } else if (str_equal(word, STR("filter"))) {
        (void)str_format(p->model->filter[PANE_ENGINES], MODEL_INPUT_MAX, "%.*s", (int)rest.n,
                         rest.n ? rest.p : "");
        model_lists(p->model, snap(p));
        say_list(p, plain_engines);
    } else if (!list_command(p, word, rest) && !act_on(p, word, rest)) {
        unsigned flags = command_run(p->model, snap(p), all, clock_wall_us());
        if (p->model->mode == MODE_CONFIRM) {
            open_question(p, (Str){"", 0});
        } else if (p->model->mode != MODE_NORMAL) {
            p->model->mode = MODE_NORMAL; /* boxes that only a screen has */
            say(p, "that needs the screen; help lists what there is here");
        }
        obey(p, flags & ~(unsigned)MODEL_FLUSH_INPUT);
    }
}

/* False at the end of the input. */
static bool take_input(Plain *p)
{
    char bytes[256];
    ssize_t got = read(p->in, bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
        return true;
    }
    for (ssize_t i = 0; i < got && !p->quit; i++) {
        if (bytes[i] != '\n') {
            p->long_line = p->long_line || p->n + 1 >= sizeof p->line;
            p->line[p->n] = bytes[i];
            p->n += p->long_line ? 0 : 1;
            continue;
        }
        p->n -= p->n > 0 && p->line[p->n - 1] == '\r' ? 1 : 0;
        p->line[p->n] = '\0';
        p->n = 0;
        if (p->long_line) {
            say(p, "that line is longer than 511 bytes and was not read");
        } else {
            run_line(p, p->line);
            say_message(p);
        }
        p->long_line = false;
    }
    return got > 0;
}

static void tick(Plain *p)
{
    Confirm *confirm = &p->model->confirm;
    int64_t now = clock_wall_us();
    link_open(&p->link, p->model);
    obey(p, model_tick(p->model, snap(p), now));
    if (p->model->live && !p->model->frozen && (view_changed(p->view) || !snap(p)->ready)) {
        read_log(p, false);
    } else if (p->model->live) {
        snap(p)->t_us = now; /* the same facts, older: an engine may have gone stale */
        (void)model_observe(p->model, snap(p), now);
        say_changes(p, false);
    }
    if (p->model->mode == MODE_CONFIRM && confirm->countdown_us > 0) {
        int64_t left = (MODEL_COUNTDOWN_US - (now - confirm->countdown_us)) / US;
        if (left != p->countdown_said) {
            fprintf(p->out, "%s in %lld s; any line stops it\n", verb_word(confirm->verb),
                    (long long)left);
            (void)fflush(p->out);
        }
        p->countdown_said = left;
    }
    say_message(p);
    if (p->model->ended && p->model->live) {
        say(p, "the run has ended; 'rolltop replay' shows its log");
        p->quit = true;
    }
}

static void run(Plain *p)
{
    int64_t next_us = clock_mono_us() + US;
    bool input = true;
    while (!p->quit) {
        int64_t wait_us = next_us - clock_mono_us();
        struct pollfd fds[3] = {{input ? p->in : -1, POLLIN, 0},
                                {link_fd(&p->link), POLLIN, 0},
                                {fileno(p->out), 0, 0}};
        int ready = poll(fds, 3, wait_us > 0 ? (int)(wait_us / 1000) + 1 : 0);
        if (ready > 0 && fds[0].revents) {
            input = take_input(p);
        }
        if (ready > 0 && fds[1].revents) {
            link_take(&p->link, p->model);
            say_message(p);
        }
        p->quit = p->quit || (ready > 0 && (fds[2].revents & (POLLERR | POLLHUP)) != 0) ||
                  (!input && p->options->replay && !p->model->playing);
        if (!p->quit && clock_mono_us() >= next_us) {
            next_us = clock_mono_us() + US;
            tick(p);
        }
    }
}

static void start(Plain *p)
{
    const TuiOptions *options = p->options;
    ModelConfig config = {.control = options->control && options->control_socket,
                          .replay = options->replay, .user = options->user, .pid = getpid(),
                          .log_path = options->log_path};
    RunView about;
    p->model = model_new(&config);
    (void)model_resize(p->model, 120, 40);
    arena_reset(p->scratch);
    if (options->replay && view_run(p->view, p->scratch, &about)) {
        p->model->t_us = about.last_us;
    }
    link_open(&p->link, p->model);
    if (options->start_at) { /* where that is, may depend on where one is */
        (void)take_picture(p);
        obey(p, model_go(p->model, snap(p), str_from(options->start_at), clock_wall_us()));
        say_message(p);
    }
    if (p->said_us == 0) {
        read_log(p, true);
    }
    say(p, "help lists the commands; changes follow, one a line");
}

Err plain_run(const TuiOptions *options, int in, FILE *out, bool *stop_run, Fault *fault)
{
    Plain *p = xcalloc(1, sizeof *p);
    p->options = options;
    p->in = in;
    p->out = out;
    (void)signal(SIGPIPE, SIG_IGN);
    p->link.socket = options->control ? options->control_socket : NULL;
    Err err = view_open(options->log_path, &p->view, fault);
    if (err == ERR_OK) {
        for (int i = 0; i < 2; i++) {
            p->arenas[i] = arena_new(SNAP_ARENA_MAX);
        }
        p->scratch = arena_new(SNAP_ARENA_MAX);
        start(p);
        run(p);
    }
    if (stop_run) {
        *stop_run = false; /* stop is asked of the core, with its confirmation */
    }
    link_close(&p->link);
    model_free(p->model);
    arena_free(p->arenas[0]);
    arena_free(p->arenas[1]);
    arena_free(p->scratch);
    view_close(p->view);
    free(p);
    return err;
}
