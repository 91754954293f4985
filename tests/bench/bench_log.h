/* A log of a bench's own, in a folder of its own under $TMPDIR. */
#ifndef ROLLTOP_TESTS_BENCH_LOG_H
#define ROLLTOP_TESTS_BENCH_LOG_H

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

/* The folder, to be removed and freed by the caller; ends the program where there can be none. */
static inline char *bench_log_open(Store **store)
{
    const char *base = getenv("TMPDIR");
    char *dir = xasprintf("%s/rolltop-bench-XXXXXX", base ? base : "/tmp");
    Fault fault = {0};
    if (!mkdtemp(dir)) {
        perror(dir);
        exit(1);
    }
    char *path = fs_join(dir, "run.db");
    if (store_open(path, NULL, store, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    free(path);
    return dir;
}

#endif
