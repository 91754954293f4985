/* Incident rules (class names and thresholds of the field: ENGINE-DEAD, HEALTH-LIES, …), pure:
 * (state, picture of the fleet) -> incidents that open, get worse and end. Level-triggered: each
 * tick the rules look at one picture; what no rule names any more has ended. The driver of a
 * live run makes the picture from what it knows; nothing here reads a clock or a log.
 *
 * O(engines) a tick, meant for one tick a second; at most DIAG_OPEN_MAX incidents open at once. */
#ifndef ROLLTOP_DIAGNOSE_DIAGNOSE_H
#define ROLLTOP_DIAGNOSE_DIAGNOSE_H

#include "store/store.h"

enum { DIAG_OPEN_MAX = 4096, DIAG_TEXT = 192 };

/* class, reference name, the key to press next, and what it is about. */
#define DIAG_CLASSES(X)                                                                           \
    X(DIAG_ENGINE_DEAD, "ENGINE-DEAD", "R", "process gone, or dying again and again")             \
    X(DIAG_HEALTH_LIES, "HEALTH-LIES", "R", "HTTP answers, nothing is decoded")                   \
    X(DIAG_ROUTER_DEAD, "ROUTER-DEAD", ":restart frontend", "the front door does not answer")     \
    X(DIAG_TRAINER_DEAD, "TRAINER-DEAD", ":restart trainer", "no trainer to train with")          \
    X(DIAG_LEFT_PAUSED, "LEFT-PAUSED", "P", "paused by an update and never continued")            \
    X(DIAG_VER_SPLIT, "VER-SPLIT", "U", "engines serve different policies")                       \
    X(DIAG_TAIL, "TAIL", "2", "the last few samples are still decoding")                          \
    X(DIAG_LOST_TASK, "LOST-TASK", "!", "samples are missing and nobody works on them")           \
    X(DIAG_PHASE_STALL, "PHASE-STALL", "3", "a phase takes far longer than it used to")           \
    X(DIAG_DISK_FULL, "DISK-FULL", ":events", "facts cannot be written")                          \
    X(DIAG_DISK_REFUSES, "DISK-REFUSES", ":resume all", "policy or state cannot be written")

#define DIAG_ENUM_ENTRY(name, word, key, about) name,
typedef enum DiagClass { DIAG_CLASSES(DIAG_ENUM_ENTRY) DIAG_CLASS_COUNT } DiagClass;
const char *diagnose_class_name(DiagClass c);
const char *diagnose_class_about(DiagClass c);

typedef struct DiagEngine {
    int64_t engine; /* store id, from 1 on */
    EngineState state;
    int64_t state_since_us;
    bool admitted;          /* it may be given work */
    bool operator_hold;     /* paused or cordoned on purpose */
    int64_t reported_version; /* -1 unknown */
    int boots_30min;
    const char *detail;     /* how it ended, what it said; may be NULL */
} DiagEngine;

typedef struct DiagPicture {
    int64_t now_us;
    LoopPhase phase;
    int64_t phase_since_us;
    double phase_median_s;  /* of closed spells of this phase */
    int phase_closed;       /* how many there were */
    bool paused;            /* by the operator */
    bool syncing;           /* a policy transaction runs */
    int64_t committed;      /* policy version; -1 none */
    const DiagEngine *engines;
    int engine_count;
    int64_t frontend_down_us, trainer_down_us; /* since; 0: up */
    bool frontend_ended;    /* its process is known to have ended: no need to wait for silence */
    const char *frontend_detail, *trainer_detail;
    int64_t want, left, in_flight; /* samples of the rollout under way; want 0: none */
    int64_t oldest_started_us;     /* 0: none in flight; the rest about it then */
    int64_t oldest_step, oldest_sample, oldest_tokens;
    int64_t oldest_engine;         /* store id; 0: nobody has said yet */
    const char *oldest_where;      /* that engine's name; NULL */
    int holders;                   /* engines that hold what is in flight; 0: not known */
    int64_t cap_tokens;            /* most that a sample may have; 0: unknown */
    int64_t idle_since_us;         /* samples left and none in flight since; 0: not so */
    double sample_median_s;        /* of finished ones; 0: unknown */
    int64_t held_us;               /* since when a write of the trainer waits; 0: none does */
    const char *held_detail;
    int64_t not_recording_us;      /* since; 0: recording */
    const char *recording_detail;
} DiagPicture;

typedef struct DiagAction { /* an incident began, got worse, or ended (ended_us set) */
    bool worse;
    int64_t incident, onset_us, ended_us, engine;
    DiagClass class_id;
    Severity severity;
    char evidence[DIAG_TEXT];
    const char *next_key;
} DiagAction;

typedef struct Diagnose Diagnose;
typedef struct DiagRules DiagRules; /* thresholds (rules.h) */
/* Incident ids are given out from first_incident on. `rules` is copied; NULL: the usual ones. */
Diagnose *diagnose_new(int64_t first_incident, const DiagRules *rules);
void diagnose_free(Diagnose *diagnose);
void diagnose_tick(Diagnose *diagnose, const DiagPicture *picture);
bool diagnose_next(Diagnose *diagnose, DiagAction *out);

#endif
