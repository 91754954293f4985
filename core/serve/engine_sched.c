#include "core/serve/engine_sched.h"

#include "core/base/hash.h"
#include "core/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ADMISSION_SCAN = 512 }; /* waiting sequences looked at in one plan */

typedef struct SeqList {
    SchedSeq *first, *last;
    int count;
} SeqList;

struct Sched {
    SchedConfig config;
    Blocks *blocks;
    SeqList running, waiting;
    SchedPlan plan;
    int plan_capacity, retracted_capacity;
    uint64_t seed; /* changes when names are forgotten: old chains match nothing */
    bool held;     /* only urgent sequences are planned */
};

static void list_insert(SeqList *list, SchedSeq *seq, SchedSeq *before)
{
    seq->next = before;
    seq->previous = before ? before->previous : list->last;
    if (seq->previous) {
        seq->previous->next = seq;
    } else {
        list->first = seq;
    }
    if (before) {
        before->previous = seq;
    } else {
        list->last = seq;
    }
    list->count++;
}

static void list_remove(SeqList *list, SchedSeq *seq)
{
    if (seq->previous) {
        seq->previous->next = seq->next;
    } else {
        list->first = seq->next;
    }
    if (seq->next) {
        seq->next->previous = seq->previous;
    } else {
        list->last = seq->previous;
    }
    seq->previous = seq->next = NULL;
    list->count--;
}

Sched *sched_new(const SchedConfig *config)
{
    assert(config->block_tokens > 0 && config->max_running > 0 && config->max_step_tokens > 0);
    Sched *sched = xcalloc(1, sizeof *sched);
    sched->config = *config;
    sched->blocks = blocks_new(config->blocks);
    return sched;
}

void sched_free(Sched *sched)
{
    if (sched) {
        blocks_free(sched->blocks);
        free(sched->plan.pieces);
        free(sched->plan.retracted);
        free(sched);
    }
}

void sched_add(Sched *sched, SchedSeq *seq)
{
    assert(seq->state == SEQ_OUT && seq->count > 0);
    seq->state = SEQ_WAITING;
    list_insert(&sched->waiting, seq, NULL);
}

static void seq_drop_blocks(Sched *sched, SchedSeq *seq)
{
    /* Last block first: the kept list then evicts the ends of prefixes before their beginnings. */
    for (int i = seq->block_count; i-- > 0;) {
        blocks_release(sched->blocks, seq->blocks[i]);
    }
    seq->block_count = 0;
    seq->computed = 0;
    seq->named_blocks = 0;
}

void sched_remove(Sched *sched, SchedSeq *seq)
{
    switch (seq->state) {
    case SEQ_OUT:
        return;
    case SEQ_WAITING:
        list_remove(&sched->waiting, seq);
        break;
    case SEQ_RUNNING:
        list_remove(&sched->running, seq);
        break;
    }
    seq->state = SEQ_OUT;
    seq_drop_blocks(sched, seq);
    free(seq->blocks);
    seq->blocks = NULL;
    seq->block_capacity = 0;
}

static void seq_retract(Sched *sched, SchedSeq *seq)
{
    list_remove(&sched->running, seq);
    seq_drop_blocks(sched, seq);
    seq->unnamed = false;
    seq->retractions++;
    seq->state = SEQ_WAITING;
    list_insert(&sched->waiting, seq, sched->waiting.first);
}

void sched_retract_all(Sched *sched)
{
    for (SchedSeq *seq = sched->running.last; seq;) {
        SchedSeq *previous = seq->previous;
        if (!seq->stuck) {
            seq_retract(sched, seq);
        }
        seq = previous;
    }
}

static int blocks_for(const Sched *sched, int tokens)
{
    return (tokens + sched->config.block_tokens - 1) / sched->config.block_tokens;
}

static uint64_t name_after(const Sched *sched, const SchedSeq *seq, uint64_t chain, int block)
{
    int size = sched->config.block_tokens;
    return hash64(seq->tokens + (size_t)block * (size_t)size, (size_t)size * sizeof(int32_t),
                  block == 0 ? sched->seed : chain);
}

static void seq_push_block(SchedSeq *seq, int32_t id)
{
    if (seq->block_count == seq->block_capacity) {
        seq->block_capacity = seq->block_capacity ? seq->block_capacity * 2 : 8;
        seq->blocks = xrealloc(seq->blocks, (size_t)seq->block_capacity, sizeof *seq->blocks);
    }
    seq->blocks[seq->block_count++] = id;
}

