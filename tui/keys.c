/* From a key to a change of the model. Looking is lower case and symbols; P U R C X act. */
#include "tui/model.h"
#include "tui/state.h"

#include <string.h>

static Detail *top_detail(Model *model)
{
    return model->depth > 0 ? &model->detail[model->depth - 1] : NULL;
}

static unsigned open_detail(Model *model, DetailKind kind, int64_t id)
{
    if (kind == DETAIL_NONE || id < 0) {
        return 0;
    }
    if (model->depth == MODEL_DETAIL_DEPTH) {
        memmove(model->detail, model->detail + 1,
                (MODEL_DETAIL_DEPTH - 1) * sizeof model->detail[0]);
        model->depth--;
    }
    model->detail[model->depth++] = (Detail){.kind = kind, .id = id};
    return MODEL_DRAW | MODEL_QUERY;
}

static DetailKind pane_detail(Pane pane)
{
    switch (pane) {
    case PANE_ENGINES: return DETAIL_ENGINE;
    case PANE_TAIL: return DETAIL_SAMPLE;
    case PANE_STEPS:
    case PANE_LEARNING: return DETAIL_STEP;
    case PANE_EVENTS: return DETAIL_EVENT;
    case PANE_POLICIES: return DETAIL_POLICY;
    case PANE_COMMANDS: return DETAIL_COMMAND;
    case PANE_COUNT: break;
    }
    return DETAIL_NONE;
}

static unsigned enter(Model *model, const Snapshot *snap)
{
    Detail *detail = top_detail(model);
    if (!detail) {
        int place = model_place(model, snap, model->focus);
        if (place < 0) {
            return 0;
        }
        int64_t id = model_row_id(snap, model->focus, model->shown[model->focus][place]);
        return open_detail(model, pane_detail(model->focus), id);
    }
    if (detail->kind == DETAIL_STEP && (size_t)detail->cursor < snap->samples.count) {
        return open_detail(model, DETAIL_SAMPLE, snap->samples.rows[detail->cursor].sample);
    }
    if (detail->kind == DETAIL_SAMPLE) {
        const TailRow *row = snapshot_tail(snap, detail->id);
        return row && row->engine > 0 ? open_detail(model, DETAIL_ENGINE, row->engine) : 0;
    }
    if (detail->kind == DETAIL_ALERT) {
        const AlertRow *row = snapshot_alert(snap, detail->id);
        const TailRow *sample = row ? snapshot_alert_sample(snap, row) : NULL;
        if (sample) {
            return open_detail(model, DETAIL_SAMPLE, sample->sample);
        }
        return row && row->engine > 0 ? open_detail(model, DETAIL_ENGINE, row->engine) : 0;
    }
    if (detail->kind == DETAIL_EVENT) {
        const EventRow *row = snapshot_event(snap, detail->id);
        return row && row->engine > 0 ? open_detail(model, DETAIL_ENGINE, row->engine) : 0;
    }
    return 0;
}

static unsigned show_pane(Model *model, Pane pane)
{
    model->focus = pane;
    model->depth = 0;
    if (pane == PANE_POLICIES || pane == PANE_LEARNING) {
        model->second = true;
    } else if (pane == PANE_TAIL || pane == PANE_STEPS) {
        model->second = false;
    }
    return MODEL_DRAW | MODEL_QUERY;
}

static void free_cursor(Model *model)
{
    model->follow[model->focus] = 0;
}

static unsigned back(Model *model, const Snapshot *snap)
{
    char *filter = model->filter[model->focus];
    if (model->depth > 0) {
        model->depth--;
        return MODEL_DRAW | MODEL_QUERY;
    }
    if (filter[0]) {
        filter[0] = '\0';
        model_lists(model, snap);
        return MODEL_DRAW | MODEL_QUERY;
    }
    if (model->search[0]) {
        model->search[0] = '\0';
        return MODEL_DRAW;
    }
    if (model->follow[model->focus] != 0) {
        free_cursor(model);
        return MODEL_DRAW;
    }
    if (mark_none(model)) {
        return MODEL_DRAW;
    }
    if (model->zoom) {
        model->zoom = false;
        return MODEL_DRAW | MODEL_QUERY;
    }
    if (model->past_count > 0) {
        Pane pane = model->past[--model->past_count];
        unsigned flags = show_pane(model, pane);
        model->message[0] = '\0';
        return flags;
    }
    model->message[0] = '\0';
    return MODEL_DRAW;
}

