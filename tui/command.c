/* What stands behind ':': the actions by name, and what has no key. */
#include "tui/model.h"

#include <string.h>

enum { US = 1000000, ARM_MAX_S = 3600 };

static unsigned arm(Model *model, Str value, int64_t now_us)
{
    int64_t n = 0;
    int64_t unit = str_ends(value, STR("s")) ? 1 : 60;
    if (str_ends(value, STR("m")) || str_ends(value, STR("s"))) {
        value.n--;
    }
    if (!model->control || model_in_replay(model)) {
        model_say(model, ROLE_WARN, now_us, "arm is not available: this console looks only");
    } else if (!str_to_i64(value, &n) || n < 1 || n * unit > ARM_MAX_S) {
        model_say(model, ROLE_WARN, now_us, "write ':arm 5m' (one hour at most)");
    } else {
        model->armed_until_us = now_us + n * unit * US;
        model_say(model, ROLE_CONFIRM, now_us,
                  "armed: actions on the whole run can be confirmed for %lld s",
                  (long long)(n * unit));
    }
    return MODEL_DRAW;
}

static bool find_verb(Str word, Verb *out)
{
    for (int i = 0; i < VERB_COUNT; i++) {
        if (str_equal(word, str_from(verb_word((Verb)i)))) {
            *out = (Verb)i;
            return true;
        }
    }
    return false;
}

/* "pause all", "restart trainer", "stop": what has no row to put the cursor on. */
static unsigned verb_command(Model *model, const Snapshot *snap, Verb verb, Str on, int64_t now_us)
{
    bool runs = verb == VERB_PAUSE || verb == VERB_RESUME || verb == VERB_UPDATE;
    bool part = str_equal(on, STR("trainer")) || str_equal(on, STR("frontend"));
    if (verb == VERB_RESTART && part) {
        return act_part(model, snap, on.p[0] == 't' ? "trainer" : "frontend", now_us);
    }
    if (verb == VERB_UPDATE && act_version_word(on) > 0) {
        return act_version(model, snap, act_version_word(on), now_us);
    }
    if (verb == VERB_STOP || (runs && str_equal(on, STR("all")))) {
        return act_begin(model, snap, verb, true, now_us);
    }
    model_say(model, ROLE_WARN, now_us, "%s takes rows: put the cursor on one or mark them%s",
              verb_word(verb), runs ? ", or write 'all' for the whole run" : "");
    return MODEL_DRAW;
}

static unsigned view_command(Model *model, const Snapshot *snap, Str name, int64_t now_us)
{
    for (int i = 0; i < model->config.view_count; i++) {
        if (str_equal(name, str_from(model->config.views[i].name))) {
            return model_view(model, snap, i, now_us);
        }
    }
    model_say(model, ROLE_WARN, now_us, "no view '%.*s'; [view NAME] in the configuration names "
              "one", (int)name.n, name.p);
    return MODEL_DRAW;
}

static unsigned group_command(Model *model, const Snapshot *snap, Str name, int64_t now_us)
{
    for (int i = 0; i < GROUP_BY_COUNT; i++) {
        if (str_equal(name, str_from(group_by_name((GroupBy)i)))) {
            model->group = (GroupBy)i;
            model->folded_count = 0;
            model_lists(model, snap);
            return MODEL_DRAW;
        }
    }
    model_say(model, ROLE_WARN, now_us, "group by state, policy, host or none, not '%.*s'",
              (int)name.n, name.p);
    return MODEL_DRAW;
}

static unsigned sort_command(Model *model, const Snapshot *snap, Str name, int64_t now_us)
{
    int sort = sort_by_name(model->focus, name);
    if (sort < 0) {
        model_say(model, ROLE_WARN, now_us, "'%.*s' is no column here; s lists them", (int)name.n,
                  name.p);
        return MODEL_DRAW;
    }
    model->sort[model->focus] = sort;
    model_lists(model, snap);
    return MODEL_DRAW;
}

static unsigned graph_command(Model *model, Str name, int64_t now_us)
{
    GraphStyle style = graph_by_name(name);
    if (style == GRAPH_STYLE_COUNT) {
        model_say(model, ROLE_WARN, now_us, "graph is block, braille or ascii, not '%.*s'",
                  (int)name.n, name.p);
        return MODEL_DRAW;
    }
    model->config.graph = style;
    if (style == GRAPH_BRAILLE && model->ascii) {
        model_say(model, ROLE_INFO, now_us, "graphs stay ASCII: this locale has no braille");
    }
    return MODEL_DRAW | MODEL_QUERY;
}

