/* The driver's frame: open everything, run the event loop, close everything within a bound. */
#include "core/loop/driver_private.h"

#include "core/base/fs.h"
#include "core/loop/rules_log.h"
#include "core/net/evloop.h"
#include "store/view.h"

#include <assert.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CLOSE_ROUNDS = 400,        /* of 10 ms: bound of the last goodbye */
    ONE_INTERRUPT_US = 200000  /* two of them so near are one */
};

void driver_event(Driver *d, Severity severity, const char *source, int64_t engine,
                  const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    EventFact fact = {.t_us = clock_wall_us(), .severity = severity, .source = source,
                      .engine = engine, .text = text};
    store_put_event(d->store, &fact);
}

void driver_metric(Driver *d, int64_t step, const char *name, double value)
{
    MetricFact fact = {.step = step, .t_us = clock_wall_us(), .name = name, .value = value};
    store_put_metric(d->store, &fact);
}

char *driver_path(const Driver *d, const char *folder, const char *prefix, int64_t number)
{
    return xasprintf("%s/%s/%s%06lld", d->config->work_dir, folder, prefix, (long long)number);
}

/* ---- durability --------------------------------------------------------------------------- */

void driver_when_durable(Driver *d, void (*then)(void *arg), void *arg)
{
    DurableQueue *q = &d->waits;
    if (q->head > q->count / 2) { /* what was called makes room, even if some always wait */
        q->count -= q->head;
        memmove(q->items, q->items + q->head, q->count * sizeof *q->items);
        q->head = 0;
    }
    if (q->count == q->capacity) {
        q->capacity = q->capacity ? q->capacity * 2 : 64;
        q->items = xrealloc(q->items, q->capacity, sizeof *q->items);
    }
    q->items[q->count++] =
        (DurableWait){.ticket = store_ticket(d->store), .then = then, .arg = arg};
}

static void run_durable(Driver *d)
{
    DurableQueue *q = &d->waits;
    uint64_t durable = store_durable(d->store);
    while (q->head < q->count && q->items[q->head].ticket <= durable) {
        DurableWait wait = q->items[q->head++];
        wait.then(wait.arg);
    }
}

static void on_durable_async(uv_async_t *async)
{
    Driver *d = async->data;
    if (!d->torn_down) {
        run_durable(d);
    }
}

static void on_store_durable(void *user) /* writer thread */
{
    Driver *d = user;
    uv_async_send(&d->durable);
}

/* ---- events into the loop machine --------------------------------------------------------- */

void driver_feed_event(Driver *d, const LoopEvent *event)
{
    loop_feed(d->loop, event, clock_mono_us());
    driver_take_actions(d);
}

void driver_feed(Driver *d, LoopEventKind kind, bool fatal, const char *detail)
{
    LoopEvent event = {.kind = kind, .fatal = fatal, .detail = detail, .version = -1};
    driver_feed_event(d, &event);
}

/* ---- time --------------------------------------------------------------------------------- */

static void watch_log(Driver *d)
{
    Fault why = {0};
    bool recording = store_status(d->store, &why) == STORE_RECORDING;
    if (recording == d->watch.not_recording) {
        d->watch.not_recording = !recording;
        d->watch.not_recording_us = recording ? 0 : clock_mono_us();
        if (recording) {
            driver_event(d, SEVERITY_INFO, "log", 0, "the log records again");
        } else if (d->config->lines) {
            fprintf(d->config->lines, "the log is not recording: %s; %s%srecording goes on by "
                    "itself once it can\n", why.sentence, why.hint, why.hint[0] ? "; " : "");
            fflush(d->config->lines);
        }
    }
}

static void slow_tick(Driver *d, int64_t now_us)
{
    watch_log(d);
    driver_trainer_look(d, now_us);
    driver_rollout_flows(d, now_us);
    driver_rollout_stuck(d, now_us);
    driver_rollout_held(d, now_us);
    driver_take_back(d, now_us);
    driver_diagnose_tick(d, now_us);
    if (d->front.up && !d->shutting) {
        driver_route_all(d);
    }
    driver_check_parts(d);
    int64_t lost_us = d->ready.lost_us > 0 ? now_us - d->ready.lost_us : 0;
    int64_t bound_us = d->config->startup_s * 1000000;
    bool never = !d->ready.ever && now_us >= d->ready.due_us;
    bool lost = lost_us > bound_us * DRIVER_LOST_FACTOR && !d->config->loop.hold_on_failure;
    if ((never || lost) && !loop_finished(d->loop)) {
        char why[224], missing[128];
        driver_parts_missing(d, missing, sizeof missing);
        (void)str_format(why, sizeof why, "%s %s for %lld s", missing,
                         never ? "did not come up" : "is gone",
                         (long long)((never ? bound_us : lost_us) / 1000000));
        driver_feed(d, LOOP_EV_FAIL, true, why);
    }
}

