/* Notes: words of an operator that change nothing of the fleet, kept in the log as a command and
 * an event. `:note WORDS` writes one; so do an acknowledged alert and a cancelled box, so that
 * another console and a later reader know of them. A console that may not act writes nothing. */
#include "core/base/json.h"
#include "tui/format.h"
#include "tui/model.h"

#include <string.h>

static unsigned put_note(Model *model, int64_t alert, const char *words)
{
    Text text;
    JsonOut json;
    if (act_locked(model) || model->outbox_count == MODEL_OUTBOX_MAX) {
        return 0;
    }
    text_init(&text, MODEL_JSON_MAX - 1);
    json_begin(&json, &text);
    json_object_begin(&json);
    json_member_string(&json, "cmd", "note");
    if (alert > 0) {
        json_key(&json, "target");
        json_object_begin(&json);
        json_member_i64(&json, "alert", alert);
        json_object_end(&json);
    }
    json_member_string(&json, "reason", words);
    json_member_string(&json, "user", model->user);
    json_object_end(&json);
    Outgoing *out = &model->outbox[model->outbox_count++];
    out->pending = MODEL_NOTE;
    (void)str_format(out->json, sizeof out->json, "%s", text_c(&text));
    text_free(&text);
    return MODEL_SEND;
}

unsigned note_command(Model *model, Str words, int64_t now_us)
{
    char text[MODEL_INPUT_MAX];
    bool cut = !str_format(text, sizeof text, "%.*s", (int)words.n, words.n ? words.p : "");
    const char *why = words.n == 0 ? "write ':note WORDS'"
                      : cut        ? "it has more than 199 bytes"
                                   : act_locked(model);
    unsigned sent = why ? 0 : put_note(model, 0, text);
    if (sent) {
        model_say(model, ROLE_PROGRESS, now_us, "noted; it is among the events and the commands");
    } else {
        model_say(model, ROLE_WARN, now_us, "note is not available: %s",
                  why ? why : "too many commands wait to be sent");
    }
    return MODEL_DRAW | sent;
}

const CommandRow *note_of_alert(const Snapshot *snap, int64_t incident)
{
    char target[40];
    (void)str_format(target, sizeof target, "alert %lld", (long long)incident);
    for (size_t i = 0; i < snap->commands.count; i++) {
        const CommandRow *row = &snap->commands.rows[i];
        if (row->what && strcmp(row->what, "note") == 0 && row->target &&
            strcmp(row->target, target) == 0) {
            return row;
        }
    }
    return NULL;
}

bool model_acked(const Model *model, const Snapshot *snap, int64_t incident)
{
    for (int i = 0; i < model->acked_count; i++) {
        if (model->acked[i] == incident) {
            return true;
        }
    }
    return note_of_alert(snap, incident) != NULL;
}

static void remember(Model *model, int64_t incident)
{
    if (model->acked_count == MODEL_ACKED_MAX) {
        memmove(model->acked, model->acked + 1, (MODEL_ACKED_MAX - 1) * sizeof(int64_t));
        model->acked_count--;
    }
    model->acked[model->acked_count++] = incident;
}

unsigned note_acknowledge(Model *model, const Snapshot *snap, const AlertRow *row, int64_t now_us)
{
    char mode[24];
    char age[FORMAT_MAX];
    if (!row) {
        model_say(model, ROLE_INFO, now_us, "no alert is open at this moment");
        return MODEL_DRAW;
    }
    const CommandRow *note = note_of_alert(snap, row->incident);
    const char *name = row->class_name ? row->class_name : "alert";
    if (note) {
        model_say(model, ROLE_INFO, now_us, "%s was acknowledged by %s %s ago", name,
                  note->who ? note->who : "somebody",
                  format_age(snap->t_us - note->asked_us, age));
        return MODEL_DRAW;
    }
    bool local = model_acked(model, snap, row->incident);
    if (!local) {
        remember(model, row->incident);
    }
    const char *engine = row->engine > 0 ? snapshot_engine_name(snap, row->engine) : "";
    char words[120];
    (void)str_format(words, sizeof words, "acknowledged: %s%s%s", name, engine[0] ? " of " : "",
                     engine);
    unsigned sent = local ? 0 : put_note(model, row->incident, words);
    act_word(model, now_us, mode, sizeof mode);
    if (sent) {
        model_say(model, ROLE_INFO, now_us, "%s acknowledged, for every console; it stays open",
                  name);
    } else if (!local) {
        model_say(model, ROLE_INFO, now_us, "%s acknowledged, on this console only %s; it stays "
                  "open", name, mode);
    }
    return MODEL_DRAW | sent;
}

unsigned note_cancelled(Model *model, const char *why)
{
    const Confirm *confirm = &model->confirm;
    char object[48];
    char words[MODEL_INPUT_MAX];
    if (confirm->all) {
        (void)str_format(object, sizeof object, "the run");
    } else if (confirm->count == 1) {
        (void)str_format(object, sizeof object, "%s", confirm->targets[0].name);
    } else {
        (void)str_format(object, sizeof object, "%d at once", confirm->count);
    }
    (void)str_format(words, sizeof words, "cancelled in the box: %s %s (%s)%s%s",
                     verb_word(confirm->verb), object, why, confirm->reason.n ? ", reason: " : "",
                     confirm->reason.text); /* a long reason may be cut: nothing was done by it */
    return put_note(model, 0, words);
}
