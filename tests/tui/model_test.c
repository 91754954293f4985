/* The model: cursors by identity, order without noise, finding, time; and a random walk. Acting is
 * in act_test.c. */
#include "core/base/rng.h"
#include "tests/tui/model_lib.h"

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

static void graph_at_once(void)
{
    Model *model = fresh(false, false);
    CHECK(press(model, ":graph braille\n") & MODEL_QUERY);
    CHECK_I64(model->config.graph, GRAPH_BRAILLE);
    (void)press(model, ":graph dots\n");
    CHECK_I64(model->config.graph, GRAPH_BRAILLE);
    CHECK(on_screen(model, 80, 24, "graph is block, braille or ascii, not 'dots'"));
    model->ascii = true;
    (void)press(model, ":graph braille\n");
    CHECK(on_screen(model, 80, 24, "graphs stay ASCII"));
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
    "graph = braille\ngraph = dots\n"
    "[keys]\ndown = j ctrl-n\nrestart = x\npause = F7\nflop = q\nzoom = / z\n"
    "[view slow]\npane = tail\nsort = tokens inverted\nfilter = age>60\nzoom = yes\n"
    "[view worst]\ngroup = state\nsort = kv\n"
    "[match prod-*]\ntheme = ember\n"
    "[command shell]\nkey = F8\nrun = ssh $ROLLTOP_ADDRESS\n"
    "[command drain]\nkey = F9\nrun = kubectl drain\nconfirm = name\npane = engines\n"
    "[command taken]\nkey = q\nrun = true\n[what]\n";

/* What would steer a terminal, stands in no section, or behind a byte 0. */
static void names_hostile_lines(void)
{
    static const char file[] = "hold = 5s\n[no\x1b]0;x\a]\nkey = in it\n[console]\n"
                               "theme = ember\0 mono\n";
    TuiConfig config;
    ThemeProblems problems = {.count = 0};
    config_defaults(&config);
    config_parse(&config, (Str){file, sizeof file - 1}, "c.ini", &problems);
    CHECK_I64(problems.total, 3);
    CHECK_STR(problems.lines[0], "c.ini:1: 'hold' stands in no section; write [console] above it");
    CHECK(strstr(problems.lines[1], "c.ini:2: section [no?]0;x?] is unknown") != NULL);
    CHECK_STR(problems.lines[2], "c.ini:5: a byte 0 stands in this line; write it anew");
    CHECK_STR(config.theme, "");
    problems.count = problems.total = 0;
    config_load(&config, "/", &problems);
    CHECK_I64(problems.total, 1);
    CHECK_STR(problems.lines[0], "/ is not a regular file");
}

static void configures(void)
{
    TuiConfig config;
    ThemeProblems problems = {.count = 0};
    config_defaults(&config);
    config_parse(&config, str_from(settings), "c.ini", &problems);
    CHECK_I64(problems.total, 8);
    CHECK_I64(config.graph, GRAPH_BRAILLE);
    CHECK_STR(problems.lines[1], "c.ini:7: graph is block, braille or ascii, not 'dots'");
    CHECK_STR(problems.lines[0], "c.ini:5: mouse is on or off, not 'maybe'");
    CHECK(strstr(problems.lines[2], "'x' cannot be restart") != NULL);
    CHECK(strstr(problems.lines[3], "'flop' is no action") != NULL);
    CHECK(strstr(problems.lines[4], "taken by 'quit'") != NULL);
    CHECK(strstr(problems.lines[5], "section [what]") != NULL);
    CHECK(strstr(problems.lines[6], "both 'zoom' and 'filter'") != NULL);
    CHECK(strstr(problems.lines[7], "both 'zoom' and 'freeze'") != NULL);
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
    flags = model_key(model, &s, TK_F1 + 8, now); /* F9: in its pane, and by its name only */
    CHECK(model->mode == MODE_NORMAL && strstr(model->message, "pane 1 only") != NULL);
    (void)press(model, "1");
    flags = model_key(model, &s, TK_F1 + 8, now);
    CHECK(model->mode == MODE_SHELL && !(flags & MODEL_SHELL));
    CHECK(!(press(model, "y") & MODEL_SHELL));
    CHECK_I64(model->mode, MODE_NORMAL);
    (void)model_key(model, &s, TK_F1 + 8, now);
    CHECK(!(press(model, "drai") & MODEL_SHELL));
    CHECK(press(model, "n") & MODEL_SHELL);
    (void)press(model, "2");
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
    RUN(graph_at_once);
    RUN(searches);
    RUN(every_table_sorts);
    RUN(groups_fold);
    RUN(follows);
    RUN(completes);
    RUN(names_hostile_lines);
    RUN(configures);
    RUN(mouse_never_acts);
    RUN(titles_sort);
    RUN(bell_rings_once);
    RUN(time_moves);
    RUN(named_moments);
    RUN(keys_that_need_the_picture);
    RUN(random_walk);
    return test_end();
}
