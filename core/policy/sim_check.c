/* The judge of the simulator. It knows nothing of the machine: it reads what was written and sent,
 * in order, and looks at the simulated engines. The rules, numbered as in
 * docs/policy-transaction.md:
 * 1 at the end of a fleet's transaction, and of the episode, whoever serves holds the policy that
 *   the durable decisions say, in weights, version and cache;
 * 2 no engine is let go on before the decision is durable; one decision a transaction, for good;
 * 3 an admitted sample's token comes from the policy stamped on it, which is the batch's, or,
 *   where the setting lets samples outlive an update, the one that the batch's replaced;
 * 4 nobody who serves is left paused; transactions end within their budget; in the end all serve;
 * 5 a broken artifact reaches no engine, and a delta only a process that has loaded its base from
 *   the very copy that the delta is for;
 * 6 all of it holds over deaths of the core: what was durable stands after the restart. */
#include "core/base/mem.h"
#include "core/policy/sim_world.h"

#include <stdarg.h>
#include <stdlib.h>

enum { TXNS_KEPT = 4096 };
/* Check 120 s, prepare 300, gate 30, pause 30, flush 30, twice (apply 300, verify 60) each way,
 * continue 30, open 5, two slow disks of 20, and the clock's grain. */
static const int64_t TXN_BUDGET_US = INT64_C(2100000000);

typedef struct TxnSeen {
    int64_t txn, began_us, to, life;
    bool open, fleet, decided, durable, commit, unseen;
} TxnSeen;

struct SimCheck {
    TxnSeen txns[TXNS_KEPT];
    int count;
    int64_t committed; /* by durable decisions */
    int64_t replaced[SIM_VERSIONS_MAX]; /* what stood before that version was committed last */
    int64_t life;
    int64_t admitted[SIM_ENGINES_MAX]; /* incarnation; 0 none */
    struct { int64_t incarnation, version; } copy[SIM_ENGINES_MAX]; /* proved by a load; 0 none */
    char broken[192];
};

SimCheck *sim_check_new(void)
{
    SimCheck *check = xcalloc(1, sizeof *check);
    check->committed = -1;
    return check;
}

void sim_check_free(SimCheck *check)
{
    free(check);
}

const char *sim_check_broken(const SimCheck *check)
{
    return check->broken[0] ? check->broken : NULL;
}

__attribute__((format(printf, 3, 4)))
static void breach(SimCheck *check, const SimWorld *world, const char *format, ...)
{
    if (check->broken[0]) {
        return; /* the first one counts */
    }
    char words[140];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    snprintf(check->broken, sizeof check->broken, "at %.6f s: %s", (double)world->now_us / 1e6,
             words);
    if (world->config.trace) {
        fprintf(world->config.trace, "BROKEN %s\n", check->broken);
    }
}

/* The newest of that number in this life of the core: a number that was lost is used again. */
static TxnSeen *seen(SimCheck *check, int64_t txn)
{
    for (int i = check->count - 1; i >= 0; i--) {
        if (check->txns[i].txn == txn) {
            return &check->txns[i];
        }
    }
    return NULL;
}

static void check_engine(SimCheck *check, const SimWorld *world, int index, const char *when)
{
    const SimEngine *engine = &world->engines[index];
    if (!engine->alive || check->admitted[index] != engine->incarnation) {
        return; /* its process is another one: it is fenced as soon as that is seen */
    }
    if (check->committed < 0) {
        breach(check, world, "rule 1: engine %d serves %s, nothing is committed", index, when);
        return;
    }
    int64_t right = world->truth[check->committed];
    if (engine->weights != right || engine->version != check->committed) {
        breach(check, world,
               "rule 1: %s engine %d holds weights %lld as version %lld, not %lld as %lld", when,
               index, (long long)engine->weights, (long long)engine->version, (long long)right,
               (long long)check->committed);
    } else if (engine->cache >= 0 && engine->cache != right) {
        breach(check, world, "rule 1: %s engine %d has the cache of other weights", when, index);
    } else if (engine->paused) {
        breach(check, world, "rule 4: %s engine %d serves and is paused", when, index);
    }
}

static void check_fleet(SimCheck *check, const SimWorld *world, const char *when)
{
    for (int i = 0; i < world->count; i++) {
        check_engine(check, world, i, when);
    }
}

static void on_sent(SimCheck *check, const SimWorld *world, const SimEntry *entry)
{
    const TxnSeen *txn = seen(check, entry->txn);
    if (entry->call == SIM_CONTINUE && txn && !txn->durable) {
        breach(check, world, "rule 2: engine %d is let go on before transaction %lld is decided",
               entry->engine, (long long)entry->txn);
    }
    if (entry->call == SIM_PAUSE && txn && txn->unseen) {
        breach(check, world, "rule 5: engine %d is paused for a policy that one does not see",
               entry->engine);
    }
    if (entry->call == SIM_APPLY && world->bad[entry->to]) {
        breach(check, world, "rule 5: broken artifact %lld is sent to engine %d",
               (long long)entry->to, entry->engine);
    }
    if (entry->call == SIM_PULL) {
        int e = entry->engine;
        bool proved = check->copy[e].incarnation == entry->incarnation &&
                      check->copy[e].version == entry->base;
        if (entry->base >= 0 && !proved) {
            breach(check, world, "rule 5: a delta on %lld is sent to engine %d, whose copy is not "
                   "proved to hold that", (long long)entry->base, e);
        } else if (world->bad[entry->to]) {
            breach(check, world, "rule 5: engine %d is to pull the broken artifact %lld", e,
                   (long long)entry->to);
        }
        check->copy[e].incarnation = 0;
    }
}

