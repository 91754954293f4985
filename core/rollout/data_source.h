/* Prompt file: rows, order, epochs; as slime reads it (slime-semantics §2; datasource-vectors).
 * A bad line is an error that names file and line, before anything starts (slime skips it in
 * silence; we do not). Pure after load. */
#ifndef ROLLTOP_ROLLOUT_DATA_SOURCE_H
#define ROLLTOP_ROLLOUT_DATA_SOURCE_H

#include "core/base/str.h"
#include "core/rollout/label.h"

typedef struct DataSource DataSource;

typedef struct DataConfig {
    const char *path;      /* .jsonl, optional @[a:b] */
    const char *input_key; /* "input" */
    const char *label_key; /* NULL: no labels */
    const char *metadata_key; /* "metadata" */
    bool shuffle;
    int64_t seed;          /* rollout_seed */
} DataConfig;

typedef struct DataRow {
    int64_t index;   /* row of the file (after the slice), 0-based */
    Str prompt;      /* text; borrowed from the source */
    Str label;       /* text form; n 0 and p NULL when null */
    LabelKind label_kind;
    Str metadata;    /* raw JSON object, "{}" when absent */
} DataRow;

Err data_open(const DataConfig *config, DataSource **out, Fault *fault);
void data_free(DataSource *data);
int64_t data_count(const DataSource *data);
const DataRow *data_row(const DataSource *data, int64_t index);
/* Drops rows for which keep() is false (prompt length); order is kept. */
void data_filter(DataSource *data, bool (*keep)(const DataRow *row, void *user), void *user);
/* Takes up to k rows in order with wrap and reshuffle; returns how many (fewer only when the
 * data set is smaller than k). */
int64_t data_take(DataSource *data, int64_t k, const DataRow **rows);
/* Position as one number of consumed prompts in slime's (epoch, offset) sense, for resume. */
typedef struct DataPosition {
    int64_t epoch, offset;
} DataPosition;
DataPosition data_position(const DataSource *data);
void data_seek(DataSource *data, DataPosition position);

#endif
