/* The phases: what each answer, loss and deadline leads to. What is asked and may still be under
 * way stands in txn_calls.c, the judgement over members in txn_verify.c. */
#include "core/policy/txn.h"

#include "core/base/mem.h"
#include "core/policy/txn_private.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTINUE_TRIES = 3, PAUSE_TRIES = 2, FLUSH_TRIES = 25 };
/* An engine refuses a flush while aborted requests leave it, which is a matter of milliseconds. */
static const int64_t FLUSH_AGAIN_US = 2000, AGAIN_US = 50000;
static const int64_t SECOND_US = 1000000;

static int64_t default_budget_us(TxnPhase phase)
{
    switch (phase) {
    case TXN_CHECK: return 120 * SECOND_US;
    case TXN_GATE: return 30 * SECOND_US;
    case TXN_PAUSE: return 30 * SECOND_US;
    case TXN_FLUSH: return 30 * SECOND_US;
    case TXN_APPLY: return 300 * SECOND_US;
    case TXN_VERIFY: return 60 * SECOND_US;
    case TXN_DECIDE: return 0;
    case TXN_ROLLBACK: return 300 * SECOND_US;
    case TXN_CONTINUE: return 30 * SECOND_US;
    case TXN_OPEN: return 5 * SECOND_US;
    case TXN_PREPARE: return 300 * SECOND_US;
    case TXN_PHASE_COUNT: break;
    }
    return 0;
}

bool member_active(const Member *member)
{
    return !member->lost && !member->quarantined;
}

int64_t txn_wanted_version(const Txn *txn)
{
    return txn->rolling_back ? txn->config.from_version : txn->config.to_version;
}

Txn *txn_new(const TxnConfig *config, const TxnMember *members, int count)
{
    assert(count >= 0);
    Txn *txn = xcalloc(1, sizeof *txn);
    txn->config = *config;
    txn->members = xcalloc((size_t)count, sizeof *txn->members);
    txn->count = count;
    for (int i = 0; i < count; i++) {
        txn->members[i].id = members[i];
        txn->engines = members[i].engine >= txn->engines ? members[i].engine + 1 : txn->engines;
    }
    txn->at = xcalloc((size_t)txn->engines, sizeof *txn->at);
    for (int i = count - 1; i >= 0; i--) {
        txn->at[members[i].engine] = i + 1;
    }
    txn->capacity = (size_t)count * 4 + 8;
    txn->queue = xcalloc(txn->capacity, sizeof *txn->queue);
    return txn;
}

void txn_free(Txn *txn)
{
    if (txn) {
        free(txn->members);
        free(txn->at);
        free(txn->queue);
        free(txn);
    }
}

void txn_expect(Txn *txn, const float *logprobs, int count)
{
    txn->expect_count = count < TXN_CANARY_MAX ? count : TXN_CANARY_MAX;
    memcpy(txn->expect, logprobs, (size_t)txn->expect_count * sizeof *logprobs);
}

void txn_expect_back(Txn *txn, const float *logprobs, int count)
{
    txn->expect_back_count = count < TXN_CANARY_MAX ? count : TXN_CANARY_MAX;
    memcpy(txn->expect_back, logprobs, (size_t)txn->expect_back_count * sizeof *logprobs);
}

void txn_expect_digests(Txn *txn, const char *to, const char *from)
{
    snprintf(txn->expect_digest, sizeof txn->expect_digest, "%s", to ? to : "");
    snprintf(txn->expect_back_digest, sizeof txn->expect_back_digest, "%s", from ? from : "");
}

/* ---- phases ------------------------------------------------------------------------------- */

static void advance(Txn *txn, int64_t now_us);
static void start_continue(Txn *txn, int64_t now_us);

static void enter(Txn *txn, TxnPhase phase, int64_t now_us)
{
    txn->phase = phase;
    int64_t budget = txn->config.phase_budget_us[phase];
    budget = budget > 0 ? budget : default_budget_us(phase);
    txn->deadline_us = budget > 0 ? now_us + budget : 0;
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        member->done = false;
        member->retrying = false;
        member->tries = 0;
        memset(member->awaited, 0, sizeof member->awaited);
    }
    txn->awaited_global = 0;
    txn->done_before = 0;
    txn->retries = false;
}

