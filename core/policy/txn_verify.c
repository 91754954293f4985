/* The judgement of VERIFY. Three pieces of evidence per engine: the version it reports, its own
 * checksum where it offers one, and a scored canary. A version that moved without its weights is
 * found by checksum and canary; weights that moved without their version, by the version.
 *
 * Checksums are only comparable between engines of one layout, so the most frequent value is the
 * reference and who differs from it is odd; without a majority everybody who has one is odd.
 * Canaries are compared with the trainer's forward pass when it is known, else with the engine
 * whose values are nearest to all others (the medoid). O(members^2) only without the trainer's. */
#include "core/policy/txn_private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void mark_odd(Member *member, const char *why)
{
    if (!member->failed) {
        member->failed = true;
        snprintf(member->why, sizeof member->why, "%s", why);
    }
}

static bool in_question(const Member *member)
{
    if (member->id.engine == 0 && TXN_PLANTED(PLANTED_NOT_THE_FIRST)) {
        return false;
    }
    if (member->own_copy && TXN_PLANTED(PLANTED_PULL_TRUSTED)) {
        return false;
    }
    return member_active(member) && !member->failed;
}

static void judge_parts(Txn *txn, Member *member)
{
    static const char *const names[VERIFY_PARTS] = {"version", "checksum", "canary"};
    for (int part = 0; part < VERIFY_PARTS; part++) {
        if (!member->part_done[part]) {
            char why[TXN_WHY_MAX];
            snprintf(why, sizeof why, "no answer to the %s check in time", names[part]);
            mark_odd(member, why);
        } else if (!member->part_ok[part] && !member->part_absent[part]) {
            char why[TXN_WHY_MAX];
            snprintf(why, sizeof why, "the %s check failed: %.60s", names[part], member->why);
            mark_odd(member, why);
        }
    }
    bool right = member->version == txn_wanted_version(txn) || TXN_PLANTED(PLANTED_NO_VERSION);
    if (!member->failed && !right) {
        char why[TXN_WHY_MAX];
        snprintf(why, sizeof why, "reports version %lld, wanted %lld", (long long)member->version,
                 (long long)txn_wanted_version(txn));
        mark_odd(member, why);
    }
}

static bool has_digest(const Member *member)
{
    return in_question(member) && member->part_ok[VERIFY_CHECKSUM] && member->digest[0];
}

/* Who computes the artifact's own digest is compared with that: all engines may be wrong alike. */
static void judge_digests(Txn *txn)
{
    const char *wanted = txn->rolling_back ? txn->expect_back_digest : txn->expect_digest;
    for (int i = 0; i < txn->count && wanted[0]; i++) {
        Member *member = &txn->members[i];
        if (member->id.same_digest && has_digest(member) && strcmp(member->digest, wanted) != 0) {
            mark_odd(member, "its checksum is not the digest of the policy");
        }
    }
}

static void judge_checksums(Txn *txn)
{
    const char *reference = NULL;
    int best = 0;
    int with = 0;
    for (int i = 0; i < txn->count; i++) {
        with += has_digest(&txn->members[i]);
    }
    for (int i = 0; i < txn->count && 2 * best <= with; i++) { /* a majority has no rival */
        if (!has_digest(&txn->members[i])) {
            continue;
        }
        int same = 0;
        for (int j = 0; j < txn->count; j++) {
            same += has_digest(&txn->members[j]) &&
                    strcmp(txn->members[i].digest, txn->members[j].digest) == 0;
        }
        if (same > best) {
            best = same;
            reference = txn->members[i].digest;
        }
    }
    if (!reference || best == with) {
        return;
    }
    bool majority = 2 * best > with;
    char keep[TXN_DIGEST_MAX];
    snprintf(keep, sizeof keep, "%s", reference);
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        if (has_digest(member) && (!majority || strcmp(member->digest, keep) != 0)) {
            mark_odd(member, majority ? "its checksum differs from the other engines'"
                                      : "checksums of the engines disagree");
        }
    }
}

/* Largest difference, or infinity where lengths differ or a value is not finite. */
static double distance(const float *a, int a_count, const float *b, int b_count)
{
    if (a_count != b_count || a_count == 0) {
        return INFINITY;
    }
    double worst = 0.0;
    for (int i = 0; i < a_count; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!isfinite(d)) {
            return INFINITY;
        }
        worst = d > worst ? d : worst;
    }
    return worst;
}

static bool has_score(const Member *member)
{
    return in_question(member) && member->part_ok[VERIFY_SCORE];
}

static const Member *medoid(const Txn *txn, float tolerance)
{
    const Member *best = NULL;
    int best_near = -1;
    int with = 0;
    for (int i = 0; i < txn->count; i++) {
        with += has_score(&txn->members[i]);
    }
    for (int i = 0; i < txn->count && best_near < with; i++) { /* near to all: none is nearer */
        const Member *a = &txn->members[i];
        if (!has_score(a)) {
            continue;
        }
        int near = 0;
        for (int j = 0; j < txn->count; j++) {
            const Member *b = &txn->members[j];
            near += has_score(b) && distance(a->logprobs, a->logprob_count, b->logprobs,
                                             b->logprob_count) <= (double)tolerance;
        }
        if (near > best_near) {
            best_near = near;
            best = a;
        }
    }
    return best;
}

static void judge_canaries(Txn *txn)
{
    float tolerance = txn->config.canary_tolerance > 0 ? txn->config.canary_tolerance : 0.05f;
    const float *reference = txn->rolling_back ? txn->expect_back : txn->expect;
    int count = txn->rolling_back ? txn->expect_back_count : txn->expect_count;
    bool trainer = count > 0;
    float copy[TXN_CANARY_MAX];
    if (!trainer) {
        const Member *middle = medoid(txn, tolerance);
        if (!middle) {
            return;
        }
        count = middle->logprob_count;
        memcpy(copy, middle->logprobs, sizeof copy);
        reference = copy;
    }
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        if (!has_score(member)) {
            continue;
        }
        double off = distance(member->logprobs, member->logprob_count, reference, count);
        if (off > (double)tolerance) {
            char why[TXN_WHY_MAX];
            snprintf(why, sizeof why, "its canary is %.3g away from %s", off,
                     trainer ? "the trainer's" : "the other engines'");
            mark_odd(member, why);
        }
    }
}

void txn_judge(Txn *txn)
{
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        if (in_question(member) && (!txn->rolling_back || member->touched)) {
            judge_parts(txn, member);
        }
    }
    judge_digests(txn);
    judge_checksums(txn);
    if (!TXN_PLANTED(PLANTED_NO_CANARY)) {
        judge_canaries(txn);
    }
}
