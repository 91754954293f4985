/* The console's state: pure. Keys, replies and new snapshots go in; flags for the loop come out.
 * No clock, no file, no terminal; times are arguments (wall microseconds). Every row is named by
 * identity, never by its place. */
#ifndef ROLLTOP_TUI_MODEL_H
#define ROLLTOP_TUI_MODEL_H

#include "tui/config.h"
#include "tui/snapshot.h"

enum {
    MODEL_ROWS_MAX = 2048,   /* rows of one list that the console can walk */
    MODEL_ENGINES_MAX = 2048,
    MODEL_INPUT_MAX = 200,
    MODEL_DETAIL_DEPTH = 6,
    MODEL_TARGETS_MAX = 64,
    MODEL_PENDING_MAX = 64,
    MODEL_OUTBOX_MAX = 64,
    MODEL_JSON_MAX = 1024,
    MODEL_BOOKMARKS_MAX = 32,
    MODEL_ACKED_MAX = 256,
    MODEL_NOTE = -1, /* Outgoing.pending of a note: no row waits for its answer */
    MODEL_HISTORY_MAX = 16,
    MODEL_GROUPS_MAX = 128,
    MODEL_GROUP_NAME = 40,
    MODEL_PAST_MAX = 16, /* panes that Backspace goes back to */
    MODEL_GUARD_US = 300000,     /* keys right after a box was drawn are thrown away */
    MODEL_COUNTDOWN_US = 10000000,
    MODEL_PENDING_TIMEOUT_US = 60000000,
    MODEL_BLIND_US = 10000000    /* a picture older than this asks for the word 'blind' */
};

enum { /* what the loop must do */
    MODEL_DRAW = 1,
    MODEL_QUERY = 2,
    MODEL_QUIT = 4,
    MODEL_SUSPEND = 8,
    MODEL_REPAINT = 16,
    MODEL_SEEK = 32,
    MODEL_SEND = 64,
    MODEL_COPY_ROW = 128,
    MODEL_COPY_SCREEN = 256,
    MODEL_FLUSH_INPUT = 512, /* a box opened: what was typed before it is thrown away */
    MODEL_THEME = 1024,
    MODEL_MARKS = 2048, /* the bookmarks changed: write the side file */
    MODEL_SHELL = 4096, /* run the user's command `shell` */
    MODEL_BELL = 8192,  /* a critical alert that was not there before */
    MODEL_EXPORT = 16384 /* write the chosen rows to export_path */
};

typedef enum Mode {
    MODE_NORMAL,
    MODE_FILTER,
    MODE_SEARCH,
    MODE_SHELL, /* y runs the user's command */
    MODE_COMMAND,
    MODE_GO,
    MODE_BOOKMARK,
    MODE_SORT,
    MODE_MOMENTS, /* the list of named moments */
    MODE_HELP,
    MODE_HELP_FILTER,
    MODE_CONFIRM,
    MODE_QUIT_ASK
} Mode;

typedef struct InputLine {
    char text[MODEL_INPUT_MAX];
    size_t n;
} InputLine;

#define TUI_SORTS(X)                                                                              \
    X(SORT_SEVERITY, "severity") X(SORT_NAME, "name") X(SORT_POLICY, "policy")                    \
    X(SORT_TOKENS, "tok/s") X(SORT_RUNNING, "run") X(SORT_WAITING, "wait") X(SORT_KV, "kv")       \
    X(SORT_ITL, "itl") X(SORT_SEEN, "seen")
#define TUI_SORT_ENTRY(name, word) name,
typedef enum SortKey { TUI_SORTS(TUI_SORT_ENTRY) SORT_COUNT } SortKey;

/* verb, word on the socket, key, undone by (its own name when nothing undoes it) */
#define TUI_VERBS(X)                                                                              \
    X(VERB_PAUSE, "pause", 'P', VERB_RESUME) X(VERB_RESUME, "resume", 'P', VERB_PAUSE)            \
    X(VERB_UPDATE, "update", 'U', VERB_UPDATE) X(VERB_RESTART, "restart", 'R', VERB_RESTART)      \
    X(VERB_CORDON, "cordon", 'C', VERB_UNCORDON) X(VERB_UNCORDON, "uncordon", 'C', VERB_CORDON)   \
    X(VERB_ABORT, "abort", 'X', VERB_ABORT) X(VERB_STOP, "stop", ':', VERB_STOP)
#define TUI_VERB_ENTRY(name, word, key, undo) name,
typedef enum Verb { TUI_VERBS(TUI_VERB_ENTRY) VERB_COUNT } Verb;

typedef struct Cursor {
    int64_t id; /* identity of the row; 0 or -1 before there was one */
    bool set;
    int index; /* where it was last: taken when the row is gone */
} Cursor;

