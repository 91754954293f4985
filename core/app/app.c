#include "core/app/app.h"

#include "core/app/build_info.h"
#include "core/app/completion.h"
#include "core/app/run_flags.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/serve/engine.h"
#include "core/serve/frontend.h"
#include "core/train/trainer.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const Subcommand subcommands[] = {
    {"demo", "the whole system on this machine: engines, frontend, a small model that learns",
     cmd_demo, cmd_demo_flags, OPERANDS_NONE, NULL, "run"},
    {"run", "the rollout, training and update loop on your model and prompts", cmd_run,
     cmd_run_flags, OPERANDS_NONE, NULL, NULL},
    {"attach", "the console on a running core (also: rolltop alone)", cmd_attach,
     cmd_attach_flags, OPERANDS_NONE, NULL, NULL},
    {"watch", "probes and records a fleet of others; changes nothing", cmd_watch,
     cmd_watch_flags, OPERANDS_NONE, NULL, NULL},
    {"verify", "health, rollout, update, rollout, a lost worker, recovery: on any fleet",
     cmd_verify, cmd_verify_flags, OPERANDS_NONE, NULL, NULL},
    {"replay", "the console on a log file", cmd_replay, cmd_replay_flags, OPERANDS_LOG, NULL, NULL},
    {"ls", "the runs of this user on this machine", cmd_ls, cmd_ls_flags, OPERANDS_NONE, NULL,
     NULL},
    {"ctl", "pause, resume, update, restart, stop, status: what the console's keys do", cmd_ctl,
     cmd_ctl_flags, OPERANDS_VERB, cmd_ctl_verbs, NULL},
    {"query", "the log as a table or as JSON, or through SQL", cmd_query, cmd_query_flags,
     OPERANDS_LOG_TOPIC, NULL, NULL},
    {"snapshot", "the screen's picture of now, or of a log, as text or JSON", cmd_snapshot,
     cmd_snapshot_flags, OPERANDS_LOG, NULL, NULL},
    {"top", "such pictures one after another: top --batch -n 10 -d 2", cmd_top, cmd_top_flags,
     OPERANDS_LOG, NULL, NULL},
    {"events", "the newest events, and with --follow those to come", cmd_events, cmd_events_flags,
     OPERANDS_LOG, NULL, NULL},
    {"log", "care of a log: info, check, snapshot, trim, compact, salvage", cmd_log, cmd_log_flags,
     OPERANDS_VERB_FILE, cmd_log_verbs, NULL},
    {"policies", "every policy of a log, its digest and state", cmd_policies, cmd_policy_flags,
     OPERANDS_LOG, NULL, NULL},
    {"policy", "one policy: show, diff, verify", cmd_policy, cmd_policy_flags, OPERANDS_VERB_FILE,
     cmd_policy_verbs, NULL},
    {"sim", "the policy transaction on a simulated fleet with faults, by seed", cmd_sim,
     cmd_sim_flags, OPERANDS_NONE, NULL, NULL},
    {"theme", "colours of the console: check FILE, list, roles", cmd_theme, cmd_theme_flags,
     OPERANDS_VERB_FILE, cmd_theme_verbs, NULL},
    {"config", "the console's keys and views, alert rules: check [FILE], keys, alerts",
     cmd_config, cmd_theme_flags, OPERANDS_VERB_FILE, cmd_config_verbs, NULL},
    {"engine", "a local inference engine with SGLang's routes", engine_main, engine_flags,
     OPERANDS_NONE, NULL, NULL},
    {"frontend", "a local Dynamo-style frontend over engines", frontend_main, frontend_flags,
     OPERANDS_NONE, NULL, NULL},
    {"train", "the built-in trainer (started by run)", trainer_child_main, trainer_child_flags,
     OPERANDS_NONE, NULL, NULL},
    {"completion", "completion script for bash, zsh or fish", cmd_completion,
     cmd_completion_flags, OPERANDS_SHELL, NULL, NULL},
};
enum { SUBCOMMANDS = sizeof subcommands / sizeof subcommands[0] };

const Subcommand *app_subcommands(size_t *count)
{
    *count = SUBCOMMANDS;
    return subcommands;
}

int app_fail(const Fault *fault, int status)
{
    fault_print(fault);
    return status;
}

