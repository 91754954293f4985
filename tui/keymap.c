#include "tui/keymap.h"

#include "core/base/str.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const ActionInfo actions[ACT_COUNT] = {
#define ACTION_ROW(name, word, k1, k2, k3, group, label, help)                                    \
    {word, {k1, k2, k3}, group, label, help},
    TUI_ACTIONS(ACTION_ROW)
};

static const char *const group_names[G_COUNT] = {
    [G_MOVE] = "moving",   [G_LOOK] = "looking",       [G_FIND] = "finding",
    [G_TIME] = "time",     [G_ACT] = "changing the fleet", [G_OTHER] = "other",
};

static const struct {
    int key;
    const char *name;
} key_names[] = {
    {TK_TAB, "Tab"},       {TK_ENTER, "Enter"},   {TK_ESC, "Esc"},     {TK_BACKSPACE, "Backspace"},
    {TK_UP, "Up"},         {TK_DOWN, "Down"},     {TK_LEFT, "Left"},   {TK_RIGHT, "Right"},
    {TK_PGUP, "PgUp"},     {TK_PGDN, "PgDn"},     {TK_HOME, "Home"},   {TK_END, "End"},
    {TK_BACKTAB, "shift-Tab"}, {TK_DELETE, "Delete"}, {' ', "Space"},
};

const ActionInfo *keymap_info(Action action)
{
    return &actions[action];
}

const char *keymap_group_name(KeyGroup group)
{
    return group_names[group];
}

void keymap_defaults(Keymap *map)
{
    for (int i = 0; i < ACT_COUNT; i++) {
        memcpy(map->keys[i], actions[i].keys, sizeof map->keys[i]);
    }
}

static bool has_key(const Keymap *map, int action, int key)
{
    for (int i = 0; i < KEYS_PER_ACTION; i++) {
        if (map->keys[action][i] == key) {
            return true;
        }
    }
    return false;
}

Action keymap_find(const Keymap *map, int key, bool replay, bool playing)
{
    Action other = ACT_NONE;
    Action time = ACT_NONE;
    for (int i = 0; i < ACT_COUNT && key != TK_NONE; i++) {
        if (has_key(map, i, key)) {
            Action *slot = actions[i].group == G_TIME ? &time : &other;
            *slot = *slot == ACT_NONE ? (Action)i : *slot;
        }
    }
    bool speed = time == ACT_FASTER || time == ACT_SLOWER;
    bool wins = time != ACT_NONE && (other == ACT_NONE || (speed ? playing : replay));
    return wins ? time : other;
}

/* Keys that other tools use to kill never change the fleet here, and neither does a key that a
 * slip of the finger types. */
static bool may_act(int key)
{
    return (key >= 'A' && key <= 'Z') || (key >= TK_F1 && key <= TK_F12 && key != TK_F9);
}

bool keymap_bind(Keymap *map, Action action, const char *text, size_t n, char *why, size_t size)
{
    int keys[KEYS_PER_ACTION] = {0};
    int count = 0;
    Str rest = str_trim((Str){text, n});
    Str word;
    while (str_split(&rest, ' ', &word)) {
        int key = keymap_key(word.p, word.n);
        if (word.n == 0 || str_equal(word, STR("none"))) {
            continue;
        }
        if (key == TK_NONE) {
            (void)str_format(why, size, "'%.*s' is no key; write a character, Up, PgDn, Enter, "
                             "Space, F5 or ctrl-n", (int)word.n, word.p);
            return false;
        }
        if (count == KEYS_PER_ACTION) {
            (void)str_format(why, size, "%s takes at most %d keys", actions[action].name,
                             KEYS_PER_ACTION);
            return false;
        }
        if (actions[action].group == G_ACT && !may_act(key)) {
            (void)str_format(why, size, "'%.*s' cannot be %s: only upper-case letters and F-keys "
                             "but F9 change the fleet", (int)word.n, word.p,
                             actions[action].name);
            return false;
        }
        keys[count++] = key;
    }
    memcpy(map->keys[action], keys, sizeof keys);
    return true;
}

bool keymap_conflict(const Keymap *map, int *next, char *why, size_t size)
{
    char name[KEY_NAME_MAX];
    for (; *next < ACT_COUNT * KEYS_PER_ACTION; (*next)++) {
        int action = *next / KEYS_PER_ACTION;
        int key = map->keys[action][*next % KEYS_PER_ACTION];
        for (int i = action + 1; i < ACT_COUNT && key != TK_NONE; i++) {
            bool apart = (actions[i].group == G_TIME) != (actions[action].group == G_TIME) &&
                         actions[i].group != G_ACT && actions[action].group != G_ACT;
            if (has_key(map, i, key) && !apart) {
                keymap_key_name(key, name, sizeof name);
                (void)str_format(why, size, "key %s is both '%s' and '%s'; '%s' is used", name,
                                 actions[action].name, actions[i].name, actions[action].name);
                (*next)++;
                return true;
            }
        }
    }
    return false;
}

Action keymap_by_name(const char *name, size_t n)
{
    for (int i = 0; i < ACT_COUNT; i++) {
        if (strlen(actions[i].name) == n && memcmp(actions[i].name, name, n) == 0) {
            return (Action)i;
        }
    }
    return ACT_NONE;
}

void keymap_key_name(int key, char *buffer, size_t size)
{
    for (size_t i = 0; i < sizeof key_names / sizeof key_names[0]; i++) {
        if (key_names[i].key == key) {
            (void)str_format(buffer, size, "%s", key_names[i].name);
            return;
        }
    }
    if (key >= TK_F1 && key <= TK_F12) {
        (void)str_format(buffer, size, "F%d", key - TK_F1 + 1);
    } else if (key > 0 && key < 27) {
        (void)str_format(buffer, size, "ctrl-%c", 'a' + key - 1);
    } else {
        (void)str_format(buffer, size, "%c", key > 32 && key < 127 ? key : '?');
    }
}

int keymap_key(const char *name, size_t n)
{
    Str word = {name, n};
    int64_t number = 0;
    for (size_t i = 0; i < sizeof key_names / sizeof key_names[0]; i++) {
        if (str_equal_nocase(word, str_from(key_names[i].name))) {
            return key_names[i].key;
        }
    }
    if (n == 1 && name[0] > 32 && name[0] < 127) {
        return name[0];
    }
    if (n == 6 && strncasecmp(name, "ctrl-", 5) == 0) {
        int letter = name[5] | 0x20;
        return letter >= 'a' && letter <= 'z' ? letter - 'a' + 1 : TK_NONE;
    }
    bool f = n >= 2 && n <= 3 && (name[0] == 'F' || name[0] == 'f') &&
             str_to_i64(str_slice(word, 1, n), &number);
    return f && number >= 1 && number <= 12 ? TK_F1 + (int)number - 1 : TK_NONE;
}
