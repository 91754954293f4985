#include "store/view_private.h"

#include <stdlib.h>
#include <string.h>

enum { /* what lies around: 256 seconds, of large fleets fewer, so that they take some 12 MB */
    BEATS_KEPT = 256,
    BEATS_LEAST = 96,
    SIGHTS_KEPT = 1 << 19,
    KEYS_KEPT = 512
};

typedef struct Beat { /* the counters that one second's tick tells of; none: no tick */
    Sight *items;
    size_t count, capacity;
    int64_t used; /* walk that asked for it last */
} Beat;

typedef struct KeyOf { /* the key tick at or before a second that is over; key -1: none */
    int64_t second, key; /* second 0: an empty place */
} KeyOf;

struct Pulse {
    int64_t turn;      /* of the view, in which it was checked */
    int64_t version;   /* of the log then; -1: nothing may be kept */
    Trimmed trimmed;
    int64_t forgotten; /* how often */
    Tick newest;       /* the newest tick that was seen */
    int64_t walk;      /* number of the walk, from 1 on */
    int64_t *seconds;  /* of beats; -1: to be filled anew */
    Beat *beats;
    size_t beat_count, beat_capacity;
    KeyOf keys[KEYS_KEPT];

    bool settled;      /* `sum` is known: the ticks [key_second, last_second] */
    int64_t key_second, last_second;
    AccSet sum;
    bool open;         /* `now` is known: `sum` and the rows up to `probes`.last */
    ProbeWalk probes;
    AccSet now;
    Sight *fresh;      /* of these rows, in order of arrival */
    size_t fresh_count, fresh_capacity;
    Sight *sorted;     /* the same in order of engine */
    size_t *starts;    /* for sorting: of each engine's rows */
    size_t starts_capacity, sorted_capacity;
    int64_t minute_second; /* `minute` is the tick of that second; -1: not known */
    AccSet minute;
    size_t filling;    /* beat that acc_ticks fills */
};

void pulse_free(Pulse *pulse)
{
    if (pulse == NULL) {
        return;
    }
    for (size_t i = 0; i < pulse->beat_count; i++) {
        free(pulse->beats[i].items);
    }
    free(pulse->beats);
    free(pulse->seconds);
    acc_free(&pulse->sum);
    acc_free(&pulse->now);
    acc_free(&pulse->minute);
    free(pulse->fresh);
    free(pulse->sorted);
    free(pulse->starts);
    free(pulse);
}

static void forget(Pulse *pulse)
{
    pulse->forgotten++;
    for (size_t i = 0; i < pulse->beat_count; i++) {
        pulse->seconds[i] = -1;
    }
    memset(pulse->keys, 0, sizeof pulse->keys);
    pulse->settled = pulse->open = false;
    pulse->minute_second = -1;
    pulse->newest = (Tick){.second = -1};
}

/* Ticks stay as they are unless the clock was set back, which takes the newest away and writes
 * another one later, or a trim takes old ones away. */
static bool still_holds(View *view, Pulse *pulse)
{
    Trimmed trimmed = view_trimmed(view);
    bool same = trimmed.before_us == pulse->trimmed.before_us &&
                trimmed.hours_before_us == pulse->trimmed.hours_before_us &&
                !trimmed.under_way && !pulse->trimmed.under_way;
    pulse->trimmed = trimmed;
    if (!same || pulse->newest.second < 0) {
        return same;
    }
    Tick tick;
    tick_at(&view->db, (pulse->newest.second + 1) * SECOND_US, &tick, &view->fault);
    return tick.found && tick.second == pulse->newest.second &&
           tick.probe == pulse->newest.probe && tick.last_us == pulse->newest.last_us;
}

static Pulse *pulse_of(View *view)
{
    if (view->pulse == NULL) {
        view->pulse = xcalloc(1, sizeof *view->pulse);
        view->pulse->version = -1;
        forget(view->pulse);
    }
    Pulse *pulse = view->pulse;
    if (pulse->turn != view->turn) {
        int64_t version = view_version(view);
        bool same = version == pulse->version && version >= 0;
        if (!same && !still_holds(view, pulse)) {
            forget(pulse);
        }
        pulse->turn = view->turn;
        pulse->version = view_good(view) ? version : -1;
    }
    return pulse;
}

int64_t pulse_forgotten(View *view)
{
    return pulse_of(view)->forgotten;
}

/* ---- beats -------------------------------------------------------------------------------- */

