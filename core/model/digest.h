/* The digest of a checkpoint: a policy's identity everywhere in rolltop. */
#ifndef ROLLTOP_MODEL_DIGEST_H
#define ROLLTOP_MODEL_DIGEST_H

#include "core/base/hash.h"
#include "core/model/config.h"
#include "core/model/safetensors.h"

/* XXH3-128 over, for each tensor in model_tensor_spec order: name and NUL, dtype name and NUL,
 * rank (u32 LE), dimensions (i64 LE each), the raw bytes of the file. Equal for equal checkpoints,
 * whatever the sharding. ERR_NOT_FOUND names the first missing tensor. Reads every byte. */
Err checkpoint_digest(const StSet *set, const ModelConfig *config, char out[DIGEST_TEXT],
                      Fault *fault);
/* The same, one tensor at a time, for callers that go through the bytes anyway: what precedes the
 * raw bytes of one tensor in the hash. */
void digest_add_head(Hasher *hasher, const StTensor *tensor);

#endif
