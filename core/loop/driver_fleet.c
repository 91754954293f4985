/* What the fleet tells: states, other processes, the frontend; what follows for the seats, and
 * whether the run has what it needs. */
#include "core/loop/driver_private.h"

#include <stdio.h>

/* Set aside for seconds, a frontend that can serve nobody is no loss; this long, it is one. */
enum { FRONT_NONE_MS = 30000 };

static void on_state(int engine, EngineState before, EngineState now, const char *reason,
                     void *user)
{
    Driver *d = user;
    Seat *seat = &d->seats[engine];
    seat->state = now;
    seat->state_since_us = clock_mono_us();
    bool asked = seat->part && seat->part->asked;
    if (now == ENGINE_DEAD && reason) {
        (void)str_format(seat->how, sizeof seat->how, "%s", reason);
    }
    if (now == ENGINE_STUCK || before == ENGINE_STUCK) {
        driver_admit(d, engine);
    }
    if (now == ENGINE_DEAD || now == ENGINE_GONE) {
        Severity severity = now == ENGINE_GONE ? SEVERITY_WARN : SEVERITY_CRIT;
        driver_event(d, asked ? SEVERITY_INFO : severity,
                     fleet_engine(d->fleet, engine).name, engine + 1, "%s: %s",
                     engine_state_name(now), reason ? reason : "");
        seat->bring = true;
        driver_admit(d, engine); /* it serves no more, for the gate and for who asks */
        driver_sync_engine_lost(d, engine, seat->incarnation);
    }
    if (now == ENGINE_GONE) {
        driver_rollout_engine_lost(d, engine);
    }
    driver_take_back(d, seat->state_since_us);
    driver_update_gate(d);
    driver_check_parts(d);
}

static void on_incarnation(int engine, int64_t incarnation, void *user)
{
    static const char unlisted[] = "; the frontend does not list it yet, updates wait for that";
    Driver *d = user;
    Seat *seat = &d->seats[engine];
    int64_t now_us = clock_mono_us();
    if (driver_members_twin(d, engine)) {
        seat->incarnation = incarnation;
        return;
    }
    if (seat->incarnation > 0 && seat->incarnation != incarnation) {
        driver_event(d, SEVERITY_WARN, fleet_engine(d->fleet, engine).name, engine + 1,
                     "another process answers now (incarnation %lld): fenced until it has the "
                     "policy%s", (long long)incarnation,
                     fleet_listed(d->fleet, engine) ? "" : unlisted);
        driver_sync_engine_lost(d, engine, seat->incarnation);
        driver_rollout_engine_lost(d, engine);
    } else if (seat->incarnation == 0) {
        driver_event(d, SEVERITY_INFO, fleet_engine(d->fleet, engine).name, engine + 1,
                     "answers at %s%s", fleet_engine(d->fleet, engine).address,
                     fleet_listed(d->fleet, engine) ? "" : unlisted);
    }
    seat->incarnation = incarnation;
    seat->bring = true;
    seat->paused = false;
    seat->verified = -1;
    seat->follows = -1;
    seat->no_pull = seat->no_look = seat->pulling = false;
    seat->copies_odd = 0;
    seat->doubt_us = 0; /* what was sent to the old process died with it */
    seat->bring_due_us = 0;
    const bool asked = seat->part && driver_calm(d, seat->part->asked_us, now_us);
    if (!asked) { /* a start that was asked for is no sign of a restart loop */
        int slots = (int)(sizeof seat->boots / sizeof *seat->boots);
        seat->boots[seat->boot_count++ % slots] = now_us;
    }
    driver_route(d, engine, false);
    fleet_set_admitted(d->fleet, engine, false);
    fleet_hold(d->fleet, engine, false, false, true);
    driver_engine_came(d, engine);
    driver_check_parts(d);
}

static void on_frontend(bool up, const char *reason, void *user)
{
    Driver *d = user;
    if (d->local.frontend && !d->local.frontend->listening) {
        return; /* not up yet, or an answer of the process that has just ended */
    }
    if (up == d->front.up) {
        return;
    }
    d->front.up = up;
    d->front.down_us = up ? 0 : clock_mono_us();
    d->front.none_us = 0;
    (void)str_format(d->front.how, sizeof d->front.how, "does not answer%s%s",
                     reason && reason[0] ? ": " : "", reason ? reason : "");
    driver_event(d, up ? SEVERITY_INFO : SEVERITY_CRIT, "frontend", 0, "%s%s%s",
                 up ? "answers" : "does not answer", reason && reason[0] ? ": " : "",
                 reason ? reason : "");
    if (up) {
        driver_router_came(d);
        driver_route_all(d);
    }
    driver_update_gate(d);
    driver_check_parts(d);
}

