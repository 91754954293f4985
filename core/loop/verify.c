#include "core/loop/verify.h"

#include "core/loop/verify_private.h"
#include "core/net/evloop.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TURN_MS = 20,
    ROLLOUT_MS = 180000,
    NOTICE_MS = 3000,     /* an engine that dies is to be named within this */
    FRONTEND_MS = 60000,
    SHELL_MS = 120000,
    CLOSE_ROUNDS = 400,
    LONG = 16             /* the rollout that a worker is lost in is so much longer */
};

bool verify_alive(const Verify *v, int engine)
{
    EngineState state = fleet_engine(v->fleet, engine).state;
    return state != ENGINE_DEAD && state != ENGINE_GONE && state != ENGINE_STARTING;
}

static void on_turn(uv_timer_t *timer)
{
    (void)timer;
}

bool verify_wait(Verify *v, bool (*ready)(Verify *v, void *arg), void *arg, int64_t bound_ms)
{
    int64_t from = clock_mono_us();
    while (!ready(v, arg)) {
        if (v->cancelled || clock_mono_us() - from >= bound_ms * 1000) {
            return false;
        }
        uv_timer_start(&v->tick, on_turn, TURN_MS, 0);
        uv_run(&v->uv, UV_RUN_ONCE);
    }
    return true;
}

/* ---- steps -------------------------------------------------------------------------------- */

static void put_event(Verify *v, Severity severity, const char *text)
{
    EventFact fact = {.t_us = clock_wall_us(), .severity = severity, .source = "verify",
                      .text = text};
    store_put_event(v->store, &fact);
}

static const char *outcome_word(VerifyOutcome outcome)
{
    static const char *const words[] = {"pass", "FAIL", "skip"};
    return words[outcome];
}

static bool step(Verify *v, const char *name, VerifyOutcome outcome, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static bool step(Verify *v, const char *name, VerifyOutcome outcome, const char *format, ...)
{
    VerifyReport *r = v->report;
    VerifyStep *s = &r->steps[r->count < VERIFY_STEPS_MAX ? r->count : VERIFY_STEPS_MAX - 1];
    int64_t now_us = clock_mono_us();
    char line[400];
    va_list args;
    *s = (VerifyStep){.name = name, .outcome = outcome,
                      .seconds = (double)(now_us - v->step_us) / 1e6};
    va_start(args, format);
    (void)vsnprintf(s->detail, sizeof s->detail, format, args);
    va_end(args);
    v->step_us = now_us;
    r->count += r->count < VERIFY_STEPS_MAX;
    r->failed += outcome == VERIFY_FAIL;
    (void)str_format(line, sizeof line, "%s %s: %s", outcome_word(outcome), name, s->detail);
    put_event(v, outcome == VERIFY_FAIL ? SEVERITY_CRIT : SEVERITY_INFO, line);
    if (v->config->lines) {
        fprintf(v->config->lines, "%-4s  %-28s %7.2f s  %s\n", outcome_word(outcome), name,
                s->seconds, s->detail);
        fflush(v->config->lines);
    }
    return outcome != VERIFY_FAIL;
}

static bool engines_answer(Verify *v, void *arg)
{
    (void)arg;
    for (int i = 0; i < v->count; i++) {
        FleetEngine e = fleet_engine(v->fleet, i);
        if (e.incarnation == 0 || !verify_alive(v, i)) {
            return false;
        }
    }
    return true;
}

static bool ready_engines(Verify *v)
{
    char list[160] = "";
    size_t n = 0;
    char why[200] = "";
    bool up = verify_wait(v, engines_answer, NULL, v->config->startup_s * 1000);
    for (int i = 0; i < v->count && !up; i++) {
        if (!verify_alive(v, i)) {
            return step(v, "engines ready", VERIFY_FAIL, "%s does not answer",
                        fleet_engine(v->fleet, i).address);
        }
    }
    if (!up || !verify_read(v, why, sizeof why)) {
        return step(v, "engines ready", VERIFY_FAIL, "%s", why[0] ? why : "cancelled");
    }
    for (int i = 0; i < v->count; i++) {
        VerifyEngine *e = &v->engines[i];
        e->found_version = e->answer.weight_version;
        e->incarnation = fleet_engine(v->fleet, i).incarnation;
        (void)str_format(e->found_path, sizeof e->found_path, "%s", e->ok ? e->answer.text : "");
        if (n < sizeof list) {
            char version[32] = "no numbered version";
            if (e->found_version >= 0) {
                (void)str_format(version, sizeof version, "v%lld", (long long)e->found_version);
            }
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s %s", n ? ", " : "",
                                  fleet_engine(v->fleet, i).address, version);
        }
        v->version = e->found_version > v->version ? e->found_version : v->version;
    }
    return step(v, "engines ready", VERIFY_PASS, "%d: %s", v->count, list);
}