static void note_sight(Sight **items, size_t *count, size_t *capacity, Sight sight)
{
    if (*count == *capacity) {
        *capacity = *capacity == 0 ? 16 : 2 * *capacity;
        *items = xrealloc(*items, *capacity, sizeof **items);
    }
    (*items)[(*count)++] = sight;
}

static void note_beat(int64_t engine, int64_t t_us, double tokens, void *user)
{
    Pulse *pulse = user;
    Beat *beat = &pulse->beats[pulse->filling];
    note_sight(&beat->items, &beat->count, &beat->capacity, (Sight){engine, t_us, tokens});
}

static size_t find_beat(const Pulse *pulse, int64_t second)
{
    size_t i = 0;
    while (i < pulse->beat_count && pulse->seconds[i] != second) {
        i++;
    }
    return i;
}

static size_t beats_kept(const Pulse *pulse)
{
    size_t beats = SIGHTS_KEPT / (pulse->sum.count + 1);
    return beats > BEATS_KEPT ? BEATS_KEPT : beats < BEATS_LEAST ? BEATS_LEAST : beats;
}

/* An empty beat for a second: in the place of the one that was not asked for the longest. */
static void start_beat(int64_t second, void *user)
{
    Pulse *pulse = user;
    size_t at = find_beat(pulse, second);
    for (size_t i = 0; i < pulse->beat_count && at == pulse->beat_count; i++) {
        at = pulse->seconds[i] < 0 && pulse->beats[i].used < pulse->walk ? i : at;
    }
    if (at == pulse->beat_count && pulse->beat_count >= beats_kept(pulse)) {
        size_t oldest = 0;
        for (size_t i = 1; i < pulse->beat_count; i++) {
            oldest = pulse->beats[i].used < pulse->beats[oldest].used ? i : oldest;
        }
        at = pulse->beats[oldest].used < pulse->walk ? oldest : at;
    }
    if (at == pulse->beat_count) {
        if (at == pulse->beat_capacity) {
            pulse->beat_capacity = at == 0 ? 64 : 2 * at;
            pulse->beats = xrealloc(pulse->beats, pulse->beat_capacity, sizeof *pulse->beats);
            pulse->seconds = xrealloc(pulse->seconds, pulse->beat_capacity,
                                      sizeof *pulse->seconds);
        }
        pulse->beats[at] = (Beat){0};
        pulse->beat_count++;
    }
    pulse->seconds[at] = second;
    pulse->beats[at].count = 0;
    pulse->beats[at].used = pulse->walk;
    pulse->filling = at;
}

static void add_lane(PulseWalk *walk, const Sight *items, size_t count)
{
    if (count == 0) {
        return;
    }
    if (walk->count == walk->capacity) {
        walk->capacity = walk->capacity == 0 ? 64 : 2 * walk->capacity;
        walk->lanes = xrealloc(walk->lanes, walk->capacity, sizeof *walk->lanes);
    }
    walk->lanes[walk->count++] = (Lane){items, count, 0};
}

/* A second that is over. */
static void walk_beat(View *view, Pulse *pulse, int64_t second, PulseWalk *walk)
{
    size_t at = find_beat(pulse, second);
    if (at == pulse->beat_count) {
        int64_t met = view->db.met;
        start_beat(second, pulse);
        at = pulse->filling;
        acc_counters(&view->db, second, note_beat, pulse, &view->fault);
        if (!view_good(view) || view->db.met != met) {
            pulse->seconds[at] = -1; /* serves this walk, and no other */
        }
    }
    pulse->beats[at].used = pulse->walk;
    add_lane(walk, pulse->beats[at].items, pulse->beats[at].count);
}

/* Second of the key tick that is over at T; -1: there is none. */
static int64_t key_before(View *view, Pulse *pulse, int64_t t_us)
{
    int64_t second = t_us / SECOND_US - 1;
    KeyOf *place = &pulse->keys[(uint64_t)second % KEYS_KEPT];
    if (second > 0 && place->second == second) {
        return place->key;
    }
    Tick key;
    int64_t met = view->db.met;
    tick_key_at(&view->db, t_us, &key, &view->fault);
    int64_t found = key.found ? key.second : -1;
    if (second <= pulse->newest.second && view_good(view) && view->db.met == met) {
        *place = (KeyOf){second, found};
    }
    return found;
}

