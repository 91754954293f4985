/* The engine table: columns leave by priority as the window narrows, rows never lie: what is old
 * is dim and says its age, what is unknown is '-', what somebody asked for stands in the row. */
#include "tui/columns.h"
#include "tui/graph.h"

#include <math.h>
#include <string.h>

enum { US = 1000000, PREFIX = 3, NEW_US = 10 * US, WORDS_LEAST = 17 };

typedef enum EngineColumn {
    COL_NAME, COL_STATE, COL_POLICY, COL_TOKENS, COL_RUN, COL_WAIT, COL_KV, COL_ITL, COL_SEEN,
    COL_TTFT, COL_RETRACT, COL_ERRORS, COL_LIVES, COL_PID, COL_ADDRESS, COL_COUNT
} EngineColumn;

static const Column columns[COL_COUNT] = {
    [COL_NAME] = {"ENGINE", 8, 40, false, 0, "name"},
    [COL_STATE] = {"STATE", 9, 9, false, 0, "severity"},
    [COL_POLICY] = {"POL", 6, 10, false, 0, "policy"},
    [COL_TOKENS] = {"TOK/S", 6, 6, true, 0, "tok/s"},
    [COL_RUN] = {"RUN", 5, 5, true, 0, "run"},
    [COL_WAIT] = {"WAIT", 5, 5, true, 7, "wait"},
    [COL_KV] = {"KV%", 5, 5, true, 0, "kv"},
    [COL_ITL] = {"ITL", 7, 7, true, 8, "itl"},
    [COL_SEEN] = {"SEEN", 7, 7, true, 0, "seen"},
    [COL_TTFT] = {"TTFT", 7, 7, true, 6, NULL},
    [COL_RETRACT] = {"RETR/m", 7, 7, true, 5, NULL},
    [COL_ERRORS] = {"ERR/m", 6, 6, true, 4, NULL},
    [COL_LIVES] = {"LIVES", 6, 6, true, 3, NULL},
    [COL_PID] = {"PID", 8, 8, true, 2, NULL},
    [COL_ADDRESS] = {"  ADDRESS", 18, 72, false, 1, NULL},
};

static const char *policy_cell(const EngineRow *row, char out[FORMAT_MAX])
{
    char version[FORMAT_MAX];
    if (row->policy_version < 0) {
        (void)format_version(row->reported_version, version);
        (void)str_format(out, FORMAT_MAX, "%s%s", version, row->reported_version >= 0 ? "?" : "");
    } else {
        (void)format_version(row->policy_version, version);
        (void)str_format(out, FORMAT_MAX, "%s%s", version,
                         row->state == ENGINE_LOADING ? ">" : "");
    }
    return out;
}

/* What a dead engine did last says nothing of now; the detail page keeps it, with its age. */
static bool cell_void(const Screen *screen, const EngineRow *row, EngineColumn column)
{
    EngineState shown = state_shown(row, screen->s->t_us);
    bool rate = column == COL_TOKENS || column == COL_RUN || column == COL_WAIT ||
                column == COL_KV || column == COL_ITL || column == COL_TTFT;
    return rate && state_silent(shown);
}

static const char *cell_text(const Screen *screen, const EngineRow *row, EngineColumn column,
                             char out[FORMAT_MAX])
{
    const StateLook *look = state_look(state_shown(row, screen->s->t_us));
    if (cell_void(screen, row, column)) {
        return "-";
    }
    switch (column) {
    case COL_NAME: return or_dash(row->name);
    case COL_STATE: (void)str_format(out, FORMAT_MAX, "%c %s", look->sign, look->word); return out;
    case COL_POLICY: return policy_cell(row, out);
    case COL_TOKENS: return format_count_val(row->tokens_per_s, out);
    case COL_RUN: return format_count_val(row->running, out);
    case COL_WAIT: return format_count_val(row->waiting, out);
    case COL_KV: return format_percent(row->kv_usage, out);
    case COL_ITL: return format_ms(row->itl_ms, out);
    case COL_SEEN:
        return row->seen_us > 0 ? format_age(screen->s->t_us - row->seen_us, out) : "never";
    case COL_TTFT: return format_ms(row->ttft_ms, out);
    case COL_RETRACT: return format_count_val(row->retracted_per_min, out);
    case COL_ERRORS: return format_count_val(row->errors_per_min, out);
    case COL_LIVES: return format_count((double)row->incarnations, out);
    case COL_PID: (void)str_format(out, FORMAT_MAX, "%lld", (long long)row->pid);
        return row->pid > 0 ? out : "-";
    case COL_ADDRESS: return or_dash(row->address);
    case COL_COUNT: break;
    }
    return "";
}