/* Blocks for positions up to `tokens`; all or nothing. */
static bool seq_grow(Sched *sched, SchedSeq *seq, int tokens)
{
    int need = blocks_for(sched, tokens) - seq->block_count;
    if (need > blocks_available(sched->blocks)) {
        return false;
    }
    for (int i = 0; i < need; i++) {
        int32_t id = -1;
        bool taken = blocks_take(sched->blocks, &id);
        assert(taken);
        (void)taken;
        seq_push_block(seq, id);
    }
    return true;
}

/* Room for one more decode token; the youngest give way. False: `seq` itself had to go, or cannot
 * fit even alone. */
static bool make_room(Sched *sched, SchedSeq *seq)
{
    while (!seq_grow(sched, seq, seq->computed + 1)) {
        SchedSeq *victim = sched->running.last;
        while (victim && victim->stuck) {
            victim = victim->previous;
        }
        if (victim == seq && (!victim->previous || sched->running.count == 1)) {
            sched->plan.impossible = seq;
            return false;
        }
        if (sched->plan.retracted_count == sched->retracted_capacity) {
            sched->retracted_capacity = sched->retracted_capacity * 2 + 8;
            sched->plan.retracted = xrealloc(sched->plan.retracted,
                                             (size_t)sched->retracted_capacity,
                                             sizeof *sched->plan.retracted);
        }
        sched->plan.retracted[sched->plan.retracted_count++] = victim;
        seq_retract(sched, victim);
        if (victim == seq) {
            return false;
        }
    }
    return true;
}

static void plan_add(Sched *sched, SchedSeq *seq, int count)
{
    SchedPlan *plan = &sched->plan;
    if (plan->count == sched->plan_capacity) {
        sched->plan_capacity = sched->plan_capacity * 2 + 16;
        plan->pieces = xrealloc(plan->pieces, (size_t)sched->plan_capacity, sizeof *plan->pieces);
    }
    plan->pieces[plan->count++] = (SchedPiece){seq, seq->computed, count,
                                               seq->computed + count == seq->count};
    plan->tokens += count;
}

static bool plannable(const Sched *sched, const SchedSeq *seq)
{
    return !seq->stuck && (!sched->held || seq->urgent);
}

static void plan_running(Sched *sched)
{
    int budget = sched->config.max_step_tokens;
    SchedSeq *next = NULL;
    for (SchedSeq *seq = sched->running.first; seq; seq = next) {
        bool decode = seq->count - seq->computed == 1;
        if (plannable(sched, seq) && decode && sched->plan.tokens < budget &&
            make_room(sched, seq)) {
            plan_add(sched, seq, 1);
        }
        next = seq->state == SEQ_RUNNING ? seq->next : NULL;
    }
    for (SchedSeq *seq = sched->running.first; seq && sched->plan.tokens < budget;
         seq = seq->next) {
        int left = seq->count - seq->computed;
        if (plannable(sched, seq) && left > 1) {
            plan_add(sched, seq, left < budget - sched->plan.tokens ? left
                                                                    : budget - sched->plan.tokens);
        }
    }
}

/* Shared blocks that `seq` can begin with; `wait`: the next one is being computed right now. */
static int match_prefix(const Sched *sched, const SchedSeq *seq, int32_t *ids, int most,
                        uint64_t *chain, bool *wait)
{
    int limit = seq->match_limit < seq->count - 1 ? seq->match_limit : seq->count - 1;
    int count = 0;
    *wait = false;
    *chain = 0;
    while (sched->config.share_prefixes && count < most &&
           (count + 1) * sched->config.block_tokens <= limit) {
        uint64_t name = name_after(sched, seq, *chain, count);
        bool ready = false;
        if (!blocks_find(sched->blocks, name, &ids[count], &ready)) {
            break;
        }
        if (!ready) {
            *wait = true;
            break;
        }
        *chain = name;
        count++;
    }
    return count;
}

