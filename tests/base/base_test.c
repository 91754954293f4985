#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/ini.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/utf8.h"
#include "tests/harness.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_fault_keeps_the_first_sentence(void)
{
    Fault fault = {0};
    CHECK_I64(fault_set(&fault, ERR_FORMAT, "mend it", "line %d\x1b[2J is bad", 7), ERR_FORMAT);
    CHECK_I64(fault_set(&fault, ERR_IO, NULL, "later"), ERR_IO);
    CHECK_STR(fault.sentence, "line 7?[2J is bad");
    CHECK_STR(fault.hint, "mend it");
    fault = (Fault){0}; /* C1, bidirectional, zero-width, a broken byte; letters stay */
    (void)fault_set(&fault, ERR_ARG, NULL, "a\xc2\x9b" "31m\xe2\x80\xae\xe2\x80\x8b\xff \xc3\xa9");
    CHECK_STR(fault.sentence, "a?31m??? \xc3\xa9");
    CHECK_I64(fault_set(NULL, ERR_ARG, NULL, "nobody reads"), ERR_ARG);
}

static void test_numbers_are_whole_strings(void)
{
    int64_t i = 0;
    double d = 0;
    CHECK(str_to_i64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    CHECK(str_to_i64(STR("9223372036854775807"), &i) && i == INT64_MAX);
    CHECK(!str_to_i64(STR("9223372036854775808"), &i));
    CHECK(!str_to_i64(STR(""), &i));
    CHECK(!str_to_i64(STR("1 "), &i));
    CHECK(!str_to_i64(STR("-"), &i));
    CHECK(str_to_double(STR("-1.5e-3"), &d));
    CHECK_NEAR(d, -0.0015, 1e-18);
    CHECK(!str_to_double(STR("0x10"), &d));
    CHECK(!str_to_double(STR("nan"), &d));
    CHECK(!str_to_double(STR("1e999"), &d));
    CHECK(!str_to_double(STR("1e"), &d));
}

static void test_text_is_bounded(void)
{
    Text t;
    text_init(&t, 5);
    CHECK(text_add_c(&t, "abc"));
    CHECK(!text_add_c(&t, "def"));
    CHECK(t.cut);
    CHECK_STR(text_c(&t), "abc");
    CHECK(text_addf(&t, "%d", 42));
    CHECK_STR(text_c(&t), "abc42");
    CHECK(!text_add_char(&t, 'x'));
    text_free(&t);
}

static void test_split_and_find(void)
{
    Str rest = STR("a,,b");
    Str part;
    CHECK(str_split(&rest, ',', &part) && str_equal(part, STR("a")));
    CHECK(str_split(&rest, ',', &part) && part.n == 0);
    CHECK(str_split(&rest, ',', &part) && str_equal(part, STR("b")));
    CHECK(!str_split(&rest, ',', &part));
    size_t at = 0;
    CHECK(str_rfind(STR("x=1 x=2"), STR("x="), &at) && at == 4);
    CHECK(!str_find(STR("abc"), STR("abcd"), &at));
    CHECK_I64(str_distance(STR("num-rolout"), STR("num-rollout"), 6), 1);
}

static Err parse_json(const char *text, cJSON **out)
{
    return json_parse(str_from(text), 1 << 20, "test", out, NULL);
}

static void test_json_refuses_what_would_be_lost(void)
{
    cJSON *tree = NULL;
    CHECK_I64(parse_json("{\"a\":1} x", &tree), ERR_FORMAT);
    CHECK_I64(parse_json("{\"a\":\"x\\u0000y\"}", &tree), ERR_FORMAT);
    CHECK_I64(parse_json("", &tree), ERR_FORMAT);
    Text deep;
    text_init(&deep, 1000);
    for (int i = 0; i < 100; i++) {
        text_add_char(&deep, '[');
    }
    CHECK_I64(parse_json(text_c(&deep), &tree), ERR_LIMIT);
    text_free(&deep);
    CHECK_I64(parse_json(" {\"n\":9007199254740993,\"i\":7,\"s\":\"é\"} ", &tree), ERR_OK);
    CHECK_I64(json_i64(tree, "i", -1), 7);
    CHECK_I64(json_i64(tree, "s", -1), -1);
    CHECK_STR(json_string(tree, "s", ""), "é");
    cJSON_Delete(tree);
}

static void test_json_writes_what_reads_back(void)
{
    Text t;
    text_init(&t, 4096);
    JsonOut out;
    json_begin(&out, &t);
    json_object_begin(&out);
    json_member_string(&out, "a\"b", "\x01\n\xff\xe2\x82\xac\x7f\xc2\x9b\xc2\xa0");
    json_member_i64(&out, "low", INT64_MIN);
    json_key(&out, "list");
    json_array_begin(&out);
    json_put_i64(&out, -5);
    json_put_double(&out, 0.1);
    json_put_double(&out, NAN);
    json_put_float(&out, -0.11f);
    json_array_end(&out);
    json_object_end(&out);
    CHECK_STR(text_c(&t), "{\"a\\\"b\":\"\\u0001\\n\xef\xbf\xbd\xe2\x82\xac\\u007f\\u009b"
                          "\xc2\xa0\","
                          "\"low\":-9223372036854775808,\"list\":[-5,0.1,null,-0.1099999994]}");
    text_free(&t);
    Rng rng;
    rng_seed(&rng, 7);
    int bad = 0;
    for (int i = 0; i < 200000; i++) {
        float v = (float)(rng_normal(&rng) * pow(10.0, (double)(int)rng_below(&rng, 12) - 6.0));
        text_init(&t, 64);
        json_begin(&out, &t);
        json_put_float(&out, v);
        bad += strtof(text_c(&t), NULL) != v;
        text_free(&t);
    }
    CHECK_I64(bad, 0);
}

static void test_utf8_maximal_parts(void)
{
    Text t;
    text_init(&t, 100);
    utf8_add_clean(&t, STR("a\xe2\x82z\xf0\x90\x80\xed\xa0\x80"));
    /* Python: b"a\xe2\x82z\xf0\x90\x80\xed\xa0\x80".decode(errors="replace") */
    CHECK_STR(text_c(&t), "a\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    text_free(&t);
    CHECK(utf8_valid(STR("\xef\xbf\xbd")));
    CHECK(!utf8_valid(STR("\xc0\x80")));
}

static void test_python_random(void)
{
    PyRandom r;
    uint32_t items[5] = {0, 1, 2, 3, 4};
    py_random_seed(&r, 42);
    py_random_shuffle(&r, items, 5);
    const uint32_t want[5] = {3, 1, 2, 4, 0}; /* random.seed(42); random.shuffle(list(range(5))) */
    CHECK(memcmp(items, want, sizeof want) == 0);
}

static void test_flags(void)
{
    bool verbose = false;
    bool shuffle = true;
    int64_t n = 1;
    double lr = 0;
    const char *path = NULL;
    FlagList list = {NULL, 0};
    FlagSpec specs[] = {{"verbose", FLAG_SWITCH, &verbose, 0, 0, NULL, "", NULL},
                        {"shuffle", FLAG_SWITCH, &shuffle, 0, 0, NULL, "", NULL},
                        {"num-rollout", FLAG_INT, &n, 1, 100, "N", "", NULL},
                        {"lr", FLAG_DOUBLE, &lr, 0, 0, "X", "", NULL},
                        {"log", FLAG_STRING, &path, 0, 0, "FILE", "", NULL},
                        {"stop", FLAG_LIST, &list, 0, 0, "TEXT", "", NULL}};
    size_t count = sizeof specs / sizeof specs[0];
    FlagRest rest;
    Fault fault = {0};
    char *argv[] = {"x", "--verbose", "--no-shuffle", "--num-rollout=7", "--lr", "-1e-3",
                    "--stop", "a", "-b", "--log", "f", "--", "--rest"};
    CHECK_I64(flags_parse(specs, count, 13, argv, &rest, &fault), ERR_OK);
    CHECK(verbose && !shuffle && n == 7 && rest.count == 1 && list.count == 2);
    CHECK_NEAR(lr, -1e-3, 0);
    CHECK_STR(path, "f");
    flags_free(specs, count, &rest);
    char *typo[] = {"x", "--num-rolout", "3"};
    CHECK_I64(flags_parse(specs, count, 3, typo, &rest, &fault), ERR_ARG);
    CHECK_STR(fault.sentence, "unknown flag --num-rolout");
    CHECK_STR(fault.hint, "did you mean --num-rollout?");
    flags_free(specs, count, &rest);
    fault_clear(&fault);
    char *range[] = {"x", "--num-rollout", "101"};
    CHECK_I64(flags_parse(specs, count, 3, range, &rest, &fault), ERR_ARG);
    CHECK_STR(fault.sentence, "--num-rollout wants a whole number from 1 to 100, not 101");
    flags_free(specs, count, &rest);
}

/* The words stand below each other also where a name ends in "…", one column of three bytes. */
static void test_flags_help(void)
{
    FlagList stop = {NULL, 0};
    bool keep = false;
    const FlagSpec specs[] = {
        {.name = "stop", .value_name = "TEXT", .type = FLAG_LIST, .target = &stop, .help = "words"},
        {.name = "keep", .type = FLAG_SWITCH, .target = &keep, .help = "words"},
    };
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    flags_help(specs, 2, out);
    fclose(out);
    CHECK_STR(text, "  --stop TEXT…                           words\n"
                    "  --keep                                 words\n");
    free(text);
}

static void test_files(void)
{
    char dir[] = "/tmp/rolltop-base-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *deep = fs_join(dir, "a/b");
    char *file = fs_join(deep, "f");
    CHECK_I64(fs_mkdirs(deep, 0755, NULL), ERR_OK);
    CHECK_I64(fs_write_atomic(file, "hello", 5, NULL), ERR_OK);
    Text t;
    text_init(&t, 4);
    CHECK_I64(fs_read(file, &t, NULL), ERR_LIMIT);
    text_free(&t);
    text_init(&t, 5);
    CHECK_I64(fs_read(file, &t, NULL), ERR_OK);
    CHECK_STR(text_c(&t), "hello");
    text_free(&t);
    Fault fault = {0};
    CHECK_I64(fs_mkdirs(file, 0755, &fault), ERR_IO);
    CHECK_I64(symlink("/etc", file) != 0, 1);
    CHECK(fs_is_program("sh") && fs_is_program("/bin/sh") && !fs_is_program("./sh"));
    CHECK(!fs_is_program("no-such-program") && !fs_is_program("") && !fs_is_program(dir));
    CHECK(!fs_is_program(file)); /* nobody may execute it */
    CHECK(chmod(file, 0755) == 0 && fs_is_program(file));
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
    CHECK(!fs_exists(dir));
    CHECK_I64(fs_read(file, &t, NULL), ERR_NOT_FOUND);
    free(deep);
    free(file);
}

static void test_ini_lines(void)
{
    static const struct {
        const char *line;
        IniKind kind;
        const char *key, *value;
    } cases[] = {
        {"  \t", INI_NOTHING, "", ""},
        {" # a = b", INI_NOTHING, "", ""},
        {"; a = b", INI_NOTHING, "", ""},
        {"[ alert TAIL ]\r", INI_SECTION, "alert TAIL", ""},
        {"[]", INI_SECTION, "", ""},
        {"[", INI_OTHER, "", ""},
        {"words", INI_OTHER, "", ""},
        {" hold =  10s ", INI_PAIR, "hold", "10s"},
        {"run = a=b ; c # d", INI_PAIR, "run", "a=b ; c # d"},
        {"=", INI_PAIR, "", ""},
        {"[a] = b", INI_PAIR, "[a]", "b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        IniLine found;
        CHECK_I64(ini_read(str_from(cases[i].line), &found), cases[i].kind);
        CHECK(str_equal(found.key, str_from(cases[i].key)));
        CHECK(str_equal(found.value, str_from(cases[i].value)));
    }
    IniLine line;
    CHECK_I64(ini_read((Str){"a\0=b", 4}, &line), INI_ZERO);
}

/* A limit on sizes, as a disk that is full, lets the beginning through: the rest is tried, and the
 * error is that of the rest. */
static void test_short_writes(void)
{
    char dir[] = "/tmp/rolltop-base-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *file = fs_join(dir, "f");
    CHECK_I64(fs_write_atomic(file, "hello", 5, NULL), ERR_OK);
    struct rlimit usual;
    CHECK(getrlimit(RLIMIT_FSIZE, &usual) == 0);
    struct rlimit small = {.rlim_cur = 10, .rlim_max = usual.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    Fault fault = {0};
    CHECK_I64(fs_write_atomic(file, "hello, hello, hello", 19, &fault), ERR_IO);
    CHECK(setrlimit(RLIMIT_FSIZE, &usual) == 0);
    CHECK_I64(fault.sys_errno, EFBIG);
    Text t;
    text_init(&t, 100);
    CHECK_I64(fs_read(file, &t, NULL), ERR_OK);
    CHECK_STR(text_c(&t), "hello");
    text_free(&t);
    CHECK(unlink(file) == 0 && rmdir(dir) == 0); /* nothing else was left there */
    free(file);
}

static void test_arena_and_digest(void)
{
    Arena *arena = arena_new(100000);
    char *a = arena_strndup(arena, "abc", 3);
    CHECK_STR(a, "abc");
    CHECK(arena_alloc(arena, 70000) != NULL);
    CHECK(arena_alloc(arena, 70000) == NULL);
    arena_reset(arena);
    CHECK(arena_alloc(arena, 70000) != NULL);
    arena_free(arena);
    size_t product = 0;
    CHECK(!size_mul(SIZE_MAX / 2, 3, &product));
    Hasher *h = hasher_new();
    char text[DIGEST_TEXT];
    hasher_text(h, text);
    CHECK_STR(text, "99aa06d3014798d86001c324468d497f"); /* XXH3-128 of nothing */
    hasher_free(h);
    Hasher64 *short_one = hasher64_new();
    hasher64_add(short_one, "other", 5);
    hasher64_begin(short_one);
    hasher64_add(short_one, "ab", 2);
    hasher64_add(short_one, "", 0);
    hasher64_add(short_one, "c", 1);
    CHECK(hasher64_value(short_one) == hash64("abc", 3, 0));
    hasher64_free(short_one);
    char when[32];
    clock_format_utc(1773484927123456, when, sizeof when);
    CHECK_STR(when, "2026-03-14T10:42:07.123Z");
}

/* The wide instruction sets of this machine against the library's own, however it is cut. */
static void test_streamed_hashes(void)
{
    enum { MOST = 3000 };
    unsigned char bytes[MOST];
    for (size_t i = 0; i < MOST; i++) {
        bytes[i] = (unsigned char)(i * i % 251);
    }
    Hasher64 *hasher = hasher64_new();
    for (size_t n = 0; n <= MOST; n += 1 + n / 90) {
        for (size_t cut = 1; cut <= 1000; cut = cut * 3 + 1) {
            hasher64_begin(hasher);
            for (size_t at = 0; at < n; at += cut) {
                hasher64_add(hasher, bytes + at, n - at < cut ? n - at : cut);
            }
            CHECK(hasher64_value(hasher) == hash64(bytes, n, 0));
        }
    }
    hasher64_free(hasher);
    Hasher *wide = hasher_new();
    char text[DIGEST_TEXT];
    hasher_add(wide, bytes, 1);
    hasher_add(wide, bytes + 1, MOST - 1);
    hasher_text(wide, text);
    CHECK_STR(text, "703e4b1278d3e9168d28d397892647e0");
    hasher_free(wide);
}

int main(void)
{
    RUN(test_fault_keeps_the_first_sentence);
    RUN(test_numbers_are_whole_strings);
    RUN(test_text_is_bounded);
    RUN(test_split_and_find);
    RUN(test_json_refuses_what_would_be_lost);
    RUN(test_json_writes_what_reads_back);
    RUN(test_utf8_maximal_parts);
    RUN(test_python_random);
    RUN(test_flags);
    RUN(test_flags_help);
    RUN(test_files);
    RUN(test_short_writes);
    RUN(test_ini_lines);
    RUN(test_arena_and_digest);
    RUN(test_streamed_hashes);
    return test_end();
}