static Role cell_role(const Screen *screen, const EngineRow *row, EngineColumn column)
{
    EngineState shown = state_shown(row, screen->s->t_us);
    const StateLook *look = state_look(shown);
    int64_t committed = screen->s->header.policy_version;
    const AlertRow *alert = snapshot_engine_alert(screen->s, row->engine);
    if (alert && look->rank > 2 && (column == COL_STATE || column == COL_NAME)) {
        return severity_role(alert->severity); /* no green for what has an alert open */
    }
    if (column == COL_STATE || (column == COL_NAME && look->rank <= 1)) {
        return look->role;
    }
    if (shown == ENGINE_STALE || shown == ENGINE_DEAD || shown == ENGINE_GONE) {
        return column == COL_SEEN ? look->role : ROLE_STALE;
    }
    if (column == COL_POLICY && committed >= 0 && row->policy_version != committed) {
        return row->state == ENGINE_LOADING ? ROLE_PROGRESS : ROLE_WARN;
    }
    return ROLE_TEXT;
}

static const CommandRow *open_command(const Snapshot *s, const EngineRow *row)
{
    for (size_t i = 0; i < s->commands.count && row->name; i++) {
        const CommandRow *command = &s->commands.rows[i];
        bool open = command->state && (strcmp(command->state, "asked") == 0 ||
                                       strcmp(command->state, "accepted") == 0);
        if (open && command->target && strstr(command->target, row->name)) {
            return command;
        }
    }
    return NULL;
}

static Role pending_why(const Screen *screen, const Pending *pending, char *buffer, size_t size)
{
    static const char *const words[] = {
        [PENDING_FREE] = "",           [PENDING_REQUESTED] = "requested",
        [PENDING_ACCEPTED] = "accepted", [PENDING_REFUSED] = "refused",
        [PENDING_OBSERVED] = "done",   [PENDING_TIMEOUT] = "no effect seen"};
    char age[FORMAT_MAX];
    bool bad = pending->state == PENDING_REFUSED || pending->state == PENDING_TIMEOUT;
    (void)str_format(buffer, size, "%s %s %s%s%s", verb_word(pending->verb),
                     words[pending->state], format_age(screen->now_us - pending->asked_us, age),
                     bad && pending->message[0] ? ": " : "", bad ? pending->message : "");
    return bad ? ROLE_ERROR : pending->state == PENDING_OBSERVED ? ROLE_OK : ROLE_PROGRESS;
}