static unsigned move(Model *model, const Snapshot *snap, int delta)
{
    Detail *detail = top_detail(model);
    if (!detail) {
        size_t limit = model->event_limit;
        model_move(model, snap, model->focus, delta);
        return MODEL_DRAW | (limit != model->event_limit ? MODEL_QUERY : 0);
    }
    if (detail->kind == DETAIL_STEP && snap->samples.count > 0) {
        int64_t to = detail->cursor + delta;
        int64_t last = (int64_t)snap->samples.count - 1;
        detail->cursor = to < 0 ? 0 : to > last ? last : to;
        return MODEL_DRAW;
    }
    int64_t to = (int64_t)detail->scroll + delta;
    detail->scroll = to < 0 ? 0 : to > 100000 ? 100000 : (int)to;
    return MODEL_DRAW;
}

static unsigned focus_pane(Model *model, Pane pane)
{
    if (pane != model->focus) {
        if (model->past_count == MODEL_PAST_MAX) {
            memmove(model->past, model->past + 1, (MODEL_PAST_MAX - 1) * sizeof model->past[0]);
            model->past_count--;
        }
        model->past[model->past_count++] = model->focus;
    }
    return show_pane(model, pane);
}

/* Rows that want attention: engines not well, events that warn, steps that did not end well. */
static bool wants_attention(const Snapshot *snap, Pane pane, int i)
{
    switch (pane) {
    case PANE_ENGINES:
        return state_look(state_shown(&snap->engines.rows[i], snap->t_us))->rank <= 2;
    case PANE_EVENTS: return snap->events.rows[i].severity != SEVERITY_INFO;
    case PANE_TAIL: return snap->tail.rows[i].attempt > 1;
    case PANE_STEPS:
    case PANE_LEARNING:
        return snap->steps.rows[i].outcome && strcmp(snap->steps.rows[i].outcome, "ok") != 0;
    case PANE_POLICIES: {
        PolicyState state = snap->policies.rows[i].state;
        return state == POLICY_REJECTED || state == POLICY_ROLLED_BACK;
    }
    case PANE_COMMANDS: {
        const char *state = snap->commands.rows[i].state;
        return state && (strcmp(state, "failed") == 0 || strcmp(state, "refused") == 0);
    }
    case PANE_COUNT: break;
    }
    return false;
}

static unsigned next_match(Model *model, const Snapshot *snap, int dir, int64_t now_us)
{
    Pane pane = model->focus;
    int count = model->shown_count[pane];
    int place = model_place(model, snap, pane);
    bool searching = model->search[0] != '\0';
    for (int n = 1; n <= count && place >= 0; n++) {
        int at = ((place + dir * n) % count + count) % count;
        int row = model->shown[pane][at];
        if (searching ? model_row_matches(snap, pane, row, model->search)
                      : wants_attention(snap, pane, row)) {
            model_move(model, snap, pane, at - place);
            return MODEL_DRAW;
        }
    }
    if (searching) {
        model_say(model, ROLE_INFO, now_us, "no row here matches \"%s\"; Esc ends the search",
                  model->search);
    } else {
        model_say(model, ROLE_INFO, now_us, "no row here needs attention");
    }
    return MODEL_DRAW;
}

static const AlertRow *worst_alert(const Model *model, const Snapshot *snap)
{
    for (size_t i = 0; i < snap->alerts.count; i++) {
        if (!model_acked(model, snap, snap->alerts.rows[i].incident)) {
            return &snap->alerts.rows[i];
        }
    }
    return snap->alerts.count > 0 ? &snap->alerts.rows[0] : NULL;
}

static unsigned go_worst(Model *model, const Snapshot *snap, int64_t now_us)
{
    const AlertRow *row = worst_alert(model, snap);
    if (!row) {
        model_say(model, ROLE_OK, now_us, "no alert is open at this moment");
        return MODEL_DRAW;
    }
    if (row->engine > 0) {
        Cursor *cursor = &model->cursor[PANE_ENGINES];
        cursor->id = row->engine;
        cursor->set = true;
        model->focus = PANE_ENGINES;
        model_lists(model, snap);
    }
    model->depth = 0;
    return open_detail(model, DETAIL_ALERT, row->incident);
}

