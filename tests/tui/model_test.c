/* The model: cursors by identity, order without noise, confirmations, time; and a random walk. */
#include "core/base/json.h"
#include "core/base/rng.h"
#include "tests/harness.h"
#include "tests/tui/fixture.h"

static Snapshot s;
static int64_t now;

static Model *fresh(bool control, bool replay)
{
    fixture_fill(&s);
    now = FIXTURE_T;
    Model *model = fixture_model(control, replay);
    (void)model_resize(model, 120, 40);
    (void)model_observe(model, &s, now);
    return model;
}

static unsigned press(Model *model, const char *text)
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

static const char *under_cursor(Model *model)
{
    const EngineRow *row = model_engine(model, &s);
    return row ? row->name : "";
}

static void cursor_follows_the_engine(void)
{
    Model *model = fresh(false, false);
    CHECK_STR(under_cursor(model), "eng-03");
    (void)press(model, "jjjjjjjj");
    CHECK_STR(under_cursor(model), "eng-00");
    fixture_engines[6].state = ENGINE_DEAD;
    for (int i = 0; i < 2; i++) { /* noise of two ticks moves nothing */
        (void)model_observe(model, &s, now);
    }
    CHECK_I64(model_place(model, &s, PANE_ENGINES), 8);
    (void)model_observe(model, &s, now); /* the third tick counts */
    CHECK_STR(under_cursor(model), "eng-00");
    CHECK_I64(model_place(model, &s, PANE_ENGINES), 9);
    s.engines.count = 0;
    (void)model_observe(model, &s, now);
    CHECK(model_engine(model, &s) == NULL);
    model_free(model);
}

static void filters_and_sorts(void)
{
    Model *model = fresh(false, false);
    (void)press(model, "/state:dead\n");
    CHECK_I64(model->shown_count[PANE_ENGINES], 1);
    CHECK_STR(under_cursor(model), "eng-03");
    (void)press(model, "\x1b");
    CHECK_I64(model->shown_count[PANE_ENGINES], 16);
    (void)press(model, "/kv>90\n");
    CHECK_STR(under_cursor(model), "eng-04");
    (void)press(model, "\x1bg>>>");
    CHECK_I64(model->sort, SORT_TOKENS);
    (void)press(model, "g");
    CHECK_STR(under_cursor(model), "eng-15");
    (void)press(model, "Ig");
    CHECK_STR(under_cursor(model), "eng-03"); /* unknown comes first when turned round */
    model_free(model);
}

static void marks(void)
{
    Model *model = fresh(false, false);
    (void)press(model, " jjv");
    CHECK_I64(model_mark_count(model), 4); /* the first row, and from it to the fourth */
    (void)press(model, "*");
    CHECK_I64(model_mark_count(model), 0);
    (void)press(model, "*");
    CHECK_I64(model_mark_count(model), 16);
    (void)press(model, "\x1b");
    CHECK_I64(model_mark_count(model), 0);
    model_free(model);
}

static void look_only(void)
{
    Model *model = fresh(false, false);
    (void)press(model, "R");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, "--control") != NULL);
    model_free(model);
    model = fresh(true, true);
    (void)press(model, "R");
    CHECK(strstr(model->message, "the past") != NULL);
    model_free(model);
    model = fresh(true, false);
    model->linked = false;
    (void)press(model, "R");
    CHECK(strstr(model->message, "does not answer") != NULL);
    model_free(model);
}

static void level_one(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "/eng-06\n");
    (void)press(model, "P\n"); /* Enter means no */
    CHECK_I64(model->outbox_count, 0);
    CHECK_I64(model->mode, MODE_NORMAL);
    (void)model_key(model, &s, 'P', now);
    (void)model_key(model, &s, 'y', now + 100000); /* inside the guard: thrown away */
    CHECK_I64(model->outbox_count, 0);
    CHECK_I64(model->mode, MODE_CONFIRM);
    (void)press(model, "y");
    CHECK_I64(model->outbox_count, 1);
    cJSON *json = NULL;
    Fault fault = {0};
    CHECK(json_parse(str_from(model->outbox[0].json), 4096, "outbox", &json, &fault) == ERR_OK);
    CHECK_STR(json_string(json, "cmd", ""), "pause");
    CHECK_STR(json_string(json_get(json, "target"), "engine", ""), "eng-06");
    CHECK_STR(json_string(json, "user", ""), "ana");
    cJSON_Delete(json);
    model->outbox_count = 0;
    act_reply(model, 0, true, 77, "accepted", now);
    CHECK_I64(act_pending(model, 7)->state, PENDING_ACCEPTED);
    static CommandRow done[1] = {{77, 1, 2, "ana", "pause", "eng-06", "", "done", "paused"}};
    s.commands = (CommandList){done, 1, 1};
    fixture_engines[6].state = ENGINE_PAUSED;
    (void)model_observe(model, &s, now);
    CHECK_I64(act_pending(model, 7)->state, PENDING_OBSERVED);
    (void)press(model, "u"); /* undo asks, and takes the way back */
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.verb, VERB_RESUME);
    (void)press(model, "y");
    CHECK_I64(model->outbox_count, 1);
    CHECK(strstr(model->outbox[0].json, "\"resume\"") != NULL);
    model_free(model);
}

