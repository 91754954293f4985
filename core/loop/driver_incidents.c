/* Feeds the incident rules once a second with what the driver knows, and writes what they say. */
#include "core/loop/driver_private.h"

#include <stdlib.h>
#include <string.h>

enum { SPELLS_MAX = 32 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void driver_note_spell(Driver *d, LoopPhase phase, int64_t us)
{
    PhaseSpells *spells = &d->watch.spells[phase];
    spells->seconds[spells->count++ % SPELLS_MAX] = (double)us / 1e6;
}

static double spell_median(const PhaseSpells *spells, int *count)
{
    double sorted[SPELLS_MAX];
    int n = spells->count < SPELLS_MAX ? spells->count : SPELLS_MAX;
    memcpy(sorted, spells->seconds, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    *count = n;
    return n > 0 ? sorted[n / 2] : 0.0;
}

static int boots_within(const Seat *seat, int64_t now_us, int64_t window_us)
{
    int slots = (int)(sizeof seat->boots / sizeof *seat->boots);
    int known = seat->boot_count < slots ? seat->boot_count : slots;
    int boots = 0;
    for (int i = 0; i < known; i++) {
        boots += now_us - seat->boots[i] < window_us;
    }
    return boots;
}

/* Index of the engine that generates it; -1: nobody has said yet. */
static int engine_of(const Driver *d, const Attempt *a)
{
    const char *address = generate_engine(a->generation);
    return address[0] ? fleet_find(d->fleet, address) : a->engine;
}

/* How many engines hold what is in flight; 0: that is not known of all of it. */
static int holders(const Driver *d, const RolloutJob *job)
{
    bool *holds = xcalloc((size_t)fleet_count(d->fleet) + 1, sizeof *holds);
    int64_t want = rollout_wanted(job->rollout);
    int count = 0;
    for (int64_t i = 0; i < want && count >= 0; i++) {
        if (job->attempts[i].generation) {
            int engine = engine_of(d, &job->attempts[i]);
            count = engine < 0 ? -1 : holds[engine] ? count : count + 1;
            holds[engine < 0 ? 0 : engine] = true;
        }
    }
    free(holds);
    return count > 0 ? count : 0;
}

static void picture_rollout(Driver *d, DiagPicture *p)
{
    const RolloutJob *job = d->roll.eval ? d->roll.eval : d->roll.batch;
    if (!job || job->ended_us != 0) {
        d->watch.idle_since_us = 0;
        return;
    }
    p->want = rollout_wanted(job->rollout);
    p->left = p->want - rollout_accepted(job->rollout);
    p->in_flight = rollout_in_flight(job->rollout);
    const Attempt *oldest = NULL;
    for (int64_t i = 0; i < p->want; i++) {
        const Attempt *a = &job->attempts[i];
        if (a->generation && (!oldest || a->started_us < oldest->started_us)) {
            oldest = a;
        }
    }
    p->holders = p->left <= p->want / 4 ? holders(d, job) : 0;
    if (oldest) {
        int engine = engine_of(d, oldest);
        p->oldest_started_us = oldest->started_us;
        p->oldest_step = job->step;
        p->oldest_sample = oldest->sample;
        p->oldest_tokens = oldest->tokens;
        p->oldest_engine = engine + 1;
        p->oldest_where = engine >= 0 ? fleet_engine(d->fleet, engine).name : NULL;
        p->cap_tokens = (job->eval ? d->config->eval : d->config->rollout).max_response_len;
    }
    p->sample_median_s = job->sample_count > 0 ? job->sample_seconds / job->sample_count : 0.0;
    bool idle = p->left > 0 && p->in_flight == 0;
    if (!idle || d->watch.idle_since_us == 0) {
        d->watch.idle_since_us = idle ? p->now_us : 0;
    }
    p->idle_since_us = d->watch.idle_since_us;
}

static void put_incident(Driver *d, const DiagAction *a)
{
    const char *name = diagnose_class_name(a->class_id);
    IncidentFact fact = {.incident = a->incident, .onset_us = clock_wall_of_us(a->onset_us),
                         .t_us = clock_wall_us(),
                         .ended_us = a->ended_us > 0 ? clock_wall_of_us(a->ended_us) : 0,
                         .class_name = name, .severity = a->severity,
                         .engine = a->engine, .evidence = a->evidence, .next_key = a->next_key};
    store_put_incident(d->store, &fact);
    driver_event(d, a->ended_us ? SEVERITY_INFO : a->severity, "alert", a->engine, "%s %s: %s",
                 name, a->ended_us ? "over" : a->worse ? "got worse" : "began", a->evidence);
}

void driver_incidents_close(Driver *d)
{
    DiagPicture calm = {.now_us = clock_mono_us(), .phase = PHASE_DONE, .committed = -1};
    DiagAction action;
    diagnose_tick(d->watch.diagnose, &calm);
    while (diagnose_next(d->watch.diagnose, &action)) {
        put_incident(d, &action);
    }
}

void driver_diagnose_tick(Driver *d, int64_t now_us)
{
    if (d->shutting || d->torn_down || !d->watch.diagnose) {
        return;
    }
    int count = fleet_count(d->fleet);
    DiagEngine *engines = xcalloc((size_t)count + 1, sizeof *engines);
    for (int i = 0; i < count; i++) {
        FleetEngine seen = fleet_engine(d->fleet, i);
        const Seat *seat = &d->seats[i];
        engines[i] = (DiagEngine){.engine = i + 1, .state = seen.state,
                                  .state_since_us = seat->state_since_us,
                                  .admitted = seen.admitted,
                                  .operator_hold = seat->paused || seat->cordoned,
                                  .reported_version = seen.reported_version,
                                  .boots_30min = boots_within(seat, now_us, 1800000000LL),
                                  .detail = seat->how[0] ? seat->how : NULL};
        /* An engine that the operator restarts is no incident until it fails to come back. */
        if (seat->part && driver_calm(d, seat->part->asked_us, now_us)) {
            engines[i].state = ENGINE_STARTING;
        }
    }
    const Part *front = d->local.frontend;
    bool front_calm = front && driver_calm(d, front->asked_us, now_us);
    bool train_calm = driver_calm(d, d->train.asked_us, now_us);
    int64_t train_down_us = d->train.down_us ? d->train.down_us : d->train.halted_us;
    DiagPicture picture = {.now_us = now_us, .phase = loop_phase(d->loop),
                           .phase_since_us = loop_phase_since_us(d->loop),
                           .paused = loop_paused(d->loop), .syncing = driver_syncing(d),
                           .committed = loop_committed(d->loop), .engines = engines,
                           .engine_count = count,
                           .frontend_down_us = front_calm ? 0 : driver_front_lost_us(d),
                           .frontend_ended = front && !front->listening,
                           .frontend_detail = d->front.how[0] ? d->front.how : NULL,
                           .trainer_down_us = train_calm ? 0 : train_down_us,
                           .trainer_detail = d->train.how[0] ? d->train.how : NULL,
                           .held_us = d->disk.wait.since_us, .held_detail = d->disk.how,
                           .not_recording_us = d->watch.not_recording_us};
    picture.phase_median_s = spell_median(&d->watch.spells[picture.phase], &picture.phase_closed);
    picture_rollout(d, &picture);
    diagnose_tick(d->watch.diagnose, &picture);
    DiagAction action;
    while (diagnose_next(d->watch.diagnose, &action)) {
        put_incident(d, &action);
    }
    free(engines);
}