Role engine_why(const Screen *screen, const EngineRow *row, char *buffer, size_t size)
{
    const Snapshot *s = screen->s;
    const Pending *pending = act_pending(screen->m, row->engine);
    const CommandRow *command = open_command(s, row);
    EngineState shown = state_shown(row, s->t_us);
    char age[FORMAT_MAX];
    buffer[0] = '\0';
    if (pending && !model_in_replay(screen->m)) {
        return pending_why(screen, pending, buffer, size);
    }
    if (command) {
        (void)str_format(buffer, size, "%s %s %s by %s", or_dash(command->what),
                         or_dash(command->state), format_age(s->t_us - command->asked_us, age),
                         or_dash(command->who));
        return ROLE_PROGRESS;
    }
    bool cordoned = act_cordoned(s, row);
    const AlertRow *alert = snapshot_engine_alert(s, row->engine);
    if (alert && state_look(shown)->rank > 2) { /* it answers well, and something is wrong */
        (void)str_format(buffer, size, "[%c] %s %s%s",
                         severity_letter(alert->severity), or_dash(alert->class_name),
                         format_age(s->t_us - alert->onset_us, age),
                         cordoned ? ", cordoned" : "");
        return severity_role(alert->severity);
    }
    if (cordoned && state_look(shown)->rank > 2) {
        (void)str_format(buffer, size, "cordoned: takes nothing new");
        return ROLE_PAUSED;
    }
    if (shown == ENGINE_STALE && row->state != ENGINE_STALE) {
        (void)str_format(buffer, size, "values are old; was %s", state_look(row->state)->word);
        return ROLE_STALE;
    }
    if (state_look(shown)->rank <= 3 || shown == ENGINE_GONE) {
        (void)str_format(buffer, size, "%s%s%s%s", row->reason ? row->reason : "",
                         row->reason && row->reason[0] ? ", " : "",
                         format_age(s->t_us - row->state_since_us, age),
                         cordoned ? ", cordoned" : "");
        return state_look(shown)->role;
    }
    if (s->t_us - row->first_seen_us < NEW_US && row->first_seen_us > 0) {
        (void)str_format(buffer, size, "new");
        return ROLE_PROGRESS;
    }
    return ROLE_TEXT;
}

static double spark_most(const Snapshot *s)
{
    double most = 0;
    for (size_t i = 0; i < s->engines.count; i++) {
        const EngineRow *row = &s->engines.rows[i];
        for (int k = 0; k < row->spark_count && k < VIEW_SPARK_MAX; k++) {
            if (isfinite(row->spark[k]) && (double)row->spark[k] > most) {
                most = (double)row->spark[k];
            }
        }
    }
    /* Rounded up to one of twelve steps a decade: a scale that moved with every value would
     * change every graph of the table each second. */
    double step = most > 0 ? ceil(log10(most) * 12) / 12 : 0;
    return most > 0 ? pow(10, step) : 0;
}

/* Content that would like more than the least: names, versions, addresses. Of all rows, so that
 * widths stay while one scrolls. */
static void choose_columns(int width, int spark, const Screen *screen, int widths[COL_COUNT])
{
    Column fit[COL_COUNT];
    char text[FORMAT_MAX];
    int need[COL_COUNT] = {0};
    for (int i = 0; i < COL_COUNT; i++) { /* name, state and policy never scroll away */
        fit[i] = columns[i];
        if (i > COL_POLICY && i <= COL_POLICY + screen->m->scroll_x) {
            fit[i].min = fit[i].max = 0;
        }
    }
    for (size_t i = 0; i < screen->s->engines.count; i++) {
        const EngineRow *row = &screen->s->engines.rows[i];
        columns_need(&need[COL_NAME], row->name);
        columns_need(&need[COL_POLICY], policy_cell(row, text));
        columns_need(&need[COL_ADDRESS], row->address);
    }
    need[COL_ADDRESS] += 2; /* it stands off the number before it */
    columns_fit(fit, need, COL_COUNT, width - PREFIX - 2, spark, WORDS_LEAST, widths);
}

static void draw_row(const Draw *d, int y, const Screen *screen, const EngineRow *row,
                     const int widths[COL_COUNT], double most, bool cursor)
{
    char text[FORMAT_MAX];
    char why[256];
    bool marked = mark_has(screen->m, PANE_ENGINES, row->engine);
    int x = PREFIX;
    draw_text(d, 0, y, ROLE_KEY, cursor ? ">" : "");
    draw_text(d, 1, y, ROLE_MARKED, marked ? "*" : "");
    for (int i = 0; i < COL_COUNT; i++) {
        int off = columns[i].right ? 0 : i == COL_ADDRESS ? 2 : 0;
        if (widths[i] > 0) {
            draw_field(d, x + off, y, widths[i] - off - (columns[i].right ? 0 : 1),
                       columns[i].right, cell_role(screen, row, (EngineColumn)i),
                       cell_text(screen, row, (EngineColumn)i, text));
            x += widths[i];
        }
    }
    Role role = engine_why(screen, row, why, sizeof why);
    if (why[0]) {
        draw_text(d, x + 2, y, role, why);
    } else if (row->spark_count <= VIEW_SPARK_MAX) {
        SnapRequest request = model_request(screen->m, screen->s->t_us);
        Spark spark = {row->spark, row->spark_count, request.spark_us, screen->s->t_us, most};
        graph_spark(d, graph_style(screen, d->surface), x + 2, y, &spark);
    }
}

