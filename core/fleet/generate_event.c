/* Reading one event of SGLang's native stream (sglang-api 6.3 to 6.6, dynamo-api 5.4), or one
 * whole reply, in one pass. Expected: 100 to 2,000 bytes an event.
 *
 * Half of such an event is names, and every event of every engine has them in the same order. So
 * the tables below stand in that order, and the member behind the one that was read last is
 * compared as a whole with the bytes. What is missing, new, elsewhere or printed with blanks is
 * read and looked up, to the same end. */
#include "core/fleet/generate_event.h"

#include "core/base/mem.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef enum Field {
    FIELD_OTHER, /* checked and passed over */
    FIELD_TEXT, FIELD_IDS, FIELD_META, FIELD_INDEX, FIELD_ERROR,
    FIELD_RID, FIELD_FINISH, FIELD_PROMPT_TOKENS, FIELD_VERSION, FIELD_TRIPLES, FIELD_LENGTH,
    FIELD_COMPLETION, FIELD_CACHED, FIELD_SPANS
} Field;

enum { EXPECTED_MAX = 32 };

/* A member as it most often stands in the bytes, comma and all, and how much of that is its name
 * with quotes and colon. Without a usual value the text ends there. */
typedef struct Expected {
    char text[EXPECTED_MAX];
    unsigned char n, name_n;
    Field field;
} Expected;
#define NAME(name) "\"" name "\":"
#define MEMBER(name, field) {NAME(name), sizeof NAME(name) - 1, sizeof NAME(name) - 1, field}
/* `value` changes nothing of the event: such a member is passed over as a whole. */
#define USUALLY(name, value, field) \
    {NAME(name) value ",", sizeof NAME(name) value, sizeof NAME(name) - 1, field}

static const Expected event_members[] = {
    MEMBER("text", FIELD_TEXT),
    MEMBER("output_ids", FIELD_IDS),
    MEMBER("meta_info", FIELD_META),
    MEMBER("index", FIELD_INDEX),
    MEMBER("error", FIELD_ERROR),
};

/* As SGLang 0.5.15 to 0.5.23 send them; what only some versions send is looked up. */
static const Expected meta_members[] = {
    MEMBER("id", FIELD_RID),
    USUALLY("finish_reason", "null", FIELD_FINISH),
    MEMBER("prompt_tokens", FIELD_PROMPT_TOKENS),
    MEMBER("weight_version", FIELD_VERSION),
    USUALLY("num_retractions", "0", FIELD_OTHER),
    MEMBER("forward_entry_time", FIELD_OTHER),
    MEMBER("prefill_finished_time", FIELD_OTHER),
    MEMBER("queue_time", FIELD_OTHER),
    USUALLY("input_token_logprobs", "[]", FIELD_OTHER),
    MEMBER("output_token_logprobs", FIELD_TRIPLES),
    MEMBER("output_token_logprobs_length", FIELD_LENGTH),
    USUALLY("reasoning_tokens", "0", FIELD_OTHER),
    MEMBER("completion_tokens", FIELD_COMPLETION),
    MEMBER("cached_tokens", FIELD_CACHED),
    USUALLY("cached_tokens_details", "null", FIELD_OTHER),
    MEMBER("dp_rank", FIELD_OTHER),
    MEMBER("weight_versions", FIELD_SPANS),
};

typedef struct Order { /* of an object's members; `next` is the one that is expected */
    const Expected *members;
    size_t count, next;
} Order;
#define ORDER(table) {table, sizeof(table) / sizeof(table)[0], 0}

static bool key_is(Str key, const char *name, size_t n)
{
    return key.n == n && memcmp(key.p, name, n) == 0;
}
#define KEY(literal) key_is(key, literal, sizeof(literal) - 1)

/* How many of the first EXPECTED_MAX bytes at p are those of `text`. */
static inline unsigned alike(const char *p, const char *text)
{
#ifdef __SSE2__
    const __m128i *at = (const __m128i *)(const void *)p;
    const __m128i *wanted = (const __m128i *)(const void *)text;
    __m128i low = _mm_cmpeq_epi8(_mm_loadu_si128(at), _mm_loadu_si128(wanted));
    __m128i high = _mm_cmpeq_epi8(_mm_loadu_si128(at + 1), _mm_loadu_si128(wanted + 1));
    uint64_t same = (uint64_t)_mm_movemask_epi8(low) | (uint64_t)_mm_movemask_epi8(high) << 16;
    return (unsigned)__builtin_ctzll(~same); /* from bit 32 on all are set */
#else
    unsigned n = 0;
    while (n < EXPECTED_MAX && p[n] == text[n]) {
        n++;
    }
    return n;
#endif
}

