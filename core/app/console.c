#include "core/app/console.h"

#include "core/app/app.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "tui/plain.h"

#include <langinfo.h>
#include <locale.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *console_theme_dir(void)
{
    const char *env = getenv("ROLLTOP_THEMES");
    return env && env[0] ? xstrdup(env) : app_data_path("themes", "themes");
}

char *console_config_path(void)
{
    const char *own = getenv("ROLLTOP_CONFIG");
    const char *base = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    if (own && own[0]) {
        return xstrdup(own);
    }
    if (base && base[0]) {
        return xasprintf("%s/rolltop/console.ini", base);
    }
    return xasprintf("%s/.config/rolltop/console.ini", home ? home : "");
}

void console_specs(ConsoleFlags *f, FlagSpec specs[CONSOLE_SPECS])
{
    const FlagSpec table[CONSOLE_SPECS] = {
        {"theme", FLAG_STRING, &f->theme, 0, 0, "NAME",
         "dusk, paper, mono, contrast, deut, ember", NULL},
        {"mono", FLAG_SWITCH, &f->mono, 0, 0, NULL, "no colour, as NO_COLOR", NULL},
        {"view", FLAG_STRING, &f->view, 0, 0, "NAME", "start with a view of the configuration",
         NULL},
        {"config", FLAG_STRING, &f->config, 0, 0, "FILE", "configuration of keys and views", NULL},
        {"ascii", FLAG_SWITCH, &f->ascii, 0, 0, NULL, "no characters beyond ASCII", NULL},
        {"no-mouse", FLAG_SWITCH, &f->no_mouse, 0, 0, NULL, "leave the mouse to the terminal",
         NULL},
        {"plain", FLAG_SWITCH, &f->plain, 0, 0, NULL,
         "lines instead of a screen, for screen readers and pipes", NULL}};
    memcpy(specs, table, sizeof table);
}

Err console_open(TuiOptions *options, const ConsoleFlags *flags, bool *stop, Fault *fault)
{
    char *config = flags->config ? xstrdup(flags->config) : NULL;
    Err err = ERR_OK;
    options->theme = flags->theme;
    options->view = flags->view;
    options->ascii = flags->ascii;
    options->no_mouse = flags->no_mouse;
    if (flags->mono) {
        (void)setenv("NO_COLOR", "1", 1);
    }
    console_defaults(options);
    if (config) {
        free((void *)(uintptr_t)options->config_path);
        options->config_path = config;
    }
    if (config && !fs_exists(config)) {
        err = fault_set(fault, ERR_NOT_FOUND, "leave --config out, or name a file that is there",
                        "there is no configuration %s", config);
    } else if (flags->plain || !console_possible()) {
        if (!flags->plain && isatty(STDOUT_FILENO)) {
            fputs("rolltop: this terminal cannot place a cursor; lines instead of a screen\n",
                  stderr);
        }
        err = plain_run(options, STDIN_FILENO, stdout, stop, fault);
    } else {
        err = tui_run(options, stop, fault);
    }
    console_free(options);
    return err;
}

void console_defaults(TuiOptions *options)
{
    (void)setlocale(LC_CTYPE, "");
    struct passwd *entry = getpwuid(geteuid());
    options->user = xstrdup(entry ? entry->pw_name : "operator");
    options->theme_dir = console_theme_dir();
    options->config_path = console_config_path();
    const char *theme = getenv("ROLLTOP_THEME");
    options->theme = options->theme ? options->theme : theme && theme[0] ? theme : NULL;
    options->ascii = options->ascii || strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
}

bool console_possible(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

void console_free(TuiOptions *options)
{
    free((void *)(uintptr_t)options->user);
    free((void *)(uintptr_t)options->theme_dir);
    free((void *)(uintptr_t)options->config_path);
}
