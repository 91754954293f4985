/* `rolltop theme list|roles|check`, `rolltop config check|keys`: what the console reads, looked at
 * without a console. */
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

static int config_verb(const FlagRest *rest, Fault *fault)
{
    const char *verb = rest->count > 0 ? rest->items[0] : "";
    bool check = strcmp(verb, "check") == 0;
    if ((!check && strcmp(verb, "keys") != 0) || rest->count > 2) {
        (void)fault_set(fault, ERR_ARG, "e.g. rolltop config check",
                        "config wants check [FILE] or keys [FILE]");
        return app_fail(fault, APP_USAGE);
    }
    TuiConfig *config = xcalloc(1, sizeof *config);
    ThemeProblems problems = {.count = 0};
    char *path = rest->count == 2 ? xstrdup(rest->items[1]) : console_config_path();
    bool there = fs_exists(path);
    int status = APP_OK;
    if (!there && rest->count == 2) {
        (void)fault_set(fault, ERR_NOT_FOUND, "rolltop config keys prints one to start from",
                        "there is no configuration %s", path);
        status = app_fail(fault, APP_USAGE);
    } else {
        config_load(config, path, &problems);
        status = print_lines(&problems, "", check ? stdout : stderr);
        if (!check) {
            print_keys(config);
        } else if (status == APP_OK) {
            printf("%s: %s\n", path, there ? "ok" : "not there; the defaults are used");
        }
    }
    free(path);
    free(config);
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
    return run_verb(argc, argv, "usage: rolltop config check [FILE] | keys [FILE]\n", config_verb);
}
