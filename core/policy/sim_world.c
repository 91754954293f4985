/* Engines, network, disk and clock of the simulator: one heap of events in virtual time.
 *
 * What is assumed of the real world: an engine works on control calls one after the other, as they
 * arrive; a call takes up to 2 s to arrive, at whichever process has the address then, or
 * (FAULT_LATE) up to 500 s through a proxy while the core that sent it and the process it was for
 * both live; what a dead core sent arrives within 5 s or never; the disk keeps what was synced and
 * any prefix of the rest; an engine that makes what it was given while its canary runs does not do
 * so long after that was given up. */
#include "core/policy/sim_world.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>

enum { DEAD_CORE_ARRIVAL_US = 5000000, RESTART_MIN_US = 1000000, DEATHS_MAX = 8 };
static const double SICK_CHANCE = 0.12; /* of each call to the engine that is sick */
static const int64_t MS_US = 1000;
static const int64_t SEC_US = 1000000;

#define SIM_NAME(name, words) words,
static const char *const call_names[] = {SIM_CALLS(SIM_NAME)};
static const char *const fault_names[] = {SIM_FAULTS(SIM_NAME)};
static const char *const entry_names[] = {SIM_ENTRIES(SIM_NAME)};

float sim_canary(int64_t weights, int i)
{
    uint64_t mix = ((uint64_t)weights + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return -0.5F - (float)((mix >> (8 * i + 8)) % 64) * 0.25F;
}

static int64_t between(SimWorld *world, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(&world->rng, (uint64_t)(high - low + 1));
}

static bool chance(SimWorld *world, double p)
{
    return rng_unit(&world->rng) < p;
}

/* ---- clock: a binary heap ----------------------------------------------------------------- */

static bool before(const SimDue *a, const SimDue *b)
{
    return a->t_us < b->t_us || (a->t_us == b->t_us && a->order < b->order);
}

static void grow(SimWorld *world)
{
    size_t old = world->heap_capacity;
    world->heap_capacity = old ? old * 2 : 256;
    world->heap = xrealloc(world->heap, world->heap_capacity, sizeof *world->heap);
    world->slots = xrealloc(world->slots, world->heap_capacity, sizeof *world->slots);
    world->spare = xrealloc(world->spare, world->heap_capacity, sizeof *world->spare);
    for (size_t slot = world->heap_capacity; slot > old; slot--) {
        world->spare[world->spares++] = (uint32_t)(slot - 1);
    }
}

void sim_schedule(SimWorld *world, int64_t t_us, SimEventKind kind, const SimMessage *message)
{
    if (world->events == world->heap_capacity) {
        grow(world);
    }
    SimDue due = {.t_us = t_us, .order = world->order++, .slot = world->spare[--world->spares]};
    SimEvent *event = &world->slots[due.slot];
    event->kind = kind;
    event->message = message ? *message : (SimMessage){0};
    size_t at = world->events++;
    while (at > 0 && before(&due, &world->heap[(at - 1) / 2])) {
        world->heap[at] = world->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    world->heap[at] = due;
}

/* Takes the earliest event out; its time becomes the present. */
static SimEvent take(SimWorld *world)
{
    SimDue top = world->heap[0];
    SimDue last = world->heap[--world->events];
    size_t at = 0;
    for (size_t child = 1; child < world->events; child = 2 * at + 1) {
        if (child + 1 < world->events && before(&world->heap[child + 1], &world->heap[child])) {
            child++;
        }
        if (!before(&world->heap[child], &last)) {
            break;
        }
        world->heap[at] = world->heap[child];
        at = child;
    }
    world->heap[at] = last;
    world->now_us = top.t_us;
    world->spare[world->spares++] = top.slot;
    return world->slots[top.slot];
}

/* ---- disk --------------------------------------------------------------------------------- */

static void trace(const SimWorld *world, const SimEntry *entry)
{
    if (world->config.trace) {
        fprintf(world->config.trace,
                "%13.6f %-12s txn %lld %lld->%lld engine %d inc %lld weights %lld%s%s%s\n",
                (double)entry->t_us / 1e6, entry_names[entry->kind], (long long)entry->txn,
                (long long)entry->from, (long long)entry->to, entry->engine,
                (long long)entry->incarnation, (long long)entry->weights,
                entry->commit ? " commit" : "", entry->fleet ? " fleet" : "",
                entry->kind == ENTRY_SENT ? call_names[entry->call] : "");
    }
}

void sim_note(SimWorld *world, SimEntry *entry)
{
    entry->t_us = world->now_us;
    trace(world, entry);
    sim_check_entry(world->check, world, entry);
}

static bool dies_by_chance(SimWorld *world, double p)
{
    return world->config.die_after_write == 0 && !world->config.calm && !world->quiet &&
           world->report->deaths < DEATHS_MAX && chance(world, p);
}

void sim_write(SimWorld *world, SimEntry *entry)
{
    if (world->dying) {
        return; /* the instruction after its last one */
    }
    sim_note(world, entry);
    if (world->entries == world->log_capacity) {
        world->log_capacity = world->log_capacity ? world->log_capacity * 2 : 64;
        world->log = xrealloc(world->log, world->log_capacity, sizeof *world->log);
    }
    world->log[world->entries++] = *entry;
    world->report->writes++;
    if (!world->sync_due) { /* group commit; now and then the disk is slow or refuses for a time */
        world->sync_due = true;
        bool stuck = !world->quiet && !world->config.calm && chance(world, 0.01);
        int64_t late = stuck ? between(world, SEC_US, 20 * SEC_US)
                             : between(world, MS_US, 30 * MS_US);
        SimMessage message = {.life = world->life};
        sim_schedule(world, world->now_us + late, EVENT_SYNCED, &message);
    }
    bool asked = world->config.die_after_write > 0 &&
                 world->report->writes == world->config.die_after_write;
    world->dying = asked || dies_by_chance(world, 0.01);
}

static void sync_now(SimWorld *world)
{
    world->sync_due = false;
    for (; world->synced < world->entries; world->synced++) {
        SimEntry *entry = &world->log[world->synced];
        entry->durable = true;
        if (!entry->lost) {
            sim_check_durable(world->check, world, entry);
        }
    }
}

/* The core dies: what was not synced is gone, all of it or from some point on. */
static void die(SimWorld *world)
{
    SimLoss loss = world->config.die_after_write > 0 ? world->config.loss : SIM_LOSE_BY_CHANCE;
    size_t keep = world->synced;
    if (loss == SIM_KEEP_UNSYNCED) {
        keep = world->entries;
    } else if (loss == SIM_LOSE_BY_CHANCE) {
        keep += (size_t)rng_below(&world->rng, (uint64_t)(world->entries - world->synced + 1));
    }
    for (size_t i = keep; i < world->entries; i++) {
        world->log[i].lost = true;
    }
    world->dying = false;
    world->core_alive = false;
    world->life++;
    world->report->deaths++;
    SimEntry entry = {.kind = ENTRY_DEATH, .engine = -1};
    sim_note(world, &entry);
    sync_now(world); /* what survived is what is there after the restart */
    sim_core_died(world);
    sim_schedule(world, world->now_us + between(world, RESTART_MIN_US, 30 * SEC_US), EVENT_START,
                 NULL);
}

/* ---- network and faults ------------------------------------------------------------------- */

static bool fits(SimFault fault, SimCall call)
{
    switch (fault) {
    case FAULT_OTHER_BYTES:
    case FAULT_PARTIAL:
    case FAULT_VERSION_ONLY:
    case FAULT_WEIGHTS_ONLY: return call == SIM_APPLY;
    case FAULT_NO_FLUSH: return call == SIM_FLUSH;
    case FAULT_BLIND: return call == SIM_LOOK || call == SIM_APPLY;
    case FAULT_HALF:
    case FAULT_ROT: return call == SIM_PULL;
    case FAULT_NAN: return call == SIM_SCORE;
    case FAULT_NONE: return false;
    case FAULT_SLOW:
    case FAULT_HANG:
    case FAULT_LATE:
    case FAULT_ERROR:
    case FAULT_LOST:
    case FAULT_TWICE:
    case FAULT_VANISH:
    case FAULT_COUNT: break;
    }
    return true;
}

static SimFault draw_fault(SimWorld *world, SimCall call, int engine)
{
    if (world->quiet || world->config.calm || call == SIM_GENERATE) {
        return FAULT_NONE;
    }
    bool certain = world->fault_at > 0 && --world->fault_at == 0;
    double p = engine == world->sick ? SICK_CHANCE : world->fault_chance;
    if (!certain && !chance(world, p)) {
        return FAULT_NONE;
    }
    SimFault fault = FAULT_NONE;
    bool opens = call == SIM_SCORE && world->engines[engine].opens;
    while (!fits(fault, call) || (opens && (fault == FAULT_LATE || fault == FAULT_SLOW))) {
        fault = (SimFault)rng_below(&world->rng, FAULT_COUNT);
    }
    world->report->faults++;
    return fault;
}

void sim_send(SimWorld *world, SimMessage *message)
{
    if (world->dying) {
        return;
    }
    message->sent_us = world->now_us;
    message->life = world->life;
    message->fault = draw_fault(world, message->call, message->engine);
    SimEntry entry = {.kind = ENTRY_SENT, .txn = message->txn, .to = message->version,
                      .engine = message->engine, .incarnation = message->incarnation,
                      .call = message->call, .base = message->base};
    sim_note(world, &entry);
    if (world->config.trace && message->fault != FAULT_NONE) {
        fprintf(world->config.trace, "%13s fault: %s\n", "", fault_names[message->fault]);
    }
    world->dying = dies_by_chance(world, 0.002 / (double)world->count);
    if (message->fault == FAULT_HANG) {
        return;
    }
    int64_t delay = chance(world, 0.02) ? between(world, 100 * MS_US, 2 * SEC_US)
                                        : between(world, 100, 3 * MS_US);
    if (message->fault == FAULT_LATE) {
        bool budget = message->call == SIM_SCORE || chance(world, 0.5); /* just as that ends */
        delay = budget ? between(world, 58 * SEC_US, 75 * SEC_US)
                       : between(world, 20 * SEC_US, 500 * SEC_US);
    }
    sim_schedule(world, world->now_us + delay, EVENT_ARRIVES, message);
}

/* ---- engines ------------------------------------------------------------------------------ */

static void vanish(SimWorld *world, int index)
{
    SimEngine *engine = &world->engines[index];
    engine->alive = false;
    SimMessage message = {.engine = index};
    sim_schedule(world, world->now_us + between(world, SEC_US, 60 * SEC_US), EVENT_RETURNS,
                 &message);
}

/* A new process: initial weights, nothing paused, nothing cached; the copy on its disk stays. */
static void come_back(SimWorld *world, int index)
{
    SimEngine *engine = &world->engines[index];
    *engine = (SimEngine){.incarnation = engine->incarnation + 1, .alive = true, .cache = -1,
                          .has_checksum = engine->has_checksum, .pulls = engine->pulls,
                          .looks = engine->looks, .blind_us = engine->blind_us,
                          .keeps = engine->keeps, .opens = engine->opens,
                          .proves = engine->proves, .copy = engine->copy,
                          .copy_version = engine->copy_version};
}

static int64_t duration(SimWorld *world, const SimMessage *message)
{
    int64_t took = between(world, 100, 4 * MS_US);
    if (message->call == SIM_APPLY || message->call == SIM_PULL) {
        took = between(world, 200 * MS_US, 8 * SEC_US);
    }
    if (message->fault == FAULT_SLOW) {
        took += between(world, SEC_US, 400 * SEC_US);
    }
    return took;
}

static void arrives(SimWorld *world, SimMessage *message)
{
    SimEngine *engine = &world->engines[message->engine];
    bool dead_sender = message->life != world->life;
    bool dead_connection = message->fault == FAULT_LATE &&
                           message->incarnation != engine->incarnation;
    if (dead_connection ||
        (dead_sender && world->now_us - message->sent_us > DEAD_CORE_ARRIVAL_US)) {
        return;
    }
    if (!engine->alive) {
        if (chance(world, 0.5)) { /* connection refused; else silence */
            message->ok = false;
            sim_schedule(world, world->now_us + between(world, 100, MS_US), EVENT_ANSWERS,
                         message);
        }
        return;
    }
    message->process = engine->incarnation; /* an address knows no incarnations */
    if (message->call == SIM_GENERATE) {
        sim_engine_begin(world, message);
        return;
    }
    int64_t start = world->now_us;
    bool beside = message->call == SIM_VERSION || message->call == SIM_PULL ||
                  message->call == SIM_LOOK || (message->call == SIM_SCORE && engine->opens);
    if (!beside) {
        start = engine->busy_us > start ? engine->busy_us : start;
        engine->busy_us = start + duration(world, message);
        start = engine->busy_us;
    } else {
        start += duration(world, message);
    }
    sim_schedule(world, start, EVENT_ACTS, message);
}

static void load(SimWorld *world, SimEngine *engine, const SimMessage *message)
{
    int64_t right = message->own_copy ? engine->copy : world->truth[message->version];
    bool other = message->fault == FAULT_OTHER_BYTES || message->fault == FAULT_PARTIAL;
    if (message->fault != FAULT_VERSION_ONLY) {
        engine->weights = other ? -1 - (int64_t)rng_below(&world->rng, 1000000) : right;
    }
    if (message->fault != FAULT_WEIGHTS_ONLY && message->fault != FAULT_PARTIAL) {
        engine->version = message->version;
    }
    SimEntry entry = {.kind = ENTRY_LOADED, .to = message->version, .engine = message->engine,
                      .incarnation = engine->incarnation, .weights = engine->weights,
                      .own_copy = message->own_copy && !other};
    sim_note(world, &entry);
}

static int64_t garbage(SimWorld *world)
{
    return -1 - (int64_t)rng_below(&world->rng, 1000000);
}

/* As slime's: at or past the target nothing is done, and that is a success. A delta on bytes that
 * are not its base makes other weights: refused before by who proves the base, else noticed or not
 * by the sums of the tensors that changed. `again`: the marker was not written in between. */
static bool pull(SimWorld *world, SimEngine *engine, const SimMessage *message, bool again)
{
    if (message->fault == FAULT_ROT) {
        engine->copy = garbage(world);
    }
    if (!again && engine->copy_version >= message->version) {
        return true;
    }
    bool delta = message->base >= 0;
    if (delta && !again && engine->copy_version != message->base) {
        return false; /* out of order */
    }
    bool fits = !delta || (!again && engine->copy == world->truth[message->base]);
    if (!fits && engine->proves) {
        return again; /* the second time it finds the new version */
    }
    bool half = message->fault == FAULT_HALF;
    bool unnoticed = fits || rng_below(&world->rng, 2) == 0;
    engine->copy = fits && !half ? world->truth[message->version] : garbage(world);
    if (half || !unnoticed) {
        return false;
    }
    engine->copy_version = message->version;
    return true;
}

static void act(SimWorld *world, SimEngine *engine, SimMessage *message, bool again)
{
    message->ok = true;
    switch (message->call) {
    case SIM_PAUSE: sim_engine_pause(engine, message->keep); break;
    case SIM_CONTINUE: engine->paused = false; break;
    case SIM_FLUSH:
        if (message->fault == FAULT_NO_FLUSH) {
            engine->refusals = (int)between(world, 1, 30);
        }
        message->ok = engine->refusals == 0;
        engine->refusals -= engine->refusals > 0;
        if (message->ok) {
            sim_engine_flush(engine);
        }
        break;
    case SIM_APPLY:
        message->ok = message->own_copy || engine->blind_us <= world->now_us;
        if (message->ok) {
            load(world, engine, message);
        }
        message->ok = message->ok && message->fault != FAULT_PARTIAL;
        break;
    case SIM_LOOK:
        message->unsupported = !engine->looks;
        message->ok = engine->looks && engine->blind_us <= world->now_us;
        message->unseen = engine->looks && !message->ok;
        break;
    case SIM_PULL: message->ok = engine->pulls && pull(world, engine, message, again); break;
    case SIM_VERSION: message->reported = engine->version; break;
    case SIM_CHECKSUM:
        message->ok = engine->has_checksum;
        message->unsupported = !engine->has_checksum;
        message->weights = engine->weights;
        break;
    case SIM_SCORE: /* as SGLang: its keys and values stay in the cache, over later loads too */
        engine->cache = engine->cache >= 0 ? engine->cache : engine->weights;
        engine->windows += engine->opens;
        engine->window_us = world->now_us;
        engine->window_weights = engine->weights;
        engine->window_version = engine->version;
        for (int i = 0; i < SIM_CANARY; i++) {
            message->scores[i] = message->fault == FAULT_NAN ? NAN
                                                             : sim_canary(engine->weights, i);
        }
        break;
    case SIM_GENERATE: break; /* token by token */
    case SIM_CALL_COUNT: break;
    }
}

static void acts(SimWorld *world, SimMessage *message)
{
    SimEngine *engine = &world->engines[message->engine];
    if (message->call == SIM_GENERATE) {
        sim_engine_token(world, message);
        return;
    }
    if (!engine->alive || engine->incarnation != message->process) {
        return;
    }
    if (message->fault == FAULT_BLIND) {
        engine->blind_us = world->now_us + between(world, SEC_US, 90 * SEC_US);
    }
    if (message->fault == FAULT_ERROR) {
        message->ok = false;
    } else {
        act(world, engine, message, false);
        if (message->fault == FAULT_TWICE) {
            act(world, engine, message, true);
        }
    }
    if (message->fault == FAULT_VANISH) {
        vanish(world, message->engine);
        return;
    }
    if (message->fault == FAULT_LOST) {
        if (chance(world, 0.5)) {
            return; /* silence */
        }
        message->ok = false;
        message->unknown = true; /* the connection broke */
    }
    int64_t delay = chance(world, 0.02) ? between(world, 100 * MS_US, 2 * SEC_US)
                                        : between(world, 100, 3 * MS_US);
    sim_schedule(world, world->now_us + delay, EVENT_ANSWERS, message);
    if (chance(world, 0.01)) { /* said twice */
        sim_schedule(world, world->now_us + 2 * delay, EVENT_ANSWERS, message);
    }
}

/* ---- events ------------------------------------------------------------------------------- */

static void to_core(SimWorld *world, const SimEvent *event)
{
    if (!world->core_alive || event->message.life != world->life) {
        return;
    }
    if (event->kind == EVENT_ANSWERS) {
        sim_core_answer(world, &event->message);
    } else if (event->kind == EVENT_LOCAL) {
        sim_core_local(world, &event->message);
    } else if (event->kind == EVENT_TICK) {
        sim_core_tick(world);
    } else {
        sync_now(world);
        sim_core_synced(world);
    }
}

bool sim_step(SimWorld *world)
{
    if (world->events == 0) {
        return false;
    }
    SimEvent event = take(world);
    switch (event.kind) {
    case EVENT_ARRIVES: arrives(world, &event.message); break;
    case EVENT_ACTS: acts(world, &event.message); break;
    case EVENT_RETURNS: come_back(world, event.message.engine); break;
    case EVENT_ANSWERS:
    case EVENT_LOCAL:
    case EVENT_SYNCED:
    case EVENT_TICK: to_core(world, &event); break;
    case EVENT_START:
        world->core_alive = true;
        sim_core_start(world);
        break;
    }
    if (world->dying) {
        die(world);
    }
    return true;
}
