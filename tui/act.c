/* Acting on the fleet: which verb, on whom, how it is confirmed, and what came of it. The
 * targets are fixed by identity when the key is pressed; the default is no; done means observed
 * in the log, not accepted by the core (reference: tui-anchors 4.6). */
#include "core/base/json.h"
#include "tui/format.h"
#include "tui/model.h"
#include "tui/state.h"

#include <ctype.h>
#include <string.h>

typedef struct VerbInfo {
    const char *word;
    char key;
    Verb undo;
} VerbInfo;

static const VerbInfo verbs[VERB_COUNT] = {
#define VERB_ROW(name, word, key, undo) {word, key, undo},
    TUI_VERBS(VERB_ROW)
};

const char *verb_word(Verb verb)
{
    return verbs[verb].word;
}

void act_word(const Model *model, int64_t now_us, char *buffer, size_t size)
{
    if (model_in_replay(model)) {
        (void)str_format(buffer, size, "[LOCKED]");
    } else if (!model->control || model->ended) {
        (void)str_format(buffer, size, "[RO]");
    } else if (!model->linked) {
        (void)str_format(buffer, size, "[NO LINK]");
    } else if (model->armed_until_us > now_us) {
        int64_t left = (model->armed_until_us - now_us) / 1000000;
        (void)str_format(buffer, size, "[ARMED %lld%c]", (long long)(left < 60 ? left : left / 60),
                         left < 60 ? 's' : 'm');
    } else {
        (void)str_format(buffer, size, "[RW]");
    }
}

/* A whole word of `text`: "eng-1" is not in "eng-10". */
static bool names(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; n > 0 && (at = strstr(at, word)) != NULL; at += n) {
        bool before = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '-');
        bool behind = !(isalnum((unsigned char)at[n]) || at[n] == '-');
        if (before && behind) {
            return true;
        }
    }
    return false;
}

bool act_cordoned(const Snapshot *snap, const EngineRow *row)
{
    for (size_t i = 0; i < snap->commands.count; i++) { /* newest first */
        const CommandRow *command = &snap->commands.rows[i];
        bool lifts = command->what && strcmp(command->what, "uncordon") == 0;
        bool sets = command->what && strcmp(command->what, "cordon") == 0;
        if ((lifts || sets) && command->state && strcmp(command->state, "done") == 0 &&
            command->target && row->name && names(command->target, row->name)) {
            return sets;
        }
    }
    return false;
}

static bool command_open(const CommandRow *row)
{
    return row->state && (strcmp(row->state, "asked") == 0 || strcmp(row->state, "accepted") == 0);
}

const char *act_refusal(const Snapshot *snap, Verb verb, const EngineRow *row)
{
    bool dead = row->state == ENGINE_DEAD;
    if (row->state == ENGINE_GONE) {
        return "the engine is gone";
    }
    switch (verb) {
    case VERB_PAUSE: return dead ? "the engine is dead" : NULL;
    case VERB_RESUME: return row->state == ENGINE_PAUSED ? NULL : "the engine is not paused";
    case VERB_UPDATE:
        if (snap->header.policy_version < 0) {
            return "no policy version was committed yet";
        }
        return dead                             ? "the engine is dead"
               : row->state == ENGINE_LOADING   ? "it is loading a version already"
               : row->state == ENGINE_STARTING  ? "it is starting"
                                                : NULL;
    case VERB_RESTART: return row->state == ENGINE_STARTING ? "it is starting already" : NULL;
    case VERB_CORDON:
    case VERB_UNCORDON:
    case VERB_ABORT:
    case VERB_STOP:
    case VERB_COUNT: break;
    }
    return NULL;
}

const Pending *act_pending(const Model *model, int64_t engine)
{
    const Pending *newest = NULL;
    for (int i = 0; i < MODEL_PENDING_MAX; i++) {
        const Pending *pending = &model->pending[i];
        if (pending->state != PENDING_FREE && pending->target.engine == engine && engine > 0 &&
            (!newest || pending->asked_us > newest->asked_us)) {
            newest = pending;
        }
    }
    return newest;
}

