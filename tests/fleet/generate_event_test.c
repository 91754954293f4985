/* The reader of events takes members that stand where engines print them without reading their
 * names. That must be a matter of speed alone: every recorded event, whole and damaged, is read
 * once as it came and once with blanks between its parts, where each name is read and looked up,
 * and both must come to the same. */
#include "core/fleet/generate_event.h"
#include "core/base/rng.h"
#include "core/fleet/generate_scan.h"
#include "tests/fleet/captures.h"
#include "tests/harness.h"

enum { DAMAGES = 60 };

/* Blanks around every comma and behind every colon outside strings: other bytes, the same JSON,
 * or the same breach of it. */
static void space_out(Str json, Text *out)
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

static bool same_raw(Str a, Str b)
{
    return (a.p == NULL) == (b.p == NULL) && str_equal(a, b);
}

static bool same_tokens(const TokenList *a, const TokenList *b)
{
    return a->count == b->count
           && (a->count == 0
               || (memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0
                   && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0));
}

static bool same_event(const ScanEvent *a, const ScanEvent *b)
{
    const bool spans = a->span_count == b->span_count
                       && (a->span_count == 0
                           || memcmp(a->spans, b->spans, a->span_count * sizeof *a->spans) == 0);
    return spans && same_tokens(&a->ids, &b->ids) && same_tokens(&a->triples, &b->triples)
           && a->has_ids == b->has_ids && a->has_triples == b->has_triples
           && a->null_logprob == b->null_logprob && a->has_meta == b->has_meta
           && a->has_error == b->has_error && same_raw(a->text, b->text)
           && same_raw(a->rid, b->rid) && same_raw(a->message, b->message)
           && a->finish == b->finish && a->completion == b->completion
           && a->logprob_length == b->logprob_length && a->prompt_tokens == b->prompt_tokens
           && a->cached_tokens == b->cached_tokens && a->code == b->code && a->index == b->index
           && a->weight_version == b->weight_version && a->bad_span == b->bad_span
           && a->many_spans == b->many_spans && a->bad_start == b->bad_start
           && a->bad_end == b->bad_end;
}

static int taken, refused;

static void compare(Str json, Text *spaced)
{
    ScanEvent plain;
    ScanEvent wide;
    const char *words[2];
    space_out(json, spaced);
    const bool good = scan_event_read(&plain, json, 40, &words[0]);
    const bool wide_good = scan_event_read(&wide, text_str(spaced), 40, &words[1]);
    const bool same = good == wide_good && (!good || same_event(&plain, &wide));
    if (!same) {
        fprintf(stderr, "%s, %s: %.*s\n", words[0] ? words[0] : "taken",
                words[1] ? words[1] : "taken", (int)json.n, json.p);
    }
    CHECK(same);
    taken += good;
    refused += !good;
    scan_event_free(&plain);
    scan_event_free(&wide);
}

/* Bytes that turn members into others, or into none. */
static void damage(Rng *rng, Str json, Text *out)
{
    static const char bytes[] = "\",:{}[]0159.-+eEnult \\x\n\x80";
    text_clear(out);
    text_add_str(out, json);
    for (uint64_t i = 0, times = 1 + rng_below(rng, 3); i < times && out->n > 0; i++) {
        const size_t at = (size_t)rng_below(rng, out->n);
        out->p[at] = bytes[rng_below(rng, sizeof bytes - 1)];
    }
    if (rng_below(rng, 8) == 0) { /* a cut, and the exact end of memory for the sanitizers */
        out->n = (size_t)rng_below(rng, out->n);
    }
}

static void compare_damaged(Rng *rng, Str json, Text *spaced)
{
    Text broken;
    text_init(&broken, 1 << 20);
    for (int i = 0; i < DAMAGES; i++) {
        damage(rng, json, &broken);
        char *exact = malloc(broken.n + 1);
        memcpy(exact, text_c(&broken), broken.n);
        compare((Str){exact, broken.n}, spaced);
        free(exact);
    }
    text_free(&broken);
}

