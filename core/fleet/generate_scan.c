/* The generation scanner: what the events of one sample come to (sglang-api 6.3 to 6.6, dynamo-api
 * 5.4).
 *
 * An event is read whole (generate_event.c) and then applied, so that broken JSON leaves no trace.
 * The two stream modes are told apart by the counters: an event with n ids that says C tokens in
 * all is incremental when n + what we hold is C, and cumulative when n is C. Both hold only while
 * we hold nothing. Anything else breaks a rule. */
#include "core/fleet/generate_scan.h"

#include "core/base/mem.h"
#include "core/fleet/generate_event.h"
#include "core/fleet/peer_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCAN_TEXT_MAX = 16 << 20, SCAN_RID = 128 };

typedef enum Mode { MODE_OPEN, MODE_INCREMENTAL, MODE_CUMULATIVE } Mode;

/* What every event touches stands at the front, in as few lines as will do: with thousands of
 * streams each comes from memory. */
struct GenerateScan {
    TokenList held;
    int32_t vocab;
    EventFinish finish;
    size_t max_tokens, prompt_expected;
    int64_t prompt_tokens, cached_tokens, version; /* version: of the last span */
    size_t span_count, rid_n;
    Mode mode;
    bool without_logprobs, error_frame, is_broken;
    Text text;
    char rid[SCAN_RID];
    GenerateSpan *spans; /* the last one goes to the end of the tokens: its `to` is set late */
    size_t span_capacity;
    int code;
    char broken[96], message[160];
};

static void scan_reset(GenerateScan *scan, int32_t vocab, size_t max_tokens)
{
    scan->vocab = vocab;
    scan->max_tokens = max_tokens && max_tokens < EVENT_TOKENS_MAX ? max_tokens : EVENT_TOKENS_MAX;
    scan->prompt_expected = scan->rid_n = 0;
    scan->held.count = 0;
    scan->span_count = 0;
    text_clear(&scan->text);
    scan->mode = MODE_OPEN;
    scan->finish = FINISH_NONE;
    scan->without_logprobs = scan->error_frame = scan->is_broken = false;
    scan->prompt_tokens = scan->cached_tokens = -1;
    scan->code = 0;
    scan->broken[0] = scan->message[0] = '\0';
}

GenerateScan *generate_scan_new(int32_t vocab, size_t max_tokens)
{
    GenerateScan *scan = xcalloc(1, sizeof *scan);
    text_init(&scan->text, SCAN_TEXT_MAX);
    scan_reset(scan, vocab, max_tokens);
    return scan;
}

void generate_scan_clear(GenerateScan *scan, int32_t vocab, size_t max_tokens)
{
    scan_reset(scan, vocab, max_tokens);
}

void generate_scan_free(GenerateScan *scan)
{
    if (!scan) {
        return;
    }
    token_list_free(&scan->held);
    free(scan->spans);
    text_free(&scan->text);
    free(scan);
}

void generate_scan_expect(GenerateScan *scan, const char *rid, size_t prompt_tokens)
{
    scan->prompt_expected = prompt_tokens;
    (void)str_format(scan->rid, sizeof scan->rid, "%s", rid ? rid : "");
    scan->rid_n = strlen(scan->rid);
}

size_t generate_scan_tokens(const GenerateScan *scan)
{
    return scan->held.count;
}

const char *generate_scan_broken(const GenerateScan *scan)
{
    return scan->is_broken ? scan->broken : NULL;
}

bool generate_scan_terminal(const GenerateScan *scan)
{
    return scan->finish != FINISH_NONE;
}

int generate_scan_code(const GenerateScan *scan)
{
    return scan->code;
}

/* The first broken rule is the one that is told. */
__attribute__((format(printf, 2, 3)))
static void breaks(GenerateScan *scan, const char *format, ...)
{
    if (!scan->is_broken) {
        scan->is_broken = true;
        va_list args;
        va_start(args, format);
        (void)vsnprintf(scan->broken, sizeof scan->broken, format, args); /* cut is fine */
        va_end(args);
    }
}

