/* The long tail: who holds the last samples, since when, and why. Oldest first. */
#include "tui/columns.h"
#include "tui/screen.h"

enum { US = 1000000, QUIET_US = 5 * US };

/* Tokens a second since it began, "-" before there is enough to tell. */
static const char *sample_rate(const TailRow *row, char out[FORMAT_MAX])
{
    double seconds = (double)(row->progress_us - row->started_us) / US;
    return seconds > 0.5 ? format_count((double)row->tokens / seconds, out) : "-";
}

static bool on_one_engine(const TailList *tail)
{
    size_t same = 0;
    while (same < tail->count && tail->rows[same].engine == tail->rows[0].engine) {
        same++;
    }
    return same == tail->total && tail->rows[0].engine > 0;
}

/* What the step still waits for is little, or a part that one engine of several holds. */
static bool last_of_step(const Snapshot *s, const TailRow *row)
{
    const HeaderView *h = &s->header;
    int64_t left = h->samples_want - h->samples_done;
    int64_t few = h->samples_want / 20 > 1 ? h->samples_want / 20 : 1;
    bool held = s->engines.count >= 3 && left <= h->samples_want / 4 && on_one_engine(&s->tail);
    return row->step == h->step && left > 0 && (left <= few || held) &&
           s->t_us - row->started_us > QUIET_US;
}

void tail_words(const Snapshot *s, const TailRow *row, char *buffer, size_t size)
{
    char age[FORMAT_MAX];
    char tokens[FORMAT_MAX];
    char rate[FORMAT_MAX];
    char quiet[FORMAT_MAX] = "never";
    if (row->progress_us > 0) {
        (void)format_age(s->t_us - row->progress_us, quiet);
    }
    (void)str_format(buffer, size, "%lld/%lld on %s: %s old, %s tokens, %s/s, last token %s%s",
                     (long long)row->step, (long long)row->sample,
                     row->engine > 0 ? or_dash(row->engine_name) : "no engine yet",
                     format_age(s->t_us - row->started_us, age),
                     format_count((double)row->tokens, tokens), sample_rate(row, rate), quiet,
                     row->progress_us > 0 ? " ago" : "");
}

Role tail_why(const Snapshot *s, const TailRow *row, char *buffer, size_t size)
{
    const EngineRow *engine = snapshot_engine(s, row->engine);
    char age[FORMAT_MAX];
    int64_t quiet = s->t_us - (row->progress_us > 0 ? row->progress_us : row->started_us);
    buffer[0] = '\0';
    if (engine) {
        const StateLook *look = state_look(state_shown(engine, s->t_us));
        if (look->rank <= 2) {
            (void)str_format(buffer, size, "engine %s", look->word);
            return look->role;
        }
    }
    if (quiet > QUIET_US) {
        (void)str_format(buffer, size, "no token %s", format_age(quiet, age));
        return ROLE_WARN;
    }
    if (last_of_step(s, row)) {
        (void)str_format(buffer, size, "step waits, %s/s", sample_rate(row, age));
        return ROLE_WARN;
    }
    if (row->attempt > 1) {
        (void)str_format(buffer, size, "attempt %d", row->attempt);
        return ROLE_PROGRESS;
    }
    if (engine && engine->waiting.known && engine->waiting.v > 0) {
        (void)str_format(buffer, size, "%s wait there",
                         format_count(engine->waiting.v, age));
        return ROLE_TEXT;
    }
    return ROLE_TEXT;
}

enum { TAIL_SAMPLE, TAIL_ENGINE, TAIL_POLICY, TAIL_KIND, TAIL_AGE, TAIL_TOKENS, TAIL_RATE,
       TAIL_TRY, TAIL_COLUMNS };
enum { WHY_WISH = 26, WHY_LEAST = 7 };

static const Column tail_columns[TAIL_COLUMNS] = {
    {"STEP/SAMPLE", 13, 24, false, 0, "sample"},
    {"ENGINE", 9, 40, false, 0, "engine"},
    {"POL", 5, 8, false, 0, "policy"},
    {"KIND", 6, 6, false, COLUMNS_LATE, NULL},
    {"AGE", 6, 6, true, 0, "age"},
    {"TOKENS", 8, 8, true, 0, "tokens"},
    {"TOK/S", 7, 7, true, COLUMNS_LATE, NULL},
    {"TRY", 5, 5, true, COLUMNS_LATE, "try"},
};

static const char *tail_cell(const Snapshot *s, const TailRow *row, int column,
                             char out[FORMAT_MAX])
{
    switch (column) {
    case TAIL_SAMPLE:
        (void)str_format(out, FORMAT_MAX, "%lld/%lld", (long long)row->step,
                         (long long)row->sample);
        return out;
    case TAIL_ENGINE: return row->engine > 0 ? or_dash(row->engine_name) : "?";
    case TAIL_POLICY: return format_version(row->policy_version, out);
    case TAIL_KIND: return row->eval ? "eval" : "train";
    case TAIL_AGE: return format_age(s->t_us - row->started_us, out);
    case TAIL_TOKENS: return format_count((double)row->tokens, out);
    case TAIL_RATE: return sample_rate(row, out);
    case TAIL_TRY: (void)str_format(out, FORMAT_MAX, "%d", row->attempt); return out;
    default: return "";
    }
}