static int64_t second_from(View *view, int64_t second)
{
    static const char sql[] = "SELECT min(second) FROM engine_tick WHERE second >= ?";
    return view_number(view, VIEW_QUERY(view, sql, second), INT64_MAX);
}

/* Seconds [from, to], all over. */
static void walk_beats(View *view, Pulse *pulse, int64_t from, int64_t to, PulseWalk *walk)
{
    bool every = walk->grain_us == SECOND_US;
    for (int64_t second = every ? from : second_from(view, from);
         second <= to && view_good(view);
         second = every ? second + 1 : second_from(view, second + 1)) {
        walk_beat(view, pulse, second, walk);
    }
}

/* For cells of ten seconds and more key ticks are enough, up to those that are walked anyway. */
static void walk_coarse(View *view, Pulse *pulse, int64_t t_us, const SparkShape *spark,
                        int64_t before, PulseWalk *walk)
{
    int64_t done = -1;
    for (int i = 0; i <= spark->cells && view_good(view); i++) {
        int64_t key = key_before(view, pulse,
                                 t_us - (spark->cells - i) * spark->cell_us + SECOND_US);
        if (key > done && key < before) {
            walk_beat(view, pulse, key, walk);
            done = key;
        }
    }
}

/* ---- state -------------------------------------------------------------------------------- */

/* The sum of ticks up to `last`: goes on from the one before it, or from the key tick, which says
 * all anew. */
static void settle(View *view, Pulse *pulse, int64_t key, int64_t last)
{
    bool goes_on = pulse->settled && pulse->key_second == key && pulse->last_second <= last;
    if ((goes_on && pulse->last_second == last) || !view_good(view)) {
        return; /* nothing to add, or the read was ended before: what is known stays */
    }
    int64_t met = view->db.met;
    int64_t from = goes_on ? pulse->last_second + 1 : key < 0 ? 0 : key;
    pulse->sum.count = goes_on ? pulse->sum.count : 0;
    TickSeen seen = {start_beat, note_beat, pulse};
    pulse->open = false;
    pulse->key_second = key;
    pulse->last_second = last;
    if (last >= 0) {
        acc_ticks(&view->db, from, last, &pulse->sum, &seen, &view->fault);
    }
    pulse->settled = view_good(view) && view->db.met == met;
    if (!pulse->settled) {
        forget(pulse); /* a beat may be half full */
    }
}

static void note_fresh(int64_t engine, int64_t t_us, double tokens, void *user)
{
    Pulse *pulse = user;
    note_sight(&pulse->fresh, &pulse->fresh_count, &pulse->fresh_capacity,
               (Sight){engine, t_us, tokens});
}

/* In order of engine; those of one engine stay in order of arrival. */
static void sort_fresh(Pulse *pulse)
{
    size_t engines = pulse->now.count + 1;
    if (engines > pulse->starts_capacity) {
        pulse->starts_capacity = 2 * engines;
        pulse->starts = xrealloc(pulse->starts, pulse->starts_capacity, sizeof *pulse->starts);
    }
    if (pulse->fresh_count > pulse->sorted_capacity) {
        pulse->sorted_capacity = 2 * pulse->fresh_count;
        pulse->sorted = xrealloc(pulse->sorted, pulse->sorted_capacity, sizeof *pulse->sorted);
    }
    memset(pulse->starts, 0, engines * sizeof *pulse->starts);
    for (size_t i = 0; i < pulse->fresh_count; i++) {
        const EngineAcc *acc = acc_get(&pulse->now, pulse->fresh[i].engine);
        pulse->starts[acc - pulse->now.items + 1]++;
    }
    for (size_t i = 1; i < engines; i++) {
        pulse->starts[i] += pulse->starts[i - 1];
    }
    for (size_t i = 0; i < pulse->fresh_count; i++) {
        const EngineAcc *acc = acc_get(&pulse->now, pulse->fresh[i].engine);
        pulse->sorted[pulse->starts[acc - pulse->now.items]++] = pulse->fresh[i];
    }
}

/* The rows behind the last tick: goes on where it was, unless some of them were of times to come
 * then. */
