/* Probe machine: scripts of answers in virtual time, against what a person would say. */
#include "core/fleet/probe.h"
#include "tests/harness.h"

#include <stdlib.h>

typedef enum Mood { HEALTHY, KILLED, FROZEN, STUCK_SCHEDULER, SLOW_ANSWERS, NO_ROUTES, HOST_GONE }
    Mood;

/* An engine as its probes see it, and the driver around the machine. */
typedef struct World {
    ProbeState p;
    ProbeSettings s;
    int64_t now;
    Mood mood;
    const char *identity;
    int64_t version;
    double running, waiting, tokens, used;
    bool health_fails;
    bool swapped;   /* another process took the port: each pooled connection is gone */
    double tokens_per_s;
    int64_t slow_us; /* an answer of SLOW_ANSWERS */
    struct { bool flying; int64_t sent, lands; Mood mood; } flight[8];
    int changes, deaths, incarnations, sent[8];
    EngineState last;
    char reason[128];
} World;

static World *world_new(void)
{
    World *w = calloc(1, sizeof *w);
    w->s = probe_settings_default();
    w->now = 50 * 1000000;
    w->identity = "100/1";
    w->version = 3;
    w->slow_us = 2200000;
    probe_init(&w->p);
    w->last = w->p.state;
    return w;
}

static void verdict(World *w, ProbeVerdict v)
{
    if (v.changed) {
        w->changes++;
        w->deaths += w->p.state == ENGINE_DEAD;
        CHECK(v.reason[0] != '\0');
        CHECK(w->p.state != w->last);
        w->last = w->p.state;
        memcpy(w->reason, v.reason, sizeof w->reason);
    }
    CHECK_I64(w->p.state, w->last); /* never a change in silence */
    w->incarnations += v.new_incarnation ? 1 : 0;
    CHECK_I64(w->p.incarnation, w->incarnations);
}

static void land(World *w, ProbeKind kind)
{
    EngineAnswer a;
    memset(&a, 0, sizeof a);
    a.took_us = w->now - w->flight[kind].sent;
    a.weight_version = -1;
    a.end = HTTP_END_OK;
    a.status = 200;
    a.fresh = w->swapped;
    w->flight[kind].flying = false;
    if (w->flight[kind].mood == KILLED) {
        a.end = HTTP_END_REFUSED;
        a.err = ERR_NET;
    } else if (w->flight[kind].mood == FROZEN || w->flight[kind].mood == HOST_GONE
               || a.took_us >= probe_timeout_ms(&w->p, &w->s, kind, w->now) * 1000) {
        a.end = w->flight[kind].mood == HOST_GONE ? HTTP_END_TIMEOUT_CONNECT
                                                  : HTTP_END_TIMEOUT_TOTAL;
        a.err = ERR_TIMEOUT;
    } else if (kind == PROBE_HEALTH && (w->health_fails || w->mood == STUCK_SCHEDULER)) {
        a.err = ERR_PEER;
        a.status = 503;
    } else if (w->mood == NO_ROUTES && kind != PROBE_PING) {
        a.err = ERR_UNSUPPORTED;
        a.status = 404;
    } else if (kind == PROBE_SERVER) {
        snprintf(a.text, sizeof a.text, "%s", w->identity);
    } else if (kind == PROBE_MODEL) {
        a.weight_version = w->version;
    } else if (kind == PROBE_LOADS) {
        a.known_running = true;
        a.running = w->running;
        a.waiting = w->waiting;
        a.used_tokens = w->used;
    } else if (kind == PROBE_METRICS) {
        a.known_tokens = true;
        a.gen_tokens_total = w->tokens;
    }
    snprintf(a.outcome, sizeof a.outcome, "%s", a.err ? a.end ? http_end_name(a.end) : "http 503"
                                                      : "ok");
    verdict(w, probe_answer(&w->p, &w->s, kind, &a, w->now));
}

