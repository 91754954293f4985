#include "tui/keymap.h"

#include "core/base/str.h"

#include <stdio.h>
#include <string.h>

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
    {TK_CTRL_C, "ctrl-c"}, {TK_CTRL_D, "ctrl-d"}, {TK_TAB, "Tab"},     {TK_CTRL_L, "ctrl-l"},
    {TK_ENTER, "Enter"},   {TK_CTRL_U, "ctrl-u"}, {TK_CTRL_Z, "ctrl-z"}, {TK_ESC, "Esc"},
    {TK_BACKSPACE, "Backspace"}, {TK_UP, "Up"},   {TK_DOWN, "Down"},   {TK_LEFT, "Left"},
    {TK_RIGHT, "Right"},   {TK_PGUP, "PgUp"},     {TK_PGDN, "PgDn"},   {TK_HOME, "Home"},
    {TK_END, "End"},       {TK_BACKTAB, "shift-Tab"}, {TK_DELETE, "Delete"}, {TK_F1, "F1"},
    {TK_F3, "F3"},         {TK_F4, "F4"},         {TK_F6, "F6"},       {TK_F10, "F10"},
    {' ', "Space"},
};

const ActionInfo *keymap_info(Action action)
{
    return &actions[action];
}

const char *keymap_group_name(KeyGroup group)
{
    return group_names[group];
}

static bool has_key(const ActionInfo *info, int key)
{
    for (int i = 0; i < KEYS_PER_ACTION; i++) {
        if (info->keys[i] == key) {
            return true;
        }
    }
    return false;
}

static bool shared_key(int key)
{
    return key == TK_PGUP || key == TK_PGDN || key == TK_HOME || key == TK_END;
}

Action keymap_find(int key, bool replay)
{
    if (key == TK_NONE) {
        return ACT_NONE;
    }
    for (int i = 0; i < ACT_COUNT; i++) {
        if (!has_key(&actions[i], key)) {
            continue;
        }
        if (shared_key(key) && (actions[i].group == G_TIME) != replay) {
            continue;
        }
        return (Action)i;
    }
    return ACT_NONE;
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
    (void)str_format(buffer, size, "%c", key > 32 && key < 127 ? key : '?');
}
