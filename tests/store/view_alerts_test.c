/* Alerts at T, as they were known then, and the rules that raised them. */
#include "tests/store/view_log.h"

static void incident(int64_t id, double onset, double ended, Severity severity)
{
    IncidentFact fact = {.incident = id,
                         .onset_us = AT(onset),
                         .ended_us = ended > 0 ? AT(ended) : 0,
                         .class_name = "ENGINE-DEAD",
                         .severity = severity,
                         .engine = 1,
                         .evidence = ended > 0 ? NULL : "refused 3 times",
                         .next_key = "R"};
    store_put_incident(store, &fact);
}

static void test_alerts(void)
{
    fresh();
    incident(1, 5, 0, SEVERITY_WARN);
    incident(2, 6, 0, SEVERITY_CRIT);
    incident(3, 7, 0, SEVERITY_WARN);
    incident(2, 6, 9, SEVERITY_CRIT);
    incident(4, 20, 0, SEVERITY_CRIT);
    for (int i = 0; i < 30; i++) {
        EventFact event = {.t_us = AT(i + 1), .source = "core", .text = "tick"};
        store_put_event(store, &event);
    }
    incident(1, 5, 31, SEVERITY_WARN);
    flush();
    AlertList list = view_alerts(view, AT(8), 10, arena);
    CHECK_I64(list.count, 3);
    CHECK_I64(list.rows[0].incident, 2);
    CHECK_I64(list.rows[1].incident, 1);
    CHECK_STR(list.rows[0].evidence, "refused 3 times");
    list = view_alerts(view, AT(10), 10, arena);
    CHECK_I64(list.count, 2);
    list = view_alerts(view, AT(25), 10, arena);
    CHECK_I64(list.count, 3);
    CHECK_I64(list.rows[0].incident, 4);
    list = view_alerts(view, AT(32), 10, arena);
    CHECK_I64(list.count, 2);
    HeaderView h;
    CHECK(view_header(view, AT(25), arena, &h));
    CHECK_I64(h.alerts_open, 3);
    CHECK_I64(h.alerts_crit, 1);
    int64_t at = 0;
    CHECK(view_seek(view, MARK_ALERT, AT(7), 1, &at));
    CHECK_I64(at, AT(20));
    CHECK(view_seek(view, MARK_ALERT, AT(7), -1, &at));
    CHECK_I64(at, AT(6));
    gone();
}

/* An alert that began before it was raised: a motion lands where it is seen, from both sides. */
static void test_late_alert(void)
{
    fresh();
    int64_t at = 0;
    CHECK(!view_seek(view, MARK_ALERT, AT(50), -1, &at)); /* no alert, no tick */
    for (int i = 0; i < 60; i++) {
        EventFact event = {.t_us = AT(i + 1), .source = "core", .text = "tick"};
        if (i == 30) {
            incident(1, 12, 0, SEVERITY_WARN);
        } else if (i == 40) {
            incident(2, 41, 43, SEVERITY_CRIT);
        }
        store_put_event(store, &event);
    }
    flush();
    CHECK(view_seek(view, MARK_ALERT, AT(2), 1, &at));
    CHECK(at >= AT(28) && at <= AT(31));
    CHECK_I64(view_alerts(view, at, 10, arena).count, 1);
    int64_t first = at;
    CHECK(view_seek(view, MARK_ALERT, first, 1, &at));
    CHECK_I64(at, AT(41));
    CHECK_I64(view_alerts(view, at, 10, arena).count, 2);
    CHECK(!view_seek(view, MARK_ALERT, at, 1, &at));
    CHECK(view_seek(view, MARK_ALERT, AT(60), -1, &at));
    CHECK_I64(at, AT(41));
    CHECK(view_seek(view, MARK_ALERT, at, -1, &at));
    CHECK_I64(at, first);
    CHECK(!view_seek(view, MARK_ALERT, first, -1, &at));
    gone();
}

