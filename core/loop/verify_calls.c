/* Control calls of verify: one phase at a time on every chosen engine at once. The order is that
 * of the policy transaction (pause, flush, load, read back, compare, continue), without its
 * ledger: verify restores what it found instead of deciding. */
#include "core/loop/verify_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CALL_MS = 60000, LOAD_MS = 600000, FLUSHES = 20, FLUSH_WAIT_MS = 200 };
static const float CANARY_TOLERANCE = 0.3F; /* engines may compute in BF16 */
static const int32_t canary[VERIFY_CANARY] = {1, 2, 3, 4, 5, 6, 7, 8};

static void on_answer(const EngineAnswer *answer, void *user)
{
    VerifyEngine *e = user;
    e->answered = true;
    e->ok = answer->err == ERR_OK;
    e->answer = *answer;
    (void)str_format(e->error, sizeof e->error, "%s",
                     e->ok ? "" : answer->fault.sentence[0] ? answer->fault.sentence
                                                            : answer->outcome);
}

static bool all_answered(Verify *v, void *arg)
{
    const bool *chosen = arg;
    for (int i = 0; i < v->count; i++) {
        if (chosen[i] && !v->engines[i].answered) {
            return false;
        }
    }
    return true;
}

static bool never(Verify *v, void *arg)
{
    (void)v;
    (void)arg;
    return false;
}

/* Without them there is no update; everything else is a check that an engine may lack. */
static bool needed(EngineCallKind kind)
{
    return kind == ENGINE_PAUSE || kind == ENGINE_UPDATE_DISK || kind == ENGINE_CONTINUE;
}

/* One call to each; false with words of the first that failed. An engine that does not offer a
 * check counts as done. */
static bool each(Verify *v, const bool *chosen, const EngineCall *call, const char *what, char *why,
                 size_t why_size)
{
    int64_t bound = call->kind == ENGINE_UPDATE_DISK ? LOAD_MS : CALL_MS;
    for (int i = 0; i < v->count; i++) {
        VerifyEngine *e = &v->engines[i];
        Fault fault = {0};
        e->answered = false;
        if (chosen[i] && fleet_call(v->fleet, i, call, on_answer, e, &fault) != ERR_OK) {
            e->answered = true;
            e->ok = false;
            (void)str_format(e->error, sizeof e->error, "%.150s", fault.sentence);
        }
    }
    bool cancelled = v->cancelled;
    v->cancelled = false; /* every call ends by itself, and its answer is needed to tidy up */
    bool all = verify_wait(v, all_answered, (void *)chosen, bound + CALL_MS);
    v->cancelled = v->cancelled || cancelled;
    for (int i = 0; i < v->count; i++) {
        const VerifyEngine *e = &v->engines[i];
        bool lacks = e->answered && e->answer.err == ERR_UNSUPPORTED && !e->ok &&
                     !needed(call->kind);
        if (chosen[i] && !lacks && (!all || !e->ok)) {
            (void)str_format(why, why_size, "%s: %s: %s", fleet_engine(v->fleet, i).name, what,
                             e->answered ? e->error : "no answer");
            return false;
        }
    }
    return true;
}

static bool flush(Verify *v, const bool *chosen, char *why, size_t why_size)
{
    const EngineCall call = {.kind = ENGINE_FLUSH};
    bool done = false;
    for (int i = 0; i < FLUSHES && !done; i++) {
        done = each(v, chosen, &call, "flush", why, why_size);
        if (!done) { /* 400 while requests are still leaving */
            (void)verify_wait(v, never, NULL, FLUSH_WAIT_MS);
        }
    }
    return done;
}

static bool same_weights(Verify *v, const bool *chosen, char *why, size_t why_size)
{
    const EngineCall call = {.kind = ENGINE_CHECKSUM};
    if (!each(v, chosen, &call, "checksum", why, why_size)) {
        return false;
    }
    for (int i = 0; i < v->count; i++) {
        VerifyEngine *e = &v->engines[i];
        if (chosen[i]) {
            (void)str_format(e->digest, sizeof e->digest, "%s", e->ok ? e->answer.text : "");
        }
    }
    int first = -1;
    for (int i = 0; i < v->count; i++) { /* with those that were brought over before, too */
        const char *digest = v->engines[i].digest;
        if (!digest[0] || !verify_alive(v, i)) {
            continue;
        }
        if (first >= 0 && strcmp(digest, v->engines[first].digest) != 0) {
            (void)str_format(why, why_size, "%s and %s hold different weights",
                             fleet_engine(v->fleet, first).name, fleet_engine(v->fleet, i).name);
            return false;
        }
        first = first < 0 ? i : first;
    }
    return true;
}

