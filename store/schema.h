/* The log's schema as a table of migration steps, and the checks at the door. docs/log.md
 * describes it; a test compares the two. */
#ifndef ROLLTOP_STORE_SCHEMA_H
#define ROLLTOP_STORE_SCHEMA_H

#include "store/db.h"

/* For a writer: WAL, creation in a new (or empty) file, steps from an older version on. Foreign
 * and newer files are refused by name and left untouched. */
Err schema_prepare(Db *db, Fault *fault);
/* For a reader: ours, not newer, same words for the codes. */
Err schema_check(Db *db, Fault *fault);

#endif
