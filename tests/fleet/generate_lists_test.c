/* The two long lists of a reply, read eight bytes at a time: the same values as strtod and strtol
 * give, in every form of number, with every byte damaged, and never a byte read behind the end. */
#include "core/fleet/generate_lists.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/fleet/generate_scan.h"
#include "tests/harness.h"

#include <stdlib.h>

/* A log-prob as an engine, Python, a mocker or nobody would write it. */
static void draw_number(Rng *rng, char *text, size_t size)
{
    uint64_t r = rng_u64(rng);
    double d = -exp(-30.0 + 34.0 * rng_unit(rng));
    switch (r % 9) {
    case 0: snprintf(text, size, "%.17g", (double)(float)d); break;
    case 1: snprintf(text, size, "%.16g", d); break;
    case 2: snprintf(text, size, "%.*f", 1 + (int)(r >> 8 & 0xffff) % 26, d); break;
    case 3: snprintf(text, size, "%.*e", (int)(r >> 8 & 0xffff) % 22, d); break;
    case 4: snprintf(text, size, "%s%u.%0*u", r & 1024 ? "-" : "", (unsigned)(r >> 16) % 1000,
                     1 + (int)(r >> 8 & 0xffff) % 26, (unsigned)(r >> 40)); break;
    case 5: snprintf(text, size, "%d", (int)(r >> 40) - (1 << 23)); break;
    case 6: snprintf(text, size, "-0.%llu%llu", (unsigned long long)rng_u64(rng),
                     (unsigned long long)r % 1000); break;
    case 7: snprintf(text, size, "-%llu.%07llu%s", (unsigned long long)r % 100,
                     (unsigned long long)r % 10000000, r & 4096 ? "e-3" : "E+01"); break;
    default: { /* exactly between two floats, and just beside */
        double middle = ((double)(float)d + (double)nextafterf((float)d, 0.0f)) / 2;
        snprintf(text, size, "%.18g", r & 512 ? middle : nextafter(middle, r & 256 ? 0.0 : -99.0));
    }
    }
}

enum { ENTRIES = 40 };

typedef struct Lists {
    Text ids, triples;
    int32_t id[ENTRIES];
    float logprob[ENTRIES];
} Lists;

static void draw_lists(Rng *rng, Lists *lists)
{
    static const char *const commas[] = {",", ", ", " ,  ", ",\n"};
    static const char *const thirds[] = {"null", "\"a]\\\"\"", "1.5", "null ", "[{}]"};
    const uint64_t style = rng_u64(rng);
    const char *comma = commas[style % 4 > 1 && style & 64 ? style % 4 : style % 2];
    text_init(&lists->ids, 1 << 20);
    text_init(&lists->triples, 1 << 20);
    text_add_c(&lists->ids, "[");
    text_add_c(&lists->triples, "[");
    for (int i = 0; i < ENTRIES; i++) {
        char number[80];
        uint64_t r = rng_u64(rng);
        draw_number(rng, number, sizeof number);
        lists->id[i] = (int32_t)((r & 0x7fffffff) >> (r >> 32) % 31);
        lists->logprob[i] = (float)strtod(number, NULL);
        text_addf(&lists->ids, "%s%d", i ? comma : "", lists->id[i]);
        text_addf(&lists->triples, "%s[%s%s%d%s%s]", i ? comma : "", number, comma, lists->id[i],
                  comma, thirds[r >> 40 & 1 ? (r >> 41) % 5 : 0]);
    }
    text_add_c(&lists->ids, "]");
    text_add_c(&lists->triples, "]");
}

static void values_are_those_of_the_c_library(void)
{
    Rng rng;
    rng_seed(&rng, 4);
    int wrong = 0;
    for (int round = 0; round < 4000; round++) {
        Lists lists;
        TokenList ids = {0};
        TokenList triples = {0};
        bool null_logprob = false;
        draw_lists(&rng, &lists);
        JsonCursor c = json_cursor(text_str(&lists.ids));
        generate_read_ids(&c, &ids, ENTRIES);
        bool good = json_at_end(&c);
        c = json_cursor(text_str(&lists.triples));
        generate_read_triples(&c, &triples, ENTRIES, &null_logprob);
        good = good && json_at_end(&c) && !null_logprob && ids.count == ENTRIES
               && triples.count == ENTRIES;
        for (int i = 0; i < ENTRIES && good; i++) {
            good = ids.ids[i] == lists.id[i] && triples.ids[i] == lists.id[i]
                   && memcmp(&triples.logprobs[i], &lists.logprob[i], sizeof(float)) == 0;
        }
        if (!good && wrong++ < 3) {
            fprintf(stderr, "%s\n%s\n%s\n", text_c(&lists.ids), text_c(&lists.triples),
                    c.error ? c.error : "");
        }
        token_list_free(&ids);
        token_list_free(&triples);
        text_free(&lists.ids);
        text_free(&lists.triples);
    }
    CHECK_I64(wrong, 0);
}

