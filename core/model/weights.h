/* The weights of one policy in memory, immutable and shared by reference count: the engine swaps
 * a pointer at an update, requests in flight keep what they started with if told so. */
#ifndef ROLLTOP_MODEL_WEIGHTS_H
#define ROLLTOP_MODEL_WEIGHTS_H

#include "core/base/hash.h"
#include "core/model/config.h"

typedef struct Weights Weights;

/* Loads a Hugging Face directory. `compute` is the type weights are kept in for inference
 * (MODEL_F32 or MODEL_BF16); golden tolerances hold for F32. Checks that every tensor is present
 * with its shape, that none is surplus (rotary buffers and a tied lm_head excepted) and that all
 * elements are finite: ERR_FORMAT / ERR_NUMERIC name the first bad tensor. */
Err weights_load(const char *dir, ModelDtype compute, Weights **out, Fault *fault);
Weights *weights_ref(Weights *weights);
void weights_unref(Weights *weights);
const ModelConfig *weights_config(const Weights *weights);
/* XXH3-128 over names, shapes and the bytes of the file's tensors in spec order: equal for equal
 * checkpoints, whatever the sharding. This is a policy's digest everywhere in rolltop. */
const char *weights_digest(const Weights *weights);
/* Per-tensor XXH3-64 over the loaded bytes, index as model_tensor_spec. */
uint64_t weights_tensor_hash(const Weights *weights, int index);
size_t weights_bytes(const Weights *weights);

/* Seeded initialisation (normal 0.02, norms 1), F32: the start of a model from scratch. */
Err weights_init_random(const ModelConfig *config, uint64_t seed, const char *dir, Fault *fault);

#endif
