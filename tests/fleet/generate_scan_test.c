/* Generation scanner on what real engines sent: right numbers, both stream modes, and no damage
 * of any byte ever gives another sample that counts as whole. */
#include "core/fleet/generate_scan.h"
#include "core/base/rng.h"
#include "core/fleet/json_cursor.h"
#include "core/net/sse.h"
#include "tests/fleet/captures.h"
#include "tests/harness.h"

static Captures captures;

typedef struct Feed {
    GenerateScan *scan;
    Err err;
    Fault fault;
    bool done;
} Feed;

static bool on_event(Str data, void *user)
{
    Feed *feed = user;
    if (feed->done) {
        feed->err = ERR_FORMAT;
        return false;
    }
    if (str_equal(data, STR("[DONE]"))) {
        feed->done = true;
        return true;
    }
    feed->err = generate_scan_event(feed->scan, data, &feed->fault);
    return feed->err == ERR_OK;
}

/* As the client judges: whole only with [DONE], a terminal state and no broken rule. */
static bool whole(Str bytes, GenerateScan *scan, Feed *feed, GenerateResult *result)
{
    generate_scan_clear(scan, 0, 0);
    *feed = (Feed){.scan = scan};
    Sse *sse = sse_new(1 << 20, on_event, feed);
    Err err = sse_feed(sse, bytes);
    sse_free(sse);
    generate_scan_result(scan, result);
    return !err && !feed->err && feed->done
           && (result->end == GENERATE_STOP || result->end == GENERATE_LENGTH);
}

static const char *const streams[] = {
    "sglang/0.5.15.post1/stream_logprob.txt",      /* cumulative */
    "sglang/0.5.15.post1/stream_incremental.txt",
    "dynamo/generate-stream-logprobs.http",
    "dynamo-sglang/generate-stream-logprob.http",
    "dynamo-sglang/native-stream-logprob.http",
    "dynamo-sglang/generate-stream-logprob-input-top.http",
};
enum { STREAMS = sizeof streams / sizeof streams[0] };

static void numbers_are_what_the_engine_sent(void)
{
    GenerateScan *scan = generate_scan_new(0, 0);
    GenerateResult result;
    Feed feed;
    Text bytes;
    capture_sse(captures_get(&captures, streams[0]), &bytes);
    CHECK(whole(text_str(&bytes), scan, &feed, &result));
    CHECK_I64(result.end, GENERATE_LENGTH);
    CHECK_I64(result.count, 3);
    CHECK_I64(result.ids[0], 107096);
    CHECK_I64(result.ids[2], 107096);
    CHECK(result.logprobs[0] == -11.252685546875f);
    CHECK(result.logprobs[1] == -10.847785949707031f);
    CHECK(result.logprobs[2] == -10.868680000305176f);
    CHECK(str_equal(result.text, STR("赋能赋能赋能")));
    CHECK_I64(result.prompt_tokens, 2);
    CHECK_I64(result.cached_tokens, 1);
    CHECK_I64(result.span_count, 1);
    CHECK_I64(result.spans[0].from, 0);
    CHECK_I64(result.spans[0].to, 3);
    CHECK_I64(result.spans[0].weight_version, -1); /* "default" is no number */
    text_free(&bytes);
    capture_sse(captures_get(&captures, streams[1]), &bytes); /* two ids in the first event */
    CHECK(whole(text_str(&bytes), scan, &feed, &result));
    CHECK_I64(result.count, 3);
    CHECK(result.logprobs[0] == -11.24621868133545f);
    CHECK(result.logprobs[2] == -10.939022064208984f);
    CHECK(str_equal(result.text, STR("的一员的一员的一员")));
    text_free(&bytes);
    capture_sse(captures_get(&captures, streams[2]), &bytes); /* mocker: no text, no version */
    CHECK(whole(text_str(&bytes), scan, &feed, &result));
    CHECK_I64(result.count, 4);
    CHECK_I64(result.ids[3], 1307);
    CHECK(result.logprobs[3] == -0.8f);
    CHECK_I64(result.text.n, 0);
    text_free(&bytes);
    generate_scan_free(scan);
}

