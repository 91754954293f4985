/* The transaction against a simulated fleet in virtual time. The fleet below shares no code with
 * core/policy: engines hold weights and a version, and break in the ways that real ones do. */
#include "core/policy/txn.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/policy/recover.h"
#include "tests/harness.h"

#include <stdlib.h>

enum { ENGINES_MAX = 8, PENDING_MAX = 64, CANARY = 4 };

typedef enum Break {
    WORKS, PAUSE_FAILS, FLUSH_FAILS, APPLY_FAILS, APPLY_FAILS_ONCE, VERSION_LIES, WEIGHTS_LIE,
    SILENT_APPLY, SILENT_ALWAYS, DIES_IN_APPLY, CONTINUE_FAILS, NAN_CANARY, BREAKS
} Break;

typedef struct SimEngine {
    Break broken;
    int64_t version, weights;
    bool dead, paused, quarantined;
    int applies;
} SimEngine;

typedef struct Pending {
    int64_t due_us;
    TxnAction action;
} Pending;

typedef struct Sim {
    SimEngine engines[ENGINES_MAX];
    int count;
    Pending pending[PENDING_MAX];
    int pending_count;
    int64_t now_us;
    int decisions, log_failures;
    bool decided_commit, gate_closed, continued_before_decision, checked_ok, ended, committed;
    bool artifact_bad, gate_was_closed;
    Rng rng;
} Sim;

static float canary_value(int64_t weights, int i)
{
    return -1.0f - 0.37f * (float)weights - 0.1f * (float)i;
}

static void apply(SimEngine *e, int64_t version, TxnAnswer *answer)
{
    e->applies++;
    Break b = e->broken;
    if (b == APPLY_FAILS || (b == APPLY_FAILS_ONCE && e->applies == 1)) {
        answer->ok = false;
        answer->detail = "no space left";
        return;
    }
    if (b != VERSION_LIES) {
        e->weights = version; /* VERSION_LIES: the number moves, the weights do not */
    }
    if (b != WEIGHTS_LIE) {
        e->version = version;
    }
}

/* What the engine answers; false: never. */
static bool engine_acts(Sim *sim, const TxnAction *action, TxnAnswer *answer, float *scores)
{
    SimEngine *e = &sim->engines[action->engine];
    if (e->dead || e->broken == SILENT_ALWAYS ||
        (e->broken == SILENT_APPLY && action->kind == TXN_ACT_APPLY)) {
        return false;
    }
    answer->ok = true;
    if (action->kind == TXN_ACT_PAUSE) {
        answer->ok = e->broken != PAUSE_FAILS;
        e->paused = e->paused || answer->ok;
    } else if (action->kind == TXN_ACT_FLUSH) {
        answer->ok = e->broken != FLUSH_FAILS;
    } else if (action->kind == TXN_ACT_APPLY) {
        if (e->broken == DIES_IN_APPLY) {
            e->dead = true;
            return false;
        }
        apply(e, action->version, answer);
    } else if (action->kind == TXN_ACT_READ_VERSION) {
        answer->version = e->version;
    } else if (action->kind == TXN_ACT_CHECKSUM) {
        answer->ok = false;
        answer->unsupported = true;
    } else if (action->kind == TXN_ACT_SCORE) {
        for (int i = 0; i < CANARY; i++) {
            scores[i] = e->broken == NAN_CANARY ? NAN : canary_value(e->weights, i);
        }
        answer->logprobs = scores;
        answer->logprob_count = CANARY;
    } else if (action->kind == TXN_ACT_CONTINUE) {
        answer->ok = e->broken != CONTINUE_FAILS;
        e->paused = e->paused && !answer->ok;
        sim->continued_before_decision |= sim->decisions == 0;
    }
    return true;
}

