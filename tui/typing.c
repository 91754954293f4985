/* The line that is typed into: filter, command, moment, bookmark; and the pickers. What a command
 * does is in command.c. */
#include "core/base/utf8.h"
#include "tui/model.h"

#include <string.h>

bool input_key(InputLine *line, int key)
{
    char bytes[4];
    if (key == TK_BACKSPACE || key == 8) {
        if (line->n == 0) {
            return false;
        }
        do {
            line->n--;
        } while (line->n > 0 && ((unsigned char)line->text[line->n] & 0xc0) == 0x80);
        line->text[line->n] = '\0';
        return true;
    }
    if (key == TK_CTRL_U) {
        line->n = 0;
        line->text[0] = '\0';
        return true;
    }
    if (key < 32 || key == 127 || key >= TK_UP) {
        return false;
    }
    size_t n = utf8_encode((uint32_t)key, bytes);
    if (line->n + n >= sizeof line->text) {
        return false;
    }
    memcpy(line->text + line->n, bytes, n);
    line->n += n;
    line->text[line->n] = '\0';
    return true;
}

unsigned typing_start(Model *model, Mode mode, const char *text)
{
    model->mode = mode;
    (void)str_format(model->input.text, sizeof model->input.text, "%s", text);
    model->input.n = strlen(model->input.text);
    model->history_at = model->history_count;
    model->completion = -1;
    return MODEL_DRAW;
}

static unsigned leave(Model *model)
{
    model->mode = MODE_NORMAL;
    return MODEL_DRAW;
}

/* ---- filter: live while it is typed -------------------------------------------------------- */

static unsigned filter_key(Model *model, const Snapshot *snap, int key)
{
    char *filter = model->filter[model->focus];
    size_t size = sizeof model->filter[0];
    if (key == TK_ENTER) {
        return leave(model) | MODEL_QUERY;
    }
    if (key == TK_ESC || key == TK_CTRL_C) {
        filter[0] = '\0';
        model_lists(model, snap);
        return leave(model) | MODEL_QUERY;
    }
    (void)input_key(&model->input, key);
    (void)str_format(filter, size, "%s", model->input.text);
    model_lists(model, snap);
    return MODEL_DRAW | (model->focus == PANE_EVENTS ? MODEL_QUERY : 0);
}

/* A search moves the cursor to the first match while it is typed and hides nothing. */
static unsigned search_key(Model *model, const Snapshot *snap, int key)
{
    Pane pane = model->focus;
    if (key == TK_ENTER || key == TK_ESC || key == TK_CTRL_C) {
        if (key != TK_ENTER) {
            model->search[0] = '\0';
        }
        return leave(model);
    }
    (void)input_key(&model->input, key);
    (void)str_format(model->search, sizeof model->search, "%s", model->input.text);
    int place = model_place(model, snap, pane);
    int count = model->shown_count[pane];
    for (int n = 0; n < count && place >= 0 && model->search[0]; n++) {
        int at = (place + n) % count;
        if (model_row_matches(snap, pane, model->shown[pane][at], model->search)) {
            if (at != place) {
                model_move(model, snap, pane, at - place);
            }
            break;
        }
    }
    return MODEL_DRAW;
}

static unsigned shell_key(Model *model, int key, int64_t now_us)
{
    const ShellCommand *command = &model->config.commands[model->shell];
    bool typed = command->ask == SHELL_ASK_NAME;
    size_t n = strlen(command->name);
    if (typed && input_key(&model->input, key) &&
        strncmp(command->name, model->input.text, model->input.n) == 0 && model->input.n <= n) {
        if (model->input.n < n) {
            return MODEL_DRAW;
        }
        model->mode = MODE_NORMAL;
        return MODEL_SHELL | MODEL_DRAW;
    }
    model->mode = MODE_NORMAL;
    if (!typed && key == 'y') {
        return MODEL_SHELL | MODEL_DRAW;
    }
    model_say(model, ROLE_INFO, now_us, typed ? "%s was not run: only its name does it"
                                              : "%s was not run: only y does it", command->name);
    return MODEL_DRAW;
}

/* ---- the command line ----------------------------------------------------------------------- */

static void remember(Model *model)
{
    if (model->input.n == 0) {
        return;
    }
    if (model->history_count == MODEL_HISTORY_MAX) {
        memmove(model->history, model->history + 1,
                (MODEL_HISTORY_MAX - 1) * sizeof model->history[0]);
        model->history_count--;
    }
    (void)str_format(model->history[model->history_count++], sizeof model->history[0], "%s",
                     model->input.text);
}