static void unary(const char *name, GenerateResult *result, GenerateScan *scan, Err expected)
{
    Fault fault = {0};
    generate_scan_clear(scan, 0, 0);
    CHECK_I64(generate_scan_event(scan, capture_reply(captures_get(&captures, name)).body, &fault),
              expected);
    generate_scan_result(scan, result);
}

static void whole_replies(void)
{
    GenerateScan *scan = generate_scan_new(0, 0);
    GenerateResult result;
    unary("sglang/0.5.23/gen_logprob.txt", &result, scan, ERR_OK);
    CHECK_I64(result.end, GENERATE_LENGTH);
    CHECK_I64(result.count, 4);
    CHECK(result.logprobs[3] == -10.970438957214355f);
    CHECK_I64(result.span_count, 1); /* from weight_versions */
    unary("sglang/0.5.15.post1/gen_logprob.txt", &result, scan, ERR_OK);
    CHECK_I64(result.end, GENERATE_LENGTH);
    CHECK(result.count > 0);
    unary("sglang/0.5.15.post1/abort_queued_reply.txt", &result, scan, ERR_OK);
    CHECK_I64(result.end, GENERATE_ABORT);
    CHECK_STR(result.detail, "Abort in waiting queue");
    unary("sglang/0.5.15.post1/abort_running_reply.txt", &result, scan, ERR_OK);
    CHECK_I64(result.end, GENERATE_ABORT);
    CHECK_I64(result.count, 74);
    CHECK_STR(result.detail, "Aborted");
    unary("sglang/0.5.15.post1/gen_nan_greedy.txt", &result, scan, ERR_OK); /* null log-probs */
    CHECK_I64(result.end, GENERATE_INVALID);
    CHECK(strstr(result.detail, "not finite") != NULL);
    unary("sglang/0.5.15.post1/gen_ids.txt", &result, scan, ERR_OK); /* none were asked for */
    CHECK_I64(result.end, GENERATE_INVALID);
    CHECK(strstr(result.detail, "logprobs") != NULL);
    unary("sglang/0.5.15.post1/queue_full_503.txt", &result, scan, ERR_PEER);
    CHECK_I64(result.end, GENERATE_ERROR_FRAME);
    CHECK_I64(generate_scan_code(scan), 503);
    CHECK_STR(result.detail, "The request queue is full.");
    unary("sglang/0.5.15.post1/gen_batch1.txt", &result, scan, ERR_FORMAT); /* an array */
    generate_scan_free(scan);
}

static void failures_in_a_stream(void)
{
    static const struct {
        const char *name;
        GenerateEnd end;
        const char *detail;
        int code;
    } cases[] = {
        {"sglang/0.5.15.post1/stream_err_top_p.txt", GENERATE_ERROR_FRAME,
         "top_p must be in (0, 1], got 0.", 400},
        {"dynamo/error-in-band.http", GENERATE_ERROR_FRAME,
         "max_output_tokens must be specified for mocker", 0},
        {"dynamo/generate-abort-too-long.http", GENERATE_ABORT,
         "request rejected: request exceeds worker admission limits", 0},
        {"dynamo-sglang/error-engine-bad-top-p.http", GENERATE_ERROR_FRAME, NULL, 400},
        {"dynamo-sglang/kill-mid-stream.http", GENERATE_ERROR_FRAME, "Internal server error", 0},
        {"dynamo/kill-mid-stream.http", GENERATE_ERROR_FRAME, "Internal server error", 0},
        {"sglang/0.5.15.post1/stream_n2.txt", GENERATE_INVALID, NULL, 0},
        {"dynamo/generate-too-long-silence.http", GENERATE_TRUNCATED, "", 0},
    };
    GenerateScan *scan = generate_scan_new(0, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        GenerateResult result;
        Feed feed;
        Text bytes;
        capture_sse(captures_get(&captures, cases[i].name), &bytes);
        CHECK(!whole(text_str(&bytes), scan, &feed, &result));
        CHECK_STR(generate_end_name(result.end), generate_end_name(cases[i].end));
        if (cases[i].detail) {
            CHECK_STR(result.detail, cases[i].detail);
            CHECK_I64(generate_scan_code(scan), cases[i].code);
        }
        text_free(&bytes);
    }
    generate_scan_free(scan);
}

