/* The first lines answer: is it running and is this now; is anything broken, since when; which
 * phase and what is it waiting for; which policy, how stale. They never move. */
#include "tui/screen.h"

#include <stdlib.h>
#include <string.h>

enum { US = 1000000, BAR_MAX = 48, MEDIAN_MAX = SNAP_STEPS, EVIDENCE_LEAST = 20 };
static const int64_t TEN_MINUTES_US = 600 * (int64_t)US;

typedef enum Clock { CLOCK_LIVE, CLOCK_REPLAY, CLOCK_FROZEN, CLOCK_LOST, CLOCK_ENDED } Clock;

static Clock clock_state(const Screen *screen)
{
    const Snapshot *s = screen->s;
    if (model_in_replay(screen->m)) {
        return CLOCK_REPLAY;
    }
    if (screen->m->frozen) {
        return CLOCK_FROZEN;
    }
    if (s->ready && !s->run.core_alive) {
        return CLOCK_ENDED;
    }
    return s->ready && s->t_us - s->header.last_fact_us > LOST_LIMIT_US ? CLOCK_LOST : CLOCK_LIVE;
}

static void add_clock(SegmentLine *line, const Screen *screen)
{
    const Snapshot *s = screen->s;
    const Model *m = screen->m;
    char at[FORMAT_MAX];
    char last[FORMAT_MAX];
    char age[FORMAT_MAX];
    bool wide = screen->m->w >= 100;
    int64_t t = s->t_us;
    (void)(wide ? format_date(t, at) : format_clock(t, at));
    const char *z = wide ? "" : "Z";
    int64_t last_fact = s->header.last_fact_us;
    (void)format_clock(last_fact, last);
    switch (clock_state(screen)) {
    case CLOCK_LIVE: segment_add(line, 0, ROLE_OK, "> LIVE %s%s", at, z); break;
    case CLOCK_REPLAY: {
        int64_t newest = m->replay_only ? s->run.last_us : screen->now_us;
        int shift = m->speed_shift;
        segment_add(line, 0, ROLE_REPLAY, "<< REPLAY %s%s  -%s  %s  x%s%d", at, z,
                    format_age(newest > t ? newest - t : 0, age),
                    m->playing ? "playing" : "paused", shift < 0 ? "1/" : "",
                    1 << (shift < 0 ? -shift : shift));
        break;
    }
    case CLOCK_FROZEN:
        segment_add(line, 0, ROLE_PAUSED, "|| FROZEN %s%s for %s", at, z,
                    format_age(screen->now_us - t, age));
        break;
    case CLOCK_LOST:
        segment_add(line, 0, ROLE_CRIT, "!! LOST %s  last word %sZ", format_age(t - last_fact, age),
                    last);
        break;
    case CLOCK_ENDED: segment_add(line, 0, ROLE_PAUSED, "# ENDED %sZ", last); break;
    }
}

static void draw_first(const Draw *d, const Screen *screen)
{
    const Snapshot *s = screen->s;
    const HeaderView *h = &s->header;
    SegmentLine line = {.count = 0};
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char word[32];
    act_word(screen->m, screen->now_us, word, sizeof word);
    segment_add(&line, 0, ROLE_HEADER, "rolltop %s", or_dash(s->run.name));
    add_clock(&line, screen);
    if (h->not_recording_since_us > 0) {
        segment_add(&line, 0, ROLE_ERROR, "NOT RECORDING %s",
                    format_age(s->t_us - h->not_recording_since_us, a));
    }
    if (s->run.started_us > 0) {
        segment_add(&line, 5, ROLE_TEXT, "up %s", format_span(s->t_us - s->run.started_us, a));
    }
    if (h->phase_since_us > 0) { /* a watch has neither steps nor phases */
        segment_add(&line, 2, ROLE_TEXT, "step %lld", (long long)h->step);
    } else {
        segment_add(&line, 2, ROLE_DIM, "no step yet");
    }
    int64_t lag = h->trainer_version - h->policy_version;
    bool lags = h->policy_version >= 0 && lag > 0;
    if (h->policy_version < 0) {
        segment_add(&line, 1, ROLE_TEXT, "no policy yet");
    } else {
        segment_add(&line, 1, lags ? ROLE_PROGRESS : ROLE_TEXT, "pol %s lag %lld",
                    format_version(h->policy_version, a), (long long)(lags ? lag : 0));
    }
    if (h->trainer_version >= 0) {
        segment_add(&line, 6, ROLE_DIM, "trainer %s", format_version(h->trainer_version, b));
    }
    segment_add(&line, 7, ROLE_DIM, "log %s", format_age(s->t_us - h->last_fact_us, a));
    int right = (int)strlen(word);
    int x = segment_draw(d, 0, d->r.w - right - 2, 2, &line);
    (void)x;
    draw_text(d, d->r.w - right, 0, ROLE_KEY, word);
    if (model_in_replay(screen->m)) { /* the past is told by the whole line, not by colour only */
        draw_flag_row(d, 0, CELL_SELECTED);
    }
}