static bool core_acts(Sim *sim, const TxnAction *action, TxnAnswer *answer)
{
    answer->ok = true;
    if (action->kind == TXN_ACT_CHECK) {
        answer->ok = !sim->artifact_bad;
        answer->detail = "tensor x is missing";
    } else if (action->kind == TXN_ACT_CLOSE_GATE) {
        sim->gate_closed = sim->gate_was_closed = true;
    } else if (action->kind == TXN_ACT_OPEN_GATE) {
        sim->gate_closed = false;
    } else if (action->kind == TXN_ACT_DECIDE) {
        if (sim->log_failures > 0) {
            sim->log_failures--;
            answer->ok = false;
        } else {
            sim->decisions++;
            sim->decided_commit = action->commit;
        }
    }
    return true;
}

static void take_actions(Sim *sim, Txn *txn)
{
    TxnAction action;
    while (txn_next(txn, &action)) {
        if (action.kind == TXN_ACT_END) {
            sim->ended = true;
            sim->committed = action.commit;
        } else if (action.kind == TXN_ACT_QUARANTINE) {
            sim->engines[action.engine].quarantined = true;
        } else if (sim->pending_count < PENDING_MAX) {
            int64_t late = (int64_t)rng_below(&sim->rng, 5000);
            sim->pending[sim->pending_count++] = (Pending){sim->now_us + late, action};
        } else {
            CHECK(sim->pending_count < PENDING_MAX); /* four an engine at most */
        }
    }
}

static void deliver(Sim *sim, Txn *txn, int index)
{
    TxnAction action = sim->pending[index].action;
    sim->pending[index] = sim->pending[--sim->pending_count];
    TxnAnswer answer = {.kind = action.kind, .engine = action.engine, .seq = action.seq,
                        .incarnation = action.incarnation};
    float scores[CANARY];
    bool was_dead = action.engine >= 0 && sim->engines[action.engine].dead;
    bool answers = action.engine >= 0 ? engine_acts(sim, &action, &answer, scores)
                                      : core_acts(sim, &action, &answer);
    if (answers) {
        txn_answer(txn, &answer, sim->now_us);
        if (rng_below(&sim->rng, 20) == 0) { /* the network says it twice */
            txn_answer(txn, &answer, sim->now_us);
        }
    } else if (action.engine >= 0 && sim->engines[action.engine].dead && !was_dead) {
        txn_member_lost(txn, action.engine, action.incarnation, sim->now_us);
    }
}

static void run(Sim *sim, Txn *txn)
{
    txn_begin(txn, sim->now_us);
    take_actions(sim, txn);
    for (int turns = 0; !sim->ended && turns < 100000; turns++) {
        int64_t next = txn_next_due_us(txn);
        int which = -1;
        for (int i = 0; i < sim->pending_count; i++) {
            if (next == 0 || sim->pending[i].due_us < next) {
                next = sim->pending[i].due_us;
                which = i;
            }
        }
        if (next == 0) {
            break;
        }
        sim->now_us = next > sim->now_us ? next : sim->now_us;
        if (which >= 0) {
            deliver(sim, txn, which);
        } else {
            txn_tick(txn, sim->now_us);
        }
        take_actions(sim, txn);
    }
}

static Txn *make(Sim *sim, int count, int64_t from, int64_t to, uint64_t seed)
{
    sim->count = count;
    sim->now_us = 1000; /* 0 means "no time" to the machine */
    rng_seed(&sim->rng, seed);
    TxnMember members[ENGINES_MAX];
    for (int i = 0; i < count; i++) {
        sim->engines[i].version = sim->engines[i].weights = from;
        members[i] = (TxnMember){.engine = i, .incarnation = 3, .holds = from >= 0};
    }
    TxnConfig config = {.txn = 1, .from_version = from, .to_version = to, .apply_retries = 1,
                        .flush_retries = 5};
    return txn_new(&config, members, count);
}

