/* Detail pages: one thing, everything that the log knows about it at this moment. */
#include "core/diagnose/diagnose.h"
#include "tui/screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { US = 1000000, LABEL = 12, PROBES_LEAST = 12, LINES_LEAST = 10 };

/* Lines are numbered from the top of the page; `scroll` of them are above the window. */
typedef struct Page {
    Draw d;
    int y, scroll;
} Page;

static void page_line(Page *page, const char *label, Role role, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void page_line(Page *page, const char *label, Role role, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int y = page->y - page->scroll;
    int x = 1 + (label[0] ? LABEL : 0);
    int rows = 1;
    if (label[0] && n >= 0) { /* what has a label goes on below; rows of lists are one line each */
        Draw rest = draw_sub(&page->d, x, y < 0 ? 0 : y, page->d.r.w - x, page->d.r.h);
        rows = draw_wrap(&rest, 0, rest.r.h, y < 0 ? -y : 0, role, str_from(text));
        rows = rows < 1 ? 1 : rows;
    } else if (n >= 0 && y >= 0) {
        draw_text(&page->d, x, y, role, text);
    }
    if (y >= 0) {
        draw_text(&page->d, 1, y, ROLE_DIM, label);
    }
    page->y += rows;
}

static void page_gap(Page *page)
{
    page->y++;
}

/* ---- engine -------------------------------------------------------------------------------- */

static void engine_numbers(Page *page, const Snapshot *s, const EngineRow *row)
{
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    char e[FORMAT_MAX];
    bool never = row->seen_us <= 0;
    Role role = state_shown(row, s->t_us) == ENGINE_STALE ? ROLE_STALE : ROLE_TEXT;
    page_line(page, "last word", role, "%s%s", never ? "never" :
              format_age(s->t_us - row->seen_us, a), never ? "" : " ago");
    page_line(page, "rates", role, "%s tok/s   itl %s   ttft %s   errors %s/min",
              format_count_val(row->tokens_per_s, a), format_ms(row->itl_ms, b),
              format_ms(row->ttft_ms, c), format_count_val(row->errors_per_min, e));
    page_line(page, "load", role, "%s running   %s waiting   kv %s%%   retracted %s/min",
              format_count_val(row->running, a), format_count_val(row->waiting, b),
              format_percent(row->kv_usage, c), format_count_val(row->retracted_per_min, e));
}

/* Is it still so? Only in the past of a run that goes on. */
static void engine_now(Page *page, const Screen *screen, const EngineRow *row)
{
    const EngineRow *now = &screen->s->now;
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    char e[FORMAT_MAX];
    if (!screen->s->has_now || now->engine != row->engine) {
        return;
    }
    const StateLook *look = state_look(state_shown(now, screen->now_us));
    page_line(page, "now", look->role, "%c %s  %s  %s tok/s  %s running  kv %s%%", look->sign,
              look->word, format_version(now->policy_version, a),
              format_count_val(now->tokens_per_s, b), format_count_val(now->running, c),
              format_percent(now->kv_usage, e));
}

static void engine_samples(Page *page, const Snapshot *s, const EngineRow *row)
{
    int held = 0;
    const TailRow *oldest = NULL;
    char a[FORMAT_MAX];
    for (size_t i = 0; i < s->tail.count; i++) {
        if (s->tail.rows[i].engine == row->engine) {
            held++;
            oldest = oldest ? oldest : &s->tail.rows[i];
        }
    }
    if (oldest) {
        page_line(page, "samples", ROLE_TEXT, "%d of the %d oldest in flight; oldest %lld/%lld, %s",
                  held, (int)s->tail.count, (long long)oldest->step, (long long)oldest->sample,
                  format_age(s->t_us - oldest->started_us, a));
    } else if (s->tail.total == 0) {
        page_line(page, "samples", ROLE_DIM, s->tail.trimmed ? "what was in flight was trimmed"
                                                             : "nothing is in flight");
    } else {
        page_line(page, "samples", ROLE_DIM, "none of the %d oldest in flight",
                  (int)s->tail.count);
    }
}

static void engine_actions(Page *page, const Screen *screen, const EngineRow *row)
{
    static const struct {
        Verb verb;
        char key;
    } acts[] = {{VERB_PAUSE, 'P'}, {VERB_UPDATE, 'U'}, {VERB_RESTART, 'R'}, {VERB_CORDON, 'C'}};
    const Model *m = screen->m;
    const char *locked = model_in_replay(m) ? act_past(m)
                         : m->ended         ? "the run has ended"
                         : !m->control      ? "this console looks only (--control acts)"
                         : !m->linked       ? "the core's control socket does not answer"
                                            : NULL;
    if (locked) {
        page_line(page, "actions", ROLE_DIM, "P U R C: %s", locked);
        return;
    }
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        Verb verb = acts[i].verb;
        if (verb == VERB_PAUSE && row->state == ENGINE_PAUSED) {
            verb = VERB_RESUME;
        } else if (verb == VERB_CORDON && act_cordoned(screen->s, row)) {
            verb = VERB_UNCORDON;
        }
        const char *why = act_refusal(screen->s, verb, row);
        page_line(page, i == 0 ? "actions" : " ", why ? ROLE_DIM : ROLE_TEXT, "%c %s%s%s",
                  acts[i].key, verb_word(verb), why ? ": not now, " : "", why ? why : "");
    }
}

