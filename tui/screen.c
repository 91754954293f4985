#include "tui/screen.h"

#include <string.h>

enum { US = 1000000 };

/* ---- the summary for windows that hold nothing else ---------------------------------------- */

static const char *summary_sign(const Screen *screen)
{
    const Snapshot *s = screen->s;
    return model_in_replay(screen->m) ? "<< REPLAY"
           : !s->ready                ? ". LOADING"
           : !s->run.core_alive       ? "# ENDED"
           : s->t_us - s->header.last_fact_us > LOST_LIMIT_US ? "!! LOST"
                                                              : "> LIVE";
}

static void add_alert(SegmentLine *line, int drop, const Snapshot *s)
{
    const AlertRow *row = s->alerts.count > 0 ? &s->alerts.rows[0] : NULL;
    char age[FORMAT_MAX];
    segment_add(line, 0, row ? severity_role(row->severity) : ROLE_TEXT, "%d ALERT%s",
                (int)s->alerts.count, s->alerts.count == 1 ? "" : "S");
    if (row) {
        segment_add(line, drop, severity_role(row->severity), "[%c] %s%s%s %s",
                    severity_letter(row->severity),
                    row->engine > 0 ? snapshot_engine_name(s, row->engine) : "",
                    row->engine > 0 ? " " : "", or_dash(row->class_name),
                    format_age(s->t_us - row->onset_us, age));
    }
}

/* Engines by how they are, those that are not well first; counts of nothing are left out. */
static void add_ranks(SegmentLine *line, int drop, const Snapshot *s)
{
    static const struct {
        int rank;
        const char *word;
        Role role;
    } ranks[] = {{0, "dead", ROLE_CRIT},  {1, "warn", ROLE_WARN}, {2, "stale", ROLE_STALE},
                 {3, "other", ROLE_TEXT}, {4, "ok", ROLE_OK},     {5, "gone", ROLE_GONE}};
    int count[6] = {0};
    for (size_t i = 0; i < s->engines.count; i++) {
        count[state_look(state_shown(&s->engines.rows[i], s->t_us))->rank]++;
    }
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        if (count[ranks[i].rank] > 0) {
            segment_add(line, drop + (int)i, ranks[i].role, "%d %s", count[ranks[i].rank],
                        ranks[i].word);
        }
    }
    if (s->engines.count == 0) {
        segment_add(line, drop, ROLE_DIM, "no engine yet");
    }
}

static void draw_summary(const Draw *d, const Screen *screen)
{
    const Snapshot *s = screen->s;
    SegmentLine first = {.count = 0};
    SegmentLine alerts = {.count = 0};
    SegmentLine engines = {.count = 0};
    char a[FORMAT_MAX];
    char word[32];
    bool one = d->r.h == 1; /* all of it on the one line, the worst stays longest */
    act_word(screen->m, screen->now_us, word, sizeof word);
    segment_add(&first, one ? 9 : 1, ROLE_HEADER, "%s", or_dash(s->run.name));
    segment_add(&first, 0, ROLE_HEADER, "%s", summary_sign(screen));
    segment_add(&first, 2, ROLE_HEADER, "%sZ", format_clock(s->t_us, a));
    segment_add(&first, one ? 8 : 3, ROLE_HEADER, "%s", phase_word(s->header.phase));
    add_alert(one ? &first : &alerts, 1, s);
    add_ranks(one ? &first : &engines, 3, s);
    (void)segment_draw(d, 0, d->r.w, 1, &first);
    if (!one) {
        (void)segment_draw(d, 1, d->r.w, 2, &alerts);
        (void)segment_draw(d, 2, d->r.w, 1, &engines);
    }
    draw_f(d, 0, 3, ROLE_DIM, "window %dx%d: %dx%d shows the table  %s", d->r.w, d->r.h,
           LAYOUT_MIN_W, LAYOUT_MIN_H, word);
}

/* ---- the last two lines -------------------------------------------------------------------- */

static void draw_typing(const Draw *d, const Screen *screen, const char *label, const char *hint)
{
    const Model *m = screen->m;
    int x = draw_f(d, 0, 0, ROLE_KEY, "%s", label);
    x += draw_str(d, x, 0, ROLE_INPUT, (Str){m->input.text, m->input.n});
    draw_text(d, x, 0, ROLE_INPUT, "_");
    surface_cursor(d->surface, d->r.x + x, d->r.y);
    draw_f(d, x + 2, 0, ROLE_DIM, "%s", hint);
}

