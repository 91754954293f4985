/* What every reader of a checkpoint checks before it computes with it. */
#ifndef ROLLTOP_MODEL_CHECKPOINT_H
#define ROLLTOP_MODEL_CHECKPOINT_H

#include "core/model/config.h"
#include "core/model/safetensors.h"

/* Opens DIR's tensors and checks them against the configuration: every tensor present, of its
 * shape, F32, BF16 or F16, and none surplus but rotary buffers and a tied lm_head. The fault
 * names DIR and the first bad tensor. */
Err checkpoint_open(const char *dir, const ModelConfig *config, StSet **out, Fault *fault);
/* Tensor `index` of the specification, which checkpoint_open has seen. */
const StTensor *checkpoint_tensor(const StSet *set, const ModelConfig *config, int index);
/* Reads elements as float; ERR_NUMERIC names the tensor when one is not finite. */
Err checkpoint_read(const char *dir, const StTensor *tensor, size_t from, size_t count, float *out,
                    Fault *fault);

#endif
