#include "tui/snapshot.h"

#include "core/base/clock.h"
#include "core/diagnose/diagnose.h"

#include <string.h>

enum { STRIP_CELL_MIN_US = 2000000 }; /* so that a probe a second leaves no holes */

#define FIND_ROW(list, field, wanted)                                                             \
    do {                                                                                          \
        for (size_t i = 0; i < (list).count; i++) {                                               \
            if ((list).rows[i].field == (wanted)) {                                               \
                return &(list).rows[i];                                                           \
            }                                                                                     \
        }                                                                                         \
        return NULL;                                                                              \
    } while (0)

const EngineRow *snapshot_engine(const Snapshot *snap, int64_t engine)
{
    FIND_ROW(snap->engines, engine, engine);
}

const char *snapshot_engine_name(const Snapshot *snap, int64_t engine)
{
    const EngineRow *row = snapshot_engine(snap, engine);
    return row && row->name ? row->name : "-";
}

const TailRow *snapshot_tail(const Snapshot *snap, int64_t sample)
{
    FIND_ROW(snap->tail, sample, sample);
}

const StepRow *snapshot_step(const Snapshot *snap, int64_t step)
{
    FIND_ROW(snap->steps, step, step);
}

const PolicyRow *snapshot_policy(const Snapshot *snap, int64_t version)
{
    FIND_ROW(snap->policies, version, version);
}

const EventRow *snapshot_event(const Snapshot *snap, int64_t id)
{
    FIND_ROW(snap->events, id, id);
}

const CommandRow *snapshot_command(const Snapshot *snap, int64_t command)
{
    FIND_ROW(snap->commands, command, command);
}

const AlertRow *snapshot_alert(const Snapshot *snap, int64_t incident)
{
    FIND_ROW(snap->alerts, incident, incident);
}

static bool class_is(const AlertRow *row, DiagClass class_id)
{
    return row->class_name && strcmp(row->class_name, diagnose_class_name(class_id)) == 0;
}

const TailRow *snapshot_alert_sample(const Snapshot *snap, const AlertRow *row)
{
    bool of_all = class_is(row, DIAG_TAIL) || class_is(row, DIAG_PHASE_STALL);
    bool of_engine = class_is(row, DIAG_HEALTH_LIES) || class_is(row, DIAG_LEFT_PAUSED);
    for (size_t i = 0; i < snap->tail.count; i++) {
        if (of_all || (of_engine && snap->tail.rows[i].engine == row->engine)) {
            return &snap->tail.rows[i];
        }
    }
    return NULL;
}

const AlertRow *snapshot_engine_alert(const Snapshot *snap, int64_t engine)
{
    for (size_t i = 0; i < snap->alerts.count; i++) { /* worst first */
        const AlertRow *row = &snap->alerts.rows[i];
        if (row->engine == engine && row->severity != SEVERITY_INFO) {
            return row;
        }
    }
    return NULL;
}

const DamageRow *snapshot_damage(const Snapshot *snap)
{
    for (size_t i = 0; i < snap->damage_count; i++) {
        const DamageRow *row = &snap->damage[i];
        if (row->from_us <= snap->t_us && (snap->t_us < row->to_us || row->to_us == 0)) {
            return row;
        }
    }
    return NULL;
}

bool snapshot_fades(const Snapshot *snap, int64_t t_us)
{
    return snap->run.core_alive || t_us - snap->run.last_us < SNAP_FADE_US;
}

static void read_detail(View *view, const SnapRequest *request, Arena *arena, Snapshot *out)
{
    int64_t t = request->t_us;
    switch (request->detail) {
    case DETAIL_ENGINE: {
        const char *name = snapshot_engine_name(out, request->detail_id);
        out->probe_count = view_probes(view, request->detail_id, t, SNAP_PROBES, arena,
                                       &out->probes);
        out->line_count = view_child_lines(view, name, t, SNAP_CHILD_LINES, arena, &out->lines);
        break;
    }
    case DETAIL_SAMPLE:
        out->has_sample = view_sample(view, request->detail_id, t, arena, &out->sample);
        break;
    case DETAIL_STEP:
        out->samples = view_samples(view, request->detail_id, t, SNAP_SAMPLES,
                                    request->sample_offset, arena);
        break;
    case DETAIL_POLICY: {
        const PolicyRow *row = snapshot_policy(out, request->detail_id);
        if (row && row->txn > 0) {
            out->has_txn = view_txn(view, row->txn, t, arena, &out->txn);
        }
        break;
    }
    case DETAIL_ALERT:
        out->rules = view_rules(view, t, arena);
        break;
    case DETAIL_NONE:
    case DETAIL_EVENT:
    case DETAIL_COMMAND:
    case DETAIL_COMPARE:
        break;
    }
}

