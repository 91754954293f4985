/* SSE reader: every way to cut the bytes gives the same events; bounds hold. */
#include "core/net/sse.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "tests/harness.h"

#include <stdlib.h>

typedef struct Seen {
    Text all; /* each event as "[DATA]" */
    int count, stop_after;
} Seen;

static bool on_event(Str data, void *user)
{
    Seen *seen = user;
    text_add_char(&seen->all, '[');
    text_add_str(&seen->all, data);
    text_add_char(&seen->all, ']');
    return ++seen->count != seen->stop_after;
}

/* Feeds `bytes` in pieces of `piece` bytes, each from memory of its own so that a read behind a
 * piece, or of a piece that is gone, is seen by the sanitizer. */
static Err feed(const char *bytes, size_t n, size_t piece, size_t max, Seen *seen, bool *pending)
{
    Sse *sse = sse_new(max, on_event, seen);
    Err err = ERR_OK;
    text_init(&seen->all, 1 << 20);
    for (size_t at = 0; at < n && !err; at += piece) {
        size_t take = piece < n - at ? piece : n - at;
        char *copy = malloc(take);
        memcpy(copy, bytes + at, take);
        err = sse_feed(sse, (Str){copy, take});
        free(copy);
    }
    *pending = sse_pending(sse);
    sse_free(sse);
    return err;
}

static const struct {
    const char *bytes, *events;
    int pending;
} cases[] = {
    {"data: a\n\n", "[a]", 0},
    {"data: a\r\n\r\ndata: b\r\n\r\n", "[a][b]", 0},
    {"data: a\r\rdata: b\r\r", "[a][b]", 0},
    {"data:a\n\n", "[a]", 0},
    {"data:  a\n\n", "[ a]", 0},
    {"data: a\ndata: b\ndata\n\n", "[a\nb\n]", 0},
    {"data\n\n", "[]", 0},
    {"data:\n\n", "[]", 0},
    {": hello\n\ndata: x\n\n", "[x]", 0},
    {"event: error\nid: 7\nretry: 10\ndata: {\"e\":1}\n\n", "[{\"e\":1}]", 0},
    {"event: ping\n\n", "", 0},
    {"\xEF\xBB\xBF" "data: a\n\n", "[a]", 0},
    {"data: \xEF\xBB\xBF" "a\n\n\xEF\xBB\xBF" "data: b\n\n", "[\xEF\xBB\xBF" "a]", 0},
    {"database: x\n\ndata : y\n\n", "", 0},
    {"data: a\n", "", 1},
    {"data: a", "", 1},
    {"data: a\n\ndata: [DONE]\n\n", "[a][[DONE]]", 0},
    {"\n\n\r\n\r\rdata: z\n\r", "[z]", 0},
    {"data: a\r\ndata: b\r\r\n", "[a\nb]", 0},
};

static void every_cut_gives_the_same_events(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = strlen(cases[i].bytes);
        for (size_t piece = 1; piece <= n; piece++) {
            Seen seen = {.stop_after = -1};
            bool pending = false;
            CHECK_I64(feed(cases[i].bytes, n, piece, 1024, &seen, &pending), ERR_OK);
            CHECK_STR(text_c(&seen.all), cases[i].events);
            CHECK_I64(pending, cases[i].pending);
            text_free(&seen.all);
        }
    }
}

static void random_cuts_agree_with_one_piece(void)
{
    static const char *const parts[] = {"data: ", "data", ":", "\n", "\r", "\r\n", "x", "\n\n",
                                        "event: e", " ", "{\"a\":[1,2]}", "id", "\xEF\xBB\xBF"};
    Rng rng;
    rng_seed(&rng, 5);
    for (int round = 0; round < 2000; round++) {
        Text bytes;
        text_init(&bytes, 4096);
        uint64_t count = 1 + rng_below(&rng, 40);
        for (uint64_t k = 0; k < count; k++) {
            text_add_c(&bytes, parts[rng_below(&rng, sizeof parts / sizeof parts[0])]);
        }
        Seen whole = {.stop_after = -1};
        bool whole_pending = false;
        CHECK_I64(feed(bytes.p, bytes.n, bytes.n, 4096, &whole, &whole_pending), ERR_OK);
        Seen cut = {.stop_after = -1};
        bool cut_pending = false;
        size_t piece = 1 + (size_t)rng_below(&rng, 7);
        CHECK_I64(feed(bytes.p, bytes.n, piece, 4096, &cut, &cut_pending), ERR_OK);
        CHECK_STR(text_c(&cut.all), text_c(&whole.all));
        CHECK_I64(cut_pending, whole_pending);
        text_free(&whole.all);
        text_free(&cut.all);
        text_free(&bytes);
    }
}

static void bounds_hold_for_every_cut(void)
{
    const char *fits = "data: 12345678\n\n";
    const char *over = "data: 123456789\n\n";
    const char *joined = "data: 1234\ndata: 5678\n\n"; /* 9 bytes with the LF */
    const char *endless = "data: 1234567890123456789012345678901234567890";
    for (size_t piece = 1; piece <= 50; piece++) {
        Seen seen = {.stop_after = -1};
        bool pending = false;
        CHECK_I64(feed(fits, strlen(fits), piece, 8, &seen, &pending), ERR_OK);
        CHECK_STR(text_c(&seen.all), "[12345678]");
        text_free(&seen.all);
        CHECK_I64(feed(over, strlen(over), piece, 8, &seen, &pending), ERR_LIMIT);
        CHECK_STR(text_c(&seen.all), "");
        text_free(&seen.all);
        CHECK_I64(feed(joined, strlen(joined), piece, 8, &seen, &pending), ERR_LIMIT);
        text_free(&seen.all);
        CHECK_I64(feed(endless, strlen(endless), piece, 8, &seen, &pending), ERR_LIMIT);
        text_free(&seen.all);
    }
}

static void a_reader_that_stops_stays_stopped(void)
{
    Seen seen = {.stop_after = 1};
    text_init(&seen.all, 1024);
    Sse *sse = sse_new(64, on_event, &seen);
    CHECK_I64(sse_feed(sse, STR("data: a\n\ndata: b\n\n")), ERR_CANCELLED);
    CHECK_I64(sse_feed(sse, STR("data: c\n\n")), ERR_CANCELLED);
    CHECK_STR(text_c(&seen.all), "[a]");
    sse_free(sse);
    text_free(&seen.all);
}

/* 4 MiB of CRs, in one piece, must not cost quadratic time (the test's own limit would end it). */
static void line_ends_alone_stay_linear(void)
{
    size_t n = 4u << 20;
    char *bytes = malloc(n);
    memset(bytes, '\r', n);
    Seen seen = {.stop_after = -1};
    bool pending = true;
    CHECK_I64(feed(bytes, n, n, 64, &seen, &pending), ERR_OK);
    CHECK_I64(seen.count, 0);
    CHECK_I64(pending, 0);
    text_free(&seen.all);
    free(bytes);
}

int main(void)
{
    RUN(every_cut_gives_the_same_events);
    RUN(random_cuts_agree_with_one_piece);
    RUN(bounds_hold_for_every_cut);
    RUN(a_reader_that_stops_stays_stopped);
    RUN(line_ends_alone_stay_linear);
    return test_end();
}
