#include "core/base/utf8.h"
#include "tui/plain.h"

#include <math.h>
#include <string.h>

enum { LIST_MAX = 20 };

void plain_foreign(Text *out, const char *text)
{
    Str rest = str_from(text ? text : "");
    while (rest.n > 0) {
        char bytes[4];
        uint32_t code = 0;
        uint32_t clean = 0;
        int width = 0;
        bool partial = false;
        size_t used = utf8_decode(rest.p, rest.n, &code, &partial);
        used = used > 0 ? used : 1;
        if (!surface_sanitise(code, false, &clean, &width)) {
            (void)text_add(out, bytes, utf8_encode(clean, bytes));
        }
        rest = str_slice(rest, used, rest.n);
    }
}

/* "rising", "falling", "steady": the last quarter of the row's history against the first. */
static const char *trend(const EngineRow *row)
{
    double early = 0;
    double late = 0;
    int n = row->spark_count / 4;
    for (int i = 0; i < n; i++) {
        early += isfinite(row->spark[i]) ? (double)row->spark[i] : 0;
        late += isfinite(row->spark[row->spark_count - 1 - i])
                    ? (double)row->spark[row->spark_count - 1 - i] : 0;
    }
    return n == 0 || early <= 0 ? "" : late > 1.1 * early ? ", rising"
                                     : late < 0.9 * early ? ", falling" : ", steady";
}

void plain_engine(const Screen *screen, const EngineRow *row, Text *out)
{
    const Snapshot *s = screen->s;
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    char why[256];
    bool silent = state_silent(state_shown(row, s->t_us));
    plain_foreign(out, or_dash(row->name));
    (void)text_addf(out, ": %s for %s, policy %s", state_look(state_shown(row, s->t_us))->word,
                    format_age(s->t_us - row->state_since_us, a),
                    format_version(row->policy_version, b));
    if (!silent && row->tokens_per_s.known) {
        (void)text_addf(out, ", %s tokens a second%s", format_count_val(row->tokens_per_s, a),
                        trend(row));
    }
    if (!silent && row->running.known) {
        (void)text_addf(out, ", %s running, %s waiting, cache %s percent",
                        format_count_val(row->running, a), format_count_val(row->waiting, b),
                        format_percent(row->kv_usage, c));
    }
    (void)text_addf(out, ", last heard %s ago",
                    row->seen_us > 0 ? format_age(s->t_us - row->seen_us, a) : "never");
    (void)engine_why(screen, row, why, sizeof why);
    if (why[0]) {
        (void)text_add_c(out, "; ");
        plain_foreign(out, why);
    }
    (void)text_add_c(out, "\n");
}

void plain_engines(const Screen *screen, Text *out)
{
    const Model *m = screen->m;
    int count = m->shown_count[PANE_ENGINES];
    for (int i = 0; i < count; i++) {
        plain_engine(screen, &screen->s->engines.rows[m->shown[PANE_ENGINES][i]], out);
    }
    (void)text_addf(out, "%d of %d engines\n", count, (int)screen->s->engines.count);
}

void plain_samples(const Screen *screen, Text *out)
{
    const Snapshot *s = screen->s;
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    int count = screen->m->shown_count[PANE_TAIL];
    for (int i = 0; i < count && i < LIST_MAX; i++) {
        const TailRow *row = &s->tail.rows[screen->m->shown[PANE_TAIL][i]];
        int64_t quiet = s->t_us - (row->progress_us > 0 ? row->progress_us : row->started_us);
        (void)text_addf(out, "sample %lld of step %lld on ", (long long)row->sample,
                        (long long)row->step);
        plain_foreign(out, or_dash(row->engine_name));
        (void)text_addf(out, ": %s old, %s tokens, last token %s ago, attempt %d\n",
                        format_age(s->t_us - row->started_us, a),
                        format_count((double)row->tokens, b), format_age(quiet, c), row->attempt);
    }
    if (s->tail.trimmed) {
        text_add_c(out, "what was in flight then was trimmed from the log\n");
        return;
    }
    (void)text_addf(out, "%d oldest of %lld in flight\n", count < LIST_MAX ? count : LIST_MAX,
                    (long long)s->tail.total);
}

void plain_steps(const Screen *screen, Text *out)
{
    const Snapshot *s = screen->s;
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    for (size_t i = 0; i < s->steps.count && i < LIST_MAX; i++) {
        const StepRow *row = &s->steps.rows[i];
        int64_t end = row->ended_us > 0 ? row->ended_us : s->t_us;
        (void)text_addf(out, "step %lld: ", (long long)row->step);
        plain_foreign(out, row->outcome ? row->outcome : "under way");
        (void)text_addf(out, ", %s, policy %s", format_age(end - row->started_us, a),
                        format_version(row->policy_version, b));
        if (row->reward_mean.known) {
            (void)text_addf(out, ", reward %s", format_ratio_val(row->reward_mean, a));
        }
        if (row->eval_reward_mean.known) {
            (void)text_addf(out, ", eval %s", format_ratio_val(row->eval_reward_mean, a));
        }
        (void)text_add_c(out, "\n");
    }
}

