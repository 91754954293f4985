/* Engine state from several pieces of evidence; pure. A busy engine is not called dead, a frozen
 * one with a healthy HTTP server is not called up. The driver sends what probe_due asks for and
 * feeds answers; every change comes back with its reason.
 *
 * STARTING: no answer yet, or it answers and who it is has not been read. STALE, DEAD: no reply of
 * any kind for so long, or refused so often. STUCK: it holds requests and makes no token, or its
 * generation health fails while nothing moves. BUSY: that health fails while tokens come (a long
 * prefill does that; incidents #8). SLOW: it answers, later than stale_ms.
 *
 * Silence alone is read against what the engine was like before: one that answered within
 * milliseconds is DEAD after dead_ms, a starved one is SLOW, and waited for longer, while there is
 * evidence that it lives: its answers were late already (four times the latest of the last
 * seconds), it came back from a silence as the same process, or every stream of the run moves.
 * Where not even a connection is made, none of this counts. Time in which the prober itself did
 * not run, in one piece or in many, is nobody's silence, and a probe that ran out of time while
 * its prober missed a good part of that is no evidence. */
#ifndef ROLLTOP_FLEET_PROBE_H
#define ROLLTOP_FLEET_PROBE_H

#include "core/fleet/engine_client.h"
#include "store/store.h"

typedef struct ProbeSettings {
    int64_t ping_ms, loads_ms, model_ms, health_ms, metrics_ms; /* intervals */
    int64_t stale_ms;  /* no successful probe for this long: STALE */
    int64_t dead_ms;   /* … and for this long: DEAD; a refused connection is DEAD at once after */
    int refused_limit; /*   this many in a row */
    int64_t stuck_ms;  /* requests, and the token counter stands still for this long: STUCK */
    int64_t calm_ms;   /* SLOW, BUSY and STUCK are over after good evidence for this long only */
} ProbeSettings;
ProbeSettings probe_settings_default(void); /* loads and ping 500 ms, dead within 3 s */

enum {
    PROBE_TICK_MS = 100, /* the driver looks that often; what comes later, it missed */
    PROBE_ENGINE_KINDS = PROBE_FRONTEND /* the kinds that are sent to engines come before it */
};

typedef struct OwnTime { /* of the prober itself; zeroed: it has not looked yet */
    int64_t seen_us; /* when it looked last */
    int64_t lost_us; /* how long it did not get to look, in all */
} OwnTime;
/* It looks: what it has missed since it last did. */
int64_t own_time_look(OwnTime *own, int64_t now_us);
/* A request that was sent at that lost_us and ended so ran out of time because of that. */
bool own_time_excuses(const OwnTime *own, int64_t sent_lost_us, HttpEnd end, int64_t took_us);

typedef struct ProbeState {
    EngineState state;
    int64_t incarnation;        /* raised when the identity changed; 0: none seen yet */
    char identity[128];
    int64_t reported_version;   /* -1 unknown */
    bool held_paused, held_loading, held_fenced; /* what the control plane did to it */
    int64_t last_ok_us, due_us[PROBE_ENGINE_KINDS];
    int64_t last_progress_us; /* it worked, or had nothing to do */
    int64_t moved_us;         /* it worked */
    int refused_in_row;
    bool in_flight[PROBE_ENGINE_KINDS];
    double last_tokens, last_running, last_waiting, last_used;
    bool known_tokens, known_running;
    bool doubted;       /* it may be another process since the identity was read … */
    int64_t doubted_us; /* … since then */
    bool was_refused;   /* … nobody listened for a while */
    bool ended;         /* … its parent told the end: the next one to answer is another */
    bool exited;        /* the same, until somebody answers at the address */
    bool health_bad;    /* the last generation health failed */
    int64_t calm_us;    /* since when everything looks well again; 0: it does not */
    int slow_in_row;    /* answers in a row later than stale_ms */
    int64_t last_took_us;
    int64_t late_us, late_at_us; /* the latest answer not long ago, and when: halves in 10 s */
    int64_t flow_us;    /* when every stream of the run moved last; 0 never */
    OwnTime own;
    int64_t sent_lost_us[PROBE_ENGINE_KINDS]; /* own.lost_us when the one in flight was sent */
    bool cut_off;       /* the last probe that failed did not get as far as a connection */
    char last_error[96]; /* outcome of the last probe that failed */
    bool failed;         /* … since it answered last */
} ProbeState;

typedef struct ProbeVerdict {
    bool changed;          /* state differs from before */
    bool new_incarnation;  /* another process answers now */
    char reason[128];
} ProbeVerdict;

void probe_init(ProbeState *probe);
/* Bound of one probe of this kind: never so short that a slow answer would count as none. `probe`
 * may be NULL (the frontend's). */
int64_t probe_timeout_ms(const ProbeState *probe, const ProbeSettings *settings, ProbeKind kind,
                         int64_t now_us);
/* It answered once, and nothing came from it for stale_ms, whatever its state says of that. */
bool probe_silent(const ProbeState *probe, const ProbeSettings *settings, int64_t now_us);
/* Kinds to send now, as a bit set (1u << ProbeKind); marks them in flight. */
unsigned probe_due(ProbeState *probe, const ProbeSettings *settings, int64_t now_us);
ProbeVerdict probe_answer(ProbeState *probe, const ProbeSettings *settings, ProbeKind kind,
                          const EngineAnswer *answer, int64_t now_us);
ProbeVerdict probe_tick(ProbeState *probe, const ProbeSettings *settings, int64_t now_us);
/* Tokens of this engine arrived on a stream: it lives and works, whatever its probes say. */
ProbeVerdict probe_tokens(ProbeState *probe, const ProbeSettings *settings, int64_t now_us);
/* Every stream of the run moved just now, and nobody says where each runs: whoever had requests at
 * its last answer works on them, so its silence is one of the HTTP server. */
ProbeVerdict probe_flows(ProbeState *probe, const ProbeSettings *settings, int64_t now_us);
/* A local engine's process ended: DEAD now, whatever the last probes said. */
ProbeVerdict probe_exit(ProbeState *probe, const char *how, int64_t now_us);
/* The control plane's own word: paused, loading, fenced. */
ProbeVerdict probe_hold(ProbeState *probe, const ProbeSettings *settings, bool paused,
                        bool loading, bool fenced, int64_t now_us);

#endif
