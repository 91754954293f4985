/* The confirmation box: what, on what, what is known and how old that is, what it costs, what
 * happens next, how it is undone, the exact calls, and what to type. */
#include "tui/screen.h"

#include <string.h>

enum { US = 1000000, BOX_W = 78, LABEL_X = 2, VALUE_X = 13, TARGET_LINES = 6 };

typedef struct VerbText {
    const char *effect, *undo, *calls;
} VerbText;

/* On the whole run some verbs mean something else. */
static const VerbText run_texts[] = {
    [VERB_PAUSE] = {"what runs is finished, nothing new is started", "':resume all'",
                    "pause to the core"},
    [VERB_RESUME] = {"the run goes on", "':pause all'", "resume to the core"},
    [VERB_UPDATE] = {"the committed policy is sent to every engine again", "none",
                     "on each: pause, flush_cache, update_weights, verify, continue"},
};

static const VerbText texts[VERB_COUNT] = {
    [VERB_PAUSE] = {"gets no new work; what it runs is finished", "u or P resumes",
                    "none to the engine; the frontend stops giving it work"},
    [VERB_RESUME] = {"gets work again", "u or P pauses", "none to the engine"},
    [VERB_UPDATE] = {"taken out, given the committed policy, verified, serves again", "none",
                     "pause, flush_cache, update_weights, verify, continue"},
    [VERB_RESTART] = {"killed and started; fenced until its policy is verified",
                      "none; what it runs is generated again", "SIGTERM, start, update"},
    [VERB_CORDON] = {"finishes what runs, takes nothing new", "u or C lifts it",
                     "none to the engine; the core stops giving it samples"},
    [VERB_UNCORDON] = {"takes samples again", "u or C cordons", "none to the engine"},
    [VERB_ABORT] = {"the attempt ends now; the sample is generated again", "none",
                    "POST /abort_request"},
    [VERB_STOP] = {"the run ends after saving; engines and trainer stop", "none; --resume goes on",
                   "stop to the core"},
};

static const VerbText version_text = {
    "every engine goes to it and is verified; the trainer keeps its weights, its next one follows",
    "':update vN' with the version that serves now",
    "on each: pause, flush_cache, update_weights, verify, continue"};

static const VerbText part_text = {"started again from its last state", "none",
                                   "SIGTERM, start"};

static const VerbText *text_of(const Confirm *confirm)
{
    const Target *target = &confirm->targets[0];
    if (confirm->version > 0) {
        return &version_text;
    }
    if (!confirm->all && target->engine == 0 && target->sample == 0) {
        return &part_text;
    }
    size_t count = sizeof run_texts / sizeof run_texts[0];
    bool other = confirm->all && (size_t)confirm->verb < count && run_texts[confirm->verb].effect;
    return other ? &run_texts[confirm->verb] : &texts[confirm->verb];
}

/* "the whole run", "the whole run to v17", "eng-02", `several`. */
static const char *object_of(const Confirm *confirm, const char *several, char out[80])
{
    char version[FORMAT_MAX];
    if (confirm->version > 0) {
        (void)str_format(out, 80, "the whole run to %s", format_version(confirm->version, version));
    } else {
        (void)str_format(out, 80, "%s", confirm->all          ? "the whole run"
                                        : confirm->count == 1 ? confirm->targets[0].name
                                                              : several);
    }
    return out;
}

/* What is known of the version that engines are brought to. */
static const char *version_words(const Screen *screen, int64_t version, char out[160])
{
    char age[FORMAT_MAX];
    char from[FORMAT_MAX];
    const PolicyRow *row = snapshot_policy(screen->s, version);
    (void)format_version(screen->s->header.policy_version, from);
    if (row) {
        (void)str_format(out, 160, "of step %lld, published %s ago, %.8s, %s; %s serves now",
                         (long long)row->step, format_age(screen->s->t_us - row->published_us, age),
                         or_dash(row->digest), policy_state_name(row->state), from);
    } else {
        (void)str_format(out, 160, "not in this picture; the core looks for it; %s serves now",
                         from);
    }
    return out;
}

void confirm_line(const Screen *screen, char *buffer, size_t size)
{
    const Confirm *confirm = &screen->m->confirm;
    char object[80];
    (void)str_format(buffer, size, "%s %s?  y does it, any other key cancels   %s; undo: %s",
                     verb_word(confirm->verb), object_of(confirm, "several", object),
                     text_of(confirm)->effect, text_of(confirm)->undo);
}

