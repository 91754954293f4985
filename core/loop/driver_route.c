/* Which engines get work. Without a frontend the driver picks one for each sample. Our own frontend
 * is told which it may give work to: every change is one bounded call; a call that fails is
 * repeated by the next look (driver_route_all on each frontend start, and the incident rules show
 * an engine that stays outside). A frontend of others is not told: there only the engine itself
 * can refuse. */
#include "core/loop/driver_private.h"

#include <stdlib.h>

typedef struct RouteCall {
    Driver *d;
    int engine;
    bool wanted;
} RouteCall;

static void routed(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    RouteCall *route = user;
    Driver *d = route->d;
    bool good = result->end == HTTP_END_OK && result->status / 100 == 2;
    if (good && d->seats[route->engine].routed == route->wanted) {
        d->seats[route->engine].route_ok = route->wanted;
        driver_update_gate(d);
    }
    if (!good && result->end != HTTP_END_CANCELLED && !d->shutting) {
        Seat *seat = &d->seats[route->engine];
        if (seat->routed == route->wanted) {
            seat->routed = !route->wanted; /* the next look tries again */
        }
    }
    free(route);
}

static void send_route(Driver *d, int engine, bool wanted)
{
    char url[320], body[DISCOVER_ADDRESS + 32];
    (void)str_format(url, sizeof url, "%s/_workers", d->front.url);
    (void)str_format(body, sizeof body, "{\"%s\":\"%s\"}", wanted ? "add" : "remove",
                     d->seats[engine].address);
    RouteCall *route = xcalloc(1, sizeof *route);
    *route = (RouteCall){.d = d, .engine = engine, .wanted = wanted};
    HttpRequestSpec spec = {.method = "POST", .url = url, .body = str_from(body),
                            .total_ms = 3000, .idempotent = true, .on_done = routed,
                            .user = route};
    Fault fault = {0};
    if (http_start(d->http, &spec, NULL, &fault) != ERR_OK) {
        driver_event(d, SEVERITY_WARN, "frontend", engine + 1, "%s", fault.sentence);
        d->seats[engine].routed = !wanted;
        free(route);
    }
}

bool driver_routes(const Driver *d)
{
    return d->local.frontend || d->front.direct;
}

int driver_pick(const Driver *d)
{
    int best = -1;
    for (int i = 0; i < fleet_count(d->fleet); i++) {
        if (fleet_engine(d->fleet, i).admitted &&
            (best < 0 || d->seats[i].sampling < d->seats[best].sampling)) {
            best = i;
        }
    }
    return best;
}

void driver_route(Driver *d, int engine, bool wanted)
{
    Seat *seat = &d->seats[engine];
    if (!d->local.frontend || seat->routed == wanted) {
        return;
    }
    if (!d->local.frontend->listening || d->shutting || !seat->address[0]) {
        return; /* driver_route_all tells a frontend everything when it starts */
    }
    seat->routed = wanted;
    seat->route_ok = false;
    send_route(d, engine, wanted);
}

/* It is up and holds a policy that may serve, whether or not it is kept from work. */
static bool sound(const Driver *d, int engine)
{
    const Seat *seat = &d->seats[engine];
    return engine < fleet_count(d->fleet) && !seat->bring && !seat->leaving &&
           seat->verified >= 0 && seat->state != ENGINE_DEAD && seat->state != ENGINE_GONE;
}

static bool fit(const Driver *d, int engine)
{
    return sound(d, engine) && !d->seats[engine].cordoned && !d->seats[engine].paused;
}

const char *driver_serves_word(const Driver *d, int engine)
{
    return d->seats[engine].cordoned ? "still cordoned: takes nothing new"
           : d->seats[engine].paused ? "still paused: gets no work"
                                     : "serves again";
}

/* One that makes no token gets no more work while another one does; the last one keeps it. */
static bool may_serve(const Driver *d, int engine)
{
    bool others = false;
    for (int i = 0; i < d->seat_count && d->seats[engine].state == ENGINE_STUCK; i++) {
        others = others || (i != engine && fit(d, i) && d->seats[i].state != ENGINE_STUCK);
    }
    return fit(d, engine) && !others;
}

void driver_route_all(Driver *d)
{
    for (int i = 0; i < d->seat_count; i++) {
        driver_route(d, i, may_serve(d, i));
    }
}

void driver_admit(Driver *d, int engine)
{
    bool may = may_serve(d, engine);
    fleet_set_admitted(d->fleet, engine, may);
    driver_route(d, engine, may);
    driver_update_gate(d);
    Seat *seat = &d->seats[engine];
    bool going = seat->part && seat->part->asked; /* what was asked for has not happened yet */
    bool held = sound(d, engine) && (seat->cordoned || seat->paused);
    if (seat->part && !going && (may || held)) {
        seat->part->asked_us = 0;
    }
    if (seat->command > 0 && !going && (may || held)) {
        char text[96];
        (void)str_format(text, sizeof text, "verified; %s", driver_serves_word(d, engine));
        driver_command_done(d, &seat->command, true, text);
    }
}
