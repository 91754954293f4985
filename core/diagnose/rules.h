/* The rules' thresholds as data: what the incident rules ask, and how people write them. The file
 * is a small ini; `hold = 10s` is how long a thing lasts before it is an alert:
 *
 *     [alert TAIL]
 *     hold = 30s
 *     severity = info
 *
 *     [alert VER-SPLIT]
 *     off = yes
 *
 * Pure: no file is read here. A mistake is one line with file, line number and the fix. */
#ifndef ROLLTOP_DIAGNOSE_RULES_H
#define ROLLTOP_DIAGNOSE_RULES_H

#include "core/diagnose/diagnose.h"

/* setting, its word in the file, what it says, 1: a duration, 0: a number */
#define RULE_SETTINGS(X)                                                                          \
    X(RULE_HOLD, "hold", "lasts so long before it is an alert", 1)                                \
    X(RULE_CLEAR, "clear", "is over only when it was not so for this long", 1)                    \
    X(RULE_WORSE, "worse", "gets as bad as `severity` after so long", 1)                          \
    X(RULE_TIMES, "times", "this many times the median", 0)                                       \
    X(RULE_WORSE_TIMES, "worse-times", "gets as bad as `severity` at this many medians", 0)       \
    X(RULE_RESTARTS, "restarts", "this many starts within 30 minutes", 0)
#define RULE_SETTING_ENTRY(name, word, about, span) name,
typedef enum RuleSetting { RULE_SETTINGS(RULE_SETTING_ENTRY) RULE_SETTING_COUNT } RuleSetting;

typedef struct DiagRule {
    bool off;
    Severity severity;                /* the most that it gets */
    double value[RULE_SETTING_COUNT]; /* seconds or a number; NAN: the rule has no such setting */
} DiagRule;

struct DiagRules { /* declared in diagnose.h */
    DiagRule of[DIAG_CLASS_COUNT];
};

enum { RULE_WORDS = 128 };

DiagRules rules_default(void);
/* On top of what *rules holds. Appends a line to *problems for each mistake; returns how many. */
int rules_parse(DiagRules *rules, Str text, const char *path, Text *problems);
/* "hold 5s, times 1.5, worse-times 3, severity warn", or "off". */
void rules_words(const DiagRules *rules, DiagClass c, char out[RULE_WORDS]);
/* Not as it is by default. */
bool rules_changed(const DiagRules *rules, DiagClass c);
/* All of them as such a file, with what each is about as a comment. */
void rules_print(const DiagRules *rules, Text *out);

#endif