/* Runs for `ms` in steps of 100 ms, as the driver's timer does. */
static void run(World *w, int64_t ms)
{
    for (int64_t end = w->now + ms * 1000; w->now < end;) {
        w->now += 100000;
        if (w->mood == HEALTHY || w->mood == SLOW_ANSWERS) {
            w->tokens += w->tokens_per_s / 10;
            w->used += w->tokens_per_s / 10;
        }
        for (int k = 0; k < 8; k++) {
            if (w->flight[k].flying && w->flight[k].lands <= w->now) {
                land(w, (ProbeKind)k);
            }
        }
        verdict(w, probe_tick(&w->p, &w->s, w->now));
        unsigned due = probe_due(&w->p, &w->s, w->now);
        for (int k = 0; k < 8; k++) {
            if (due & 1u << k) {
                int64_t takes = w->mood == KILLED ? 0 : w->mood == SLOW_ANSWERS ? w->slow_us : 1000;
                takes = k == PROBE_HEALTH && w->mood == HEALTHY && !w->health_fails ? 1000000
                                                                                  : takes;
                takes = w->mood == HOST_GONE ? 2000000 : takes;
                int64_t bound = probe_timeout_ms(&w->p, &w->s, (ProbeKind)k, w->now) * 1000;
                takes = w->mood == FROZEN ? bound : takes;
                takes = k == PROBE_HEALTH && (w->health_fails || w->mood == STUCK_SCHEDULER)
                            ? 20000000 : takes;
                CHECK(!w->flight[k].flying); /* one of a kind at a time */
                w->flight[k].flying = true;
                w->flight[k].sent = w->now;
                w->flight[k].lands = w->now + takes;
                w->flight[k].mood = w->mood;
                w->sent[k]++;
            }
        }
    }
}

/* Milliseconds until the state is `wanted`, at most `limit_ms`. */
static int64_t until(World *w, EngineState wanted, int64_t limit_ms)
{
    int64_t from = w->now;
    while (w->p.state != wanted && w->now - from < limit_ms * 1000) {
        run(w, 100);
    }
    CHECK_STR(engine_state_name(w->p.state), engine_state_name(wanted));
    return (w->now - from) / 1000;
}

static void a_new_engine_comes_up(void)
{
    World *w = world_new();
    w->mood = KILLED;
    run(w, 60000);
    CHECK_I64(w->p.state, ENGINE_STARTING); /* nothing listens yet: that is no death */
    CHECK_I64(w->incarnations, 0);
    CHECK_I64(w->sent[PROBE_LOADS], 0);
    w->mood = HEALTHY;
    CHECK(until(w, ENGINE_UP, 5000) <= 1500);
    CHECK_I64(w->incarnations, 1);
    run(w, 3000);
    CHECK_I64(w->p.reported_version, 3);
    int before = w->changes;
    run(w, 600000);
    CHECK_I64(w->changes, before); /* ten quiet minutes */
    free(w);
}

static World *world_up(void)
{
    World *w = world_new();
    until(w, ENGINE_UP, 5000);
    w->running = 4;
    w->tokens_per_s = 200;
    run(w, 5000);
    CHECK_I64(w->p.state, ENGINE_UP);
    return w;
}

static void a_killed_engine_is_dead_within_3_s(void)
{
    for (int phase = 0; phase < 10; phase++) {
        World *w = world_up();
        run(w, phase * 100);
        w->mood = KILLED;
        CHECK(until(w, ENGINE_DEAD, 10000) <= 3000);
        CHECK(strstr(w->reason, "refused") != NULL);
        run(w, 20000);
        CHECK_I64(w->p.state, ENGINE_DEAD);
        w->mood = HEALTHY; /* another process at the same place */
        w->identity = "200/2";
        w->version = -1;
        w->tokens = 0;
        CHECK(until(w, ENGINE_UP, 5000) <= 2000);
        CHECK_I64(w->incarnations, 2);
        run(w, 3000);
        CHECK_I64(w->p.reported_version, -1);
        free(w);
    }
}

static void a_frozen_engine_is_dead_within_3_s(void)
{
    World *w = world_up();
    w->mood = FROZEN;
    CHECK(until(w, ENGINE_STALE, 10000) <= 2000);
    CHECK(until(w, ENGINE_DEAD, 10000) <= 1500);
    run(w, 30000);
    w->mood = HEALTHY; /* thawed: the same process, no new incarnation */
    CHECK(until(w, ENGINE_UP, 10000) <= 4000);
    CHECK_I64(w->incarnations, 1);
    free(w);
}

