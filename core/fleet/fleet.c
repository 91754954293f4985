/* The driver: one timer that asks every engine's probe machine what is due, and one HTTP client
 * of its own for probes, so that neither a flood of generation nor a slow probe can stand in the
 * way of a control call. Expected: up to 1,024 engines, some 1,000 probes a second. */
#include "core/fleet/fleet.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/fleet/fleet_private.h"
#include "store/view.h"

#include <stdlib.h>
#include <string.h>

struct ControlCtx {
    ControlCtx *prev, *next;
    Fleet *fleet; /* NULL: the fleet is gone, the answer was given */
    int index;
    int64_t incarnation;
    EngineCallKind kind;
    bool retract;
    EngineAnswered on_done;
    void *user;
};

static void on_front_change(bool up, const char *reason, void *user)
{
    Fleet *fleet = user;
    if (!fleet->freeing && fleet->events.on_frontend) {
        fleet->events.on_frontend(up, reason, fleet->events.user);
    }
}

static void on_front_ready(Readiness now, const char *words, void *user)
{
    Fleet *fleet = user;
    if (!fleet->freeing && fleet->events.on_ready) {
        fleet->events.on_ready(now, words, fleet->events.user);
    }
}

static void on_tick(uv_timer_t *timer)
{
    Fleet *fleet = timer->data;
    int64_t now_us = clock_mono_us();
    fleet_probe_due(fleet, now_us);
    if (!fleet->freeing) {
        front_tick(fleet->front, now_us);
    }
}

/* ---- life --------------------------------------------------------------------------------- */

static void index_addresses(Fleet *fleet);