/* A fixed prompt's log-probs must agree between the engines: same weights, same numbers. */
static bool same_numbers(Verify *v, const bool *chosen, char *why, size_t why_size)
{
    const EngineCall call = {.kind = ENGINE_SCORE, .ids = canary, .id_count = VERIFY_CANARY};
    int first = -1;
    if (!each(v, chosen, &call, "fixed prompt", why, why_size)) {
        return false;
    }
    for (int i = 0; i < v->count; i++) {
        const EngineAnswer *a = &v->engines[i].answer;
        if (!chosen[i] || !v->engines[i].ok) {
            continue;
        }
        const EngineAnswer *b = first >= 0 ? &v->engines[first].answer : a;
        for (int k = 0; k < a->logprob_count; k++) {
            float gap = fabsf(a->logprobs[k] - b->logprobs[k]);
            if (b->logprob_count != a->logprob_count || !(gap <= CANARY_TOLERANCE)) {
                (void)str_format(why, why_size, "%s and %s score a fixed prompt differently",
                                 fleet_engine(v->fleet, first < 0 ? i : first).name,
                                 fleet_engine(v->fleet, i).name);
                return false;
            }
        }
        first = first < 0 ? i : first;
    }
    return true;
}

static bool check_version(Verify *v, const bool *chosen, int64_t version, char *why,
                          size_t why_size)
{
    const EngineCall call = {.kind = ENGINE_MODEL_INFO};
    if (!each(v, chosen, &call, "model info", why, why_size)) {
        return false;
    }
    for (int i = 0; i < v->count; i++) {
        int64_t reported = v->engines[i].answer.weight_version;
        if (chosen[i] && reported != version) {
            (void)str_format(why, why_size, "%s reports version %lld, not %lld",
                             fleet_engine(v->fleet, i).name, (long long)reported,
                             (long long)version);
            return false;
        }
    }
    return true;
}

bool verify_bring(Verify *v, const bool *chosen, const char *path, int64_t version, char *why,
                  size_t why_size)
{
    const EngineCall pause = {.kind = ENGINE_PAUSE, .text = "abort"};
    const EngineCall load = {.kind = ENGINE_UPDATE_DISK, .text = path, .version = version,
                             .timeout_ms = LOAD_MS};
    const EngineCall go_on = {.kind = ENGINE_CONTINUE};
    char ignored[256];
    for (int i = 0; i < v->count; i++) {
        v->engines[i].touched = v->engines[i].touched || chosen[i];
    }
    bool good = each(v, chosen, &pause, "pause", why, why_size) &&
                flush(v, chosen, why, why_size) &&
                each(v, chosen, &load, "update", why, why_size) &&
                check_version(v, chosen, version, why, why_size) &&
                same_weights(v, chosen, why, why_size);
    bool went_on = each(v, chosen, &go_on, "continue", good ? why : ignored,
                        good ? why_size : sizeof ignored);
    good = good && went_on && same_numbers(v, chosen, why, why_size);
    for (int i = 0; i < v->count && good; i++) {
        if (chosen[i]) {
            fleet_set_verified(v->fleet, i, version);
        }
    }
    return good;
}

bool verify_read(Verify *v, char *why, size_t why_size)
{
    const EngineCall call = {.kind = ENGINE_MODEL_INFO};
    bool chosen[VERIFY_ENGINES_MAX];
    for (int i = 0; i < v->count; i++) {
        chosen[i] = verify_alive(v, i);
    }
    return each(v, chosen, &call, "model info", why, why_size);
}

void verify_continue(Verify *v)
{
    const EngineCall call = {.kind = ENGINE_CONTINUE};
    char ignored[256];
    bool chosen[VERIFY_ENGINES_MAX];
    for (int i = 0; i < v->count; i++) {
        chosen[i] = v->engines[i].touched && verify_alive(v, i);
    }
    (void)each(v, chosen, &call, "continue", ignored, sizeof ignored);
}
