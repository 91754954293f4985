#include "tui/model.h"
#include "tui/state.h"

#include <string.h>

enum { ORDER_TICKS = 3 };

int model_row_count(const Snapshot *snap, Pane pane)
{
    size_t count = 0;
    switch (pane) {
    case PANE_ENGINES: count = snap->engines.count; break;
    case PANE_TAIL: count = snap->tail.count; break;
    case PANE_STEPS:
    case PANE_LEARNING: count = snap->steps.count; break;
    case PANE_EVENTS: count = snap->events.count; break;
    case PANE_POLICIES: count = snap->policies.count; break;
    case PANE_COMMANDS: count = snap->commands.count; break;
    case PANE_COUNT: break;
    }
    return count < MODEL_ROWS_MAX ? (int)count : MODEL_ROWS_MAX;
}

int64_t model_row_id(const Snapshot *snap, Pane pane, int index)
{
    if (index < 0 || index >= model_row_count(snap, pane)) {
        return -1;
    }
    switch (pane) {
    case PANE_ENGINES: return snap->engines.rows[index].engine;
    case PANE_TAIL: return snap->tail.rows[index].sample;
    case PANE_STEPS:
    case PANE_LEARNING: return snap->steps.rows[index].step;
    case PANE_EVENTS: return snap->events.rows[index].id;
    case PANE_POLICIES: return snap->policies.rows[index].version;
    case PANE_COMMANDS: return snap->commands.rows[index].command;
    case PANE_COUNT: break;
    }
    return -1;
}

static const char *word_of(const char *s)
{
    return s ? s : "";
}

static bool engine_matches(const Snapshot *snap, const EngineRow *row, const char *filter)
{
    char text[512];
    const StateLook *look = state_look(state_shown(row, snap->t_us));
    Val policy = {(double)row->policy_version, row->policy_version >= 0, 0};
    Val kv = row->kv_usage;
    Val seen = {(double)(snap->t_us - row->seen_us) / 1e6, row->seen_us > 0, 0};
    kv.v *= 100;
    (void)str_format(text, sizeof text, "%s %s v%lld %s %s", word_of(row->name), look->word,
                     (long long)row->policy_version, word_of(row->address), word_of(row->reason));
    const FilterField fields[] = {
        {"state", look->word, val_none()}, {"name", word_of(row->name), val_none()},
        {"pol", NULL, policy},      {"kv", NULL, kv},
        {"run", NULL, row->running}, {"wait", NULL, row->waiting},
        {"tok", NULL, row->tokens_per_s}, {"seen", NULL, seen},
    };
    return filter_match(filter, text, fields, sizeof fields / sizeof fields[0]);
}

static bool tail_matches(const Snapshot *snap, const TailRow *row, const char *filter)
{
    char text[160];
    char name[48];
    Val age = val_of((double)(snap->t_us - row->started_us) / 1e6, 0);
    const char *kind = row->eval ? "eval" : "train";
    (void)str_format(name, sizeof name, "%lld/%lld", (long long)row->step,
                     (long long)row->sample);
    (void)str_format(text, sizeof text, "%s %s v%lld %s", name, word_of(row->engine_name),
                     (long long)row->policy_version, kind);
    const FilterField fields[] = {
        {"engine", word_of(row->engine_name), val_none()}, {"kind", kind, val_none()},
        {"sample", name, val_none()},
        {"pol", NULL, val_of((double)row->policy_version, 0)},
        {"group", NULL, val_of((double)row->group, 0)},
        {"step", NULL, val_of((double)row->step, 0)},
        {"tokens", NULL, val_of((double)row->tokens, 0)},
        {"try", NULL, val_of(row->attempt, 0)}, {"age", NULL, age},
    };
    return filter_match(filter, text, fields, sizeof fields / sizeof fields[0]);
}

static bool step_matches(const StepRow *row, const char *filter)
{
    char text[256];
    (void)str_format(text, sizeof text, "%lld v%lld %s", (long long)row->step,
                     (long long)row->policy_version, word_of(row->outcome));
    const FilterField fields[] = {
        {"step", NULL, val_of((double)row->step, 0)},
        {"pol", NULL, val_of((double)row->policy_version, 0)},
        {"outcome", word_of(row->outcome), val_none()},
        {"reward", NULL, row->reward_mean}, {"eval", NULL, row->eval_reward_mean},
        {"samples", NULL, val_of((double)row->samples, 0)},
        {"took", NULL, val_of((double)(row->ended_us - row->started_us) / 1e6, 0)},
    };
    return filter_match(filter, text, fields, sizeof fields / sizeof fields[0]);
}

