/* Real processes, killed at each named phase of the policy transaction: a core, a frontend, a
 * trainer that learns nothing, three synthetic engines behind a tap (tap.h) that kills at
 * the call that stands for the phase, and engines that misbehave by their fault route. After each
 * kill everything must come back, a policy must go out to all three, and then, with the run held,
 * the engines themselves are asked what they hold. The log is judged with the rules of
 * docs/policy-transaction.md. usage: policy_phases_test [all | prepare | JSON of a
 * fault]; without: a short set. */
#include "tests/harness.h"
#include "tests/policy/phases_world.h"

enum { ODD = 1 }; /* the engine that is killed or misbehaves */

typedef enum Victim { CORE, ENGINE, FRONTEND, TRAINER } Victim;

typedef struct Round {
    const char *phase;
    TapCall call;
    int engine, nth, which;
    bool after;
    int delay_us;
    const char *fault; /* of the last engine, so that the others go back */
} Round;

/* ---- the judge ---------------------------------------------------------------------------- */

static const char STANDS[] = "select to_version from txn where decided=1 and to_version<>"
                             "from_version order by txn_id desc limit 1";

static bool holds(int i, int64_t version, const char *digest, char *why, size_t size)
{
    static const char ask[] = "{\"action\":\"checksum\"}";
    char text[LINE], wanted[96];
    (void)snprintf(wanted, sizeof wanted, "\"per_engine_checksum\":\"%s\"", digest);
    if (!ask_engine(i, "POST", "/weights_checker", ask, text, sizeof text) ||
        !strstr(text, wanted)) {
        (void)snprintf(why, size, "engine %d does not hold %s", i, digest);
        return false;
    }
    (void)snprintf(wanted, sizeof wanted, "\"weight_version\":\"%lld\"", (long long)version);
    if (!ask_engine(i, "GET", "/model_info", "", text, sizeof text) || !strstr(text, wanted)) {
        (void)snprintf(why, size, "engine %d does not say v%lld", i, (long long)version);
        return false;
    }
    if (!ask_engine(i, "GET", "/server_info", "", text, sizeof text) ||
        !strstr(text, "\"paused\":false")) {
        (void)snprintf(why, size, "engine %d is paused", i);
        return false;
    }
    return true;
}

/* Rules 1 and 4. With the run held nothing new goes out; what the engines say counts if the log
 * says the same before and after, with no transaction open. */
static void judge_engines(const char *what)
{
    char why[256] = "a transaction stays open";
    int64_t until = clock_mono_us() + WAIT_S * INT64_C(1000000);
    bool good = false;
    ctl("pause");
    while (!good && clock_mono_us() < until) {
        int64_t txn = log_number("select max(txn_id) from txn where ended_us is not null");
        int64_t version = log_number(STANDS);
        char digest[64], sql[256];
        (void)snprintf(sql, sizeof sql, "select digest from policy where version=%lld order by "
                       "change_id desc limit 1", (long long)version);
        good = ask_log(sql, digest, sizeof digest);
        for (int i = 0; i < TAP_ENGINES && good; i++) {
            good = holds(i, version, digest, why, sizeof why);
        }
        good = good && log_number("select max(txn_id) from txn") == txn;
    }
    ctl("resume");
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, why);
    }
    CHECK(good);
}

