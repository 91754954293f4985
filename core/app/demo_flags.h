/* Flags of `rolltop demo`: a few of its own, and every flag of `rolltop run` that its task, its
 * model and its local fleet do not settle. What was given of these is passed on to the run. */
#ifndef ROLLTOP_APP_DEMO_FLAGS_H
#define ROLLTOP_APP_DEMO_FLAGS_H

#include "core/app/run_flags.h"

typedef struct DemoFlags {
    int64_t seed, engines, steps;
    const char *log, *run_id;
    bool headless, keep, incident, help;

    RunFlags run;    /* owns the targets of the run's flags */
    FlagSpec *specs; /* the demo's own, then the run's */
    bool *given;     /* of each of them */
    size_t own_count, count;
    FlagRest rest;
} DemoFlags;

/* Parses argv[1..]; on failure the flags are still to be freed. */
Err demo_flags_parse(DemoFlags *flags, int argc, char **argv, Fault *fault);
void demo_flags_free(DemoFlags *flags);
void demo_flags_help(FILE *out);
/* Was that flag of the run given? */
bool demo_flags_given(const DemoFlags *flags, const char *name);
/* Calls add(word, to) for each word of the run's command line that was given. */
void demo_flags_words(const DemoFlags *flags, void (*add)(const char *word, void *to), void *to);

#endif