static int compare_double(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;
    return (*left > *right) - (*left < *right);
}

static void add_steps(SegmentLine *line, const Screen *screen)
{
    double all[MEDIAN_MAX];
    int count = 0;
    char text[96];
    char a[FORMAT_MAX];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < screen->s->steps.count && count < MEDIAN_MAX; i++) {
        const StepRow *row = &screen->s->steps.rows[i];
        if (row->step < 0 || row->ended_us <= row->started_us) {
            continue; /* the evaluation before training is no step */
        }
        all[count++] = (double)(row->ended_us - row->started_us) / US;
        if (count <= 5) {
            (void)str_format(text + used, sizeof text - used, " %s",
                             format_seconds(all[count - 1], a));
            used = strlen(text);
        }
    }
    if (count > 0) {
        qsort(all, (size_t)count, sizeof all[0], compare_double);
        segment_add(line, 4, ROLE_TEXT, "step p50 %s of %d", format_seconds(all[count / 2], a),
                    count);
        segment_add(line, 6, ROLE_DIM, "last%s", text);
    }
}

static int gap_of(const Draw *d)
{
    return d->r.w >= 100 ? 3 : 2;
}

static void draw_phase(const Draw *d, int y, const Screen *screen)
{
    const HeaderView *h = &screen->s->header;
    SegmentLine line = {.count = 0};
    char bar[BAR_MAX + 1];
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    int cells = d->r.w / 5 < BAR_MAX ? d->r.w / 5 : BAR_MAX;
    double passed = (double)(screen->s->t_us - h->phase_since_us) / US;
    double median = h->phase_median_s;
    const char *word = h->paused ? "PAUSED" : phase_word(h->phase);
    Role role = h->paused ? ROLE_PAUSED : ROLE_HEADER;
    if (median > 0 && !h->paused && h->phase != PHASE_DONE) {
        int full = passed >= median ? cells : (int)(passed / median * cells);
        for (int i = 0; i < cells; i++) {
            bar[i] = i < full ? '#' : '-';
        }
        bar[cells] = '\0';
        segment_add(&line, 0, role, "%s", word);
        segment_add(&line, 2, ROLE_GRAPH, "[%s]", bar);
        segment_add(&line, 0, passed > 2 * median ? ROLE_WARN : ROLE_TEXT, "%s of ~%s",
                    format_took((int64_t)(passed * US), a), format_took((int64_t)(median * US), b));
    } else {
        segment_add(&line, 0, role, "%s", word);
        segment_add(&line, 0, ROLE_TEXT, "%s",
                    h->phase_since_us > 0 ? format_seconds(passed, a) : "-");
    }
    if (h->samples_want > 0) {
        segment_add(&line, 1, ROLE_TEXT, "samples %lld of %lld", (long long)h->samples_done,
                    (long long)h->samples_want);
    }
    if (h->phase != PHASE_DONE && h->phase_since_us > 0) {
        LoopPhase next = phase_after(h->phase);
        LoopPhase then = phase_after(next);
        segment_add(&line, 3, ROLE_DIM, "next: %s > %s > %s", loop_phase_name(next),
                    loop_phase_name(then), loop_phase_name(phase_after(then)));
    }
    add_steps(&line, screen);
    (void)segment_draw(d, y, d->r.w, gap_of(d), &line);
}

