/* One rollout as a state machine. A sample is in one of five places: fresh, running, waiting
 * (back-off), accepted, scored; every event moves at most one sample, except gate and abort.
 * Sizes: up to some 100,000 samples, some 1,000 in flight; an event costs O(1), a start out of
 * the back-off O(waiting). */
#include "core/rollout/rollout.h"

#include "core/base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ends that say nothing about the sample count this part of an attempt, so that an outage of the
 * fleet does not fail the rollout at once and is still bounded. */
enum { ELSEWHERE_SHARE = 16, ROLLOUT_SAMPLES_MAX = 1 << 24 };

typedef enum Place {
    PLACE_FRESH, PLACE_RUNNING, PLACE_WAITING, PLACE_ACCEPTED, PLACE_SCORED
} Place;

typedef struct Slot {
    Place place;
    int attempt;      /* the present or last one */
    int64_t budget;   /* spent, in shares of an attempt */
    int64_t due_us;
    bool refused;
    int64_t refused_us, refused_by; /* first refusal; an engine that refused, 0 not known */
    int begun;        /* place in the trail of policies at the present attempt's start */
    int32_t *ids;     /* until it is accepted: what the next attempt goes on from */
    float *logprobs;
    size_t count;
    SampleSpan *spans;
    size_t span_count;
    char *text;
    size_t text_bytes;
    const char *finish; /* static text */
    double reward;
} Slot;

struct Rollout {
    RolloutConfig config;
    PolicyTrail trail;
    Slot *slots;
    int count, fresh; /* slots from `fresh` on were never started */
    int *waiting;     /* slots in back-off */
    int waiting_count;
    int in_flight, accepted, scored;
    bool begun, gate_open, aborted, failed, done;
    RolloutAction *actions; /* queue: [action_from, action_to) */
    size_t action_from, action_to, action_capacity;
    RolloutSample *samples; /* for rollout_samples */
};

Rollout *rollout_new(const RolloutConfig *config, int group_count)
{
    assert(config->samples_per_group > 0 && config->max_in_flight > 0 && config->max_attempts > 0);
    assert(group_count >= 0 && group_count <= ROLLOUT_SAMPLES_MAX / config->samples_per_group);
    Rollout *r = xcalloc(1, sizeof *r);
    r->config = *config;
    r->count = group_count * config->samples_per_group;
    r->slots = xcalloc((size_t)r->count, sizeof *r->slots);
    r->waiting = xcalloc((size_t)r->count, sizeof *r->waiting);
    r->samples = xcalloc((size_t)r->count, sizeof *r->samples);
    r->gate_open = true;
    trail_add(&r->trail, config->policy_version);
    return r;
}

static void drop_tokens(Slot *s)
{
    free(s->ids);
    free(s->logprobs);
    free(s->spans);
    free(s->text);
    s->ids = NULL;
    s->logprobs = NULL;
    s->spans = NULL;
    s->text = NULL;
    s->count = s->span_count = s->text_bytes = 0;
}

void rollout_free(Rollout *r)
{
    if (!r) {
        return;
    }
    for (int i = 0; i < r->count; i++) {
        drop_tokens(&r->slots[i]);
    }
    free(r->slots);
    free(r->waiting);
    free(r->samples);
    free(r->actions);
    trail_free(&r->trail);
    free(r);
}

/* ---- actions ------------------------------------------------------------------------------ */

static RolloutAction *act(Rollout *r, RolloutActionKind kind, int slot)
{
    if (r->action_from == r->action_to) {
        r->action_from = r->action_to = 0;
    }
    if (r->action_to == r->action_capacity) {
        r->action_capacity = r->action_capacity ? r->action_capacity * 2 : 64;
        r->actions = xrealloc(r->actions, r->action_capacity, sizeof *r->actions);
    }
    RolloutAction *action = &r->actions[r->action_to++];
    *action = (RolloutAction){.kind = kind, .sample = -1, .group = -1};
    if (slot >= 0) {
        action->sample = r->config.first_sample + slot;
        action->group = r->config.first_group + slot / r->config.samples_per_group;
        action->group_index = slot % r->config.samples_per_group;
        action->attempt = r->slots[slot].attempt;
    }
    return action;
}