static void engine_lines(Page *page, const Snapshot *s)
{
    char at[FORMAT_MAX];
    page_line(page, "", ROLE_DIM, "its last log lines");
    if (s->line_count == 0) {
        page_line(page, "", ROLE_DIM, "  none in the log up to this moment");
    }
    for (size_t i = 0; i < s->line_count; i++) {
        const ChildLineRow *line = &s->lines[i];
        page_line(page, "", line->is_stderr ? ROLE_TEXT : ROLE_DIM, "  %s %s",
                  format_clock(line->t_us, at), or_dash(line->line));
    }
}

/* Every probe is here: `,` and `.` go from one to the next, and T goes with them. */
static void engine_probes(Page *page, const Snapshot *s, size_t most)
{
    char at[FORMAT_MAX];
    char took[FORMAT_MAX];
    char version[FORMAT_MAX];
    char run[FORMAT_MAX];
    page_line(page, "", ROLE_DIM, "its probes, newest first       TOOK  ANSWER     RUN  REPORTS");
    if (s->probe_count == 0) {
        page_line(page, "", ROLE_DIM, "  none in the log up to this moment");
    }
    for (size_t i = 0; i < s->probe_count && i < most; i++) {
        const ProbeRow *row = &s->probes[i];
        bool ok = row->outcome && strcmp(row->outcome, "ok") == 0;
        page_line(page, "", ok ? ROLE_TEXT : ROLE_WARN, "  %s.%03d %-9s %9s  %-8.24s %5s  %s",
                  format_clock(row->t_us, at), (int)(row->t_us / 1000 % 1000),
                  probe_kind_name(row->kind),
                  format_ms(val_of((double)row->latency_us / 1000, row->t_us), took),
                  or_dash(row->outcome), format_count_val(row->running, run),
                  format_version(row->policy_version, version));
    }
}

