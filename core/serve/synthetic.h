/* The synthetic policy: tokens that tell which policy made them. Pure; used by the engine and by
 * whoever checks samples in tests. */
#ifndef ROLLTOP_SERVE_SYNTHETIC_H
#define ROLLTOP_SERVE_SYNTHETIC_H

#include <stddef.h>
#include <stdint.h>

enum { SYNTHETIC_VOCAB = 32000, SYNTHETIC_EOS = 2 };

/* Key of one request under one policy: hash of the digest text and the prompt ids. */
uint64_t synthetic_key(const char *policy_digest, const int32_t *prompt, size_t count);
/* Output token at `position` (0 = first output) and its log-prob; never EOS. */
int32_t synthetic_token(uint64_t key, int64_t position, float *logprob);
/* Output length the synthetic model would stop at by itself, in [1, max]. */
int64_t synthetic_length(uint64_t key, int64_t max);

#endif
