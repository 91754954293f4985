/* The generation scanner: one event of SGLang's native stream (sglang-api 6.3 to 6.6, dynamo-api
 * 5.4), or one whole reply, in one pass.
 *
 * An event is read into `Event` first and then applied, so that broken JSON leaves no trace. The
 * two stream modes are told apart by the counters: an event with n ids that says C tokens in all
 * is incremental when n + what we hold is C, and cumulative when n is C. Both hold only while we
 * hold nothing. Anything else breaks a rule. Expected: 100 to 2,000 bytes an event. */
#include "core/fleet/generate_scan.h"

#include "core/base/mem.h"
#include "core/fleet/generate_lists.h"
#include "core/fleet/peer_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCAN_TEXT_MAX = 16 << 20, SCAN_SPANS_MAX = 4096, SCAN_TOKENS_MAX = 1 << 24 };

typedef enum Mode { MODE_OPEN, MODE_INCREMENTAL, MODE_CUMULATIVE } Mode;
typedef enum Finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ABORT, FINISH_OTHER } Finish;

typedef struct Event { /* one event as it was read; strings lie in its bytes */
    TokenList ids; /* only .ids of it */
    TokenList triples;
    bool has_ids, has_triples, null_logprob, has_meta, has_error, no_version;
    Str text, rid, message, type;
    Finish finish;
    int64_t code, completion, logprob_length, prompt_tokens, cached_tokens, index;
    int64_t weight_version;
    GenerateSpan *spans; /* weight_versions, where the engine sends them */
    size_t span_count, span_capacity;
} Event;

struct GenerateScan {
    int32_t vocab;
    size_t max_tokens, prompt_expected;
    char rid[128];
    Event event;
    TokenList held;
    GenerateSpan *spans;
    size_t span_count, span_capacity;
    Text text;
    Mode mode;
    Finish finish;
    bool without_logprobs, error_frame;
    int64_t prompt_tokens, cached_tokens;
    int code;
    char broken[96], message[160];
};

static void scan_reset(GenerateScan *scan, int32_t vocab, size_t max_tokens)
{
    scan->vocab = vocab;
    scan->max_tokens = max_tokens && max_tokens < SCAN_TOKENS_MAX ? max_tokens : SCAN_TOKENS_MAX;
    scan->prompt_expected = 0;
    scan->rid[0] = '\0';
    scan->held.count = 0;
    scan->span_count = 0;
    text_clear(&scan->text);
    scan->mode = MODE_OPEN;
    scan->finish = FINISH_NONE;
    scan->without_logprobs = scan->error_frame = false;
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
    token_list_free(&scan->event.ids);
    token_list_free(&scan->event.triples);
    token_list_free(&scan->held);
    free(scan->event.spans);
    free(scan->spans);
    text_free(&scan->text);
    free(scan);
}

void generate_scan_expect(GenerateScan *scan, const char *rid, size_t prompt_tokens)
{
    scan->prompt_expected = prompt_tokens;
    (void)str_format(scan->rid, sizeof scan->rid, "%s", rid ? rid : "");
}

size_t generate_scan_tokens(const GenerateScan *scan)
{
    return scan->held.count;
}

const char *generate_scan_broken(const GenerateScan *scan)
{
    return scan->broken[0] ? scan->broken : NULL;
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
    if (!scan->broken[0]) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(scan->broken, sizeof scan->broken, format, args); /* cut is fine */
        va_end(args);
    }
}

static bool push_span(GenerateSpan **spans, size_t *count, size_t *capacity, GenerateSpan span)
{
    if (*count >= SCAN_SPANS_MAX) {
        return false;
    }
    if (*count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 8;
        *spans = xrealloc(*spans, *capacity, sizeof **spans);
    }
    (*spans)[(*count)++] = span;
    return true;
}

/* ---- reading ------------------------------------------------------------------------------ */

static bool key_is(Str key, const char *name, size_t n)
{
    return key.n == n && memcmp(key.p, name, n) == 0;
}
#define KEY(literal) key_is(key, literal, sizeof(literal) - 1)

/* One entry over the bound is enough to see that it is passed. */
static void read_ids(GenerateScan *scan, JsonCursor *c)
{
    if (!json_null(c)) {
        scan->event.has_ids = true;
        generate_read_ids(c, &scan->event.ids, scan->max_tokens + 1);
    }
}

static void read_triples(GenerateScan *scan, JsonCursor *c)
{
    Event *e = &scan->event;
    if (!json_null(c)) {
        e->has_triples = true;
        generate_read_triples(c, &e->triples, scan->max_tokens + 1, &e->null_logprob);
    }
}

static bool read_count(JsonCursor *c, int64_t *out)
{
    return json_null(c) || json_integer(c, out);
}

