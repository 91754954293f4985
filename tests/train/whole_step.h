/* Objective and gradients of a whole step at once, where the trainer goes in passes. */
#ifndef ROLLTOP_TESTS_TRAIN_WHOLE_STEP_H
#define ROLLTOP_TESTS_TRAIN_WHOLE_STEP_H

#include "core/base/mem.h"
#include "core/train/losses.h"

#include <stdlib.h>

static inline Err whole_step(const LossConfig *config, const LossSample *samples, size_t count,
                             const float *const *advantages, float *const *dlogp,
                             float *const *dentropy, LossMetrics *metrics, Fault *fault)
{
    double *denominators = xcalloc(count, sizeof *denominators);
    double scale = 1.0;
    loss_scale(config, samples, count, denominators, &scale);
    Err err = loss_gradients_part(config, samples, count, denominators, scale, advantages, dlogp,
                                  dentropy, metrics, fault);
    free(denominators);
    return err;
}

#endif
