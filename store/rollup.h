/* Roll-ups: count, min, mean and max of each series over a minute, ten minutes, an hour, six
 * hours, a day. The writer fills a minute in memory and stores it when the minute is over; wider
 * buckets are made of narrower ones when they are over. They outlive the rows that they sum up,
 * and are what a wide range is read from, so that a spike survives zooming out.
 *
 * A series is a `word`: "probe/latency_us", "probe/running", "probe/waiting", "probe/token_usage",
 * "probe/tokens_per_s", "probe/error" (its mean is the share of probes that went wrong), and every
 * metric by its name. Engine ROLLUP_FLEET has the sum of tokens per second over all engines. */
#ifndef ROLLTOP_STORE_ROLLUP_H
#define ROLLTOP_STORE_ROLLUP_H

#include "store/db.h"
#include "store/tick.h"
#include "store/words.h"

enum { ROLLUP_FLEET = -1, ROLLUP_SPANS = 5, ROLLUP_MINUTE = 60, ROLLUP_METRICS_MAX = 4096 };
extern const int64_t rollup_spans[ROLLUP_SPANS]; /* seconds, ascending; each divides the next */

typedef struct Stat {
    int64_t count;
    double min, mean, max;
} Stat;
void stat_add(Stat *stat, double v);               /* NaN adds nothing */
void stat_merge(Stat *into, const Stat *other);

#define ROLLUP_PROBES(X)                                                                          \
    X(ROLL_LATENCY, "probe/latency_us") X(ROLL_RUNNING, "probe/running")                          \
    X(ROLL_WAITING, "probe/waiting") X(ROLL_USAGE, "probe/token_usage")                           \
    X(ROLL_ERROR, "probe/error") X(ROLL_TOKENS, "probe/tokens_per_s")
#define ROLLUP_ENTRY(name, word) name,
typedef enum RollProbe { ROLLUP_PROBES(ROLLUP_ENTRY) ROLL_PROBE_COUNT } RollProbe;
#undef ROLLUP_ENTRY
extern const char *const rollup_probe_words[ROLL_PROBE_COUNT];

typedef struct RollEngine { /* of the open minute */
    int64_t engine;
    Stat stats[ROLL_PROBE_COUNT];
    double tokens; /* sums at the last key second, for the rate until the next */
    int64_t counter_us;
} RollEngine;

typedef struct RollMetric {
    int64_t engine, name, step; /* step: the newest one */
    Stat stat;
} RollMetric;

typedef struct Rollup { /* the writer's open minute */
    int64_t minute; /* seconds / 60; -1: none */
    RollEngine *engines; /* ordered by engine */
    size_t count, capacity;
    RollMetric *metrics; /* ordered by engine, name */
    size_t metric_count, metric_capacity;
    double fleet_tokens; /* at the last key second */
    int64_t fleet_second; /* -1: none */
    int64_t words[ROLL_PROBE_COUNT]; /* 0: not asked for yet */
} Rollup;

void rollup_free(Rollup *rollup);
/* All answer SQLite codes. The minute of `second` is over when a later second begins. */
int rollup_second(Rollup *rollup, Db *db, Words *words, int64_t second);
void rollup_probe(Rollup *rollup, const ProbeFact *probe, bool ok);
int rollup_metric(Rollup *rollup, Db *db, int64_t engine, int64_t name, int64_t step,
                  double value);
/* At a key second: rates since the one before. `tokens`: of all engines. */
void rollup_key(Rollup *rollup, const AccSet *engines, double tokens, int64_t second);
/* The open minute anew from the rows behind `tick` (the last one before the minute). */
Err rollup_load(Rollup *rollup, Db *db, int64_t second, Fault *fault);

/* One series of one engine in [from_s, to_s), merged from the widest buckets that fit; some twenty
 * look-ups at most with `cells`, some forty without. count 0: nothing is known. */
typedef struct RollRead {
    int64_t series, engine;
    int64_t last_s; /* newest second of the log: buckets beyond are made of narrower ones */
    bool cells;     /* one of many ranges side by side: a bucket belongs to the one it ends in */
} RollRead;
Err rollup_read(Db *db, const RollRead *what, int64_t from_s, int64_t to_s, Stat *out,
                Fault *fault);
/* Word of a series; -1: the log knows none of that name. */
Err rollup_series(Db *db, const char *name, int64_t *out, Fault *fault);

#endif