/* Takes the members that stand where they are expected, up to one with a value to read; true: the
 * cursor stands before that value. False: it is where a member begins, or the object ends. */
static inline bool expected_field(JsonCursor *c, bool *first, Order *order, Field *field)
{
    const char *p = c->p;
    bool found = false;
    while (order->next < order->count && !found && c->end - p > EXPECTED_MAX
           && (*first || *p == ',')) {
        const Expected *member = &order->members[order->next];
        const unsigned n = alike(p + !*first, member->text);
        if (n < member->name_n) {
            break;
        }
        found = n < member->n || member->n == member->name_n;
        p += !*first + (found ? member->name_n : member->n - 1);
        *first = false;
        *field = member->field;
        order->next++;
    }
    c->p = p;
    return found;
}

/* The next member; the cursor stands before its value. */
static inline bool next_field(JsonCursor *c, bool *first, Order *order, Field *field)
{
    Str name;
    if (expected_field(c, first, order, field)) {
        return true;
    }
    if (!json_member(c, first, &name)) {
        return false;
    }
    *field = FIELD_OTHER;
    for (size_t i = 0; i < order->count; i++) {
        const Expected *member = &order->members[i];
        if (key_is(name, member->text + 1, member->name_n - 3u)) { /* without quotes and colon */
            *field = member->field;
            order->next = i + 1;
            break;
        }
    }
    return true;
}

bool generate_span_push(GenerateSpan **spans, size_t *count, size_t *capacity, GenerateSpan span)
{
    if (*count >= EVENT_SPANS_MAX) {
        return false;
    }
    if (*count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 8;
        *spans = xrealloc(*spans, *capacity, sizeof **spans);
    }
    (*spans)[(*count)++] = span;
    return true;
}

static bool read_count(JsonCursor *c, int64_t *out)
{
    return json_peek(c) == 'n' ? json_null(c) : json_integer(c, out);
}

