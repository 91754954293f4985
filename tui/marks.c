/* Marks: rows that an action, a copy or a comparison takes together. A mark belongs to the
 * identity, not to the row; a sample's mark goes when the sample is no longer in flight. */
#include "tui/model.h"

#include <string.h>

/* Timeline and learning show the same rows. */
static Pane owner(Pane pane)
{
    return pane == PANE_LEARNING ? PANE_STEPS : pane;
}

bool mark_has(const Model *model, Pane pane, int64_t id)
{
    if (pane == PANE_ENGINES) {
        const RowOrder *found = model_order_of(model, id);
        return found && found->marked;
    }
    const MarkList *list = &model->marks[owner(pane)];
    for (int i = 0; i < list->count; i++) {
        if (list->ids[i] == id) {
            return true;
        }
    }
    return false;
}

int mark_count(const Model *model, Pane pane)
{
    int count = pane == PANE_ENGINES ? 0 : model->marks[owner(pane)].count;
    for (int i = 0; i < model->order_count && pane == PANE_ENGINES; i++) {
        count += model->order[i].marked ? 1 : 0;
    }
    return count;
}

bool mark_none(Model *model)
{
    bool any = false;
    for (int pane = 0; pane < PANE_COUNT; pane++) {
        any = any || mark_count(model, (Pane)pane) > 0;
        model->marks[pane].count = 0;
    }
    for (int i = 0; i < model->order_count; i++) {
        model->order[i].marked = false;
    }
    return any;
}

/* False: there is no room for one more. */
static bool set_mark(Model *model, Pane pane, int64_t id, bool on)
{
    MarkList *list = &model->marks[owner(pane)];
    RowOrder *order = pane == PANE_ENGINES ? model_order_find(model, id) : NULL;
    if (pane == PANE_ENGINES || mark_has(model, pane, id) == on) {
        if (order) {
            order->marked = on;
        }
        return true;
    }
    if (on && list->count == MODEL_TARGETS_MAX) {
        return false;
    }
    if (on) {
        list->ids[list->count++] = id;
        return true;
    }
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        if (list->ids[i] != id) {
            list->ids[kept++] = list->ids[i];
        }
    }
    list->count = kept;
    return true;
}

void mark_observe(Model *model, const Snapshot *snap)
{
    const MarkList *list = &model->marks[PANE_TAIL];
    for (int i = list->count - 1; i >= 0 && snap->ready; i--) {
        if (!snapshot_tail(snap, list->ids[i])) {
            (void)set_mark(model, PANE_TAIL, list->ids[i], false);
        }
    }
}

static int64_t id_at(const Model *model, const Snapshot *snap, Pane pane, int place)
{
    return model_row_id(snap, pane, model->shown[pane][place]);
}

static void say_full(Model *model, int64_t now_us)
{
    model_say(model, ROLE_WARN, now_us, "%d rows are marked here; there is room for no more",
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
    if (model_place(model, snap, pane) < 0) {
        return 0;
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
    if (model_place(model, snap, pane) < 0) {
        return 0;
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
    if (model_place(model, snap, pane) < 0) {
        return 0;
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

bool mark_pair(const Model *model, const Snapshot *snap, int64_t out[2], const char **why)
{
    Pane pane = model->focus;
    int place = model_place(model, snap, pane);
    int found = 0;
    *why = "put the cursor on an engine (1), a step (3) or a policy (5), or mark two";
    if (place < 0 || pane == PANE_TAIL || pane == PANE_EVENTS || pane == PANE_COMMANDS) {
        return false;
    }
    for (int i = 0; i < model_row_count(snap, pane); i++) {
        int64_t id = model_row_id(snap, pane, i);
        if (mark_has(model, pane, id) && found < 2) {
            out[found++] = id;
        }
    }
    *why = "two rows are compared; more are marked (Esc takes the marks away)";
    if (mark_count(model, pane) > 2) {
        return false;
    }
    int64_t here = model_row_id(snap, pane, model->shown[pane][place]);
    if (found == 1 && out[0] != here) {
        out[found++] = here;
    }
    if (found == 0) {
        out[found++] = here;
        for (int i = 0; i + 1 < model_row_count(snap, pane) && pane != PANE_ENGINES; i++) {
            if (model_row_id(snap, pane, i) == here) { /* newest first: the next is older */
                out[found++] = model_row_id(snap, pane, i + 1);
            }
        }
    }
    *why = pane == PANE_ENGINES ? "mark one engine (Space) and put the cursor on another"
                                : "there is none before it to compare it with";
    if (found == 2 && out[0] > out[1]) { /* the older one stands left */
        int64_t swap = out[0];
        out[0] = out[1];
        out[1] = swap;
    }
    return found == 2;
}