/* A version is a string at all known engines; a plain number is taken too. */
static int64_t read_version(JsonCursor *c)
{
    Str raw;
    int64_t version = -1;
    if (json_peek(c) == '"') {
        if (!json_raw_string(c, &raw) || !str_to_i64(raw, &version) || version < 0) {
            version = -1;
        }
    } else if (!json_null(c) && (!json_integer(c, &version) || version < 0)) {
        version = -1;
    }
    return version;
}

static void read_spans(GenerateScan *scan, JsonCursor *c)
{
    Event *e = &scan->event;
    bool first = true;
    if (json_null(c)) {
        return;
    }
    json_enter(c, '[');
    while (json_element(c, &first)) {
        int64_t start = -1;
        int64_t end = -1;
        int64_t version = -1;
        bool inner = true;
        Str key;
        json_enter(c, '{');
        while (json_member(c, &inner, &key)) {
            if (KEY("version")) {
                version = read_version(c);
            } else if (KEY("start")) {
                read_count(c, &start);
            } else if (KEY("end")) {
                read_count(c, &end);
            } else {
                json_skip(c);
            }
        }
        if (start < 0 || end < start || end > SCAN_TOKENS_MAX) {
            breaks(scan, "weight_versions holds a span %lld to %lld", (long long)start,
                   (long long)end);
            continue;
        }
        GenerateSpan span = {(int32_t)start, (int32_t)end, version};
        if (!push_span(&e->spans, &e->span_count, &e->span_capacity, span)) {
            breaks(scan, "weight_versions holds over %d spans", SCAN_SPANS_MAX);
        }
    }
}

static Finish finish_of(Str type)
{
    if (str_equal(type, STR("stop"))) {
        return FINISH_STOP;
    }
    if (str_equal(type, STR("length"))) {
        return FINISH_LENGTH;
    }
    return str_equal(type, STR("abort")) ? FINISH_ABORT : FINISH_OTHER;
}

static void read_finish(GenerateScan *scan, JsonCursor *c)
{
    Event *e = &scan->event;
    bool first = true;
    Str key;
    if (json_null(c)) {
        return;
    }
    e->finish = FINISH_OTHER;
    json_enter(c, '{');
    while (json_member(c, &first, &key)) {
        if (KEY("type") && json_peek(c) == '"') {
            json_raw_string(c, &e->type);
            e->finish = finish_of(e->type);
        } else if (KEY("message") && json_peek(c) == '"') {
            json_raw_string(c, &e->message);
        } else if (KEY("status_code")) {
            read_count(c, &e->code);
        } else {
            json_skip(c);
        }
    }
}

static void read_meta(GenerateScan *scan, JsonCursor *c)
{
    Event *e = &scan->event;
    bool first = true;
    Str key;
    if (json_null(c)) {
        return;
    }
    e->has_meta = true;
    json_enter(c, '{');
    while (json_member(c, &first, &key)) {
        if (KEY("output_token_logprobs")) {
            read_triples(scan, c);
        } else if (KEY("finish_reason")) {
            read_finish(scan, c);
        } else if (KEY("completion_tokens")) {
            read_count(c, &e->completion);
        } else if (KEY("output_token_logprobs_length")) {
            read_count(c, &e->logprob_length);
        } else if (KEY("weight_version")) {
            e->weight_version = read_version(c);
        } else if (KEY("weight_versions")) {
            read_spans(scan, c);
        } else if (KEY("prompt_tokens")) {
            read_count(c, &e->prompt_tokens);
        } else if (KEY("cached_tokens")) {
            read_count(c, &e->cached_tokens);
        } else if (KEY("id") && json_peek(c) == '"') {
            json_raw_string(c, &e->rid);
        } else {
            json_skip(c);
        }
    }
}

static void read_event(GenerateScan *scan, JsonCursor *c)
{
    Event *e = &scan->event;
    bool first = true;
    Str key;
    json_enter(c, '{');
    while (json_member(c, &first, &key)) {
        if (KEY("output_ids")) {
            read_ids(scan, c);
        } else if (KEY("meta_info")) {
            read_meta(scan, c);
        } else if (KEY("text") && json_peek(c) == '"') {
            json_raw_string(c, &e->text);
        } else if (KEY("index")) {
            read_count(c, &e->index);
        } else if (KEY("error") && json_peek(c) != 'n') {
            e->has_error = true;
            json_skip(c);
        } else {
            json_skip(c);
        }
    }
}

static void event_reset(Event *e)
{
    TokenList ids = e->ids;
    TokenList triples = e->triples;
    GenerateSpan *spans = e->spans;
    size_t span_capacity = e->span_capacity;
    *e = (Event){.completion = -1, .logprob_length = -1, .prompt_tokens = -1, .cached_tokens = -1,
                 .weight_version = -1, .index = 0};
    e->ids = ids;
    e->triples = triples;
    e->ids.count = e->triples.count = 0;
    e->spans = spans;
    e->span_capacity = span_capacity;
}

/* ---- applying ----------------------------------------------------------------------------- */

