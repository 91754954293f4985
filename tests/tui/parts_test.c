/* The pure parts: sanitiser, widths, formats, filter, moments, themes, key table, layout. */
#include "core/base/fs.h"
#include "core/base/rng.h"
#include "core/base/utf8.h"
#include "tests/harness.h"
#include "tests/tui/fixture.h"
#include "tui/theme.h"

/* Whatever goes in, no control, format, bidi, private or unassigned code point comes out, and the
 * cells used never pass the limit. */
static void nothing_hostile_passes(void)
{
    for (uint32_t code = 0; code < 0x110000; code++) {
        uint32_t out = 0;
        int width = 0;
        bool joins = surface_sanitise(code, false, &out, &width);
        bool bad = out < 0x20 || (out >= 0x7f && out < 0xa0) || out == 0xad ||
                   (out >= 0x200b && out <= 0x200f) || (out >= 0x2028 && out <= 0x202e) ||
                   (out >= 0x2060 && out <= 0x206f) || out == 0xfeff || out == 0x61c ||
                   (out >= 0xe000 && out <= 0xf8ff) || out >= 0xe0100 ||
                   (out >= 0xd800 && out <= 0xdfff);
        if (bad && !(joins && out >= 0xe0100)) {
            CHECK_I64(code, -1);
            return;
        }
        if (joins ? width != 0 : width < 1 || width > 2) {
            CHECK_I64(code, -2);
            return;
        }
        (void)surface_sanitise(code, true, &out, &width);
        if (!joins && (out < 0x20 || out >= 0x7f)) {
            CHECK_I64(code, -3);
            return;
        }
    }
    CHECK(true);
}

static void random_bytes_stay_inside(void)
{
    Rng rng;
    Surface *surface = surface_new(40, 4, false);
    rng_seed(&rng, 7);
    for (int round = 0; round < 20000; round++) {
        char bytes[64];
        size_t n = (size_t)rng_below(&rng, sizeof bytes);
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (char)rng_u64(&rng);
        }
        int x = (int)rng_below(&rng, 50) - 5;
        int w = (int)rng_below(&rng, 45);
        int used = surface_put(surface, x, (int)rng_below(&rng, 6) - 1, w, ROLE_TEXT,
                               (Str){bytes, n});
        if (used > w) {
            CHECK_I64(used, w);
        }
    }
    for (int y = 0; y < 4; y++) { /* no half of a wide character anywhere */
        for (int x = 0; x < 40; x++) {
            if (surface_cell(surface, x, y)->code == 0) {
                uint32_t out = 0;
                int width = 0;
                CHECK(x > 0);
                (void)surface_sanitise(surface_cell(surface, x - 1, y)->code, false, &out, &width);
                CHECK_I64(width, 2);
            }
        }
    }
    surface_free(surface);
}

static const char *put(const char *text, int w, bool ascii)
{
    static char out[256];
    Surface *surface = surface_new(w, 1, ascii);
    Text dump;
    text_init(&dump, 1000);
    surface_put(surface, 0, 0, w, ROLE_TEXT, str_from(text));
    surface_dump_text(surface, &dump);
    (void)str_format(out, sizeof out, "%.*s", (int)dump.n - 1, dump.p);
    text_free(&dump);
    surface_free(surface);
    return out;
}

static void cells(void)
{
    CHECK_STR(put("hello", 10, false), "hello");
    CHECK_STR(put("hello world", 8, false), "hello w\xe2\x80\xa6");
    CHECK_STR(put("hello world", 8, true), "hello w~");
    CHECK_STR(put("\xe6\x9d\xb1\xe4\xba\xac", 4, false), "\xe6\x9d\xb1\xe4\xba\xac");
    CHECK_STR(put("\xe6\x9d\xb1\xe4\xba\xac", 3, false), "\xe6\x9d\xb1\xe2\x80\xa6");
    CHECK_STR(put("\xe6\x9d\xb1\xe4\xba\xac", 2, false), " \xe2\x80\xa6");
    CHECK_STR(put("\xe6\x9d\xb1", 4, true), "??");
    CHECK_STR(put("e\xcc\x81x", 4, false), "e\xcc\x81x");
    CHECK_STR(put("\xcc\x81x", 4, false), "x");
    CHECK_STR(put("a\tb\nc\x1b[m", 9, true), "a?b?c?[m");
}

