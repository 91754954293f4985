/* One table of everything a key can do: name (also the command behind ':'), up to three keys,
 * group, footer word, help. Dispatch, help screen, footer, docs/console.md and the test for
 * clashes all read it. Upper-case P U R C X change the fleet and nothing else does. The table is
 * the default; a Keymap is what a console uses after the user's [keys]. */
#ifndef ROLLTOP_TUI_KEYMAP_H
#define ROLLTOP_TUI_KEYMAP_H

#include <stdbool.h>
#include <stddef.h>

enum { /* keys that are no character; above every code point */
    TK_NONE = 0,
    TK_CTRL_C = 3,
    TK_CTRL_D = 4,
    TK_TAB = 9,
    TK_CTRL_L = 12,
    TK_ENTER = 13,
    TK_CTRL_U = 21,
    TK_CTRL_Z = 26,
    TK_ESC = 27,
    TK_BACKSPACE = 127,
    TK_UP = 0x110001,
    TK_DOWN,
    TK_LEFT,
    TK_RIGHT,
    TK_PGUP,
    TK_PGDN,
    TK_HOME,
    TK_END,
    TK_BACKTAB,
    TK_DELETE,
    TK_F1,
    TK_F2,
    TK_F3,
    TK_F4,
    TK_F5,
    TK_F6,
    TK_F7,
    TK_F8,
    TK_F9,
    TK_F10,
    TK_F11,
    TK_F12,
    TK_MOUSE /* never bound: term_mouse says what it was */
};

/* G_ACT keys need control; G_TIME keys move the moment that is shown. A key may stand for one
 * time action and one other: in replay the time action wins (PgUp PgDn Home End h l arrows), the
 * speed keys only while replay is playing (+ - fold and unfold else). */
typedef enum KeyGroup { G_MOVE, G_LOOK, G_FIND, G_TIME, G_ACT, G_OTHER, G_COUNT } KeyGroup;

