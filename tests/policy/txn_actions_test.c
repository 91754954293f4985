/* The transaction asked action by action: engines with copies of their own, who sees the artifact,
 * what a pause keeps. */
#include "core/policy/txn.h"

#include "tests/harness.h"

#include <string.h>

enum { CANARY = 4 };

enum { FOLLOWS, PULLS, CANNOT, FOLLOWERS };

/* Answers everything well but what `odd` does not like; notes pulls and loads by engine. */
typedef struct Copies {
    int64_t base[FOLLOWERS];  /* of the pull; -9 none was asked */
    int loads[FOLLOWERS], own[FOLLOWERS];
    bool gate_before_pulls, ended, committed;
    bool pull_fails[FOLLOWERS], copy_wrong[FOLLOWERS], load_lost[FOLLOWERS];
    int quarantined[FOLLOWERS];
    const char *digest;
} Copies;

static void answer_copies(Copies *c, Txn *txn, const TxnAction *a, int64_t to)
{
    float scores[CANARY] = {0};
    int e = a->engine;
    TxnAnswer answer = {.kind = a->kind, .engine = e, .seq = a->seq, .ok = true,
                        .incarnation = a->incarnation, .version = a->version, .digest = c->digest,
                        .logprobs = scores, .logprob_count = CANARY};
    if (a->kind == TXN_ACT_PULL) {
        c->base[e] = a->base;
        answer.ok = !c->pull_fails[e];
        CHECK_I64(a->version, to);
    } else if (a->kind == TXN_ACT_APPLY) {
        c->loads[e]++;
        c->own[e] += a->own_copy;
        answer.unknown = c->load_lost[e] && a->own_copy;
        answer.ok = !answer.unknown;
    } else if (a->kind == TXN_ACT_CHECKSUM && c->copy_wrong[e] && c->own[e] == c->loads[e]) {
        answer.digest = "other";
    } else if (a->kind == TXN_ACT_CLOSE_GATE) {
        c->gate_before_pulls = c->base[PULLS] == -9;
    }
    txn_answer(txn, &answer, 1000);
}

static Txn *run_copies(Copies *c, int64_t delta_base)
{
    TxnMember members[FOLLOWERS];
    for (int i = 0; i < FOLLOWERS; i++) {
        c->base[i] = -9;
        members[i] = (TxnMember){.engine = i, .incarnation = 3, .holds = true, .same_digest = true,
                                 .pulls = i != CANNOT, .follows = i == FOLLOWS ? 3 : -1};
    }
    c->digest = "right";
    TxnConfig config = {.txn = 1, .from_version = 3, .to_version = 4, .delta_base = delta_base,
                        .apply_retries = 1};
    Txn *txn = txn_new(&config, members, FOLLOWERS);
    txn_expect_digests(txn, "right", "right");
    txn_begin(txn, 1000);
    TxnAction action;
    for (int i = 0; i < 1000 && !c->ended && txn_next(txn, &action); i++) {
        if (action.kind == TXN_ACT_END) {
            c->ended = true;
            c->committed = action.commit;
        } else if (action.kind == TXN_ACT_QUARANTINE) {
            c->quarantined[action.engine]++;
        } else {
            answer_copies(c, txn, &action, 4);
        }
    }
    CHECK(c->ended);
    return txn;
}

static void test_deltas_go_to_proved_copies(void)
{
    Copies c = {0};
    Txn *txn = run_copies(&c, 3);
    CHECK(c.committed && !c.gate_before_pulls);
    CHECK_I64(c.base[FOLLOWS], 3);  /* the delta */
    CHECK_I64(c.base[PULLS], -1);   /* complete: what it has is not known */
    CHECK_I64(c.base[CANNOT], -9);
    CHECK(c.own[FOLLOWS] == 1 && c.own[PULLS] == 1 && c.own[CANNOT] == 0);
    CHECK(txn_own_copy(txn, FOLLOWS) && txn_own_copy(txn, PULLS) && !txn_own_copy(txn, CANNOT));
    txn_free(txn);
    c = (Copies){0};
    txn = run_copies(&c, -1); /* published complete: so for everybody */
    CHECK(c.committed);
    CHECK_I64(c.base[FOLLOWS], -1);
    CHECK_I64(c.base[PULLS], -1);
    txn_free(txn);
}