static void formats(void)
{
    char a[FORMAT_MAX];
    CHECK_STR(format_count(0, a), "0");
    CHECK_STR(format_count(931, a), "931");
    CHECK_STR(format_count(11940, a), "11.9k");
    CHECK_STR(format_count(136512, a), "137k");
    CHECK_STR(format_count(1e6, a), "1.00M");
    CHECK_STR(format_count(99.96, a), "100");
    CHECK_STR(format_count(NAN, a), "-");
    CHECK_STR(format_count_val(val_none(), a), "-");
    CHECK_STR(format_age(S(0.42), a), "0.4s");
    CHECK_STR(format_age(S(9.94), a), "9.9s");
    CHECK_STR(format_age(S(9.97), a), "10s");
    CHECK_STR(format_age(S(41), a), "41s");
    CHECK_STR(format_age(S(599), a), "599s");
    CHECK_STR(format_age(S(965), a), "16m");
    CHECK_STR(format_age(S(11520), a), "3h12m");
    CHECK_STR(format_age(S(90000), a), "1d01h");
    CHECK_STR(format_age(-1, a), "-");
    CHECK_STR(format_ms(val_of(21.4, 1), a), "21ms");
    CHECK_STR(format_ms(val_of(1234, 1), a), "1.2s");
    CHECK_STR(format_clock(FIXTURE_T, a), "10:42:07");
    CHECK_STR(format_date(FIXTURE_T, a), "2026-03-14 10:42:07Z");
    CHECK_STR(format_version(-1, a), "-");
    CHECK_STR(format_ratio(0.7123, a), "0.712");
}

static void filters(void)
{
    const FilterField fields[] = {{"state", "DEAD", val_none()},
                                  {"kv", NULL, val_of(97, 1)},
                                  {"run", NULL, val_none()}};
    CHECK(filter_match("", "eng-03", fields, 3));
    CHECK(filter_match("ENG", "eng-03", fields, 3));
    CHECK(!filter_match("eng !03", "eng-03", fields, 3));
    CHECK(filter_match("state:dead kv>90", "eng-03", fields, 3));
    CHECK(!filter_match("kv<90", "eng-03", fields, 3));
    CHECK(!filter_match("run>0", "eng-03", fields, 3)); /* unknown is not zero */
    CHECK(filter_match("!state:ok", "eng-03", fields, 3));
    CHECK(!filter_match("kv>x", "eng-03", fields, 3));
    CHECK(filter_match("http://x", "see http://x", fields, 3));
}

static Seek go(const char *text, bool good)
{
    Seek seek;
    CHECK(time_parse(str_from(text), FIXTURE_T, FIXTURE_T - S(20000), FIXTURE_T, &seek) == good);
    return seek;
}

static void moments(void)
{
    CHECK_I64(go("10:41", true).value, FIXTURE_T - S(67));
    CHECK_I64(go("10:41:30", true).value, FIXTURE_T - S(37));
    CHECK_I64(go("-5m", true).value, FIXTURE_T - S(300));
    CHECK_I64(go("+30s", true).value, FIXTURE_T + S(30));
    CHECK_I64(go("2026-03-14 10:42:07", true).value, FIXTURE_T);
    CHECK_I64(go("2026-03-14T10:42:07Z", true).value, FIXTURE_T);
    CHECK_I64(go("4126", true).kind, SEEK_STEP);
    CHECK_I64(go("v210", true).value, 210);
    CHECK_I64(go("v210", true).kind, SEEK_POLICY);
    CHECK_STR(go("heartbeat lost", true).text, "heartbeat lost");
    CHECK_I64(go("99:99", true).kind, SEEK_TEXT);
    (void)go("", false);
    (void)go("  ", false);
}

static void key_table(void)
{
    char name[KEY_NAME_MAX];
    char why[160];
    int next = 0;
    Keymap map;
    keymap_defaults(&map);
    CHECK(!keymap_conflict(&map, &next, why, sizeof why));
    for (int a = 0; a < ACT_COUNT; a++) {
        const ActionInfo *info = keymap_info((Action)a);
        CHECK(info->help[0] != '\0' && info->name[0] != '\0' && info->keys[0] != 0);
        CHECK(keymap_by_name(info->name, strlen(info->name)) == (Action)a);
        for (int i = 0; i < KEYS_PER_ACTION && info->keys[i]; i++) {
            int key = info->keys[i];
            bool time = info->group == G_TIME;
            keymap_key_name(key, name, sizeof name);
            CHECK(strcmp(name, "?") != 0 || key == '?');
            CHECK_I64(keymap_key(name, strlen(name)), key);
            CHECK(keymap_find(&map, key, time, time) == (Action)a);
            CHECK((info->group == G_ACT) == (key < 128 && strchr("PURCX", key) != NULL));
        }
    }
}

