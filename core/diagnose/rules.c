#include "core/diagnose/rules.h"

#include "core/base/ini.h"
#include "core/base/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    VALUE_MAX = 48,
    QUOTED = 40, /* of a line that says nothing, in the words about it */
    AT_SEVERITY = RULE_SETTING_COUNT, /* what a rule has beside its settings, in Parser.at */
    AT_OFF,
    AT_COUNT
};

static const struct {
    const char *word, *about;
    bool span;
} settings[RULE_SETTING_COUNT] = {
#define RULE_SETTING_ROW(name, word, about, span) {word, about, span},
    RULE_SETTINGS(RULE_SETTING_ROW)
};

/* Where the reference states a figure (incidents), it is that one. */
DiagRules rules_default(void)
{
    DiagRules rules;
    for (int c = 0; c < DIAG_CLASS_COUNT; c++) {
        rules.of[c] = (DiagRule){.severity = SEVERITY_CRIT,
                                 .value = {[RULE_WORSE] = NAN, [RULE_TIMES] = NAN,
                                           [RULE_WORSE_TIMES] = NAN, [RULE_RESTARTS] = NAN}};
    }
    rules.of[DIAG_ENGINE_DEAD].value[RULE_RESTARTS] = 3;
    rules.of[DIAG_HEALTH_LIES].value[RULE_WORSE] = 60;
    rules.of[DIAG_ROUTER_DEAD].value[RULE_HOLD] = 1;
    rules.of[DIAG_LEFT_PAUSED].value[RULE_HOLD] = 10;
    rules.of[DIAG_VER_SPLIT].value[RULE_HOLD] = 10;
    rules.of[DIAG_TAIL] = (DiagRule){.severity = SEVERITY_WARN,
                                     .value = {[RULE_HOLD] = 5, [RULE_WORSE] = NAN,
                                               [RULE_TIMES] = 1.5, [RULE_WORSE_TIMES] = 3,
                                               [RULE_RESTARTS] = NAN}};
    rules.of[DIAG_LOST_TASK].value[RULE_HOLD] = 30;
    rules.of[DIAG_PHASE_STALL] = (DiagRule){.severity = SEVERITY_CRIT,
                                            .value = {[RULE_HOLD] = 300, [RULE_WORSE] = 1800,
                                                      [RULE_TIMES] = 3, [RULE_WORSE_TIMES] = 6,
                                                      [RULE_RESTARTS] = NAN}};
    return rules;
}

/* ---- writing ------------------------------------------------------------------------------- */

static const char *value_text(RuleSetting setting, double v, char out[VALUE_MAX])
{
    if (!settings[setting].span) {
        (void)str_format(out, VALUE_MAX, "%g", v);
    } else if (v >= 3600 && fmod(v, 3600) == 0) {
        (void)str_format(out, VALUE_MAX, "%gh", v / 3600);
    } else if (v >= 60 && fmod(v, 60) == 0) {
        (void)str_format(out, VALUE_MAX, "%gm", v / 60);
    } else {
        (void)str_format(out, VALUE_MAX, "%gs", v);
    }
    return out;
}

void rules_words(const DiagRules *rules, DiagClass c, char out[RULE_WORDS])
{
    const DiagRule *rule = &rules->of[c];
    char value[VALUE_MAX];
    size_t n = 0;
    if (rule->off) {
        (void)str_format(out, RULE_WORDS, "off");
        return;
    }
    for (int i = 0; i < RULE_SETTING_COUNT; i++) {
        bool says = i != RULE_CLEAR || rule->value[i] > 0; /* at once is what one expects */
        if (!isnan(rule->value[i]) && says) {
            (void)str_format(out + n, RULE_WORDS - n, "%s %s, ", settings[i].word,
                             value_text((RuleSetting)i, rule->value[i], value));
            n = strlen(out);
        }
    }
    (void)str_format(out + n, RULE_WORDS - n, "severity %s", severity_name(rule->severity));
}

bool rules_changed(const DiagRules *rules, DiagClass c)
{
    DiagRules usual = rules_default();
    char a[RULE_WORDS];
    char b[RULE_WORDS];
    rules_words(rules, c, a);
    rules_words(&usual, c, b);
    return strcmp(a, b) != 0;
}

