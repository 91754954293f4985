/* What each answer, loss and deadline leads to. The phases stand in txn_phases.c, what is asked and
 * may still be under way in txn_calls.c, the judgement over members in txn_verify.c. */
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

void txn_begin(Txn *txn, int64_t now_us)
{
    assert(!txn->begun);
    txn->begun = true;
    txn_enter(txn, TXN_CHECK, now_us);
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
            txn_finish(txn, false);
            return;
        }
        txn_start_prepare(txn, now_us);
        break;
    case TXN_GATE:
        txn_enter(txn, TXN_PAUSE, now_us);
        txn_start_members(txn, TXN_ACT_PAUSE);
        txn_advance(txn, now_us);
        break;
    case TXN_DECIDE:
        if (!answer->ok) {
            txn->decide_again_us = now_us + SECOND_US;
        } else if (txn->rolling_back) {
            txn_start_rollback(txn, now_us);
            txn_advance(txn, now_us);
        } else {
            txn_start_continue(txn, now_us);
            txn_advance(txn, now_us);
        }
        break;
    case TXN_OPEN:
        txn_finish(txn, !txn->rolling_back);
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

static void answer_good(Txn *txn, Member *member, TxnActionKind kind)
{
    member->scored = member->scored && kind != TXN_ACT_FLUSH;
    if (kind == TXN_ACT_FLUSH && txn->phase != TXN_FLUSH) {
        txn_load(txn, member); /* that flush came before a load */
    } else {
        member->done = true;
    }
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
            txn_start_look(txn, member);
        }
        break;
    case TXN_ACT_PAUSE:
    case TXN_ACT_FLUSH:
    case TXN_ACT_APPLY:
    case TXN_ACT_CONTINUE:
        if (answer->ok || (answer->kind == TXN_ACT_FLUSH && TXN_PLANTED(PLANTED_NO_FLUSH))) {
            answer_good(txn, member, answer->kind);
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
            member->touched = member->touched && !TXN_PLANTED(PLANTED_REFUSED_WHOLE);
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
    txn_advance(txn, now_us);
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
        txn_advance(txn, now_us);
    }
}

/* ---- time --------------------------------------------------------------------------------- */

static TxnActionKind retry_kind(TxnPhase phase)
{
    bool flushes = phase == TXN_FLUSH || phase == TXN_APPLY || phase == TXN_ROLLBACK;
    return phase == TXN_PAUSE ? TXN_ACT_PAUSE : flushes ? TXN_ACT_FLUSH : TXN_ACT_CONTINUE;
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
            txn_enter(txn, TXN_OPEN, now_us);
            txn_emit_global(txn, TXN_ACT_OPEN_GATE);
        } else {
            txn_finish(txn, false);
        }
        return;
    }
    if (txn->phase == TXN_OPEN) {
        txn_finish(txn, !txn->rolling_back);
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
    txn_advance(txn, now_us);
}

void txn_tick(Txn *txn, int64_t now_us)
{
    if (!txn->begun || txn->over) {
        return;
    }
    if (txn->phase == TXN_DECIDE) {
        if (txn->decide_again_us > 0 && now_us >= txn->decide_again_us) {
            txn_decide(txn, !txn->rolling_back, now_us);
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
