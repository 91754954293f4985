/* Operator commands: from the control socket (console, `rolltop ctl`) and from signals. A command
 * is durable in the log before it is acted on; its answer says what was done, its state in the
 * log goes on to "done" when the effect is seen. */
#include "core/loop/driver_private.h"

#include "core/base/fs.h"
#include "core/base/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS_MAX = 200 }; /* bytes of a reason or a note */

typedef struct Command Command;

typedef struct Verb {
    const char *word;
    void (*run)(Command *c);
    const char *run_only; /* why it is not for one part; NULL: it may be */
} Verb;

struct Command {
    Driver *d;
    const Verb *verb;
    CtlRequest *request; /* NULL: from a signal */
    int64_t id, sample, version; /* version: of update, 0 the committed one */
    int engine;     /* slot; -1: the run */
    bool trainer, frontend;
    char who[128], target[DISCOVER_ADDRESS], reason[256];
};

static void put(const Command *c, const char *state, const char *answer)
{
    CommandFact fact = {.command = c->id, .t_us = clock_wall_us(), .who = c->who,
                        .what = c->verb->word, .target = c->target[0] ? c->target : NULL,
                        .reason = c->reason[0] ? c->reason : NULL, .state = state,
                        .answer = answer};
    store_put_command(c->d->store, &fact);
}

void driver_command_done(Driver *d, int64_t *command, bool well, const char *answer)
{
    if (*command > 0) {
        CommandFact fact = {.command = *command, .t_us = clock_wall_us(),
                            .state = well ? "done" : "failed", .answer = answer};
        store_put_command(d->store, &fact);
        *command = 0;
    }
}

/* What the command waits for is seen once, so an earlier one that waits for the same gives way. */
static void wait_for_effect(const Command *c, int64_t *waiting)
{
    driver_command_done(c->d, waiting, false, "a later command took its place");
    *waiting = c->id;
}

static void reply(CtlRequest *request, bool ok, int64_t id, const char *message)
{
    if (!request) {
        return;
    }
    Text text;
    text_init(&text, 4096);
    JsonOut out;
    json_begin(&out, &text);
    json_object_begin(&out);
    json_member_bool(&out, "ok", ok);
    if (id > 0) {
        json_member_i64(&out, "command", id);
    }
    json_member_string(&out, "message", message);
    json_object_end(&out);
    ctl_reply(request, &text);
    text_free(&text);
}

static void answer(const Command *c, bool ok, const char *state, const char *message)
{
    put(c, state, message);
    driver_event(c->d, ok ? SEVERITY_INFO : SEVERITY_WARN, "operator", c->engine + 1,
                 "%s%s%s%s%s by %s: %s", c->verb->word, c->target[0] ? " " : "", c->target,
                 c->reason[0] ? ", " : "", c->reason, c->who, message);
    reply(c->request, ok, c->id, message);
}

/* ---- what each verb does ------------------------------------------------------------------ */

static void do_pause(Command *c)
{
    Driver *d = c->d;
    if (c->engine < 0) {
        driver_feed(d, LOOP_EV_PAUSE, false, NULL);
        answer(c, true, "done", "what runs is finished, nothing new is started");
        return;
    }
    if (!driver_routes(d)) {
        answer(c, false, "refused", "the frontend is not ours; take the engine out there");
        return;
    }
    Seat *seat = &d->seats[c->engine];
    seat->paused = true; /* it stays able to load policies, it only gets no work */
    driver_admit(d, c->engine);
    fleet_hold(d->fleet, c->engine, true, false, seat->bring);
    answer(c, true, "done", "gets no new work; what it runs is finished");
}

static void do_resume(Command *c)
{
    Driver *d = c->d;
    if (c->engine < 0) {
        bool paused = loop_paused(d->loop);
        bool held = driver_disk_now(d);
        driver_feed(d, LOOP_EV_RESUME, false, NULL);
        answer(c, paused || held, paused || held ? "done" : "refused",
               held     ? "what the disk refused is tried again now"
               : paused ? "the run goes on"
                        : "the run is not paused");
        return;
    }
    Seat *seat = &d->seats[c->engine];
    seat->paused = false;
    if (!seat->bring) {
        fleet_hold(d->fleet, c->engine, false, false, false);
    }
    driver_admit(d, c->engine);
    answer(c, true, "done", seat->bring ? "serves again once it has the policy" : "serves again");
}