static void begin_teardown(Driver *d);

static void on_tick(uv_timer_t *timer)
{
    Driver *d = timer->data;
    int64_t now_us = clock_mono_us();
    run_durable(d);
    driver_parts_tick(d, now_us);
    driver_trainer_tick(d, now_us);
    driver_disk_tick(d, now_us);
    driver_rollout_tick(d, now_us);
    driver_sync_tick(d, now_us);
    driver_holds_tick(d, now_us);
    driver_members_tick(d);
    if (now_us >= d->slow_due_us) {
        d->slow_due_us = now_us + DRIVER_SLOW_TICK_MS * 1000;
        slow_tick(d, now_us);
    }
    if (d->at_once && !d->shutting && now_us - d->interrupted_us > DRIVER_AT_ONCE_MS * 1000LL) {
        driver_end_now(d);
    }
    if (d->shutting) {
        bool kept = d->at_once || d->waits.head == d->waits.count;
        bool quiet = kept && driver_parts_gone(d);
        if (quiet || clock_mono_us() >= d->shutdown_due_us) {
            begin_teardown(d);
        }
    }
}

static void on_signal(uv_signal_t *handle, int signum)
{
    Driver *d = handle->data;
    (void)signum;
    int64_t now = clock_mono_us();
    if (d->interrupts > 0 && now - d->interrupted_us < ONE_INTERRUPT_US) {
        return; /* wrappers such as timeout(1) send one interrupt twice */
    }
    d->interrupts++;
    if (d->interrupts == 1 && d->watch.not_recording && d->config->lines) {
        fputs("the run stops once the log records again; interrupt again to end it at once\n",
              d->config->lines);
        fflush(d->config->lines);
    }
    d->interrupted_us = now;
    driver_operator_stop(d, "signal", d->interrupts > 1);
}

/* ---- start -------------------------------------------------------------------------------- */

static Err open_log(Driver *d, Fault *fault)
{
    StoreConfig config = {.on_durable = on_store_durable, .user = d,
                          .keep_us = d->config->log_keep_us,
                          .max_bytes = d->config->log_max_bytes};
    Err err = store_open(d->config->log_path, &config, &d->store, fault);
    if (err != ERR_OK) {
        return err;
    }
    const StoreMarks *marks = store_marks(d->store);
    d->session = marks->session + 1;
    d->roll.next_sample = marks->sample + 1;
    d->roll.next_group = marks->group + 1;
    d->sync.next_txn = marks->txn + 1;
    d->next_command = marks->command + 1;
    d->step.next_phase = marks->phase + 1;
    char host[128] = "";
    (void)gethostname(host, sizeof host - 1);
    RunFact run = {.t_us = clock_wall_us(), .run = d->config->run_id, .name = d->config->name,
                   .host = host, .version = ROLLTOP_VERSION,
                   .argv_json = d->config->argv_json, .config_json = d->config->config_json};
    store_put_run(d->store, &run);
    SessionFact session = {.session = d->session, .t_us = clock_wall_us(), .pid = getpid(),
                           .how = d->config->resume ? "resume" : "start"};
    store_put_session(d->store, &session);
    rules_log_put(d->store, d->config->rules, session.t_us);
    return store_wait(d->store, store_ticket(d->store), 10000, fault);
}

static Err open_data(Driver *d, Fault *fault)
{
    const RunConfig *c = d->config;
    Err err = model_config_load(c->hf_checkpoint, &d->model, fault);
    if (err == ERR_OK) {
        err = tokenizer_load(c->hf_checkpoint, &d->tokenizer, fault);
    }
    if (err == ERR_OK) {
        err = data_open(&c->data, &d->roll.data, fault);
    }
    if (err == ERR_OK && c->eval_data.path) {
        err = data_open(&c->eval_data, &d->roll.eval_data, fault);
    }
    return err;
}

