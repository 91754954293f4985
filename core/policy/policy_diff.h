/* What changed between two kept policies, tensor by tensor. Reads every byte of both. */
#ifndef ROLLTOP_POLICY_POLICY_DIFF_H
#define ROLLTOP_POLICY_POLICY_DIFF_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct PolicyDiff { /* one tensor, or the sum of all (name "all tensors") */
    const char *name;       /* valid during the callback */
    int64_t elements, changed;
    double norm_a, norm_b, norm_change; /* L2 */
} PolicyDiff;

typedef void PolicyDiffRow(const PolicyDiff *row, void *user);

/* Calls `row` once a tensor, in file order, then once for the sum. ERR_FORMAT names the first
 * tensor that one of them lacks or has in another shape. */
Err policy_diff(const char *dir_a, const char *dir_b, PolicyDiffRow *row, void *user,
                Fault *fault);

#endif