/* Rules 2 and 3, of everything so far. */
static void judge_log(const char *what)
{
    static const struct { const char *words, *sql; } rules[] = {
        {"committed without a decision",
         "select count(*) from txn where outcome='committed' and coalesce(decided,0)<>1"},
        {"rolled back without a decision",
         "select count(*) from txn where outcome='rolled_back' and coalesce(decided,1)<>0"},
        {"an engine was let go on before the decision",
         "select count(*) from txn t join txn_answer a on a.txn_id=t.txn_id join enumeration e on "
         "e.kind='txn_phase' and e.code=a.phase where e.word='continue' and "
         "a.t_us-a.took_us<coalesce(t.decided_us,9e18)"},
        {"an accepted sample has two policies",
         "select count(*) from attempt where fate=1 and versions like '%,%'"},
        {"an accepted sample has no policy",
         "select count(*) from attempt where fate=1 and coalesce(versions,'')=''"},
        {"a version was committed by two transactions",
         "select count(*) from (select to_version from txn where decided=1 and to_version<>"
         "from_version group by to_version having count(*)>1)"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        int64_t found = log_number(rules[i].sql);
        if (found != 0) {
            fprintf(stderr, "%s: %s (%lld)\n", what, rules[i].words, (long long)found);
        }
        CHECK_I64(found, 0);
    }
}

/* A policy goes out to all three, twice, after what happened. */
static bool whole_again(void)
{
    char sql[256];
    (void)snprintf(sql, sizeof sql, "select count(*) from txn where outcome='committed' and "
                   "to_version<>from_version and engines=%d and txn_id>%lld", TAP_ENGINES,
                   (long long)log_number("select max(txn_id) from txn"));
    return wait_log(sql, 2);
}

/* ---- rounds ------------------------------------------------------------------------------- */

static pid_t pid_of(Victim victim)
{
    switch (victim) {
    case CORE: return w.core;
    case ENGINE: return w.engine[ODD];
    case FRONTEND: return w.frontend;
    case TRAINER: return child_of_core("policy_phases_test");
    }
    return 0;
}

static void bring_back(Victim victim)
{
    if (victim == CORE) {
        (void)waitpid(w.core, NULL, 0);
        start_core(true);
    } else if (victim == ENGINE) {
        (void)waitpid(w.engine[ODD], NULL, 0);
        start_engine(ODD);
    } else if (victim == FRONTEND) {
        (void)waitpid(w.frontend, NULL, 0);
        start_frontend();
    } /* the core starts its trainer again */
}

static bool wait_fired(void)
{
    int64_t until = clock_mono_us() + WAIT_S * INT64_C(1000000);
    while (!w.order->fired && clock_mono_us() < until) {
        clock_sleep_us(2000);
    }
    return w.order->fired;
}

static void kill_at(const Round *round, Victim victim)
{
    static const char *const names[] = {"core", "engine", "frontend", "trainer"};
    char what[96], text[LINE];
    (void)snprintf(what, sizeof what, "%s killed at %s", names[victim], round->phase);
    int64_t from = clock_mono_us();
    CHECK(whole_again());
    TapOrder *order = w.order;
    order->engine = victim == ENGINE && round->engine < 0 ? ODD : round->engine;
    order->nth = round->nth;
    order->which = victim == ENGINE ? 1 : round->which;
    order->after = round->after;
    order->delay_us = round->delay_us;
    order->victim = pid_of(victim);
    order->fired = 0;
    CHECK(order->victim > 0);
    if (round->fault) {
        CHECK(ask_engine(TAP_ENGINES - 1, "POST", "/_fault", round->fault, text, sizeof text));
    }
    order->call = order->victim > 0 ? (int)round->call : TAP_NONE;
    bool fired = order->victim > 0 && wait_fired();
    order->call = TAP_NONE;
    CHECK(fired);
    if (fired) {
        bring_back(victim);
    }
    if (round->fault) {
        CHECK(ask_engine(TAP_ENGINES - 1, "POST", "/_fault", "{\"kind\":\"clear\"}", text,
                         sizeof text));
    }
    CHECK(whole_again());
    judge_engines(what);
    judge_log(what);
    printf("     %s: %s, %.1f s\n", what, fired ? "came back" : "not reached",
           (double)(clock_mono_us() - from) / 1e6);
    fflush(stdout);
}

static void misbehave(const char *fault)
{
    char text[LINE], sql[128];
    int64_t from = clock_mono_us();
    CHECK(whole_again());
    CHECK(ask_engine(ODD, "POST", "/_fault", fault, text, sizeof text));
    (void)snprintf(sql, sizeof sql, "select count(*) from txn where txn_id>%lld and ended_us>0",
                   (long long)log_number("select max(txn_id) from txn"));
    CHECK(wait_log(sql, 3));
    CHECK(ask_engine(ODD, "POST", "/_fault", "{\"kind\":\"clear\"}", text, sizeof text));
    CHECK(whole_again());
    judge_engines(fault);
    judge_log(fault);
    printf("     %s: came back, %.1f s\n", fault, (double)(clock_mono_us() - from) / 1e6);
    fflush(stdout);
}

static const char FAILS[] = "{\"kind\":\"update\",\"mode\":\"400\"}";
static const Round rounds[] = {
    {"check", TAP_PUBLISHED, -1, 0, 1, false, 0, NULL},
    {"check or gate", TAP_PUBLISHED, -1, 0, 1, false, 800, NULL},
    {"pause", TAP_PAUSE, -1, 0, 1, false, 0, NULL},
    {"flush", TAP_FLUSH, -1, 1, 1, false, 0, NULL},
    {"apply", TAP_UPDATE, -1, 1, 1, false, 0, NULL},
    {"apply, loaded", TAP_UPDATE, -1, 1, 3, true, 0, NULL},
    {"verify", TAP_CHECKSUM, -1, 1, 2, true, 0, NULL},
    {"decide", TAP_CHECKSUM, -1, 1, 3, true, 1500, NULL},
    {"continue", TAP_CONTINUE, -1, 1, 1, false, 0, NULL},
    {"continue, one of three", TAP_CONTINUE, -1, 1, 2, true, 0, NULL},
    {"open", TAP_CONTINUE, -1, 1, 3, true, 500, NULL},
    {"rollback", TAP_UPDATE, 0, 2, 1, false, 0, FAILS},
    {"rollback, loaded", TAP_UPDATE, 0, 2, 1, true, 0, FAILS}};
enum { ROUNDS = sizeof rounds / sizeof *rounds };

/* Engines that follow by deltas: their copies are brought to the new version before the gate. */
static const Round prepare_rounds[] = {
    {"prepare", TAP_PULL, -1, 0, 1, false, 0, NULL},
    {"prepare, one has pulled", TAP_PULL, -1, 0, 2, true, 0, NULL},
    {"prepare, while it applies", TAP_PULL, -1, 0, 1, false, 300, NULL},
    {"apply from its copy", TAP_UPDATE, -1, 1, 1, false, 0, NULL}};
enum { PREPARE_ROUNDS = sizeof prepare_rounds / sizeof *prepare_rounds };

static void kill_all(const Round *each, int count)
{
    for (int victim = CORE; victim <= TRAINER; victim++) {
        for (int i = 0; i < count; i++) {
            bool alone = victim == ENGINE && each[i].call == TAP_PUBLISHED;
            if (!alone) { /* the trainer knows of no engine */
                kill_at(&each[i], (Victim)victim);
            }
        }
    }
}

static void test_every_phase(void)
{
    kill_all(rounds, ROUNDS);
}

static void test_prepare(void)
{
    kill_all(prepare_rounds, PREPARE_ROUNDS);
    CHECK(log_number("select count(*) from policy where kind='delta'") > 0);
    CHECK(log_number("select count(*) from txn_answer a join enumeration e on e.kind='txn_phase' "
                     "and e.code=a.phase where e.word='prepare' and a.ok=1") > 0);
}

static void test_every_fault(void)
{
    static const char *const faults[] = {
        FAILS,
        "{\"kind\":\"update\",\"mode\":\"partial\"}",
        "{\"kind\":\"update\",\"mode\":\"hang\"}",
        "{\"kind\":\"flush\",\"mode\":\"hang\"}",
        "{\"kind\":\"drop_reply\",\"p\":1}",
        "{\"kind\":\"update\",\"mode\":\"slow\",\"s\":1}",
        "{\"kind\":\"flush\",\"mode\":\"400\",\"for\":1}",
        "{\"kind\":\"stay_paused\",\"for\":2}",
        "{\"kind\":\"ver_lie\"}",
        "{\"kind\":\"ver_lie\",\"v\":\"7\"}",
        "{\"kind\":\"ver_reset\",\"for\":2}",
        "{\"kind\":\"freeze\",\"for\":2}",
        "{\"kind\":\"freeze_all\",\"for\":2}",
        "{\"kind\":\"abort\",\"mode\":\"ignored\"}",
        "{\"kind\":\"garble\",\"p\":1}",
        "{\"kind\":\"nan\",\"p\":1}"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        misbehave(faults[i]);
    }
}

static void test_some_phases(void)
{
    static const struct { const char *phase; Victim victim; } few[] = {
        {"apply", ENGINE}, {"pause", FRONTEND}, {"verify", TRAINER}, {"decide", CORE}};
    for (size_t k = 0; k < sizeof few / sizeof *few; k++) {
        for (int i = 0; i < ROUNDS; i++) {
            if (strcmp(rounds[i].phase, few[k].phase) == 0) {
                kill_at(&rounds[i], few[k].victim);
            }
        }
    }
}

/* ---- start and end ------------------------------------------------------------------------ */

static void end(void)
{
    ctl("stop");
    if (w.core > 0) {
        int status = -1;
        (void)waitpid(w.core, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        w.core = 0;
    }
    CHECK_I64(log_number("select count(*) from txn where ended_us is null"), 0);
    judge_log("the end");
    stop(&w.tapper, SIGKILL);
    stop(&w.frontend, SIGKILL);
    for (int i = 0; i < TAP_ENGINES; i++) {
        stop(&w.engine[i], SIGKILL);
    }
    if (test_failures == 0) {
        (void)fs_remove_tree(w.dir, NULL);
    } else {
        fprintf(stderr, "logs are in %s\n", w.dir);
    }
}

int main(int argc, char **argv)
{
    const char *base = getenv("ROLLTOP_TEST_BASE");
    if (base && argc == 1) {
        return stub_serve(base, trainer_answered);
    }
    bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    bool prepare = argc > 1 && strcmp(argv[1], "prepare") == 0;
    begin(prepare, argc > 1);
    if (test_failures == 0 && all) {
        RUN(test_every_phase);
        RUN(test_every_fault);
        end();
        begin(true, true);
        RUN(test_prepare);
    } else if (test_failures == 0 && prepare) {
        RUN(test_prepare);
    } else if (test_failures == 0 && argc > 1) {
        misbehave(argv[1]);
    } else if (test_failures == 0) {
        RUN(test_some_phases);
    }
    end();
    return test_end();
}