static unsigned export_command(Model *model, Str path, int64_t now_us)
{
    if (path.n == 0 || path.n >= sizeof model->export_path) {
        model_say(model, ROLE_WARN, now_us, "write ':export FILE': the marked rows of this pane, "
                  "or all that are shown, go into a new file");
        return MODEL_DRAW;
    }
    if (model->shown_count[model->focus] == 0 || model->depth > 0) {
        model_say(model, ROLE_WARN, now_us, "there is no row here to export; go to a pane first");
        return MODEL_DRAW;
    }
    (void)str_format(model->export_path, sizeof model->export_path, "%.*s", (int)path.n, path.p);
    return MODEL_EXPORT | MODEL_DRAW;
}

unsigned command_run(Model *model, const Snapshot *snap, Str text, int64_t now_us)
{
    Verb verb = VERB_PAUSE;
    Str rest = str_trim(text);
    Str word;
    if (!str_split(&rest, ' ', &word)) {
        return MODEL_DRAW;
    }
    Str value = str_trim(rest);
    if (str_equal(word, STR("arm"))) {
        return arm(model, value, now_us);
    }
    if (str_equal(word, STR("disarm"))) {
        model->armed_until_us = 0;
        return MODEL_DRAW;
    }
    if (str_equal(word, STR("go")) && value.n > 0) {
        return model_go(model, snap, value, now_us);
    }
    if (str_equal(word, STR("note"))) {
        return note_command(model, value, now_us);
    }
    if (str_equal(word, STR("export"))) {
        return export_command(model, value, now_us);
    }
    if (str_equal(word, STR("theme")) && value.n > 0) {
        (void)str_format(model->theme, sizeof model->theme, "%.*s", (int)value.n, value.p);
        return MODEL_THEME | MODEL_DRAW;
    }
    if (str_equal(word, STR("graph")) && value.n > 0) {
        return graph_command(model, value, now_us);
    }
    if (str_equal(word, STR("view")) && value.n > 0) {
        return view_command(model, snap, value, now_us);
    }
    if (str_equal(word, STR("group")) && value.n > 0) {
        return group_command(model, snap, value, now_us);
    }
    if (str_equal(word, STR("sort")) && value.n > 0) {
        return sort_command(model, snap, value, now_us);
    }
    for (int i = 0; i < model->config.command_count; i++) {
        if (str_equal(word, str_from(model->config.commands[i].name))) {
            return model_shell(model, i, now_us);
        }
    }
    if (find_verb(word, &verb) && (verb == VERB_STOP || value.n > 0)) {
        return verb_command(model, snap, verb, value, now_us);
    }
    Action action = keymap_by_name(word.p, word.n);
    if (action != ACT_NONE) {
        return action_run(model, snap, action, now_us);
    }
    model_say(model, ROLE_WARN, now_us, "no command '%.*s'; ? lists them, and there are arm 5m, "
              "disarm, stop, update vN, go TIME, note WORDS, export FILE, theme NAME, VERB all",
              (int)word.n, word.p);
    return MODEL_DRAW;
}

static const char *const more_commands[] = {
    "arm 5m",     "disarm",          "stop",             "pause all",    "resume all",
    "update all", "restart trainer", "restart frontend", "theme dusk",   "theme paper",
    "theme mono", "theme contrast",  "theme deut",       "theme ember",  "group none",
    "group state", "group policy",   "group host",       "go ",
    "note ",       "export ",        "graph block",      "graph braille", "graph ascii"};

/* The n-th completion of what was typed, NULL at the end; names of the user come first. */
const char *command_completion(const Model *model, const char *typed, int n, char *buffer,
                               size_t size)
{
    size_t length = strlen(typed);
    int at = 0;
    for (int i = 0; i < model->config.command_count; i++) {
        const char *name = model->config.commands[i].name;
        if (strncmp(name, typed, length) == 0 && at++ == n) {
            return name;
        }
    }
    for (int i = 0; i < model->config.view_count; i++) {
        (void)str_format(buffer, size, "view %s", model->config.views[i].name);
        if (strncmp(buffer, typed, length) == 0 && at++ == n) {
            return buffer;
        }
    }
    for (int i = 0; i < sort_count(model->focus); i++) {
        (void)str_format(buffer, size, "sort %s", sort_name(model->focus, i));
        if (length > 4 && strncmp(buffer, typed, length) == 0 && at++ == n) {
            return buffer;
        }
    }
    for (size_t i = 0; i < sizeof more_commands / sizeof more_commands[0]; i++) {
        if (strncmp(more_commands[i], typed, length) == 0 && at++ == n) {
            return more_commands[i];
        }
    }
    for (int i = 0; i < ACT_COUNT; i++) {
        const char *name = keymap_info((Action)i)->name;
        if (strncmp(name, typed, length) == 0 && at++ == n) {
            return name;
        }
    }
    return NULL;
}