static int find_name(const Fleet *fleet, const char *name)
{
    for (int i = 0; i < fleet->count; i++) {
        if (strcmp(fleet->slots[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static Slot *new_slot(Fleet *fleet, const char *name)
{
    Slot *slot = &fleet->slots[fleet->count++];
    slot->name = xstrdup(name);
    slot->address = xstrdup("");
    slot->base_url = xstrdup("");
    slot->verified_version = -1;
    slot->removed = true;
    probe_init(&slot->probe);
    return slot;
}

/* Engines of an earlier life of this run keep their ids, and their incarnations go on counting:
 * whoever answers now has to be verified anew. */
static Err load_known(Fleet *fleet, Fault *fault)
{
    if (!fleet->store || store_marks(fleet->store)->engine == 0) {
        return ERR_OK;
    }
    View *view = NULL;
    Err err = view_open(store_path(fleet->store), &view, fault);
    if (err) {
        return err;
    }
    Arena *arena = arena_new(64u << 20);
    EngineList list = view_known_engines(view, arena);
    for (size_t i = 0; i < list.count && !err; i++) {
        const EngineRow *row = &list.rows[i];
        if (row->engine != fleet->count + 1 || fleet->count >= FLEET_ENGINES_MAX) {
            err = fault_set(fault, ERR_FORMAT, "start a new run with --log",
                            "the log %s has a gap before engine %lld", store_path(fleet->store),
                            (long long)row->engine);
            break;
        }
        Slot *slot = new_slot(fleet, row->name ? row->name : "");
        slot->probe.incarnation = row->incarnation;
        slot->probe.ended = row->incarnation > 0;
        slot->local = row->local;
        free(slot->address);
        slot->address = xstrdup(row->address ? row->address : "");
    }
    err = err ? err : view_fault(view, fault); /* a list cut short would give ids away twice */
    arena_free(arena);
    view_close(view);
    return err;
}

Err fleet_new(uv_loop_t *loop, HttpClient *client, Store *store, const FleetConfig *config,
              const FleetEvents *events, Fleet **out, Fault *fault)
{
    *out = NULL;
    Fleet *fleet = xcalloc(1, sizeof *fleet);
    fleet->loop = loop;
    fleet->client = client;
    fleet->store = store;
    fleet->config = *config;
    fleet->slots = xcalloc(FLEET_ENGINES_MAX, sizeof *fleet->slots);
    if (fleet->config.probe.ping_ms == 0) {
        fleet->config.probe = probe_settings_default();
    }
    fleet->bearer = config->engine_bearer ? xstrdup(config->engine_bearer) : NULL;
    fleet->admin = config->engine_admin ? xstrdup(config->engine_admin) : NULL;
    fleet->config.engine_bearer = fleet->bearer;
    fleet->config.engine_admin = fleet->admin;
    fleet->registration = config->await_listing ? registration_new() : NULL;
    if (events) {
        fleet->events = *events;
    }
    Err err = http_client_new(loop, NULL, &fleet->probe_client, fault);
    if (!err && config->frontend_url) {
        FrontEvents front = {fleet_front_look, on_front_change, on_front_ready, fleet};
        fleet->front = front_new(fleet->probe_client, config->frontend_url,
                                 config->await_listing || config->ask_ready,
                                 &fleet->config.probe, &front);
    }
    fleet->config.frontend_url = NULL; /* the caller's */
    if (!err) {
        err = load_known(fleet, fault);
    }
    uv_timer_init(loop, &fleet->timer);
    fleet->timer.data = fleet;
    if (err) {
        fleet_free(fleet);
        return err;
    }
    uv_timer_start(&fleet->timer, on_tick, 0, PROBE_TICK_MS);
    *out = fleet;
    return ERR_OK;
}

static void on_timer_closed(uv_handle_t *handle)
{
    Fleet *fleet = handle->data;
    for (int i = 0; i < fleet->count; i++) {
        free(fleet->slots[i].name);
        free(fleet->slots[i].address);
        free(fleet->slots[i].base_url);
    }
    free(fleet->slots);
    registration_free(fleet->registration);
    free(fleet->bearer);
    free(fleet->admin);
    front_free(fleet->front);
    free(fleet);
}

void fleet_free(Fleet *fleet)
{
    if (!fleet || fleet->freeing) {
        return;
    }
    fleet->freeing = true;
    while (fleet->calls) {
        ControlCtx *ctx = fleet->calls;
        fleet->calls = ctx->next;
        ctx->fleet = NULL;
        EngineAnswer *answer = xcalloc(1, sizeof *answer);
        engine_parse_reply(ctx->kind, HTTP_END_CANCELLED, 0, (Str){NULL, 0}, answer);
        ctx->on_done(answer, ctx->user);
        free(answer);
    }
    http_client_free(fleet->probe_client);
    uv_close((uv_handle_t *)&fleet->timer, on_timer_closed);
}

Err fleet_add(Fleet *fleet, const char *name, const char *address, bool local, int *index,
              Fault *fault)
{
    const char *hint = "write an engine as HOST:PORT";
    size_t n = address ? strlen(address) : 0;
    while (n > 0 && address[n - 1] == '/') {
        n--;
    }
    if (!name || !name[0] || n == 0 || n > 200 || strpbrk(address, " \t\r\n\"\\") != NULL) {
        return fault_set(fault, ERR_ARG, hint, "\"%s\" is not the address of an engine",
                         address ? address : "");
    }
    int at = find_name(fleet, name);
    if (at < 0) {
        if (fleet->count >= FLEET_ENGINES_MAX) {
            return fault_set(fault, ERR_LIMIT, NULL, "a fleet has at most %d engines",
                             FLEET_ENGINES_MAX);
        }
        new_slot(fleet, name);
        at = fleet->count - 1;
    }
    Slot *slot = &fleet->slots[at];
    char *plain = xstrndup(address, n);
    const bool same = !slot->removed && strcmp(slot->address, plain) == 0;
    *index = at;
    if (same) {
        free(plain);
        return ERR_OK;
    }
    ProbeState before = slot->probe;
    free(slot->base_url);
    free(slot->address);
    slot->base_url = strstr(plain, "://") ? xstrdup(plain) : xasprintf("http://%s", plain);
    slot->address = plain;
    slot->local = local;
    slot->removed = false;
    slot->epoch++;
    probe_init(&slot->probe);
    memcpy(slot->probe.in_flight, before.in_flight, sizeof before.in_flight);
    memcpy(slot->probe.identity, before.identity, sizeof before.identity);
    slot->probe.incarnation = before.incarnation;
    slot->probe.ended = before.ended;
    slot->probe.held_fenced = before.held_fenced;
    index_addresses(fleet);
    if (fleet->store) {
        EngineFact fact = {.engine = at + 1, .t_us = clock_wall_us(), .name = slot->name,
                           .address = slot->address, .local = local};
        store_put_engine(fleet->store, &fact);
    }
    fleet_log_state(fleet, at, "added");
    return ERR_OK;
}

void fleet_remove(Fleet *fleet, int index, const char *reason)
{
    Slot *slot = &fleet->slots[index];
    if (!slot->removed) {
        EngineState before = fleet_slot_state(slot);
        slot->removed = true;
        slot->admitted = false;
        slot->epoch++;
        index_addresses(fleet);
        ProbeVerdict verdict = {.changed = true};
        (void)str_format(verdict.reason, sizeof verdict.reason, "%s", reason);
        fleet_take_verdict(fleet, index, before, &verdict);
    }
}

/* ---- looking and telling ------------------------------------------------------------------ */

int fleet_count(const Fleet *fleet)
{
    return fleet->count;
}

FleetEngine fleet_engine(const Fleet *fleet, int index)
{
    const Slot *slot = &fleet->slots[index];
    return (FleetEngine){
        .index = index, .name = slot->name, .address = slot->address, .base_url = slot->base_url,
        .local = slot->local, .admitted = slot->admitted && !slot->removed,
        .incarnation = slot->probe.incarnation, .state = fleet_slot_state(slot),
        .reported_version = slot->probe.reported_version,
        .verified_version = slot->verified_version, .pid = slot->pid,
        .identity = slot->probe.identity,
    };
}

bool fleet_silent(const Fleet *fleet, int index, int64_t now_us)
{
    return probe_silent(&fleet->slots[index].probe, &fleet->config.probe, now_us);
}

static size_t address_place(const char *address)
{
    return (size_t)hash64(address, strlen(address), 0) & (ADDRESS_TABLE - 1);
}

static void index_addresses(Fleet *fleet)
{
    memset(fleet->by_address, 0, sizeof fleet->by_address);
    for (int i = 0; i < fleet->count; i++) {
        if (!fleet->slots[i].removed) {
            size_t at = address_place(fleet->slots[i].address);
            while (fleet->by_address[at]) {
                at = (at + 1) & (ADDRESS_TABLE - 1);
            }
            fleet->by_address[at] = (int16_t)(i + 1);
        }
    }
}

int fleet_find(const Fleet *fleet, const char *address)
{
    for (size_t at = address_place(address); fleet->by_address[at];
         at = (at + 1) & (ADDRESS_TABLE - 1)) {
        int index = fleet->by_address[at] - 1;
        if (strcmp(fleet->slots[index].address, address) == 0) {
            return index;
        }
    }
    return -1;
}

void fleet_set_pid(Fleet *fleet, int index, int64_t pid)
{
    fleet->slots[index].pid = pid;
}

void fleet_note_exit(Fleet *fleet, int index, const char *how)
{
    Slot *slot = &fleet->slots[index];
    if (slot->removed) {
        return;
    }
    EngineState before = fleet_slot_state(slot);
    slot->epoch++;
    slot->admitted = false;
    slot->retract_paused = false;
    ProbeVerdict verdict = probe_exit(&slot->probe, how, clock_mono_us());
    fleet_take_verdict(fleet, index, before, &verdict);
}

void fleet_note_tokens(Fleet *fleet, int index)
{
    Slot *slot = &fleet->slots[index];
    EngineState before = fleet_slot_state(slot);
    if (!slot->removed) {
        ProbeVerdict verdict = probe_tokens(&slot->probe, &fleet->config.probe, clock_mono_us());
        fleet_take_verdict(fleet, index, before, &verdict);
    }
}

void fleet_note_flows(Fleet *fleet)
{
    for (int i = 0; i < fleet->count; i++) {
        Slot *slot = &fleet->slots[i];
        if (!slot->removed) {
            EngineState before = fleet_slot_state(slot);
            ProbeVerdict verdict = probe_flows(&slot->probe, &fleet->config.probe,
                                               clock_mono_us());
            fleet_take_verdict(fleet, i, before, &verdict);
        }
    }
}

void fleet_hold(Fleet *fleet, int index, bool paused, bool loading, bool fenced)
{
    Slot *slot = &fleet->slots[index];
    EngineState before = fleet_slot_state(slot);
    ProbeVerdict verdict = probe_hold(&slot->probe, &fleet->config.probe, paused, loading, fenced,
                                      clock_mono_us());
    if (!slot->removed) {
        fleet_take_verdict(fleet, index, before, &verdict);
    }
}

void fleet_set_verified(Fleet *fleet, int index, int64_t policy_version)
{
    Slot *slot = &fleet->slots[index];
    if (slot->verified_version != policy_version) {
        char reason[64];
        slot->verified_version = policy_version;
        (void)str_format(reason, sizeof reason,
                         policy_version >= 0 ? "holds policy %lld, verified"
                                             : "its policy is not verified (%lld)",
                         (long long)policy_version);
        fleet_log_state(fleet, index, reason);
    }
}

void fleet_set_admitted(Fleet *fleet, int index, bool admitted)
{
    fleet->slots[index].admitted = admitted;
}

bool fleet_frontend_up(const Fleet *fleet)
{
    return front_up(fleet->front);
}

const ReadinessState *fleet_frontend_ready(const Fleet *fleet)
{
    return front_readiness(fleet->front);
}

bool fleet_listed(const Fleet *fleet, int index)
{
    return !fleet->registration || registration_listed(fleet->registration, index);
}

/* ---- control calls ------------------------------------------------------------------------ */

static void note_control(Slot *slot, const ControlCtx *ctx, const EngineAnswer *a)
{
    if (ctx->kind == ENGINE_PAUSE) { /* also when we do not know: it may have been taken */
        slot->retract_paused = ctx->retract && a->end != HTTP_END_REFUSED;
    } else if (ctx->kind == ENGINE_CONTINUE && !a->err) {
        slot->retract_paused = false;
    } else if (ctx->kind == ENGINE_MODEL_INFO && !a->err) {
        slot->probe.reported_version = a->weight_version;
    } else if ((ctx->kind == ENGINE_UPDATE_DISK || ctx->kind == ENGINE_CHECKSUM) && !a->err &&
               a->weight_version >= 0) {
        slot->probe.reported_version = a->weight_version;
    }
}

static void on_control(const EngineAnswer *answer, void *user)
{
    ControlCtx *ctx = user;
    Fleet *fleet = ctx->fleet;
    if (!fleet) {
        free(ctx);
        return;
    }
    if (ctx->prev) {
        ctx->prev->next = ctx->next;
    } else {
        fleet->calls = ctx->next;
    }
    if (ctx->next) {
        ctx->next->prev = ctx->prev;
    }
    Slot *slot = &fleet->slots[ctx->index];
    if (slot->probe.incarnation == ctx->incarnation && !slot->removed) {
        note_control(slot, ctx, answer);
        ctx->on_done(answer, ctx->user);
    } else {
        EngineAnswer *other = xcalloc(1, sizeof *other);
        *other = *answer;
        other->err = ERR_STATE;
        other->weight_version = -1;
        (void)str_format(other->outcome, sizeof other->outcome, "other incarnation");
        fault_clear(&other->fault);
        fault_set(&other->fault, ERR_STATE, NULL,
                  "%s was replaced while the call was under way: incarnation %lld, now %lld",
                  slot->name, (long long)ctx->incarnation, (long long)slot->probe.incarnation);
        ctx->on_done(other, ctx->user);
        free(other);
    }
    free(ctx);
}

Err fleet_call(Fleet *fleet, int index, const EngineCall *call, EngineAnswered on_done, void *user,
               Fault *fault)
{
    Slot *slot = &fleet->slots[index];
    if (slot->removed) {
        return fault_set(fault, ERR_STATE, NULL, "%s was taken out of the fleet", slot->name);
    }
    if (call->kind == ENGINE_FLUSH && slot->retract_paused && !call->own) {
        return fault_set(fault, ERR_STATE, "continue it first, or pause it with mode abort",
                         "%s is in a retract pause: its cache is in use and cannot be flushed",
                         slot->name);
    }
    ControlCtx *ctx = xcalloc(1, sizeof *ctx);
    *ctx = (ControlCtx){.next = fleet->calls, .fleet = fleet, .index = index,
                        .incarnation = slot->probe.incarnation, .kind = call->kind,
                        .retract = call->text && strcmp(call->text, "retract") == 0,
                        .on_done = on_done, .user = user};
    Err err = engine_call(fleet->client, slot->base_url,
                          engine_call_key(call->kind, fleet->bearer, fleet->admin), call,
                          on_control, ctx, fault);
    if (err) {
        free(ctx);
        return err;
    }
    if (fleet->calls) {
        fleet->calls->prev = ctx;
    }
    fleet->calls = ctx;
    return ERR_OK;
}
