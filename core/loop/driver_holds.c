/* `rolltop policy verify` on a live run: what the engines that serve hold now, against the
 * committed policy. A policy update under way makes the answers worthless, so they are asked again
 * after it, within bounds. */
#include "core/loop/driver_private.h"

#include "core/loop/holds_ask.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 40 };
static const int64_t WAIT_US = 25000000;

struct DriverHolds {
    Driver *d;
    CtlRequest *request;
    HoldsAsk *ask; /* NULL: waits for the end of an update */
    bool answered; /* the asking is over; reported on the tick */
    int64_t version, txn, until_us; /* committed, and newest transaction, when it was asked */
    int tries;
};

static void refuse(CtlRequest *request, const char *message)
{
    Text text;
    text_init(&text, 1024);
    JsonOut out;
    json_begin(&out, &text);
    json_object_begin(&out);
    json_member_bool(&out, "ok", false);
    json_member_string(&out, "message", message);
    json_object_end(&out);
    ctl_reply(request, &text);
    text_free(&text);
}

void driver_holds_free(Driver *d)
{
    if (d->holds) {
        holds_ask_free(d->holds->ask);
        free(d->holds);
        d->holds = NULL;
    }
}

static Err send_call(void *user, int engine, const EngineCall *call, EngineAnswered done,
                     void *done_user, Fault *fault)
{
    DriverHolds *holds = user;
    return fleet_call(holds->d->fleet, engine, call, done, done_user, fault);
}

static void on_done(void *user)
{
    DriverHolds *holds = user;
    holds->answered = true;
}

static void ask(DriverHolds *holds)
{
    Driver *d = holds->d;
    int count = fleet_count(d->fleet);
    HoldsEngine *engines = xcalloc((size_t)count + 1, sizeof *engines);
    for (int i = 0; i < count; i++) {
        FleetEngine e = fleet_engine(d->fleet, i);
        (void)str_format(engines[i].name, sizeof engines[i].name, "%s", e.name);
        (void)str_format(engines[i].address, sizeof engines[i].address, "%s", e.address);
        (void)str_format(engines[i].state, sizeof engines[i].state, "%s",
                         engine_state_name(e.state));
        engines[i].serves = e.admitted;
    }
    HoldsConfig config = {.canary = d->policy.canary, .canary_count = d->policy.canary_count,
                          .vocab = d->model.vocab,
                          .send = send_call, .on_done = on_done, .user = holds};
    holds->tries++;
    holds->answered = false;
    holds->version = loop_committed(d->loop);
    holds->txn = d->sync.next_txn;
    holds->ask = holds_ask_new(&config, engines, count);
    holds->answered = !holds_ask_start(holds->ask);
    free(engines);
}

static void report(DriverHolds *holds)
{
    Driver *d = holds->d;
    const KeptCanary *kept = driver_kept_canary(d, holds->version);
    HoldExpect expect = {.version = holds->version,
                         .digest = d->policy.has_committed ? d->policy.committed.digest : NULL,
                         .logprobs = kept ? kept->logp : NULL,
                         .logprob_count = kept ? kept->count : 0,
                         .tolerance = driver_canary_tolerance(d)};
    Text text;
    text_init(&text, CTL_LINE_MAX - 1);
    holds_ask_report(holds->ask, &expect, &text);
    if (text.cut) {
        refuse(holds->request, "too many engines for one answer");
    } else {
        ctl_reply(holds->request, &text);
    }
    text_free(&text);
}

void driver_holds_tick(Driver *d, int64_t now_us)
{
    DriverHolds *holds = d->holds;
    if (!holds || (holds->ask && !holds->answered)) {
        return;
    }
    bool calm = !driver_syncing(d);
    bool same = holds->ask && calm && holds->txn == d->sync.next_txn &&
                holds->version == loop_committed(d->loop);
    if (same) {
        report(holds);
        driver_holds_free(d);
        return;
    }
    holds_ask_free(holds->ask);
    holds->ask = NULL;
    if (holds->tries >= TRIES || now_us >= holds->until_us) {
        refuse(holds->request, "policy updates come one after the other; ask again, or pause the "
                               "run first");
        driver_holds_free(d);
    } else if (calm) {
        ask(holds);
    }
}

void driver_holds_start(Driver *d, CtlRequest *request)
{
    if (d->holds) {
        refuse(request, "a check of the engines is under way; ask again");
        return;
    }
    if (loop_committed(d->loop) < 0) {
        refuse(request, "no policy is committed yet");
        return;
    }
    d->holds = xcalloc(1, sizeof *d->holds);
    *d->holds = (DriverHolds){.d = d, .request = request,
                              .until_us = clock_mono_us() + WAIT_US};
    driver_holds_tick(d, clock_mono_us());
}