/* One stream over an update: each chunk has the version at its time, and 0.5.17 no list. */
static void spans_follow_the_chunks(void)
{
    static const char *const events[] = {
        "{\"output_ids\":[5],\"meta_info\":{\"finish_reason\":null,\"completion_tokens\":1,"
        "\"weight_version\":\"10\",\"output_token_logprobs\":[[-1.5,5,null]]}}",
        "{\"output_ids\":[6,7],\"meta_info\":{\"finish_reason\":null,\"completion_tokens\":3,"
        "\"weight_version\":\"10\",\"output_token_logprobs\":[[-2,6,null],[-1e-3,7,null]]}}",
        "{\"output_ids\":[8],\"meta_info\":{\"finish_reason\":{\"type\":\"stop\",\"matched\":8},"
        "\"completion_tokens\":4,\"weight_version\":\"11\","
        "\"output_token_logprobs\":[[-0.25,8,\"x\"]]}}"};
    GenerateScan *scan = generate_scan_new(0, 0);
    GenerateResult result;
    for (int i = 0; i < 3; i++) {
        CHECK_I64(generate_scan_event(scan, str_from(events[i]), NULL), ERR_OK);
    }
    generate_scan_result(scan, &result);
    CHECK_I64(result.end, GENERATE_STOP);
    CHECK_I64(result.span_count, 2);
    CHECK_I64(result.spans[0].to, 3);
    CHECK_I64(result.spans[0].weight_version, 10);
    CHECK_I64(result.spans[1].from, 3);
    CHECK_I64(result.spans[1].to, 4);
    CHECK_I64(result.spans[1].weight_version, 11);
    generate_scan_event(scan, str_from(events[2]), NULL); /* a second terminal event */
    generate_scan_result(scan, &result);
    CHECK_I64(result.end, GENERATE_INVALID);
    generate_scan_free(scan);
}

