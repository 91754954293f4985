/* What tests of the console's model share: a model on the hand-made picture, keys pressed 0.4 s
 * apart, and what was sent. */
#ifndef ROLLTOP_TESTS_TUI_MODEL_H
#define ROLLTOP_TESTS_TUI_MODEL_H

#include "core/base/json.h"
#include "tests/harness.h"
#include "tests/tui/fixture.h"

static Snapshot s;
static int64_t now;

static inline Model *fresh(bool control, bool replay)
{
    fixture_fill(&s);
    now = FIXTURE_T;
    Model *model = fixture_model(control, replay);
    (void)model_resize(model, 120, 40);
    (void)model_observe(model, &s, now);
    return model;
}

static inline unsigned press(Model *model, const char *text)
{
    unsigned flags = 0;
    for (; *text; text++) {
        int key = *text == '\n' ? TK_ENTER : *text == '\t' ? TK_TAB : *text == '\x1b' ? TK_ESC
                                                                                      : *text;
        now += 400000;
        flags |= model_key(model, &s, key, now);
    }
    return flags;
}

/* What acts on the fleet among what was sent; a cancelled box leaves a note there too. */
static inline int sent(const Model *model)
{
    int count = 0;
    for (int i = 0; i < model->outbox_count; i++) {
        count += model->outbox[i].pending != MODEL_NOTE ? 1 : 0;
    }
    return count;
}

static inline const char *act_json(const Model *model) /* the first of them */
{
    int i = 0;
    while (i < model->outbox_count && model->outbox[i].pending == MODEL_NOTE) {
        i++;
    }
    return i < model->outbox_count ? model->outbox[i].json : "";
}

static inline const char *under_cursor(Model *model)
{
    const EngineRow *row = model_engine(model, &s);
    return row ? row->name : "";
}

static inline bool on_screen(const Model *model, int w, int h, const char *words)
{
    Surface *surface = surface_new(w, h, false);
    Text text;
    text_init(&text, 1 << 20);
    screen_draw(model, &s, now, surface);
    surface_dump_text(surface, &text);
    bool found = strstr(text_c(&text), words) != NULL;
    text_free(&text);
    surface_free(surface);
    return found;
}

#endif