static void open_second(View *view, Pulse *pulse, const Tick *last, int64_t to, int64_t t_us)
{
    int64_t met = view->db.met;
    bool goes_on = pulse->open && pulse->probes.whole && pulse->probes.t_us <= t_us;
    if (!goes_on) {
        acc_copy(&pulse->now, &pulse->sum);
        pulse->fresh_count = 0;
        pulse->probes.last = last->probe;
    }
    int64_t from = pulse->probes.last;
    size_t sorted = pulse->fresh_count;
    pulse->probes = (ProbeWalk){.from = from, .to = to, .t_us = t_us};
    acc_probes(&view->db, &pulse->probes, &pulse->now, note_fresh, pulse, &view->fault);
    if (!goes_on || pulse->fresh_count != sorted) { /* also when a damaged page ended the walk */
        sort_fresh(pulse);
    }
    pulse->open = pulse->settled && view_good(view) && view->db.met == met;
}

static void load_minute(View *view, Pulse *pulse, int64_t t_us, PulseWalk *walk)
{
    int64_t key = key_before(view, pulse, t_us - 60 * (int64_t)SECOND_US + SECOND_US);
    walk->minutes = 1;
    if (key < 0) {
        return;
    }
    if (key != pulse->minute_second) {
        int64_t met = view->db.met;
        pulse->minute.count = 0;
        acc_ticks(&view->db, key, key, &pulse->minute, NULL, &view->fault);
        pulse->minute_second = view_good(view) && view->db.met == met ? key : -1;
    }
    double span_s = (double)t_us / SECOND_US - (double)key - 1;
    walk->minute = &pulse->minute;
    walk->minutes = span_s > 120 ? 0 : span_s / 60; /* a gap: no rate */
}

void pulse_at(View *view, int64_t t_us, const SparkShape *spark, PulseWalk *walk)
{
    Tick key;
    Tick last;
    Tick after;
    Pulse *pulse = pulse_of(view);
    *walk = (PulseWalk){.now = &pulse->now};
    pulse->walk++;
    tick_key_at(&view->db, t_us, &key, &view->fault);
    tick_at(&view->db, t_us, &last, &view->fault);
    tick_after(&view->db, t_us, &after, &view->fault);
    if (last.found && last.second > pulse->newest.second) {
        pulse->newest = last;
    }
    int64_t key_s = key.found ? key.second : -1;
    int64_t last_s = last.found ? last.second : -1;
    settle(view, pulse, key_s, last_s);
    open_second(view, pulse, &last, after.probe, t_us);
    bool coarse = spark->cells > 0 && spark->cell_us >= KEY_SECONDS * SECOND_US;
    int64_t back_us = coarse ? 0 : spark->cells * spark->cell_us;
    back_us = back_us > RATE_WINDOW_US ? back_us : RATE_WINDOW_US;
    walk->grain_us = view_grain_us(&pulse->trimmed, t_us - back_us);
    int64_t from = (t_us - back_us - SECOND_US - walk->grain_us) / SECOND_US;
    from = key_s >= 0 && key_s < from ? key_s : from;
    from = from < 0 ? 0 : from;
    if (coarse) {
        walk_coarse(view, pulse, t_us, spark, from, walk);
    }
    walk_beats(view, pulse, from, last_s, walk);
    add_lane(walk, pulse->sorted, pulse->fresh_count);
    load_minute(view, pulse, t_us, walk);
}

void pulse_walk_free(PulseWalk *walk)
{
    free(walk->lanes);
    free(walk->seen);
}

/* Into its place in time; of two at one time the later one counts. */
static void put_seen(PulseWalk *walk, size_t *count, Seen seen)
{
    if (*count == walk->seen_capacity) {
        walk->seen_capacity = *count == 0 ? 128 : 2 * *count;
        walk->seen = xrealloc(walk->seen, walk->seen_capacity, sizeof *walk->seen);
    }
    size_t at = *count;
    while (at > 0 && walk->seen[at - 1].t_us > seen.t_us) {
        at--;
    }
    if (at > 0 && walk->seen[at - 1].t_us == seen.t_us) {
        walk->seen[at - 1] = seen;
        return;
    }
    memmove(&walk->seen[at + 1], &walk->seen[at], (*count - at) * sizeof *walk->seen);
    walk->seen[at] = seen;
    ++*count;
}

const Seen *pulse_seen(PulseWalk *walk, int64_t engine, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < walk->count; i++) {
        Lane *lane = &walk->lanes[i];
        while (lane->at < lane->count && lane->items[lane->at].engine < engine) {
            lane->at++;
        }
        for (; lane->at < lane->count && lane->items[lane->at].engine == engine; lane->at++) {
            put_seen(walk, count, (Seen){lane->items[lane->at].t_us,
                                         lane->items[lane->at].tokens});
        }
    }
    return walk->seen;
}
