/* Acting on the fleet: what may be asked of whom, how it is sent, and what came of it. Done means
 * observed in the log, not accepted by the core (reference: tui-anchors 4.6). */
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

Verb verb_undo(Verb verb)
{
    return verbs[verb].undo;
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

bool act_names(const char *text, const char *word)
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
            command->target && row->name && act_names(command->target, row->name)) {
            return sets;
        }
    }
    return false;
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

unsigned act_send(Model *model, int64_t now_us)
{
    const Confirm *confirm = &model->confirm;
    if (confirm->all) {
        send_one(model, confirm, NULL, now_us);
    }
    for (int i = 0; i < confirm->count && !confirm->all; i++) {
        send_one(model, confirm, &confirm->targets[i], now_us);
    }
    Verb undo = verb_undo(confirm->verb);
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

unsigned act_tick(Model *model, int64_t now_us)
{
    unsigned flags = box_tick(model, now_us);
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
    /* On its way to a state it says nothing: the log may know the end before the engine's row. */
    bool settled = engine && done && engine->state != ENGINE_FENCED &&
                   engine->state != ENGINE_STARTING && engine->state != ENGINE_LOADING;
    model_say(model, done ? ROLE_OK : ROLE_ERROR, now_us, "%s %s %s%s%s%s%s",
              verb_word(pending->verb), pending->all ? "the run" : pending->target.name,
              row->state, pending->message[0] ? ": " : "", pending->message,
              settled ? "; it is now " : "",
              settled ? state_look(state_shown(engine, snap->t_us))->word : "");
}

unsigned act_observe(Model *model, const Snapshot *snap, int64_t now_us)
{
    for (int i = 0; i < MODEL_PENDING_MAX; i++) {
        observe_pending(model, snap, &model->pending[i], now_us);
    }
    return box_observe(model, snap, now_us);
}