bool rollout_next(Rollout *r, RolloutAction *out)
{
    if (r->action_from == r->action_to) {
        return false;
    }
    *out = r->actions[r->action_from++];
    return true;
}

static void log_fate(Rollout *r, int slot, SampleFate fate, const char *reason)
{
    RolloutAction *action = act(r, ROLLOUT_LOG, slot);
    action->fate = fate;
    (void)str_format(action->reason, sizeof action->reason, "%s", reason);
}

static void cancel_running(Rollout *r)
{
    for (int i = 0; i < r->fresh; i++) {
        if (r->slots[i].place == PLACE_RUNNING) {
            act(r, ROLLOUT_CANCEL, i);
        }
    }
}

/* ---- starting ----------------------------------------------------------------------------- */

static bool may_start(const Rollout *r)
{
    return r->begun && r->gate_open && !r->aborted && !r->failed
           && r->in_flight < r->config.max_in_flight;
}

static void start(Rollout *r, int slot)
{
    r->slots[slot].place = PLACE_RUNNING;
    r->slots[slot].attempt++;
    r->slots[slot].begun = r->trail.count - 1;
    r->in_flight++;
    act(r, ROLLOUT_START, slot)->kept = r->slots[slot].count;
}

/* Retries first: they belong to the older groups, which the batch waits for. */
static void pump(Rollout *r, int64_t now_us)
{
    while (may_start(r)) {
        int best = -1;
        for (int i = 0; i < r->waiting_count; i++) {
            const Slot *slot = &r->slots[r->waiting[i]];
            if (slot->due_us <= now_us
                && (best < 0 || slot->due_us < r->slots[r->waiting[best]].due_us)) {
                best = i;
            }
        }
        if (best >= 0) {
            int slot = r->waiting[best];
            r->waiting[best] = r->waiting[--r->waiting_count];
            start(r, slot);
        } else if (r->fresh < r->count) {
            start(r, r->fresh++);
        } else {
            return;
        }
    }
}

static void finish_if_complete(Rollout *r)
{
    if (!r->done && !r->failed && !r->aborted && r->scored == r->count) {
        r->done = true;
        act(r, ROLLOUT_DONE, -1);
    }
}

void rollout_begin(Rollout *r, int64_t now_us)
{
    if (!r->begun) {
        r->begun = true;
        finish_if_complete(r); /* no groups at all */
        pump(r, now_us);
    }
}

/* ---- ends of attempts --------------------------------------------------------------------- */

/* Spread over three quarters to five quarters of the plain value, so that the samples of one dead
 * engine do not all come back in the same millisecond; no clock and no generator needed. */
static int64_t spread(int64_t us, uint64_t sample, uint64_t attempt)
{
    uint64_t x = sample * 0x9E3779B97F4A7C15u + attempt * 0xBF58476D1CE4E5B9u;
    x ^= x >> 31;
    x *= 0x94D049BB133111EBu;
    x ^= x >> 29;
    return us - us / 4 + (int64_t)(x % 1024) * (us / 2) / 1023;
}

static int64_t back_off(const Rollout *r, int slot, double retry_after_s)
{
    const int64_t least = r->config.retry_min_us;
    const int64_t most = r->config.retry_max_us > least ? r->config.retry_max_us : least;
    if (retry_after_s >= 0) {
        double us = retry_after_s * 1e6;
        return us <= (double)least ? least : us >= (double)most ? most : (int64_t)us;
    }
    int64_t wait = least;
    for (int i = 1; i < r->slots[slot].attempt && wait < most; i++) {
        wait *= 2;
    }
    wait = spread(wait, (uint64_t)(r->config.first_sample + slot),
                  (uint64_t)r->slots[slot].attempt);
    return wait < least ? least : wait > most ? most : wait;
}

static void fail(Rollout *r, int slot, const char *reason)
{
    r->failed = true;
    cancel_running(r);
    RolloutAction *action = act(r, ROLLOUT_FAILED, slot);
    (void)str_format(action->reason, sizeof action->reason, "%s", reason);
}

