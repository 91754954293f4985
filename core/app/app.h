/* Subcommands of the one binary: a table with names, one-line helps and entry points. */
#ifndef ROLLTOP_APP_APP_H
#define ROLLTOP_APP_APP_H

#include "core/base/err.h"
#include "core/base/flags.h"

enum { /* exit statuses */
    APP_OK = 0,
    APP_NOT_REACHED = 1, /* the run ended short of its aim */
    APP_USAGE = 2,       /* flags, files, set-up: nothing was started */
    APP_FAILED = 3       /* it started and failed */
};

typedef enum OperandKind { /* what stands behind a subcommand besides flags */
    OPERANDS_NONE,
    OPERANDS_LOG,       /* a log file */
    OPERANDS_LOG_TOPIC, /* a log file and a topic of query */
    OPERANDS_VERB,      /* one of `verbs` and what it is about */
    OPERANDS_VERB_FILE, /* one of `verbs` and files */
    OPERANDS_SHELL      /* the name of a shell */
} OperandKind;

typedef struct Subcommand {
    const char *name, *help;
    int (*run)(int argc, char **argv);
    void (*flags)(FlagVisit *visit, void *to);
    OperandKind operands;
    const char *const *(*verbs)(size_t *count); /* NULL: it has none */
    const char *also; /* the subcommand whose flags it takes, too; NULL: none */
} Subcommand;

/* All of them, as `rolltop --help` lists them. */
const Subcommand *app_subcommands(size_t *count);

/* argv[0] is the program; no argument means `attach` to the only run. */
int app_main(int argc, char **argv);

/* Entry points; argv[0] is the subcommand's name. */
int cmd_demo(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_attach(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_ctl(int argc, char **argv);
int cmd_query(int argc, char **argv);
int cmd_log(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_policy(int argc, char **argv);
int cmd_policies(int argc, char **argv);
int cmd_theme(int argc, char **argv);
int cmd_config(int argc, char **argv);

/* A policy's version as a person types it: v12, as all tables show it, or 12. False: it is none. */
bool app_version(const char *word, int64_t *version);

/* Their flags, for completion and manual. */
void cmd_demo_flags(FlagVisit *visit, void *to);
void cmd_attach_flags(FlagVisit *visit, void *to);
void cmd_replay_flags(FlagVisit *visit, void *to);
void cmd_ls_flags(FlagVisit *visit, void *to);
void cmd_watch_flags(FlagVisit *visit, void *to);
void cmd_verify_flags(FlagVisit *visit, void *to);
void cmd_ctl_flags(FlagVisit *visit, void *to);
void cmd_query_flags(FlagVisit *visit, void *to);
void cmd_log_flags(FlagVisit *visit, void *to);
void cmd_snapshot_flags(FlagVisit *visit, void *to);
void cmd_top_flags(FlagVisit *visit, void *to);
void cmd_events_flags(FlagVisit *visit, void *to);
void cmd_sim_flags(FlagVisit *visit, void *to);
void cmd_policy_flags(FlagVisit *visit, void *to);
void cmd_theme_flags(FlagVisit *visit, void *to); /* of config too */
/* Their verbs, for completion; static. */
const char *const *cmd_ctl_verbs(size_t *count);
const char *const *cmd_log_verbs(size_t *count);
const char *const *cmd_policy_verbs(size_t *count);
const char *const *cmd_theme_verbs(size_t *count);
const char *const *cmd_config_verbs(size_t *count);

/* Prints the fault as the one shape of errors and gives the status for it. */
int app_fail(const Fault *fault, int status);

/* How every subcommand begins. True: go on, and flags_free at the end. False: --help was answered,
 * or what is wrong was said; *status is the exit status. */
bool app_parse(const FlagCommand *command, const FlagSpec *specs, size_t count, int argc,
               char **argv, FlagRest *rest, int *status);
/* At the end of the program: what stdio still holds goes out. APP_OK and APP_USAGE become
 * APP_FAILED when anything of the output could not be written; said on stderr, if the subcommand
 * has not, unless its reader has gone. */
int app_output_end(int status);
/* This binary's path, malloc'ed. */
char *app_program(void);
/* A file or folder that comes with the program, malloc'ed; NULL: it is not there. Installed:
 * PREFIX/share/rolltop/NAME beside PREFIX/bin; in a build tree: SOURCE/`source`, two folders above
 * build/NAME/rolltop. */
char *app_data_path(const char *name, const char *source);

#endif
