/* Check of a published checkpoint before any engine is paused: every tensor present, right shape
 * and dtype, finite, digest computed, norm jump within bound against the last committed one. */
#ifndef ROLLTOP_POLICY_ARTIFACT_H
#define ROLLTOP_POLICY_ARTIFACT_H

#include "core/base/hash.h"
#include "core/model/config.h"

typedef struct Artifact {
    char digest[DIGEST_TEXT]; /* as weights_digest */
    int64_t bytes;
    int tensors;
    double *norms;            /* L2 per tensor of model_tensor_spec order; malloc'ed */
    ModelConfig config;
} Artifact;

/* `previous` may be NULL; `norm_jump` = largest allowed ratio of a tensor's norm to the previous
 * one, up or down (0: 4.0). ERR_NUMERIC: not finite, or a jump; names the tensor. ERR_STATE: files
 * changed while they were read. Reads every byte twice, from 4 MiB on in two threads: one hashes
 * (XXH3-128, one chain), one sums squares. Wall about 1.5 times that of reading the files once
 * from the page cache, CPU 2.5 to 3 times (bench_artifact). *out is empty on failure and may be
 * freed. */
Err artifact_check(const char *dir, const Artifact *previous, double norm_jump, Artifact *out,
                   Fault *fault);
void artifact_free(Artifact *artifact);

#endif
