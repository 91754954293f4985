/* Membership from several sources: who comes, who goes, when, and for what reason. */
#include "core/fleet/discover.h"
#include "tests/harness.h"

static void expect(Discover *d, bool add, const char *address, const char *word)
{
    DiscoverChange change;
    CHECK(discover_next(d, &change));
    CHECK_I64(change.add, add);
    CHECK_STR(change.address, address);
    size_t at = 0;
    CHECK(str_find(str_from(change.reason), str_from(word), &at));
}

static void expect_none(Discover *d)
{
    DiscoverChange change;
    CHECK(!discover_next(d, &change));
}

#define LOOK(d, source, ...)                                                                      \
    do {                                                                                          \
        const char *const list[] = {__VA_ARGS__};                                                 \
        discover_look(d, source, list, sizeof list / sizeof *list);                               \
    } while (0)

static void one_source(void)
{
    Discover *d = discover_new(3);
    LOOK(d, DISCOVER_FILE, "a:1", "b:1");
    expect(d, true, "a:1", "engines file");
    expect(d, true, "b:1", "engines file");
    expect_none(d);
    LOOK(d, DISCOVER_FILE, "b:1");
    expect(d, false, "a:1", "no longer listed by the engines file");
    expect_none(d);
    CHECK_I64(discover_count(d), 1);
    discover_free(d);
}

static void dns_forgets_for_a_moment(void)
{
    Discover *d = discover_new(3);
    LOOK(d, DISCOVER_DNS, "a:1", "b:1");
    expect(d, true, "a:1", "DNS");
    expect(d, true, "b:1", "DNS");
    LOOK(d, DISCOVER_DNS, "b:1");
    LOOK(d, DISCOVER_DNS, "b:1");
    expect_none(d);
    LOOK(d, DISCOVER_DNS, "a:1", "b:1"); /* back in time: counting starts anew */
    LOOK(d, DISCOVER_DNS, "b:1");
    LOOK(d, DISCOVER_DNS, "b:1");
    expect_none(d);
    LOOK(d, DISCOVER_DNS, "b:1");
    expect(d, false, "a:1", "DNS");
    discover_look(d, DISCOVER_DNS, NULL, 0);
    expect_none(d);
    discover_free(d);
}

static void several_sources(void)
{
    Discover *d = discover_new(1);
    LOOK(d, DISCOVER_FLAG, "a:1");
    LOOK(d, DISCOVER_DNS, "a:1", "b:1");
    expect(d, true, "a:1", "command line");
    expect(d, true, "b:1", "DNS");
    discover_look(d, DISCOVER_DNS, NULL, 0);
    expect(d, false, "b:1", "DNS"); /* a stays: the command line still lists it */
    expect_none(d);
    discover_free(d);
}

static void the_operators_word_stands(void)
{
    Discover *d = discover_new(1);
    LOOK(d, DISCOVER_FILE, "a:1");
    expect(d, true, "a:1", "engines file");
    discover_operator(d, "a:1", false, "removed by ana");
    expect(d, false, "a:1", "removed by ana");
    LOOK(d, DISCOVER_FILE, "a:1");
    expect_none(d);
    discover_operator(d, "a:1", true, "added by ana");
    expect(d, true, "a:1", "added by ana");
    discover_look(d, DISCOVER_FILE, NULL, 0);
    expect_none(d);
    discover_operator(d, "c:1", true, "added by ana");
    discover_operator(d, "c:1", false, "removed by ana"); /* undone before anybody took it */
    expect_none(d);
    discover_free(d);
}

static void addresses(void)
{
    static const struct { const char *in, *out; } good[] = {
        {"10.0.0.7:30000", "10.0.0.7:30000"}, {"http://h:1/", "h:1"},
        {"https://h.example:443", "https://h.example:443"}, {"[fd00::1]:30000", "[fd00::1]:30000"},
        {" eng-0.svc:8 ", "eng-0.svc:8"}};
    static const char *const bad[] = {"", "h", "h:", ":1", "h:0", "h:65536", "h:1x", "a b:1",
                                      "fd00::1:30000", "h/x:1", "http://h", "h\"x:1"};
    char out[DISCOVER_ADDRESS];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_I64(discover_address(good[i].in, out, NULL), ERR_OK);
        CHECK_STR(out, good[i].out);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Fault fault = {0};
        CHECK_I64(discover_address(bad[i], out, &fault), ERR_ARG);
        CHECK(fault.hint[0] != '\0');
    }
}

static void lists(void)
{
    char out[4][DISCOVER_ADDRESS];
    size_t count = 0;
    Fault fault = {0};
    CHECK_I64(discover_read_list(STR("# two\na:1, b:2\r\n\n c:3 # three\n"), "f", out, 4, &count,
                                 &fault), ERR_OK);
    CHECK_I64(count, 3);
    CHECK_STR(out[1], "b:2");
    CHECK_STR(out[2], "c:3");
    CHECK_I64(discover_read_list(STR("a:1\nb\n"), "engines.txt", out, 4, &count, &fault),
              ERR_FORMAT);
    size_t at = 0;
    CHECK(str_find(str_from(fault.sentence), STR("engines.txt:2: \"b\""), &at));
    CHECK_I64(discover_read_list(STR("a:1 b:1 c:1 d:1 e:1"), "f", out, 4, &count, NULL), ERR_LIMIT);
}

static void bounded(void)
{
    Discover *d = discover_new(1);
    for (int i = 0; i < DISCOVER_MAX + 5; i++) {
        char address[32];
        snprintf(address, sizeof address, "h%d:1", i);
        CHECK_I64(discover_full(d), i == DISCOVER_MAX + 1); /* said once */
        discover_operator(d, address, true, "test");
    }
    CHECK_I64(discover_count(d), DISCOVER_MAX);
    discover_free(d);
}

int main(void)
{
    RUN(one_source);
    RUN(dns_forgets_for_a_moment);
    RUN(several_sources);
    RUN(the_operators_word_stands);
    RUN(addresses);
    RUN(lists);
    RUN(bounded);
    return test_end();
}
