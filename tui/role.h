/* What a cell means. Views draw roles, never colours; a theme gives each role its look. The list
 * is fixed: name in theme files, letter in the golden files' role map, the built-in look with 256
 * colours, with 16 or 8, and without colour (reference: state by word first, colour second). */
#ifndef ROLLTOP_TUI_ROLE_H
#define ROLLTOP_TUI_ROLE_H

#define TUI_ROLES(X)                                                                              \
    X(ROLE_TEXT, "text", '.', "default", "default", "default")                                    \
    X(ROLE_DIM, "dim", 'd', "245", "default dim", "default dim")                                  \
    X(ROLE_BORDER, "border", '-', "240", "default dim", "default dim")                            \
    X(ROLE_HEADER, "header", 'h', "default bold", "default bold", "default bold")                 \
    X(ROLE_TITLE, "title", 't', "110 bold", "cyan bold", "default bold")                          \
    X(ROLE_TAB, "tab", 'T', "110", "cyan", "default")                                             \
    X(ROLE_SELECTED, "selected", 'S', "default reverse", "default reverse", "default reverse")    \
    X(ROLE_MARKED, "marked", 'm', "default bold", "default bold", "default bold")                 \
    X(ROLE_OK, "ok", 'o', "114", "green", "default")                                              \
    X(ROLE_PROGRESS, "progress", 'p', "80", "cyan", "default")                                    \
    X(ROLE_PAUSED, "paused", 'u', "75 bold", "cyan bold", "default underline")                    \
    X(ROLE_WARN, "warn", 'w', "221 bold", "yellow bold", "default bold")                          \
    X(ROLE_CRIT, "crit", 'c', "210 bold", "red bold", "default reverse")                          \
    X(ROLE_STALE, "stale", 's', "245 italic", "default dim", "default dim")                       \
    X(ROLE_GONE, "gone", 'g', "242", "default dim", "default dim")                                \
    X(ROLE_GRAPH, "graph", 'G', "73", "cyan", "default")                                          \
    X(ROLE_GRAPH2, "graph2", 'H', "139", "magenta", "default")                                    \
    X(ROLE_REPLAY, "replay", 'R', "black on 221", "default reverse", "default reverse")           \
    X(ROLE_KEY, "key", 'k', "default bold", "default bold", "default bold")                       \
    X(ROLE_ERROR, "error", 'e', "black on 210", "red reverse", "default reverse")                 \
    X(ROLE_INPUT, "input", 'i', "default underline", "default underline", "default underline")    \
    X(ROLE_MATCH, "match", 'M', "221 underline", "yellow underline", "default underline")         \
    X(ROLE_INFO, "info", 'I', "default", "default", "default")                                    \
    X(ROLE_CONFIRM, "confirm", 'C', "221 bold", "yellow bold", "default bold")

#define TUI_ROLE_ENTRY(name, word, letter, c256, c8, mono) name,
typedef enum Role { TUI_ROLES(TUI_ROLE_ENTRY) ROLE_COUNT } Role;

#endif