static unsigned acknowledge(Model *model, const Snapshot *snap, int64_t now_us)
{
    const Detail *detail = top_detail(model);
    const AlertRow *row = detail && detail->kind == DETAIL_ALERT
                              ? snapshot_alert(snap, detail->id)
                              : worst_alert(model, snap);
    return note_acknowledge(model, snap, row, now_us);
}

static unsigned quit(Model *model, const Snapshot *snap)
{
    if (model->depth > 0) {
        return back(model, snap);
    }
    if (model->may_stop && !model->replay_only && snap->run.core_alive) {
        return typing_start(model, MODE_QUIT_ASK, "") | MODEL_FLUSH_INPUT;
    }
    return MODEL_QUIT;
}

static unsigned change_sort(Model *model, const Snapshot *snap, int delta)
{
    Pane pane = model->focus;
    int count = sort_count(pane);
    model->sort[pane] = (model->sort[pane] + delta + count) % count;
    model_lists(model, snap);
    return MODEL_DRAW;
}

static unsigned run_act(Model *model, const Snapshot *snap, Action action, int64_t now_us)
{
    switch ((int)action) {
    case ACT_PAUSE: return act_begin(model, snap, VERB_PAUSE, false, now_us);
    case ACT_UPDATE: {
        int64_t policy = act_policy(model, snap);
        return policy > 0 ? act_version(model, snap, policy, now_us)
                          : act_begin(model, snap, VERB_UPDATE, false, now_us);
    }
    case ACT_RESTART: return act_begin(model, snap, VERB_RESTART, false, now_us);
    case ACT_CORDON: return act_begin(model, snap, VERB_CORDON, false, now_us);
    case ACT_ABORT: return act_begin(model, snap, VERB_ABORT, false, now_us);
    }
    return 0;
}

static unsigned compare(Model *model, const Snapshot *snap, int64_t now_us)
{
    int64_t ids[2] = {0, 0};
    const char *why = NULL;
    if (!mark_pair(model, snap, ids, &why)) {
        model_say(model, ROLE_INFO, now_us, "%s", why);
        return MODEL_DRAW;
    }
    Pane pane = model->focus;
    model->depth = 0;
    unsigned flags = open_detail(model, DETAIL_COMPARE, ids[0]);
    model->detail[0].other = ids[1];
    model->detail[0].pane = pane;
    return flags;
}

static unsigned run_find(Model *model, const Snapshot *snap, Action action, int64_t now_us)
{
    switch ((int)action) {
    case ACT_FILTER: return typing_start(model, MODE_FILTER, model->filter[model->focus]);
    case ACT_SEARCH: return typing_start(model, MODE_SEARCH, "");
    case ACT_NEXT_MATCH: return next_match(model, snap, 1, now_us);
    case ACT_PREV_MATCH: return next_match(model, snap, -1, now_us);
    case ACT_SORT:
        model->mode = MODE_SORT;
        model->sort_cursor = model->sort[model->focus];
        return MODEL_DRAW;
    case ACT_SORT_PREV: return change_sort(model, snap, -1);
    case ACT_SORT_NEXT: return change_sort(model, snap, 1);
    case ACT_SORT_INVERT:
        model->inverted[model->focus] = !model->inverted[model->focus];
        model_lists(model, snap);
        return MODEL_DRAW;
    case ACT_MARK: return mark_row(model, snap, now_us);
    case ACT_MARK_RANGE: return mark_range(model, snap, now_us);
    case ACT_MARK_ALL: return mark_all(model, snap, now_us);
    case ACT_COMPARE: return compare(model, snap, now_us);
    }
    return 0;
}

