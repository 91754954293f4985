/* Shared by the driver's files; nobody else includes it. One thread throughout, except the
 * store's on_durable, which only sends an async.
 *
 * Every time kept here (*_us) is of the monotonic clock: deadlines, budgets and back-off hold when
 * somebody sets the wall clock. A fact gets wall time where it is put (clock_wall_of_us for a
 * moment that was kept). */
#ifndef ROLLTOP_LOOP_DRIVER_PRIVATE_H
#define ROLLTOP_LOOP_DRIVER_PRIVATE_H

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/diagnose/diagnose.h"
#include "core/fleet/discover.h"
#include "core/fleet/fleet.h"
#include "core/fleet/generate.h"
#include "core/fleet/sources.h"
#include "core/loop/disk_wait.h"
#include "core/loop/loop_driver.h"
#include "core/model/tokenizer.h"
#include "core/net/ctl.h"
#include "core/policy/artifact.h"
#include "core/policy/canary_window.h"
#include "core/policy/txn.h"
#include "core/rollout/reward.h"
#include "core/rollout/rollout.h"

enum {
    DRIVER_TICK_MS = 25,
    DRIVER_SLOW_TICK_MS = 1000,
    DRIVER_JOBS_MAX = 64,     /* transactions at once: the fleet's and fences */
    DRIVER_CANARY_TOKENS = 64,
    DRIVER_KEPT_CANARIES = 64, /* newest versions whose canary is known */
    DRIVER_GRACE_MS = 3000,   /* for children at the end */
    DRIVER_AT_ONCE_MS = 2000, /* from the second interrupt until nothing is waited for */
    DRIVER_START_TRIES = 4,   /* of a part that has never come up */
    DRIVER_SILENCE_MS = 60000, /* without a token until an attempt is given up */
    DRIVER_LOST_FACTOR = 5,   /* times --startup-timeout without a part ends a run */
    DRIVER_NAME = 32
};

typedef struct Driver Driver;

typedef enum PartKind { PART_ENGINE, PART_FRONTEND } PartKind;

typedef struct Part { /* a child that the core keeps alive */
    Driver *driver;
    PartKind kind;
    int index; /* engine: slot in the fleet */
    char name[DRIVER_NAME];
    Child *child, *ended; /* ended: told its exit, freed on the next tick */
    int port;             /* 0 until it said so; kept over restarts */
    bool listening, added; /* added: the fleet knows its address */
    int64_t started_us, due_us; /* due_us: start it then; 0: not waiting */
    int failures;
    bool asked;  /* stopped by a restart of ours */
    int64_t asked_us; /* since when a restart by the operator is under way; 0: none */
    bool silent; /* ended by us, because it gave no answer */
    bool retired; /* taken out of the fleet: it stays stopped */
    char last_line[160]; /* of stderr, for the words about a part that does not start */
} Part;

typedef struct Seat { /* what the driver knows of one engine beyond the fleet */
    Part *part; /* NULL: not ours */
    EngineState state;
    int64_t state_since_us, incarnation;
    bool bring;             /* must get the committed policy before it may serve */
    bool cordoned, paused;  /* by the operator */
    bool routed, route_ok;  /* the frontend is to give it work; has said that it does */
    bool took_back;         /* dead or stuck, and what it held went to others */
    bool leaving, draining; /* taken out once no transaction holds it; once it runs nothing */
    char leave_why[128];
    bool kept_out;          /* a local one that the operator took out in an earlier life */
    int twin_of;            /* slot + 1 of the engine whose process this address leads to; 0 */
    char address[DISCOVER_ADDRESS];
    int64_t bring_due_us;
    int64_t verified;       /* version it was verified on, -1 */
    int64_t follows;        /* what its own copy is proved to hold, -1 not known */
    bool no_pull;           /* it cannot, or its copy led elsewhere twice in a row */
    int copies_odd;         /* updates in a row after which that was so */
    bool no_look;           /* it cannot say whether it sees a directory */
    bool pulling;           /* a pull was sent and not answered yet */
    int64_t doubt_us;       /* until then a call that was given up may still act; 0 none */
    int64_t command;        /* restart or update that is done once it serves again; 0 none */
    int64_t boots[8];       /* when the newest process starts were seen */
    int boot_count;
    int fences_failed;
    int sampling;           /* attempts that the driver sent there (without a frontend) */
    int sync_failures;      /* updates in a row that went back because of it */
    char how[96];           /* how its process ended last, what it said */
} Seat;