void engine_detail_draw(const Draw *d, const Screen *screen, int64_t engine, int scroll, bool side)
{
    const Snapshot *s = screen->s;
    const EngineRow *row = snapshot_engine(s, engine);
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char why[256];
    char title[96];
    (void)str_format(title, sizeof title, "DETAIL  %s", snapshot_engine_name(s, engine));
    Draw body = plain_frame(d, title, side ? "Enter: full page" : "j k scroll  Esc comes back",
                            !side);
    Page page = {body, 0, scroll};
    if (!row) {
        page_line(&page, "", ROLE_DIM, "no engine is selected");
        return;
    }
    const StateLook *look = state_look(state_shown(row, s->t_us));
    Role role = engine_why(screen, row, why, sizeof why);
    page_line(&page, "state", look->role, "%c %s since %s (%s)", look->sign, look->word,
              format_clock(row->state_since_us, a), format_age(s->t_us - row->state_since_us, b));
    page_line(&page, "why", role, "%s", why[0] ? why : "nothing is wrong with it");
    page_line(&page, "policy", ROLE_TEXT, "verified %s, reports %s; committed is %s",
              format_version(row->policy_version, a), format_version(row->reported_version, b),
              format_version(s->header.policy_version, title));
    page_line(&page, "process", ROLE_TEXT, "%s   pid %lld   life %lld%s", or_dash(row->address),
              (long long)row->pid, (long long)row->incarnation,
              row->incarnations > 1 ? " (was replaced)" : "");
    engine_numbers(&page, s, row);
    engine_now(&page, screen, row);
    engine_samples(&page, s, row);
    engine_actions(&page, screen, row);
    page_gap(&page);
    if (side) { /* the lines say more where there is room for one list only */
        engine_lines(&page, s);
    } else {
        int lines = s->line_count < LINES_LEAST ? (int)s->line_count : LINES_LEAST;
        int room = body.r.h - page.y - lines - 4; /* titles and gaps of both lists */
        engine_probes(&page, s, room > PROBES_LEAST ? (size_t)room : PROBES_LEAST);
        page_gap(&page);
        engine_lines(&page, s);
    }
}

/* ---- step ---------------------------------------------------------------------------------- */

static void step_phases(Page *page, const Snapshot *s, const StepRow *row)
{
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    for (size_t i = 0; i < row->span_count; i++) {
        const PhaseSpan *span = &row->spans[i];
        int64_t end = span->to_us > 0 ? span->to_us : s->t_us;
        page_line(page, i == 0 ? "phases" : " ", ROLE_TEXT, "%s %-9s %8s%s",
                  format_clock(span->from_us, a), loop_phase_name(span->phase),
                  format_took(end - span->from_us, b), span->to_us > 0 ? "" : "  under way");
    }
}

static void step_sample(const Draw *d, int y, const SampleView *row, bool cursor)
{
    char a[FORMAT_MAX];
    bool bad = row->fate == FATE_REFUSED || row->fate == FATE_LOST;
    draw_text(d, 0, y, ROLE_KEY, cursor ? ">" : "");
    draw_f(d, 2, y, ROLE_TEXT, "%lld", (long long)row->sample);
    draw_f(d, 12, y, ROLE_TEXT, "g%lld", (long long)row->group);
    draw_field(d, 20, y, 9, false, ROLE_TEXT, or_dash(row->engine_name));
    draw_field(d, 30, y, 9, false, bad ? ROLE_WARN : ROLE_TEXT, sample_fate_name(row->fate));
    draw_field(d, 39, y, 7, true, ROLE_OK, format_ratio_val(row->reward, a));
    draw_field(d, 46, y, 8, true, ROLE_TEXT, row->ended_us > 0
               ? format_age(row->ended_us - row->started_us, a) : "open");
    (void)str_format(a, sizeof a, "%d", row->attempt);
    draw_field(d, 54, y, 4, true, row->attempt > 1 ? ROLE_PROGRESS : ROLE_DIM, a);
    draw_field(d, 59, y, 7, false, ROLE_DIM, row->eval ? "eval" : or_dash(row->finish));
    if (row->reason && row->reason[0]) {
        draw_text(d, 67, y, ROLE_WARN, row->reason);
    } else {
        draw_str(d, 67, y, ROLE_DIM, row->text);
    }
}

