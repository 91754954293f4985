/* Reads a -wal file as SQLite would recover it, to say what SQLite does not: how much lies behind
 * the first frame that cannot be trusted. */
#ifndef ROLLTOP_STORE_WAL_SCAN_H
#define ROLLTOP_STORE_WAL_SCAN_H

#include "core/base/err.h"

#include <stdint.h>

typedef struct WalScan {
    bool found;        /* there is one, and it is not empty */
    bool header_good;
    int64_t frames;    /* whole and in order from the start */
    int64_t committed; /* of them up to the last commit: what is read */
    int64_t behind;    /* further frames of the same generation */
    int64_t commits_behind; /* commits among those: facts that are lost */
} WalScan;

/* `path` is the log's. Reads the whole -wal once. */
Err wal_scan(const char *path, WalScan *out, Fault *fault);

#endif
