#include "core/app/update_flags.h"

#include "core/base/str.h"

#include <string.h>

static const int64_t SECONDS_MAX = 86400, SECOND_US = 1000000;

/* Where that phase's budget stands; NULL: it has none. A decision waits for the disk, without. */
static int64_t *budget_of(RunConfig *config, Str name)
{
    for (TxnPhase phase = 0; phase < TXN_PHASE_COUNT; phase++) {
        if (phase != TXN_DECIDE && str_equal(name, str_from(txn_phase_name(phase)))) {
            return &config->update_budget_us[phase];
        }
    }
    return str_equal(name, STR("doubt")) ? &config->update_doubt_us : NULL;
}

Err update_flags_fill(const FlagList *words, RunConfig *config, Fault *fault)
{
    for (size_t i = 0; i < words->count; i++) {
        Str rest = str_from(words->items[i]);
        Str name;
        int64_t seconds = 0;
        int64_t *budget = str_split(&rest, '=', &name) ? budget_of(config, name) : NULL;
        if (!budget) {
            return fault_set(fault, ERR_ARG, "e.g. --update-budget apply=60 verify=20",
                             "--update-budget %s is no PHASE=SECONDS; phases are check, prepare, "
                             "gate, pause, flush, apply, verify, rollback, continue, open, and "
                             "doubt", words->items[i]);
        }
        if (!str_to_i64(rest, &seconds) || seconds < 1 || seconds > SECONDS_MAX) {
            return fault_set(fault, ERR_ARG, "give whole seconds, 1 to 86400",
                             "--update-budget %s is no budget", words->items[i]);
        }
        if (*budget > 0) {
            return fault_set(fault, ERR_ARG, "give it once", "--update-budget says %.*s twice",
                             (int)name.n, name.p);
        }
        *budget = seconds * SECOND_US;
    }
    return ERR_OK;
}