static void step_detail(const Draw *d, const Screen *screen, const Detail *detail)
{
    const Snapshot *s = screen->s;
    const StepRow *row = snapshot_step(s, detail->id);
    char title[64];
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    (void)str_format(title, sizeof title, "STEP %lld", (long long)detail->id);
    Draw body = plain_frame(d, title, "Enter: the sample   Esc comes back", true);
    Page page = {body, 0, 0};
    if (!row) {
        page_line(&page, "", ROLE_DIM, "this step is not among the newest at this moment");
    } else {
        bool bad = row->outcome && strcmp(row->outcome, "ok") != 0;
        page_line(&page, "outcome", bad ? ROLE_CRIT : ROLE_TEXT, "%s   %s to %s   policy %s",
                  row->outcome ? row->outcome : "under way", format_clock(row->started_us, a),
                  row->ended_us > 0 ? format_clock(row->ended_us, b) : "now",
                  format_version(row->policy_version, c));
        page_line(&page, "reward", ROLE_TEXT, "mean %s  std %s   held-out eval %s",
                  format_ratio_val(row->reward_mean, a), format_ratio_val(row->reward_std, b),
                  format_ratio_val(row->eval_reward_mean, c));
        page_line(&page, "samples", ROLE_TEXT, "%lld samples, %s tokens", (long long)row->samples,
                  format_count((double)row->tokens, a));
        step_phases(&page, s, row);
    }
    page_line(&page, "", ROLE_DIM, " SAMPLE    GROUP   ENGINE    FATE      REWARD    TOOK TRY  "
              "END     TEXT");
    int rows = body.r.h - page.y;
    int count = (int)s->samples.count;
    int top = scroll_top((int)detail->cursor, count, rows);
    if (count == 0) {
        page_line(&page, "", ROLE_DIM, s->samples.trimmed
                                           ? " its samples were trimmed from the log"
                                           : " no sample of it had begun at this moment");
    }
    for (int i = 0; i < rows && top + i < count; i++) {
        bool cursor = top + i == (int)detail->cursor;
        step_sample(&body, page.y + i, &s->samples.rows[top + i], cursor);
        if (cursor) {
            draw_flag_row(&body, page.y + i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + page.y + i);
        }
    }
    if ((size_t)count < s->samples.total && rows > 0) {
        draw_f(&body, body.r.w - 30, 0, ROLE_DIM, "first %d of %d samples", count,
               (int)s->samples.total);
    }
}

/* ---- policy -------------------------------------------------------------------------------- */

static void policy_answers(Page *page, const Snapshot *s)
{
    const TxnRow *txn = &s->txn;
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    page_line(page, "update", ROLE_TEXT, "#%lld  %s > %s  %s  engines %lld  closed for %s",
              (long long)txn->txn, format_version(txn->from_version, a),
              format_version(txn->to_version, b), txn->outcome ? txn->outcome : "under way",
              (long long)txn->engines, format_took(txn->pause_us, c));
    page_line(page, "decision", txn->decided == 0 ? ROLE_WARN : ROLE_TEXT, "%s%s%s%s%s",
              txn->decided < 0 ? "not yet" : txn->decided ? "commit" : "roll back",
              txn->decided < 0 ? "" : " at ",
              txn->decided < 0 ? "" : format_clock(txn->decided_us, a),
              txn->decision_reason && txn->decision_reason[0] ? ": " : "",
              txn->decision_reason ? txn->decision_reason : "");
    page_gap(page);
    page_line(page, "", ROLE_DIM, "TIME      ENGINE    PHASE      ANSWER     TOOK  DETAIL");
    for (size_t i = 0; i < txn->answer_count; i++) {
        const TxnAnswerRow *row = &txn->answers[i];
        page_line(page, "", row->ok ? ROLE_TEXT : ROLE_CRIT, "%s  %-8.8s  %-9s  %-6s %8s  %s",
                  format_clock(row->t_us, a),
                  row->engine > 0 ? snapshot_engine_name(s, row->engine) : "artifact",
                  txn_phase_name(row->phase), row->ok ? "+ ok" : "x no",
                  format_took(row->took_us, b), row->detail ? row->detail : "");
    }
    if (txn->answer_count == 0) {
        page_line(page, "", ROLE_DIM, "no engine had answered at this moment");
    }
}