/* ---- sending ------------------------------------------------------------------------------- */

static void write_json(const Confirm *confirm, const Target *target, const char *user,
                       char out[MODEL_JSON_MAX])
{
    Text text;
    JsonOut json;
    text_init(&text, MODEL_JSON_MAX - 1);
    json_begin(&json, &text);
    json_object_begin(&json);
    json_member_string(&json, "cmd", verb_word(confirm->verb));
    json_key(&json, "target");
    json_object_begin(&json);
    if (!target) {
        json_member_bool(&json, "all", true);
    } else if (confirm->verb == VERB_ABORT) {
        json_member_i64(&json, "sample", target->sample);
    } else {
        json_member_string(&json, target->engine > 0 ? "engine" : "part", target->name);
    }
    json_object_end(&json);
    if (confirm->version > 0) {
        json_member_i64(&json, "version", confirm->version);
    }
    json_member_str(&json, "reason", (Str){confirm->reason.text, confirm->reason.n});
    json_member_string(&json, "user", user);
    json_object_end(&json);
    (void)str_format(out, MODEL_JSON_MAX, "%s", text_c(&text));
    text_free(&text);
}

static int pending_slot(const Model *model)
{
    int oldest = 0;
    for (int i = 0; i < MODEL_PENDING_MAX; i++) {
        if (model->pending[i].state == PENDING_FREE) {
            return i;
        }
        if (model->pending[i].asked_us < model->pending[oldest].asked_us) {
            oldest = i;
        }
    }
    return oldest;
}

static void send_one(Model *model, const Confirm *confirm, const Target *target, int64_t now_us)
{
    if (model->outbox_count == MODEL_OUTBOX_MAX) {
        model_say(model, ROLE_ERROR, now_us, "too many commands wait to be sent; this one was not");
        return;
    }
    int slot = pending_slot(model);
    Pending *pending = &model->pending[slot];
    *pending = (Pending){.state = PENDING_REQUESTED, .verb = confirm->verb, .all = !target,
                         .asked_us = now_us, .changed_us = now_us};
    if (target) {
        pending->target = *target;
    }
    Outgoing *out = &model->outbox[model->outbox_count++];
    out->pending = slot;
    write_json(confirm, target, model->user, out->json);
}

static unsigned act_send(Model *model, int64_t now_us)
{
    const Confirm *confirm = &model->confirm;
    if (confirm->all) {
        send_one(model, confirm, NULL, now_us);
    }
    for (int i = 0; i < confirm->count && !confirm->all; i++) {
        send_one(model, confirm, &confirm->targets[i], now_us);
    }
    Verb undo = verbs[confirm->verb].undo;
    if (confirm->count == 1 && !confirm->all && undo != confirm->verb) {
        model->undo_verb = undo;
        model->undo_target = confirm->targets[0];
        model->undo_set = true;
    }
    model_say(model, ROLE_PROGRESS, now_us, "%s requested; the log will show what came of it",
              verb_word(confirm->verb));
    model->mode = MODE_NORMAL;
    return MODEL_DRAW | MODEL_SEND;
}

static unsigned cancel(Model *model, int64_t now_us, const char *why)
{
    model_say(model, ROLE_INFO, now_us, "%s cancelled: %s; nothing was done",
              verb_word(model->confirm.verb), why);
    model->mode = MODE_NORMAL;
    return MODEL_DRAW | note_cancelled(model, why);
}