/* Only asked of a frontend of others. New requests wait while it would refuse every one. */
static void on_ready(Readiness now, const char *words, void *user)
{
    Driver *d = user;
    bool none = now == READINESS_NONE;
    if (none != (d->front.none_us > 0) || now == READINESS_SPLIT) {
        driver_event(d, now == READINESS_SPLIT ? SEVERITY_CRIT
                                               : none ? SEVERITY_WARN : SEVERITY_INFO,
                     "frontend", 0, "%s: %s", none ? "can serve nobody, requests wait"
                                                   : now == READINESS_READY ? "can serve again"
                                                                            : "answers", words);
    }
    d->front.none_us = !none ? 0 : d->front.none_us ? d->front.none_us : clock_mono_us();
    if (none) {
        (void)str_format(d->front.how, sizeof d->front.how, "can serve nobody: %.70s", words);
    }
    driver_update_gate(d);
    driver_check_parts(d);
}

void driver_fleet_events(Driver *d, FleetEvents *events)
{
    *events = (FleetEvents){.on_state = on_state, .on_incarnation = on_incarnation,
                            .on_frontend = on_frontend, .on_ready = on_ready, .user = d};
}

int64_t driver_front_lost_us(const Driver *d)
{
    const int64_t none_us = d->front.none_us;
    if (d->front.up && none_us > 0 && clock_mono_us() - none_us >= FRONT_NONE_MS * 1000LL) {
        return none_us;
    }
    return d->front.up ? 0 : d->front.down_us;
}

static bool front_lost(const Driver *d)
{
    return !d->front.up || driver_front_lost_us(d) > 0;
}

static bool usable(const Driver *d, int engine)
{
    EngineState state = d->seats[engine].state;
    return d->seats[engine].incarnation > 0 && state != ENGINE_DEAD && state != ENGINE_GONE &&
           state != ENGINE_STARTING && fleet_listed(d->fleet, engine);
}

/* Names what the run waits for: "eng-01, trainer". */
void driver_parts_missing(const Driver *d, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    if (driver_members_present(d) == 0) {
        n += (size_t)snprintf(out, size, "any engine");
    }
    for (int i = 0; i < d->seat_count && n < size; i++) {
        if (d->seats[i].state != ENGINE_GONE && (i >= fleet_count(d->fleet) || !usable(d, i))) {
            bool unlisted = i < fleet_count(d->fleet) && d->seats[i].incarnation > 0 &&
                            !fleet_listed(d->fleet, i);
            n += (size_t)snprintf(out + n, size - n, "%seng-%02d%s", n ? ", " : "", i,
                                  unlisted ? " (not on the frontend's list)" : "");
        }
    }
    if (n < size && front_lost(d)) {
        n += (size_t)snprintf(out + n, size - n, "%sfrontend%s", n ? ", " : "",
                              d->front.up ? " (it can serve nobody)" : "");
    }
    if (n < size && d->train.stage != TRAINER_READY) {
        (void)snprintf(out + n, size - n, "%strainer", n ? ", " : "");
    }
}

/* Before the first step every engine must be up; later one is enough. */
void driver_check_parts(Driver *d)
{
    if (d->shutting || d->torn_down || !d->loop) {
        return;
    }
    int up = 0;
    for (int i = 0; i < d->seat_count && (up == 0 || !d->ready.ever); i++) {
        up += i < fleet_count(d->fleet) && usable(d, i);
    }
    bool engines = up > 0 && (d->ready.ever || up == driver_members_present(d));
    bool ready = engines && !front_lost(d) && d->train.stage == TRAINER_READY;
    if (ready != d->ready.now) {
        d->ready.now = ready;
        d->ready.lost_us = ready ? 0 : clock_mono_us();
        d->ready.ever = d->ready.ever || ready;
        driver_feed(d, ready ? LOOP_EV_PARTS_READY : LOOP_EV_PARTS_LOST, false, NULL);
    }
}