/* The rules that must hold whatever broke. */
static void judge(const Sim *sim, int64_t from, int64_t to, uint64_t seed)
{
    char at[64];
    snprintf(at, sizeof at, "seed %llu", (unsigned long long)seed);
    bool good = sim->ended && !sim->gate_closed && !sim->continued_before_decision;
    if (sim->artifact_bad) {
        good = good && sim->decisions == 0 && !sim->gate_was_closed && !sim->committed;
    } else {
        good = good && sim->decisions == 1 && sim->committed == sim->decided_commit;
    }
    int64_t want = sim->committed ? to : from;
    for (int i = 0; i < sim->count; i++) {
        const SimEngine *e = &sim->engines[i];
        if (!e->dead && !e->quarantined) {
            good = good && e->weights == want && e->version == want && !e->paused;
        }
    }
    good = good && sim->now_us < 2000LL * 1000000;
    test_result(good, __FILE__, __LINE__, at);
    if (!good) {
        fputc('\n', stderr);
    }
}

static void test_healthy_fleet_commits(void)
{
    Sim sim = {0};
    Txn *txn = make(&sim, 4, 3, 4, 1);
    run(&sim, txn);
    judge(&sim, 3, 4, 1);
    CHECK(sim.committed);
    CHECK(sim.now_us < 100000);
    txn_free(txn);
}

static Sim one_broken(Break broken, int64_t from)
{
    Sim sim = {0};
    Txn *txn = make(&sim, 3, from, from + 1, (uint64_t)broken + 7);
    sim.engines[1].broken = broken;
    run(&sim, txn);
    judge(&sim, from, from + 1, broken);
    txn_free(txn);
    return sim;
}

static void test_each_break_alone(void)
{
    CHECK(one_broken(APPLY_FAILS_ONCE, 3).committed);
    CHECK(one_broken(DIES_IN_APPLY, 3).committed);
    CHECK(one_broken(CONTINUE_FAILS, 3).committed);
    CHECK(one_broken(CONTINUE_FAILS, 3).engines[1].quarantined);
    Break back[] = {PAUSE_FAILS, FLUSH_FAILS, APPLY_FAILS, VERSION_LIES, WEIGHTS_LIE,
                    SILENT_APPLY, SILENT_ALWAYS, NAN_CANARY};
    for (size_t i = 0; i < sizeof back / sizeof back[0]; i++) {
        Sim sim = one_broken(back[i], 3);
        CHECK(!sim.committed);
        CHECK(!sim.engines[0].quarantined && !sim.engines[2].quarantined);
    }
    CHECK(one_broken(SILENT_APPLY, 3).engines[1].quarantined);
    CHECK(one_broken(NAN_CANARY, 3).engines[1].quarantined);
    /* It refuses every load, the one that would go back too, so nothing vouches for it. */
    CHECK(one_broken(APPLY_FAILS, 3).engines[1].quarantined);
}

static void test_first_update_has_no_way_back(void)
{
    Sim sim = one_broken(APPLY_FAILS, -1);
    CHECK(!sim.committed);
    CHECK(sim.engines[0].quarantined && sim.engines[1].quarantined && sim.engines[2].quarantined);
}

static void test_bad_artifact_pauses_nobody(void)
{
    Sim sim = {.artifact_bad = true};
    Txn *txn = make(&sim, 3, 3, 4, 5);
    run(&sim, txn);
    judge(&sim, 3, 4, 5);
    txn_free(txn);
}

static void test_decision_waits_for_the_log(void)
{
    Sim sim = {.log_failures = 4};
    Txn *txn = make(&sim, 3, 3, 4, 9);
    run(&sim, txn);
    judge(&sim, 3, 4, 9);
    CHECK(sim.now_us >= 4000000);
    txn_free(txn);
}