static void start_verify(Txn *txn, Member *member)
{
    memset(member->part_done, 0, sizeof member->part_done);
    memset(member->part_ok, 0, sizeof member->part_ok);
    memset(member->part_absent, 0, sizeof member->part_absent);
    member->digest[0] = '\0';
    member->logprob_count = 0;
    member->version = -1;
    txn_emit_member(txn, member, TXN_ACT_READ_VERSION);
    txn_emit_member(txn, member, TXN_ACT_CHECKSUM);
    txn_emit_member(txn, member, TXN_ACT_SCORE);
}

static void start_apply(Txn *txn, Member *member)
{
    member->own_copy = member->pulled && !member->copy_odd && !txn->rolling_back;
    member->touched = true;
    member->applies++;
    txn_emit_member(txn, member, TXN_ACT_APPLY)->own_copy = member->own_copy;
}

static void start_look(Txn *txn, Member *member)
{
    member->done = !member->id.looks;
    if (!member->done) {
        txn_emit_member(txn, member, TXN_ACT_LOOK);
    }
}

/* The gate is open and engines serve: whoever cannot pull loads the full artifact later. */
static void start_prepare(Txn *txn, int64_t now_us)
{
    enter(txn, TXN_PREPARE, now_us);
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        member->done = !member_active(member);
        if (!member->done && !member->id.pulls) {
            start_look(txn, member);
        } else if (!member->done) {
            bool proved = member->id.follows == txn->config.delta_base ||
                          TXN_PLANTED(PLANTED_DELTA_UNPROVED);
            txn_emit_member(txn, member, TXN_ACT_PULL)->base =
                proved ? txn->config.delta_base : -1;
        }
    }
    advance(txn, now_us);
}

/* Gives every member its work of the phase just entered. In a roll-back only touched members
 * have anything to undo. */
static void start_members(Txn *txn, TxnActionKind kind)
{
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        bool all = kind == TXN_ACT_CONTINUE && !TXN_PLANTED(PLANTED_LEFT_PAUSED);
        bool skip = !member_active(member) || (txn->rolling_back && !member->touched && !all);
        bool kept = kind == TXN_ACT_FLUSH && member->id.keeps;
        if (skip || (kept && TXN_PLANTED(PLANTED_KEPT_CACHE))) {
            member->done = true;
        } else if (kind == TXN_ACT_APPLY) {
            start_apply(txn, member);
        } else if (kind == TXN_ACT_READ_VERSION) {
            start_verify(txn, member);
        } else {
            txn_emit_member(txn, member, kind);
        }
    }
}

static void finish(Txn *txn, bool committed)
{
    txn->over = true;
    txn->committed = committed;
    TxnAction *end = txn_emit(txn, TXN_ACT_END);
    end->commit = committed;
    snprintf(end->reason, sizeof end->reason, "%s", txn->reason);
}

static void quarantine(Txn *txn, Member *member)
{
    member->quarantined = true;
    TxnAction *action = txn_emit(txn, TXN_ACT_QUARANTINE);
    action->engine = member->id.engine;
    action->incarnation = member->id.incarnation;
    snprintf(action->reason, sizeof action->reason, "%s", member->why);
}

static void decide(Txn *txn, bool commit, int64_t now_us)
{
    enter(txn, TXN_DECIDE, now_us);
    txn->rolling_back = !commit;
    TxnAction *action = txn_emit(txn, TXN_ACT_DECIDE);
    action->commit = commit;
    snprintf(action->reason, sizeof action->reason, "%s", txn->reason);
    txn->awaited_global = action->seq;
    txn->decide_again_us = 0;
    if (TXN_PLANTED(PLANTED_NO_WAIT)) {
        TxnAnswer durable = {.kind = TXN_ACT_DECIDE, .engine = -1, .seq = action->seq, .ok = true};
        txn_answer(txn, &durable, now_us);
    }
}

static int count_active(const Txn *txn)
{
    int n = 0;
    for (int i = 0; i < txn->count; i++) {
        n += member_active(&txn->members[i]);
    }
    return n;
}

static Member *first_failed(Txn *txn)
{
    for (int i = 0; i < txn->count; i++) {
        if (member_active(&txn->members[i]) && txn->members[i].failed) {
            return &txn->members[i];
        }
    }
    return NULL;
}

static void decide_rollback(Txn *txn, int64_t now_us)
{
    const Member *odd = first_failed(txn);
    if (odd) {
        snprintf(txn->reason, sizeof txn->reason, "engine %d: %s", odd->id.engine + 1, odd->why);
    } else {
        snprintf(txn->reason, sizeof txn->reason, "no engine is left");
    }
    decide(txn, false, now_us);
}

