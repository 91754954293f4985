/* What a view remembers between calls, so that a picture a second later costs what changed. All
 * parts answer for any T, in any order, exactly as a view that was just opened would: what they
 * hold is used where it holds and read where it does not, by the same code.
 *
 * Roster: who each engine was. Name, life and state of an engine come from three tables that only
 * grow; a row that was read serves for all T from its own time to that of the next row. Rows that
 * were added since (greater numbers) are read once and change that span. Kept as long as the view;
 * thrown away when more rows came at once than are worth following.
 *
 * Pulse: how each engine was. Ticks (tick.h) never change once they are written, so the sum of
 * those up to the last one before T, the counters that each tick tells of, and the rows behind the
 * last tick are kept. Thrown away: when the clock of the log was set back (the newest tick that was
 * seen is gone), when a trim takes ticks away, and after damage or a read that was ended.
 *
 * Recent: the newest probes of one engine and the newest lines of one child, as the page of an
 * engine shows them. Thrown away for another engine or child, far away in time, and with the
 * pulse. */
#ifndef ROLLTOP_STORE_VIEW_MEMORY_H
#define ROLLTOP_STORE_VIEW_MEMORY_H

#include "store/rate.h"
#include "store/tick.h"
#include "store/view.h"

/* ---- roster ------------------------------------------------------------------------------- */

typedef struct Roster Roster;
void roster_free(Roster *roster);

typedef enum RosterPart { ROSTER_NAME, ROSTER_LIFE, ROSTER_STATE, ROSTER_PARTS } RosterPart;
enum { ROSTER_ALL = (1 << ROSTER_PARTS) - 1 };

typedef struct Spell { /* what was read holds for these times: [from, until); empty: not read */
    int64_t from_us, until_us;
} Spell;
/* Pure: a row of time `at_us` came that is newer than all others. True when it is what holds at
 * `t_us` from then on; else the spell only ends where it begins, or is not touched. */
bool spell_take(Spell *spell, int64_t at_us, int64_t t_us);

typedef struct Member { /* one engine; the strings are the roster's, until the next call */
    int64_t engine;
    Spell spells[ROSTER_PARTS];
    bool present; /* it had a name at T */
    char *name, *address;
    bool local;
    int64_t first_seen_us; /* of all times */
    bool born;
    int64_t incarnation, pid;
    bool stated;
    EngineState state;
    int64_t since_us, policy_version;
    char *reason;
} Member;

/* Inside view_begin and view_end. All engines that the log names, in order, with the parts that
 * `parts` (1 << ROSTER_NAME and so on) names as they were at T. */
const Member *roster_all(View *view, int64_t t_us, unsigned parts, size_t *count);
/* One of them; NULL: the log names none. */
const Member *roster_find(View *view, int64_t engine, int64_t t_us, unsigned parts);

/* ---- pulse -------------------------------------------------------------------------------- */

typedef struct Pulse Pulse;
void pulse_free(Pulse *pulse);

typedef struct Sight { /* an observation of an engine's counter */
    int64_t engine, t_us;
    double tokens;
} Sight;

typedef struct Lane { /* observations in order of engine */
    const Sight *items;
    size_t count, at;
} Lane;

typedef struct PulseWalk {
    const AccSet *now;    /* state at T */
    const AccSet *minute; /* a minute before; NULL: not known */
    double minutes;       /* between the two; 0: unknown */
    int64_t grain_us;     /* how far apart ticks are */
    Lane *lanes;          /* in order of time */
    size_t count, capacity;
    Seen *seen;
    size_t seen_capacity;
} PulseWalk;

/* How often it was thrown away. Inside view_begin and view_end. */
int64_t pulse_forgotten(View *view);
/* Inside view_begin and view_end: state at T and the observations for rates of `spark` (cells 0:
 * of the rate now alone). Borrowed from the view until its next call; free the walk. */
void pulse_at(View *view, int64_t t_us, const SparkShape *spark, PulseWalk *walk);
void pulse_walk_free(PulseWalk *walk);
/* Observations of one engine, in order of time; engines are asked for in ascending order. */
const Seen *pulse_seen(PulseWalk *walk, int64_t engine, size_t *count);

/* ---- recent ------------------------------------------------------------------------------- */

typedef enum RecentKind { RECENT_PROBES, RECENT_LINES, RECENT_KINDS } RecentKind;
typedef struct Recent Recent;
void recent_free(Recent *recent);

#endif
