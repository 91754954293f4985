/* Marks: engines and samples in flight that an action takes together. A mark belongs to the
 * identity, not to the row; a sample's mark goes when the sample is no longer in flight. */
#include "tui/model.h"

#include <string.h>

bool mark_has(const Model *model, Pane pane, int64_t id)
{
    if (pane == PANE_ENGINES) {
        const RowOrder *found = model_order_of(model, id);
        return found && found->marked;
    }
    for (int i = 0; i < model->marked_samples && pane == PANE_TAIL; i++) {
        if (model->marked_sample[i] == id) {
            return true;
        }
    }
    return false;
}

int mark_count(const Model *model, Pane pane)
{
    int count = pane == PANE_TAIL ? model->marked_samples : 0;
    for (int i = 0; i < model->order_count && pane == PANE_ENGINES; i++) {
        count += model->order[i].marked ? 1 : 0;
    }
    return count;
}

bool mark_none(Model *model)
{
    bool any = mark_count(model, PANE_ENGINES) + mark_count(model, PANE_TAIL) > 0;
    for (int i = 0; i < model->order_count; i++) {
        model->order[i].marked = false;
    }
    model->marked_samples = 0;
    return any;
}

/* False: there is no room for one more. */
static bool set_mark(Model *model, Pane pane, int64_t id, bool on)
{
    RowOrder *order = pane == PANE_ENGINES ? model_order_find(model, id) : NULL;
    if (order) {
        order->marked = on;
    }
    if (pane != PANE_TAIL || id <= 0 || mark_has(model, pane, id) == on) {
        return true;
    }
    if (on && model->marked_samples == MODEL_TARGETS_MAX) {
        return false;
    }
    if (on) {
        model->marked_sample[model->marked_samples++] = id;
        return true;
    }
    int kept = 0;
    for (int i = 0; i < model->marked_samples; i++) {
        if (model->marked_sample[i] != id) {
            model->marked_sample[kept++] = model->marked_sample[i];
        }
    }
    model->marked_samples = kept;
    return true;
}

void mark_observe(Model *model, const Snapshot *snap)
{
    for (int i = model->marked_samples - 1; i >= 0 && snap->ready; i--) {
        if (!snapshot_tail(snap, model->marked_sample[i])) {
            (void)set_mark(model, PANE_TAIL, model->marked_sample[i], false);
        }
    }
}

static int64_t id_at(const Model *model, const Snapshot *snap, Pane pane, int place)
{
    return model_row_id(snap, pane, model->shown[pane][place]);
}

/* Says so where nothing can be marked. */
static bool markable(Model *model, const Snapshot *snap, int64_t now_us)
{
    if (model->focus != PANE_ENGINES && model->focus != PANE_TAIL) {
        model_say(model, ROLE_INFO, now_us, "marks are for engines (1) and samples (2)");
        return false;
    }
    return model_place(model, snap, model->focus) >= 0;
}

static void say_full(Model *model, int64_t now_us)
{
    model_say(model, ROLE_WARN, now_us, "%d samples are marked; an action takes no more",
              MODEL_TARGETS_MAX);
}

/* A folded group is marked as a whole, but only what its filter lets through. */
static void mark_group(Model *model, const Snapshot *snap, const GroupLine *group, bool set)
{
    for (size_t i = 0; i < snap->engines.count; i++) {
        const EngineRow *row = &snap->engines.rows[i];
        if (group_holds(model, snap, group, row) &&
            model_row_matches(snap, PANE_ENGINES, (int)i, model->filter[PANE_ENGINES])) {
            (void)set_mark(model, PANE_ENGINES, row->engine, set);
        }
    }
}

unsigned mark_row(Model *model, const Snapshot *snap, int64_t now_us)
{
    Pane pane = model->focus;
    if (!markable(model, snap, now_us)) {
        return MODEL_DRAW;
    }
    int place = model_place(model, snap, pane);
    const GroupLine *group = pane == PANE_ENGINES ? group_at(model, place) : NULL;
    int64_t id = id_at(model, snap, pane, place);
    bool set = !mark_has(model, pane, id);
    if (!set_mark(model, pane, id, set)) {
        say_full(model, now_us);
        return MODEL_DRAW;
    }
    if (group && group->folded) {
        mark_group(model, snap, group, set);
    }
    model_move(model, snap, pane, 1);
    return MODEL_DRAW;
}

/* All rows between the cursor and the nearest mark above or below it. */
unsigned mark_range(Model *model, const Snapshot *snap, int64_t now_us)
{
    Pane pane = model->focus;
    if (!markable(model, snap, now_us)) {
        return MODEL_DRAW;
    }
    int count = model->shown_count[pane];
    int place = model_place(model, snap, pane);
    int from = -1;
    for (int n = 1; n < count && from < 0; n++) {
        for (int dir = -1; dir <= 1; dir += 2) {
            int at = place + dir * n;
            bool inside = at >= 0 && at < count && from < 0;
            from = inside && mark_has(model, pane, id_at(model, snap, pane, at)) ? at : from;
        }
    }
    int first = from < 0 || from > place ? place : from;
    int last = from > place ? from : place;
    bool room = true;
    for (int i = first; i <= last && i < count && room; i++) {
        room = set_mark(model, pane, id_at(model, snap, pane, i), true);
    }
    if (!room) {
        say_full(model, now_us);
    }
    return MODEL_DRAW;
}

unsigned mark_all(Model *model, const Snapshot *snap, int64_t now_us)
{
    Pane pane = model->focus;
    if (!markable(model, snap, now_us)) {
        return MODEL_DRAW;
    }
    bool set = mark_count(model, pane) == 0;
    bool room = true;
    for (int i = 0; i < model->shown_count[pane] && room; i++) {
        room = set_mark(model, pane, id_at(model, snap, pane, i), set);
    }
    if (!room) {
        say_full(model, now_us);
    }
    return MODEL_DRAW;
}
