/* What a transaction asks of the world and what of that may still be under way: the queue of
 * actions, the one outstanding call of each kind and member, and doubt about calls that were given
 * up without an answer. O(1) a call; at most TXN_DOUBTS_MAX doubts a member are told apart. */
#include "core/policy/txn_private.h"

#include "core/base/mem.h"

#include <string.h>

/* ---- actions ------------------------------------------------------------------------------ */

TxnAction *txn_emit(Txn *txn, TxnActionKind kind)
{
    if (txn->tail == txn->capacity) {
        if (txn->head > 0) {
            memmove(txn->queue, txn->queue + txn->head,
                    (txn->tail - txn->head) * sizeof *txn->queue);
            txn->tail -= txn->head;
            txn->head = 0;
        } else {
            txn->capacity *= 2;
            txn->queue = xrealloc(txn->queue, txn->capacity, sizeof *txn->queue);
        }
    }
    TxnAction *action = &txn->queue[txn->tail++];
    *action = (TxnAction){.kind = kind, .engine = -1, .seq = ++txn->seq, .phase = txn->phase,
                          .version = txn_wanted_version(txn), .base = -1,
                          .commit = !txn->rolling_back};
    return action;
}

void txn_emit_global(Txn *txn, TxnActionKind kind)
{
    txn->awaited_global = txn_emit(txn, kind)->seq;
}

TxnAction *txn_emit_member(Txn *txn, Member *member, TxnActionKind kind)
{
    TxnAction *action = txn_emit(txn, kind);
    action->engine = member->id.engine;
    action->incarnation = member->id.incarnation;
    action->keep = kind == TXN_ACT_PAUSE && member->id.keeps;
    member->awaited[kind] = action->seq;
    return action;
}

bool txn_next(Txn *txn, TxnAction *out)
{
    if (txn->head == txn->tail) {
        txn->head = txn->tail = 0;
        return false;
    }
    *out = txn->queue[txn->head++];
    return true;
}

/* ---- doubt -------------------------------------------------------------------------------- */

void txn_doubt_add(const Txn *txn, Member *member, TxnActionKind kind, uint32_t seq)
{
    bool changes = kind == TXN_ACT_PAUSE || kind == TXN_ACT_APPLY || kind == TXN_ACT_SCORE ||
                   kind == TXN_ACT_CONTINUE;
    if (seq == 0 || !changes) {
        return; /* reading does no harm, however late */
    }
    if (member->doubt_count == TXN_DOUBTS_MAX) {
        member->doubt_full = true;
        return;
    }
    member->doubts[member->doubt_count++] =
        (Doubt){.kind = kind, .seq = seq, .version = txn_wanted_version(txn),
                .own_copy = kind == TXN_ACT_APPLY && member->own_copy};
}

/* A late canary has filled the cache, after the flush maybe: no check that is yet to be asked for
 * sees that. */
void txn_doubt_clear(Member *member, uint32_t seq)
{
    int kept = 0;
    for (int i = 0; i < member->doubt_count; i++) {
        bool fills = member->doubts[i].kind == TXN_ACT_SCORE && !TXN_PLANTED(PLANTED_SCORE_LATE);
        if (member->doubts[i].seq != seq || fills) {
            member->doubts[kept++] = member->doubts[i];
        }
    }
    member->doubt_count = kept;
}

/* Once it serves: loading the wanted version's artifact again or going on changes nothing (now; a
 * later transaction would be disturbed), anything else does harm. */
bool txn_doubtful(const Txn *txn, const Member *member)
{
    bool harm = member->doubt_full;
    for (int i = 0; i < member->doubt_count; i++) {
        const Doubt *doubt = &member->doubts[i];
        bool same = doubt->kind == TXN_ACT_APPLY && !doubt->own_copy &&
                    doubt->version == txn_wanted_version(txn);
        harm = harm || (!same && doubt->kind != TXN_ACT_CONTINUE);
    }
    return harm && !TXN_PLANTED(PLANTED_NO_DOUBT);
}

void txn_give_up(const Txn *txn, Member *member)
{
    for (TxnActionKind kind = 0; kind <= TXN_ACT_END; kind++) {
        txn_doubt_add(txn, member, kind, member->awaited[kind]);
    }
    memset(member->awaited, 0, sizeof member->awaited);
}

/* ---- questions ---------------------------------------------------------------------------- */

Member *txn_member(const Txn *txn, int engine)
{
    int at = engine >= 0 && engine < txn->engines ? txn->at[engine] : 0;
    return at > 0 ? &txn->members[at - 1] : NULL;
}

bool txn_in_doubt(const Txn *txn, int engine)
{
    const Member *member = txn_member(txn, engine);
    return member && (member->doubt_full || member->doubt_count > 0) &&
           !TXN_PLANTED(PLANTED_NO_DOUBT);
}

TxnPhase txn_phase(const Txn *txn)
{
    return txn->phase;
}

uint64_t txn_ignored(const Txn *txn)
{
    return txn->ignored;
}

bool txn_failed(const Txn *txn, int engine)
{
    const Member *member = txn_member(txn, engine);
    return member && member->failed;
}

bool txn_own_copy(const Txn *txn, int engine)
{
    const Member *member = txn_member(txn, engine);
    return member && member->own_copy;
}

bool txn_copy_odd(const Txn *txn, int engine)
{
    const Member *member = txn_member(txn, engine);
    return member && member->copy_odd;
}
