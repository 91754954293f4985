/* A sample that was made in several attempts: its tokens, stamps and text as one response. Pure. */
#ifndef ROLLTOP_ROLLOUT_PARTIAL_H
#define ROLLTOP_ROLLOUT_PARTIAL_H

#include "core/model/tokenizer.h"
#include "core/rollout/rollout.h"

typedef struct Partial { /* owned */
    int32_t *ids;
    float *logprobs;     /* NULL: the newer part came without */
    SampleSpan *spans;
    size_t count, span_count, kept;
    Text text;
} Partial;

/* What was kept, and behind it what the newest attempt gave (its spans count from 0). */
void partial_join(Partial *partial, const RolloutSample *kept, const RolloutAttemptEnd *newest);
void partial_free(Partial *partial);
/* Decodes the whole. An engine looks for stop strings in its own outputs only: one that begins in
 * what was kept ends the response here, at the token that completes it. True: it did, which is the
 * finish "stop". `stops` may be NULL, else NULL-terminated. */
bool partial_decode(Partial *partial, const Tokenizer *tokenizer, bool skip_special,
                    const char *const *stops);

#endif
