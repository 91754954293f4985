/* Private to policy: the tensors of a delta are independent, so they are coded and patched a few
 * at a time. */
#ifndef ROLLTOP_POLICY_DELTA_EACH_H
#define ROLLTOP_POLICY_DELTA_EACH_H

#include "core/policy/delta.h"

#include <stddef.h>

/* Touches nothing that another call touches; `scratch` is its thread's. */
typedef Err DeltaWork(void *context, DeltaScratch *scratch, size_t at, Fault *fault);

/* Calls `work` for each at < count, on two threads from 8 MiB of `sizes` (bytes of each) on, the
 * largest first. After a failure nothing new is begun; of several the first in order is told. */
Err delta_each(const size_t *sizes, size_t count, DeltaWork *work, void *context, Fault *fault);

#endif
