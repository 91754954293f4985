/* The hand-made picture of fixture.h as golden screens (golden.h). */
#include "tests/harness.h"
#include "tests/tui/fixture.h"
#include "tests/tui/golden.h"

/* Returns when the last one was pressed. */
static int64_t keys(Model *model, Snapshot *s, const char *text)
{
    int64_t now = FIXTURE_T;
    for (; *text; text++) {
        int key = *text == '\n' ? TK_ENTER : *text == '\t' ? TK_TAB : *text;
        now += 400000;
        (void)model_key(model, s, key, now);
    }
    return now;
}

static void shot(const char *name, int w, int h, bool ascii, bool control, bool replay,
                 const char *pressed)
{
    static Snapshot s;
    fixture_fill(&s);
    fixture_sample(&s);
    Model *model = fixture_model(control, replay);
    Surface *surface = surface_new(w, h, ascii);
    (void)model_resize(model, w, h);
    (void)model_observe(model, &s, FIXTURE_T);
    int64_t now = keys(model, &s, pressed);
    (void)model_observe(model, &s, FIXTURE_T);
    screen_draw(model, &s, now + 1000000, surface);
    golden_compare(name, surface);
    surface_free(surface);
    model_free(model);
}

static void sizes(void)
{
    static const int all[][2] = {{80, 24}, {120, 40}, {200, 60}, {60, 16},
                                 {44, 9},  {70, 1},   {30, 1}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (int ascii = 0; ascii < 2; ascii++) {
            char name[64];
            (void)snprintf(name, sizeof name, "live-%dx%d%s", all[i][0], all[i][1],
                           ascii ? "-c" : "");
            shot(name, all[i][0], all[i][1], ascii == 1, true, false, "");
        }
    }
}

static void few_engines(void)
{
    static Snapshot s;
    static const int all[][2] = {{80, 24}, {120, 40}, {60, 16}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[64];
        fixture_fill(&s);
        s.engines.count = 3;
        Model *model = fixture_model(false, false);
        Surface *surface = surface_new(all[i][0], all[i][1], false);
        (void)model_resize(model, all[i][0], all[i][1]);
        (void)model_observe(model, &s, FIXTURE_T);
        screen_draw(model, &s, FIXTURE_T, surface);
        (void)snprintf(name, sizeof name, "few-%dx%d", all[i][0], all[i][1]);
        golden_compare(name, surface);
        surface_free(surface);
        model_free(model);
    }
}

/* Names as a cluster gives them have the room that is free. */
static void long_names(void)
{
    static const int all[][2] = {{80, 24}, {120, 40}, {200, 60}};
    static Snapshot s;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[64];
        fixture_fill(&s);
        fixture_engines[3].name = "decode-7d9f8b6c5-x2k4q";
        fixture_engines[3].address = "decode-7d9f8b6c5-x2k4q.rollout.svc.cluster.local:30000";
        Model *model = fixture_model(false, false);
        Surface *surface = surface_new(all[i][0], all[i][1], false);
        model->zoom = all[i][0] == 200;
        (void)model_resize(model, all[i][0], all[i][1]);
        (void)model_observe(model, &s, FIXTURE_T);
        screen_draw(model, &s, FIXTURE_T, surface);
        (void)snprintf(name, sizeof name, "long-%dx%d", all[i][0], all[i][1]);
        golden_compare(name, surface);
        surface_free(surface);
        model_free(model);
    }
}

/* Characters of the screen beyond ASCII, and among them braille. */
static void count_codes(const Surface *surface, int *wide, int *braille)
{
    *wide = *braille = 0;
    for (int y = 0; y < surface_h(surface); y++) {
        for (int x = 0; x < surface_w(surface); x++) {
            uint32_t code = surface_cell(surface, x, y)->code;
            *wide += code > 126 ? 1 : 0;
            *braille += code >= 0x2800 && code < 0x2900 ? 1 : 0;
        }
    }
}

