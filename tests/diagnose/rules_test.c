/* Rules as data: what is written is what is read, mistakes have their line and the fix, and the
 * incident rules keep to what they are given. */
#include "core/base/mem.h"
#include "core/diagnose/rules.h"
#include "tests/harness.h"

#define S INT64_C(1000000)

static int parse(DiagRules *rules, const char *file, Text *problems)
{
    *rules = rules_default();
    text_init(problems, 1 << 16);
    return rules_parse(rules, str_from(file), "alerts.ini", problems);
}

static void test_round_trip(void)
{
    DiagRules usual = rules_default();
    DiagRules again;
    Text text;
    Text twice;
    Text problems;
    text_init(&text, 1 << 16);
    text_init(&twice, 1 << 16);
    usual.of[DIAG_TAIL].value[RULE_TIMES] = 2.5;
    usual.of[DIAG_TAIL].off = true;
    usual.of[DIAG_PHASE_STALL].value[RULE_WORSE] = 7200;
    usual.of[DIAG_VER_SPLIT].value[RULE_HOLD] = 0.25;
    usual.of[DIAG_VER_SPLIT].severity = SEVERITY_INFO;
    rules_print(&usual, &text);
    CHECK_I64(parse(&again, text_c(&text), &problems), 0);
    CHECK_STR(text_c(&problems), "");
    rules_print(&again, &twice);
    CHECK_STR(text_c(&text), text_c(&twice));
    for (int c = 0; c < DIAG_CLASS_COUNT; c++) {
        bool changed = c == DIAG_TAIL || c == DIAG_PHASE_STALL || c == DIAG_VER_SPLIT;
        CHECK_I64(rules_changed(&again, (DiagClass)c), changed);
    }
    text_free(&text);
    text_free(&twice);
    text_free(&problems);
}

static void test_words(void)
{
    DiagRules rules;
    Text problems;
    char words[RULE_WORDS];
    CHECK_I64(parse(&rules, "# calm\n[alert tail]\nhold = 1500ms\ntimes = 2\nseverity = CRIT\n"
                            "[alert VER-SPLIT]\noff = yes\n", &problems), 0);
    rules_words(&rules, DIAG_TAIL, words);
    CHECK_STR(words, "hold 1.5s, times 2, worse-times 3, severity crit");
    rules_words(&rules, DIAG_VER_SPLIT, words);
    CHECK_STR(words, "off");
    rules_words(&rules, DIAG_PHASE_STALL, words);
    CHECK_STR(words, "hold 5m, worse 30m, times 3, worse-times 6, severity crit");
    text_free(&problems);
}

