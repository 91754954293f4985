/* Commands, the life of requests, pause and policy. The computing half is engine_core_step.c. */
#include "core/serve/engine_core.h"

#include "core/base/mem.h"
#include "core/serve/engine_core_local.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- events --------------------------------------------------------------------------------- */

static void *grown(void *items, size_t need, size_t *capacity, size_t size)
{
    if (need <= *capacity) {
        return items;
    }
    while (*capacity < need) {
        *capacity += *capacity / 2 + 64;
    }
    return xrealloc(items, *capacity, size);
}

static CoreEvent *core_event(Core *core, CoreEventKind kind)
{
    CoreOut *out = &core->out;
    out->events = grown(out->events, out->event_count + 1, &out->event_capacity,
                        sizeof *out->events);
    CoreEvent *event = &out->events[out->event_count++];
    memset(event, 0, sizeof *event);
    event->kind = kind;
    return event;
}

void core_out_free(CoreOut *out)
{
    free(out->events);
    free(out->tokens);
    free(out->alts);
    memset(out, 0, sizeof *out);
}

void core_out_clear(CoreOut *out)
{
    out->event_count = out->token_count = out->alt_count = 0;
}

void core_out_append(CoreOut *to, CoreOut *from)
{
    if (to->event_count == 0) {
        CoreOut empty = *to;
        *to = *from;
        *from = empty;
        core_out_clear(from);
        return;
    }
    to->events = grown(to->events, to->event_count + from->event_count, &to->event_capacity,
                       sizeof *to->events);
    to->tokens = grown(to->tokens, to->token_count + from->token_count, &to->token_capacity,
                       sizeof *to->tokens);
    to->alts = grown(to->alts, to->alt_count + from->alt_count, &to->alt_capacity,
                     sizeof *to->alts);
    for (size_t i = 0; i < from->event_count; i++) {
        CoreEvent *event = &to->events[to->event_count + i];
        *event = from->events[i];
        event->token_from += to->token_count;
        event->alt_from += to->alt_count;
    }
    if (from->token_count > 0) {
        memcpy(to->tokens + to->token_count, from->tokens, from->token_count * sizeof *to->tokens);
    }
    if (from->alt_count > 0) {
        memcpy(to->alts + to->alt_count, from->alts, from->alt_count * sizeof *to->alts);
    }
    to->event_count += from->event_count;
    to->token_count += from->token_count;
    to->alt_count += from->alt_count;
    core_out_clear(from);
}

static void emit_tokens(Core *core, EngineRequest *request, int least)
{
    int fresh = request_output_count(request) - request->sent;
    if (fresh <= 0 || (request->sent > 0 && fresh < least)) {
        return;
    }
    CoreOut *out = &core->out;
    CoreEvent *event = core_event(core, CORE_TOKENS);
    event->user = request->user;
    event->version = core->version;
    event->cached = request->seq.cached;
    event->retractions = request->seq.retractions;
    event->token_from = out->token_count;
    event->token_count = (size_t)fresh;
    event->alt_from = out->alt_count;
    out->tokens = grown(out->tokens, out->token_count + (size_t)fresh, &out->token_capacity,
                        sizeof *out->tokens);
    const int32_t *ids = request_outputs(request);
    for (int i = request->sent; i < request->sent + fresh; i++) {
        out->tokens[out->token_count++] = (CoreToken){ids[i], request->logprobs[i]};
    }
    size_t alts = (size_t)fresh * (size_t)request->top_count;
    if (alts > 0) {
        out->alts = grown(out->alts, out->alt_count + alts, &out->alt_capacity, sizeof *out->alts);
        memcpy(out->alts + out->alt_count,
               request->alts + (size_t)request->sent * (size_t)request->top_count,
               alts * sizeof *out->alts);
        out->alt_count += alts;
    }
    request->sent += fresh;
}

void core_emit_tokens(Core *core)
{
    for (int i = 0; i < core->dirty_count; i++) {
        if (core->dirty[i]) {
            emit_tokens(core, core->dirty[i], core->dirty[i]->stream_interval);
            core->dirty[i]->in_dirty = false;
        }
    }
    core->dirty_count = 0;
}