static void broken_rules(void)
{
#define META(x) "\"meta_info\":{\"finish_reason\":{\"type\":\"stop\"}," x "}}"
#define LP "\"output_token_logprobs\":"
    static const struct {
        const char *json;
        Err err;
        GenerateEnd end;
    } cases[] = {
        {"{\"output_ids\":[1]," META("\"completion_tokens\":1," LP "[[-1,1,null]]"), ERR_OK,
         GENERATE_STOP},
        {"{" META("\"completion_tokens\":1," LP "[[-1,1,null]]"), ERR_OK, GENERATE_STOP},
        {"{\"output_ids\":[1]," META("\"completion_tokens\":2," LP "[[-1,1,null]]"), ERR_OK,
         GENERATE_INVALID}, /* a chunk was lost */
        {"{\"output_ids\":[1]," META(LP "[[-1,1,null]]"), ERR_OK, GENERATE_INVALID},
        {"{\"output_ids\":[1,2]," META("\"completion_tokens\":2," LP "[[-1,1,null]]"), ERR_OK,
         GENERATE_INVALID},
        {"{\"output_ids\":[2]," META("\"completion_tokens\":1," LP "[[-1,1,null]]"), ERR_OK,
         GENERATE_INVALID}, /* ids disagree */
        {"{\"output_ids\":[1]," META("\"completion_tokens\":1," LP "[[null,1,null]]"), ERR_OK,
         GENERATE_INVALID},
        {"{\"output_ids\":[1]," META("\"completion_tokens\":1," LP "[[-1e99,1,null]]"), ERR_OK,
         GENERATE_INVALID},
        {"{\"output_ids\":[100]," META("\"completion_tokens\":1," LP "[[-1,100,null]]"), ERR_OK,
         GENERATE_INVALID}, /* the vocabulary is 100 */
        {"{\"output_ids\":[-1]," META("\"completion_tokens\":1," LP "[[-1,-1,null]]"), ERR_OK,
         GENERATE_INVALID},
        {"{\"output_ids\":[1,1,1,1,1,1,1,1,1]," META("\"completion_tokens\":9," LP "[[-1,1],[-1,1],"
         "[-1,1],[-1,1],[-1,1],[-1,1],[-1,1],[-1,1],[-1,1]]"), ERR_OK, GENERATE_INVALID},
        {"{\"output_ids\":[1],\"meta_info\":{\"finish_reason\":{\"type\":\"odd\"},"
         "\"completion_tokens\":1," LP "[[-1,1,null]]}}", ERR_OK, GENERATE_INVALID},
        {"{\"output_ids\":[1]," META("\"id\":\"other\",\"completion_tokens\":1," LP "[[-1,1]]"),
         ERR_OK, GENERATE_INVALID},
        {"{\"output_ids\":[1]," META("\"prompt_tokens\":4,\"completion_tokens\":1," LP "[[-1,1]]"),
         ERR_OK, GENERATE_INVALID},
        {"{\"output_ids\":[1]," META("\"completion_tokens\":1," LP "[[-1,1]],\"weight_versions\":"
         "[{\"version\":\"3\",\"start\":0,\"end\":2}]"), ERR_OK, GENERATE_INVALID},
        {"{\"output_ids\":[1.0]," META("\"completion_tokens\":1"), ERR_FORMAT, GENERATE_TRUNCATED},
        {"{\"output_ids\":[01]," META("\"completion_tokens\":1"), ERR_FORMAT, GENERATE_TRUNCATED},
        {"{\"output_ids\":[1,]," META("\"completion_tokens\":1"), ERR_FORMAT, GENERATE_TRUNCATED},
        {"{\"output_ids\":[1]," META("\"completion_tokens\":1") "x", ERR_FORMAT,
         GENERATE_TRUNCATED},
        {"{\"output_ids\":[1],\"meta_info\":{\"finish_reason\":\"stop\"}}", ERR_FORMAT,
         GENERATE_TRUNCATED},
        {"{}", ERR_FORMAT, GENERATE_TRUNCATED},
        {"[]", ERR_FORMAT, GENERATE_TRUNCATED},
        {"", ERR_FORMAT, GENERATE_TRUNCATED},
        {"{\"error\":\"Unauthorized\"}", ERR_PEER, GENERATE_ERROR_FRAME},
        {"{\"detail\":\"Not Found\"}", ERR_PEER, GENERATE_ERROR_FRAME},
        {"{\"object\":\"error\",\"message\":\"m\",\"code\":400}", ERR_PEER, GENERATE_ERROR_FRAME},
    };
    GenerateScan *scan = generate_scan_new(0, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        GenerateResult result;
        Fault fault = {0};
        generate_scan_clear(scan, 100, 8);
        generate_scan_expect(scan, "mine", 5);
        Err err = generate_scan_event(scan, str_from(cases[i].json), &fault);
        generate_scan_result(scan, &result);
        if (err != cases[i].err || result.end != cases[i].end) {
            fprintf(stderr, "case %zu: %s (%s)\n", i, result.detail, fault.sentence);
        }
        CHECK_I64(err, cases[i].err);
        CHECK_STR(generate_end_name(result.end), generate_end_name(cases[i].end));
        CHECK(result.end == GENERATE_STOP || err == ERR_FORMAT || result.detail[0] != '\0');
    }
    generate_scan_free(scan);
}

