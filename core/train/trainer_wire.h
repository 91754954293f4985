/* What stands in the frames: configuration and batches to and from JSON heads and binary tails.
 * docs/trainer-protocol.md describes it for authors of other trainers. */
#ifndef ROLLTOP_TRAIN_TRAINER_WIRE_H
#define ROLLTOP_TRAIN_TRAINER_WIRE_H

#include "core/base/json.h"
#include "core/train/trainer.h"

enum { TRAINER_PROTOCOL = 1, TRAINER_SAMPLES_MAX = 1 << 20 };

/* Names as slime's flags have them; NULL-terminated, in enum order. */
const char *const *trainer_estimator_names(void);
const char *const *trainer_kl_names(void);
const char *const *trainer_loss_names(void);

/* A whole configuration owned by its reader. */
typedef struct WireConfig {
    TrainerConfig config;
    char *load_dir, *ref_dir, *teacher_dir, *dump_dir;
} WireConfig;
void wire_config_free(WireConfig *wire);
/* The value of "config" in hello. Unknown keys are refused by name, absent ones keep defaults. */
void wire_config_put(JsonOut *out, const TrainerConfig *config);
Err wire_config_get(const cJSON *object, WireConfig *out, Fault *fault);

/* Samples of a train request. The decoded ones point into the tail. */
typedef struct WireBatch {
    TrainSample *samples;
    size_t count;
} WireBatch;
void wire_batch_free(WireBatch *batch);
/* Head members (samples, tokens, responses, has_…) and the tail, malloc'ed. ERR_ARG names a
 * sample that cannot be sent, ERR_LIMIT a batch over the tail's bound. */
Err wire_batch_put(const TrainSample *samples, size_t count, JsonOut *head, unsigned char **tail,
                   size_t *tail_n, Fault *fault);
Err wire_batch_get(const cJSON *head, const unsigned char *tail, size_t tail_n, WireBatch *out,
                   Fault *fault);

/* Sequences of score and sft requests: i32 counts, i32 tokens, then u8 masks if `masked`. */
typedef struct WireSequences {
    const int32_t **tokens;
    const uint8_t **masks; /* NULL without */
    size_t *counts;
    size_t count, total;
} WireSequences;
void wire_sequences_free(WireSequences *sequences);
Err wire_sequences_put(const int32_t *const *tokens, const size_t *counts, size_t count,
                       const uint8_t *const *masks, JsonOut *head, unsigned char **tail,
                       size_t *tail_n, Fault *fault);
Err wire_sequences_get(const cJSON *head, const unsigned char *tail, size_t tail_n, bool masked,
                       WireSequences *out, Fault *fault);

#endif
