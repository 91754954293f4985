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

/* What acts on the fleet among what was sent; a cancelled box leaves a note there too. */
static int sent(const Model *model)
{
    int count = 0;
    for (int i = 0; i < model->outbox_count; i++) {
        count += model->outbox[i].pending != MODEL_NOTE ? 1 : 0;
    }
    return count;
}

static const char *act_json(const Model *model) /* the first of them */
{
    int i = 0;
    while (i < model->outbox_count && model->outbox[i].pending == MODEL_NOTE) {
        i++;
    }
    return i < model->outbox_count ? model->outbox[i].json : "";
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
    CHECK_I64(model->sort[PANE_ENGINES], SORT_TOKENS);
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
    CHECK_I64(mark_count(model, PANE_ENGINES), 4); /* the first row, and from it to the fourth */
    (void)press(model, "*");
    CHECK_I64(mark_count(model, PANE_ENGINES), 0);
    (void)press(model, "*");
    CHECK_I64(mark_count(model, PANE_ENGINES), 16);
    (void)press(model, "\x1b");
    CHECK_I64(mark_count(model, PANE_ENGINES), 0);
    model_free(model);
}

static bool on_screen(const Model *model, int w, int h, const char *words)
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

/* Samples are marked like engines; all marked ones are aborted by one box of level 2. */
static void marked_samples(void)
{
    Model *model = fresh(true, false);
    int64_t first = s.tail.rows[0].sample;
    (void)press(model, "2 jv");
    CHECK_I64(mark_count(model, PANE_TAIL), 3);
    CHECK(mark_has(model, PANE_TAIL, first));
    CHECK_I64(mark_count(model, PANE_ENGINES), 0);
    CHECK(on_screen(model, 80, 24, "marked samples: 3"));
    (void)press(model, "X");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.level, 2);
    CHECK_STR(model->confirm.want, "3");
    CHECK(on_screen(model, 80, 24, "abort the marked samples"));
    (void)press(model, "3");
    CHECK_I64(sent(model), 3);
    cJSON *json = NULL;
    CHECK(json_parse(str_from(act_json(model)), 4096, "outbox", &json, NULL) == ERR_OK);
    CHECK_STR(json_string(json, "cmd", ""), "abort");
    CHECK_I64(json_i64(json_get(json, "target"), "sample", 0), first);
    cJSON_Delete(json);
    memmove(s.tail.rows, s.tail.rows + 1, (s.tail.count - 1) * sizeof s.tail.rows[0]);
    s.tail.count--; /* it is no longer in flight: its mark goes */
    (void)model_observe(model, &s, now);
    CHECK_I64(mark_count(model, PANE_TAIL), 2);
    (void)press(model, "\x1b");
    CHECK_I64(mark_count(model, PANE_TAIL), 0);
    (void)press(model, "*");
    CHECK_I64(mark_count(model, PANE_TAIL), model->shown_count[PANE_TAIL]);
    (void)press(model, "*4 ");
    CHECK_I64(mark_count(model, PANE_TAIL), 0);
    CHECK(strstr(model->message, "engines (1) and samples (2)") != NULL);
    model_free(model);
}

static void searches(void)
{
    Model *model = fresh(false, false);
    (void)press(model, "\\eng-1"); /* moves while it is typed, hides nothing */
    CHECK_STR(under_cursor(model), "eng-11");
    CHECK_I64(model->shown_count[PANE_ENGINES], 16);
    (void)press(model, "\nn");
    CHECK_STR(under_cursor(model), "eng-10");
    (void)press(model, "N");
    CHECK_STR(under_cursor(model), "eng-11");
    (void)press(model, "\x1b");
    CHECK_STR(model->search, "");
    (void)press(model, "2/tokens>12000\n"); /* terms in every table */
    CHECK_I64(model->shown_count[PANE_TAIL], 3);
    (void)press(model, "\x1b/try>1\n");
    CHECK_I64(model->shown_count[PANE_TAIL], 1);
    (void)press(model, "4/severity:crit\n");
    CHECK_I64(model->shown_count[PANE_EVENTS], 1);
    (void)press(model, "5/state:rolled\n");
    CHECK_I64(model->shown_count[PANE_POLICIES], 1);
    (void)press(model, "7/who:ben\n");
    CHECK_I64(model->shown_count[PANE_COMMANDS], 1);
    (void)press(model, "3/outcome:nan\n");
    CHECK_I64(model->shown_count[PANE_STEPS], 1);
    model_free(model);
}