static void a_quick_restart_between_two_probes_is_seen(void)
{
    World *w = world_up();
    w->identity = "101/9"; /* no probe ever failed */
    w->version = -1;
    run(w, 2500);
    CHECK_I64(w->incarnations, 2);
    CHECK_I64(w->p.state, ENGINE_UP);
    free(w);
}

/* The first answer of the new process comes on a new connection: who it is is asked at once. */
static void another_process_is_seen_within_one_interval(void)
{
    for (int phase = 0; phase < 20; phase++) {
        World *w = world_up();
        run(w, phase * 100);
        w->identity = "101/9";
        w->swapped = true;
        int64_t from = w->now;
        while (w->incarnations < 2 && w->now - from < 5000000) {
            run(w, 100);
        }
        CHECK_I64(w->incarnations, 2);
        CHECK((w->now - from) / 1000 <= w->s.ping_ms + 200); /* and two ticks of the driver */
        CHECK_I64(w->p.state, ENGINE_UP);
        free(w);
    }
}

/* One late answer, one failed look at health, one token: none of them makes the picture flicker. */
static void states_do_not_flicker(void)
{
    World *w = world_up();
    EngineAnswer late;
    memset(&late, 0, sizeof late);
    late.end = HTTP_END_OK;
    late.took_us = 2000000;
    int before = w->changes;
    verdict(w, probe_answer(&w->p, &w->s, PROBE_PING, &late, w->now));
    run(w, 3000);
    CHECK_I64(w->changes, before);
    verdict(w, probe_answer(&w->p, &w->s, PROBE_PING, &late, w->now));
    verdict(w, probe_answer(&w->p, &w->s, PROBE_PING, &late, w->now));
    CHECK_I64(w->p.state, ENGINE_SLOW); /* two in a row are believed at once */
    for (int i = 0; i < 10; i++) { /* good and late answers in turn: one state, not twenty */
        run(w, 600);
        verdict(w, probe_answer(&w->p, &w->s, PROBE_PING, &late, w->now));
        verdict(w, probe_answer(&w->p, &w->s, PROBE_PING, &late, w->now));
    }
    CHECK_I64(w->changes, before + 1);
    int64_t ms = until(w, ENGINE_UP, 5000);
    CHECK(ms >= w->s.calm_ms && ms <= w->s.calm_ms + 1000);
    CHECK_I64(w->changes, before + 2);
    w->mood = KILLED; /* death does not wait */
    CHECK(until(w, ENGINE_DEAD, 5000) <= 3000);
    free(w);
}

static void one_dropped_connection_changes_nothing(void)
{
    World *w = world_up();
    EngineAnswer a;
    memset(&a, 0, sizeof a);
    a.end = HTTP_END_RESET;
    a.err = ERR_NET;
    int before = w->changes;
    verdict(w, probe_answer(&w->p, &w->s, PROBE_PING, &a, w->now));
    run(w, 5000);
    CHECK_I64(w->changes, before);
    CHECK_I64(w->incarnations, 1);
    free(w);
}

/* Incident 7: HTTP is well, the scheduler is not. */
static void health_that_lies_is_stuck(void)
{
    World *w = world_up();
    w->mood = STUCK_SCHEDULER;
    int64_t ms = until(w, ENGINE_STUCK, 60000);
    CHECK(ms >= 18000 && ms <= 22000);
    CHECK(strstr(w->reason, "4 running") != NULL);
    w->mood = HEALTHY;
    CHECK(until(w, ENGINE_UP, 30000) <= 30000);
    free(w);
    w = world_up(); /* the same with nothing to do: only its own health probe can tell */
    w->running = 0;
    w->tokens_per_s = 0;
    run(w, 60000);
    CHECK_I64(w->p.state, ENGINE_UP);
    w->health_fails = true;
    CHECK(until(w, ENGINE_STUCK, 60000) <= 40000); /* nobody's tokens speak against it */
    CHECK(strstr(w->reason, "generation health fails") != NULL);
    free(w);
    w = world_up(); /* it stood still before it had taken anything: all of it waits */
    w->running = 0;
    w->tokens_per_s = 0;
    w->mood = STUCK_SCHEDULER;
    w->waiting = 8;
    ms = until(w, ENGINE_STUCK, 60000);
    CHECK(ms >= 18000 && ms <= 22000);
    CHECK(strstr(w->reason, "8 waiting") != NULL);
    free(w);
}