static unsigned follow(Model *model, const Snapshot *snap, int64_t now_us)
{
    Pane pane = model->focus;
    int place = model_place(model, snap, pane);
    if (pane == PANE_EVENTS) {
        model->follow_events = true;
        model_lists(model, snap);
        return MODEL_DRAW;
    }
    if ((pane != PANE_ENGINES && pane != PANE_TAIL) || place < 0) {
        model_say(model, ROLE_INFO, now_us, "engines (1), samples (2) and events (4) are followed");
        return MODEL_DRAW;
    }
    int64_t id = model_row_id(snap, pane, model->shown[pane][place]);
    model->follow[pane] = model->follow[pane] == id ? 0 : id;
    model->cursor[pane].id = id;
    model->cursor[pane].set = true;
    model_lists(model, snap);
    return MODEL_DRAW;
}

unsigned model_view(Model *model, const Snapshot *snap, int view, int64_t now_us)
{
    if (view < 0 || view >= model->config.view_count) {
        model_say(model, ROLE_INFO, now_us,
                  "no view is named in the configuration; [view NAME] there names one");
        return MODEL_DRAW;
    }
    const NamedView *to = &model->config.views[view];
    unsigned flags = focus_pane(model, to->pane);
    model->view = (view + 1) % model->config.view_count;
    model->zoom = to->zoom;
    model->sort[to->pane] = to->sort;
    model->inverted[to->pane] = to->inverted;
    model->group = to->group;
    model->folded_count = 0;
    (void)str_format(model->filter[to->pane], sizeof model->filter[0], "%s", to->filter);
    model_lists(model, snap);
    model_say(model, ROLE_INFO, now_us, "view '%s'", to->name);
    return flags;
}

static unsigned run_other(Model *model, const Snapshot *snap, Action action, int64_t now_us)
{
    switch ((int)action) {
    case ACT_ZOOM:
        model->zoom = !model->zoom;
        return MODEL_DRAW | MODEL_QUERY;
    case ACT_FREEZE: return travel_freeze(model, now_us);
    case ACT_FOLLOW: return follow(model, snap, now_us);
    case ACT_GROUP: return group_next(model, snap);
    case ACT_UNFOLD: return group_fold(model, snap, false, now_us);
    case ACT_FOLD: return group_fold(model, snap, true, now_us);
    case ACT_VIEW: return model_view(model, snap, model->view, now_us);
    case ACT_WORST: return go_worst(model, snap, now_us);
    case ACT_ACK: return acknowledge(model, snap, now_us);
    case ACT_COPY_ROW: return MODEL_COPY_ROW;
    case ACT_COPY_SCREEN: return MODEL_COPY_SCREEN;
    case ACT_UNDO: return act_undo(model, snap, now_us);
    case ACT_COMMAND: return typing_start(model, MODE_COMMAND, "");
    case ACT_HELP:
        model->mode = MODE_HELP;
        model->help_cursor = 0;
        return MODEL_DRAW;
    case ACT_REPAINT: return MODEL_REPAINT | MODEL_DRAW | MODEL_QUERY;
    case ACT_SUSPEND: return MODEL_SUSPEND;
    case ACT_QUIT: return quit(model, snap);
    }
    return 0;
}

static unsigned scroll_columns(Model *model, int delta)
{
    int to = model->scroll_x + delta;
    model->scroll_x = to < 0 ? 0 : to > 40 ? 40 : to;
    return MODEL_DRAW;
}

static unsigned run_move(Model *model, const Snapshot *snap, Action action)
{
    int page = model->h > 16 ? model->h - 12 : 4;
    switch ((int)action) {
    case ACT_UP: return move(model, snap, -1);
    case ACT_DOWN: return move(model, snap, 1);
    case ACT_PAGE_UP: return move(model, snap, -page);
    case ACT_PAGE_DOWN: return move(model, snap, page);
    case ACT_TOP: return move(model, snap, -1000000);
    case ACT_BOTTOM: return move(model, snap, 1000000);
    case ACT_ENTER: return enter(model, snap);
    case ACT_LEFT: return scroll_columns(model, -1);
    case ACT_RIGHT: return scroll_columns(model, 1);
    case ACT_BACK: return back(model, snap);
    case ACT_NEXT_PANE: return focus_pane(model, (Pane)((model->focus + 1) % PANE_COUNT));
    case ACT_PREV_PANE:
        return focus_pane(model, (Pane)((model->focus + PANE_COUNT - 1) % PANE_COUNT));
    }
    if (action >= ACT_PANE_1 && action <= ACT_PANE_7) {
        return focus_pane(model, (Pane)(action - ACT_PANE_1));
    }
    return 0;
}