/* ---- applying ----------------------------------------------------------------------------- */

/* The tokens from `from` on were made by `version`, as far as the peer says. */
static void add_version(GenerateScan *scan, size_t from, int64_t version)
{
    if (from == scan->held.count || (scan->span_count > 0 && scan->version == version)) {
        return;
    }
    if (scan->span_count > 0) {
        scan->spans[scan->span_count - 1].to = (int32_t)from;
    }
    GenerateSpan span = {.from = (int32_t)from, .weight_version = version};
    scan->version = version;
    if (!generate_span_push(&scan->spans, &scan->span_count, &scan->span_capacity, span)) {
        breaks(scan, "the policy version changed over %d times", EVENT_SPANS_MAX);
    }
}

/* Every id is in the vocabulary and the same in both lists, which are equally long. The first loop
 * only finds out that something is wrong, many ids at a time; the second says what. */
static void check_ids(GenerateScan *scan, const ScanEvent *e, const TokenList *tokens)
{
    const bool both = e->has_ids && e->has_triples;
    const uint32_t end = scan->vocab > 0 ? (uint32_t)scan->vocab : (uint32_t)INT32_MAX + 1u;
    const size_t n = tokens->count;
    uint32_t outside = 0;
    for (size_t i = 0; i < n; i++) {
        outside |= (uint32_t)tokens->ids[i] >= end ? 1u : 0u;
    }
    const size_t bytes = n * sizeof *tokens->ids;
    if (n == 0 || (!outside && (!both || memcmp(e->triples.ids, tokens->ids, bytes) == 0))) {
        return;
    }
    for (size_t i = 0; i < n && !scan->is_broken; i++) {
        int32_t id = tokens->ids[i];
        if (id < 0 || (scan->vocab > 0 && id >= scan->vocab)) {
            breaks(scan, "token id %d is outside the vocabulary of %d", id, scan->vocab);
        } else if (both && e->triples.ids[i] != id) {
            breaks(scan, "output id %d, but %d in the log-probs", id, e->triples.ids[i]);
        }
    }
}

/* ids, triples and both counters of one event agree; gives its tokens. */
static const TokenList *event_tokens(GenerateScan *scan, const ScanEvent *e)
{
    const size_t n = e->has_ids ? e->ids.count : e->triples.count;
    if (e->has_ids && e->has_triples && e->ids.count != e->triples.count) {
        breaks(scan, "%zu output_ids, %zu log-probs", e->ids.count, e->triples.count);
    }
    if (n > scan->max_tokens) {
        breaks(scan, "more than the %zu tokens asked for", scan->max_tokens);
    }
    if (e->null_logprob) {
        breaks(scan, "a log-prob is not finite, behind token %zu", scan->held.count);
    }
    if (n > 0 && !e->has_triples) {
        scan->without_logprobs = true;
    }
    if (e->has_triples && e->logprob_length >= 0 && e->completion >= 0
        && e->logprob_length != e->completion) {
        breaks(scan, "output_token_logprobs_length %lld, completion_tokens %lld",
               (long long)e->logprob_length, (long long)e->completion);
    }
    const TokenList *tokens = e->has_ids ? &e->ids : &e->triples;
    if (!scan->is_broken) {
        check_ids(scan, e, tokens);
    }
    return tokens;
}