/* What the box says, before it is known how many rows that takes. */
typedef struct BoxLine {
    const char *label;
    Role role;
    char value[MODEL_INPUT_MAX + 64];
} BoxLine;
typedef struct BoxLines {
    BoxLine items[TARGET_LINES + 10];
    int count;
} BoxLines;

static void add(BoxLines *lines, const char *label, Role role, const char *value)
{
    BoxLine *line = &lines->items[lines->count++];
    line->label = label;
    line->role = role;
    (void)str_format(line->value, sizeof line->value, "%s", value);
}

/* Rows of all lines, wrapped, in a box as wide as `d`. */
static int count_rows(const Draw *d, const BoxLines *lines)
{
    Draw value = draw_sub(d, VALUE_X, 0, d->r.w - VALUE_X - 2, 1);
    int rows = 0;
    for (int i = 0; i < lines->count; i++) {
        int n = draw_wrap(&value, 0, 0, 0, ROLE_TEXT, str_from(lines->items[i].value));
        rows += n > 1 ? n : 1;
    }
    return rows;
}

/* Each wrapped, or each on one row and cut with the sign for it. Returns the rows used. */
static int draw_lines(const Draw *d, const BoxLines *lines, bool wrapped)
{
    int y = 0;
    for (int i = 0; i < lines->count; i++) {
        const BoxLine *line = &lines->items[i];
        Draw value = draw_sub(d, VALUE_X, y, d->r.w - VALUE_X - 2, d->r.h - y);
        draw_text(d, LABEL_X, y, ROLE_DIM, line->label);
        if (wrapped) {
            int rows = draw_wrap(&value, 0, value.r.h, 0, line->role, str_from(line->value));
            y += rows > 1 ? rows : 1;
        } else {
            draw_text(&value, 0, 0, line->role, line->value);
            y++;
        }
    }
    return y;
}

void confirm_words(const Screen *screen, Text *out)
{
    const Confirm *confirm = &screen->m->confirm;
    const VerbText *text = text_of(confirm);
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char object[80];
    char words[160];
    (void)text_addf(out, "%s %s, level %d\n", verb_word(confirm->verb),
                    object_of(confirm, "several", object), confirm->level);
    if (confirm->version > 0) {
        (void)text_addf(out, "version: %s\n", version_words(screen, confirm->version, words));
    }
    for (int i = 0; i < confirm->count && !confirm->all; i++) {
        const Target *target = &confirm->targets[i];
        const EngineRow *row = snapshot_engine(screen->s, target->engine);
        if (row) {
            (void)text_addf(out, "on: %s, %s, last data %s old\n", target->name,
                            state_look(state_shown(row, screen->s->t_us))->word,
                            format_age(screen->s->t_us - row->seen_us, a));
        } else {
            (void)text_addf(out, "on: %s\n", target->name);
        }
    }
    (void)text_addf(out, "picture: %s old\neffect: %s\ncalls: %s\nundo: %s\n",
                    format_age(screen->s->t_us - screen->s->header.last_fact_us, b),
                    text->effect, text->calls, text->undo);
    if (confirm->notice[0]) {
        (void)text_addf(out, "changed: %s\n", confirm->notice);
    }
    (void)text_addf(out, "type %s to %s, anything else cancels\n",
                    confirm->level == 1 ? "y" : confirm->want, verb_word(confirm->verb));
}

static void add_targets(BoxLines *lines, const Screen *screen)
{
    const Confirm *confirm = &screen->m->confirm;
    const Snapshot *s = screen->s;
    char text[160];
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    if (confirm->all) {
        (void)str_format(text, sizeof text, "the whole run: %d engines, %lld samples in flight",
                         (int)s->engines.count, (long long)s->header.samples_inflight);
        add(lines, "on", ROLE_CRIT, text);
        return;
    }
    for (int i = 0; i < confirm->count && i < TARGET_LINES; i++) {
        const Target *target = &confirm->targets[i];
        const EngineRow *row = target->engine > 0 ? snapshot_engine(s, target->engine) : NULL;
        const TailRow *sample = target->sample > 0 ? snapshot_tail(s, target->sample) : NULL;
        if (row) {
            const StateLook *look = state_look(state_shown(row, s->t_us));
            (void)str_format(text, sizeof text, "%s  %c %s for %s, %s running, last data %s old",
                             target->name, look->sign, look->word,
                             format_age(s->t_us - row->state_since_us, a),
                             format_count_val(row->running, b),
                             row->seen_us > 0 ? format_age(s->t_us - row->seen_us, c) : "never");
        } else if (sample) {
            (void)str_format(text, sizeof text, "%s on %s, %s old, %s tokens", target->name,
                             or_dash(sample->engine_name),
                             format_age(s->t_us - sample->started_us, a),
                             format_count((double)sample->tokens, b));
        } else {
            (void)str_format(text, sizeof text, "%s", target->name);
        }
        add(lines, i == 0 ? "on" : "", ROLE_TEXT, text);
    }
    if (confirm->count > TARGET_LINES) {
        (void)str_format(text, sizeof text, "and %d more", confirm->count - TARGET_LINES);
        add(lines, "", ROLE_TEXT, text);
    }
}

