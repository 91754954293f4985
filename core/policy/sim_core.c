/* The core in the simulated world: it drives the real transaction (txn.h) and the real rule of
 * recovery (recover.h) as core/loop does: one fleet-wide transaction at a time, fences for single
 * engines between them (sim_jobs.c). Its memory ends with it; only the ledger stays. */
#include "core/policy/sim_core_private.h"

#include "core/base/mem.h"
#include "core/policy/recover.h"

#include <stdlib.h>

static const int64_t TICK_US = 2000000;
static const int64_t SETTLE_US = 10000000; /* calls of the core before this one have arrived */

SimCore *sim_core_new(SimWorld *world)
{
    SimCore *core = xcalloc(1, sizeof *core);
    for (int i = 0; i < world->count; i++) {
        core->seats[i].follows = -1;
    }
    return core;
}

void sim_core_died(SimWorld *world)
{
    SimCore *core = world->core;
    sim_samples_died(world->samples);
    int begun = core->begun;
    sim_job_free(core->main);
    for (int i = 0; i < SIM_FENCES; i++) {
        sim_job_free(core->fences[i]);
    }
    *core = (SimCore){.begun = begun};
    for (int i = 0; i < world->count; i++) {
        core->seats[i].follows = -1; /* after a restart of the core nothing is known of copies */
    }
}

void sim_core_free(SimCore *core)
{
    if (core) {
        sim_job_free(core->main);
        for (int i = 0; i < SIM_FENCES; i++) {
            sim_job_free(core->fences[i]);
        }
        free(core);
    }
}

void sim_core_synced(SimWorld *world)
{
    sim_job_synced(world, world->core->main);
    for (int i = 0; i < SIM_FENCES; i++) {
        sim_job_synced(world, world->core->fences[i]);
    }
}

/* ---- start of transactions ---------------------------------------------------------------- */

static int64_t publish(SimWorld *world)
{
    SimCore *core = world->core;
    int64_t version = core->published = core->next_version++;
    bool damaged = !world->config.calm && !world->quiet && rng_below(&world->rng, 25) == 0;
    world->truth[version] = 1000 + ++world->publications;
    world->bad[version] = damaged;
    SimEntry entry = {.kind = ENTRY_POLICY, .to = version, .engine = -1,
                      .weights = world->truth[version], .commit = !damaged};
    sim_write(world, &entry);
    return version;
}

/* Mostly a new policy; now and then the operator goes back to an older good one. */
static int64_t next_target(SimWorld *world)
{
    SimCore *core = world->core;
    if (core->committed > 1 && rng_below(&world->rng, 10) == 0) {
        int64_t old = 1 + (int64_t)rng_below(&world->rng, (uint64_t)core->committed);
        if (!world->bad[old] && old != core->committed) {
            return old;
        }
    }
    return publish(world);
}

static void start_main(SimWorld *world)
{
    SimCore *core = world->core;
    int members = 0;
    for (int i = 0; i < world->count; i++) {
        members += sim_member_now(world, i);
    }
    if (members == 0) {
        return;
    }
    bool settle = core->settle && core->committed >= 0;
    world->fault_at = 1 + (int64_t)rng_below(&world->rng, (uint64_t)members * 6);
    int64_t to = settle ? core->committed : next_target(world);
    core->begun += !settle;
    core->update_us = world->now_us + TICK_US + (int64_t)rng_below(&world->rng, 20000000);
    world->report->transactions++;
    core->main = sim_job_start(world, to, -1);
    sim_job_pump(world, core->main);
}

static void start_fences(SimWorld *world)
{
    SimCore *core = world->core;
    for (int i = 0; i < world->count; i++) {
        Seat *seat = &core->seats[i];
        if (!seat->bring || seat->due_us > world->now_us || !sim_member_now(world, i)) {
            continue;
        }
        int slot = -1;
        bool busy = false;
        for (int j = 0; j < SIM_FENCES; j++) {
            busy = busy || (core->fences[j] && core->fences[j]->engine == i);
            slot = core->fences[j] ? slot : j;
        }
        if (slot < 0) {
            return;
        }
        if (!busy && !world->dying) {
            world->report->fences++;
            core->fences[slot] = sim_job_start(world, core->committed, i);
            sim_job_pump(world, core->fences[slot]);
        }
    }
}

/* ---- time --------------------------------------------------------------------------------- */

/* A probe of every engine: who is there, as which process, saying which version. */
static void probe(SimWorld *world)
{
    SimCore *core = world->core;
    for (int i = 0; i < world->count; i++) {
        Seat *seat = &core->seats[i];
        const SimEngine *engine = &world->engines[i];
        bool other = engine->alive && seat->incarnation != engine->incarnation;
        bool gone = !engine->alive && seat->incarnation > 0;
        if (other || gone) {
            int64_t old = seat->incarnation;
            sim_seat_out(world, i);
            *seat = (Seat){.incarnation = engine->alive ? engine->incarnation : 0, .verified = -1,
                           .follows = -1, .bring = true, .odd = seat->odd};
            sim_job_lost(world, core->main, i, old);
            for (int j = 0; j < SIM_FENCES; j++) {
                sim_job_lost(world, core->fences[j], i, old);
            }
        } else if (seat->admitted && !core->main && engine->version != seat->verified) {
            seat->bring = true;
            sim_seat_out(world, i);
        }
    }
}