/* Incident 8: 503 under load while tokens come. */
static void a_busy_engine_is_not_dead(void)
{
    World *w = world_up();
    w->health_fails = true;
    run(w, 120000);
    CHECK_I64(w->p.state, ENGINE_BUSY);
    w->health_fails = false;
    CHECK(until(w, ENGINE_UP, 40000) <= 40000);
    w->mood = SLOW_ANSWERS; /* each answer takes 2.2 s */
    run(w, 5000);
    for (int i = 0; i < 300; i++) {
        run(w, 100);
        CHECK(w->p.state == ENGINE_SLOW || w->p.state == ENGINE_STALE);
    }
    w->mood = FROZEN; /* its HTTP loop stands still, but its tokens arrive on our streams */
    for (int i = 0; i < 100; i++) {
        run(w, 100);
        verdict(w, probe_tokens(&w->p, &w->s, w->now));
        CHECK(w->p.state != ENGINE_DEAD && w->p.state != ENGINE_STALE);
    }
    CHECK(until(w, ENGINE_DEAD, 15000) <= 10500); /* it was late for so long: waited for */
    free(w);
}

static void never_dead_for(World *w, int64_t ms, bool flows)
{
    for (int64_t i = 0; i < ms / 100; i++) {
        run(w, 100);
        if (flows) {
            verdict(w, probe_flows(&w->p, &w->s, w->now));
        }
        CHECK(w->p.state != ENGINE_DEAD);
    }
}

/* A machine with a load of 20: answers come late, and later still. That is no death, and what was
 * late before is waited for; but not for ever, and not where no connection is made. */
static void a_starved_engine_is_slow_not_dead(void)
{
    for (int i = 0; i < 3; i++) {
        World *w = world_up();
        w->mood = SLOW_ANSWERS;
        w->slow_us = 900000;
        run(w, 8000);
        w->slow_us = 3300000; /* above dead_ms */
        never_dead_for(w, 60000, false);
        CHECK_I64(w->p.state, ENGINE_SLOW);
        w->mood = i == 0 ? HEALTHY : i == 1 ? FROZEN : HOST_GONE;
        if (i == 0) {
            CHECK(until(w, ENGINE_UP, 20000) <= 15000);
            run(w, 30000);
            w->mood = FROZEN; /* well for half a minute: silence is believed at once again */
        }
        CHECK(until(w, ENGINE_DEAD, 20000) <= (i == 0 ? 3000 : i == 1 ? 13500 : 8000));
        free(w);
    }
}

/* All at once, with nothing to tell it from a frozen one but the streams of the run. */
static void streams_that_move_are_life(void)
{
    World *w = world_up();
    w->mood = SLOW_ANSWERS;
    w->slow_us = 5000000;
    never_dead_for(w, 60000, true);
    CHECK_I64(w->p.state, ENGINE_SLOW);
    free(w);
    w = world_up(); /* and without them it is dead once: then it is known to be late */
    w->mood = SLOW_ANSWERS;
    w->slow_us = 2500000;
    until(w, ENGINE_DEAD, 5000);
    w->mood = HEALTHY;
    run(w, 3000);
    w->mood = SLOW_ANSWERS;
    w->slow_us = 4000000;
    never_dead_for(w, 12000, false);
    CHECK_I64(w->incarnations, 1);
    free(w);
    w = world_up(); /* streams that stop with it say so */
    w->mood = FROZEN;
    never_dead_for(w, 1000, true);
    CHECK(until(w, ENGINE_DEAD, 5000) <= 3000);
    free(w);
    w = world_up(); /* somebody else's streams do not keep a frozen one alive */
    w->mood = FROZEN;
    never_dead_for(w, 9000, true);
    for (int i = 0; i < 20 && w->p.state != ENGINE_DEAD; i++) {
        run(w, 100);
        verdict(w, probe_flows(&w->p, &w->s, w->now));
    }
    CHECK_I64(w->p.state, ENGINE_DEAD);
    free(w);
    w = world_up(); /* an idle engine has no part in them */
    w->running = 0;
    run(w, 2000);
    w->mood = FROZEN;
    for (int i = 0; i < 30; i++) {
        run(w, 100);
        verdict(w, probe_flows(&w->p, &w->s, w->now));
    }
    CHECK_I64(w->p.state, ENGINE_DEAD);
    free(w);
}

