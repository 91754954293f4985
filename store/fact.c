#include "store/fact.h"

#include <stddef.h>
#include <string.h>

typedef enum PartType { PART_STRING, PART_STR, PART_ARRAY } PartType;

typedef struct Part { /* one pointer of a fact */
    FactKind kind;
    PartType type;
    size_t at;    /* of the pointer or Str in the struct */
    size_t count; /* of the size_t that counts an array */
    size_t size;  /* of one element */
} Part;

#define STRING(kind, type, field) {FACT_##kind, PART_STRING, offsetof(type, field), 0, 1}
#define BYTES(kind, type, field) {FACT_##kind, PART_STR, offsetof(type, field), 0, 1}
#define ARRAY(kind, type, field, count, element)                                                  \
    {FACT_##kind, PART_ARRAY, offsetof(type, field), offsetof(type, count), sizeof(element)}

/* In order of kinds; first_part finds a kind's own. */
static const Part parts[] = {
    STRING(RUN, RunFact, run), STRING(RUN, RunFact, name), STRING(RUN, RunFact, host),
    STRING(RUN, RunFact, version), STRING(RUN, RunFact, argv_json),
    STRING(RUN, RunFact, config_json),
    STRING(SESSION, SessionFact, how),
    STRING(ENGINE, EngineFact, name), STRING(ENGINE, EngineFact, address),
    STRING(INCARNATION, IncarnationFact, identity),
    STRING(ENGINE_STATE, EngineStateFact, reason),
    STRING(PROBE, ProbeFact, outcome),
    STRING(PHASE, PhaseFact, outcome),
    STRING(STEP, StepFact, outcome), STRING(STEP, StepFact, trainer_state),
    BYTES(GROUP, GroupFact, prompt), BYTES(GROUP, GroupFact, label),
    ARRAY(GROUP, GroupFact, prompt_ids, prompt_count, int32_t),
    STRING(SAMPLE_END, SampleEndFact, finish), STRING(SAMPLE_END, SampleEndFact, reason),
    ARRAY(SAMPLE_END, SampleEndFact, tokens, token_count, int32_t),
    ARRAY(SAMPLE_END, SampleEndFact, logprobs, token_count, float),
    ARRAY(SAMPLE_END, SampleEndFact, spans, span_count, SampleSpan),
    BYTES(SAMPLE_END, SampleEndFact, text),
    STRING(POLICY, PolicyFact, digest), STRING(POLICY, PolicyFact, path),
    STRING(POLICY, PolicyFact, kind),
    STRING(POLICY_STATE, PolicyStateFact, reason),
    STRING(TXN, TxnFact, why),
    STRING(TXN_ANSWER, TxnAnswerFact, detail),
    STRING(TXN_DECISION, TxnDecisionFact, reason),
    STRING(TXN_END, TxnEndFact, outcome),
    STRING(COMMAND, CommandFact, who), STRING(COMMAND, CommandFact, what),
    STRING(COMMAND, CommandFact, target), STRING(COMMAND, CommandFact, reason),
    STRING(COMMAND, CommandFact, state), STRING(COMMAND, CommandFact, answer),
    STRING(INCIDENT, IncidentFact, class_name), STRING(INCIDENT, IncidentFact, evidence),
    STRING(INCIDENT, IncidentFact, next_key),
    STRING(ALERT_RULE, AlertRuleFact, class_name), STRING(ALERT_RULE, AlertRuleFact, words),
    STRING(EVENT, EventFact, source), STRING(EVENT, EventFact, text),
    STRING(METRIC, MetricFact, name),
    STRING(CHILD_LINE, ChildLineFact, child), BYTES(CHILD_LINE, ChildLineFact, line),
};
enum { PART_COUNT = sizeof parts / sizeof parts[0] };

#define FACT_SIZE(name, type, suffix, bulk) sizeof(type),
static const size_t fact_sizes[] = {STORE_FACTS(FACT_SIZE)};
#define FACT_BULK(name, type, suffix, bulk) bulk,
static const unsigned char fact_bulk[] = {STORE_FACTS(FACT_BULK)};
bool fact_is_bulk(FactKind kind)
{
    return fact_bulk[kind] != 0;
}

static size_t aligned(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static const Part *first_part(FactKind kind)
{
    int from = 0;
    int to = PART_COUNT;
    while (from < to) {
        int middle = from + (to - from) / 2;
        if (parts[middle].kind < kind) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return &parts[from];
}

static bool part_of(const Part *part, FactKind kind)
{
    return part < parts + PART_COUNT && part->kind == kind;
}

/* Pointer and bytes of one part of a fact; strings count their NUL. */
static const void *part_bytes(const Part *part, const unsigned char *fact, size_t *n)
{
    const void *p = NULL;
    memcpy(&p, fact + part->at, sizeof p); /* Str starts with its pointer */
    *n = 0;
    if (p == NULL) {
        return NULL;
    }
    switch (part->type) {
    case PART_STRING:
        *n = strlen(p) + 1;
        break;
    case PART_STR:
        memcpy(n, fact + part->at + offsetof(Str, n), sizeof *n);
        break;
    case PART_ARRAY: {
        size_t count = 0;
        memcpy(&count, fact + part->count, sizeof count);
        *n = count > SIZE_MAX / 2 / part->size ? SIZE_MAX / 2 : count * part->size;
        break;
    }
    }
    return p;
}

size_t fact_size(FactKind kind, const void *fact, bool bare)
{
    size_t size = sizeof(FactHead) + aligned(fact_sizes[kind]);
    for (const Part *part = first_part(kind); part_of(part, kind) && !bare; part++) {
        size_t n = 0;
        part_bytes(part, fact, &n);
        size = n > FACT_BYTES_MAX ? (size_t)FACT_BYTES_MAX * 2 : size + aligned(n);
    }
    return size;
}

static void clear_part(const Part *part, unsigned char *fact)
{
    /* An array's count stays: how many tokens there were is worth knowing without them. */
    memset(fact + part->at, 0, part->type == PART_STR ? sizeof(Str) : sizeof(void *));
}

void fact_pack(FactKind kind, const void *fact, bool bare, unsigned char *out)
{
    FactHead head = {(uint32_t)fact_size(kind, fact, bare), (uint32_t)kind};
    memcpy(out, &head, sizeof head);
    unsigned char *copy = out + sizeof head;
    memcpy(copy, fact, fact_sizes[kind]);
    unsigned char *tail = copy + aligned(fact_sizes[kind]);
    for (const Part *part = first_part(kind); part_of(part, kind); part++) {
        size_t n = 0;
        const void *p = part_bytes(part, fact, &n);
        if (bare) {
            clear_part(part, copy);
        } else if (p != NULL) {
            memcpy(tail, p, n);
            tail += aligned(n);
        }
    }
}

const void *fact_open(unsigned char *record, FactKind *kind)
{
    FactHead head;
    memcpy(&head, record, sizeof head);
    *kind = (FactKind)head.kind;
    unsigned char *fact = record + sizeof head;
    unsigned char *tail = fact + aligned(fact_sizes[*kind]);
    for (const Part *part = first_part(*kind); part_of(part, *kind); part++) {
        const void *p = NULL;
        memcpy(&p, fact + part->at, sizeof p);
        if (p == NULL) {
            continue;
        }
        memcpy(fact + part->at, &tail, sizeof tail);
        size_t n = 0;
        part_bytes(part, fact, &n);
        tail += aligned(n);
    }
    return fact;
}

int64_t fact_time(FactKind kind, const void *fact)
{
    if (kind == FACT_INCIDENT) {
        const IncidentFact *incident = fact;
        return incident->ended_us > 0 ? incident->ended_us
               : incident->t_us > 0   ? incident->t_us
                                      : incident->onset_us;
    }
    if (kind == FACT_SESSION && ((const SessionFact *)fact)->ended_us > 0) {
        return ((const SessionFact *)fact)->ended_us;
    }
    static const size_t at[] = {
        offsetof(RunFact, t_us), offsetof(SessionFact, t_us), offsetof(EngineFact, t_us),
        offsetof(IncarnationFact, t_us), offsetof(EngineStateFact, t_us),
        offsetof(ProbeFact, t_us), offsetof(PhaseFact, t_us), offsetof(StepFact, t_us),
        offsetof(GroupFact, t_us), offsetof(SampleStartFact, t_us),
        offsetof(SampleProgressFact, t_us), offsetof(SampleEndFact, t_us),
        offsetof(SampleRewardFact, t_us), offsetof(PolicyFact, t_us),
        offsetof(PolicyStateFact, t_us), offsetof(TxnFact, t_us), offsetof(TxnAnswerFact, t_us),
        offsetof(TxnDecisionFact, t_us), offsetof(TxnEndFact, t_us), offsetof(CommandFact, t_us),
        offsetof(IncidentFact, onset_us), offsetof(AlertRuleFact, t_us), offsetof(EventFact, t_us),
        offsetof(MetricFact, t_us), offsetof(ChildLineFact, t_us)};
    _Static_assert(sizeof at / sizeof at[0] == FACT_KINDS, "one time a kind");
    int64_t t_us = 0;
    memcpy(&t_us, (const unsigned char *)fact + at[kind], sizeof t_us);
    return t_us;
}