typedef struct KeepShort {
    Driver *d;
    int64_t limit;
    Err err;
    Fault fault;
} KeepShort;

static bool keep_short(const DataRow *row, void *user)
{
    KeepShort *keep = user;
    TokenIds ids = {0};
    Err err = tokenizer_encode(keep->d->tokenizer, row->prompt, &ids, &keep->fault);
    if (err != ERR_OK) {
        keep->err = err;
    }
    bool good = (int64_t)ids.count <= keep->limit;
    token_ids_free(&ids);
    return good;
}

/* Long prompts are dropped as slime does; the canary is made of the first prompts' tokens. */
static Err shape_data(Driver *d, Fault *fault)
{
    KeepShort keep = {.d = d, .limit = d->config->max_prompt_len};
    if (keep.limit > 0) {
        data_filter(d->roll.data, keep_short, &keep);
        if (d->roll.eval_data) {
            data_filter(d->roll.eval_data, keep_short, &keep);
        }
        if (keep.err != ERR_OK) {
            return fault_set(fault, keep.err, keep.fault.hint, "%s", keep.fault.sentence);
        }
    }
    if (data_count(d->roll.data) == 0) {
        return fault_set(fault, ERR_ARG, "give a longer --rollout-max-prompt-len",
                         "no prompt of %s is short enough", d->config->data.path);
    }
    for (int64_t row = 0;
         row < data_count(d->roll.data) && d->policy.canary_count < DRIVER_CANARY_TOKENS; row++) {
        TokenIds ids = {0};
        Err err = tokenizer_encode(d->tokenizer, data_row(d->roll.data, row)->prompt, &ids, fault);
        for (size_t i = 0; i < ids.count && d->policy.canary_count < DRIVER_CANARY_TOKENS &&
                           d->policy.canary_count < d->model.max_positions - 1; i++) {
            d->policy.canary[d->policy.canary_count++] = ids.ids[i];
        }
        token_ids_free(&ids);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static Err make_folders(Driver *d, Fault *fault)
{
    static const char *const folders[] = {"policies", "trainer"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *path = fs_join(d->config->work_dir, folders[i]);
        Err err = fs_mkdirs(path, 0755, fault);
        free(path);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static Err open_net(Driver *d, Fault *fault)
{
    HttpClientConfig http = {.connect_ms = 3000, .silence_ms = 60000, .total_ms = 600000,
                             .max_body = 256 << 20};
    Err err = http_client_new(&d->uv, &http, &d->http, fault);
    http.at_once = true;
    err = err ? err : http_client_new(&d->uv, &http, &d->control_http, fault);
    if (err == ERR_OK) {
        err = ctl_server_new(&d->uv, d->config->socket_path, driver_on_control, d, &d->ctl, fault);
    }
    return err;
}

/* On failure nothing stays open. */
static Err open_uv(Driver *d, Fault *fault)
{
    Err err = evloop_open(&d->uv, &d->sigint, &d->sigterm, fault);
    if (err != ERR_OK) {
        return err;
    }
    uv_timer_init(&d->uv, &d->tick); /* cannot fail */
    int rc = uv_async_init(&d->uv, &d->durable, on_durable_async);
    if (rc != 0) {
        (void)evloop_close(&d->uv);
        return fault_set(fault, ERR_IO, "raise the limit of open files (ulimit -n)",
                         "no event loop can be made: %s", uv_strerror(rc));
    }
    d->tick.data = d->durable.data = d->sigint.data = d->sigterm.data = d;
    return ERR_OK;
}

static Err start_all(Driver *d, Fault *fault)
{
    LoopConfig loop = d->config->loop;
    Err err = open_data(d, fault);
    err = err != ERR_OK ? err : shape_data(d, fault);
    err = err != ERR_OK ? err : make_folders(d, fault);
    err = err != ERR_OK ? err : open_net(d, fault);
    err = err != ERR_OK ? err : open_log(d, fault);
    if (err != ERR_OK) {
        return err;
    }
    loop.first_version = store_marks(d->store)->policy_version + 1;
    loop.first_version = loop.first_version < 1 ? 1 : loop.first_version;
    driver_state_begin(d);
    if (d->config->resume) {
        err = driver_resume(d, &loop, fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    d->loop = loop_new(&loop);
    d->watch.diagnose = diagnose_new(store_marks(d->store)->incident + 1, d->config->rules);
    err = driver_delta_start(d, fault);
    err = err != ERR_OK ? err : driver_parts_start(d, fault);
    err = err != ERR_OK ? err : driver_trainer_start(d, fault);
    return err;
}

/* ---- end ---------------------------------------------------------------------------------- */

static void begin_teardown(Driver *d)
{
    if (d->torn_down) {
        return;
    }
    d->torn_down = true;
    uv_stop(&d->uv);
}

static void free_jobs(Driver *d)
{
    driver_sync_free(d);
    driver_holds_free(d);
    driver_job_free(d->roll.batch);
    driver_job_free(d->roll.eval);
    d->roll.batch = d->roll.eval = NULL;
}

static void close_log(Driver *d)
{
    if (!d->store) {
        return;
    }
    SessionFact session = {.session = d->session, .t_us = clock_wall_us(),
                           .ended_us = clock_wall_us(), .pid = getpid(), .how = d->end_reason};
    store_put_session(d->store, &session);
    store_close(d->store);
    d->store = NULL;
}

static void remove_empty(const Driver *d)
{
    static const char *const folders[] = {"policies", "trainer"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *path = fs_join(d->config->work_dir, folders[i]);
        (void)rmdir(path);
        free(path);
    }
    (void)rmdir(d->config->work_dir);
}

/* The order matters: calls in flight end first (their callbacks still need jobs and store),
 * then what they used. */
static void teardown(Driver *d)
{
    d->torn_down = true;
    ctl_server_free(d->ctl);
    driver_trainer_stop(d);
    driver_parts_free(d);
    driver_members_stop(d);
    fleet_free(d->fleet);
    http_client_free(d->http);
    http_client_free(d->control_http);
    uv_unref((uv_handle_t *)&d->durable); /* stays open for the writer thread */
    for (int i = 0; i < CLOSE_ROUNDS && uv_run(&d->uv, UV_RUN_NOWAIT) != 0; i++) {
        if (i > 3 && !uv_is_closing((uv_handle_t *)&d->tick)) {
            uv_close((uv_handle_t *)&d->tick, NULL);
            uv_close((uv_handle_t *)&d->sigint, NULL);
            uv_close((uv_handle_t *)&d->sigterm, NULL);
        }
        if (i > 5 && !uv_loop_alive(&d->uv)) {
            break;
        }
        clock_sleep_us(i < 50 ? 1000 : 10000);
    }
    free_jobs(d);
    close_log(d); /* the writer thread ends here; only now may the async go */
    bool still = !evloop_close(&d->uv); /* a look at DNS that nobody can call back */
    driver_members_free(d);
    loop_free(d->loop);
    diagnose_free(d->watch.diagnose);
    data_free(d->roll.data);
    data_free(d->roll.eval_data);
    tokenizer_free(d->tokenizer);
    if (d->policy.has_committed) {
        artifact_free(&d->policy.committed);
    }
    if (d->policy.has_pending) {
        artifact_free(&d->policy.pending);
    }
    free(d->waits.items);
    free(d->seats);
    free(d->train.dir);
    if (!still) {
        free(d);
    }
}

Err loop_run(const RunConfig *config, void (*ready)(void *user), void *user, int *status,
             Fault *fault)
{
    Driver *d = xcalloc(1, sizeof *d);
    d->config = config;
    d->fault = fault;
    d->status = 3;
    d->step.eval_reward = NAN;
    (void)str_format(d->end_reason, sizeof d->end_reason, "ended");
    (void)signal(SIGPIPE, SIG_IGN);
    Err err = open_uv(d, fault);
    if (err != ERR_OK) {
        free(d);
        return err;
    }
    err = start_all(d, fault);
    if (err == ERR_OK) {
        d->ready.due_us = clock_mono_us() + config->startup_s * 1000000;
        uv_timer_start(&d->tick, on_tick, 1, DRIVER_TICK_MS);
        uv_signal_start(&d->sigint, on_signal, SIGINT);
        uv_signal_start(&d->sigterm, on_signal, SIGTERM);
        if (ready) {
            ready(user);
        }
        uv_run(&d->uv, UV_RUN_DEFAULT);
        *status = d->status;
        if (d->status != 0) {
            (void)fault_set(fault, ERR_STATE, NULL, "%s", d->end_reason);
        }
    }
    if (err != ERR_OK && !d->store) {
        remove_empty(d); /* nothing was started: nothing is left */
    }
    teardown(d);
    return err;
}