static void add_value(SegmentLine *line, int drop, const char *label, const char *value, Val v,
                      int64_t t_us)
{
    char text[96];
    with_age(text, sizeof text, value, v, t_us);
    bool old = v.known && v.seen_us > 0 && t_us - v.seen_us > STALE_LIMIT_US;
    segment_add(line, drop, old ? ROLE_STALE : ROLE_TEXT, "%s%s", label, text);
}

static void draw_rates(const Draw *d, int y, const Screen *screen)
{
    const HeaderView *h = &screen->s->header;
    int64_t t = screen->s->t_us;
    SegmentLine line = {.count = 0};
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    char text[96];
    if (model_in_replay(screen->m) && h->phase_since_us > 0) { /* line 2 holds the strip there */
        segment_add(&line, 0, ROLE_HEADER, "%s %s", h->paused ? "PAUSED" : phase_word(h->phase),
                    format_age(t - h->phase_since_us, a));
    }
    (void)str_format(text, sizeof text, "%s tok/s", format_count_val(h->tokens_per_s, a));
    if (h->tokens_per_s.known && h->tokens_per_s_10min.known && h->tokens_per_s_10min.v > 0) {
        double change = 100 * (h->tokens_per_s.v / h->tokens_per_s_10min.v - 1);
        (void)str_format(text, sizeof text, "%s tok/s %+.0f%%%s", a, change,
                         d->r.w < 100 ? "" : t - screen->s->run.first_us < TEN_MINUTES_US
                         ? " vs the run so far" : " vs 10 min");
    }
    add_value(&line, 0, "", text, h->tokens_per_s, t);
    if (h->grain_s > 1) { /* what was in flight then is not known any more */
        segment_add(&line, 1, ROLE_WARN, h->grain_s > 60 ? "trimmed: to the hour"
                                                         : "trimmed: to the minute");
    } else {
        segment_add(&line, 1, ROLE_TEXT, "%lld in flight", (long long)h->samples_inflight);
    }
    if (h->tail_max_s >= 0 && d->r.w < 100) {
        segment_add(&line, 3, ROLE_TEXT, "tail p99 %s max %s", format_seconds(h->tail_p99_s, b),
                    format_seconds(h->tail_max_s, c));
    } else if (h->tail_max_s >= 0) {
        segment_add(&line, 3, ROLE_TEXT, "tail p50 %s p99 %s max %s",
                    format_seconds(h->tail_p50_s, a), format_seconds(h->tail_p99_s, b),
                    format_seconds(h->tail_max_s, c));
    }
    if (h->eval_reward_mean.known) {
        (void)str_format(text, sizeof text, "eval %s > %s",
                         format_ratio_val(h->eval_reward_first, a),
                         format_ratio_val(h->eval_reward_mean, b));
        segment_add(&line, 2, ROLE_OK, "%s", text);
        segment_add(&line, 7, ROLE_DIM, "held-out, %s ago",
                    format_age(t - h->eval_reward_mean.seen_us, c));
    }
    if (h->reward_mean.known) {
        segment_add(&line, 4, ROLE_TEXT, "reward %s", format_ratio_val(h->reward_mean, a));
        segment_add(&line, 8, ROLE_DIM, "%s ago", format_age(t - h->reward_mean.seen_us, b));
    }
    (void)str_format(text, sizeof text, "%s%%", format_percent(h->kv_usage, a));
    add_value(&line, 5, "kv ", text, h->kv_usage, t);
    (void)segment_draw(d, y, d->r.w, gap_of(d), &line);
}

