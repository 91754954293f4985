/* The phases of the transaction: who gets which work when one begins, and what follows when
 * everybody is done with it. What an answer means stands in txn.c. */
#include "core/policy/txn_private.h"

#include <stdio.h>
#include <string.h>

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

int64_t txn_budget_us(const Txn *txn, TxnPhase phase)
{
    int64_t stated = txn->config.phase_budget_us[phase];
    return stated > 0 ? stated : default_budget_us(phase);
}

void txn_enter(Txn *txn, TxnPhase phase, int64_t now_us)
{
    txn->phase = phase;
    int64_t budget = txn_budget_us(txn, phase);
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
    member->scored = true;
}

/* SGLang keeps its cache over a load, as it must be asked to (a flush that it does by itself then
 * may end it): what the canary left there was made by weights that go now, and prompts that begin
 * like it would be answered from it. */
void txn_load(Txn *txn, Member *member)
{
    if (member->scored && !TXN_PLANTED(PLANTED_SCORED_CACHE)) {
        txn_emit_member(txn, member, TXN_ACT_FLUSH);
    } else {
        txn_emit_member(txn, member, TXN_ACT_APPLY)->own_copy = member->own_copy;
    }
}

static void start_apply(Txn *txn, Member *member)
{
    member->own_copy = member->pulled && !member->copy_odd && !txn->rolling_back;
    member->touched = true;
    member->applies++;
    txn_load(txn, member);
}

void txn_start_look(Txn *txn, Member *member)
{
    member->done = !member->id.looks;
    if (!member->done) {
        txn_emit_member(txn, member, TXN_ACT_LOOK);
    }
}

/* The gate is open and engines serve: whoever cannot pull loads the full artifact later. */
void txn_start_prepare(Txn *txn, int64_t now_us)
{
    txn_enter(txn, TXN_PREPARE, now_us);
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        member->done = !member_active(member);
        if (!member->done && !member->id.pulls) {
            txn_start_look(txn, member);
        } else if (!member->done) {
            bool proved = member->id.follows == txn->config.delta_base ||
                          TXN_PLANTED(PLANTED_DELTA_UNPROVED);
            txn_emit_member(txn, member, TXN_ACT_PULL)->base =
                proved ? txn->config.delta_base : -1;
        }
    }
    txn_advance(txn, now_us);
}

/* Gives every member its work of the phase just entered. In a roll-back only touched members
 * have anything to undo. */
void txn_start_members(Txn *txn, TxnActionKind kind)
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

void txn_finish(Txn *txn, bool committed)
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

void txn_decide(Txn *txn, bool commit, int64_t now_us)
{
    txn_enter(txn, TXN_DECIDE, now_us);
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
    txn_decide(txn, false, now_us);
}

/* After the roll-back decision is durable: who was touched goes back, if there is a way back. */
void txn_start_rollback(Txn *txn, int64_t now_us)
{
    txn_enter(txn, TXN_ROLLBACK, now_us);
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        member->applies = 0;
        bool nowhere = (member->touched || member->id.unknown) && txn->config.from_version < 0;
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
        txn_start_continue(txn, now_us);
        return;
    }
    txn_start_members(txn, TXN_ACT_APPLY);
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
    txn_enter(txn, txn->rolling_back ? TXN_ROLLBACK : TXN_APPLY, now_us);
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

void txn_start_continue(Txn *txn, int64_t now_us)
{
    for (int i = 0; i < txn->count; i++) {
        Member *member = &txn->members[i];
        if (member_active(member) && txn_doubtful(txn, member)) {
            snprintf(member->why, sizeof member->why,
                     "a call to it was given up and may still act");
            quarantine(txn, member);
        }
    }
    txn_enter(txn, TXN_CONTINUE, now_us);
    txn_start_members(txn, TXN_ACT_CONTINUE);
}

static void after_verify(Txn *txn, int64_t now_us)
{
    txn_judge(txn);
    if (!first_failed(txn)) {
        if (txn->rolling_back) {
            txn_start_continue(txn, now_us);
        } else {
            snprintf(txn->reason, sizeof txn->reason, "%d engines verified", count_active(txn));
            txn_decide(txn, true, now_us);
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
        txn_decide(txn, true, now_us);
        return;
    }
    quarantine_failed(txn);
    txn_start_continue(txn, now_us);
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
        txn_start_continue(txn, now_us);
        return;
    }
    txn_enter(txn, TXN_VERIFY, now_us);
    txn_start_members(txn, TXN_ACT_READ_VERSION);
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
            txn_finish(txn, false);
            break;
        }
        txn_enter(txn, TXN_GATE, now_us);
        txn_emit_global(txn, TXN_ACT_CLOSE_GATE);
        break;
    case TXN_PAUSE:
    case TXN_FLUSH:
        if (first_failed(txn)) {
            decide_rollback(txn, now_us);
        } else if (txn->phase == TXN_PAUSE) {
            txn_enter(txn, TXN_FLUSH, now_us);
            txn_start_members(txn, TXN_ACT_FLUSH);
        } else {
            txn_enter(txn, TXN_APPLY, now_us);
            txn_start_members(txn, TXN_ACT_APPLY);
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
            txn_finish(txn, false);
            break;
        }
        txn_enter(txn, TXN_OPEN, now_us);
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

void txn_advance(Txn *txn, int64_t now_us)
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