static void on_decision(SimCheck *check, const SimWorld *world, const SimEntry *entry)
{
    TxnSeen *txn = seen(check, entry->txn);
    if (!txn || txn->life != check->life) {
        breach(check, world, "rule 2: a decision on transaction %lld, which did not begin",
               (long long)entry->txn);
    } else if (txn->decided) {
        breach(check, world, "rule 2: transaction %lld is decided twice", (long long)entry->txn);
    } else {
        txn->decided = true;
        txn->commit = entry->commit;
    }
}

static void on_end(SimCheck *check, const SimWorld *world, const SimEntry *entry)
{
    TxnSeen *txn = seen(check, entry->txn);
    if (!txn) {
        breach(check, world, "rule 2: transaction %lld ends and never began",
               (long long)entry->txn);
        return;
    }
    txn->open = false;
    if (txn->durable && txn->commit != entry->commit) {
        breach(check, world, "rule 2: transaction %lld was decided otherwise than it ended",
               (long long)entry->txn);
    }
    if (entry->commit && !txn->durable) {
        breach(check, world, "rule 2: transaction %lld is committed without a durable decision",
               (long long)entry->txn);
    }
    if (entry->t_us - txn->began_us > TXN_BUDGET_US && txn->life == check->life) {
        breach(check, world, "rule 4: transaction %lld took %.0f s", (long long)entry->txn,
               (double)(entry->t_us - txn->began_us) / 1e6);
    }
    if (entry->fleet) {
        check_fleet(check, world, "after a transaction");
    }
}

static void on_sample(SimCheck *check, const SimWorld *world, const SimEntry *entry)
{
    if (!entry->commit) {
        return; /* refused: generated again */
    }
    bool older = world->inflight != SIM_INFLIGHT_ABORT && entry->from >= 0 && entry->to >= 0 &&
                 entry->to == check->replaced[entry->from];
    if (entry->from != entry->to && !older) {
        breach(check, world, "rule 3: a sample of version %lld in a batch of %lld",
               (long long)entry->to, (long long)entry->from);
    } else if (entry->to < 0 || entry->weights != world->truth[entry->to]) {
        breach(check, world, "rule 3: engine %d made a token with weights %lld, stamped %lld",
               entry->engine, (long long)entry->weights, (long long)entry->to);
    }
}

static void on_start(SimCheck *check, const SimWorld *world, const SimEntry *entry)
{
    if (entry->to != check->committed) {
        breach(check, world, "rule 6: the core came back on version %lld, %lld was decided",
               (long long)entry->to, (long long)check->committed);
    }
}

void sim_check_entry(SimCheck *check, const SimWorld *world, const SimEntry *entry)
{
    switch (entry->kind) {
    case ENTRY_START: on_start(check, world, entry); break;
    case ENTRY_DEATH:
        check->life++;
        for (int i = 0; i < SIM_ENGINES_MAX; i++) {
            check->admitted[i] = 0;
        }
        break;
    case ENTRY_TXN:
        if (check->count < TXNS_KEPT) {
            check->txns[check->count++] =
                (TxnSeen){.txn = entry->txn, .began_us = entry->t_us, .to = entry->to,
                          .life = check->life, .open = true, .fleet = entry->fleet};
        }
        break;
    case ENTRY_DECISION: on_decision(check, world, entry); break;
    case ENTRY_END: on_end(check, world, entry); break;
    case ENTRY_ADMIT:
        check->admitted[entry->engine] = entry->incarnation;
        check_engine(check, world, entry->engine, "when admitted");
        break;
    case ENTRY_FENCE: check->admitted[entry->engine] = 0; break;
    case ENTRY_SAMPLE: on_sample(check, world, entry); break;
    case ENTRY_SENT: on_sent(check, world, entry); break;
    case ENTRY_LOADED:
        if (entry->own_copy && entry->weights == world->truth[entry->to]) {
            check->copy[entry->engine].incarnation = entry->incarnation;
            check->copy[entry->engine].version = entry->to;
        }
        break;
    case ENTRY_UNSEEN: {
        TxnSeen *txn = seen(check, entry->txn);
        if (txn) {
            txn->unseen = true;
        }
        break;
    }
    case ENTRY_POLICY:
    case ENTRY_STATE:
    case ENTRY_COUNT: break;
    }
}

void sim_check_durable(SimCheck *check, const SimWorld *world, const SimEntry *entry)
{
    if (entry->kind != ENTRY_DECISION) {
        return;
    }
    TxnSeen *txn = seen(check, entry->txn);
    if (txn && txn->durable) {
        breach(check, world, "rule 2: two durable decisions on transaction %lld",
               (long long)entry->txn);
    } else if (txn) {
        txn->durable = true;
        bool moves = entry->commit && entry->fleet && entry->to != check->committed;
        check->replaced[entry->to] = moves ? check->committed : check->replaced[entry->to];
        check->committed = moves ? entry->to : check->committed;
    }
}

void sim_check_end(SimCheck *check, const SimWorld *world, bool settled)
{
    check_fleet(check, world, "at the end");
    if (!settled) {
        breach(check, world, "rule 4: not every engine serves long after the last fault");
    }
    for (int i = 0; i < check->count; i++) {
        if (check->txns[i].open && check->txns[i].durable) {
            breach(check, world, "rule 4: transaction %lld was decided and never ended",
                   (long long)check->txns[i].txn);
        }
    }
}
