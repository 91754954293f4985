/* Engine state from evidence. What counts as life is any whole HTTP reply; what counts as work is
 * a counter or a load figure that moved; who it is comes from /server_info, and is asked again
 * whenever a connection failed, a counter fell, or model_ms passed. */
#include "core/fleet/probe.h"

#include <string.h>

enum {
    BUSY_PROGRESS_US = 30 * 1000000, /* incidents #8: work seen this recently is life */
    DOUBT_US = 1500000,              /* one dropped connection does not change the picture */
    TOKENS_US = 200000,
    LATE_FACTOR = 4,         /* so many times its latest answer is waited for … */
    LATE_HALF_US = 10000000,
    PATIENCE_US = 10000000,  /* … at most this long */
    FLOW_US = 2000000,       /* a look at the streams is evidence for so long */
    LOST_SHARE = 4,          /* a probe of which we missed one in so many parts proves nothing */
    SLOW_LOOKS = 2 /* one late answer is no slow engine */
};

ProbeSettings probe_settings_default(void)
{
    return (ProbeSettings){.ping_ms = 500, .loads_ms = 500, .model_ms = 2000, .health_ms = 10000,
                           .metrics_ms = 1000, .stale_ms = 1500, .dead_ms = 2600,
                           .refused_limit = 3, .stuck_ms = 20000, .calm_ms = 1000};
}

void probe_init(ProbeState *p)
{
    memset(p, 0, sizeof *p);
    p->state = ENGINE_STARTING;
    p->reported_version = -1;
    p->doubted = true;
}

/* ---- ourselves ---------------------------------------------------------------------------- */

int64_t own_time_look(OwnTime *own, int64_t now_us)
{
    const int64_t tick_us = PROBE_TICK_MS * 1000;
    const int64_t since_us = own->seen_us > 0 ? now_us - own->seen_us : 0;
    const int64_t lost_us = since_us > 2 * tick_us ? since_us - tick_us : 0;
    own->seen_us = now_us;
    own->lost_us += lost_us;
    return lost_us;
}

bool own_time_excuses(const OwnTime *own, int64_t sent_lost_us, HttpEnd end, int64_t took_us)
{
    const bool timed_out = end == HTTP_END_TIMEOUT_CONNECT || end == HTTP_END_TIMEOUT_SILENT
                           || end == HTTP_END_TIMEOUT_TOTAL;
    const int64_t lost_us = own->lost_us - sent_lost_us;
    return timed_out && lost_us > 0 && lost_us * LOST_SHARE >= took_us;
}

/* ---- silence ------------------------------------------------------------------------------ */

static int64_t late_now(const ProbeState *p, int64_t now_us)
{
    const int64_t halvings = (now_us - p->late_at_us) / LATE_HALF_US;
    return halvings < 40 ? p->late_us >> halvings : 0;
}

static void note_late(ProbeState *p, int64_t took_us, int64_t now_us)
{
    const int64_t most_us = PATIENCE_US / LATE_FACTOR;
    took_us = took_us < most_us ? took_us : most_us;
    if (took_us >= late_now(p, now_us)) {
        p->late_us = took_us;
        p->late_at_us = now_us;
    }
}

/* The silence after which it is dead: longer where evidence says that it only is late. */
static int64_t patience_us(const ProbeState *p, const ProbeSettings *s, int64_t now_us)
{
    const int64_t dead_us = s->dead_ms * 1000;
    const bool flows = p->flow_us > 0 && now_us - p->flow_us < FLOW_US;
    int64_t late_us = flows ? PATIENCE_US : LATE_FACTOR * late_now(p, now_us);
    late_us = late_us < PATIENCE_US ? late_us : PATIENCE_US;
    return p->cut_off || late_us < dead_us ? dead_us : late_us;
}

int64_t probe_timeout_ms(const ProbeState *p, const ProbeSettings *s, ProbeKind kind,
                         int64_t now_us)
{
    switch (kind) {
    case PROBE_PING:
    case PROBE_LOADS: return p ? patience_us(p, s, now_us) / 1000 : s->dead_ms;
    case PROBE_FRONTEND: /* nothing else asks it: silence counts from the probe before */
        return s->dead_ms > 2 * s->ping_ms ? s->dead_ms - s->ping_ms : s->dead_ms / 2;
    case PROBE_HEALTH: return 22000; /* the engine itself takes up to 20 s */
    case PROBE_MODEL:
    case PROBE_SERVER:
    case PROBE_METRICS: break;
    }
    return 5000;
}

