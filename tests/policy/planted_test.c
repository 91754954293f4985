/* Does the simulator find faults? Each deliberate wrong variant of the machine (txn_planted.h; the
 * sources are compiled into this test with the switch) must be caught within 2,000 seeds. */
#include "core/policy/txn_planted.h"

#include "core/policy/sim.h"
#include "tests/harness.h"

enum { SEEDS = 2000 };

TxnPlanted txn_planted = PLANTED_NONE;

#define NAME(name, words) words,
static const char *const names[] = {TXN_PLANTED_FAULTS(NAME)};

static int first_caught(char *words, size_t size)
{
    for (int seed = 1; seed <= SEEDS; seed++) {
        SimReport report;
        sim_run(&(SimConfig){.seed = (uint64_t)seed}, &report);
        if (!report.passed) {
            snprintf(words, size, "%s", report.broken);
            return seed;
        }
    }
    return 0;
}

static void test_the_right_machine_passes(void)
{
    char words[192] = "";
    txn_planted = PLANTED_NONE;
    CHECK_I64(first_caught(words, sizeof words), 0);
}

static void test_each_planted_fault_is_caught(void)
{
    CHECK(TXN_PLANTED_COUNT - 1 >= 12);
    for (int fault = PLANTED_NONE + 1; fault < TXN_PLANTED_COUNT; fault++) {
        char words[192] = "";
        txn_planted = (TxnPlanted)fault;
        int seed = first_caught(words, sizeof words);
        test_result(seed > 0, __FILE__, __LINE__, names[fault]);
        if (seed == 0) {
            fputs(": not caught\n", stderr);
        } else {
            printf("     %s: seed %d, %s\n", names[fault], seed, words);
        }
    }
    txn_planted = PLANTED_NONE;
}

int main(void)
{
    RUN(test_the_right_machine_passes);
    RUN(test_each_planted_fault_is_caught);
    return test_end();
}
