#include "tui/model.h"
#include "tui/state.h"

#include <math.h>
#include <stdlib.h>
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

static bool row_matches(const Snapshot *snap, Pane pane, int i, const char *filter)
{
    char text[768];
    text[0] = '\0';
    if (!filter[0]) {
        return true;
    }
    switch (pane) {
    case PANE_ENGINES: return engine_matches(snap, &snap->engines.rows[i], filter);
    case PANE_TAIL: {
        const TailRow *row = &snap->tail.rows[i];
        (void)str_format(text, sizeof text, "%lld/%lld %s v%lld %s", (long long)row->step,
                         (long long)row->sample, word_of(row->engine_name),
                         (long long)row->policy_version, row->eval ? "eval" : "");
        break;
    }
    case PANE_STEPS:
    case PANE_LEARNING: {
        const StepRow *row = &snap->steps.rows[i];
        (void)str_format(text, sizeof text, "%lld v%lld %s", (long long)row->step,
                         (long long)row->policy_version, word_of(row->outcome));
        break;
    }
    case PANE_EVENTS: {
        const EventRow *row = &snap->events.rows[i];
        (void)str_format(text, sizeof text, "%c %s %s", severity_letter(row->severity),
                         word_of(row->source), word_of(row->text));
        break;
    }
    case PANE_POLICIES: {
        const PolicyRow *row = &snap->policies.rows[i];
        (void)str_format(text, sizeof text, "v%lld %s %s %s", (long long)row->version,
                         policy_state_name(row->state), word_of(row->digest),
                         word_of(row->reason));
        break;
    }
    case PANE_COMMANDS: {
        const CommandRow *row = &snap->commands.rows[i];
        (void)str_format(text, sizeof text, "%s %s %s %s %s", word_of(row->who),
                         word_of(row->what), word_of(row->target), word_of(row->state),
                         word_of(row->reason));
        break;
    }
    case PANE_COUNT: break;
    }
    return filter_match(filter, text, NULL, 0);
}

/* ---- order of engines ---------------------------------------------------------------------- */

RowOrder *model_order_find(Model *model, int64_t engine)
{
    for (int i = 0; i < model->order_count; i++) {
        if (model->order[i].engine == engine) {
            return &model->order[i];
        }
    }
    return NULL;
}

static int order_rank(const Model *model, int64_t engine)
{
    for (int i = 0; i < model->order_count; i++) {
        if (model->order[i].engine == engine) {
            return model->order[i].rank;
        }
    }
    return 9;
}

bool model_marked(const Model *model, int64_t engine)
{
    for (int i = 0; i < model->order_count; i++) {
        if (model->order[i].engine == engine) {
            return model->order[i].marked;
        }
    }
    return false;
}

int model_mark_count(const Model *model)
{
    int count = 0;
    for (int i = 0; i < model->order_count; i++) {
        count += model->order[i].marked ? 1 : 0;
    }
    return count;
}

/* Severity counts for the order only after it has been different for three snapshots, so that
 * rows do not swap because of noise. In replay every moment stands for itself. */
void model_order(Model *model, const Snapshot *snap)
{
    for (size_t i = 0; i < snap->engines.count; i++) {
        const EngineRow *row = &snap->engines.rows[i];
        int rank = state_look(state_shown(row, snap->t_us))->rank;
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

typedef struct SortItem {
    int index;
    double key; /* ascending */
    const char *name;
    int64_t engine;
} SortItem;

static double sort_key(const Model *model, const Snapshot *snap, const EngineRow *row)
{
    Val v = val_none();
    switch (model->sort) {
    case SORT_SEVERITY: return order_rank(model, row->engine);
    case SORT_NAME: return 0;
    case SORT_POLICY: return (double)row->policy_version;
    case SORT_TOKENS: v = row->tokens_per_s; break;
    case SORT_RUNNING: v = row->running; break;
    case SORT_WAITING: v = row->waiting; break;
    case SORT_KV: v = row->kv_usage; break;
    case SORT_ITL: v = row->itl_ms; break;
    case SORT_SEEN: return -(double)(snap->t_us - row->seen_us);
    case SORT_COUNT: break;
    }
    return v.known && isfinite(v.v) ? -v.v : INFINITY; /* largest first, unknown last */
}

static int compare_items(const void *a, const void *b)
{
    const SortItem *left = a;
    const SortItem *right = b;
    if (left->key < right->key || left->key > right->key) {
        return left->key < right->key ? -1 : 1;
    }
    int by_name = strcmp(left->name, right->name);
    return by_name ? by_name : left->engine < right->engine ? -1 : left->engine > right->engine;
}

static void sort_engines(Model *model, const Snapshot *snap)
{
    SortItem items[MODEL_ENGINES_MAX];
    int *shown = model->shown[PANE_ENGINES];
    int count = model->shown_count[PANE_ENGINES];
    if (count > MODEL_ENGINES_MAX) {
        count = MODEL_ENGINES_MAX;
        model->shown_count[PANE_ENGINES] = count;
    }
    for (int i = 0; i < count; i++) {
        const EngineRow *row = &snap->engines.rows[shown[i]];
        items[i] = (SortItem){shown[i], sort_key(model, snap, row), word_of(row->name),
                              row->engine};
    }
    qsort(items, (size_t)count, sizeof items[0], compare_items);
    for (int i = 0; i < count; i++) {
        shown[i] = items[model->sort_inverted ? count - 1 - i : i].index;
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
    if (pane == PANE_EVENTS && model->follow_events) {
        cursor->set = false;
        cursor->index = count - 1;
    }
    if (cursor->set) {
        for (int i = 0; i < count; i++) {
            if (model_row_id(snap, pane, model->shown[pane][i]) == cursor->id) {
                cursor->index = i;
                return;
            }
        }
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
            if (row_matches(snap, (Pane)pane, i, model->filter[pane])) {
                model->shown[pane][kept++] = i;
            }
        }
        model->shown_count[pane] = kept;
        if (pane == PANE_ENGINES) {
            sort_engines(model, snap);
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

bool model_acked(const Model *model, int64_t incident)
{
    for (int i = 0; i < model->acked_count; i++) {
        if (model->acked[i] == incident) {
            return true;
        }
    }
    return false;
}