static void test_a_failed_pull_costs_nothing(void)
{
    Copies c = {.pull_fails = {true, false, false}};
    Txn *txn = run_copies(&c, 3);
    CHECK(c.committed);
    CHECK(c.loads[FOLLOWS] == 1 && c.own[FOLLOWS] == 0 && c.own[PULLS] == 1);
    CHECK(!txn_own_copy(txn, FOLLOWS) && !txn_copy_odd(txn, FOLLOWS));
    txn_free(txn);
}

/* A copy that leads elsewhere is found by the checksum; the complete artifact comes after it. */
static void test_an_odd_copy_is_left(void)
{
    Copies c = {.copy_wrong = {true, false, false}};
    Txn *txn = run_copies(&c, 3);
    CHECK(c.committed);
    CHECK(c.loads[FOLLOWS] == 2 && c.own[FOLLOWS] == 1);
    CHECK(c.loads[PULLS] == 1 && c.loads[CANNOT] == 1);
    CHECK(txn_copy_odd(txn, FOLLOWS) && !txn_own_copy(txn, FOLLOWS));
    CHECK(!txn_copy_odd(txn, PULLS));
    txn_free(txn);
}

/* A load from its own copy broke off and may still act: it would bring bytes that nobody has seen
 * after the complete artifact was verified, under the same number. */
static void test_a_lost_load_of_a_copy_is_in_doubt(void)
{
    Copies c = {.load_lost = {true, false, false}};
    Txn *txn = run_copies(&c, 3);
    CHECK(c.committed);
    CHECK(c.loads[FOLLOWS] == 2 && c.own[FOLLOWS] == 1);
    CHECK_I64(c.quarantined[FOLLOWS], 1);
    CHECK_I64(c.quarantined[PULLS] + c.quarantined[CANNOT], 0);
    CHECK(txn_in_doubt(txn, FOLLOWS));
    txn_free(txn);
}

/* A pull without an answer: its budget ends, and the transaction goes on without it. */
static void test_a_hanging_pull_ends(void)
{
    TxnMember member = {.engine = 0, .incarnation = 3, .holds = true, .pulls = true, .follows = 3};
    TxnConfig config = {.txn = 1, .from_version = 3, .to_version = 4, .delta_base = 3,
                        .apply_retries = 1};
    Txn *txn = txn_new(&config, &member, 1);
    TxnAction action;
    txn_begin(txn, 1000);
    CHECK(txn_next(txn, &action) && action.kind == TXN_ACT_CHECK);
    TxnAnswer answer = {.kind = TXN_ACT_CHECK, .engine = -1, .seq = action.seq, .ok = true};
    txn_answer(txn, &answer, 2000);
    CHECK(txn_next(txn, &action) && action.kind == TXN_ACT_PULL);
    uint32_t pull = action.seq;
    CHECK(!txn_next(txn, &action)); /* the gate is open meanwhile */
    int64_t due = txn_next_due_us(txn);
    CHECK(due > 2000);
    txn_tick(txn, due);
    CHECK(txn_next(txn, &action) && action.kind == TXN_ACT_CLOSE_GATE);
    uint64_t ignored = txn_ignored(txn);
    TxnAnswer late = {.kind = TXN_ACT_PULL, .engine = 0, .incarnation = 3, .seq = pull, .ok = true};
    txn_answer(txn, &late, due + 1); /* what it did is not known: it stays out of it */
    CHECK_I64((int64_t)txn_ignored(txn), (int64_t)ignored + 1);
    CHECK(!txn_in_doubt(txn, 0));
    txn_free(txn);
}