static void docs_list_every_key(void)
{
    Text text;
    Fault fault = {0};
    text_init(&text, 1 << 20);
    CHECK(fs_read(ROLLTOP_SOURCE "/docs/console.md", &text, &fault) == ERR_OK);
    for (int a = 0; a < ACT_COUNT; a++) {
        const ActionInfo *info = keymap_info((Action)a);
        char row[256];
        char keys[64] = "";
        for (int i = 0; i < KEYS_PER_ACTION && info->keys[i]; i++) {
            char name[KEY_NAME_MAX];
            size_t used = strlen(keys);
            keymap_key_name(info->keys[i], name, sizeof name);
            (void)snprintf(keys + used, sizeof keys - used, "%s`%s`", used ? " " : "", name);
        }
        (void)snprintf(row, sizeof row, "| %s | `%s` | %s |", keys, info->name, info->help);
        const char *update = getenv("UPDATE");
        if (update && update[0] == '1') {
            printf("%s\n", row); /* paste into docs/console.md */
        }
        if (!strstr(text_c(&text), row)) {
            fprintf(stderr, "docs/console.md lacks: %s\n", row);
        }
        CHECK(strstr(text_c(&text), row) != NULL);
    }
    for (int role = 0; role < ROLE_COUNT; role++) {
        char word[64];
        (void)snprintf(word, sizeof word, "`%s`", theme_role_name((Role)role));
        CHECK(strstr(text_c(&text), word) != NULL);
    }
    text_free(&text);
}

static void themes(void)
{
    static const char *const names[] = {"dusk",     "paper", "mono",
                                        "contrast", "deut",  "ember"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        Theme theme;
        ThemeProblems problems = {.count = 0};
        char base[64];
        char path[256];
        Text text;
        Fault fault = {0};
        text_init(&text, 65536);
        (void)snprintf(path, sizeof path, "%s/themes/%s.theme", ROLLTOP_SOURCE, names[i]);
        CHECK(fs_read(path, &text, &fault) == ERR_OK);
        theme_load(&theme, ROLLTOP_SOURCE "/themes", names[i], &problems);
        CHECK_I64(problems.total, 0);
        for (int role = 0; role < ROLE_COUNT; role++) {
            Style mono = theme_style(&theme, (Role)role, 0);
            CHECK(mono.fg == COLOUR_DEFAULT && mono.bg == COLOUR_DEFAULT);
            Style eight = theme_style(&theme, (Role)role, 8);
            CHECK(eight.fg < 8 && eight.bg < 8);
            bool quiet = role == ROLE_BORDER || role == ROLE_GONE;
            double floor = quiet ? 2.5 : 4.5;
            if (theme_contrast(&theme, (Role)role) < floor) {
                fprintf(stderr, "%s: %s\n", names[i], theme_role_name((Role)role));
            }
            CHECK(theme_contrast(&theme, (Role)role) >= floor);
        }
        theme_check(&theme, names[i], &problems);
        for (size_t k = 0; k < problems.count; k++) {
            fprintf(stderr, "%s\n", problems.lines[k]);
        }
        CHECK_I64(problems.total, 0);
        theme_parse(&theme, text_str(&text), path, base, &problems);
        CHECK_I64(problems.total, 0);
        text_free(&text);
    }
}

static void theme_mistakes(void)
{
    Theme theme;
    ThemeProblems problems = {.count = 0};
    char base[64];
    static const char text[] = "ok = red\n[theme]\nbase = dusk\nspeed = 9\n[roles]\nok = gren\n"
                               "shine = red\nwarn = yellow on\ncrit = red loud\njunk\n"
                               "[rols]\nok = red\n[roles]\nstale = #ff0000 bold ; fine\n";
    theme_builtin(&theme, false);
    theme_parse(&theme, str_from(text), "x.theme", base, &problems);
    CHECK_I64(problems.total, 8);
    CHECK_STR(base, "dusk");
    CHECK_STR(problems.lines[0],
              "x.theme:1: 'ok' stands in no section; write [theme] above it");
    CHECK(strstr(problems.lines[1], "x.theme:4: 'speed'") != NULL);
    CHECK(strstr(problems.lines[2], "x.theme:6: 'gren' is no colour") != NULL);
    CHECK(strstr(problems.lines[3], "x.theme:7: role 'shine'") != NULL);
    CHECK(strstr(problems.lines[5], "x.theme:9: 'loud' is no attribute") != NULL);
    CHECK_I64(theme.styles[0][ROLE_STALE].fg, COLOUR_RGB | 0xff0000);
    CHECK_I64(theme_style(&theme, ROLE_OK, 256).fg, 114); /* the mistake left it as it was */
    problems.count = problems.total = 0;
    theme_builtin(&theme, false);
    theme_parse(&theme, STR("[roles]\ndim = #303030\nok = #9faf5f\nwarn = #afaf5f\n"), "y",
                base, &problems);
    CHECK_I64(problems.total, 0);
    theme_check(&theme, "y", &problems);
    CHECK(problems.total >= 2);
    CHECK(strstr(problems.lines[0], "y: dim has a contrast of 1.") != NULL);
    CHECK(strstr(problems.lines[problems.count - 1], "ok and warn look alike") != NULL);
    CHECK_I64(theme_style(&theme, ROLE_WARN, 1 << 24).fg, 0xafaf5f); /* direct colour */
    CHECK_I64(theme_style(&theme, ROLE_CRIT, 1 << 24).fg, 0xff8787); /* 210 of 256 */
    theme_builtin(&theme, false);
    problems.count = problems.total = 0;
    theme_load(&theme, "/nowhere", "missing", &problems);
    CHECK_I64(problems.total, 1);
    CHECK_I64(theme_style(&theme, ROLE_OK, 256).fg, 114);
    theme_load(&theme, ROLLTOP_SOURCE "/themes", "../themes/paper", &problems);
    CHECK_I64(problems.total, 2);
}

