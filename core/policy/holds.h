/* Do engines hold what they say? The evidence that a transaction's VERIFY takes, taken at any time
 * and without changing anything: reported version, checksum, scored canary. Pure. */
#ifndef ROLLTOP_POLICY_HOLDS_H
#define ROLLTOP_POLICY_HOLDS_H

#include <stdbool.h>
#include <stdint.h>

enum { HOLD_CANARY_MAX = 256, HOLD_DIGEST_MAX = 136, HOLD_WHY_MAX = 192 };

typedef struct Hold { /* one engine */
    bool asked;       /* it serves; else it is shown and not judged */
    bool same_digest; /* its checksum is the artifact's digest */
    char error[HOLD_WHY_MAX]; /* a check that failed or was not answered; empty: none */
    int64_t version;  /* -1: none said */
    char digest[HOLD_DIGEST_MAX]; /* empty: not offered */
    float logprobs[HOLD_CANARY_MAX];
    int logprob_count; /* 0: not scored */
    /* the verdict */
    bool holds;
    double off; /* largest difference of a canary's log-prob; -1: nothing to compare with */
    char why[HOLD_WHY_MAX]; /* empty: nothing speaks against it */
} Hold;

typedef struct HoldExpect {
    int64_t version;       /* -1: any, but the same for all */
    const char *digest;    /* of the artifact; NULL or empty: not known */
    const float *logprobs; /* of the trainer's forward pass, or of the artifact's; NULL */
    int logprob_count;
    double tolerance;
} HoldExpect;

/* How many of those asked do not hold the policy. Without an expectation engines are compared
 * with each other: with the value that most have, and with the canary that most are near to.
 * Checksums that are no artifact's digest are always compared so. O(count^2). */
int holds_judge(Hold *rows, int count, const HoldExpect *expect);

#endif
