/* Retention: rows of the past go, facts that people judge by stay.
 *
 * What goes, before a moment "before": probes, progress, metrics, output of children, events of
 * severity info, and of steps that ended before it groups, attempts and their texts. What stays:
 * steps, phases, policies, transactions and answers, commands, incidents, warnings, engines and
 * their states, one key tick a minute (an hour, for what is TRIM_HOURS times as old), roll-ups
 * (rollup.h), and per step and engine the time and number of its attempts (`step_engine`).
 * The newest row of every table stays whatever its age: numbers are never given twice.
 *
 * A trim is declared by a row of `trim` before the first row goes and completed in slices, so
 * that a writer goes on between them; a trim that a crash cut short goes on at the next open. */
#ifndef ROLLTOP_STORE_TRIM_H
#define ROLLTOP_STORE_TRIM_H

#include "store/db.h"

enum { TRIM_HOURS = 10, TRIM_LEAST_US = 600000000 /* the newest ten minutes always stay */ };

typedef struct TrimLimits {
    int64_t keep_us;   /* 0: any age */
    int64_t max_bytes; /* 0: any size; of the file without free pages */
} TrimLimits;

typedef struct TrimState {
    int64_t first_us;  /* oldest moment with all its rows; 0: an empty log */
    int64_t last_us;
    int64_t bytes;     /* in use */
} TrimState;

/* Pure: is it time, up to where, and why (static words). */
bool trim_due(const TrimLimits *limits, const TrimState *state, int64_t *before_us,
              const char **why);

typedef enum TrimStage {
    TRIM_STEPS, TRIM_PROBE, TRIM_PROGRESS, TRIM_METRIC, TRIM_CHILD_LINE, TRIM_EVENT, TRIM_TICKS,
    TRIM_HOUR_TICKS, TRIM_ROLLUPS, TRIM_DONE
} TrimStage;

typedef struct TrimWork { /* one declared trim */
    int64_t trim_id; /* 0: none is under way */
    int64_t before_us, hours_before_us, step;
    int64_t from_us, hours_from_us; /* what an earlier one did already */
    int64_t probe, progress, metric, child_line; /* last rows that go */
    int64_t bucket_s; /* next one of the two stages of ticks */
    int64_t rows;
    TrimStage stage;
} TrimWork;

/* The numbers trim_due wants; a few look-ups. */
Err trim_state(Db *db, int64_t last_us, TrimState *out, Fault *fault);
/* Declares one; to be committed before the first slice. `now_us` is its time in the log. */
Err trim_begin(Db *db, int64_t before_us, int64_t now_us, const char *why, TrimWork *out,
               Fault *fault);
/* One that was declared and not completed; trim_id 0 when there is none. */
Err trim_resume(Db *db, TrimWork *out, Fault *fault);
/* Some thousand rows at most, inside the open transaction; an SQLite code. */
int trim_slice(Db *db, TrimWork *work);

/* For readers: the newest trim, zeros when there was none. */
typedef struct Trimmed {
    int64_t before_us, hours_before_us, step; /* steps below have no attempts any more */
    bool under_way; /* declared, and rows are still going */
} Trimmed;
Err trim_read(Db *db, Trimmed *out, Fault *fault);

#endif