static void policy_detail(const Draw *d, const Screen *screen, const Detail *detail)
{
    const Snapshot *s = screen->s;
    const PolicyRow *row = snapshot_policy(s, detail->id);
    char title[64];
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    (void)str_format(title, sizeof title, "POLICY v%lld", (long long)detail->id);
    Draw body = plain_frame(d, title, "j k scroll  Esc comes back", true);
    Page page = {body, 0, detail->scroll};
    if (!row) {
        page_line(&page, "", ROLE_DIM, "this version is not among the newest at this moment");
        return;
    }
    page_line(&page, "state", ROLE_TEXT, "%s since %s%s%s", policy_state_name(row->state),
              format_clock(row->state_us, a), row->reason && row->reason[0] ? ": " : "",
              row->reason ? row->reason : "");
    page_line(&page, "made", ROLE_TEXT, "by step %lld at %s from %s", (long long)row->step,
              format_clock(row->published_us, a), format_version(row->parent, b));
    page_line(&page, "files", ROLE_TEXT, "%s  %s bytes  %s", or_dash(row->kind),
              format_count((double)row->bytes, a), or_dash(row->path));
    page_line(&page, "digest", ROLE_TEXT, "%s", or_dash(row->digest));
    page_line(&page, "engines", ROLE_TEXT, "%lld hold it by their last verified word",
              (long long)row->engines);
    if (s->has_txn) {
        policy_answers(&page, s);
    } else {
        page_line(&page, "update", ROLE_DIM, "no update with it had begun at this moment");
    }
}

/* ---- alert, event, command ----------------------------------------------------------------- */

static const char *class_about(const char *class_name)
{
    for (int i = 0; i < DIAG_CLASS_COUNT; i++) {
        if (class_name && strcmp(diagnose_class_name((DiagClass)i), class_name) == 0) {
            return diagnose_class_about((DiagClass)i);
        }
    }
    return "";
}

/* A lone key is followed by what it does. The log names keys as they are by default. */
static const char *key_help(const char *key)
{
    Keymap map;
    keymap_defaults(&map);
    Action action = key && key[0] && !key[1] ? keymap_find(&map, key[0], false, false) : ACT_NONE;
    return action == ACT_NONE ? "" : keymap_info(action)->help;
}

static void alert_detail(const Draw *d, const Screen *screen, const Detail *detail)
{
    const Snapshot *s = screen->s;
    const AlertRow *row = snapshot_alert(s, detail->id);
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    const TailRow *sample = row ? snapshot_alert_sample(s, row) : NULL;
    char words[160];
    (void)str_format(words, sizeof words, "%sa acknowledges   Esc comes back",
                     sample                      ? "Enter: the sample that waits   "
                     : row && row->engine > 0    ? "Enter: its engine   "
                                                 : "");
    Draw body = plain_frame(d, "ALERT", words, true);
    Page page = {body, 0, 0};
    if (!row) {
        page_line(&page, "", ROLE_OK, "this alert is not open at this moment");
        return;
    }
    page_line(&page, "what", severity_role(row->severity), "[%c] %s %s",
              severity_letter(row->severity), or_dash(row->class_name),
              row->engine > 0 ? snapshot_engine_name(s, row->engine) : "");
    page_line(&page, "means", ROLE_TEXT, "%s", or_dash(class_about(row->class_name)));
    for (size_t i = 0; i < s->rules.count; i++) {
        const RuleRow *rule = &s->rules.rows[i];
        if (row->class_name && rule->class_name && strcmp(rule->class_name, row->class_name) == 0) {
            page_line(&page, "rule", ROLE_TEXT, "[alert %s] %s%s", row->class_name,
                      or_dash(rule->words), rule->changed ? " (the run's own)" : "");
        }
    }
    page_line(&page, "since", ROLE_TEXT, "%s (%s)", format_date(row->onset_us, a),
              format_age(s->t_us - row->onset_us, b));
    const CommandRow *note = note_of_alert(s, row->incident);
    if (note) {
        page_line(&page, "seen", ROLE_TEXT, "acknowledged by %s %s ago", or_dash(note->who),
                  format_age(s->t_us - note->asked_us, b));
    } else {
        page_line(&page, "seen", ROLE_TEXT, "%s", model_acked(screen->m, s, row->incident)
                  ? "acknowledged on this console" : "not acknowledged; a does");
    }
    if (sample) {
        tail_words(s, sample, words, sizeof words);
        page_line(&page, "sample", ROLE_HEADER, "%s", words);
        page_line(&page, " ", ROLE_KEY, "Enter goes to it");
    }
    page_gap(&page);
    if (row->known_us > 0) {
        page_line(&page, "", ROLE_DIM, "evidence, as of %s", format_clock(row->known_us, a));
    } else {
        page_line(&page, "", ROLE_DIM, "evidence, when it was worst");
    }
    int used = draw_wrap(&body, page.y, body.r.h - page.y, 0, ROLE_TEXT,
                         str_from(or_dash(row->evidence)));
    page.y += used + 1;
    if (row->next_key && row->next_key[0]) { /* a watch has none: it cannot act */
        page_line(&page, "press", ROLE_KEY, "%s  %s", row->next_key, key_help(row->next_key));
    }
}