static bool frontend_lists(Verify *v, void *arg)
{
    (void)arg;
    const ReadinessState *ready = fleet_frontend_ready(v->fleet);
    bool serves = ready->now == READINESS_READY ? ready->workers >= v->count
                                                : ready->now == READINESS_UNKNOWN && ready->settled;
    bool listed = fleet_frontend_up(v->fleet) && serves;
    for (int i = 0; i < v->count; i++) {
        listed = listed && fleet_listed(v->fleet, i);
    }
    return listed;
}

static bool ready_frontend(Verify *v)
{
    if (!v->frontend_url[0]) {
        return step(v, "frontend ready", VERIFY_SKIP, "none is given; engines are asked directly");
    }
    bool good = verify_wait(v, frontend_lists, NULL, FRONTEND_MS);
    const ReadinessState *ready = fleet_frontend_ready(v->fleet);
    if (!good && ready->now == READINESS_READY && ready->workers < v->count) {
        return step(v, "frontend ready", VERIFY_FAIL, "%s would give work to %d of %d engines",
                    v->frontend_url, ready->workers, v->count);
    }
    if (!good && (ready->now == READINESS_NONE || ready->now == READINESS_SPLIT)) {
        return step(v, "frontend ready", VERIFY_FAIL, "%s: %s", v->frontend_url, ready->words);
    }
    if (!good) {
        return step(v, "frontend ready", VERIFY_FAIL, "%s %s", v->frontend_url,
                    fleet_frontend_up(v->fleet) ? "does not list every engine"
                                                : "does not answer");
    }
    return step(v, "frontend ready", VERIFY_PASS, "%s lists every engine%s", v->frontend_url,
                ready->now == READINESS_READY ? ", and each is ready" : "");
}

static void rollout_new(const Verify *v, VerifyRollout *r, int64_t want)
{
    int64_t samples = v->config->samples > 0 ? v->config->samples : 4 * (int64_t)v->count;
    *r = (VerifyRollout){.samples = samples < 8 ? 8 : samples, .tokens = v->config->tokens,
                         .want_version = want, .bound_ms = ROLLOUT_MS};
}

static bool tell_rollout(Verify *v, const char *name, const VerifyRollout *r, bool good)
{
    char served[96] = "";
    char trouble[224] = "";
    int engines = 0;
    for (int i = 0; i < v->count; i++) {
        engines += r->served[i] > 0;
    }
    if (engines > 0) {
        (void)str_format(served, sizeof served, ", from %d engine%s", engines,
                         engines == 1 ? "" : "s");
    }
    if (r->lost + r->refused > 0) {
        (void)str_format(trouble, sizeof trouble, "; %d lost, %d refused and asked again (%s)",
                         r->lost, r->refused, r->why);
    }
    char version[32] = "no numbered version"; /* SGLang's "default" */
    if (r->version >= 0) {
        (void)str_format(version, sizeof version, "v%lld", (long long)r->version);
    }
    return step(v, name, good ? VERIFY_PASS : VERIFY_FAIL, "%d of %lld samples, %lld tokens, %s"
                "%s%s", r->whole, (long long)r->samples, (long long)r->got_tokens, version, served,
                trouble);
}

static bool simple_rollout(Verify *v, const char *name, int64_t want)
{
    VerifyRollout r;
    rollout_new(v, &r, want);
    bool good = verify_rollout(v, &r);
    return tell_rollout(v, name, &r, good);
}

static bool update(Verify *v)
{
    char why[200] = "";
    bool chosen[VERIFY_ENGINES_MAX];
    const VerifyConfig *c = v->config;
    const char *path = c->local_update ? c->local_update
                                       : c->update_dir ? c->update_dir : v->engines[0].found_path;
    for (int i = 0; i < v->count; i++) {
        chosen[i] = true;
        const char *found = v->engines[i].found_path;
        if (!found[0] || strlen(found) >= sizeof v->engines[i].found_path - 1) {
            return step(v, "update to all engines", VERIFY_FAIL, "%s does not say which checkpoint "
                        "it serves: it could not be given back", fleet_engine(v->fleet, i).name);
        }
    }
    (void)str_format(v->policy_path, sizeof v->policy_path, "%s", path);
    v->version++;
    bool good = verify_bring(v, chosen, v->policy_path, v->version, why, sizeof why);
    if (!good) {
        return step(v, "update to all engines", VERIFY_FAIL, "%s", why);
    }
    return step(v, "update to all engines", VERIFY_PASS, "v%lld loaded; version, weights and a "
                "fixed prompt agree", (long long)v->version);
}