/* Would another attempt be refused as well? Then why, in `text`. */
static bool refused_for_good(Rollout *r, int slot, const RolloutAttemptEnd *end, int64_t now_us,
                             char text[96])
{
    Slot *s = &r->slots[slot];
    if (!end->refused) {
        return false;
    }
    bool first = !s->refused;
    int64_t sample = r->config.first_sample + slot;
    bool another = !first && end->engine > 0 && s->refused_by > 0 && end->engine != s->refused_by;
    int64_t spell_us = first ? 0 : now_us - s->refused_us;
    if (first) {
        s->refused = true;
        s->refused_us = now_us;
    }
    s->refused_by = s->refused_by > 0 ? s->refused_by : end->engine;
    if (another) {
        (void)str_format(text, 96, "sample %lld is refused by two engines: %.46s",
                         (long long)sample, end->finish ? end->finish : "");
    } else if (!first && spell_us >= r->config.refused_us) {
        (void)str_format(text, 96, "sample %lld is refused for %lld s: %.46s", (long long)sample,
                         (long long)(spell_us / 1000000), end->finish ? end->finish : "");
    }
    return another || (!first && spell_us >= r->config.refused_us);
}

/* The attempt ended without a sample that can be taken. */
static void again(Rollout *r, int slot, const RolloutAttemptEnd *end, const char *reason,
                  int64_t now_us)
{
    Slot *s = &r->slots[slot];
    s->place = PLACE_WAITING;
    if (r->failed || r->aborted) {
        return;
    }
    char text[96];
    if (refused_for_good(r, slot, end, now_us, text)) {
        fail(r, slot, text);
        return;
    }
    s->budget += end->retry_elsewhere ? 1 : ELSEWHERE_SHARE;
    if (s->budget >= (int64_t)r->config.max_attempts * ELSEWHERE_SHARE) {
        (void)str_format(text, sizeof text, "sample %lld: %d attempts, the last one: %.50s",
                         (long long)(r->config.first_sample + slot), s->attempt, reason);
        fail(r, slot, text);
        return;
    }
    s->due_us = now_us + back_off(r, slot, end->retry_after_s);
    r->waiting[r->waiting_count++] = slot;
}

/* The terminal states that a sample may have; the result is static text. */
static const char *known_finish(const char *finish)
{
    static const char *const known[] = {"stop", "length"};
    for (size_t i = 0; finish && i < 2; i++) {
        if (strcmp(finish, known[i]) == 0) {
            return known[i];
        }
    }
    return NULL;
}

/* Are these tokens of the batch, none of a policy more than max_age updates ago? */
static bool tokens_allowed(const Rollout *r, int slot, const RolloutAttemptEnd *end,
                           int64_t max_age, char reason[96])
{
    if (end->count == 0 || !end->ids || !end->logprobs) {
        (void)str_format(reason, 96, "%s", end->count == 0 ? "no tokens" : "no log-probs");
        return false;
    }
    for (size_t i = 0; i < end->count; i++) {
        if (!isfinite(end->logprobs[i])) {
            (void)str_format(reason, 96, "the log-prob of token %zu is not finite", i);
            return false;
        }
        if (end->ids[i] < 0 || (r->config.vocab > 0 && end->ids[i] >= r->config.vocab)) {
            (void)str_format(reason, 96, "token %zu has id %d, outside the vocabulary of %d", i,
                             end->ids[i], r->config.vocab);
            return false;
        }
    }
    SpanRule rule = {.trail = &r->trail, .max_age = max_age, .kept = r->slots[slot].count,
                     .begun = r->slots[slot].begun};
    return spans_allowed(&rule, end->spans, end->span_count, end->count, reason);
}

static bool admissible(const Rollout *r, int slot, const RolloutAttemptEnd *end, char reason[96])
{
    if (!known_finish(end->finish)) {
        (void)str_format(reason, 96, "unknown end \"%.40s\"", end->finish ? end->finish : "");
        return false;
    }
    return tokens_allowed(r, slot, end, r->config.max_staleness, reason);
}

static void *copied(const void *bytes, size_t count, size_t size)
{
    void *copy = xcalloc(count, size);
    if (count > 0) {
        memcpy(copy, bytes, count * size);
    }
    return copy;
}