static void set_cordon(Command *c, bool on)
{
    Driver *d = c->d;
    if (c->engine < 0) {
        answer(c, false, "refused", "name an engine");
        return;
    }
    if (!driver_routes(d)) {
        answer(c, false, "refused", "the frontend is not ours; take the engine out there");
        return;
    }
    d->seats[c->engine].cordoned = on;
    driver_admit(d, c->engine);
    answer(c, true, "done", on ? "finishes what it runs, takes nothing new" : "takes work again");
}

static void do_cordon(Command *c)
{
    set_cordon(c, true);
}

static void do_uncordon(Command *c)
{
    set_cordon(c, false);
}

static void do_engine_add(Command *c)
{
    char words[FAULT_TEXT_MAX];
    char who[448];
    (void)str_format(who, sizeof who, "%s%s%s", c->who, c->reason[0] ? ": " : "", c->reason);
    bool ok = driver_members_add(c->d, who, c->target, words, sizeof words);
    answer(c, ok, ok ? "done" : "refused", words);
}

static void engine_leaves(Command *c, bool drain)
{
    char words[256];
    char why[448];
    if (c->engine < 0) {
        answer(c, false, "refused", "name an engine");
        return;
    }
    (void)str_format(why, sizeof why, "%s by %s%s%s", drain ? "drained" : "removed", c->who,
                     c->reason[0] ? ": " : "", c->reason);
    bool ok = driver_members_leave(c->d, c->engine, drain, why, c->id, words, sizeof words);
    answer(c, ok, ok ? "accepted" : "refused", words);
}

static void do_engine_remove(Command *c)
{
    engine_leaves(c, false);
}

static void do_engine_drain(Command *c)
{
    engine_leaves(c, true);
}

/* Is that version on disk? If not, the refusal names those that are. */
static bool version_kept(const Command *c)
{
    bool there = driver_policy_kept(c->d, c->version);
    char words[192] = "";
    size_t n = 0;
    for (int64_t v = loop_committed(c->d->loop) + 8; v >= 0 && !there && n < 120; v--) {
        if (driver_policy_kept(c->d, v)) {
            n += (size_t)snprintf(words + n, sizeof words - n, " v%lld", (long long)v);
        }
    }
    if (!there) {
        char why[256];
        (void)str_format(why, sizeof why, "v%lld is not kept; there are%s (--keep-policies)",
                         (long long)c->version, words[0] ? words : " none");
        answer(c, false, "refused", why);
    }
    return there;
}

static void do_update(Command *c)
{
    Driver *d = c->d;
    if (loop_committed(d->loop) < 0) {
        answer(c, false, "refused", "no policy is committed yet");
        return;
    }
    if (c->engine >= 0 && c->version > 0) {
        answer(c, false, "refused", "one engine gets the committed policy; a version is for all");
        return;
    }
    if (c->engine >= 0) {
        Seat *seat = &d->seats[c->engine];
        seat->bring = true;
        seat->bring_due_us = 0;
        wait_for_effect(c, &seat->command);
        driver_admit(d, c->engine);
        answer(c, true, "accepted", "it is given the committed policy and verified");
        return;
    }
    if (c->version > 0 && !version_kept(c)) {
        return;
    }
    if (driver_syncing(d) && c->version > 0) {
        answer(c, false, "refused", "a policy update is under way; ask again when it is over");
        return;
    }
    if (driver_syncing(d)) {
        answer(c, true, "done", "an update is under way; it brings every engine to one policy");
        return;
    }
    wait_for_effect(c, &d->sync.again_command);
    char words[96] = "the committed policy is sent to every engine again";
    if (c->version > 0) {
        (void)str_format(words, sizeof words, "every engine is brought to v%lld",
                         (long long)c->version);
    }
    answer(c, true, "accepted", words);
    driver_feed_event(d, &(LoopEvent){.kind = LOOP_EV_UPDATE, .version = c->version});
}

