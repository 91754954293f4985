/* One event read twice: as it is, where members may be taken whole by their usual bytes, and with
 * blanks between its parts, where every name is read and looked up. Both must come to the same. */
#ifndef ROLLTOP_TESTS_FLEET_EVENT_PAIR_H
#define ROLLTOP_TESTS_FLEET_EVENT_PAIR_H

#include "core/fleet/generate_event.h"

#include <string.h>

/* Blanks around every comma and behind every colon outside strings: other bytes, the same JSON,
 * or the same breach of it. */
static inline void event_space_out(Str json, Text *out)
{
    bool in_string = false;
    text_clear(out);
    for (size_t i = 0; i < json.n; i++) {
        const char ch = json.p[i];
        if (in_string && ch == '\\' && i + 1 < json.n) {
            text_add(out, json.p + i++, 2);
            continue;
        }
        in_string = ch == '"' ? !in_string : in_string;
        const bool between = !in_string && (ch == ',' || ch == ':');
        text_add_c(out, between && ch == ',' ? " " : "");
        text_add_char(out, ch);
        text_add_c(out, between ? " " : "");
    }
}

static inline bool event_same_raw(Str a, Str b)
{
    return (a.p == NULL) == (b.p == NULL) && str_equal(a, b);
}

static inline bool event_same_tokens(const TokenList *a, const TokenList *b)
{
    return a->count == b->count
           && (a->count == 0
               || (memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0
                   && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0));
}

static inline bool event_same(const ScanEvent *a, const ScanEvent *b)
{
    const bool spans = a->span_count == b->span_count
                       && (a->span_count == 0
                           || memcmp(a->spans, b->spans, a->span_count * sizeof *a->spans) == 0);
    return spans && event_same_tokens(&a->ids, &b->ids)
           && event_same_tokens(&a->triples, &b->triples)
           && a->has_ids == b->has_ids && a->has_triples == b->has_triples
           && a->null_logprob == b->null_logprob && a->has_meta == b->has_meta
           && a->has_error == b->has_error && event_same_raw(a->text, b->text)
           && event_same_raw(a->rid, b->rid) && event_same_raw(a->message, b->message)
           && a->finish == b->finish && a->completion == b->completion
           && a->logprob_length == b->logprob_length && a->prompt_tokens == b->prompt_tokens
           && a->cached_tokens == b->cached_tokens && a->code == b->code && a->index == b->index
           && a->weight_version == b->weight_version && a->bad_span == b->bad_span
           && a->many_spans == b->many_spans && a->bad_start == b->bad_start
           && a->bad_end == b->bad_end;
}

/* `spaced` is scratch; *good: the event was taken. */
static inline bool event_reads_the_same(Str json, size_t most, Text *spaced, bool *good)
{
    ScanEvent plain;
    ScanEvent wide;
    const char *error = NULL;
    event_space_out(json, spaced);
    *good = scan_event_read(&plain, json, most, &error);
    const bool wide_good = scan_event_read(&wide, text_str(spaced), most, &error);
    const bool same = *good == wide_good && (!*good || event_same(&plain, &wide));
    scan_event_free(&plain);
    scan_event_free(&wide);
    return same;
}

#endif