/* After the roll-back decision is durable: who was touched goes back, if there is a way back. */
static void start_rollback(Txn *txn, int64_t now_us)
{
    enter(txn, TXN_ROLLBACK, now_us);
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        member->applies = 0;
        bool nowhere = member->touched && txn->config.from_version < 0;
        bool unproved = !member->touched && !member->id.holds && txn->config.from_version >= 0 &&
                        !TXN_PLANTED(PLANTED_UNPROVED);
        if (member_active(member) && (nowhere || unproved)) {
            if (!member->failed) {
                snprintf(member->why, sizeof member->why, "%s",
                         nowhere ? "nothing was committed to go back to"
                                 : "not known to hold the committed policy");
            }
            quarantine(txn, member);
        }
        if (TXN_PLANTED(PLANTED_UNDO_ODD) && !member->failed) {
            member->touched = false;
        }
        /* Its failure was about the new version; the old one is another question. */
        member->copy_odd = member->copy_odd || (member->failed && member->own_copy);
        member->failed = false;
    }
    if (TXN_PLANTED(PLANTED_NO_UNDO)) {
        start_continue(txn, now_us);
        return;
    }
    start_members(txn, TXN_ACT_APPLY);
}

static bool apply_again(Txn *txn, int64_t now_us)
{
    bool any = false;
    for (int i = 0; i < txn->count; i++) {
        const Member *member = &txn->members[i];
        if (member_active(member) && member->failed &&
            member->applies > txn->config.apply_retries) {
            return false; /* one is beyond help: retrying the others is lost time */
        }
        any = any || (member_active(member) && member->failed);
    }
    if (!any) {
        return false;
    }
    enter(txn, txn->rolling_back ? TXN_ROLLBACK : TXN_APPLY, now_us);
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        if (member_active(member) && member->failed) {
            member->failed = false;
            member->copy_odd = member->copy_odd || member->own_copy;
            start_apply(txn, member);
        } else {
            member->done = true;
        }
    }
    return true;
}

static void quarantine_failed(Txn *txn)
{
    for (Member *odd = first_failed(txn); odd; odd = first_failed(txn)) {
        if (TXN_PLANTED(PLANTED_NO_QUARANTINE)) {
            odd->failed = false;
            continue;
        }
        quarantine(txn, odd);
    }
}

static void start_continue(Txn *txn, int64_t now_us)
{
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        if (member_active(member) && txn_doubtful(txn, member)) {
            snprintf(member->why, sizeof member->why,
                     "a call to it was given up and may still act");
            quarantine(txn, member);
        }
    }
    enter(txn, TXN_CONTINUE, now_us);
    start_members(txn, TXN_ACT_CONTINUE);
}

static void after_verify(Txn *txn, int64_t now_us)
{
    txn_judge(txn);
    if (!first_failed(txn)) {
        if (txn->rolling_back) {
            start_continue(txn, now_us);
        } else {
            snprintf(txn->reason, sizeof txn->reason, "%d engines verified", count_active(txn));
            decide(txn, true, now_us);
        }
        return;
    }
    if (apply_again(txn, now_us)) {
        return;
    }
    if (!txn->rolling_back && !TXN_PLANTED(PLANTED_COMMIT_ODD)) {
        decide_rollback(txn, now_us);
        return;
    }
    if (!txn->rolling_back) { /* the planted one */
        for (int i = 0; i < txn->count; i++) {
            txn->members[i].failed = false;
        }
        decide(txn, true, now_us);
        return;
    }
    quarantine_failed(txn);
    start_continue(txn, now_us);
}

static void after_apply(Txn *txn, int64_t now_us)
{
    if (first_failed(txn) && apply_again(txn, now_us)) {
        return;
    }
    if (first_failed(txn) && !txn->rolling_back) {
        decide_rollback(txn, now_us);
        return;
    }
    if (txn->rolling_back) {
        quarantine_failed(txn);
    }
    if (txn->rolling_back && TXN_PLANTED(PLANTED_BACK_UNVERIFIED)) {
        start_continue(txn, now_us);
        return;
    }
    enter(txn, TXN_VERIFY, now_us);
    start_members(txn, TXN_ACT_READ_VERSION);
}