/* How many of the event's n tokens we hold already (0: incremental). */
static size_t known_part(GenerateScan *scan, const ScanEvent *e, const TokenList *tokens)
{
    const size_t held = scan->held.count;
    const size_t n = tokens->count;
    const int64_t total = e->completion >= 0 ? e->completion : e->logprob_length;
    if (total < 0) {
        breaks(scan, "no completion_tokens behind token %zu", held);
        return 0;
    }
    const bool incremental = scan->mode != MODE_CUMULATIVE && (int64_t)(held + n) == total;
    const bool cumulative = scan->mode != MODE_INCREMENTAL && (int64_t)n == total && n >= held;
    if (!incremental && !cumulative) {
        breaks(scan, "completion_tokens %lld, but %zu tokens came", (long long)total, held + n);
        return 0;
    }
    if (incremental && cumulative) {
        return 0; /* only while nothing is held */
    }
    scan->mode = incremental ? MODE_INCREMENTAL : MODE_CUMULATIVE;
    return incremental ? 0 : held;
}

static void apply_tokens(GenerateScan *scan, const ScanEvent *e)
{
    if (e->finish == FINISH_ABORT
        && e->completion != (int64_t)(scan->held.count + e->ids.count)
        && e->completion != (int64_t)e->ids.count) {
        return; /* an abort in the queue repeats odd parts of the sample (sglang-api 6.6) */
    }
    const TokenList *tokens = event_tokens(scan, e);
    if (scan->is_broken) {
        return;
    }
    size_t known = known_part(scan, e, tokens);
    if (scan->is_broken) {
        return;
    }
    if (known > 0 && memcmp(tokens->ids, scan->held.ids, known * sizeof *tokens->ids) != 0) {
        breaks(scan, "the first %zu tokens changed in a later event", known);
        return;
    }
    const size_t from = scan->held.count;
    if (from + tokens->count - known > scan->max_tokens) {
        breaks(scan, "more than the %zu tokens asked for", scan->max_tokens);
        return;
    }
    token_list_add(&scan->held, tokens->ids + known,
                   e->has_triples ? e->triples.logprobs + known : NULL, tokens->count - known);
    add_version(scan, from, e->weight_version);
    if (e->text.p) {
        if (scan->mode == MODE_CUMULATIVE) {
            text_clear(&scan->text);
        }
        if (!json_decode(e->text, &scan->text)) {
            breaks(scan, "text over %d bytes", SCAN_TEXT_MAX);
        }
    }
}

/* The engine's own list of spans, where it sends one, is better than what the events said: an
 * event's version is the one at the time of sending. It must cover the sample without a gap. */
static void apply_spans(GenerateScan *scan, const ScanEvent *e)
{
    int32_t at = 0;
    for (size_t i = 0; i < e->span_count; i++) {
        if (e->spans[i].from != at) {
            breaks(scan, "weight_versions has a gap at token %d", at);
            return;
        }
        at = e->spans[i].to;
    }
    if ((size_t)at != scan->held.count) {
        breaks(scan, "weight_versions covers %d of %zu tokens", at, scan->held.count);
        return;
    }
    scan->span_count = 0;
    for (size_t i = 0; i < e->span_count; i++) {
        if (e->spans[i].from < e->spans[i].to) {
            add_version(scan, (size_t)e->spans[i].from, e->spans[i].weight_version);
        }
    }
}

static void apply(GenerateScan *scan, const ScanEvent *e)
{
    if (scan->finish != FINISH_NONE) {
        breaks(scan, "an event came behind the terminal one");
        return;
    }
    if (e->rid.p && scan->rid_n > 0 && !str_equal(e->rid, (Str){scan->rid, scan->rid_n})) {
        breaks(scan, "the reply is for another request id");
        return;
    }
    if (e->index != 0) {
        breaks(scan, "the reply holds several samples");
        return;
    }
    scan->prompt_tokens = e->prompt_tokens >= 0 ? e->prompt_tokens : scan->prompt_tokens;
    scan->cached_tokens = e->cached_tokens >= 0 ? e->cached_tokens : scan->cached_tokens;
    if (scan->prompt_expected > 0 && e->prompt_tokens >= 0
        && e->prompt_tokens != (int64_t)scan->prompt_expected) {
        breaks(scan, "prompt_tokens %lld, but %zu were sent", (long long)e->prompt_tokens,
               scan->prompt_expected);
        return;
    }
    apply_tokens(scan, e);
    scan->finish = e->finish;
    scan->code = (int)(e->code > 0 && e->code < 1000 ? e->code : 0);
    if (e->finish != FINISH_NONE && e->finish != FINISH_ABORT && e->span_count > 0) {
        apply_spans(scan, e);
    }
    if (e->message.p) {
        peer_error_clean(e->message, scan->message, sizeof scan->message);
    }
}