static void test_mistakes(void)
{
    static const struct {
        const char *file, *words;
    } cases[] = {
        {"[alert NOPE]\nhold = what\n", "alerts.ini:1: no alert is called 'NOPE'"},
        {"[console]\n", "alerts.ini:1: section [console] is unknown; write [alert CLASS]"},
        {"\nhold = 5s\n", "alerts.ini:2: 'hold' stands in no section"},
        {"[alert TAIL]\nhold = 5\n", "alerts.ini:2: hold is a time up to 30 days"},
        {"[alert TAIL]\nhold = -5s\n", "not '-5s'"},
        {"[alert TAIL]\nhold = 1e99h\n", "not '1e99h'"},
        {"[alert TAIL]\nhold = infs\n", "not 'infs'"},
        {"[alert TAIL]\nhold =\n", "not ''"},
        {"[alert TAIL]\ntimes = 0\n", "times is a number from 1 on"},
        {"[alert TAIL]\ntimes = 3x\n", "not '3x'"},
        {"[alert TAIL]\nrestarts = 3\n", "TAIL has no setting 'restarts'"},
        {"[alert TAIL]\nseverity = loud\n", "severity is info, warn or crit, not 'loud'"},
        {"[alert TAIL]\noff = maybe\n", "off is yes or no, not 'maybe'"},
        {"[alert TAIL]\ncolour = red\n", "'colour' is no setting of an alert"},
        {"[alert TAIL]\nho\x1b[31mld = 5s\n", "alerts.ini:2: 'ho?[31mld' is no setting"},
        {"[alert \x1b]0;x\aTAIL]\n", "alerts.ini:1: no alert is called '?]0;x?TAIL'"},
        {"[alert TAIL]\nhold = 5m\n[alert tail]\nhold = 2s\n",
         "alerts.ini:4: hold of TAIL stands in line 2 already; leave one of them out"},
        {"[alert TAIL]\noff = yes\noff = no\n", "alerts.ini:3: off of TAIL stands in line 2"},
        {"[alert TAIL]\nseverity = warn\nseverity = warn\n", "alerts.ini:3: severity of TAIL"},
        {"[alert TAIL]\nnonsense\n", "expected '[alert CLASS]' or 'name = value'"},
        {"[alert PHASE-STALL]\nhold = 1h\n\n# end\n",
         "alerts.ini:2: PHASE-STALL: worse 30m is before hold 1h; make it the later one"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        DiagRules rules;
        Text problems;
        CHECK_I64(parse(&rules, cases[i].file, &problems), 1);
        bool said = strstr(text_c(&problems), cases[i].words) != NULL;
        if (!said) {
            printf("%s\nis not in: %s", cases[i].words, text_c(&problems));
        }
        CHECK(said);
        text_free(&problems);
    }
}

/* What stands behind a byte 0 is not left out in silence. */
static void test_byte_zero(void)
{
    static const char file[] = "[alert TAIL]\nhold = 7s\0 5m\n";
    DiagRules rules = rules_default();
    Text problems;
    text_init(&problems, 1 << 16);
    CHECK_I64(rules_parse(&rules, (Str){file, sizeof file - 1}, "alerts.ini", &problems), 1);
    CHECK_STR(text_c(&problems), "alerts.ini:2: a byte 0 stands in this line; write it anew\n");
    CHECK(rules.of[DIAG_TAIL].value[RULE_HOLD] == 5);
    text_free(&problems);
}

/* Severity of the incident that one stuck engine opens after `age_s`; -1: none. */
static int stuck(const DiagRules *rules, double age_s)
{
    Diagnose *d = diagnose_new(1, rules);
    DiagEngine engine = {.engine = 1, .state = ENGINE_STUCK, .state_since_us = 1000 * S,
                         .admitted = true, .reported_version = -1};
    DiagPicture p = {.now_us = 1000 * S + (int64_t)(age_s * 1e6), .phase = PHASE_INIT,
                     .committed = -1, .engines = &engine, .engine_count = 1};
    DiagAction action;
    diagnose_tick(d, &p);
    int severity = diagnose_next(d, &action) ? (int)action.severity : -1;
    diagnose_free(d);
    return severity;
}

static void test_in_force(void)
{
    DiagRules rules;
    Text problems;
    CHECK_I64(stuck(NULL, 0), SEVERITY_WARN);
    CHECK_I64(stuck(NULL, 60), SEVERITY_CRIT);
    CHECK_I64(parse(&rules, "[alert HEALTH-LIES]\nhold = 10s\nworse = 2m\n", &problems), 0);
    CHECK_I64(stuck(&rules, 9.9), -1);
    CHECK_I64(stuck(&rules, 10), SEVERITY_WARN);
    CHECK_I64(stuck(&rules, 119), SEVERITY_WARN);
    CHECK_I64(stuck(&rules, 120), SEVERITY_CRIT);
    text_free(&problems);
    CHECK_I64(parse(&rules, "[alert HEALTH-LIES]\nseverity = info\n", &problems), 0);
    CHECK_I64(stuck(&rules, 1), SEVERITY_INFO); /* never above what it may be */
    CHECK_I64(stuck(&rules, 600), SEVERITY_INFO);
    text_free(&problems);
    CHECK_I64(parse(&rules, "[alert HEALTH-LIES]\noff = yes\n", &problems), 0);
    CHECK_I64(stuck(&rules, 600), -1);
    text_free(&problems);
}

/* It flaps: with `clear` it stays one alert until it was calm for so long; a run's end ends it. */
static void test_clear(void)
{
    DiagRules rules;
    Text problems;
    DiagAction action;
    CHECK_I64(parse(&rules, "[alert HEALTH-LIES]\nclear = 5s\n", &problems), 0);
    char words[RULE_WORDS];
    rules_words(&rules, DIAG_HEALTH_LIES, words);
    CHECK_STR(words, "hold 0s, clear 5s, worse 1m, severity crit");
    Diagnose *d = diagnose_new(1, &rules);
    DiagEngine engine = {.engine = 1, .state = ENGINE_STUCK, .state_since_us = 1000 * S,
                         .admitted = true, .reported_version = -1};
    DiagPicture p = {.now_us = 1000 * S, .phase = PHASE_INIT, .committed = -1,
                     .engines = &engine, .engine_count = 1};
    int told = 0;
    for (int i = 0; i < 20; i++, p.now_us += S) { /* three seconds so, three not */
        engine.state = i % 6 < 3 ? ENGINE_STUCK : ENGINE_UP;
        diagnose_tick(d, &p);
        while (diagnose_next(d, &action)) {
            told++;
        }
    }
    CHECK_I64(told, 1);
    engine.state = ENGINE_UP;
    int64_t calm_us = 0;
    for (int i = 0; i < 10 && calm_us == 0; i++, p.now_us += S) {
        diagnose_tick(d, &p);
        calm_us = diagnose_next(d, &action) ? action.ended_us : 0;
    }
    CHECK_I64(calm_us, 1024 * S); /* last so at 1019 */
    engine.state = ENGINE_STUCK;
    diagnose_tick(d, &p);
    CHECK(diagnose_next(d, &action) && action.ended_us == 0);
    p.now_us += S;
    p.phase = PHASE_DONE;
    p.engine_count = 0;
    diagnose_tick(d, &p);
    CHECK(diagnose_next(d, &action) && action.ended_us == p.now_us);
    diagnose_free(d);
    text_free(&problems);
}

int main(void)
{
    RUN(test_round_trip);
    RUN(test_words);
    RUN(test_mistakes);
    RUN(test_byte_zero);
    RUN(test_in_force);
    RUN(test_clear);
    return test_end();
}