/* One that is an incident already stays one until it is back. */
static void part_restart(Part *part, bool up)
{
    part->asked_us = up && part->child ? clock_mono_us() : part->asked_us;
    driver_part_restart(part);
}

static void do_restart(Command *c)
{
    Driver *d = c->d;
    if (c->trainer) {
        wait_for_effect(c, &d->train.command);
        d->train.asked_us = d->train.stage == TRAINER_READY ? clock_mono_us() : d->train.asked_us;
        answer(c, true, "accepted", "the trainer is started again from its last state");
        driver_trainer_restart(d, "asked by the operator");
    } else if (c->frontend && d->local.frontend) {
        answer(c, true, "done", "the frontend is started again");
        part_restart(d->local.frontend, d->front.up);
    } else if (c->engine >= 0 && d->seats[c->engine].state == ENGINE_GONE) {
        answer(c, false, "refused", "it is out of the fleet; `rolltop ctl engine add` brings it "
                                    "back");
    } else if (c->engine >= 0 && d->seats[c->engine].part) {
        wait_for_effect(c, &d->seats[c->engine].command);
        answer(c, true, "accepted", "it is started again and serves once it has the policy");
        part_restart(d->seats[c->engine].part, d->seats[c->engine].state != ENGINE_DEAD);
    } else if (c->engine >= 0 || c->frontend) {
        answer(c, false, "refused", "it is not ours to restart; do it where it was started");
    } else {
        answer(c, false, "refused", "name an engine, frontend or trainer");
    }
}

static void do_abort(Command *c)
{
    if (c->sample <= 0) {
        answer(c, false, "refused", "name a sample");
    } else if (driver_rollout_abort_sample(c->d, c->sample)) {
        answer(c, true, "done", "closed; it is generated again");
    } else {
        answer(c, false, "refused", "that sample is not in flight");
    }
}

static void do_stop(Command *c)
{
    answer(c, true, "accepted", "stops cleanly; nothing durable is lost");
    driver_feed(c->d, LOOP_EV_STOP, false, c->who);
}

static void do_stop_now(Command *c)
{
    answer(c, true, "accepted", "stops at once");
    driver_feed(c->d, LOOP_EV_STOP_NOW, false, c->who);
}

static void note_durable(void *arg)
{
    Command *c = arg;
    reply(c->request, true, c->id, "noted");
    free(c);
}

/* What people tell each other through the log: nothing of the fleet changes. Who was answered
 * finds the row: it is readable first. */
static void do_note(Command *c)
{
    put(c, "done", "noted");
    driver_event(c->d, SEVERITY_INFO, "operator", 0, "note by %s%s%s: %s", c->who,
                 c->target[0] ? " on " : "", c->target, c->reason);
    Command *later = xcalloc(1, sizeof *later);
    *later = *c;
    driver_when_durable(c->d, note_durable, later);
}

static const char NOT_ONE[] = "it ends the whole run; one engine is taken out with `rolltop ctl "
                              "engine remove`";

static const Verb verbs[] = {
    {"pause", do_pause, NULL},
    {"resume", do_resume, NULL},
    {"update", do_update, NULL},
    {"restart", do_restart, NULL},
    {"cordon", do_cordon, NULL},
    {"uncordon", do_uncordon, NULL},
    {"abort", do_abort, "it closes one sample; name a sample by its number"},
    {"stop", do_stop, NOT_ONE},
    {"stop-now", do_stop_now, NOT_ONE},
    {"engine-add", do_engine_add, NULL},
    {"engine-remove", do_engine_remove, NULL},
    {"engine-drain", do_engine_drain, NULL},
    {"note", do_note, NULL},
};

static const Verb *find_verb(const char *word)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verbs[i].word, word) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

