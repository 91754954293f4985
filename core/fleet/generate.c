/* One sample's generation over HTTP. The reply is told apart by its bytes, not by its headers:
 * one that begins with '{' is a whole reply, anything else is read as SSE (dynamo-api 0.2; and a
 * peer may answer a stream request with plain JSON). A broken rule closes the connection at
 * once: the engine then stops working on a sample that nobody will take. */
#include "core/fleet/generate.h"

#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/fleet/generate_scan.h"
#include "core/fleet/peer_error.h"
#include "core/net/sse.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GENERATE_TOTAL_MS = 3600 * 1000,
    GENERATE_SILENCE_MS = 120 * 1000,
    GENERATE_PROMPT_MAX = 4 << 20, /* ids */
    GENERATE_ERROR_MAX = 64 << 10  /* bytes kept of a reply that is no success */
};
static const size_t STREAM_BODY_MAX = (size_t)4 << 30; /* cumulative streams are quadratic */

struct Generation { /* what each piece touches stands at the front */
    GenerateScan *scan;
    Sse *sse;
    size_t told;         /* tokens at the last on_progress */
    bool sniffed, unary, got_done, cancelled;
    Err scan_err;        /* what ended the stream from our side */
    GenerateEvents events;
    HttpCall *call;
    Text whole;          /* a unary reply or an error body */
    char engine[64];
    Fault fault;
};

const char *generate_end_name(GenerateEnd end)
{
    switch (end) {
    case GENERATE_STOP: return "stop";
    case GENERATE_LENGTH: return "length";
    case GENERATE_ABORT: return "abort";
    case GENERATE_TRUNCATED: return "truncated";
    case GENERATE_ERROR_FRAME: return "error frame";
    case GENERATE_BUSY: return "busy";
    case GENERATE_REFUSED: return "refused";
    case GENERATE_FAILED: return "failed";
    case GENERATE_SILENT: return "silent";
    case GENERATE_INVALID: return "invalid";
    case GENERATE_CANCELLED: return "cancelled";
    }
    return "?";
}

/* ---- request ------------------------------------------------------------------------------ */

static Err check_spec(const GenerateSpec *spec, Fault *fault)
{
    if (spec->input_count == 0 || spec->input_count > GENERATE_PROMPT_MAX) {
        return fault_set(fault, ERR_ARG, "send 1 to 4,194,304 token ids",
                         "the prompt of %s has %zu token ids", spec->rid, spec->input_count);
    }
    for (size_t i = 0; i < spec->input_count; i++) { /* one bad id kills a real engine */
        int32_t id = spec->input_ids[i];
        if (id < 0 || (spec->vocab > 0 && id >= spec->vocab)) {
            return fault_set(fault, ERR_ARG, "use the checkpoint's own tokenizer",
                             "token id %d at place %zu of the prompt of %s is outside the "
                             "vocabulary of %d", id, i, spec->rid, spec->vocab);
        }
    }
    if (!isfinite(spec->temperature) || spec->temperature < 0 || !(spec->top_p > 0)
        || spec->top_p > 1 || spec->max_new_tokens < 1 || (spec->top_k < 1 && spec->top_k != -1)) {
        return fault_set(fault, ERR_ARG,
                         "temperature >= 0, 0 < top_p <= 1, top_k >= 1 or -1, max_new_tokens >= 1",
                         "sampling settings out of range: temperature %g, top_p %g, top_k %lld, "
                         "max_new_tokens %lld", spec->temperature, spec->top_p,
                         (long long)spec->top_k, (long long)spec->max_new_tokens);
    }
    return ERR_OK;
}

static void write_sampling(JsonOut *out, const GenerateSpec *spec)
{
    json_key(out, "sampling_params");
    json_object_begin(out);
    json_member_double(out, "temperature", spec->temperature);
    json_member_double(out, "top_p", spec->top_p);
    json_member_i64(out, "top_k", spec->top_k);
    json_member_i64(out, "max_new_tokens", spec->max_new_tokens);
    if (spec->stop && spec->stop[0]) {
        json_key(out, "stop");
        json_array_begin(out);
        for (const char *const *stop = spec->stop; *stop; stop++) {
            json_put_string(out, *stop);
        }
        json_array_end(out);
    }
    if (spec->stop_id_count > 0) {
        json_key(out, "stop_token_ids");
        json_array_begin(out);
        for (size_t i = 0; i < spec->stop_id_count; i++) {
            json_put_i64(out, spec->stop_ids[i]);
        }
        json_array_end(out);
    }
    json_member_bool(out, "skip_special_tokens", spec->skip_special_tokens);
    json_member_bool(out, "spaces_between_special_tokens", false);
    json_member_bool(out, "no_stop_trim", true);
    json_member_bool(out, "ignore_eos", spec->ignore_eos);
    if (spec->seed >= 0) {
        json_member_i64(out, "sampling_seed", spec->seed);
    }
    json_object_end(out);
}