static void choose_columns(int width, const Snapshot *s, int widths[TAIL_COLUMNS])
{
    int need[TAIL_COLUMNS] = {0};
    char text[FORMAT_MAX];
    for (size_t i = 0; i < s->tail.count; i++) {
        for (int c = TAIL_SAMPLE; c <= TAIL_POLICY; c++) {
            columns_need(&need[c], tail_cell(s, &s->tail.rows[i], c, text));
        }
    }
    columns_fit(tail_columns, need, TAIL_COLUMNS, width - 4, WHY_WISH, WHY_LEAST, widths);
}

/* Titles when `row` is NULL. Returns where the reason stands. */
static int draw_cells(const Draw *d, int y, const Snapshot *s, const TailRow *row,
                      const int widths[TAIL_COLUMNS])
{
    char text[FORMAT_MAX];
    int x = 2;
    for (int i = 0; i < TAIL_COLUMNS; i++) {
        const Column *column = &tail_columns[i];
        if (widths[i] == 0) {
            continue;
        }
        draw_field(d, x, y, widths[i] - (column->right ? 0 : 1), column->right,
                   row ? ROLE_TEXT : ROLE_DIM, row ? tail_cell(s, row, i, text) : column->title);
        if (!row) {
            draw_sort_title(d, x, y, widths[i], PANE_TAIL, column->sort);
        }
        x += widths[i];
    }
    return x + 2;
}

static void draw_row(const Draw *d, int y, const Screen *screen, const TailRow *row,
                     const int widths[TAIL_COLUMNS], bool cursor)
{
    char why[96];
    Role role = tail_why(screen->s, row, why, sizeof why);
    int x = draw_cells(d, y, screen->s, row, widths);
    draw_text(d, 0, y, ROLE_KEY, cursor ? ">" : "");
    draw_text(d, 1, y, ROLE_MARKED, mark_has(screen->m, PANE_TAIL, row->sample) ? "*" : "");
    if (widths[TAIL_KIND] == 0 && row->eval) {
        x += draw_text(d, x, y, ROLE_PROGRESS, why[0] ? "eval, " : "eval");
    }
    draw_text(d, x, y, role, why);
}

static void draw_ages(const Draw *d, int y, const TailList *tail)
{
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    int x = tail->total > 0 ? draw_text(d, 0, y, ROLE_DIM, "samples by age") : 0;
    for (int i = 0; i < 8; i++) {
        if (tail->age_histogram[i] > 0) {
            x += draw_f(d, x, y, ROLE_DIM, "  %s:%s", i ? format_seconds(i * tail->age_bucket_s, a)
                        : "0s", format_count((double)tail->age_histogram[i], b));
        }
    }
}

static void draw_groups(const Draw *d, int y, const TailList *tail)
{
    SegmentLine line = {.count = 0};
    if (tail->trimmed && tail->groups_total == 0) {
        return; /* not none: not known any more */
    }
    segment_add(&line, 0, ROLE_TEXT, "groups complete %lld of %lld",
                (long long)tail->groups_complete, (long long)tail->groups_total);
    segment_add(&line, 1, tail->groups_blocked_by_one > 0 ? ROLE_PROGRESS : ROLE_DIM,
                "blocked by one sample: %lld", (long long)tail->groups_blocked_by_one);
    (void)segment_draw(d, y, d->r.w, 3, &line);
}

void tail_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    const TailList *tail = &screen->s->tail;
    char right[64];
    int count = m->shown_count[PANE_TAIL];
    int space = d->r.h - 1; /* without the title */
    int summary = space >= 8 ? 2 : space >= 5 ? 1 : 0;
    int rows = space - 1 - summary;
    bool cut = tail->total > tail->count || count > rows;
    (void)str_format(right, sizeof right, "%lld in flight%s", (long long)tail->total,
                     cut ? "  the oldest shown" : "");
    if (tail->trimmed) {
        (void)str_format(right, sizeof right, "trimmed");
    }
    Draw body = pane_frame(d, screen, PANE_TAIL, "LONG TAIL  oldest in flight", right);
    int widths[TAIL_COLUMNS];
    choose_columns(body.r.w, screen->s, widths);
    int why = draw_cells(&body, 0, screen->s, NULL, widths);
    draw_text(&body, why, 0, ROLE_DIM, "WHY");
    if (count == 0) {
        draw_text(&body, 2, 1, ROLE_DIM,
                  tail->total > 0 ? "no row matches the filter; Esc clears it"
                  : tail->trimmed ? "what was in flight then was trimmed from the log"
                                  : "no sample is in flight at this moment");
    }
    int place = model_place(m, screen->s, PANE_TAIL);
    int top = scroll_top(place, count, rows);
    for (int i = 0; i < rows && top + i < count; i++) {
        bool cursor = top + i == place && m->focus == PANE_TAIL;
        draw_hit(&body, 0, 1 + i, body.r.w, HIT_ROW, PANE_TAIL, top + i);
        draw_row(&body, 1 + i, screen, &tail->rows[m->shown[PANE_TAIL][top + i]],
                 widths, cursor);
        if (cursor) {
            draw_flag_row(&body, 1 + i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + 1 + i);
        }
    }
    if (summary > 0) {
        draw_groups(&body, body.r.h - 1, tail);
    }
    if (summary > 1) {
        draw_ages(&body, body.r.h - 2, tail);
    }
}
