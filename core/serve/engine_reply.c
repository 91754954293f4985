/* Replies of /generate: one JSON object a sample (unary), one event a burst of tokens (streams).
 * Shapes are SGLang's (sglang-api 6.3 to 6.6). Written piece by piece: no tree, no printf. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/serve/engine_local.h"

#include <stdlib.h>
#include <string.h>

#define LIT(text, literal) text_add((text), (literal), sizeof(literal) - 1)

typedef struct Meta { /* what one object says */
    const CoreToken *tokens; /* the new ones, or all */
    const TokenAlt *alts;
    size_t count;
    int completion, cached, retractions;
    const char *version;
    const EngineRequest *end; /* finished, or NULL */
} Meta;

static void add_int(Text *out, int64_t v)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t left = v < 0 ? 0u - (uint64_t)v : (uint64_t)v;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (v < 0) {
        digits[--at] = '-';
    }
    text_add(out, digits + at, sizeof digits - at);
}

static void add_string(Text *out, Str s)
{
    JsonOut json;
    json_begin(&json, out);
    json_put_str(&json, s);
}

static void add_float(Text *out, float v)
{
    JsonOut json;
    json_begin(&json, out);
    json_put_float(&json, v);
}

static void add_double(Text *out, double v)
{
    JsonOut json;
    json_begin(&json, out);
    json_put_double(&json, v);
}

static void add_triple(Text *out, float logprob, int32_t id)
{
    LIT(out, "[");
    add_float(out, logprob);
    LIT(out, ",");
    add_int(out, id);
    LIT(out, ",null]");
}

static void add_ids(Text *out, const CoreToken *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            LIT(out, ",");
        }
        add_int(out, tokens[i].id);
    }
}

static void add_tops(Text *out, const TokenAlt *alts, size_t positions, int top)
{
    for (size_t i = 0; i < positions; i++) {
        LIT(out, "[");
        for (int k = 0; k < top; k++) {
            const TokenAlt *alt = &alts[i * (size_t)top + (size_t)k];
            if (k > 0) {
                LIT(out, ",");
            }
            add_triple(out, alt->logprob, alt->id);
        }
        if (i + 1 < positions) {
            LIT(out, "],");
        } else {
            LIT(out, "]");
        }
    }
}

/* Read only after the first output came, when the core no longer writes them. */
static void add_input_logprobs(Text *out, const EngineRequest *request)
{
    LIT(out, ",\"input_token_logprobs\":[");
    if (request->logprob_start >= 0) {
        const int32_t *prompt = request->tokens + request->logprob_start;
        LIT(out, "[null,");
        add_int(out, prompt[0]);
        LIT(out, ",null]");
        for (int i = 0; i < request->input_logprob_count; i++) {
            LIT(out, ",");
            add_triple(out, request->input_logprobs[i], prompt[i + 1]);
        }
    }
    LIT(out, "]");
    if (request->top_count > 0) {
        LIT(out, ",\"input_top_logprobs\":[");
        if (request->logprob_start >= 0) {
            LIT(out, "null");
            if (request->input_logprob_count > 0) {
                LIT(out, ",");
                add_tops(out, request->input_alts, (size_t)request->input_logprob_count,
                         request->top_count);
            }
        }
        LIT(out, "]");
    }
}

static void add_logprobs(Text *out, const EngineRequest *request, const Meta *meta)
{
    add_input_logprobs(out, request);
    LIT(out, ",\"output_token_logprobs\":[");
    for (size_t i = 0; i < meta->count; i++) {
        if (i > 0) {
            LIT(out, ",");
        }
        add_triple(out, meta->tokens[i].logprob, meta->tokens[i].id);
    }
    LIT(out, "],\"output_token_logprobs_length\":");
    add_int(out, meta->completion);
    if (request->top_count > 0) {
        LIT(out, ",\"output_top_logprobs\":[");
        add_tops(out, meta->alts, meta->count, request->top_count);
        LIT(out, "]");
    }
}

static void add_finish_reason(Text *out, const EngineRequest *request)
{
    switch (request->end) {
    case REQUEST_RUNS:
        LIT(out, "null");
        break;
    case REQUEST_STOP_ID:
        LIT(out, "{\"type\":\"stop\",\"matched\":");
        add_int(out, request->matched_id);
        LIT(out, "}");
        break;
    case REQUEST_STOP_TEXT:
        LIT(out, "{\"type\":\"stop\",\"matched\":");
        add_string(out, str_from(request->stops[request->matched_text]));
        LIT(out, "}");
        break;
    case REQUEST_LENGTH:
        LIT(out, "{\"type\":\"length\",\"length\":");
        add_int(out, request_output_count(request));
        LIT(out, "}");
        break;
    case REQUEST_ABORTED:
        LIT(out, "{\"type\":\"abort\",\"message\":\"Aborted\",\"status_code\":null,"
                 "\"err_type\":null}");
        break;
    case REQUEST_ABORTED_QUEUED:
        LIT(out, "{\"type\":\"abort\",\"message\":\"Abort in waiting queue\"}");
        break;
    case REQUEST_FAILED:
        LIT(out, "{\"type\":\"abort\",\"message\":");
        add_string(out, str_from(request->error));
        LIT(out, ",\"status_code\":500,\"err_type\":\"InternalServerError\"}");
        break;
    }
}