/* ---- judging ------------------------------------------------------------------------------ */

static double seconds(int64_t us)
{
    return (double)us / 1e6;
}

typedef struct Judged {
    EngineState state;
    char reason[128];
} Judged;

static bool has_work(const ProbeState *p)
{
    return p->known_running && p->last_running + p->last_waiting > 0;
}

/* Does it make progress? Only asked of an engine that answers and that we do not hold. */
static EngineState judge_work(const ProbeState *p, const ProbeSettings *s, int64_t now_us,
                              char reason[128])
{
    const int64_t quiet = now_us - p->last_progress_us;
    const bool moved = p->moved_us > 0 && now_us - p->moved_us < BUSY_PROGRESS_US;
    if (has_work(p) && quiet >= s->stuck_ms * 1000) {
        (void)str_format(reason, 128, "%.0f running, %.0f waiting, nothing moved for %.0f s",
                         p->last_running, p->last_waiting, seconds(quiet));
        return ENGINE_STUCK;
    }
    if (p->health_bad && !moved) {
        (void)str_format(reason, 128, "answers, but generation health fails: %s", p->last_error);
        return ENGINE_STUCK;
    }
    if (p->health_bad) {
        (void)str_format(reason, 128, "generation health fails (%s) while tokens come",
                         p->last_error);
        return ENGINE_BUSY;
    }
    if (p->slow_in_row >= SLOW_LOOKS) {
        (void)str_format(reason, 128, "answers after %.1f s", seconds(p->last_took_us));
        return ENGINE_SLOW;
    }
    (void)str_format(reason, 128, "answers");
    return ENGINE_UP;
}

static Judged judge(const ProbeState *p, const ProbeSettings *s, int64_t now_us)
{
    Judged j = {ENGINE_UP, ""};
    const int64_t silence = now_us - p->last_ok_us;
    const int64_t patience = patience_us(p, s, now_us);
    if (p->exited) {
        j.state = ENGINE_DEAD;
        (void)str_format(j.reason, sizeof j.reason, "%s", p->last_error);
    } else if (p->last_ok_us == 0) {
        j.state = ENGINE_STARTING;
        (void)str_format(j.reason, sizeof j.reason, "no answer yet%s%s",
                         p->last_error[0] ? ": " : "", p->last_error);
    } else if (p->refused_in_row >= s->refused_limit) {
        j.state = ENGINE_DEAD;
        (void)str_format(j.reason, sizeof j.reason, "connection %s %d times", p->last_error,
                         p->refused_in_row);
    } else if (silence >= patience) {
        j.state = ENGINE_DEAD;
        (void)str_format(j.reason, sizeof j.reason, "no answer for %.1f s%s%s", seconds(silence),
                         p->failed ? ", last " : "", p->failed ? p->last_error : "");
    } else if (silence >= s->stale_ms * 1000 && patience > s->dead_ms * 1000) {
        const bool held = p->held_fenced || p->held_loading || p->held_paused;
        j.state = held ? ENGINE_STALE : ENGINE_SLOW;
        (void)str_format(j.reason, sizeof j.reason, "no answer for %.1f s, waited for up to "
                         "%.1f s: %s", seconds(silence), seconds(patience),
                         now_us - p->flow_us < FLOW_US ? "every stream moves"
                                                       : "its answers were late before");
    } else if (silence >= s->stale_ms * 1000) {
        j.state = ENGINE_STALE;
        (void)str_format(j.reason, sizeof j.reason, "no answer for %.1f s", seconds(silence));
    } else if (p->doubted) {
        const bool wait = p->state != ENGINE_DEAD && now_us - p->doubted_us < DOUBT_US;
        j.state = wait ? p->state : ENGINE_STARTING;
        (void)str_format(j.reason, sizeof j.reason, "answers; not yet read which process it is");
    } else if (p->held_fenced || p->held_loading || p->held_paused) {
        j.state = p->held_fenced ? ENGINE_FENCED
                                 : p->held_loading ? ENGINE_LOADING : ENGINE_PAUSED;
        (void)str_format(j.reason, sizeof j.reason, "by the control plane");
    } else {
        j.state = judge_work(p, s, now_us, j.reason);
    }
    return j;
}

