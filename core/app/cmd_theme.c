/* `rolltop theme list|roles|check`, `rolltop config check|keys|alerts`: what the console and a run
 * read, looked at without either. */
#include "core/app/alert_rules.h"
#include "core/app/app.h"
#include "core/app/console.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "tui/config.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_SPECS = 1, NAMES_MAX = 256 };

static void help_specs(bool *help, FlagSpec specs[HELP_SPECS])
{
    specs[0] = (FlagSpec){"help", FLAG_SWITCH, help, 0, 0, NULL, "this list", NULL};
}

void cmd_theme_flags(FlagVisit *visit, void *to)
{
    bool help = false;
    FlagSpec specs[HELP_SPECS];
    help_specs(&help, specs);
    visit(specs, HELP_SPECS, to);
}

const char *const *cmd_theme_verbs(size_t *count)
{
    static const char *const verbs[] = {"check", "list", "roles"};
    *count = sizeof verbs / sizeof *verbs;
    return verbs;
}

const char *const *cmd_config_verbs(size_t *count)
{
    static const char *const verbs[] = {"check", "keys", "alerts"};
    *count = sizeof verbs / sizeof *verbs;
    return verbs;
}

static int print_lines(const ThemeProblems *problems, const char *before, FILE *out)
{
    for (size_t i = 0; i < problems->count; i++) {
        fprintf(out, "%s%s\n", before, problems->lines[i]);
    }
    if (problems->total > problems->count) {
        fprintf(out, "%sand %zu more\n", before, problems->total - problems->count);
    }
    return problems->total > 0 ? APP_NOT_REACHED : APP_OK;
}