static void every_cut_is_seen(void)
{
    GenerateScan *scan = generate_scan_new(0, 0);
    for (int s = 0; s < STREAMS; s++) {
        Text bytes;
        GenerateResult result;
        Feed feed;
        capture_sse(captures_get(&captures, streams[s]), &bytes);
        CHECK(whole(text_str(&bytes), scan, &feed, &result));
        size_t mistaken = 0;
        for (size_t n = 0; n < bytes.n - 1; n++) { /* the last LF alone is nobody's loss */
            char *piece = malloc(n + 1); /* exactly as long as it is: reads behind it are seen */
            memcpy(piece, bytes.p, n);
            mistaken += whole((Str){piece, n}, scan, &feed, &result) ? 1 : 0;
            free(piece);
        }
        CHECK_I64(mistaken, 0);
        text_free(&bytes);
    }
    generate_scan_free(scan);
}

/* Any single damaged byte: the sample is not whole, or its tokens are the very same. (A digit of
 * a log-prob or a letter of the text can change unseen: no redundancy is sent for them.) */
static void every_damaged_byte_is_seen_or_harmless(void)
{
    static const unsigned char masks[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF};
    GenerateScan *scan = generate_scan_new(0, 0);
    for (int s = 0; s < STREAMS; s++) {
        Text bytes;
        GenerateResult result;
        Feed feed;
        capture_sse(captures_get(&captures, streams[s]), &bytes);
        CHECK(whole(text_str(&bytes), scan, &feed, &result));
        size_t count = result.count;
        int32_t *ids = xcalloc(count, sizeof *ids);
        memcpy(ids, result.ids, count * sizeof *ids);
        size_t mistaken = 0;
        size_t refused = 0;
        for (size_t at = 0; at < bytes.n; at++) {
            for (size_t m = 0; m < sizeof masks; m++) {
                char before = bytes.p[at];
                bytes.p[at] = (char)((unsigned char)before ^ masks[m]);
                if (!whole(text_str(&bytes), scan, &feed, &result)) {
                    refused++;
                } else if (result.count != count
                           || memcmp(result.ids, ids, count * sizeof *ids) != 0) {
                    mistaken++;
                }
                bytes.p[at] = before;
            }
        }
        CHECK_I64(mistaken, 0);
        CHECK(refused > bytes.n);
        free(ids);
        text_free(&bytes);
    }
    generate_scan_free(scan);
}

static void floats_are_exact(void)
{
    Rng rng;
    rng_seed(&rng, 17);
    size_t wrong = 0;
    for (int i = 0; i < 400000; i++) {
        char text[64];
        uint64_t r = rng_u64(&rng);
        union { uint32_t u; float f; } bits = {(uint32_t)r};
        double d = -20.0 * rng_unit(&rng);
        switch (i % 5) {
        case 0: snprintf(text, sizeof text, "%.17g", (double)(float)d); break;
        case 1: snprintf(text, sizeof text, "%.*f", (int)(r % 20), d); break;
        case 2: snprintf(text, sizeof text, "%.*g", (int)(r % 25), (double)bits.f); break;
        case 3: snprintf(text, sizeof text, "-%llu.%llue%d", (unsigned long long)(r % 1000),
                         (unsigned long long)rng_u64(&rng), (int)(r >> 58) - 32); break;
        default: { /* exactly between two floats, and just beside */
            double middle = ((double)(float)d + (double)nextafterf((float)d, 0.0f)) / 2;
            snprintf(text, sizeof text, "%.18g", nextafter(middle, r & 1 ? 0.0 : -99.0));
            if (r & 2) {
                snprintf(text, sizeof text, "%.18g", middle);
            }
        }
        }
        if (strchr(text, 'n') || strchr(text, 'i')) {
            continue;
        }
        JsonCursor c = json_cursor(str_from(text));
        float got = 0;
        if (!json_float(&c, &got) || !json_at_end(&c) || !(got == (float)strtod(text, NULL))) {
            if (wrong++ < 5) {
                fprintf(stderr, "%s: %.9g\n", text, (double)got);
            }
        }
    }
    CHECK_I64(wrong, 0);
}

