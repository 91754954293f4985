#include "tui/rows.h"

#include "tui/format.h"
#include "tui/plain.h"
#include "tui/state.h"

void rows_header(Pane pane, Text *out)
{
    static const char *const fields[PANE_COUNT] = {
        [PANE_ENGINES] = "engine\tstate\tpolicy\ttokens_per_s\trunning\twaiting\tkv_percent\t"
                         "itl_ms\tttft_ms\tseen_s\tlives\tpid\taddress\treason",
        [PANE_TAIL] = "step\tsample\tgroup\tengine\tpolicy\tkind\tage_s\ttokens\tattempt",
        [PANE_STEPS] = "step\tpolicy\toutcome\tstarted\ttook_s\tsamples\ttokens\treward\t"
                       "reward_std\teval",
        [PANE_EVENTS] = "time\tseverity\tsource\ttext",
        [PANE_POLICIES] = "version\tstate\tstep\tpublished\tengines\tbytes\tkind\tdigest\treason\t"
                          "path",
        [PANE_COMMANDS] = "time\tcommand\twho\twhat\ttarget\tstate\tanswer\treason",
    };
    (void)text_addf(out, "%s\n", fields[pane == PANE_LEARNING ? PANE_STEPS : pane]);
}

static void add_last(Text *out, const char *words)
{
    plain_foreign(out, words && words[0] ? words : "-");
}

static void add(Text *out, const char *words)
{
    add_last(out, words);
    (void)text_add(out, "\t", 1);
}

static void add_number(Text *out, Val v)
{
    char text[FORMAT_MAX] = "-";
    if (v.known) {
        (void)str_format(text, sizeof text, "%.6g", v.v);
    }
    add(out, text);
}

static void add_i64(Text *out, int64_t v)
{
    (void)text_addf(out, "%lld\t", (long long)v);
}

static void add_time(Text *out, int64_t t_us)
{
    char text[FORMAT_MAX];
    add(out, t_us > 0 ? format_date(t_us, text) : "-");
}

static void engine_line(const Snapshot *s, const EngineRow *row, Text *out)
{
    char text[FORMAT_MAX];
    EngineState shown = state_shown(row, s->t_us);
    bool silent = state_silent(shown);
    Val kv = row->kv_usage;
    Val seen = {(double)(s->t_us - row->seen_us) / 1e6, row->seen_us > 0, 0};
    const Val rates[] = {row->tokens_per_s, row->running, row->waiting,
                         {kv.v * 100, kv.known, kv.seen_us}, row->itl_ms, row->ttft_ms};
    add(out, row->name);
    add(out, state_look(shown)->word);
    add(out, format_version(row->policy_version, text));
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        add_number(out, silent ? val_none() : rates[i]);
    }
    add_number(out, seen);
    add_i64(out, row->incarnations);
    add_i64(out, row->pid);
    add(out, row->address);
    add_last(out, row->reason);
}

static void tail_line(const Snapshot *s, const TailRow *row, Text *out)
{
    char text[FORMAT_MAX];
    add_i64(out, row->step);
    add_i64(out, row->sample);
    add_i64(out, row->group);
    add(out, row->engine_name);
    add(out, format_version(row->policy_version, text));
    add(out, row->eval ? "eval" : "train");
    add_number(out, val_of((double)(s->t_us - row->started_us) / 1e6, 0));
    add_i64(out, row->tokens);
    (void)text_addf(out, "%d", row->attempt);
}

static void step_line(const Snapshot *s, const StepRow *row, Text *out)
{
    char text[FORMAT_MAX];
    int64_t end = row->ended_us > 0 ? row->ended_us : s->t_us;
    add_i64(out, row->step);
    add(out, format_version(row->policy_version, text));
    add(out, row->outcome ? row->outcome : "under way");
    add_time(out, row->started_us);
    add_number(out, val_of((double)(end - row->started_us) / 1e6, 0));
    add_i64(out, row->samples);
    add_i64(out, row->tokens);
    add_number(out, row->reward_mean);
    add_number(out, row->reward_std);
    (void)format_ratio_val(row->eval_reward_mean, text);
    add_last(out, text);
}

static void policy_line(const PolicyRow *row, Text *out)
{
    char text[FORMAT_MAX];
    add(out, format_version(row->version, text));
    add(out, policy_state_name(row->state));
    add_i64(out, row->step);
    add_time(out, row->published_us);
    add_i64(out, row->engines);
    add_i64(out, row->bytes);
    add(out, row->kind);
    add(out, row->digest);
    add(out, row->reason);
    add_last(out, row->path);
}

static void command_line(const CommandRow *row, Text *out)
{
    add_time(out, row->asked_us);
    add_i64(out, row->command);
    add(out, row->who);
    add(out, row->what);
    add(out, row->target);
    add(out, row->state);
    add(out, row->answer);
    add_last(out, row->reason);
}

void rows_line(const Snapshot *s, Pane pane, int index, Text *out)
{
    switch (pane) {
    case PANE_ENGINES: engine_line(s, &s->engines.rows[index], out); break;
    case PANE_TAIL: tail_line(s, &s->tail.rows[index], out); break;
    case PANE_STEPS:
    case PANE_LEARNING: step_line(s, &s->steps.rows[index], out); break;
    case PANE_EVENTS: {
        const EventRow *row = &s->events.rows[index];
        add_time(out, row->t_us);
        add(out, severity_word(row->severity));
        add(out, row->source);
        add_last(out, row->text);
        break;
    }
    case PANE_POLICIES: policy_line(&s->policies.rows[index], out); break;
    case PANE_COMMANDS: command_line(&s->commands.rows[index], out); break;
    case PANE_COUNT: break;
    }
    (void)text_add(out, "\n", 1);
}

int rows_chosen(const Model *model, const Snapshot *snap, bool all, Text *out)
{
    Pane pane = model->focus;
    int place = model_place(model, snap, pane);
    bool marked = mark_count(model, pane) > 0;
    int count = 0;
    for (int i = 0; i < model->shown_count[pane]; i++) {
        int index = model->shown[pane][i];
        bool chosen = marked ? mark_has(model, pane, model_row_id(snap, pane, index))
                             : all || i == place;
        if (chosen) {
            rows_line(snap, pane, index, out);
            count++;
        }
    }
    return count;
}