/* ---- a lost worker ------------------------------------------------------------------------ */

static void on_state(int engine, EngineState before, EngineState now, const char *reason,
                     void *user)
{
    (void)before;
    Verify *v = user;
    if (now == ENGINE_DEAD && engine < VERIFY_ENGINES_MAX) {
        v->engines[engine].dead_us = clock_mono_us();
        (void)str_format(v->engines[engine].dead_why, sizeof v->engines[engine].dead_why, "%s",
                         reason);
    }
}

static void kill_victim(Verify *v)
{
    if (v->config->local_engines > 0) {
        child_kill(v->parts[v->victim].child, SIGKILL);
    } else if (verify_shell(v, v->config->kill_cmd, v->victim, SHELL_MS) != 0) {
        put_event(v, SEVERITY_WARN, "--kill-cmd did not end with status 0");
    }
    v->killed_us = clock_mono_us();
}

static bool victim_dead(Verify *v, void *arg)
{
    (void)arg;
    return v->engines[v->victim].dead_us > 0;
}

static bool lose(Verify *v)
{
    VerifyEngine *e = &v->engines[v->victim];
    VerifyRollout r;
    int64_t bound_ms = v->config->local_engines > 0 ? NOTICE_MS : SHELL_MS;
    rollout_new(v, &r, v->version);
    r.tokens *= LONG;
    r.mid = kill_victim;
    bool good = verify_rollout(v, &r);
    tell_rollout(v, "a worker lost in a rollout", &r, good);
    if (!verify_wait(v, victim_dead, NULL, bound_ms)) {
        return step(v, "failure reported", VERIFY_FAIL, "%s is not dead after %.0f s: did the "
                    "command stop it?", fleet_engine(v->fleet, v->victim).name,
                    (double)bound_ms / 1e3);
    }
    int64_t took_us = e->dead_us > v->killed_us ? e->dead_us - v->killed_us : 0;
    return step(v, "failure reported", VERIFY_PASS, "%s dead %.1f s after the kill: %s",
                fleet_engine(v->fleet, v->victim).name, (double)took_us / 1e6, e->dead_why) &&
           good;
}

static bool victim_back(Verify *v, void *arg)
{
    (void)arg;
    return verify_alive(v, v->victim) && fleet_listed(v->fleet, v->victim);
}

static bool recover(Verify *v)
{
    const VerifyConfig *c = v->config;
    FleetEngine e = fleet_engine(v->fleet, v->victim);
    bool chosen[VERIFY_ENGINES_MAX] = {false};
    char why[200] = "";
    Fault fault = {0};
    if (c->local_engines > 0 && verify_part_again(v, v->victim, &fault) != ERR_OK) {
        return step(v, "recovery", VERIFY_FAIL, "%s", fault.sentence);
    }
    if (c->restore_cmd && verify_shell(v, c->restore_cmd, v->victim, SHELL_MS) != 0) {
        put_event(v, SEVERITY_WARN, "--restore-cmd did not end with status 0");
    }
    if (!verify_wait(v, victim_back, NULL, c->recover_s * 1000)) {
        return step(v, "recovery", VERIFY_FAIL, "%s did not come back at %s within %lld s", e.name,
                    e.address, (long long)c->recover_s);
    }
    bool other = fleet_engine(v->fleet, v->victim).incarnation != e.incarnation;
    chosen[v->victim] = true;
    if (!verify_bring(v, chosen, v->policy_path, v->version, why, sizeof why)) {
        return step(v, "recovery", VERIFY_FAIL, "%s", why);
    }
    return step(v, "recovery", VERIFY_PASS, "%s is back (%s), brought to v%lld and verified",
                e.name, other ? "another process" : "the same process", (long long)v->version);
}

/* A frontend sets a lost worker aside for some seconds: rollouts are repeated until the recovered
 * engine has served (where the frontend says who did), within a bound. */
static bool rollout_recovered(Verify *v)
{
    VerifyRollout r;
    int64_t until_us = clock_mono_us() + FRONTEND_MS * 1000;
    bool good = false;
    bool named = true;
    do {
        rollout_new(v, &r, v->version);
        good = verify_rollout(v, &r);
        int served = 0;
        for (int i = 0; i < v->count; i++) {
            served += r.served[i];
        }
        named = served > 0;
        good = good && (!named || r.served[v->victim] > 0);
    } while (!good && !v->cancelled && clock_mono_us() < until_us);
    if (!good && r.whole == r.samples) {
        return step(v, "rollout after recovery", VERIFY_FAIL, "%s got no work in %d s",
                    fleet_engine(v->fleet, v->victim).name, FRONTEND_MS / 1000);
    }
    return tell_rollout(v, "rollout after recovery", &r, good);
}

