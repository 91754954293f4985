#include "core/policy/delta_plan.h"

bool delta_plan(const DeltaPlan *plan)
{
    bool leads_on = plan->committed >= 0 && plan->version == plan->committed + 1 &&
                    plan->chain == plan->committed;
    bool complete_due = plan->full < 0 || plan->version - plan->full >= plan->full_every;
    return leads_on && plan->base_known && plan->followers > 0 && !complete_due;
}

/* The complete checkpoint from which deltas lead to kept[i]; i itself where it is no delta; -1:
 * a link is missing. */
static int chain_start(const DeltaKept *kept, int i)
{
    while (kept[i].delta) {
        if (i == 0 || kept[i - 1].version != kept[i].version - 1) {
            return -1;
        }
        i--;
    }
    return kept[i].dir ? i : -1;
}

void delta_retain(DeltaKept *kept, int count, int64_t committed, int64_t keep)
{
    for (int i = 0; i < count; i++) {
        kept[i].keep_dir = kept[i].keep_delta = false;
    }
    for (int i = 0; i < count; i++) {
        if (kept[i].version <= committed - keep) {
            continue;
        }
        int start = chain_start(kept, i);
        kept[i].keep_dir = kept[i].dir &&
                           (start < 0 || start == i || kept[i].version >= committed);
        for (int j = start; j >= 0 && j < i; j++) {
            kept[j].keep_dir = kept[j].keep_dir || j == start;
            kept[j + 1].keep_delta = true;
        }
    }
}