static void every_table_sorts(void)
{
    Model *model = fresh(false, false);
    for (int pane = 0; pane < PANE_COUNT; pane++) {
        char key[2] = {(char)('1' + pane), '\0'};
        (void)press(model, key);
        for (int n = 0; n < sort_count((Pane)pane); n++) {
            int count = model->shown_count[pane];
            (void)press(model, ">I");
            CHECK_I64(model->shown_count[pane], count);
            CHECK(sort_by_name((Pane)pane, str_from(sort_name((Pane)pane, n))) == n);
        }
    }
    (void)press(model, "2:sort tokens\n");
    (void)press(model, model->inverted[PANE_TAIL] ? "I" : "");
    CHECK_I64(model_row_id(&s, PANE_TAIL, model->shown[PANE_TAIL][0]), 81200);
    (void)press(model, "I");
    CHECK_I64(model_row_id(&s, PANE_TAIL, model->shown[PANE_TAIL][0]), 81211);
    model_free(model);
}

static void groups_fold(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "e"); /* by state: the worst group is on top */
    CHECK_STR(model->groups[0].key, "x DEAD");
    CHECK_I64(model->shown_count[PANE_ENGINES], 16);
    (void)press(model, "G");
    int last = model_place(model, &s, PANE_ENGINES);
    CHECK(last == 15 && group_at(model, last) == &model->groups[model->group_count - 1]);
    (void)press(model, "/busy\n-");
    CHECK_I64(model->group_count, 1);
    CHECK_I64(model->groups[0].members, 6);
    CHECK_I64(model->shown_count[PANE_ENGINES], 1);
    (void)press(model, "R"); /* nobody acts on what is not seen */
    CHECK(strstr(model->message, "folded group") != NULL);
    (void)press(model, " ");
    CHECK_I64(mark_count(model, PANE_ENGINES), 6);
    (void)press(model, "U");
    CHECK_I64(model->confirm.count, 6);
    (void)press(model, "\x1b+");
    CHECK_I64(model->shown_count[PANE_ENGINES], 6);
    (void)press(model, "\x1b:group host\n");
    CHECK_I64(model->group_count, 1);
    CHECK_STR(model->groups[0].key, "127.0.0.1");
    (void)press(model, ":group none\n");
    CHECK_I64(model->group_count, 0);
    model_free(model);
}

static void follows(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "jjf"); /* the third row, through a filter that hides it */
    CHECK_STR(under_cursor(model), "eng-04");
    (void)press(model, "/state:dead\n");
    CHECK_I64(model->shown_count[PANE_ENGINES], 2);
    CHECK_STR(under_cursor(model), "eng-04");
    (void)press(model, "\x1b>>I");
    CHECK_STR(under_cursor(model), "eng-04");
    (void)press(model, "j"); /* a move by hand ends it */
    CHECK_I64(model->follow[PANE_ENGINES], 0);
    (void)press(model, "2jf");
    CHECK_I64(model->follow[PANE_TAIL], 81201);
    s.tail.rows = s.tail.rows + 2;
    s.tail.count -= 2;
    (void)model_observe(model, &s, now);
    CHECK_I64(model->follow[PANE_TAIL], 0);
    CHECK(strstr(model->message, "81201 is not in flight") != NULL);
    model_free(model);
}

static void completes(void)
{
    Model *model = fresh(true, false);
    (void)press(model, ":gro\t");
    CHECK_STR(model->input.text, "group none");
    (void)press(model, "\t\t\t\t");
    CHECK_STR(model->input.text, "group");
    (void)press(model, "\t");
    CHECK_STR(model->input.text, "gro");
    (void)press(model, "\x1b:zoom\n:");
    CHECK(model->zoom);
    (void)model_key(model, &s, TK_UP, now);
    CHECK_STR(model->input.text, "zoom");
    model_free(model);
}

static const char settings[] =
    "# a comment\n[console]\ntheme = ember\nbell = critical\nmouse = maybe\n"
    "[keys]\ndown = j ctrl-n\nrestart = x\npause = F7\nflop = q\nzoom = / z\n"
    "[view slow]\npane = tail\nsort = tokens inverted\nfilter = age>60\nzoom = yes\n"
    "[view worst]\ngroup = state\nsort = kv\n"
    "[match prod-*]\ntheme = ember\n"
    "[command shell]\nkey = F8\nrun = ssh $ROLLTOP_ADDRESS\n"
    "[command taken]\nkey = q\nrun = true\n[what]\n";

