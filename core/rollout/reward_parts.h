/* The reward types, one function each; private to core/rollout. The rules and their numbers are
 * those of slime-semantics section 5. */
#ifndef ROLLTOP_ROLLOUT_REWARD_PARTS_H
#define ROLLTOP_ROLLOUT_REWARD_PARTS_H

#include "core/rollout/reward.h"

/* Content of the last \boxed{…} (5.3 step 2); false: none. */
bool reward_boxed(Str text, Str *out);

Err reward_math(const RewardInput *input, double *out, Fault *fault);
Err reward_deepscaler(const RewardInput *input, double *out, Fault *fault);
Err reward_dapo(const RewardInput *input, double *out, Fault *fault);
Err reward_f1(const RewardInput *input, double *out, Fault *fault);
Err reward_gpqa(const RewardInput *input, double *out, Fault *fault);
Err reward_exact(const RewardInput *input, double *out, Fault *fault);
Err reward_digits(const RewardInput *input, double *out, Fault *fault);

#endif