static void worker_steps(Verify *v)
{
    const VerifyConfig *c = v->config;
    v->victim = v->count - 1;
    if (c->local_engines == 0 && !c->kill_cmd) {
        step(v, "a worker lost in a rollout", VERIFY_SKIP, "give --kill-cmd to say how one is "
             "stopped");
    } else if (v->count < 2) {
        step(v, "a worker lost in a rollout", VERIFY_SKIP, "there is one engine only");
    } else {
        (void)lose(v);
        if (v->engines[v->victim].dead_us > 0 && recover(v)) {
            (void)rollout_recovered(v);
        }
    }
}

/* ---- leaving it as it was found ----------------------------------------------------------- */

static bool same_origin(const VerifyEngine *a, const VerifyEngine *b)
{
    return a->found_version == b->found_version && strcmp(a->found_path, b->found_path) == 0;
}

static void restore(Verify *v)
{
    bool left[VERIFY_ENGINES_MAX], chosen[VERIFY_ENGINES_MAX];
    char why[200] = "";
    int restored = 0, unnumbered = 0, failed = 0;
    bool touched = false;
    for (int i = 0; i < v->count; i++) {
        touched = touched || v->engines[i].touched;
        left[i] = v->engines[i].touched && verify_alive(v, i);
        failed += v->engines[i].touched && !left[i];
    }
    if (!touched) {
        return;
    }
    verify_continue(v);
    for (int i = 0; i < v->count; i++) {
        if (!left[i]) {
            continue;
        }
        const VerifyEngine *first = &v->engines[i];
        for (int k = 0; k < v->count; k++) {
            chosen[k] = left[k] && same_origin(first, &v->engines[k]);
            left[k] = left[k] && !chosen[k];
            restored += chosen[k];
            unnumbered += chosen[k] && first->found_version < 0;
            v->engines[k].digest[0] = '\0'; /* groups may hold different weights */
        }
        int64_t version = first->found_version >= 0 ? first->found_version : v->version;
        failed += !verify_bring(v, chosen, first->found_path, version, why, sizeof why);
    }
    if (failed > 0) {
        step(v, "left as it was found", VERIFY_FAIL, "%s",
             why[0] ? why : "an engine does not answer any more");
    } else if (unnumbered > 0) {
        step(v, "left as it was found", VERIFY_PASS, "%d engines have their weights back; the "
             "version reads %lld, since what they said before was no number", restored,
             (long long)v->version);
    } else {
        step(v, "left as it was found", VERIFY_PASS, "%d engines have their weights and versions "
             "back, none is paused", restored);
    }
}

static void all_steps(Verify *v)
{
    if (ready_engines(v) && ready_frontend(v) && simple_rollout(v, "rollout", -1)) {
        if (update(v) && simple_rollout(v, "rollout after the update", v->version)) {
            worker_steps(v);
        }
    }
    bool cancelled = v->cancelled;
    v->cancelled = false;
    restore(v);
    if (cancelled) {
        step(v, "to the end", VERIFY_FAIL, "stopped by Ctrl-C");
    }
}

/* ---- life --------------------------------------------------------------------------------- */

static void on_signal(uv_signal_t *handle, int signum)
{
    (void)signum;
    ((Verify *)handle->data)->cancelled = true;
}

static Err open_log(Verify *v, Fault *fault)
{
    const VerifyConfig *c = v->config;
    Err err = store_open(c->log_path, NULL, &v->store, fault);
    if (err != ERR_OK) {
        return err;
    }
    char host[128] = "";
    (void)gethostname(host, sizeof host - 1);
    RunFact run = {.t_us = clock_wall_us(), .run = c->run_id, .name = "verify", .host = host,
                   .version = ROLLTOP_VERSION, .argv_json = c->argv_json, .config_json = "{}"};
    store_put_run(v->store, &run);
    SessionFact session = {.session = store_marks(v->store)->session + 1, .t_us = clock_wall_us(),
                           .pid = getpid(), .how = "verify"};
    store_put_session(v->store, &session);
    return store_wait(v->store, store_ticket(v->store), 10000, fault);
}

