#include "core/rollout/spans.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void trail_add(PolicyTrail *trail, int64_t version)
{
    if (trail->count > 0 && trail->versions[trail->count - 1] == version) {
        return;
    }
    if (trail->count == trail->capacity) {
        trail->capacity = trail->capacity * 2 + 4;
        trail->versions = xrealloc(trail->versions, (size_t)trail->capacity,
                                   sizeof *trail->versions);
    }
    trail->versions[trail->count++] = version;
}

void trail_free(PolicyTrail *trail)
{
    free(trail->versions);
    *trail = (PolicyTrail){0};
}

int64_t trail_newest(const PolicyTrail *trail)
{
    assert(trail->count > 0);
    return trail->versions[trail->count - 1];
}

int trail_age(const PolicyTrail *trail, int64_t version)
{
    for (int i = trail->count - 1; i >= 0; i--) {
        if (trail->versions[i] == version) {
            return trail->count - 1 - i;
        }
    }
    return -1;
}

/* The first place from `from` on at which that version served; -1: it served no more. */
static int served_from(const PolicyTrail *trail, int from, int64_t version)
{
    for (int i = from; i < trail->count; i++) {
        if (trail->versions[i] == version) {
            return i;
        }
    }
    return -1;
}

static bool span_allowed(const SpanRule *rule, const SampleSpan *span, int *place,
                         char reason[96])
{
    int from = span->from;
    int to = span->to;
    long long version = span->policy_version;
    if (version < 0) {
        (void)str_format(reason, 96, "tokens %d to %d carry no policy version", from, to);
        return false;
    }
    int age = trail_age(rule->trail, version);
    if (age < 0) {
        (void)str_format(reason, 96, "tokens %d to %d were made by policy %lld, the batch's is "
                         "%lld", from, to, version, (long long)trail_newest(rule->trail));
        return false;
    }
    if (age > rule->max_age) {
        (void)str_format(reason, 96, "tokens %d to %d were made by policy %lld, %d updates ago, "
                         "allowed %lld", from, to, version, age, (long long)rule->max_age);
        return false;
    }
    bool fresh = (size_t)span->to > rule->kept;
    int least = fresh && rule->begun > *place ? rule->begun : *place;
    *place = served_from(rule->trail, least, version);
    if (*place < 0) {
        (void)str_format(reason, 96, "tokens %d to %d were made by policy %lld after it was "
                         "replaced", from, to, version);
        return false;
    }
    return true;
}

bool spans_allowed(const SpanRule *rule, const SampleSpan *spans, size_t span_count, size_t tokens,
                   char reason[96])
{
    int64_t at = 0;
    int place = 0;
    for (size_t i = 0; i < span_count; i++) {
        if (spans[i].from != at || spans[i].to <= spans[i].from) {
            (void)str_format(reason, 96, "span %zu begins at token %d, not at %lld", i,
                             spans[i].from, (long long)at);
            return false;
        }
        at = spans[i].to;
        if (!span_allowed(rule, &spans[i], &place, reason)) {
            return false;
        }
    }
    if (at != (int64_t)tokens) {
        (void)str_format(reason, 96, "policy versions cover %lld of %zu tokens", (long long)at,
                         tokens);
        return false;
    }
    return true;
}

int64_t spans_mask_older(const SampleSpan *spans, size_t count, int64_t policy, uint8_t *mask)
{
    int64_t older = 0;
    for (size_t i = 0; i < count; i++) {
        const SampleSpan *span = &spans[i];
        if (span->policy_version != policy) {
            older += span->to - span->from;
            if (mask) {
                memset(mask + span->from, 0, (size_t)(span->to - span->from));
            }
        }
    }
    return older;
}