static bool event_matches(const Snapshot *snap, const EventRow *row, const char *filter)
{
    char text[768];
    (void)str_format(text, sizeof text, "%c %s %s", severity_letter(row->severity),
                     word_of(row->source), word_of(row->text));
    const FilterField fields[] = {
        {"source", word_of(row->source), val_none()},
        {"severity", severity_word(row->severity), val_none()},
        {"engine", snapshot_engine_name(snap, row->engine), val_none()},
    };
    return filter_match(filter, text, fields, sizeof fields / sizeof fields[0]);
}

static bool policy_matches(const PolicyRow *row, const char *filter)
{
    char text[512];
    const char *state = policy_state_name(row->state);
    (void)str_format(text, sizeof text, "v%lld %s %s %s", (long long)row->version, state,
                     word_of(row->digest), word_of(row->reason));
    const FilterField fields[] = {
        {"pol", NULL, val_of((double)row->version, 0)}, {"state", state, val_none()},
        {"step", NULL, val_of((double)row->step, 0)},
        {"engines", NULL, val_of((double)row->engines, 0)},
    };
    return filter_match(filter, text, fields, sizeof fields / sizeof fields[0]);
}

static bool command_matches(const CommandRow *row, const char *filter)
{
    char text[768];
    (void)str_format(text, sizeof text, "%s %s %s %s %s", word_of(row->who), word_of(row->what),
                     word_of(row->target), word_of(row->state), word_of(row->reason));
    const FilterField fields[] = {
        {"who", word_of(row->who), val_none()}, {"what", word_of(row->what), val_none()},
        {"target", word_of(row->target), val_none()}, {"state", word_of(row->state), val_none()},
    };
    return filter_match(filter, text, fields, sizeof fields / sizeof fields[0]);
}

bool model_row_matches(const Snapshot *snap, Pane pane, int i, const char *filter)
{
    if (!filter[0]) {
        return true;
    }
    switch (pane) {
    case PANE_ENGINES: return engine_matches(snap, &snap->engines.rows[i], filter);
    case PANE_TAIL: return tail_matches(snap, &snap->tail.rows[i], filter);
    case PANE_STEPS:
    case PANE_LEARNING: return step_matches(&snap->steps.rows[i], filter);
    case PANE_EVENTS: return event_matches(snap, &snap->events.rows[i], filter);
    case PANE_POLICIES: return policy_matches(&snap->policies.rows[i], filter);
    case PANE_COMMANDS: return command_matches(&snap->commands.rows[i], filter);
    case PANE_COUNT: break;
    }
    return false;
}

/* ---- order of engines ---------------------------------------------------------------------- */

/* Engines are numbered from 1 in the order they appear, so the first guess is nearly always it. */
const RowOrder *model_order_of(const Model *model, int64_t engine)
{
    if (engine > 0 && engine <= model->order_count && model->order[engine - 1].engine == engine) {
        return &model->order[engine - 1];
    }
    for (int i = 0; i < model->order_count; i++) {
        if (model->order[i].engine == engine) {
            return &model->order[i];
        }
    }
    return NULL;
}

RowOrder *model_order_find(Model *model, int64_t engine)
{
    const RowOrder *found = model_order_of(model, engine);
    return found ? &model->order[found - model->order] : NULL;
}

/* Severity counts for the order only after it has been different for three snapshots, so that
 * rows do not swap because of noise. In replay every moment stands for itself. */
void model_order(Model *model, const Snapshot *snap)
{
    for (size_t i = 0; i < snap->engines.count; i++) {
        const EngineRow *row = &snap->engines.rows[i];
        int rank = state_look(state_shown(row, snap->t_us))->rank;
        const AlertRow *alert = snapshot_engine_alert(snap, row->engine);
        if (alert) { /* with the broken, or with those that want attention */
            int least = alert->severity == SEVERITY_CRIT ? 0 : 1;
            rank = rank < least ? rank : least;
        }
        RowOrder *order = model_order_find(model, row->engine);
        if (!order) {
            if (model->order_count == MODEL_ENGINES_MAX) {
                continue;
            }
            order = &model->order[model->order_count++];
            *order = (RowOrder){row->engine, rank, rank, 0, false};
        } else if (rank == order->rank) {
            order->ticks = 0;
        } else {
            order->ticks = order->next_rank == rank ? order->ticks + 1 : 1;
            order->next_rank = rank;
        }
        if (order->ticks >= ORDER_TICKS || model_in_replay(model)) {
            order->rank = rank;
            order->ticks = 0;
        }
    }
}

