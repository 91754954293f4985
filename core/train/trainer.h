/* The trainer as the core sees it: a child process behind a bounded protocol of frames.
 *
 * Wire: every frame is u32 LE length of the head, u32 LE length of the tail, a JSON head
 * {"type": …, "id": N, …} and a binary tail (little-endian arrays in the order the head names).
 * Bounds: head 1 MiB, tail 1 GiB, one request in flight; progress frames between. The child
 * (`rolltop train --channel-fd 3`) is the built-in trainer; any program that speaks this is one.
 *   hello   -> hello   {protocol, trainer, pid, params, vocab}
 *   train   -> progress…, trained {metrics} ; batch in the tail
 *   sft     -> trained {metrics}           ; supervised step: tokens and masks in the tail
 *   score   -> scored                      ; log-probs of given sequences in the tail (canary)
 *   publish -> published {dir, digest, bytes}
 *   save    -> saved {dir}                 ; parameters and optimizer, for resume
 *   error   {code, sentence, hint, tensor} ; instead of the answer; the state is kept
 * docs/trainer-protocol.md says the rest. */
#ifndef ROLLTOP_TRAIN_TRAINER_H
#define ROLLTOP_TRAIN_TRAINER_H

#include "core/base/flags.h"
#include "core/net/child.h"
#include "core/train/adamw.h"
#include "core/train/losses.h"

typedef struct TrainerConfig { /* everything the child needs, passed in argv or hello */
    const char *load_dir;    /* checkpoint to start from (HF directory, or a saved state) */
    const char *ref_dir;     /* reference policy for KL; NULL: none */
    const char *teacher_dir; /* teacher of on-policy distillation; NULL: none */
    LossConfig loss;
    AdamWConfig adam;
    int threads;
    int64_t global_batch_size; /* sample executions per optimizer step; 0: whole batch */
    int max_tokens_per_pass;   /* micro-batch bound in tokens */
    bool bf16_weights;         /* passes see the weights as BF16 holds them (they are published so);
                                  the optimizer sees FP32 masters */
    const char *dump_dir;      /* where a numeric failure leaves its batch and state; NULL: $TMPDIR
                                  or /tmp */
    uint64_t seed;
} TrainerConfig;
TrainerConfig trainer_config_default(void); /* slime's defaults */

typedef struct TrainSample {
    const int32_t *tokens;      /* prompt + response */
    size_t prompt_count, response_count;
    const float *rollout_logp;  /* [response_count]; NULL: unknown, then for the whole batch */
    const uint8_t *mask;        /* [response_count]; NULL: all ones */
    double reward;
    int64_t rollout_id;
} TrainSample;

typedef struct TrainerMetric {
    char name[64];
    double value;
} TrainerMetric;

enum { TRAINER_METRICS_MAX = 64 };
typedef struct TrainerReply { /* valid during the callback */
    Err err;
    Fault fault;
    const TrainerMetric *metrics; /* trained */
    int metric_count;
    const char *dir, *digest;     /* published, saved */
    int64_t bytes;
    const float *logprobs;        /* scored: [sum of (len-1)] */
    size_t logprob_count;
    int64_t took_us;
} TrainerReply;

typedef struct Trainer Trainer; /* core side, on a libuv loop */
typedef void (*TrainerReplied)(const TrainerReply *reply, void *user);
typedef struct TrainerEvents {
    void (*on_ready)(void *user);
    void (*on_line)(bool is_stderr, Str line, void *user);
    void (*on_progress)(const char *what, double share, void *user);
    /* The process ended; a request in flight is answered with ERR_NET first. */
    /* … `why`: ERR_NET, or as the child refused its checkpoint (ERR_FORMAT: that is damaged). */
    void (*on_exit)(const char *how, Err why, void *user);
    void *user;
} TrainerEvents;

/* `command`: argv of the trainer, NULL = this binary's `train`. The program must ignore SIGPIPE:
 * libuv writes without MSG_NOSIGNAL, and a child may die before it is greeted. A trainer that
 * cannot load its checkpoint ends, and on_exit says why. */
Err trainer_start(uv_loop_t *loop, const char *const *command, const TrainerConfig *config,
                  const TrainerEvents *events, Trainer **out, Fault *fault);
void trainer_free(Trainer *trainer); /* stops the child, bounded */
int trainer_pid(const Trainer *trainer);
Err trainer_train(Trainer *trainer, int64_t step, const TrainSample *samples, size_t count,
                  TrainerReplied on_done, void *user, Fault *fault);
Err trainer_score(Trainer *trainer, const int32_t *const *sequences, const size_t *counts,
                  size_t count, TrainerReplied on_done, void *user, Fault *fault);
Err trainer_publish(Trainer *trainer, ModelDtype dtype, const char *dir, TrainerReplied on_done,
                    void *user, Fault *fault);
Err trainer_save(Trainer *trainer, const char *dir, TrainerReplied on_done, void *user,
                 Fault *fault);

/* The child: `rolltop train …`; returns the exit status. */
int trainer_child_main(int argc, char **argv);
void trainer_child_flags(FlagVisit *visit, void *to);

/* Supervised training of the checkpoint in `dir`, in place and in this process: makes the demo's
 * base. Takes `steps` steps of `batch` examples drawn from the seed, or fewer: it ends with the
 * first step whose loss, the mean over learned tokens before the step, is at most `loss_goal`. */
typedef struct SftExample {
    int32_t *tokens;
    int count, loss_from; /* tokens, and the first of them that is learned */
} SftExample;
typedef struct SftPlan {
    int steps, batch, threads;
    double loss_goal; /* 0: none */
    uint64_t seed;
    AdamWConfig adam;
} SftPlan;
typedef struct SftEnd {
    int steps;
    double loss; /* of the last step */
} SftEnd;
Err trainer_sft(const char *dir, const SftExample *examples, size_t count, const SftPlan *plan,
                SftEnd *end, Fault *fault);

#endif