unsigned action_run(Model *model, const Snapshot *snap, Action action, int64_t now_us)
{
    if (action == ACT_NONE) {
        return 0;
    }
    switch (keymap_info(action)->group) {
    case G_MOVE: return run_move(model, snap, action);
    case G_TIME: return travel_run(model, snap, action, now_us);
    case G_ACT: return run_act(model, snap, action, now_us);
    case G_FIND: return run_find(model, snap, action, now_us);
    case G_LOOK:
    case G_OTHER: return run_other(model, snap, action, now_us);
    case G_COUNT: break;
    }
    return 0;
}

unsigned model_shell(Model *model, int index, int64_t now_us)
{
    const ShellCommand *command = &model->config.commands[index];
    if (command->pane != PANE_COUNT && command->pane != model->focus) {
        model_say(model, ROLE_INFO, now_us, "%s is for rows of pane %d only", command->name,
                  (int)command->pane + 1);
        return MODEL_DRAW;
    }
    model->shell = index;
    if (command->ask != SHELL_ASK_NOT) {
        return typing_start(model, MODE_SHELL, "") | MODEL_FLUSH_INPUT;
    }
    return MODEL_SHELL | MODEL_DRAW;
}

unsigned model_click(Model *model, const Snapshot *snap, const Hit *hit, int64_t now_us)
{
    model->now_us = now_us;
    if (model->mode != MODE_NORMAL || hit->kind == HIT_NONE) {
        return 0;
    }
    Pane pane = (Pane)hit->pane;
    unsigned flags = model->depth == 0 && pane != model->focus ? focus_pane(model, pane) : 0;
    if (hit->kind == HIT_ROW && model->depth == 0) {
        model_move(model, snap, pane, hit->value - model_place(model, snap, pane));
    } else if (hit->kind == HIT_SORT && model->depth == 0) {
        bool again = model->sort[pane] == hit->value;
        model->inverted[pane] = again && !model->inverted[pane];
        model->sort[pane] = hit->value;
        model_lists(model, snap);
    }
    return flags | MODEL_DRAW;
}

unsigned model_wheel(Model *model, const Snapshot *snap, const Hit *hit, int delta,
                     int64_t now_us)
{
    model->now_us = now_us;
    if (model->mode == MODE_HELP || model->mode == MODE_HELP_FILTER || model->mode == MODE_SORT ||
        model->mode == MODE_MOMENTS) {
        return typing_key(model, snap, delta < 0 ? TK_UP : TK_DOWN, now_us);
    }
    if (model->mode != MODE_NORMAL) {
        return 0;
    }
    if (model->depth == 0 && hit->kind != HIT_NONE) {
        model_move(model, snap, (Pane)hit->pane, delta);
        return MODEL_DRAW;
    }
    return move(model, snap, delta);
}

bool model_key_needs_picture(const Model *model, int key)
{
    Action action = model->mode != MODE_NORMAL
                        ? ACT_NONE
                        : keymap_find(&model->config.keymap, key, model_in_replay(model),
                                      model->playing);
    if (action == ACT_NONE) {
        return false;
    }
    KeyGroup group = keymap_info(action)->group;
    return group != G_TIME && (group != G_MOVE || action == ACT_ENTER);
}

unsigned model_key(Model *model, const Snapshot *snap, int key, int64_t now_us)
{
    model->now_us = now_us;
    if (model->mode == MODE_CONFIRM) {
        return act_key(model, snap, key, now_us);
    }
    if (model->mode != MODE_NORMAL) {
        return typing_key(model, snap, key, now_us);
    }
    for (int i = 0; i < model->config.command_count && key != TK_NONE; i++) {
        if (model->config.commands[i].key == key) {
            return model_shell(model, i, now_us);
        }
    }
    Action action =
        keymap_find(&model->config.keymap, key, model_in_replay(model), model->playing);
    if (action == ACT_NONE && key != TK_NONE) {
        char name[KEY_NAME_MAX];
        keymap_key_name(key, name, sizeof name);
        model_say(model, ROLE_INFO, now_us, "%s does nothing here; ? lists the keys", name);
        return MODEL_DRAW;
    }
    return action_run(model, snap, action, now_us);
}
