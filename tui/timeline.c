/* The waterfall of the newest step: phases and engines over its time; below it finished steps as
 * one bar each, all on the same scale so that a long step is long. */
#include "tui/screen.h"

#include <math.h>
#include <string.h>

enum { US = 1000000, LABEL_W = 11, RIGHT_W = 14, ENGINE_ROWS = 6 };

typedef struct Scale {
    int64_t from_us;
    double us_per_cell;
    int x, w;
} Scale;

static int scale_cell(const Scale *scale, int64_t t_us)
{
    double cell = (double)(t_us - scale->from_us) / scale->us_per_cell;
    return cell < 0 ? 0 : cell > scale->w - 1 ? scale->w - 1 : (int)cell;
}

static void draw_bar(const Draw *d, int y, const Scale *scale, int64_t from_us, int64_t to_us,
                     int64_t t_us, Role role)
{
    bool open = to_us <= 0;
    int a = scale_cell(scale, from_us);
    int b = scale_cell(scale, open ? t_us : to_us);
    for (int i = a; i <= b; i++) {
        const char *sign = i == b ? (open ? ">" : "]") : i == a ? "[" : "=";
        draw_text(d, scale->x + i, y, role, a == b && !open ? "|" : sign);
    }
}

static Role phase_role(LoopPhase phase)
{
    return phase == PHASE_GENERATE || phase == PHASE_EVAL ? ROLE_GRAPH
           : phase == PHASE_TRAIN                         ? ROLE_GRAPH2
           : phase == PHASE_PAUSE                         ? ROLE_PAUSED
                                                          : ROLE_PROGRESS;
}

static int draw_phases(const Draw *d, int y, int rows, const Screen *screen, const StepRow *step,
                       const Scale *scale)
{
    char a[FORMAT_MAX];
    int drawn = 0;
    for (size_t i = 0; i < step->span_count && drawn < rows; i++) {
        const PhaseSpan *span = &step->spans[i];
        int64_t end = span->to_us > 0 ? span->to_us : screen->s->t_us;
        draw_field(d, 2, y, LABEL_W - 1, false, ROLE_TEXT, loop_phase_name(span->phase));
        draw_bar(d, y, scale, span->from_us, span->to_us, screen->s->t_us,
                 phase_role(span->phase));
        draw_field(d, d->r.w - RIGHT_W, y, RIGHT_W - 1, true, ROLE_TEXT,
                   format_took(end - span->from_us, a));
        y++;
        drawn++;
    }
    return drawn;
}

/* Who holds samples longest is what the step waits for: open spans first, then the latest end.
 * The k-th of that order; the lists are short. */
static const EngineSpan *holder(const Snapshot *s, int k)
{
    bool taken[256] = {false};
    size_t count = s->span_count < 256 ? s->span_count : 256;
    size_t best = 0;
    for (int n = 0; n <= k; n++) {
        best = count;
        for (size_t i = 0; i < count; i++) {
            int64_t end = s->spans[i].to_us > 0 ? s->spans[i].to_us : INT64_MAX;
            int64_t best_end = best == count          ? -1
                               : s->spans[best].to_us > 0 ? s->spans[best].to_us
                                                          : INT64_MAX;
            if (!taken[i] && end > best_end) {
                best = i;
            }
        }
        if (best == count) {
            return NULL;
        }
        taken[best] = true;
    }
    return &s->spans[best];
}

static int draw_holders(const Draw *d, int y, int rows, const Screen *screen, const Scale *scale)
{
    const Snapshot *s = screen->s;
    char text[FORMAT_MAX];
    char right[2 * FORMAT_MAX];
    int drawn = 0;
    while (drawn < rows && drawn < ENGINE_ROWS) {
        const EngineSpan *span = holder(s, drawn);
        if (!span) {
            break;
        }
        const EngineRow *row = snapshot_engine(s, span->engine);
        const StateLook *look = row ? state_look(state_shown(row, s->t_us)) : NULL;
        bool bad = look && look->rank <= 2;
        draw_field(d, 4, y, LABEL_W - 3, false, ROLE_DIM, snapshot_engine_name(s, span->engine));
        draw_bar(d, y, scale, span->from_us, span->to_us, s->t_us, bad ? look->role : ROLE_DIM);
        (void)str_format(right, sizeof right, "%s sample%s",
                         format_count((double)span->samples, text), span->samples == 1 ? "" : "s");
        draw_field(d, d->r.w - RIGHT_W, y, RIGHT_W - 1, true, bad ? look->role : ROLE_DIM,
                   bad ? look->word : right);
        y++;
        drawn++;
    }
    if (s->span_count > (size_t)drawn && drawn > 0) {
        int more = (int)s->span_count - drawn;
        draw_f(d, 4, y, ROLE_DIM, "%d more engine%s, done sooner", more, more == 1 ? "" : "s");
        drawn++;
    }
    return drawn;
}

