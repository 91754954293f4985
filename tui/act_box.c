/* The box that asks before anything changes: on whom, which level, which word. The targets are
 * fixed by identity when the key is pressed, and the default is no (reference: tui-anchors 4.6). */
#include "tui/format.h"
#include "tui/model.h"
#include "tui/state.h"

#include <ctype.h>
#include <string.h>

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
    const MarkList *list = &model->marks[PANE_TAIL];
    for (int i = 0; i < list->count && marked; i++) {
        take_sample(confirm, list->ids[i]);
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
        confirm->verb = verb_undo(confirm->verb);
    }
}

static bool command_open(const CommandRow *row)
{
    return row->state && (strcmp(row->state, "asked") == 0 || strcmp(row->state, "accepted") == 0);
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
            bool mine = act_names(who, model->self);
            if (!mine && command_open(command) && command->target &&
                act_names(command->target, target->name)) {
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

static unsigned cancel(Model *model, int64_t now_us, const char *why)
{
    model_say(model, ROLE_INFO, now_us, "%s cancelled: %s; nothing was done",
              verb_word(model->confirm.verb), why);
    model->mode = MODE_NORMAL;
    return MODEL_DRAW | note_cancelled(model, why);
}

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

unsigned box_tick(Model *model, int64_t now_us)
{
    const Confirm *confirm = &model->confirm;
    if (model->mode != MODE_CONFIRM || confirm->countdown_us == 0) {
        return 0;
    }
    bool over = now_us - confirm->countdown_us >= MODEL_COUNTDOWN_US;
    return MODEL_DRAW | (over ? act_send(model, now_us) : 0);
}

unsigned box_observe(Model *model, const Snapshot *snap, int64_t now_us)
{
    Confirm *confirm = &model->confirm;
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
