/* The log's schema as a table of migration steps, and the checks at the door. docs/log.md
 * describes it; a test compares the two. */
#ifndef ROLLTOP_STORE_SCHEMA_H
#define ROLLTOP_STORE_SCHEMA_H

#include "store/db.h"

/* For a writer: WAL, creation in a new (or empty) file, steps from an older version on. Foreign
 * and newer files are refused by name and left untouched. */
Err schema_prepare(Db *db, Fault *fault);
/* A new log of an older (or the present) schema in an empty database: how a file that this program
 * did not write must look. */
Err schema_create(Db *db, int64_t version, Fault *fault);
/* Tables of later versions are put beside an older log, empty and for this connection only: it is
 * read by the same statements. */
Err schema_add_later(Db *db, int64_t version, Fault *fault);
/* For a reader: ours, not newer, same words for the codes. */
Err schema_check(Db *db, Fault *fault);

#endif
