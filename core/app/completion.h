/* `rolltop completion bash|zsh|fish|man`: completion scripts and the manual's chapter of flags,
 * written from the tables of subcommands and flags; nothing is kept by hand. */
#ifndef ROLLTOP_APP_COMPLETION_H
#define ROLLTOP_APP_COMPLETION_H

#include "core/base/flags.h"

int cmd_completion(int argc, char **argv);
void cmd_completion_flags(FlagVisit *visit, void *to);

#endif