static void set_input(Model *model, const char *text)
{
    (void)str_format(model->input.text, sizeof model->input.text, "%s", text);
    model->input.n = strlen(model->input.text);
}

/* Tab goes round what fits the words that were typed. */
static void complete(Model *model)
{
    char buffer[64];
    if (model->completion < 0) {
        (void)str_format(model->stem, sizeof model->stem, "%s", model->input.text);
    }
    model->completion++;
    const char *next =
        command_completion(model, model->stem, model->completion, buffer, sizeof buffer);
    if (!next) {
        model->completion = -1;
        next = model->stem;
    }
    set_input(model, next);
}

static unsigned command_key(Model *model, const Snapshot *snap, int key, int64_t now_us)
{
    if (key == TK_ENTER) {
        remember(model);
        model->mode = MODE_NORMAL;
        return MODEL_DRAW |
               command_run(model, snap, (Str){model->input.text, model->input.n}, now_us);
    }
    if (key == TK_TAB) {
        complete(model);
        return MODEL_DRAW;
    }
    model->completion = -1;
    if (key == TK_UP && model->history_at > 0) {
        set_input(model, model->history[--model->history_at]);
    } else if (key == TK_DOWN && model->history_at + 1 < model->history_count) {
        set_input(model, model->history[++model->history_at]);
    } else if (!input_key(&model->input, key) && key == TK_BACKSPACE) {
        return leave(model);
    }
    return MODEL_DRAW;
}

static unsigned bookmark_key(Model *model, int key, int64_t now_us)
{
    if (key != TK_ENTER) {
        (void)input_key(&model->input, key);
        return MODEL_DRAW;
    }
    if (model->bookmark_count == MODEL_BOOKMARKS_MAX) {
        model_say(model, ROLE_WARN, now_us, "%d moments are named already", MODEL_BOOKMARKS_MAX);
        return leave(model);
    }
    Bookmark *mark = &model->bookmarks[model->bookmark_count++];
    mark->t_us = model_time(model, now_us);
    (void)str_format(mark->name, sizeof mark->name, "%.*s", (int)sizeof mark->name - 1,
                     model->input.n ? model->input.text : "unnamed");
    model->bookmark_cursor = model->bookmark_count - 1;
    model_say(model, ROLE_INFO, now_us, "named '%s'; ' lists the named ones", mark->name);
    return leave(model) | MODEL_MARKS;
}

static unsigned go_key(Model *model, const Snapshot *snap, int key, int64_t now_us)
{
    if (key == TK_ENTER) {
        model->mode = MODE_NORMAL;
        return MODEL_DRAW |
               model_go(model, snap, (Str){model->input.text, model->input.n}, now_us);
    }
    (void)input_key(&model->input, key);
    return MODEL_DRAW;
}

/* ---- pickers ------------------------------------------------------------------------------- */

static unsigned sort_key_pressed(Model *model, const Snapshot *snap, int key)
{
    int count = sort_count(model->focus);
    if (key == 'j' || key == TK_DOWN) {
        model->sort_cursor = (model->sort_cursor + 1) % count;
    } else if (key == 'k' || key == TK_UP) {
        model->sort_cursor = (model->sort_cursor + count - 1) % count;
    } else if (key == 'I') {
        model->inverted[model->focus] = !model->inverted[model->focus];
    } else if (key == TK_ENTER) {
        model->sort[model->focus] = model->sort_cursor;
        model->mode = MODE_NORMAL;
    } else {
        return leave(model);
    }
    model_lists(model, snap);
    return MODEL_DRAW;
}

unsigned moments_open(Model *model, int64_t now_us)
{
    if (model->bookmark_count == 0) {
        model_say(model, ROLE_INFO, now_us, "no moment is named yet; m names this one");
        return MODEL_DRAW;
    }
    model->mode = MODE_MOMENTS;
    return MODEL_DRAW;
}

static unsigned moments_key(Model *model, const Snapshot *snap, int key, int64_t now_us)
{
    int count = model->bookmark_count;
    if (key == 'j' || key == TK_DOWN || key == '\'') {
        model->bookmark_cursor = (model->bookmark_cursor + 1) % count;
    } else if (key == 'k' || key == TK_UP) {
        model->bookmark_cursor = (model->bookmark_cursor + count - 1) % count;
    } else if (key == TK_ENTER) {
        const Bookmark *to = &model->bookmarks[model->bookmark_cursor];
        model->mode = MODE_NORMAL;
        model_say(model, ROLE_INFO, now_us, "at '%s'", to->name);
        return model_seek_done(model, snap, true, to->t_us, now_us);
    } else {
        return leave(model);
    }
    return MODEL_DRAW;
}

