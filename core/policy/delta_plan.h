/* When a version goes out as a delta, and which files of old versions are still needed. Pure.
 *
 * A run that publishes deltas keeps its policies in WORK/policies as
 *   v000007/                the complete checkpoint, as the trainer wrote it
 *   chain/weight_v000007    slime's published form: a delta on v6, or (a link) the complete one
 *   full/weight_v000007     a link to the complete one, for engines that cannot follow
 * Only the committed version's checkpoint always stays; an older kept version may exist as a delta
 * alone, and then whatever leads to it stays as well. */
#ifndef ROLLTOP_POLICY_DELTA_PLAN_H
#define ROLLTOP_POLICY_DELTA_PLAN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct DeltaPlan {
    int64_t version, committed; /* about to be published; serving, -1 none */
    int64_t chain, full;        /* newest version of the chain, newest complete one in it; -1 */
    int64_t full_every;         /* a complete version after that many; 1: always */
    int followers;              /* engines whose own copy is proved to hold `committed` */
    bool base_known;            /* the committed checkpoint's digest is known */
} DeltaPlan;

/* False: it goes out complete. slime's reader walks back version by version, so a delta leads on
 * from the version right before it: not after a roll-back, a refused version or a restart. */
bool delta_plan(const DeltaPlan *plan);

typedef struct DeltaKept { /* one version on disk */
    int64_t version;
    bool dir, delta;           /* complete checkpoint; delta on version - 1 */
    bool keep_dir, keep_delta; /* the answer */
} DeltaKept;

/* `kept` in rising order of version. Versions above committed - keep stay loadable, by their
 * checkpoint or by a complete one and the deltas from there. O(count * chain). */
void delta_retain(DeltaKept *kept, int count, int64_t committed, int64_t keep);

#endif