static void doubt(ProbeState *p, int64_t now_us)
{
    p->doubted_us = p->doubted ? p->doubted_us : now_us;
    p->doubted = true;
    p->due_us[PROBE_SERVER] = 0;
}

/* Slow, busy and stuck end after calm_ms of good evidence: one quick answer, or one token, does
 * not make a picture that flickers. What is worse is believed at once. */
static bool wait_for_calm(ProbeState *p, const ProbeSettings *s, EngineState now, int64_t now_us)
{
    const bool bad = p->state == ENGINE_SLOW || p->state == ENGINE_BUSY || p->state == ENGINE_STUCK;
    const bool better = now == ENGINE_UP || (p->state == ENGINE_STUCK && now != ENGINE_STUCK);
    const bool answers = now == ENGINE_UP || now == ENGINE_SLOW || now == ENGINE_BUSY;
    if (!bad || !better || !answers) {
        p->calm_us = 0;
        return false;
    }
    p->calm_us = p->calm_us ? p->calm_us : now_us;
    return now_us - p->calm_us < s->calm_ms * 1000;
}

static ProbeVerdict settle(ProbeState *p, const ProbeSettings *s, int64_t now_us)
{
    ProbeVerdict verdict = {0};
    Judged j = judge(p, s, now_us);
    const bool wait = wait_for_calm(p, s, j.state, now_us);
    if (j.state != p->state && !wait) {
        p->calm_us = 0;
        p->state = j.state;
        verdict.changed = true;
        (void)str_format(verdict.reason, sizeof verdict.reason, "%s", j.reason);
        if (j.state == ENGINE_DEAD) {
            doubt(p, now_us); /* whoever answers next must say who it is */
        }
    }
    return verdict;
}

/* ---- asking ------------------------------------------------------------------------------- */

static int64_t interval_us(const ProbeState *p, const ProbeSettings *s, ProbeKind kind)
{
    switch (kind) {
    case PROBE_PING: return s->ping_ms * 1000;
    case PROBE_HEALTH: return s->health_ms * 1000;
    case PROBE_LOADS: return s->loads_ms * 1000;
    case PROBE_MODEL: return s->model_ms * 1000;
    case PROBE_SERVER: return (p->doubted ? s->ping_ms : s->model_ms) * 1000;
    case PROBE_METRICS: return s->metrics_ms * 1000;
    case PROBE_FRONTEND: break;
    }
    return s->ping_ms * 1000;
}

static bool wanted(const ProbeState *p, const ProbeSettings *s, ProbeKind kind, int64_t now_us)
{
    const bool answers = p->last_ok_us > 0 && p->refused_in_row == 0 && !p->exited
                         && now_us - p->last_ok_us < s->dead_ms * 1000;
    switch (kind) {
    case PROBE_PING: /* any reply is a sign of life: asked for only where none came lately */
        return now_us - p->last_ok_us >= s->ping_ms * 1500;
    case PROBE_LOADS: /* a second opinion while an engine begins to fail; useless on a dead one */
        return p->last_ok_us > 0 && p->state != ENGINE_DEAD;
    case PROBE_SERVER:
    case PROBE_MODEL:
    case PROBE_METRICS:
        return answers;
    case PROBE_HEALTH: /* waits at the pause gate and behind a load: 503 there says nothing */
        return answers && !p->doubted && !p->held_paused && !p->held_loading && !p->held_fenced;
    case PROBE_FRONTEND:
        break;
    }
    return false;
}

unsigned probe_due(ProbeState *p, const ProbeSettings *s, int64_t now_us)
{
    unsigned kinds = 0;
    for (int k = 0; k < PROBE_ENGINE_KINDS; k++) {
        if (!p->in_flight[k] && p->due_us[k] <= now_us && interval_us(p, s, (ProbeKind)k) > 0
            && wanted(p, s, (ProbeKind)k, now_us)) {
            p->in_flight[k] = true;
            p->sent_lost_us[k] = p->own.lost_us;
            p->due_us[k] = now_us + interval_us(p, s, (ProbeKind)k);
            kinds |= 1u << k;
        }
    }
    return kinds;
}

/* ---- answers ------------------------------------------------------------------------------ */

