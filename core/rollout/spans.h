/* The policies that one batch is generated under, in the order in which they served, and what that
 * lets a sample hold: every span by a policy of the batch, none older than allowed, none by a
 * policy that had been replaced before. Pure. */
#ifndef ROLLTOP_ROLLOUT_SPANS_H
#define ROLLTOP_ROLLOUT_SPANS_H

#include "store/store.h"

typedef struct PolicyTrail { /* the newest is the batch's own policy */
    int64_t *versions;
    int count, capacity;
} PolicyTrail;

/* The fleet holds `version` from now on; the same as before changes nothing. */
void trail_add(PolicyTrail *trail, int64_t version);
void trail_free(PolicyTrail *trail);
int64_t trail_newest(const PolicyTrail *trail);
/* Updates since that version was replaced last: 0 the present one; -1 never one of this batch. */
int trail_age(const PolicyTrail *trail, int64_t version);

typedef struct SpanRule {
    const PolicyTrail *trail;
    int64_t max_age;  /* in updates */
    size_t kept;      /* tokens before this one come from earlier attempts … */
    int begun;        /* … the others from policies at this place of the trail or later */
} SpanRule;

/* Do the spans cover `tokens` without a gap, by allowed policies in their order? False: why not. */
bool spans_allowed(const SpanRule *rule, const SampleSpan *spans, size_t span_count, size_t tokens,
                   char reason[96]);
/* Sets the mask of every token that another policy made to 0; `mask` may be NULL. Their number. */
int64_t spans_mask_older(const SampleSpan *spans, size_t count, int64_t policy, uint8_t *mask);

#endif
