/* Two engines, steps or policies side by side: what each has, and how far the second is from the
 * first. All of it is on the picture already. */
#include "tui/screen.h"

#include <math.h>
#include <string.h>

enum { US = 1000000, LABEL = 14, LEAST = 18 };

typedef struct Table {
    Draw d;
    int y, scroll, w; /* w: of one of the two columns */
} Table;

/* "=", "+12%", "x3.1", "-" when one is unknown or there is no ratio. */
static const char *change_text(Val a, Val b, char out[FORMAT_MAX])
{
    if (!a.known || !b.known) {
        return "-";
    }
    if (a.v == b.v) {
        return "=";
    }
    double ratio = a.v != 0 ? b.v / a.v : 0;
    if (ratio <= 0) {
        (void)str_format(out, FORMAT_MAX, "%+.3g", b.v - a.v);
    } else if (ratio >= 2 || ratio <= 0.5) {
        (void)str_format(out, FORMAT_MAX, "x%.2g", ratio);
    } else {
        (void)str_format(out, FORMAT_MAX, "%+.1f%%", (ratio - 1) * 100);
    }
    return out;
}

static void line(Table *t, const char *label, const char *a, const char *b, const char *change)
{
    int y = t->y++ - t->scroll;
    bool differs = strcmp(change, "=") != 0 && strcmp(change, "-") != 0;
    Role role = differs ? ROLE_HEADER : ROLE_TEXT;
    if (y < 0) {
        return;
    }
    draw_text(&t->d, 1, y, ROLE_DIM, label);
    draw_field(&t->d, 1 + LABEL, y, t->w - 2, false, role, a);
    draw_field(&t->d, 1 + LABEL + t->w, y, t->w - 2, false, role, b);
    draw_text(&t->d, 1 + LABEL + 2 * t->w, y, differs ? ROLE_HEADER : ROLE_DIM, change);
}

static void words(Table *t, const char *label, const char *a, const char *b)
{
    line(t, label, or_dash(a), or_dash(b), strcmp(or_dash(a), or_dash(b)) == 0 ? "=" : "differs");
}

typedef const char *(*ValText)(Val v, char out[FORMAT_MAX]);

static void values(Table *t, const char *label, Val a, Val b, ValText format, const char *unit)
{
    char one[FORMAT_MAX];
    char other[FORMAT_MAX];
    char change[FORMAT_MAX];
    char x[2 * FORMAT_MAX];
    char y[2 * FORMAT_MAX];
    (void)str_format(x, sizeof x, "%s%s", format(a, one), a.known ? unit : "");
    (void)str_format(y, sizeof y, "%s%s", format(b, other), b.known ? unit : "");
    const char *shown = change_text(a, b, change);
    if (format == format_percent && a.known && b.known && a.v != b.v) {
        (void)str_format(change, sizeof change, "%+.0f points", (b.v - a.v) * 100);
        shown = change; /* a share of a share says nothing */
    }
    line(t, label, x, y, shown);
}

static const char *seconds_text(Val v, char out[FORMAT_MAX])
{
    return v.known ? format_took((int64_t)(v.v * US), out) : "-";
}

static Val count_of(int64_t v)
{
    return (Val){(double)v, v >= 0, 0};
}

static void missing(Table *t, bool a, bool b)
{
    t->y++;
    if (!a || !b) {
        draw_f(&t->d, 1, t->y, ROLE_WARN, "%s not among the newest at this moment",
               a ? "the second is" : b ? "the first is" : "both are");
    }
}

static void compare_engines(Table *t, const Snapshot *s, const EngineRow *a, const EngineRow *b)
{
    char x[FORMAT_MAX];
    char y[FORMAT_MAX];
    words(t, "state", state_look(state_shown(a, s->t_us))->word,
          state_look(state_shown(b, s->t_us))->word);
    words(t, "why", a->reason, b->reason);
    words(t, "policy", format_version(a->policy_version, x), format_version(b->policy_version, y));
    values(t, "throughput", a->tokens_per_s, b->tokens_per_s, format_count_val, " tok/s");
    values(t, "running", a->running, b->running, format_count_val, " samples");
    values(t, "waiting", a->waiting, b->waiting, format_count_val, " samples");
    values(t, "kv cache", a->kv_usage, b->kv_usage, format_percent, "%");
    values(t, "itl", a->itl_ms, b->itl_ms, format_ms, "");
    values(t, "ttft", a->ttft_ms, b->ttft_ms, format_ms, "");
    values(t, "retracted", a->retracted_per_min, b->retracted_per_min, format_count_val, "/min");
    values(t, "errors", a->errors_per_min, b->errors_per_min, format_count_val, "/min");
    values(t, "lives", count_of(a->incarnations), count_of(b->incarnations), format_count_val, "");
    words(t, "address", a->address, b->address);
}

static Val took(const Snapshot *s, const StepRow *row)
{
    int64_t end = row->ended_us > 0 ? row->ended_us : s->t_us;
    return val_of((double)(end - row->started_us) / US, 0);
}

/* All spells of a phase within a step; unknown when there was none. */
static Val phase_took(const Snapshot *s, const StepRow *row, LoopPhase phase)
{
    Val sum = val_none();
    for (size_t i = 0; i < row->span_count; i++) {
        const PhaseSpan *span = &row->spans[i];
        if (span->phase == phase) {
            int64_t end = span->to_us > 0 ? span->to_us : s->t_us;
            sum = val_of(sum.v * sum.known + (double)(end - span->from_us) / US, 0);
        }
    }
    return sum;
}

