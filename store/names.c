#include "store/names.h"

#include "store/store.h"

#define WORD(name, word) word,
static const char *const engine_states[] = {ENGINE_STATES(WORD)};
static const char *const loop_phases[] = {LOOP_PHASES(WORD)};
static const char *const sample_fates[] = {SAMPLE_FATES(WORD)};
static const char *const probe_kinds[] = {PROBE_KINDS(WORD)};
static const char *const policy_states[] = {POLICY_STATES(WORD)};
static const char *const txn_phases[] = {TXN_PHASES(WORD)};
static const char *const severities[] = {SEVERITIES(WORD)};
#undef WORD

#define COUNT(words) (sizeof(words) / sizeof((words)[0]))
static const NameList name_lists[] = {
    {"engine_state", engine_states, COUNT(engine_states)},
    {"loop_phase", loop_phases, COUNT(loop_phases)},
    {"sample_fate", sample_fates, COUNT(sample_fates)},
    {"probe_kind", probe_kinds, COUNT(probe_kinds)},
    {"policy_state", policy_states, COUNT(policy_states)},
    {"txn_phase", txn_phases, COUNT(txn_phases)},
    {"severity", severities, COUNT(severities)},
};

const NameList *names_all(size_t *count)
{
    *count = COUNT(name_lists);
    return name_lists;
}

/* The number may come from a file: an unknown one is a word, not an index out of bounds. */
static const char *word_of(const char *const *words, size_t count, int v)
{
    return v >= 0 && (size_t)v < count ? words[v] : "unknown";
}

const char *engine_state_name(EngineState v)
{
    return word_of(engine_states, COUNT(engine_states), (int)v);
}

const char *loop_phase_name(LoopPhase v)
{
    return word_of(loop_phases, COUNT(loop_phases), (int)v);
}

const char *sample_fate_name(SampleFate v)
{
    return word_of(sample_fates, COUNT(sample_fates), (int)v);
}

const char *probe_kind_name(ProbeKind v)
{
    return word_of(probe_kinds, COUNT(probe_kinds), (int)v);
}

const char *policy_state_name(PolicyState v)
{
    return word_of(policy_states, COUNT(policy_states), (int)v);
}

const char *txn_phase_name(TxnPhase v)
{
    return word_of(txn_phases, COUNT(txn_phases), (int)v);
}

const char *severity_name(Severity v)
{
    return word_of(severities, COUNT(severities), (int)v);
}
