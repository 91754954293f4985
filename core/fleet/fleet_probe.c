/* Probes: what is due is sent by a client of its own, answers go to the engine's machine, and its
 * verdict becomes facts of the log and calls of whoever listens. */
#include "core/fleet/fleet_private.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdlib.h>

typedef struct ProbeCtx {
    Fleet *fleet;
    int index;
    ProbeKind kind;
    int64_t epoch, sent_us;
} ProbeCtx;

EngineState fleet_slot_state(const Slot *slot)
{
    return slot->removed ? ENGINE_GONE : slot->probe.state;
}

void fleet_log_state(Fleet *fleet, int index, const char *reason)
{
    const Slot *slot = &fleet->slots[index];
    if (fleet->store) {
        EngineStateFact fact = {.engine = index + 1, .incarnation = slot->probe.incarnation,
                                .t_us = clock_wall_us(), .state = fleet_slot_state(slot),
                                .policy_version = slot->verified_version, .reason = reason};
        store_put_engine_state(fleet->store, &fact);
    }
}

static void log_probe(Fleet *fleet, int index, ProbeKind kind, const EngineAnswer *a)
{
    if (!fleet->store) {
        return;
    }
    int64_t now = clock_wall_us();
    ProbeFact fact = {.engine = index + 1, .t_us = now, .latency_us = a->took_us, .kind = kind,
                      .outcome = a->outcome, .status = a->status, .policy_version = -1};
    if (index >= 0) {
        fact.incarnation = fleet->slots[index].probe.incarnation;
    }
    if (kind == PROBE_MODEL) {
        fact.policy_version = a->weight_version;
    }
    if (a->known_running) {
        fact.running = val_of(a->running, now);
        fact.waiting = val_of(a->waiting, now);
        fact.used_tokens = val_of(a->used_tokens, now);
        fact.token_usage = val_of(a->token_usage, now);
        fact.gen_throughput = val_of(a->gen_throughput, now);
        fact.cache_hit_rate = val_of(a->cache_hit_rate, now);
    }
    if (a->known_tokens) {
        fact.gen_tokens_total = val_of(a->gen_tokens_total, now);
        fact.retracted_total = val_of(a->retracted_total, now);
    }
    store_put_probe(fleet->store, &fact);
}

static void new_incarnation(Fleet *fleet, int index)
{
    Slot *slot = &fleet->slots[index];
    int64_t pid = slot->pid;
    Str identity = str_from(slot->probe.identity);
    Str head;
    if (!pid && str_split(&identity, '/', &head)) {
        (void)str_to_i64(head, &pid); /* "PID/START" of our own engines */
    }
    slot->verified_version = -1;
    slot->admitted = false;
    slot->retract_paused = false;
    if (fleet->registration) {
        registration_came(fleet->registration, index, slot->address, clock_mono_us());
    }
    if (fleet->store) {
        IncarnationFact fact = {.engine = index + 1, .incarnation = slot->probe.incarnation,
                                .t_us = clock_wall_us(), .pid = pid,
                                .identity = slot->probe.identity};
        store_put_incarnation(fleet->store, &fact);
    }
    if (fleet->events.on_incarnation) {
        fleet->events.on_incarnation(index, slot->probe.incarnation, fleet->events.user);
    }
}

static void note_registration(Fleet *fleet, int index)
{
    EngineState state = fleet_slot_state(&fleet->slots[index]);
    if (state == ENGINE_GONE) {
        registration_gone(fleet->registration, index);
    } else if (state == ENGINE_DEAD) {
        registration_lost(fleet->registration, index);
    } else if (state != ENGINE_STARTING) {
        registration_back(fleet->registration, index);
    }
}

void fleet_take_verdict(Fleet *fleet, int index, EngineState before, const ProbeVerdict *verdict)
{
    if (verdict->new_incarnation) {
        new_incarnation(fleet, index);
    }
    if (fleet->registration && verdict->changed) {
        note_registration(fleet, index);
    }
    if (verdict->changed || verdict->new_incarnation) {
        fleet_log_state(fleet, index, verdict->reason);
    }
    if (verdict->changed && fleet->events.on_state) {
        fleet->events.on_state(index, before, fleet_slot_state(&fleet->slots[index]),
                               verdict->reason, fleet->events.user);
    }
}

