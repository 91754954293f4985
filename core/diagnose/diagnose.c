/* Rules are small functions over one picture; each calls raise() for what it sees. raise() finds
 * or opens the incident of (class, engine); what was not raised in a tick is closed at its end.
 * Thresholds are data (rules.h). */
#include "core/diagnose/diagnose.h"

#include "core/base/mem.h"
#include "core/diagnose/rules.h"

#include <math.h>
#include <stdlib.h>

typedef struct Open {
    DiagClass class_id;
    int64_t engine, incident, onset_us;
    Severity severity;
    char evidence[DIAG_TEXT];
    uint64_t seen; /* tick that raised it last, and when that was */
    int64_t seen_us;
} Open;

struct Diagnose {
    DiagRules rules;
    int64_t next_incident;
    uint64_t tick;
    int64_t now_us; /* of it */
    Open *open;
    int open_count, open_capacity;
    int64_t split_since_us; /* engines disagree since; 0: they do not */
    int64_t tail_since_us;  /* only the last few samples are left since; 0: not so */
    DiagAction *actions;
    int head, count, capacity;
};

#define DIAG_NAME_ENTRY(name, word, key, about) [name] = word,
static const char *const class_names[] = {DIAG_CLASSES(DIAG_NAME_ENTRY)};
#define DIAG_KEY_ENTRY(name, word, key, about) [name] = key,
static const char *const class_keys[] = {DIAG_CLASSES(DIAG_KEY_ENTRY)};
#define DIAG_ABOUT_ENTRY(name, word, key, about) [name] = about,
static const char *const class_abouts[] = {DIAG_CLASSES(DIAG_ABOUT_ENTRY)};

const char *diagnose_class_name(DiagClass c)
{
    return class_names[c];
}

const char *diagnose_class_about(DiagClass c)
{
    return class_abouts[c];
}

Diagnose *diagnose_new(int64_t first_incident, const DiagRules *rules)
{
    Diagnose *d = xcalloc(1, sizeof *d);
    d->rules = rules ? *rules : rules_default();
    d->next_incident = first_incident;
    return d;
}

void diagnose_free(Diagnose *diagnose)
{
    if (diagnose) {
        free(diagnose->open);
        free(diagnose->actions);
        free(diagnose);
    }
}

static void tell(Diagnose *d, const Open *open, bool worse, int64_t ended_us)
{
    if (d->count == d->capacity) {
        d->capacity = d->capacity ? d->capacity * 2 : 16;
        d->actions = xrealloc(d->actions, (size_t)d->capacity, sizeof *d->actions);
    }
    DiagAction *action = &d->actions[d->count++];
    *action = (DiagAction){.worse = worse, .incident = open->incident, .onset_us = open->onset_us,
                           .ended_us = ended_us, .engine = open->engine,
                           .class_id = open->class_id, .severity = open->severity,
                           .next_key = class_keys[open->class_id]};
    (void)str_format(action->evidence, sizeof action->evidence, "%s", open->evidence);
}

bool diagnose_next(Diagnose *diagnose, DiagAction *out)
{
    if (diagnose->head == diagnose->count) {
        diagnose->head = diagnose->count = 0;
        return false;
    }
    *out = diagnose->actions[diagnose->head++];
    return true;
}

static Open *find(Diagnose *d, DiagClass class_id, int64_t engine)
{
    for (int i = 0; i < d->open_count; i++) {
        if (d->open[i].class_id == class_id && d->open[i].engine == engine) {
            return &d->open[i];
        }
    }
    return NULL;
}