/* How many rows are marked, in every pane where some are. */
static void marks_add(const Model *m, SegmentLine *line)
{
    static const char *const rows[PANE_COUNT] = {
        [PANE_ENGINES] = "engines", [PANE_TAIL] = "samples",      [PANE_STEPS] = "steps",
        [PANE_EVENTS] = "events",   [PANE_POLICIES] = "policies", [PANE_COMMANDS] = "commands"};
    bool any = false;
    for (int pane = 0; pane < PANE_COUNT; pane++) {
        int count = rows[pane] ? mark_count(m, (Pane)pane) : 0;
        if (count > 0) {
            segment_add(line, 1, ROLE_CONFIRM, "marked %s: %d", rows[pane], count);
        }
        any = any || count > 0;
    }
    if (!any) {
        segment_add(line, 1, ROLE_TEXT, "marked: 0");
    }
}

static void draw_facts(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    SegmentLine line = {.count = 0};
    const char *name = strrchr(m->log_path, '/');
    const char *filter = m->filter[m->focus];
    if (m->message[0]) {
        draw_text(d, 0, 0, m->message_role, m->message);
        return;
    }
    if (screen->s->fault.code != ERR_OK) {
        draw_f(d, 0, 0, ROLE_ERROR, "log: %s; retrying", screen->s->fault.sentence);
        return;
    }
    const DamageRow *damage = snapshot_damage(screen->s);
    if (damage != NULL) {
        char near[FORMAT_MAX];
        draw_f(d, 0, 0, ROLE_ERROR,
               "log damaged near %s: rows of this moment are missing; rolltop log salvage %s NEW",
               format_minute(damage->from_us, near), name ? name + 1 : m->log_path);
        return;
    }
    segment_add(&line, 0, ROLE_TEXT, "sort: %s%s", sort_name(m->focus, m->sort[m->focus]),
                m->inverted[m->focus] ? " inverted" : "");
    segment_add(&line, 0, filter[0] ? ROLE_CONFIRM : ROLE_TEXT, "filter: %s",
                filter[0] ? filter : "none");
    marks_add(m, &line);
    if (m->search[0]) {
        segment_add(&line, 1, ROLE_MATCH, "search: %s", m->search);
    }
    if (m->group != GROUP_NONE) {
        segment_add(&line, 1, ROLE_TEXT, "group: %s", group_by_name(m->group));
    }
    if (m->follow[m->focus] != 0) {
        segment_add(&line, 0, ROLE_CONFIRM, m->focus == PANE_TAIL ? "following sample %lld"
                                                                  : "following engine %lld",
                    (long long)m->follow[m->focus]);
    }
    segment_add(&line, 2, ROLE_DIM, "log %s", name ? name + 1 : m->log_path);
    segment_add(&line, 3, ROLE_DIM, "theme %s", m->theme);
    /* Whole milliseconds, and nothing behind it that would move. */
    segment_add(&line, 5, ROLE_DIM, "Esc clears, u undoes, Tab next pane, o zooms");
    segment_add(&line, 6, ROLE_DIM, "read in %lld ms",
                (long long)(screen->s->read_us + 999) / 1000);
    (void)segment_draw(d, 0, d->r.w, 3, &line);
}

/* "Tab: pause page-up pause all": what fits the words typed so far. */
static void completions(const Model *m, char *out, size_t size)
{
    char buffer[64];
    const char *typed = m->completion >= 0 ? m->stem : m->input.text;
    const char *word;
    (void)str_format(out, size, "Tab:");
    for (int n = 0; (word = command_completion(m, typed, n, buffer, sizeof buffer)); n++) {
        size_t used = strlen(out);
        if (used + strlen(word) + 6 > size) {
            (void)str_format(out + used, size - used, " ...");
            return;
        }
        (void)str_format(out + used, size - used, "  %s", word);
    }
}

