/* Rule-based rewards, as slime computes them (slime-semantics §5; reward-vectors.json). Pure. */
#ifndef ROLLTOP_ROLLOUT_REWARD_H
#define ROLLTOP_ROLLOUT_REWARD_H

#include "core/base/rng.h"
#include "core/base/str.h"
#include "core/rollout/label.h"

/* Types: random, math, f1, exact (rest of the line after the last "Answer:", trimmed, equal in
 * any case), digits (share of label positions that hold the right character; the partial credit
 * of the demo's task). Later: deepscaler, dapo, gpqa, remote_rm, plug-ins. */
typedef struct RewardInput {
    Str response, label, metadata; /* response.p or label.p NULL: null */
    LabelKind label_kind;          /* the label's JSON type; text when zeroed */
} RewardInput;

/* ERR_NOT_FOUND names the nearest known type. */
Err reward_check_type(const char *rm_type, Fault *fault);
/* `random` draws from `py` (Python's random.randint(0, 1)); may be NULL for other types. */
Err reward_score(const char *rm_type, const RewardInput *input, PyRandom *py, double *out,
                 Fault *fault);
void reward_list_types(Text *out); /* "digits, exact, f1, math, random" */

#endif
