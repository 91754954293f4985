/* Every string of the log made hostile at once: whatever pane, page, size or locale, no cell of
 * the screen ever holds a control, escape, bidi, zero-width or private code point. */
#include "tests/harness.h"
#include "tests/tui/fixture.h"

static const char evil[] = "\x1b[2J\x1b]0;t\x07\xc2\x9b" "31m\xe2\x80\xae\xe2\x80\x8b\xef\xbb\xbf"
                           "\r\n\t\x7f\xe6\x9d\xb1\xf0\x9f\x92\xa9\xee\x80\x80\xff\xc0\xaf"
                           "e\xcc\x81\xcc\x82\xcc\x83\xcc\x84 %s%n";

static void poison_lists(Snapshot *s)
{
    for (size_t i = 0; i < s->tail.count; i++) {
        s->tail.rows[i].engine_name = evil;
    }
    for (size_t i = 0; i < s->steps.count; i++) {
        s->steps.rows[i].outcome = evil;
    }
    for (size_t i = 0; i < s->policies.count; i++) {
        PolicyRow *row = &s->policies.rows[i];
        row->digest = row->path = row->kind = row->reason = evil;
    }
    for (size_t i = 0; i < s->txns.count; i++) {
        TxnRow *row = &s->txns.rows[i];
        row->why = row->outcome = row->decision_reason = evil;
    }
    for (size_t i = 0; i < s->events.count; i++) {
        s->events.rows[i].source = s->events.rows[i].text = evil;
    }
    for (size_t i = 0; i < s->alerts.count; i++) {
        AlertRow *row = &s->alerts.rows[i];
        row->class_name = row->evidence = row->next_key = evil;
    }
    for (size_t i = 0; i < s->commands.count; i++) {
        CommandRow *row = &s->commands.rows[i];
        row->who = row->what = row->target = row->reason = row->state = row->answer = evil;
    }
}

static void poison(Snapshot *s)
{
    static TxnAnswerRow answers[1];
    fixture_fill(s);
    fixture_sample(s);
    s->run.name = s->run.run = s->run.host = evil;
    for (int i = 0; i < FIXTURE_ENGINES; i++) {
        fixture_engines[i].name = fixture_engines[i].address = fixture_engines[i].reason = evil;
    }
    poison_lists(s);
    for (size_t i = 0; i < s->line_count; i++) {
        s->lines[i].line = evil;
    }
    for (size_t i = 0; i < s->probe_count; i++) {
        s->probes[i].outcome = evil;
    }
    answers[0] = (TxnAnswerRow){.engine = 1, .phase = TXN_VERIFY, .detail = evil};
    s->has_txn = true;
    s->txn = s->txns.rows[0];
    s->txn.answers = answers;
    s->txn.answer_count = 1;
    s->sample.engine_name = s->sample.finish = s->sample.reason = evil;
    s->sample.prompt = s->sample.label = s->sample.text = (Str){evil, sizeof evil - 1};
    s->samples = (SampleList){&s->sample, 1, 1, false};
    (void)fault_set(&s->fault, ERR_IO, evil, "%s", evil);
}

static bool clean(const Surface *surface, bool ascii)
{
    for (int y = 0; y < surface_h(surface); y++) {
        for (int x = 0; x < surface_w(surface); x++) {
            const Cell *cell = surface_cell(surface, x, y);
            uint32_t c = cell->code;
            bool bad = (c < 0x20 && c != 0) || (c >= 0x7f && c < 0xa0) ||
                       (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
                       c == 0xfeff || (c >= 0xe000 && c <= 0xf8ff) || (ascii && c >= 0x7f);
            if (bad || cell->role >= ROLE_COUNT) {
                fprintf(stderr, "cell %d,%d holds %x\n", x, y, (unsigned)c);
                return false;
            }
        }
    }
    return true;
}

int main(void)
{
    static Snapshot s;
    static const int sizes[][2] = {{80, 24}, {120, 40}, {200, 60}, {60, 16}, {44, 9}};
    static const DetailKind kinds[] = {DETAIL_NONE,   DETAIL_ENGINE, DETAIL_SAMPLE,
                                       DETAIL_STEP,   DETAIL_POLICY, DETAIL_EVENT,
                                       DETAIL_COMMAND, DETAIL_ALERT};
    static const int64_t ids[] = {0, 4, 81200, 4126, 211, 4, 3, 7};
    int screens = 0;
    for (int n = 0; n < 5 * 2 * 7 * 8; n++) {
        const int *size = sizes[n % 5];
        bool ascii = n / 5 % 2 == 1;
        int kind = n / 70;
        poison(&s);
        Model *model = fixture_model(true, false);
        Surface *surface = surface_new(size[0], size[1], ascii);
        (void)model_resize(model, size[0], size[1]);
        model->focus = (Pane)(n / 10 % 7);
        model->second = n % 3 == 0;
        (void)model_observe(model, &s, FIXTURE_T);
        if (kinds[kind] != DETAIL_NONE) {
            model->detail[model->depth++] = (Detail){.kind = kinds[kind], .id = ids[kind]};
        }
        (void)model_key(model, &s, n % 2 ? 'R' : 'P', FIXTURE_T + 1); /* a box, or why not */
        screen_draw(model, &s, FIXTURE_T + S(1), surface);
        CHECK(clean(surface, ascii));
        act_reply(model, 0, false, 1, evil, FIXTURE_T);
        model_say(model, ROLE_ERROR, FIXTURE_T, "%s", evil);
        screen_draw(model, &s, FIXTURE_T + S(1), surface);
        CHECK(clean(surface, ascii));
        surface_free(surface);
        model_free(model);
        screens += 2;
    }
    printf("%d screens\n", screens);
    return test_end();
}