static void status_draw(const Draw *d, const Screen *screen)
{
    char text[512];
    switch (screen->m->mode) {
    case MODE_FILTER:
        draw_typing(d, screen, "filter: ", "words, !not, state:dead, pol:210, kv>90; Esc clears");
        return;
    case MODE_SEARCH:
        draw_typing(d, screen, "search: ", "moves the cursor, hides nothing; n N go on; Esc ends");
        return;
    case MODE_SHELL: {
        const ShellCommand *command = &screen->m->config.commands[screen->m->shell];
        bool typed = command->ask == SHELL_ASK_NAME;
        (void)str_format(text, sizeof text, "run %s?  %s%s%s   %s", command->name,
                         typed ? "type its name, anything else cancels: "
                               : "y does it, any other key cancels",
                         typed ? screen->m->input.text : "", typed ? "_" : "", command->run);
        draw_text(d, 0, 0, ROLE_CONFIRM, text);
        return;
    }
    case MODE_COMMAND: {
        completions(screen->m, text, sizeof text);
        draw_typing(d, screen, ":", text);
        return;
    }
    case MODE_GO:
        draw_typing(d, screen, "go to: ", "10:41, -5m, 4126 (step), v210, or a word");
        return;
    case MODE_BOOKMARK: draw_typing(d, screen, "name this moment: ", ""); return;
    case MODE_CONFIRM:
        if (screen->m->confirm.level == 1) {
            confirm_line(screen, text, sizeof text);
            draw_text(d, 0, 0, ROLE_CONFIRM, text);
            return;
        }
        break;
    case MODE_NORMAL:
    case MODE_MOMENTS:
    case MODE_SORT:
    case MODE_HELP:
    case MODE_HELP_FILTER:
    case MODE_QUIT_ASK: break;
    }
    draw_facts(d, screen);
}

void draw_sort_title(const Draw *d, int x, int y, int w, Pane pane, const char *sort)
{
    int index = sort ? sort_by_name(pane, str_from(sort)) : -1;
    if (index >= 0) {
        draw_hit(d, x, y, w, HIT_SORT, (int)pane, index);
    }
}

static void add_key(const Model *m, SegmentLine *line, Action action, int drop)
{
    char key[KEY_NAME_MAX];
    const ActionInfo *info = keymap_info(action);
    bool no_live = action == ACT_TIME_LIVE && m->replay_only; /* there it goes to the log's end */
    if (m->config.keymap.keys[action][0] == TK_NONE) {
        return;
    }
    keymap_key_name(m->config.keymap.keys[action][0], key, sizeof key);
    segment_add(line, drop, info->group == G_ACT ? ROLE_KEY : ROLE_TEXT, "%s%s%s", key,
                key[1] ? " " : "", no_live ? "Last" : info->label);
}

/* "[]Step": a pair of keys that go back and on. */
static void add_pair(const Model *m, SegmentLine *line, Action back, Action on, int drop)
{
    char a[KEY_NAME_MAX];
    char b[KEY_NAME_MAX];
    if (m->config.keymap.keys[back][0] && m->config.keymap.keys[on][0]) {
        keymap_key_name(m->config.keymap.keys[back][0], a, sizeof a);
        keymap_key_name(m->config.keymap.keys[on][0], b, sizeof b);
        segment_add(line, drop, ROLE_TEXT, "%s%s%s%s%s", a, a[1] || b[1] ? " " : "", b,
                    a[1] || b[1] ? " " : "", keymap_info(back)->label);
    }
}

/* The five keys that change the fleet, as they are bound, and why they do nothing now. */
static void add_locked(const Model *m, SegmentLine *line, int drop, const char *why)
{
    char keys[64] = "";
    for (int action = ACT_PAUSE; action <= ACT_ABORT; action++) {
        char key[KEY_NAME_MAX];
        size_t used = strlen(keys);
        if (m->config.keymap.keys[action][0]) {
            keymap_key_name(m->config.keymap.keys[action][0], key, sizeof key);
            (void)str_format(keys + used, sizeof keys - used, " %s", key);
        }
    }
    segment_add(line, drop, ROLE_DIM, "|%s %s", keys, why);
}

