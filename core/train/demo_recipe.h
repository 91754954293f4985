/* The numbers behind demo_task.h; apart from the task, so that tests/bench/demo_tune.c can try
 * others. */
#ifndef ROLLTOP_TRAIN_DEMO_RECIPE_H
#define ROLLTOP_TRAIN_DEMO_RECIPE_H

#include "core/model/config.h"
#include "core/train/demo_task.h"
#include "core/train/trainer.h"

typedef struct DemoRecipe {
    int digits;
    int layers, hidden, heads, kv_heads, head_dim, ffn;
    int warmup_batch, warmup_examples;
    double warmup_lr, warmup_loss; /* ends when the mean loss of a token is this low */
    int warmup_max;                /* … or after so many steps, which is a failure */
    int train_prompts, eval_prompts;
} DemoRecipe;

DemoRecipe demo_recipe_default(void);
enum { DEMO_TEXT_MAX = 32 };
/* As demo_task_write and demo_task_warm_up, in this order and with the same seed. */
Err demo_recipe_write(const DemoRecipe *recipe, const char *dir, uint64_t seed, Fault *fault);
Err demo_recipe_warm_up(const DemoRecipe *recipe, const char *dir, uint64_t seed, int threads,
                        SftEnd *warmup, Fault *fault);

#endif
