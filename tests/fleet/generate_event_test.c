/* The reader of events takes members that stand where engines print them without reading their
 * names. That must be a matter of speed alone: every recorded event, whole and damaged, is read
 * once as it came and once with blanks between its parts, where each name is read and looked up,
 * and both must come to the same. */
#include "core/fleet/generate_event.h"
#include "core/base/rng.h"
#include "tests/fleet/captures.h"
#include "tests/fleet/event_pair.h"
#include "tests/harness.h"

enum { DAMAGES = 60 };

static int taken, refused;

static void compare(Str json, Text *spaced)
{
    bool good = false;
    const bool same = event_reads_the_same(json, 40, spaced, &good);
    if (!same) {
        fprintf(stderr, "%.*s\n", (int)json.n, json.p);
    }
    CHECK(same);
    taken += good;
    refused += !good;
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
