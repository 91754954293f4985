/* Local parts: engines and frontend as children, started at once, started again with a growing
 * pause when they end, stopped with the run. */
#include "core/loop/driver_private.h"

#include "core/net/port.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PART_BACKOFF_MAX_MS = 8000,
    PART_CALM_MS = 30000,
    PART_SILENT_MS = 10000
};

static const char *part_word(const Part *part)
{
    return part->kind == PART_ENGINE ? part->name : "frontend";
}

/* Time until the next start: at once after a long calm life, then 0.25 s doubling to 8 s. */
static int64_t backoff_us(Part *part, int64_t now_us)
{
    if (now_us - part->started_us > PART_CALM_MS * 1000LL) {
        part->failures = 0;
    }
    int64_t ms = 250;
    for (int i = 0; i < part->failures && ms < PART_BACKOFF_MAX_MS; i++) {
        ms *= 2;
    }
    part->failures++;
    return (ms < PART_BACKOFF_MAX_MS ? ms : PART_BACKOFF_MAX_MS) * 1000;
}

/* Slots of the fleet are taken in the order of names, whoever listens first. */
static void add_listening(Driver *d)
{
    for (int i = 0; i < d->local.count; i++) {
        Part *part = &d->local.parts[i];
        int index = part->index;
        if (part->kind != PART_ENGINE || part->added || part->retired) {
            continue;
        }
        if (!part->listening || index > fleet_count(d->fleet)) {
            return;
        }
        char address[64];
        (void)str_format(address, sizeof address, "127.0.0.1:%d", part->port);
        Fault fault = {0};
        if (fleet_add(d->fleet, part->name, address, true, &index, &fault) != ERR_OK) {
            driver_event(d, SEVERITY_CRIT, part->name, 0, "%s", fault.sentence);
            return;
        }
        part->added = true;
        d->seats[index].state = d->seats[index].state == ENGINE_GONE ? ENGINE_STARTING
                                                                     : d->seats[index].state;
        (void)str_format(d->seats[index].address, sizeof d->seats[index].address, "%s", address);
        fleet_set_pid(d->fleet, index, child_pid(part->child));
    }
}

static void frontend_listens(Part *part)
{
    Driver *d = part->driver;
    d->front.up = true;
    d->front.down_us = 0;
    part->asked_us = part->asked ? part->asked_us : 0; /* it said so as it was being ended */
    driver_route_all(d);
    driver_update_gate(d);
}

/* "… listening on http://HOST:PORT" is the line by which a part says that it serves. */
static void on_part_line(Child *child, bool is_stderr, Str line, void *user)
{
    (void)child;
    Part *part = user;
    Driver *d = part->driver;
    ChildLineFact fact = {.t_us = clock_wall_us(), .child = part_word(part),
                          .is_stderr = is_stderr, .line = line};
    store_put_child_line(d->store, &fact);
    if (is_stderr) {
        (void)str_format(part->last_line, sizeof part->last_line, "%.*s",
                         (int)(line.n < sizeof part->last_line ? line.n : 0), line.p ? line.p : "");
    }
    size_t at = 0;
    if (part->listening || is_stderr || !str_find(line, STR("listening on http://"), &at)) {
        return;
    }
    size_t colon = 0;
    int64_t port = 0;
    if (!str_rfind(line, STR(":"), &colon) ||
        !str_to_i64(str_trim(str_slice(line, colon + 1, line.n)), &port) || port <= 0 ||
        port > 65535) {
        return;
    }
    part->port = (int)port;
    part->listening = true;
    if (part->kind == PART_ENGINE) {
        part->added = false; /* its address may be another one now */
        add_listening(d);
    } else {
        frontend_listens(part);
    }
    driver_check_parts(d);
}

/* A part that never came up and ends again and again: waiting for the bound helps nobody. */
void driver_no_start(Driver *d, const char *part, int failures, const char *words)
{
    if (!d->ready.ever && failures >= DRIVER_START_TRIES) {
        char why[256];
        (void)str_format(why, sizeof why, "%s does not start: %s", part, words);
        driver_feed(d, LOOP_EV_FAIL, true, why);
    }
}