void act_reply(Model *model, int index, bool ok, int64_t command, const char *message,
               int64_t now_us)
{
    if (index == MODEL_NOTE && !ok) {
        model_say(model, ROLE_WARN, now_us, "not noted in the log: %s",
                  message && message[0] ? message : "no reason given");
    }
    if (index < 0 || index >= MODEL_PENDING_MAX || model->pending[index].state == PENDING_FREE) {
        return;
    }
    Pending *pending = &model->pending[index];
    pending->state = ok ? PENDING_ACCEPTED : PENDING_REFUSED;
    pending->command = command;
    pending->changed_us = now_us;
    (void)str_format(pending->message, sizeof pending->message, "%s", message ? message : "");
    const char *on = pending->all ? "the run" : pending->target.name;
    if (!ok) {
        model_say(model, ROLE_ERROR, now_us, "%s %s refused: %s", verb_word(pending->verb), on,
                  message && message[0] ? message : "no reason given");
    } else {
        model_say(model, ROLE_PROGRESS, now_us, "%s %s accepted as command %lld",
                  verb_word(pending->verb), on, (long long)command);
    }
}

/* ---- opening ------------------------------------------------------------------------------- */

static bool take_target(Confirm *confirm, const EngineRow *row)
{
    if (confirm->count == MODEL_TARGETS_MAX) {
        return false;
    }
    Target *target = &confirm->targets[confirm->count++];
    *target = (Target){.engine = row->engine, .incarnation = row->incarnation,
                       .state = row->state};
    (void)str_format(target->name, sizeof target->name, "%s", row->name ? row->name : "");
    return true;
}

static void take_sample(Confirm *confirm, int64_t sample)
{
    Target *target = &confirm->targets[confirm->count++];
    *target = (Target){.sample = sample};
    (void)str_format(target->name, sizeof target->name, "sample %lld", (long long)sample);
}

/* The marked ones in the list of samples, else the one under the cursor. */
static const char *collect_samples(const Model *model, const Snapshot *snap, Confirm *confirm)
{
    bool marked = model->focus == PANE_TAIL && model->depth == 0;
    for (int i = 0; i < model->marked_samples && marked; i++) {
        take_sample(confirm, model->marked_sample[i]);
    }
    int64_t sample = confirm->count > 0 ? 0 : model_sample(model, snap);
    if (sample > 0) {
        take_sample(confirm, sample);
    }
    return confirm->count > 0 ? NULL : "put the cursor on a sample first: 2, or Enter on a step";
}

static const char *collect(Model *model, const Snapshot *snap, Confirm *confirm)
{
    if (confirm->verb == VERB_ABORT) {
        return collect_samples(model, snap, confirm);
    }
    if (mark_count(model, PANE_ENGINES) > 0) {
        for (size_t i = 0; i < snap->engines.count; i++) {
            const EngineRow *row = &snap->engines.rows[i];
            if (mark_has(model, PANE_ENGINES, row->engine) && !take_target(confirm, row)) {
                return "more than 64 engines are marked; mark fewer";
            }
        }
        return confirm->count ? NULL : "the marked engines are not in this log any more";
    }
    const Detail *detail = model->depth > 0 ? &model->detail[model->depth - 1] : NULL;
    const EngineRow *row = detail && detail->kind == DETAIL_ENGINE
                               ? snapshot_engine(snap, detail->id)
                               : model_engine(model, snap);
    bool engines = model->focus == PANE_ENGINES || (detail && detail->kind == DETAIL_ENGINE);
    if (!engines || !row) {
        return "put the cursor on an engine first (1), or use the command line: ':VERB all'";
    }
    const GroupLine *group = detail ? NULL : group_at(model, model_place(model, snap,
                                                                         PANE_ENGINES));
    if (group && group->folded) {
        return "the cursor is on a folded group; + unfolds it, Space marks all of it";
    }
    (void)take_target(confirm, row);
    return NULL;
}

/* Pause and cordon are switches: all targets in that state already means the way back. */
static void choose_direction(const Snapshot *snap, Confirm *confirm)
{
    int on = 0;
    if (confirm->verb != VERB_PAUSE && confirm->verb != VERB_CORDON) {
        return;
    }
    for (int i = 0; i < confirm->count; i++) {
        const EngineRow *row = snapshot_engine(snap, confirm->targets[i].engine);
        if (row && (confirm->verb == VERB_PAUSE ? row->state == ENGINE_PAUSED
                                                : act_cordoned(snap, row))) {
            on++;
        }
    }
    if (on == confirm->count && on > 0) {
        confirm->verb = verbs[confirm->verb].undo;
    }
}