static void recorded_events_read_the_same_both_ways(void)
{
    Captures all = captures_load();
    Rng rng;
    Text spaced;
    char name[128];
    Str bytes;
    int events = 0;
    rng_seed(&rng, 7);
    text_init(&spaced, 4 << 20);
    for (size_t at = 0; captures_next(&all, &at, name, &bytes);) {
        Str rest = bytes;
        Str line;
        while (str_split(&rest, '\n', &line)) {
            line = str_trim(str_starts(line, STR("data: ")) ? str_slice(line, 6, line.n) : line);
            if (line.n > 2 && line.n < 4096 && line.p[0] == '{') {
                events++;
                compare(line, &spaced);
                compare_damaged(&rng, line, &spaced);
            }
        }
    }
    CHECK(events > 200);
    CHECK(taken > events);
    CHECK(refused > events);
    text_free(&spaced);
    captures_free(&all);
}

/* An expected member only counts as a whole: one that goes on is another. */
static void nearly_the_usual_values(void)
{
    static const struct {
        const char *json;
        bool good;
        EventFinish finish;
    } cases[] = {
        {"{\"meta_info\":{\"id\":\"a\",\"finish_reason\":null,\"prompt_tokens\":12}}", true,
         FINISH_NONE},
        {"{\"meta_info\":{\"id\":\"a\",\"finish_reason\":nulls,\"prompt_tokens\":12}}", false,
         FINISH_NONE},
        {"{\"meta_info\":{\"id\":\"a\",\"finish_reason\":{\"type\":\"stop\"},\"prompt_tokens\":12"
         "}}", true, FINISH_STOP},
        {"{\"meta_info\":{\"weight_version\":\"1\",\"num_retractions\":0.5,\"prompt_tokens\":12}}",
         true, FINISH_NONE},
        {"{\"meta_info\":{\"weight_version\":\"1\",\"num_retractions\":01,\"prompt_tokens\":12}}",
         false, FINISH_NONE},
        {"{\"meta_info\":{\"weight_version\":\"1\",\"num_retractions\":0,}      ,\"prompt_t\":12}}",
         false, FINISH_NONE},
        {"{\"meta_info\":{\"weight_version\":\"1\",\"num_retractions\":0,\"prompt_tokens\":12}}",
         true, FINISH_NONE},
        {"{\"meta_info\":{,\"finish_reason\":null,\"prompt_tokens\":12,\"dp_rank\":null}}", false,
         FINISH_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ScanEvent event;
        const char *error = NULL;
        const bool good = scan_event_read(&event, str_from(cases[i].json), 8, &error);
        CHECK_I64(good, cases[i].good);
        CHECK(good == !error);
        if (good) {
            CHECK_I64(event.finish, cases[i].finish);
            CHECK_I64(event.prompt_tokens, 12);
        }
        scan_event_free(&event);
    }
}

/* Lists outgrow the event's own few places and keep what they held. */
static void long_lists_leave_the_stack(void)
{
    Text json;
    ScanEvent event;
    const char *error = NULL;
    text_init(&json, 1 << 20);
    text_add_c(&json, "{\"output_ids\":[");
    for (int i = 0; i < 1000; i++) {
        text_addf(&json, "%s%d", i ? "," : "", i);
    }
    text_add_c(&json, "],\"meta_info\":{\"output_token_logprobs\":[");
    for (int i = 0; i < 1000; i++) {
        text_addf(&json, "%s[-%d.5,%d,null]", i ? "," : "", i % 9, i);
    }
    text_add_c(&json, "]}}");
    CHECK(scan_event_read(&event, text_str(&json), 2000, &error));
    CHECK_I64(event.ids.count, 1000);
    CHECK_I64(event.triples.count, 1000);
    for (int i = 0; i < 1000; i++) {
        CHECK_I64(event.ids.ids[i], i);
        CHECK_I64(event.triples.ids[i], i);
        CHECK(event.triples.logprobs[i] == -(float)(i % 9) - 0.5f);
    }
    scan_event_free(&event);
    text_free(&json);
}

int main(void)
{
    RUN(nearly_the_usual_values);
    RUN(long_lists_leave_the_stack);
    RUN(recorded_events_read_the_same_both_ways);
    return test_end();
}