typedef struct DriverHolds DriverHolds;
typedef struct RolloutJob RolloutJob;
typedef struct SyncJob SyncJob;

typedef struct JobGroup { /* a prompt: the machine needs only how many there are */
    int64_t prompt_index;
    const int32_t *ids;  /* borrowed; lives as long as the rollout */
    size_t id_count;
} JobGroup;

typedef struct Attempt { /* the newest attempt of one sample */
    RolloutJob *job;
    Generation *generation; /* NULL: none in flight */
    int64_t sample, started_us, logged_us, moved_us; /* moved: newest token */
    int64_t first_us; /* its first token; 0: none yet, or told with the whole reply */
    int64_t tokens; /* of it so far, kept ones too */
    int64_t kept;   /* of them from earlier attempts */
    int attempt, group, engine; /* engine: where the driver sent it; -1: a frontend chooses */
    bool anew;   /* the operator gave it up: the next one begins from nothing */
    bool unsent; /* could not be started; its end is fed on the next tick */
} Attempt;

struct RolloutJob {
    Driver *driver;
    Rollout *rollout;
    const DataRow **rows;
    TokenIds *ids;
    JobGroup *groups;
    Attempt *attempts;
    int32_t *end_ids;
    int group_count, per_group, in_flight, unsent;
    DataPosition position; /* before its prompts were taken */
    bool eval, over, failed, cancelled, pumping;
    int64_t step, first_sample, first_group, started_us, ended_us;
    int64_t tokens;
    double reward_mean, reward_std, length_mean, older_share, sample_seconds;
    int sample_count; /* finished attempts behind sample_seconds */
    char why[128];
    PyRandom random;
    const RolloutAttemptEnd *ending; /* the end being fed, for the log */
    int64_t ending_engine, ending_first_us;
};

typedef struct DurableWait {
    uint64_t ticket;
    void (*then)(void *arg);
    void *arg;
} DurableWait;

typedef struct DurableQueue { /* waits in order of ticket */
    DurableWait *items;
    size_t head, count, capacity;
} DurableQueue;

/* STARTING: it loads, then trains again what its state does not have. */
typedef enum TrainerStage { TRAINER_DOWN, TRAINER_STARTING, TRAINER_READY } TrainerStage;

typedef struct KeptCanary { /* what the trainer's forward pass said of one version */
    int64_t version;
    int count; /* 0: nothing kept here */
    float logp[DRIVER_CANARY_TOKENS];
} KeptCanary;

typedef struct PhaseSpells { /* the newest closed spells of one phase, for its median */
    double seconds[32];
    int count;
} PhaseSpells;

/* The children on this machine that the core keeps alive: engines, then the frontend. */
typedef struct DriverLocal {
    Part *parts;
    int count;
    Part *frontend; /* NULL: not ours */
    int frontend_fd; /* holds the frontend's port between its lives (port.h); 0: none */
} DriverLocal;

typedef struct DriverMembers { /* where engines are learnt of (driver_members.c) */
    Discover *discover;
    Sources *sources;
} DriverMembers;

typedef struct DriverFront { /* the front door, ours or not */
    char url[256], generate_url[288], how[96]; /* generate_url: "" without a frontend */
    bool up;
    bool direct; /* there is none: samples go to the engines themselves */
    int64_t down_us; /* 0: up */
    int64_t none_us; /* since when it can serve nobody; 0: it can, or does not say */
} DriverFront;

