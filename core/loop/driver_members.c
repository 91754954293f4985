/* Engines that come and go during a run: addresses from the sources of discovery and from the
 * operator, two names that lead to one process, and leaving in good order. A newcomer is fenced
 * until it holds the committed policy; who leaves finishes (drain) or is taken out at once, and
 * what it was generating is generated elsewhere. A transaction that has an engine as a member is
 * waited for: nobody is left paused behind. */
#include "core/loop/driver_private.h"

#include <stdlib.h>
#include <string.h>

int driver_members_present(const Driver *d)
{
    int present = 0;
    for (int i = 0; i < d->seat_count; i++) {
        present += d->seats[i].state != ENGINE_GONE;
    }
    return present;
}

void driver_seat_reset(Driver *d, int engine, const char *address)
{
    Seat *seat = &d->seats[engine];
    d->seat_count = engine >= d->seat_count ? engine + 1 : d->seat_count;
    seat->state = ENGINE_STARTING;
    seat->state_since_us = clock_mono_us();
    seat->bring = true;
    seat->bring_due_us = 0;
    seat->verified = -1;
    seat->follows = -1;
    seat->no_pull = seat->no_look = seat->pulling = false;
    seat->copies_odd = 0;
    seat->cordoned = seat->paused = seat->leaving = seat->draining = false;
    seat->routed = seat->route_ok = seat->took_back = false;
    seat->fences_failed = seat->sync_failures = 0;
    seat->twin_of = 0;
    seat->how[0] = '\0';
    (void)str_format(seat->address, sizeof seat->address, "%s", address);
}

/* ---- in and out --------------------------------------------------------------------------- */

/* An engine that was here before keeps its row. */
static void slot_name(const Driver *d, const char *address, char name[DRIVER_NAME])
{
    for (int i = 0; i < fleet_count(d->fleet); i++) {
        FleetEngine e = fleet_engine(d->fleet, i);
        if (e.state == ENGINE_GONE && !e.local && strcmp(e.address, address) == 0) {
            (void)str_format(name, DRIVER_NAME, "%s", e.name);
            return;
        }
    }
    (void)str_format(name, DRIVER_NAME, "eng-%02d", fleet_count(d->fleet));
}

static void engine_in(Driver *d, const char *address, const char *reason)
{
    char name[DRIVER_NAME];
    int index = -1;
    Fault fault = {0};
    if (fleet_find(d->fleet, address) >= 0) {
        return;
    }
    slot_name(d, address, name);
    if (fleet_add(d->fleet, name, address, false, &index, &fault) != ERR_OK) {
        driver_event(d, SEVERITY_CRIT, "fleet", 0, "%s does not join: %s", address, fault.sentence);
        return;
    }
    driver_seat_reset(d, index, address);
    fleet_hold(d->fleet, index, false, false, true);
    driver_event(d, SEVERITY_INFO, name, index + 1, "joins the fleet at %s: %s", address, reason);
    driver_check_parts(d);
}

static void retry_twins(Driver *d, int engine)
{
    char reason[128];
    (void)str_format(reason, sizeof reason, "no longer just another name of %s",
                     fleet_engine(d->fleet, engine).name);
    for (int i = 0; i < d->seat_count; i++) {
        if (d->seats[i].twin_of == engine + 1) {
            char address[DISCOVER_ADDRESS];
            d->seats[i].twin_of = 0;
            (void)str_format(address, sizeof address, "%s", d->seats[i].address);
            engine_in(d, address, reason);
        }
    }
}

static void engine_out(Driver *d, int engine, const char *reason)
{
    Seat *seat = &d->seats[engine];
    char why[128];
    (void)str_format(why, sizeof why, "%s", reason);
    seat->leaving = seat->draining = false;
    fleet_remove(d->fleet, engine, why);
    if (seat->part) {
        seat->part->retired = true;
        seat->part->due_us = 0;
        if (seat->part->child) {
            child_stop(seat->part->child, DRIVER_GRACE_MS);
        }
    }
    driver_command_done(d, &seat->command, true, "out of the fleet");
    retry_twins(d, engine);
    driver_check_parts(d);
}

static void leave(Driver *d, int engine, bool drain, const char *why)
{
    Seat *seat = &d->seats[engine];
    seat->leaving = true;
    seat->draining = drain;
    (void)str_format(seat->leave_why, sizeof seat->leave_why, "%s", why);
    driver_admit(d, engine);
}