static void perform(void *arg)
{
    Command *c = arg;
    if (c->d->shutting || c->d->torn_down) {
        reply(c->request, false, c->id, "the run is ending");
    } else {
        c->verb->run(c);
    }
    free(c);
}

static void submit(Command *c)
{
    c->id = c->d->next_command++;
    put(c, "asked", NULL);
    driver_when_durable(c->d, perform, c);
}

void driver_operator_stop(Driver *d, const char *who, bool at_once)
{
    if (at_once) { /* the second Ctrl-C does not wait for the disk */
        d->at_once = true;
        d->blocked = false;
        driver_feed(d, LOOP_EV_STOP_NOW, false, who);
        return;
    }
    Command *c = xcalloc(1, sizeof *c);
    c->d = d;
    c->engine = -1;
    c->verb = find_verb("stop");
    (void)str_format(c->who, sizeof c->who, "%s", who);
    submit(c);
}

/* ---- status ------------------------------------------------------------------------------- */

static void status_engines(const Driver *d, JsonOut *out)
{
    json_key(out, "engines");
    json_array_begin(out);
    for (int i = 0; i < fleet_count(d->fleet); i++) {
        FleetEngine e = fleet_engine(d->fleet, i);
        json_object_begin(out);
        json_member_string(out, "engine", e.name);
        json_member_string(out, "address", e.address);
        json_member_string(out, "state", engine_state_name(e.state));
        json_member_i64(out, "policy_version", d->seats[i].verified);
        json_member_bool(out, "serves", e.admitted);
        json_member_i64(out, "pid", d->seats[i].part && d->seats[i].part->child
                                        ? child_pid(d->seats[i].part->child)
                                        : 0);
        json_object_end(out);
    }
    json_array_end(out);
}

/* Between its socket and its first phase a run starts, behind the last one it ends. */
static bool has_phases(const Driver *d)
{
    return !d->torn_down && d->loop && d->fleet;
}

static void status_loop(const Driver *d, JsonOut *out)
{
    json_member_i64(out, "step", loop_step(d->loop));
    json_member_i64(out, "steps", d->config->loop.num_steps);
    json_member_bool(out, "paused", loop_paused(d->loop));
    json_member_string(out, "held", d->disk.how);
    json_member_i64(out, "policy_version", loop_committed(d->loop));
    json_member_bool(out, "recording", !d->watch.not_recording);
    json_member_i64(out, "trainer_pid", d->train.process ? trainer_pid(d->train.process) : 0);
    const Child *frontend = d->local.frontend ? d->local.frontend->child : NULL;
    json_member_i64(out, "frontend_pid", frontend ? child_pid(frontend) : 0);
    json_member_string(out, "frontend", d->front.url);
    status_engines(d, out);
}

static void status(const Driver *d, CtlRequest *request)
{
    Text text;
    text_init(&text, CTL_LINE_MAX - 1);
    JsonOut out;
    json_begin(&out, &text);
    json_object_begin(&out);
    json_member_bool(&out, "ok", true);
    json_member_string(&out, "run", d->config->run_id);
    json_member_string(&out, "name", d->config->name);
    json_member_string(&out, "log", d->config->log_path);
    json_member_i64(&out, "pid", getpid());
    json_member_string(&out, "phase", has_phases(d) ? loop_phase_name(loop_phase(d->loop))
                                      : d->torn_down ? "ending" : "starting");
    if (has_phases(d)) {
        status_loop(d, &out);
    }
    json_object_end(&out);
    ctl_reply(request, &text);
    text_free(&text);
}

/* ---- requests ----------------------------------------------------------------------------- */

/* "eng-02", "2" (its slot) or its address. */
static int find_engine(const Driver *d, const char *word)
{
    int64_t slot = -1;
    if (str_to_i64(str_from(word), &slot) && slot >= 0 && slot < fleet_count(d->fleet)) {
        return (int)slot;
    }
    for (int i = 0; i < fleet_count(d->fleet); i++) {
        FleetEngine e = fleet_engine(d->fleet, i);
        bool here = e.state != ENGINE_GONE;
        if (strcmp(e.name, word) == 0 || (here && strcmp(e.address, word) == 0)) {
            return i;
        }
    }
    return -1;
}