typedef struct DriverReady { /* has the run what it needs? */
    bool now, ever;
    int64_t lost_us; /* since when it lacks a part; 0: it has all */
    int64_t due_us;  /* until then it must have come up once */
} DriverReady;

typedef struct DriverTrain { /* the trainer's process (driver_train.c) */
    Trainer *process, *ended;
    TrainerStage stage;
    bool killed;  /* by us, to be started anew from its state */
    bool stopped; /* on purpose, to end the run: its end is no incident */
    int64_t asked_us; /* since when a restart by the operator is under way; 0: none */
    int64_t due_us, down_us;
    int64_t halted_us; /* since when a signal holds its process; 0: it runs */
    int failures;
    int64_t command;
    char *dir; /* the state that a restart loads: the trainer after … */
    int64_t state_step; /* … this step; the one before the run's first: its checkpoint */
    int64_t done;       /* newest step that counts as trained */
    int64_t at;         /* step after which the process is */
    bool stuck;         /* something old cannot be removed, and that was said */
    char how[FAULT_TEXT_MAX];
} DriverTrain;

typedef enum DiskWrite { DISK_POLICY, DISK_STATE } DiskWrite;

typedef struct DriverDisk { /* what the trainer writes and the disk refuses (driver_disk.c) */
    DiskWait wait;
    DiskWrite what;
    char how[FAULT_TEXT_MAX + 96];
} DriverDisk;

typedef struct DriverRoll { /* prompts, and the rollouts made of them */
    DataSource *data, *eval_data;
    RolloutJob *batch, *eval; /* batch stays until its step is over */
    bool gate_operator, gate_sync;
    int64_t longest_first_us, now_first_us; /* longest waits for a first token: of this rollout and
                                             * the one before it, of this one; 0: none known */
    CanaryWindow window; /* when engines that were not verified yet may have made tokens */
    bool asks_again; /* what an engine without the policy may hold is asked for again */
    bool holds_back; /* too many engines look bad at once; that was said */
    int64_t many_us; /* … when they did last */
    int64_t next_sample, next_group;
} DriverRoll;

typedef struct DriverSync { /* policy transactions (driver_sync.c) */
    SyncJob *jobs[DRIVER_JOBS_MAX];
    SyncJob *main;
    int count;
    int64_t settle_us; /* none starts before: calls of the core before may still arrive (resume),
                        * or the last one went back a moment ago */
    int64_t version;   /* wanted by the loop's SYNC that has to wait for fences; 0 none */
    bool again;
    int64_t again_command, next_txn;
} DriverSync;

typedef struct DriverPolicy { /* what is known of the policies that transactions bring */
    Artifact committed, pending;
    bool has_committed, has_pending;
    int64_t publishing;       /* version that the trainer writes */
    char digest[DIGEST_TEXT]; /* what it said of it; empty: not known */
    int64_t bytes;            /* … */
    KeptCanary kept[DRIVER_KEPT_CANARIES];
    int kept_next;
    int32_t canary[DRIVER_CANARY_TOKENS];
    int canary_count;
    float canary_logp[DRIVER_CANARY_TOKENS];
    int canary_logps;
} DriverPolicy;

typedef struct DriverDelta { /* published deltas (driver_delta.c); -1: none by this core */
    int64_t chain, full; /* newest version of the chain, newest complete one in it */
    int64_t published;   /* the version that engines can pull now … */
    int64_t base;        /* … and what it is a delta on; -1: complete */
} DriverDelta;

typedef struct DriverStep { /* the step and phase under way, as the log has them */
    int64_t next_phase, phase_id, phase_began_us, began_us, version;
    LoopPhase phase; /* as logged; the machine may be ahead */
    int64_t phase_us[PHASE_DONE + 1];
    double eval_reward;
    bool eval_known, open;
} DriverStep;

typedef struct DriverWatch { /* what the incident rules need over time (driver_incidents.c) */
    Diagnose *diagnose;
    bool not_recording;
    int64_t not_recording_us, idle_since_us;
    PhaseSpells spells[PHASE_DONE + 1];
} DriverWatch;

