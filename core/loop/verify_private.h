/* Shared by verify's files. Steps are written as a person would do them, one after the other;
 * every wait turns the event loop and has a bound. */
#ifndef ROLLTOP_LOOP_VERIFY_PRIVATE_H
#define ROLLTOP_LOOP_VERIFY_PRIVATE_H

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/fleet/fleet.h"
#include "core/fleet/generate.h"
#include "core/loop/verify.h"
#include "core/net/child.h"

enum { VERIFY_CANARY = 8 };

typedef struct VerifyPart { /* a child of a fleet of our own */
    Child *child;
    char address[64];
    bool ended;
    int port;
} VerifyPart;

typedef struct VerifyEngine {
    int64_t found_version, incarnation; /* version -1: not a number */
    char found_path[128], digest[128], dead_why[128];
    int64_t dead_us;
    bool touched, answered, ok; /* touched: an update or a pause was sent to it */
    char error[160];
    EngineAnswer answer;
} VerifyEngine;

typedef struct Verify {
    const VerifyConfig *config;
    VerifyReport *report;
    uv_loop_t uv;
    uv_timer_t tick;
    uv_signal_t sigint, sigterm;
    HttpClient *http;
    Store *store;
    Fleet *fleet;
    VerifyPart parts[VERIFY_ENGINES_MAX], frontend;
    VerifyEngine engines[VERIFY_ENGINES_MAX];
    char frontend_url[160];
    int count, victim;
    bool cancelled;
    int64_t version, step_us, began_us, killed_us;
    char policy_path[256];
} Verify;

typedef struct VerifyRollout { /* in; out */
    int64_t samples, tokens, want_version; /* version -1: any */
    int64_t bound_ms;
    void (*mid)(Verify *v);                /* called once, while tokens come; may be NULL */
    int whole, lost, refused, served[VERIFY_ENGINES_MAX];
    int64_t got_tokens, version;           /* version of every sample; -2 they differ */
    char why[160];                         /* of the last one that was lost or refused */
} VerifyRollout;

/* verify.c: turns the loop until ready(arg), at most bound_ms; false: it is not, or Ctrl-C. */
bool verify_wait(Verify *v, bool (*ready)(Verify *v, void *arg), void *arg, int64_t bound_ms);
bool verify_alive(const Verify *v, int engine);

/* verify_calls.c */
/* Every chosen engine to `path` as `version`: pause, flush, load, read back, compare, continue. */
bool verify_bring(Verify *v, const bool *chosen, const char *path, int64_t version, char *why,
                  size_t why_size);
bool verify_read(Verify *v, char *why, size_t why_size); /* what each engine serves now */
void verify_continue(Verify *v); /* whoever may have been left paused */

/* verify_rollout.c: true when every sample came whole, with the wanted version. */
bool verify_rollout(Verify *v, VerifyRollout *r);

/* verify_parts.c: a fleet of our own */
Err verify_parts_start(Verify *v, Fault *fault);
Err verify_part_again(Verify *v, int engine, Fault *fault);
void verify_parts_free(Verify *v);
/* $ROLLTOP_ENGINE, $ROLLTOP_ENGINE_NAME; status of the shell, -1 when it did not end in time. */
int verify_shell(Verify *v, const char *command, int engine, int64_t bound_ms);

#endif
