/* Going on from the last durable step: which step, which trainer state, where in the prompts.
 * The policy is published anew from that state under the next version number, so that every
 * engine, whatever it holds, comes to it by an ordinary transaction. */
#include "core/loop/driver_private.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/policy/recover.h"
#include "store/query.h"

#include <stdlib.h>
#include <string.h>

static const int64_t SETTLE_US = 6000000; /* what a dead core sent arrives within 5 s or never */

typedef struct LastStep {
    int64_t step, position;
    int64_t state_step; /* of the newest state that the log names; -1: none */
    char *state;
} LastStep;

Err driver_log_row(const char *path, const char *sql, cJSON **row, Fault *fault)
{
    char *text = NULL;
    size_t n = 0;
    FILE *memory = open_memstream(&text, &n);
    *row = NULL;
    if (!memory) {
        return fault_set(fault, ERR_MEMORY, NULL, "no memory to read %s", path);
    }
    Err err = query_sql(path, sql, true, memory, fault);
    fclose(memory);
    Str rest = {text, n};
    Str line = {0};
    if (err == ERR_OK && str_split(&rest, '\n', &line) && line.n > 1) {
        err = json_parse(line, 1 << 20, path, row, fault);
    }
    free(text);
    return err;
}

static Err last_step(const char *path, LastStep *last, Fault *fault)
{
    cJSON *row = NULL;
    Err err = driver_log_row(path, "select step, data_position from step where outcome = 'ok' "
                      "order by step desc limit 1", &row, fault);
    *last = (LastStep){.step = json_i64(row, "step", -1),
                       .position = json_i64(row, "data_position", 0), .state_step = -1};
    cJSON_Delete(row);
    if (err == ERR_OK) {
        err = driver_log_row(path, "select step, trainer_state from step where outcome = 'ok' and "
                      "trainer_state is not null order by step desc limit 1", &row, fault);
        last->state_step = json_i64(row, "step", -1);
        last->state = row ? xstrdup(json_string(row, "trainer_state", "")) : NULL;
        cJSON_Delete(row);
    }
    return err;
}

/* Where the prompts stood after that step. */
static int64_t position_after(const char *path, int64_t step)
{
    char sql[160];
    cJSON *row = NULL;
    (void)str_format(sql, sizeof sql, "select data_position from step where outcome = 'ok' and "
                     "step = %lld order by step_id desc limit 1", (long long)step);
    Err err = driver_log_row(path, sql, &row, NULL);
    int64_t position = err == ERR_OK ? json_i64(row, "data_position", 0) : 0;
    cJSON_Delete(row);
    return position;
}

/* The steps after the state are trained again from the log; where that no longer holds their
 * samples, they are done again altogether. */
static void back_to_state(Driver *d, LastStep *last)
{
    Fault fault = {0};
    if (driver_can_replay(d, d->train.state_step + 1, last->step, &fault)) {
        return;
    }
    driver_event(d, SEVERITY_WARN, "core", 0, "steps %lld to %lld are done again: the state %s is "
                 "older, and %s", (long long)d->train.state_step + 1, (long long)last->step,
                 d->train.dir, fault.sentence);
    last->step = d->train.done = d->train.state_step;
    last->position = position_after(d->config->log_path, last->step);
}

/* Transactions that the dead core left open are closed by the ledger's rule (recover.h): a durable
 * commit stands, anything else went back. The SYNC to come brings every engine to one policy. */
static void close_open_txns(Driver *d)
{
    int64_t closed = 0;
    Recovery recovery;
    recover_begin(&recovery);
    for (int i = 0; i < 1000; i++) { /* a handful in practice; bounded all the same */
        cJSON *row = NULL;
        char sql[192];
        (void)str_format(sql, sizeof sql,
                         "select txn_id, from_version, to_version, decided from txn "
                         "where ended_us is null and txn_id > %lld order by txn_id limit 1",
                         (long long)closed);
        if (driver_log_row(d->config->log_path, sql, &row, NULL) != ERR_OK || !row) {
            return;
        }
        closed = json_i64(row, "txn_id", 0);
        LedgerRow open = {.txn = closed, .from_version = json_i64(row, "from_version", -1),
                          .to_version = json_i64(row, "to_version", -1),
                          .decided = (int)json_i64(row, "decided", -1)};
        RecoverClose write = recover_row(&recovery, &open);
        TxnEndFact end = {.txn = closed, .t_us = clock_wall_us(),
                          .outcome = "abandoned: the core ended; settled by the next transaction"};
        store_put_txn_end(d->store, &end);
        if (write.state) {
            PolicyStateFact state = {.version = open.to_version, .t_us = clock_wall_us(),
                                     .txn = closed,
                                     .state = write.committed ? POLICY_COMMITTED
                                                              : POLICY_ROLLED_BACK,
                                     .reason = "the core ended"};
            store_put_policy_state(d->store, &state);
        }
        cJSON_Delete(row);
    }
}

/* Incidents that were open when the core died: what they were about ended with its children. */
static void close_open_incidents(Driver *d)
{
    int64_t closed = 0;
    for (int i = 0; i < 1000; i++) {
        cJSON *row = NULL;
        char sql[224];
        (void)str_format(sql, sizeof sql,
                         "select incident_id, onset_us, class, severity, engine, evidence, "
                         "next_key from incident where ended_us is null and incident_id > %lld "
                         "order by incident_id limit 1", (long long)closed);
        if (driver_log_row(d->config->log_path, sql, &row, NULL) != ERR_OK || !row) {
            return;
        }
        closed = json_i64(row, "incident_id", 0);
        int64_t severity = json_i64(row, "severity", SEVERITY_WARN);
        IncidentFact fact = {.incident = closed, .onset_us = json_i64(row, "onset_us", 0),
                             .ended_us = clock_wall_us(),
                             .class_name = json_string(row, "class", ""),
                             .severity = (Severity)severity,
                             .engine = json_i64(row, "engine", 0),
                             .evidence = json_string(row, "evidence", ""),
                             .next_key = json_string(row, "next_key", "")};
        store_put_incident(d->store, &fact);
        cJSON_Delete(row);
    }
}

Err driver_resume(Driver *d, LoopConfig *loop, Fault *fault)
{
    LastStep last;
    Err err = last_step(d->config->log_path, &last, fault);
    if (err != ERR_OK) {
        return err;
    }
    close_open_txns(d);
    close_open_incidents(d);
    if (last.step >= 0) {
        driver_state_resume(d, last.step, last.state, last.state_step);
        back_to_state(d, &last);
        loop->start_step = last.step + 1;
        int64_t rows = data_count(d->roll.data);
        DataPosition position = {.epoch = last.position / rows, .offset = last.position % rows};
        data_seek(d->roll.data, position);
    }
    free(last.state);
    if (d->config->engine_addr_count > 0) { /* engines of others outlived the core */
        d->sync.settle_us = clock_mono_us() + SETTLE_US;
    }
    driver_event(d, SEVERITY_INFO, "core", 0, "resumed at step %lld", (long long)loop->start_step);
    return ERR_OK;
}