static void level_two(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "R");
    CHECK_I64(model->confirm.level, 2);
    CHECK_STR(model->confirm.want, "03");
    (void)press(model, "04");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK_I64(model->outbox_count, 0);
    (void)press(model, "RRR"); /* key repeat means no */
    CHECK_I64(model->outbox_count, 0);
    model->mode = MODE_NORMAL;
    (void)press(model, "R\tecc \"errors\"\t03");
    CHECK_I64(model->outbox_count, 1);
    CHECK(strstr(model->outbox[0].json, "ecc \\\"errors\\\"") != NULL);
    model_free(model);
    model = fresh(true, false); /* the picture is old: the word says so */
    s.header.last_fact_us = FIXTURE_T - S(30);
    (void)press(model, "R");
    CHECK_STR(model->confirm.want, "blind03");
    model_free(model);
    model = fresh(true, false); /* several: their number */
    (void)press(model, "jj  jjjjR");
    CHECK_I64(model->confirm.level, 2);
    CHECK_STR(model->confirm.want, "2");
    (void)press(model, "2");
    CHECK_I64(model->outbox_count, 2);
    model_free(model);
}

static void changed_target_starts_over(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "R0");
    fixture_engines[3].state = ENGINE_UP;
    (void)model_observe(model, &s, now);
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.typed.n, 0);
    CHECK(strstr(model->confirm.notice, "eng-03") != NULL);
    model_free(model);
}

static void others_block(void)
{
    Model *model = fresh(true, false);
    static CommandRow theirs[1] = {{9, 1, 2, "ben (pid 9)", "update", "eng-03", "", "accepted",
                                    ""}};
    s.commands = (CommandList){theirs, 1, 1};
    (void)press(model, "R");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, "ben") != NULL);
    model_free(model);
}

static void level_three(void)
{
    Model *model = fresh(true, false);
    (void)press(model, ":stop\n");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, ":arm") != NULL);
    (void)press(model, ":arm 5m\n:stop\n");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.level, 3);
    (void)press(model, "gsm8k-7b");
    CHECK_I64(model->outbox_count, 0);
    CHECK(model->confirm.countdown_us > 0);
    (void)model_tick(model, &s, now + S(5));
    CHECK_I64(model->outbox_count, 0);
    (void)press(model, "\x1b");
    CHECK_I64(model->mode, MODE_NORMAL);
    (void)model_tick(model, &s, now + S(60));
    CHECK_I64(model->outbox_count, 0);
    (void)press(model, ":stop\ngsm8k-7b");
    (void)model_tick(model, &s, now + S(11));
    CHECK_I64(model->outbox_count, 1);
    CHECK(strstr(model->outbox[0].json, "\"all\":true") != NULL);
    model_free(model);
}

static void refusals_say_why(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "P");
    CHECK(strstr(model->message, "the engine is dead") != NULL);
    (void)press(model, "X");
    CHECK(strstr(model->message, "cursor on a sample") != NULL);
    (void)press(model, "2X");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_STR(model->confirm.want, "00");
    act_reply(model, -1, false, 0, "x", now);
    model_free(model);
}

static void time_moves(void)
{
    Model *model = fresh(true, false);
    CHECK(press(model, "[") & MODEL_SEEK);
    CHECK(model->live);
    (void)model_seek_done(model, &s, true, FIXTURE_T - S(100), now);
    CHECK(!model->live);
    CHECK_I64(model_time(model, now), FIXTURE_T - S(100));
    (void)press(model, "@-5m\n");
    CHECK_I64(model_time(model, now), FIXTURE_T - S(400));
    (void)press(model, "p++");
    (void)model_tick(model, &s, now);
    int64_t before = model->t_us;
    (void)model_tick(model, &s, now + S(1));
    CHECK_I64(model->t_us - before, S(4));
    (void)model_seek_done(model, &s, true, 5, now); /* before the log: its first moment */
    CHECK_I64(model->t_us, s.run.first_us);
    (void)model_key(model, &s, TK_END, now);
    CHECK(model->live);
    CHECK_I64(model_time(model, now), now);
    (void)press(model, "z");
    int64_t frozen = model_time(model, now);
    CHECK_I64(model_time(model, now + S(9)), frozen);
    model_free(model);
}