static void compare_steps(Table *t, const Snapshot *s, const StepRow *a, const StepRow *b)
{
    char x[FORMAT_MAX];
    char y[FORMAT_MAX];
    words(t, "outcome", a->outcome ? a->outcome : "under way",
          b->outcome ? b->outcome : "under way");
    words(t, "policy", format_version(a->policy_version, x), format_version(b->policy_version, y));
    values(t, "took", took(s, a), took(s, b), seconds_text, "");
    for (int phase = 0; phase <= PHASE_DONE; phase++) {
        Val one = phase_took(s, a, (LoopPhase)phase);
        Val other = phase_took(s, b, (LoopPhase)phase);
        if (one.known || other.known) {
            char label[LABEL];
            (void)str_format(label, sizeof label, "  %s", loop_phase_name((LoopPhase)phase));
            values(t, label, one, other, seconds_text, "");
        }
    }
    values(t, "samples", count_of(a->samples), count_of(b->samples), format_count_val, "");
    values(t, "tokens", count_of(a->tokens), count_of(b->tokens), format_count_val, "");
    values(t, "reward", a->reward_mean, b->reward_mean, format_ratio_val, "");
    values(t, "reward std", a->reward_std, b->reward_std, format_ratio_val, "");
    values(t, "held-out eval", a->eval_reward_mean, b->eval_reward_mean, format_ratio_val, "");
}

static void compare_policies(Table *t, const Screen *screen, const PolicyRow *a,
                             const PolicyRow *b)
{
    const Snapshot *s = screen->s;
    const StepRow *one = snapshot_step(s, a->step);
    const StepRow *other = snapshot_step(s, b->step);
    char x[FORMAT_MAX];
    char y[FORMAT_MAX];
    words(t, "state", policy_state_name(a->state), policy_state_name(b->state));
    words(t, "why", a->reason, b->reason);
    (void)str_format(x, sizeof x, "%lld", (long long)a->step);
    (void)str_format(y, sizeof y, "%lld", (long long)b->step);
    words(t, "made by step", x, y);
    words(t, "published", format_date(a->published_us, x), format_date(b->published_us, y));
    values(t, "engines", count_of(a->engines), count_of(b->engines), format_count_val, "");
    values(t, "bytes", count_of(a->bytes), count_of(b->bytes), format_count_val, "");
    words(t, "kind", a->kind, b->kind);
    words(t, "digest", a->digest, b->digest);
    values(t, "reward then", one ? one->reward_mean : val_none(),
           other ? other->reward_mean : val_none(), format_ratio_val, "");
    values(t, "held-out eval", one ? one->eval_reward_mean : val_none(),
           other ? other->eval_reward_mean : val_none(), format_ratio_val, "");
    t->y++;
    if (a->state == POLICY_RETIRED || b->state == POLICY_RETIRED) {
        const PolicyRow *gone = a->state == POLICY_RETIRED ? a : b;
        draw_f(&t->d, 1, t->y - t->scroll, ROLE_DIM,
               "no tensors to compare: the weights of %s are no longer kept",
               format_version(gone->version, x));
        return;
    }
    const char *name = strrchr(screen->m->log_path, '/');
    draw_f(&t->d, 1, t->y - t->scroll, ROLE_DIM,
           "tensor by tensor: rolltop policy diff %lld %lld --log %s", (long long)a->version,
           (long long)b->version, name ? name + 1 : screen->m->log_path);
}

void compare_draw(const Draw *d, const Screen *screen, const Detail *detail)
{
    static const char *const titles[PANE_COUNT] = {[PANE_ENGINES] = "ENGINES",
                                                   [PANE_STEPS] = "STEPS",
                                                   [PANE_LEARNING] = "STEPS",
                                                   [PANE_POLICIES] = "POLICIES"};
    const Snapshot *s = screen->s;
    char title[64];
    char a[48];
    char b[48];
    const char *letter = detail->pane == PANE_POLICIES ? "v" : "";
    (void)str_format(title, sizeof title, "COMPARE %s", titles[detail->pane]);
    Draw body = plain_frame(d, title, "j k scroll  Esc comes back", true);
    int w = (body.r.w - LABEL - 12) / 2;
    Table t = {body, 0, detail->scroll, w < LEAST ? LEAST : w > 40 ? 40 : w};
    if (detail->pane == PANE_ENGINES) {
        const EngineRow *one = snapshot_engine(s, detail->id);
        const EngineRow *other = snapshot_engine(s, detail->other);
        line(&t, "", one ? or_dash(one->name) : "-", other ? or_dash(other->name) : "-", "CHANGE");
        if (one && other) {
            compare_engines(&t, s, one, other);
        } else {
            missing(&t, one, other);
        }
        return;
    }
    (void)str_format(a, sizeof a, "%s%lld", letter, (long long)detail->id);
    (void)str_format(b, sizeof b, "%s%lld", letter, (long long)detail->other);
    line(&t, "", a, b, "CHANGE");
    if (detail->pane == PANE_POLICIES) {
        const PolicyRow *one = snapshot_policy(s, detail->id);
        const PolicyRow *other = snapshot_policy(s, detail->other);
        if (one && other) {
            compare_policies(&t, screen, one, other);
        } else {
            missing(&t, one, other);
        }
        return;
    }
    const StepRow *one = snapshot_step(s, detail->id);
    const StepRow *other = snapshot_step(s, detail->other);
    if (one && other) {
        compare_steps(&t, s, one, other);
    } else {
        missing(&t, one, other);
    }
}
