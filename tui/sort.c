/* The order of every table: index 0 is the log's own (engines: by severity). The same keys sort
 * whatever table has the focus. Unknown numbers come last. */
#include "tui/model.h"
#include "tui/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SORT_WORD(name, word) word,
static const char *const engine_sorts[] = {TUI_SORTS(SORT_WORD) NULL};
static const char *const tail_sorts[] = {"age", "sample", "engine", "policy", "tokens", "try",
                                         NULL};
static const char *const step_sorts[] = {"newest", "reward", "eval", "samples", "took", NULL};
static const char *const event_sorts[] = {"time", "severity", "source", NULL};
static const char *const policy_sorts[] = {"newest", "state", "engines", NULL};
static const char *const command_sorts[] = {"newest", "who", "what", "state", NULL};

static const char *const *const sorts[PANE_COUNT] = {
    [PANE_ENGINES] = engine_sorts, [PANE_TAIL] = tail_sorts,         [PANE_STEPS] = step_sorts,
    [PANE_EVENTS] = event_sorts,   [PANE_POLICIES] = policy_sorts,   [PANE_LEARNING] = step_sorts,
    [PANE_COMMANDS] = command_sorts,
};

int sort_count(Pane pane)
{
    int count = 0;
    while (sorts[pane][count]) {
        count++;
    }
    return count;
}

const char *sort_name(Pane pane, int sort)
{
    return sort >= 0 && sort < sort_count(pane) ? sorts[pane][sort] : "";
}

int sort_by_name(Pane pane, Str name)
{
    for (int i = 0; sorts[pane][i]; i++) {
        if (str_equal_nocase(name, str_from(sorts[pane][i]))) {
            return i;
        }
    }
    return -1;
}

typedef struct SortItem {
    int index, place; /* place: where it stood, to keep equals in order */
    double key;       /* ascending */
    const char *name;
} SortItem;

static double largest_first(Val v)
{
    return v.known && isfinite(v.v) ? -v.v : INFINITY;
}

static double engine_key(const Model *model, const Snapshot *snap, const EngineRow *row)
{
    switch ((SortKey)model->sort[PANE_ENGINES]) {
    case SORT_SEVERITY: {
        const RowOrder *order = model_order_of(model, row->engine);
        return order ? order->rank : 9;
    }
    case SORT_NAME: return 0;
    case SORT_POLICY: return (double)row->policy_version;
    case SORT_TOKENS: return largest_first(row->tokens_per_s);
    case SORT_RUNNING: return largest_first(row->running);
    case SORT_WAITING: return largest_first(row->waiting);
    case SORT_KV: return largest_first(row->kv_usage);
    case SORT_ITL: return largest_first(row->itl_ms);
    case SORT_SEEN: return -(double)(snap->t_us - row->seen_us);
    case SORT_COUNT: break;
    }
    return 0;
}

static SortItem tail_item(const TailRow *row, int sort)
{
    static const char none[] = "";
    switch (sort) {
    case 1: return (SortItem){.key = (double)row->sample, .name = none};
    case 2: return (SortItem){.name = row->engine_name ? row->engine_name : none};
    case 3: return (SortItem){.key = (double)row->policy_version, .name = none};
    case 4: return (SortItem){.key = -(double)row->tokens, .name = none};
    case 5: return (SortItem){.key = -row->attempt, .name = none};
    default: return (SortItem){.name = none};
    }
}

static SortItem step_item(const StepRow *row, int sort)
{
    SortItem item = {.name = ""};
    switch (sort) {
    case 1: item.key = largest_first(row->reward_mean); break;
    case 2: item.key = largest_first(row->eval_reward_mean); break;
    case 3: item.key = -(double)row->samples; break;
    case 4: item.key = -(double)(row->ended_us - row->started_us); break;
    default: break;
    }
    return item;
}

static const char *text_of(const char *s)
{
    return s ? s : "";
}

static SortItem item_of(const Model *model, const Snapshot *snap, Pane pane, int i)
{
    int sort = model->sort[pane];
    switch (pane) {
    case PANE_ENGINES: {
        const EngineRow *row = &snap->engines.rows[i];
        return (SortItem){.key = engine_key(model, snap, row), .name = text_of(row->name)};
    }
    case PANE_TAIL: return tail_item(&snap->tail.rows[i], sort);
    case PANE_STEPS:
    case PANE_LEARNING: return step_item(&snap->steps.rows[i], sort);
    case PANE_EVENTS: {
        const EventRow *row = &snap->events.rows[i];
        return sort == 1 ? (SortItem){.key = -(double)row->severity, .name = ""}
                         : (SortItem){.name = text_of(row->source)};
    }
    case PANE_POLICIES: {
        const PolicyRow *row = &snap->policies.rows[i];
        return (SortItem){.key = sort == 1 ? (double)row->state : -(double)row->engines,
                          .name = ""};
    }
    case PANE_COMMANDS: {
        const CommandRow *row = &snap->commands.rows[i];
        return (SortItem){.name = text_of(sort == 1   ? row->who
                                          : sort == 2 ? row->what
                                                      : row->state)};
    }
    case PANE_COUNT: break;
    }
    return (SortItem){.name = ""};
}

static int compare_items(const void *a, const void *b)
{
    const SortItem *left = a;
    const SortItem *right = b;
    if (left->key < right->key || left->key > right->key) {
        return left->key < right->key ? -1 : 1;
    }
    int by_name = strcmp(left->name, right->name);
    return by_name ? by_name : left->place - right->place;
}

void sort_rows(Model *model, const Snapshot *snap, Pane pane)
{
    SortItem items[MODEL_ROWS_MAX];
    int *shown = model->shown[pane];
    int count = model->shown_count[pane];
    bool as_logged = pane != PANE_ENGINES && model->sort[pane] == 0;
    for (int i = 0; i < count; i++) {
        items[i] = as_logged ? (SortItem){.name = ""} : item_of(model, snap, pane, shown[i]);
        items[i].index = shown[i];
        items[i].place = i;
    }
    if (!as_logged) {
        qsort(items, (size_t)count, sizeof items[0], compare_items);
    }
    for (int i = 0; i < count; i++) {
        shown[i] = items[model->inverted[pane] ? count - 1 - i : i].index;
    }
}