/* A file by its path, or a shipped theme by its name. */
static int check_theme(const char *what, Fault *fault)
{
    Theme theme;
    ThemeProblems mistakes = {.count = 0};
    ThemeProblems warnings = {.count = 0};
    char name[64];
    const char *slash = strrchr(what, '/');
    bool file = slash || fs_exists(what);
    char *folder = !file ? console_theme_dir()
                   : slash ? xstrndup(what, (size_t)(slash - what) + (slash == what))
                           : xstrdup(".");
    (void)str_format(name, sizeof name, "%s", slash ? slash + 1 : what);
    char *dot = strstr(name, ".theme");
    bool named = !file || (dot && dot[6] == '\0');
    if (!named) {
        free(folder);
        (void)fault_set(fault, ERR_ARG, "name it NAME.theme", "%s is no theme file", what);
        return app_fail(fault, APP_USAGE);
    }
    if (dot) {
        *dot = '\0';
    }
    theme_load(&theme, folder, name, &mistakes);
    theme_check(&theme, name, &warnings);
    free(folder);
    int status = print_lines(&mistakes, "", stdout);
    (void)print_lines(&warnings, "warning: ", stdout);
    if (status == APP_OK) {
        printf("%s: ok, %zu warning%s\n", name, warnings.total, warnings.total == 1 ? "" : "s");
    }
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_themes(void)
{
    char *names[NAMES_MAX];
    int count = 0;
    char *folder = console_theme_dir();
    DIR *dir = folder ? opendir(folder) : NULL;
    for (struct dirent *entry; dir && count < NAMES_MAX && (entry = readdir(dir)) != NULL;) {
        const char *dot = strstr(entry->d_name, ".theme");
        if (dot && dot[6] == '\0') {
            names[count++] = xstrndup(entry->d_name, (size_t)(dot - entry->d_name));
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
    qsort(names, (size_t)count, sizeof names[0], compare_names);
    for (int i = 0; i < count; i++) {
        puts(names[i]);
        free(names[i]);
    }
    free(folder);
    return APP_OK;
}

static int theme_verb(const FlagRest *rest, Fault *fault)
{
    const char *verb = rest->count > 0 ? rest->items[0] : "";
    if (strcmp(verb, "check") == 0 && rest->count == 2) {
        return check_theme(rest->items[1], fault);
    }
    if (strcmp(verb, "list") == 0 && rest->count == 1) {
        return list_themes();
    }
    if (strcmp(verb, "roles") == 0 && rest->count == 1) {
        for (int role = 0; role < ROLE_COUNT; role++) {
            puts(theme_role_name((Role)role));
        }
        return APP_OK;
    }
    (void)fault_set(fault, ERR_ARG, "e.g. rolltop theme list",
                    "theme wants check FILE, list or roles");
    return app_fail(fault, APP_USAGE);
}

/* The key table as a [keys] section: a start for one's own. */
static void print_keys(const TuiConfig *config)
{
    puts("[keys]");
    for (int action = 0; action < ACT_COUNT; action++) {
        printf("%s =", keymap_info((Action)action)->name);
        const int *keys = config->keymap.keys[action];
        for (int i = 0; i < KEYS_PER_ACTION && keys[i]; i++) {
            char name[KEY_NAME_MAX];
            keymap_key_name(keys[i], name, sizeof name);
            printf(" %s", name);
        }
        puts(config->keymap.keys[action][0] ? "" : " none");
    }
}

/* The console's configuration: every mistake, or the table of keys. */
static int check_console(const char *path, bool keys)
{
    TuiConfig *config = xcalloc(1, sizeof *config);
    ThemeProblems problems = {.count = 0};
    bool there = fs_exists(path);
    config_load(config, path, &problems);
    int status = print_lines(&problems, "", keys ? stderr : stdout);
    if (keys) {
        print_keys(config);
    } else if (status == APP_OK) {
        printf("%s: %s\n", path, there ? "ok" : "not there; the defaults are used");
    }
    free(config);
    return status;
}

/* The rules of alerts: every mistake, or the rules as such a file. */
static int check_alerts(const char *path, bool print, Fault *fault)
{
    Text problems;
    Text text;
    DiagRules rules = rules_default();
    bool there = fs_exists(path);
    text_init(&problems, 1 << 16);
    text_init(&text, 1 << 16);
    int count = there ? alert_rules_check(path, &rules, &problems, fault) : 0;
    int status = count < 0 ? app_fail(fault, APP_USAGE) : count > 0 ? APP_NOT_REACHED
                                                                  : APP_OK;
    (void)fputs(text_c(&problems), print ? stderr : stdout);
    if (print && count >= 0) {
        rules_print(&rules, &text);
        (void)fputs(text_c(&text), stdout);
    } else if (status == APP_OK) {
        printf("%s: %s\n", path, there ? "ok" : "not there; the usual alert rules hold");
    }
    text_free(&problems);
    text_free(&text);
    return status;
}

/* By a file's first section: one of [alert …] is about alerts. */
static bool about_alerts(const char *path)
{
    Text text;
    size_t at = 0;
    Fault fault = {0};
    text_init(&text, 1 << 16);
    bool alerts = fs_read(path, &text, &fault) == ERR_OK &&
                  str_find(text_str(&text), STR("[alert "), &at);
    text_free(&text);
    return alerts;
}

static int config_verb(const FlagRest *rest, Fault *fault)
{
    const char *verb = rest->count > 0 ? rest->items[0] : "";
    const char *file = rest->count == 2 ? rest->items[1] : NULL;
    bool check = strcmp(verb, "check") == 0;
    bool alerts = strcmp(verb, "alerts") == 0;
    if ((!check && !alerts && strcmp(verb, "keys") != 0) || rest->count > 2) {
        (void)fault_set(fault, ERR_ARG, "e.g. rolltop config check",
                        "config wants check [FILE], keys [FILE] or alerts [FILE]");
        return app_fail(fault, APP_USAGE);
    }
    if (file && !fs_exists(file)) {
        (void)fault_set(fault, ERR_NOT_FOUND,
                        "rolltop config keys and config alerts print one to start from",
                        "there is no configuration %s", file);
        return app_fail(fault, APP_USAGE);
    }
    char *console = file ? xstrdup(file) : console_config_path();
    char *rules = alert_rules_path(file);
    bool both = check && !file;
    int status = APP_OK;
    if (!alerts && (both || !check || !about_alerts(console))) {
        status = check_console(console, !check);
    }
    if (alerts || both || (check && about_alerts(rules))) {
        int other = check_alerts(rules, alerts, fault);
        status = status == APP_OK ? other : status;
    }
    free(console);
    free(rules);
    return status;
}

static int run_verb(int argc, char **argv, const char *usage,
                    int (*verb)(const FlagRest *rest, Fault *fault))
{
    const FlagCommand command = {usage, 0, -1, NULL, NULL};
    bool help = false;
    FlagSpec specs[HELP_SPECS];
    FlagRest rest;
    int status;
    help_specs(&help, specs);
    if (!app_parse(&command, specs, HELP_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    status = verb(&rest, &fault);
    flags_free(specs, HELP_SPECS, &rest);
    return status;
}

int cmd_theme(int argc, char **argv)
{
    return run_verb(argc, argv, "usage: rolltop theme check FILE|NAME | list | roles\n",
                    theme_verb);
}

int cmd_config(int argc, char **argv)
{
    return run_verb(argc, argv,
                    "usage: rolltop config check [FILE] | keys [FILE] | alerts [FILE]\n",
                    config_verb);
}