/* What reading alone has shown, whatever came behind it. */
static void note_spans(GenerateScan *scan, const ScanEvent *e)
{
    if (e->bad_span) {
        breaks(scan, "weight_versions holds a span %lld to %lld", (long long)e->bad_start,
               (long long)e->bad_end);
    } else if (e->many_spans) {
        breaks(scan, "weight_versions holds over %d spans", EVENT_SPANS_MAX);
    }
}

static Err error_event(GenerateScan *scan, const ScanEvent *e, Str json, Fault *fault)
{
    PeerError error = peer_error_read(json);
    if (!e->has_error && !error.known) {
        return fault_set(fault, ERR_FORMAT, NULL,
                         "an event has neither meta_info nor output_ids nor error");
    }
    scan->error_frame = true;
    scan->code = error.code;
    (void)str_format(scan->message, sizeof scan->message, "%s", error.text);
    return fault_set(fault, ERR_PEER, NULL, "the stream brought an error: %s", error.text);
}

Err generate_scan_event(GenerateScan *scan, Str json, Fault *fault)
{
    ScanEvent event;
    const char *error = NULL;
    Err err = ERR_OK;
    const bool good = scan_event_read(&event, json, scan->max_tokens + 1, &error);
    note_spans(scan, &event);
    if (!good) {
        err = fault_set(fault, ERR_FORMAT, NULL, "an event is not the JSON of a generation: %s",
                        error);
    } else if (event.has_error || (!event.has_meta && !event.has_ids)) {
        err = error_event(scan, &event, json, fault);
    } else {
        apply(scan, &event);
    }
    scan_event_free(&event);
    return err;
}

static GenerateEnd scan_end(const GenerateScan *scan)
{
    if (scan->error_frame) {
        return GENERATE_ERROR_FRAME;
    }
    if (scan->is_broken) {
        return GENERATE_INVALID;
    }
    switch (scan->finish) {
    case FINISH_NONE: return GENERATE_TRUNCATED;
    case FINISH_STOP: return GENERATE_STOP;
    case FINISH_LENGTH: return GENERATE_LENGTH;
    case FINISH_ABORT: return GENERATE_ABORT;
    case FINISH_OTHER: break;
    }
    return GENERATE_INVALID;
}

void generate_scan_result(const GenerateScan *scan, GenerateResult *out)
{
    *out = (GenerateResult){.end = scan_end(scan)};
    const bool whole = out->end == GENERATE_STOP || out->end == GENERATE_LENGTH;
    const char *detail = scan->is_broken && !scan->error_frame ? scan->broken : scan->message;
    if (whole && scan->without_logprobs) {
        out->end = GENERATE_INVALID;
        detail = "no output_token_logprobs";
    } else if (!scan->is_broken && scan->finish == FINISH_OTHER) {
        detail = "finish_reason is neither stop nor length nor abort";
    }
    (void)str_format(out->detail, sizeof out->detail, "%s", detail);
    out->ids = scan->held.ids;
    out->logprobs = scan->without_logprobs ? NULL : scan->held.logprobs;
    out->count = scan->held.count;
    out->spans = scan->spans;
    out->span_count = scan->span_count;
    if (scan->span_count > 0) {
        scan->spans[scan->span_count - 1].to = (int32_t)scan->held.count;
    }
    out->text = text_str(&scan->text);
    out->prompt_tokens = scan->prompt_tokens;
    out->cached_tokens = scan->cached_tokens;
    out->retry_after_s = -1.0;
}