static void quitting(void)
{
    Model *model = fresh(true, false);
    CHECK_I64(press(model, "q") & MODEL_QUIT, 0);
    CHECK_I64(model->mode, MODE_QUIT_ASK);
    CHECK(press(model, "\n") & MODEL_QUIT);
    CHECK(!model->stop_run);
    model_free(model);
    model = fresh(true, false);
    CHECK(press(model, "qstop\n") & MODEL_QUIT);
    CHECK(model->stop_run);
    model_free(model);
    model = fresh(false, false);
    CHECK(press(model, "q") & MODEL_QUIT);
    CHECK(!model->stop_run);
    model_free(model);
}

/* 10,000 random keys, resizes, snapshots and replies: nothing breaks, and nothing is ever sent
 * that was not confirmed in a box of the right level. */
static void random_walk(void)
{
    static const int special[] = {TK_ENTER, TK_ESC, TK_TAB, TK_UP, TK_DOWN, TK_PGUP, TK_PGDN,
                                  TK_HOME, TK_END, TK_BACKSPACE, TK_CTRL_C, TK_CTRL_D, TK_F1,
                                  TK_LEFT, TK_RIGHT, TK_BACKTAB, 0x6771, 0x1f600};
    Rng rng;
    rng_seed(&rng, 11);
    Model *model = fresh(true, false);
    Surface *surface = surface_new(80, 24, false);
    int drawn = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t dice = rng_below(&rng, 100);
        now += (int64_t)rng_below(&rng, 500000);
        if (dice < 80) {
            int key = rng_below(&rng, 4) == 0
                          ? special[rng_below(&rng, sizeof special / sizeof special[0])]
                          : 32 + (int)rng_below(&rng, 95);
            Mode mode = model->mode;
            int outbox = model->outbox_count;
            (void)model_key(model, &s, key, now);
            if (model->outbox_count > outbox && mode != MODE_CONFIRM) {
                CHECK_I64(mode, MODE_CONFIRM);
            }
        } else if (dice < 85) {
            (void)model_resize(model, 1 + (int)rng_below(&rng, 300), 1 + (int)rng_below(&rng, 99));
            surface_resize(surface, model->w, model->h);
        } else if (dice < 95) {
            fixture_fill(&s);
            fixture_sample(&s);
            for (int e = 0; e < FIXTURE_ENGINES; e++) {
                fixture_engines[e].state = (EngineState)rng_below(&rng, ENGINE_GONE + 1);
            }
            s.engines.count = (size_t)rng_below(&rng, FIXTURE_ENGINES + 1);
            s.tail.count = (size_t)rng_below(&rng, 13);
            s.events.count = (size_t)rng_below(&rng, 9);
            s.steps.count = (size_t)rng_below(&rng, 5);
            s.policies.count = (size_t)rng_below(&rng, 5);
            s.commands.count = (size_t)rng_below(&rng, 4);
            s.alerts.count = (size_t)rng_below(&rng, 3);
            s.has_sample = rng_below(&rng, 2) == 0;
            (void)model_observe(model, &s, now);
        } else if (dice < 98) {
            (void)model_tick(model, &s, now);
        } else {
            act_reply(model, (int)rng_below(&rng, MODEL_PENDING_MAX), rng_below(&rng, 2) == 0, 5,
                      "because \x1b[2J", now);
            model->outbox_count = 0;
        }
        if (rng_below(&rng, 4) == 0) {
            screen_draw(model, &s, now, surface);
            drawn++;
        }
        for (int pane = 0; pane < PANE_COUNT; pane++) {
            for (int k = 0; k < model->shown_count[pane]; k++) {
                if (model->shown[pane][k] >= model_row_count(&s, (Pane)pane)) {
                    CHECK_I64(model->shown[pane][k], -1);
                }
            }
        }
    }
    CHECK(drawn > 1000);
    surface_free(surface);
    model_free(model);
}

int main(void)
{
    RUN(cursor_follows_the_engine);
    RUN(filters_and_sorts);
    RUN(marks);
    RUN(look_only);
    RUN(level_one);
    RUN(level_two);
    RUN(changed_target_starts_over);
    RUN(others_block);
    RUN(level_three);
    RUN(refusals_say_why);
    RUN(time_moves);
    RUN(quitting);
    RUN(random_walk);
    return test_end();
}