/* `end` may point to what the slot holds. */
static void take_tokens(Slot *s, const RolloutAttemptEnd *end)
{
    Slot old = *s;
    s->ids = copied(end->ids, end->count, sizeof *s->ids);
    s->logprobs = copied(end->logprobs, end->count, sizeof *s->logprobs);
    s->count = end->count;
    s->spans = copied(end->spans, end->span_count, sizeof *s->spans);
    s->span_count = end->span_count;
    s->text = copied(end->text.p, end->text.n, 1);
    s->text_bytes = end->text.n;
    drop_tokens(&old);
}

/* Why the next attempt cannot go on from what this one holds; NULL: it can, and the slot keeps it.
 * An end that was there already must not be gone past: its telling was lost, not the token. */
static const char *keep_tokens(Rollout *r, int slot, const RolloutAttemptEnd *end)
{
    const bool told = end->finish && strcmp(end->finish, "abort") == 0;
    char reason[96];
    if (r->config.max_new == 0 || end->anew || !end->retry_elsewhere) {
        return "begins anew";
    }
    if (told && !r->config.resume) {
        return "begins anew as set";
    }
    if ((int64_t)end->count >= r->config.max_new) {
        return "begins anew: no room for more";
    }
    for (size_t i = 0; i < r->config.end_id_count; i++) {
        if (end->ids && end->ids[end->count - 1] == r->config.end_ids[i]) {
            return "begins anew: the last one ends it";
        }
    }
    if (!tokens_allowed(r, slot, end, r->config.resume ? r->config.max_staleness : 0, reason)) {
        return "begins anew: their policy has gone";
    }
    take_tokens(&r->slots[slot], end);
    return NULL;
}

/* Says in `reason` what becomes of the tokens of an attempt that was cut. */
static void keep_or_drop(Rollout *r, int slot, const RolloutAttemptEnd *end, char reason[96])
{
    const char *why = end->count > 0 ? keep_tokens(r, slot, end) : "";
    if (why) {
        drop_tokens(&r->slots[slot]);
    }
    if (end->count > 0) {
        size_t n = strnlen(reason, 44);
        (void)str_format(reason + n, 96 - n, "; %zu tokens, %s", end->count,
                         why ? why : "goes on from them");
    }
}

static void accept_sample(Rollout *r, int slot, const RolloutAttemptEnd *end)
{
    Slot *s = &r->slots[slot];
    s->place = PLACE_ACCEPTED;
    take_tokens(s, end);
    s->finish = known_finish(end->finish);
    r->accepted++;
    log_fate(r, slot, FATE_ACCEPTED, "");
    act(r, ROLLOUT_SCORE, slot);
}

static int slot_of(const Rollout *r, int64_t sample)
{
    int64_t slot = sample - r->config.first_sample;
    return slot >= 0 && slot < r->count ? (int)slot : -1;
}

void rollout_attempt_end(Rollout *r, const RolloutAttemptEnd *end, int64_t now_us)
{
    int slot = slot_of(r, end->sample);
    if (slot < 0 || r->slots[slot].place != PLACE_RUNNING
        || r->slots[slot].attempt != end->attempt) {
        return; /* told before */
    }
    r->in_flight--;
    char reason[96] = "";
    if (r->aborted || r->failed) {
        log_fate(r, slot, FATE_ABORTED, r->failed ? "the rollout failed" : "rollout aborted");
        again(r, slot, end, "", now_us);
    } else if (!end->whole) {
        const bool told = end->finish && strcmp(end->finish, "abort") == 0;
        (void)str_format(reason, sizeof reason, "%s", end->finish ? end->finish : "lost");
        keep_or_drop(r, slot, end, reason);
        log_fate(r, slot, told ? FATE_ABORTED : FATE_LOST, reason);
        again(r, slot, end, reason, now_us);
    } else if (!admissible(r, slot, end, reason)) {
        drop_tokens(&r->slots[slot]);
        log_fate(r, slot, FATE_REFUSED, reason);
        again(r, slot, end, reason, now_us);
    } else {
        accept_sample(r, slot, end);
    }
    pump(r, now_us);
}

void rollout_reward(Rollout *r, int64_t sample, double reward)
{
    int slot = slot_of(r, sample);
    if (slot < 0 || r->slots[slot].place != PLACE_ACCEPTED || r->failed || r->aborted) {
        return;
    }
    if (!isfinite(reward)) {
        char text[96];
        (void)str_format(text, sizeof text, "the reward of sample %lld is not a finite number",
                         (long long)sample);
        fail(r, slot, text);
        return;
    }
    r->slots[slot].place = PLACE_SCORED;
    r->slots[slot].reward = reward;
    r->scored++;
    finish_if_complete(r);
}