void rules_print(const DiagRules *rules, Text *out)
{
    char value[VALUE_MAX];
    for (int c = 0; c < DIAG_CLASS_COUNT; c++) {
        const DiagRule *rule = &rules->of[c];
        text_addf(out, "%s[alert %s]\n# %s\noff = %s\n", c ? "\n" : "",
                  diagnose_class_name((DiagClass)c), diagnose_class_about((DiagClass)c),
                  rule->off ? "yes" : "no");
        for (int i = 0; i < RULE_SETTING_COUNT; i++) {
            if (!isnan(rule->value[i])) {
                text_addf(out, "%s = %s\n", settings[i].word,
                          value_text((RuleSetting)i, rule->value[i], value));
            }
        }
        text_addf(out, "severity = %s\n", severity_name(rule->severity));
    }
}

/* ---- reading ------------------------------------------------------------------------------- */

typedef struct Parser {
    DiagRules *rules;
    Text *problems;
    const char *path;
    int line, count;
    int at[DIAG_CLASS_COUNT][AT_COUNT]; /* line that a setting stands in; 0: none */
    DiagRule *rule; /* of the section; NULL: none, or one that has its problem already */
    DiagClass class_id;
    bool lost; /* in a section that is not known: its lines are not judged */
} Parser;

static void problem(Parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void problem(Parser *p, const char *format, ...)
{
    char words[240];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(words, sizeof words, format, args);
    va_end(args);
    utf8_defuse(words);
    text_addf(p->problems, "%s:%d: %s\n", p->path, p->line, words);
    p->count++;
}

static void take_section(Parser *p, Str name)
{
    Str rest = name;
    Str word = name;
    (void)str_split(&rest, ' ', &word);
    rest = str_trim(rest);
    p->rule = NULL;
    p->lost = true;
    if (!str_equal(word, STR("alert"))) {
        problem(p, "section [%.*s] is unknown; write [alert CLASS]", (int)name.n, name.p);
        return;
    }
    for (int c = 0; c < DIAG_CLASS_COUNT; c++) {
        if (str_equal_nocase(rest, str_from(diagnose_class_name((DiagClass)c)))) {
            p->rule = &p->rules->of[c];
            p->class_id = (DiagClass)c;
            p->lost = false;
            return;
        }
    }
    problem(p, "no alert is called '%.*s'; `rolltop config alerts` lists them", (int)rest.n,
            rest.p);
}

/* "1500ms", "10s", "5m", "2h" as seconds; a bare number only where it is no duration. */
static bool read_value(Str value, bool span, double *out)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}};
    char text[VALUE_MAX];
    char *end = NULL;
    if (value.n == 0 || value.n >= sizeof text || !(isdigit((unsigned char)value.p[0]) ||
                                                    value.p[0] == '.')) {
        return false;
    }
    (void)str_format(text, sizeof text, "%.*s", (int)value.n, value.p);
    *out = strtod(text, &end);
    if (!span) {
        return *end == '\0' && isfinite(*out) && *out >= 1 && *out <= 1e6;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].unit) == 0) {
            *out *= units[i].seconds;
            return isfinite(*out) && *out <= 30 * 86400.0;
        }
    }
    return false;
}

/* Of two lines for one setting nobody knows which was meant. */
static bool stands_once(Parser *p, int what, const char *word)
{
    int *at = &p->at[p->class_id][what];
    if (*at > 0) {
        problem(p, "%s of %s stands in line %d already; leave one of them out", word,
                diagnose_class_name(p->class_id), *at);
        return false;
    }
    *at = p->line;
    return true;
}

static void take_setting(Parser *p, int setting, Str value)
{
    double v = 0;
    bool span = settings[setting].span;
    const char *word = settings[setting].word;
    if (isnan(p->rule->value[setting])) {
        problem(p, "%s has no setting '%s'; `rolltop config alerts` lists what it has",
                diagnose_class_name(p->class_id), word);
    } else if (!read_value(value, span, &v)) {
        problem(p, span ? "%s is a time up to 30 days, e.g. 10s, 5m or 2h, not '%.*s'"
                        : "%s is a number from 1 on, e.g. 3, not '%.*s'", word, (int)value.n,
                value.p);
    } else if (stands_once(p, setting, word)) {
        p->rule->value[setting] = v;
    }
}