static void draw_titles(const Draw *d, const Screen *screen, const int widths[COL_COUNT])
{
    SnapRequest request = model_request(screen->m, screen->s->t_us);
    const char *sort = sort_name(PANE_ENGINES, screen->m->sort[PANE_ENGINES]);
    int x = PREFIX;
    for (int i = 0; i < COL_COUNT; i++) {
        if (widths[i] > 0) {
            bool sorts = columns[i].sort && strcmp(columns[i].sort, sort) == 0;
            draw_field(d, x, 0, widths[i] - (columns[i].right ? 0 : 1), columns[i].right,
                       sorts ? ROLE_HEADER : ROLE_DIM, columns[i].title);
            draw_sort_title(d, x, 0, widths[i], PANE_ENGINES, columns[i].sort);
            x += widths[i];
        }
    }
    GraphStyle style = graph_style(screen, d->surface);
    int cells = graph_spark_cells(style, d->r.w - x - 2, request.spark_count);
    if (cells > 0) {
        draw_f(d, x + 2, 0, ROLE_DIM, cells > 13 ? "%d s, ^ newest" : "%d s",
               (int)(graph_spark_us(style, cells, request.spark_us) / US));
    }
}

static void draw_empty(const Draw *d, const Screen *screen)
{
    if (screen->s->engines.count == 0) {
        draw_text(d, 3, 1, ROLE_DIM, screen->s->ready
                  ? "no engine was seen up to this moment; one appears with its first probe"
                  : "loading");
    } else {
        draw_f(d, 3, 1, ROLE_WARN, "0 of %d engines match \"%s\"; Esc clears the filter",
               (int)screen->s->engines.count, screen->m->filter[PANE_ENGINES]);
    }
}

/* "5 more, all OK" or the count of each state that is out of sight. */
static void draw_more(const Draw *d, int y, const Screen *screen, int top, int rows)
{
    const Model *m = screen->m;
    int count = m->shown_count[PANE_ENGINES];
    int bad = 0;
    int left = 0;
    for (int i = 0; i < count; i++) {
        if (i >= top && i < top + rows) {
            continue;
        }
        const EngineRow *row = &screen->s->engines.rows[m->shown[PANE_ENGINES][i]];
        left++;
        bad += state_look(state_shown(row, screen->s->t_us))->rank <= 2 ? 1 : 0;
    }
    if (bad > 0) {
        draw_f(d, PREFIX, y, ROLE_WARN, "-- %d more, %d of them not well --", left, bad);
    } else {
        draw_f(d, PREFIX, y, ROLE_DIM, "-- %d more, none of them broken --", left);
    }
}

/* The row at a place of the list, with the cursor on it or not. */
static void draw_place(const Draw *d, int y, const Screen *screen, const int widths[COL_COUNT],
                       double most, int at)
{
    const Model *m = screen->m;
    bool cursor = at == model_place(m, screen->s, PANE_ENGINES);
    int index = m->shown[PANE_ENGINES][at];
    draw_hit(d, 0, y, d->r.w, HIT_ROW, PANE_ENGINES, at);
    draw_row(d, y, screen, &screen->s->engines.rows[index], widths, most, cursor);
    if (cursor && m->focus == PANE_ENGINES) {
        draw_flag_row(d, y, CELL_SELECTED);
        surface_cursor(d->surface, d->r.x, d->r.y + y);
    }
}

