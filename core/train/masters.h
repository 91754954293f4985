/* FP32 masters of parameters that are published in BF16, so that the policy which is trained is
 * the policy which is served: forward and backward see every parameter as BF16 holds it, AdamW
 * sees the master. Megatron keeps BF16 weights beside FP32 masters for the same reason; without
 * it the engine's log-probs and the trainer's drift apart by what rounding takes away.
 *
 * A master is its BF16 value and a signed rest of 16 bits, so the cost is 2 bytes a parameter. */
#ifndef ROLLTOP_TRAIN_MASTERS_H
#define ROLLTOP_TRAIN_MASTERS_H

#include "core/model/graph.h"

typedef struct Masters Masters;
/* The graph's parameters are masters and stay so until masters_hide. The graph is borrowed. */
Err masters_new(Graph *graph, Masters **out, Fault *fault);
void masters_free(Masters *masters);
/* Parameters: masters -> their BF16 values. A master halfway between two BF16 values, above the
 * even one, moves down by one FP32 unit (its rest would need a 17th bit). */
void masters_hide(Masters *masters);
/* Parameters: BF16 values -> masters. Both accept NULL (nothing is hidden). */
void masters_show(Masters *masters);

#endif