/* One finished step: a letter a cell for the phase that took it. */
static void draw_finished(const Draw *d, int y, const Screen *screen, const StepRow *step,
                          double us_per_cell, bool cursor)
{
    char a[FORMAT_MAX];
    int w = d->r.w - LABEL_W - RIGHT_W - 1;
    int64_t end = step->ended_us > 0 ? step->ended_us : screen->s->t_us;
    bool bad = step->outcome && strcmp(step->outcome, "ok") != 0;
    draw_text(d, 0, y, ROLE_KEY, cursor ? ">" : "");
    draw_text(d, 1, y, ROLE_MARKED, mark_has(screen->m, PANE_STEPS, step->step) ? "*" : "");
    draw_f(d, 2, y, bad ? ROLE_CRIT : ROLE_TEXT, "%lld", (long long)step->step);
    for (size_t i = 0; i < step->span_count; i++) {
        const PhaseSpan *span = &step->spans[i];
        int64_t to = span->to_us > 0 ? span->to_us : end;
        int first = (int)((double)(span->from_us - step->started_us) / us_per_cell);
        int last = (int)((double)(to - step->started_us) / us_per_cell);
        char letter[2] = {phase_letter(span->phase), '\0'};
        for (int k = first < 0 ? 0 : first; k <= last && k < w; k++) {
            draw_text(d, LABEL_W + k, y, phase_role(span->phase), letter);
        }
    }
    if (bad) {
        draw_f(d, LABEL_W, y, ROLE_CRIT, "x %s ", step->outcome);
    }
    draw_field(d, d->r.w - RIGHT_W, y, RIGHT_W - 1, true, ROLE_TEXT,
               format_age(end - step->started_us, a));
}

static int64_t step_us(const StepRow *row, int64_t t_us)
{
    return (row->ended_us > 0 ? row->ended_us : t_us) - row->started_us;
}

/* Of the steps that are drawn: one further down that took ten times as long would make all of
 * them a dot. */
static double longest_step(const Screen *screen, int top, int rows)
{
    const Model *m = screen->m;
    const StepList *steps = &screen->s->steps;
    double longest = fmax(1, (double)step_us(&steps->rows[0], screen->s->t_us));
    for (int i = top; i < top + rows && i < m->shown_count[PANE_STEPS]; i++) {
        const StepRow *row = &steps->rows[m->shown[PANE_STEPS][i]];
        longest = fmax(longest, (double)step_us(row, screen->s->t_us));
    }
    return longest;
}

static void draw_newest(const Draw *d, int rows, const Screen *screen, double longest)
{
    const StepRow *step = &screen->s->steps.rows[0];
    int w = d->r.w - LABEL_W - RIGHT_W - 1;
    Scale scale = {step->started_us, longest / (w > 1 ? w : 1), LABEL_W, w};
    int used = draw_phases(d, 0, rows, screen, step, &scale);
    if (rows - used > 1) {
        Draw below = draw_sub(d, 0, 0, d->r.w, rows);
        (void)draw_holders(&below, used, rows - used - 1, screen, &scale);
    }
}

/* How many rows of its `h` go to the list of steps, under the newest one's phases. */
static int list_rows(const Model *m, int h)
{
    int rows = h / 3 > 2 ? h / 3 : 2;
    if (m->focus == PANE_STEPS && m->zoom) {
        rows = h / 2;
    }
    return h - rows - 1 >= 2 ? rows : h - 1;
}

void timeline_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    const Snapshot *s = screen->s;
    char title[64];
    char right[64];
    char a[FORMAT_MAX];
    int count = m->shown_count[PANE_STEPS];
    int finished = list_rows(m, d->r.h - 1);
    int place = model_place(m, s, PANE_STEPS);
    int top = scroll_top(place, count, finished);
    double longest = s->steps.count ? longest_step(screen, top, finished) : 1;
    (void)str_format(title, sizeof title, "TIMELINE  step %lld",
                     s->steps.count ? (long long)s->steps.rows[0].step : 0LL);
    (void)str_format(right, sizeof right, "0 to %s", format_age((int64_t)longest, a));
    Draw body = pane_frame(d, screen, PANE_STEPS, title, right);
    if (s->steps.count == 0) {
        draw_text(&body, 2, 0, ROLE_DIM, "no step had begun at this moment");
        return;
    }
    int upper = body.r.h - finished - 1;
    if (upper > 0) {
        draw_newest(&body, upper, screen, longest);
    }
    int w = body.r.w - LABEL_W - RIGHT_W - 1;
    for (int i = 0; i < finished && top + i < count; i++) {
        bool cursor = top + i == place && m->focus == PANE_STEPS;
        draw_hit(&body, 0, upper + i, body.r.w, HIT_ROW, PANE_STEPS, top + i);
        draw_finished(&body, upper + i, screen, &s->steps.rows[m->shown[PANE_STEPS][top + i]],
                      longest / (w > 1 ? w : 1), cursor);
        if (cursor) {
            draw_flag_row(&body, upper + i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + upper + i);
        }
    }
    draw_text(&body, 0, body.r.h - 1, ROLE_DIM,
              "g gen  s score  t train  w publish  y sync  e eval  v save");
}