static void test_stale_answers_are_ignored(void)
{
    Sim sim = {0};
    Txn *txn = make(&sim, 1, 3, 4, 11);
    txn_begin(txn, 0);
    TxnAction check;
    CHECK(txn_next(txn, &check) && check.kind == TXN_ACT_CHECK);
    TxnAnswer wrong = {.kind = TXN_ACT_APPLY, .engine = 0, .seq = check.seq, .incarnation = 3,
                       .ok = true};
    txn_answer(txn, &wrong, 1);
    wrong.seq = 0;
    wrong.engine = -1;
    txn_answer(txn, &wrong, 1);
    txn_member_lost(txn, 0, 2, 1); /* an older incarnation died */
    CHECK_I64(txn_ignored(txn), 3);
    CHECK_I64(txn_phase(txn), TXN_CHECK);
    txn_free(txn);
}

static void test_random_fleets(void)
{
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        Sim sim = {0};
        Rng rng;
        rng_seed(&rng, seed);
        int count = 1 + (int)rng_below(&rng, ENGINES_MAX);
        int64_t from = (int64_t)rng_below(&rng, 4) - 1;
        Txn *txn = make(&sim, count, from, from + 1, seed);
        sim.artifact_bad = rng_below(&rng, 50) == 0;
        sim.log_failures = rng_below(&rng, 10) == 0 ? 2 : 0;
        for (int i = 0; i < count; i++) {
            sim.engines[i].broken = rng_below(&rng, 3) == 0 ? (Break)rng_below(&rng, BREAKS)
                                                            : WORKS;
        }
        /* Without the trainer's word a lying majority cannot be told from a truthful one. */
        bool liars = false;
        for (int i = 0; i < count; i++) {
            liars = liars || sim.engines[i].broken == VERSION_LIES;
        }
        if (liars || rng_below(&rng, 2) == 0) {
            float expect[CANARY];
            for (int i = 0; i < CANARY; i++) {
                expect[i] = canary_value(from + 1, i);
            }
            txn_expect(txn, expect, CANARY);
        }
        run(&sim, txn);
        judge(&sim, from, from + 1, seed);
        txn_free(txn);
    }
}

static void test_recovery(void)
{
    Recovery recovery;
    recover_begin(&recovery);
    CHECK_I64(recovery.committed, -1);
    RecoverClose write = recover_row(&recovery, &(LedgerRow){1, -1, 3, 1, true});
    CHECK(!write.close && !write.state);
    CHECK_I64(recovery.committed, 3);
    write = recover_row(&recovery, &(LedgerRow){2, 3, 4, 0, false});
    CHECK(write.close && write.state && !write.committed);
    write = recover_row(&recovery, &(LedgerRow){3, 3, 3, 1, false}); /* a fence */
    CHECK(write.close && !write.state);
    CHECK_I64(recovery.committed, 3);
    write = recover_row(&recovery, &(LedgerRow){4, 3, 5, 1, false});
    CHECK(write.close && write.state && write.committed);
    CHECK_I64(recovery.committed, 5);
    write = recover_row(&recovery, &(LedgerRow){5, 5, 6, -1, false});
    CHECK(write.close && write.state && !write.committed);
    CHECK_I64(recovery.committed, 5);
    CHECK_I64(recovery.last_txn, 5);
    CHECK_I64(recovery.last_version, 6);
    CHECK_I64(recovery.open, 4);
}

/* ---- own copies --------------------------------------------------------------------------- */

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
    RUN(test_healthy_fleet_commits);
    RUN(test_each_break_alone);
    RUN(test_first_update_has_no_way_back);
    RUN(test_bad_artifact_pauses_nobody);
    RUN(test_decision_waits_for_the_log);
    RUN(test_stale_answers_are_ignored);
    RUN(test_random_fleets);
    RUN(test_recovery);
    RUN(test_deltas_go_to_proved_copies);
    RUN(test_a_failed_pull_costs_nothing);
    RUN(test_an_odd_copy_is_left);
    RUN(test_a_lost_load_of_a_copy_is_in_doubt);
    RUN(test_a_hanging_pull_ends);
    RUN(test_an_unseen_artifact_pauses_nobody);
    RUN(test_a_pause_keeps_where_that_was_said);
    return test_end();
}
