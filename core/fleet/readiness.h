/* Can the frontend serve anybody now? Pure. Its /health says that it runs and lists dead workers
 * for up to 13 s; /v1/models/ID/ready counts the workers that it would give a request to: none
 * while each is set aside after a failure, or not routable yet (dynamo-api 2.2, 4.1).
 *
 * One question a look: the list of models each READINESS_MODELS_US, else whether the model is
 * ready. Several models mean that engines registered under different names (an update reached one
 * before its sidecar had registered): /generate refuses everything from then on.
 * Frontends without these routes stay READINESS_UNKNOWN, which stops nothing. */
#ifndef ROLLTOP_FLEET_READINESS_H
#define ROLLTOP_FLEET_READINESS_H

#include "core/base/str.h"

typedef enum Readiness {
    READINESS_UNKNOWN,
    READINESS_READY,
    READINESS_NONE, /* no worker behind it would be given a request */
    READINESS_SPLIT /* more than one model */
} Readiness;

enum {
    READINESS_MODEL = 512,
    READINESS_PATH = 3 * READINESS_MODEL + 32,
    READINESS_MODELS_US = 5000000,
    READINESS_AGAIN_US = 30000000 /* until a missing route is asked for once more */
};

typedef struct ReadinessState { /* all zero at first, and again when the frontend was away */
    Readiness now;
    int workers;                 /* with READY; else 0 */
    char model[READINESS_MODEL]; /* "" not known */
    char words[160];             /* why it is as it is, for a person */
    bool settled;                /* UNKNOWN is the answer, not the lack of one */
    bool asked_models, route;    /* route: it has answered the question before */
    int64_t models_due_us, ready_due_us;
} ReadinessState;

/* The path to GET at this look; false: none. */
bool readiness_path(ReadinessState *state, int64_t now_us, char out[READINESS_PATH]);
/* Its reply; true when `now` has changed. Bodies that cannot be read change nothing. */
bool readiness_reply(ReadinessState *state, int status, Str body, int64_t now_us);

#endif
