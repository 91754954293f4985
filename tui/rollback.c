/* Key U on a policy, and ":update v17": every engine is brought to a version that is kept. Like
 * every change of the whole run it is armed first, shown with what it means, and confirmed by the
 * run's name. */
#include "tui/format.h"
#include "tui/model.h"

#include <stdio.h>

enum { LISTED_MAX = 6 };

/* Its artifact is on disk, and it is known to be sound. */
static bool kept(const PolicyRow *row)
{
    return row->state == POLICY_COMMITTED || row->state == POLICY_ROLLED_BACK;
}

static const char *why_not(const PolicyRow *row, int64_t serving)
{
    if (row->version == serving) {
        return "it serves; U on an engine, or ':update all', sends it again";
    }
    switch (row->state) {
    case POLICY_PUBLISHED:
    case POLICY_APPLYING: return "it is on its way";
    case POLICY_REJECTED: return "its artifact was refused";
    case POLICY_RETIRED: return "it is not kept any more";
    case POLICY_COMMITTED:
    case POLICY_ROLLED_BACK: break;
    }
    return NULL;
}

/* "; kept are v210, v209": what could be typed instead. */
static void list_kept(const Snapshot *snap, char *out, size_t size)
{
    size_t n = 0;
    int listed = 0;
    out[0] = '\0';
    for (size_t i = 0; i < snap->policies.count && listed < LISTED_MAX; i++) {
        const PolicyRow *row = &snap->policies.rows[i];
        if (kept(row) && row->version != snap->header.policy_version && n < size) {
            char version[FORMAT_MAX];
            int wrote = snprintf(out + n, size - n, "%s%s", listed++ ? ", " : "; kept are ",
                                 format_version(row->version, version));
            n += wrote > 0 ? (size_t)wrote : 0;
        }
    }
}

unsigned act_version(Model *model, const Snapshot *snap, int64_t version, int64_t now_us)
{
    Confirm confirm = {.verb = VERB_UPDATE, .all = true, .version = version};
    const char *why = act_locked(model);
    if (why) {
        return act_refuse(model, now_us, VERB_UPDATE, why);
    }
    char words[200];
    char number[FORMAT_MAX];
    char others[100];
    const PolicyRow *row = snapshot_policy(snap, version);
    list_kept(snap, others, sizeof others);
    if (snap->policies.count > 0) { /* else the list is not on the screen; the core looks again */
        why = row ? why_not(row, snap->header.policy_version) : "no such version is in the log";
    }
    if (why) {
        (void)str_format(words, sizeof words, "%s: %s%s", format_version(version, number), why,
                         others);
        return act_refuse(model, now_us, VERB_UPDATE, words);
    }
    return act_open(model, snap, &confirm, now_us);
}

int64_t act_policy(const Model *model, const Snapshot *snap)
{
    if (model->depth > 0) {
        const Detail *detail = &model->detail[model->depth - 1];
        return detail->kind == DETAIL_POLICY ? detail->id : 0;
    }
    int place = model_place(model, snap, PANE_POLICIES);
    if (model->focus != PANE_POLICIES || place < 0) {
        return 0;
    }
    return model_row_id(snap, PANE_POLICIES, model->shown[PANE_POLICIES][place]);
}

/* "v17", "17", "to 17": a version; 0: something else. */
int64_t act_version_word(Str word)
{
    int64_t version = 0;
    if (str_starts(word, STR("to "))) {
        word = str_trim(str_slice(word, 3, word.n));
    }
    if (str_starts(word, STR("v"))) {
        word = str_slice(word, 1, word.n);
    }
    return str_to_i64(word, &version) && version > 0 ? version : 0;
}
