/* `rolltop sim`: the policy transaction over simulated schedules of faults, by seed. */
#include "core/app/app.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/policy/sim.h"

#include <stdio.h>
#include <string.h>

typedef struct SimOptions {
    int64_t seed, count, engines, updates;
    bool trace, help;
} SimOptions;

static void add(SimReport *sum, const SimReport *one)
{
    sum->transactions += one->transactions;
    sum->faulted += one->faulted;
    sum->committed += one->committed;
    sum->fences += one->fences;
    sum->faults += one->faults;
    sum->deaths += one->deaths;
    sum->virtual_us += one->virtual_us;
}

static int simulate(const SimOptions *options)
{
    SimReport sum = {0};
    int64_t failed = 0;
    int64_t began_us = clock_mono_us();
    for (int64_t i = 0; i < options->count; i++) {
        SimReport report;
        SimConfig config = {.seed = (uint64_t)(options->seed + i),
                            .engines = (int)options->engines, .updates = (int)options->updates,
                            .trace = options->trace ? stdout : NULL};
        sim_run(&config, &report);
        add(&sum, &report);
        if (!report.passed) {
            failed++;
            printf("seed %lld: %s\n", (long long)(options->seed + i), report.broken);
        }
    }
    double seconds = (double)(clock_mono_us() - began_us) / 1e6;
    double simulated = (double)sum.virtual_us / 1e6;
    fprintf(stderr,
            "%lld transactions (%lld with faults, %lld committed), %lld fences, %lld faults, "
            "%lld deaths of the core; %.0f s simulated in %.2f s, %.0f x real time\n",
            (long long)sum.transactions, (long long)sum.faulted, (long long)sum.committed,
            (long long)sum.fences, (long long)sum.faults, (long long)sum.deaths, simulated,
            seconds, seconds > 0.0 ? simulated / seconds : 0.0);
    printf("%lld passed, %lld failed\n", (long long)(options->count - failed), (long long)failed);
    return failed == 0 ? APP_OK : APP_NOT_REACHED;
}

typedef int SimUse(const FlagSpec *specs, size_t count, SimOptions *options, void *to);

static int with_flags(SimUse *use, void *to)
{
    SimOptions options = {.seed = 1, .count = 1};
    const FlagSpec specs[] = {
        {"seed", FLAG_INT, &options.seed, 0, 1e15, "S", "the first seed (1)", NULL},
        {"count", FLAG_INT, &options.count, 1, 1e12, "N",
         "episodes, one a seed from S on (1)", NULL},
        {"engines", FLAG_INT, &options.engines, 0, SIM_ENGINES_MAX, "E",
         "engines of the fleet (0: 1 to 8, by the seed)", NULL},
        {"updates", FLAG_INT, &options.updates, 0, 32, "N",
         "updates of an episode (0: 4)", NULL},
        {"trace", FLAG_SWITCH, &options.trace, 0, 0, NULL, "every message and write", NULL},
        {"help", FLAG_SWITCH, &options.help, 0, 0, NULL, "this list", NULL}};
    return use(specs, sizeof specs / sizeof *specs, &options, to);
}

typedef struct Show {
    FlagVisit *visit;
    void *to;
} Show;

static int show(const FlagSpec *specs, size_t count, SimOptions *options, void *to)
{
    Show *call = to;
    (void)options;
    call->visit(specs, count, call->to);
    return APP_OK;
}

void cmd_sim_flags(FlagVisit *visit, void *to)
{
    Show call = {visit, to};
    (void)with_flags(show, &call);
}

typedef struct Arguments {
    int argc;
    char **argv;
} Arguments;

static int run_sim(const FlagSpec *specs, size_t count, SimOptions *options, void *to)
{
    const Arguments *arguments = to;
    static const FlagCommand command = {
        "usage: rolltop sim --seed S [--count N] [--engines E] [--trace]\n\n"
        "Policy transactions on a simulated fleet with faults; status 1 and the seed where\n"
        "a rule broke. The same seed gives the same bytes.\n",
        0, 0, NULL, "sim takes flags only"};
    FlagRest rest;
    int status;
    if (app_parse(&command, specs, count, arguments->argc, arguments->argv, &rest, &status)) {
        status = simulate(options);
        flags_free(specs, count, &rest);
    }
    return status;
}

int cmd_sim(int argc, char **argv)
{
    Arguments arguments = {argc, argv};
    return with_flags(run_sim, &arguments);
}