/* An engine that does not see the artifact ends the update with the gate open; one that gives no
 * answer to that, or cannot say, is no reason. */
static void test_an_unseen_artifact_pauses_nobody(void)
{
    for (int way = 0; way < 3; way++) { /* does not see it; cannot say; does not answer */
        TxnMember members[2] = {
            {.engine = 0, .incarnation = 3, .holds = true, .looks = true, .follows = -1},
            {.engine = 1, .incarnation = 3, .holds = true, .looks = true, .follows = -1}};
        TxnConfig config = {.txn = 1, .from_version = 3, .to_version = 4, .delta_base = -1,
                            .apply_retries = 1};
        Txn *txn = txn_new(&config, members, 2);
        TxnAction action;
        txn_begin(txn, 1000);
        CHECK(txn_next(txn, &action) && action.kind == TXN_ACT_CHECK);
        TxnAnswer answer = {.kind = TXN_ACT_CHECK, .engine = -1, .seq = action.seq, .ok = true};
        txn_answer(txn, &answer, 2000);
        for (int i = 0; i < 2; i++) {
            CHECK(txn_next(txn, &action) && action.kind == TXN_ACT_LOOK);
            answer = (TxnAnswer){.kind = TXN_ACT_LOOK, .engine = action.engine, .seq = action.seq,
                                 .incarnation = 3, .ok = action.engine == 0,
                                 .unseen = action.engine == 1 && way == 0,
                                 .unsupported = action.engine == 1 && way == 1,
                                 .detail = "/ckpt/v4: No such file or directory"};
            if (action.engine == 0 || way < 2) {
                txn_answer(txn, &answer, 3000);
            }
        }
        if (way == 2) {
            txn_tick(txn, txn_next_due_us(txn));
        }
        CHECK(txn_next(txn, &action));
        CHECK_I64(action.kind, way == 0 ? TXN_ACT_END : TXN_ACT_CLOSE_GATE);
        CHECK(way != 0 || (!action.commit && strstr(action.reason, "engine 2: does not see")));
        CHECK(txn_failed(txn, 1) == (way == 0));
        txn_free(txn);
    }
}

/* A member whose requests are to be kept is told so by its pause, and flushed like the others. */
static void test_a_pause_keeps_where_that_was_said(void)
{
    TxnConfig config = {.txn = 1, .from_version = 1, .to_version = 2, .delta_base = -1,
                        .apply_retries = 1};
    TxnMember members[] = {{.engine = 0, .incarnation = 1, .holds = true, .follows = -1},
                           {.engine = 1, .incarnation = 1, .holds = true, .keeps = true,
                            .follows = -1}};
    Txn *txn = txn_new(&config, members, 2);
    int pauses = 0;
    txn_begin(txn, 0);
    for (TxnAction action; txn_next(txn, &action);) {
        TxnAnswer answer = {.kind = action.kind, .engine = action.engine, .seq = action.seq,
                            .incarnation = action.incarnation, .ok = true};
        pauses += action.kind == TXN_ACT_PAUSE;
        CHECK(action.keep == (action.kind == TXN_ACT_PAUSE && action.engine == 1));
        if (action.engine < 0 || action.kind == TXN_ACT_PAUSE || action.kind == TXN_ACT_FLUSH) {
            txn_answer(txn, &answer, 0);
        }
    }
    CHECK_I64(pauses, 2);
    CHECK_I64(txn_phase(txn), TXN_APPLY);
    txn_free(txn);
}

int main(void)
{
    RUN(test_deltas_go_to_proved_copies);
    RUN(test_a_failed_pull_costs_nothing);
    RUN(test_an_odd_copy_is_left);
    RUN(test_a_lost_load_of_a_copy_is_in_doubt);
    RUN(test_a_hanging_pull_ends);
    RUN(test_an_unseen_artifact_pauses_nobody);
    RUN(test_a_pause_keeps_where_that_was_said);
    return test_end();
}
