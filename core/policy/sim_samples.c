/* Generation in the simulated world. Engines make a sample token by token, each by the weights
 * behind its keys and values, stamped with the version that the engine says; a pause aborts what
 * runs or, where the engine can and is told to, keeps it. The core (as core/rollout and core/loop
 * do) takes a sample whose spans the batch's policies allow, and goes on from what a cut one left,
 * on any engine. Judged by sim_check.c: rule 3, span by span. */
#include "core/base/mem.h"
#include "core/policy/sim_world.h"
#include "core/policy/txn_planted.h"

#include <stdlib.h>
#include <string.h>

enum { WAITING_MAX = 32, STARTS_A_TICK = 2, TOKENS_MAX = 5, HELD_MAX = 2 };
static const int64_t TOKEN_LEAST_US = 100000;
static const int64_t TOKEN_MOST_US = 1500000;
static const int64_t LOOK_AGAIN_US = 700000;

struct SimSamples { /* the core's; dies with it */
    SimMessage waiting[WAITING_MAX]; /* cut ones, with their spans */
    int count;
    int64_t policy, before; /* the batch's, and the one that it replaced; -1 none */
};

SimSamples *sim_samples_new(void)
{
    SimSamples *samples = xcalloc(1, sizeof *samples);
    sim_samples_died(samples);
    return samples;
}

void sim_samples_free(SimSamples *samples)
{
    free(samples);
}

void sim_samples_died(SimSamples *samples)
{
    *samples = (SimSamples){.policy = -1, .before = -1};
}

/* ---- engines ------------------------------------------------------------------------------ */

void sim_engine_pause(SimEngine *engine, bool keep)
{
    keep = keep && engine->keeps;
    engine->aborts += !keep; /* what runs ends with its next step */
    engine->paused = true;
}

void sim_engine_flush(SimEngine *engine)
{
    engine->cache = -1;
    engine->flushes++; /* what a pause keeps has to be computed anew */
}

static void add_token(SimMessage *message, int64_t weights, int64_t version)
{
    SimSpan *last = message->span_count > 0 ? &message->spans[message->span_count - 1] : NULL;
    if (last && last->weights == weights && last->version == version) {
        last->tokens++;
    } else if (message->span_count < SIM_SPANS_MAX) {
        message->spans[message->span_count++] = (SimSpan){weights, version, 1};
    }
    message->left--;
}

static int64_t token_us(SimWorld *world)
{
    return TOKEN_LEAST_US +
           (int64_t)rng_below(&world->rng, (uint64_t)(TOKEN_MOST_US - TOKEN_LEAST_US));
}

/* A request comes: while the engine is paused it is not taken, or held for a frontend of others. */
void sim_engine_begin(SimWorld *world, SimMessage *message)
{
    SimEngine *engine = &world->engines[message->engine];
    message->aborts = engine->aborts;
    message->flushes = engine->flushes - 1; /* nothing is computed yet */
    message->windows = engine->windows;
    message->held = engine->paused && world->foreign && engine->held < HELD_MAX;
    engine->held += message->held;
    if (engine->paused && !message->held) {
        message->ok = false;
        sim_schedule(world, world->now_us + TOKEN_LEAST_US, EVENT_ANSWERS, message);
    } else {
        sim_schedule(world, world->now_us + token_us(world), EVENT_ACTS, message);
    }
}

/* It waits behind a pause, which cannot abort it. A canary lets it through for a moment, and the
 * pause that follows ends it. True: that is all for now. */
static bool held_back(SimWorld *world, SimEngine *engine, SimMessage *message)
{
    bool stays = message->windows == engine->windows && engine->paused;
    engine->held -= !stays;
    if (message->windows != engine->windows) {
        message->first_us = message->first_us > 0 ? message->first_us : engine->window_us;
        int tokens = 1 + (int)rng_below(&world->rng, (uint64_t)message->left);
        while (tokens-- > 0) {
            add_token(message, engine->window_weights, engine->window_version);
        }
        message->ok = message->left == 0;
        message->unknown = !message->ok && rng_below(&world->rng, 2) == 0; /* cut by its frontend */
        sim_schedule(world, world->now_us + TOKEN_LEAST_US, EVENT_ANSWERS, message);
        return true;
    }
    if (stays) {
        sim_schedule(world, world->now_us + LOOK_AGAIN_US, EVENT_ACTS, message);
        return true;
    }
    message->held = false;
    message->aborts = engine->aborts;
    message->flushes = engine->flushes - 1;
    return false;
}

