/* Fleet driver against engine processes that are really killed, frozen and replaced, with a real
 * log behind it. */
#include "core/fleet/fleet.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "store/view.h"
#include "tests/harness.h"
#include "tests/net/raw_server.h"

#include <stdlib.h>

static const int64_t WAIT_US = 60000000;

typedef struct EngineSetup { /* what the child says of itself */
    int slow_pause_ms;
} EngineSetup;

static bool engine(const RawRequest *r, void *user)
{
    const EngineSetup *setup = user;
    char body[256];
    if (strcmp(r->path, "/server_info") == 0) {
        snprintf(body, sizeof body, "{\"version\":\"t\",\"pid\":%d,\"start_time\":\"%d\"}",
                 (int)getppid(), (int)getpgrp()); /* the accepting process is the engine */
        raw_reply(r->fd, 200, "", body);
    } else if (strcmp(r->path, "/model_info") == 0) {
        raw_reply(r->fd, 200, "", "{\"model_path\":\"m\",\"weight_version\":\"5\"}");
    } else if (strncmp(r->path, "/v1/loads", 9) == 0) {
        raw_reply(r->fd, 200, "", "{\"loads\":[{\"num_running_reqs\":0,\"num_waiting_reqs\":0}]}");
    } else if (strcmp(r->path, "/pause_generation") == 0) {
        raw_sleep_ms(setup->slow_pause_ms);
        raw_reply(r->fd, 200, "", "{\"message\":\"Generation paused\",\"status\":\"ok\"}");
    } else if (strcmp(r->path, "/continue_generation") == 0) {
        raw_reply(r->fd, 200, "", "{\"message\":\"Generation continued\",\"status\":\"ok\"}");
    } else if (strcmp(r->path, "/flush_cache") == 0 || strcmp(r->path, "/ping") == 0
               || strcmp(r->path, "/health_generate") == 0) {
        raw_reply(r->fd, 200, "", "");
    } else if (strcmp(r->path, "/health") == 0) {
        raw_reply(r->fd, 200, "", "{\"status\":\"healthy\",\"instances\":[]}");
    } else {
        raw_reply(r->fd, 404, "", "{\"detail\":\"Not Found\"}");
    }
    return true;
}

typedef struct Seen {
    EngineState state[8];
    int changes[8];
    int64_t incarnation[8];
    int frontend_ups, frontend_downs;
} Seen;

static uv_loop_t loop;
static HttpClient *client;
static Store *store;
static Fleet *fleet;
static Seen seen;
static char log_path[128];
static EngineSetup setup;
static uv_timer_t alarm_timer;

static void on_state(int index, EngineState before, EngineState now, const char *reason,
                     void *user)
{
    (void)user;
    CHECK(before != now && reason[0] != '\0');
    CHECK_I64(fleet_engine(fleet, index).state, now);
    seen.state[index] = now;
    seen.changes[index]++;
}

static void on_incarnation(int index, int64_t incarnation, void *user)
{
    (void)user;
    seen.incarnation[index] = incarnation;
}

static void on_frontend(bool up, const char *reason, void *user)
{
    (void)user;
    CHECK(reason[0] != '\0');
    seen.frontend_ups += up ? 1 : 0;
    seen.frontend_downs += up ? 0 : 1;
}

static void on_alarm(uv_timer_t *timer)
{
    (void)timer;
}

/* Runs the loop until the engine has the state; gives the milliseconds. How long that may take is
 * judged in virtual time, by probe_test. */