/* ---- two names for one process ------------------------------------------------------------ */

/* An identity without a start time may be shared by engines that were given one seed. */
static bool tells_apart(const char *identity)
{
    return identity[0] != '\0' && !str_ends(str_from(identity), STR("/0.000000"));
}

bool driver_members_twin(Driver *d, int engine)
{
    FleetEngine mine = fleet_engine(d->fleet, engine);
    retry_twins(d, engine);
    for (int i = 0; i < fleet_count(d->fleet) && mine.identity[0]; i++) {
        FleetEngine other = fleet_engine(d->fleet, i);
        if (i == engine || other.state == ENGINE_GONE || other.state == ENGINE_DEAD ||
            strcmp(other.identity, mine.identity) != 0) {
            continue;
        }
        if (!tells_apart(mine.identity)) {
            driver_event(d, SEVERITY_WARN, mine.name, engine + 1,
                         "%s may be the same process as %s at %s: version and seed agree; give "
                         "engines different --random-seed", mine.address, other.name,
                         other.address);
            return false;
        }
        int out = engine > i ? engine : i;
        int kept = engine > i ? i : engine;
        if (d->seats[out].part) {
            return false; /* our own child is where it says */
        }
        char why[128];
        (void)str_format(why, sizeof why, "the same process as %s at %s",
                         fleet_engine(d->fleet, kept).name, d->seats[kept].address);
        driver_event(d, SEVERITY_WARN, fleet_engine(d->fleet, out).name, out + 1,
                     "%s is %s: one of the two names is enough", d->seats[out].address, why);
        engine_out(d, out, why);
        d->seats[out].twin_of = kept + 1;
        return out == engine;
    }
    return false;
}

/* ---- sources ------------------------------------------------------------------------------ */

static void take_changes(Driver *d)
{
    DiscoverChange change;
    while (!d->shutting && !d->torn_down && discover_next(d->members.discover, &change)) {
        int index = fleet_find(d->fleet, change.address);
        if (change.add) {
            engine_in(d, change.address, change.reason);
        } else if (index >= 0) {
            driver_event(d, SEVERITY_WARN, fleet_engine(d->fleet, index).name, index + 1,
                         "leaves the fleet: %s", change.reason);
            leave(d, index, false, change.reason);
        } else {
            for (int i = 0; i < d->seat_count; i++) { /* a second name that is not used */
                bool same = strcmp(d->seats[i].address, change.address) == 0;
                d->seats[i].twin_of = same ? 0 : d->seats[i].twin_of;
            }
        }
    }
    if (discover_full(d->members.discover)) {
        driver_event(d, SEVERITY_CRIT, "fleet", 0,
                     "more than %d engine addresses are named: those beyond do not join",
                     DISCOVER_MAX);
    }
}

void driver_members_word(Driver *d, const char *address, bool add, const char *reason)
{
    discover_operator(d->members.discover, address, add, reason);
    take_changes(d);
}

static void on_look(DiscoverSource source, const char *const *addresses, size_t count, void *user)
{
    Driver *d = user;
    if (!d->torn_down) {
        discover_look(d->members.discover, source, addresses, count);
        take_changes(d);
    }
}

static void on_trouble(DiscoverSource source, const char *words, void *user)
{
    Driver *d = user;
    if (!d->torn_down && words[0]) {
        driver_event(d, SEVERITY_WARN, "fleet", 0, "%s: %s; the engines known so far stay",
                     discover_source_name(source), words);
    } else if (!d->torn_down) {
        driver_event(d, SEVERITY_INFO, "fleet", 0, "%s can be read again",
                     discover_source_name(source));
    }
}

/* The addresses of the command line are seats already, by their place in it. */
Err driver_members_start(Driver *d, Fault *fault)
{
    const RunConfig *c = d->config;
    DiscoverChange known;
    enum { GONE_LOOKS = 3 };
    d->members.discover = discover_new(c->gone_looks > 0 ? (int)c->gone_looks : GONE_LOOKS);
    discover_look(d->members.discover, DISCOVER_FLAG, c->engine_addrs, c->engine_addr_count);
    while (discover_next(d->members.discover, &known)) {
    }
    SourcesConfig sources = c->sources;
    sources.frontend_url = d->front.url;
    if (!sources.file && !sources.dns && !sources.from_frontend) {
        return ERR_OK;
    }
    SourcesEvents events = {.on_look = on_look, .on_trouble = on_trouble, .user = d};
    return sources_new(&d->uv, d->http, &sources, &events, &d->members.sources, fault);
}