static void take_severity(Parser *p, Str value)
{
    for (int s = SEVERITY_INFO; s <= SEVERITY_CRIT; s++) {
        if (str_equal_nocase(value, str_from(severity_name((Severity)s)))) {
            p->rule->severity = stands_once(p, AT_SEVERITY, "severity") ? (Severity)s
                                                                        : p->rule->severity;
            return;
        }
    }
    problem(p, "severity is info, warn or crit, not '%.*s'", (int)value.n, value.p);
}

static void take_off(Parser *p, Str value)
{
    bool yes = str_equal_nocase(value, STR("yes")) || str_equal_nocase(value, STR("on"));
    if (!yes && !str_equal_nocase(value, STR("no")) && !str_equal_nocase(value, STR("off"))) {
        problem(p, "off is yes or no, not '%.*s'", (int)value.n, value.p);
        return;
    }
    if (stands_once(p, AT_OFF, "off")) {
        p->rule->off = yes;
    }
}

static void take_pair(Parser *p, Str key, Str value)
{
    if (!p->rule) {
        problem(p, "'%.*s' stands in no section; write [alert CLASS] above it", (int)key.n, key.p);
        return;
    }
    if (str_equal(key, STR("severity"))) {
        take_severity(p, value);
        return;
    }
    if (str_equal(key, STR("off"))) {
        take_off(p, value);
        return;
    }
    for (int i = 0; i < RULE_SETTING_COUNT; i++) {
        if (str_equal(key, str_from(settings[i].word))) {
            take_setting(p, i, value);
            return;
        }
    }
    problem(p, "'%.*s' is no setting of an alert; there are off, severity, hold, clear, worse, "
            "times, worse-times, restarts", (int)key.n, key.p);
}

static void take_line(Parser *p, Str text)
{
    IniLine line;
    switch (ini_read(text, &line)) {
    case INI_NOTHING: break;
    case INI_SECTION: take_section(p, line.key); break;
    case INI_ZERO: problem(p, "a byte 0 stands in this line; write it anew"); break;
    case INI_PAIR:
        if (!p->lost) {
            take_pair(p, line.key, line.value);
        }
        break;
    case INI_OTHER:
        if (!p->lost) {
            problem(p, "expected '[alert CLASS]' or 'name = value', not '%.*s'",
                    line.text.n > QUOTED ? QUOTED : (int)line.text.n, line.text.p);
        }
        break;
    }
}

/* It cannot get worse before it is there. */
static void check_order(Parser *p)
{
    static const RuleSetting pairs[][2] = {{RULE_HOLD, RULE_WORSE}, {RULE_TIMES, RULE_WORSE_TIMES}};
    for (int c = 0; c < DIAG_CLASS_COUNT; c++) {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            const double *v = p->rules->of[c].value;
            bool both = !isnan(v[pairs[i][0]]) && !isnan(v[pairs[i][1]]);
            /* A sample's median and a phase's are two scales. */
            if (both && c != DIAG_TAIL && v[pairs[i][1]] < v[pairs[i][0]]) {
                char a[VALUE_MAX];
                char b[VALUE_MAX];
                int one = p->at[c][pairs[i][0]];
                int other = p->at[c][pairs[i][1]];
                p->line = one > other ? one : other;
                problem(p, "%s: %s %s is before %s %s; make it the later one",
                        diagnose_class_name((DiagClass)c), settings[pairs[i][1]].word,
                        value_text(pairs[i][1], v[pairs[i][1]], a), settings[pairs[i][0]].word,
                        value_text(pairs[i][0], v[pairs[i][0]], b));
            }
        }
    }
}

int rules_parse(DiagRules *rules, Str text, const char *path, Text *problems)
{
    Parser p = {.rules = rules, .problems = problems, .path = path};
    Str line;
    while (str_split(&text, '\n', &line)) {
        p.line++;
        take_line(&p, line);
    }
    check_order(&p);
    return p.count;
}
