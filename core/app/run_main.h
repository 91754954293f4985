/* What `run` and `demo` share: from a command line of `run` to its exit status. */
#ifndef ROLLTOP_APP_RUN_MAIN_H
#define ROLLTOP_APP_RUN_MAIN_H

/* `kind` is the default name of the run. */
int run_main(int argc, char **argv, const char *kind);

#endif
