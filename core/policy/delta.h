/* Weight deltas in slime's format (disk_delta.py): what changed between two versions of a
 * checkpoint, tensor by tensor, as a zstd frame of XOR bytes or of positions and new bytes, with a
 * checksum of the complete new tensor. Directories are `weight_v000007` with an index that names
 * version, base, encoding and checksum.
 *
 * Unlike slime's applier, this one never changes a byte before the checksum of the result is
 * proved: a delta against another base is refused and the base stays as it was.
 * Speeds against zstd -1: tests/bench/delta.c. */
#ifndef ROLLTOP_POLICY_DELTA_H
#define ROLLTOP_POLICY_DELTA_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum DeltaEncoding { DELTA_XOR, DELTA_OVERWRITE } DeltaEncoding;
typedef enum DeltaSum { DELTA_SUM_XXH3_128, DELTA_SUM_ADLER32 } DeltaSum;
enum { DELTA_SUM_TEXT = 33 };

const char *delta_encoding_name(DeltaEncoding encoding);
/* ERR_UNSUPPORTED for blake3 and whatever else there is, by name. */
Err delta_encoding_parse(const char *name, DeltaEncoding *out, Fault *fault);
Err delta_sum_parse(const char *name, DeltaSum *out, Fault *fault);
void delta_sum(DeltaSum kind, const void *bytes, size_t n, char out[DELTA_SUM_TEXT]);

typedef struct DeltaFrame { /* what leads from one tensor's bytes to others */
    void *bytes; /* malloc'ed; NULL when nothing changed, and then there is no sum */
    size_t n;
    uint64_t changed; /* bytes that differ */
    char sum[DELTA_SUM_TEXT]; /* of the new bytes */
} DeltaFrame;

/* Working memory, some two megabytes, kept from one tensor to the next; one a thread. */
typedef struct DeltaScratch DeltaScratch;
DeltaScratch *delta_scratch_new(void);
void delta_scratch_free(DeltaScratch *scratch);

/* Every byte is brought from memory once, for comparing and summing both. Overwrite needs n <
 * 4 GiB (ERR_LIMIT). */
Err delta_encode(DeltaScratch *scratch, DeltaEncoding encoding, const void *old_bytes,
                 const void *new_bytes, size_t n, DeltaSum kind, DeltaFrame *frame, Fault *fault);
/* Patches `bytes` in place; `sum` becomes that of the result. ERR_FORMAT: not such a frame, or of
 * another length; `bytes` may then be partly changed, so callers patch a copy. */
Err delta_apply(DeltaScratch *scratch, DeltaEncoding encoding, const void *frame, size_t frame_n,
                void *bytes, size_t n, DeltaSum kind, char sum[DELTA_SUM_TEXT], Fault *fault);

/* Digests of the two checkpoints (model/digest.h), for readers of rolltop's: with base_digest a
 * puller proves its copy before it patches it. NULL: left out. slime's readers skip them. */
typedef struct DeltaProof {
    const char *base_digest, *digest;
} DeltaProof;

typedef struct DeltaStats {
    int64_t version, base;
    int tensors, changed_tensors;
    uint64_t bytes, changed_bytes, wire_bytes; /* density = changed_bytes / bytes */
} DeltaStats;

/* Writes PARENT/weight_v{version}: what leads from checkpoint old_dir to new_dir. Complete or not
 * at all. Both must hold the same tensors with the same shapes and types. `proof` may be NULL. */
Err delta_publish(const char *old_dir, const char *new_dir, const char *parent, int64_t version,
                  int64_t base, DeltaEncoding encoding, DeltaSum sum, const DeltaProof *proof,
                  DeltaStats *stats, Fault *fault);
/* PARENT/weight_v{version} as a link to the complete ../{name}; replaces what is there. */
Err delta_publish_full(const char *parent, int64_t version, const char *name, Fault *fault);

/* pull_weights: brings the checkpoint directory `local` to `target`, from full and delta versions
 * under `source`; version 0 is `model_dir`. State and lock lie in local/.weight_sync as slime has
 * them. A target at or below the state is a success without doing anything, as slime has it.
 * *applied: the version it holds then. */
Err delta_pull(const char *source, const char *model_dir, const char *local, int64_t target,
               int64_t *applied, Fault *fault);

/* The complete checkpoint of a version that is kept as a delta: CHAIN/weight_v… applied from the
 * newest complete one on, into `dir`, which must not exist; complete or not at all. The result's
 * digest is the published one (ERR_STATE: it is not). */
Err delta_build(const char *chain, int64_t version, const char *dir, Fault *fault);
/* Do deltas of `chain` lead from a complete version to this one? */
bool delta_reachable(const char *chain, int64_t version);

#endif