/* ---- cursors ------------------------------------------------------------------------------- */

static void settle_cursor(Model *model, const Snapshot *snap, Pane pane)
{
    Cursor *cursor = &model->cursor[pane];
    int count = model->shown_count[pane];
    if (count == 0) {
        return;
    }
    if (pane == PANE_EVENTS && model->follow_events && model->sort[pane] == 0 &&
        !model->inverted[pane]) {
        cursor->set = false;
        cursor->index = count - 1;
    }
    int64_t follow = model->follow[pane];
    if (follow != 0) {
        cursor->id = follow;
        cursor->set = true;
    }
    if (cursor->set) {
        for (int i = 0; i < count; i++) {
            if (model_row_id(snap, pane, model->shown[pane][i]) == cursor->id) {
                cursor->index = i;
                return;
            }
        }
    }
    if (follow != 0) { /* nobody acts on a row that only took its place */
        model->follow[pane] = 0;
        model_say(model, ROLE_WARN, model->now_us, pane == PANE_TAIL
                  ? "followed sample %lld is not in flight any more; its step (3) lists it"
                  : "followed engine %lld is not in this log at this moment", (long long)follow);
    }
    cursor->index = cursor->index < count ? cursor->index : count - 1;
    cursor->id = model_row_id(snap, pane, model->shown[pane][cursor->index]);
    /* A cursor nobody has moved stays at its place; one that was set follows its row. Among
     * engines it is set at once: what a key would hit must not change under the eyes. */
    cursor->set = cursor->set || pane == PANE_ENGINES;
}

void model_lists(Model *model, const Snapshot *snap)
{
    for (int pane = 0; pane < PANE_COUNT; pane++) {
        int count = model_row_count(snap, (Pane)pane);
        int kept = 0;
        for (int i = 0; i < count; i++) {
            bool followed = model->follow[pane] != 0 &&
                            model_row_id(snap, (Pane)pane, i) == model->follow[pane];
            if (followed || model_row_matches(snap, (Pane)pane, i, model->filter[pane])) {
                model->shown[pane][kept++] = i;
            }
        }
        model->shown_count[pane] = kept;
        sort_rows(model, snap, (Pane)pane);
        if (pane == PANE_ENGINES) {
            group_rows(model, snap);
        }
        settle_cursor(model, snap, (Pane)pane);
    }
}

int model_place(const Model *model, const Snapshot *snap, Pane pane)
{
    (void)snap;
    int count = model->shown_count[pane];
    int index = model->cursor[pane].index;
    return count == 0 ? -1 : index < count ? index : count - 1;
}

void model_move(Model *model, const Snapshot *snap, Pane pane, int delta)
{
    Cursor *cursor = &model->cursor[pane];
    int count = model->shown_count[pane];
    if (count == 0) {
        return;
    }
    int64_t to = (int64_t)model_place(model, snap, pane) + delta;
    cursor->index = to < 0 ? 0 : to >= count ? count - 1 : (int)to;
    cursor->id = model_row_id(snap, pane, model->shown[pane][cursor->index]);
    cursor->set = true;
    model->follow[pane] = 0;
    if (pane == PANE_EVENTS) {
        model->follow_events = cursor->index == count - 1;
        if (cursor->index == 0 && snap->events.total > snap->events.count &&
            model->event_limit < MODEL_ROWS_MAX) {
            model->event_limit *= 2;
        }
    }
}

const EngineRow *model_engine(const Model *model, const Snapshot *snap)
{
    int place = model_place(model, snap, PANE_ENGINES);
    if (place < 0) {
        return NULL;
    }
    int index = model->shown[PANE_ENGINES][place];
    return index < (int)snap->engines.count ? &snap->engines.rows[index] : NULL;
}

int64_t model_sample(const Model *model, const Snapshot *snap)
{
    if (model->depth > 0) {
        const Detail *detail = &model->detail[model->depth - 1];
        return detail->kind == DETAIL_SAMPLE ? detail->id : 0;
    }
    int place = model_place(model, snap, PANE_TAIL);
    if (model->focus != PANE_TAIL || place < 0) {
        return 0;
    }
    return model_row_id(snap, PANE_TAIL, model->shown[PANE_TAIL][place]);
}