static void add_end(Text *out, const Sample *sample, const EngineRequest *request)
{
    if (request->span_count > 0) {
        LIT(out, ",\"weight_versions\":[");
        for (int i = 0; i < request->span_count; i++) {
            if (i > 0) {
                LIT(out, ",");
            }
            LIT(out, "{\"version\":");
            add_string(out, str_from(request->spans[i].version));
            LIT(out, ",\"start\":");
            add_int(out, request->spans[i].from);
            LIT(out, ",\"end\":");
            add_int(out, request->spans[i].to);
            LIT(out, "}");
        }
        LIT(out, "]");
    }
    LIT(out, ",\"e2e_latency\":");
    add_double(out, (double)(clock_mono_us() - sample->started_us) / 1e6);
}

static void add_meta(Text *out, const Sample *sample, const EngineRequest *request,
                     const Meta *meta, bool want_logprobs)
{
    LIT(out, "\"meta_info\":{\"id\":");
    add_string(out, str_from(sample->rid));
    LIT(out, ",\"finish_reason\":");
    if (meta->end) {
        add_finish_reason(out, meta->end);
    } else {
        LIT(out, "null");
    }
    LIT(out, ",\"weight_version\":");
    add_string(out, str_from(meta->version));
    LIT(out, ",\"completion_tokens\":");
    add_int(out, meta->completion);
    bool reduced = meta->end && meta->end->end == REQUEST_ABORTED_QUEUED;
    if (!reduced) { /* upstream leaves these out of the reply of a queued abort */
        LIT(out, ",\"prompt_tokens\":");
        add_int(out, sample->prompt_tokens);
        LIT(out, ",\"cached_tokens\":");
        add_int(out, meta->cached);
        LIT(out, ",\"num_retractions\":");
        add_int(out, meta->retractions);
        LIT(out, ",\"dp_rank\":null");
    }
    if (want_logprobs) {
        add_logprobs(out, request, meta);
    }
    if (meta->end) {
        add_end(out, sample, meta->end);
    }
    LIT(out, "}");
}

/* ---- unary ---------------------------------------------------------------------------------- */

static int request_status(const EngineRequest *request)
{
    return request->end == REQUEST_FAILED ? 500 : 200;
}

/* Where the text of a stopped sample ends: the matched string or token is not part of it. */
static void trim_text(const EngineRequest *request, bool no_stop_trim, Text *decoded)
{
    int which = 0;
    size_t at = 0;
    if (!no_stop_trim && request->end == REQUEST_STOP_TEXT &&
        engine_text_find_stop(text_str(decoded), 0, request->stops, request->stop_count, &which,
                              &at)) {
        decoded->n = at;
        decoded->p[at] = 0;
    }
}

static size_t text_tokens(const EngineRequest *request, bool no_stop_trim)
{
    size_t n = (size_t)request_output_count(request);
    return request->end == REQUEST_STOP_ID && !no_stop_trim ? n - 1 : n;
}

static void add_unary(Text *out, Sample *sample)
{
    const Call *call = sample->call;
    const EngineRequest *request = sample->request;
    Engine *engine = call->engine;
    size_t count = (size_t)request_output_count(request);
    CoreToken *tokens = xcalloc(count, sizeof *tokens);
    const int32_t *ids = request_outputs(request);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (CoreToken){ids[i], request->logprobs[i]};
    }
    LIT(out, "{");
    if (!call->skip_text) {
        Text decoded;
        text_init(&decoded, ENGINE_REPLY_MAX);
        EngineText text;
        engine_text_init(&text, engine->tokenizer, request->skip_special);
        size_t n = text_tokens(request, call->no_stop_trim);
        for (size_t i = 0; i < n; i++) {
            engine_text_push(&text, ids[i], &decoded);
        }
        engine_text_flush(&text, &decoded);
        trim_text(request, call->no_stop_trim, &decoded);
        LIT(out, "\"text\":");
        add_string(out, text_str(&decoded));
        LIT(out, ",");
        text_free(&decoded);
    }
    LIT(out, "\"output_ids\":[");
    add_ids(out, tokens, count);
    LIT(out, "],");
    const char *version = request->span_count > 0
                              ? request->spans[request->span_count - 1].version
                              : engine_version(engine);
    Meta meta = {tokens, request->alts, count, (int)count, request->seq.cached,
                 request->seq.retractions, version, request};
    add_meta(out, sample, request, &meta, call->want_logprobs);
    LIT(out, "}");
    free(tokens);
}

