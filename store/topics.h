/* The topics of `rolltop query`: each is a temporary SQL view of the same name on the reader's
 * connection, so `--sql` sees the same columns. */
#ifndef ROLLTOP_STORE_TOPICS_H
#define ROLLTOP_STORE_TOPICS_H

#include <stddef.h>

typedef struct Topic {
    const char *name;
    const char *select; /* the statement; its columns are documented in docs/log.md */
    const char *order;  /* " ORDER BY …" for the topic's own listing; may be "" */
} Topic;

const Topic *topics_all(size_t *count);

#endif
