/* AdamW on FP32 masters with global-norm clipping (golden-qwen3/README, "Clip", "AdamW"). */
#ifndef ROLLTOP_TRAIN_ADAMW_H
#define ROLLTOP_TRAIN_ADAMW_H

#include "core/model/graph.h"

typedef struct AdamW AdamW;
typedef struct AdamWConfig {
    double lr, beta1, beta2, eps, weight_decay, clip_grad; /* clip_grad 0: none */
    bool decay_1d;
} AdamWConfig;
AdamW *adamw_new(Graph *graph, const AdamWConfig *config);
void adamw_free(AdamW *adamw);
void adamw_set_lr(AdamW *adamw, double lr);
/* Checks every gradient for NaN/Inf first: ERR_NUMERIC names the tensor and nothing changed.
 * *grad_norm is before clipping. */
Err adamw_step(AdamW *adamw, double *grad_norm, Fault *fault);
/* Moments and step count to and from DIR/optimizer.safetensors. */
Err adamw_save(const AdamW *adamw, const char *dir, Fault *fault);
Err adamw_load(AdamW *adamw, const char *dir, Fault *fault);

#endif