static void known(int64_t id, double at, double ended, Severity severity, const char *evidence)
{
    IncidentFact fact = {.incident = id, .onset_us = AT(5), .t_us = ended > 0 ? 0 : AT(at),
                         .ended_us = ended > 0 ? AT(ended) : 0, .class_name = "HEALTH-LIES",
                         .severity = severity, .engine = 1, .evidence = evidence};
    store_put_incident(store, &fact);
}

/* At T an alert is what was known of it at T: not there before it was raised, then a warning, and
 * as bad as it ended only from when it got so. */
static void test_alert_as_known(void)
{
    static const struct {
        double t;
        size_t count;
        Severity severity;
        double known;
        const char *evidence;
    } cases[] = {{7, 0, SEVERITY_INFO, 0, NULL},
                 {10, 1, SEVERITY_WARN, 8, "no token for 3 s"},
                 {64, 1, SEVERITY_WARN, 8, "no token for 3 s"},
                 {65, 1, SEVERITY_CRIT, 65, "no token for 60 s"},
                 {80, 1, SEVERITY_CRIT, 65, "no token for 60 s"},
                 {91, 0, SEVERITY_INFO, 0, NULL}};
    fresh();
    for (int i = 0; i < 100; i++) {
        EventFact event = {.t_us = AT(i + 1), .source = "core", .text = "tick"};
        store_put_event(store, &event);
        if (i + 1 == 8) {
            known(1, 8, 0, SEVERITY_WARN, "no token for 3 s");
        } else if (i + 1 == 65) {
            known(1, 65, 0, SEVERITY_CRIT, "no token for 60 s");
        } else if (i + 1 == 90) {
            known(1, 0, 90, SEVERITY_CRIT, "no token for 60 s");
        }
    }
    flush();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AlertList list = view_alerts(view, AT(cases[i].t), 10, arena);
        HeaderView h;
        CHECK_I64(list.count, cases[i].count);
        CHECK(view_header(view, AT(cases[i].t), arena, &h));
        CHECK_I64(h.alerts_open, cases[i].count);
        CHECK_I64(h.alerts_crit, cases[i].severity == SEVERITY_CRIT);
        if (list.count == 1) {
            CHECK_I64(list.rows[0].severity, cases[i].severity);
            CHECK_STR(list.rows[0].evidence, cases[i].evidence);
            CHECK_I64(list.rows[0].known_us, AT(cases[i].known));
        }
    }
    int64_t at = 0;
    CHECK(view_seek(view, MARK_ALERT, AT(2), 1, &at)); /* to where it is seen, not to its onset */
    CHECK_I64(at, AT(8));
    gone();
}

static void test_rules(void)
{
    fresh();
    for (int session = 0; session < 2; session++) {
        for (int i = 0; i < 2; i++) {
            AlertRuleFact fact = {.t_us = AT(session * 50 + 1), .changed = session == 1 && i == 1,
                                  .class_name = i ? "TAIL" : "ENGINE-DEAD",
                                  .words = session && i ? "off" : "hold 0s"};
            store_put_alert_rule(store, &fact);
        }
    }
    flush();
    CHECK_I64(view_rules(view, AT(0.5), arena).count, 0);
    RuleList list = view_rules(view, AT(40), arena);
    CHECK_I64(list.count, 2);
    CHECK_STR(list.rows[1].class_name, "TAIL");
    CHECK_STR(list.rows[1].words, "hold 0s");
    CHECK(!list.rows[1].changed);
    list = view_rules(view, AT(60), arena);
    CHECK_I64(list.count, 2);
    CHECK_STR(list.rows[1].words, "off");
    CHECK(list.rows[1].changed);
    gone();
}

int main(void)
{
    RUN(test_alerts);
    RUN(test_late_alert);
    RUN(test_alert_as_known);
    RUN(test_rules);
    return test_end();
}