/* `worse`: as bad as the rule lets it get; else `first`, or that when it is less. */
static void raise(Diagnose *d, DiagClass class_id, int64_t engine, Severity first, bool worse,
                  int64_t onset_us, const char *evidence)
{
    const DiagRule *rule = &d->rules.of[class_id];
    Severity severity = worse || first > rule->severity ? rule->severity : first;
    Open *open = find(d, class_id, engine);
    if (rule->off) {
        return;
    }
    if (open) {
        open->seen = d->tick;
        open->seen_us = d->now_us;
        if (severity > open->severity) { /* worse; an incident never gets milder on the way */
            open->severity = severity;
            (void)str_format(open->evidence, sizeof open->evidence, "%s", evidence);
            tell(d, open, true, 0);
        }
        return;
    }
    if (d->open_count == DIAG_OPEN_MAX) {
        return; /* 4,096 open alarms say enough */
    }
    if (d->open_count == d->open_capacity) {
        d->open_capacity = d->open_capacity ? d->open_capacity * 2 : 16;
        d->open = xrealloc(d->open, (size_t)d->open_capacity, sizeof *d->open);
    }
    open = &d->open[d->open_count++];
    *open = (Open){.class_id = class_id, .engine = engine, .incident = d->next_incident++,
                   .onset_us = onset_us, .severity = severity, .seen = d->tick,
                   .seen_us = d->now_us};
    (void)str_format(open->evidence, sizeof open->evidence, "%s", evidence);
    tell(d, open, false, 0);
}

/* What happened while the picture was taken is not of the future. */
static double seconds_since(const DiagPicture *p, int64_t since_us)
{
    return since_us < p->now_us ? (double)(p->now_us - since_us) / 1e6 : 0.0;
}

static double setting(const Diagnose *d, DiagClass class_id, RuleSetting which)
{
    return d->rules.of[class_id].value[which];
}

/* It has been so for as long as the rule of its class asks. */
static bool lasted(const Diagnose *d, const DiagPicture *p, DiagClass class_id, int64_t since_us)
{
    return seconds_since(p, since_us) >= setting(d, class_id, RULE_HOLD);
}

static void rule_dead(Diagnose *d, const DiagPicture *p, const DiagEngine *e)
{
    char text[DIAG_TEXT];
    if (e->boots_30min >= setting(d, DIAG_ENGINE_DEAD, RULE_RESTARTS)) { /* a restart loop */
        (void)str_format(text, sizeof text, "restart loop: %d starts within 30 min%s%s",
                         e->boots_30min, e->detail ? "; " : "", e->detail ? e->detail : "");
        raise(d, DIAG_ENGINE_DEAD, e->engine, SEVERITY_CRIT, true, p->now_us, text);
    } else if (e->state == ENGINE_DEAD && lasted(d, p, DIAG_ENGINE_DEAD, e->state_since_us)) {
        (void)str_format(text, sizeof text, "%s", e->detail ? e->detail : "connections refused");
        raise(d, DIAG_ENGINE_DEAD, e->engine, SEVERITY_CRIT, true, e->state_since_us, text);
    }
}

static void rule_lies(Diagnose *d, const DiagPicture *p, const DiagEngine *e)
{
    if (e->state != ENGINE_STUCK || p->syncing ||
        !lasted(d, p, DIAG_HEALTH_LIES, e->state_since_us)) {
        return;
    }
    double age = seconds_since(p, e->state_since_us);
    char text[DIAG_TEXT];
    (void)str_format(text, sizeof text, "HTTP ok, no token for %.0f s while requests run%s%s", age,
                     e->detail ? "; " : "", e->detail ? e->detail : "");
    raise(d, DIAG_HEALTH_LIES, e->engine, SEVERITY_WARN,
          age >= setting(d, DIAG_HEALTH_LIES, RULE_WORSE), e->state_since_us, text);
}

static void rule_paused(Diagnose *d, const DiagPicture *p, const DiagEngine *e)
{
    /* Paused outside of an update, and nobody wanted it. */
    if (e->state != ENGINE_PAUSED || p->syncing || e->operator_hold ||
        !lasted(d, p, DIAG_LEFT_PAUSED, e->state_since_us)) {
        return;
    }
    char text[DIAG_TEXT];
    (void)str_format(text, sizeof text, "paused for %.0f s while no update runs",
                     seconds_since(p, e->state_since_us));
    raise(d, DIAG_LEFT_PAUSED, e->engine, SEVERITY_CRIT, true, e->state_since_us, text);
}