static void tick_job(SimWorld *world, Job **slot)
{
    Job *job = *slot;
    if (job && !job->over) {
        int64_t due = txn_next_due_us(job->txn);
        if (due > 0 && world->now_us >= due) {
            txn_tick(job->txn, world->now_us);
            sim_job_pump(world, job);
        }
    }
    if (job && job->over) {
        sim_job_free(job);
        *slot = NULL;
    }
}

int64_t sim_core_serves(const SimWorld *world, int engine)
{
    const Seat *seat = &world->core->seats[engine];
    return seat->admitted ? seat->incarnation : 0;
}

static bool fencing(const SimCore *core)
{
    for (int i = 0; i < SIM_FENCES; i++) {
        if (core->fences[i]) {
            return true;
        }
    }
    return false;
}

void sim_core_tick(SimWorld *world)
{
    SimCore *core = world->core;
    for (int i = 0; i < world->count && world->now_us >= core->window_due_us; i++) {
        sim_scored(world, i);
    }
    probe(world);
    tick_job(world, &core->main);
    for (int i = 0; i < SIM_FENCES; i++) {
        tick_job(world, &core->fences[i]);
    }
    if (core->gate_open) {
        sim_samples_tick(world);
    }
    bool wanted = (core->settle && core->committed >= 0) || core->committed < 0 ||
                  core->begun < world->config.updates;
    if (!core->main && world->now_us >= core->start_us + SETTLE_US) {
        bool due = wanted && world->now_us >= core->update_us &&
                   core->next_version < SIM_VERSIONS_MAX;
        if (due && !fencing(core)) {
            start_main(world);
        } else if (!due && core->committed >= 0) {
            start_fences(world);
        }
    }
    SimMessage message = {.life = world->life};
    bool busy = core->main || fencing(core);
    sim_schedule(world, world->now_us + (busy ? TICK_US / 8 : TICK_US), EVENT_TICK, &message);
}

bool sim_core_settled(const SimWorld *world)
{
    const SimCore *core = world->core;
    bool settled = world->core_alive && !core->main && !fencing(core) && !core->settle &&
                   core->committed >= 0 && core->gate_open;
    for (int i = 0; i < world->count && settled; i++) {
        settled = world->engines[i].alive && core->seats[i].admitted;
    }
    return settled;
}

bool sim_core_done(const SimWorld *world)
{
    return world->core_alive && !world->core->main && world->core->begun >= world->config.updates;
}

/* What a core does when it starts: the ledger says what stands; nobody serves until verified. */
void sim_core_start(SimWorld *world)
{
    SimCore *core = world->core;
    Recovery recovery;
    recover_begin(&recovery);
    size_t entries = world->entries; /* what is written below is not read again */
    for (size_t i = 0; i < entries && !world->dying; i++) {
        const SimEntry *entry = &world->log[i];
        if (entry->kind != ENTRY_TXN || entry->lost) {
            continue;
        }
        LedgerRow row = {.txn = entry->txn, .from_version = entry->from, .to_version = entry->to,
                         .decided = -1};
        for (size_t j = i + 1; j < entries; j++) {
            const SimEntry *later = &world->log[j];
            bool same = !later->lost && later->txn == row.txn;
            row.decided = same && later->kind == ENTRY_DECISION ? later->commit : row.decided;
            row.ended = row.ended || (same && later->kind == ENTRY_END);
        }
        RecoverClose write = recover_row(&recovery, &row);
        SimEntry state = {.kind = ENTRY_STATE, .txn = row.txn, .to = row.to_version,
                          .engine = -1, .commit = write.committed};
        SimEntry close = {.kind = ENTRY_END, .txn = row.txn, .from = row.from_version,
                          .to = row.to_version, .engine = -1, .commit = write.committed};
        if (write.state) {
            sim_write(world, &state);
        }
        if (write.close) {
            sim_write(world, &close);
        }
    }
    core->committed = recovery.committed;
    sim_samples_policy(world, recovery.committed);
    core->next_txn = recovery.last_txn + 1;
    core->next_version = recovery.last_version < 1 ? 1 : recovery.last_version + 1;
    core->settle = true;
    core->start_us = world->now_us;
    SimEntry entry = {.kind = ENTRY_START, .to = core->committed, .engine = -1};
    sim_note(world, &entry);
    SimMessage message = {.life = world->life};
    sim_schedule(world, world->now_us + TICK_US / 8, EVENT_TICK, &message);
}