bool app_parse(const FlagCommand *command, const FlagSpec *specs, size_t count, int argc,
               char **argv, FlagRest *rest, int *status)
{
    Fault fault = {0};
    switch (flags_command(command, specs, count, argc, argv, rest, &fault)) {
    case FLAGS_GO: return true;
    case FLAGS_HELP: *status = APP_OK; return false;
    case FLAGS_WRONG: *status = app_fail(&fault, APP_USAGE); return false;
    }
    return false;
}

bool app_version(const char *word, int64_t *version)
{
    return str_to_i64(str_from(word[0] == 'v' ? word + 1 : word), version) && *version > 0;
}

/* The errno of an earlier write is gone by now; a pipe without a reader still says so. */
static bool reader_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

int app_output_end(int status)
{
    Fault fault = {0};
    errno = 0;
    bool failed = fflush(stdout) != 0;
    int why = failed ? errno : 0;
    if (!failed && !ferror(stdout)) {
        return status;
    }
    if (why == 0 && reader_gone()) {
        why = EPIPE;
    } else if (why == 0) {
        (void)fault_set(&fault, ERR_IO, NULL, "cannot write the output");
    } else if (why != EPIPE) {
        (void)fault_set_sys(&fault, ERR_IO, why, NULL, "cannot write the output");
    }
    if ((status == APP_OK || status == APP_NOT_REACHED) && why != EPIPE) {
        fault_print(&fault);
    }
    return status == APP_OK || status == APP_USAGE ? APP_FAILED : status;
}

char *app_program(void)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    return n > 0 ? xstrndup(path, (size_t)n) : xstrdup("rolltop");
}

char *app_data_path(const char *name, const char *source)
{
    char *program = app_program();
    char *slash = strrchr(program, '/');
    char *found = NULL;
    if (slash) {
        *slash = '\0';
    }
    for (int i = 0; slash && i < 3 && !found; i++) {
        char *path = i == 0   ? xasprintf("%s/../share/rolltop/%s", program, name)
                     : i == 1 ? xasprintf("%s/../../%s", program, source)
                              : xasprintf("%s/%s", program, name);
        if (fs_exists(path)) {
            found = path;
        } else {
            free(path);
        }
    }
    free(program);
    return found;
}

static void help(FILE *out)
{
    fputs("rolltop: operations console and control plane for RL rollout fleets\n\n"
          "usage: rolltop [SUBCOMMAND] [FLAGS]\n\n",
          out);
    for (size_t i = 0; i < SUBCOMMANDS; i++) {
        fprintf(out, "  %-10s %s\n", subcommands[i].name, subcommands[i].help);
    }
    fputs("\nrolltop alone attaches to the only run. rolltop SUBCOMMAND --help lists its flags.\n"
          "rolltop --version --verbose says what this build was made with.\n",
          out);
}

static int unknown(const char *word)
{
    enum { FAR = 4 };
    const char *nearest = NULL;
    int best = FAR;
    for (size_t i = 0; i < SUBCOMMANDS; i++) {
        int distance = str_distance(str_from(subcommands[i].name), str_from(word), FAR);
        if (distance < best) {
            best = distance;
            nearest = subcommands[i].name;
        }
    }
    Fault fault = {0};
    char hint[64] = "rolltop --help lists the subcommands";
    if (nearest) {
        (void)str_format(hint, sizeof hint, "did you mean %s?", nearest);
    }
    (void)fault_set(&fault, ERR_ARG, hint, "unknown subcommand %s", word);
    return app_fail(&fault, APP_USAGE);
}

int app_main(int argc, char **argv)
{
    if (argc < 2) {
        char *alone[] = {"attach", NULL};
        return cmd_attach(1, alone);
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        help(stdout);
        return APP_OK;
    }
    if (strcmp(word, "--version") == 0) {
        printf("rolltop %s\n", ROLLTOP_VERSION);
        if (argc > 2 && strcmp(argv[2], "--verbose") == 0) {
            build_info_print(stdout);
        }
        return APP_OK;
    }
    if (word[0] == '-') {
        return cmd_attach(argc, argv);
    }
    for (size_t i = 0; i < SUBCOMMANDS; i++) {
        if (strcmp(subcommands[i].name, word) == 0) {
            return subcommands[i].run(argc - 1, argv + 1);
        }
    }
    return unknown(word);
}
