/* --update-inflight, --max-staleness, --generate-unary and slime's words for them. */
#include "core/app/inflight_flags.h"

#include "core/base/mem.h"
#include "tests/harness.h"

#include <stdlib.h>

typedef struct Came {
    Err err;
    Fault fault;
    RunConfig config;
} Came;

/* `words` are cut at blanks; the fleet is as the last three say. */
static Came parse(const char *words, int local, const char *url, bool router)
{
    Came came = {.config = {.local_engines = local, .rollout_url = url, .router = router}};
    RunFlags flags;
    char *copy = xstrdup(words);
    char *argv[32] = {"run"};
    char *rest = NULL;
    int argc = 1;
    for (char *word = strtok_r(copy, " ", &rest); word && argc < 31;
         word = strtok_r(NULL, " ", &rest)) {
        argv[argc++] = word;
    }
    came.err = run_flags_parse(&flags, argc, argv, &came.fault);
    came.err = came.err ? came.err : inflight_flags_fill(&flags, &came.config, &came.fault);
    run_flags_free(&flags);
    free(copy);
    return came;
}

static void modes(void)
{
    static const struct { const char *words; UpdateInflight mode; int64_t staleness; bool mask; }
        cases[] = {
            {"", INFLIGHT_ABORT, 0, false},
            {"--max-staleness 2", INFLIGHT_ABORT, 2, false},
            {"--update-inflight resume", INFLIGHT_RESUME, 1, false},
            {"--update-inflight in-place --max-staleness 3", INFLIGHT_IN_PLACE, 3, false},
            {"--partial-rollout", INFLIGHT_RESUME, 1, false},
            {"--partial-rollout --update-inflight in-place", INFLIGHT_IN_PLACE, 1, false},
            {"--partial-rollout --mask-offpolicy-in-partial-rollout", INFLIGHT_RESUME, 1, true},
            {"--mask-offpolicy-in-partial-rollout", INFLIGHT_ABORT, 0, true}, /* inert there */
        };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Came came = parse(cases[i].words, 2, NULL, false);
        CHECK_I64(came.err, ERR_OK);
        CHECK_I64(came.config.inflight, cases[i].mode);
        CHECK_I64(came.config.max_staleness, cases[i].staleness);
        CHECK(came.config.mask_offpolicy == cases[i].mask);
    }
}

static void what_cannot_go_together(void)
{
    static const struct { const char *words, *says; } cases[] = {
        {"--update-inflight retract", "--update-inflight retract is none of abort, resume, "
                                      "in-place"},
        {"--partial-rollout --update-inflight abort", "--partial-rollout goes on with samples"},
        {"--update-inflight resume --max-staleness 0", "--max-staleness 0 lets no token be older"},
        {"--partial-rollout --max-staleness 0", "and --partial-rollout keeps tokens"},
        {"--generate-unary sometimes", "--generate-unary sometimes is none of auto, on, off"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Came came = parse(cases[i].words, 2, NULL, false);
        CHECK_I64(came.err, ERR_ARG);
        CHECK(strstr(came.fault.sentence, cases[i].says) != NULL);
    }
}

static void ways_to_generate(void)
{
    static const struct { const char *word; int local; const char *url; bool router, good, direct,
                          unary; } cases[] = {
        {"auto", 2, NULL, false, true, false, false},
        {"auto", 0, NULL, false, true, true, true}, /* addresses alone: whole replies */
        {"off", 0, NULL, false, true, true, false},
        {"auto", 0, "http://f:1", false, true, false, false},
        {"on", 0, "http://f:1", false, false, false, false},
        {"on", 2, NULL, false, false, false, false},
        {"on", 0, "http://r:1", true, true, false, true},
        {"auto", 0, "http://r:1", true, true, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *words = xasprintf("--generate-unary %s", cases[i].word);
        Came came = parse(words, cases[i].local, cases[i].url, cases[i].router);
        CHECK((came.err == ERR_OK) == cases[i].good);
        CHECK(!cases[i].good || came.config.direct == cases[i].direct);
        CHECK(!cases[i].good || came.config.unary == cases[i].unary);
        free(words);
    }
}

int main(void)
{
    RUN(modes);
    RUN(what_cannot_go_together);
    RUN(ways_to_generate);
    return test_end();
}