/* Tokens [from, to) of the sample were made by `version`, as far as the peer says. */
static void add_version(GenerateScan *scan, size_t from, size_t to, int64_t version)
{
    if (from == to) {
        return;
    }
    if (scan->span_count > 0 && scan->spans[scan->span_count - 1].weight_version == version) {
        scan->spans[scan->span_count - 1].to = (int32_t)to;
        return;
    }
    GenerateSpan span = {(int32_t)from, (int32_t)to, version};
    if (!push_span(&scan->spans, &scan->span_count, &scan->span_capacity, span)) {
        breaks(scan, "the policy version changed over %d times", SCAN_SPANS_MAX);
    }
}

/* Every id is in the vocabulary and the same in both lists, which are equally long. The first loop
 * only finds out that something is wrong, many ids at a time; the second says what. */
static void check_ids(GenerateScan *scan, const TokenList *tokens)
{
    const Event *e = &scan->event;
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
    for (size_t i = 0; i < n && !scan->broken[0]; i++) {
        int32_t id = tokens->ids[i];
        if (id < 0 || (scan->vocab > 0 && id >= scan->vocab)) {
            breaks(scan, "token id %d is outside the vocabulary of %d", id, scan->vocab);
        } else if (both && e->triples.ids[i] != id) {
            breaks(scan, "output id %d, but %d in the log-probs", id, e->triples.ids[i]);
        }
    }
}

/* ids, triples and both counters of one event agree; gives its tokens. */
static const TokenList *event_tokens(GenerateScan *scan)
{
    Event *e = &scan->event;
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
    if (!scan->broken[0]) {
        check_ids(scan, tokens);
    }
    return tokens;
}

/* How many of the event's n tokens we hold already (0: incremental). */
static size_t known_part(GenerateScan *scan, const TokenList *tokens)
{
    const Event *e = &scan->event;
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

static void apply_tokens(GenerateScan *scan)
{
    const Event *e = &scan->event;
    if (e->finish == FINISH_ABORT
        && e->completion != (int64_t)(scan->held.count + e->ids.count)
        && e->completion != (int64_t)e->ids.count) {
        return; /* an abort in the queue repeats odd parts of the sample (sglang-api 6.6) */
    }
    const TokenList *tokens = event_tokens(scan);
    if (scan->broken[0]) {
        return;
    }
    size_t known = known_part(scan, tokens);
    if (scan->broken[0]) {
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
    add_version(scan, from, scan->held.count, e->weight_version);
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
static void apply_spans(GenerateScan *scan)
{
    const Event *e = &scan->event;
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
        add_version(scan, (size_t)e->spans[i].from, (size_t)e->spans[i].to,
                    e->spans[i].weight_version);
    }
}

static void apply(GenerateScan *scan)
{
    const Event *e = &scan->event;
    if (scan->finish != FINISH_NONE) {
        breaks(scan, "an event came behind the terminal one");
        return;
    }
    if (e->rid.p && scan->rid[0] && !str_equal(e->rid, str_from(scan->rid))) {
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
    apply_tokens(scan);
    scan->finish = e->finish;
    scan->code = (int)(e->code > 0 && e->code < 1000 ? e->code : 0);
    if (e->finish != FINISH_NONE && e->finish != FINISH_ABORT && e->span_count > 0) {
        apply_spans(scan);
    }
    if (e->message.p) {
        peer_error_clean(e->message, scan->message, sizeof scan->message);
    }
}

Err generate_scan_event(GenerateScan *scan, Str json, Fault *fault)
{
    JsonCursor c = json_cursor(json);
    event_reset(&scan->event);
    read_event(scan, &c);
    if (!json_at_end(&c)) {
        return fault_set(fault, ERR_FORMAT, NULL, "an event is not the JSON of a generation: %s",
                         c.error ? c.error : "bytes behind it");
    }
    const Event *e = &scan->event;
    if (e->has_error || (!e->has_meta && !e->has_ids)) {
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
    apply(scan);
    return ERR_OK;
}

static GenerateEnd scan_end(const GenerateScan *scan)
{
    if (scan->error_frame) {
        return GENERATE_ERROR_FRAME;
    }
    if (scan->broken[0]) {
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
    const char *detail = scan->broken[0] && !scan->error_frame ? scan->broken : scan->message;
    if (whole && scan->without_logprobs) {
        out->end = GENERATE_INVALID;
        detail = "no output_token_logprobs";
    } else if (!scan->broken[0] && scan->finish == FINISH_OTHER) {
        detail = "finish_reason is neither stop nor length nor abort";
    }
    (void)str_format(out->detail, sizeof out->detail, "%s", detail);
    out->ids = scan->held.ids;
    out->logprobs = scan->without_logprobs ? NULL : scan->held.logprobs;
    out->count = scan->held.count;
    out->spans = scan->spans;
    out->span_count = scan->span_count;
    out->text = text_str(&scan->text);
    out->prompt_tokens = scan->prompt_tokens;
    out->cached_tokens = scan->cached_tokens;
    out->retry_after_s = -1.0;
}