void snapshot_read_strip(View *view, int asked, Arena *arena, Snapshot *out)
{
    int64_t from = out->run.first_us;
    int64_t to = out->run.last_us + 1;
    if (asked < 1 || from <= 0 || to <= from) {
        return;
    }
    int64_t most = 1 + (to - from) / STRIP_CELL_MIN_US;
    int cells = most < asked ? (int)most : asked;
    if (view_strip(view, from, to, cells, arena, &out->strip)) {
        out->strip_cells = cells;
        out->strip_asked = asked;
        out->strip_from_us = from;
        out->strip_to_us = to;
    }
}

void snapshot_read_now(View *view, int64_t engine, int64_t now_us, Arena *scratch, Snapshot *out)
{
    arena_reset(scratch);
    EngineList engines = view_engines(view, now_us, 1, 1000000, scratch);
    out->has_now = false;
    for (size_t i = 0; i < engines.count; i++) {
        if (engines.rows[i].engine == engine) {
            out->now = engines.rows[i];
            out->now.name = out->now.address = out->now.reason = NULL; /* they die with scratch */
            out->has_now = true;
        }
    }
}

/* The first read that failed is why; a later one that went well does not make the picture whole. */
static void keep_fault(const View *view, Snapshot *out)
{
    if (out->fault.code == ERR_OK) {
        view_fault(view, &out->fault);
    }
}

static void read_loop(View *view, const SnapRequest *request, Arena *arena, Snapshot *out)
{
    int64_t t = request->t_us;
    out->steps = view_steps(view, t, SNAP_STEPS, arena);
    keep_fault(view, out);
    int64_t step = request->step_engines;
    if (step < 0 && out->steps.count > 0) {
        step = out->steps.rows[0].step;
    }
    if (step >= 0) {
        out->span_count = view_step_engines(view, step, t, arena, &out->spans);
        keep_fault(view, out);
    }
    out->events = view_events(view, t, request->event_limit, 0, request->event_filter, arena);
    keep_fault(view, out);
    out->commands = view_commands(view, t, SNAP_COMMANDS, arena);
    keep_fault(view, out);
    if (request->policies) {
        out->policies = view_policies(view, t, SNAP_POLICIES, arena);
        keep_fault(view, out);
        out->txns = view_txns(view, t, SNAP_TXNS, arena);
        keep_fault(view, out);
    }
    if (request->curves) {
        out->eval_count = view_curve(view, "eval_reward_mean", t, SNAP_CURVE, arena, &out->eval);
        keep_fault(view, out);
        out->reward_count = view_curve(view, "reward_mean", t, SNAP_CURVE, arena, &out->reward);
        keep_fault(view, out);
    }
}

static Err read_parts(View *view, const SnapRequest *request, Arena *arena, Snapshot *out)
{
    int64_t t = request->t_us;
    if (!view_run(view, arena, &out->run) || !view_header(view, t, arena, &out->header)) {
        Err err = view_fault(view, &out->fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    out->engines = view_engines(view, t, request->spark_count, request->spark_us, arena);
    keep_fault(view, out);
    out->alerts = view_alerts(view, t, SNAP_ALERTS, arena);
    keep_fault(view, out);
    out->tail = view_tail(view, t, request->tail_limit, arena);
    keep_fault(view, out);
    read_loop(view, request, arena, out);
    snapshot_read_strip(view, request->strip_cells, arena, out);
    keep_fault(view, out);
    read_detail(view, request, arena, out);
    keep_fault(view, out);
    out->damage_count = view_damage(view, SNAP_DAMAGE, arena, &out->damage);
    keep_fault(view, out);
    out->ready = true;
    return out->fault.code;
}

Err snapshot_read(View *view, const SnapRequest *request, Arena *arena, Snapshot *out)
{
    int64_t began = clock_mono_us();
    memset(out, 0, sizeof *out);
    arena_reset(arena);
    out->t_us = request->t_us;
    out->detail = request->detail;
    out->detail_id = request->detail_id;
    view_hold(view);
    Err err = read_parts(view, request, arena, out);
    view_release(view);
    out->read_us = clock_mono_us() - began;
    return err;
}