/* Graphs in braille where they were asked for, never in a C locale; in ASCII the same layout. */
static void graphs(void)
{
    static const struct {
        const char *name;
        GraphStyle style;
        bool ascii;
    } cases[] = {{"braille-120x40", GRAPH_BRAILLE, false}, {NULL, GRAPH_BRAILLE, true},
                 {"ascii-graph-120x40", GRAPH_ASCII, false}, {NULL, GRAPH_BLOCK, false}};
    static Snapshot s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int wide = 0;
        int braille = 0;
        fixture_fill(&s);
        Model *model = fixture_model(false, false);
        Surface *surface = surface_new(120, 40, cases[i].ascii);
        model->config.graph = cases[i].style;
        model->ascii = cases[i].ascii;
        model->second = true;
        (void)model_resize(model, 120, 40);
        (void)model_observe(model, &s, FIXTURE_T);
        CHECK_I64(model_request(model, FIXTURE_T).spark_count,
                  cases[i].style == GRAPH_BRAILLE && !cases[i].ascii ? 56 : 28);
        screen_draw(model, &s, FIXTURE_T, surface);
        count_codes(surface, &wide, &braille);
        CHECK((wide > 0) == !cases[i].ascii);
        CHECK((braille > 0) == (cases[i].style == GRAPH_BRAILLE && !cases[i].ascii));
        if (cases[i].name) {
            golden_compare(cases[i].name, surface);
        }
        surface_free(surface);
        model_free(model);
    }
}

/* A command of the user's own asks first. */
static void own_command(void)
{
    static Snapshot s;
    fixture_fill(&s);
    Model *model = fixture_model(true, false);
    Surface *surface = surface_new(80, 24, false);
    model->config.commands[0] = (ShellCommand){.name = "shell", .run = "ssh $ROLLTOP_ADDRESS",
                                               .key = TK_F8, .pane = PANE_COUNT};
    model->config.command_count = 1;
    (void)model_observe(model, &s, FIXTURE_T);
    (void)model_key(model, &s, TK_F8, FIXTURE_T);
    screen_draw(model, &s, FIXTURE_T, surface);
    golden_compare("shell-80x24", surface);
    model->config.commands[0].ask = SHELL_ASK_NAME;
    (void)model_key(model, &s, TK_ESC, FIXTURE_T);
    (void)model_key(model, &s, TK_F8, FIXTURE_T);
    (void)keys(model, &s, "she");
    screen_draw(model, &s, FIXTURE_T, surface);
    golden_compare("shell-name-80x24", surface);
    surface_free(surface);
    model_free(model);
}

/* "Was it so, and is it still so?" beside each other. */
static void past_of_a_live_run(void)
{
    static Snapshot s;
    fixture_fill(&s);
    s.has_now = true;
    s.now = fixture_engines[0];
    s.now.engine = 4;
    s.now.seen_us = FIXTURE_T + S(59.5);
    Model *model = fixture_model(false, false);
    Surface *surface = surface_new(80, 24, false);
    model->live = false;
    (void)model_observe(model, &s, FIXTURE_T + S(60));
    (void)keys(model, &s, "\n");
    screen_draw(model, &s, FIXTURE_T + S(60), surface);
    golden_compare("past-engine-80x24", surface);
    surface_free(surface);
    model_free(model);
}

static void panes(void)
{
    static const char *const names[] = {"tail", "timeline", "events", "policies", "learning",
                                        "commands"};
    for (int i = 0; i < 6; i++) {
        char name[64];
        char key[2] = {(char)('2' + i), '\0'};
        (void)snprintf(name, sizeof name, "pane-%s-80x24", names[i]);
        shot(name, 80, 24, false, true, false, key);
    }
    shot("second-120x40", 120, 40, false, true, false, "5");
    shot("zoom-learning-120x40", 120, 40, false, true, false, "6o");
}

static void replay(void)
{
    shot("replay-80x24", 80, 24, false, true, true, "");
    shot("replay-120x40", 120, 40, false, false, true, "");
    shot("readonly-80x24", 80, 24, false, false, false, "R");
}

/* What cannot be read and what was trimmed is told apart from what never was. */
static void hurt_log(void)
{
    static Snapshot s;
    static DamageRow damage = {FIXTURE_T - S(60), FIXTURE_T + S(1), 3, NULL};
    fixture_fill(&s);
    for (int i = 0; i < s.strip_cells; i++) {
        s.strip[i].trimmed = i < 12;
        s.strip[i].damaged = i == 63;
    }
    s.damage = &damage;
    s.damage_count = 1;
    s.tail = (TailList){.trimmed = true, .age_bucket_s = 1};
    s.header.grain_s = 60;
    s.header.samples_inflight = s.header.samples_done = s.header.samples_want = -1;
    s.header.tail_p50_s = s.header.tail_p99_s = s.header.tail_max_s = -1;
    Model *model = fixture_model(false, true);
    Surface *surface = surface_new(100, 30, false);
    (void)model_resize(model, 100, 30);
    (void)model_observe(model, &s, FIXTURE_T);
    (void)keys(model, &s, "2");
    screen_draw(model, &s, FIXTURE_T, surface);
    golden_compare("hurt-100x30", surface);
    surface_free(surface);
    model_free(model);
}