static bool admit(Sched *sched, SchedSeq *seq, bool *wait)
{
    enum { MATCH_MAX = 4096 };
    int32_t ids[MATCH_MAX];
    uint64_t chain = 0;
    int matched = match_prefix(sched, seq, ids, MATCH_MAX, &chain, wait);
    if (*wait) {
        return false;
    }
    for (int i = 0; i < matched; i++) {
        blocks_ref(sched->blocks, ids[i]);
        seq_push_block(seq, ids[i]);
    }
    /* One block a running sequence is left for decoding, or the next step would retract. */
    int need = blocks_for(sched, seq->count) - matched;
    int reserve = sched->running.count;
    if (need + reserve > blocks_available(sched->blocks) || !seq_grow(sched, seq, seq->count)) {
        if (sched->running.count == 0) {
            sched->plan.impossible = seq; /* nobody will ever give way */
        }
        seq_drop_blocks(sched, seq);
        return false;
    }
    seq->computed = matched * sched->config.block_tokens;
    seq->named_blocks = matched;
    seq->chain = chain;
    if (!seq->admitted_before) {
        seq->admitted_before = true;
        seq->cached = seq->computed < seq->prompt ? seq->computed : seq->prompt;
    }
    /* Names of what will be computed, so that its siblings wait for it instead of doing it too. */
    uint64_t name = chain;
    int full = seq->count / sched->config.block_tokens;
    for (int i = matched; sched->config.share_prefixes && !seq->stuck && i < full; i++) {
        name = name_after(sched, seq, name, i);
        blocks_name(sched->blocks, seq->blocks[i], name, false);
    }
    list_remove(&sched->waiting, seq);
    seq->state = SEQ_RUNNING;
    list_insert(&sched->running, seq, NULL);
    return true;
}

static void plan_admissions(Sched *sched)
{
    int budget = sched->config.max_step_tokens;
    SchedSeq *next = NULL;
    int seen = 0;
    for (SchedSeq *seq = sched->waiting.first; seq && seen < ADMISSION_SCAN; seq = next, seen++) {
        next = seq->next;
        bool full = sched->running.count >= sched->config.max_running && !sched->held;
        if (full || sched->plan.tokens >= budget) { /* held ones take no part in a step */
            return;
        }
        if (sched->held && !seq->urgent) {
            seen--; /* any number of held ones may stand before it */
            continue;
        }
        bool wait = false;
        if (admit(sched, seq, &wait)) {
            if (seq->stuck) {
                continue;
            }
            int left = seq->count - seq->computed;
            plan_add(sched, seq, left < budget - sched->plan.tokens ? left
                                                                    : budget - sched->plan.tokens);
        } else if (!wait) {
            return; /* first come, first served: nobody overtakes for lack of blocks */
        }
    }
}

const SchedPlan *sched_plan(Sched *sched)
{
    SchedPlan *plan = &sched->plan;
    plan->count = plan->tokens = plan->retracted_count = 0;
    plan->impossible = NULL;
    plan_running(sched);
    if (plan->retracted_count == 0) {
        plan_admissions(sched);
    }
    return plan;
}

void sched_commit(Sched *sched)
{
    int size = sched->config.block_tokens;
    for (int i = 0; i < sched->plan.count; i++) {
        SchedPiece *piece = &sched->plan.pieces[i];
        SchedSeq *seq = piece->seq;
        if (seq->state != SEQ_RUNNING) {
            continue; /* retracted behind its own piece, or ended */
        }
        seq->computed = piece->start + piece->count;
        while (sched->config.share_prefixes && !seq->unnamed &&
               (seq->named_blocks + 1) * size <= seq->computed) {
            int block = seq->named_blocks++;
            seq->chain = name_after(sched, seq, seq->chain, block);
            blocks_name(sched->blocks, seq->blocks[block], seq->chain, true);
            blocks_ready(sched->blocks, seq->blocks[block]);
        }
    }
}

void sched_hold(Sched *sched, bool held)
{
    sched->held = held;
}

bool sched_idle(const Sched *sched)
{
    return sched->running.count == 0 && sched->waiting.count == 0;
}

void sched_forget(Sched *sched)
{
    blocks_forget(sched->blocks);
    sched->seed += 0x9e3779b97f4a7c15u;
    for (SchedSeq *seq = sched->running.first; seq; seq = seq->next) {
        seq->unnamed = true; /* its chain began under the old seed; simplest is to stop naming */
    }
}

void sched_cap_tokens(Sched *sched, int tokens)
{
    blocks_cap(sched->blocks, tokens < 0 ? -1 : tokens / sched->config.block_tokens);
}

int sched_running(const Sched *sched)
{
    return sched->running.count;
}

int sched_waiting(const Sched *sched)
{
    return sched->waiting.count;
}

SchedSeq *sched_first_running(const Sched *sched)
{
    return sched->running.first;
}

SchedSeq *sched_first_waiting(const Sched *sched)
{
    return sched->waiting.first;
}

int sched_used_tokens(const Sched *sched)
{
    return blocks_held(sched->blocks) * sched->config.block_tokens;
}

int sched_evictable_tokens(const Sched *sched)
{
    return blocks_kept(sched->blocks) * sched->config.block_tokens;
}

int sched_total_tokens(const Sched *sched)
{
    return blocks_count(sched->blocks) * sched->config.block_tokens;
}
