#include "core/loop/rules_log.h"

#include "core/diagnose/rules.h"

void rules_log_put(Store *store, const DiagRules *rules, int64_t t_us)
{
    DiagRules usual = rules_default();
    for (int c = 0; c < DIAG_CLASS_COUNT; c++) {
        char words[RULE_WORDS];
        const DiagRules *in_force = rules ? rules : &usual;
        rules_words(in_force, (DiagClass)c, words);
        AlertRuleFact fact = {.t_us = t_us, .class_name = diagnose_class_name((DiagClass)c),
                              .words = words, .changed = rules_changed(in_force, (DiagClass)c)};
        store_put_alert_rule(store, &fact);
    }
}