/* What a tree of the same bytes says. */
static bool tree_agrees(Str json, const TokenList *triples)
{
    cJSON *tree = NULL;
    if (json_parse(json, json.n, "list", &tree, NULL)) {
        return false;
    }
    bool good = (size_t)cJSON_GetArraySize(tree) == triples->count;
    size_t i = 0;
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, tree)
    {
        const cJSON *logprob = cJSON_GetArrayItem(entry, 0);
        const cJSON *id = cJSON_GetArrayItem(entry, 1);
        float wanted = cJSON_IsNumber(logprob) ? (float)logprob->valuedouble : NAN;
        int32_t number = id && id->valuedouble >= 0 && id->valuedouble <= INT32_MAX
                             ? (int32_t)id->valuedouble : -1;
        good = good && triples->ids[i] == number
               && (triples->logprobs[i] == wanted
                   || (!isfinite(wanted) && !isfinite(triples->logprobs[i])));
        i++;
    }
    cJSON_Delete(tree);
    return good;
}

/* Each byte of a compact list in turn becomes each byte that could matter: what is still taken is
 * JSON, byte for byte, and has the values of the tree. */
static void a_damaged_list_is_refused_or_means_what_it_says(void)
{
    static const char bytes[] = "0123456789.-+eE,[]{}n\"\\ \n\x80\xff";
    static const char list[] =
        "[[-0.0,7,null],[-1.2345678806304932,151935,null],[-12.5,0,null],[-4.4e-05,12,null],"
        "[-0.00004458240984263853,1234567,null],[-0.6931471824645996,3,null],[-1.0,4,null],"
        "[-2.25,5,null],[-3.5,6,null],[-0.125,8,null],[-0.5,9,null],[-0.25,10,null]]";
    int taken = 0;
    int mistaken = 0;
    for (size_t at = 0; at < sizeof list - 1; at++) {
        for (size_t b = 0; b < sizeof bytes - 1; b++) {
            char *copy = xstrdup(list); /* exactly as long as it is */
            copy[at] = bytes[b];
            Str json = {copy, sizeof list - 1};
            TokenList triples = {0};
            bool null_logprob = false;
            JsonCursor c = json_cursor(json);
            generate_read_triples(&c, &triples, ENTRIES, &null_logprob);
            if (json_at_end(&c)) {
                JsonCursor again = json_cursor(json);
                taken++;
                if (!json_skip(&again) || !json_at_end(&again) || !tree_agrees(json, &triples)) {
                    fprintf(stderr, "byte %zu as %02x: %s\n", at, (unsigned char)bytes[b], copy);
                    mistaken++;
                }
            }
            token_list_free(&triples);
            free(copy);
        }
    }
    CHECK_I64(mistaken, 0);
    CHECK(taken > 1000);
}

static void cuts_and_bounds(void)
{
    Rng rng;
    Lists lists;
    rng_seed(&rng, 5);
    draw_lists(&rng, &lists);
    int mistaken = 0;
    for (size_t n = 0; n < lists.triples.n; n++) {
        char *piece = malloc(n + 1);
        TokenList triples = {0};
        bool null_logprob = false;
        memcpy(piece, lists.triples.p, n);
        JsonCursor c = json_cursor((Str){piece, n});
        generate_read_triples(&c, &triples, ENTRIES, &null_logprob);
        mistaken += json_at_end(&c);
        token_list_free(&triples);
        free(piece);
    }
    CHECK_I64(mistaken, 0);
    TokenList few = {0}; /* a bound keeps what is before it, and the rest is still checked */
    JsonCursor c = json_cursor(text_str(&lists.ids));
    generate_read_ids(&c, &few, 3);
    CHECK(json_at_end(&c));
    CHECK_I64(few.count, 3);
    CHECK_I64(few.ids[2], lists.id[2]);
    token_list_free(&few);
    text_free(&lists.ids);
    text_free(&lists.triples);
}

/* Text that is no UTF-8 is no JSON, wherever in the event it stands. */
static void invalid_utf8_is_no_sample(void)
{
    static const char *const bad[] = {"\xff", "\xc3", "\xc3(", "\xed\xa0\x80", "\xf5\x80\x80\x80",
                                      "\xc0\xaf", "plain text behind it \x80"};
    GenerateScan *scan = generate_scan_new(0, 0);
    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        const char *text = i < sizeof bad / sizeof bad[0] ? bad[i] : "\xe8\xb5\x8b plain \xc3\xa9";
        for (int place = 0; place < 3; place++) {
            Text json;
            text_init(&json, 4096);
            text_addf(&json, "{\"text\":\"%s\",\"output_ids\":[1],\"meta_info\":{\"a%s\":\"%s\","
                      "\"finish_reason\":{\"type\":\"stop\"},\"completion_tokens\":1,"
                      "\"output_token_logprobs\":[[-1.5,1,null]]}}", place == 0 ? text : "x",
                      place == 1 ? text : "", place == 2 ? text : "");
            generate_scan_clear(scan, 0, 0);
            Err err = generate_scan_event(scan, text_str(&json), NULL);
            CHECK_I64(err, i < sizeof bad / sizeof bad[0] ? ERR_FORMAT : ERR_OK);
            text_free(&json);
        }
    }
    generate_scan_free(scan);
}

int main(void)
{
    RUN(values_are_those_of_the_c_library);
    RUN(a_damaged_list_is_refused_or_means_what_it_says);
    RUN(cuts_and_bounds);
    RUN(invalid_utf8_is_no_sample);
    return test_end();
}