static void describe_end(int64_t status, int signal, char *out, size_t size)
{
    if (signal != 0) {
        (void)str_format(out, size, "ended by signal %d (%s)", signal, strsignal(signal));
    } else {
        (void)str_format(out, size, "exited with status %lld", (long long)status);
    }
}

/* An engine of another program counts as up when it answers, not when it is started. */
static bool never_answered(const Part *part)
{
    const Driver *d = part->driver;
    return part->kind == PART_ENGINE && d->config->engine_command &&
           d->seats[part->index].incarnation == 0;
}

static void on_part_exit(Child *child, int64_t status, int signal, void *user)
{
    Part *part = user;
    Driver *d = part->driver;
    char how[96];
    describe_end(status, signal, how, sizeof how);
    part->ended = child; /* freed on the next tick: we are inside its callback */
    part->child = NULL;
    bool served = part->listening && !never_answered(part);
    part->listening = false;
    if (d->shutting || d->torn_down) {
        return;
    }
    if (part->retired) {
        driver_event(d, SEVERITY_INFO, part_word(part), part->index + 1,
                     "%s; it left the fleet and stays stopped", how);
        return;
    }
    int64_t now_us = clock_mono_us();
    int64_t wait_us = backoff_us(part, now_us);
    part->due_us = now_us + wait_us;
    if (!served && part->failures > 1 && part->kind == PART_ENGINE) {
        part->port = 0; /* the old port may have been taken; the frontend's address must stay */
    }
    driver_event(d, part->asked ? SEVERITY_INFO : SEVERITY_CRIT, part_word(part),
                 part->kind == PART_ENGINE ? part->index + 1 : 0, "%s%s; starts again in %.2f s",
                 how, part->asked ? ", as asked" : "", (double)wait_us / 1e6);
    if (part->kind == PART_FRONTEND) {
        d->front.up = false;
        d->front.down_us = now_us;
        (void)str_format(d->front.how, sizeof d->front.how, "its process %s", how);
        for (int i = 0; i < d->seat_count; i++) {
            d->seats[i].routed = d->seats[i].route_ok = false;
        }
        driver_update_gate(d);
    } else if (part->index < fleet_count(d->fleet)) {
        Seat *seat = &d->seats[part->index];
        (void)str_format(seat->how, sizeof seat->how, "its process %s", how);
        fleet_note_exit(d->fleet, part->index, how);
        driver_route(d, part->index, false);
        driver_rollout_engine_lost(d, part->index);
    }
    part->asked_us = part->asked ? part->asked_us : 0; /* a second end was not asked for */
    part->asked = false;
    if (!served) {
        const char *words = part->last_line[0] ? part->last_line : how;
        driver_no_start(d, part_word(part), part->failures, words);
    }
    driver_diagnose_tick(d, now_us); /* it may be back before the next second */
    driver_check_parts(d);
}

/* Arguments of a part; the vector is malloc'ed, its strings are borrowed. */
static const char **part_argv(const Part *part, const char *port, const char *threads)
{
    const RunConfig *c = part->driver->config;
    const char *const own[] = {c->program, "engine", "--model-path", c->hf_checkpoint, "--name",
                               part->name, "--threads", threads, "--incremental-streaming-output",
                               NULL};
    const char *const frontend[] = {c->program, "frontend", NULL};
    const char *const place[] = {"--host", "127.0.0.1", "--port", port, NULL};
    const char *const key[] = {"--engine-api-key-env", "SGLANG_API_KEY", NULL};
    const char *const admin[] = {"--engine-admin-api-key-env", "SGLANG_ADMIN_API_KEY", NULL};
    const bool engine = part->kind == PART_ENGINE;
    const char *const *const pieces[] = {
        !engine ? frontend : c->engine_command ? c->engine_command : own,
        engine && !c->engine_command ? c->engine_extra : NULL,
        place,
        !engine && c->engine_bearer ? key : NULL,
        !engine && c->engine_admin ? admin : NULL};
    const char **argv = NULL;
    size_t n = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        for (size_t k = 0; pieces[i] && pieces[i][k]; k++) {
            argv = xrealloc(argv, n + 2, sizeof *argv);
            argv[n++] = pieces[i][k];
        }
    }
    argv[n] = NULL;
    return argv;
}

