/* --update-budget: the phases of an update and their seconds. */
#include "core/app/update_flags.h"

#include "tests/harness.h"

typedef struct Came {
    Err err;
    Fault fault;
    RunConfig config;
} Came;

static Came parse(const char *first, const char *second)
{
    Came came = {.err = ERR_OK};
    RunFlags flags;
    char name[] = "run", flag[] = "--update-budget", one[64], two[64];
    (void)snprintf(one, sizeof one, "%s", first ? first : "");
    (void)snprintf(two, sizeof two, "%s", second ? second : "");
    char *argv[] = {name, flag, one, two, NULL};
    int argc = second ? 4 : first ? 3 : 1;
    came.err = run_flags_parse(&flags, argc, argv, &came.fault);
    came.err = came.err ? came.err
                        : update_flags_fill(&flags.update_budget, &came.config, &came.fault);
    run_flags_free(&flags);
    return came;
}

static void each_phase(void)
{
    Came came = parse(NULL, NULL);
    CHECK_I64(came.err, ERR_OK);
    for (TxnPhase phase = 0; phase < TXN_PHASE_COUNT; phase++) {
        char words[64];
        CHECK_I64(came.config.update_budget_us[phase], 0);
        (void)snprintf(words, sizeof words, "%s=7", txn_phase_name(phase));
        Came one = parse(words, NULL);
        bool waits = phase == TXN_DECIDE; /* for the disk, without bound */
        CHECK_I64(one.err, waits ? ERR_ARG : ERR_OK);
        CHECK_I64(one.config.update_budget_us[phase], waits ? 0 : 7000000);
    }
    came = parse("doubt=30", "apply=86400");
    CHECK_I64(came.err, ERR_OK);
    CHECK_I64(came.config.update_doubt_us, 30000000);
    CHECK_I64(came.config.update_budget_us[TXN_APPLY], INT64_C(86400000000));
    CHECK_I64(came.config.update_budget_us[TXN_VERIFY], 0);
}

static void refused(const char *first, const char *second, const char *words)
{
    Came came = parse(first, second);
    CHECK_I64(came.err, ERR_ARG);
    CHECK(strstr(came.fault.sentence, words) != NULL);
}

static void wrong_words(void)
{
    refused("load=5", NULL, "--update-budget load=5 is no PHASE=SECONDS; phases are check,");
    refused("apply", NULL, "--update-budget apply is no budget");
    refused("apply=", NULL, "--update-budget apply= is no budget");
    refused("apply=0", NULL, "--update-budget apply=0 is no budget");
    refused("apply=1.5", NULL, "--update-budget apply=1.5 is no budget");
    refused("apply=86401", NULL, "is no budget");
    refused("apply=99999999999999999999", NULL, "is no budget");
    refused("apply=5", "apply=6", "--update-budget says apply twice");
    refused("=5", NULL, "is no PHASE=SECONDS");
}

int main(void)
{
    RUN(each_phase);
    RUN(wrong_words);
    return test_end();
}