#define TUI_ACTIONS(X)                                                                            \
    X(ACT_UP, "up", 'k', TK_UP, 0, G_MOVE, "", "one row up")                                      \
    X(ACT_DOWN, "down", 'j', TK_DOWN, 0, G_MOVE, "", "one row down")                              \
    X(ACT_PAGE_UP, "page-up", TK_CTRL_U, TK_PGUP, 0, G_MOVE, "", "one page up")                   \
    X(ACT_PAGE_DOWN, "page-down", TK_CTRL_D, TK_PGDN, 0, G_MOVE, "", "one page down")             \
    X(ACT_TOP, "top", 'g', TK_HOME, 0, G_MOVE, "", "first row")                                   \
    X(ACT_BOTTOM, "bottom", 'G', TK_END, 0, G_MOVE, "", "last row; in events: follow the newest") \
    X(ACT_ENTER, "enter", TK_ENTER, 0, 0, G_MOVE, "Detail", "go into what is under the cursor")   \
    X(ACT_BACK, "back", TK_ESC, TK_BACKSPACE, 0, G_MOVE, "", "come back; clear filter, marks")    \
    X(ACT_LEFT, "left", 'h', TK_LEFT, 0, G_MOVE, "", "columns to the left; in replay: a probe")   \
    X(ACT_RIGHT, "right", 'l', TK_RIGHT, 0, G_MOVE, "", "columns to the right")                   \
    X(ACT_NEXT_PANE, "next-pane", TK_TAB, 0, 0, G_MOVE, "Pane", "next pane")                      \
    X(ACT_PREV_PANE, "previous-pane", TK_BACKTAB, 0, 0, G_MOVE, "", "previous pane")              \
    X(ACT_PANE_1, "engines", '1', 0, 0, G_MOVE, "", "engines")                                    \
    X(ACT_PANE_2, "tail", '2', 0, 0, G_MOVE, "", "long tail: samples in flight, oldest first")    \
    X(ACT_PANE_3, "timeline", '3', 0, 0, G_MOVE, "", "step waterfall")                            \
    X(ACT_PANE_4, "events", '4', 0, 0, G_MOVE, "", "events")                                      \
    X(ACT_PANE_5, "policies", '5', 0, 0, G_MOVE, "", "policy versions and updates")               \
    X(ACT_PANE_6, "learning", '6', 0, 0, G_MOVE, "", "held-out eval and training reward")         \
    X(ACT_PANE_7, "commands", '7', 0, 0, G_MOVE, "", "what operators asked for, and the outcome") \
    X(ACT_ZOOM, "zoom", 'o', 0, 0, G_LOOK, "Zoom", "give the pane the whole screen, and back")    \
    X(ACT_FREEZE, "freeze", 'z', 0, 0, G_LOOK, "", "freeze the display; recording goes on")       \
    X(ACT_FOLLOW, "follow", 'f', 0, 0, G_LOOK, "",                                                \
      "follow this engine or sample through filters and time; in events: the newest")             \
    X(ACT_GROUP, "group", 'e', TK_F5, 0, G_LOOK, "", "group engines by state, policy, host, not") \
    X(ACT_UNFOLD, "unfold", '+', 0, 0, G_LOOK, "", "unfold the group under the cursor")           \
    X(ACT_FOLD, "fold", '-', 0, 0, G_LOOK, "", "fold the group under the cursor")                 \
    X(ACT_VIEW, "view", 'w', 0, 0, G_LOOK, "", "next named view of the configuration")            \
    X(ACT_WORST, "worst", '!', 0, 0, G_LOOK, "", "go to the worst alert that nobody saw")         \
    X(ACT_ACK, "acknowledge", 'a', 0, 0, G_LOOK, "", "acknowledge the alert; noted in the log")   \
    X(ACT_COPY_ROW, "copy-row", 'y', 0, 0, G_LOOK, "", "copy the row, or the marked ones, as text")\
    X(ACT_COPY_SCREEN, "copy-screen", 'Y', 0, 0, G_LOOK, "", "copy the screen as text")           \
    X(ACT_FILTER, "filter", '/', TK_F4, 0, G_FIND, "Filter",                                      \
      "show matching rows: words, !not, state:dead, pol:210, kv>90")                              \
    X(ACT_SEARCH, "search", '\\', TK_F3, 0, G_FIND, "",                                           \
      "move to a matching row, hide nothing; the same words as the filter")                       \
    X(ACT_NEXT_MATCH, "next-match", 'n', 0, 0, G_FIND, "",                                        \
      "next row of the search; without one: that needs attention")                                \
    X(ACT_PREV_MATCH, "previous-match", 'N', 0, 0, G_FIND, "", "the one before")                  \
    X(ACT_SORT, "sort", 's', TK_F6, 0, G_FIND, "Sort", "choose the column to sort this table by") \
    X(ACT_SORT_PREV, "sort-left", '<', 0, 0, G_FIND, "", "sort by the column to the left")        \
    X(ACT_SORT_NEXT, "sort-right", '>', 0, 0, G_FIND, "", "sort by the column to the right")      \
    X(ACT_SORT_INVERT, "sort-invert", 'I', 0, 0, G_FIND, "", "turn the order round")              \
    X(ACT_MARK, "mark", ' ', 0, 0, G_FIND, "Mark", "mark the row; actions and copies take all")   \
    X(ACT_MARK_RANGE, "mark-range", 'v', 0, 0, G_FIND, "", "mark from the last mark to here")      \
    X(ACT_MARK_ALL, "mark-all", '*', 0, 0, G_FIND, "", "mark all rows shown, or none")            \
    X(ACT_COMPARE, "compare", '=', 0, 0, G_FIND, "",                                              \
      "two marked engines, steps or policies side by side; or this and the one before")          \
    X(ACT_STEP_PREV, "step-back", '[', 'T', 0, G_TIME, "Step", "to the start of the step before") \
    X(ACT_STEP_NEXT, "step-on", ']', 't', 0, G_TIME, "", "to the start of the next step")         \
    X(ACT_ALERT_PREV, "alert-back", '{', 0, 0, G_TIME, "Alert", "to the alert before")            \
    X(ACT_ALERT_NEXT, "alert-on", '}', 0, 0, G_TIME, "", "to the next alert")                     \
    X(ACT_POLICY_PREV, "policy-back", '(', 0, 0, G_TIME, "", "to the policy version before")      \
    X(ACT_POLICY_NEXT, "policy-on", ')', 0, 0, G_TIME, "", "to the next policy version")          \
    X(ACT_PROBE_PREV, "probe-back", ',', 'h', TK_LEFT, G_TIME, "", "to the probe before")         \
    X(ACT_PROBE_NEXT, "probe-on", '.', 'l', TK_RIGHT, G_TIME, "", "to the next probe")            \
    X(ACT_TIME_BACK, "ten-minutes-back", TK_PGUP, 0, 0, G_TIME, "", "in replay: ten minutes back")\
    X(ACT_TIME_ON, "ten-minutes-on", TK_PGDN, 0, 0, G_TIME, "", "in replay: ten minutes on")      \
    X(ACT_TIME_FIRST, "first", TK_HOME, 0, 0, G_TIME, "", "in replay: start of the log")          \
    X(ACT_TIME_LIVE, "live", TK_END, 0, 0, G_TIME, "Live", "in replay: back to live, or the end") \
    X(ACT_GO_TIME, "go", '@', 'b', 0, G_TIME, "Go to",                                            \
      "go to a moment: 10:41, -5m, 4126 (step), v210 (version), or a word from the events")       \
    X(ACT_PLAY, "play", 'p', 0, 0, G_TIME, "Play", "in replay: play and pause")                   \
    X(ACT_FASTER, "faster", '+', 0, 0, G_TIME, "", "in replay: twice the speed, up to 64x")       \
    X(ACT_SLOWER, "slower", '-', 0, 0, G_TIME, "", "in replay: half the speed, down to 1/4x")     \
    X(ACT_BOOKMARK, "bookmark", 'm', 0, 0, G_TIME, "", "name this moment")                        \
    X(ACT_BOOKMARKS, "bookmarks", '\'', 0, 0, G_TIME, "", "list the named moments")               \
    X(ACT_PAUSE, "pause", 'P', 0, 0, G_ACT, "Pause", "pause or resume engines or the run") \
    X(ACT_UPDATE, "update", 'U', 0, 0, G_ACT, "Update",                                           \
      "committed version again; on a policy: back to it")                                         \
    X(ACT_RESTART, "restart", 'R', 0, 0, G_ACT, "Restart", "restart engines")                     \
    X(ACT_CORDON, "cordon", 'C', 0, 0, G_ACT, "Cordon", "finish what runs, take no more")         \
    X(ACT_ABORT, "abort", 'X', 0, 0, G_ACT, "Abort", "abort the sample, or the marked ones")      \
    X(ACT_UNDO, "undo", 'u', 0, 0, G_OTHER, "Undo", "undo the last pause or cordon, asks") \
    X(ACT_COMMAND, "command", ':', 0, 0, G_OTHER, "Command", "any of these by name, Tab completes")\
    X(ACT_HELP, "help", '?', TK_F1, 0, G_OTHER, "Help", "this list; / filters, Enter does it") \
    X(ACT_REPAINT, "repaint", TK_CTRL_L, 0, 0, G_OTHER, "", "draw the whole screen again")        \
    X(ACT_SUSPEND, "suspend", TK_CTRL_Z, 0, 0, G_OTHER, "", "back to the shell; fg returns")      \
    X(ACT_QUIT, "quit", 'q', TK_CTRL_C, TK_F10, G_OTHER, "Quit", "come back; at the top: leave")