void reply_unary(Call *call)
{
    Engine *engine = call->engine;
    const EngineRequest *first = call->samples[0]->request;
    if (!call->array && request_status(first) != 200) {
        reply_error_object(engine, call->exchange, 500, "500", first->error);
        return;
    }
    Text body;
    text_init(&body, ENGINE_REPLY_MAX);
    if (call->array) {
        LIT(&body, "[");
    }
    for (int i = 0; i < call->count; i++) {
        if (i > 0) {
            LIT(&body, ",");
        }
        add_unary(&body, call->samples[i]);
    }
    if (call->array) {
        LIT(&body, "]");
    }
    if (body.cut) {
        reply_error_object(engine, call->exchange, 500, "500", "the reply is larger than 512 MiB; "
                           "ask for fewer samples or fewer log-probs a call");
    } else {
        http_reply_json(call->exchange, 200, &body);
    }
    text_free(&body);
}

/* ---- streams -------------------------------------------------------------------------------- */

static void keep_tokens(Sample *sample, const CoreToken *tokens, const TokenAlt *alts,
                        size_t count)
{
    size_t top = (size_t)sample->top_count;
    if (sample->kept_count + count > sample->kept_capacity) {
        sample->kept_capacity = (sample->kept_count + count) * 2 + 32;
        sample->kept = xrealloc(sample->kept, sample->kept_capacity, sizeof *sample->kept);
        if (top > 0) {
            sample->kept_alts = xrealloc(sample->kept_alts, sample->kept_capacity * top,
                                         sizeof *sample->kept_alts);
        }
    }
    if (count > 0) {
        memcpy(sample->kept + sample->kept_count, tokens, count * sizeof *tokens);
    }
    if (count * top > 0) {
        memcpy(sample->kept_alts + sample->kept_count * top, alts, count * top * sizeof *alts);
    }
    sample->kept_count += count;
}

static Str stream_text(Sample *sample, const CoreToken *tokens, size_t count,
                       const EngineRequest *end, bool cumulative)
{
    const Call *call = sample->call;
    const EngineRequest *request = sample->request;
    size_t n = end && end->end == REQUEST_STOP_ID && !call->no_stop_trim ? count - 1 : count;
    for (size_t i = 0; i < n; i++) {
        engine_text_push(&sample->text, tokens[i].id, &sample->decoded);
    }
    size_t held = 0;
    if (end) {
        engine_text_flush(&sample->text, &sample->decoded);
        trim_text(end, call->no_stop_trim, &sample->decoded);
    } else if (request->stop_count > 0 && !call->no_stop_trim) {
        held = engine_text_held_back(text_str(&sample->decoded), request->stops,
                                     request->stop_count);
    }
    size_t until = sample->decoded.n - held;
    until = until > sample->text_sent ? until : sample->text_sent;
    Str piece = str_slice(text_str(&sample->decoded), cumulative ? 0 : sample->text_sent, until);
    sample->text_sent = until < sample->decoded.n ? until : sample->decoded.n;
    return piece;
}

void reply_event(Sample *sample, const CoreToken *tokens, const TokenAlt *alts, size_t count,
                 const CoreEvent *event, const EngineRequest *end)
{
    Call *call = sample->call;
    Engine *engine = call->engine;
    bool cumulative = !engine->settings->incremental;
    Text *out = &engine->scratch;
    text_clear(out);
    sample->emitted += (int)count;
    LIT(out, "data: {");
    if (!call->skip_text) {
        Str piece = stream_text(sample, tokens, count, end, cumulative);
        LIT(out, "\"text\":");
        add_string(out, piece);
        LIT(out, ",");
    }
    if (cumulative) {
        keep_tokens(sample, tokens, alts, count);
        tokens = sample->kept;
        alts = sample->kept_alts;
        count = sample->kept_count;
    }
    LIT(out, "\"output_ids\":[");
    add_ids(out, tokens, count);
    LIT(out, "],");
    const char *version = end && end->span_count > 0 ? end->spans[end->span_count - 1].version
                                                     : event->version;
    if (faults_active(&engine->faults, FAULT_VER_RESET, clock_mono_us())) {
        version = "default";
    }
    Meta meta = {tokens, alts, count, sample->emitted, end ? end->seq.cached : event->cached,
                 end ? end->seq.retractions : event->retractions, version, end};
    add_meta(out, sample, sample->request, &meta, call->want_logprobs);
    if (call->array) {
        LIT(out, ",\"index\":");
        add_int(out, sample->index);
    }
    LIT(out, "}\n\n");
    http_stream_write(call->exchange, text_str(out));
}
