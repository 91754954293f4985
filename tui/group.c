/* Engines in groups (state, policy version, host), folded or not. The order inside stays the
 * table's; groups come in the order of their first row, so the worst is on top. A folded group
 * is one row that stands for all: marking it marks all, acting on it is refused. */
#include "tui/model.h"
#include "tui/state.h"

#include <string.h>

static void group_key(const Model *model, const Snapshot *snap, const EngineRow *row,
                      char out[MODEL_GROUP_NAME])
{
    const char *address = row->address ? row->address : "";
    const char *colon = strrchr(address, ':');
    out[0] = '\0';
    switch (model->group) {
    case GROUP_STATE: {
        const StateLook *look = state_look(state_shown(row, snap->t_us));
        (void)str_format(out, MODEL_GROUP_NAME, "%c %s", look->sign, look->word);
        break;
    }
    case GROUP_POLICY:
        if (row->policy_version < 0) {
            (void)str_format(out, MODEL_GROUP_NAME, "no policy");
        } else {
            (void)str_format(out, MODEL_GROUP_NAME, "v%lld", (long long)row->policy_version);
        }
        break;
    case GROUP_HOST:
        (void)str_format(out, MODEL_GROUP_NAME, "%.*s",
                         colon ? (int)(colon - address) : MODEL_GROUP_NAME - 1, address);
        break;
    case GROUP_NONE:
    case GROUP_BY_COUNT: break;
    }
}

static int fold_index(const Model *model, const char *key)
{
    for (int i = 0; i < model->folded_count; i++) {
        if (strcmp(model->folded[i], key) == 0) {
            return i;
        }
    }
    return -1;
}

/* The group of a key; a new one while there is room, then the last takes all that is left. */
static int find_group(Model *model, const char *key)
{
    for (int i = 0; i < model->group_count; i++) {
        if (strcmp(model->groups[i].key, key) == 0) {
            return i;
        }
    }
    bool last = model->group_count >= MODEL_GROUPS_MAX - 1;
    if (model->group_count == MODEL_GROUPS_MAX) {
        return MODEL_GROUPS_MAX - 1;
    }
    GroupLine *group = &model->groups[model->group_count];
    *group = (GroupLine){.first = -1};
    (void)str_format(group->key, sizeof group->key, "%s", last ? "others" : key);
    group->folded = fold_index(model, group->key) >= 0;
    return model->group_count++;
}

void group_rows(Model *model, const Snapshot *snap)
{
    int rows[MODEL_ROWS_MAX];
    short of[MODEL_ROWS_MAX];
    int *shown = model->shown[PANE_ENGINES];
    int count = model->shown_count[PANE_ENGINES];
    int kept = 0;
    model->group_count = 0;
    if (model->group == GROUP_NONE) {
        return;
    }
    memcpy(rows, shown, (size_t)count * sizeof rows[0]);
    for (int i = 0; i < count; i++) {
        char key[MODEL_GROUP_NAME];
        const EngineRow *row = &snap->engines.rows[rows[i]];
        group_key(model, snap, row, key);
        of[i] = (short)find_group(model, key);
        GroupLine *group = &model->groups[of[i]];
        group->members++;
        group->bad += state_look(state_shown(row, snap->t_us))->rank <= 2 ? 1 : 0;
        group->tokens += row->tokens_per_s.known ? row->tokens_per_s.v : 0;
    }
    for (int g = 0; g < model->group_count; g++) {
        GroupLine *group = &model->groups[g];
        for (int i = 0; i < count; i++) {
            if (of[i] == g && (group->first < 0 || !group->folded)) {
                group->first = group->first < 0 ? kept : group->first;
                shown[kept++] = rows[i];
            }
        }
    }
    model->shown_count[PANE_ENGINES] = kept;
}

const GroupLine *group_at(const Model *model, int place)
{
    const GroupLine *found = NULL;
    for (int i = 0; i < model->group_count && place >= 0; i++) {
        if (model->groups[i].first <= place) {
            found = &model->groups[i];
        }
    }
    return found;
}

bool group_holds(const Model *model, const Snapshot *snap, const GroupLine *group,
                 const EngineRow *row)
{
    char key[MODEL_GROUP_NAME];
    group_key(model, snap, row, key);
    return strcmp(key, group->key) == 0;
}

unsigned group_fold(Model *model, const Snapshot *snap, bool fold, int64_t now_us)
{
    const GroupLine *group = group_at(model, model_place(model, snap, PANE_ENGINES));
    if (model->focus != PANE_ENGINES || !group) {
        char key[KEY_NAME_MAX];
        keymap_key_name(model->config.keymap.keys[ACT_GROUP][0], key, sizeof key);
        model_say(model, ROLE_INFO, now_us, "no group here; %s groups the engines", key);
        return MODEL_DRAW;
    }
    int at = fold_index(model, group->key);
    if (fold && at < 0 && model->folded_count < MODEL_GROUPS_MAX) {
        (void)str_format(model->folded[model->folded_count++], MODEL_GROUP_NAME, "%s",
                         group->key);
    } else if (!fold && at >= 0) {
        model->folded_count--;
        memmove(model->folded[at], model->folded[model->folded_count], MODEL_GROUP_NAME);
    }
    model_lists(model, snap);
    return MODEL_DRAW;
}

unsigned group_next(Model *model, const Snapshot *snap)
{
    model->group = (GroupBy)((model->group + 1) % GROUP_BY_COUNT);
    model->folded_count = 0;
    model_lists(model, snap);
    return MODEL_DRAW;
}