static Err open_fleet(Verify *v, Fault *fault)
{
    const VerifyConfig *c = v->config;
    FleetEvents events = {.on_state = on_state, .user = v};
    Err err = c->local_engines > 0 ? verify_parts_start(v, fault) : ERR_OK;
    if (c->frontend_url) {
        (void)str_format(v->frontend_url, sizeof v->frontend_url, "%s", c->frontend_url);
    }
    FleetConfig fleet = {.frontend_url = v->frontend_url[0] ? v->frontend_url : NULL,
                         .engine_bearer = c->engine_bearer, .engine_admin = c->engine_admin,
                         .await_listing = c->local_engines == 0, .ask_ready = true,
                         .probe = c->probe};
    err = err ? err : fleet_new(&v->uv, v->http, v->store, &fleet, &events, &v->fleet, fault);
    v->count = (int)(c->local_engines > 0 ? c->local_engines : (int64_t)c->engine_addr_count);
    for (int i = 0; i < v->count && err == ERR_OK; i++) {
        char name[32];
        int index = i;
        (void)str_format(name, sizeof name, "eng-%02d", i);
        err = fleet_add(v->fleet, name,
                        c->local_engines > 0 ? v->parts[i].address : c->engine_addrs[i],
                        c->local_engines > 0, &index, fault);
    }
    return err;
}

static void teardown(Verify *v)
{
    verify_parts_free(v);
    fleet_free(v->fleet);
    http_client_free(v->http);
    uv_close((uv_handle_t *)&v->tick, NULL);
    uv_close((uv_handle_t *)&v->sigint, NULL);
    uv_close((uv_handle_t *)&v->sigterm, NULL);
    for (int i = 0; i < CLOSE_ROUNDS && uv_run(&v->uv, UV_RUN_NOWAIT) != 0; i++) {
        clock_sleep_us(i < 50 ? 1000 : 10000);
    }
    (void)evloop_close(&v->uv);
    store_close(v->store);
    free(v);
}

static void print_table(const VerifyReport *r, const VerifyConfig *c)
{
    int passed = 0, skipped = 0;
    fprintf(c->lines, "\n%-28s %-4s %9s\n", "STEP", "", "SECONDS");
    for (int i = 0; i < r->count; i++) {
        passed += r->steps[i].outcome == VERIFY_PASS;
        skipped += r->steps[i].outcome == VERIFY_SKIP;
        fprintf(c->lines, "%-28s %-4s %9.2f\n", r->steps[i].name,
                outcome_word(r->steps[i].outcome), r->steps[i].seconds);
    }
    fprintf(c->lines, "\n%d passed, %d failed, %d skipped, %.1f s; log %s\n", passed, r->failed,
            skipped, r->seconds, c->log_path);
    fflush(c->lines);
}

Err verify_run(const VerifyConfig *config, VerifyReport *report, Fault *fault)
{
    Verify *v = xcalloc(1, sizeof *v);
    *report = (VerifyReport){.count = 0};
    v->config = config;
    v->report = report;
    v->began_us = v->step_us = clock_mono_us();
    (void)signal(SIGPIPE, SIG_IGN);
    Err err = evloop_open(&v->uv, &v->sigint, &v->sigterm, fault);
    if (err != ERR_OK) {
        free(v);
        return err;
    }
    uv_timer_init(&v->uv, &v->tick);
    v->sigint.data = v->sigterm.data = v;
    HttpClientConfig http = {.connect_ms = 3000, .silence_ms = 60000, .total_ms = 600000,
                             .max_body = 64 << 20};
    err = http_client_new(&v->uv, &http, &v->http, fault);
    err = err ? err : open_log(v, fault);
    uv_signal_start(&v->sigint, on_signal, SIGINT);
    uv_signal_start(&v->sigterm, on_signal, SIGTERM);
    err = err ? err : open_fleet(v, fault);
    if (err == ERR_OK) {
        all_steps(v);
        report->seconds = (double)(clock_mono_us() - v->began_us) / 1e6;
        if (config->lines) {
            print_table(report, config);
        }
    }
    teardown(v);
    return err;
}

void verify_report_json(const VerifyReport *r, JsonOut *out)
{
    json_object_begin(out);
    json_member_bool(out, "ok", r->failed == 0 && r->count > 0);
    json_member_double(out, "seconds", r->seconds);
    json_key(out, "steps");
    json_array_begin(out);
    for (int i = 0; i < r->count; i++) {
        json_object_begin(out);
        json_member_string(out, "step", r->steps[i].name);
        json_member_string(out, "outcome", outcome_word(r->steps[i].outcome));
        json_member_double(out, "seconds", r->steps[i].seconds);
        json_member_string(out, "detail", r->steps[i].detail);
        json_object_end(out);
    }
    json_array_end(out);
    json_object_end(out);
}