/* A number that is passed over is judged as one that is read. */
static void skipping_judges_as_reading(void)
{
    static const char bytes[] = "00123456789.-+eE ,";
    Rng rng;
    rng_seed(&rng, 23);
    size_t differ = 0;
    size_t good = 0;
    for (int i = 0; i < 300000; i++) {
        char text[40];
        size_t n = 1 + rng_u64(&rng) % 36;
        for (size_t k = 0; k < n; k++) { /* mostly digits, or hardly any would be numbers */
            uint64_t r = rng_u64(&rng);
            text[k] = r & 7 ? (char)('0' + r / 8 % 10) : bytes[r / 8 % (sizeof bytes - 1)];
        }
        Str s = {text, n};
        JsonCursor skip = json_cursor(s);
        JsonCursor read = json_cursor(s);
        float value = 0;
        bool skipped = json_skip(&skip) && json_at_end(&skip);
        bool was_read = json_float(&read, &value) && json_at_end(&read);
        good += was_read ? 1 : 0;
        if (skipped != was_read && differ++ < 5) {
            fprintf(stderr, "%.*s: %d, %d\n", (int)n, text, skipped, was_read);
        }
    }
    CHECK_I64(differ, 0);
    CHECK(good > 1000);
}

static void grammar(void)
{
    static const char *const good[] = {"0", "-0", "1e5", "1E+5", "0.5e-7", "null", "true", "false",
                                       "\"\"", "\"\\u0041\\n\"", "[]", "[[],{}]", " { } ",
                                       "{\"a\":{\"b\":[1,2,{\"c\":null}]}}"};
    static const char *const bad[] = {"", "01", "1.", ".5", "+1", "-", "1e", "nul", "truth", "'a'",
                                      "\"", "\"\\x\"", "\"\\u12g4\"", "\"\n\"", "[", "[1", "[1 2]",
                                      "[,]", "[1,]", "{", "{\"a\"}", "{\"a\":}", "{a:1}",
                                      "{\"a\":1,}", "{\"a\" 1}", "1 2", "[]]", "NaN", "Infinity"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        JsonCursor c = json_cursor(str_from(good[i]));
        CHECK(json_skip(&c) && json_at_end(&c));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        JsonCursor c = json_cursor(str_from(bad[i]));
        if (json_skip(&c) && json_at_end(&c)) {
            fprintf(stderr, "taken: %s\n", bad[i]);
            CHECK(false);
        }
    }
    Text deep;
    text_init(&deep, 1 << 20);
    for (int i = 0; i < 100000; i++) {
        text_add_char(&deep, '[');
    }
    JsonCursor c = json_cursor(text_str(&deep));
    CHECK(!json_skip(&c));
    text_clear(&deep);
    CHECK(json_decode(STR("a\\u00e9\\ud83d\\ude00\\ud83dx\\/\\t\\\"\\\\"), &deep));
    CHECK_STR(text_c(&deep), "a\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBDx/\t\"\\");
    text_free(&deep);
}

int main(void)
{
    captures = captures_load();
    RUN(grammar);
    RUN(skipping_judges_as_reading);
    RUN(floats_are_exact);
    RUN(numbers_are_what_the_engine_sent);
    RUN(whole_replies);
    RUN(failures_in_a_stream);
    RUN(spans_follow_the_chunks);
    RUN(broken_rules);
    RUN(every_cut_is_seen);
    RUN(every_damaged_byte_is_seen_or_harmless);
    captures_free(&captures);
    return test_end();
}