static void rule_split(Diagnose *d, const DiagPicture *p)
{
    int64_t odd = 0, odd_version = -1;
    int right = 0;
    for (int i = 0; i < p->engine_count && !p->syncing && p->committed >= 0; i++) {
        const DiagEngine *e = &p->engines[i];
        if (!e->admitted || e->reported_version < 0 || e->state == ENGINE_DEAD) {
            continue;
        }
        if (e->reported_version == p->committed) {
            right++;
        } else if (odd == 0) {
            odd = e->engine;
            odd_version = e->reported_version;
        }
    }
    if (odd == 0) {
        d->split_since_us = 0;
        return;
    }
    if (d->split_since_us == 0) {
        d->split_since_us = p->now_us;
    }
    if (lasted(d, p, DIAG_VER_SPLIT, d->split_since_us)) {
        char text[DIAG_TEXT];
        (void)str_format(text, sizeof text, "serves v%lld, committed is v%lld on %d others",
                         (long long)odd_version, (long long)p->committed, right);
        raise(d, DIAG_VER_SPLIT, odd, SEVERITY_CRIT, true, d->split_since_us, text);
    }
}

static void rule_parts(Diagnose *d, const DiagPicture *p)
{
    const struct {
        DiagClass class_id;
        int64_t since_us; /* 0: all is well */
        bool at_once;
        const char *detail, *otherwise;
    } parts[] = {
        {DIAG_ROUTER_DEAD, p->frontend_down_us, p->frontend_ended, p->frontend_detail,
         "the frontend does not answer"},
        {DIAG_TRAINER_DEAD, p->trainer_down_us, false, p->trainer_detail,
         "the trainer's process ended"},
        {DIAG_DISK_REFUSES, p->held_us, false, p->held_detail, "a write waits for the disk"},
        {DIAG_DISK_FULL, p->not_recording_us, false, p->recording_detail,
         "the log takes no facts"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].since_us > 0 &&
            (parts[i].at_once || lasted(d, p, parts[i].class_id, parts[i].since_us))) {
            raise(d, parts[i].class_id, 0, SEVERITY_CRIT, true, parts[i].since_us,
                  parts[i].detail ? parts[i].detail : parts[i].otherwise);
        }
    }
}

/* Only the last few are left: at most 5 %, or at most a quarter that a quarter of the engines (one
 * at least, of three and more) holds while the others have nothing to do. */
static bool is_tail(const DiagPicture *p)
{
    int64_t few = p->want / 20 > 1 ? p->want / 20 : 1;
    int share = p->engine_count / 4 > 1 ? p->engine_count / 4 : 1;
    bool held = p->engine_count >= 3 && p->holders > 0 && p->holders <= share;
    return p->left > 0 && (p->left <= few || (held && p->left <= p->want / 4));
}

/* The longest that the oldest sample can still take, from its rate so far; < 0: unknown. */
static double longest_left(const DiagPicture *p, double age)
{
    bool known = p->cap_tokens > p->oldest_tokens && p->oldest_tokens > 0;
    return known ? age / (double)p->oldest_tokens * (double)(p->cap_tokens - p->oldest_tokens) : -1;
}

/* Who holds the last samples. One incident as long as there is a tail, about the engine that held
 * its oldest sample when it began. A warning once the rest may take longer than the phase does. */
static void tail_raise(Diagnose *d, const DiagPicture *p, double age)
{
    char text[DIAG_TEXT];
    char left[48] = "";
    double longest = longest_left(p, age);
    int64_t engine = p->oldest_engine;
    for (int i = 0; i < d->open_count; i++) {
        engine = d->open[i].class_id == DIAG_TAIL ? d->open[i].engine : engine;
    }
    bool lasts = longest < 0 || longest > p->phase_median_s; /* no token yet: nobody can say */
    bool worse = lasts && p->phase_closed >= 3 &&
                 age > setting(d, DIAG_TAIL, RULE_WORSE_TIMES) * p->phase_median_s;
    if (longest >= 0) {
        (void)str_format(left, sizeof left, ", up to %.0f s to go", longest);
    }
    (void)str_format(text, sizeof text,
                     "%lld of %lld left%s; oldest: sample %lld/%lld on %s for %.0f s, %lld tokens "
                     "(median %.1f s)%s; slow, not stuck", (long long)p->left, (long long)p->want,
                     p->holders == 1 && p->left > 1 ? ", all on one engine" : "",
                     (long long)p->oldest_step, (long long)p->oldest_sample,
                     p->oldest_where ? p->oldest_where : "no engine yet", age,
                     (long long)p->oldest_tokens, p->sample_median_s, left);
    raise(d, DIAG_TAIL, engine, SEVERITY_INFO, worse, d->tail_since_us, text);
}

