/* The life of a /generate call on the HTTP side: made, submitted, fed by events, answered or left.
 * A sample outlives its call when the client goes away first: the core still has its request. */
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/serve/engine_local.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- samples and their ids ------------------------------------------------------------------ */

static uint64_t bucket_of(const char *rid)
{
    return hash64(rid, strlen(rid), 0) % ENGINE_RID_BUCKETS;
}

Sample *engine_find_rid(const Engine *engine, const char *rid)
{
    Sample *at = engine->buckets[bucket_of(rid)];
    while (at && strcmp(at->rid, rid) != 0) {
        at = at->next_in_bucket;
    }
    return at;
}

static void sample_enlist(Engine *engine, Sample *sample)
{
    uint64_t bucket = bucket_of(sample->rid);
    sample->next_in_bucket = engine->buckets[bucket];
    engine->buckets[bucket] = sample;
    sample->next = engine->samples;
    sample->previous = NULL;
    if (engine->samples) {
        engine->samples->previous = sample;
    }
    engine->samples = sample;
    engine->live++;
}

static void sample_delist(Engine *engine, Sample *sample)
{
    Sample **at = &engine->buckets[bucket_of(sample->rid)];
    while (*at != sample) {
        at = &(*at)->next_in_bucket;
    }
    *at = sample->next_in_bucket;
    if (sample->previous) {
        sample->previous->next = sample->next;
    } else {
        engine->samples = sample->next;
    }
    if (sample->next) {
        sample->next->previous = sample->previous;
    }
    engine->live--;
}

static void sample_free(Sample *sample)
{
    if (!sample) {
        return;
    }
    request_free(sample->request);
    text_free(&sample->decoded);
    free(sample->kept);
    free(sample->kept_alts);
    free(sample->rid);
    free(sample);
}

Call *call_new(Engine *engine, int count)
{
    Call *call = xcalloc(1, sizeof *call);
    call->owner.kind = OWNER_CALL;
    call->engine = engine;
    call->count = count;
    call->samples = xcalloc((size_t)count, sizeof *call->samples);
    for (int i = 0; i < count; i++) {
        call->samples[i] = xcalloc(1, sizeof **call->samples);
        call->samples[i]->call = call;
        call->samples[i]->index = i;
        text_init(&call->samples[i]->decoded, ENGINE_REPLY_MAX);
    }
    return call;
}

void call_free(Call *call)
{
    if (!call) {
        return;
    }
    for (int i = 0; i < call->count; i++) {
        sample_free(call->samples[i]);
    }
    free(call->samples);
    free(call);
}

/* Requests are gone already (the runner freed them); calls go with their last sample. */
void engine_forget_sample(Engine *engine, Sample *sample)
{
    sample_delist(engine, sample);
    Call *call = sample->call;
    if (!call) {
        sample_free(sample);
        return;
    }
    for (int i = 0; i < call->count; i++) {
        Sample *other = call->samples[i];
        if (other && other != sample && !other->finished) {
            sample_delist(engine, other);
            other->request = NULL;
        }
    }
    call_free(call);
}

/* ---- submitting ----------------------------------------------------------------------------- */

void engine_abort(Engine *engine, uint64_t id)
{
    CoreCommand command = {.kind = CORE_ABORT, .id = id};
    (void)runner_send(engine->runner, &command); /* a full queue: the client's time-out ends it */
}

/* The client is not there any more: what runs is aborted, what waits for events becomes an orphan
 * that the last event frees. */
void call_gone(Call *call)
{
    call->exchange = NULL;
    for (int i = 0; i < call->count; i++) {
        Sample *sample = call->samples[i];
        if (!sample) {
            continue;
        }
        if (!sample->finished) {
            engine_abort(call->engine, sample->request->id);
            sample->call = NULL;
            call->samples[i] = NULL;
        }
    }
    call_free(call);
}

bool engine_submit_call(Engine *engine, Call *call, HttpExchange *exchange)
{
    const EngineSettings *settings = engine->settings;
    if (engine->live + call->count > settings->max_running + settings->max_queued) {
        return false;
    }
    call->exchange = exchange;
    int64_t now = clock_mono_us();
    for (int i = 0; i < call->count; i++) {
        Sample *sample = call->samples[i];
        EngineRequest *request = sample->request;
        request->id = ++engine->next_id;
        request->user = sample;
        sample->prompt_tokens = request->seq.prompt;
        sample->top_count = request->top_count;
        sample->max_new = request->max_new;
        sample->started_us = now;
        engine_text_init(&sample->text, engine->tokenizer, request->skip_special);
        engine_mark_sample(engine, request, sample);
        CoreCommand command = {.kind = CORE_SUBMIT, .request = request};
        if (!runner_send(engine->runner, &command)) {
            for (int k = 0; k < i; k++) { /* those are in: they end as orphans */
                engine_abort(engine, call->samples[k]->request->id);
                call->samples[k]->call = NULL;
                call->samples[k] = NULL;
            }
            return false;
        }
        sample_enlist(engine, sample);
    }
    return true;
}

