/* Everything a frame shows, read from the log for one moment T into one arena that dies at the
 * next refresh. Views and model only read it; tests make one by hand. */
#ifndef ROLLTOP_TUI_SNAPSHOT_H
#define ROLLTOP_TUI_SNAPSHOT_H

#include "store/view.h"

typedef enum DetailKind {
    DETAIL_NONE,
    DETAIL_ENGINE,
    DETAIL_SAMPLE,
    DETAIL_STEP,
    DETAIL_POLICY,
    DETAIL_EVENT,
    DETAIL_COMMAND,
    DETAIL_ALERT,
    DETAIL_COMPARE /* two engines, steps or policies beside each other */
} DetailKind;

enum {
    SNAP_STEPS = 24,
    SNAP_POLICIES = 64,
    SNAP_TXNS = 16,
    SNAP_ALERTS = 64,
    SNAP_COMMANDS = 100,
    SNAP_CURVE = 400,
    SNAP_CHILD_LINES = 40,
    SNAP_SAMPLES = 200,
    SNAP_PROBES = 40,
    SNAP_DAMAGE = 128,
    SNAP_FADE_US = 660000000, /* the longest of what fades, and a minute */
    SNAP_ARENA_MAX = 64 << 20
};

typedef struct SnapRequest { /* what the model wants for the next frame */
    int64_t t_us;
    int spark_count;
    int64_t spark_us;
    size_t tail_limit, event_limit;
    const char *event_filter; /* NULL: all; borrowed */
    bool curves, policies, commands;
    int strip_cells; /* 0: no strip */
    int64_t step_engines;  /* step for the waterfall, -1: the newest */
    DetailKind detail;
    int64_t detail_id;
    size_t sample_offset;
} SnapRequest;

typedef struct Snapshot {
    bool ready; /* false before the first read */
    int64_t t_us;
    Fault fault; /* why the read failed; what is shown then is the last good one */
    RunView run;
    HeaderView header;
    EngineList engines;
    TailList tail;
    StepList steps;
    EngineSpan *spans; /* of steps.rows[0], or of the step in detail */
    size_t span_count;
    PolicyList policies;
    TxnList txns;
    EventList events;
    AlertList alerts;
    RuleList rules; /* of an alert in detail: what raised it */
    CommandList commands;
    CurvePoint *eval, *reward;
    size_t eval_count, reward_count;
    StripCell *strip;
    int strip_cells, strip_asked; /* fewer than were asked for while the log is short */
    int64_t strip_from_us, strip_to_us;
    DamageRow *damage; /* what cannot be read of the log, as far as it is known */
    size_t damage_count;
    /* detail */
    bool has_sample, has_txn;
    SampleView sample;
    SampleList samples;
    TxnRow txn;
    ChildLineRow *lines;
    size_t line_count;
    ProbeRow *probes;
    size_t probe_count;
    bool has_now; /* in the past of a live run: the same engine as it is now; no strings */
    EngineRow now;
    DetailKind detail; /* what the detail was read for */
    int64_t detail_id;
    bool loading;      /* drawn before the read that the last key asked for */
    int64_t read_us; /* how long the reads took */
} Snapshot;

/* Reads into *out; `arena` is reset first. On failure *out says why in fault and keeps nothing
 * else, so the caller keeps its last good one in the other arena. */
Err snapshot_read(View *view, const SnapRequest *request, Arena *arena, Snapshot *out);

/* Is a picture of `t_us` another one than this, though nothing was written? Ages are counted on
 * without a read; rates, counts of the last ten minutes and spark lines fade; samples in flight
 * grow older while the core lives. */
bool snapshot_fades(const Snapshot *snap, int64_t t_us);

/* The strip of a snapshot that was read without one. */
void snapshot_read_strip(View *view, int asked, Arena *arena, Snapshot *out);

/* In the past of a live run: how the engine in detail is at `now_us`, beside how it was. */
void snapshot_read_now(View *view, int64_t engine, int64_t now_us, Arena *scratch, Snapshot *out);

/* What cannot be read at the moment that is shown; NULL: nothing that is known of. */
const DamageRow *snapshot_damage(const Snapshot *snap);
/* Look-ups, NULL when there is no such row. */
const EngineRow *snapshot_engine(const Snapshot *snap, int64_t engine);
const char *snapshot_engine_name(const Snapshot *snap, int64_t engine); /* "-" when unknown */
const TailRow *snapshot_tail(const Snapshot *snap, int64_t sample);
const StepRow *snapshot_step(const Snapshot *snap, int64_t step);
const PolicyRow *snapshot_policy(const Snapshot *snap, int64_t version);
const EventRow *snapshot_event(const Snapshot *snap, int64_t id);
const CommandRow *snapshot_command(const Snapshot *snap, int64_t command);
const AlertRow *snapshot_alert(const Snapshot *snap, int64_t incident);
/* The sample that waits behind an alert at this moment: the oldest in flight, of all when samples
 * or a phase are what it is about, on its engine when that answers and does not go on. NULL: the
 * alert is about something else, or nothing is in flight there. */
const TailRow *snapshot_alert_sample(const Snapshot *snap, const AlertRow *row);
/* The worst alert open on an engine that does more than inform; NULL: none. */
const AlertRow *snapshot_engine_alert(const Snapshot *snap, int64_t engine);

#endif