static void draw_prompt(const Draw *d, int y, const Screen *screen)
{
    const Confirm *confirm = &screen->m->confirm;
    int64_t left = MODEL_COUNTDOWN_US - (screen->now_us - confirm->countdown_us);
    if (confirm->countdown_us > 0) {
        draw_f(d, LABEL_X, y, ROLE_CRIT, "%s in %lld s; Esc stops it", verb_word(confirm->verb),
               (long long)(left > 0 ? (left + US - 1) / US : 0));
        return;
    }
    int x = LABEL_X;
    if (confirm->in_reason) {
        draw_text(d, x, y, ROLE_DIM, "Tab or Enter goes on to the word; Esc cancels");
        return;
    }
    x += draw_f(d, x, y, ROLE_CONFIRM, "type %s to %s, anything else cancels: ", confirm->want,
                verb_word(confirm->verb));
    x += draw_str(d, x, y, ROLE_INPUT, (Str){confirm->typed.text, confirm->typed.n});
    draw_text(d, x, y, ROLE_INPUT, "_");
    surface_cursor(d->surface, d->r.x + x, d->r.y + y);
}

static void fill_lines(BoxLines *lines, const Screen *screen)
{
    const Confirm *confirm = &screen->m->confirm;
    const Snapshot *s = screen->s;
    char text[MODEL_INPUT_MAX + 64];
    char age[FORMAT_MAX];
    char words[160];
    if (confirm->notice[0]) {
        add(lines, "changed", ROLE_CRIT, confirm->notice);
    }
    add_targets(lines, screen);
    if (confirm->version > 0) {
        add(lines, "version", ROLE_TEXT, version_words(screen, confirm->version, words));
    }
    (void)str_format(text, sizeof text, "%s old",
                     format_age(s->t_us - s->header.last_fact_us, age));
    add(lines, "picture", ROLE_TEXT, text);
    add(lines, "effect", ROLE_TEXT, text_of(confirm)->effect);
    add(lines, "calls", ROLE_TEXT, text_of(confirm)->calls);
    add(lines, "undo", ROLE_TEXT, text_of(confirm)->undo);
    (void)str_format(text, sizeof text, "%s%s", confirm->reason.text,
                     confirm->in_reason ? "_" : confirm->reason.n ? "" : "(Tab writes one)");
    add(lines, "reason", confirm->in_reason ? ROLE_INPUT : ROLE_TEXT, text);
}

void confirm_draw(const Draw *d, const Screen *screen)
{
    enum { FRAME = 4 }; /* title, a blank, the prompt, the foot */
    const Confirm *confirm = &screen->m->confirm;
    BoxLines lines = {.count = 0};
    char title[120];
    char level[32];
    char object[80];
    int w = d->r.w <= BOX_W + 4 ? d->r.w : BOX_W;
    fill_lines(&lines, screen);
    Draw inside = draw_sub(d, 0, 0, w, d->r.h);
    int rows = count_rows(&inside, &lines);
    bool wrapped = rows + FRAME <= d->r.h;
    int h = (wrapped ? rows : lines.count) + FRAME;
    h = h > d->r.h ? d->r.h : h;
    Draw box = draw_sub(d, (d->r.w - w) / 2, (d->r.h - h) / 2, w, h);
    draw_clear(&box);
    (void)str_format(title, sizeof title, "%s %s", verb_word(confirm->verb),
                     object_of(confirm, confirm->verb == VERB_ABORT ? "the marked samples"
                                                                    : "the marked engines",
                               object));
    (void)str_format(level, sizeof level, "level %d", confirm->level);
    Draw body = plain_frame(&box, title, level, true);
    int y = draw_lines(&body, &lines, wrapped);
    draw_prompt(&body, y + 1 < body.r.h ? y + 1 : body.r.h - 1, screen);
    box_close(&box);
    if (y + 1 >= body.r.h - 1) {
        draw_prompt(&body, body.r.h - 1, screen);
    }
}