static void note_failure(ProbeState *p, const EngineAnswer *a, int64_t now_us)
{
    p->failed = true;
    (void)str_format(p->last_error, sizeof p->last_error, "%s", a->outcome);
    p->cut_off = a->end == HTTP_END_TIMEOUT_CONNECT || a->end == HTTP_END_NAME
                 || a->end == HTTP_END_REFUSED;
    if (a->end == HTTP_END_REFUSED || a->end == HTTP_END_RESET || a->end == HTTP_END_NAME) {
        p->refused_in_row++;
        p->was_refused = p->was_refused || a->end == HTTP_END_REFUSED;
        doubt(p, now_us);
    }
}

static void begin_incarnation(ProbeState *p, int64_t now_us)
{
    p->incarnation++;
    p->reported_version = -1;
    p->held_paused = p->held_loading = false; /* that was another process */
    p->known_tokens = p->known_running = false;
    p->last_tokens = p->last_running = p->last_waiting = p->last_used = 0;
    p->last_progress_us = p->moved_us = now_us;
    p->health_bad = false;
    p->slow_in_row = 0;
    p->late_us = p->flow_us = 0; /* how another process was says nothing of this one */
    p->due_us[PROBE_MODEL] = 0;
}

/* True when another process answers than before. */
static bool note_identity(ProbeState *p, const EngineAnswer *a, int64_t now_us)
{
    if (a->err != ERR_OK && a->err != ERR_UNSUPPORTED) {
        return false;
    }
    /* An engine without the route cannot be told apart by it; refusals and counters are left. */
    const char *identity = a->err == ERR_OK ? a->text : "";
    const bool other = p->incarnation == 0 || p->ended || strcmp(identity, p->identity) != 0
                       || (!identity[0] && p->was_refused);
    p->doubted = p->was_refused = p->ended = false;
    if (other) {
        begin_incarnation(p, now_us);
        (void)str_format(p->identity, sizeof p->identity, "%s", identity);
    }
    return other;
}

/* True when the figures can only come from another process, and no identity will tell. */
static bool note_figures(ProbeState *p, const EngineAnswer *a, int64_t now_us)
{
    bool another = false;
    bool moved = false;
    if (a->known_tokens && p->known_tokens && a->gen_tokens_total < p->last_tokens) {
        doubt(p, now_us); /* a counter never falls within one process */
        if (!p->identity[0] && p->incarnation > 0) {
            begin_incarnation(p, now_us);
            another = true;
        }
    }
    if (a->known_running) {
        moved = !p->known_running || a->running != p->last_running
                || a->used_tokens != p->last_used;
        p->known_running = true;
        p->last_running = a->running;
        p->last_waiting = a->waiting; /* more of them is no work done */
        p->last_used = a->used_tokens;
    }
    if (a->known_tokens) {
        moved = moved || !p->known_tokens || a->gen_tokens_total > p->last_tokens;
        p->known_tokens = true;
        p->last_tokens = a->gen_tokens_total;
    }
    if (moved || (p->known_running && !has_work(p))) {
        p->last_progress_us = now_us; /* an idle engine owes nothing */
    }
    p->moved_us = moved ? now_us : p->moved_us;
    return another;
}

bool probe_silent(const ProbeState *p, const ProbeSettings *s, int64_t now_us)
{
    return p->last_ok_us > 0 && now_us - p->last_ok_us >= s->stale_ms * 1000;
}

static bool note_reply(ProbeState *p, const ProbeSettings *s, ProbeKind kind,
                       const EngineAnswer *a, int64_t now_us)
{
    const bool silent = probe_silent(p, s, now_us);
    if (kind != PROBE_HEALTH) { /* that one takes its time */
        note_late(p, silent && !p->cut_off ? now_us - p->last_ok_us : a->took_us, now_us);
    }
    p->last_ok_us = now_us;
    p->refused_in_row = 0;
    p->exited = p->cut_off = p->failed = false;
    if (kind == PROBE_PING || kind == PROBE_LOADS) {
        p->last_took_us = a->took_us;
        p->slow_in_row = a->took_us >= s->stale_ms * 1000 ? p->slow_in_row + 1 : 0;
    }
    if (a->fresh && p->incarnation > 0) {
        doubt(p, now_us); /* somebody may listen there since; /server_info is asked at once */
    }
    if (kind == PROBE_SERVER) {
        return note_identity(p, a, now_us);
    }
    if (a->err == ERR_OK && kind == PROBE_MODEL) {
        p->reported_version = a->weight_version;
    }
    if (a->err == ERR_OK && (kind == PROBE_LOADS || kind == PROBE_METRICS)) {
        return note_figures(p, a, now_us);
    }
    return false;
}