/* The next token is due, or its process has ended, or a pause has aborted it. */
void sim_engine_token(SimWorld *world, SimMessage *message)
{
    SimEngine *engine = &world->engines[message->engine];
    if (message->life != world->life) {
        engine->held -= message->held && engine->incarnation == message->process;
        return; /* nobody listens; the connection's end has ended it */
    }
    bool lost = !engine->alive || engine->incarnation != message->process;
    if (!lost && message->held && held_back(world, engine, message)) {
        return;
    }
    bool aborted = !lost && message->aborts != engine->aborts;
    message->ok = false;
    message->unknown = lost;
    if (lost || aborted) {
        sim_schedule(world, world->now_us + TOKEN_LEAST_US, EVENT_ANSWERS, message);
        return;
    }
    if (engine->paused) {
        sim_schedule(world, world->now_us + LOOK_AGAIN_US, EVENT_ACTS, message);
        return;
    }
    if (message->flushes != engine->flushes) { /* computed from the start, or its shared part */
        message->kv = engine->cache >= 0 ? engine->cache : engine->weights;
        engine->cache = message->kv;
        message->flushes = engine->flushes;
    }
    message->first_us = message->first_us > 0 ? message->first_us : world->now_us;
    add_token(message, message->kv, engine->version);
    message->ok = message->left == 0;
    sim_schedule(world, world->now_us + (message->ok ? TOKEN_LEAST_US : token_us(world)),
                 message->ok ? EVENT_ANSWERS : EVENT_ACTS, message);
}

/* ---- the core ----------------------------------------------------------------------------- */

/* The fleet holds that policy from now on; told before the gate opens. */
void sim_samples_policy(SimWorld *world, int64_t version)
{
    SimSamples *samples = world->samples;
    if (version != samples->policy) {
        samples->before = samples->policy;
        samples->policy = version;
    }
}

static bool allowed(const SimWorld *world, const SimMessage *message, bool past_update)
{
    const SimSamples *samples = world->samples;
    bool newer = false;
    for (int i = 0; i < message->span_count; i++) {
        int64_t version = message->spans[i].version;
        bool old = past_update && version == samples->before && !newer;
        if (version != samples->policy && !old && !TXN_PLANTED(PLANTED_STALE)) {
            return false;
        }
        newer = newer || version == samples->policy;
    }
    return message->span_count > 0;
}

static void take(SimWorld *world, const SimMessage *message)
{
    for (int i = 0; i < message->span_count; i++) {
        SimEntry entry = {.kind = ENTRY_SAMPLE, .from = world->samples->policy,
                          .to = message->spans[i].version, .engine = message->engine,
                          .incarnation = message->incarnation,
                          .weights = message->spans[i].weights, .commit = true};
        sim_note(world, &entry);
    }
    world->report->crossed += message->span_count > 1;
}

void sim_samples_answer(SimWorld *world, const SimMessage *message)
{
    SimSamples *samples = world->samples;
    bool past_update = world->inflight != SIM_INFLIGHT_ABORT;
    bool serves = world->foreign || /* then nobody says who made it */
                  sim_core_serves(world, message->engine) == message->incarnation;
    bool vouched = !sim_core_unvouched(world, message);
    if (message->ok) {
        bool fits = serves && vouched && allowed(world, message, past_update);
        world->report->samples += fits;
        world->report->refused += !fits;
        if (fits) {
            take(world, message);
        }
        return;
    }
    /* Aborted ones go on only where the setting says so, cut ones under the same policy always. */
    bool goes_on = message->span_count > 0 && samples->count < WAITING_MAX &&
                   (past_update || message->unknown) && vouched;
    if (goes_on) {
        samples->waiting[samples->count++] = *message;
    }
}

static bool send(SimWorld *world, SimMessage *message)
{
    int engine = (int)rng_below(&world->rng, (uint64_t)world->count);
    int64_t incarnation = world->foreign ? world->engines[engine].incarnation
                                         : sim_core_serves(world, engine);
    if (incarnation == 0 || !world->engines[engine].alive) {
        return false;
    }
    message->call = SIM_GENERATE;
    message->engine = engine;
    message->incarnation = incarnation;
    message->version = world->samples->policy;
    for (int i = 0; i < message->span_count && TXN_PLANTED(PLANTED_RESTAMPED); i++) {
        message->spans[i].version = message->version;
    }
    sim_send(world, message);
    return true;
}

/* Cut ones first. Before one goes on it is looked at again: the policy may be another one now. */
void sim_samples_tick(SimWorld *world)
{
    SimSamples *samples = world->samples;
    bool past_update = world->inflight != SIM_INFLIGHT_ABORT;
    for (int i = 0; i < STARTS_A_TICK; i++) {
        SimMessage message = {.left = 1 + (int)rng_below(&world->rng, TOKENS_MAX)};
        SimMessage *cut = samples->count > 0 ? &samples->waiting[samples->count - 1] : NULL;
        bool resumes = cut && allowed(world, cut, past_update);
        if (resumes) {
            message.left = cut->left;
            message.span_count = cut->span_count;
            memcpy(message.spans, cut->spans, sizeof message.spans);
        }
        if (send(world, &message)) {
            samples->count -= cut != NULL;
            world->report->resumed += resumes;
        }
    }
}
