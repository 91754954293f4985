/* Retention beside a writer: looks once in a while whether a trim is due (trim.h) and does it a
 * slice at a time inside the writer's own commits, so that it costs no fsync and no second
 * connection. Runs on the writer thread only. */
#ifndef ROLLTOP_STORE_RETAIN_H
#define ROLLTOP_STORE_RETAIN_H

#include "store/apply.h"
#include "store/trim.h"

typedef struct Retain {
    TrimLimits limits;
    TrimWork work;
    int64_t looked_us; /* in the log's own time */
    int64_t warned_us; /* when it was said that the bound of size does not hold */
} Retain;

/* A trim that was cut short, by a crash or by a commit that failed, goes on. */
Err retain_load(Retain *retain, Db *db, Fault *fault);
/* Inside the open transaction, after its facts; an SQLite code. */
int retain_slice(Retain *retain, Writer *writer);

#endif