/* The prober was stopped, or its machine slept: what was not looked at is no silence. */
static void our_own_absence_is_nobody_s_silence(void)
{
    World *w = world_up();
    int before = w->changes;
    w->now += 45000000;
    run(w, 5000);
    CHECK_I64(w->changes, before);
    w->mood = KILLED;
    CHECK(until(w, ENGINE_DEAD, 5000) <= 3000);
    free(w);
}

/* Starved in many pieces: each is short, and of each second only a third is ours. */
static void run_starved(World *w, int64_t ms)
{
    for (int64_t end = w->now + ms * 1000; w->now < end;) {
        w->now += 600000;
        run(w, 100);
    }
}

static void a_starved_prober_calls_nobody_dead(void)
{
    World *w = world_up(); /* what it asks comes back late or not at all, as we read it */
    for (int i = 0; i < 6; i++) {
        w->mood = FROZEN; /* no answer is seen within the time that a probe has … */
        run_starved(w, 2600);
        w->mood = HEALTHY; /* … of which most was not ours */
        run_starved(w, 1400);
    }
    CHECK_I64(w->deaths, 0);
    w->mood = FROZEN; /* one that is dead is called so all the same, later */
    int64_t from = w->now;
    while (w->p.state != ENGINE_DEAD && w->now - from < 60000000) {
        run_starved(w, 700);
    }
    CHECK_STR(engine_state_name(w->p.state), "dead");
    CHECK(w->now - from > 5000000);
    free(w);
}

static void a_timeout_that_is_ours_is_no_evidence(void)
{
    OwnTime own = {0};
    CHECK_I64(own_time_look(&own, 1000000), 0); /* the first look misses nothing */
    CHECK_I64(own_time_look(&own, 1100000), 0);
    CHECK_I64(own_time_look(&own, 1300000), 0); /* one tick late is no absence */
    CHECK_I64(own_time_look(&own, 2300000), 900000);
    CHECK_I64(own.lost_us, 900000);
    CHECK(own_time_excuses(&own, 0, HTTP_END_TIMEOUT_TOTAL, 2600000));
    CHECK(own_time_excuses(&own, 0, HTTP_END_TIMEOUT_CONNECT, 2600000));
    CHECK(!own_time_excuses(&own, 0, HTTP_END_REFUSED, 2600000)); /* a refusal is a fact */
    CHECK(!own_time_excuses(&own, 0, HTTP_END_TIMEOUT_TOTAL, 22000000));
    CHECK(!own_time_excuses(&own, 900000, HTTP_END_TIMEOUT_TOTAL, 0));
}

static void what_we_hold_is_not_judged(void)
{
    World *w = world_up();
    verdict(w, probe_hold(&w->p, &w->s, true, false, false, w->now));
    CHECK_I64(w->p.state, ENGINE_PAUSED);
    w->tokens_per_s = 0; /* figures freeze, generation health would wait at the gate */
    w->health_fails = true;
    int health = w->sent[PROBE_HEALTH];
    run(w, 120000);
    CHECK_I64(w->p.state, ENGINE_PAUSED);
    CHECK_I64(w->sent[PROBE_HEALTH], health);
    verdict(w, probe_hold(&w->p, &w->s, true, true, false, w->now));
    CHECK_I64(w->p.state, ENGINE_LOADING);
    verdict(w, probe_hold(&w->p, &w->s, true, true, true, w->now));
    CHECK_I64(w->p.state, ENGINE_FENCED);
    w->health_fails = false;
    w->tokens_per_s = 200;
    verdict(w, probe_hold(&w->p, &w->s, false, false, false, w->now));
    CHECK_I64(w->p.state, ENGINE_UP);
    run(w, 5000);
    CHECK_I64(w->p.state, ENGINE_UP);
    verdict(w, probe_hold(&w->p, &w->s, true, false, false, w->now));
    w->mood = KILLED; /* death is still seen while held */
    CHECK(until(w, ENGINE_DEAD, 5000) <= 3000);
    w->mood = HEALTHY;
    w->identity = "300/3"; /* the new process is not paused */
    CHECK(until(w, ENGINE_UP, 5000) <= 3000);
    free(w);
}