struct Driver {
    const RunConfig *config;
    uv_loop_t uv;
    uv_timer_t tick;
    uv_async_t durable;
    uv_signal_t sigint, sigterm;
    int64_t slow_due_us;

    Store *store;
    CtlServer *ctl;
    HttpClient *http, *control_http; /* generation and lists; calls to engines, never gathered */
    Fleet *fleet;
    Loop *loop;
    Tokenizer *tokenizer;
    ModelConfig model;
    DurableQueue waits;
    bool draining, blocked; /* loop actions: being taken, held until something is durable */
    Seat *seats;            /* FLEET_ENGINES_MAX of them, seat_count in use */
    int seat_count;

    DriverLocal local;
    DriverMembers members;
    DriverFront front;
    DriverReady ready;
    DriverTrain train;
    DriverDisk disk;
    DriverRoll roll;
    DriverSync sync;
    DriverPolicy policy;
    DriverDelta delta;
    DriverHolds *holds; /* a check of what the engines hold; NULL: none under way */
    DriverStep step;
    DriverWatch watch;
    int64_t next_command, session;

    bool shutting, torn_down; /* the end */
    bool at_once;             /* the second interrupt: nothing is held any more */
    int64_t shutdown_due_us, interrupted_us;
    int interrupts, status;
    Fault *fault;
    char end_reason[256];
};

/* driver.c */
void driver_event(Driver *d, Severity severity, const char *source, int64_t engine,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));
void driver_feed(Driver *d, LoopEventKind kind, bool fatal, const char *detail);
void driver_feed_event(Driver *d, const LoopEvent *event);
/* Calls then(arg) on the loop once everything put so far is durable. */
void driver_when_durable(Driver *d, void (*then)(void *arg), void *arg);
void driver_metric(Driver *d, int64_t step, const char *name, double value);
char *driver_path(const Driver *d, const char *folder, const char *prefix, int64_t number);

/* driver_steps.c: what the loop's actions mean for the log and the screen */
void driver_end_now(Driver *d);
void driver_take_actions(Driver *d);

/* driver_parts.c */
Err driver_parts_start(Driver *d, Fault *fault);
void driver_parts_tick(Driver *d, int64_t now_us);
void driver_parts_stop(Driver *d);
bool driver_parts_gone(const Driver *d);
void driver_parts_free(Driver *d);
void driver_no_start(Driver *d, const char *part, int failures, const char *words);
void driver_part_restart(Part *part);
/* A restart that the operator asked for then (0: none) is within the bound for a part to come up:
 * what it lacks meanwhile is no incident. */
bool driver_calm(const Driver *d, int64_t asked_us, int64_t now_us);

/* driver_fleet.c */
void driver_fleet_events(Driver *d, FleetEvents *events); /* for fleet_new */
void driver_check_parts(Driver *d); /* feeds PARTS_READY and PARTS_LOST on a change */
void driver_parts_missing(const Driver *d, char *out, size_t size);
/* Since when the frontend does not answer, or, for long, can serve nobody; 0: it serves. */
int64_t driver_front_lost_us(const Driver *d);

/* driver_members.c: engines that come and go during the run */
Err driver_members_start(Driver *d, Fault *fault);
void driver_members_tick(Driver *d);
void driver_members_stop(Driver *d);
void driver_members_free(Driver *d);
void driver_seat_reset(Driver *d, int engine, const char *address);
/* A new process answers: is it one that another name leads to already? True: taken out again. */
bool driver_members_twin(Driver *d, int engine);
int driver_members_present(const Driver *d);
/* The operator's word on an address, whenever it was said. */
void driver_members_word(Driver *d, const char *address, bool add, const char *reason);
/* `rolltop ctl engine add|remove|drain`; words of the answer in `out`. False: refused. */
bool driver_members_add(Driver *d, const char *who, const char *address, char *out, size_t size);
bool driver_members_leave(Driver *d, int engine, bool drain, const char *why, int64_t command,
                          char *out, size_t size);