static void configures(void)
{
    TuiConfig config;
    ThemeProblems problems = {.count = 0};
    config_defaults(&config);
    config_parse(&config, str_from(settings), "c.ini", &problems);
    CHECK_I64(problems.total, 7);
    CHECK_STR(problems.lines[0], "c.ini:5: mouse is on or off, not 'maybe'");
    CHECK(strstr(problems.lines[1], "'x' cannot be restart") != NULL);
    CHECK(strstr(problems.lines[2], "'flop' is no action") != NULL);
    CHECK(strstr(problems.lines[3], "taken by 'quit'") != NULL);
    CHECK(strstr(problems.lines[4], "section [what]") != NULL);
    CHECK(strstr(problems.lines[5], "both 'zoom' and 'filter'") != NULL);
    CHECK(strstr(problems.lines[6], "both 'zoom' and 'freeze'") != NULL);
    CHECK_STR(config_match_theme(&config, "prod-7b", NULL), "ember");
    CHECK_STR(config_match_theme(&config, "demo", "host"), "");
    CHECK(config.bell && strcmp(config.theme, "ember") == 0);
    ModelConfig with = {.control = true, .user = "ana", .log_path = "/l", .config = &config};
    fixture_fill(&s);
    now = FIXTURE_T;
    Model *model = model_new(&with);
    model->linked = true;
    (void)model_observe(model, &s, now);
    (void)model_key(model, &s, 14, now); /* ctrl-n moves, Down does not any more */
    CHECK_STR(under_cursor(model), "eng-11");
    (void)model_key(model, &s, TK_DOWN, now);
    CHECK_STR(under_cursor(model), "eng-11");
    (void)press(model, "jP");
    CHECK_I64(model->mode, MODE_NORMAL);
    (void)model_key(model, &s, TK_F1 + 6, now + S(9));
    CHECK_I64(model->mode, MODE_CONFIRM);
    now += S(10);
    (void)press(model, "nw");
    CHECK(model->focus == PANE_TAIL && model->zoom);
    CHECK_I64(model->shown_count[PANE_TAIL], 9);
    (void)press(model, ":view worst\n");
    CHECK(model->focus == PANE_ENGINES && model->group == GROUP_STATE && !model->zoom);
    (void)model_key(model, &s, TK_BACKSPACE, now); /* the view before */
    CHECK_I64(model->focus, PANE_TAIL);
    unsigned flags = model_key(model, &s, TK_F8, now);
    CHECK(model->mode == MODE_SHELL && !(flags & MODEL_SHELL));
    CHECK(press(model, "y") & MODEL_SHELL);
    CHECK_I64(press(model, ":shell\n\n") & MODEL_SHELL, 0);
    model_free(model);
}

/* A click selects, sorts and goes to panes; it never acts and never answers a box. */
static void mouse_never_acts(void)
{
    Model *model = fresh(true, false);
    Surface *surface = surface_new(120, 40, false);
    Rng rng;
    rng_seed(&rng, 5);
    screen_draw(model, &s, now, surface);
    Hit hit = surface_hit_at(surface, 5, 8);
    CHECK(hit.kind == HIT_ROW && hit.pane == PANE_ENGINES);
    (void)model_click(model, &s, &hit, now);
    CHECK_STR(under_cursor(model), fixture_names[model->shown[PANE_ENGINES][hit.value]]);
    hit = surface_hit_at(surface, 28, 5);
    CHECK(hit.kind == HIT_SORT && hit.value == SORT_TOKENS);
    (void)model_click(model, &s, &hit, now);
    CHECK_I64(model->sort[PANE_ENGINES], SORT_TOKENS);
    (void)model_click(model, &s, &hit, now);
    CHECK(model->inverted[PANE_ENGINES]);
    hit = surface_hit_at(surface, 100, 36);
    CHECK_I64(hit.pane, PANE_EVENTS);
    (void)model_wheel(model, &s, &hit, -1, now);
    CHECK(!model->follow_events);
    for (int i = 0; i < 2000; i++) {
        (void)press(model, i % 50 == 0 ? "R" : i % 50 == 25 ? "\x1b" : "");
        hit = surface_hit_at(surface, (int)rng_below(&rng, 120), (int)rng_below(&rng, 40));
        (void)model_click(model, &s, &hit, now);
        (void)model_wheel(model, &s, &hit, i % 2 ? 1 : -1, now);
        screen_draw(model, &s, now, surface);
    }
    CHECK_I64(sent(model), 0);
    surface_free(surface);
    model_free(model);
}