static void on_probe(const EngineAnswer *answer, void *user)
{
    ProbeCtx *ctx = user;
    Fleet *fleet = ctx->fleet;
    Slot *slot = &fleet->slots[ctx->index];
    if (!fleet->freeing && !slot->removed) {
        EngineAnswer *void_answer = NULL;
        log_probe(fleet, ctx->index, ctx->kind, answer);
        if (ctx->epoch != slot->epoch) { /* it asked a process that has ended since */
            void_answer = xcalloc(1, sizeof *void_answer);
            void_answer->end = HTTP_END_CANCELLED;
            void_answer->err = ERR_CANCELLED;
        }
        EngineState before = fleet_slot_state(slot);
        ProbeVerdict verdict = probe_answer(&slot->probe, &fleet->config.probe, ctx->kind,
                                            void_answer ? void_answer : answer, clock_mono_us());
        fleet_take_verdict(fleet, ctx->index, before, &verdict);
        free(void_answer);
    } else if (!fleet->freeing) {
        slot->probe.in_flight[ctx->kind] = false; /* the engine may be added again */
    }
    free(ctx);
}

static EngineCallKind call_of_probe(ProbeKind kind)
{
    switch (kind) {
    case PROBE_PING: return ENGINE_PING;
    case PROBE_HEALTH: return ENGINE_HEALTH;
    case PROBE_LOADS: return ENGINE_LOADS;
    case PROBE_MODEL: return ENGINE_MODEL_INFO;
    case PROBE_SERVER: return ENGINE_SERVER_INFO;
    case PROBE_METRICS: return ENGINE_METRICS;
    case PROBE_FRONTEND: break;
    }
    return ENGINE_PING;
}

static void send_probe(Fleet *fleet, int index, ProbeKind kind)
{
    Slot *slot = &fleet->slots[index];
    ProbeCtx *ctx = xcalloc(1, sizeof *ctx);
    *ctx = (ProbeCtx){fleet, index, kind, slot->epoch, clock_mono_us()};
    EngineCall call = {.kind = call_of_probe(kind),
                       .timeout_ms = probe_timeout_ms(&slot->probe, &fleet->config.probe, kind,
                                                      ctx->sent_us)};
    Fault fault = {0};
    if (engine_call(fleet->probe_client, slot->base_url,
                    engine_call_key(call.kind, fleet->bearer, fleet->admin), &call, on_probe, ctx,
                    &fault) != ERR_OK) {
        EngineAnswer *answer = xcalloc(1, sizeof *answer); /* the client is full or closing */
        answer->err = fault.code;
        answer->end = HTTP_END_CANCELLED;
        (void)str_format(answer->outcome, sizeof answer->outcome, "not sent");
        on_probe(answer, ctx);
        free(answer);
    }
}

void fleet_front_look(const EngineAnswer *answer, Str body, void *user)
{
    Fleet *fleet = user;
    if (!fleet->freeing) {
        log_probe(fleet, -1, PROBE_FRONTEND, answer);
        if (body.n > 0 && fleet->registration) {
            registration_health(fleet->registration, body, clock_mono_us());
        }
    }
}

void fleet_probe_due(Fleet *fleet, int64_t now_us)
{
    const ProbeSettings *settings = &fleet->config.probe;
    for (int i = 0; i < fleet->count && !fleet->freeing; i++) {
        if (fleet->slots[i].removed) {
            continue;
        }
        EngineState before = fleet_slot_state(&fleet->slots[i]);
        ProbeVerdict verdict = probe_tick(&fleet->slots[i].probe, settings, now_us);
        fleet_take_verdict(fleet, i, before, &verdict);
        unsigned due = probe_due(&fleet->slots[i].probe, settings, now_us);
        for (int k = 0; due != 0; k++, due >>= 1) {
            if (due & 1) {
                send_probe(fleet, i, (ProbeKind)k);
            }
        }
    }
}