#define TUI_ACTION_ENTRY(name, word, k1, k2, k3, group, label, help) name,
typedef enum Action { ACT_NONE = -1, TUI_ACTIONS(TUI_ACTION_ENTRY) ACT_COUNT } Action;

enum { KEYS_PER_ACTION = 3, KEY_NAME_MAX = 16 };

typedef struct ActionInfo {
    const char *name;
    int keys[KEYS_PER_ACTION]; /* 0: none */
    KeyGroup group;
    const char *label; /* in the footer; "" when it is not shown there */
    const char *help;
} ActionInfo;

typedef struct Keymap {
    int keys[ACT_COUNT][KEYS_PER_ACTION]; /* 0: none */
} Keymap;

const ActionInfo *keymap_info(Action action);
const char *keymap_group_name(KeyGroup group);
void keymap_defaults(Keymap *map);
/* Binds an action to the keys named in `text` ("j Down ctrl-n", "none"), in the place of what it
 * had. False, with a sentence in `why`, when a name is no key, when there are too many, or when a
 * key would change the fleet that must not: only upper-case letters and F-keys but F9 may. */
bool keymap_bind(Keymap *map, Action action, const char *text, size_t n, char *why, size_t size);
/* Two actions on one key that cannot be told apart; from *next on. False: none is left. */
bool keymap_conflict(const Keymap *map, int *next, char *why, size_t size);
/* What a key does; in replay the time keys win over the others that share them. */
Action keymap_find(const Keymap *map, int key, bool replay, bool playing);
Action keymap_by_name(const char *name, size_t n);
/* "k", "Up", "ctrl-d", "Space"; buffer of KEY_NAME_MAX. */
void keymap_key_name(int key, char *buffer, size_t size);
/* TK_NONE when it names no key. */
int keymap_key(const char *name, size_t n);

#endif