static const char *check_targets(const Model *model, const Snapshot *snap, const Confirm *confirm,
                                 char *buffer, size_t size)
{
    for (int i = 0; i < confirm->count; i++) {
        const Target *target = &confirm->targets[i];
        const EngineRow *row = snapshot_engine(snap, target->engine);
        const char *why = row ? act_refusal(snap, confirm->verb, row) : NULL;
        if (why) {
            (void)str_format(buffer, size, "%s: %s", target->name, why);
            return buffer;
        }
        for (size_t k = 0; k < snap->commands.count; k++) {
            const CommandRow *command = &snap->commands.rows[k];
            const char *who = command->who ? command->who : "somebody";
            bool mine = names(who, model->self);
            if (!mine && command_open(command) && command->target &&
                names(command->target, target->name)) {
                (void)str_format(buffer, size, "%s asked to %s %s and that is not finished", who,
                                 command->what ? command->what : "change", target->name);
                return buffer;
            }
        }
    }
    return NULL;
}

static int level_of(const Snapshot *snap, const Confirm *confirm)
{
    bool small = confirm->verb == VERB_PAUSE || confirm->verb == VERB_RESUME ||
                 confirm->verb == VERB_CORDON || confirm->verb == VERB_UNCORDON;
    if (confirm->all) {
        return confirm->verb == VERB_RESUME ? 1 : 3;
    }
    if (confirm->verb == VERB_RESTART && confirm->count > 1 &&
        (size_t)confirm->count * 4 > snap->engines.count) {
        return 3;
    }
    return small && confirm->count == 1 ? 1 : 2;
}

/* What must be typed: the last two digits of one target, the number of several, the run's name. */
static void set_word(const Snapshot *snap, Confirm *confirm)
{
    const char *name = confirm->targets[0].name;
    const char *run = snap->run.name && snap->run.name[0] ? snap->run.name : "run";
    bool blind = snap->t_us - snap->header.last_fact_us > MODEL_BLIND_US;
    char digits[3] = {0};
    size_t n = strlen(name);
    size_t from = n > 2 ? n - 2 : 0;
    for (size_t i = from, k = 0; i < n; i++) {
        if (isdigit((unsigned char)name[i])) {
            digits[k++] = name[i];
        }
    }
    if (confirm->level == 3) {
        (void)str_format(confirm->want, sizeof confirm->want, "%s", run);
    } else if (confirm->count == 1) {
        (void)str_format(confirm->want, sizeof confirm->want, "%s%s", blind ? "blind" : "",
                         digits[0] ? digits : name);
    } else {
        (void)str_format(confirm->want, sizeof confirm->want, "%s%d", blind ? "blind" : "",
                         confirm->count);
    }
}

unsigned act_refuse(Model *model, int64_t now_us, Verb verb, const char *why)
{
    model_say(model, ROLE_WARN, now_us, "%s is not available: %s", verb_word(verb), why);
    return MODEL_DRAW;
}

unsigned act_open(Model *model, const Snapshot *snap, Confirm *confirm, int64_t now_us)
{
    char buffer[160];
    const char *why = check_targets(model, snap, confirm, buffer, sizeof buffer);
    if (why) {
        return act_refuse(model, now_us, confirm->verb, why);
    }
    if (model->w < LAYOUT_MIN_W || model->h < LAYOUT_MIN_H) {
        return act_refuse(model, now_us, confirm->verb,
                      "this window is too small to show what would happen");
    }
    confirm->level = level_of(snap, confirm);
    if (confirm->level == 3 && model->armed_until_us <= now_us) {
        return act_refuse(model, now_us, confirm->verb,
                      "it changes the whole run; type ':arm 5m' first, then again");
    }
    set_word(snap, confirm);
    confirm->opened_us = now_us;
    model->confirm = *confirm;
    model->mode = MODE_CONFIRM;
    return MODEL_DRAW | MODEL_FLUSH_INPUT;
}