static void the_parent_knows_first(void)
{
    World *w = world_up();
    verdict(w, probe_exit(&w->p, "signal 9", w->now));
    CHECK_I64(w->p.state, ENGINE_DEAD);
    CHECK_STR(w->reason, "signal 9");
    w->mood = KILLED;
    run(w, 10000);
    CHECK_I64(w->p.state, ENGINE_DEAD);
    w->mood = HEALTHY; /* even if it claimed to be the same */
    CHECK(until(w, ENGINE_UP, 5000) <= 2000);
    CHECK_I64(w->incarnations, 2);
    free(w);
}

/* Why it was silent another time is no reason of this time. */
static void a_reason_is_of_this_silence(void)
{
    World *w = world_up();
    verdict(w, probe_exit(&w->p, "exited with status 0", w->now));
    w->identity = "200/2";
    CHECK(until(w, ENGINE_UP, 5000) <= 2000);
    run(w, 20000);
    w->mood = FROZEN;
    CHECK(until(w, ENGINE_DEAD, 10000) <= 3000);
    CHECK(strstr(w->reason, "no answer for ") == w->reason);
    CHECK(strstr(w->reason, "exited") == NULL);
    free(w);
}

static void without_an_identity_counters_tell(void)
{
    World *w = world_new();
    w->mood = NO_ROUTES;
    until(w, ENGINE_UP, 5000);
    CHECK_I64(w->incarnations, 1);
    run(w, 10000);
    w->mood = KILLED;
    until(w, ENGINE_DEAD, 5000);
    w->mood = NO_ROUTES;
    until(w, ENGINE_UP, 5000);
    CHECK_I64(w->incarnations, 2); /* nobody listened in between */
    EngineAnswer a;
    memset(&a, 0, sizeof a);
    a.known_tokens = true;
    a.gen_tokens_total = 500;
    verdict(w, probe_answer(&w->p, &w->s, PROBE_METRICS, &a, w->now));
    a.gen_tokens_total = 20;
    verdict(w, probe_answer(&w->p, &w->s, PROBE_METRICS, &a, w->now));
    CHECK_I64(w->incarnations, 3);
    a.gen_tokens_total = 25;
    verdict(w, probe_answer(&w->p, &w->s, PROBE_METRICS, &a, w->now));
    run(w, 5000);
    CHECK_I64(w->incarnations, 3);
    free(w);
    w = world_up(); /* with an identity a fallen counter alone proves nothing */
    w->tokens = 0;
    run(w, 5000);
    CHECK_I64(w->incarnations, 1);
    free(w);
}

int main(void)
{
    RUN(a_new_engine_comes_up);
    RUN(a_killed_engine_is_dead_within_3_s);
    RUN(a_frozen_engine_is_dead_within_3_s);
    RUN(a_quick_restart_between_two_probes_is_seen);
    RUN(another_process_is_seen_within_one_interval);
    RUN(states_do_not_flicker);
    RUN(one_dropped_connection_changes_nothing);
    RUN(health_that_lies_is_stuck);
    RUN(a_busy_engine_is_not_dead);
    RUN(a_starved_engine_is_slow_not_dead);
    RUN(streams_that_move_are_life);
    RUN(our_own_absence_is_nobody_s_silence);
    RUN(a_starved_prober_calls_nobody_dead);
    RUN(a_timeout_that_is_ours_is_no_evidence);
    RUN(what_we_hold_is_not_judged);
    RUN(the_parent_knows_first);
    RUN(a_reason_is_of_this_silence);
    RUN(without_an_identity_counters_tell);
    return test_end();
}