static void rule_rollout(Diagnose *d, const DiagPicture *p)
{
    bool generating = p->phase == PHASE_GENERATE || p->phase == PHASE_EVAL;
    bool on = generating && p->want > 0 && !p->paused;
    bool tail = on && is_tail(p);
    if (!tail || d->tail_since_us == 0) {
        d->tail_since_us = tail ? p->now_us : 0;
    }
    if (!on) {
        return;
    }
    char text[DIAG_TEXT];
    if (tail && p->oldest_started_us > 0 && p->sample_median_s > 0) {
        double age = seconds_since(p, p->oldest_started_us);
        if (age > setting(d, DIAG_TAIL, RULE_TIMES) * p->sample_median_s &&
            age > setting(d, DIAG_TAIL, RULE_HOLD)) {
            tail_raise(d, p, age);
        }
    }
    if (p->idle_since_us > 0 && lasted(d, p, DIAG_LOST_TASK, p->idle_since_us) && !p->syncing &&
        p->frontend_down_us == 0) {
        (void)str_format(text, sizeof text, "%lld of %lld samples left, none in flight for %.0f s",
                         (long long)p->left, (long long)p->want,
                         seconds_since(p, p->idle_since_us));
        raise(d, DIAG_LOST_TASK, 0, SEVERITY_CRIT, true, p->idle_since_us, text);
    }
}

static void rule_stall(Diagnose *d, const DiagPicture *p)
{
    if (p->phase == PHASE_PAUSE || p->phase == PHASE_DONE || p->phase == PHASE_INIT ||
        p->held_us > 0) { /* that has an alert of its own */
        return;
    }
    double age = seconds_since(p, p->phase_since_us);
    const double *v = d->rules.of[DIAG_PHASE_STALL].value;
    double warn = 3.0 * v[RULE_HOLD], worse = 1.5 * v[RULE_WORSE]; /* without history */
    if (p->phase_closed >= 3) {
        warn = fmax(v[RULE_TIMES] * p->phase_median_s, v[RULE_HOLD]);
        worse = fmax(v[RULE_WORSE_TIMES] * p->phase_median_s, v[RULE_WORSE]);
    }
    if (age <= warn) {
        return;
    }
    char text[DIAG_TEXT];
    (void)str_format(text, sizeof text, "%s for %.0f s, median %.0f s of %d",
                     loop_phase_name(p->phase), age, p->phase_median_s, p->phase_closed);
    raise(d, DIAG_PHASE_STALL, 0, SEVERITY_WARN, age > worse, p->phase_since_us, text);
}

void diagnose_tick(Diagnose *d, const DiagPicture *p)
{
    d->tick++;
    d->now_us = p->now_us;
    for (int i = 0; i < p->engine_count; i++) {
        rule_dead(d, p, &p->engines[i]);
        rule_lies(d, p, &p->engines[i]);
        rule_paused(d, p, &p->engines[i]);
    }
    rule_split(d, p);
    rule_parts(d, p);
    rule_rollout(d, p);
    rule_stall(d, p);
    int kept = 0;
    for (int i = 0; i < d->open_count; i++) {
        const Open *open = &d->open[i];
        double calm_s = seconds_since(p, open->seen_us);
        bool flaps = p->phase != PHASE_DONE && calm_s < setting(d, open->class_id, RULE_CLEAR);
        if (open->seen == d->tick || flaps) {
            d->open[kept++] = *open;
        } else {
            tell(d, open, false, p->now_us);
        }
    }
    d->open_count = kept;
}