typedef struct RowOrder { /* severity as it is used for the order: changes after three ticks */
    int64_t engine;
    int rank, next_rank, ticks;
    bool marked;
} RowOrder;

typedef struct MarkList { /* identities */
    int64_t ids[MODEL_TARGETS_MAX];
    int count;
} MarkList;

typedef struct Target { /* fixed when the key was pressed */
    int64_t engine, sample, incarnation;
    EngineState state;
    char name[40];
} Target;

typedef struct Confirm {
    int level; /* 1, 2, 3 */
    Verb verb;
    bool all;
    int64_t version; /* of an update; 0: the committed one */
    Target targets[MODEL_TARGETS_MAX];
    int count;
    int64_t opened_us, countdown_us; /* countdown_us 0: not running */
    char want[64];                   /* what has to be typed */
    InputLine typed, reason;
    bool in_reason;
    char notice[120]; /* why the box started over */
} Confirm;

typedef enum PendingState {
    PENDING_FREE,
    PENDING_REQUESTED, /* sent, no answer yet */
    PENDING_ACCEPTED,  /* the core took it; not yet observed */
    PENDING_REFUSED,
    PENDING_OBSERVED,
    PENDING_TIMEOUT
} PendingState;

typedef struct Pending {
    PendingState state;
    Verb verb;
    bool all;
    Target target;
    int64_t asked_us, changed_us, command;
    char message[160];
} Pending;

typedef struct Outgoing {
    char json[MODEL_JSON_MAX];
    int pending; /* index, or MODEL_NOTE */
} Outgoing;

typedef struct Detail {
    DetailKind kind;
    int64_t id, other; /* other: of a comparison, whose rows are those of `pane` */
    Pane pane;
    int scroll;
    int64_t cursor; /* row of a list inside (samples of a step) by place */
} Detail;

typedef enum SeekKind { SEEK_MARK, SEEK_TIME, SEEK_STEP, SEEK_POLICY, SEEK_TEXT } SeekKind;
typedef struct Seek {
    SeekKind kind;
    ViewMark mark;
    int dir;
    int64_t value; /* time, step or version */
    char text[MODEL_INPUT_MAX];
} Seek;

typedef struct Bookmark {
    int64_t t_us;
    char name[48];
} Bookmark;

typedef struct GroupLine {
    char key[MODEL_GROUP_NAME];
    int first, members, bad; /* first: place among the rows shown */
    bool folded;
    double tokens;
} GroupLine;

typedef struct ModelConfig {
    bool control, replay, ascii;
    bool may_stop; /* leaving asks whether to stop the run */
    const char *user, *log_path, *theme;
    int64_t pid; /* 0: unknown */
    const TuiConfig *config; /* NULL: the defaults; copied */
} ModelConfig;

typedef struct Model {
    /* configuration */
    bool control, replay_only, ascii, may_stop;
    char user[64], self[64]; /* self: how the core names us in the log, "pid 4711" or the user */
    char log_path[256], theme[64];
    int colours;
    TuiConfig config;
    /* where we look */
    Pane focus;
    bool zoom, second;
    Mode mode;
    Cursor cursor[PANE_COUNT];
    bool follow_events;
    char filter[PANE_COUNT][MODEL_INPUT_MAX];
    int shown[PANE_COUNT][MODEL_ROWS_MAX]; /* indices into the snapshot's lists, in order */
    int shown_count[PANE_COUNT];
    size_t event_limit;
    Detail detail[MODEL_DETAIL_DEPTH];
    int depth;
    int sort[PANE_COUNT];
    bool inverted[PANE_COUNT];
    int sort_cursor;
    int scroll_x; /* columns, or cells of text, left of what is shown */
    char search[MODEL_INPUT_MAX];
    int64_t follow[PANE_COUNT]; /* identity; 0: the cursor is free */
    Pane past[MODEL_PAST_MAX];
    int past_count;
    int view; /* the next named view */
    GroupBy group;
    char folded[MODEL_GROUPS_MAX][MODEL_GROUP_NAME];
    int folded_count;
    GroupLine groups[MODEL_GROUPS_MAX];
    int group_count;
    RowOrder order[MODEL_ENGINES_MAX];
    int order_count;
    MarkList marks[PANE_COUNT]; /* of engines in `order`; of learning in that of steps */
    /* time */
    bool live, playing, frozen;
    int64_t t_us, frozen_us, played_at_us; /* wall time of the last advance while playing */
    int speed_shift;                       /* -2 … 6: speed is 2 to its power */
    Seek seek;
    Bookmark bookmarks[MODEL_BOOKMARKS_MAX];
    int bookmark_count, bookmark_cursor;
    int shell; /* index of the user's command */
    bool observed; /* a picture was seen */
    int64_t rung; /* newest alert that the bell has rung for */
    int64_t acked[MODEL_ACKED_MAX];
    int acked_count;
    /* typing */
    InputLine input;
    char history[MODEL_HISTORY_MAX][MODEL_INPUT_MAX];
    int history_count, history_at;
    char stem[MODEL_INPUT_MAX]; /* what Tab completes; completion -1: nothing yet */
    int completion;
    int help_cursor;
    InputLine help_filter;
    /* acting */
    Confirm confirm;
    Pending pending[MODEL_PENDING_MAX];
    Outgoing outbox[MODEL_OUTBOX_MAX];
    int outbox_count;
    bool linked; /* the control socket answers */
    bool ended;  /* the core has closed its session: nothing is left to act on */
    bool stop_run;
    int64_t armed_until_us;
    Verb undo_verb;
    Target undo_target;
    bool undo_set;
    char export_path[MODEL_INPUT_MAX];
    char message[240];
    Role message_role;
    int64_t message_until_us;
    /* the screen, for paging */
    int w, h;
    int64_t now_us; /* of the last event: ages of live pictures are against the snapshot's T */
} Model;