/* In every table that has titles, a click on one sorts by it. */
static void titles_sort(void)
{
    static const struct {
        Pane pane;
        const char *key, *title, *sort;
    } cases[] = {{PANE_TAIL, "2", "AGE", "age"},
                 {PANE_TAIL, "2", "STEP/SAMPLE", "sample"},
                 {PANE_TAIL, "2", "TOKENS", "tokens"},
                 {PANE_TAIL, "2", "TRY", "try"},
                 {PANE_POLICIES, "5", "STATE", "state"},
                 {PANE_POLICIES, "5", "AGE", "newest"},
                 {PANE_POLICIES, "5", "ENG ", "engines"},
                 {PANE_COMMANDS, "7", "WHO", "who"},
                 {PANE_COMMANDS, "7", "WHAT", "what"},
                 {PANE_COMMANDS, "7", "STATE", "state"}};
    Model *model = fresh(false, false);
    Surface *surface = surface_new(80, 24, true);
    (void)model_resize(model, 80, 24);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Text text;
        text_init(&text, 1 << 16);
        (void)press(model, cases[i].key);
        model->sort[cases[i].pane] = sort_count(cases[i].pane) - 1;
        screen_draw(model, &s, now, surface);
        bool found = false;
        for (int y = 4; y < 8 && !found; y++) { /* the titles stand under the header */
            text_clear(&text);
            surface_dump_row(surface, y, &text);
            const char *at = strstr(text_c(&text), cases[i].title);
            Hit hit = at ? surface_hit_at(surface, (int)(at - text_c(&text)), y) : (Hit){0};
            found = at && hit.kind == HIT_SORT;
            if (found) {
                (void)model_click(model, &s, &hit, now);
            }
        }
        CHECK(found);
        CHECK_STR(sort_name(cases[i].pane, model->sort[cases[i].pane]), cases[i].sort);
        text_free(&text);
    }
    surface_free(surface);
    model_free(model);
}