/* Every member is done with the phase: what comes next. */
static void phase_complete(Txn *txn, int64_t now_us)
{
    switch (txn->phase) {
    case TXN_PREPARE:
        if (first_failed(txn) && !TXN_PLANTED(PLANTED_UNSEEN)) {
            const Member *odd = first_failed(txn);
            snprintf(txn->reason, sizeof txn->reason, "engine %d: %s", odd->id.engine + 1,
                     odd->why);
            finish(txn, false);
            break;
        }
        enter(txn, TXN_GATE, now_us);
        txn_emit_global(txn, TXN_ACT_CLOSE_GATE);
        break;
    case TXN_PAUSE:
    case TXN_FLUSH:
        if (first_failed(txn)) {
            decide_rollback(txn, now_us);
        } else if (txn->phase == TXN_PAUSE) {
            enter(txn, TXN_FLUSH, now_us);
            start_members(txn, TXN_ACT_FLUSH);
        } else {
            enter(txn, TXN_APPLY, now_us);
            start_members(txn, TXN_ACT_APPLY);
        }
        break;
    case TXN_APPLY:
    case TXN_ROLLBACK:
        after_apply(txn, now_us);
        break;
    case TXN_VERIFY:
        after_verify(txn, now_us);
        break;
    case TXN_CONTINUE:
        if (first_failed(txn) && !txn->rolling_back && TXN_PLANTED(PLANTED_REVERSED)) {
            decide_rollback(txn, now_us);
            break;
        }
        quarantine_failed(txn);
        if (txn->rolling_back && TXN_PLANTED(PLANTED_GATE_SHUT)) {
            finish(txn, false);
            break;
        }
        enter(txn, TXN_OPEN, now_us);
        txn_emit_global(txn, TXN_ACT_OPEN_GATE);
        break;
    case TXN_GATE:
    case TXN_CHECK:
    case TXN_DECIDE:
    case TXN_OPEN:
    case TXN_PHASE_COUNT:
        break; /* these wait for one answer, not for members */
    }
}

static bool waits_for_members(TxnPhase phase)
{
    return phase == TXN_PREPARE || phase == TXN_PAUSE || phase == TXN_FLUSH ||
           phase == TXN_APPLY || phase == TXN_ROLLBACK || phase == TXN_VERIFY ||
           phase == TXN_CONTINUE;
}

/* Within a phase nobody becomes active or undone again, so the first one that is open only moves
 * on: O(members) a phase, not an answer. */
static bool all_done(Txn *txn)
{
    while (txn->done_before < txn->count) {
        const Member *member = &txn->members[txn->done_before];
        if (member_active(member) && !member->done) {
            return false;
        }
        txn->done_before++;
    }
    return true;
}

static void advance(Txn *txn, int64_t now_us)
{
    /* A phase in which nobody has anything to do is complete at once, so this may go on. */
    while (!txn->over && waits_for_members(txn->phase) && all_done(txn)) {
        bool before_decision = !txn->rolling_back && txn->phase != TXN_CONTINUE &&
                               txn->phase != TXN_PREPARE;
        if (count_active(txn) == 0 && before_decision) {
            decide_rollback(txn, now_us);
            return;
        }
        phase_complete(txn, now_us);
    }
}

void txn_begin(Txn *txn, int64_t now_us)
{
    assert(!txn->begun);
    txn->begun = true;
    enter(txn, TXN_CHECK, now_us);
    txn_emit_global(txn, TXN_ACT_CHECK);
}

/* ---- answers ------------------------------------------------------------------------------ */

static void fail_member(Member *member, const char *what, const char *detail)
{
    member->failed = true;
    member->done = true;
    snprintf(member->why, sizeof member->why, "%s: %.64s", what,
             detail ? detail : "no reason given");
}

static void answer_global(Txn *txn, const TxnAnswer *answer, int64_t now_us)
{
    txn->awaited_global = 0;
    switch (txn->phase) {
    case TXN_CHECK:
        if (!answer->ok && !TXN_PLANTED(PLANTED_NO_CHECK)) {
            snprintf(txn->reason, sizeof txn->reason, "artifact refused: %.100s",
                     answer->detail ? answer->detail : "no reason given");
            finish(txn, false);
            return;
        }
        start_prepare(txn, now_us);
        break;
    case TXN_GATE:
        enter(txn, TXN_PAUSE, now_us);
        start_members(txn, TXN_ACT_PAUSE);
        advance(txn, now_us);
        break;
    case TXN_DECIDE:
        if (!answer->ok) {
            txn->decide_again_us = now_us + SECOND_US;
        } else if (txn->rolling_back) {
            start_rollback(txn, now_us);
            advance(txn, now_us);
        } else {
            start_continue(txn, now_us);
            advance(txn, now_us);
        }
        break;
    case TXN_OPEN:
        finish(txn, !txn->rolling_back);
        break;
    case TXN_PREPARE:
    case TXN_PHASE_COUNT:
    case TXN_PAUSE:
    case TXN_FLUSH:
    case TXN_APPLY:
    case TXN_VERIFY:
    case TXN_ROLLBACK:
    case TXN_CONTINUE:
        break;
    }
}