/* What can be pressed now, from the key table; locked keys are not offered but explained. */
static void footer_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    SegmentLine line = {.count = 0};
    bool replay = model_in_replay(m);
    add_key(m, &line, ACT_HELP, 0);
    add_key(m, &line, ACT_FILTER, 2);
    add_key(m, &line, ACT_ENTER, replay ? 3 : 5);
    if (replay) {
        add_pair(m, &line, ACT_STEP_PREV, ACT_STEP_NEXT, 0);
        add_pair(m, &line, ACT_ALERT_PREV, ACT_ALERT_NEXT, 1);
        add_key(m, &line, ACT_PLAY, 1);
        add_key(m, &line, ACT_GO_TIME, 1);
        add_key(m, &line, ACT_TIME_LIVE, 0);
        add_locked(m, &line, 4, "locked: replay");
    } else if (m->control) {
        add_key(m, &line, ACT_SORT, 7);
        add_key(m, &line, ACT_MARK, 6);
        segment_add(&line, 6, ROLE_DIM, "|");
        add_key(m, &line, ACT_PAUSE, 1);
        add_key(m, &line, ACT_UPDATE, 1);
        add_key(m, &line, ACT_RESTART, 1);
        add_key(m, &line, ACT_CORDON, 3);
        add_key(m, &line, ACT_ABORT, 4);
        segment_add(&line, 6, ROLE_DIM, "|");
        add_pair(m, &line, ACT_STEP_PREV, ACT_STEP_NEXT, 2);
    } else {
        add_key(m, &line, ACT_SORT, 4);
        add_pair(m, &line, ACT_STEP_PREV, ACT_STEP_NEXT, 2);
        add_pair(m, &line, ACT_ALERT_PREV, ACT_ALERT_NEXT, 3);
        add_key(m, &line, ACT_GO_TIME, 4);
        add_locked(m, &line, 5, "need --control");
    }
    add_key(m, &line, ACT_ZOOM, 6);
    add_key(m, &line, ACT_COMMAND, 3);
    add_key(m, &line, ACT_QUIT, 0);
    (void)segment_draw(d, 0, d->r.w, d->r.w >= 100 ? 2 : 1, &line);
}

/* ---- all of it ----------------------------------------------------------------------------- */

typedef void (*PaneDraw)(const Draw *d, const Screen *screen);
static const PaneDraw pane_draws[PANE_COUNT] = {
    [PANE_ENGINES] = engines_draw, [PANE_TAIL] = tail_draw,         [PANE_STEPS] = timeline_draw,
    [PANE_EVENTS] = events_draw,   [PANE_POLICIES] = policies_draw,
    [PANE_LEARNING] = learning_draw, [PANE_COMMANDS] = commands_draw,
};

static void draw_body(const Draw *all, const Screen *screen)
{
    const Layout *layout = &screen->layout;
    for (int pane = 0; pane < PANE_COUNT; pane++) {
        Rect r = layout->panes[pane];
        if (r.w > 0 && r.h > 0) {
            Draw d = draw_sub(all, r.x, r.y, r.w, r.h);
            pane_draws[pane](&d, screen);
        }
    }
    if (layout->detail.w > 0) {
        Draw d = draw_sub(all, layout->detail.x, layout->detail.y, layout->detail.w,
                          layout->detail.h);
        if (layout->detail_side) {
            engine_detail_draw(&d, screen, screen->m->cursor[PANE_ENGINES].id, 0, true);
        } else {
            detail_draw(&d, screen);
        }
    }
    if (layout->history.w > 0) {
        Draw d = draw_sub(all, 0, layout->history.y, layout->history.w, layout->history.h);
        history_draw(&d, screen);
    }
}

static void draw_overlay(const Draw *all, const Screen *screen)
{
    const Rect *header = &screen->layout.header;
    Draw body = draw_sub(all, 0, header->h, all->r.w, all->r.h - header->h - 2);
    switch (screen->m->mode) {
    case MODE_SORT: sort_draw(&body, screen); break;
    case MODE_MOMENTS: moments_draw(&body, screen); break;
    case MODE_HELP:
    case MODE_HELP_FILTER: help_draw(&body, screen); break;
    case MODE_QUIT_ASK: quit_draw(&body, screen); break;
    case MODE_CONFIRM:
        if (screen->m->confirm.level > 1) {
            confirm_draw(&body, screen);
        }
        break;
    case MODE_NORMAL:
    case MODE_FILTER:
    case MODE_SEARCH:
    case MODE_SHELL:
    case MODE_COMMAND:
    case MODE_GO:
    case MODE_BOOKMARK: break;
    }
}

void screen_draw(const Model *model, const Snapshot *snap, int64_t now_us, Surface *surface)
{
    Screen screen = {.m = model, .s = snap, .now_us = now_us};
    int w = surface_w(surface);
    int h = surface_h(surface);
    Draw all = {surface, {0, 0, w, h}};
    LayoutWish wish = model_wish(model, snap);
    surface_clear(surface);
    screen.layout = layout_solve(w, h, &wish);
    if (screen.layout.summary) {
        draw_summary(&all, &screen);
        return;
    }
    Draw header = draw_sub(&all, 0, 0, w, screen.layout.header.h);
    Draw status = draw_sub(&all, 0, screen.layout.status.y, w, 1);
    Draw footer = draw_sub(&all, 0, screen.layout.footer.y, w, 1);
    draw_body(&all, &screen);
    header_draw(&header, &screen);
    status_draw(&status, &screen);
    footer_draw(&footer, &screen);
    draw_overlay(&all, &screen);
}