static void refuse(Engine *engine, HttpExchange *exchange, bool stream, const ParseFailure *why)
{
    Text body;
    text_init(&body, 8192);
    JsonOut json;
    if (why->as_object) {
        reply_error_object(engine, exchange, 400, "Bad Request", why->message);
    } else if (why->as_string) {
        json_begin(&json, &body);
        json_object_begin(&json);
        json_member_string(&json, "error", why->message);
        json_object_end(&json);
        http_reply_json(exchange, 400, &body);
    } else if (stream) { /* the status line of a stream is sent before the request is checked */
        text_add_c(&body, "data: ");
        json_begin(&json, &body);
        json_object_begin(&json);
        json_key(&json, "error");
        json_object_begin(&json);
        json_member_string(&json, "message", why->message);
        json_member_string(&json, "type", "invalid_request_error");
        json_member_i64(&json, "code", 400);
        json_member_bool(&json, "retryable", false);
        json_object_end(&json);
        json_object_end(&json);
        text_add_c(&body, "\n\n");
        http_stream_begin(exchange, 200, "text/event-stream; charset=utf-8", NULL);
        http_stream_write(exchange, text_str(&body));
        http_stream_write(exchange, STR("data: [DONE]\n\n"));
        http_stream_end(exchange);
    } else {
        reply_error(engine, exchange, 400, why->message);
    }
    text_free(&body);
}

void route_generate(Engine *engine, HttpExchange *exchange)
{
    cJSON *body = body_object(engine, exchange);
    if (!body) {
        return;
    }
    Call *call = NULL;
    ParseFailure why;
    bool stream = json_bool(body, "stream", false);
    bool good = engine_parse_generate(engine, body, &call, &why);
    cJSON_Delete(body);
    if (!good) {
        refuse(engine, exchange, stream, &why);
        return;
    }
    http_set_user(exchange, call);
    if (!engine_submit_call(engine, call, exchange)) {
        http_set_user(exchange, NULL);
        call_free(call);
        reply_error_object(engine, exchange, 503, "503", "The request queue is full.");
        return;
    }
    if (call->stream) {
        http_stream_begin(exchange, 200, "text/event-stream; charset=utf-8", NULL);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static void note_tokens(Engine *engine, Sample *sample, size_t count, int64_t now)
{
    if (count == 0) {
        return;
    }
    if (sample->first_us == 0) {
        sample->first_us = now;
        histogram_add(&engine->ttft, (double)(now - sample->started_us) / 1e6, 1);
        count--;
    }
    if (count > 0 && sample->last_us > 0) {
        histogram_add(&engine->itl, (double)(now - sample->last_us) / 1e6 / (double)count, count);
    }
    sample->last_us = now;
}

static void note_finished(Engine *engine, Sample *sample, const EngineRequest *request,
                          int64_t now)
{
    if (request->is_health) {
        return;
    }
    size_t outputs = (size_t)request_output_count(request);
    if (!request->stream && outputs > 0) {
        histogram_add(&engine->ttft,
                      (double)(request->first_token_us - sample->started_us) / 1e6, 1);
        if (outputs > 1) {
            histogram_add(&engine->itl, (double)(request->finished_us - request->first_token_us) /
                          1e6 / (double)(outputs - 1), outputs - 1);
        }
    }
    engine->requests++;
    engine->prompt_tokens += (uint64_t)request->seq.prompt;
    engine->generation_tokens += outputs;
    engine->cached_tokens += (uint64_t)request->seq.cached;
    histogram_add(&engine->e2e, (double)(now - sample->started_us) / 1e6, 1);
}

static void finish_stream(Engine *engine, Sample *sample, EngineRequest *request,
                          const CoreEvent *event, int64_t now)
{
    int from = request->sent;
    size_t tail = (size_t)(request_output_count(request) - from);
    CoreToken *tokens = xcalloc(tail, sizeof *tokens);
    for (size_t i = 0; i < tail; i++) {
        tokens[i] = (CoreToken){request_outputs(request)[from + (int)i],
                                request->logprobs[from + (int)i]};
    }
    note_tokens(engine, sample, tail, now);
    const TokenAlt *alts = request->top_count > 0 && tail > 0
                               ? request->alts + from * request->top_count : NULL;
    reply_event(sample, tokens, alts, tail, event, request);
    free(tokens);
}

static void call_complete(Call *call)
{
    HttpExchange *exchange = call->exchange;
    if (call->stream) {
        http_stream_write(exchange, STR("data: [DONE]\n\n"));
        http_stream_end(exchange);
    } else {
        reply_unary(call);
    }
    call->exchange = NULL;
    call_free(call);
}

static void on_finished(Engine *engine, const CoreEvent *event, int64_t now)
{
    Sample *sample = (Sample *)event->user;
    EngineRequest *request = event->request;
    assert(sample->request == request);
    sample_delist(engine, sample);
    sample->finished = true;
    note_finished(engine, sample, request, now);
    Call *call = sample->call;
    if (!call) {
        sample_free(sample);
        return;
    }
    if (sample->drop) {
        return; /* fault: the answer never comes; the client's leaving frees it */
    }
    if (call->stream) {
        finish_stream(engine, sample, request, event, now);
    }
    if (++call->finished == call->count) {
        call_complete(call);
    }
}

void engine_on_out(CoreOut *out, void *user)
{
    Engine *engine = (Engine *)user;
    int64_t now = clock_mono_us();
    for (size_t i = 0; i < out->event_count; i++) {
        const CoreEvent *event = &out->events[i];
        Sample *sample = (Sample *)event->user;
        switch (event->kind) {
        case CORE_TOKENS:
            note_tokens(engine, sample, event->token_count, now);
            if (sample->call) {
                reply_event(sample, out->tokens + event->token_from, out->alts + event->alt_from,
                            event->token_count, event, NULL);
            }
            break;
        case CORE_FINISHED:
            on_finished(engine, event, now);
            break;
        case CORE_ACK:
            control_acknowledged(engine, event);
            break;
        }
    }
    health_answer_all(engine);
}