const char *act_past(const Model *model)
{
    return model->replay_only ? "this is a log, and the past"
                              : "this is the past; End returns to live";
}

const char *act_locked(const Model *model)
{
    if (model_in_replay(model)) {
        return act_past(model);
    }
    if (model->ended) {
        return "the run has ended; 'rolltop run --resume' goes on from its last step";
    }
    if (!model->control) {
        return "this console looks only; start it with --control to act";
    }
    if (!model->linked) {
        return "the core's control socket does not answer";
    }
    return NULL;
}

unsigned act_begin(Model *model, const Snapshot *snap, Verb verb, bool all, int64_t now_us)
{
    Confirm confirm = {.verb = verb, .all = all};
    const char *why = act_locked(model);
    if (why) {
        return act_refuse(model, now_us, verb, why);
    }
    if (!all) {
        why = collect(model, snap, &confirm);
        if (why) {
            return act_refuse(model, now_us, verb, why);
        }
        choose_direction(snap, &confirm);
    }
    return act_open(model, snap, &confirm, now_us);
}

/* A part that is no engine: the trainer, the frontend. */
unsigned act_part(Model *model, const Snapshot *snap, const char *part, int64_t now_us)
{
    Confirm confirm = {.verb = VERB_RESTART, .count = 1};
    const char *why = act_locked(model);
    if (why) {
        return act_refuse(model, now_us, VERB_RESTART, why);
    }
    (void)str_format(confirm.targets[0].name, sizeof confirm.targets[0].name, "%s", part);
    return act_open(model, snap, &confirm, now_us);
}

unsigned act_undo(Model *model, const Snapshot *snap, int64_t now_us)
{
    const char *why = act_locked(model);
    if (!why && !model->undo_set) {
        why = "nothing that can be undone was done from this console";
    }
    if (why) {
        model_say(model, ROLE_WARN, now_us, "undo is not available: %s", why);
        return MODEL_DRAW;
    }
    Confirm confirm = {.verb = model->undo_verb, .count = 1};
    const EngineRow *row = snapshot_engine(snap, model->undo_target.engine);
    confirm.targets[0] = model->undo_target;
    if (row) {
        confirm.targets[0].state = row->state;
        confirm.targets[0].incarnation = row->incarnation;
    }
    return act_open(model, snap, &confirm, now_us);
}

/* ---- the box while it is open -------------------------------------------------------------- */

static unsigned typed_key(Model *model, int key, int64_t now_us)
{
    Confirm *confirm = &model->confirm;
    if (!input_key(&confirm->typed, key)) {
        return cancel(model, now_us, "that key is not part of the word");
    }
    if (strncmp(confirm->want, confirm->typed.text, confirm->typed.n) != 0) {
        return cancel(model, now_us, "the word did not match");
    }
    if (confirm->typed.n < strlen(confirm->want)) {
        return MODEL_DRAW;
    }
    if (confirm->level == 3) {
        confirm->countdown_us = now_us;
        return MODEL_DRAW;
    }
    return act_send(model, now_us);
}

unsigned act_key(Model *model, const Snapshot *snap, int key, int64_t now_us)
{
    Confirm *confirm = &model->confirm;
    (void)snap;
    if (now_us - confirm->opened_us < MODEL_GUARD_US && now_us >= confirm->opened_us) {
        return 0;
    }
    if (key == TK_ESC || key == TK_CTRL_C) {
        return cancel(model, now_us, "Esc");
    }
    if (confirm->countdown_us > 0) {
        return 0; /* only Esc stops the countdown */
    }
    if (confirm->level == 1) {
        return key == 'y' ? act_send(model, now_us) : cancel(model, now_us, "only y confirms");
    }
    if (key == TK_TAB) {
        confirm->in_reason = !confirm->in_reason;
        return MODEL_DRAW;
    }
    if (confirm->in_reason) {
        if (key == TK_ENTER) {
            confirm->in_reason = false;
        } else {
            (void)input_key(&confirm->reason, key);
        }
        return MODEL_DRAW;
    }
    return typed_key(model, key, now_us);
}