static bool inside(Rect r, int w, int h)
{
    return r.w == 0 || (r.x >= 0 && r.y >= 0 && r.w > 0 && r.h >= 0 && r.x + r.w <= w &&
                        r.y + r.h <= h);
}

static bool apart(Rect a, Rect b)
{
    return a.w == 0 || b.w == 0 || a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y ||
           b.y + b.h <= a.y;
}

static void layouts(void)
{
    int bad = 0;
    for (int w = 1; w <= 250; w++) {
        for (int h = 1; h <= 80; h++) {
            for (int k = 0; k < PANE_COUNT * 8; k++) {
                LayoutWish wish = {.focus = (Pane)(k % PANE_COUNT), .zoom = (k / PANE_COUNT) & 1,
                                   .detail = (k / PANE_COUNT) & 2, .second = (k / PANE_COUNT) & 4,
                                   .engines = (size_t)(k * w % 40)};
                Layout l = layout_solve(w, h, &wish);
                Rect all[PANE_COUNT + 5];
                int n = 0;
                for (int p = 0; p < PANE_COUNT; p++) {
                    all[n++] = l.panes[p];
                }
                all[n++] = l.header;
                all[n++] = l.detail;
                all[n++] = l.history;
                all[n++] = l.status;
                all[n++] = l.footer;
                for (int i = 0; i < n; i++) {
                    bad += inside(all[i], w, h) ? 0 : 1;
                    for (int j = i + 1; j < n; j++) {
                        bad += apart(all[i], all[j]) ? 0 : 1;
                    }
                }
                bool shown = l.summary || l.detail.w > 0 || l.panes[wish.focus].w > 0;
                bad += shown ? 0 : 1;
            }
        }
    }
    CHECK_I64(bad, 0);
}

/* Without colour no two states look the same. */
static void states_differ(void)
{
    for (int a = 0; a <= ENGINE_GONE; a++) {
        for (int b = a + 1; b <= ENGINE_GONE; b++) {
            CHECK(strcmp(state_look((EngineState)a)->word, state_look((EngineState)b)->word) != 0);
        }
        CHECK(strlen(state_look((EngineState)a)->word) <= 6);
    }
    for (int a = 0; a <= PHASE_DONE; a++) {
        for (int b = a + 1; b <= PHASE_DONE; b++) {
            CHECK(phase_letter((LoopPhase)a) != phase_letter((LoopPhase)b));
            CHECK(strcmp(phase_word((LoopPhase)a), phase_word((LoopPhase)b)) != 0);
        }
    }
    EngineRow row = {.state = ENGINE_UP, .seen_us = FIXTURE_T - S(6)};
    CHECK_I64(state_shown(&row, FIXTURE_T), ENGINE_STALE); /* never a green row that lies */
    row.state = ENGINE_DEAD;
    CHECK_I64(state_shown(&row, FIXTURE_T), ENGINE_DEAD);
}

/* A run that is over costs no reads; one that goes on, or ended just now, is looked at again. */
static void what_fades(void)
{
    Snapshot snap = {.ready = true};
    int64_t ended_us = INT64_C(1773484927000000);
    int64_t minute_us = 60000000;
    snap.run.last_us = ended_us;
    snap.run.core_alive = true;
    CHECK(snapshot_fades(&snap, ended_us + 600 * minute_us)); /* samples in flight grow older */
    snap.run.core_alive = false;
    CHECK(snapshot_fades(&snap, ended_us));
    CHECK(snapshot_fades(&snap, ended_us + 10 * minute_us)); /* events of ten minutes are counted */
    CHECK(!snapshot_fades(&snap, ended_us + 12 * minute_us));
    CHECK(snapshot_fades(&snap, ended_us - minute_us)); /* rows of a time to come */
}

int main(void)
{
    RUN(nothing_hostile_passes);
    RUN(random_bytes_stay_inside);
    RUN(cells);
    RUN(formats);
    RUN(filters);
    RUN(moments);
    RUN(key_table);
    RUN(docs_list_every_key);
    RUN(themes);
    RUN(theme_mistakes);
    RUN(layouts);
    RUN(states_differ);
    RUN(what_fades);
    return test_end();
}
