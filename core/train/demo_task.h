/* The demo's task: a verifiable one with multi-token answers. Makes, from a seed and within
 * seconds: a base checkpoint (HF directory with config.json, tokenizer.json, model.safetensors) by
 * a short supervised warm-up, and prompt files for training and for held-out evaluation that share
 * no prompt. Its rewards are normal --rm-types. */
#ifndef ROLLTOP_TRAIN_DEMO_TASK_H
#define ROLLTOP_TRAIN_DEMO_TASK_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct DemoTask { /* recommended settings that go with the files; static strings */
    const char *rm_type, *eval_rm_type, *input_key, *label_key;
    int global_batch_size; /* several optimizer steps a rollout */
    int rollout_batch_size, n_samples_per_prompt, max_response_len, eval_interval;
    int max_steps;          /* the bound within which it must have learned */
    double lr, reached;     /* eval reward that counts as learned */
    bool std_normalization; /* off: steps get smaller as the groups agree */
} DemoTask;

DemoTask demo_task_default(void);
/* Writes dir/base/…, dir/train.jsonl, dir/eval.jsonl, within milliseconds: whatever is checked of
 * files and model can be checked now. Its weights are random yet. Same seed, same bytes. */
Err demo_task_write(const char *dir, uint64_t seed, Fault *fault);
/* Gives the written model its warm-up, which takes a second; `seed` as it was written with. */
Err demo_task_warm_up(const char *dir, uint64_t seed, int threads, Fault *fault);

#endif
