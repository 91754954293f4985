/* Care of a log file: what is in it, whether it is sound, copies, smaller files, what a damaged one
 * still holds. Each call opens and closes the log itself and prints plain lines to `out`. */
#ifndef ROLLTOP_STORE_MAINTAIN_H
#define ROLLTOP_STORE_MAINTAIN_H

#include "core/base/err.h"

#include <stdint.h>
#include <stdio.h>

/* Size, schema, run, sessions, rows of each table, gaps, trims, damage. `json`: one object. */
Err log_info(const char *path, bool json, FILE *out, Fault *fault);

/* SQLite's own check of the file and the log's rules: a line for each breach, a few of each kind
 * and how many more. *breaches 0: sound. ERR_*: it could not be looked at. */
Err log_check(const char *path, FILE *out, int64_t *breaches, Fault *fault);

/* A consistent copy, of a live run's log too, in steps that leave the writer room; the -wal of the
 * run grows meanwhile by what is written, at most LOG_SNAPSHOT_WAL_MAX. `to` must not be there. */
#define LOG_SNAPSHOT_WAL_MAX (INT64_C(4) << 30)
Err log_snapshot(const char *path, const char *to, FILE *out, Fault *fault);

/* Writes the file anew without its free pages. Refused while a run writes it, and for a log with
 * damage in the file or its -wal, of which the rest would be lost. */
Err log_compact(const char *path, FILE *out, Fault *fault);

/* Retention by hand (trim.h); keep_us 0: any age, max_bytes 0: any size. Refused while a run
 * writes it, and while its -wal is damaged. */
Err log_trim(const char *path, int64_t keep_us, int64_t max_bytes, FILE *out, Fault *fault);

/* What can be read of a damaged log into a new one; what was lost is counted, printed and recorded
 * in its table `damage`. `path` is only read. *lost: rows, at least. */
Err log_salvage(const char *path, const char *to, FILE *out, int64_t *lost, Fault *fault);

#endif
