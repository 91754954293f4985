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
    int64_t cache; /* weights behind what is kept of requests, over loads too; 0: empty */
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
    bool artifact_bad, gate_was_closed, unknown;
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
        e->cache = answer->ok ? 0 : e->cache;
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
        e->cache = e->cache != 0 ? e->cache : e->weights;
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
        members[i] = (TxnMember){.engine = i, .incarnation = 3, .holds = from >= 0,
                                 .unknown = sim->unknown};
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
            good = good && e->weights == want && e->version == want && !e->paused &&
                   (e->cache == 0 || e->cache == e->weights);
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

/* The same before anything is loaded: who is as it started goes on; but after a first update that
 * was cut short, an engine may hold bytes that nobody verified, under a version's name. (Found by
 * the simulator: seed 50833, 64 engines.) */
static void test_first_update_again(void)
{
    Sim sim = one_broken(FLUSH_FAILS, -1);
    CHECK(!sim.committed && !sim.engines[0].quarantined && !sim.engines[2].quarantined);
    sim = (Sim){.unknown = true};
    Txn *txn = make(&sim, 3, -1, 4, 21);
    sim.engines[1].broken = FLUSH_FAILS;
    run(&sim, txn);
    judge(&sim, -1, 4, 21);
    CHECK(!sim.committed);
    for (int i = 0; i < 3; i++) {
        CHECK(sim.engines[i].quarantined);
    }
    txn_free(txn);
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

int main(void)
{
    RUN(test_healthy_fleet_commits);
    RUN(test_each_break_alone);
    RUN(test_first_update_has_no_way_back);
    RUN(test_first_update_again);
    RUN(test_bad_artifact_pauses_nobody);
    RUN(test_decision_waits_for_the_log);
    RUN(test_stale_answers_are_ignored);
    RUN(test_random_fleets);
    RUN(test_recovery);
    return test_end();
}
