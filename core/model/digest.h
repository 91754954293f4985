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
/* One tensor of it: head and raw bytes go into `hasher`, the bytes alone into `bytes` (may be
 * NULL). ERR_IO names the tensor that cannot be read. */
Err digest_add_tensor(Hasher *hasher, Hasher64 *bytes, const StTensor *tensor, Fault *fault);

#endif