int help_list(const Model *model, Action out[ACT_COUNT])
{
    int count = 0;
    for (int group = 0; group < G_COUNT; group++) {
        for (int i = 0; i < ACT_COUNT; i++) {
            const ActionInfo *info = keymap_info((Action)i);
            char text[256];
            (void)str_format(text, sizeof text, "%s %s %s", info->name, info->help,
                             keymap_group_name(info->group));
            if ((int)info->group == group &&
                filter_match(model->help_filter.text, text, NULL, 0)) {
                out[count++] = (Action)i;
            }
        }
    }
    return count;
}

static unsigned help_key(Model *model, const Snapshot *snap, int key, int64_t now_us)
{
    Action list[ACT_COUNT];
    int count = help_list(model, list);
    int page = model->h > 10 ? model->h - 8 : 2;
    if (key == '/' && model->mode == MODE_HELP) {
        model->mode = MODE_HELP_FILTER;
        return MODEL_DRAW;
    }
    if (key == TK_ENTER && count > 0) {
        int at = model->help_cursor < count ? model->help_cursor : count - 1;
        model->mode = MODE_NORMAL;
        return MODEL_DRAW | action_run(model, snap, list[at], now_us);
    }
    if (key == TK_DOWN || (key == 'j' && model->mode == MODE_HELP)) {
        model->help_cursor++;
    } else if (key == TK_UP || (key == 'k' && model->mode == MODE_HELP)) {
        model->help_cursor--;
    } else if (key == TK_PGDN || key == TK_CTRL_D) {
        model->help_cursor += page;
    } else if (key == TK_PGUP || (key == TK_CTRL_U && model->mode == MODE_HELP)) {
        model->help_cursor -= page;
    } else if (model->mode == MODE_HELP_FILTER && key != TK_ESC && key != TK_CTRL_C) {
        (void)input_key(&model->help_filter, key);
        model->help_cursor = 0;
    } else {
        model->help_filter.n = 0;
        model->help_filter.text[0] = '\0';
        return leave(model);
    }
    model->help_cursor = model->help_cursor >= count ? count - 1 : model->help_cursor;
    model->help_cursor = model->help_cursor < 0 ? 0 : model->help_cursor;
    return MODEL_DRAW;
}

/* Leaving a run that this console started: Enter leaves it running; only the typed word stops. */
static unsigned quit_key(Model *model, int key)
{
    if (key == TK_ENTER) {
        model->stop_run = model->input.n == 4 && strcmp(model->input.text, "stop") == 0;
        if (model->input.n == 0 || model->stop_run) {
            return MODEL_QUIT;
        }
        return leave(model);
    }
    if (key == TK_CTRL_C || (key == 'q' && model->input.n == 0)) {
        return MODEL_QUIT;
    }
    (void)input_key(&model->input, key);
    return MODEL_DRAW;
}

unsigned typing_key(Model *model, const Snapshot *snap, int key, int64_t now_us)
{
    if (model->mode != MODE_FILTER && model->mode != MODE_SEARCH && model->mode != MODE_HELP &&
        model->mode != MODE_HELP_FILTER && (key == TK_ESC ||
        (key == TK_CTRL_C && model->mode != MODE_QUIT_ASK))) {
        return leave(model);
    }
    switch (model->mode) {
    case MODE_FILTER: return filter_key(model, snap, key);
    case MODE_SEARCH: return search_key(model, snap, key);
    case MODE_SHELL: return shell_key(model, key, now_us);
    case MODE_COMMAND: return command_key(model, snap, key, now_us);
    case MODE_GO: return go_key(model, snap, key, now_us);
    case MODE_BOOKMARK: return bookmark_key(model, key, now_us);
    case MODE_SORT: return sort_key_pressed(model, snap, key);
    case MODE_MOMENTS: return moments_key(model, snap, key, now_us);
    case MODE_HELP:
    case MODE_HELP_FILTER: return help_key(model, snap, key, now_us);
    case MODE_QUIT_ASK: return quit_key(model, key);
    case MODE_NORMAL:
    case MODE_CONFIRM: break;
    }
    return 0;
}
