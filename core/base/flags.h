/* Command-line flags from one table per subcommand: parsing, help, nearest-name errors and
 * completion all come from it. Both "--name value" and "--name=value"; switches take no value.
 * A name of one letter is written behind one dash: "-n 3", "-n=3".
 * "--no-NAME" clears a switch. "--" ends flags. A flag may be given once unless LIST. */
#ifndef ROLLTOP_BASE_FLAGS_H
#define ROLLTOP_BASE_FLAGS_H

#include "core/base/str.h"

#include <stdio.h>

typedef enum FlagType { FLAG_SWITCH, FLAG_INT, FLAG_DOUBLE, FLAG_STRING, FLAG_LIST } FlagType;

enum { FLAG_LIST_MAX = 1024 };

typedef struct FlagList { /* one or more values, as argparse's nargs="+"; borrowed from argv */
    const char **items;   /* malloc'ed by flags_parse, freed by flags_free */
    size_t count;
} FlagList;

typedef struct FlagSpec {
    const char *name; /* without the dashes; one letter: written behind one dash */
    FlagType type;
    void *target;     /* bool*, int64_t*, double*, const char**, FlagList*; defaults preset there */
    double min, max;  /* for INT and DOUBLE; min == max means unbounded */
    const char *value_name; /* in help; NULL for switches */
    const char *help;
    bool *given; /* optional: set when the flag was seen */
} FlagSpec;

/* Shows one subcommand's table to `visit`; the specs and their targets live during the call. */
typedef void FlagVisit(const FlagSpec *specs, size_t count, void *to);

typedef struct FlagRest { /* operands, in order; borrowed from argv */
    const char **items;   /* malloc'ed */
    int count;
} FlagRest;

/* Parses argv[1..]; unknown flags give ERR_ARG naming the flag and the nearest known one. */
Err flags_parse(const FlagSpec *specs, size_t count, int argc, char **argv, FlagRest *rest,
                Fault *fault);
void flags_free(const FlagSpec *specs, size_t count, FlagRest *rest);
/* What one subcommand takes besides its flags. */
typedef struct FlagCommand {
    const char *usage; /* whole lines: --help prints them above the list of flags */
    int least, most;   /* operands; most < 0: as many as one likes */
    const char *wants; /* said of another number of them; NULL: flags only, "unexpected word X" */
    const char *hint;
} FlagCommand;

typedef enum FlagsEnd { FLAGS_GO, FLAGS_HELP, FLAGS_WRONG } FlagsEnd;

/* flags_parse, the number of operands, and --help, which prints on stdout. After HELP, and WRONG
 * with its fault, nothing is held; after GO flags_free is the caller's. */
FlagsEnd flags_command(const FlagCommand *command, const FlagSpec *specs, size_t count, int argc,
                       char **argv, FlagRest *rest, Fault *fault);
/* "--", or "-" before a name of one letter. */
const char *flags_dashes(const FlagSpec *spec);
void flags_help(const FlagSpec *specs, size_t count, FILE *out);

#endif
