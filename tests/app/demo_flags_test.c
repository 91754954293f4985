#include "core/app/demo_flags.h"

#include "core/app/app.h"
#include "core/app/run_flags.h"
#include "tests/harness.h"

static char line[4096];

static void gather(const char *word, void *to)
{
    (void)to;
    size_t n = strlen(line);
    snprintf(line + n, sizeof line - n, "%s%s", n ? " " : "", word);
}

static Err parse(DemoFlags *f, int argc, const char *const *argv, Fault *fault)
{
    *fault = (Fault){0};
    return demo_flags_parse(f, argc, (char **)(uintptr_t)argv, fault);
}
#define PARSE(f, fault, ...)                                                                      \
    parse(f, (int)(sizeof((const char *[]){"demo", __VA_ARGS__}) / sizeof(char *)),               \
          (const char *[]){"demo", __VA_ARGS__, NULL}, fault)

static void what_is_given_goes_on_to_the_run(void)
{
    DemoFlags f;
    Fault fault;
    CHECK_I64(PARSE(&f, &fault, "--seed", "7", "--engines=2", "--update-inflight", "resume",
                    "--max-staleness", "2", "--state-interval", "3", "--lr", "0.00025",
                    "--no-rollout-shuffle", "--use-tis", "--rollout-stop=--x", "--rollout-stop",
                    "y z", "w", "--headless"), ERR_OK);
    CHECK_STR(fault.sentence, "");
    CHECK(f.seed == 7 && f.engines == 2 && f.steps == 0 && f.headless && !f.keep);
    CHECK(demo_flags_given(&f, "lr") && demo_flags_given(&f, "rollout-shuffle"));
    CHECK(!demo_flags_given(&f, "rollout-seed") && !demo_flags_given(&f, "seed"));
    line[0] = '\0';
    demo_flags_words(&f, gather, NULL);
    CHECK_STR(line, "--state-interval=3 --rollout-stop=--x --rollout-stop=y z --rollout-stop=w "
                    "--no-rollout-shuffle --update-inflight=resume --max-staleness=2 --use-tis "
                    "--lr=0.00025000000000000001");
    demo_flags_free(&f);
}

static void check_refused(const char *word, const char *sentence, const char *hint)
{
    DemoFlags f;
    Fault fault;
    CHECK_I64(PARSE(&f, &fault, word, "3"), ERR_ARG);
    CHECK_STR(fault.sentence, sentence);
    CHECK(strstr(fault.hint, hint) != NULL);
    demo_flags_free(&f);
}

static void what_it_settles_and_what_nobody_knows(void)
{
    check_refused("--hf-checkpoint", "the demo settles --hf-checkpoint itself", "rolltop run");
    check_refused("--local-engines=5", "the demo settles --local-engines itself", "rolltop demo");
    check_refused("--max-stalenes", "unknown flag --max-stalenes", "--max-staleness");
    check_refused("--engins", "unknown flag --engins", "--engines");
    check_refused("--lr=fast", "--lr wants a number, not \"fast\"", "");
    check_refused("--", "unexpected word 3", "flags only");
}

typedef struct Table {
    int taken, settled;
} Table;

static bool in_demo;
static const char *wanted;

static void look(const FlagSpec *specs, size_t count, void *to)
{
    (void)to;
    for (size_t i = 0; i < count; i++) {
        in_demo = in_demo || strcmp(specs[i].name, wanted) == 0;
    }
}

/* Every flag of the run is taken or refused by name; none is unknown. */
static void each_run_flag(const FlagSpec *specs, size_t count, void *to)
{
    Table *table = to;
    for (size_t i = 0; i < count; i++) {
        char word[96];
        DemoFlags f;
        Fault fault;
        wanted = specs[i].name;
        in_demo = false;
        cmd_demo_flags(look, NULL);
        table->taken += in_demo;
        if (!in_demo) {
            snprintf(word, sizeof word, "--%s", wanted);
            CHECK_I64(PARSE(&f, &fault, word), ERR_ARG);
            CHECK(strstr(fault.sentence, "the demo settles --") != NULL);
            table->settled++;
            demo_flags_free(&f);
        }
    }
}

static void every_flag_of_a_run_has_a_fate(void)
{
    Table table = {0};
    cmd_run_flags(each_run_flag, &table);
    CHECK(table.taken > 60);
    CHECK(table.settled > 20);
}

int main(void)
{
    RUN(what_is_given_goes_on_to_the_run);
    RUN(what_it_settles_and_what_nobody_knows);
    RUN(every_flag_of_a_run_has_a_fate);
    return test_end();
}
