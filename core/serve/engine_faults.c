/* What the active faults do to one engine. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/serve/engine_local.h"

#include <stdlib.h>

const FaultItem *engine_fault(const Engine *engine, FaultKind kind)
{
    return engine->settings->faults ? faults_active(&engine->faults, kind, clock_mono_us()) : NULL;
}

/* True with the share of an active fault. */
static bool engine_fault_hits(Engine *engine, FaultKind kind)
{
    const FaultItem *item = engine_fault(engine, kind);
    return item && rng_unit(&engine->rng) < item->number;
}

void engine_mark_sample(Engine *engine, EngineRequest *request, Sample *sample)
{
    if (!engine->settings->faults || request->is_health) {
        return;
    }
    request->fault_garble = engine_fault_hits(engine, FAULT_GARBLE);
    request->fault_empty = engine_fault_hits(engine, FAULT_EMPTY);
    request->fault_nostop = engine_fault_hits(engine, FAULT_NOSTOP);
    request->fault_nan = engine_fault_hits(engine, FAULT_NAN);
    sample->drop = engine_fault_hits(engine, FAULT_DROP_REPLY);
    if (engine_fault_hits(engine, FAULT_LEN_DIST)) {
        double length = engine_fault(engine, FAULT_LEN_DIST)->extra;
        request->fault_length = length >= 1.0 && length < 1e9 ? (int)length : 1;
    }
    if (engine_fault(engine, FAULT_ZOMBIE) && engine->zombies_left > 0) {
        engine->zombies_left--;
        request->seq.stuck = true;
    }
}

static void park_release(Engine *engine)
{
    int count = engine->parked_count;
    HttpExchange **parked = engine->parked;
    engine->parked = NULL;
    engine->parked_count = engine->parked_capacity = 0;
    for (int i = 0; i < count; i++) {
        engine_on_request(parked[i], engine);
    }
    free(parked);
}

void engine_faults_changed(Engine *engine)
{
    const FaultItem *slow = engine_fault(engine, FAULT_SLOW);
    const FaultItem *cap = engine_fault(engine, FAULT_KV_CAP);
    const FaultItem *crash = engine_fault(engine, FAULT_CRASH);
    bool all = engine_fault(engine, FAULT_FREEZE_ALL) != NULL;
    RunnerFaults faults = {{all || engine_fault(engine, FAULT_FREEZE),
                            cap ? (int)(cap->number < 1e9 ? cap->number : 1e9) : -1},
                           slow ? slow->number : 1.0};
    runner_faults(engine->runner, &faults);
    bool stuck = engine_fault(engine, FAULT_GAUGES_STUCK) != NULL;
    if (stuck && !engine->stuck) {
        runner_stats(engine->runner, &engine->stuck_stats);
    }
    engine->stuck = stuck;
    if (!all && engine->parked_count > 0) {
        park_release(engine);
    }
    engine_timer_arm(engine);
    if (crash) {
        engine_die(engine, (int)crash->number);
    }
}

void route_fault(Engine *engine, HttpExchange *exchange)
{
    cJSON *body = body_object(engine, exchange);
    if (!body) {
        return;
    }
    Fault fault = {0};
    FaultKind kind = FAULT_KIND_COUNT;
    Err err = faults_apply(&engine->faults, body, clock_mono_us(), &kind, &fault);
    cJSON_Delete(body);
    if (err) {
        char message[2 * FAULT_TEXT_MAX];
        (void)str_format(message, sizeof message, "%s (%s)", fault.sentence, fault.hint);
        reply_error(engine, exchange, 400, message);
        return;
    }
    if (kind == FAULT_ZOMBIE) {
        engine->zombies_left = (int64_t)engine->faults.items[FAULT_ZOMBIE].number;
    }
    if (kind != FAULT_CRASH || !engine_fault(engine, FAULT_CRASH)) {
        http_reply(exchange, 200, "application/json", STR("{\"ok\":true}"), NULL);
    } else {
        http_drop(exchange);
    }
    engine_faults_changed(engine);
}

void route_fault_list(Engine *engine, HttpExchange *exchange)
{
    Text body;
    text_init(&body, 16384);
    faults_list(&engine->faults, clock_mono_us(), &body);
    http_reply_json(exchange, 200, &body);
    text_free(&body);
}
