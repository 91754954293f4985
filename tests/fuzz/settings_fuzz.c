/* Files that people write: rules of alerts, the console's configuration, themes. Whatever stands
 * in them, a mistake is a line with its number, and what is taken is within its bounds: rules that
 * were read without a mistake are the same after they are printed and read again. */
#include "tests/fuzz/fuzz.h"

#include "core/diagnose/rules.h"
#include "tui/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const fuzz_seeds[] = {
    "# calm\n[alert TAIL]\nhold = 1500ms\ntimes = 2\nworse-times = 3\nseverity = crit\n",
    "[alert ENGINE-DEAD]\nrestarts = 4\nclear = 5s\noff = no\n[alert VER-SPLIT]\noff = yes\n",
    "[alert PHASE-STALL]\nhold = 10m\nworse = 2h\n", "[alert X]\nhold = 1e99h\n",
    "[console]\ntheme = ember\ngraph = braille\nbell = critical\n[keys]\ndown = j ctrl-n\n",
    "[view worst]\npane = tail\nsort = age inverted\nfilter = age>60\n[match prod-*]\n"
    "theme = ember\n[command drain]\nkey = F8\nrun = true\nconfirm = name\npane = engines\n",
    "[theme]\nbase = none\n[palette]\nleaf = #87d787\n[roles]\nok = leaf bold\nwarn = 3 on 0\n"
    "[roles.8]\nok = green\n", NULL};

/* Mistakes are printed on terminals. */
static void check_harmless(const char *lines)
{
    for (const char *at = lines; *at; at++) {
        if (((unsigned char)*at < 0x20 && *at != '\n') || *at == 0x7f) {
            abort();
        }
    }
}

static void check_rules(Str text)
{
    DiagRules rules = rules_default();
    DiagRules again = rules_default();
    Text problems;
    Text one;
    Text two;
    text_init(&problems, 1 << 20);
    text_init(&one, 1 << 16);
    text_init(&two, 1 << 16);
    int count = rules_parse(&rules, text, "f", &problems);
    if ((count > 0) != (problems.n > 0)) {
        abort();
    }
    check_harmless(text_c(&problems));
    for (int c = 0; c < DIAG_CLASS_COUNT; c++) {
        const DiagRule *rule = &rules.of[c];
        char words[RULE_WORDS];
        rules_words(&rules, (DiagClass)c, words);
        for (int i = 0; i < RULE_SETTING_COUNT; i++) {
            double v = rule->value[i];
            if (!isnan(v) && !(v >= 0 && v <= 30 * 86400.0)) {
                abort();
            }
        }
        if (rule->severity < SEVERITY_INFO || rule->severity > SEVERITY_CRIT || !words[0]) {
            abort();
        }
    }
    rules_print(&rules, &one);
    text_clear(&problems);
    if (count == 0 && rules_parse(&again, text_str(&one), "p", &problems) != 0) {
        abort();
    }
    rules_print(&again, &two);
    if (count == 0 && strcmp(text_c(&one), text_c(&two)) != 0) {
        abort();
    }
    text_free(&problems);
    text_free(&one);
    text_free(&two);
}

static void check_problems(const ThemeProblems *problems)
{
    if (problems->count > problems->total || problems->count > THEME_PROBLEMS_MAX) {
        abort();
    }
    for (size_t i = 0; i < problems->count; i++) {
        if (strncmp(problems->lines[i], "f:", 2) != 0 ||
            memchr(problems->lines[i], '\0', sizeof problems->lines[i]) == NULL) {
            abort();
        }
        check_harmless(problems->lines[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static TuiConfig config;
    static ThemeProblems problems;
    Theme theme;
    char base[64];
    Str text = {(const char *)data, size};
    check_rules(text);
    memset(&problems, 0, sizeof problems);
    config_defaults(&config);
    config_parse(&config, text, "f", &problems);
    check_problems(&problems);
    if (config.view_count > CONFIG_VIEWS_MAX || config.command_count > CONFIG_COMMANDS_MAX ||
        config.match_count > CONFIG_MATCHES_MAX || config.graph >= GRAPH_STYLE_COUNT) {
        abort();
    }
    for (int i = 0; i < config.command_count; i++) {
        const ShellCommand *command = &config.commands[i];
        if (command->ask >= SHELL_ASK_COUNT || command->pane > PANE_COUNT) {
            abort();
        }
    }
    memset(&problems, 0, sizeof problems);
    theme_builtin(&theme, false);
    theme_parse(&theme, text, "f", base, &problems);
    check_problems(&problems);
    return 0;
}
