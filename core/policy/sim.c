#include "core/policy/sim.h"

#include "core/base/mem.h"
#include "core/policy/sim_world.h"

#include <stdlib.h>

static const int64_t EPISODE_US = INT64_C(40000000000); /* far more than any schedule needs */
static const int64_t QUIET_US = INT64_C(6000000000);
enum { UPDATES = 4 };

static void world_init(SimWorld *world, const SimConfig *config, SimReport *report)
{
    world->config = *config;
    world->report = report;
    rng_seed(&world->rng, config->seed);
    int chosen = 1 + (int)rng_below(&world->rng, 8);
    world->count = config->engines > 0 ? config->engines : chosen;
    world->count = world->count < SIM_ENGINES_MAX ? world->count : SIM_ENGINES_MAX;
    world->config.updates = config->updates > 0 ? config->updates : UPDATES;
    for (int i = 0; i < world->count; i++) {
        SimEngine *engine = &world->engines[i];
        *engine = (SimEngine){.incarnation = 1, .alive = true, .cache = -1, .copy_version = -1,
                              .has_checksum = rng_below(&world->rng, 3) != 0,
                              .keeps = rng_below(&world->rng, 2) == 0,
                              .looks = rng_below(&world->rng, 2) == 0,
                              .pulls = rng_below(&world->rng, 2) == 0,
                              .proves = rng_below(&world->rng, 2) == 0};
        if (rng_below(&world->rng, 10) == 0) { /* left behind by an earlier run */
            engine->copy = -7;
            engine->copy_version = (int64_t)rng_below(&world->rng, 4);
        }
    }
    /* From nearly none to several a transaction: eight calls an engine or so. */
    double mean = rng_unit(&world->rng) * 3.0;
    world->fault_chance = mean / (8.0 * (double)world->count);
    bool sick = rng_below(&world->rng, 2) == 0;
    world->sick = sick ? (int)rng_below(&world->rng, (uint64_t)world->count) : -1;
    world->inflight = (SimInflight)rng_below(&world->rng, 3);
    world->foreign = rng_below(&world->rng, 3) == 0;
    for (int i = 0; i < world->count && world->foreign; i++) {
        world->engines[i].opens = rng_below(&world->rng, 4) != 0;
    }
    world->check = sim_check_new();
    world->samples = sim_samples_new();
    world->core = sim_core_new(world);
}

/* Runs until the updates are done, then without faults until everybody serves, or in vain. */
static bool play(SimWorld *world)
{
    sim_schedule(world, 1000, EVENT_START, NULL);
    int64_t quiet_us = 0;
    while (world->now_us < EPISODE_US && !sim_check_broken(world->check) && sim_step(world)) {
        if (!world->quiet && sim_core_done(world)) {
            world->quiet = true;
            quiet_us = world->now_us;
        }
        if (world->quiet && sim_core_settled(world)) {
            return true;
        }
        if (world->quiet && world->now_us - quiet_us > QUIET_US) {
            return false;
        }
    }
    return false;
}

void sim_run(const SimConfig *config, SimReport *report)
{
    SimWorld *world = xcalloc(1, sizeof *world);
    *report = (SimReport){.passed = false};
    world_init(world, config, report);
    bool settled = play(world);
    sim_check_end(world->check, world, settled);
    const char *broken = sim_check_broken(world->check);
    report->passed = broken == NULL;
    report->virtual_us = world->now_us;
    if (broken) {
        snprintf(report->broken, sizeof report->broken, "%s", broken);
    }
    sim_core_free(world->core);
    sim_check_free(world->check);
    sim_samples_free(world->samples);
    free(world->heap);
    free(world->slots);
    free(world->spare);
    free(world->log);
    free(world);
}
