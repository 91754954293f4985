#include "tui/config.h"

#include "core/base/fs.h"
#include "core/base/ini.h"
#include "core/base/utf8.h"
#include "tui/model.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_FILE_MAX = 64 * 1024 };

typedef enum Section {
    SECTION_NONE,
    SECTION_CONSOLE,
    SECTION_KEYS,
    SECTION_VIEW,
    SECTION_MATCH,
    SECTION_COMMAND
} Section;

typedef struct Parser {
    TuiConfig *config;
    ThemeProblems *problems;
    const char *path;
    int line;
    Section section;
    bool lost; /* in a section that has its problem already: its lines are not judged */
} Parser;

static const char *const group_words[GROUP_BY_COUNT] = {"none", "state", "policy", "host"};
static const char *const graph_words[GRAPH_STYLE_COUNT] = {"block", "braille", "ascii"};
static const char *const pane_words[PANE_COUNT] = {"engines",  "tail",     "timeline", "events",
                                                   "policies", "learning", "commands"};

const char *group_by_name(GroupBy by)
{
    return group_words[by];
}

static int word_index(Str word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++) {
        if (str_equal_nocase(word, str_from(words[i]))) {
            return i;
        }
    }
    return -1;
}

GraphStyle graph_by_name(Str name)
{
    int at = word_index(name, graph_words, GRAPH_STYLE_COUNT);
    return at < 0 ? GRAPH_STYLE_COUNT : (GraphStyle)at;
}