static bool read_string(JsonCursor *c, Str *out)
{
    return json_peek(c) == '"' ? json_raw_string(c, out) : json_skip(c);
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

static void read_span(ScanEvent *e, JsonCursor *c)
{
    int64_t start = -1;
    int64_t end = -1;
    int64_t version = -1;
    bool first = true;
    Str key;
    json_enter(c, '{');
    while (json_member(c, &first, &key)) {
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
    const bool broken = e->bad_span || e->many_spans;
    if (start < 0 || end < start || end > EVENT_TOKENS_MAX) {
        e->bad_start = broken ? e->bad_start : start;
        e->bad_end = broken ? e->bad_end : end;
        e->bad_span = e->bad_span || !broken;
        return;
    }
    GenerateSpan span = {(int32_t)start, (int32_t)end, version};
    if (!generate_span_push(&e->spans, &e->span_count, &e->span_capacity, span)) {
        e->many_spans = e->many_spans || !broken;
    }
}

static void read_spans(ScanEvent *e, JsonCursor *c)
{
    bool first = true;
    if (json_null(c)) {
        return;
    }
    json_enter(c, '[');
    while (json_element(c, &first)) {
        read_span(e, c);
    }
}

static EventFinish finish_of(Str type)
{
    if (str_equal(type, STR("stop"))) {
        return FINISH_STOP;
    }
    if (str_equal(type, STR("length"))) {
        return FINISH_LENGTH;
    }
    return str_equal(type, STR("abort")) ? FINISH_ABORT : FINISH_OTHER;
}

static void read_finish(ScanEvent *e, JsonCursor *c)
{
    bool first = true;
    Str key;
    if (json_null(c)) {
        return;
    }
    e->finish = FINISH_OTHER;
    json_enter(c, '{');
    while (json_member(c, &first, &key)) {
        if (KEY("type") && json_peek(c) == '"') {
            Str type;
            e->finish = json_raw_string(c, &type) ? finish_of(type) : FINISH_OTHER;
        } else if (KEY("message") && json_peek(c) == '"') {
            json_raw_string(c, &e->message);
        } else if (KEY("status_code")) {
            read_count(c, &e->code);
        } else {
            json_skip(c);
        }
    }
}

static void read_ids(ScanEvent *e, JsonCursor *c, size_t most)
{
    if (!json_null(c)) {
        e->has_ids = true;
        generate_read_ids(c, &e->ids, most);
    }
}

static void read_triples(ScanEvent *e, JsonCursor *c, size_t most)
{
    if (!json_null(c)) {
        e->has_triples = true;
        generate_read_triples(c, &e->triples, most, &e->null_logprob);
    }
}

static void read_meta_field(ScanEvent *e, JsonCursor *c, size_t most, Field field)
{
    switch (field) {
    case FIELD_RID: read_string(c, &e->rid); break;
    case FIELD_FINISH: read_finish(e, c); break;
    case FIELD_PROMPT_TOKENS: read_count(c, &e->prompt_tokens); break;
    case FIELD_VERSION: e->weight_version = read_version(c); break;
    case FIELD_TRIPLES: read_triples(e, c, most); break;
    case FIELD_LENGTH: read_count(c, &e->logprob_length); break;
    case FIELD_COMPLETION: read_count(c, &e->completion); break;
    case FIELD_CACHED: read_count(c, &e->cached_tokens); break;
    case FIELD_SPANS: read_spans(e, c); break;
    case FIELD_TEXT:
    case FIELD_IDS:
    case FIELD_META:
    case FIELD_INDEX:
    case FIELD_ERROR:
    case FIELD_OTHER: json_skip(c); break;
    }
}

static void read_meta(ScanEvent *e, JsonCursor *c, size_t most)
{
    Order order = ORDER(meta_members);
    Field field;
    bool first = true;
    if (json_null(c)) {
        return;
    }
    e->has_meta = true;
    json_enter(c, '{');
    while (next_field(c, &first, &order, &field)) {
        read_meta_field(e, c, most, field);
    }
}

static void read_event(ScanEvent *e, JsonCursor *c, size_t most)
{
    Order order = ORDER(event_members);
    Field field;
    bool first = true;
    json_enter(c, '{');
    while (next_field(c, &first, &order, &field)) {
        if (field == FIELD_TEXT) {
            read_string(c, &e->text);
        } else if (field == FIELD_IDS) {
            read_ids(e, c, most);
        } else if (field == FIELD_META) {
            read_meta(e, c, most);
        } else if (field == FIELD_INDEX) {
            read_count(c, &e->index);
        } else {
            e->has_error = e->has_error || (field == FIELD_ERROR && json_peek(c) != 'n');
            json_skip(c);
        }
    }
}

/* Field by field: as a memset it takes as long as the reading of three members. */
static void begin(ScanEvent *e)
{
    token_list_lend(&e->ids, e->few_ids[0], e->few_logprobs[0], EVENT_TOKENS);
    token_list_lend(&e->triples, e->few_ids[1], e->few_logprobs[1], EVENT_TOKENS);
    e->has_ids = e->has_triples = e->null_logprob = e->has_meta = e->has_error = false;
    e->text = e->rid = e->message = (Str){NULL, 0};
    e->finish = FINISH_NONE;
    e->completion = e->logprob_length = e->weight_version = -1;
    e->prompt_tokens = e->cached_tokens = -1;
    e->code = e->index = 0;
    e->spans = NULL;
    e->span_count = e->span_capacity = 0;
    e->bad_span = e->many_spans = false;
    e->bad_start = e->bad_end = 0;
}

bool scan_event_read(ScanEvent *event, Str json, size_t most, const char **error)
{
    JsonCursor c = json_cursor(json);
    begin(event);
    read_event(event, &c, most);
    const bool good = json_at_end(&c);
    *error = good ? NULL : c.error ? c.error : "bytes behind it";
    return good;
}

void scan_event_free(ScanEvent *event)
{
    token_list_free(&event->ids);
    token_list_free(&event->triples);
    free(event->spans);
}