unsigned act_tick(Model *model, int64_t now_us)
{
    Confirm *confirm = &model->confirm;
    unsigned flags = 0;
    if (model->mode == MODE_CONFIRM && confirm->countdown_us > 0) {
        flags |= MODEL_DRAW;
        if (now_us - confirm->countdown_us >= MODEL_COUNTDOWN_US) {
            flags |= act_send(model, now_us);
        }
    }
    for (int i = 0; i < MODEL_PENDING_MAX; i++) {
        Pending *pending = &model->pending[i];
        bool open = pending->state == PENDING_REQUESTED || pending->state == PENDING_ACCEPTED;
        if (open && now_us - pending->asked_us > MODEL_PENDING_TIMEOUT_US) {
            pending->state = PENDING_TIMEOUT;
            pending->changed_us = now_us;
            model_say(model, ROLE_ERROR, now_us, "%s %s: no effect seen within 60 s; 7 shows what "
                      "the core said", verb_word(pending->verb),
                      pending->all ? "the run" : pending->target.name);
            flags |= MODEL_DRAW;
        } else if (pending->state != PENDING_FREE && !open &&
                   now_us - pending->changed_us > 10 * (int64_t)1000000) {
            *pending = (Pending){.state = PENDING_FREE};
            flags |= MODEL_DRAW;
        }
    }
    return flags;
}

static void observe_pending(Model *model, const Snapshot *snap, Pending *pending, int64_t now_us)
{
    const CommandRow *row = pending->command > 0 ? snapshot_command(snap, pending->command) : NULL;
    if (pending->state != PENDING_ACCEPTED || !row || !row->state) {
        return;
    }
    bool done = strcmp(row->state, "done") == 0;
    bool failed = strcmp(row->state, "failed") == 0 || strcmp(row->state, "refused") == 0;
    if (!done && !failed) {
        return;
    }
    pending->state = done ? PENDING_OBSERVED : PENDING_REFUSED;
    pending->changed_us = now_us;
    (void)str_format(pending->message, sizeof pending->message, "%s",
                     row->answer ? row->answer : "");
    const EngineRow *engine = snapshot_engine(snap, pending->target.engine);
    model_say(model, done ? ROLE_OK : ROLE_ERROR, now_us, "%s %s %s%s%s%s%s",
              verb_word(pending->verb), pending->all ? "the run" : pending->target.name,
              row->state, pending->message[0] ? ": " : "", pending->message,
              engine && done ? "; it is now " : "",
              engine && done ? state_look(state_shown(engine, snap->t_us))->word : "");
}

unsigned act_observe(Model *model, const Snapshot *snap, int64_t now_us)
{
    Confirm *confirm = &model->confirm;
    for (int i = 0; i < MODEL_PENDING_MAX; i++) {
        observe_pending(model, snap, &model->pending[i], now_us);
    }
    if (model->mode != MODE_CONFIRM) {
        return 0;
    }
    for (int i = 0; i < confirm->count; i++) {
        Target *target = &confirm->targets[i];
        const EngineRow *row = snapshot_engine(snap, target->engine);
        if (!row || (row->state == target->state && row->incarnation == target->incarnation)) {
            continue;
        }
        (void)str_format(confirm->notice, sizeof confirm->notice,
                         "%s went from %s to %s meanwhile: look again, type again", target->name,
                         state_look(target->state)->word, state_look(row->state)->word);
        target->state = row->state;
        target->incarnation = row->incarnation;
        confirm->typed.n = 0;
        confirm->typed.text[0] = '\0';
        confirm->countdown_us = 0;
        confirm->opened_us = now_us;
        const char *why = act_refusal(snap, confirm->verb, row);
        if (why) {
            return cancel(model, now_us, why);
        }
    }
    return MODEL_DRAW;
}