void plain_policies(const Screen *screen, Text *out)
{
    const Snapshot *s = screen->s;
    char a[FORMAT_MAX];
    for (size_t i = 0; i < s->policies.count && i < LIST_MAX; i++) {
        const PolicyRow *row = &s->policies.rows[i];
        (void)text_addf(out, "version %s: %s, on %lld engines, step %lld",
                        format_version(row->version, a), policy_state_name(row->state),
                        (long long)row->engines, (long long)row->step);
        if (row->reason) {
            (void)text_add_c(out, "; ");
            plain_foreign(out, row->reason);
        }
        (void)text_add_c(out, "\n");
    }
}

void plain_event(const EventRow *row, Text *out)
{
    char at[FORMAT_MAX];
    (void)text_addf(out, "%s %s ", format_clock(row->t_us, at), severity_word(row->severity));
    plain_foreign(out, or_dash(row->source));
    (void)text_add_c(out, ": ");
    plain_foreign(out, or_dash(row->text));
    (void)text_add_c(out, "\n");
}

void plain_events(const Screen *screen, size_t count, Text *out)
{
    const EventList *events = &screen->s->events;
    size_t from = events->count > count ? events->count - count : 0;
    for (size_t i = from; i < events->count; i++) {
        plain_event(&events->rows[i], out);
    }
    (void)text_addf(out, "%d newest of %lld events\n", (int)(events->count - from),
                    (long long)events->total);
}

void plain_alerts(const Screen *screen, Text *out)
{
    const Snapshot *s = screen->s;
    char a[FORMAT_MAX];
    for (size_t i = 0; i < s->alerts.count; i++) {
        const AlertRow *row = &s->alerts.rows[i];
        (void)text_addf(out, "alert %s: ", severity_word(row->severity));
        plain_foreign(out, or_dash(row->class_name));
        (void)text_add_c(out, " ");
        plain_foreign(out, row->engine > 0 ? snapshot_engine_name(s, row->engine) : "the run");
        (void)text_addf(out, " for %s: ", format_age(s->t_us - row->onset_us, a));
        plain_foreign(out, or_dash(row->evidence));
        (void)text_add_c(out, "\n");
    }
    (void)text_addf(out, "%d alert%s\n", (int)s->alerts.count, s->alerts.count == 1 ? "" : "s");
}

void plain_commands(const Screen *screen, Text *out)
{
    const CommandList *commands = &screen->s->commands;
    char at[FORMAT_MAX];
    for (size_t i = 0; i < commands->count && i < LIST_MAX; i++) {
        const CommandRow *row = &commands->rows[i];
        (void)text_addf(out, "%s command %lld, ", format_clock(row->asked_us, at),
                        (long long)row->command);
        plain_foreign(out, or_dash(row->who));
        (void)text_add_c(out, ": ");
        plain_foreign(out, or_dash(row->what));
        (void)text_add_c(out, " ");
        plain_foreign(out, or_dash(row->target));
        (void)text_add_c(out, ", ");
        plain_foreign(out, or_dash(row->state));
        (void)text_add_c(out, row->answer ? ": " : "");
        plain_foreign(out, row->answer);
        (void)text_add_c(out, "\n");
    }
    (void)text_addf(out, "%d newest of %lld commands\n",
                    (int)(commands->count < LIST_MAX ? commands->count : LIST_MAX),
                    (long long)commands->total);
}

void plain_status(const Screen *screen, Text *out)
{
    const Snapshot *s = screen->s;
    const HeaderView *h = &s->header;
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char word[32];
    int ranks[6] = {0};
    for (size_t i = 0; i < s->engines.count; i++) {
        ranks[state_look(state_shown(&s->engines.rows[i], s->t_us))->rank]++;
    }
    act_word(screen->m, screen->now_us, word, sizeof word);
    (void)text_add_c(out, "run ");
    plain_foreign(out, or_dash(s->run.name));
    (void)text_addf(out, ", %s %s, keys %s\n",
                    model_in_replay(screen->m) ? "replay of" : s->run.core_alive ? "live"
                                                                                 : "ended",
                    format_date(s->t_us, a), word);
    if (h->phase_since_us > 0) { /* a watch has neither steps nor phases */
        (void)text_addf(out, "step %lld, phase %s for %s", (long long)h->step,
                        h->paused ? "PAUSED" : phase_word(h->phase),
                        format_age(s->t_us - h->phase_since_us, a));
    } else {
        (void)text_add_c(out, "no step has begun");
    }
    if (h->phase_median_s > 0) {
        (void)text_addf(out, " of about %s", format_seconds(h->phase_median_s, b));
    }
    (void)text_addf(out, ", policy %s\n", format_version(h->policy_version, a));
    (void)text_addf(out, "%s tokens a second, ", format_count_val(h->tokens_per_s, a));
    if (h->samples_inflight < 0) {
        text_add_c(out, "samples in flight trimmed");
    } else {
        (void)text_addf(out, "%lld samples in flight", (long long)h->samples_inflight);
    }
    (void)text_addf(out, ", reward %s, eval %s\n", format_ratio_val(h->reward_mean, a),
                    format_ratio_val(h->eval_reward_mean, b));
    (void)text_addf(out, "%d engines: %d well, %d in progress, %d stale, %d not well, %d broken, "
                    "%d gone\n", (int)s->engines.count, ranks[4], ranks[3], ranks[2], ranks[1],
                    ranks[0], ranks[5]);
    const DamageRow *damage = snapshot_damage(s);
    if (damage) {
        (void)text_addf(out, "the log is damaged near %s: rows of this moment are missing\n",
                        format_date(damage->from_us, a));
    }
    plain_alerts(screen, out);
}