Model *model_new(const ModelConfig *config);
void model_free(Model *model);
bool model_in_replay(const Model *model);
/* The moment to show at wall time `now_us`. */
int64_t model_time(const Model *model, int64_t now_us);
SnapRequest model_request(const Model *model, int64_t now_us);
LayoutWish model_wish(const Model *model, const Snapshot *snap);

unsigned model_resize(Model *model, int w, int h);
/* A new snapshot: rows are ordered and filtered, cursors find their rows again. */
unsigned model_observe(Model *model, const Snapshot *snap, int64_t now_us);
/* A mouse never acts: it selects, sorts, scrolls, goes to a pane. `hit` is what lies there. */
unsigned model_click(Model *model, const Snapshot *snap, const Hit *hit, int64_t now_us);
unsigned model_wheel(Model *model, const Snapshot *snap, const Hit *hit, int delta,
                     int64_t now_us);
unsigned model_key(Model *model, const Snapshot *snap, int key, int64_t now_us);
/* Is what the key does about what stands on the picture of the model's moment? Then a read that is
 * due comes first; motions of time and of the cursor need none. */
bool model_key_needs_picture(const Model *model, int key);
/* Once a second and during playback: messages end, countdowns run, playback moves T. */
unsigned model_tick(Model *model, const Snapshot *snap, int64_t now_us);
void model_say(Model *model, Role role, int64_t now_us, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Result of the seek that MODEL_SEEK asked for. */
unsigned model_seek_done(Model *model, const Snapshot *snap, bool found, int64_t t_us,
                         int64_t now_us);
unsigned model_go(Model *model, const Snapshot *snap, Str text, int64_t now_us);

/* ---- parts of the model, each in its own file ---------------------------------------------- */

/* lists.c */
void model_lists(Model *model, const Snapshot *snap);
int64_t model_row_id(const Snapshot *snap, Pane pane, int index); /* of snapshot list index */
int model_row_count(const Snapshot *snap, Pane pane);
int model_place(const Model *model, const Snapshot *snap, Pane pane); /* cursor's place, -1 none */
void model_move(Model *model, const Snapshot *snap, Pane pane, int delta);
const EngineRow *model_engine(const Model *model, const Snapshot *snap); /* under the cursor */
int64_t model_sample(const Model *model, const Snapshot *snap); /* under the cursor, 0 none */
RowOrder *model_order_find(Model *model, int64_t engine);
const RowOrder *model_order_of(const Model *model, int64_t engine);
bool model_row_matches(const Snapshot *snap, Pane pane, int index, const char *filter);
void model_order(Model *model, const Snapshot *snap);
/* marks.c: by identity, in every pane */
bool mark_has(const Model *model, Pane pane, int64_t id);
int mark_count(const Model *model, Pane pane);
bool mark_none(Model *model); /* false: there was none */
void mark_observe(Model *model, const Snapshot *snap); /* drops samples no longer in flight */
/* Two rows to compare: the marked ones, the marked one and the cursor, or the cursor and the one
 * before it in time. False: a sentence in `why`. */
bool mark_pair(const Model *model, const Snapshot *snap, int64_t out[2], const char **why);
unsigned mark_row(Model *model, const Snapshot *snap, int64_t now_us);
unsigned mark_range(Model *model, const Snapshot *snap, int64_t now_us);
unsigned mark_all(Model *model, const Snapshot *snap, int64_t now_us);
/* sort.c */
int sort_count(Pane pane);
const char *sort_name(Pane pane, int sort);
int sort_by_name(Pane pane, Str name); /* -1: no such column */
void sort_rows(Model *model, const Snapshot *snap, Pane pane);
/* group.c */
void group_rows(Model *model, const Snapshot *snap);
const GroupLine *group_at(const Model *model, int place); /* NULL: no groups */
bool group_holds(const Model *model, const Snapshot *snap, const GroupLine *group,
                 const EngineRow *row);
unsigned group_fold(Model *model, const Snapshot *snap, bool fold, int64_t now_us);
unsigned group_next(Model *model, const Snapshot *snap);
/* filter.c: words, !not, name:word, name>number; `text` holds the row's words. */
typedef struct FilterField {
    const char *name;
    const char *text; /* NULL: a number */
    Val number;
} FilterField;
bool filter_match(const char *filter, const char *text, const FilterField *fields, size_t count);
/* act.c */
const char *verb_word(Verb verb);
Verb verb_undo(Verb verb); /* itself when nothing undoes it */
/* A whole word of `text`: "eng-1" is not in "eng-10". */
bool act_names(const char *text, const char *word);
/* What the box of the model asks for goes into the outbox. */
unsigned act_send(Model *model, int64_t now_us);
unsigned box_tick(Model *model, int64_t now_us);
unsigned box_observe(Model *model, const Snapshot *snap, int64_t now_us);
unsigned act_begin(Model *model, const Snapshot *snap, Verb verb, bool all, int64_t now_us);
unsigned act_part(Model *model, const Snapshot *snap, const char *part, int64_t now_us);
/* The steps that ways to begin share: why none may act now (NULL: one may); the words of a
 * refusal; the box of `confirm`, whose verb, targets and version are set. */
const char *act_locked(const Model *model);
unsigned act_refuse(Model *model, int64_t now_us, Verb verb, const char *why);
unsigned act_open(Model *model, const Snapshot *snap, Confirm *confirm, int64_t now_us);
/* rollback.c: all engines to a kept version; the policy under the cursor, 0 none */
unsigned act_version(Model *model, const Snapshot *snap, int64_t version, int64_t now_us);
int64_t act_policy(const Model *model, const Snapshot *snap);
int64_t act_version_word(Str word);
unsigned act_key(Model *model, const Snapshot *snap, int key, int64_t now_us);
unsigned act_tick(Model *model, int64_t now_us);
unsigned act_observe(Model *model, const Snapshot *snap, int64_t now_us);
unsigned act_undo(Model *model, const Snapshot *snap, int64_t now_us);
/* Why a verb cannot be used on an engine now; NULL when it can. */
const char *act_refusal(const Snapshot *snap, Verb verb, const EngineRow *row);
bool act_cordoned(const Snapshot *snap, const EngineRow *row);
const Pending *act_pending(const Model *model, int64_t engine);
void act_reply(Model *model, int pending, bool ok, int64_t command, const char *message,
               int64_t now_us);
/* Why nothing acts in the past. */
const char *act_past(const Model *model);
/* [RW], [RO], [LOCKED], [ARMED 4m] */
void act_word(const Model *model, int64_t now_us, char *buffer, size_t size);
/* note.c: flags hold MODEL_SEND when a note was put into the outbox; a console that may not act
 * puts none there. */
unsigned note_command(Model *model, Str words, int64_t now_us);
unsigned note_acknowledge(Model *model, const Snapshot *snap, const AlertRow *row, int64_t now_us);
unsigned note_cancelled(Model *model, const char *why);
/* The newest note on an alert among the commands of the picture; NULL: none. */
const CommandRow *note_of_alert(const Snapshot *snap, int64_t incident);
/* Here, or by a note of another console. */
bool model_acked(const Model *model, const Snapshot *snap, int64_t incident);
/* typing.c */
unsigned moments_open(Model *model, int64_t now_us);
bool input_key(InputLine *line, int key); /* true when the line took it */
unsigned typing_key(Model *model, const Snapshot *snap, int key, int64_t now_us);
/* command.c */
const char *command_completion(const Model *model, const char *typed, int n, char *buffer,
                               size_t size);
unsigned command_run(Model *model, const Snapshot *snap, Str text, int64_t now_us);
/* The line of `mode` opens with `text` in it. */
unsigned typing_start(Model *model, Mode mode, const char *text);
/* travel.c: the keys of group G_TIME */
unsigned travel_run(Model *model, const Snapshot *snap, Action action, int64_t now_us);
unsigned travel_freeze(Model *model, int64_t now_us);
/* keys.c */
unsigned model_shell(Model *model, int index, int64_t now_us);
unsigned model_view(Model *model, const Snapshot *snap, int view, int64_t now_us);
unsigned action_run(Model *model, const Snapshot *snap, Action action, int64_t now_us);
/* time.c: what '@' understands. False: nothing sensible. */
bool time_parse(Str text, int64_t t_us, int64_t first_us, int64_t last_us, Seek *out);
/* Actions that the help screen lists under its filter; returns how many. */
int help_list(const Model *model, Action out[ACT_COUNT]);

#endif