static void verify_part(Member *member, VerifyPart part, const TxnAnswer *answer)
{
    member->part_done[part] = true;
    member->part_ok[part] = answer->ok;
    member->part_absent[part] = !answer->ok && answer->unsupported && part != VERIFY_VERSION;
    if (!answer->ok && answer->detail && !member->part_absent[part]) {
        snprintf(member->why, sizeof member->why, "%s", answer->detail);
    }
    if (answer->ok && part == VERIFY_VERSION) {
        member->version = answer->version;
    } else if (answer->ok && part == VERIFY_CHECKSUM) {
        snprintf(member->digest, sizeof member->digest, "%s", answer->digest ? answer->digest : "");
    } else if (answer->ok) {
        int n = answer->logprob_count < TXN_CANARY_MAX ? answer->logprob_count : TXN_CANARY_MAX;
        member->logprob_count = n;
        if (n > 0) {
            memcpy(member->logprobs, answer->logprobs, (size_t)n * sizeof(float));
        }
    }
    member->done = member->part_done[VERIFY_VERSION] && member->part_done[VERIFY_CHECKSUM] &&
                   member->part_done[VERIFY_SCORE];
}

/* A call that may be repeated: again after a growing pause, until its tries are used up. */
static void retry_or_fail(Txn *txn, Member *member, int64_t first_us, int tries,
                          const char *what, const char *detail, int64_t now_us)
{
    if (++member->tries >= tries) {
        fail_member(member, what, detail);
        return;
    }
    int64_t wait = first_us;
    for (int i = 1; i < member->tries && wait < SECOND_US; i++) {
        wait *= 2;
    }
    txn->retries = member->retrying = true;
    member->due_us = now_us + (wait < SECOND_US ? wait : SECOND_US);
}

static void answer_member(Txn *txn, Member *member, const TxnAnswer *answer, int64_t now_us)
{
    if (!answer->ok && answer->unknown) {
        txn_doubt_add(txn, member, answer->kind, answer->seq);
    }
    member->awaited[answer->kind] = 0;
    switch (answer->kind) {
    case TXN_ACT_READ_VERSION: verify_part(member, VERIFY_VERSION, answer); break;
    case TXN_ACT_CHECKSUM: verify_part(member, VERIFY_CHECKSUM, answer); break;
    case TXN_ACT_SCORE: verify_part(member, VERIFY_SCORE, answer); break;
    case TXN_ACT_LOOK:
        member->done = true;
        if (answer->unseen) {
            fail_member(member, "does not see the policy", answer->detail);
        }
        break;
    case TXN_ACT_PULL:
        member->pulled = answer->ok;
        member->done = true;
        if (!answer->ok) { /* it needs the complete artifact */
            start_look(txn, member);
        }
        break;
    case TXN_ACT_PAUSE:
    case TXN_ACT_FLUSH:
    case TXN_ACT_APPLY:
    case TXN_ACT_CONTINUE:
        if (answer->ok || (answer->kind == TXN_ACT_FLUSH && TXN_PLANTED(PLANTED_NO_FLUSH))) {
            member->done = true;
        } else if (answer->kind == TXN_ACT_PAUSE) {
            retry_or_fail(txn, member, AGAIN_US, PAUSE_TRIES, "pause failed", answer->detail,
                          now_us);
        } else if (answer->kind == TXN_ACT_FLUSH) {
            int tries = txn->config.flush_retries > 0 ? txn->config.flush_retries : FLUSH_TRIES;
            retry_or_fail(txn, member, FLUSH_AGAIN_US, tries, "cache flush refused",
                          answer->detail, now_us);
        } else if (answer->kind == TXN_ACT_CONTINUE) {
            retry_or_fail(txn, member, AGAIN_US, CONTINUE_TRIES, "continue failed",
                          answer->detail, now_us);
        } else {
            fail_member(member, "update failed", answer->detail);
        }
        break;
    case TXN_ACT_CLOSE_GATE:
    case TXN_ACT_CHECK:
    case TXN_ACT_DECIDE:
    case TXN_ACT_QUARANTINE:
    case TXN_ACT_OPEN_GATE:
    case TXN_ACT_END:
        break; /* never awaited from a member */
    }
    advance(txn, now_us);
}

