/* The recorded incident (tests/incident/make.sh): one engine slows down and then stalls while it
 * holds the last samples of a rollout; an operator cordons and restarts it. What an on-call sees at
 * five sizes and in both locales, and the way of somebody who never saw this console from the end
 * of the log to the stalled sample. The moment is taken from the log itself, so that another
 * recording needs nothing but UPDATE=1 (golden.h). */
#include "tests/harness.h"
#include "tests/tui/golden.h"
#include "tests/tui/player.h"

static Player player;
static int64_t stalled_us; /* three seconds before the operator's restart ended it */
static TailRow held;       /* the oldest sample in flight then */
static char held_on[40];

/* The alert of the log and the sample behind it. */
static void find_incident(void)
{
    Player *p = &player;
    player_keys(p, "{");
    CHECK_I64(p->snap.alerts.count, 1);
    if (p->snap.alerts.count == 1) {
        CHECK_STR(p->snap.alerts.rows[0].class_name, "TAIL");
        CHECK_I64(p->snap.alerts.rows[0].severity, SEVERITY_INFO); /* as it was known then */
    }
    player_go(p, p->model->t_us + 2000000);
    CHECK(p->snap.alerts.count == 1 && p->snap.alerts.rows[0].severity == SEVERITY_WARN);
    while (p->snap.alerts.count > 0 && p->model->t_us < p->snap.run.last_us) {
        player_go(p, p->model->t_us + 1000000);
    }
    stalled_us = p->model->t_us - 3000000;
    player_go(p, stalled_us);
    CHECK(p->snap.tail.count >= 1 && p->snap.tail.total <= 12);
    if (p->snap.tail.count > 0) {
        held = p->snap.tail.rows[0];
        (void)str_format(held_on, sizeof held_on, "%s", or_dash(held.engine_name));
        CHECK_STR(held_on, "eng-02");
        CHECK(p->snap.t_us - held.started_us > 15000000);
        CHECK(p->snap.t_us - held.progress_us > 5000000); /* it stalls */
    }
}

static void golden_screens(void)
{
    static const int sizes[][2] = {{200, 60}, {120, 40}, {80, 24}, {60, 16}, {44, 9}};
    Player *p = &player;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int ascii = 0; ascii < 2; ascii++) {
            char name[64];
            player_size(p, sizes[i][0], sizes[i][1], ascii == 1);
            player_go(p, stalled_us);
            player_draw(p);
            (void)snprintf(name, sizeof name, "incident-%dx%d%s", sizes[i][0], sizes[i][1],
                           ascii ? "-c" : "");
            golden_compare(name, p->surface);
        }
    }
    player_size(p, 80, 24, false);
}

static bool shows(const char *words)
{
    Text text;
    text_init(&text, 1 << 20);
    player_draw(&player);
    surface_dump_text(player.surface, &text);
    bool found = strstr(text_c(&text), words) != NULL;
    if (!found) {
        printf("no \"%s\" on:\n%s", words, text_c(&text));
    }
    text_free(&text);
    return found;
}

/* Each key is one that the screen before it names. */
static void a_newcomer_finds_the_sample(int w, int h, const char *first_hint)
{
    Player *p = &player;
    char words[64];
    player_size(p, w, h, false);
    player_go(p, p->snap.run.last_us);
    CHECK(shows(first_hint));
    player_keys(p, "{");
    CHECK(shows("[I] eng-02 TAIL")); /* as it was known then; it got worse later */
    CHECK(shows("! shows it"));
    player_keys(p, "!");
    (void)snprintf(words, sizeof words, "%lld/%lld on eng-02", (long long)held.step,
                   (long long)held.sample);
    CHECK(shows(words)); /* the alert names it */
    CHECK(shows("Enter: the sample that waits"));
    player_keys(p, "\n");
    (void)snprintf(words, sizeof words, "SAMPLE %lld", (long long)held.sample);
    CHECK(shows(words));
    CHECK(shows("on eng-02"));
    CHECK(shows("Enter: its engine"));
    player_keys(p, "\n");
    CHECK(shows("DETAIL  eng-02"));
    player_keys(p, "\x1b\x1b\x1b");
}

static void within_six_keys(void)
{
    a_newcomer_finds_the_sample(60, 16, "{}Alert"); /* two header lines: the footer says it */
    a_newcomer_finds_the_sample(80, 24, "{ goes to the one before");
    a_newcomer_finds_the_sample(120, 40, "{ goes to the one before");
    a_newcomer_finds_the_sample(200, 60, "{ goes to the one before");
}

/* Straight at the trouble: the pages of alert, sample and engine, as golden screens. */
static void golden_pages(void)
{
    Player *p = &player;
    player_size(p, 80, 24, false);
    player_go(p, stalled_us);
    player_keys(p, "!");
    player_draw(p);
    golden_compare("incident-alert-80x24", p->surface);
    player_keys(p, "\n");
    player_draw(p);
    golden_compare("incident-sample-80x24", p->surface);
    player_keys(p, "\n");
    player_draw(p);
    golden_compare("incident-engine-80x24", p->surface);
    player_keys(p, "\x1b\x1b\x1b");
    player_keys(p, "7");
    player_draw(p);
    golden_compare("incident-commands-80x24", p->surface);
    player_keys(p, "1");
}

/* The run is over: bars are as long as the steps on the screen want it, not as one further down. */
static void golden_end(void)
{
    Player *p = &player;
    player_size(p, 120, 40, false);
    player_go(p, p->snap.run.last_us);
    player_draw(p);
    golden_compare("incident-over-120x40", p->surface);
    player_keys(p, "3o"); /* all steps: the slow one is there */
    player_draw(p);
    golden_compare("incident-steps-120x40", p->surface);
    player_keys(p, "o1");
}

int main(void)
{
    if (!player_open(&player, "incident.db.zst")) {
        return 1;
    }
    RUN(find_incident);
    RUN(golden_screens);
    RUN(within_six_keys);
    RUN(golden_pages);
    RUN(golden_end);
    player_close(&player);
    return test_end();
}