static void problem(Parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void problem(Parser *p, const char *format, ...)
{
    ThemeProblems *problems = p->problems;
    problems->total++;
    if (problems->count >= THEME_PROBLEMS_MAX) {
        return;
    }
    char text[200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    utf8_defuse(text);
    char *out = problems->lines[problems->count++];
    if (p->line == 0) { /* about the file itself, which the sentence names */
        (void)str_format(out, sizeof problems->lines[0], "%s", text);
        return;
    }
    (void)str_format(out, sizeof problems->lines[0], "%s:%d: %s", p->path, p->line, text);
}

static void take_switch(Parser *p, Str key, Str value, bool *out)
{
    static const char *const words[] = {"off", "on", "no", "yes"};
    int at = word_index(value, words, 4);
    if (at < 0) {
        problem(p, "%.*s is on or off, not '%.*s'", (int)key.n, key.p, (int)value.n, value.p);
    } else {
        *out = at % 2 == 1;
    }
}

static void copy(Parser *p, Str key, Str value, char *out, size_t size)
{
    if (value.n >= size) {
        problem(p, "%.*s takes at most %d bytes", (int)key.n, key.p, (int)size - 1);
    } else {
        (void)str_format(out, size, "%.*s", (int)value.n, value.p);
    }
}

static void take_console(Parser *p, Str key, Str value)
{
    TuiConfig *c = p->config;
    if (str_equal(key, STR("theme"))) {
        copy(p, key, value, c->theme, sizeof c->theme);
    } else if (str_equal(key, STR("view"))) {
        copy(p, key, value, c->start_view, sizeof c->start_view);
    } else if (str_equal(key, STR("mouse"))) {
        take_switch(p, key, value, &c->mouse);
    } else if (str_equal(key, STR("notify"))) {
        take_switch(p, key, value, &c->notify);
    } else if (str_equal(key, STR("graph"))) {
        GraphStyle style = graph_by_name(value);
        if (style == GRAPH_STYLE_COUNT) {
            problem(p, "graph is block, braille or ascii, not '%.*s'", (int)value.n, value.p);
        } else {
            c->graph = style;
        }
    } else if (str_equal(key, STR("bell")) && str_equal(value, STR("critical"))) {
        c->bell = true;
    } else if (str_equal(key, STR("bell")) && str_equal(value, STR("off"))) {
        c->bell = false;
    } else if (str_equal(key, STR("bell"))) {
        problem(p, "bell is off or critical, not '%.*s'", (int)value.n, value.p);
    } else {
        problem(p, "'%.*s' is no key of [console]; there are theme, view, graph, mouse, bell, "
                "notify",
                (int)key.n, key.p);
    }
}

static void take_key(Parser *p, Str key, Str value)
{
    char why[160];
    Action action = keymap_by_name(key.p, key.n);
    if (action == ACT_NONE) {
        problem(p, "'%.*s' is no action; the help (?) lists them by name", (int)key.n, key.p);
    } else if (!keymap_bind(&p->config->keymap, action, value.p, value.n, why, sizeof why)) {
        problem(p, "%s", why);
    }
}

static void take_pane(Parser *p, Str value, Pane *out)
{
    int at = word_index(value, pane_words, PANE_COUNT);
    if (at < 0) {
        problem(p, "'%.*s' is no pane; there are engines, tail, timeline, events, policies, "
                "learning, commands", (int)value.n, value.p);
    } else {
        *out = (Pane)at;
    }
}

static void take_sort(Parser *p, NamedView *view, Str value)
{
    Str rest = value;
    Str word = value;
    (void)str_split(&rest, ' ', &word);
    int sort = sort_by_name(view->pane, word);
    if (sort < 0) {
        problem(p, "'%.*s' is no column of %s (name the pane first)", (int)word.n, word.p,
                pane_words[view->pane]);
        return;
    }
    view->sort = sort;
    view->inverted = str_equal(str_trim(rest), STR("inverted"));
}

static void take_view(Parser *p, Str key, Str value)
{
    NamedView *view = &p->config->views[p->config->view_count - 1];
    if (str_equal(key, STR("pane"))) {
        take_pane(p, value, &view->pane);
    } else if (str_equal(key, STR("zoom"))) {
        take_switch(p, key, value, &view->zoom);
    } else if (str_equal(key, STR("filter"))) {
        copy(p, key, value, view->filter, sizeof view->filter);
    } else if (str_equal(key, STR("sort"))) {
        take_sort(p, view, value);
    } else if (str_equal(key, STR("group"))) {
        int at = word_index(value, group_words, GROUP_BY_COUNT);
        if (at < 0) {
            problem(p, "group is none, state, policy or host, not '%.*s'", (int)value.n, value.p);
        } else {
            view->group = (GroupBy)at;
        }
    } else {
        problem(p, "'%.*s' is no key of a view; there are pane, zoom, filter, sort, group",
                (int)key.n, key.p);
    }
}

static void take_command(Parser *p, Str key, Str value)
{
    ShellCommand *command = &p->config->commands[p->config->command_count - 1];
    if (str_equal(key, STR("run"))) {
        copy(p, key, value, command->run, sizeof command->run);
    } else if (str_equal(key, STR("confirm"))) {
        static const char *const words[SHELL_ASK_COUNT] = {"yes", "name", "no"};
        int at = word_index(value, words, SHELL_ASK_COUNT);
        if (at < 0) {
            problem(p, "confirm is yes (y runs it), name (its name is typed) or no, not '%.*s'",
                    (int)value.n, value.p);
        } else {
            command->ask = (ShellAsk)at;
        }
    } else if (str_equal(key, STR("pane"))) {
        take_pane(p, value, &command->pane);
    } else if (str_equal(key, STR("key"))) {
        command->key = keymap_key(value.p, value.n);
        if (command->key == TK_NONE) {
            problem(p, "'%.*s' is no key; write a character, F5 or ctrl-n", (int)value.n, value.p);
        } else if (keymap_find(&p->config->keymap, command->key, false, false) != ACT_NONE) {
            problem(p, "key %.*s is taken by '%s'; bind that elsewhere in [keys] before this",
                    (int)value.n, value.p,
                    keymap_info(keymap_find(&p->config->keymap, command->key, false, false))
                        ->name);
            command->key = TK_NONE;
        }
    } else {
        problem(p, "'%.*s' is no key of a command; there are run, key, confirm, pane", (int)key.n,
                key.p);
    }
}

/* "[view NAME]": a new entry with that name, or a problem and nothing. */
static void open_named(Parser *p, Section section, Str name)
{
    TuiConfig *c = p->config;
    int *count = section == SECTION_VIEW    ? &c->view_count
                 : section == SECTION_MATCH ? &c->match_count
                                            : &c->command_count;
    int most = section == SECTION_VIEW    ? CONFIG_VIEWS_MAX
               : section == SECTION_MATCH ? CONFIG_MATCHES_MAX
                                          : CONFIG_COMMANDS_MAX;
    size_t longest = section == SECTION_MATCH ? 63 : 23;
    if (*count == most || name.n == 0 || name.n > longest) {
        problem(p, "this section wants a name of up to %d bytes, and there is room for %d",
                (int)longest, most);
        return;
    }
    char *out = section == SECTION_VIEW    ? c->views[*count].name
                : section == SECTION_MATCH ? c->matches[*count].pattern
                                           : c->commands[*count].name;
    if (section == SECTION_COMMAND) {
        c->commands[*count] = (ShellCommand){.pane = PANE_COUNT};
    }
    (void)str_format(out, longest + 1, "%.*s", (int)name.n, name.p);
    (*count)++;
    p->section = section;
}

static void take_section(Parser *p, Str text)
{
    Str rest = text;
    Str word = text;
    (void)str_split(&rest, ' ', &word);
    rest = str_trim(rest);
    p->section = SECTION_NONE;
    p->lost = true;
    if (str_equal(text, STR("console"))) {
        p->section = SECTION_CONSOLE;
    } else if (str_equal(text, STR("keys"))) {
        p->section = SECTION_KEYS;
    } else if (str_equal(word, STR("view"))) {
        open_named(p, SECTION_VIEW, rest);
    } else if (str_equal(word, STR("match"))) {
        open_named(p, SECTION_MATCH, rest);
    } else if (str_equal(word, STR("command"))) {
        open_named(p, SECTION_COMMAND, rest);
    } else {
        problem(p, "section [%.*s] is unknown; there are console, keys, view NAME, match PATTERN, "
                "command NAME", (int)text.n, text.p);
    }
}

static void take_pair(Parser *p, Str key, Str value)
{
    switch (p->section) {
    case SECTION_NONE:
        if (!p->lost) {
            problem(p, "'%.*s' stands in no section; write [console] above it", (int)key.n, key.p);
        }
        break;
    case SECTION_CONSOLE: take_console(p, key, value); break;
    case SECTION_KEYS: take_key(p, key, value); break;
    case SECTION_VIEW: take_view(p, key, value); break;
    case SECTION_COMMAND: take_command(p, key, value); break;
    case SECTION_MATCH:
        if (str_equal(key, STR("theme"))) {
            ThemeMatch *match = &p->config->matches[p->config->match_count - 1];
            copy(p, key, value, match->theme, sizeof match->theme);
        } else {
            problem(p, "'%.*s' is no key of a match; there is theme", (int)key.n, key.p);
        }
        break;
    }
}

static void take_line(Parser *p, Str text)
{
    IniLine line;
    switch (ini_read(text, &line)) {
    case INI_NOTHING: break;
    case INI_SECTION: take_section(p, line.key); break;
    case INI_PAIR: take_pair(p, line.key, line.value); break;
    case INI_ZERO: problem(p, "a byte 0 stands in this line; write it anew"); break;
    case INI_OTHER: problem(p, "expected '[section]' or 'name = value'"); break;
    }
}

void config_defaults(TuiConfig *config)
{
    memset(config, 0, sizeof *config);
    keymap_defaults(&config->keymap);
    config->mouse = true;
}

void config_parse(TuiConfig *config, Str text, const char *path, ThemeProblems *problems)
{
    Parser p = {.config = config, .problems = problems, .path = path};
    Str line;
    while (str_split(&text, '\n', &line)) {
        p.line++;
        take_line(&p, line);
    }
    int next = 0;
    char why[160];
    while (keymap_conflict(&config->keymap, &next, why, sizeof why)) {
        problem(&p, "%s", why);
    }
}

void config_load(TuiConfig *config, const char *path, ThemeProblems *problems)
{
    Text text;
    Fault fault = {0};
    config_defaults(config);
    if (!path || !fs_exists(path)) {
        return;
    }
    text_init(&text, CONFIG_FILE_MAX);
    if (fs_read(path, &text, &fault) == ERR_OK) {
        config_parse(config, text_str(&text), path, problems);
    } else {
        Parser p = {.problems = problems, .path = path};
        problem(&p, "%s", fault.sentence);
    }
    text_free(&text);
}

const char *config_match_theme(const TuiConfig *config, const char *run, const char *host)
{
    for (int i = 0; i < config->match_count; i++) {
        const ThemeMatch *match = &config->matches[i];
        if ((run && fnmatch(match->pattern, run, 0) == 0) ||
            (host && fnmatch(match->pattern, host, 0) == 0)) {
            return match->theme;
        }
    }
    return "";
}