/* What a call did that ends now is still seen by checks that are yet to be asked for. */
static bool checked_later(TxnPhase phase)
{
    return phase == TXN_PAUSE || phase == TXN_FLUSH || phase == TXN_APPLY ||
           phase == TXN_ROLLBACK;
}

void txn_answer(Txn *txn, const TxnAnswer *answer, int64_t now_us)
{
    Member *member = answer->engine >= 0 ? txn_member(txn, answer->engine) : NULL;
    bool global = answer->engine < 0 && answer->seq != 0 && answer->seq == txn->awaited_global;
    bool same = member && member->id.incarnation == answer->incarnation;
    uint32_t awaited = member ? member->awaited[answer->kind] : 0;
    bool ours = same && member_active(member) && answer->seq != 0 && awaited == answer->seq;
    if (same && !ours && !answer->unknown && checked_later(txn->phase)) {
        txn_doubt_clear(member, answer->seq);
    }
    if (txn->over || (!global && !ours)) {
        txn->ignored++;
    } else if (global) {
        answer_global(txn, answer, now_us);
    } else {
        answer_member(txn, member, answer, now_us);
    }
}

void txn_member_lost(Txn *txn, int engine, int64_t incarnation, int64_t now_us)
{
    Member *member = txn_member(txn, engine);
    if (!member || member->lost || member->id.incarnation != incarnation || txn->over) {
        txn->ignored++;
        return;
    }
    member->lost = true;
    if (txn->begun) {
        advance(txn, now_us);
    }
}

/* ---- time --------------------------------------------------------------------------------- */

static TxnActionKind retry_kind(TxnPhase phase)
{
    return phase == TXN_PAUSE   ? TXN_ACT_PAUSE
           : phase == TXN_FLUSH ? TXN_ACT_FLUSH
                                : TXN_ACT_CONTINUE;
}

static void expire(Txn *txn, int64_t now_us)
{
    if (TXN_PLANTED(PLANTED_NO_BUDGET)) {
        txn->deadline_us = now_us + SECOND_US;
        return;
    }
    if (txn->phase == TXN_CHECK || txn->phase == TXN_GATE) {
        snprintf(txn->reason, sizeof txn->reason, "%s not done within its budget",
                 txn->phase == TXN_CHECK ? "artifact check" : "closing the gate");
        if (txn->phase == TXN_GATE) { /* nobody was paused; the gate must open again */
            txn->rolling_back = true;
            enter(txn, TXN_OPEN, now_us);
            txn_emit_global(txn, TXN_ACT_OPEN_GATE);
        } else {
            finish(txn, false);
        }
        return;
    }
    if (txn->phase == TXN_OPEN) {
        finish(txn, !txn->rolling_back);
        return;
    }
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        if (!member_active(member) || member->done) {
            continue;
        }
        member->done = true;
        txn_give_up(txn, member);
        bool judged = txn->phase == TXN_VERIFY || txn->phase == TXN_PREPARE;
        if (!judged) { /* VERIFY is judged by what came; who has not pulled loads in full */
            fail_member(member, txn_phase_name(txn->phase), "no answer within the budget");
        }
    }
    txn->deadline_us = 0;
    advance(txn, now_us);
}

void txn_tick(Txn *txn, int64_t now_us)
{
    if (!txn->begun || txn->over) {
        return;
    }
    if (txn->phase == TXN_DECIDE) {
        if (txn->decide_again_us > 0 && now_us >= txn->decide_again_us) {
            decide(txn, !txn->rolling_back, now_us);
        }
        return;
    }
    for (int i = 0; i < txn->count && txn->retries; i++) {
        Member *member = &txn->members[i];
        if (member_active(member) && member->retrying && now_us >= member->due_us) {
            member->retrying = false;
            txn_emit_member(txn, member, retry_kind(txn->phase));
        }
    }
    if (txn->deadline_us > 0 && now_us >= txn->deadline_us) {
        expire(txn, now_us);
    }
}

int64_t txn_next_due_us(const Txn *txn)
{
    if (!txn->begun || txn->over) {
        return 0;
    }
    if (txn->phase == TXN_DECIDE) {
        return txn->decide_again_us;
    }
    int64_t due = txn->deadline_us;
    for (int i = 0; i < txn->count && txn->retries; i++) {
        const Member *member = &txn->members[i];
        if (member_active(member) && member->retrying && (due == 0 || member->due_us < due)) {
            due = member->due_us;
        }
    }
    return due;
}