static int64_t until(int index, EngineState wanted)
{
    int64_t from = clock_mono_us();
    while (fleet_engine(fleet, index).state != wanted
           && clock_mono_us() - from < WAIT_US) {
        uv_timer_start(&alarm_timer, on_alarm, 20, 0);
        uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK_STR(engine_state_name(fleet_engine(fleet, index).state), engine_state_name(wanted));
    return (clock_mono_us() - from) / 1000;
}

static void run_ms(int64_t ms)
{
    int64_t from = clock_mono_us();
    while (clock_mono_us() - from < ms * 1000) {
        uv_timer_start(&alarm_timer, on_alarm, 20, 0);
        uv_run(&loop, UV_RUN_ONCE);
    }
}

static bool frontend_becomes(bool up)
{
    int64_t from = clock_mono_us();
    while (fleet_frontend_up(fleet) != up && clock_mono_us() - from < WAIT_US) {
        uv_timer_start(&alarm_timer, on_alarm, 20, 0);
        uv_run(&loop, UV_RUN_ONCE);
    }
    return fleet_frontend_up(fleet) == up;
}

static void fleet_start(const char *frontend)
{
    FleetConfig config = {.frontend_url = frontend, .probe = probe_settings_default()};
    FleetEvents events = {on_state, on_incarnation, on_frontend, NULL, NULL};
    Fault fault = {0};
    memset(&seen, 0, sizeof seen);
    CHECK_I64(fleet_new(&loop, client, store, &config, &events, &fleet, &fault), ERR_OK);
}

static int add(const char *name, int port)
{
    char address[64];
    int index = -1;
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    CHECK_I64(fleet_add(fleet, name, address, true, &index, NULL), ERR_OK);
    return index;
}

static int answers;
static EngineAnswer last;
static const void *last_user;

static void on_answer(const EngineAnswer *a, void *user)
{
    last_user = user;
    answers++;
    last = *a;
}

static void killed_frozen_replaced(void)
{
    RawServer a = raw_server_start(engine, &setup);
    RawServer b = raw_server_start(engine, &setup);
    char frontend[64];
    snprintf(frontend, sizeof frontend, "http://127.0.0.1:%d", b.port);
    fleet_start(frontend);
    int ia = add("eng-00", a.port);
    const char *lent = fleet_engine(fleet, ia).identity;
    int ib = add("eng-01", b.port);
    CHECK(fleet_engine(fleet, ia).identity == lent); /* a newcomer moves nobody */
    CHECK_I64(ia, 0);
    CHECK_I64(ib, 1);
    CHECK_I64(add("eng-00", a.port), 0); /* the same again is the same slot */
    until(ia, ENGINE_UP);
    until(ib, ENGINE_UP);
    CHECK_I64(seen.incarnation[ia], 1);
    CHECK(frontend_becomes(true));
    for (int i = 0; i < 600 && fleet_engine(fleet, ia).reported_version != 5; i++) {
        run_ms(100);
    }
    CHECK_I64(fleet_engine(fleet, ia).reported_version, 5);
    CHECK_I64(fleet_find(fleet, fleet_engine(fleet, ib).address), ib);
    fleet_set_verified(fleet, ia, 5);
    fleet_set_admitted(fleet, ia, true);
    raw_server_stop(&a); /* SIGKILL */
    int64_t ms = until(ia, ENGINE_DEAD);
    printf("     killed engine seen after %lld ms\n", (long long)ms);
    a = raw_server_start_at(a.port, engine, &setup); /* another process at the same address */
    until(ia, ENGINE_UP);
    CHECK_I64(seen.incarnation[ia], 2);
    CHECK_I64(fleet_engine(fleet, ia).verified_version, -1);
    CHECK(!fleet_engine(fleet, ia).admitted);
    raw_server_signal(&b, SIGSTOP);
    ms = until(ib, ENGINE_DEAD);
    printf("     frozen engine seen after %lld ms\n", (long long)ms);
    CHECK(frontend_becomes(false));
    raw_server_signal(&b, SIGCONT);
    until(ib, ENGINE_UP);
    CHECK_I64(seen.incarnation[ib], 1); /* thawed, not replaced */
    CHECK(frontend_becomes(true));
    CHECK(seen.frontend_ups >= 2); /* more where answers were late */
    CHECK_I64(seen.frontend_downs, seen.frontend_ups - 1);
    fleet_note_exit(fleet, ib, "signal 9"); /* the parent saw it first */
    CHECK_I64(fleet_engine(fleet, ib).state, ENGINE_DEAD);
    fleet_remove(fleet, ib, "taken out");
    CHECK_I64(fleet_engine(fleet, ib).state, ENGINE_GONE);
    int changes = seen.changes[ib];
    run_ms(700);
    CHECK_I64(seen.changes[ib], changes);
    raw_server_stop(&a);
    raw_server_stop(&b);
}

static void bad_addresses(void)
{
    static const char *const bad[] = {"", "/", "a b:1", "x\"y:1", NULL};
    for (size_t i = 0; i < 5; i++) {
        int index = -1;
        Fault fault = {0};
        CHECK_I64(fleet_add(fleet, "eng-09", bad[i], false, &index, &fault), ERR_ARG);
        CHECK(fault.hint[0] != '\0');
    }
}

static void the_log_has_it_all(void)
{
    CHECK_I64(store_wait(store, store_ticket(store), 60000, NULL), ERR_OK);
    View *view = NULL;
    Arena *arena = arena_new(16 << 20);
    CHECK_I64(view_open(log_path, &view, NULL), ERR_OK);
    EngineList list = view_engines(view, clock_wall_us(), 0, 1000000, arena);
    CHECK_I64(list.count, 2);
    if (list.count == 2) {
        CHECK_STR(list.rows[0].name, "eng-00");
        CHECK_I64(list.rows[0].incarnation, 2);
        CHECK_I64(list.rows[1].state, ENGINE_GONE);
        CHECK(list.rows[0].seen_us > 0);
    }
    arena_free(arena);
    view_close(view);
}

/* The next life of the core finds its engines again and trusts none of them. */
static void a_resumed_core_counts_on(void)
{
    fleet_free(fleet);
    run_ms(50);
    store_close(store);
    StoreConfig config = {0};
    CHECK_I64(store_open(log_path, &config, &store, NULL), ERR_OK);
    RawServer a = raw_server_start(engine, &setup);
    fleet_start(NULL);
    CHECK_I64(fleet_count(fleet), 2);
    CHECK_I64(fleet_engine(fleet, 0).state, ENGINE_GONE);
    int index = add("eng-00", a.port);
    CHECK_I64(index, 0);
    until(index, ENGINE_UP);
    CHECK_I64(fleet_engine(fleet, index).incarnation, 3);
    CHECK_I64(fleet_engine(fleet, index).verified_version, -1);
    CHECK_I64(add("eng-02", a.port), 2);
    raw_server_stop(&a);
}

/* An engine whose rows are of a time to come, because the wall clock was set back since, is known
 * all the same: its id and its incarnations are not given to another one. */
static void known_from_a_clock_ahead(void)
{
    int64_t ahead_us = clock_wall_us() + INT64_C(3600000000);
    EngineFact fact = {.engine = 4, .t_us = ahead_us, .name = "eng-03", .address = "127.0.0.1:9"};
    store_put_engine(store, &fact);
    for (int64_t i = 1; i <= 2; i++) {
        IncarnationFact came = {.engine = 4, .incarnation = i, .t_us = ahead_us - i * 1000000};
        store_put_incarnation(store, &came);
    }
    fleet_free(fleet);
    run_ms(50);
    store_close(store);
    StoreConfig config = {0};
    CHECK_I64(store_open(log_path, &config, &store, NULL), ERR_OK);
    fleet_start(NULL);
    CHECK_I64(fleet_count(fleet), 4);
    CHECK_STR(fleet_engine(fleet, 3).name, "eng-03");
    CHECK_I64(fleet_engine(fleet, 3).incarnation, 2);
}

static void control_calls(void)
{
    setup.slow_pause_ms = 1200;
    RawServer a = raw_server_start(engine, &setup);
    int index = add("eng-03", a.port);
    until(index, ENGINE_UP);
    EngineCall pause = {.kind = ENGINE_PAUSE, .text = "retract"};
    EngineCall flush = {.kind = ENGINE_FLUSH};
    EngineCall go_on = {.kind = ENGINE_CONTINUE};
    CHECK_I64(fleet_call(fleet, index, &pause, on_answer, NULL, NULL), ERR_OK);
    int count = answers;
    CHECK_I64(fleet_call(fleet, index, &go_on, on_answer, &go_on, NULL), ERR_OK);
    while (answers == count) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK(last_user == &go_on); /* no call waits for another one */
    while (answers < count + 2) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK_I64(last.err, ERR_OK);
    Fault fault = {0};
    CHECK_I64(fleet_call(fleet, index, &flush, on_answer, NULL, &fault), ERR_STATE);
    CHECK(strstr(fault.sentence, "retract") != NULL);
    EngineCall own = {.kind = ENGINE_FLUSH, .own = true}; /* ours drop what a pause keeps */
    CHECK_I64(fleet_call(fleet, index, &own, on_answer, NULL, NULL), ERR_OK);
    while (answers < count + 3) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    count++;
    CHECK_I64(fleet_call(fleet, index, &go_on, on_answer, NULL, NULL), ERR_OK);
    while (answers < count + 3) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK_I64(fleet_call(fleet, index, &flush, on_answer, NULL, NULL), ERR_OK);
    while (answers < count + 4) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK_I64(last.err, ERR_OK);
    fleet_hold(fleet, index, true, false, true);
    CHECK_I64(fleet_engine(fleet, index).state, ENGINE_FENCED);
    fleet_hold(fleet, index, false, false, false);
    CHECK_I64(fleet_engine(fleet, index).state, ENGINE_UP);
    CHECK_I64(fleet_call(fleet, index, &pause, on_answer, NULL, NULL), ERR_OK);
    run_ms(50);
    fleet_free(fleet); /* with a call under way */
    CHECK_I64(answers, count + 5);
    CHECK_I64(last.err, ERR_CANCELLED);
    run_ms(1500); /* its late answer goes nowhere */
    CHECK_I64(answers, count + 5);
    raw_server_stop(&a);
}

/* Probes that were under way when it was taken out say nothing, and hold up nothing either. */
static void taken_out_with_probes_under_way(void)
{
    setup.slow_pause_ms = 0;
    RawServer a = raw_server_start(engine, &setup);
    fleet_start(NULL);
    raw_server_signal(&a, SIGSTOP);
    int index = add("eng-05", a.port);
    run_ms(400);
    fleet_remove(fleet, index, "taken out");
    raw_server_signal(&a, SIGCONT);
    run_ms(1000);
    CHECK_I64(fleet_engine(fleet, index).state, ENGINE_GONE);
    CHECK_I64(add("eng-05", a.port), index);
    until(index, ENGINE_UP);
    fleet_free(fleet);
    run_ms(50);
    raw_server_stop(&a);
}

/* A reply that was sent to the old process must not be taken for the new one's. */
static void a_reply_of_the_old_incarnation_is_dropped(void)
{
    setup.slow_pause_ms = 2500;
    RawServer a = raw_server_start(engine, &setup);
    fleet_start(NULL);
    int index = add("eng-04", a.port);
    until(index, ENGINE_UP);
    int64_t before = fleet_engine(fleet, index).incarnation;
    EngineCall pause = {.kind = ENGINE_PAUSE, .text = "abort"};
    int count = answers;
    CHECK_I64(fleet_call(fleet, index, &pause, on_answer, NULL, NULL), ERR_OK);
    run_ms(100);
    kill(a.pid, SIGSTOP); /* accepts no more; the child that answers the pause lives on */
    RawServer b = raw_server_start(engine, &setup);
    CHECK_I64(add("eng-04", b.port), index); /* rescheduled: same name, new address */
    until(index, ENGINE_UP);
    CHECK_I64(fleet_engine(fleet, index).incarnation, before + 1);
    while (answers == count) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK_I64(last.err, ERR_STATE);
    CHECK(strstr(last.fault.sentence, "replaced") != NULL);
    fleet_free(fleet);
    raw_server_stop(&a);
    raw_server_stop(&b);
}

int main(void)
{
    snprintf(log_path, sizeof log_path, "/tmp/rolltop-fleet-test-%d.db", (int)getpid());
    StoreConfig config = {0};
    Fault fault = {0};
    CHECK_I64(store_open(log_path, &config, &store, &fault), ERR_OK);
    if (!store) {
        fault_print(&fault);
        return test_end();
    }
    uv_loop_init(&loop);
    uv_timer_init(&loop, &alarm_timer);
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK);
    RUN(killed_frozen_replaced);
    RUN(bad_addresses);
    RUN(the_log_has_it_all);
    RUN(a_resumed_core_counts_on);
    RUN(known_from_a_clock_ahead);
    RUN(control_calls);
    RUN(taken_out_with_probes_under_way);
    RUN(a_reply_of_the_old_incarnation_is_dropped);
    http_client_free(client);
    uv_close((uv_handle_t *)&alarm_timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
    store_close(store);
    const char *const tails[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s%s", log_path, tails[i]);
        unlink(path);
    }
    return test_end();
}