static void event_detail(const Draw *d, const Screen *screen, const Detail *detail)
{
    const Snapshot *s = screen->s;
    const EventRow *row = snapshot_event(s, detail->id);
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    Draw body = plain_frame(d, "EVENT", "Esc comes back", true);
    Page page = {body, 0, 0};
    if (!row) {
        page_line(&page, "", ROLE_DIM, "this event is not among those read for this moment");
        return;
    }
    page_line(&page, "when", ROLE_TEXT, "%s (%s ago)", format_date(row->t_us, a),
              format_age(s->t_us - row->t_us, b));
    page_line(&page, "severity", severity_role(row->severity), "%s", severity_name(row->severity));
    page_line(&page, "source", ROLE_TEXT, "%s%s%s", or_dash(row->source),
              row->engine > 0 ? ", Enter goes to " : "",
              row->engine > 0 ? snapshot_engine_name(s, row->engine) : "");
    page_gap(&page);
    draw_wrap(&body, page.y, body.r.h - page.y, detail->scroll, ROLE_TEXT,
              str_from(or_dash(row->text)));
}

static void command_detail(const Draw *d, const Screen *screen, const Detail *detail)
{
    const CommandRow *row = snapshot_command(screen->s, detail->id);
    char title[64];
    char a[FORMAT_MAX];
    (void)str_format(title, sizeof title, "COMMAND %lld", (long long)detail->id);
    Draw body = plain_frame(d, title, "Esc comes back", true);
    Page page = {body, 0, 0};
    if (!row) {
        page_line(&page, "", ROLE_DIM, "this command is not among those read for this moment");
        return;
    }
    page_line(&page, "asked", ROLE_TEXT, "%s by %s", format_date(row->asked_us, a),
              or_dash(row->who));
    page_line(&page, "what", ROLE_HEADER, "%s %s", or_dash(row->what), or_dash(row->target));
    page_line(&page, "reason", ROLE_TEXT, "%s", or_dash(row->reason));
    page_line(&page, "state", ROLE_TEXT, "%s since %s", or_dash(row->state),
              format_date(row->updated_us, a));
    page_gap(&page);
    page_line(&page, "", ROLE_DIM, "answer");
    draw_wrap(&body, page.y, body.r.h - page.y, detail->scroll, ROLE_TEXT,
              str_from(or_dash(row->answer)));
}

void detail_draw(const Draw *d, const Screen *screen)
{
    const Detail *detail = &screen->m->detail[screen->m->depth - 1];
    const Snapshot *s = screen->s;
    if (s->loading && (s->detail != detail->kind || s->detail_id != detail->id)) {
        Draw body = plain_frame(d, "DETAIL", "Esc comes back", true);
        draw_text(&body, 1, 0, ROLE_DIM, "loading");
        return;
    }
    switch (detail->kind) {
    case DETAIL_ENGINE: engine_detail_draw(d, screen, detail->id, detail->scroll, false); break;
    case DETAIL_SAMPLE: detail_sample_draw(d, screen, detail); break;
    case DETAIL_STEP: step_detail(d, screen, detail); break;
    case DETAIL_POLICY: policy_detail(d, screen, detail); break;
    case DETAIL_EVENT: event_detail(d, screen, detail); break;
    case DETAIL_COMMAND: command_detail(d, screen, detail); break;
    case DETAIL_ALERT: alert_detail(d, screen, detail); break;
    case DETAIL_COMPARE: compare_draw(d, screen, detail); break;
    case DETAIL_NONE: break;
    }
}