/* A note is words, on an alert or on the run. */
static bool read_note(Command *c, const cJSON *body, char *why, size_t why_size)
{
    const char *words = json_string(body, "reason", "");
    int64_t alert = json_i64(json_get(body, "target"), "alert", 0);
    size_t n = strlen(words);
    c->engine = -1;
    if (words[strspn(words, " \t\r\n")] == '\0') {
        n = 0; /* blanks are no words */
    }
    if (n == 0 || n > WORDS_MAX) {
        (void)str_format(why, why_size, "a note has 1 to %d bytes of words, this one has %zu; "
                         "e.g. rolltop ctl note \"eng-03 is loud\"", WORDS_MAX, n);
        return false;
    }
    if (alert > 0) {
        (void)str_format(c->target, sizeof c->target, "alert %lld", (long long)alert);
    }
    return true;
}

/* The words of a refusal in `why`; false. */
static bool read_target(Command *c, const cJSON *body, char *why, size_t why_size)
{
    const cJSON *target = json_get(body, "target");
    const char *engine = json_string(target, "engine", NULL);
    const char *part = json_string(target, "part", engine);
    const char *word = c->verb->word;
    c->engine = -1;
    c->sample = json_i64(target, "sample", 0);
    if (c->sample > 0 && c->verb->run != do_abort) {
        (void)str_format(why, why_size, "%s is not for a sample; only abort is", word);
        return false;
    }
    if (c->sample > 0) {
        (void)str_format(c->target, sizeof c->target, "sample %lld", (long long)c->sample);
        return true;
    }
    if (!part) {
        return true;
    }
    if (c->verb->run_only) {
        (void)str_format(why, why_size, "%s is not for %.48s: %s", word, part, c->verb->run_only);
        return false;
    }
    (void)str_format(c->target, sizeof c->target, "%s", part);
    if (c->verb->run == do_engine_add) {
        return true; /* an address that the fleet does not have yet */
    }
    c->trainer = strcmp(part, "trainer") == 0;
    c->frontend = strcmp(part, "frontend") == 0;
    if (!c->trainer && !c->frontend) {
        c->engine = find_engine(c->d, part);
        if (c->engine < 0) {
            (void)str_format(why, why_size, "no engine is called %.48s; see `rolltop ctl status`",
                             part);
            return false;
        }
    }
    if ((c->trainer || c->frontend) && c->verb->run != do_restart) {
        (void)str_format(why, why_size, "%s can only be restarted", part);
        return false;
    }
    return true;
}

void driver_on_control(CtlRequest *request, const cJSON *body, const CtlPeer *peer, void *user)
{
    Driver *d = user;
    const char *word = json_string(body, "cmd", "");
    const Verb *verb = find_verb(word);
    if (strcmp(word, "status") == 0) {
        status(d, request);
        return;
    }
    if (!has_phases(d)) {
        reply(request, false, 0, d->torn_down ? "the run is ending" : "the run is not ready");
        return;
    }
    if (strcmp(word, "policy-verify") == 0) {
        driver_holds_start(d, request);
        return;
    }
    char why[256];
    if (!verb) {
        (void)str_format(why, sizeof why, "unknown command \"%.32s\"; `rolltop ctl --help` lists "
                         "them", word);
        reply(request, false, 0, why);
        return;
    }
    Command *c = xcalloc(1, sizeof *c);
    c->d = d;
    c->request = request;
    c->verb = verb;
    (void)str_format(c->who, sizeof c->who, "%s (pid %d)", peer->user, (int)peer->pid);
    (void)str_format(c->reason, sizeof c->reason, "%.*s", WORDS_MAX,
                     json_string(body, "reason", ""));
    c->version = json_i64(body, "version", 0);
    if (verb->run == do_note ? !read_note(c, body, why, sizeof why)
                             : !read_target(c, body, why, sizeof why)) {
        reply(request, false, 0, why);
        free(c);
        return;
    }
    submit(c);
}
