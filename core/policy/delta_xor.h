/* The XOR payload of a delta: a zstd frame of new XOR old, made and applied at about the speed of
 * memory where little has changed. Shared by delta.c; nobody else includes it. */
#ifndef ROLLTOP_POLICY_DELTA_XOR_H
#define ROLLTOP_POLICY_DELTA_XOR_H

#include "core/policy/delta.h"

/* As delta_encode; *frame is empty. */
Err delta_xor_encode(DeltaScratch *scratch, const unsigned char *a, const unsigned char *b,
                     size_t n, DeltaSum kind, DeltaFrame *frame, Fault *fault);
/* As delta_apply. The frame must state n as its size. ERR_FORMAT: `bytes` may be partly changed.
 * Bytes that do not change are read and not written: a mapped file's pages stay clean. */
Err delta_xor_apply(DeltaScratch *scratch, const void *frame, size_t frame_n,
                    unsigned char *bytes, size_t n, DeltaSum kind, char sum[DELTA_SUM_TEXT],
                    Fault *fault);

/* ERR_FORMAT for either encoding: what is wrong with its frame. */
Err delta_damaged(Fault *fault, const char *words);

#endif