static void bell_rings_once(void)
{
    Model *model = fresh(false, false);
    CHECK_I64(model_observe(model, &s, now) & MODEL_BELL, 0); /* what was open before */
    s.alerts.rows[1].severity = SEVERITY_CRIT;
    s.alerts.rows[1].incident = 9;
    CHECK(model_observe(model, &s, now) & MODEL_BELL);
    CHECK_I64(model_observe(model, &s, now) & MODEL_BELL, 0);
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
    CHECK_I64(sent(model), 0);
    CHECK_I64(model->mode, MODE_NORMAL);
    (void)model_key(model, &s, 'P', now);
    (void)model_key(model, &s, 'y', now + 100000); /* inside the guard: thrown away */
    CHECK_I64(sent(model), 0);
    CHECK_I64(model->mode, MODE_CONFIRM);
    (void)press(model, "y");
    CHECK_I64(sent(model), 1);
    cJSON *json = NULL;
    Fault fault = {0};
    CHECK(json_parse(str_from(act_json(model)), 4096, "outbox", &json, &fault) == ERR_OK);
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
    CHECK_I64(sent(model), 1);
    CHECK(strstr(act_json(model), "\"resume\"") != NULL);
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
    CHECK_I64(sent(model), 0);
    (void)press(model, "RRR"); /* key repeat means no */
    CHECK_I64(sent(model), 0);
    model->mode = MODE_NORMAL;
    (void)press(model, "R\tecc \"errors\"\t03");
    CHECK_I64(sent(model), 1);
    CHECK(strstr(act_json(model), "ecc \\\"errors\\\"") != NULL);
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
    CHECK_I64(sent(model), 2);
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

static void check_note(const Model *model, int64_t alert, const char *words)
{
    cJSON *json = NULL;
    CHECK_I64(model->outbox_count, 1);
    CHECK_I64(model->outbox[0].pending, MODEL_NOTE);
    CHECK(json_parse(str_from(model->outbox[0].json), 4096, "outbox", &json, NULL) == ERR_OK);
    CHECK_STR(json_string(json, "cmd", ""), "note");
    CHECK_I64(json_i64(json_get(json, "target"), "alert", 0), alert);
    CHECK_STR(json_string(json, "reason", ""), words);
    cJSON_Delete(json);
}

/* What an operator noted, acknowledged or thought better of goes to the log. */
static void notes(void)
{
    char line[240];
    Model *model = fresh(true, false);
    CHECK(press(model, ":note eng-03 is \"loud\"\n") & MODEL_SEND);
    check_note(model, 0, "eng-03 is \"loud\"");
    model->outbox_count = 0;
    act_reply(model, MODEL_NOTE, false, 0, "the run is ending", now);
    CHECK(strstr(model->message, "not noted in the log: the run is ending") != NULL);
    CHECK(!(press(model, ":note\n") & MODEL_SEND));
    CHECK(strstr(model->message, "write ':note WORDS'") != NULL);
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    CHECK(!(note_command(model, str_from(line), now) & MODEL_SEND));
    CHECK(strstr(model->message, "more than 199 bytes") != NULL);
    (void)press(model, "\x1b");
    CHECK(press(model, "a") & MODEL_SEND);
    (void)str_format(line, sizeof line, "acknowledged: %s of %s", s.alerts.rows[0].class_name,
                     snapshot_engine_name(&s, s.alerts.rows[0].engine));
    check_note(model, s.alerts.rows[0].incident, line);
    CHECK(strstr(model->message, "for every console") != NULL);
    model->outbox_count = 0;
    (void)press(model, "/eng-06\n");
    CHECK(press(model, "R\tecc errors\n\x1b") & MODEL_SEND);
    check_note(model, 0, "cancelled in the box: restart eng-06 (Esc), reason: ecc errors");
    CHECK(strstr(model->message, "restart cancelled: Esc; nothing was done") != NULL);
    model_free(model);
}

/* A console that looks only acknowledges for itself and says so; it sees what others noted. */
static void notes_of_others(void)
{
    Model *model = fresh(false, false);
    int64_t first = s.alerts.rows[0].incident;
    int64_t second = s.alerts.rows[1].incident;
    CHECK(!(press(model, "a") & MODEL_SEND));
    CHECK(strstr(model->message, "on this console only [RO]") != NULL);
    CHECK(model_acked(model, &s, first) && !model_acked(model, &s, second));
    CHECK(!(press(model, ":note hello\n") & MODEL_SEND));
    CHECK(strstr(model->message, "--control") != NULL);
    char target[32];
    (void)str_format(target, sizeof target, "alert %lld", (long long)second);
    CommandRow theirs = {9, now - S(60), now - S(60), "ben (pid 9)", "note", target,
                         "acknowledged: X", "done", "noted"};
    s.commands = (CommandList){&theirs, 1, 1};
    CHECK(model_acked(model, &s, second));
    model->control = true; /* it is noted already */
    CHECK(!(note_acknowledge(model, &s, &s.alerts.rows[1], now) & MODEL_SEND));
    CHECK(strstr(model->message, "acknowledged by ben (pid 9)") != NULL);
    CHECK_I64(model->outbox_count, 0);
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
    CHECK_I64(sent(model), 0);
    CHECK(model->confirm.countdown_us > 0);
    (void)model_tick(model, &s, now + S(5));
    CHECK_I64(sent(model), 0);
    (void)press(model, "\x1b");
    CHECK_I64(model->mode, MODE_NORMAL);
    (void)model_tick(model, &s, now + S(60));
    CHECK_I64(sent(model), 0);
    (void)press(model, ":stop\ngsm8k-7b");
    (void)model_tick(model, &s, now + S(11));
    CHECK_I64(sent(model), 1);
    CHECK(strstr(act_json(model), "\"all\":true") != NULL);
    model_free(model);
}

/* All engines go back to a version: from the list of policies, or by its number. */
static void back_to_a_version(void)
{
    Model *model = fresh(true, false);
    (void)press(model, ":update v209\n"); /* it changes the whole run */
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, ":arm") != NULL);
    (void)press(model, ":arm 5m\n:update v209\n");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.level, 3);
    CHECK_I64(model->confirm.version, 209);
    CHECK_STR(model->confirm.want, "gsm8k-7b");
    (void)press(model, "gsm8k-7b");
    CHECK_I64(sent(model), 0);
    (void)model_tick(model, &s, now + S(11));
    CHECK_I64(sent(model), 1);
    cJSON *json = NULL;
    CHECK(json_parse(str_from(act_json(model)), 4096, "outbox", &json, NULL) == ERR_OK);
    CHECK_STR(json_string(json, "cmd", ""), "update");
    CHECK_I64(json_i64(json, "version", 0), 209);
    CHECK(json_bool(json_get(json, "target"), "all", false));
    cJSON_Delete(json);
    model_free(model);

    model = fresh(true, false); /* U on the row of a policy */
    (void)press(model, ":arm 5m\n5jjjU");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.version, 209);
    Text words;
    text_init(&words, 4096);
    Screen screen = {.m = model, .s = &s, .now_us = now};
    confirm_words(&screen, &words);
    CHECK(strstr(text_c(&words), "update the whole run to v209, level 3") != NULL);
    CHECK(strstr(text_c(&words), "of step 4123, published") != NULL);
    CHECK(strstr(text_c(&words), "v211 serves now") != NULL);
    text_free(&words);
    (void)press(model, "\x1b");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK_I64(sent(model), 0);
    model_free(model);

    static const char *const refused[][2] = {
        {":update v211\n", "v211: it serves"},
        {":update 210\n", "not kept any more; kept are v209"},
        {":update to 212\n", "it is on its way"},
        {":update v7\n", "no such version is in the log"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        model = fresh(true, false);
        (void)press(model, ":arm 5m\n");
        (void)press(model, refused[i][0]);
        CHECK_I64(model->mode, MODE_NORMAL);
        CHECK(strstr(model->message, refused[i][1]) != NULL);
        model_free(model);
    }
    model = fresh(false, false); /* a console that looks */
    (void)press(model, "5jjjU");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, "--control") != NULL);
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

