/* Faults that an engine can be told to have (incidents 1.4): a table of kinds, each on for a time.
 * POST /_fault {"kind":K, "after":s, "for":s, …arguments}; "for" absent: until {"kind":"clear"}.
 * Pure: times are arguments. */
#ifndef ROLLTOP_SERVE_FAULTS_H
#define ROLLTOP_SERVE_FAULTS_H

#include "core/base/json.h"

/* name, which argument it takes, what it does */
#define FAULT_KINDS(X)                                                                            \
    X(SLOW, "slow", "f", "token rate times f")                                                    \
    X(FREEZE, "freeze", "", "the scheduler stops; HTTP, /health and /metrics still answer")       \
    X(FREEZE_ALL, "freeze_all", "", "nothing is answered, sockets stay open")                     \
    X(CRASH, "crash", "code", "the process exits")                                                \
    X(HEALTH, "health", "status", "/health* answer this status, after `delay` seconds")           \
    X(DROP_REPLY, "drop_reply", "p", "share of requests that finish without an answer")           \
    X(ABORT, "abort", "mode", "ok, ignored, 404 or slow (seconds `s`)")                           \
    X(FLUSH, "flush", "mode", "ok, 400 or hang")                                                  \
    X(STAY_PAUSED, "stay_paused", "", "/continue_generation answers and does nothing")            \
    X(UPDATE, "update", "mode", "ok, hang, 400, partial or slow (seconds `s`)")                   \
    X(VER_LIE, "ver_lie", "v", "an update reports version v (or the asked one), loads nothing")   \
    X(VER_RESET, "ver_reset", "", "the reported version is \"default\"")                          \
    X(GARBLE, "garble", "p", "share of requests answered from wrong weights")                     \
    X(EMPTY, "empty", "p", "share of one-token answers")                                          \
    X(NOSTOP, "nostop", "p", "share of answers that never stop by themselves")                    \
    X(NAN, "nan", "p", "share of answers with non-finite log-probs")                              \
    X(LEN_DIST, "len_dist", "p", "share of answers that run to `long` tokens")                    \
    X(GAUGES_STUCK, "gauges_stuck", "", "all gauges repeat")                                      \
    X(KV_CAP, "kv_cap", "n", "KV pool of n tokens")                                               \
    X(ZOMBIE, "zombie", "k", "the next k requests stay running for ever")

typedef enum FaultKind {
#define FAULT_ENUM(id, name, argument, help) FAULT_##id,
    FAULT_KINDS(FAULT_ENUM)
#undef FAULT_ENUM
    FAULT_KIND_COUNT
} FaultKind;

typedef struct FaultItem {
    bool set;
    int64_t from_us, until_us; /* until 0: for ever */
    double number;             /* f, p, code, status, n, k */
    double seconds;            /* delay, s */
    double extra;              /* long */
    char text[64];             /* mode or v */
} FaultItem;

typedef struct Faults {
    FaultItem items[FAULT_KIND_COUNT];
} Faults;

/* ERR_ARG with a sentence that names the kinds when the kind or an argument is wrong. */
Err faults_apply(Faults *faults, const cJSON *body, int64_t now_us, FaultKind *kind, Fault *fault);
/* The item while it is on, else NULL. */
const FaultItem *faults_active(const Faults *faults, FaultKind kind, int64_t now_us);
/* When the next fault begins or ends; 0: never. */
int64_t faults_next_change_us(const Faults *faults, int64_t now_us);
void faults_list(const Faults *faults, int64_t now_us, Text *json);

#endif