/* ---- gate, time, abort -------------------------------------------------------------------- */

void rollout_gate(Rollout *r, bool open, int64_t now_us)
{
    r->gate_open = open;
    pump(r, now_us);
}

RolloutChange rollout_policy(Rollout *r, int64_t version)
{
    RolloutChange change = {0, 0};
    trail_add(&r->trail, version);
    for (int i = 0; i < r->fresh; i++) {
        Slot *s = &r->slots[i];
        if (s->place != PLACE_WAITING || s->count == 0) {
            continue;
        }
        char reason[96];
        SpanRule rule = {.trail = &r->trail, .kept = s->count,
                         .max_age = r->config.resume ? r->config.max_staleness : 0};
        if (spans_allowed(&rule, s->spans, s->span_count, s->count, reason)) {
            change.go_on++;
        } else {
            change.anew++;
            drop_tokens(s);
        }
    }
    return change;
}

bool rollout_survives(const Rollout *r, int64_t version)
{
    const bool other = version != trail_newest(&r->trail);
    for (int i = 0; i < r->fresh; i++) {
        const Slot *s = &r->slots[i];
        const bool accepted = s->place == PLACE_ACCEPTED || s->place == PLACE_SCORED;
        for (size_t k = 0; accepted && k < s->span_count; k++) {
            int age = s->spans[k].policy_version == version
                          ? 0 : trail_age(&r->trail, s->spans[k].policy_version) + other;
            if (age > r->config.max_staleness) {
                return false;
            }
        }
    }
    return true;
}

void rollout_tick(Rollout *r, int64_t now_us)
{
    pump(r, now_us);
}

void rollout_abort(Rollout *r)
{
    if (!r->aborted && !r->failed && !r->done) {
        r->aborted = true;
        cancel_running(r);
    }
}

int64_t rollout_next_due_us(const Rollout *r)
{
    int64_t due = 0;
    if (!may_start(r)) {
        return 0; /* another event has to come first */
    }
    for (int i = 0; i < r->waiting_count; i++) {
        int64_t at = r->slots[r->waiting[i]].due_us;
        due = due == 0 || at < due ? at : due;
    }
    return due;
}

/* ---- looking ------------------------------------------------------------------------------ */

int rollout_in_flight(const Rollout *r)
{
    return r->in_flight;
}

int rollout_accepted(const Rollout *r)
{
    return r->accepted;
}

int rollout_wanted(const Rollout *r)
{
    return r->count;
}

int64_t rollout_batch_policy(const Rollout *r)
{
    return trail_newest(&r->trail);
}

bool rollout_kept(const Rollout *r, int64_t sample, RolloutSample *out)
{
    int slot = slot_of(r, sample);
    const Slot *s = slot >= 0 ? &r->slots[slot] : NULL;
    if (!s || s->place != PLACE_RUNNING || s->count == 0) {
        return false;
    }
    *out = (RolloutSample){.sample = sample, .attempt = s->attempt, .ids = s->ids,
                           .logprobs = s->logprobs, .count = s->count, .spans = s->spans,
                           .span_count = s->span_count,
                           .text = {s->text, s->text_bytes}};
    return true;
}

int rollout_samples(const Rollout *r, const RolloutSample **out)
{
    int n = 0;
    for (int i = 0; i < r->count; i++) {
        const Slot *s = &r->slots[i];
        if (s->place != PLACE_ACCEPTED && s->place != PLACE_SCORED) {
            continue;
        }
        r->samples[n++] = (RolloutSample){
            .sample = r->config.first_sample + i,
            .group = r->config.first_group + i / r->config.samples_per_group,
            .group_index = i % r->config.samples_per_group,
            .attempt = s->attempt,
            .ids = s->ids, .logprobs = s->logprobs, .count = s->count,
            .spans = s->spans, .span_count = s->span_count,
            .text = {s->text, s->text_bytes},
            .finish = s->finish, .reward = s->reward, .scored = s->place == PLACE_SCORED,
        };
    }
    *out = r->samples;
    return n;
}