static void emit_held_back(Core *core, SchedSeq *first)
{
    for (SchedSeq *seq = first; seq; seq = seq->next) {
        EngineRequest *request = (EngineRequest *)seq;
        if (request->stream) {
            emit_tokens(core, request, 1);
        }
    }
}

/* An event names one version for its tokens: those of the old one go out before it changes. */
static void set_version(Core *core, const char *version)
{
    emit_held_back(core, sched_first_running(core->sched));
    emit_held_back(core, sched_first_waiting(core->sched));
    core->version = version;
}

static void acknowledge(Core *core, void *ticket, bool ok, const char *why)
{
    if (ticket) {
        CoreEvent *event = core_event(core, CORE_ACK);
        event->user = ticket;
        event->ok = ok;
        (void)str_format(event->text, sizeof event->text, "%s", why);
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

void core_finish(Core *core, EngineRequest *request, RequestEnd end, int64_t now_us)
{
    if (request->in_dirty) {
        for (int i = 0; i < core->dirty_count; i++) {
            if (core->dirty[i] == request) {
                core->dirty[i] = NULL;
            }
        }
    }
    if (request->while_paused && request->stage != STAGE_GATE) {
        core->urgent--;
    }
    sched_remove(core->sched, &request->seq);
    request->end = end;
    request->finished_us = now_us;
    request->stage = STAGE_ENDED;
    CoreEvent *event = core_event(core, CORE_FINISHED);
    event->request = request;
    event->user = request->user;
    event->version = core->version;
}

static void gate_add(Core *core, EngineRequest *request)
{
    if (core->gate_count == core->gate_capacity) {
        core->gate_capacity = core->gate_capacity * 2 + 16;
        core->gate = xrealloc(core->gate, (size_t)core->gate_capacity, sizeof *core->gate);
    }
    request->stage = STAGE_GATE;
    core->gate[core->gate_count++] = request;
}

static void admit_request(Core *core, EngineRequest *request)
{
    request->stage = STAGE_WAITING;
    request->seq.urgent = request->while_paused;
    core->urgent += request->while_paused;
    sched_add(core->sched, &request->seq);
}

static void open_gate(Core *core)
{
    if (core->pause != PAUSE_NONE || core->swap_waits) {
        return;
    }
    for (int i = 0; i < core->gate_count; i++) {
        admit_request(core, core->gate[i]);
    }
    core->gate_count = 0;
}

static void submit(Core *core, EngineRequest *request)
{
    rng_seed(&request->rng, request->has_seed ? request->seed : rng_u64(&core->rng));
    engine_text_init(&request->decoder, core->config.tokenizer, request->skip_special);
    bool held = core->pause != PAUSE_NONE && !request->while_paused;
    if (held || core->swap_waits) {
        gate_add(core, request);
    } else {
        admit_request(core, request);
    }
}

static bool wanted(const EngineRequest *request, uint64_t id)
{
    return (id == 0 || request->id == id) && !request->seq.stuck;
}

static void abort_requests(Core *core, uint64_t id, bool gated_too, int64_t now_us)
{
    SchedSeq *next = NULL;
    for (SchedSeq *seq = sched_first_running(core->sched); seq; seq = next) {
        next = seq->next;
        EngineRequest *request = (EngineRequest *)seq;
        if (wanted(request, id)) {
            core_finish(core, request, REQUEST_ABORTED, now_us);
        }
    }
    for (SchedSeq *seq = sched_first_waiting(core->sched); seq; seq = next) {
        next = seq->next;
        EngineRequest *request = (EngineRequest *)seq;
        if (wanted(request, id)) {
            core_finish(core, request, REQUEST_ABORTED_QUEUED, now_us);
        }
    }
    int kept = 0;
    for (int i = 0; i < core->gate_count; i++) {
        if (gated_too && wanted(core->gate[i], id)) {
            core_finish(core, core->gate[i], REQUEST_ABORTED_QUEUED, now_us);
        } else {
            core->gate[kept++] = core->gate[i];
        }
    }
    core->gate_count = kept;
}

/* ---- policy --------------------------------------------------------------------------------- */

static const char *intern(Core *core, const char *version)
{
    for (VersionName *at = core->versions; at; at = at->next) {
        if (strcmp(at->text, version) == 0) {
            return at->text;
        }
    }
    VersionName *name = xcalloc(1, sizeof *name + strlen(version) + 1);
    memcpy(name->text, version, strlen(version) + 1);
    name->next = core->versions;
    core->versions = name;
    return name->text;
}

static bool can_flush(const Core *core)
{
    bool nothing_runs = sched_running(core->sched) == 0;
    return nothing_runs && (sched_waiting(core->sched) == 0 || core->pause == PAUSE_RETRACT);
}

/* What a pause in place keeps was computed by weights that go now: its keys and values would mix
 * two policies, so it is computed anew when it goes on. Tokens that came out stay. */
static void drop_computed(Core *core)
{
    for (SchedSeq *seq = sched_first_running(core->sched); seq; seq = seq->next) {
        EngineRequest *request = (EngineRequest *)seq;
        if (!seq->stuck) {
            request->stage = STAGE_WAITING;
            request->input_logprob_count = request_output_count(request) > 0
                                               ? request->input_logprob_count : 0;
        }
    }
    sched_retract_all(core->sched);
}

/* Old weights stay until the new ones are in: a refusal changes nothing. */
static void swap_now(Core *core, CoreCommand *swap)
{
    Fault fault = {0};
    if (swap->flush && !can_flush(core)) {
        acknowledge(core, swap->ticket, false, "refused: requests are running or queued, so the "
                    "cache cannot be flushed; pause with mode abort, or send flush_cache false");
    } else if (swap->weights && infer_set_weights(core->infer, swap->weights, &fault)) {
        acknowledge(core, swap->ticket, false, fault.sentence);
    } else {
        if (swap->weights) {
            weights_unref(core->weights);
            core->weights = swap->weights;
            swap->weights = NULL;
        }
        if (swap->text) {
            free(core->digest);
            core->digest = swap->text;
            swap->text = NULL;
        }
        if (swap->version) {
            set_version(core, intern(core, swap->version));
        }
        core->garbled = swap->garble;
        core->epoch++;
        drop_computed(core);
        sched_forget(core->sched);
        acknowledge(core, swap->ticket, true, "");
    }
    weights_unref(swap->weights);
    free(swap->text);
    free(swap->version);
    memset(swap, 0, sizeof *swap);
}

void core_apply_swap_if_possible(Core *core)
{
    if (core->swap_waits && (core->pause != PAUSE_NONE || sched_idle(core->sched))) {
        core->swap_waits = false;
        swap_now(core, &core->swap);
        open_gate(core);
    }
    if (core->pause_ticket && sched_idle(core->sched)) {
        acknowledge(core, core->pause_ticket, true, "");
        core->pause_ticket = NULL;
    }
}

static void pause_core(Core *core, PauseMode mode, void *ticket, int64_t now_us)
{
    if (core->pause != PAUSE_NONE && mode != PAUSE_ABORT) {
        acknowledge(core, ticket, true, ""); /* again is harmless, upstream too */
        return;
    }
    core->pause = mode;
    sched_hold(core->sched, true);
    switch (mode) {
    case PAUSE_ABORT:
        abort_requests(core, 0, false, now_us);
        break;
    case PAUSE_RETRACT:
        for (SchedSeq *seq = sched_first_running(core->sched); seq; seq = seq->next) {
            ((EngineRequest *)seq)->stage = STAGE_WAITING;
        }
        sched_retract_all(core->sched);
        break;
    case PAUSE_IN_PLACE:
    case PAUSE_NONE:
        break;
    }
    if (mode == PAUSE_ABORT && !sched_idle(core->sched) && !core->pause_ticket) {
        core->pause_ticket = ticket;
    } else {
        acknowledge(core, ticket, true, "");
    }
}

void core_command(Core *core, CoreCommand *command, int64_t now_us)
{
    switch (command->kind) {
    case CORE_SUBMIT:
        submit(core, command->request);
        break;
    case CORE_ABORT:
        abort_requests(core, command->id, true, now_us);
        break;
    case CORE_PAUSE:
        pause_core(core, command->mode, command->ticket, now_us);
        break;
    case CORE_CONTINUE:
        core->pause = PAUSE_NONE;
        sched_hold(core->sched, false);
        open_gate(core);
        acknowledge(core, command->ticket, true, "");
        break;
    case CORE_FLUSH:
        if (can_flush(core)) {
            sched_forget(core->sched);
            acknowledge(core, command->ticket, true, "");
        } else {
            acknowledge(core, command->ticket, false, "Flush cache failed.");
        }
        break;
    case CORE_SWAP:
        assert(!core->swap_waits); /* the HTTP side runs one update at a time */
        core->swap = *command;
        core->swap_waits = true;
        break;
    case CORE_SET_VERSION:
        set_version(core, intern(core, command->version));
        free(command->version);
        acknowledge(core, command->ticket, true, "");
        break;
    case CORE_PING:
        acknowledge(core, command->ticket, true, "");
        break;
    }
    core_apply_swap_if_possible(core);
}

/* ---- life ----------------------------------------------------------------------------------- */

Err core_new(const CoreConfig *config, Weights *weights, const char *digest, const char *version,
             Core **out, Fault *fault)
{
    *out = NULL;
    Core *core = xcalloc(1, sizeof *core);
    core->config = *config;
    core->faults.kv_cap = -1;
    rng_seed(&core->rng, config->seed);
    core->version = intern(core, version);
    core->digest = digest ? xstrdup(digest) : NULL;
    core->sched = sched_new(&config->sched);
    core->alts = xcalloc(REQUEST_TOP_MAX + 1, sizeof *core->alts);
    if (!config->synthetic) {
        core->weights = weights_ref(weights);
        core->sampler = sampler_new(config->vocab);
        InferConfig infer = {config->threads, config->sched.block_tokens, config->sched.blocks,
                             config->sched.max_step_tokens};
        Err err = infer_new(weights, &infer, &core->infer, fault);
        if (err) {
            core_free(core);
            return err;
        }
    }
    *out = core;
    return ERR_OK;
}

static void free_list(Core *core, SchedSeq *first)
{
    while (first) {
        SchedSeq *next = first->next;
        sched_remove(core->sched, first);
        request_free((EngineRequest *)first);
        first = next;
    }
}

void core_free(Core *core)
{
    if (!core) {
        return;
    }
    free_list(core, sched_first_running(core->sched));
    free_list(core, sched_first_waiting(core->sched));
    for (int i = 0; i < core->gate_count; i++) {
        request_free(core->gate[i]);
    }
    weights_unref(core->swap.weights);
    free(core->swap.text);
    free(core->swap.version);
    free(core->gate);
    free(core->dirty);
    infer_free(core->infer);
    sampler_free(core->sampler);
    weights_unref(core->weights);
    sched_free(core->sched);
    core_out_free(&core->out);
    while (core->versions) {
        VersionName *next = core->versions->next;
        free(core->versions);
        core->versions = next;
    }
    free(core->digest);
    free(core->pieces);
    free(core->alts);
    free(core);
}

void core_faults(Core *core, const CoreFaults *faults)
{
    if (core->faults.kv_cap != faults->kv_cap) {
        sched_cap_tokens(core->sched, faults->kv_cap);
    }
    core->faults = *faults;
}

CoreOut *core_out(Core *core)
{
    return &core->out;
}

void core_stats(const Core *core, CoreStats *out)
{
    *out = core->stats;
    out->running = sched_running(core->sched);
    out->waiting = sched_waiting(core->sched);
    out->gated = core->gate_count;
    out->used_tokens = sched_used_tokens(core->sched);
    out->evictable_tokens = sched_evictable_tokens(core->sched);
    out->total_tokens = sched_total_tokens(core->sched);
    out->pause = core->pause;
    if (out->running == 0) {
        out->gen_throughput = 0.0; /* a rate of nothing is nothing; upstream leaves the last one */
    }
}