/* slime's request (slime-semantics 3.3) with a rid of the attempt. */
static bool write_body(const GenerateSpec *spec, Text *body)
{
    JsonOut out;
    json_begin(&out, body);
    json_object_begin(&out);
    json_member_string(&out, "rid", spec->rid);
    json_key(&out, "input_ids");
    json_array_begin(&out);
    for (size_t i = 0; i < spec->input_count; i++) {
        json_put_i64(&out, spec->input_ids[i]);
    }
    json_array_end(&out);
    write_sampling(&out, spec);
    json_member_bool(&out, "return_logprob", true);
    json_member_bool(&out, "stream", spec->stream);
    json_object_end(&out);
    return !body->cut;
}

/* ---- reply -------------------------------------------------------------------------------- */

static void note_progress(Generation *g)
{
    size_t tokens = generate_scan_tokens(g->scan);
    if (tokens > g->told) {
        g->told = tokens;
        if (g->events.on_progress) {
            g->events.on_progress(g, tokens, g->events.user);
        }
    }
}

static bool on_event(Str data, void *user)
{
    Generation *g = user;
    if (g->got_done) {
        g->scan_err = fault_set(&g->fault, ERR_FORMAT, NULL, "an event came behind [DONE]");
        return false;
    }
    if (str_equal(data, STR("[DONE]"))) {
        g->got_done = true;
        return true;
    }
    g->scan_err = generate_scan_event(g->scan, data, &g->fault);
    if (!g->scan_err && generate_scan_broken(g->scan)) {
        g->scan_err = ERR_PEER;
    }
    return g->scan_err == ERR_OK;
}

static void note_engine(Generation *g, HttpCall *call)
{
    Str engine = http_call_header(call, "x-rolltop-engine");
    if (engine.n > 0 && engine.n < sizeof g->engine && !g->engine[0]) {
        memcpy(g->engine, engine.p, engine.n);
        g->engine[engine.n] = '\0';
    }
}

static bool keep(Generation *g, Str piece)
{
    if (!text_add_str(&g->whole, piece)) {
        g->scan_err = fault_set(&g->fault, ERR_LIMIT, NULL, "the reply is over %zu bytes",
                                g->whole.max);
        return false;
    }
    return true;
}

static bool on_body(HttpCall *call, Str piece, void *user)
{
    Generation *g = user;
    if (http_call_status(call) != 200) { /* as much of the error as is worth keeping */
        size_t room = GENERATE_ERROR_MAX > g->whole.n ? GENERATE_ERROR_MAX - g->whole.n : 0;
        text_add_str(&g->whole, str_slice(piece, 0, room));
        return true;
    }
    if (!g->sniffed) {
        note_engine(g, call);
        Str text = str_trim(piece);
        g->sniffed = text.n > 0;
        g->unary = text.n > 0 && text.p[0] == '{';
    }
    if (g->unary) {
        return keep(g, piece);
    }
    Err err = sse_feed(g->sse, piece);
    if (err && !g->scan_err) {
        g->scan_err = fault_set(&g->fault, err, NULL, "an event of the stream is too long");
    }
    note_progress(g);
    return err == ERR_OK;
}

static bool busy_status(int status)
{
    return status == 429 || status == 503 || status == 529; /* dynamo-api 0.11 */
}

static GenerateEnd end_of_status(int status)
{
    if (busy_status(status)) {
        return GENERATE_BUSY;
    }
    /* 404 comes and goes while a model registers, 408 and 499 are about this attempt only, and
     * 501 says that this peer will never take such a request. */
    bool ours = status == 501 || (status >= 400 && status < 500 && status != 404 && status != 408
                                  && status != 499);
    return ours ? GENERATE_REFUSED : GENERATE_FAILED;
}

/* A Dynamo frontend that sees the fleet under two names refuses every request with 400, whatever is
 * in it (see registration.h): that says nothing about the sample. */
static bool fleet_is_split(const char *text)
{
    return strstr(text, "multiple SGLang models are registered") != NULL;
}

/* The scanner's word, sharpened: an error inside a stream may carry the status that it would
 * have had before the stream began. */
static GenerateEnd end_of_scan(const Generation *g, const GenerateResult *result)
{
    const int code = generate_scan_code(g->scan);
    if (result->end == GENERATE_ERROR_FRAME || (result->end == GENERATE_ABORT && code > 0)) {
        if (busy_status(code) || strstr(result->detail, "temporarily overloaded")
            || strstr(result->detail, "temporarily unavailable")) {
            return GENERATE_BUSY;
        }
        if (code >= 400 && code < 500) {
            return end_of_status(code);
        }
        return result->end == GENERATE_ABORT ? GENERATE_FAILED : result->end;
    }
    if (result->end != GENERATE_TRUNCATED && !g->unary && !g->got_done) {
        return result->end == GENERATE_INVALID ? GENERATE_INVALID : GENERATE_TRUNCATED;
    }
    return result->end;
}

