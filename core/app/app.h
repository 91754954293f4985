/* Subcommands of the one binary: a table with names, one-line helps and entry points. */
#ifndef ROLLTOP_APP_APP_H
#define ROLLTOP_APP_APP_H

#include "core/base/err.h"

enum { /* exit statuses */
    APP_OK = 0,
    APP_NOT_REACHED = 1, /* the run ended short of its aim */
    APP_USAGE = 2,       /* flags, files, set-up: nothing was started */
    APP_FAILED = 3       /* it started and failed */
};

/* argv[0] is the program; no argument means `attach` to the only run. */
int app_main(int argc, char **argv);

/* Entry points; argv[0] is the subcommand's name. */
int cmd_demo(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_attach(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_ctl(int argc, char **argv);
int cmd_query(int argc, char **argv);

/* Prints the fault as the one shape of errors and gives the status for it. */
int app_fail(const Fault *fault, int status);
/* This binary's path, malloc'ed. */
char *app_program(void);

#endif