static bool is_command(const Part *part)
{
    return part->kind == PART_ENGINE && part->driver->config->engine_command;
}

static Err part_start(Part *part, Fault *fault)
{
    Driver *d = part->driver;
    if (is_command(part) && part->port == 0) { /* it says its port to nobody: it is told one */
        Err err = port_free(&part->port, fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    char port[16];
    char threads[24];
    (void)str_format(port, sizeof port, "%d", part->port);
    (void)str_format(threads, sizeof threads, "%lld", (long long)d->config->engine_threads);
    const char **argv = part_argv(part, port, threads);
    ChildSpec spec = {.name = part_word(part), .argv = argv, .on_line = on_part_line,
                      .on_exit = on_part_exit, .user = part};
    part->started_us = clock_mono_us();
    part->due_us = 0;
    part->silent = false;
    Err err = child_start(&d->uv, &spec, &part->child, fault);
    free(argv);
    if (err == ERR_OK && is_command(part)) { /* probes tell when it serves */
        part->listening = true;
        add_listening(d);
    }
    return err;
}

/* A part of ours whose process lives and does not answer (stopped by a signal, a deadlock) would
 * hold its requests and the run until their bounds: it is ended, and so starts again. An engine of
 * another program may load for minutes without a word, so that one is left alone. */
static void end_silent(Part *part, int64_t now_us)
{
    Driver *d = part->driver;
    if (!part->child || !part->listening || part->asked || part->silent || is_command(part)) {
        return;
    }
    int64_t since_us = d->front.up ? 0 : d->front.down_us;
    if (part->kind == PART_ENGINE) {
        const Seat *seat = &d->seats[part->index];
        since_us = seat->state == ENGINE_DEAD ? seat->state_since_us : 0;
    }
    int64_t from_us = since_us > part->started_us ? since_us : part->started_us;
    if (since_us == 0 || now_us - from_us < PART_SILENT_MS * 1000LL) {
        return;
    }
    driver_event(d, SEVERITY_CRIT, part_word(part),
                 part->kind == PART_ENGINE ? part->index + 1 : 0,
                 "its process %d lives and has not answered for %d s: ended, to start again",
                 child_pid(part->child), PART_SILENT_MS / 1000);
    part->silent = true;
    child_kill(part->child, SIGKILL);
}

void driver_parts_tick(Driver *d, int64_t now_us)
{
    for (int i = 0; i < d->local.count; i++) {
        Part *part = &d->local.parts[i];
        if (part->ended) {
            child_free(part->ended);
            part->ended = NULL;
        }
        if (!d->shutting) {
            end_silent(part, now_us);
        }
        if (d->shutting || part->child || part->due_us == 0 || now_us < part->due_us) {
            continue;
        }
        Fault fault = {0};
        if (part_start(part, &fault) != ERR_OK) {
            driver_event(d, SEVERITY_CRIT, part_word(part), 0, "%s", fault.sentence);
            part->due_us = now_us + backoff_us(part, now_us);
        }
    }
    driver_check_parts(d); /* the frontend's list changes without an event of an engine */
}

void driver_part_restart(Part *part)
{
    part->failures = 0;
    part->asked = true;
    if (part->child) {
        child_stop(part->child, 2000);
    } else {
        part->due_us = 1;
    }
}

void driver_parts_stop(Driver *d)
{
    for (int i = 0; i < d->local.count; i++) {
        d->local.parts[i].due_us = 0;
        if (d->local.parts[i].child) {
            child_stop(d->local.parts[i].child, DRIVER_GRACE_MS);
        }
    }
}

bool driver_calm(const Driver *d, int64_t asked_us, int64_t now_us)
{
    return asked_us > 0 && now_us - asked_us < d->config->startup_s * 1000000;
}

bool driver_parts_gone(const Driver *d)
{
    for (int i = 0; i < d->local.count; i++) {
        if (d->local.parts[i].child) {
            return false;
        }
    }
    return true;
}

void driver_parts_free(Driver *d)
{
    for (int i = 0; i < d->local.count; i++) {
        child_free(d->local.parts[i].child);
        child_free(d->local.parts[i].ended);
    }
    if (d->local.frontend_fd > 0) {
        close(d->local.frontend_fd);
    }
    d->local.frontend_fd = 0;
    free(d->local.parts);
    d->local.parts = NULL;
    d->local.count = 0;
}

/* ---- start -------------------------------------------------------------------------------- */

static Err start_local(Driver *d, int frontend_port, Fault *fault)
{
    const RunConfig *c = d->config;
    bool frontend = c->rollout_url == NULL && !c->direct;
    int count = (int)c->local_engines + (frontend ? 1 : 0);
    d->local.parts = xcalloc((size_t)count + 1, sizeof *d->local.parts);
    d->local.count = count;
    for (int i = 0; i < count; i++) {
        Part *part = &d->local.parts[i];
        part->driver = d;
        part->kind = i < (int)c->local_engines ? PART_ENGINE : PART_FRONTEND;
        part->index = i;
        if (part->kind == PART_ENGINE) {
            (void)str_format(part->name, sizeof part->name, "eng-%02d", i);
            d->seats[i].part = part;
            if (d->seats[i].kept_out) {
                part->retired = true;
                d->seats[i].state = ENGINE_GONE;
                continue;
            }
        } else {
            (void)str_format(part->name, sizeof part->name, "frontend");
            part->port = frontend_port;
            d->local.frontend = part;
        }
        Err err = part_start(part, fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static Err add_others(Driver *d, Fault *fault)
{
    const RunConfig *c = d->config;
    for (int i = 0; i < (int)c->engine_addr_count; i++) {
        char name[DRIVER_NAME];
        (void)str_format(name, sizeof name, "eng-%02d", i);
        int index = i;
        Err err = fleet_add(d->fleet, name, c->engine_addrs[i], false, &index, fault);
        if (err != ERR_OK) {
            return err;
        }
        (void)str_format(d->seats[index].address, sizeof d->seats[index].address, "%s",
                         c->engine_addrs[i]);
    }
    return ERR_OK;
}

Err driver_parts_start(Driver *d, Fault *fault)
{
    const RunConfig *c = d->config;
    d->seat_count = (int)(c->engine_addr_count ? (int64_t)c->engine_addr_count : c->local_engines);
    d->seats = xcalloc(FLEET_ENGINES_MAX, sizeof *d->seats);
    for (int i = 0; i < d->seat_count; i++) {
        driver_seat_reset(d, i, "");
    }
    int port = 0;
    if (c->direct) {
        d->front.direct = d->front.up = true;
    } else if (c->rollout_url) {
        (void)str_format(d->front.url, sizeof d->front.url, "%s", c->rollout_url);
    } else if (port_reserve(&port, &d->local.frontend_fd, fault) != ERR_OK) {
        return ERR_IO;
    } else {
        (void)str_format(d->front.url, sizeof d->front.url, "http://127.0.0.1:%d", port);
    }
    if (!c->direct) {
        (void)str_format(d->front.generate_url, sizeof d->front.generate_url, "%s/generate",
                         d->front.url);
    }
    FleetEvents events;
    driver_fleet_events(d, &events);
    FleetConfig fleet = {.frontend_url = c->direct ? NULL : d->front.url,
                         .engine_bearer = c->engine_bearer,
                         .engine_admin = c->engine_admin, .await_listing = c->rollout_url != NULL,
                         .probe = c->probe};
    Err err = fleet_new(&d->uv, d->control_http, d->store, &fleet, &events, &d->fleet, fault);
    for (int i = d->seat_count; err == ERR_OK && i < fleet_count(d->fleet); i++) {
        driver_seat_reset(d, i, fleet_engine(d->fleet, i).address); /* of an earlier life */
        d->seats[i].state = ENGINE_GONE;
    }
    err = err != ERR_OK ? err : add_others(d, fault);
    err = err != ERR_OK ? err : driver_members_start(d, fault);
    if (err == ERR_OK && c->resume) {
        driver_recall(d);
    }
    return err != ERR_OK ? err : start_local(d, port, fault);
}