/* driver_holds.c: `rolltop policy verify` */
void driver_holds_start(Driver *d, CtlRequest *request);
void driver_holds_tick(Driver *d, int64_t now_us);
void driver_holds_free(Driver *d);

/* driver_delta.c */
Err driver_delta_start(Driver *d, Fault *fault);
/* The version that the trainer has written is published as the run's mode says; then(d), always,
 * unless the driver is torn down first. */
void driver_delta_publish(Driver *d, int64_t version, void (*then)(Driver *d));
const char *driver_delta_kind(const Driver *d, int64_t version); /* "full" or "delta" */
bool driver_delta_pulls(const Driver *d, int engine, int64_t version);
char *driver_delta_copy(const Driver *d, int engine); /* its own directory; malloc'ed */
char *driver_delta_source(const Driver *d, int64_t base); /* where to pull from; malloc'ed */
void driver_retain(Driver *d, int64_t committed); /* what --keep-policies does not need goes */
bool driver_policy_kept(const Driver *d, int64_t version); /* here, or to be built from deltas */

/* driver_recall.c: at a resume, before local parts start */
void driver_recall(Driver *d);

/* driver_route.c: which engines get work. Is that ours to say: by our own frontend, or without? */
bool driver_routes(const Driver *d);
int driver_pick(const Driver *d); /* without a frontend: the engine with least to do; -1: none */
void driver_route(Driver *d, int engine, bool wanted);
void driver_route_all(Driver *d);
void driver_admit(Driver *d, int engine);
/* What becomes of an engine that is up and verified: "serves again", or what keeps it from work. */
const char *driver_serves_word(const Driver *d, int engine);

/* driver_engines.c */
void driver_engine_came(Driver *d, int engine); /* another process answers there */
void driver_router_came(Driver *d);             /* its list may be empty: it was restarted */

/* driver_rollout.c */
Err driver_rollout_start(Driver *d, bool eval, Fault *fault);
void driver_rollout_tick(Driver *d, int64_t now_us);
void driver_rollout_cancel(Driver *d);
void driver_rollout_engine_lost(Driver *d, int engine);
/* At a change of state and once a second: what dead and stuck engines hold goes to others, unless
 * too many of them look so at once (take_back.h). */
void driver_take_back(Driver *d, int64_t now_us);
bool driver_rollout_abort_sample(Driver *d, int64_t sample);
/* Every engine that serves holds that policy now; told before the gate opens. False: what is
 * accepted already is of too old a policy then, so the rollout has to begin anew. */
bool driver_rollout_policy(Driver *d, int64_t version);
int driver_rollout_on_engine(Driver *d, int engine); /* attempts in flight there */
void driver_rollout_flows(Driver *d, int64_t now_us); /* once a second: do all streams move? */
void driver_rollout_stuck(Driver *d, int64_t now_us); /* … and who waits for what will not come? */
/* … and who waits behind an engine that is paused, given there by a frontend of others? */
void driver_rollout_held(Driver *d, int64_t now_us);
void driver_update_gate(Driver *d);
void driver_job_free(RolloutJob *job);

void driver_rollout_pump(RolloutJob *job); /* takes the machine's actions until none is left */

/* driver_attempt.c */
Attempt *driver_attempt_of(RolloutJob *job, int64_t sample);
int64_t driver_attempt_engine(const Attempt *a); /* in flight: who has it, store id; 0 unknown */
void driver_attempt_start(RolloutJob *job, const RolloutAction *action);
/* Attempts that could not even be sent; told on a tick, not from inside the action that tried. */
void driver_attempts_unsent(RolloutJob *job);

/* driver_batch.c */
Err driver_job_new(Driver *d, bool eval, RolloutJob **out, Fault *fault);
void driver_job_measure(RolloutJob *job);
/* Loss masks of all responses behind each other, 0 on tokens of older policies than the batch's;
 * NULL: nothing is masked, by the settings or because there are none. malloc'ed. */
