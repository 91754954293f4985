/* One sample: where it came from, what became of it, its text, its tokens with log-probs and the
 * policy version of each span. The text is the model's: hostile, sanitised where it is drawn. */
#include "tui/screen.h"

#include <math.h>

enum { US = 1000000, LABEL = 9 };

typedef struct SamplePage {
    Draw d;
    int y, skip; /* `skip` rows of the page are above the window */
} SamplePage;

static void block(SamplePage *page, const char *label, Role role, Str text)
{
    int y = page->y - page->skip;
    Draw rest = draw_sub(&page->d, LABEL, 0, page->d.r.w - LABEL, page->d.r.h);
    if (y >= 0) {
        draw_text(&page->d, 1, y, ROLE_DIM, label);
    }
    int above = y < 0 ? -y : 0;
    int at = y < 0 ? 0 : y;
    int rows = page->d.r.h - at;
    int used = text.n > 0 ? draw_wrap(&rest, at, rows > 0 ? rows : 0, above, role, text) : 0;
    if (text.n == 0 && y >= 0) {
        draw_text(&rest, 0, y, ROLE_DIM, "(empty)");
    }
    page->y += used > 0 ? used : 1;
}

static void line(SamplePage *page, const char *label, Role role, const char *text)
{
    block(page, label, role, str_from(text));
}

static void draw_spans(SamplePage *page, const SampleView *sample, const TailRow *flight)
{
    char text[96];
    char a[FORMAT_MAX];
    if (sample->span_count == 0 && flight) {
        (void)str_format(text, sizeof text, "%s on its engine; spans come with the end",
                         format_version(flight->policy_version, a));
        line(page, "policy", ROLE_TEXT, text);
    } else if (sample->span_count == 0) {
        line(page, "policy", ROLE_DIM, "no span is recorded");
    }
    for (size_t i = 0; i < sample->span_count && i < 32; i++) {
        const SampleSpan *span = &sample->spans[i];
        (void)str_format(text, sizeof text, "%d tokens, from number %d on, by %s",
                         (int)(span->to - span->from), (int)span->from + 1,
                         format_version(span->policy_version, a));
        line(page, i == 0 ? "policy" : "", sample->span_count > 1 ? ROLE_WARN : ROLE_TEXT, text);
    }
}

/* Tokens as id:log-prob, wrapped; the least likely ones stand out by a sign, not by colour. */
static void draw_tokens(SamplePage *page, const SampleView *sample)
{
    Text text;
    text_init(&text, 1 << 20);
    for (size_t i = 0; i < sample->token_count; i++) {
        float p = sample->logprobs ? sample->logprobs[i] : NAN;
        if (sample->logprobs) {
            (void)text_addf(&text, "%s%d%s%.2f ", p < -4.0f ? "!" : "", (int)sample->tokens[i],
                            ":", (double)p);
        } else {
            (void)text_addf(&text, "%d ", (int)sample->tokens[i]);
        }
    }
    char head[96];
    (void)str_format(head, sizeof head, "%d%s", (int)sample->token_count, sample->logprobs
                     ? ", as id:log-prob; ! has less than -4" : ", as ids; no log-probs");
    line(page, "tokens", ROLE_TEXT, head);
    block(page, "", ROLE_DIM, text_str(&text));
    if (text.cut) {
        line(page, "", ROLE_WARN, "more tokens than fit here; rolltop query has them all");
    }
    text_free(&text);
}

static void draw_facts(SamplePage *page, const Screen *screen, const SampleView *sample)
{
    char text[256];
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char c[FORMAT_MAX];
    int64_t end = sample->ended_us > 0 ? sample->ended_us : screen->s->t_us;
    bool bad = sample->fate == FATE_REFUSED || sample->fate == FATE_LOST;
    (void)str_format(text, sizeof text, "%s%s%s, %s%s, attempt %d on %s",
                     sample_fate_name(sample->fate), sample->reason ? ": " : "",
                     sample->reason ? sample->reason : "", sample->eval ? "eval, " : "",
                     sample->finish ? sample->finish : "not finished", sample->attempt,
                     or_dash(sample->engine_name));
    line(page, "fate", bad ? ROLE_WARN : ROLE_TEXT, text);
    const TailRow *flight = snapshot_tail(screen->s, sample->sample);
    if (flight && sample->ended_us == 0) {
        tail_words(screen->s, flight, text, sizeof text);
        line(page, "so far", ROLE_HEADER, text);
        Role role = tail_why(screen->s, flight, text, sizeof text);
        if (text[0]) {
            line(page, "why", role, text);
        }
    }
    (void)str_format(text, sizeof text, "%s   group %lld   step %lld   prompt row %lld",
                     format_ratio_val(sample->reward, a), (long long)sample->group,
                     (long long)sample->step, (long long)sample->prompt_index);
    line(page, "reward", ROLE_TEXT, text);
    (void)str_format(text, sizeof text, "began %s, %s %s%s, first token after %s",
                     format_clock(sample->started_us, a), sample->ended_us > 0 ? "took" : "for",
                     format_age(end - sample->started_us, b),
                     sample->ended_us > 0 ? "" : " so far",
                     sample->first_token_us > 0 ? format_age(sample->first_token_us, c) : "-");
    line(page, "time", ROLE_TEXT, text);
}

void detail_sample_draw(const Draw *d, const Screen *screen, const Detail *detail)
{
    const SampleView *sample = &screen->s->sample;
    bool flies = sample->ended_us == 0 && snapshot_tail(screen->s, detail->id) != NULL;
    char title[64];
    (void)str_format(title, sizeof title, "SAMPLE %lld", (long long)detail->id);
    Draw body = plain_frame(d, title, flies
                            ? "Enter: its engine  j k scroll  X aborts  Esc comes back"
                            : "j k scroll  Esc comes back", true);
    if (!screen->s->has_sample || sample->sample != detail->id) {
        draw_text(&body, 1, 0, ROLE_DIM, "this sample had not begun at this moment");
        return;
    }
    SamplePage page = {body, 0, detail->scroll};
    draw_facts(&page, screen, sample);
    draw_spans(&page, sample, flies ? snapshot_tail(screen->s, detail->id) : NULL);
    block(&page, "prompt", ROLE_TEXT, sample->prompt);
    block(&page, "label", ROLE_TEXT, sample->label);
    block(&page, "answer", ROLE_HEADER, sample->text);
    if (sample->token_count > 0) {
        draw_tokens(&page, sample);
    }
}
