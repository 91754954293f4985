/* The user's configuration: ROLLTOP_CONFIG, else $XDG_CONFIG_HOME/rolltop/console.ini, a small ini
 * written by hand and never rewritten. Sections console, keys, view NAME, match PATTERN, command
 * NAME. A mistake never stops the program: each is one line with file and line number. */
#ifndef ROLLTOP_TUI_CONFIG_H
#define ROLLTOP_TUI_CONFIG_H

#include "tui/keymap.h"
#include "tui/layout.h"
#include "tui/theme.h"

enum { CONFIG_VIEWS_MAX = 16, CONFIG_MATCHES_MAX = 8, CONFIG_COMMANDS_MAX = 16 };

typedef enum GroupBy { GROUP_NONE, GROUP_STATE, GROUP_POLICY, GROUP_HOST, GROUP_BY_COUNT } GroupBy;

/* The look of graphs; a C locale has ASCII whatever is asked for. */
typedef enum GraphStyle { GRAPH_BLOCK, GRAPH_BRAILLE, GRAPH_ASCII, GRAPH_STYLE_COUNT } GraphStyle;

typedef struct NamedView {
    char name[24];
    Pane pane;
    bool zoom, inverted;
    int sort; /* of the pane */
    GroupBy group;
    char filter[200];
} NamedView;

typedef struct ThemeMatch { /* run or host name by shell pattern */
    char pattern[64], theme[64];
} ThemeMatch;

typedef enum ShellAsk { SHELL_ASK_Y, SHELL_ASK_NAME, SHELL_ASK_NOT, SHELL_ASK_COUNT } ShellAsk;

typedef struct ShellCommand { /* the user's own: a shell line with ROLLTOP_* in its environment */
    char name[24], run[400];
    int key; /* TK_NONE: only behind ':' */
    ShellAsk ask; /* y, its name typed, or nothing before it runs */
    Pane pane;    /* only there; PANE_COUNT: anywhere */
} ShellCommand;

typedef struct TuiConfig {
    Keymap keymap;
    char theme[64], start_view[24];
    GraphStyle graph;
    bool mouse, bell, notify; /* notify: desktop notice by OSC 9 */
    NamedView views[CONFIG_VIEWS_MAX];
    int view_count;
    ThemeMatch matches[CONFIG_MATCHES_MAX];
    int match_count;
    ShellCommand commands[CONFIG_COMMANDS_MAX];
    int command_count;
} TuiConfig;

void config_defaults(TuiConfig *config);
/* On top of what *config holds; conflicts of keys are problems too. */
void config_parse(TuiConfig *config, Str text, const char *path, ThemeProblems *problems);
/* Defaults, then the file when there is one (a missing file is no problem). `path` may be NULL. */
void config_load(TuiConfig *config, const char *path, ThemeProblems *problems);
/* The theme that [match] ties to a run or host, "" for none. */
const char *config_match_theme(const TuiConfig *config, const char *run, const char *host);
const char *group_by_name(GroupBy by);
/* GRAPH_STYLE_COUNT: no such look. */
GraphStyle graph_by_name(Str name);

#endif