/* Where the log's alerts are, seen from a moment that has none. */
static void add_other_alerts(SegmentLine *line, const Screen *screen)
{
    const Snapshot *s = screen->s;
    bool before = false;
    bool after = false;
    for (int i = 0; i < s->strip_cells && model_in_replay(screen->m); i++) {
        int64_t cell_us = (s->strip_to_us - s->strip_from_us) / s->strip_cells;
        bool past = s->strip_from_us + i * cell_us <= s->t_us;
        bool any = s->strip[i].warn + s->strip[i].crit > 0;
        before = before || (any && past);
        after = after || (any && !past);
    }
    if (before) {
        segment_add(line, 1, ROLE_KEY, "{ goes to the one before");
    }
    if (after) {
        segment_add(line, 1, ROLE_KEY, "} goes to the next");
    }
}

/* What is left of the line says why, as far as it goes: the key first, it is short. */
static void draw_evidence(const Draw *d, int x, int y, const AlertRow *row)
{
    bool key = row->next_key && row->next_key[0]; /* a watch has none: it cannot act */
    if (d->r.w - x >= EVIDENCE_LEAST) {
        draw_f(d, x, y, ROLE_TEXT, "%s%s%s%s", key ? "press " : "", key ? row->next_key : "",
               key ? "; " : "", or_dash(row->evidence));
    }
}

static void draw_alerts(const Draw *d, int y, const Screen *screen)
{
    const Snapshot *s = screen->s;
    SegmentLine line = {.count = 0};
    char age[FORMAT_MAX];
    int acked = 0;
    for (size_t i = 0; i < s->alerts.count; i++) {
        acked += model_acked(screen->m, s, s->alerts.rows[i].incident) ? 1 : 0;
    }
    long long open = s->header.alerts_open;
    if (!s->ready || s->run.first_us <= 0) {
        segment_add(&line, 0, ROLE_DIM, "waiting for the first facts of %s", screen->m->log_path);
    } else if (s->alerts.count == 0 && open == 0) {
        segment_add(&line, 0, ROLE_TEXT, "ALERTS 0");
        segment_add(&line, 1, ROLE_DIM, "none open at this moment");
        add_other_alerts(&line, screen);
    } else {
        bool crit = s->header.alerts_crit > 0;
        segment_add(&line, 0, crit ? ROLE_CRIT : ROLE_WARN, "ALERTS %lld",
                    open > (long long)s->alerts.count ? open : (long long)s->alerts.count);
    }
    for (size_t i = 0; i < s->alerts.count && i < 4; i++) {
        const AlertRow *row = &s->alerts.rows[i];
        const char *engine = row->engine > 0 ? snapshot_engine_name(s, row->engine) : "";
        bool seen = model_acked(screen->m, s, row->incident);
        segment_add(&line, (int)i + 1, seen ? ROLE_DIM : severity_role(row->severity),
                    "%s[%c] %s%s%s %s", seen ? "seen " : "", severity_letter(row->severity), engine,
                    engine[0] ? " " : "", or_dash(row->class_name),
                    format_age(s->t_us - row->onset_us, age));
    }
    if (s->alerts.count > 0) {
        const AlertRow *worst = &s->alerts.rows[0];
        segment_add(&line, 2, ROLE_KEY, "! shows it");
        if (acked > 0) {
            segment_add(&line, 8, ROLE_DIM, "acknowledged: %d", acked);
        }
        int x = segment_draw(d, y, d->r.w, gap_of(d), &line) + gap_of(d);
        draw_evidence(d, x, y, worst);
        return;
    }
    (void)segment_draw(d, y, d->r.w, gap_of(d), &line);
}

void header_draw(const Draw *d, const Screen *screen)
{
    if (!screen->s->ready || screen->s->run.first_us <= 0) { /* no number before there is one */
        draw_text(d, 0, 0, ROLE_HEADER, "rolltop  . LOADING");
        draw_alerts(d, 1, screen);
        return;
    }
    draw_first(d, screen);
    if (d->r.h < 4) {
        if (screen->s->alerts.count > 0 || !screen->s->ready) {
            draw_alerts(d, 1, screen);
        } else {
            draw_phase(d, 1, screen);
        }
        return;
    }
    if (model_in_replay(screen->m)) {
        strip_draw(d, 1, screen);
    } else {
        draw_phase(d, 1, screen);
    }
    draw_rates(d, 2, screen);
    draw_alerts(d, 3, screen);
}