static void details(void)
{
    shot("detail-engine-80x24", 80, 24, false, true, false, "jjj\n");
    shot("detail-sample-80x24", 80, 24, false, true, false, "2\n");
    shot("detail-sample-80x24-c", 80, 24, true, true, false, "2\n");
    shot("detail-step-80x24", 80, 24, false, true, false, "3j\n");
    shot("detail-policy-80x24", 80, 24, false, true, false, "5j\n");
    shot("detail-alert-80x24", 80, 24, false, true, false, "!");
    shot("detail-event-80x24", 80, 24, false, true, false, "4k\n");
    shot("detail-command-80x24", 80, 24, false, true, false, "7\n");
    shot("compare-policies-80x24", 80, 24, false, true, false, "5=");
    shot("compare-steps-80x24", 80, 24, false, true, false, "3=");
    shot("compare-engines-120x40", 120, 40, false, true, false, "jj jjjjjj=");
    shot("help-80x24", 80, 24, false, true, false, "?");
}

static void boxes(void)
{
    shot("confirm-restart-80x24", 80, 24, false, true, false, "R\tecc errors\t0");
    shot("confirm-pause-80x24", 80, 24, false, true, false, "/eng-06\nP");
    shot("confirm-many-80x24", 80, 24, false, true, false, "jj  R");
    shot("confirm-stop-80x24", 80, 24, false, true, false, ":arm 5m\n:stop\n");
    shot("quit-80x24", 80, 24, false, true, false, "qst");
    shot("confirm-version-80x24", 80, 24, false, true, false, ":arm 5m\n5jjjU");
    shot("confirm-countdown-80x24", 80, 24, false, true, false, ":arm 5m\n:stop\ngsm8k-7b");
    shot("confirm-abort-80x24", 80, 24, false, true, false, "2 jX");
    shot("confirm-update-80x24", 80, 24, false, true, false, "jjU");
    shot("sort-80x24", 80, 24, false, true, false, "sj");
    shot("moments-80x24", 80, 24, false, true, false, "mit broke\nmagain\n'");
    shot("command-80x24", 80, 24, false, true, false, ":re");
    shot("go-80x24", 80, 24, false, true, false, "@10:41");
    shot("search-80x24", 80, 24, false, true, false, "\\kv>90");
    shot("group-80x24", 80, 24, false, true, false, "ejjjjjjjjj-");
    shot("frozen-80x24", 80, 24, false, true, false, "z");
    shot("marked-120x40", 120, 40, false, true, false, "  4  2  5 ");
    shot("filter-none-80x24", 80, 24, false, true, false, "/nothing");
}

static void empty(void)
{
    static Snapshot s;
    memset(&s, 0, sizeof s);
    Model *model = fixture_model(true, false);
    Surface *surface = surface_new(80, 24, false);
    (void)model_observe(model, &s, FIXTURE_T);
    screen_draw(model, &s, FIXTURE_T, surface);
    golden_compare("empty-80x24", surface);
    s.ready = true;
    s.t_us = FIXTURE_T;
    s.run.name = "demo";
    s.run.core_alive = true;
    s.run.first_us = FIXTURE_T - S(60);
    s.header.last_fact_us = FIXTURE_T - S(12);
    s.header.policy_version = s.header.trainer_version = -1;
    s.header.tail_max_s = -1;
    (void)fault_set(&s.fault, ERR_STATE, NULL, "database is locked by another writer");
    (void)model_observe(model, &s, FIXTURE_T);
    screen_draw(model, &s, FIXTURE_T, surface);
    golden_compare("lost-80x24", surface);
    surface_free(surface);
    model_free(model);
}

int main(void)
{
    RUN(sizes);
    RUN(few_engines);
    RUN(long_names);
    RUN(graphs);
    RUN(own_command);
    RUN(panes);
    RUN(past_of_a_live_run);
    RUN(replay);
    RUN(hurt_log);
    RUN(details);
    RUN(boxes);
    RUN(empty);
    return test_end();
}