void driver_members_stop(Driver *d)
{
    sources_free(d->members.sources);
    d->members.sources = NULL;
}

void driver_members_free(Driver *d)
{
    discover_free(d->members.discover);
    d->members.discover = NULL;
}

void driver_members_tick(Driver *d)
{
    for (int i = 0; i < d->seat_count; i++) {
        Seat *seat = &d->seats[i];
        if (!seat->leaving) {
            continue;
        }
        bool dead = seat->state == ENGINE_DEAD;
        bool runs = seat->draining && driver_rollout_on_engine(d, i) > 0;
        if (dead || (!driver_sync_holds(d, i) && !runs)) {
            engine_out(d, i, seat->leave_why);
        }
    }
}

/* ---- the operator ------------------------------------------------------------------------- */

static bool revive(Driver *d, int engine, char *out, size_t size)
{
    Part *part = d->seats[engine].part;
    if (part->child) {
        (void)str_format(out, size, "%s is still ending; try again in a moment", part->name);
        return false;
    }
    driver_seat_reset(d, engine, "");
    part->retired = part->added = part->listening = false;
    part->failures = 0;
    part->due_us = 1;
    (void)str_format(out, size, "%s is started again and serves once it has the policy",
                     part->name);
    return true;
}

bool driver_members_add(Driver *d, const char *who, const char *address, char *out, size_t size)
{
    char checked[DISCOVER_ADDRESS], reason[128];
    Fault fault = {0};
    for (int i = 0; i < d->seat_count; i++) {
        const Part *part = d->seats[i].part;
        if (part && strcmp(part->name, address) == 0 && part->retired) {
            return revive(d, i, out, size);
        }
    }
    if (discover_address(address, checked, &fault) != ERR_OK) {
        (void)str_format(out, size, "%s; %s", fault.sentence, fault.hint);
        return false;
    }
    int index = fleet_find(d->fleet, checked);
    if (index >= 0 && !d->seats[index].leaving) {
        (void)str_format(out, size, "%s is in the fleet already, as %s", checked,
                         fleet_engine(d->fleet, index).name);
        return false;
    }
    if (fleet_count(d->fleet) < d->config->local_engines) {
        (void)str_format(out, size, "the local engines are still starting; try again in a moment");
        return false;
    }
    if (index >= 0) { /* it was about to leave */
        d->seats[index].leaving = d->seats[index].draining = false;
        driver_admit(d, index);
    }
    (void)str_format(reason, sizeof reason, "added by %s", who);
    discover_operator(d->members.discover, checked, true, reason);
    take_changes(d);
    index = fleet_find(d->fleet, checked);
    if (index < 0) {
        (void)str_format(out, size, "%s could not be added; see the events", checked);
        return false;
    }
    (void)str_format(out, size, "%s joins as %s and serves once it has the policy", checked,
                     fleet_engine(d->fleet, index).name);
    return true;
}

bool driver_members_leave(Driver *d, int engine, bool drain, const char *why, int64_t command,
                          char *out, size_t size)
{
    Seat *seat = &d->seats[engine];
    DiscoverChange known;
    if (seat->state == ENGINE_GONE) {
        (void)str_format(out, size, "it is out of the fleet already");
        return false;
    }
    if (driver_members_present(d) <= 1) {
        (void)str_format(out, size, "it is the only engine of the run; add another first");
        return false;
    }
    if (drain && !driver_routes(d)) {
        (void)str_format(out, size, "the frontend is not ours and would go on giving it work; "
                         "drain it there, then remove it here");
        return false;
    }
    driver_command_done(d, &seat->command, false, "the engine leaves the fleet");
    seat->command = command;
    if (!seat->part) {
        discover_operator(d->members.discover, seat->address, false, why);
        while (discover_next(d->members.discover, &known)) { /* it is this seat that leaves */
        }
    }
    leave(d, engine, drain, why);
    (void)str_format(out, size, "%s%s",
                     drain ? "finishes what it runs, then leaves"
                           : "leaves; what it was generating is generated elsewhere",
                     driver_routes(d) ? ""
                                      : "; the frontend may go on giving it work, whose samples "
                                        "count only while their policy fits");
    return true;
}