/* "[-] x DEAD  3 engines, 3 not well, 0 tok/s": the line above a group, or instead of it. */
static void draw_group(const Draw *d, int y, const Screen *screen, const GroupLine *group)
{
    char a[FORMAT_MAX];
    bool cursor = group->folded && group->first == model_place(screen->m, screen->s,
                                                               PANE_ENGINES);
    int x = 2;
    draw_text(d, 0, y, ROLE_KEY, cursor ? ">" : "");
    x += draw_f(d, x, y, ROLE_TITLE, "[%c] %s  ", group->folded ? '+' : '-', group->key);
    x += draw_f(d, x, y, ROLE_TEXT, "%d engine%s", group->members,
                group->members == 1 ? "" : "s");
    if (group->bad > 0) {
        x += draw_f(d, x, y, ROLE_WARN, ", %d not well", group->bad);
    }
    draw_f(d, x, y, ROLE_DIM, ", %s tok/s", format_count(group->tokens, a));
    if (group->folded) {
        draw_hit(d, 0, y, d->r.w, HIT_ROW, PANE_ENGINES, group->first);
    }
    if (cursor && screen->m->focus == PANE_ENGINES) {
        draw_flag_row(d, y, CELL_SELECTED);
        surface_cursor(d->surface, d->r.x, d->r.y + y);
    }
}

/* Lines are counted from the top of the list: a title for each group, then its rows. */
static void draw_grouped(const Draw *d, const Screen *screen, const int widths[COL_COUNT])
{
    const Model *m = screen->m;
    int count = m->shown_count[PANE_ENGINES];
    int place = model_place(m, screen->s, PANE_ENGINES);
    int lines = count + m->group_count;
    int cursor_line = place;
    for (int g = 0; g < m->group_count; g++) {
        lines -= m->groups[g].folded ? 1 : 0;
        cursor_line += m->groups[g].first < place || (m->groups[g].first == place &&
                                                      !m->groups[g].folded);
        cursor_line -= m->groups[g].first < place && m->groups[g].folded;
    }
    int rows = lines > d->r.h - 1 ? d->r.h - 2 : d->r.h - 1;
    int top = scroll_top(cursor_line, lines, rows);
    double most = spark_most(screen->s);
    int line = 0;
    if (lines > rows) {
        draw_f(d, PREFIX, d->r.h - 1, ROLE_DIM, "-- lines %d to %d of %d --", top + 1, top + rows,
               lines);
    }
    for (int g = 0; g < m->group_count; g++) {
        const GroupLine *group = &m->groups[g];
        int end = g + 1 < m->group_count ? m->groups[g + 1].first : count;
        if (line >= top && line < top + rows) {
            draw_group(d, 1 + line - top, screen, group);
        }
        line++;
        for (int at = group->first; at < end && !group->folded; at++, line++) {
            if (line >= top && line < top + rows) {
                draw_place(d, 1 + line - top, screen, widths, most, at);
            }
        }
    }
}

static int matching(const Model *m)
{
    int members = 0;
    for (int g = 0; g < m->group_count; g++) {
        members += m->groups[g].members;
    }
    return m->group_count > 0 ? members : m->shown_count[PANE_ENGINES];
}

void engines_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    char right[96];
    int widths[COL_COUNT];
    int count = m->shown_count[PANE_ENGINES];
    (void)str_format(right, sizeof right, "sort: %s%s  %d of %d", sort_name(PANE_ENGINES,
                     m->sort[PANE_ENGINES]), m->inverted[PANE_ENGINES] ? " inverted" : "",
                     matching(m), (int)screen->s->engines.count);
    Draw body = pane_frame(d, screen, PANE_ENGINES, "ENGINES", right);
    int spark = body.r.w >= 97 ? 29 : body.r.w >= 75 ? 17 : 12;
    choose_columns(body.r.w, spark, screen, widths);
    draw_titles(&body, screen, widths);
    if (count == 0) {
        draw_empty(&body, screen);
        return;
    }
    if (m->group_count > 0) {
        draw_grouped(&body, screen, widths);
        return;
    }
    int room = body.r.h - 1;
    int place = model_place(m, screen->s, PANE_ENGINES);
    int rows = count > room ? room - 1 : room;
    int top = scroll_top(place, count, rows);
    double most = spark_most(screen->s);
    for (int i = 0; i < rows && top + i < count; i++) {
        draw_place(&body, 1 + i, screen, widths, most, top + i);
    }
    if (count > rows) {
        draw_more(&body, 1 + rows, screen, top, rows);
    }
}