uint8_t *driver_job_masks(const RolloutJob *job, const RolloutSample *samples, int count);

/* driver_sync.c */
void driver_sync_start(Driver *d, int64_t version, bool again);
void driver_sync_tick(Driver *d, int64_t now_us);
void driver_sync_engine_lost(Driver *d, int engine, int64_t incarnation);
bool driver_syncing(const Driver *d);
/* The newest word of the trainer on that version; NULL: before this core, or too long ago. */
const KeptCanary *driver_kept_canary(const Driver *d, int64_t version);
double driver_canary_tolerance(const Driver *d);
bool driver_sync_holds(Driver *d, int engine); /* a running transaction has it as a member */
void driver_sync_free(Driver *d);
void driver_committed(Driver *d, int64_t version);

/* driver_train.c */
Err driver_trainer_start(Driver *d, Fault *fault);
void driver_trainer_tick(Driver *d, int64_t now_us);
void driver_trainer_look(Driver *d, int64_t now_us); /* once a second: is it held by a signal? */
void driver_trainer_restart(Driver *d, const char *why);
void driver_trainer_stop(Driver *d);
void driver_train(Driver *d);
/* Sends the samples of the step under way. */
Err driver_send_batch(Driver *d, TrainerReplied on_done, Fault *fault);
void driver_trainer_ready(Driver *d); /* it holds what was trained last */
void driver_publish(Driver *d, int64_t version);
void driver_save(Driver *d);
void driver_save_state(Driver *d); /* after the step that it has just trained */

/* driver_disk.c: writes of the trainer that wait for the disk */
/* True: it is the disk's fault, and the run is held until the write succeeds; nothing is fed.
 * False: it failed otherwise or the run ends, and nothing is held any more. */
bool driver_disk_refused(Driver *d, DiskWrite what, const Fault *fault);
void driver_disk_written(Driver *d);
bool driver_disk_now(Driver *d); /* try again at once; false: nothing waits */
void driver_disk_cancel(Driver *d); /* the run is to end: it waits no longer */
void driver_disk_trainer_ended(Driver *d); /* and with it a state that waited to be written */
void driver_disk_tick(Driver *d, int64_t now_us);

/* driver_state.c: the trainer's states and the policies on disk */
void driver_state_begin(Driver *d); /* the checkpoint that the run begins with */
void driver_state_saved(Driver *d, int64_t step);
void driver_states_keep(Driver *d); /* the newest two stay */
void driver_states_sweep(Driver *d, const char *folder); /* of what is half written */
/* The present state is damaged or gone: takes the one before. False: there is none. */
bool driver_state_fall_back(Driver *d, const char *why);
/* A resumed run is after step `done`; `recorded`: the newest state that the log names, or NULL. */
void driver_state_resume(Driver *d, int64_t done, const char *recorded, int64_t recorded_step);

/* driver_replay.c: trains again what the state on disk does not have yet, then READY */
void driver_replay(Driver *d);
/* Does the log have what these steps were trained on? */
bool driver_can_replay(Driver *d, int64_t from, int64_t to, Fault *fault);

/* driver_commands.c */
void driver_on_control(CtlRequest *request, const cJSON *body, const CtlPeer *peer, void *user);
void driver_command_done(Driver *d, int64_t *command, bool well, const char *answer);
void driver_operator_stop(Driver *d, const char *who, bool at_once);

/* driver_incidents.c */
void driver_diagnose_tick(Driver *d, int64_t now_us);
void driver_incidents_close(Driver *d); /* the run ends: so do its incidents */
void driver_note_spell(Driver *d, LoopPhase phase, int64_t us);

/* driver_resume.c */
Err driver_resume(Driver *d, LoopConfig *loop, Fault *fault);
/* The first row of one statement on the log; *row, NULL for none, is the caller's. Any thread. */
Err driver_log_row(const char *path, const char *sql, cJSON **row, Fault *fault);

#endif