/* ' lists what m named; Enter goes there; more than fit are counted. */
static void named_moments(void)
{
    Model *model = fresh(false, false);
    (void)press(model, "'");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, "m names this one") != NULL);
    int64_t first = now;
    (void)press(model, "mfirst\n");
    first = model->bookmarks[0].t_us;
    now += S(30);
    (void)press(model, "msecond\n'");
    CHECK_I64(model->mode, MODE_MOMENTS);
    CHECK(on_screen(model, 80, 24, "NAMED MOMENTS"));
    CHECK(on_screen(model, 80, 24, "first"));
    (void)press(model, "k\n");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK_I64(model_time(model, now), first < s.run.last_us ? first : s.run.last_us);
    CHECK_STR(model->message, "at 'first'");
    (void)press(model, "'\x1b");
    CHECK_I64(model->mode, MODE_NORMAL);
    for (int i = model->bookmark_count; i < MODEL_BOOKMARKS_MAX; i++) {
        model->bookmarks[model->bookmark_count++] = (Bookmark){now, "more"};
    }
    (void)press(model, "''");
    CHECK(on_screen(model, 60, 16, "2 of 32"));
    (void)press(model, "kkk");
    CHECK(on_screen(model, 60, 16, "31 of 32"));
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

/* Typed ahead: what is about rows waits for the rows; what moves time or the cursor does not. */
static void keys_that_need_the_picture(void)
{
    Model *model = fixture_model(true, false);
    static const char need[] = "!af /PURCX";
    static const char need_none[] = "[]{}(),.jkgG1234567@";
    CHECK(model_key_needs_picture(model, TK_ENTER));
    for (const char *key = need; *key; key++) {
        CHECK_I64(model_key_needs_picture(model, *key), true);
    }
    for (const char *key = need_none; *key; key++) {
        CHECK_I64(model_key_needs_picture(model, *key), false);
    }
    model->mode = MODE_FILTER; /* letters are letters there */
    CHECK(!model_key_needs_picture(model, 'P'));
    CHECK(!model_key_needs_picture(model, TK_ENTER));
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
            bool note = model->outbox_count > outbox &&
                        strstr(model->outbox[outbox].json, "\"cmd\":\"note\"") != NULL;
            if (model->outbox_count > outbox && mode != MODE_CONFIRM && !note) {
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
    RUN(marked_samples);
    RUN(searches);
    RUN(every_table_sorts);
    RUN(groups_fold);
    RUN(follows);
    RUN(completes);
    RUN(configures);
    RUN(mouse_never_acts);
    RUN(titles_sort);
    RUN(bell_rings_once);
    RUN(look_only);
    RUN(level_one);
    RUN(level_two);
    RUN(changed_target_starts_over);
    RUN(notes);
    RUN(notes_of_others);
    RUN(others_block);
    RUN(level_three);
    RUN(back_to_a_version);
    RUN(refusals_say_why);
    RUN(time_moves);
    RUN(named_moments);
    RUN(quitting);
    RUN(keys_that_need_the_picture);
    RUN(random_walk);
    return test_end();
}
