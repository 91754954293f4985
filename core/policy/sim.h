/* The policy transaction against a simulated world: engines, network, disk and clock are made
 * from one 64-bit seed, and the core in it is the real state machine with the real rule of
 * recovery. Same seed, same bytes. What happened is judged by a checker (sim_check.c) that shares
 * no code with the machine: it reads the log's entries and looks at the simulated engines.
 *
 * One seed is one episode: a fleet without a policy, `updates` fleet-wide transactions with
 * faults, then quiet until every engine serves again. 64 engines take 0.3 ms a transaction. */
#ifndef ROLLTOP_POLICY_SIM_H
#define ROLLTOP_POLICY_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SIM_ENGINES_MAX = 1024 };

typedef enum SimLoss { SIM_LOSE_UNSYNCED, SIM_KEEP_UNSYNCED, SIM_LOSE_BY_CHANCE } SimLoss;

typedef struct SimConfig {
    uint64_t seed;
    int engines;          /* 1 … SIM_ENGINES_MAX; 0: 1 to 8, by the seed */
    int updates;          /* fleet-wide transactions; 0: 4 */
    bool calm;            /* no faults but those asked for below */
    int die_after_write;  /* the core dies right after this many writes to the log; 0: by chance */
    SimLoss loss;         /* what the disk does then with what was not synced */
    FILE *trace;          /* every message and entry as a line; NULL: none */
} SimConfig;

typedef struct SimReport {
    bool passed;
    char broken[192];     /* the first rule that broke, in words */
    int64_t transactions; /* fleet-wide ones that began */
    int64_t faulted;      /* … during which at least one fault was injected */
    int64_t committed, fences, quarantines;
    int64_t faults, deaths, writes;
    int64_t samples, refused;
    int64_t resumed, crossed; /* gone on from tokens; taken with tokens of two policies */
    int64_t virtual_us;
} SimReport;

void sim_run(const SimConfig *config, SimReport *report);

#endif
