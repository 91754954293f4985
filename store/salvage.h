/* The part of a salvage that opens a file whose first page is damaged. Private to store/. */
#ifndef ROLLTOP_STORE_SALVAGE_H
#define ROLLTOP_STORE_SALVAGE_H

#include "store/db.h"

#include <stdio.h>

/* Opens the log at `path` for reading. When its first page cannot be used, a copy is made at
 * `mended` (with its -wal) and gets the first page of a new log of the same schema: the tables lie
 * in the same places, since they were made in the same order. Says so on `out`. */
Err salvage_open(const char *path, const char *mended, Db *out_db, FILE *out, Fault *fault);

#endif
