#include "core/loop/watch.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/diagnose/diagnose.h"
#include "core/fleet/discover.h"
#include "core/fleet/fleet.h"
#include "core/loop/rules_log.h"
#include "core/net/ctl.h"
#include "core/net/evloop.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICK_MS = 1000, GONE_LOOKS = 3, CLOSE_ROUNDS = 400, NAME = 32 };

typedef struct Seen { /* what was told last of an engine */
    int64_t version, incarnation, state_since_us;
    char how[96];
} Seen;

typedef struct Watch {
    const WatchConfig *config;
    uv_loop_t uv;
    uv_timer_t tick;
    uv_signal_t sigint, sigterm;
    Store *store;
    HttpClient *http;
    CtlServer *ctl;
    Fleet *fleet;
    Discover *discover;
    Sources *sources;
    Diagnose *diagnose;
    Seen *seen;
    int64_t session, started_us, frontend_down_us;
    bool ending;
    const char *why;
} Watch;

static void tell(Watch *w, Severity severity, int engine, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void tell(Watch *w, Severity severity, int engine, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *source = engine >= 0 ? fleet_engine(w->fleet, engine).name : "watch";
    EventFact fact = {.t_us = clock_wall_us(), .severity = severity, .source = source,
                      .engine = engine + 1, .text = text};
    store_put_event(w->store, &fact);
    if (w->config->lines) {
        fprintf(w->config->lines, "%s: %s\n", source, text);
        fflush(w->config->lines);
    }
}

/* ---- members ------------------------------------------------------------------------------ */

static void engine_in(Watch *w, const char *address, const char *reason)
{
    char name[NAME];
    int index = -1;
    Fault fault = {0};
    (void)str_format(name, sizeof name, "eng-%02d", fleet_count(w->fleet));
    for (int i = 0; i < fleet_count(w->fleet); i++) {
        FleetEngine e = fleet_engine(w->fleet, i);
        if (e.state == ENGINE_GONE && strcmp(e.address, address) == 0) {
            (void)str_format(name, sizeof name, "%s", e.name);
        }
    }
    if (fleet_add(w->fleet, name, address, false, &index, &fault) != ERR_OK) {
        tell(w, SEVERITY_WARN, -1, "%s is not watched: %s", address, fault.sentence);
        return;
    }
    w->seen[index] = (Seen){.version = -1, .state_since_us = clock_mono_us()};
    tell(w, SEVERITY_INFO, index, "watched at %s: %s", address, reason);
}

static void take_changes(Watch *w)
{
    DiscoverChange change;
    while (!w->ending && discover_next(w->discover, &change)) {
        int index = fleet_find(w->fleet, change.address);
        if (change.add && index < 0) {
            engine_in(w, change.address, change.reason);
        } else if (!change.add && index >= 0) {
            fleet_remove(w->fleet, index, change.reason);
        }
    }
    if (discover_full(w->discover)) {
        tell(w, SEVERITY_WARN, -1,
             "more than %d engine addresses are named: those beyond are not watched", DISCOVER_MAX);
    }
}

static void on_look(DiscoverSource source, const char *const *addresses, size_t count, void *user)
{
    Watch *w = user;
    discover_look(w->discover, source, addresses, count);
    take_changes(w);
}

static void on_trouble(DiscoverSource source, const char *words, void *user)
{
    Watch *w = user;
    if (!w->ending) {
        tell(w, words[0] ? SEVERITY_WARN : SEVERITY_INFO, -1, "%s%s%s",
             discover_source_name(source), words[0] ? ": " : " can be read again", words);
    }
}

/* ---- what the fleet tells ----------------------------------------------------------------- */

static void on_state(int engine, EngineState before, EngineState now, const char *reason,
                     void *user)
{
    Watch *w = user;
    bool bad = now == ENGINE_DEAD || now == ENGINE_STUCK;
    bool notable = bad || now == ENGINE_GONE || before == ENGINE_DEAD || before == ENGINE_STUCK;
    w->seen[engine].state_since_us = clock_mono_us();
    (void)str_format(w->seen[engine].how, sizeof w->seen[engine].how, "%s", reason);
    if (notable) {
        tell(w, bad ? SEVERITY_CRIT : SEVERITY_WARN, engine, "%s: %s", engine_state_name(now),
             reason);
    }
}

static void on_incarnation(int engine, int64_t incarnation, void *user)
{
    Watch *w = user;
    Seen *seen = &w->seen[engine];
    FleetEngine mine = fleet_engine(w->fleet, engine);
    if (seen->incarnation > 0) {
        tell(w, SEVERITY_WARN, engine, "another process answers now (incarnation %lld)",
             (long long)incarnation);
    } else {
        tell(w, SEVERITY_INFO, engine, "answers at %s", mine.address);
    }
    seen->incarnation = incarnation;
    seen->version = -1;
    for (int i = 0; i < fleet_count(w->fleet) && mine.identity[0]; i++) {
        FleetEngine other = fleet_engine(w->fleet, i);
        if (i != engine && other.state != ENGINE_GONE &&
            strcmp(other.identity, mine.identity) == 0) {
            tell(w, SEVERITY_WARN, engine, "%s says it is the process that %s leads to as well",
                 mine.address, other.address);
            break;
        }
    }
}

static void on_frontend(bool up, const char *reason, void *user)
{
    Watch *w = user;
    w->frontend_down_us = up ? 0 : clock_mono_us();
    tell(w, up ? SEVERITY_INFO : SEVERITY_CRIT, -1, "frontend %s: %s",
         up ? "answers" : "does not answer", reason ? reason : "");
}

static void on_ready(Readiness now, const char *words, void *user)
{
    Watch *w = user;
    bool bad = now == READINESS_NONE || now == READINESS_SPLIT;
    tell(w, bad ? SEVERITY_CRIT : SEVERITY_INFO, -1, "frontend %s: %s",
         bad ? "answers, and can serve nobody" : now == READINESS_READY ? "can serve"
                                                                        : "answers", words);
}

/* Somebody's update, seen from outside. */
static void note_versions(Watch *w)
{
    for (int i = 0; i < fleet_count(w->fleet); i++) {
        FleetEngine e = fleet_engine(w->fleet, i);
        if (e.state != ENGINE_GONE && e.reported_version != w->seen[i].version &&
            e.reported_version >= 0) {
            tell(w, SEVERITY_INFO, i, "reports weight version %lld", (long long)e.reported_version);
            w->seen[i].version = e.reported_version;
        }
    }
}

static void diagnose_now(Watch *w)
{
    int count = fleet_count(w->fleet);
    DiagEngine *engines = xcalloc((size_t)count + 1, sizeof *engines);
    for (int i = 0; i < count; i++) {
        FleetEngine e = fleet_engine(w->fleet, i);
        engines[i] = (DiagEngine){.engine = i + 1, .state = e.state,
                                  .state_since_us = w->seen[i].state_since_us, .admitted = true,
                                  .reported_version = e.reported_version,
                                  .detail = w->seen[i].how[0] ? w->seen[i].how : NULL};
    }
    DiagPicture picture = {.now_us = clock_mono_us(), .phase = PHASE_INIT, .committed = -1,
                           .engines = engines, .engine_count = count,
                           .frontend_down_us = w->frontend_down_us};
    DiagAction action;
    diagnose_tick(w->diagnose, &picture);
    while (diagnose_next(w->diagnose, &action)) {
        IncidentFact fact = {.incident = action.incident,
                             .onset_us = clock_wall_of_us(action.onset_us),
                             .t_us = clock_wall_us(),
                             .ended_us = action.ended_us > 0
                                             ? clock_wall_of_us(action.ended_us) : 0,
                             .class_name = diagnose_class_name(action.class_id),
                             .severity = action.severity, .engine = action.engine,
                             .evidence = action.evidence, .next_key = ""};
        store_put_incident(w->store, &fact);
    }
    free(engines);
}

/* ---- the control socket ------------------------------------------------------------------- */

static void put_engines(Watch *w, JsonOut *out)
{
    json_key(out, "engines");
    json_array_begin(out);
    for (int i = 0; i < fleet_count(w->fleet); i++) {
        FleetEngine e = fleet_engine(w->fleet, i);
        json_object_begin(out);
        json_member_string(out, "engine", e.name);
        json_member_string(out, "address", e.address);
        json_member_string(out, "state", engine_state_name(e.state));
        json_member_i64(out, "policy_version", e.reported_version);
        json_object_end(out);
    }
    json_array_end(out);
}

static void on_control(CtlRequest *request, const cJSON *body, const CtlPeer *peer, void *user)
{
    (void)peer;
    Watch *w = user;
    Text text;
    JsonOut out;
    bool status = strcmp(json_string(body, "cmd", ""), "status") == 0;
    text_init(&text, CTL_LINE_MAX - 1);
    json_begin(&out, &text);
    json_object_begin(&out);
    json_member_bool(&out, "ok", status);
    if (status) {
        json_member_string(&out, "run", w->config->run_id);
        json_member_string(&out, "name", w->config->name);
        json_member_string(&out, "log", w->config->log_path);
        json_member_i64(&out, "pid", getpid());
        json_member_string(&out, "phase", "watch");
        json_member_string(&out, "frontend", w->config->frontend_url);
        if (w->fleet) {
            put_engines(w, &out);
        }
    } else {
        json_member_string(&out, "message", "this is a watch: it changes nothing");
    }
    json_object_end(&out);
    ctl_reply(request, &text);
    text_free(&text);
}

/* ---- life --------------------------------------------------------------------------------- */

static void finish(Watch *w, const char *why)
{
    w->why = why;
    w->ending = true;
    uv_stop(&w->uv);
}

static void on_tick(uv_timer_t *timer)
{
    Watch *w = timer->data;
    int64_t bound_us = w->config->seconds * 1000000;
    note_versions(w);
    diagnose_now(w);
    if (bound_us > 0 && clock_mono_us() - w->started_us >= bound_us) {
        finish(w, "its time is over");
    }
}

static void on_signal(uv_signal_t *handle, int signum)
{
    (void)signum;
    finish(handle->data, "stopped");
}

static Err open_log(Watch *w, Fault *fault)
{
    const WatchConfig *c = w->config;
    char host[128] = "";
    StoreConfig config = {.keep_us = c->log_keep_us, .max_bytes = c->log_max_bytes};
    Err err = store_open(c->log_path, &config, &w->store, fault);
    if (err != ERR_OK) {
        return err;
    }
    (void)gethostname(host, sizeof host - 1);
    w->session = store_marks(w->store)->session + 1;
    w->diagnose = diagnose_new(store_marks(w->store)->incident + 1, c->rules);
    RunFact run = {.t_us = clock_wall_us(), .run = c->run_id, .name = c->name, .host = host,
                   .version = ROLLTOP_VERSION, .argv_json = c->argv_json,
                   .config_json = c->config_json};
    store_put_run(w->store, &run);
    SessionFact session = {.session = w->session, .t_us = clock_wall_us(), .pid = getpid(),
                           .how = "watch"};
    store_put_session(w->store, &session);
    rules_log_put(w->store, c->rules, session.t_us);
    return store_wait(w->store, store_ticket(w->store), 10000, fault);
}

static Err open_fleet(Watch *w, Fault *fault)
{
    const WatchConfig *c = w->config;
    FleetEvents events = {on_state, on_incarnation, on_frontend, on_ready, w};
    FleetConfig fleet = {.frontend_url = c->frontend_url, .engine_bearer = c->engine_bearer,
                         .probe = c->probe, .ask_ready = true};
    fleet.probe.health_ms = 0; /* it would generate a token */
    w->discover = discover_new(c->gone_looks > 0 ? (int)c->gone_looks : GONE_LOOKS);
    w->seen = xcalloc(FLEET_ENGINES_MAX, sizeof *w->seen);
    Err err = fleet_new(&w->uv, w->http, w->store, &fleet, &events, &w->fleet, fault);
    if (err == ERR_OK && c->engine_addr_count > 0) {
        on_look(c->from_environment ? DISCOVER_ENV : DISCOVER_FLAG, c->engine_addrs,
                c->engine_addr_count, w);
    }
    if (err == ERR_OK && (c->sources.file || c->sources.dns || c->sources.from_frontend)) {
        SourcesConfig sources = c->sources;
        SourcesEvents told = {on_look, on_trouble, w};
        sources.frontend_url = c->frontend_url;
        err = sources_new(&w->uv, w->http, &sources, &told, &w->sources, fault);
    }
    return err;
}

static void teardown(Watch *w)
{
    w->ending = true;
    ctl_server_free(w->ctl);
    sources_free(w->sources);
    fleet_free(w->fleet);
    http_client_free(w->http);
    uv_close((uv_handle_t *)&w->tick, NULL);
    uv_close((uv_handle_t *)&w->sigint, NULL);
    uv_close((uv_handle_t *)&w->sigterm, NULL);
    for (int i = 0; i < CLOSE_ROUNDS && uv_run(&w->uv, UV_RUN_NOWAIT) != 0; i++) {
        clock_sleep_us(i < 50 ? 1000 : 10000);
    }
    bool still = !evloop_close(&w->uv); /* a look at DNS that nobody can call back */
    if (w->store) {
        SessionFact session = {.session = w->session, .t_us = clock_wall_us(),
                               .ended_us = clock_wall_us(), .pid = getpid(), .how = w->why};
        store_put_session(w->store, &session);
        store_close(w->store);
    }
    discover_free(w->discover);
    diagnose_free(w->diagnose);
    free(w->seen);
    if (!still) {
        free(w);
    }
}

Err watch_run(const WatchConfig *config, void (*ready)(void *user), void *user, Fault *fault)
{
    Watch *w = xcalloc(1, sizeof *w);
    w->config = config;
    w->why = "failed";
    (void)signal(SIGPIPE, SIG_IGN);
    Err err = evloop_open(&w->uv, &w->sigint, &w->sigterm, fault);
    if (err != ERR_OK) {
        free(w);
        return err;
    }
    uv_timer_init(&w->uv, &w->tick);
    w->tick.data = w->sigint.data = w->sigterm.data = w;
    err = http_client_new(&w->uv, NULL, &w->http, fault);
    err = err ? err : ctl_server_new(&w->uv, config->socket_path, on_control, w, &w->ctl, fault);
    err = err ? err : open_log(w, fault);
    err = err ? err : open_fleet(w, fault);
    if (err == ERR_OK) {
        w->started_us = clock_mono_us();
        uv_timer_start(&w->tick, on_tick, TICK_MS, TICK_MS);
        uv_signal_start(&w->sigint, on_signal, SIGINT);
        uv_signal_start(&w->sigterm, on_signal, SIGTERM);
        if (ready) {
            ready(user);
        }
        uv_run(&w->uv, UV_RUN_DEFAULT);
    }
    teardown(w);
    return err;
}