static void set_detail(GenerateResult *result, const char *text)
{
    (void)str_format(result->detail, sizeof result->detail, "%s", text);
}

static void judge(Generation *g, const HttpResult *http, GenerateResult *result)
{
    if (g->cancelled) {
        result->end = GENERATE_CANCELLED;
        set_detail(result, "cancelled");
    } else if (http->end == HTTP_END_OK && http->status != 200) {
        PeerError error = peer_error_read(text_str(&g->whole));
        result->end = fleet_is_split(error.text) ? GENERATE_FAILED : end_of_status(http->status);
        (void)str_format(result->detail, sizeof result->detail, "http %d: %.120s", http->status,
                         error.text);
    } else if (g->scan_err == ERR_PEER || generate_scan_broken(g->scan)) {
        result->end = end_of_scan(g, result);
    } else if (g->scan_err) {
        result->end = GENERATE_FAILED;
        set_detail(result, g->fault.sentence);
    } else if (generate_scan_terminal(g->scan) && (g->got_done || g->unary)) {
        result->end = end_of_scan(g, result); /* whole, however the connection ended */
    } else if (http->end == HTTP_END_TIMEOUT_SILENT) {
        result->end = GENERATE_SILENT;
        (void)str_format(result->detail, sizeof result->detail, "%s, %zu tokens came before",
                         http->error, result->count);
    } else if (http->end != HTTP_END_OK) {
        result->end = GENERATE_FAILED;
        (void)str_format(result->detail, sizeof result->detail, "%s: %.100s",
                         http_end_name(http->end), http->error);
    } else {
        result->end = GENERATE_TRUNCATED;
        set_detail(result, generate_scan_terminal(g->scan)
                               ? "the stream ended without [DONE]"
                               : "the stream ended without a finish_reason");
    }
}

static void generation_free(Generation *g)
{
    generate_scan_free(g->scan);
    sse_free(g->sse);
    text_free(&g->whole);
    free(g);
}

static void on_http_done(HttpCall *call, const HttpResult *http, void *user)
{
    Generation *g = user;
    GenerateResult result;
    if (http->status > 0) {
        note_engine(g, call);
    }
    if (g->unary && http->end == HTTP_END_OK && !g->scan_err && !g->cancelled) {
        g->scan_err = generate_scan_event(g->scan, text_str(&g->whole), &g->fault);
    }
    generate_scan_result(g->scan, &result);
    judge(g, http, &result);
    result.first_token_us = http->first_byte_us;
    result.total_us = http->total_us;
    result.retry_after_s = http->retry_after_s;
    memcpy(result.engine, g->engine, sizeof result.engine);
    note_progress(g);
    g->call = NULL;
    g->events.on_done(g, &result, g->events.user);
    generation_free(g);
}

Err generate_start(HttpClient *client, const GenerateSpec *spec, const GenerateEvents *events,
                   Generation **out, Fault *fault)
{
    *out = NULL;
    Err err = check_spec(spec, fault);
    if (err) {
        return err;
    }
    Text body;
    text_init(&body, (size_t)64 << 20);
    if (!write_body(spec, &body)) {
        text_free(&body);
        return fault_set(fault, ERR_LIMIT, NULL, "the request of %s is over 64 MiB", spec->rid);
    }
    Generation *g = xcalloc(1, sizeof *g);
    /* One event of a cumulative stream holds all tokens: some 100 bytes each with log-prob and
     * text, and more where the engine adds fields of its own. */
    size_t event_max = (256u << 10) + 512 * (size_t)spec->max_new_tokens;
    event_max = event_max > 256u << 20 ? 256u << 20 : event_max;
    g->events = *events;
    g->scan = generate_scan_new(spec->vocab, (size_t)spec->max_new_tokens);
    generate_scan_expect(g->scan, spec->rid, spec->input_count);
    g->sse = sse_new(event_max, on_event, g);
    text_init(&g->whole, event_max);
    HttpRequestSpec request = {
        .method = "POST", .url = spec->url, .body = text_str(&body), .bearer = spec->bearer,
        .total_ms = spec->total_ms > 0 ? spec->total_ms : GENERATE_TOTAL_MS,
        .silence_ms = spec->silence_ms > 0 ? spec->silence_ms : GENERATE_SILENCE_MS,
        .max_body = spec->stream ? STREAM_BODY_MAX : event_max,
        .on_body = on_body, .on_done = on_http_done, .user = g,
        .touched = {g, g->sse, g->scan, events->user},
    };
    if (!spec->stream) {
        request.silence_ms = -1; /* silent until the end by nature */
    }
    err = http_start(client, &request, &g->call, fault);
    text_free(&body);
    if (err) {
        generation_free(g);
        return err;
    }
    *out = g;
    return ERR_OK;
}

void generate_cancel(Generation *g)
{
    if (g->call && !g->cancelled) {
        g->cancelled = true;
        http_call_cancel(g->call);
    }
}

const char *generate_engine(const Generation *g)
{
    return g->engine;
}