/* Answers that came while we were not there are not read yet: that is nobody's silence. */
static void look(ProbeState *p, int64_t now_us)
{
    const int64_t lost_us = own_time_look(&p->own, now_us);
    if (lost_us > 0 && p->last_ok_us > 0) {
        p->last_ok_us += lost_us;
        p->last_ok_us = p->last_ok_us < now_us ? p->last_ok_us : now_us;
        p->last_progress_us += lost_us;
        p->moved_us += lost_us;
        note_late(p, lost_us, now_us);
    }
}

/* Our own doing: we ended it, or were away for a good part of the time that it was given. */
static bool is_ours(const ProbeState *p, ProbeKind kind, const EngineAnswer *a)
{
    return a->end == HTTP_END_CANCELLED
           || own_time_excuses(&p->own, p->sent_lost_us[kind], a->end, a->took_us);
}

ProbeVerdict probe_answer(ProbeState *p, const ProbeSettings *s, ProbeKind kind,
                          const EngineAnswer *a, int64_t now_us)
{
    bool another = false;
    look(p, now_us);
    const bool ours = is_ours(p, kind, a);
    p->in_flight[kind] = false;
    if (a->end == HTTP_END_OK) {
        another = note_reply(p, s, kind, a, now_us);
    } else if (!ours) {
        note_failure(p, a, now_us);
    }
    if (kind == PROBE_HEALTH && !ours) {
        p->health_bad = a->err != ERR_OK && a->err != ERR_UNSUPPORTED;
        if (p->health_bad) {
            (void)str_format(p->last_error, sizeof p->last_error, "%s", a->outcome);
        }
    }
    ProbeVerdict verdict = settle(p, s, now_us);
    verdict.new_incarnation = another;
    if (another && !verdict.changed) {
        (void)str_format(verdict.reason, sizeof verdict.reason, "another process answers: %.90s",
                         p->identity);
    }
    return verdict;
}

ProbeVerdict probe_tokens(ProbeState *p, const ProbeSettings *s, int64_t now_us)
{
    const bool news = now_us - p->last_ok_us > TOKENS_US
                      || now_us - p->last_progress_us > TOKENS_US;
    if (p->last_ok_us > 0 && !p->exited) {
        p->last_ok_us = p->last_progress_us = p->moved_us = now_us;
        p->failed = false;
        if (!news) {
            return (ProbeVerdict){0}; /* thousands of tokens a second: nothing to judge anew */
        }
    }
    return settle(p, s, now_us);
}

ProbeVerdict probe_flows(ProbeState *p, const ProbeSettings *s, int64_t now_us)
{
    p->flow_us = has_work(p) ? now_us : p->flow_us;
    return settle(p, s, now_us);
}

ProbeVerdict probe_tick(ProbeState *p, const ProbeSettings *s, int64_t now_us)
{
    look(p, now_us);
    return settle(p, s, now_us);
}

ProbeVerdict probe_exit(ProbeState *p, const char *how, int64_t now_us)
{
    const ProbeSettings s = probe_settings_default(); /* none of it matters for an ended process */
    p->exited = p->ended = true;
    (void)str_format(p->last_error, sizeof p->last_error, "%s", how);
    p->held_paused = p->held_loading = false;
    doubt(p, now_us);
    return settle(p, &s, now_us);
}

ProbeVerdict probe_hold(ProbeState *p, const ProbeSettings *s, bool paused, bool loading,
                        bool fenced, int64_t now_us)
{
    const bool held = p->held_paused || p->held_loading || p->held_fenced;
    p->held_paused = paused;
    p->held_loading = loading;
    p->held_fenced = fenced;
    if (held && !paused && !loading && !fenced) {
        p->last_progress_us = p->moved_us = now_us; /* what stood still while held is none */
        p->health_bad = false;
        p->due_us[PROBE_HEALTH] = now_us + s->health_ms * 1000;
    }
    return settle(p, s, now_us);
}
